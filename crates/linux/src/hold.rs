//! Changes the scheduling of other threads for a while and restores it: class, nice, flags, CPUs,
//! control group.
//!
//! A [`Holder`] writes each change to a [`Journal`] before it makes the change. It undoes all
//! changes when it is dropped. If the holder is killed, its guardian undoes them ([`Guard`]). If
//! the guardian is killed too, the next start undoes them ([`recover`]).
//!
//! **Invariants.** A thread's setting is restored only if it is still as set here, so a later
//! change by another program stays. A thread is identified by its id and its start time, so a later
//! thread with the same id is not mistaken for it.
//!
//! **Bandwidth.** If a SCHED_DEADLINE thread sleeps beyond its zero-lag time and is demoted from
//! outside, its bandwidth stays booked for ever. The kernel (6.18: `switched_from_dl`,
//! `inactive_task_timer`) unbooks bandwidth when the inactive timer fires, and this timer has fired
//! already. A change of parameters, however, is booked at once, even for a sleeping thread. So a
//! thread first gets the least reservation that the kernel takes: 1024 ns in the longest period, a
//! bandwidth of 0 / 2^20. Then it is demoted, and no bandwidth is lost.

mod change;
mod journal;

use thiserror::Error;

pub use change::{Deadline, UndoResult, Undone};
pub use journal::{Journal, Recovered, recover};

use crate::group::{self, Group, GroupError, Kernel, Limit, Place, Throttled};
use crate::guard::{Guard, Guardian, THREADS};
use crate::process::Identity;
use crate::recovery::RecoveryError;
use crate::sched::{self, Class, SchedError};
use change::Change;

/// The reason why a thread cannot be held.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HoldError {
    /// A change cannot be written to the journal.
    #[error(transparent)]
    State(#[from] RecoveryError),
    /// The child process that restores threads after a kill.
    #[error("the guardian, which gives threads back what they had if takt is killed, cannot be started: {cause}")]
    Guardian {
        /// The cause.
        cause: String,
    },
    /// The thread has ended.
    #[error("thread {id} has ended")]
    Gone {
        /// Its id.
        id: u32,
    },
    /// The kernel's refusal.
    #[error(transparent)]
    Refused(#[from] SchedError),
    /// The refusal of a control group.
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// Holds threads. Dropping it restores their settings.
#[derive(Debug)]
pub struct Holder {
    journal: journal::Open,
    guardian: Option<Guardian>,
    changes: Vec<Change>,
    stuck: bool,
}

impl Holder {
    /// Holds nothing yet. Its guardian is running.
    ///
    /// # Errors
    /// The folder for state files, or the guardian.
    pub fn start(guard: &Guard) -> Result<Holder, HoldError> {
        let journal = journal::Open::create()?;
        let guardian = Guardian::start(guard, [THREADS, &journal.name().to_text()]);
        let guardian = guardian.map_err(|cause| HoldError::Guardian { cause })?;
        Ok(Holder { journal, guardian, changes: Vec::new(), stuck: false })
    }

    /// Puts a thread under SCHED_DEADLINE.
    ///
    /// # Errors
    /// The cause of the refusal; the thread keeps its settings.
    pub fn reserve(&mut self, thread: Identity, deadline: Deadline) -> Result<(), HoldError> {
        let id = tid(thread)?;
        let former = change::attributes_of(thread).ok_or(HoldError::Gone { id: thread.pid })?;
        let ours = deadline.attributes();
        self.note(Change::Class { thread, former, ours })?;
        sched::set_of(id, &ours).map_err(|errno| match errno {
            libc::ESRCH => HoldError::Gone { id: thread.pid },
            errno => sched::explained(&Class::Deadline(deadline.reservation), errno).into(),
        })
    }

    /// Lets a thread run on these CPUs (the kernel's numbers).
    ///
    /// # Errors
    /// The cause of the refusal; the thread keeps its settings.
    pub fn allow(&mut self, thread: Identity, cpus: &[u32]) -> Result<(), HoldError> {
        let id = tid(thread)?;
        let former = sched::cpus_of(id);
        if former.is_empty() || !thread.is_alive() {
            return Err(HoldError::Gone { id: thread.pid });
        }
        self.note(Change::Affinity { thread, former, ours: cpus.to_vec() })?;
        sched::set_cpus_of(id, cpus).map_err(|errno| sched::unbound(cpus, errno).into())
    }

    /// Makes a control group with a budget below the thread's present group, and moves the thread
    /// there. Returns the new group's folder. Threads started by the thread are in the group too,
    /// and move back with it.
    ///
    /// # Errors
    /// The cause of the refusal; the thread keeps its group.
    pub fn limit(&mut self, thread: Identity, place: &Place, limit: &Limit) -> Result<std::path::PathBuf, HoldError> {
        let Identity { pid, start } = self.journal.name().0.owner;
        let group =
            Group::new(place, &format!("{pid}-{start}-{}-{}", self.journal.name().0.number, self.changes.len()));
        self.note(Change::Group { thread, group: group.clone() })?;
        match group.make(&Kernel, thread.pid, limit) {
            Err(_) if !thread.is_alive() => Err(HoldError::Gone { id: thread.pid }),
            made => Ok(made.map(|()| group.path())?),
        }
    }

    /// How often each thread's group used up its budget so far. The kernel has no counts for groups
    /// of real-time threads.
    #[must_use]
    pub fn throttled(&self) -> Vec<(Identity, Throttled)> {
        let groups = self.changes.iter().filter_map(|change| match change {
            Change::Group { thread, group } => Some((*thread, group::throttled(&group.path())?)),
            _ => None,
        });
        groups.collect()
    }

    /// Takes over a child that has put itself under SCHED_DEADLINE before it became its program
    /// ([`crate::paused::PausedChild::reserved`]).
    ///
    /// # Errors
    /// The journal cannot be written, or the child has ended.
    pub fn adopt(&mut self, thread: Identity, deadline: Deadline) -> Result<(), HoldError> {
        // The child inherited this process's class.
        let former = change::own_attributes().ok_or(HoldError::Gone { id: thread.pid })?;
        self.note(Change::Class { thread, former, ours: deadline.attributes() })
    }

    fn note(&mut self, change: Change) -> Result<(), HoldError> {
        self.journal.append(&change)?;
        self.changes.push(change);
        Ok(())
    }

    /// Undoes all changes, the last one first, and returns the result for each thread.
    pub fn give_back(mut self) -> Vec<UndoResult> {
        self.undo()
    }

    fn undo(&mut self) -> Vec<UndoResult> {
        let given: Vec<UndoResult> = self.changes.drain(..).rev().map(|change| change.undo()).collect();
        // The guardian retries failed undos after the end of this process, and then the next start
        // does.
        self.stuck |= given.iter().any(|given| matches!(given.undone, Undone::Failed(_)));
        if !self.stuck {
            self.journal.remove();
            if let Some(guardian) = self.guardian.take() {
                guardian.dismiss();
            }
        }
        given
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

fn tid(thread: Identity) -> Result<libc::pid_t, HoldError> {
    let id = libc::pid_t::try_from(thread.pid).ok().filter(|id| *id > 0);
    id.ok_or(HoldError::Gone { id: thread.pid })
}

#[cfg(test)]
mod tests {
    use takt_model::Span;

    use super::change::least;
    use super::*;
    use crate::sched::Reservation;

    #[test]
    fn the_least_reservation_is_booked_as_nothing() {
        let Class::Deadline(least) = sched::class_of(&least()) else { panic!("a reservation") };
        assert!(least.period < Span::from_s(2) || least.bandwidth() == 0);
        let third = Reservation { runtime: Span::from_ms(1), deadline: Span::from_ms(3), period: Span::from_ms(3) };
        assert_eq!(third.bandwidth(), (1 << 20) / 3);
    }

    /// A thread that has slept for long: the case in which bandwidth would leak.
    #[test]
    fn a_sleeping_thread_gets_back_what_it_had_and_no_bandwidth_is_lost() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(crate::thread::Tid::current()).unwrap();
            let _ = receive.recv();
        });
        let thread = Identity::of(u32::try_from(told.recv().unwrap().get()).unwrap()).unwrap();
        let before = change::attributes_of(thread).unwrap();
        let (runtime, period) = (Span::from_us(1100), Span::from_ms(10));
        let reservation = Reservation { runtime, deadline: period, period };
        let mut holder = Holder::start(&Guard::NextStart).unwrap();
        match holder.reserve(thread, Deadline { reservation, reclaim: false }) {
            Ok(()) => {
                crate::clock::pause(Span::from_ms(50));
                let now = sched::of_thread(thread.pid).unwrap().class;
                assert_eq!(now, Class::Deadline(reservation));
                // Other programs reserve on this machine meanwhile. So measure only the bandwidth
                // that this demotion unbooks, several times.
                let booked = crate::machine::booked();
                let given = holder.give_back();
                assert_eq!(given, [UndoResult { thread, undone: Undone::Restored }]);
                println!("booked before {booked:?}, after {:?}", crate::machine::booked());
                let after = change::attributes_of(thread).unwrap();
                assert!(after == before, "{after:?} was {before:?}");
            }
            Err(error) => println!("skipped: {error}"),
        }
        drop(send);
        sleeper.join().unwrap();
        // The kernel removes the thread with a delay.
        let mut looks = 0;
        while thread.is_alive() && looks < 1000 {
            looks += 1;
            crate::clock::pause(Span::from_ms(10));
        }
        assert!(!thread.is_alive());
        assert_eq!(Holder::start(&Guard::NextStart).map(Holder::give_back), Ok(Vec::new()));
    }
}
