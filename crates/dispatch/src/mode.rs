//! Modes that a program switches to: the participating operations, their rates, and their order.
//! They follow the mode changes of the literature (Real and Crespo, 2004). Jobs released before a
//! switch continue. Releases after the switch keep the new least distance from the earlier ones.

use std::collections::{BTreeMap, BTreeSet};

use takt_model::{
    Arrival, Discipline, Filter, Mode, NodeId, Span, Strategy, StrategyId, StrategyRef, System, Task, TaskId, Time,
};

use super::anomaly::Anomaly;
use super::graph::{predecessors, sorted, sources};
use super::operation::{Arrives, Operations, name_fault};
use super::plan::{Plan, enter, own, run_to_completion};

/// Another way to run a set of operations: with other rates, without some of them, under another
/// strategy. Deadlines do not change, so state deadlines that hold in every mode.
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
    /// The strategy of the mode.
    pub strategy: Strategy,
    /// The operations that take no part in the mode.
    pub absent: Vec<String>,
    /// Operations with a period or least distance other than the set's.
    pub periods: BTreeMap<String, Span>,
}

impl OperatingMode {
    /// A mode in which all operations take part, at the set's rates.
    #[must_use]
    pub fn new(name: &str, strategy: Strategy) -> Self {
        OperatingMode { name: name.to_owned(), strategy, absent: Vec::new(), periods: BTreeMap::new() }
    }

    /// Excludes an operation. The other operations of its chain must be excluded too.
    #[must_use]
    pub fn without(mut self, operation: &str) -> Self {
        self.absent.push(operation.to_owned());
        self
    }

    /// Sets the period of an operation, or the least distance of a pushed one. Its followers have
    /// the same rate.
    #[must_use]
    pub fn every(mut self, operation: &str, period: Span) -> Self {
        self.periods.insert(operation.to_owned(), period);
        self
    }

    /// The mode's name, for texts.
    fn label(&self) -> String {
        format!("mode \"{}\"", self.name)
    }
}

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
    /// The names of the modes.
    modes: Vec<String>,
}

impl Rates {
    /// Whether a switch moves the arrivals of a task.
    fn moves(&self, task: usize) -> bool {
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
fn without_phase(task: &mut Task) {
    if task.after.is_empty() {
        (task.arrival, task.offset) = (Arrival::Sporadic, Span::ZERO);
    }
}

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

/// Wraps an anomaly of a mode.
fn in_mode(mode: &str, anomaly: Anomaly) -> Anomaly {
    Anomaly::InMode { mode: mode.to_owned(), anomaly: Box::new(anomaly) }
}

impl Plan {
    /// The number of a mode's plan, for switches by the program; `None` if there is no such mode.
    #[must_use]
    pub fn mode(&self, name: &str) -> Option<usize> {
        Some(1 + self.modes.iter().position(|mode| mode.name.as_deref() == Some(name))?)
    }

    /// The System of one plan alone (0: of the start, k: of the k-th mode): the participating
    /// operations at their rates. `takt check` can prove it. The proof covers the time while the
    /// plan holds and no job from before the switch remains. Operations that a switch moves have no
    /// known phase, and are sporadic here.
    ///
    /// `None` if there is no such plan.
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
        // A program's set has one node, whose tasks are all tasks.
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
