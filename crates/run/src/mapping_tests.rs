use super::*;
use crate::prepare::prepare;
use takt_model::{
    Builtin, Bytes, Criticality, Discipline, Filter, Late, Level, Probability, Split, Strategy, StrategyId,
    StrategyRef, TaskId, Trace,
};

const LIMITS: Limits = Limits {
    rt_runtime_us: 950_000,
    rt_period_us: 1_000_000,
    dl_period_min: Span::from_us(100),
    dl_period_max: Span::from_us(4_194_304),
};

fn task(name: &str, period_ms: u64, wcet_ms: u64) -> Task {
    Task::periodic(name, Span::from_ms(period_ms), Span::from_ms(wcet_ms))
}
fn options() -> RunOptions {
    RunOptions::new(Span::from_ms(100))
}
fn mapped(system: &System) -> Result<Mapping, String> {
    map(system, NodeId(0), &options(), &LIMITS, 4).map_err(|error| error.to_string())
}
fn classes(system: &System) -> Vec<String> {
    mapped(system).unwrap().tasks.iter().map(|task| task.class.describe()).collect()
}
fn own(levels: Vec<Level>, tasks: Vec<Task>) -> System {
    let mut system = System::local(1, Builtin::Rm, tasks);
    system.strategies.push(Strategy { name: "mine".into(), levels });
    system.nodes[0].strategy = StrategyRef::Own(StrategyId(0));
    system
}

#[test]
fn levels_become_priorities_the_most_important_with_the_largest_number() {
    let tasks = vec![task("slow", 40, 1), task("fast", 10, 1), task("slow too", 40, 1)];
    let system = System::local(1, Builtin::Rm, tasks);
    assert_eq!(classes(&system), ["SCHED_FIFO priority 47", "SCHED_FIFO priority 48", "SCHED_FIFO priority 47"]);
    let shares: Vec<bool> = mapped(&system).unwrap().tasks.iter().map(|task| task.yields).collect();
    assert_eq!(shares, [true, false, true]);
    let deadline = System::local(1, Builtin::Edf, vec![task("a", 10, 1), task("b", 20, 1)]);
    assert!(
        mapped(&deadline).unwrap().tasks.iter().all(|task| !task.yields),
        "yielding would sleep to the next period"
    );
    assert_eq!(fifo_priority(98, 0, 48), Some(98));
    assert_eq!(fifo_priority(98, 97, 48), Some(1));
    assert_eq!(fifo_priority(99, 0, 48), None);
}

#[test]
fn a_reservation_is_the_wcet_and_a_margin_within_the_deadline() {
    let of = |task: &Task| reservation(task, Margin::default(), &LIMITS).map_err(|error| error.to_string());
    let runtime = |task: &Task| of(task).unwrap().runtime;
    assert_eq!(runtime(&task("a", 100, 20)), Span::from_ms(21), "5 %");
    assert_eq!(runtime(&Task { wcet: Span::from_us(100), ..task("a", 10, 1) }), Span::from_us(300), "at least 200us");
    assert_eq!(runtime(&task("a", 10, 10)), Span::from_ms(10), "not past the deadline");
    let tight = Task { deadline: Span::from_ms(5), ..task("a", 10, 1) };
    assert_eq!(of(&tight).unwrap().deadline, Span::from_ms(5));
    let refused = |task: &Task| of(task).unwrap_err();
    assert_eq!(
        refused(&Task { deadline: Span::from_ms(20), ..task("a", 10, 1) }),
        "task \"a\" cannot run under SCHED_DEADLINE: its deadline 20ms exceeds its period 10ms, and the \
         kernel wants deadline <= period"
    );
    assert_eq!(
        refused(&task("a", 10, 11)),
        "task \"a\" cannot run under SCHED_DEADLINE: its wcet 11ms exceeds its deadline 10ms, and the \
         kernel wants runtime <= deadline"
    );
    assert_eq!(
        refused(&task("a", 5000, 1)),
        "task \"a\" cannot run under SCHED_DEADLINE: its period is 5s, and the kernel takes 100us to 4.194304s"
    );
}

#[test]
fn strategies_that_the_kernel_cannot_run_are_refused_by_name() {
    let refused = |system: &System| {
        let error = map(system, NodeId(0), &options(), &LIMITS, 4).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        error.to_string()
    };
    let tasks = || vec![task("a", 10, 1)];
    for (builtin, name) in [(Builtin::Mlf, "mlf"), (Builtin::Muf, "muf")] {
        let said = refused(&System::local(1, builtin, tasks()));
        assert!(said.starts_with(&format!("strategy \"{name}\" cannot be run")) && said.contains("laxity"), "{said}");
    }
    let both = vec![task("a", 10, 1), Task { criticality: Criticality::Low, ..task("b", 10, 1) }];
    assert!(refused(&System::local(1, Builtin::RmsMlf, both)).contains("laxity"));
    let fifo = || Level::new(Filter::Rest, Discipline::Fifo);
    assert!(refused(&own(vec![Level { late: Late::Drop, ..fifo() }], tasks())).contains("late = \"drop\""));
    assert!(refused(&own(vec![Level { late: Late::Demote, ..fifo() }], tasks())).contains("late = \"demote\""));
    // A task's own rule goes before its level's.
    let said = |late| tasks().into_iter().map(|task| Task { late, ..task }).collect::<Vec<_>>();
    assert!(refused(&own(vec![fifo()], said(Some(Late::Drop)))).contains("late = \"drop\""));
    let dropping = Level { late: Late::Drop, ..fifo() };
    assert!(mapped(&own(vec![dropping], said(Some(Late::Continue)))).is_ok());
    assert!(refused(&own(vec![Level { importance_ties: true, ..fifo() }], tasks())).contains("ties"));
    let shift = [("a".to_owned(), takt_model::Lateness::from_ns(-5))].into_iter().collect();
    let gel = Level::new(Filter::Rest, Discipline::Gel { shift });
    assert!(refused(&own(vec![gel], tasks())).contains("gel"));
    let mut cancel = System::local(1, Builtin::Rm, tasks());
    cancel.nodes[0].cancel = true;
    assert!(refused(&cancel).contains("cancel"));
    let larger = System::local(5, Builtin::Rm, tasks());
    assert_eq!(
        refused(&larger),
        "node \"local\" has 5 CPUs and this process may use 4; run it on a larger machine, or lower cpus"
    );
}

#[test]
fn best_effort_runs_any_strategy_and_says_what_is_not_enforced() {
    let free = RunOptions { best_effort: true, ..options() };
    let note = |system: &System| {
        let mapping = map(system, NodeId(0), &free, &LIMITS, 4).unwrap();
        assert!(mapping.tasks.iter().all(|task| task.class == Class::Other));
        assert!(mapping.domains.is_empty());
        mapping.notes.join("\n")
    };
    let both = vec![task("a", 10, 1), Task { criticality: Criticality::Low, ..task("b", 10, 1) }];
    assert_eq!(
        note(&System::local(1, Builtin::RmsMlf, both.clone())),
        "best effort: all threads run under SCHED_OTHER, which guarantees nothing; strategy \"rms+mlf\" is not enforced"
    );
    let high = Level::new(Filter::Named(vec!["a".into()]), Discipline::Fifo);
    let late = Level { late: Late::Drop, preemptive: false, ..Level::new(Filter::Rest, Discipline::Deadline) };
    let mut system = own(vec![high, late], both);
    system.nodes[0].cancel = true;
    let strategy = system.nodes[0].strategy;
    system.modes.push(takt_model::Mode { node: NodeId(0), at: takt_model::Time::from_ns(1), strategy });
    assert!(map(&system, NodeId(0), &options(), &LIMITS, 4).is_err());
    assert_eq!(
        note(&system),
        "best effort: all threads run under SCHED_OTHER, which guarantees nothing; strategy \"mine\" is \
         not enforced, nor are its modes; no job is cancelled; late jobs go on"
    );
}

#[test]
fn a_deadline_level_above_fifo_levels_takes_both_classes() {
    let levels = vec![
        Level::new(Filter::Named(vec!["a".into()]), Discipline::Deadline),
        Level { split: Split::Period, ..Level::new(Filter::Rest, Discipline::Fifo) },
    ];
    let system = own(levels.clone(), vec![task("a", 10, 1), task("b", 20, 1), task("c", 40, 1)]);
    // One CPU of four: a domain of its own, which the others fit into.
    let mapping = mapped(&system).unwrap();
    assert_eq!(mapping.domains, [CpuSet::first(1)]);
    assert!(mapping.tasks.iter().all(|task| task.domain == Some(0)));
    let said: Vec<String> = mapping.tasks.iter().map(|task| task.class.describe()).collect();
    assert_eq!(said[1..], ["SCHED_FIFO priority 48", "SCHED_FIFO priority 47"]);
    assert!(said[0].starts_with("SCHED_DEADLINE"));
    let turned = own(levels.into_iter().rev().collect(), vec![task("a", 10, 1)]);
    // All tasks go to the first level then, so the second is empty and there is nothing to refuse.
    assert!(mapped(&turned).is_ok());
}

#[test]
fn partitions_and_clusters_become_domains() {
    let on = |name: &str, cpus: std::ops::Range<u32>| Task {
        cpus: Some(CpuSet::range(cpus.start, cpus.end)),
        ..task(name, 10, 1)
    };
    let mut system = System::local(4, Builtin::Edf, vec![on("a", 0..1), on("b", 2..3), on("c", 0..1)]);
    system.nodes[0].placement = Placement::Partitioned;
    let mapping = mapped(&system).unwrap();
    assert_eq!(mapping.domains, [CpuSet::range(0, 1), CpuSet::range(2, 3)]);
    assert_eq!(mapping.tasks.iter().map(|task| task.domain).collect::<Vec<_>>(), [Some(0), Some(1), Some(0)]);
    let mut divided = mapping;
    divided.go_global(4, "no cpuset controller is mounted");
    assert!(divided.domains.is_empty() && divided.tasks.iter().all(|task| task.domain.is_none()));
    assert_eq!(
        divided.notes,
        ["global SCHED_DEADLINE on CPUs 0-3 was used instead of scheduling domains 0 | 2: no cpuset \
             controller is mounted"]
    );
    system.tasks[0].cpus = None;
    assert!(mapped(&system).unwrap_err().starts_with("task \"a\" is not placed: a partitioned node"));
    let global = System::local(4, Builtin::Edf, vec![task("a", 10, 1), task("b", 10, 1)]);
    assert_eq!(mapped(&global).unwrap().domains, [], "the whole machine needs no domain of its own");
    let overlapping = System::local(4, Builtin::Edf, vec![on("a", 0..2), on("b", 1..3)]);
    assert!(mapped(&overlapping).unwrap_err().contains("overlap"));
    let fixed = System::local(4, Builtin::Rm, vec![on("a", 0..2), on("b", 1..3)]);
    assert_eq!(mapped(&fixed).unwrap().domains, [], "SCHED_FIFO takes any affinity");
}

#[test]
fn arrivals_that_come_faster_than_the_period_count_as_they_come() {
    let refused = |tasks: Vec<Task>| mapped(&System::local(1, Builtin::Rm, tasks)).err().unwrap_or_default();
    let half = Probability::from_billionths(500_000_000).unwrap();
    let pmf =
        |first_ms, second_ms| Arrival::Pmf(vec![(Span::from_ms(first_ms), half), (Span::from_ms(second_ms), half)]);
    let bursty = Task { arrival: pmf(1, 3), ..task("bursty", 20, 2) };
    let spinning = Task::periodic("spinning", Span::from_us(2), Span::from_ns(1));
    assert!(refused(vec![spinning]).contains("500 %"), "to wake takes longer than 2 us");
    assert!(refused(vec![bursty.clone()]).contains("100 %"), "one job of 2 ms every 2 ms, whatever the period says");
    let sparse = Task { arrival: pmf(1, 99), ..bursty.clone() };
    assert_eq!(refused(vec![sparse.clone()]), "");
    let after = |before: Task| vec![before, Task { after: vec![TaskId(0)], ..task("next", 20, 1) }];
    let light = Task { wcet: Span::from_us(1), ..bursty };
    assert!(refused(after(Task { arrival: pmf(1, 1), ..light })).contains("CPUs 0 use 101 %"), "the chain's rate");
    assert_eq!(refused(after(sparse)), "");
    let values = [0, 1, 2, 3].map(Span::from_ms).into();
    let trace = Arrival::Trace(Trace { path: "a.csv".into(), values });
    assert!(refused(vec![Task { arrival: trace, ..task("traced", 20, 1) }]).contains("100 %"));
}

#[test]
fn an_overload_is_refused_unless_forced() {
    let system = System::local(2, Builtin::Rm, vec![task("a", 10, 9), task("b", 10, 9), task("c", 10, 2)]);
    let error = mapped(&system).unwrap_err();
    assert!(
        error.starts_with("the tasks of CPUs 0-1 use 100 % of them, and real-time threads may have 95 %"),
        "{error}"
    );
    let forced = RunOptions { force: true, ..options() };
    assert!(map(&system, NodeId(0), &forced, &LIMITS, 4).is_ok());
    let quiet = RunOptions { best_effort: true, ..options() };
    let mapping = map(&system, NodeId(0), &quiet, &LIMITS, 4).unwrap();
    assert!(mapping.tasks.iter().all(|task| task.class == Class::Other));
    let pinned = Task { cpus: Some(CpuSet::first(1)), ..task("a", 100, 96) };
    assert!(mapped(&System::local(2, Builtin::Rm, vec![pinned])).unwrap_err().contains("CPUs 0 use 96 %"));
    let longer = Task { exec: Exec::Uniform { min: Span::from_ms(1), max: Span::from_ms(10) }, ..task("a", 10, 1) };
    assert!(mapped(&System::local(1, Builtin::Rm, vec![longer])).is_err(), "what may really be used counts");
}

#[test]
fn a_node_is_chosen_and_parts_that_wait_for_later_versions_are_named() {
    let mut system = System::local(1, Builtin::Rm, vec![task("a", 10, 1)]);
    system.nodes.push(NodeSpec::new("n2", 1, StrategyRef::Builtin(Builtin::Rm)));
    let error = prepare(&system, &options()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert_eq!(
        error.to_string(),
        "the system has several nodes, and one machine runs one of them: choose with --node (local, n2)"
    );
    let second = RunOptions { node: Some(NodeId(1)), ..options() };
    assert_eq!(prepare(&system, &second).unwrap_err().to_string(), "node \"n2\" has no task to run");
    let flow = takt_model::Flow {
        name: "put".into(),
        path: vec![NodeId(0)],
        reply: false,
        period: Span::from_ms(1),
        wcet: Span::from_us(1),
        deadline: Span::from_ms(1),
        send_gap: Span::from_ms(1),
        hop_wcet: Span::from_us(1),
        size: Bytes::new(1),
        hop_deadlines: Vec::new(),
    };
    system.flows.push(flow);
    let first = RunOptions { node: Some(NodeId(0)), ..options() };
    assert!(prepare(&system, &first).unwrap_err().to_string().starts_with("this version cannot run flow \"put\": "));
}

#[test]
fn cpu_lists_read_as_the_kernel_writes_them() {
    assert_eq!(list(&[0, 1, 2, 5].into_iter().collect()), "0-2,5");
    assert_eq!(list(&CpuSet::EMPTY), "");
}
