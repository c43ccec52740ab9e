//! Proofs of one CPU.
//!
//! **`responses`, `levels`.** Task i competes with the tasks k in hep(i), in any order within its
//! level. A busy window starts when the first of their jobs arrives after an idle instant (of this
//! importance). The releases of k within w are at most ceil((w + J_k) / T_k), with J_k = j +
//! wander.
//!
//! - Let w >= (q + 1) C_i + B + sum ceil((w + J_k) / T_k) C_k + ticks for job q of i. Then all of
//!   this is done by w, and so is job q. (In a component the sum may not exceed the server's supply
//!   in w.)
//! - The source of job q arrived no earlier than q T_i - J_i, and job q itself no earlier than
//!   max(q T_i - wander - j, -j).
//! - If w <= (q + 1) T_i - J_i, no work of i is left when the next job can arrive. Then all jobs
//!   have been covered.
//! - If nothing preempts the last F of a job, others count within w - (F - 1) only. *Proof*: a job
//!   not done by w has not started this section by w - F. So until w - F + 1 the CPU had to do B,
//!   earlier releases, and less than (q + 1) C - F + 1 of its own. This is less than w - F + 1: a
//!   contradiction. For a job that takes less than C, the same holds with its own time. The end of
//!   the busy window is then checked with F = 1.
//!
//! **`demand`.** EDF on one CPU keeps all deadlines if and only if the jobs released and due in
//! each interval fit. Let d = D - j, and s = wander + j for a chain's successor and 0 otherwise.
//! For an interval of length t: h(t) = sum over d_i <= t of (floor((t - d_i + s_i) / T_i) + 1)
//! C_i + max { B_i : d_i <= t } + (floor(t / P) + 1) tick.
//! - h does not fall, so h(p) <= p shows h(t) <= t for all t in [h(p), p]. Only deadlines matter:
//!   between them h grows by ticks only, and these delay no job before the next deadline.
//! - If a length H holds max B, sum ceil((H + s_i) / T_i) C_i and ceil(H / P) ticks, points up to H
//!   suffice. Of the jobs counted in h(H + t), at most these were released before H. The rest is
//!   counted in h(t). So h(H + t) <= H - max B + h(t) - B(t) + B(H + t) <= H + t if h(t) <= t. By
//!   induction this holds for all t.

use super::keys::releases;
use super::{Claim, Keys, Part, Windows, Work, fits, free, sum_up};
use takt_model::TaskId;

/// prod (U + 1) <= 2, tasks in the order of rates with deadlines not below their periods (Bini,
/// Buttazzo, Buttazzo 2003).
pub(super) fn hyperbolic(part: &Part) -> Claim {
    part.fixed()?;
    let mut pairs: Vec<(u32, u128, u128)> = Vec::with_capacity(part.tasks.len() + 1);
    for task in &part.tasks {
        if task.d < task.t || task.j > 0 || task.b > 0 || task.chained {
            return Err(format!(
                "{}: \"{}\" has a short deadline, jitter, blocking or a predecessor",
                part.scope, task.name
            ));
        }
        pairs.push((task.level + 1, task.t.into(), part.charged(task)));
    }
    pairs.extend(part.tick()?.map(|(c, t)| (0, t, c)));
    pairs.sort_unstable();
    if pairs.windows(2).any(|pair| pair[0].1 > pair[1].1 || (pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1)) {
        return Err(format!("{}: priorities are not in the order of rates", part.scope));
    }
    const ONE: u128 = 1 << 62;
    let mut product = ONE;
    for (_, t, c) in pairs {
        if c > t {
            return Err(format!("{}: a task needs more than its period", part.scope));
        }
        product = (product * (ONE + (c << 62).div_ceil(t))).div_ceil(ONE);
        if product > 2 * ONE {
            return Err(format!("{}: the product of all U + 1 exceeds 2", part.scope));
        }
    }
    Ok(())
}

/// sum C / min(D - j, T - wander - j) <= 1.
pub(super) fn density(part: &Part) -> Claim {
    part.edf()?;
    if part.overheads().next().is_some() || part.tasks.iter().any(|task| task.b > 0) {
        return Err(format!("{}: has ticks or blocking", part.scope));
    }
    let mut pairs = Vec::with_capacity(part.tasks.len());
    for task in &part.tasks {
        pairs.push((part.charged(task), window(task).ok_or_else(|| format!("\"{}\" wanders too far", task.name))?));
    }
    if sum_up(pairs.into_iter())? > 1 << 64 {
        return Err(format!("{}: the densities exceed 1", part.scope));
    }
    Ok(())
}

/// The shortest time from a release to the deadline or to the next release.
pub(super) fn window(task: &Work) -> Option<u64> {
    let (d, t) = (task.d.checked_sub(task.j)?, task.t.checked_sub(task.release_delay)?.checked_sub(task.j)?);
    Some(d.min(t)).filter(|window| *window > 0)
}

/// A task as its demand counts.
struct DemandTask {
    c: u128,
    t: u128,
    d: u128,
    s: u128,
    b: u128,
}

impl DemandTask {
    /// C of all its jobs that are released and due within t.
    fn demand(&self, t: u128) -> Option<u128> {
        if t < self.d { Some(0) } else { ((t - self.d + self.s) / self.t + 1).checked_mul(self.c) }
    }

    /// Its last deadline up to x.
    fn last(&self, x: u128) -> Option<u128> {
        let steps = (x.checked_sub(self.d)? + self.s) / self.t;
        Some((self.d + steps * self.t).saturating_sub(self.s).max(self.d))
    }
}

pub(super) fn demand(part: &Part, horizon: u64, points: &[u64]) -> Claim {
    part.edf()?;
    let mut tasks = Vec::with_capacity(part.tasks.len());
    for task in &part.tasks {
        let d = task.d.checked_sub(task.j).filter(|d| *d > 0);
        let d = d.ok_or_else(|| format!("{}: the jitter of \"{}\" reaches its deadline", part.scope, task.name))?;
        let s = if task.chained { u128::from(task.release_delay) + u128::from(task.j) } else { 0 };
        tasks.push(DemandTask { c: part.charged(task), t: task.t.into(), d: d.into(), s, b: task.b.into() });
    }
    // A window of no length holds no release: it shows nothing.
    if horizon == 0 {
        return Err(format!("{}: a horizon of 0 ns", part.scope));
    }
    let horizon = u128::from(horizon);
    let mut work = tasks.iter().map(|task| task.b).max().unwrap_or(0);
    for task in &tasks {
        work = fits((horizon + task.s).div_ceil(task.t).checked_mul(task.c).and_then(|more| work.checked_add(more)))?;
    }
    for (c, t, late) in part.overheads() {
        work = fits(releases(horizon, late, t, c).and_then(|more| work.checked_add(more)))?;
    }
    if work > horizon {
        return Err(format!("{}: jobs released within {horizon} ns are not all done by then", part.scope));
    }
    let h = |t: u128| {
        let mut sum = tasks.iter().filter(|task| task.d <= t).map(|task| task.b).max().unwrap_or(0);
        for task in &tasks {
            sum = fits(task.demand(t).and_then(|more| sum.checked_add(more)))?;
        }
        for (c, period, late) in part.overheads() {
            sum = fits(((t + late) / period + 1).checked_mul(c).and_then(|more| sum.checked_add(more)))?;
        }
        Ok::<_, String>(sum)
    };
    // All deadlines above `open` are covered.
    let mut open = horizon;
    let last = |x: u128| tasks.iter().filter_map(|task| task.last(x)).max();
    for &point in points {
        let point = u128::from(point);
        if point > open || last(open).is_some_and(|deadline| deadline > point) {
            return Err(format!("{}: a deadline above {point} ns is not covered", part.scope));
        }
        let due = h(point)?;
        if due > point {
            return Err(format!("{}: {due} ns are due within {point} ns", part.scope));
        }
        open = match due.checked_sub(1) {
            Some(below) => below.min(point.saturating_sub(1)),
            None => return Ok(()),
        };
    }
    last(open).map_or(Ok(()), |deadline| Err(format!("{}: the deadline at {deadline} ns is not covered", part.scope)))
}

/// Checks windows and groups of keys; gives the latest completions after the sources' arrivals.
pub(super) fn responses(part: &Part, claims: &[Windows], groups: &[Keys]) -> Result<Vec<(TaskId, u128)>, String> {
    let mut ends = Vec::with_capacity(part.tasks.len());
    for claim in claims {
        let task = part.find(&claim.task)?;
        ends.push((task.id, windows(part, task, &claim.windows_ns)?));
    }
    for group in groups {
        super::keys::check(part, group)?;
        for task in &group.tasks {
            let task = part.find(task)?;
            ends.push((task.id, u128::from(task.release_delay) + u128::from(task.d)));
        }
    }
    ends.sort_unstable();
    ends.dedup_by_key(|(id, _)| *id);
    match part.tasks.iter().find(|task| ends.binary_search_by_key(&task.id, |(id, _)| *id).is_err()) {
        Some(task) => Err(format!("{}: nothing is shown of \"{}\"", part.scope, task.name)),
        None => Ok(ends),
    }
}

/// Work within w of jobs up to q of the task, and of all tasks at least as important. `last`:
/// length of the job's last section without preemption; 1 if it has none.
pub(crate) fn work(part: &Part, task: &Work, q: u128, w: u128, last: u64) -> Option<u128> {
    let same = part.tasks.iter().filter(|other| other.level == task.level);
    let blocking: u128 = same.map(|other| other.b.into()).max().unwrap_or(0);
    let own = (q + 1).checked_mul(part.charged(task))?;
    let mut sum = part.overhead_before_level(task.level, w)?.checked_add(own)?.checked_add(blocking)?;
    let before = w.saturating_sub(u128::from(last) - 1);
    for other in part.tasks.iter().filter(|other| other.id != task.id && other.level <= task.level) {
        sum = sum.checked_add(releases(before, other.spread(), other.t.into(), part.charged(other))?)?;
    }
    Some(sum)
}

impl Part {
    /// For how long nothing preempts the end of a job: in CPU time, so 1 where there is any that is not its own.
    pub(crate) fn last(&self, task: &Work) -> u64 {
        let last = task.sections.last().filter(|_| self.costs.as_ref().is_none_or(free));
        last.map_or(1, |(from, to)| (to - from).clamp(1, task.c.max(1)))
    }
}

fn windows(part: &Part, task: &Work, windows: &[u64]) -> Result<u128, String> {
    let (t, j, spread) = (u128::from(task.t), u128::from(task.j), task.spread());
    let done = |q, w, last| {
        let work = fits(work(part, task, q, w, last))?;
        if work <= part.given(w) {
            Ok(())
        } else {
            Err(format!("\"{}\": {work} ns of work in a window of {w} ns", task.name))
        }
    };
    let last = part.last(task);
    // After a section that nothing preempts others may be left: then the end of the busy window is one more entry.
    let (each, close) = match windows {
        [each @ .., close] if last > 1 && !each.is_empty() => (each, *close),
        [.., close] if last == 1 => (windows, *close),
        _ => return Err(format!("\"{}\": the busy window does not close", task.name)),
    };
    let mut end = 0;
    for (q, w) in (0u128..).zip(each.iter().map(|w| u128::from(*w))) {
        done(q, w, last)?;
        let response = w + j - (q * t).saturating_sub(task.release_delay.into()).min(w + j);
        if response > task.d.into() {
            return Err(format!("\"{}\": job {} may take {response} ns", task.name, q + 1));
        }
        end = end.max((w + spread).saturating_sub(q * t));
    }
    let count = each.len() as u128;
    done(count - 1, close.into(), 1)?;
    if u128::from(close) + spread > count * t {
        return Err(format!("\"{}\": the busy window does not close", task.name));
    }
    Ok(end)
}
