//! A slow, obvious hierarchy of servers on one CPU, in units of 1 ns.

use takt_log::Event;
use takt_model::{Auto, ComponentId, Criticality, ServerRule, Span, System};

use super::jobs::{Contender, Job, compares, costs, release_all};

pub(crate) const ONE: u128 = 1 << 32;

/// One unit of time: the running task and the paying servers, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    pub(crate) task: Option<usize>,
    pub(crate) payers: Vec<usize>,
}

/// Every unit of time, and the changes of servers' budgets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Schedule {
    pub(crate) units: Vec<Unit>,
    pub(crate) changes: Vec<(u64, Event)>,
}

/// The changes of servers' budgets, with their times. Those of one instant stand in the order of the servers, and those
/// of one server in the order in which they happened.
pub(crate) fn changes(events: impl Iterator<Item = (u64, Event)>) -> Vec<(u64, Event)> {
    let server = |event: &Event| match *event {
        Event::Replenish { server, .. } | Event::Exhaust { server } | Event::ServerIdle { server } => Some(server),
        _ => None,
    };
    let mut changes: Vec<(u64, Event)> = events.filter(|(_, event)| server(event).is_some()).collect();
    changes.sort_by_key(|(at, event)| (*at, server(event)));
    changes
}

/// What an update changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It has this budget now.
    Replenished(u64),
    /// It has no work any more, or gives up its budget without work.
    Idle,
}

impl Change {
    fn event(self, server: usize) -> Event {
        let server = server as u32;
        match self {
            Change::Replenished(budget) => Event::Replenish { server, budget: Span::from_ns(budget) },
            Change::Idle => Event::ServerIdle { server },
        }
    }
}

pub(crate) struct Account {
    pub(crate) rule: ServerRule,
    pub(crate) period: u64,
    full: u64,
    /// In 2^-32 ns.
    pub(crate) left: u128,
    pub(crate) deadline: u64,
    pub(crate) release: u64,
    pub(crate) had_work: bool,
    active: bool,
    since: u64,
    used: u64,
    returns: Vec<(u64, u64)>,
    /// When its first period began.
    start: u64,
    /// Its terms from the end of its period on.
    pub(crate) pending: Option<(ServerRule, u64, u64)>,
    /// The bandwidth of a bandwidth server counts until this instant, `u64::MAX` while it has work.
    counts_until: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Entry {
    Job(usize),
    Server(usize),
}

/// The entry with the CPU until the next decision: a job by its task and release, or a server.
#[derive(Clone, Copy, Debug)]
enum Chosen {
    Job(usize, u64),
    Server(usize),
}

/// The lender, the entry with the CPU, and whether the entry pays.
type Pick = (Option<usize>, Option<Chosen>, bool);

pub(crate) struct Reference<'a> {
    system: &'a System,
    accounts: Vec<Account>,
    jobs: Vec<Job>,
    picks: Vec<Pick>,
    now: u64,
    /// A job is complete or a budget used up since the last unit.
    news: bool,
    /// The running job and the paying servers, until something happens.
    choice: (Option<usize>, Vec<usize>),
    /// The changes of budgets so far.
    changes: Vec<(u64, Event)>,
}

pub(crate) fn value(of: Auto<Span>) -> u64 {
    of.given().expect("sized").as_ns()
}

/// The schedule of `duration`, for tasks that are strictly periodic and always need their WCET.
pub(crate) fn run(system: &System, duration: u64) -> Schedule {
    let accounts = system
        .components
        .iter()
        .map(|component| account((component.server, value(component.period), value(component.budget)), 0));
    let mut reference = Reference {
        system,
        accounts: accounts.collect(),
        jobs: Vec::new(),
        picks: vec![(None, None, false); system.components.len() + 1],
        now: 0,
        news: true,
        choice: (None, Vec::new()),
        changes: Vec::new(),
    };
    let units = (0..duration).map(|now| reference.unit(now)).collect();
    Schedule { units, changes: changes(reference.changes.into_iter()) }
}

pub(crate) fn account((rule, period, full): (ServerRule, u64, u64), now: u64) -> Account {
    let bandwidth = matches!(rule, ServerRule::Cbs | ServerRule::CbsHard | ServerRule::Grub);
    Account {
        rule,
        period,
        full,
        left: if bandwidth { 0 } else { u128::from(full) * ONE },
        deadline: if bandwidth { 0 } else { now + period },
        release: now,
        had_work: false,
        active: false,
        since: now,
        used: 0,
        returns: Vec::new(),
        start: now,
        pending: None,
        counts_until: 0,
    }
}

impl Account {
    /// Brings it to `now`, where it has work or not. Returns the changes, in order.
    pub(crate) fn update(&mut self, now: u64, work: bool) -> Vec<Change> {
        let account = self;
        let mut changes = Vec::new();
        let over = account.period_is_over(now);
        if let Some(terms) = account.pending.filter(|_| over) {
            let had_budget = account.left > 0;
            *account = self::account(terms, now);
            // A periodic server has its first budget below.
            if !account.is_periodic() && (had_budget || account.left > 0) {
                changes.push(account.replenished());
            }
        }
        let closing = account.pending.is_some();
        let full = u128::from(account.full) * ONE;
        match account.rule {
            ServerRule::Sporadic => {
                while {
                    let due = account.returns.iter().filter(|(at, _)| *at <= now);
                    let returned: u64 = due.map(|(_, part)| part).sum();
                    account.returns.retain(|(at, _)| *at > now);
                    account.left += u128::from(returned) * ONE;
                    if returned > 0 {
                        changes.push(account.replenished());
                    }
                    account.active &= work && account.left > 0 && returned == 0;
                    if !account.active {
                        account.returns.push((account.since + account.period, account.used));
                        account.used = 0;
                    }
                    account.returns.iter().any(|(at, part)| *at <= now && *part > 0)
                } {}
                if work && account.left > 0 && !account.active && !closing {
                    (account.active, account.since, account.release) = (true, now, now);
                    account.deadline = now + account.period;
                }
            }
            // One of several servers without a share of the budget.
            ServerRule::Cbs | ServerRule::CbsHard | ServerRule::Grub if account.full == 0 => {}
            ServerRule::Cbs | ServerRule::CbsHard | ServerRule::Grub => {
                let throttled = (closing || account.rule == ServerRule::CbsHard) && now < account.deadline;
                if account.left == 0 && account.deadline > 0 && !throttled {
                    (account.left, account.release) = (full, now);
                    account.deadline += account.period;
                    changes.push(account.replenished());
                }
                if work && !account.had_work {
                    let room = u128::from(account.deadline.saturating_sub(now));
                    let excess = account.left * u128::from(account.period) >= room * full;
                    let fresh = match account.rule {
                        ServerRule::Grub => account.counts_until <= now,
                        _ => account.deadline == 0 || account.left > 0 && excess,
                    };
                    if fresh && !closing {
                        (account.left, account.release) = (full, now);
                        account.deadline = now + account.period;
                        changes.push(account.replenished());
                    }
                    account.counts_until = u64::MAX;
                }
                if !work && account.had_work {
                    let early = account.left * u128::from(account.period) / full;
                    account.counts_until = account.deadline.saturating_sub(early as u64);
                }
            }
            _ => {
                if (now - account.start).is_multiple_of(account.period) {
                    (account.left, account.release) = (full, now);
                    account.deadline = now + account.period;
                    changes.push(account.replenished());
                }
                if account.rule == ServerRule::Polling && !work && account.left > 0 {
                    // It is idle, whether it had work before or not.
                    (account.left, account.had_work) = (0, true);
                }
            }
        }
        if account.had_work && !work {
            changes.push(Change::Idle);
        }
        account.had_work = work;
        if account.pending.is_some() && account.period_is_over(now) {
            changes.extend(account.update(now, work));
        }
        changes
    }

    /// Whether its budget comes at the multiples of its period.
    fn is_periodic(&self) -> bool {
        use ServerRule::{Cbs, CbsHard, Grub, Sporadic};
        !matches!(self.rule, Sporadic | Cbs | CbsHard | Grub)
    }

    fn replenished(&self) -> Change {
        Change::Replenished((self.left / ONE) as u64)
    }

    pub(crate) fn is_eligible(&self, has_work: impl FnOnce() -> bool) -> bool {
        let idles = matches!(self.rule, ServerRule::Ptps | ServerRule::Wcps | ServerRule::Crps);
        let closed = self.rule == ServerRule::Sporadic && self.pending.is_some() && !self.active;
        !closed && self.left > 0 && (idles || has_work())
    }

    /// The part of its state that events change, without its work.
    pub(crate) fn state(&self) -> (u128, u64, u64) {
        (self.left, self.release, self.deadline)
    }

    /// It competes as a task does: a job of its budget in each period.
    pub(crate) fn contender(&self, priority: Option<u32>) -> Contender {
        Contender {
            release: self.release,
            deadline: self.deadline,
            remaining: self.left.div_ceil(ONE) as u64,
            period: self.period,
            relative_deadline: self.period,
            priority,
            criticality: Criticality::High,
            importance: 0,
        }
    }

    /// It pays for a unit.
    pub(crate) fn charge(&mut self, rate: u128) {
        self.left = self.left.saturating_sub(rate);
        self.used += 1;
    }

    /// Its bandwidth, where that counts as active.
    pub(crate) fn active_share(&self, now: u64) -> u128 {
        let counts = self.rule != ServerRule::Grub || now < self.counts_until;
        if counts { share(self.full, self.period) } else { 0 }
    }

    /// Whether no budget of before `now` is left that may be used or come back.
    fn period_is_over(&self, now: u64) -> bool {
        match self.rule {
            ServerRule::Sporadic => {
                let used = self.active || self.used > 0;
                let is_back = |(at, part): &(u64, u64)| *part == 0 || *at <= now;
                self.returns.iter().all(is_back) && (!used || now >= self.since + self.period)
            }
            // While it has work it counts until its deadline.
            ServerRule::Cbs | ServerRule::CbsHard | ServerRule::Grub => {
                now >= if self.counts_until == u64::MAX { self.deadline } else { self.counts_until }
            }
            _ => (now - self.start).is_multiple_of(self.period),
        }
    }
}

/// In 2^-32, rounded up.
fn share(budget: u64, period: u64) -> u128 {
    (u128::from(budget) * ONE).div_ceil(u128::from(period))
}

/// The place of a component, or of the node, which comes first.
pub(crate) fn place(level: Option<usize>) -> usize {
    level.map_or(0, |at| at + 1)
}

/// In how many components one stands.
pub(crate) fn depth(system: &System, component: usize) -> usize {
    system.around(ComponentId(component as u32)).count() - 1
}

/// The longest quantum of the components directly in a component, or in the node.
pub(crate) fn quantum(system: &System, level: Option<usize>) -> Option<u64> {
    let inner = system.components.iter().filter(|one| one.parent.map(ComponentId::index) == level);
    inner.filter_map(|component| component.quantum).map(Span::as_ns).max()
}

/// What a server under `grub` pays for a unit, where the servers of its level are these.
pub(crate) fn grub_rate<'a>(
    system: &System,
    level: Option<usize>,
    servers: impl Iterator<Item = &'a Account>,
    now: u64,
) -> u128 {
    let tasks = system.tasks.iter().filter(|task| task.component.map(ComponentId::index) == level);
    let tasks: u128 = tasks.map(|task| share(task.wcet.as_ns(), task.period.as_ns())).sum();
    (tasks + servers.map(|server| server.active_share(now)).sum::<u128>()).min(ONE)
}

impl Reference<'_> {
    fn unit(&mut self, now: u64) -> Unit {
        self.now = now;
        let mut news = std::mem::take(&mut self.news);
        news |= release_all(self.system, &mut self.jobs, now);
        self.switch();
        let mut inside_out: Vec<usize> = (0..self.accounts.len()).collect();
        inside_out.sort_by_key(|at| std::cmp::Reverse(depth(self.system, *at)));
        for server in inside_out {
            let work = self.wants(Some(server));
            let before = self.accounts[server].state();
            for change in self.accounts[server].update(now, work) {
                self.changes.push((now, change.event(server)));
            }
            news |= self.accounts[server].state() != before;
        }
        if news || compares(self.system, now) {
            self.choose();
        }
        let (ran, mut payers) = self.choice.clone();
        let rates: Vec<u128> = (0..self.accounts.len()).map(|server| self.rate(server)).collect();
        for server in &payers {
            self.accounts[*server].charge(rates[*server]);
            if self.accounts[*server].left == 0 {
                self.news = true;
                self.changes.push((now + 1, Event::Exhaust { server: *server as u32 }));
            }
        }
        payers.sort_unstable();
        let task = ran.map(|job| self.jobs[job].task);
        self.run(ran);
        Unit { task, payers }
    }

    /// The last terms asked for hold.
    fn switch(&mut self) {
        let mut switches: Vec<_> = self.system.switches.iter().filter(|one| one.at.as_ns() == self.now).collect();
        switches.sort_by_key(|switch| switch.component);
        for switch in switches {
            let account = &mut self.accounts[switch.component.index()];
            let (rule, period, full) = account.pending.unwrap_or((account.rule, account.period, account.full));
            let [period, full] =
                [(switch.period, period), (switch.budget, full)].map(|(new, old)| new.map_or(old, Span::as_ns));
            account.pending = Some((switch.server.unwrap_or(rule), period, full));
        }
    }

    /// Scopes with a quantum decide at its multiples, inner ones first. Then the node gives its CPU.
    fn choose(&mut self) {
        let mut levels: Vec<Option<usize>> = (0..self.accounts.len()).map(Some).collect();
        levels.sort_by_key(|level| std::cmp::Reverse(level.map(|at| depth(self.system, at))));
        levels.push(None);
        for level in levels {
            if quantum(self.system, level).is_some_and(|quantum| self.now.is_multiple_of(quantum)) {
                self.picks[place(level)] = (None, None, false);
                self.decide(level, &mut Vec::new());
            }
        }
        let mut payers = Vec::new();
        let ran = self.give(None, &mut payers);
        self.choice = (ran, payers);
    }

    /// The chosen job has the CPU for one unit.
    fn run(&mut self, ran: Option<usize>) {
        let costs = costs(self.system);
        (0..self.jobs.len()).filter(|job| Some(*job) != ran).for_each(|job| self.jobs[job].stop());
        let Some(ran) = ran else { return };
        let job = &mut self.jobs[ran];
        if job.cpu.is_none() {
            job.start(0, &costs);
        }
        job.work(self.now, &costs);
        self.news |= job.left == 0;
        self.jobs.retain(|job| job.left > 0);
    }

    /// The first job of each task, and the servers.
    fn entries(&self, level: Option<usize>) -> Vec<Entry> {
        let inside = |of: Option<ComponentId>| of.map(|id| id.index()) == level;
        let is_first = |i: usize| self.jobs.iter().position(|job| job.task == self.jobs[i].task) == Some(i);
        let jobs =
            (0..self.jobs.len()).filter(|i| is_first(*i) && inside(self.system.tasks[self.jobs[*i].task].component));
        let servers = (0..self.accounts.len()).filter(|i| inside(self.system.components[*i].parent));
        jobs.map(Entry::Job).chain(servers.map(Entry::Server)).collect()
    }

    fn eligible(&self, server: usize) -> bool {
        self.accounts[server].is_eligible(|| self.wants(Some(server)))
    }

    fn wants(&self, level: Option<usize>) -> bool {
        self.entries(level).into_iter().any(|entry| match entry {
            Entry::Job(_) => true,
            Entry::Server(server) => self.eligible(server),
        })
    }

    /// The least goes first.
    fn key(&self, level: Option<usize>, entry: Entry) -> ((u64, i64), u64, bool, usize) {
        let strategy = match level {
            None => self.system.nodes[0].strategy,
            Some(server) => self.system.components[server].strategy,
        };
        let (of, is_server, index) = match entry {
            Entry::Job(at) => (Contender::of_job(self.system, &self.jobs[at]), false, self.jobs[at].task),
            Entry::Server(at) => (self.accounts[at].contender(self.system.components[at].priority), true, at),
        };
        (of.standing(self.system, strategy), of.release, is_server, index)
    }

    /// Gives a level the CPU. Returns the running job and adds the payers.
    fn give(&mut self, level: Option<usize>, payers: &mut Vec<usize>) -> Option<usize> {
        if quantum(self.system, level).is_some() { self.follow(level, payers) } else { self.decide(level, payers) }
    }

    fn decide(&mut self, level: Option<usize>, payers: &mut Vec<usize>) -> Option<usize> {
        let mut entries = self.entries(level);
        entries.sort_by_key(|entry| self.key(level, *entry));
        let wants = |world: &Self, entry: &Entry| match entry {
            Entry::Job(_) => true,
            Entry::Server(server) => world.eligible(*server),
        };
        let first = entries.iter().copied().find(|entry| wants(self, entry))?;
        let Entry::Server(server) = first else {
            self.picks[place(level)] = (None, Some(self.chosen(first)), false);
            return Self::job(first);
        };
        payers.push(server);
        let ran = self.give(Some(server), payers);
        self.picks[place(level)] = (None, Some(self.chosen(first)), true);
        let reclaims = match self.accounts[server].rule {
            _ if ran.is_some() => return ran,
            ServerRule::Wcps => false,
            ServerRule::Crps => true,
            _ => return None,
        };
        let at = entries.iter().position(|entry| *entry == first).expect("it is one of them");
        let others: Vec<Entry> = if reclaims { entries.clone() } else { entries[at + 1..].to_vec() };
        for other in others.into_iter().filter(|other| *other != first) {
            let mut more = Vec::new();
            let ran = match other {
                Entry::Job(job) => Some(job),
                Entry::Server(at) if reclaims && self.wants(Some(at)) => self.give(Some(at), &mut more),
                Entry::Server(at) if !reclaims && self.eligible(at) => {
                    more.push(at);
                    self.give(Some(at), &mut more)
                }
                Entry::Server(_) => None,
            };
            if ran.is_some() {
                payers.extend(more);
                self.picks[place(level)] = (Some(server), Some(self.chosen(other)), !reclaims);
                return ran;
            }
        }
        None
    }

    fn chosen(&self, entry: Entry) -> Chosen {
        match entry {
            Entry::Job(at) => Chosen::Job(self.jobs[at].task, self.jobs[at].release),
            Entry::Server(at) => Chosen::Server(at),
        }
    }

    fn job(entry: Entry) -> Option<usize> {
        match entry {
            Entry::Job(at) => Some(at),
            Entry::Server(_) => None,
        }
    }

    fn follow(&mut self, level: Option<usize>, payers: &mut Vec<usize>) -> Option<usize> {
        let (lender, entry, pays) = self.picks[place(level)];
        if let Some(lender) = lender {
            if self.accounts[lender].left == 0 {
                return None;
            }
            payers.push(lender);
            let mut more = Vec::new();
            if self.give(Some(lender), &mut more).is_none() {
                payers.extend(more);
            }
        }
        match entry? {
            Chosen::Job(task, release) => self.jobs.iter().position(|job| job.task == task && job.release == release),
            Chosen::Server(server) if pays && self.accounts[server].left == 0 => None,
            Chosen::Server(server) => {
                if pays {
                    payers.push(server);
                }
                self.give(Some(server), payers)
            }
        }
    }

    fn rate(&self, server: usize) -> u128 {
        if self.accounts[server].rule != ServerRule::Grub {
            return ONE;
        }
        let level = self.system.components[server].parent;
        let beside = self.accounts.iter().zip(&self.system.components).filter(|(_, other)| other.parent == level);
        grub_rate(self.system, level.map(ComponentId::index), beside.map(|(account, _)| account), self.now)
    }
}
