//! The messages of a node that messages interrupt [HEDF II-A, "global-EDF"].
//!
//! The kernel interrupts the running job when a message arrives. The handler releases the message's
//! job. The caller runs one job per message for this, above all others, and tells this machine when
//! such a job ends. The rules:
//!
//! - Each message that arrives, and each that a job leaves, is an interrupt of its own. So the cost
//!   of one interrupt is paid per message.
//! - Sending happens at once when the job ends. The paper names no cost of it in this design. A send
//!   enters the kernel as an arrival does, so it is an interrupt too.
//! - Interrupts are served one after the other, in the order in which they come.
//! - No sending task keeps messages apart, so a flow's `send-gap` has no effect.
//!
//! The machine has no clock. `M` is the caller's message.

use std::collections::VecDeque;

/// A message whose interrupt has been served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupt<M> {
    /// It had arrived: its job is released.
    Received(M),
    /// A job had left it: it goes to the network.
    Sent(M),
}

/// The interrupts of one node that wait or are being served.
#[derive(Clone, Debug)]
pub struct Interrupts<M> {
    queue: VecDeque<Interrupt<M>>,
    /// How many of them arrived.
    arrived: usize,
    /// Messages that wait at most to be received, and to be sent.
    messages_max: usize,
    /// Interrupts so far.
    count: u64,
}

impl<M> Interrupts<M> {
    /// None yet. At most `messages_max` messages wait to be received, and as many to be sent.
    #[must_use]
    pub fn new(messages_max: usize) -> Self {
        Interrupts { queue: VecDeque::new(), arrived: 0, messages_max, count: 0 }
    }

    /// A message has reached the node. The answer is the number of its interrupt, from 0 on.
    ///
    /// # Errors
    /// The message, where too many wait.
    pub fn arrive(&mut self, message: M) -> Result<u64, M> {
        if self.arrived >= self.messages_max {
            return Err(message);
        }
        self.arrived += 1;
        Ok(self.push(Interrupt::Received(message)))
    }

    /// A job has left a message. The answer is the number of its interrupt, from 0 on.
    ///
    /// # Errors
    /// The message, where too many wait.
    pub fn leave(&mut self, message: M) -> Result<u64, M> {
        if self.queue.len() - self.arrived >= self.messages_max {
            return Err(message);
        }
        Ok(self.push(Interrupt::Sent(message)))
    }

    /// The first interrupt has been served.
    pub fn served(&mut self) -> Option<Interrupt<M>> {
        let interrupt = self.queue.pop_front();
        self.arrived -= usize::from(matches!(interrupt, Some(Interrupt::Received(_))));
        interrupt
    }

    fn push(&mut self, interrupt: Interrupt<M>) -> u64 {
        self.queue.push_back(interrupt);
        self.count += 1;
        self.count - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The reference keeps all messages in one list and counts anew each time.
        #[test]
        fn it_serves_in_order_as_the_slow_reference_does(
            most in 0usize..4,
            steps in proptest::collection::vec(0u8..3, 0..60),
        ) {
            let mut node = Interrupts::new(most);
            let (mut list, mut next): (Vec<(bool, usize)>, u64) = (Vec::new(), 0);
            for (message, step) in steps.into_iter().enumerate() {
                if step == 2 {
                    let wanted = (!list.is_empty()).then(|| list.remove(0)).map(|(arrived, message)| {
                        if arrived { Interrupt::Received(message) } else { Interrupt::Sent(message) }
                    });
                    prop_assert_eq!(node.served(), wanted);
                    continue;
                }
                let arrives = step == 0;
                let waiting = list.iter().filter(|(arrived, _)| *arrived == arrives).count();
                let answer = if arrives { node.arrive(message) } else { node.leave(message) };
                if waiting < most {
                    prop_assert_eq!(answer, Ok(next));
                    list.push((arrives, message));
                    next += 1;
                } else {
                    prop_assert_eq!(answer, Err(message));
                }
            }
        }
    }
}
