//! The messages between a program and the broker, over a Unix socket. Pure.
//!
//! Numbers are little-endian. A request has a head of [`HEAD`] bytes, and then the bytes to send. A
//! descriptor comes with [`Request::Join`]. An answer has [`ANSWER`] bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use takt_model::Time;

/// The version of these messages.
pub const VERSION: u32 = 2;
/// Bytes of a request before those to send.
pub const HEAD: usize = 40;
/// Bytes of an answer.
pub const ANSWER: usize = 48;
/// The most bytes of one message.
pub const MESSAGE_MAX: usize = 65_536;
/// The most messages of a socket that wait in the broker. A program counts a message until the broker
/// has reported it. So the broker can read all at once, and no urgent message waits unread.
pub const WAITING_MAX: usize = 64;

const MAGIC: u8 = 0xED;

/// What a program asks of the broker. Sockets have the numbers that the program gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// The first request of a connection.
    Hello {
        /// Its version.
        version: u32,
    },
    /// A socket comes; its descriptor comes along.
    Join {
        /// Its number.
        socket: u32,
    },
    /// A message to send.
    Send {
        /// The number of its socket.
        socket: u32,
        /// Its deadline on CLOCK_MONOTONIC.
        deadline: Time,
        /// Where to; `None`: the connected peer.
        to: Option<SocketAddr>,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A socket leaves when its messages are sent. The answer is [`Answer::Counts`] with `has_left`.
    Leave {
        /// Its number.
        socket: u32,
    },
}

/// The broker's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The broker's version.
    Welcome {
        /// Its version.
        version: u32,
    },
    /// A socket has joined.
    Joined {
        /// Its number.
        socket: u32,
    },
    /// A socket cannot join.
    Refused {
        /// Its number.
        socket: u32,
        /// The kernel's errno; zero: the broker serves as many as it can. EMFILE: it can open no more.
        errno: i32,
    },
    /// The counts of a socket since it joined.
    Counts {
        /// Its number.
        socket: u32,
        /// Its counts.
        counts: BrokerCounts,
        /// It has left: these are its last ones. What they leave out was not sent.
        has_left: bool,
    },
}

/// What became of a socket's messages, counted by the broker.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BrokerCounts {
    /// Messages that the kernel took.
    pub sent: u64,
    /// Messages dropped because they were late.
    pub late: u64,
    /// Messages that the kernel refused.
    pub refused: u64,
    /// Bytes of a stream that the kernel took.
    pub bytes: u64,
    /// The errno of the last refusal; zero if there was none.
    pub errno: i32,
}

fn put<const N: usize>(into: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = into.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

fn get<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at + N)?.try_into().ok()
}

impl Request<'_> {
    /// The head; [`Request::Send`]'s bytes follow it.
    #[must_use]
    pub fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        let (kind, number) = match *self {
            Request::Hello { version } => (1, version),
            Request::Join { socket } => (2, socket),
            Request::Send { socket, .. } => (3, socket),
            Request::Leave { socket } => (4, socket),
        };
        put(&mut head, 0, [MAGIC, kind]);
        put(&mut head, 4, number.to_le_bytes());
        let Request::Send { deadline, to, .. } = *self else { return head };
        put(&mut head, 8, deadline.as_ns().to_le_bytes());
        let Some(to) = to else { return head };
        match to {
            SocketAddr::V4(to) => {
                put(&mut head, 2, [4]);
                put(&mut head, 16, to.ip().octets());
            }
            SocketAddr::V6(to) => {
                put(&mut head, 2, [6]);
                put(&mut head, 16, to.ip().octets());
                put(&mut head, 36, to.scope_id().to_le_bytes());
            }
        }
        put(&mut head, 32, to.port().to_le_bytes());
        head
    }

    /// Reads a request; `None`: it is none of this version.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Request<'_>> {
        let (head, bytes) = bytes.split_at_checked(HEAD)?;
        let [magic, kind, family, 0] = get(head, 0)? else { return None };
        let number = u32::from_le_bytes(get(head, 4)?);
        let rest = head.get(8..)?;
        if magic != MAGIC || kind != 3 && (family != 0 || !bytes.is_empty() || rest.iter().any(|byte| *byte != 0)) {
            return None;
        }
        let deadline = Time::from_ns(u64::from_le_bytes(get(head, 8)?));
        let port = u16::from_le_bytes(get(head, 32)?);
        let to = match family {
            0 => None,
            4 => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(get::<4>(head, 16)?)), port)),
            6 => {
                let (ip, scope) = (Ipv6Addr::from(get::<16>(head, 16)?), u32::from_le_bytes(get(head, 36)?));
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
            }
            _ => return None,
        };
        match kind {
            1 => Some(Request::Hello { version: number }),
            2 => Some(Request::Join { socket: number }),
            3 if bytes.len() <= MESSAGE_MAX => Some(Request::Send { socket: number, deadline, to, bytes }),
            4 => Some(Request::Leave { socket: number }),
            _ => None,
        }
    }
}

impl Answer {
    /// Its bytes.
    #[must_use]
    pub fn write(&self) -> [u8; ANSWER] {
        let mut into = [0; ANSWER];
        let (kind, number) = match *self {
            Answer::Welcome { version } => (1, version),
            Answer::Joined { socket } => (2, socket),
            Answer::Refused { socket, errno } => {
                put(&mut into, 40, errno.to_le_bytes());
                (3, socket)
            }
            Answer::Counts { socket, counts, has_left } => {
                for (at, count) in [(8, counts.sent), (16, counts.late), (24, counts.refused), (32, counts.bytes)] {
                    put(&mut into, at, count.to_le_bytes());
                }
                put(&mut into, 40, counts.errno.to_le_bytes());
                (if has_left { 5 } else { 4 }, socket)
            }
        };
        put(&mut into, 0, [MAGIC, kind]);
        put(&mut into, 4, number.to_le_bytes());
        into
    }

    /// Reads an answer; `None`: it is none of this version.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Answer> {
        let bytes: &[u8; ANSWER] = bytes.try_into().ok()?;
        let [MAGIC, kind, 0, 0] = get(bytes, 0)? else { return None };
        let number = u32::from_le_bytes(get(bytes, 4)?);
        let errno = i32::from_le_bytes(get(bytes, 40)?);
        match kind {
            1 => Some(Answer::Welcome { version: number }),
            2 => Some(Answer::Joined { socket: number }),
            3 => Some(Answer::Refused { socket: number, errno }),
            4 | 5 => {
                let count = |at| Some(u64::from_le_bytes(get(bytes, at)?));
                let counts =
                    BrokerCounts { sent: count(8)?, late: count(16)?, refused: count(24)?, bytes: count(32)?, errno };
                Some(Answer::Counts { socket: number, counts, has_left: kind == 5 })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(request: &Request<'_>) -> Vec<u8> {
        let mut all = request.head().to_vec();
        if let Request::Send { bytes, .. } = request {
            all.extend_from_slice(bytes);
        }
        all
    }

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        let bytes = b"forty-two";
        for to in [None, Some("10.0.0.7:80"), Some("[fe80::7%3]:65535")] {
            let to = to.map(|to| to.parse().unwrap());
            let request = Request::Send { socket: 9, deadline: Time::from_ns(u64::MAX), to, bytes };
            assert_eq!(Request::read(&bytes_of(&request)), Some(request));
        }
        for request in [Request::Hello { version: 1 }, Request::Join { socket: 2 }, Request::Leave { socket: u32::MAX }]
        {
            assert_eq!(Request::read(&bytes_of(&request)), Some(request));
            let longer = [&bytes_of(&request)[..], b"x"].concat();
            assert_eq!(Request::read(&longer), None);
        }
        let counts = BrokerCounts { sent: 1, late: 2, refused: 3, bytes: 4, errno: 5 };
        for answer in [
            Answer::Welcome { version: 1 },
            Answer::Joined { socket: 7 },
            Answer::Refused { socket: 7, errno: 24 },
            Answer::Counts { socket: 7, counts, has_left: false },
            Answer::Counts { socket: 7, counts, has_left: true },
        ] {
            assert_eq!(Answer::read(&answer.write()), Some(answer));
        }
    }

    #[test]
    fn too_long_a_message_is_none() {
        let bytes = vec![0; MESSAGE_MAX + 1];
        let request = Request::Send { socket: 0, deadline: Time::ZERO, to: None, bytes: &bytes };
        assert_eq!(Request::read(&bytes_of(&request)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..100),
            kind in 0u8..7,
        ) {
            for (at, value) in [MAGIC, kind].into_iter().enumerate() {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Some(request) = Request::read(&bytes) {
                let again = bytes_of(&request);
                prop_assert_eq!(Request::read(&again), Some(request));
            }
            bytes.resize(ANSWER, 0);
            if let Some(answer) = Answer::read(&bytes) {
                prop_assert_eq!(Answer::read(&answer.write()), Some(answer));
            }
        }
    }
}
