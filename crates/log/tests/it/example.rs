//! The example of docs/reference/joblog.md, byte by byte.

use takt_log::stats::{Collector, Replications, Stats};
use takt_log::{
    BackEnd, Definitions, Event, Header, JobKey, Kind, KindSet, NodeDef, Reader, Record, Sink as _, TaskDef, Writer,
};
use takt_model::{Builtin, NodeId, Span, System, Task, TaskId, Time};

const DOCS: &str = include_str!("../../../../docs/reference/joblog.md");

/// The bytes of the lines `offset: hex hex ... | text` between the marks.
fn documented() -> Vec<u8> {
    let start = DOCS.find("```hex").expect("the example starts");
    let block = DOCS[start + 6..].split("```").next().expect("the example ends");
    let mut bytes = Vec::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (offset, rest) = line.split_once(':').expect("an offset");
        assert_eq!(usize::from_str_radix(offset.trim(), 16), Ok(bytes.len()), "{line}");
        let hex = rest.split('|').next().expect("hex digits");
        bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a byte")));
    }
    bytes
}

#[test]
fn the_documented_example_is_what_is_written_and_read() {
    let mut header = Header::new(
        "takt=1\n".into(),
        Some(7),
        BackEnd::Sim,
        KindSet::of(&[Kind::Release, Kind::Start, Kind::Complete]),
    );
    header.notes.push("hi".into());
    let task = TaskDef {
        name: "a".into(),
        node: NodeId(0),
        period: Some(Span::from_ns(500)),
        deadline: Some(Span::from_ns(300)),
        wcet: None,
        class: None,
    };
    let node = NodeDef { name: "n".into(), cpus: 2, strategy: "edf".into() };
    let definitions = Definitions { nodes: vec![node], tasks: vec![task], ..Definitions::default() };
    let job = JobKey { task: TaskId(0), number: 3 };
    let record = |ns, event| Record { stream: 0, time: Time::from_ns(ns), event };
    let records = [
        record(1_000, Event::Release { job, arrival: Time::from_ns(990), parent: None }),
        record(1_000, Event::Start { job, cpu: 1 }),
        record(1_300, Event::Complete { job, cpu: 1 }),
    ];
    let mut writer = Writer::new(Vec::new(), &header, &definitions).unwrap();
    records.iter().for_each(|record| writer.event(record.stream, record.time, &record.event));
    let written = writer.finish(Time::from_ns(2_000)).unwrap();
    let documented = documented();
    assert!(written == documented, "this is written:\n{}", dump(&written));
    let mut reader = Reader::new(&documented[..]).unwrap();
    assert_eq!((reader.header(), reader.definitions()), (&header, &definitions));
    let back: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(back, records);
    assert!(reader.end() == Time::from_ns(2_000) && reader.damage().is_none());
}

fn dump(bytes: &[u8]) -> String {
    let line = |(i, line): (usize, &[u8])| {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:04x}: {}\n", i * 16, hex.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

/// A run of the System that docs/reference/statistics.md shows: two jobs with these executions.
fn video(executions_ms: [u64; 2]) -> Stats {
    let task = Task::periodic("video", Span::from_ms(40), Span::from_ms(12));
    let definitions = Definitions::of(&System::local(1, Builtin::Edf, vec![task]));
    let mut collector = Collector::new(&definitions, KindSet::JOBS);
    for (number, execution) in (0..).zip(executions_ms) {
        let job = JobKey { task: TaskId(0), number };
        let arrival = Time::ZERO + Span::from_ms(40 * number);
        collector.event(0, arrival, &Event::Release { job, arrival, parent: None });
        collector.event(0, arrival, &Event::Start { job, cpu: 0 });
        collector.event(0, arrival + Span::from_ms(execution), &Event::Complete { job, cpu: 0 });
    }
    collector.finish(Time::ZERO + Span::from_ms(80))
}

#[test]
fn the_documented_statistics_are_what_is_made() {
    let mut examples = include_str!("../../../../docs/reference/statistics.md").split("```json").skip(1).map(|part| {
        let text = part.split("```").next().expect("the example ends");
        serde_json::from_str::<serde_json::Value>(text).expect("JSON")
    });
    let one = video([12, 12]);
    let json = serde_json::to_value(&one).unwrap();
    assert_eq!(examples.next(), Some(json));
    let mut runs = Replications::new();
    runs.add(&one).unwrap();
    runs.add(&video([12, 10])).unwrap();
    runs.add(&video([8, 9])).unwrap();
    let merged = serde_json::to_value(runs.finish().unwrap()).unwrap();
    let rounded = |mut value: serde_json::Value| {
        for key in ["mean", "low", "high"] {
            let number = &mut value["confidence"][0]["miss_ratio"][key];
            *number = ((number.as_f64().unwrap() * 1e6).round() / 1e6).into();
        }
        value
    };
    let text = merged.to_string();
    assert_eq!(examples.next().map(rounded), Some(rounded(merged)), "this is made: {text}");
}
