//! `takt observe`: jobs of a running kernel, or of a recorded trace.

mod file;
mod live;

use serde::Serialize;
use takt_log::stats::Stats;
use takt_model::Span;
use takt_trace::jobs::{Filter, Options};

use super::sim::verdict;
use crate::args;
use crate::failure::{Failure, Outcome};
use crate::numbers::{Silence, numbers};
use crate::output::{Target, note, print, print_json};

/// How much of a recording a crash can take from its log, and how long a reader of a pipe waits.
const FLUSH: Span = Span::from_ms(250);

pub(crate) fn execute(options: &args::Observe, json: bool) -> Outcome {
    let to_stdout = options.output.as_ref().is_some_and(Target::is_stdout);
    if json && to_stdout {
        return Err(Failure::input("--json and the log both want standard output; give -o FILE"));
    }
    let (stats, about) = match &options.file {
        Some(path) => file::read(path, options)?,
        None => live::record(options)?,
    };
    for sentence in about.warnings() {
        note(format_args!("warning: {sentence}"));
    }
    if json {
        print_json(&Answer { stats: &stats, observed: &about })?;
    } else if !to_stdout {
        print(&format!("{}\n{}", numbers(&stats, Silence::Plain), about.sentence()))?;
    }
    Ok(verdict(&stats, options.fail_on_miss))
}

/// The contract's keys, and after them where the events come from.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    stats: &'a Stats,
    observed: &'a About,
}

/// Where events come from.
#[derive(Serialize)]
#[serde(untagged)]
enum About {
    Trace(file::Trace),
    Recording(live::Recording),
}

impl About {
    fn sentence(&self) -> String {
        match self {
            About::Trace(trace) => trace.sentence(),
            About::Recording(recording) => recording.sentence(),
        }
    }

    fn warnings(&self) -> Vec<String> {
        match self {
            About::Trace(trace) => trace.warnings(),
            About::Recording(recording) => recording.warnings(),
        }
    }
}

/// How jobs are rebuilt, as far as the command line says.
fn rebuild(options: &args::Observe) -> Options {
    Options {
        suspensions: options.suspensions,
        filter: Filter {
            pids: options.pid.iter().copied().collect(),
            names: options.comm.clone(),
            interrupts: options.irq.clone(),
        },
        ..Options::default()
    }
}
