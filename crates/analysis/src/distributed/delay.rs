//! How long messages take at most: through a token bucket as HTB keeps it, and through a port of a switch.
//!
//! Traffic is bounded by (σ, ρ): at most `burst + rate t` bytes in any closed window of t [R. L.
//! Cruz, A Calculus for Network Delay, 1991], whole packets counted at the instant at which their
//! last bit arrives. Every result is a bound, rounded up to whole bytes, bits/s or ns.
//!
//! **The bucket.** HTB sends a packet while tokens are not negative, and takes its length off:
//! tokens go down to -L, L the largest packet. So at most σ + ρ t + L leaves in t
//! ([`Bucket::output`]). Let s be the start of a backlog; tokens are then at least -L. At u > s let
//! v be the last instant with negative tokens. Until v more than ρ (v - s) - L bytes were sent.
//! After v at most one packet of another class, L', holds the link of rate C. So by u at least ρ (u -
//! s) - L - ρ L' / C bytes have been sent, or all of the backlog: a service of rate ρ after L / ρ +
//! L' / C. (Tokens that come while the bucket is full are lost. From the last instant w before v
//! with a full bucket, σ + ρ (v - w) bytes are sent by v, and at w the claim held. So the proof
//! needs σ >= ρ L' / C: the tokens that come during another packet. With less, no bound is given.)
//! - FIFO: a packet of length l in traffic (b, r), r <= ρ, finds at most b + r (a - s) - l before
//!   it at its arrival a. It leaves the queue within (b - l + L) / ρ + L' / C, and the link l / C
//!   later ([`Bucket::fifo`]).
//! - Any order: while a packet of length l waits, less than b + r (u - s) - l bytes have been sent by
//!   u. With the service above, u - s < (b - l + L + ρ L' / C) / (ρ - r). So it leaves the queue
//!   within that, and the link l / C later, if r < ρ ([`Bucket::any`]).
//!
//! **A port** of rate C sends what it has after a latency T. Under any order of service, traffic
//! (b, r) beside (b', r') gets the rest of the link: a rate of C - r' after (C T + b' + l) / (C - r').
//! Here l counts for packets that are passed on whole. The others must be bounded at the port, so the
//! bound is sound for any traffic with a known bound there ([`Port::delay`]). [`row`](super::row) has
//! bounds for ports in a row, which many pairs of nodes share.

/// Bytes to bit-nanoseconds per second: 8 x 10^9.
pub(super) const SCALE: u128 = 8_000_000_000;

/// A bound of traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes at once.
    pub burst: u64,
    /// Bits per second.
    pub rate: u64,
}

/// The time that `bytes` take at `rate` bits/s, in ns, rounded up; `None` for rate 0 or above `u64`.
#[must_use]
pub fn time(bytes: u64, rate: u64) -> Option<u64> {
    u64::try_from((u128::from(bytes) * SCALE).checked_next_multiple_of(u128::from(rate))? / u128::from(rate)).ok()
}

/// The bytes of `rate` bits/s in `time` ns, rounded up; `None` above `u64`.
#[must_use]
pub fn bytes(rate: u64, time: u64) -> Option<u64> {
    u64::try_from((u128::from(rate) * u128::from(time)).div_ceil(SCALE)).ok()
}

impl Traffic {
    /// Messages of `size` bytes that leave `gap` ns apart but for up to `jitter` ns: floor((t + J) / G) + 1 in t.
    #[must_use]
    pub fn of_messages(size: u64, gap: u64, jitter: u64) -> Option<Self> {
        let more = (u128::from(size) * u128::from(jitter)).checked_next_multiple_of(u128::from(gap))? / u128::from(gap);
        let rate = (u128::from(size) * SCALE).div_ceil(u128::from(gap));
        Some(Traffic { burst: size.checked_add(u64::try_from(more).ok()?)?, rate: u64::try_from(rate).ok()? })
    }

    /// Both together; `None` above `u64`.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        Some(Traffic { burst: self.burst.checked_add(other.burst)?, rate: self.rate.checked_add(other.rate)? })
    }

    /// The same after a delay that varies by up to `delay` ns; `None` above `u64`.
    #[must_use]
    pub fn delayed(self, delay: u64) -> Option<Self> {
        Some(Traffic { burst: self.burst.checked_add(bytes(self.rate, delay)?)?, rate: self.rate })
    }
}

/// A class of HTB on a link, more important than the others there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// σ: bytes that tokens add up to at most.
    pub burst: u64,
    /// ρ: bits per second.
    pub rate: u64,
    /// L: bytes of its largest packet (with segmentation offload, of the largest that is handed down).
    pub packet: u64,
    /// C: bits per second of the link, at least `rate`.
    pub link: u64,
    /// L': bytes of the largest packet of other classes.
    pub other: u64,
}

impl Bucket {
    /// The output: σ + L, ρ.
    #[must_use]
    pub fn output(&self) -> Option<Traffic> {
        Some(Traffic { burst: self.burst.checked_add(self.packet)?, rate: self.rate })
    }

    /// σ >= ρ L' / C.
    fn holds(&self) -> Option<bool> {
        Some(self.burst >= bytes(self.rate, time(self.other, self.link)?)?)
    }

    /// The longest delay, ns, of packets of `length` bytes in `traffic` (theirs included), first
    /// come, first served; `None` where the rate is not enough, or above `u64`.
    #[must_use]
    pub fn fifo(&self, traffic: Traffic, length: u64) -> Option<u64> {
        if traffic.rate > self.rate || self.rate > self.link || !self.holds()? {
            return None;
        }
        let before = traffic.burst.saturating_sub(length).checked_add(self.packet)?;
        time(before, self.rate)?.checked_add(time(self.other, self.link)?)?.checked_add(time(length, self.link)?)
    }

    /// The same in any order of service; `None` where the rate is not above that of the traffic.
    #[must_use]
    pub fn any(&self, traffic: Traffic, length: u64) -> Option<u64> {
        if self.rate > self.link || !self.holds()? {
            return None;
        }
        let left = self.rate.checked_sub(traffic.rate).filter(|left| *left > 0)?;
        let blocking = bytes(self.rate, time(self.other, self.link)?)?;
        let before = traffic.burst.saturating_sub(length).checked_add(self.packet)?.checked_add(blocking)?;
        time(before, left)?.checked_add(time(length, self.link)?)
    }

    /// The least rate, bits/s, with which [`Bucket::fifo`] is at most `wanted` ns; `None` where the
    /// whole link is not enough, or σ is too small for it.
    #[must_use]
    pub fn least_rate(&self, traffic: Traffic, length: u64, wanted: u64) -> Option<u64> {
        // For every σ, so that more is never worse.
        let enough = |rate: u64| {
            Bucket { rate, burst: u64::MAX, ..*self }.fifo(traffic, length).is_some_and(|delay| delay <= wanted)
        };
        let (mut least, mut most) = (1, self.link);
        if !enough(most) {
            return None;
        }
        while least < most {
            let middle = least.midpoint(most);
            if enough(middle) { most = middle } else { least = middle + 1 }
        }
        Bucket { rate: most, ..*self }.holds()?.then_some(most)
    }
}

/// An output port of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// Bits per second.
    pub rate: u64,
    /// Longest wait before it sends, in ns: processing, or one less important packet.
    pub latency: u64,
    /// Other traffic at this port, as it arrives there.
    pub others: Traffic,
}

impl Port {
    /// The longest delay, ns, of traffic with packets of up to `packet` bytes, whatever the order of service; `None`
    /// where the rate is not enough, or above `u64`.
    #[must_use]
    pub fn delay(&self, traffic: Traffic, packet: u64) -> Option<u64> {
        let left = self.rate.checked_sub(self.others.rate).filter(|left| *left >= traffic.rate && *left > 0)?;
        let before = self.others.burst.checked_add(packet)?.checked_add(bytes(self.rate, self.latency)?)?;
        time(before, left)?.checked_add(time(traffic.burst, left)?)
    }
}

#[cfg(test)]
#[path = "delay_tests.rs"]
pub(super) mod tests;
