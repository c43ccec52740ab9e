//! The log of a run under managers: merges what they wrote, adds missed deadlines, and measures them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::atomic::Ordering;

use takt_log::stats::Histogram;
use takt_log::{CancelCause, Definition, Event, JobKey, ServerDef, Sink, TaskDef};
use takt_model::{ComponentId, ServerRule, Span, TaskId, Time};
use takt_policy::Hierarchy;

use super::record::{ManagerRecord, from_words};
use crate::budgets::core::Fact;
use crate::lanes::{Guests, Lane, Shared};

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
    shared: &'a Shared,
    /// Tasks and servers that are defined.
    defined: (u32, u32),
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
    /// All events before this time are written. Set only if message arrivals are reported with a delay.
    written_until: Option<Time>,
    passes: Passes,
}

impl<'a, S: Sink> ManagedAccount<'a, S> {
    pub(crate) fn new(sink: S, stream: u32, shared: &'a Shared, managers: usize) -> Self {
        let defined = (shared.system.tasks.len() as u32, shared.system.components.len() as u32);
        let managers = (0..managers).map(|_| Managed::default()).collect();
        let (deadlines, open, completed) = (BinaryHeap::new(), BTreeSet::new(), BTreeMap::new());
        ManagedAccount {
            sink,
            stream,
            shared,
            defined,
            managers,
            deadlines,
            open,
            completed,
            last: Time::ZERO,
            lost: 0,
        }
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
        self.managers.iter_mut().for_each(|managed| managed.written_until = None);
        self.emit_certain();
        self.miss_before(end.max(self.last).saturating_add(Span::from_ns(1)));
        for (id, guest) in self.shared.guests.iter().flat_map(Guests::all) {
            guest.lane.completed.store(self.completed.get(&id).copied().unwrap_or(0), Ordering::Release);
        }
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
                if let Some(guests) = &self.shared.guests {
                    guests.tell_switched(component, at);
                }
                return self.define_server(component, rule, (period, budget));
            }
            Fact::Event(event) => event,
        };
        match event {
            Event::Release { job, arrival, .. } => {
                self.define_tasks(job.task);
                if let Some(task) = self.shared.task(job.task) {
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

    /// Defines the new terms of a server, and before that the servers of all components that have joined. A closed
    /// server has none.
    fn define_server(&mut self, component: ComponentId, rule: ServerRule, (period, budget): (Span, Span)) {
        let shared = self.shared;
        let of = |id: ComponentId| {
            let guest = || shared.guests.as_ref().and_then(|guests| guests.component(id));
            shared.system.components.get(id.index()).or_else(guest)
        };
        let terms = Some((period, budget)).filter(|_| period != Hierarchy::CLOSED);
        for id in self.defined.1.min(component.0)..=component.0 {
            let Some(of) = of(ComponentId(id)) else { return };
            let (terms, rule) = if id == component.0 { (terms, rule) } else { (None, of.server) };
            let (period, budget) = terms.unzip();
            let def = ServerDef { name: of.name.clone(), node: of.node, rule: rule.name().to_owned(), period, budget };
            self.sink.define(self.stream, self.last, &Definition::Server(id, def));
        }
        self.defined.1 = self.defined.1.max(component.0 + 1);
    }

    /// Defines tasks that have joined, up to this one.
    fn define_tasks(&mut self, task: TaskId) {
        while self.defined.0 <= task.0 {
            let Some(of) = self.shared.task(TaskId(self.defined.0)) else { return };
            let (period, deadline, wcet) = (Some(of.period), Some(of.deadline), Some(of.wcet));
            let def = TaskDef { name: of.name.clone(), node: of.node, period, deadline, wcet, class: None };
            self.sink.define(self.stream, self.last, &Definition::Task(TaskId(self.defined.0), def));
            self.defined.0 += 1;
        }
    }

    /// The cost and the lateness of a decision of the worst manager. They are the p99. Before the hundredth decision
    /// they are the median, because the p99 would be that of the cold start.
    pub(crate) fn costs(&self) -> Option<(Span, Span)> {
        let worst = |of: fn(&Passes) -> &Histogram| {
            let most = |of: &Histogram| of.summary().map(|all| if of.count() < 100 { all.p50 } else { all.p99 });
            self.managers.iter().filter_map(|managed| most(of(&managed.passes))).max().map(Span::from_ns)
        };
        worst(|passes| &passes.cost).zip(worst(|passes| &passes.late))
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
        self.written_until.map_or(bound, |written_until| written_until.min(bound))
    }

    /// The next fact, if it is certain.
    fn pop(&mut self) -> Option<(Time, Fact)> {
        let is_certain = |at: Time| self.written_until.is_none_or(|written_until| at < written_until);
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
            Some((at, ManagerRecord::Fact(Fact::Event(Event::Release { job, parent: Some(parent), .. })))) => {
                let arrival = self.arrival.take().filter(|(of, _)| *of == job).map_or(at, |(_, arrival)| arrival);
                self.put(at, Fact::Event(Event::Release { job, arrival, parent: Some(parent) }));
            }
            Some((_, ManagerRecord::Arrival { job, arrival })) => self.arrival = Some((job, arrival)),
            Some((at, ManagerRecord::WrittenUntil)) => self.written_until = Some(at),
            Some((at, ManagerRecord::Fact(fact))) => {
                self.replenished |= matches!(fact, Fact::Event(Event::Replenish { .. }));
                self.put(at, fact);
            }
            Some((_, ManagerRecord::Pass { late, cost })) => {
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
