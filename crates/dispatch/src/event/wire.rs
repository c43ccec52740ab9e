//! The format of datagrams between nodes: one datagram for each event, and short ones that announce
//! a node.
//!
//! All numbers are big-endian. A datagram starts with these fields:
//! - bytes 0 to 3: `takt`
//! - byte 4: the version, 2
//! - byte 5: the kind (1 event, 2 beat, 3 bye)
//! - byte 6: the number of nodes that forwarded it
//! - byte 7: zero
//! - then, of 8 bytes each: the node of the event's push, that node's incarnation, the sequence
//!   number, the clock of `sent`, and `sent`
//! - then, of 8 bytes each: the remaining time to live (all ones: no expiry), and the time until
//!   the deadline (all ones: none)
//!
//! A beat and a bye end here. An event continues with its type and its source (4 bytes each), its
//! supplier's number (8), the payload's length (2), and the payload. Times are in nanoseconds.

use takt_model::Span;
use thiserror::Error;

use super::delivery::RESERVED;

/// Bytes of a beat.
pub(super) const SHORT: usize = 64;
/// Bytes of an event before its payload.
pub const HEAD: usize = SHORT + 18;
/// The longest payload that a datagram of IPv4 has room for.
pub const PAYLOAD_MAX: usize = 65_507 - HEAD;
const MAGIC: [u8; 4] = *b"takt";
const VERSION: u8 = 2;

/// A datagram between nodes.
///
/// ```
/// use takt_model::Span;
/// use takt_dispatch::event::wire::{Body, Datagram};
///
/// let body = Body::Event { kind: 1, source: 7, number: 0, payload: b"north" };
/// let (remaining, due) = (Span::from_ms(2), Span::from_ms(1));
/// let sent = Datagram { hops: 0, node: 1, incarnation: 5, sequence: 9, clock: 3, sent: 100, remaining, due, body };
/// let mut bytes = [0; 128];
/// let length = sent.write(&mut bytes).unwrap();
/// assert_eq!(Datagram::read(&bytes[..length]), Ok(sent));
/// assert!(Datagram::read(&bytes[..length - 1]).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The number of nodes that forwarded it.
    pub hops: u8,
    /// The node of the event's push; for a beat, the sending node.
    pub node: u64,
    /// The node's run. Later runs have larger numbers.
    pub incarnation: u64,
    /// The event's number among that node's events of a level, from 0. For a beat: the number of
    /// the node's next event.
    pub sequence: u64,
    /// The clock of `sent`.
    pub clock: u64,
    /// When the datagram was sent, in ns of that clock.
    pub sent: u64,
    /// The time to live from `sent` on; [`Span::MAX`] if the event does not expire, and for beats.
    pub remaining: Span,
    /// The time from `sent` until the deadline, zero if that has passed; [`Span::MAX`] if there is
    /// none, and for beats.
    pub due: Span,
    /// The content.
    pub body: Body<'a>,
}

/// The content of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// An event was pushed.
    Event {
        /// Its type.
        kind: u32,
        /// Its source.
        source: u32,
        /// Its supplier's number.
        number: u64,
        /// The payload.
        payload: &'a [u8],
    },
    /// The node is present.
    Beat,
    /// The node ends.
    Bye,
}

/// Why bytes are not a datagram of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WireError {
    /// The length disagrees with the content.
    #[error("it has {there} bytes, and should have {wanted}")]
    Length {
        /// The number of bytes.
        there: usize,
        /// The expected number of bytes.
        wanted: usize,
    },
    /// The magic number is missing.
    #[error("it does not begin with \"takt\" and a zero")]
    Magic,
    /// The version of another takt.
    #[error("it is of version {0}, and this is version {VERSION}")]
    Version(u8),
    /// The kind is unknown.
    #[error("{0} is neither an event nor a beat nor a bye")]
    Kind(u8),
    /// A field has an invalid value.
    #[error("its {0} is one that none can have")]
    Value(&'static str),
}

impl<'a> Datagram<'a> {
    /// Reads a datagram. Writing it again gives the same bytes.
    ///
    /// # Errors
    /// The first fault.
    pub fn read(bytes: &'a [u8]) -> Result<Datagram<'a>, WireError> {
        let there = bytes.len();
        let wrong = |wanted| WireError::Length { there, wanted };
        let (head, rest) = bytes.split_first_chunk::<SHORT>().ok_or(wrong(SHORT))?;
        let [m0, m1, m2, m3, version, what, hops, zero, ..] = *head;
        if [m0, m1, m2, m3] != MAGIC || zero != 0 {
            return Err(WireError::Magic);
        }
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let mut words = head.chunks_exact(8).skip(1).filter_map(|word| Some(u64::from_be_bytes(word.try_into().ok()?)));
        let mut word = || words.next().unwrap_or_default();
        let (node, incarnation, sequence, clock, sent) = (word(), word(), word(), word(), word());
        let (remaining, due) = (Span::from_ns(word()), Span::from_ns(word()));
        if sequence == u64::MAX {
            return Err(WireError::Value("sequence number"));
        }
        let short = |body| {
            if !rest.is_empty() {
                return Err(wrong(SHORT));
            }
            match (hops, remaining, due) {
                (0, Span::MAX, Span::MAX) => Ok(body),
                (0, Span::MAX, _) => Err(WireError::Value("deadline")),
                (0, ..) => Err(WireError::Value("remaining time")),
                _ => Err(WireError::Value("number of hops")),
            }
        };
        let body = match what {
            1 => event(rest, there)?,
            2 => short(Body::Beat)?,
            3 => short(Body::Bye)?,
            _ => return Err(WireError::Kind(what)),
        };
        Ok(Datagram { hops, node, incarnation, sequence, clock, sent, remaining, due, body })
    }

    /// The datagram as if sent later by `waited`, which counts against its times.
    #[must_use]
    pub fn after(self, waited: Span) -> Datagram<'a> {
        let sent = self.sent.saturating_add(waited.as_ns());
        Datagram { sent, remaining: less(self.remaining, waited), due: less(self.due, waited), ..self }
    }

    /// The bytes before the payload, and how many of them count.
    #[must_use]
    pub fn head(&self) -> ([u8; HEAD], usize) {
        let (what, fields, length) = match self.body {
            Body::Event { kind, source, number, payload } => (1, (kind, source, number, payload.len() as u16), HEAD),
            Body::Beat => (2, (0, 0, 0, 0), SHORT),
            Body::Bye => (3, (0, 0, 0, 0), SHORT),
        };
        let [m0, m1, m2, m3] = MAGIC;
        let first = u64::from_be_bytes([m0, m1, m2, m3, VERSION, what, self.hops, 0]);
        let (kind, source, number, payload) = fields;
        let words = [
            first,
            self.node,
            self.incarnation,
            self.sequence,
            self.clock,
            self.sent,
            self.remaining.as_ns(),
            self.due.as_ns(),
            u64::from(kind) << 32 | u64::from(source),
            number,
        ];
        // Word by word, because byte by byte takes a microsecond.
        let mut head = [0; HEAD];
        let (to, rest) = head.as_chunks_mut();
        to.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_be_bytes());
        rest.copy_from_slice(&payload.to_be_bytes());
        (head, length)
    }

    /// The payload, which follows the head.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        if let Body::Event { payload, .. } = self.body { payload } else { &[] }
    }

    /// Writes the datagram and returns its length. `None` if there is no room, or if the payload is
    /// longer than [`PAYLOAD_MAX`].
    #[must_use]
    pub fn write(&self, into: &mut [u8]) -> Option<usize> {
        let (head, length) = self.head();
        let payload = self.payload();
        let (to, rest) = into.split_at_mut_checked(length)?;
        to.copy_from_slice(head.get(..length)?);
        rest.get_mut(..payload.len())?.copy_from_slice(payload);
        (payload.len() <= PAYLOAD_MAX).then_some(length + payload.len())
    }
}

/// `time` less `waited`. [`Span::MAX`] means unlimited and stays.
#[must_use]
pub fn less(time: Span, waited: Span) -> Span {
    if time == Span::MAX { time } else { time.saturating_sub(waited) }
}

/// The part of an event after the common fields.
fn event(rest: &[u8], there: usize) -> Result<Body<'_>, WireError> {
    let wrong = |wanted| WireError::Length { there, wanted };
    let (kind, rest) = rest.split_first_chunk::<4>().ok_or(wrong(HEAD))?;
    let (source, rest) = rest.split_first_chunk::<4>().ok_or(wrong(HEAD))?;
    let (number, rest) = rest.split_first_chunk::<8>().ok_or(wrong(HEAD))?;
    let (length, payload) = rest.split_first_chunk::<2>().ok_or(wrong(HEAD))?;
    let length = usize::from(u16::from_be_bytes(*length));
    if length > PAYLOAD_MAX {
        return Err(WireError::Value("payload's length"));
    }
    if payload.len() != length {
        return Err(wrong(HEAD + length));
    }
    let kind = u32::from_be_bytes(*kind);
    if kind >= RESERVED {
        return Err(WireError::Value("type"));
    }
    Ok(Body::Event { kind, source: u32::from_be_bytes(*source), number: u64::from_be_bytes(*number), payload })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_datagram(payload: &[u8]) -> impl Strategy<Value = Datagram<'_>> {
        let body = prop_oneof![
            (0..RESERVED, any::<u32>(), any::<u64>()).prop_map(|(kind, source, number)| Some((kind, source, number))),
            Just(None)
        ];
        let times = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        (any::<u8>(), (any::<u64>(), any::<u64>(), 0..u64::MAX), times, body, any::<bool>()).prop_map(
            move |(hops, (node, incarnation, sequence), (clock, sent, remaining, due), body, bye)| match body {
                Some((kind, source, number)) => Datagram {
                    hops,
                    node,
                    incarnation,
                    sequence,
                    clock,
                    sent,
                    remaining: Span::from_ns(remaining),
                    due: Span::from_ns(due),
                    body: Body::Event { kind, source, number, payload },
                },
                None => {
                    let body = if bye { Body::Bye } else { Body::Beat };
                    let (remaining, due) = (Span::MAX, Span::MAX);
                    Datagram { hops: 0, node, incarnation, sequence, clock, sent, remaining, due, body }
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_datagram_is_read_back_at_its_exact_length_only(
            sent in any_datagram(b"payload"),
            cut in 0_usize..HEAD + 7,
        ) {
            let mut bytes = [0_u8; HEAD + 8];
            let length = sent.write(&mut bytes).unwrap();
            prop_assert_eq!(Datagram::read(&bytes[..length]), Ok(sent));
            prop_assert!(Datagram::read(&bytes[..=length]).is_err());
            prop_assert!(Datagram::read(&bytes[..cut.min(length - 1)]).is_err());
            prop_assert_eq!(sent.write(&mut bytes[..length - 1]), None);
        }
    }

    #[test]
    fn waiting_reduces_finite_remaining_times_only() {
        let (ns, body) = (Span::from_ns, Body::Beat);
        let (node, incarnation, sequence, clock) = (1, 1, 0, 1);
        let of =
            |sent, remaining, due| Datagram { hops: 0, node, incarnation, sequence, clock, sent, remaining, due, body };
        assert_eq!(of(5, ns(7), Span::MAX).after(ns(2)), of(7, ns(5), Span::MAX));
        assert_eq!(of(5, Span::MAX, ns(3)).after(ns(4)), of(9, Span::MAX, Span::ZERO));
    }

    #[test]
    fn each_wrong_byte_is_told() {
        let body = Body::Event { kind: 1, source: 2, number: 3, payload: b"x" };
        let (remaining, due) = (Span::ZERO, Span::MAX);
        let right = Datagram { hops: 0, node: 1, incarnation: 1, sequence: 0, clock: 1, sent: 1, remaining, due, body };
        let mut bytes = [0_u8; HEAD + 1];
        right.write(&mut bytes).unwrap();
        let said = |at: usize, value: u8| {
            let mut wrong = bytes;
            wrong[at] = value;
            Datagram::read(&wrong).unwrap_err().to_string()
        };
        assert_eq!(said(0, b'T'), "it does not begin with \"takt\" and a zero");
        assert_eq!(said(7, 1), "it does not begin with \"takt\" and a zero");
        assert_eq!(said(4, 1), "it is of version 1, and this is version 2");
        assert_eq!(said(5, 4), "4 is neither an event nor a beat nor a bye");
        assert_eq!(said(5, 2), "it has 83 bytes, and should have 64");
        assert_eq!(said(HEAD - 1, 2), "it has 83 bytes, and should have 84");
        assert_eq!(Datagram::read(b"takt").unwrap_err().to_string(), "it has 4 bytes, and should have 64");
        let timeout = Datagram { body: Body::Event { kind: RESERVED, source: 2, number: 3, payload: b"x" }, ..right };
        timeout.write(&mut bytes).unwrap();
        assert_eq!(Datagram::read(&bytes).unwrap_err().to_string(), "its type is one that none can have");
        let beat = |remaining, due| {
            let mut bytes = [0_u8; HEAD];
            let length = Datagram { remaining, due, body: Body::Beat, ..right }.write(&mut bytes).unwrap();
            Datagram::read(&bytes[..length]).map(|_| ()).map_err(|wrong| wrong.to_string())
        };
        assert!(beat(Span::MAX, Span::MAX).is_ok());
        assert_eq!(beat(Span::MAX, Span::ZERO).unwrap_err(), "its deadline is one that none can have");
        assert_eq!(beat(Span::ZERO, Span::MAX).unwrap_err(), "its remaining time is one that none can have");
        let long = vec![0; PAYLOAD_MAX + 1];
        let body = Body::Event { kind: 1, source: 2, number: 3, payload: &long };
        assert_eq!(Datagram { body, ..right }.write(&mut vec![0; 70_000]), None);
    }
}
