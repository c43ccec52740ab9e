//! Compares `Levels`, asked by the threads of the levels, with a `Dispatcher` whose levels are not
//! preemptive. Both start, cancel and drop the same jobs at the same instants. Operations,
//! strategies, late rules and switches are random.

use proptest::prelude::*;
use takt_model::strategy::{Discipline, Filter, Late, Level, Split, Strategy as Scheduling};
use takt_model::system::{Mode, StrategyId, StrategyRef};
use takt_model::{Criticality, Lateness, NodeId, Plan, Span, System, Task, Time};
use takt_policy::{DeadlineEffect, Decision, Dispatcher, Event, Job, Levels, NextAction, Queued};

/// One job as it comes: nominal arrival, time needed.
type Arrival = (u64, u64);

#[derive(Clone, Debug)]
struct World {
    system: System,
    jobs: Vec<Vec<Arrival>>,
    /// When the node switches to its only mode.
    switch: Option<u64>,
    /// One for the start, and one for the mode.
    plans: Vec<Plan>,
}

impl World {
    /// The plan in force after the switch of this instant.
    fn plan(&self, now: u64) -> &Plan {
        &self.plans[usize::from(self.switch.is_some_and(|at| at <= now))]
    }
}

/// Instant, action and slot.
type Log = Vec<(u64, &'static str, u32)>;

/// The jobs of each slot: the jobs that wait for it, and the current job.
struct Backlog {
    waiting: Vec<std::collections::VecDeque<Job>>,
    /// Time that the slot's job still needs.
    left: Vec<u64>,
    needs: Vec<std::collections::VecDeque<u64>>,
    deadlines: Vec<Option<u64>>,
    free: Vec<bool>,
}

impl Backlog {
    fn new(slots: usize) -> Backlog {
        Backlog {
            waiting: vec![Default::default(); slots],
            left: vec![0; slots],
            needs: vec![Default::default(); slots],
            deadlines: vec![None; slots],
            free: vec![true; slots],
        }
    }

    fn arrive(&mut self, world: &World, now: u64) {
        for (slot, jobs) in world.jobs.iter().enumerate() {
            for (at, needs) in jobs.iter().filter(|(at, _)| *at == now) {
                let arrival = Time::from_ns(*at);
                let deadline = arrival.saturating_add(world.system.tasks[slot].deadline);
                self.waiting[slot].push_back(Job { slot: slot as u32, release: arrival, arrival, deadline });
                self.needs[slot].push_back(*needs);
            }
        }
    }

    /// The next job of each free slot.
    fn ready(&mut self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for slot in 0..self.free.len() {
            if self.free[slot]
                && let Some(job) = self.waiting[slot].pop_front()
            {
                self.free[slot] = false;
                self.left[slot] = self.needs[slot].pop_front().unwrap();
                self.deadlines[slot] = Some(job.deadline.as_ns());
                jobs.push(job);
            }
        }
        jobs
    }

    fn gone(&mut self, slot: u32) {
        self.free[slot as usize] = true;
        self.deadlines[slot as usize] = None;
    }
}

const END: u64 = 160;

fn by_dispatcher(world: &World) -> Log {
    let mut dispatcher = Dispatcher::new(&world.system, NodeId(0)).unwrap();
    let mut log = Log::new();
    let mut backlog = Backlog::new(dispatcher.slot_count());
    let mut running = None::<u32>;
    let mut decisions = Vec::new();
    for now in 0..END {
        let at = Time::from_ns(now);
        if let Some(slot) = running {
            backlog.left[slot as usize] -= 1;
        }
        backlog.arrive(world, now);
        let mut first = true;
        loop {
            let before = log.len();
            if let Some(slot) = running.filter(|slot| backlog.left[*slot as usize] == 0) {
                dispatcher.on_event(at, &Event::Complete { slot }, &mut decisions);
                log.push((now, "complete", slot));
                backlog.gone(slot);
                running = None;
            }
            if first {
                for slot in 0..backlog.free.len() as u32 {
                    if backlog.deadlines[slot as usize] == Some(now) {
                        dispatcher.on_event(at, &Event::Deadline { slot }, &mut decisions);
                    }
                }
            }
            let ready = backlog.ready();
            for job in &ready {
                dispatcher.on_event(at, &Event::Ready(*job), &mut decisions);
            }
            if first && world.switch == Some(now) {
                dispatcher.on_event(at, &Event::Mode { plan: 1 }, &mut decisions);
            }
            first = false;
            dispatcher.dispatch(at, &mut decisions);
            for decision in decisions.drain(..) {
                match decision {
                    Decision::Cancel { slot } => {
                        log.push((now, "cancel", slot));
                        backlog.gone(slot);
                    }
                    Decision::Drop { slot, cpu } => {
                        log.push((now, "drop", slot));
                        backlog.gone(slot);
                        running = running.filter(|_| cpu.is_none());
                    }
                    Decision::Preempt { .. } => running = None,
                    Decision::Run { slot, resumed, .. } => {
                        running = Some(slot);
                        if !resumed {
                            log.push((now, "start", slot));
                        }
                    }
                }
            }
            if log.len() == before && ready.is_empty() {
                break;
            }
        }
    }
    log
}

/// `None` where the two ways differ by design. First: a switch puts two started jobs on one level.
/// Second: a demoted job waits for another demoted job of a less important level. Demoted jobs
/// share one thread here and preempt each other there.
fn by_levels(world: &World) -> Option<Log> {
    let mut levels = Levels::new(&world.system, NodeId(0), 0).unwrap();
    let mut log = Log::new();
    let mut backlog = Backlog::new(levels.slot_count());
    let planned = |slot: u32, now: u64| world.plan(now).tasks[slot as usize].level;
    let demoted = levels.level_count() as u32 - 1;
    // The started job of each thread, which goes by the level that its slot has now.
    let mut started: Vec<u32> = Vec::new();
    let mut running = None::<u32>;
    for now in 0..END {
        let at = Time::from_ns(now);
        if let Some(slot) = running {
            backlog.left[slot as usize] -= 1;
        }
        backlog.arrive(world, now);
        let mut first = true;
        loop {
            let before = log.len();
            if let Some(slot) = running.filter(|slot| backlog.left[*slot as usize] == 0) {
                levels.complete(slot);
                log.push((now, "complete", slot));
                backlog.gone(slot);
                started.retain(|other| *other != slot);
                running = None;
            }
            let mut dropped = Vec::new();
            if first {
                for slot in 0..backlog.free.len() as u32 {
                    if backlog.deadlines[slot as usize] == Some(now)
                        && let DeadlineEffect::Dropped { .. } = levels.deadline(slot, at)
                    {
                        dropped.push(slot);
                    }
                }
            }
            let ready = backlog.ready();
            for job in &ready {
                if levels.ready(at, *job) == Queued::Dropped {
                    dropped.push(job.slot);
                }
            }
            if first && world.switch == Some(now) {
                let told = levels.switch(1, at, |slot, passed| {
                    if let DeadlineEffect::Dropped { .. } = passed {
                        dropped.push(slot);
                    }
                });
                assert!(told);
            }
            first = false;
            for slot in dropped {
                log.push((now, "drop", slot));
                backlog.gone(slot);
                started.retain(|other| *other != slot);
                running = running.filter(|other| *other != slot);
            }
            // The kernel: the most important level with a started or a waiting job has the CPU.
            let mut has_cpu = None;
            for level in 0..levels.level_count() as u32 {
                let here: Vec<u32> =
                    started.iter().copied().filter(|slot| levels.level(*slot) == Some(level)).collect();
                if here.len() > 1 {
                    return None;
                }
                has_cpu = here.first().copied();
                while has_cpu.is_none() {
                    match levels.take(level, at) {
                        None => break,
                        Some(NextAction::Cancel { slot }) => {
                            log.push((now, "cancel", slot));
                            backlog.gone(slot);
                        }
                        Some(NextAction::Run { slot }) => {
                            log.push((now, "start", slot));
                            started.push(slot);
                            has_cpu = Some(slot);
                        }
                    }
                }
                if has_cpu.is_some() {
                    break;
                }
            }
            running = has_cpu;
            let below = |slot: &u32| levels.is_taken(*slot) && levels.level(*slot) == Some(demoted);
            let least = started.iter().filter(|slot| below(slot)).map(|slot| planned(*slot, now)).max();
            if (0..levels.slot_count() as u32)
                .filter(below)
                .any(|slot| least.is_some_and(|least| planned(slot, now) < least))
            {
                return None;
            }
            if log.len() == before && ready.is_empty() {
                break;
            }
        }
    }
    Some(log)
}

fn strategies(lates: Vec<Late>) -> impl Strategy<Value = Scheduling> {
    // Some tasks have relative priority points.
    let gel = prop::collection::vec(prop::option::of(-30i64..30), 6).prop_map(|points| {
        let named = points.into_iter().enumerate();
        let shift = named.filter_map(|(task, ns)| Some((format!("t{task}"), Lateness::from_ns(ns?)))).collect();
        Discipline::Gel { shift }
    });
    let discipline =
        prop_oneof![Just(Discipline::Fifo), Just(Discipline::Deadline), Just(Discipline::Laxity), gel].boxed();
    let split = prop_oneof![
        Just(Split::None),
        Just(Split::Period),
        Just(Split::Criticality),
        Just(Split::Importance),
        Just(Split::Deadline),
        Just(Split::Priority)
    ];
    let filter = (any::<bool>(), 0u32..3).prop_map(|(by_criticality, importance)| Filter::Where {
        criticality: by_criticality.then_some(Criticality::High),
        importance: (!by_criticality).then_some(importance),
        priority: None,
    });
    let level = (filter, discipline, split, prop::sample::select(lates), any::<bool>()).prop_map(
        |(filter, discipline, split, late, importance_ties)| Level {
            filter,
            split,
            discipline,
            preemptive: false,
            late,
            importance_ties,
        },
    );
    prop::collection::vec(level, 1..4).prop_map(|mut levels| {
        levels.last_mut().unwrap().filter = Filter::Rest;
        Scheduling { name: "drawn".into(), levels }
    })
}

fn worlds() -> impl Strategy<Value = World> {
    any::<bool>().prop_flat_map(|modes| {
        let lates = vec![Late::Continue, Late::Drop, Late::Demote];
        let own = prop::option::weighted(0.2, prop::sample::select(lates.clone()));
        // For low criticality: its own rule of cancellation.
        let rules = (own, prop::option::weighted(0.3, any::<bool>()));
        // Deadlines of up to four periods.
        let task = (1u64..4, 1u64..12, 4u64..40, any::<bool>(), (0u32..3, 1u32..4), rules);
        let jobs = prop::collection::vec((0u64..90, 1u64..14), 0..7);
        (
            prop::collection::vec((task, jobs), 1..7),
            strategies(lates.clone()),
            strategies(lates),
            any::<bool>(),
            5u64..90,
        )
            .prop_map(move |(drawn, first, second, cancel, switch)| {
                let mut tasks = Vec::new();
                let mut jobs = Vec::new();
                for (index, ((rate, wcet, deadline, high, (importance, priority), (late, cancel)), mut of)) in
                    drawn.into_iter().enumerate()
                {
                    let ns = Span::from_ns;
                    tasks.push(Task {
                        deadline: ns(deadline),
                        importance,
                        priority: Some(priority),
                        late,
                        cancel: cancel.filter(|_| !high),
                        criticality: if high { Criticality::High } else { Criticality::Low },
                        ..Task::periodic(&format!("t{index}"), ns(10 * rate), ns(wcet))
                    });
                    of.sort_unstable();
                    of.dedup_by_key(|(at, _)| *at);
                    jobs.push(of);
                }
                let mut system = System::local(1, takt_model::Builtin::Edf, tasks);
                system.strategies = vec![first, second];
                system.nodes[0].strategy = StrategyRef::Own(StrategyId(0));
                system.nodes[0].cancel = cancel;
                if modes {
                    let at = Time::from_ns(switch);
                    system.modes = vec![Mode { node: NodeId(0), at, strategy: StrategyRef::Own(StrategyId(1)) }];
                }
                let plan = |strategy| Plan::resolve(&system, NodeId(0), strategy).unwrap();
                let plans = system.strategies.iter().map(plan).collect();
                World { system, jobs, switch: modes.then_some(switch), plans }
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_global_rejects: cases() / 10 + 10,
        ..ProptestConfig::with_cases(cases())
    })]

    #[test]
    fn threads_that_ask_run_jobs_as_the_dispatcher_says(world in worlds()) {
        let levels = by_levels(&world);
        prop_assume!(levels.is_some());
        prop_assert_eq!(by_dispatcher(&world), levels.unwrap());
    }
}

/// `PROPTEST_CASES`, or 2000.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000)
}
