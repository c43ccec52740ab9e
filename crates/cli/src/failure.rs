//! How a verb ends.

use std::fmt::Display;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Status {
    /// Done, the answer is yes.
    Yes = 0,
    /// Done, the answer is no or undecided.
    No = 1,
    Input = 2,
    /// This machine or this version cannot.
    Cannot = 3,
    /// An I/O error, a bound of the tool reached, or a bug.
    Trouble = 4,
}

/// A verb that did not get to an answer: what to print on standard error, and the exit status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// Complete lines without the last newline; empty where there is nobody left to tell.
    pub(crate) message: String,
}

pub(crate) type Outcome = Result<Status, Failure>;

impl Failure {
    fn new(status: Status, message: impl Display) -> Failure {
        Failure { status, message: format!("takt: {message}") }
    }

    pub(crate) fn input(message: impl Display) -> Failure {
        Failure::new(Status::Input, message)
    }

    /// Bad input whose message already names the file and stands for itself.
    pub(crate) fn located(message: impl Display) -> Failure {
        Failure { status: Status::Input, message: message.to_string().trim_end().to_owned() }
    }

    /// The answer is no before the verb could do what was asked.
    pub(crate) fn no(message: impl Display) -> Failure {
        Failure::new(Status::No, message)
    }

    pub(crate) fn cannot(message: impl Display) -> Failure {
        Failure::new(Status::Cannot, message)
    }

    pub(crate) fn trouble(message: impl Display) -> Failure {
        Failure::new(Status::Trouble, message)
    }

    pub(crate) fn with_exit_code(code: u8, message: impl Display) -> Failure {
        let status = match code {
            2 => Status::Input,
            3 => Status::Cannot,
            _ => Status::Trouble,
        };
        Failure::new(status, message)
    }

    /// The reader of our output went away (`takt … | head`): no error, and nothing to say.
    pub(crate) fn reader_left() -> Failure {
        Failure { status: Status::Yes, message: String::new() }
    }
}
