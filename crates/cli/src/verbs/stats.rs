//! `takt stats`: the numbers of a log.

use takt_log::BackEnd;
use takt_log::stats::{Collector, Stats};
use takt_model::Span;

use super::sim::{silence, verdict};
use crate::args;
use crate::failure::Outcome;
use crate::input::{self, Log};
use crate::numbers::{Silence, numbers};
use crate::output::{print, print_json};

pub(crate) fn execute(options: &args::Stats, json: bool) -> Outcome {
    let mut log = input::log(&options.log)?;
    let stats = Collector::read(&mut log).map_err(|error| input::log_failure(&options.log, &error))?;
    input::warn_of_damage(&options.log, &log.damage());
    if json {
        print_json(&stats)?;
    } else {
        print(&numbers(&stats, silence_of(&options.log, &log, &stats)))?;
    }
    Ok(verdict(&stats, options.fail_on_miss))
}

/// A run without a miss is what it is; a simulation may be taken for a proof.
fn silence_of(path: &str, log: &Log, stats: &Stats) -> Silence {
    if log.header().back_end != BackEnd::Sim {
        return Silence::Plain;
    }
    let duration = Span::from_ns(stats.duration_ns);
    input::system_of(path, log).map_or(Silence::NoProof, |system| silence(&system, duration))
}
