//! Scheduler ticks: at each multiple of their period, each steals a constant from whatever job runs.

use takt_model::{Span, Time};

/// Ticks of a CPU. A tick at instant g is charged to a job that runs in [g, g + 1 ns).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticks {
    period_ns: u64,
    cost_ns: u64,
}

impl Ticks {
    /// Ticks of `cost` every `period`; the cost is below the period.
    pub(crate) fn new(cost: Span, period: Span) -> Self {
        debug_assert!(cost.is_zero() || cost < period);
        Ticks { period_ns: period.as_ns(), cost_ns: cost.as_ns() }
    }

    #[inline]
    fn first_at_or_after(self, time: Time) -> Time {
        Time::from_ns(time.as_ns().next_multiple_of(self.period_ns))
    }

    /// When `work` is done that starts at `start` and runs through.
    #[inline]
    pub(crate) fn finish(self, start: Time, work: Span) -> Time {
        if self.cost_ns == 0 { start + work } else { self.finish_with_ticks(start, work) }
    }

    #[inline(never)]
    fn finish_with_ticks(self, start: Time, work: Span) -> Time {
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

    /// How much work is done in [start, now).
    #[inline]
    pub(crate) fn work(self, start: Time, now: Time) -> Span {
        if self.cost_ns == 0 { now - start } else { self.work_with_ticks(start, now) }
    }

    #[inline(never)]
    fn work_with_ticks(self, start: Time, now: Time) -> Span {
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
    fn slow_work(period: u64, cost: u64, start: u64, now: u64) -> u64 {
        let mut stolen_until = 0;
        let mut work = 0;
        for t in start..now {
            if t % period == 0 {
                stolen_until = t + cost;
            }
            work += u64::from(t >= stolen_until);
        }
        work
    }

    proptest! {
        #[test]
        fn ticks_steal_as_nanoseconds_say(period in 2u64..12, cost in 0u64..11, start in 0u64..40, work in 0u64..60) {
            prop_assume!(cost < period);
            let ticks = Ticks::new(Span::from_ns(cost), Span::from_ns(period));
            let finish = ticks.finish(Time::from_ns(start), Span::from_ns(work)).as_ns();
            prop_assert_eq!(slow_work(period, cost, start, finish), work);
            prop_assert!(work == 0 || slow_work(period, cost, start, finish - 1) < work);
            for now in start..=finish {
                let done = ticks.work(Time::from_ns(start), Time::from_ns(now)).as_ns();
                prop_assert_eq!(done, slow_work(period, cost, start, now));
            }
        }
    }
}
