//! A slow, obvious system of servers on one CPU, in slots of 1 ns.

use takt_analysis::CheckReport;
use takt_model::generate::Random;
use takt_model::{Arrival, Builtin, ComponentId, ServerRule, Span, StrategyRef, System, TaskId};

use super::value;

/// A slow, obvious system of servers on one CPU, in slots of 1 ns.
pub(super) struct World<'a> {
    system: &'a System,
    servers: Vec<Server>,
    jobs: Vec<Job>,
    now: u64,
    /// The longest response of each task, and the first miss.
    longest: Vec<u64>,
    pub(super) miss: Option<(usize, u64)>,
}

#[derive(Clone)]
struct Server {
    period: u64,
    full: u64,
    left: u64,
    /// Absolute.
    deadline: u64,
    worked: bool,
    /// Returns of a sporadic server's budget: instant and amount.
    back: Vec<(u64, u64)>,
    active_since: Option<u64>,
    used: u64,
}

#[derive(Clone)]
pub(super) struct Job {
    task: usize,
    arrival: u64,
    left: u64,
    deadline: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entity {
    Job(usize),
    Server(usize),
}

impl<'a> World<'a> {
    pub(super) fn new(system: &'a System) -> World<'a> {
        let servers = system.components.iter().map(|component| {
            let (period, full) = (value(component.period), value(component.budget));
            let (back, active_since, used) = (Vec::new(), None, 0);
            Server { period, full, left: full, deadline: period, worked: false, back, active_since, used }
        });
        let longest = vec![0; system.tasks.len()];
        World { system, servers: servers.collect(), jobs: Vec::new(), now: 0, longest, miss: None }
    }

    fn rule(&self, server: usize) -> ServerRule {
        self.system.components[server].server
    }

    /// The ready jobs and the servers of a level; `None` is the node.
    fn entities(&self, level: Option<usize>) -> Vec<Entity> {
        let inside = |of: Option<ComponentId>| of.map(|id| id.index()) == level;
        let mut found = Vec::new();
        for (i, job) in self.jobs.iter().enumerate() {
            let head = self.jobs.iter().position(|other| other.task == job.task && other.left > 0) == Some(i);
            if job.left > 0 && head && inside(self.system.tasks[job.task].component) {
                found.push(Entity::Job(i));
            }
        }
        for (i, component) in self.system.components.iter().enumerate() {
            if inside(component.parent) {
                found.push(Entity::Server(i));
            }
        }
        found
    }

    /// The smaller runs first.
    fn key(&self, level: Option<usize>, entity: Entity) -> u64 {
        let strategy = match level {
            None => self.system.nodes[0].strategy,
            Some(i) => self.system.components[i].strategy,
        };
        match (strategy, entity) {
            (StrategyRef::Builtin(Builtin::Edf), Entity::Job(i)) => self.jobs[i].deadline,
            (StrategyRef::Builtin(Builtin::Edf), Entity::Server(i)) => self.servers[i].deadline,
            (_, Entity::Job(i)) => self.system.tasks[self.jobs[i].task].period.as_ns(),
            (_, Entity::Server(i)) => self.servers[i].period,
        }
    }

    /// Whether something in a component would use the CPU.
    fn has_work(&self, server: usize) -> bool {
        self.entities(Some(server)).into_iter().any(|entity| match entity {
            Entity::Job(_) => true,
            Entity::Server(i) => self.eligible(i),
        })
    }

    /// Whether a server would take the CPU.
    fn eligible(&self, server: usize) -> bool {
        let busy = matches!(self.rule(server), ServerRule::Ptps | ServerRule::Wcps | ServerRule::Crps);
        self.servers[server].left > 0 && (busy || self.has_work(server))
    }

    /// Gives one slot to a level.
    fn give(&mut self, level: Option<usize>) {
        let mut entities = self.entities(level);
        entities.sort_by_key(|entity| self.key(level, *entity));
        let wants = |world: &World, entity: &Entity| match entity {
            Entity::Job(_) => true,
            Entity::Server(i) => world.eligible(*i),
        };
        let Some(first) = entities.iter().copied().find(|entity| wants(self, entity)) else { return };
        match first {
            Entity::Job(i) => self.run(i),
            Entity::Server(i) if self.has_work(i) => {
                self.servers[i].left -= 1;
                self.use_up(i);
                self.give(Some(i));
            }
            // It is idle, and its budget runs.
            Entity::Server(i) => {
                self.servers[i].left -= 1;
                let after = entities.iter().position(|entity| *entity == first).expect("it is one of them");
                match self.rule(i) {
                    ServerRule::Wcps => {
                        let next = entities[after + 1..].iter().copied().find(|entity| match entity {
                            Entity::Job(_) => true,
                            Entity::Server(k) => self.servers[*k].left > 0 && self.has_work(*k),
                        });
                        match next {
                            Some(Entity::Job(job)) => self.run(job),
                            Some(Entity::Server(k)) => {
                                self.servers[k].left -= 1;
                                self.give(Some(k));
                            }
                            None => {}
                        }
                    }
                    ServerRule::Crps => {
                        let next = entities.iter().copied().find(|entity| match entity {
                            Entity::Job(_) => false,
                            Entity::Server(k) => self.has_work(*k),
                        });
                        if let Some(Entity::Server(k)) = next {
                            self.give(Some(k));
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn use_up(&mut self, server: usize) {
        if self.rule(server) == ServerRule::Sporadic {
            self.servers[server].used += 1;
        }
    }

    fn run(&mut self, job: usize) {
        self.jobs[job].left -= 1;
        if self.jobs[job].left == 0 {
            let task = self.jobs[job].task;
            self.longest[task] = self.longest[task].max(self.now + 1 - self.jobs[job].arrival);
        }
    }

    fn replenish(&mut self) {
        for i in 0..self.servers.len() {
            let (now, rule, work) = (self.now, self.rule(i), self.has_work(i));
            let server = &mut self.servers[i];
            match rule {
                ServerRule::Cbs | ServerRule::CbsHard => {
                    let waits = rule == ServerRule::CbsHard && now < server.deadline;
                    if server.left == 0 && !waits && (work || rule == ServerRule::CbsHard) {
                        server.left = server.full;
                        server.deadline += server.period;
                    }
                    if work && !server.worked {
                        // It wakes: its old budget and deadline would ask for more than its share?
                        let room = server.deadline.saturating_sub(now);
                        if server.left * server.period > room * server.full || (server.left > 0 && room == 0) {
                            server.left = server.full;
                            server.deadline = now + server.period;
                        }
                    }
                    server.worked = work;
                }
                ServerRule::Sporadic => {
                    let returned: u64 = server.back.iter().filter(|(at, _)| *at <= now).map(|(_, amount)| amount).sum();
                    server.back.retain(|(at, _)| *at > now);
                    server.left += returned;
                    // A part is used from the instant at which there is work and budget until either ends.
                    if server.active_since.is_some() && (!work || server.left == 0 || returned > 0) {
                        let since = server.active_since.take().expect("it is active");
                        if server.used > 0 {
                            server.back.push((since + server.period, server.used));
                        }
                        server.used = 0;
                    }
                    if work && server.left > 0 && server.active_since.is_none() {
                        server.active_since = Some(now);
                        server.deadline = now + server.period;
                    }
                }
                _ if now.is_multiple_of(server.period) => {
                    server.deadline = now + server.period;
                    server.left = if rule == ServerRule::Polling && !work { 0 } else { server.full };
                }
                ServerRule::Polling if !work => server.left = 0,
                _ => {}
            }
        }
    }

    /// No response exceeds its bound.
    pub(super) fn hold(&self, report: &CheckReport) {
        for (i, longest) in self.longest.iter().enumerate() {
            let bound = report.bound_of(TaskId(i as u32)).map_or(u64::MAX, Span::as_ns);
            assert!(
                *longest <= bound,
                "{i}: {longest} > {bound}\n{}\n{report:#?}",
                takt_model::file::write(self.system)
            );
        }
    }

    /// Runs the jobs that arrive, in order of their arrival.
    pub(super) fn simulate(&mut self, arrivals: &[Job], end: u64) {
        let mut next = 0;
        while self.now < end && self.miss.is_none() {
            while arrivals.get(next).is_some_and(|job| job.arrival <= self.now) {
                self.jobs.push(arrivals[next].clone());
                next += 1;
            }
            self.jobs.retain(|job| job.left > 0);
            self.miss = self.jobs.iter().find(|job| job.deadline <= self.now).map(|job| (job.task, self.now));
            // From the inside, so that outer servers see what inner ones have.
            for _ in 0..self.servers.len() {
                self.replenish();
            }
            self.give(None);
            self.now += 1;
        }
    }
}

pub(super) fn arrivals(system: &System, random: &mut Random, end: u64) -> Vec<Job> {
    let full = random.between(0, 2) > 0;
    let mut jobs = Vec::new();
    for (i, task) in system.tasks.iter().enumerate() {
        let period = task.period.as_ns();
        let mut arrival = match task.arrival {
            Arrival::Periodic => task.offset.as_ns(),
            _ => random.between(0, 2 * period),
        };
        while arrival < end {
            let wcet = task.wcet.as_ns();
            let left = if full { wcet } else { random.between(1, wcet) };
            jobs.push(Job { task: i, arrival, left, deadline: arrival + task.deadline.as_ns() });
            let gap = if task.arrival == Arrival::Sporadic && random.between(0, 3) == 0 {
                random.between(0, period)
            } else {
                0
            };
            arrival += period + gap;
        }
    }
    jobs.sort_by_key(|job| job.arrival);
    jobs
}
