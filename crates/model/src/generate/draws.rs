//! The randomness of a generated set. Each draw is a pure function of (seed, set, task, purpose,
//! number). So another task changes no draw of the others, and set 700,000 needs no set before it.

use crate::draw::philox2x64;

/// The purpose of a draw, a part of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Use {
    /// A share of the utilisation.
    Utilization = 1,
    /// The assignment of values to tasks.
    Order = 2,
    /// A period.
    Period = 3,
    /// A deadline.
    Deadline = 4,
    /// The common part of the periods of a set.
    Chain = 5,
    /// Execution time of a runnable or task.
    Execution = 6,
    /// The factor of a worst or best case to the average.
    Factor = 7,
    /// A number of parts.
    Count = 8,
}

/// The draws of one set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draws {
    key: u64,
}

/// Separates the keys of sets from those of the jobs of [`crate::draw`] under the same seed.
const SETS: u64 = 0x5345_5453;

impl Draws {
    /// The draws of set `number` under `seed`.
    #[must_use]
    pub const fn of_set(seed: u64, number: u64) -> Self {
        Draws { key: philox2x64([number, SETS], seed)[0] }
    }

    /// 64 random bits for a task (or another counted thing), a purpose, and the number of the draw.
    #[inline]
    #[must_use]
    pub const fn bits(&self, task: u32, what: Use, number: u32) -> u64 {
        philox2x64([(what as u64) << 32 | task as u64, number as u64], self.key)[0]
    }

    /// Uniform in (0, 1), an odd multiple of 2^-54.
    #[inline]
    #[must_use]
    pub fn unit(&self, task: u32, what: Use, number: u32) -> f64 {
        ((self.bits(task, what, number) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Uniform in [low, high], both included. `low` if they are in the wrong order. The bias is
    /// below (high - low) / 2^64.
    #[inline]
    #[must_use]
    pub const fn between(&self, task: u32, what: Use, number: u32, low: u64, high: u64) -> u64 {
        let count = high.saturating_sub(low) as u128 + 1;
        low + ((self.bits(task, what, number) as u128 * count) >> 64) as u64
    }
}
