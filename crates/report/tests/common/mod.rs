//! A small unit-step scheduler that makes logs for the tests of pictures: global, preemptive, by absolute
//! deadline or by order of the file. Its logs have every kind of job event in the order that the contract wants.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod trace;

use takt_log::{Event, JobKey};
use takt_model::{System, TaskId, Time};
use takt_report::golden::UNIT;

pub(crate) type Log = Vec<(u32, Time, Event)>;

struct Job {
    key: JobKey,
    deadline: u64,
    left: u64,
    cpu: Option<u32>,
    last: Option<u32>,
    missed: bool,
}

/// The first `units` units under EDF, or under fixed priorities in the order of the file.
pub(crate) fn schedule(system: &System, edf: bool, units: u64) -> Log {
    let in_units = |span: takt_model::Span| span.as_ns() / UNIT.as_ns();
    let time = |unit: u64| Time::from_ns(unit * UNIT.as_ns());
    let cpus = system.nodes[0].cpus;
    let mut jobs: Vec<Job> = Vec::new();
    let mut numbers = vec![0u64; system.tasks.len()];
    let mut log = Log::new();
    for now in 0..=units {
        let t = time(now);
        jobs.retain(|job| {
            if job.left == 0 {
                log.push((0, t, Event::Complete { job: job.key, cpu: job.cpu.unwrap() }));
            }
            job.left > 0
        });
        for job in jobs.iter_mut().filter(|job| job.deadline == now) {
            job.missed = true;
            log.push((0, t, Event::Miss { job: job.key }));
        }
        if now == units {
            break;
        }
        for (i, task) in system.tasks.iter().enumerate() {
            let (period, offset) = (in_units(task.period), in_units(task.offset));
            if now >= offset && (now - offset) % period == 0 {
                let key = JobKey { task: TaskId(i as u32), number: numbers[i] };
                numbers[i] += 1;
                log.push((0, t, Event::Release { job: key, arrival: t, parent: None }));
                let deadline = now + in_units(task.deadline);
                jobs.push(Job { key, deadline, left: in_units(task.wcet), cpu: None, last: None, missed: false });
            }
        }
        jobs.sort_by_key(|job| if edf { (job.deadline, job.key) } else { (0, job.key) });
        let mut chosen: Vec<JobKey> = Vec::new();
        for job in &jobs {
            if chosen.len() < cpus as usize && !chosen.iter().any(|key| key.task == job.key.task) {
                chosen.push(job.key);
            }
        }
        for job in jobs.iter_mut().filter(|job| !chosen.contains(&job.key)) {
            if let Some(cpu) = job.cpu.take() {
                log.push((0, t, Event::Preempt { job: job.key, cpu }));
            }
        }
        let mut busy: Vec<u32> = jobs.iter().filter_map(|job| job.cpu).collect();
        for job in jobs.iter_mut().filter(|job| chosen.contains(&job.key)) {
            if job.cpu.is_none() {
                let free = (0..cpus).find(|cpu| !busy.contains(cpu)).unwrap();
                let cpu = job.last.filter(|last| !busy.contains(last)).unwrap_or(free);
                busy.push(cpu);
                match job.last {
                    None => log.push((0, t, Event::Start { job: job.key, cpu })),
                    Some(from) => {
                        if from != cpu {
                            log.push((0, t, Event::Migrate { job: job.key, from, to: cpu }));
                        }
                        log.push((0, t, Event::Resume { job: job.key, cpu }));
                    }
                }
                (job.cpu, job.last) = (Some(cpu), Some(cpu));
            }
            job.left -= 1;
        }
    }
    log
}

/// The log as a live back end writes it: without preemptions, resumptions and migrations.
pub(crate) fn as_live(log: &Log) -> Log {
    let live = |event: &Event| !matches!(event, Event::Preempt { .. } | Event::Resume { .. } | Event::Migrate { .. });
    log.iter().filter(|(_, _, event)| live(event)).copied().collect()
}
