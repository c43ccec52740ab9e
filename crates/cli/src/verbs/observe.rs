//! `takt observe`: jobs of a running kernel, or of a recorded trace.

pub(super) mod beside;
mod file;
mod folder;
pub(super) mod live;
mod raw;
mod rebuild;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use takt_linux::signals::StopSignals;
use takt_log::stats::Stats;

use super::sim::verdict;
use crate::args;
use crate::failure::{Failure, Outcome};
use crate::live::Live;
use crate::numbers::{Caveat, interrupts, late, numbers};
use crate::output::{Target, note, only_one, print, print_json};
use crate::serve::Server;
use crate::table::Rows;

pub(crate) fn execute(options: &args::Observe, json: bool) -> Outcome {
    let to_stdout = options.output.as_ref().is_some_and(Target::is_stdout);
    only_one(json, to_stdout, "log")?;
    let (stats, about) = match &options.file {
        Some(path) => {
            let (stats, trace) = file::read(path, options)?;
            (stats, Source::Trace(trace))
        }
        None => {
            let signals = StopSignals::catch();
            let live = options.serve.as_ref().map(|_| Live::default());
            let serving = Serving::start(options.serve.as_deref(), live.clone())?;
            let recorded = live::record(options, live, &|| signals.caught().map(|signal| signal.to_string()));
            drop(serving);
            let (stats, recording) = recorded?;
            (stats, Source::Recording(recording))
        }
    };
    for sentence in about.warnings() {
        note(format_args!("warning: {sentence}"));
    }
    let interrupts_only = about.interrupts_only() || asks_for_interrupts(options);
    let mut notes = unknown(&stats, about.gaps());
    if about.interrupts_only() {
        notes.push("no sched_switch in it, so there are no jobs: interrupts only".to_owned());
    }
    notes.extend(if interrupts_only { no_interrupts(&stats) } else { no_jobs(&stats, options) });
    for sentence in &notes {
        note(format_args!("note: {sentence}"));
    }
    if json {
        print_json(&Answer { stats: &stats, notes: &notes, observed: &about })?;
    } else if !to_stdout && interrupts_only {
        print(&format!("{}\n{}", interrupts(&stats), about.sentence()))?;
    } else if !to_stdout {
        print(&format!(
            "{}\n{}",
            numbers(&stats, Caveat::None, Rows::Most) + &late(&stats, Rows::Most),
            about.sentence()
        ))?;
    }
    Ok(verdict(&stats, options.fail_on_miss))
}

struct Serving(Option<(Arc<AtomicBool>, JoinHandle<()>)>);

impl Serving {
    fn start(address: Option<&str>, live: Option<Live>) -> Result<Serving, Failure> {
        let (Some(address), Some(live)) = (address, live) else { return Ok(Serving(None)) };
        let server = Server::bind(address)?;
        note(format_args!("serving {}", server.url()));
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let started = std::thread::Builder::new().name("takt-metrics".to_owned()).spawn(move || {
            while !told.load(Ordering::Relaxed) {
                if let Err(failure) = server.answer(PATIENCE, &live) {
                    note(format_args!("warning: {}", failure.message));
                    return;
                }
            }
        });
        match started {
            Ok(thread) => Ok(Serving(Some((over, thread)))),
            Err(error) => Err(Failure::trouble(format_args!("cannot start a thread to serve metrics: {error}"))),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some((over, thread)) = self.0.take() {
            over.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}

/// How often the thread that serves looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(200);

/// The contract's keys, and after them where the events come from.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    stats: &'a Stats,
    notes: &'a [String],
    observed: &'a Source,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Source {
    Trace(file::Trace),
    Recording(live::Recording),
}

impl Source {
    fn sentence(&self) -> String {
        match self {
            Source::Trace(trace) => trace.sentence(),
            Source::Recording(recording) => recording.sentence(),
        }
    }

    fn interrupts_only(&self) -> bool {
        matches!(self, Source::Trace(trace) if trace.interrupts_only)
    }

    fn gaps(&self) -> u64 {
        match self {
            Source::Trace(trace) => trace.gaps,
            Source::Recording(recording) => recording.gaps,
        }
    }

    fn warnings(&self) -> Vec<String> {
        match self {
            Source::Trace(trace) => trace.warnings(),
            Source::Recording(recording) => recording.warnings(),
        }
    }
}

fn names_threads(options: &args::Observe) -> bool {
    let args::Observe { pid, tid, comm, cgroup, .. } = options;
    !(pid.is_empty() && tid.is_empty() && comm.is_empty() && cgroup.is_empty())
}

/// Whether the options ask for interrupts, and neither for threads nor for those of a command.
fn asks_for_interrupts(options: &args::Observe) -> bool {
    !options.irq.is_empty() && options.command.is_empty() && !names_threads(options)
}

/// Says that the table of interrupts is empty, if it is.
fn no_interrupts(stats: &Stats) -> Option<String> {
    let none = stats.interrupts.as_ref().is_none_or(Vec::is_empty);
    none.then(|| "no interrupt that is asked for was seen".to_owned())
}

/// Why the table of tasks is empty, if it is.
fn no_jobs(stats: &Stats, options: &args::Observe) -> Option<String> {
    if !stats.tasks.is_empty() {
        return None;
    }
    let who = if names_threads(options) { "no thread that the options name" } else { "no thread" };
    Some(format!("{who} has a job: none was seen to wait, to be woken and to run until it waits again"))
}

/// Why preemptions and migrations of some tasks are unknown, where they are.
fn unknown(stats: &Stats, gaps: u64) -> Vec<String> {
    let tasks = stats.tasks.iter().filter(|task| task.preemptions.is_none()).count();
    if tasks == 0 {
        return Vec::new();
    }
    let of = format!("preemptions and migrations of {tasks} tasks are unknown (-)");
    let mut notes = Vec::new();
    match stats.lost_events {
        Some(0) => {}
        Some(lost) => notes.push(format!("{of}: {lost} events were lost while jobs were open")),
        None => notes.push(format!("{of}: events were lost while jobs were open")),
    }
    if gaps > 0 {
        notes.push(format!(
            "{of}: {gaps} switches of their threads within jobs were not recorded, though no loss is known; of \
             such a job CPU times are unknown, too"
        ));
    }
    if notes.is_empty() {
        notes.push(format!("{of}: no switches are recorded"));
    }
    notes
}
