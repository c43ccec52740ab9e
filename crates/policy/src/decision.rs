//! Events in, decisions out: the values of a node's dispatcher.

use crate::slot::Job;

/// An event that the caller reports to the dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A job may run. The slot must hold no other job: jobs of one task go one after the other.
    Ready(Job),
    /// The running job of a slot finished.
    Complete {
        /// The slot.
        slot: u32,
    },
    /// The deadline of the job in a slot has passed. Needed only where
    /// [`Dispatcher::wants_deadlines`](crate::Dispatcher::wants_deadlines).
    Deadline {
        /// The slot.
        slot: u32,
    },
    /// The node switches to another of its plans.
    Mode {
        /// Zero for the node's strategy, k for the node's k-th mode in order of time.
        plan: usize,
    },
}

/// An action that the caller must carry out, in this order.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Omit this job: its slot is empty now (`cancel`).
    Cancel {
        /// The slot.
        slot: u32,
    },
    /// Drop this late job: its slot is empty now, its CPU (if it had one) idle.
    Drop {
        /// The slot.
        slot: u32,
        /// The CPU on which it was running.
        cpu: Option<u32>,
    },
    /// Take the CPU from this job; it waits.
    Preempt {
        /// The slot.
        slot: u32,
        /// The CPU it loses.
        cpu: u32,
    },
    /// Give this job the CPU.
    Run {
        /// The slot.
        slot: u32,
        /// The CPU, idle by now.
        cpu: u32,
        /// Whether it ran before.
        resumed: bool,
        /// The CPU on which it last ran, if it is another one.
        from: Option<u32>,
    },
}

/// Gives decisions of a scope the node's slots of its tasks.
pub(crate) fn rename(decisions: &mut [Decision], slots: &[u32]) {
    for decision in decisions {
        let (Decision::Cancel { slot }
        | Decision::Drop { slot, .. }
        | Decision::Preempt { slot, .. }
        | Decision::Run { slot, .. }) = decision;
        *slot = slots[*slot as usize];
    }
}
