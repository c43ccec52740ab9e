//! The former state of the machine's cpusets, written down before they are changed.
//!
//! A run writes the state file before it changes cpusets, and removes it after restoring them. The
//! run holds a lock (flock), which the kernel drops when the process dies, however it dies. A state
//! file without a lock is left from a kill -9.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use takt_model::Span;

use crate::owned;
use crate::process::Identity;
use crate::recovery::{
    Fields, RecoveryError, UNKNOWN_VERSION, is_this_boot, make_private, open_lock, origin_text, read_state,
    state_folder, unusable, write_state,
};

/// What [`recover`](super::recover) found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Nothing to repair.
    Nothing,
    /// A running takt holds the state; it restores it itself.
    InUse {
        /// Its process id; zero where it has not written it yet.
        pid: u32,
    },
    /// A dead process's changes were undone.
    Repaired {
        /// Its process id.
        pid: u32,
        /// The undone changes, for the screen.
        what: String,
    },
}

const STATE: &str = "cpusets.state";
const LOCK: &str = "cpusets.lock";

/// Whether there is a state file.
pub(crate) fn is_left() -> bool {
    state_folder().join(STATE).exists()
}

/// The right to change this machine's cpusets: one process at a time.
#[derive(Debug)]
pub(crate) struct Lock {
    folder: PathBuf,
    // Held for its flock, which the kernel drops when the process ends.
    _file: File,
}

impl Lock {
    /// The lock, or the process that has it.
    pub(crate) fn acquire() -> Result<Result<Lock, u32>, RecoveryError> {
        let folder = state_folder();
        make_private(&folder)?;
        let path = folder.join(LOCK);
        let file = open_lock(&path)?;
        match owned::lock(&file) {
            Ok(true) => Ok(Ok(Lock { folder, _file: file })),
            Ok(false) => Ok(Err(read(&folder)?.map_or(0, |state| state.owner.pid))),
            Err(error) => Err(unusable(&path, &error)),
        }
    }

    /// Writes down what will have to be restored, whole or not at all.
    pub(crate) fn write(&self, state: &State) -> Result<(), RecoveryError> {
        write_state(&self.folder.join(STATE), &state.to_text())
    }

    /// All is restored.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(self.folder.join(STATE));
    }

    /// Repairs what a dead process left, by `undo`.
    pub(crate) fn repair(self, undo: impl FnOnce(&State) -> Result<(), String>) -> Result<Recovery, RecoveryError> {
        let Some(state) = read(&self.folder)? else { return Ok(Recovery::Nothing) };
        let pid = state.owner.pid;
        // The lock says that no takt holds the state; a living owner is another program's flock trouble: hands off.
        if state.owner.is_alive() && is_this_boot(&state.boot) && pid != std::process::id() {
            return Ok(Recovery::InUse { pid });
        }
        if !is_this_boot(&state.boot) {
            self.forget();
            return Ok(Recovery::Nothing);
        }
        undo(&state).map_err(|cause| RecoveryError::Undo { pid, cause })?;
        self.forget();
        let (count, root) = (state.created.len(), state.root.display());
        let what = match &state.hierarchy {
            Hierarchy::V1 { load_balance } => {
                format!(
                    "removed {count} cpusets of process {pid} and set load balancing of {root} back to {load_balance}"
                )
            }
            Hierarchy::V2 { .. } => format!("removed what process {pid} made in {root}: {count} partition(s)"),
        };
        Ok(Recovery::Repaired { pid, what })
    }
}

/// The former state, by the version of cgroups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hierarchy {
    V1 {
        /// Load balancing of the root cpuset.
        load_balance: String,
    },
    V2 {
        /// Whether the root cgroup gave cpusets to its children.
        enabled: bool,
    },
}

/// The state to restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    /// The boot of this state; cpusets do not outlive a boot.
    pub(crate) boot: String,
    /// Who changed it.
    pub(crate) owner: Identity,
    pub(crate) root: PathBuf,
    pub(crate) hierarchy: Hierarchy,
    /// How long the bandwidth of threads that ended may stay booked.
    pub(crate) settle: Span,
    /// Cpusets to remove.
    pub(crate) created: Vec<PathBuf>,
}

impl State {
    fn to_text(&self) -> String {
        let created: String = self.created.iter().map(|folder| format!("created {}\n", folder.display())).collect();
        let (version, before) = match &self.hierarchy {
            Hierarchy::V1 { load_balance } => (1, format!("load-balance {load_balance}")),
            Hierarchy::V2 { enabled } => (2, format!("cpusets-enabled {}", u8::from(*enabled))),
        };
        format!(
            "takt-state {version}\n{}root {}\n{before}\nsettle {}\n{created}end\n",
            origin_text(&self.boot, self.owner),
            self.root.display(),
            self.settle.as_ns()
        )
    }

    fn from_text(text: &str) -> Result<State, String> {
        let mut fields = Fields::new(text);
        let key = match fields.take("takt-state")? {
            "1" => "load-balance",
            "2" => "cpusets-enabled",
            _ => return Err(UNKNOWN_VERSION.to_owned()),
        };
        let (boot, owner) = fields.origin()?;
        let root = PathBuf::from(fields.take("root")?);
        let before = fields.take(key)?;
        let hierarchy = match (key, before) {
            ("load-balance", "0" | "1") => Hierarchy::V1 { load_balance: before.to_owned() },
            (_, "0" | "1") => Hierarchy::V2 { enabled: before == "1" },
            _ => return Err(format!("\"{before}\" is neither 0 nor 1")),
        };
        let settle = Span::from_ns(fields.number("settle")?);
        let mut created = Vec::new();
        for line in fields.rest() {
            match line.strip_prefix("created ").map(PathBuf::from) {
                Some(folder) if is_ours(&folder, &root) => created.push(folder),
                Some(folder) => return Err(format!("{} is not takt's to remove", folder.display())),
                None if line == "end" => return Ok(State { boot, owner, root, hierarchy, settle, created }),
                None => return Err(format!("\"{line}\" is not understood")),
            }
        }
        Err("it is cut short".to_owned())
    }
}

fn is_ours(folder: &Path, root: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    folder.parent() == Some(root) && name.is_some_and(|name| name.starts_with("takt-"))
}

fn read(folder: &Path) -> Result<Option<State>, RecoveryError> {
    read_state(&folder.join(STATE), State::from_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            boot: "b".into(),
            owner: Identity { pid: 7, start: 99 },
            root: "/sys/fs/cgroup/cpuset".into(),
            hierarchy: Hierarchy::V1 { load_balance: "1".into() },
            settle: Span::from_ms(20),
            created: vec!["/sys/fs/cgroup/cpuset/takt-7-0".into(), "/sys/fs/cgroup/cpuset/takt-7-rest".into()],
        }
    }

    #[test]
    fn a_state_survives_its_file() {
        assert_eq!(State::from_text(&state().to_text()), Ok(state()));
        let v2 = State { hierarchy: Hierarchy::V2 { enabled: false }, ..state() };
        assert_eq!(State::from_text(&v2.to_text()), Ok(v2));
    }

    #[test]
    fn a_damaged_state_is_refused_not_obeyed() {
        let text = state().to_text();
        for cut in 0..text.len() - 1 {
            assert!(State::from_text(&text[..cut]).is_err(), "cut at {cut}");
        }
        let foreign = text.replace("takt-7-0", "system");
        assert_eq!(State::from_text(&foreign), Err("/sys/fs/cgroup/cpuset/system is not takt's to remove".into()));
        let elsewhere = text.replace("created /sys/fs/cgroup/cpuset/takt-7-0", "created /home/takt-7-0");
        assert!(State::from_text(&elsewhere).is_err());
    }
}
