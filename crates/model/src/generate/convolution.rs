//! `cfs`: uniform over the vectors with a given sum and a limit for each value.
//!
//! D. Griffin, R. I. Davis: ConvolutionalFixedSum: Uniformly Generating Random Values with a Fixed
//! Sum Subject to Arbitrary Constraints, RTAS 2025. The values are drawn one after the other. Let
//! the sum s be left for value k and the values after it. Value k leaves s' to the others, with a
//! density proportional to f_(k+1)(s') on [s - w_k, s]. f_(k+1) is the density of a sum of
//! independent uniform values within the others' limits. f_k is the convolution of f_(k+1) with a
//! box of width w_k. (The method supersedes the authors' own Dirichlet-rescale algorithm, DRS,
//! which they found not to be uniform.)
//!
//! | paper | here |
//! |---|---|
//! | upper less lower constraint | w_k, `widths`, the widest first |
//! | total left | s |
//! | convolution by discrete Fourier transform | a box: f_k(s) = (F_(k+1)(s) - F_(k+1)(s - w_k)) / w_k, F by summation |
//! | steps of the distribution | f linear between [`CELLS`] nodes, so F quadratic |
//!
//! If no limit can be reached from below (s at most the least width), or none from above, the rest
//! is a simplex. It is drawn exactly, as in UUniFast. The last two values are uniform on a line,
//! and drawn exactly too. f is symmetric, so values above half of its range use the lower half.
//! Sums of small terms lose nothing there.

use super::draws::{Draws, Use};
use super::math::root;

/// Nodes less one from 0 to half of a density's range.
const CELLS: usize = 2048;

/// The vectors with 0 <= x_k <= w_k and a given sum, ready to draw from.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Convolution {
    /// The widest first.
    widths: Vec<f64>,
    /// Sum of the widths from k on.
    totals: Vec<f64>,
    /// The place of each in the caller's order.
    places: Vec<usize>,
    sum: f64,
    /// Of the values from k + 1 on, for k up to n - 3.
    rests: Vec<Density>,
}

impl Convolution {
    /// O(n `CELLS`). `sum` lies between 0 and the sum of the widths. Widths are at least 0.
    pub(crate) fn new(widths: &[f64], sum: f64) -> Convolution {
        let mut places: Vec<usize> = (0..widths.len()).collect();
        places.sort_by(|a, b| widths[*b].total_cmp(&widths[*a]));
        let widths: Vec<f64> = places.iter().map(|place| widths[*place]).collect();
        let mut totals = vec![0.0; widths.len() + 1];
        for k in (0..widths.len()).rev() {
            totals[k] = totals[k + 1] + widths[k];
        }
        let mut rests = Vec::new();
        if let [.., a, b] = widths[..] {
            let mut density = Density::of_two(a, b, sum);
            for k in (0..widths.len() - 2).rev() {
                let next = density.convolved(widths[k], sum);
                rests.push(density);
                density = next;
            }
        }
        rests.reverse();
        Convolution { widths, totals, places, sum, rests }
    }

    /// Fills `values` in the caller's order. Takes one draw for each value.
    pub(crate) fn draw(&self, draws: &Draws, values: &mut Vec<f64>) {
        let n = self.widths.len();
        values.clear();
        values.resize(n, 0.0);
        let mut left = self.sum;
        for k in 0..n {
            let (width, total, after) = (self.widths[k], self.totals[k], self.totals[k + 1]);
            let others = (n - 1 - k) as u32;
            // The sum that is left after k lies in [least, most].
            let (least, most) = ((left - width).max(0.0), left.min(after));
            let place = self.places[k];
            let random = draws.unit(place as u32, Use::Utilization, 0);
            let narrowest = self.widths[n - 1];
            let rest = if others == 0 {
                0.0
            } else if others == 1 {
                least + random * (most - least)
            } else if left <= narrowest {
                left * root(random, others)
            } else if total - left <= narrowest {
                after - (total - left) * root(random, others)
            } else {
                self.rests[k].invert(least, most, random)
            };
            let rest = rest.clamp(least, most.max(least));
            values[place] = (left - rest).clamp(0.0, width);
            left = rest;
        }
    }
}

/// A symmetric density on [0, `range`], up to a factor.
#[derive(Clone, PartialEq, Debug)]
struct Density {
    range: f64,
    /// Between two nodes.
    cell: f64,
    /// The density at nodes from 0 on, up to the range, or up to the sum if this is below half of
    /// the range.
    values: Vec<f64>,
    /// The integral of the values up to each node.
    sums: Vec<f64>,
    /// The integral up to half of the range, if the nodes reach it.
    half: Option<f64>,
}

impl Density {
    /// `value` gives the density between 0 and half of the range; nodes beyond `sum` are not
    /// needed.
    fn new(range: f64, sum: f64, value: impl Fn(f64) -> f64) -> Density {
        let whole = sum > range / 2.0;
        let end = if whole { range / 2.0 } else { sum };
        let cell = end / CELLS as f64;
        let mut values: Vec<f64> = (0..=CELLS).map(|i| value(i as f64 * cell).max(0.0)).collect();
        let most = values.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(*value));
        values.iter_mut().for_each(|value| *value /= most);
        let mut sums = Vec::with_capacity(2 * CELLS + 1);
        sums.push(0.0);
        let mut total = 0.0;
        for pair in values.windows(2) {
            total += (pair[0] + pair[1]) / 2.0 * cell;
            sums.push(total);
        }
        if whole {
            for i in (0..CELLS).rev() {
                values.push(values[i]);
                sums.push(2.0 * total - sums[i]);
            }
        }
        Density { range, cell, values, sums, half: whole.then_some(total) }
    }

    /// The sum of two uniform values: a trapezoid.
    fn of_two(a: f64, b: f64, sum: f64) -> Density {
        Density::new(a + b, sum, |s| s.min(b).min(a))
    }

    /// The sum of this and a uniform value up to `width`.
    fn convolved(&self, width: f64, sum: f64) -> Density {
        Density::new(self.range + width, sum, |s| self.mass(s - width, s))
    }

    /// The integral from 0 to x, x at most half of the range.
    fn below(&self, x: f64) -> f64 {
        if x <= 0.0 || self.cell <= 0.0 {
            return 0.0;
        }
        let at = x / self.cell;
        let i = (at as usize).min(CELLS - 1);
        let t = (at - i as f64).min(1.0);
        self.sums[i] + (self.values[i] + (self.values[i + 1] - self.values[i]) * t / 2.0) * t * self.cell
    }

    /// The integral from a to b.
    fn mass(&self, a: f64, b: f64) -> f64 {
        let (a, b) = (a.max(0.0), b.min(self.range));
        match self.half {
            _ if a >= b => 0.0,
            Some(_) if a >= self.range / 2.0 => self.below(self.range - a) - self.below(self.range - b),
            Some(half) if b > self.range / 2.0 => (half - self.below(a)) + (half - self.below(self.range - b)),
            _ => self.below(b) - self.below(a),
        }
    }

    /// The x below which a share of the mass between `low` and `high` lies.
    fn invert(&self, low: f64, high: f64, share: f64) -> f64 {
        // From the end of the range, where the density is small, since differences of large sums
        // are coarse.
        if self.half.is_some() && low >= self.range / 2.0 {
            return self.range - self.ascend(self.range - high, self.range - low, 1.0 - share);
        }
        self.ascend(low, high, share)
    }

    /// As [`Density::invert`], by the sums from 0 on.
    fn ascend(&self, low: f64, high: f64, share: f64) -> f64 {
        let start = self.below(low.min(self.range / 2.0));
        let target = start + share * self.mass(low, high);
        let i = self.sums.partition_point(|sum| *sum <= target).clamp(1, self.sums.len() - 1) - 1;
        let (from, to) = (self.values[i], self.values[i + 1]);
        // from t + (to - from) t^2 / 2 = rest / cell, in the form that loses nothing.
        let rest = (target - self.sums[i]).max(0.0) / self.cell;
        let under = (from * from + 2.0 * (to - from) * rest).max(0.0).sqrt() + from;
        let t = if under > 0.0 { (2.0 * rest / under).min(1.0) } else { 0.5 };
        (i as f64 + t) * self.cell
    }
}
