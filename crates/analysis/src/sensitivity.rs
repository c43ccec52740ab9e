//! `check --sensitivity`: how far a system is from the other verdict.
//!
//! Three kinds of question, each about one number while all others stay as they are:
//! - each task's WCET: the most with which the system is proven;
//! - each period: the least with which the system is proven. A chain's tasks share their sources'
//!   period and change together. A deadline in the file stays. A default deadline follows the
//!   period;
//! - execution times of flows and of receiving and sending tasks, periods of flows, and each
//!   server's budget: the least with which the system is proven;
//! - the load: the largest factor, in ppm, by which all WCETs may be multiplied, each rounded up to whole ns.
//!
//! If the system is not proven, the same numbers give the least change that makes it proven.
//!
//! **What is searched.** The decision is that of [`check`](crate::check()) as a whole, so the
//! numbers hold for the portfolio of tests, not for one test. Bisection ends at two neighbours, 1
//! ns or 1 ppm apart: a proven value and an unproven value. If the decision is monotone, this is
//! the only change of verdict. Monotonicity is a theorem in some cases only:
//!
//! **Sustainable.** The conditions: one CPU; no component, chain, mode or partitioning; all tasks
//! with the same offset. Every task has a fixed priority of its own, or all run under preemptive
//! EDF without jitter. There `check` runs `necessary`, `ll-bound`, `hyperbolic`, `density`, `qpa`
//! and `rta` alone. Each compares least upper bounds of work with the available time. The work of a
//! task in an interval is ceil((t + J) / T) C or floor((t - D) / T + 1) C. It does not fall with C
//! and does not rise with T. The conditions hold "for all t". So a condition that holds for a
//! larger C or smaller T holds for a smaller C or larger T. A union of downward closed conditions
//! is downward closed too. For periods the priorities must not depend on them (nor on deadlines
//! that follow them): EDF, or priorities in the file. (S. Baruah, A. Burns: Sustainable Scheduling
//! Analysis, RTSS 2006.)
//!
//! Elsewhere (several CPUs, partitioning heuristics, laxity, jobs that are not preempted, offsets
//! that count) no such theorem holds. There the value ends a stretch in which all tested values are
//! proven. [`SAMPLES`] of them are spread between the current value and the end. `sustainable`
//! tells the two cases apart.

use serde::Serialize;
use takt_model::file::GivenDeadlines;
use takt_model::plan::Order;
use takt_model::{Auto, Builtin, MessageArrivals, NodeId, Placement, Plan, StrategyRef, System, Task, TaskId};

use crate::check::decide;
use crate::verdict::Answer;

/// Tested values between the current value and the found end, if no theorem covers all of them.
pub const SAMPLES: u64 = 16;
/// How far periods are stretched in search of a proof: so many times.
pub const STRETCH_MAX: u64 = 1024;
/// Checks of whole systems, times tasks in the system, before the rest is left open.
pub const WORK_MAX: u64 = 4_000_000;
/// The load factor of a system as it is.
pub const PPM: u64 = 1_000_000;

/// How far a system is from the other verdict.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Sensitivity {
    /// Whether the system as it is is proven.
    pub schedulable: bool,
    /// The factor for all WCETs, in ppm; 1,000,000 is the system as it is.
    pub load: Limit<Ppm>,
    /// Per task in file order, then per flow, of whose later hops there is an entry "NAME (further
    /// hops)", then per receiving and sending task.
    pub wcets: Vec<OfTask>,
    /// Per task that has a period of its own, in file order; a chain's sources together. Then per flow.
    pub periods: Vec<OfTask>,
    /// Per component whose server has a period and a budget, in file order: the least budget.
    pub budgets: Vec<OfTask>,
    /// Numbers that were not sought, each with the reason.
    pub left_out: Vec<String>,
    /// Whether [`WORK_MAX`] was reached: then what is missing was not looked for.
    pub limit_reached: bool,
}

/// A number of one task, or of tasks that change together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OfTask {
    /// Its name; of several "a + b".
    pub task: String,
    /// How far.
    #[serde(flatten)]
    pub limit: Limit<Ns>,
}

/// Marks a limit in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ns;
/// Marks a limit in ppm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ppm;

/// A number as it is, and the last value with which the system is proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit<U> {
    /// In the file.
    pub now: u64,
    /// The furthest for which the system is proven; where it is not proven now: the nearest.
    /// `None`: no such value, or not looked for.
    pub until: Option<u64>,
    /// Whether all values between are proven by a theorem, and so none beyond is; otherwise those that were tested are.
    pub sustainable: bool,
    unit: U,
}

impl Serialize for Limit<Ns> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut form = serializer.serialize_struct("Limit", 3)?;
        form.serialize_field("now_ns", &self.now)?;
        form.serialize_field("until_ns", &self.until)?;
        form.serialize_field("sustainable", &self.sustainable)?;
        form.end()
    }
}

impl Serialize for Limit<Ppm> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut form = serializer.serialize_struct("Limit", 3)?;
        form.serialize_field("now_ppm", &self.now)?;
        form.serialize_field("until_ppm", &self.until)?;
        form.serialize_field("sustainable", &self.sustainable)?;
        form.end()
    }
}

/// Searches; `given` tells which deadlines stay when periods change, and `progress` is told how
/// many of how many numbers are done.
pub fn sensitivity(system: &System, given: &GivenDeadlines, mut progress: impl FnMut(u64, u64)) -> Sensitivity {
    let groups = groups(system);
    let (further, budgets, left_out) = (further(system), budgets_of(system), left_out(system));
    let flows = system.flows.len();
    let steps = 1 + (system.tasks.len() + groups.len() + further.len() + flows + budgets.len()) as u64;
    let mut search = Search { system, work_left: WORK_MAX, limit_reached: false };
    let schedulable = search.proven(|_| {});
    let (by_wcet, by_period) = (sustainable(system, false), sustainable(system, true));
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(done, steps);
    };
    // No factor lets a WCET pass its deadline.
    let tasks = system.tasks.iter().map(|task| (task.deadline, task.wcet));
    let most = tasks.chain(system.flows.iter().map(|flow| (flow.deadline, flow.wcet))).map(|(deadline, wcet)| {
        let factor = u128::from(deadline.as_ns()) * u128::from(PPM) / u128::from(wcet.as_ns().max(1));
        u64::try_from(factor).unwrap_or(u64::MAX - 1)
    });
    let most = most.min().unwrap_or(PPM).max(PPM);
    let until = search.last(schedulable, PPM, most, by_wcet, scale);
    let load = Limit { now: PPM, until, sustainable: by_wcet, unit: Ppm };
    step();
    let mut wcets = Vec::with_capacity(system.tasks.len());
    for (i, task) in system.tasks.iter().enumerate() {
        let now = task.wcet.as_ns();
        let set = |system: &mut System, wcet| system.tasks[i].wcet = takt_model::Span::from_ns(wcet);
        let until = search.last(schedulable, now, task.deadline.as_ns().max(now), by_wcet, set);
        wcets.push(OfTask { task: task.name.clone(), limit: Limit { now, until, sustainable: by_wcet, unit: Ns } });
        step();
    }
    for number in &further {
        let until = search.last(schedulable, number.now, number.most, by_wcet, &number.set);
        let limit = Limit { now: number.now, until, sustainable: by_wcet, unit: Ns };
        wcets.push(OfTask { task: number.name.clone(), limit });
        step();
    }
    let mut periods = Vec::with_capacity(groups.len());
    for group in &groups {
        let now = system.tasks[group.first().index()].period.as_ns();
        let least = group.tasks.iter().map(|id| system.tasks[id.index()].wcet.as_ns()).max().unwrap_or(1);
        let stretched = now.saturating_mul(STRETCH_MAX);
        // Mirrored, so that more is harder here, too.
        let set = |changed: &mut System, value: u64| {
            for id in &group.tasks {
                let stays = given.of_task(system, id.index());
                set_period(&mut changed.tasks[id.index()], stretched - value, stays);
            }
        };
        let mirrored = |period: u64| stretched - period;
        let until = search.last(schedulable, mirrored(now), mirrored(least.clamp(1, now)), by_period, set);
        let until = until.map(mirrored);
        periods
            .push(OfTask { task: group.name.clone(), limit: Limit { now, until, sustainable: by_period, unit: Ns } });
        step();
    }
    for (i, flow) in system.flows.iter().enumerate() {
        let now = flow.period.as_ns();
        let least = flow.send_gap.max(flow.wcet).max(flow.hop_wcet).as_ns().clamp(1, now);
        let stretched = now.saturating_mul(STRETCH_MAX);
        let set = |changed: &mut System, value: u64| {
            changed.flows[i].period = takt_model::Span::from_ns(stretched - value);
            if !given.of_flow(system, i) {
                changed.flows[i].deadline = changed.flows[i].period;
            }
        };
        let until = search.last(schedulable, stretched - now, stretched - least, by_period, set);
        let limit = Limit { now, until: until.map(|until| stretched - until), sustainable: by_period, unit: Ns };
        periods.push(OfTask { task: flow.name.clone(), limit });
        step();
    }
    let mut least_budgets = Vec::with_capacity(budgets.len());
    for (i, period, budget) in budgets {
        // Mirrored: less is harder. If the system is not proven, more may help.
        let set = |changed: &mut System, value: u64| {
            changed.components[i].budget = Auto::Value(takt_model::Span::from_ns(period + 1 - value));
        };
        let until = search.last(schedulable, period + 1 - budget, period, false, set);
        let limit = Limit { now: budget, until: until.map(|until| period + 1 - until), sustainable: false, unit: Ns };
        least_budgets.push(OfTask { task: system.components[i].name.clone(), limit });
        step();
    }
    let (budgets, limit_reached) = (least_budgets, search.limit_reached);
    Sensitivity { schedulable, load, wcets, periods, budgets, left_out, limit_reached }
}

/// An execution time that is no task's.
struct Number {
    name: String,
    now: u64,
    most: u64,
    set: Box<Set>,
}

/// Gives a System another value of a number.
type Set = dyn Fn(&mut System, u64);

/// Those of flows and of receiving and sending tasks.
fn further(system: &System) -> Vec<Number> {
    use takt_model::Span;
    let mut found = Vec::new();
    for (i, flow) in system.flows.iter().enumerate() {
        let most = |now: u64| flow.deadline.as_ns().max(now);
        let (first, hops) = (flow.wcet.as_ns(), flow.hop_wcet.as_ns());
        let set = Box::new(move |system: &mut System, wcet| system.flows[i].wcet = Span::from_ns(wcet));
        found.push(Number { name: flow.name.clone(), now: first, most: most(first), set });
        if flow.hops().nth(1).is_some() {
            let set = Box::new(move |system: &mut System, wcet| system.flows[i].hop_wcet = Span::from_ns(wcet));
            found.push(Number { name: format!("{} (further hops)", flow.name), now: hops, most: most(hops), set });
        }
    }
    for (i, node) in system.nodes.iter().enumerate() {
        if let Some(table) = node.receive {
            let set = Box::new(move |system: &mut System, wcet| {
                system.nodes[i].receive.iter_mut().for_each(|table| table.wcet = Span::from_ns(wcet));
            });
            let (now, most) = (table.wcet.as_ns(), table.period.as_ns());
            found.push(Number { name: format!("{} (receiving)", node.name), now, most: most.max(now), set });
        }
        if let Some(table) = node.send {
            let set = Box::new(move |system: &mut System, wcet| {
                system.nodes[i].send.iter_mut().for_each(|table| table.wcet = Span::from_ns(wcet));
            });
            let (now, most) = (table.wcet.as_ns(), table.period.as_ns());
            found.push(Number { name: format!("{} (sending)", node.name), now, most: most.max(now), set });
        }
    }
    for (i, node) in system.nodes.iter().enumerate() {
        if let MessageArrivals::Interrupt { cost } = node.arrivals {
            let set = Box::new(move |system: &mut System, cost| {
                system.nodes[i].arrivals = MessageArrivals::Interrupt { cost: Span::from_ns(cost) };
            });
            let periods = system.flows.iter().filter(|flow| flow.path.contains(&NodeId(i as u32)));
            let most = periods.map(|flow| flow.period.as_ns()).max().unwrap_or(0);
            let now = cost.as_ns();
            found.push(Number { name: format!("{} (interrupt)", node.name), now, most: most.max(now), set });
        }
    }
    found
}

/// Components with a period and a budget: (which, the most budget, the budget), in ns.
fn budgets_of(system: &System) -> Vec<(usize, u64, u64)> {
    let given = |(i, component): (usize, &takt_model::Component)| match (component.period, component.budget) {
        (Auto::Value(period), Auto::Value(budget)) => {
            let most = period.as_ns().checked_mul(component.cpus.max(1).into())?;
            (budget.as_ns() > 0 && budget.as_ns() <= most && most < u64::MAX).then_some((i, most, budget.as_ns()))
        }
        _ => None,
    };
    system.components.iter().enumerate().filter_map(given).collect()
}

/// Parts without a number to change.
fn left_out(system: &System) -> Vec<String> {
    let auto = system
        .components
        .iter()
        .filter(|component| matches!(component.period, Auto::Auto) || matches!(component.budget, Auto::Auto));
    let auto = auto.map(|component| {
        format!("component \"{}\" is not sized yet; takt size fills in what is \"auto\"", component.name)
    });
    let modes = system.modes.iter().map(|mode| {
        let node = &system.nodes[mode.node.index()].name;
        format!("node \"{node}\" switches its strategy at {}, which no test covers: no number makes it proven", mode.at)
    });
    auto.chain(modes).collect()
}

/// All that has a WCET, by a factor in ppm, rounded up.
fn scale(system: &mut System, ppm: u64) {
    let scaled = |span: &mut takt_model::Span| {
        let ns = (u128::from(span.as_ns()) * u128::from(ppm)).div_ceil(u128::from(PPM)).max(1);
        *span = takt_model::Span::from_ns(u64::try_from(ns).unwrap_or(u64::MAX));
    };
    system.tasks.iter_mut().for_each(|task| scaled(&mut task.wcet));
    for flow in &mut system.flows {
        scaled(&mut flow.wcet);
        scaled(&mut flow.hop_wcet);
    }
    for node in &mut system.nodes {
        node.receive.iter_mut().chain(&mut node.send).for_each(|table| scaled(&mut table.wcet));
        if let MessageArrivals::Interrupt { cost } = &mut node.arrivals {
            scaled(cost);
        }
    }
}

fn set_period(task: &mut Task, period: u64, deadline_stays: bool) {
    task.period = takt_model::Span::from_ns(period);
    if !deadline_stays {
        task.deadline = task.period;
    }
}

struct Search<'a> {
    system: &'a System,
    work_left: u64,
    limit_reached: bool,
}

impl Search<'_> {
    /// Whether the system is proven after a change; false where the limit is reached.
    fn proven(&mut self, change: impl FnOnce(&mut System)) -> bool {
        let Some(left) = self.work_left.checked_sub(self.system.tasks.len() as u64 + 1) else {
            self.limit_reached = true;
            return false;
        };
        self.work_left = left;
        let mut changed = self.system.clone();
        change(&mut changed);
        decide(&changed) == Answer::Yes
    }

    /// For a number that makes the system harder as it grows: from `now` up to `most` while proven,
    /// or down to 1 until proven.
    fn last(
        &mut self,
        schedulable: bool,
        now: u64,
        most: u64,
        sustainable: bool,
        set: impl Fn(&mut System, u64),
    ) -> Option<u64> {
        let proven = |search: &mut Self, value: u64| search.proven(|system| set(system, value));
        // Between `good`, which is proven, and `bad`, which is not.
        let (mut good, mut bad) = if schedulable {
            if proven(self, most) { (most, None) } else { (now, Some(most)) }
        } else {
            // Towards 1 in steps that double.
            let mut step = 1u64;
            let mut bad = now;
            loop {
                let next = now.saturating_sub(step).max(1);
                if self.limit_reached || next >= bad {
                    return None;
                }
                if proven(self, next) {
                    break (next, Some(bad));
                }
                bad = next;
                step = step.saturating_mul(2);
            }
        };
        loop {
            while let Some(over) = bad.filter(|over| *over - good > 1) {
                let middle = good + (over - good) / 2;
                if proven(self, middle) {
                    good = middle;
                } else {
                    bad = Some(middle);
                }
            }
            if sustainable || !schedulable || self.limit_reached {
                break;
            }
            // No theorem: what lies between must hold where it is looked at.
            let distance = good - now;
            let sample = |k: u64| now + (u128::from(distance) * u128::from(k) / u128::from(SAMPLES)) as u64;
            match (1..SAMPLES).map(sample).find(|value| *value > now && *value < good && !proven(self, *value)) {
                // The first that fails; all samples before it passed.
                Some(value) => (good, bad) = (now, Some(value)),
                None => break,
            }
        }
        (!self.limit_reached).then_some(good)
    }
}

/// Tasks that share a period.
struct Group {
    name: String,
    tasks: Vec<TaskId>,
}

impl Group {
    fn first(&self) -> TaskId {
        self.tasks[0]
    }
}

/// Tasks that are linked by chains, sources first in the name.
fn groups(system: &System) -> Vec<Group> {
    let mut of: Vec<usize> = (0..system.tasks.len()).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for (i, task) in system.tasks.iter().enumerate() {
            for before in &task.after {
                let least = of[i].min(of[before.index()]);
                changed |= of[i] != least || of[before.index()] != least;
                (of[i], of[before.index()]) = (least, least);
            }
        }
    }
    let mut groups = Vec::new();
    for root in 0..system.tasks.len() {
        let tasks: Vec<TaskId> = (root..of.len()).filter(|i| of[*i] == root).map(|i| TaskId(i as u32)).collect();
        let sources: Vec<&str> = (tasks.iter().map(|id| &system.tasks[id.index()]))
            .filter(|task| task.after.is_empty())
            .map(|task| task.name.as_str())
            .collect();
        if !sources.is_empty() {
            groups.push(Group { name: sources.join(" + "), tasks });
        }
    }
    groups
}

/// Whether the decision is monotone by theorem; see the module's documentation.
fn sustainable(system: &System, in_periods: bool) -> bool {
    let plain = system.components.is_empty()
        && system.flows.is_empty()
        && system.modes.is_empty()
        && system.switches.is_empty()
        && system.tasks.iter().all(|task| task.after.is_empty() && task.component.is_none());
    plain
        && (0..system.nodes.len()).all(|index| {
            let node = NodeId(index as u32);
            let spec = &system.nodes[index];
            let tasks = || system.tasks_of(node).map(|(_, task)| task);
            let offsets_alike = tasks().zip(tasks().skip(1)).all(|(a, b)| a.offset == b.offset);
            let one = spec.cpus == 1 && spec.placement == Placement::Global && !system.cancels(node);
            let whole = spec.receive.is_none() && spec.send.is_none();
            one && whole && offsets_alike && ordered(system, node, in_periods)
        })
}

/// Whether a node's tasks stand on fixed priorities of their own, or all under EDF, whatever their WCETs (and periods).
fn ordered(system: &System, node: NodeId, in_periods: bool) -> bool {
    let strategy = system.nodes[node.index()].strategy;
    let Ok(plan) = Plan::resolve(system, node, &system.strategy(strategy)) else { return false };
    let alike = |level: u32| plan.tasks.iter().filter(|task| task.level == level).count();
    let single = (0..plan.levels.len() as u32).all(|level| alike(level) == 1);
    let fixed = match strategy {
        StrategyRef::Builtin(Builtin::Fp) => true,
        StrategyRef::Builtin(Builtin::Rm | Builtin::Dm) => !in_periods,
        StrategyRef::Builtin(_) | StrategyRef::Own(_) => false,
    };
    let unshifted = plan.tasks.iter().all(|task| task.shift_ns == 0);
    let jitter = system.tasks_of(node).any(|(id, _)| !system.release_jitter(id).is_zero());
    match plan.levels.as_slice() {
        [level] if level.order == Order::Deadline => level.preemptive && unshifted && !jitter,
        _ => single && fixed,
    }
}

#[cfg(test)]
mod tests;
