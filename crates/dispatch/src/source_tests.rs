//! A timer that is late: many arrivals and switches before it looks.

use std::collections::BTreeMap;

use proptest::prelude::*;
use takt_model::{Builtin, Span};

use super::super::build::{core, places, tasks};
use super::super::core::SWITCHES_MAX;
use super::super::fact::{Fact, TimedFact};
use super::super::{Limits, OperatingMode, Operation, Operations};
use super::*;

#[path = "../tests/common/arrivals.rs"]
mod arrivals;

/// Arrivals, by slot.
#[derive(Default)]
struct Arrived(Arc<std::sync::Mutex<BTreeMap<u32, Vec<u64>>>>);

impl FactSink for Arrived {
    fn record(&mut self, timed: TimedFact) {
        if let Fact::Release { arrival, .. } = timed.fact {
            self.0.lock().unwrap().entry(timed.slot).or_default().push(arrival.as_ns());
        }
    }
}

/// The milliseconds until the next switch, its plan, and whether the timer looks before it.
type Step = (u64, usize, bool);

/// Operations with these periods, in milliseconds, in the plan of the start and two modes (zero:
/// absent). Asserts that all arrivals follow the switches that the timer has seen. Returns the
/// number of unseen switches, for which there was no room.
fn arrive_by_switches(periods: &[Vec<u64>], offsets: &[u64], steps: &[Step]) -> usize {
    let ms = Span::from_ms;
    // An operation that always takes part, so that no mode is empty.
    let mut set = Operations::new("late").with(Operation::periodic("always", ms(7)).wcet(Span::from_us(1)));
    let mut modes = [1, 2].map(|mode| OperatingMode::new(&format!("m{mode}"), Builtin::Edf.strategy()));
    for (at, periods) in periods.iter().enumerate() {
        let name = format!("o{at}");
        let first = periods[0].max(1);
        let operation =
            Operation::periodic(&name, ms(first)).offset(ms(offsets[at])).wcet(Span::from_us(1)).deadline(ms(50));
        set.add(operation.noncritical().backlog(if at % 2 == 0 { 1 } else { 5 }));
        if periods[0] == 0 {
            set = set.at_first_without(&name);
        }
        for (mode, period) in modes.iter_mut().zip(&periods[1..]) {
            *mode = if *period == 0 { mode.clone().without(&name) } else { mode.clone().every(&name, ms(*period)) };
        }
    }
    let plan =
        modes.into_iter().fold(set.clone(), Operations::mode).compute(&Builtin::Rm.strategy(), &Limits::default());
    let plan = plan.unwrap_or_else(|wrong| panic!("{wrong}"));
    let arrived_sink = Arrived::default();
    let arrived = arrived_sink.0.clone();
    let mut core = core(&plan, &places(&plan), 0, arrived_sink).unwrap();
    let tasks: Vec<_> = plan.rows.iter().map(|row| tasks(&plan, row.task)).collect();
    let draw = Draw::new(0, "none");
    let mut sources: Vec<Source<'_>> =
        tasks.iter().zip(0..).filter_map(|(tasks, slot)| Source::new(slot, tasks, draw, Time::MAX)).collect();
    let (mut now, mut unseen, mut holds, mut fell, mut switches) = (Time::ZERO, 0, 0, 0, Vec::new());
    let look = |core: &mut crate::core::Core<Arrived>, sources: &mut [Source<'_>], now: Time| {
        while release(core, sources, now, Overtaken::PassedOver).1 <= now {}
    };
    for &(after, to, looks) in steps {
        now += ms(after);
        if looks {
            look(&mut core, &mut sources, now);
            unseen = 0;
        }
        core.switch(to, now, &mut Vec::with_capacity(8));
        if to != holds {
            // Without room, the last switch replaces the one before.
            if unseen == SWITCHES_MAX {
                switches.pop();
                (unseen, fell) = (unseen - 1, fell + 1);
            }
            switches.push((now, to));
            (unseen, holds) = (unseen + 1, to);
        }
    }
    now += ms(20);
    look(&mut core, &mut sources, now);
    let arrived = arrived.lock().unwrap();
    for (slot, row) in plan.rows.iter().enumerate() {
        let period =
            |k: usize| plan.rows_in(k).map(|rows| &rows[slot]).filter(|row| row.takes_part).map(|row| row.period);
        let periods: Vec<_> = (0..3).map(period).collect();
        let offset = plan.system.tasks[row.task.index()].offset;
        // Arrivals at this instant are included.
        let wanted = arrivals::expected(&periods, offset, &switches, now + Span::from_ns(1));
        assert_eq!(arrived.get(&(slot as u32)).cloned().unwrap_or_default(), wanted, "{} {switches:?}", row.name);
    }
    fell
}

proptest! {
    #[test]
    fn a_late_timer_tells_all_that_arrived_under_the_plan_that_held_then(
        periods in prop::collection::vec(prop::collection::vec(0u64..9, 3), 1..5),
        offsets in prop::collection::vec(0u64..5, 5),
        steps in prop::collection::vec((0u64..40, 0usize..3, prop::bool::weighted(0.2)), 0..30),
    ) {
        prop_assert_eq!(arrive_by_switches(&periods, &offsets, &steps), 0);
    }

    #[test]
    fn of_more_switches_than_are_kept_a_late_timer_sees_the_first_and_the_last(
        periods in prop::collection::vec(prop::collection::vec(0u64..9, 3), 1..5),
        offsets in prop::collection::vec(0u64..5, 5),
        before in prop::collection::vec((0u64..9, 0usize..3, prop::bool::weighted(0.2)), 0..9),
        // Each to another plan than before.
        unseen in prop::collection::vec((0u64..9, 1usize..3), SWITCHES_MAX - 1..SWITCHES_MAX + 40),
        after in prop::collection::vec((0u64..9, 0usize..3, prop::bool::weighted(0.5)), 0..9),
    ) {
        let mut steps = before;
        let (mut holds, least) = (steps.last().map_or(0, |step| step.1), unseen.len().saturating_sub(SWITCHES_MAX));
        for (at, (wait, step)) in unseen.into_iter().enumerate() {
            holds = (holds + step) % 3;
            steps.push((wait, holds, at == 0));
        }
        steps.extend(after);
        prop_assert!(arrive_by_switches(&periods, &offsets, &steps) >= least);
    }
}

/// Arrivals: when each was, and whether it was accepted.
#[derive(Default)]
struct Arrivals(Arc<std::sync::Mutex<Vec<(u64, bool)>>>);

impl FactSink for Arrivals {
    fn record(&mut self, timed: TimedFact) {
        let mut kept = self.0.lock().unwrap();
        match timed.fact {
            Fact::Release { arrival, .. } => kept.push((arrival.as_ns(), true)),
            Fact::Cancel(takt_log::CancelCause::Rejected) => kept.last_mut().unwrap().1 = false,
            _ => {}
        }
    }
}

#[test]
fn a_timer_that_is_late_by_several_periods_makes_no_burst() {
    let ns = Span::from_ns;
    let set = Operations::new("burst").with(Operation::periodic("o", ns(10)).wcet(ns(1)));
    let plan = set.compute(&Builtin::Rm.strategy(), &Limits::default()).unwrap_or_else(|wrong| panic!("{wrong}"));
    let kept = Arrivals::default();
    let seen = kept.0.clone();
    let mut core = core(&plan, &places(&plan), 0, kept).unwrap();
    let tasks = tasks(&plan, plan.rows[0].task);
    let mut sources: Vec<Source<'_>> = Source::new(0, &tasks, Draw::new(0, "none"), Time::MAX).into_iter().collect();
    for now in [0, 45, 50].map(Time::from_ns) {
        let _ = release(&mut core, &mut sources, now, Overtaken::PassedOver);
        // The present job ends before the next look.
        let job = core.next(0, now).unwrap();
        core.end(job, crate::core::End::Completed, now);
        assert!(core.next(0, now).is_none(), "one job at each look, however many arrivals are over");
    }
    // Still on the grid: the arrival after 40 is 50.
    let wanted = [(0, true), (10, false), (20, false), (30, false), (40, true), (50, true)];
    assert_eq!(*seen.lock().unwrap(), wanted);
}
