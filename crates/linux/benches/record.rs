//! How many events a second are recorded without loss, and what recording costs, beside
//! `perf record`, `perf sched record` and `trace-cmd record` in the same run.
//!
//! `cargo bench -p takt-linux --bench record -- [--seconds 5] [--buffer MIB]`

use std::fs::File;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use takt_linux::Epoch;
use takt_linux::clock::pause;
use takt_linux::guardian::guardian;
use takt_linux::sched::{affinity, set_affinity};
use takt_linux::tracing::{CpuCount, Event, Options, Recorder, RecorderError, cost, handover_ns, reading};
use takt_log::stats::Collector;
use takt_log::{BackEnd, Definition, Header, KindSet, Sink, Writer};
use takt_model::{Bytes, Span, Time};
use takt_trace::jobs::{self, Rebuilder};
use takt_trace::{Abi, Feed};

fn main() -> ExitCode {
    if guardian(std::env::args_os()) {
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok().filter(|value| (1..=3600).contains(value))
    };
    let seconds = value("--seconds").unwrap_or(5);
    let buffer = value("--buffer").map(|mib| Bytes::new(mib << 20));
    match all(seconds, buffer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("record: skipped: {error}");
            ExitCode::SUCCESS
        }
    }
}

fn all(seconds: u64, buffer: Option<Bytes>) -> Result<(), RecorderError> {
    let cpus = affinity();
    println!("{} CPUs, each saturated by threads of its own; {seconds} s a row", cpus.len());
    println!(
        "{:<52} {:>10} {:>8} {:>8} {:>13}",
        "load, and the reader's class", "events/s", "lost", "MB/s", "reader ns/ev"
    );
    let calls = vec![Event::new("raw_syscalls", "sys_enter"), Event::new("raw_syscalls", "sys_exit")];
    let usual = || Event::usual(&Abi::NATIVE.calls());
    for (name, load, events, promoted, log) in [
        ("system calls, all of them; FIFO 1", Load::Calls, calls, true, false),
        ("handovers, usual events; FIFO 1", Load::Handovers, usual(), true, false),
        ("the same, rebuilt into a log and its statistics", Load::Handovers, usual(), true, true),
        ("handovers beside busy threads, usual events; FIFO 1", Load::Busy, usual(), true, false),
        ("handovers beside busy threads, usual events; OTHER", Load::Busy, usual(), false, false),
    ] {
        let options = Options { events, buffer, ..Options::default() };
        saturate(name, load, &options, seconds, promoted, log)?;
    }
    costs()?;
    peers()
}

/// The cost of parts of the usual events for a handover.
fn costs() -> Result<(), RecorderError> {
    println!("\nCPU time of a handover (two switches, two wake-ups, four system calls) while it is recorded");
    println!(
        "{:<34} {:>10} {:>10} {:>10} {:>14} {:>14}",
        "events", "ns", "added ns", "events", "ns an event", "reader ns/ev"
    );
    let calls = || [Event::new("raw_syscalls", "sys_enter"), Event::new("raw_syscalls", "sys_exit")];
    for (name, events) in [
        ("scheduling", Event::scheduling()),
        ("scheduling, interrupts", [Event::scheduling(), Event::interrupts()].concat()),
        ("takt's usual events", Event::usual(&Abi::NATIVE.calls())),
        ("the same, all system calls", [Event::scheduling(), Event::interrupts(), calls().to_vec()].concat()),
    ] {
        let mut costs = Vec::new();
        for _ in 0..5 {
            costs.push(cost(&Options { events: events.clone(), ..Options::default() })?);
        }
        costs.sort_by(|a, b| a.traced_ns.total_cmp(&b.traced_ns));
        let cost = costs[2];
        println!(
            "{name:<34} {:>10.0} {:>10.0} {:>10.2} {:>14.0} {:>14.1}",
            cost.handover_ns,
            cost.traced_ns * cost.events_per_handover,
            cost.events_per_handover,
            cost.traced_ns,
            cost.reader_ns
        );
    }
    Ok(())
}

/// Threads that only compute, on each CPU.
const BUSY: usize = 4;

#[derive(Clone, Copy)]
enum Load {
    /// System calls that do nothing.
    Calls,
    /// Two threads on a CPU that wake each other.
    Handovers,
    /// The same, and beside them threads that only compute.
    Busy,
}

/// The work of `takt observe` on pages as they arrive.
struct Observed {
    feed: Feed,
    rebuilder: Rebuilder,
    told: LogAndStats,
}

/// A log in a file that nobody sees, and its statistics.
struct LogAndStats(Writer<File>, Collector);

impl Sink for LogAndStats {
    fn event(&mut self, stream: u32, now: Time, event: &takt_log::Event) {
        self.0.event(stream, now, event);
        self.1.event(stream, now, event);
    }
    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.0.define(stream, now, definition);
        self.1.define(stream, now, definition);
    }
}

impl Observed {
    fn new(recorder: &Recorder) -> Observed {
        let about = recorder.descriptions();
        let feed = Feed::described(&about.header_page, about.events.iter().map(|event| event.text.as_str()));
        let rebuilder = Rebuilder::new(jobs::Options { monotonic: true, ..jobs::Options::default() });
        let header = Header::new(String::new(), None, BackEnd::Observe, KindSet::ALL);
        let definitions = rebuilder.definitions();
        let path = std::env::temp_dir().join(format!("takt-bench-{}.takt", std::process::id()));
        let file = File::create(&path).expect("a temporary file");
        let _ = std::fs::remove_file(&path);
        let writer = Writer::new(file, &header, &definitions).expect("room for a log");
        let told = LogAndStats(writer, Collector::for_log(&header, &definitions));
        Observed { feed: feed.expect("this kernel's descriptions"), rebuilder, told }
    }

    fn until(&mut self, until: Option<Time>) {
        self.feed.until(until, |event| self.rebuilder.event(event, &mut self.told));
    }

    /// How many jobs completed.
    fn finish(mut self) -> u64 {
        self.feed.finish(|event| self.rebuilder.event(event, &mut self.told));
        let end = self.rebuilder.end();
        self.told.0.finish(end).expect("room for a log");
        self.told.1.finish(end).tasks.iter().map(|task| task.completed).sum()
    }
}

fn saturate(
    name: &str,
    load: Load,
    options: &Options,
    seconds: u64,
    promoted: bool,
    log: bool,
) -> Result<(), RecorderError> {
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let mut recorder = Recorder::prepare(options)?;
    let buffer = recorder.buffer();
    let mut observed = log.then(|| Observed::new(&recorder));
    let (counts, took, cpu, bytes) = std::thread::scope(|scope| {
        for cpu in affinity() {
            start(scope, load, cpu, &stop, &rounds);
        }
        let promoted = promoted.then(reading::promote);
        let result = (|| {
            recorder.resume()?;
            let epoch = Epoch::now_is_zero();
            let mut bytes = 0;
            let mut sum = 0u64;
            let cpu_before = takt_linux::clock::thread_cpu();
            while epoch.now().as_ns() < seconds * 1_000_000_000 {
                let sweep = recorder.sweep(Span::from_ms(100), &mut |cpu, pages| {
                    bytes += pages.len();
                    match &mut observed {
                        Some(observed) => observed.feed.pages(cpu, pages),
                        None => {
                            sum = pages.iter().step_by(64).fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
                        }
                    }
                })?;
                if let Some(observed) = &mut observed {
                    observed.until(sweep.until);
                }
            }
            std::hint::black_box(sum);
            recorder.stop()?;
            let took = epoch.now().as_ns();
            let all = takt_linux::clock::thread_cpu().saturating_sub(cpu_before);
            let cpu = if log { all } else { recorder.reader_cpu() };
            let counts = recorder.finish(&mut |cpu, pages| {
                bytes += pages.len();
                if let Some(observed) = &mut observed {
                    observed.feed.pages(cpu, pages);
                }
            })?;
            Ok::<_, RecorderError>((counts, took, cpu, bytes))
        })();
        stop.store(true, Ordering::Relaxed);
        drop(promoted);
        result
    })?;
    let read: u64 = counts.iter().map(|cpu| cpu.read).sum();
    let lost: u64 = counts.iter().map(CpuCount::lost).sum();
    let seconds = took as f64 / 1e9;
    let jobs = observed.map_or(String::new(), |observed| format!(", {} jobs", observed.finish()));
    println!(
        "{name:<52} {:>10.0} {lost:>8} {:>8.1} {:>13.1}  (buffer {} MiB a CPU, {} rounds{jobs})",
        read as f64 / seconds,
        bytes as f64 / 1e6 / seconds,
        cpu.as_ns() as f64 / read as f64,
        buffer.get() >> 20,
        rounds.load(Ordering::Relaxed),
    );
    Ok(())
}

fn start<'s>(scope: &'s std::thread::Scope<'s, '_>, load: Load, cpu: u32, stop: &'s AtomicBool, rounds: &'s AtomicU64) {
    match load {
        Load::Calls => {
            scope.spawn(move || {
                let _ = set_affinity(&[cpu]);
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..100 {
                        std::hint::black_box(std::os::unix::process::parent_id());
                    }
                    done += 100;
                }
                rounds.fetch_add(done, Ordering::Relaxed);
            });
        }
        Load::Handovers | Load::Busy => {
            use std::io::{Read as _, Write as _};
            let (mut one_in, mut one_out) = std::io::pipe().expect("a pipe");
            let (mut two_in, mut two_out) = std::io::pipe().expect("a pipe");
            scope.spawn(move || {
                let _ = set_affinity(&[cpu]);
                let (mut byte, mut done) = ([0], 0);
                while !stop.load(Ordering::Relaxed)
                    && one_out.write_all(&byte).is_ok()
                    && two_in.read_exact(&mut byte).is_ok()
                {
                    done += 1;
                }
                rounds.fetch_add(done, Ordering::Relaxed);
            });
            scope.spawn(move || {
                let _ = set_affinity(&[cpu]);
                let mut byte = [0];
                while one_in.read_exact(&mut byte).is_ok() && two_out.write_all(&byte).is_ok() {}
            });
            for _ in 0..if matches!(load, Load::Busy) { BUSY } else { 0 } {
                scope.spawn(move || {
                    let _ = set_affinity(&[cpu]);
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
        }
    }
}

/// The cost of recording the scheduler for a handover, compared with other recorders.
fn peers() -> Result<(), RecorderError> {
    println!(
        "\nCPU time of a handover while the scheduler's events are recorded (switches and wake-ups of all threads)"
    );
    println!("{:<34} {:>10} {:>10} {:>16}", "recorder", "ns", "added ns", "added / takt's");
    let events = vec![Event::new("sched", "sched_switch"), Event::new("sched", "sched_waking")];
    let folder = std::env::temp_dir().join(format!("takt-record-{}", std::process::id()));
    let _ = std::fs::create_dir(&folder);
    let file = folder.join("out");
    let two = ["-e", "sched:sched_switch", "-e", "sched:sched_waking"];
    let mut takts = f64::NAN;
    let perf: Vec<&str> = ["record", "-a", "-m", "4096", "-o"].into_iter().collect();
    for (name, program, arguments, more) in [
        ("takt", "", &[][..], &[][..]),
        ("perf record", "perf", &perf[..], &two[..]),
        ("perf sched record", "perf", &["sched", "record", "-o"][..], &[][..]),
        ("trace-cmd record", "trace-cmd", &["record", "-o"][..], &two[..]),
    ] {
        let mut added = Vec::new();
        let mut plain = Vec::new();
        for _ in 0..PAIRS {
            let before = handover_ns()?;
            let during = if program.is_empty() {
                let recorder = Recorder::start(&Options { events: events.clone(), ..Options::default() })?;
                let during = handover_ns()?;
                recorder.finish(&mut |_, _| {})?;
                Ok(during)
            } else {
                // trace-cmd mounts debugfs, and leaves it so: not in these mounts.
                beside(Command::new("unshare").args(["--mount", program]).args(arguments).arg(&file).args(more))
            };
            match during {
                Ok(during) => {
                    plain.push(before);
                    added.push(during - before);
                }
                Err(why) => {
                    println!("{name:<34} not available: {why}");
                    break;
                }
            }
        }
        if added.len() == PAIRS {
            let (plain, added) = (median(plain), median(added));
            if program.is_empty() {
                takts = added;
            }
            println!("{name:<34} {:>10.0} {added:>10.0} {:>16.2}", plain + added, added / takts);
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

const PAIRS: usize = 5;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A handover while another recorder runs, or why that does not.
fn beside(command: &mut Command) -> Result<f64, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    // None of them says when it has begun.
    pause(Span::from_ms(700));
    let during = handover_ns().map_err(|error| error.to_string());
    let runs = matches!(child.try_wait(), Ok(None));
    if runs {
        // A child that we started and have not waited for: the number is its own.
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    }
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        let _ = std::io::Read::read_to_string(&mut errors, &mut said);
    }
    let _ = child.wait();
    if runs { during } else { Err(said.trim().replace('\n', "; ").replace("  ", " ")) }
}
