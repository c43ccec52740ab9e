//! Management messages of PTP (IEEE 1588-2008, clause 15) as ptp4l answers them on its Unix socket.
//! Numbers are big-endian.
//!
//! | byte of an answer | holds |
//! |---|---|
//! | 0, 1, 2 | message type 13; version 2; length of two bytes |
//! | 4, 30 | domain; number of the request |
//! | 46 | action: 0 asks, 2 answers |
//! | 48, 50, 52 | kind 1, length and identity of the data; two bytes each |
//! | 54 | the data |
//!
//! | data | takt reads |
//! |---|---|
//! | DEFAULT_DATA_SET 0x2000 | ports at 2, own identity at 10 |
//! | CURRENT_DATA_SET 0x2001 | steps to the grandmaster at 0, mean path delay at 10, in nanoseconds / 2^16 |
//! | TIME_STATUS_NP 0xC000, of linuxptp | offset at 0, last message at 8, grandmaster at 38 and 42 |
//! | PORT_DATA_SET 0x2004 | number at 8, delay to the peer at 12, in nanoseconds / 2^16 |
//! | PORT_PROPERTIES_NP 0xC004, of linuxptp | number at 8, state at 10, kind of time stamps at 11 |
//!
//! **Bound.** |offset| + path delay. The offset is the time that the last Sync message seems to take,
//! less the path delay, which ptp4l filters. So the bound holds if this message took at most twice the
//! path delay. A boundary clock on the way to the grandmaster (more than one step) adds errors that ptp4l
//! does not know, so there is no bound.
//!
//! **Path delay.** If ports measure the delay to their peers (P2P), ptp4l leaves the mean path delay at
//! zero. If both are zero, it has measured none, and there is no bound.
//!
//! The clock of a grandmaster is its timescale.

use takt_model::{Span, Time};

use super::{ClockBoundary, ClockReport, GROWTH_PPB, SourceKind, Timescale, Unsynchronised, bytes};

/// Bytes of a request.
pub const REQUEST: usize = 54;
/// Domains that are asked, from zero.
pub const DOMAINS: u8 = 128;

const SLAVE: u8 = 9;
const MASTER: u8 = 6;
const SOFTWARE: u8 = 0;
/// More ports than a clock can have.
const PORTS_MAX: usize = 1 << 16;
/// A bound is used for so long after the master's last message.
const USED_FOR: Span = Span::from_s(10);

/// The requested data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// DEFAULT_DATA_SET.
    Default,
    /// CURRENT_DATA_SET.
    Current,
    /// TIME_STATUS_NP.
    TimeStatus,
    /// PORT_DATA_SET: an answer for each port.
    PortData,
    /// PORT_PROPERTIES_NP: an answer for each port.
    Ports,
}

impl Question {
    /// All that a report needs.
    pub const ALL: [Question; 5] =
        [Question::Default, Question::Current, Question::TimeStatus, Question::PortData, Question::Ports];

    fn identity(self) -> u16 {
        match self {
            Question::Default => 0x2000,
            Question::Current => 0x2001,
            Question::PortData => 0x2004,
            Question::TimeStatus => 0xc000,
            Question::Ports => 0xc004,
        }
    }
}

/// A request, for all clocks and ports of a domain that the socket reaches.
#[must_use]
pub fn request(question: Question, domain: u8, number: u16) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    let [high, low] = number.to_be_bytes();
    let [from, to] = question.identity().to_be_bytes();
    let parts: [(usize, &[u8]); 6] = [
        (0, &[0x0d, 2, 0, REQUEST as u8, domain]),
        // The asker is port 1 of no clock.
        (28, &[0, 1, high, low, 4, 0x7f]),
        (34, &[0xff; 10]),
        // No boundary hops; action: get.
        (44, &[0, 0, 0]),
        (48, &[0, 1, 0, 2]),
        (52, &[from, to]),
    ];
    for (at, part) in parts {
        for (place, byte) in request.iter_mut().skip(at).zip(part) {
            *place = *byte;
        }
    }
    request
}

/// The contents of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// DEFAULT_DATA_SET.
    Default {
        /// Number of ports.
        ports: u16,
        /// Identity of the clock.
        identity: [u8; 8],
    },
    /// CURRENT_DATA_SET.
    Current {
        /// How many steps the grandmaster is away; one: it is the master.
        steps: u16,
        /// The mean path delay to the master, rounded up; zero: none is measured.
        delay: Span,
    },
    /// TIME_STATUS_NP.
    TimeStatus {
        /// Own time - that of the master, in nanoseconds.
        offset: i64,
        /// When the master's last message came, on CLOCK_REALTIME in nanoseconds; 0: never.
        last: u64,
        /// The grandmaster, if it is another clock.
        grandmaster: Option<[u8; 8]>,
    },
    /// PORT_DATA_SET.
    PortData {
        /// The port's number.
        number: u16,
        /// The delay to its peer, rounded up; zero: none is measured.
        delay: Span,
    },
    /// PORT_PROPERTIES_NP.
    Port {
        /// The port's number.
        number: u16,
        /// The port's state.
        state: u8,
        /// Whether software stamps its packets, on CLOCK_REALTIME.
        is_software: bool,
    },
}

/// The domain, number and contents of an answer. `None`: it is none, or refuses.
#[must_use]
pub fn answer(message: &[u8]) -> Option<(u8, u16, Answer)> {
    let head: [u8; 5] = bytes(message, 0)?;
    let word = |at| bytes(message, at).map(u16::from_be_bytes);
    if head[0] & 0x0f != 0x0d || head[1] & 0x0f != 2 || message.get(46)? & 0x0f != 2 || word(48)? != 1 {
        return None;
    }
    let data = message.get(54..)?;
    let long = |at| bytes(data, at).map(i64::from_be_bytes);
    let answer = match word(52)? {
        0x2000 => Answer::Default { ports: bytes(data, 2).map(u16::from_be_bytes)?, identity: bytes(data, 10)? },
        0x2001 => Answer::Current { steps: bytes(data, 0).map(u16::from_be_bytes)?, delay: delay(long(10)?) },
        0x2004 => Answer::PortData { number: bytes(data, 8).map(u16::from_be_bytes)?, delay: delay(long(12)?) },
        0xc000 => Answer::TimeStatus {
            offset: long(0)?,
            last: u64::try_from(long(8)?).ok()?,
            grandmaster: match bytes(data, 38)? {
                [0, 0, 0, 0] => None,
                _ => Some(bytes(data, 42)?),
            },
        },
        0xc004 => Answer::Port {
            number: bytes(data, 8).map(u16::from_be_bytes)?,
            state: *data.get(10)?,
            is_software: *data.get(11)? == SOFTWARE,
        },
        _ => return None,
    };
    Some((head[4], word(30)?, answer))
}

/// A delay in nanoseconds / 2^16, rounded up. A negative one is wrong, and counts as none.
fn delay(scaled: i64) -> Span {
    Span::from_ns(u64::try_from(scaled).unwrap_or(0).div_ceil(1 << 16))
}

/// The answers of a clock, as far as they have come.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Answers {
    identity: Option<[u8; 8]>,
    ports_expected: usize,
    /// Steps to the grandmaster, and the mean path delay.
    current: Option<(u16, Span)>,
    status: Option<(i64, u64, Option<[u8; 8]>)>,
    /// Number, state, and whether software stamps.
    ports: Vec<(u16, u8, bool)>,
    /// Number, and the delay to the peer.
    peers: Vec<(u16, Span)>,
}

impl Answers {
    /// One more.
    pub fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Default { ports, identity } => {
                self.ports_expected = usize::from(ports);
                self.identity = Some(identity);
            }
            Answer::Current { steps, delay } => self.current = Some((steps, delay)),
            Answer::TimeStatus { offset, last, grandmaster } => self.status = Some((offset, last, grandmaster)),
            Answer::PortData { number, delay } if self.peers.len() < PORTS_MAX => self.peers.push((number, delay)),
            Answer::Port { number, state, is_software } if self.ports.len() < PORTS_MAX => {
                self.ports.push((number, state, is_software));
            }
            Answer::PortData { .. } | Answer::Port { .. } => {}
        }
    }

    /// Whether all have come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let all = self.identity.is_some() && self.current.is_some() && self.status.is_some();
        all && self.ports.len().min(self.peers.len()) >= self.ports_expected
    }

    /// The measured delay between a port and its master or its peer.
    fn path_delay(&self, port: u16) -> Option<Span> {
        let peer = self.peers.iter().filter(|(number, _)| *number == port).map(|(_, delay)| *delay);
        peer.chain(self.current.map(|(_, delay)| delay)).max().filter(|delay| !delay.is_zero())
    }

    /// The report at `now` of CLOCK_MONOTONIC. CLOCK_REALTIME shows `realtime` nanoseconds then. `None`:
    /// answers are missing.
    #[must_use]
    pub fn report(&self, now: Time, realtime: u64) -> Option<ClockReport> {
        if !self.is_complete() {
            return None;
        }
        let (identity, (offset, last, grandmaster)) = (self.identity?, self.status?);
        let wanted = if grandmaster.is_some() { SLAVE } else { MASTER };
        let following = self.ports.iter().find(|(_, state, _)| *state == wanted);
        let state = match (following, grandmaster) {
            (None, _) => Err(Unsynchronised::PortState(self.ports.first().map_or(0, |(_, state, _)| *state))),
            (Some((.., false)), _) => Err(Unsynchronised::OtherClock),
            (Some(_), None) => Ok(ClockBoundary {
                timescale: Timescale::Grandmaster(identity),
                error: Span::ZERO,
                at: now,
                growth_ppb: 0,
                until: now.saturating_add(USED_FOR),
            }),
            (Some(_), Some(_)) if self.current.is_some_and(|(steps, _)| steps > 1) => {
                Err(Unsynchronised::BoundaryClock)
            }
            (Some((port, ..)), Some(grandmaster)) => match (self.path_delay(*port), realtime.checked_sub(last)) {
                (None, _) => Err(Unsynchronised::NoDelay),
                (Some(delay), Some(age)) if last > 0 && age <= USED_FOR.as_ns() => {
                    let at = Time::from_ns(now.as_ns().saturating_sub(age));
                    Ok(ClockBoundary {
                        timescale: Timescale::Grandmaster(grandmaster),
                        error: Span::from_ns(offset.unsigned_abs()).saturating_add(delay),
                        at,
                        growth_ppb: GROWTH_PPB,
                        until: at.saturating_add(USED_FOR),
                    })
                }
                _ => Err(Unsynchronised::Expired),
            },
        };
        Some(ClockReport { source: SourceKind::Ptp4l, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of ptp4l 3.1.1: a clock that measures its offset to a grandmaster, and corrects nothing.
    /// The last but one, PORT_DATA_SET, is written by hand.
    const MEASURED: [&str; 5] = [
        "0d02004a07000000000000000000000000000000c60e41fffebd008900000003047f000000000000000037ad00000200\
         0001001620000300000180fffeffff80c60e41fffebd00890700",
        "0d02004807000000000000000000000000000000c60e41fffebd008900000001047f000000000000000037ad00000200\
         0001001420010001ffffffffff4700000000000008580000",
        "0d02006807000000000000000000000000000000c60e41fffebd008900000000047f000000000000000037ad00000200\
         00010034c000fffffffffffffed018ec1f30ab54e52d0000000000000000000000000000000000000000000000000001\
         525caffffe487cb5",
        "0d02005007000000000000000000000000000000c60e41fffebd008900010004047f000000000000000037ad00000200\
         0001001c2004c60e41fffebd0089000108fd0000000000000000fd03fd010002",
        "0d02004607000000000000000000000000000000c60e41fffebd008900010002047f000000000000000037ad00000200\
         00010012c004c60e41fffebd00890001080002766200",
    ];
    /// The same of the grandmaster.
    const GRANDMASTER: [&str; 5] = [
        "0d02004a07000000000000000000000000000000525caffffe487cb500000003047f000000000000000038d600000200\
         0001001620000100000101f8feffff80525caffffe487cb50700",
        "0d02004807000000000000000000000000000000525caffffe487cb500000001047f000000000000000038d600000200\
         0001001420010000000000000000000000000000000000",
        "0d02006807000000000000000000000000000000525caffffe487cb500000000047f000000000000000038d600000200\
         00010034c000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
         525caffffe487cb5",
        "0d02005007000000000000000000000000000000525caffffe487cb500010004047f000000000000000038d600000200\
         0001001c2004525caffffe487cb5000106fd0000000000000000fd03fd010002",
        "0d02004607000000000000000000000000000000525caffffe487cb500010002047f000000000000000038d600000200\
         00010012c004525caffffe487cb50001060002766100",
    ];
    const LAST: u64 = 0x18ec_1f30_ab54_e52d;

    fn packet(hex: &str) -> Vec<u8> {
        let mut packet: Vec<u8> =
            (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
        // Rests of data that is not read.
        packet.resize(packet.len() + 2, 0);
        packet
    }

    fn answers(packets: &[Vec<u8>]) -> Answers {
        let mut answers = Answers::default();
        for packet in packets {
            assert!(!answers.is_complete());
            let (domain, _, answer) = answer(packet).unwrap();
            assert_eq!(domain, 7);
            answers.take(answer);
        }
        assert!(answers.is_complete());
        answers
    }

    #[test]
    fn answers_of_ptp4l_make_a_report() {
        let mut packets = MEASURED.map(packet);
        let now = Time::from_ns(50_000_000_000);
        let state = |packets: &[Vec<u8>], realtime| answers(packets).report(now, realtime).unwrap().state;
        assert_eq!(state(&packets, LAST), Err(Unsynchronised::PortState(8)));
        // Its port follows the master.
        packets[4][64] = SLAVE;
        let bound = state(&packets, LAST + 1_000_000_000).unwrap();
        // An offset of -304 ns, a delay of 2136 ns, and a second at 50 ppm.
        assert_eq!(bound.error, Span::from_ns(304 + 2136));
        assert_eq!(bound.error_at(now), Some(Span::from_ns(304 + 2136 + 50_000)));
        assert_eq!(bound.timescale.to_string(), "525caf.fffe.487cb5");
        assert_eq!(Timescale::of_number(bound.timescale.number()), bound.timescale);
        assert_eq!(state(&packets, LAST + 10_000_000_001), Err(Unsynchronised::Expired));
        assert_eq!(state(&packets, LAST - 1), Err(Unsynchronised::Expired), "CLOCK_REALTIME was set");
        // Its port measures the delay to its peer: 4096 ns. The mean path delay is none then.
        packets[3][66..74].copy_from_slice(&(4096_i64 << 16).to_be_bytes());
        packets[1][64..72].copy_from_slice(&0_i64.to_be_bytes());
        assert_eq!(state(&packets, LAST).unwrap().error, Span::from_ns(304 + 4096));
        for nothing in [0, -1_i64] {
            packets[3][66..74].copy_from_slice(&nothing.to_be_bytes());
            assert_eq!(state(&packets, LAST), Err(Unsynchronised::NoDelay));
        }
        packets[1][55] = 2;
        assert_eq!(state(&packets, LAST), Err(Unsynchronised::BoundaryClock));
        packets[4][65] = 1;
        assert_eq!(state(&packets, LAST), Err(Unsynchronised::OtherClock));
        let mut packets = GRANDMASTER.map(packet);
        let own = state(&packets, LAST).unwrap();
        assert_eq!((own.timescale, own.error_at(now)), (bound.timescale, Some(Span::ZERO)));
        packets[4][64] = 4;
        assert_eq!(state(&packets, LAST), Err(Unsynchronised::PortState(4)));
    }

    #[test]
    fn bytes_that_are_no_answer_are_none() {
        for question in Question::ALL {
            assert_eq!(answer(&request(question, 0, 1)), None, "a request");
        }
        let good = packet(MEASURED[2]);
        // Another message, another version, a request, a refusal, and other data.
        for (at, byte) in [(0, 0x0b), (1, 1), (46, 0), (49, 2), (53, 9)] {
            let mut wrong = good.clone();
            wrong[at] = byte;
            assert_eq!(answer(&wrong), None, "byte {at}");
        }
        for length in 0..104 {
            assert_eq!(answer(&good[..length]), None, "{length} bytes");
        }
        assert_eq!(Answers::default().report(Time::ZERO, 0), None);
    }
}
