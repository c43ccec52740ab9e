//! Periods of generated tasks.

use super::automotive;
use super::draws::{Draws, Use};
use super::math::{exp, ln, pick};
use crate::time::Span;

/// How the periods of a set are drawn.
#[derive(Clone, PartialEq, Debug)]
pub enum Periods {
    /// Every order of magnitude is equally likely (P. Emberson, R. Stafford, R. I. Davis, WATERS
    /// 2010).
    LogUniform {
        /// The shortest.
        min: Span,
        /// The longest.
        max: Span,
    },
    /// Every period is equally likely.
    Uniform {
        /// The shortest.
        min: Span,
        /// The longest.
        max: Span,
    },
    /// A chain `min`, `min` f1, `min` f1 f2, .. up to `max`, with factors 2 to 4 drawn for each
    /// set. A task takes any of them. Each period divides all longer ones.
    Harmonic {
        /// The first.
        min: Span,
        /// The longest possible period.
        max: Span,
    },
    /// Divisors of a hyperperiod: log-uniform, then the longest divisor that is not longer.
    Divisors {
        /// The shortest.
        min: Span,
        /// The longest.
        max: Span,
        /// The hyperperiod that all of them divide.
        hyperperiod: Span,
    },
    /// 1 to 1000 ms with the shares of runnables in engine control, without the angle-synchronous
    /// ones ([`automotive::PERIODS`]).
    Automotive,
}

/// Periods ready to draw from; in units of the grain.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Drawer {
    Log { min: u64, max: u64, ln_ratio: f64 },
    Even { min: u64, max: u64 },
    Chain { min: u64, max: u64 },
    Listed { values: Vec<u64>, ln_ratio: f64 },
    Shares(Vec<(u64, u64)>),
}

/// The most divisors of a hyperperiod.
pub(crate) const DIVISORS_MAX: usize = 100_000;

impl Drawer {
    /// `None` if no period fits.
    pub(crate) fn new(periods: &Periods, grain: u64) -> Option<Drawer> {
        // Rounded inwards.
        let range = |min: Span, max: Span| {
            let (min, max) = (min.as_ns().div_ceil(grain).max(1), max.as_ns() / grain);
            (min <= max).then_some((min, max))
        };
        Some(match periods {
            Periods::LogUniform { min, max } => {
                let (min, max) = range(*min, *max)?;
                // One more than `max`, so that the longest period gets its share.
                Drawer::Log { min, max, ln_ratio: ln((max + 1) as f64 / min as f64) }
            }
            Periods::Uniform { min, max } => {
                let (min, max) = range(*min, *max)?;
                Drawer::Even { min, max }
            }
            Periods::Harmonic { min, max } => {
                let (min, max) = range(*min, *max)?;
                Drawer::Chain { min, max }
            }
            Periods::Divisors { min, max, hyperperiod } => {
                let (min, max) = range(*min, *max)?;
                let values = divisors(hyperperiod.as_ns() / grain, min, max);
                let ln_ratio = ln((max + 1) as f64 / *values.first()? as f64);
                Drawer::Listed { values, ln_ratio }
            }
            Periods::Automotive => {
                let shares: Vec<(u64, u64)> = automotive::PERIODS
                    .iter()
                    .filter(|class| !class.period.is_zero() && class.period.as_ns() % grain == 0)
                    .map(|class| (class.period.as_ns() / grain, class.share))
                    .collect();
                (!shares.is_empty()).then_some(Drawer::Shares(shares))?
            }
        })
    }

    /// The period of a task, in grains.
    pub(crate) fn draw(&self, draws: &Draws, task: u32) -> u64 {
        match self {
            Drawer::Log { min, max, ln_ratio } => {
                let drawn = *min as f64 * exp(draws.unit(task, Use::Period, 0) * ln_ratio);
                (drawn as u64).clamp(*min, *max)
            }
            Drawer::Even { min, max } => draws.between(task, Use::Period, 0, *min, *max),
            Drawer::Chain { min, max } => {
                let chain = |link: &(u32, u64)| {
                    let next = link.1.checked_mul(draws.between(link.0, Use::Chain, 0, 2, 4))?;
                    (next <= *max).then_some((link.0 + 1, next))
                };
                let links = || std::iter::successors(Some((0, *min)), chain);
                let place = draws.between(task, Use::Period, 0, 0, links().count() as u64 - 1);
                links().nth(place as usize).map_or(*min, |(_, period)| period)
            }
            Drawer::Listed { values, ln_ratio } => {
                let drawn = values[0] as f64 * exp(draws.unit(task, Use::Period, 0) * ln_ratio);
                let place = values.partition_point(|value| *value as f64 <= drawn);
                values[place.max(1) - 1]
            }
            Drawer::Shares(shares) => pick(shares, draws.bits(task, Use::Period, 0)),
        }
    }
}

/// The divisors of a number within [min, max], ascending; at most [`DIVISORS_MAX`].
fn divisors(number: u64, min: u64, max: u64) -> Vec<u64> {
    let mut found = vec![1u64];
    let (mut rest, mut prime) = (number, 2u64);
    while rest > 1 {
        if prime.saturating_mul(prime) > rest {
            prime = rest;
        }
        let (before, mut power) = (found.len(), 1u64);
        while rest.is_multiple_of(prime) {
            rest /= prime;
            power *= prime;
            for i in 0..before {
                if found.len() < DIVISORS_MAX {
                    found.push(found[i] * power);
                }
            }
        }
        prime += 1;
    }
    found.retain(|divisor| number > 0 && (min..=max).contains(divisor));
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(periods: &Periods, sets: u64) -> Vec<Vec<u64>> {
        let drawer = Drawer::new(periods, 1_000).expect("a range");
        (0..sets).map(|set| (0..8).map(|task| drawer.draw(&Draws::of_set(3, set), task) * 1_000).collect()).collect()
    }

    #[test]
    fn log_uniform_periods_fill_each_decade_alike_and_uniform_ones_do_not() {
        let (min, max) = (Span::from_ms(1), Span::from_ms(1000));
        let share = |periods: &Periods| {
            let all: Vec<u64> = drawn(periods, 2_000).concat();
            assert!(all.iter().all(|t| (1_000_000..=1_000_000_000).contains(t) && t % 1_000 == 0));
            [10_000_000, 100_000_000].map(|to| all.iter().filter(|t| **t < to).count() as f64 / all.len() as f64)
        };
        let [low, middle] = share(&Periods::LogUniform { min, max });
        assert!((low - 1.0 / 3.0).abs() < 0.012 && (middle - 2.0 / 3.0).abs() < 0.012, "{low} {middle}");
        let [low, middle] = share(&Periods::Uniform { min, max });
        assert!((low - 0.009).abs() < 0.003 && (middle - 0.099).abs() < 0.008, "{low} {middle}");
    }

    #[test]
    fn harmonic_periods_divide_each_other_and_divisors_their_hyperperiod() {
        let (min, max) = (Span::from_ms(5), Span::from_ms(700));
        let sets = drawn(&Periods::Harmonic { min, max }, 300);
        for set in &sets {
            assert!(set.iter().all(|a| set.iter().all(|b| a % b == 0 || b % a == 0)), "{set:?}");
            assert!(set.iter().all(|t| t % 5_000_000 == 0 && *t <= 700_000_000));
        }
        assert!(sets.iter().any(|set| set.iter().any(|t| t % 15_000_000 == 0)), "factors differ");
        let hyperperiod = Span::from_ms(2520);
        let all = drawn(&Periods::Divisors { min, max, hyperperiod }, 300).concat();
        assert!(all.iter().all(|t| 2_520_000_000 % t == 0 && (5_000_000..=700_000_000).contains(t)));
        assert!(all.iter().collect::<std::collections::BTreeSet<_>>().len() > 30);
        assert_eq!(divisors(12, 2, 6), [2, 3, 4, 6]);
        assert_eq!((divisors(0, 1, 9), divisors(97, 1, 99)), (vec![], vec![1, 97]));
    }

    #[test]
    fn a_range_without_a_grain_in_it_has_no_period() {
        let (min, max) = (Span::from_ns(1_001), Span::from_ns(1_999));
        assert_eq!(Drawer::new(&Periods::Uniform { min, max }, 1_000), None);
        assert_eq!(Drawer::new(&Periods::Automotive, 7_000), None);
    }
}
