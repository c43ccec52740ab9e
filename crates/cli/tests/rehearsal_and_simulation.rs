//! The live dispatcher's own code in virtual time against the simulator with the policy kernel. The
//! same jobs are released, start, are preempted, cancelled, dropped, missed and complete at the
//! same instants. The systems are random and of every kind that the dispatcher takes.

use std::collections::BTreeMap;

use takt_dispatch::{Limits, Plan};
use takt_log::{CancelCause, Event, JobKey};
use takt_model::generate::Random;
use takt_model::strategy::{Discipline, Filter, Late, Level, Split, Strategy};
use takt_model::system::{Mode, StrategyId, StrategyRef};
use takt_model::{Arrival, Builtin, Criticality, Exec, Lateness, NodeId, Placement, Span, System, Task, TaskId, Time};
use takt_sim::{SimOptions, simulate};

const PERIODS_US: [u64; 8] = [2000, 3000, 4000, 5000, 6000, 8000, 10_000, 12_000];

fn us(us: u64) -> Span {
    Span::from_us(us)
}

/// Some tasks have relative priority points, up to 5 ms to either side.
fn gel(random: &mut Random, tasks: u64) -> Discipline {
    let mut shift = BTreeMap::new();
    for task in 0..tasks {
        if random.between(0, 2) > 0 {
            let ns = random.between(0, 10_000_000) as i64 - 5_000_000;
            shift.insert(format!("t{task}"), Lateness::from_ns(ns));
        }
    }
    Discipline::Gel { shift }
}

fn own_strategy(random: &mut Random, name: &str, tasks: u64, preemptive: bool) -> Strategy {
    let mut levels = Vec::new();
    for last in [false, true] {
        let by = |criticality, importance, priority| Filter::Where { criticality, importance, priority };
        let filter = match random.between(0, 3) {
            _ if last => Filter::Rest,
            0 => by(None, Some(1), None),
            1 => by(None, None, Some(2)),
            _ => by(Some(Criticality::High), None, None),
        };
        let discipline = match random.between(0, 3) {
            0 => Discipline::Fifo,
            1 => Discipline::Deadline,
            2 => Discipline::Laxity,
            _ => gel(random, tasks),
        };
        let splits = [Split::Period, Split::Deadline, Split::Importance, Split::Priority, Split::Criticality];
        levels.push(Level {
            split: splits.get(random.between(0, 9) as usize).copied().unwrap_or(Split::None),
            late: [Late::Drop, Late::Demote, Late::Continue, Late::Continue][random.between(0, 3) as usize],
            importance_ties: random.between(0, 1) == 0,
            preemptive: preemptive && random.between(0, 3) > 0,
            ..Level::new(filter, discipline)
        });
    }
    Strategy { name: name.to_owned(), levels }
}

/// Overloaded as often as not, so that there is something to cancel, drop and miss.
fn random_system(random: &mut Random, preemptive: bool) -> System {
    let cpus = random.between(1, 2) as u32;
    let count = random.between(1, if preemptive { 6 } else { 4 }) * u64::from(cpus);
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
        // Beyond the period every now and then, so that several jobs are in time at once.
        let most = if random.between(0, 3) == 0 { 3 * t.as_ns() } else { t.as_ns() };
        let d = Span::from_ns(random.between((c.as_ns() + t.as_ns()) / 2, most));
        let mut task = Task {
            deadline: d,
            importance: random.between(0, 2) as u32,
            priority: Some(random.between(1, 3) as u32),
            late: [Some(Late::Continue), Some(Late::Drop), Some(Late::Demote)]
                .get(random.between(0, 7) as usize)
                .copied()
                .flatten(),
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
            // Critical jobs are never omitted, and a task of theirs that says so is refused.
            task.cancel = [None, None, Some(false), Some(true)][random.between(0, 3) as usize];
        }
        task.after = after;
        tasks.push(task);
    }
    let mut system = System::local(cpus, Builtin::Edf, tasks);
    system.strategies =
        vec![own_strategy(random, "first", count, preemptive), own_strategy(random, "second", count, preemptive)];
    let strategy = |random: &mut Random| match random.between(0, 13) as usize {
        n if n < Builtin::ALL.len() => StrategyRef::Builtin(Builtin::ALL[n]),
        n => StrategyRef::Own(StrategyId(n as u32 % 2)),
    };
    system.nodes[0].strategy = strategy(random);
    system.nodes[0].placement = Placement::Partitioned;
    if preemptive && random.between(0, 1) == 0 {
        system.nodes[0].laxity_quantum = Some(us([50, 300, 1000][random.between(0, 2) as usize]));
    }
    system.nodes[0].cancel = random.between(0, 1) == 0;
    if random.between(0, 2) == 0 {
        let at = Time::ZERO + us(random.between(1000, 30_000));
        system.modes.push(Mode { node: NodeId(0), at, strategy: strategy(random) });
    }
    system
}

/// Events by instant, in an order independent of their reports. Preemptions of zero length are left
/// out.
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

struct Live {
    deadline: Time,
    /// The CPU of its start, and whether it was demoted by then.
    started: Option<(u32, bool)>,
}

/// From when on the two may go separate ways, as docs/reference/dispatcher.md says.
///
/// First case: a switch of plans puts two jobs of one CPU on one level after both had started. The
/// simulator then goes by their order, the kernel by the order of its queue. Second case: all
/// demoted jobs share a queue and a thread in the dispatcher, so none of them preempts another. In
/// the simulator demoted jobs of more important levels do preempt. If jobs of some level preempt
/// each other, the level of demoted jobs is a level like others. Then a switch separates the two
/// only at levels without preemption.
fn parts(plan: &Plan, events: &[(u32, Time, Event)]) -> Option<Time> {
    let (mut live, mut holds): (BTreeMap<JobKey, Live>, usize) = (BTreeMap::new(), 0);
    let levels_of = |holds: usize| holds.checked_sub(1).map_or(&plan.levels, |mode| &plan.modes[mode].levels);
    let nests = (0..=plan.modes.len()).any(|holds| levels_of(holds).iter().any(|level| level.preemptive));
    for instant in events.chunk_by(|a, b| a.1 == b.1) {
        let at = instant[0].1;
        let switched = instant.iter().any(|(_, _, event)| matches!(event, Event::ModeChange { .. }));
        holds = if switched { 1 } else { holds };
        let rows = holds.checked_sub(1).map_or(&plan.rows, |mode| &plan.modes[mode].rows);
        assert_eq!(plan.system.tasks.len(), rows.len());
        let demotes = |job: &JobKey, deadline: Time| deadline <= at && rows[job.task.index()].late == Late::Demote;
        for (_, _, event) in instant {
            match event {
                Event::Release { job, arrival, .. } => {
                    let deadline = *arrival + plan.system.tasks[job.task.index()].deadline;
                    live.insert(*job, Live { deadline, started: None });
                }
                Event::Start { job, cpu } => {
                    let one = live.get_mut(job).expect("released before");
                    one.started = Some((*cpu, demotes(job, one.deadline)));
                }
                Event::Complete { job, .. } => drop(live.remove(job)),
                _ => {}
            }
        }
        let row = |job: &JobKey| &rows[job.task.index()];
        let started = live.iter().filter_map(|(job, one)| Some((job, one.deadline, one.started?)));
        let mut places: Vec<(u32, u32)> = started.clone().map(|(job, _, (cpu, _))| (cpu, row(job).level)).collect();
        places.retain(|(_, level)| !levels_of(holds)[*level as usize].preemptive);
        places.sort_unstable();
        if switched && places.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some(at);
        }
        let is_demoted = |(job, deadline, (_, was)): &(&JobKey, Time, (u32, bool))| *was && demotes(job, *deadline);
        for (job, _, (cpu, _)) in started.filter(is_demoted).filter(|_| !nests) {
            let before = |(other, one): (&JobKey, &Live)| {
                row(other).cpu == cpu
                    && row(other).level < row(job).level
                    && demotes(other, one.deadline)
                    && one.started.is_none_or(|(_, was)| was)
            };
            if live.iter().any(before) {
                return Some(at);
            }
        }
        // Only now: an omitted one may have been chosen before another one of its level.
        for (_, _, event) in instant {
            if let Event::Cancel { job, .. } = event {
                live.remove(job);
            }
        }
    }
    None
}

/// Whether a job was omitted at this instant while its task had the next job waiting. A simulated
/// instant ends before the next job may run. So less important jobs get the CPU for no time at all,
/// or are omitted, too. A thread that asks for work finds the next job at once.
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

/// A robot's arm: "motor" shares its level with long jobs.
const ARM: &str = r#"
takt = 1
name = "arm"
[[node]]
name = "ecu"
placement = "partitioned"
strategy = "muf"
[[task]]
name = "motor"
period = "5ms"
wcet = "800us"
[[task]]
name = "lidar"
period = "50ms"
wcet = "6ms"
[[task]]
name = "plan"
after = ["lidar"]
wcet = "10ms"
deadline = "50ms"
[[task]]
name = "telemetry"
period = "100ms"
wcet = "5ms"
criticality = "low"
"#;

/// Whether jobs of a level preempt each other is the file's to say, and decides here whether deadlines are met.
#[test]
fn the_plan_obeys_what_the_file_says_of_preemption() {
    let system = takt_model::file::parse(ARM, "arm.toml").unwrap();
    let late = |events: &[(u32, Time, Event)]| {
        let motor = |(_, _, event): &&(u32, Time, Event)| matches!(event, Event::Miss { job } if job.task == TaskId(0));
        events.iter().filter(motor).count()
    };
    let second = Span::from_s(1);
    let mut simulated = Vec::new();
    simulate(&system, &SimOptions { duration: second, seed: 0, node: None }, &mut simulated).unwrap();
    let rehearsed = |preemptive| {
        let (limits, mut told) = (Limits { preemptive, ..Limits::default() }, Vec::new());
        let (plan, _) = Plan::compute_regardless(&system, NodeId(0), &limits).unwrap();
        plan.rehearse(second, 0, &mut told).unwrap();
        (plan, late(&told))
    };
    let (plan, obeyed) = rehearsed(true);
    assert_eq!((late(&simulated), obeyed), (0, 0));
    // As deep as its tasks: three priorities for the level, and the threads of one more for each.
    let levels: Vec<(u8, u32)> = plan.levels.iter().map(|level| (level.priority, level.nesting)).collect();
    assert_eq!((plan.strategy.as_str(), levels), ("muf", vec![(45, 3), (44, 1)]));
    assert!(rehearsed(false).1 > 0, "it waits for what has started");
}

#[test]
fn a_rehearsal_is_the_simulation() {
    rehearsals_are_simulations(77, false);
}

/// Jobs of a level preempt each other, by deadline, laxity and release, also where laxities are compared on a grid.
#[test]
fn a_rehearsal_of_preemptive_levels_is_the_simulation() {
    rehearsals_are_simulations(78, true);
}

fn rehearsals_are_simulations(seed: u64, preemptive: bool) {
    let mut random = Random::new(seed);
    let (mut compared, mut parted, mut until_parted, mut seen) = (0u64, 0, 0u64, BTreeMap::new());
    for round in 0..cases() {
        let system = random_system(&mut random, preemptive);
        let limits = Limits { critical_utilization_ppm: u32::MAX, priorities: 1..=98, preemptive, ..Limits::default() };
        let Ok(plan) = Plan::compute(&system, NodeId(0), &limits) else { continue };
        let plan = plan.with_backlog(10_000);
        let duration = us(50_000);
        let (mut simulated, mut rehearsed) = (Vec::new(), Vec::new());
        simulate(&plan.system, &SimOptions { duration, seed: round, node: None }, &mut simulated).unwrap();
        // Its counts are looked at where they change, by the core's own assertion.
        let counts = plan.rehearse(duration, round, &mut rehearsed).unwrap();
        assert!(counts.iter().all(|(_, count)| count.rejected == 0), "round {round}: {counts:?}");
        compared += 1;
        let (mut a, mut b) = (by_instant(&simulated), by_instant(&rehearsed));
        let until = parts(&plan, &simulated);
        if let Some(until) = until {
            until_parted += 1;
            for told in [&mut a, &mut b] {
                told.split_off(&until);
            }
        }
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
        let late = |job: &JobKey, at: Time| {
            let task = &plan.system.tasks[job.task.index()];
            let arrived = |(_, _, event): &(u32, Time, Event)| match event {
                Event::Release { job: released, arrival, .. } if released == job => Some(*arrival + task.deadline),
                _ => None,
            };
            plan.rows[job.task.index()].late == Late::Demote
                && plan.modes.is_empty()
                && rehearsed.iter().find_map(arrived).is_some_and(|deadline| deadline <= at)
        };
        for (_, at, event) in rehearsed.iter().filter(|(_, at, _)| until.is_none_or(|until| *at < until)) {
            let kind = match event {
                Event::Cancel { cause: CancelCause::Omitted, .. } => "omitted",
                Event::Cancel { cause: CancelCause::Late, .. } => "dropped",
                Event::Cancel { cause: CancelCause::Shed, .. } => "shed",
                Event::ModeChange { .. } => "switches",
                Event::Preempt { .. } => "preempted",
                Event::Start { job, .. } if late(job, *at) => "started below all levels",
                _ => continue,
            };
            *seen.entry(kind).or_insert(0u64) += 1;
        }
        let kinds = plan.rows.iter().filter(|row| row.shift_ns != 0).count();
        *seen.entry("shifted").or_default() += kinds as u64;
    }
    println!(
        "{compared} systems, {until_parted} of them to where they may part, {parted} to where one waits behind an \
         omitted one; {seen:?}"
    );
    assert!(parted * 20 < compared, "{parted} of {compared} parted");
    assert!(compared > cases() / 4 && until_parted * 5 < compared, "{until_parted} of {compared}");
    let kinds = ["omitted", "dropped", "shed", "switches", "preempted", "started below all levels", "shifted"];
    assert!(kinds.iter().all(|kind| seen.contains_key(kind)), "{seen:?}");
}
