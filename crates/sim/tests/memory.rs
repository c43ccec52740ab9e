//! Memory does not grow with the number of jobs and messages. One test, alone in its binary, for the kernel tells one
//! peak per process.
#![cfg(target_os = "linux")]

use takt_log::{Definitions, NullSink, stats::Collector};
use takt_model::{Builtin, Span, System, Task, file};
use takt_sim::{SimOptions, kinds, simulate};

/// The largest resident size so far, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// Ten tasks that preempt and migrate, about 400 jobs a second.
fn plain() -> System {
    let tasks = [10, 13, 17, 22, 28, 36, 47, 60, 78, 100].map(|period| {
        let wcet = Span::from_us(period * 300);
        Task { jitter: Span::from_ms(2), ..Task::periodic(&format!("t{period}"), Span::from_ms(period), wcet) }
    });
    System::local(4, Builtin::Edf, tasks.to_vec())
}

/// Servers, and flows over table and interrupt nodes, about 1000 jobs a second. No queue of them grows.
fn world() -> System {
    // The gap is the period otherwise, which the sending task's grid makes longer.
    let text = include_str!("common/world.toml").replace("name = \"far\"\n", "name = \"far\"\nsend-gap = \"20ms\"\n");
    file::parse(&text, "world.toml").expect("a sound file")
}

/// Jobs of a simulation to statistics and of one to nothing (which makes the simulator time each deadline).
fn simulate_for(system: &System, seconds: u64) -> u64 {
    let options = SimOptions { duration: Span::from_s(seconds), ..SimOptions::default() };
    let mut collector = Collector::new(&Definitions::of(system), kinds(system));
    let counted = simulate(system, &options, &mut collector).unwrap();
    drop(collector.finish(counted.end));
    counted.released + simulate(system, &options, &mut NullSink).unwrap().released
}

#[test]
fn ten_times_the_jobs_and_messages_need_no_more_memory() {
    for (system, seconds, jobs) in [(plain(), 120, 80_000), (world(), 20, 30_000)] {
        let few = simulate_for(&system, seconds);
        let before = peak_kib();
        let many = simulate_for(&system, 10 * seconds);
        let grown = peak_kib() - before;
        assert!(few > jobs && many > 9 * few, "{few} and {many} jobs");
        // A byte a job would be 450 KiB more at least. Pages of histograms may still come.
        assert!(grown < 400, "{grown} KiB more for {} jobs more", many - few);
    }
}
