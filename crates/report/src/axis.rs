//! Time axes: round ticks, and labels that stay short anywhere in a run.

use takt_model::{Span, Time};

/// A time axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axis {
    /// The zero of the labels: time zero, or a round instant before a window far into a run.
    pub origin: Time,
    /// Instants with labels, ascending, all within the window.
    pub ticks: Vec<(Time, String)>,
}

const CLOCK_STEPS_S: [u64; 16] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200];
const S: u64 = 1_000_000_000;

impl Axis {
    /// At most `ticks_max` ticks between `from` and `to`.
    #[must_use]
    pub fn new(from: Time, to: Time, ticks_max: usize) -> Axis {
        let span = to.saturating_since(from).as_ns();
        let step = tick_step(span, ticks_max.max(1) as u64);
        let origin = far_origin(from, to, step);
        let mut ticks = Vec::new();
        let mut at = from.as_ns().div_ceil(step).saturating_mul(step);
        while at <= to.as_ns() && ticks.len() <= ticks_max {
            let since = Time::from_ns(at).saturating_since(origin);
            let last = to.saturating_since(origin);
            ticks.push((Time::from_ns(at), tick_label(since, Span::from_ns(step), last, origin > Time::ZERO)));
            let Some(next) = at.checked_add(step) else { break };
            at = next;
        }
        Axis { origin, ticks }
    }

    /// The text beside the axis if labels do not count from zero.
    #[must_use]
    pub fn origin_label(&self) -> Option<String> {
        (self.origin > Time::ZERO).then(|| format!("from {}", clock(self.origin)))
    }
}

/// The smallest round distance that gives at most `most` steps over `span_ns`.
fn tick_step(span_ns: u64, most: u64) -> u64 {
    let least = span_ns.div_ceil(most).max(1);
    let mut power = 1u64;
    while power < S {
        for factor in [1, 2, 5] {
            if power * factor >= least && power * factor < S {
                return power * factor;
            }
        }
        power *= 10;
    }
    if let Some(step) = CLOCK_STEPS_S.iter().find(|step| **step * S >= least) {
        return step * S;
    }
    let day = 86_400 * S;
    day.saturating_mul(least.div_ceil(day))
}

/// Zero, unless labels from zero would need more than six digits to tell ticks apart.
fn far_origin(from: Time, to: Time, step: u64) -> Time {
    let unit = tick_unit(Span::from_ns(step)).0;
    if to.as_ns() / unit < 1_000_000 || step >= S {
        return Time::ZERO;
    }
    // Down to the whole second, or to the whole tick where the window is shorter than that.
    let coarse = if to.saturating_since(from).as_ns() >= S / 10 { S } else { step.saturating_mul(10).max(1) };
    Time::from_ns(from.as_ns() / coarse * coarse)
}

fn tick_unit(step: Span) -> (u64, &'static str) {
    match step.as_ns() {
        ns if ns >= S => (S, "s"),
        ns if ns >= 1_000_000 => (1_000_000, "ms"),
        ns if ns >= 1_000 => (1_000, "us"),
        _ => (1, "ns"),
    }
}

/// The label of a tick `since` the origin, in the unit that suits the whole axis.
fn tick_label(since: Span, step: Span, last: Span, relative: bool) -> String {
    let sign = if relative { "+" } else { "" };
    if since.is_zero() {
        return format!("{sign}0");
    }
    if last.as_ns() >= 120 * S && step.as_ns() >= S {
        return clock(Time::from_ns(since.as_ns()));
    }
    let (step_unit, _) = tick_unit(step);
    let (unit, name) = tick_unit(last);
    // A larger unit with up to three decimals reads better than five digits: 12.25 s, not 12250 ms.
    let (unit, name) =
        if last.as_ns() / step_unit >= 10_000 || unit == step_unit { (unit, name) } else { tick_unit(step) };
    let (whole, rest) = (since.as_ns() / unit, since.as_ns() % unit);
    if rest == 0 {
        return format!("{sign}{whole} {name}");
    }
    let decimals = format!("{rest:0width$}", width = unit.ilog10() as usize);
    format!("{sign}{whole}.{} {name}", decimals.trim_end_matches('0'))
}

/// An instant as one reads a clock: `1:02:03`, with a fraction where it has one; below two minutes as a
/// plain duration.
#[must_use]
pub fn clock(at: Time) -> String {
    let (s, ns) = (at.as_ns() / S, at.as_ns() % S);
    if s < 120 {
        return spaced(Span::from_ns(at.as_ns()));
    }
    let fraction = if ns == 0 { String::new() } else { format!(".{}", format!("{ns:09}").trim_end_matches('0')) };
    format!("{}:{:02}:{:02}{fraction}", s / 3_600, s / 60 % 60, s % 60)
}

/// The exact duration, with a space before its unit.
fn spaced(span: Span) -> String {
    let text = span.to_string();
    match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(unit) => format!("{} {}", &text[..unit], &text[unit..]),
        None => text,
    }
}

/// A duration with four significant digits, rounded up, for reading: `1.235 ms`, `12.35 ms`, `250 us`, `36 h`.
#[must_use]
pub fn short(span: Span) -> String {
    let ns = span.as_ns();
    let (unit, name) = match ns {
        0 => return "0".to_owned(),
        ns if ns >= 48 * 3_600 * S => (86_400 * S, "d"),
        ns if ns >= 2 * 3_600 * S => (3_600 * S, "h"),
        ns if ns >= 120 * S => (60 * S, "min"),
        _ => return spaced(span.four_digits()),
    };
    let digits = 3usize.saturating_sub((ns / unit).max(1).ilog10() as usize);
    let parts = 10u128.pow(digits as u32);
    let scaled = (u128::from(ns) * parts).div_ceil(u128::from(unit));
    let (whole, rest) = (scaled / parts, scaled % parts);
    if rest == 0 {
        return format!("{whole} {name}");
    }
    let decimals = format!("{rest:0digits$}");
    format!("{whole}.{} {name}", decimals.trim_end_matches('0'))
}

/// The unit, in nanoseconds, for round numbers of times up to `most_ns`: days, hours, minutes, or
/// one nanosecond. Smaller units are nanoseconds times powers of ten.
pub(crate) fn round_unit(most_ns: f64) -> f64 {
    [86_400e9, 3_600e9, 60e9].into_iter().find(|unit| most_ns >= 2.0 * unit).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from: u64, to: u64) -> Vec<String> {
        Axis::new(Time::from_ns(from), Time::from_ns(to), 6).ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_labels_short_from_nanoseconds_to_days() {
        assert_eq!(labels(0, 50), ["0", "10 ns", "20 ns", "30 ns", "40 ns", "50 ns"]);
        assert_eq!(labels(0, 40_000_000), ["0", "10 ms", "20 ms", "30 ms", "40 ms"]);
        assert_eq!(labels(0, 1_200_000), ["0", "200 us", "400 us", "600 us", "800 us", "1000 us", "1200 us"]);
        assert_eq!(labels(12 * S, 12 * S + S / 2), ["12 s", "12.1 s", "12.2 s", "12.3 s", "12.4 s", "12.5 s"]);
        assert_eq!(
            labels(0, 3 * 86_400 * S),
            ["0", "12:00:00", "24:00:00", "36:00:00", "48:00:00", "60:00:00", "72:00:00"]
        );
        let axis = Axis::new(Time::from_ns(7_200 * S + 5_000), Time::from_ns(7_200 * S + 45_000), 4);
        assert_eq!(axis.origin_label().as_deref(), Some("from 2:00:00"));
        assert_eq!(axis.ticks[1].1, "+20 us");
        assert!(labels(0, u64::MAX).len() > 1 && labels(u64::MAX - 3, u64::MAX).len() == 4 && labels(7, 7) == ["7 ns"]);
    }

    #[test]
    fn short_durations_have_four_digits_and_the_unit_of_the_rounded_value() {
        let shown = |ns| short(Span::from_ns(ns));
        assert_eq!([shown(0), shown(999), shown(1_000), shown(999_849)], ["0", "999 ns", "1 us", "999.9 us"]);
        assert_eq!([shown(999_960), shown(1_234_567), shown(12_345_678)], ["1 ms", "1.235 ms", "12.35 ms"]);
        assert_eq!([shown(90 * S), shown(150 * S), shown(36 * 3_600 * S)], ["90 s", "2.5 min", "36 h"]);
        assert_eq!([shown(121 * S), shown(7_199 * S + 1), shown(100 * 86_400 * S)], ["2.017 min", "120 min", "100 d"]);
        assert_eq!(shown(u64::MAX), "213504 d");
        assert_eq!(clock(Time::from_ns(12_345_678)), "12.345678 ms");
        assert_eq!(clock(Time::from_ns(3_723 * S + 500_000_000)), "1:02:03.5");
    }
}
