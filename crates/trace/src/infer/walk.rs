//! Tests of deviations from a grid: whether they add up, whether they wander, and whether the period
//! is too round for chance.

use super::grid::{Point, Strip, simplest};

/// A round period shows a grid if the jitter is at most this fraction of the period (1/500).
const TIGHT_PART: u64 = 500;
/// By chance, at most this fraction of periods (1/10000) is as round as an accepted one.
const ROUND_PART: i64 = 10_000;
/// The parts of a recording whose mean deviations are compared.
const PARTS: usize = 8;

/// The most that [`DeviationStatistics::f`] may be. Independent deviations exceed it once in a
/// million times.
pub(crate) const F_MAX: f64 = 6.0;
/// The most that [`DeviationStatistics::serial`] may be for jitter, apart from chance in small samples.
pub(crate) const SERIAL_MAX: f64 = 0.5;

/// Whether the grid is too tight and its period too round for chance. Then one of the periods that fit
/// has far more trailing zeros than chance explains.
pub(crate) fn is_round(core: &Strip, width: u64, period: u64) -> bool {
    if width > period / TIGHT_PART {
        return false;
    }
    let Some((low, high)) = core.periods(width + width / 16 + 1) else { return false };
    let simple = simplest(low, high, core.period());
    let mut step = 1;
    while simple % (step * 10) == 0 && step < simple {
        step *= 10;
    }
    (high - low + 1).saturating_mul(ROUND_PART) <= step
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct DeviationStatistics {
    /// The F statistic of the mean deviations of the recording's parts (the analysis of variance of
    /// R. A. Fisher): about one for jitter, large if deviations wander.
    pub(crate) f: f64,
    /// The range of these means.
    pub(crate) spread: f64,
    /// The serial correlation of the deviations: about zero for jitter.
    pub(crate) serial: f64,
}

pub(crate) fn deviations(points: &[Point], strip: &Strip) -> Vec<f64> {
    let period = strip.num as f64 / strip.den as f64;
    let first = points.first().map_or(0, |point| point.a);
    points.iter().map(|point| (point.a - first) as f64 - point.k as f64 * period).collect()
}

impl DeviationStatistics {
    pub(crate) fn of(residuals: &[f64]) -> DeviationStatistics {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let whole = mean(residuals);
        let (mut between, mut within, mut parts) = (0.0, 0.0, 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for part in residuals.chunks(residuals.len().div_ceil(PARTS).max(1)) {
            let own = mean(part);
            between += part.len() as f64 * (own - whole) * (own - whole);
            within += part.iter().map(|residual| (residual - own) * (residual - own)).sum::<f64>();
            (low, high, parts) = (f64::min(low, own), f64::max(high, own), parts + 1.0);
        }
        let free = residuals.len() as f64 - parts;
        let f =
            if parts < 2.0 || free < 1.0 || within <= 0.0 { 0.0 } else { (between / (parts - 1.0)) / (within / free) };
        let pairs: f64 = residuals.windows(2).map(|pair| (pair[0] - whole) * (pair[1] - whole)).sum();
        let squares = between + within;
        DeviationStatistics { f, spread: high - low, serial: if squares > 0.0 { pairs / squares } else { 0.0 } }
    }
}

/// Q: the width of the strip over the width that a random walk of these steps would reach.
pub(crate) fn walk_ratio(points: &[Point], strip: &Strip, width: u64) -> f64 {
    let period = strip.num as f64 / strip.den as f64;
    let steps = points.windows(2).map(|pair| (pair[1].a - pair[0].a) as f64 - (pair[1].k - pair[0].k) as f64 * period);
    let n = (points.len() - 1) as f64;
    let squares: f64 = steps.map(|step| step * step).sum();
    // The sum of squares is n times the variance: the strip's slope is the mean.
    if squares > 0.0 {
        width as f64 / squares.sqrt()
    } else if n > 0.0 && width == 0 {
        0.0
    } else {
        f64::INFINITY
    }
}
