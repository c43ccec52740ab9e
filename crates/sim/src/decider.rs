//! The decisions of a node come from a dispatcher, from clusters if the node has components, or from a cyclic
//! executive.

use takt_model::Time;
use takt_policy::{Clusters, CyclicExecutive, Decision, Dispatcher, Event, ServerEvent};

/// The protocol of [`Dispatcher`], [`Clusters`] and [`CyclicExecutive`].
pub(crate) trait Decider {
    fn wants_deadlines(&self) -> bool;
    fn decisions_max(&self) -> usize;
    fn on_event(&mut self, now: Time, event: &Event, decisions: &mut Vec<Decision>);
    fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>);
    fn next_wakeup(&self, now: Time) -> Option<Time>;
    /// Calls `each` with every change of a server since the last call, in order.
    fn take_server_events(&mut self, each: impl FnMut(ServerEvent));
    /// Charges servers up to the end of the simulation.
    fn finish(&mut self, end: Time);
}

impl Decider for Dispatcher {
    fn wants_deadlines(&self) -> bool {
        self.wants_deadlines()
    }
    fn decisions_max(&self) -> usize {
        self.decisions_max()
    }
    #[inline(always)]
    fn on_event(&mut self, now: Time, event: &Event, decisions: &mut Vec<Decision>) {
        self.on_event(now, event, decisions);
    }
    #[inline(always)]
    fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        self.dispatch(now, decisions);
    }
    #[inline(always)]
    fn next_wakeup(&self, now: Time) -> Option<Time> {
        self.next_wakeup(now)
    }
    #[inline(always)]
    fn take_server_events(&mut self, _: impl FnMut(ServerEvent)) {}
    fn finish(&mut self, _: Time) {}
}

impl Decider for Clusters {
    fn wants_deadlines(&self) -> bool {
        self.wants_deadlines()
    }
    fn decisions_max(&self) -> usize {
        self.decisions_max()
    }
    fn on_event(&mut self, now: Time, event: &Event, decisions: &mut Vec<Decision>) {
        self.on_event(now, event, decisions);
    }
    fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        self.dispatch(now, decisions);
    }
    fn next_wakeup(&self, _: Time) -> Option<Time> {
        self.next_wakeup()
    }
    fn take_server_events(&mut self, each: impl FnMut(ServerEvent)) {
        self.take_events(each);
    }
    fn finish(&mut self, end: Time) {
        self.finish(end);
    }
}

impl Decider for CyclicExecutive {
    fn wants_deadlines(&self) -> bool {
        false
    }
    fn decisions_max(&self) -> usize {
        self.decisions_max()
    }
    fn on_event(&mut self, now: Time, event: &Event, _: &mut Vec<Decision>) {
        self.on_event(now, event);
    }
    fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        self.dispatch(now, decisions);
    }
    fn next_wakeup(&self, now: Time) -> Option<Time> {
        self.next_wakeup(now)
    }
    fn take_server_events(&mut self, _: impl FnMut(ServerEvent)) {}
    fn finish(&mut self, _: Time) {}
}
