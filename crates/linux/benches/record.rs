//! How many events a second are recorded without loss, and what recording costs, beside `perf record`, `perf sched record` and
//! `trace-cmd record` in the same run.
//!
//! `cargo bench -p takt-linux --bench record -- [--seconds 5] [--buffer MIB]`

use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use takt_linux::Epoch;
use takt_linux::clock::pause;
use takt_linux::sched::{affinity, set_affinity};
use takt_linux::tracing::{CpuCount, Event, Options, Recorder, RecorderError, cost, guardian, handover_ns, reading};
use takt_model::{Bytes, Span};
use takt_trace::Abi;

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
    for (name, load, events, promoted) in [
        ("system calls, all of them; FIFO 1", Load::Calls, calls, true),
        ("handovers, usual events; FIFO 1", Load::Handovers, Event::usual(&Abi::NATIVE.calls()), true),
        ("handovers beside busy threads, usual events; FIFO 1", Load::Busy, Event::usual(&Abi::NATIVE.calls()), true),
        ("handovers beside busy threads, usual events; OTHER", Load::Busy, Event::usual(&Abi::NATIVE.calls()), false),
    ] {
        let options = Options { events, buffer, ..Options::default() };
        saturate(name, load, &options, seconds, promoted)?;
    }
    costs()?;
    peers()
}

/// What parts of the usual events cost a handover.
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

fn saturate(name: &str, load: Load, options: &Options, seconds: u64, promoted: bool) -> Result<(), RecorderError> {
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let mut recorder = Recorder::prepare(options)?;
    let buffer = recorder.buffer();
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
            while epoch.now().as_ns() < seconds * 1_000_000_000 {
                recorder.sweep(Span::from_ms(100), &mut |_, pages| {
                    bytes += pages.len();
                    sum = pages.iter().step_by(64).fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
                })?;
            }
            std::hint::black_box(sum);
            recorder.stop()?;
            let took = epoch.now().as_ns();
            let cpu = recorder.reader_cpu();
            let counts = recorder.finish(&mut |_, pages| bytes += pages.len())?;
            Ok::<_, RecorderError>((counts, took, cpu, bytes))
        })();
        stop.store(true, Ordering::Relaxed);
        drop(promoted);
        result
    })?;
    let read: u64 = counts.iter().map(|cpu| cpu.read).sum();
    let lost: u64 = counts.iter().map(CpuCount::lost).sum();
    let seconds = took as f64 / 1e9;
    println!(
        "{name:<52} {:>10.0} {lost:>8} {:>8.1} {:>13.1}  (buffer {} MiB a CPU, {} rounds)",
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

/// What recording the scheduler costs a handover, beside others' recorders of the same.
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
                beside(Command::new(program).args(arguments).arg(&file).args(more))
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
