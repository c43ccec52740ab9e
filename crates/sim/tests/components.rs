//! Components under servers: the simulator against a slow one, unit by unit and event by event, and schedules by hand.

mod common;

use common::random::{self, Dice, seeds};
use common::servers::{Schedule, Unit, changes, run};
use common::{compare, simulated};
use takt_log::Event;
use takt_model::*;

/// The simulated schedule.
fn schedule(system: &System, duration: u64) -> Schedule {
    let events = simulated(system, 0, duration);
    let mut units = vec![Unit { task: None, payers: Vec::new() }; duration as usize];
    let mut running: Option<(usize, u64)> = None;
    let mut fill = |from: u64, to: u64, task: usize| {
        (from..to).for_each(|at| units[at as usize].task = Some(task));
    };
    for (at, event) in &events {
        match event {
            Event::Start { job, .. } | Event::Resume { job, .. } => running = Some((job.task.index(), *at)),
            Event::Preempt { .. } | Event::Complete { .. } => {
                let (task, since) = running.take().expect("a job runs");
                fill(since, *at, task);
            }
            _ => {}
        }
    }
    if let Some((task, since)) = running {
        fill(since, duration, task);
    }
    // No budget is lost or doubled: servers pay only what they have. They may have what any of their terms gives.
    let begins_full = |component: &Component| component.server == ServerRule::Sporadic;
    let full = |component: &Component| if begins_full(component) { component.budget } else { Auto::Value(Span::ZERO) };
    let mut left: Vec<Auto<Span>> = system.components.iter().map(full).collect();
    for (at, event) in &events {
        match event {
            Event::Charge { server, since, amount, idle } => {
                let grub = |rule: ServerRule| rule == ServerRule::Grub;
                let mut switches = system.switches.iter().filter(|switch| switch.component.0 == *server);
                let is_grub = grub(system.components[*server as usize].server)
                    || switches.any(|switch| switch.server.is_some_and(grub));
                let runs = |unit: &&Unit| unit.task.is_some_and(|task| is_inside(system, task, *server));
                let ran = units[since.as_ns() as usize..*at as usize].iter().filter(runs).count() as u64;
                assert_eq!(ran, if *idle { 0 } else { at - since.as_ns() }, "{event:?} at {at}");
                assert!(is_grub || amount.as_ns() == at - since.as_ns(), "{event:?} at {at}");
                (since.as_ns()..*at).for_each(|unit| units[unit as usize].payers.push(*server as usize));
                let Auto::Value(budget) = left[*server as usize] else { panic!("a budget is given") };
                left[*server as usize] = Auto::Value(budget.checked_sub(*amount).expect("it has what it pays"));
            }
            Event::Replenish { server, budget } => {
                let Auto::Value(first) = system.components[*server as usize].budget else {
                    panic!("a budget is given")
                };
                let switches = system.switches.iter().filter(|switch| switch.component.0 == *server);
                let most = switches.filter_map(|switch| switch.budget).fold(first, Span::max);
                assert!(*budget <= most, "{event:?} at {at}");
                left[*server as usize] = Auto::Value(*budget);
            }
            Event::Exhaust { server } => assert_eq!(left[*server as usize], Auto::Value(Span::ZERO), "at {at}"),
            _ => {}
        }
    }
    units.iter_mut().for_each(|unit| unit.payers.sort_unstable());
    Schedule { units, changes: changes(events.into_iter()) }
}

/// Whether a task stands in a component, at whatever depth.
fn is_inside(system: &System, task: usize, component: u32) -> bool {
    system.tasks[task].component.is_some_and(|home| system.around(home).any(|id| id.0 == component))
}

fn random_system(dice: &mut Dice) -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.strategies = (0..2).map(|i| random::levels_by_value(dice, &format!("own{i}"))).collect();
    let strategy = |dice: &mut Dice| {
        let own = dice.chance(25).then(|| StrategyRef::Own(StrategyId(dice.roll(0, 1) as u32)));
        own.unwrap_or_else(|| StrategyRef::Builtin(dice.pick(&Builtin::ALL)))
    };
    system.nodes[0].strategy = strategy(dice);
    // Powers of two keep the bandwidths of `grub` exact.
    let periods = if dice.chance(50) { vec![4, 8, 16] } else { vec![3, 4, 5, 6, 8, 10] };
    let rules: Vec<ServerRule> =
        if periods.len() == 3 { ServerRule::ALL.to_vec() } else { ServerRule::ALL[..8].to_vec() };
    let only = dice.pick(&rules);
    let mixed = dice.chance(50);
    let grid = if dice.chance(25) { dice.roll(2, 3) } else { 0 };
    for i in 0..dice.roll(1, 4) {
        let rule = if mixed { dice.pick(&rules) } else { only };
        let mut component = Component::new(&format!("c{i}"), NodeId(0), rule);
        let period = dice.pick(&periods);
        component.strategy = strategy(dice);
        (component.period, component.budget) =
            (Auto::Value(Span::from_ns(period)), Auto::Value(dice.ns(1, period.div_ceil(2))));
        component.quantum = (grid > 0 && dice.chance(70)).then(|| Span::from_ns(grid));
        component.priority = Some(dice.roll(1, 3) as u32);
        component.parent = (i > 0 && dice.chance(35)).then(|| ComponentId(dice.roll(0, i - 1) as u32));
        system.components.push(component);
    }
    for i in 0..dice.roll(1, 5) {
        let period = dice.pick(&periods) * dice.roll(1, 2);
        let mut task = Task::periodic(&format!("t{i}"), Span::from_ns(period), dice.ns(1, period.div_ceil(3)));
        task.offset = dice.ns(0, 5);
        task.priority = Some(dice.roll(1, 3) as u32);
        task.criticality = dice.pick(&[Criticality::High, Criticality::Low]);
        task.importance = dice.roll(0, 2) as u32;
        task.deadline = if dice.chance(30) { dice.ns(1, period) } else { task.deadline };
        let inside = dice.chance(85).then(|| ComponentId(dice.roll(0, system.components.len() as u64 - 1) as u32));
        task.component = inside;
        system.tasks.push(task);
    }
    for _ in 0..if dice.chance(40) { dice.roll(1, 3) } else { 0 } {
        let component = ComponentId(dice.roll(0, system.components.len() as u64 - 1) as u32);
        let at = Time::from_ns(dice.roll(0, 40));
        if system.switches.iter().any(|switch| (switch.component, switch.at) == (component, at)) {
            continue;
        }
        let period = dice.pick(&periods);
        let (server, budget) = (dice.chance(80).then(|| dice.pick(&rules)), dice.ns(1, period.div_ceil(2)));
        let (period, budget) = (Some(Span::from_ns(period)), Some(budget));
        system.switches.push(ServerSwitch { component, at, server, period, budget });
    }
    random::costs_and_comparisons(dice, &mut system);
    system
}

/// Whether returns of sporadic budgets may depend on the instants of updates. Under a quantum a server may pay after
/// its work is done. If a period has passed since it became active, this part comes back at the next update.
fn returns_by_instants(system: &System) -> bool {
    let first = system.components.iter().map(|component| component.server);
    let mut rules = first.chain(system.switches.iter().filter_map(|switch| switch.server));
    let has_quantum = system.components.iter().any(|component| component.quantum.is_some());
    has_quantum && rules.any(|rule| rule == ServerRule::Sporadic)
}

#[test]
fn random_hierarchies_run_as_the_reference_says() {
    for seed in seeds(4_000) {
        let mut dice = Dice::new(seed);
        let system = random_system(&mut dice);
        let duration = dice.roll(30, 90);
        let (fast, slow) = (schedule(&system, duration), run(&system, duration));
        let replay = format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-sim --test components");
        compare(&system, &fast.units, &slow.units, &replay);
        if !returns_by_instants(&system) {
            compare(&system, &fast.changes, &slow.changes, &replay);
        }
    }
}

/// A server of `budget` every `period`, with a task of its own for each (name, offset, WCET).
fn domain(
    system: &mut System,
    server: (&str, ServerRule, u64, u64),
    strategy: Builtin,
    tasks: &[(&str, u64, u64, u64)],
) {
    let (name, rule, period, budget) = server;
    let id = ComponentId(system.components.len() as u32);
    system.components.push(Component {
        strategy: StrategyRef::Builtin(strategy),
        period: Auto::Value(Span::from_ns(period)),
        budget: Auto::Value(Span::from_ns(budget)),
        ..Component::new(name, NodeId(0), rule)
    });
    for (name, offset, period, wcet) in tasks {
        let task = Task::periodic(name, Span::from_ns(*period), Span::from_ns(*wcet));
        system.tasks.push(Task { offset: Span::from_ns(*offset), component: Some(id), ..task });
    }
}

/// A row for each task, `#` where it runs, and for each server, `$` where it pays.
fn chart(system: &System, duration: u64) -> Vec<String> {
    let units = schedule(system, duration).units;
    let row = |name: &str, mark: char, has: &dyn Fn(&Unit) -> bool| {
        format!("{name} {}", units.iter().map(|unit| if has(unit) { mark } else { '.' }).collect::<String>())
    };
    let tasks = system.tasks.iter().enumerate().map(|(i, task)| row(&task.name, '#', &|unit| unit.task == Some(i)));
    let servers = system.components.iter().enumerate();
    let servers = servers.map(|(i, component)| row(&component.name, '$', &|unit| unit.payers.contains(&i)));
    tasks.chain(servers).collect()
}

/// The scenario of [CSA Fig. 2]: H is idle at 0 and 10, and its job comes two units later.
fn figure_2(rule: ServerRule) -> Vec<String> {
    let mut system = System::local(1, Builtin::Rm, Vec::new());
    domain(&mut system, ("H", rule, 10, 4), Builtin::Rm, &[("h", 2, 10, 2)]);
    domain(&mut system, ("L", rule, 20, 8), Builtin::Rm, &[("l", 0, 20, 5)]);
    chart(&system, 20)
}

#[test]
fn an_idle_server_wastes_lends_or_gives_its_time() {
    // Nobody runs while H is idle.
    assert_eq!(
        figure_2(ServerRule::Ptps),
        ["h ..##........##......", "l ....#####...........", "H $$$$......$$$$......", "L ....$$$$$$....$$....",]
    );
    // L runs while H is idle, and both pay.
    assert_eq!(
        figure_2(ServerRule::Wcps),
        ["h ..##........##......", "l ##..###.............", "H $$$$......$$$$......", "L $$..$$$$$$..........",]
    );
    // L runs while H is idle, and H pays.
    assert_eq!(
        figure_2(ServerRule::Crps),
        ["h ..##........##......", "l ##..###.............", "H $$$$......$$$$......", "L ....$$$$$$....$$....",]
    );
}

/// The terms change at 3; they hold from the end of the period on, and the old budget ends with it.
#[test]
fn a_server_takes_new_terms_when_its_period_ends() {
    let with = |before: ServerRule, after: ServerRule| {
        let mut system = System::local(1, Builtin::Edf, Vec::new());
        domain(&mut system, ("S", before, 6, 2), Builtin::Fifo, &[("x", 0, 100, 30)]);
        system.switches.push(ServerSwitch {
            component: ComponentId(0),
            at: Time::from_ns(3),
            server: Some(after),
            period: Some(Span::from_ns(4)),
            budget: Some(Span::from_ns(1)),
        });
        chart(&system, 16)[1].clone()
    };
    use ServerRule::{Cbs, CbsHard, Deferrable, Polling, Sporadic};
    for (before, after) in [(Polling, Deferrable), (Sporadic, Polling), (CbsHard, Sporadic)] {
        assert_eq!(with(before, after), "S $$....$...$...$.", "{before:?} {after:?}");
    }
    // At 3 its deadline is 12, for it has used its first budget ahead of time.
    assert_eq!(with(Cbs, CbsHard), "S $$$$........$...");
}

/// Three servers by hand: the first has more to do than its budget, the second is idle, the third has work.
fn three_servers(rule: ServerRule) -> Vec<String> {
    let mut system = System::local(1, Builtin::Rm, Vec::new());
    domain(&mut system, ("A", rule, 8, 2), Builtin::Rm, &[("a", 0, 16, 5)]);
    domain(&mut system, ("B", rule, 12, 3), Builtin::Rm, &[("b", 9, 24, 1)]);
    domain(&mut system, ("C", rule, 16, 4), Builtin::Rm, &[("c", 0, 16, 3)]);
    chart(&system, 16)
}

#[test]
fn crps_serves_whoever_is_first_on_the_budget_of_an_idle_server() {
    assert_eq!(
        three_servers(ServerRule::Ptps),
        [
            "a ##......##......",
            "b ............#...",
            "c .....###........",
            "A $$......$$......",
            "B ..$$$.......$$$.",
            "C .....$$$..$.....",
        ]
    );
    // From 2 on B lends to C, for A has no budget; both pay.
    assert_eq!(
        three_servers(ServerRule::Wcps),
        [
            "a ##......##......",
            "b ............#...",
            "c ..###...........",
            "A $$......$$......",
            "B ..$$$.......$$$.",
            "C ..$$$$..........",
        ]
    );
    // From 2 on B lends to A, the first that has work.
    assert_eq!(
        three_servers(ServerRule::Crps),
        [
            "a #####...........",
            "b .........#......",
            "c .....###........",
            "A $$......$$......",
            "B ..$$$.......$$$.",
            "C .....$$$..$.....",
        ]
    );
}

/// A budget of one and a half quanta. The server uses the remnant. Only the rest of that quantum is lost.
#[test]
fn a_remnant_below_the_quantum_costs_the_rest_of_one_quantum() {
    let mut system = System::local(1, Builtin::Rm, Vec::new());
    domain(&mut system, ("A", ServerRule::Deferrable, 10, 3), Builtin::Fifo, &[("a", 0, 100, 50)]);
    domain(&mut system, ("B", ServerRule::Deferrable, 20, 8), Builtin::Fifo, &[("b", 0, 100, 20)]);
    system.components.iter_mut().for_each(|component| component.quantum = Some(Span::from_ns(2)));
    assert_eq!(
        chart(&system, 20),
        ["a ###.......###.......", "b ....######....##....", "A $$$.......$$$.......", "B ....$$$$$$....$$....",]
    );
}

/// The example of G. Buttazzo, Hard Real-Time Computing Systems, chapter 6: a periodic task (4, 7) beside a server of 3
/// every 8. The budget ends at 7, so that the deadline 11 becomes 19; at 13 the server keeps it, as 2 < (19 - 13) 3/8.
#[test]
fn a_constant_bandwidth_server_postpones_its_deadline() {
    let task = Task::periodic("p", Span::from_ns(7), Span::from_ns(4));
    let mut system = System::local(1, Builtin::Edf, vec![task]);
    domain(&mut system, ("S", ServerRule::Cbs, 8, 3), Builtin::Fifo, &[("x", 3, 100, 4), ("y", 13, 100, 3)]);
    assert_eq!(
        chart(&system, 21),
        ["p ####...####....####..", "x ....###....#.........", "y .............##....#.", "S ....$$$....$.$$....$.",]
    );
}

/// The example under "How it works" in Zephyr's documentation of its constant bandwidth server (pull request 83601 of
/// zephyrproject-rtos/zephyr). The server is alone, with 3 s every 7 s. Here 1 ns is a tenth of a second. At 8 s it
/// keeps its budget of 1 s, as 1/7 < 3/7. At 16 s it has 2.7 s until 22 s, which is more than its share.
#[test]
fn a_constant_bandwidth_server_compares_its_budget_with_its_share_when_work_comes() {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    let jobs = [("a", 10, 1_000, 20), ("b", 10, 1_000, 30), ("c", 80, 1_000, 13), ("d", 160, 1_000, 10)];
    domain(&mut system, ("S", ServerRule::Cbs, 70, 30), Builtin::Fifo, &jobs);
    let Schedule { units, changes } = schedule(&system, 200);
    let runs = |task: usize| {
        let all: Vec<usize> = (0..units.len()).filter(|at| units[*at].task == Some(task)).collect();
        (all[0], all[0] + all.len())
    };
    assert_eq!([0, 1, 2, 3].map(runs), [(10, 30), (30, 60), (80, 93), (160, 170)]);
    let full = Event::Replenish { server: 0, budget: Span::from_ns(30) };
    let (exhaust, idle) = (Event::Exhaust { server: 0 }, Event::ServerIdle { server: 0 });
    let expected = [
        (10, full),
        (40, exhaust),
        (40, full),
        (60, idle),
        (90, exhaust),
        (90, full),
        (93, idle),
        (160, full),
        (170, idle),
    ];
    assert_eq!(changes, expected);
}
