//! Release latency of `run` against cyclictest (Debian package rt-tests), and of cyclictest against itself.
//!
//! Both wake one SCHED_FIFO thread of the same priority on the same CPU every millisecond by an
//! absolute clock_nanosleep on CLOCK_MONOTONIC. Memory is locked, and /dev/cpu_dma_latency is held
//! at zero, as cyclictest does by itself. Both stamp in user space. A round has four turns in a
//! rotating order: takt with the threads' stamps alone, takt with the kernel recorded, and
//! cyclictest twice. A figure is the median over the rounds of the ratio within a round. The CPU
//! time of takt's thread besides its work is compared likewise. Absolute figures are printed, not
//! asserted.
//!
//! `cargo bench -p takt-run --bench release_latency -- [--rounds 10] [--seconds 10]`

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::process::{Command, ExitCode};

use takt_linux::clock::steal;
use takt_log::{Event, Sink};
use takt_model::{Builtin, Exec, Span, System, Task, Time};
use takt_run::{RunError, RunOptions, RunSummary, Trace, run};

const PRIORITY: u8 = 48;
const PERIOD: Span = Span::from_ms(1);
/// cyclictest's largest histogram: latencies up to a millisecond, by the nanosecond. Longer ones count as this.
const BUCKETS: u64 = 1_000_000;

/// Quantiles of one turn, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Turn {
    count: usize,
    p50: u64,
    p99: u64,
    /// CPU time a job beyond its work, of takt.
    overhead: u64,
}

fn main() -> ExitCode {
    let (rounds, seconds) = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if Command::new("cyclictest").arg("--help").output().is_err() {
        println!("release_latency: skipped: cyclictest is missing; install it: apt-get install rt-tests");
        return ExitCode::SUCCESS;
    }
    println!("release latency, SCHED_FIFO {PRIORITY}, period {PERIOD}, {rounds} rounds of {seconds} s each");
    println!(
        "{:>5} {:>17} {:>17} {:>17} {:>17} {:>8}",
        "round", "takt p50/p99 us", "takt recorded", "cyclictest", "cyclictest again", "steal"
    );
    let mut all = Vec::new();
    for round in 0..rounds {
        let before = steal();
        let mut turns = [None; 4];
        for turn in 0..4 {
            let which = (turn + round) % 4;
            let measured = match which {
                0 => takt(seconds, Trace::Never),
                1 => takt(seconds, Trace::Always),
                _ => cyclictest(seconds),
            };
            match measured {
                Ok(measured) => turns[which] = Some(measured),
                Err(reason) => {
                    println!("release_latency: skipped: {reason}");
                    return ExitCode::SUCCESS;
                }
            }
        }
        let [Some(ours), Some(recorded), Some(theirs), Some(again)] = turns else { return ExitCode::from(4) };
        let stolen = steal().zip(before).map(|(after, before)| after.saturating_sub(before));
        let us = |turn: Turn| format!("{:.1}/{:.1}", turn.p50 as f64 / 1e3, turn.p99 as f64 / 1e3);
        let stolen = stolen.map_or_else(|| "unknown".to_owned(), |stolen| stolen.to_string());
        println!(
            "{:>5} {:>17} {:>17} {:>17} {:>17} {stolen:>8}",
            round + 1,
            us(ours),
            us(recorded),
            us(theirs),
            us(again)
        );
        all.push([ours, recorded, theirs, again]);
    }
    let ratio = |of: fn(Turn) -> u64, a: usize, b: usize| {
        median(all.iter().map(|turns: &[Turn; 4]| of(turns[a]) as f64 / of(turns[b]).max(1) as f64).collect())
    };
    for (what, a, b) in [
        ("takt / cyclictest:         ", 0, 2),
        ("takt recorded / cyclictest:", 1, 2),
        ("takt recorded / takt:      ", 1, 0),
        ("cyclictest / cyclictest:   ", 3, 2),
    ] {
        println!(
            "median ratio {what} p50 {:.2}  p99 {:.2}",
            ratio(|turn| turn.p50, a, b),
            ratio(|turn| turn.p99, a, b)
        );
    }
    let overhead = |which: usize| median(all.iter().map(|turns| turns[which].overhead as f64 / 1e3).collect());
    println!(
        "median overhead a job: takt {:.2} us, recorded {:.2} us; median ratio {:.2}",
        overhead(0),
        overhead(1),
        ratio(|turn| turn.overhead, 1, 0)
    );
    let count = |which: usize| all.iter().map(|turns| turns[which].count).sum::<usize>();
    println!("releases: takt {} and {}, cyclictest {} and {}", count(0), count(1), count(2), count(3));
    ExitCode::SUCCESS
}

fn arguments() -> Result<(usize, u64), String> {
    let (mut rounds, mut seconds) = (10, 10);
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u32>().ok()).filter(|value| *value > 0);
        match (name.as_str(), value) {
            ("--rounds", Some(value)) => rounds = value as usize,
            ("--seconds", Some(value)) => seconds = u64::from(value),
            _ => return Err(format!("{name}: --rounds N and --seconds N, both above zero, are all there is")),
        }
    }
    Ok((rounds, seconds))
}

/// Keeps release latencies.
struct Latencies(Vec<u64>);

impl Sink for Latencies {
    fn event(&mut self, _: u32, now: Time, event: &Event) {
        if let Event::Release { arrival, .. } = event {
            self.0.push(now.saturating_since(*arrival).as_ns());
        }
    }
}

fn takt(seconds: u64, trace: Trace) -> Result<Turn, String> {
    // Like cyclictest: no deep sleep of the CPU while this is open. Not every machine has it.
    let mut quick = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok();
    if let Some(file) = &mut quick {
        file.write_all(&0i32.to_ne_bytes()).map_err(|error| error.to_string())?;
    }
    let exec = Exec::Uniform { min: Span::ZERO, max: Span::ZERO };
    let task = Task { exec, ..Task::periodic("wake", PERIOD, Span::from_ns(1)) };
    let system = System::local(1, Builtin::Rm, vec![task]);
    let mut latencies = Latencies(Vec::new());
    let options = RunOptions { top_priority: PRIORITY, trace, ..RunOptions::new(Span::from_s(seconds)) };
    match run(&system, &options, &mut latencies) {
        Ok(summary) if summary.lost == 0 => Ok(turn(&summary, latencies.0)),
        Ok(summary) => Err(format!("{} records were lost", summary.lost)),
        Err(error @ (RunError::Privilege { .. } | RunError::Trace(_))) => Err(error.to_string()),
        Err(error) => Err(format!("failed: {error}")),
    }
}

/// The threads' stamps. With the kernel's account the log holds the kernel's releases instead.
fn turn(summary: &RunSummary, latencies: Vec<u64>) -> Turn {
    let task = summary.tasks.first();
    let overhead = task.map_or(0, |task| task.overhead.as_ns());
    let stamped = task.and_then(|task| task.stamps?.release_latency);
    let turn = match stamped {
        Some(stamped) => Turn { count: stamped.count as usize, p50: stamped.p50, p99: stamped.p99, overhead },
        None => quantiles(latencies.into_iter().map(|ns| (ns, 1)).collect()),
    };
    Turn { overhead, ..turn }
}

fn cyclictest(seconds: u64) -> Result<Turn, String> {
    let cpu = takt_linux::sched::affinity().first().copied().unwrap_or(0);
    let file = std::env::temp_dir().join(format!("takt-cyclictest-{}", std::process::id()));
    let status = Command::new("cyclictest")
        .args(["--mlockall", "--quiet", "--nsecs", "--threads=1", "--clock=0"])
        .arg(format!("--priority={PRIORITY}"))
        .arg(format!("--affinity={cpu}"))
        .arg(format!("--interval={}", PERIOD.as_ns() / 1000))
        .arg(format!("--duration={seconds}"))
        .arg(format!("--histogram={BUCKETS}"))
        .arg(format!("--histfile={}", file.display()))
        .output()
        .map_err(|error| format!("cyclictest: {error}"))?;
    if !status.status.success() {
        return Err(format!("cyclictest: {}", String::from_utf8_lossy(&status.stderr).trim()));
    }
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let _ = fs::remove_file(&file);
    let mut counted = Vec::new();
    for line in text.lines() {
        if let Some(over) = line.strip_prefix("# Histogram Overflows:") {
            counted.push((BUCKETS, over.trim().parse().map_err(|_| format!("cyclictest wrote \"{line}\""))?));
        } else if let Some((ns, count)) = line.split_once(' ').filter(|_| !line.starts_with('#')) {
            let numbers = ns.parse().ok().zip(count.trim().parse().ok());
            counted.push(numbers.ok_or_else(|| format!("cyclictest wrote \"{line}\""))?);
        }
    }
    Ok(quantiles(counted))
}

/// Quantiles of (latency, count) pairs, by nearest rank.
fn quantiles(mut counted: Vec<(u64, usize)>) -> Turn {
    counted.retain(|(_, count)| *count > 0);
    counted.sort_unstable();
    let count: usize = counted.iter().map(|(_, count)| count).sum();
    let at = |percent: usize| {
        let (rank, mut seen) = ((count * percent).div_ceil(100), 0);
        let found = counted.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, |(ns, _)| *ns)
    };
    Turn { count, p50: at(50), p99: at(99), overhead: 0 }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}
