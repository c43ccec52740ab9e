use super::*;
use crate::{Adaptive, Arrives, OperatingMode, Operation, Operations};
use proptest::prelude::{ProptestConfig, TestCaseError, any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as _;
use std::ops::RangeInclusive;
use takt_model::file::{parse, write};
use takt_model::{Builtin, Criticality, Discipline, Filter, Late, Level, Span, Split};

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}
fn periodic(name: &str, period_ms: u64, wcet_ms: u64) -> Operation {
    Operation::periodic(name, ms(period_ms)).wcet(ms(wcet_ms))
}
fn sporadic(name: &str, distance_ms: u64, wcet_ms: u64) -> Operation {
    Operation::sporadic(name, ms(distance_ms)).wcet(ms(wcet_ms))
}
fn set(operations: impl IntoIterator<Item = Operation>) -> Operations {
    Operations { operations: operations.into_iter().collect(), ..Operations::new("set") }
}
fn planned(operations: &Operations, strategy: Builtin) -> Plan {
    operations.compute(&strategy.strategy(), &Limits::default()).unwrap_or_else(|anomalies| panic!("{anomalies}"))
}
/// The anomalies of a set, a line each.
fn said(operations: &Operations, strategy: &Strategy) -> Vec<String> {
    let anomalies = operations.compute(strategy, &Limits::default()).unwrap_err();
    anomalies.to_string().lines().map(str::to_owned).collect()
}
fn said_of(system: &System) -> Vec<String> {
    let anomalies = Plan::compute(system, NodeId(0), &Limits::default()).unwrap_err();
    anomalies.to_string().lines().map(str::to_owned).collect()
}
fn level(filter: Filter, discipline: Discipline) -> Level {
    Level::new(filter, discipline)
}
fn own(levels: Vec<Level>) -> Strategy {
    Strategy { name: "mine".to_owned(), levels }
}
fn file(text: &str) -> System {
    parse(&format!("takt = 1\n{text}"), "test.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn levels_get_priorities_below_that_of_the_timers() {
    let plan = planned(&set([periodic("slow", 40, 1), periodic("fast", 10, 1)]), Builtin::Rm);
    assert_eq!((plan.timer_priority, plan.demoted_priority), (48, None));
    let rows: Vec<(&str, u32, u8)> = plan.rows.iter().map(|row| (row.name.as_str(), row.level, row.priority)).collect();
    assert_eq!(rows, [("slow", 1, 46), ("fast", 0, 47)]);
    let limits = Limits { priorities: 3..=5, threads: 2, ..Limits::default() };
    let operations = set([periodic("slow", 40, 1), periodic("fast", 10, 1)]);
    let plan = operations.compute(&Builtin::Rm.strategy(), &limits).unwrap();
    let levels: Vec<(u8, u32)> = plan.levels.iter().map(|level| (level.priority, level.threads)).collect();
    assert_eq!((plan.timer_priority, levels), (5, vec![(4, 2), (3, 2)]));
}

#[test]
fn late_jobs_are_demoted_below_all_levels() {
    let late = own(vec![Level { late: Late::Demote, ..level(Filter::Rest, Discipline::Deadline) }]);
    let plan = set([periodic("a", 10, 1)]).compute(&late, &Limits::default()).unwrap();
    assert_eq!((plan.levels[0].priority, plan.levels[0].late, plan.demoted_priority), (47, Late::Demote, Some(46)));
    assert!(plan.to_string().starts_with("strategy mine, run to completion; SCHED_FIFO: timers 48, demoted jobs 46\n"));
}

#[test]
fn subpriorities_follow_importance_where_ties_do() {
    let operations = || {
        let names = [("a", 1), ("b", 3), ("c", 3), ("d", 0)];
        set(names.map(|(name, importance)| periodic(name, 100, 1).importance(importance)))
    };
    let of = |ties| {
        let one = own(vec![Level { importance_ties: ties, ..level(Filter::Rest, Discipline::Laxity) }]);
        let plan = operations().compute(&one, &Limits::default()).unwrap();
        plan.rows.iter().map(|row| row.subpriority).collect::<Vec<_>>()
    };
    assert_eq!(of(true), [2, 0, 1, 3]);
    assert_eq!(of(false), [0, 1, 2, 3]);
}

#[test]
fn every_level_runs_to_completion_and_the_name_says_so() {
    let operations = set([periodic("a", 10, 1), periodic("b", 20, 1).backlog(3)]);
    let plan = planned(&operations, Builtin::Muf);
    assert_eq!(plan.strategy, "muf, run to completion");
    assert_eq!(plan.system.strategies.len(), 1);
    assert!(plan.system.strategies[0].levels.iter().all(|level| !level.preemptive));
    assert_eq!(plan.rows.iter().map(|row| row.backlog).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(operations.to_system(&Builtin::Muf.strategy()), Ok(plan.system.clone()));
    // Planning the planned System again changes nothing, except that a System has no backlogs.
    let again = Plan::compute(&plan.system, plan.node, &Limits::default()).unwrap();
    assert_eq!((&again.system, &again.levels), (&plan.system, &plan.levels));
    let complete = Strategy { name: "mine".to_owned(), ..plan.system.strategies[0].clone() };
    assert_eq!(operations.compute(&complete, &Limits::default()).unwrap().strategy, "mine");
}

#[test]
fn a_system_file_makes_the_plan_that_its_operations_make() {
    let system = file(
        "[[node]]\nname = \"local\"\ncpus = 2\nstrategy = \"rms+mlf\"\ncancel = true\n\
         [[task]]\nname = \"sense\"\ncpus = [1]\nperiod = \"25ms\"\nwcet = \"5ms\"\n\
         [[task]]\nname = \"act\"\ncpus = [1]\nafter = [\"sense\"]\nwcet = \"1ms\"\ndeadline = \"10ms\"\n\
         [[task]]\nname = \"log\"\ncpus = [0]\nperiod = \"50ms\"\nwcet = \"9ms\"\n\
         arrival = \"sporadic\"\ncriticality = \"low\"\n",
    );
    let of_file = Plan::compute(&system, NodeId(0), &Limits::default()).unwrap();
    let operations = set([
        periodic("sense", 25, 5).on_cpu(1),
        Operation::after("act", ["sense"]).wcet(ms(1)).deadline(ms(10)).on_cpu(1),
        sporadic("log", 50, 9).noncritical(),
    ]);
    let of_code = planned(&operations.cpus(2).cancel(true), Builtin::RmsMlf);
    assert_eq!(of_file.rows, of_code.rows);
    assert_eq!(of_file.levels, of_code.levels);
    assert!(of_file.cancel && of_code.cancel);
    assert_eq!(of_file.system.nodes, of_code.system.nodes, "bound to CPUs is partitioned");
    assert_eq!(
        of_code.to_string(),
        "\
strategy rms+mlf, run to completion; SCHED_FIFO: timers 48
cpu  level  discipline  priority  subpriority  operation  period  wcet  deadline  criticality
  1      0  fifo              47            0  sense        25ms   5ms      25ms  high
  1      0  fifo              47            1  act          25ms   1ms      10ms  high
  0      1  laxity            46            0  log        >=50ms   9ms      50ms  low
"
    );
}

#[test]
fn modes_have_tables_of_their_own_and_priorities_reach_for_the_deepest() {
    let mut system = file(
        "[[node]]\nname = \"n\"\nstrategy = \"edf\"\n[[node]]\nname = \"other\"\nstrategy = \"mine\"\n\
         [[strategy]]\nname = \"mine\"\nlevel = [{ tasks = \"rest\", split = \"period\", \
         discipline = \"deadline\", late = \"demote\" }]\n\
         [[mode]]\nnode = \"n\"\nat = \"2s\"\nstrategy = \"fifo\"\n\
         [[mode]]\nnode = \"n\"\nat = \"1s\"\nstrategy = \"mine\"\n\
         [[task]]\nname = \"a\"\nnode = \"n\"\nperiod = \"10ms\"\nwcet = \"1ms\"\n\
         [[task]]\nname = \"elsewhere\"\nnode = \"other\"\nperiod = \"10ms\"\nwcet = \"20ms\"\n\
         [[task]]\nname = \"b\"\nnode = \"n\"\nperiod = \"30ms\"\nwcet = \"1ms\"\n",
    );
    let plan = Plan::compute(&system, NodeId(0), &Limits::default()).unwrap();
    assert_eq!(
        plan.to_string(),
        "\
strategy edf, run to completion; SCHED_FIFO: timers 48, demoted jobs 45
level  discipline  priority  subpriority  operation  period  wcet  deadline  criticality
    0  deadline          47            0  a            10ms   1ms      10ms  high
    0  deadline          47            1  b            30ms   1ms      30ms  high
from 1s on strategy mine, run to completion
level  discipline  priority  subpriority  operation  period  wcet  deadline  criticality
    0  deadline          47            0  a            10ms   1ms      10ms  high
    1  deadline          46            0  b            30ms   1ms      30ms  high
from 2s on strategy fifo, run to completion
level  discipline  priority  subpriority  operation  period  wcet  deadline  criticality
    0  fifo              47            0  a            10ms   1ms      10ms  high
    0  fifo              47            1  b            30ms   1ms      30ms  high
"
    );
    // The other node keeps its strategy, and the planned System is a valid file.
    assert_eq!(plan.system.strategy_name(plan.system.nodes[1].strategy), "mine");
    assert_eq!(parse(&write(&plan.system), "again.toml"), Ok(plan.system));
    // A name in use is not used again.
    let taken = Strategy { name: "edf, run to completion".to_owned(), levels: Builtin::Rm.strategy().levels };
    system.strategies.push(taken);
    let plan = Plan::compute(&system, NodeId(0), &Limits::default()).unwrap();
    assert_eq!(plan.strategy, "edf, run to completion 2");
}

#[test]
fn an_overload_of_noncritical_operations_is_allowed() {
    let operations = set([periodic("a", 10, 8), periodic("b", 10, 8).noncritical()]);
    assert_eq!(planned(&operations, Builtin::Muf).levels.len(), 2);
    let limits = Limits { total_utilization_ppm: Some(1_600_000), ..Limits::default() };
    assert!(operations.compute(&Builtin::Muf.strategy(), &limits).is_ok(), "exactly what is allowed");
    let limits = Limits { noncritical_utilization_ppm: Some(799_999), ..Limits::default() };
    let anomalies = operations.compute(&Builtin::Muf.strategy(), &limits).unwrap_err();
    assert_eq!(
        anomalies.to_string(),
        "noncritical operations need 80 % of CPU 0, and may have 79.9999 %; lower their rates or wcets, move \
         some to another CPU, or allow overload"
    );
}

#[test]
fn all_errors_of_operations_are_reported_together() {
    let operations = set([
        Operation::periodic("", ms(1)).wcet(ms(1)),
        Operation::periodic("new\nline", ms(1)).wcet(ms(1)),
        periodic("a", 0, 0).deadline(Span::ZERO).offset(Span::from_s(200_000_000)).priority(0).backlog(0).on_cpu(2),
        periodic("twin", 10, 1),
        periodic("twin", 10, 1),
        periodic("twin", 10, 1),
        Operation::after("alone", Vec::<String>::new()).wcet(ms(1)),
        Operation { after: vec!["twin".to_owned()], ..periodic("both", 10, 1) },
        Operation::after("lost", ["nobody", "twin", "twin"]).wcet(ms(1)),
        Operation::after("egg", ["hen"]).wcet(ms(1)),
        Operation::after("hen", ["egg"]).wcet(ms(1)),
        Operation::after("self", ["self"]).wcet(ms(1)),
        Operation::after("joined", ["twin", "late"]).wcet(ms(1)),
        periodic("late", 20, 21),
        Operation::sporadic("push", Span::ZERO).wcet(ms(1)),
    ]);
    assert_eq!(
        said(&operations, &Builtin::Fp.strategy()),
        [
            "the name of operation number 1 is empty; give it one",
            "the name of operation number 2 holds a control character; names are one line of plain text",
            "a second operation is called \"twin\"; give each its own name",
            "period 0ns of operation \"a\" is out of range; it must be above zero",
            "offset 200000000s of operation \"a\" is out of range; the longest is 100000000s (about three years)",
            "wcet 0ns of operation \"a\" is out of range; it must be above zero",
            "deadline 0ns of operation \"a\" is out of range; it must be above zero",
            "priority 0 of operation \"a\" is out of range; 1 is the most important",
            "backlog 0 of operation \"a\" is out of range; at least 1 job must find a place",
            "cpu 2 of operation \"a\" is out of range; the set \"set\" has only CPU 0",
            "operation \"alone\" arrives after others and names none; name its predecessors, or give it a \
             period or a distance",
            "operation \"both\" comes after others and has a period or a distance of its own; keep one of the two",
            "operation \"lost\" comes after \"nobody\", which does not exist; add it, or correct the name",
            "operation \"lost\" comes after \"twin\" twice; once is enough",
            "distance 0ns of operation \"push\" is out of range; it must be above zero",
            "operations wait for each other in a circle: \"egg\" -> \"hen\" -> \"egg\"; one of them must not \
             come after the others",
            "operations wait for each other in a circle: \"self\" -> \"self\"; one of them must not come after \
             the others",
            "operation \"joined\" comes after \"twin\" with period 10ms and \"late\" with period 20ms; they \
             must have one period",
            "operation \"\" has no priority, which strategy \"fp\" needs; give it a priority, 1 is the most important",
            "operation \"new\\nline\" has no priority, which strategy \"fp\" needs; give it a priority, 1 is the most \
             important",
            "operation \"twin\" has no priority, which strategy \"fp\" needs; give it a priority, 1 is the most \
             important",
            "operation \"late\" has no priority, which strategy \"fp\" needs; give it a priority, 1 is the most \
             important",
            "critical operations need 335 % of CPU 0, and may have 100 %; lower their rates or wcets, move \
             some to another CPU, or call fewer critical",
            "wcet 21ms of operation \"late\" exceeds its deadline 20ms; shorten it, or give it more time",
        ]
    );
}

#[test]
fn errors_of_an_operation_set_are_reported() {
    let empty = Operations::new("").cpus(0);
    assert_eq!(
        said(&empty, &Builtin::Edf.strategy()),
        [
            "the name of the set of operations is empty; give it one",
            "cpus 0 of the set \"\" is out of range; a node has 1 to 256",
            "the set \"\" has no operation to dispatch; add at least one",
        ]
    );
    let wide = Operations { cpus: u32::MAX, ..set([periodic("a", 10, 1).on_cpu(7)]) };
    assert_eq!(
        said(&wide, &Builtin::Edf.strategy()),
        ["cpus 4294967295 of the set \"set\" is out of range; a node has 1 to 256"]
    );
    let two = set([periodic("a", 10, 1).on_cpu(2)]).cpus(2);
    assert_eq!(
        said(&two, &Builtin::Edf.strategy()),
        ["cpu 2 of operation \"a\" is out of range; the set \"set\" has CPUs 0 to 1"]
    );
}

#[test]
fn a_long_circle_is_told_in_part() {
    let circle = set((0..10).map(|i| Operation::after(&format!("t{i}"), [format!("t{}", (i + 9) % 10)]).wcet(ms(1))));
    let anomalies = circle.compute(&Builtin::Edf.strategy(), &Limits::default()).unwrap_err();
    let [Anomaly::Cycle { names }] = anomalies.0.as_slice() else { panic!("{anomalies}") };
    assert_eq!(names.len(), 10);
    assert_eq!(
        anomalies.to_string(),
        "operations wait for each other in a circle: \"t0\" -> \"t1\" -> \"t2\" -> \"t3\" -> \"t4\" -> \"t5\" \
         -> \"t6\" -> \"t7\" -> ... -> \"t0\" (10 in all); one of them must not come after the others"
    );
}

#[test]
fn a_strategy_that_does_not_fit_is_refused_for_each_operation() {
    let operations = set([periodic("a", 10, 1), periodic("b", 10, 1)]);
    let critical = Filter::Where { criticality: Some(Criticality::Low), importance: None, priority: None };
    assert_eq!(
        said(&operations, &own(vec![level(critical, Discipline::Fifo)])),
        [
            "strategy \"mine\" has no level for operation \"a\"; end its levels with one that takes the rest",
            "strategy \"mine\" has no level for operation \"b\"; end its levels with one that takes the rest",
        ]
    );
    // Faults that only the rules of files find.
    let named = level(Filter::Named(vec!["c".to_owned()]), Discipline::Fifo);
    assert_eq!(
        said(&operations, &own(vec![named, level(Filter::Rest, Discipline::Fifo)])),
        ["level 1 of strategy \"mine, run to completion\" names the task \"c\", which does not exist"]
    );
}

#[test]
fn limits_are_kept_or_refused() {
    let operations = set([
        periodic("a", 10, 6),
        periodic("b", 20, 6),
        periodic("c", 30, 10).noncritical(),
        periodic("d", 10, 1).on_cpu(1),
    ]);
    let operations = operations.cpus(2);
    let with = |limits: Limits| {
        let demote = Level { split: Split::Period, late: Late::Demote, ..level(Filter::Rest, Discipline::Fifo) };
        let anomalies = operations.compute(&own(vec![demote]), &limits).unwrap_err();
        anomalies.to_string().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        with(Limits { priorities: 10..=13, ..Limits::default() }),
        ["strategy \"mine\" needs 5 SCHED_FIFO priorities (3 for levels, 1 for timers, 1 for demoted jobs), \
             and there are 4; allow more (98 at most), or choose a strategy with fewer levels"]
    );
    assert_eq!(
        with(Limits {
            priorities: 0..=99,
            critical_utilization_ppm: 899_999,
            total_utilization_ppm: Some(1_233_333),
            ..Limits::default()
        }),
        [
            "SCHED_FIFO priorities 0 to 99 are out of range; 1 to 98 can be used, 99 is the kernel's own",
            "critical operations need 90 % of CPU 0, and may have 89.9999 %; lower their rates or wcets, move \
             some to another CPU, or call fewer critical",
            "operations need 123.3334 % of CPU 0, critical ones 90 % of it, and may have 123.3333 %; lower \
             their rates or wcets, move some to another CPU, or allow overload",
        ]
    );
    let none = set([periodic("a", 10, 1)]);
    let nothing = Limits { priorities: RangeInclusive::new(5, 4), threads: 0, ..Limits::default() };
    assert_eq!(
        none.compute(&Builtin::Edf.strategy(), &nothing).unwrap_err().to_string(),
        "threads 0 of the limits is out of range; a level has 1 to 256 on each CPU\n\
         strategy \"edf\" needs 2 SCHED_FIFO priorities (1 for levels, 1 for timers), and there are 0; \
         allow more (98 at most), or choose a strategy with fewer levels"
    );
}

#[test]
fn a_job_that_has_started_may_block_for_too_long() {
    let blocked = "critical operation \"a\" can wait 29.999999ms for \"b\", which runs to completion in the \
        same level of strategy \"edf\": with its wcet 1ms that exceeds \
        its deadline 25ms; separate their levels or CPUs, or split \"b\"";
    let edf = Builtin::Edf.strategy();
    // The erratum of [KOKYU]: U = 0.07, and still a deadline can be missed.
    let sporadic_pair = [sporadic("a", 25, 1), sporadic("b", 1000, 30)];
    assert_eq!(said(&set(sporadic_pair.clone()), &edf), [blocked]);
    // Noncritical operations block as well, but their own waiting is not reported.
    let [a, b] = sporadic_pair.clone();
    assert_eq!(said(&set([a.clone(), b.clone().noncritical()]), &edf), [blocked]);
    assert!(set([a.clone().noncritical(), b.clone()]).compute(&edf, &Limits::default()).is_ok());
    // The longest blocking is reported. Operations on another CPU or level do not block.
    assert_eq!(said(&set([a.clone(), sporadic("c", 1000, 29), b.clone()]), &edf), [blocked]);
    assert!(set([a.clone(), b.clone().on_cpu(1)]).cpus(2).compute(&edf, &Limits::default()).is_ok());
    assert!(set([a.clone(), b.clone().noncritical()]).compute(&Builtin::Muf.strategy(), &Limits::default()).is_ok());
    // Exactly in time.
    let spare = b.wcet(ms(24)).wcet(Span::from_ns(24_000_001));
    assert!(set([a, spare]).compute(&edf, &Limits::default()).is_ok());
}

#[test]
fn timers_meet_only_as_their_offsets_and_periods_let_them() {
    let edf = Builtin::Edf.strategy();
    let limits = Limits::default();
    let pair = |a: Operation, b: Operation| set([a, b]).compute(&edf, &limits).map_err(|error| error.to_string());
    // Both are released together each time, and "a" goes first. So no job of "b" runs when a job of
    // "a" arrives.
    assert!(pair(periodic("a", 1000, 1).deadline(ms(25)), periodic("b", 1000, 30)).is_ok());
    let told = pair(periodic("a", 1000, 1).deadline(ms(25)).offset(ms(2)), periodic("b", 1000, 30)).unwrap_err();
    assert!(told.contains("\"a\" can wait 28ms for \"b\""), "{told}");
    // "b" arrives at most 4 ms before some job of "a": gcd 6 ms, offsets 4 ms apart.
    let told = pair(periodic("a", 12, 1).deadline(ms(6)).offset(ms(4)), periodic("b", 90, 10)).unwrap_err();
    assert!(told.contains("\"a\" can wait 6ms for \"b\""), "{told}");
    assert!(pair(periodic("a", 12, 1).deadline(ms(7)).offset(ms(4)), periodic("b", 90, 10)).is_ok());
    // A pushed operation arrives at any time.
    assert!(pair(sporadic("a", 1000, 1).deadline(ms(25)), periodic("b", 1000, 30)).is_err());
}

#[test]
fn a_follower_is_blocked_only_where_its_predecessor_interrupts() {
    let follower = Operation::after("a", ["p"]).wcet(ms(1)).deadline(ms(10));
    let long = sporadic("b", 1000, 50);
    let edf = Builtin::Edf.strategy();
    // While "b" runs, "p" does not, so "a" does not arrive.
    let one_level = set([periodic("p", 100, 1), follower.clone(), long.clone()]);
    assert!(one_level.compute(&edf, &Limits::default()).is_ok());
    // From another CPU, or from a more important level.
    let other_cpu = set([periodic("p", 100, 1).on_cpu(1), follower.clone(), long.clone()]).cpus(2);
    let told = said(&other_cpu, &edf);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("\"a\" can wait 49.999996ms for \"b\""), "{told:?}");
    let levels = own(vec![
        level(Filter::Named(vec!["p".to_owned()]), Discipline::Fifo),
        level(Filter::Rest, Discipline::Deadline),
    ]);
    let told = said(&set([periodic("p", 100, 1), follower, long]), &levels);
    assert!(told.len() == 1 && told[0].contains("\"a\" can wait 49.999996ms for \"b\""), "{told:?}");
}

#[test]
fn ten_thousand_operations_are_planned() {
    // With a quadratic step this test would take minutes.
    let mut operations = set([periodic("t0", 1000, 1)]);
    for i in 1..10_000 {
        operations.add(Operation::after(&format!("t{i}"), [format!("t{}", i - 1)]).wcet(Span::from_ns(1)));
    }
    let plan = planned(&operations, Builtin::Edf);
    assert_eq!(plan.rows[9_999].subpriority, 9_999);
    let distinct = set((0..10_000).map(|i| periodic(&format!("t{i}"), 100_000 + i, 1)));
    assert_eq!(planned(&distinct, Builtin::Edf).levels.len(), 1);
}

/// After "t0", layers of two operations after the same predecessor, and then an operation after
/// both. Each layer doubles the number of paths.
fn diamonds(first: Operation, layers: u32) -> Operations {
    let mut operations = set([first]);
    for i in 0..layers {
        let after = |name: String, before: &[String]| Operation::after(&name, before).wcet(Span::from_ns(1));
        let sides = [format!("l{i}"), format!("r{i}")];
        for side in sides.clone() {
            operations.add(after(side, &[format!("t{i}")]));
        }
        operations.add(after(format!("t{}", i + 1), &sides));
    }
    operations
}

#[test]
fn ways_that_double_sixty_times_are_not_gone_one_by_one() {
    let first = periodic("t0", 1000, 1);
    let modes =
        diamonds(first.clone(), 60).mode(OperatingMode::new("fast", Builtin::Edf.strategy()).every("t0", ms(500)));
    assert_eq!(planned(&modes, Builtin::Edf).rows.len(), 181);
    let adaptive = |first: Operation| {
        let system = diamonds(first, 60).to_system(&Builtin::Rm.strategy()).unwrap();
        let guard = StrategyRef::Builtin(Builtin::RmsMlf);
        Plan::compute_adaptive(&system, NodeId(0), guard, &Limits::default()).unwrap().0
    };
    let (law, plan) = (Adaptive::between(0, 1), adaptive(first.clone()));
    assert_eq!(law.wrong(&plan), None);
    // The last operation has 120 predecessors, each within its deadline.
    let guarded = plan.guarded(1, "t60").unwrap();
    assert_eq!(guarded.tasks[180].jitter, ms(120 * 1000));
    let wrong = law.wrong(&adaptive(first.noncritical())).unwrap();
    assert!(wrong.contains("\"l0\" follows noncritical ones"), "{wrong}");
}

#[test]
fn unsupported_features_of_a_system_are_named() {
    let system = file(
        "[[node]]\nname = \"n\"\ncpus = 2\nreceive = { period = \"10ms\", wcet = \"1ms\" }\n\
         link = { rate = \"1Gbit\" }\n[[node]]\nname = \"m\"\n\
         [[component]]\nname = \"box\"\nnode = \"n\"\nserver = \"ptps\"\n\
         [[flow]]\nname = \"put\"\npath = [\"n\", \"m\"]\nperiod = \"10ms\"\nwcet = \"1ms\"\nsize = \"1B\"\n\
         [[task]]\nname = \"a\"\nnode = \"n\"\nperiod = \"10ms\"\nwcet = \"2ms\"\nfinal-section = \"1ms\"\n",
    );
    assert_eq!(
        said_of(&system),
        [
            "component \"box\" cannot be dispatched by this version: it has no servers; take its tasks out of it",
            "flow \"put\" cannot be dispatched by this version: it dispatches tasks and chains of one node; remove \
             the flow",
            "node \"n\" cannot be dispatched by this version: its receive and send tasks belong to flows; remove them",
            "sections of task \"a\" cannot be dispatched by this version: the kernel preempts it for more \
             important levels anywhere; remove final-section and sections",
            "task \"a\" is bound to no single CPU of node \"n\", and a dispatcher queues by CPU; write cpus = \
             [..] with one CPU, or placement = \"partitioned\" for the node, under which takt chooses",
        ]
    );
    let nobody = Plan::compute(&System::local(1, Builtin::Edf, vec![]), NodeId(0), &Limits::default()).unwrap_err();
    assert_eq!(nobody.to_string(), "node \"local\" has no operation to dispatch; add at least one");
    let nowhere = Plan::compute(&System::local(1, Builtin::Edf, vec![]), NodeId(3), &Limits::default()).unwrap_err();
    assert_eq!(nowhere.to_string(), "the system has no node number 3");
    let broken = System::local(1, Builtin::Edf, vec![Task::periodic("", ms(1), ms(1))]);
    assert_eq!(said_of(&broken), ["name of task 1 is empty; give a name"]);
}

/// A small set. Half of its operations have a special property. Periods divide 60 ms, so sums are
/// easy.
fn sets() -> impl proptest::strategy::Strategy<Value = Operations> {
    let operation = (0..6usize, 1..20u64, 0..30u64, 0..12u64, 0..4u32, 0..16u8, prop::collection::vec(0..7usize, 0..3));
    let operations = prop::collection::vec(operation, 1..7);
    (operations, 1..3u32, any::<bool>()).prop_map(|(operations, cpus, cancel)| {
        let mut set = Operations::new("random").cpus(cpus).cancel(cancel);
        for (i, (period, wcet, deadline, offset, importance, flags, after)) in operations.into_iter().enumerate() {
            let (name, period) = (format!("t{i}"), ms([4, 6, 10, 12, 20, 30][period]));
            let mut operation = match flags & 3 {
                0 => Operation::sporadic(&name, period),
                1 => Operation::after(&name, after.into_iter().map(|other| format!("t{other}"))),
                _ => Operation::periodic(&name, period).offset(Span::from_us(offset * 500)),
            };
            operation = operation.wcet(Span::from_us(wcet * 250)).importance(importance).on_cpu(importance % cpus);
            operation = operation.priority(1 + importance % 3).backlog(1 + importance);
            if deadline > 4 {
                operation = operation.deadline(ms(deadline));
            }
            set.add(if flags & 4 == 0 { operation } else { operation.noncritical() });
        }
        set
    })
}

fn strategies() -> impl proptest::strategy::Strategy<Value = Strategy> {
    (0..Builtin::ALL.len() + 1).prop_map(|at| match Builtin::ALL.get(at) {
        Some(builtin) => builtin.strategy(),
        None => own(vec![
            Level { split: Split::Importance, ..level(Filter::Named(vec!["t0".to_owned()]), Discipline::Laxity) },
            Level { importance_ties: true, late: Late::Demote, ..level(Filter::Rest, Discipline::Deadline) },
        ]),
    })
}

/// The faults of a set, found by examining each pair, path, level and release; by kind.
fn obvious(set: &Operations, strategy: &Strategy, limits: &Limits) -> [bool; 6] {
    let all = &set.operations;
    let find = |name: &String| all.iter().position(|other| other.name == *name);
    // Periods by walking back from each operation, for as many steps as there are operations.
    fn source(all: &[Operation], at: usize, steps: usize) -> Option<Span> {
        match all[at].arrival {
            Arrives::Periodic { period, .. } => Some(period),
            Arrives::Sporadic { distance } => Some(distance),
            Arrives::After if steps == 0 || all[at].after.is_empty() => None,
            Arrives::After => {
                let of = |name: &String| source(all, all.iter().position(|other| other.name == *name)?, steps - 1);
                let first = of(&all[at].after[0])?;
                all[at].after.iter().all(|name| of(name) == Some(first)).then_some(first)
            }
        }
    }
    let periods: Vec<Option<Span>> = (0..all.len()).map(|at| source(all, at, all.len())).collect();
    let unlike = |one: &Operation| {
        let mut names = one.after.clone();
        names.sort_unstable();
        names.dedup();
        names.len() < one.after.len() || one.after.iter().any(|name| find(name).is_none())
    };
    let structure = periods.contains(&None) || all.iter().any(unlike);
    let deadline = |at: usize| all[at].deadline.or(periods[at]).unwrap_or(Span::MAX);
    let late = (0..all.len()).any(|at| periods[at].is_some() && all[at].wcet > deadline(at) && !structure);
    // 60 ms is a multiple of each period.
    let load = |cpu: u32, low: bool| -> u64 {
        let here =
            (0..all.len()).filter(|at| all[*at].cpu == cpu && (low || all[*at].criticality == Criticality::High));
        here.filter_map(|at| Some(all[at].wcet.as_ns() * (ms(60).as_ns() / periods[at]?.as_ns()))).sum()
    };
    let full = |bound_ppm: u32| ms(60).as_ns() / 1_000_000 * u64::from(bound_ppm);
    let critical = (0..set.cpus).any(|cpu| load(cpu, false) > full(limits.critical_utilization_ppm));
    let total =
        limits.total_utilization_ppm.is_some_and(|bound| (0..set.cpus).any(|cpu| load(cpu, true) > full(bound)));
    let noncritical = |cpu| load(cpu, true) - load(cpu, false);
    let noncritical =
        limits.noncritical_utilization_ppm.is_some_and(|bound| (0..set.cpus).any(|cpu| noncritical(cpu) > full(bound)));
    let key = |at: usize| {
        let one = &all[at];
        let period = periods[at].unwrap_or_default().as_ns();
        let low = u64::from(one.criticality == Criticality::Low);
        match strategy.name.as_str() {
            "fp" => u64::from(one.priority.unwrap_or_default()),
            "rm" => period,
            "dm" => deadline(at).as_ns(),
            "muf" => low,
            "rms+mlf" => {
                if low == 1 {
                    u64::MAX
                } else {
                    period
                }
            }
            "mine" => u64::from(at > 0),
            _ => 0,
        }
    };
    let mut levels: Vec<u64> = (0..all.len()).map(key).collect();
    levels.sort_unstable();
    levels.dedup();
    let few = 1 + levels.len() + usize::from(strategy.name == "mine" && all.len() > 1) > limits.priorities.len();
    let few = few && !structure;
    [structure, late, critical && !structure, noncritical && !structure, total && !structure, few]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_plan_comes_out_where_nothing_obvious_is_wrong(
        set in sets(),
        strategy in strategies(),
        few in 2..6u8,
        bound in 1..5u32,
    ) {
        let (total, low) = ((bound < 4).then_some(bound * 500_000), (bound > 1).then_some(bound * 200_000));
        let limits = Limits {
            priorities: 1..=few, critical_utilization_ppm: bound * 250_000, total_utilization_ppm: total,
            noncritical_utilization_ppm: low, ..Limits::default()
        };
        let [structure, late, critical, noncritical, total, few] = obvious(&set, &strategy, &limits);
        let plan = set.compute(&strategy, &limits);
        let anomalies = plan.as_ref().err().map_or(&[][..], |anomalies| &anomalies.0);
        prop_assert!(plan.is_ok() || !anomalies.is_empty());
        let told = |kind: fn(&Anomaly) -> bool| anomalies.iter().any(kind);
        let structural = told(|one| matches!(
            one,
            Anomaly::Cycle { .. } | Anomaly::Unresolved { .. } | Anomaly::Twice { .. }
                | Anomaly::Periods { .. } | Anomaly::NoPredecessor { .. }
        ));
        prop_assert_eq!(structural, structure);
        if !structure {
            prop_assert_eq!(told(|one| matches!(one, Anomaly::WcetAboveDeadline { .. })), late);
            prop_assert_eq!(told(|one| matches!(one, Anomaly::CriticalUtilization { .. })), critical);
            prop_assert_eq!(told(|one| matches!(one, Anomaly::NoncriticalUtilization { .. })), noncritical);
            prop_assert_eq!(told(|one| matches!(one, Anomaly::TotalUtilization { .. })), total);
            prop_assert_eq!(told(|one| matches!(one, Anomaly::TooFewPriorities { .. })), few);
            let system = set.to_system(&strategy).unwrap();
            let text = write(&system);
            prop_assert_eq!(parse(&text, "written.toml"), Ok(system), "{}", text);
        }
        for anomaly in anomalies {
            prop_assert!(!anomaly.to_string().contains('\n'));
        }
        let Ok(plan) = plan else { return Ok(()) };
        nested(&plan, &limits)?;
        let again = Plan::compute(&plan.system, plan.node, &limits).unwrap();
        prop_assert_eq!(&again.system, &plan.system);
        prop_assert_eq!(again.to_string(), plan.to_string());
    }
}

/// Checks the levels as the model resolves them, descending priorities, and that each place is used
/// once.
fn nested(plan: &Plan, limits: &Limits) -> Result<(), TestCaseError> {
    let strategy = plan.system.strategy(plan.system.nodes[0].strategy);
    let resolved = plan::Plan::resolve(&plan.system, plan.node, &strategy).unwrap();
    prop_assert!(resolved.levels.iter().all(|level| !level.preemptive));
    let levels: Vec<u32> = plan.rows.iter().map(|row| row.level).collect();
    prop_assert_eq!(&levels, &resolved.tasks.iter().map(|task| task.level).collect::<Vec<_>>());
    let mut priorities = vec![plan.timer_priority];
    priorities.extend(plan.levels.iter().map(|level| level.priority));
    priorities.extend(plan.demoted_priority);
    prop_assert!(priorities.windows(2).all(|pair| pair[0] == pair[1] + 1), "{:?}", priorities);
    prop_assert!(priorities.iter().all(|priority| limits.priorities.contains(priority)));
    for (level, of) in (0..).zip(&plan.levels) {
        let mut here: Vec<&Row> = plan.rows.iter().filter(|row| row.level == level).collect();
        prop_assert!(here.iter().all(|row| row.priority == of.priority && row.order == of.discipline));
        here.sort_by_key(|row| row.subpriority);
        let places: Vec<u32> = here.iter().map(|row| row.subpriority).collect();
        prop_assert_eq!(places, (0..here.len() as u32).collect::<Vec<_>>());
        let importance = |row: &&Row| plan.system.tasks[row.task.index()].importance;
        let before = |a: &&Row, b: &&Row| {
            if of.importance_ties && importance(a) != importance(b) {
                importance(a) > importance(b)
            } else {
                a.task < b.task
            }
        };
        prop_assert!(here.windows(2).all(|pair| before(&pair[0], &pair[1])));
    }
    Ok(())
}

/// One critical task for each of these deadlines in ms.
fn by_deadlines(deadlines: &[u64]) -> Operations {
    let operation = |(at, deadline): (usize, &u64)| {
        Operation::periodic(&format!("t{at}"), ms(1000)).wcet(Span::from_us(1)).deadline(ms(*deadline))
    };
    Operations { operations: deadlines.iter().enumerate().map(operation).collect(), ..Operations::new("deep") }
}

#[test]
fn a_preemptive_level_has_as_many_priorities_as_its_jobs_nest() {
    let nested = |deadlines: &[u64], strategy: Builtin, priorities| {
        let limits = Limits { preemptive: true, priorities, ..Limits::default() };
        by_deadlines(deadlines).compute(&strategy.strategy(), &limits)
    };
    let depth = |deadlines: &[u64], strategy| nested(deadlines, strategy, 1..=98).unwrap().levels[0].nesting;
    assert_eq!(depth(&[5, 5, 7, 9, 9, 9], Builtin::Edf), 3, "equal deadlines do not preempt each other");
    assert_eq!(depth(&[5, 5, 7, 9, 9, 9], Builtin::Mlf), 6, "by laxity any may preempt any");
    assert_eq!(depth(&[5, 5, 7, 9, 9, 9], Builtin::Fifo), 1);
    let plan = nested(&[5, 7, 9], Builtin::Edf, 1..=48).unwrap();
    assert!(plan.to_string().contains("45-47"), "{plan}");
    assert_eq!(
        nested(&[5, 7, 9], Builtin::Edf, 1..=3).unwrap_err().to_string(),
        "strategy \"edf\" needs 4 SCHED_FIFO priorities (3 for levels, as deep as jobs preempt each other, 1 \
         for timers), and there are 3; allow more (98 at most), or let jobs of a level run to completion: \
         preemptive = false, which takt size --run-to-completion FILE -o FILE writes"
    );
    let many: Vec<u64> = (1..=98).map(|at| 10 + at).collect();
    assert!(nested(&many, Builtin::Mlf, 1..=98).is_err() && nested(&many, Builtin::Fifo, 1..=98).is_ok());
}
