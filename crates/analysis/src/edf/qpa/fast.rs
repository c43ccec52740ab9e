//! The verdict alone: no allocation, as fast as it gets.

use super::{EdfTask, analyse};
use crate::recip::{Recip, mul_high};
use crate::verdict::Answer;

/// Tasks that fit the buffer on the stack; larger sets take the general way.
const TASKS_MAX: usize = 64;
/// The longest time of the fast way; with C <= T and h(t) <= t + sum C no sum exceeds 2^61.
const TIME_MAX: u64 = 1 << 40;
/// The longest horizon of the fast way.
const HORIZON_MAX: u64 = 1 << 60;
/// Evaluations of h(t) before the general way takes over.
const ROUNDS_MAX: u32 = 10_000;

/// Whether EDF on one CPU keeps all deadlines of these sporadic tasks. The answer is that of
/// [`analyse`]. If there is burst or blocking, "unknown" replaces a no, since the no is no proof.
pub fn schedulable(tasks: &[EdfTask]) -> Answer {
    match decide(tasks) {
        Answer::Unknown => general(tasks),
        decided => decided,
    }
}

#[cold]
fn general(tasks: &[EdfTask]) -> Answer {
    if tasks.iter().any(|task| task.t == 0) {
        return Answer::Unknown;
    }
    match analyse(tasks, None).answer() {
        Answer::No if tasks.iter().any(|task| (task.b | task.burst) != 0) => Answer::Unknown,
        answer => answer,
    }
}

#[derive(Clone, Copy, Default)]
struct Slot {
    c: u64,
    d: u64,
    period: Recip,
}

fn decide(tasks: &[EdfTask]) -> Answer {
    if tasks.len() > TASKS_MAX {
        return Answer::Unknown;
    }
    let mut buffer = [Slot::default(); TASKS_MAX];
    let slots = &mut buffer[..tasks.len()];
    // U and sum max(0, T - D) U, both rounded up; U in 2^-64.
    let (mut load, mut carried, mut shortest) = (0u128, 0u64, u64::MAX);
    for (slot, task) in slots.iter_mut().zip(tasks) {
        let plain = task.t <= TIME_MAX && task.d <= TIME_MAX && task.c <= task.t && (task.b | task.burst) == 0;
        if !plain || task.t == 0 {
            return Answer::Unknown;
        }
        if task.c > task.d {
            return Answer::No;
        }
        let period = Recip::new(task.t);
        let share = u128::from(task.c) * u128::from(period.inverse) + 2 * u128::from(task.c);
        load += share;
        carried += mul_high(task.t.saturating_sub(task.d), u64::try_from(share).unwrap_or(u64::MAX)) + 2;
        shortest = shortest.min(task.d);
        *slot = Slot { c: task.c, d: task.d, period };
    }
    // L_a = carried / (1 - U), rounded up.
    let Some(idle) = (1u128 << 64).checked_sub(load).map(|idle| idle >> 42).filter(|idle| *idle > 0) else {
        return Answer::Unknown;
    };
    let horizon = ((u128::from(carried) << 22) / idle) + 1;
    if horizon > u128::from(HORIZON_MAX) {
        return Answer::Unknown;
    }
    let mut t = deadline_below(slots, horizon as u64 + 1);
    for _ in 0..ROUNDS_MAX {
        if t < shortest {
            return Answer::Yes;
        }
        let mut h = 0u64;
        for slot in slots.iter() {
            let jobs = slot.period.div(t.saturating_sub(slot.d)).wrapping_add(1);
            h = h.wrapping_add(if t >= slot.d { jobs.wrapping_mul(slot.c) } else { 0 });
        }
        if h > t {
            return Answer::No;
        }
        t = if h < t { h } else { deadline_below(slots, t) };
        // Theorem 4 may stop at a t that is no deadline: h there equals h at the deadline before it.
    }
    Answer::Unknown
}

/// The largest deadline below `t`, zero where there is none.
fn deadline_below(slots: &[Slot], t: u64) -> u64 {
    let mut last = 0;
    for slot in slots {
        if slot.d < t {
            last = last.max(slot.d + slot.period.div(t - 1 - slot.d) * slot.period.divisor);
        }
    }
    last
}
