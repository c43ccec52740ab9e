//! What `takt net probe` prints.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde_json::{Map, Value, json};
use takt_linux::outgoing::Transport;
use takt_log::stats::Histogram;
use takt_model::Span;
use takt_net::probe::Pace;
use takt_run::probe::{Figures, PERCENTILES, ProbeOutcome, ProbeSpec, ServerOutcome, percentiles};

use crate::table::{Table, or_dash, time};

fn transport(spec: &ProbeSpec) -> &'static str {
    if spec.transport == Transport::Datagram { "UDP" } else { "TCP" }
}

pub(super) fn text(mode: &str, spec: &ProbeSpec, outcome: &ProbeOutcome, figures: &Figures) -> String {
    let to =
        spec.group.as_ref().and(spec.servers.first()).map_or_else(String::new, |group| format!(" to group {group}"));
    let mut text =
        format!("{mode} by {}{to} for {}, seed {}\n", transport(spec), time(outcome.duration), spec.schedule.seed);
    text.push_str(&servers(outcome));
    if figures.round_trip.count() > 0 {
        let _ = write!(text, "\n{}", times(spec, figures));
        let _ = writeln!(text, "{}", stamps(spec, outcome));
    }
    one_way(&mut text, spec, outcome, figures);
    if let Some(deadline) = spec.schedule.deadline.filter(|_| spec.schedule.reply_every > 0) {
        let twice = deadline.checked_mul(2).unwrap_or(deadline);
        let _ = writeln!(
            text,
            "deadlines from {} to {} after the intended send: {}",
            time(deadline),
            time(twice),
            missed(figures)
        );
    }
    silence(&mut text, outcome);
    others(&mut text, outcome);
    text
}

fn servers(outcome: &ProbeOutcome) -> String {
    let mut table = Table::headed("SERVER|SENT|ARRIVED|LOST|TWICE|REORDERED|ASKED|ANSWERED|THROUGHPUT");
    for server in &outcome.servers {
        let came = server.arrived;
        table.row(vec![
            server.address.to_string(),
            server.sent.to_string(),
            or_dash(came.map(|came| came.received)),
            or_dash(server.lost()),
            or_dash(came.map(|came| came.duplicates)),
            or_dash(came.map(|came| came.reordered)),
            server.asked.to_string(),
            server.answered.to_string(),
            throughput(server).map_or_else(
                || "-".to_owned(),
                |rate| format!("{}.{:03} Mbit/s", rate / 1_000_000, rate / 1000 % 1000),
            ),
        ]);
    }
    table.render("")
}

/// Bits of messages a second, between the first arrival and the last one.
fn throughput(server: &ServerOutcome) -> Option<u64> {
    let came = server.arrived?;
    // The first message took its time before the first arrival.
    let bytes = u128::from(came.bytes) * u128::from(came.received.saturating_sub(1)) / u128::from(came.received.max(1));
    let rate = (bytes * 8_000_000_000).checked_div(u128::from(came.span.as_ns()))?;
    u64::try_from(rate).ok()
}

fn times(spec: &ProbeSpec, figures: &Figures) -> String {
    let mut head: Vec<String> = ["TIME", "COUNT", "MIN", "MEAN"].map(str::to_owned).to_vec();
    head.extend(PERCENTILES.iter().map(|(name, _)| format!("P{name}")));
    head.push("MAX".to_owned());
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    // Without a pace, the intended send is the real one.
    let is_paced = spec.schedule.pace != Pace::Max;
    let rows = [
        ("round trip", &figures.round_trip, true),
        ("round trip from the intended send", &figures.round_trip_intended, is_paced),
        ("one way, at least", &figures.one_way_min, true),
        ("one way, at most", &figures.one_way_max, true),
        ("one way from the intended send, at most", &figures.one_way_max_intended, is_paced),
        ("held up before the send", &figures.held_up, is_paced),
        ("from the kernel's stamp to the prober", &figures.wake_up, true),
    ];
    for (name, histogram, _) in rows.into_iter().filter(|row| row.2) {
        let (Some(summary), Some(percentiles)) = (histogram.summary(), percentiles(histogram)) else { continue };
        let mut row = vec![name.to_owned(), summary.count.to_string()];
        let values = [summary.min, summary.mean].into_iter().chain(percentiles).chain([summary.max]);
        row.extend(values.map(|ns| time(Span::from_ns(ns))));
        table.row(row);
    }
    table.render("")
}

fn stamps(spec: &ProbeSpec, outcome: &ProbeOutcome) -> String {
    let by_kernel =
        outcome.servers.iter().filter(|server| server.kernel_stamps && spec.transport == Transport::Datagram);
    let count = by_kernel.count();
    let at_servers = match count {
        0 => "the servers' programs",
        _ if count == outcome.servers.len() => "the servers' kernels",
        _ => "the kernels of some servers, and the programs of others",
    };
    format!("arrivals are stamped by {at_servers}; a round trip ends at the prober's program")
}

fn one_way(text: &mut String, spec: &ProbeSpec, outcome: &ProbeOutcome, figures: &Figures) {
    let Some(clocks) = spec.clocks else {
        if figures.round_trip.count() > 0 {
            text.push_str("no one-way delays: the clocks were not compared\n");
        }
        return;
    };
    if figures.one_way_unknown > 0 {
        let _ = writeln!(
            text,
            "no one-way delay of {} of {} replies: the clocks were not known to {} then",
            figures.one_way_unknown,
            figures.round_trip.count(),
            time(clocks.width_max)
        );
    }
    for server in &outcome.servers {
        let _ = match server.offset {
            None => writeln!(text, "the clock of {} is not synchronised: it did not answer", server.address),
            Some(offset) if offset.width() > clocks.width_max => writeln!(
                text,
                "the clock of {} is known to {}, which is more than {} (--clock-width)",
                server.address,
                time(offset.width()),
                time(clocks.width_max)
            ),
            Some(offset) => writeln!(text, "the clock of {} is known to {}", server.address, time(offset.width())),
        };
    }
}

fn missed(figures: &Figures) -> String {
    let by_round_trip = format!("{} missed by the round trip", figures.missed_round_trip);
    if figures.one_way_max.count() == 0 {
        return format!("{by_round_trip}, of {}; one way unknown", figures.deadlines);
    }
    let (least, most) = (figures.missed_one_way_min, figures.missed_one_way_max);
    let one_way = if least == most { least.to_string() } else { format!("{least} to {most}") };
    format!("{one_way} missed one way, {by_round_trip}, of {}", figures.deadlines)
}

/// Why there is no measurement of a server, or not a whole one.
fn silence(text: &mut String, outcome: &ProbeOutcome) {
    for server in &outcome.servers {
        let address = server.address;
        for (is_so, what) in [
            (server.sent == 0, "no message was sent to it"),
            (server.has_ended, "its connection ended, and no more messages were sent to it"),
            (server.is_report_refused, "it reported counts that cannot be true; they are not shown"),
            (server.arrived.is_none() && !server.is_report_refused, "it did not report what arrived"),
            (server.arrived.is_some_and(|came| came.received == 0), "nothing arrived"),
            (server.asked > 0 && server.answered == 0, "it did not reply"),
        ] {
            if is_so {
                let _ = writeln!(text, "{address}: {what}");
            }
        }
    }
}

fn others(text: &mut String, outcome: &ProbeOutcome) {
    let unsent: u64 = outcome.servers.iter().map(|server| server.unsent).sum();
    let [duplicates, reordered] = [
        outcome.servers.iter().map(|server| server.duplicate_replies).sum::<u64>(),
        outcome.servers.iter().map(|server| server.reordered_replies).sum(),
    ];
    for (count, what) in [
        (unsent, "messages were not taken by the kernel"),
        (
            outcome.skipped,
            "messages were not sent: the sender was behind or stopped, the time was over, or a connection ended",
        ),
        (duplicates, "replies came twice"),
        (reordered, "replies came after one to a later message"),
        (outcome.foreign, "foreign or malformed messages were dropped"),
        (outcome.background_bytes, "bytes of background load were sent"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    if outcome.is_full {
        text.push_str("it ended early: a run has no more messages; measure for a shorter time\n");
    }
    if let Some(broker) = outcome.broker {
        let _ = writeln!(
            text,
            "broker: {} messages queued, {} sent, {} dropped as late, {} refused; {} sent without it, {} lost with it",
            broker.queued, broker.sent, broker.late, broker.refused, broker.plain, broker.lost
        );
    }
}

pub(super) fn as_json(mode: &str, spec: &ProbeSpec, outcome: &ProbeOutcome, figures: &Figures) -> Value {
    json!({
        "mode": mode,
        "transport": transport(spec).to_lowercase(),
        "group": spec.group.as_ref().and(spec.servers.first()).map(SocketAddr::to_string),
        "tos": spec.tos,
        "seed": spec.schedule.seed,
        "duration_ns": outcome.duration.as_ns(),
        "servers": outcome.servers.iter().map(|server| server_json(spec, outcome, server)).collect::<Vec<_>>(),
        "times": times_json(figures),
        "deadlines": deadlines_json(spec, figures),
        "skipped": outcome.skipped,
        "full": outcome.is_full,
        "interrupted": outcome.is_stopped,
        "foreign": outcome.foreign,
        "background_bytes": outcome.background_bytes,
        "broker": outcome.broker.map(|broker| json!({
            "queued": broker.queued,
            "sent": broker.sent,
            "late": broker.late,
            "refused": broker.refused,
            "plain": broker.plain,
            "lost": broker.lost,
        })),
    })
}

fn server_json(spec: &ProbeSpec, outcome: &ProbeOutcome, server: &ServerOutcome) -> Value {
    let place = outcome.servers.iter().position(|other| other.address == server.address);
    let own = outcome.messages.iter().filter(|message| Some(message.server as usize) == place);
    let is_by_kernel = server.kernel_stamps && spec.transport == Transport::Datagram;
    json!({
        "address": server.address.to_string(),
        "sent": server.sent,
        "sent_bytes": server.sent_bytes,
        "unsent": server.unsent,
        "arrived": server.arrived.map(|came| came.received),
        "arrived_bytes": server.arrived.map(|came| came.bytes),
        "arrived_bps": throughput(server),
        "lost": server.lost(),
        "duplicates": server.arrived.map(|came| came.duplicates),
        "reordered": server.arrived.map(|came| came.reordered),
        "asked": server.asked,
        "answered": server.answered,
        "duplicate_replies": server.duplicate_replies,
        "reordered_replies": server.reordered_replies,
        "ended": server.has_ended,
        "report_refused": server.is_report_refused,
        "stamps": if is_by_kernel { "kernel" } else { "program" },
        "offset_ns": server.offset.map(|offset| offset.middle),
        "offset_min_ns": server.offset.map(|offset| offset.low),
        "offset_max_ns": server.offset.map(|offset| offset.high),
        "times": times_json(&Figures::of(own, 0)),
    })
}

fn times_json(figures: &Figures) -> Value {
    json!({
        "round_trip": distribution(&figures.round_trip),
        "round_trip_from_intended": distribution(&figures.round_trip_intended),
        "one_way_min": distribution(&figures.one_way_min),
        "one_way_max": distribution(&figures.one_way_max),
        "one_way_max_from_intended": distribution(&figures.one_way_max_intended),
        "one_way_unknown": figures.one_way_unknown,
        "held_up": distribution(&figures.held_up),
        "wake_up": distribution(&figures.wake_up),
    })
}

fn distribution(histogram: &Histogram) -> Value {
    let (Some(summary), Some(percentiles)) = (histogram.summary(), percentiles(histogram)) else { return Value::Null };
    let mut map = Map::new();
    for (key, value) in [("count", summary.count), ("min_ns", summary.min), ("mean_ns", summary.mean)] {
        map.insert(key.to_owned(), value.into());
    }
    for ((name, _), value) in PERCENTILES.iter().zip(percentiles) {
        map.insert(format!("p{}_ns", name.replace('.', "")), value.into());
    }
    map.insert("max_ns".to_owned(), summary.max.into());
    Value::Object(map)
}

fn deadlines_json(spec: &ProbeSpec, figures: &Figures) -> Value {
    let Some(deadline) = spec.schedule.deadline else { return Value::Null };
    let one_way = |count: u64| (figures.one_way_max.count() > 0).then_some(count);
    json!({
        "deadline_ns": deadline.as_ns(),
        "messages": figures.deadlines,
        "missed_one_way_min": one_way(figures.missed_one_way_min),
        "missed_one_way_max": one_way(figures.missed_one_way_max),
        "missed_round_trip": figures.missed_round_trip,
    })
}
