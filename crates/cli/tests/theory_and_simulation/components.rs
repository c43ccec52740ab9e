//! Components under servers: no bound is exceeded, and nothing proven misses, under every rule.

use super::*;
use takt_analysis::compositional::rules::{OuterOrder, guaranteed, on_time};
use takt_analysis::compositional::{Guarantee, Mpr, Start};

/// A random tree of up to four components on one CPU, with a task or two in each.
fn random_tree(dice: &mut Dice) -> System {
    let orders = [Builtin::Rm, Builtin::Edf, Builtin::Fp, Builtin::Dm];
    let mut system = System::local(1, dice.pick(&orders), Vec::new());
    let rules: &[ServerRule] = match dice.roll(0, 5) {
        5 => &[ServerRule::Cbs, ServerRule::CbsHard, ServerRule::Deferrable, ServerRule::Sporadic],
        0 => &[ServerRule::Wcps],
        1 => &[ServerRule::Crps],
        2 => &[ServerRule::Ptps, ServerRule::Wcps, ServerRule::Crps],
        _ => &ServerRule::ALL,
    };
    let grid = if dice.chance(20) { dice.roll(2, 4) } else { 1 };
    for i in 0..dice.roll(1, 4) {
        let mut component = Component::new(&format!("c{i}"), NodeId(0), dice.pick(rules));
        let mut period = grid * dice.roll(4, 20);
        if i > 0 && dice.chance(30) {
            component.parent = Some(ComponentId(dice.roll(0, i - 1) as u32));
            period *= dice.roll(1, 3);
        }
        let budget = grid * dice.roll(1, (period / grid / 2).max(1));
        component.strategy = StrategyRef::Builtin(dice.pick(&orders));
        (component.period, component.budget) = (Auto::Value(Span::from_ns(period)), Auto::Value(Span::from_ns(budget)));
        component.quantum = (grid > 1).then(|| Span::from_ns(grid));
        component.priority = Some(dice.roll(1, 4) as u32);
        system.components.push(component);
    }
    let periodic = dice.chance(40);
    let mut number = 0;
    let places: Vec<Option<u32>> = (0..system.components.len() as u32).map(Some).chain([None]).collect();
    for place in places {
        for _ in 0..dice.roll(u64::from(place.is_some()), 2) {
            let server = place.and_then(|at| system.components[at as usize].period.given()).map_or(10, Span::as_ns);
            let period = if periodic { server * dice.roll(2, 8) } else { dice.roll(2 * server, 12 * server) };
            let wcet = dice.roll(1, (period / 10).max(1));
            system.tasks.push(Task {
                deadline: dice.ns((period / 2).max(wcet), period),
                arrival: if periodic { Arrival::Periodic } else { dice.pick(&[Arrival::Periodic, Arrival::Sporadic]) },
                offset: if periodic { Span::ZERO } else { dice.ns(0, 9) },
                jitter: if periodic { Span::ZERO } else { dice.ns(0, 4) },
                exec: dice.pick(&[Exec::Wcet, Exec::Uniform { min: Span::from_ns(1), max: Span::from_ns(wcet) }]),
                priority: Some(dice.roll(1, 4) as u32),
                component: place.map(ComponentId),
                ..Task::periodic(&format!("t{number}"), Span::from_ns(period), Span::from_ns(wcet))
            });
            number += 1;
        }
    }
    if dice.chance(20) {
        let costs = Costs { switch: dice.ns(0, 1), release: dice.ns(0, 1), tick: dice.ns(0, 1), ..Costs::NONE };
        system.nodes[0].costs = Some(Costs { tick_period: Span::from_ns(37), ..costs });
    }
    system
}

/// No response exceeds its bound. The answer is how many of them have one.
fn kept_bounds(system: &System, report: &CheckReport, stats: &Stats, replay: &str, tightness: &mut Tightness) -> u64 {
    let mut bounded = 0;
    for (id, task) in system.tasks.iter().enumerate() {
        let observed = stats.tasks[id].response_ns.as_ref().map(|response| response.max);
        let bound = report.bound_of(TaskId(id as u32)).map(Span::as_ns);
        let (Some(bound), Some(observed)) = (bound, observed) else { continue };
        assert!(observed <= bound, "{replay}\n{}: {observed} > {bound}\n{}", task.name, file::write(system));
        tightness.note(observed, bound);
        bounded += 1;
    }
    bounded
}

#[test]
fn no_bound_under_servers_is_exceeded() {
    let mut proven = std::collections::BTreeMap::<&str, u64>::new();
    let mut bounded = 0;
    let mut tightness = Tightness::default();
    for seed in seeds(3_000) {
        let system = random_tree(&mut Dice::new(seed));
        let report = checked(&system);
        if !claims(&system, &report) {
            continue;
        }
        let stats = simulated(&system, seed, 3_000);
        let replay = replay(seed, "no_bound_under_servers");
        bounded += kept_bounds(&system, &report, &stats, &replay, &mut tightness);
        if report.schedulable == Answer::Yes {
            let missed = misses(&stats);
            assert_eq!(missed, 0, "{replay}\n{}\n{report:#?}", file::write(&system));
            system.components.iter().for_each(|component| *proven.entry(component.server.name()).or_default() += 1);
        }
    }
    println!("{bounded} bounds; components in proven systems: {proven:?}");
    println!("the longest response seen / bound is {tightness}");
    if cases(3_000) >= 3_000 {
        assert!(
            bounded > 1_000 && proven.len() >= 8 && proven.values().all(|count| *count > 9),
            "{bounded} {proven:?}"
        );
    }
}

/// Spans of time, in ns.
type Spans = Vec<(u64, u64)>;

/// When a component has a job that has not ended, and when its server pays or one of its jobs runs.
fn busy_and_served(system: &System, id: u32, seed: u64, duration: u64) -> (Spans, Spans) {
    let mut events: Vec<(u32, Time, takt_log::Event)> = Vec::new();
    let options = SimOptions { duration: Span::from_ns(duration), seed, node: None };
    simulate(system, &options, &mut events).unwrap_or_else(|error| panic!("{error}\n{system:#?}"));
    let is_inside = |task: TaskId| {
        let own = system.tasks[task.index()].component;
        own.is_some_and(|own| system.around(own).any(|outer| outer.0 == id))
    };
    let (mut busy, mut served, mut open, mut since, mut running) =
        (Spans::new(), vec![false; duration as usize], 0, 0, None);
    for (_, at, event) in events {
        use takt_log::Event;
        let now = at.as_ns();
        let mut fill = |from: u64| served[from as usize..now as usize].fill(true);
        match event {
            Event::Release { job, .. } if is_inside(job.task) => {
                if open == 0 {
                    since = now;
                }
                open += 1;
            }
            Event::Start { job, .. } | Event::Resume { job, .. } if is_inside(job.task) => running = Some(now),
            Event::Preempt { job, .. } if is_inside(job.task) => running.take().into_iter().for_each(&mut fill),
            Event::Complete { job, .. } if is_inside(job.task) => {
                running.take().into_iter().for_each(&mut fill);
                open -= 1;
                if open == 0 {
                    busy.push((since, now));
                }
            }
            Event::Charge { server, since, .. } if server == id => fill(since.as_ns()),
            _ => {}
        }
    }
    let mut spans = Spans::new();
    for at in (0..duration).filter(|at| served[*at as usize]) {
        match spans.last_mut() {
            Some((_, to)) if *to == at => *to += 1,
            _ => spans.push((at, at + 1)),
        }
    }
    (busy, spans)
}

/// The supply in windows of an interval with work. It is the least in a window that begins where the supply stops, or
/// with the work. The answer is how many windows there are, and how many have no more than their bound.
fn kept_supply(
    served: &[(u64, u64)],
    (from, to): (u64, u64),
    least: impl Fn(u64) -> u64,
    shown: &str,
    tightness: &mut Tightness,
) -> (u64, u64) {
    let (mut windows, mut reached) = (0, 0);
    let starts = std::iter::once(from).chain(served.iter().map(|(_, end)| *end).filter(|at| (from..to).contains(at)));
    for start in starts {
        let ends = served.iter().map(|(at, _)| *at).filter(|at| (start..to).contains(at)).chain([to]);
        for end in ends {
            let had: u64 = served.iter().map(|(a, b)| b.min(&end).saturating_sub(*a.max(&start))).sum();
            let least = least(end - start);
            assert!(had >= least, "from {start} to {end}: {had} < {least}\n{shown}");
            windows += 1;
            if least > 0 {
                tightness.note(least, had);
                reached += u64::from(had == least);
            }
        }
    }
    (windows, reached)
}

/// Windows of a component with work, and those with no more supply than what `check` counts on.
fn windows_of(
    system: &System,
    id: u32,
    start: Start,
    (seed, test): (u64, &str),
    tightness: &mut Tightness,
) -> (u64, u64) {
    let component = &system.components[id as usize];
    let (Auto::Value(period), Auto::Value(budget)) = (component.period, component.budget) else { return (0, 0) };
    let guarantee = Guarantee { start, delay: 0, wait: None };
    let supply = guarantee.supply(period.as_ns(), budget.as_ns()).expect("a budget within its period");
    let shown = format!("{}\n{}\n{}", replay(seed, test), component.name, file::write(system));
    let (busy, served) = busy_and_served(system, id, seed, 600);
    let each = busy.into_iter().map(|span| kept_supply(&served, span, |t| supply.sbf(t), &shown, tightness));
    each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

/// While there is work in a component, no window has less supply than the model says.
#[test]
fn no_window_has_less_supply_than_its_bound() {
    let (mut windows, mut reached) = (0, 0);
    let mut tightness = Tightness::default();
    for seed in seeds(400) {
        let mut system = random_tree(&mut Dice::new(seed));
        system.nodes[0].costs = None;
        let known = |one: &Component| one.quantum.is_none() && on_time(one.server);
        if !system.components.iter().all(known) || check(&system, &CheckOptions::default()).schedulable != Answer::Yes {
            continue;
        }
        for id in 0..system.components.len() as u32 {
            let more = windows_of(&system, id, Start::Anywhere, (seed, "no_window_has_less"), &mut tightness);
            (windows, reached) = (windows + more.0, reached + more.1);
        }
    }
    println!(
        "{windows} windows, {reached} with no more than the bound; bound / supply is {tightness} (of bounds above zero)"
    );
    assert!(cases(400) < 400 || (windows > 1_000 && reached > 10), "{windows} {reached}");
}

/// The same of servers that have no use for the CPU without work. A component around others has work only as long as a
/// server in it has budget, so components without others are looked at.
#[test]
fn no_window_of_a_server_that_waits_for_work_has_less_supply_than_its_bound() {
    let rules = [ServerRule::Polling, ServerRule::Deferrable, ServerRule::Sporadic, ServerRule::CbsHard];
    let mut windows = std::collections::BTreeMap::<&str, (u64, u64)>::new();
    let mut tightness = Tightness::default();
    for seed in seeds(1_000) {
        let mut dice = Dice::new(seed);
        let mut system = random_tree(&mut dice);
        system.nodes[0].costs = None;
        let only = dice.pick(&rules);
        for component in &mut system.components {
            component.quantum = None;
            component.server = if dice.chance(60) { only } else { ServerRule::Ptps };
        }
        if check(&system, &CheckOptions::default()).schedulable != Answer::Yes {
            continue;
        }
        for (id, component) in (0..).zip(&system.components).filter(|(_, one)| !on_time(one.server)) {
            let around = component.parent.map(|id| system.components[id.index()].strategy);
            let order = match around.unwrap_or(system.nodes[0].strategy) {
                StrategyRef::Builtin(Builtin::Edf) => OuterOrder::Deadline,
                _ => OuterOrder::Fixed,
            };
            let is_around = system.components.iter().any(|one| one.parent == Some(ComponentId(id)));
            let Some(start) = guaranteed(component.server, order).ok().filter(|_| !is_around) else { continue };
            let more = windows_of(&system, id, start, (seed, "no_window_of_a_server"), &mut tightness);
            let all = windows.entry(component.server.name()).or_default();
            *all = (all.0 + more.0, all.1 + more.1);
        }
    }
    println!("windows, and those with no more than the bound: {windows:?}; bound / supply is {tightness}");
    let tested = |rule: ServerRule| windows.get(rule.name()).is_some_and(|(count, _)| *count > 50);
    assert!(cases(1_000) < 1_000 || (tested(ServerRule::Polling) && tested(ServerRule::Deferrable)), "{windows:?}");
}

/// How many servers of a component pay in each unit, how many jobs in it run, and how many of its tasks have a job.
fn paid_run_and_ready(system: &System, id: u32, seed: u64, duration: u64) -> Vec<(u64, u64, u64)> {
    use takt_log::Event;
    let mut events: Vec<(u32, Time, Event)> = Vec::new();
    let options = SimOptions { duration: Span::from_ns(duration), seed, node: None };
    simulate(system, &options, &mut events).unwrap_or_else(|error| panic!("{error}\n{system:#?}"));
    let mut units = vec![(0, 0, 0); duration as usize];
    let is_inside = |task: TaskId| system.tasks[task.index()].component == Some(ComponentId(id));
    let mut open = vec![0_u64; system.tasks.len()];
    let mut runs = vec![false; system.tasks.len()];
    let mut past = 0;
    for (_, at, event) in events.into_iter().chain([(0, Time::from_ns(duration), Event::ServerIdle { server: id })]) {
        for unit in past..at.as_ns() {
            let of = |has: &dyn Fn(usize) -> bool| (0..open.len()).filter(|task| has(*task)).count() as u64;
            units[unit as usize].1 = of(&|task| runs[task]);
            units[unit as usize].2 = of(&|task| open[task] > 0);
        }
        past = at.as_ns();
        match event {
            Event::Release { job, .. } if is_inside(job.task) => open[job.task.index()] += 1,
            Event::Start { job, .. } | Event::Resume { job, .. } if is_inside(job.task) => {
                runs[job.task.index()] = true;
            }
            Event::Preempt { job, .. } if is_inside(job.task) => runs[job.task.index()] = false,
            Event::Complete { job, .. } if is_inside(job.task) => {
                runs[job.task.index()] = false;
                open[job.task.index()] -= 1;
            }
            Event::Charge { server, since, amount, .. } if server == id => {
                let count = amount.as_ns() / at.saturating_since(since).as_ns();
                (since.as_ns()..at.as_ns()).for_each(|unit| units[unit as usize].0 += count);
            }
            _ => {}
        }
    }
    units
}

/// On several CPUs each budget is given within its period, busy or idle. So no window at all has less than the supply
/// of the multiprocessor periodic resource. And no CPU that a server gives is idle while a job waits in its component.
#[test]
fn no_window_on_several_cpus_has_less_supply_than_its_bound() {
    let (mut windows, mut reached, mut wide) = (0, 0, 0);
    let duration = 400;
    for seed in seeds(1_000) {
        let system = random_clusters(&mut Dice::new(seed));
        let Ok(placed) = takt_analysis::place(&system) else { continue };
        let system = placed.system;
        if check(&system, &CheckOptions::default()).schedulable != Answer::Yes {
            continue;
        }
        for (id, component) in (0..).zip(&system.components).filter(|(_, one)| on_time(one.server)) {
            let (Auto::Value(period), Auto::Value(budget)) = (component.period, component.budget) else { continue };
            let supply = Mpr::new(period.as_ns(), budget.as_ns(), component.cpus).expect("a budget that fits");
            let shown =
                || format!("{}\n{}\n{}", replay(seed, "no_window_on_several"), component.name, file::write(&system));
            let units = paid_run_and_ready(&system, id, seed, duration);
            let mut until: Vec<u64> = vec![0];
            for (at, (paid, run, ready)) in units.iter().copied().enumerate() {
                assert!(run >= paid.min(ready), "at {at}: {paid} pay, {run} of {ready} run\n{}", shown());
                until.push(until[at] + paid);
            }
            for length in 1..=4 * period.as_ns() {
                let least = supply.sbf(length).expect("a short window");
                for from in 0..=(duration - length) as usize {
                    let had = until[from + length as usize] - until[from];
                    assert!(had >= least, "from {from} for {length}: {had} < {least}\n{}", shown());
                    windows += 1;
                    reached += u64::from(least > 0 && had == least);
                }
            }
            wide += u64::from(component.cpus > 1);
        }
    }
    println!("{windows} windows, {reached} with no more than the bound, {wide} components on several CPUs");
    assert!(cases(1_000) < 1_000 || (windows > 10_000 && wide > 5), "{windows} {reached} {wide}");
}

/// Chains within components and between them, and sections that nothing preempts but the end of a budget.
#[test]
fn nothing_proven_of_dependent_tasks_in_components_misses() {
    let (mut bounded, mut chained, mut sections) = (0, 0, 0);
    let mut tightness = Tightness::default();
    for seed in seeds(2_000) {
        let mut dice = Dice::new(seed);
        let mut system = if dice.chance(70) { random_tree(&mut dice) } else { random_clusters(&mut dice) };
        system.nodes[0].placement = Placement::Global;
        let (links, cuts) = (dice.chance(60), dice.chance(50));
        for i in 1..system.tasks.len() {
            if links && dice.chance(40) {
                let before = dice.roll(0, i as u64 - 1) as usize;
                let (period, wcet) = (system.tasks[before].period, system.tasks[i].wcet);
                let task = &mut system.tasks[i];
                (task.after, task.period) = (vec![TaskId(before as u32)], period);
                (task.offset, task.jitter, task.arrival) = (Span::ZERO, Span::ZERO, Arrival::Periodic);
                task.deadline = task.deadline.max(wcet).min(period);
                task.wcet = wcet.min(period);
                task.exec = Exec::Wcet;
            }
        }
        for task in system.tasks.iter_mut().filter(|_| cuts) {
            task.preemption = random::preemption(&mut dice, task.wcet);
        }
        let report = checked(&system);
        if !claims(&system, &report) {
            continue;
        }
        let stats = simulated(&system, seed, 3_000);
        let replay = replay(seed, "nothing_proven_of_dependent");
        bounded += kept_bounds(&system, &report, &stats, &replay, &mut tightness);
        if report.schedulable == Answer::Yes {
            assert_eq!(misses(&stats), 0, "{replay}\n{}\n{report:#?}", file::write(&system));
            chained += u64::from(system.tasks.iter().any(|task| !task.after.is_empty()));
            sections += u64::from(system.tasks.iter().any(|task| task.preemption != Preemption::Anywhere));
        }
    }
    println!("{bounded} bounds; proven with chains {chained}, with sections {sections}");
    println!("the longest response seen / bound is {tightness}");
    if cases(2_000) >= 2_000 {
        assert!(bounded > 500 && chained > 20, "{bounded} {chained} {sections}");
    }
}

/// Components on two to four CPUs, some of them on several, with a task or two for each CPU.
fn random_clusters(dice: &mut Dice) -> System {
    let orders = [Builtin::Rm, Builtin::Edf, Builtin::Fp, Builtin::Dm];
    let cpus = dice.roll(2, 4);
    let mut system = System::local(cpus as u32, dice.pick(&orders), Vec::new());
    system.nodes[0].placement = match dice.roll(0, 3) {
        0 => Placement::Partitioned,
        1 => Placement::Clustered { cpus: 2 },
        _ => Placement::Global,
    };
    let only = dice.pick(&ServerRule::ALL[..3]);
    for i in 0..dice.roll(1, 3) {
        let rule = if dice.chance(70) { only } else { dice.pick(&ServerRule::ALL[..3]) };
        let mut component = Component::new(&format!("c{i}"), NodeId(0), rule);
        component.cpus = dice.roll(1, cpus) as u32;
        if component.cpus == 1 && dice.chance(30) {
            component.server = dice.pick(&ServerRule::ALL[..8]);
        }
        let period = dice.roll(4, 20);
        let budget = dice.roll(1, period * u64::from(component.cpus) / 2);
        component.strategy = StrategyRef::Builtin(dice.pick(&orders));
        (component.period, component.budget) = (Auto::Value(Span::from_ns(period)), Auto::Value(Span::from_ns(budget)));
        component.priority = Some(dice.roll(1, 4) as u32);
        for number in 0..dice.roll(1, 2 * u64::from(component.cpus)) {
            let period = dice.roll(2 * period, 12 * period);
            let wcet = dice.roll(1, (period / 8).max(1));
            system.tasks.push(Task {
                deadline: dice.ns((period / 2).max(wcet), period),
                offset: dice.ns(0, 9),
                exec: dice.pick(&[Exec::Wcet, Exec::Uniform { min: Span::from_ns(1), max: Span::from_ns(wcet) }]),
                priority: Some(dice.roll(1, 4) as u32),
                component: Some(ComponentId(i as u32)),
                ..Task::periodic(&format!("t{i}-{number}"), Span::from_ns(period), Span::from_ns(wcet))
            });
        }
        system.components.push(component);
    }
    if dice.chance(50) {
        let task = Task::periodic("own", dice.ns(10, 40), dice.ns(1, 5));
        system.tasks.push(Task { priority: Some(dice.roll(1, 4) as u32), ..task });
    }
    system
}

#[test]
fn nothing_proven_on_several_cpus_misses() {
    let (mut proven, mut bounded, mut wide, mut lent, mut bound) = (0, 0, 0, 0, 0);
    let mut tightness = Tightness::default();
    for seed in seeds(2_000) {
        let system = random_clusters(&mut Dice::new(seed));
        let report = checked(&system);
        // Without a place for each server nothing is proven.
        let Ok(placed) = takt_analysis::place(&system) else {
            assert_ne!(report.schedulable, Answer::Yes, "{}", file::write(&system));
            continue;
        };
        let system = placed.system;
        assert_eq!(checked(&system).schedulable, report.schedulable, "{}", file::write(&system));
        if !claims(&system, &report) {
            continue;
        }
        let stats = simulated(&system, seed, 2_000);
        let replay = replay(seed, "nothing_proven_on_several_cpus_misses");
        bounded += kept_bounds(&system, &report, &stats, &replay, &mut tightness);
        if report.schedulable == Answer::Yes {
            assert_eq!(misses(&stats), 0, "{replay}\n{}\n{report:#?}", file::write(&system));
            proven += 1;
            wide += u64::from(system.components.iter().any(|component| component.cpus > 1));
            lent += u64::from(system.components.iter().any(|component| component.server != ServerRule::Ptps));
            bound += u64::from(system.nodes[0].placement != Placement::Global);
        }
    }
    println!("{bounded} bounds; {proven} proven, {wide} on several CPUs, {lent} not under ptps, {bound} placed");
    println!("the longest response seen / bound is {tightness}");
    if cases(2_000) >= 2_000 {
        assert!(proven > 100 && wide.min(lent).min(bound) > 20, "{proven} {wide} {lent} {bound} {bounded}");
    }
}
