//! How well and how quickly arrivals are told apart: `cargo bench -p takt-trace --bench infer`.
//!
//! The drawn tasks have known parameters. A common manual method stands beside takt. It takes the
//! median and the mean distance of arrivals as the period, if the standard deviation of distances
//! is below a tenth of the mean. Nothing is asserted.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Instant;

use takt_model::{Span, Time};
use takt_trace::infer::{Inferred, Kind};

/// Tasks of each kind and length.
const TASKS: u64 = 200;
/// Jobs of a task.
const LENGTHS: [usize; 3] = [50, 500, 5000];
/// A period is found where it is wrong by at most one part in so many.
const PART: u64 = 1000;

/// Random numbers, the same each time (splitmix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    /// From 0 up to, without, 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// How tasks of one row arrive: as fractions of a period, the next arrival after `grid` and `last`,
/// the one before.
struct Row {
    name: &'static str,
    periodic: bool,
    next: fn(&mut Draw, grid: f64, last: f64) -> f64,
}

const ROWS: [Row; 11] = [
    Row {
        name: "periodic, woken 1 % late on average",
        periodic: true,
        next: |draw, grid, _| grid + draw.exponential(0.01),
    },
    Row { name: "periodic, up to 10 % late", periodic: true, next: |draw, grid, _| grid + 0.1 * draw.unit() },
    Row { name: "periodic, up to 80 % late", periodic: true, next: |draw, grid, _| grid + 0.8 * draw.unit() },
    Row {
        name: "periodic, one in 50 half a period late",
        periodic: true,
        next: |draw, grid, _| grid + draw.exponential(0.01) + if draw.next().is_multiple_of(50) { 0.5 } else { 0.0 },
    },
    Row {
        name: "a sleep of a period after each, 1 % late",
        periodic: false,
        next: |draw, _, last| last + 1.0 + draw.exponential(0.01),
    },
    Row {
        name: "distances of 0.95 to 1.05 periods",
        periodic: false,
        next: |draw, _, last| last + 0.95 + 0.1 * draw.unit(),
    },
    Row { name: "distances of 1 to 2 periods", periodic: false, next: |draw, _, last| last + 1.0 + draw.unit() },
    Row { name: "at any time (Poisson)", periodic: false, next: |draw, _, last| last + draw.exponential(1.0) },
    Row {
        name: "distances of 1 and 1.4 periods in turn",
        periodic: false,
        next: |_, grid, last| last + if (grid as u64).is_multiple_of(2) { 1.0 } else { 1.4 },
    },
    Row {
        name: "two in each frame, at 0 and 0.4 of it",
        periodic: false,
        next: |draw, grid, _| {
            grid.floor() - if (grid as u64).is_multiple_of(2) { 0.0 } else { 0.2 } + 0.05 * draw.unit()
        },
    },
    Row {
        name: "three jobs each of two modes, 5 % apart",
        periodic: false,
        next: |_, grid, last| last + if (grid as u64 / 3).is_multiple_of(2) { 1.0 } else { 1.05 },
    },
];

/// A task's period in ns, and its arrivals.
struct Task {
    period: f64,
    arrivals: Vec<(Time, Span)>,
}

fn task(row: &Row, draw: &mut Draw, jobs: usize) -> Task {
    // Log-uniform from 1 ms to 1 s, whole microseconds.
    let period = (1e3 * 1000_f64.powf(draw.unit())).round() * 1e3;
    let offset = draw.unit();
    let mut last = offset;
    let arrivals = (0..jobs).map(|k| {
        last = (row.next)(draw, offset + k as f64, last);
        (Time::from_ns((last * period) as u64), Span::ZERO)
    });
    Task { period, arrivals: arrivals.collect() }
}

/// The number of tasks whose period was found, and of tasks that were called periodic.
#[derive(Default)]
struct Score {
    found: u64,
    called: u64,
}

impl Score {
    fn add(&mut self, told: Option<f64>, truth: f64) {
        self.called += u64::from(told.is_some());
        self.found += u64::from(told.is_some_and(|told| (told - truth).abs() * PART as f64 <= truth));
    }
}

/// The median and the mean distance, of a task whose distances are nearly equal.
fn by_hand(arrivals: &[(Time, Span)]) -> [Option<f64>; 2] {
    let mut distances: Vec<f64> =
        arrivals.windows(2).map(|pair| pair[1].0.as_ns().saturating_sub(pair[0].0.as_ns()) as f64).collect();
    distances.sort_by(f64::total_cmp);
    let mean = distances.iter().sum::<f64>() / distances.len() as f64;
    let variance = distances.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / distances.len() as f64;
    let told = variance.sqrt() < 0.1 * mean;
    [distances[distances.len() / 2], mean].map(|period| told.then_some(period))
}

fn main() {
    println!("of {TASKS} tasks: found, the period within 1/{PART}; called, periodic at all");
    println!("{:<42} {:>5}  {:>13} {:>13} {:>13} {:>10}", "arrivals", "jobs", "takt", "median", "mean", "arrivals/s");
    println!("{:<42} {:>5}  {:>13} {:>13} {:>13}", "", "", "found called", "found called", "found called");
    for row in &ROWS {
        for jobs in LENGTHS {
            let mut draw = Draw(jobs as u64);
            let tasks: Vec<Task> = (0..TASKS).map(|_| task(row, &mut draw, jobs)).collect();
            let files = tasks.iter().map(|task| (String::new(), task.arrivals.clone())).collect();
            let start = Instant::now();
            let inferred = Inferred::of_releases(files);
            let took = start.elapsed().as_secs_f64();
            let mut scores: [Score; 3] = Default::default();
            for (task, found) in tasks.iter().zip(&inferred.tasks) {
                let grid = found.arrivals.grid.filter(|_| found.arrivals.kind == Kind::Periodic);
                let [median, mean] = by_hand(&task.arrivals);
                let told = [grid.map(|grid| grid.period.as_ns() as f64), median, mean];
                scores.iter_mut().zip(told).for_each(|(score, told)| score.add(told, task.period));
            }
            let shown = scores.map(|score| {
                let found = if row.periodic { score.found.to_string() } else { "-".to_owned() };
                format!("{found:>5} {:>6}", score.called)
            });
            let [takt, median, mean] = shown;
            let rate = TASKS as f64 * jobs as f64 / took;
            println!("{:<42} {jobs:>5}  {takt:>13} {median:>13} {mean:>13} {rate:>10.1e}", row.name);
        }
    }
}
