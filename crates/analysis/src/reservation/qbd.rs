//! The quasi-birth-death chain of a walk with bounded steps, by logarithmic reduction.
//!
//! G. Latouche, V. Ramaswami: A Logarithmic Reduction Algorithm for Quasi-Birth-Death Processes,
//! Journal of Applied Probability 30, 1993.
//!
//! The walk w' = max(0, w + x) with -D <= x <= U falls into levels of B = max(U, D) states. From a
//! level it goes to a neighbour at most. All levels but the lowest have the same transitions.
//!
//! | paper | here |
//! |---|---|
//! | A0, A1, A2: one level up, none, down | B x B blocks with the cells p(B + j - i), p(j - i), p(j - i - B) |
//! | G: the first state of the level below | doubled paths, until no mass is left out |
//! | R = A0 (I - A1 - A0 G)⁻¹ | π_{l+1} = π_l R |
//! | π_0 (B + R A2) = π_0 | by elimination without subtractions |

use super::dense::Matrix;

/// Doublings before the reduction gives up: 2^60 levels.
pub(super) const DOUBLINGS_MAX: u32 = 60;
/// States that are kept, whatever the tail still weighs.
pub(super) const STATES_MAX: usize = 1 << 20;
/// The weight of the tail that is left out.
const TAIL: f64 = 1e-30;

/// P(w > x) for x = 0, 1, ...: an estimate, whose error is for the caller to bound. `steps` holds
/// P(x = i - `down`) at i, with both ends other than zero; its mean is below zero.
///
/// `None` where elimination meets a vanishing pivot or the reduction does not end.
pub(super) fn tail(steps: &[f64], down: usize) -> Option<Vec<f64>> {
    let up = steps.len() - 1 - down;
    let b = up.max(down).max(1);
    let p = |x: isize| {
        let at = x + down as isize;
        usize::try_from(at).ok().and_then(|at| steps.get(at)).copied().unwrap_or(0.0)
    };
    let block = |shift: isize| Matrix::from_fn(b, |i, j| p(shift + j as isize - i as isize));
    let (a0, a1, a2) = (block(b as isize), block(0), block(-(b as isize)));
    let g = reduce(&a0, &a1, &a2)?;
    // R^T solves with the transpose; X (I - U) = A0 is solved as (I - U)^T X^T = A0^T.
    let u = a1.plus(&a0.times(&g));
    let inner = u.identity_less();
    let transposed = |matrix: &Matrix| Matrix::from_fn(b, |i, j| matrix.row(j)[i]);
    let r = transposed(&transposed(&inner).solve(vec![transposed(&a0)])?.pop()?);
    let clamped = |i: usize| (0..=down.saturating_sub(i)).map(|k| steps.get(k).copied().unwrap_or(0.0)).sum::<f64>();
    let lowest = Matrix::from_fn(b, |i, j| {
        if j > 0 {
            p(j as isize - i as isize)
        } else if i <= down {
            clamped(i)
        } else {
            0.0
        }
    });
    let boundary = lowest.plus(&r.times(&a2));
    let mut level = boundary.stationary();
    let mut weights = Vec::new();
    loop {
        let sum: f64 = level.iter().sum();
        weights.extend_from_slice(&level);
        if sum <= TAIL || sum.is_nan() || weights.len() + b > STATES_MAX {
            break;
        }
        level = r.after(&level);
    }
    // From the end, so that small ones keep their digits.
    let mut above = 0.0;
    for weight in weights.iter_mut().rev() {
        let own = weight.max(0.0);
        *weight = above;
        above += own;
    }
    weights.iter_mut().for_each(|weight| *weight /= above);
    Some(weights)
}

/// G.
fn reduce(a0: &Matrix, a1: &Matrix, a2: &Matrix) -> Option<Matrix> {
    let mut pair = a1.identity_less().solve(vec![a0.clone(), a2.clone()])?;
    let (mut low, mut high) = (pair.pop()?, pair.pop()?);
    let (mut g, mut t) = (low.clone(), high.clone());
    for _ in 0..DOUBLINGS_MAX {
        let back = high.times(&low).plus(&low.times(&high));
        let mut pair = back.identity_less().solve(vec![high.times(&high), low.times(&low)])?;
        (low, high) = (pair.pop()?, pair.pop()?);
        g = g.plus(&t.times(&low));
        t = t.times(&high);
        if t.norm() < 1e-17 {
            return Some(g);
        }
    }
    None
}
