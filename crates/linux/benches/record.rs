//! How many events a second are recorded without loss, and what recording costs, beside `perf record`, `perf sched record` and
//! `trace-cmd record` in the same run.
//!
//! `cargo bench -p takt-linux --bench record -- [--seconds 5] [--buffer MIB]`

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use takt_linux::Epoch;
use takt_linux::sched::{affinity, set_affinity};
use takt_linux::tracing::{CpuCount, Event, Options, Recorder, RecorderError, cost, guardian, reading};
use takt_model::{Bytes, Span};

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
    println!("{:<34} {:>12} {:>9} {:>12} {:>14}", "load", "events/s", "lost", "MB/s", "reader ns/ev");
    let calls = vec![Event::new("raw_syscalls", "sys_enter"), Event::new("raw_syscalls", "sys_exit")];
    for (name, load, events) in [
        ("system calls, all recorded", Load::Calls, calls),
        ("handovers, takt's usual events", Load::Handovers, Event::usual()),
    ] {
        let options = Options { events, buffer, ..Options::default() };
        saturate(name, load, &options, seconds)?;
    }
    costs()
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
        ("takt's usual events", Event::usual()),
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

#[derive(Clone, Copy)]
enum Load {
    /// System calls that do nothing.
    Calls,
    /// Two threads on a CPU that wake each other.
    Handovers,
}

fn saturate(name: &str, load: Load, options: &Options, seconds: u64) -> Result<(), RecorderError> {
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let mut recorder = Recorder::prepare(options)?;
    let buffer = recorder.buffer();
    let (counts, took, cpu, bytes) = std::thread::scope(|scope| {
        for cpu in affinity() {
            start(scope, load, cpu, &stop, &rounds);
        }
        let promoted = reading::promote();
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
        "{name:<34} {:>12.0} {lost:>9} {:>12.1} {:>14.1}  (buffer {} MiB a CPU, {} rounds)",
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
        Load::Handovers => {
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
        }
    }
}
