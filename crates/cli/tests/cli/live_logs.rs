//! Reports of the logs of live nodes, made from simulated ones.

use std::fs;

use serde_json::{Value, json};
use takt_log::{BackEnd, ClockDef, Definition, Event, Header, Reader, Record, Sink, Writer};
use takt_model::{Lateness, NodeId, Span, Time};

use super::folder::Folder;

const TWO: &str = r#"
takt = 1
name = "two"
[[node]]
name = "n0"
receive = { period = "10ms", wcet = "1ms" }
send = { period = "10ms", wcet = "1ms" }
[[node]]
name = "n1"
receive = { period = "10ms", wcet = "1ms" }
send = { period = "10ms", wcet = "1ms" }
[[flow]]
name = "put"
path = ["n0", "n1"]
period = "50ms"
send-gap = "10ms"
wcet = "1ms"
deadline = "200ms"
size = "120B"
[[network]]
delay = ["0us", "5ms"]
"#;

/// A simulation as two nodes would log it. The events of the second node come `late`. It knows the clock of the first
/// node as given.
fn split(folder: &Folder, late: Span, clock: Option<(i64, i64)>) {
    split_by(folder, BackEnd::Run, clock, |stream, _| if stream == 1 { late } else { Span::ZERO });
}

/// The same: `late` says by how much an event comes later, by its stream and the task whose job starts or completes.
fn split_by(folder: &Folder, back_end: BackEnd, clock: Option<(i64, i64)>, late: impl Fn(u32, &str) -> Span) {
    fs::write(folder.path("two.toml"), TWO).expect("a file");
    assert_eq!(folder.takt(&["sim", "two.toml", "--for", "1s", "-o", "sim.takt"]).status, 0);
    let log = fs::read(folder.path("sim.takt")).expect("a log");
    let mut reader = Reader::new(&log[..]).expect("a log");
    let header = Header { back_end, ..reader.header().clone() };
    let definitions = reader.definitions().clone();
    let mut writers = [0, 1].map(|node| {
        let definitions = definitions.clone().about(Some(NodeId(node)));
        Writer::new(Vec::new(), &header, &definitions).expect("a log")
    });
    let name = |event: &Event| match event {
        Event::Start { job, .. } | Event::Complete { job, .. } => definitions.tasks[job.task.index()].name.as_str(),
        _ => "",
    };
    let shifted = |record: Record| Record {
        time: record.time.saturating_add(late(record.stream, name(&record.event))),
        ..record
    };
    let mut records: Vec<Record> = reader.by_ref().map(|record| shifted(record.expect("a record"))).collect();
    // Stable: events of one instant keep their order.
    records.sort_by_key(|record| record.time);
    let end = records.last().map_or(Time::ZERO, |record| record.time).max(reader.end());
    for record in records {
        writers[record.stream as usize].event(record.stream, record.time, &record.event);
    }
    if let Some((low, high)) = clock {
        let (offset_min, offset_max) = (Lateness::from_ns(low), Lateness::from_ns(high));
        let clock = ClockDef { stream: 0, from: Time::ZERO, offset_min, offset_max };
        writers[1].define(1, end, &Definition::Clock(clock));
    }
    for (node, writer) in writers.into_iter().enumerate() {
        fs::write(folder.path(&format!("n{node}.takt")), writer.finish(end).expect("a log")).expect("a file");
    }
}

fn hops(folder: &Folder, logs: &[&str]) -> Vec<Value> {
    let report = [&["report", "two.toml"][..], logs, &["-o", "page.html", "--json"]].concat();
    let ran = folder.takt(&report);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    ran.json()["hops"].as_array().cloned().expect("hops of a live run")
}

const BOTH: [&str; 2] = ["n0.takt", "n1.takt"];

#[test]
fn hops_that_keep_to_their_bounds_are_shown_beside_them() {
    let folder = Folder::new();
    split(&folder, Span::ZERO, Some((0, 0)));
    // The order of logs is of no matter.
    assert_eq!(hops(&folder, &BOTH), hops(&folder, &["n1.takt", "n0.takt"]));
    let found = hops(&folder, &BOTH);
    let [first, second] = &found[..] else { panic!("two hops") };
    assert_eq!((&first["task"], &first["node"]), (&json!("put/0"), &json!("n0")));
    assert_eq!((&first["messages"], &first["delay_max_ns"]), (&Value::Null, &Value::Null));
    for hop in [first, second] {
        assert_eq!((&hop["above"], &hop["undecided"]), (&json!([]), &json!([])), "{hop}");
        assert!(hop["response_max_ns"].as_u64() <= hop["bound_ns"].as_u64(), "{hop}");
        assert!(hop["response_max_ns"].is_u64(), "{hop}");
    }
    assert!(second["messages"].as_u64().is_some_and(|k| k >= 1), "{second}");
    assert!(second["messages"].as_u64() <= second["messages_bound"].as_u64(), "{second}");
    let delays = second["delay_max_ns"].as_array().expect("a delay");
    assert_eq!(delays[0], delays[1]);
    assert!(delays[0].as_u64().is_some_and(|delay| delay <= 5_000_000), "{second}");
    assert_eq!(second["delay_bound_ns"], 5_000_000);
    let page = fs::read_to_string(folder.path("page.html")).expect("a page");
    assert!(page.contains("Measured on the nodes"), "the page has the table");
}

#[test]
fn what_is_above_its_bound_is_marked_with_the_disturbance() {
    let folder = Folder::new();
    split(&folder, Span::from_ms(20), Some((0, 0)));
    let second = hops(&folder, &BOTH).remove(1);
    assert!(second["above"].as_array().is_some_and(|above| above.contains(&json!("delay"))), "{second}");
    let told = second["disturbances"].to_string();
    assert!(told.contains("a message from n0 took"), "{told}");
    assert!(told.contains("a receiving job of n1 began 20"), "{told}");
    let text = folder.takt(&["report", "two.toml", "n0.takt", "n1.takt", "-o", "page.html"]).text();
    let sentence = text.lines().find(|line| line.starts_with("put/1: ")).expect("a sentence");
    assert!(sentence.contains("above the bound: a message from n0"), "{sentence}");
}

/// Jobs of the second hop that begin so late are above the bound, which is at most the deadline.
fn waits(task: &str) -> Span {
    if task == "put/1" { Span::from_ms(203) } else { Span::ZERO }
}

#[test]
fn what_no_disturbance_explains_is_reported_so() {
    let folder = Folder::new();
    // No table job is late, and no job is long.
    split_by(&folder, BackEnd::Run, Some((0, 0)), |_, task| waits(task));
    let found = hops(&folder, &BOTH);
    let [first, second] = &found[..] else { panic!("two hops") };
    assert_eq!((&first["above"], &first["disturbances"]), (&json!([]), &json!([])), "{first}");
    assert_eq!((&second["above"], &second["disturbances"]), (&json!(["response"]), &json!([])), "{second}");
    let text = folder.takt(&["report", "two.toml", "n0.takt", "n1.takt", "-o", "page.html"]).text();
    let sentence = text.lines().find(|line| line.starts_with("put/1: ")).expect("a sentence");
    assert_eq!(sentence, "put/1: response above the bound: nothing that the logs show explains it");
    let page = fs::read_to_string(folder.path("page.html")).expect("a page");
    assert!(page.contains(sentence), "the page says it, too");
}

#[test]
fn disturbances_of_the_node_before_and_of_a_best_effort_run_are_named() {
    let folder = Folder::new();
    // The sending job waits for the receiving job, which takes 1 ms. That alone is no disturbance.
    let sends_late = |task: &str| if task == "n0/send" { Span::from_ms(3) } else { waits(task) };
    split_by(&folder, BackEnd::Run, Some((0, 0)), |_, task| sends_late(task));
    let second = hops(&folder, &BOTH).remove(1);
    let named = second["disturbances"].as_array().expect("disturbances");
    assert_eq!(named.len(), 1, "{second}");
    assert!(named[0].as_str().is_some_and(|named| named.starts_with("a sending job of n0 began 4")), "{second}");
    split_by(&folder, BackEnd::RunBestEffort, Some((0, 0)), |_, task| waits(task));
    let second = hops(&folder, &BOTH).remove(1);
    assert_eq!(
        second["disturbances"],
        json!(["the run was best effort, so other threads could delay its threads"]),
        "{second}"
    );
}

#[test]
fn clocks_that_are_not_known_well_decide_nothing() {
    let folder = Folder::new();
    split(&folder, Span::from_ms(20), Some((0, 25_000_000)));
    let second = hops(&folder, &BOTH).remove(1);
    assert!(second["undecided"].as_array().is_some_and(|undecided| undecided.contains(&json!("delay"))), "{second}");
    assert!(!second["above"].to_string().contains("delay"), "{second}");
    assert_eq!(second["response_error_ns"], 25_000_000);
    let text = folder.takt(&["report", "two.toml", "n0.takt", "n1.takt", "-o", "page.html"]).text();
    assert!(text.contains("delay?") && text.contains("not known well enough to tell"), "{text}");
    // Nothing is known of the clocks.
    split(&folder, Span::from_ms(20), None);
    let found = hops(&folder, &BOTH);
    let [first, second] = &found[..] else { panic!("two hops") };
    assert!(first["response_max_ns"].is_u64(), "{first}");
    assert_eq!((&second["response_max_ns"], &second["delay_max_ns"]), (&Value::Null, &Value::Null));
    assert!(second["messages"].is_u64(), "{second}");
}

#[test]
fn one_log_tells_of_its_node_and_two_of_one_node_are_refused() {
    let folder = Folder::new();
    split(&folder, Span::ZERO, Some((0, 0)));
    let found = hops(&folder, &["n1.takt"]);
    let [second] = &found[..] else { panic!("one hop") };
    assert!(second["messages"].is_u64() && second["response_max_ns"].is_u64(), "{second}");
    assert_eq!(second["delay_max_ns"], Value::Null);
    for (logs, why) in [
        (["n1.takt", "n1.takt"], "n1.takt is another log of node \"n1\""),
        (["n0.takt", "sim.takt"], "sim.takt is not the log of one node of a live run"),
    ] {
        let ran = folder.takt(&[&["report", "two.toml"][..], &logs[..], &["-o", "page.html"]].concat());
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}
