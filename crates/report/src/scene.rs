//! The objects of a picture: names, deadlines and CPUs, and the kinds of event that the back end
//! records.

use takt_log::{Definition, Definitions, InterruptKind, Kind, KindSet, NodeDef, ServerDef, TaskDef};
use takt_model::{NodeId, Span, System};

/// The facts that every picture and export needs besides the events. It grows by [`Scene::define`]
/// when a log brings definitions late, as `takt observe` does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scene {
    /// The system's name.
    pub name: String,
    /// Nodes, by [`NodeId`]; a stream has the number of its node.
    pub nodes: Vec<SceneNode>,
    /// Tasks, by `TaskId`.
    pub tasks: Vec<SceneTask>,
    /// Servers, by their number in events.
    pub servers: Vec<ServerDef>,
    /// Interrupts and softirqs, by their number in events.
    pub interrupts: Vec<SceneInterrupt>,
    /// Whether the log records when a job loses its CPU and gets it back. Otherwise the times at
    /// which a job ran are unknown, and the time from start to completion is drawn as "in
    /// progress".
    pub preemptions: bool,
    /// Whether the log records what servers pay.
    pub payments: bool,
    /// Per mode definition, its node and its place among the strategies of that.
    modes: Vec<(NodeId, usize)>,
}

/// A node of a [`Scene`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SceneNode {
    /// Its name.
    pub name: String,
    /// Its number of CPUs.
    pub cpus: u32,
    /// The node's strategies by the number of the mode: its own strategy, then the strategies of
    /// its `[[mode]]`s in the order of time.
    pub strategies: Vec<String>,
}

/// A task of a [`Scene`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SceneTask {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub node: NodeId,
    /// Its period or minimum inter-arrival time, where known.
    pub period: Option<Span>,
    /// Its deadline, relative to the nominal arrival, where known.
    pub deadline: Option<Span>,
}

/// An interrupt or a softirq of a [`Scene`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SceneInterrupt {
    /// Its name.
    pub name: String,
    /// The node that serves it.
    pub node: NodeId,
    /// Which of the two it is.
    pub kind: InterruptKind,
}

impl From<&TaskDef> for SceneTask {
    fn from(task: &TaskDef) -> Self {
        SceneTask { name: task.name.clone(), node: task.node, period: task.period, deadline: task.deadline }
    }
}

impl From<&NodeDef> for SceneNode {
    fn from(node: &NodeDef) -> Self {
        SceneNode { name: node.name.clone(), cpus: node.cpus, strategies: vec![node.strategy.clone()] }
    }
}

impl Scene {
    /// The scene of a system whose back end records every kind of event (the simulator).
    #[must_use]
    pub fn of(system: &System) -> Scene {
        Scene::of_log(&system.name, &Definitions::of(system), KindSet::ALL)
    }

    /// The scene of a log with these definitions, whose back end records these kinds.
    #[must_use]
    pub fn of_log(name: &str, definitions: &Definitions, kinds: KindSet) -> Scene {
        let mut scene = Scene {
            name: name.to_owned(),
            nodes: Vec::new(),
            tasks: Vec::new(),
            servers: Vec::new(),
            interrupts: Vec::new(),
            payments: kinds.contains(Kind::Charge),
            preemptions: kinds.contains(Kind::Preempt) && kinds.contains(Kind::Resume),
            modes: Vec::new(),
        };
        for definition in definitions.iter() {
            scene.define(&definition);
        }
        scene
    }

    /// Takes in a late definition, or a change of an earlier definition. Ignores a definition whose
    /// number leaves a gap, and definitions that no picture shows.
    pub fn define(&mut self, definition: &Definition) {
        fn place<T>(list: &mut Vec<T>, at: usize, value: T) {
            let next = list.len();
            match list.get_mut(at) {
                Some(old) => *old = value,
                None if at == next => list.push(value),
                None => {}
            }
        }
        match definition {
            Definition::Node(id, def) => {
                let mut node = SceneNode::from(def);
                let old = self.nodes.get(id.index());
                node.strategies.extend(old.iter().flat_map(|old| old.strategies.iter().skip(1).cloned()));
                place(&mut self.nodes, id.index(), node);
            }
            Definition::Task(id, def) => place(&mut self.tasks, id.index(), SceneTask::from(def)),
            Definition::Server(id, def) => place(&mut self.servers, *id as usize, def.clone()),
            Definition::Interrupt(id, def) => {
                let interrupt = SceneInterrupt { name: def.name.clone(), node: def.node, kind: def.kind };
                place(&mut self.interrupts, *id as usize, interrupt);
            }
            Definition::Mode(id, def) => {
                let node = self.nodes.get_mut(def.node.index());
                match self.modes.get(*id as usize) {
                    Some((old, at)) if *old == def.node => {
                        if let Some(strategy) = node.and_then(|node| node.strategies.get_mut(*at)) {
                            strategy.clone_from(&def.strategy);
                        }
                    }
                    None if *id as usize == self.modes.len() => {
                        self.modes.push((def.node, node.as_ref().map_or(usize::MAX, |node| node.strategies.len())));
                        node.into_iter().for_each(|node| node.strategies.push(def.strategy.clone()));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Whether any task's period is known, from which [`Scene::suggested_span`] follows.
    #[must_use]
    pub fn has_periods(&self) -> bool {
        self.tasks.iter().any(|task| task.period.is_some_and(|period| !period.is_zero()))
    }

    /// The strategy of a node in a mode, `?` where the log does not define it.
    #[must_use]
    pub fn strategy(&self, node: NodeId, mode: usize) -> &str {
        self.nodes.get(node.index()).and_then(|node| node.strategies.get(mode)).map_or("?", String::as_str)
    }

    /// A length for a chart that shows the pattern without a crowd. It is the time in which the
    /// slowest task has two jobs, rounded up to 1, 2 or 5 times a power of ten. If that holds more
    /// than about `jobs_max` jobs of all tasks together, it is the largest such length that holds
    /// fewer.
    #[must_use]
    pub fn suggested_span(&self, jobs_max: u32) -> Span {
        let periods = || self.tasks.iter().filter_map(|task| task.period).map(Span::as_ns).filter(|ns| *ns > 0);
        let Some(longest) = periods().max() else { return Span::from_ms(1) };
        let per_ns: f64 = periods().map(|ns| 1.0 / ns as f64).sum();
        let crowded = f64::from(jobs_max.max(1)) / per_ns;
        let two = 2.0 * longest as f64;
        let wanted = two.min(crowded).max(1.0);
        let unit = crate::axis::round_unit(wanted);
        let power = unit * 10f64.powf((wanted / unit).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let ns = if two <= crowded {
            steps.into_iter().find(|step| *step >= wanted * 0.999)
        } else {
            steps.into_iter().rfind(|step| *step <= wanted * 1.001)
        };
        Span::from_ns(ns.unwrap_or(wanted).round() as u64)
    }
}
