//! Small traces made by hand. Each shows one behaviour of a kernel that is easily misread.

use takt_log::stats::{Collector, TaskStats};
use takt_log::{BackEnd, Header};
use takt_trace::infer::{Arrivals, Inferred, Kind, Sampler, parse_releases};
use takt_trace::jobs::{Options, Rebuilder, kinds};
use takt_trace::{Recording, unpacked};

fn observed(file: &str) -> Vec<TaskStats> {
    let bytes = std::fs::read(format!("{}/tests/data/made/{file}", env!("CARGO_MANIFEST_DIR"))).expect("it is there");
    let bytes = unpacked(&bytes).expect("it is sound");
    let mut rebuilder = Rebuilder::new(Options { cpus: 2, ..Options::default() });
    let header = Header::new(String::new(), None, BackEnd::Observe, kinds(["sched_switch"]));
    let mut collector = Collector::for_log(&header, &rebuilder.definitions());
    Recording::open(&bytes).expect("it is a trace").each(|event| rebuilder.event(event, &mut collector));
    collector.finish(rebuilder.end()).tasks
}

/// How the jobs of a trace's first task arrive.
fn inferred(file: &str) -> Arrivals {
    let bytes = std::fs::read(format!("{}/tests/data/made/{file}", env!("CARGO_MANIFEST_DIR"))).expect("it is there");
    let bytes = unpacked(&bytes).expect("it is sound");
    let mut rebuilder = Rebuilder::new(Options { cpus: 2, ..Options::default() });
    let header = Header::new(String::new(), None, BackEnd::Observe, kinds(["sched_switch"]));
    let mut sampler = Sampler::new(&header, true);
    Recording::open(&bytes).expect("it is a trace").each(|event| rebuilder.event(event, &mut sampler));
    Arrivals::of(&sampler.finish(&rebuilder.definitions())[0])
}

/// Completed jobs, and the shortest and longest response in microseconds.
fn responses(task: &TaskStats) -> (u64, u64, u64) {
    let response = task.response_ns.expect("jobs completed");
    (task.completed, response.min / 1000, response.max / 1000)
}

/// A control group's quota, and the limit of all real-time threads, stop a thread within its job.
#[test]
fn throttled_jobs_are_one_job_each() {
    for (file, expected) in [("cfsquota.txt", (5, 23_000, 23_000)), ("rt-throttle.txt", (1, 1_200_000, 1_200_000))] {
        let tasks = observed(file);
        assert_eq!(responses(&tasks[0]), expected, "{file}");
        assert_eq!((tasks.len(), tasks[0].preemptions), (1, Some(0)), "{file}");
    }
    // The job executed for 1.2 s, except for the 50 ms in which it was stopped.
    assert_eq!(observed("rt-throttle.txt")[0].execution_ns.expect("it executed").max / 1000, 1_149_990);
}

#[test]
fn a_wake_up_of_a_running_thread_is_spent_when_it_sleeps() {
    assert_eq!(responses(&observed("selfwake.txt")[0]), (2, 400, 500));
}

#[test]
fn an_id_that_is_given_again_without_an_end_is_two_threads() {
    let tasks = observed("pid_noexit.txt.gz");
    let told: Vec<(&str, u64)> = tasks.iter().map(|task| (task.task.as_str(), task.completed)).collect();
    // The first work of each thread is no job: its beginning was not seen.
    assert_eq!(told, [("olda-3001", 199), ("newb-3001", 99)]);
}

/// Three wake-ups come in each frame of a display, at any time within its first 10 ms; some are
/// missing.
#[test]
fn wake_ups_of_a_frame_are_a_burst() {
    let arrivals = inferred("vsync33.txt.gz");
    assert_eq!((arrivals.kind, arrivals.grid), (Kind::Aperiodic, None), "{}", arrivals.why);
    let bursts = arrivals.bursts.expect("they come in frames");
    assert_eq!(bursts.jobs, 3);
    assert!(bursts.period.as_ns().abs_diff(16_666_667) < 10_000 && bursts.within.as_ns() < 12_500_000, "{bursts:?}");
}

#[test]
fn three_jobs_in_a_row_are_a_burst() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/made/burst3-1000-0.csv");
    let releases = parse_releases(&std::fs::read_to_string(file).expect("it is there")).expect("they are releases");
    let inferred = Inferred::of_releases(vec![("burst".to_owned(), releases)]);
    let bursts = inferred.tasks[0].arrivals.bursts.expect("they come in groups");
    assert_eq!((bursts.jobs, bursts.period.as_ns(), bursts.within.as_ns()), (3, 50_000_000, 2_000_000));
    assert_eq!(inferred.tasks[0].arrivals.kind, Kind::Aperiodic);
}
