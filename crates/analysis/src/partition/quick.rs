//! Sums that decide a bin of one CPU without a test. Most tasks find their place by them.
//!
//! | order | a bin passes if its load is at most 1 and, for each task i, | source |
//! |---|---|---|
//! | EDF | sum over D_j <= D_i of C_j + (D_i - D_j) U_j <= D_i | S. Baruah, N. Fisher: The Partitioned Multiprocessor Scheduling of Sporadic Task Systems, RTSS 2005 (DBF*) |
//! | fixed priorities, D <= T | C_i + sum over j != i of its level and those above of ceil(D_i / T_j) C_j <= D_i | J. Lehoczky, L. Sha, Y. Ding: The Rate Monotonic Scheduling Algorithm: Exact Characterization and Average Case Behavior, RTSS 1989, Theorem 1 |
//!
//! Both sums bound the work that is due up to D_i. Between deadlines the first grows by the load, which is at most 1.

use takt_model::plan::Order;

use super::{OpenBin, Placer, load};
use crate::exact::{ONE, sum_rounded_up};
use crate::scope::free_of_costs;
use crate::verdict::Answer;

/// By which sums a bin is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Edf,
    /// Fixed priorities.
    Fp,
    /// The load alone.
    Load,
}

/// A task; times in ns.
#[derive(Clone, Copy)]
struct Row {
    level: u32,
    c: u64,
    t: u64,
    /// 0 if the sum does not hold for it.
    d: u64,
    /// U in 2^-32, rounded up.
    share: u64,
    /// The left side of its condition.
    work: u64,
}

impl Row {
    fn term(&self, other: &Row, rule: Rule) -> u64 {
        if rule == Rule::Fp {
            return if other.level <= self.level { self.d.div_ceil(other.t).saturating_mul(other.c) } else { 0 };
        }
        let Some(rest) = self.d.checked_sub(other.d) else { return 0 };
        let grown = (u128::from(rest) * u128::from(other.share)).div_ceil(1 << 32);
        u64::try_from(grown).map_or(u64::MAX, |grown| grown.saturating_add(other.c))
    }
}

/// The sums of all bins.
pub(super) struct Quick {
    rule: Rule,
    /// By bin: the load, each task's in 2^-64 and rounded up.
    loads: Vec<u128>,
    /// By bin: its tasks.
    rows: Vec<Vec<Row>>,
}

impl Quick {
    pub(super) fn new(placer: &Placer, bins: &[OpenBin]) -> Quick {
        let (levels, tasks) = (&placer.plan.levels, &placer.plan.tasks);
        let plain = tasks.iter().all(|planned| {
            let task = &placer.system.tasks[planned.task.index()];
            let jitter = placer.system.release_jitter(planned.task);
            task.after.is_empty() && jitter.is_zero() && task.blocking.is_zero() && task.sections().is_empty()
        });
        let shift = tasks.first().map(|planned| planned.shift_ns);
        let shifted = tasks.iter().any(|planned| Some(planned.shift_ns) != shift);
        let rule = match levels.as_slice() {
            _ if !plain || !free_of_costs(placer.spec.costs) => Rule::Load,
            [only] if only.order == Order::Deadline && only.preemptive && !shifted => Rule::Edf,
            levels if levels.iter().all(|level| level.order == Order::Fifo) => Rule::Fp,
            _ => Rule::Load,
        };
        let mut quick = Quick { rule, loads: vec![0; bins.len()], rows: vec![Vec::new(); bins.len()] };
        for (i, bin) in bins.iter().enumerate() {
            bin.slots.iter().for_each(|slot| quick.add(placer, i, *slot));
        }
        quick
    }

    /// Whether bin `number` surely passes its test with one more task, or surely fails.
    pub(super) fn decide(&self, placer: &Placer, bin: &OpenBin, number: usize, slot: usize) -> Answer {
        if bin.cpus.len() != 1 {
            return Answer::Unknown;
        }
        let load = self.loads[number].saturating_add(share(placer, slot));
        // Each of the sum's terms was rounded up by less than one.
        if load > ONE + bin.slots.len() as u128 + 1 {
            return Answer::No;
        }
        let passes = self.rule != Rule::Load && load <= ONE && self.in_time(number, row(placer, slot, self.rule));
        if passes { Answer::Yes } else { Answer::Unknown }
    }

    pub(super) fn add(&mut self, placer: &Placer, bin: usize, slot: usize) {
        self.loads[bin] = self.loads[bin].saturating_add(share(placer, slot));
        if self.rule == Rule::Load {
            return;
        }
        let mut new = row(placer, slot, self.rule);
        for row in &mut self.rows[bin] {
            row.work = row.work.saturating_add(row.term(&new, self.rule));
            new.work = new.work.saturating_add(new.term(row, self.rule));
        }
        self.rows[bin].push(new);
    }

    /// Whether the conditions of all tasks hold with one more.
    fn in_time(&self, bin: usize, new: Row) -> bool {
        let mut work = new.work;
        for row in &self.rows[bin] {
            work = work.saturating_add(new.term(row, self.rule));
            if work > new.d || row.work.saturating_add(row.term(&new, self.rule)) > row.d {
                return false;
            }
        }
        work <= new.d
    }
}

/// C / T, rounded up.
fn share(placer: &Placer, slot: usize) -> u128 {
    sum_rounded_up(std::iter::once(load(placer.task(slot)))).unwrap_or(u128::MAX)
}

fn row(placer: &Placer, slot: usize, rule: Rule) -> Row {
    let task = placer.task(slot);
    let ((c, t), d) = (load(task), task.deadline.as_ns());
    let share = (u128::from(c) << 32).div_ceil(t.max(1).into());
    let covered = c <= d && t > 0 && share <= 1 << 32 && (d <= t || rule == Rule::Edf);
    let (level, d) = (placer.plan.tasks[slot].level, if covered { d } else { 0 });
    Row { level, c, t: t.max(1), d, share: u64::try_from(share).unwrap_or(u64::MAX), work: c }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use takt_model::generate::Random;
    use takt_model::{Arrival, Builtin, Placement, Span};

    fn system(count: u64, cpus: u32, strategy: Builtin, fit: Fit, least: u64) -> System {
        let mut random = Random::new(7);
        let tasks = (0..count).map(|i| {
            let period = random.between(10_000_000, 1_000_000_000);
            let wcet = (period / count * u64::from(cpus) / 10 * random.between(5, 9)).max(1);
            let deadline = Span::from_ns(wcet + (period - wcet) / 100 * random.between(least, 100));
            let task = Task::periodic(&format!("t{i}"), Span::from_ns(period), Span::from_ns(wcet));
            Task { deadline, arrival: Arrival::Sporadic, ..task }
        });
        let mut system = System::local(cpus, strategy, tasks.collect());
        system.nodes[0].placement = Placement::Partitioned;
        system.nodes[0].fit = fit;
        system
    }

    /// The bins, and how many terms it took to find them.
    fn placed(system: &System, terms: u64) -> Result<(Vec<Bin>, u64), PlaceError> {
        place_within(&mut system.clone(), NodeId(0), false, terms, &mut |_| {}).map(|(bins, left)| (bins, terms - left))
    }

    #[test]
    fn many_tasks_find_their_places_by_sums() {
        for (strategy, fit, least) in
            [(Builtin::Edf, Fit::WorstFit, 100), (Builtin::Edf, Fit::FirstFit, 100), (Builtin::Dm, Fit::WorstFit, 90)]
        {
            let system = system(4_000, 64, strategy, fit, least);
            let (bins, terms) = placed(&system, TERMS_MAX).expect("all fit");
            // Without the sums every step tests a bin: 4,000 times half of 62 tasks and more, at 32
            // terms each and more.
            assert!(terms < 400_000, "{strategy:?}, {fit:?}: {terms}");
            assert!(bins.iter().all(|bin| bin.unproven.is_none()), "{strategy:?}, {fit:?}: {bins:#?}");
        }
    }

    #[test]
    fn a_search_ends_at_the_work_limit() {
        let mut system = system(400, 8, Builtin::Edf, Fit::WorstFit, 50);
        // Sums say nothing of jitter.
        system.tasks[0].jitter = Span::from_ns(1);
        assert!(placed(&system, TERMS_MAX).is_ok_and(|(_, terms)| terms > 20_000), "needs the test");
        let error = placed(&system, 10_000).expect_err("the limit").to_string();
        assert!(
            error.contains("undecided") && error.contains("work limit") && error.contains("of 400 tasks"),
            "{error}"
        );
        assert!(
            place_within(&mut system.clone(), NodeId(0), true, 10_000, &mut |_| {}).is_ok(),
            "takt sim starts all the same"
        );
    }

    #[test]
    fn sums_say_what_the_tests_say() {
        let mut random = Random::new(3);
        let mut said = [0; 3];
        for number in 0..300 {
            let strategy = [Builtin::Edf, Builtin::Dm, Builtin::Rm][number % 3];
            let mut system = system(random.between(6, 30), 2, strategy, Fit::WorstFit, 40);
            for task in &mut system.tasks {
                task.wcet =
                    Span::from_ns((task.wcet.as_ns() * random.between(1, 3) / 2).clamp(1, task.deadline.as_ns()));
            }
            let spec = system.nodes[0].clone();
            let plan = Plan::resolve(&system, NodeId(0), &system.strategy(spec.strategy)).expect("a plan");
            let carried = ChainBounds::by_deadlines(&system);
            let mut system = system.clone();
            let cpus: CpuSet = [0].into_iter().collect();
            system.tasks.iter_mut().for_each(|task| task.cpus = Some(cpus));
            let terms_left = Cell::new(TERMS_MAX);
            let placer = Placer {
                system: &mut system,
                spec: &spec,
                plan: &plan,
                carried: &carried,
                terms_left,
                watch: &mut |_| {},
            };
            let mut bin = OpenBin { cpus, slots: Vec::new() };
            for slot in 0..plan.tasks.len() {
                let told = Quick::new(&placer, std::slice::from_ref(&bin)).decide(&placer, &bin, 0, slot);
                let fits = placer.fits(&bin, Some(slot)).is_ok();
                assert!(
                    told == Answer::Unknown || (told == Answer::Yes) == fits,
                    "set {number}, {strategy:?}: {told:?}"
                );
                said[told as usize] += 1;
                if fits {
                    bin.slots.push(slot);
                }
            }
        }
        assert!(said.iter().all(|count| *count > 100), "{said:?}");
    }
}
