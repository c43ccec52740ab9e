//! `takt stats`: the numbers of a log.

use takt_log::stats::{Collector, table};

use super::sim::verdict;
use crate::args;
use crate::failure::Outcome;
use crate::input;
use crate::output::{print, print_json};

pub(crate) fn execute(options: &args::Stats, json: bool) -> Outcome {
    let mut log = input::log(&options.log)?;
    let stats = Collector::read(&mut log).map_err(|error| input::log_failure(&options.log, &error))?;
    input::warn_of_damage(&options.log, &log.damage());
    if json {
        print_json(&stats)?;
    } else {
        print(&table(&stats))?;
    }
    Ok(verdict(&stats, options.fail_on_miss))
}
