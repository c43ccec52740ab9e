//! The input of an experiment: options, its folder, whether to stop, and the machine's pauses.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use takt_linux::machine::Machine;
use takt_linux::signals::{Signal, StopSignals};
use takt_linux::{clock, machine};
use takt_model::Span;

use super::findings::Findings;
use super::{EXPERIMENTS, Experiment, machine as about};
use crate::failure::Failure;
use crate::host::{Host, LabMachine};

/// How an experiment is to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The experiment's name.
    pub name: String,
    /// The folder. The default has the experiment's name.
    pub out: Option<String>,
    /// How long each measurement lasts.
    pub duration: Option<Span>,
    /// How often to measure each value that the paper averages.
    pub repeat: Option<u32>,
    /// Whether to shorten all measurements, to the shortest that still show something.
    pub short: bool,
    /// Whether to measure a simulated experiment on this kernel, too.
    pub live: bool,
    /// The guest to measure in, with `--lab`.
    pub lab: Option<LabMachine>,
    /// The seed of all random draws.
    pub seed: u64,
}

pub(super) struct Context {
    pub(super) host: Host,
    folder: PathBuf,
    shown: String,
    pub(super) seed: u64,
    pub(super) short: bool,
    duration: Option<Span>,
    repeat: Option<u32>,
    pub(super) machine: Machine,
    load: Option<String>,
    pub(super) live: bool,
    pub(super) lab: Option<LabMachine>,
    /// Whether all runs in virtual time.
    simulated: bool,
    signals: StopSignals,
    caught: Cell<Option<Signal>>,
}

impl Context {
    pub(super) fn new(experiment: &Experiment, options: &Options, host: Host) -> Result<Context, Failure> {
        if options.duration.is_some_and(Span::is_zero) {
            return Err(Failure::input("--for is zero; give a duration like 10s"));
        }
        let form = experiment.form(options);
        if (options.live || options.lab.is_some()) && form.is_none() {
            let (option, lacks) =
                if options.live { ("--live", "has one form") } else { ("--lab", "has no form in the lab") };
            let others = EXPERIMENTS.iter().filter(|experiment| experiment.form(options).is_some());
            let names = others.map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
            return Err(Failure::input(format_args!(
                "{option}: {} {lacks}; leave it out, or choose one of {names}",
                experiment.name
            )));
        }
        let longest = form.map_or(experiment.longest, |form| form.longest);
        if let Some(asked) = options.duration.filter(|asked| *asked > longest) {
            let name = experiment.name;
            return Err(Failure::input(format_args!(
                "--for {asked}: {name} measures for {longest} at the most; give that or less"
            )));
        }
        if options.lab.is_some() && (options.repeat.is_some() || options.duration.is_some()) {
            return Err(Failure::input(
                "--lab: each value is measured once, for a fixed time; leave --for and --repeat out",
            ));
        }
        if options.repeat.is_some() && (options.live || !experiment.repeats) {
            return Err(Failure::input(format_args!(
                "--repeat: {} measures each thing once; leave it out, or give --for a longer time",
                experiment.name
            )));
        }
        let shown = options.out.clone().unwrap_or_else(|| experiment.name.to_owned());
        let folder = PathBuf::from(&shown);
        // From here on, a signal ends the experiment in order, since its folder exists.
        let signals = StopSignals::catch();
        fs::create_dir_all(&folder).map_err(|error| trouble(&shown, &error))?;
        Ok(Context {
            host,
            folder,
            shown,
            seed: options.seed,
            short: options.short,
            duration: options.duration,
            repeat: options.repeat,
            machine: machine(),
            load: about::load_average(),
            live: options.live,
            lab: options.lab.clone(),
            simulated: experiment.simulated && !options.live || options.lab.is_some(),
            signals,
            caught: Cell::new(None),
        })
    }

    pub(super) fn remove_empty_folder(&self) {
        let _ = fs::remove_dir(&self.folder);
    }

    /// How long a measurement lasts: as asked, or `usual`, or `short` with `--short`.
    pub(super) fn duration(&self, usual: Span, short: Span) -> Span {
        self.duration.unwrap_or(if self.short { short } else { usual })
    }

    /// How often each value that the paper averages is measured.
    pub(super) fn repeat(&self) -> u32 {
        self.repeat.unwrap_or(if self.short { 1 } else { REPEAT })
    }

    pub(super) fn stopped(&self) -> bool {
        self.signals.caught().is_some() || self.caught.get().is_some()
    }

    /// The result, or `None` if it failed because it was told to end early.
    pub(super) fn unless_stopped<T>(&self, result: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match result {
            Err(_) if self.stopped() => Ok(None),
            result => result.map(Some),
        }
    }

    /// A run within was ended by a signal.
    pub(super) fn interrupted_by(&self, signal: Option<Signal>) {
        if signal.is_some() {
            self.caught.set(signal);
        }
    }

    pub(super) fn signal(&self) -> Option<Signal> {
        self.signals.caught().or_else(|| self.caught.get())
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.path(name);
        fs::write(&path, bytes).map_err(|error| trouble(&path, &error))
    }

    /// CPU time that the hypervisor took since it began.
    pub(super) fn steal(&self) -> Option<Span> {
        self.machine.steal.zip(clock::steal()).map(|(before, now)| now.saturating_sub(before))
    }

    pub(super) fn add_closing_notes(&self, findings: &mut Findings) {
        if let Some(signal) = self.signal() {
            findings.notes.insert(0, format!("Ended early by {signal}: what was not measured by then is missing."));
        }
        if !self.simulated {
            findings.notes.push(about::describe(&self.machine, self.load.as_deref()));
        }
        if let Some(steal) = self.steal().filter(|steal| !steal.is_zero() && !self.simulated) {
            findings.notes.push(format!(
                "The hypervisor took {steal} of CPU time meanwhile, from all CPUs together. Times of threads \
                 contain this, and maxima most of all."
            ));
        }
        if self.short {
            findings.notes.push("Made with --short: few values stand behind each number.".to_owned());
        }
    }
}

const REPEAT: u32 = 3;

fn trouble(what: &str, error: &std::io::Error) -> Failure {
    Failure::trouble(format_args!("cannot write {}: {error}", takt_model::file::one_line(what)))
}
