//! Components under servers: what `check` says, held against a whole system of servers in unit slots.

use takt_analysis::{Answer, CheckOptions, CheckReport, SizeError, TestId, check, size};
use takt_model::generate::Random;
use takt_model::{
    Arrival, Auto, Builtin, Component, ComponentId, Costs, NodeId, Placement, ServerRule, Span, StrategyRef, System,
    Task, TaskId,
};

mod world;

use world::{World, arrivals};

fn component(name: &str, strategy: Builtin, server: ServerRule, period: u64, budget: u64) -> Component {
    Component {
        strategy: StrategyRef::Builtin(strategy),
        period: Auto::Value(Span::from_ns(period)),
        budget: Auto::Value(Span::from_ns(budget)),
        ..Component::new(name, NodeId(0), server)
    }
}

fn task(name: &str, t: u64, c: u64, inside: Option<u32>) -> Task {
    Task { component: inside.map(ComponentId), ..Task::periodic(name, Span::from_ns(t), Span::from_ns(c)) }
}

fn plain(system: &System) -> CheckReport {
    check(system, &CheckOptions::default())
}

fn value(auto: Auto<Span>) -> u64 {
    auto.given().expect("given").as_ns()
}

/// A random tree of up to four components.
fn random_system(random: &mut Random) -> System {
    let orders = [Builtin::Rm, Builtin::Edf];
    let root = orders[random.between(0, 1) as usize];
    let mut system = System::local(1, root, Vec::new());
    // Servers that charge each other stand among their like.
    let rules: &[ServerRule] = match random.between(0, 3) {
        0 => &[ServerRule::Wcps],
        1 => &[ServerRule::Crps],
        _ => &[
            ServerRule::Ptps,
            ServerRule::Polling,
            ServerRule::Deferrable,
            ServerRule::Sporadic,
            ServerRule::Cbs,
            ServerRule::CbsHard,
        ],
    };
    for i in 0..random.between(1, 3) {
        let rule = rules[random.between(0, rules.len() as u64 - 1) as usize];
        let period = random.between(2, 10);
        let budget = random.between(1, (period / 2).max(1));
        let name = format!("c{i}");
        system.components.push(component(&name, orders[random.between(0, 1) as usize], rule, period, budget));
    }
    if random.between(0, 2) == 0 {
        let rule = rules[random.between(0, rules.len() as u64 - 1) as usize];
        let outer = value(system.components[0].period);
        let period = outer * random.between(2, 5);
        let mut inner =
            component("inner", orders[random.between(0, 1) as usize], rule, period, random.between(1, outer));
        inner.parent = Some(ComponentId(0));
        system.components.push(inner);
    }
    let periodic = random.between(0, 2) == 0;
    for i in 0..system.components.len() as u32 {
        let server = value(system.components[i as usize].period);
        for k in 0..random.between(1, 2) {
            let t = if periodic { server * random.between(2, 8) } else { random.between(2 * server, 60) };
            let c = random.between(1, (t / 8).max(1));
            let mut one = task(&format!("t{i}{k}"), t, c, Some(i));
            one.deadline = Span::from_ns(random.between((t / 2).max(c), t));
            one.arrival = if periodic { Arrival::Periodic } else { Arrival::Sporadic };
            system.tasks.push(one);
        }
    }
    if random.between(0, 1) == 0 {
        system.tasks.push(Task {
            arrival: Arrival::Sporadic,
            ..task("beside", random.between(5, 40), random.between(1, 2), None)
        });
    }
    system
}

#[test]
fn proofs_hold_under_every_server_rule() {
    let mut random = Random::new(7);
    let mut proven = std::collections::BTreeMap::<&str, u64>::new();
    let (mut yes, mut aligned, mut missed) = (0, 0, 0);
    let cases = cases(2_500);
    for _ in 0..cases {
        let system = random_system(&mut random);
        let report = plain(&system);
        // A scope that is proven supposes that the level above is: take whole systems.
        if report.schedulable != Answer::Yes {
            let mut world = World::new(&system);
            world.simulate(&arrivals(&system, &mut random, 400), 400);
            missed += u64::from(world.miss.is_some());
            // Bounds hold even without a verdict.
            world.hold(&report);
            continue;
        }
        yes += 1;
        aligned +=
            u64::from(report.tests.iter().any(|test| test.figures.get("supply").is_some_and(|s| s == "aligned")));
        for component in &system.components {
            *proven.entry(component.server.name()).or_default() += 1;
        }
        for _ in 0..5 {
            let mut world = World::new(&system);
            world.simulate(&arrivals(&system, &mut random, 400), 400);
            assert_eq!(world.miss, None, "{}\n{report:#?}", takt_model::file::write(&system));
            world.hold(&report);
        }
    }
    println!("{yes} proven, {aligned} by alignment: {proven:?}; of the others {missed} missed at once");
    assert!(yes > cases / 5 && aligned > cases / 50 && missed > cases / 20, "{yes} {aligned} {missed}");
    assert!(proven.len() == 8 && proven.values().all(|count| *count > cases / 200), "{proven:?}");
}

/// How many random systems to try: `TAKT_CASES`, or so many.
fn cases(default: u64) -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

fn scopes(report: &CheckReport) -> Vec<(&str, &str, Answer)> {
    report.tests.iter().map(|test| (test.test.name(), test.scope.as_str(), test.verdict.answer())).collect()
}

fn two_levels() -> System {
    let mut system = System::local(1, Builtin::Rm, vec![task("beside", 40, 4, None)]);
    system.components.push(component("outer", Builtin::Rm, ServerRule::Ptps, 10, 6));
    let mut inner = component("inner", Builtin::Edf, ServerRule::Polling, 20, 5);
    inner.parent = Some(ComponentId(0));
    system.components.push(inner);
    system.tasks.push(Task { offset: Span::from_ns(1), ..task("a", 50, 8, Some(0)) });
    system.tasks.push(task("b", 90, 5, Some(1)));
    system
}

#[test]
fn every_level_is_a_scope_of_its_own() {
    let report = plain(&two_levels());
    assert_eq!(
        scopes(&report),
        [
            ("ll-bound", "local", Answer::Yes),
            ("rta", "local", Answer::Yes),
            ("prm", "local/outer", Answer::Yes),
            ("prm", "local/outer/inner", Answer::Yes)
        ]
    );
    assert_eq!(report.schedulable, Answer::Yes);
    let outer = &report.tests[2];
    // A gap of 2 (10 - 6), then 6 of every 10. "inner" needs 5: at 8 + 5. "a" needs 8 and 5 of it:
    // 13, by 8 + 2 * 10 + 1 = 29, when "inner" has come again: 18, by 34.
    assert_eq!(outer.figures["servers"][0]["component"], "inner");
    assert_eq!(outer.figures["servers"][0]["wcrt_ns"], 13);
    assert_eq!(report.bound_of(TaskId(1)), Some(Span::from_ns(34)));
    assert_eq!(outer.figures["supply"], "prm");
    assert_eq!(report.tests[3].figures["supply"], "polled");
}

#[test]
fn an_early_budget_helps_where_the_period_does_not() {
    // In PRM the budget of 2 may come at the end of every 10: 16 without, and "a" needs 12. The
    // server, alone, responds within 2.
    let mut system = System::local(1, Builtin::Rm, Vec::new());
    system.components.push(component("dom", Builtin::Rm, ServerRule::Ptps, 10, 2));
    system.tasks.push(Task { deadline: Span::from_ns(12), offset: Span::from_ns(3), ..task("a", 30, 2, Some(0)) });
    let report = plain(&system);
    assert_eq!(scopes(&report)[2..], [("prm", "local/dom", Answer::Unknown), ("edp", "local/dom", Answer::Yes)]);
    assert_eq!((report.schedulable, report.bound_of(TaskId(0))), (Answer::Yes, Some(Span::from_ns(10))));
}

#[test]
fn a_task_alone_in_a_constant_bandwidth_server_is_bounded() {
    // Without the gap of the period before: 100 - 50 and the job's 10.
    for rule in [ServerRule::Cbs, ServerRule::CbsHard] {
        let mut system = System::local(1, Builtin::Edf, vec![task("beside", 40, 20, None)]);
        system.components.push(component("irq", Builtin::Rm, rule, 100, 50));
        system.tasks.push(Task { deadline: Span::from_ns(60), ..task("handler", 20, 10, Some(0)) });
        let report = plain(&system);
        assert_eq!(scopes(&report), [("density", "local", Answer::Yes), ("cbs", "local/irq", Answer::Yes)]);
        assert_eq!((report.schedulable, report.bound_of(TaskId(1))), (Answer::Yes, Some(Span::from_ns(60))));
        assert_eq!((&report.tests[1].figures["pending"], &report.tests[1].figures["gap_ns"]), (&3.into(), &50.into()));
        // It rests on the level above.
        system.components[0].budget = Auto::Value(Span::from_ns(51));
        let report = plain(&system);
        assert_eq!((report.schedulable, report.bound_of(TaskId(1))), (Answer::Unknown, None));
        // Two tasks are not one after the other.
        system.tasks.push(task("other", 400, 1, Some(0)));
        let report = check(&system, &CheckOptions { all: true, ..CheckOptions::default() });
        let test = report.tests.iter().find(|test| test.test == TestId::Cbs && test.scope == "local/irq");
        assert_eq!(test.map(|test| test.verdict.why()), Some("needs one task alone in the component, here are 2"));
    }
}

#[test]
fn the_least_budget_for_a_task_alone_is_proven_and_a_quantum_less_is_not() {
    let mut random = Random::new(41);
    let mut soft = 0;
    for _ in 0..cases(150) {
        let rule = [ServerRule::Cbs, ServerRule::CbsHard][random.between(0, 1) as usize];
        let mut system = System::local(1, Builtin::Edf, Vec::new());
        let us = |n: u64| n * 1000;
        system.components.push(component("c", Builtin::Edf, rule, us(random.between(1, 30)), 1));
        system.components[0].budget = Auto::Auto;
        let (t, c) = (random.between(4, 60), random.between(1, 20));
        let deadline = Span::from_ns(us(random.between(c, 2 * t.max(c))));
        system.tasks.push(Task { deadline, ..task("a", us(t), us(c), Some(0)) });
        let Ok(sized) = size(&system) else { continue };
        let report = plain(&sized.system);
        assert_eq!(report.schedulable, Answer::Yes, "{}\n{report:#?}", takt_model::file::write(&sized.system));
        assert_eq!(sized.components[0].supply, "cbs");
        soft += u64::from(rule == ServerRule::Cbs);
        let budget = value(sized.system.components[0].budget);
        if budget > 1000 {
            let mut less = sized.system.clone();
            less.components[0].budget = Auto::Value(Span::from_ns(budget - 1000));
            assert_ne!(plain(&less).schedulable, Answer::Yes, "{}", takt_model::file::write(&less));
        }
    }
    assert!(soft > 10, "{soft}");
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.components.push(component("c", Builtin::Edf, ServerRule::Cbs, 10, 1));
    (system.components[0].period, system.components[0].budget) = (Auto::Auto, Auto::Auto);
    system.tasks.push(task("a", 40, 4, Some(0)));
    assert_eq!(
        size(&system).unwrap_err().to_string(),
        "component \"c\": a server \"cbs\" for one task is sized for a given period or budget; give one of them, best \
         a period that divides the task's period"
    );
}

#[test]
fn how_often_a_task_alone_is_in_time_is_told() {
    use takt_model::{Exec, Probability};
    let share = |billionths| Probability::from_billionths(billionths).expect("at most one");
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.components.push(component("video", Builtin::Edf, ServerRule::Cbs, 20, 8));
    let exec = vec![(6, 500), (10, 300), (14, 150), (24, 50)];
    let exec = exec.into_iter().map(|(ns, thousandths)| (Span::from_ns(ns), share(thousandths * 1_000_000)));
    let frame = Task { deadline: Span::from_ns(80), ..task("frame", 40, 24, Some(0)) };
    system.tasks.push(Task { exec: Exec::Pmf(exec.collect()), ..frame });
    let report = plain(&system);
    let test = report.tests.iter().find(|test| test.test == TestId::Cbs).expect("it applies");
    assert_eq!(
        test.verdict.why(),
        "no bound for \"frame\": its wcet needs more than the server gives in the long run; at least 99.9645 % \
         of its jobs make it, if their times are independent"
    );
    let figure = &test.figures["in_time"];
    assert!(
        figure["low"].as_f64().is_some_and(|low| low > 0.9996) && figure["high"].as_f64() >= figure["low"].as_f64()
    );
}

#[test]
fn missing_parameters_are_named_in_the_reason() {
    let why = |system: &System, scope: &str| {
        let report = plain(system);
        assert_eq!(report.schedulable, Answer::Unknown, "{report:#?}");
        let test = report.tests.iter().find(|test| test.scope == scope && test.verdict.answer() != Answer::Yes);
        test.map(|test| format!("{}: {}", test.test.name(), test.verdict.why())).unwrap_or_default()
    };
    let mut system = two_levels();
    system.components[1].budget = Auto::Auto;
    assert_eq!(why(&system, "local/outer/inner"), "prm: its period or budget is \"auto\"; takt size fills it in");
    let mut system = two_levels();
    system.components[0].server = ServerRule::Cbs;
    assert_eq!(
        why(&system, "local/outer"),
        "prm: server \"cbs\" guarantees it nothing: a soft constant-bandwidth server works ahead and postpones \
         its deadline, so it guarantees no supply; use \"cbs-hard\""
    );
    let mut system = two_levels();
    system.components[0].strategy = StrategyRef::Builtin(Builtin::Mlf);
    assert_eq!(why(&system, "local/outer"), "prm: needs fixed priorities or edf in the component");
    let mut system = two_levels();
    system.nodes[0].strategy = StrategyRef::Builtin(Builtin::Fp);
    system.tasks[0].priority = Some(1);
    assert_eq!(
        why(&system, "local"),
        "unsupported: component \"outer\" has no priority, which strategy \"fp\" around it needs for its \
         server; give it a priority, 1 is the most important"
    );
}

#[test]
fn more_than_a_server_gives_is_refuted() {
    let mut system = two_levels();
    system.tasks[2].wcet = Span::from_ns(30);
    let report = plain(&system);
    assert_eq!(report.schedulable, Answer::No);
    let why = report.tests.last().unwrap().verdict.why();
    assert_eq!(why, "the tasks need 33.3333 % of a CPU, and the server gives 25 %");
    // Of a period of 40 ns the server has 10. Too much by less than both texts can tell.
    system.tasks[2].wcet = Span::from_ns(1);
    let rest = system.tasks[2].clone();
    let with = |name: &str, period: Span, wcet| Task {
        name: name.to_owned(),
        period,
        deadline: period,
        wcet: Span::from_ns(wcet),
        ..rest.clone()
    };
    let mut near = system.clone();
    near.tasks.retain(|task| task.component != rest.component);
    near.tasks.extend([with("whole", Span::from_ns(80), 20), with("bit", Span::from_s(1000), 1)]);
    let report = plain(&near);
    let why = report.tests.last().unwrap().verdict.why();
    assert!(
        why.starts_with("the tasks need more than the 25 % of a CPU that the server gives: 1ns too much in"),
        "{why}"
    );
    system.tasks[2].wcet = Span::from_ns(30);
    // A server that may get more than its own is not refuted by its budget, but the node's tasks
    // together may be too many.
    system.components[1].server = ServerRule::Crps;
    assert_eq!(plain(&system).schedulable, Answer::Unknown);
    system.tasks[1].wcet = Span::from_ns(40);
    assert_eq!(plain(&system).tests[0].verdict.why(), "the tasks need 123.3333 % of a CPU, and there is 100 %");
}

#[test]
fn proofs_that_rest_on_a_server_are_withdrawn_with_it() {
    let mut system = two_levels();
    assert!(plain(&system).bound_of(TaskId(2)).is_some() || plain(&system).schedulable == Answer::Yes);
    // The outer server, less important than "beside" now, no longer gets its budget.
    system.tasks[0] = task("beside", 9, 6, None);
    let report = plain(&system);
    assert_eq!(report.schedulable, Answer::Unknown);
    assert!((1..3).all(|id| report.bound_of(TaskId(id)).is_none()), "{report:#?}");
    assert_eq!(report.bound_of(TaskId(0)), Some(Span::from_ns(6)));
    let why = report.tests.iter().find(|test| test.scope == "local/outer").unwrap().verdict.why();
    assert_eq!(why, "holds if its server gets its budgets, which is not proven in \"local\"");
}

#[test]
fn nothing_is_bounded_beside_a_server_that_is_refused() {
    let mut system = System::local(1, Builtin::Edf, vec![task("beside", 6, 1, None)]);
    system.components.push(component("dom", Builtin::Rm, ServerRule::Deferrable, 9, 3));
    system.tasks.push(task("a", 40, 2, Some(0)));
    let report = plain(&system);
    assert_eq!((report.schedulable, report.bound_of(TaskId(0))), (Answer::Unknown, None), "{report:#?}");
    let why = "component \"dom\": under edf a deferrable server may ask for its whole budget right before its deadline";
    assert!(report.tests.iter().any(|test| test.scope == "local" && test.verdict.why() == why), "{report:#?}");
    // Under fixed priorities its late budget is jitter to those below it.
    system.nodes[0].strategy = StrategyRef::Builtin(Builtin::Rm);
    system.tasks[0] = task("beside", 30, 3, None);
    let lazy = plain(&system).bound_of(TaskId(0));
    system.components[0].server = ServerRule::Ptps;
    assert_eq!((lazy, plain(&system).bound_of(TaskId(0))), (Some(Span::from_ns(9)), Some(Span::from_ns(6))));
}

#[test]
fn budgets_that_need_not_be_used_refute_nothing() {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    for i in 0..2 {
        system.components.push(component(&format!("c{i}"), Builtin::Edf, ServerRule::Deferrable, 10, 6));
        system.tasks.push(task(&format!("t{i}"), 100, 1, Some(i)));
    }
    assert_eq!(plain(&system).schedulable, Answer::Unknown);
}

#[test]
fn switches_and_ticks_are_charged_to_budgets() {
    let ms = Span::from_ms;
    let mut system = System::local(1, Builtin::Rm, Vec::new());
    let mut dom = component("dom", Builtin::Rm, ServerRule::Ptps, 10, 4);
    (dom.period, dom.budget) = (Auto::Value(ms(10)), Auto::Value(ms(4)));
    system.components.push(dom.clone());
    system.components.push(Component { name: "other".to_owned(), ..dom });
    system.tasks.push(Task { component: Some(ComponentId(0)), ..Task::periodic("a", ms(40), ms(2)) });
    system.tasks.push(Task { component: Some(ComponentId(1)), ..Task::periodic("b", ms(40), ms(2)) });
    let free = plain(&system);
    system.nodes[0].costs = Some(Costs {
        switch: Span::from_us(10),
        release: Span::from_us(1),
        tick: Span::from_us(5),
        tick_period: ms(4),
        ..Costs::NONE
    });
    let charged = plain(&system);
    assert_eq!((free.schedulable, charged.schedulable), (Answer::Yes, Answer::Yes));
    // In 10 ms: the end of its own budget, 2 releases of "b" and 6 ends and returns of "other"; 3 ticks.
    assert_eq!(
        charged.tests.iter().find(|test| test.scope == "local/dom").unwrap().figures["loss_ns"],
        9 * 10_000 + 3 * 5_000
    );
    assert!(charged.bound_of(TaskId(0)) > free.bound_of(TaskId(0)));
    system.nodes[0].costs = system.nodes[0].costs.map(|costs| Costs { switch: ms(1), ..costs });
    assert_eq!(plain(&system).schedulable, Answer::Unknown);
}

/// A random tree whose servers are yet to be sized: periods given or not, budgets given or not.
fn unsized_system(random: &mut Random) -> System {
    let mut system = random_system(random);
    for component in &mut system.components {
        component.quantum = Some(Span::from_ns(1)).filter(|_| random.between(0, 1) == 0);
        match random.between(0, 3) {
            0 => component.period = Auto::Auto,
            1 => (component.period, component.budget) = (Auto::Auto, Auto::Auto),
            _ => component.budget = Auto::Auto,
        }
        // In ns, the quantum that a file may leave out is coarse.
        component.quantum = Some(Span::from_ns(1));
    }
    system
}

#[test]
fn sized_budgets_are_proven_and_minimal() {
    let mut random = Random::new(11);
    let (mut sized_ones, mut refused, mut least, mut beyond) = (0, 0, 0, 0);
    let (mut by_edp, mut longest, mut pairs) = (0, 0, 0);
    for _ in 0..cases(150) {
        let system = unsized_system(&mut random);
        let sized = match size(&system) {
            Ok(sized) => sized,
            Err(SizeError::NotEnough { .. } | SizeError::NotCovered { .. }) => {
                refused += 1;
                continue;
            }
            // Demand that all but fills a CPU in quanta of its own size.
            Err(SizeError::Limit { .. }) => {
                beyond += 1;
                continue;
            }
        };
        takt_model::file::validate(&sized.system).unwrap();
        // Whole CPUs leave nothing to the others, whose bounds then take their time to be refused.
        if sized.components.iter().any(|component| component.budget == component.period) {
            continue;
        }
        sized_ones += 1;
        let file = || takt_model::file::write(&sized.system);
        let with = |component: &takt_analysis::compositional::SizedComponent, period: u64, budget: u64| {
            let mut other = sized.system.clone();
            let values = (Auto::Value(Span::from_ns(period)), Auto::Value(Span::from_ns(budget)));
            (other.components[component.id.index()].period, other.components[component.id.index()].budget) = values;
            other
        };
        let whole = plain(&sized.system).schedulable == Answer::Yes;
        let flat = sized.system.components.iter().all(|component| component.parent.is_none());
        for component in sized.components.iter().filter(|component| component.chosen) {
            // By prm alone, whether or not its level keeps its promise.
            let by_prm = |period: u64, budget: u64| {
                let options = CheckOptions { only: vec![TestId::Prm], ..CheckOptions::default() };
                let report = check(&with(component, period, budget), &options);
                let scope = |scope: &str| scope.ends_with(&format!("/{}", component.component));
                let prm = report.tests.iter().find(|test| scope(&test.scope) && test.test == TestId::Prm).unwrap();
                let taken_back =
                    ["holds if its server", "component \""].iter().any(|why| prm.verdict.why().starts_with(why));
                prm.verdict.answer() == Answer::Yes || taken_back
            };
            let proven = |period: u64, budget: u64| {
                if whole {
                    plain(&with(component, period, budget)).schedulable == Answer::Yes
                } else {
                    by_prm(period, budget)
                }
            };
            let (period, budget) = (component.period.as_ns(), component.budget.as_ns());
            assert!(proven(period, budget), "{}", file());
            let wanted = &system.components[component.id.index()];
            if budget > 1 && wanted.budget == Auto::Auto {
                assert!(!proven(period, budget - 1), "{}", file());
                least += u64::from(whole);
                by_edp += u64::from(component.supply == "edp");
                // Larger budgets come later, so a smaller budget may be proven and a larger budget
                // not. The search goes from below.
                assert!(!whole || !flat || (1..budget).all(|less| !proven(period, less)), "{}", file());
            }
            if wanted.budget != Auto::Auto {
                let beyond = if whole && !flat { 2 } else { 20 };
                assert!((1..beyond).all(|more| !proven(period + more, budget)), "{}", file());
                longest += u64::from(whole);
            }
            // The pair is the best by prm. Components inside change what their outer one has to do.
            let inner = |other: &Component| other.parent == Some(component.id);
            if wanted.budget == Auto::Auto
                && wanted.period == Auto::Auto
                && !(whole && sized.system.components.iter().any(inner))
            {
                let budget = (budget..=period).find(|budget| by_prm(period, *budget)).unwrap();
                // The whole CPU does with every period.
                for other in (1..30u64).filter(|_| budget < period) {
                    let most = budget * other / period;
                    let better = (1..=most).filter(|one| one * period < budget * other || other > period);
                    assert!(better.max().is_none_or(|one| !by_prm(other, one)), "{other}: {}", file());
                }
                pairs += u64::from(whole);
            }
        }
    }
    assert!(longest > cases(150) / 20 && pairs > cases(150) / 20, "{longest} {pairs}");
    assert!(sized_ones > cases(150) / 10 && refused > 0, "{sized_ones} {refused}");
    assert!(least > cases(150) / 10 && by_edp > cases(150) / 100, "{least} {by_edp}");
    assert!(beyond * 1000 <= cases(150), "{beyond} beyond a limit");
}

/// The budget comes first where nothing is more important, and is needed once in each period.
#[test]
fn a_lone_server_gets_the_least_that_comes_early() {
    let us = Span::from_us;
    for strategy in [Builtin::Edf, Builtin::Rm] {
        let mut system = System::local(1, strategy, Vec::new());
        let mut dom = component("c", Builtin::Rm, ServerRule::Crps, 1, 1);
        (dom.period, dom.budget, dom.quantum) = (Auto::Value(us(2_000)), Auto::Auto, Some(us(1)));
        system.components.push(dom);
        let mut one = Task::periodic("t0", us(2_100), us(10));
        (one.component, one.arrival) = (Some(ComponentId(0)), Arrival::Sporadic);
        system.tasks.push(one);
        let sized = size(&system).unwrap();
        assert_eq!(sized.components[0].budget, us(10));
        assert_eq!(plain(&sized.system).schedulable, Answer::Yes);
        assert!(sized.notes.iter().any(|note| note.contains("(edp)")), "{:?}", sized.notes);
    }
}

#[test]
fn an_arinc_partition_has_the_load_of_its_tasks() {
    // Harmonic periods, releases with the server: no gap, and the budget is the load, rounded up.
    let ms = Span::from_ms;
    let mut system = System::local(1, Builtin::Rm, Vec::new());
    let mut dom = component("nav", Builtin::Rm, ServerRule::Ptps, 1, 1);
    (dom.period, dom.budget) = (Auto::Value(ms(25)), Auto::Auto);
    system.components.push(dom);
    for (name, t, c) in [("fast", 25, 2), ("middle", 50, 3), ("slow", 100, 5)] {
        system.tasks.push(Task { component: Some(ComponentId(0)), ..Task::periodic(name, ms(t), ms(c)) });
    }
    let sized = size(&system).unwrap();
    assert_eq!((sized.components[0].budget, sized.components[0].supply), (Span::from_us(4_750), "aligned"));
    assert_eq!(plain(&sized.system).schedulable, Answer::Yes);
    // In whole milliseconds 5: what rounding costs.
    system.components[0].quantum = Some(ms(1));
    assert_eq!(size(&system).unwrap().components[0].budget, ms(5));
    // With an offset that is no multiple of the period the first budget may have gone: all of Eq. 1's gaps.
    system.tasks[2].offset = ms(10);
    let sized = size(&system).unwrap();
    // The server is alone, so its budget of 5 ms comes at the start of each period, and no gap is
    // longer than 20 ms. A decision may be a quantum late. So an interval of 24, 49 and 99 ms has at
    // least 4, 9 and 19 ms. The tasks need 2, 7 and 19 ms by their deadlines.
    assert_eq!((sized.components[0].budget, sized.components[0].supply), (ms(5), "edp"));
    // Behind another of 20 ms it is not: Eq. 1's gaps.
    system.tasks.push(task("before", 25_000_000, 19_000_000, None));
    let sized = size(&system).unwrap();
    assert_eq!(sized.components[0].supply, "prm");
}

#[test]
fn costs_lengthen_the_best_period() {
    let ms = Span::from_ms;
    let mut system = System::local(1, Builtin::Rm, Vec::new());
    for i in 0..2 {
        let mut dom = component(&format!("dom{i}"), Builtin::Edf, ServerRule::Ptps, 1, 1);
        (dom.period, dom.budget) = (Auto::Auto, Auto::Auto);
        system.components.push(dom);
        for (k, t) in [40, 70, 90].into_iter().enumerate() {
            let one = Task::periodic(&format!("t{i}{k}"), ms(t), ms(3));
            system.tasks.push(Task { component: Some(ComponentId(i)), arrival: Arrival::Sporadic, ..one });
        }
    }
    let free = size(&system).unwrap();
    assert!(free.components[0].period < ms(1) && free.notes.len() == 2, "{free:?}");
    system.nodes[0].costs = Some(Costs { switch: Span::from_us(10), ..Costs::NONE });
    let charged = size(&system).unwrap();
    assert!(charged.components[0].period >= ms(1) && charged.notes.is_empty(), "{charged:?}");
    assert_eq!(plain(&charged.system).schedulable, Answer::Yes, "{:#?}", plain(&charged.system));
}

/// Overheads of nodes with servers, each by its effect on a bound computed by hand.
#[test]
fn costs_that_meet_quanta_other_cpus_and_split_budgets_are_charged() {
    let ms = Span::from_ms;
    let mut system = System::local(1, Builtin::Rm, vec![Task::periodic("beside", ms(40), ms(4))]);
    let mut dom = component("dom", Builtin::Rm, ServerRule::Ptps, 1, 1);
    (dom.period, dom.budget, dom.quantum) = (Auto::Value(ms(10)), Auto::Value(ms(2)), Some(ms(1)));
    system.components.push(dom);
    system.tasks.push(Task { component: Some(ComponentId(0)), ..Task::periodic("in", ms(40), ms(1)) });
    let response = |system: &System| {
        let report = plain(system);
        let found = report.tests.iter().flat_map(|test| &test.tasks).filter(|task| task.task == "beside");
        found.filter_map(|task| task.wcrt.map(Span::as_ns)).min().unwrap_or_else(|| panic!("{report:#?}"))
    };
    // A quantum until it is noticed, a budget of the server, and itself.
    assert_eq!(response(&system), 7_000_000);
    // A job that takes a little longer than four quanta keeps the fifth.
    let release = Costs { release: Span::from_us(1), ..Costs::NONE };
    system.nodes[0].costs = Some(release);
    assert!(response(&system) >= 8_000_000, "{}", response(&system));

    // In parts a budget may come back any number of times.
    let switch = Costs { switch: Span::from_us(1), ..Costs::NONE };
    (system.components[0].server, system.components[0].quantum) = (ServerRule::Sporadic, None);
    assert_eq!(plain(&system).schedulable, Answer::Yes);
    system.nodes[0].costs = Some(switch);
    let report = plain(&system);
    assert_eq!(report.schedulable, Answer::Unknown);
    assert!(report.tests.iter().any(|test| test.verdict.why().contains("any number of parts")), "{report:#?}");

    // On several CPUs whoever goes on may do so elsewhere.
    let mut system = two_cpus(ms(10), ms(2));
    let lost = |system: &System| {
        let report = plain(system);
        let figure = report.tests.iter().find_map(|test| test.figures.get("loss_ns").cloned());
        figure.and_then(|lost| lost.as_u64()).unwrap_or(0)
    };
    assert_eq!(lost(&system), 0);
    let migrate = Costs { migrate: Span::from_us(3), ..Costs::NONE };
    system.nodes[0].costs = Some(migrate);
    let both = lost(&system);
    system.nodes[0].costs = Some(Costs { switch: Span::from_us(3), ..Costs::NONE });
    assert!(both > 0 && both == lost(&system), "{both}");
    system.nodes[0].placement = Placement::Partitioned;
    system.nodes[0].costs = Some(migrate);
    assert_eq!(lost(&system), 0);
}

/// A server, and a task beside it, on two CPUs under global EDF.
fn two_cpus(period: Span, budget: Span) -> System {
    let mut system =
        System::local(2, Builtin::Edf, vec![Task::periodic("beside", Span::from_ms(40), Span::from_ms(4))]);
    let mut dom = component("dom", Builtin::Rm, ServerRule::Ptps, 1, 1);
    (dom.period, dom.budget) = (Auto::Value(period), Auto::Value(budget));
    system.components.push(dom);
    system
        .tasks
        .push(Task { component: Some(ComponentId(0)), ..Task::periodic("in", Span::from_ms(40), Span::from_ms(1)) });
    system
}

#[test]
fn a_budget_that_cannot_be_sized_is_an_error() {
    let mut system = two_levels();
    system.components[1].budget = Auto::Auto;
    system.tasks[2] = Task { deadline: Span::from_ns(6), ..task("b", 90, 5, Some(1)) };
    assert_eq!(
        size(&system).unwrap_err().to_string(),
        "component \"inner\": not even a whole CPU, given anew every 20ns, serves its tasks in time; give it a \
         shorter period or less to do"
    );
    system.components[1].server = ServerRule::Grub;
    assert_eq!(
        size(&system).unwrap_err().to_string(),
        "component \"inner\": server \"grub\" guarantees it nothing: a soft constant-bandwidth server works \
         ahead and postpones its deadline, so it guarantees no supply; use \"cbs-hard\""
    );
    system.components[1].server = ServerRule::Ptps;
    system.tasks.pop();
    assert_eq!(
        size(&system).unwrap_err().to_string(),
        "component \"inner\": it holds no task, so its need is unknown; give it a period and a budget"
    );
}

/// "t3" follows a task that may be late, so the node promises no budget, to "c2" either. A random system of the soak
/// had t2 complete after 6 ns, against a bound of 5 ns.
#[test]
fn a_budget_rests_on_the_predecessors_of_what_goes_before_its_server() {
    let text = r#"
takt = 1
component = [
    { name = "c0", server = "crps", period = "13ns", budget = "2ns" },
    { name = "c1", parent = "c0", strategy = "rm", server = "crps", period = "5ns", budget = "2ns" },
    { name = "c2", strategy = "rm", server = "crps", period = "19ns", budget = "3ns" },
]
task = [
    { name = "t0", component = "c0", period = "39ns", deadline = "19ns", wcet = "3ns" },
    { name = "t1", component = "c1", period = "10ns", deadline = "8ns", wcet = "1ns" },
    { name = "t2", component = "c2", period = "95ns", deadline = "56ns", wcet = "2ns" },
    { name = "t3", after = ["t1"], wcet = "1ns" },
]
"#;
    let system = takt_model::file::parse(text, "predecessors.toml").unwrap();
    let report = plain(&system);
    assert_eq!(report.bound_of(TaskId(2)), None);
    let of_c2 = report.tests.iter().filter(|test| test.scope.ends_with("/c2"));
    let why: Vec<&str> = of_c2.map(|test| test.verdict.why()).filter(|why| why.starts_with("holds if")).collect();
    assert!(!why.is_empty() && why.iter().all(|why| why.ends_with("not proven in \"local\"")), "{why:?}");
}
