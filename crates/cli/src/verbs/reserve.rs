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
use takt_run::reserve::{
    Budget, Facts, InterruptSources, Plan, Request, ReserveError, Target, find, plan, plan_command, plan_command_limit,
    plan_limit,
};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{note, print, print_json};

pub(crate) fn execute(options: &args::Reserve, json: bool) -> Outcome {
    if options.duration.is_some_and(Span::is_zero) {
        return Err(Failure::input("--for is zero; give a duration like 10s"));
    }
    if options.observe.is_some_and(Span::is_zero) {
        return Err(Failure::input("--observe is zero; give a duration like 10s"));
    }
    if options.by() == Budget::Group {
        let set = [
            ("--reclaim", options.reclaim),
            ("--all-cpus", options.all_cpus),
            ("--deadline", options.deadline.is_some() && !options.auto),
        ];
        if let Some((option, _)) = set.iter().find(|(_, set)| *set) {
            return Err(Failure::input(format_args!(
                "{option} is of SCHED_DEADLINE; a control group has nothing like it: leave it out, or --budget cgroup"
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

/// The request of the command line.
fn requested(options: &args::Reserve) -> Result<Request, Failure> {
    let (Some(runtime), Some(period)) = (options.runtime, options.period) else {
        return Err(Failure::input("--runtime and --period are wanted"));
    };
    let deadline = options.deadline.unwrap_or(period);
    Ok(Request { deadline, ..request_of(options, runtime, period) })
}

/// So much, in the way that the command line says.
fn request_of(options: &args::Reserve, runtime: Span, period: Span) -> Request {
    Request { reclaim: options.reclaim, widen: options.all_cpus, budget: options.by(), ..Request::new(runtime, period) }
}

/// Whether the kernel takes these threads.
fn plan_for(request: &Request, threads: Vec<Target>) -> Result<Plan, ReserveError> {
    let facts = Facts::gather();
    match request.budget {
        Budget::Deadline => plan(request, threads, &facts),
        Budget::Group => plan_limit(request, threads, None, &facts),
    }
}

fn planned(options: &args::Reserve, request: &Request) -> Result<Plan, ReserveError> {
    match options.command.first() {
        Some(program) if request.budget == Budget::Group => plan_command_limit(request, program, &Facts::gather()),
        Some(program) => plan_command(request, program, &takt_linux::sched::affinity(), &Facts::gather()),
        None if !options.irq.is_empty() => plan_for(request, serving(&options.irq)?),
        None => {
            let plan = plan_for(request, find(&options.pid, options.threads)?)?;
            for target in plan.threads.iter().filter(|_| !options.threads) {
                let count = takt_run::reserve::threads_of(target.process);
                if count > 1 && target.thread.pid == target.process {
                    note(format_args!(
                        "note: process {} has {count} threads, and {} ({}) alone gets it; --threads gives it to \
                         each, --pid with a number of \"ps -eL\" another",
                        target.process, target.name, target.process
                    ));
                }
            }
            Ok(plan)
        }
    }
}

/// The kernel's threads that serve what is named so.
fn serving(names: &[String]) -> Result<Vec<Target>, ReserveError> {
    let found = InterruptSources::gather().find(names)?;
    if let Some(sentence) = found.note() {
        note(format_args!("note: {sentence}"));
    }
    Ok(found.threads)
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
