//! The request of the command line, and whether the kernel takes it.

use takt_model::Span;
use takt_run::reserve::{
    Budget, Facts, InterruptSources, Plan, Request, ReserveError, Target, find, plan, plan_command, plan_command_limit,
    plan_limit,
};

use crate::args;
use crate::failure::Failure;
use crate::output::note;

pub(super) fn requested(options: &args::Reserve) -> Result<Request, Failure> {
    let (Some(runtime), Some(period)) = (options.runtime, options.period) else {
        return Err(Failure::input("a reservation needs --runtime and --period (or --auto, which finds them)"));
    };
    let deadline = options.deadline.unwrap_or(period);
    Ok(Request { deadline, ..request_of(options, runtime, period) })
}

/// So much, in the way that the command line says.
pub(super) fn request_of(options: &args::Reserve, runtime: Span, period: Span) -> Request {
    Request { reclaim: options.reclaim, widen: options.all_cpus, budget: options.by(), ..Request::new(runtime, period) }
}

pub(super) fn plan_for(request: &Request, threads: Vec<Target>) -> Result<Plan, ReserveError> {
    let facts = Facts::gather();
    match request.budget {
        Budget::Deadline => plan(request, threads, &facts),
        Budget::Group => plan_limit(request, threads, None, &facts),
    }
}

pub(super) fn planned(options: &args::Reserve, request: &Request) -> Result<Plan, ReserveError> {
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
                        "note: process {} has {count} threads, and only {} ({}) gets the reservation; --threads gives \
                         one to each, and --pid with a thread's number (\"ps -eL\") to another",
                        target.process, target.name, target.process
                    ));
                }
            }
            Ok(plan)
        }
    }
}

/// The kernel's threads that serve what is named so.
pub(super) fn serving(names: &[String]) -> Result<Vec<Target>, ReserveError> {
    let found = InterruptSources::gather().find(names)?;
    if let Some(sentence) = found.note() {
        note(format_args!("note: {sentence}"));
    }
    Ok(found.threads)
}

/// With the exit status that fits.
pub(super) fn refused(error: &ReserveError) -> Failure {
    Failure::with_exit_code(error.exit_code(), error)
}
