//! The `takt` command: one verb a file in [`verbs`].
//!
//! Standard output carries the answer (a table, JSON, a log, a picture) and nothing else; progress, warnings and
//! errors go to standard error. The exit status is 0 for yes, 1 for no, 2 for bad usage or input, 3 for what this
//! machine or version cannot do, 4 for I/O errors, bounds and bugs.

#![allow(clippy::print_stderr, reason = "a command talks; it prints to standard output through `output` alone")]

mod args;
mod failure;
mod input;
mod numbers;
mod output;
mod progress;
mod table;
mod verbs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;

use args::Takt;
use failure::Status;
use takt_linux::recovery::{Recovery, recover};

fn main() -> ExitCode {
    let takt = match Takt::try_parse() {
        Ok(takt) => takt,
        Err(error) => {
            // Help and version are no errors; whether they could be printed is nobody's business (`takt | head`).
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Status::Input as u8 } else { 0 });
        }
    };
    repair();
    let outcome = catch_unwind(AssertUnwindSafe(|| verbs::execute(takt)));
    let status = match outcome {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => {
            if !failure.message.is_empty() {
                // Names of a bad file may hold anything; a terminal shall not obey them.
                eprintln!("{}", failure.message.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}"));
            }
            failure.status
        }
        Err(_) => {
            eprintln!("takt: this is a bug in takt; please report it with the command and its input");
            Status::Trouble
        }
    };
    ExitCode::from(status as u8)
}

/// Undoes what a killed run left of its cpusets on this machine, whatever verb is asked for (docs/privilege.md).
fn repair() {
    match recover() {
        Ok(Recovery::Nothing | Recovery::InUse { .. }) => {}
        Ok(Recovery::Repaired { what, .. }) => output::note(format_args!("note: an earlier run was killed: {what}")),
        // The verb may not need the machine; `run` looks again and refuses.
        Err(error) => output::note(format_args!("note: {error}")),
    }
}
