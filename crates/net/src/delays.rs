//! Delays as functions of drawn bits.

use std::sync::Arc;

use takt_model::{Probability, Span};
use thiserror::Error;

/// How the delay of a packet is chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delays {
    /// Uniform over the whole nanoseconds of [min, max].
    Uniform {
        /// Best case.
        min: Span,
        /// Worst case.
        max: Span,
    },
    /// Values with their probabilities.
    Pmf(Vec<(Span, Probability)>),
    /// Measured delays, by number of the packet and again from the start. The draw does not count.
    Trace(Arc<[Span]>),
}

/// Why delays cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DelaysError {
    /// The best case is above the worst.
    #[error("the least delay {min} is above the largest, {max}; swap them")]
    Reversed {
        /// Best case.
        min: Span,
        /// Worst case.
        max: Span,
    },
    /// No value.
    #[error("the delays have no value; give at least one")]
    Empty,
    /// Probabilities that do not add up.
    #[error("the probabilities of the delays add up to {sum} billionths; they must add up to 1000000000")]
    Sum {
        /// Their sum.
        sum: u64,
    },
}

impl Delays {
    /// Checks them.
    ///
    /// # Errors
    /// If they have no value, the interval is reversed, or probabilities do not add up to 1.
    pub fn check(&self) -> Result<(), DelaysError> {
        match self {
            Delays::Uniform { min, max } if min > max => Err(DelaysError::Reversed { min: *min, max: *max }),
            Delays::Uniform { .. } => Ok(()),
            Delays::Trace(values) if values.is_empty() => Err(DelaysError::Empty),
            Delays::Trace(_) => Ok(()),
            Delays::Pmf(pmf) if pmf.is_empty() => Err(DelaysError::Empty),
            Delays::Pmf(pmf) => {
                let sum = pmf.iter().map(|(_, probability)| u64::from(probability.billionths())).sum();
                if sum == u64::from(Probability::ONE.billionths()) { Ok(()) } else { Err(DelaysError::Sum { sum }) }
            }
        }
    }

    /// The delay of packet `number`, for 64 drawn bits.
    #[inline]
    #[must_use]
    pub fn choose(&self, draw: u64, number: u64) -> Span {
        match self {
            Delays::Uniform { min, max } => {
                let width = u128::from(max.saturating_sub(*min).as_ns()) + 1;
                min.saturating_add(Span::from_ns(((u128::from(draw) * width) >> 64) as u64))
            }
            Delays::Pmf(pmf) => {
                let mut left = billionths(draw);
                for (value, probability) in pmf {
                    match left.checked_sub(probability.billionths()) {
                        Some(rest) => left = rest,
                        None => return *value,
                    }
                }
                pmf.last().map_or(Span::ZERO, |(value, _)| *value)
            }
            Delays::Trace(values) => match values.len() as u64 {
                0 => Span::ZERO,
                len => values.get((number % len) as usize).copied().unwrap_or(Span::ZERO),
            },
        }
    }

    /// The least and the largest delay.
    #[must_use]
    pub fn range(&self) -> (Span, Span) {
        let of = |values: &mut dyn Iterator<Item = Span>| {
            values.fold((Span::MAX, Span::ZERO), |(least, most), value| (least.min(value), most.max(value)))
        };
        match self {
            Delays::Uniform { min, max } => (*min, *max),
            Delays::Pmf(pmf) => {
                of(&mut pmf.iter().filter(|(_, likely)| *likely != Probability::NONE).map(|(value, _)| *value))
            }
            Delays::Trace(values) => of(&mut values.iter().copied()),
        }
    }
}

/// Whether an event of this probability happens, for 64 drawn bits.
#[inline]
pub(crate) fn happens(probability: Probability, draw: u64) -> bool {
    billionths(draw) < probability.billionths()
}

/// A draw in [0, 10^9).
#[inline]
fn billionths(draw: u64) -> u32 {
    ((u128::from(draw) * u128::from(Probability::ONE.billionths())) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NS: fn(u64) -> Span = Span::from_ns;

    #[test]
    fn draws_reach_both_ends_and_nothing_else() {
        let uniform = Delays::Uniform { min: NS(3), max: NS(6) };
        let quarter = 1u64 << 62;
        let chosen: Vec<u64> = (0..4).map(|i| uniform.choose(i * quarter, 0).as_ns()).collect();
        assert_eq!((chosen, uniform.choose(u64::MAX, 0)), (vec![3, 4, 5, 6], NS(6)));
        let trace = Delays::Trace([9, 7].map(NS).into());
        assert_eq!([0, 1, 2].map(|number| trace.choose(5, number).as_ns()), [9, 7, 9]);
        let whole = Delays::Uniform { min: Span::ZERO, max: Span::MAX };
        assert_eq!(whole.choose(u64::MAX, 0), Span::MAX);
    }

    #[test]
    fn a_pmf_gives_each_value_its_part_of_the_draws() {
        let part = |billionths| Probability::from_billionths(billionths).unwrap();
        let pmf = Delays::Pmf(vec![(NS(1), part(250_000_000)), (NS(9), part(750_000_000)), (NS(20), part(0))]);
        let short = (0..1_000u64).filter(|i| pmf.choose(i * (u64::MAX / 1_000), 0) == NS(1)).count();
        assert!((249..=251).contains(&short), "{short}");
        assert_eq!((pmf.range(), pmf.choose(u64::MAX, 0)), ((NS(1), NS(9)), NS(9)));
        assert!(happens(part(1), 0) && !happens(Probability::NONE, 0) && happens(Probability::ONE, u64::MAX));
    }

    #[test]
    fn bad_delays_say_what_to_do() {
        let half = Probability::from_billionths(500_000_000).unwrap();
        for (delays, expected) in [
            (Delays::Uniform { min: NS(2), max: NS(1) }, "swap"),
            (Delays::Pmf(Vec::new()), "at least one"),
            (Delays::Trace(Vec::new().into()), "at least one"),
            (Delays::Pmf(vec![(NS(1), half)]), "500000000"),
        ] {
            let error = delays.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_delay_is_in_its_range(draw: u64, number: u64, a: u64, b: u64) {
            let (min, max) = (NS(a.min(b)), NS(a.max(b)));
            for delays in [Delays::Uniform { min, max }, Delays::Trace([min, max].into())] {
                prop_assert!(delays.check().is_ok());
                let chosen = delays.choose(draw, number);
                prop_assert!(chosen >= min && chosen <= max);
                prop_assert_eq!(delays.range(), (min, max));
            }
        }
    }
}
