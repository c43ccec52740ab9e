//! A controller that moves between two plans. The calm plan holds while nothing critical is in
//! danger. The guard plan protects critical operations. [KOKYU] finds that no paradigm is best
//! everywhere and leaves open how to change between them. This controller is takt's answer.
//!
//! **To the guard**, at once: when a critical job is not complete at its last safe instant,
//! `arrival + deadline - R`. R bounds the response under the guard's plan. So the job is in time if the guard
//! holds from then on, whatever happened before. This is the argument of dual priority scheduling
//! (Davis and Wellings, 1995), where a task is promoted at D - R. Here all tasks are promoted
//! together.
//!
//! The difference: other critical jobs may wait when the guard begins, put off by calm for at most
//! D - C of their tasks. All of them take part at once. So R must be a bound with such jitter of
//! all others, computed for the System of [`Plan::guarded`]. Then no critical deadline is lost
//! under the guard's analysis, if a switch takes at most `margin`. If the plans use different
//! levels for critical operations, calm can leave more started jobs in a guard level than the
//! analysis knows. Their time is added to R.
//!
//! **Back to calm**: after `dwell` windows in a row in which the busiest CPU had work for at most
//! `load_ppm` of the window. If the calm then lasts for fewer windows than that, the return was too
//! early: the dwell doubles, up to `dwell_max`. Once a calm lasts, the dwell returns to its first
//! value.
//!
//! **Stability.** At least `dwell` whole windows lie between two switches to the guard, so n
//! windows hold at most n / dwell + 1 of them. While each calm is shorter than the guard's stay
//! before it, the dwell has doubled m times after m switches. So the switches are soon `dwell_max`
//! windows apart, and calm holds for less than half of the time. Under a load with longer calms,
//! the two plans may alternate for ever, within the first bound.

use std::collections::BTreeMap;

use takt_model::system::Mode;
use takt_model::{Arrival, Criticality, NodeId, NodeSpec, Placement, Span, StrategyRef, System, Task, TaskId, Time};

use super::anomaly::{Anomalies, Anomaly};
use super::graph::{along, predecessors, sorted};
use super::plan::{Limits, Plan, Row};

/// The two plans and the rule of change. docs/reference/dispatcher.md explains the rule for users,
/// and the source of this module gives its argument.
///
/// ```
/// use takt_model::{Builtin, NodeId, Span, StrategyRef};
/// use takt_dispatch::{Adaptive, Limits, Operation, Operations, Plan};
///
/// let ms = Span::from_ms;
/// let operations = Operations::new("flight")
///     .cancel(true)
///     .with(Operation::periodic("control", ms(100)).wcet(ms(20)))
///     .with(Operation::periodic("route", ms(20)).wcet(ms(15)).noncritical())
///     .with(Operation::periodic("map", ms(40)).wcet(ms(20)).noncritical());
/// let system = operations.to_system(&Builtin::Rm.strategy())?;
/// let guard = StrategyRef::Builtin(Builtin::RmsMlf);
/// let (plan, _) = Plan::compute_adaptive(&system, NodeId(0), guard, &Limits::default())?;
/// let law = Adaptive::between(0, 1).response("control", ms(20));
/// let counts = plan.rehearse_adaptive(&law, Span::from_s(10), 0, &mut takt_log::NullSink)?;
/// let (_, control) = &counts[0];
/// assert_eq!((control.completed, control.late), (100, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adaptive {
    /// The plan without danger: 0 is the plan of the node's strategy, k that of its k-th mode.
    pub calm: usize,
    /// The plan that keeps critical deadlines.
    pub guard: usize,
    /// The time over which the load is measured, at least [`Adaptive::WINDOW_MIN`]. Default 1 s.
    pub window: Span,
    /// The largest load of a CPU in a window that counts for a return, in millionths. Default
    /// 970,000.
    pub load_ppm: u32,
    /// Windows in a row with no more load before a return; at least 1. Default 2.
    pub dwell: u32,
    /// The largest dwell. Default 64.
    pub dwell_max: u32,
    /// How much earlier than the bounds say a job counts as in danger. It covers the duration of a
    /// switch. Default 500 us.
    pub margin: Span,
    /// Bounds of critical operations' responses under the guard, from arrival to completion, as
    /// `takt check` gives them for [`Plan::guarded`]. An operation without a bound gets half of its
    /// deadline.
    pub responses: BTreeMap<String, Span>,
}

impl Adaptive {
    /// The shortest window. At the end of each window the first CPU's timer thread wakes up, above
    /// all levels.
    pub const WINDOW_MIN: Span = Span::from_ms(1);

    /// A controller for these two plans, with the defaults.
    #[must_use]
    pub fn between(calm: usize, guard: usize) -> Adaptive {
        Adaptive {
            calm,
            guard,
            window: Span::from_s(1),
            load_ppm: 970_000,
            dwell: 2,
            dwell_max: 64,
            margin: Span::from_us(500),
            responses: BTreeMap::new(),
        }
    }

    /// Returns to calm after each whole window at whose end no critical job is past its last safe
    /// instant, whatever the load. So noncritical work in overload also gets the time that critical
    /// work can spare, as under dual priority scheduling. The price is up to two switches in each
    /// window. The argument for critical deadlines does not depend on the time of the return. The
    /// dwell still doubles while calm does not last.
    #[must_use]
    pub fn reclaiming(self, window: Span) -> Adaptive {
        Adaptive { window, load_ppm: 1_000_000, dwell: 1, ..self }
    }

    /// Sets the longest response of a critical operation under the guard.
    #[must_use]
    pub fn response(mut self, operation: &str, response: Span) -> Adaptive {
        self.responses.insert(operation.to_owned(), response);
        self
    }

    /// Critical operations without a bound. The controller takes half of their deadline, which
    /// proves nothing.
    pub fn unbounded<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = &'a str> {
        let critical = |row: &&Row| {
            let task = plan.system.tasks.get(row.task.index());
            task.is_some_and(|task| task.criticality == Criticality::High)
        };
        let names = plan.rows.iter().filter(critical).map(|row| row.name.as_str());
        names.filter(|name| !self.responses.contains_key(*name))
    }

    /// The fault of this controller for a plan, if there is one.
    #[must_use]
    pub fn wrong(&self, plan: &Plan) -> Option<String> {
        let last = plan.modes.len();
        if self.calm.max(self.guard) > last || self.calm.min(self.guard) != 0 || self.calm == self.guard {
            return Some(format!(
                "plans {} and {} are to be the node's strategy at the start (0) and one of its modes \
                 (1 to {last})",
                self.calm, self.guard
            ));
        }
        if self.window < Adaptive::WINDOW_MIN {
            return Some(format!(
                "window {} is below the least, {}: a timer thread, above all levels, wakes up at the end of \
                 each; choose a longer one",
                self.window,
                Adaptive::WINDOW_MIN
            ));
        }
        if self.dwell == 0 || self.dwell_max < self.dwell {
            return Some("dwell is to be above zero, and dwell_max no less than dwell".to_owned());
        }
        if plan.varies() {
            return Some(
                "it chooses between strategies, and the plan's modes differ in rates or in who takes part".to_owned(),
            );
        }
        let unknown = self.responses.keys().find(|name| !plan.rows.iter().any(|row| row.name == **name));
        unknown
            .map(|name| format!("the plan has no operation \"{name}\" of a response"))
            .or_else(|| self.unguarded(plan))
    }

    /// A reason why the guard cannot keep the critical deadlines, if there is one.
    fn unguarded(&self, plan: &Plan) -> Option<String> {
        let cpus = plan.system.nodes.get(plan.node.index()).map_or(1, |node| node.cpus);
        if !(0..cpus).any(|cpu| self.placed(plan, cpu).iter().any(Placed::is_critical)) {
            return Some("no operation is critical, so that there is nothing to guard".to_owned());
        }
        let throughout = plan.critical_from_their_sources();
        (0..cpus).find_map(|cpu| {
            let here = self.placed(plan, cpu);
            let (critical, others): (Vec<_>, Vec<_>) = here.iter().partition(|placed| placed.is_critical());
            let last = critical.iter().max_by_key(|placed| placed.guard)?;
            if let Some(other) = others.iter().find(|other| other.guard <= last.guard) {
                return Some(format!(
                    "under the guard the noncritical operation \"{}\" is in the level of the critical \"{}\" \
                     or above: a guard keeps critical operations above all others",
                    other.task.name, last.task.name
                ));
            }
            critical.iter().find_map(|placed| self.unkept(plan, placed, &here, &throughout))
        })
    }

    /// As [`Adaptive::unguarded`]. `throughout` says for each task whether all its predecessors are
    /// critical too.
    fn unkept(&self, plan: &Plan, placed: &Placed<'_>, all: &[Placed<'_>], throughout: &[bool]) -> Option<String> {
        let Placed { id, task, .. } = placed;
        if throughout.get(id.index()) != Some(&true) {
            return Some(format!("critical operation \"{}\" follows noncritical ones, which have no guard", task.name));
        }
        let needs = self.needs(placed, all);
        if needs > task.deadline {
            let since = if task.after.is_empty() { "" } else { ", from the start of its chain" };
            return Some(format!(
                "critical operation \"{}\" needs up to {needs} with the guard (its longest response{since}; {} \
                 for work that the other strategy may have started; {} for a switch), more than its deadline \
                 {}; give it a longer deadline, or leave the controller out",
                task.name,
                placed.inherited(all),
                self.margin,
                task.deadline
            ));
        }
        let wander = task.deadline.saturating_add(task.jitter).as_ns();
        let there = u32::try_from(wander.div_ceil(task.period.as_ns().max(1))).unwrap_or(u32::MAX);
        let backlog = plan.rows.iter().find(|row| row.name == task.name)?.backlog;
        (backlog < there).then(|| {
            format!(
                "critical operation \"{}\" may have {there} jobs waiting within its deadline: its backlog is {backlog}",
                task.name
            )
        })
    }

    /// The time from arrival after which a job of this critical operation is in danger. It is the
    /// deadline, less the longest response under the guard, less the time for jobs that calm may
    /// leave started, less the margin. `None` for other operations, and if the controller does not
    /// fit the plan.
    #[must_use]
    pub fn danger(&self, plan: &Plan, operation: &str) -> Option<Span> {
        if self.wrong(plan).is_some() {
            return None;
        }
        let cpu = plan.rows.iter().find(|row| row.name == operation)?.cpu;
        let slot = plan.rows.iter().filter(|row| row.cpu == cpu).position(|row| row.name == operation)?;
        self.dangers(plan, cpu).into_iter().nth(slot)?
    }

    /// As [`Adaptive::danger`], by slot of a CPU; `None` for operations that are not critical.
    pub(crate) fn dangers(&self, plan: &Plan, cpu: u32) -> Vec<Option<Span>> {
        let here = self.placed(plan, cpu);
        let danger = |placed: &Placed<'_>| {
            let needs = self.needs(placed, &here);
            placed.is_critical().then(|| placed.task.deadline.saturating_sub(needs))
        };
        here.iter().map(danger).collect()
    }

    /// The operations of a CPU, by slot.
    fn placed<'a>(&self, plan: &'a Plan, cpu: u32) -> Vec<Placed<'a>> {
        let levels = |at: usize| at.checked_sub(1).map_or(&plan.rows, |mode| &plan.modes[mode].rows).iter();
        (plan.rows.iter().zip(levels(self.calm)).zip(levels(self.guard)))
            .filter(|((row, _), _)| row.cpu == cpu)
            .filter_map(|((row, calm), guard)| {
                let task = plan.system.tasks.get(row.task.index())?;
                Some(Placed { id: row.task, task, calm: calm.level, guard: guard.level })
            })
            .collect()
    }

    /// The longest time that a job needs once the guard holds.
    fn needs(&self, of: &Placed<'_>, all: &[Placed<'_>]) -> Span {
        let response = self.responses.get(&of.task.name).copied();
        let response = response.unwrap_or_else(|| Span::from_ns(of.task.deadline.as_ns() / 2));
        response.saturating_add(of.inherited(all)).saturating_add(self.margin)
    }
}

impl Plan {
    /// Makes the plans for [`Adaptive::between`]`(0, 1)`. Plan 0 is that of the node's strategy.
    /// Its only mode, "guard", follows the strategy `guard`; no time switches to it. Reports of
    /// deadlines that can be missed under the guard come with the plan, as in
    /// [`Plan::compute_regardless`].
    ///
    /// # Errors
    /// All other faults. A node with modes is refused, because either their times or the controller
    /// choose the plan.
    pub fn compute_adaptive(
        system: &System,
        node: NodeId,
        guard: StrategyRef,
        limits: &Limits,
    ) -> Result<(Plan, Vec<Anomaly>), Anomalies> {
        if let Some(mode) = system.modes.iter().find(|mode| mode.node == node) {
            let name = system.strategy_name(mode.strategy).to_owned();
            let why = "a controller and the node's modes both switch the strategy; remove the modes, or leave out \
             the controller";
            return Err(Anomalies(vec![Anomaly::Unsupported { part: "mode", name, why }]));
        }
        let mut both = system.clone();
        // A System's mode needs a time. This one is beyond all runs.
        both.modes.push(Mode { node, at: Time::ZERO.saturating_add(Span::FILE_MAX), strategy: guard });
        let (mut plan, _) = Plan::compute_regardless(&both, node, limits)?;
        plan.name_modes(std::iter::once("guard".to_owned()));
        let mut guarded = system.clone();
        if let Some(spec) = guarded.nodes.get_mut(node.index()) {
            spec.strategy = guard;
        }
        let (_, lateness) = Plan::compute_regardless(&guarded, node, limits)?;
        Ok((plan, lateness))
    }

    /// The System for the longest response of a critical operation, for [`Adaptive::response`]. It
    /// holds the critical operations of the same CPU under this plan (0: of the node's strategy, k:
    /// of its k-th mode). Other operations are released as late as calm may put them off. Followers
    /// count as released by themselves, within the deadlines of their predecessors: this contains
    /// their real releases. `None` if there is no such plan or critical operation.
    #[must_use]
    pub fn guarded(&self, guard: usize, operation: &str) -> Option<System> {
        let node = self.system.nodes.get(self.node.index())?;
        let strategy = *self.system.strategies_of(self.node).get(guard)?;
        let cpu = self.rows.iter().find(|row| row.name == operation)?.cpu;
        let critical = |row: &&Row| {
            let task = self.system.tasks.get(row.task.index());
            row.cpu == cpu && task.is_some_and(|task| task.criticality == Criticality::High)
        };
        let mut system = System {
            nodes: vec![NodeSpec { cpus: 1, placement: Placement::Global, strategy, ..node.clone() }],
            tasks: Vec::new(),
            modes: Vec::new(),
            components: Vec::new(),
            flows: Vec::new(),
            ..self.system.clone()
        };
        let through = self.deadlines_through();
        for row in self.rows.iter().filter(critical) {
            let task = self.system.tasks.get(row.task.index())?;
            let before = task.after.iter().filter_map(|before| through.get(before.index())).max();
            let before = before.copied().unwrap_or(Span::ZERO);
            // The period stays, because levels depend on it. Followers are released in bunches, as
            // with jitter. Their bound then counts from before the release, which is on the safe
            // side.
            let put_off = if row.name == operation { Span::ZERO } else { task.deadline.saturating_sub(task.wcet) };
            let jitter = task.jitter.saturating_add(before).saturating_add(put_off);
            system.tasks.push(Task {
                node: NodeId(0),
                cpus: None,
                offset: Span::ZERO,
                arrival: Arrival::Sporadic,
                jitter,
                after: Vec::new(),
                ..task.clone()
            });
        }
        system.tasks.iter().any(|task| task.name == operation).then_some(system)
    }

    /// For each task: whether the task and all its predecessors are critical.
    fn critical_from_their_sources(&self) -> Vec<bool> {
        let is_critical = |at: usize| self.system.tasks.get(at).map(|task| task.criticality) == Some(Criticality::High);
        self.along_chains(false, |at, theirs| is_critical(at) && theirs.iter().all(|all| **all))
    }

    /// For each task: the longest sum of deadlines on a path to it, including its own.
    fn deadlines_through(&self) -> Vec<Span> {
        let deadline = |at: usize| self.system.tasks.get(at).map_or(Span::ZERO, |task| task.deadline);
        let longest = |theirs: &[&Span]| theirs.iter().copied().max().copied().unwrap_or(Span::ZERO);
        self.along_chains(Span::ZERO, |at, theirs| deadline(at).saturating_add(longest(theirs)))
    }

    fn along_chains<V: Clone>(&self, other: V, make: impl Fn(usize, &[&V]) -> V) -> Vec<V> {
        let before = predecessors(&self.system);
        along(&before, &sorted(&before).order, &other, make)
    }
}

/// Notes for a run or a simulation with a controller. `guard` names the guard's strategy.
pub fn notes_of_guard(law: &Adaptive, plan: &Plan, guard: &str) -> Vec<String> {
    let mut notes = vec![format!("while a critical deadline is in danger, strategy \"{guard}\" is in force")];
    notes.extend(law.unbounded(plan).map(|operation| {
        format!(
            "no test bounds the response of \"{operation}\" under the guard: half of its deadline is taken for \
             it, which promises nothing"
        )
    }));
    notes
}

/// An operation and its levels under both plans.
struct Placed<'a> {
    id: TaskId,
    task: &'a Task,
    calm: u32,
    guard: u32,
}

impl Placed<'_> {
    fn is_critical(&self) -> bool {
        self.task.criticality == Criticality::High
    }

    /// The longest wait of a job after a switch, beyond its bound. The bound includes one started
    /// job of its guard level. Calm may leave one started job in each of its own levels, and all of
    /// these continue.
    fn inherited(&self, all: &[Placed<'_>]) -> Span {
        let mut longest: BTreeMap<u32, Span> = BTreeMap::new();
        for other in all.iter().filter(|other| other.guard == self.guard && other.is_critical()) {
            let of_level = longest.entry(other.calm).or_default();
            *of_level = (*of_level).max(other.task.wcet);
        }
        if longest.len() < 2 {
            return Span::ZERO;
        }
        longest.into_values().fold(Span::ZERO, Span::saturating_add)
    }
}

/// The state of the controller. Pure: the caller passes the time and the load.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    law: Adaptive,
    plan: usize,
    /// The fewest windows of the next stay with the guard.
    dwell: u32,
    /// Windows of the present stay: with the guard, those that count; in calm, all.
    windows: u32,
    /// When the present window began.
    since: Time,
    /// Whether the guard began within the window. Then the window does not count.
    partial: bool,
    /// For each CPU: how long it had had work when the window began.
    busy: Vec<Span>,
}

impl Controller {
    pub(crate) fn new(law: Adaptive, cpus: usize) -> Controller {
        // The first danger is not a relapse. A first calm must last like any other.
        let (dwell, windows) = (law.dwell, if law.calm == 0 { law.dwell } else { 0 });
        let busy = vec![Span::ZERO; cpus];
        Controller { law, plan: 0, dwell, windows, since: Time::ZERO, partial: false, busy }
    }

    /// Records that another caller chose a plan.
    pub(crate) fn set(&mut self, plan: usize) {
        (self.plan, self.windows) = (plan, 0);
    }

    /// A critical job has reached its last safe instant. Returns the plan to switch to.
    pub(crate) fn endangered(&mut self, now: Time) -> Option<usize> {
        if self.plan != self.law.calm {
            return None;
        }
        let relapse = self.windows < self.dwell;
        self.dwell = if relapse { self.dwell.saturating_mul(2).min(self.law.dwell_max) } else { self.law.dwell };
        self.set(self.law.guard);
        self.partial = now > self.since;
        Some(self.law.guard)
    }

    /// When the present window ends.
    pub(crate) fn window_end(&self) -> Time {
        self.since.saturating_add(self.law.window)
    }

    /// Ends the window. `busy` says for how long each CPU has had work since time zero. Returns the
    /// plan to switch to. While a job is past its last safe instant (`danger`) there is no return.
    pub(crate) fn window(&mut self, now: Time, danger: bool, busy: impl Iterator<Item = Span>) -> Option<usize> {
        let length = u128::from(now.saturating_since(self.since).as_ns().max(1));
        let mut load = 0;
        for (before, busy) in self.busy.iter_mut().zip(busy) {
            let worked = u128::from(busy.saturating_sub(*before).as_ns());
            load = load.max(worked * 1_000_000 / length);
            *before = busy;
        }
        self.since = now;
        if std::mem::take(&mut self.partial) {
            return None;
        }
        let low = load <= u128::from(self.law.load_ppm);
        if self.plan == self.law.calm {
            self.windows = self.windows.saturating_add(1);
        } else if self.plan == self.law.guard {
            self.windows = if low { self.windows + 1 } else { 0 };
            if self.windows >= self.dwell && !danger {
                self.set(self.law.calm);
                return Some(self.law.calm);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_model::Builtin;

    use super::*;
    use crate::{Operation, Operations};

    fn controller(dwell: u32, dwell_max: u32) -> Controller {
        Controller::new(Adaptive { dwell, dwell_max, ..Adaptive::between(0, 1) }, 1)
    }

    #[test]
    fn impossible_adaptive_parameters_are_refused() {
        let ms = Span::from_ms;
        let quick = Operation::periodic("quick", ms(10)).wcet(ms(1)).noncritical();
        let set = Operations::new("set").with(Operation::periodic("critical", ms(80)).wcet(ms(4))).with(quick);
        let system = set.to_system(&Builtin::Rm.strategy()).unwrap();
        let guard = StrategyRef::Builtin(Builtin::RmsMlf);
        let (plan, _) = Plan::compute_adaptive(&system, NodeId(0), guard, &Limits::default()).unwrap();
        let wrong = |law: Adaptive| law.wrong(&plan);
        let law = || Adaptive::between(0, 1);
        let short = |window: &str| {
            Some(format!(
                "window {window} is below the least, 1ms: a timer thread, above all levels, wakes up at the \
                 end of each; choose a longer one"
            ))
        };
        assert_eq!(wrong(law().reclaiming(Span::ZERO)), short("0ns"));
        assert_eq!(wrong(law().reclaiming(Span::from_ns(1))), short("1ns"));
        assert_eq!(wrong(Adaptive { window: Span::from_ns(999_999), ..law() }), short("999.999us"));
        assert_eq!(wrong(law().reclaiming(Adaptive::WINDOW_MIN)), None);
        let dwell = Some("dwell is to be above zero, and dwell_max no less than dwell".to_owned());
        assert_eq!(wrong(Adaptive { dwell: 0, ..law() }), dwell);
        assert_eq!(wrong(Adaptive { dwell: 3, dwell_max: 2, ..law() }), dwell);
    }

    /// Windows with these loads, in seconds from `since` on. Returns the answers.
    fn windows(controller: &mut Controller, busy: &mut Span, loads_ms: &[u64]) -> Vec<Option<usize>> {
        let answer = |load: &u64| {
            *busy = busy.saturating_add(Span::from_ms(*load));
            let now = controller.window_end();
            controller.window(now, false, std::iter::once(*busy))
        };
        loads_ms.iter().map(answer).collect()
    }

    #[test]
    fn danger_brings_the_guard_at_once_and_idle_windows_in_a_row_calm() {
        let (mut it, mut busy) = (controller(2, 64), Span::ZERO);
        assert_eq!(windows(&mut it, &mut busy, &[900, 1000, 1000]), [None; 3], "load alone is no danger");
        assert_eq!(it.endangered(it.since), Some(1));
        assert_eq!(it.endangered(it.since), None, "it is there already");
        assert_eq!(windows(&mut it, &mut busy, &[970, 971, 970, 970]), [None, None, None, Some(0)]);
    }

    #[test]
    fn relapses_double_the_dwell_and_a_calm_that_lasts_forgets_them() {
        let (mut it, mut busy) = (controller(1, 4), Span::ZERO);
        assert_eq!(it.endangered(it.since), Some(1));
        for dwell in [1, 2, 4, 4] {
            let mut expected = vec![None; dwell];
            expected[dwell - 1] = Some(0);
            assert_eq!(windows(&mut it, &mut busy, &vec![0; dwell]), expected);
            assert_eq!(it.endangered(it.since), Some(1), "before one window of calm is over");
        }
        assert_eq!(windows(&mut it, &mut busy, &[0; 4]).last(), Some(&Some(0)));
        assert_eq!(windows(&mut it, &mut busy, &[0; 4]), [None; 4]);
        assert_eq!(it.endangered(it.since), Some(1));
        assert_eq!(windows(&mut it, &mut busy, &[0]), [Some(0)]);
    }

    #[test]
    fn the_controller_follows_mode_changes_by_others() {
        let (mut it, mut busy) = (controller(1, 4), Span::ZERO);
        it.set(2);
        assert_eq!(it.endangered(it.since), None);
        assert_eq!(windows(&mut it, &mut busy, &[0, 0]), [None; 2]);
        it.set(1);
        assert_eq!(windows(&mut it, &mut busy, &[0]), [Some(0)]);
    }

    proptest! {
        /// The bound of the module's documentation, for any loads and dangers.
        #[test]
        fn switches_are_as_rare_as_the_dwell_says(
            dwell in 1u32..5,
            doublings in 0u32..4,
            steps in prop::collection::vec((0u64..=1000, any::<bool>()), 1..300),
            within in 0u64..1000,
        ) {
            let mut it = controller(dwell, dwell << doublings);
            let (mut busy, mut guards, mut calm_windows) = (Span::ZERO, Vec::new(), Vec::new());
            for (at, (load, danger)) in steps.iter().enumerate() {
                let when = it.since.saturating_add(Span::from_ms(within));
                if *danger && it.endangered(when).is_some() {
                    guards.push(at);
                }
                if it.plan == 0 {
                    calm_windows.push(at);
                }
                windows(&mut it, &mut busy, &[*load]);
            }
            for pair in guards.windows(2) {
                prop_assert!(pair[1] - pair[0] >= dwell as usize, "{guards:?}");
            }
            prop_assert!(guards.len() <= steps.len() / dwell as usize + 1);
            // With danger in every window there is no calm: each stay doubles the next.
            if steps.iter().all(|(_, danger)| *danger) {
                prop_assert!(calm_windows.is_empty());
                let least: Vec<usize> =
                    (0..).map(|m| (dwell as usize) << m.min(doublings as usize)).take(guards.len()).collect();
                for (pair, least) in guards.windows(2).zip(least) {
                    prop_assert!(pair[1] - pair[0] >= least, "{guards:?}");
                }
            }
        }
    }
}
