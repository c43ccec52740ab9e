//! Plans of a dispatcher. A deadline that `check` proves for a plan or a mode is never missed in
//! simulation. A reported blocking occurs in some run.

use std::sync::Arc;

use super::random::Dice;
use super::{checked, replay, seeds, simulated};
use takt_analysis::Answer;
use takt_dispatch::{Anomalies, Anomaly, Limits, OperatingMode, Operation, Operations, Plan};
use takt_log::Event;
use takt_log::stats::Stats;
use takt_model::*;

/// Two to five operations of one CPU or two, short periods. Chains cross CPUs: `check` uses their
/// sum of deadlines there.
fn operations(dice: &mut Dice) -> Operations {
    let cpus = if dice.chance(30) { 2 } else { 1 };
    let mut set = Operations::new("random").cpus(cpus).cancel(dice.chance(30));
    let timers = dice.chance(50);
    let light = dice.roll(2, 6);
    for i in 0..dice.roll(2, 5) {
        let (name, period) = (format!("t{i}"), dice.pick(&[8, 12, 16, 24, 30, 40, 60]));
        let mut operation = match dice.roll(0, 5) {
            0 if i > 0 => Operation::after(&name, [format!("t{}", dice.roll(0, i - 1))]),
            0..=2 if !timers => Operation::sporadic(&name, Span::from_ns(period)),
            _ => Operation::periodic(&name, Span::from_ns(period)).offset(dice.ns(0, period)),
        };
        let wcet = dice.roll(1, (period / light).max(1));
        operation = operation.wcet(Span::from_ns(wcet)).importance(dice.roll(0, 2) as u32);
        operation = operation.priority(dice.roll(1, 3) as u32);
        if cpus > 1 {
            operation = operation.on_cpu(dice.roll(0, 1) as u32);
        }
        if dice.chance(50) {
            // Several jobs may be there where the deadline is beyond the period.
            let most = if dice.chance(30) { 4 * period } else { period };
            operation = operation.deadline(dice.ns(wcet, most));
        }
        if dice.chance(30) {
            operation = operation.noncritical();
            operation.cancel = dice.pick(&[None, None, Some(false), Some(true)]);
        }
        set.add(operation);
    }
    set
}

fn strategy(dice: &mut Dice) -> Strategy {
    let mut strategy = dice.pick(&Builtin::ALL).strategy();
    if dice.chance(30) {
        strategy.name = "mine".to_owned();
        strategy.levels.iter_mut().for_each(|level| level.importance_ties = true);
    }
    strategy
}

fn missed(stats: &Stats, system: &System, criticality: Criticality) -> u64 {
    let of = |name: &str| system.tasks.iter().find(|task| task.name == name).expect("a task of the system");
    let those = stats.tasks.iter().filter(|task| of(&task.task).criticality == criticality);
    those.map(|task| task.missed.expect("a simulation knows its misses")).sum()
}

#[test]
fn a_plan_that_check_accepts_misses_no_critical_deadline() {
    let (mut proven, mut blocked, mut shown, mut several, mut crossing) = (0, 0, 0, 0, 0);
    let seeds = seeds(800);
    let all = seeds.clone();
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let (set, strategy) = (operations(&mut dice), strategy(&mut dice));
        let replay = replay(seed, "plans::");
        let limits = Limits::default();
        let plan = match set.compute(&strategy, &limits) {
            Ok(plan) => plan,
            Err(anomalies) => {
                let system = set.to_system(&strategy).unwrap_or_else(|error| panic!("{error}\n{replay}"));
                blocked += refuted(&anomalies, &system, &replay);
                shown += witnessed(&anomalies, &system, &replay);
                continue;
            }
        };
        if checked(&plan.system).schedulable != Answer::Yes {
            continue;
        }
        proven += 1;
        crossing += u64::from(crosses(&plan.system));
        let mut system = plan.system.clone();
        for round in 0..3 {
            let stats = simulated(&system, seed + round, 2000);
            assert_eq!(missed(&stats, &system, Criticality::High), 0, "{replay}\n{plan}{system:#?}");
            several += rehearsed(&plan, &system, seed + round, &replay);
            for task in &mut system.tasks {
                task.exec = Exec::Uniform { min: Span::from_ns(1), max: task.wcet };
            }
        }
    }
    let enough =
        all.end - all.start < 800 || (proven > 40 && blocked > 40 && shown > 20 && several > 5 && crossing > 5);
    let seen = format!(
        "{proven} proven, {crossing} with chains across CPUs, {blocked} blocked, {shown} shown, {several} with \
         several jobs at once"
    );
    assert!(enough, "{seen}");
}

fn crosses(system: &System) -> bool {
    let elsewhere = |task: &Task| task.after.iter().any(|before| system.tasks[before.index()].cpus != task.cpus);
    system.tasks.iter().any(elsewhere)
}

/// With one or two modes, in which chains are absent and others come at other rates.
fn with_modes(mut set: Operations, dice: &mut Dice) -> Operations {
    let source = |set: &Operations, at: usize| {
        let mut at = at;
        while let Some(before) = set.operations[at].after.first() {
            at = before[1..].parse().expect("named by number");
        }
        at
    };
    let sources: Vec<usize> = (0..set.operations.len()).map(|at| source(&set, at)).collect();
    let absent = |dice: &mut Dice| -> Vec<String> {
        let away: Vec<bool> = (0..sources.len()).map(|at| at > 0 && dice.chance(25)).collect();
        (0..sources.len()).filter(|at| away[sources[*at]]).map(|at| format!("t{at}")).collect()
    };
    set.absent = absent(dice);
    for mode in 0..dice.roll(1, 2) {
        let mut mode = OperatingMode::new(&format!("m{mode}"), strategy(dice));
        mode.absent = absent(dice);
        for at in (0..sources.len()).filter(|at| sources[*at] == *at) {
            if dice.chance(40) {
                mode = mode.every(&format!("t{at}"), Span::from_ns(dice.pick(&[8, 12, 16, 24, 30, 40, 60])));
            }
        }
        set = set.mode(mode);
    }
    set
}

#[test]
fn a_mode_that_check_accepts_misses_no_critical_deadline() {
    let (mut proven, mut settled, mut crossing) = (0, 0, 0);
    let seeds = seeds(800);
    let all = seeds.clone();
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let (set, strategy) = (operations(&mut dice), strategy(&mut dice));
        let set = with_modes(set, &mut dice);
        let replay = replay(seed, "plans::a_mode");
        let Ok(plan) = set.compute(&strategy, &Limits::default()) else { continue };
        for mode in 0..=plan.modes.len() {
            let steady = plan.steady(mode).expect("a plan of the set");
            if checked(&steady).schedulable != Answer::Yes {
                continue;
            }
            proven += 1;
            crossing += u64::from(crosses(&steady));
            let mut alone = steady.clone();
            for round in 0..2 {
                let stats = simulated(&alone, seed + round, 2000);
                assert_eq!(missed(&stats, &alone, Criticality::High), 0, "{replay}\nmode {mode}\n{plan}{steady:#?}");
                alone.tasks.iter_mut().for_each(|task| {
                    task.exec = Exec::Uniform { min: Span::from_ns(1), max: task.wcet };
                });
            }
            settled += u64::from(settles(&plan, mode, dice.roll(0, 200), &replay));
        }
    }
    let enough = all.end - all.start < 800 || (proven > 100 && settled > 80 && crossing > 10);
    assert!(enough, "{proven} proven, {settled} settled, {crossing} with chains across CPUs");
}

/// Rehearses a switch to a proven mode. Once all earlier work is done, no critical job is late,
/// omitted or without room. Returns whether this point was reached.
fn settles(plan: &Plan, mode: usize, at_ns: u64, replay: &str) -> bool {
    let at = Time::from_ns(at_ns);
    let mut events: Vec<(u32, Time, Event)> = Vec::new();
    // Out of another one, where there is one.
    let before = if mode == 0 { plan.modes.len() } else { mode - 1 };
    let switches = [(Time::ZERO, before), (at, mode)];
    plan.rehearse_switched(&switches, Span::from_ns(2000), at_ns, &mut events).expect("a plan that runs");
    let (mut live, mut since) = (std::collections::BTreeSet::new(), None);
    for instant in events.chunk_by(|a, b| a.1 == b.1) {
        for (_, now, event) in instant {
            let critical = |task: TaskId| plan.system.tasks[task.index()].criticality == Criticality::High;
            match event {
                Event::Release { job, .. } => drop(live.insert(*job)),
                Event::Miss { job } | Event::Cancel { job, .. } if since.is_some() && critical(job.task) => {
                    panic!("{event:?} at {now}, since {since:?} in mode {mode}\n{replay}\n{plan}{:#?}", plan.system)
                }
                Event::Complete { job, .. } | Event::Cancel { job, .. } => drop(live.remove(job)),
                _ => {}
            }
        }
        if live.is_empty() && since.is_none() && instant[0].1 >= at {
            since = Some(instant[0].1);
        }
    }
    since.is_some()
}

/// Rehearses a proven plan with the backlogs that it has: no critical job is late, omitted or finds
/// no room. Returns the number of operations with several jobs at once.
fn rehearsed(plan: &Plan, system: &System, seed: u64, replay: &str) -> u64 {
    let plan = Plan { system: system.clone(), ..plan.clone() };
    let mut events: Vec<(u32, Time, Event)> = Vec::new();
    let counts = plan.rehearse(Span::from_ns(2000), seed, &mut events).expect("a plan that runs");
    let mut several = 0;
    for row in &plan.rows {
        let count = &counts.iter().find(|(name, _)| *name == row.name).expect("an operation of the plan").1;
        if system.tasks[row.task.index()].criticality == Criticality::High {
            assert_eq!((count.rejected, count.late), (0, 0), "{}\n{replay}\n{plan}{system:#?}", row.name);
        }
        let (mut there, mut most) = (0u32, 0);
        for (_, _, event) in &events {
            match event {
                Event::Release { job, .. } if job.task == row.task => there += 1,
                Event::Complete { job, .. } | Event::Cancel { job, .. } if job.task == row.task => there -= 1,
                _ => {}
            }
            most = there.max(most);
        }
        several += u64::from(most > 1);
    }
    several
}

/// A deadline of several periods below a long job: four jobs are there at once.
#[test]
fn a_backlog_of_one_would_reject_what_is_proven_in_time() {
    let ms = Span::from_ms;
    let set = |backlog: Option<u32>| {
        let short = Operation::periodic("short", ms(10)).wcet(ms(6)).deadline(ms(40)).priority(2);
        let long = Operation::periodic("long", ms(100)).wcet(ms(20)).priority(1);
        Operations::new("set").with(long).with(Operation { backlog, ..short })
    };
    let fp = Builtin::Fp.strategy();
    let plan = set(None).compute(&fp, &Limits::default()).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(plan.rows.iter().map(|row| row.backlog).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(checked(&plan.system).schedulable, Answer::Yes);
    let rejected = |plan: &Plan| {
        let mut events: Vec<(u32, Time, Event)> = Vec::new();
        let counts = plan.rehearse(Span::from_s(1), 0, &mut events).unwrap();
        counts.iter().find(|(name, _)| name == "short").unwrap().1.rejected
    };
    assert_eq!(rejected(&plan), 0);
    assert!(rejected(&plan.with_backlog(1)) > 0);
    let short = set(Some(3)).compute(&fp, &Limits::default()).unwrap_err();
    let wanted = Anomaly::Backlog { operation: "short".to_owned(), backlog: 3, needed: 4 };
    assert_eq!(short, Anomalies(vec![wanted]));
    assert!(set(Some(4)).compute(&fp, &Limits::default()).is_ok());
}

/// Two critical operations, one of them more important under "mine". A noncritical one runs to
/// completion in the level of the other or of both.
fn meeting(names: &[&str], long: u64) -> Operations {
    let ns = Span::from_ns;
    let all = [
        Operation::periodic("first", ns(10)).wcet(ns(4)),
        Operation::periodic("second", ns(10)).wcet(ns(3)).importance(2),
        Operation::sporadic("long", ns(100)).wcet(ns(long)).noncritical(),
    ];
    let chosen = all.into_iter().filter(|one| names.contains(&one.name.as_str()));
    chosen.fold(Operations::new("meeting"), Operations::with)
}

/// 10 ns suffice for 4 and 3, and for each of them behind the rest of a started job of 5, but not
/// for all three. No plan is refused for this, but `check` must not accept it.
#[test]
fn blocking_and_interference_that_fit_alone_and_not_together_are_not_proven_and_miss() {
    let mine = Strategy {
        name: "mine".to_owned(),
        levels: vec![
            Level::new(Filter::Where { criticality: None, importance: Some(2), priority: None }, Discipline::Deadline),
            Level::new(Filter::Rest, Discipline::Deadline),
        ],
    };
    for strategy in [Builtin::Edf.strategy(), Builtin::Mlf.strategy(), mine] {
        let planned = |names: &[&str], long: u64| {
            let plan = meeting(names, long).compute(&strategy, &Limits::default());
            plan.unwrap_or_else(|wrong| panic!("{}: {wrong}", strategy.name))
        };
        let proven = |plan: &Plan| checked(&plan.system).schedulable;
        // "long" starts 1 ns before the second jobs of the others come.
        let run = |plan: &Plan| {
            let mut system = plan.system.clone();
            system.tasks.iter_mut().filter(|task| task.name == "long").for_each(|task| once(task, 9));
            let missed = missed(&simulated(&system, 0, 100), &system, Criticality::High);
            let mut events: Vec<(u32, Time, Event)> = Vec::new();
            let counts = Plan { system, ..plan.clone() }.rehearse(Span::from_ns(100), 0, &mut events).unwrap();
            let late: u64 = counts.iter().filter(|(name, _)| name != "long").map(|(_, counts)| counts.late).sum();
            (missed, late)
        };
        let all = ["first", "second", "long"];
        for (names, long) in [(&all[..2], 5), (&["first", "long"], 5), (&["second", "long"], 5), (&all, 4)] {
            let plan = planned(names, long);
            assert_eq!((proven(&plan), run(&plan)), (Answer::Yes, (0, 0)), "{}: {names:?}\n{plan}", strategy.name);
        }
        let plan = planned(&all, 5);
        assert_ne!(proven(&plan), Answer::Yes, "{plan}");
        assert_eq!(run(&plan), (1, 1), "a nanosecond too late, and then there is time again\n{plan}");
        // Running to completion is the cause.
        let mut preemptive = plan.system.clone();
        preemptive.strategies.iter_mut().flat_map(|one| &mut one.levels).for_each(|level| level.preemptive = true);
        assert_ne!(preemptive, plan.system);
        assert_eq!(checked(&preemptive).schedulable, Answer::Yes, "{preemptive:#?}");
    }
}

/// Reported anomalies are not proven away. Returns the number of blockings.
fn refuted(anomalies: &Anomalies, system: &System, replay: &str) -> u64 {
    let blocked = anomalies.iter().filter(|one| matches!(one, Anomaly::Blocking { .. })).count();
    let overload = anomalies.iter().any(|one| matches!(one, Anomaly::CriticalUtilization { .. }));
    if blocked > 0 || overload {
        assert_ne!(checked(system).schedulable, Answer::Yes, "{replay}\n{anomalies}\n{system:#?}");
    }
    blocked as u64
}

/// Finds a run for each blocking of one operation without predecessors by another; how many there were.
fn witnessed(anomalies: &Anomalies, system: &System, replay: &str) -> u64 {
    let mut shown = 0;
    for anomaly in anomalies {
        let Anomaly::Blocking { operation, by, .. } = anomaly else { continue };
        let id = |name: &str| system.task_by_name(name).expect("a task of the system").index();
        let (one, by) = (id(operation), id(by));
        if !system.tasks[one].after.is_empty() || !system.tasks[by].after.is_empty() {
            continue;
        }
        let found = runs(system, one, by).any(|run| {
            let stats = simulated(&run, 0, 2000);
            stats.tasks.iter().any(|task| task.task == *operation && task.missed != Some(0))
        });
        assert!(found, "no run shows it: {anomaly}\n{replay}\n{system:#?}");
        shown += 1;
    }
    shown
}

/// Runs in which all but one job each of two tasks execute 1 ns. The long job of `by` is released
/// shortly before the long job of `one`.
fn runs(system: &System, one: usize, by: usize) -> impl Iterator<Item = System> {
    let timer = |task: &Task| task.arrival == Arrival::Periodic;
    let (free, by_free) = (!timer(&system.tasks[one]), !timer(&system.tasks[by]));
    let release = |task: &Task, job: u64| task.offset.as_ns() + job * task.period.as_ns();
    // Past the first jobs of all, so that everything comes as it will.
    let jobs = 10..if free && by_free { 11 } else { 40 };
    jobs.flat_map(move |job| (1..10).map(move |lead| (job, lead))).filter_map(move |(job, lead)| {
        let mut run = system.clone();
        for task in &mut run.tasks {
            task.exec = Exec::Uniform { min: Span::from_ns(1), max: Span::from_ns(1) };
            // Others that the program pushes stay away.
            if !timer(task) {
                once(task, 1990);
            }
        }
        let (wcets, tasks) = ([system.tasks[one].wcet, system.tasks[by].wcet], &system.tasks);
        if free {
            once(&mut run.tasks[one], release(&tasks[by], if by_free { 10 } else { job }) + lead);
            long(&mut run.tasks[one], 0, wcets[0]);
            let at = if by_free { 0 } else { job };
            if by_free {
                once(&mut run.tasks[by], release(&tasks[by], 10));
            }
            long(&mut run.tasks[by], at, wcets[1]);
        } else if by_free {
            once(&mut run.tasks[by], release(&tasks[one], job) - lead);
            long(&mut run.tasks[by], 0, wcets[1]);
            long(&mut run.tasks[one], job, wcets[0]);
        } else {
            // The next job of `one` after this of `by`.
            let after =
                release(&tasks[by], job).checked_sub(tasks[one].offset.as_ns())? / tasks[one].period.as_ns() + 1;
            long(&mut run.tasks[by], job, wcets[1]);
            long(&mut run.tasks[one], after, wcets[0]);
        }
        Some(run)
    })
}

/// One job, released then.
fn once(task: &mut Task, at_ns: u64) {
    task.offset = Span::from_ns(at_ns);
    task.arrival = Arrival::Trace(trace([Span::ZERO]));
}

/// One job executes so long, the others 1 ns.
fn long(task: &mut Task, job: u64, wcet: Span) {
    task.exec = Exec::Trace(trace((0..1000).map(|at| if at == job { wcet } else { Span::from_ns(1) })));
}

fn trace(values: impl IntoIterator<Item = Span>) -> Trace {
    Trace { path: "made".to_owned(), values: Arc::from(values.into_iter().collect::<Vec<_>>()) }
}
