//! The live dispatcher's own code in virtual time against the simulator, whose decisions are those of the policy kernel: the same jobs are released,
//! start, are preempted, cancelled, dropped, missed and complete at the same instants, on random systems of every kind that the dispatcher takes.

use std::collections::BTreeMap;

use takt_log::{CancelCause, Event, JobKey};
use takt_model::generate::Random;
use takt_model::strategy::{Discipline, Filter, Late, Level, Split, Strategy};
use takt_model::system::{Mode, StrategyId, StrategyRef};
use takt_model::{Arrival, Builtin, Criticality, Exec, NodeId, Placement, Span, System, Task, TaskId, Time};
use takt_run::dispatch::{Limits, Plan};
use takt_sim::{SimOptions, simulate};

const PERIODS_US: [u64; 8] = [2000, 3000, 4000, 5000, 6000, 8000, 10_000, 12_000];

fn us(us: u64) -> Span {
    Span::from_us(us)
}

fn own_strategy(random: &mut Random, name: &str) -> Strategy {
    let mut levels = Vec::new();
    for last in [false, true] {
        let filter = if last {
            Filter::Rest
        } else {
            Filter::Where { criticality: Some(Criticality::High), importance: None, priority: None }
        };
        let pick =
            |random: &mut Random, from: &[Discipline]| from[random.between(0, from.len() as u64 - 1) as usize].clone();
        let discipline = pick(random, &[Discipline::Fifo, Discipline::Deadline, Discipline::Laxity]);
        let splits = [Split::None, Split::None, Split::Period, Split::Deadline, Split::Importance];
        levels.push(Level {
            split: splits[random.between(0, 4) as usize],
            late: if random.between(0, 3) == 0 { Late::Drop } else { Late::Continue },
            importance_ties: random.between(0, 1) == 0,
            preemptive: false,
            ..Level::new(filter, discipline)
        });
    }
    Strategy { name: name.to_owned(), levels }
}

/// Overloaded as often as not, so that there is something to cancel, drop and miss.
fn random_system(random: &mut Random) -> System {
    let cpus = random.between(1, 2) as u32;
    let count = random.between(1, 4) * u64::from(cpus);
    let mut tasks: Vec<Task> = Vec::new();
    for i in 0..count as usize {
        let mut t = us(PERIODS_US[random.between(0, 7) as usize]);
        let mut after: Vec<TaskId> = Vec::new();
        while after.len() < i && random.between(0, 3) == 0 {
            let before = TaskId(random.between(0, i as u64 - 1) as u32);
            let same = after.first().is_none_or(|first| tasks[first.index()].period == tasks[before.index()].period);
            if !after.contains(&before) && same {
                after.push(before);
            }
        }
        if let Some(before) = after.first() {
            t = tasks[before.index()].period;
        }
        let c = Span::from_ns(random.between(100_000, t.as_ns() / 2));
        let d = Span::from_ns(random.between((c.as_ns() + t.as_ns()) / 2, t.as_ns()));
        let mut task = Task {
            deadline: d,
            importance: random.between(0, 2) as u32,
            late: [None, None, None, Some(Late::Continue), Some(Late::Drop)][random.between(0, 4) as usize],
            cpus: Some([random.between(0, u64::from(cpus) - 1) as u32].into_iter().collect()),
            ..Task::periodic(&format!("t{i}"), t, c)
        };
        if after.is_empty() {
            task.offset = us(random.between(0, 3000));
            task.jitter = us(random.between(0, 700) * random.between(0, 1));
            if random.between(0, 3) == 0 {
                task.arrival = Arrival::Sporadic;
            }
        }
        if random.between(0, 1) == 0 {
            task.exec = Exec::Uniform { min: Span::from_ns(1), max: c };
        }
        if random.between(0, 1) == 0 {
            task.criticality = Criticality::Low;
        }
        task.after = after;
        tasks.push(task);
    }
    let mut system = System::local(cpus, Builtin::Edf, tasks);
    system.strategies = vec![own_strategy(random, "first"), own_strategy(random, "second")];
    let builtin = [Builtin::Rm, Builtin::Dm, Builtin::Edf, Builtin::Mlf, Builtin::Muf, Builtin::RmsMlf, Builtin::Fifo];
    let strategy = |random: &mut Random| match random.between(0, 9) {
        n @ 0..=6 => StrategyRef::Builtin(builtin[n as usize]),
        n => StrategyRef::Own(StrategyId(n as u32 % 2)),
    };
    system.nodes[0].strategy = strategy(random);
    system.nodes[0].placement = Placement::Partitioned;
    system.nodes[0].cancel = random.between(0, 1) == 0;
    if random.between(0, 2) == 0 {
        let at = Time::ZERO + us(random.between(1000, 30_000));
        system.modes.push(Mode { node: NodeId(0), at, strategy: strategy(random) });
    }
    system
}

/// By instant, in an order that does not depend on how they were told, and without jobs that lose their CPU and have it again at one instant.
fn by_instant(events: &[(u32, Time, Event)]) -> BTreeMap<Time, Vec<String>> {
    let mut all: BTreeMap<Time, Vec<String>> = BTreeMap::new();
    for (_, at, event) in events {
        let told = all.entry(*at).or_default();
        match event {
            Event::Resume { job, cpu } => {
                let lost = format!("{:?}", Event::Preempt { job: *job, cpu: *cpu });
                if let Some(before) = told.iter().position(|before| *before == lost) {
                    told.remove(before);
                    continue;
                }
            }
            // Omitted at its very deadline: only the simulator calls that missed as well.
            Event::Cancel { job, cause: CancelCause::Omitted } => {
                let missed = format!("{:?}", Event::Miss { job: *job });
                told.retain(|before| *before != missed);
            }
            _ => {}
        }
        told.push(format!("{event:?}"));
    }
    all.retain(|_, told| !told.is_empty());
    all.values_mut().for_each(|told| told.sort());
    all
}

/// Two jobs of one CPU that a switch of plans put on one level after both had started: there the simulator goes by their order, and the kernel
/// by which thread it queued first.
fn is_ambiguous(system: &System, plan: &Plan, events: &[(u32, Time, Event)]) -> bool {
    let Some((mode, changed)) = plan.modes.first().and_then(|mode| Some((mode.at?, &mode.rows))) else { return false };
    let mut started: BTreeMap<JobKey, u32> = BTreeMap::new();
    for (_, at, event) in events {
        if *at > mode {
            break;
        }
        match event {
            Event::Start { job, cpu } => drop(started.insert(*job, *cpu)),
            Event::Complete { job, .. } | Event::Cancel { job, .. } => drop(started.remove(job)),
            _ => {}
        }
    }
    assert!(system.tasks.len() == changed.len());
    let mut places: Vec<(u32, u32)> =
        started.iter().map(|(job, cpu)| (*cpu, changed[job.task.index()].level)).collect();
    places.sort_unstable();
    places.windows(2).any(|pair| pair[0] == pair[1])
}

/// Whether a job was omitted at this instant whose task had the next one waiting. A simulated instant ends before that one may run, so
/// that less important jobs get the CPU for no time at all, or are omitted, too; a thread that asks for work finds it at once.
fn successor_waits(events: &[(u32, Time, Event)], at: Time) -> bool {
    let released = |job: &JobKey| {
        let next = JobKey { number: job.number + 1, ..*job };
        let is_next = |(_, when, event): &(u32, Time, Event)| {
            *when <= at && matches!(event, Event::Release { job, .. } if *job == next)
        };
        events.iter().any(is_next)
    };
    let omitted = |event: &Event| match event {
        Event::Cancel { job, cause: CancelCause::Omitted } => released(job),
        _ => false,
    };
    events.iter().any(|(_, when, event)| *when == at && omitted(event))
}

/// `TAKT_CASES`, or 3000.
fn cases() -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3000)
}

#[test]
fn a_rehearsal_is_the_simulation() {
    let mut random = Random::new(77);
    let (mut compared, mut parted, mut cancelled, mut dropped, mut shed, mut switched, mut preempted) =
        (0u64, 0, 0, 0, 0, 0, 0);
    for round in 0..cases() {
        let system = random_system(&mut random);
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        let Ok(plan) = Plan::compute(&system, NodeId(0), &limits) else { continue };
        let plan = plan.with_backlog(10_000);
        let duration = us(50_000);
        let (mut simulated, mut rehearsed) = (Vec::new(), Vec::new());
        simulate(&plan.system, &SimOptions { duration, seed: round, node: None }, &mut simulated).unwrap();
        let counts = plan.rehearse(duration, round, &mut rehearsed).unwrap();
        for (name, count) in &counts {
            assert_eq!(
                count.released,
                count.completed + count.cancelled + count.rejected + count.unfinished(),
                "round {round}: {name}"
            );
        }
        if is_ambiguous(&plan.system, &plan, &simulated) {
            continue;
        }
        compared += 1;
        let (a, b) = (by_instant(&simulated), by_instant(&rehearsed));
        if a != b {
            let at = a.iter().chain(&b).filter(|(at, _)| a.get(at) != b.get(at)).map(|(at, _)| *at).min().unwrap();
            if successor_waits(&simulated, at) {
                parted += 1;
                continue;
            }
            panic!(
                "round {round} at {at}:\nsimulated {:#?}\nrehearsed {:#?}\n{plan}\n{:#?}",
                a.get(&at),
                b.get(&at),
                plan.system
            );
        }
        for (_, _, event) in &rehearsed {
            match event {
                Event::Cancel { cause: CancelCause::Omitted, .. } => cancelled += 1,
                Event::Cancel { cause: CancelCause::Late, .. } => dropped += 1,
                Event::Cancel { cause: CancelCause::Shed, .. } => shed += 1,
                Event::ModeChange { .. } => switched += 1,
                Event::Preempt { .. } => preempted += 1,
                _ => {}
            }
        }
    }
    println!(
        "{compared} systems, {parted} of them to where one waits behind an omitted one; {cancelled} omitted, {dropped} dropped, {shed} shed, {preempted} preempted, {switched} switches"
    );
    assert!(parted * 20 < compared, "{parted} of {compared} parted");
    assert!(compared > cases() / 4 && [cancelled, dropped, shed, switched, preempted].iter().all(|seen| *seen > 0));
}
