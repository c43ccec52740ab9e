//! Random systems for experiments, studies, benchmarks and tests: seeded, the same on every
//! machine.
//!
//! [`Generator`] makes sets of tasks of a given utilisation from a [`Spec`]. [`automotive`] and
//! [`arinc`] make whole systems of a kind. Each draw is keyed by (seed, set, task, purpose,
//! number). So any set can be made alone, and a task's period does not depend on the other tasks.
//! (Its utilisation does, since the sum is given.) docs/reference/generators.md describes the
//! draws.
//!
//! Floats shape the sets, and decide nothing about them. Only the four operations and square roots
//! of IEEE 754 are used, which give the same bits everywhere.
//!
//! ```
//! use takt_model::generate::{Buffer, Generator, Spec, utilization};
//!
//! let generator = Generator::new(&Spec::new(10, 0.8)).expect("a spec within its ranges");
//! let mut buffer = Buffer::default();
//! generator.set(1, 700_000, &mut buffer).expect("randfixedsum discards nothing");
//! assert!((utilization(&buffer.tasks) - 0.8).abs() < 1e-3);
//! ```
//!
//! [`Random`] and [`task_set`] draw small things for tests and benchmarks, one after the other.

pub mod arinc;
pub mod automotive;
mod convolution;
pub mod draws;
mod error;
mod fixed_sum;
mod math;
mod periods;
mod sets;
#[cfg(test)]
mod tests;

pub use error::{DISCARDS_MAX, GenerateError, TASKS_MAX};
pub use periods::Periods;
pub use sets::{Buffer, Drawn, Generator, Method, Spec, utilization};

use crate::system::Task;
use crate::time::Span;

/// A small generator of random numbers: SplitMix64 (G. Steele, D. Lea, C. Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [low, high], both included; `low` where they are in the wrong order.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        let count = high.saturating_sub(low) as u128 + 1;
        low + ((self.bits() as u128 * count) >> 64) as u64
    }

    /// Log-uniform in [low, high], `low` at least 1.
    pub fn log_between(&mut self, low: u64, high: u64) -> u64 {
        let low = low.max(1);
        let ratio = (high.max(low) as f64 / low as f64).max(1.0);
        ((low as f64 * power(ratio, self.unit())) as u64).clamp(low, high.max(low))
    }
}

/// `base` to a power in [0, 1], from square roots: base^(0.b1 b2 b3 ..) = prod of base^(2^-k) over
/// set bits.
fn power(base: f64, exponent: f64) -> f64 {
    let (mut result, mut root, mut rest) = (1.0, base, exponent);
    for _ in 0..53 {
        root = f64::sqrt(root);
        rest *= 2.0;
        if rest >= 1.0 {
            rest -= 1.0;
            result *= root;
        }
    }
    result
}

/// What a random set looks like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// How many tasks, at least 1.
    pub tasks: usize,
    /// Their total utilisation, above 0 and at most half of `tasks` (or 1), else discarding might
    /// not end.
    pub utilization: f64,
    /// The shortest period.
    pub period_min: Span,
    /// The longest period.
    pub period_max: Span,
    /// Deadlines uniform in [C + x (T - C), T] for this x in [0, 1]; 1 makes them implicit.
    pub deadline: f64,
}

/// A random set of periodic tasks "t0", "t1", .. in the order of their deadlines (the most urgent
/// first).
#[must_use]
pub fn task_set(random: &mut Random, shape: &Shape) -> Vec<Task> {
    let mut sets: Vec<(u64, u64, u64)> = utilizations(random, shape)
        .into_iter()
        .map(|u| {
            let t = random.log_between(shape.period_min.as_ns(), shape.period_max.as_ns());
            let c = ((u * t as f64) as u64).clamp(1, t);
            let least = c + ((t - c) as f64 * shape.deadline.clamp(0.0, 1.0)) as u64;
            (c, t, random.between(least.min(t), t))
        })
        .collect();
    sets.sort_by_key(|(_, t, d)| (*d, *t));
    let spans = sets.into_iter().enumerate().map(|(i, (c, t, d))| Task {
        deadline: Span::from_ns(d),
        ..Task::periodic(&format!("t{i}"), Span::from_ns(t), Span::from_ns(c))
    });
    spans.collect()
}

/// UUniFast-discard.
fn utilizations(random: &mut Random, shape: &Shape) -> Vec<f64> {
    let mut drawn = Vec::new();
    for _ in 0..DISCARDS_MAX {
        drawn.clear();
        let mut left = shape.utilization;
        for i in 1..shape.tasks {
            let rest = left * root(random.unit(), (shape.tasks - i) as f64);
            drawn.push(left - rest);
            left = rest;
        }
        drawn.push(left);
        if drawn.iter().all(|u| *u <= 1.0) {
            break;
        }
    }
    drawn.iter_mut().for_each(|u| *u = u.min(1.0));
    drawn
}

/// x^(1/n) for x in [0, 1), n >= 1.
fn root(x: f64, n: f64) -> f64 {
    if x <= 0.0 { 0.0 } else { 1.0 / power(1.0 / x, 1.0 / n) }
}

#[cfg(test)]
mod small_tests {
    use super::*;

    #[test]
    fn sets_have_the_shape_asked_for() {
        let shape = Shape {
            tasks: 10,
            utilization: 0.8,
            period_min: Span::from_ms(10),
            period_max: Span::from_ms(1000),
            deadline: 0.5,
        };
        let mut random = Random::new(7);
        let mut short = 0;
        for _ in 0..200 {
            let set = task_set(&mut random, &shape);
            let load: f64 = set.iter().map(|task| task.wcet.as_ns() as f64 / task.period.as_ns() as f64).sum();
            assert!((load - 0.8).abs() < 1e-5, "{load}");
            for task in &set {
                assert!(task.wcet <= task.deadline && task.deadline <= task.period);
                assert!(task.period >= shape.period_min && task.period <= shape.period_max);
                short += usize::from(task.period < Span::from_ms(100));
            }
            assert!(set.is_sorted_by_key(|task| task.deadline));
        }
        // Log-uniform: half of the periods in the lower decade.
        assert!((800..1200).contains(&short), "{short}");
    }

    #[test]
    fn a_seed_says_all() {
        let shape = Shape {
            tasks: 3,
            utilization: 1.5,
            period_min: Span::from_ns(10),
            period_max: Span::from_ns(1000),
            deadline: 1.0,
        };
        let set = |seed| task_set(&mut Random::new(seed), &shape);
        assert_eq!(set(1), set(1));
        assert_ne!(set(1), set(2));
        let mut random = Random::new(0);
        assert_eq!(random.bits(), 0xE220_A839_7B1D_CDAF, "the published first value of seed 0");
    }

    #[test]
    fn roots_and_powers_are_close() {
        assert!((power(100.0, 0.5) - 10.0).abs() < 1e-9);
        assert!((root(0.001, 3.0) - 0.1).abs() < 1e-9);
        assert!((root(0.25, 1.0) - 0.25).abs() < 1e-9);
    }
}
