//! Shared by the simulator's tests: small random systems and a slow, obvious simulator.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod clusters;
pub(crate) mod jobs;
pub(crate) mod messages;
pub(crate) mod random;
pub(crate) mod reference;
pub(crate) mod servers;

use takt_log::{Event, JobKey};
use takt_model::{NodeId, Span, System, Time};
use takt_sim::{SimOptions, simulate};

/// Events with their times, in an order that does not depend on who comes first within an instant.
pub(crate) fn by_job(mut events: Vec<(u64, Event)>) -> Vec<(u64, Event)> {
    events.sort_by_key(|(at, event)| (*at, job_of(event)));
    events
}

pub(crate) fn job_of(event: &Event) -> Option<JobKey> {
    match *event {
        Event::Release { job, .. }
        | Event::Start { job, .. }
        | Event::Preempt { job, .. }
        | Event::Resume { job, .. }
        | Event::Complete { job, .. }
        | Event::Miss { job }
        | Event::Cancel { job, .. }
        | Event::Migrate { job, .. } => Some(job),
        _ => None,
    }
}

/// The events of the simulator under test.
pub(crate) fn simulated(system: &System, seed: u64, duration: u64) -> Vec<(u64, Event)> {
    streams(system, seed, duration).into_iter().map(|(_, at, event)| (at, event)).collect()
}

/// The same with the node of each event.
pub(crate) fn streams(system: &System, seed: u64, duration: u64) -> Vec<(NodeId, u64, Event)> {
    let mut events: Vec<(u32, Time, Event)> = Vec::new();
    let options = SimOptions { duration: Span::from_ns(duration), seed, node: None };
    simulate(system, &options, &mut events).unwrap_or_else(|error| panic!("{error}\n{system:#?}"));
    assert!(events.windows(2).all(|pair| pair[0].1 <= pair[1].1), "a stream is ordered");
    events.into_iter().map(|(stream, at, event)| (NodeId(stream), at.as_ns(), event)).collect()
}

/// Fails at the first unit or event in which the simulator and the reference differ.
pub(crate) fn compare<T: PartialEq + std::fmt::Debug>(system: &System, fast: &[T], slow: &[T], replay: &str) {
    if let Some(at) = (0..fast.len().max(slow.len())).find(|at| fast.get(*at) != slow.get(*at)) {
        let system = takt_model::file::write(system);
        let before = &slow[at.saturating_sub(6).min(slow.len())..at.min(slow.len())];
        let (fast, slow) = (fast.get(at), slow.get(at));
        panic!("{replay}\n{system}\nat {at}: simulator {fast:?}\nreference {slow:?}\nbefore: {before:?}");
    }
}
