//! A boot: QEMU runs, and the guest's frames become results.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use takt_lab::frames::{Decoder, Results};
use takt_lab::guest::Guest;
use takt_lab::machine::{Files, Machine};
use takt_linux::clock;
use takt_linux::clock::Epoch;
use takt_linux::process;
use takt_linux::signals::StopSignals;
use takt_model::{Span, Time};

use super::cache::Kernel;
use super::error::LabError;
use super::programs::{not_started, output};

const QEMU: &str = "qemu-system-x86_64";
/// How often the host looks at the guest's output.
const LOOK: Span = Span::from_ms(50);
/// How long QEMU has to end after SIGTERM.
const END_MAX: Span = Span::from_s(2);
/// A boot may take this many times its CPU time on the host's clock.
const WAIT_FACTOR: u64 = 20;
/// The most bytes of frames, and of the console.
const OUTPUT_MAX: u64 = 256 << 20;

/// The input of a boot.
pub struct Setup<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The machine.
    pub machine: &'a Machine,
    /// The guest's files.
    pub guest: &'a Guest<'a>,
    /// The most CPU time that QEMU may use. On a busy host a boot may last 20 times as long.
    pub timeout: Span,
    /// An empty folder for the files of the boot.
    pub folder: &'a Path,
}

/// The state of a boot.
pub struct Progress<'a> {
    /// How many experiments have begun.
    pub begun: usize,
    /// New text on the guest's console.
    pub console: &'a [u8],
}

/// A boot that came to its end.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The results of the experiments.
    pub results: Results,
    /// The frames, byte by byte.
    pub frames: Vec<u8>,
    /// The guest's console.
    pub console: Vec<u8>,
    /// Bytes that belong to no frame.
    pub lost: u64,
    /// How long it took on the host's clock.
    pub took: Span,
}

/// The version of QEMU.
///
/// # Errors
/// It is missing.
pub fn qemu_version() -> Result<String, LabError> {
    let text = output(QEMU, Command::new(QEMU).arg("--version"), &[])?;
    let text = String::from_utf8_lossy(&text);
    let version = text.split_whitespace().skip_while(|word| *word != "version").nth(1);
    Ok(version.unwrap_or("unknown").to_owned())
}

impl Boot {
    /// Boots the guest and waits until it ends.
    ///
    /// # Errors
    /// QEMU is missing, the guest takes too long or writes too much, or a signal came.
    pub fn run(setup: &Setup<'_>, watch: &mut dyn FnMut(&Progress<'_>)) -> Result<Boot, LabError> {
        let path = |name: &str| setup.folder.join(name);
        let (initrd, console, frames) = (path("initrd"), path("console"), path("frames"));
        let archive = setup.guest.initrd()?.archive();
        fs::write(&initrd, archive).map_err(LabError::at(&initrd))?;
        for file in [&console, &frames] {
            fs::write(file, []).map_err(LabError::at(file))?;
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (image, initrd) = (text(&setup.kernel.image), text(&initrd));
        let (console_path, frames_path) = (text(&console), text(&frames));
        let files = Files { kernel: &image, initrd: &initrd, console: &console_path, frames: &frames_path };
        let signals = StopSignals::catch();
        let said = path("qemu");
        let mut command = Command::new(QEMU);
        command.args(setup.machine.arguments(&files)).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&said).map_err(LabError::at(&said))?);
        let mut qemu = Qemu(command.spawn().map_err(|error| not_started(QEMU, error))?);
        let epoch = Epoch::now_is_zero();
        let wait = setup.timeout.checked_mul(WAIT_FACTOR).unwrap_or(Span::MAX);
        let mut boot = Boot {
            results: Results::of(setup.guest.experiments.len()),
            frames: Vec::new(),
            console: Vec::new(),
            lost: 0,
            took: Span::ZERO,
        };
        let mut decoder = Decoder::default();
        let (mut console, mut frames) = (Tail::open(&console)?, Tail::open(&frames)?);
        loop {
            let over = qemu.0.try_wait().map_err(LabError::at(QEMU))?;
            decoder.push(frames.more(&mut boot.frames)?, &mut |frame| boot.results.on_frame(frame));
            let news = console.more(&mut boot.console)?;
            watch(&Progress { begun: boot.results.begun, console: news });
            boot.took = epoch.now().saturating_since(Time::ZERO);
            // Ctrl-C of a terminal ends QEMU too.
            if let Some(signal) = signals.caught() {
                return Err(LabError::Interrupted(signal.to_string()));
            }
            if let Some(status) = over {
                if !status.success() {
                    let said = fs::read_to_string(&said).unwrap_or_default();
                    return Err(LabError::Failed { program: QEMU, said: format!("{status}: {}", said.trim_end()) });
                }
                boot.lost = decoder.lost();
                return Ok(boot);
            }
            // A guest never waits for the host, so one that hangs uses CPU time, too.
            if clock::cpu_of_process(qemu.0.id()) > setup.timeout {
                return Err(LabError::Time { limit: setup.timeout, clock: "of CPU time" });
            }
            if boot.took > wait {
                return Err(LabError::Time { limit: wait, clock: "on this machine's clock" });
            }
            clock::pause(LOOK);
        }
    }
}

/// QEMU. Dropped, it ends.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            process::end(&mut self.0, END_MAX, &mut |_| {});
        }
    }
}

/// A file that grows.
struct Tail(File);

impl Tail {
    fn open(path: &Path) -> Result<Tail, LabError> {
        File::open(path).map(Tail).map_err(LabError::at(path))
    }

    /// Adds the new bytes to `all`, and returns them.
    fn more<'a>(&mut self, all: &'a mut Vec<u8>) -> Result<&'a [u8], LabError> {
        let before = all.len();
        self.0.read_to_end(all).map_err(LabError::at("output of the guest"))?;
        if all.len() as u64 > OUTPUT_MAX {
            return Err(LabError::Bound(OUTPUT_MAX));
        }
        Ok(&all[before..])
    }
}
