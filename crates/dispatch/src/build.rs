//! The state that the threads of a dispatcher share. It is built from the plan and the handlers
//! before the threads start.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use takt_model::{Late, Span, Task, TaskId, Time};
use takt_policy::PolicyError;

use super::adaptive::{Adaptive, Controller};
use super::core::{Core, Place};
use super::error::StartError;
use super::fact::FactSink;
use super::fact_log::{FactWriter, OperationInfo};
use super::live::{CpuState, Handler, LockedState, Reports, Running, Shared};
use super::options::Options;
use super::plan::{Overrun, Plan, PlanLevelRow, Row};
use crate::gate::GO_WAIT;
use crate::ring::Ring;
use crate::sync::{AtomicU64, Futex, PiMutex};

/// The most facts in a ring: 512 MiB.
const RECORDS_MAX: usize = 1 << 24;

/// The number of dispatchers built in this process.
static BUILT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// The number of operations built in this process.
static OPERATIONS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// All that the threads need.
pub(super) struct Built {
    pub(super) shared: Arc<Shared>,
    /// The ring of each CPU, and the static data of its operations.
    pub(super) fact_logs: Vec<(Arc<Ring>, Vec<OperationInfo>)>,
    /// Worker threads on each CPU.
    pub(super) workers: usize,
}

/// Builds the state, if the plan has not too many CPUs and levels.
pub(super) fn build(
    plan: &Plan,
    places: &Places,
    handlers: &mut BTreeMap<TaskId, Handler>,
    options: &Options,
    adaptive: Option<Adaptive>,
) -> Result<Built, StartError> {
    let number = BUILT.fetch_add(1, Ordering::Relaxed);
    let node = plan.system.nodes.get(plan.node.index()).map_or(1, |node| node.cpus as usize);
    let threads = threads(plan);
    let mut cpu_states = Vec::with_capacity(node);
    let mut fact_logs = Vec::with_capacity(node);
    let workers = workers(plan, &threads);
    for cpu in 0..node as u32 {
        let ring = Arc::new(Ring::new(options.records.clamp(2, RECORDS_MAX)));
        let mut core = core(plan, places, cpu, FactWriter::new(ring.clone()))?;
        if let Some(law) = &adaptive {
            core.watch(law.calm, law.dangers(plan, cpu));
        }
        let mut operations = Vec::new();
        for row in plan.rows.iter().filter(|row| row.cpu == cpu) {
            let handler = handlers.remove(&row.task).ok_or_else(|| StartError::NoHandler(row.name.clone()))?;
            operations.push(Running {
                tasks: tasks(plan, row.task),
                name: row.name.clone(),
                number: OPERATIONS.fetch_add(1, Ordering::Relaxed),
                followers: followers(plan, places, row.task),
                handler: PiMutex::new(handler),
                panic: PiMutex::new(None),
                stop_before: AtomicU64::new(0),
                watched: row.overrun.zip(plan.system.tasks.get(row.task.index()).map(|task| task.wcet)),
                overran: AtomicU64::new(0),
                overran_before: AtomicU64::new(0),
            });
        }
        let signals = (0..=core.seat_count()).map(|_| Futex::new(0)).collect();
        let held = PiMutex::new(LockedState::new(core, threads.clone(), workers));
        let (courier, timer) = (PiMutex::new(()), Futex::new(0));
        cpu_states.push(CpuState { held, courier, signals, timer, pending: Default::default(), operations });
        fact_logs.push((ring, operation_infos(plan, cpu)));
    }
    let shared = Arc::new(Shared {
        number,
        seed: options.seed,
        draws_sporadic: options.draws_sporadic,
        duration: options.duration.map_or(Time::MAX, |duration| Time::ZERO.saturating_add(duration)),
        epoch: OnceLock::new(),
        go: AtomicU32::new(GO_WAIT),
        cpu_states,
        priorities: if options.best_effort { Vec::new() } else { priorities(plan) },
        switches: plan
            .modes
            .iter()
            .zip(1..)
            .filter(|_| options.timed_modes && adaptive.is_none())
            .filter_map(|(mode, k)| Some((mode.at?, k)))
            .collect(),
        controller: adaptive.map(|law| PiMutex::new(Controller::new(law, node))),
        overruns: Reports::new(),
        refused: AtomicU64::new(0),
        switched: AtomicU64::new(0),
        locked_ns: AtomicU64::new(0),
        holds: AtomicUsize::new(0),
        stop_asked: AtomicBool::new(false),
    });
    Ok(Built { shared, fact_logs, workers })
}

/// The number of seats of the plan with the most levels, and the seats of demoted jobs. A level
/// without preemption has one seat.
pub(super) fn seats_max(plan: &Plan) -> (usize, usize) {
    let seats = |levels: &Vec<PlanLevelRow>| levels.iter().map(|level| level.nesting as usize).sum();
    let most = plan.each_levels().map(seats).max().unwrap_or(0);
    (most, plan.demoted_nesting as usize)
}

/// Whether jobs of some level of some plan preempt each other.
fn nests(plan: &Plan) -> bool {
    plan.each_levels().flatten().any(|level| level.preemptive)
}

/// The number of threads by plan and seat (seats of demoted jobs last). A seat of other plans only
/// has a single thread, for jobs that a switch leaves there.
fn threads(plan: &Plan) -> Vec<Vec<u32>> {
    let (most, demoted) = seats_max(plan);
    let of = |levels: &Vec<PlanLevelRow>| {
        let given = levels.iter().flat_map(|level| std::iter::repeat_n(level.threads.max(1), level.nesting as usize));
        let pool = if nests(plan) { 1 } else { given.clone().max().unwrap_or(1) };
        given.chain(std::iter::repeat(1)).take(most).chain(std::iter::repeat_n(pool, demoted)).collect()
    };
    plan.each_levels().map(of).collect()
}

/// The number of worker threads on each CPU. A switch of plans may find all threads of a level
/// busy. It may leave their started jobs at a level of another plan, whose own levels need their
/// threads besides. The next switch may find these busy too. There are never more busy threads than
/// operations, nor more started jobs under a plan than its levels have threads. If the same plan
/// returns before such a job ends, a level may wait for its threads.
fn workers(plan: &Plan, threads: &[Vec<u32>]) -> usize {
    let wanted = threads.iter().map(|levels| levels.iter().sum::<u32>() as usize).max().unwrap_or(1);
    let on = |cpu: u32| plan.rows.iter().filter(|row| row.cpu == cpu).count();
    let operations = plan.rows.iter().map(|row| on(row.cpu)).max().unwrap_or(0);
    // A demoted job needs a replacement.
    let demotes =
        |cpu: u32| plan.rows.iter().filter(|row| row.cpu == cpu && row.overrun == Some(Overrun::Demote)).count();
    let demoted = plan.rows.iter().map(|row| demotes(row.cpu)).max().unwrap_or(0);
    // A dropped job may run on until its handler notices. If jobs nest, its seat goes to another
    // job.
    let drops = |cpu: u32| plan.each_rows().flatten().any(|row| row.cpu == cpu && row.late == Late::Drop);
    let dropped = if nests(plan) && plan.rows.iter().any(|row| drops(row.cpu)) { operations } else { 0 };
    wanted + dropped + operations.min(wanted * plan.modes.len()) + demoted
}

pub(crate) type Places = BTreeMap<TaskId, Place>;

/// Slots number the operations of a CPU in order.
pub(crate) fn places(plan: &Plan) -> Places {
    let mut next: BTreeMap<u32, u32> = BTreeMap::new();
    let place = |row: &Row| {
        let slot = next.entry(row.cpu).or_default();
        *slot += 1;
        (row.task, Place { cpu: row.cpu, slot: *slot - 1 })
    };
    plan.rows.iter().map(place).collect()
}

/// Static data about the operations of a CPU, for the log.
pub(crate) fn operation_infos(plan: &Plan, cpu: u32) -> Vec<OperationInfo> {
    let (hops, nests) = (hops(plan), nests(plan));
    let known = |row: &Row| {
        let deadline = plan.system.tasks.get(row.task.index()).map_or(Span::MAX, |task| task.deadline);
        let at = plan.rows.iter().position(|other| other.task == row.task);
        let changed = plan.modes.iter().filter_map(|mode| mode.rows.get(at?));
        let of = |row: &Row| (row.level, row.late == Late::Demote);
        let levels = std::iter::once(row).chain(changed).map(of).filter(|_| !nests).collect();
        OperationInfo { task: row.task, deadline, hop: hops.get(row.task.index()).copied().unwrap_or(0), levels }
    };
    plan.rows.iter().filter(|row| row.cpu == cpu).map(known).collect()
}

/// The dispatch state for one CPU of a plan.
pub(crate) fn core<T: FactSink>(plan: &Plan, places: &Places, cpu: u32, facts: T) -> Result<Core<T>, PolicyError> {
    core_of(plan, plan.resolved()?, places, cpu, facts)
}

/// As [`core`], with each job running to completion within its level, whatever the plan says.
pub(super) fn core_to_completion<T: FactSink>(
    plan: &Plan,
    places: &Places,
    cpu: u32,
    facts: T,
) -> Result<Core<T>, PolicyError> {
    let mut plans = plan.resolved()?;
    plans.iter_mut().flat_map(|plan| &mut plan.levels).for_each(|level| level.preemptive = false);
    core_of(plan, plans, places, cpu, facts)
}

fn core_of<T: FactSink>(
    plan: &Plan,
    plans: Vec<takt_model::Plan>,
    places: &Places,
    cpu: u32,
    facts: T,
) -> Result<Core<T>, PolicyError> {
    let row = |task| plan.rows.iter().find(|row| row.task == task);
    let backlog = |task| row(task).map_or(1, |row| row.backlog);
    let distances = |task| {
        let by_events = row(task).is_some_and(|row| row.by_events);
        let least = |period| if by_events { Span::ZERO } else { period };
        let distance = |task: Option<Arc<Task>>| task.map_or((Span::ZERO, false), |task| (least(task.period), true));
        tasks(plan, task).into_iter().map(distance).collect()
    };
    let system = plan.as_released();
    let place = (&*system, plan.node, cpu);
    let mut core = Core::new(place, plans, distances, |task| followers(plan, places, task), backlog, facts)?;
    if plan.varies() {
        core.vary();
    }
    Ok(core)
}

/// A task with the rate of each plan; `None` for a plan in which it takes no part.
pub(crate) fn tasks(plan: &Plan, task: TaskId) -> Vec<Option<Arc<Task>>> {
    let Some(base) = plan.system.tasks.get(task.index()).map(|task| Arc::new(task.clone())) else { return Vec::new() };
    if !plan.varies() {
        return vec![Some(base); plan.modes.len() + 1];
    }
    let at = |row: &Row| {
        let same = row.period == base.period;
        let task = if same { base.clone() } else { Arc::new(Task { period: row.period, ..Task::clone(&base) }) };
        row.takes_part.then_some(task)
    };
    let row = |k| plan.rows_in(k)?.iter().find(|row| row.task == task);
    (0..=plan.modes.len()).filter_map(row).map(at).collect()
}

/// The places of the operations that the ends of a task release.
pub(crate) fn followers(plan: &Plan, places: &Places, task: TaskId) -> Vec<Place> {
    let after = |row: &Row| plan.system.tasks.get(row.task.index()).is_some_and(|other| other.after.contains(&task));
    let released = plan.rows.iter().filter(|row| !row.by_events && after(row));
    released.filter_map(|row| places.get(&row.task).copied()).collect()
}

/// For each task of the System, the links of the longest path from a source.
fn hops(plan: &Plan) -> Vec<u32> {
    let tasks = &plan.as_released().tasks;
    let mut hops = vec![0; tasks.len()];
    // A chain has at most as many links as tasks. Stop after the first round without a change.
    for _ in 0..tasks.len() {
        let mut changed = false;
        for (at, task) in tasks.iter().enumerate() {
            let before = task.after.iter().filter_map(|before| hops.get(before.index()));
            let hop = before.max().map_or(0, |before: &u32| before + 1);
            if let Some(known) = hops.get_mut(at).filter(|known| **known != hop) {
                *known = hop;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    hops
}

/// By plan and seat, seats of demoted jobs last.
pub(super) fn priorities(plan: &Plan) -> Vec<Vec<u8>> {
    let (most, demoted) = seats_max(plan);
    let least = plan.each_levels().flatten().map(|level| level.priority).min().unwrap_or(1);
    // The most important first.
    let nested = |priority: u8, nesting: u32| (0..nesting as u8).rev().map(move |above| priority.saturating_add(above));
    let of = |levels: &Vec<PlanLevelRow>| {
        let given = levels.iter().flat_map(|level| nested(level.priority, level.nesting));
        let all = given.chain(std::iter::repeat(least)).take(most);
        match plan.demoted_priority {
            Some(priority) => all.chain(nested(priority, plan.demoted_nesting)).collect(),
            None => all.chain(std::iter::repeat_n(least, demoted)).collect(),
        }
    };
    plan.each_levels().map(of).collect()
}
