//! The responses of jobs in a reservation for random execution and inter-arrival times: the exact
//! distribution, and a fast bound.
//!
//! \[SDD II-C\] announces the model; it stands in the paper's reference \[9\] (N. Manica, L. Abeni,
//! L. Palopoli, RTAS 2010) and in ERRATA:
//!
//! | ERRATA | here |
//! |---|---|
//! | c: execution times, independent of each other and of z | `exec`, in units, rounded up |
//! | z: whole reservation periods T between two arrivals, rounded down | `arrivals` |
//! | v' = max(0, v - z Q) + c | v = w + c: [`Model`] |
//! | P(response <= k T) >= P(v <= k Q) | [`Solution::within`] |
//!
//! **Why it bounds responses.** With the notation of [`deterministic`](super::deterministic): let
//! job m, at r_m, be the last job that reset the server before job n starts. Let W be the work from
//! m to n. Job n is done by r_m + ceil(W / Q) T. In the model v_n >= W - Z Q, with Z the sum of the
//! z from m + 1 to n. Z T <= r_n - r_m, as each z is rounded down. So v_n <= k Q gives W <= (k + Z)
//! Q, and the job is done by r_m + (k + Z) T <= r_n + k T. This holds for every constant-bandwidth
//! server, hard or soft, among servers by deadline that fit on their CPU. It is exact for a hard
//! server with arrivals at whole periods. Then every period from the last reset on gives Q to the
//! present jobs, all or nothing at the start of a period.
//!
//! **The chain.** The backlog w = v - c at an arrival is the walk w' = max(0, w + x), x = c - z Q,
//! with bounded steps. It is a quasi-birth-death chain (`qbd.rs`). It has a stationary distribution
//! iff E\[c\] < Q E\[z\], decided in integers (or if no step goes up: then w = 0).
//!
//! **The error is proven, not estimated.** H(x) = P(w > x) is the least function >= 0 on x >= 0
//! with H = T H. Here (T F)(x) = Σ_s p(s) F(x - s), with F = 1 below 0. T is monotone, and Tⁿ 0
//! rises to H. Take any H' >= 0 and rho < 1 with M = Σ_s p(s) rho^-s < 1.
//!
//! - *Upper bound.* Let T H' - H' <= e (1 - M) rho^x for all x >= 0. Then F = H' + e rho^x has T F
//!   <= T H' + e M rho^x <= F. So H <= F.
//! - *Lower bound.* Let T H' - H' >= -e (1 - M) rho^x, and let H' vanish at last. Then F = H' - e
//!   rho^x has T F >= F, and Tⁿ F rises. The walk drifts to -∞ and F vanishes at +∞, so the limit
//!   of Tⁿ F is at most H. So H >= F.
//!
//! So one pass over the result of the matrices gives an e, whatever their errors. The pass adds the
//! rounding of each of its own operations.
//!
//! **The fast bound** is the same lemma with H' = 0. Any rho with M <= 1 gives P(w > x) <= rho^(x +
//! 1), since this function is >= 1 below 0 (J. Kingman 1964; the change of measure of H. Cramér).
//! The least such rho is found by bisection.
//!
//! ```
//! use takt_analysis::reservation::stochastic::Model;
//! use takt_analysis::reservation::Pmf;
//!
//! // 1 or 3 ms of work every 40 ms, in a reservation of 2 ms in 20 ms.
//! let exec = Pmf::new([(1, 1), (3, 1)]).unwrap();
//! let model = Model::new(&exec, &Pmf::certain(40), 20, 2, 1).unwrap();
//! let solution = model.solve().unwrap();
//! // It always finds the server idle: 4 in every 40.
//! assert_eq!(solution.within(1).estimate, 0.5);
//! assert!(solution.within(2).low > 0.999_999_999);
//! ```

use std::cmp::Ordering;

use thiserror::Error;

use super::qbd;
use crate::pmf::Pmf;

/// The longest step of the walk, in units: blocks have so many rows.
pub const BLOCK_MAX: u64 = 512;
/// Rounds of bisection for the least rho of the fast bound.
const BISECTIONS: u32 = 64;
/// Half an ulp of one.
const U: f64 = f64::EPSILON / 2.0;

/// Why a reservation has no stationary distribution of responses, or none that is computed here.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StochasticError {
    /// Parameters that make no sense.
    #[error("a reservation needs 0 < budget <= period, and a granularity of at most its budget")]
    Parameters,
    /// More work than budget in the long run.
    #[error(
        "jobs need at least what the reservation gives in the long run, counted in its whole periods between \
         arrivals; take a larger budget, or a period that divides the times between arrivals"
    )]
    Unstable,
    /// Too fine.
    #[error(
        "a step of {states} units, and {BLOCK_MAX} is the most; take a coarser granularity, which rounds \
         execution times up and is safe"
    )]
    TooManyStates {
        /// The longest step, in units.
        states: u64,
    },
    /// The numerics failed, which is no answer.
    #[error("the equations are too close to singular for floating point; take a coarser granularity or another budget")]
    Singular,
}

/// A probability between two proven bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Enclosure {
    /// It is at least this.
    pub low: f64,
    /// The computed value.
    pub estimate: f64,
    /// It is at most this.
    pub high: f64,
}

/// A reservation with the distributions of what it serves, in units of the granularity.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    exec: Pmf,
    periods: Pmf,
    budget: u64,
    /// Whether long times between arrivals were cut, so that only the lower bounds speak of the model as given.
    cut: bool,
}

impl Model {
    /// The model for execution times and times between arrivals, all in one unit of time, of a
    /// reservation `budget` every `period`. Execution times are rounded up to multiples of
    /// `granularity`, the budget down, times between arrivals down to multiples of `period`.
    ///
    /// # Errors
    /// [`StochasticError::Parameters`]; [`StochasticError::TooManyStates`] where a job is longer
    /// than [`BLOCK_MAX`] granules.
    pub fn new(
        exec: &Pmf,
        arrivals: &Pmf,
        period: u64,
        budget: u64,
        granularity: u64,
    ) -> Result<Model, StochasticError> {
        if budget == 0 || budget > period || granularity == 0 || granularity > budget {
            return Err(StochasticError::Parameters);
        }
        let exec = exec.map(|c| c.div_ceil(granularity).max(1));
        let budget = budget / granularity;
        let too_many = |states| StochasticError::TooManyStates { states };
        if exec.max() > BLOCK_MAX {
            return Err(too_many(exec.max()));
        }
        // Longer ones give more than is ever used, nearly.
        let most = (BLOCK_MAX + exec.min()) / budget;
        if most == 0 {
            return Err(too_many(budget - exec.min()));
        }
        let periods = arrivals.map(|a| a / period);
        let cut = periods.max() > most;
        let whole = Model { periods: periods.map(|z| z.min(most)), exec, budget, cut };
        if cut && whole.drift() != Ordering::Less {
            let given = Model { periods, ..whole };
            return Err(if given.drift() == Ordering::Less {
                too_many(given.periods.max().saturating_mul(budget))
            } else {
                StochasticError::Unstable
            });
        }
        Ok(whole)
    }

    /// Q in units.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// c in units.
    #[must_use]
    pub fn exec(&self) -> &Pmf {
        &self.exec
    }

    /// z.
    #[must_use]
    pub fn periods(&self) -> &Pmf {
        &self.periods
    }

    /// E\[c\] against Q E\[z\], exactly.
    fn drift(&self) -> Ordering {
        let ((c, c_total), (z, z_total)) = (self.exec.mean(), self.periods.mean());
        // c <= 2^9 2^32; z Q: at most 2^10 2^32 after the cut, and before it compared in 256 bits by parts.
        let left = c * u128::from(z_total);
        match z.checked_mul(u128::from(self.budget)).and_then(|z| z.checked_mul(u128::from(c_total))) {
            Some(right) => left.cmp(&right),
            None => Ordering::Less,
        }
    }

    /// Whether responses have a stationary distribution: E\[c\] < Q E\[z\], or no job ever waits.
    #[must_use]
    pub fn is_stable(&self) -> bool {
        self.drift() == Ordering::Less || self.exec.max() <= self.periods.min().saturating_mul(self.budget)
    }

    /// (P(x = i - down) at i, down) of the step x = c - z Q.
    fn steps(&self) -> (Vec<f64>, usize) {
        let reach = |z: u64| z * self.budget;
        let down = reach(self.periods.max()).saturating_sub(self.exec.min());
        let up = self.exec.max().saturating_sub(reach(self.periods.min()));
        let mut weights = vec![0u128; (down + up + 1) as usize];
        for (c, c_weight) in self.exec.points() {
            for (z, z_weight) in self.periods.points() {
                // Steps beyond the ends are none where all go one way.
                let at = (c + down).saturating_sub(reach(*z)).min(down + up);
                weights[at as usize] += u128::from(*c_weight) * u128::from(*z_weight);
            }
        }
        let total = self.exec.total() as f64 * self.periods.total() as f64;
        (weights.into_iter().map(|weight| weight as f64 / total).collect(), down as usize)
    }

    /// The stationary distribution.
    ///
    /// # Errors
    /// [`StochasticError::Unstable`], [`StochasticError::TooManyStates`], [`StochasticError::Singular`].
    pub fn solve(&self) -> Result<Solution, StochasticError> {
        if !self.is_stable() {
            return Err(StochasticError::Unstable);
        }
        let mut solution = Solution { model: self.clone(), tail: Vec::new(), error: 0.0, ratio: 0.0, residual: 0.0 };
        if self.exec.max() <= self.periods.min().saturating_mul(self.budget) {
            return Ok(solution);
        }
        let (steps, down) = self.steps();
        let states = (steps.len() - 1 - down).max(down) as u64;
        if states > BLOCK_MAX {
            return Err(StochasticError::TooManyStates { states });
        }
        solution.tail = qbd::tail(&steps, down).ok_or(StochasticError::Singular)?;
        let least = least_ratio(&steps, down).ok_or(StochasticError::Singular)?;
        // Half way, in the exponent: M < 1 there by a margin, and the end of the table weighs little.
        solution.ratio = least.sqrt();
        (solution.error, solution.residual) =
            verify(&steps, down, &solution.tail, solution.ratio).ok_or(StochasticError::Singular)?;
        Ok(solution)
    }

    /// The fast bound: a lower bound of P(v <= k Q) and so of P(response <= k T), for each k asked;
    /// without solving for the distribution.
    ///
    /// # Errors
    /// [`StochasticError::Unstable`]; [`StochasticError::Singular`] where the drift is too small for floating point.
    pub fn fast(&self) -> Result<Fast, StochasticError> {
        if !self.is_stable() {
            return Err(StochasticError::Unstable);
        }
        let (steps, down) = self.steps();
        let ratio = if self.exec.max() <= self.periods.min().saturating_mul(self.budget) {
            0.0
        } else {
            least_ratio(&steps, down).ok_or(StochasticError::Singular)?
        };
        Ok(Fast { ratio, exec: self.exec.clone(), budget: self.budget })
    }
}

/// x^n, by squaring: off by less than 2 n roundings, whatever the platform makes of its own power.
fn power(x: f64, n: u64) -> f64 {
    let (mut square, mut left, mut product) = (x, n, 1.0);
    while left > 0 {
        if left & 1 == 1 {
            product *= square;
        }
        square *= square;
        left >>= 1;
    }
    product
}

/// An upper bound of M(rho) = Σ p(x) rho^-x, rounding included.
fn moment(steps: &[f64], down: usize, ratio: f64) -> f64 {
    let mut sum = 0.0;
    // From the largest step down: rho^-up, then a factor rho each.
    let up = (steps.len() - 1 - down) as u64;
    let mut grown = 1.0 / power(ratio, up);
    for p in steps.iter().rev() {
        sum += p * grown;
        grown *= ratio;
    }
    // The power: 2 up roundings and a reciprocal; each product one; the sum one each; p three.
    sum * (1.0 + (4.0 * steps.len() as f64 + 16.0) * 2.0 * U)
}

/// The least rho, nearly, with M(rho) <= 1 for sure.
fn least_ratio(steps: &[f64], down: usize) -> Option<f64> {
    let (mut low, mut high) = (0.0f64, 1.0f64);
    // M < 1 somewhere below one, as the drift is below zero; how close to one, bisection in 1 - rho finds.
    let mut gap = 0.5;
    let mut found = None;
    while gap > 1e-13 {
        if moment(steps, down, 1.0 - gap) <= 1.0 {
            found = Some(1.0 - gap);
            break;
        }
        low = 1.0 - gap;
        gap /= 2.0;
    }
    high = high.min(found?);
    for _ in 0..BISECTIONS {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if moment(steps, down, middle) <= 1.0 { high = middle } else { low = middle }
    }
    Some(high)
}

/// (e, the largest |T H' - H'|): |H - H'| <= e rho^x everywhere. `None` where M is not below 1 or a number is none.
fn verify(steps: &[f64], down: usize, tail: &[f64], ratio: f64) -> Option<(f64, f64)> {
    let slack = 1.0 - moment(steps, down, ratio);
    let up = steps.len() - 1 - down;
    // A dot product of so many terms, none below zero, with p off by 4 U: off by less than this share.
    let share = (steps.len() as f64 + 16.0) * 2.0 * U;
    let (mut error, mut residual) = (0.0f64, 0.0f64);
    let mut power = 1.0f64;
    // P(x > i - down), from above.
    let mut beyond = vec![0.0; steps.len() + 1];
    for (i, p) in steps.iter().enumerate().rev() {
        beyond[i] = beyond[i + 1] + p;
    }
    for x in 0..tail.len() + up {
        // Steps s <= x lead to x - s >= 0; the others below 0, where the tail is 1.
        let mut mapped = beyond[(x + down + 1).min(steps.len())];
        // s = i - down, x - s = x + down - i < tail.len().
        let first = (x + down + 1).saturating_sub(tail.len());
        let last = (x + down).min(steps.len() - 1);
        if first <= last {
            let values = tail[x + down - last..=x + down - first].iter().rev();
            mapped += steps[first..=last].iter().zip(values).map(|(p, value)| p * value).sum::<f64>();
        }
        let own = tail.get(x).copied().unwrap_or(0.0);
        let off = (mapped - own).abs() + mapped * share + (mapped + own) * 2.0 * U;
        residual = residual.max((mapped - own).abs());
        error = error.max(off / power);
        power *= ratio * (1.0 - 2.0 * U);
        if power < f64::MIN_POSITIVE {
            return None;
        }
    }
    // Beyond the table T H' is 0, as H' is.
    let error = error / slack * (1.0 + 8.0 * U);
    (slack > 0.0 && error.is_finite()).then_some((error, residual))
}

/// The stationary distribution of what arrivals find.
#[derive(Clone, PartialEq, Debug)]
pub struct Solution {
    model: Model,
    tail: Vec<f64>,
    error: f64,
    ratio: f64,
    residual: f64,
}

impl Solution {
    /// P(v <= k Q), at most P(response <= k T). Both are equal for a hard reservation with arrivals
    /// at whole periods.
    ///
    /// `high` is 1 where times between arrivals had to be cut to keep the chain small.
    #[must_use]
    pub fn within(&self, k: u64) -> Enclosure {
        let room = k.saturating_mul(self.model.budget);
        if self.tail.is_empty() && room >= self.model.exec.max() {
            return Enclosure { low: 1.0, estimate: 1.0, high: 1.0 };
        }
        let (mut above, mut least, mut most) = (0.0f64, 0.0f64, 0.0f64);
        for (c, p) in self.model.exec.shares() {
            let (value, low, high) = match room.checked_sub(c) {
                None => (1.0, 1.0, 1.0),
                Some(left) => {
                    let at = usize::try_from(left).unwrap_or(usize::MAX);
                    let value = self.tail.get(at).copied().unwrap_or(0.0);
                    let error = self.error * power(self.ratio, left) * (1.0 + (4.0 * left as f64 + 16.0) * U);
                    (value, (value - error).max(0.0), (value + error).min(1.0))
                }
            };
            above += p * value;
            least += p * low;
            most += p * high;
        }
        let share = 1.0 + (self.model.exec.points().len() as f64 + 16.0) * 2.0 * U;
        let low = (1.0 - most * share - 2.0 * U).max(0.0);
        let high = if self.model.cut { 1.0 } else { (1.0 - least / share + 2.0 * U).min(1.0) };
        Enclosure { low, estimate: (1.0 - above).clamp(low, high), high }
    }

    /// The largest |T H' - H'| of the computed tail: how well the equations hold.
    #[must_use]
    pub fn residual(&self) -> f64 {
        self.residual
    }
}

/// The fast bound.
#[derive(Clone, PartialEq, Debug)]
pub struct Fast {
    ratio: f64,
    exec: Pmf,
    budget: u64,
}

impl Fast {
    /// A lower bound of P(v <= k Q).
    #[must_use]
    pub fn within(&self, k: u64) -> f64 {
        let room = k.saturating_mul(self.budget);
        if self.ratio == 0.0 && room >= self.exec.max() {
            return 1.0;
        }
        let mut above = 0.0;
        for (c, p) in self.exec.shares() {
            above += match room.checked_sub(c) {
                None => p,
                Some(left) => {
                    let left = left.saturating_add(1);
                    p * (power(self.ratio, left) * (1.0 + (4.0 * left as f64 + 16.0) * U)).min(1.0)
                }
            };
        }
        (1.0 - above * (1.0 + (self.exec.points().len() as f64 + 16.0) * 2.0 * U) - 2.0 * U).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_solutions_get_wide_bounds_that_hold() {
        let exec = Pmf::new([(1, 4), (3, 3), (9, 2)]).expect("weights");
        let model = Model::new(&exec, &Pmf::new([(8, 1), (16, 2)]).expect("weights"), 8, 3, 1).expect("it is small");
        let right = model.solve().expect("it is stable");
        let (steps, down) = model.steps();
        // The proven interval contains the true value for any numerical result.
        let spoil: [&dyn Fn(usize, f64) -> f64; 5] = [
            &|_, _| 0.0,
            &|_, value| value * 1.01,
            &|x, value| if x == 3 { value / 2.0 } else { value },
            &|x, value| if x > 20 { 0.0 } else { value },
            &|x, value| value + 1e-6 / (1.0 + x as f64),
        ];
        for (i, spoil) in spoil.iter().enumerate() {
            let tail: Vec<f64> = right.tail.iter().enumerate().map(|(x, value)| spoil(x, *value)).collect();
            let Some((error, residual)) = verify(&steps, down, &tail, right.ratio) else { continue };
            let spoilt = Solution { tail, error, residual, ..right.clone() };
            for k in 1..10 {
                let (wide, tight) = (spoilt.within(k), right.within(k));
                assert!(wide.low <= tight.high && wide.high >= tight.low, "{i} {k}: {wide:?} {tight:?}");
            }
            assert!(error > 1e3 * right.error, "{i}: {error} {}", right.error);
        }
        assert!(right.error < 1e-11 && right.within(1).high - right.within(1).low < 1e-11);
    }

    #[test]
    fn powers_are_those_of_multiplication() {
        let mut product = 1.0f64;
        for n in 0..2_000u64 {
            let off = (power(0.99, n) - product).abs() / product;
            assert!(off <= 4.0 * (n + 1) as f64 * U, "{n}: {off}");
            product *= 0.99;
        }
    }
}
