//! Operations as a program states them, and the equivalent System.

use std::collections::{BTreeMap, BTreeSet};

use takt_model::file::validate;
use takt_model::{
    Arrival, CpuSet, Criticality, Late, NodeId, NodeSpec, Placement, Span, Strategy, StrategyId, StrategyRef, System,
    Task, TaskId,
};

use super::anomaly::{Anomalies, Anomaly};
use super::completion::{own, run_to_completion};
use super::compute::{judge_rates, misfits};
use super::graph::{Sorted, sorted};
use super::mode::OperatingMode;
use super::plan::{BACKLOG_MAX, Limits, Overrun, Plan, PlanLevelRow};

mod modes;

/// The properties of an operation that a plan must know. The program provides the code.
///
/// ```
/// use takt_model::Span;
/// use takt_dispatch::Operation;
///
/// let ms = Span::from_ms;
/// let push = Operation::sporadic("push", ms(10)).wcet(ms(1)).deadline(ms(5)).importance(3);
/// assert_eq!(push.deadline, Some(ms(5)));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Unique name.
    pub name: String,
    /// When its jobs are released.
    pub arrival: Arrives,
    /// The longest execution time of a job; above zero.
    pub wcet: Span,
    /// The relative deadline. `None`: its period or distance; for a follower, that of its source.
    pub deadline: Option<Span>,
    /// Whether its jobs may be cancelled if the set says so. It also decides which share of a CPU
    /// they count towards.
    pub criticality: Criticality,
    /// Breaks ties in levels that ask for importance, or chooses the level. Larger is more
    /// important.
    pub importance: u32,
    /// The fixed priority; 1 is the most important.
    pub priority: Option<u32>,
    /// The rule for its late jobs. `None`: the level's rule.
    pub late: Option<Late>,
    /// Whether its jobs are omitted once they can no longer be in time, if it is noncritical.
    /// `None`: as the set says.
    pub cancel: Option<bool>,
    /// The rule for jobs that execute for longer than the wcet. The program is told of each overrun
    /// at once ([`Dispatching::overruns`](super::Dispatching::overruns)). `None`: overruns are not
    /// watched.
    pub overrun: Option<Overrun>,
    /// Its predecessors. Job k is released when job k of all of them is complete.
    pub after: Vec<String>,
    /// The model CPU on which it runs.
    pub cpu: u32,
    /// The most jobs that may wait or run at once, at least 1; a further job is rejected. `None`:
    /// the most that can exist while all operations keep their deadlines
    /// ([`Row::backlog`](super::Row::backlog)). The result is 1 for an operation without
    /// predecessors whose deadline is within its period.
    pub backlog: Option<u32>,
}

/// When the jobs of an operation are released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrives {
    /// By a timer: at the offset, and then each period.
    Periodic {
        /// The distance of releases.
        period: Span,
        /// The time of the first release.
        offset: Span,
    },
    /// By a push of the program.
    Sporadic {
        /// The least distance of releases.
        distance: Span,
    },
    /// By the completion of its predecessors.
    After,
}

impl Operation {
    fn new(name: &str, arrival: Arrives) -> Self {
        Operation {
            name: name.to_owned(),
            arrival,
            wcet: Span::ZERO,
            deadline: None,
            criticality: Criticality::High,
            importance: 0,
            priority: None,
            late: None,
            cancel: None,
            overrun: None,
            after: Vec::new(),
            cpu: 0,
            backlog: None,
        }
    }

    /// A critical operation that a timer releases each `period`, from time zero. Give it a
    /// [`wcet`](Self::wcet).
    #[must_use]
    pub fn periodic(name: &str, period: Span) -> Self {
        Operation::new(name, Arrives::Periodic { period, offset: Span::ZERO })
    }

    /// A critical operation that the program pushes, with at least `distance` between pushes. Give
    /// it a [`wcet`](Self::wcet).
    #[must_use]
    pub fn sporadic(name: &str, distance: Span) -> Self {
        Operation::new(name, Arrives::Sporadic { distance })
    }

    /// A critical operation that runs when all `predecessors` are complete. Give it a
    /// [`wcet`](Self::wcet).
    #[must_use]
    pub fn after(name: &str, predecessors: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let after = predecessors.into_iter().map(Into::into).collect();
        Operation { after, ..Operation::new(name, Arrives::After) }
    }

    /// Sets the longest execution time of a job.
    #[must_use]
    pub fn wcet(self, wcet: Span) -> Self {
        Operation { wcet, ..self }
    }

    /// Sets the relative deadline.
    #[must_use]
    pub fn deadline(self, deadline: Span) -> Self {
        Operation { deadline: Some(deadline), ..self }
    }

    /// Sets the first release of a periodic operation. Other operations have none.
    #[must_use]
    pub fn offset(self, offset: Span) -> Self {
        let arrival = match self.arrival {
            Arrives::Periodic { period, .. } => Arrives::Periodic { period, offset },
            other => other,
        };
        Operation { arrival, ..self }
    }

    /// Makes the operation noncritical: missing its deadlines does no harm.
    #[must_use]
    pub fn noncritical(self) -> Self {
        Operation { criticality: Criticality::Low, ..self }
    }

    /// Sets the importance. Larger is more important.
    #[must_use]
    pub fn importance(self, importance: u32) -> Self {
        Operation { importance, ..self }
    }

    /// Sets the fixed priority; 1 is the most important.
    #[must_use]
    pub fn priority(self, priority: u32) -> Self {
        Operation { priority: Some(priority), ..self }
    }

    /// Sets the rule for its late jobs, in place of the level's rule.
    #[must_use]
    pub fn late(self, late: Late) -> Self {
        Operation { late: Some(late), ..self }
    }

    /// Sets whether its jobs are omitted once they can no longer be in time, in place of the set's
    /// rule. Only for noncritical operations.
    #[must_use]
    pub fn cancel(self, cancel: bool) -> Self {
        Operation { cancel: Some(cancel), ..self }
    }

    /// Sets the rule for overruns and watches for them. Watching costs each job two readings of its
    /// thread's CPU time and a wake-up of the CPU's timer thread.
    #[must_use]
    pub fn overrun(self, overrun: Overrun) -> Self {
        Operation { overrun: Some(overrun), ..self }
    }

    /// Sets the model CPU.
    #[must_use]
    pub fn on_cpu(self, cpu: u32) -> Self {
        Operation { cpu, ..self }
    }

    /// Sets the most jobs that may wait or run at once. For a critical operation that is not
    /// pushed, give at least the number that its deadline may need.
    #[must_use]
    pub fn backlog(self, backlog: u32) -> Self {
        Operation { backlog: Some(backlog), ..self }
    }

    fn owner(&self) -> String {
        format!("operation \"{}\"", self.name)
    }
}

/// The operations of one dispatcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operations {
    /// The name of the set.
    pub name: String,
    /// The number of CPUs.
    pub cpus: u32,
    /// Whether a noncritical job is omitted at its first dispatch if its wcet exceeds the time left
    /// before its deadline.
    pub cancel: bool,
    /// The operations; their order breaks ties.
    pub operations: Vec<Operation>,
    /// The operations that take no part until a mode includes them.
    pub absent: Vec<String>,
    /// The modes. Plan k is that of the k-th mode.
    pub modes: Vec<OperatingMode>,
}

impl Operations {
    /// An empty set on one CPU.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let name = name.to_owned();
        Operations { name, cpus: 1, cancel: false, operations: Vec::new(), absent: Vec::new(), modes: Vec::new() }
    }

    /// Sets the number of CPUs. The model CPUs are 0 to `cpus` - 1.
    #[must_use]
    pub fn cpus(self, cpus: u32) -> Self {
        Operations { cpus, ..self }
    }

    /// Sets whether noncritical jobs that can no longer be in time are omitted.
    #[must_use]
    pub fn cancel(self, cancel: bool) -> Self {
        Operations { cancel, ..self }
    }

    /// Adds an operation.
    #[must_use]
    pub fn with(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }

    /// Adds an operation.
    pub fn add(&mut self, operation: Operation) -> &mut Self {
        self.operations.push(operation);
        self
    }

    /// Excludes an operation until a mode includes it.
    #[must_use]
    pub fn at_first_without(mut self, operation: &str) -> Self {
        self.absent.push(operation.to_owned());
        self
    }

    /// Adds a mode that the program can switch to
    /// ([`Dispatching::switch`](super::Dispatching::switch)).
    #[must_use]
    pub fn mode(mut self, mode: OperatingMode) -> Self {
        self.modes.push(mode);
        self
    }

    /// The plan of this set under `strategy`, with a plan for each of its modes. Each level runs to
    /// completion, unless [`Limits::preemptive`] is set.
    ///
    /// # Errors
    /// All faults. If some operations are faulty in themselves, the others are judged among each
    /// other.
    pub fn compute(&self, strategy: &Strategy, limits: &Limits) -> Result<Plan, Anomalies> {
        let (mut system, mut anomalies) = self.build(strategy, limits.preemptive);
        let rates = self.rates(&system, &mut anomalies);
        if anomalies.is_empty() {
            self.enter_modes(&mut system, limits.preemptive);
        }
        let (plan, more) = judge_rates(&system, NodeId(0), limits, &rates);
        // If all operations are faulty, there is nothing more to judge.
        let said = !anomalies.is_empty() && system.tasks.is_empty();
        anomalies.extend(more.into_iter().filter(|anomaly| !said || !matches!(anomaly, Anomaly::Empty { .. })));
        match plan {
            Some(mut plan) if anomalies.is_empty() => {
                anomalies.extend(self.short_backlogs(&plan));
                if !anomalies.is_empty() {
                    return Err(Anomalies(anomalies));
                }
                plan.name_modes(self.modes.iter().map(|mode| mode.name.clone()));
                for rows in plan.each_rows_mut() {
                    for (row, operation) in rows.iter_mut().zip(&self.operations) {
                        row.backlog = operation.backlog.unwrap_or(row.backlog);
                        row.overrun = operation.overrun;
                    }
                }
                if let Some(anomaly) = self.demoted_priority(&mut plan, limits) {
                    return Err(Anomalies(vec![anomaly]));
                }
                Ok(plan)
            }
            _ => Err(Anomalies(anomalies)),
        }
    }

    /// Jobs demoted at an overrun need a priority below all levels, as late jobs do.
    fn demoted_priority(&self, plan: &mut Plan, limits: &Limits) -> Option<Anomaly> {
        let demotes = self.operations.iter().any(|operation| operation.overrun == Some(Overrun::Demote));
        if !demotes || plan.demoted_priority.is_some() {
            return None;
        }
        let least = plan.each_levels().flatten().map(|level| level.priority).min()?;
        if least > *limits.priorities.start() {
            plan.demoted_priority = Some(least - 1);
            return None;
        }
        let nests = plan.each_levels().flatten().any(|level| level.preemptive);
        let of_levels = |levels: &Vec<PlanLevelRow>| levels.iter().map(|level| level.nesting as usize).sum();
        let levels = plan.each_levels().map(of_levels).max().unwrap_or(0);
        let (strategy, needed, there) = (plan.strategy.clone(), levels + 2, limits.priorities.len());
        Some(Anomaly::TooFewPriorities { strategy, levels, demoted: 1, nests, needed, there })
    }

    /// Critical operations whose jobs may be silently rejected although none is late. The plan's
    /// rows hold the needed backlogs. Sporadic operations are left out: a push reports a full
    /// backlog, and the program may want that.
    fn short_backlogs(&self, plan: &Plan) -> Vec<Anomaly> {
        let short = self.operations.iter().zip(&plan.rows).filter_map(|(operation, row)| {
            // The demand of a follower depends on the pushes of its sources, which the plan does
            // not know. Then the default is a guess.
            let given = match operation.arrival {
                Arrives::Sporadic { .. } => return None,
                Arrives::Periodic { .. } => operation.backlog.unwrap_or(row.backlog),
                Arrives::After => operation.backlog?,
            };
            let is_short = operation.criticality == Criticality::High && given < row.backlog_needed;
            is_short.then(|| Anomaly::Backlog {
                operation: operation.name.clone(),
                backlog: given,
                needed: row.backlog_needed,
            })
        });
        short.collect()
    }

    /// The equivalent System: one node "local", with each operation as a task bound to its CPU,
    /// under an own strategy whose levels run to completion. Backlogs and modes are left out, and
    /// all operations take part.
    ///
    /// # Errors
    /// The faults that prevent a System. An overload or a wcet above its deadline does not: `takt
    /// check` reports those.
    pub fn to_system(&self, strategy: &Strategy) -> Result<System, Anomalies> {
        let (system, mut anomalies) = self.build(strategy, false);
        if anomalies.is_empty() {
            anomalies = misfits(&system, NodeId(0), strategy);
        }
        Anomalies::none_or(anomalies, system)
    }

    /// The System of all operations that are sound in themselves, with the faults of the others and
    /// of the set.
    pub(super) fn build(&self, strategy: &Strategy, preemptive: bool) -> (System, Vec<Anomaly>) {
        let mut anomalies = self.wrong_set();
        let by_name = self.by_name(&mut anomalies);
        let mut sound = Vec::with_capacity(self.operations.len());
        let mut before = Vec::with_capacity(self.operations.len());
        for operation in &self.operations {
            let known = anomalies.len();
            wrong_values(operation, &mut anomalies);
            self.wrong_cpu(operation, &mut anomalies);
            before.push(predecessors(operation, &by_name, &mut anomalies));
            sound.push(anomalies.len() == known);
        }
        let Sorted { order, cycles } = sorted(&before);
        for cycle in cycles {
            let name = |at: usize| self.operations.get(at).map(|operation| operation.name.clone());
            anomalies.push(Anomaly::Cycle { names: cycle.into_iter().filter_map(name).collect() });
        }
        let periods = self.periods(&order, &before, &sound, &mut anomalies);
        let strategy = &if preemptive { own(strategy.clone()) } else { run_to_completion(strategy) };
        let system = self.system(strategy, &before, &periods);
        if anomalies.is_empty() && misfits(&system, NodeId(0), strategy).is_empty() {
            // Faults that the types here cannot show, such as names in filters.
            let wrong = validate(&system).err();
            let wrong = wrong.iter().flat_map(|errors| errors.iter());
            anomalies.extend(wrong.map(|error| Anomaly::System(error.to_string())));
        }
        (system, anomalies)
    }

    fn wrong_set(&self) -> Vec<Anomaly> {
        let mut anomalies = Vec::new();
        let of = format!("the set \"{}\"", self.name);
        if let Some(fault) = name_fault(&self.name) {
            anomalies.push(Anomaly::Name { of: "the set of operations".to_owned(), fault });
        }
        if !(1..=CpuSet::CPUS_MAX).contains(&self.cpus) {
            let right = format!("a node has 1 to {}", CpuSet::CPUS_MAX);
            anomalies.push(Anomaly::Value { of: of.clone(), key: "cpus", given: self.cpus.to_string(), right });
        }
        if self.operations.is_empty() {
            anomalies.push(Anomaly::Empty { of });
        }
        anomalies
    }

    /// The first position of each name.
    fn by_name(&self, anomalies: &mut Vec<Anomaly>) -> BTreeMap<&str, usize> {
        let mut by_name = BTreeMap::new();
        let mut twice = BTreeSet::new();
        for (at, operation) in self.operations.iter().enumerate() {
            if let Some(fault) = name_fault(&operation.name) {
                anomalies.push(Anomaly::Name { of: format!("operation number {}", at + 1), fault });
            } else if by_name.contains_key(operation.name.as_str()) {
                if twice.insert(operation.name.as_str()) {
                    anomalies.push(Anomaly::Duplicate { name: operation.name.clone() });
                }
            } else {
                by_name.insert(operation.name.as_str(), at);
            }
        }
        by_name
    }

    fn wrong_cpu(&self, operation: &Operation, anomalies: &mut Vec<Anomaly>) {
        if operation.cpu >= self.cpus && self.cpus > 0 {
            let range = if self.cpus == 1 { "only CPU 0".to_owned() } else { format!("CPUs 0 to {}", self.cpus - 1) };
            let right = format!("the set \"{}\" has {range}", self.name);
            anomalies.push(value(operation, "cpu", operation.cpu, &right));
        }
    }

    /// The period of each operation that is sound and has only sound predecessors.
    fn periods(
        &self,
        order: &[usize],
        before: &[Vec<usize>],
        sound: &[bool],
        anomalies: &mut Vec<Anomaly>,
    ) -> Vec<Option<Span>> {
        let mut periods: Vec<Option<Span>> = vec![None; self.operations.len()];
        for at in order {
            let Some((operation, sources)) = self.operations.get(*at).zip(before.get(*at)) else { continue };
            let of = |source: &usize| periods.get(*source).copied().flatten();
            let period = match operation.arrival {
                Arrives::Periodic { period, .. } => Some(period),
                Arrives::Sporadic { distance } => Some(distance),
                Arrives::After => sources.first().and_then(of).filter(|_| sources.iter().all(|one| of(one).is_some())),
            };
            let other =
                sources.iter().find(|source| of(source).is_some_and(|other| period.is_some_and(|p| p != other)));
            if let (Arrives::After, Some(other), Some(first)) = (operation.arrival, other, sources.first()) {
                let name = |at: &usize| self.operations.get(*at).map_or(String::new(), |other| other.name.clone());
                anomalies.push(Anomaly::Periods {
                    operation: operation.name.clone(),
                    first: name(first),
                    first_period: of(first).unwrap_or_default(),
                    other: name(other),
                    other_period: of(other).unwrap_or_default(),
                });
                continue;
            }
            let period = period.filter(|_| sound.get(*at) == Some(&true));
            if let Some(slot) = periods.get_mut(*at) {
                *slot = period;
            }
        }
        periods
    }

    fn system(&self, strategy: &Strategy, before: &[Vec<usize>], periods: &[Option<Span>]) -> System {
        let mut ids: Vec<Option<TaskId>> = Vec::with_capacity(periods.len());
        let mut count = 0;
        for period in periods {
            ids.push(period.map(|_| TaskId(count)));
            count += u32::from(period.is_some());
        }
        let mut tasks = Vec::new();
        for ((operation, sources), period) in self.operations.iter().zip(before).zip(periods) {
            let Some(period) = *period else { continue };
            let mut task = Task::periodic(&operation.name, period, operation.wcet);
            match operation.arrival {
                Arrives::Periodic { offset, .. } => task.offset = offset,
                Arrives::Sporadic { .. } => task.arrival = Arrival::Sporadic,
                Arrives::After => {
                    task.after = sources.iter().filter_map(|source| ids.get(*source).copied().flatten()).collect();
                }
            }
            task.cpus = Some(CpuSet::range(operation.cpu, operation.cpu.saturating_add(1)));
            task.deadline = operation.deadline.unwrap_or(period);
            task.criticality = operation.criticality;
            task.importance = operation.importance;
            task.late = operation.late;
            task.cancel = operation.cancel;
            task.priority = operation.priority;
            tasks.push(task);
        }
        let mut node = NodeSpec::new("local", self.cpus, StrategyRef::Own(StrategyId(0)));
        node.placement = Placement::Partitioned;
        node.cancel = self.cancel;
        System {
            name: self.name.clone(),
            nodes: vec![node],
            strategies: vec![strategy.clone()],
            ..System::local(1, takt_model::Builtin::Edf, tasks)
        }
    }
}

/// The fault of a name, by the rule of System files.
pub(super) fn name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty; give it one")
    } else if name.chars().any(char::is_control) {
        Some("holds a control character; names are one line of plain text")
    } else {
        None
    }
}

fn value(operation: &Operation, key: &'static str, given: impl ToString, right: &str) -> Anomaly {
    Anomaly::Value { of: operation.owner(), key, given: given.to_string(), right: right.to_owned() }
}

fn wrong_values(operation: &Operation, anomalies: &mut Vec<Anomaly>) {
    let mut span = |key, span: Span, zero: bool| {
        if span > Span::FILE_MAX {
            let right = format!("the longest is {} (about three years)", Span::FILE_MAX);
            anomalies.push(value(operation, key, span, &right));
        } else if span.is_zero() && !zero {
            anomalies.push(value(operation, key, span, "it must be above zero"));
        }
    };
    match operation.arrival {
        Arrives::Periodic { period, offset } => {
            span("period", period, false);
            span("offset", offset, true);
        }
        Arrives::Sporadic { distance } => span("distance", distance, false),
        Arrives::After => {}
    }
    span("wcet", operation.wcet, false);
    if let Some(deadline) = operation.deadline {
        span("deadline", deadline, false);
    }
    if operation.priority == Some(0) {
        anomalies.push(value(operation, "priority", 0, "1 is the most important"));
    }
    if operation.cancel == Some(true) && operation.criticality == Criticality::High {
        anomalies.push(value(operation, "cancel", true, "critical jobs are never cancelled: make it noncritical"));
    }
    match operation.backlog {
        Some(0) => anomalies.push(value(operation, "backlog", 0, "at least 1 job must find a place")),
        Some(backlog) if backlog > BACKLOG_MAX => {
            let right = format!("room for {BACKLOG_MAX} jobs is all there is");
            anomalies.push(value(operation, "backlog", backlog, &right));
        }
        _ => {}
    }
}

/// The existing predecessors, each once.
fn predecessors(operation: &Operation, by_name: &BTreeMap<&str, usize>, anomalies: &mut Vec<Anomaly>) -> Vec<usize> {
    let name = || operation.name.clone();
    match operation.arrival {
        Arrives::After if operation.after.is_empty() => anomalies.push(Anomaly::NoPredecessor { operation: name() }),
        Arrives::Periodic { .. } | Arrives::Sporadic { .. } if !operation.after.is_empty() => {
            anomalies.push(Anomaly::TwoArrivals { operation: name() });
        }
        _ => {}
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for predecessor in &operation.after {
        if !seen.insert(predecessor.as_str()) {
            anomalies.push(Anomaly::Twice { operation: name(), predecessor: predecessor.clone() });
        } else if let Some(at) = by_name.get(predecessor.as_str()) {
            found.push(*at);
        } else {
            anomalies.push(Anomaly::Unresolved { operation: name(), predecessor: predecessor.clone() });
        }
    }
    found
}
