//! The messages of a partial-EDF node [HEDF II-A]: what its receiving and its sending task take.
//!
//! The caller runs both table tasks above all jobs and tells this machine when their jobs start and
//! end. The rules, with ERRATA.md:
//!
//! - A receiving job takes, at its start, the messages that have arrived, in order of arrival, at
//!   most as many as its budget allows. The others stay and are counted.
//! - A sending job takes, at its start, the messages that are ready. Messages leave in lanes, one per
//!   flow and hop. A lane gives at most one message to a job, and the next one `apart` or more jobs
//!   later. With more lanes than the budget allows, the earliest deadlines go first; ties go to the
//!   lower lane. Within a lane messages keep their order.
//!
//! The machine knows no clock. `M` is the caller's message.

use std::collections::VecDeque;

use takt_model::Time;

/// The limits of a node's table tasks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartialEdfSpec {
    /// Messages that a receiving job takes at most; `None`: all.
    pub receive_most: Option<u64>,
    /// Messages that a sending job takes at most; `None`: all.
    pub send_most: Option<u64>,
    /// For each lane, the least distance of two messages in sending jobs; 0 counts as 1.
    pub apart: Vec<u64>,
    /// Messages that wait at most to be received, and to be sent.
    pub messages_max: usize,
}

/// The message queues of one node.
#[derive(Clone, Debug)]
pub struct PartialEdf<M> {
    spec: PartialEdfSpec,
    arrived: VecDeque<M>,
    receiving: Vec<M>,
    lanes: Vec<Lane<M>>,
    /// Lanes with messages.
    nonempty: Vec<u32>,
    /// Messages in all lanes.
    ready: usize,
    sending: Vec<M>,
    /// Reused memory: deadline and lane of the messages that may leave.
    eligible: Vec<(Time, u32)>,
}

#[derive(Clone, Debug)]
struct Lane<M> {
    /// The number of the sending job that took the last message.
    last: Option<u64>,
    /// Messages with their deadlines.
    queue: VecDeque<(Time, M)>,
}

impl<M> PartialEdf<M> {
    /// An empty node.
    #[must_use]
    pub fn new(spec: PartialEdfSpec) -> Self {
        let lanes = spec.apart.iter().map(|_| Lane { last: None, queue: VecDeque::new() }).collect();
        PartialEdf {
            spec,
            arrived: VecDeque::new(),
            receiving: Vec::new(),
            lanes,
            nonempty: Vec::new(),
            ready: 0,
            sending: Vec::new(),
            eligible: Vec::new(),
        }
    }

    /// Makes room for that many messages in every queue, for a caller that must not allocate later.
    pub fn reserve(&mut self, messages: usize) {
        self.arrived.reserve(messages);
        self.receiving.reserve(messages);
        self.sending.reserve(messages);
        self.nonempty.reserve(self.lanes.len());
        self.eligible.reserve(self.lanes.len());
        self.lanes.iter_mut().for_each(|lane| lane.queue.reserve(messages));
    }

    /// A message has reached the node.
    ///
    /// # Errors
    /// The message, where too many wait.
    pub fn arrive(&mut self, message: M) -> Result<(), M> {
        if self.arrived.len() >= self.spec.messages_max {
            return Err(message);
        }
        self.arrived.push_back(message);
        Ok(())
    }

    /// A receiving job starts: how many messages it takes.
    pub fn start_receiving(&mut self) -> u64 {
        let most = self.spec.receive_most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let taken = self.arrived.len().min(most);
        self.receiving.extend(self.arrived.drain(..taken));
        taken as u64
    }

    /// The receiving job has ended: its messages, in order of arrival.
    pub fn received(&mut self) -> impl Iterator<Item = M> + '_ {
        self.receiving.drain(..)
    }

    /// A message may leave by `lane`. `deadline` is not before those of earlier messages of the lane.
    ///
    /// # Errors
    /// The message, where too many wait, or there is no such lane.
    pub fn make_ready(&mut self, lane: u32, deadline: Time, message: M) -> Result<(), M> {
        if self.ready >= self.spec.messages_max {
            return Err(message);
        }
        let Some(at) = self.lanes.get_mut(lane as usize) else { return Err(message) };
        if at.queue.is_empty() {
            self.nonempty.push(lane);
        }
        at.queue.push_back((deadline, message));
        self.ready += 1;
        Ok(())
    }

    /// Sending job `number` starts: how many messages it takes.
    pub fn start_sending(&mut self, number: u64) -> u64 {
        self.eligible.clear();
        for lane in &self.nonempty {
            let at = &self.lanes[*lane as usize];
            let apart = self.spec.apart[*lane as usize].max(1);
            let may_send = at.last.is_none_or(|last| number.saturating_sub(last) >= apart);
            if let (true, Some((deadline, _))) = (may_send, at.queue.front()) {
                self.eligible.push((*deadline, *lane));
            }
        }
        self.eligible.sort_unstable();
        let most = self.spec.send_most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        self.eligible.truncate(most);
        for (_, lane) in &self.eligible {
            let at = &mut self.lanes[*lane as usize];
            at.last = Some(number);
            self.sending.extend(at.queue.pop_front().map(|(_, message)| message));
        }
        self.ready -= self.eligible.len();
        let lanes = &self.lanes;
        self.nonempty.retain(|lane| !lanes[*lane as usize].queue.is_empty());
        self.eligible.len() as u64
    }

    /// The sending job has ended: its messages, the earliest deadline first.
    pub fn sent(&mut self) -> impl Iterator<Item = M> + '_ {
        self.sending.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(receive: Option<u64>, send: Option<u64>, apart: &[u64]) -> PartialEdf<u32> {
        let spec = PartialEdfSpec { receive_most: receive, send_most: send, apart: apart.to_vec(), messages_max: 4 };
        PartialEdf::new(spec)
    }

    #[test]
    fn a_receiving_job_takes_what_had_arrived_at_its_start_as_far_as_its_budget_goes() {
        let mut node = node(Some(2), None, &[]);
        for message in 1..=3 {
            node.arrive(message).expect("there is room");
        }
        assert_eq!(node.start_receiving(), 2);
        node.arrive(4).expect("there is room");
        assert_eq!(node.received().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(node.start_receiving(), 2);
        assert_eq!(node.received().collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn messages_of_a_lane_leave_apart_and_the_earliest_deadline_goes_first() {
        let mut node = node(None, Some(1), &[2, 1]);
        let at = Time::from_ns;
        for (lane, deadline, message) in [(0, 5, 10), (0, 6, 11), (1, 4, 20)] {
            node.make_ready(lane, at(deadline), message).expect("there is room");
        }
        let sent: Vec<Vec<u32>> = (0..5)
            .map(|job| {
                node.start_sending(job);
                node.sent().collect()
            })
            .collect();
        assert_eq!(sent, [vec![20], vec![10], vec![], vec![11], vec![]]);
    }

    #[test]
    fn a_full_queue_gives_the_message_back() {
        let mut node = node(None, None, &[1]);
        assert!((0..4).all(|message| node.arrive(message).is_ok()) && node.arrive(9) == Err(9));
        assert!((0..4).all(|message| node.make_ready(0, Time::ZERO, message).is_ok()));
        assert_eq!(node.make_ready(0, Time::ZERO, 9), Err(9));
    }

    /// The same rules, slowly: all messages in one list.
    #[derive(Default)]
    struct Reference {
        ready: Vec<(u32, u64, u32)>,
        last: Vec<(u32, u64)>,
    }

    impl Reference {
        fn send(&mut self, job: u64, most: usize, apart: &[u64]) -> Vec<u32> {
            let mut sent = Vec::new();
            while sent.len() < most {
                let may = |lane: u32| {
                    let last = self.last.iter().filter(|(of, _)| *of == lane).map(|(_, job)| *job).max();
                    last.is_none_or(|last| job >= last + apart[lane as usize].max(1))
                };
                let first = |i: &usize| !self.ready[..*i].iter().any(|(lane, ..)| *lane == self.ready[*i].0);
                let open = (0..self.ready.len()).filter(first).filter(|i| may(self.ready[*i].0));
                let Some(i) = open.min_by_key(|i| (self.ready[*i].1, self.ready[*i].0)) else { break };
                let (lane, _, message) = self.ready.remove(i);
                self.last.push((lane, job));
                sent.push(message);
            }
            sent
        }
    }

    proptest! {
        #[test]
        fn it_sends_as_the_slow_reference_does(
            apart in proptest::collection::vec(0u64..4, 1..5),
            most in 0usize..4,
            steps in proptest::collection::vec(proptest::option::of((0u32..5, 0u64..3)), 0..80),
        ) {
            let spec = PartialEdfSpec {
                receive_most: None, send_most: Some(most as u64), apart: apart.clone(), messages_max: 1_000,
            };
            let (mut node, mut reference) = (PartialEdf::new(spec), Reference::default());
            let (mut job, mut deadlines) = (0, vec![0; apart.len()]);
            for (message, step) in steps.into_iter().enumerate() {
                match step {
                    Some((lane, later)) => {
                        let lane = lane % apart.len() as u32;
                        deadlines[lane as usize] += later;
                        let deadline = deadlines[lane as usize];
                        prop_assert!(node.make_ready(lane, Time::from_ns(deadline), message as u32).is_ok());
                        reference.ready.push((lane, deadline, message as u32));
                    }
                    None => {
                        let count = node.start_sending(job);
                        let sent: Vec<u32> = node.sent().collect();
                        prop_assert_eq!(count as usize, sent.len());
                        prop_assert_eq!(sent, reference.send(job, most, &apart));
                        job += 1;
                    }
                }
            }
        }
    }
}
