//! The collector against counts made from the jobs themselves.

use proptest::prelude::*;
use takt_log::stats::{Collector, Replications, Stats, Summary};
use takt_log::{CancelCause, ChainDef, Definitions, Event, JobKey, Kind, KindSet, Parent, Sink as _};
use takt_model::{TaskId, Time};

use crate::random::{Record, definitions, records};

/// Two nodes of two CPUs.
const CPUS: usize = 4;

#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Open,
    Complete,
    Cancel(CancelCause),
}

/// A job as it was: everything that the statistics should find out.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) arrival: u64,
    pub(crate) release: u64,
    origin: Option<u64>,
    /// When it held which CPU; preempted after each but the last.
    pub(crate) runs: Vec<(u64, u64, u32)>,
    pub(crate) fate: Fate,
    pub(crate) end: u64,
}

pub(crate) fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let fate = prop_oneof![
        8 => Just(Fate::Complete),
        1 => Just(Fate::Open),
        1 => prop::sample::select(CancelCause::ALL.to_vec()).prop_map(Fate::Cancel),
    ];
    let runs = proptest::collection::vec((0u64..500, 1u64..3000, 0u32..2), 0..4);
    let origin = proptest::option::of(0u64..2000);
    let job = (0u64..5000, 0u64..300, runs, fate, origin);
    proptest::collection::vec(job, 0..40).prop_map(|parts| {
        let (mut arrival, mut free) = (0, 0);
        let mut jobs = Vec::new();
        for (gap, latency, waits, fate, origin) in parts {
            arrival += gap;
            let release = arrival + latency;
            let mut now = release.max(free);
            let mut runs = Vec::new();
            for (wait, run, cpu) in waits {
                runs.push((now + wait, now + wait + run, cpu));
                now += wait + run;
            }
            free = now;
            jobs.push(Job {
                arrival,
                release,
                origin: origin.map(|o| arrival.saturating_sub(o)),
                runs,
                fate,
                end: now,
            });
        }
        // Releases stand in order.
        for i in 1..jobs.len() {
            jobs[i].release = jobs[i].release.max(jobs[i - 1].release);
        }
        let last = jobs.len();
        jobs.iter_mut().take(last.saturating_sub(1)).for_each(|job| {
            if matches!(job.fate, Fate::Open) {
                job.fate = Fate::Complete;
            }
        });
        jobs
    })
}

pub(crate) fn events(tasks: &[Vec<Job>]) -> Vec<Record> {
    let mut all = Vec::new();
    for (t, jobs) in tasks.iter().enumerate() {
        let mut events = Vec::new();
        for (number, job) in jobs.iter().enumerate() {
            let key = JobKey { task: TaskId(t as u32), number: number as u64 };
            let parent = job.origin.map(|origin| Parent { hop: 1, origin: Time::from_ns(origin) });
            events.push((job.release, Event::Release { job: key, arrival: Time::from_ns(job.arrival), parent }));
            for (i, (from, to, cpu)) in job.runs.iter().enumerate() {
                let cpu = *cpu;
                if i == 0 {
                    events.push((*from, Event::Start { job: key, cpu }));
                } else {
                    if job.runs[i - 1].2 != cpu {
                        events.push((*from, Event::Migrate { job: key, from: job.runs[i - 1].2, to: cpu }));
                    }
                    events.push((*from, Event::Resume { job: key, cpu }));
                }
                if i + 1 < job.runs.len() {
                    events.push((*to, Event::Preempt { job: key, cpu }));
                }
            }
            let cpu = job.runs.last().map_or(0, |run| run.2);
            match job.fate {
                Fate::Open => {}
                Fate::Complete => events.push((job.end, Event::Complete { job: key, cpu })),
                Fate::Cancel(cause) => events.push((job.end, Event::Cancel { job: key, cause })),
            }
        }
        // Stable: at one instant as they were made.
        events.sort_by_key(|(time, _)| *time);
        all.extend(events.into_iter().map(|(time, event)| (t as u32 % 2, Time::from_ns(time), event)));
    }
    all.sort_by_key(|(_, time, _)| *time);
    all
}

fn collect(definitions: &Definitions, kinds: KindSet, events: &[Record], end: u64) -> Stats {
    let mut collector = Collector::new(definitions, kinds).with_release_latency(true);
    events.iter().for_each(|(stream, time, event)| collector.event(*stream, *time, event));
    collector.finish(Time::from_ns(end))
}

pub(crate) fn signed(s: Summary<u64>) -> Summary<i64> {
    Summary {
        count: s.count,
        min: s.min as i64,
        mean: s.mean as i64,
        deviation: s.deviation,
        p50: s.p50 as i64,
        p90: s.p90 as i64,
        p99: s.p99 as i64,
        p999: s.p999 as i64,
        max: s.max as i64,
    }
}

/// Exact, but for quantiles, which may err by a 1024th to the unfavourable side.
pub(crate) fn check(found: Option<Summary<i64>>, mut values: Vec<i64>, upper_is_worse: bool) {
    values.sort_unstable();
    let Some(found) = found else { return assert!(values.is_empty()) };
    let n = values.len();
    let sum: i64 = values.iter().sum();
    assert_eq!(found.count, n as u64);
    assert_eq!((found.min, found.max, found.mean), (values[0], values[n - 1], sum.div_euclid(n as i64)));
    let mean = sum as f64 / n as f64;
    let variance = values.iter().map(|x| (*x as f64 - mean).powi(2)).sum::<f64>() / n as f64;
    let deviation = found.deviation as f64;
    assert!(deviation <= variance.sqrt() + 1e-6 && variance.sqrt() < deviation + 1.0 + 1e-6, "{deviation} {variance}");
    for (quantile, permille) in [(found.p50, 500), (found.p90, 900), (found.p99, 990), (found.p999, 999)] {
        let exact = values[(permille * n).div_ceil(1000) - 1];
        let worse = if upper_is_worse { quantile - exact } else { exact - quantile };
        // A response is at most a laxity's magnitude plus the longest deadline.
        let response = if upper_is_worse { exact } else { exact.abs() + 20_000 };
        assert!(worse >= 0 && worse * 1024 <= response, "{quantile} for {exact}");
    }
}

proptest! {
    #[test]
    fn numbers_are_those_of_the_jobs(
        tasks in proptest::collection::vec(jobs(), 1..5),
        deadlines in proptest::collection::vec(proptest::option::of(0u64..20_000), 5),
        late_end in 0u64..30_000,
    ) {
        let mut definitions = definitions(&deadlines[..tasks.len()]);
        definitions.chains = vec![ChainDef { name: "c".into(), sink: TaskId(0) }];
        let events = events(&tasks);
        let end = events.last().map_or(0, |(_, time, _)| time.as_ns()) + late_end;
        let stats = collect(&definitions, KindSet::JOBS, &events, end);
        let mut busy = [0u64; CPUS];
        for (t, (jobs, found)) in tasks.iter().zip(&stats.tasks).enumerate() {
            let count = |wanted: fn(&Job) -> bool| jobs.iter().filter(|job| wanted(job)).count() as u64;
            let cancelled = count(|job| matches!(job.fate, Fate::Cancel(CancelCause::Omitted | CancelCause::Shed)));
            let rejected = count(|job| matches!(job.fate, Fate::Cancel(CancelCause::Rejected)));
            let dropped = count(|job| matches!(job.fate, Fate::Cancel(CancelCause::Late | CancelCause::Failed)));
            let completed = count(|job| matches!(job.fate, Fate::Complete));
            prop_assert_eq!(found.released, jobs.len() as u64);
            prop_assert_eq!(found.released, found.completed + found.cancelled + found.rejected + found.unfinished);
            prop_assert_eq!((found.completed, found.cancelled, found.rejected), (completed, cancelled, rejected));
            prop_assert_eq!(found.unfinished, count(|job| matches!(job.fate, Fate::Open)) + dropped);
            prop_assert_eq!(found.censored, 0);
            prop_assert_eq!(found.deadline_ns, deadlines[t]);
            let missed = deadlines[t].map(|deadline| jobs.iter().filter(|job| match job.fate {
                Fate::Complete => job.end > job.arrival + deadline,
                Fate::Open => job.arrival + deadline <= end,
                Fate::Cancel(cause) => matches!(cause, CancelCause::Late | CancelCause::Failed),
            }).count() as u64);
            prop_assert_eq!(found.missed, missed);
            let preemptions: usize = jobs.iter().map(|job| job.runs.len().saturating_sub(1)).sum();
            prop_assert_eq!(found.preemptions, Some(preemptions as u64));
            let moves = jobs.iter().flat_map(|job| job.runs.windows(2));
            let migrations = moves.filter(|pair| pair[0].2 != pair[1].2).count();
            prop_assert_eq!(found.migrations, Some(migrations as u64));
            let responses = |from: fn(&Job) -> Option<u64>| -> Vec<i64> {
                let done = jobs.iter().filter(|job| matches!(job.fate, Fate::Complete));
                done.filter_map(|job| Some((job.end - from(job)?) as i64)).collect()
            };
            let exact = responses(|job| Some(job.arrival));
            check(found.response_ns.map(signed), exact.clone(), true);
            let laxities = deadlines[t].map_or(vec![], |deadline| exact.iter().map(|r| deadline as i64 - r).collect());
            check(found.laxity_ns, laxities, false);
            if t == 0 {
                check(stats.chains[0].response_ns.map(signed), responses(|job| job.origin), true);
            }
            let over = |job: &Job, at| !matches!(job.fate, Fate::Open) && job.end <= at;
            let idle = |i: usize| jobs[..i].iter().all(|earlier| over(earlier, jobs[i].release));
            let measured = jobs.iter().enumerate().filter(|(i, job)| job.origin.is_none() && idle(*i));
            let latencies = measured.map(|(_, job)| (job.release - job.arrival) as i64);
            check(found.release_latency_ns.unwrap().map(signed), latencies.collect(), true);
            for job in jobs {
                for (i, (from, to, cpu)) in job.runs.iter().enumerate() {
                    let open = i + 1 == job.runs.len() && matches!(job.fate, Fate::Open);
                    busy[t % 2 * 2 + *cpu as usize] += if open { end } else { *to } - from;
                }
            }
        }
        let found: Vec<_> = stats.cpus.iter().map(|cpu| cpu.busy_ns.unwrap()).collect();
        prop_assert_eq!(found, busy);
    }

    /// Arbitrary events in any order, losses among them.
    #[test]
    fn nonsense_is_counted_consistently(events in records(3, 400), end in any::<u64>()) {
        let stats = collect(&definitions(&[Some(1000); 40]), KindSet::ALL, &events, end);
        for task in &stats.tasks {
            prop_assert_eq!(task.released, task.completed + task.cancelled + task.rejected + task.unfinished);
            prop_assert!(task.missed.unwrap() <= task.released);
        }
    }

    /// No job is counted twice or gets another fate, whichever events are lost.
    #[test]
    fn lost_events_censor_jobs(
        tasks in proptest::collection::vec(jobs(), 1..4),
        cuts in proptest::collection::vec((0.0..1.0, 1usize..30), 1..4),
    ) {
        let definitions = definitions(&vec![Some(5000); tasks.len()]);
        let whole = events(&tasks);
        let end = whole.last().map_or(0, |(_, time, _)| time.as_ns());
        let mut partial = whole.clone();
        for (at, length) in cuts {
            let at = (at * partial.len() as f64) as usize;
            let stop = (at + length).min(partial.len());
            let Some(time) = partial.get(stop).or(partial.last()).map(|(_, time, _)| *time) else { continue };
            let count = (stop - at) as u64;
            partial.splice(at..stop, [0, 1].map(|stream| (stream, time, Event::Lost { count })));
        }
        let collect = |events: &[Record]| collect(&definitions, KindSet::JOBS, events, end);
        let (whole, found) = (collect(&whole), collect(&partial));
        prop_assert!(found.lost_events != Some(0) || whole.tasks.iter().all(|task| task.released == 0));
        for (found, whole) in found.tasks.iter().zip(&whole.tasks) {
            prop_assert!(found.completed <= whole.completed && found.cancelled <= whole.cancelled);
            prop_assert!(found.unfinished <= whole.unfinished && found.missed <= whole.missed);
            prop_assert!(found.released + found.censored <= whole.released);
        }
    }
}

/// Two tasks, one chain, by hand.
fn example(end: u64) -> Stats {
    let mut definitions = definitions(&[Some(10), Some(20)]);
    definitions.chains = vec![ChainDef { name: "t0 -> t1".into(), sink: TaskId(1) }];
    let job = |task, number| JobKey { task: TaskId(task), number };
    let at = Time::from_ns;
    let parent = Some(Parent { hop: 1, origin: at(0) });
    let events = [
        (0, at(0), Event::Release { job: job(0, 0), arrival: at(0), parent: None }),
        (0, at(0), Event::Start { job: job(0, 0), cpu: 1 }),
        (0, at(10), Event::Complete { job: job(0, 0), cpu: 1 }),
        (1, at(10), Event::Release { job: job(1, 0), arrival: at(10), parent }),
        (1, at(12), Event::Start { job: job(1, 0), cpu: 0 }),
        (0, at(20), Event::Release { job: job(0, 1), arrival: at(20), parent: None }),
        (1, at(31), Event::Complete { job: job(1, 0), cpu: 0 }),
    ];
    let mut collector = Collector::new(&definitions, KindSet::JOBS);
    events.iter().for_each(|(stream, time, event)| collector.event(*stream, *time, event));
    collector.finish(at(end))
}

/// The summary of values that are all the same.
fn all(count: u64, value: i64) -> serde_json::Value {
    let v = value;
    serde_json::json!({
        "count": count, "min": v, "mean": v, "deviation": 0, "p50": v, "p90": v, "p99": v, "p999": v, "max": v
    })
}

/// The summary of nothing.
fn nothing() -> serde_json::Value {
    serde_json::json!({
        "count": 0, "min": null, "mean": null, "deviation": null, "p50": null, "p90": null, "p99": null,
        "p999": null, "max": null
    })
}

#[test]
fn json_is_the_contract() {
    let json = serde_json::to_value(example(30)).unwrap();
    let expected = serde_json::json!({
        "duration_ns": 30,
        "tasks": [
            {"task": "t0", "node": "n0", "released": 2, "completed": 1, "missed": 1, "cancelled": 0, "unfinished": 1,
             "censored": 0, "uncertain": 0, "period_ns": null, "deadline_ns": 10, "wcet_ns": null,
             "response_ns": all(1, 10), "laxity_ns": all(1, 0), "execution_ns": all(1, 10),
             "execution_without_interrupts_ns": nothing(), "inter_arrival_ns": all(1, 20),
             "start_latency_ns": all(1, 0), "busy_ns": 10, "utilization": 10.0 / 30.0,
             "preemptions": 0, "migrations": 0},
            {"task": "t1", "node": "n1", "released": 1, "completed": 1, "missed": 1, "cancelled": 0, "unfinished": 0,
             "censored": 0, "uncertain": 0, "period_ns": null, "deadline_ns": 20, "wcet_ns": null,
             "response_ns": all(1, 21), "laxity_ns": all(1, -1), "execution_ns": all(1, 19),
             "execution_without_interrupts_ns": nothing(), "inter_arrival_ns": nothing(),
             "start_latency_ns": all(1, 2), "busy_ns": 19, "utilization": 19.0 / 30.0,
             "preemptions": 0, "migrations": 0},
        ],
        "chains": [{"chain": "t0 -> t1", "response_ns": all(1, 31)}],
        "cpus": [
            {"node": "n0", "cpu": 0, "busy_ns": 0, "interrupts_ns": null, "used_ns": 0, "utilization": 0.0},
            {"node": "n0", "cpu": 1, "busy_ns": 10, "interrupts_ns": null, "used_ns": 10, "utilization": 10.0 / 30.0},
            {"node": "n1", "cpu": 0, "busy_ns": 19, "interrupts_ns": null, "used_ns": 19, "utilization": 19.0 / 30.0},
            {"node": "n1", "cpu": 1, "busy_ns": 0, "interrupts_ns": null, "used_ns": 0, "utilization": 0.0},
        ],
        "interrupts": null,
        "lost_events": 0,
    });
    assert_eq!(json, expected);
    // Its deadline, 30, is past an earlier end.
    assert_eq!(example(29).tasks[0].missed, Some(0));
}

#[test]
fn statistics_that_a_back_end_lacks_are_null() {
    let few = KindSet::of(&[Kind::Release, Kind::Start, Kind::Complete]);
    let stats = Collector::new(&definitions(&[None]), few).with_release_latency(true).finish(Time::from_ns(5));
    let json = serde_json::to_value(stats).unwrap();
    let task = &json["tasks"][0];
    for key in ["missed", "preemptions", "migrations", "deadline_ns", "busy_ns", "utilization"] {
        assert!(task[key].is_null() && task.get(key).is_some(), "{key}");
    }
    for key in ["response_ns", "laxity_ns", "release_latency_ns", "execution_ns", "execution_without_interrupts_ns"] {
        assert!(task[key]["p99"].is_null() && task[key].get("p99").is_some(), "{key}");
    }
    assert!(json["cpus"][0]["busy_ns"].is_null() && json["cpus"][0]["interrupts_ns"].is_null());
    assert!(json["interrupts"].is_null());
}

#[test]
fn runs_merge() {
    let mut runs = Replications::new();
    let one = example(30);
    runs.add(&one).unwrap();
    runs.add(&example(29)).unwrap();
    assert!(runs.add(&Collector::new(&definitions(&[Some(1)]), KindSet::JOBS).finish(Time::ZERO)).is_err());
    let merged = runs.finish().unwrap();
    let json = serde_json::to_value(&merged).unwrap();
    assert_eq!((&json["runs"], &json["duration_ns"]), (&2.into(), &59.into()));
    assert_eq!((&json["tasks"][0]["released"], &json["tasks"][0]["missed"]), (&4.into(), &1.into()));
    assert_eq!(json["confidence"][0]["response_mean_ns"]["mean"], 10);
    // Misses of 1/2 and 0: mean 0.25, s = 0.3536, t(0.975, 1) = 12.706, so 0.25 +- 3.177.
    let ratio = merged.confidence[0].miss_ratio.unwrap();
    assert!((ratio.mean - 0.25).abs() < 1e-12 && (ratio.high - 3.4266).abs() < 1e-3, "{ratio:?}");
}

#[test]
fn definitions_that_come_one_by_one_count_like_those_known_from_the_start() {
    use takt_log::{BackEnd, Definition, Header, Reader, Writer};
    let all = definitions(&[Some(10); 500]);
    let header = Header::new(String::new(), None, BackEnd::Sim, KindSet::JOBS);
    let write = |late: bool| {
        let first = if late { Definitions::default() } else { all.clone() };
        let mut writer = Writer::new(Vec::new(), &header, &first).unwrap();
        for node in all.iter().filter(|def| late && matches!(def, Definition::Node(..))) {
            writer.define(0, Time::ZERO, &node);
        }
        for (i, def) in all.tasks.iter().enumerate() {
            let (task, now) = (TaskId(i as u32), i as u64 * 100);
            if late {
                writer.define(0, Time::from_ns(now), &Definition::Task(task, def.clone()));
            }
            let job = JobKey { task, number: 0 };
            writer.event(0, Time::from_ns(now), &Event::Release { job, arrival: Time::from_ns(now), parent: None });
            writer.event(0, Time::from_ns(now + 1), &Event::Start { job, cpu: 1 });
            writer.event(0, Time::from_ns(now + 11), &Event::Complete { job, cpu: 1 });
        }
        let log = writer.finish(Time::ZERO).unwrap();
        Collector::read(&mut Reader::new(&log[..]).unwrap()).unwrap()
    };
    let (early, late) = (write(false), write(true));
    assert_eq!(early, late);
    assert_eq!((early.missed(), early.cpus[1].busy_ns, early.cpus[3].busy_ns), (500, Some(2500), Some(2500)));
}
