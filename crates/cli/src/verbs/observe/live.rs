//! This kernel, while it runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use indicatif::ProgressBar;
use serde::Serialize;
use takt_linux::paused::PausedChild;
use takt_linux::process;
use takt_linux::sched::Class;
use takt_linux::thread::Tid;
use takt_linux::tracing::{self, CpuCount, Event, Recorder, RecorderError, Threads, threads_of};
use takt_log::stats::Stats;
use takt_log::{BackEnd, Header};
use takt_model::Span;
use takt_trace::jobs::{Filter, Rebuilder, ReservationParams, kinds};
use takt_trace::{Abi, Feed};

use super::raw::Raw;
use super::rebuild::{FLUSH, rebuild};
use crate::args;
use crate::failure::Failure;
use crate::input;
use crate::live::Live;
use crate::progress;
use crate::recorded::Recorded;

/// A sweep waits at most so long for events.
const SWEEP_WAIT_MAX: Span = Span::from_ms(100);
/// How long a command has to end once it was told to.
const COMMAND_END_MAX: Span = Span::from_s(2);
/// The parameters of new SCHED_DEADLINE threads are read once in this period.
const RESERVATION_POLL: Span = Span::from_s(1);
/// New threads are listed and attached at most so often before events are read. Threads that attached
/// threads start later are attached by the kernel.
const ATTACHMENTS_MAX: u32 = 8;

#[derive(Serialize)]
pub(in crate::verbs) struct Recording {
    events: u64,
    /// Events that the kernel lost, by CPU where there were any.
    lost: Vec<Loss>,
    /// Switches within jobs that the kernel did not tell, though it lost nothing.
    pub(super) gaps: u64,
    damaged: u64,
    missing: Vec<String>,
    /// The kernel's buffer of each CPU.
    buffer_bytes: u64,
    /// CPU time of reading, decoding, rebuilding and writing.
    cpu_ns: u64,
    /// The same for each event.
    cpu_per_event_ns: Option<f64>,
    /// Cost of an event for the recorded threads, measured right after; null if it could not be
    /// measured.
    cost_per_event_ns: Option<f64>,
    /// Whether the log came to `--limit`, which ended the recording.
    limit_reached: bool,
    interrupted: Option<String>,
    command_status: Option<i32>,
    #[serde(skip)]
    duration: Span,
    #[serde(skip)]
    threads_left_out: u64,
    /// What --raw lacks.
    #[serde(skip)]
    raw_cut: Option<String>,
}

#[derive(Serialize)]
struct Loss {
    cpu: u32,
    events: u64,
}

impl Recording {
    pub(super) fn sentence(&self) -> String {
        let seconds = self.duration.as_ns() as f64 / 1e9;
        let rate = self.events as f64 / seconds.max(1e-9);
        let share = self.cpu_ns as f64 / self.duration.as_ns().max(1) as f64 * 100.0;
        let each = self.cpu_per_event_ns.map_or(String::new(), |ns| format!(", {ns:.0} ns each"));
        let lost: u64 = self.lost.iter().map(|loss| loss.events).sum();
        let cost = self
            .cost_per_event_ns
            .map_or(String::new(), |ns| format!("; each cost the recorded threads about {:.0} ns", ns.max(0.0)));
        format!(
            "{} events in {seconds:.1} s ({rate:.0} a second), {lost} lost; reading them took {share:.1} % of a \
             CPU{each}{cost}\n",
            self.events
        )
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut all = self.defects();
        if let Some(signal) = &self.interrupted {
            all.push(format!("interrupted by {signal} after {}", self.duration));
        }
        if self.limit_reached {
            all.push(format!("the log reached --limit after {}, which ended the recording", self.duration));
        }
        if let Some(status) = self.command_status.filter(|status| *status != 0) {
            all.push(format!("the command ended with status {status}"));
        }
        all
    }

    /// Events missing from the recording.
    pub(in crate::verbs) fn defects(&self) -> Vec<String> {
        let mut all = Vec::new();
        for event in &self.missing {
            all.push(format!("this kernel does not have the event {event}; its information is missing"));
        }
        for loss in &self.lost {
            all.push(format!(
                "CPU {} lost {} events: record less (--pid, --irq) or into more memory (--buffer)",
                loss.cpu, loss.events
            ));
        }
        if self.damaged > 0 {
            all.push(format!("{} places in the kernel's pages could not be read", self.damaged));
        }
        all.extend(self.raw_cut.clone());
        if self.threads_left_out > 0 {
            let threads_left_out = self.threads_left_out;
            all.push(format!(
                "{threads_left_out} threads have no jobs in the log: more than 32768 threads lived at a time"
            ));
        }
        all
    }
}

/// The wanted kinds of event, and the kernel events that they need.
struct Selection {
    filter: Filter,
    threads: Threads,
    events: Vec<Event>,
}

fn selection(options: &args::Observe, mut filter: Filter, command: Option<&PausedChild>) -> Result<Selection, Failure> {
    // The filter holds processes until now, and from here on their threads.
    filter.pids.clear();
    let mut ids = members(options).collect::<Result<Vec<_>, Failure>>()?.concat();
    for tid in &options.tid {
        if !Path::new(&format!("/proc/{tid}")).exists() {
            return Err(Failure::input(format_args!(
                "there is no thread {tid}; \"ps -eL\" lists all threads (column LWP)"
            )));
        }
        ids.push(*tid);
    }
    ids.extend(command.map(PausedChild::id));
    let all = ids.is_empty();
    filter.pids.extend(&ids);
    let by_name = !options.comm.is_empty() || !options.irq.is_empty();
    let threads = if all || by_name { Threads::All } else { Threads::These { ids, children: true } };
    let only_interrupts = super::asks_for_interrupts(options);
    let mut events = if only_interrupts { Event::interrupts() } else { Event::usual(&Abi::NATIVE.calls()) };
    for event in events.iter_mut().filter(|event| event.system == "raw_syscalls") {
        // Without takt's own calls: each would cause the next one.
        let calls = event.filter.take().unwrap_or_default();
        event.filter = Some(format!("({calls}) && common_pid != {}", Tid::current().get()));
    }
    Ok(Selection { filter, threads, events })
}

fn members(options: &args::Observe) -> impl Iterator<Item = Result<Vec<u32>, Failure>> {
    let processes = options.pid.iter().map(|pid| match threads_of(*pid) {
        threads if threads.is_empty() => {
            Err(Failure::input(format_args!("there is no process {pid}; \"ps -e\" lists all processes")))
        }
        threads => Ok(threads),
    });
    processes.chain(options.cgroup.iter().map(|group| threads_of_group(group)))
}

/// The threads of those processes and control groups that still have some.
fn remaining_members(options: &args::Observe) -> Vec<u32> {
    members(options).flatten().flatten().collect()
}

/// Lists threads and attaches new ones until a list has none. A thread that started between the first
/// list and its maker's attachment is on a later list.
fn attach_new<E>(
    known: &mut BTreeSet<u32>,
    mut list: impl FnMut() -> Vec<u32>,
    mut attach: impl FnMut(&[u32]) -> Result<(), E>,
) -> Result<(), E> {
    for _ in 0..ATTACHMENTS_MAX {
        let new: Vec<u32> = list().into_iter().filter(|id| known.insert(*id)).collect();
        if new.is_empty() {
            break;
        }
        attach(&new)?;
    }
    Ok(())
}

/// Threads of a control group, given by its folder or its path in a hierarchy.
fn threads_of_group(group: &str) -> Result<Vec<u32>, Failure> {
    let below = group.trim_start_matches('/');
    let mut folders = vec![group.to_owned(), format!("/sys/fs/cgroup/{below}")];
    if let Ok(hierarchies) = fs::read_dir("/sys/fs/cgroup") {
        folders.extend(hierarchies.flatten().map(|entry| entry.path().join(below).to_string_lossy().into_owned()));
    }
    for folder in folders {
        for file in ["cgroup.threads", "tasks"] {
            if let Ok(text) = fs::read_to_string(format!("{folder}/{file}")) {
                let ids: Vec<u32> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
                if ids.is_empty() {
                    return Err(Failure::input(format_args!(
                        "the control group {folder} has no threads now; those of groups below it are not its own"
                    )));
                }
                return Ok(ids);
            }
        }
    }
    Err(Failure::input(format_args!(
        "there is no control group {group}: give its folder, such as /sys/fs/cgroup/system.slice/ssh.service"
    )))
}

/// Records until it is time to stop: `stop` says why.
pub(in crate::verbs) fn record(
    options: &args::Observe,
    live: Option<Live>,
    stop: &dyn Fn() -> Option<String>,
) -> Result<(Stats, Recording), Failure> {
    input::not_zero("--for", options.duration)?;
    let paused = spawn_paused(&options.command)?;
    // Ordinary work must delay neither the start nor the reading of buffers.
    let promoted = tracing::reading::promote();
    let mut rebuild = rebuild(options);
    let selection = selection(options, rebuild.filter, paused.as_ref())?;
    let only_these = matches!(selection.threads, Threads::These { .. });
    let mut listed = selection.filter.pids.clone();
    let recording = tracing::Options {
        events: selection.events,
        threads: selection.threads,
        buffer: options.buffer,
        ..tracing::Options::default()
    };
    let mut recorder = Recorder::prepare(&recording).map_err(|error| refused(&error))?;
    let mut raw = Raw::open(options, &recorder)?;
    let mut feed = feed(&recorder)?;
    rebuild.filter = selection.filter;
    rebuild.monotonic = true;
    rebuild.cpus = cpus();
    rebuild.reservations =
        tracing::threads().iter().filter_map(|thread| Some((thread.id, reservation_of(&thread.class)?))).collect();
    let mut rebuilder = Rebuilder::new(rebuild);
    let recorded = recorder.descriptions().events.iter().map(|event| event.name.as_str());
    let header = Header::new(String::new(), None, BackEnd::Observe, kinds(recorded));
    let target = options.output.as_ref();
    let mut sink = Recorded::start_limited(target, options.limit, &header, &rebuilder.definitions(), FLUSH, live)?;

    let started = tracing::now();
    let cpu_before = takt_linux::clock::thread_cpu();
    recorder.resume().map_err(|error| refused(&error))?;
    let attach = |new: &[u32]| if only_these { recorder.add_threads(new) } else { Ok(()) };
    attach_new(&mut listed, || remaining_members(options), attach).map_err(|error| refused(&error))?;
    rebuilder.add_pids(listed);
    let mut command = release(paused, &options.command)?;
    let end = options.duration.map(|duration| started.saturating_add(duration));
    let bar =
        options.duration.map_or_else(ProgressBar::hidden, |duration| progress::bar("recording", duration.as_ns()));
    let (mut polled, mut flushed) = (started, started);
    let mut status = None;
    let interrupted = loop {
        let now = tracing::now();
        bar.set_position(now.saturating_since(started).as_ns());
        if let Some(child) = &mut command {
            status = child.try_wait().ok().flatten();
        }
        let over = end.is_some_and(|end| now >= end);
        let interrupted = stop();
        if over || status.is_some() || interrupted.is_some() || sink.has_failed() || sink.full_at().is_some() {
            break interrupted;
        }
        let wait = end.map_or(SWEEP_WAIT_MAX, |end| SWEEP_WAIT_MAX.min(end.saturating_since(now)));
        let sweep = recorder.sweep(wait, &mut |cpu, pages| {
            raw.pages(cpu, pages);
            feed.pages(cpu, pages);
        });
        let sweep = sweep.map_err(|error| refused(&error))?;
        feed.until(sweep.until, |event| rebuilder.event(event, &mut sink));
        if now >= flushed.saturating_add(FLUSH) {
            flushed = now;
            sink.flush();
        }
        if now >= polled.saturating_add(RESERVATION_POLL) {
            polled = now;
            update_reservations(&mut rebuilder, &mut sink);
        }
    };
    bar.finish_and_clear();
    let duration = tracing::now().saturating_since(started);
    let (missing, buffer) = (recorder.missing().to_vec(), recorder.buffer());
    let counts = recorder.finish(&mut |cpu, pages| {
        raw.pages(cpu, pages);
        feed.pages(cpu, pages);
    });
    let counts = counts.map_err(|error| refused(&error))?;
    drop(promoted);
    feed.finish(|event| rebuilder.event(event, &mut sink));
    update_reservations(&mut rebuilder, &mut sink);
    let cpu = takt_linux::clock::thread_cpu().saturating_sub(cpu_before);
    if let Some(child) = command.as_mut().filter(|_| status.is_none()) {
        // It may have got the same signal as takt.
        process::end(child, COMMAND_END_MAX, &mut |_| {});
    }
    let raw_cut = raw.finish()?;
    // After an interruption somebody waits for the end.
    let cost = if interrupted.is_none() { tracing::cost(&recording).ok() } else { None };
    let limit_reached = sink.full_at().is_some();
    let stats = sink.finish(rebuilder.end())?;
    let events: u64 = counts.iter().map(|cpu| cpu.read).sum();
    let recording = Recording {
        events,
        lost: counts.iter().filter(|cpu| cpu.lost() > 0).map(loss).collect(),
        gaps: rebuilder.gaps(),
        damaged: feed.damages().count(),
        missing,
        buffer_bytes: buffer.get(),
        cpu_ns: cpu.as_ns(),
        cpu_per_event_ns: (events > 0).then(|| cpu.as_ns() as f64 / events as f64),
        cost_per_event_ns: cost.map(|cost| cost.traced_ns),
        limit_reached,
        interrupted,
        command_status: status.and_then(|status| status.code()),
        duration,
        threads_left_out: rebuilder.threads_left_out(),
        raw_cut,
    };
    Ok((stats, recording))
}

fn loss(cpu: &CpuCount) -> Loss {
    Loss { cpu: cpu.cpu, events: cpu.lost() }
}

fn refused(error: &RecorderError) -> Failure {
    match error {
        RecorderError::File { .. } | RecorderError::Read { .. } | RecorderError::Memory { .. } => {
            Failure::trouble(error)
        }
        _ => Failure::cannot(error),
    }
}

fn feed(recorder: &Recorder) -> Result<Feed, Failure> {
    let about = recorder.descriptions();
    let feed = Feed::described(&about.header_page, about.events.iter().map(|event| event.text.as_str()));
    let cannot = "takt cannot read this kernel's descriptions of its events";
    feed.map_err(|error| Failure::cannot(format_args!("{cannot}: {error}")))
}

fn cpus() -> u32 {
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|number| number.parse::<u32>().ok());
    last.map_or(1, |last| last.saturating_add(1)).min(takt_model::CpuSet::CPUS_MAX)
}

fn reservation_of(class: &Class) -> Option<ReservationParams> {
    let Class::Deadline(reservation) = class else { return None };
    Some(ReservationParams {
        period: Some(reservation.period),
        deadline: Some(reservation.deadline),
        runtime: Some(reservation.runtime),
    })
}

/// Reads the parameters of new SCHED_DEADLINE threads.
fn update_reservations(rebuilder: &mut Rebuilder, sink: &mut Recorded) {
    for pid in rebuilder.unknown_reservations() {
        let class = tracing::class_of(pid);
        rebuilder.set_reservation(pid, class.as_ref().and_then(reservation_of).unwrap_or_default(), sink);
    }
}

/// Starts the command, paused before its first instruction.
fn spawn_paused(command: &[String]) -> Result<Option<PausedChild>, Failure> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(arguments);
    PausedChild::spawn(command).map(Some).map_err(|error| not_started(program, &error))
}

fn release(paused: Option<PausedChild>, command: &[String]) -> Result<Option<Child>, Failure> {
    let program = command.first().map_or("", String::as_str);
    paused.map(PausedChild::release).transpose().map_err(|error| not_started(program, &error))
}

fn not_started(program: &str, error: &std::io::Error) -> Failure {
    Failure::input(format_args!("cannot start {program}: {error}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// The threads attached in each round, given these lists of the process's threads. The last
    /// list repeats for ever.
    fn attached(lists: &[&[u32]]) -> Vec<Vec<u32>> {
        let (mut known, mut attached) = (BTreeSet::from([1]), Vec::new());
        let mut lists = lists.iter();
        let mut last: &[u32] = &[];
        let list = || {
            last = lists.next().copied().unwrap_or(last);
            last.to_vec()
        };
        let attach = |new: &[u32]| {
            attached.push(new.to_vec());
            Ok::<(), ()>(())
        };
        attach_new(&mut known, list, attach).unwrap();
        attached
    }

    #[test]
    fn threads_that_start_while_others_are_attached_are_attached_too() {
        assert_eq!(attached(&[&[1]]), Vec::<Vec<u32>>::new());
        assert_eq!(attached(&[&[1, 2, 3], &[1, 3, 4], &[4]]), [vec![2, 3], vec![4]]);
        assert_eq!(attached(&[]), Vec::<Vec<u32>>::new(), "it has ended");
        let (mut known, mut next) = (BTreeSet::new(), 0);
        let endless = || {
            next += 1;
            vec![next]
        };
        attach_new::<()>(&mut known, endless, |_| Ok(())).unwrap();
        assert_eq!(known.len(), ATTACHMENTS_MAX as usize);
    }
    #[test]
    fn a_process_that_has_ended_hides_no_threads_of_others() {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let own = std::process::id();
        let arguments = ["takt", "observe", "--pid", &ended.id().to_string(), "--pid", &own.to_string()];
        let Ok(args::Takt { verb: args::Verb::Observe(options), .. }) = args::Takt::try_parse_from(arguments) else {
            panic!("good options");
        };
        assert!(members(&options).any(|threads| threads.is_err()));
        assert!(remaining_members(&options).contains(&own));
    }
}
