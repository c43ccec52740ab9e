//! Components under servers on one CPU: picks the job to run and the servers to charge [CSA III-A].
//!
//! The node and each component is a *scope*. A scope orders its own tasks and the servers of its components by its
//! strategy. A server counts as a task with its budget, its period, and the `priority` of its component. A scope is
//! *idle* if nothing in it would use the CPU. A periodic server with budget uses the CPU even without work.
//!
//! A scope gives its CPU to the first of its ready tasks and eligible servers:
//!
//! - A task runs.
//! - A server pays, and the scope of its component gets the CPU. If no job runs there, the rule decides:
//!   - `wcps` lends the CPU to the next entry with a job to run. Both servers pay.
//!   - `crps` lends the CPU to the first entry with a job to run, with or without budget. The borrower does not pay.
//!   - Any other rule leaves the CPU idle.
//!
//! A lender pays, and so do eligible servers inside it. Other idle servers do not pay. The payers stay fixed until the
//! next [`Hierarchy::dispatch`]. The caller dispatches at every event and at [`Hierarchy::next_wakeup`]. Under these
//! rules a budget ends no later than under `ptps`, at every depth [CSA Lemma 2].
//!
//! If servers of a scope have a `quantum`, the scope decides only at multiples of the longest one. A task or component
//! without work leaves the CPU idle until then.
//!
//! Ties go to the earlier arrival, then to tasks before servers, then to the order of the file. A server arrives when
//! its budget comes. At one instant, exhausted budgets end before the caller's events. Replenishments follow them.

use takt_model::plan::Order;
use takt_model::{ComponentId, ServerRule, Span, Time};

use crate::dispatcher::{Decision, Dispatcher, Event};
use crate::server::{Change, RATE_ONE, Server};

mod build;
mod choose;

/// A change of a server, at the instant of the call that caused it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerEvent {
    /// Its component.
    pub component: ComponentId,
    /// The change.
    pub change: ServerChange,
}

/// See [`ServerEvent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerChange {
    /// Its budget rose to this.
    Replenished(Span),
    /// Its budget is used up.
    Exhausted,
    /// Nothing in it is left to run.
    Idle,
    /// It has paid this much, from `since` until now.
    Paid {
        /// From when on.
        since: Time,
        /// How much.
        amount: Span,
        /// None of its jobs ran: it was idle, or lent the CPU.
        idle: bool,
    },
}

/// The place of a server in a plan of the scope around it.
#[derive(Clone, Copy, Debug)]
struct Place {
    level: u32,
    order: Order,
    preemptive: bool,
    shift_ns: i64,
}

/// An entry of a scope: it competes for the scope's CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// The first of the scope's own tasks, by its slot in the scope.
    Task(u32),
    /// A server by its index.
    Server(usize),
}

/// How a scope uses its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Pick {
    /// An idle server that pays and lends the CPU.
    lender: Option<usize>,
    /// The entry with the CPU.
    entry: Option<Entry>,
    /// The number of the job, if the entry is a task.
    job: u64,
    /// Whether `entry`, a server, pays.
    pays: bool,
}

#[derive(Clone, Debug)]
struct Scope {
    dispatcher: Dispatcher,
    /// The node's slots of its tasks.
    slots: Vec<u32>,
    /// How many jobs each of them has had.
    jobs: Vec<u64>,
    servers: Vec<usize>,
    /// By plan, and by position in `servers`.
    places: Vec<Vec<Place>>,
    plan: usize,
    /// Decisions fall on multiples of this.
    quantum: Option<Span>,
    /// Its decision, until the next one.
    pick: Pick,
    /// Something has happened since the last decision.
    stale: bool,
    /// Whether something in it would use the CPU.
    wants: bool,
    /// Bandwidth of its tasks and of its servers but `grub`'s, in 2^-32.
    fixed_share: u64,
}

#[derive(Clone, Debug)]
struct Node {
    component: ComponentId,
    account: Server,
    /// The scope that it stands in, and its own.
    outer: usize,
    inner: usize,
    eligible: bool,
    /// The start of its payment, and the amount so far.
    paying: Option<(Time, Span)>,
    /// Whether a job in it runs, since the last decision.
    runs: bool,
}

/// The outcome of a choice: payers, decisions of scopes, and the job's scope.
#[derive(Clone, Debug, Default)]
struct Choice {
    payers: Vec<usize>,
    picks: Vec<(usize, Pick)>,
    /// The scope whose task runs.
    runs: Option<usize>,
}

impl Choice {
    fn clear(&mut self) {
        self.payers.clear();
        self.picks.clear();
        self.runs = None;
    }
}

/// Decides for one node of one CPU with components. See the module's documentation for the rules, and
/// [`Dispatcher`] for the protocol, which is the same.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// The node's own first; outer ones before inner ones.
    scopes: Vec<Scope>,
    servers: Vec<Node>,
    /// The servers with the innermost first.
    inside_out: Vec<usize>,
    /// Scope and slot in it, by slot of the node.
    homes: Vec<(usize, u32)>,
    choice: Choice,
    /// The scope whose job has the CPU.
    granted: Option<usize>,
    /// Scratch of a decision.
    scratch: Vec<Decision>,
    changes: Vec<Change>,
    /// Servers have paid up to this instant.
    paid_until: Time,
    events: Vec<ServerEvent>,
    laxity_quantum: Option<Span>,
}

impl Hierarchy {
    /// See [`Dispatcher::wants_deadlines`].
    #[must_use]
    pub fn wants_deadlines(&self) -> bool {
        self.scopes.iter().any(|scope| scope.dispatcher.wants_deadlines())
    }

    /// See [`Dispatcher::decisions_max`].
    #[must_use]
    pub fn decisions_max(&self) -> usize {
        self.scopes.iter().map(|scope| scope.dispatcher.decisions_max()).sum()
    }

    /// Takes the changes of servers since the last call, in order.
    pub fn take_events(&mut self) -> impl Iterator<Item = ServerEvent> + '_ {
        self.events.drain(..)
    }

    /// See [`Dispatcher::on_event`]; [`Event::Mode`] switches the node's own strategy.
    pub fn on_event(&mut self, now: Time, event: &Event, decisions: &mut Vec<Decision>) {
        self.pay(now);
        let slot = match *event {
            Event::Ready(job) => job.slot,
            Event::Complete { slot } | Event::Deadline { slot } => slot,
            Event::Mode { plan } => {
                let root = &mut self.scopes[0];
                root.plan = plan.min(root.places.len().saturating_sub(1));
                return self.in_scope(0, decisions, |dispatcher, decisions| dispatcher.on_event(now, event, decisions));
            }
        };
        let Some((home, local)) = self.homes.get(slot as usize).copied() else {
            debug_assert!(false, "no slot {slot}");
            return;
        };
        let event = match *event {
            Event::Ready(job) => {
                self.scopes[home].jobs[local as usize] += 1;
                Event::Ready(crate::Job { slot: local, ..job })
            }
            Event::Complete { .. } => Event::Complete { slot: local },
            Event::Deadline { .. } => Event::Deadline { slot: local },
            other @ Event::Mode { .. } => other,
        };
        self.in_scope(home, decisions, |dispatcher, decisions| dispatcher.on_event(now, &event, decisions));
    }

    /// Does something with the dispatcher of a scope, whose decisions get the node's slots.
    fn in_scope(
        &mut self,
        scope: usize,
        decisions: &mut Vec<Decision>,
        act: impl FnOnce(&mut Dispatcher, &mut Vec<Decision>),
    ) {
        let from = decisions.len();
        let scope = &mut self.scopes[scope];
        act(&mut scope.dispatcher, decisions);
        for decision in &mut decisions[from..] {
            let (Decision::Cancel { slot }
            | Decision::Drop { slot, .. }
            | Decision::Preempt { slot, .. }
            | Decision::Run { slot, .. }) = decision;
            *slot = scope.slots[*slot as usize];
        }
    }

    /// Charges the payers for the time up to `now`.
    fn pay(&mut self, now: Time) {
        let time = now.saturating_since(self.paid_until);
        self.paid_until = now;
        if time.is_zero() {
            return;
        }
        for at in 0..self.choice.payers.len() {
            let server = self.choice.payers[at];
            let rate = self.rate(server);
            let node = &mut self.servers[server];
            let paid = node.account.pay(time, rate);
            if let Some((_, amount)) = &mut node.paying {
                *amount += paid;
            }
            if !node.account.has_budget() {
                self.settle(server, now);
                self.tell(server, ServerChange::Exhausted);
            }
        }
    }

    /// The rate at which a server's budget is used while it pays.
    fn rate(&self, server: usize) -> u64 {
        let node = &self.servers[server];
        if node.account.rule() != ServerRule::Grub {
            return RATE_ONE;
        }
        let outer = &self.scopes[node.outer];
        let active = outer.servers.iter().map(|at| &self.servers[*at].account);
        let active = active.filter(|account| account.rule() == ServerRule::Grub && account.is_active());
        active.map(Server::share).fold(outer.fixed_share, u64::saturating_add).min(RATE_ONE)
    }

    /// Reports the payments of a server.
    fn settle(&mut self, server: usize, now: Time) {
        let Some((since, amount)) = self.servers[server].paying else { return };
        self.servers[server].paying = Some((now, Span::ZERO));
        if since < now {
            let idle = !self.servers[server].runs;
            self.tell(server, ServerChange::Paid { since, amount, idle });
        }
    }

    fn tell(&mut self, server: usize, change: ServerChange) {
        self.events.push(ServerEvent { component: self.servers[server].component, change });
    }

    /// Decides who runs from `now` on, after all events of the instant.
    pub fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        self.pay(now);
        loop {
            self.update(now);
            self.decide_on_grids(now);
            let mut choice = std::mem::take(&mut self.choice);
            choice.clear();
            self.choose(0, now, &mut choice);
            self.choice = choice;
            if self.carry_out(now, decisions) {
                break;
            }
        }
        self.begin_to_pay(now);
    }

    /// Brings all servers to `now`, from the inside out.
    fn update(&mut self, now: Time) {
        for at in 0..self.inside_out.len() {
            let server = self.inside_out[at];
            let has_work = self.wants(self.servers[server].inner, now);
            let mut changes = std::mem::take(&mut self.changes);
            self.servers[server].account.update(now, has_work, |change| changes.push(change));
            for change in changes.drain(..) {
                let told = match change {
                    Change::Replenished(budget) => ServerChange::Replenished(budget),
                    Change::Idle => ServerChange::Idle,
                };
                self.settle(server, now);
                self.tell(server, told);
            }
            self.changes = changes;
            self.servers[server].eligible = self.servers[server].account.is_eligible(has_work);
        }
        self.wants(0, now);
    }

    /// Finds out whether something in a scope would use the CPU. Its servers must be up to date.
    fn wants(&mut self, scope: usize, now: Time) -> bool {
        let at = &self.scopes[scope];
        let wants = at.dispatcher.head(now).is_some() || at.servers.iter().any(|server| self.servers[*server].eligible);
        self.scopes[scope].wants = wants;
        wants
    }

    /// Gives the chosen scope the CPU. False if its jobs were all cancelled: then there is more to choose.
    fn carry_out(&mut self, now: Time, decisions: &mut Vec<Decision>) -> bool {
        for scope in self.scopes.iter_mut().filter(|scope| scope.quantum.is_none()) {
            scope.pick = Pick::default();
        }
        for (scope, pick) in &self.choice.picks {
            self.scopes[*scope].pick = *pick;
        }
        // The scope may cancel all its jobs. Then the running job keeps the CPU.
        let mut within = std::mem::take(&mut self.scratch);
        let mut has_run = true;
        if let Some(scope) = self.choice.runs {
            let at = &self.scopes[scope];
            let (has_quantum, pick) = (at.quantum.is_some(), at.pick.entry);
            self.in_scope(scope, &mut within, |dispatcher, decisions| match pick {
                Some(Entry::Task(slot)) if has_quantum => dispatcher.run_only(slot, now, decisions),
                _ => dispatcher.dispatch_in_scope(now, decisions),
            });
            has_run = self.scopes[scope].dispatcher.is_running();
        }
        if has_run
            && self.granted != self.choice.runs
            && let Some(before) = std::mem::replace(&mut self.granted, self.choice.runs)
        {
            self.in_scope(before, decisions, |dispatcher, decisions| dispatcher.withdraw(now, decisions));
        }
        decisions.append(&mut within);
        self.scratch = within;
        has_run
    }

    /// Notes the payers from now on.
    fn begin_to_pay(&mut self, now: Time) {
        for server in 0..self.servers.len() {
            let pays = self.choice.payers.contains(&server);
            let runs = self.has_job(server);
            if pays && self.servers[server].paying.is_none() {
                self.servers[server].paying = Some((now, Span::ZERO));
            } else if pays && self.servers[server].runs != runs {
                self.settle(server, now);
            } else if !pays && self.servers[server].paying.is_some() {
                self.settle(server, now);
                self.servers[server].paying = None;
            }
            if pays {
                self.servers[server].account.start();
            }
            self.servers[server].runs = runs;
        }
    }

    /// Whether the running job is a job of the server's component, at whatever depth.
    fn has_job(&self, server: usize) -> bool {
        // Scope 0 is the node's; scope k is that of server k - 1.
        let outer = |scope: &usize| self.servers.get(scope.wrapping_sub(1)).map(|server| server.outer);
        std::iter::successors(self.choice.runs, outer).any(|scope| scope == self.servers[server].inner)
    }

    /// Charges the servers for the time up to the end of the run.
    pub fn finish(&mut self, now: Time) {
        self.pay(now);
        (0..self.servers.len()).for_each(|server| self.settle(server, now));
    }

    /// The next instant at which the caller must dispatch without an event.
    #[must_use]
    pub fn next_wakeup(&self, now: Time) -> Option<Time> {
        let changes = self.servers.iter().map(|node| node.account.next_change());
        let ends = self.choice.payers.iter().map(|at| self.servers[*at].account.end(now, self.rate(*at)));
        let undecided = |scope: &&Scope| scope.stale || scope.compares_laxity();
        let grids = self.scopes.iter().filter(undecided).filter(|scope| scope.wants || scope.pick.entry.is_some());
        let grids = grids.filter_map(|scope| scope.quantum.map(|quantum| next_multiple(now, quantum)));
        let sections = self.scopes.iter().filter_map(|scope| scope.dispatcher.next_section(now));
        let comparison = self.laxity_quantum.filter(|_| self.scopes.iter().any(Scope::compares_laxity));
        let comparison = comparison.map(|quantum| next_multiple(now, quantum));
        let all = changes.chain(ends).chain(grids).chain(sections).chain(comparison);
        all.min().filter(|at| *at < Time::MAX)
    }
}

impl Scope {
    /// Whether a waiting entry may overtake the running one by its laxity.
    fn compares_laxity(&self) -> bool {
        let servers = self.places[self.plan].iter().any(|place| place.order == Order::Laxity);
        self.wants && (servers || self.dispatcher.goes_by_laxity())
    }
}

fn is_multiple(now: Time, quantum: Span) -> bool {
    now.as_ns().is_multiple_of(quantum.as_ns().max(1))
}

fn next_multiple(now: Time, quantum: Span) -> Time {
    let quantum = quantum.as_ns().max(1);
    let next = (now.as_ns() / quantum).checked_add(1).and_then(|count| count.checked_mul(quantum));
    next.map_or(Time::MAX, Time::from_ns)
}
