//! Memory does not grow with the number of jobs. Alone in its binary, for the kernel tells one peak per process.
#![cfg(target_os = "linux")]

use takt_log::{Definitions, NullSink, stats::Collector};
use takt_model::{Builtin, Span, System, Task};
use takt_sim::{KINDS, SimOptions, simulate};

/// The largest resident size so far, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// Ten tasks that preempt and migrate, about 400 jobs a second, to statistics and to nothing (which makes the
/// simulator time each deadline).
fn simulate_for(seconds: u64) -> u64 {
    let tasks = [10, 13, 17, 22, 28, 36, 47, 60, 78, 100].map(|period| {
        let wcet = Span::from_us(period * 300);
        Task { jitter: Span::from_ms(2), ..Task::periodic(&format!("t{period}"), Span::from_ms(period), wcet) }
    });
    let system = System::local(4, Builtin::Edf, tasks.to_vec());
    let options = SimOptions { duration: Span::from_s(seconds), ..SimOptions::default() };
    let mut collector = Collector::new(&Definitions::of(&system), KINDS);
    let counted = simulate(&system, &options, &mut collector).unwrap();
    drop(collector.finish(counted.end));
    counted.released + simulate(&system, &options, &mut NullSink).unwrap().released
}

#[test]
fn a_million_jobs_need_no_more_than_a_hundred_thousand() {
    let few = simulate_for(120);
    let before = peak_kib();
    let many = simulate_for(1200);
    let grown = peak_kib() - before;
    assert!(few > 80_000 && many > 9 * few, "{few} and {many} jobs");
    // A byte a job would be 800 KiB more; pages of histograms may still come, and what else the process does.
    assert!(grown < 400, "{grown} KiB more for {} jobs more", many - few);
}
