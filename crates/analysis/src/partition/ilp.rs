//! Exact partitioning by an integer linear program over the sets of tasks that pass a bin's own test.
//!
//! Bins of a class are alike: the same number of CPUs, no bound tasks, and the same CPUs free to
//! the same tasks. For each class all maximal sets S of tasks that pass its test together are
//! listed. y(class, S) = 1 if a bin of the class gets the tasks of S, or a part of them. Each task
//! is in some chosen set, and no class gives more bins than it has. This is the set-covering form
//! of bin packing, with a tight relaxation (P. Gilmore, R. Gomory, Operations Research 9, 1961). A
//! test on one CPU that passes a set passes its parts. On clusters the chosen bins are tested
//! again.
//!
//! The tests prove a found partition exactly. The absence of a partition rests on the solver's
//! arithmetic (coefficients 0 and 1, tolerances about 10^-6). It is reported as the solver's
//! result. No verdict says "no" by it.

use microlp::{ComparisonOp, Error, OptimizationDirection, Problem, SolveOptions, Variable};
use takt_model::CpuSet;

use super::{OpenBin, PlaceError, Placer};
use crate::scope::affinity;

/// Tests of sets while they are listed.
const TESTS_MAX: usize = 400_000;
/// Sets listed.
const SETS_MAX: usize = 20_000;
/// Branch-and-bound nodes of one program.
const NODES_MAX: u64 = 20_000;
/// Above this number of tasks, no smaller set of conflicting tasks is sought.
const BLAME_TASKS_MAX: usize = 40;

/// Bins that are alike.
struct Class {
    bins: Vec<usize>,
    /// By task, the CPUs that it may use of the first bin.
    room: Vec<CpuSet>,
}

/// Tasks that pass together in a bin of a class.
struct Set {
    class: usize,
    tasks: Vec<usize>,
}

/// All maximal sets, as far as the limits reach.
struct Listing<'p, 'a> {
    placer: &'p mut Placer<'a>,
    bins: &'p [OpenBin],
    loose: &'p [usize],
    classes: Vec<Class>,
    sets: Vec<Set>,
    tests: usize,
}

enum CoverResult {
    /// Sets of the listing, a bin each.
    Cover(Vec<usize>),
    None,
    Unknown(String),
}

/// Fills the bins with the loose tasks so that all pass that have any.
pub(super) fn assign(placer: &mut Placer, bins: Vec<OpenBin>, loose: &[usize]) -> Result<Vec<OpenBin>, PlaceError> {
    let node = placer.spec.name.clone();
    let undecided = |why: String| PlaceError::Undecided { node: node.clone(), why };
    let classes = classes(placer, &bins, loose);
    let mut listing = Listing { placer, bins: &bins, loose, classes, sets: Vec::new(), tests: 0 };
    let whole = (0..listing.classes.len()).all(|class| listing.list(class));
    let all: Vec<usize> = (0..loose.len()).collect();
    let partial = || format!("more than {SETS_MAX} sets of tasks fit a CPU, or more than {TESTS_MAX} had to be tested");
    match listing.cover(&all) {
        CoverResult::Cover(chosen) => {
            let filled = listing.fill(&chosen);
            let passes = |bin: &OpenBin| bin.slots.is_empty() || listing.placer.fits(bin, None).is_ok();
            if filled.iter().zip(&bins).all(|(bin, before)| bin.slots == before.slots || passes(bin)) {
                return Ok(filled);
            }
            Err(undecided("a test fails on a part of a set that it passes".to_owned()))
        }
        CoverResult::None if !whole => Err(undecided(partial())),
        CoverResult::None => {
            let blamed = listing.blamed(all);
            let tasks = blamed.into_iter().map(|i| listing.placer.task(loose[i]).name.clone()).collect();
            Err(PlaceError::NoPartition { node, tasks, sets: listing.sets.len(), remedy: placer.remedy() })
        }
        CoverResult::Unknown(why) => Err(undecided(why)),
    }
}

fn classes(placer: &Placer, bins: &[OpenBin], loose: &[usize]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for (index, bin) in bins.iter().enumerate() {
        let room: Vec<CpuSet> =
            loose.iter().map(|slot| affinity(placer.task(*slot), placer.spec).intersection(&bin.cpus)).collect();
        let alike = classes.iter_mut().find(|class| {
            let first = &bins[class.bins[0]];
            let same = |(a, b): (&CpuSet, &CpuSet)| {
                a == b || (*a == first.cpus && *b == bin.cpus) || (a.is_empty() && b.is_empty())
            };
            first.slots.is_empty()
                && bin.slots.is_empty()
                && first.cpus.len() == bin.cpus.len()
                && class.room.iter().zip(&room).all(same)
        });
        match alike {
            Some(class) => class.bins.push(index),
            None => classes.push(Class { bins: vec![index], room }),
        }
    }
    classes
}

impl Listing<'_, '_> {
    /// Lists the maximal sets of a class; `false` where a limit ended it.
    fn list(&mut self, class: usize) -> bool {
        let bin = self.classes[class].bins[0];
        let mut candidates = Vec::new();
        for (task, slot) in self.loose.iter().enumerate() {
            let room = self.classes[class].room[task];
            if !room.is_empty() {
                self.placer.bind(*slot, Some(room));
                candidates.push(task);
            }
        }
        let mut filled = self.bins[bin].clone();
        // A bin that fails with its bound tasks alone takes nothing.
        candidates.retain(|task| self.placer.fits(&filled, Some(self.loose[*task])).is_ok());
        self.extend(class, &candidates, 0, &mut Vec::new(), &mut filled)
    }

    /// Adds tasks from `candidates[from..]` in every way that passes.
    fn extend(
        &mut self,
        class: usize,
        candidates: &[usize],
        from: usize,
        tasks: &mut Vec<usize>,
        filled: &mut OpenBin,
    ) -> bool {
        let mut fitting = Vec::new();
        for (at, task) in candidates.iter().enumerate().skip(from) {
            self.tests += 1;
            if self.placer.fits(filled, Some(self.loose[*task])).is_ok() {
                fitting.push(at);
            }
        }
        if self.tests > TESTS_MAX || self.sets.len() >= SETS_MAX {
            return false;
        }
        if fitting.is_empty() {
            // Maximal if none of those left out earlier fits either.
            let left_out = candidates[..from].iter().filter(|task| !tasks.contains(task));
            let maximal = left_out.clone().all(|task| self.placer.fits(filled, Some(self.loose[*task])).is_err());
            self.tests += left_out.count();
            if maximal && !tasks.is_empty() {
                self.sets.push(Set { class, tasks: tasks.clone() });
            }
            return true;
        }
        for at in fitting {
            tasks.push(candidates[at]);
            filled.slots.push(self.loose[candidates[at]]);
            let whole = self.extend(class, candidates, at + 1, tasks, filled);
            tasks.pop();
            filled.slots.pop();
            if !whole {
                return false;
            }
        }
        true
    }

    /// Sets that hold all these tasks, no more of a class than it has bins.
    fn cover(&self, tasks: &[usize]) -> CoverResult {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let chosen: Vec<Variable> = self.sets.iter().map(|_| problem.add_binary_var(0.0)).collect();
        let sum = |of: &dyn Fn(&Set) -> bool| -> Vec<(Variable, f64)> {
            self.sets.iter().zip(&chosen).filter(|(set, _)| of(set)).map(|(_, variable)| (*variable, 1.0)).collect()
        };
        for task in tasks {
            let holding = sum(&|set| set.tasks.contains(task));
            if holding.is_empty() {
                return CoverResult::None;
            }
            problem.add_constraint(holding, ComparisonOp::Ge, 1.0);
        }
        for (index, class) in self.classes.iter().enumerate() {
            let of_class = sum(&|set| set.class == index);
            if !of_class.is_empty() {
                problem.add_constraint(of_class, ComparisonOp::Le, class.bins.len() as f64);
            }
        }
        let mut options = SolveOptions::default();
        options.node_limit = Some(NODES_MAX);
        match problem.solve_with(options) {
            Ok(outcome) => match outcome.solution() {
                Some(solution) => {
                    CoverResult::Cover((0..chosen.len()).filter(|set| solution.var_value(chosen[*set]) > 0.5).collect())
                }
                None => CoverResult::Unknown(format!("{NODES_MAX} nodes of the integer program were searched")),
            },
            Err(Error::Infeasible) => CoverResult::None,
            Err(error) => CoverResult::Unknown(format!("the solver gave up: {error}")),
        }
    }

    /// Gives each chosen set a bin of its class and each task its first set's; writes the CPUs into the tasks.
    fn fill(&mut self, chosen: &[usize]) -> Vec<OpenBin> {
        let mut filled = self.bins.to_vec();
        let mut used = vec![0; self.classes.len()];
        let mut placed = vec![false; self.loose.len()];
        for set in chosen {
            let Set { class, tasks } = &self.sets[*set];
            let Some(bin) = self.classes[*class].bins.get(used[*class]).copied() else { continue };
            used[*class] += 1;
            for task in tasks {
                if !std::mem::replace(&mut placed[*task], true) {
                    let slot = self.loose[*task];
                    let room = self.classes[*class].room[*task];
                    let whole = room == self.bins[self.classes[*class].bins[0]].cpus;
                    self.placer.bind(slot, Some(if whole { self.bins[bin].cpus } else { room }));
                    filled[bin].slots.push(slot);
                }
            }
        }
        filled
    }

    /// A part of these tasks, which have no cover, that has none either.
    fn blamed(&self, mut tasks: Vec<usize>) -> Vec<usize> {
        let mut at = if tasks.len() > BLAME_TASKS_MAX { tasks.len() } else { 0 };
        while at < tasks.len() {
            let left = tasks.remove(at);
            if !matches!(self.cover(&tasks), CoverResult::None) {
                tasks.insert(at, left);
                at += 1;
            }
        }
        tasks
    }
}
