//! The real-time band of a group of existing threads: the settings of each thread, and their restoring.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::undone::{UndoResult, Undone};
use crate::foreign;
use crate::group;
use crate::process::Identity;
use crate::sched::{self, Attributes, Class};

/// Two priorities on one CPU (the kernel's number).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// The CPU.
    pub cpu: u32,
    /// Priority for threads that had a real-time class. They keep SCHED_FIFO or SCHED_RR.
    pub first: u8,
    /// Priority for ordinary threads. They get SCHED_RR, so they share the CPU.
    pub second: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BandGroup {
    /// The folder of the group, which takt freezes.
    pub(crate) folder: PathBuf,
    /// takt made it, below the former group of a process.
    pub(crate) made: bool,
    pub(crate) band: Band,
    /// The CPUs of threads that the group's threads have started since.
    pub(crate) cpus: Vec<u32>,
}

/// A process may start others while it is moved, so the search repeats up to so many times.
pub(crate) const ROUNDS_MAX: u32 = 50;

impl Band {
    /// What a thread with these attributes gets; `None` for SCHED_DEADLINE. The threads that it starts inherit it.
    pub(crate) fn attributes(&self, former: &Attributes) -> Option<Attributes> {
        let class = match sched::class_of(former) {
            Class::Deadline(_) => return None,
            Class::Fifo { .. } => Class::Fifo { priority: self.first },
            Class::RoundRobin { .. } => Class::RoundRobin { priority: self.first },
            Class::Other | Class::Ext => Class::RoundRobin { priority: self.second },
        };
        Some(Attributes { flags: 0, ..Attributes::from(&class) })
    }

    /// Whether a thread has what the band gives.
    pub(crate) fn has(&self, id: libc::pid_t) -> bool {
        let Ok(now) = sched::get_of(id, 0) else { return false };
        let is_of_band = match sched::class_of(&now) {
            Class::Fifo { priority } => priority == self.first,
            Class::RoundRobin { priority } => priority == self.first || priority == self.second,
            Class::Other | Class::Ext | Class::Deadline(_) => false,
        };
        is_of_band && sched::cpus_of(id) == [self.cpu]
    }
}

/// An ordinary thread.
fn ordinary() -> Attributes {
    Attributes { flags: 0, ..Attributes::from(&Class::Other) }
}

impl BandGroup {
    /// Makes a thread ordinary that got its settings from its parent.
    pub(crate) fn release(&self, id: libc::pid_t) -> Result<(), i32> {
        let kept = Attributes::from(&Class::Other);
        sched::set_of(id, &ordinary()).or_else(|_| sched::set_of(id, &kept))?;
        sched::set_cpus_of(id, &self.cpus)
    }

    /// Makes threads ordinary that got their settings from their parents, and lets the group go on. `known`: threads
    /// whose former settings are known, and restored already.
    pub(crate) fn undo(&self, owner: Identity, known: &[Identity]) -> UndoResult {
        let result = |undone| UndoResult { thread: owner, undone };
        if !self.folder.exists() {
            return result(Undone::Gone);
        }
        let mut failed = None;
        for id in foreign::members(&self.folder) {
            let Ok(id) = libc::pid_t::try_from(id) else { continue };
            let is_known = known.iter().any(|known| i64::from(known.pid) == i64::from(id) && known.is_alive());
            if !is_known && self.band.has(id) {
                match self.release(id) {
                    Err(errno) if errno != libc::ESRCH => failed = Some(format!("thread {id}: {}", sched::text(errno))),
                    _ => {}
                }
            }
        }
        let thawed = foreign::thaw(&self.folder);
        let home = if self.made { self.go_home() } else { Ok(()) };
        match (thawed.and(home), failed) {
            (Err(error), _) if self.folder.exists() => {
                result(Undone::Failed(format!("{}: {error}", self.folder.display())))
            }
            (_, Some(cause)) => result(Undone::Failed(cause)),
            _ => result(Undone::Restored),
        }
    }

    /// Moves all processes back, and removes the group.
    fn go_home(&self) -> io::Result<()> {
        let home = self.folder.parent().unwrap_or(Path::new("/")).join(PROCESSES);
        for _ in 0..ROUNDS_MAX {
            let inside = fs::read_to_string(self.folder.join(PROCESSES)).unwrap_or_default();
            if inside.trim().is_empty() {
                break;
            }
            for id in inside.split_ascii_whitespace() {
                match fs::write(&home, id) {
                    Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return Err(error),
                    _ => {}
                }
            }
        }
        group::remove_folder(&self.folder)
    }
}

/// The file of a group with its processes.
pub(crate) const PROCESSES: &str = "cgroup.procs";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_threads_share_a_cpu_and_others_stay_above_them() {
        let band = Band { cpu: 1, first: 47, second: 46 };
        let of = |class: &Class| band.attributes(&Attributes::from(class)).map(|of| (sched::class_of(&of), of.flags));
        assert_eq!(of(&Class::Other), Some((Class::RoundRobin { priority: 46 }, 0)));
        assert_eq!(of(&Class::Fifo { priority: 90 }), Some((Class::Fifo { priority: 47 }, 0)));
        assert_eq!(of(&Class::RoundRobin { priority: 1 }), Some((Class::RoundRobin { priority: 47 }, 0)));
        let ms = takt_model::Span::from_ms;
        let reserved = crate::sched::Reservation { runtime: ms(1), deadline: ms(9), period: ms(9) };
        assert_eq!(of(&Class::Deadline(reserved)), None);
    }
}
