//! The distribution of execution times.
//!
//! A maximum is no worst case: it is the longest time of n jobs. One statement needs no assumption
//! about the distribution. If later jobs are like those seen, at least the share 0.05^(1/n) of them
//! needs no more, at 95 % confidence (S. S. Wilks, "Determination of sample sizes for setting
//! tolerance limits", Ann. Math. Stat. 12, 1941).

use takt_model::{Probability, Span};

use super::arrivals::holds_for;
use super::sample::Sample;

/// The execution times of a task.
#[derive(Clone, PartialEq, Debug)]
pub struct Execution {
    /// The number of jobs behind it: those seen from release to completion, without a loss between.
    pub jobs: u64,
    /// The shortest.
    pub min: Span,
    /// The mean, rounded down.
    pub mean: Span,
    /// The longest that was seen.
    pub max: Span,
    /// A bounded number of values, ascending, the last one `max`; each stands for the times above
    /// the value before. A job drawn from these needs at least what it did: they are rounded up.
    /// The probabilities sum to one, none is zero.
    pub pmf: Vec<(Span, Probability)>,
    /// Share of jobs that need at most `max`, at 95 % confidence, if later ones are like these.
    pub confidence: f64,
}

impl Execution {
    /// From a sample, with at most `points` values. `None` if no job was seen whole.
    #[must_use]
    pub fn of(sample: &Sample, points: usize) -> Option<Execution> {
        let mut values: Vec<u64> = sample.jobs.iter().filter_map(|job| job.exec).map(Span::as_ns).collect();
        values.sort_unstable();
        let (min, last) = (*values.first()?, *values.last()?);
        let max = sample.longest.map_or(last, |longest| longest.as_ns().max(last));
        let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
        let n = values.len() as u64;
        let mut pmf = rounded_up(&values, points);
        if let Some(top) = pmf.last_mut() {
            top.0 = Span::from_ns(max);
        }
        Some(Execution {
            jobs: n,
            min: Span::from_ns(min),
            mean: Span::from_ns((sum / u128::from(n)) as u64),
            max: Span::from_ns(max),
            pmf,
            confidence: holds_for(n, 0),
        })
    }
}

/// At most `points` values for all of an ascending list. Each stands for those above the value
/// before.
pub(crate) fn rounded_up(values: &[u64], points: usize) -> Vec<(Span, Probability)> {
    let ends = ends(values, points, |at| at + 1 == values.len() || values[at] != values[at + 1]);
    weighed(values.len(), ends.iter().map(|end| (values[*end], *end + 1)))
}

/// The same, but each value stands for those from it up to the next. This rounds down, since
/// shorter distances are worse.
pub(crate) fn rounded_down(values: &[u64], points: usize) -> Vec<(Span, Probability)> {
    let ends = ends(values, points, |at| at + 1 == values.len() || values[at] != values[at + 1]);
    let starts = std::iter::once(0).chain(ends.iter().map(|end| end + 1));
    weighed(values.len(), starts.zip(&ends).map(|(start, end)| (values[start], *end + 1)))
}

/// The last indices of at most `points` stretches of nearly equal weight, each at an index where a
/// stretch may end.
fn ends(values: &[u64], points: usize, may_end: impl Fn(usize) -> bool) -> Vec<usize> {
    let all: Vec<usize> = (0..values.len()).filter(|at| may_end(*at)).collect();
    if all.len() <= points.max(1) {
        return all;
    }
    let points = points.max(1);
    let mut kept: Vec<usize> = Vec::with_capacity(points);
    for end in all {
        let due = (kept.len() + 1) * values.len() / points;
        if end + 1 >= due || end + 1 == values.len() {
            kept.push(end);
        }
    }
    kept
}

/// Values with how many of `n` lie up to each: probabilities in billionths that sum to one.
fn weighed(n: usize, values: impl Iterator<Item = (u64, usize)>) -> Vec<(Span, Probability)> {
    let one = u128::from(Probability::ONE.billionths());
    let (mut pmf, mut told): (Vec<(Span, Probability)>, u128) = (Vec::new(), 0);
    for (value, up_to) in values {
        // Rounded down each time, so that longer times get the rest.
        let upper = if up_to == n { one } else { one * up_to as u128 / n.max(1) as u128 };
        if let Some(probability) = Probability::from_billionths((upper - told) as u32)
            && upper > told
        {
            pmf.push((Span::from_ns(value), probability));
        }
        told = upper;
    }
    pmf
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pmf: &[(Span, Probability)]) -> String {
        let cells: Vec<String> = pmf.iter().map(|(value, p)| format!("{}:{p}", value.as_ns())).collect();
        cells.join(" ")
    }

    #[test]
    fn few_values_are_told_exactly() {
        assert_eq!(shown(&rounded_up(&[5, 5, 5, 9], 4)), "5:0.75 9:0.25");
        assert_eq!(shown(&rounded_down(&[5, 5, 5, 9], 4)), "5:0.75 9:0.25");
        assert_eq!(shown(&rounded_up(&[1, 2, 3], 8)), "1:0.333333333 2:0.333333333 3:0.333333334");
    }

    #[test]
    fn many_values_are_rounded_to_the_safe_side() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(shown(&rounded_up(&values, 4)), "25:0.25 50:0.25 75:0.25 100:0.25");
        assert_eq!(shown(&rounded_down(&values, 4)), "1:0.25 26:0.25 51:0.25 76:0.25");
        // One value that most jobs have takes its whole stretch.
        let mut values = vec![7; 90];
        values.extend(10..20);
        let pmf = rounded_up(&values, 4);
        assert_eq!(shown(&pmf[..1]), "7:0.9");
        assert!(pmf.len() <= 4 && pmf.last().unwrap().0.as_ns() == 19, "{}", shown(&pmf));
        let sum: u32 = pmf.iter().map(|(_, p)| p.billionths()).sum();
        assert_eq!(sum, Probability::ONE.billionths());
    }
}
