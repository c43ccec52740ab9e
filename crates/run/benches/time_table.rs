//! How exact the time-difference table is.
//!
//! `cargo bench -p takt-run --bench time_table -- [--seconds N] [--clock-bound FILE]`
//!
//! Two nodes of this machine exchange over the loopback device. The peer's clock is shifted by an
//! hour and runs 50 ppm fast, so the true difference is known. Beside it runs a client that stamps
//! arrivals after its receive, and believes the middle of each exchange, as simple clients of NTP do.
//! If clock-bound runs here, its interval is shown too: twice its bound for CLOCK_REALTIME. FILE is
//! its shared memory, if that is elsewhere.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_linux::clock::monotonic_ns;
use takt_model::{Span, Time};
use takt_net::{Clock, SYNC_LENGTH, SyncMessage, SyncRequest};
use takt_run::clock_source::{ClockSources, SourcePaths};
use takt_run::time_sync::{TimeSync, TimeSyncSpec};

const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn now() -> Time {
    Time::from_ns(monotonic_ns())
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.get(args.iter().position(|arg| arg == name)? + 1);
    let seconds = value("--seconds").and_then(|seconds| seconds.parse().ok());
    let turns = seconds.unwrap_or(10_u64) * 100;
    let clock = Clock::new(Span::from_s(3600), 50_000).expect("a clock");
    let start = now();
    let theirs = move |at: Time| clock.local(Time::ZERO.saturating_add(at.saturating_since(start)));
    let spec = |peers| TimeSyncSpec {
        listen: HERE,
        peers,
        period: Span::from_ms(10),
        drift_ppm: 100,
        priority: 0,
        sources: None,
    };
    let mut peer = TimeSync::with_clock(&spec(Vec::new()), Box::new(theirs)).expect("a peer");
    let address = peer.address().expect("an address");
    let ends = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&ends);
    let thread = std::thread::spawn(move || {
        while !asked.load(Ordering::Acquire) {
            peer.run_until(now().saturating_add(Span::from_ms(10)));
        }
    });
    let mut own = TimeSync::bind(&spec(vec![address])).expect("a node");
    let simple = UdpSocket::bind(HERE).expect("a socket");
    simple.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    let truth = |at: Time| at.as_ns().cast_signed() - theirs(at).as_ns().cast_signed();
    let (mut errors, mut widths, mut simple_errors, mut outside) = (Vec::new(), Vec::new(), Vec::new(), 0);
    // Of clock-bound only.
    let none = PathBuf::new();
    let mut paths = SourcePaths { chrony: none, chrony_port: None, ptp4l: Vec::new(), ..SourcePaths::default() };
    if let Some(file) = value("--clock-bound") {
        paths.clock_bound = vec![PathBuf::from(file)];
    }
    let (mut clock_bound, mut clock_bound_widths) = (ClockSources::new(paths), Vec::new());
    for _ in 0..turns {
        own.run_until(now().saturating_add(Span::from_ms(10)));
        let at = now();
        if let Some(offset) = own.peers().first().and_then(|peer| peer.offset) {
            let truth = truth(at);
            errors.push(offset.middle.abs_diff(truth));
            widths.push(offset.width().as_ns());
            // Between both readings the difference changes by 50 ppm of their distance.
            outside += u32::from(offset.low > truth + 1000 || offset.high < truth - 1000);
        }
        clock_bound.refresh();
        clock_bound_widths.extend(clock_bound.bound().map(|(_, _, error)| error.as_ns().saturating_mul(2)));
        let t1 = now();
        let request = SyncMessage::Request(SyncRequest { secret: 1, sent: t1 }).write();
        let mut bytes = [0; SYNC_LENGTH];
        let answered = simple.send_to(&request, address).and_then(|_| simple.recv(&mut bytes));
        let t4 = now();
        let answer = answered.ok().and_then(|length| SyncMessage::read(bytes.get(..length)?));
        if let Some(SyncMessage::Answer { received, sent, .. }) = answer {
            let ns = |time: Time| time.as_ns().cast_signed();
            let middle = (ns(t1) - ns(received)).midpoint(ns(t4) - ns(sent));
            simple_errors.push(middle.abs_diff(truth(t4)));
        }
    }
    ends.store(true, Ordering::Release);
    drop(thread.join());
    assert!(!simple_errors.is_empty(), "the simple client had no answer");
    let has_clock_bound = !clock_bound_widths.is_empty();
    let all = [errors, widths, simple_errors, clock_bound_widths];
    let [error, wide, simple_error, clock_bound_wide] = all.map(|mut all| {
        all.sort_unstable();
        let at = |percent: usize| all.get(all.len() * percent / 100).copied().unwrap_or(0);
        (at(50), at(99))
    });
    println!("{turns} readings; intervals without the true difference: {outside}");
    let us = |ns: u64| ns as f64 / 1e3;
    println!("                             p50 us   p99 us");
    println!("width of the interval     {:>9.1} {:>8.1}", us(wide.0), us(wide.1));
    println!("error of its middle       {:>9.1} {:>8.1}", us(error.0), us(error.1));
    println!("error of a simple client  {:>9.1} {:>8.1}", us(simple_error.0), us(simple_error.1));
    let ratio = |one: u64, other: u64| one as f64 / other.max(1) as f64;
    println!(
        "table / simple client     {:>9.2} {:>8.2}",
        ratio(error.0, simple_error.0),
        ratio(error.1, simple_error.1)
    );
    match clock_bound.reports().first().map(|report| report.state) {
        _ if has_clock_bound => {
            println!("twice clock-bound's bound {:>9.1} {:>8.1}", us(clock_bound_wide.0), us(clock_bound_wide.1));
            println!(
                "width / twice that bound  {:>9.2} {:>8.2}",
                ratio(wide.0, clock_bound_wide.0),
                ratio(wide.1, clock_bound_wide.1)
            );
        }
        Some(Err(reason)) => println!("clock-bound: skipped: {reason}"),
        _ => println!("clock-bound: skipped: not running"),
    }
}
