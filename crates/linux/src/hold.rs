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
//! sleeping thread first gets the least reservation that the kernel takes: 1024 ns in the longest
//! period, a bandwidth of 0 / 2^20. Then it is demoted, and no bandwidth is lost. A runnable thread is
//! demoted at once: the kernel unbooks its bandwidth at its zero-lag time.

mod band;
mod change;
mod journal;
mod undone;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

pub use band::Band;
pub use change::Deadline;
pub use journal::{Journal, recover};
pub use undone::{UndoResult, Undone};

use crate::foreign::{self, ForeignControl, ForeignError, ForeignGroup};
use crate::group::{self, Group, GroupError, Kernel, Limit, Place, Throttled};
use crate::guard::{Guard, Guardian, THREADS};
use crate::process::Identity;
use crate::recovery::RecoveryError;
use crate::sched::{self, Class, SchedError};
use band::{BandGroup, PROCESSES, ROUNDS_MAX};
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
    /// Existing threads that are not there, or must not be frozen.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// A thread that cannot get its class or its CPU.
    #[error("thread {id} (\"{name}\"): {cause}")]
    Unheld {
        /// Its id.
        id: u32,
        /// Its name.
        name: String,
        /// The cause, with the remedy.
        cause: SchedError,
    },
    /// A thread with a reservation of its own.
    #[error("thread {id} (\"{name}\") is under SCHED_DEADLINE, and so outside of any band; end its reservation first")]
    Reserved {
        /// Its id.
        id: u32,
        /// Its name.
        name: String,
    },
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

    /// Puts the threads of a group into a band, frozen. A process gets a group of its own below its present one.
    ///
    /// # Errors
    /// The cause of the first refusal. [`Holder::give_back`] restores what was changed by then.
    pub fn band(&mut self, found: &ForeignGroup, band: Band) -> Result<HeldGroup, HoldError> {
        let owner = self.journal.name().0.owner;
        let mut folder = found.folder.clone();
        if found.process.is_some() {
            let Identity { pid, start } = owner;
            folder.push(format!("takt-{pid}-{start}-{}-{}", self.journal.name().0.number, self.changes.len()));
        }
        let first = found.process.map_or_else(|| foreign::members(&folder).first().copied(), |one| Some(one.pid));
        let cpus = first.map(sched::affinity_of).filter(|cpus| !cpus.is_empty()).unwrap_or_else(sched::affinity);
        let group = BandGroup { folder: folder.clone(), made: found.process.is_some(), band, cpus };
        self.note(Change::Band { owner, group: group.clone() })?;
        if let Some(process) = found.process {
            let file = |path: &std::path::Path, error: std::io::Error| ForeignError::File {
                path: path.to_owned(),
                cause: error.to_string(),
            };
            std::fs::create_dir(&folder).map_err(|error| file(&folder, error))?;
            let home = foreign::group_of(process.pid).unwrap_or_default();
            let members = folder.join(PROCESSES);
            match std::fs::write(&members, process.pid.to_string()) {
                Err(_) if !process.is_alive() => return Err(HoldError::Gone { id: process.pid }),
                written => written.map_err(|error| file(&members, error))?,
            }
            let ours = foreign::group_of(process.pid).unwrap_or_default();
            // A process may start others while takt looks for them. Those started after their parent moved are inside.
            for _ in 0..ROUNDS_MAX {
                let started = foreign::started_by(process.pid, &home, &ours);
                // One that has ended meanwhile cannot move.
                let moved = started.iter().filter(|id| std::fs::write(&members, id.to_string()).is_ok());
                if moved.count() == 0 {
                    break;
                }
            }
        }
        let control = ForeignControl::open(&folder)?;
        control.freeze();
        let (threads, refused) = (BTreeMap::new(), BTreeSet::new());
        let mut held = HeldGroup { group, control: control.into(), threads, refused, is_settled: false };
        if let Some(error) = self.rescan(&mut held).1 {
            return Err(error);
        }
        held.is_settled = true;
        Ok(held)
    }

    /// Adds new threads of a group to its band. Threads that moved to another group get back what they had. Returns the
    /// new ones, and the first refusal. A refused thread is frozen with the group all the same.
    pub fn rescan(&mut self, held: &mut HeldGroup) -> (Vec<u32>, Option<HoldError>) {
        let ids = foreign::members(&held.group.folder);
        let left: Vec<Identity> =
            held.threads.values().filter(|one| ids.binary_search(&one.pid).is_err()).copied().collect();
        for thread in left {
            held.threads.remove(&thread.pid);
            let noted = self.changes.iter().filter(|change| change.thread() == thread).cloned();
            let noted: Vec<Change> = noted.collect();
            match tid(thread) {
                // It got its settings from the thread that started it.
                Ok(id) if noted.is_empty() => {
                    if thread.is_alive() && held.group.band.has(id) {
                        let _ = held.group.release(id);
                    }
                }
                _ => drop(Change::undo_all(&noted)),
            }
        }
        let (mut new, mut refused) = (Vec::new(), None);
        for id in ids {
            if held.threads.contains_key(&id) {
                continue;
            }
            let Some(thread) = Identity::of(id) else { continue };
            match self.enter(thread, held) {
                Ok(()) => {
                    held.threads.insert(id, thread);
                    new.push(id);
                }
                Err(HoldError::Gone { .. }) => {}
                Err(error) if held.refused.insert(id) => refused = Some(error),
                Err(_) => {}
            }
        }
        (new, refused)
    }

    /// Gives a thread the class and the CPU of its group's band. One that was started by a member has both.
    fn enter(&mut self, thread: Identity, held: &HeldGroup) -> Result<(), HoldError> {
        let band = held.group.band;
        let (id, gone) = (tid(thread)?, || HoldError::Gone { id: thread.pid });
        let name =
            || std::fs::read_to_string(format!("/proc/{}/comm", thread.pid)).unwrap_or_default().trim().to_owned();
        if held.is_settled && band.has(id) {
            return Ok(());
        }
        let former = change::attributes_of(thread).ok_or_else(gone)?;
        let reserved = || HoldError::Reserved { id: thread.pid, name: name() };
        let ours = band.attributes(&former).ok_or_else(reserved)?;
        let cpus = sched::cpus_of(id);
        self.note(Change::Class { thread, former, ours })?;
        self.note(Change::Affinity { thread, former: cpus, ours: vec![band.cpu] })?;
        let refused = |cause: SchedError| match thread.is_alive() {
            true => HoldError::Unheld { id: thread.pid, name: name(), cause },
            false => gone(),
        };
        let class = sched::class_of(&ours);
        sched::set_cpus_of(id, &[band.cpu]).map_err(|errno| refused(sched::unbound(&[band.cpu], errno)))?;
        sched::set_of(id, &ours).map_err(|errno| refused(sched::refused_to(thread.pid, &class, errno)))
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
        let changes = std::mem::take(&mut self.changes);
        let given = Change::undo_all(&changes);
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

/// Existing threads in a band.
#[derive(Debug)]
pub struct HeldGroup {
    group: BandGroup,
    control: std::sync::Arc<ForeignControl>,
    /// By id.
    threads: BTreeMap<u32, Identity>,
    /// Ids that did not get the band's class.
    refused: BTreeSet<u32>,
    /// The threads that were there at first are known.
    is_settled: bool,
}

impl HeldGroup {
    /// The switch and the meter.
    #[must_use]
    pub fn control(&self) -> std::sync::Arc<ForeignControl> {
        self.control.clone()
    }

    /// The ids of its threads.
    pub fn threads(&self) -> impl Iterator<Item = u32> + '_ {
        self.threads.keys().copied()
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
