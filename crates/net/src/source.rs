//! Reports of programs about the accuracy of CLOCK_REALTIME: [`chrony`], [`ptp4l`] and
//! [`clock_bound`].
//!
//! The modules write requests and read answers; the caller has the sockets. A [`ClockReport`] is a
//! claim of its program. An exchange of the [time-difference table](crate::TimeTable) proves its
//! interval; a claim does not. Layouts are facts from public documentation and from packets of the
//! programs; no code of theirs is here.

use std::fmt;

use takt_model::{Span, Time};

pub mod chrony;
pub mod clock_bound;
pub mod ptp4l;

/// A bound grows by so much while its program does not renew it, in parts per billion. 50 ppm is
/// also what clock-bound takes by default.
pub const GROWTH_PPB: u32 = 50_000;

/// A program that synchronises CLOCK_REALTIME, in the order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SourceKind {
    /// ptp4l of linuxptp.
    Ptp4l,
    /// The shared memory of clock-bound.
    ClockBound,
    /// chronyd.
    Chrony,
}

impl SourceKind {
    /// Its number in messages, above zero.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            SourceKind::ClockBound => 1,
            SourceKind::Chrony => 2,
            SourceKind::Ptp4l => 3,
        }
    }

    /// The source with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<SourceKind> {
        [SourceKind::ClockBound, SourceKind::Chrony, SourceKind::Ptp4l]
            .into_iter()
            .find(|source| source.number() == number)
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SourceKind::ClockBound => "clock-bound",
            SourceKind::Chrony => "chrony",
            SourceKind::Ptp4l => "ptp4l",
        })
    }
}

/// The time that a clock follows. Claims compare only clocks of one timescale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timescale {
    /// UTC.
    Utc,
    /// The clock of a grandmaster of PTP.
    Grandmaster([u8; 8]),
}

impl Timescale {
    /// Its number in messages: zero is UTC.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Timescale::Utc => 0,
            Timescale::Grandmaster(identity) => u64::from_be_bytes(identity),
        }
    }

    /// The timescale with this number.
    #[must_use]
    pub fn of_number(number: u64) -> Timescale {
        match number {
            0 => Timescale::Utc,
            number => Timescale::Grandmaster(number.to_be_bytes()),
        }
    }
}

impl fmt::Display for Timescale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timescale::Utc => f.write_str("UTC"),
            // As linuxptp writes it.
            Timescale::Grandmaster([a, b, c, d, e, g, h, i]) => {
                write!(f, "{a:02x}{b:02x}{c:02x}.{d:02x}{e:02x}.{g:02x}{h:02x}{i:02x}")
            }
        }
    }
}

/// How far CLOCK_REALTIME is from its timescale at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockBoundary {
    /// The timescale.
    pub timescale: Timescale,
    /// The bound at `at`.
    pub error: Span,
    /// When it held, on CLOCK_MONOTONIC.
    pub at: Time,
    /// From then on it grows by so much, in parts per billion.
    pub growth_ppb: u32,
    /// It must not be used after this time of CLOCK_MONOTONIC.
    pub until: Time,
}

impl ClockBoundary {
    /// The bound at `now`; `None` if it has expired or lies in the future.
    #[must_use]
    pub fn error_at(&self, now: Time) -> Option<Span> {
        if now > self.until || now < self.at {
            return None;
        }
        let age = u128::from(now.saturating_since(self.at).as_ns());
        let grown = (age * u128::from(self.growth_ppb)).div_ceil(1_000_000_000);
        Some(self.error.saturating_add(Span::from_ns(u64::try_from(grown).unwrap_or(u64::MAX))))
    }
}

/// Why a program gives no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsynchronised {
    /// It has no source of time.
    NoSource,
    /// It serves the time of its own clock, which follows nothing (`local` of chrony).
    OwnClock,
    /// It no longer corrects the clock.
    FreeRunning,
    /// The machine was moved, suspended or restored.
    Disrupted,
    /// Its last value is too old.
    Expired,
    /// It synchronises another clock than CLOCK_REALTIME (time stamps of hardware).
    OtherClock,
    /// It has not measured how long messages take from its master.
    NoDelay,
    /// A boundary clock of PTP stands between it and the grandmaster. Its errors are not known.
    BoundaryClock,
    /// A port of PTP that does not follow a master, with its state's number (IEEE 1588, Table 20).
    PortState(u8),
}

impl fmt::Display for Unsynchronised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unsynchronised::NoSource => "it has no source of time",
            Unsynchronised::OwnClock => "it serves its own clock, which follows nothing",
            Unsynchronised::FreeRunning => "the clock runs free",
            Unsynchronised::Disrupted => "the clock was disrupted",
            Unsynchronised::Expired => "its last value is too old",
            Unsynchronised::OtherClock => "it synchronises a clock of the device, not CLOCK_REALTIME",
            Unsynchronised::NoDelay => "it has measured no path delay",
            Unsynchronised::BoundaryClock => "a boundary clock is between it and the grandmaster",
            Unsynchronised::PortState(1) => "its port is initialising",
            Unsynchronised::PortState(2) => "its port is faulty",
            Unsynchronised::PortState(3) => "its port is disabled",
            Unsynchronised::PortState(4) => "its port listens for a master",
            Unsynchronised::PortState(5) => "its port is about to be a master",
            Unsynchronised::PortState(6) => "its port is a master, but the clock is no grandmaster",
            Unsynchronised::PortState(7) => "its port is passive",
            Unsynchronised::PortState(8) => "its port is not calibrated yet, or may not correct the clock",
            Unsynchronised::PortState(_) => "its port is in an unknown state",
        })
    }
}

/// A program's report on CLOCK_REALTIME.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReport {
    /// The program.
    pub source: SourceKind,
    /// The bound, or why there is none.
    pub state: Result<ClockBoundary, Unsynchronised>,
}

impl ClockReport {
    /// The same, with a bound that has expired by `now` as that.
    #[must_use]
    pub fn at(self, now: Time) -> ClockReport {
        match self.state {
            Ok(bound) if bound.error_at(now).is_none() => ClockReport { state: Err(Unsynchronised::Expired), ..self },
            _ => self,
        }
    }
}

/// The bytes from `at` on.
fn bytes<const N: usize>(of: &[u8], at: usize) -> Option<[u8; N]> {
    of.get(at..at.checked_add(N)?)?.try_into().ok()
}
