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
//! [`Random`] draws small things for tests and benchmarks, one after the other.

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
        ((low as f64 * math::exp(math::ln(ratio) * self.unit())) as u64).clamp(low, high.max(low))
    }
}
