//! CPU time that jobs lose to ticks, interrupts and ordinary threads.
//!
//! Ticks and interrupts steal a constant from the running job at each multiple of their period.
//! Ordinary threads take the CPUs away from all jobs.
//!
//! Ordinary threads run at the end of one period and at the begin of the next. So they take twice
//! their amount at once in every second period. This is their worst case.

use takt_model::{Costs, Span, Time};

/// The time that the jobs of a CPU lose. A cost at instant g is charged to a job that runs in [g, g +
/// 1 ns). Two costs at the same instant are served one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StolenTime {
    /// Ticks, or interrupts if ticks cost nothing.
    first: PeriodicCost,
    /// Interrupts. Zero if ticks or interrupts cost nothing.
    second: PeriodicCost,
    /// When ordinary threads run.
    ordinary: StolenWindow,
    /// Whether no time is lost at all.
    is_none: bool,
}

/// In each period P, from `from_ns` on and for `length_ns`, no job gets anything done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct StolenWindow {
    period_ns: u64,
    from_ns: u64,
    length_ns: u64,
}

impl StolenWindow {
    fn new(costs: &Costs) -> Self {
        let (amount_ns, half_ns) = (costs.ordinary.as_ns(), costs.ordinary_period.as_ns().max(1));
        let period_ns = half_ns.saturating_mul(2);
        StolenWindow { period_ns, from_ns: half_ns.saturating_sub(amount_ns), length_ns: amount_ns.saturating_mul(2) }
    }

    /// The time that ordinary threads take in [0, until).
    fn until(self, until: Time) -> u64 {
        let (whole, rest) = (until.as_ns() / self.period_ns, until.as_ns() % self.period_ns);
        whole * self.length_ns + rest.saturating_sub(self.from_ns).min(self.length_ns)
    }

    fn between(self, start: Time, end: Time) -> Span {
        if self.length_ns == 0 { Span::ZERO } else { Span::from_ns(self.until(end) - self.until(start)) }
    }
}

/// A constant every period, from time zero on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PeriodicCost {
    period_ns: u64,
    cost_ns: u64,
}

impl StolenTime {
    /// The time lost by the costs of a node. These must leave some time ([`Costs::leaves_time`]).
    pub(crate) fn new(costs: &Costs) -> Self {
        debug_assert!(costs.leaves_time());
        let periodic =
            |cost: Span, period: Span| PeriodicCost { period_ns: period.as_ns().max(1), cost_ns: cost.as_ns() };
        let tick = periodic(costs.tick, costs.tick_period);
        let interrupt = periodic(costs.interrupt, costs.interrupt_period);
        let (first, second) = if tick.cost_ns == 0 { (interrupt, tick) } else { (tick, interrupt) };
        let ordinary = StolenWindow::new(costs);
        StolenTime { first, second, ordinary, is_none: first.cost_ns == 0 && ordinary.length_ns == 0 }
    }

    /// When `work` is done if it starts at `start` and is not preempted.
    #[inline]
    pub(crate) fn finish(self, start: Time, work: Span) -> Time {
        if self.is_none { start + work } else { self.finish_with_losses(start, work) }
    }

    #[inline(never)]
    fn finish_with_losses(self, start: Time, work: Span) -> Time {
        if work.is_zero() {
            return start;
        }
        let by_first = if self.first.cost_ns == 0 { start + work } else { self.first.finish(start, work) };
        if self.is_first_only() {
            return by_first;
        }
        // The least instant by which the work and all costs in [start, finish) are served.
        let mut finish = by_first;
        loop {
            let stolen = self.first.stolen(start, finish).saturating_add(self.second.stolen(start, finish));
            let ordinary = self.ordinary.between(start, finish);
            let next = start.saturating_add(work.saturating_add(stolen).saturating_add(ordinary));
            if next == finish {
                return finish;
            }
            finish = next;
        }
    }

    /// How much work is done in [start, now).
    #[inline]
    pub(crate) fn work(self, start: Time, now: Time) -> Span {
        if self.is_none { now - start } else { self.work_with_losses(start, now) }
    }

    /// Whether `first` is the only loss.
    fn is_first_only(self) -> bool {
        self.second.cost_ns == 0 && self.ordinary.length_ns == 0
    }

    #[inline(never)]
    fn work_with_losses(self, start: Time, now: Time) -> Span {
        let most = if self.first.cost_ns == 0 { now - start } else { self.first.work(start, now) };
        if self.is_first_only() {
            return most;
        }
        // Bisection for the most work that is finished by now.
        let (mut done, mut beyond) = (0, most.as_ns().saturating_add(1));
        while beyond - done > 1 {
            let half = done + (beyond - done) / 2;
            if self.finish_with_losses(start, Span::from_ns(half)) <= now {
                done = half;
            } else {
                beyond = half;
            }
        }
        Span::from_ns(done)
    }
}

impl PeriodicCost {
    #[inline]
    fn first_at_or_after(self, time: Time) -> Time {
        Time::from_ns(time.as_ns().next_multiple_of(self.period_ns))
    }

    /// The time stolen in [start, end).
    fn stolen(self, start: Time, end: Time) -> Span {
        let times = end.as_ns().div_ceil(self.period_ns) - start.as_ns().div_ceil(self.period_ns);
        Span::from_ns(times.saturating_mul(self.cost_ns))
    }

    fn finish(self, start: Time, work: Span) -> Time {
        let first = self.first_at_or_after(start);
        let before = first - start;
        if work <= before {
            return start + work;
        }
        let after_ns = (work - before).as_ns();
        let per_period_ns = self.period_ns - self.cost_ns;
        let whole = (after_ns - 1) / per_period_ns;
        let last_ns = self.cost_ns + (after_ns - whole * per_period_ns);
        first + Span::from_ns(whole * self.period_ns) + Span::from_ns(last_ns)
    }

    fn work(self, start: Time, now: Time) -> Span {
        let first = self.first_at_or_after(start);
        if now <= first {
            return now - start;
        }
        let since_ns = (now - first).as_ns();
        let (whole, rest) = (since_ns / self.period_ns, since_ns % self.period_ns);
        let work_ns = whole * (self.period_ns - self.cost_ns) + rest.saturating_sub(self.cost_ns);
        (first - start) + Span::from_ns(work_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Nanosecond by nanosecond: the work done in [start, now).
    fn slow_work(costs: &Costs, start: u64, now: u64) -> u64 {
        let (mut stolen, mut work) = (0, 0);
        for t in start..now {
            for (cost, period) in [(costs.tick, costs.tick_period), (costs.interrupt, costs.interrupt_period)] {
                if t.is_multiple_of(period.as_ns()) {
                    stolen += cost.as_ns();
                }
            }
            let (amount, period) = (costs.ordinary.as_ns(), costs.ordinary_period.as_ns());
            let (number, rest) = (t / period, t % period);
            if if number.is_multiple_of(2) { rest >= period - amount } else { rest < amount } {
                continue;
            }
            if stolen > 0 { stolen -= 1 } else { work += 1 }
        }
        work
    }

    proptest! {
        #[test]
        fn they_steal_as_nanoseconds_say(
            periods in (2u64..12, 2u64..12),
            each in (0u64..11, 0u64..11),
            ordinary in (0u64..9, 3u64..20),
            start in 0u64..40,
            work in 0u64..60,
        ) {
            let ns = Span::from_ns;
            let costs = Costs {
                tick_period: ns(periods.0),
                interrupt: ns(each.1),
                interrupt_period: ns(periods.1),
                ordinary: ns(ordinary.0 % ordinary.1),
                ordinary_period: ns(ordinary.1),
                ..Costs::NONE
            };
            let tick = ns(each.0 % periods.0);
            let costs = Costs { tick, ..costs };
            let costs = if costs.leaves_time() { costs } else { Costs { interrupt: Span::ZERO, ..costs } };
            let costs = if costs.leaves_time() { costs } else { Costs { ordinary: Span::ZERO, ..costs } };
            let thefts = StolenTime::new(&costs);
            let finish = thefts.finish(Time::from_ns(start), ns(work)).as_ns();
            prop_assert_eq!(slow_work(&costs, start, finish), work);
            prop_assert!(work == 0 || slow_work(&costs, start, finish - 1) < work);
            for now in start..=finish {
                let done = thefts.work(Time::from_ns(start), Time::from_ns(now)).as_ns();
                prop_assert_eq!(done, slow_work(&costs, start, now));
            }
        }
    }
}
