//! Proofs of several CPUs that every task may use.
//!
//! **`global`.** Claim: each job of i completes within R_i <= D_i of its arrival. Look at a job of k, released at 0, with C_k to do, and at the first L = R_k - J_k. If it is
//! not done by L, it was kept waiting for at least y = L - C_k + 1 whole ns, in each of which m others ran that are as important; one at a time of each task, so each gives at
//! most min(W_i, y), and the sum is at least m y. So a smaller sum proves the claim. The most that jobs of i execute in [0, L):
//! - `any`: the first completes R_i after its arrival at the latest and has started at 0, the others run when they arrive: with x = L + R_i - C_i,
//!   floor(x / T) C + min(C, x mod T);
//! - `due` (EDF): those due by D_k - J_k; deadlines at its end and each T before, the first of these jobs runs up to R_i after its arrival: with D = D_k - J_k,
//!   floor(D / T) C + min(C, max(0, D mod T - (D_i - R_i))).
//!
//! **Limited** (fixed priorities): start the window at the last instant before which fewer than m more important tasks had work; fewer than m bring work in, and the job itself waits no less.
//! What i brings is at most C - 1 if it executed in the ns before (Guan, Stigge, Yi, Yu 2009): `carried`; else `fresh`. Tasks of one level count with `any`.

use super::one_cpu::window;
use super::{Claim, Part, Responding, Work, fits, sum_up};

/// C with all switches and migrations that can hit a job before its deadline: one for each release of a job that goes first. Ticks are on one grid; interrupts
/// are not, so on several CPUs each resumption may meet one more.
fn suffered(part: &Part, task: &Work, edf: bool) -> Result<u128, String> {
    let Some(costs) = part.costs else { return Ok(task.c.into()) };
    let mut preemptions = 0u128;
    if part.tasks.len() > part.m as usize {
        for other in part.tasks.iter().filter(|other| other.id != task.id) {
            let length = u128::from(task.d) + u128::from(other.wander) + u128::from(other.j);
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
        shares.push(sum_up(std::iter::once((suffered(part, task, true)?, window)))?);
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

pub(super) fn responses(part: &Part, limited: bool, claims: &[Responding]) -> Claim {
    let edf = part.edf().is_ok();
    if !edf {
        part.fixed()?;
    }
    if limited && edf && !part.tasks.is_empty() {
        return Err(format!("{}: carry-in is limited under fixed priorities alone", part.scope));
    }
    unblocked(part)?;
    let mut slots = Vec::with_capacity(part.tasks.len());
    for task in &part.tasks {
        let name = &task.name;
        let claim = claims.iter().find(|claim| claim.task == *name);
        let r = claim.ok_or_else(|| format!("{}: nothing is shown of \"{name}\"", part.scope))?.response_ns;
        let t = task.t.checked_sub(task.wander).filter(|t| task.d <= *t);
        let t = t.ok_or_else(|| format!("\"{name}\" may arrive again before its deadline"))?;
        let c = suffered(part, task, edf)?;
        // Also: C >= 1, and its own execution fits.
        if r > task.d || c == 0 || c + u128::from(task.j) > u128::from(r) {
            return Err(format!("\"{name}\" cannot respond within {r} ns"));
        }
        let (t, d, j, r) = (t.max(1).into(), task.d.into(), task.j.into(), r.into());
        slots.push(Slot { c, t, d, j, level: task.level, r });
    }
    if slots.len() <= part.m as usize {
        return Ok(());
    }
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
        more.sort_unstable_by(|a, b| b.cmp(a));
        sum += more.iter().take(part.m as usize - 1).sum::<u128>();
        if sum >= u128::from(part.m) * wait {
            let name = &part.tasks[k].name;
            return Err(format!("\"{name}\": others may execute {sum} ns, which can make it wait for {wait} ns"));
        }
    }
    Ok(())
}
