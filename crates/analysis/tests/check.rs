//! `check` on whole systems.

use takt_analysis::{
    Answer, CheckOptions, CheckReport, LinuxMachine, PlaceError, Progress, TestId, certify, check, check_watched,
    place, verify,
};
use takt_model::{
    Arrival, Auto, Builtin, Component, ComponentId, Costs, CpuSet, Criticality, Discipline, Filter, Fit, Level, Mode,
    NodeId, Placement, Preemption, ServerRule, Span, Strategy, StrategyId, StrategyRef, System, Task, TaskId, Time,
};

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

fn task(name: &str, t: u64, c: u64) -> Task {
    Task::periodic(name, ms(t), ms(c))
}

fn names(report: &CheckReport) -> Vec<&str> {
    report.tests.iter().map(|test| test.test.name()).collect()
}

fn plain(system: &System) -> CheckReport {
    check(system, &CheckOptions::default())
}

#[test]
fn the_cheapest_test_decides_and_rta_bounds() {
    let light = plain(&System::local(1, Builtin::Rm, vec![task("a", 10, 2), task("b", 20, 4)]));
    assert_eq!((light.schedulable, names(&light)), (Answer::Yes, vec!["ll-bound", "rta"]));
    assert_eq!(light.bound_of(TaskId(1)), Some(ms(6)));
    let harmonic = plain(&System::local(1, Builtin::Rm, vec![task("a", 10, 5), task("b", 20, 10)]));
    assert_eq!((harmonic.schedulable, names(&harmonic)), (Answer::Yes, vec!["ll-bound", "hyperbolic", "rta"]));
    let edf = plain(&System::local(1, Builtin::Edf, vec![task("a", 10, 5), task("b", 14, 7)]));
    assert_eq!((edf.schedulable, names(&edf)), (Answer::Yes, vec!["density", "edf-wcrt"]));
    assert_eq!((edf.bound_of(TaskId(0)), edf.bound_of(TaskId(1))), (Some(ms(10)), Some(ms(14))));
    let global = plain(&System::local(2, Builtin::Edf, vec![task("a", 10, 5), task("b", 10, 5), task("c", 10, 5)]));
    assert_eq!((global.schedulable, names(&global)), (Answer::Yes, vec!["gfb", "rta-global"]));
}

#[test]
fn the_report_is_the_contracts_json() {
    let system = System::local(1, Builtin::Rm, vec![task("a", 10, 2)]);
    let json = serde_json::to_value(check(&system, &CheckOptions { only: vec![TestId::Rta], ..Default::default() }));
    assert_eq!(
        json.unwrap(),
        serde_json::json!({
            "system": "system", "schedulable": true, "warnings": [], "flows": [],
            "tests": [{
                "test": "rta", "scope": "local", "verdict": "yes", "why": "", "figures": {},
                "tasks": [{ "task": "a", "verdict": "yes", "wcrt_ns": 2_000_000, "deadline_ns": 10_000_000 }]
            }]
        })
    );
}

#[test]
fn the_hopeless_is_refuted_with_a_witness() {
    let mut late = task("late", 10, 8);
    late.deadline = ms(5);
    let report = plain(&System::local(4, Builtin::Mlf, vec![late]));
    assert_eq!(report.schedulable, Answer::No);
    assert_eq!(report.tests[0].verdict.why(), "task \"late\": wcet 8ms exceeds its deadline 5ms");
    let report = plain(&System::local(2, Builtin::Edf, vec![task("a", 10, 9), task("b", 10, 9), task("c", 10, 9)]));
    assert_eq!(report.tests[0].verdict.why(), "the tasks need 270 % of a CPU, and there is 200 %");
    let report = plain(&System::local(1, Builtin::Rm, vec![task("a", 5, 2), task("b", 7, 4)]));
    assert_eq!(
        report.tests.last().unwrap().verdict.why(),
        "released together with all that is more important, \"b\" can take 8ms; its deadline is 7ms"
    );
}

#[test]
fn an_overload_is_told_by_its_excess_where_percentages_do_not_differ() {
    let ns = |name: &str, t: u64, c: u64| Task::periodic(name, Span::from_ns(t), Span::from_ns(c));
    let second = 1_000_000_000;
    let thirds =
        vec![ns("a", 3, 1), ns("b", 30_000_000 * second, 20_000_000 * second), ns("c", 100_000_000 * second, 1)];
    let explained = CheckOptions { explain: true, ..Default::default() };
    let report = check(&System::local(1, Builtin::Edf, thirds.clone()), &explained);
    let excess = "the tasks need more than the 100 % of a CPU that there is: 1ns too much in each 100000000s";
    assert_eq!((report.schedulable, report.tests[0].verdict.why()), (Answer::No, excess));
    let binding = "utilizations against the CPUs: 100 % of 100 %, less than 0.0001 % too much";
    assert_eq!(report.tests[0].binding().as_deref(), Some(binding));
    let hour = vec![ns("a", 1, 1), ns("b", 3600 * second, 1)];
    let report = plain(&System::local(1, Builtin::Rm, hour.clone()));
    assert!(report.tests[0].verdict.why().ends_with("1ns too much in each 3600s"), "{report:#?}");
    // For a task that must wait for both. The tick makes the overload, so no task is refuted.
    let mut system = System::local(1, Builtin::Rm, hour[..1].to_vec());
    let tick = Costs { tick: Span::from_ns(1), tick_period: Span::from_s(3600), ..Costs::NONE };
    system.nodes[0].costs = Some(tick);
    let report = plain(&system);
    let why = "no bound for \"a\": the task and all tasks that can go before it need 1ns in each 3600s more than the \
               whole CPU";
    assert!(report.tests.iter().any(|test| test.verdict.why() == why), "{report:#?}");
}

#[test]
fn a_missing_bound_has_one_reason() {
    let why = |system: &System| {
        let report = check(system, &CheckOptions { only: vec![TestId::Rta], ..Default::default() });
        report.tests[0].verdict.why().to_owned()
    };
    // All of the CPU, and blocking.
    let mut tasks = vec![task("a", 4, 2), task("b", 8, 4)];
    tasks[1].blocking = ms(1);
    let endless = why(&System::local(1, Builtin::Rm, tasks));
    assert!(endless.ends_with("its busy window never ends"), "{endless}");
    // Nearly all of it, with periods that have nothing in common.
    let periods = [999_999_937, 999_999_929, 999_999_893, 999_999_883, 999_999_797, 999_999_761, 999_999_757];
    let mut tasks: Vec<Task> = (periods.iter().chain(&[999_999_751]).enumerate())
        .map(|(i, t)| Task::periodic(&format!("t{i}"), Span::from_ns(*t), Span::from_ns(t / 8)))
        .collect();
    tasks[0].blocking = Span::from_ns(1);
    tasks[0].deadline = Span::from_s(1_000_000);
    let limit = why(&System::local(1, Builtin::Rm, tasks));
    assert!(limit.ends_with("the work limit of 100000000 terms was reached"), "{limit}");
    let years = |n: u64| Span::from_s(n * 365 * 86_400);
    let tasks = vec![Task::periodic("a", years(50), years(10)), Task::periodic("b", years(30), years(10))];
    let long = why(&System::local(1, Builtin::Rm, tasks));
    assert!(long.ends_with("may exceed nine years"), "{long}");
}

#[test]
fn many_tasks_that_fit_into_the_shortest_period_are_proven() {
    let ns = |i: u64| Task::periodic(&format!("t{i}"), Span::from_ns(100_000 + 7 * i), Span::from_ns(10));
    let report = plain(&System::local(1, Builtin::Rm, (0..10_000).map(ns).collect()));
    assert_eq!(report.schedulable, Answer::Yes, "{:?}", report.tests.last().map(|test| test.verdict.why()));
    assert_eq!(report.bound_of(TaskId(9_999)), Some(Span::from_ns(100_000)));
    // The same in a component: its server gives 100000 ns within 105 periods, 300 ns of the next, and 50 ns before.
    let ns = |i: u64| Task::periodic(&format!("t{i}"), Span::from_ns(106_000 + 7 * i), Span::from_ns(10));
    let inside = |i: u64| Task { component: Some(ComponentId(0)), ..ns(i) };
    let mut system = System::local(1, Builtin::Rm, (0..10_000).map(inside).collect());
    system.components.push(Component {
        strategy: StrategyRef::Builtin(Builtin::Rm),
        period: Auto::Value(Span::from_ns(1_000)),
        budget: Auto::Value(Span::from_ns(950)),
        ..Component::new("c", NodeId(0), ServerRule::Ptps)
    });
    let report = plain(&system);
    assert_eq!(report.schedulable, Answer::Yes, "{:?}", report.tests.last().map(|test| test.verdict.why()));
    assert_eq!(report.bound_of(TaskId(9_999)), Some(Span::from_ns(105_350)));
}

#[test]
fn a_schedulable_system_has_no_tardiness_and_no_bound_above_a_deadline() {
    let all = CheckOptions { all: true, ..Default::default() };
    let us = |name: &str, t: u64, c: u64| Task::periodic(name, ms(t), Span::from_us(c));
    let tasks = [(529, 54_288), (648, 162_002), (379, 69_707), (223, 13_151), (617, 208_521), (582, 197_633)];
    let tasks: Vec<Task> = tasks.iter().enumerate().map(|(i, (t, c))| us(&format!("t{i}"), *t, *c)).collect();
    let mut proven = 0;
    for strategy in [Builtin::Edf, Builtin::Rm] {
        for count in 3..=tasks.len() {
            let system = System::local(2, strategy, tasks[..count].to_vec());
            let report = check(&system, &all);
            if report.schedulable != Answer::Yes {
                continue;
            }
            proven += 1;
            for test in &report.tests {
                assert!(test.tasks.iter().all(|task| task.wcrt.is_none_or(|wcrt| wcrt <= task.deadline)), "{test:#?}");
                let tardiness = test.figures.get("tardiness_ns");
                assert!(tardiness.is_none_or(|tardiness| *tardiness == serde_json::json!(0)), "{test:#?}");
                assert!(!test.verdict.why().contains("may be missed"), "{test:#?}");
            }
            let bounds = report.bounds(count).into_iter().zip(&system.tasks);
            assert!(bounds.clone().all(|(bound, task)| bound.is_none_or(|bound| bound <= task.deadline)));
            // The least of all that is proven.
            for (i, (bound, task)) in bounds.enumerate() {
                let least =
                    report.tests.iter().flat_map(|test| &test.tasks).filter(|entry| entry.id == TaskId(i as u32));
                assert_eq!(bound, least.filter_map(|entry| entry.wcrt).min(), "{}", task.name);
            }
        }
    }
    assert!(proven >= 4, "{proven}");
    // One that is tardy stays so.
    let late = System::local(2, Builtin::Edf, vec![task("a", 10, 7), task("b", 10, 7), task("c", 10, 6)]);
    let report = check(&late, &all);
    let tardy = report.tests.iter().find(|test| test.test == TestId::TardinessCva).unwrap();
    assert!(report.schedulable != Answer::Yes && tardy.verdict.why().contains("may be missed"), "{tardy:#?}");
}

#[test]
fn a_bound_that_a_legal_release_reaches_refutes() {
    let can = |name: &str, priority, t, d, c| Task {
        deadline: Span::from_us(d),
        arrival: Arrival::Sporadic,
        preemption: Preemption::Until(Span::from_us(c)),
        priority: Some(priority),
        ..Task::periodic(name, Span::from_us(t), Span::from_us(c))
    };
    let rta = |system: &System| {
        let report = plain(system);
        let why = report.tests.iter().find(|test| test.test == TestId::Rta).map(|test| test.verdict.why().to_owned());
        (report.schedulable, why.unwrap_or_default())
    };
    // Davis et al. 2007, Table 2: the second job of the last message.
    let mut tasks = vec![can("t0", 1, 250, 250, 100), can("t1", 2, 350, 325, 100), can("t2", 3, 350, 325, 100)];
    let late = "released together with all that is more important, job 2 of \"t2\" takes 350us; its deadline is 325us";
    assert_eq!(rta(&System::local(1, Builtin::Fp, tasks.clone())), (Answer::No, late.to_owned()));
    let shown = |system: &System| certify(system).is_ok_and(|certificate| verify::accept(system, &certificate).is_ok());
    assert!(shown(&System::local(1, Builtin::Fp, tasks.clone())));
    // With something that blocks, t1 is late; but not where that has come and gone at a fixed time.
    tasks[1].deadline = Span::from_us(299);
    tasks[2] = Task { deadline: ms(1), ..can("t2", 3, 700, 1000, 100) };
    let blocked = "released together with all that is more important, 1ns after \"t2\" has started a section of \
        100us, job 1 of \"t1\" takes 299.999us; its deadline is 299us";
    assert_eq!(rta(&System::local(1, Builtin::Fp, tasks.clone())), (Answer::No, blocked.to_owned()));
    assert!(shown(&System::local(1, Builtin::Fp, tasks.clone())));
    tasks[2].arrival = Arrival::Periodic;
    let (answer, why) = rta(&System::local(1, Builtin::Fp, tasks));
    assert_eq!((answer, why.as_str()), (Answer::Unknown, "\"t1\" may take up to 299.999us; its deadline is 299us"));
    // Preemptive, at the limit of what can be iterated.
    let periods =
        [999_999_937, 999_999_929, 999_999_893, 999_999_883, 999_999_797, 999_999_761, 999_999_757, 999_999_751];
    let near = |(i, t): (usize, &u64)| Task {
        arrival: Arrival::Sporadic,
        ..Task::periodic(&format!("t{i}"), Span::from_ns(*t), Span::from_ns(t / 8))
    };
    let near = System::local(1, Builtin::Rm, periods.iter().enumerate().map(near).collect());
    let (answer, why) = rta(&near);
    assert!(shown(&near));
    assert!(answer == Answer::No && why.contains("job 1 of \"t0\" takes 1.874999678s"), "{answer:?}: {why}");
    // Jitter brings jobs closer than their period.
    let jittery = Task { arrival: Arrival::Sporadic, jitter: ms(2), ..task("a", 4, 2) };
    let below = Task { arrival: Arrival::Sporadic, deadline: ms(6), ..task("b", 20, 3) };
    let (answer, why) = rta(&System::local(1, Builtin::Rm, vec![jittery, below]));
    assert!(
        answer == Answer::No && why.ends_with("job 1 of \"b\" takes 9ms; its deadline is 6ms"),
        "{answer:?}: {why}"
    );
}

#[test]
fn chains_on_several_cpus_are_proven_by_their_responses() {
    let after = |name: &str, before: u32, c: u64| Task { after: vec![TaskId(before)], ..task(name, 100, c) };
    // A deadline that is longer than releases may lie apart.
    let first = Task { deadline: ms(10), ..task("a", 100, 1) };
    let second = Task { deadline: ms(95), ..after("b", 0, 1) };
    // Deadlines by default, beside others.
    let default = vec![task("a", 100, 5), after("b", 0, 5), after("c", 1, 5), task("x", 20, 5), task("y", 30, 8)];
    for (system, bounds) in [
        (System::local(2, Builtin::Rm, vec![first.clone(), second.clone()]), Some(vec![1, 1])),
        (System::local(2, Builtin::Rm, default.clone()), None),
        (System::local(3, Builtin::Dm, default.clone()), None),
    ] {
        let report = plain(&system);
        assert_eq!(report.schedulable, Answer::Yes, "{report:#?}");
        let found: Vec<Option<Span>> = report.bounds(system.tasks.len());
        assert!(
            bounds.is_none_or(|bounds| found == bounds.into_iter().map(|bound| Some(ms(bound))).collect::<Vec<_>>())
        );
        let certificate = certify(&system).unwrap_or_else(|error| panic!("{error}"));
        assert!(verify::accept(&system, &certificate).is_ok());
    }
    let report = plain(&System::local(2, Builtin::Rm, default.clone()));
    let end = report.chain_bound("a -> b -> c").unwrap();
    assert!(end < ms(100) && end >= ms(15), "{end}");
    // Under EDF, too, responses are followed along chains; a deadline may be longer than releases lie apart.
    let report = plain(&System::local(2, Builtin::Edf, vec![first, second]));
    let why = report.tests[0].verdict.why();
    assert_eq!((report.schedulable, report.tests[0].test), (Answer::Yes, TestId::Gfb), "{why}");
    let report = plain(&System::local(2, Builtin::Edf, default));
    let end = report.chain_bound("a -> b -> c").unwrap();
    assert!(report.schedulable == Answer::Yes && end < ms(100) && end >= ms(15), "{report:#?}");
    // If responses are not bounded, the reason is given.
    let full = vec![task("a", 100, 60), after("b", 0, 60), task("x", 100, 70)];
    let report = plain(&System::local(2, Builtin::Edf, full));
    let whys: Vec<&str> = report.tests.iter().map(|test| test.verdict.why()).collect();
    assert!(
        report.schedulable == Answer::Unknown && whys.iter().any(|why| why.contains("its period is 100ms")),
        "{report:#?}"
    );
    let apart = vec![task("a", 100, 40), after("b", 0, 40)];
    assert_eq!(plain(&System::local(2, Builtin::Edf, apart)).schedulable, Answer::Yes);
}

#[test]
fn long_checks_tell_of_their_progress() {
    let mut system = System::local(2, Builtin::Edf, (0..300).map(|i| task(&format!("t{i}"), 1_000, 1)).collect());
    system.nodes[0].placement = Placement::Partitioned;
    let mut told = Vec::new();
    let report = check_watched(&system, &CheckOptions::default(), &mut |progress| told.push(progress));
    assert_eq!(report, plain(&system));
    use Progress::{Checked, Placed};
    assert_eq!(told, [Placed(0, 300), Placed(256, 300), Checked(0, 2), Checked(1, 2)]);
}

#[test]
fn a_strategy_without_a_test_is_unknown_with_a_reason() {
    for (strategy, cpus) in [(Builtin::Mlf, 2), (Builtin::Muf, 2), (Builtin::Mlf, 3)] {
        let report = plain(&System::local(cpus, strategy, vec![task("a", 10, 2), task("b", 20, 4), task("c", 20, 4)]));
        assert_eq!(report.schedulable, Answer::Unknown);
        let why = report.tests[0].verdict.why();
        assert!(why.contains(strategy.name()) && why.contains("CPU"), "{why}");
    }
    let mut system = System::local(1, Builtin::Edf, vec![task("a", 10, 2)]);
    system.components.push(Component {
        strategy: StrategyRef::Builtin(Builtin::Rm),
        ..Component::new("dom", NodeId(0), ServerRule::Crps)
    });
    let report = plain(&system);
    let unknown = |scope: &str| report.tests.iter().any(|t| t.scope == scope && t.verdict.answer() == Answer::Unknown);
    assert!(report.schedulable == Answer::Unknown && unknown("local/dom") && unknown("local"), "{report:#?}");
}

#[test]
fn laxity_levels_are_bounded() {
    let low = Task { criticality: Criticality::Low, ..task("low", 50, 10) };
    let tasks = vec![task("a", 10, 2), task("b", 20, 4), low.clone(), Task { name: "lower".to_owned(), ..low }];
    let bounds = |report: &CheckReport| (0..4).map(|i| report.bound_of(TaskId(i))).collect::<Vec<_>>();
    let report = plain(&System::local(1, Builtin::RmsMlf, tasks.clone()));
    assert_eq!(report.schedulable, Answer::Yes);
    assert_eq!(bounds(&report), [2, 6, 36, 36].map(|bound| Some(ms(bound))));
    let report = plain(&System::local(1, Builtin::Muf, tasks.clone()));
    assert_eq!(report.schedulable, Answer::Yes);
    assert_eq!(bounds(&report), [2, 6, 36, 36].map(|bound| Some(ms(bound))));
    let report = plain(&System::local(1, Builtin::Mlf, tasks));
    assert_eq!(report.schedulable, Answer::Yes);
    // The example of the documentation: released together, the short job waits for the long one,
    // compared at events only.
    let long = Task { deadline: ms(15), ..task("long", 40, 10) };
    let short = Task { deadline: ms(8), ..task("short", 40, 1) };
    let report = plain(&System::local(1, Builtin::Mlf, vec![long, short]));
    assert_eq!((report.schedulable, report.bound_of(TaskId(1))), (Answer::Unknown, Some(ms(11))));
}

#[test]
fn jobs_that_run_to_completion_block() {
    let mut system = System::local(1, Builtin::Muf, vec![task("fast", 25, 5), task("slow", 100, 30)]);
    assert_eq!(plain(&system).bound_of(TaskId(0)), Some(ms(5)));
    let laxity = Level { preemptive: false, ..Level::new(Filter::Rest, Discipline::Laxity) };
    system.strategies.push(Strategy { name: "own".to_owned(), levels: vec![laxity.clone()] });
    system.nodes[0].strategy = StrategyRef::Own(StrategyId(0));
    let report = plain(&system);
    // "slow" may have started a nanosecond before.
    assert_eq!(report.bound_of(TaskId(0)), Some(Span::from_ns(34_999_999)));
    assert_eq!(report.schedulable, Answer::Unknown);
    system.strategies[0].levels[0].discipline = Discipline::Deadline;
    let report = plain(&system);
    assert_eq!(report.bound_of(TaskId(0)), Some(Span::from_ns(34_999_999)));
    assert_eq!((report.schedulable, names(&report)), (Answer::Unknown, vec!["np-edf", "edf-wcrt"]));
    system.tasks.iter_mut().for_each(|task| task.arrival = Arrival::Sporadic);
    let report = plain(&system);
    assert_eq!(
        (report.schedulable, report.tests[0].verdict.why()),
        (
            Answer::No,
            "released together just after the longest job with a later deadline has started, the tasks find \
             34.999999ms to do within the first 25ms"
        )
    );
}

#[test]
fn chains_are_bounded_end_to_end() {
    let mut tasks = vec![task("camera", 40, 4), task("control", 20, 2), task("detect", 40, 8)];
    tasks[2].after = vec![TaskId(0)];
    let report = plain(&System::local(1, Builtin::Rm, tasks));
    assert_eq!(report.schedulable, Answer::Yes);
    // camera and detect share a level; both wait for control, and for each other.
    let bound = report.chain_bound("camera -> detect").unwrap();
    assert!(bound >= ms(14) && bound <= ms(40), "{bound}");
}

#[test]
fn costs_and_modes_are_charged_and_named() {
    let mut system = System::local(1, Builtin::Rm, vec![task("a", 10, 5), task("b", 20, 10)]);
    assert_eq!(plain(&system).schedulable, Answer::Yes);
    system.nodes[0].costs = Some(Costs { switch: Span::from_us(2), ..Costs::NONE });
    let report = plain(&system);
    assert_eq!(report.schedulable, Answer::Unknown, "costs are upper bounds: too little time is no proof of a miss");
    system.nodes[0].costs = None;
    let strategy = StrategyRef::Builtin(Builtin::Edf);
    system.modes.push(Mode { node: NodeId(0), at: Time::from_ns(2_000_000_000), strategy });
    let report = plain(&system);
    assert_eq!(report.schedulable, Answer::Unknown);
    assert!(report.tests[0].verdict.why().contains("the switch to \"edf\" at 2s is not covered"));
    let edf: Vec<_> = report.tests.iter().filter(|test| test.scope == "local@2s:edf").collect();
    assert_eq!(edf.last().unwrap().verdict.answer(), Answer::Yes);
}

#[test]
fn around_a_switch_no_strategy_bounds_or_refutes() {
    let tasks =
        vec![Task { priority: Some(2), ..task("fast", 10, 5) }, Task { priority: Some(1), ..task("slow", 40, 15) }];
    let mut system = System::local(1, Builtin::Fp, tasks);
    let alone = plain(&system);
    assert_eq!((alone.schedulable, alone.bound_of(TaskId(1))), (Answer::No, Some(ms(15))));
    // At once, so that the priorities never rule.
    let strategy = StrategyRef::Builtin(Builtin::Rm);
    system.modes.push(Mode { node: NodeId(0), at: Time::ZERO, strategy });
    let report = plain(&system);
    assert_eq!(report.schedulable, Answer::Unknown);
    assert_eq!((report.bound_of(TaskId(0)), report.bound_of(TaskId(1))), (None, None));
    // A refutation for all strategies stays.
    system.tasks[1].wcet = ms(30);
    assert_eq!(plain(&system).schedulable, Answer::No);
}

#[test]
fn partitions_follow_the_fit_and_say_what_did_not() {
    let mut system = System::local(2, Builtin::Edf, vec![task("a", 10, 6), task("b", 10, 5), task("c", 10, 4)]);
    system.nodes[0].placement = Placement::Partitioned;
    let cpus = |fit| {
        let mut system = system.clone();
        system.nodes[0].fit = fit;
        place(&system).map(|placed| {
            placed.system.tasks.iter().map(|task| task.cpus.unwrap().lowest().unwrap()).collect::<Vec<_>>()
        })
    };
    assert_eq!(cpus(Fit::FirstFit).unwrap(), [0, 1, 0]);
    assert_eq!(cpus(Fit::BestFit).unwrap(), [0, 1, 0]);
    assert_eq!(cpus(Fit::WorstFit).unwrap(), [0, 1, 1]);
    assert_eq!(cpus(Fit::NextFit).unwrap(), [0, 1, 1]);
    if cfg!(feature = "ilp") {
        assert_eq!(cpus(Fit::Ilp).unwrap(), [0, 1, 1]);
    } else {
        assert!(matches!(cpus(Fit::Ilp), Err(PlaceError::Ilp { .. })));
    }
    let report = plain(&system);
    let mut scopes: Vec<&str> = report.tests.iter().map(|test| test.scope.as_str()).collect();
    scopes.dedup();
    assert_eq!((report.schedulable, scopes), (Answer::Yes, vec!["local", "local/cpu0", "local/cpu1"]));

    system.tasks.iter_mut().for_each(|task| task.wcet = ms(6));
    let error = place(&system).unwrap_err().to_string();
    assert!(error.contains(" fits no CPU: cpu"), "{error}");
    let report = plain(&system);
    assert_eq!((report.schedulable, names(&report)[0]), (Answer::Unknown, "partition"));
}

#[test]
fn pinned_tasks_under_global_placement_are_a_partition() {
    let pin = |task: Task, cpu| Task { cpus: Some(CpuSet::range(cpu, cpu + 1)), ..task };
    let system = System::local(2, Builtin::Rm, vec![pin(task("a", 10, 5), 0), pin(task("b", 10, 6), 1)]);
    let report = plain(&system);
    assert_eq!(report.schedulable, Answer::Yes);
    assert_eq!(report.tests.last().unwrap().scope, "local/cpu1");
}

#[test]
fn time_for_ordinary_threads_is_reported_and_charged() {
    let asked = |machine, strategy, c, d| {
        let slow = Task { deadline: ms(d), ..task("b", 1000, 10) };
        let system = System::local(1, strategy, vec![task("a", 200, c), slow]);
        let report = check(&system, &CheckOptions { linux: Some(machine), ..Default::default() });
        let share = report.tests.iter().find_map(|test| test.figures.get("ordinary")).cloned().unwrap_or_default();
        let said = (share["kept"].as_bool(), share["charged"].as_str().map(str::to_owned));
        (said, report.schedulable, report.warnings.len())
    };
    let said = |kept: bool, charged: &str| (Some(kept), Some(charged.to_owned()));
    // 54 ms twice and 10 ms: 118 ms.
    let stock = LinuxMachine::stock(1);
    assert_eq!(asked(stock, Builtin::Rm, 92, 1000), (said(true, "above"), Answer::Yes, 1));
    assert_eq!(asked(stock, Builtin::Rm, 93, 1000), (said(true, "above"), Answer::Unknown, 1));
    // (950 + 200) / 200 + 1 jobs of 147 ms in 950 ms, of which 900 may be taken; 2 of "b".
    let starved = LinuxMachine { starved_only: true, ..stock };
    assert_eq!(asked(starved, Builtin::Rm, 93, 1000), (said(true, "nothing"), Answer::Yes, 1));
    assert_eq!(asked(starved, Builtin::Rm, 147, 1000), (said(false, "above"), Answer::Unknown, 1));
    // 8 ms of 8 ms leave no share, and 4 ms may be lost at once.
    assert_eq!(asked(stock, Builtin::Edf, 150, 1000), (said(false, "share"), Answer::Yes, 1));
    assert_eq!(asked(stock, Builtin::Edf, 1, 14), (said(true, "share"), Answer::Unknown, 1));
    assert_eq!(asked(stock, Builtin::Edf, 1, 16), (said(true, "share"), Answer::Yes, 1));
    let without = LinuxMachine { fair_server: None, ..stock };
    assert_eq!(asked(without, Builtin::Edf, 1, 12), (said(true, "nothing"), Answer::Yes, 0));
    // Throttled at 950 of 1000 ms: (1000 + 200) / 200 + 1 jobs.
    let older = LinuxMachine { throttles: true, ..without };
    assert_eq!(asked(older, Builtin::Rm, 130, 1000), (said(true, "nothing"), Answer::Yes, 0));
    assert_eq!(asked(older, Builtin::Rm, 135, 1000), (said(false, "above"), Answer::Unknown, 1));
    assert_eq!(asked(older, Builtin::Edf, 180, 1000), (said(false, "nothing"), Answer::Yes, 0));
    assert_eq!(asked(LinuxMachine { rt_runtime_us: None, ..older }, Builtin::Rm, 180, 1000).0, (None, None));
}

#[test]
fn the_machine_decides_whether_budgets_are_checked_at_ticks() {
    let asked = |tick, c| {
        let mut system = System::local(1, Builtin::Edf, vec![task("a", 200, c), task("video", 60, 6)]);
        let server = Component { period: Auto::Value(ms(20)), ..Component::new("v", NodeId(0), ServerRule::CbsHard) };
        system.components.push(Component { budget: Auto::Value(ms(4)), ..server });
        system.tasks[1].component = Some(ComponentId(0));
        let machine = LinuxMachine { fair_server: None, tick, ..LinuxMachine::stock(1) };
        let report = check(&system, &CheckOptions { linux: Some(machine), ..Default::default() });
        let late = report.tests.iter().find_map(|test| test.figures.get("late_ns")).and_then(serde_json::Value::as_u64);
        (late, report.schedulable, report.bound_of(TaskId(1)))
    };
    // 4 ms of each 20 ms, and as long as a tick more: 8 of 20; 38 ms where nothing is late.
    assert_eq!(asked(None, 116), (Some(4_000_000), Answer::Yes, Some(ms(42))));
    assert_eq!(asked(None, 118), (Some(4_000_000), Answer::Unknown, None));
    assert_eq!(asked(Some(ms(1)), 148), (Some(1_000_000), Answer::Yes, Some(ms(39))));
    // A runtime that costs may use up is told of.
    let mut system = System::local(1, Builtin::Edf, vec![task("a", 10, 2), task("b", 20, 2)]);
    let mut warned = |switch| {
        system.nodes[0].costs = Some(Costs { switch: Span::from_us(switch), ..Costs::NONE });
        let machine = LinuxMachine { fair_server: None, margin: Span::from_us(200), ..LinuxMachine::stock(1) };
        let report = check(&system, &CheckOptions { linux: Some(machine), ..Default::default() });
        report.warnings.iter().filter(|text| text.contains("take a larger --margin")).count()
    };
    assert_eq!((warned(0), warned(5), warned(100)), (0, 0, 2));
}

#[test]
fn the_system_files_ordinary_time_overrides_the_machines() {
    let mut system = System::local(1, Builtin::Rm, vec![task("a", 10, 3)]);
    let ordinary = |amount| Costs { ordinary: ms(amount), ordinary_period: ms(100), ..Costs::NONE };
    let mut asked = |amount, linux| {
        system.nodes[0].costs = Some(ordinary(amount));
        let report = check(&system, &CheckOptions { linux, ..Default::default() });
        (report.schedulable, report.bound_of(TaskId(0)))
    };
    for linux in [None, Some(LinuxMachine::stock(1))] {
        assert_eq!(asked(3, linux), (Answer::Yes, Some(ms(9))));
        assert_eq!(asked(4, linux), (Answer::Unknown, Some(ms(11))));
    }
    // Ordinary threads beside EDF on several CPUs, components and flows are charged or refused,
    // never forgotten.
    let mut pair = System::local(2, Builtin::Edf, vec![task("a", 10, 3), task("b", 10, 3), task("c", 10, 3)]);
    let yes = |system: &System| plain(system).schedulable == Answer::Yes;
    assert!(yes(&pair));
    pair.nodes[0].costs = Some(ordinary(4));
    assert!(!yes(&pair));
}

#[test]
fn the_kernel_counts_as_it_does() {
    let linux = |system: &System, machine| {
        let report = check(system, &CheckOptions { linux: Some(machine), ..Default::default() });
        report.tests.into_iter().filter(|test| test.test == TestId::Linux).collect::<Vec<_>>()
    };
    // 180 % on two CPUs: 95 % of each minus 5 % for the fair server.
    let pair = |c| System::local(2, Builtin::Edf, vec![task("a", 100, c), task("b", 100, c)]);
    assert_eq!(linux(&pair(89), LinuxMachine::stock(2))[0].verdict.answer(), Answer::Yes);
    let refused = &linux(&pair(91), LinuxMachine::stock(2))[0];
    assert_eq!(refused.verdict.why(), "b: the root domain's bandwidth is used up (EBUSY)");
    let unlimited = LinuxMachine { rt_runtime_us: None, ..LinuxMachine::stock(2) };
    assert_eq!(linux(&pair(99), unlimited)[0].verdict.answer(), Answer::Yes);

    let mut pinned = pair(10);
    pinned.tasks[0].cpus = Some(CpuSet::range(0, 1));
    assert!(linux(&pinned, LinuxMachine::stock(2))[0].verdict.why().contains("(EPERM)"));
    pinned.tasks[1].cpus = Some(CpuSet::range(1, 2));
    pinned.nodes[0].placement = Placement::Partitioned;
    let domains = linux(&pinned, LinuxMachine::stock(2));
    assert_eq!(
        domains.iter().map(|test| test.scope.as_str()).collect::<Vec<_>>(),
        ["local/linux/cpu0", "local/linux/cpu1"]
    );
    assert!(domains.iter().all(|test| test.verdict.answer() == Answer::Yes));

    // Unbound tasks are placed first. Without a place there is nothing to admit.
    let mut free = pair(80);
    free.nodes[0].placement = Placement::Partitioned;
    let domains = linux(&free, LinuxMachine::stock(2));
    assert!(domains.len() == 2 && domains.iter().all(|test| test.tasks.len() == 1));
    free.tasks.push(task("c", 100, 80));
    let nowhere = linux(&free, LinuxMachine::stock(2));
    assert!(nowhere.len() == 1 && nowhere[0].verdict.why().contains("no place was found"), "{nowhere:?}");

    let slow = System::local(1, Builtin::Edf, vec![task("slow", 5000, 1)]);
    assert_eq!(
        linux(&slow, LinuxMachine::stock(1))[0].verdict.why(),
        "slow: period 5s lies outside 100us to 4.194304s (EINVAL)"
    );
    let short = Task::periodic("short", Span::from_us(100), Span::from_ns(1000));
    assert!(
        linux(&System::local(1, Builtin::Edf, vec![short]), LinuxMachine::stock(1))[0]
            .verdict
            .why()
            .contains("1us is below 1.024us")
    );

    let levels = |n: u64| System::local(1, Builtin::Rm, (1..=n).map(|i| task(&format!("t{i}"), 1000 + i, 1)).collect());
    assert_eq!(linux(&levels(99), LinuxMachine::stock(1))[0].verdict.answer(), Answer::Yes);
    assert_eq!(linux(&levels(100), LinuxMachine::stock(1))[0].verdict.answer(), Answer::No);
}

/// Found by comparison with simulation: the successor's bound stood although its predecessor's deadline did not.
#[test]
fn no_bound_rests_on_a_deadline_that_is_not_proven() {
    let bound = |wcet| {
        let on = |cpu, task| Task { cpus: Some(CpuSet::range(cpu, cpu + 1)), ..task };
        let mut next = on(1, task("c", 10, 2));
        next.after = vec![TaskId(0)];
        let tasks = vec![on(0, task("a", 10, wcet)), on(0, task("b", 10, wcet)), next];
        let mut system = System::local(2, Builtin::Edf, tasks);
        system.nodes[0].placement = Placement::Partitioned;
        let report = plain(&system);
        (report.schedulable, report.bound_of(TaskId(2)).is_some())
    };
    assert_eq!(bound(4), (Answer::Yes, true));
    assert_eq!(bound(6), (Answer::No, false));
}

#[test]
fn offsets_decide_what_any_offsets_would_lose() {
    let mut tasks = vec![task("a", 4, 2), task("b", 4, 2)];
    tasks[1].deadline = ms(2);
    tasks[0].deadline = ms(2);
    tasks[1].offset = ms(2);
    for strategy in [Builtin::Rm, Builtin::Edf, Builtin::Fifo] {
        let report = plain(&System::local(1, strategy, tasks.clone()));
        assert_eq!((report.schedulable, *names(&report).last().unwrap()), (Answer::Yes, "offsets"), "{strategy:?}");
        assert!(
            report.warnings[0].contains("\"offsets\" holds only for the offsets of the file"),
            "{:?}",
            report.warnings
        );
    }
    tasks[1].offset = ms(1);
    let report = plain(&System::local(1, Builtin::Edf, tasks));
    assert_eq!(
        (report.schedulable, report.tests.last().unwrap().verdict.why()),
        (Answer::No, "job 0 of \"b\" takes 3ms; its deadline is 2ms")
    );
}

#[test]
fn priorities_that_would_do_are_named() {
    let fp = |name, t, c, d, priority| Task { priority: Some(priority), deadline: ms(d), ..task(name, t, c) };
    let system = System::local(1, Builtin::Fp, vec![fp("a", 100, 52, 110, 1), fp("b", 140, 52, 154, 2)]);
    let report = plain(&system);
    assert_eq!((report.schedulable, names(&report)), (Answer::No, vec!["ll-bound", "hyperbolic", "rta", "opa"]));
    assert_eq!(
        report.tests[3].figures["priorities"],
        serde_json::json!([{ "task": "b", "priority": 1 }, { "task": "a", "priority": 2 }])
    );
    let hopeless = System::local(1, Builtin::Fp, vec![fp("a", 10, 3, 4, 1), fp("b", 10, 3, 4, 2)]);
    let report = check(&hopeless, &CheckOptions { only: vec![TestId::Opa], ..Default::default() });
    assert_eq!(
        (report.schedulable, report.tests[0].verdict.why()),
        (Answer::No, "no priorities meet all deadlines: the least important of \"a\", \"b\" is late")
    );
}

#[test]
fn a_shared_level_of_sporadic_tasks_is_refuted_but_for_ties() {
    let fifo = |deadline: Span, arrival: Arrival| {
        let mut tasks = vec![task("a", 10, 2), task("b", 10, 3)];
        tasks[0].deadline = deadline;
        tasks.iter_mut().for_each(|task| task.arrival = arrival.clone());
        plain(&System::local(1, Builtin::Fifo, tasks)).schedulable
    };
    let ns = Span::from_ns;
    assert_eq!(fifo(ms(5), Arrival::Sporadic), Answer::Yes);
    // The order of a tie decides over the last nanosecond, and that is not looked at.
    assert_eq!(fifo(ns(4_999_999), Arrival::Sporadic), Answer::Unknown);
    assert_eq!(fifo(ns(4_999_998), Arrival::Sporadic), Answer::No);
    // Released together for ever, the first in the file goes first.
    assert_eq!(fifo(ns(4_999_998), Arrival::Periodic), Answer::Yes);
}

/// A comparison with simulation found this. A predecessor took no time and released its successor at
/// the instant at which another job had started. So the whole other job blocked the successor.
#[test]
fn a_successor_can_come_in_the_instant_in_which_another_job_starts() {
    let ns = Span::from_ns;
    let on = |cpu, name, t, c| Task {
        cpus: Some(CpuSet::range(cpu, cpu + 1)),
        deadline: ns(26),
        ..Task::periodic(name, ns(t), ns(c))
    };
    let mut tasks = vec![on(1, "before", 14, 1), on(0, "after", 14, 4), on(0, "other", 26, 2)];
    tasks[1].after = vec![TaskId(0)];
    tasks[1].deadline = ns(12);
    let mut system = System::local(2, Builtin::Edf, tasks);
    system.nodes[0].placement = Placement::Partitioned;
    let level = Level { preemptive: false, ..Level::new(Filter::Rest, Discipline::Deadline) };
    system.strategies.push(Strategy { name: "own".to_owned(), levels: vec![level] });
    system.nodes[0].strategy = StrategyRef::Own(StrategyId(0));
    assert_eq!(plain(&system).bound_of(TaskId(1)), Some(ns(6)));
}

fn parsed(text: &str) -> System {
    takt_model::file::parse(text, "system").unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn a_table_alone_needs_no_more_than_its_cpu() {
    for (wcet, answer) in [("5ms", Answer::Yes), ("6ms", Answer::Unknown)] {
        let table = format!("{{ period = \"10ms\", wcet = \"{wcet}\" }}");
        let node = format!("takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"edf\"\nreceive = {table}\nsend = {table}\n");
        assert_eq!(plain(&parsed(&node)).schedulable, answer, "{wcet}");
    }
}

#[test]
fn flows_that_late_timers_release_are_not_covered() {
    let flow = "[[flow]]\nname = \"f\"\npath = [\"n\"]\nsize = \"1KiB\"\nperiod = \"20ms\"\nwcet = \"8ms\"\n\
        deadline = \"10ms\"\n";
    for (latency, answer) in [("0ms", Answer::Yes), ("5ms", Answer::Unknown)] {
        let node = format!(
            "takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"edf\"\ncosts = {{ latency = \"{latency}\" }}\n{flow}"
        );
        assert_eq!(plain(&parsed(&node)).schedulable, answer, "{latency}");
    }
}

#[test]
fn a_deferrable_server_that_is_replenished_late_may_be_late() {
    // Twice 7 before 4 leave 2 of 20.
    let text = |latency: &str| {
        format!(
            "takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"rm\"\ncosts = {{ latency = \"{latency}\" }}\n[[task]]\n\
             name = \"hi\"\nperiod = \"11ms\"\nwcet = \"7ms\"\n\
             [[component]]\nname = \"s\"\nserver = \"deferrable\"\nperiod = \"20ms\"\nbudget = \"4ms\"\n\
             strategy = \"edf\"\n[[task]]\nname = \"in\"\ncomponent = \"s\"\nperiod = \"80ms\"\nwcet = \"4ms\"\n"
        )
    };
    assert_eq!(plain(&parsed(&text("0ms"))).schedulable, Answer::Yes);
    assert_ne!(plain(&parsed(&text("3ms"))).schedulable, Answer::Yes);
}

#[test]
fn the_share_of_jobs_in_time_counts_from_nominal_arrivals() {
    // The server may give 5 from 5 on and from 15 on: a job that is 5 late is done after 23.
    let text = "takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"edf\"\n[[component]]\nname = \"s\"\n\
        server = \"cbs-hard\"\nperiod = \"10ms\"\nbudget = \"5ms\"\nstrategy = \"edf\"\n\
        [[task]]\nname = \"in\"\ncomponent = \"s\"\nperiod = \"40ms\"\ndeadline = \"20ms\"\nwcet = \"10ms\"\n\
        exec = { pmf = [[\"9ms\", 0.5], [\"10ms\", 0.5]] }\n";
    let low = |text: &str| {
        let report = plain(&parsed(text));
        let cbs = report.tests.iter().find(|test| test.test.name() == "cbs").expect("a test of the server");
        cbs.figures["in_time"]["low"].as_f64()
    };
    assert_eq!(low(text), Some(1.0));
    assert_eq!(low(&format!("{text}jitter = \"5ms\"\n")), Some(0.0));
    let late = text.replace(
        "strategy = \"edf\"\n[[component]]",
        "strategy = \"edf\"\ncosts = { latency = \"5ms\" }\n[[component]]",
    );
    assert!(low(&late) < Some(1.0));
}

#[test]
fn beside_a_table_that_is_not_covered_nothing_is_bounded() {
    // The table takes both CPUs.
    let text = "takt = 1\n[[node]]\nname = \"n\"\ncpus = 2\nstrategy = \"edf\"\n\
        receive = { period = \"2ms\", wcet = \"2ms\" }\nsend = { period = \"2ms\", wcet = \"2ms\" }\n\
        [[task]]\nname = \"starved\"\nperiod = \"10ms\"\nwcet = \"1ms\"\n";
    let report = plain(&parsed(text));
    assert_eq!((report.schedulable, report.bound_of(TaskId(0))), (Answer::Unknown, None));
    assert!(report.tests.iter().all(|test| test.verdict.answer() == Answer::Unknown));
    assert!(report.tests.iter().flat_map(|test| &test.tasks).all(|task| task.verdict == Answer::Unknown));
}
