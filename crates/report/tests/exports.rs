//! Exports: Perfetto, held against its published schema, and CSV.

mod common;

use std::io::Write as _;
use std::process::{Command, Stdio};

use common::trace::{check_trace, flows, meaning};
use common::{Log, as_live, messages, ms, schedule};
use takt_log::{CancelCause, Event, JobKey, Sink};
use takt_model::{Builtin, Component, NodeId, ServerRule, Span, System, TaskId, Time};
use takt_report::{JobCsv, PerfettoWriter, Scene, golden};

fn system_and_log() -> (System, Log) {
    let system = golden::system(2, Builtin::Edf, "a 4 2\nb 4 3\nc 8 3\nlate 8 6 D=3");
    let log = schedule(&system, true, 40);
    (system, log)
}

fn perfetto(scene: &Scene, log: &Log, end: Time) -> Vec<u8> {
    let mut writer = PerfettoWriter::new(Vec::new(), scene).unwrap();
    for (stream, now, event) in log {
        writer.event(*stream, *now, event);
    }
    writer.finish(end).unwrap()
}

fn csv(scene: &Scene, log: &Log, end: Time) -> String {
    let mut writer = JobCsv::new(Vec::new(), scene).unwrap();
    for (stream, now, event) in log {
        writer.event(*stream, *now, event);
    }
    String::from_utf8(writer.finish(end).unwrap()).unwrap()
}

#[test]
fn a_trace_has_tracks_for_cpus_and_tasks_and_its_slices_nest() {
    let (system, log) = system_and_log();
    let begun = check_trace(&perfetto(&Scene::of(&system), &log, ms(40)));
    let runs = log.iter().filter(|(_, _, e)| matches!(e, Event::Start { .. } | Event::Resume { .. })).count() as u64;
    let on_cpus: u64 = begun.iter().filter(|(track, _)| *track >> 48 == 2).map(|(_, count)| count).sum();
    assert_eq!(on_cpus, runs);
    assert_eq!(begun.keys().filter(|track| *track >> 48 == 3).count(), 4);
}

#[test]
fn a_live_trace_has_no_tracks_of_cpus() {
    let (system, log) = system_and_log();
    let mut scene = Scene::of(&system);
    scene.preemptions = false;
    let begun = check_trace(&perfetto(&scene, &as_live(&log), ms(40)));
    assert_eq!(begun.keys().filter(|track| *track >> 48 == 2).count(), 0);
    assert_eq!(begun.keys().filter(|track| *track >> 48 == 3).count(), 4);
}

#[test]
fn a_server_has_a_track_and_a_counter() {
    let mut system = golden::system(1, Builtin::Rm, "a 10 2");
    let component = Component::new("H", NodeId(0), ServerRule::Ptps);
    system.components.push(component);
    let charge = Event::Charge { server: 0, since: ms(1), amount: Span::from_ms(2), idle: false };
    let replenish = Event::Replenish { server: 0, budget: Span::from_ms(2) };
    let log = vec![(0, ms(0), replenish), (0, ms(3), charge), (0, ms(3), Event::Exhaust { server: 0 })];
    let trace = perfetto(&Scene::of(&system), &log, ms(10));
    assert_eq!(check_trace(&trace).into_iter().collect::<Vec<_>>(), [(6 << 48, 1)]);
    let (_, events) = meaning(&trace);
    let names: Vec<(u64, &str)> =
        events.iter().filter(|event| event.1 >> 48 == 6).map(|event| (event.0, event.3.as_str())).collect();
    assert_eq!(names, [(0, "replenished"), (1_000_000, "pays"), (3_000_000, ""), (3_000_000, "used up")]);
}

#[test]
fn the_instant_of_a_cancelled_job_names_the_cause() {
    let system = golden::system(1, Builtin::Rm, "a 10 2");
    let causes = [
        (CancelCause::Omitted, "omitted"),
        (CancelCause::Shed, "shed"),
        (CancelCause::Late, "dropped"),
        (CancelCause::Rejected, "rejected"),
        (CancelCause::Failed, "failed"),
    ];
    let mut log = Log::new();
    for (number, (cause, _)) in (0..).zip(causes) {
        let (job, arrival) = (JobKey { task: TaskId(0), number }, ms(10 * number));
        log.push((0, arrival, Event::Release { job, arrival, parent: None }));
        log.push((0, arrival, Event::Cancel { job, cause }));
    }
    let (_, events) = meaning(&perfetto(&Scene::of(&system), &log, ms(50)));
    let instants =
        events.iter().filter(|(_, track, kind, name, _)| track >> 48 == 3 && *kind == 3 && name != "release");
    let names: Vec<&str> = instants.map(|event| event.3.as_str()).collect();
    assert_eq!(names, causes.map(|(_, name)| name));
}

#[test]
fn events_of_jobs_and_tasks_that_nobody_defined_do_no_harm() {
    let (system, _) = system_and_log();
    let job = |task| JobKey { task: TaskId(task), number: 3 };
    let log: Log = vec![
        (0, ms(1), Event::Start { job: job(0), cpu: 0 }),
        (0, ms(1), Event::Complete { job: job(1), cpu: 7 }),
        (0, ms(2), Event::Release { job: job(99), arrival: ms(2), parent: None }),
        (0, ms(2), Event::Start { job: job(99), cpu: 0 }),
        (0, ms(3), Event::Cancel { job: job(0), cause: CancelCause::Shed }),
    ];
    check_trace(&perfetto(&Scene::of(&system), &log[..2].to_vec(), ms(4)));
    assert_eq!(csv(&Scene::of(&system), &log, ms(4)).lines().count(), 1);
}

/// Decodes with the schema of the Python package `perfetto`. Skips without the package. Set
/// TAKT_PYTHON to an interpreter that has it. With TAKT_DEMAND_PERFETTO set (as in CI) a missing
/// package is a failure.
#[test]
fn the_published_schema_reads_the_trace() {
    let python = std::env::var("TAKT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import perfetto.protos.perfetto.trace.perfetto_trace_pb2"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("TAKT_DEMAND_PERFETTO").is_none(), "{python} has no package perfetto");
        println!("skipped: {python} has no package perfetto (pip install perfetto protobuf)");
        return;
    }
    let (system, log) = system_and_log();
    let shown = decoded(&python, &perfetto(&Scene::of(&system), &log, ms(16)));
    for line in [
        "process local pid 1",
        "track CPU 0 rank 0",
        "track late rank 1003",
        "0 begin a a {'job': 0, 'arrival_ns': 0, 'release_ns': 0, 'deadline_ns': 4000000}",
        "instant late deadline missed {'job': 0}",
        "'outcome': 'late'}",
    ] {
        assert!(shown.contains(line), "no \"{line}\" in\n{shown}");
    }
    let (scene, log) = messages();
    let shown = decoded(&python, &perfetto(&scene, &log, ms(10)));
    for line in [
        "2000000 instant put/0 sends {'task': 'put/0', 'job': 0} flow 10000000000",
        "5000000 instant n1/receive receives {'task': 'put/0', 'job': 0} flow 10000000000",
        "5000000 instant put/1 release {'job': 0} ends 10000000000",
        "8000000 instant put/0 message lost {'task': 'put/0', 'job': 1} flow 10000000001",
    ] {
        assert!(shown.contains(line), "no \"{line}\" in\n{shown}");
    }
}

fn decoded(python: &str, trace: &[u8]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/perfetto_decode.py");
    let mut child = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(trace).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the decoder failed");
    String::from_utf8(output.stdout).unwrap()
}

/// The same without the package: the bytes of flows.
#[test]
fn a_message_has_one_flow_from_send_to_release() {
    let (scene, log) = messages();
    let flows = flows(&perfetto(&scene, &log, ms(10)));
    let first = 1 << 40;
    let wanted = [(2, 47, first), (5, 47, first), (5, 48, first), (6, 47, first + 1), (8, 47, first + 1)];
    assert_eq!(flows[..5], wanted.map(|(at, field, flow)| (ms(at).as_ns(), field, flow)));
}

#[test]
fn csv_has_a_line_for_every_job() {
    let system = golden::system(1, Builtin::Rm, "a 4 2\nb 8 5 D=7");
    let mut scene = Scene::of(&system);
    scene.tasks[1].name = "b, \"the\" slow".to_owned();
    let shown = csv(&scene, &schedule(&system, false, 12), ms(12));
    let expected = "\
node,task,job,arrival_ns,release_ns,start_ns,completion_ns,deadline_ns,response_ns,outcome,earliest_ns
local,a,0,0,0,0,2000000,4000000,2000000,in-time,
local,a,1,4000000,4000000,4000000,6000000,8000000,2000000,in-time,
local,a,2,8000000,8000000,8000000,10000000,12000000,2000000,in-time,
local,\"b, \"\"the\"\" slow\",0,0,0,2000000,11000000,7000000,11000000,late,
local,\"b, \"\"the\"\" slow\",1,8000000,8000000,11000000,,15000000,,unfinished,
";
    assert!(shown == expected, "{shown}");
}

struct Full(usize);
impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0 < bytes.len() {
            return Err(std::io::Error::other("full"));
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_output_that_fails_is_reported_at_the_end() {
    let (system, log) = system_and_log();
    let scene = Scene::of(&system);
    assert!(JobCsv::new(Full(10), &scene).is_err() && PerfettoWriter::new(Full(10), &scene).is_err());
    let mut csv = JobCsv::new(Full(200), &scene).unwrap();
    let mut trace = PerfettoWriter::new(Full(2_000), &scene).unwrap();
    for (stream, now, event) in &log {
        csv.event(*stream, *now, event);
        trace.event(*stream, *now, event);
    }
    assert!(csv.finish(ms(40)).is_err() && trace.finish(ms(40)).is_err());
}
