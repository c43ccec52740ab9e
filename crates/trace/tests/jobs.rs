//! [`Rebuilder`] finds the jobs that there were. A slow and obvious kernel plays random threads on
//! random machines step by step, and knows each job. The rebuilder gets the events of such a
//! kernel.

#[path = "common/machine.rs"]
mod machine;

use machine::{Job, Player, STEP, World, pid};
use takt_log::{Event, JobKey, Sink};
use takt_model::Time;
use takt_trace::Abi;
use takt_trace::jobs::{Options, Rebuilder};

#[derive(Default)]
struct Jobs {
    names: Vec<String>,
    jobs: Vec<Vec<Job>>,
    /// Since when each task's job has been running.
    since: Vec<u64>,
    /// When each task's next job may have arrived.
    earliest: Vec<Option<u64>>,
}

impl Jobs {
    fn job(&mut self, key: JobKey) -> &mut Job {
        let jobs = &mut self.jobs[key.task.index()];
        assert_eq!(jobs.len() as u64, key.number + 1, "events are of the last job");
        jobs.last_mut().unwrap()
    }
    fn stop(&mut self, now: u64, key: JobKey) {
        let since = self.since[key.task.index()];
        self.job(key).executed += now - since;
    }
}

impl Sink for Jobs {
    fn event(&mut self, _: u32, now: Time, event: &Event) {
        let now = now.as_ns();
        match *event {
            Event::Window { job, earliest } => self.earliest[job.task.index()] = Some(earliest.as_ns()),
            Event::Release { job, arrival, .. } => {
                assert_eq!(self.jobs[job.task.index()].len() as u64, job.number);
                let earliest = self.earliest[job.task.index()].take().unwrap_or(arrival.as_ns());
                self.jobs[job.task.index()].push(Job { earliest, ..Job::new(arrival.as_ns()) });
            }
            Event::Gap { job } => self.job(job).gap = true,
            Event::Start { job, .. } => {
                self.job(job).start = Some(now);
                self.since[job.task.index()] = now;
            }
            Event::Resume { job, .. } => self.since[job.task.index()] = now,
            Event::Preempt { job, .. } => {
                self.job(job).preempted += 1;
                self.stop(now, job);
            }
            Event::Block { job, .. } => self.stop(now, job),
            Event::Complete { job, .. } => {
                self.stop(now, job);
                self.job(job).done = Some(now);
            }
            Event::Migrate { job, .. } => self.job(job).migrated += 1,
            Event::Wake { .. } => {}
            ref other => panic!("{other:?}"),
        }
    }
    fn define(&mut self, _: u32, _: Time, definition: &takt_log::Definition) {
        if let takt_log::Definition::Task(task, def) = definition {
            assert_eq!(task.index(), self.names.len());
            self.names.push(def.name.clone());
            self.jobs.push(Vec::new());
            self.since.push(0);
            self.earliest.push(None);
        }
    }
}

/// The rebuilt jobs of each thread, beside the true ones.
fn rebuilt(world: &World) -> Vec<(Vec<Job>, Vec<Job>)> {
    let cpus = world.on.len() as u32;
    let mut rebuilder = Rebuilder::new(Options { abi: Abi::X86_64, monotonic: true, cpus, ..Options::default() });
    let mut found = Jobs::default();
    world.events.iter().for_each(|event| rebuilder.event(event, &mut found));
    // The log's zero is the first event.
    let zero = world.events.first().map_or(0, |event| event.time.as_ns());
    let of_player = |(k, player): (usize, &Player)| {
        let name = format!("t{k}-{}", pid(k));
        let at = found.names.iter().position(|found| *found == name);
        let mut rebuilt = at.map_or(&[][..], |at| &found.jobs[at]).to_vec();
        for job in &mut rebuilt {
            (job.arrival, job.earliest) = (job.arrival + zero, job.earliest + zero);
            job.start = job.start.map(|start| start + zero);
            job.done = job.done.map(|done| done + zero);
        }
        let mut there_were = player.jobs.clone();
        // One that was released while its thread left its CPU is told when the thread runs again.
        if there_were.len() == rebuilt.len() + 1 && there_were.last().is_some_and(|job| job.start.is_none()) {
            there_were.pop();
        }
        // Both sides know only a part of the last job.
        for jobs in [&mut rebuilt, &mut there_were] {
            if let Some(open) = jobs.last_mut().filter(|job| job.done.is_none()) {
                open.executed = 0;
            }
        }
        (rebuilt, there_were)
    };
    world.players.iter().enumerate().map(of_player).collect()
}

fn cases() -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(500)
}

#[test]
fn rebuilt_jobs_are_those_that_there_were() {
    let (mut compared, mut preempted, mut migrated, mut late) = (0, 0, 0, 0);
    for seed in 0..cases() {
        let mut world = World::new(seed);
        (0..300).for_each(|_| world.step());
        for (k, (rebuilt, there_were)) in rebuilt(&world).into_iter().enumerate() {
            assert_eq!(rebuilt, there_were, "seed {seed}: t{k}, {:?}", world.players[k].style);
            compared += rebuilt.len();
            preempted += rebuilt.iter().map(|job| job.preempted).sum::<u32>();
            migrated += rebuilt.iter().map(|job| job.migrated).sum::<u32>();
            late += rebuilt.windows(2).filter(|pair| pair[0].done.is_some_and(|done| done > pair[1].arrival)).count();
        }
    }
    assert!(
        compared > 10_000 && preempted > 1000 && migrated > 100 && late > 100,
        "{compared} {preempted} {migrated} {late}"
    );
}

/// Every job of a thread is reported or doubted if something is recorded in the thread's context.
/// Whichever thread gave it the CPU does not matter.
#[test]
fn no_job_is_hidden_by_threads_that_hide() {
    let (mut exact, mut from_calls, mut doubted, mut windows) = (0, 0, 0, 0);
    for seed in 0..cases() {
        let mut world = World::with_hidden(seed);
        (0..300).for_each(|_| world.step());
        for (k, (rebuilt, mut there_were)) in rebuilt(&world).into_iter().enumerate() {
            if world.players[k].hidden {
                continue;
            }
            let what = format!("seed {seed}: t{k}, {:?}", world.players[k].style);
            if there_were.len() == rebuilt.len() + 1 && there_were.last().is_some_and(|last| last.done.is_none()) {
                there_were.pop();
            }
            assert_eq!(rebuilt.len(), there_were.len(), "{what}: {rebuilt:#?} {there_were:#?}");
            for (n, (rebuilt, job)) in rebuilt.iter().zip(&there_were).enumerate() {
                let what = format!("{what}, job {n}: {rebuilt:?} of {job:?}");
                assert!(rebuilt.earliest <= job.arrival && job.arrival <= rebuilt.arrival, "{what}");
                assert_eq!(rebuilt.done, job.done, "{what}");
                windows += u32::from(rebuilt.earliest < rebuilt.arrival);
                doubted += u32::from(rebuilt.gap);
                if rebuilt.gap || job.done.is_none() {
                    continue;
                }
                // A job that began by a hidden switch starts when its call returns.
                let later = rebuilt.start.unwrap() - job.start.unwrap();
                assert!(later < 2 * STEP, "{what}");
                assert_eq!(rebuilt.executed + later, job.executed, "{what}");
                assert_eq!((rebuilt.preempted, rebuilt.migrated), (job.preempted, job.migrated), "{what}");
                (exact, from_calls) = (exact + u32::from(later == 0), from_calls + u32::from(later > 0));
            }
        }
    }
    assert!(
        exact > 2000 && from_calls > 500 && doubted > 500 && windows > 500,
        "{exact} {from_calls} {doubted} {windows}"
    );
}
