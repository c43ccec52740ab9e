//! Bounds that takt and the peer compute on their own have to be the same, to the nanosecond.

use response_time_analysis::arrival::Sporadic;
use response_time_analysis::demand::{RBF, Slice};
use response_time_analysis::fixed_point::SearchResult;
use response_time_analysis::time::{Duration as Length, Service};
use response_time_analysis::wcet::Scalar;
use response_time_analysis::{edf, fifo, fixed_priority};
use takt_analysis::fp::levels::{self, Level, LevelTask, Levels, Order};
use takt_analysis::fp::limited::{self, LimitedTask};
use takt_model::Span;
use takt_model::generate::{Buffer, Drawn, Generator, Random, Spec};

/// Small sets, in which everything collides, and sets of real-world sizes.
const SMALL: usize = 20_000;
const REALISTIC: u64 = 200;

/// One task: C, D, T, and a section that nothing preempts.
#[derive(Clone, Copy, Debug)]
struct Plain {
    c: u64,
    d: u64,
    t: u64,
    section: u64,
}

fn small(random: &mut Random) -> Vec<Plain> {
    let count = random.between(1, 5);
    let one = |random: &mut Random| {
        let t = random.between(4, 60);
        let c = random.between(1, (3 * t / (2 * count)).max(1).min(t));
        Plain { c, d: random.between(1, 2 * t), t, section: random.between(1, c) }
    };
    (0..count).map(|_| one(random)).collect()
}

fn realistic(number: u64) -> Vec<Plain> {
    let spec = Spec { deadlines: (0.5, 1.0), grain: Span::from_ns(1), ..Spec::new(10, 0.9) };
    let mut set = Buffer::default();
    Generator::new(&spec).and_then(|generator| generator.set(7, number, &mut set)).expect("a spec within its ranges");
    set.tasks.sort_by_key(|task| (task.d, task.t));
    set.tasks.iter().map(|&Drawn { c, d, t }| Plain { c, d, t, section: c / 2 + 1 }).collect()
}

/// Compares every analysis that both have; panics at the first difference, and returns how many bounds were compared.
pub fn compare() -> Vec<(&'static str, usize)> {
    let mut random = Random::new(7);
    let mut sets: Vec<Vec<Plain>> = (0..SMALL).map(|_| small(&mut random)).collect();
    sets.extend((0..REALISTIC).map(realistic));
    // Only where bounds exist: the peer's limit is a length of time.
    sets.retain(|set| set.iter().map(|task| task.c as f64 / task.t as f64).sum::<f64>() < 0.995);
    let mut counts = vec![
        ("edf, preemptive", 0),
        ("edf, not preemptive", 0),
        ("fifo", 0),
        ("fixed priority, limited preemption", 0),
        ("fixed priority, not preemptive", 0),
    ];
    for set in &sets {
        for (at, (name, count)) in counts.iter_mut().enumerate() {
            let (ours, theirs) = match at {
                0 => (ours(set, Order::Deadline, true), edf_preemptive(set)),
                1 => (ours(set, Order::Deadline, false), edf_to_the_end(set)),
                2 => (ours(set, Order::Fifo, true), first_come(set)),
                3 => (sections(set, |task| task.section), sections_of_peer(set, |task| task.section)),
                _ => (sections(set, |task| task.c), sections_of_peer(set, |task| task.c)),
            };
            assert_eq!(ours, theirs, "{name}: {set:?}");
            *count += set.len();
        }
    }
    counts
}

fn ours(set: &[Plain], order: Order, preemptive: bool) -> Vec<Option<u64>> {
    let form = |task: &Plain| {
        let Plain { c, d, t, .. } = *task;
        LevelTask { c, wcet: c, t, d, ..LevelTask::default() }
    };
    let tasks: Vec<LevelTask> = set.iter().map(form).collect();
    let mut bounds = Vec::new();
    let levels = [Level { order, preemptive }];
    levels::Analysis::default().responses(&Levels { levels: &levels, tasks: &tasks, overheads: &[] }, &mut bounds);
    bounds.into_iter().map(|bound| bound.map(|bound| bound.from_arrival)).collect()
}

fn sections(set: &[Plain], section: impl Fn(&Plain) -> u64) -> Vec<Option<u64>> {
    let form = |(level, task): (usize, &Plain)| {
        let section = section(task);
        LimitedTask { c: task.c, t: task.t, j: 0, last: section, section, level: level as u32 }
    };
    let tasks: Vec<LimitedTask> = set.iter().enumerate().map(form).collect();
    (0..tasks.len()).map(|i| limited::response(&tasks, i)).collect()
}

fn arrivals(task: &Plain) -> Sporadic {
    Sporadic::new_zero_jitter(Length::from(task.t))
}

fn demand(task: &Plain) -> RBF<Sporadic, Scalar> {
    RBF::new(arrivals(task), cost(task))
}

fn cost(task: &Plain) -> Scalar {
    Scalar::new(Service::from(task.c))
}

/// Far beyond every bound of a set.
fn limit(set: &[Plain]) -> Length {
    Length::from(set.iter().map(|task| task.t + task.c).sum::<u64>() * 1_000)
}

fn found(result: SearchResult) -> Option<u64> {
    result.ok().map(u64::from)
}

fn others<T>(of: impl Iterator<Item = T>, i: usize) -> Vec<T> {
    of.enumerate().filter(|(k, _)| *k != i).map(|(_, item)| item).collect()
}

fn edf_preemptive(set: &[Plain]) -> Vec<Option<u64>> {
    use edf::fully_preemptive::{Task, dedicated_uniproc_rta};
    let demands: Vec<_> = set.iter().map(demand).collect();
    let all = || set.iter().zip(&demands).map(|(task, rbf)| Task { rbf, deadline: Length::from(task.d) });
    (0..set.len())
        .map(|i| {
            let this = Task { rbf: &demands[i], deadline: Length::from(set[i].d) };
            found(dedicated_uniproc_rta(&this, &others(all(), i), limit(set)))
        })
        .collect()
}

fn edf_to_the_end(set: &[Plain]) -> Vec<Option<u64>> {
    use edf::fully_nonpreemptive::{Task, dedicated_uniproc_rta};
    let arrive: Vec<_> = set.iter().map(arrivals).collect();
    let form = |i: usize| Task { wcet: cost(&set[i]), arrivals: &arrive[i], deadline: Length::from(set[i].d) };
    (0..set.len())
        .map(|i| found(dedicated_uniproc_rta(&form(i), &others((0..set.len()).map(form), i), limit(set))))
        .collect()
}

fn first_come(set: &[Plain]) -> Vec<Option<u64>> {
    let demands: Vec<_> = set.iter().map(demand).collect();
    let bound = found(fifo::dedicated_uniproc_rta(&Slice::of(&demands), limit(set)));
    // The peer bounds the task that fares worst.
    vec![bound; set.len()]
}

fn sections_of_peer(set: &[Plain], section: impl Fn(&Plain) -> u64) -> Vec<Option<u64>> {
    use fixed_priority::limited_preemptive::{TaskUnderAnalysis, dedicated_uniproc_rta};
    let demands: Vec<_> = set.iter().map(demand).collect();
    (0..set.len())
        .map(|i| {
            let blocking = set[i + 1..].iter().map(|task| section(task) - 1).max().unwrap_or(0);
            let arrivals = arrivals(&set[i]);
            let this = TaskUnderAnalysis {
                wcet: cost(&set[i]),
                arrivals: &arrivals,
                last_np_segment: Service::from(section(&set[i])),
                blocking_bound: Service::from(blocking),
            };
            found(dedicated_uniproc_rta(&this, &demands[..i], limit(set)))
        })
        .collect()
}
