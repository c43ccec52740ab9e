//! The files of `takt net probe`: messages as CSV, distributions as SVG.

use std::io::Write;

use takt_log::stats::Histogram;
use takt_model::Time;
use takt_report::{Figure, Form, Series};
use takt_run::probe::{Figures, ProbeOutcome, Verdict};

use crate::failure::Failure;
use crate::output::Target;

const HEAD: &str = "number,server,size,intended_ns,sent_ns,received_ns,round_trip_ns,one_way_min_ns,one_way_max_ns,\
                    deadline_ns,missed_one_way,missed_round_trip\n";

/// A line for each message that asked for a reply. Times count from the first intended send.
pub(super) fn csv(outcome: &ProbeOutcome, target: &Target, mut out: Box<dyn Write>) -> Result<(), Failure> {
    let zero = outcome.messages.first().map_or(Time::ZERO, |first| first.intended);
    let since = |at: Time| at.saturating_since(zero).as_ns().to_string();
    let or_empty = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    target.check(out.write_all(HEAD.as_bytes()))?;
    for message in &outcome.messages {
        let server = usize::try_from(message.server).ok().and_then(|place| outcome.servers.get(place));
        let one_way = message.one_way();
        let verdict = message.verdict().map_or("", |verdict| match verdict {
            Verdict::InTime => "no",
            Verdict::Missed => "yes",
            Verdict::Unknown => "unknown",
        });
        let by_round_trip = message.missed_round_trip().map_or("", |missed| if missed { "yes" } else { "no" });
        let cells = [
            message.number.to_string(),
            server.map_or_else(String::new, |server| server.address.to_string()),
            message.size.to_string(),
            since(message.intended),
            message.sent.map_or_else(String::new, since),
            message.reply.map_or_else(String::new, |reply| since(reply.received)),
            or_empty(message.round_trip().map(takt_model::Span::as_ns)),
            or_empty(one_way.map(|(low, _)| low.as_ns())),
            or_empty(one_way.map(|(_, high)| high.as_ns())),
            or_empty(message.deadline.map(takt_model::Span::as_ns)),
            verdict.to_owned(),
            by_round_trip.to_owned(),
        ];
        target.check(writeln!(out, "{}", cells.join(",")))?;
    }
    target.check(out.flush())
}

pub(super) fn svg(mode: &str, figures: &Figures) -> String {
    let curves = [
        ("round trip", &figures.round_trip),
        ("round trip from the intended send", &figures.round_trip_intended),
        ("one way, at least", &figures.one_way_min),
        ("one way, at most", &figures.one_way_max),
    ];
    let series = curves.iter().zip(0..).filter(|((_, histogram), _)| histogram.count() > 0);
    let series = series.map(|((name, histogram), colour)| Series {
        name: (*name).to_owned(),
        points: points(histogram),
        form: Form::Steps,
        colour,
    });
    let figure = Figure {
        y_max: Some(1.0),
        ..Figure::new(
            format!("takt net probe {mode}"),
            "microseconds, up to the 99.9th percentile",
            "share of messages",
            series.collect(),
        )
    };
    figure.svg("probe", true)
}

fn points(histogram: &Histogram) -> Vec<(f64, f64)> {
    let count = histogram.count();
    let until = (u128::from(count) * 999).div_ceil(1000) as u64;
    let (mut seen, mut points) = (0_u64, Vec::new());
    for bucket in histogram.buckets() {
        if seen >= until {
            break;
        }
        seen += bucket.count;
        points.push((bucket.upper_ns as f64 / 1000.0, seen as f64 / count as f64));
    }
    points
}
