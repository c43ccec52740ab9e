//! A token bucket with the rule of HTB: a packet may start while tokens are not negative, and its
//! whole length is taken off. So tokens go down to minus the largest packet, and in any time t at
//! most σ + ρ t + that packet starts [HEDF II-C, erratum on HTB].
//!
//! Tokens are exact: a byte is 8 x 10^9 of them, and a nanosecond at one bit per second brings one.

use takt_model::{Bytes, Rate, Span, Time};
use thiserror::Error;

use crate::line::{time, work};

/// A bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketSpec {
    /// ρ.
    pub rate: Rate,
    /// σ: the most tokens.
    pub burst: Bytes,
}

/// Why a bucket cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BucketError {
    /// Rate zero.
    #[error("the rate of the token bucket is zero; give it at least 1bit")]
    NoRate,
    /// σ below the largest packet.
    #[error("the burst {burst} of the token bucket is smaller than its largest packet of {packet}; give at least that")]
    SmallBurst {
        /// σ.
        burst: Bytes,
        /// The largest packet.
        packet: Bytes,
    },
}

/// The tokens of a bucket.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: u64,
    full: i128,
    tokens: i128,
    /// When `tokens` was right.
    at: Time,
}

impl TokenBucket {
    /// A full bucket for packets of up to `packet_max`.
    ///
    /// # Errors
    /// If the rate is zero or the burst is smaller than the largest packet.
    pub fn new(spec: BucketSpec, packet_max: Bytes) -> Result<Self, BucketError> {
        if spec.rate.as_bps() == 0 {
            return Err(BucketError::NoRate);
        }
        if spec.burst < packet_max {
            return Err(BucketError::SmallBurst { burst: spec.burst, packet: packet_max });
        }
        let full = work(spec.burst.get()) as i128;
        Ok(TokenBucket { rate: spec.rate.as_bps(), full, tokens: full, at: Time::ZERO })
    }

    /// When a packet may start: `now` where tokens are not negative.
    #[must_use]
    pub fn ready_at(&self, now: Time) -> Time {
        let tokens = self.tokens_at(now);
        if tokens >= 0 { now } else { now.saturating_add(Span::from_ns(time(tokens.unsigned_abs(), self.rate))) }
    }

    /// A packet starts at `now`, whatever the tokens are.
    pub fn charge(&mut self, now: Time, bytes: Bytes) {
        self.tokens = self.tokens_at(now).saturating_sub(work(bytes.get()) as i128);
        self.at = now;
    }

    fn tokens_at(&self, now: Time) -> i128 {
        let gained = u128::from(self.rate) * u128::from(now.saturating_since(self.at).as_ns());
        let missing = self.full.saturating_sub(self.tokens).unsigned_abs();
        // Below `missing` the gain fits.
        if gained >= missing { self.full } else { self.tokens + gained as i128 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(rate: u64, burst: u64, packet: u64) -> TokenBucket {
        let spec = BucketSpec { rate: Rate::from_bps(rate), burst: Bytes::new(burst) };
        TokenBucket::new(spec, Bytes::new(packet)).unwrap()
    }

    #[test]
    fn tokens_go_below_zero_and_are_waited_for() {
        // A byte per microsecond.
        let mut bucket = bucket(8_000_000, 150, 100);
        let us = |us: u64| Time::from_ns(us * 1_000);
        for (now, ready) in [(0, 0), (0, 0), (0, 50)] {
            assert_eq!(bucket.ready_at(us(now)), us(ready));
            if ready == 0 {
                bucket.charge(us(0), Bytes::new(100));
            }
        }
        bucket.charge(us(50), Bytes::new(100));
        assert_eq!(bucket.ready_at(us(60)), us(150));
        // No more than 150 come together.
        bucket.charge(us(10_000), Bytes::new(100));
        bucket.charge(us(10_000), Bytes::new(100));
        assert_eq!(bucket.ready_at(us(10_000)), us(10_050));
    }

    #[test]
    fn bad_buckets_say_what_to_do() {
        let spec = |rate, burst| BucketSpec { rate: Rate::from_bps(rate), burst: Bytes::new(burst) };
        assert_eq!(TokenBucket::new(spec(0, 9), Bytes::new(1)).unwrap_err(), BucketError::NoRate);
        let small = TokenBucket::new(spec(1, 99), Bytes::new(100)).unwrap_err().to_string();
        assert!(small.contains("99B") && small.contains("at least"), "{small}");
        let huge = bucket(u64::MAX, u64::MAX, 1);
        assert_eq!(huge.ready_at(Time::MAX), Time::MAX);
    }

    proptest! {
        /// In any window no more than σ + ρ t + the largest packet starts, and a packet starts as soon
        /// as a bucket counted byte by byte allows.
        #[test]
        fn sends_are_bounded(
            rate in 1u64..1_000_000_000_000,
            burst in 1_000u64..5_000,
            sizes in proptest::collection::vec((1u64..1_000, 0u64..2_000), 1..60),
        ) {
            let mut bucket = bucket(rate, burst, 1_000);
            let mut now = Time::ZERO;
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for (bytes, pause) in sizes {
                now = bucket.ready_at(now.saturating_add(Span::from_ns(pause)));
                bucket.charge(now, Bytes::new(bytes));
                sent.push((now.as_ns(), bytes));
            }
            for (i, (from, _)) in sent.iter().enumerate() {
                let mut total = 0;
                for (to, bytes) in &sent[i..] {
                    total += bytes;
                    let tokens = work(burst) + u128::from(rate) * u128::from(to - from);
                    prop_assert!(work(total) <= tokens + work(1_000));
                    // The tokens before this packet were not negative.
                    prop_assert!(work(total - bytes) <= tokens);
                }
            }
        }
    }
}
