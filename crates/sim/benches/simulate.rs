//! How fast the simulator is: jobs per CPU-second from simulation to statistics, on one thread.
//!
//! `cargo bench -p takt-sim` prints everything; `-- --jobs 1e8` makes the main row that long and
//! shows the peak of memory; `-- --main-only` stops after the main row; `-- --simso PYTHON` runs
//! SimSo (PyPI simso 0.8.5, by that interpreter) on the same task set beside it.

use std::process::Command;
use std::time::Instant;

use takt_log::{BackEnd, Definitions, Header, NullSink, Sink, Writer, stats::Collector};
use takt_model::{
    Auto, Builtin, Component, ComponentId, NodeId, Placement, ServerRule, Span, StrategyRef, System, Task, Time, file,
};
use takt_sim::{SimOptions, simulate};

/// Periods of the main row in milliseconds.
const PERIODS_MS: [u64; 10] = [10, 13, 17, 22, 28, 36, 47, 60, 78, 100];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let jobs = value("--jobs").and_then(|n| n.parse::<f64>().ok()).unwrap_or(5e6);

    println!("simulator to statistics, one thread (jobs per CPU-second)");
    let main_system = system(10, 4, 300);
    let takt = statistics(&main_system, jobs);
    println!("  10 tasks, 10-100 ms, U = 3.0, global EDF on 4 CPUs: {:>6.2} M/s ({jobs:.0} jobs)", takt / 1e6);
    println!("  peak memory so far: {:.1} MB", peak_memory_mb());
    if let Some(python) = value("--simso") {
        simso(&python, takt);
    }

    if args.iter().any(|arg| arg == "--main-only") {
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

    println!(
        "five components with ten tasks each on one CPU, U = 0.75, beside the same tasks without servers under rm"
    );
    let plain = domains(None);
    let without = statistics(&plain, jobs / 10.0);
    println!("  {:10} {:>6.2} M/s", "no server", without / 1e6);
    for rule in ServerRule::ALL {
        let rate = statistics(&domains(Some(rule)), jobs / 10.0);
        println!("  {:10} {:>6.2} M/s: {:>5.2} times the time", rule.name(), rate / 1e6, without / rate);
    }
}

/// Fifty tasks in five components of 18 % of the CPU each; without a rule the tasks alone.
fn domains(rule: Option<ServerRule>) -> System {
    let mut system = system(50, 1, 15);
    system.nodes[0].strategy = StrategyRef::Builtin(if rule.is_some() { Builtin::Edf } else { Builtin::Rm });
    let Some(rule) = rule else { return system };
    for i in 0..5 {
        let mut component = Component::new(&format!("d{i}"), NodeId(0), rule);
        component.strategy = StrategyRef::Builtin(Builtin::Rm);
        component.period = Auto::Value(Span::from_us(5000 + 500 * i));
        component.budget = Auto::Value(Span::from_us((5000 + 500 * i) * 18 / 100));
        system.components.push(component);
    }
    for (i, task) in system.tasks.iter_mut().enumerate() {
        task.component = Some(ComponentId(i as u32 % 5));
    }
    system
}

/// Tasks with periods spread over 10 to 100 ms and the same utilisation each, in thousandths.
fn system(tasks: usize, cpus: u32, utilisation_thousandths: u64) -> System {
    let tasks = (0..tasks)
        .map(|i| {
            let period = Span::from_us(PERIODS_MS[i % 10] * 1000 + (i as u64 / 10) * 7);
            let wcet = Span::from_ns(period.as_ns() / 1000 * utilisation_thousandths);
            Task::periodic(&format!("t{i}"), period, wcet)
        })
        .collect();
    System::local(cpus, Builtin::Edf, tasks)
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

/// Simulates about `jobs` jobs three times; the best rate, in jobs per CPU-second of this thread.
fn rate<E: std::fmt::Debug>(system: &System, jobs: f64, mut run: impl FnMut(&SimOptions) -> Result<u64, E>) -> f64 {
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

fn statistics(system: &System, jobs: f64) -> f64 {
    let definitions = Definitions::of(system);
    rate(system, jobs, |options| {
        let mut collector = Collector::new(&definitions, takt_sim::KINDS);
        let done = simulate(system, options, &mut collector)?;
        let stats = collector.finish(done.end);
        assert_eq!(stats.tasks.iter().map(|task| task.released).sum::<u64>(), done.released);
        Ok::<_, takt_sim::SimError>(done.released)
    })
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

/// CPU time of this thread, where the kernel tells.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// The highest resident size of this process.
fn peak_memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1000.0
}

/// The same task set in SimSo, beside.
fn simso(python: &str, takt: f64) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/simso_peer.py");
    match Command::new(python).arg(script).output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            match text.trim().parse::<f64>() {
                Ok(peer) => println!(
                    "  SimSo 0.8.5 on the same set: {:.4} M/s; takt does {:.0} times as many",
                    peer / 1e6,
                    takt / peer
                ),
                Err(_) => println!("  SimSo printed {text:?} instead of a number"),
            }
        }
        Ok(output) => println!("  SimSo failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => println!("  SimSo could not be run: {error}"),
    }
}
