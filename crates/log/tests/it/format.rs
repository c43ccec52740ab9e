//! A written log is read back, and input other than logs is refused.

use proptest::prelude::*;
use takt_log::{
    BackEnd, ChainDef, ClockDef, CpuDef, Definition, Definitions, Event, Header, InterruptDef, InterruptKind, JobKey,
    KindSet, ModeDef, NodeDef, ReadError, Reader, ServerDef, Sink, TaskDef, ThreadClass, ThreadDef, ThreadKind,
    WriteError, Writer,
};
use takt_model::{Lateness, NodeId, Span, TaskId, Time};

use crate::random::{Record, definitions, log, records};

fn read(log: &[u8]) -> (Vec<Record>, Time) {
    let mut reader = Reader::new(log).unwrap();
    let mut back = Vec::new();
    let end = reader.copy_to(&mut back).unwrap();
    assert!(reader.damage().is_none(), "{}", reader.damage());
    assert!(!reader.damage().unordered);
    (back, end)
}

proptest! {
    #[test]
    fn records_are_read_back_in_the_order_of_time(records in records(3, 400)) {
        let (back, end) = read(&log(&records, Time::ZERO));
        prop_assert_eq!(&back, &records);
        prop_assert_eq!(end, records.last().map_or(Time::ZERO, |(_, time, _)| *time));
    }

    /// Long enough for many groups of blocks.
    #[test]
    fn groups_of_blocks_join_seamlessly(records in records(5, 60), gap in 1u64..1_000_000) {
        let mut all = Vec::new();
        let span = records.last().map_or(0, |(_, time, _)| time.as_ns()) % (1 << 40) + gap;
        for round in 0..600 {
            let at = |time: Time| Time::from_ns(round * span + time.as_ns() % span);
            let shift = |(stream, time, event): &Record| (*stream, at(*time), *event);
            all.extend(records.iter().map(shift));
        }
        all.sort_by_key(|(stream, time, _)| (*time, *stream));
        let (back, end) = read(&log(&all, Time::MAX));
        prop_assert!(back == all);
        prop_assert_eq!(end, Time::MAX);
    }
}

fn header() -> Header {
    let mut header =
        Header::new("takt = 1\nname = \"ü\"\n".into(), Some(u64::MAX), BackEnd::RunBestEffort, KindSet::JOBS);
    header.notes = vec!["ran under SCHED_OTHER".into(), String::new()];
    header
}

#[test]
fn the_head_says_what_it_was_given() {
    let node = NodeDef { name: "n".into(), cpus: 4, strategy: "rm".into() };
    let task = TaskDef {
        name: "a".into(),
        node: NodeId(0),
        period: Some(Span::MAX),
        deadline: None,
        wcet: Some(Span::ZERO),
        class: Some(ThreadClass::Other),
    };
    let server = ServerDef {
        name: "s".into(),
        node: NodeId(0),
        rule: "cbs".into(),
        period: None,
        budget: Some(Span::from_ms(1)),
    };
    let definitions = Definitions {
        nodes: vec![node],
        cpus: vec![CpuDef { node: NodeId(0), cpu: 0, kernel_cpu: 3 }],
        tasks: vec![task],
        chains: vec![ChainDef { name: "a -> b".into(), sink: TaskId(0) }],
        servers: vec![server],
        modes: vec![ModeDef { node: NodeId(0), strategy: "edf".into() }],
        interrupts: vec![interrupt("24 eth0", InterruptKind::Hard), interrupt("NET_RX", InterruptKind::Soft)],
        threads: vec![ThreadDef { name: "make".into(), node: NodeId(0), kind: ThreadKind::RealTime }],
        clocks: vec![ClockDef {
            stream: 1,
            from: Time::MAX,
            offset_min: Lateness::from_ns(i64::MIN),
            offset_max: Lateness::from_ns(i64::MAX),
        }],
        only: Some(NodeId(0)),
    };
    let log = Writer::new(Vec::new(), &header(), &definitions).unwrap().finish(Time::from_ns(5)).unwrap();
    let mut reader = Reader::new(&log[..]).unwrap();
    assert_eq!((reader.header(), reader.definitions()), (&header(), &definitions));
    assert!(reader.next().is_none());
    assert_eq!(reader.end(), Time::from_ns(5));
}

fn interrupt(name: &str, kind: InterruptKind) -> InterruptDef {
    InterruptDef { name: name.into(), node: NodeId(0), kind }
}

#[derive(Default)]
struct Everything(Vec<(u32, Time, Result<Event, Definition>)>);

impl Sink for Everything {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.0.push((stream, now, Ok(*event)));
    }
    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.0.push((stream, now, Err(definition.clone())));
    }
}

#[test]
fn sinks_get_late_definitions_in_their_places() {
    let nic = Definition::Interrupt(0, interrupt("24 eth0", InterruptKind::Hard));
    let rx = Definition::Interrupt(1, interrupt("NET_RX", InterruptKind::Soft));
    let job = JobKey { task: TaskId(0), number: 0 };
    let at = Time::from_ns;
    let all = vec![
        (0, at(1), Err(nic.clone())),
        (0, at(5), Ok(Event::IrqEnter { irq: 0, cpu: 1 })),
        (0, at(6), Ok(Event::IrqExit { irq: 0, cpu: 1 })),
        (1, at(6), Err(rx)),
        (1, at(7), Ok(Event::Window { job, earliest: at(2) })),
        (1, at(7), Ok(Event::Release { job, arrival: at(7), parent: None })),
    ];
    let mut twice = (Writer::new(Vec::new(), &header(), &Definitions::default()).unwrap(), Everything::default());
    for (stream, now, what) in &all {
        match what {
            Ok(event) => twice.event(*stream, *now, event),
            Err(definition) => twice.define(*stream, *now, definition),
        }
    }
    assert_eq!(twice.1.0, all);
    let log = twice.0.finish(at(9)).unwrap();
    let mut reader = Reader::new(&log[..]).unwrap();
    let mut back = Everything::default();
    reader.copy_to(&mut back).unwrap();
    assert_eq!(back.0, all);
    let mut part = (Reader::new(&log[..]).unwrap(), Everything::default());
    assert!(!part.0.copy_while(&mut part.1, |sink| sink.0.len() < 3).unwrap());
    assert_eq!(part.1.0, all[..3]);
    assert!(part.0.copy_while(&mut part.1, |_| true).unwrap());
    assert_eq!(part.1.0, all);
    let names = [0, 1, 2].map(|irq| reader.definitions().interrupt_name(irq));
    assert_eq!(names, ["24 eth0", "NET_RX", "interrupt 2"]);
    assert_eq!(reader.definitions().interrupts[1].kind.name(), "soft");
    let gap = Definitions::default()
        .apply(nic.clone())
        .and_then(|()| Definitions::default().apply(Definition::Interrupt(1, interrupt("x", InterruptKind::Hard))));
    assert_eq!(
        gap.unwrap_err().to_string(),
        "interrupt 1 is defined before interrupt 0; ids are given in order, without gaps"
    );
}

#[test]
fn definitions_come_late_and_change() {
    let task = |name: &str| TaskDef {
        name: name.into(),
        node: NodeId(0),
        period: None,
        deadline: None,
        wcet: None,
        class: None,
    };
    let mut writer = Writer::new(Vec::new(), &header(), &Definitions::default()).unwrap();
    let wake = |task| Event::Wake { job: JobKey { task: TaskId(task), number: 7 } };
    let long = "x".repeat(5_000);
    writer.define(3, Time::from_ns(1), &Definition::Task(TaskId(0), task("a")));
    writer.event(3, Time::from_ns(2), &wake(0));
    writer.define(3, Time::from_ns(2), &Definition::Task(TaskId(1), task("b")));
    writer.define(3, Time::from_ns(3), &Definition::Task(TaskId(0), task(&long)));
    writer.event(3, Time::from_ns(3), &wake(1));
    let log = writer.finish(Time::from_ns(9)).unwrap();
    let mut reader = Reader::new(&log[..]).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().event, wake(0));
    assert_eq!((reader.definitions().task_name(TaskId(0)), reader.revision()), ("a".into(), 1));
    assert_eq!(reader.next().unwrap().unwrap().event, wake(1));
    assert_eq!((reader.definitions().task_name(TaskId(0)), reader.revision()), (long, 3));
    assert!(reader.next().is_none() && reader.damage().is_none());
}

#[test]
fn a_definition_that_turns_time_back_is_malformed() {
    let mut writer = Writer::new(Vec::new(), &header(), &Definitions::default()).unwrap();
    writer.event(0, Time::from_ns(5), &Event::Lost { count: 1 });
    let node = Definition::Node(NodeId(0), NodeDef { name: "n".into(), cpus: 1, strategy: "edf".into() });
    writer.define(0, Time::from_ns(5 + (1 << 60)), &node);
    let mut log = writer.finish(Time::MAX).unwrap();
    // The distance of 2^60 becomes 2^64 - 1, so that the sum wraps.
    let at = log.windows(8).position(|bytes| bytes == (1u64 << 60).to_le_bytes()).unwrap();
    log[at..at + 8].fill(0xff);
    let block = log.windows(5).position(|bytes| bytes == *b"\xF5TKB\x01").unwrap();
    reseal(&mut log, block);
    let records: Vec<_> = Reader::new(&log[..]).unwrap().collect();
    assert!(matches!(records[..], [Ok(_), Err(ReadError::Malformed { what: "definition", .. })]), "{records:?}");
}

#[test]
fn the_same_events_give_the_same_bytes() {
    let records: Vec<Record> =
        (0..10_000u64).map(|i| ((i % 3) as u32, Time::from_ns(i * 977), Event::Lost { count: i })).collect();
    assert_eq!(log(&records, Time::MAX), log(&records, Time::MAX));
}

#[test]
fn streams_that_come_one_after_another_are_whole_and_said_to_be_unordered() {
    let stream =
        |stream| (0..20_000u64).map(move |i| (stream, Time::from_ns(i * 1000), Event::Lost { count: 1 << 40 }));
    let records: Vec<Record> = stream(0).chain(stream(1)).collect();
    let log = log(&records, Time::ZERO);
    let mut reader = Reader::new(&log[..]).unwrap();
    let mut back = Vec::new();
    reader.copy_to(&mut back).unwrap();
    assert!(reader.damage().is_none() && reader.damage().unordered);
    back.sort_by_key(|(stream, time, _)| (*stream, *time));
    assert!(back == records);
}

#[test]
fn a_file_that_is_no_log_is_refused_with_a_reason() {
    let error = |bytes: &[u8]| Reader::new(bytes).err().unwrap().to_string();
    let advice = "make one with \"takt sim FILE -o LOG\" or \"takt run FILE -o LOG\", or from a recording \
                  with \"takt observe FILE -o LOG\"";
    assert_eq!(
        error(b"takt = 1\n[[task]]\n"),
        format!("this is not a takt log (it is text; a System file?); {advice}")
    );
    assert_eq!(error(b""), format!("this is not a takt log (it is empty); {advice}"));
    assert_eq!(
        error(b"\x7fELF\x02\x01\x01\0\0"),
        format!("this is not a takt log (its first bytes are others); {advice}")
    );
    let damaged =
        "the log's head is damaged, its events cannot be interpreted: record it again, or take an undamaged copy";
    assert_eq!(error(&takt_log::MAGIC), damaged);
    let log = log(&[], Time::ZERO);
    assert_eq!(error(&log[..log.len() / 2]), damaged);
}

#[test]
fn a_log_of_another_version_is_refused_with_a_reason() {
    let whole = log(&[(0, Time::ZERO, Event::Lost { count: 1 })], Time::ZERO);
    // The head's payload starts with the version.
    let mut newer = whole.clone();
    newer[8 + 44] = 2;
    reseal(&mut newer, 8);
    let error = Reader::new(&newer[..]).err().unwrap().to_string();
    assert_eq!(error, "the log has format version 2, this takt reads version 1; use the takt that made it");
    let second = 8 + 44 + u32::from_le_bytes(whole[20..24].try_into().unwrap()) as usize;
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut log = whole.clone();
        change(&mut log);
        reseal(&mut log, second);
        let mut reader = Reader::new(&log[..]).unwrap();
        let error = reader.find_map(Result::err).unwrap().to_string();
        assert!(reader.next().is_none(), "errors are final");
        error.replace(&second.to_string(), "N")
    };
    assert_eq!(
        refused(&|log| log[second + 44] = 28),
        "the log has a record of kind 28 at byte N, which this takt does not know; use the version that made the log"
    );
    assert_eq!(
        refused(&|log| log[second + 4] = 9),
        "the log has a block of kind 9 at byte N, which this takt does not know; use the version that made the log"
    );
    assert_eq!(
        refused(&|log| log[second + 16] = 3),
        "the log has a bad record in the block at byte N; the program that wrote it is at fault"
    );
}

/// Additions of a later takt to this version are reported by name, not as damage.
#[test]
fn later_additions_to_this_version_are_refused_by_name() {
    let whole = log(&[], Time::ZERO);
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut log = whole.clone();
        change(&mut log);
        reseal(&mut log, 8);
        Reader::new(&log[..]).err().unwrap().to_string()
    };
    let kinds = 8 + 44 + 2;
    assert_eq!(whole[kinds..kinds + 4], [0xff, 0xff, 0xff, 0x3f]);
    assert_eq!(
        refused(&|log| log[kinds + 3] = 0x7f),
        "the log has events of kind 27 at byte 8, which this takt does not know; use the version that made the log"
    );
    // The first definition is node 0's: its length, its type, its number, its name.
    let node = whole.windows(5).position(|bytes| bytes == b"\0\0\x02n0").unwrap();
    assert_eq!(
        refused(&|log| log[node] = 10),
        "the log has a definition of type 10 at byte 8, which this takt does not know; use the version that made the \
         log"
    );

    let mut writer = Writer::new(Vec::new(), &header(), &Definitions::default()).unwrap();
    writer.define(0, Time::ZERO, &Definition::Interrupt(0, interrupt("nic", InterruptKind::Soft)));
    let mut log = writer.finish(Time::ZERO).unwrap();
    let block = log.windows(5).position(|bytes| bytes == *b"\xF5TKB\x01").unwrap();
    let late = log.windows(6).position(|bytes| bytes == b"\x08\0\x03nic").unwrap();
    log[late] = 10;
    reseal(&mut log, block);
    let error = Reader::new(&log[..]).unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().starts_with("the log has a definition of type 10 at byte "), "{error}");
    log[late] = 8;
    log[late + 7] = 2;
    reseal(&mut log, block);
    let error = Reader::new(&log[..]).unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().starts_with("the log has a bad definition in the block"), "{error}");
}

/// Makes the checksums of the block at `at` right again.
pub(crate) fn reseal(log: &mut [u8], at: usize) {
    let length = u32::from_le_bytes(log[at + 12..at + 16].try_into().unwrap()) as usize;
    let payload = crc32fast::hash(&log[at + 44..at + 44 + length]);
    log[at + 36..at + 40].copy_from_slice(&payload.to_le_bytes());
    let head = crc32fast::hash(&log[at..at + 40]);
    log[at + 40..at + 44].copy_from_slice(&head.to_le_bytes());
}

#[test]
fn a_writer_keeps_its_first_error() {
    let event = Event::Lost { count: 0 };
    let mut writer = Writer::new(Vec::new(), &header(), &definitions(&[])).unwrap();
    writer.event(1, Time::from_ns(7), &event);
    writer.event(0, Time::from_ns(3), &event);
    assert!(writer.flush().is_ok());
    writer.event(1, Time::from_ns(6), &event);
    writer.event(99_999, Time::from_ns(9), &event);
    assert!(writer.error().is_some());
    let error = writer.finish(Time::ZERO).unwrap_err();
    let text = "an event of stream 1 at 6ns came after one at 7ns; events of a stream come in order of time";
    assert_eq!(error.to_string(), text);

    let mut writer = Writer::new(Vec::new(), &header(), &definitions(&[])).unwrap();
    writer.event(65_536, Time::ZERO, &event);
    assert!(matches!(writer.finish(Time::ZERO), Err(WriteError::Stream { stream: 65_536 })));

    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or_else(|| std::io::Error::other("no space left"))?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Full(100_000), &header(), &definitions(&[])).unwrap();
    (0..1_000_000).for_each(|i| writer.event(0, Time::from_ns(i), &event));
    assert_eq!(writer.finish(Time::ZERO).err().unwrap().to_string(), "cannot write the log: no space left");
}

#[test]
fn an_unfinished_log_that_was_flushed_has_all_events() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header(), &definitions(&[])).unwrap();
    let events: Vec<Record> = (0..100).map(|i| (0, Time::from_ns(i), Event::Lost { count: i })).collect();
    events.iter().for_each(|(stream, time, event)| writer.event(*stream, *time, event));
    writer.flush().unwrap();
    drop(writer);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut back = Vec::new();
    assert_eq!(reader.copy_to(&mut back).unwrap(), Time::from_ns(99));
    assert_eq!(back, events);
    assert!(reader.damage().no_end);
    assert_eq!(reader.damage().to_string(), "no end is recorded (interrupted?), so the last event is taken for it");
}
