//! The failure of an experiment that has no findings.

use std::fmt::Display;

use takt_run::RunError;

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Bad usage or bad input.
    Input,
    /// This machine or this user cannot run it.
    Cannot,
    /// An I/O error, a bound of the tool reached, or a bug.
    Trouble,
}

/// The message of a failure, and its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The kind of failure.
    pub status: Status,
    /// The event and the remedy, without the command's name.
    pub message: String,
}

impl Failure {
    pub(crate) fn input(message: impl Display) -> Failure {
        Failure { status: Status::Input, message: message.to_string() }
    }

    pub(crate) fn cannot(message: impl Display) -> Failure {
        Failure { status: Status::Cannot, message: message.to_string() }
    }

    pub(crate) fn trouble(message: impl Display) -> Failure {
        Failure { status: Status::Trouble, message: message.to_string() }
    }

    /// The failure of a run that could not be prepared or did not end well.
    pub(crate) fn of_run(error: &RunError) -> Failure {
        match error.exit_code() {
            2 => Failure::input(error),
            3 => Failure::cannot(error),
            _ => Failure::trouble(error),
        }
    }
}
