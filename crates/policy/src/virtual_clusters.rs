//! Components under servers on several CPUs that all tasks share.
//!
//! This is virtual clustering [I. Shin, A. Easwaran, I. Lee, ECRTS 2008]. A component with `cpus` = m has m
//! servers of one period. They share its budget evenly, in whole quanta if all is, the first ones a quantum
//! more. The node and each component is a *scope*. A scope with k CPUs gives them to the first k of its ready
//! tasks and eligible servers. Such a server pays, and its component has a CPU more. A CPU that a component
//! has no use for stays idle.
//!
//! Ties go to the earlier arrival, then to tasks before servers, then to the order of the file. A job keeps
//! its CPU as long as it is among those that run. Else it gets the CPU on which it ran last, if that is free,
//! or the first free one.
//!
//! If servers of a scope have a `quantum`, the scope decides only at multiples of the longest one. What is done before
//! leaves its CPU idle until then.
//!
//! Rules that lend or reclaim time across CPUs are not defined by their papers, and are refused. So is what
//! goes by more than release, deadline and priority.

use takt_model::plan::Order;
use takt_model::{ComponentId, Late, NodeId, Placement, Plan, Preemption, ServerRule, Span, System, TaskId, Time};

use crate::decision::{Decision, Event};
use crate::error::PolicyError;
use crate::hierarchy::build::{Place, depth, place, plan_error, terms};
use crate::hierarchy::{ServerChange, ServerEvent, is_multiple, next_multiple};
use crate::rank::{Phase, Rank, ordered};
use crate::server::{Change, RATE_ONE, Server, Terms};
use crate::slot::Job;

/// An entry of a scope: a job, by its task's slot and its number, or a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Job(usize, u64),
    Server(usize),
}

#[derive(Clone, Debug)]
struct Scope {
    /// The node's slots of its tasks.
    slots: Vec<usize>,
    servers: Vec<usize>,
    /// The most CPUs that it may have at once.
    cpus: usize,
    quantum: Option<Span>,
    /// Its decision: the entries that have a CPU, the most important first.
    picks: Vec<Entry>,
    /// Something may have happened since the last decision.
    stale: bool,
}

/// A task and the job that it has.
#[derive(Clone, Debug)]
struct Slot {
    place: Place,
    job: Option<Job>,
    /// How many jobs it has had.
    number: u64,
    started: bool,
    cpu: Option<u32>,
    last_cpu: Option<u32>,
}

/// One of the servers of a component.
#[derive(Clone, Debug)]
struct Virtual {
    component: usize,
    account: Server,
    place: Place,
    /// Behind the tasks of its scope.
    order: u32,
    eligible: bool,
}

/// A component and what its servers pay together.
#[derive(Clone, Debug)]
struct Group {
    id: ComponentId,
    servers: Vec<usize>,
    had_work: bool,
    /// How many of its servers pay, whether a job of it runs, since when, and the amount so far.
    paying: Option<(usize, bool, Time, Span)>,
}

/// Decides for one node of several CPUs with components. The protocol is that of [`crate::Dispatcher`].
#[derive(Clone, Debug)]
pub struct VirtualClusters {
    /// The node's own first, then that of each component. Outer ones stand before inner ones.
    scopes: Vec<Scope>,
    slots: Vec<Slot>,
    servers: Vec<Virtual>,
    groups: Vec<Group>,
    /// The slot on each CPU.
    cpus: Vec<Option<usize>>,
    payers: Vec<usize>,
    paid_until: Time,
    events: Vec<ServerEvent>,
}

impl VirtualClusters {
    /// As [`crate::Hierarchy::new`], for a node of several CPUs.
    ///
    /// # Errors
    /// As there; what has no definition on several CPUs.
    pub fn new(system: &System, node: NodeId) -> Result<Self, PolicyError> {
        let spec = &system.nodes[node.index()];
        let on_node = |id: &ComponentId| system.components[id.index()].node == node;
        let mut components: Vec<ComponentId> =
            (0..system.components.len() as u32).map(ComponentId).filter(on_node).collect();
        components.sort_by_key(|id| depth(system, *id));
        refuse(system, node, &components)?;
        let tasks: Vec<TaskId> = system.tasks_of(node).map(|(id, _)| id).collect();
        let nowhere = Place { level: 0, order: Order::Fifo, preemptive: true, shift_ns: 0 };
        let empty = Slot { place: nowhere, job: None, number: 0, started: false, cpu: None, last_cpu: None };
        let mut clusters = VirtualClusters {
            scopes: Vec::new(),
            slots: vec![empty; tasks.len()],
            servers: Vec::new(),
            groups: Vec::new(),
            cpus: vec![None; spec.cpus as usize],
            payers: Vec::new(),
            paid_until: Time::ZERO,
            events: Vec::new(),
        };
        // Behind the tasks of the system, a task for each server.
        let own = system.tasks.len();
        let mut served = system.clone();
        for (group, id) in components.iter().enumerate() {
            let component = &system.components[id.index()];
            let first = clusters.servers.len();
            for Terms { rule, period, budget } in shares(system, *id)? {
                let mut task = takt_model::Task::periodic(&component.name, period, budget);
                (task.node, task.component, task.priority) = (node, component.parent, component.priority);
                served.tasks.push(task);
                clusters.servers.push(Virtual {
                    component: group,
                    account: Server::new(Terms { rule, period, budget }, Time::ZERO),
                    place: nowhere,
                    order: 0,
                    eligible: false,
                });
            }
            let servers = (first..clusters.servers.len()).collect();
            clusters.groups.push(Group { id: *id, servers, had_work: false, paying: None });
        }
        for component in std::iter::once(None).chain(components.iter().copied().map(Some)) {
            let strategy = component.map_or(spec.strategy, |id| system.components[id.index()].strategy);
            let inside = served.tasks_of(node).filter(|(_, task)| task.component == component);
            let plan = Plan::of_tasks(inside, &served.strategy(strategy)).map_err(|error| plan_error(error, own))?;
            let simple = |task: &takt_model::plan::PlanTask| {
                let level = &plan.levels[task.level as usize];
                level.preemptive
                    && level.order != Order::Laxity
                    && task.late == Late::Continue
                    && !level.importance_ties
            };
            if !plan.tasks.iter().all(simple) {
                let part = format!("strategy \"{}\" of node \"{}\"", plan.name, spec.name);
                return Err(several(part, "its levels must be preemptive, without laxity, importance and late rules"));
            }
            let mut scope = Scope {
                slots: Vec::new(),
                servers: Vec::new(),
                cpus: component.map_or(spec.cpus, |id| system.components[id.index()].cpus) as usize,
                quantum: None,
                picks: Vec::new(),
                stale: false,
            };
            for task in &plan.tasks {
                if let Some(server) = task.task.index().checked_sub(own) {
                    let at = &mut clusters.servers[server];
                    (at.place, at.order) = (place(&plan, task), (tasks.len() + server) as u32);
                    let quantum = system.components[clusters.groups[at.component].id.index()].quantum;
                    scope.quantum = scope.quantum.max(quantum);
                    scope.servers.push(server);
                } else if let Some(slot) = tasks.iter().position(|id| *id == task.task) {
                    clusters.slots[slot].place = place(&plan, task);
                    scope.slots.push(slot);
                }
            }
            clusters.scopes.push(scope);
        }
        Ok(clusters)
    }

    /// See [`crate::Dispatcher::decisions_max`].
    #[must_use]
    pub fn decisions_max(&self) -> usize {
        self.slots.len() + 2 * self.cpus.len()
    }

    /// Takes the changes of servers since the last call, in order.
    pub fn take_events(&mut self) -> impl Iterator<Item = ServerEvent> + '_ {
        self.events.drain(..)
    }

    /// See [`crate::Dispatcher::on_event`].
    pub fn on_event(&mut self, now: Time, event: &Event) {
        self.pay(now);
        match *event {
            Event::Ready(job) => {
                let slot = &mut self.slots[job.slot as usize];
                (slot.job, slot.started) = (Some(job), false);
                slot.number += 1;
            }
            Event::Complete { slot } => {
                let slot = &mut self.slots[slot as usize];
                slot.job = None;
                if let Some(cpu) = slot.cpu.take() {
                    self.cpus[cpu as usize] = None;
                }
            }
            // Neither late rules nor modes are accepted.
            Event::Deadline { .. } | Event::Mode { .. } => {}
        }
    }

    /// Charges the payers for the time up to `now`.
    fn pay(&mut self, now: Time) {
        let time = now.saturating_since(self.paid_until);
        self.paid_until = now;
        if time.is_zero() {
            return;
        }
        for at in 0..self.payers.len() {
            let server = &mut self.servers[self.payers[at]];
            let (paid, group) = (server.account.pay(time, RATE_ONE), server.component);
            if let Some((.., amount)) = &mut self.groups[group].paying {
                *amount += paid;
            }
        }
        for group in 0..self.groups.len() {
            let is_empty = |server: &usize| !self.servers[*server].account.has_budget();
            if self.groups[group].paying.is_some() && self.groups[group].servers.iter().all(is_empty) {
                self.settle(group, now);
                self.groups[group].paying = None;
                self.tell(group, ServerChange::Exhausted);
            }
        }
    }

    fn tell(&mut self, group: usize, change: ServerChange) {
        self.events.push(ServerEvent { component: self.groups[group].id, change });
    }

    /// Reports the payments of a component's servers.
    fn settle(&mut self, group: usize, now: Time) {
        let Some((count, runs, since, amount)) = self.groups[group].paying else { return };
        self.groups[group].paying = Some((count, runs, now, Span::ZERO));
        if since < now {
            self.tell(group, ServerChange::Paid { since, amount, idle: !runs });
        }
    }

    /// Decides who runs from `now` on, after all events of the instant.
    pub fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        self.pay(now);
        self.update(now);
        let (run, busy) = self.choose(now);
        self.carry_out(&run, decisions);
        for group in 0..self.groups.len() {
            let paying = self.payers.iter().filter(|server| self.servers[**server].component == group).count();
            let next = (paying > 0).then_some((paying, busy[group + 1] > 0));
            let before = self.groups[group].paying.map(|(count, runs, ..)| (count, runs));
            if before != next {
                self.settle(group, now);
                self.groups[group].paying = next.map(|(count, runs)| (count, runs, now, Span::ZERO));
            }
        }
    }

    /// Brings all servers to `now`, from the inside out.
    fn update(&mut self, now: Time) {
        for group in (0..self.groups.len()).rev() {
            let has_work = self.wants(group + 1);
            let mut replenished = false;
            for at in 0..self.groups[group].servers.len() {
                let server = &mut self.servers[self.groups[group].servers[at]];
                server.account.update(now, has_work, |change| {
                    replenished |= matches!(change, Change::Replenished(_));
                });
                server.eligible = server.account.is_eligible(has_work);
            }
            if replenished {
                let left = self.groups[group].servers.iter().map(|server| self.servers[*server].account.left());
                let left = left.fold(Span::ZERO, Span::saturating_add);
                self.settle(group, now);
                self.tell(group, ServerChange::Replenished(left));
            }
            if std::mem::replace(&mut self.groups[group].had_work, has_work) && !has_work {
                self.settle(group, now);
                self.tell(group, ServerChange::Idle);
            }
        }
    }

    /// Whether something in a scope would use a CPU.
    fn wants(&self, scope: usize) -> bool {
        let at = &self.scopes[scope];
        at.slots.iter().any(|slot| self.slots[*slot].job.is_some())
            || at.servers.iter().any(|server| self.servers[*server].eligible)
    }

    /// The jobs that get a CPU, and how many jobs run in each scope. Notes the payers.
    fn choose(&mut self, now: Time) -> (Vec<usize>, Vec<usize>) {
        let mut given = vec![0; self.scopes.len()];
        given[0] = self.cpus.len();
        let mut run = Vec::new();
        self.payers.clear();
        for scope in 0..self.scopes.len() {
            let decides = match self.scopes[scope].quantum {
                Some(quantum) => {
                    self.scopes[scope].stale = !is_multiple(now, quantum);
                    !self.scopes[scope].stale
                }
                None => true,
            };
            if decides {
                self.scopes[scope].picks = self.first_entries(scope);
            }
            for entry in self.scopes[scope].picks.iter().take(given[scope]) {
                match *entry {
                    Entry::Job(slot, number) => {
                        let at = &self.slots[slot];
                        if at.job.is_some() && at.number == number {
                            run.push(slot);
                        }
                    }
                    Entry::Server(server) if self.servers[server].account.has_budget() => {
                        self.payers.push(server);
                        given[self.servers[server].component + 1] += 1;
                    }
                    Entry::Server(_) => {}
                }
            }
        }
        // Inner scopes use the CPUs of outer ones.
        let mut busy = vec![0; self.scopes.len()];
        for scope in (0..self.scopes.len()).rev() {
            let at = &self.scopes[scope];
            let inner =
                |group: &usize| self.groups[*group].servers.first().is_some_and(|server| at.servers.contains(server));
            let inside: usize = (0..self.groups.len()).filter(inner).map(|group| busy[group + 1]).sum();
            busy[scope] = inside + at.slots.iter().filter(|slot| run.contains(slot)).count();
        }
        (run, busy)
    }

    /// The most important entries of a scope, as many as it may have CPUs.
    fn first_entries(&self, scope: usize) -> Vec<Entry> {
        let at = &self.scopes[scope];
        let jobs = at.slots.iter().filter_map(|slot| {
            let Slot { job, number, place, .. } = &self.slots[*slot];
            let job = job.as_ref()?;
            let rank = rank(place, job.release, job.arrival, job.deadline, *slot as u32);
            Some((rank, Entry::Job(*slot, *number)))
        });
        let eligible = at.servers.iter().filter(|server| self.servers[**server].eligible);
        let servers = eligible.map(|server| {
            let Virtual { account, place, order, .. } = &self.servers[*server];
            let release = account.release();
            (rank(place, release, release, account.deadline(), *order), Entry::Server(*server))
        });
        let mut entries: Vec<(Rank, Entry)> = jobs.chain(servers).collect();
        entries.sort_unstable_by_key(|(rank, _)| *rank);
        entries.into_iter().take(at.cpus).map(|(_, entry)| entry).collect()
    }

    fn carry_out(&mut self, run: &[usize], decisions: &mut Vec<Decision>) {
        for cpu in 0..self.cpus.len() {
            if let Some(slot) = self.cpus[cpu].filter(|slot| !run.contains(slot)) {
                self.cpus[cpu] = None;
                self.slots[slot].cpu = None;
                decisions.push(Decision::Preempt { slot: slot as u32, cpu: cpu as u32 });
            }
        }
        let free = |cpus: &[Option<usize>], cpu: u32| cpus.get(cpu as usize).is_some_and(Option::is_none);
        let waiting: Vec<usize> = run.iter().copied().filter(|slot| self.slots[*slot].cpu.is_none()).collect();
        // Jobs whose last CPU is free go first, so that no other takes it.
        let (back, away): (Vec<usize>, Vec<usize>) = waiting.into_iter().partition(|slot| {
            self.slots[*slot].started && self.slots[*slot].last_cpu.is_some_and(|cpu| free(&self.cpus, cpu))
        });
        for slot in back.into_iter().chain(away) {
            let at = &self.slots[slot];
            let last = at.last_cpu.filter(|_| at.started);
            let first_free = || self.cpus.iter().position(Option::is_none).map(|cpu| cpu as u32);
            let Some(cpu) = last.filter(|cpu| free(&self.cpus, *cpu)).or_else(first_free) else { continue };
            let (resumed, from) = (at.started, last.filter(|last| *last != cpu));
            self.cpus[cpu as usize] = Some(slot);
            let at = &mut self.slots[slot];
            (at.cpu, at.last_cpu, at.started) = (Some(cpu), Some(cpu), true);
            decisions.push(Decision::Run { slot: slot as u32, cpu, resumed, from });
        }
    }

    /// Charges the servers for the time up to the end of the run.
    pub fn finish(&mut self, now: Time) {
        self.pay(now);
        (0..self.groups.len()).for_each(|group| self.settle(group, now));
    }

    /// The next instant at which the caller must dispatch without an event.
    #[must_use]
    pub fn next_wakeup(&self, now: Time) -> Option<Time> {
        let changes = self.servers.iter().map(|server| server.account.next_change());
        let ends = self.payers.iter().map(|server| self.servers[*server].account.end(now, RATE_ONE));
        let grids = (0..self.scopes.len()).filter(|scope| self.scopes[*scope].stale);
        let grids = grids.filter(|scope| self.wants(*scope) || !self.scopes[*scope].picks.is_empty());
        let grids = grids.filter_map(|scope| Some(next_multiple(now, self.scopes[scope].quantum?)));
        changes.chain(ends).chain(grids).min().filter(|at| *at < Time::MAX)
    }
}

fn rank(place: &Place, release: Time, arrival: Time, deadline: Time, slot: u32) -> Rank {
    let key = match place.order {
        Order::Fifo => release.as_ns() as i64,
        Order::Deadline | Order::Laxity => (deadline.as_ns() as i64).saturating_add(place.shift_ns),
    };
    Rank::new(place.level, Phase::Fresh, ordered(key), 0, arrival.as_ns(), slot)
}

/// The terms of a component's servers, one for each of its CPUs, as `check` takes them.
fn shares(system: &System, id: ComponentId) -> Result<Vec<Terms>, PolicyError> {
    let component = &system.components[id.index()];
    let Terms { rule, period, budget } = terms(system, id)?[0];
    let whole = |span: Span, quantum: u64| span.as_ns().is_multiple_of(quantum);
    let quantum = component.quantum.map_or(1, Span::as_ns).max(1);
    let quantum = if whole(period, quantum) && whole(budget, quantum) { quantum } else { 1 };
    let (quanta, cpus) = (budget.as_ns() / quantum, u64::from(component.cpus.max(1)));
    let share = |i: u64| Span::from_ns((quanta / cpus + u64::from(i < quanta % cpus)) * quantum);
    Ok((0..cpus).map(share).filter(|budget| !budget.is_zero()).map(|budget| Terms { rule, period, budget }).collect())
}

fn several(part: String, why: &'static str) -> PolicyError {
    PolicyError::OnSeveralCpus { part, why }
}

/// Refuses what has no definition on several CPUs.
fn refuse(system: &System, node: NodeId, components: &[ComponentId]) -> Result<(), PolicyError> {
    let spec = &system.nodes[node.index()];
    let of_node = || format!("node \"{}\"", spec.name);
    if spec.placement != Placement::Global {
        let why = "the file does not say on which CPUs its servers run; use the placement \"global\"";
        return Err(several(of_node(), why));
    }
    if spec.cancel || system.modes.iter().any(|mode| mode.node == node) {
        return Err(several(of_node(), "remove cancel and modes"));
    }
    for id in components {
        let component = &system.components[id.index()];
        let part = || format!("component \"{}\"", component.name);
        let rule = component.server;
        if matches!(rule, ServerRule::Wcps | ServerRule::Crps | ServerRule::Grub) {
            let why = "its rule lends or reclaims time, which is defined for one CPU; use ptps, polling, deferrable, \
                       sporadic, cbs or cbs-hard";
            return Err(several(part(), why));
        }
        if component.cpus > 1 && rule != ServerRule::Ptps {
            return Err(several(part(), "with cpus above 1 its server must be ptps"));
        }
        if system.switches.iter().any(|switch| switch.component == *id) {
            return Err(several(part(), "its server cannot change there; remove the mode"));
        }
    }
    for (_, task) in system.tasks_of(node) {
        let part = || format!("task \"{}\"", task.name);
        if task.cpus.is_some_and(|cpus| cpus != takt_model::CpuSet::first(spec.cpus)) {
            return Err(several(part(), "remove its cpus: the node places its tasks globally"));
        }
        if task.cancel == Some(true) || task.preemption != Preemption::Anywhere {
            return Err(several(part(), "remove cancel, sections and final-section"));
        }
    }
    Ok(())
}
