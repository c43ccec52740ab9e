//! Packets, of which a Perfetto trace is a sequence: where they are, also behind damage.
//!
//! Each packet is the field 1 of the trace: the byte 0x0a, a length, and as many bytes. A file has
//! no other structure, so a damaged length loses the place. Reading goes on at the next place with
//! three sound packets in a row.

use super::wire::{Fields, Part, Value, varint};

/// The first byte of each packet: field 1, with a length.
const START: u8 = 0x0a;
/// So many packets in a row are no accident.
const CHAIN: usize = 3;
/// So many fields of a packet are looked at to see whether it is one.
const LOOK_MAX: usize = 16;
/// The schema reserves nothing from here on for packets.
const FIELDS_END: u32 = 2000;
/// Fields of a packet that are numbers; all others that are known are messages or texts.
const NUMBERS: [u32; 10] = [3, 8, 10, 13, 41, 42, 58, 79, 87, 98];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Framing {
    Whole(Part),
    /// It says to be longer than what is left.
    Long(Part),
    /// There is none.
    None,
}

fn framing(bytes: &[u8], at: usize) -> Framing {
    let mut start = at.saturating_add(1);
    if bytes.get(at) != Some(&START) {
        return Framing::None;
    }
    let Some(length) = varint(bytes, &mut start) else { return Framing::None };
    match usize::try_from(length).ok().and_then(|length| start.checked_add(length)) {
        Some(end) if end <= bytes.len() => Framing::Whole(Part { start, end }),
        _ => Framing::Long(Part { start, end: bytes.len() }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    Empty,
    Sound,
    /// The first are sound, then one is not.
    Breaks,
    /// Not even the first is.
    Foreign,
}

fn look(bytes: &[u8], part: Part) -> Look {
    let mut fields = Fields::new(bytes, part);
    let mut look = Look::Empty;
    for _ in 0..LOOK_MAX {
        let sound = match fields.next() {
            None => return look,
            Some(Ok((field, Value::Number(_)))) => NUMBERS.contains(&field),
            Some(Ok((field, Value::Bytes(_)))) => field < FIELDS_END && !NUMBERS.contains(&field),
            Some(Ok((_, Value::Fixed)) | Err(_)) => false,
        };
        look = match (look, sound) {
            (Look::Empty, false) => return Look::Foreign,
            (_, false) => return Look::Breaks,
            _ => Look::Sound,
        };
    }
    look
}

/// Whether `bytes` begin as a trace does: with a packet whose fields are those of packets.
pub(crate) fn is_perfetto(bytes: &[u8]) -> bool {
    let mut at = 0;
    for _ in 0..LOOK_MAX {
        match framing(bytes, at) {
            Framing::Whole(part) => match look(bytes, part) {
                Look::Empty => at = part.end,
                Look::Sound => return part.end == bytes.len() || bytes[part.end] == START,
                Look::Breaks | Look::Foreign => return false,
            },
            // The file is cut within its first packet.
            Framing::Long(part) => return matches!(look(bytes, part), Look::Sound | Look::Breaks),
            Framing::None => return false,
        }
    }
    false
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    Packet(Part),
    /// A packet of which the end is missing, for the bytes end.
    Cut(Part),
    Foreign(Part),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Pieces { bytes, at: 0 }
    }

    /// From where on packets follow each other again.
    fn sound_from(&self, from: usize) -> Option<usize> {
        let rest = self.bytes.get(from..)?;
        memchr::memchr_iter(START, rest).map(|at| from + at).find(|at| self.chain(*at))
    }

    /// Whether several packets follow each other from there on, or the last ones do.
    fn chain(&self, from: usize) -> bool {
        let mut at = from;
        for _ in 0..CHAIN {
            let Framing::Whole(part) = framing(self.bytes, at) else { return false };
            if look(self.bytes, part) != Look::Sound {
                return false;
            }
            at = part.end;
            if at == self.bytes.len() {
                return true;
            }
        }
        true
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let (start, length) = (self.at, self.bytes.len());
        let follows = |end: usize| end == length || self.bytes[end] == START;
        match framing(self.bytes, start) {
            Framing::Whole(part) if follows(part.end) || look(self.bytes, part) == Look::Sound => {
                self.at = part.end;
                Some(Piece::Packet(part))
            }
            found => {
                let next = self.sound_from(start + 1);
                self.at = next.unwrap_or(length);
                match (found, next) {
                    (Framing::Long(part), None) => Some(Piece::Cut(part)),
                    _ => Some(Piece::Foreign(Part { start, end: self.at })),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(text: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x0a, text.len() as u8 + 4, 0x40, 0x07, 0x12, text.len() as u8];
        bytes.extend(text);
        bytes
    }

    fn pieces(bytes: &[u8]) -> Vec<(char, usize, usize)> {
        let shown = |piece| match piece {
            Piece::Packet(part) => ('p', part.start, part.end),
            Piece::Cut(part) => ('c', part.start, part.end),
            Piece::Foreign(part) => ('f', part.start, part.end),
        };
        Pieces::new(bytes).map(shown).collect()
    }

    #[test]
    fn packets_are_found_again_behind_damage() {
        let trace: Vec<u8> = (0..6).flat_map(|_| packet(b"abcd")).collect();
        let all = [2, 12, 22, 32, 42, 52].map(|at| ('p', at, at + 8));
        assert_eq!(pieces(&trace), all);
        // The first byte of a packet is another one: it is passed over.
        let mut broken = trace.clone();
        broken[20] = 0xff;
        assert_eq!(pieces(&broken), [all[0], all[1], ('f', 20, 30), all[3], all[4], all[5]]);
        // A length that is too large.
        let mut broken = trace.clone();
        broken[21] = 0x7f;
        assert_eq!(pieces(&broken), [all[0], all[1], ('f', 20, 30), all[3], all[4], all[5]]);
        // One that leads into another packet.
        broken[21] = 11;
        assert_eq!(pieces(&broken), [all[0], all[1], ('f', 20, 30), all[3], all[4], all[5]]);
        // Cut anywhere, the rest is there.
        assert_eq!(pieces(&trace[..57]), [&all[..5], &[('c', 52, 57)]].concat());
        assert_eq!(pieces(&trace[..51]), [&all[..5], &[('f', 50, 51)]].concat());
    }

    #[test]
    fn other_files_are_not_taken_for_perfetto_traces() {
        let trace: Vec<u8> = (0..3).flat_map(|_| packet(b"abcd")).collect();
        assert!(is_perfetto(&trace) && is_perfetto(&trace[..7]) && is_perfetto(&[&[0x0a, 0], &trace[..]].concat()));
        for text in [
            &b""[..],
            b"\n",
            b"\n\n\n",
            b"\nabc",
            b"\n# tracer: nop\n#\n",
            b"\n                                        x",
        ] {
            assert!(!is_perfetto(text), "{text:?}");
        }
        let spaces = [b"\n".repeat(40), b" ".repeat(200)].concat();
        assert!((0..240).all(|length| !is_perfetto(&spaces[..length])));
    }
}
