//! Small plots: cumulative distributions, and bars that relate times to a deadline.

use std::fmt::Write as _;

use takt_log::stats::Histogram;
use takt_model::Span;

use crate::axis::{round_unit, short};
use crate::markup::{Esc, Grid, Px};

pub(crate) struct Line<'a> {
    pub(crate) class: String,
    /// For the legend and the tooltip.
    pub(crate) name: String,
    pub(crate) curve: &'a Histogram,
    /// The divisor of the values: 1 ns, or the deadline.
    pub(crate) unit: Span,
}

pub(crate) struct Rule {
    pub(crate) class: &'static str,
    pub(crate) name: String,
    pub(crate) at: f64,
}

pub(crate) struct Plot<'a> {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) lines: Vec<Line<'a>>,
    pub(crate) rules: Vec<Rule>,
    /// Values are shares of the deadline, not nanoseconds.
    pub(crate) ratio: bool,
    /// The deadline in nanoseconds, for a second axis in shares of it.
    pub(crate) deadline: Option<f64>,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const BOTTOM: f64 = 24.0;
/// A logarithmic axis where the largest value is so many times the smallest.
const LOG_FROM: f64 = 30.0;

struct Scale {
    log: bool,
    from: f64,
    to: f64,
    x0: f64,
    x1: f64,
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.from).ln() - self.from.ln()) / (self.to.ln() - self.from.ln())
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.x0 + share.clamp(0.0, 1.0) * (self.x1 - self.x0)
    }

    /// Round values within the scale, about `count` of them. (Shares are far below the units of time.)
    fn ticks(&self, count: usize) -> Vec<f64> {
        let mut ticks = Vec::new();
        if self.log {
            let steps: &[f64] = match (self.to / self.from).log10() {
                d if d > 4.0 => &[1.0],
                d if d > 2.0 => &[1.0, 5.0],
                _ => &[1.0, 2.0, 5.0],
            };
            let mut power = 10f64.powi(self.from.log10().floor() as i32);
            while power <= self.to {
                ticks.extend(steps.iter().map(|step| step * power).filter(|v| (self.from..=self.to).contains(v)));
                power *= 10.0;
            }
            let keep = ticks.len().div_ceil(count.max(1)).max(1);
            return ticks.into_iter().step_by(keep).collect();
        }
        let rough = (self.to - self.from) / count.max(1) as f64;
        let unit = round_unit(rough);
        let power = unit * 10f64.powf((rough / unit).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * power).find(|s| *s >= rough).unwrap_or(rough);
        let mut i = (self.from / step).ceil();
        while i * step <= self.to * 1.000_001 && ticks.len() < 20 {
            ticks.push(i * step);
            i += 1.0;
        }
        ticks
    }
}

impl Plot<'_> {
    /// The plot as one `<svg>`; empty where there is no value.
    pub(crate) fn svg(&self) -> String {
        let Some(scale) = self.scale() else { return String::new() };
        let top = if self.deadline.is_some() { 24.0 } else { 10.0 };
        let (w, h) = (Px(self.width), Px(self.height));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"takt-chart plot\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" \
             height=\"{h}\" role=\"img\" aria-labelledby=\"{id}\"><title id=\"{id}\">{}</title>",
            Esc(&self.title),
            id = Esc(&self.id),
        );
        let bottom = self.height - BOTTOM;
        self.frame(&mut out, &scale, top, bottom);
        let mut seen: Vec<f64> = Vec::new();
        let mut beyond = 0.0;
        for rule in &self.rules {
            // A rule far from all values would leave most of the axis empty: it is named at the edge.
            if !(scale.from..=scale.to).contains(&rule.at) {
                let left = rule.at < scale.from;
                let (x, anchor) = if left { (scale.x0 + 4.0, "start") } else { (scale.x1 - 4.0, "end") };
                let text = if left { format!("\u{2190} {}", rule.name) } else { format!("{} \u{2192}", rule.name) };
                let y = Px(top + 16.0 + beyond * 13.0);
                let _ = write!(
                    out,
                    "<text class=\"beyond\" x=\"{}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
                    Px(x),
                    Esc(&text)
                );
                beyond += 1.0;
                continue;
            }
            let x = scale.x(rule.at);
            // Rules that fall together are drawn beside each other.
            let shift = seen.iter().filter(|other| (**other - x).abs() < 1.5).count() as f64 * 2.0;
            seen.push(x);
            let _ = write!(
                out,
                "<path class=\"{}\" d=\"M{} {}V{}\"><title>{}</title></path>",
                rule.class,
                Px(x - shift),
                Px(top),
                Px(bottom),
                Esc(&rule.name)
            );
        }
        for line in &self.lines {
            let _ = write!(
                out,
                "<path class=\"line {}\" d=\"{}\"><title>{}</title></path>",
                line.class,
                self.path(line, &scale, top, bottom),
                Esc(&line.name)
            );
        }
        out.push_str("</svg>");
        out
    }

    fn value(span: Span, unit: Span) -> f64 {
        span.as_ns() as f64 / unit.as_ns().max(1) as f64
    }

    fn scale(&self) -> Option<Scale> {
        let value = |line: &Line<'_>, ns: u64| Self::value(Span::from_ns(ns), line.unit);
        let least = |line: &Line<'_>| Some(value(line, line.curve.summary()?.min));
        let most = |line: &Line<'_>| Some(value(line, line.curve.summary()?.max));
        let floor = if self.ratio { 1e-6 } else { 1.0 };
        let from = self.lines.iter().filter_map(least).fold(f64::INFINITY, f64::min).max(floor);
        let to = self.lines.iter().filter_map(most).fold(from, f64::max);
        if !from.is_finite() {
            return None;
        }
        let log = to / from >= LOG_FROM;
        let (from, to) = fitted(from, to, log, self.rules.iter().map(|rule| rule.at));
        Some(Scale { log, from, to, x0: LEFT, x1: self.width - RIGHT })
    }

    fn frame(&self, out: &mut String, scale: &Scale, top: f64, bottom: f64) {
        let mut grid = Grid::default();
        for (share, text) in [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")] {
            let y = bottom - share * (bottom - top);
            grid.line((LEFT, y), format_args!("H{}", Px(self.width - RIGHT)));
            grid.label((LEFT - 5.0, y + 4.0), "end", text);
        }
        let count = ((self.width - LEFT - RIGHT) / 62.0) as usize;
        let anchor = |x: f64| if x > self.width - RIGHT - 16.0 { "end" } else { "middle" };
        for tick in scale.ticks(count) {
            let x = scale.x(tick);
            grid.line((x, top), format_args!("V{}", Px(bottom)));
            let text = if self.ratio { percent(tick) } else { short(Span::from_ns(tick.round() as u64)) };
            grid.label((x, bottom + 15.0), anchor(x), Esc(&text));
        }
        if let Some(deadline) = self.deadline {
            let above = Scale { from: scale.from / deadline, to: scale.to / deadline, ..*scale };
            for tick in above.ticks(count) {
                let x = above.x(tick);
                grid.label((x, top - 9.0), anchor(x), Esc(&percent(tick)));
                grid.line((x, top), format_args!("v-4"));
            }
        }
        out.push_str(&grid.svg(""));
    }

    fn path(&self, line: &Line<'_>, scale: &Scale, top: f64, bottom: f64) -> String {
        let count = line.curve.count().max(1) as f64;
        let y = |sum: u64| bottom - sum as f64 / count * (bottom - top);
        let x = |ns: u64| scale.x(Self::value(Span::from_ns(ns), line.unit));
        let buckets: Vec<_> = line.curve.buckets().collect();
        let start = line.curve.summary().map_or(scale.x0, |summary| x(summary.min));
        let mut path = format!("M{} {}H{}", Px(scale.x0), Px(bottom), Px(start));
        let (mut sum, mut last) = (0, (f64::NEG_INFINITY, f64::NEG_INFINITY));
        for (i, bucket) in buckets.iter().enumerate() {
            sum += bucket.count;
            let (x, y) = (x(bucket.upper_ns), y(sum));
            // A step that nobody could see is left to the next one.
            if i + 1 < buckets.len() && (x - last.0).abs() < 0.4 && (y - last.1).abs() < 0.4 {
                continue;
            }
            let _ = write!(path, "H{}V{}", Px(x), Px(y));
            last = (x, y);
        }
        let _ = write!(path, "H{}", Px(scale.x1));
        path
    }
}

/// The ends of an axis for values between `from` and `to`. Includes the rules that leave the values
/// at least half of the axis.
fn fitted(from: f64, to: f64, log: bool, rules: impl Iterator<Item = f64>) -> (f64, f64) {
    let place = |value: f64| if log { value.ln() } else { value };
    let (mut low, mut high) = (place(from), place(to));
    // A few equal values are a step in the middle, not noise: an axis spans a fifth of its largest value at least.
    let more = if log { 0.0 } else { (to * 0.2 - (high - low)).max(0.0) / 2.0 };
    (low, high) = (low - more, high + more);
    let wide = high - low;
    for at in rules.filter(|at| *at > 0.0).map(place) {
        if high.max(at) - low.min(at) <= 2.0 * wide {
            (low, high) = (low.min(at), high.max(at));
        }
    }
    let margin = (high - low) * 0.05;
    let (low, high) = (low - margin, high + margin);
    if log {
        return (low.exp(), high.exp());
    }
    // An axis that begins close to zero begins there.
    (if low <= high * 0.15 { 0.0 } else { low }, high)
}

/// A share as a percentage with at most three digits.
pub(crate) fn percent(share: f64) -> String {
    // The sum of no numbers is -0.
    let value = share * 100.0 + 0.0;
    let digits = match value.abs() {
        v if v >= 9.995 || v == 0.0 => 0,
        v if v >= 0.995 => 1,
        v if v >= 0.0995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

pub(crate) struct Bar {
    pub(crate) bound: Option<f64>,
    /// (p99, max) of the simulation.
    pub(crate) simulated: Option<(f64, f64)>,
    /// (p99, max) of the measurement.
    pub(crate) measured: Option<(f64, f64)>,
}

impl Bar {
    pub(crate) fn most(&self) -> f64 {
        let maxima = [self.bound, self.simulated.map(|(_, max)| max), self.measured.map(|(_, max)| max)];
        maxima.into_iter().flatten().fold(0.0, f64::max)
    }

    /// The bar; `scale` is the share at its right end.
    pub(crate) fn svg(&self, scale: f64, text: &str) -> String {
        const WIDTH: f64 = 190.0;
        let x = |share: f64| 2.0 + (share / scale).min(1.0) * (WIDTH - 6.0);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"takt-chart bullet\" viewBox=\"0 0 190 24\" \
             width=\"190\" height=\"24\" role=\"img\" \
             aria-label=\"{t}\"><title>{t}</title><rect class=\"track\" x=\"2\" \
             y=\"3\" width=\"{}\" \
             height=\"18\" rx=\"2\"/>",
            Px(x(1.0) - 2.0),
            t = Esc(text),
        );
        let both = self.simulated.is_some() && self.measured.is_some();
        for (values, class, y) in [(self.simulated, "p0", 5.0), (self.measured, "p1", if both { 13.0 } else { 5.0 })] {
            let Some((p99, max)) = values else { continue };
            let height = if both { 6.0 } else { 14.0 };
            let late = if max > 1.0 { " late" } else { "" };
            let _ = write!(
                out,
                "<g class=\"bar {class}{late}\"><rect class=\"max\" x=\"2\" y=\"{y}\" width=\"{}\" \
                 height=\"{height}\"/>\
                 <rect x=\"2\" y=\"{y}\" width=\"{}\" height=\"{height}\"/></g>",
                Px((x(max) - 2.0).max(1.0)),
                Px((x(p99) - 2.0).max(1.0)),
            );
        }
        if let Some(bound) = self.bound {
            let _ = write!(out, "<path class=\"bound\" d=\"M{} 1v22\"/>", Px(x(bound)));
        }
        let _ = write!(out, "<path class=\"due\" d=\"M{} 1v22\"/></svg>", Px(x(1.0)));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_fit_the_values_and_the_rules_that_are_near() {
        let fit = |from, to, log, rules: &[f64]| {
            let (low, high) = fitted(from, to, log, rules.iter().copied());
            (low.round() as i64, high.round() as i64)
        };
        assert_eq!(fit(1_000.0, 2_000.0, false, &[]), (950, 2_050));
        assert_eq!(fit(1_000.0, 2_000.0, false, &[2_500.0, 100_000.0]), (925, 2_575));
        assert_eq!(fit(1_000.0, 2_000.0, false, &[100_000.0, 3_100.0]), (950, 2_050));
        assert_eq!(fit(100.0, 2_000.0, false, &[]), (0, 2_095));
        assert_eq!(fit(1_000.0, 1_000.0, false, &[5_000.0]), (890, 1_110));
        assert_eq!(fit(1.0, 1_000.0, true, &[10_000.0, 1e9]), (1, 15_849));
    }

    #[test]
    fn a_rule_far_from_the_values_is_named_at_the_edge() {
        let mut curve = Histogram::default();
        (1..=100).for_each(|i| curve.record(1_000_000 + i * 10_000));
        let plot = |due: f64| {
            let rules = vec![Rule { class: "due", name: "deadline".to_owned(), at: due }];
            let line = Line { class: "p0".to_owned(), name: String::new(), curve: &curve, unit: Span::from_ns(1) };
            let (id, title) = (String::new(), String::new());
            Plot { id, title, lines: vec![line], rules, ratio: false, deadline: None, width: 320.0, height: 170.0 }
                .svg()
        };
        assert!(plot(2_500_000.0).contains("<path class=\"due\""));
        let far = plot(80_000_000.0);
        assert!(!far.contains("<path class=\"due\"") && far.contains(">deadline \u{2192}</text>"), "{far}");
    }
}
