//! A trace that was recorded before.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;
use takt_log::stats::Stats;
use takt_log::{BackEnd, Header};
use takt_model::Time;
use takt_trace::jobs::{Rebuilder, kinds};
use takt_trace::{CPUS_MAX, Form, Format, OpenError, PageLayout, Place, Recording, unpacked};

use super::{About, FLUSH, rebuild};
use crate::args;
use crate::failure::Failure;
use crate::input;
use crate::recorded::Recorded;

/// Folders of a recording nest no deeper: `instances/x/per_cpu/cpu0/trace_pipe_raw`.
const DEPTH_MAX: usize = 8;
/// So many files of one recording are looked at.
const FILES_MAX: usize = 100_000;
/// So many places of damage are told one by one.
const TOLD_MAX: usize = 10;

/// What a trace turned out to be.
#[derive(Serialize)]
pub(super) struct Trace {
    form: String,
    /// Its clock; null where it does not say.
    clock: Option<String>,
    /// Its first event on that clock.
    begins_ns: u64,
    events: u64,
    /// How many of each name.
    names: BTreeMap<String, u64>,
    /// What the trace's own counters say was lost.
    lost: Vec<Lost>,
    /// Places that cannot be read.
    damaged: u64,
    damages: Vec<String>,
    #[serde(skip)]
    path: String,
    #[serde(skip)]
    passed_over: Vec<String>,
    #[serde(skip)]
    untold: u64,
    /// Switches within jobs that are not in the trace.
    pub(super) gaps: u64,
    /// SCHED_DEADLINE threads that yielded or used up their budgets; the trace does not say which.
    unclear_yields: usize,
}

#[derive(Serialize)]
struct Lost {
    /// Null where the trace does not say.
    cpu: Option<u32>,
    events: u64,
}

impl Trace {
    pub(super) fn sentence(&self) -> String {
        let clock = self.clock.as_deref().map_or(String::new(), |clock| format!(", clock {clock}"));
        format!("{}: {}{clock}, {} events\n", input::shown(&self.path), self.form, self.events)
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let path = input::shown(&self.path);
        let mut all: Vec<String> = self.damages.iter().map(|damage| format!("{path}: {damage}")).collect();
        for Lost { cpu, events } in &self.lost {
            let of = cpu.map_or(String::new(), |cpu| format!(" of CPU {cpu}"));
            all.push(format!("{path}: {events} events{of} were lost while it was recorded: overwritten, or without room in the kernel's buffer"));
        }
        let more = self.damaged.saturating_sub(self.damages.len() as u64);
        if more > 0 {
            all.push(format!("{path}: {more} more places cannot be read"));
        }
        if !self.passed_over.is_empty() {
            all.push(format!(
                "{path}: holds several trace instances; the first with events is read, not {}",
                self.passed_over.join(", ")
            ));
        }
        if self.unclear_yields > 0 {
            all.push(format!(
                "{path}: {} SCHED_DEADLINE threads left their CPUs ready: they yielded, or used up their budgets. Without system calls in the trace nobody knows which; the latter is supposed, and a job goes on. Record raw_syscalls, too",
                self.unclear_yields
            ));
        }
        if self.untold > 0 {
            all.push(format!(
                "{path}: {} threads have no jobs in the log: more than 32768 were there at a time",
                self.untold
            ));
        }
        all
    }
}

/// The bytes of a recording.
enum Bytes {
    One(Vec<u8>),
    Folder(Folder),
}

/// Raw pages and what describes them.
#[derive(Default)]
struct Folder {
    formats: Vec<Format>,
    layout: Option<PageLayout>,
    cpus: BTreeMap<u32, Vec<u8>>,
    /// Format files that cannot be read.
    broken: Vec<String>,
}

impl Bytes {
    fn open(&self) -> Result<Recording<'_>, OpenError> {
        match self {
            Bytes::One(bytes) => Recording::open(bytes),
            Bytes::Folder(folder) => {
                let layout = folder.layout.unwrap_or(PageLayout::usual(8, 4096));
                let first = folder.cpus.values().find(|pages| !pages.is_empty());
                let endian = layout.endian_of(first.map_or(&[], Vec::as_slice));
                let cpus = folder.cpus.iter().map(|(cpu, pages)| (*cpu, pages.as_slice())).collect();
                Ok(Recording::pages(&folder.formats, layout, endian, cpus))
            }
        }
    }
}

/// Reads a trace into a log and statistics.
pub(super) fn read(path: &str, options: &args::Observe) -> Result<(Stats, About), Failure> {
    let bytes = bytes(path)?;
    let refused = |error: OpenError| Failure::input(format_args!("{}: {error}", input::shown(path)));
    // Once to learn what there is: a log's head says which kinds of event it can have.
    let mut recording = bytes.open().map_err(refused)?;
    let (mut counts, mut cpus, mut first) = (Vec::<u64>::new(), 0, None);
    recording.each(|event| {
        let at = usize::from(event.name);
        if counts.len() <= at {
            counts.resize(at + 1, 0);
        }
        counts[at] += 1;
        cpus = cpus.max(event.cpu.saturating_add(1));
        first.get_or_insert(event.time);
    });
    let named = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let names: BTreeMap<String, u64> =
        named.map(|(at, count)| (recording.names().name(at as u16).to_owned(), *count)).collect();
    let clock = Some(recording.clock().to_owned()).filter(|clock| !clock.is_empty());
    let mut rebuild = rebuild(options);
    rebuild.monotonic = options.monotonic || recording.is_monotonic();
    rebuild.cpus = cpus.clamp(1, takt_model::CpuSet::CPUS_MAX);
    if let Some(abi) = options.abi.map(Into::into).or_else(|| recording.abi()) {
        rebuild.abi = abi;
    }
    let mut rebuilder = Rebuilder::new(rebuild);
    let kinds = kinds(names.keys().map(String::as_str));
    let header = Header::new(String::new(), None, BackEnd::Observe, kinds);
    let mut sink = Recorded::start(options.output.as_ref(), &header, &rebuilder.definitions(), FLUSH, None)?;
    let mut again = bytes.open().map_err(refused)?;
    again.each(|event| rebuilder.event(event, &mut sink));
    let stats = sink.finish(rebuilder.end())?;
    let mut damages: Vec<String> = match &bytes {
        Bytes::Folder(folder) => folder.broken.clone(),
        Bytes::One(_) => Vec::new(),
    };
    let damaged = again.damages().count() + damages.len() as u64;
    damages.extend(again.damages().first().iter().map(|damage| match damage.place {
        Place::Line(line) => format!("line {line}: {}", damage.why),
        Place::Byte(byte) => format!("byte {byte}: {}", damage.why),
    }));
    damages.truncate(TOLD_MAX);
    let trace = Trace {
        form: match recording.form() {
            Form::Text => "text".to_owned(),
            Form::Dat(version) => format!("trace.dat version {version}"),
            Form::Pages => "raw pages".to_owned(),
            Form::Perfetto => "Perfetto".to_owned(),
        },
        clock,
        begins_ns: first.map_or(0, Time::as_ns),
        events: counts.iter().sum(),
        names,
        lost: recording.losses().iter().map(|loss| Lost { cpu: loss.cpu, events: loss.events }).collect(),
        damaged,
        damages,
        path: path.to_owned(),
        passed_over: recording.passed_over().to_vec(),
        untold: rebuilder.untold(),
        gaps: rebuilder.gaps(),
        unclear_yields: rebuilder.unclear_yields(),
    };
    Ok((stats, About::Trace(trace)))
}

fn bytes(path: &str) -> Result<Bytes, Failure> {
    if path != "-" && Path::new(path).is_dir() {
        return folder(path).map(Bytes::Folder);
    }
    let bytes = input::bytes(path)?;
    if bytes.starts_with(&takt_log::MAGIC) {
        return Err(Failure::input(format_args!(
            "{} is a log already; \"takt stats\", \"chart\", \"report\" and \"diff\" read it",
            input::shown(path)
        )));
    }
    match unpacked(&bytes) {
        Ok(std::borrow::Cow::Borrowed(_)) => Ok(Bytes::One(bytes)),
        Ok(std::borrow::Cow::Owned(unpacked)) => Ok(Bytes::One(unpacked)),
        Err(error) => Err(Failure::input(format_args!("{}: {error}", input::shown(path)))),
    }
}

/// Raw pages (`cpu0`, `cpu1`, ... or `per_cpu/cpu0/trace_pipe_raw`), format files and `header_page`, wherever below the folder.
fn folder(path: &str) -> Result<Folder, Failure> {
    let mut found = Folder::default();
    let mut folders = vec![(Path::new(path).to_owned(), 0)];
    let mut files = 0;
    while let Some((folder, depth)) = folders.pop() {
        let trouble = |error| Failure::trouble(format_args!("cannot read {}: {error}", folder.display()));
        for entry in fs::read_dir(&folder).map_err(trouble)? {
            let entry = entry.map_err(trouble)?.path();
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if entry.is_dir() {
                if depth < DEPTH_MAX {
                    folders.push((entry, depth + 1));
                }
                continue;
            }
            files += 1;
            if files > FILES_MAX {
                return Err(Failure::trouble(format_args!(
                    "{} holds more than {FILES_MAX} files; name the folder of one recording",
                    input::shown(path)
                )));
            }
            let above = entry.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
            let cpu = |name: &str| {
                name.strip_prefix("cpu").and_then(|number| number.parse().ok().filter(|cpu| *cpu < CPUS_MAX))
            };
            let text = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let shown = entry.display();
            let trouble = |error| Failure::trouble(format_args!("cannot read {shown}: {error}"));
            if let Some(number) = cpu(&name).or_else(|| cpu(&above).filter(|_| name == "trace_pipe_raw")) {
                let bytes = fs::read(&entry).map_err(trouble)?;
                let bytes = unpacked(&bytes).map_err(|error| Failure::input(format_args!("{shown}: {error}")))?;
                found.cpus.insert(number, bytes.into_owned());
            } else if name == "format" {
                match Format::parse(&text(&entry).map_err(trouble)?) {
                    Ok(format) => found.formats.push(format),
                    Err(error) => found.broken.push(format!("{shown}: {error}")),
                }
            } else if name == "header_page" {
                let layout = PageLayout::parse(&text(&entry).map_err(trouble)?);
                found.layout = Some(layout.map_err(|error| Failure::input(format_args!("{shown}: {error}")))?);
            }
        }
    }
    if found.cpus.is_empty() || found.formats.is_empty() {
        return Err(Failure::input(format_args!(
            "{} is no recording: it should hold raw pages of each CPU (files cpu0, cpu1, ... or per_cpu/cpu0/trace_pipe_raw) and the kernel's format files (events/*/*/format); it has {} and {}",
            input::shown(path),
            found.cpus.len(),
            found.formats.len()
        )));
    }
    Ok(found)
}
