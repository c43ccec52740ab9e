//! The shared memory of clock-bound, versions 1 and 2. Numbers are those of the machine.
//!
//! | byte | holds |
//! |---|---|
//! | 0 | two words that mark the memory |
//! | 8, 12, 14 | its size; version; generation, odd while it is written |
//! | 16, 32 | two times of the monotonic clock: when the bound held, and when it expires |
//! | 48 | the bound, in nanoseconds |
//! | 56, 64 | version 1: growth in parts per billion; status |
//! | 56, 64, 68 | version 2: a marker of disruptions; growth and status, as in version 1 |
//!
//! takt does not compare the marker with that of /dev/vmclock0: the status tells of a disruption as
//! soon as the daemon has seen it. Version 3 (`shm1`) bounds another clock than CLOCK_REALTIME.
//!
//! Source: docs/PROTOCOL.md of the project clock-bound, and bytes that clock-bound-d 2.0.3 wrote.

use takt_model::{Span, Time};

use super::{ClockBoundary, ClockReport, SourceKind, Timescale, Unsynchronised, bytes};

/// Bytes that takt reads.
pub const LENGTH: usize = 72;

const MARK: [u32; 2] = [0x414d_5a4e, 0x4342_0200];
/// After so long without renewal the clock runs free, even if the bound expires later: nobody knows
/// how it is corrected meanwhile. Clients of clock-bound 3 take the same time, those of 2 take 5 s.
const RENEWED: Span = Span::from_s(60);

/// The generation in the memory. A report counts only if it was the same, even one before and after the
/// reading. `None`: this is no such memory.
#[must_use]
pub fn generation(memory: &[u8]) -> Option<u16> {
    let mark = [bytes(memory, 0)?, bytes(memory, 4)?].map(u32::from_ne_bytes);
    (mark == MARK).then(|| bytes(memory, 14).map(u16::from_ne_bytes))?
}

/// The report in the memory. `None`: it is of another version, is being written, or makes no sense.
#[must_use]
pub fn report(memory: &[u8]) -> Option<ClockReport> {
    let generation = generation(memory)?;
    if generation == 0 || generation % 2 == 1 {
        return None;
    }
    let (drift, status) = match bytes(memory, 12).map(u16::from_ne_bytes)? {
        1 => (bytes(memory, 56)?, bytes(memory, 64)?),
        2 => (bytes(memory, 64)?, bytes(memory, 68)?),
        _ => return None,
    };
    let report = |state| Some(ClockReport { source: SourceKind::ClockBound, state });
    match i32::from_ne_bytes(status) {
        0 => report(Err(Unsynchronised::NoSource)),
        1 => {
            let at = time(memory, 16)?;
            report(Ok(ClockBoundary {
                timescale: Timescale::Utc,
                error: Span::from_ns(u64::try_from(i64::from_ne_bytes(bytes(memory, 48)?)).ok()?),
                at,
                growth_ppb: u32::from_ne_bytes(drift),
                until: time(memory, 32)?.min(at.saturating_add(RENEWED)),
            }))
        }
        2 => report(Err(Unsynchronised::FreeRunning)),
        3 => report(Err(Unsynchronised::Disrupted)),
        _ => None,
    }
}

/// Seconds and nanoseconds at a byte.
fn time(memory: &[u8], at: usize) -> Option<Time> {
    let [seconds, ns] = [bytes(memory, at)?, bytes(memory, at + 8)?].map(i64::from_ne_bytes).map(u64::try_from);
    let ns = ns.ok().filter(|ns| *ns < 1_000_000_000)?;
    Some(Time::from_ns(seconds.ok()?.checked_mul(1_000_000_000)?.checked_add(ns)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(version: u16, generation: u16, status: i32) -> Vec<u8> {
        let mut memory = Vec::new();
        memory.extend(MARK.map(u32::to_ne_bytes).concat());
        memory.extend(80_u32.to_ne_bytes());
        memory.extend([version, generation].map(u16::to_ne_bytes).concat());
        memory.extend([5_i64, 250, 1005, 0, 12_345].map(i64::to_ne_bytes).concat());
        if version == 2 {
            memory.extend(0_u64.to_ne_bytes());
            memory.extend(50_000_u32.to_ne_bytes());
        } else {
            memory.extend(50_000_u32.to_ne_bytes());
            memory.extend(0_u32.to_ne_bytes());
        }
        memory.extend(status.to_ne_bytes());
        memory.resize(80, 0);
        memory
    }

    #[test]
    fn both_versions_say_the_same() {
        for version in [1, 2] {
            let state = |status| report(&memory(version, 4, status)).map(|report| report.state);
            let bound = state(1).unwrap().unwrap();
            assert_eq!((bound.error.as_ns(), bound.at.as_ns(), bound.growth_ppb), (12_345, 5_000_000_250, 50_000));
            // A second later: 50 us more.
            assert_eq!(bound.error_at(Time::from_ns(6_000_000_250)), Some(Span::from_ns(62_345)));
            assert!(bound.error_at(Time::from_ns(65_000_000_250)).is_some());
            assert_eq!(bound.error_at(Time::from_ns(65_000_000_251)), None, "nobody has renewed it for 60 s");
            assert_eq!(bound.error_at(Time::from_ns(5_000_000_249)), None, "another start of the machine");
            assert_eq!(state(0), Some(Err(Unsynchronised::NoSource)));
            assert_eq!(state(2), Some(Err(Unsynchronised::FreeRunning)));
            assert_eq!(state(3), Some(Err(Unsynchronised::Disrupted)));
            assert_eq!(state(4), None);
        }
        for generation in [0, 3] {
            assert_eq!(report(&memory(2, generation, 1)), None, "it is being written");
        }
        let mut short = memory(2, 4, 1);
        short[32..40].copy_from_slice(&7_i64.to_ne_bytes());
        assert_eq!(report(&short).unwrap().state.unwrap().until, Time::from_ns(7_000_000_000));
        assert_eq!(report(&memory(0x303, 4, 1)), None);
        let mut wrong = memory(2, 4, 1);
        wrong[0] ^= 1;
        assert_eq!((report(&wrong), generation(&wrong)), (None, None));
        for length in 0..LENGTH {
            assert_eq!(report(&memory(2, 4, 1)[..length]), None);
        }
        let mut negative = memory(2, 4, 1);
        negative[48..56].copy_from_slice(&(-1_i64).to_ne_bytes());
        assert_eq!(report(&negative), None);
    }

    /// Words that clock-bound-d 2.0.3 wrote to `shm0`, with a drift of 50 ppm beside chronyd 4.3. A
    /// file with the marker 77 stood for /dev/vmclock0. The signal SIGUSR1 feigned a disruption.
    #[cfg(target_endian = "little")]
    #[test]
    fn bytes_of_the_daemon_are_understood() {
        let mut words: [u64; 10] = [
            0x4342_0200_414d_5a4e,
            0x0048_0002_0000_0050,
            440,
            606_349_560,
            1440,
            0,
            13_592,
            77,
            0x0000_0001_0000_c350,
            1,
        ];
        let bound = ClockBoundary {
            timescale: Timescale::Utc,
            error: Span::from_ns(13_592),
            at: Time::from_ns(440_606_349_560),
            growth_ppb: 50_000,
            until: Time::from_ns(500_606_349_560),
        };
        let read = |words: [u64; 10]| report(&words.map(u64::to_ne_bytes).concat()).unwrap().state;
        assert_eq!(read(words), Ok(bound));
        (words[1], words[8]) = (0x004a_0002_0000_0050, 0x0000_0003_0000_c350);
        assert_eq!(read(words), Err(Unsynchronised::Disrupted));
    }
}
