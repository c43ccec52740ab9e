//! How many messages wait when a receiving job starts, and how long left-overs of an exhausted budget wait.
//!
//! A receiving job takes messages at its start: a snapshot of all arrivals until then, the instant
//! itself included. It takes at most [`Receiver::most`] messages in the order of arrival. The
//! others wait for the next job. Messages of one source arrive n in a half-open window (s, s + L]
//! only if
//!
//! - (n - 1) G - J < L: they leave G apart by the table's grid, and the way from the grid to the buffer varies by J;
//! - (n - 1) T - H < L: their flow's jobs arrive T apart, and the way from that arrival to the buffer varies by H.
//!
//! so n <= min(ceil((L + J) / G), ceil((L + H) / T)). [HEDF, Eq. 5] has floor(L / T' + J / T') + 1,
//! which is one too high at integers.
//!
//! Starts of receiving jobs lie in [x T_r, x T_r + R - C_r], R their longest response. So q windows
//! between snapshots last at most L_q = q T_r + R - C_r.
//!
//! **Left-overs.** Let A(q) bound the arrivals in L_q, N = `most`. Consider the last snapshot
//! without left-overs. At most A(q) messages arrive up to the q-th snapshot after it. Messages go
//! in order, so snapshot ceil(A(q) / N) takes them at the latest. A message waits for at most E =
//! max over q of ceil(A(q) / N) - q jobs more. Once A(q) <= q N, no left-over remains and all
//! starts anew. One job then takes at most what arrived in L_(1 + E) of a source.

/// Windows that [`Receiver::wait`] may look at before it gives up.
pub const WINDOWS_MAX: u64 = 100_000;

/// Messages of one source at a receiver; all times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// G: least distance at the sender's grid.
    pub gap: u64,
    /// J: how much the time from the grid to the buffer varies.
    pub gap_jitter: u64,
    /// T: least distance of the jobs that send them.
    pub period: u64,
    /// H: how much the time from the arrival of such a job to the buffer varies.
    pub period_jitter: u64,
}

/// A receiving task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiver {
    /// T_r: most time between two releases of its jobs.
    pub period: u64,
    /// R - C_r: by how much a start can be late.
    pub late: u64,
    /// N: messages that one job takes at most; `None`: all.
    pub most: Option<u64>,
}

impl Source {
    /// The most messages in a half-open window of length `window`; `None` above `u64`.
    #[must_use]
    pub fn arrivals(&self, window: u64) -> Option<u64> {
        let sent = window.checked_add(self.gap_jitter)?.div_ceil(self.gap);
        let made = window.checked_add(self.period_jitter)?.div_ceil(self.period);
        Some(sent.min(made))
    }
}

impl Receiver {
    /// L_q.
    pub(super) fn window(&self, q: u64) -> Option<u64> {
        self.period.checked_mul(q)?.checked_add(self.late)
    }

    /// E: for how many more jobs a message may wait, because earlier messages used the budget up. `None` if no bound
    /// is found within [`WINDOWS_MAX`] windows.
    #[must_use]
    pub fn wait(&self, sources: &[Source]) -> Option<u64> {
        let Some(most) = self.most else { return Some(0) };
        if most == 0 {
            return sources.is_empty().then_some(0);
        }
        let mut longest = 0;
        for q in 1..=WINDOWS_MAX {
            let window = self.window(q)?;
            let arrived = sources.iter().try_fold(0u64, |sum, source| sum.checked_add(source.arrivals(window)?))?;
            longest = longest.max(arrived.div_ceil(most).saturating_sub(q));
            if arrived <= q.checked_mul(most)? {
                return Some(longest);
            }
        }
        None
    }

    /// k: the most messages of a source that one job takes, if messages wait for up to `wait` more jobs. `None` above
    /// `u64`.
    #[must_use]
    pub fn messages(&self, source: &Source, wait: u64) -> Option<u64> {
        let arrived = source.arrivals(self.window(wait.checked_add(1)?)?)?;
        Some(self.most.map_or(arrived, |most| most.min(arrived)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(gap: u64, gap_jitter: u64) -> Source {
        Source { gap, gap_jitter, period: gap, period_jitter: u64::MAX / 2 }
    }

    #[test]
    fn windows_are_half_open() {
        let receiver = Receiver { period: 10, late: 0, most: None };
        // Eq. 5 says 3 here.
        assert_eq!(receiver.messages(&source(5, 0), 0), Some(2));
        assert_eq!(receiver.messages(&source(5, 1), 0), Some(3));
        assert_eq!(receiver.messages(&source(3, 0), 0), Some(4));
        let slow = Source { gap: 1, gap_jitter: 0, period: 8, period_jitter: 7 };
        assert_eq!(receiver.messages(&slow, 0), Some(3));
    }

    #[test]
    fn leftovers_wait_and_drain() {
        let receiver = Receiver { period: 10, late: 0, most: Some(2) };
        // Six at once, then one a window.
        let burst = Source { gap: 1, gap_jitter: 5, period: 10, period_jitter: 50 };
        assert_eq!(burst.arrivals(10), Some(6));
        assert_eq!(receiver.wait(&[burst]), Some(2));
        assert_eq!(receiver.messages(&burst, 2), Some(2));
        assert_eq!(Receiver { most: Some(6), ..receiver }.wait(&[burst]), Some(0));
        assert_eq!(receiver.wait(&[source(4, 0)]), None);
        assert_eq!(Receiver { most: Some(0), ..receiver }.wait(&[source(4, 0)]), None);
        assert_eq!(Receiver { most: Some(0), ..receiver }.wait(&[]), Some(0));
    }
}
