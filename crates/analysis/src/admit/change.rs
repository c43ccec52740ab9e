//! The parts of a system that a change of [`Admission`](super::Admission) affects.
//!
//! A node's answer depends on its own parts and on the flows that visit it. A flow depends on the
//! other nodes of its path. So only the changed nodes, and all nodes that flows connect to them,
//! are tested again. The other nodes were proven, and the inputs of their tests are unchanged.

use std::collections::BTreeSet;

use takt_model::strategy::{Discipline, Filter};
use takt_model::{Component, ComponentId, Flow, NodeId, System, Task, TaskId};

use super::{Change, Part, Refusal};

/// Indices of what goes.
#[derive(Clone, Debug, Default)]
pub(super) struct Removal {
    pub(super) tasks: BTreeSet<usize>,
    pub(super) components: BTreeSet<usize>,
    pub(super) flows: BTreeSet<usize>,
}

fn invalid<T>(why: String) -> Result<T, Refusal> {
    Err(Refusal::Invalid(why))
}

/// The strategies' names with the names of the tasks that each knows by name.
fn named(system: &System) -> impl Iterator<Item = (&str, &str)> {
    system.strategies.iter().flat_map(|strategy| {
        strategy.levels.iter().flat_map(move |level| {
            let filter: &[String] = if let Filter::Named(names) = &level.filter { names } else { &[] };
            let shifts = if let Discipline::Gel { shift } = &level.discipline { Some(shift.keys()) } else { None };
            let names = filter.iter().chain(shifts.into_iter().flatten());
            names.map(move |name| (strategy.name.as_str(), name.as_str()))
        })
    })
}

impl Removal {
    /// The parts that a change removes.
    ///
    /// # Errors
    /// If a part does not exist, or a remaining part refers to it.
    pub(super) fn of(system: &System, change: &Change) -> Result<Removal, Refusal> {
        let mut gone = Removal::default();
        for part in &change.remove {
            let (found, goes) = match part {
                Part::Task(name) => (system.tasks.iter().position(|task| task.name == *name), &mut gone.tasks),
                Part::Component(name) => {
                    (system.components.iter().position(|component| component.name == *name), &mut gone.components)
                }
                Part::Flow(name) => (system.flows.iter().position(|flow| flow.name == *name), &mut gone.flows),
            };
            let Some(found) = found else { return invalid(format!("there is no {part}")) };
            goes.insert(found);
        }
        if gone.tasks.is_empty() && gone.components.is_empty() {
            return Ok(gone);
        }
        for (_, task) in system.tasks.iter().enumerate().filter(|(i, _)| !gone.tasks.contains(i)) {
            let name = &task.name;
            if let Some(before) = task.after.iter().find(|id| gone.tasks.contains(&id.index())) {
                let before = &system.tasks[before.index()].name;
                return invalid(format!("task \"{name}\" comes after \"{before}\"; remove it before, or with it"));
            }
            if let Some(id) = task.component.filter(|id| gone.components.contains(&id.index())) {
                let component = &system.components[id.index()].name;
                return invalid(format!(
                    "component \"{component}\" holds task \"{name}\"; remove its members before, or with it"
                ));
            }
        }
        for (_, inner) in system.components.iter().enumerate().filter(|(i, _)| !gone.components.contains(i)) {
            if let Some(outer) = inner.parent.filter(|id| gone.components.contains(&id.index())) {
                let (outer, inner) = (&system.components[outer.index()].name, &inner.name);
                return invalid(format!(
                    "component \"{outer}\" holds component \"{inner}\"; remove its members before, or with it"
                ));
            }
        }
        let goes = |name: &str| {
            gone.tasks.iter().any(|i| system.tasks[*i].name == name)
                && !change.tasks.iter().any(|task| task.name == name)
        };
        if let Some((strategy, name)) = named(system).find(|(_, name)| goes(name)) {
            return invalid(format!(
                "strategy \"{strategy}\" names task \"{name}\"; take it out of the strategy before"
            ));
        }
        Ok(gone)
    }

    fn kept<'a, T>(gone: &'a BTreeSet<usize>, all: &'a [T]) -> impl Iterator<Item = (usize, &'a T)> {
        all.iter().enumerate().filter(|(i, _)| !gone.contains(i))
    }

    /// The nodes that decide, in their order.
    pub(super) fn nodes(&self, system: &System, change: &Change) -> Vec<NodeId> {
        let mut within = vec![named(system).next().is_some(); system.nodes.len()];
        let mut touch = |node: NodeId| within.get_mut(node.index()).into_iter().for_each(|within| *within = true);
        self.tasks.iter().for_each(|i| touch(system.tasks[*i].node));
        self.components.iter().for_each(|i| touch(system.components[*i].node));
        self.flows.iter().flat_map(|i| &system.flows[*i].path).for_each(|node| touch(*node));
        for task in &change.tasks {
            touch(task.node);
        }
        for component in &change.components {
            touch(component.node);
        }
        change.flows.iter().flat_map(|flow| &flow.path).for_each(|node| touch(*node));
        let after = Numbers::new(&self.tasks, system.tasks.len());
        let outer = Numbers::new(&self.components, system.components.len());
        let named_by = change.tasks.iter().flat_map(|task| &task.after).filter_map(|id| after.before(id.0));
        named_by.for_each(|i| touch(system.tasks[i].node));
        let components = change.tasks.iter().filter_map(|task| task.component);
        let components = components.chain(change.components.iter().filter_map(|component| component.parent));
        components.filter_map(|id| outer.before(id.0)).for_each(|i| touch(system.components[i].node));
        loop {
            let before = within.clone();
            for flow in &system.flows {
                if flow.path.iter().any(|node| within[node.index()]) {
                    flow.path.iter().for_each(|node| within[node.index()] = true);
                }
            }
            if within == before {
                return (0..within.len()).filter(|i| within[*i]).map(|i| NodeId(i as u32)).collect();
            }
        }
    }

    /// These nodes alone, changed. `frame` is the system without tasks, components, flows and modes.
    pub(super) fn part(&self, system: &System, frame: &System, change: &Change, nodes: &[NodeId]) -> System {
        let here = |node: NodeId| nodes.binary_search(&node).is_ok();
        // Added parts count on any node.
        let visits = |flow: &Flow| flow.path.iter().any(|node| here(*node));
        let mut tasks = Numbers::new(&self.tasks, system.tasks.len());
        let mut components = Numbers::new(&self.components, system.components.len());
        tasks.number(Removal::kept(&self.tasks, &system.tasks).map(|(_, task)| here(task.node)), change.tasks.len());
        let stay = Removal::kept(&self.components, &system.components).map(|(_, component)| here(component.node));
        components.number(stay, change.components.len());
        let mut part = frame.clone();
        for (_, component) in Removal::kept(&self.components, &system.components).filter(|(_, c)| here(c.node)) {
            let parent = component.parent.map(|id| ComponentId(components.of_old(id.0)));
            part.components.push(Component { parent, ..component.clone() });
        }
        for component in &change.components {
            let parent = component.parent.map(|id| ComponentId(components.of_new(id.0)));
            part.components.push(Component { parent, ..component.clone() });
        }
        for (_, task) in Removal::kept(&self.tasks, &system.tasks).filter(|(_, task)| here(task.node)) {
            let component = task.component.map(|id| ComponentId(components.of_old(id.0)));
            let after = task.after.iter().map(|id| TaskId(tasks.of_old(id.0))).collect();
            part.tasks.push(Task { component, after, ..task.clone() });
        }
        for task in &change.tasks {
            let component = task.component.map(|id| ComponentId(components.of_new(id.0)));
            let after = task.after.iter().map(|id| TaskId(tasks.of_new(id.0))).collect();
            part.tasks.push(Task { component, after, ..task.clone() });
        }
        part.modes.extend(system.modes.iter().filter(|mode| here(mode.node)).cloned());
        let flows = Removal::kept(&self.flows, &system.flows).map(|(_, flow)| flow).filter(|flow| visits(flow));
        part.flows.extend(flows.chain(&change.flows).cloned());
        part
    }
}

/// Numbers of parts of one kind: before a change, after it, and in the affected part of the system.
struct Numbers {
    /// By the number before: that after; `u32::MAX` where it is gone.
    after: Vec<u32>,
    /// By the number after: that in the part; `u32::MAX` where it is not in there.
    part: Vec<u32>,
}

impl Numbers {
    fn new(gone: &BTreeSet<usize>, count: usize) -> Numbers {
        let mut kept = 0u32;
        let each = (0..count).map(|i| {
            let stays = !gone.contains(&i);
            kept += u32::from(stays);
            if stays { kept - 1 } else { u32::MAX }
        });
        let after = each.collect();
        Numbers { after, part: Vec::new() }
    }

    /// Numbers the remaining parts that are affected, and the added parts; these are always
    /// affected.
    fn number(&mut self, stay: impl Iterator<Item = bool>, come: usize) {
        let mut next = 0u32;
        let each = stay.chain(std::iter::repeat_n(true, come)).map(|inside| {
            next += u32::from(inside);
            if inside { next - 1 } else { u32::MAX }
        });
        self.part = each.collect();
    }

    /// The number before the change, from the number after it.
    fn before(&self, after: u32) -> Option<usize> {
        self.after.iter().position(|id| *id == after)
    }

    fn of_old(&self, id: u32) -> u32 {
        self.of_new(self.after[id as usize])
    }

    fn of_new(&self, id: u32) -> u32 {
        self.part.get(id as usize).copied().unwrap_or(u32::MAX)
    }
}
