//! `partition`: binding tasks to CPUs or clusters by fit, with a real test per bin.
//!
//! S. Dhall, C. L. Liu: On a Real-Time Scheduling Problem, Operations Research 26(1), 1978; J. Lopez, J. Diaz,
//! D. Garcia: Utilization Bounds for EDF Scheduling on Real-Time Multiprocessor Systems, RTS 28, 2004.
//!
//! Tasks that their affinity binds come first. The others follow by decreasing utilisation (ties:
//! file order). The node's fit chooses a bin for each, among the bins that still pass. Chains count
//! with deadlines as their predecessors' responses.
//!
//! | bin | order | tests |
//! |---|---|---|
//! | one CPU | EDF | `qpa` |
//! | one CPU | EDF with shifts, or not preemptive | `edf-wcrt` |
//! | one CPU | any other levels | `rta` |
//! | a cluster | EDF | `gfb`, `bcl-iterative`, `ff-dbf` |
//! | a cluster | fixed priorities | `rta-lc`, `bcl-iterative` |
//!
//! On one CPU a sum decides most steps, before a test does (quick.rs). All steps of a node share the work limit
//! `TERMS_MAX`.
//!
//! Failing proves nothing: another order might fit. With `fit = "ilp"` (feature `ilp`) an integer
//! program looks through all partitions.

use std::cell::Cell;

use serde_json::{Map, json};
use takt_model::plan::{Order, PlanError};
use takt_model::{CpuSet, Fit, NodeId, NodeSpec, Plan, System, Task, TaskId};
use thiserror::Error;

use crate::apply::apply as run;
use crate::carried::ChainBounds;
use crate::catalogue::TestId;
use crate::components::Tree;
use crate::exact::{percent, sum_ppm, sum_rounded_up};
use crate::report::{Progress, TaskReport, TestReport, Watch};
use crate::scope::{Unit, affinity, binds, cpus_name};
use crate::verdict::{Answer, TermBudget, Verdict};

#[cfg(feature = "ilp")]
mod ilp;
mod quick;

use quick::Quick;

/// Terms that the tests of all steps of one node may evaluate together.
const TERMS_MAX: u64 = 4_000_000_000;
/// Tasks between two signs of progress.
const PLACED_BETWEEN: usize = 256;
/// Terms that it takes to prepare the test of a bin, by task.
const TERMS_OF_TASK: u64 = 32;

/// A placed System and how it came about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The System with `cpus` written into every task of its partitioned and clustered nodes, and `server-cpus` into
    /// every component whose period and budget are known.
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
    /// Its tasks, in file order, without those in components.
    pub tasks: Vec<TaskId>,
    /// sum C / T of its tasks and servers in millionths of one CPU; `None` where it does not fit.
    pub utilization_ppm: Option<u64>,
    /// Why the bin's test does not prove the bin. Only tasks bound by hand can cause this.
    pub unproven: Option<String>,
}

/// Why a System could not be placed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PlaceError {
    /// A task that no bin takes.
    #[error("node \"{node}\": task \"{task}\" fits no CPU: {tried}; {remedy}")]
    NoFit {
        /// The node.
        node: String,
        /// The task.
        task: String,
        /// Its index.
        id: TaskId,
        /// Per bin, what spoke against it.
        tried: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Exact partitioning is not in this build.
    #[error(
        "node \"{node}\": fit \"ilp\" needs a takt that was built with its feature \"ilp\"; or use first-fit, \
         best-fit, worst-fit or next-fit"
    )]
    Ilp {
        /// The node.
        node: String,
    },
    /// The integer program has no solution.
    #[error(
        "node \"{node}\": no partition passes: the solver finds none for {} alone ({sets} largest sets of tasks fit \
         a CPU); {remedy}",
        .tasks.join(", ")
    )]
    NoPartition {
        /// The node.
        node: String,
        /// Tasks that cannot be placed together, beside the tasks bound by hand. Without any of
        /// them the solver found a partition, or could not decide.
        tasks: Vec<String>,
        /// Largest sets of tasks that pass in one bin.
        sets: usize,
        /// What to do.
        remedy: &'static str,
    },
    /// A limit was reached, or the solver gave up.
    #[error("node \"{node}\": undecided whether there is a partition: {why}; try a fit, fewer tasks, or more CPUs")]
    Undecided {
        /// The node.
        node: String,
        /// The limit that ended the search.
        why: String,
    },
    /// The strategy does not fit the tasks.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Binds the tasks and servers of every partitioned and clustered node to CPUs. Tasks and servers that are bound
/// already stay there.
///
/// # Errors
/// A task fits nowhere, there is no partition at all (`fit = "ilp"`), the feature `ilp` is missing,
/// or the strategy does not fit the tasks.
pub fn place(system: &System) -> Result<Placed, PlaceError> {
    place_all(system, false)
}

/// The same to watch what happens: a task that no bin's test takes goes to the bin with the least load. Such a bin is
/// [unproven](Bin::unproven).
///
/// # Errors
/// A task that may use no CPU, or a strategy that does not fit the tasks.
pub fn place_regardless(system: &System) -> Result<Placed, PlaceError> {
    place_all(system, true)
}

fn place_all(system: &System, regardless: bool) -> Result<Placed, PlaceError> {
    let mut tree = Tree::new(system);
    let mut nodes = Vec::new();
    for index in 0..system.nodes.len() {
        let node = NodeId(index as u32);
        if binds(&system.nodes[index]) {
            let mut bins = place_node(&mut tree.system, node, regardless)?;
            bins.iter_mut().for_each(|bin| bin.tasks.retain(|id| id.index() < tree.file_tasks));
            nodes.push(NodePlacement { node, bins });
        }
    }
    Ok(Placed { system: tree.into_placed(), nodes })
}

/// The test report of placing one node, and the placed System where it worked.
pub(crate) fn apply(system: &System, node: NodeId, watch: Watch) -> (TestReport, Option<System>) {
    let scope = system.nodes[node.index()].name.clone();
    let mut copy = system.clone();
    let mut figures = Map::new();
    let mut tasks = Vec::new();
    let (verdict, placed) = match place_within(&mut copy, node, false, TERMS_MAX, watch).map(|(bins, _)| bins) {
        Ok(bins) => {
            let shown: Vec<_> = bins
                .iter()
                .map(|bin| {
                    let names: Vec<&str> = bin.tasks.iter().map(|id| system.tasks[id.index()].name.as_str()).collect();
                    json!({ "cpus": bin.cpus.iter().collect::<Vec<_>>(), "tasks": names,
                    "utilization_ppm": bin.utilization_ppm })
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
                figures.insert("bins".to_owned(), filled(&copy, node));
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

/// The bound tasks on each CPU or cluster of a node.
fn filled(system: &System, node: NodeId) -> serde_json::Value {
    let bins = system.nodes[node.index()].clusters().into_iter().map(|cpus| {
        let own = system.tasks_of(node).filter(|(_, task)| task.component.is_none());
        let here = own.map(|(_, task)| task).filter(|task| task.cpus.is_some_and(|own| own.is_subset(&cpus)));
        let tasks: Vec<&Task> = here.collect();
        let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        let utilization = sum_ppm(tasks.iter().map(|task| load(task)));
        json!({ "cpus": cpus.iter().collect::<Vec<_>>(), "tasks": names, "utilization_ppm": utilization })
    });
    bins.collect()
}

/// A bin while it is filled; slots index [`Plan::tasks`].
#[derive(Clone)]
struct OpenBin {
    cpus: CpuSet,
    slots: Vec<usize>,
}

fn place_node(system: &mut System, node: NodeId, regardless: bool) -> Result<Vec<Bin>, PlaceError> {
    place_within(system, node, regardless, TERMS_MAX, &mut |_| {}).map(|(bins, _)| bins)
}

/// [`place_node`] with a work limit, and how many terms are left of it.
fn place_within(
    system: &mut System,
    node: NodeId,
    regardless: bool,
    terms_max: u64,
    watch: Watch,
) -> Result<(Vec<Bin>, u64), PlaceError> {
    let spec = system.nodes[node.index()].clone();
    let plan = Plan::resolve(system, node, &system.strategy(spec.strategy))?;
    let mut bins: Vec<OpenBin> = spec.clusters().into_iter().map(|cpus| OpenBin { cpus, slots: Vec::new() }).collect();
    let before: Vec<Option<CpuSet>> = system.tasks.iter().map(|task| task.cpus).collect();
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
    loose.sort_by(|a, b| {
        let load = |slot: usize| {
            let task = &system.tasks[plan.tasks[slot].task.index()];
            (u128::from(task.wcet.as_ns()), u128::from(task.period.as_ns()))
        };
        let ((c_a, t_a), (c_b, t_b)) = (load(*a), load(*b));
        (c_b * t_a).cmp(&(c_a * t_b)).then(a.cmp(b))
    });
    let carried = ChainBounds::by_deadlines(system);
    let terms_left = Cell::new(terms_max);
    let mut placer = Placer { system, spec: &spec, plan: &plan, carried: &carried, terms_left, watch };
    let filled = match spec.fit {
        Fit::Ilp => placer.exactly(bins.clone(), &loose),
        fit => placer.by_fit(fit, bins.clone(), &loose, false),
    };
    let bins = match filled {
        Err(PlaceError::NoFit { .. } | PlaceError::NoPartition { .. } | PlaceError::Undecided { .. }) if regardless => {
            loose.iter().for_each(|slot| placer.bind(*slot, before[plan.tasks[*slot].task.index()]));
            placer.by_fit(if spec.fit == Fit::Ilp { Fit::WorstFit } else { spec.fit }, bins, &loose, true)?
        }
        filled => filled?,
    };
    let left = placer.terms_left.get();
    let finished = bins.into_iter().map(|bin| {
        // Each bin has its own limit here, so that the last bins are tested as the first ones are.
        placer.terms_left.set(placer.terms_left.get().max(TERMS_MAX / u64::from(spec.cpus.max(1))));
        let unproven = placer.fits(&bin, None).err();
        let mut tasks: Vec<TaskId> = bin.slots.iter().map(|slot| plan.tasks[*slot].task).collect();
        tasks.sort_unstable();
        let loads = tasks.iter().map(|id| load(&placer.system.tasks[id.index()]));
        Bin { cpus: bin.cpus, utilization_ppm: sum_ppm(loads), tasks, unproven }
    });
    let finished = finished.collect();
    Ok((finished, left))
}

/// A node that is being filled.
struct Placer<'a> {
    system: &'a mut System,
    spec: &'a NodeSpec,
    plan: &'a Plan,
    carried: &'a ChainBounds,
    terms_left: Cell<u64>,
    watch: Watch<'a>,
}

impl Placer<'_> {
    fn task(&self, slot: usize) -> &Task {
        &self.system.tasks[self.plan.tasks[slot].task.index()]
    }

    fn bind(&mut self, slot: usize, cpus: Option<CpuSet>) {
        self.system.tasks[self.plan.tasks[slot].task.index()].cpus = cpus;
    }

    /// Each task, in the given order, into the first bin of the fit's order whose test it passes;
    /// `regardless` takes the bin with the least load where it passes none.
    fn by_fit(
        &mut self,
        fit: Fit,
        mut bins: Vec<OpenBin>,
        loose: &[usize],
        regardless: bool,
    ) -> Result<Vec<OpenBin>, PlaceError> {
        let mut last_used = 0;
        let load_of = |placer: &Self, slots: &[usize]| {
            let loads = slots.iter().map(|slot| load(placer.task(*slot)));
            sum_rounded_up(loads).unwrap_or(u128::MAX)
        };
        let mut loads: Vec<u128> = bins.iter().map(|bin| load_of(self, &bin.slots)).collect();
        let mut quick = Quick::new(self, &bins);
        for (placed, &slot) in loose.iter().enumerate() {
            if placed.is_multiple_of(PLACED_BETWEEN) {
                (self.watch)(Progress::Placed(placed, loose.len()));
            }
            let own = affinity(self.task(slot), self.spec);
            let (mut tried, mut overloaded) = (Vec::new(), false);
            let mut chosen = None;
            for candidate in candidates(&bins, &loads, fit, last_used) {
                let cpus = own.intersection(&bins[candidate].cpus);
                if cpus.is_empty() {
                    continue;
                }
                let told = quick.decide(self, &bins[candidate], candidate, slot);
                if told != Answer::No && self.try_bind(&bins[candidate], slot, cpus, told, &mut tried) {
                    chosen = Some(candidate);
                    break;
                }
                overloaded |= told == Answer::No;
                if self.terms_left.get() == 0 && !regardless {
                    return Err(self.out_of_work(placed, loose.len()));
                }
            }
            // The tests say what each bin lacks.
            if chosen.is_none() && overloaded && !regardless {
                tried.clear();
                for bin in candidates(&bins, &loads, fit, last_used).into_iter().map(|bin| &bins[bin]) {
                    let cpus = own.intersection(&bin.cpus);
                    if !cpus.is_empty() {
                        self.try_bind(bin, slot, cpus, Answer::Unknown, &mut tried);
                    }
                }
            }
            if regardless && chosen.is_none() {
                let by_load = candidates(&bins, &loads, Fit::WorstFit, last_used).into_iter();
                let mut open = by_load.map(|bin| (bin, own.intersection(&bins[bin].cpus)));
                if let Some((bin, cpus)) = open.find(|(_, cpus)| !cpus.is_empty()) {
                    self.bind(slot, Some(cpus));
                    chosen = Some(bin);
                }
            }
            let Some(chosen) = chosen else {
                let (node, id) = (self.spec.name.clone(), self.plan.tasks[slot].task);
                let task = self.task(slot).name.clone();
                let tried =
                    if tried.is_empty() { "no CPU is left that it may use".to_owned() } else { tried.join("; ") };
                return Err(PlaceError::NoFit { node, task, id, tried, remedy: self.remedy() });
            };
            quick.add(self, chosen, slot);
            bins[chosen].slots.push(slot);
            loads[chosen] = loads[chosen].saturating_add(load_of(self, &[slot]));
            last_used = chosen;
        }
        Ok(bins)
    }

    /// A partition with passing bins only, if there is one. A successful fit gives it, else an
    /// integer program.
    #[cfg(feature = "ilp")]
    fn exactly(&mut self, bins: Vec<OpenBin>, loose: &[usize]) -> Result<Vec<OpenBin>, PlaceError> {
        let before: Vec<_> = loose.iter().map(|slot| self.task(*slot).cpus).collect();
        for fit in [Fit::WorstFit, Fit::FirstFit, Fit::BestFit] {
            if let Ok(filled) = self.by_fit(fit, bins.clone(), loose, false) {
                return Ok(filled);
            }
            for (slot, cpus) in loose.iter().zip(&before) {
                self.bind(*slot, *cpus);
            }
        }
        // It has limits of its own.
        self.terms_left.set(u64::MAX);
        ilp::assign(self, bins, loose)
    }

    #[cfg(not(feature = "ilp"))]
    fn exactly(&mut self, bins: Vec<OpenBin>, loose: &[usize]) -> Result<Vec<OpenBin>, PlaceError> {
        if loose.is_empty() { Ok(bins) } else { Err(PlaceError::Ilp { node: self.spec.name.clone() }) }
    }

    /// The advice if no placement passes. Under global placement only the kernel's own classes run a node.
    fn remedy(&self) -> &'static str {
        let by_kernel = match self.plan.levels.as_slice() {
            [only] if only.order == Order::Deadline && only.preemptive => only.continues(),
            levels => levels.iter().all(|level| level.order == Order::Fifo && level.continues()),
        };
        if by_kernel {
            "try another fit, more CPUs, or global placement"
        } else {
            "try another fit or more CPUs, or bind tasks by cpus = [..]; takt sim and takt run start all the same"
        }
    }

    /// Binds a task to CPUs of a bin if it passes there, as `told` or by a test. Else notes why not.
    fn try_bind(&mut self, bin: &OpenBin, slot: usize, cpus: CpuSet, told: Answer, tried: &mut Vec<String>) -> bool {
        let before = self.task(slot).cpus;
        self.bind(slot, Some(cpus));
        let fits = if told == Answer::Yes { Ok(()) } else { self.fits(bin, Some(slot)) };
        if let Err(why) = fits {
            self.bind(slot, before);
            tried.push(format!("{}: {why}", cpus_name(&bin.cpus)));
            return false;
        }
        true
    }

    fn out_of_work(&self, placed: usize, of: usize) -> PlaceError {
        let why = format!("the work limit was reached when {placed} of {of} tasks had a place");
        PlaceError::Undecided { node: self.spec.name.clone(), why }
    }

    /// Whether a bin passes a test with one more task.
    fn fits(&self, bin: &OpenBin, more: Option<usize>) -> Result<(), String> {
        let terms = self.terms_left.get();
        let prepare = TERMS_OF_TASK * (bin.slots.len() as u64 + 1);
        let Some(left) = terms.checked_sub(prepare).filter(|left| *left > 0) else {
            self.terms_left.set(0);
            return Err("undecided: the work limit was reached".to_owned());
        };
        let mut slots: Vec<usize> = bin.slots.iter().copied().chain(more).collect();
        slots.sort_unstable();
        let whole = slots.iter().all(|slot| affinity(self.task(*slot), self.spec) == bin.cpus);
        let unit = Unit::new(self.system, self.spec, self.plan, &slots, cpus_name(&bin.cpus), bin.cpus.len(), whole);
        let unit = Unit { terms: TermBudget::new(left), ..unit };
        let tests = tests(&unit);
        let mut said = Vec::new();
        for test in tests {
            let report = run(*test, &unit, self.carried);
            self.terms_left.set(left - unit.terms.spent());
            if report.verdict.answer() == Answer::Yes {
                return Ok(());
            }
            said.push(report.verdict.why().to_owned());
        }
        let load = sum_ppm(unit.tasks.iter().map(|task| (task.c, task.t))).map_or("?".to_owned(), percent);
        let more: Vec<&str> = tests[1..].iter().map(|test| test.name()).collect();
        let more = if more.is_empty() { String::new() } else { format!(" (nor do {} prove it)", more.join(", ")) };
        Err(format!("{} at {load}: {}{more}", tests[0].name(), said[0]))
    }
}

/// The bins, with their loads, in the order in which a fit tries them.
fn candidates(bins: &[OpenBin], loads: &[u128], fit: Fit, last_used: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..bins.len()).collect();
    // Per CPU of the bin, since the last cluster may be smaller.
    let fullness = |bin: &usize| loads[*bin] / u128::from(bins[*bin].cpus.len().max(1));
    match fit {
        Fit::FirstFit | Fit::Ilp => {}
        Fit::BestFit => order.sort_by_cached_key(|bin| std::cmp::Reverse(fullness(bin))),
        Fit::WorstFit => order.sort_by_cached_key(fullness),
        Fit::NextFit => order.retain(|bin| *bin >= last_used),
    }
    order
}

/// The tests that decide a bin. One CPU has a single test: exact, or the only test there is. On a
/// cluster the cheapest comes first.
fn tests(unit: &Unit) -> &'static [TestId] {
    match (unit.edf().is_ok(), unit.m) {
        (true, 1) => &[TestId::Qpa],
        (true, _) => &[TestId::Gfb, TestId::BclIterative, TestId::FfDbf],
        (false, 1) if unit.by_deadline() => &[TestId::EdfWcrt],
        (false, 1) => &[TestId::Rta],
        (false, _) => &[TestId::RtaLc, TestId::BclIterative],
    }
}

fn load(task: &Task) -> (u64, u64) {
    (task.wcet.as_ns(), task.period.as_ns())
}
