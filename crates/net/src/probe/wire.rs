//! The messages between a prober and its servers.
//!
//! Each message starts with a head of [`HEAD`] bytes: magic, version, kind, the run's number, the
//! length of the whole message, and five words. Padding follows. An answer is never longer than its
//! question. Numbers are little-endian.

use takt_model::{Span, Time};

/// Bytes of a head, and the shortest message.
pub const HEAD: usize = 64;
/// The longest message: what a datagram of IPv4 holds.
pub const MESSAGE_MAX: usize = 65_507;

const MAGIC: [u8; 4] = *b"tktp";
const VERSION: u8 = 2;
/// Flags of data.
const WANTS_REPLY: u8 = 1;
const IS_WARM_UP: u8 = 2;

/// The head of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The run, a random number: a server answers only runs that were opened from the same address.
    pub run: u64,
    /// Bytes of the whole message, from [`HEAD`] to [`MESSAGE_MAX`].
    pub length: u32,
    /// The content.
    pub message: ProbeMessage,
}

/// The content of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeMessage {
    /// A run starts.
    Open,
    /// The server takes part in it.
    Welcome {
        /// UDP port where it answers messages about clocks; zero: nowhere.
        clock_port: u16,
        /// UDP port where it drops all that comes.
        sink_port: u16,
        /// Its arrivals are stamped by the kernel.
        kernel_stamps: bool,
    },
    /// A message that is measured.
    Data {
        /// Its number in the run.
        number: u64,
        /// It left, on the prober's clock.
        sent: Time,
        /// The server shall reply.
        wants_reply: bool,
        /// It counts for nothing.
        is_warm_up: bool,
    },
    /// The reply.
    Reply {
        /// The number of the data.
        number: u64,
        /// `sent` of the data.
        sent: Time,
        /// The data came at this time of the server's clock, or later ...
        received_from: Time,
        /// ... and at this time or earlier.
        received_to: Time,
        /// The reply left, on the server's clock.
        answered: Time,
    },
    /// Asks for a report.
    Ask,
    /// The report.
    Report(ServerCounts),
    /// The run is over, and the server forgets it. There is no answer.
    Close,
    /// The answer to `Open` of a server that has no place for another run.
    Full,
}

/// The data of a run that a server received, without warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerCounts {
    /// Messages, each counted once.
    pub received: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that came once more.
    pub duplicates: u64,
    /// Messages that came after a message with a greater number.
    pub reordered: u64,
    /// From the first arrival to the last one.
    pub span: Span,
}

/// The most times that one message is believed to arrive.
const COPIES_MAX: u64 = 256;

impl ServerCounts {
    /// Whether a server can have counted this, if at most so many messages, with at most so many
    /// bytes, were sent to it within `elapsed`. Its clock may run twice as fast.
    #[must_use]
    pub fn is_possible(&self, messages: u64, bytes: u64, elapsed: Span) -> bool {
        self.received <= messages
            && self.reordered <= self.received
            && self.bytes <= bytes
            && self.bytes >= self.received.saturating_mul(HEAD as u64)
            && self.duplicates <= self.received.saturating_mul(COPIES_MAX)
            && self.span <= elapsed.saturating_add(elapsed)
    }
}

impl Head {
    /// Its bytes.
    #[must_use]
    pub fn write(&self) -> [u8; HEAD] {
        let (kind, flags, rest) = match self.message {
            ProbeMessage::Open => (1, 0, [0; 5]),
            ProbeMessage::Welcome { clock_port, sink_port, kernel_stamps } => {
                (2, u8::from(kernel_stamps), [u64::from(clock_port), u64::from(sink_port), 0, 0, 0])
            }
            ProbeMessage::Data { number, sent, wants_reply, is_warm_up } => {
                let flags = (u8::from(wants_reply) * WANTS_REPLY) | (u8::from(is_warm_up) * IS_WARM_UP);
                (3, flags, [number, sent.as_ns(), 0, 0, 0])
            }
            ProbeMessage::Reply { number, sent, received_from, received_to, answered } => {
                let times = [sent, received_from, received_to, answered].map(Time::as_ns);
                (4, 0, [number, times[0], times[1], times[2], times[3]])
            }
            ProbeMessage::Ask => (5, 0, [0; 5]),
            ProbeMessage::Report(ServerCounts { received, bytes, duplicates, reordered, span }) => {
                (6, 0, [received, bytes, duplicates, reordered, span.as_ns()])
            }
            ProbeMessage::Close => (7, 0, [0; 5]),
            ProbeMessage::Full => (8, 0, [0; 5]),
        };
        let first = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION, kind, flags, 0];
        let [a, b, c, d, e] = rest;
        let words = [u64::from_le_bytes(first), self.run, u64::from(self.length), a, b, c, d, e];
        let mut bytes = [0; HEAD];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads the head of a message; `None`: it is none of this version.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Head> {
        let bytes: &[u8; HEAD] = bytes.first_chunk()?;
        let mut words = bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes).unwrap_or_default());
        let [first, run, length, a, b, c, d, e] = std::array::from_fn(|_| words.next().unwrap_or(0));
        let [m, n, o, p, version, kind, flags, 0] = first.to_le_bytes() else { return None };
        let length = u32::try_from(length).ok().filter(|length| (HEAD..=MESSAGE_MAX).contains(&(*length as usize)))?;
        if [m, n, o, p] != MAGIC || version != VERSION {
            return None;
        }
        let message = match (kind, flags, [a, b, c, d, e]) {
            (1, 0, [0, 0, 0, 0, 0]) => ProbeMessage::Open,
            (2, 0 | 1, [clock, sink, 0, 0, 0]) => ProbeMessage::Welcome {
                clock_port: u16::try_from(clock).ok()?,
                sink_port: u16::try_from(sink).ok()?,
                kernel_stamps: flags == 1,
            },
            (3, 0..=3, [number, sent, 0, 0, 0]) => ProbeMessage::Data {
                number,
                sent: Time::from_ns(sent),
                wants_reply: flags & WANTS_REPLY != 0,
                is_warm_up: flags & IS_WARM_UP != 0,
            },
            (4, 0, [number, ..]) => {
                let [sent, received_from, received_to, answered] = [b, c, d, e].map(Time::from_ns);
                ProbeMessage::Reply { number, sent, received_from, received_to, answered }
            }
            (5, 0, [0, 0, 0, 0, 0]) => ProbeMessage::Ask,
            (6, 0, [received, bytes, duplicates, reordered, span]) => {
                ProbeMessage::Report(ServerCounts { received, bytes, duplicates, reordered, span: Span::from_ns(span) })
            }
            (7, 0, [0, 0, 0, 0, 0]) => ProbeMessage::Close,
            (8, 0, [0, 0, 0, 0, 0]) => ProbeMessage::Full,
            _ => return None,
        };
        Some(Head { run, length, message })
    }

    /// Reads a whole datagram. `None` also if its length differs from [`Head::length`].
    #[must_use]
    pub fn of_datagram(bytes: &[u8]) -> Option<Head> {
        Head::read(bytes).filter(|head| head.length as usize == bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = ProbeMessage> {
        let time = || any::<u64>().prop_map(Time::from_ns);
        prop_oneof![
            Just(ProbeMessage::Open),
            Just(ProbeMessage::Ask),
            Just(ProbeMessage::Close),
            Just(ProbeMessage::Full),
            (any::<u16>(), any::<u16>(), any::<bool>()).prop_map(|(clock_port, sink_port, kernel_stamps)| {
                ProbeMessage::Welcome { clock_port, sink_port, kernel_stamps }
            }),
            (any::<u64>(), time(), any::<bool>(), any::<bool>()).prop_map(|(number, sent, wants_reply, is_warm_up)| {
                ProbeMessage::Data { number, sent, wants_reply, is_warm_up }
            }),
            (any::<u64>(), time(), time(), time(), time()).prop_map(
                |(number, sent, received_from, received_to, answered)| ProbeMessage::Reply {
                    number,
                    sent,
                    received_from,
                    received_to,
                    answered
                }
            ),
            any::<[u64; 5]>().prop_map(|[received, bytes, duplicates, reordered, span]| {
                let span = Span::from_ns(span);
                ProbeMessage::Report(ServerCounts { received, bytes, duplicates, reordered, span })
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_written_head_is_read_back(run: u64, length in HEAD as u32..=MESSAGE_MAX as u32, message in message()) {
            let head = Head { run, length, message };
            prop_assert_eq!(Head::read(&head.write()), Some(head));
        }

        #[test]
        fn a_head_that_was_read_is_written_unchanged(
            message in message(), place in 0..HEAD, value: u8, more in 0_usize..3,
        ) {
            let mut bytes = Head { run: 1, length: HEAD as u32, message }.write().to_vec();
            bytes[place] = value;
            bytes.resize(HEAD + more, 0);
            if let Some(head) = Head::read(&bytes) {
                prop_assert_eq!(&head.write(), &bytes[..HEAD]);
                prop_assert_eq!(Head::of_datagram(&bytes).is_some(), head.length as usize == bytes.len());
            }
        }
    }

    #[test]
    fn a_server_cannot_report_more_than_was_sent_to_it() {
        let good = ServerCounts { received: 10, bytes: 700, duplicates: 20, reordered: 9, span: Span::from_ms(1) };
        let is_possible = |counts: ServerCounts| counts.is_possible(10, 700, Span::from_ms(1));
        assert!(is_possible(good) && is_possible(ServerCounts::default()));
        for bad in [
            ServerCounts { received: 11, ..good },
            ServerCounts { bytes: 701, ..good },
            ServerCounts { bytes: 639, ..good },
            ServerCounts { duplicates: u64::MAX, ..good },
            ServerCounts { reordered: 11, ..good },
            ServerCounts { span: Span::from_ms(3), ..good },
            ServerCounts { received: u64::MAX, ..good },
        ] {
            assert!(!is_possible(bad), "{bad:?}");
        }
    }

    #[test]
    fn foreign_bytes_are_no_message() {
        let good = Head { run: 7, length: 64, message: ProbeMessage::Open }.write();
        assert!(Head::of_datagram(&good).is_some());
        // Magic, version, kind, flags, the reserved byte, the length, and a word that must be zero.
        for place in [0, 4, 5, 6, 7, 16, 20, 24] {
            let mut bytes = good;
            bytes[place] ^= 0x80;
            assert_eq!(Head::of_datagram(&bytes), None, "byte {place}");
        }
        assert_eq!(Head::read(&good[..HEAD - 1]), None);
        assert_eq!(Head::read(&Head { run: 7, length: 63, message: ProbeMessage::Open }.write()), None);
    }
}
