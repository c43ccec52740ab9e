//! The manager with virtual threads, against the simulator.

use std::collections::BTreeMap;

use takt_linux::machine::Limits;
use takt_log::{Event, JobKey};
use takt_model::draw::{Arrivals, Draw};
use takt_model::*;
use takt_policy::CpuPart;

use crate::budgets::board::Board;
use crate::budgets::core::{Change, Fact, Join};
use random::{Dice, seeds};
use systems::{random_system, shared_system};
use world::{Schedule, World, managed, schedule, simulated};

/// The simulator's small random systems.
#[allow(dead_code, reason = "the simulator's tests use the rest")]
#[path = "../../../sim/tests/common/random.rs"]
mod random;
mod systems;
mod world;

/// Whether one manager takes all of this system. Levels may need what a task does not have, and no manager takes
/// components without tasks on CPUs of their own.
fn is_whole(system: &System) -> bool {
    let parts = CpuPart::of_node(system, NodeId(0)).unwrap_or_default();
    matches!(&parts[..], [part] if part.components.len() == system.components.len())
}

#[test]
fn a_manager_that_is_never_late_does_what_the_simulator_does() {
    compare("never_late_does", random_system);
}

/// It chooses the same CPUs, too.
#[test]
fn a_manager_of_several_cpus_that_is_never_late_does_what_the_simulator_does() {
    compare("several_cpus_that_is_never_late", shared_system);
}

fn compare(test: &str, make: fn(&mut Dice) -> System) {
    let mut compared = 0;
    for seed in seeds(4_000) {
        let mut dice = Dice::new(seed);
        let system = make(&mut dice);
        if !is_whole(&system) {
            continue;
        }
        let duration = dice.roll(30, 120);
        let end = Time::from_ns(duration);
        let live = schedule(&managed(&system, seed, duration, || Span::ZERO).facts, end);
        let simulated = schedule(&simulated(&system, seed, duration), end);
        compared += 1;
        let replay = format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-run --lib {test}");
        if live != simulated {
            let apart = |left: &dyn Fn(&Schedule) -> Vec<String>| {
                let (live, simulated) = (left(&live), left(&simulated));
                let at =
                    (0..live.len().max(simulated.len())).find(|at| live.get(*at) != simulated.get(*at)).unwrap_or(0);
                let some = |of: &Vec<String>| of[at.saturating_sub(3).min(of.len())..(at + 3).min(of.len())].to_vec();
                if live == simulated { String::new() } else { format!("{:#?}\n{:#?}", some(&live), some(&simulated)) }
            };
            let jobs = apart(&|of| of.jobs.iter().map(|job| format!("{job:?}")).chain([String::new()]).collect());
            let servers = apart(&|of| of.servers.iter().map(|event| format!("{event:?}")).collect());
            let runs = apart(&|of| {
                let runs =
                    |(cpu, runs): (&u32, &Vec<_>)| runs.iter().map(|run| format!("CPU {cpu}: {run:?}")).collect();
                of.runs.iter().flat_map::<Vec<String>, _>(runs).collect()
            });
            panic!("{replay}\n{}\nmanager, then simulator:\n{jobs}\n{servers}\n{runs}", file::write(&system));
        }
    }
    println!("{compared} compared");
    assert!(compared > 0);
}

/// A part of a system that changes while it runs.
struct Step {
    at: Time,
    /// Components, tasks and changes of servers that are there from then on.
    components: usize,
    tasks: usize,
    switches: usize,
    /// Slots that leave.
    leaves: Vec<u32>,
}

/// The first components, tasks and changes of a system.
fn first_of(system: &System, components: usize, tasks: usize, switches: usize) -> System {
    let mut part = system.clone();
    part.components.truncate(components);
    part.tasks.truncate(tasks);
    part.switches.truncate(switches);
    part
}

/// Closes the server of a component at an instant.
fn closed(component: ComponentId, at: Time) -> ServerSwitch {
    let (period, budget) = (Some(takt_policy::Hierarchy::CLOSED), Some(Span::ZERO));
    ServerSwitch { component, at, server: None, period, budget }
}

/// Runs a system under a manager that is never late; what is new comes step by step.
fn growing(system: &System, first: &System, steps: &[Step], seed: u64, duration: u64) -> Vec<(Time, Fact)> {
    let end = Time::from_ns(duration);
    let mut part = CpuPart::of_node(first, NodeId(0)).unwrap().remove(0);
    let mut board = Board::new(first, NodeId(0), part.clone(), (seed, end), |_| None);
    board.make_room(8, 16);
    let mut world = World::new(system, seed, 1);
    let mut facts = Vec::new();
    let mut steps = steps.iter().peekable();
    loop {
        let now = world.now;
        board.pass(now, &mut world, &mut |at, fact| facts.push((at, fact)));
        drop(board.take_changed());
        if now >= end {
            break;
        }
        if let Some(step) = steps.next_if(|step| step.at.as_ns() == now.as_ns() + 1) {
            let full = first_of(system, step.components, step.tasks, step.switches);
            let known = part.slots.len();
            part = part.with_change(&full, NodeId(0), step.at).unwrap().unwrap();
            let join = |id: TaskId| {
                let arrivals = Arrivals::new(&system.tasks[id.index()], Draw::new(seed, ""));
                Join::new(id, arrivals.peek().map_or(Time::MAX, |first| first.arrival))
            };
            let joins = (known..part.slots.len()).map(|slot| join(TaskId(part.slots[slot])));
            let change =
                Change { at: step.at, part: part.clone(), joins: joins.collect(), leaves: step.leaves.clone() };
            let task = |id: TaskId| system.tasks.get(id.index());
            assert!(board.announce(Box::new(change), task).is_ok(), "{} at {now}", step.at);
        }
        // Each change is announced just before its instant.
        let before = steps.peek().map_or(Time::MAX, |step| Time::from_ns(step.at.as_ns() - 1));
        let next = board.next_instant().min(world.finish()).min(before).min(end);
        world.advance(next, |_, _| ());
    }
    board.finish(&mut |at, fact| facts.push((at, fact)));
    facts
}

/// A random system whose later components join at random instants: under a closed server until then.
fn random_joins(dice: &mut Dice) -> (System, System, Vec<Step>) {
    let mut system = random_system(dice);
    for component in &mut system.components {
        component.quantum = None;
    }
    for task in &mut system.tasks {
        task.after.clear();
    }
    let first = dice.roll(1, system.components.len() as u64) as usize;
    let joins = |task: &Task| task.component.is_some_and(|id| id.index() >= first);
    let (late, early): (Vec<Task>, Vec<Task>) = system.tasks.drain(..).partition(|task| joins(task));
    system.tasks = early;
    let (mut steps, mut at) = (Vec::new(), 0);
    let own: Vec<ServerSwitch> = system.switches.drain(..).collect();
    system.switches.extend(own.into_iter().filter(|switch| switch.component.index() < first));
    let start = first_of(&system, first, system.tasks.len(), system.switches.len());
    for id in first..system.components.len() {
        at += dice.roll(1, 20);
        let (time, component) = (Time::from_ns(at), &mut system.components[id]);
        let (Auto::Value(period), Auto::Value(budget)) = (component.period, component.budget) else { continue };
        (component.period, component.budget) = (Auto::Value(takt_policy::Hierarchy::CLOSED), Auto::Value(Span::ZERO));
        let (component, server) = (ComponentId(id as u32), Some(component.server));
        system.switches.push(ServerSwitch { component, at: time, server, period: Some(period), budget: Some(budget) });
        for task in late.iter().filter(|task| task.component == Some(component)) {
            system.tasks.push(Task { offset: task.offset.saturating_add(Span::from_ns(at)), ..task.clone() });
        }
        let (tasks, switches) = (system.tasks.len(), system.switches.len());
        steps.push(Step { at: time, components: id + 1, tasks, switches, leaves: Vec::new() });
        if dice.chance(50) {
            at += dice.roll(1, 10);
            let (component, period) = (ComponentId(dice.roll(0, id as u64) as u32), dice.roll(3, 16));
            let server = dice.chance(50).then(|| dice.pick(&ServerRule::ALL));
            let (budget, period) = (Some(dice.ns(1, period.div_ceil(2))), Some(Span::from_ns(period)));
            let time = Time::from_ns(at);
            if system.switches.iter().any(|switch| (switch.component, switch.at) == (component, time)) {
                continue;
            }
            system.switches.push(ServerSwitch { component, at: time, server, period, budget });
            steps.push(Step { at: time, components: id + 1, tasks, switches: switches + 1, leaves: Vec::new() });
        }
    }
    (system, start, steps)
}

/// Whether the plans of the node depend on which tasks and servers there are, beyond their order.
fn has_relative_plans(system: &System) -> bool {
    let relative = |strategy: &StrategyRef| {
        !matches!(
            strategy,
            StrategyRef::Builtin(Builtin::Rm | Builtin::Dm | Builtin::Fp | Builtin::Edf | Builtin::Fifo)
        )
    };
    relative(&system.nodes[0].strategy)
        || system.modes.iter().any(|mode| relative(&mode.strategy))
        || system.components.iter().any(|component| relative(&component.strategy))
}

/// After a join, a component runs as if the system file had always had it. The same holds for a changed server.
#[test]
fn components_that_join_run_as_if_they_had_been_there_with_a_closed_server() {
    let mut compared = 0;
    for seed in seeds(4_000) {
        let mut dice = Dice::new(seed);
        let (system, first, steps) = random_joins(&mut dice);
        if !is_whole(&system) || !is_whole(&first) || has_relative_plans(&system) || first.tasks.is_empty() {
            continue;
        }
        let duration = dice.roll(60, 150);
        let end = Time::from_ns(duration);
        let live = schedule(&growing(&system, &first, &steps, seed, duration), end);
        let simulated = schedule(&managed(&system, seed, duration, || Span::ZERO).facts, end);
        // The budget of a closed server is not told at the start of those that join later.
        let told = |of: &Schedule| {
            let none = |text: &String| text.contains("Replenish") && text.contains("budget: Span(0)");
            let mut told: Vec<(Time, String)> = of.servers.iter().filter(|(_, text)| !none(text)).cloned().collect();
            // Servers that join stand behind those inside of others. So the order within an instant differs.
            told.sort();
            told
        };
        compared += 1;
        let replay = format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-run --lib components_that_join");
        assert_eq!(live.jobs, simulated.jobs, "{replay}\n{}", file::write(&system));
        assert_eq!(told(&live), told(&simulated), "{replay}\n{}", file::write(&system));
        assert_eq!(live.runs, simulated.runs, "{replay}\n{}", file::write(&system));
    }
    println!("{compared} compared");
    assert!(compared > 0);
}

/// Jobs of a component that leaves end, none of them runs on, and its server is closed at the end of its period.
#[test]
fn components_that_leave_end_their_jobs_and_give_their_budget_back_once() {
    for seed in seeds(4_000) {
        let mut dice = Dice::new(seed);
        let (mut system, first, mut steps) = random_joins(&mut dice);
        if !is_whole(&system) || !is_whole(&first) || first.tasks.is_empty() {
            continue;
        }
        let last = system.switches.iter().map(|switch| switch.at.as_ns()).max().unwrap_or(0);
        let at = Time::from_ns(last + dice.roll(1, 20));
        let id = ComponentId(dice.roll(0, system.components.len() as u64 - 1) as u32);
        if system.components.iter().any(|component| component.parent == Some(id)) {
            continue;
        }
        system.switches.push(closed(id, at));
        let leaves: Vec<u32> =
            (0..).zip(&system.tasks).filter(|(_, task)| task.component == Some(id)).map(|(slot, _)| slot).collect();
        let (components, tasks, switches) = (system.components.len(), system.tasks.len(), system.switches.len());
        steps.push(Step { at, components, tasks, switches, leaves: leaves.clone() });
        let duration = at.as_ns() + 100;
        let facts = growing(&system, &first, &steps, seed, duration);
        let replay = format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-run --lib components_that_leave");
        let (mut open, mut gone) = (std::collections::BTreeSet::new(), false);
        for (time, fact) in &facts {
            match *fact {
                Fact::Event(Event::Release { job, .. }) => {
                    assert!(*time < at || !leaves.contains(&job.task.0), "{replay}\n{job:?} is released at {time}");
                    open.insert(job);
                }
                Fact::Event(Event::Complete { job, .. } | Event::Cancel { job, .. }) => {
                    assert!(open.remove(&job), "{replay}\n{job:?} ends twice at {time}");
                }
                Fact::Event(Event::Start { job, .. } | Event::Resume { job, .. }) => {
                    assert!(*time <= at || !leaves.contains(&job.task.0), "{replay}\n{job:?} runs at {time}");
                }
                Fact::Switched { component, period, .. } if component == id && *time >= at => {
                    gone |= period == takt_policy::Hierarchy::CLOSED;
                }
                Fact::Event(Event::Replenish { server, budget }) if server == id.0 && gone => {
                    assert!(budget.is_zero(), "{replay}\na closed server has a budget at {time}");
                }
                Fact::Event(Event::Charge { server, since, .. }) if server == id.0 => {
                    assert!(!gone || since < *time, "{replay}\na closed server pays at {time}");
                }
                _ => {}
            }
        }
        // A deadline of `cbs` and `grub` may lie many periods ahead.
        assert!(
            gone || !super::hard(&system, id),
            "{replay}\nthe server is closed within its period\n{}",
            file::write(&system)
        );
        assert!(open.iter().all(|job| !leaves.contains(&job.task.0)), "{replay}\n{open:?}");
    }
}

/// With a late manager each job still completes once and in turn. A component exceeds what its server paid for
/// by no more than the lateness of the decisions.
#[test]
fn a_late_manager_gives_each_component_no_more_than_its_budget_and_its_lateness() {
    be_late("late_manager_gives", random_system);
}

#[test]
fn a_late_manager_of_several_cpus_gives_each_component_no_more_than_its_budget_and_its_lateness() {
    be_late("late_manager_of_several", shared_system);
}

fn be_late(test: &str, make: fn(&mut Dice) -> System) {
    for seed in seeds(4_000) {
        let mut dice = Dice::new(seed);
        let system = make(&mut dice);
        if !is_whole(&system) {
            continue;
        }
        let (duration, most) = (dice.roll(30, 120), dice.roll(1, 5));
        let mut lags = Dice::new(seed + 1);
        let managed = managed(&system, seed, duration, || lags.ns(0, most));
        let replay = format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-run --lib {test}");
        let _ = schedule(&managed.facts, Time::from_ns(duration));
        let mut ended: BTreeMap<JobKey, Event> = BTreeMap::new();
        let mut turn: BTreeMap<TaskId, u64> = BTreeMap::new();
        let mut paid = vec![Span::ZERO; system.components.len()];
        let mut began: BTreeMap<ComponentId, u64> = BTreeMap::new();
        let around = |task: TaskId| {
            let outer = |id: &ComponentId| system.components[id.index()].parent;
            std::iter::successors(system.tasks[task.index()].component, outer)
        };
        for (at, fact) in &managed.facts {
            match *fact {
                Fact::Event(event @ (Event::Complete { job, .. } | Event::Cancel { job, .. })) => {
                    let before = ended.insert(job, event);
                    assert_eq!(before, None, "{replay}\n{job:?} ends twice at {at}");
                }
                Fact::Event(Event::Start { job, .. }) => {
                    let turn = turn.entry(job.task).or_default();
                    assert!(*turn <= job.number, "{replay}\n{job:?} starts after its successor");
                    *turn = job.number + 1;
                    around(job.task).for_each(|id| *began.entry(id).or_default() += 1);
                }
                Fact::Event(Event::Resume { job, .. }) => {
                    around(job.task).for_each(|id| *began.entry(id).or_default() += 1);
                }
                Fact::Event(Event::Charge { server, since, amount, idle: false }) => {
                    // `grub` pays less than the time. What it paid for is the time.
                    let time = at.saturating_since(since);
                    paid[server as usize] += if system.nodes[0].cpus == 1 { time } else { amount };
                    // A manager that is late may find that a budget has ended and come back: nothing is preempted then.
                    *began.entry(ComponentId(server)).or_default() += 1;
                }
                _ => {}
            }
        }
        // A borrower under `crps` does not pay.
        let crps = |id: ComponentId| super::rules(&system, id).any(|rule| rule == ServerRule::Crps);
        if (0..).zip(&system.components).any(|(id, _)| crps(ComponentId(id))) {
            continue;
        }
        for (id, paid) in (0..).map(ComponentId).zip(paid) {
            let inside = |at: &usize| around(TaskId(*at as u32)).any(|around| around == id);
            let ran: Span =
                (0..system.tasks.len()).filter(inside).map(|at| managed.ran[at]).fold(Span::ZERO, |a, b| a + b);
            // Each time may end late once: when one of its jobs has the CPU, and when its server stops to pay.
            let late = Span::from_ns(most * began.get(&id).copied().unwrap_or(0));
            assert!(
                ran <= paid + late,
                "{replay}\n{}\n{id:?} ran {ran}, paid {paid}, late {late}",
                file::write(&system)
            );
        }
    }
}

#[test]
fn a_manager_allocates_nothing_after_its_start() {
    let mut allocated = 0;
    for seed in seeds(600) {
        let mut dice = Dice::new(seed);
        let system = if seed % 2 == 0 { random_system(&mut dice) } else { shared_system(&mut dice) };
        if !is_whole(&system) {
            continue;
        }
        let end = Time::from_ns(2_000);
        let part = CpuPart::of_node(&system, NodeId(0)).unwrap().remove(0);
        let mut world = World::new(&system, seed, part.cpus.len());
        let mut board = Board::new(&system, NodeId(0), part, (seed, end), |_| None);
        let mut facts = 0u64;
        let measured = allocation_counter::measure(|| {
            while world.now < end {
                board.pass(world.now, &mut world, &mut |_, _| facts += 1);
                let until = board.next_instant().min(world.finish()).min(end);
                world.advance(until, |_, _| ());
            }
            board.finish(&mut |_, _| facts += 1);
        });
        assert!(facts > 0);
        let replay = format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-run --lib allocates_nothing");
        assert_eq!(measured.count_total, 0, "{replay}\n{}", file::write(&system));
        allocated += measured.count_total;
    }
    assert_eq!(allocated, 0);
}

/// A component has 60 % of each of two CPUs. A task fits into the sum of both, and not on its CPU.
#[test]
fn each_cpu_of_a_component_has_room_for_its_own_server() {
    let limits = Limits {
        rt_runtime_us: 950_000,
        rt_period_us: 1_000_000,
        dl_period_min: Span::from_us(100),
        dl_period_max: Span::from_s(4),
    };
    let task = |name: &str, place: &str, wcet: u64| {
        format!("[[task]]\nname = \"{name}\"\n{place}\nperiod = \"10ms\"\nwcet = \"{wcet}ms\"\n")
    };
    let node = "takt = 1\n[[node]]\nname = \"n\"\ncpus = 3\nplacement = \"partitioned\"\nstrategy = \"rm\"\n";
    for rule in [ServerRule::Ptps, ServerRule::Wcps, ServerRule::Cbs] {
        let admitted = |beside: u64| {
            let component = format!(
                "[[component]]\nname = \"wide\"\nserver = \"{}\"\ncpus = 2\nserver-cpus = [2, 0]\nperiod = \
                 \"10ms\"\nbudget = \"12ms\"\nstrategy = \"edf\"\n",
                rule.name()
            );
            let inside = ["left", "right"].map(|name| task(name, "component = \"wide\"", 6)).concat();
            let own = task("beside", "cpus = [0]", beside) + &task("apart", "cpus = [1]", 9);
            let system = file::parse(&format!("{node}{component}{inside}{own}"), "test.toml").unwrap();
            let parts = CpuPart::of_node(&system, NodeId(0)).unwrap();
            assert_eq!(parts.iter().map(|part| part.cpus.clone()).collect::<Vec<_>>(), [vec![0, 2], vec![1]]);
            super::refuse_overload(&system, NodeId(0), &parts, &limits)
        };
        assert!(admitted(3).is_ok(), "{rule:?}: {:?}", admitted(3));
        let refused = admitted(4).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("CPUs 0 use 100 %") && text.contains("--force"), "{rule:?}: {text}");
        assert_eq!(refused.exit_code(), 3);
    }
}

/// Before its mode a component has 8 and 4 ms of 16 ms on its two CPUs, then 6.5 ms on each.
#[test]
fn the_larger_share_counts_of_all_divisions_of_a_budget() {
    let text = "takt = 1\n[[node]]\nname = \"n\"\ncpus = 2\nplacement = \"partitioned\"\nstrategy = \"rm\"\n\
                [[component]]\nname = \"wide\"\nserver = \"ptps\"\ncpus = 2\nperiod = \"16ms\"\nbudget = \"12ms\"\n\
                strategy = \"edf\"\n[[task]]\nname = \"t\"\ncomponent = \"wide\"\nperiod = \"16ms\"\nwcet = \"1ms\"\n";
    let mut system = file::parse(text, "test.toml").unwrap();
    system.components[0].quantum = Some(Span::from_ms(4));
    let budget = Some(Span::from_ms(13));
    let mode = ServerSwitch { component: ComponentId(0), at: Time::ZERO, server: None, period: None, budget };
    system.switches.push(mode);
    let shares = super::shares_ppm(&system, ComponentId(0), &system.components[0], &CpuSet::first(2));
    assert_eq!(shares, [500_000, 406_250]);
}
