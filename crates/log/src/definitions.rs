//! The meaning of the numbers in events: nodes, CPUs, tasks, chains, servers, modes, interrupts,
//! clocks.
//!
//! A log's head carries the [`Definitions`] that hold from its start; each can be added to or changed
//! later by a [`Definition`] in a stream.

use std::collections::BTreeMap;

pub use takt_model::chain_name;
use takt_model::{FlowId, Lateness, NodeId, Span, System, TaskId, Time, flows, named};
use thiserror::Error;

/// All definitions that hold at one point of a log. Lists are indexed by the numbers in events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Definitions {
    /// Machines. Stream i is node i's in what `sim` and `run` write.
    pub nodes: Vec<NodeDef>,
    /// Kernel CPUs behind model CPUs, where known.
    pub cpus: Vec<CpuDef>,
    /// Tasks, by [`TaskId`].
    pub tasks: Vec<TaskDef>,
    /// Chains, one per sink.
    pub chains: Vec<ChainDef>,
    /// Servers.
    pub servers: Vec<ServerDef>,
    /// Strategy switches, each node's in the order of time: an event's mode k is the k-th of its node, mode 0 is
    /// what the node starts with.
    pub modes: Vec<ModeDef>,
    /// Interrupts and softirqs.
    pub interrupts: Vec<InterruptDef>,
    /// Threads without jobs in this log that had a CPU.
    pub threads: Vec<ThreadDef>,
    /// How streams' clocks stand to each other, in the order in which it became known.
    pub clocks: Vec<ClockDef>,
    /// The only node that the log is about; `None`: all nodes. Events of other nodes are not in the
    /// log.
    pub only: Option<NodeId>,
}

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeDef {
    /// Its name.
    pub name: String,
    /// How many CPUs it has; events name CPUs 0 to `cpus` - 1.
    pub cpus: u32,
    /// The strategy that it starts with.
    pub strategy: String,
}

/// The kernel's number of a model CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuDef {
    /// The node.
    pub node: NodeId,
    /// The CPU's number in events.
    pub cpu: u32,
    /// Its number in the kernel.
    pub kernel_cpu: u32,
}

/// A task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskDef {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub node: NodeId,
    /// Period or minimum inter-arrival time, where known.
    pub period: Option<Span>,
    /// Relative to the nominal arrival; `None` where unknown: misses and laxities are unknown then.
    pub deadline: Option<Span>,
    /// Worst-case execution time, where known.
    pub wcet: Option<Span>,
    /// In which class of the kernel its thread was when it was seen first; `None` where nobody recorded it.
    pub class: Option<ThreadClass>,
}

named! {
    /// A scheduling class of the kernel.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[repr(u8)]
    pub enum ThreadClass {
        /// SCHED_OTHER, and what is like it.
        Other = 1 => "SCHED_OTHER",
        /// SCHED_FIFO or SCHED_RR.
        RealTime = 2 => "a real-time priority",
        /// SCHED_DEADLINE.
        Deadline = 3 => "SCHED_DEADLINE",
    }
}

impl ThreadClass {
    /// The class of a thread with that priority, as the kernel's events have it: below zero
    /// SCHED_DEADLINE, up to 98 real-time ones.
    #[must_use]
    pub const fn of_priority(prio: i32) -> ThreadClass {
        match prio {
            ..0 => ThreadClass::Deadline,
            0..100 => ThreadClass::RealTime,
            _ => ThreadClass::Other,
        }
    }
}

/// A chain: its end-to-end response is its sink's completion minus the job's [`crate::Parent::origin`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainDef {
    /// `a -> b`; `a + b -> c` where links join.
    pub name: String,
    /// The last task.
    pub sink: TaskId,
}

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerDef {
    /// Its name.
    pub name: String,
    /// Where it lives.
    pub node: NodeId,
    /// Its rule as System files name it.
    pub rule: String,
    /// Its replenishment period, where known.
    pub period: Option<Span>,
    /// Its budget, where known.
    pub budget: Option<Span>,
}

/// The strategy of a node after a mode change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeDef {
    /// The node.
    pub node: NodeId,
    /// The strategy's name.
    pub strategy: String,
}

/// An interrupt or a softirq.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterruptDef {
    /// Its number, if it has one, and name: `24 eth0`, `NET_RX`.
    pub name: String,
    /// The node that serves it.
    pub node: NodeId,
    /// Which of the two it is.
    pub kind: InterruptKind,
}

/// A thread without jobs in this log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadDef {
    /// The name that it had last.
    pub name: String,
    /// Where it runs.
    pub node: NodeId,
    /// How important it is to the kernel.
    pub kind: ThreadKind,
}

/// How important a thread is to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ThreadKind {
    /// Nobody knows.
    Unknown = 0,
    /// As ordinary threads are: all real-time threads go before it.
    Ordinary = 1,
    /// Real-time, or more.
    RealTime = 2,
    /// It belongs to takt: a timer, a thread between jobs.
    Takt = 3,
}

impl ThreadKind {
    /// All.
    pub const ALL: [ThreadKind; 4] =
        [ThreadKind::Unknown, ThreadKind::Ordinary, ThreadKind::RealTime, ThreadKind::Takt];
}

named! {
    /// The kind of handler that serves an interrupt.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[repr(u8)]
    pub enum InterruptKind {
        /// A handler that the hardware calls.
        Hard = 0 => "hard",
        /// A softirq: what a handler left for later, served on return from interrupts.
        Soft = 1 => "soft",
    }
}

/// From a moment on, stream 0's clock reads between `stream`'s reading plus `offset_min` and plus `offset_max`.
///
/// In the log of one node alone ([`Definitions::only`]), the node's own clock takes the place of stream 0's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockDef {
    /// The stream.
    pub stream: u32,
    /// Since when, on the stream's clock.
    pub from: Time,
    /// The least that has to be added.
    pub offset_min: Lateness,
    /// The most that has to be added.
    pub offset_max: Lateness,
}

/// How the clocks of nodes differ, by the logs of these nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clocks(Vec<(NodeId, ClockDef)>);

impl Clocks {
    /// Those of logs that are about one node each.
    pub fn of<'a>(logs: impl IntoIterator<Item = &'a Definitions>) -> Clocks {
        let of_log = |log: &'a Definitions| {
            log.only.into_iter().flat_map(move |own| log.clocks.iter().map(move |def| (own, *def)))
        };
        Clocks(logs.into_iter().flat_map(of_log).collect())
    }

    /// By how much the clock of `to` is ahead of that of `from`, at least and at most. `None` if the logs do not tell.
    #[must_use]
    pub fn difference(&self, from: NodeId, to: NodeId) -> Option<(Lateness, Lateness)> {
        let of_both = self.0.iter().filter(|(own, def)| *own == to && def.stream == from.0);
        let offsets = of_both.map(|(_, def)| (def.offset_min, def.offset_max));
        offsets.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
    }
}

/// A late definition, or a change of an earlier definition. An id equal to the length of its list
/// adds an entry. A smaller id replaces an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Definition {
    /// A machine.
    Node(NodeId, NodeDef),
    /// A kernel CPU.
    Cpu(CpuDef),
    /// A task.
    Task(TaskId, TaskDef),
    /// A chain.
    Chain(u32, ChainDef),
    /// A server.
    Server(u32, ServerDef),
    /// A mode.
    Mode(u32, ModeDef),
    /// A clock-offset interval.
    Clock(ClockDef),
    /// The log is about this node alone.
    Only(NodeId),
    /// An interrupt or softirq.
    Interrupt(u32, InterruptDef),
    /// A thread without jobs.
    Thread(u32, ThreadDef),
}

/// A definition whose id leaves a gap.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{what} {id} is defined before {what} {next}; ids are given in order, without gaps")]
pub struct GapError {
    /// `task`, `node`, ...
    pub what: &'static str,
    /// The id.
    pub id: u32,
    /// The next free one.
    pub next: u32,
}

impl Definitions {
    /// The definitions of a System: all nodes, tasks, chains, servers (its components) and modes,
    /// in its order. The tasks of [`takt_model::flows`] come behind those of the file. A flow over
    /// several nodes is a chain with its name.
    #[must_use]
    pub fn of(system: &System) -> Self {
        match flows::lower(system) {
            None => Definitions::of_tasks(system),
            Some(lowered) => {
                let mut definitions = Definitions::of_tasks(&lowered.system);
                for (i, flow) in system.flows.iter().enumerate() {
                    let last = flow.hops().count().checked_sub(1).filter(|last| *last > 0);
                    let sink = last.and_then(|last| lowered.task_of(FlowId(i as u32), last as u32));
                    definitions.chains.extend(sink.map(|sink| ChainDef { name: flow.name.clone(), sink }));
                }
                definitions
            }
        }
    }

    fn of_tasks(system: &System) -> Self {
        let mut modes: Vec<_> = system.modes.iter().collect();
        modes.sort_by_key(|mode| (mode.node, mode.at));
        Definitions {
            nodes: system
                .nodes
                .iter()
                .map(|node| NodeDef {
                    name: node.name.clone(),
                    cpus: node.cpus,
                    strategy: system.strategy_name(node.strategy).to_owned(),
                })
                .collect(),
            cpus: Vec::new(),
            tasks: system
                .tasks
                .iter()
                .map(|task| TaskDef {
                    name: task.name.clone(),
                    node: task.node,
                    period: Some(task.period),
                    deadline: Some(task.deadline),
                    wcet: Some(task.wcet),
                    class: None,
                })
                .collect(),
            chains: system.chain_sinks().map(|sink| ChainDef { name: chain_name(system, sink), sink }).collect(),
            servers: system
                .components
                .iter()
                .map(|component| ServerDef {
                    name: component.name.clone(),
                    node: component.node,
                    rule: component.server.name().to_owned(),
                    period: component.period.given(),
                    budget: component.budget.given(),
                })
                .collect(),
            modes: modes
                .into_iter()
                .map(|mode| ModeDef { node: mode.node, strategy: system.strategy_name(mode.strategy).to_owned() })
                .collect(),
            interrupts: Vec::new(),
            threads: Vec::new(),
            clocks: Vec::new(),
            only: None,
        }
    }

    /// The same, about one of several nodes where one is given.
    #[must_use]
    pub fn about(self, only: Option<NodeId>) -> Self {
        let only = only.filter(|_| self.nodes.len() > 1);
        Definitions { only, ..self }
    }

    /// Whether the log tells what happens on `node`.
    #[must_use]
    pub fn covers(&self, node: NodeId) -> bool {
        self.only.is_none_or(|only| only == node)
    }

    /// Takes in a late or changed definition.
    ///
    /// # Errors
    /// An id beyond the next free one.
    pub fn apply(&mut self, definition: Definition) -> Result<(), GapError> {
        fn place<T>(list: &mut Vec<T>, what: &'static str, id: u32, def: T) -> Result<(), GapError> {
            let next = u32::try_from(list.len()).unwrap_or(u32::MAX);
            match list.get_mut(id as usize) {
                Some(old) => *old = def,
                None if id == next => list.push(def),
                None => return Err(GapError { what, id, next }),
            }
            Ok(())
        }
        match definition {
            Definition::Node(id, def) => place(&mut self.nodes, "node", id.0, def),
            Definition::Task(id, def) => place(&mut self.tasks, "task", id.0, def),
            Definition::Chain(id, def) => place(&mut self.chains, "chain", id, def),
            Definition::Server(id, def) => place(&mut self.servers, "server", id, def),
            Definition::Mode(id, def) => place(&mut self.modes, "mode", id, def),
            Definition::Interrupt(id, def) => place(&mut self.interrupts, "interrupt", id, def),
            Definition::Thread(id, def) => place(&mut self.threads, "thread", id, def),
            Definition::Cpu(def) => {
                match self.cpus.iter_mut().find(|cpu| (cpu.node, cpu.cpu) == (def.node, def.cpu)) {
                    Some(old) => *old = def,
                    None => self.cpus.push(def),
                }
                Ok(())
            }
            Definition::Clock(def) => {
                self.clocks.push(def);
                Ok(())
            }
            Definition::Only(node) => {
                self.only = Some(node);
                Ok(())
            }
        }
    }

    /// The same as single definitions, in the order in which a head lists them.
    pub fn iter(&self) -> impl Iterator<Item = Definition> + '_ {
        fn ids<T: Clone>(list: &[T]) -> impl Iterator<Item = (u32, T)> + '_ {
            list.iter().cloned().enumerate().map(|(i, def)| (i as u32, def))
        }
        ids(&self.nodes)
            .map(|(id, def)| Definition::Node(NodeId(id), def))
            .chain(self.cpus.iter().map(|def| Definition::Cpu(*def)))
            .chain(ids(&self.tasks).map(|(id, def)| Definition::Task(TaskId(id), def)))
            .chain(ids(&self.chains).map(|(id, def)| Definition::Chain(id, def)))
            .chain(ids(&self.servers).map(|(id, def)| Definition::Server(id, def)))
            .chain(ids(&self.modes).map(|(id, def)| Definition::Mode(id, def)))
            .chain(self.clocks.iter().map(|def| Definition::Clock(*def)))
            .chain(self.only.map(Definition::Only))
            .chain(ids(&self.interrupts).map(|(id, def)| Definition::Interrupt(id, def)))
            .chain(ids(&self.threads).map(|(id, def)| Definition::Thread(id, def)))
    }

    /// A node's name, `node 7` where it is not defined.
    #[must_use]
    pub fn node_name(&self, node: NodeId) -> String {
        self.nodes.get(node.index()).map_or_else(|| format!("node {}", node.0), |def| def.name.clone())
    }

    /// A task's name, `task 7` where it is not defined.
    #[must_use]
    pub fn task_name(&self, task: TaskId) -> String {
        self.tasks.get(task.index()).map_or_else(|| format!("task {}", task.0), |def| def.name.clone())
    }

    /// By task: the chain of the flow of which it is a hop, and the number of the hop. `None` for
    /// other tasks. A flow over several nodes has a chain with its name, which ends in its last hop.
    #[must_use]
    pub fn hops(&self) -> Vec<Option<(usize, u32)>> {
        let hop = |task: TaskId| {
            // A name that was taken has got a mark.
            let name = self.tasks.get(task.index())?.name.trim_end_matches('\'');
            let (flow, hop) = name.rsplit_once('/')?;
            Some((flow, hop.parse::<u32>().ok()?))
        };
        let flows: BTreeMap<&str, usize> = (self.chains.iter().enumerate())
            .filter(|(_, chain)| hop(chain.sink).is_some_and(|(flow, _)| flow == chain.name))
            .map(|(i, chain)| (chain.name.as_str(), i))
            .collect();
        let of = |task| hop(task).and_then(|(flow, hop)| Some((*flows.get(flow)?, hop)));
        (0..self.tasks.len() as u32).map(|task| of(TaskId(task))).collect()
    }

    /// A thread's name, `thread 7` where it is not defined.
    #[must_use]
    pub fn thread_name(&self, thread: u32) -> String {
        self.threads.get(thread as usize).map_or_else(|| format!("thread {thread}"), |def| def.name.clone())
    }

    /// An interrupt's name, `interrupt 7` where it is not defined.
    #[must_use]
    pub fn interrupt_name(&self, irq: u32) -> String {
        self.interrupts.get(irq as usize).map_or_else(|| format!("interrupt {irq}"), |def| def.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use takt_model::{Builtin, Task};

    use super::*;

    fn system(after: &[(&str, &[u32])]) -> System {
        let task = |(name, after): &(&str, &[u32])| Task {
            after: after.iter().map(|id| TaskId(*id)).collect(),
            ..Task::periodic(name, Span::from_ms(10), Span::from_ms(1))
        };
        System::local(2, Builtin::Edf, after.iter().map(task).collect())
    }

    #[test]
    fn chains_are_named_by_their_links() {
        let defs = Definitions::of(&system(&[("a", &[]), ("b", &[0]), ("c", &[1]), ("d", &[]), ("e", &[1, 3])]));
        let names: Vec<_> = defs.chains.iter().map(|chain| (chain.name.as_str(), chain.sink.0)).collect();
        assert_eq!(names, [("a -> b -> c", 2), ("(a -> b) + d -> e", 4)]);
        let join = Definitions::of(&system(&[("a", &[]), ("b", &[]), ("c", &[0, 1])]));
        assert_eq!(join.chains[0].name, "a + b -> c");
    }

    #[test]
    fn modes_are_numbered_by_node_and_time() {
        let mut system = system(&[("a", &[])]);
        let mode = |at, builtin| takt_model::Mode {
            node: NodeId(0),
            at: Time::from_ns(at),
            strategy: takt_model::StrategyRef::Builtin(builtin),
        };
        system.modes = vec![mode(20, Builtin::Muf), mode(10, Builtin::Rm)];
        let defs = Definitions::of(&system);
        assert_eq!(defs.modes.iter().map(|mode| &*mode.strategy).collect::<Vec<_>>(), ["rm", "muf"]);
    }

    #[test]
    fn names_of_deep_diamonds_and_of_circles_stay_short() {
        let mut links: Vec<(String, Vec<u32>)> = vec![("t0".into(), vec![])];
        for i in 0..30u32 {
            links.push((format!("l{i}"), vec![i * 3]));
            links.push((format!("r{i}"), vec![i * 3]));
            links.push((format!("t{}", i + 1), vec![i * 3 + 1, i * 3 + 2]));
        }
        let links: Vec<(&str, &[u32])> = links.iter().map(|(name, after)| (name.as_str(), after.as_slice())).collect();
        assert_eq!(Definitions::of(&system(&links)).chains[0].name, "... -> t30");
        assert_eq!(chain_name(&system(&[("a", &[1]), ("b", &[0])]), TaskId(0)), "... -> a");
    }

    #[test]
    fn definitions_come_in_order_and_can_change() {
        let mut defs = Definitions::of(&system(&[("a", &[]), ("b", &[0])])).about(Some(NodeId(0)));
        assert_eq!(defs.only, None, "of one node all is told");
        defs.only = Some(NodeId(0));
        let mut copy = Definitions::default();
        defs.iter().for_each(|def| copy.apply(def).unwrap());
        assert_eq!(copy, defs);
        let late = |name: &str| TaskDef {
            name: name.into(),
            node: NodeId(0),
            period: None,
            deadline: None,
            wcet: None,
            class: None,
        };
        defs.apply(Definition::Task(TaskId(2), late("c"))).unwrap();
        defs.apply(Definition::Task(TaskId(0), late("z"))).unwrap();
        assert_eq!((defs.task_name(TaskId(2)), defs.task_name(TaskId(0))), ("c".into(), "z".into()));
        let gap = defs.apply(Definition::Task(TaskId(9), late("x"))).unwrap_err();
        assert_eq!(gap.to_string(), "task 9 is defined before task 3; ids are given in order, without gaps");
    }
}
