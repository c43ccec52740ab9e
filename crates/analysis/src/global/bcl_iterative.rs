//! `bcl-iterative`: [`bcl`](super::bcl) with slack fed back.
//!
//! M. Bertogna, M. Cirinei, G. Lipari: Schedulability Analysis of Global Scheduling Algorithms on Multiprocessor Platforms,
//! TPDS 20(4), 2009, Theorems 6 and 9, algorithm of Figure 5. A task that surely completes S_i before its deadline
//! carries less work into the windows of others:
//!
//! S_k = D_k - C_k - floor(sum over i != k of min(W_i(S_i), D_k - C_k + 1) / m)
//!
//! EDF: W_i = floor(D_k / T_i) C_i + min(C_i, max(0, D_k mod T_i - S_i)). FP: as in `bcl` with D_i - S_i for D_i.
//! From S = 0, until all S_k >= 0 were found or nothing grows. The first round is `bcl` (floor(x / m) <= w - 1 where and
//! only where x < m w), so all that `bcl` accepts is accepted.
//!
//! [`schedulable`] first goes the other way, from S_i = D_i - C_i down: slack that grows from 0 never passes what is found
//! there, for more slack of others never gives less of one's own. A task that fails even so is never proven.

use super::slack::{self, Found, Step};
use super::{Bounds, Excess, Load, Rule, Slot, Sporadic, interference, prepared};
use crate::recip::Recip;

pub use super::slack::ROUNDS_MAX;

/// Whether every deadline is kept on `m` CPUs: stops as soon as that is certain. Does not allocate for up to 32 tasks.
#[inline]
pub fn schedulable(tasks: &[Sporadic], m: u32, rule: Rule) -> Load {
    prepared(tasks, m, |slots| match rule {
        // As little to fill as the tasks need.
        Rule::Edf if slots.len() <= TABLE_MAX && slots.iter().all(|slot| slot.t() <= SMALL_MAX) => match slots.len() {
            ..=6 => edf::<6>(slots, m),
            ..=10 => edf::<10>(slots, m),
            _ => edf::<TABLE_MAX>(slots, m),
        },
        _ => slack::raise(slots, true, &mut [], &mut Windows::new(m, rule)),
    })
}

/// The same verdict, with bounds of the response times: iterates until no slack grows.
#[must_use]
pub fn analyse(tasks: &[Sporadic], m: u32, rule: Rule) -> Bounds {
    slack::analyse(tasks, m, rule, Windows::new(m, rule))
}

/// Terms (one work each) that one analysis may evaluate before it gives up.
pub const TERMS_MAX: u64 = 200_000_000;

struct Windows {
    m: u32,
    rule: Rule,
    terms_left: u64,
}

impl Windows {
    fn new(m: u32, rule: Rule) -> Windows {
        Windows { m, rule, terms_left: TERMS_MAX }
    }
}

impl Step for Windows {
    #[inline]
    fn slack(&mut self, slots: &[Slot], k: usize) -> Found {
        let Some(left) = self.terms_left.checked_sub(slots.len() as u64) else { return Found::Limit };
        self.terms_left = left;
        let (work, room) = interference(slots, k, self.m, self.rule);
        if work >= room {
            return Found::Over;
        }
        // Below the wait: it fits.
        let waits = match u64::try_from(work) {
            Ok(work) => work / u64::from(self.m),
            Err(_) => u64::try_from(work / u128::from(self.m)).unwrap_or(u64::MAX),
        };
        Found::Slack((slots[k].window - slots[k].c).saturating_sub(waits))
    }

    fn excess(&mut self, slots: &[Slot], k: usize) -> Excess {
        let (work, room) = interference(slots, k, self.m, self.rule);
        Excess { task: Some(k), window: slots[k].window, work, room }
    }
}

/// Tasks of the fast way, and their longest period: no sum reaches 2^60.
const TABLE_MAX: usize = 16;
const SMALL_MAX: u64 = 1 << 55;

/// Rounds of slack from above: nearly all that fail are found out in these, where slack from 0 takes far more.
const LOWERED: u32 = 4;

/// EDF with the parts of W_i that slack does not change at hand.
struct Table<const N: usize> {
    m: Recip,
    n: usize,
    /// Per k: its wait, window - C + 1.
    wait: [u64; N],
    /// Per k and i: the parts of W_i.
    rows: [[Part; N]; N],
}

/// What task i does in a window of task k.
#[derive(Clone, Copy, Default)]
struct Part {
    /// floor(window / T_i) C_i.
    whole: u64,
    /// window mod T_i.
    rest: u64,
    /// C_i.
    c: u64,
}

impl<const N: usize> Table<N> {
    /// The slack of task k, or the work that keeps it waiting.
    #[inline]
    fn slack(&self, k: usize, slack: &[u64; N]) -> Result<u64, u64> {
        let (row, wait) = (&self.rows[k], self.wait[k]);
        let mut sum = 0u64;
        for (part, slack) in row[..self.n].iter().zip(slack) {
            let work = part.whole.wrapping_add(part.c.min(part.rest.saturating_sub(*slack)));
            sum = sum.wrapping_add(work.min(wait));
        }
        let waits = self.m.div(sum);
        if waits < wait { Ok(wait - 1 - waits) } else { Err(sum) }
    }
}

fn edf<const N: usize>(slots: &[Slot], m: u32) -> Load {
    let n = slots.len();
    let mut table = Table { m: Recip::new(m.into()), n, wait: [0; N], rows: [[Part::default(); N]; N] };
    let exceeded = |k: usize, work: u64| {
        let slot: &Slot = &slots[k];
        let room = u128::from(slot.window - slot.c + 1) * u128::from(m);
        Load::Exceeded(Excess { task: Some(k), window: slot.window, work: work.into(), room })
    };
    let (mut most, mut slack) = ([0; N], [0; N]);
    for (most, slot) in most.iter_mut().zip(slots) {
        *most = slot.d - slot.c;
    }
    for (k, task) in slots.iter().enumerate() {
        table.wait[k] = task.window - task.c + 1;
        for (i, (part, slot)) in table.rows[k].iter_mut().zip(slots).enumerate() {
            if i != k {
                let q = slot.period.div(task.window);
                let rest = task.window.wrapping_sub(q.wrapping_mul(slot.t()));
                *part = Part { whole: q.wrapping_mul(slot.c), rest, c: slot.c };
            }
        }
        match table.slack(k, &most) {
            Ok(found) => most[k] = most[k].min(found),
            Err(work) => return exceeded(k, work),
        }
    }
    for _ in 1..LOWERED {
        for k in 0..n {
            match table.slack(k, &most) {
                Ok(found) => most[k] = most[k].min(found),
                Err(work) => return exceeded(k, work),
            }
        }
    }
    // Those not yet proven come first, for their slack is all that is new.
    let mut proven = [false; N];
    let mut left = n;
    for _ in 0..ROUNDS_MAX {
        let (mut grew, mut over) = (false, (0, 0));
        for again in [false, true] {
            // With nothing newly proven, more slack of the others may help.
            if again && grew {
                break;
            }
            for k in 0..n {
                if proven[k] != again {
                    continue;
                }
                match table.slack(k, &slack) {
                    Ok(found) => {
                        left -= usize::from(!proven[k]);
                        if left == 0 {
                            return Load::Met;
                        }
                        grew |= !proven[k] || found > slack[k];
                        proven[k] = true;
                        slack[k] = slack[k].max(found);
                    }
                    Err(work) => over = (k, work),
                }
            }
        }
        if !grew {
            return exceeded(over.0, over.1);
        }
    }
    Load::Undecided
}
