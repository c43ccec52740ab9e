//! Time axes: round ticks, and labels that stay short anywhere in a run.

use takt_model::{Span, Time};

/// A time axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Where the labels count from: zero, or a round instant before a window that lies far into a run.
    pub origin: Time,
    /// Instants with labels, ascending, all within the window.
    pub ticks: Vec<(Time, String)>,
}

/// Tick distances in nanoseconds from 1 s on: those of clocks.
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

    /// What to write beside the axis where labels do not count from zero.
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
        return at.to_string();
    }
    let fraction = if ns == 0 { String::new() } else { format!(".{}", format!("{ns:09}").trim_end_matches('0')) };
    format!("{}:{:02}:{:02}{fraction}", s / 3_600, s / 60 % 60, s % 60)
}

/// A duration with four significant digits, for reading: `1.235 ms`, `12.35 ms`, `250 us`.
#[must_use]
pub fn short(span: Span) -> String {
    let ns = span.as_ns();
    // The unit in which the rounded value is at least one: 999.96 us is 1 ms.
    let (unit, name) = match ns {
        0 => return "0".to_owned(),
        ns if ns >= 999_950_000 => (1e9, "s"),
        ns if ns >= 999_950 => (1e6, "ms"),
        ns if ns >= 1_000 => (1e3, "us"),
        _ => return format!("{ns} ns"),
    };
    let value = ns as f64 / unit;
    let digits = match value {
        v if v >= 99.95 => 1,
        v if v >= 9.995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {name}")
}
