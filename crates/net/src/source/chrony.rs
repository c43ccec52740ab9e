//! chronyd's command protocol, version 6: the request `tracking` and its answer. Numbers are
//! big-endian.
//!
//! | answer, byte | holds |
//! |---|---|
//! | 0, 1 | version 6, kind 2 |
//! | 4, 6, 8 | command 33, reply 5, status 0, of two bytes each |
//! | 16 | the request's number |
//! | 28 | reference identity |
//! | 52, 54 | stratum; leap status, of which 3 says that the clock is not synchronised |
//! | 68 | floating-point numbers of four bytes: correction, three of frequency and offset ... |
//! | 92, 96 | root delay, root dispersion |
//!
//! A number has a signed exponent of 7 bits and a signed coefficient of 25 bits. It is the coefficient
//! times 2^(exponent - 25), in seconds.
//!
//! **Bound.** |correction| + root dispersion + root delay / 2. The manual of chronyc (`tracking`) gives
//! this as the clock's largest error.

use takt_model::{Span, Time};

use super::{ClockBoundary, ClockReport, GROWTH_PPB, SourceKind, Timescale, Unsynchronised, bytes};

/// Bytes of a request and of its answer: a request must not be shorter.
pub const LENGTH: usize = 104;

const VERSION: u8 = 6;
const TRACKING: u16 = 33;
const TRACKING_REPLY: u16 = 5;
const NOT_SYNCHRONISED: u16 = 3;
/// The reference identity of `local`: 127.127.1.1.
const LOCAL: [u8; 4] = [127, 127, 1, 1];
/// A bound is used for so long. The program is asked more often.
const USED_FOR: Span = Span::from_s(10);

/// The request `tracking`.
#[must_use]
pub fn request(number: u32) -> [u8; LENGTH] {
    let mut request = [0; LENGTH];
    let [a, b] = TRACKING.to_be_bytes();
    let [p, q, r, s] = number.to_be_bytes();
    for (place, byte) in request.iter_mut().zip([VERSION, 1, 0, 0, a, b, 0, 0, p, q, r, s]) {
        *place = byte;
    }
    request
}

/// The report in an answer to request `number`, which came at `now` of CLOCK_MONOTONIC. `None`: it is no
/// such answer.
#[must_use]
pub fn report(answer: &[u8], number: u32, now: Time) -> Option<ClockReport> {
    let word = |at| bytes(answer, at).map(u16::from_be_bytes);
    if answer.len() < LENGTH
        || [answer[0], answer[1]] != [VERSION, 2]
        || [word(4)?, word(6)?, word(8)?] != [TRACKING, TRACKING_REPLY, 0]
        || bytes(answer, 16).map(u32::from_be_bytes)? != number
    {
        return None;
    }
    let report = |state| Some(ClockReport { source: SourceKind::Chrony, state });
    let reference: [u8; 4] = bytes(answer, 28)?;
    if word(54)? == NOT_SYNCHRONISED || reference == [0; 4] {
        return report(Err(Unsynchronised::NoSource));
    }
    if reference == LOCAL {
        return report(Err(Unsynchronised::OwnClock));
    }
    let number = |at| bytes(answer, at).map(u32::from_be_bytes);
    let [correction, delay, dispersion] = [number(68)?, number(92)?, number(96)?].map(half_nanoseconds);
    if delay < 0 || dispersion < 0 {
        return None;
    }
    // All are in halves of nanoseconds.
    let halves = u128::from(correction.unsigned_abs()) + u128::from(dispersion.unsigned_abs());
    let error = (halves + u128::from(delay.unsigned_abs()).div_ceil(2)).div_ceil(2);
    report(Ok(ClockBoundary {
        timescale: Timescale::Utc,
        error: Span::from_ns(u64::try_from(error).unwrap_or(u64::MAX)),
        at: now,
        growth_ppb: GROWTH_PPB,
        until: now.saturating_add(USED_FOR),
    }))
}

/// A floating-point number of seconds in halves of nanoseconds, rounded away from zero. Beyond 64
/// bits: the nearest that there is.
fn half_nanoseconds(bits: u32) -> i64 {
    let exponent = (bits.cast_signed() >> 25) - 25;
    let coefficient = i128::from((bits << 7).cast_signed() >> 7) * 2_000_000_000;
    let size = coefficient.unsigned_abs();
    let scaled = if exponent >= 0 { size << exponent } else { size.div_ceil(1 << -exponent) };
    let scaled = i64::try_from(scaled).unwrap_or(i64::MAX);
    if coefficient < 0 { -scaled } else { scaled }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of coefficient * 2^(exponent - 25).
    fn number(exponent: i32, coefficient: i32) -> u32 {
        (exponent << 25).cast_unsigned() | (coefficient.cast_unsigned() & 0x01ff_ffff)
    }

    #[test]
    fn numbers_are_rounded_away_from_zero() {
        let cases = [
            (number(0, 0), 0),
            (number(25, 1), 2_000_000_000),
            (number(25, -3), -6_000_000_000),
            (number(24, 1), 1_000_000_000),
            // 2^-30 s is 1.86 halves of a nanosecond.
            (number(-5, 1), 2),
            (number(-5, -1), -2),
            (number(-64, 1), 1),
            (number(63, 0x00ff_ffff), i64::MAX),
            (number(63, -0x0100_0000), -i64::MAX),
        ];
        for (bits, halves) in cases {
            assert_eq!(half_nanoseconds(bits), halves, "{bits:#010x}");
        }
    }

    fn answer(reference: [u8; 4], leap: u16, numbers: [(usize, u32); 3]) -> [u8; LENGTH] {
        let mut answer = [0; LENGTH];
        answer[..10].copy_from_slice(&[6, 2, 0, 0, 0, 33, 0, 5, 0, 0]);
        answer[16..20].copy_from_slice(&7_u32.to_be_bytes());
        answer[28..32].copy_from_slice(&reference);
        answer[54..56].copy_from_slice(&leap.to_be_bytes());
        for (at, bits) in numbers {
            answer[at..at + 4].copy_from_slice(&bits.to_be_bytes());
        }
        answer
    }

    #[test]
    fn the_bound_is_correction_dispersion_and_half_the_delay() {
        let now = Time::from_ns(500);
        // 2^-10 s, 2^-11 s and 2^-12 s, each rounded up.
        let numbers = [(68, number(15, -1)), (92, number(14, 1)), (96, number(13, 1))];
        let report = |answer: &[u8]| report(answer, 7, now);
        let bound = report(&answer([10, 0, 0, 1], 0, numbers)).unwrap().state.unwrap();
        assert_eq!((bound.error, bound.at), (Span::from_ns(1_464_845), now));
        assert_eq!(bound.error_at(now + Span::from_ms(1)), Some(Span::from_ns(1_464_895)));
        assert_eq!(bound.error_at(now + Span::from_s(11)), None);
        let state = |reference, leap| report(&answer(reference, leap, numbers)).unwrap().state;
        assert_eq!(state([10, 0, 0, 1], 3), Err(Unsynchronised::NoSource));
        assert_eq!(state([0; 4], 0), Err(Unsynchronised::NoSource));
        assert_eq!(state(LOCAL, 0), Err(Unsynchronised::OwnClock));
        // A negative delay, another number, a refusal, and too few bytes.
        assert_eq!(report(&answer([10, 0, 0, 1], 0, [(68, 0), (92, number(0, -1)), (96, 0)])), None);
        let good = answer([10, 0, 0, 1], 0, numbers);
        assert_eq!(super::report(&good, 8, now), None);
        for (at, byte) in [(0, 5), (1, 1), (5, 34), (7, 6), (9, 1)] {
            let mut wrong = good;
            wrong[at] = byte;
            assert_eq!(report(&wrong), None, "byte {at}");
        }
        assert_eq!(report(&good[..LENGTH - 1]), None);
        assert_eq!(request(7).len(), LENGTH);
    }
}
