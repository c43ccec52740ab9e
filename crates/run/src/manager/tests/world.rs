//! Virtual threads under a manager, and schedules to compare.

use std::collections::BTreeMap;

use takt_log::{Event, JobKey};
use takt_model::draw::Draw;
use takt_model::*;
use takt_policy::CpuPart;
use takt_sim::{SimOptions, simulate};

use crate::budgets::board::{Board, Report, Seats};
use crate::budgets::core::Fact;

/// A thread with a job.
#[derive(Clone, Copy, Debug)]
struct Job {
    number: u64,
    left: Span,
    report: Report,
    abandoned: bool,
}

/// Virtual threads, by slot.
pub(super) struct World<'a> {
    tasks: Vec<(&'a Task, Draw)>,
    pub(super) now: Time,
    jobs: Vec<Option<Job>>,
    frozen: Vec<bool>,
    /// The CPU that each is bound to, of those of the manager.
    bound: Vec<Option<usize>>,
    cpus: usize,
}

impl<'a> World<'a> {
    pub(super) fn new(system: &'a System, seed: u64, cpus: usize) -> World<'a> {
        let tasks: Vec<_> = system.tasks.iter().map(|task| (task, Draw::new(seed, &task.name))).collect();
        let count = tasks.len();
        let bound = vec![(cpus == 1).then_some(0); count];
        World { now: Time::ZERO, jobs: vec![None; count], frozen: vec![false; count], bound, cpus, tasks }
    }

    /// Whether a thread would run if it had its CPU.
    fn is_free(&self, at: usize) -> bool {
        let runs = |job: &Job| !job.abandoned && job.report.completed.is_none();
        !self.frozen[at] && self.jobs[at].as_ref().is_some_and(runs)
    }

    /// The thread that would run now on this CPU.
    fn runner(&self, cpu: usize) -> Option<usize> {
        let mut all = (0..self.jobs.len()).filter(|at| self.bound[*at] == Some(cpu) && self.is_free(*at));
        let first = all.next();
        assert_eq!(all.next(), None, "two threads are free on CPU {cpu}");
        first
    }

    /// When the first free thread completes its job.
    pub(super) fn finish(&self) -> Time {
        let unbound = |at: &usize| self.bound[*at].is_none() && self.is_free(*at);
        assert_eq!((0..self.jobs.len()).find(unbound), None, "a free thread is bound to no CPU");
        let runners = (0..self.cpus).filter_map(|cpu| self.runner(cpu));
        runners.map(|at| self.now + self.jobs[at].unwrap().left).min().unwrap_or(Time::MAX)
    }

    /// Lets the free threads run until `until`, and says which ones ran and for how long.
    pub(super) fn advance(&mut self, until: Time, mut ran: impl FnMut(usize, Span)) {
        let now = self.now;
        for cpu in 0..self.cpus {
            if let Some(at) = self.runner(cpu) {
                ran(at, self.work(at, now, until));
            }
        }
        self.now = until;
    }

    fn work(&mut self, at: usize, now: Time, until: Time) -> Span {
        let job = self.jobs[at].as_mut().unwrap();
        let time = until.saturating_since(now).min(job.left);
        if job.report.started.is_none() && (until > now || job.left.is_zero()) {
            job.report.started = Some(now);
        }
        job.left = job.left.saturating_sub(time);
        if job.left.is_zero() {
            job.report.completed = Some(now + time);
        }
        time
    }
}

impl Seats for World<'_> {
    fn report(&mut self, slot: u32, number: u64) -> Report {
        let job = self.jobs[slot as usize].filter(|job| job.number == number);
        job.map_or_else(Report::default, |job| job.report)
    }
    fn bind(&mut self, slot: u32, cpu: usize) {
        assert!(cpu < self.cpus && !self.is_free(slot as usize), "slot {slot} runs");
        self.bound[slot as usize] = Some(cpu);
    }
    fn give(&mut self, slot: u32, number: u64) {
        let (task, draw) = &self.tasks[slot as usize];
        let left = draw.exec(task, number);
        self.jobs[slot as usize] = Some(Job { number, left, report: Report::default(), abandoned: false });
    }
    fn freeze(&mut self, slot: u32) {
        assert!(!std::mem::replace(&mut self.frozen[slot as usize], true), "slot {slot} is frozen already");
    }
    fn free(&mut self, slot: u32) {
        assert!(std::mem::replace(&mut self.frozen[slot as usize], false), "slot {slot} is free already");
    }
    fn abandon(&mut self, slot: u32, number: u64) {
        assert!(self.frozen[slot as usize]);
        let job = self.jobs[slot as usize].as_mut().filter(|job| job.number == number).expect("its job");
        job.abandoned = true;
    }
}

/// The outcome of a run under the manager: its facts in order, and the CPU time of each task.
pub(super) struct Managed {
    pub(super) facts: Vec<(Time, Fact)>,
    pub(super) ran: Vec<Span>,
}

/// Runs a system of one part under a manager that wakes `lag` too late.
pub(super) fn managed(system: &System, seed: u64, duration: u64, mut lag: impl FnMut() -> Span) -> Managed {
    let end = Time::from_ns(duration);
    let part = CpuPart::of_node(system, NodeId(0)).unwrap().remove(0);
    let mut world = World::new(system, seed, part.cpus.len());
    let mut board = Board::new(system, NodeId(0), part, (seed, end), |_| None);
    let mut managed = Managed { facts: Vec::new(), ran: vec![Span::ZERO; system.tasks.len()] };
    loop {
        let now = world.now;
        let facts = &mut managed.facts;
        board.pass(now, &mut world, &mut |at, fact| facts.push((at, fact)));
        if now >= end {
            break;
        }
        assert!(board.next_instant() > now, "all instants up to {now} are carried out");
        let next = board.next_instant().min(world.finish());
        let until = next.saturating_add(lag()).min(end);
        world.advance(until, |at, time| managed.ran[at] += time);
    }
    let facts = &mut managed.facts;
    board.finish(&mut |at, fact| facts.push((at, fact)));
    assert!(facts.windows(2).all(|pair| pair[0].0 <= pair[1].0), "facts never go back");
    managed
}

/// The comparable parts of a schedule.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Schedule {
    /// Releases, ends and mode changes, in order.
    pub(super) jobs: Vec<(Time, Event)>,
    /// The events of servers, in order.
    pub(super) servers: Vec<(Time, String)>,
    /// By CPU: the jobs that had it, each with begin and end.
    pub(super) runs: BTreeMap<u32, Vec<(JobKey, Time, Time)>>,
}

pub(super) fn schedule(facts: &[(Time, Fact)], end: Time) -> Schedule {
    let mut schedule = Schedule::default();
    let mut running: BTreeMap<u32, (JobKey, Time)> = BTreeMap::new();
    let leave = |schedule: &mut Schedule, (cpu, (job, since)): (u32, (JobKey, Time)), at: Time| {
        if since == at {
            return;
        }
        let runs = schedule.runs.entry(cpu).or_default();
        match runs.last_mut() {
            Some((last, _, until)) if *last == job && *until == since => *until = at,
            _ => runs.push((job, since, at)),
        }
    };
    for (at, fact) in facts.iter().copied() {
        let event = match fact {
            Fact::Switched { .. } => {
                schedule.servers.push((at, format!("{fact:?}")));
                continue;
            }
            Fact::Event(event) => event,
        };
        match event {
            Event::Start { job, cpu } | Event::Resume { job, cpu } => {
                assert!(running.values().all(|(of, _)| *of != job), "{event:?} at {at}: it runs");
                assert_eq!(running.insert(cpu, (job, at)), None, "{event:?} at {at}: the CPU has a job");
            }
            Event::Preempt { job, cpu } => {
                let left = running.remove(&cpu).filter(|(of, _)| *of == job).expect("it runs there");
                leave(&mut schedule, (cpu, left), at);
            }
            Event::Complete { .. } | Event::Cancel { .. } | Event::Release { .. } | Event::ModeChange { .. } => {
                if let Event::Complete { job, .. } | Event::Cancel { job, .. } = event {
                    let on = running.iter().find(|(_, (of, _))| *of == job).map(|(cpu, _)| *cpu);
                    let left = on.and_then(|cpu| running.remove_entry(&cpu));
                    left.into_iter().for_each(|left| leave(&mut schedule, left, at));
                }
                schedule.jobs.push((at, event));
            }
            Event::Miss { .. } | Event::Migrate { .. } => {}
            _ => schedule.servers.push((at, format!("{event:?}"))),
        }
    }
    running.into_iter().for_each(|left| leave(&mut schedule, left, end));
    schedule
}

pub(super) fn simulated(system: &System, seed: u64, duration: u64) -> Vec<(Time, Fact)> {
    /// Keeps events and definitions in their order.
    struct Keep(Vec<(Time, Fact)>);
    impl takt_log::Sink for Keep {
        fn event(&mut self, _: u32, now: Time, event: &Event) {
            self.0.push((now, Fact::Event(*event)));
        }
        fn define(&mut self, _: u32, now: Time, definition: &takt_log::Definition) {
            let takt_log::Definition::Server(server, def) = definition else { return };
            let rule = ServerRule::ALL.into_iter().find(|rule| rule.name() == def.rule).unwrap();
            let (component, period, budget) = (ComponentId(*server), def.period.unwrap(), def.budget.unwrap());
            self.0.push((now, Fact::Switched { component, rule, period, budget }));
        }
        // The facts of a manager have no misses.
        fn wants_misses(&self) -> bool {
            false
        }
    }
    let mut keep = Keep(Vec::new());
    let options = SimOptions { duration: Span::from_ns(duration), seed, node: None };
    simulate(system, &options, &mut keep).unwrap_or_else(|error| panic!("{error}\n{system:#?}"));
    keep.0
}
