//! Who is served first where several want the same event: the more important, whoever subscribed first; and nobody is woken before all are served that are as important as he is.
//!
//! A supplier that is less important than two consumers loses its CPU to whom it wakes. Were that the one who subscribed first, the other, more important one would not
//! even be offered the event before that one's handler has returned. So consumers are offered it first, and are woken then: the kernel, and each level's queue, decide who goes. What is to leave
//! for other nodes has its place in the same order, by the priority of its level.

use std::cmp::Reverse;

use takt_linux::thread::current_cpu;

use super::lane::Lane;
use crate::{Handle, Owed, Plan, PlanLevelRow, PushError, Row};

/// Who may want an event, by its place among its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Target {
    /// Another node's, by a push that does not wait for it.
    Direct(usize),
    Consumer(usize),
    /// Another node's, by a push that may wait for the network.
    Patient(usize),
}

/// The order of all, by the plan in force. Those of one priority: what leaves at once, consumers in the order in which they subscribed, what may have to wait.
pub(super) struct Order {
    by_plan: Vec<Vec<Target>>,
}

impl Order {
    pub(super) fn of(plan: &Plan, consumers: &[&str], lanes: &[Lane]) -> Order {
        let lanes = lanes.iter().enumerate().map(|(at, lane)| {
            let target = if lane.may_block() { Target::Patient(at) } else { Target::Direct(at) };
            (target, priority(&plan.levels, lane.level))
        });
        let lanes: Vec<(Target, u8)> = lanes.collect();
        let sorted = |rows: &Vec<Row>| {
            let of = |name: &str| rows.iter().find(|row| row.name == name && row.takes_part);
            let consumer = |(at, name): (usize, &&str)| (Target::Consumer(at), of(name).map_or(0, |row| row.priority));
            let mut all: Vec<(Target, u8)> = consumers.iter().enumerate().map(consumer).collect();
            all.extend(&lanes);
            all.sort_by_key(|(target, priority)| (Reverse(*priority), *target));
            all.into_iter().map(|(target, _)| target).collect()
        };
        let modes = plan.modes.iter().map(|mode| &mode.rows);
        Order { by_plan: std::iter::once(&plan.rows).chain(modes).map(sorted).collect() }
    }

    /// Under this plan of the dispatcher's.
    pub(super) fn under(&self, plan: usize) -> &[Target] {
        self.by_plan.get(plan).or(self.by_plan.first()).map_or(&[], Vec::as_slice)
    }
}

/// Of threads of a level of the first plan: theirs are scheduled by it, whatever plan is switched to.
fn priority(levels: &[PlanLevelRow], level: usize) -> u8 {
    levels.get(level).map_or(0, |level| level.priority)
}

/// CPUs whose wake-ups are put off at once. Of more, those of the most important consumers are done first.
const CPUS_MAX: usize = 4;

/// Wake-ups that are put off, by CPU.
#[derive(Default)]
pub(super) struct Wakes<'a> {
    /// No two of one CPU; nothing after the first that is free.
    owed: [Option<(&'a Handle, Owed)>; CPUS_MAX],
}

impl<'a> Wakes<'a> {
    /// Pushes a job of this operation, and wakes nobody.
    pub(super) fn push(&mut self, handle: &'a Handle, named: impl FnOnce(u64, u64)) -> Result<u64, PushError> {
        let mut owed = None;
        let pushed = handle.push_quietly(named, &mut owed);
        if let Some(owed) = owed {
            self.add(handle, owed);
        }
        pushed
    }

    fn add(&mut self, handle: &'a Handle, new: Owed) {
        for place in &mut self.owed {
            match place.take() {
                None => {
                    *place = Some((handle, new));
                    return;
                }
                Some((first, owed)) if owed.cpu == new.cpu => {
                    *place = Some((first, owed.and(new)));
                    return;
                }
                other => *place = other,
            }
        }
        handle.pay(new);
    }

    /// Wakes all of them. `cpus` are the kernel's numbers of the plan's: who is woken on this one may take it from who wakes, the others first.
    pub(super) fn wake(&mut self, cpus: &[u32]) {
        let several = self.owed.get(1).is_some_and(Option::is_some);
        if let Some(here) = several.then(current_cpu).flatten() {
            let is_here = |owed: &Owed| cpus.get(owed.cpu as usize).is_none_or(|cpu| *cpu == here);
            // There is one of each CPU, and it does not matter in which order the others come.
            self.owed.sort_unstable_by_key(|place| place.as_ref().map(|(_, owed)| is_here(owed)).ok_or(()));
        }
        for place in &mut self.owed {
            let Some((handle, owed)) = place.take() else { return };
            handle.pay(owed);
        }
    }
}

#[cfg(test)]
mod tests {
    use takt_model::{Builtin, Span};

    use super::Target::Consumer;
    use super::*;
    use crate::{Limits, OperatingMode, Operation, Operations};

    #[test]
    fn the_more_important_come_first_by_the_plan_in_force() {
        let operation = |name, ms| Operation::sporadic(name, Span::from_ms(ms)).wcet(Span::from_us(1));
        let operations = Operations::new("order")
            .with(operation("show", 5).noncritical())
            .with(operation("plot", 5).noncritical())
            .with(operation("steer", 10))
            .mode(OperatingMode::new("by rate", Builtin::Rm.strategy()))
            .mode(OperatingMode::new("without show", Builtin::Rm.strategy()).without("show"));
        let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default()).unwrap();
        let order = Order::of(&plan, &["show", "plot", "steer"], &[]);
        assert_eq!(order.under(0), [2, 0, 1].map(Consumer));
        assert_eq!(order.under(1), [0, 1, 2].map(Consumer));
        assert_eq!(order.under(2), [1, 2, 0].map(Consumer));
    }
}
