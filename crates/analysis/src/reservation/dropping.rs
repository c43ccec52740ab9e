//! The share of jobs that are lost if at most N_c can be pending, by the chain of (pending jobs,
//! rest of the head).
//!
//! \[SDD II-C\] announces a drop probability and does not derive it, and the work v of
//! [`stochastic`](super::stochastic) does not tell how many jobs it belongs to.
//!
//! **The rule.** A job that arrives while N_c jobs are pending is lost. A job that completes at the
//! instant is no longer pending. Jobs are served in order, Q in every reservation period while
//! there are any; z periods pass before the next arrival.
//!
//! **The chain** has a state (n, h) at each arrival, before the new job is admitted or lost. n jobs
//! are pending, and the head needs h more, with 1 <= h <= the longest execution time. The execution
//! time of a job is drawn when it becomes the head, since nothing depends on it before. An arrival
//! makes n + 1 of n < N_c. Then b = z Q is served. While h <= b, the head completes, b falls by h,
//! and the next head is drawn. Otherwise h falls by b. The probability to lose a job is the share
//! of arrivals that find n = N_c. It is exact for a hard reservation with arrivals at whole
//! periods. Elsewhere it is the model's value.
//!
//! **The error is proven.** Let f(s) = 1 if n = N_c, and 0 otherwise. Let P be the transitions, and
//! g any function of the state. The stationary mean of P g - g is 0. So the stationary mean of f
//! lies between the least and the largest value of f + P g - g. This holds from every start, even
//! if the chain is not ergodic: the interval contains the long-run share of lost jobs. Iteration
//! finds g: g' = (g + f + P g) / 2. It also converges for a periodic chain. The interval is widened
//! by the rounding of one application of P.

use thiserror::Error;

use super::stochastic::{Enclosure, Model};
use crate::pmf::Pmf;

/// States of the chain, at most.
pub const STATES_MAX: u64 = 20_000;
/// Sums of one application of the transitions, at most.
pub const TERMS_MAX: u64 = 20_000_000;
/// Terms of all applications, at most; then the interval stays as wide as it is.
pub const WORK_MAX: u64 = 4_000_000_000;
/// The width at which iteration ends.
const WIDTH: f64 = 1e-12;

/// Why no drop probability is computed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DropError {
    /// N_c = 0.
    #[error("a queue of no job loses all; let at least one be pending")]
    NoQueue,
    /// Too fine or too long.
    #[error(
        "{states} states, {terms} terms in a step, and {STATES_MAX} and {TERMS_MAX} are the most; take a \
         coarser granularity, or a shorter queue"
    )]
    TooManyStates {
        /// (N_c times the longest job in units) + 1.
        states: u64,
        /// The terms of one application.
        terms: u64,
    },
}

/// The chain of one model and queue.
struct Chain {
    most: usize,
    longest: usize,
    /// b = z Q with its probability.
    gifts: Vec<(usize, f64)>,
    exec: Vec<(u64, f64)>,
}

impl Chain {
    fn index(&self, n: usize, h: usize) -> usize {
        if n == 0 { 0 } else { 1 + (n - 1) * self.longest + h - 1 }
    }

    /// f + P g - g, state by state.
    fn drift(&self, g: &[f64], fresh: &mut [Vec<f64>]) -> Vec<f64> {
        // fresh[n][r]: the mean of g when n jobs are left, the head is still to be drawn, and r is left to serve.
        fresh[0].fill(g[0]);
        for n in 1..=self.most {
            let (before, this) = fresh.split_at_mut(n);
            for (r, value) in this[0].iter_mut().enumerate() {
                *value = self
                    .exec
                    .iter()
                    .map(|(c, p)| {
                        let c = *c as usize;
                        p * if c > r { g[self.index(n, c - r)] } else { before[n - 1][r - c] }
                    })
                    .sum();
            }
        }
        let served = |n: usize, h: usize| -> f64 {
            let one = |b: usize| if h > b { g[self.index(n, h - b)] } else { fresh[n - 1][b - h] };
            self.gifts.iter().map(|(b, p)| p * one(*b)).sum()
        };
        let mut drift = vec![0.0; g.len()];
        drift[0] = self.gifts.iter().map(|(b, p)| p * fresh[1][*b]).sum::<f64>() - g[0];
        for n in 1..=self.most {
            for h in 1..=self.longest {
                let at = self.index(n, h);
                drift[at] = if n < self.most { served(n + 1, h) } else { 1.0 + served(n, h) } - g[at];
            }
        }
        drift
    }

    /// Most that rounding adds to a drift, if no |g| exceeds `largest`.
    fn rounding(&self, largest: f64) -> f64 {
        let depth = (self.most + 1) as f64 * (self.exec.len() as f64 + 8.0) + self.gifts.len() as f64 + 16.0;
        depth * f64::EPSILON * (largest + 2.0)
    }
}

/// The long-run share of jobs that are lost where at most `most` can be pending.
///
/// # Errors
/// [`DropError`].
pub fn drop_probability(model: &Model, most: u32) -> Result<Enclosure, DropError> {
    if most == 0 {
        return Err(DropError::NoQueue);
    }
    if model.exec().max() <= model.periods().min().saturating_mul(model.budget()) {
        // Every job is done before the next one comes.
        return Ok(Enclosure { low: 0.0, estimate: 0.0, high: 0.0 });
    }
    // Service beyond the whole queue is of no use.
    let enough = u64::from(most).saturating_mul(model.exec().max());
    let gifts: Pmf = model.periods().map(|z| z.saturating_mul(model.budget()).min(enough));
    let states = enough.saturating_add(1);
    let terms = u64::from(most)
        .saturating_mul(gifts.max() + 1)
        .saturating_mul(model.exec().points().len() as u64)
        .saturating_add(states.saturating_mul(gifts.points().len() as u64));
    if states > STATES_MAX || terms > TERMS_MAX {
        return Err(DropError::TooManyStates { states, terms });
    }
    let gifts: Vec<(usize, f64)> = gifts.shares().into_iter().map(|(b, p)| (b as usize, p)).collect();
    let reach = gifts.last().map_or(0, |(b, _)| *b);
    let exec = model.exec().shares();
    let chain = Chain { most: most as usize, longest: model.exec().max() as usize, gifts, exec };
    let mut fresh = vec![vec![0.0; reach + 1]; chain.most + 1];
    let mut g = vec![0.0; states as usize];
    let (mut low, mut high) = (0.0f64, 1.0f64);
    for _ in 0..(WORK_MAX / terms).max(1) {
        let drift = chain.drift(&g, &mut fresh);
        let largest = g.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        let rounding = chain.rounding(largest);
        let least = drift.iter().copied().fold(f64::INFINITY, f64::min) - rounding;
        let most = drift.iter().copied().fold(f64::NEG_INFINITY, f64::max) + rounding;
        // Each is a proof of its own.
        (low, high) = (low.max(least), high.min(most));
        if high - low <= WIDTH.max(4.0 * rounding) {
            break;
        }
        for (value, drift) in g.iter_mut().zip(&drift) {
            *value += drift / 2.0;
        }
        let base = g[0];
        g.iter_mut().for_each(|value| *value -= base);
    }
    let (low, high) = (low.clamp(0.0, 1.0), high.clamp(0.0, 1.0));
    Ok(Enclosure { low, estimate: low + (high - low) / 2.0, high })
}
