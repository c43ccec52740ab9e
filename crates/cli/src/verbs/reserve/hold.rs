//! Holding a reservation until it is over.

use std::process::{Child, Command, ExitStatus};

use takt_linux::guard::Guard;
use takt_linux::process;
use takt_linux::signals::StopSignals;
use takt_linux::{Epoch, clock, machine};
use takt_model::{Span, Time};
use takt_run::reserve::{Budget, Outcome, Plan, Reserved};

use super::held::{EndCause, EndedReservation};
use super::planned::refused;
use super::tell;
use crate::args;
use crate::failure::Failure;
use crate::output::note;

/// How often is looked whether it is over.
const LOOK: Span = Span::from_ms(20);
/// How long a command that was told to end has for it.
const END_MAX: Span = Span::from_s(5);

pub(super) fn hold(options: &args::Reserve, plan: &Plan) -> Result<EndedReservation, Failure> {
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

pub(super) fn tell_reserved(reserved: &Reserved, plan: &Plan) {
    for target in reserved.threads() {
        note(format_args!("{}", tell::reserved(target, &plan.request)));
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
) -> EndedReservation {
    let (over, status) = wait(duration, &reserved, child.as_mut().map(|running| &mut running.0), signals, epoch);
    let duration = epoch.now().saturating_since(Time::ZERO);
    let threads = reserved.threads().to_vec();
    let each = plan.request.reservation().bandwidth();
    // Nothing is booked for a control group.
    let booked = || machine::booked().filter(|_| plan.request.budget == Budget::Deadline);
    let booked_before = booked();
    let returned = reserved.give_back();
    // Others know about threads that they changed.
    let restored = returned.iter().filter(|returned| returned.outcome == Outcome::Restored).count() as u64;
    let leaked = || {
        booked_before.zip(booked()).map(|(before, after)| {
            let due = before.saturating_sub(each.saturating_mul(restored));
            after.saturating_sub(due).min(each.saturating_mul(restored))
        })
    };
    // The kernel unbooks an ended or runnable thread at its zero-lag time: after its period, and a bit later if it had
    // overrun its budget.
    let period = plan.request.reservation().period;
    let settled = epoch.now().saturating_add(period).saturating_add(period);
    let leaked = loop {
        let leaked = leaked();
        if leaked.is_none_or(|leaked| leaked == 0) || epoch.now() >= settled {
            break leaked;
        }
        clock::pause(LOOK);
    };
    let command = match (status, &mut child) {
        (None, Some(running)) => process::end(&mut running.0, END_MAX, &mut |child| hand_on(child, signals)),
        (status, _) => status,
    };
    EndedReservation { threads, returned, duration, over, command, leaked }
}

/// Until it is over; with the status of the command where it has ended.
fn wait(
    duration: Option<Span>,
    reserved: &Reserved,
    mut child: Option<&mut Child>,
    signals: &StopSignals,
    epoch: Epoch,
) -> (EndCause, Option<ExitStatus>) {
    let end = duration.map(|duration| Time::ZERO.saturating_add(duration));
    loop {
        match &mut child {
            Some(child) => {
                if let Ok(Some(status)) = child.try_wait() {
                    return (EndCause::Ended, Some(status));
                }
                // takt stays until the command ends.
                hand_on(child, signals);
            }
            None => {
                if let Some(signal) = signals.caught() {
                    return (EndCause::Signal(signal.to_string()), None);
                }
                if !reserved.any_alive() {
                    return (EndCause::Ended, None);
                }
            }
        }
        let now = epoch.now();
        if end.is_some_and(|end| now >= end) {
            return (EndCause::Time, None);
        }
        clock::pause(end.map_or(LOOK, |end| LOOK.min(end.saturating_since(now))));
    }
}

pub(super) fn hand_on(child: &mut Child, signals: &StopSignals) {
    for signal in signals.sent() {
        process::signal(child, signal.number());
    }
}
