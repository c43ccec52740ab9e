//! The jobs of a log, by the names of their tasks.

use std::collections::BTreeMap;
use std::path::Path;

use takt_log::{Event, Reader};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Job {
    pub(crate) arrival: u64,
    pub(crate) start: Option<u64>,
    pub(crate) done: Option<u64>,
    pub(crate) preemptions: u32,
    /// When it got its CPU, nobody recorded: no earlier than its arrival.
    pub(crate) gap: bool,
}

/// Jobs by the names of their tasks; `None` where events were lost.
pub(crate) fn jobs(log: &Path) -> Option<BTreeMap<String, Vec<Job>>> {
    let mut reader = Reader::new(std::io::Cursor::new(std::fs::read(log).unwrap())).unwrap();
    let mut jobs: BTreeMap<(u32, u64), Job> = BTreeMap::new();
    for record in reader.by_ref() {
        let record = record.unwrap();
        let now = record.time.as_ns();
        let (key, update): (_, fn(&mut Job, u64)) = match record.event {
            Event::Release { job, arrival, .. } => {
                jobs.insert((job.task.0, job.number), Job { arrival: arrival.as_ns(), ..Job::default() });
                continue;
            }
            Event::Start { job, .. } => (job, |job, now| job.start = Some(now)),
            Event::Preempt { job, .. } => (job, |job, _| job.preemptions += 1),
            Event::Complete { job, .. } => (job, |job, now| job.done = Some(now)),
            Event::Gap { job } => (job, |job, _| job.gap = true),
            Event::Lost { .. } => return None,
            _ => continue,
        };
        update(jobs.get_mut(&(key.task.0, key.number)).unwrap(), now);
    }
    let mut named: BTreeMap<String, Vec<Job>> = BTreeMap::new();
    for ((task, _), job) in jobs {
        named.entry(reader.definitions().tasks[task as usize].name.clone()).or_default().push(job);
    }
    Some(named)
}

/// The distance of the zeros of two logs, by one task's arrivals: these are exact in both.
pub(crate) fn shift(one: &[Job], other: &BTreeMap<u64, Job>) -> Option<u64> {
    let matching = |shift: &u64| one.iter().filter(|job| other.contains_key(&(job.arrival + shift))).count();
    other.keys().filter_map(|arrival| arrival.checked_sub(one[0].arrival)).max_by_key(matching)
}
