//! Reports of programs on CLOCK_REALTIME, as text and JSON.

use serde_json::{Value, json};
use takt_linux::clock::monotonic_ns;
use takt_model::{Span, Time};
use takt_net::source::ClockReport;

use crate::table::{Table, time};

fn error(report: &ClockReport) -> Option<Span> {
    report.state.ok()?.error_at(Time::from_ns(monotonic_ns()))
}

/// Whether a program says how exact the clock is.
pub(crate) fn is_known(reports: &[ClockReport]) -> bool {
    reports.iter().any(|report| error(report).is_some())
}

/// A table; nothing if no program runs.
pub(crate) fn table(reports: &[ClockReport]) -> String {
    if reports.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["SOURCE", "CLOCK_REALTIME", "WITHIN", "OF"]);
    for report in reports {
        let source = report.source.to_string();
        table.row(match report.state {
            Ok(bound) => {
                let within = error(report).map_or("-".to_owned(), time);
                vec![source, "synchronised".to_owned(), within, bound.timescale.to_string()]
            }
            Err(why) => vec![source, format!("unsynchronised: {why}"), "-".to_owned(), "-".to_owned()],
        });
    }
    format!("{}\n", table.render(""))
}

/// A line for a node that trusts the clock.
pub(crate) fn sentence(reports: &[ClockReport]) -> String {
    let synchronised = reports.iter().find_map(|report| Some((report, report.state.ok()?, error(report)?)));
    match (synchronised, reports.first().map(|report| (report.source, report.state))) {
        (Some((report, bound, within)), _) => format!(
            "clocks: nodes trust CLOCK_REALTIME, which is within {} of {} here by {}",
            time(within),
            bound.timescale,
            report.source
        ),
        (None, Some((source, Err(why)))) => format!(
            "clocks: nodes trust CLOCK_REALTIME, which is unsynchronised here ({source}: {why}): times from other \
             machines are not known; --clocks PORT measures the differences"
        ),
        (None, _) => "clocks: nodes trust CLOCK_REALTIME, and no program here says how exact it is: times from other \
                      machines are not known; --clocks PORT measures the differences"
            .to_owned(),
    }
}

pub(crate) fn json(reports: &[ClockReport]) -> Value {
    let source = |report: &ClockReport| {
        json!({
            "source": report.source.to_string(),
            "synchronised": report.state.is_ok(),
            "error_ns": error(report).map(Span::as_ns),
            "timescale": report.state.ok().map(|bound| bound.timescale.to_string()),
            "reason": report.state.err().map(|why| why.to_string()),
        })
    };
    reports.iter().map(source).collect()
}

#[cfg(test)]
mod tests {
    use takt_net::source::{ClockBoundary, SourceKind, Timescale, Unsynchronised};

    use super::*;

    #[test]
    fn a_clock_without_a_bound_is_told_as_that() {
        let bound = ClockBoundary {
            timescale: Timescale::Utc,
            error: Span::from_us(35),
            at: Time::ZERO,
            growth_ppb: 0,
            until: Time::MAX,
        };
        let good = ClockReport { source: SourceKind::Chrony, state: Ok(bound) };
        let bad = ClockReport { source: SourceKind::Ptp4l, state: Err(Unsynchronised::PortState(4)) };
        assert_eq!((table(&[]), json(&[])), (String::new(), json!([])));
        assert!(table(&[good, bad]).contains("chrony  synchronised"), "{}", table(&[good, bad]));
        assert!(sentence(&[bad, good]).ends_with("which is within 35us of UTC here by chrony"));
        assert!(sentence(&[bad]).contains("unsynchronised here (ptp4l: its port listens for a master)"));
        assert!(sentence(&[]).contains("no program here says how exact it is"));
        assert_eq!([&[bad, good][..], &[bad], &[]].map(is_known), [true, false, false]);
        let told = json(&[good, bad]);
        assert_eq!(
            (&told[0]["error_ns"], &told[1]["reason"]),
            (&json!(35_000), &json!("its port listens for a master"))
        );
    }
}
