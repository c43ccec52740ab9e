//! A trace that was recorded before.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use takt_log::stats::Stats;
use takt_log::{BackEnd, Header, Kind};
use takt_model::Time;
use takt_model::file::one_line;
use takt_trace::jobs::{Options, Rebuilder, kinds};
use takt_trace::{Abi, AbiGuess, Form, OpenError, Place, Recording, TEXT_HEAD, embedded, unpacked};

use super::folder::Folder;
use super::rebuild::{FLUSH, rebuild};
use crate::args;
use crate::failure::Failure;
use crate::input;
use crate::recorded::Recorded;

/// The most places of damage that are described.
const DAMAGES_MAX: usize = 10;

#[derive(Serialize)]
pub(super) struct Trace {
    form: String,
    /// Its clock; null where it does not say.
    clock: Option<String>,
    /// Its first event on that clock.
    begins_ns: u64,
    events: u64,
    names: BTreeMap<String, u64>,
    /// The ABI used for system call numbers; null if the trace has no known ones.
    abi: Option<&'static str>,
    /// Losses by the trace's own counters.
    lost: Vec<LostEvents>,
    /// Recordings in the same folder that are not read.
    left_out: Vec<String>,
    /// Places that cannot be read.
    damaged: u64,
    damages: Vec<String>,
    #[serde(skip)]
    path: String,
    #[serde(skip)]
    skipped_instances: Vec<String>,
    #[serde(skip)]
    threads_left_out: u64,
    /// Switches within jobs that are not in the trace.
    pub(super) gaps: u64,
    /// SCHED_DEADLINE threads that yielded or used up their budgets; the trace does not say which.
    unclear_yields: usize,
    /// The name of the recording that is read, if a folder holds several.
    #[serde(skip)]
    chosen: String,
    /// The warning that the ABI is a guess.
    #[serde(skip)]
    guess: Option<String>,
    /// Whether the trace has no switches, and so interrupts only.
    #[serde(skip)]
    pub(super) interrupts_only: bool,
}

#[derive(Serialize)]
struct LostEvents {
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
        for LostEvents { cpu, events } in &self.lost {
            let of = cpu.map_or(String::new(), |cpu| format!(" of CPU {cpu}"));
            all.push(format!(
                "{path}: {events} events{of} were lost while it was recorded: overwritten, or \
                 without room in the kernel's buffer"
            ));
        }
        let more = self.damaged.saturating_sub(self.damages.len() as u64);
        if more > 0 {
            all.push(format!("{path}: {more} more places cannot be read"));
        }
        if !self.skipped_instances.is_empty() {
            all.push(format!(
                "{path}: holds several trace instances; the first with events is read, not {}",
                self.skipped_instances.join(", ")
            ));
        }
        if self.unclear_yields > 0 {
            all.push(format!(
                "{path}: {} SCHED_DEADLINE threads left their CPUs ready: they yielded, or used up their budgets. \
                 The trace has no system calls that would tell which. takt assumes a used-up budget: the job goes \
                 on. Record raw_syscalls, too",
                self.unclear_yields
            ));
        }
        if !self.left_out.is_empty() {
            const NAMED_MAX: usize = 10;
            let names = self.left_out.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = self.left_out.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            all.push(format!("{path}: holds several recordings; that of {} is read, not {names}{more}", self.chosen));
        }
        all.extend(self.guess.iter().map(|guess| format!("{path}: {guess}")));
        if self.threads_left_out > 0 {
            all.push(format!(
                "{path}: {} threads have no jobs in the log: more than 32768 threads lived at a time",
                self.threads_left_out
            ));
        }
        all
    }
}

enum Bytes {
    One(Vec<u8>),
    Folder(Folder),
}

impl Bytes {
    fn open(&self) -> Result<Recording<'_>, OpenError> {
        match self {
            Bytes::One(bytes) => Recording::open(bytes),
            Bytes::Folder(folder) => Ok(folder.open()),
        }
    }
}

#[derive(Default)]
struct FirstPass {
    /// The number of events by the id of their name.
    counts: Vec<u64>,
    cpus: u32,
    first: Option<Time>,
    guess: AbiGuess,
}

impl FirstPass {
    fn of(recording: &mut Recording<'_>, by_calls: bool) -> FirstPass {
        let mut seen = FirstPass::default();
        recording.each(|event| {
            let at = usize::from(event.name);
            if seen.counts.len() <= at {
                seen.counts.resize(at + 1, 0);
            }
            seen.counts[at] += 1;
            seen.cpus = seen.cpus.max(event.cpu.saturating_add(1));
            seen.first.get_or_insert(event.time);
            if by_calls {
                seen.guess.event(event);
            }
        });
        seen
    }

    fn names(&self, recording: &Recording<'_>) -> BTreeMap<String, u64> {
        let named = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        named.map(|(at, count)| (recording.names().name(at as u16).to_owned(), *count)).collect()
    }
}

/// Counts the lines behind a text's heading, and names the first. Comments and the end of an HTML page do not count.
fn lines_behind_heading(bytes: &[u8]) -> Option<String> {
    const SHOWN: usize = 100;
    let text = String::from_utf8_lossy(bytes.get(..TEXT_HEAD).unwrap_or(bytes));
    let lines = text.lines().map(str::trim).enumerate().skip_while(|(_, line)| !line.contains("# tracer:"));
    let is_page = |line: &str| line.starts_with('<') && line.ends_with('>');
    let mut lines = lines.skip(1).filter(|(_, line)| !line.is_empty() && !line.starts_with('#') && !is_page(line));
    let (at, first) = lines.next()?;
    let shown: String = first.chars().take(SHOWN).collect();
    let more = if shown.len() < first.len() { "..." } else { "" };
    let (count, shown) = (lines.count() + 1, one_line(&shown));
    Some(format!(
        ": none of the {count} lines behind its heading has a known form; line {} is \"{shown}{more}\"",
        at + 1
    ))
}

/// Why a trace lacks the events that takt needs; `None`: it has them. `text` is the trace if it is a text. With
/// `interrupts` a trace of interrupts alone suffices.
fn reason_unusable(
    recording: &Recording<'_>,
    text: Option<&[u8]>,
    names: &BTreeMap<String, u64>,
    interrupts: bool,
) -> Option<String> {
    const RECORD: &str = "record sched/sched_switch and sched/sched_waking";
    let events: u64 = names.iter().filter(|(name, _)| *name != "(lost)").map(|(_, count)| count).sum();
    let damage = recording.damages().first().first();
    let damage = damage.map_or(String::new(), |damage| {
        format!(" ({} places cannot be read, the first: {damage})", recording.damages().count())
    });
    let tracer = match recording.tracer() {
        "" | "nop" => String::new(),
        tracer => {
            format!("; the trace is of the tracer {tracer}, which records something else: {RECORD} with the tracer nop")
        }
    };
    if events == 0 {
        let why = match recording.form() {
            _ if !tracer.is_empty() => tracer,
            Form::Text => text.and_then(lines_behind_heading).unwrap_or(": its heading is all there is".to_owned()),
            Form::Dat(_) | Form::Pages => ": the buffers in it are empty".to_owned(),
            Form::Perfetto => String::new(),
        };
        return Some(format!("there is no event in it{why}{damage}"));
    }
    let has_interrupts = kinds(names.keys().map(String::as_str)).contains(Kind::IrqEnter);
    if names.contains_key("sched_switch") || (interrupts && has_interrupts) {
        return None;
    }
    let kinds = names.keys().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    let mut remedy = if tracer.is_empty() { format!("; {RECORD}") } else { tracer };
    if has_interrupts {
        remedy += "; --irq '*' or -o LOG reads the interrupts in it alone";
    }
    Some(format!(
        "there are {events} events in it ({kinds}), but no sched_switch, so takt cannot tell which thread \
         ran{remedy}{damage}"
    ))
}

/// Chooses the ABI of the system calls. Returns a warning if the choice is uncertain.
fn choose_abi(recording: &Recording<'_>, guess: &AbiGuess, rebuild: &mut Options) -> Option<String> {
    let machine = recording.machine();
    if !machine.is_empty() && guess.all() > 0 {
        rebuild.suspensions = true;
        return Some(format!(
            "takt does not know the system calls of {machine}; every sleep of a thread ends a job (--abi names \
             a machine with the same numbers)"
        ));
    }
    let (best, all) = (guess.best(), guess.all());
    let names = best.iter().map(|abi| abi.name()).collect::<Vec<_>>().join(", ");
    let chosen = *best.first()?;
    let fits = guess.fits(chosen);
    rebuild.abi = chosen;
    if chosen != Abi::NATIVE {
        return Some(format!(
            "the trace does not name its machine; takt reads its system calls as those of {names}, since {fits} of \
             {all} in which a thread slept fit; --abi names another"
        ));
    }
    abi_warning(guess, chosen)
}

/// The warning if no call in which a thread slept is a waiting call of this ABI.
fn abi_warning(guess: &AbiGuess, abi: Abi) -> Option<String> {
    let all = guess.all();
    (all > 0 && guess.fits(abi) == 0).then(|| {
        format!(
            "none of {all} system calls in which a thread slept is a waiting call of {}: the ends of \
             jobs are unknown; give the machine of the trace with --abi, or use --suspensions",
            abi.name()
        )
    })
}

pub(super) fn read(path: &str, options: &args::Observe) -> Result<(Stats, Trace), Failure> {
    let bytes = bytes(path)?;
    let refused = |error: OpenError| Failure::input(format_args!("{}: {error}", input::shown(path)));
    // First pass: a log's head must list its possible kinds of event.
    let mut recording = bytes.open().map_err(refused)?;
    let guesses_abi = options.abi.is_none() && recording.abi().is_none() && !options.suspensions;
    let seen = FirstPass::of(&mut recording, !options.suspensions);
    let names = seen.names(&recording);
    let clock = Some(recording.clock().to_owned()).filter(|clock| !clock.is_empty());
    let text = match &bytes {
        Bytes::One(bytes) if recording.form() == Form::Text => Some(bytes.as_slice()),
        _ => None,
    };
    let for_interrupts = !options.irq.is_empty() || options.output.is_some();
    if let Some(why) = reason_unusable(&recording, text, &names, for_interrupts) {
        return Err(Failure::input(format_args!("{}: {why}", input::shown(path))));
    }
    if recording.is_unitless() {
        let of = clock
            .map_or("its stamps have no unit".to_owned(), |clock| format!("its clock {clock} does not count time"));
        return Err(Failure::input(format_args!(
            "{}: {of}, so takt cannot compute durations and periods; record with the clock mono (trace-cmd record \
             -C mono, or write mono to trace_clock)",
            input::shown(path)
        )));
    }
    let mut rebuild = rebuild(options);
    rebuild.monotonic = options.monotonic || recording.is_monotonic();
    rebuild.cpus = seen.cpus.clamp(1, takt_model::CpuSet::CPUS_MAX);
    let guess = match options.abi.map(Into::into).or_else(|| recording.abi()) {
        Some(abi) => {
            rebuild.abi = abi;
            abi_warning(&seen.guess, abi)
        }
        None if guesses_abi => choose_abi(&recording, &seen.guess, &mut rebuild),
        None => None,
    };
    let has_calls = names.contains_key("sys_enter") && !rebuild.suspensions;
    let abi = has_calls.then_some(rebuild.abi.name());
    let mut rebuilder = Rebuilder::new(rebuild);
    let kinds = kinds(names.keys().map(String::as_str));
    let header = Header::new(String::new(), None, BackEnd::Observe, kinds);
    let mut sink = Recorded::start(options.output.as_ref(), &header, &rebuilder.definitions(), FLUSH, None)?;
    let mut again = bytes.open().map_err(refused)?;
    again.each(|event| rebuilder.event(event, &mut sink));
    let stats = sink.finish(rebuilder.end())?;
    let (mut damages, left_out, chosen) = match &bytes {
        Bytes::Folder(folder) => (folder.broken.clone(), folder.left_out.clone(), folder.chosen.clone()),
        Bytes::One(_) => (Vec::new(), Vec::new(), String::new()),
    };
    let damaged = again.damages().count() + damages.len() as u64;
    damages.extend(again.damages().first().iter().map(|damage| match damage.place {
        Place::Line(line) => format!("line {line}: {}", damage.why),
        Place::Byte(byte) => format!("byte {byte}: {}", damage.why),
    }));
    damages.truncate(DAMAGES_MAX);
    let trace = Trace {
        form: match recording.form() {
            Form::Text => "text".to_owned(),
            Form::Dat(version) => format!("trace.dat version {version}"),
            Form::Pages => "raw pages".to_owned(),
            Form::Perfetto => "Perfetto".to_owned(),
        },
        interrupts_only: !names.contains_key("sched_switch"),
        clock,
        begins_ns: seen.first.map_or(0, Time::as_ns),
        events: seen.counts.iter().sum(),
        names,
        abi,
        lost: recording.losses().iter().map(|loss| LostEvents { cpu: loss.cpu, events: loss.events }).collect(),
        left_out,
        damaged,
        damages,
        path: path.to_owned(),
        chosen,
        guess,
        skipped_instances: recording.skipped_instances().to_vec(),
        threads_left_out: rebuilder.threads_left_out(),
        gaps: rebuilder.gaps(),
        unclear_yields: rebuilder.unclear_yields(),
    };
    Ok((stats, trace))
}

fn bytes(path: &str) -> Result<Bytes, Failure> {
    if path != "-" && Path::new(path).is_dir() {
        return Folder::read(path).map(Bytes::Folder);
    }
    let refused = |error: OpenError| match error {
        OpenError::GzipLong => Failure::trouble(format_args!("{}: {error}", input::shown(path))),
        error => Failure::input(format_args!("{}: {error}", input::shown(path))),
    };
    let bytes = input::trace(path)?;
    let unpacked = match unpacked(&bytes).map_err(refused)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(unpacked) => Some(unpacked),
    };
    // The packed bytes are dropped here.
    let bytes = unpacked.unwrap_or(bytes);
    let text = embedded(&bytes).map_err(refused)?;
    Ok(Bytes::One(text.unwrap_or(bytes)))
}
