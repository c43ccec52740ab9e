//! Work limits: each test counts the terms that it evaluates.

use takt_model::{
    Arrival, Auto, Builtin, Component, ComponentId, CpuSet, NodeId, ServerRule, StrategyRef, System, Task,
};

use super::*;
use crate::components::{Enforced, Tree};
use crate::scope::View;
use crate::verdict::{NODE_TERMS_MAX, TermBudget};

fn system(cpus: u32, strategy: Builtin) -> System {
    let task = |i: u64| Task {
        arrival: Arrival::Sporadic,
        deadline: ns(900 + 400 * i),
        ..Task::periodic(&format!("t{i}"), ns(1_000 + 400 * i), ns(300))
    };
    System::local(cpus, strategy, (0..4).map(task).collect())
}

fn units(system: &System) -> Vec<Unit> {
    View::new(system, NodeId(0), system.nodes[0].strategy, "n".to_owned()).expect("a view").units
}

/// The terms that the next test may evaluate.
fn granted(unit: &Unit) -> u64 {
    unit.terms.run(u64::MAX, |left| *left)
}

#[test]
fn the_units_of_a_node_share_its_work_limit() {
    let mut system = system(8, Builtin::Edf);
    assert_eq!(granted(&units(&system)[0]), NODE_TERMS_MAX);
    for (i, task) in system.tasks.iter_mut().enumerate() {
        task.cpus = Some([i as u32 / 2].into_iter().collect::<CpuSet>());
    }
    let units = units(&system);
    assert_eq!(units.iter().map(granted).collect::<Vec<_>>(), [NODE_TERMS_MAX / 8; 2]);
    // The next test has less.
    let carried = ChainBounds::by_deadlines(&system);
    assert_eq!(apply(TestId::Qpa, &units[0], &carried).verdict.answer(), Answer::Yes);
    let spent = units[0].terms.spent();
    assert!(spent > 0 && granted(&units[0]) == NODE_TERMS_MAX / 8 - spent, "{spent}");
    // A test that only adds bounds leaves nine tenths to others.
    units[0].terms.renew();
    units[0].terms.decide(false);
    assert_eq!(granted(&units[0]), NODE_TERMS_MAX / 80);
}

#[test]
fn a_test_that_runs_out_of_work_says_so() {
    use TestId::{Bak, Bcl, BclIterative, DaLc, EdfWcrt, NpEdf, Opa, Qpa, Rta, RtaGlobal, RtaLc};
    let cases: [(u32, Builtin, &[TestId]); 4] = [
        (1, Builtin::Edf, &[Qpa, EdfWcrt]),
        (1, Builtin::Dm, &[Rta, Opa]),
        (2, Builtin::Edf, &[Bak, Bcl, BclIterative, RtaGlobal]),
        (2, Builtin::Dm, &[Bcl, BclIterative, DaLc, RtaGlobal, RtaLc]),
    ];
    for (cpus, strategy, tests) in cases {
        let system = system(cpus, strategy);
        let carried = ChainBounds::by_deadlines(&system);
        for test in tests {
            let unit = |terms| Unit { terms: TermBudget::new(terms), ..units(&system).remove(0) };
            let (few, enough) = (unit(3), unit(NODE_TERMS_MAX));
            let report = apply(*test, &few, &carried);
            assert_eq!(report.verdict.answer(), Answer::Unknown, "{test:?}: {report:?}");
            assert!(report.verdict.why().contains("work limit"), "{test:?}: {report:?}");
            let report = apply(*test, &enough, &carried);
            assert!(!report.verdict.why().contains("work limit"), "{test:?}: {report:?}");
            assert!((4..10_000).contains(&enough.terms.spent()), "{test:?}: {}", enough.terms.spent());
        }
    }
    let system = system(1, Builtin::Edf);
    let mut unit = units(&system).remove(0);
    unit.levels[0].preemptive = false;
    unit.terms = TermBudget::new(3);
    let report = apply(NpEdf, &unit, &ChainBounds::by_deadlines(&system));
    assert_eq!(report.verdict.why(), "undecided: the work limit was reached");
}

/// A component with three tasks, or one task, on `cpus` CPUs.
fn component_unit(strategy: Builtin, server: ServerRule, cpus: u32, tasks: u64) -> (Unit, ChainBounds) {
    // Shorter on one CPU, so that demand is looked at below the horizon, and not all jobs fit into one busy window.
    let (shortest, least) = match (cpus, strategy) {
        (1, Builtin::Rm) => (407, 807),
        (1, _) => (307, 1_007),
        _ => (907, 1_007),
    };
    let mut system = System::local(cpus, Builtin::Edf, Vec::new());
    let (period, budget) = (Auto::Value(ns(100)), Auto::Value(ns(61 * u64::from(cpus))));
    let strategy = StrategyRef::Builtin(strategy);
    let component = Component::new("c", NodeId(0), server);
    system.components.push(Component { strategy, period, budget, cpus, ..component });
    for i in 0..tasks {
        let (arrival, component) = (Arrival::Sporadic, Some(ComponentId(0)));
        let task = Task::periodic(&format!("t{i}"), ns(least + 400 * i), ns(190));
        system.tasks.push(Task { arrival, component, deadline: ns(shortest + 400 * i), ..task });
    }
    let tree = Tree::new(&system);
    let mut view = View::new(&tree.system, NodeId(0), system.nodes[0].strategy, "n".to_owned()).expect("a view");
    tree.add_components(&mut view, NodeId(0), Enforced::default());
    let unit = view.units.into_iter().find(|unit| unit.served.is_some()).expect("the component");
    (unit, ChainBounds::by_deadlines(&tree.system))
}

#[test]
fn tests_of_components_share_the_work_limit_of_their_node() {
    let cases = [
        (TestId::Prm, Builtin::Rm, ServerRule::Ptps, 1),
        (TestId::Prm, Builtin::Edf, ServerRule::Ptps, 1),
        (TestId::Mpr, Builtin::Rm, ServerRule::Ptps, 2),
        (TestId::Mpr, Builtin::Edf, ServerRule::Ptps, 2),
    ];
    for (test, strategy, server, cpus) in cases {
        let (whole, carried) = component_unit(strategy, server, cpus, 3);
        let few = Unit { terms: TermBudget::new(3), ..whole.clone() };
        let report = apply(test, &few, &carried);
        assert!(report.verdict.why().contains("work limit"), "{test:?}: {report:?}");
        let report = apply(test, &whole, &carried);
        assert!(!report.verdict.why().contains("work limit"), "{test:?}: {report:?}");
        assert!((4..10_000).contains(&whole.terms.spent()), "{test:?}: {}", whole.terms.spent());
    }
}

/// Past its limit of jobs `cbs` has a bound in closed form, which is no less.
#[test]
fn a_task_alone_in_a_server_spends_a_term_for_each_job() {
    let (whole, carried) = component_unit(Builtin::Edf, ServerRule::Cbs, 1, 1);
    let bound = |report: &TestReport| report.tasks[0].wcrt.expect("a bound");
    let exact = apply(TestId::Cbs, &whole, &carried);
    assert!(whole.terms.spent() >= 2, "{}", whole.terms.spent());
    let none = Unit { terms: TermBudget::new(0), ..whole };
    let closed = apply(TestId::Cbs, &none, &carried);
    assert!(bound(&closed) >= bound(&exact) && none.terms.spent() == 0, "{closed:?} {exact:?}");
}
