//! Checks that hold for every run.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

use takt_linux::Class;
use takt_linux::sched;
use takt_log::{Event, JobKey};
use takt_model::{Span, System, TaskId, Time};
use takt_run::RunSummary;

/// Events of one stream, with their times.
pub(crate) type Events = Vec<(u32, Time, Event)>;

/// One at a time: the CPUs are few, and cpusets are the machine's.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

/// A result. `None`, with the reason on the screen: this machine or user cannot.
pub(crate) fn or_skipped<T, E: Display>(result: Result<T, E>, cannot: impl Fn(&E) -> bool) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if cannot(&error) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Released,
    /// With the CPU it has.
    Running(u32),
    Preempted(u32),
    Blocked(u32),
    Completed,
}
use Stage::{Blocked, Completed, Preempted, Released, Running};

/// Whether the kernel's account is complete. Some kernels hide switches, for example from the idle
/// thread of one CPU of a virtual machine. Jobs are doubtful then, and switches prove nothing about
/// them.
pub(crate) fn whole(summary: &RunSummary) -> bool {
    let whole = summary.recorded.is_some_and(|recorded| recorded.missing == 0);
    if summary.recorded.is_some() && !whole {
        println!("not held against the schedule: {:?}", summary.recorded);
    }
    whole
}

/// Ordered, whole life cycles, each job's number in turn, no CPU with two jobs; as many misses as there are late jobs.
pub(crate) fn check(system: &System, summary: &RunSummary, events: &Events) {
    assert!(events.windows(2).all(|pair| pair[0].1 <= pair[1].1), "the stream is in the order of time");
    assert!(events.last().is_none_or(|(_, at, _)| *at <= summary.end));
    let mut jobs: BTreeMap<JobKey, (Stage, Time, Time)> = BTreeMap::new();
    let mut misses = Vec::new();
    let mut next: BTreeMap<TaskId, u64> = BTreeMap::new();
    let mut running: BTreeMap<u32, JobKey> = BTreeMap::new();
    let (mut moved, is_whole) = (None, whole(summary));
    for (_, at, event) in events {
        let mut step = |job: JobKey, step: &dyn Fn(Stage) -> Option<Stage>| {
            let (stage, _, last) = jobs.get_mut(&job).expect("released");
            let was = *stage;
            *stage = step(was).unwrap_or_else(|| panic!("{event:?} at {at} of a job that is {was:?}"));
            *last = *at;
            // Without the kernel's account nobody knows who had the CPU.
            if is_whole {
                if let Running(cpu) = was {
                    assert_eq!(running.remove(&cpu), Some(job), "{event:?} at {at}");
                }
                if let Running(cpu) = *stage {
                    assert_eq!(running.insert(cpu, job), None, "{event:?} at {at}: a CPU has one job at a time");
                }
            }
        };
        match *event {
            Event::Preempt { .. } | Event::Block { .. } | Event::Wake { .. } if !is_whole => {}
            Event::Migrate { .. } | Event::Resume { .. } if !is_whole => {}
            Event::Release { job, arrival, .. } => {
                assert_eq!(std::mem::replace(next.entry(job.task).or_default(), job.number + 1), job.number);
                assert!(arrival <= *at);
                assert!(jobs.insert(job, (Released, arrival, *at)).is_none());
            }
            Event::Start { job, cpu } => {
                step(job, &|was| (was == Released).then_some(Running(cpu)));
                assert!((cpu as usize) < sched::affinity().len());
            }
            Event::Preempt { job, cpu } => step(job, &|was| (was == Running(cpu)).then_some(Preempted(cpu))),
            Event::Block { job, cpu } => step(job, &|was| (was == Running(cpu)).then_some(Blocked(cpu))),
            Event::Wake { job } => {
                step(job, &|was| if let Blocked(cpu) = was { Some(Preempted(cpu)) } else { None });
            }
            Event::Migrate { job, from, to } => moved = Some((job, from, to)),
            Event::Resume { job, cpu } => {
                let moved = moved.take().filter(|(other, ..)| *other == job);
                step(job, &|was| {
                    let (Preempted(before) | Blocked(before)) = was else { return None };
                    let fits = moved.map_or(before == cpu, |(_, from, to)| from == before && to == cpu && from != to);
                    fits.then_some(Running(cpu))
                });
            }
            Event::Complete { job, cpu } => step(job, &|was| match was {
                Running(on) if on == cpu || !is_whole => Some(Completed),
                _ => None,
            }),
            Event::Gap { .. } if summary.recorded.is_some() && !is_whole => {}
            // Other work of the CPUs.
            Event::Occupy { .. } | Event::Steal { .. } | Event::IrqEnter { .. } | Event::IrqExit { .. }
                if summary.recorded.is_some() => {}
            Event::Miss { job } => misses.push(job),
            other => panic!("unexpected {other:?}"),
        }
    }
    for (job, (stage, arrival, at)) in &jobs {
        let deadline = *arrival + system.tasks[job.task.index()].deadline;
        let missed = if *stage == Completed { *at > deadline } else { deadline <= summary.end };
        assert_eq!(misses.contains(job), missed, "{job:?} {stage:?} at {at}, deadline {deadline}");
    }
    for (index, task) in summary.tasks.iter().enumerate() {
        let done = jobs.iter().filter(|(job, (stage, ..))| job.task.index() == index && *stage == Completed).count();
        assert_eq!(task.completed, done as u64);
        assert_eq!(task.stamps.is_some(), summary.recorded.is_some() && summary.managers.is_empty());
        if let Some(stamps) = &task.stamps {
            assert_eq!(stamps.contradicted, 0, "{stamps:?}");
            assert!(!is_whole || stamps.checked == task.completed, "{stamps:?}");
        }
    }
    assert_eq!(summary.lost, 0);
    assert!(summary.recorded.is_none_or(|recorded| recorded.lost == 0));
    assert_eq!(sched::current(), Class::Other, "this thread's class was never touched");
    assert_eq!(takt_linux::memory::locked_kib(), Some(0));
}
