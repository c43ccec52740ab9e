//! The execution time of one job that is watched for an overrun.

use takt_model::{Span, Time};

use crate::plan::Overrun;

/// The least time between two checks of a job that has executed since the last check.
const LOOK: Span = Span::from_us(100);
/// The most time between two checks of a job that has not executed meanwhile: it is preempted, or
/// its handler waits.
const LOOK_MAX: Span = Span::from_ms(1);
/// A job whose execution is watched.
pub(super) struct Watch {
    pub(super) slot: u32,
    pub(super) number: u64,
    wcet: Span,
    pub(super) overrun: Overrun,
    /// CPU time of the thread when the job began.
    began: Span,
    /// The execution time at the last check, and the least time until the next check.
    used: Span,
    pause: Span,
    /// When the timer thread checks next; [`Time::MAX`] once the overrun has been reported.
    pub(super) look: Time,
}

impl Watch {
    /// The watch of a job that begins now. Its thread has executed for `began` so far.
    pub(super) fn new(slot: u32, number: u64, (overrun, wcet): (Overrun, Span), began: Span, now: Time) -> Watch {
        let look = now.saturating_add(wcet);
        Watch { slot, number, wcet, overrun, began, used: Span::ZERO, pause: LOOK, look }
    }

    /// Whether the overrun has been reported.
    pub(super) fn is_told(&self) -> bool {
        self.look == Time::MAX
    }

    /// Whether the job goes on at the priority of demoted jobs.
    pub(super) fn is_demoted(&self) -> bool {
        self.is_told() && self.overrun == Overrun::Demote
    }

    /// Whether the job has executed for its wcet. If not, plans the next check.
    pub(super) fn is_over(&mut self, cpu_time: Span, now: Time) -> bool {
        let used = cpu_time.saturating_sub(self.began);
        if used >= self.wcet {
            self.look = Time::MAX;
            return true;
        }
        self.pause = if used > self.used { LOOK } else { self.pause.saturating_add(self.pause).min(LOOK_MAX) };
        self.used = used;
        self.look = now.saturating_add(self.wcet.saturating_sub(used).max(self.pause));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_executed_counts_and_a_job_that_waits_is_looked_at_less_often() {
        let us = Span::from_us;
        let at = |n: u64| Time::ZERO.saturating_add(us(n));
        let mut watch = Watch::new(0, 3, (Overrun::Demote, us(1000)), us(50), at(0));
        assert!(!watch.is_over(us(450), at(1000)), "it was preempted for 600 us");
        assert_eq!((watch.look, watch.is_demoted()), (at(1600), false));
        assert!(!watch.is_over(us(1045), at(1600)));
        assert_eq!(watch.look, at(1700), "not sooner, however little is left");
        let mut looks = Vec::new();
        for _ in 0..5 {
            let now = watch.look;
            assert!(!watch.is_over(us(1045), now));
            looks.push(watch.look.saturating_since(now));
        }
        assert_eq!(looks, [us(200), us(400), us(800), us(1000), us(1000)]);
        assert!(watch.is_over(us(1050), at(9000)) && watch.is_told() && watch.is_demoted());
    }
}
