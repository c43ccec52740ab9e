//! The logs of a run's nodes, read as one log.
//!
//! Each node of a live run with flows writes a log of its own. [`Joined`] gives their events in the order of time.
//! Each stream keeps the times of its node's clock. [`Joined::clocks`] says how these clocks differ.

use std::collections::VecDeque;
use std::io;

use takt_model::{NodeId, Time};
use thiserror::Error;

use crate::definitions::{Clocks, Definition, Definitions, TaskDef};
use crate::error::ReadError;
use crate::event::{Event, Sink};
use crate::header::{BackEnd, Header};
use crate::reader::Reader;

/// Records of a log that are read ahead.
const AHEAD: usize = 256;

/// Logs that are read as one. See the module's documentation.
pub struct Joined<'a, R> {
    parts: Vec<Part<'a, R>>,
    header: Header,
    definitions: Definitions,
}

/// Why logs cannot be joined. Logs are counted from zero.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum JoinError {
    /// There is no log.
    #[error("there is no log")]
    None,
    /// It is not of one node alone.
    #[error("is not the log of one node of a live run; only such logs can be joined")]
    NotOfNode {
        /// The log.
        log: usize,
    },
    /// Another log is of the same node.
    #[error("is another log of node \"{node}\"; give one log of each node")]
    SameNode {
        /// The log.
        log: usize,
        /// The node's name.
        node: String,
    },
    /// It is of another system.
    #[error("is a log of another system or seed than the first log; give the logs of one run")]
    OtherRun {
        /// The log.
        log: usize,
    },
}

impl JoinError {
    /// The log that it is about.
    #[must_use]
    pub fn log(&self) -> usize {
        match self {
            JoinError::None => 0,
            JoinError::NotOfNode { log } | JoinError::SameNode { log, .. } | JoinError::OtherRun { log } => *log,
        }
    }
}

struct Part<'a, R> {
    reader: &'a mut Reader<R>,
    waiting: Waiting,
    ended: bool,
    /// Numbers in the joined log, by those in this one.
    interrupts: Vec<u32>,
    threads: Vec<u32>,
}

#[derive(Default)]
struct Waiting(VecDeque<(u32, Time, Entry)>);

enum Entry {
    Event(Event),
    Definition(Definition),
}

impl Sink for Waiting {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.0.push_back((stream, now, Entry::Event(*event)));
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.0.push_back((stream, now, Entry::Definition(definition.clone())));
    }
}

impl<'a, R: io::Read> Joined<'a, R> {
    /// Joins logs of live runs, each about another node of one system.
    ///
    /// # Errors
    /// The logs do not belong together.
    pub fn new(logs: Vec<&'a mut Reader<R>>) -> Result<Self, JoinError> {
        let first = logs.first().ok_or(JoinError::None)?;
        let mut header = Header { notes: Vec::new(), ..first.header().clone() };
        let of_first = first.definitions().clone();
        let mut nodes: Vec<NodeId> = Vec::new();
        for (log, reader) in logs.iter().enumerate() {
            let (own, definitions) = (reader.header(), reader.definitions());
            let is_live = matches!(own.back_end, BackEnd::Run | BackEnd::RunBestEffort);
            let Some(node) = definitions.only.filter(|_| is_live) else { return Err(JoinError::NotOfNode { log }) };
            let name = definitions.node_name(node);
            if nodes.contains(&node) {
                return Err(JoinError::SameNode { log, node: name });
            }
            nodes.push(node);
            if own.seed != header.seed || !same_system(&of_first, definitions) {
                return Err(JoinError::OtherRun { log });
            }
            header.kinds = header.kinds.intersection(own.kinds);
            if own.back_end == BackEnd::RunBestEffort {
                header.back_end = BackEnd::RunBestEffort;
            }
            header.notes.extend(own.notes.iter().map(|note| format!("{name}: {note}")));
        }
        let (interrupts, threads, clocks, cpus) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let definitions = Definitions { interrupts, threads, clocks, cpus, only: None, ..of_first };
        let part = |reader| {
            let (interrupts, threads) = (Vec::new(), Vec::new());
            Part { reader, waiting: Waiting::default(), ended: false, interrupts, threads }
        };
        let mut joined = Joined { parts: logs.into_iter().map(part).collect(), header, definitions };
        joined.take_heads();
        Ok(joined)
    }

    /// What holds of all logs. Notes name their nodes.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The definitions of all logs.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// How the clocks of nodes differ. It is complete once all logs have been read.
    pub fn clocks(&self) -> Clocks {
        Clocks::of(self.parts.iter().map(|part| part.reader.definitions()))
    }

    /// Gives all events and late definitions to `sink` and returns the end of the longest log.
    ///
    /// # Errors
    /// As those of the reader, with the number of the log.
    pub fn copy_to(&mut self, sink: &mut impl Sink) -> Result<Time, (usize, ReadError)> {
        loop {
            let mut next: Option<(Time, usize)> = None;
            for (log, part) in self.parts.iter_mut().enumerate() {
                part.fill().map_err(|error| (log, error))?;
                let head = part.waiting.0.front().map(|(_, now, _)| (*now, log));
                next = next.into_iter().chain(head).min();
            }
            let Some((_, log)) = next else { break };
            let Some(part) = self.parts.get_mut(log) else { break };
            let Some((stream, now, entry)) = part.waiting.0.pop_front() else { break };
            match entry {
                Entry::Event(event) => sink.event(stream, now, &part.renumbered(event)),
                Entry::Definition(definition) => {
                    if let Some(definition) = take(&mut self.definitions, part, definition) {
                        sink.define(stream, now, &definition);
                    }
                }
            }
        }
        Ok(self.parts.iter().map(|part| part.reader.end()).max().unwrap_or(Time::ZERO))
    }

    /// Takes the definitions of the heads that belong to one node.
    fn take_heads(&mut self) {
        for part in &mut self.parts {
            let of_node = |definition: &Definition| {
                matches!(definition, Definition::Cpu(_) | Definition::Interrupt(..) | Definition::Thread(..))
            };
            let heads: Vec<Definition> = part.reader.definitions().iter().filter(of_node).collect();
            for definition in heads {
                // The joined definitions hold it now.
                let _ = take(&mut self.definitions, part, definition);
            }
        }
    }
}

/// Whether two logs define the same nodes and tasks. Classes of threads may differ.
fn same_system(a: &Definitions, b: &Definitions) -> bool {
    let same = |(a, b): (&TaskDef, &TaskDef)| {
        (&a.name, a.node, a.period, a.deadline, a.wcet) == (&b.name, b.node, b.period, b.deadline, b.wcet)
    };
    let names = |of: &Definitions| of.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    names(a) == names(b) && a.tasks.len() == b.tasks.len() && a.tasks.iter().zip(&b.tasks).all(same)
}

/// A definition of a part with its number in the joined log. `None` if it says nothing of the joined log.
fn take<R>(all: &mut Definitions, part: &mut Part<'_, R>, definition: Definition) -> Option<Definition> {
    let definition = match definition {
        Definition::Clock(_) | Definition::Only(_) => return None,
        Definition::Interrupt(id, def) => {
            Definition::Interrupt(number(&mut part.interrupts, id, all.interrupts.len()), def)
        }
        Definition::Thread(id, def) => Definition::Thread(number(&mut part.threads, id, all.threads.len()), def),
        other => other,
    };
    all.apply(definition.clone()).ok().map(|()| definition)
}

/// The number of `id` in the joined log, which has `len` of its kind.
fn number(known: &mut Vec<u32>, id: u32, len: usize) -> u32 {
    if let Some(number) = known.get(id as usize) {
        return *number;
    }
    let new = len as u32;
    known.push(new);
    new
}

impl<R: io::Read> Part<'_, R> {
    fn fill(&mut self) -> Result<(), ReadError> {
        if self.waiting.0.is_empty() && !self.ended {
            self.ended = self.reader.copy_while(&mut self.waiting, |waiting| waiting.0.len() < AHEAD)?;
        }
        Ok(())
    }
}

impl<R> Part<'_, R> {
    fn renumbered(&self, event: Event) -> Event {
        // A number without a definition stays without one.
        let of = |known: &[u32], id: u32| known.get(id as usize).copied().unwrap_or(u32::MAX);
        match event {
            Event::IrqEnter { irq, cpu } => Event::IrqEnter { irq: of(&self.interrupts, irq), cpu },
            Event::IrqExit { irq, cpu } => Event::IrqExit { irq: of(&self.interrupts, irq), cpu },
            Event::Occupy { cpu, thread } => {
                Event::Occupy { cpu, thread: thread.map(|thread| of(&self.threads, thread)) }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use takt_model::{Builtin, Lateness, NodeSpec, Span, StrategyRef, System, Task, TaskId};

    use super::*;
    use crate::definitions::{ClockDef, InterruptDef, InterruptKind};
    use crate::event::JobKey;
    use crate::kind::KindSet;
    use crate::writer::Writer;

    fn system() -> System {
        let mut system = System::local(1, Builtin::Edf, vec![Task::periodic("a", Span::from_ms(9), Span::from_ms(1))]);
        system.nodes.push(NodeSpec::new("far", 1, StrategyRef::Builtin(Builtin::Edf)));
        let far = Task { node: NodeId(1), ..Task::periodic("b", Span::from_ms(9), Span::from_ms(1)) };
        system.tasks.push(far);
        system
    }

    /// The log of a node with releases of its task at these times, and an interrupt at the first.
    fn log(node: u32, times: &[u64], seed: u64) -> Vec<u8> {
        let definitions = Definitions::of(&system()).about(Some(NodeId(node)));
        let mut header = Header::new(String::new(), Some(seed), BackEnd::Run, KindSet::ALL);
        header.notes.push("a note".to_owned());
        let mut writer = Writer::new(Vec::new(), &header, &definitions).expect("a log");
        let interrupt = InterruptDef { name: format!("of {node}"), node: NodeId(node), kind: InterruptKind::Hard };
        writer.define(node, Time::ZERO, &Definition::Interrupt(0, interrupt));
        writer.event(node, Time::from_ns(times[0]), &Event::IrqEnter { irq: 0, cpu: 0 });
        for (number, at) in (0..).zip(times) {
            let job = JobKey { task: TaskId(node), number };
            let arrival = Time::from_ns(*at);
            writer.event(node, arrival, &Event::Release { job, arrival, parent: None });
        }
        let (offset_min, offset_max) = (Lateness::from_ns(-3), Lateness::from_ns(5));
        let clock = ClockDef { stream: 1 - node, from: Time::ZERO, offset_min, offset_max };
        writer.define(node, Time::from_ns(900), &Definition::Clock(clock));
        writer.finish(Time::from_ns(1_000 + u64::from(node))).expect("a log")
    }

    #[derive(Default)]
    struct CollectedEvents(Vec<(u32, u64, Event)>);

    impl Sink for CollectedEvents {
        fn event(&mut self, stream: u32, now: Time, event: &Event) {
            self.0.push((stream, now.as_ns(), *event));
        }
    }

    #[test]
    fn events_of_all_logs_come_in_the_order_of_time() {
        let logs = [log(0, &[10, 30], 7), log(1, &[20, 40], 7)];
        let [mut first, mut second] = logs.each_ref().map(|log| Reader::new(&log[..]).expect("a log"));
        let mut joined = Joined::new(vec![&mut second, &mut first]).expect("logs of one run");
        assert_eq!(joined.header().notes, ["far: a note", "local: a note"]);
        let mut collected = CollectedEvents::default();
        assert_eq!(joined.copy_to(&mut collected).expect("whole logs"), Time::from_ns(1_001));
        let times: Vec<(u32, u64)> = collected.0.iter().map(|(stream, now, _)| (*stream, *now)).collect();
        assert_eq!(times, [(0, 10), (0, 10), (1, 20), (1, 20), (0, 30), (1, 40)]);
        // Each log counts its interrupts from zero.
        let named = |event: &Event| match event {
            Event::IrqEnter { irq, .. } => Some(joined.definitions().interrupts[*irq as usize].name.clone()),
            _ => None,
        };
        let interrupts: Vec<String> = collected.0.iter().filter_map(|(_, _, event)| named(event)).collect();
        assert_eq!(interrupts, ["of 0", "of 1"]);
        assert_eq!((joined.definitions().only, joined.definitions().clocks.len()), (None, 0));
        let (low, high) = (Lateness::from_ns(-3), Lateness::from_ns(5));
        assert_eq!(joined.clocks().difference(NodeId(0), NodeId(1)), Some((low, high)));
        assert_eq!(joined.clocks().difference(NodeId(1), NodeId(1)), None);
    }

    #[test]
    fn logs_that_do_not_belong_together_are_refused() {
        let logs = [log(0, &[10], 7), log(0, &[10], 7), log(1, &[10], 8)];
        let refusal = |pair: [usize; 2]| {
            let [mut first, mut second] = pair.map(|at| Reader::new(&logs[at][..]).expect("a log"));
            Joined::new(vec![&mut first, &mut second]).err()
        };
        assert_eq!(refusal([0, 1]), Some(JoinError::SameNode { log: 1, node: "local".to_owned() }));
        assert_eq!(refusal([0, 2]), Some(JoinError::OtherRun { log: 1 }));
    }
}
