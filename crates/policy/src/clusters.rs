//! A node with components, divided where no task or component needs CPUs of two parts.
//!
//! A partitioned or clustered node has a part for each CPU or cluster. Clusters that a component has servers in
//! belong to one part. A part of one CPU is a [`Hierarchy`], any other one [`VirtualClusters`].
//!
//! A part decides only at its own events and wake-ups, and compares laxities only there. So a node of one CPU runs as
//! one CPU of a partitioned node does.

use takt_model::{Component, ComponentId, CpuSet, NodeId, Placement, ServerSwitch, System, Task, Time};

use crate::decision::{Decision, Event};
use crate::error::PolicyError;
use crate::hierarchy::{Hierarchy, ServerEvent};
use crate::slot::Job;
use crate::virtual_clusters::VirtualClusters;

#[derive(Clone, Debug)]
enum Kind {
    One(Box<Hierarchy>),
    Several(Box<VirtualClusters>),
}

/// Decides for CPUs that share no task and no component with others. The protocol is that of [`crate::Dispatcher`].
/// CPUs, slots and components count from 0 within the part.
#[derive(Clone, Debug)]
pub struct Machine {
    kind: Kind,
    /// Something has happened since the last decision.
    is_touched: bool,
    wakeup: Option<Time>,
}

impl Machine {
    /// Builds the machine for a part of a node, from the System of [`part_of`].
    fn new(part: &System) -> Result<Machine, PolicyError> {
        Ok(Machine::of(match part.nodes[0].cpus {
            1 => Kind::One(Box::new(Hierarchy::new(part, NodeId(0))?)),
            _ => Kind::Several(Box::new(VirtualClusters::new(part, NodeId(0))?)),
        }))
    }

    fn of(kind: Kind) -> Machine {
        Machine { kind, is_touched: true, wakeup: Some(Time::ZERO) }
    }

    /// See [`crate::Dispatcher::wants_deadlines`].
    #[must_use]
    pub fn wants_deadlines(&self) -> bool {
        match &self.kind {
            Kind::One(hierarchy) => hierarchy.wants_deadlines(),
            Kind::Several(clusters) => clusters.wants_deadlines(),
        }
    }

    /// See [`crate::Dispatcher::decisions_max`].
    #[must_use]
    pub fn decisions_max(&self) -> usize {
        match &self.kind {
            Kind::One(hierarchy) => hierarchy.decisions_max(),
            Kind::Several(clusters) => clusters.decisions_max(),
        }
    }

    /// Takes the changes of servers since the last call, in order.
    pub fn take_events(&mut self, each: impl FnMut(ServerEvent)) {
        match &mut self.kind {
            Kind::One(hierarchy) => hierarchy.take_events().for_each(each),
            Kind::Several(clusters) => clusters.take_events().for_each(each),
        }
    }

    /// See [`crate::Dispatcher::on_event`]. A deadline that changes nothing is no reason to decide.
    pub fn on_event(&mut self, now: Time, event: &Event, decisions: &mut Vec<Decision>) {
        if let Event::Deadline { slot } = *event
            && !self.acts_on_deadline(slot)
        {
            return;
        }
        self.is_touched = true;
        match &mut self.kind {
            Kind::One(hierarchy) => hierarchy.on_event(now, event, decisions),
            Kind::Several(clusters) => clusters.on_event(now, event, decisions),
        }
    }

    fn acts_on_deadline(&self, slot: u32) -> bool {
        match &self.kind {
            Kind::One(hierarchy) => hierarchy.acts_on_deadline(slot),
            Kind::Several(clusters) => clusters.acts_on_deadline(slot),
        }
    }

    /// Decides who runs from `now` on, after all events of the instant. It does so only if something has happened
    /// since the last decision, or the wake-up has come.
    pub fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        if !self.is_touched && self.wakeup.is_none_or(|at| at > now) {
            return;
        }
        let from = decisions.len();
        self.wakeup = match &mut self.kind {
            Kind::One(hierarchy) => {
                hierarchy.dispatch(now, decisions);
                hierarchy.next_wakeup(now)
            }
            Kind::Several(clusters) => {
                clusters.dispatch(now, decisions);
                clusters.next_wakeup(now)
            }
        };
        // There may be more to decide where a slot became empty.
        let empties = |decision: &Decision| matches!(decision, Decision::Cancel { .. } | Decision::Drop { .. });
        self.is_touched = decisions[from..].iter().any(empties);
    }

    /// Charges the servers for the time up to the end of the run.
    pub fn finish(&mut self, now: Time) {
        match &mut self.kind {
            Kind::One(hierarchy) => hierarchy.finish(now),
            Kind::Several(clusters) => clusters.finish(now),
        }
    }

    /// The next instant at which the caller must dispatch without an event, by the last decision.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        self.wakeup
    }

    /// The hierarchy of one CPU, whose components may change while it runs. `None` of several CPUs.
    pub fn hierarchy(&mut self) -> Option<&mut Hierarchy> {
        self.is_touched = true;
        match &mut self.kind {
            Kind::One(hierarchy) => Some(hierarchy.as_mut()),
            Kind::Several(_) => None,
        }
    }
}

/// CPUs of a node that share no task and no component with its other CPUs.
#[derive(Clone, Debug)]
pub struct CpuPart {
    /// The node's CPUs, by those of the machine, the lowest first.
    pub cpus: Vec<u32>,
    /// The node's slots of its tasks, by its own slots.
    pub slots: Vec<u32>,
    /// The System's components, by its own numbers in [`ServerEvent`].
    pub components: Vec<ComponentId>,
    /// Its machine.
    pub machine: Machine,
}

impl CpuPart {
    /// The parts of a node with components; those without tasks are left out. A part has more than one CPU where
    /// CPUs share tasks or components.
    ///
    /// # Errors
    /// As [`Clusters::new`].
    pub fn of_node(system: &System, node: NodeId) -> Result<Vec<CpuPart>, PolicyError> {
        CpuPart::all(system, node, false)
    }

    fn all(system: &System, node: NodeId, without_tasks: bool) -> Result<Vec<CpuPart>, PolicyError> {
        let mut parts = Vec::new();
        for cpus in &divide(system, node) {
            let (part, components, slots) = part_of(system, node, cpus)?;
            if without_tasks || !slots.is_empty() {
                parts.push(CpuPart { cpus: cpus.iter().collect(), slots, components, machine: Machine::new(&part)? });
            }
        }
        Ok(parts)
    }

    /// The lowest of its CPUs.
    #[must_use]
    pub fn first_cpu(&self) -> u32 {
        self.cpus.first().copied().unwrap_or(0)
    }

    /// All of its CPUs.
    #[must_use]
    pub fn cpu_set(&self) -> CpuSet {
        self.cpus.iter().copied().collect()
    }

    /// Whether it has more than one CPU.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.cpus.len() > 1
    }

    /// The same CPU in `system`, which has more tasks, components or changes of servers behind those of this part's
    /// system, none before `at`. For [`Hierarchy::adopt`]. `None` if the CPU shares tasks or components, or would.
    ///
    /// # Errors
    /// As [`Clusters::new`].
    pub fn with_change(&self, system: &System, node: NodeId, at: Time) -> Result<Option<CpuPart>, PolicyError> {
        let Kind::One(before) = &self.machine.kind else { return Ok(None) };
        let alone = |cpus: &&CpuSet| cpus.contains(self.first_cpu()) && cpus.len() == 1;
        for cpus in divide(system, node).iter().filter(alone) {
            let (part, components, slots) = part_of(system, node, cpus)?;
            if components.starts_with(&self.components) && slots.starts_with(&self.slots) {
                let machine = Machine::of(Kind::One(Box::new(before.with_change(&part, NodeId(0), at)?)));
                return Ok(Some(CpuPart { cpus: self.cpus.clone(), slots, components, machine }));
            }
        }
        Ok(None)
    }
}

/// Decides for one node with components. The protocol is that of [`crate::Dispatcher`].
#[derive(Clone, Debug)]
pub struct Clusters {
    parts: Vec<CpuPart>,
    /// Part and slot in it, by slot of the node.
    homes: Vec<(usize, u32)>,
}

impl Clusters {
    /// # Errors
    /// As [`Hierarchy::new`]; a task or a server without the placement that the node needs.
    pub fn new(system: &System, node: NodeId) -> Result<Self, PolicyError> {
        let parts = CpuPart::all(system, node, true)?;
        let mut homes = vec![(0, 0); system.tasks_of(node).count()];
        for (at, part) in parts.iter().enumerate() {
            for (local, slot) in (0..).zip(&part.slots) {
                homes[*slot as usize] = (at, local);
            }
        }
        Ok(Clusters { parts, homes })
    }

    /// See [`crate::Dispatcher::wants_deadlines`].
    #[must_use]
    pub fn wants_deadlines(&self) -> bool {
        self.parts.iter().any(|part| part.machine.wants_deadlines())
    }

    /// See [`crate::Dispatcher::decisions_max`].
    #[must_use]
    pub fn decisions_max(&self) -> usize {
        self.parts.iter().map(|part| part.machine.decisions_max()).sum()
    }

    /// Takes the changes of servers since the last call, part by part.
    pub fn take_events(&mut self, mut each: impl FnMut(ServerEvent)) {
        for part in &mut self.parts {
            let components = &part.components;
            part.machine.take_events(|event| {
                each(ServerEvent { component: components[event.component.index()], ..event });
            });
        }
    }

    /// See [`crate::Dispatcher::on_event`].
    pub fn on_event(&mut self, now: Time, event: &Event, decisions: &mut Vec<Decision>) {
        let slot = match *event {
            Event::Ready(job) => job.slot,
            Event::Complete { slot } | Event::Deadline { slot } => slot,
            Event::Mode { .. } => {
                return self.parts.iter_mut().for_each(|part| part.on_event(now, event, decisions));
            }
        };
        let Some((part, slot)) = self.homes.get(slot as usize).copied() else {
            debug_assert!(false, "no slot {slot}");
            return;
        };
        let event = match *event {
            Event::Ready(job) => Event::Ready(Job { slot, ..job }),
            Event::Complete { .. } => Event::Complete { slot },
            Event::Deadline { .. } => Event::Deadline { slot },
            mode @ Event::Mode { .. } => mode,
        };
        self.parts[part].on_event(now, &event, decisions);
    }

    /// Decides who runs from `now` on, after all events of the instant.
    pub fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        for part in &mut self.parts {
            let from = decisions.len();
            part.machine.dispatch(now, decisions);
            part.rename(&mut decisions[from..]);
        }
    }

    /// Charges the servers for the time up to the end of the run.
    pub fn finish(&mut self, now: Time) {
        for part in &mut self.parts {
            part.machine.finish(now);
        }
    }

    /// The next instant at which the caller must dispatch without an event.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        self.parts.iter().filter_map(|part| part.machine.next_wakeup()).min()
    }
}

impl CpuPart {
    fn on_event(&mut self, now: Time, event: &Event, decisions: &mut Vec<Decision>) {
        let from = decisions.len();
        self.machine.on_event(now, event, decisions);
        self.rename(&mut decisions[from..]);
    }

    /// Gives decisions the node's slots and CPUs.
    fn rename(&self, decisions: &mut [Decision]) {
        let (slots, cpus) = (&self.slots, &self.cpus);
        for decision in decisions {
            match decision {
                Decision::Cancel { slot } | Decision::Drop { slot, cpu: None } => *slot = slots[*slot as usize],
                Decision::Drop { slot, cpu: Some(cpu) } | Decision::Preempt { slot, cpu } => {
                    (*slot, *cpu) = (slots[*slot as usize], cpus[*cpu as usize]);
                }
                Decision::Run { slot, cpu, from, .. } => {
                    (*slot, *cpu) = (slots[*slot as usize], cpus[*cpu as usize]);
                    *from = from.map(|from| cpus[from as usize]);
                }
            }
        }
    }
}

/// Divides the CPUs of a node: clusters with servers of one component belong together.
fn divide(system: &System, node: NodeId) -> Vec<CpuSet> {
    let mut parts = system.nodes[node.index()].clusters();
    for component in system.components.iter().filter(|component| component.node == node) {
        let has_server = |part: &CpuSet| component.server_cpus.iter().any(|cpu| part.contains(*cpu));
        let (joined, mut apart): (Vec<CpuSet>, Vec<CpuSet>) = parts.into_iter().partition(has_server);
        apart.extend(joined.into_iter().reduce(|all, part| all.union(&part)));
        parts = apart;
    }
    parts.sort_by_key(CpuSet::lowest);
    parts
}

/// A system of the tasks and components on some CPUs of a node alone, with the node's components and slots by theirs.
fn part_of(system: &System, node: NodeId, cpus: &CpuSet) -> Result<(System, Vec<ComponentId>, Vec<u32>), PolicyError> {
    let mut spec = system.nodes[node.index()].clone();
    let all = spec.clusters();
    let divided = all.len() > 1;
    let renamed = |set: CpuSet| -> CpuSet {
        (0..).zip(cpus.iter()).filter(|(_, cpu)| set.contains(*cpu)).map(|(at, _)| at).collect()
    };
    let root = |id: ComponentId| system.around(id).last().unwrap_or(id);
    let of_node = |id: &ComponentId| system.components[id.index()].node == node;
    let mut components = Vec::new();
    let mut place = vec![None; system.components.len()];
    for id in (0..system.components.len() as u32).map(ComponentId).filter(of_node) {
        let outermost = &system.components[root(id).index()];
        let Some(first) = outermost.server_cpus.first().copied().or((!divided).then_some(0)) else {
            let (component, node) = (outermost.name.clone(), spec.name.clone());
            return Err(PolicyError::ServerNotPlaced { component, node });
        };
        if cpus.contains(first) {
            place[id.index()] = Some(ComponentId(components.len() as u32));
            components.push(id);
        }
    }
    let (mut tasks, mut slots) = (Vec::new(), Vec::new());
    for (slot, (_, task)) in (0..).zip(system.tasks_of(node)) {
        let is_here = match (task.component, task.cpus) {
            (Some(id), _) => place[id.index()].is_some(),
            (None, None) if divided => {
                return Err(PolicyError::NotPlaced { task: task.name.clone(), node: spec.name.clone() });
            }
            (None, None) => true,
            (None, Some(own)) if all.iter().any(|cluster| own.is_subset(cluster)) => own.is_subset(cpus),
            (None, Some(_)) => {
                return Err(PolicyError::AcrossClusters { task: task.name.clone(), node: spec.name.clone() });
            }
        };
        if is_here {
            let component = task.component.and_then(|id| place[id.index()]);
            let own = task.cpus.filter(|_| task.component.is_none()).map(renamed);
            tasks.push(Task { node: NodeId(0), component, cpus: own, after: Vec::new(), ..task.clone() });
            slots.push(slot);
        }
    }
    let numbers: Vec<u32> = cpus.iter().collect();
    let here = |id: &ComponentId| {
        let component = &system.components[id.index()];
        let server_cpus = component.server_cpus.iter().filter_map(|cpu| Some(numbers.binary_search(cpu).ok()? as u32));
        let parent = component.parent.and_then(|parent| place[parent.index()]);
        Component { node: NodeId(0), parent, server_cpus: server_cpus.collect(), ..component.clone() }
    };
    let switched =
        |switch: &ServerSwitch| Some(ServerSwitch { component: place[switch.component.index()]?, ..switch.clone() });
    spec.cpus = cpus.len();
    if all.contains(cpus) {
        spec.placement = Placement::Global;
    }
    let modes = system.modes.iter().filter(|mode| mode.node == node);
    let part = System {
        components: components.iter().map(here).collect(),
        switches: system.switches.iter().filter_map(switched).collect(),
        modes: modes.map(|mode| takt_model::Mode { node: NodeId(0), ..mode.clone() }).collect(),
        nodes: vec![spec],
        strategies: system.strategies.clone(),
        tasks,
        name: system.name.clone(),
        flows: Vec::new(),
        ports: Vec::new(),
        networks: Vec::new(),
        clock: system.clock,
        notes: Vec::new(),
    };
    Ok((part, components, slots))
}
