use takt_model::generate::Random;
use takt_model::{Auto, Builtin, Costs, NodeSpec, Placement, ServerRule, StrategyRef, TaskId};

use super::*;
use crate::brute::cases;
use crate::check::decide;

mod parts;

fn task(random: &mut Random, name: String, nodes: &[(NodeId, u32)]) -> Task {
    let t = random.between(10, 400);
    let c = random.between(1, (t / 4).max(1));
    let (node, cpus) = nodes[random.between(0, nodes.len() as u64 - 1) as usize];
    let mut task = Task::periodic(&name, Span::from_ns(t), Span::from_ns(c));
    task.node = node;
    task.priority = Some(random.between(1, 1000) as u32);
    if cpus > 1 {
        task.cpus = Some([random.between(0, u64::from(cpus) - 1) as u32].into_iter().collect());
    }
    if random.between(0, 1) == 0 {
        task.deadline = Span::from_ns(random.between(c, t + t / 2));
    }
    match random.between(0, 9) {
        0 => task.blocking = Span::from_ns(random.between(1, 5)),
        1 => task.jitter = Span::from_ns(random.between(1, 5)),
        2 => task.offset = Span::from_ns(random.between(0, t - 1)),
        _ => {}
    }
    task
}

fn empty(random: &mut Random) -> System {
    let builtins = [Builtin::Edf, Builtin::Edf, Builtin::Rm, Builtin::Dm, Builtin::Fp, Builtin::Fifo];
    let mut builtin = || StrategyRef::Builtin(builtins[random.between(0, 5) as usize]);
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.nodes[0].strategy = builtin();
    system.nodes.push(NodeSpec::new("two", 2, builtin()));
    system.nodes[1].placement = Placement::Partitioned;
    if random.between(0, 2) == 0 {
        let ns = Span::from_ns;
        let costs = Costs { switch: ns(1), release: ns(1), tick: ns(1), tick_period: ns(60), ..Costs::NONE };
        let (interrupt, latency) = (ns(random.between(0, 2)), ns(random.between(0, 5) / 4));
        system.nodes[0].costs = Some(Costs { interrupt, interrupt_period: ns(30), latency, ..costs });
    }
    system
}

#[test]
fn after_any_changes_it_says_what_check_says() {
    let mut random = Random::new(111);
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let (rounds, mut beyond) = (cases(25), 0);
    'rounds: for round in 0..rounds {
        let mut admission = Admission::new(empty(&mut random)).expect("nothing is proven");
        let nodes = [(NodeId(0), 1), (NodeId(1), 2)];
        for step in 0..30 {
            if random.between(0, 3) == 0 && !admission.system().tasks.is_empty() {
                let at = random.between(0, admission.system().tasks.len() as u64 - 1) as usize;
                let name = admission.system().tasks[at].name.clone();
                let mut expected = admission.system().clone();
                expected.tasks.remove(at);
                let removed = admission.remove(&name);
                assert_eq!(removed.is_ok(), decide(&expected) == Answer::Yes, "round {round}.{step}: {removed:?}");
                if removed.is_ok() {
                    assert_eq!(admission.system(), &expected);
                }
            } else {
                let count = random.between(1, 2);
                let tasks: Vec<Task> = (0..count).map(|k| task(&mut random, format!("t{step}-{k}"), &nodes)).collect();
                let mut expected = admission.system().clone();
                expected.tasks.extend(tasks.iter().cloned());
                let before = admission.system().clone();
                let added = admission.add(&tasks);
                let answer = decide(&expected);
                if added.is_ok() && answer == Answer::Unknown {
                    // More important tasks keep their proof by schedule, though the schedule is now
                    // too long to be followed again.
                    beyond += 1;
                    continue 'rounds;
                }
                let proven = answer == Answer::Yes;
                assert_eq!(added.is_ok(), proven, "round {round}.{step}: {added:?} {expected:?}");
                assert_eq!(admission.system(), if proven { &expected } else { &before });
                *seen.entry(added.map_or("refused", DecidedBy::name)).or_default() += 1;
            }
        }
        let report = admission.report();
        assert_eq!(report.schedulable, Answer::Yes);
        for (i, task) in admission.system().tasks.iter().enumerate() {
            if let Some(bound) = admission.response(&task.name) {
                assert_eq!(report.bound_of(TaskId(i as u32)), Some(bound), "round {round}: {task:?}");
                *seen.entry("responses").or_default() += 1;
            }
        }
    }
    for way in ["density", "bounds", "fixed-points", "demand", "check", "refused", "responses"] {
        assert!(seen.contains_key(way), "{way}: {seen:?}");
    }
    // One in 50,000 was seen.
    assert!(beyond * 10_000 <= rounds, "{beyond} of {rounds}");
}

/// Two tasks of one period are in time only by the order of their releases. Only their schedule
/// shows this. With a third task below, the schedule does not repeat for long.
#[test]
fn adding_a_less_important_task_keeps_proofs_by_schedule() {
    let ns = Span::from_ns;
    let task = |name, t: u64, d: u64, c: u64| Task { deadline: ns(d), ..Task::periodic(name, ns(t), ns(c)) };
    let above = vec![task("a", 216, 47, 45), task("b", 216, 319, 33), task("c", 334, 334, 59)];
    let mut admission = Admission::new(System::local(1, Builtin::Rm, above)).expect("by its schedule");
    assert_eq!(admission.add(&[task("d", 395, 395, 40)]), Ok(DecidedBy::Bounds));
    assert_eq!(decide(admission.system()), Answer::Unknown);
    assert!(admission.add(&[task("e", 100, 100, 10)]).is_err(), "not above them");
}

#[test]
fn interrupts_and_late_timers_count() {
    let ns = Span::from_ns;
    let interrupt = Costs { interrupt: ns(5), interrupt_period: ns(10), ..Costs::NONE };
    for costs in [interrupt, Costs { latency: ns(50), ..Costs::NONE }] {
        for builtin in [Builtin::Edf, Builtin::Rm] {
            let mut system = System::local(1, builtin, vec![Task::periodic("a", ns(100), ns(10))]);
            system.nodes[0].costs = Some(costs);
            let mut admission = Admission::new(system).expect("a is in time");
            assert!(admission.add(&[Task::periodic("b", ns(100), ns(60))]).is_err(), "{builtin:?} {costs:?}");
            assert!(admission.add(&[Task::periodic("b", ns(100), ns(1))]).is_ok(), "{builtin:?} {costs:?}");
        }
    }
}

#[test]
fn a_change_is_atomic_over_nodes() {
    let task = |name, node, c| Task { node, ..Task::periodic(name, Span::from_ms(10), Span::from_ms(c)) };
    let mut system = System::local(1, Builtin::Edf, vec![task("a", NodeId(0), 5)]);
    system.nodes.push(NodeSpec::new("second", 1, StrategyRef::Builtin(Builtin::Rm)));
    let mut admission = Admission::new(system.clone()).expect("half a CPU");
    let pair = [task("b", NodeId(0), 4), task("c", NodeId(1), 11)];
    assert!(matches!(admission.add(&pair), Err(Refusal::Invalid(_) | Refusal::NotProven(_))));
    assert_eq!(admission.system(), &system);
    let pair = [task("b", NodeId(0), 6), task("c", NodeId(1), 3)];
    let Err(Refusal::NotProven(why)) = admission.add(&pair) else { panic!("11 of 10") };
    assert!(why.contains("110 %"), "{why}");
    assert_eq!(admission.system(), &system);
    let pair = [task("b", NodeId(0), 5), task("c", NodeId(1), 3)];
    assert_eq!(admission.add(&pair), Ok(DecidedBy::Bounds));
    assert!(matches!(admission.add(&[task("b", NodeId(0), 1)]), Err(Refusal::Invalid(_))));
    assert!(matches!(admission.remove("x"), Err(Refusal::Invalid(_))));
    assert_eq!(admission.remove("b"), Ok(DecidedBy::Nothing));
    assert_eq!(admission.system().tasks.len(), 2);
}

#[test]
fn components_come_and_go_with_their_tasks() {
    let mut admission = Admission::new(System::local(1, Builtin::Rm, Vec::new())).expect("nothing");
    let component = |name: &str, budget| Component {
        strategy: StrategyRef::Builtin(Builtin::Rm),
        period: Auto::Value(Span::from_ms(10)),
        budget: Auto::Value(Span::from_ms(budget)),
        ..Component::new(name, NodeId(0), ServerRule::Ptps)
    };
    let inner = Task::periodic("inner", Span::from_ms(50), Span::from_ms(5));
    let with = |id: u32, component: Component, task: &Task| {
        let tasks = vec![Task { component: Some(ComponentId(id)), ..task.clone() }];
        Change { components: vec![component], tasks, ..Change::default() }
    };
    assert_eq!(admission.change(&with(0, component("one", 4), &inner)), Ok(DecidedBy::Check));
    assert_eq!(admission.system().tasks[0].component, Some(ComponentId(0)));
    let twin = Task { name: "twin".to_owned(), ..inner };
    assert!(admission.change(&with(1, component("two", 7), &twin)).is_err());
    assert_eq!(admission.change(&with(1, component("two", 4), &twin)), Ok(DecidedBy::Parts));
    let removal = |name: &str| Change { remove: vec![Part::Component(name.to_owned())], ..Change::default() };
    assert!(admission.change(&removal("three")).is_err());
    let Err(Refusal::Invalid(why)) = admission.change(&removal("one")) else { panic!("it holds a task") };
    assert_eq!(why, "component \"one\" holds task \"inner\"; remove its members before, or with it");
    let both =
        Change { remove: vec![Part::Component("one".to_owned()), Part::Task("inner".to_owned())], ..Change::default() };
    assert_eq!(admission.change(&both), Ok(DecidedBy::Parts));
    assert_eq!((admission.system().tasks.len(), admission.system().tasks[0].component), (1, Some(ComponentId(0))));
}
