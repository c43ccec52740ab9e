//! Sections that nothing preempts: charged where they are covered, refused where they are not.

use takt_analysis::verify::{Certificate, Rejected, accept};
use takt_analysis::{Admission, Answer, CheckOptions, certify, check, size};
use takt_model::{
    Auto, Builtin, Component, ComponentId, NodeId, Preemption, ServerRule, Span, StrategyRef, System, Task, TaskId,
};

fn task(name: &str, t: u64, c: u64, preemption: Preemption) -> Task {
    Task { preemption, ..Task::periodic(name, Span::from_ns(t), Span::from_ns(c)) }
}

fn until(last: u64) -> Preemption {
    Preemption::Until(Span::from_ns(last))
}

fn between(lengths: &[u64]) -> Preemption {
    Preemption::Between(lengths.iter().map(|length| Span::from_ns(*length)).collect())
}

fn bounds(system: &System) -> Vec<Option<u64>> {
    let report = check(system, &CheckOptions::default());
    (0..system.tasks.len()).map(|i| report.bound_of(TaskId(i as u32)).map(Span::as_ns)).collect()
}

#[test]
fn the_longest_section_of_a_less_important_task_blocks_once() {
    let system = |preemption| {
        System::local(1, Builtin::Rm, vec![task("hi", 10, 2, Preemption::Anywhere), task("lo", 100, 20, preemption)])
    };
    assert_eq!(bounds(&system(Preemption::Anywhere))[0], Some(2));
    // It has run for one unit.
    assert_eq!(bounds(&system(until(5)))[0], Some(6));
    assert_eq!(bounds(&system(between(&[3, 9, 8])))[0], Some(10));
    assert_eq!(check(&system(between(&[3, 10, 7])), &CheckOptions::default()).schedulable, Answer::Unknown);
    // Its own sections do not hold it up.
    assert_eq!(bounds(&system(until(1))), bounds(&system(Preemption::Anywhere)));
}

#[test]
fn a_last_section_shortens_the_own_response() {
    let system = |preemption| {
        System::local(1, Builtin::Rm, vec![task("hi", 4, 2, Preemption::Anywhere), task("lo", 12, 3, preemption)])
    };
    assert_eq!(bounds(&system(Preemption::Anywhere)), [Some(2), Some(7)]);
    assert_eq!(bounds(&system(until(3))), [Some(4), Some(5)]);
    assert_eq!(check(&system(until(3)), &CheckOptions::default()).schedulable, Answer::Yes);
    // Windows within which the last section has started; and one more, for the end of the busy window.
    let certificate = certify(&system(until(3))).expect("proven");
    assert!(serde_json::to_string(&certificate).expect("JSON").contains(r#""task":"lo","windows_ns":[5,7]"#));
}

#[test]
fn under_edf_a_section_blocks_closer_deadlines() {
    let system = |c| {
        System::local(1, Builtin::Edf, vec![task("a", 5, 2, Preemption::Anywhere), task("b", 20, c, between(&[c]))])
    };
    assert_eq!(check(&system(4), &CheckOptions::default()).schedulable, Answer::Yes);
    assert_eq!(check(&system(5), &CheckOptions::default()).schedulable, Answer::Unknown);
}

#[test]
fn uncovered_strategies_with_sections_are_not_proven() {
    let tasks = || vec![task("a", 10, 1, Preemption::Anywhere), task("b", 20, 2, until(2))];
    for (cpus, strategy) in [(2, Builtin::Edf), (2, Builtin::Rm), (1, Builtin::Mlf), (1, Builtin::Muf)] {
        let system = System::local(cpus, strategy, tasks());
        let report = check(&system, &CheckOptions { all: true, ..CheckOptions::default() });
        assert_eq!(report.schedulable, Answer::Unknown, "{cpus} {strategy:?}");
        assert!(report.tests.iter().any(|test| test.verdict.why().contains("\"b\" has sections")));
        let plain = |task: Task| Task { preemption: Preemption::Anywhere, ..task };
        let system = System::local(cpus, strategy, tasks().into_iter().map(plain).collect());
        assert_eq!(check(&system, &CheckOptions::default()).schedulable, Answer::Yes, "{cpus} {strategy:?}");
    }
    // Beside a server, and in one.
    for inside in [0, 1] {
        let mut system = System::local(1, Builtin::Rm, tasks());
        system.tasks[inside].component = Some(ComponentId(0));
        let component = Component::new("dom", NodeId(0), ServerRule::Ptps);
        let (period, budget) = (Auto::Value(Span::from_ns(5)), Auto::Value(Span::from_ns(2)));
        let strategy = StrategyRef::Builtin(Builtin::Rm);
        system.components.push(Component { period, budget, strategy, ..component });
        assert_eq!(check(&system, &CheckOptions::default()).schedulable, Answer::Unknown);
        system.components[0].budget = Auto::Auto;
        let sized = size(&system).map(|sized| check(&sized.system, &CheckOptions::default()).schedulable);
        assert!(sized.is_err() || sized == Ok(Answer::Unknown));
    }
}

#[test]
fn they_are_certified_and_quick_admission_leaves_them_to_check() {
    let hi = task("hi", 10, 5, Preemption::Anywhere);
    let system = System::local(1, Builtin::Rm, vec![hi, task("lo", 100, 20, until(5))]);
    assert_eq!(check(&system, &CheckOptions::default()).schedulable, Answer::Yes);
    let certificate = certify(&system).expect("proven");
    // A longer section is another claim.
    let mut longer = system.clone();
    longer.tasks[1].preemption = until(7);
    let forged = Certificate { system: takt_model::file::write(&longer), ..certificate };
    assert!(matches!(accept(&longer, &forged), Err(Rejected::Claim(_))));
    // Less important than all, and in their way for longer than "hi" has.
    let mut admission = Admission::new(system).expect("schedulable");
    assert!(admission.add(&[task("longer", 200, 10, until(7))]).is_err());
    assert!(admission.add(&[task("shorter", 200, 10, until(6))]).is_ok());
    let plain = System::local(1, Builtin::Edf, vec![task("hi", 10, 5, Preemption::Anywhere)]);
    let mut admission = Admission::new(plain).expect("schedulable");
    assert!(admission.add(&[task("longer", 200, 10, until(7))]).is_err());
}
