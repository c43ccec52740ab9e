//! `takt net clock`.

use serde_json::{Value, json};
use takt_linux::clock::monotonic_ns;
use takt_linux::signals::StopSignals;
use takt_model::{Span, Time};
use takt_run::clock_source::SourcePaths;
use takt_run::time_sync::{PeerStatus, TimeSync, TimeSyncSpec};

use crate::args;
use crate::clock_sources;
use crate::failure::{Failure, Outcome, Status as Exit};
use crate::input;
use crate::output::{note, print, print_json};
use crate::table::{Table, time};

/// How often is looked whether a signal came.
const LOOK: Span = Span::from_ms(20);

pub(super) fn execute(options: &args::NetClock, json: bool) -> Outcome {
    input::not_zero("--for", options.duration)?;
    let spec = TimeSyncSpec {
        listen: options.listen,
        peers: options.peer.iter().map(|peer| peer.address).collect(),
        period: options.period,
        drift_ppm: options.drift,
        priority: options.priority,
        sources: Some(SourcePaths::default()),
    };
    let signals = StopSignals::catch();
    let mut sync = TimeSync::bind(&spec).map_err(|error| match error.is_privilege() {
        true => Failure::cannot(error),
        false => Failure::input(error),
    })?;
    let address = sync.address().unwrap_or(options.listen);
    note(format_args!("answering at {address}"));
    let now = || Time::from_ns(monotonic_ns());
    let end = options.duration.map_or(Time::MAX, |duration| now().saturating_add(duration));
    while signals.caught().is_none() && now() < end {
        sync.run_until(now().saturating_add(LOOK).min(end));
    }
    let peers = sync.peers();
    match json {
        true => print_json(&as_json(options, &sync, &peers))?,
        false => print(&render(options, &sync, &peers))?,
    }
    Ok(if peers.iter().all(|peer| peer.offset.is_some()) { Exit::Yes } else { Exit::No })
}

fn difference(ns: i64) -> String {
    format!("{}{}", if ns < 0 { "-" } else { "+" }, time(Span::from_ns(ns.unsigned_abs())))
}

fn render(options: &args::NetClock, sync: &TimeSync, peers: &[PeerStatus]) -> String {
    let mut text = clock_sources::table(&sync.sources());
    if !peers.is_empty() {
        let heads = ["PEER", "DIFFERENCE", "AT LEAST", "AT MOST", "BY", "ROUND TRIP", "ANSWERED", "RESTARTS"];
        let mut table = Table::new(&heads);
        for (peer, status) in options.peer.iter().zip(peers) {
            let [middle, low, high] = match status.offset {
                Some(offset) => [offset.middle, offset.low, offset.high].map(difference),
                None => ["unknown", "-", "-"].map(str::to_owned),
            };
            table.row(vec![
                peer.name.clone(),
                middle,
                low,
                high,
                known_by(status),
                status.round_trip.map_or("-".to_owned(), time),
                format!("{} of {}", status.answered, status.asked),
                status.restarts.to_string(),
            ]);
        }
        text.push_str(&table.render(""));
    }
    for (peer, status) in options.peer.iter().zip(peers) {
        if let Some(claim) = status.claim.filter(|claim| !claim.offset.agrees) {
            let (low, high) = (difference(claim.offset.low), difference(claim.offset.high));
            text.push_str(&format!(
                "{}: {} here and {} there say {low} to {high}, which the exchanges contradict; this does not count\n",
                peer.name, claim.own, claim.peer
            ));
        }
    }
    text.push_str(&format!("answered {} requests of others\n", sync.served()));
    let refused: u64 = peers.iter().map(|peer| peer.refused).sum();
    if refused + sync.foreign() > 0 {
        text.push_str(&format!("dropped {} answers and {} foreign datagrams\n", refused, sync.foreign()));
    }
    text
}

fn known_by(status: &PeerStatus) -> String {
    match (status.offset, status.claim) {
        (None, _) => "-".to_owned(),
        (Some(_), Some(claim)) if claim.offset.agrees && claim.own == claim.peer => format!("exchange, {}", claim.own),
        (Some(_), Some(claim)) if claim.offset.agrees => format!("exchange, {} and {}", claim.own, claim.peer),
        (Some(_), _) => "exchange".to_owned(),
    }
}

fn as_json(options: &args::NetClock, sync: &TimeSync, peers: &[PeerStatus]) -> Value {
    let peer = |(named, status): (&args::ClockPeer, &PeerStatus)| {
        json!({
            "peer": named.name,
            "address": status.address.to_string(),
            "offset_ns": status.offset.map(|offset| offset.middle),
            "offset_min_ns": status.offset.map(|offset| offset.low),
            "offset_max_ns": status.offset.map(|offset| offset.high),
            "round_trip_ns": status.round_trip.map(Span::as_ns),
            "asked": status.asked,
            "answered": status.answered,
            "refused": status.refused,
            "restarts": status.restarts,
            "claim": status.claim.map(|claim| json!({
                "source": claim.own.to_string(),
                "peer_source": claim.peer.to_string(),
                "offset_min_ns": claim.offset.low,
                "offset_max_ns": claim.offset.high,
                "agrees": claim.offset.agrees,
            })),
        })
    };
    json!({
        "sources": clock_sources::json(&sync.sources()),
        "peers": options.peer.iter().zip(peers).map(peer).collect::<Vec<_>>(),
        "served": sync.served(),
        "foreign": sync.foreign(),
    })
}
