//! `rta-global`: response-time analysis of global EDF and global fixed priorities.
//!
//! M. Bertogna, M. Cirinei: Response-Time Analysis for Globally Scheduled Symmetric Multiprocessor
//! Platforms, RTSS 2007, Theorems 5 (work-conserving), 6 (EDF) and 7 (fixed priorities), with the
//! slack iteration of Section 5. The least fixed point of
//!
//! R_k = C_k + floor(sum over i != k of min(W_i(R_k), I_i, R_k - C_k + 1) / m)
//!
//! ```text
//! W_i(L) = N C_i + min(C_i, x - N T_i),   x = L + D_i - C_i - S_i,   N = floor(x / T_i)
//! I_i = floor(D_k / T_i) C_i + min(C_i, max(0, D_k mod T_i - S_i))
//! ```
//!
//! I_i, the work that is due within D_k, is for EDF only. Under fixed priorities the sum is over the
//! tasks on the level of k and on more important levels.
//!
//! S_i = D_i - R_i is fed back until nothing changes. `R` here counts from the release, J_k besides.
//!
//! At R_k = D_k the terms are at most those of [`bcl_iterative`], and slack grows with slack. So
//! every set that [`bcl_iterative`] accepts is accepted.
//!
//! **Steps.** With the works at the present R as constants, the least wait that they cannot fill on
//! m CPUs has a closed form. No solution lies below, for works grow with R. A step to this wait
//! avoids the iteration's crawl: rounds of 1 ns while R_k - C_k + 1 cuts off exactly m works. Works
//! that are known to grow by 1 a unit for a while extend the step: see `Works::more`.

//!
//! **Deadlines longer than the distance of arrivals**, under EDF (`analyse_long`). The paper has
//! D <= T. Here a job is asked to complete within X = min(D, T) of its arrival, so it never waits
//! for a job of its own task. D still orders jobs. So R_k <= X_k is sought, W_i takes X_i for D_i
//! (its slack is X_i - R_i), and I_i keeps D_k and S_i = D_i - R_i. Neither bound uses D <= T: W_i
//! needs responses up to T_i, and I_i counts deadlines, which are T_i apart.

use super::slack::{self, Collect, Works};
use super::{Bounds, Load, Rule, Slot, Sporadic, TIME_MAX, Terms, bcl_iterative, prepared};

/// Terms (one work each) evaluated by one analysis at most.
pub const TERMS_MAX: u64 = 20_000_000;

/// Whether every deadline is kept on `m` CPUs: stops as soon as that is certain.
///
/// Under EDF [`bcl_iterative`] runs first, since every set that it accepts is accepted. Then slack
/// is lowered from above in the same way.
pub fn schedulable(tasks: &[Sporadic], m: u32, rule: Rule) -> Load {
    if rule == Rule::Fp {
        return prepared(tasks, m, |slots| slack::raise(slots, true, &mut [], &mut Responses::new(m, rule)));
    }
    if bcl_iterative::schedulable(tasks, m, rule).is_met() {
        return Load::Met;
    }
    prepared(tasks, m, |slots| slack::decide(slots, &mut Responses::new(m, rule)))
}

/// The same verdict, with bounds of the response times: iterates until no slack grows.
#[must_use]
pub fn analyse(tasks: &[Sporadic], m: u32, rule: Rule) -> Bounds {
    analyse_within(tasks, m, rule, &mut Terms::new(TERMS_MAX))
}

/// The same from what is left of `terms`.
pub(crate) fn analyse_within(tasks: &[Sporadic], m: u32, rule: Rule, terms: &mut Terms) -> Bounds {
    let mut step = Responses { works: Works::new(m, *terms), ..Responses::new(m, rule) };
    let bounds = slack::analyse(tasks, m, rule, &mut step);
    *terms = step.works.terms;
    bounds
}

/// [`analyse`] under EDF, where deadlines may be longer than periods. It proves that each job
/// completes before the next of its task arrives.
#[must_use]
pub(crate) fn analyse_long(tasks: &[Sporadic], m: u32, terms: &mut Terms) -> Bounds {
    if let Some(task) = tasks.iter().position(|task| task.d > TIME_MAX) {
        return Bounds { load: Load::Unfit { task }, responses: vec![None; tasks.len()] };
    }
    let cut: Vec<Sporadic> = tasks.iter().map(|task| Sporadic { d: task.d.min(task.t), ..*task }).collect();
    let mut step = Long { tasks, works: Works::new(m, *terms), due: Vec::new() };
    let bounds = slack::analyse(&cut, m, Rule::Edf, &mut step);
    *terms = step.works.terms;
    bounds
}

/// Slots with D = min(D, T).
struct Long<'a> {
    tasks: &'a [Sporadic],
    works: Works,
    /// By task: its work due before the deadline of the task under test.
    due: Vec<u64>,
}

impl Collect for Long<'_> {
    fn works(&mut self) -> &mut Works {
        &mut self.works
    }

    fn begin(&mut self, slots: &[Slot], k: usize) {
        let window = self.tasks[k].d - self.tasks[k].j;
        let due = |(slot, task): (&Slot, &Sporadic)| {
            Slot { slack: task.d - slot.d + slot.slack, ..*slot }.workload_due(window)
        };
        self.due.clear();
        self.due.extend(slots.iter().zip(self.tasks).map(due));
        self.due[k] = 0;
    }

    fn collect(&mut self, slots: &[Slot], _k: usize, length: u64) {
        self.works.list.clear();
        self.works.ramps.clear();
        for (other, due) in slots.iter().zip(&self.due) {
            self.works.push(other.workload_and_ramp(length), *due);
        }
    }
}

struct Responses {
    rule: Rule,
    works: Works,
    /// Under EDF, by task: its work due within the window of the task under test.
    due: Vec<u64>,
}

impl Responses {
    fn new(m: u32, rule: Rule) -> Responses {
        Responses { rule, works: Works::new(m, Terms::new(TERMS_MAX)), due: Vec::new() }
    }
}

impl Collect for Responses {
    fn works(&mut self) -> &mut Works {
        &mut self.works
    }

    #[inline]
    fn begin(&mut self, slots: &[Slot], k: usize) {
        if self.rule == Rule::Edf {
            self.due.clear();
            self.due.extend(slots.iter().map(|other| other.workload_due(slots[k].window)));
            self.due[k] = 0;
        }
    }

    #[inline]
    fn collect(&mut self, slots: &[Slot], k: usize, length: u64) {
        let level = slots[k].level;
        self.works.list.clear();
        self.works.ramps.clear();
        if self.rule == Rule::Edf {
            // `due` of task k itself is 0.
            for (other, due) in slots.iter().zip(&self.due) {
                self.works.push(other.workload_and_ramp(length), *due);
            }
            return;
        }
        for (i, other) in slots.iter().enumerate() {
            if i != k && other.level <= level {
                self.works.push(other.workload_and_ramp(length), u64::MAX);
            }
        }
    }
}
