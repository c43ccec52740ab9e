//! Runs the loads of `takt_run::load` for an experiment, with a progress bar, until the end or
//! Ctrl-C.

use takt_linux::cpuset::Partitions;
use takt_linux::{Class, Reservation};
use takt_model::{Span, Time};
use takt_run::RunError;
use takt_run::load::{LoadResults, Member, Place, obstacle, together_beside};

use super::context::Context;
use crate::failure::Failure;

/// A reservation (Q, T), in microseconds.
pub(super) fn reserved(q_us: u64, t_us: u64) -> Class {
    let period = Span::from_us(t_us);
    Class::Deadline(Reservation { runtime: Span::from_us(q_us), deadline: period, period })
}

/// The last CPU that this process may use. The first one has most of the machine's interrupts.
pub(super) fn one_cpu(context: &Context) -> Result<Place, Failure> {
    if let Some(cause) = obstacle() {
        return Err(Failure::cannot(format_args!(
            "this experiment wants reservations on one CPU, and this machine cannot be divided: {cause}"
        )));
    }
    match context.machine.cpus.last() {
        Some(cpu) => Ok(Place::Cpu(*cpu)),
        None => Err(Failure::cannot("this process may use no CPU")),
    }
}

/// Runs `members` in `place` until `duration` is over or a signal ends the experiment.
pub(super) fn run<T: Send>(
    context: &Context,
    what: &str,
    members: Vec<Member<'_, T>>,
    place: &Place,
    duration: Span,
) -> Result<LoadResults<T>, Failure> {
    attempt(context, what, members, place, duration).map_err(|error| Failure::of_run(&error))
}

/// Like [`run`], but returns the kernel's refusal as it is.
pub(super) fn attempt<T: Send>(
    context: &Context,
    what: &str,
    members: Vec<Member<'_, T>>,
    place: &Place,
    duration: Span,
) -> Result<LoadResults<T>, RunError> {
    let nothing = |_: Option<&Partitions>| Ok::<(), std::convert::Infallible>(());
    match beside(context, what, members, place, duration, nothing, &mut |_, ()| {}) {
        Ok(ended) => ended,
        Err(never) => match never {},
    }
}

/// Like [`attempt`], beside a guest. `look` sees the guest a hundred times a second.
pub(super) fn beside<T: Send, G, E>(
    context: &Context,
    what: &str,
    members: Vec<Member<'_, T>>,
    place: &Place,
    duration: Span,
    guest: impl FnOnce(Option<&Partitions>) -> Result<G, E>,
    look: &mut dyn FnMut(Time, &G),
) -> Result<Result<LoadResults<T>, RunError>, E> {
    let bar = (context.host.bar)(what, duration.as_ns());
    let ended = together_beside(members, place, guest, duration, &mut |now: Time, guest: &G| {
        bar.set_position(now.as_ns());
        look(now, guest);
        !context.stopped()
    });
    bar.finish_and_clear();
    ended
}
