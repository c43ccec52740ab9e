//! Servers and the components of tasks, from the budgets and payments of a log.
//!
//! A payment with a job says that a job of the component ran meanwhile. So the payments during which a
//! task ran tell its component. On one CPU a server pays with a job only while that job runs. So
//! components within others come out, too. On several CPUs payments of several servers overlap. There a
//! task with more than one candidate stays without a component ([`super::InferredTask::maybe_in`]).
//!
//! | rule | budget | period |
//! |---|---|---|
//! | `ptps`, `wcps`, `crps`, `polling`, `deferrable` | the largest one told | the grid of the budgets |
//! | `sporadic` | the largest one told, or paid before the first return | the longest time from a payment to its return |
//! | `cbs-hard` | the largest one told | from a budget that ran out to the next one; else as `cbs` |
//! | `cbs`, `grub` | the largest one told | the longest that explains each budget with a new deadline |
//!
//! A new deadline comes at `t` if `(t - r) Q >= T c`, where `r` is the last such instant, `Q` the budget, and
//! `c` the time paid since `r`. So `T` is at most `(t - r) Q / c`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use takt_log::{Definition, Definitions, Event, JobKey, NodeDef, ServerDef, Sink};
use takt_model::{CpuSet, NodeId, ServerRule, Span, TaskId, Time, named};

use super::{Arrivals, Inferred, Sample};

/// The most servers. Later servers of a log are left out.
pub const SERVERS_MAX: usize = 1 << 12;
/// The most pairs of a server and a task that ran while it paid. Later pairs are left out.
const PAIRS_MAX: usize = 1 << 20;

/// The most events of a server that are kept since its last definition. Later ones are only counted.
const HISTORY_MAX: usize = 1 << 16;

/// The most ended runs of a stream's jobs that are kept for later payments.
const RUNS_MAX: usize = 1 << 16;

named! {
    /// How the period of a server was found.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum PeriodSource {
        /// Its budgets lie on a grid.
        Grid => "grid",
        /// The least distance of its budgets. There are too few for a grid, or they lie on none.
        Distance => "distance",
        /// The time from a budget that ran out to the next one.
        Throttled => "throttled",
        /// The longest time from a payment to its return.
        Returned => "returned",
        /// The longest period that explains its budgets.
        AtMost => "at-most",
    }
}

/// The period of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerPeriod {
    /// The period.
    pub span: Span,
    /// How it was found.
    pub source: PeriodSource,
    /// The shortest and longest period that the grid allows.
    pub range: Option<(Span, Span)>,
}

/// A component, inferred from the events of its server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InferredComponent {
    /// Its name in the log.
    pub name: String,
    /// Its node.
    pub node: NodeId,
    /// The rule of its server, if the log names one.
    pub rule: Option<ServerRule>,
    /// The component around it: a place in [`Inferred::components`].
    pub parent: Option<usize>,
    /// On how many CPUs it was seen to run at once.
    pub cpus: u32,
    /// Its budget. `None` if it had none.
    pub budget: Option<Span>,
    /// Its period. `None` if its events tell none.
    pub period: Option<ServerPeriod>,
    /// How many budgets it got.
    pub budgets: u64,
    /// How many of them ran out.
    pub exhaustions: u64,
    /// The most that it paid between two budgets.
    pub paid_most: Span,
    /// How often its terms changed. All else is of the last terms.
    pub changes: u64,
}

/// A [`Sink`] that keeps the events of servers.
#[derive(Clone, Debug)]
pub struct ServerSampler {
    /// By server.
    accounts: Vec<Account>,
    /// By stream.
    lanes: BTreeMap<u32, Lane>,
    /// By task: how long its jobs ran, in nanoseconds.
    ran: BTreeMap<TaskId, u64>,
    /// By server and task: how long jobs of the task ran while the server paid with a job.
    overlaps: BTreeMap<(u32, TaskId), u64>,
}

/// The runs of jobs of a stream.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// By CPU: its job, and since when it runs.
    running: BTreeMap<u32, (JobKey, Time)>,
    /// In the order of their ends.
    ended: VecDeque<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    task: TaskId,
    since: Time,
    until: Time,
}

/// A change of a server.
#[derive(Clone, Copy, Debug)]
enum ServerUpdate {
    Budget(Time, Span),
    Exhausted(Time),
    Paid(Time, Span),
    Lost,
}

#[derive(Clone, Debug)]
struct Account {
    def: ServerDef,
    /// Since its last terms.
    history: Vec<ServerUpdate>,
    budgets: u64,
    exhaustions: u64,
    budget_most: Span,
    /// Since the last budget.
    paid: Span,
    paid_most: Span,
    /// Since the start of the log: what it paid with a job, and in all.
    busy: u64,
    total: u64,
    /// The end of its last payment.
    until: Time,
    cpus: u64,
    changes: u64,
}

impl Account {
    fn new(def: ServerDef) -> Account {
        Account {
            def,
            history: Vec::new(),
            budgets: 0,
            exhaustions: 0,
            budget_most: Span::ZERO,
            paid: Span::ZERO,
            paid_most: Span::ZERO,
            busy: 0,
            total: 0,
            until: Time::ZERO,
            cpus: 1,
            changes: 0,
        }
    }

    fn note(&mut self, news: ServerUpdate) {
        if self.history.len() < HISTORY_MAX {
            self.history.push(news);
        }
    }

    /// Starts anew if the server's definition changes.
    fn redefine(&mut self, def: &ServerDef) {
        if self.def == *def {
            return;
        }
        let begun = self.changes > 0 || !self.history.is_empty();
        *self = Account {
            busy: self.busy,
            total: self.total,
            until: self.until,
            cpus: self.cpus,
            changes: self.changes + u64::from(begun),
            ..Account::new(def.clone())
        };
    }

    fn replenish(&mut self, now: Time, budget: Span) {
        self.budgets += 1;
        self.budget_most = self.budget_most.max(budget);
        self.paid = Span::ZERO;
        self.note(ServerUpdate::Budget(now, budget));
    }

    /// Records a payment. Returns its start, which is not before the end of the last payment.
    fn record_payment(&mut self, since: Time, now: Time, amount: Span, idle: bool) -> Time {
        let cpus = amount.as_ns().div_ceil(now.saturating_since(since).as_ns().max(1));
        self.cpus = self.cpus.max(cpus);
        let since = since.max(self.until).min(now);
        self.until = self.until.max(now);
        let time = now.saturating_since(since).max(amount).as_ns();
        self.total = self.total.saturating_add(time);
        self.busy = self.busy.saturating_add(if idle { 0 } else { time });
        self.paid = self.paid.saturating_add(amount);
        self.paid_most = self.paid_most.max(self.paid);
        self.note(ServerUpdate::Paid(since, amount));
        since
    }

    fn rule(&self) -> Option<ServerRule> {
        ServerRule::ALL.into_iter().find(|rule| rule.name() == self.def.rule)
    }

    /// The least budget that allows its events.
    fn budget(&self) -> Option<Span> {
        let told = if self.rule() == Some(ServerRule::Sporadic) {
            self.budget_most.max(self.paid_first())
        } else {
            self.budget_most
        };
        [told, self.paid_most].into_iter().find(|budget| !budget.is_zero())
    }

    /// The time that the server paid before its budget changed for the first time. A sporadic server begins with a
    /// full budget.
    fn paid_first(&self) -> Span {
        let first = self.history.iter().map_while(|news| match news {
            ServerUpdate::Paid(_, amount) => Some(*amount),
            _ => None,
        });
        first.fold(Span::ZERO, Span::saturating_add)
    }

    fn period(&self) -> Option<ServerPeriod> {
        let budget = self.budget()?;
        match self.rule() {
            Some(ServerRule::Sporadic) => with_source(self.longest_return(budget), PeriodSource::Returned),
            Some(ServerRule::CbsHard) => with_source(self.throttled(), PeriodSource::Throttled)
                .or_else(|| with_source(self.at_most(budget, false), PeriodSource::AtMost)),
            Some(ServerRule::Cbs) => with_source(self.at_most(budget, false), PeriodSource::AtMost),
            Some(ServerRule::Grub) => with_source(self.at_most(budget, true), PeriodSource::AtMost),
            _ => self.grid(),
        }
    }

    /// The period of budgets that come at its multiples.
    fn grid(&self) -> Option<ServerPeriod> {
        let (mut times, mut gaps, mut gap): (Vec<(Time, Span)>, Vec<bool>, bool) = (Vec::new(), Vec::new(), false);
        for news in &self.history {
            match *news {
                ServerUpdate::Budget(at, _) if times.last().is_none_or(|(last, _)| *last < at) => {
                    times.push((at, Span::ZERO));
                    gaps.push(std::mem::take(&mut gap));
                }
                ServerUpdate::Lost => gap = true,
                _ => {}
            }
        }
        let mut sample = Sample::of_releases(&times);
        sample.jobs.iter_mut().zip(gaps).for_each(|(job, gap)| job.gap = gap);
        let arrivals = Arrivals::of(&sample);
        if let Some(grid) = arrivals.grid {
            let range = Some((grid.period_min, grid.period_max));
            return Some(ServerPeriod { span: grid.period, source: PeriodSource::Grid, range });
        }
        let least = arrivals.distances.first().map(|least| Span::from_ns(*least));
        with_source(least, PeriodSource::Distance)
    }

    /// The time from a budget that ran out to the next one. The median, because a server that ran out after its
    /// deadline has its next budget at once.
    fn throttled(&self) -> Option<Span> {
        let (mut last, mut ended, mut spans): (Option<Time>, Option<Time>, Vec<Span>) = (None, None, Vec::new());
        for news in &self.history {
            match *news {
                ServerUpdate::Budget(at, _) => {
                    if let (Some(last), Some(ended)) = (last, ended.take())
                        && ended < at
                    {
                        spans.push(at.saturating_since(last));
                    }
                    last = Some(at);
                }
                ServerUpdate::Exhausted(at) => ended = Some(at),
                ServerUpdate::Paid(..) => {}
                ServerUpdate::Lost => (last, ended) = (None, None),
            }
        }
        spans.sort_unstable();
        spans.get(spans.len().saturating_sub(1) / 2).copied()
    }

    /// The longest period that explains each budget with a new deadline. `rounded`: payments are rounded up.
    fn at_most(&self, budget: Span, rounded: bool) -> Option<Span> {
        let (mut start, mut ended, mut paid): (Option<Time>, Option<Time>, u64) = (None, None, 0);
        let mut most: Option<u64> = None;
        for news in &self.history {
            match *news {
                ServerUpdate::Budget(at, _) => {
                    let ended = ended.take();
                    if ended == Some(at) {
                        // Its deadline was postponed.
                        continue;
                    }
                    // A budget that comes long after the last one ran out comes at a deadline.
                    if let Some(start) = start.filter(|_| ended.is_none() && paid > 0) {
                        let time = u128::from(at.saturating_since(start).as_ns());
                        let bound = time * u128::from(budget.as_ns()) / u128::from(paid);
                        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
                        most = Some(most.map_or(bound, |most| most.min(bound)));
                    }
                    (start, paid) = (Some(at), 0);
                }
                ServerUpdate::Exhausted(at) => ended = Some(at),
                ServerUpdate::Paid(_, amount) => {
                    paid = paid.saturating_add(amount.as_ns().saturating_sub(u64::from(rounded)));
                }
                ServerUpdate::Lost => (start, ended, paid) = (None, None, 0),
            }
        }
        most.map(Span::from_ns)
    }

    /// The longest time from a payment to its return. Payments return in their order.
    fn longest_return(&self, budget: Span) -> Option<Span> {
        let (mut left, mut longest): (u64, Option<Span>) = (budget.as_ns(), None);
        let mut open: VecDeque<(Time, u64)> = VecDeque::new();
        for news in &self.history {
            match *news {
                ServerUpdate::Paid(since, amount) => {
                    left = left.saturating_sub(amount.as_ns());
                    open.push_back((since, amount.as_ns()));
                }
                ServerUpdate::Budget(at, now_left) => {
                    let mut back = now_left.as_ns().saturating_sub(left);
                    left = now_left.as_ns();
                    if let Some((since, _)) = open.front().filter(|_| back > 0) {
                        longest = longest.max(Some(at.saturating_since(*since)));
                    }
                    while back > 0
                        && let Some((_, amount)) = open.pop_front()
                    {
                        if amount > back {
                            // Payments before the start of the log returned. The rest cannot be told apart.
                            return longest;
                        }
                        back -= amount;
                    }
                }
                ServerUpdate::Exhausted(_) => {}
                ServerUpdate::Lost => return longest,
            }
        }
        longest
    }
}

fn with_source(span: Option<Span>, source: PeriodSource) -> Option<ServerPeriod> {
    span.filter(|span| !span.is_zero()).map(|span| ServerPeriod { span, source, range: None })
}

impl ServerSampler {
    /// For a log that begins with these definitions.
    #[must_use]
    pub fn new(definitions: &Definitions) -> ServerSampler {
        ServerSampler {
            accounts: definitions.servers.iter().take(SERVERS_MAX).cloned().map(Account::new).collect(),
            lanes: BTreeMap::new(),
            ran: BTreeMap::new(),
            overlaps: BTreeMap::new(),
        }
    }

    fn account(&mut self, server: u32) -> Option<&mut Account> {
        self.accounts.get_mut(server as usize)
    }

    fn starts(&mut self, stream: u32, now: Time, job: JobKey, cpu: u32) {
        if cpu >= CpuSet::CPUS_MAX || self.accounts.is_empty() {
            return;
        }
        // Some logs do not tell which job lost the CPU.
        self.ends(stream, now, |other, _| other == cpu);
        self.lanes.entry(stream).or_default().running.insert(cpu, (job, now));
    }

    fn stops(&mut self, stream: u32, now: Time, job: JobKey) {
        self.ends(stream, now, |_, other| other == job);
    }

    /// Ends the first run for which `is_meant` holds, if there is one.
    fn ends(&mut self, stream: u32, now: Time, is_meant: impl Fn(u32, JobKey) -> bool) {
        let Some(lane) = self.lanes.get_mut(&stream) else { return };
        let cpu = lane.running.iter().find(|(cpu, (job, _))| is_meant(**cpu, *job)).map(|(cpu, _)| *cpu);
        let Some((job, since)) = cpu.and_then(|cpu| lane.running.remove(&cpu)) else { return };
        let ran = self.ran.entry(job.task).or_default();
        *ran = ran.saturating_add(now.saturating_since(since).as_ns());
        lane.ended.push_back(Run { task: job.task, since, until: now });
        if lane.ended.len() > RUNS_MAX {
            lane.ended.pop_front();
        }
    }

    fn charge(&mut self, stream: u32, now: Time, server: u32, payment: (Time, Span, bool)) {
        let (since, amount, idle) = payment;
        let Some(since) = self.account(server).map(|account| account.record_payment(since, now, amount, idle)) else {
            return;
        };
        let Some(lane) = self.lanes.get(&stream).filter(|_| !idle && since < now) else { return };
        let within = |from: Time, to: Time| to.min(now).saturating_since(from.max(since)).as_ns();
        let ended = lane.ended.iter().rev().take_while(|run| run.until > since);
        let ended = ended.map(|run| (run.task, within(run.since, run.until)));
        let running = lane.running.values().map(|(job, from)| (job.task, within(*from, now)));
        for (task, time) in ended.chain(running).filter(|(_, time)| *time > 0) {
            if self.overlaps.len() >= PAIRS_MAX && !self.overlaps.contains_key(&(server, task)) {
                continue;
            }
            let overlap = self.overlaps.entry((server, task)).or_default();
            *overlap = overlap.saturating_add(time);
        }
    }
}

impl Sink for ServerSampler {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        match *event {
            Event::Start { job, cpu } | Event::Resume { job, cpu } => self.starts(stream, now, job, cpu),
            Event::Preempt { job, .. }
            | Event::Block { job, .. }
            | Event::Complete { job, .. }
            | Event::Cancel { job, .. } => self.stops(stream, now, job),
            Event::Replenish { server, budget } => {
                if let Some(account) = self.account(server) {
                    account.replenish(now, budget);
                }
            }
            Event::Exhaust { server } => {
                if let Some(account) = self.account(server) {
                    account.exhaustions += 1;
                    account.note(ServerUpdate::Exhausted(now));
                }
            }
            Event::Charge { server, since, amount, idle } => self.charge(stream, now, server, (since, amount, idle)),
            Event::Lost { .. } => {
                self.lanes.remove(&stream);
                for account in self.accounts.iter_mut().filter(|account| account.def.node.0 == stream) {
                    if !matches!(account.history.last(), Some(ServerUpdate::Lost)) {
                        account.note(ServerUpdate::Lost);
                    }
                }
            }
            _ => {}
        }
    }

    fn define(&mut self, _stream: u32, _now: Time, definition: &Definition) {
        let Definition::Server(id, def) = definition else { return };
        let next = self.accounts.len();
        match self.accounts.get_mut(*id as usize) {
            Some(account) => account.redefine(def),
            None if *id as usize == next && next < SERVERS_MAX => self.accounts.push(Account::new(def.clone())),
            None => {}
        }
    }
}

impl Inferred {
    /// Adds the components of the servers, and assigns tasks to them.
    #[must_use]
    pub fn with_servers(mut self, seen: &ServerSampler) -> Inferred {
        let accounts = &seen.accounts;
        self.components = accounts.iter().map(|account| component(account, &self.nodes)).collect();
        let mut candidates = self.candidates(seen);
        self.drop_unclear(seen, &mut candidates);
        let mut tasks: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); accounts.len()];
        for (task, servers) in candidates.iter().enumerate() {
            for server in servers {
                tasks[*server].insert(task);
            }
        }
        // An outer component has the tasks of the inner ones, and pays at least as long. The outer one stands first in
        // the log if nothing else tells them apart.
        let size =
            |server: usize| (tasks[server].len(), accounts[server].busy, accounts[server].total, Reverse(server));
        for (task, servers) in candidates.iter().enumerate() {
            self.tasks[task].component = servers.iter().copied().min_by_key(|server| size(*server));
        }
        for server in 0..accounts.len() {
            let Some(first) = tasks[server].first() else { continue };
            let outer = candidates[*first].iter().copied();
            let outer = outer.filter(|other| size(*other) > size(server) && tasks[server].is_subset(&tasks[*other]));
            self.components[server].parent = outer.min_by_key(|other| size(*other));
        }
        self
    }

    /// By task: the servers that paid while it ran.
    fn candidates(&self, seen: &ServerSampler) -> Vec<Vec<usize>> {
        let place = self.places();
        let mut shares: Vec<Vec<(usize, u64)>> = vec![Vec::new(); self.tasks.len()];
        for ((server, task), time) in &seen.overlaps {
            let server = *server as usize;
            if let Some(at) = place.get(task).filter(|at| self.tasks[**at].node == self.components[server].node) {
                shares[*at].push((server, *time));
            }
        }
        let of_task = |(at, shares): (usize, Vec<(usize, u64)>)| {
            let task = &self.tasks[at];
            let ran = task.log_id.and_then(|id| seen.ran.get(&id)).copied().unwrap_or_default();
            let best = shares.iter().map(|(_, time)| *time).max().unwrap_or_default();
            let alone = cpus(&self.nodes, task.node) <= 1;
            // On one CPU a job of another component runs beside a payment only while a live server reacts. A borrower
            // runs without a payment of its own. On several CPUs others pay all the time.
            let enough = |time: u64| {
                if alone { time >= ran / 4 && time >= best / 2 } else { time >= ran - ran / 10 }
            };
            shares.iter().filter(|(_, time)| enough(*time)).map(|(server, _)| *server).collect::<Vec<usize>>()
        };
        shares.into_iter().enumerate().map(of_task).collect()
    }

    /// Leaves tasks on several CPUs without a component if several may be theirs, or if one has paid too little for
    /// all of its tasks.
    fn drop_unclear(&mut self, seen: &ServerSampler, candidates: &mut [Vec<usize>]) {
        let mut ran: BTreeMap<usize, u64> = BTreeMap::new();
        let time = |id: Option<TaskId>| id.and_then(|id| seen.ran.get(&id)).copied().unwrap_or_default();
        for (task, servers) in self.tasks.iter().zip(candidates.iter()) {
            if let [server] = servers[..] {
                let sum = ran.entry(server).or_default();
                *sum = sum.saturating_add(time(task.log_id));
            }
        }
        let overdrawn = |server: usize| {
            let busy = seen.accounts[server].busy;
            ran.get(&server).is_some_and(|ran| *ran > busy.saturating_add(busy / 10))
        };
        for (task, servers) in self.tasks.iter_mut().zip(candidates.iter_mut()) {
            let unsure = servers.len() > 1 || servers.iter().any(|server| overdrawn(*server));
            if unsure && cpus(&self.nodes, task.node) > 1 {
                task.maybe_in = std::mem::take(servers);
            }
        }
    }

    /// Gives tasks new places, and leaves out components without any. An outer component has the tasks of its inner
    /// ones. `is_kept` is by the old places of tasks.
    pub(super) fn keep_components(&mut self, is_kept: impl Fn(usize) -> bool) {
        let mut needed: BTreeSet<usize> = BTreeSet::new();
        for (_, task) in self.tasks.iter().enumerate().filter(|(at, _)| is_kept(*at)) {
            needed.extend(&task.maybe_in);
            let mut next = task.component;
            while let Some(at) = next.filter(|at| needed.insert(*at)) {
                next = self.components.get(at).and_then(|component| component.parent);
            }
        }
        let place: BTreeMap<usize, usize> = needed.into_iter().zip(0..).collect();
        let moved = |at: usize| place.get(&at).copied();
        let all = std::mem::take(&mut self.components);
        let kept = all.into_iter().enumerate().filter(|(at, _)| place.contains_key(at));
        self.components = kept
            .map(|(_, component)| InferredComponent { parent: component.parent.and_then(moved), ..component })
            .collect();
        for task in &mut self.tasks {
            task.component = task.component.and_then(moved);
            task.maybe_in = task.maybe_in.iter().filter_map(|at| moved(*at)).collect();
        }
    }
}

/// A component without its parent.
fn component(account: &Account, nodes: &[NodeDef]) -> InferredComponent {
    let node = account.def.node;
    let cpus = account.cpus.clamp(1, u64::from(cpus(nodes, node).max(1)));
    let budget = account.budget();
    // No server gives more than all time of its CPUs.
    let least = Span::from_ns(budget.unwrap_or_default().as_ns().div_ceil(cpus));
    InferredComponent {
        name: account.def.name.clone(),
        node,
        rule: account.rule(),
        parent: None,
        cpus: u32::try_from(cpus).unwrap_or(1),
        budget,
        period: account.period().map(|period| ServerPeriod { span: period.span.max(least), ..period }),
        budgets: account.budgets,
        exhaustions: account.exhaustions,
        paid_most: account.paid_most,
        changes: account.changes,
    }
}

fn cpus(nodes: &[NodeDef], node: NodeId) -> u32 {
    nodes.get(node.index()).map_or(1, |node| node.cpus)
}
