//! Holding a reservation until it is over.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};

use takt_linux::guardian::Guard;
use takt_linux::process;
use takt_linux::signals::StopSignals;
use takt_linux::{Epoch, clock, machine};
use takt_model::{Span, Time};
use takt_run::reserve::{Budget, Outcome, Plan, Reserved, Returned, Target};

use super::refused;
use crate::args;
use crate::failure::{Failure, Status};
use crate::output::note;

/// How often is looked whether it is over.
const LOOK: Span = Span::from_ms(20);
/// How long a command that was told to end has for it.
const END_MAX: Span = Span::from_s(5);

/// Why it was over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Over {
    /// --for.
    Time,
    /// The threads, or the command.
    Ended,
    /// A signal.
    Signal(String),
}

/// How it went.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The threads that had it, as they were before.
    pub(super) threads: Vec<Target>,
    pub(super) returned: Vec<Returned>,
    pub(super) duration: Span,
    pub(super) over: Over,
    pub(super) command: Option<ExitStatus>,
    /// Bandwidth that was not unbooked with the reservations, in 2^-20 CPUs; `None` where the kernel does not tell.
    pub(super) leaked: Option<u64>,
}

impl Held {
    pub(super) fn status(&self) -> Status {
        let failed = self.returned.iter().any(|returned| matches!(returned.outcome, Outcome::Failed { .. }));
        match self.command {
            _ if failed => Status::Trouble,
            // One that takt ended itself did not fail.
            Some(status) if !status.success() && self.over != Over::Time => Status::No,
            _ => Status::Yes,
        }
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        for Returned { id, name, outcome, .. } in &self.returned {
            match outcome {
                Outcome::Failed { cause } => all.push(format!(
                    "{name} ({id}) could not be given back what it had: {cause}; the next takt of any verb tries again"
                )),
                Outcome::Changed { now } => {
                    all.push(format!("{name} ({id}) was changed by somebody to {now} meanwhile, and was left so"));
                }
                Outcome::Restored | Outcome::Ended => {}
            }
        }
        if let Some(leaked) = self.leaked.filter(|leaked| *leaked > 0) {
            all.push(format!(
                "{:.1} % of a CPU stay booked for nobody; docs/reference/verbs/reserve.md says how to get them back",
                leaked as f64 * 100.0 / f64::from(1 << 20)
            ));
        }
        if let Over::Signal(signal) = &self.over {
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

/// How a command ended.
fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the command ended with status {code}"),
        (None, Some(signal)) => format!("the command was ended by signal {signal}"),
        _ => "the command ended, and nobody knows how".to_owned(),
    }
}

/// Reserves, waits, and gives back.
pub(super) fn hold(options: &args::Reserve, plan: &Plan) -> Result<Held, Failure> {
    let signals = StopSignals::catch();
    let guard = Guard::ThisProgram;
    let (reserved, child) = match options.command.split_first() {
        None => (Reserved::apply(plan, &guard).map_err(|error| refused(&error))?, None),
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            let (reserved, held) = Reserved::command(command, plan, &guard).map_err(|error| refused(&error))?;
            let child = held.release();
            let child = child.map_err(|error| Failure::input(format_args!("cannot start {program}: {error}")))?;
            (reserved, Some(Running(child)))
        }
    };
    tell_reserved(&reserved, plan);
    let epoch = Epoch::now_is_zero();
    Ok(finish(plan, reserved, child, options.duration, &signals, epoch))
}

/// Says who has it.
pub(super) fn tell_reserved(reserved: &Reserved, plan: &Plan) {
    for target in reserved.threads() {
        note(format_args!("{}", super::tell::reserved(target, &plan.request)));
    }
}

/// A command that runs. Dropped, it is told to end.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        process::end(&mut self.0, END_MAX, &mut |_| {});
    }
}

/// Waits until it is over, `duration` after the epoch at the latest, and gives back.
pub(super) fn finish(
    plan: &Plan,
    reserved: Reserved,
    mut child: Option<Running>,
    duration: Option<Span>,
    signals: &StopSignals,
    epoch: Epoch,
) -> Held {
    let (over, status) = wait(duration, &reserved, child.as_mut().map(|running| &mut running.0), signals, epoch);
    let duration = epoch.now().saturating_since(Time::ZERO);
    let threads = reserved.threads().to_vec();
    let each = plan.request.reservation().bandwidth();
    // Nothing is booked for a control group.
    let booked = || machine::booked().filter(|_| plan.request.budget == Budget::Deadline);
    let booked_before = booked();
    let returned = reserved.give_back();
    // The kernel unbooks an ended thread within a period. Others know about threads that they
    // changed.
    let restored = returned.iter().filter(|returned| returned.outcome == Outcome::Restored).count() as u64;
    let leaked = booked_before.zip(booked()).map(|(before, after)| {
        let due = before.saturating_sub(each.saturating_mul(restored));
        after.saturating_sub(due).min(each.saturating_mul(restored))
    });
    let command = match (status, &mut child) {
        (None, Some(running)) => process::end(&mut running.0, END_MAX, &mut |child| hand_on(child, signals)),
        (status, _) => status,
    };
    Held { threads, returned, duration, over, command, leaked }
}

/// Until it is over; with the status of the command where it has ended.
fn wait(
    duration: Option<Span>,
    reserved: &Reserved,
    mut child: Option<&mut Child>,
    signals: &StopSignals,
    epoch: Epoch,
) -> (Over, Option<ExitStatus>) {
    let end = duration.map(|duration| Time::ZERO.saturating_add(duration));
    loop {
        match &mut child {
            Some(child) => {
                if let Ok(Some(status)) = child.try_wait() {
                    return (Over::Ended, Some(status));
                }
                // takt stays until the command ends.
                hand_on(child, signals);
            }
            None => {
                if let Some(signal) = signals.caught() {
                    return (Over::Signal(signal.to_string()), None);
                }
                if !reserved.any_alive() {
                    return (Over::Ended, None);
                }
            }
        }
        let now = epoch.now();
        if end.is_some_and(|end| now >= end) {
            return (Over::Time, None);
        }
        clock::pause(end.map_or(LOOK, |end| LOOK.min(end.saturating_since(now))));
    }
}

pub(super) fn hand_on(child: &mut Child, signals: &StopSignals) {
    for signal in signals.sent() {
        process::signal(child, signal);
    }
}
