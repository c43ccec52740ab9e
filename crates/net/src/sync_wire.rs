//! The messages by which nodes learn how their clocks differ.
//!
//! A request says which clock asks and when it left. The answer repeats the request, so that the
//! asker needs no memory of it, and adds two times of the peer's clock. Both have [`LENGTH`] bytes:
//! nobody gets more bytes from a node than it sends there. Numbers are little-endian.

use takt_model::Time;

/// Bytes of a message.
pub const LENGTH: usize = 56;

const MAGIC: [u8; 4] = *b"tktc";
const VERSION: u8 = 1;

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
    },
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
        let (kind, request, rest) = match *self {
            SyncMessage::Request(request) => (1, request, [0; 3]),
            SyncMessage::Answer { to, clock, received, sent } => (2, to, [clock, received.as_ns(), sent.as_ns()]),
        };
        let mut bytes = [0; LENGTH];
        let head = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION, kind, 0, 0];
        let words = [u64::from_le_bytes(head), request.secret, request.sent.as_ns(), rest[0], rest[1], rest[2], 0];
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
        let [head, secret, sent, clock, received, answered, end] = std::array::from_fn(|_| words.next().unwrap_or(0));
        let [a, b, c, d, version, kind, 0, 0] = head.to_le_bytes() else { return None };
        if [a, b, c, d] != MAGIC || version != VERSION || end != 0 {
            return None;
        }
        let request = SyncRequest { secret, sent: Time::from_ns(sent) };
        match kind {
            1 if [clock, received, answered] == [0; 3] => Some(SyncMessage::Request(request)),
            2 => Some(SyncMessage::Answer {
                to: request,
                clock,
                received: Time::from_ns(received),
                sent: Time::from_ns(answered),
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
        fn messages_are_read_as_they_were_written(answer: bool, words: [u64; 5]) {
            let to = SyncRequest { secret: words[0], sent: Time::from_ns(words[1]) };
            let (received, sent) = (Time::from_ns(words[3]), Time::from_ns(words[4]));
            let message = match answer {
                true => SyncMessage::Answer { to, clock: words[2], received, sent },
                false => SyncMessage::Request(to),
            };
            prop_assert_eq!(SyncMessage::read(&message.write()), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(
            mut bytes in proptest::collection::vec(any::<u8>(), LENGTH),
            kind in 0u8..4,
        ) {
            prop_assert_eq!(SyncMessage::read(&bytes[1..]), None);
            bytes[..8].copy_from_slice(&[b't', b'k', b't', b'c', VERSION, kind, 0, 0]);
            if let Some(message) = SyncMessage::read(&bytes) {
                prop_assert_eq!(&message.write()[..], &bytes[..]);
            }
        }
    }
}
