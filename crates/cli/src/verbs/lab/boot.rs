//! Boots as the command line describes them, and the verdicts of repeated boots.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_lab::guest::{EXPERIMENTS_MAX, Experiment, FILES, Guest, LOG, RESULT_MAX};
use takt_lab::kernel::is_static;
use takt_lab::machine::{DISK_MODULES, Devices, Machine, VIRTIO_DISK_MODULE, VIRTIO_MODULE};
use takt_lab::modules::plain;
use takt_model::System;
use takt_model::file::load_traces;
use takt_run::lab::{Boot, Cache, Kernel, LabError, Setup, qemu_version};

use super::failure;
use crate::args;
use crate::failure::Failure;
use crate::input;
use crate::progress;

pub(super) struct Bench {
    cache: Cache,
    kernel: Kernel,
    machine: Machine,
    qemu: String,
    takt: Vec<u8>,
    busybox: Vec<u8>,
    modules: Vec<(String, Vec<u8>)>,
    parameters: Vec<(String, String)>,
    files: Vec<(String, Vec<u8>)>,
    experiments: Vec<Experiment>,
    /// The checksum of all that is booted.
    sum: u32,
    /// The names of the experiments.
    pub(super) names: Vec<String>,
}

/// The result of repeated boots of the same files by one QEMU and machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) kernel: String,
    pub(super) qemu: String,
    pub(super) devices: String,
    pub(super) cpus: u32,
    pub(super) cards: u32,
    pub(super) pairs: u32,
    pub(super) equal: u32,
}

impl Verdict {
    pub(super) fn text(&self) -> String {
        format!("{} of {} pairs of boots were equal byte by byte", self.equal, self.pairs)
    }
}

impl Bench {
    pub(super) fn prepare(options: &args::LabExperiments) -> Result<Bench, Failure> {
        let (mut files, mut experiments, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (number, path) in options.files.iter().enumerate() {
            let (system, text) = input::system_and_text(path)?;
            add_traces(path, input::has_work(path, system, true)?, &mut files)?;
            let stem = Path::new(path).file_stem().map_or_else(|| "system".into(), |stem| stem.to_string_lossy());
            let file = format!("system-{number:02}.toml");
            let log = format!("/{}/{}/{LOG}", takt_lab::guest::FOLDER, takt_lab::guest::name(number));
            let mut command = ["takt", "run", &file, "-o", &log].map(str::to_owned).to_vec();
            if let Some(duration) = options.duration {
                command.extend(["--for".to_owned(), duration.to_string()]);
            }
            if let Some(back_end) = options.backend.asked() {
                command.extend(["--backend".to_owned(), back_end.name().to_owned()]);
            }
            command.extend(options.run.iter().cloned());
            files.push((file, text.into_bytes()));
            experiments.push(Experiment { command });
            names.push(stem.into_owned());
        }
        if let Some(program) = options.command.first() {
            experiments.push(Experiment { command: options.command.clone() });
            names.push(Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        if experiments.len() > EXPERIMENTS_MAX {
            return Err(Failure::input(format_args!(
                "{} experiments; a boot runs at most {EXPERIMENTS_MAX} (EXPERIMENTS_MAX)",
                experiments.len()
            )));
        }
        for path in &options.add {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, read(path)?));
        }
        let machine = machine(options)?;
        let cache = super::cache(&options.kernel)?;
        let qemu = qemu_version().map_err(|error| failure(&error))?;
        let kernel = cache.kernel(&options.kernel.kernel).map_err(|error| failure(&error))?;
        let busybox = cache.busybox().map_err(|error| failure(&error))?;
        let mut wanted: Vec<String> = options.module.iter().map(|module| module.name.clone()).collect();
        if machine.has_virtio() && kernel.has(VIRTIO_MODULE).map_err(|error| failure(&error))? {
            wanted.push(VIRTIO_MODULE.to_owned());
        }
        if machine.cards > 0 {
            wanted.push(machine.devices.card_module().to_owned());
        }
        if machine.disk_mib > 0 {
            wanted.extend(DISK_MODULES.map(str::to_owned));
        }
        if machine.virtio_disk_mib > 0 {
            wanted.push(VIRTIO_DISK_MODULE.to_owned());
        }
        let given = options.module.iter().filter(|module| !module.parameters.is_empty());
        let parameters: Vec<_> = given.map(|module| (plain(&module.name), module.parameters.join(" "))).collect();
        let modules = kernel.load(&wanted).map_err(|error| failure(&error))?;
        let takt = static_takt(options.binary.as_deref())?;
        let image = read(&kernel.image)?;
        let guest = Guest {
            takt: &takt,
            busybox: &busybox,
            modules: &modules,
            parameters: &parameters,
            files: &files,
            experiments: &experiments,
        };
        let sum = checksum(&machine, &image, &guest)?;
        Ok(Bench { cache, kernel, machine, qemu, takt, busybox, modules, parameters, files, experiments, sum, names })
    }

    pub(super) fn boot(&self, options: &args::LabExperiments) -> Result<Boot, Failure> {
        let scratch = Scratch::below(self.cache.folder())?;
        let guest = Guest {
            takt: &self.takt,
            busybox: &self.busybox,
            modules: &self.modules,
            parameters: &self.parameters,
            files: &self.files,
            experiments: &self.experiments,
        };
        let setup = Setup {
            kernel: &self.kernel,
            machine: &self.machine,
            guest: &guest,
            timeout: options.timeout,
            folder: &scratch.0,
        };
        let bar = progress::spinner(format!("booting {}", self.kernel.name));
        let boot = Boot::run(&setup, &mut |progress| {
            if let Some(name) = progress.begun.checked_sub(1).and_then(|number| self.names.get(number)) {
                bar.set_message(format!("experiment {} of {}: {name}", progress.begun, self.names.len()));
            }
            if options.console && !progress.console.is_empty() {
                bar.suspend(|| {
                    // If standard error is closed, the boot goes on.
                    let _ = std::io::stderr().lock().write_all(&shown(progress.console));
                });
            }
        });
        bar.finish_and_clear();
        let boot = boot.map_err(|error| failure(&error))?;
        if !boot.results.finished || boot.results.missing > 0 || boot.lost > 0 {
            let end = String::from_utf8_lossy(&boot.console);
            let last: Vec<&str> = end.lines().rev().take(CONSOLE_LINES).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            return Err(Failure::trouble(format_args!(
                "the guest ended before its experiments: {} of {} began, {} frames and {} bytes are lost; the end of \
                 its console (--console shows all):\n{}",
                boot.results.begun,
                self.names.len(),
                boot.results.missing,
                boot.lost,
                last.join("\n")
            )));
        }
        Ok(boot)
    }

    pub(super) fn kernel(&self) -> &str {
        &self.kernel.name
    }

    pub(super) fn verdict(&self, pairs: u32, equal: u32) -> Verdict {
        Verdict {
            kernel: self.kernel.name.clone(),
            qemu: self.qemu.clone(),
            devices: self.machine.devices.name().to_owned(),
            cpus: self.machine.cpus,
            cards: self.machine.cards,
            pairs,
            equal,
        }
    }

    /// The stored verdict of boots of the same files, by this QEMU and machine.
    pub(super) fn stored(&self) -> Option<Verdict> {
        let text = fs::read_to_string(self.verdict_file()).ok()?;
        let stored: Verdict = serde_json::from_str(&text).ok()?;
        (stored == self.verdict(stored.pairs, stored.equal)).then_some(stored)
    }

    pub(super) fn store(&self, verdict: &Verdict) -> Result<(), Failure> {
        let path = self.verdict_file();
        let text = serde_json::to_string_pretty(verdict).map_err(|error| Failure::trouble(error.to_string()))?;
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text + "\n"));
        written.map_err(|error| Failure::trouble(format_args!("cannot write {}: {error}", path.display())))
    }

    fn verdict_file(&self) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "+.-".contains(c) { c } else { '_' };
        let Machine { devices, cpus, cards, .. } = self.machine;
        let (kernel, sum) = (&self.kernel.name, self.sum);
        let name = format!("{kernel}-qemu{}-{}-{cpus}cpu-{cards}cards-{sum:08x}", self.qemu, devices.name());
        self.cache.folder().join("verdicts").join(name.chars().map(plain).collect::<String>() + ".json")
    }
}

/// The checksum of a boot's input: the machine, the kernel, and the guest's files with takt, modules
/// and experiments.
fn checksum(machine: &Machine, image: &[u8], guest: &Guest<'_>) -> Result<u32, Failure> {
    let initrd = guest.initrd().map_err(|error| failure(&LabError::from(error)))?;
    let mut sum = crc32fast::Hasher::new();
    sum.update(format!("{machine:?} {}\n", image.len()).as_bytes());
    sum.update(image);
    sum.update(&initrd.archive());
    Ok(sum.finalize())
}

/// The failed experiments and the cut results of a boot, a sentence each.
pub(super) fn failures(names: &[String], boot: &Boot) -> Vec<String> {
    let mut told = Vec::new();
    for (name, outcome) in names.iter().zip(&boot.results.experiments) {
        match outcome.status {
            Some(0) => {}
            Some(status) => told.push(format!("experiment {name} ended with status {status}")),
            None => told.push(format!("experiment {name} has no exit status")),
        }
        for part in outcome.cut() {
            told.push(format!(
                "experiment {name}: its {part} is cut after {RESULT_MAX} bytes (RESULT_MAX); write less, or run shorter"
            ));
        }
    }
    told
}

const CONSOLE_LINES: usize = 12;

fn machine(options: &args::LabExperiments) -> Result<Machine, Failure> {
    let devices = options.devices.devices();
    let cpus = options.cpus.unwrap_or(if devices == Devices::Exact { 1 } else { 2 });
    if devices == Devices::Exact && cpus > 1 {
        return Err(Failure::input(format_args!(
            "--cpus {cpus} with exact devices: runs on several CPUs do not repeat byte by byte; add --devices tolerant"
        )));
    }
    for (option, size) in [("--disk", options.disk), ("--virtio-disk", options.virtio_disk)] {
        if devices == Devices::Exact && size > 0 {
            return Err(Failure::input(format_args!(
                "{option} {size} with exact devices: runs with a disk do not repeat byte by byte; add --devices \
                 tolerant"
            )));
        }
    }
    Ok(Machine {
        devices,
        cpus,
        cards: options.cards,
        disk_mib: options.disk,
        virtio_disk_mib: options.virtio_disk,
        memory_mib: options.memory,
        nests: options.module.iter().any(|module| plain(&module.name) == "kvm_amd"),
        seed: options.seed,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::input(format_args!("cannot read {}: {error}", path.display())))
}

/// Adds the traces of a System. The guest finds them by the same relative paths.
fn add_traces(path: &str, mut system: System, files: &mut Vec<(String, Vec<u8>)>) -> Result<(), Failure> {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let read = |trace: &str| {
        let text = fs::read_to_string(folder.join(trace)).map_err(|error| error.to_string())?;
        let file = (trace.to_owned(), text.clone().into_bytes());
        // Systems may share a trace.
        if !files.contains(&file) {
            files.push(file);
        }
        Ok(text)
    };
    load_traces(&mut system, read).map_err(Failure::located)
}

fn static_takt(asked: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let own = Path::new("/proc/self/exe");
    let bytes = read(asked.unwrap_or(own))?;
    match asked {
        _ if is_static(&bytes) => Ok(bytes),
        Some(path) => Err(Failure::input(format_args!(
            "{} is no static program for x86-64; the guest has no libraries; make one: make lab-binary",
            path.display()
        ))),
        None => Err(Failure::cannot(
            "this takt needs shared libraries, which the guest does not have; make a static binary (make lab-binary), \
             and name it: --binary target/lab/takt",
        )),
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn below(cache: &Path) -> Result<Scratch, Failure> {
        let boots = cache.join("boots");
        // Folders of killed processes.
        for entry in fs::read_dir(&boots).into_iter().flatten().flatten() {
            let pid = entry.file_name().to_string_lossy().parse::<u32>();
            if pid.is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let folder = boots.join(std::process::id().to_string());
        let _ = fs::remove_dir_all(&folder);
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(Scratch(folder)),
            Err(error) => Err(Failure::trouble(format_args!("cannot make {}: {error}", folder.display()))),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The guest's console for a terminal, which must not obey it.
fn shown(console: &[u8]) -> Vec<u8> {
    console.iter().copied().filter(|&byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')).collect()
}

pub(super) fn files() -> PathBuf {
    Path::new("/").join(FILES)
}

#[cfg(test)]
mod tests {
    use takt_lab::frames::Results;
    use takt_model::Span;

    use super::*;

    #[test]
    fn a_verdict_is_of_the_same_files_and_machine() {
        let machine = Machine {
            devices: Devices::Exact,
            cpus: 1,
            cards: 0,
            disk_mib: 0,
            virtio_disk_mib: 0,
            memory_mib: 512,
            nests: false,
            seed: 1,
        };
        let run = |word: &str| vec![Experiment { command: vec![word.to_owned()] }];
        let (one, other) = (run("true"), run("false"));
        let guest = Guest { takt: b"t", busybox: b"b", experiments: &one, ..Guest::default() };
        let sums = [
            checksum(&machine, b"k", &guest),
            checksum(&Machine { seed: 2, ..machine.clone() }, b"k", &guest),
            checksum(&Machine { memory_mib: 256, ..machine.clone() }, b"k", &guest),
            checksum(&machine, b"l", &guest),
            checksum(&machine, b"k", &Guest { experiments: &other, ..guest }),
        ];
        assert!(sums.iter().all(Result::is_ok));
        assert_eq!(checksum(&machine, b"k", &Guest { experiments: &one, ..guest }), sums[0]);
        assert!((0..sums.len()).all(|i| !sums[..i].contains(&sums[i])));
    }

    #[test]
    fn the_guest_has_the_traces_of_systems() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml").display().to_string();
        let task = "[[task]]\nname = \"t\"\nperiod = \"10ms\"\nwcet = \"3ms\"\nexec = { trace = \"x/times.csv\" }\n";
        fs::write(&path, format!("takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"rm\"\n{task}")).unwrap();
        fs::create_dir(folder.path().join("x")).unwrap();
        fs::write(folder.path().join("x/times.csv"), "1ms\n2ms\n").unwrap();
        let mut files = Vec::new();
        for _ in 0..2 {
            add_traces(&path, input::system(&path).unwrap(), &mut files).unwrap();
        }
        assert_eq!(files, [("x/times.csv".to_owned(), b"1ms\n2ms\n".to_vec())]);
        assert!(Guest { files: &files, ..Guest::default() }.initrd().is_ok());
    }

    #[test]
    fn failed_experiments_are_named() {
        let names = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let mut results = Results::of(3);
        results.experiments[0].status = Some(0);
        results.experiments[1].status = Some(3);
        let boot = Boot { results, frames: vec![], console: vec![], lost: 0, took: Span::ZERO };
        assert_eq!(failures(&names, &boot), ["experiment b ended with status 3", "experiment c has no exit status"]);
    }
}
