use proptest::prelude::*;

use super::*;
use crate::event::Options;

fn published(payload_max: usize, sizes: &[usize]) -> Published {
    let channel = Channel::new(Options { payload_max, ..Options::default() });
    Published::new(&channel, 1, 9, sizes).unwrap()
}

fn at(at: u64) -> Time {
    Time::from_ns(at)
}

fn put(published: &Published, value: usize, bytes: &[u8], deadline: u64) {
    assert!(published.put(value, bytes, at(deadline), || Time::ZERO).unwrap());
}

fn got() -> Result<Pushed, EventError> {
    Ok(Pushed { sent: 1, ..Pushed::default() })
}

/// The payloads of a flush at this instant. Every event reaches a receiver.
fn flush(published: &Published, boundary: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let push = |bytes: &[u8]| {
        all.push(bytes.to_vec());
        got()
    };
    published.send(at(boundary), push).unwrap();
    all
}

fn read(replica: &Replica, value: usize) -> Option<Vec<u8>> {
    replica.view(|values| values.get(value).map(|known| known.bytes.to_vec()))
}

#[derive(Clone, Debug)]
enum Step {
    /// The value's index, its bytes, and the number of flushes until it is due.
    Write(usize, Vec<u8>, u64),
    /// The fate of each event: it arrives, is lost on the way, finds no room, or meets no
    /// connection.
    Flush(Vec<u8>),
    Refresh,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..=20);
    let write = (0..6_usize, bytes, 0..3_u64).prop_map(|(value, bytes, due)| Step::Write(value, bytes, due));
    let flush = prop::collection::vec(0..4_u8, 6).prop_map(Step::Flush);
    prop::collection::vec(prop_oneof![6 => write, 3 => flush, 1 => Just(Step::Refresh)], 1..60)
}

proptest! {
    /// The reference is a table of written, due and received values.
    #[test]
    fn a_replica_has_what_came_and_a_publisher_keeps_what_nobody_got(steps in steps()) {
        let sizes = [20; 6];
        let (published, replica) = (published(80, &sizes), Replica::new(1, 9, &sizes));
        let (mut written, mut known) = (vec![None; 6], vec![None; 6]);
        // When each is due; `None` if it need not be sent.
        let mut due: [Option<u64>; 6] = [None; 6];
        let mut now = 0;
        for step in steps {
            match step {
                Step::Write(value, bytes, flushes) => {
                    put(&published, value, &bytes, now + 1 + flushes);
                    written[value] = Some(bytes);
                    // Zero: it was sent before and is to be sent again.
                    let waits = due[value].filter(|due| *due > 0);
                    due[value] = Some(waits.unwrap_or(u64::MAX).min(now + 1 + flushes));
                }
                Step::Refresh => {
                    published.refresh();
                    for value in (0..6).filter(|value| written[*value].is_some()) {
                        due[value] = due[value].or(Some(0));
                    }
                }
                Step::Flush(fates) => {
                    now += 1;
                    let (mut events, mut fates) = (0, fates.into_iter());
                    let values: Vec<usize> = (0..6).filter(|value| due[*value].is_some_and(|due| due <= now)).collect();
                    let mut all = Vec::new();
                    let result = published.send(at(now), |bytes| {
                        events += 1;
                        assert!(bytes.len() <= 80);
                        let fate = fates.next().unwrap_or(0);
                        let here = entries(bytes).unwrap();
                        for entry in &here {
                            assert_eq!(Some(entry.bytes), written[entry.value].as_deref());
                            all.push(entry.value);
                            let due = &mut due[entry.value];
                            *due = due.filter(|_| fate >= 2).map(|due| if due > 0 { now } else { 0 });
                            if fate == 0 {
                                known[entry.value] = Some(entry.bytes.to_vec());
                            }
                        }
                        match fate {
                            0 => {
                                // It does no harm twice.
                                (0..2).for_each(|_| replica.values.lock().take(bytes, at(now), at(now)));
                                got()
                            }
                            1 => got(),
                            2 => Ok(Pushed { rejected: 1, ..Pushed::default() }),
                            _ => Err(EventError::NotConnected),
                        }
                    });
                    all.sort_unstable();
                    if result.is_ok() {
                        prop_assert_eq!(&all, &values, "all that is due, each once");
                    }
                    prop_assert!(events <= published.events_max());
                }
            }
            for (value, known) in known.iter().enumerate() {
                prop_assert_eq!(&read(&replica, value), known);
            }
            let counts = published.counts();
            let rows = &published.inner.rows.lock().rows;
            let waits = rows.iter().filter(|row| matches!(row.due, SendTime::At(_))).count() as u64;
            prop_assert_eq!(counts.written, counts.flushed + counts.replaced + waits);
        }
        let counts = replica.counts();
        prop_assert!(counts.malformed == 0 && counts.old >= counts.applied);
    }
}

#[test]
fn each_written_value_is_sent_or_replaced_or_waits() {
    let published = published(64, &[4, 4]);
    put(&published, 0, b"a", 10);
    put(&published, 0, b"b", 10);
    put(&published, 1, b"c", 20);
    assert_eq!(flush(&published, 9).len(), 0, "nothing is due");
    let events = flush(&published, 10);
    assert_eq!(entries(&events[0]).unwrap()[0].bytes, b"b");
    published.refresh();
    put(&published, 0, b"d", 30);
    assert_eq!(flush(&published, 19).len(), 0, "what was written anew waits for its own deadline");
    assert_eq!(entries(&flush(&published, 30)[0]).unwrap().len(), 2);
    let counts = published.counts();
    assert_eq!((counts.written, counts.flushed, counts.replaced, counts.repeated), (4, 3, 1, 0));
    published.refresh();
    assert_eq!(entries(&flush(&published, 31)[0]).unwrap().len(), 2);
    assert_eq!((published.counts().repeated, published.counts().flushes), (2, 5));
    assert!(!published.put(0, b"e", at(40), || at(41)).unwrap());
    assert_eq!(published.counts().late, 1);
}

#[test]
fn a_failed_repetition_stays_due_and_counts_as_sent_before() {
    let published = published(64, &[4]);
    put(&published, 0, b"a", 10);
    assert_eq!(flush(&published, 10).len(), 1);
    published.refresh();
    let nobody = |_: &[u8]| Err(EventError::NotConnected);
    assert!(published.send(at(11), nobody).is_err());
    assert_eq!(flush(&published, 12).len(), 1, "it is to be sent again still");
    let counts = published.counts();
    assert_eq!((counts.written, counts.flushed, counts.repeated, counts.replaced), (1, 1, 1, 0));
    // A newer value replaced it. Only the replaced one was never sent.
    published.refresh();
    let written = |_: &[u8]| {
        put(&published, 0, b"b", 20);
        Err(EventError::NotConnected)
    };
    assert!(published.send(at(13), written).is_err());
    assert_eq!(flush(&published, 20).len(), 1);
    let counts = published.counts();
    assert_eq!((counts.written, counts.flushed, counts.repeated, counts.replaced), (2, 2, 1, 0));
}

/// An operation with the flush's period, whose deadlines lie between two flushes. Each of its
/// values has been replaced by the flush at its deadline.
#[test]
fn a_writer_with_the_flush_period_is_replicated() {
    let published = published(64, &[4]);
    let mut heard = 0;
    for frame in 0..10 {
        put(&published, 0, b"a", 10 * frame + 12);
        heard += flush(&published, 10 * frame + 9).len();
    }
    let counts = published.counts();
    assert_eq!((heard, counts.flushed, counts.replaced), (5, 5, 5), "every other one");
}

#[test]
fn with_room_for_one_event_only_each_value_has_its_turn() {
    let published = published(40, &[8; 4]);
    let mut seen = Vec::new();
    for boundary in 1..=4 {
        (0..4).for_each(|value| put(&published, value, b"x", boundary));
        let mut room = 1;
        let _ = published.send(at(boundary), |bytes| {
            if room == 0 {
                return Err(EventError::NotConnected);
            }
            room -= 1;
            seen.push(entries(bytes).unwrap()[0].value);
            got()
        });
    }
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
fn a_publisher_that_begins_anew_is_believed_and_its_former_run_is_not() {
    let (sizes, replica) = ([4], Replica::new(1, 9, &[4]));
    let event = |run: u64, bytes: &[u8]| {
        let published = published(64, &sizes);
        put(&published, 0, bytes, 0);
        let mut event = flush(&published, 0).remove(0);
        event[..8].copy_from_slice(&run.to_be_bytes());
        event
    };
    let take = |event: &[u8], now: Time| replica.values.lock().take(event, now, now);
    take(&event(7, b"old"), at(0));
    take(&event(8, b"new"), at(1));
    take(&event(7, b"old"), at(2));
    assert_eq!((read(&replica, 0).unwrap(), replica.counts().old), (b"new".to_vec(), 1));
    // A known value stays until a newer one arrives.
    let later = at(1) + SILENCE;
    take(&event(3, b"set"), later);
    assert_eq!(read(&replica, 0).unwrap(), b"new", "not before a silence");
    take(&event(3, b"set"), later + Span::from_ns(1));
    assert_eq!(read(&replica, 0).unwrap(), b"set", "its clock was set back");
}

#[test]
fn a_malformed_flush_is_not_applied_in_part() {
    let (published, replica) = (published(64, &[4, 4]), Replica::new(1, 9, &[4]));
    put(&published, 0, b"a", 0);
    put(&published, 1, b"b", 0);
    let payload = flush(&published, 0).remove(0);
    let take = |payload: &[u8]| replica.values.lock().take(payload, Time::ZERO, Time::ZERO);
    take(&payload);
    (0..payload.len()).for_each(|length| take(&payload[..length]));
    // A payload cut after the first value is a flush of one value. Cut after its head, it is an
    // empty flush.
    let counts = Applied { applied: 1, old: 0, malformed: payload.len() as u64 };
    assert_eq!(replica.counts(), counts);
    assert!(entries(&payload[..HEAD]).is_some_and(|none| none.is_empty()));
}

#[test]
fn values_that_cannot_be_replicated_are_refused() {
    let channel = |payload_max| Channel::new(Options { payload_max, ..Options::default() });
    let refused = |sizes: &[usize]| Published::new(&channel(30), 1, 9, sizes).err().map(|error| error.to_string());
    assert_eq!(refused(&[2]), None);
    assert_eq!(
        refused(&[0, 3]).unwrap(),
        "value 1 has up to 3 bytes, and an event of this channel has room for 2 (Options::payload_max)"
    );
    assert_eq!(refused(&vec![0; VALUES_MAX + 1]).unwrap(), "65537 values; a publisher has 65536 at most");
    assert_eq!(
        Published::new(&channel(27), 1, 9, &[0]).err().unwrap().to_string(),
        "an event of this channel has room for 27 bytes, and a value needs 28 besides its own (Options::payload_max)"
    );
    let published = published(64, &[4]);
    let wrong =
        |value: usize, bytes: &[u8]| published.put(value, bytes, Time::ZERO, || Time::ZERO).unwrap_err().to_string();
    assert_eq!(wrong(1, b""), "there is no value 1; there are 1, counted from 0");
    assert_eq!(wrong(0, b"12345"), "value 0 has 5 bytes now, and can have 4");
    put(&published, 0, b"1234", 0);
    let none = |_: &[u8]| Err(EventError::NotConnected);
    assert_eq!(published.send(at(1), none), Err(ReplicationError::Event(EventError::NotConnected)));
    assert_eq!(flush(&published, 1).len(), 1, "it is still to be sent");
    let nothing = Published::new(&channel(64), 1, 9, &[]).unwrap();
    assert_eq!(nothing.send(at(1), none), Ok(0));
}

/// A payload built by hand, after the module's documentation.
fn payload(run: u64, number: u64, values: &[(u16, u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = [run.to_be_bytes(), number.to_be_bytes()].concat();
    for (value, version, of) in values {
        bytes.extend(value.to_be_bytes().into_iter().chain((of.len() as u16).to_be_bytes()));
        bytes.extend(version.to_be_bytes().iter().chain(of));
    }
    bytes
}

/// Values with valid and invalid indices, and valid and excessive lengths.
fn values() -> impl Strategy<Value = Vec<(u16, u64, Vec<u8>)>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..12);
    prop::collection::vec((0..5_u16, prop_oneof![0..4_u64, any::<u64>()], bytes), 0..6)
}

proptest! {
    #[test]
    fn a_written_flush_is_read_back_byte_for_byte(run: u64, number: u64, values in values(), room in 0..200_usize) {
        let bytes = payload(run, number, &values);
        let read = entries(&bytes).unwrap();
        let expected: Vec<Entry<'_>> = values
            .iter()
            .map(|(value, version, bytes)| Entry { value: usize::from(*value), version: *version, bytes })
            .collect();
        prop_assert_eq!(&read, &expected);
        // With just enough room.
        let mut again = vec![0; room];
        let mut end = HEAD;
        for entry in &read {
            let Some(next) = entry.write(&mut again, end) else {
                prop_assert!(room < end + ROW + entry.bytes.len());
                return Ok(());
            };
            end = next;
        }
        prop_assert!(read.is_empty() || again[HEAD..end] == bytes[HEAD..]);
    }

    /// Payloads that are cut, changed in one place, or arbitrary.
    #[test]
    fn any_payload_is_applied_whole_or_not_at_all(
        events in prop::collection::vec(
            (0..3_u64, values(), any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..12),
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let sizes = [8, 0, 4];
        let replica = Replica::new(1, 9, &sizes);
        for (at_ns, (run, values, place, changed, how)) in events.into_iter().enumerate() {
            let mut bytes = payload(run, 0, &values);
            match how {
                0 => bytes.truncate(place.index(bytes.len())),
                1 => { let at = place.index(bytes.len()); bytes[at] = changed }
                2 => bytes = noise.clone(),
                _ => {}
            }
            let (before, known) = (replica.counts(), [0, 1, 2].map(|value| read(&replica, value)));
            replica.take_at(1, 9, &bytes, at(at_ns as u64), at(at_ns as u64));
            let (after, now) = (replica.counts(), [0, 1, 2].map(|value| read(&replica, value)));
            let whole = entries(&bytes).filter(|entries| {
                let fits = |entry: &Entry<'_>| sizes.get(entry.value).is_some_and(|size| entry.bytes.len() <= *size);
                !entries.is_empty() && entries.iter().all(fits)
            });
            let Some(entries) = whole else {
                prop_assert_eq!(after, Applied { malformed: before.malformed + 1, ..before });
                prop_assert_eq!(now, known);
                continue;
            };
            prop_assert_eq!(after.applied + after.old, before.applied + before.old + entries.len() as u64);
            prop_assert_eq!(after.malformed, before.malformed);
            for (value, now) in now.iter().enumerate().filter(|(value, now)| **now != known[*value]) {
                prop_assert!(entries.iter().any(|entry| entry.value == value && Some(entry.bytes) == now.as_deref()));
            }
        }
    }
}
