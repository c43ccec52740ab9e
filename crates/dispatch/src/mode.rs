//! Modes that a program switches to: which operations take part, how often, and in which order. After the mode changes of the literature
//! (Real and Crespo, 2004): what an operation released before a switch goes on, and what it releases after the switch keeps the new least distance from
//! what it released before.

use std::collections::{BTreeMap, BTreeSet};

use takt_model::{
    Arrival, Discipline, Filter, Mode, NodeId, Span, Strategy, StrategyId, StrategyRef, System, Task, TaskId, Time,
};

use super::anomaly::Anomaly;
use super::graph::{predecessors, sorted, sources};
use super::operation::{Arrives, Operations, name_fault};
use super::plan::{Plan, enter, own, run_to_completion};

/// Another way to run a set of operations: with other rates, without some of them, under another strategy. Deadlines stay what they are: state those that
/// hold in every mode.
///
/// ```
/// use takt_model::{Builtin, Span};
/// use takt_dispatch::{Limits, OperatingMode, Operation, Operations};
///
/// let ms = Span::from_ms;
/// let operations = Operations::new("flight")
///     .with(Operation::periodic("control", ms(25)).wcet(ms(5)).deadline(ms(10)))
///     .with(Operation::periodic("route", ms(50)).wcet(ms(20)).noncritical())
///     .with(Operation::periodic("gear", ms(100)).wcet(ms(2)))
///     .at_first_without("gear")
///     .mode(OperatingMode::new("landing", Builtin::Rm.strategy()).without("route").every("control", ms(10)));
/// let plan = operations.compute(&Builtin::Rm.strategy(), &Limits::default())?;
/// assert_eq!(plan.mode("landing"), Some(1));
/// let landing = plan.steady(1).expect("there is such a mode");
/// assert_eq!(landing.tasks.len(), 2);
/// # Ok::<(), takt_dispatch::Anomalies>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperatingMode {
    /// Unique name.
    pub name: String,
    /// What the operations obey in it.
    pub strategy: Strategy,
    /// The names of operations that take no part in it.
    pub absent: Vec<String>,
    /// Operations with another period, or least distance, than the set says.
    pub periods: BTreeMap<String, Span>,
}

impl OperatingMode {
    /// A mode in which all operations take part, at the set's rates.
    #[must_use]
    pub fn new(name: &str, strategy: Strategy) -> Self {
        OperatingMode { name: name.to_owned(), strategy, absent: Vec::new(), periods: BTreeMap::new() }
    }

    /// Without this operation, and so without its whole chain, which is to be named, too.
    #[must_use]
    pub fn without(mut self, operation: &str) -> Self {
        self.absent.push(operation.to_owned());
        self
    }

    /// With this period of an operation, or least distance of one that the program pushes. What follows it comes as often.
    #[must_use]
    pub fn every(mut self, operation: &str, period: Span) -> Self {
        self.periods.insert(operation.to_owned(), period);
        self
    }

    /// For texts.
    fn label(&self) -> String {
        format!("mode \"{}\"", self.name)
    }
}

/// An operation in one of the plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rate {
    /// Its period or least distance; of a follower that of its source.
    pub(super) period: Span,
    pub(super) takes_part: bool,
}

/// The rates of all plans; of none where all tasks have those of the System, and all take part.
#[derive(Default)]
pub(super) struct Rates {
    /// By plan, by task.
    pub(super) plans: Vec<Vec<Rate>>,
    /// The names of the modes.
    modes: Vec<String>,
}

impl Rates {
    /// Whether a switch moves the arrivals of a task.
    fn moves(&self, task: usize) -> bool {
        let mut rates = self.plans.iter().filter_map(|rates| rates.get(task));
        rates.next().is_some_and(|first| rates.any(|other| other != first))
    }

    /// The System in which the node's tasks have the rates of a plan. What a switch moves has no phase after one: it may arrive at any time.
    pub(super) fn system(&self, system: &System, plan: usize) -> System {
        let mut system = at_rates(system, self.plans.get(plan));
        for (_, task) in system.tasks.iter_mut().enumerate().filter(|(at, _)| plan > 0 && self.moves(*at)) {
            without_phase(task);
        }
        system
    }

    /// What is wrong with one of the plans.
    pub(super) fn wrong_in(&self, plan: usize, anomaly: Anomaly) -> Anomaly {
        match plan.checked_sub(1).and_then(|mode| self.modes.get(mode)) {
            Some(mode) => in_mode(mode, anomaly),
            None => anomaly,
        }
    }
}

/// The System in which the node's tasks have the rates of a plan.
pub(super) fn at_rates(system: &System, rates: Option<&Vec<Rate>>) -> System {
    let mut system = system.clone();
    for (task, rate) in system.tasks.iter_mut().zip(rates.into_iter().flatten()) {
        task.period = rate.period;
    }
    system
}

/// A task that a switch moves: it arrives at any time, as often as ever.
fn without_phase(task: &mut Task) {
    if task.after.is_empty() {
        (task.arrival, task.offset) = (Arrival::Sporadic, Span::ZERO);
    }
}

impl Operations {
    /// The rates of all plans, for the tasks of `system`, which was built of this set.
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
            // One that the set implies stays, too.
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

    /// What waits for several sources, of which a switch can come between arrivals of one instance: those that arrive at different times.
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

    /// Enters the strategies of the modes into the System, at times that no run reaches: only the program switches to them.
    pub(super) fn enter_modes(&self, system: &mut System, preemptive: bool) {
        let first = Span::FILE_MAX.as_ns() - self.modes.len() as u64;
        for (mode, at) in self.modes.iter().zip(first..) {
            let strategy = if preemptive { mode.strategy.clone() } else { run_to_completion(&mode.strategy) };
            let strategy = enter(system, own(strategy));
            system.modes.push(Mode { node: NodeId(0), at: Time::from_ns(at), strategy });
        }
    }
}

/// What is wrong in one mode.
fn in_mode(mode: &str, anomaly: Anomaly) -> Anomaly {
    Anomaly::InMode { mode: mode.to_owned(), anomaly: Box::new(anomaly) }
}

impl Plan {
    /// The number of the plan of a mode that the program can switch to; `None` where there is none of that name.
    #[must_use]
    pub fn mode(&self, name: &str) -> Option<usize> {
        Some(1 + self.modes.iter().position(|mode| mode.name.as_deref() == Some(name))?)
    }

    /// The System of one of the plans alone (0: of the start, k: of the k-th mode): those operations that take part, at their rates. To be proven by `takt check`,
    /// for as long as the plan holds and nothing is left from before the switch: that comes on top for a while, and the proof does not cover it. What a switch
    /// moves has no phase that one could know, and is sporadic here.
    ///
    /// `None` where there is no such plan.
    #[must_use]
    pub fn steady(&self, plan: usize) -> Option<System> {
        let rows = self.rows_in(plan)?;
        let mut system = self.system.clone();
        let mut references = vec![system.nodes.get(self.node.index())?.strategy];
        let mut modes: Vec<&Mode> = self.system.modes.iter().filter(|mode| mode.node == self.node).collect();
        modes.sort_by_key(|mode| mode.at);
        references.extend(modes.iter().map(|mode| mode.strategy));
        let strategy = *references.get(plan)?;
        system.nodes.get_mut(self.node.index())?.strategy = strategy;
        system.modes.retain(|mode| mode.node != self.node);
        if !self.varies() {
            return Some(system);
        }
        // Stated by a program: there is one node, and its tasks are all.
        let mut places: Vec<Option<TaskId>> = Vec::with_capacity(system.tasks.len());
        for (at, row) in rows.iter().enumerate() {
            let there = places.iter().flatten().count() as u32;
            places.push(row.takes_part.then_some(TaskId(there)));
            let task = system.tasks.get_mut(row.task.index())?;
            task.period = row.period;
            let others = (0..=self.modes.len()).filter_map(|plan| self.rows_in(plan)?.get(at));
            if others.into_iter().any(|other| (other.period, other.takes_part) != (row.period, row.takes_part)) {
                without_phase(task);
            }
        }
        let absent: Vec<&str> = rows.iter().filter(|row| !row.takes_part).map(|row| row.name.as_str()).collect();
        system.tasks.retain(|task| !absent.contains(&task.name.as_str()));
        for before in system.tasks.iter_mut().flat_map(|task| &mut task.after) {
            *before = places.get(before.index()).copied().flatten()?;
        }
        let mut strategy = system.strategy(strategy);
        for level in &mut strategy.levels {
            if let Filter::Named(names) = &mut level.filter {
                names.retain(|name| !absent.contains(&name.as_str()));
            }
            if let Discipline::Gel { shift } = &mut level.discipline {
                shift.retain(|name, _| !absent.contains(&name.as_str()));
            }
        }
        strategy.levels.retain(|level| level.filter != Filter::Named(Vec::new()));
        system.strategies = vec![strategy];
        system.nodes.get_mut(self.node.index())?.strategy = StrategyRef::Own(StrategyId(0));
        Some(system)
    }
}
