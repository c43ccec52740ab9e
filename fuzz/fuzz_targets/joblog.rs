//! Arbitrary bytes as a JobLog: nothing panics, statistics stay consistent, and what is read whole is written
//! back to the same events.
//!
//! The first byte selects the use of the rest: as a file; as a file with corrected checksums, so
//! that the fuzzer gets past them; or as the payloads of an otherwise good log.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_log::diff::{DiffOptions, diff};
use takt_log::stats::{Collector, Replications};
use takt_log::{BackEnd, Definitions, Header, KindSet, MAGIC, Reader, Record, Sink as _, Writer};
use takt_model::{Builtin, Span, System, Task};

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    match how % 4 {
        0 => read(rest),
        1 => {
            let mut log = [&MAGIC[..], rest].concat();
            seal(&mut log);
            read(&log);
        }
        2 => {
            let mut log = rest.to_vec();
            seal(&mut log);
            read(&log);
        }
        _ => read(&wrap(rest)),
    }
});

fn read(log: &[u8]) {
    let Ok(mut reader) = Reader::new(log) else { return };
    let (header, definitions) = (reader.header().clone(), reader.definitions().clone());
    let mut records: Vec<Record> = Vec::new();
    let failed = reader.by_ref().map(|record| record.map(|record| records.push(record))).find_map(Result::err);
    assert!(reader.next().is_none());
    let (damage, end) = (reader.damage(), reader.end());
    let _ = (failed.as_ref().map(ToString::to_string), damage.to_string());
    for pair in records.windows(2) {
        assert!(damage.unordered || pair[0].time <= pair[1].time, "{pair:?}");
    }

    let mut reader = Reader::new(log).expect("it was good before");
    if let Ok(stats) = Collector::read(&mut reader) {
        for task in &stats.tasks {
            assert_eq!(task.released, task.completed + task.cancelled + task.rejected + task.unfinished - task.carried);
            assert!(task.missed.is_none_or(|missed| missed <= task.released));
        }
        let mut runs = Replications::new();
        runs.add(&stats).expect("the first run");
        runs.add(&stats).expect("the same System");
        let _ = runs.finish();
        let (mut left, mut right) = (Reader::new(log).expect("good"), Reader::new(log).expect("good"));
        let found = diff(&mut left, &mut right, &DiffOptions::default()).expect("it could be read before");
        assert_eq!(found.total.only_left + found.total.only_right + found.total.differing, 0, "{found:?}");
    }

    if failed.is_none() && !damage.unordered {
        let mut writer = Writer::new(Vec::new(), &header, &definitions).expect("memory takes everything");
        records.iter().for_each(|record| writer.event(record.stream, record.time, &record.event));
        let again = writer.finish(end).expect("the order of time, which was read");
        // A loss at the end of a log comes last, whatever its stream; when written, it is an event
        // like others.
        records.sort_by_key(|record| (record.time, record.stream));
        let mut reader = Reader::new(&again[..]).expect("a good log");
        let back: Vec<Record> = reader.by_ref().map(|record| record.expect("a good log")).collect();
        assert!(back == records && reader.damage().is_none() && reader.end() == end);
    }
}

/// A good head, then the bytes as the payloads of events blocks with good checksums.
fn wrap(rest: &[u8]) -> Vec<u8> {
    let tasks = vec![Task::periodic("a", Span::from_ns(100), Span::from_ns(1))];
    let definitions = Definitions::of(&System::local(2, Builtin::Edf, tasks));
    let header = Header::new(String::new(), None, BackEnd::Sim, KindSet::ALL);
    let mut log = Vec::new();
    let mut writer = Writer::new(&mut log, &header, &definitions).expect("memory takes everything");
    writer.flush().expect("memory takes everything");
    drop(writer);
    let mut first = [0u64; 4];
    for block in rest.chunks(512) {
        let Some((&[stream, records], payload)) = block.split_first_chunk() else { break };
        let stream = stream % 4;
        let mut head = [0u8; 44];
        head[..4].copy_from_slice(b"\xF5TKB");
        head[4] = 1;
        head[8] = stream;
        head[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[16] = records;
        head[20..28].copy_from_slice(&first[usize::from(stream)].to_le_bytes());
        first[usize::from(stream)] += u64::from(records);
        log.extend_from_slice(&head);
        log.extend_from_slice(payload);
    }
    seal(&mut log);
    log
}

/// Makes the checksums right of the blocks that follow one another from the first on.
fn seal(log: &mut [u8]) {
    let mut at = MAGIC.len();
    while let Some(block) = log.get_mut(at..).filter(|block| block.len() >= 44) {
        let length = u32::from_le_bytes([block[12], block[13], block[14], block[15]]) as usize % (1 << 20);
        let length = length.min(block.len() - 44);
        block[..4].copy_from_slice(b"\xF5TKB");
        block[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        let crc = crc32fast::hash(&block[44..44 + length]);
        block[36..40].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&block[..40]);
        block[40..44].copy_from_slice(&crc.to_le_bytes());
        at += 44 + length;
    }
}
