//! `takt sim`: a system in virtual time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use takt_log::stats::{Collector, Merged, Replications, Stats};
use takt_log::{BackEnd, Definitions, Header, KindSet, Sink, WriteError, Writer};
use takt_model::plan::PlanError;
use takt_model::{Span, System, file};
use takt_policy::PolicyError;
use takt_sim::{SimError, SimOptions, simulate};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::numbers::{Silence, merged, numbers};
use crate::output::{Target, print, print_json};
use crate::progress::{self, Watched};

pub(crate) fn execute(options: &args::Sim, json: bool) -> Outcome {
    let to_stdout = options.output.as_ref().is_some_and(Target::is_stdout);
    if json && to_stdout {
        return Err(Failure::input("--json and the log both want standard output; give -o FILE"));
    }
    if options.runs > 1 && options.output.is_some() {
        return Err(Failure::input("a log holds one run; leave out -o, or --runs (--seed names each run)"));
    }
    let system = input::place(input::system(&options.file)?)?;
    let node = input::node(&system, options.node.as_deref())?;
    let duration = input::duration(&system, options.duration)?;
    let sim = SimOptions { duration, seed: options.seed, node };
    if options.runs > 1 {
        let all = replicate(&system, &sim, options.runs)?;
        if json {
            print_json(&all)?;
        } else {
            print(&merged(&all, silence(&system, duration)))?;
        }
        return Ok(verdict(&all.stats, options.fail_on_miss));
    }
    let stats = match &options.output {
        Some(target) => logged(&system, &sim, target)?,
        None => {
            let collector = Collector::new(&Definitions::of(&system).about(node), KindSet::JOBS);
            let collector = simulated(&system, &sim, collector)?;
            collector.finish(end(&sim))
        }
    };
    if json {
        print_json(&stats)?;
    } else if !to_stdout {
        print(&numbers(&stats, silence(&system, duration)))?;
    }
    Ok(verdict(&stats, options.fail_on_miss))
}

/// What a simulation without a miss says.
pub(crate) fn silence(system: &System, duration: Span) -> Silence {
    if takt_report::is_no_proof(system, duration) { Silence::NoProof } else { Silence::Plain }
}

/// The exit status that goes with statistics.
pub(crate) fn verdict(stats: &Stats, fail_on_miss: bool) -> Status {
    if fail_on_miss && stats.missed() > 0 { Status::No } else { Status::Yes }
}

fn end(sim: &SimOptions) -> takt_model::Time {
    takt_model::Time::ZERO.saturating_add(sim.duration)
}

/// Simulates into a sink, with a bar where somebody watches.
pub(crate) fn simulated<S: Sink>(system: &System, sim: &SimOptions, mut sink: S) -> Result<S, Failure> {
    if progress::watched() {
        let mut watched = Watched::new(sink, sim.duration);
        let result = simulate(system, sim, &mut watched);
        sink = watched.finish();
        result.map_err(|error| failure(&error))?;
    } else {
        simulate(system, sim, &mut sink).map_err(|error| failure(&error))?;
    }
    Ok(sink)
}

/// Simulates into a log, counting on the way.
fn logged(system: &System, sim: &SimOptions, target: &Target) -> Result<Stats, Failure> {
    let definitions = Definitions::of(system).about(sim.node);
    let header = Header::new(file::write(system), Some(sim.seed), BackEnd::Sim, KindSet::JOBS);
    let failed = |error| write_failure(target, error);
    let writer = Writer::new(target.open()?, &header, &definitions).map_err(failed)?;
    let collector = Collector::new(&definitions, KindSet::JOBS);
    let (writer, collector) = simulated(system, sim, (writer, collector))?;
    writer.finish(end(sim)).map_err(failed)?;
    Ok(collector.finish(end(sim)))
}

/// An error of writing a log as a failure.
pub(crate) fn write_failure(target: &Target, error: WriteError) -> Failure {
    match error {
        WriteError::Io(error) => target.check(Err(error)).err().unwrap_or_else(Failure::reader_left),
        other => Failure::trouble(format_args!("{}: {other}", target.shown())),
    }
}

/// What the simulator says, with the exit status that fits.
fn failure(error: &SimError) -> Failure {
    match error {
        SimError::Unsupported { .. } => Failure::cannot(error),
        SimError::Backlog { .. } => Failure::trouble(error),
        SimError::TooLong { .. } | SimError::NoTrace { .. } => Failure::input(error),
        SimError::Policy(policy) => policy_failure(policy),
    }
}

fn policy_failure(error: &PolicyError) -> Failure {
    match error {
        PolicyError::Plan(PlanError::Table { .. }) => Failure::cannot(error),
        _ => Failure::input(error),
    }
}

/// Replications that wait for an earlier one to be merged, at most, per thread.
const AHEAD_MAX: usize = 8;

/// Simulates with the seeds seed, seed + 1, ... on all CPUs. The statistics are merged in the order of the seeds, so
/// that the result does not depend on the number of threads.
fn replicate(system: &System, sim: &SimOptions, runs: u32) -> Result<Merged, Failure> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(runs as usize);
    let definitions = Definitions::of(system).about(sim.node);
    let bar = progress::bar("replications", u64::from(runs));
    let next = AtomicU32::new(0);
    let outcome = thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<(u32, Result<Stats, SimError>)>(threads * AHEAD_MAX);
        for _ in 0..threads {
            let (send, next, definitions) = (send.clone(), &next, &definitions);
            scope.spawn(move || {
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= runs {
                        return;
                    }
                    let options = SimOptions { seed: sim.seed.wrapping_add(u64::from(run)), ..sim.clone() };
                    let mut collector = Collector::new(definitions, KindSet::JOBS);
                    let result = simulate(system, &options, &mut collector).map(|_| collector.finish(end(sim)));
                    if send.send((run, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        merge(receive, |done| bar.set_position(done))
    });
    bar.finish_and_clear();
    outcome?.finish().ok_or_else(|| Failure::trouble("no replication came to an end"))
}

/// Merges what comes in any order in the order of the numbers.
fn merge(
    receive: mpsc::Receiver<(u32, Result<Stats, SimError>)>,
    mut progress: impl FnMut(u64),
) -> Result<Replications, Failure> {
    let mut waiting = std::collections::BTreeMap::new();
    let mut merged = Replications::new();
    let mut wanted = 0;
    for (run, result) in receive {
        waiting.insert(run, result.map_err(|error| failure(&error))?);
        while let Some(stats) = waiting.remove(&wanted) {
            merged.add(&stats).map_err(Failure::trouble)?;
            wanted += 1;
            progress(u64::from(wanted));
        }
    }
    Ok(merged)
}
