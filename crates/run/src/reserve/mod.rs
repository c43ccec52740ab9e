//! Reservations of SCHED_DEADLINE for existing threads or for a command. They last as long as the
//! caller holds them, and then the former settings are restored.
//!
//! The function [`find`] selects threads; [`InterruptSources`] selects those that serve an interrupt.
//! Without any system call, [`plan`] decides whether the kernel will accept the reservations. A
//! [`Reserved`] holds the reservations and restores the threads' former classes.
//!
//! ```no_run
//! use takt_linux::guard::Guard;
//! use takt_model::Span;
//! use takt_run::reserve::{Facts, Reserved, Request, find, plan};
//!
//! let request = Request::new(Span::from_ms(12), Span::from_ms(40));
//! let threads = find(&[4711], false)?;
//! let plan = plan(&request, threads, &Facts::gather())?;
//! let reserved = Reserved::apply(&plan, &Guard::NextStart)?;
//! // ...
//! for thread in reserved.give_back() {
//!     println!("{}: {}", thread.name, thread.outcome.describe());
//! }
//! # Ok::<(), takt_run::reserve::ReserveError>(())
//! ```

mod decide;
mod error;
mod limit;
mod request;
mod serving;
#[cfg(test)]
mod tests;

use std::process::Command;

use takt_linux::group::Throttled;
use takt_linux::guard::Guard;
use takt_linux::hold::{HoldError, Holder, Undone};
use takt_linux::paused::{PausedChild, ReservedError};
use takt_linux::process::Identity;
use takt_linux::tracing;

pub use decide::{Plan, plan, plan_command};
pub use error::ReserveError;
pub use limit::{as_limit, plan_command_limit, plan_limit};
pub use request::{Budget, Facts, Request, Target};
pub use serving::{FoundThreads, InterruptSources};

/// The threads with these ids, each once. With `all`, all threads of their processes.
///
/// # Errors
/// An id without a thread.
pub fn find(ids: &[u32], all: bool) -> Result<Vec<Target>, ReserveError> {
    let threads = tracing::threads();
    let mut found: Vec<Target> = Vec::new();
    for id in ids {
        let Some(one) = threads.iter().find(|thread| thread.id == *id) else {
            return Err(ReserveError::NoThread { id: *id });
        };
        let meant = threads.iter().filter(|thread| thread.id == *id || (all && thread.process == one.process));
        for thread in meant {
            if !found.iter().any(|found| found.thread.pid == thread.id)
                && let Some(target) = Target::of(thread)
            {
                found.push(target);
            }
        }
    }
    Ok(found)
}

/// The number of threads of a process.
#[must_use]
pub fn threads_of(process: u32) -> usize {
    tracing::threads_of(process).len()
}

/// The result of ending a thread's reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The former class and CPUs are restored.
    Restored,
    /// The thread ended before.
    Ended,
    /// Another program has changed the class; it was left as it is.
    Changed {
        /// The present class.
        now: String,
    },
    /// Restoring failed.
    Failed {
        /// The kernel's answer.
        cause: String,
    },
}

impl Outcome {
    /// The name in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Outcome::Restored => "restored",
            Outcome::Ended => "ended",
            Outcome::Changed { .. } => "changed",
            Outcome::Failed { .. } => "failed",
        }
    }

    /// A short description.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Outcome::Restored => "as before".to_owned(),
            Outcome::Ended => "has ended".to_owned(),
            Outcome::Changed { now } => format!("was changed by others to {now}, and left so"),
            Outcome::Failed { cause } => format!("not restored: {cause}"),
        }
    }
}

impl From<Undone> for Outcome {
    fn from(undone: Undone) -> Outcome {
        match undone {
            Undone::Restored => Outcome::Restored,
            Undone::Gone => Outcome::Ended,
            Undone::Changed { now } => Outcome::Changed { now },
            Undone::Failed(cause) => Outcome::Failed { cause },
        }
    }
}

/// A thread whose reservation has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Returned {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The result.
    pub outcome: Outcome,
    /// How often a control group used up its budget. The kernel does not count this for real-time
    /// threads.
    pub throttled: Option<Throttled>,
}

/// Threads with reservations. Dropping this restores their former settings.
#[derive(Debug)]
pub struct Reserved {
    holder: Holder,
    threads: Vec<Target>,
}

impl Reserved {
    /// Reserves for all threads of a plan, or for none.
    ///
    /// # Errors
    /// The cause of the first refusal. All threads then have their former settings again.
    pub fn apply(plan: &Plan, guard: &Guard) -> Result<Reserved, ReserveError> {
        let holder = Holder::start(guard).map_err(ReserveError::Hold)?;
        let mut reserved = Reserved { holder, threads: Vec::new() };
        for (index, target) in plan.threads.iter().enumerate() {
            // Threads may end. If several were requested, the end of one is no failure.
            match reserved.take(target, index, plan) {
                Err(ReserveError::Hold(HoldError::Gone { .. })) if plan.threads.len() > 1 => {}
                other => other?,
            }
        }
        Ok(reserved)
    }

    /// Starts a command with its reservation already set. The command begins at its
    /// [release](PausedChild::release).
    ///
    /// # Errors
    /// The cause of the refusal; nothing was started.
    pub fn command(command: Command, plan: &Plan, guard: &Guard) -> Result<(Reserved, PausedChild), ReserveError> {
        let mut holder = Holder::start(guard).map_err(ReserveError::Hold)?;
        let name = command.get_program().to_string_lossy().into_owned();
        if plan.request.budget == Budget::Group {
            return Reserved::limited(command, name, plan, holder);
        }
        let held = PausedChild::reserved(command, plan.request.held()).map_err(|error| match error {
            ReservedError::Class(cause) => ReserveError::refused(&name, cause, &plan.facts),
            ReservedError::Start(error) => ReserveError::Start { program: name.clone(), cause: error.to_string() },
        })?;
        let gone = || ReserveError::Hold(HoldError::Gone { id: held.id() });
        let thread = Identity::of(held.id()).ok_or_else(gone)?;
        holder.adopt(thread, plan.request.held()).map_err(ReserveError::Hold)?;
        let target = Target { thread, ..Target::own(&name, held.id()) };
        Ok((Reserved { holder, threads: vec![target] }, held))
    }

    /// A command, moved to a group of its own before it begins.
    fn limited(
        command: Command,
        name: String,
        plan: &Plan,
        holder: Holder,
    ) -> Result<(Reserved, PausedChild), ReserveError> {
        let start = |error: std::io::Error| ReserveError::Start { program: name.clone(), cause: error.to_string() };
        let held = PausedChild::spawn(command).map_err(start)?;
        let gone = || ReserveError::Hold(HoldError::Gone { id: held.id() });
        let target = Target { thread: Identity::of(held.id()).ok_or_else(gone)?, ..Target::own(&name, held.id()) };
        let mut reserved = Reserved { holder, threads: Vec::new() };
        reserved.take(&target, 0, plan)?;
        Ok((reserved, held))
    }

    fn take(&mut self, target: &Target, index: usize, plan: &Plan) -> Result<(), ReserveError> {
        if plan.request.budget == Budget::Group {
            let limit = limit::of(&plan.request, target);
            let place = plan.places.get(index).ok_or(ReserveError::NoThread { id: target.thread.pid })?;
            self.holder.limit(target.thread, place, &limit).map_err(ReserveError::Hold)?;
            self.threads.push(target.clone());
            return Ok(());
        }
        if let Some(cpus) = plan.widened(target) {
            self.holder.allow(target.thread, cpus).map_err(|error| match error {
                HoldError::Refused(_) => ReserveError::bound(target, cpus),
                other => ReserveError::Hold(other),
            })?;
        }
        self.holder.reserve(target.thread, plan.request.held()).map_err(|error| match error {
            HoldError::Refused(cause) => ReserveError::refused(&target.name, cause, &plan.facts),
            other => ReserveError::Hold(other),
        })?;
        self.threads.push(target.clone());
        Ok(())
    }

    /// The threads.
    #[must_use]
    pub fn threads(&self) -> &[Target] {
        &self.threads
    }

    /// Whether at least one thread still lives.
    #[must_use]
    pub fn any_alive(&self) -> bool {
        self.threads.iter().any(|target| target.thread.is_alive())
    }

    /// Restores the threads' former settings.
    #[must_use]
    pub fn give_back(self) -> Vec<Returned> {
        let throttled = self.holder.throttled();
        let given = self.holder.give_back();
        let of = |target: &Target| {
            // The worst of several outcomes for a thread counts.
            let outcomes = given.iter().filter(|given| given.thread == target.thread);
            let outcomes = outcomes.map(|given| Outcome::from(given.undone.clone()));
            let outcome = outcomes.max_by_key(severity).unwrap_or(Outcome::Ended);
            let throttled =
                throttled.iter().find(|(thread, _)| *thread == target.thread && !limit::is_real_time(&target.class));
            let throttled = throttled.map(|(_, throttled)| *throttled);
            Returned { id: target.thread.pid, name: target.name.clone(), outcome, throttled }
        };
        self.threads.iter().map(of).collect()
    }
}

fn severity(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Restored => 0,
        Outcome::Ended => 1,
        Outcome::Changed { .. } => 2,
        Outcome::Failed { .. } => 3,
    }
}
