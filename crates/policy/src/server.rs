//! One server: its budget, its deadline and when they change, by the rule of its component.
//!
//! | rule | budget | it wants the CPU | source |
//! |---|---|---|---|
//! | `ptps`, `wcps`, `crps` | full at each multiple of the period | while it has budget, also idle | [CSA III-A] |
//! | `polling` | the same, and given up when idle | with budget and work | L. Sha, J. Lehoczky, R. Rajkumar 1986 |
//! | `deferrable` | the same, and kept while idle | with budget and work | J. Strosnider, J. Lehoczky, L. Sha 1995 |
//! | `sporadic` | used parts come back a period later | with budget and work | B. Sprunt, L. Sha, J. Lehoczky 1989 |
//! | `cbs` | full at once when used up, with a later deadline | with work | L. Abeni, G. Buttazzo 1998 |
//! | `cbs-hard` | full at its deadline when used up | with budget and work | as above; M. Marzario et al. 2004 |
//! | `grub` | as `cbs`, used at the rate of the active bandwidth | with work | G. Lipari, S. Baruah 2000 |
//!
//! The first period begins at 0, with a full budget. A `sporadic` server is active while it has budget and work; a part
//! comes back a period after the server became active. Times are whole nanoseconds. Only `grub` counts fractions. It
//! rounds payments and ends of budgets up.
//!
//! New terms ([`Server::switch`]) hold from the end of the server's period on. Then the old budget is lost,
//! and the first period under the new terms begins, with a full budget. So at no time there are two budgets.
//! The period ends
//!
//! - under `ptps`, `wcps`, `crps`, `polling` and `deferrable`: at its multiple;
//! - under `sporadic`: when the last used part comes back. Until then the server does not become active again;
//! - under `cbs`, `cbs-hard` and `grub`: at the deadline, which is not postponed any more. While the server is idle: as
//!   soon as its budget is no more than its share until the deadline.
//!
//! This is the rule of the elastic task model for periods (G. Buttazzo, G. Lipari, L. Abeni 1998), applied to servers.
//!
//! The caller tells the server what it pays ([`Server::charge`]), and once per instant whether its component has work
//! ([`Server::update`]). Wake-ups and ends of work between two such calls do not count.

use std::collections::VecDeque;

use takt_model::{ServerRule, Span, Time};

/// Parts of a sporadic server's budget that wait for their return; further ones come back with the last of them.
pub const RETURNS_MAX: usize = 64;

/// The fraction of a nanosecond in which `grub` counts: 2^-32.
const FRACTION_BITS: u32 = 32;

/// A rate at which a budget is used: 1 is this.
const RATE_ONE: u64 = 1 << FRACTION_BITS;

/// A change of a server's account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It has this budget now.
    Replenished(Span),
    /// Its component has nothing to run any more.
    Idle,
    /// It has new terms.
    Switched,
}

/// What a server is to give: its rule, and its budget in each period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    pub(crate) rule: ServerRule,
    pub(crate) period: Span,
    pub(crate) budget: Span,
}

impl Terms {
    /// Whether a server of these terms is closed: it has no budget and no periods, before its component joins a
    /// running system and after it has left.
    fn are_closed(&self) -> bool {
        self.budget.is_zero() && self.period == Span::MAX
    }
}

/// The state of a bandwidth server, by its virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bandwidth {
    /// Its bandwidth does not count, and its next job begins a new deadline.
    Inactive,
    /// It has work.
    Contending,
    /// It has no work, and its bandwidth counts until this instant.
    Lagging(Time),
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    rule: ServerRule,
    period: Span,
    /// The full budget.
    capacity: Span,
    left: Span,
    /// The fraction of a nanosecond of budget beyond `left`, in 2^-32 ns, for `grub`.
    fraction: u64,
    /// Absolute.
    deadline: Time,
    /// When this budget came. Levels of order `fifo` order the server by it.
    release: Time,
    /// Whether it has had the CPU on this budget.
    started: bool,
    had_work: bool,
    /// The next multiple of the period, for a periodic server.
    next_period: Time,
    /// Whether a sporadic server has budget and work.
    active: bool,
    /// The start of the last interval in which it was active.
    since: Time,
    /// The budget used since then.
    used: Span,
    /// When used parts come back, and how much each.
    returns: VecDeque<(Time, Span)>,
    bandwidth: Bandwidth,
    /// What `active_share` of its scope counts for it, in 2^-32.
    counted: u64,
    /// Its terms from the end of its period on.
    pending: Option<Terms>,
}

impl Server {
    /// A server whose first period begins at `now`.
    pub(crate) fn new(terms: Terms, now: Time) -> Self {
        let (Terms { rule, period, budget }, is_closed) = (terms, terms.are_closed());
        Server {
            rule,
            period,
            capacity: budget,
            left: if is_bandwidth(rule) { Span::ZERO } else { budget },
            fraction: 0,
            deadline: if is_bandwidth(rule) { Time::ZERO } else { now.saturating_add(period) },
            release: now,
            started: false,
            had_work: false,
            next_period: if is_periodic(rule) && !is_closed { now } else { Time::MAX },
            active: false,
            since: now,
            used: Span::ZERO,
            returns: VecDeque::new(),
            bandwidth: Bandwidth::Inactive,
            counted: 0,
            pending: None,
        }
    }

    /// Makes room for all parts of a sporadic budget, so that nothing is allocated later.
    pub(crate) fn reserve_returns(&mut self) {
        self.returns.reserve(RETURNS_MAX + 1);
    }

    /// Lets these terms hold from the end of its period on.
    pub(crate) fn switch(&mut self, terms: Terms) {
        self.pending = Some(terms);
    }

    /// Its rule, period and capacity.
    pub(crate) fn terms(&self) -> Terms {
        Terms { rule: self.rule, period: self.period, budget: self.capacity }
    }

    /// When all of its budget is back or lost. `None`: that is so now.
    fn period_end(&self) -> Option<Time> {
        if self.terms().are_closed() {
            return None;
        }
        if is_periodic(self.rule) {
            return Some(self.next_period);
        }
        if self.rule == ServerRule::Sporadic {
            let returned = self.returns.back().map(|(at, _)| *at);
            let used = self.active || !self.used.is_zero();
            return returned.max(used.then(|| self.since.saturating_add(self.period)));
        }
        match self.bandwidth {
            Bandwidth::Inactive => None,
            Bandwidth::Contending => Some(self.deadline),
            Bandwidth::Lagging(until) => Some(until),
        }
    }

    pub(crate) fn rule(&self) -> ServerRule {
        self.rule
    }

    /// Budget left.
    pub(crate) fn left(&self) -> Span {
        if self.fraction > 0 { self.left + Span::from_ns(1) } else { self.left }
    }

    pub(crate) fn deadline(&self) -> Time {
        self.deadline
    }

    pub(crate) fn release(&self) -> Time {
        self.release
    }

    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    /// Whether it may compete for the CPU. `has_work`: whether its component has work.
    pub(crate) fn is_eligible(&self, has_work: bool) -> bool {
        let idles = matches!(self.rule, ServerRule::Ptps | ServerRule::Wcps | ServerRule::Crps);
        // A sporadic server that waits for new terms does not become active again.
        let closed = self.rule == ServerRule::Sporadic && self.pending.is_some() && !self.active;
        self.has_budget() && !closed && (idles || has_work)
    }

    pub(crate) fn has_budget(&self) -> bool {
        !self.left.is_zero() || self.fraction > 0
    }

    /// It has the CPU.
    pub(crate) fn start(&mut self) {
        self.started = true;
    }

    /// Updates its part in the active bandwidth of its scope, in 2^-32. Under rules other than `grub` a server is
    /// always active.
    pub(crate) fn update_active_share(&mut self, active_share: &mut u128) {
        let counts = self.rule != ServerRule::Grub || self.bandwidth != Bandwidth::Inactive;
        let share = if counts { share(self.capacity, self.period) } else { 0 };
        let before = std::mem::replace(&mut self.counted, share);
        *active_share = *active_share + u128::from(share) - u128::from(before);
    }

    /// The rate at which its budget is used while it pays, in a scope of this active bandwidth.
    pub(crate) fn rate(&self, active_share: u128) -> u64 {
        match self.rule {
            ServerRule::Grub => u64::try_from(active_share).unwrap_or(RATE_ONE).min(RATE_ONE),
            _ => RATE_ONE,
        }
    }

    /// Its budget in 2^-32 ns.
    fn scaled(&self) -> u128 {
        (u128::from(self.left.as_ns()) << FRACTION_BITS) | u128::from(self.fraction)
    }

    /// Pays for `time` at `rate`, and returns the payment, rounded up.
    pub(crate) fn charge(&mut self, time: Span, rate: u64) -> Span {
        let before = self.left();
        if rate == RATE_ONE && self.fraction == 0 {
            self.left = self.left.saturating_sub(time);
        } else {
            let used = u128::from(time.as_ns()) * u128::from(rate);
            let left = self.scaled().saturating_sub(used);
            self.left = Span::from_ns((left >> FRACTION_BITS) as u64);
            self.fraction = (left & u128::from(RATE_ONE - 1)) as u64;
        }
        if self.rule == ServerRule::Sporadic {
            self.used += time;
        }
        before.saturating_sub(self.left())
    }

    /// When its budget ends if it pays at `rate` from `now` on.
    pub(crate) fn end(&self, now: Time, rate: u64) -> Time {
        let time = self.scaled().div_ceil(u128::from(rate.max(1)));
        now.saturating_add(Span::from_ns(u64::try_from(time).unwrap_or(u64::MAX)))
    }

    /// When it changes if nothing happens and it pays nothing.
    pub(crate) fn next_change(&self) -> Time {
        let returned = self.returns.front().map_or(Time::MAX, |(at, _)| *at);
        let bandwidth = match (self.rule, self.bandwidth) {
            (ServerRule::CbsHard, _) if !self.has_budget() && self.deadline > Time::ZERO => self.deadline,
            (ServerRule::Grub, Bandwidth::Lagging(until)) => until,
            _ => Time::MAX,
        };
        let switched = self.pending.and(self.period_end()).unwrap_or(Time::MAX);
        self.next_period.min(returned).min(bandwidth).min(switched)
    }

    /// Brings it to `now` and reports each change. `has_work`: whether its component has work now.
    pub(crate) fn update(&mut self, now: Time, has_work: bool, mut report: impl FnMut(Change)) {
        let before = self.has_budget();
        self.apply_terms(now, &mut report);
        self.update_by_rule(now, has_work, &mut report);
        // Its period may have ended with its work.
        if self.apply_terms(now, &mut report) {
            self.update_by_rule(now, has_work, &mut report);
        }
        if !before && self.has_budget() {
            self.started = false;
        }
    }

    /// Applies new terms, if there are any and its period is over. Returns whether it did.
    fn apply_terms(&mut self, now: Time, report: &mut impl FnMut(Change)) -> bool {
        let Some(terms) = self.pending.filter(|_| self.period_end().is_none_or(|end| end <= now)) else { return false };
        let had_budget = self.has_budget();
        let mut returns = std::mem::take(&mut self.returns);
        returns.clear();
        *self = Server { returns, counted: self.counted, ..Server::new(terms, now) };
        report(Change::Switched);
        // A periodic server has its first budget in the next step.
        let begins_later = is_periodic(self.rule) && !terms.are_closed();
        if !begins_later && (had_budget || self.has_budget()) {
            report(Change::Replenished(self.left));
        }
        true
    }

    fn update_by_rule(&mut self, now: Time, has_work: bool, report: &mut impl FnMut(Change)) {
        match self.rule {
            ServerRule::Sporadic => self.update_sporadic(now, has_work, report),
            ServerRule::Cbs | ServerRule::CbsHard | ServerRule::Grub => self.update_bandwidth(now, has_work, report),
            _ => self.update_periodic(now, has_work, report),
        }
        if self.had_work && !has_work {
            report(Change::Idle);
        }
        self.had_work = has_work;
    }

    fn replenish(&mut self, budget: Span, report: &mut impl FnMut(Change)) {
        (self.left, self.fraction, self.started) = (budget, 0, false);
        report(Change::Replenished(budget));
    }

    fn update_periodic(&mut self, now: Time, has_work: bool, report: &mut impl FnMut(Change)) {
        if self.next_period <= now {
            self.release = self.next_period;
            self.deadline = self.next_period.saturating_add(self.period);
            self.next_period = self.deadline;
            self.replenish(self.capacity, report);
        }
        if self.rule == ServerRule::Polling && !has_work && self.has_budget() {
            self.left = Span::ZERO;
            // Reported as idle, even if it never had work.
            self.had_work = true;
        }
    }

    fn update_sporadic(&mut self, now: Time, has_work: bool, report: &mut impl FnMut(Change)) {
        // Parts used over more than a period come back at once.
        loop {
            let mut returned = Span::ZERO;
            while let Some((_, part)) = self.returns.front().copied().filter(|(at, _)| *at <= now) {
                self.returns.pop_front();
                returned += part;
            }
            self.left += returned;
            if !returned.is_zero() {
                report(Change::Replenished(self.left));
            }
            // With a quantum it may pay for a while after its work is done.
            self.active &= has_work && !self.left.is_zero() && returned.is_zero();
            if !self.active {
                self.schedule_return(self.since.saturating_add(self.period));
            }
            if self.returns.front().is_none_or(|(at, _)| *at > now) {
                break;
            }
        }
        if has_work && !self.left.is_zero() && !self.active && self.pending.is_none() {
            (self.active, self.since, self.started) = (true, now, false);
            self.release = now;
            self.deadline = now.saturating_add(self.period);
        }
    }

    /// Lets the part used since the server became active come back at `at`. Calls come in the order of `at`.
    fn schedule_return(&mut self, at: Time) {
        let part = std::mem::replace(&mut self.used, Span::ZERO);
        if part.is_zero() {
            return;
        }
        let is_full = self.returns.len() >= RETURNS_MAX;
        match self.returns.back_mut() {
            Some(last) if is_full => *last = (at, last.1 + part),
            _ => self.returns.push_back((at, part)),
        }
    }

    fn update_bandwidth(&mut self, now: Time, has_work: bool, report: &mut impl FnMut(Change)) {
        // One of several servers whose share of the budget is nothing.
        if self.capacity.is_zero() {
            return;
        }
        let had_deadline = self.deadline > Time::ZERO;
        let waits = (self.rule == ServerRule::CbsHard || self.pending.is_some()) && now < self.deadline;
        if !self.has_budget() && had_deadline && !waits {
            self.deadline = self.deadline.saturating_add(self.period);
            self.release = now;
            self.replenish(self.capacity, report);
        }
        if let Bandwidth::Lagging(until) = self.bandwidth
            && until <= now
        {
            self.bandwidth = Bandwidth::Inactive;
        }
        if has_work && !self.had_work {
            let restarts = match self.rule {
                ServerRule::Grub => self.bandwidth == Bandwidth::Inactive,
                // A throttled server stays so.
                _ => !had_deadline || self.has_budget() && self.exceeds_bandwidth(now),
            };
            if restarts && self.pending.is_none() {
                self.deadline = now.saturating_add(self.period);
                self.release = now;
                self.replenish(self.capacity, report);
            }
            self.bandwidth = Bandwidth::Contending;
        }
        if !has_work && self.had_work {
            let lag = self.zero_lag(now);
            self.bandwidth = if lag > now { Bandwidth::Lagging(lag) } else { Bandwidth::Inactive };
        }
    }

    /// Whether the rest of its budget is at least the share of its bandwidth until its deadline: q >= (d - t) Q / T.
    fn exceeds_bandwidth(&self, now: Time) -> bool {
        let room = u128::from(self.deadline.saturating_since(now).as_ns());
        let (budget, period) = (u128::from(self.capacity.as_ns()), u128::from(self.period.as_ns()));
        u128::from(self.left.as_ns()) * period >= room * budget
    }

    /// When its virtual time is real time: d - q T / Q.
    fn zero_lag(&self, now: Time) -> Time {
        let (budget, period) = (u128::from(self.capacity.as_ns().max(1)), u128::from(self.period.as_ns()));
        let part = (u128::from(self.fraction) * period) >> FRACTION_BITS;
        let early = (u128::from(self.left.as_ns()) * period + part) / budget;
        let early = u64::try_from(early).unwrap_or(u64::MAX);
        self.deadline.as_ns().checked_sub(early).map_or(now, Time::from_ns)
    }
}

/// The bandwidth of `budget` in each `period`, in 2^-32, rounded up.
pub(crate) fn share(budget: Span, period: Span) -> u64 {
    let (budget, period) = (u128::from(budget.as_ns()), u128::from(period.as_ns().max(1)));
    u64::try_from((budget << FRACTION_BITS).div_ceil(period)).unwrap_or(u64::MAX)
}

/// Whether its budget comes at the multiples of its period.
fn is_periodic(rule: ServerRule) -> bool {
    !is_bandwidth(rule) && rule != ServerRule::Sporadic
}

/// Whether the server sets its own deadlines, by its bandwidth.
fn is_bandwidth(rule: ServerRule) -> bool {
    matches!(rule, ServerRule::Cbs | ServerRule::CbsHard | ServerRule::Grub)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More used parts than places: the last place takes them all, and returns them when the newest part is due.
    #[test]
    fn parts_without_a_place_come_back_late_and_never_early() {
        let (parts, at) = (RETURNS_MAX as u64 + 10, Time::from_ns);
        let (period, budget) = (Span::from_ns(1_000), Span::from_ns(2 * parts));
        let mut server = Server::new(Terms { rule: ServerRule::Sporadic, period, budget }, Time::ZERO);
        for part in 0..parts {
            server.update(at(4 * part), true, |_| {});
            assert_eq!(server.charge(Span::from_ns(2), RATE_ONE), Span::from_ns(2));
            server.update(at(4 * part + 2), false, |_| {});
        }
        assert_eq!((server.left(), server.returns.len()), (Span::ZERO, RETURNS_MAX));
        let last = 1_000 + 4 * (parts - 1);
        for now in 1_000..=last {
            server.update(at(now), false, |_| {});
            let due = (now - 1_000) / 4 + 1;
            let back = if now < last { due.min(RETURNS_MAX as u64 - 1) } else { parts };
            assert_eq!(server.left(), Span::from_ns(2 * back), "at {now}, when {due} parts are due");
        }
        assert_eq!((server.left(), server.next_change()), (budget, Time::MAX));
    }
}
