//! How fast verdicts are: sets per second, on one thread, without bounds (`cargo bench -p takt-analysis`).
//!
//! Ten tasks, periods log-uniform from 10 ms to 1 s, seeded; every row decides the same sets again and again.
//! `benches/check-peer.sh` runs the crate response-time-analysis 0.3.2 beside, on the same sets.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use takt_analysis::edf::qpa::{self, EdfTask};
use takt_analysis::edf::wcrt;
use takt_analysis::fp::rta::{self, Analysis, FpTask};
use takt_analysis::fp::{hyperbolic, ll_bound};
use takt_analysis::global::{
    Load, Rule, Sporadic, bak, bar, bcl, bcl_iterative, da_lc, ff_dbf, gfb, rta_global, rta_lc,
};
use takt_analysis::portfolio::{Set, contender_by_name};
use takt_analysis::{Answer, CheckOptions, check};
use takt_model::generate::{Buffer, Drawn, Generator, Method, Spec};
use takt_model::{Builtin, Costs, Span, System, Task};

/// CPUs of the global rows.
const CPUS: u32 = 4;
/// Different sets per row.
const SETS: usize = 10_000;
/// How long each row takes.
const ROW: Duration = Duration::from_millis(1000);

fn main() {
    println!("verdicts alone, one thread, {SETS} sets of 10 tasks, periods 10 ms - 1 s (M sets/s, yes)");
    let analysis = RefCell::new(wcrt::Analysis::default());
    let rm = sets(0.8, 1.0, fp);
    row("rta, U = 0.8, implicit deadlines", &rm, rta::schedulable);
    row("  fixed points alone (no bound first)", &rm, rta::exact_only);
    row("rta with every bound", &rm, |set| {
        let mut analysis = Analysis::default();
        let meets = (0..set.len()).rev().all(|i| analysis.response(set, i).is_some_and(|r| r.from_arrival <= set[i].d));
        if meets { Answer::Yes } else { Answer::No }
    });
    row("rta, U = 0.8, constrained deadlines", &sets(0.8, 0.5, fp), rta::schedulable);
    let pairs: Vec<Vec<(u64, u64)>> = rm.iter().map(|set| set.iter().map(|task| (task.c, task.t)).collect()).collect();
    row("hyperbolic, U = 0.8", &pairs, hyperbolic::schedulable);
    row("ll-bound, U = 0.8", &pairs, ll_bound::schedulable);
    row("qpa, U = 0.9, constrained deadlines", &sets(0.9, 0.5, edf), qpa::schedulable);
    row("qpa, U = 0.99, constrained deadlines", &sets(0.99, 0.5, edf), qpa::schedulable);
    for (name, deadline) in [("implicit", 1.0), ("constrained", 0.5)] {
        row(&format!("edf-wcrt, U = 0.9, {name} deadlines"), &sets(0.9, deadline, edf_wcrt), |set| {
            let mut analysis = analysis.borrow_mut();
            let mut responses = analysis.responses(set, None).zip(set);
            if responses.all(|(r, task)| r.is_some_and(|r| r <= task.d)) { Answer::Yes } else { Answer::No }
        });
    }
    for (deadlines, share) in [("implicit", 1.0), ("constrained", 0.5)] {
        println!("global, 4 CPUs, U = 2.4, {deadlines} deadlines");
        let sets = sets(2.4, share, sporadic);
        row("gfb", &pairs_of(&sets), |set| gfb::schedulable(set, CPUS));
        row("bak", &sets, |set| met(bak::schedulable(set, CPUS)));
        row("bcl", &sets, |set| met(bcl::schedulable(set, CPUS, Rule::Edf)));
        row("bcl-iterative", &sets, |set| met(bcl_iterative::schedulable(set, CPUS, Rule::Edf)));
        row("rta-global, edf", &sets, |set| met(rta_global::schedulable(set, CPUS, Rule::Edf)));
        row("bar", &sets, |set| met(bar::schedulable(set, CPUS)));
        row("ff-dbf", &sets, |set| met(ff_dbf::schedulable(set, CPUS)));
        row("bcl-iterative, dm", &sets, |set| met(bcl_iterative::schedulable(set, CPUS, Rule::Fp)));
        row("da-lc, dm", &sets, |set| met(da_lc::schedulable(set, CPUS)));
        row("rta-global, dm", &sets, |set| met(rta_global::schedulable(set, CPUS, Rule::Fp)));
        row("rta-lc, dm", &sets, |set| met(rta_lc::schedulable(set, CPUS)));
    }
    generators();
    large(100_000, 1, false);
    large(100_000, 4, false);
    large(100_000, 4, true);
}

/// Sets of ten tasks made per second, and made and judged by all tests of global EDF together.
fn generators() {
    println!("random sets of 10 tasks");
    let numbers: Vec<Vec<u64>> = (0..SETS as u64).map(|number| vec![number]).collect();
    for method in Method::ALL {
        let generator = Generator::new(&Spec { method, ..Spec::new(10, 2.4) }).expect("a spec within its ranges");
        let buffer = RefCell::new(Buffer::default());
        row(&format!("generate, {}", method.name()), &numbers, |number| {
            let made = generator.set(1, number[0], &mut buffer.borrow_mut());
            if made.is_ok() { Answer::Yes } else { Answer::No }
        });
    }
    let generator = Generator::new(&Spec::new(10, 2.4)).expect("a spec within its ranges");
    let room = RefCell::new((Buffer::default(), Set::default()));
    for strategy in [Builtin::Edf, Builtin::Dm] {
        row(&format!("generate and ask any, 4 CPUs, {}", strategy.name()), &numbers, |number| {
            let (buffer, set) = &mut *room.borrow_mut();
            let _ = generator.set(1, number[0], buffer);
            set.load(buffer.tasks.iter().map(|task| (task.c, task.d, task.t)), CPUS, strategy);
            contender_by_name("any").map_or(Answer::Unknown, |any| any.decide(set))
        });
    }
}

fn fp((i, &Drawn { c, d, t }): (usize, &Drawn)) -> FpTask {
    FpTask { c, t, d, level: i as u32, ..FpTask::default() }
}

fn edf_wcrt((_, &Drawn { c, d, t }): (usize, &Drawn)) -> wcrt::EdfTask {
    wcrt::EdfTask { c, t, d, ..Default::default() }
}

fn sporadic((i, &Drawn { c, d, t }): (usize, &Drawn)) -> Sporadic {
    Sporadic { c, t, d, level: i as u32, ..Sporadic::default() }
}

/// (C, D): D <= T.
fn pairs_of(sets: &[Vec<Sporadic>]) -> Vec<Vec<(u64, u64)>> {
    sets.iter().map(|set| set.iter().map(|task| (task.c, task.d)).collect()).collect()
}

fn met(load: Load) -> Answer {
    if load.is_met() { Answer::Yes } else { Answer::Unknown }
}

fn edf((_, &Drawn { c, d, t }): (usize, &Drawn)) -> EdfTask {
    EdfTask { c, t, d, ..EdfTask::default() }
}

/// The sets of a row, the most urgent task first.
fn sets<T>(utilization: f64, deadline: f64, form: fn((usize, &Drawn)) -> T) -> Vec<Vec<T>> {
    let spec = Spec { deadlines: (deadline, 1.0), grain: Span::from_ns(1), ..Spec::new(10, utilization) };
    let (generator, mut set) = (Generator::new(&spec).expect("a spec within its ranges"), Buffer::default());
    let next = |number| {
        generator.set(1, number, &mut set).expect("randfixedsum discards nothing");
        set.tasks.sort_by_key(|task| (task.d, task.t));
        set.tasks.iter().enumerate().map(form).collect()
    };
    (0..SETS as u64).map(next).collect()
}

/// How long this thread has run, where the kernel tells: others on its CPU then do not count.
fn executed() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn row<T>(name: &str, sets: &[Vec<T>], decide: impl Fn(&[T]) -> Answer) {
    // `cargo bench -p takt-analysis --bench check -- WORD`: the rows with that word.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
        return;
    }
    let yes = sets.iter().filter(|set| decide(set) == Answer::Yes).count();
    let (start, before, mut decided) = (Instant::now(), executed(), 0usize);
    while start.elapsed() < ROW {
        for set in sets {
            let _ = black_box(decide(black_box(set)));
        }
        decided += sets.len();
    }
    let spent = executed().zip(before).map_or(start.elapsed(), |(now, before)| now - before);
    let rate = decided as f64 / spent.as_secs_f64();
    println!("  {name:38} {:>7.2}   {:>5.1} %", rate / 1e6, 100.0 * yes as f64 / sets.len() as f64);
}

/// A large set under EDF, all that `check` does; with costs of switches, or none.
fn large(count: u64, cpus: u32, costs: bool) {
    let tasks: Vec<Task> = (0..count)
        .map(|i| {
            let period = Span::from_us(100_000 + (i * 7_919) % 900_000);
            let wcet = Span::from_ns(period.as_ns() * u64::from(cpus) * 9 / (10 * count));
            Task::periodic(&format!("t{i}"), period, wcet)
        })
        .collect();
    let mut system = System::local(cpus, Builtin::Edf, tasks);
    if costs {
        let charged = Costs { switch: Span::from_ns(1), migrate: Span::from_ns(1), ..Costs::NONE };
        system.nodes.iter_mut().for_each(|node| node.costs = Some(charged));
    }
    let (start, before) = (Instant::now(), executed());
    let report = black_box(check(black_box(&system), &CheckOptions::default()));
    let spent = executed().zip(before).map_or(start.elapsed(), |(now, before)| now - before);
    let (name, costs) = (report.schedulable.name(), if costs { ", with costs" } else { "" });
    println!("  check, {count} tasks on {cpus} EDF CPUs{costs}, U = 0.9 each: {name} in {spent:?}");
    let words: Vec<String> = std::env::args().skip(1).collect();
    for test in report.tests.iter().filter(|_| words.iter().any(|word| word == "large")) {
        println!("    {:16} {:?}", test.test.name(), test.verdict);
    }
}
