//! Payments of servers.

use std::collections::VecDeque;

use takt_model::{Span, Time};

/// The most payments of a server within one of its periods. Beyond them its largest supply is unknown.
const PAYMENTS_MAX: usize = 65_536;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServerStep {
    Replenish,
    Exhaust,
    Idle,
    Charge { since: Time, amount: Span, idle: bool },
}

#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) supply: u64,
    /// How long it paid while none of its jobs ran.
    pub(super) idle: u64,
    /// What its budget lost.
    pub(super) paid: u64,
    pub(super) replenishments: u64,
    pub(super) exhaustions: u64,
    pub(super) idles: u64,
    /// The most that it supplied in any interval as long as its period. `None` where unknown.
    pub(super) supply_max: Option<u64>,
    /// Its payments within the last period, the oldest first, and their sum: from when until when, on how many CPUs.
    recent: VecDeque<(u64, u64, u64)>,
    recent_sum: u64,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            supply: 0,
            idle: 0,
            paid: 0,
            replenishments: 0,
            exhaustions: 0,
            idles: 0,
            supply_max: Some(0),
            recent: VecDeque::new(),
            recent_sum: 0,
        }
    }
}

impl Server {
    /// It has paid from `since` until `now`. The largest supply is that of an interval that begins or ends
    /// with a payment.
    pub(super) fn charge(&mut self, since: u64, now: u64, amount: u64, idle: bool, period: Option<u64>) {
        // `grub` pays less than the time, and a component of several CPUs more.
        let cpus = (amount / now.saturating_sub(since).max(1)).max(1);
        let since = since.max(self.recent.back().map_or(0, |last| last.1)).min(now);
        let time = (now - since).saturating_mul(cpus);
        self.supply = self.supply.saturating_add(time);
        self.idle = self.idle.saturating_add(if idle { time } else { 0 });
        self.paid = self.paid.saturating_add(amount);
        let Some(period) = period else {
            self.supply_max = None;
            return;
        };
        let (from, mut most) = (now.saturating_sub(period), 0);
        match self.recent.back_mut() {
            Some(last) if (last.1, last.2) == (since, cpus) => last.1 = now,
            _ => self.recent.push_back((since, now, cpus)),
        }
        self.recent_sum = self.recent_sum.saturating_add(time);
        while let Some(first) = self.recent.front_mut() {
            let end = first.0.saturating_add(period).max(since);
            most = most.max(self.recent_sum.saturating_sub(now.saturating_sub(end).saturating_mul(cpus)));
            let gone = first.1.min(from).saturating_sub(first.0);
            self.recent_sum = self.recent_sum.saturating_sub(gone.saturating_mul(first.2));
            first.0 += gone;
            if first.0 < first.1 {
                break;
            }
            self.recent.pop_front();
        }
        if self.recent.len() > PAYMENTS_MAX {
            (self.supply_max, self.recent_sum) = (None, 0);
            self.recent.clear();
        }
        self.supply_max = self.supply_max.map(|past| past.max(most).max(self.recent_sum));
    }

    pub(super) fn reset(&mut self) {
        let (recent, recent_sum) = (std::mem::take(&mut self.recent), self.recent_sum);
        *self = Server { recent, recent_sum, ..Server::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_supply_is_that_of_any_interval_as_long_as_the_period() {
        // A deferrable server of 3 every 10: late in one period and early in the next.
        let mut server = Server::default();
        for (since, now) in [(0, 1), (7, 10), (10, 12), (12, 13), (25, 28)] {
            server.charge(since, now, now - since, false, Some(10));
        }
        assert_eq!((server.supply, server.supply_max), (10, Some(6)));
        // An interval begins within a payment.
        let mut server = Server::default();
        server.charge(0, 4, 4, true, Some(5));
        server.charge(6, 8, 2, false, Some(5));
        assert_eq!((server.supply, server.idle, server.supply_max), (6, 4, Some(4)));
        // Payments that overlap, as a damaged log may tell, count once; without a period the largest is unknown.
        let mut server = Server::default();
        server.charge(0, 4, 4, false, Some(5));
        server.charge(2, 5, 3, false, Some(5));
        assert_eq!((server.supply, server.supply_max), (5, Some(5)));
        server.charge(5, 6, 1, false, None);
        // On two CPUs, then on one.
        let mut both = Server::default();
        both.charge(0, 3, 6, false, Some(4));
        both.charge(3, 6, 3, true, Some(4));
        assert_eq!((both.supply, both.idle, both.paid, both.supply_max), (9, 3, 9, Some(7)));
        // From 0 until 7.
        let mut both = Server::default();
        both.charge(0, 4, 8, false, Some(7));
        both.charge(6, 10, 4, false, Some(7));
        assert_eq!(both.supply_max, Some(9));
        assert_eq!((server.supply, server.supply_max), (6, None));
    }
}
