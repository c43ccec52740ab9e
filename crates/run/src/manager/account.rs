//! The log of a run under managers: merges what they wrote, adds missed deadlines, and measures them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::atomic::Ordering;

use takt_log::stats::Histogram;
use takt_log::{CancelCause, Definition, Event, JobKey, ServerDef, Sink};
use takt_model::{System, TaskId, Time};

use super::core::Fact;
use super::record::{Note, from_words};
use crate::lanes::Lane;

/// How a manager did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passes {
    /// How late it woke for an instant of the plan.
    pub(crate) late: Histogram,
    /// Of these, instants at which a budget came back.
    pub(crate) replenished: Histogram,
    /// From each wake-up to the end of the decision.
    pub(crate) cost: Histogram,
}

/// The outcome of a run under managers.
pub(crate) struct ManagedSummary {
    /// Facts that found a full ring.
    pub(crate) lost: u64,
    /// The last event's time.
    pub(crate) last: Time,
    /// By manager.
    pub(crate) passes: Vec<Passes>,
    /// Completed jobs. A thread may complete one that the run ended before.
    pub(crate) completed: BTreeMap<TaskId, u64>,
}

/// Takes the facts of all managers, and passes on events in the order of time.
pub(crate) struct ManagedAccount<'a, S> {
    sink: S,
    stream: u32,
    system: &'a System,
    managers: Vec<Managed>,
    /// Deadlines of released jobs.
    deadlines: BinaryHeap<Reverse<(Time, JobKey)>>,
    /// Released and neither completed nor cancelled.
    open: BTreeSet<JobKey>,
    completed: BTreeMap<TaskId, u64>,
    last: Time,
    lost: u64,
}

#[derive(Default)]
struct Managed {
    waiting: VecDeque<(Time, Fact)>,
    floor: Time,
    /// Budgets have come back since the last pass.
    replenished: bool,
    /// The arrival of the next release in a chain.
    arrival: Option<(JobKey, Time)>,
    /// Where arrivals of messages are told late: all events before this have been told.
    told: Option<Time>,
    passes: Passes,
}

impl<'a, S: Sink> ManagedAccount<'a, S> {
    pub(crate) fn new(sink: S, stream: u32, system: &'a System, managers: usize) -> Self {
        let managers = (0..managers).map(|_| Managed::default()).collect();
        let (deadlines, open, completed) = (BinaryHeap::new(), BTreeSet::new(), BTreeMap::new());
        ManagedAccount { sink, stream, system, managers, deadlines, open, completed, last: Time::ZERO, lost: 0 }
    }

    /// The receiver of the events.
    pub(crate) fn out(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Takes what the managers have written, and emits the certain events. Returns the time before which no event will
    /// follow. `lanes` are those of the managers.
    pub(crate) fn drain<'l>(&mut self, lanes: impl Iterator<Item = &'l Lane> + Clone) -> Time {
        for (managed, lane) in self.managers.iter_mut().zip(lanes.clone()) {
            // Read the floor first: facts written after this are later.
            managed.floor = Time::from_ns(lane.floor.load(Ordering::Acquire));
            while let Some(words) = lane.ring.pop() {
                managed.take(words);
            }
        }
        let certain = self.emit_certain();
        let lost: u64 = lanes.map(|lane| lane.ring.lost()).sum();
        if lost > self.lost {
            let count = lost - self.lost;
            self.lost = lost;
            self.sink.event(self.stream, self.last, &Event::Lost { count });
        }
        certain.max(self.last)
    }

    /// Ends the account: the run ended at `end`.
    pub(crate) fn finish<'l>(
        mut self,
        lanes: impl Iterator<Item = &'l Lane> + Clone,
        end: Time,
    ) -> (ManagedSummary, S) {
        self.drain(lanes);
        self.managers.iter_mut().for_each(|managed| managed.told = None);
        self.emit_certain();
        self.miss_before(end.max(self.last).saturating_add(takt_model::Span::from_ns(1)));
        let passes = self.managers.into_iter().map(|managed| managed.passes).collect();
        (ManagedSummary { lost: self.lost, last: self.last, passes, completed: self.completed }, self.sink)
    }

    fn emit_certain(&mut self) -> Time {
        loop {
            let Some((certain, at)) = self.managers.iter().map(Managed::bound).zip(0..).min() else { return Time::MAX };
            match self.managers.get_mut(at).and_then(Managed::pop) {
                Some((at, fact)) => self.emit(at, fact),
                None => {
                    // When all have ended, only the run's end tells which deadlines were missed.
                    if certain < Time::MAX {
                        self.miss_before(certain);
                    }
                    return certain;
                }
            }
        }
    }

    fn emit(&mut self, at: Time, fact: Fact) {
        self.miss_before(at);
        self.last = self.last.max(at);
        let event = match fact {
            Fact::Switched { component, rule, period, budget } => {
                let Some(of) = self.system.components.get(component.index()) else { return };
                let (name, rule) = (of.name.clone(), rule.name().to_owned());
                let def = ServerDef { name, node: of.node, rule, period: Some(period), budget: Some(budget) };
                return self.sink.define(self.stream, self.last, &Definition::Server(component.0, def));
            }
            Fact::Event(event) => event,
        };
        match event {
            Event::Release { job, arrival, .. } => {
                if let Some(task) = self.system.tasks.get(job.task.index()) {
                    self.deadlines.push(Reverse((arrival.saturating_add(task.deadline), job)));
                }
                self.open.insert(job);
            }
            Event::Complete { job, .. } => {
                self.open.remove(&job);
                *self.completed.entry(job.task).or_default() += 1;
            }
            Event::Cancel { job, cause } => {
                // A job that is dropped at its deadline has missed it.
                if cause == CancelCause::Late && self.open.contains(&job) {
                    self.sink.event(self.stream, self.last, &Event::Miss { job });
                }
                self.open.remove(&job);
            }
            _ => {}
        }
        self.sink.event(self.stream, self.last, &event);
    }

    /// Emits the misses of deadlines before `now`.
    fn miss_before(&mut self, now: Time) {
        while let Some(Reverse((deadline, job))) = self.deadlines.peek().copied().filter(|next| next.0.0 < now) {
            self.deadlines.pop();
            if self.open.contains(&job) {
                // A job that was released after its deadline missed it at its release.
                self.last = self.last.max(deadline);
                self.sink.event(self.stream, self.last, &Event::Miss { job });
            }
        }
    }
}

impl Managed {
    /// Nothing before this will be told any more.
    fn bound(&self) -> Time {
        let bound = self.waiting.front().map_or(self.floor, |(at, _)| *at);
        self.told.map_or(bound, |told| told.min(bound))
    }

    /// The next fact, if it is certain.
    fn pop(&mut self) -> Option<(Time, Fact)> {
        let is_certain = |at: Time| self.told.is_none_or(|told| at < told);
        self.waiting.front().copied().filter(|(at, _)| is_certain(*at))?;
        self.waiting.pop_front()
    }

    /// Puts a fact into its place. Only messages are told late. They come before other events of
    /// their instant.
    fn put(&mut self, at: Time, fact: Fact) {
        let is_arrival = matches!(fact, Fact::Event(Event::Arrive { .. }));
        let is_later = |(other, _): &&(Time, Fact)| if is_arrival { *other >= at } else { *other > at };
        let behind = self.waiting.iter().rev().take_while(is_later).count();
        self.waiting.insert(self.waiting.len() - behind, (at, fact));
    }

    fn take(&mut self, words: [u64; 4]) {
        match from_words(words) {
            Some((at, Note::Fact(Fact::Event(Event::Release { job, parent: Some(parent), .. })))) => {
                let arrival = self.arrival.take().filter(|(of, _)| *of == job).map_or(at, |(_, arrival)| arrival);
                self.put(at, Fact::Event(Event::Release { job, arrival, parent: Some(parent) }));
            }
            Some((_, Note::Arrival { job, arrival })) => self.arrival = Some((job, arrival)),
            Some((at, Note::Told)) => self.told = Some(at),
            Some((at, Note::Fact(fact))) => {
                self.replenished |= matches!(fact, Fact::Event(Event::Replenish { .. }));
                self.put(at, fact);
            }
            Some((_, Note::Pass { late, cost })) => {
                let replenished = std::mem::take(&mut self.replenished);
                if let Some(late) = late {
                    self.passes.late.record(late.as_ns());
                    if replenished {
                        self.passes.replenished.record(late.as_ns());
                    }
                }
                self.passes.cost.record(cost.as_ns());
            }
            None => {}
        }
    }
}
