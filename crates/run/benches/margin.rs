//! How much a SCHED_DEADLINE reservation must hold besides the WCET: overruns and misses of a task
//! set that always takes its WCET, by margin. The table of docs/explanation/run.md comes from here.
//!
//! The kernel is recorded where it may be, as `takt run` does.
//!
//! `cargo bench -p takt-run --bench margin -- [--seconds 5]`

use std::process::ExitCode;

use takt_linux::sched::affinity;
use takt_log::{Event, Sink};
use takt_model::{Builtin, Bytes, Span, System, Task, Time};
use takt_run::{Margin, RunError, RunOptions, run};

#[derive(Default)]
struct Misses(u64);

impl Sink for Misses {
    fn event(&mut self, _: u32, _: Time, event: &Event) {
        self.0 += u64::from(matches!(event, Event::Miss { .. }));
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let seconds = match (arguments.next().as_deref(), arguments.next().map(|value| value.parse())) {
        (None, _) => 5,
        (Some("--seconds"), Some(Ok(seconds))) if seconds > 0 => seconds,
        _ => {
            eprintln!("--seconds N, above zero, is all there is");
            return ExitCode::from(2);
        }
    };
    let task = |name, period_ms, wcet_us| Task::periodic(name, Span::from_ms(period_ms), Span::from_us(wcet_us));
    let touching = Task { wss: Bytes::new(64 * 1024), ..task("c", 20, 4000) };
    let tasks = vec![task("a", 5, 500), task("b", 10, 1000), touching, task("d", 50, 10_000)];
    let system = System::local(affinity().len() as u32, Builtin::Edf, tasks);
    println!("SCHED_DEADLINE on {} CPUs, {seconds} s a row", affinity().len());
    println!(
        "{:>8} {:>6} {:>9} {:>7} {:>18} {:>8}",
        "margin", "jobs", "overruns", "misses", "overhead a job us", "steal"
    );
    for margin_us in [0, 20, 50, 100, 200, 400] {
        let margin = Margin { percent: 0, least: Span::from_us(margin_us) };
        let mut misses = Misses::default();
        match run(&system, &RunOptions { margin, ..RunOptions::new(Span::from_s(seconds)) }, &mut misses) {
            Ok(summary) => {
                let jobs: u64 = summary.tasks.iter().map(|task| task.completed).sum();
                let overruns: u64 = summary.tasks.iter().filter_map(|task| task.overruns).sum();
                let overhead: u64 = summary.tasks.iter().map(|task| task.overhead.as_ns() * task.completed).sum();
                let overhead = overhead as f64 / jobs.max(1) as f64 / 1e3;
                let steal = summary.steal.map_or_else(|| "unknown".to_owned(), |steal| steal.to_string());
                let margin = margin.least.to_string();
                println!("{margin:>8} {jobs:>6} {overruns:>9} {:>7} {overhead:>18.1} {steal:>8}", misses.0);
            }
            Err(error @ RunError::Privilege { .. }) => {
                println!("margin: skipped: {error}");
                return ExitCode::SUCCESS;
            }
            Err(error) => {
                eprintln!("margin: {error}");
                return ExitCode::from(error.exit_code());
            }
        }
    }
    ExitCode::SUCCESS
}
