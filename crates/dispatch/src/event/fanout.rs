//! The order in which consumers and nodes get an event: by importance, regardless of subscription
//! order. No target is woken before all targets of equal importance have the event.
//!
//! A supplier may lose its CPU to a consumer that it wakes. If the less important consumer were
//! woken first, its handler would return before the more important consumer even got the event. So
//! all consumers get the event first and are woken afterwards. Then the kernel and the levels'
//! queues decide the order. Events for other nodes take part in the same order, by the priority of
//! their level.

use std::cmp::Reverse;

use takt_linux::thread::current_cpu;

use crate::{DeferredWakeups, Handle, Plan, PlanLevelRow, PushError, Row};

/// A target of events, by its index among targets of its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Target {
    /// A level between nodes, with a push that never waits.
    Direct(usize),
    Consumer(usize),
    /// A level between nodes, with a push that may wait for the network.
    Patient(usize),
}

/// The order of all targets under each plan. At equal priority, levels that send without waiting
/// come first, then consumers in the order of their subscription, then levels that may wait.
pub(super) struct Order {
    by_plan: Vec<Vec<Target>>,
}

impl Order {
    /// Each level between nodes says whether its push may block, and which level of the plan it is
    /// scheduled as.
    pub(super) fn of(plan: &Plan, consumers: &[&str], between: impl Iterator<Item = (bool, usize)>) -> Order {
        let lanes = between.enumerate().map(|(at, (may_block, level))| {
            let target = if may_block { Target::Patient(at) } else { Target::Direct(at) };
            (target, priority(&plan.levels, level))
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

    /// The order under this plan of the dispatcher.
    pub(super) fn under(&self, plan: usize) -> &[Target] {
        self.by_plan.get(plan).or(self.by_plan.first()).map_or(&[], Vec::as_slice)
    }
}

/// The priority of a level's threads under the first plan. A switch of plans does not change it.
fn priority(levels: &[PlanLevelRow], level: usize) -> u8 {
    levels.get(level).map_or(0, |level| level.priority)
}

/// The most CPUs with deferred wake-ups. If there are more, the most important consumers are woken
/// early.
const CPUS_MAX: usize = 4;

/// Deferred wake-ups, by CPU.
#[derive(Default)]
pub(super) struct Wakes<'a> {
    /// At most one entry for each CPU. Used entries come first.
    deferred: [Option<(&'a Handle, DeferredWakeups)>; CPUS_MAX],
}

impl<'a> Wakes<'a> {
    /// Pushes a job of this operation without waking its thread.
    pub(super) fn push(&mut self, handle: &'a Handle, named: impl FnOnce(u64, u64)) -> Result<u64, PushError> {
        let mut deferred = None;
        let pushed = handle.push_without_wakeups(named, &mut deferred);
        if let Some(deferred) = deferred {
            self.add(handle, deferred);
        }
        pushed
    }

    fn add(&mut self, handle: &'a Handle, new: DeferredWakeups) {
        for place in &mut self.deferred {
            match place.take() {
                None => {
                    *place = Some((handle, new));
                    return;
                }
                Some((first, deferred)) if deferred.cpu == new.cpu => {
                    *place = Some((first, deferred.and(new)));
                    return;
                }
                other => *place = other,
            }
        }
        handle.wake_deferred(new);
    }

    /// Wakes all of them. `cpus` holds the kernel's numbers of the plan's CPUs. The current CPU
    /// comes last, because its woken thread may preempt this one.
    pub(super) fn wake(&mut self, cpus: &[u32]) {
        let several = self.deferred.get(1).is_some_and(Option::is_some);
        if let Some(here) = several.then(current_cpu).flatten() {
            let is_here = |deferred: &DeferredWakeups| cpus.get(deferred.cpu as usize).is_none_or(|cpu| *cpu == here);
            // Each CPU has at most one entry, so the order of the others does not matter.
            self.deferred.sort_unstable_by_key(|place| place.as_ref().map(|(_, deferred)| is_here(deferred)).ok_or(()));
        }
        for place in &mut self.deferred {
            let Some((handle, deferred)) = place.take() else { return };
            handle.wake_deferred(deferred);
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
        let order = Order::of(&plan, &["show", "plot", "steer"], std::iter::empty());
        assert_eq!(order.under(0), [2, 0, 1].map(Consumer));
        assert_eq!(order.under(1), [0, 1, 2].map(Consumer));
        assert_eq!(order.under(2), [1, 2, 0].map(Consumer));
    }
}
