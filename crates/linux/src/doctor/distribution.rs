//! A histogram of measured spans, with bounded size and error.

use takt_model::Span;

/// Values below this have a bucket each.
const EXACT: u64 = 256;
/// Buckets of each further power of two: an error below 0.8 %.
const PARTS: u64 = 128;
/// Buckets up to 2^64.
const BUCKETS: usize = (EXACT + 56 * PARTS) as usize;

/// Spans by their frequency. Minimum, maximum and count are exact; quantiles are the upper end of a
/// bucket, at most 0.8 % above.
///
/// ```
/// use takt_linux::doctor::Distribution;
/// use takt_model::Span;
/// let mut seen = Distribution::new();
/// (1..=1000).for_each(|us| seen.record(Span::from_us(us)));
/// assert_eq!((seen.count(), seen.max()), (1000, Some(Span::from_us(1000))));
/// let p99 = seen.quantile(990).unwrap();
/// assert!(p99 >= Span::from_us(990) && p99 <= Span::from_us(998));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    buckets: Vec<u64>,
    count: u64,
    min: u64,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution::new()
    }
}

fn bucket(ns: u64) -> usize {
    if ns < EXACT {
        return ns as usize;
    }
    let exponent = u64::from(63 - ns.leading_zeros());
    let part = (ns >> (exponent - 7)) & (PARTS - 1);
    (EXACT + (exponent - 8) * PARTS + part) as usize
}

/// The greatest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let (exponent, part) = ((bucket - EXACT) / PARTS + 8, (bucket - EXACT) % PARTS);
    let width = 1u64 << (exponent - 7);
    (1u64 << exponent).saturating_add(part * width).saturating_add(width - 1)
}

impl Distribution {
    /// Nothing yet; what is recorded later takes no more memory.
    #[must_use]
    pub fn new() -> Distribution {
        Distribution { buckets: vec![0; BUCKETS], count: 0, min: u64::MAX, max: 0 }
    }

    /// Adds a value.
    #[inline]
    pub fn record(&mut self, value: Span) {
        let ns = value.as_ns();
        if let Some(count) = self.buckets.get_mut(bucket(ns)) {
            *count += 1;
        }
        self.count += 1;
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds all values of another histogram.
    pub fn add(&mut self, other: &Distribution) {
        for (own, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += count;
        }
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// A histogram with each value reduced by `less`, down to zero. The error is that of the
    /// buckets.
    #[must_use]
    pub fn less(&self, less: Span) -> Distribution {
        let mut rest = Distribution::new();
        for (value, count) in self.values() {
            let value = value.as_ns().saturating_sub(less.as_ns());
            if let Some(slot) = rest.buckets.get_mut(bucket(value)) {
                *slot += count;
            }
        }
        rest.count = self.count;
        rest.min = if self.count == 0 { u64::MAX } else { self.min.saturating_sub(less.as_ns()) };
        rest.max = self.max.saturating_sub(less.as_ns());
        rest
    }

    /// Values recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value.
    #[must_use]
    pub fn min(&self) -> Option<Span> {
        (self.count > 0).then(|| Span::from_ns(self.min))
    }

    /// The greatest value.
    #[must_use]
    pub fn max(&self) -> Option<Span> {
        (self.count > 0).then(|| Span::from_ns(self.max))
    }

    /// The smallest value that at least `permille` of 1000 values do not exceed (nearest rank).
    #[must_use]
    pub fn quantile(&self, permille: u64) -> Option<Span> {
        let rank = u64::try_from((u128::from(self.count) * u128::from(permille)).div_ceil(1000)).ok()?.max(1);
        let mut before = 0;
        self.values().find_map(|(value, count)| {
            before += count;
            (before >= rank).then_some(value)
        })
    }

    /// Pairs of upper end and count of all nonempty buckets. An upper end is at most the maximum.
    pub fn values(&self) -> impl Iterator<Item = (Span, u64)> {
        let used = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(bucket, count)| (Span::from_ns(upper(bucket).clamp(self.min, self.max)), *count))
    }

    /// Counts of values by power of two (in nanoseconds), from the first nonempty one to the last.
    /// Each count holds the values up to this power and above the previous power.
    #[must_use]
    pub fn octaves(&self) -> Vec<(Span, u64)> {
        let mut octaves: Vec<(Span, u64)> = Vec::new();
        for (value, count) in self.values() {
            let end = Span::from_ns(value.as_ns().max(1).checked_next_power_of_two().unwrap_or(u64::MAX));
            while let Some((last, _)) = octaves.last().copied().filter(|(last, _)| *last < end) {
                octaves.push((Span::from_ns(last.as_ns().saturating_mul(2)), 0));
            }
            match octaves.last_mut() {
                Some((_, sum)) => *sum += count,
                None => octaves.push((end, count)),
            }
        }
        octaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        for ns in (0..100_000).chain([u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 40]) {
            let end = upper(bucket(ns));
            assert!(end >= ns && end - ns <= ns / 128, "{ns} {end}");
            assert!(end == u64::MAX || bucket(end + 1) == bucket(ns) + 1, "{ns}");
        }
    }

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let mut seen = Distribution::new();
        assert_eq!((seen.quantile(500), seen.max(), seen.octaves()), (None, None, vec![]));
        for ns in [10, 20, 30, 40] {
            seen.record(Span::from_ns(ns));
        }
        let at = |permille| seen.quantile(permille).unwrap().as_ns();
        assert_eq!((at(0), at(250), at(251), at(500), at(999), at(1000)), (10, 10, 20, 20, 40, 40));
        let less = seen.less(Span::from_ns(15));
        assert_eq!((less.count(), less.min(), less.max()), (4, Some(Span::ZERO), Some(Span::from_ns(25))));
        let octaves: Vec<(u64, u64)> = seen.octaves().into_iter().map(|(end, count)| (end.as_ns(), count)).collect();
        assert_eq!(octaves, [(16, 1), (32, 2), (64, 1)]);
        let mut twice = seen.clone();
        twice.add(&seen);
        assert_eq!((twice.count(), twice.quantile(500)), (8, seen.quantile(500)));
    }
}
