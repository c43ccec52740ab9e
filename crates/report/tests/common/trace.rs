//! Reads Perfetto traces, as far as their shape.

use std::collections::{BTreeMap, BTreeSet};

enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// Splits a message into its fields; panics where it is none.
fn fields(mut bytes: &[u8]) -> Vec<(u32, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a varint ends");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return value;
            }
        }
        panic!("a varint has at most ten bytes");
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Field::Varint(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_first_chunk::<8>().expect("eight bytes");
                bytes = rest;
                Field::Varint(u64::from_le_bytes(*value))
            }
            2 => {
                let long = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(long);
                bytes = rest;
                Field::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        found.push(((key >> 3) as u32, value));
    }
    found
}

fn uint(fields: &[(u32, Field<'_>)], wanted: u32) -> Option<u64> {
    fields.iter().find_map(|(field, value)| match value {
        Field::Varint(value) if *field == wanted => Some(*value),
        _ => None,
    })
}

fn inner<'a>(fields: &[(u32, Field<'a>)], wanted: u32) -> Option<&'a [u8]> {
    fields.iter().find_map(|(field, value)| match value {
        Field::Bytes(bytes) if *field == wanted => Some(*bytes),
        _ => None,
    })
}

/// Checks that slices nest and that every event's track was described before; returns slices begun per track.
pub(crate) fn check_trace(bytes: &[u8]) -> BTreeMap<u64, u64> {
    let mut tracks = BTreeSet::new();
    let mut depth = BTreeMap::<u64, i64>::new();
    let mut begun = BTreeMap::new();
    let mut last = 0;
    for (field, packet) in fields(bytes) {
        let Field::Bytes(packet) = packet else { panic!("a trace has packets only") };
        assert_eq!(field, 1);
        let packet = fields(packet);
        assert_eq!(uint(&packet, 10), Some(1), "every packet names its sequence");
        if let Some(descriptor) = inner(&packet, 60) {
            assert!(tracks.insert(uint(&fields(descriptor), 1).unwrap()), "a track is described once");
        }
        let Some(event) = inner(&packet, 11) else { continue };
        let event = fields(event);
        let now = uint(&packet, 8).unwrap();
        let track = uint(&event, 11).unwrap();
        // A payment of a server is told at its end.
        if !(6..=7).contains(&(track >> 48)) {
            assert!(now >= last, "events stand in the order of time");
            last = now;
        }
        assert!(tracks.contains(&track), "track {track} is described");
        let open = depth.entry(track).or_default();
        match uint(&event, 9).unwrap() {
            1 => {
                *open += 1;
                *begun.entry(track).or_default() += 1;
            }
            2 => *open -= 1,
            3 | 4 => {}
            other => panic!("event of type {other}"),
        }
        // Interrupts interrupt each other.
        let deepest = if track >> 48 == 5 { 8 } else { 2 };
        assert!((0..=deepest).contains(open), "slices nest, two deep at most");
    }
    assert!(depth.values().all(|open| *open == 0), "every slice ends");
    begun
}

/// An event with what its numbers stand for: time, track, type, name, arguments.
pub(crate) type Meaning = (u64, u64, u64, String, Vec<Vec<u8>>);

/// The meaning of a trace, independent of the places of its descriptions: the tracks' descriptions,
/// and the events in order.
pub(crate) fn meaning(bytes: &[u8]) -> (BTreeMap<u64, Vec<u8>>, Vec<Meaning>) {
    let (mut names, mut tracks, mut events) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for (_, packet) in fields(bytes) {
        let Field::Bytes(packet) = packet else { panic!("a trace has packets only") };
        let packet = fields(packet);
        for (field, entry) in inner(&packet, 12).map(fields).unwrap_or_default() {
            if let (2, Field::Bytes(entry)) = (field, entry) {
                let entry = fields(entry);
                let name = String::from_utf8(inner(&entry, 2).unwrap().to_vec()).unwrap();
                assert!(names.insert(uint(&entry, 1).unwrap(), name).is_none(), "a number is a name's for good");
            }
        }
        if let Some(descriptor) = inner(&packet, 60) {
            tracks.insert(uint(&fields(descriptor), 1).unwrap(), descriptor.to_vec());
        }
        let Some(event) = inner(&packet, 11) else { continue };
        let event = fields(event);
        let name = uint(&event, 10).map_or_else(String::new, |iid| names[&iid].clone());
        let arguments = event.iter().filter_map(|(field, value)| match value {
            Field::Bytes(argument) if *field == 4 => Some(argument.to_vec()),
            _ => None,
        });
        let (now, kind) = (uint(&packet, 8).unwrap(), uint(&event, 9).unwrap());
        events.push((now, uint(&event, 11).unwrap(), kind, name, arguments.collect()));
    }
    (tracks, events)
}

/// Flow numbers of events: time, field (47 goes on, 48 ends), number.
pub(crate) fn flows(bytes: &[u8]) -> Vec<(u64, u32, u64)> {
    let mut found = Vec::new();
    for (_, packet) in fields(bytes) {
        let Field::Bytes(packet) = packet else { panic!("a trace has packets only") };
        let packet = fields(packet);
        let Some(event) = inner(&packet, 11) else { continue };
        let now = uint(&packet, 8).unwrap();
        found.extend(fields(event).iter().filter_map(|(field, value)| match value {
            Field::Varint(flow) if [47, 48].contains(field) => Some((now, *field, *flow)),
            _ => None,
        }));
    }
    found
}
