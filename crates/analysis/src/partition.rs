//! `partition`: binding tasks to CPUs or clusters by fit, with a real test per bin.
//!
//! S. Dhall, C. L. Liu: On a Real-Time Scheduling Problem, Operations Research 26(1), 1978; J. Lopez, J. Diaz,
//! D. Garcia: Utilization Bounds for EDF Scheduling on Real-Time Multiprocessor Systems, RTS 28, 2004. Tasks in the order
//! of decreasing utilisation (ties: file order), those that their affinity already binds first; each goes to the bin
//! that the node's fit names, among those that still pass with it: by `qpa` (EDF on one CPU), `edf-wcrt` (shifted, or not
//! preemptive), `rta` (any other levels), `gfb` (EDF on a cluster). Chains count with deadlines as their predecessors' responses.
//!
//! Failing proves nothing: another order might fit.

use serde_json::{Map, json};
use takt_model::plan::PlanError;
use takt_model::{CpuSet, Fit, NodeId, Plan, System, Task, TaskId};
use thiserror::Error;

use crate::apply::{apply as run, percent};
use crate::catalogue::TestId;
use crate::chains::Carried;
use crate::exact::{sum_ppm, sum_rounded_up};
use crate::report::{TaskReport, TestReport};
use crate::scope::{Unit, affinity, binds, cpus_name};
use crate::verdict::{Answer, Verdict};

/// A placed System and how it came about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The System with `cpus` written into every task of its partitioned and clustered nodes.
    pub system: System,
    /// Per such node, in order.
    pub nodes: Vec<NodePlacement>,
}

/// How one node was filled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePlacement {
    /// The node.
    pub node: NodeId,
    /// Its CPUs or clusters, in order.
    pub bins: Vec<Bin>,
}

/// One CPU or cluster with its load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bin {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its tasks, in file order.
    pub tasks: Vec<TaskId>,
    /// sum C / T of its tasks in millionths of one CPU; `None` where it does not fit.
    pub utilization_ppm: Option<u64>,
    /// Why its test does not prove it, which only tasks that were bound by hand can bring about.
    pub unproven: Option<String>,
}

/// Why a System could not be placed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PlaceError {
    /// A task that no bin takes.
    #[error("node \"{node}\": task \"{task}\" fits no CPU: {tried}; try another fit, more CPUs, or global placement")]
    NoFit {
        /// The node.
        node: String,
        /// The task.
        task: String,
        /// Its index.
        id: TaskId,
        /// Per bin, what spoke against it.
        tried: String,
    },
    /// Exact partitioning is not in this version.
    #[error("node \"{node}\": fit \"ilp\" is not in this version; use first-fit, best-fit, worst-fit or next-fit")]
    Ilp {
        /// The node.
        node: String,
    },
    /// The strategy does not fit the tasks.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Binds the tasks of every partitioned and clustered node to CPUs. Tasks that their affinity already binds keep it.
///
/// # Errors
/// A task that fits nowhere, `fit = "ilp"`, or a strategy that does not fit the tasks.
pub fn place(system: &System) -> Result<Placed, PlaceError> {
    let mut placed = Placed { system: system.clone(), nodes: Vec::new() };
    for index in 0..system.nodes.len() {
        let node = NodeId(index as u32);
        if binds(&system.nodes[index]) {
            let bins = place_node(&mut placed.system, node)?;
            placed.nodes.push(NodePlacement { node, bins });
        }
    }
    Ok(placed)
}

/// The test report of placing one node, and the placed System where it worked.
pub(crate) fn apply(system: &System, node: NodeId) -> (TestReport, Option<System>) {
    let scope = system.nodes[node.index()].name.clone();
    let mut copy = system.clone();
    let mut figures = Map::new();
    let mut tasks = Vec::new();
    let (verdict, placed) = match place_node(&mut copy, node) {
        Ok(bins) => {
            let shown: Vec<_> = bins
                .iter()
                .map(|bin| {
                    let names: Vec<&str> = bin.tasks.iter().map(|id| system.tasks[id.index()].name.as_str()).collect();
                    json!({ "cpus": bin.cpus.iter().collect::<Vec<_>>(), "tasks": names, "utilization_ppm": bin.utilization_ppm })
                })
                .collect();
            figures.insert("bins".to_owned(), json!(shown));
            let unproven = bins.iter().find_map(|bin| {
                let why = bin.unproven.as_ref()?;
                Some(format!("{}, filled by hand: {why}", cpus_name(&bin.cpus)))
            });
            let verdict = match unproven {
                Some(why) => Verdict::NotProven { why },
                None => Verdict::Schedulable { bounds: Vec::new() },
            };
            (verdict, Some(copy))
        }
        Err(error) => {
            if let PlaceError::NoFit { id, .. } = error {
                let task = &system.tasks[id.index()];
                let name = task.name.clone();
                tasks.push(TaskReport {
                    id,
                    task: name,
                    verdict: Answer::Unknown,
                    wcrt: None,
                    deadline: task.deadline,
                });
            }
            (Verdict::NotProven { why: error.to_string() }, None)
        }
    };
    (TestReport { test: TestId::Partition, scope, verdict, tasks, figures }, placed)
}

/// A bin while it is filled; slots index [`Plan::tasks`].
struct Filling {
    cpus: CpuSet,
    slots: Vec<usize>,
}

fn place_node(system: &mut System, node: NodeId) -> Result<Vec<Bin>, PlaceError> {
    let spec = system.nodes[node.index()].clone();
    let plan = Plan::resolve(system, node, &system.strategy(spec.strategy))?;
    let mut bins: Vec<Filling> = spec.clusters().into_iter().map(|cpus| Filling { cpus, slots: Vec::new() }).collect();
    let mut loose = Vec::new();
    for (slot, planned) in plan.tasks.iter().enumerate() {
        let cpus = affinity(&system.tasks[planned.task.index()], &spec);
        match bins.iter_mut().find(|bin| cpus.is_subset(&bin.cpus)) {
            Some(bin) => {
                bin.slots.push(slot);
                system.tasks[planned.task.index()].cpus = Some(cpus);
            }
            None => loose.push(slot),
        }
    }
    if spec.fit == Fit::Ilp && !loose.is_empty() {
        return Err(PlaceError::Ilp { node: spec.name });
    }
    loose.sort_by(|a, b| {
        let load = |slot: usize| {
            let task = &system.tasks[plan.tasks[slot].task.index()];
            (u128::from(task.wcet.as_ns()), u128::from(task.period.as_ns()))
        };
        let ((c_a, t_a), (c_b, t_b)) = (load(*a), load(*b));
        (c_b * t_a).cmp(&(c_a * t_b)).then(a.cmp(b))
    });
    let carried = Carried::by_deadlines(system);
    let mut last_used = 0;
    for slot in loose {
        let id = plan.tasks[slot].task;
        let own = affinity(&system.tasks[id.index()], &spec);
        let mut tried = Vec::new();
        let mut chosen = None;
        for candidate in candidates(system, &plan, &bins, spec.fit, last_used) {
            let cpus = own.intersection(&bins[candidate].cpus);
            if cpus.is_empty() {
                continue;
            }
            let before = system.tasks[id.index()].cpus.replace(cpus);
            match fits(system, node, &plan, &bins[candidate], Some(slot), &carried) {
                Ok(()) => {
                    chosen = Some(candidate);
                    break;
                }
                Err(why) => {
                    system.tasks[id.index()].cpus = before;
                    tried.push(format!("{}: {why}", cpus_name(&bins[candidate].cpus)));
                }
            }
        }
        let Some(chosen) = chosen else {
            let task = system.tasks[id.index()].name.clone();
            let tried = if tried.is_empty() { "no CPU is left that it may use".to_owned() } else { tried.join("; ") };
            return Err(PlaceError::NoFit { node: spec.name, task, id, tried });
        };
        bins[chosen].slots.push(slot);
        last_used = chosen;
    }
    let finished = bins.into_iter().map(|bin| {
        let unproven = fits(system, node, &plan, &bin, None, &carried).err();
        let mut tasks: Vec<TaskId> = bin.slots.iter().map(|slot| plan.tasks[*slot].task).collect();
        tasks.sort_unstable();
        let loads = tasks.iter().map(|id| load(&system.tasks[id.index()]));
        Bin { cpus: bin.cpus, utilization_ppm: sum_ppm(loads), tasks, unproven }
    });
    Ok(finished.collect())
}

/// The bins in the order in which a fit tries them.
fn candidates(system: &System, plan: &Plan, bins: &[Filling], fit: Fit, last_used: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..bins.len()).collect();
    // Per CPU of the bin, so that a smaller last cluster counts as what it is.
    let fullness = |bin: &usize| {
        let bin = &bins[*bin];
        let loads = bin.slots.iter().map(|slot| load(&system.tasks[plan.tasks[*slot].task.index()]));
        sum_rounded_up(loads).unwrap_or(u128::MAX) / u128::from(bin.cpus.len().max(1))
    };
    match fit {
        Fit::FirstFit | Fit::Ilp => {}
        Fit::BestFit => order.sort_by_key(|bin| std::cmp::Reverse(fullness(bin))),
        Fit::WorstFit => order.sort_by_key(fullness),
        Fit::NextFit => order.retain(|bin| *bin >= last_used),
    }
    order
}

fn load(task: &Task) -> (u64, u64) {
    (task.wcet.as_ns(), task.period.as_ns())
}

/// Whether a bin passes its test with one more task.
fn fits(
    system: &System,
    node: NodeId,
    plan: &Plan,
    bin: &Filling,
    more: Option<usize>,
    carried: &Carried,
) -> Result<(), String> {
    let spec = &system.nodes[node.index()];
    let mut slots: Vec<usize> = bin.slots.iter().copied().chain(more).collect();
    slots.sort_unstable();
    let whole = slots.iter().all(|slot| affinity(&system.tasks[plan.tasks[*slot].task.index()], spec) == bin.cpus);
    let unit = Unit::new(system, spec, plan, &slots, cpus_name(&bin.cpus), bin.cpus.len(), whole);
    let test = match (unit.edf().is_ok(), unit.m) {
        (true, 1) => TestId::Qpa,
        (true, _) => TestId::Gfb,
        (false, 1) if unit.by_deadline() => TestId::EdfWcrt,
        (false, _) => TestId::Rta,
    };
    let report = run(test, &unit, carried);
    match report.verdict.answer() {
        Answer::Yes => Ok(()),
        _ => Err(format!(
            "{} at {}: {}",
            test.name(),
            sum_ppm(unit_loads(&unit)).map_or("?".to_owned(), percent),
            report.verdict.why()
        )),
    }
}

fn unit_loads(unit: &Unit) -> impl Iterator<Item = (u64, u64)> {
    unit.tasks.iter().map(|task| (task.c, task.t))
}
