//! The command, run by tests to its end.

use std::path::Path;
use std::process::Command;

pub(crate) const TAKT: &str = env!("CARGO_BIN_EXE_takt");

/// Runs the command in a folder. Returns its exit status, standard output and standard error.
pub(crate) fn takt(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let ran = Command::new(TAKT).args(arguments).current_dir(folder).output().expect("takt starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ran.status.code().unwrap_or(-1), text(&ran.stdout), text(&ran.stderr))
}
