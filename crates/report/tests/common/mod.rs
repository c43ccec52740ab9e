//! A small unit-step scheduler that makes logs for the tests of pictures: global, preemptive, by absolute
//! deadline or by order of the file. Its logs have every kind of job event in the order that the contract wants.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod trace;

use takt_log::{DropCause, Event, JobKey, Parent};
use takt_model::{Builtin, Bytes, Flow, NodeId, NodeSpec, Span, StrategyRef, System, TableTask, TaskId, Time};
use takt_report::Scene;
use takt_report::golden::{self, UNIT};

pub(crate) type Log = Vec<(u32, Time, Event)>;

pub(crate) fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

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

/// A flow from `n0` to `n1`. Message 0 is received, message 1 is lost, message 2 stays on its way.
pub(crate) fn messages() -> (Scene, Log) {
    let mut system = golden::system(1, Builtin::Edf, "");
    system.nodes = ["n0", "n1"].map(|name| NodeSpec::new(name, 1, StrategyRef::Builtin(Builtin::Edf))).to_vec();
    let table = TableTask { period: Span::from_ms(5), wcet: Span::from_ms(1), cost: None };
    (system.nodes[0].send, system.nodes[1].receive) = (Some(table), Some(table));
    system.flows.push(Flow {
        name: "put".to_owned(),
        path: vec![NodeId(0), NodeId(1)],
        reply: false,
        period: Span::from_ms(10),
        wcet: Span::from_ms(1),
        deadline: Span::from_ms(20),
        send_gap: Span::from_ms(5),
        hop_wcet: Span::from_ms(1),
        size: Bytes::default(),
        hop_deadlines: Vec::new(),
    });
    let job = |task, number| JobKey { task: TaskId(task), number };
    let released = |job, arrival, parent| Event::Release { job, arrival: ms(arrival), parent };
    let origin = |at| Some(Parent { hop: 1, origin: ms(at) });
    // Tasks: put/0, put/1, n0/send, n1/receive.
    let log = vec![
        (0, ms(0), released(job(0, 0), 0, None)),
        (0, ms(0), Event::Start { job: job(0, 0), cpu: 0 }),
        (0, ms(1), Event::Complete { job: job(0, 0), cpu: 0 }),
        (0, ms(2), Event::Send { job: job(0, 0), message: 0 }),
        (1, ms(3), Event::Arrive { job: job(0, 0), message: 0 }),
        (1, ms(4), released(job(3, 0), 4, None)),
        (1, ms(4), Event::Start { job: job(3, 0), cpu: 0 }),
        (1, ms(5), Event::Complete { job: job(3, 0), cpu: 0 }),
        (1, ms(5), Event::Receive { job: job(0, 0), message: 0 }),
        (1, ms(5), released(job(1, 0), 5, origin(0))),
        (1, ms(5), Event::Start { job: job(1, 0), cpu: 0 }),
        (0, ms(6), Event::Send { job: job(0, 1), message: 1 }),
        (1, ms(7), Event::Complete { job: job(1, 0), cpu: 0 }),
        (0, ms(8), Event::Drop { job: job(0, 1), message: 1, cause: DropCause::Lost }),
        (0, ms(9), Event::Send { job: job(0, 2), message: 2 }),
    ];
    (Scene::of(&system), log)
}
