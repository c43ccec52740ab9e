//! Values of a System from the fields of its file.

use super::read::{Fields, Val};
use crate::strategy::Late;
use crate::system::{
    ActualDelay, Arrival, Background, Bucket, Clock, ClockStep, Criticality, Cross, Exec, Link, Port, ServerRule,
    TableTask, Trace,
};
use crate::time::{Span, Time};
use crate::units::{Bytes, Probability, Rate};

/// `task "video"`, or `task 3` where it has no name.
pub(super) fn owner(f: &Fields, index: usize) -> String {
    let noun = f.grammar.noun;
    let named = f.grammar.keys.iter().any(|key| key.name == "name");
    match if named { f.text("name") } else { None } {
        Some(name) => format!("{noun} \"{name}\""),
        None => format!("{noun} {}", index + 1),
    }
}

/// Whether a mode changes a server instead of a strategy.
pub(super) fn is_switch(mode: &Fields) -> bool {
    mode.field("component").is_some()
}

pub(super) fn rule(name: &str) -> Option<ServerRule> {
    ServerRule::ALL.into_iter().find(|rule| rule.name() == name)
}

pub(super) fn criticality(word: &str) -> Criticality {
    if word == "low" { Criticality::Low } else { Criticality::High }
}

pub(super) fn late(word: &str) -> Late {
    match word {
        "drop" => Late::Drop,
        "demote" => Late::Demote,
        _ => Late::Continue,
    }
}

pub(super) fn size(f: &Fields, key: &str) -> Bytes {
    match f.value(key) {
        Some(Val::Size(size)) => *size,
        _ => Bytes::default(),
    }
}

pub(super) fn rate(f: &Fields, key: &str) -> Rate {
    match f.value(key) {
        Some(Val::Rate(rate)) => *rate,
        _ => Rate::from_bps(1),
    }
}

pub(super) fn link(f: &Fields) -> Link {
    let bucket = |f: &Fields| Bucket { burst: size(f, "burst"), rate: rate(f, "rate") };
    let background = |f: &Fields| Background { size: size(f, "size"), rate: f.value("rate").map(|_| rate(f, "rate")) };
    Link {
        rate: rate(f, "rate"),
        edf: f.text("order") == Some("edf"),
        late: late(f.text("late").unwrap_or_default()),
        bucket: f.table("bucket").map(bucket),
        replies: f.table("replies").map(bucket),
        background: f.table("background").map(background),
    }
}

pub(super) fn port(f: &Fields) -> Port {
    let cross = |f: &Fields| Cross { burst: size(f, "burst"), rate: rate(f, "rate") };
    Port {
        name: f.text("name").unwrap_or_default().to_owned(),
        rate: rate(f, "rate"),
        latency: f.span("latency").unwrap_or_default(),
        cross: f.table("cross").map(cross),
        fifo: f.text("order") != Some("any"),
    }
}

pub(super) fn table_task(f: &Fields) -> Option<TableTask> {
    Some(TableTask { period: f.span("period")?, wcet: f.span("wcet")?, cost: f.span("cost") })
}

pub(super) fn clock(f: &Fields) -> Clock {
    let sync = |f: &Fields| Some(TableTask { period: f.span("period")?, wcet: f.span("wcet")?, cost: None });
    Clock {
        drift_ppm: f.int("drift-ppm").unwrap_or_default(),
        offset: f.span("offset").unwrap_or_default(),
        error: f.span("error").unwrap_or_default(),
        sync: f.table("sync").and_then(sync),
    }
}

/// The steps of a node's clock. If one of them is bad, an error has been reported, and there are none.
pub(super) fn clock_steps(f: &Fields) -> Vec<ClockStep> {
    let step = |f: &Fields| {
        let Some(Val::Shift(by)) = f.value("by") else { return None };
        Some(ClockStep { at: Time::ZERO + f.span("at")?, by: *by })
    };
    f.tables("clock-step").map(step).collect::<Option<_>>().unwrap_or_default()
}

pub(super) fn spans(f: &Fields, key: &str) -> Vec<Span> {
    let span = |value: &Val| if let Val::Span(span) = value { Some(*span) } else { None };
    f.list(key).iter().filter_map(|(value, _)| span(value)).collect()
}

pub(super) fn pair(f: &Fields, key: &str) -> Option<(Span, Span)> {
    if let [(Val::Span(first), _), (Val::Span(second), _)] = f.list(key) { Some((*first, *second)) } else { None }
}

pub(super) fn pmf(f: &Fields) -> Vec<(Span, Probability)> {
    let entry = |value: &Val| match value {
        Val::List(pair) => match pair.as_slice() {
            [(Val::Span(span), _), (Val::Probability(probability), _)] => Some((*span, *probability)),
            _ => None,
        },
        _ => None,
    };
    f.list("pmf").iter().filter_map(|(value, _)| entry(value)).collect()
}

pub(super) fn trace(path: &str) -> Trace {
    Trace { path: path.to_owned(), ..Trace::default() }
}

pub(super) fn exec(f: &Fields) -> Exec {
    if let Some((min, max)) = pair(f, "uniform") {
        Exec::Uniform { min, max }
    } else if f.value("pmf").is_some() {
        Exec::Pmf(pmf(f))
    } else {
        f.text("trace").map_or(Exec::Wcet, |path| Exec::Trace(trace(path)))
    }
}

pub(super) fn arrival(f: &Fields) -> Arrival {
    if f.value("pmf").is_some() {
        Arrival::Pmf(pmf(f))
    } else {
        f.text("trace").map_or(Arrival::Periodic, |path| Arrival::Trace(trace(path)))
    }
}

pub(super) fn actual_delay(f: &Fields) -> ActualDelay {
    if f.value("pmf").is_some() {
        ActualDelay::Pmf(pmf(f))
    } else {
        f.text("trace").map_or(ActualDelay::Uniform, |path| ActualDelay::Trace(trace(path)))
    }
}

/// The integers of a list.
pub(super) fn ints(f: &Fields, key: &str) -> Vec<u32> {
    f.list(key).iter().filter_map(|(value, _)| if let Val::Int(int) = value { Some(*int) } else { None }).collect()
}
