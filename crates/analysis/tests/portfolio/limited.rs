//! Every behaviour of a few tasks under fixed priorities on one CPU, in unit steps, by exhaustion.
//! Jobs have sections without preemption. This search shares nothing with the tests.

use std::collections::HashSet;

use takt_model::{Arrival, Task};

/// One task in a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Part {
    /// Until it may arrive again.
    wait: u8,
    /// How long ago its pending jobs arrived, the oldest first.
    ages: [u8; 8],
    pending: u8,
    /// How many of them have been released.
    released: u8,
    /// Time that the oldest job has had.
    done: u8,
}

type State = [Part; 3];

struct Limits {
    c: u8,
    t: u8,
    d: u8,
    j: u8,
    periodic: bool,
    sections: Vec<(u8, u8)>,
}

fn small(span: takt_model::Span) -> u8 {
    u8::try_from(span.as_ns()).expect("small numbers")
}

/// Whether a deadline can be missed, the tasks in the order of their importance; `None` past so many states.
pub(crate) fn misses(tasks: &[Task], states_max: usize) -> Option<bool> {
    let limits: Vec<Limits> = (tasks.iter())
        .map(|task| Limits {
            c: small(task.wcet),
            t: small(task.period),
            d: small(task.deadline),
            j: small(task.jitter),
            periodic: task.arrival == Arrival::Periodic,
            sections: task.sections().iter().map(|(from, to)| (small(*from), small(*to))).collect(),
        })
        .collect();
    let mut start = State::default();
    for (part, task) in start.iter_mut().zip(tasks) {
        part.wait = small(task.offset);
    }
    let mut seen = HashSet::from([start]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        if seen.len() > states_max {
            return None;
        }
        let mut next = Vec::new();
        arrive(&limits, state, 0, &mut next);
        for state in next {
            match step(&limits, state) {
                None => return Some(true),
                Some(state) if seen.insert(state) => open.push(state),
                Some(_) => {}
            }
        }
    }
    Some(false)
}

/// Every choice of arrivals, then of releases, from task `i` on.
fn arrive(limits: &[Limits], state: State, i: usize, found: &mut Vec<State>) {
    let Some(task) = limits.get(i) else { return release(limits, state, 0, found) };
    let due = state[i].wait == 0;
    if !(due && task.periodic) {
        arrive(limits, state, i + 1, found);
    }
    if due {
        let mut state = state;
        let part = &mut state[i];
        part.ages[part.pending as usize] = 0;
        part.pending += 1;
        part.wait = task.t;
        arrive(limits, state, i + 1, found);
    }
}

fn release(limits: &[Limits], state: State, i: usize, found: &mut Vec<State>) {
    let Some(task) = limits.get(i) else { return found.push(state) };
    let part = &state[i];
    let must = (0..part.pending).filter(|job| part.ages[*job as usize] >= task.j).count() as u8;
    for released in must.max(part.released)..=part.pending {
        let mut state = state;
        state[i].released = released;
        release(limits, state, i + 1, found);
    }
}

/// One unit of time; `None` where a job can no longer be in time.
fn step(limits: &[Limits], mut state: State) -> Option<State> {
    let inside =
        |(part, task): (&Part, &Limits)| task.sections.iter().any(|(from, to)| *from < part.done && part.done < *to);
    let keeps = state.iter().zip(limits).position(inside);
    let runs = keeps.or_else(|| state.iter().position(|part| part.released > 0));
    for (i, (part, task)) in state.iter_mut().zip(limits).enumerate() {
        for age in &mut part.ages[..part.pending as usize] {
            *age += 1;
        }
        part.wait = part.wait.saturating_sub(1);
        if runs == Some(i) {
            part.done += 1;
            if part.done == task.c {
                if part.ages[0] > task.d {
                    return None;
                }
                part.ages.copy_within(1.., 0);
                part.ages[7] = 0;
                (part.done, part.pending, part.released) = (0, part.pending - 1, part.released - 1);
                part.ages[part.pending as usize] = 0;
            }
        }
        // The rest takes at least a unit more.
        if part.pending > 0 && part.ages[0] >= task.d {
            return None;
        }
    }
    Some(state)
}
