//! The `takt` command: one verb a file in [`verbs`].
//!
//! Standard output carries the answer (a table, JSON, a log, a picture) only. Progress, warnings
//! and errors go to standard error. The exit status is 0 for yes, 1 for no, 2 for bad usage or
//! input, 3 for an inability of this machine or version, 4 for I/O errors, bounds and bugs.

mod adaptive;
mod args;
mod clock_sources;
mod failure;
mod input;
#[cfg(test)]
mod literals;
mod live;
#[cfg(test)]
mod mentions;
mod numbers;
mod output;
mod parallel;
mod picture;
mod progress;
mod recorded;
mod serve;
mod table;
mod verbs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;

use args::Takt;
use failure::{Failure, Status};
use takt_linux::cpuset::{Recovery, recover};

fn main() -> ExitCode {
    // The process that puts back what a killed recorder or holder of reservations could not is this program, too.
    if takt_linux::guardian::guardian(std::env::args_os()) {
        return ExitCode::from(Status::Yes as u8);
    }
    takt_linux::signals::ignore_file_size();
    let takt = match Takt::try_parse() {
        Ok(takt) => takt,
        Err(error) => {
            if error.use_stderr() {
                let _ = error.print();
                return ExitCode::from(Status::Input as u8);
            }
            // Help and version are answers like others.
            return ExitCode::from(match output::Target::stdout().check(error.print()) {
                Ok(()) => Status::Yes as u8,
                Err(failure) => report_failure(failure) as u8,
            });
        }
    };
    repair();
    let outcome = catch_unwind(AssertUnwindSafe(|| verbs::execute(takt)));
    let status = match outcome {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => report_failure(failure),
        Err(_) => {
            output::complain("takt: this is a bug in takt; please report it with the command and its input");
            Status::Trouble
        }
    };
    ExitCode::from(status as u8)
}

fn report_failure(failure: Failure) -> Status {
    if !failure.message.is_empty() {
        output::complain(&failure.message);
    }
    failure.status
}

/// Undoes the remains of killed runs on this machine: cpusets, recordings, reservations and shares of
/// network devices. Every verb does this first (docs/reference/privilege.md).
fn repair() {
    let left = takt_linux::tracing::recover();
    for name in &left.undone {
        output::note(format_args!("note: an earlier recording was killed: removed its trace instance {name}"));
    }
    let held = takt_linux::hold::recover();
    if !held.undone.is_empty() {
        let threads: Vec<String> = held.undone.iter().map(ToString::to_string).collect();
        output::note(format_args!(
            "note: an earlier reservation was killed: threads {} have their class again",
            threads.join(", ")
        ));
    }
    for cause in left.stuck.iter().chain(&held.stuck) {
        output::note(format_args!("note: {cause}"));
    }
    let net = takt_linux::tc::recover();
    for restored in &net.undone {
        let (device, discipline) = (&restored.device, &restored.discipline);
        output::note(format_args!("note: an earlier takt net was killed: {device} has {discipline} again"));
    }
    for cause in &net.stuck {
        output::note(format_args!("note: a device of a killed takt net cannot be restored: {cause}"));
    }
    match recover() {
        Ok(Recovery::Nothing | Recovery::InUse { .. }) => {}
        Ok(Recovery::Repaired { what, .. }) => output::note(format_args!("note: an earlier run was killed: {what}")),
        // The verb may not need the machine; `run` looks again and refuses.
        Err(error) => output::note(format_args!("note: {error}")),
    }
}
