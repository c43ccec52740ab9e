//! Components on several CPUs: what `check` and `size` say, held against whole systems of servers in unit slots.

use takt_analysis::{Answer, CheckOptions, SizeError, SizedComponent, TestId, check, size};
use takt_model::generate::Random;
use takt_model::{
    Arrival, Auto, Builtin, Component, ComponentId, Costs, NodeId, Placement, ServerRule, Span, StrategyRef, System,
    Task,
};

fn cases(default: u64) -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn wide(name: &str, strategy: Builtin, cpus: u32, period: u64, budget: u64) -> Component {
    Component {
        strategy: StrategyRef::Builtin(strategy),
        period: Auto::Value(Span::from_ns(period)),
        budget: if budget == 0 { Auto::Auto } else { Auto::Value(Span::from_ns(budget)) },
        cpus,
        ..Component::new(name, NodeId(0), ServerRule::Ptps)
    }
}

fn task(name: &str, t: u64, c: u64, inside: Option<u32>) -> Task {
    Task { component: inside.map(ComponentId), ..Task::periodic(name, Span::from_ns(t), Span::from_ns(c)) }
}

fn answer(system: &System) -> Answer {
    check(system, &CheckOptions::default()).schedulable
}

/// Something with jobs in slots: a task of the file, or a server.
struct Source {
    /// The component that it stands in.
    home: Option<usize>,
    /// The component whose server it is.
    serves: Option<usize>,
    c: u64,
    t: u64,
    d: u64,
    next: u64,
    left: u64,
    deadline: u64,
    release: u64,
}

/// Whether anything misses: all levels under EDF or all rate-monotonic, on the node's CPUs,
/// arrivals from random offsets and sporadic.
fn misses(system: &System, random: &mut Random, end: u64) -> bool {
    let value = |auto: Auto<Span>| auto.given().expect("given").as_ns();
    let mut sources: Vec<Source> = Vec::new();
    let source = |home, serves, c, t, d, next| Source { home, serves, c, t, d, next, left: 0, deadline: 0, release: 0 };
    for task in &system.tasks {
        let (t, d) = (task.period.as_ns(), task.deadline.as_ns());
        let home = task.component.map(ComponentId::index);
        sources.push(source(home, None, task.wcet.as_ns(), t, d, random.between(0, 2 * t)));
    }
    for (i, component) in system.components.iter().enumerate() {
        let (period, budget, cpus) = (value(component.period), value(component.budget), u64::from(component.cpus));
        for k in 0..cpus {
            let share = budget / cpus + u64::from(k < budget % cpus);
            if share > 0 {
                sources.push(source(component.parent.map(ComponentId::index), Some(i), share, period, period, 0));
            }
        }
    }
    let by_deadline = system.nodes[0].strategy == StrategyRef::Builtin(Builtin::Edf);
    for now in 0..end {
        for source in &mut sources {
            if source.left > 0 && source.deadline <= now {
                return true;
            }
            if source.next <= now && source.left == 0 {
                (source.left, source.deadline, source.release) = (source.c, now + source.d, now);
                let later = if source.serves.is_none() { random.between(0, 3) / 3 * random.between(0, 5) } else { 0 };
                source.next = now + source.t + later;
            }
        }
        // The CPUs of the node, then those that each component's running servers give, outer ones first.
        let mut given = vec![0usize; system.components.len()];
        let mut homes: Vec<Option<usize>> = vec![None];
        while let Some(home) = homes.pop() {
            let cpus = home.map_or(system.nodes[0].cpus as usize, |home| given[home]);
            let ready = |(_, source): &(usize, &Source)| source.home == home && source.left > 0;
            let mut here: Vec<(u64, u64, usize)> = (sources.iter().enumerate().filter(ready))
                .map(|(i, s)| (if by_deadline { s.deadline } else { s.t }, s.release, i))
                .collect();
            here.sort_unstable();
            for (_, _, i) in here.into_iter().take(cpus) {
                sources[i].left -= 1;
                if let Some(inner) = sources[i].serves {
                    given[inner] += 1;
                }
            }
            let inner =
                (0..system.components.len()).filter(|i| home == system.components[*i].parent.map(ComponentId::index));
            homes.extend(inner.map(Some));
        }
    }
    false
}

fn random_system(random: &mut Random) -> System {
    let strategy = if random.between(0, 1) == 0 { Builtin::Edf } else { Builtin::Rm };
    let cpus = random.between(2, 3) as u32;
    let mut system = System::local(cpus, strategy, Vec::new());
    let components = random.between(1, 2);
    for i in 0..components {
        let mut component =
            wide(&format!("c{i}"), strategy, random.between(1, u64::from(cpus)) as u32, random.between(2, 6), 0);
        if i > 0 && random.between(0, 2) == 0 && component.cpus <= system.components[0].cpus {
            component.parent = Some(ComponentId(0));
        }
        system.components.push(component);
        for k in 0..random.between(1, 3) {
            let t = random.between(8, 24);
            let mut inside = task(&format!("t{i}{k}"), t, random.between(1, t / 4), Some(i as u32));
            inside.deadline = Span::from_ns(random.between(t / 2, t));
            system.tasks.push(inside);
        }
    }
    for k in 0..random.between(0, 2) {
        let t = random.between(4, 16);
        system.tasks.push(task(&format!("beside{k}"), t, random.between(1, t / 3), None));
    }
    // No release is aligned with a server.
    system.tasks.iter_mut().for_each(|task| task.arrival = Arrival::Sporadic);
    // Quanta of a slot.
    system.components.iter_mut().for_each(|component| component.quantum = Some(Span::from_ns(1)));
    match size(&system) {
        Ok(sized) => system = sized.system,
        Err(_) => system.components.iter_mut().for_each(|component| component.budget = component.period),
    }
    system.components.iter_mut().for_each(|component| component.quantum = None);
    system
}

#[test]
fn a_whole_system_that_is_schedulable_misses_nothing() {
    let mut random = Random::new(81);
    let (mut proven, mut wide, mut nested) = (0, 0, 0);
    for round in 0..cases(1_000) {
        let system = random_system(&mut random);
        if answer(&system) != Answer::Yes {
            continue;
        }
        proven += 1;
        wide += u64::from(system.components.iter().any(|component| component.cpus > 1));
        nested += u64::from(system.components.iter().any(|component| component.parent.is_some()));
        for _ in 0..10 {
            assert!(!misses(&system, &mut random, 200), "round {round}:\n{}", takt_model::file::write(&system));
        }
    }
    assert!(proven > cases(1_000) / 10 && wide > proven / 3 && nested > 0, "{proven} {wide} {nested}");
}

#[test]
fn the_least_budget_is_least_and_the_best_period_best() {
    let mut random = Random::new(82);
    let mut compared = 0;
    for round in 0..cases(40).min(100) {
        let strategy = if random.between(0, 1) == 0 { Builtin::Edf } else { Builtin::Rm };
        let cpus = random.between(2, 3) as u32;
        let quantum = random.between(1, 3);
        let mut system = System::local(4, strategy, Vec::new());
        for k in 0..random.between(1, 4) {
            let t = random.between(4, 20);
            system.tasks.push(task(&format!("t{k}"), t, random.between(1, t / 2), Some(0)));
        }
        let mut component = wide("c", strategy, cpus, 1, 0);
        (component.period, component.quantum) = (Auto::Auto, Some(Span::from_ns(quantum)));
        system.components.push(component);
        // Alone on its node the budgets are always given: what `check` says is what the component needs.
        let serves = |period: u64, budget: u64| {
            let mut given = system.clone();
            let component = &mut given.components[0];
            (component.period, component.budget) =
                (Auto::Value(Span::from_ns(period)), Auto::Value(Span::from_ns(budget)));
            component.quantum = None;
            if !given.tasks.iter().all(|task| task.period.as_ns().is_multiple_of(quantum)) {
                // Noticed as late as with the quantum.
                given.tasks.iter_mut().for_each(|task| task.jitter = Span::from_ns(quantum));
            }
            answer(&given) == Answer::Yes
        };
        let mut best: Option<(u64, u64)> = None;
        for period in (1..=60).map(|k| k * quantum) {
            let most = period * u64::from(cpus);
            let least = (1..=most.div_ceil(quantum)).map(|k| (k * quantum).min(most)).find(|b| serves(period, *b));
            if period <= 12 {
                let mut given = system.clone();
                given.components[0].period = Auto::Value(Span::from_ns(period));
                match (size(&given), least) {
                    (Ok(sized), Some(least)) => {
                        assert_eq!(
                            sized.components[0].budget.as_ns(),
                            least,
                            "round {round}: period {period} of {given:?}"
                        );
                    }
                    (Err(SizeError::NotEnough { .. }), None) => {}
                    (found, least) => panic!("round {round}: {found:?}, {least:?}"),
                }
            }
            // In whole quanta only, and of equal ones the longest period.
            let Some(least) = least.filter(|least| least.is_multiple_of(quantum)) else { continue };
            if best.is_none_or(|(p, b)| u128::from(least) * u128::from(p) <= u128::from(b) * u128::from(period)) {
                best = Some((period, least));
            }
        }
        let found = size(&system);
        assert_eq!(found.is_ok(), best.is_some(), "round {round}");
        if let (Ok(sized), Some((period, budget))) = (found, best) {
            let one = &sized.components[0];
            if budget < period * u64::from(cpus) {
                assert_eq!((one.period.as_ns(), one.budget.as_ns()), (period, budget), "round {round}: {system:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > cases(40).min(100) / 10, "{compared}");
}

#[test]
fn uncovered_wide_components_are_refused_with_a_reason() {
    let mut system = System::local(2, Builtin::Edf, vec![task("a", 40, 4, Some(0)), task("b", 40, 4, Some(0))]);
    system.components.push(wide("c", Builtin::Edf, 2, 10, 8));
    assert_eq!(answer(&system), Answer::Yes);
    let why = |system: &System| {
        let report = check(system, &CheckOptions::default());
        assert_ne!(report.schedulable, Answer::Yes);
        let all: Vec<String> = report.tests.iter().map(|test| test.verdict.why().to_owned()).collect();
        all.join("\n")
    };
    let mut other = system.clone();
    other.components[0].server = ServerRule::Polling;
    assert!(why(&other).contains("\"ptps\", \"wcps\" and \"crps\" only"), "{}", why(&other));
    let mut other = system.clone();
    other.nodes[0].costs = Some(Costs { switch: Span::from_ns(1), ..Costs::NONE });
    assert!(why(&other).contains("costs of switching"), "{}", why(&other));
    let mut other = system.clone();
    other.tasks[0].deadline = Span::from_ns(50);
    assert!(why(&other).contains("deadlines that are not longer"), "{}", why(&other));
    let mut other = system.clone();
    other.components[0].budget = Auto::Value(Span::from_ns(1));
    assert!(why(&other).contains("the server gives"), "{}", why(&other));
    let mut other = system.clone();
    other.tasks.push(task("beside", 10, 9, None));
    assert!(why(&other).contains("holds if its server gets its budgets"), "{}", why(&other));
    // On bound CPUs each server stands on one.
    let mut other = system.clone();
    other.nodes[0].placement = Placement::Partitioned;
    assert_eq!(answer(&other), Answer::Yes);
    let asked = CheckOptions { all: true, ..CheckOptions::default() };
    let report = check(&system, &asked);
    let mpr = report.tests.iter().find(|test| test.test == TestId::Mpr && test.scope == "local/c").expect("asked");
    assert_eq!(mpr.verdict.answer(), Answer::Yes);
    let explained = check(&other, &CheckOptions { explain: true, ..asked });
    assert_eq!(explained.schedulable, Answer::Yes);
}

/// A server with a priority stands where that says.
#[test]
fn servers_have_priorities_among_tasks() {
    let fp = |priority| Task { priority: Some(priority), ..task("beside", 10, 4, None) };
    let system = |server, beside| {
        let mut system = System::local(1, Builtin::Fp, vec![task("in", 40, 4, Some(0)), fp(beside)]);
        let dom = Component { priority: Some(server), cpus: 1, ..wide("dom", Builtin::Rm, 1, 20, 12) };
        system.components.push(dom);
        system
    };
    // Less important the server's 12 of 20 take 12 + 2 * 4; more important the task's 4 of 10 wait for 12.
    assert_eq!(answer(&system(2, 1)), Answer::Yes);
    assert_eq!(answer(&system(1, 2)), Answer::Unknown);
    let mut other = system(1, 1);
    other.components[0].priority = None;
    let report = check(&other, &CheckOptions::default());
    assert!(report.tests.iter().any(|test| test.verdict.why().contains("has no priority")));
}

/// A node that binds to CPUs has its servers sized as one CPU has them, and `check` finds a CPU for each.
#[test]
fn servers_of_a_node_that_binds_to_cpus_are_sized() {
    let mut random = Random::new(83);
    let (mut proven, mut homeless) = (0, 0);
    for round in 0..cases(200) {
        let strategy = [Builtin::Edf, Builtin::Rm, Builtin::Dm][random.between(0, 2) as usize];
        let mut system = System::local(random.between(2, 4) as u32, strategy, Vec::new());
        for i in 0..random.between(1, 4) as u32 {
            let rule = [ServerRule::Ptps, ServerRule::Polling, ServerRule::Sporadic][random.between(0, 2) as usize];
            let inside = [Builtin::Edf, Builtin::Rm][random.between(0, 1) as usize];
            let period = random.between(2, 8);
            system.components.push(Component { server: rule, ..wide(&format!("c{i}"), inside, 1, period, 0) });
            for k in 0..random.between(1, 2) {
                let t = random.between(20, 60);
                let arrival = [Arrival::Periodic, Arrival::Sporadic][random.between(0, 1) as usize].clone();
                system.tasks.push(Task { arrival, ..task(&format!("t{i}{k}"), t, random.between(1, t / 5), Some(i)) });
            }
            system.components[i as usize].quantum = Some(Span::from_ns(1));
        }
        for k in 0..random.between(0, 2) {
            let t = random.between(4, 16);
            let cpus = (k == 1).then(|| takt_model::CpuSet::first(1));
            system.tasks.push(Task { cpus, ..task(&format!("beside{k}"), t, random.between(1, t / 3), None) });
        }
        let mut one = system.clone();
        one.nodes[0].cpus = 1;
        one.tasks.iter_mut().for_each(|task| task.cpus = None);
        system.nodes[0].placement = Placement::Partitioned;
        match (size(&system), size(&one)) {
            (Ok(bound), Ok(one)) => {
                // On one CPU the others beside may take what gives a smaller budget early enough.
                let fits = |(own, one): (&SizedComponent, &SizedComponent)| {
                    (own.id, own.period) == (one.id, one.period) && own.budget <= one.budget
                };
                assert_eq!(bound.components.len(), one.components.len());
                assert!(bound.components.iter().zip(&one.components).all(fits), "round {round}: {system:?}");
                match answer(&bound.system) {
                    Answer::Yes => proven += 1,
                    _ => homeless += 1,
                }
                // A smaller budget is not enough, as long as nobody knows how early it is given.
                for (i, sized) in bound.components.iter().enumerate().filter(|(_, sized)| sized.budget.as_ns() > 1) {
                    let mut less = bound.system.clone();
                    less.components[i].budget = Auto::Value(Span::from_ns(sized.budget.as_ns() - 1));
                    let report = check(&less, &CheckOptions { all: true, ..CheckOptions::default() });
                    let scope = format!("local/c{i}");
                    let mut prm = report.tests.iter().filter(|test| test.test == TestId::Prm && test.scope == scope);
                    assert!(prm.all(|test| test.verdict.answer() != Answer::Yes), "round {round}: {i} of {system:?}");
                }
            }
            (bound, one) => assert_eq!(bound, one, "round {round}: {system:?}"),
        }
    }
    assert!(proven > cases(200) / 4 && homeless > 0, "{proven} {homeless}");
}
