//! How fast the simulator is: jobs per CPU-second from simulation to statistics, on one thread.
//!
//! `cargo bench -p takt-sim` prints everything; `-- --jobs 1e8` makes the main row that long and
//! shows the peak of memory; `-- --main-only` stops after the main row; `-- --simso PYTHON` runs
//! SimSo (PyPI simso 0.8.5, by that interpreter) on the same task set beside it.

mod measure;

use measure::{option, peak_memory_mb, rate, simso, statistics, system};
use takt_log::{BackEnd, Definitions, Header, NullSink, Sink, Writer, stats::Collector};
use takt_model::{Builtin, Placement, System, Time, file};
use takt_sim::simulate;

fn main() {
    let jobs = option("--jobs").and_then(|n| n.parse::<f64>().ok()).unwrap_or(5e6);

    println!("simulator to statistics, one thread (jobs per CPU-second)");
    let main_system = system(10, 4, 300);
    let takt = statistics(&main_system, jobs);
    println!("  10 tasks, 10-100 ms, U = 3.0, global EDF on 4 CPUs: {:>6.2} M/s ({jobs:.0} jobs)", takt / 1e6);
    println!("  peak memory so far: {:.1} MB", peak_memory_mb());
    if let Some(python) = option("--simso") {
        match simso(&python, "main") {
            Ok(peer) => {
                let times = takt / peer;
                println!("  SimSo 0.8.5 on the same set: {:.4} M/s; takt does {times:.0} times as many", peer / 1e6);
            }
            Err(error) => println!("  SimSo: {error}"),
        }
    }

    if std::env::args().any(|arg| arg == "--main-only") {
        return;
    }
    println!("with a log beside the statistics (written to a null sink)");
    let with_log = logged(&main_system, jobs);
    println!("  {:>6.2} M/s: {:.2} times the time of statistics only", with_log / 1e6, takt / with_log);
    let nothing = rate(&main_system, jobs, |options| {
        simulate(&main_system, options, &mut Silent(NullSink)).map(|done| done.released)
    });
    println!("  no sink at all: {:.2} M/s", nothing / 1e6);

    println!("growth with the number of tasks (global EDF, 4 CPUs, U = 3.0)");
    growth([10, 30, 100, 300, 1000].map(|tasks| (tasks, system(tasks, 4, 3000 / tasks as u64))), jobs);
    println!("growth with the number of CPUs (global EDF, 10 tasks a CPU, U = 0.75 a CPU)");
    growth([1, 2, 4, 8, 16, 32, 64, 128].map(|cpus| (cpus, system(10 * cpus, cpus as u32, 75))), jobs);

    println!("strategies (10 tasks, U = 3.0, 4 CPUs)");
    for strategy in [Builtin::Rm, Builtin::Edf, Builtin::Muf, Builtin::Fifo] {
        let mut system = main_system.clone();
        system.nodes[0].strategy = takt_model::StrategyRef::Builtin(strategy);
        println!("  {:8} {:>6.2} M/s", strategy.name(), statistics(&system, jobs) / 1e6);
    }
    let mut partitioned = main_system.clone();
    partitioned.nodes[0].placement = Placement::Partitioned;
    for (i, task) in partitioned.tasks.iter_mut().enumerate() {
        task.cpus = Some([i as u32 % 4].into_iter().collect());
    }
    println!("  edf, partitioned {:>6.2} M/s", statistics(&partitioned, jobs) / 1e6);
}

/// A sink that wants nothing.
struct Silent(NullSink);

impl Sink for Silent {
    fn event(&mut self, stream: u32, now: Time, event: &takt_log::Event) {
        self.0.event(stream, now, event);
    }
    fn wants_misses(&self) -> bool {
        false
    }
}

fn logged(system: &System, jobs: f64) -> f64 {
    let definitions = Definitions::of(system);
    let header = Header::new(file::write(system), Some(0), BackEnd::Sim, takt_sim::KINDS);
    rate(system, jobs, |options| {
        let mut both = (
            Collector::new(&definitions, takt_sim::KINDS),
            Writer::new(std::io::sink(), &header, &definitions).expect("a null sink takes a header"),
        );
        let done = simulate(system, options, &mut both)?;
        both.1.finish(done.end).expect("a null sink takes everything");
        assert_eq!(both.0.finish(done.end).tasks.len(), system.tasks.len());
        Ok::<_, takt_sim::SimError>(done.released)
    })
}

fn growth<const N: usize>(systems: [(usize, System); N], jobs: f64) {
    let mut first = None;
    for (size, system) in systems {
        let ns = 1e9 / statistics(&system, jobs);
        let first = *first.get_or_insert((size as f64, ns));
        println!(
            "  {size:>5}: {ns:>7.1} ns per job, {:>5.2} times the first for {:>5.0} times the size",
            ns / first.1,
            size as f64 / first.0
        );
    }
}
