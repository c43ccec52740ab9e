//! A slow, obvious simulator of nodes that exchange messages, in steps of a nanosecond.
//!
//! At each step it applies the rules of docs/reference/flows.md to lists of all jobs and messages.
//! Delays are constant, clocks are perfect, releases are never late, and late jobs continue. The events of a
//! node are in the order in which they are to happen, also within an instant.

use takt_model::flows::{Lowered, Role, hop_deadlines, lower};
use takt_model::*;

/// An event: the instant, the node, its kind, and the task and number of the job. An event of a
/// message names the job that left it.
pub(crate) type Recorded = (u64, u32, &'static str, u32, u64);

#[derive(Clone, Debug)]
struct RefJob {
    node: usize,
    task: usize,
    number: u64,
    release: u64,
    arrival: u64,
    deadline: u64,
    left: u64,
    started: bool,
    /// Messages that a table job took at its start.
    taken: Vec<Mail>,
}

#[derive(Clone, Copy, Debug)]
struct Mail {
    flow: usize,
    /// The hop that sends it.
    hop: usize,
    number: u64,
    /// The arrival of the flow's instance.
    origin: u64,
    due: u64,
}

/// A message at a node that messages interrupt.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Arrived(Mail),
    Leaving(Mail),
}

pub(crate) struct Slow {
    lowered: Lowered,
    /// The role of each task.
    roles: Vec<Option<Role>>,
    /// By node: whether its jobs run to completion, but for table jobs and interrupts.
    to_completion: Vec<bool>,
    now: u64,
    told: Vec<Recorded>,
    jobs: Vec<RefJob>,
    running: Vec<Option<usize>>,
    /// Released so far, by task.
    count: Vec<u64>,
    /// By node.
    buffer: Vec<Vec<Mail>>,
    ready: Vec<Vec<Mail>>,
    interrupts: Vec<Vec<Pending>>,
    /// Jobs of messages to release now, behind those of the table: task, number, arrival.
    due: Vec<Vec<(usize, u64, u64)>>,
    /// Sending jobs by which the last message of a flow and hop left.
    last: Vec<(usize, usize, u64)>,
    /// On links: when it arrives, and where.
    way: Vec<(u64, (usize, usize), Mail)>,
    /// Pairs of nodes, in the order of links.
    links: Vec<(usize, usize)>,
    receptions: Vec<u64>,
}

/// The events of a system up to `end`.
pub(crate) fn slow(system: &System, end: u64) -> Vec<Recorded> {
    let lowered = lower(system).expect("there are flows");
    let nodes = lowered.system.nodes.len();
    let roles = (0..lowered.system.tasks.len()).map(|id| lowered.role(TaskId(id as u32))).collect();
    let mut links: Vec<(usize, usize)> = Vec::new();
    for pair in system.flows.iter().flat_map(Flow::legs) {
        let pair = (pair.0.index(), pair.1.index());
        if !links.contains(&pair) {
            links.push(pair);
        }
    }
    let count = vec![0; lowered.system.tasks.len()];
    let last_level = |node: &NodeSpec| system.strategy(node.strategy).levels.last().cloned().expect("a level");
    let to_completion = system.nodes.iter().map(|node| !last_level(node).preemptive).collect();
    let mut slow = Slow {
        lowered,
        roles,
        to_completion,
        now: 0,
        told: Vec::new(),
        jobs: Vec::new(),
        running: vec![None; nodes],
        count,
        buffer: vec![Vec::new(); nodes],
        ready: vec![Vec::new(); nodes],
        interrupts: vec![Vec::new(); nodes],
        due: vec![Vec::new(); nodes],
        last: Vec::new(),
        way: Vec::new(),
        links,
        receptions: vec![0; nodes],
    };
    for now in 0..end {
        slow.now = now;
        let mut todo = vec![true; nodes];
        loop {
            slow.deliver(&mut todo);
            let Some(node) = todo.iter().position(|todo| *todo) else { break };
            todo[node] = false;
            while slow.step(node) {}
        }
        for at in slow.running.clone().into_iter().flatten() {
            slow.jobs[at].left -= 1;
        }
    }
    slow.told
}

impl Slow {
    fn log_event(&mut self, node: usize, what: &'static str, task: usize, number: u64) {
        self.told.push((self.now, node as u32, what, task as u32, number));
    }

    fn spec(&self, node: usize) -> &NodeSpec {
        &self.lowered.system.nodes[node]
    }

    fn hop_task(&self, flow: usize, hop: usize) -> usize {
        self.lowered.task_of(FlowId(flow as u32), hop as u32).expect("a hop").index()
    }

    fn tell_mail(&mut self, node: usize, what: &'static str, mail: Mail) {
        let task = self.hop_task(mail.flow, mail.hop);
        self.log_event(node, what, task, mail.number);
    }

    /// Messages that have arrived, link by link, each in order.
    fn deliver(&mut self, todo: &mut [bool]) {
        for pair in self.links.clone() {
            while let Some(at) = self.way.iter().position(|(due, link, _)| *link == pair && *due <= self.now) {
                let (_, (_, to), mail) = self.way.remove(at);
                self.tell_mail(to, "arrive", mail);
                if matches!(self.spec(to).arrivals, MessageArrivals::Interrupt { .. }) {
                    self.interrupt(to, Pending::Arrived(mail));
                    todo[to] = true;
                } else {
                    self.buffer[to].push(mail);
                }
            }
        }
    }

    /// A message interrupts its node: a job of the interrupt is due.
    fn interrupt(&mut self, node: usize, message: Pending) {
        let is_its = |task: &usize| {
            self.roles[*task] == Some(Role::Interrupt) && self.lowered.system.tasks[*task].node.index() == node
        };
        let task = (0..self.roles.len()).find(is_its).expect("the task of the interrupts");
        let waiting = self.due[node].iter().filter(|(of, ..)| *of == task).count() as u64;
        self.due[node].push((task, self.count[task] + waiting, self.now));
        self.interrupts[node].push(message);
    }

    /// Everything that happens at a node now. True if more may happen at this instant.
    fn step(&mut self, node: usize) -> bool {
        let ended = self.running[node].filter(|at| self.jobs[*at].left == 0);
        if let Some(at) = ended {
            self.running[node] = None;
            let job = self.jobs.remove(at);
            self.running.iter_mut().flatten().for_each(|other| *other -= usize::from(*other > at));
            self.log_event(node, "complete", job.task, job.number);
            self.end(node, job);
        }
        self.releases(node);
        self.dispatch(node) || ended.is_some()
    }

    fn end(&mut self, node: usize, job: RefJob) {
        match self.roles[job.task] {
            Some(Role::Hop { flow, hop }) => {
                let (flow, hop) = (flow.index(), hop as usize);
                if self.lowered.system.flows[flow].hops().count() > hop + 1 {
                    let mail = Mail { flow, hop, number: job.number, origin: job.arrival, due: job.deadline };
                    match self.spec(node).arrivals {
                        MessageArrivals::Interrupt { .. } => self.interrupt(node, Pending::Leaving(mail)),
                        _ => self.ready[node].push(mail),
                    }
                }
            }
            Some(Role::Receive) => {
                self.receptions[node] += 1;
                job.taken.into_iter().for_each(|mail| self.receive(node, mail));
            }
            Some(Role::Send) => job.taken.into_iter().for_each(|mail| self.send(node, mail)),
            Some(Role::Interrupt) => match self.interrupts[node].remove(0) {
                Pending::Arrived(mail) => self.receive(node, mail),
                Pending::Leaving(mail) => self.send(node, mail),
            },
            _ => {}
        }
    }

    fn send(&mut self, node: usize, mail: Mail) {
        self.tell_mail(node, "send", mail);
        let to = self.lowered.system.flows[mail.flow].hops().nth(mail.hop + 1).expect("a next hop").index();
        let Auto::Value((delay, _)) = self.lowered.system.networks[0].delay else { panic!("a delay") };
        self.way.push((self.now + delay.as_ns(), (node, to), mail));
    }

    fn receive(&mut self, node: usize, mail: Mail) {
        self.tell_mail(node, "receive", mail);
        let task = self.hop_task(mail.flow, mail.hop + 1);
        self.due[node].push((task, mail.number, mail.origin));
    }

    fn release(&mut self, node: usize, task: usize, number: u64, arrival: u64) {
        self.log_event(node, "release", task, number);
        let of = &self.lowered.system.tasks[task];
        let deadline = arrival + of.deadline.as_ns();
        let left = of.wcet.as_ns();
        let taken = Vec::new();
        self.jobs.push(RefJob {
            node,
            task,
            number,
            release: self.now,
            arrival,
            deadline,
            left,
            started: false,
            taken,
        });
        self.count[task] = number + 1;
    }

    /// Jobs of tables, first hops and tasks are released in the order of tasks, then those of messages in the
    /// order in which these were received.
    fn releases(&mut self, node: usize) {
        for task in 0..self.roles.len() {
            let of = &self.lowered.system.tasks[task];
            if of.node.index() != node {
                continue;
            }
            let (offset, period, number) = (of.offset.as_ns(), of.period.as_ns(), self.count[task]);
            match self.roles[task] {
                Some(Role::Hop { hop: 1.., .. } | Role::Interrupt) => {}
                _ if offset + number * period <= self.now => self.release(node, task, number, self.now),
                _ => {}
            }
        }
        for (task, number, arrival) in std::mem::take(&mut self.due[node]) {
            self.release(node, task, number, arrival);
        }
    }

    /// The order of a job among those that wait or run; the least goes first. `None`: it may not run now.
    fn rank(&self, at: usize) -> Option<(u64, bool, u64, u64, usize)> {
        let (job, node) = (&self.jobs[at], self.jobs[at].node);
        let first = !self.jobs.iter().take(at).any(|other| other.task == job.task);
        let runs = self.running[node] == Some(at);
        let table = matches!(self.roles[job.task], Some(Role::Receive | Role::Send | Role::Interrupt));
        let cyclic = self.spec(node).arrivals == MessageArrivals::Cyclic;
        if !first || (cyclic && !runs && !table && !self.fits(job)) {
            return None;
        }
        if runs && (table || cyclic) {
            return Some((0, false, 0, 0, 0));
        }
        let key = if table || cyclic { job.release } else { job.deadline };
        // Where jobs run to completion, only the table interrupts one that has started.
        let waits = table || !(job.started && self.to_completion[node]);
        Some((if table { 1 } else { 2 }, waits, key, job.arrival, job.task))
    }

    /// Whether a job of a cyclic node may start now. It waits behind all that wait for longer.
    fn fits(&self, job: &RefJob) -> bool {
        let (receive, send) = (self.spec(job.node).receive.expect("a slot"), self.spec(job.node).send.expect("a slot"));
        let (frame, phase) = (receive.period.as_ns(), self.now % receive.period.as_ns());
        let key = |job: &RefJob| (job.release, job.arrival, job.task);
        let before = self.jobs.iter().filter(|other| other.node == job.node && !other.started && key(other) < key(job));
        let behind = before.filter(|other| !matches!(self.roles[other.task], Some(Role::Receive | Role::Send))).count();
        let open = self.receptions[job.node] > self.now / frame;
        behind == 0 && open && phase >= receive.wcet.as_ns() && phase + job.left + send.wcet.as_ns() <= frame
    }

    fn dispatch(&mut self, node: usize) -> bool {
        let mine = (0..self.jobs.len()).filter(|at| self.jobs[*at].node == node);
        let best = mine.filter_map(|at| Some((self.rank(at)?, at))).min().map(|(_, at)| at);
        let Some(at) = best.filter(|at| self.running[node] != Some(*at)) else { return false };
        if let Some(old) = self.running[node] {
            self.log_event(node, "preempt", self.jobs[old].task, self.jobs[old].number);
        }
        let (task, number) = (self.jobs[at].task, self.jobs[at].number);
        self.log_event(node, if self.jobs[at].started { "resume" } else { "start" }, task, number);
        if !self.jobs[at].started {
            self.jobs[at].started = true;
            self.take(node, at);
        }
        self.running[node] = Some(at);
        true
    }

    /// A table job takes its messages at its start, which sets its execution time.
    fn take(&mut self, node: usize, at: usize) {
        let (table, receives) = match self.roles[self.jobs[at].task] {
            Some(Role::Receive) => (self.spec(node).receive.expect("its task"), true),
            Some(Role::Send) => (self.spec(node).send.expect("its task"), false),
            _ => return,
        };
        let most = table.cost.map_or(usize::MAX, |cost| (table.wcet.as_ns() / cost.as_ns()) as usize);
        let mut taken = Vec::new();
        while taken.len() < most {
            let next = if receives { (!self.buffer[node].is_empty()).then_some(0) } else { self.leaving(node, at) };
            let Some(next) = next else { break };
            let from = if receives { &mut self.buffer[node] } else { &mut self.ready[node] };
            let mail = from.remove(next);
            if !receives {
                self.last.push((mail.flow, mail.hop, self.jobs[at].number));
            }
            taken.push(mail);
        }
        if let Some(cost) = table.cost {
            self.jobs[at].left = cost.as_ns() * taken.len() as u64;
        }
        self.jobs[at].taken = taken;
    }

    /// The next message for a sending job: the first of each flow and hop, the earliest deadline first.
    fn leaving(&self, node: usize, at: usize) -> Option<usize> {
        let period = self.spec(node).send.expect("its task").period.as_ns();
        let number = self.jobs[at].number;
        let ready = &self.ready[node];
        let same = |one: &Mail, other: &Mail| (one.flow, one.hop) == (other.flow, other.hop);
        let may = |i: &usize| {
            let mail = &ready[*i];
            let gap = self.lowered.system.flows[mail.flow].send_gap.as_ns().div_ceil(period).max(1);
            let mut last = self.last.iter().filter(|(flow, hop, _)| (*flow, *hop) == (mail.flow, mail.hop));
            last.all(|(_, _, last)| number >= last + gap) && !ready[..*i].iter().any(|other| same(other, mail))
        };
        (0..ready.len()).filter(may).min_by_key(|i| (ready[*i].due, ready[*i].flow, ready[*i].hop))
    }
}

/// The relative deadlines of hops as [`lower`] takes them, so that a test can see that they are as written.
pub(crate) fn are_written(system: &System) -> bool {
    system.flows.iter().all(|flow| hop_deadlines(flow, system.clock) == flow.hop_deadlines)
}
