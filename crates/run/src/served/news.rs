//! Puts the events of servers, from the scheduler in the kernel, between the events of threads in the
//! log, in the order of time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use takt_linux::Epoch;
use takt_linux::sched_ext::{Scheduler, ServerEvent, ServerNews};
use takt_log::{Definition, Event, ServerDef, Sink};
use takt_model::{ComponentId, Span, System, Time};

use super::plan::{ServedPlan, rule_named};
use super::together::Together;

/// The source of the events of servers.
pub(crate) struct ServerSource {
    scheduler: Arc<Mutex<Scheduler>>,
    system: Arc<System>,
    epoch: Epoch,
    /// By the kernel's CPU and the server on it.
    components: BTreeMap<(u32, u32), ComponentId>,
    /// Those with servers on several CPUs.
    together: BTreeMap<ComponentId, Together>,
    /// By time, and by the order in which they came.
    waiting: BTreeMap<(Time, u64), ServerEvent>,
    count: u64,
    balances: BTreeMap<ComponentId, Balance>,
}

/// What a server has got so far, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Balance {
    pub(crate) paid: u64,
    /// Of its last budget. Below zero it has had too much.
    left: i64,
    /// The most that it had too much.
    pub(crate) owed_max: u64,
}

impl Balance {
    fn take(&mut self, news: &ServerNews) {
        match news {
            ServerNews::Replenished { budget } => self.left = budget.cast_signed(),
            ServerNews::Paid { amount, .. } => {
                self.paid += amount;
                self.left = self.left.saturating_sub_unsigned(*amount);
                self.owed_max = self.owed_max.max(self.left.min(0).unsigned_abs());
            }
            ServerNews::Exhausted | ServerNews::Idle | ServerNews::Switched { .. } => {}
        }
    }
}

impl ServerSource {
    pub(crate) fn new(
        scheduler: Arc<Mutex<Scheduler>>,
        system: Arc<System>,
        epoch: Epoch,
        plan: &ServedPlan,
        cpus: &[u32],
    ) -> ServerSource {
        let mut components = BTreeMap::new();
        for cpu in &plan.cpus {
            let kernel = cpus.get(cpu.cpu as usize).copied().unwrap_or(cpu.cpu);
            for (at, component) in (0..).zip(&cpu.components) {
                components.extend(component.map(|id| ((kernel, at), id)));
            }
        }
        let mut servers = BTreeMap::<ComponentId, Vec<(u32, u32)>>::new();
        components.iter().for_each(|(place, id)| servers.entry(*id).or_default().push(*place));
        servers.retain(|_, places| places.len() > 1);
        let together = servers.into_iter().map(|(id, places)| (id, Together::new(&places))).collect();
        ServerSource {
            scheduler,
            system,
            epoch,
            components,
            together,
            waiting: BTreeMap::new(),
            count: 0,
            balances: BTreeMap::new(),
        }
    }

    fn read(&mut self) {
        let (epoch, waiting, count) = (self.epoch, &mut self.waiting, &mut self.count);
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner).take(&mut |event| {
            *count += 1;
            waiting.insert((epoch.at(Time::from_ns(event.at)), *count), event);
        });
    }

    /// The changes of a component by this event of a server, in the order of time.
    fn of_component(&mut self, id: ComponentId, at: Time, event: &ServerEvent) -> [Option<(Time, ServerNews)>; 2] {
        match self.together.get_mut(&id) {
            Some(together) => together.take((event.cpu, event.server), at, event.news),
            None => [None, Some((at, event.news))],
        }
    }

    /// Its record in the log.
    fn record_of(&self, id: ComponentId, news: &ServerNews) -> Option<Record> {
        let (server, span) = (id.0, Span::from_ns);
        Some(Record::Event(match *news {
            ServerNews::Replenished { budget } => Event::Replenish { server, budget: span(budget) },
            ServerNews::Exhausted => Event::Exhaust { server },
            ServerNews::Idle => Event::ServerIdle { server },
            ServerNews::Paid { since, amount, idle } => {
                Event::Charge { server, since: self.epoch.at(Time::from_ns(since)), amount: span(amount), idle }
            }
            ServerNews::Switched { rule, budget, period } => {
                let component = self.system.components.get(id.index())?;
                let (budget, period) = (Some(span(budget)), Some(span(period)));
                let (name, rule) = (component.name.clone(), rule_named(rule)?.name().to_owned());
                let def = ServerDef { name, node: component.node, rule, period, budget };
                return Some(Record::Definition(Definition::Server(server, def)));
            }
        }))
    }
}

enum Record {
    Event(Event),
    Definition(Definition),
}

/// A sink that adds the events of servers to those of threads, if there is a source.
pub(crate) struct WithServerEvents<'a, S> {
    sink: &'a mut S,
    stream: u32,
    source: Option<ServerSource>,
    last: Time,
}

impl<'a, S: Sink> WithServerEvents<'a, S> {
    pub(crate) fn new(sink: &'a mut S, stream: u32, source: Option<ServerSource>) -> Self {
        WithServerEvents { sink, stream, source, last: Time::ZERO }
    }

    /// What each server has got.
    pub(crate) fn balances(&self) -> BTreeMap<ComponentId, Balance> {
        self.source.as_ref().map(|source| source.balances.clone()).unwrap_or_default()
    }

    /// Passes on the events of servers up to `until`.
    fn advance(&mut self, until: Time) {
        let Some(source) = &mut self.source else { return };
        if until > self.last {
            source.read();
        }
        while let Some(first) = source.waiting.first_entry().filter(|first| first.key().0 <= until) {
            let ((at, _), event) = first.remove_entry();
            let Some(id) = source.components.get(&(event.cpu, event.server)).copied() else { continue };
            source.balances.entry(id).or_default().take(&event.news);
            for (at, news) in source.of_component(id, at, &event).into_iter().flatten() {
                // An event that was told late stands where it can.
                self.last = self.last.max(at);
                match source.record_of(id, &news) {
                    Some(Record::Event(event)) => self.sink.event(self.stream, self.last, &event),
                    Some(Record::Definition(definition)) => self.sink.define(self.stream, self.last, &definition),
                    None => {}
                }
            }
        }
        self.last = self.last.max(until);
    }

    /// The run ended at `end`. The kernel's buffer was full for so many events of servers.
    pub(crate) fn finish(&mut self, end: Time, lost: u64) {
        self.advance(end);
        let Some(source) = &mut self.source else { return };
        let waiting: Vec<_> =
            source.together.iter_mut().filter_map(|(id, together)| Some((*id, together.renewed()?.1))).collect();
        for (id, news) in waiting {
            if let Some(Record::Event(event)) = source.record_of(id, &news) {
                self.sink.event(self.stream, self.last, &event);
            }
        }
        if lost > 0 {
            self.sink.event(self.stream, self.last, &Event::Lost { count: lost });
        }
    }
}

impl<S: Sink> Sink for WithServerEvents<'_, S> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.advance(now);
        self.sink.event(stream, now, event);
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.advance(now);
        self.sink.define(stream, now, definition);
    }

    fn reached(&mut self, _stream: u32, now: Time) {
        self.advance(now);
    }

    fn wants_misses(&self) -> bool {
        self.sink.wants_misses()
    }
}
