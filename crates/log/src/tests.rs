use takt_model::{Builtin, Span, System, Task, TaskId, Time};

use super::*;

fn defs() -> Definitions {
    let task = |name| Task::periodic(name, Span::from_ms(10), Span::from_ms(1));
    Definitions::of(&System::local(2, Builtin::Edf, vec![task("a"), task("b")]))
}

#[test]
fn smoke() {
    let defs = defs();
    let header = Header::new("takt = 1".into(), Some(7), BackEnd::Sim, KindSet::JOBS);
    let mut writer = Writer::new(Vec::new(), &header, &defs).unwrap();
    let mut events = Vec::new();
    for i in 0..100_000u64 {
        for stream in 0..3u32 {
            let job = JobKey { task: TaskId(stream), number: i };
            events.push((
                stream,
                Time::from_ns(i * 1000),
                Event::Release { job, arrival: Time::from_ns(i * 1000), parent: None },
            ));
        }
        for stream in 0..3u32 {
            let job = JobKey { task: TaskId(stream), number: i };
            events.push((stream, Time::from_ns(i * 1000 + 10), Event::Complete { job, cpu: 1 }));
        }
    }
    for (stream, time, event) in &events {
        writer.event(*stream, *time, event);
    }
    let bytes = writer.finish(Time::from_ns(10)).unwrap();
    eprintln!("{} bytes", bytes.len());
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(reader.header(), &header);
    assert_eq!(reader.definitions(), &defs);
    let mut back = Vec::new();
    let end = reader.copy_to(&mut back).unwrap();
    assert_eq!(end, Time::from_ns(99_999_010));
    assert_eq!(back.len(), events.len());
    assert!(back == events);
    assert!(reader.damage().is_none(), "{}", reader.damage());
}
