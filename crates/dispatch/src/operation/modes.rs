//! The modes of a set of operations: their rates, their faults, and their strategies.

use std::collections::BTreeSet;

use takt_model::{Mode, NodeId, Span, System, Task, Time};

use super::{Arrives, Operations, name_fault};
use crate::anomaly::Anomaly;
use crate::completion::{enter, own, run_to_completion};
use crate::graph::{predecessors, sorted, sources};
use crate::mode::OperatingMode;
use crate::rate::{Rate, Rates, in_mode};

impl Operations {
    /// The rates of all plans, for the tasks of `system`, which was built from this set.
    pub(super) fn rates(&self, system: &System, anomalies: &mut Vec<Anomaly>) -> Rates {
        let mut names = BTreeSet::new();
        self.wrong_members("the start", &self.absent, anomalies);
        for mode in &self.modes {
            if let Some(fault) = name_fault(&mode.name) {
                anomalies.push(Anomaly::Name { of: "a mode".to_owned(), fault });
            } else if !names.insert(mode.name.as_str()) {
                anomalies.push(Anomaly::DuplicateMode { mode: mode.name.clone() });
            }
            self.wrong_members(&mode.label(), &mode.absent, anomalies);
            self.wrong_periods(mode, anomalies);
        }
        if self.modes.is_empty() && self.absent.is_empty() || system.tasks.len() != self.operations.len() {
            return Rates::default();
        }
        let of = |tasks: &[Task], absent: &[String]| -> Vec<Rate> {
            let rate = |task: &Task| Rate { period: task.period, takes_part: !absent.contains(&task.name) };
            tasks.iter().map(rate).collect()
        };
        let modes = self.modes.iter().map(|mode| mode.name.clone()).collect();
        let mut rates = Rates { plans: vec![of(&system.tasks, &self.absent)], modes };
        if !anomalies.is_empty() {
            return rates;
        }
        for mode in &self.modes {
            let (altered, wrong) = self.altered(mode, system).build(&mode.strategy, false);
            let wrong = wrong.into_iter().filter(|one| !anomalies.contains(one)).collect::<Vec<_>>();
            anomalies.extend(wrong.into_iter().map(|one| in_mode(&mode.name, one)));
            rates.plans.push(of(&altered.tasks, &mode.absent));
        }
        self.parted_joins(system, &rates, anomalies);
        rates
    }

    /// The set with the periods of a mode, without modes.
    fn altered(&self, mode: &OperatingMode, system: &System) -> Operations {
        let mut altered = Operations { modes: Vec::new(), absent: Vec::new(), ..self.clone() };
        for (operation, task) in altered.operations.iter_mut().zip(&system.tasks) {
            // Implied deadlines stay too.
            operation.deadline = Some(task.deadline);
            let Some(given) = mode.periods.get(&operation.name) else { continue };
            match &mut operation.arrival {
                Arrives::Periodic { period, .. } => *period = *given,
                Arrives::Sporadic { distance } => *distance = *given,
                Arrives::After => {}
            }
        }
        altered
    }

    fn wrong_members(&self, mode: &str, absent: &[String], anomalies: &mut Vec<Anomaly>) {
        let is_there = |name: &String| self.operations.iter().any(|operation| operation.name == *name);
        for name in absent.iter().filter(|name| !is_there(name)) {
            anomalies.push(Anomaly::UnknownInMode { mode: mode.to_owned(), operation: name.clone() });
        }
        if self.operations.iter().all(|operation| absent.contains(&operation.name)) && !self.operations.is_empty() {
            anomalies.push(Anomaly::Empty { of: mode.to_owned() });
        }
        let is_absent = |name: &String| absent.contains(name);
        for operation in &self.operations {
            let torn = operation.after.iter().find(|before| is_absent(before) != is_absent(&operation.name));
            if let Some(before) = torn.filter(|before| is_there(before)) {
                let (absent, present) =
                    if is_absent(before) { (before, &operation.name) } else { (&operation.name, before) };
                let (absent, present) = (absent.clone(), present.clone());
                anomalies.push(Anomaly::TornChain { mode: mode.to_owned(), absent, present });
            }
        }
    }

    /// Operations that wait for several sources, if a switch can fall between arrivals of one
    /// instance. This needs sources with different arrival times.
    fn parted_joins(&self, system: &System, rates: &Rates, anomalies: &mut Vec<Anomaly>) {
        let before = predecessors(system);
        let sources = sources(&before, &sorted(&before).order);
        for (operation, sources) in self.operations.iter().zip(&sources).filter(|(one, _)| one.after.len() > 1) {
            let offset = |at: &usize| match self.operations.get(*at)?.arrival {
                Arrives::Periodic { offset, .. } => Some(offset),
                _ => None,
            };
            let moved = sources.iter().any(|at| rates.moves(*at));
            let Some(first) = sources.iter().find(|at| offset(at).is_some()).filter(|_| moved) else { continue };
            let parted = |at: &&usize| offset(at).is_some_and(|other| Some(other) != offset(first));
            let name = |at: &usize| self.operations.get(*at).map_or(String::new(), |operation| operation.name.clone());
            if let Some(other) = sources.iter().find(parted) {
                let operation = operation.name.clone();
                anomalies.push(Anomaly::PartedJoin { operation, first: name(first), other: name(other) });
            }
        }
    }

    fn wrong_periods(&self, mode: &OperatingMode, anomalies: &mut Vec<Anomaly>) {
        for name in mode.periods.keys() {
            match self.operations.iter().find(|operation| operation.name == *name) {
                None => anomalies.push(Anomaly::UnknownInMode { mode: mode.label(), operation: name.clone() }),
                Some(operation) if operation.arrival == Arrives::After => {
                    anomalies.push(Anomaly::RateOfFollower { mode: mode.name.clone(), operation: name.clone() });
                }
                Some(_) => {}
            }
        }
    }

    /// Adds the strategies of the modes to the System, at times beyond all runs: only the program
    /// switches to them.
    pub(super) fn enter_modes(&self, system: &mut System, preemptive: bool) {
        let first = Span::FILE_MAX.as_ns() - self.modes.len() as u64;
        for (mode, at) in self.modes.iter().zip(first..) {
            let strategy = if preemptive { mode.strategy.clone() } else { run_to_completion(&mode.strategy) };
            let strategy = enter(system, own(strategy));
            system.modes.push(Mode { node: NodeId(0), at: Time::from_ns(at), strategy });
        }
    }
}
