//! `takt reserve`: CPU time for a command, or for threads that run already.

mod auto;
mod compare;
mod held;
mod hold;
mod judge;
#[cfg(test)]
mod judge_tests;
mod phase;
mod planned;
mod tell;

use takt_run::reserve::Budget;

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::output::{note, print, print_json};
use planned::{planned, refused, requested};

pub(crate) fn execute(options: &args::Reserve, json: bool) -> Outcome {
    input::not_zero("--for", options.duration)?;
    input::not_zero("--observe", options.observe)?;
    if options.by() == Budget::Group {
        let set = [
            ("--reclaim", options.reclaim),
            ("--all-cpus", options.all_cpus),
            ("--deadline", options.deadline.is_some() && !options.auto),
        ];
        if let Some((option, _)) = set.iter().find(|(_, set)| *set) {
            return Err(Failure::input(format_args!(
                "{option} is for SCHED_DEADLINE, and a control group has no counterpart: leave out {option} or \
                 --budget cgroup"
            )));
        }
    }
    if options.auto || options.observe.is_some() {
        return auto::execute(options, json);
    }
    let plan = planned(options, &requested(options)?).map_err(|error| refused(&error))?;
    for sentence in &plan.notes {
        note(format_args!("note: {sentence}"));
    }
    if options.dry_run {
        if json {
            print_json(&tell::dry_run_json(&plan, options))?;
        } else {
            print(&tell::dry_run_text(&plan, options))?;
        }
        return Ok(Status::Yes);
    }
    let held = hold::hold(options, &plan)?;
    for sentence in held.warnings() {
        note(format_args!("warning: {sentence}"));
    }
    if json {
        print_json(&tell::ended_json(&plan, &held))?;
    } else {
        print(&tell::ended_text(&plan, &held))?;
    }
    Ok(held.status())
}
