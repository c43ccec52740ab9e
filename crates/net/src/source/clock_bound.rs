//! The shared memory of clock-bound, versions 1 and 2. Numbers are those of the machine.
//!
//! | byte | holds |
//! |---|---|
//! | 0 | two words that mark the memory |
//! | 8, 12, 14 | its size; version; generation, odd while it is written |
//! | 16, 32 | two times of CLOCK_MONOTONIC_COARSE: when the bound held, and when it expires |
//! | 48 | the bound, in nanoseconds |
//! | 56, 64 | version 1: growth in parts per billion; status |
//! | 64, 68 | version 2: the same |
//!
//! Source: docs/PROTOCOL.md of the project clock-bound.

use takt_model::{Span, Time};

use super::{ClockBoundary, ClockReport, SourceKind, Timescale, Unsynchronised, bytes};

/// Bytes that takt reads.
pub const LENGTH: usize = 72;

const MARK: [u32; 2] = [0x414d_5a4e, 0x4342_0200];

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
        1 => report(Ok(ClockBoundary {
            timescale: Timescale::Utc,
            error: Span::from_ns(u64::try_from(i64::from_ne_bytes(bytes(memory, 48)?)).ok()?),
            at: time(memory, 16)?,
            growth_ppb: u32::from_ne_bytes(drift),
            until: time(memory, 32)?,
        })),
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
            assert_eq!(bound.error_at(Time::from_ns(1_005_000_000_001)), None);
            assert_eq!(bound.error_at(Time::from_ns(5_000_000_249)), None, "another start of the machine");
            assert_eq!(state(0), Some(Err(Unsynchronised::NoSource)));
            assert_eq!(state(2), Some(Err(Unsynchronised::FreeRunning)));
            assert_eq!(state(3), Some(Err(Unsynchronised::Disrupted)));
            assert_eq!(state(4), None);
        }
        for generation in [0, 3] {
            assert_eq!(report(&memory(2, generation, 1)), None, "it is being written");
        }
        assert_eq!(report(&memory(3, 4, 1)), None);
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
}
