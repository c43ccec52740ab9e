//! The rates of operations under the plans of modes.

use takt_model::{Arrival, Span, System, Task};

use super::anomaly::Anomaly;

/// The rate of an operation in one of the plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rate {
    /// Its period or least distance; for a follower, that of its source.
    pub(super) period: Span,
    pub(super) takes_part: bool,
}

/// The rates of all plans. Empty if all tasks take part with the System's rates.
#[derive(Default)]
pub(super) struct Rates {
    /// By plan, by task.
    pub(super) plans: Vec<Vec<Rate>>,
    pub(super) modes: Vec<String>,
}

impl Rates {
    /// Whether a switch moves the arrivals of a task.
    pub(super) fn moves(&self, task: usize) -> bool {
        let mut rates = self.plans.iter().filter_map(|rates| rates.get(task));
        rates.next().is_some_and(|first| rates.any(|other| other != first))
    }

    /// The System in which the node's tasks have the rates of a plan. Tasks that a switch moves
    /// have no phase: they may arrive at any time.
    pub(super) fn system(&self, system: &System, plan: usize) -> System {
        let mut system = at_rates(system, self.plans.get(plan));
        for (_, task) in system.tasks.iter_mut().enumerate().filter(|(at, _)| plan > 0 && self.moves(*at)) {
            without_phase(task);
        }
        system
    }

    /// Adds the mode's name to an anomaly of one of the plans.
    pub(super) fn wrong_in(&self, plan: usize, anomaly: Anomaly) -> Anomaly {
        match plan.checked_sub(1).and_then(|mode| self.modes.get(mode)) {
            Some(mode) => in_mode(mode, anomaly),
            None => anomaly,
        }
    }
}

/// The System in which the node's tasks have these rates.
pub(super) fn at_rates(system: &System, rates: Option<&Vec<Rate>>) -> System {
    let mut system = system.clone();
    for (task, rate) in system.tasks.iter_mut().zip(rates.into_iter().flatten()) {
        task.period = rate.period;
    }
    system
}

/// Removes the phase of a task. It arrives at any time, with the same rate.
pub(super) fn without_phase(task: &mut Task) {
    if task.after.is_empty() {
        (task.arrival, task.offset) = (Arrival::Sporadic, Span::ZERO);
    }
}

/// Wraps an anomaly of a mode.
pub(super) fn in_mode(mode: &str, anomaly: Anomaly) -> Anomaly {
    Anomaly::InMode { mode: mode.to_owned(), anomaly: Box::new(anomaly) }
}
