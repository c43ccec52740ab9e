//! Instants, durations and signed lateness, in whole nanoseconds.
//!
//! Arithmetic is checked: an operator panics on overflow (in every build), the `checked_` and
//! `saturating_` forms do not. There is no `From<u64>`: an integer becomes a time only by naming its unit.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// An instant: nanoseconds since the start of the run (simulation, live run or recording).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

/// A duration in nanoseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(u64);

/// A signed difference of two instants in nanoseconds: lateness (positive when late), laxity
/// (negative when late), or a constant shift of a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lateness(i64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// The latest instant; stands for "never" in comparisons.
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `ns` nanoseconds after the start.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Time(ns)
    }
    /// Nanoseconds since the start.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }
    /// `self + span`, or `None` past the end of time.
    #[must_use]
    pub const fn checked_add(self, span: Span) -> Option<Time> {
        match self.0.checked_add(span.0) {
            Some(ns) => Some(Time(ns)),
            None => None,
        }
    }
    /// `self + span`, at most [`Time::MAX`].
    #[must_use]
    pub const fn saturating_add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
    /// `self - span`, at least [`Time::ZERO`].
    #[must_use]
    pub const fn saturating_sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
    /// The time since `earlier`, zero when `earlier` is later than `self`.
    #[must_use]
    pub const fn saturating_since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// The time since `earlier`, `None` when `earlier` is later than `self`.
    #[must_use]
    pub const fn checked_since(self, earlier: Time) -> Option<Span> {
        match self.0.checked_sub(earlier.0) {
            Some(ns) => Some(Span(ns)),
            None => None,
        }
    }
    /// How much later `self` is than `reference`: negative when it is earlier. Saturates at the
    /// ends of `i64` (292 years).
    #[must_use]
    pub const fn lateness_to(self, reference: Time) -> Lateness {
        if self.0 >= reference.0 {
            let late = self.0 - reference.0;
            Lateness(if late > i64::MAX as u64 { i64::MAX } else { late as i64 })
        } else {
            let early = reference.0 - self.0;
            Lateness(if early > i64::MAX as u64 { i64::MIN } else { -(early as i64) })
        }
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// The longest span.
    pub const MAX: Span = Span(u64::MAX);
    /// The longest duration that a System file may hold: 10^17 ns, about three years. Sums of a few
    /// of them cannot overflow.
    pub const FILE_MAX: Span = Span(100_000_000_000_000_000);

    /// `ns` nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Span(ns)
    }
    /// `us` microseconds; panics on overflow.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Span(us.checked_mul(1_000).expect("microseconds overflow u64 nanoseconds"))
    }
    /// `ms` milliseconds; panics on overflow.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Span(ms.checked_mul(1_000_000).expect("milliseconds overflow u64 nanoseconds"))
    }
    /// `s` seconds; panics on overflow.
    #[must_use]
    pub const fn from_s(s: u64) -> Self {
        Span(s.checked_mul(1_000_000_000).expect("seconds overflow u64 nanoseconds"))
    }
    /// The length in nanoseconds.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }
    /// Whether the span is empty.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// `self + other`, or `None` on overflow.
    #[must_use]
    pub const fn checked_add(self, other: Span) -> Option<Span> {
        match self.0.checked_add(other.0) {
            Some(ns) => Some(Span(ns)),
            None => None,
        }
    }
    /// `self + other`, at most [`Span::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
    /// `self - other`, or `None` when `other` is longer.
    #[must_use]
    pub const fn checked_sub(self, other: Span) -> Option<Span> {
        match self.0.checked_sub(other.0) {
            Some(ns) => Some(Span(ns)),
            None => None,
        }
    }
    /// `self - other`, zero when `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
    /// `self` repeated `n` times, or `None` on overflow.
    #[must_use]
    pub const fn checked_mul(self, n: u64) -> Option<Span> {
        match self.0.checked_mul(n) {
            Some(ns) => Some(Span(ns)),
            None => None,
        }
    }
    /// Four significant digits, rounded up: tables and pages show times so. A time that looks in
    /// time then is in time.
    ///
    /// ```
    /// use takt_model::Span;
    /// assert_eq!(Span::from_ns(12_340_001).four_digits().to_string(), "12.35ms");
    /// assert_eq!(Span::from_ns(999_910).four_digits().to_string(), "1ms");
    /// ```
    #[must_use]
    pub const fn four_digits(self) -> Span {
        let step = self.fourth_digit();
        match self.0.div_ceil(step).checked_mul(step) {
            Some(ns) => Span(ns),
            None => self,
        }
    }
    /// Four significant digits, rounded down: for laxities, of which less is worse.
    #[must_use]
    pub const fn four_digits_down(self) -> Span {
        let step = self.fourth_digit();
        Span(self.0 / step * step)
    }
    /// The value of one unit of the fourth digit.
    const fn fourth_digit(self) -> u64 {
        let mut step = 1;
        while self.0 / step >= 10_000 {
            step *= 10;
        }
        step
    }
}

impl Lateness {
    /// Exactly on time.
    pub const ZERO: Lateness = Lateness(0);

    /// `ns` nanoseconds late, or early when negative.
    #[must_use]
    pub const fn from_ns(ns: i64) -> Self {
        Lateness(ns)
    }
    /// Nanoseconds late, negative when early.
    #[must_use]
    pub const fn as_ns(self) -> i64 {
        self.0
    }
    /// Four significant digits, rounded down, to the side of the earlier: how tables show laxities,
    /// of which less is worse.
    #[must_use]
    pub const fn four_digits_down(self) -> Lateness {
        let magnitude = Span(self.0.unsigned_abs());
        let rounded = if self.0 < 0 { magnitude.four_digits() } else { magnitude.four_digits_down() };
        match (rounded.0 <= i64::MAX as u64, self.0 < 0) {
            (true, true) => Lateness(-(rounded.0 as i64)),
            (true, false) => Lateness(rounded.0 as i64),
            (false, _) => self,
        }
    }
}

impl Add<Span> for Time {
    type Output = Time;
    #[inline]
    #[track_caller]
    fn add(self, span: Span) -> Time {
        match self.checked_add(span) {
            Some(t) => t,
            None => panic!("time overflow: {self} + {span}"),
        }
    }
}
impl AddAssign<Span> for Time {
    #[inline]
    #[track_caller]
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}
impl Sub<Time> for Time {
    type Output = Span;
    #[inline]
    #[track_caller]
    fn sub(self, earlier: Time) -> Span {
        match self.checked_since(earlier) {
            Some(s) => s,
            None => panic!("negative time: {self} - {earlier}"),
        }
    }
}
impl Add for Span {
    type Output = Span;
    #[inline]
    #[track_caller]
    fn add(self, other: Span) -> Span {
        match self.checked_add(other) {
            Some(s) => s,
            None => panic!("span overflow: {self} + {other}"),
        }
    }
}
impl AddAssign for Span {
    #[inline]
    #[track_caller]
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}
impl Sub for Span {
    type Output = Span;
    #[inline]
    #[track_caller]
    fn sub(self, other: Span) -> Span {
        match self.checked_sub(other) {
            Some(s) => s,
            None => panic!("negative span: {self} - {other}"),
        }
    }
}

/// Writes the exact duration with the largest unit that keeps at most the needed decimals: `250us`,
/// `1.5s`, `0ns`. The System file reads the written text back as the same value.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        let (unit, name, digits) = match ns {
            0 => return f.pad("0ns"),
            n if n >= 1_000_000_000 => (1_000_000_000, "s", 9),
            n if n >= 1_000_000 => (1_000_000, "ms", 6),
            n if n >= 1_000 => (1_000, "us", 3),
            _ => (1, "ns", 0),
        };
        let (whole, rest) = (ns / unit, ns % unit);
        if rest == 0 {
            f.pad(&format!("{whole}{name}"))
        } else {
            let decimals = format!("{rest:0digits$}");
            f.pad(&format!("{whole}.{}{name}", decimals.trim_end_matches('0')))
        }
    }
}
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Span(self.0), f)
    }
}
impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = Span(self.0.unsigned_abs());
        if self.0 < 0 { f.pad(&format!("-{magnitude}")) } else { fmt::Display::fmt(&magnitude, f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_print_exactly_with_the_largest_fitting_unit() {
        let shown = |ns| Span::from_ns(ns).to_string();
        assert_eq!(shown(0), "0ns");
        assert_eq!(shown(999), "999ns");
        assert_eq!(shown(250_000), "250us");
        assert_eq!(shown(1_500_000_000), "1.5s");
        assert_eq!(shown(1_000_000_001), "1.000000001s");
        assert_eq!(Lateness::from_ns(-1_200_000).to_string(), "-1.2ms");
    }

    #[test]
    fn four_digits_err_to_the_side_that_warns() {
        let up = |ns| Span::from_ns(ns).four_digits().as_ns();
        let down = |ns| Span::from_ns(ns).four_digits_down().as_ns();
        for exact in [0, 1, 999, 9_999, 10_000, 12_340_000, 9_999_000_000_000_000_000] {
            assert_eq!((up(exact), down(exact)), (exact, exact));
        }
        assert_eq!((up(10_001), down(10_001)), (10_010, 10_000));
        assert_eq!((up(99_991), down(99_999)), (100_000, 99_990));
        assert_eq!(up(u64::MAX), u64::MAX, "no step above it");
        let laxity = |ns| Lateness::from_ns(ns).four_digits_down().as_ns();
        assert_eq!((laxity(12_345), laxity(-12_345), laxity(0)), (12_340, -12_350, 0));
        assert_eq!((laxity(i64::MIN), laxity(i64::MAX)), (i64::MIN, 9_223_000_000_000_000_000));
    }

    #[test]
    fn lateness_has_the_sign_of_late() {
        let (a, b) = (Time::from_ns(5), Time::from_ns(8));
        assert_eq!(b.lateness_to(a).as_ns(), 3);
        assert_eq!(a.lateness_to(b).as_ns(), -3);
        assert_eq!(Time::ZERO.lateness_to(Time::MAX).as_ns(), i64::MIN);
    }

    #[test]
    #[should_panic(expected = "time overflow")]
    fn overflow_is_loud() {
        let _ = Time::MAX + Span::from_ns(1);
    }
}
