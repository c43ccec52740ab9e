//! The turns of existing threads in a component: freezing, and payment for CPU time outside of a turn. Pure: the
//! threads are a [`Switch`].
//!
//! The plan gives the component a turn, as it gives a job the CPU. Threads that want no CPU are not frozen, so that
//! they can wake up. After they woke they may use CPU time unnoticed, and no server has paid for it. They
//! owe this time: in their next turn they stay frozen until the turn has lasted as long as they owe.

use takt_model::{Span, Time};

/// The threads of a component.
pub(crate) trait Switch {
    /// Stops all of them between two instructions.
    fn freeze(&self);
    /// Lets them go on.
    fn thaw(&self);
    /// The CPU time of all of them so far. It never goes back.
    fn used(&self) -> Span;
}

/// The present state of the threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// They want no CPU, as far as is known.
    Idle,
    /// They want the CPU, and have no turn.
    Waiting,
    /// They have a turn, and pay with it.
    Paying { since: Time, until: Time },
    /// They have a turn, and run.
    Running { since: Time, used: Span },
}

/// The machine of one component. It begins frozen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Turns {
    phase: Phase,
    is_frozen: bool,
    /// Their CPU time when it was last looked at.
    seen: Span,
    owed: Span,
    /// The most that they ever owed.
    owed_max: Span,
    /// All turns, as long as they lasted.
    paid: Span,
    /// Less than this is not worth a pause.
    grain: Span,
}

impl Turns {
    /// `used`: their CPU time so far.
    pub(crate) fn new(used: Span, grain: Span) -> Turns {
        let (owed, owed_max, paid) = (Span::ZERO, Span::ZERO, Span::ZERO);
        Turns { phase: Phase::Idle, is_frozen: true, seen: used, owed, owed_max, paid, grain }
    }

    /// Whether they want no CPU, as far as is known.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether they run.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// The CPU time that they may have used so far without owing anything.
    pub(crate) fn free_until(&self) -> Span {
        self.seen.saturating_sub(self.owed)
    }

    pub(crate) fn owed_max(&self) -> Span {
        self.owed_max
    }

    pub(crate) fn paid(&self) -> Span {
        self.paid
    }

    /// When they have paid in this turn; [`Time::MAX`] if they owe nothing.
    pub(crate) fn due(&self) -> Time {
        if let Phase::Paying { until, .. } = self.phase { until } else { Time::MAX }
    }

    /// They want the CPU.
    pub(crate) fn wake(&mut self) {
        if self.is_idle() {
            self.phase = Phase::Waiting;
        }
    }

    pub(crate) fn begin(&mut self, now: Time, switch: &impl Switch) {
        let used = switch.used();
        self.look(used);
        if self.owed >= self.grain {
            self.freeze(switch);
            self.phase = Phase::Paying { since: now, until: now.saturating_add(self.owed) };
        } else {
            self.run(now, used, switch);
        }
    }

    /// Lets them run if they have paid. `true`: they have just begun to.
    pub(crate) fn run_if_paid(&mut self, now: Time, switch: &impl Switch) -> bool {
        let Phase::Paying { since, until } = self.phase else { return false };
        if now < until {
            return false;
        }
        self.spend(now.saturating_since(since));
        self.run(now, switch.used(), switch);
        true
    }

    /// Their turn ends, though they still want the CPU.
    pub(crate) fn end(&mut self, now: Time, switch: &impl Switch) {
        self.freeze(switch);
        self.leave(now, switch.used());
        self.phase = Phase::Waiting;
    }

    /// They want no CPU any more. Their turn ends.
    pub(crate) fn sleep(&mut self, now: Time, switch: &impl Switch) {
        self.leave(now, switch.used());
        self.phase = Phase::Idle;
    }

    /// Freezes them if they want the CPU and have no turn.
    pub(crate) fn freeze_waiting(&mut self, switch: &impl Switch) {
        if self.phase == Phase::Waiting {
            self.freeze(switch);
        }
    }

    /// Freezes them for good: nobody looks after them any more.
    pub(crate) fn close(&mut self, now: Time, switch: &impl Switch) {
        self.freeze(switch);
        self.leave(now, switch.used());
        self.phase = Phase::Waiting;
    }

    fn leave(&mut self, now: Time, used: Span) {
        match self.phase {
            Phase::Running { since, used: before } => {
                let lasted = now.saturating_since(since);
                // They may have used more than the turn lasted, on other CPUs.
                let more = used.saturating_sub(before).saturating_sub(lasted);
                self.paid = self.paid.saturating_add(lasted);
                self.seen = used.max(self.seen);
                self.owe(more);
            }
            Phase::Paying { since, .. } => {
                self.spend(now.saturating_since(since));
                self.look(used);
            }
            Phase::Idle | Phase::Waiting => self.look(used),
        }
    }

    /// All that they used since the last look was outside of their turns.
    fn look(&mut self, used: Span) {
        let more = used.saturating_sub(self.seen);
        self.seen = used.max(self.seen);
        self.owe(more);
    }

    fn owe(&mut self, more: Span) {
        self.owed = self.owed.saturating_add(more);
        self.owed_max = self.owed_max.max(self.owed);
    }

    fn spend(&mut self, time: Span) {
        self.owed = self.owed.saturating_sub(time);
        self.paid = self.paid.saturating_add(time);
    }

    fn run(&mut self, now: Time, used: Span, switch: &impl Switch) {
        if std::mem::take(&mut self.is_frozen) {
            switch.thaw();
        }
        self.phase = Phase::Running { since: now, used };
    }

    fn freeze(&mut self, switch: &impl Switch) {
        if !std::mem::replace(&mut self.is_frozen, true) {
            switch.freeze();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use takt_model::generate::Random;

    use super::*;

    /// Threads that run whenever they are not frozen and want to.
    #[derive(Default)]
    struct Threads {
        is_free: Cell<bool>,
        used_ns: Cell<u64>,
    }

    impl Switch for Threads {
        fn freeze(&self) {
            assert!(self.is_free.replace(false), "frozen twice");
        }
        fn thaw(&self) {
            assert!(!self.is_free.replace(true), "thawed twice");
        }
        fn used(&self) -> Span {
            Span::from_ns(self.used_ns.get())
        }
    }

    impl Threads {
        fn work(&self, ns: u64) {
            if self.is_free.get() {
                self.used_ns.set(self.used_ns.get() + ns);
            }
        }
    }

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn threads_pay_for_what_they_took_while_they_counted_as_idle() {
        let (threads, grain) = (Threads::default(), Span::from_ns(10));
        let mut turns = Turns::new(Span::ZERO, grain);
        turns.wake();
        turns.begin(at(0), &threads);
        threads.work(100);
        turns.sleep(at(100), &threads);
        assert!(turns.is_idle() && threads.is_free.get(), "an idle thread can wake up");
        // It runs 40 ns before somebody notices.
        threads.work(40);
        assert_eq!(turns.free_until(), Span::from_ns(100));
        turns.wake();
        turns.freeze_waiting(&threads);
        assert!(!threads.is_free.get());
        turns.begin(at(200), &threads);
        assert_eq!((turns.due(), threads.is_free.get()), (at(240), false), "it pays first");
        assert!(!turns.run_if_paid(at(239), &threads));
        // Its turn ends before it has paid all.
        turns.end(at(230), &threads);
        turns.begin(at(300), &threads);
        assert_eq!(turns.due(), at(310));
        assert!(turns.run_if_paid(at(310), &threads) && threads.is_free.get() && turns.runs());
        threads.work(5);
        turns.end(at(315), &threads);
        assert_eq!((turns.paid(), turns.owed_max()), (Span::from_ns(145), Span::from_ns(40)));
        assert_eq!(threads.used(), turns.paid(), "what it used was paid");
    }

    /// Greedy threads use no more than their turns pay for, and one unnoticed moment.
    #[test]
    fn threads_never_use_more_than_their_turns_and_one_look() {
        const LOOK: u64 = 50;
        let mut random = Random::new(7);
        for _ in 0..300 {
            let (threads, grain) = (Threads::default(), Span::from_ns(random.between(1, 20)));
            let mut turns = Turns::new(Span::ZERO, grain);
            let (mut now, mut budget, mut unnoticed) = (0, 0u64, 0);
            turns.wake();
            for _ in 0..200 {
                // A turn, in which they stop at some time or not at all.
                let turn = random.between(1, 200);
                budget += turn;
                turns.begin(at(now), &threads);
                let end = now + turn;
                if turns.due() <= at(end) {
                    now = turns.due().as_ns();
                    turns.run_if_paid(at(now), &threads);
                }
                let work = if random.between(0, 1) == 0 { end - now } else { random.between(0, end - now) };
                threads.work(work);
                if turns.runs() && work < end - now {
                    turns.sleep(at(now + work), &threads);
                } else {
                    turns.end(at(end), &threads);
                }
                now = end;
                // Outside of its turn, until the next look.
                if turns.is_idle() {
                    let burst = random.between(0, LOOK);
                    threads.work(burst);
                    unnoticed = unnoticed.max(burst);
                    turns.wake();
                    turns.freeze_waiting(&threads);
                }
                let most = budget + unnoticed + grain.as_ns();
                assert!(threads.used_ns.get() <= most, "{} of {most}: {turns:?}", threads.used_ns.get());
                assert!(!threads.is_free.get(), "nobody looks after them");
            }
        }
    }
}
