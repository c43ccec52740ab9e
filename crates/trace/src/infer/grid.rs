//! The grid of a periodic task: the narrowest strip that holds all arrivals.
//!
//! A task with period T, first nominal arrival o and jitter J satisfies `o + kT <= a_k <= o + kT +
//! J` for each arrival a_k. The (o, T) with the least J solve a linear programme in three unknowns.
//! For a given T the least J is the range of `a_k - kT`, the vertical width of the points' convex
//! hull. As a function of T it is convex and piecewise linear, with corners at the slopes of the
//! hull's edges. So a walk along the hull finds the least J exactly, in O(n) after an O(n) hull (A.
//! M. Andrew, "Another efficient algorithm for convex hulls in two dimensions", Inf. Proc. Letters
//! 9, 1979; the strip is Chebyshev's line of best fit). No float takes part.
//!
//! The error of the period: if the true jitter is J', both strips hold the first and the last of
//! the arrivals, N periods apart. So `|T - T'| <= (J + J') / N`. It falls with more arrivals, at
//! least as 1/N.

/// An arrival: the number of its period, and when it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    /// Counted from the first; strictly ascending, never negative.
    pub(crate) k: i64,
    /// Nanoseconds after the first arrival; never negative.
    pub(crate) a: i64,
}

/// The hull of some points, and the narrowest strip around them.
#[derive(Clone, Debug)]
pub(crate) struct Strip {
    upper: Vec<Point>,
    lower: Vec<Point>,
    /// The best period is `num / den`.
    pub(crate) num: i64,
    pub(crate) den: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The nominal arrival with number 0, rounded down.
    pub(crate) first: i64,
    /// The jitter, rounded up.
    pub(crate) jitter: u64,
}

/// (b - a) x (c - a): positive where c lies above the line from a to b.
fn turn(a: Point, b: Point, c: Point) -> i128 {
    // Differences of numbers that are not negative fit 64 bits, so each product is one instruction.
    let product = |one: i64, other: i64| i128::from(one) * i128::from(other);
    product(b.k - a.k, c.a - a.a) - product(b.a - a.a, c.k - a.k)
}

impl Strip {
    /// The hull of at least two points.
    pub(crate) fn of(points: &[Point]) -> Option<Strip> {
        let (mut upper, mut lower): (Vec<Point>, Vec<Point>) = (Vec::new(), Vec::new());
        for &point in points {
            if lower.last().is_some_and(|last| last.k >= point.k) {
                return None;
            }
            while let [.., a, b] = upper[..]
                && turn(a, b, point) >= 0
            {
                upper.pop();
            }
            upper.push(point);
            while let [.., a, b] = lower[..]
                && turn(a, b, point) <= 0
            {
                lower.pop();
            }
            lower.push(point);
        }
        // From a slope that is too steep to less steep ones: the highest residual starts at the
        // left, the lowest at the right.
        let (mut up, mut low) = (0, lower.len().checked_sub(1)?);
        let mut best = None;
        while lower[low].k > upper[up].k {
            let edge = |a: Point, b: Point| (b.a - a.a, b.k - a.k);
            let above = upper.get(up + 1).map(|next| edge(upper[up], *next));
            let below = low.checked_sub(1).map(|before| edge(lower[before], lower[low]));
            let steeper =
                |x: (i64, i64), y: (i64, i64)| i128::from(x.0) * i128::from(y.1) >= i128::from(y.0) * i128::from(x.1);
            match (above, below) {
                (Some(a), Some(b)) if steeper(a, b) => (up, best) = (up + 1, Some(a)),
                (_, Some(b)) => (low, best) = (low - 1, Some(b)),
                (Some(a), None) => (up, best) = (up + 1, Some(a)),
                (None, None) => break,
            }
        }
        let (num, den) = best?;
        Some(Strip { upper, lower, num, den })
    }

    pub(crate) fn period(&self) -> i64 {
        let twice = i128::from(self.num) * 2 + i128::from(self.den);
        twice.div_euclid(i128::from(self.den) * 2) as i64
    }

    pub(crate) fn place(&self, num: i64, den: i64) -> Place {
        let (num, den) = (i128::from(num), i128::from(den));
        let residual = |point: &Point| i128::from(point.a) * den - i128::from(point.k) * num;
        let high = self.upper.iter().map(residual).max().unwrap_or(0);
        let low = self.lower.iter().map(residual).min().unwrap_or(0);
        let jitter = (high - low + den - 1).div_euclid(den);
        let clamp = |wide: i128| i64::try_from(wide).unwrap_or(i64::MAX);
        Place { first: clamp(low.div_euclid(den)), jitter: u64::try_from(jitter).unwrap_or(u64::MAX) }
    }

    pub(crate) fn best(&self) -> Place {
        self.place(self.num, self.den)
    }

    /// The longest whole period with which the nominal arrival with number 0 is not more than
    /// `before` ahead of the first arrival.
    pub(crate) fn longest(&self, before: u64) -> i64 {
        let later = self.lower.iter().filter(|point| point.k > 0);
        let longest =
            later.map(|point| (i128::from(point.a) + i128::from(before)).div_euclid(i128::from(point.k))).min();
        longest.map_or(i64::MAX, |period| i64::try_from(period).unwrap_or(i64::MAX))
    }

    /// The whole periods with which the jitter is at most `most`: an interval, for jitter is convex
    /// in the period. `None` where there is none.
    pub(crate) fn periods(&self, most: u64) -> Option<(i64, i64)> {
        let fits = |period: i64| period > 0 && self.place(period, 1).jitter <= most;
        let near = self.period();
        let near = [near, near - 1, near + 1].into_iter().find(|period| fits(*period))?;
        let reach = |sign: i64| {
            let (mut good, mut step) = (0i64, 1i64);
            while step < near && fits(near + sign * (good + step)) {
                (good, step) = (good + step, step * 2);
            }
            while step > 1 {
                step /= 2;
                if good + step < near && fits(near + sign * (good + step)) {
                    good += step;
                }
            }
            good
        };
        Some((near - reach(-1), near + reach(1)))
    }
}

/// The number from `low` to `high` (both positive) with the most zeros at its end; of several the
/// one next to `near`.
pub(crate) fn simplest(low: i64, high: i64, near: i64) -> i64 {
    let mut step = 1_000_000_000_000_000_000;
    while step > 1 {
        let first = low.div_euclid(step) + i64::from(low.rem_euclid(step) != 0);
        let last = high.div_euclid(step);
        if first <= last {
            let nearest = near.div_euclid(step) + i64::from(near.rem_euclid(step) * 2 >= step);
            return nearest.clamp(first, last) * step;
        }
        step /= 10;
    }
    near.clamp(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: &[(i64, i64)]) -> Vec<Point> {
        of.iter().map(|&(k, a)| Point { k, a }).collect()
    }

    /// The least jitter over all slopes between two points, where the optimum lies: over their
    /// common denominator.
    fn brute(points: &[Point]) -> (i128, i128) {
        let mut best: Option<(i128, i128)> = None;
        for (i, a) in points.iter().enumerate() {
            for b in &points[i + 1..] {
                let (num, den) = (i128::from(b.a - a.a), i128::from(b.k - a.k));
                let residuals = points.iter().map(|p| i128::from(p.a) * den - i128::from(p.k) * num);
                let range = residuals.clone().max().unwrap() - residuals.min().unwrap();
                if best.is_none_or(|(range_0, den_0)| range * den_0 < range_0 * den) {
                    best = Some((range, den));
                }
            }
        }
        best.unwrap()
    }

    #[test]
    fn exact_grids_and_thirds_are_found() {
        let strip = Strip::of(&points(&[(0, 0), (1, 10), (2, 20), (5, 50)])).unwrap();
        assert_eq!((strip.period(), strip.best()), (10, Place { first: 0, jitter: 0 }));
        let strip = Strip::of(&points(&[(0, 0), (1, 3), (2, 6), (3, 10), (4, 13), (5, 16), (6, 20)])).unwrap();
        assert!(strip.num * 3 == strip.den * 10 && strip.best().jitter == 1, "{strip:?}");
        assert!(Strip::of(&points(&[(0, 0)])).is_none());
        assert!(Strip::of(&points(&[(0, 0), (0, 1)])).is_none(), "two arrivals in one period are no strip");
    }

    #[test]
    fn the_walk_finds_what_all_slopes_give() {
        let mut state = 7u64;
        let mut roll = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((u128::from(state) * u128::from(most)) >> 64) as i64
        };
        for case in 0..4000 {
            let (mut k, mut all) = (0, Vec::new());
            for _ in 0..2 + roll(9) {
                all.push(Point { k, a: k * 20 + roll(2 + case % 60) });
                k += 1 + roll(3);
            }
            let strip = Strip::of(&all).unwrap();
            let (range, den) = brute(&all);
            let residuals =
                all.iter().map(|p| i128::from(p.a) * i128::from(strip.den) - i128::from(p.k) * i128::from(strip.num));
            let own = residuals.clone().max().unwrap() - residuals.min().unwrap();
            assert_eq!(own * den, range * i128::from(strip.den), "{all:?} {strip:?}");
            let most = strip.best().jitter + 3;
            if let Some((low, high)) = strip.periods(most) {
                assert!(strip.place(low, 1).jitter <= most && strip.place(high, 1).jitter <= most);
                assert!(low == 1 || strip.place(low - 1, 1).jitter > most);
                assert!(strip.place(high + 1, 1).jitter > most || high + 1 >= 2 * strip.period(), "{all:?}");
            }
            let longest = strip.longest(7);
            assert!(strip.place(longest, 1).first >= -7 && strip.place(longest + 1, 1).first < -7, "{all:?}");
        }
    }

    #[test]
    fn simple_numbers_are_preferred() {
        assert_eq!(simplest(12_999_871, 13_000_211, 12_999_999), 13_000_000);
        assert_eq!(simplest(12_401_000, 12_598_000, 12_512_345), 12_500_000);
        assert_eq!(simplest(33_333_332, 33_333_334, 33_333_333), 33_333_333);
        assert_eq!(simplest(5, 25, 14), 10);
    }
}
