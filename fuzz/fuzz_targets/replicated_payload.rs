//! Arbitrary bytes as payloads of a peer's flushes, one after the other. Nothing panics. A payload
//! that is read is written back to the same bytes. A replica takes each payload whole or not at
//! all. Its counters add up, and it knows the newest version of each value in its run.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_dispatch::event::{Entry, Replica, entries};
use takt_model::{Span, Time};

const SIZES: [usize; 4] = [8, 0, 200, 1];
const SOURCE: u32 = 1;
const KIND: u32 = 9;

/// By value: its bytes and its version.
type ReplicaState = Vec<Option<(Vec<u8>, u64)>>;

fuzz_target!(|bytes: &[u8]| {
    let replica = Replica::new(SOURCE, KIND, &SIZES);
    let (mut now, mut rest) = (Time::ZERO, bytes);
    // Each payload is preceded by its delay, in units of 100 ms (so that publishers fall silent,
    // too), and its length.
    while let Some((head, more)) = rest.split_first_chunk::<3>() {
        let [later, length @ ..] = *head;
        let (payload, more) = more.split_at(usize::from(u16::from_be_bytes(length)).min(more.len()));
        now = now.saturating_add(Span::from_ms(100 * u64::from(later)));
        take(&replica, payload, now);
        rest = more;
    }
});

fn take(replica: &Replica, payload: &[u8], now: Time) {
    let (before, old) = (replica.counts(), state(replica));
    replica.take_at(SOURCE, KIND, payload, now, now);
    let (after, new) = (replica.counts(), state(replica));
    let read = entries(payload);
    if let Some(read) = &read {
        assert_eq!(written(payload, read), payload);
    }
    let fits = |entry: &Entry<'_>| SIZES.get(entry.value).is_some_and(|size| entry.bytes.len() <= *size);
    let Some(read) = read.filter(|read| !read.is_empty() && read.iter().all(fits)) else {
        assert_eq!((after.malformed, after.applied, after.old), (before.malformed + 1, before.applied, before.old));
        assert_eq!(new, old);
        return;
    };
    assert_eq!(after.malformed, before.malformed);
    assert_eq!(after.applied + after.old, before.applied + before.old + read.len() as u64);
    for (value, (new, old)) in new.iter().zip(&old).enumerate() {
        let of = |entry: &&Entry<'_>| entry.value == value;
        // The first of the newest, if it is not the old one.
        let newest = read.iter().filter(of).rev().max_by_key(|entry| entry.version);
        let newest = newest.map(|entry| (entry.bytes.to_vec(), entry.version));
        assert!(new == old || *new == newest, "{value}: {old:?}, {new:?}");
    }
}

fn state(replica: &Replica) -> ReplicaState {
    let value =
        |values: &takt_dispatch::event::Values, value| values.get(value).map(|it| (it.bytes.to_vec(), it.version));
    replica.view(|values| (0..SIZES.len()).map(|at| value(values, at)).collect())
}

/// The payload after the documentation: the run and the number as they came, then the values.
fn written(payload: &[u8], read: &[Entry<'_>]) -> Vec<u8> {
    let mut bytes = payload[..16].to_vec();
    for entry in read {
        bytes.extend((entry.value as u16).to_be_bytes());
        bytes.extend((entry.bytes.len() as u16).to_be_bytes());
        bytes.extend(entry.version.to_be_bytes());
        bytes.extend(entry.bytes);
    }
    bytes
}
