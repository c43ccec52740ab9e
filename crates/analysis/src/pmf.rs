//! Distributions of whole numbers with whole weights.

/// A distribution: values in increasing order, each with a weight above zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pmf {
    points: Vec<(u64, u64)>,
    total: u64,
}

impl Pmf {
    /// The largest sum of weights.
    pub const TOTAL_MAX: u64 = 1 << 32;

    /// From (value, weight), in any order; equal values are added up. `None` unless the weights add
    /// up to 1 to [`TOTAL_MAX`](Self::TOTAL_MAX).
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = (u64, u64)>) -> Option<Pmf> {
        let mut all: Vec<(u64, u64)> = points.into_iter().filter(|(_, weight)| *weight > 0).collect();
        all.sort_unstable();
        let mut points: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        let mut total = 0u64;
        for (value, weight) in all {
            total = total.checked_add(weight).filter(|total| *total <= Self::TOTAL_MAX)?;
            match points.last_mut() {
                Some((last, sum)) if *last == value => *sum += weight,
                _ => points.push((value, weight)),
            }
        }
        (total > 0).then_some(Pmf { points, total })
    }

    /// Each sample with the same weight. `None` without samples, or with more than 2^32.
    #[must_use]
    pub fn of_samples(samples: &[u64]) -> Option<Pmf> {
        Pmf::new(samples.iter().map(|sample| (*sample, 1)))
    }

    /// One value.
    #[must_use]
    pub fn certain(value: u64) -> Pmf {
        Pmf { points: vec![(value, 1)], total: 1 }
    }

    /// (value, weight), values increasing.
    #[must_use]
    pub fn points(&self) -> &[(u64, u64)] {
        &self.points
    }

    /// The sum of the weights.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The smallest value.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.points.first().map_or(0, |(value, _)| *value)
    }

    /// The largest value.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.points.last().map_or(0, |(value, _)| *value)
    }

    /// The mean as a fraction: (sum of value times weight, sum of weights).
    #[must_use]
    pub fn mean(&self) -> (u128, u64) {
        // Below 2^64 * 2^32.
        (self.points.iter().map(|(value, weight)| u128::from(*value) * u128::from(*weight)).sum(), self.total)
    }

    /// The same with every value replaced.
    #[must_use]
    pub fn map(&self, value: impl Fn(u64) -> u64) -> Pmf {
        let points = self.points.iter().map(|(old, weight)| (value(*old), *weight));
        Pmf::new(points).expect("the weights are those of a distribution")
    }

    /// (value, probability) in floating point; each probability is off by less than 2 ulp.
    pub(crate) fn shares(&self) -> Vec<(u64, f64)> {
        self.points.iter().map(|(value, weight)| (*value, *weight as f64 / self.total as f64)).collect()
    }
}
