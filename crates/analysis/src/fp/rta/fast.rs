//! The verdict alone: no bounds, no allocation, as fast as it gets.

use super::{Analysis, FpTask};
use crate::recip::{Recip, mul_high};
use crate::verdict::Answer;

/// Tasks that fit the buffer on the stack; larger sets take the general way.
const TASKS_MAX: usize = 64;
/// The longest time of the fast way: with C <= T <= 2^40 and 64 tasks no sum here exceeds 2^47.
const TIME_MAX: u64 = 1 << 40;

/// Whether tasks on distinct levels, **the most important first**, meet their deadlines (levels are not read).
///
/// Exact for D <= T, J = 0, B = 0: yes or no; a no of the general case (any J, B, D) is "unknown".
/// Each task first faces E. Bini and S. Baruah's upper bound of its response time (Efficient
/// computation of response time bounds under fixed-priority scheduling, RTNS 2007, Eq. 5), and only
/// if that fails the fixed point; the answer is the same as [`exact_only`]'s.
pub fn schedulable(tasks: &[FpTask]) -> Answer {
    decide::<true>(tasks)
}

/// [`schedulable`] by fixed points alone.
pub fn exact_only(tasks: &[FpTask]) -> Answer {
    decide::<false>(tasks)
}

#[inline]
fn decide<const BOUND: bool>(tasks: &[FpTask]) -> Answer {
    let plain = |task: &FpTask| {
        task.d <= task.t && task.t <= TIME_MAX && task.c <= task.t && task.c > 0 && (task.j | task.b) == 0
    };
    if tasks.len() > TASKS_MAX || !tasks.iter().all(plain) {
        return general(tasks);
    }
    let mut periods = [Recip::default(); TASKS_MAX];
    // Over the tasks before i: sum C, sum U rounded up and down in 2^-64, sum C (1 - U) rounded up.
    let (mut sum_c, mut u_up, mut u_down, mut slack) = (0u64, 0u128, 0u128, 0u64);
    // The last fixed point; w_i >= w_(i-1) + C_i.
    let mut before = 0u64;
    for (i, task) in tasks.iter().enumerate() {
        let period = Recip::new(task.t);
        periods[i] = period;
        sum_c += task.c;
        if sum_c > task.d {
            return Answer::No;
        }
        // R_i <= (C_i + sum C_j (1 - U_j)) / (1 - sum U_j), in the form that needs no division.
        let left = u64::try_from((1u128 << 64).saturating_sub(u_up)).unwrap_or(u64::MAX);
        let bounded = BOUND && task.c + slack <= mul_high(task.d, left);
        if bounded {
            before += task.c;
        } else {
            // w >= C_i / (1 - sum U_j), rounded down, is a start below the fixed point.
            let room = u64::try_from(((1u128 << 64).saturating_sub(u_down)) >> 42).unwrap_or(0) + 1;
            let start = (task.c << 22) / room;
            let mut w = (before + task.c).max(sum_c).max(start);
            loop {
                if w > task.d {
                    return Answer::No;
                }
                let mut next = task.c;
                for (other, period) in tasks[..i].iter().zip(&periods[..i]) {
                    // w >= 1, so ceil(w / T) = floor((w - 1) / T) + 1.
                    next = next.wrapping_add((period.div(w - 1).wrapping_add(1)).wrapping_mul(other.c));
                }
                if next <= w {
                    break;
                }
                w = next;
            }
            before = w;
        }
        let down = u128::from(task.c) * u128::from(period.inverse);
        u_down += down;
        let up = down + 2 * u128::from(task.c);
        u_up += up;
        slack += task.c - mul_high(task.c, u64::try_from(down).unwrap_or(u64::MAX)).min(task.c);
    }
    Answer::Yes
}

/// Any jitter, blocking, deadline, size and length.
#[cold]
fn general(tasks: &[FpTask]) -> Answer {
    let mut analysis = Analysis::default();
    let mut ordered = tasks.to_vec();
    for (level, task) in ordered.iter_mut().enumerate() {
        task.level = level as u32;
        if task.t == 0 {
            return Answer::Unknown;
        }
    }
    for (i, task) in ordered.iter().enumerate() {
        match analysis.response(&ordered, i) {
            Some(response) if response.from_arrival <= task.d => {}
            Some(_) if ordered[..=i].iter().all(|task| (task.j | task.b) == 0) => return Answer::No,
            _ => return Answer::Unknown,
        }
    }
    Answer::Yes
}
