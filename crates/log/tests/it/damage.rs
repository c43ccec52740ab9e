//! Damage of every kind: nothing before it is lost, nothing panics, what is lost is told.

use proptest::prelude::*;
use takt_log::{Damage, Event, JobKey, Reader, Sink as _};
use takt_model::{TaskId, Time};

use crate::format::reseal;
use crate::random::{Record, log, records};

/// Three streams in several groups of small blocks, and where the blocks start.
fn sample() -> (Vec<Record>, Vec<u8>, Vec<usize>) {
    use takt_log::{BackEnd, Header, KindSet, Writer};
    let header = Header::new("takt = 1\n".into(), Some(1), BackEnd::Sim, KindSet::ALL);
    let mut writer = Writer::new(Vec::new(), &header, &crate::random::definitions(&[None; 3])).unwrap();
    let mut all = Vec::new();
    for i in 0..60u64 {
        let job = JobKey { task: TaskId(i as u32 % 3), number: i / 3 };
        let time = Time::from_ns(i * 1_000);
        let record = (i as u32 % 3, time, Event::Release { job, arrival: time, parent: None });
        writer.event(record.0, record.1, &record.2);
        all.push(record);
        if i % 12 == 11 {
            writer.flush().unwrap();
        }
    }
    let bytes = writer.finish(Time::from_ns(70_000)).unwrap();
    let mut starts = Vec::new();
    let mut at = 8;
    while at < bytes.len() {
        starts.push(at);
        at += 44 + u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
    }
    assert_eq!((at, starts.len()), (bytes.len(), 1 + 5 * 3 + 1));
    (all, bytes, starts)
}

/// All events but the reader's own remarks, those remarks' sum, and the damage.
fn read(bytes: &[u8]) -> Option<(Vec<Record>, u64, Damage)> {
    let mut reader = Reader::new(bytes).ok()?;
    let (mut back, mut lost) = (Vec::new(), 0);
    for record in reader.by_ref() {
        let record = record.unwrap();
        match record.event {
            Event::Lost { count } => lost += count,
            event => back.push((record.stream, record.time, event)),
        }
    }
    Some((back, lost, reader.damage()))
}

/// The records whose blocks (of four each, three to a group) `good` accepts.
fn expected(all: &[Record], good: impl Fn(usize) -> bool) -> Vec<Record> {
    let block = |i: usize| 1 + i / 12 * 3 + i % 3;
    all.iter().enumerate().filter(|(i, _)| good(block(*i))).map(|(_, record)| *record).collect()
}

#[test]
fn truncation_at_every_byte_loses_nothing_that_stands_before() {
    let (all, bytes, starts) = sample();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([bytes.len()]).collect();
    for cut in 0..bytes.len() {
        let Some((back, lost, damage)) = read(&bytes[..cut]) else {
            assert!(cut < ends[0], "{cut}");
            continue;
        };
        assert_eq!(back, expected(&all, |block| ends[block] <= cut), "{cut}");
        let rest = cut - ends.iter().filter(|end| **end <= cut).max().unwrap();
        assert_eq!((damage.bytes, lost, damage.no_end), (rest as u64, 0, true), "{cut}");
    }
}

#[test]
fn every_flipped_bit_is_found_and_costs_one_block() {
    let (all, bytes, starts) = sample();
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let hit = starts.iter().rposition(|start| *start <= bit / 8);
        let Some((mut back, lost, damage)) = read(&bad) else {
            assert!(hit.is_none_or(|block| block == 0), "bit {bit}");
            continue;
        };
        let hit = hit.unwrap();
        assert!(hit > 0 && !damage.is_none(), "bit {bit}");
        // A group with a hole in it is not merged as one.
        back.sort_by_key(|(stream, time, _)| (*time, *stream));
        assert_eq!(back, expected(&all, |block| block != hit), "bit {bit}");
        let is_end = hit == starts.len() - 1;
        assert_eq!((lost, damage.no_end), (if is_end { 0 } else { 4 }, is_end), "bit {bit}");
        let length = starts.get(hit + 1).unwrap_or(&bytes.len()) - starts[hit];
        assert_eq!((damage.bytes, damage.first, damage.places), (length as u64, Some(starts[hit] as u64), 1));
    }
}

#[test]
fn a_reader_finds_the_next_block_after_missing_and_added_bytes() {
    let (all, bytes, starts) = sample();
    let mut short = bytes.clone();
    short.drain(starts[4] + 50..starts[4] + 53);
    let (back, lost, damage) = read(&short).unwrap();
    assert_eq!((back, lost), (expected(&all, |block| block != 4), 4));
    let bytes_of_block = starts[5] - starts[4] - 3;
    let text = format!("{bytes_of_block} bytes belong to no whole block, at byte {}; 4 records are lost", starts[4]);
    assert_eq!(damage.to_string(), text);
    let mut long = bytes.clone();
    long.splice(starts[7]..starts[7], *b"\xF5TKB\xF5TKBgarbage");
    let (back, lost, damage) = read(&long).unwrap();
    assert_eq!((back, lost, damage.bytes, damage.places), (all, 0, 15, 1));
}

#[test]
fn a_repeated_or_missing_block_is_told() {
    let (all, bytes, starts) = sample();
    let mut twice = bytes.clone();
    twice.splice(starts[7]..starts[7], bytes[starts[4]..starts[7]].iter().copied());
    let (back, lost, damage) = read(&twice).unwrap();
    assert_eq!((back, lost, damage.bytes), (all.clone(), 0, (starts[7] - starts[4]) as u64));
    let last_group = starts[13]..starts[16];
    let mut without = bytes.clone();
    without.drain(last_group);
    let (back, lost, damage) = read(&without).unwrap();
    assert_eq!((back, lost), (expected(&all, |block| block < 13), 12));
    assert_eq!((damage.bytes, damage.records, damage.no_end), (0, 12, false));
    assert_eq!(damage.to_string(), "12 records are lost");
}

#[test]
fn data_after_the_end_of_a_log_is_reported() {
    let (all, mut bytes, _) = sample();
    let whole = bytes.len() as u64;
    bytes.extend_from_slice(&[7; 1_000_000]);
    let (back, _, damage) = read(&bytes).unwrap();
    assert_eq!((back, damage.bytes, damage.first), (all, 1_000_000, Some(whole)));
}

#[test]
fn a_log_without_an_end_reaches_to_its_last_loss() {
    // An empty block claims that 19 records came before it. Four of them are there.
    let (_, mut bytes, starts) = sample();
    bytes.truncate(starts[4]);
    let mut head = sample().1[starts[1]..starts[1] + 44].to_vec();
    head[12..20].fill(0);
    head[20..28].copy_from_slice(&19u64.to_le_bytes());
    head[28..36].copy_from_slice(&90_000u64.to_le_bytes());
    bytes.extend_from_slice(&head);
    reseal(&mut bytes, starts[4]);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let last = reader.by_ref().last().unwrap().unwrap();
    assert_eq!((last.time, last.event), (Time::from_ns(90_000), Event::Lost { count: 15 }));
    assert_eq!((reader.end(), reader.damage().no_end), (last.time, true));
}

#[test]
fn hostile_blocks_do_not_make_the_reader_slow() {
    // Good heads of the longest payload, whose checksums are all wrong, one behind the other.
    let (_, mut bytes, starts) = sample();
    bytes.truncate(starts[1]);
    let mut head = sample().1[starts[1]..starts[1] + 44].to_vec();
    head[12..16].copy_from_slice(&(1u32 << 20).to_le_bytes());
    let crc = crc32fast::hash(&head[..40]);
    head[40..44].copy_from_slice(&crc.to_le_bytes());
    let heads = head.repeat(200_000);
    bytes.extend_from_slice(&heads);
    let (back, _, damage) = read(&bytes).unwrap();
    assert_eq!((back.len(), damage.bytes), (0, heads.len() as u64));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        records in records(3, 40),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        seal in any::<bool>(),
    ) {
        let mut bytes = log(&records, Time::ZERO);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if seal {
            seal_all(&mut bytes);
        }
        if let Ok(mut reader) = Reader::new(&bytes[..]) {
            let times: Result<Vec<_>, _> = reader.by_ref().collect();
            let _ = (times, reader.end(), reader.damage().to_string());
        }
    }
}

/// Makes the checksums right of as many blocks as still follow one another.
fn seal_all(bytes: &mut [u8]) {
    let mut at = 8;
    while bytes.len() >= at + 44 {
        let length = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
        if bytes.len() - at - 44 < length {
            return;
        }
        reseal(bytes, at);
        at += 44 + length;
    }
}
