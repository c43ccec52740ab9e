//! Witnesses against a plan: overload of a CPU, a deadline below the WCET, and blocking by started
//! jobs.
//!
//! Every anomaly found here is real. Other faults may remain, and `takt check` finds them. Symbols:
//! C the wcet, T the period or least distance, D the relative deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use takt_model::system::gcd;
use takt_model::{Arrival, Criticality, Plan, Span, System, Task, TaskId};

use super::anomaly::Anomaly;
use super::graph::{predecessors, sorted, sources};
use super::plan::Limits;

/// A task and the CPU that it runs on.
pub(super) type Placed<'a> = (TaskId, &'a Task, u32);

/// Whether C exceeds D.
pub(super) fn above_deadline(placed: &[Placed]) -> Vec<Anomaly> {
    let wrong = placed.iter().filter(|(_, task, _)| task.wcet > task.deadline);
    let anomaly = |(_, task, _): &Placed| Anomaly::WcetAboveDeadline {
        operation: task.name.clone(),
        wcet: task.wcet,
        deadline: task.deadline,
    };
    wrong.map(anomaly).collect()
}

/// Whether the sum of C/T exceeds what a CPU may give, of critical operations and of all.
pub(super) fn utilization(placed: &[Placed], limits: &Limits) -> Vec<Anomaly> {
    let mut by_cpu: BTreeMap<u32, Vec<&Task>> = BTreeMap::new();
    for (_, task, cpu) in placed {
        by_cpu.entry(*cpu).or_default().push(task);
    }
    let mut anomalies = Vec::new();
    for (cpu, tasks) in by_cpu {
        let shares = |task: &&Task| (task.wcet.as_ns(), task.period.as_ns());
        let all = Share::sum(tasks.iter().map(shares));
        let of = |class| Share::sum(tasks.iter().filter(|task| task.criticality == class).map(shares));
        let (critical, noncritical) = (of(Criticality::High), of(Criticality::Low));
        let bound_ppm = limits.critical_utilization_ppm;
        if critical.exceeds_ppm(bound_ppm.into()) {
            anomalies.push(Anomaly::CriticalUtilization { cpu, used_ppm: critical.ppm_up(), bound_ppm });
        }
        let bound_ppm = limits.noncritical_utilization_ppm;
        if let Some(bound_ppm) = bound_ppm.filter(|bound| noncritical.exceeds_ppm((*bound).into())) {
            anomalies.push(Anomaly::NoncriticalUtilization { cpu, used_ppm: noncritical.ppm_up(), bound_ppm });
        }
        if let Some(bound_ppm) = limits.total_utilization_ppm.filter(|bound| all.exceeds_ppm((*bound).into())) {
            let (used_ppm, critical_ppm) = (all.ppm_up(), critical.ppm_up());
            anomalies.push(Anomaly::TotalUtilization { cpu, used_ppm, critical_ppm, bound_ppm });
        }
    }
    anomalies
}

/// A sum of C/T, exact for all periods.
struct Share {
    numerator: Natural,
    denominator: Natural,
}

impl Share {
    fn sum(shares: impl Iterator<Item = (u64, u64)>) -> Self {
        // Grouping numerators by denominator keeps the product of the denominators short.
        let mut by_period: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (c, t) in shares {
            by_period.entry(t.max(1)).or_default().push(c);
        }
        let (mut numerator, mut denominator) = (Natural::default(), Natural::from(1));
        for (t, all) in &by_period {
            numerator = numerator.times(*t);
            for c in all {
                numerator = numerator.plus(&denominator.times(*c));
            }
            denominator = denominator.times(*t);
        }
        Share { numerator, denominator }
    }

    fn exceeds_ppm(&self, ppm: u64) -> bool {
        self.numerator.times(1_000_000).exceeds(&self.denominator.times(ppm))
    }

    /// In millionths, rounded up.
    fn ppm_up(&self) -> u64 {
        let (mut least, mut most) = (0, u64::MAX);
        while least < most {
            let middle = least + (most - least) / 2;
            if self.exceeds_ppm(middle) { least = middle + 1 } else { most = middle }
        }
        least
    }
}

/// A natural number of any size: digits to the base 2^64, the least first, without zeros at the
/// end.
#[derive(Clone, Default)]
struct Natural(Vec<u64>);

impl Natural {
    fn from(value: u64) -> Self {
        Natural(if value == 0 { Vec::new() } else { vec![value] })
    }

    fn times(&self, by: u64) -> Self {
        let mut product = Vec::with_capacity(self.0.len() + 1);
        let mut carry = 0u128;
        for digit in &self.0 {
            carry += u128::from(*digit) * u128::from(by);
            product.push(carry as u64);
            carry >>= 64;
        }
        product.push(carry as u64);
        Natural(product).trimmed()
    }

    fn plus(&self, other: &Natural) -> Self {
        let mut sum = Vec::with_capacity(self.0.len().max(other.0.len()) + 1);
        let mut carry = 0u128;
        for at in 0..self.0.len().max(other.0.len()) {
            let digit = |of: &Natural| u128::from(of.0.get(at).copied().unwrap_or(0));
            carry += digit(self) + digit(other);
            sum.push(carry as u64);
            carry >>= 64;
        }
        sum.push(carry as u64);
        Natural(sum).trimmed()
    }

    fn exceeds(&self, other: &Natural) -> bool {
        let longer = self.0.len().cmp(&other.0.len());
        longer.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_gt()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }
}

/// Critical operations made late by a job of their level and CPU that has just started. Each comes
/// with the operation that blocks longest.
///
/// Let a job of k start x before the release of a job of i. No job of its level preempts it, so it
/// runs for at least C_k - x more. Then the job of i needs its C_i. If C_k - x + C_i > D_i, that
/// job is late. [`BlockingScenarios::lead`] is the least x that is certain to occur in some run.
pub(super) fn blocking(system: &System, placed: &[Placed], plan: &Plan, strategy: &str) -> Vec<Anomaly> {
    let levels: BTreeMap<TaskId, u32> = plan.tasks.iter().map(|task| (task.task, task.level)).collect();
    let completes = |level: &&u32| plan.levels.get(**level as usize).is_some_and(|level| !level.preemptive);
    let mut queues: BTreeMap<(u32, u32), Vec<Placed>> = BTreeMap::new();
    for one in placed {
        if let Some(level) = levels.get(&one.0).filter(completes) {
            queues.entry((*level, one.2)).or_default().push(*one);
        }
    }
    let meetings = BlockingScenarios::of(system, placed, &levels);
    let mut anomalies = Vec::new();
    for queue in queues.values_mut() {
        let here = queue.clone();
        queue.sort_by_key(|(_, task, _)| std::cmp::Reverse(task.wcet));
        for one in here.iter().filter(|(_, task, _)| task.criticality == Criticality::High) {
            anomalies.extend(meetings.longest(one, queue).map(|(by, blocking)| Anomaly::Blocking {
                operation: one.1.name.clone(),
                by: by.name.clone(),
                strategy: strategy.to_owned(),
                blocking,
                wcet: one.1.wcet,
                deadline: one.1.deadline,
            }));
        }
    }
    anomalies
}

/// For each task, the most jobs that can exist at once if all keep their deadlines: ceil((D + J) /
/// T). J is the most by which a release may come after its nominal time. For a source J is the
/// jitter. For a follower J is the longest J + D of its predecessors, because it is released by
/// their completion. A released job finds no more jobs than this, itself included. Each other job
/// was released less than D before.
pub(super) fn backlogs(system: &System, period: impl Fn(TaskId) -> Option<Span>) -> Vec<u32> {
    let before = predecessors(system);
    // The time from the source's nominal arrival by which a job is complete.
    let mut complete = vec![Span::ZERO; before.len()];
    let mut backlogs = vec![1; before.len()];
    for at in sorted(&before).order {
        let (Some(task), Some(sources)) = (system.tasks.get(at), before.get(at)) else { continue };
        let released = sources.iter().filter_map(|source| complete.get(*source)).max().copied();
        let end = released.unwrap_or(task.jitter).saturating_add(task.deadline);
        let least = match &task.arrival {
            Arrival::Pmf(pmf) => pmf.iter().map(|(span, _)| *span).min(),
            Arrival::Trace(trace) => trace.values.iter().min().copied(),
            Arrival::Periodic | Arrival::Sporadic => None,
        };
        let apart = least.or_else(|| period(TaskId(u32::try_from(at).ok()?))).unwrap_or(task.period);
        let there = end.as_ns().div_ceil(apart.as_ns().max(1)).max(1);
        if let (Some(slot), Some(kept)) = (backlogs.get_mut(at), complete.get_mut(at)) {
            (*slot, *kept) = (u32::try_from(there).unwrap_or(u32::MAX), end);
        }
    }
    backlogs
}

/// The direct and indirect predecessors of a task.
#[derive(Clone, Default)]
struct Predecessors {
    /// For each CPU, the level of the least important predecessor.
    least_important: BTreeMap<u32, u32>,
    /// An upper bound of their number.
    count: u64,
}

impl Predecessors {
    /// Adds a task with its CPU and level, and its predecessors. There are `most` tasks.
    fn add(&mut self, other: Option<&Predecessors>, place: Option<(u32, u32)>, most: u64) {
        let others =
            other.into_iter().flat_map(|other| other.least_important.iter().map(|(cpu, level)| (*cpu, *level)));
        for (cpu, level) in others.chain(place) {
            let least = self.least_important.entry(cpu).or_insert(level);
            *least = level.max(*least);
        }
        let count = other.map_or(0, |other| other.count).saturating_add(1);
        self.count = self.count.saturating_add(count).min(most);
    }
}

/// Which jobs can meet, and how.
struct BlockingScenarios<'a> {
    system: &'a System,
    /// For each task of the System, the sources of its chain.
    roots: Vec<Rc<BTreeSet<usize>>>,
    /// The number of tasks of the node.
    count: u64,
    /// The most predecessors of each task whose releases can fall into a running job of its level
    /// and CPU. Such a release needs all predecessors on other CPUs or at more important levels.
    /// `None` for a follower whose releases fall between two jobs of its level.
    interrupting: Vec<Option<u64>>,
}

impl<'a> BlockingScenarios<'a> {
    fn of(system: &'a System, placed: &[Placed], levels: &BTreeMap<TaskId, u32>) -> Self {
        let before = predecessors(system);
        let order = sorted(&before).order;
        let roots = sources(&before, &order);
        let places: BTreeMap<TaskId, (u32, u32)> =
            placed.iter().filter_map(|(id, _, cpu)| Some((*id, (*cpu, *levels.get(id)?)))).collect();
        let mut earlier: Vec<Predecessors> = vec![Predecessors::default(); before.len()];
        let mut interrupting = vec![None; before.len()];
        for at in order {
            let id = TaskId(u32::try_from(at).unwrap_or(u32::MAX));
            let Some(sources) = before.get(at) else { continue };
            let mut all = Predecessors::default();
            for source in sources {
                let place = places.get(&TaskId(u32::try_from(*source).unwrap_or(u32::MAX)));
                all.add(earlier.get(*source), place.copied(), before.len() as u64);
            }
            let waits = |(cpu, level): &(u32, u32)| all.least_important.get(cpu).is_some_and(|before| before >= level);
            if let (Some(slot), Some(place)) = (interrupting.get_mut(at), places.get(&id)) {
                *slot = (!waits(place)).then_some(all.count);
            }
            if let Some(kept) = earlier.get_mut(at) {
                *kept = all;
            }
        }
        BlockingScenarios { system, roots, count: placed.len() as u64, interrupting }
    }

    /// The task of a queue, sorted by C, that blocks a job longest and makes it late, and for how
    /// long.
    fn longest<'b>(&self, one: &Placed, queue: &[Placed<'b>]) -> Option<(&'b Task, Span)> {
        let (id, task, _) = one;
        let spare = task.deadline.checked_sub(task.wcet)?;
        // Predecessors execute for at least 1 ns each. Meanwhile the other job may continue.
        let before = Span::from_ns((*self.interrupting.get(id.index())?)?);
        let mut longest: Option<(&Task, Span)> = None;
        for (other, by, _) in queue.iter().take_while(|(_, by, _)| by.wcet > spare) {
            let lead = if other == id || self.may_be_cancelled(by) { None } else { self.lead(*id, *other) };
            let blocking = lead.map_or(Span::ZERO, |lead| by.wcet.saturating_sub(lead).saturating_sub(before));
            if blocking > spare && longest.is_none_or(|(_, most)| blocking > most) {
                longest = Some((by, blocking));
            }
        }
        longest
    }

    /// Whether a job may be cancelled although only jobs of negligible length run before it.
    fn may_be_cancelled(&self, task: &Task) -> bool {
        let spare = task.deadline.saturating_sub(task.wcet);
        self.system.may_cancel(task) && spare < Span::from_ns(self.count)
    }

    /// The time before a release of `one` at which a job of `by` is sure to start in some run, at
    /// least 1 ns. Other jobs then execute for a negligible time. `None` if this may never happen.
    ///
    /// A sporadic job arrives at any time. Timers have fixed distances, so their releases differ by
    /// the difference of their offsets, modulo the greatest common divisor g of their periods. A
    /// lead of 1 to g occurs again and again.
    fn lead(&self, one: TaskId, by: TaskId) -> Option<Span> {
        let (roots, by_roots) = (self.roots.get(one.index())?, self.roots.get(by.index())?);
        if !roots.is_disjoint(by_roots) {
            // With the same source, the distance is that of a period, or depends on the jobs
            // between.
            return None;
        }
        let tasks = || roots.iter().chain(by_roots.iter()).filter_map(|root| self.system.tasks.get(*root));
        let pushed = |roots: &BTreeSet<usize>| {
            let mut tasks = roots.iter().filter_map(|root| self.system.tasks.get(*root));
            tasks.any(|task| task.arrival == Arrival::Sporadic)
        };
        if pushed(roots) {
            return Some(Span::from_ns(1));
        }
        if pushed(by_roots) {
            // Timers may release others just before, for 1 ns each. The lead must cover those.
            return Some(Span::from_ns(self.count));
        }
        if tasks().any(|task| task.arrival != Arrival::Periodic) {
            return None;
        }
        // A job that waits for several predecessors arrives with the last of them.
        let offset = |roots: &BTreeSet<usize>| {
            roots.iter().filter_map(|root| self.system.tasks.get(*root)).map(|task| task.offset.as_ns()).max()
        };
        let period = |of: TaskId| self.system.tasks.get(of.index()).map(|task| task.period.as_ns());
        let g = gcd(period(one)?, period(by)?).max(1);
        let (offset, by_offset) = (offset(roots)? % g, offset(by_roots)? % g);
        let apart = (offset + (g - by_offset)) % g;
        let lead = if apart == 0 { g } else { apart };
        // Other jobs released with it, 1 ns each, must not push it behind the release.
        (lead > self.count).then_some(Span::from_ns(lead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_shares_is_exact_whatever_the_periods() {
        let sum = |shares: &[(u64, u64)]| Share::sum(shares.iter().copied());
        let thirds = [(1, 3), (1, 3), (1, 3)];
        assert!(!sum(&thirds).exceeds_ppm(1_000_000));
        assert!(sum(&[(1, 3), (1, 3), (1, 3), (1, u64::MAX)]).exceeds_ppm(1_000_000));
        assert!(!sum(&[]).exceeds_ppm(0) && sum(&[(1, u64::MAX)]).exceeds_ppm(0));
        // Periods without common divisors, with a product far beyond 128 bits: just below a quarter
        // of each, and just above.
        let primes: [u64; 4] = [18_446_744_073_709_551_557, 18_446_744_073_709_551_533, 4_294_967_291, 1_000_003];
        assert!(!sum(&primes.map(|p| (p / 4, p))).exceeds_ppm(1_000_000));
        assert!(sum(&primes.map(|p| (p / 4 + 1, p))).exceeds_ppm(1_000_000));
        assert_eq!(
            [sum(&thirds), sum(&[(1, 2)]), sum(&[]), sum(&[(1, 3)])].map(|sum| sum.ppm_up()),
            [1_000_000, 500_000, 0, 333_334]
        );
    }
}
