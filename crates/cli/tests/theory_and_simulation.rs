//! `analysis` and `policy` are two independent accounts of one theory. Responses in the simulator
//! never exceed the bounds of the analysis, and reach exact bounds.

#[allow(dead_code, unreachable_pub, reason = "shared with the simulator's own tests")]
#[path = "../../sim/tests/common/random.rs"]
mod random;

#[path = "theory_and_simulation/accepted.rs"]
mod accepted;
#[path = "theory_and_simulation/adaptive.rs"]
mod adaptive;
#[path = "theory_and_simulation/components.rs"]
mod components;
#[path = "theory_and_simulation/flows.rs"]
mod flows;
#[path = "theory_and_simulation/global.rs"]
mod global;
#[path = "theory_and_simulation/networks.rs"]
mod networks;
#[path = "theory_and_simulation/placed.rs"]
mod placed;
#[path = "theory_and_simulation/plans.rs"]
mod plans;

use random::{Dice, cases, seeds};
use takt_analysis::{Answer, CheckOptions, CheckReport, check};
use takt_log::{Definitions, stats::Collector, stats::Stats};
use takt_model::*;
use takt_sim::{SimOptions, simulate};

fn replay(seed: u64, test: &str) -> String {
    format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt --test theory_and_simulation {test}")
}

fn simulated(system: &System, seed: u64, duration: u64) -> Stats {
    let mut collector = Collector::new(&Definitions::of(system), takt_sim::KINDS);
    let options = SimOptions { duration: Span::from_ns(duration), seed, node: None };
    let done = simulate(system, &options, &mut collector).unwrap_or_else(|error| panic!("{error}\n{system:#?}"));
    collector.finish(done.end)
}

/// How close observations come to their bounds: how many pairs have each quotient of the lesser and the greater, in
/// thousandths, rounded down.
struct Tightness([u64; 1_001]);

impl Default for Tightness {
    fn default() -> Self {
        Tightness([0; 1_001])
    }
}

impl Tightness {
    fn note(&mut self, lesser: u64, greater: u64) {
        self.0[(lesser * 1_000 / greater.max(1)) as usize] += 1;
    }
}

impl std::fmt::Display for Tightness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (all, reached, mut below) = (self.0.iter().sum::<u64>(), self.0[1_000], 0_u64);
        let median = self.0.iter().position(|count| {
            below += count;
            2 * below >= all
        });
        let (median, share) = (median.unwrap_or(0) as f64 / 1e3, 1e2 * reached as f64 / all.max(1) as f64);
        write!(f, "{median:.3} in the median, {reached} of {all} ({share:.1} %) reach their bound")
    }
}

fn misses(stats: &Stats) -> u64 {
    stats.tasks.iter().map(|task| task.missed.expect("a simulation knows its misses")).sum()
}

/// Whether a report claims anything of responses or misses. If not, a simulation cannot contradict it.
fn claims(system: &System, report: &CheckReport) -> bool {
    let mut tasks = (0..system.tasks.len() as u32).map(TaskId);
    report.schedulable == Answer::Yes || tasks.any(|id| report.bound_of(id).is_some())
}

fn checked(system: &System) -> CheckReport {
    check(system, &CheckOptions { all: true, ..CheckOptions::default() })
}

/// Keeps a random system within what analyses assume: no execution beyond the WCET, no arrival before the period.
fn tame(system: &mut System) {
    for task in &mut system.tasks {
        let exceeds = match &task.exec {
            Exec::Wcet => false,
            Exec::Uniform { max, .. } => *max > task.wcet,
            Exec::Pmf(values) => values.iter().any(|(value, _)| *value > task.wcet),
            Exec::Trace(trace) => trace.values.iter().any(|value| *value > task.wcet),
        };
        if exceeds {
            task.exec = Exec::Uniform { min: Span::from_ns(1), max: task.wcet };
        }
        if matches!(task.arrival, Arrival::Pmf(_) | Arrival::Trace(_)) {
            task.arrival = Arrival::Sporadic;
        }
    }
}

/// Random systems of low utilisation, so that many have bounds: execution divided against the period.
fn light_system(dice: &mut Dice) -> System {
    let mut system = random::system(dice);
    let factor = dice.roll(1, 12);
    for task in &mut system.tasks {
        task.period = Span::from_ns(task.period.as_ns() * factor);
        task.deadline = Span::from_ns(task.deadline.as_ns() * factor);
        task.jitter = Span::from_ns(task.jitter.as_ns() * dice.roll(0, 1));
    }
    tame(&mut system);
    random::ordinary_threads(dice, &mut system);
    system
}

#[test]
fn no_simulated_response_exceeds_its_bound() {
    bounds_hold("no_simulated", cases(2_000), light_system);
}

/// Systems with bounds under every strategy.
#[test]
fn no_bound_on_one_cpu_is_exceeded() {
    let one_cpu = |dice: &mut Dice| {
        let mut system = light_system(dice);
        for node in &mut system.nodes {
            (node.cpus, node.placement) = (1, Placement::Global);
        }
        system.tasks.iter_mut().for_each(|task| task.cpus = None);
        system
    };
    bounds_hold("no_bound_on_one", cases(3_000), one_cpu);
}

/// Sections that nothing preempts, on one CPU, where most tests count them as blocking; and their bounds are reached.
#[test]
fn no_bound_with_sections_is_exceeded() {
    let (mut bounded, mut reached) = (0, 0);
    for seed in seeds(2_000) {
        let mut dice = Dice::new(seed);
        let strategy = dice.pick(&[Builtin::Fp, Builtin::Dm, Builtin::Edf, Builtin::Fifo]);
        let mut system = synchronous(&mut dice, strategy, 1);
        for task in &mut system.tasks {
            task.deadline = task.period;
            task.preemption = random::preemption(&mut dice, task.wcet);
            task.offset = dice.ns(0, 3);
            task.jitter = if dice.chance(20) { dice.ns(0, 3) } else { Span::ZERO };
            task.arrival = dice.pick(&[Arrival::Periodic, Arrival::Sporadic]);
        }
        if dice.chance(20) {
            let costs = Costs { switch: dice.ns(0, 1), release: dice.ns(0, 1), tick: dice.ns(0, 1), ..Costs::NONE };
            system.nodes[0].costs = Some(Costs { tick_period: Span::from_ns(17), ..costs });
        }
        let report = check(&system, &CheckOptions::default());
        let stats = simulated(&system, seed, 1_500);
        for (id, task) in system.tasks.iter().enumerate() {
            let bound = report.bound_of(TaskId(id as u32)).map(Span::as_ns);
            let observed = stats.tasks[id].response_ns.as_ref().map(|response| response.max);
            let (Some(bound), Some(observed)) = (bound, observed) else { continue };
            let replay = replay(seed, "no_bound_with_sections");
            assert!(observed <= bound, "{replay}\ntask {}: {observed} > {bound}\n{system:#?}", task.name);
            bounded += 1;
            reached += u64::from(observed == bound);
        }
        let missed = misses(&stats);
        assert!(report.schedulable != Answer::Yes || missed == 0, "{}\n{system:#?}", replay(seed, "no_bound_with"));
        assert!(
            report.schedulable != Answer::No || report.tests.iter().any(|test| test.verdict.answer() == Answer::No)
        );
    }
    assert!(cases(2_000) < 1_000 || (bounded > 1_000 && reached * 4 > bounded), "{reached} of {bounded}");
}

/// Simulates random systems against what is proven of them. `name` is the test's, for the replay.
fn bounds_hold(name: &str, count: u64, random_system: impl Fn(&mut Dice) -> System) {
    let (mut bounded, mut proved) = (0, 0);
    for seed in seeds(count) {
        let mut dice = Dice::new(seed);
        let system = random_system(&mut dice);
        let report = checked(&system);
        if !claims(&system, &report) {
            continue;
        }
        let stats = simulated(&system, seed, 2_000);
        for (id, task) in system.tasks.iter().enumerate() {
            let observed = stats.tasks[id].response_ns.as_ref().map(|response| response.max);
            if let (Some(bound), Some(observed)) = (report.bound_of(TaskId(id as u32)), observed) {
                bounded += 1;
                let by: Vec<_> = report
                    .tests
                    .iter()
                    .filter(|t| t.tasks.iter().any(|x| x.wcrt.is_some()))
                    .map(|t| t.test.name())
                    .collect();
                assert!(
                    observed <= bound.as_ns(),
                    "{}\ntask {}: simulated {observed} ns, bound {bound} by {by:?}\n{system:#?}",
                    replay(seed, name),
                    task.name
                );
            }
        }
        if report.schedulable == Answer::Yes {
            proved += 1;
            let missed = misses(&stats);
            let by: Vec<_> =
                report.tests.iter().map(|t| (t.test.name(), t.scope.clone(), t.verdict.answer())).collect();
            assert_eq!(missed, 0, "{}\nproved schedulable by {by:?}, yet it misses\n{system:#?}", replay(seed, name));
        }
    }
    if count >= 1_000 {
        assert!(bounded > 1_000 && proved > 200, "only {bounded} bounds and {proved} proofs were put to the test");
    }
}

/// The unit of a random system's times. In most systems it is a nanosecond, so that events collide.
/// In every fourth one periods are milliseconds, with WCETs and deadlines of any nanosecond.
fn unit_ns(seed: u64) -> u64 {
    if seed % 4 == 3 { 100_003 } else { 1 }
}

/// A synchronous system of up to five tasks on one CPU with constrained deadlines and periods of
/// up to 40 units.
fn synchronous(dice: &mut Dice, strategy: Builtin, unit_ns: u64) -> System {
    let count = dice.roll(1, 5);
    let tasks = (0..count)
        .map(|i| {
            let period = dice.pick(&[4u64, 5, 6, 8, 10, 12, 15, 20]) * 2 * unit_ns;
            let wcet = dice.roll(unit_ns, (period / 2).min((2 + 12 / count) * unit_ns));
            Task {
                deadline: dice.ns(wcet, period),
                priority: Some(i as u32 + 1),
                ..Task::periodic(&format!("t{i}"), Span::from_ns(period), Span::from_ns(wcet))
            }
        })
        .collect();
    System::local(1, strategy, tasks)
}

#[test]
fn a_synchronous_release_reaches_the_bound_of_rta() {
    let mut reached = 0;
    for seed in seeds(3_000) {
        let system = synchronous(&mut Dice::new(seed), Builtin::Fp, unit_ns(seed));
        let report = checked(&system);
        if report.schedulable != Answer::Yes {
            continue;
        }
        let stats = simulated(&system, 0, 40 * unit_ns(seed));
        for (id, task) in system.tasks.iter().enumerate() {
            let bound = report.bound_of(TaskId(id as u32)).map(Span::as_ns);
            let observed = stats.tasks[id].response_ns.as_ref().map(|response| response.max);
            assert_eq!(observed, bound, "{}\ntask {}\n{system:#?}", replay(seed, "a_synchronous"), task.name);
            reached += 1;
        }
    }
    assert!(cases(3_000) < 1_000 || reached > 1_000, "only {reached}");
}

#[test]
fn verdicts_on_one_cpu_are_exact() {
    let (mut yes, mut no) = (0, 0);
    for seed in seeds(3_000) {
        let mut dice = Dice::new(seed);
        let strategy = dice.pick(&[Builtin::Fp, Builtin::Edf, Builtin::Rm, Builtin::Dm]);
        let system = synchronous(&mut dice, strategy, unit_ns(seed));
        let report = checked(&system);
        let hyperperiod = system.hyperperiod().expect("small periods").as_ns();
        let stats = simulated(&system, 0, 2 * hyperperiod);
        let missed = misses(&stats);
        let wanted = if missed == 0 { Answer::Yes } else { Answer::No };
        let verdicts: Vec<_> = report.tests.iter().map(|t| (t.test.name(), t.verdict.answer())).collect();
        let shown = || format!("{}\n{verdicts:?}\n{system:#?}", replay(seed, "verdicts"));
        // Only tasks that share a level leave room for doubt.
        let doubted = report.schedulable == Answer::Unknown && matches!(strategy, Builtin::Rm | Builtin::Dm);
        assert!(doubted || report.schedulable == wanted, "{}", shown());
        // Every answer of a single test is a proof of its own.
        assert!(verdicts.iter().all(|(_, answer)| [wanted, Answer::Unknown].contains(answer)), "{}", shown());
        *(if missed == 0 { &mut yes } else { &mut no }) += 1;
    }
    assert!(cases(3_000) < 1_000 || (yes > 300 && no > 300), "{yes} yes, {no} no");
}

#[test]
fn offsets_are_decided_as_they_are_simulated() {
    let (mut yes, mut no) = (0, 0);
    for seed in seeds(2_000) {
        let mut dice = Dice::new(seed);
        let strategy = dice.pick(&[Builtin::Fp, Builtin::Edf, Builtin::Fifo, Builtin::Rm]);
        let mut system = synchronous(&mut dice, strategy, 1);
        for task in &mut system.tasks {
            task.offset = dice.ns(0, task.period.as_ns());
            task.deadline = dice.ns(task.wcet.as_ns(), 2 * task.period.as_ns());
        }
        let report = checked(&system);
        let load: f64 = system.tasks.iter().map(|t| t.wcet.as_ns() as f64 / t.period.as_ns() as f64).sum();
        if load > 1.000_001 {
            assert_eq!(report.schedulable, Answer::No, "{}", replay(seed, "offsets"));
            continue;
        }
        let hyperperiod = system.hyperperiod().expect("small periods").as_ns();
        let stats = simulated(&system, 0, 40 + 6 * hyperperiod);
        let missed = misses(&stats);
        let wanted = if missed == 0 { Answer::Yes } else { Answer::No };
        let verdicts: Vec<_> = report.tests.iter().map(|t| (t.test.name(), t.verdict.answer())).collect();
        assert_eq!(report.schedulable, wanted, "{}\n{verdicts:?}\n{system:#?}", replay(seed, "offsets"));
        for (id, task) in system.tasks.iter().enumerate().filter(|_| missed == 0) {
            let bound = report.bound_of(TaskId(id as u32)).map(Span::as_ns);
            let observed = stats.tasks[id].response_ns.as_ref().map(|response| response.max);
            assert_eq!(observed, bound, "{}\ntask {}\n{system:#?}", replay(seed, "offsets"), task.name);
        }
        *(if missed == 0 { &mut yes } else { &mut no }) += 1;
    }
    assert!(cases(2_000) < 1_000 || (yes > 300 && no > 200), "{yes} yes, {no} no");
}
