//! A distribution of times: exact count, sum and ends, three significant digits in between.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

/// Larger values are cut off, far beyond any real time (292 years).
const VALUE_MAX: u64 = i64::MAX as u64;
/// Below 2^11 every value has a bucket of its own; above, values share one that agree in their first 11 bits.
const EXACT: u64 = 1 << 11;
/// Buckets per power of two.
const HALF: usize = 1 << 10;
/// Buckets in a page; pages come into being as values fall into them.
const PAGE: usize = 128;

/// How often each time occurred, in nanoseconds. A histogram of three significant digits: a bucket
/// is no wider than a 1024th of its values. The exact count, sum, least and largest value are kept
/// beside it. Values above `i64::MAX` count as that.
///
/// The buckets are those of an HdrHistogram with three significant digits; memory is a few KiB for each
/// power of two that values fall into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    pages: Vec<Option<Box<[u64; PAGE]>>>,
    count: u64,
    sum: u128,
    /// The sum of the squares, modulo 2^128: see [`Histogram::deviation`].
    squares: u128,
    min: u64,
    max: u64,
}

/// One bucket of a [`Histogram`] that holds something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// The largest value that belongs to it, at most the largest recorded.
    pub upper_ns: u64,
    /// How many values it holds.
    pub count: u64,
}

/// A distribution in a few numbers (nanoseconds).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Summary<T> {
    /// How many values there are.
    pub count: u64,
    /// The least, exact.
    pub min: T,
    /// The mean, rounded down.
    pub mean: T,
    /// The standard deviation of these values (not an estimate for others: divided by their count), rounded down.
    pub deviation: u64,
    /// The median by nearest rank, to three significant digits, rounded to the unfavourable side.
    pub p50: T,
    /// The 90th percentile likewise.
    pub p90: T,
    /// The 99th percentile likewise; laxities ascend, too, so that it is near the largest.
    pub p99: T,
    /// The 99.9th percentile likewise.
    pub p999: T,
    /// The largest, exact.
    pub max: T,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { pages: Vec::new(), count: 0, sum: 0, squares: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// [`Histogram::record`] where a call is better than its code.
    #[inline(never)]
    pub(super) fn record_apart(&mut self, ns: u64) {
        self.record(ns);
    }

    /// Adds a value.
    #[inline(always)]
    pub fn record(&mut self, ns: u64) {
        let ns = ns.min(VALUE_MAX);
        let bucket = bucket_of(ns);
        match self.pages.get_mut(bucket / PAGE) {
            Some(Some(page)) => page[bucket % PAGE] += 1,
            _ => self.add_page(bucket / PAGE)[bucket % PAGE] += 1,
        }
        self.count += 1;
        self.sum += u128::from(ns);
        self.squares = self.squares.wrapping_add(u128::from(ns) * u128::from(ns));
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    #[cold]
    #[inline(never)]
    fn add_page(&mut self, page: usize) -> &mut [u64; PAGE] {
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]))
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all values, exact.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The buckets that hold something, ascending: a cumulative sum over them is the distribution's CDF.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let pages = self.pages.iter().enumerate().filter_map(|(i, page)| Some((i * PAGE, page.as_ref()?)));
        let counts = pages.flat_map(|(first, page)| page.iter().enumerate().map(move |(i, count)| (first + i, *count)));
        counts
            .filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| Bucket { upper_ns: upper_end(bucket).min(self.max), count })
    }

    /// The value of a rank, counted from one: the upper end of its bucket, at most the largest value. `None`
    /// for rank zero and beyond the count.
    #[must_use]
    pub fn at_rank(&self, rank: u64) -> Option<u64> {
        let mut seen = 0;
        if rank == 0 {
            return None;
        }
        self.buckets().find_map(|bucket| {
            seen += bucket.count;
            (seen >= rank).then_some(bucket.upper_ns)
        })
    }

    /// The nearest-rank quantile `percent`: the value of rank ceil(percent/100 * count), see [`Histogram::at_rank`].
    /// `None` without values or outside of 1 to 100.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        if percent > 100 { None } else { self.at_rank(nearest_rank(10 * percent, self.count())) }
    }

    /// The standard deviation of the values, rounded down: the root of the mean square of their distances from
    /// their mean. `None` without values.
    ///
    /// Exact by whole numbers: with q = floor(sum / n) and r = sum - n q, let A = squares - n q^2 -
    /// 2 q r. A is the sum of the squared distances from q. The variance is A / n - (r / n)^2.
    ///
    /// A is far below 2^128 for all real times. The sum of the squares may not be, so squares are
    /// summed modulo 2^128. If A might reach 2^128 (10^9 values that are spread over more than a
    /// week), this is the largest deviation that the range allows.
    #[must_use]
    pub fn deviation(&self) -> Option<u64> {
        let n = u128::from(self.count);
        let q = self.sum.checked_div(n)?;
        let r = self.sum - n * q;
        let half = u128::from(self.max - self.min).div_ceil(2);
        if (half * half).saturating_add(1).checked_mul(n).is_none() {
            return u64::try_from(half).ok();
        }
        let below = n.wrapping_mul(q).wrapping_mul(q).wrapping_add(2u128.wrapping_mul(q).wrapping_mul(r));
        let around = self.squares.wrapping_sub(below);
        u64::try_from((around.saturating_sub((r * r).div_ceil(n)) / n).isqrt()).ok()
    }

    /// Adds all values of another.
    pub fn merge(&mut self, other: &Histogram) {
        for (i, page) in other.pages.iter().enumerate() {
            if let Some(page) = page {
                let mine = self.add_page(i);
                mine.iter_mut().zip(page.iter()).for_each(|(mine, other)| *mine += other);
            }
        }
        self.count += other.count;
        self.sum += other.sum;
        self.squares = self.squares.wrapping_add(other.squares);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The values themselves in a few numbers; `None` without values.
    #[must_use]
    pub fn summary(&self) -> Option<Summary<u64>> {
        let count = self.count();
        let [p50, p90, p99, p999] =
            self.at_ranks([500, 900, 990, 999].map(|permille| nearest_rank(permille, count)))?;
        let mean = u64::try_from(self.sum.checked_div(u128::from(count))?).unwrap_or(u64::MAX);
        let deviation = self.deviation()?;
        Some(Summary { count, min: self.min, mean, deviation, p50, p90, p99, p999, max: self.max })
    }

    /// `deadline` minus the values, in a few numbers: laxities of jobs with these responses. A quantile is the
    /// deadline minus the *upper* end of the response's bucket: never more laxity than there was.
    #[must_use]
    pub fn laxities(&self, deadline_ns: u64) -> Option<Summary<i64>> {
        let count = self.count();
        let less = |response: u64| narrow(i128::from(deadline_ns) - i128::from(response));
        // The k-th smallest laxity belongs to the k-th largest response.
        let sum = i128::from(deadline_ns) * i128::from(count) - self.sum as i128;
        let ranks = [999, 990, 900, 500].map(|permille| count + 1 - nearest_rank(permille, count));
        let [p999, p99, p90, p50] = self.at_ranks(ranks)?.map(less);
        let mean = narrow(sum.div_euclid(i128::from(count)));
        let deviation = self.deviation()?;
        Some(Summary { count, min: less(self.max), mean, deviation, p50, p90, p99, p999, max: less(self.min) })
    }

    /// The values of ascending ranks, in one pass.
    fn at_ranks<const N: usize>(&self, ranks: [u64; N]) -> Option<[u64; N]> {
        let (mut found, mut next, mut seen) = ([0; N], 0, 0);
        for bucket in self.buckets() {
            seen += bucket.count;
            while next < N && ranks[next] <= seen {
                found[next] = bucket.upper_ns;
                next += 1;
            }
            if next == N {
                return Some(found);
            }
        }
        None
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    let shift = (u64::BITS - 11).saturating_sub(value.leading_zeros());
    shift as usize * HALF + (value >> shift) as usize
}

fn upper_end(bucket: usize) -> u64 {
    if bucket < EXACT as usize {
        return bucket as u64;
    }
    let shift = bucket / HALF - 1;
    (((bucket - shift * HALF) as u64 + 1) << shift) - 1
}

/// ceil(permille/1000 * count).
fn nearest_rank(permille: u64, count: u64) -> u64 {
    (u128::from(permille) * u128::from(count)).div_ceil(1000) as u64
}

fn narrow(value: i128) -> i64 {
    value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Writes a missing summary as a summary of nulls, so that the shape stays the same.
pub(super) fn or_nulls<T: Serialize, S: Serializer>(summary: &Option<Summary<T>>, to: S) -> Result<S::Ok, S::Error> {
    match summary {
        Some(summary) => summary.serialize(to),
        None => {
            let mut map = to.serialize_map(Some(9))?;
            map.serialize_entry("count", &0)?;
            for key in ["min", "mean", "deviation", "p50", "p90", "p99", "p999", "max"] {
                map.serialize_entry(key, &None::<u64>)?;
            }
            map.end()
        }
    }
}

/// The same where the whole key may be absent.
pub(super) fn or_nulls_inside<T: Serialize, S: Serializer>(
    summary: &Option<Option<Summary<T>>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    or_nulls(summary.as_ref().unwrap_or(&None), to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    #[test]
    fn small_values_are_exact() {
        let histogram = of(&[4, 1, 2, 3, 5]);
        let summary = Summary { count: 5, min: 1, mean: 3, deviation: 1, p50: 3, p90: 5, p99: 5, p999: 5, max: 5 };
        assert_eq!(histogram.summary(), Some(summary));
        let summary = Summary { count: 5, min: -1, mean: 1, deviation: 1, p50: 1, p90: 3, p99: 3, p999: 3, max: 3 };
        assert_eq!(histogram.laxities(4), Some(summary));
        let summary =
            Summary { count: 2, min: -2, mean: -2, deviation: 0, p50: -2, p90: -1, p99: -1, p999: -1, max: -1 };
        assert_eq!(of(&[1, 2]).laxities(0), Some(summary));
        assert_eq!((of(&[]).summary(), of(&[]).laxities(4)), (None, None));
    }

    #[test]
    fn quantiles_err_to_the_unfavourable_side_by_less_than_a_thousandth() {
        let values: Vec<u64> = (0..1000u64).map(|i| i * i * i * 7919 + 13).collect();
        let histogram = of(&values);
        for percent in 1..=100 {
            let exact = values[(percent * 10 - 1) as usize];
            let found = histogram.percentile(percent).unwrap();
            assert!(exact <= found && found <= exact + exact / 1000, "{percent}: {exact} {found}");
        }
        let laxities = histogram.laxities(1_000_000_000).unwrap();
        let exact = 1_000_000_000 - values[500] as i64;
        assert!(laxities.p50 <= exact && exact - laxities.p50 <= values[500] as i64 / 1000);
        assert_eq!(laxities.min, 1_000_000_000 - values[999] as i64);
    }

    #[test]
    fn deviations_are_exact() {
        assert_eq!(of(&[7]).deviation(), Some(0));
        assert_eq!(of(&[]).deviation(), None);
        // Mean 5, squares of distances 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, over 8: 4.
        assert_eq!(of(&[2, 4, 4, 4, 5, 5, 7, 9]).deviation(), Some(2));
        // The same far from zero, where the squares are beyond 2^128 and only their difference is not.
        let far = 1u64 << 62;
        let mut many = of(&[]);
        for _ in 0..100 {
            many.merge(&of(&[2, 4, 4, 4, 5, 5, 7, 9].map(|x| x + far)));
        }
        assert_eq!(many.deviation(), Some(2));
        // Rounded down: the variance of 0 and 3 is 2.25, of 0, 0, 1: 2/9; of 1, 2, 4: 14/9.
        assert_eq!([of(&[0, 3]), of(&[0, 0, 1]), of(&[10, 20, 40])].map(|h| h.deviation()), [1, 0, 12].map(Some));
        // Half of the range where it might be too much to count.
        let mut huge = of(&[0, u64::MAX]);
        (0..40).for_each(|_| huge.merge(&huge.clone()));
        assert_eq!(huge.deviation(), Some(1 << 62));
    }

    #[test]
    fn buckets_are_those_of_an_hdr_histogram() {
        let mut reference = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 50, 3).unwrap();
        reference.auto(true);
        let mut histogram = Histogram::default();
        let near_powers = (0..50).flat_map(|e| (0..5u64).map(move |d| ((1u64 << e) + d).saturating_sub(2)));
        let spread = (1..5000u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (14 + i % 50));
        for value in near_powers.chain(spread).chain([0, 2047, 2048, 2049, 4095, 4096]) {
            reference.record(value).unwrap();
            histogram.record(value);
        }
        let steps = reference.iter_recorded().map(|step| Bucket {
            upper_ns: reference.highest_equivalent(step.value_iterated_to()).min(histogram.max),
            count: step.count_since_last_iteration(),
        });
        assert!(histogram.buckets().eq(steps));
    }

    #[test]
    fn any_value_is_taken() {
        let mut histogram = of(&[0, u64::MAX, 1 << 40]);
        histogram.merge(&of(&[7]));
        let summary = histogram.summary().unwrap();
        assert_eq!((summary.min, summary.max, histogram.count()), (0, i64::MAX as u64, 4));
        assert_eq!(histogram.buckets().map(|bucket| bucket.count).sum::<u64>(), 4);
    }
}
