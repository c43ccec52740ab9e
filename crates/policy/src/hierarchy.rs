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
//! Ties go to the earlier arrival, then to tasks before servers, then to the order of the file. A server
//! arrives when its budget comes. A server with other terms changes its place with its terms. At one instant,
//! exhausted budgets end before the caller's events. Replenishments follow them.

use std::collections::BinaryHeap;

use takt_model::plan::Order;
use takt_model::{ComponentId, ServerRule, Span, Time};

use crate::decision::{Decision, Event, rename};
use crate::dispatcher::Dispatcher;
use crate::rank::Rank;
use crate::server::{Change, Server, Terms};
use crate::times::{NEVER, Times};

pub(crate) use order::{EntryFilter, EntryState, ScopeOrder};

pub(crate) mod build;
mod choose;
mod grow;
mod order;

pub(crate) use choose::{lends_to, server_rank};

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
    /// It has this rule, period and budget from now on.
    Switched {
        /// The rule.
        rule: ServerRule,
        /// The period.
        period: Span,
        /// The full budget.
        budget: Span,
    },
}

/// The place of a server in a plan of the scope around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) level: u32,
    pub(crate) order: Order,
    pub(crate) preemptive: bool,
    pub(crate) shift_ns: i64,
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
    /// The slots of its tasks on the node.
    slots: Vec<u32>,
    /// How many jobs each of these tasks has had.
    jobs: Vec<u64>,
    servers: Vec<usize>,
    /// The servers by rank. Each decision computes it anew if ranks vary.
    order: ScopeOrder<usize>,
    /// Whether ranks change even if nothing happens to the servers: by laxity, or if some cannot be preempted.
    ranks_vary: bool,
    /// How many of the servers have a job in them.
    busy_servers: usize,
    /// The first of its tasks' jobs. Valid unless `is_head_old`.
    head: Option<Rank>,
    is_head_old: bool,
    /// It may have work now or have it no more.
    is_dirty: bool,
    /// By plan, by position in `servers`, and by the server's terms.
    places: Vec<Vec<Vec<Place>>>,
    plan: usize,
    /// Decisions fall on multiples of this.
    quantum: Option<Span>,
    /// Its decision, until the next one.
    pick: Pick,
    /// Something has happened since the last decision.
    stale: bool,
    /// Whether something in it would use the CPU.
    wants: bool,
    /// Bandwidth of its tasks and active servers, in 2^-32.
    active_share: u128,
}

/// The server of a component. The scope of its component is `scopes[i + 1]`, if `i` is its index.
#[derive(Clone, Debug)]
struct ServerState {
    component: ComponentId,
    account: Server,
    /// Something has happened to it since its last update.
    is_touched: bool,
    /// Its first terms, then those of its changes.
    terms: Vec<Terms>,
    /// The present ones of `terms`, and those to come next.
    term: usize,
    next_term: usize,
    /// The scope that it competes in, and its position among the servers there.
    outer: usize,
    position: usize,
    eligible: bool,
    /// Its entry in the order of that scope.
    entry_state: Option<EntryState>,
    /// The start of its payment, and the amount so far.
    paying: Option<(Time, Span)>,
    /// Whether a job in it runs, by the last decision.
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
    /// The node's own first, then that of each server. Outer ones stand before inner ones.
    scopes: Vec<Scope>,
    servers: Vec<ServerState>,
    /// Scope and slot in it, by slot of the node.
    homes: Vec<(usize, u32)>,
    choice: Choice,
    /// When each server changes by itself.
    changes_at: Times,
    /// Servers that may have changed, or whose scopes may. Inner ones come first, for they stand behind outer ones.
    to_update: BinaryHeap<usize>,
    /// Scopes whose ranks vary.
    varying: Vec<usize>,
    /// The servers that have begun to pay.
    paying: Vec<usize>,
    /// The scopes with a decision of the last choice.
    picked: Vec<usize>,
    /// Scopes with a quantum.
    with_quantum: Vec<usize>,
    /// Scopes that order jobs or servers by laxity.
    by_laxity: Vec<usize>,
    /// Scopes with sections.
    with_sections: Vec<usize>,
    /// The scope whose job has the CPU.
    granted: Option<usize>,
    /// Reused memory of a decision, and of the update of a server.
    scratch: Vec<Decision>,
    changes: Vec<Change>,
    /// Servers have paid up to this instant.
    paid_until: Time,
    events: Vec<ServerEvent>,
    laxity_quantum: Option<Span>,
    /// Changes to come, the earliest last: a server, and the index of its new terms.
    switches: Vec<(Time, usize, usize)>,
}

impl Hierarchy {
    /// See [`Dispatcher::wants_deadlines`].
    #[must_use]
    pub fn wants_deadlines(&self) -> bool {
        self.scopes.iter().any(|scope| scope.dispatcher.wants_deadlines())
    }

    /// Whether a late rule changes anything when the deadline of a slot's job passes.
    pub(crate) fn acts_on_deadline(&self, slot: u32) -> bool {
        let home = self.homes.get(slot as usize);
        home.is_some_and(|(scope, slot)| self.scopes[*scope].dispatcher.acts_on_deadline(*slot))
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
        self.charge(now);
        let slot = match *event {
            Event::Ready(job) => job.slot,
            Event::Complete { slot } | Event::Deadline { slot } => slot,
            Event::Mode { plan } => {
                let root = &mut self.scopes[0];
                root.plan = plan.min(root.places.len().saturating_sub(1));
                self.put_in_order(0);
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

    /// Calls the dispatcher of a scope, and replaces the scope's slots in its decisions by the node's.
    fn in_scope(
        &mut self,
        scope: usize,
        decisions: &mut Vec<Decision>,
        act: impl FnOnce(&mut Dispatcher, &mut Vec<Decision>),
    ) {
        let from = decisions.len();
        self.mark_dirty(scope);
        let scope = &mut self.scopes[scope];
        scope.is_head_old = true;
        act(&mut scope.dispatcher, decisions);
        rename(&mut decisions[from..], &scope.slots);
    }

    /// A scope may have work now or have it no more.
    fn mark_dirty(&mut self, scope: usize) {
        if !std::mem::replace(&mut self.scopes[scope].is_dirty, true)
            && let Some(server) = scope.checked_sub(1)
        {
            self.to_update.push(server);
        }
    }

    /// Something has happened to a server.
    fn touch(&mut self, server: usize) {
        if !std::mem::replace(&mut self.servers[server].is_touched, true) {
            self.to_update.push(server);
        }
    }

    fn charge(&mut self, now: Time) {
        let time = now.saturating_since(self.paid_until);
        self.paid_until = now;
        if time.is_zero() {
            return;
        }
        for at in 0..self.choice.payers.len() {
            let server = self.choice.payers[at];
            let rate = self.rate(server);
            let state = &mut self.servers[server];
            let paid = state.account.charge(time, rate);
            if let Some((_, amount)) = &mut state.paying {
                *amount += paid;
            }
            // A sporadic server notes what it has used.
            let (notes, has_budget) = (state.account.rule() == ServerRule::Sporadic, state.account.has_budget());
            if notes || !has_budget {
                self.touch(server);
            }
            if !has_budget {
                self.report_charges(server, now);
                self.report(server, ServerChange::Exhausted);
            }
        }
    }

    /// The rate at which a server's budget is used while it pays.
    fn rate(&self, server: usize) -> u64 {
        let state = &self.servers[server];
        state.account.rate(self.scopes[state.outer].active_share)
    }

    /// Reports the payments of a server.
    fn report_charges(&mut self, server: usize, now: Time) {
        let Some((since, amount)) = self.servers[server].paying else { return };
        self.servers[server].paying = Some((now, Span::ZERO));
        if since < now {
            let idle = !self.servers[server].runs;
            self.report(server, ServerChange::Paid { since, amount, idle });
        }
    }

    fn report(&mut self, server: usize, change: ServerChange) {
        self.events.push(ServerEvent { component: self.servers[server].component, change });
    }

    /// Decides who runs from `now` on, after all events of the instant.
    pub fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        self.charge(now);
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
        self.record_payers(now);
    }

    /// Updates the servers to which something has happened, inner ones first.
    fn update(&mut self, now: Time) {
        while let Some((_, server, term)) = self.switches.pop_if(|(at, ..)| *at <= now) {
            let state = &mut self.servers[server];
            state.account.switch(state.terms[term]);
            state.next_term = term;
            self.touch(server);
        }
        while let (at, server) = self.changes_at.earliest()
            && at <= now
        {
            self.changes_at.set(server, Time::MAX);
            self.touch(server as usize);
        }
        while let Some(server) = self.to_update.pop() {
            self.update_server(server, now);
        }
        self.scopes[0].is_dirty = false;
        self.update_wants(0, now);
        for at in 0..self.varying.len() {
            let scope = &mut self.scopes[self.varying[at]];
            scope.head = scope.dispatcher.head(now);
            self.put_in_order(self.varying[at]);
        }
    }

    fn update_server(&mut self, server: usize, now: Time) {
        let is_due = std::mem::take(&mut self.servers[server].is_touched);
        let scope = &mut self.scopes[server + 1];
        let (had_work, is_dirty) = (scope.wants, std::mem::take(&mut scope.is_dirty));
        let has_work = if is_dirty { self.update_wants(server + 1, now) } else { had_work };
        let busy = self.scopes[server + 1].is_busy();
        let was_busy = self.servers[server].entry_state.is_some_and(|at| at.busy);
        if is_due || has_work != had_work {
            self.update_account(server, has_work, now);
        } else if busy == was_busy {
            return;
        }
        let outer = self.servers[server].outer;
        if busy != was_busy {
            let scope = &mut self.scopes[outer];
            scope.busy_servers = if busy { scope.busy_servers + 1 } else { scope.busy_servers - 1 };
            self.mark_dirty(outer);
        }
        let state = &mut self.servers[server];
        let eligible = state.account.is_eligible(has_work);
        if std::mem::replace(&mut state.eligible, eligible) != eligible {
            self.mark_dirty(outer);
        }
        self.put_in_place(server, busy);
    }

    fn update_account(&mut self, server: usize, has_work: bool, now: Time) {
        let mut changes = std::mem::take(&mut self.changes);
        self.servers[server].account.update(now, has_work, |change| changes.push(change));
        for change in changes.drain(..) {
            let event = match change {
                Change::Replenished(budget) => ServerChange::Replenished(budget),
                Change::Idle => ServerChange::Idle,
                Change::Switched => self.switched(server),
            };
            self.report_charges(server, now);
            self.report(server, event);
        }
        self.changes = changes;
        let ServerState { account, outer, .. } = &mut self.servers[server];
        self.changes_at.set(server as u32, account.next_change());
        account.update_active_share(&mut self.scopes[*outer].active_share);
    }

    /// Sets the present terms of a server to its next ones.
    fn switched(&mut self, server: usize) -> ServerChange {
        let state = &mut self.servers[server];
        state.term = state.next_term;
        let Terms { rule, period, budget } = state.account.terms();
        ServerChange::Switched { rule, period, budget }
    }

    /// Finds out whether something in a scope would use the CPU. Its servers must be up to date.
    fn update_wants(&mut self, scope: usize, now: Time) -> bool {
        let scope = &mut self.scopes[scope];
        if scope.is_head_old {
            (scope.head, scope.is_head_old) = (scope.dispatcher.head(now), false);
        }
        scope.wants = scope.head.is_some() || scope.order.eligible_count() > 0;
        scope.wants
    }

    /// Gives the chosen scope the CPU. False if the chosen job is omitted: then there is more to choose.
    fn carry_out(&mut self, now: Time, decisions: &mut Vec<Decision>) -> bool {
        for scope in self.picked.drain(..) {
            self.scopes[scope].pick = Pick::default();
        }
        for (scope, pick) in &self.choice.picks {
            self.scopes[*scope].pick = *pick;
            self.picked.push(*scope);
        }
        if self.omit(now, decisions) {
            return false;
        }
        let mut within = std::mem::take(&mut self.scratch);
        if let Some(scope) = self.choice.runs {
            let at = &self.scopes[scope];
            let (has_quantum, pick) = (at.quantum.is_some(), at.pick.entry);
            self.in_scope(scope, &mut within, |dispatcher, decisions| match pick {
                Some(Entry::Task(slot)) if has_quantum => dispatcher.run_only(slot, now, decisions),
                _ => dispatcher.dispatch_in_scope(now, decisions),
            });
        }
        if self.granted != self.choice.runs
            && let Some(before) = std::mem::replace(&mut self.granted, self.choice.runs)
        {
            self.in_scope(before, decisions, |dispatcher, decisions| dispatcher.withdraw(now, decisions));
        }
        decisions.append(&mut within);
        self.scratch = within;
        true
    }

    /// Omits the chosen job if it cannot meet its deadline any more.
    fn omit(&mut self, now: Time, decisions: &mut Vec<Decision>) -> bool {
        let Some(scope) = self.choice.runs else { return false };
        let Some(Entry::Task(slot)) = self.scopes[scope].pick.entry else { return false };
        let hopeless = self.scopes[scope].dispatcher.is_hopeless(slot, now);
        if hopeless {
            self.in_scope(scope, decisions, |dispatcher, decisions| dispatcher.omit(slot, now, decisions));
        }
        hopeless
    }

    /// Records who pays from now on.
    fn record_payers(&mut self, now: Time) {
        let mut all = std::mem::take(&mut self.paying);
        all.extend(&self.choice.payers);
        all.sort_unstable();
        all.dedup();
        all.retain(|server| self.update_payment(*server, now));
        self.paying = all;
    }

    /// Reports the payments of a server whose state changes. Returns whether it pays from now on.
    fn update_payment(&mut self, server: usize, now: Time) -> bool {
        if !self.choice.payers.contains(&server) {
            self.report_charges(server, now);
            self.servers[server].paying = None;
            return false;
        }
        let runs = self.has_job(server);
        if self.servers[server].paying.is_none() {
            self.servers[server].paying = Some((now, Span::ZERO));
        } else if self.servers[server].runs != runs {
            self.report_charges(server, now);
        }
        let state = &mut self.servers[server];
        state.account.start();
        state.runs = runs;
        true
    }

    /// Whether the running job is a job of the server's component, at whatever depth.
    fn has_job(&self, server: usize) -> bool {
        let outer = |scope: &usize| self.servers.get(scope.wrapping_sub(1)).map(|server| server.outer);
        std::iter::successors(self.choice.runs, outer).any(|scope| scope == server + 1)
    }

    /// Charges the servers for the time up to the end of the run.
    pub fn finish(&mut self, now: Time) {
        self.charge(now);
        (0..self.servers.len()).for_each(|server| self.report_charges(server, now));
    }

    /// The next instant at which the caller must dispatch without an event.
    #[must_use]
    pub fn next_wakeup(&self, now: Time) -> Option<Time> {
        let ends = self.choice.payers.iter().map(|at| self.servers[*at].account.end(now, self.rate(*at)));
        let scope = |at: &usize| &self.scopes[*at];
        let undecided = |scope: &&Scope| scope.stale || scope.compares_laxity();
        let grids = self.with_quantum.iter().map(scope).filter(undecided);
        let grids = grids.filter(|scope| scope.wants || scope.pick.entry.is_some());
        let grids = grids.filter_map(|scope| scope.quantum.map(|quantum| next_multiple(now, quantum)));
        let sections = self.with_sections.iter().filter_map(|at| self.scopes[*at].dispatcher.next_section(now));
        let laxity = || self.by_laxity.iter().map(scope).any(Scope::compares_laxity);
        let comparison = self.laxity_quantum.filter(|_| laxity());
        let comparison = comparison.map(|quantum| next_multiple(now, quantum));
        let switch = self.switches.last().map(|(at, ..)| *at);
        let all = std::iter::once(self.changes_at.earliest().0)
            .chain(ends)
            .chain(grids)
            .chain(sections)
            .chain(comparison)
            .chain(switch);
        all.min().filter(|at| *at < NEVER)
    }
}

impl Scope {
    /// Whether there is a job in it, at whatever depth.
    fn is_busy(&self) -> bool {
        self.head.is_some() || self.busy_servers > 0
    }

    /// Whether something of it may be ordered by laxity.
    fn goes_by_laxity(&self) -> bool {
        self.places.iter().flatten().flatten().any(|place| place.order == Order::Laxity)
            || self.dispatcher.goes_by_laxity()
    }

    /// Whether a waiting entry may overtake the running one by its laxity.
    fn compares_laxity(&self) -> bool {
        let servers = self.places[self.plan].iter().flatten().any(|place| place.order == Order::Laxity);
        self.wants && (servers || self.dispatcher.goes_by_laxity())
    }
}

pub(crate) fn is_multiple(now: Time, quantum: Span) -> bool {
    now.as_ns().is_multiple_of(quantum.as_ns().max(1))
}

pub(crate) fn next_multiple(now: Time, quantum: Span) -> Time {
    let quantum = quantum.as_ns().max(1);
    let next = (now.as_ns() / quantum).checked_add(1).and_then(|count| count.checked_mul(quantum));
    next.map_or(Time::MAX, Time::from_ns)
}
