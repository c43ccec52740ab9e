//! A reservation that has ended, its exit status and its warnings.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use takt_model::Span;
use takt_run::reserve::{Outcome, Returned, Target};

use crate::failure::Status;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum EndCause {
    Time,
    /// The threads, or the command.
    Ended,
    /// A signal.
    Signal(String),
}

impl EndCause {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            EndCause::Time => "for",
            EndCause::Ended => "ended",
            EndCause::Signal(_) => "signal",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct EndedReservation {
    /// The threads that had it, as they were before.
    pub(super) threads: Vec<Target>,
    pub(super) returned: Vec<Returned>,
    pub(super) duration: Span,
    pub(super) over: EndCause,
    pub(super) command: Option<ExitStatus>,
    /// Bandwidth that was not unbooked with the reservations, in 2^-20 CPUs; `None` where the kernel does not tell.
    pub(super) leaked: Option<u64>,
}

impl EndedReservation {
    pub(super) fn status(&self) -> Status {
        let failed = self.returned.iter().any(|returned| matches!(returned.outcome, Outcome::Failed { .. }));
        match self.command {
            _ if failed => Status::Trouble,
            // One that takt ended itself did not fail.
            Some(status) if !status.success() && self.over != EndCause::Time => Status::No,
            _ => Status::Yes,
        }
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        for Returned { id, name, outcome, .. } in &self.returned {
            match outcome {
                Outcome::Failed { cause } => all.push(format!(
                    "the scheduling of {name} ({id}) could not be restored: {cause}; the next takt of any verb tries \
                     again"
                )),
                Outcome::Changed { now } => {
                    all.push(format!("another program has given {name} ({id}) {now} meanwhile; takt left it so"));
                }
                Outcome::Restored | Outcome::Ended => {}
            }
        }
        if let Some(leaked) = self.leaked.filter(|leaked| *leaked > 0) {
            all.push(format!(
                "the kernel still books {:.1} % of a CPU, for no thread; docs/reference/verbs/reserve.md says how to \
                 free it",
                leaked as f64 * 100.0 / f64::from(1 << 20)
            ));
        }
        if let EndCause::Signal(signal) = &self.over {
            all.push(format!("interrupted by {signal} after {}", self.duration));
        }
        match self.command {
            Some(status) if status.success() => {}
            Some(status) => all.push(ended(status)),
            None => {}
        }
        all
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the command ended with status {code}"),
        (None, Some(signal)) => format!("the command was ended by signal {signal}"),
        _ => "the command ended with an unknown status".to_owned(),
    }
}
