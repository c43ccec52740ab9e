//! `takt reserve`: CPU time for a command, or for threads that run already.

mod auto;
mod compare;
mod hold;
mod judge;
#[cfg(test)]
mod judge_tests;
mod phase;
mod tell;

use takt_model::Span;
use takt_run::reserve::{Facts, Plan, ReserveError, Wish, find, plan, plan_command};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{note, print, print_json};

pub(crate) fn execute(options: &args::Reserve, json: bool) -> Outcome {
    if options.duration.is_some_and(Span::is_zero) {
        return Err(Failure::input("--for 0ns is no time; give a duration like 10s"));
    }
    if options.observe.is_some_and(Span::is_zero) {
        return Err(Failure::input("--observe 0ns is no time; give a duration like 10s"));
    }
    if options.auto || options.observe.is_some() {
        return auto::execute(options, json);
    }
    let plan = planned(options, &wished(options)?).map_err(|error| refused(&error))?;
    for sentence in &plan.notes {
        note(format_args!("note: {sentence}"));
    }
    if options.dry_run {
        if json {
            print_json(&tell::dry(&plan, options))?;
        } else {
            print(&tell::dry_text(&plan, options))?;
        }
        return Ok(Status::Yes);
    }
    let held = hold::hold(options, &plan)?;
    for sentence in held.warnings() {
        note(format_args!("warning: {sentence}"));
    }
    if json {
        print_json(&tell::answer(&plan, &held))?;
    } else {
        print(&tell::text(&plan, &held))?;
    }
    Ok(held.status())
}

/// What the command line asks for.
fn wished(options: &args::Reserve) -> Result<Wish, Failure> {
    let (Some(runtime), Some(period)) = (options.runtime, options.period) else {
        return Err(Failure::input("--runtime and --period are wanted"));
    };
    let deadline = options.deadline.unwrap_or(period);
    Ok(Wish { deadline, reclaim: options.reclaim, widen: options.all_cpus, ..Wish::new(runtime, period) })
}

fn planned(options: &args::Reserve, wish: &Wish) -> Result<Plan, ReserveError> {
    let facts = Facts::gather();
    match options.command.first() {
        Some(program) => plan_command(wish, program, &takt_linux::sched::affinity(), &facts),
        None => {
            let plan = plan(wish, find(&options.pid, options.threads)?, &facts)?;
            for target in plan.threads.iter().filter(|_| !options.threads) {
                let count = takt_run::reserve::threads_of(target.process);
                if count > 1 && target.thread.pid == target.process {
                    note(format_args!(
                        "note: process {} has {count} threads, and {} ({}) alone gets the reservation; --threads gives each one, --pid with a number of \"ps -eL\" another",
                        target.process, target.name, target.process
                    ));
                }
            }
            Ok(plan)
        }
    }
}

/// With the exit status that fits.
fn refused(error: &ReserveError) -> Failure {
    let status = match error.exit_code() {
        2 => Status::Input,
        3 => Status::Cannot,
        _ => Status::Trouble,
    };
    Failure { status, message: format!("takt: {error}") }
}
