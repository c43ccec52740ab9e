//! What a killed recording leaves is removed: by the command as a guardian, and by its next start. Where nobody may look into
//! tracefs, each test says so and passes.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use takt_linux::tracing::{Guard, Options, Recorder};
use takt_model::Bytes;

fn takt() -> Command {
    Command::new(env!("CARGO_BIN_EXE_takt"))
}

/// An instance as a recorder leaves it whose process is no more: no process ever has that number.
fn left_behind(number: u32) -> Option<(String, PathBuf)> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let root = mounts.lines().find(|line| line.split(' ').nth(2) == Some("tracefs"))?.split(' ').nth(1)?.to_owned();
    let name = format!("takt-{}-1-{number}", u32::MAX);
    let folder = PathBuf::from(root).join("instances").join(&name);
    match fs::create_dir(&folder) {
        Ok(()) => Some((name, folder)),
        Err(error) => {
            println!("skipped: {}: {error}", folder.display());
            None
        }
    }
}

#[test]
fn the_command_is_a_guardian() {
    let options = Options {
        guard: Guard::Program(env!("CARGO_BIN_EXE_takt").into()),
        buffer: Some(Bytes::new(1 << 20)),
        ..Options::default()
    };
    match Recorder::start(&options) {
        Ok(recorder) => drop(recorder),
        Err(error) => return println!("skipped: {error}"),
    }
    let Some((name, folder)) = left_behind(1) else { return };
    let mut command = takt();
    command.args(["--takt-trace-guardian", &name]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guardian = command.spawn().unwrap();
    let mut ready = [0; 5];
    guardian.stdout.take().unwrap().read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready");
    drop(guardian.stdin.take());
    assert!(guardian.wait().unwrap().success());
    assert!(!folder.exists());
}

#[test]
fn the_next_start_removes_what_is_left() {
    let Some((name, folder)) = left_behind(2) else { return };
    let output = takt().arg("schema").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Where another takt was quicker, this one says nothing of it, and may have ended before that one has removed it.
    assert!((0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !folder.exists()
    }));
    println!("{name}: {}", String::from_utf8_lossy(&output.stderr));
}
