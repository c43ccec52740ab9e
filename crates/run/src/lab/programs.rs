//! Programs of the host that the lab runs.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use super::error::LabError;

/// The package of each program that may be missing.
const PACKAGES: [(&str, &str); 7] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
    ("xz", "xz-utils"),
    ("sha256sum", "coreutils"),
    ("find", "findutils"),
];
/// How many bytes of a program's complaint are passed on.
const SAID_MAX: usize = 1_000;

/// Why a program did not start.
pub(super) fn not_started(program: &'static str, error: io::Error) -> LabError {
    let package = PACKAGES.iter().find(|(name, _)| *name == program).map_or("", |(_, package)| package);
    match error.kind() {
        io::ErrorKind::NotFound => LabError::Missing { program, package },
        _ => LabError::Io { path: program.into(), error },
    }
}

/// Runs a program to its end, with these bytes as standard input. Returns its standard output.
pub(super) fn output(program: &'static str, command: &mut Command, input: &[u8]) -> Result<Vec<u8>, LabError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| not_started(program, error))?;
    let stdin = child.stdin.take();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || {
        // A program that ends early says why itself.
        stdin.map(|mut stdin| stdin.write_all(&input))
    });
    let output = child.wait_with_output().map_err(LabError::at(program))?;
    let _ = feeder.join();
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim_end();
    let begin = (said.len().saturating_sub(SAID_MAX)..said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(0);
    Err(LabError::Failed { program, said: said[begin..].to_owned() })
}
