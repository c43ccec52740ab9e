//! How fast one more task is admitted into 10^4, and how fast `check` says the same from scratch
//! (`cargo bench -p takt-analysis --bench admit`).
//!
//! Periods log-uniform from 10 ms to 1 s in whole ns, seeded. Each row adds a task of 10^-5 of the CPU and removes it again; medians.

use std::hint::black_box;
use std::time::{Duration, Instant};

use takt_analysis::{Admission, Answer, CheckOptions, check};
use takt_model::generate::Random;
use takt_model::{Builtin, Span, System, Task};

const TASKS: u64 = 10_000;
const ROUNDS: usize = 101;

fn main() {
    println!("one more task into {TASKS}, one CPU (medians of {ROUNDS}; from scratch: of 5)");
    println!("{:<44} {:>12} {:>12} {:>14} {:>8}", "", "add", "remove", "from scratch", "ratio");
    row("edf, U = 0.7, implicit (density)", Builtin::Edf, 0.7, 100);
    row("edf, U = 0.7, deadlines 60 % (demand)", Builtin::Edf, 0.7, 60);
    row("rm, U = 0.6, implicit (bounds)", Builtin::Rm, 0.6, 100);
    row("rm, U = 0.8, implicit (fixed points)", Builtin::Rm, 0.8, 100);
    row("dm, U = 0.4, deadlines 80 %", Builtin::Dm, 0.4, 80);
}

fn row(name: &str, builtin: Builtin, load: f64, percent: u64) {
    let mut random = Random::new(7);
    let one = |i: u64, random: &mut Random| {
        let t = random.log_between(10_000_000, 1_000_000_000);
        let c = ((t as f64 * load / TASKS as f64) as u64).max(1);
        let deadline = Span::from_ns(t * percent / 100);
        Task { deadline, ..Task::periodic(&format!("t{i}"), Span::from_ns(t), Span::from_ns(c)) }
    };
    let tasks = (0..TASKS).map(|i| one(i, &mut random)).collect();
    let system = System::local(1, builtin, tasks);
    let Ok(mut admission) = Admission::new(system.clone()) else { return println!("{name:<44} is not proven") };
    let (mut adds, mut removes) = (Vec::new(), Vec::new());
    let mut by = String::new();
    for round in 0..ROUNDS as u64 {
        let task = Task { wcet: Span::from_ns(100), ..one(TASKS + round, &mut random) };
        let start = Instant::now();
        let added = black_box(admission.add(std::slice::from_ref(&task)));
        adds.push(start.elapsed());
        by = added.map_or_else(|refusal| refusal.to_string(), |by| by.name().to_owned());
        let start = Instant::now();
        let _ = black_box(admission.remove(&task.name));
        removes.push(start.elapsed());
    }
    let options = CheckOptions { verdict_only: true, ..CheckOptions::default() };
    let scratch: Vec<Duration> = (0..5)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(black_box(check(&system, &options)).schedulable, Answer::Yes);
            start.elapsed()
        })
        .collect();
    let (add, remove, scratch) = (median(adds), median(removes), median(scratch));
    let ratio = scratch.as_secs_f64() / add.as_secs_f64().max(1e-9);
    println!("{name:<44} {add:>12.1?} {remove:>12.1?} {scratch:>14.1?} {ratio:>8.0}  {by}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
