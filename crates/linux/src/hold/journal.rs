//! The journal of a holder: a file with one line per change, written before the change is made.
//!
//! The file is named after its process (id and start time). If the process has ended without
//! removing the file, it was killed. A process that undoes the lines holds the file's lock (flock)
//! meanwhile. A last line without a line end was not written completely, so its change was not
//! made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::change::Change;
use super::undone::{UndoResult, Undone};
use crate::owned::{self, ResourceId};
use crate::process::boot_id;
use crate::recovery::{Fields, Recovered, RecoveryError, make_private, read_state, state_folder, unusable};

const PREFIX: &str = "reserve";
const HEAD: &str = "takt-reserve 1";

/// The name of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journal(pub(crate) ResourceId);

impl Journal {
    pub(crate) fn parse(text: &str) -> Option<Journal> {
        ResourceId::parse(PREFIX, text).map(Journal)
    }

    pub(crate) fn to_text(self) -> String {
        self.0.to_text(PREFIX)
    }

    fn path(self) -> PathBuf {
        state_folder().join(self.to_text())
    }

    /// The changes to undo in a journal's text, one line per change. Empty if the journal is from
    /// another boot. A last line without a line end does not count.
    ///
    /// # Errors
    /// The line that cannot be parsed.
    pub fn lines(text: &str, boot: Option<&str>) -> Result<Vec<String>, String> {
        Ok(parse(text, boot)?.iter().map(Change::to_text).collect())
    }

    /// Undoes the changes of an ended process. Does nothing if the process lives or another process
    /// undoes them.
    pub(crate) fn recover(self) -> Result<Vec<UndoResult>, RecoveryError> {
        let path = self.path();
        make_private(&state_folder())?;
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unusable(&path, &error)),
        };
        let locked = owned::lock(&file).unwrap_or(false);
        if !locked || self.0.owner.is_alive() || !path.exists() {
            return Ok(Vec::new());
        }
        let changes = read_state(&path, |text| parse(text, boot_id().as_deref()))?.unwrap_or_default();
        let given: Vec<UndoResult> = Change::undo_all(&changes);
        let failed = |given: &UndoResult| match &given.undone {
            Undone::Failed(cause) => Some(format!("thread {}: {cause}", given.thread.pid)),
            _ => None,
        };
        if let Some(cause) = given.iter().find_map(failed) {
            return Err(RecoveryError::Undo { pid: self.0.owner.pid, cause });
        }
        fs::remove_file(&path).map_err(|error| unusable(&path, &error))?;
        Ok(given)
    }
}

/// Gives back what killed holders have not. To be called at every start: one look at a folder where
/// there is nothing to do. Returns the threads that have their settings again.
#[must_use]
pub fn recover() -> Recovered<u32> {
    let mut all = Recovered::default();
    for journal in owned::left(&state_folder(), PREFIX).unwrap_or_default().into_iter().map(Journal) {
        match journal.recover() {
            Ok(given) => {
                // A group's change is that of the dead process itself.
                let owner = journal.0.owner;
                let restored = given.iter().filter(|given| given.undone == Undone::Restored && given.thread != owner);
                all.undone.extend(restored.map(|given| given.thread.pid));
            }
            Err(error) => all.stuck.push(error.to_string()),
        }
    }
    all.undone.sort_unstable();
    all.undone.dedup();
    all
}

/// The changes of a journal; none where it is of another boot.
fn parse(text: &str, boot: Option<&str>) -> Result<Vec<Change>, String> {
    let Some((whole, _)) = text.rsplit_once('\n') else { return Ok(Vec::new()) };
    let mut fields = Fields::after(HEAD, whole)?;
    let of = fields.take("boot").ok();
    if boot.is_some_and(|boot| of != Some(boot)) {
        return Ok(Vec::new());
    }
    fields.rest().map(|line| Change::from_text(line).ok_or_else(|| format!("\"{line}\" is not understood"))).collect()
}

/// The owner's side.
#[derive(Debug)]
pub(crate) struct Open {
    journal: Journal,
    path: PathBuf,
    file: File,
}

impl Open {
    pub(crate) fn create() -> Result<Open, RecoveryError> {
        make_private(&state_folder())?;
        let journal = Journal(ResourceId::next().ok_or(RecoveryError::NoIdentity)?);
        let path = journal.path();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&path).map_err(|error| unusable(&path, &error))?;
        let head = format!("{HEAD}\nboot {}\n", boot_id().unwrap_or_default());
        write(&mut file, &path, &head)?;
        Ok(Open { journal, path, file })
    }

    pub(crate) fn name(&self) -> Journal {
        self.journal
    }

    pub(crate) fn append(&mut self, change: &Change) -> Result<(), RecoveryError> {
        write(&mut self.file, &self.path, &format!("{}\n", change.to_text()))
    }

    /// Nothing is left to give back.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// In one piece.
fn write(file: &mut File, path: &Path, text: &str) -> Result<(), RecoveryError> {
    file.write_all(text.as_bytes()).map_err(|error| unusable(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_obeyed_as_far_as_it_was_written() {
        let line = "cpus 7 99 1 0,1";
        let text = format!("{HEAD}\nboot b\n{line}\n{line}\n");
        let of = |text: &str| parse(text, Some("b")).map(|changes| changes.len());
        for cut in 0..text.len() {
            assert!(of(&text[..cut]).is_ok_and(|count| count <= 1), "cut at {cut}");
        }
        assert_eq!(of(&text), Ok(2));
        assert_eq!(parse(&text, Some("other")).map(|changes| changes.len()), Ok(0), "what it names died with its boot");
        assert_eq!(of("takt-reserve 2\nboot b\n"), Err("a version of takt that this one does not know".to_owned()));
        assert_eq!(of(&format!("{HEAD}\nboot b\nrm -rf\n")), Err("\"rm -rf\" is not understood".to_owned()));
    }
}
