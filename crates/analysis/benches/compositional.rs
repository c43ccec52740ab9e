//! How long it takes to find the best server of a component [CSA Algorithm 1]
//! (`cargo bench -p takt-analysis --bench compositional`).
//!
//! The paper's synthetic domains: five tasks, periods uniform from 550 to 650 ms, utilisations of
//! 0.2 % to 5 %, whole milliseconds; and wider periods, finer quanta, EDF.

use std::hint::black_box;
use std::time::{Duration, Instant};

use takt_analysis::compositional::{Guarantee, Search, Workload, best};
use takt_analysis::edf::qpa::EdfTask;
use takt_analysis::fp::rta::FpTask;
use takt_model::generate::Random;

/// Different sets per row.
const SETS: usize = 200;
/// How long each row takes, about.
const ROW: Duration = Duration::from_millis(1000);
const MS: u64 = 1_000_000;

fn main() {
    println!(
        "the best period and budget of five tasks, one thread (median and p99 of the time of a search, mean \
         bandwidth - utilization)"
    );
    row("RM, periods 550-650 ms, quantum 1 ms", 550, 650, MS, true);
    row("RM, periods 350-850 ms, quantum 1 ms", 350, 850, MS, true);
    row("RM, periods 100-1100 ms, quantum 1 ms", 100, 1100, MS, true);
    row("EDF, periods 550-650 ms, quantum 1 ms", 550, 650, MS, false);
    row("EDF, periods 100-1100 ms, quantum 1 ms", 100, 1100, MS, false);
    row("RM, periods 550-650 ms, quantum 10 us", 550, 650, MS / 100, true);
    row("EDF, periods 550-650 ms, quantum 10 us", 550, 650, MS / 100, false);
}

/// (C, T) of one domain in ns, the shortest period first.
fn set(random: &mut Random, shortest: u64, longest: u64) -> Vec<(u64, u64)> {
    let mut tasks: Vec<(u64, u64)> = (0..5)
        .map(|_| {
            let t = random.between(shortest, longest);
            (((t * random.between(2, 50)) / 1000).max(1) * MS, t * MS)
        })
        .collect();
    tasks.sort_by_key(|(_, t)| *t);
    tasks
}

fn row(name: &str, shortest: u64, longest: u64, quantum: u64, fp: bool) {
    let mut random = Random::new(1);
    let sets: Vec<Vec<(u64, u64)>> = (0..SETS).map(|_| set(&mut random, shortest, longest)).collect();
    let (mut times, mut overhead, mut found) = (Vec::new(), 0.0, 0u32);
    let start = Instant::now();
    for set in sets.iter().cycle() {
        if start.elapsed() > ROW {
            break;
        }
        let (mut priorities, mut deadlines) = (Vec::new(), Vec::new());
        for (i, &(c, t)) in set.iter().enumerate() {
            priorities.push(FpTask { c, t, d: t, level: i as u32, ..FpTask::default() });
            deadlines.push(EdfTask { c, t, d: t, ..EdfTask::default() });
        }
        let workload = if fp { Workload::Fp(&priorities) } else { Workload::Edf(&deadlines) };
        let charge = |_: u64| Some(0);
        let search = Search { workload, quantum, guarantee: Guarantee::PRM, aligned: 0, charge: &charge };
        let began = Instant::now();
        let answer = black_box(best(black_box(&search)));
        times.push(began.elapsed());
        if let Ok(Some(interface)) = answer {
            let load: f64 = set.iter().map(|(c, t)| *c as f64 / *t as f64).sum();
            overhead += interface.budget as f64 / interface.period as f64 - load;
            found += 1;
        }
    }
    times.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let (median, p99) = (us(times[times.len() / 2]), us(times[times.len() * 99 / 100]));
    println!("  {name:42} {median:>9.1} us {p99:>9.1} us   {:.4}", overhead / f64::from(found.max(1)));
}
