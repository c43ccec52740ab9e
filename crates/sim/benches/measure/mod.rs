//! Shared by the benchmarks: rates on one thread, and the peak of memory.

#![allow(dead_code, reason = "each benchmark uses a part")]

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use takt_log::{Definitions, stats::Collector};
use takt_model::{Builtin, Span, System, Task};
use takt_sim::{SimOptions, simulate};

/// Periods of the main row in milliseconds.
pub(crate) const PERIODS_MS: [u64; 10] = [10, 13, 17, 22, 28, 36, 47, 60, 78, 100];

/// The value behind an option.
pub(crate) fn option(name: &str) -> Option<String> {
    let args: Vec<String> = std::env::args().collect();
    args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned()
}

/// Tasks with periods spread over 10 to 100 ms and the same utilisation each, in thousandths.
pub(crate) fn system(tasks: usize, cpus: u32, utilisation_thousandths: u64) -> System {
    let tasks = (0..tasks)
        .map(|i| {
            let period = Span::from_us(PERIODS_MS[i % 10] * 1000 + (i as u64 / 10) * 7);
            let wcet = Span::from_ns(period.as_ns() / 1000 * utilisation_thousandths);
            Task::periodic(&format!("t{i}"), period, wcet)
        })
        .collect();
    System::local(cpus, Builtin::Edf, tasks)
}

/// Simulates about `jobs` jobs three times; the best rate, in jobs per CPU-second of this thread.
pub(crate) fn rate<E: std::fmt::Debug>(
    system: &System,
    jobs: f64,
    mut run: impl FnMut(&SimOptions) -> Result<u64, E>,
) -> f64 {
    let per_second: f64 = system.tasks.iter().map(|task| 1e9 / task.period.as_ns() as f64).sum();
    let duration = Span::from_ns((jobs / per_second * 1e9) as u64);
    let repeats = if jobs > 2e7 { 1 } else { 3 };
    let once = |run: &mut dyn FnMut(&SimOptions) -> Result<u64, E>| {
        let (wall, cpu) = (Instant::now(), cpu_seconds());
        let released = run(&SimOptions { duration, ..SimOptions::default() }).expect("the system can be simulated");
        let wall = wall.elapsed().as_secs_f64();
        let seconds = cpu.zip(cpu_seconds()).map_or(wall, |(before, after)| after - before);
        released as f64 / seconds
    };
    (0..repeats).map(|_| once(&mut run)).fold(0.0, f64::max)
}

/// The rate from simulation to statistics.
pub(crate) fn statistics(system: &System, jobs: f64) -> f64 {
    let definitions = Definitions::of(system);
    rate(system, jobs, |options| {
        let mut collector = Collector::new(&definitions, takt_sim::KINDS);
        let done = simulate(system, options, &mut collector)?;
        let stats = collector.finish(done.end);
        assert_eq!(stats.tasks.iter().map(|task| task.released).sum::<u64>(), done.released);
        Ok::<_, takt_sim::SimError>(done.released)
    })
}

/// CPU time of this thread, where the kernel tells.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// The highest resident size of this process.
pub(crate) fn peak_memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1000.0
}

/// A task set of [`simso_peer.py`] in SimSo, beside: jobs per CPU-second.
pub(crate) fn simso(python: &str, set: &str) -> Result<f64, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/simso_peer.py");
    let output = Command::new(python).arg(script).arg(set).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| format!("it printed {text:?} instead of a number"))
}
