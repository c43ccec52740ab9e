//! `randfixedsum`: uniform over the vectors in a cube with a given sum.
//!
//! R. Stafford: Random Vectors with Fixed Sum, MATLAB Central File Exchange 9700, 2006. For
//! utilisations: P. Emberson, R. Stafford, R. I. Davis: Techniques for the Synthesis of
//! Multiprocessor Tasksets, WATERS 2010.
//!
//! Take the section of the unit cube in n dimensions at the sum s, with k <= s <= k + 1. It
//! consists of simplices, each of which has a path: each step fixes one value to 0 or to 1. After
//! the steps, dimension i is left, with the sum s - a if a values are at 1. The volume w(i, a) of
//! this rest follows from those of its two kinds of faces:
//!
//! w(i, j) = (w(i - 1, j) s1_j + w(i - 1, j - 1) s2_(n - i + j)) / i,
//!
//! s1_j = s - k + j - 1,   s2_j = k + n - j + 1 - s.
//!
//! The share of the second term is the probability t that the next value goes to 1. Within the
//! simplex, the point is drawn as in UUniFast: distances from its corners shrink by the i-th root
//! of a uniform draw. At the end the values are shuffled, since the paths treat the dimensions
//! differently.

use super::draws::{Draws, Use};
use super::math::root;

/// The section of the unit cube in n >= 2 dimensions at one sum, ready to draw from.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FixedSum {
    n: usize,
    /// The sum, in [0, n].
    sum: f64,
    /// Chances to fix a value to 1: row i - 1 (of dimension i + 1), column j - 1.
    chances: Vec<Vec<f64>>,
}

impl FixedSum {
    /// O(n^2).
    pub(crate) fn new(n: usize, sum: f64) -> FixedSum {
        let sum = sum.clamp(0.0, n as f64);
        let k = (sum.floor()).clamp(0.0, (n - 1) as f64);
        let above = |j: usize| sum - k + j as f64; // s1, j from 0
        let below = |j: usize| k + (n - j) as f64 - sum; // s2, j from 0
        // Volumes of the dimension before, by column. They begin with a large one, since they
        // shrink.
        let mut before = vec![0.0; n + 1];
        before[1] = f64::MAX;
        let mut chances = Vec::with_capacity(n - 1);
        for i in 2..=n {
            let mut volumes = vec![0.0; n + 1];
            let mut row = Vec::with_capacity(i);
            for j in 0..i {
                let (up, down) = (above(j), below(n - i + j));
                let (zero, one) = (before[j + 1] * (up / i as f64), before[j] * (down / i as f64));
                volumes[j + 1] = zero + one;
                let all = volumes[j + 1] + f64::MIN_POSITIVE;
                // Both forms are equal in exact arithmetic. The smaller term is the more exact one.
                row.push(if down > up { one / all } else { 1.0 - zero / all });
            }
            chances.push(row);
            before = volumes;
        }
        FixedSum { n, sum, chances }
    }

    /// Fills `values` with n values in [0, 1]. Takes two draws for each value and one for its
    /// place.
    pub(crate) fn draw(&self, draws: &Draws, values: &mut Vec<f64>) {
        values.clear();
        let k = (self.sum.floor() as usize).min(self.n - 1);
        let (mut s, mut column, mut base, mut reach) = (self.sum, k, 0.0, 1.0);
        for i in (1..self.n).rev() {
            let step = (self.n - 1 - i) as u32;
            let to_one = draws.unit(step, Use::Utilization, 0) <= self.chances[i - 1][column];
            let shrink = root(draws.unit(step, Use::Utilization, 1), i as u32);
            base += (1.0 - shrink) * reach * s / (i + 1) as f64;
            reach *= shrink;
            let one = if to_one { 1.0 } else { 0.0 };
            values.push((base + reach * one).clamp(0.0, 1.0));
            s -= one;
            column = column.saturating_sub(usize::from(to_one));
        }
        values.push((base + reach * s).clamp(0.0, 1.0));
        for i in (1..self.n).rev() {
            values.swap(i, draws.between(i as u32, Use::Order, 0, 0, i as u64) as usize);
        }
    }
}
