//! `opa`: Audsley's optimal priority assignment on one CPU.
//!
//! N. C. Audsley: On Priority Assignment in Fixed Priority Scheduling, Information Processing
//! Letters 79(1), 2001. From the least important priority up, give each to any task that meets its
//! deadline there with all unplaced tasks above. A task's response depends on the set of more
//! important tasks, not on their order. It does not grow as the task becomes more important. So a
//! choice never has to be undone, and if no task fits a priority, no assignment exists.
//!
//! The test is [`super::rta`], on distinct levels: exact for sporadic tasks, with jitter, any
//! deadlines, and blocking that does not depend on the order.
//!
//! If several tasks fit a priority, the last of them in `tasks` gets it. With `tasks` in the order
//! of the given priorities, each step then changes as little as possible.

use super::rta::{Analysis, FpTask, TERMS_MAX};

/// The result of the assignment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// All deadlines are met: the tasks' positions, the most important first.
    Found(Vec<usize>),
    /// None meets all deadlines: whichever of these is the least important of them is late.
    None(Vec<usize>),
    /// The work limit was reached.
    Undecided,
}

/// Assigns priorities to `tasks`, below `above` (the tick) whose order stays; levels are not read.
pub fn assign(tasks: &[FpTask], above: &[FpTask]) -> Assignment {
    assign_within(tasks, above, &mut { TERMS_MAX })
}

/// The same from what is left of a limit.
pub(crate) fn assign_within(tasks: &[FpTask], above: &[FpTask], terms_left: &mut u64) -> Assignment {
    let mut analysis = Analysis::within(*terms_left);
    let found = search(tasks, above, &mut analysis);
    *terms_left = analysis.terms_left();
    found
}

fn search(tasks: &[FpTask], above: &[FpTask], analysis: &mut Analysis) -> Assignment {
    let mut set: Vec<FpTask> = tasks.iter().chain(above).map(|task| FpTask { level: 0, ..*task }).collect();
    let mut open: Vec<usize> = (0..tasks.len()).collect();
    let mut order = Vec::with_capacity(tasks.len());
    let mut level = tasks.len() as u32;
    while !open.is_empty() {
        let mut chosen = None;
        for at in (0..open.len()).rev() {
            // The least important of the remaining tasks: only the others go before it.
            set[open[at]].level = 1;
            let response = analysis.response(&set, open[at]);
            set[open[at]].level = 0;
            if response.is_some_and(|response| response.from_arrival <= tasks[open[at]].d) {
                chosen = Some(at);
                break;
            }
            if analysis.is_exhausted(&set) {
                return Assignment::Undecided;
            }
        }
        match chosen {
            Some(at) => {
                let task = open.remove(at);
                order.push(task);
                // Below all that follow.
                set[task].level = level + 1;
                level -= 1;
            }
            None => return Assignment::None(open),
        }
    }
    order.reverse();
    Assignment::Found(order)
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use takt_model::generate::Random;

    use super::*;
    use crate::brute::cases;
    use crate::exact::compare_sum;

    fn task(c: u64, t: u64, d: u64) -> FpTask {
        FpTask { c, t, d, ..FpTask::default() }
    }

    fn meets(tasks: &[FpTask], order: &[usize]) -> bool {
        let mut tasks = tasks.to_vec();
        for (level, task) in order.iter().enumerate() {
            tasks[*task].level = level as u32;
        }
        let mut analysis = Analysis::default();
        (0..tasks.len())
            .all(|i| analysis.response(&tasks, i).is_some_and(|response| response.from_arrival <= tasks[i].d))
    }

    fn any_order(tasks: &[FpTask], order: &mut Vec<usize>) -> bool {
        if order.len() == tasks.len() {
            return meets(tasks, order);
        }
        (0..tasks.len()).any(|i| {
            !order.contains(&i) && {
                order.push(i);
                let found = any_order(tasks, order);
                order.pop();
                found
            }
        })
    }

    #[test]
    fn neither_deadline_nor_rate_monotonic_is_optimal_for_long_deadlines() {
        // Lehoczky 1990: C = (52, 52), T = (100, 140), D = (110, 154).
        let tasks = [task(52, 100, 110), task(52, 140, 154)];
        assert!(!meets(&tasks, &[0, 1]));
        assert_eq!(assign(&tasks, &[]), Assignment::Found(vec![1, 0]));
        assert_eq!(assign(&[task(3, 5, 3), task(3, 10, 3)], &[]), Assignment::None(vec![0, 1]));
        assert_eq!(assign(&[task(3, 4, 4), task(3, 5, 5)], &[]), Assignment::None(vec![0, 1]), "overload");
        let tick = FpTask { c: 1, t: 4, d: 4, ..FpTask::default() };
        assert_eq!(assign(&[task(3, 10, 3)], &[tick]), Assignment::None(vec![0]));
        assert_eq!(assign(&[task(3, 10, 4)], &[tick]), Assignment::Found(vec![0]));
        assert_eq!(assign(&[], &[]), Assignment::Found(vec![]));
    }

    #[test]
    fn it_finds_an_order_where_there_is_one() {
        let mut random = Random::new(41);
        let mut seen = [0; 2];
        for round in 0..cases(1500) {
            let count = random.between(1, 4);
            let one = |_| {
                let t = random.between(3, 20);
                let c = random.between(1, (2 * t / (count + 1)).max(1));
                let j = random.between(0, 1) * random.between(0, t / 3);
                FpTask { j, b: random.between(0, 2), ..task(c, t, random.between(c, 2 * t)) }
            };
            let tasks: Vec<FpTask> = (0..count).map(one).collect();
            // A full CPU with blocking never idles: the limit ends that.
            let full =
                |tasks: &[FpTask]| compare_sum(tasks.iter().map(|task| (task.c, task.t)), 1) != Some(Ordering::Less);
            if full(&tasks) {
                continue;
            }
            let exists = any_order(&tasks, &mut Vec::new());
            match assign(&tasks, &[]) {
                Assignment::Found(order) => assert!(exists && meets(&tasks, &order), "round {round}: {tasks:?}"),
                other => assert!(!exists && other != Assignment::Undecided, "round {round}: {tasks:?}"),
            }
            seen[usize::from(exists)] += 1;
        }
        assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
    }
}
