//! Proofs of several CPUs that every task may use.
//!
//! **`global`.** Claim: each job of i completes within R_i <= D_i of its arrival, before the next
//! arrives. Look at a job of k, released at 0, with C_k to do, and at the first L = R_k - J_k. If
//! it is not done by L, it waited for at least y = L - C_k + 1 whole ns. In each of these m other
//! jobs ran that are at least as important. Jobs of one task run one at a time, so task i adds at
//! most min(W_i, y), and the sum is at least m y. So a smaller sum proves the claim. Most execution
//! of jobs of i in [0, L):
//! - `any`: the first completes R_i after its arrival at the latest and has started at 0. The
//!   others run when they arrive. With x = L + R_i - C_i, floor(x / T) C + min(C, x mod T);
//! - `due` (EDF): jobs due by D_k - J_k. Deadlines lie at its end and each T before, and the first
//!   of these jobs runs up to R_i after its arrival. With D = D_k - J_k, floor(D / T) C + min(C,
//!   max(0, D mod T - (D_i - R_i))).
//!
//! **Limited** (fixed priorities): start the window at the last instant with fewer than m pending
//! more important tasks before. Fewer than m tasks bring work in, and the job itself waits no less.
//! A task that executed in the ns before brings in at most C - 1 (Guan, Stigge, Yi, Yu 2009):
//! `carried`. The others count with `fresh`. Tasks of one level count with `any`.

//!
//! **`bak`** (T. P. Baker, TPDS 16(8), 2005), m >= 2, with L = D_k - J_k and lambda = C_k / L.
//! Condition: sum of min(L, C (L + T - D) / T + lambda J + max(0, C - lambda T)) <= m L - (m - 1)
//! C_k. During a job of k that misses, the CPUs did more than m (1 - lambda) + lambda in each unit.
//! Take the widest such window before its deadline. A job carried into the window had at least
//! lambda in each unit since its release.
//!
//! **`bar`** (S. Baruah, RTSS 2007; in whole ns, so with one more to wait). Let a job of k miss, x
//! after the last instant with an idle CPU before. For y = x - C_k + 1 whole ns m other jobs ran,
//! due no later. They are jobs released since (`fresh`), and running jobs of fewer than m tasks
//! from before (at most `packed`). So the sum of `fresh` within y, plus the m - 1 largest
//! differences, is at least m y; x >= L. The check at x shows that the sum is less. The sum grows
//! with x. So it is less for all x' with sum < m (x' - C_k + 1), and the next x to check is the
//! largest below these. Beyond the horizon the sum is at most sum U (x + T + J - D) + the m - 1
//! largest C, which is less at the horizon, and grows by U <= m.
//!
//! **`ff-dbf`** (S. Baruah, V. Bonifaci, A. Marchetti-Spaccamela, S. Stiller, RTS 46, 2010), m >=
//! 2, sigma >= max C / L: go back from a miss to the release of the job. Go on from release to
//! release, each of a job that is due no later and had less than sigma of each unit. In all this
//! time the CPUs did more than m - (m - 1) sigma of each unit. Jobs pending before had sigma of
//! each unit. So for some whole t the jobs due within t exceed (m - (m - 1) sigma) t. A job due r <
//! L after the begin of t counts (L - r) sigma less. The sum is at most sum U (t + T - L); this
//! decides beyond the horizon.

use super::one_cpu::window;
use super::{Claim, Part, Responding, TaskId, Work, fits, sum_up};

/// C with the switches and migrations of a job before its deadline: one for each release of a more
/// important job. Ticks are on one grid; interrupts are not, so on several CPUs each
/// resumption may meet one more.
fn inflated_wcet(part: &Part, task: &Work, edf: bool) -> Result<u128, String> {
    let Some(costs) = part.costs else { return Ok(task.c.into()) };
    let mut preemptions = 0u128;
    if part.tasks.len() > part.m as usize {
        for other in part.tasks.iter().filter(|other| other.id != task.id) {
            let length = u128::from(task.d) + u128::from(other.release_delay) + u128::from(other.j);
            let t = u128::from(other.t);
            preemptions += match edf {
                true => length.checked_sub(other.d.into()).map_or(0, |room| room / t + 1),
                false if other.level < task.level => length.div_ceil(t),
                false => 0,
            };
        }
    }
    let (switch, migrate) = (u128::from(costs.switch.as_ns()), u128::from(costs.migrate.as_ns()));
    let another = u128::from(if part.m > 1 { costs.interrupt.as_ns() } else { 0 });
    let ticks = part.tick()?.map_or(0, |(c, t)| (u128::from(task.d) / t + 1) * c);
    let once = u128::from(task.c) + u128::from(costs.release.as_ns()) + switch + ticks;
    fits(preemptions.checked_mul(switch + migrate + another).and_then(|more| more.checked_add(once)))
}

/// Points times tasks that are looked at, of all parts.
const TERMS_MAX: usize = 20_000_000;

fn unblocked(part: &Part) -> Claim {
    match part.tasks.iter().find(|task| task.b > 0) {
        Some(task) => Err(format!("{}: \"{}\" can be blocked", part.scope, task.name)),
        None => Ok(()),
    }
}

/// sum delta + (m - 1) max delta <= m, delta = C / min(D - j, T - wander - j) (Goossens, Funk, Baruah 2003).
pub(super) fn gfb(part: &Part) -> Claim {
    part.edf()?;
    unblocked(part)?;
    let mut shares = Vec::with_capacity(part.tasks.len());
    for task in &part.tasks {
        let window = window(task).ok_or_else(|| format!("\"{}\" wanders too far", task.name))?;
        shares.push(sum_up(std::iter::once((inflated_wcet(part, task, true)?, window)))?);
    }
    let largest = shares.iter().max().copied().unwrap_or(0);
    let m = u128::from(part.m);
    if shares.len() <= part.m as usize && largest <= 1 << 64 {
        return Ok(());
    }
    let sum = shares.into_iter().try_fold(0u128, u128::checked_add);
    let sum = fits(largest.checked_mul(m - 1).and_then(|more| sum?.checked_add(more)))?;
    if sum > m << 64 {
        return Err(format!("{}: the densities exceed m - (m - 1) times the largest", part.scope));
    }
    Ok(())
}

/// A task and what is claimed of it.
struct Slot {
    c: u128,
    t: u128,
    d: u128,
    j: u128,
    level: u32,
    /// R.
    r: u128,
}

impl Slot {
    fn packed(&self, length: u128) -> u128 {
        length / self.t * self.c + self.c.min(length % self.t)
    }

    fn any(&self, length: u128) -> u128 {
        self.packed(length + self.r - self.c)
    }

    fn due(&self, length: u128) -> u128 {
        length / self.t * self.c + self.c.min((length % self.t).saturating_sub(self.d - self.r))
    }

    fn fresh(&self, length: u128) -> u128 {
        self.packed(length + self.j)
    }

    fn carried(&self, length: u128) -> u128 {
        let rest = self.c - 1;
        let next = self.t - self.r + rest;
        (rest + self.packed(length.saturating_sub(next))).max(self.fresh(length))
    }
}

/// The tasks, with a claim of each; none where every one has a CPU of its own.
fn slots(part: &Part, edf: bool, claim: impl Fn(&str) -> Result<u64, String>) -> Result<Vec<Slot>, String> {
    unblocked(part)?;
    let mut slots = Vec::with_capacity(part.tasks.len());
    for task in &part.tasks {
        let (name, r) = (&task.name, claim(&task.name)?);
        // Its jobs never wait for each other.
        let t = task.t.checked_sub(task.release_delay).filter(|t| r <= *t);
        let t = t.ok_or_else(|| format!("\"{name}\" may arrive again within the {r} ns of its response"))?;
        let c = inflated_wcet(part, task, edf)?;
        // Also: C >= 1, and its own execution fits.
        if r > task.d || c == 0 || c + u128::from(task.j) > u128::from(r) {
            return Err(format!("\"{name}\" cannot respond within {r} ns"));
        }
        let (t, d, j, r) = (t.max(1).into(), task.d.into(), task.j.into(), r.into());
        slots.push(Slot { c, t, d, j, level: task.level, r });
    }
    if slots.len() <= part.m as usize {
        slots.clear();
    }
    Ok(slots)
}

/// Tasks under EDF on several CPUs.
fn by_deadline(part: &Part) -> Result<(Vec<Slot>, u128), String> {
    part.edf()?;
    if part.m < 2 {
        return Err(format!("{}: this proof is for several CPUs", part.scope));
    }
    Ok((slots(part, true, |name| part.find(name).map(|task| task.d))?, part.m.into()))
}

fn largest(mut values: Vec<u128>, count: u128) -> u128 {
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.iter().take(count as usize).sum()
}

/// sum U (x + early) in whole ns, rounded up, if sum U is at most `rate` / 2^32.
fn load(slots: &[Slot], x: u64, rate: u128, early: impl Fn(&Slot) -> u128) -> Option<u128> {
    let (mut sum, mut work) = (0u128, 0u128);
    for slot in slots {
        let share = slot.c.checked_mul(1 << 64)?.div_ceil(slot.t);
        sum = sum.checked_add(share)?;
        work = work.checked_add((share.checked_mul(u128::from(x) + early(slot))? >> 64) + 1)?;
    }
    Some(work).filter(|_| sum <= rate << 32)
}

fn too_much(part: &Part, x: u128) -> String {
    format!("{}: too much may be due within {x} ns", part.scope)
}

pub(super) fn bak(part: &Part) -> Claim {
    let (slots, m) = by_deadline(part)?;
    for task in &slots {
        let (l, c) = (task.d - task.j, task.c);
        // In 2^-16 ns, each part rounded up.
        let term = |slot: &Slot| {
            let level = slot.c.checked_mul((l + slot.t - slot.d) << 16)?.div_ceil(slot.t);
            let carried = slot.c.checked_mul(l)?.saturating_sub(c.checked_mul(slot.t)?).checked_add(c * slot.j)?;
            Some(level.checked_add(carried.checked_mul(1 << 16)?.div_ceil(l))?.min(l << 16))
        };
        let sum = fits(slots.iter().map(term).sum::<Option<u128>>())?;
        if sum > (m * l - (m - 1) * c) << 16 {
            return Err(too_much(part, l));
        }
    }
    Ok(())
}

pub(super) fn bar(part: &Part, horizon: u64) -> Claim {
    let (slots, m) = by_deadline(part)?;
    let mut terms = TERMS_MAX / part.replays.max(1);
    let brought = largest(slots.iter().map(|slot| slot.c).collect(), m - 1);
    let far = fits(load(&slots, horizon, m << 32, |slot| slot.t + slot.j - slot.d))? + brought;
    for task in &slots {
        let (l, c) = (task.d - task.j, task.c);
        let mut x = u128::from(horizon);
        if x < c || far >= m * (x - c + 1) {
            return Err(format!("{}: the load tells nothing from {x} ns on", part.scope));
        }
        while x >= l {
            terms = terms.checked_sub(slots.len()).ok_or("more points than are looked at")?;
            let (mut sum, mut more) = (0, Vec::with_capacity(slots.len()));
            for slot in &slots {
                let (own, cut) = if std::ptr::eq(slot, task) { (c, x - l) } else { (0, x - c + 1) };
                let all = slot.packed(x);
                let new = (x + slot.j).checked_sub(slot.d).map_or(0, |room| (room / slot.t + 1) * slot.c).min(all);
                let (all, new) = (all.saturating_sub(own).min(cut), new.saturating_sub(own).min(cut));
                sum += new;
                more.push(all - new);
            }
            sum += largest(more, m - 1);
            if sum >= m * (x - c + 1) {
                return Err(too_much(part, x));
            }
            x = sum / m + c - 1;
        }
    }
    Ok(())
}

pub(super) fn forced(part: &Part, sigma: u64, horizon: u64) -> Claim {
    let (slots, m) = by_deadline(part)?;
    let (mut terms, sigma) = (TERMS_MAX / part.replays.max(1), u128::from(sigma));
    // In 2^-32, as sigma.
    let rate = (m << 32).checked_sub((m - 1) * sigma).filter(|rate| *rate > 0).ok_or("sigma is too large")?;
    let mut t = u128::from(horizon);
    let far = fits(load(&slots, horizon, rate, |slot| slot.t + slot.j - slot.d))?;
    if slots.iter().any(|slot| slot.c << 32 > sigma * (slot.d - slot.j)) || far > (rate * t) >> 32 {
        return Err(format!("{}: the load tells nothing from {t} ns on", part.scope));
    }
    while t > 0 {
        terms = terms.checked_sub(slots.len()).ok_or("more points than are looked at")?;
        let due = |slot: &Slot| {
            let ahead = (slot.d - slot.j).saturating_sub(t % slot.t);
            t / slot.t * slot.c + slot.c.saturating_sub((ahead * sigma) >> 32)
        };
        let sum = slots.iter().map(due).sum::<u128>();
        if sum << 32 > rate * t {
            return Err(too_much(part, t));
        }
        t = (sum << 32).div_ceil(rate).saturating_sub(1);
    }
    Ok(())
}

/// Gives the latest completions after the sources' arrivals.
pub(super) fn responses(part: &Part, limited: bool, claims: &[Responding]) -> Result<Vec<(TaskId, u128)>, String> {
    let edf = part.edf().is_ok();
    if !edf {
        part.fixed()?;
    }
    if limited && edf && !part.tasks.is_empty() {
        return Err(format!("{}: carry-in is limited under fixed priorities alone", part.scope));
    }
    let claimed = |name: &str| {
        let claim = claims.iter().find(|claim| claim.task == name);
        claim.map(|claim| claim.response_ns).ok_or_else(|| format!("{}: nothing is shown of \"{name}\"", part.scope))
    };
    let slots = slots(part, edf, claimed)?;
    for (k, task) in slots.iter().enumerate() {
        let (window, length) = (task.d - task.j, task.r - task.j);
        let wait = length - task.c + 1;
        let (mut sum, mut more) = (0u128, Vec::new());
        for (_, other) in slots.iter().enumerate().filter(|(i, other)| *i != k && (edf || other.level <= task.level)) {
            let work = match (edf, limited && other.level < task.level) {
                (true, _) => other.any(length).min(other.due(window)),
                (false, false) => other.any(length),
                (false, true) => {
                    let fresh = other.fresh(length).min(wait);
                    more.push(other.carried(length).min(wait) - fresh);
                    fresh
                }
            };
            sum += work.min(wait);
        }
        sum += largest(more, u128::from(part.m) - 1);
        if sum >= u128::from(part.m) * wait {
            let name = &part.tasks[k].name;
            return Err(format!("\"{name}\": others may execute {sum} ns, which can make it wait for {wait} ns"));
        }
    }
    let end = |task: &Work| Ok((task.id, u128::from(task.release_delay) + u128::from(claimed(&task.name)?)));
    part.tasks.iter().map(end).collect()
}
