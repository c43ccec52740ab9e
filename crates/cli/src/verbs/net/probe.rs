//! `takt net probe`.

mod files;
mod told;

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;

use serde_json::json;
use takt_linux::Epoch;
use takt_linux::outgoing::Transport;
use takt_linux::signals::StopSignals;
use takt_model::{Span, Time};
use takt_net::probe::{Pace, ScheduleSpec, playback};
use takt_run::probe::{
    BackgroundSpec, ClocksSpec, DURATION_MAX, Figures, GroupSpec, ProbeError, ProbeOutcome, ProbeServer,
    ProbeServerSpec, ProbeServerStats, ProbeSpec, probe,
};

use crate::args;
use crate::args::{ProbeCommon, ProbeGenerated, ProbeMode};
use crate::failure::{Failure, Outcome, Status as Exit};
use crate::input;
use crate::output::{Target, note, print, print_json};
use crate::progress;
use crate::table::Table;

pub(super) fn execute(options: &args::NetProbe, json: bool) -> Outcome {
    match &options.mode {
        ProbeMode::Serve(options) => serve(options, json),
        ProbeMode::PingPong(options) => {
            let pace = options.mps.map_or(Pace::Max, Pace::BurstsPerSecond);
            let spec = ProbeSpec { is_closed: true, ..generated(&options.common, &options.generated, pace, 1) };
            measure("ping-pong", &options.common, &spec, json)
        }
        ProbeMode::UnderLoad(options) => {
            let every = options.reply_every.unwrap_or(if options.common.deadline.is_some() { 1 } else { 100 });
            let spec = generated(&options.common, &options.generated, Pace::BurstsPerSecond(options.mps), every);
            measure("under-load", &options.common, &spec, json)
        }
        ProbeMode::Throughput(options) => {
            let pace = options.mps.map_or(Pace::Max, Pace::BurstsPerSecond);
            let mut spec = generated(&options.common, &options.generated, pace, 0);
            // Without replies, the clocks say nothing.
            spec.clocks = None;
            measure("throughput", &options.common, &spec, json)
        }
        ProbeMode::Playback(options) => {
            let spec = played(options)?;
            measure("playback", &options.common, &spec, json)
        }
    }
}

fn played(options: &args::ProbePlayback) -> Result<ProbeSpec, Failure> {
    let text = input::text(&options.file, "playback")?;
    let sends = playback(&text).map_err(|error| {
        Failure::input(format_args!("{}:{}: {}", input::shown(&options.file), error.line, error.what))
    })?;
    let mut spec = spec(&options.common, Pace::Playback(sends), options.reply_every);
    spec.duration = options.common.duration.unwrap_or(DURATION_MAX);
    Ok(spec)
}

fn generated(options: &ProbeCommon, generated: &ProbeGenerated, pace: Pace, reply_every: u32) -> ProbeSpec {
    let spec = spec(options, pace, reply_every);
    let schedule = ScheduleSpec { burst: generated.burst, size: generated.size, ..spec.schedule };
    ProbeSpec { schedule, warm_up: generated.warm_up, ..spec }
}

fn spec(options: &ProbeCommon, pace: Pace, reply_every: u32) -> ProbeSpec {
    let schedule =
        ScheduleSpec { deadline: options.deadline, reply_every, seed: options.seed, ..ScheduleSpec::new(pace) };
    let clocks = ClocksSpec { drift_ppm: options.drift, width_max: options.clock_width, ..ClocksSpec::default() };
    let (size, priority) = (options.background_size, options.background_priority);
    ProbeSpec {
        transport: if options.tcp { Transport::Stream } else { Transport::Datagram },
        duration: options.duration.unwrap_or(Span::from_s(1)),
        patience: options.wait,
        priority: options.priority,
        tos: options.tos,
        group: group(options),
        background: options.background.map(|rate| BackgroundSpec { rate, size, priority }),
        broker: options.broker.clone(),
        clocks: (!options.no_one_way).then_some(clocks),
        schedule,
        ..ProbeSpec::new(options.servers.clone(), Pace::Max)
    }
}

/// How messages go to a group, if an address or an option asks for one.
fn group(options: &ProbeCommon) -> Option<GroupSpec> {
    let is_asked = options.mc_tx_if.is_some()
        || options.mc_ttl.is_some()
        || options.mc_loopback_enable
        || options.members.is_some()
        || options.servers.iter().any(|server| server.ip().is_multicast());
    let default = GroupSpec::default();
    is_asked.then(|| GroupSpec {
        device: options.mc_tx_if.clone(),
        ttl: options.mc_ttl.unwrap_or(default.ttl),
        loops: options.mc_loopback_enable,
        members: options.members.unwrap_or(default.members),
    })
}

fn failure(error: ProbeError) -> Failure {
    match &error {
        ProbeError::NoAnswer(_)
        | ProbeError::NoMembers { .. }
        | ProbeError::Connect { .. }
        | ProbeError::Full(_)
        | ProbeError::Stopped
        | ProbeError::NoBroker(_) => Failure::no(error),
        ProbeError::Outgoing(_) => Failure::cannot(error),
        ProbeError::Bind(cause) if cause.is_privilege() => Failure::cannot(error),
        ProbeError::Clocks(cause) if cause.is_privilege() => Failure::cannot(error),
        ProbeError::Listen { cause, .. } if cause.kind() == ErrorKind::PermissionDenied => Failure::cannot(error),
        ProbeError::Kernel(_) => Failure::trouble(error),
        _ => Failure::input(error),
    }
}

fn measure(mode: &str, options: &ProbeCommon, spec: &ProbeSpec, json: bool) -> Outcome {
    check_targets(options, json)?;
    // An hour of measuring is not lost to a path that cannot be written.
    let open = |target: &Option<Target>| target.as_ref().map(Target::open).transpose();
    let (csv, svg) = (open(&options.csv)?, open(&options.svg)?);
    let signals = StopSignals::catch();
    let planned = match &spec.schedule.pace {
        Pace::Playback(sends) => sends.last().map_or(Span::ZERO, |last| last.0.saturating_since(Time::ZERO)),
        _ => spec.warm_up.saturating_add(spec.duration),
    };
    let bar = progress::bar(mode, planned.min(spec.duration.saturating_add(spec.warm_up)).as_ns());
    let outcome = probe(spec, &|| signals.caught().is_some(), &mut |progress| {
        bar.set_position(progress.elapsed.as_ns());
        bar.set_message(format!("{mode}: {} sent, {} answered", progress.sent, progress.answered));
    });
    bar.finish_and_clear();
    let outcome = match (outcome, signals.caught()) {
        (Err(ProbeError::Stopped), Some(signal)) => {
            return Err(Failure::no(format_args!("interrupted by {signal} before the first message")));
        }
        (outcome, _) => outcome.map_err(failure)?,
    };
    if let Some(signal) = signals.caught().filter(|_| outcome.is_stopped) {
        note(format_args!("note: interrupted by {signal} after {}", outcome.duration));
    }
    let lost = if spec.schedule.reply_every == 1 {
        outcome.servers.iter().filter_map(takt_run::probe::ServerOutcome::lost).sum()
    } else {
        0
    };
    let figures = Figures::of(&outcome.messages, lost);
    let is_file_printed = [&options.csv, &options.svg].into_iter().flatten().any(Target::is_stdout);
    if let Some((target, out)) = options.csv.as_ref().zip(csv) {
        files::csv(&outcome, target, out)?;
    }
    if let Some((target, mut out)) = options.svg.as_ref().zip(svg) {
        target.check(out.write_all(files::svg(mode, &figures).as_bytes()).and_then(|()| out.flush()))?;
    }
    match (json, is_file_printed) {
        (_, true) => {}
        (true, _) => print_json(&told::as_json(mode, spec, &outcome, &figures))?,
        (false, _) => print(&told::text(mode, spec, &outcome, &figures))?,
    }
    Ok(if is_good(&outcome, &figures) { Exit::Yes } else { Exit::No })
}

/// Each output has a place of its own.
fn check_targets(options: &ProbeCommon, json: bool) -> Result<(), Failure> {
    let (csv, svg) = (options.csv.as_ref(), options.svg.as_ref());
    if csv.is_some() && csv == svg {
        return Err(Failure::input("--csv and --svg write to the same place; give each a file of its own"));
    }
    if json && [csv, svg].into_iter().flatten().any(Target::is_stdout) {
        return Err(Failure::input("--json and a file both write to standard output; give --csv or --svg a path"));
    }
    Ok(())
}

/// Every server received something and replied if asked, and no deadline was missed as far as is
/// known.
fn is_good(outcome: &ProbeOutcome, figures: &Figures) -> bool {
    let has_arrived = outcome.servers.iter().all(|server| {
        let has_replied = server.asked == 0 || server.answered > 0;
        server.arrived.is_some_and(|came| came.received > 0) && has_replied && !server.has_ended
    });
    let missed = if figures.one_way_max.count() > 0 { figures.missed_one_way_max } else { figures.missed_round_trip };
    has_arrived && missed == 0
}

fn serve(options: &args::ProbeServe, json: bool) -> Outcome {
    input::not_zero("--for", options.duration)?;
    let (groups, group_device) = (options.groups.clone(), options.mc_rx_if.clone());
    let (listen, priority, tos) = (options.listen, options.priority, options.tos);
    let spec = ProbeServerSpec { listen, priority, tos, groups, group_device };
    let signals = StopSignals::catch();
    let server = ProbeServer::bind(&spec).map_err(failure)?;
    let at = server.address().unwrap_or(options.listen);
    let groups = options.groups.iter().map(|group| SocketAddr::new(*group, at.port()));
    let groups: String = groups.map(|group| format!(", and in group {group} by UDP")).collect();
    note(format_args!("probers find this server at {at}, by UDP and TCP{groups}"));
    if !server.has_kernel_stamps() {
        note("the kernel does not stamp datagrams (SO_TIMESTAMPNS): arrivals are those at this program");
    }
    let epoch = Epoch::now_is_zero();
    let end = options.duration.map(|duration| Time::ZERO.saturating_add(duration));
    let stats = server.serve(&|| signals.caught().is_some() || end.is_some_and(|end| epoch.now() >= end));
    match json {
        true => print_json(&served_json(&stats))?,
        false => print(&served(&stats))?,
    }
    Ok(Exit::Yes)
}

fn served(stats: &ProbeServerStats) -> String {
    let mut table = Table::new(&["RUNS", "RECEIVED", "BYTES", "REPLIES", "UNSENT", "CLOCK REQUESTS"]);
    let numbers = [stats.runs, stats.received, stats.bytes, stats.replies, stats.unsent, stats.clock_requests];
    table.row(numbers.map(|number| number.to_string()).to_vec());
    let mut text = table.render("");
    if stats.malformed + stats.foreign + stats.refused > 0 {
        text.push_str(&format!(
            "dropped {} malformed messages and {} of unknown runs; refused {} runs beyond the limit\n",
            stats.malformed, stats.foreign, stats.refused
        ));
    }
    text
}

fn served_json(stats: &ProbeServerStats) -> serde_json::Value {
    json!({
        "runs": stats.runs,
        "received": stats.received,
        "received_bytes": stats.bytes,
        "replies": stats.replies,
        "unsent": stats.unsent,
        "malformed": stats.malformed,
        "foreign": stats.foreign,
        "refused": stats.refused,
        "clock_requests": stats.clock_requests,
    })
}
