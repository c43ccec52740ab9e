//! The messages by which nodes learn how their clocks differ.
//!
//! A request says which clock asks and when it left. The answer repeats the request, so that the
//! asker needs no memory of it, and adds two times of the peer's clock. It may add a claim of a
//! program there about CLOCK_REALTIME. Both have [`LENGTH`] bytes: nobody gets more bytes from a node than
//! it sends there. Numbers are little-endian.
//!
//! | bytes | hold |
//! |---|---|
//! | 0-7 | `tktc`, version 2, kind (1 request, 2 answer), source of the claim (0: none), 0 |
//! | 8-23 | secret and t1 of the request |
//! | 24-47 | answer: identity of the clock, t2, t3 |
//! | 48-71 | claim: how far CLOCK_REALTIME is ahead, its error, its timescale |
//!
//! Nodes with a key seal these bytes as messages of flows: a head of
//! [`DatagramKind::Clock`](crate::DatagramKind::Clock) before them, a tag behind them. Then both messages have
//! [`SYNC_SEALED`](crate::SYNC_SEALED) bytes.

use takt_model::{Span, Time};

use crate::source::{SourceKind, Timescale};

/// Bytes of a message.
pub const LENGTH: usize = 72;

const MAGIC: [u8; 4] = *b"tktc";
const VERSION: u8 = 2;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMessage {
    /// What time is it there?
    Request(SyncRequest),
    /// The answer.
    Answer {
        /// The request that it answers.
        to: SyncRequest,
        /// Identity of the peer's clock: another one after a restart of the machine.
        clock: u64,
        /// The request came, on the peer's clock.
        received: Time,
        /// The answer left, on the peer's clock.
        sent: Time,
        /// A claim about the peer's CLOCK_REALTIME.
        claim: Option<SyncClaim>,
    },
}

/// A program's claim about the CLOCK_REALTIME of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncClaim {
    /// The program.
    pub source: SourceKind,
    /// The time that the clock follows.
    pub timescale: Timescale,
    /// How far CLOCK_REALTIME is ahead of the peer's clock, in nanoseconds.
    pub ahead: i64,
    /// Error of CLOCK_REALTIME, with that of `ahead`, at most, when the answer left.
    pub error: Span,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncRequest {
    /// A number that nobody else can guess: an answer without it counts for nothing.
    pub secret: u64,
    /// The request left, on the asker's clock.
    pub sent: Time,
}

impl SyncMessage {
    /// Its bytes.
    #[must_use]
    pub fn write(&self) -> [u8; LENGTH] {
        let (kind, request, rest, claim) = match *self {
            SyncMessage::Request(request) => (1, request, [0; 3], None),
            SyncMessage::Answer { to, clock, received, sent, claim } => {
                (2, to, [clock, received.as_ns(), sent.as_ns()], claim)
            }
        };
        let mut bytes = [0; LENGTH];
        let source = claim.map_or(0, |claim| claim.source.number());
        let head = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION, kind, source, 0];
        let claim =
            claim.map_or([0; 3], |claim| [claim.ahead.cast_unsigned(), claim.error.as_ns(), claim.timescale.number()]);
        let head = [u64::from_le_bytes(head), request.secret, request.sent.as_ns()];
        let words = head.into_iter().chain(rest).chain(claim);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a message; `None`: it is none of this version.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<SyncMessage> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let mut words = bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes).unwrap_or_default());
        let [head, secret, sent, clock, received, answered, ahead, error, timescale] =
            std::array::from_fn(|_| words.next().unwrap_or(0));
        let [a, b, c, d, version, kind, source, 0] = head.to_le_bytes() else { return None };
        if [a, b, c, d] != MAGIC || version != VERSION {
            return None;
        }
        let claim = match source {
            0 if [ahead, error, timescale] == [0; 3] => None,
            source => Some(SyncClaim {
                source: SourceKind::of_number(source)?,
                timescale: Timescale::of_number(timescale),
                ahead: ahead.cast_signed(),
                error: Span::from_ns(error),
            }),
        };
        let request = SyncRequest { secret, sent: Time::from_ns(sent) };
        match kind {
            1 if [clock, received, answered] == [0; 3] && claim.is_none() => Some(SyncMessage::Request(request)),
            2 => Some(SyncMessage::Answer {
                to: request,
                clock,
                received: Time::from_ns(received),
                sent: Time::from_ns(answered),
                claim,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_are_read_as_they_were_written(
            answer: bool, words: [u64; 5], claim in proptest::option::of((1_u8..4, any::<[u64; 3]>())),
        ) {
            let to = SyncRequest { secret: words[0], sent: Time::from_ns(words[1]) };
            let (received, sent) = (Time::from_ns(words[3]), Time::from_ns(words[4]));
            let claim = claim.map(|(source, words)| SyncClaim {
                source: SourceKind::of_number(source).unwrap(),
                timescale: Timescale::of_number(words[0]),
                ahead: words[1].cast_signed(),
                error: Span::from_ns(words[2]),
            });
            let message = match answer {
                true => SyncMessage::Answer { to, clock: words[2], received, sent, claim },
                false => SyncMessage::Request(to),
            };
            prop_assert_eq!(SyncMessage::read(&message.write()), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(
            mut bytes in proptest::collection::vec(any::<u8>(), LENGTH),
            kind in 0u8..4,
            source in 0u8..5,
            empty: bool,
        ) {
            prop_assert_eq!(SyncMessage::read(&bytes[1..]), None);
            bytes[..8].copy_from_slice(&[b't', b'k', b't', b'c', VERSION, kind, source, 0]);
            if empty {
                bytes[48..].fill(0);
            }
            let message = SyncMessage::read(&bytes);
            let has_claim = (1..4).contains(&source) || source == 0 && empty;
            prop_assert_eq!(message.is_some(), kind == 2 && has_claim);
            if let Some(message) = message {
                prop_assert_eq!(&message.write()[..], &bytes[..]);
            }
        }
    }
}
