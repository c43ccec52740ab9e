//! EDF for few tasks, with all that slack does not change at hand.
//!
//! With w = window_k - C_k + 1, a = floor(window_k / T_i) C_i and r = window_k mod T_i, of each work
//!
//! min(W_i, w) = min(a, w) + min(C_i, w - min(a, w), max(0, r - S_i))
//!
//! for W_i = a + min(C_i, max(0, r - S_i)): if a >= w both are w. So a row of the table holds the
//! sum of the first terms, and the r and the caps of the second. Each entry takes the same few
//! operations, in 32 bits if the times allow. This suits vector units.

use super::super::{Excess, Limit, Load, Sporadic};
use super::ROUNDS_MAX;
use crate::recip::{Recip, mul_high};

/// Tasks that a table takes.
const TASKS_MAX: usize = 16;

/// A number of at most half of its range.
trait Word: Copy + Default + Ord {
    /// The longest period.
    const MAX: u64;
    /// The word of a value up to [`Word::MAX`].
    fn of(value: u64) -> Self;
    fn wide(self) -> u64;
    /// As of [`Recip`], with fewer bits: the same proof holds for a dividend below half of the range.
    fn inverse(self) -> Self;
    /// (floor(self / divisor), self mod divisor).
    fn parts(self, divisor: Self, inverse: Self) -> (Self, Self);
    /// The product, if it does not overflow.
    fn times(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn plus(self, other: Self) -> Self;
    /// max(0, self - other).
    fn above(self, other: Self) -> Self;
}

/// Signed, for vector units compare such.
impl Word for i32 {
    const MAX: u64 = (1 << 31) - 1;

    #[inline]
    fn of(value: u64) -> i32 {
        value as i32
    }

    #[inline]
    fn wide(self) -> u64 {
        u64::from(self as u32)
    }

    #[inline]
    fn inverse(self) -> i32 {
        (u32::MAX / self as u32) as i32
    }

    #[inline]
    fn parts(self, divisor: i32, inverse: i32) -> (i32, i32) {
        let estimate = ((self.wide() * inverse.wide()) >> 32) as i32;
        let rest = self.wrapping_sub(estimate.wrapping_mul(divisor));
        if rest >= divisor { (estimate.wrapping_add(1), rest.wrapping_sub(divisor)) } else { (estimate, rest) }
    }

    #[inline]
    fn times(self, other: i32) -> i32 {
        self.wrapping_mul(other)
    }

    #[inline]
    fn minus(self, other: i32) -> i32 {
        self.wrapping_sub(other)
    }

    #[inline]
    fn plus(self, other: i32) -> i32 {
        self.wrapping_add(other)
    }

    #[inline]
    fn above(self, other: i32) -> i32 {
        self.wrapping_sub(other).max(0)
    }
}

impl Word for u64 {
    /// No sum reaches 2^60.
    const MAX: u64 = 1 << 55;

    #[inline]
    fn of(value: u64) -> u64 {
        value
    }

    #[inline]
    fn wide(self) -> u64 {
        self
    }

    #[inline]
    fn inverse(self) -> u64 {
        u64::MAX / self
    }

    #[inline]
    fn parts(self, divisor: u64, inverse: u64) -> (u64, u64) {
        let estimate = mul_high(self, inverse);
        let rest = self.wrapping_sub(estimate.wrapping_mul(divisor));
        if rest >= divisor { (estimate.wrapping_add(1), rest.wrapping_sub(divisor)) } else { (estimate, rest) }
    }

    #[inline]
    fn times(self, other: u64) -> u64 {
        self.wrapping_mul(other)
    }

    #[inline]
    fn minus(self, other: u64) -> u64 {
        self.wrapping_sub(other)
    }

    #[inline]
    fn plus(self, other: u64) -> u64 {
        self.wrapping_add(other)
    }

    #[inline]
    fn above(self, other: u64) -> u64 {
        self.saturating_sub(other)
    }
}

/// The verdict, where the set is one for a table.
#[inline]
pub(super) fn edf(tasks: &[Sporadic], m: u32) -> Option<Load> {
    let (mut longest, mut sum, mut plain) = (0, 0u64, true);
    if m == 0 || tasks.len() <= m as usize || tasks.len() > TASKS_MAX {
        return None;
    }
    for task in tasks {
        longest = longest.max(task.t);
        sum = sum.saturating_add(task.c);
        // C <= D - J, and so all others.
        plain &= task.c > 0 && task.d <= task.t && task.c <= task.d.saturating_sub(task.j);
    }
    // The second terms of a row add up to no more than all C_i.
    let short = longest <= <i32 as Word>::MAX && sum <= u32::MAX.into();
    Some(match tasks.len() {
        _ if !plain || longest > <u64 as Word>::MAX => return None,
        0..=8 if short => decide::<i32, 8>(tasks, m),
        9..=12 if short => decide::<i32, 12>(tasks, m),
        _ if short => decide::<i32, TASKS_MAX>(tasks, m),
        0..=8 => decide::<u64, 8>(tasks, m),
        _ => decide::<u64, TASKS_MAX>(tasks, m),
    })
}

/// By task; none beyond the last.
struct Table<W, const N: usize> {
    m: u64,
    by_m: Recip,
    c: [W; N],
    t: [W; N],
    inverse: [W; N],
    rows: [Row<W, N>; N],
}

/// Work of the other tasks in the window of one task.
#[derive(Clone, Copy)]
struct Row<W, const N: usize> {
    wait: u64,
    /// m times the wait.
    room: u64,
    /// The sum of the first terms.
    whole: u64,
    rest: [W; N],
    cap: [W; N],
}

impl<W: Word, const N: usize> Table<W, N> {
    #[inline]
    fn new(tasks: &[Sporadic], m: u32) -> Self {
        let row = Row { wait: 0, room: 0, whole: 0, rest: [W::default(); N], cap: [W::default(); N] };
        // Beyond the last task C = 0, which adds nothing whatever the rest is.
        let (none, one) = ([W::default(); N], [W::of(1); N]);
        let mut table =
            Table { m: m.into(), by_m: Recip::new(m.into()), c: none, t: one, inverse: one, rows: [row; N] };
        for (i, task) in tasks.iter().enumerate() {
            table.c[i] = W::of(task.c);
            table.t[i] = W::of(task.t);
            table.inverse[i] = table.t[i].inverse();
        }
        table
    }

    #[inline]
    fn fill(&mut self, k: usize, task: &Sporadic) {
        let window = task.d - task.j;
        let (wait, length) = (window - task.c + 1, W::of(window));
        let most = W::of(wait);
        let (mut whole, mut rest, mut cap) = ([W::default(); N], [W::default(); N], [W::default(); N]);
        for i in 0..N {
            let (count, left) = length.parts(self.t[i], self.inverse[i]);
            whole[i] = count.times(self.c[i]).min(most);
            rest[i] = left;
            cap[i] = self.c[i].min(most.minus(whole[i]));
        }
        (whole[k], cap[k]) = (W::default(), W::default());
        let whole = whole.iter().fold(0u64, |sum, whole| sum.wrapping_add(whole.wide()));
        self.rows[k] = Row { wait, room: wait * self.m, whole, rest, cap };
    }

    /// The slack of task k, or the work that keeps it waiting.
    #[inline]
    fn slack(&self, k: usize, slack: &[W; N]) -> Result<W, u64> {
        let row = &self.rows[k];
        let mut second = W::default();
        for ((rest, cap), slack) in row.rest.iter().zip(&row.cap).zip(slack) {
            second = second.plus(rest.above(*slack).min(*cap));
        }
        let sum = row.whole.wrapping_add(second.wide());
        if sum < row.room { Ok(W::of(row.wait - 1 - self.by_m.div(sum))) } else { Err(sum) }
    }
}

fn decide<W: Word, const N: usize>(tasks: &[Sporadic], m: u32) -> Load {
    let n = tasks.len().min(N);
    let mut table = Table::<W, N>::new(tasks, m);
    let (mut most, mut slack) = ([W::default(); N], [W::default(); N]);
    for (most, task) in most.iter_mut().zip(tasks) {
        *most = W::of(task.d - task.c);
    }
    // Those with the longest windows, which mostly come last, are found out first.
    for k in (0..n).rev() {
        table.fill(k, &tasks[k]);
        match table.slack(k, &most) {
            Ok(found) => most[k] = most[k].min(found),
            Err(work) => return exceeded(&tasks[k], k, m, work),
        }
    }
    let mut proven = [false; N];
    let mut left = n;
    for _ in 0..ROUNDS_MAX {
        for k in (0..n).rev() {
            match table.slack(k, &most) {
                Ok(found) => most[k] = most[k].min(found),
                Err(work) => return exceeded(&tasks[k], k, m, work),
            }
        }
        // Those not yet proven come first, for their slack is all that is new.
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
            return exceeded(&tasks[over.0], over.0, m, over.1);
        }
    }
    Load::Undecided(Limit::Rounds(ROUNDS_MAX))
}

#[cold]
fn exceeded(task: &Sporadic, k: usize, m: u32, work: u64) -> Load {
    let window = task.d - task.j;
    let room = u128::from(window - task.c + 1) * u128::from(m);
    Load::Exceeded(Excess { task: Some(k), window, work: work.into(), room })
}
