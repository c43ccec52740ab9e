//! The agent in the guest: runs the experiments and writes frames to a port.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use takt_experiments::Play;
use takt_lab::frames::{Encoder, Kind};
use takt_lab::guest::{COMMAND, EXPERIMENTS_MAX, Experiment, FOLDER, LOG, RESULT_MAX, name};
use takt_lab::machine::FRAMES_PORT;

use super::boot::files;
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::print;
use crate::verbs::reproduce::failed;

/// The status of a command that does not start, as shells give it.
const NOT_STARTED: i32 = 127;

pub(super) fn execute() -> Outcome {
    let folder = folder("takt lab guest")?;
    run(&folder).map_err(|error| Failure::trouble(format_args!("the guest's agent: {error}")))?;
    Ok(Status::Yes)
}

/// Plays the film of a trial, and prints when its frames were shown.
pub(super) fn play(options: &args::LabPlay) -> Outcome {
    folder("takt lab play")?;
    let args::LabPlay { trial, duration, seed, thread } = *options;
    let text = takt_experiments::play(&Play { trial, length: duration, seed, thread }).map_err(failed)?;
    print(&text)?;
    Ok(Status::Yes)
}

/// The folder of experiments. Only a guest has it.
fn folder(command: &str) -> Result<PathBuf, Failure> {
    let folder = Path::new("/").join(FOLDER);
    if std::process::id() == 1 || !folder.join(name(0)).join(COMMAND).exists() {
        return Err(Failure::input(format_args!("{command} runs in a guest of takt lab run, and nowhere else")));
    }
    Ok(folder)
}

fn run(folder: &Path) -> io::Result<()> {
    let port = Port(File::options().write(true).open("/dev/port")?);
    let mut encoder = Encoder::default();
    for number in 0..EXPERIMENTS_MAX {
        let folder = folder.join(name(number));
        let Ok(command) = fs::read(folder.join(COMMAND)) else { break };
        let mut send = |kind, content: &[u8]| port.write(&encoder.encode(number as u16, kind, content));
        send(Kind::Begin, &[])?;
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| folder.join(name));
        let status = match start(&command, &stdout, &stderr) {
            Ok(status) => status,
            Err(error) => {
                fs::write(&stderr, format!("cannot start: {error}\n"))?;
                NOT_STARTED
            }
        };
        let parts = [(Kind::Stdout, stdout), (Kind::Stderr, stderr), (Kind::Log, folder.join(LOG))];
        for (kind, path) in parts {
            if let Ok(file) = File::open(path) {
                let mut content = Vec::new();
                // One byte more shows the host that a result is cut.
                file.take(RESULT_MAX + 1).read_to_end(&mut content)?;
                send(kind, &content)?;
            }
        }
        send(Kind::End, &status.to_le_bytes())?;
    }
    port.write(&encoder.encode(0, Kind::Finished, &[]))
}

/// Runs a command to its end. Its outputs go to files, so that nobody reads beside it.
fn start(command: &[u8], stdout: &Path, stderr: &Path) -> io::Result<i32> {
    let Some(experiment) = Experiment::decode(command) else { return Err(io::ErrorKind::InvalidData.into()) };
    let (program, arguments) = experiment.command.split_first().ok_or(io::ErrorKind::InvalidData)?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(files()).stdin(Stdio::null());
    command.stdout(File::create(stdout)?).stderr(File::create(stderr)?);
    let status = command.status()?;
    Ok(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(NOT_STARTED))
}

/// An I/O port that takes bytes. /dev/port counts up within a call, so each byte needs its own.
struct Port(File);

impl Port {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        bytes.iter().try_for_each(|byte| self.0.write_all_at(&[*byte], u64::from(FRAMES_PORT)))
    }
}
