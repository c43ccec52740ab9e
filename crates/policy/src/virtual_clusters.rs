//! Components under servers on several CPUs.
//!
//! This is virtual clustering [I. Shin, A. Easwaran, I. Lee, ECRTS 2008]. A component with `cpus` = m has m
//! servers of one period. The servers share its budget evenly, in whole quanta if all of it is whole. The first
//! servers get a quantum more. If a component has work for k CPUs, its first k servers with budget have work.
//!
//! Each component is a *scope*. Each set of CPUs that the node's tasks share is a scope too: all CPUs of the node,
//! or a cluster. A scope with k CPUs gives them to the first k of its ready tasks and eligible servers. Such a
//! server pays, and its component has one CPU more. If the component has no use for that CPU, the server's rule
//! decides:
//!
//! - `wcps` lends the CPU to the next eligible entry of its scope with a job to run. Both pay.
//! - `crps` lends the CPU to the first entry of its scope with a job to run, with or without budget. The borrower
//!   does not pay.
//! - Any other rule leaves the CPU idle.
//!
//! If no entry of the scope has a use for the CPU, the server around the scope decides next. CPUs of inner
//! components are lent first. Under these rules a budget ends no later than under `ptps`. The proof of
//! [CSA Lemma 2] holds for the first k servers as it does for the first one.
//!
//! `grub` reclaims time in scopes of one CPU. In other scopes it is as `cbs`, and the file refuses it there.
//!
//! Ties go to the earlier arrival, then to tasks before servers, then to the order of the file. A job keeps
//! its CPU as long as it is among the chosen ones. Any other chosen job gets its last CPU if that is free, else
//! the first free CPU.
//!
//! If servers of a scope have a `quantum`, the scope decides only at multiples of the longest one. A job or server
//! that is done earlier leaves its CPU idle until then. Such a scope lends nothing.

use std::collections::BinaryHeap;

use takt_model::plan::Order;
use takt_model::{ComponentId, ServerRule, Span, Time};

use crate::decision::{Decision, Event, rename};
use crate::hierarchy::{EntryState, Place, ScopeOrder, ServerChange, ServerEvent, next_multiple};
use crate::pool::Pool;
use crate::server::{Change, Server, Terms};
use crate::times::{NEVER, Times};

mod build;
mod choose;

use choose::{Choice, Entry};

#[derive(Clone, Debug)]
struct Scope {
    pool: Pool,
    /// The slots of its tasks on the node.
    slots: Vec<u32>,
    servers: Vec<usize>,
    /// By plan, by position in `servers`, and by the server's terms.
    places: Vec<Vec<Vec<Place>>>,
    plan: usize,
    /// The node's CPUs that belong to it. The scope of a component has none.
    own: Vec<u32>,
    /// The most CPUs that it may have at once.
    cpus: usize,
    /// How many components are around it.
    depth: usize,
    quantum: Option<Span>,
    /// The decision of a scope with a quantum: the entries that get a CPU, the most important first.
    picks: Vec<Entry>,
    /// Something may have happened since then.
    stale: bool,
    /// Its jobs and servers by rank.
    order: ScopeOrder<Entry>,
    /// The entry of each slot's job in `order`.
    entry_states: Vec<Option<EntryState>>,
    ranks_vary: bool,
    /// How many jobs its tasks have, and how many of its servers have a job in them.
    jobs: usize,
    busy_servers: usize,
    /// It may have work now or have it no more.
    is_dirty: bool,
    /// Bandwidth of its tasks and active servers, in 2^-32.
    active_share: u128,
}

/// One of the servers of a component.
#[derive(Clone, Debug)]
struct ClusterServer {
    group: usize,
    account: Server,
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
    /// The node's scope of its last CPU.
    root: Option<usize>,
    /// The server through which it got that CPU.
    via: Option<usize>,
    /// It has a CPU and does not lend it.
    holds: bool,
}

/// A component and what its servers pay together.
#[derive(Clone, Debug)]
struct Group {
    id: ComponentId,
    servers: Vec<usize>,
    /// How many CPUs it could use, and whether there is a job in it.
    demand: usize,
    is_busy: bool,
    /// Something has happened to its servers since their last update.
    is_touched: bool,
    /// How many of its servers are to pay.
    payers: usize,
    /// How many of its servers pay, whether a job of it runs, since when, and the amount so far.
    paying: Option<(usize, bool, Time, Span)>,
}

/// Decides for one node of several CPUs with components. The protocol is that of [`crate::Dispatcher`].
#[derive(Clone, Debug)]
pub(crate) struct VirtualClusters {
    /// The node's own first, one for each cluster, then that of each component. Outer ones stand before inner ones.
    scopes: Vec<Scope>,
    /// How many are the node's own.
    roots: usize,
    /// Scope and slot in it, by slot of the node.
    homes: Vec<(usize, u32)>,
    servers: Vec<ClusterServer>,
    groups: Vec<Group>,
    /// The job on each CPU: scope and slot in it.
    cpus: Vec<Option<(usize, u32)>>,
    choice: Choice,
    /// When each server changes by itself.
    changes_at: Times,
    /// Components whose servers may have changed. Inner ones come first, for they stand behind outer ones.
    to_update: BinaryHeap<usize>,
    /// The components that have begun to pay.
    paying: Vec<usize>,
    /// Lists of scopes: with ranks that vary, with a quantum, with an order by laxity, with sections.
    varying: Vec<usize>,
    with_quantum: Vec<usize>,
    by_laxity: Vec<usize>,
    with_sections: Vec<usize>,
    paid_until: Time,
    events: Vec<ServerEvent>,
    laxity_quantum: Option<Span>,
    /// Changes to come, the earliest last: a component, and the index of its new terms.
    switches: Vec<(Time, usize, usize)>,
}

impl VirtualClusters {
    /// See [`crate::Dispatcher::wants_deadlines`].
    pub(crate) fn wants_deadlines(&self) -> bool {
        self.scopes.iter().any(|scope| scope.pool.wants_deadlines())
    }

    /// Whether a late rule changes anything when the deadline of a slot's job passes.
    pub(crate) fn acts_on_deadline(&self, slot: u32) -> bool {
        let home = self.homes.get(slot as usize);
        home.is_some_and(|(scope, slot)| self.scopes[*scope].pool.acts_on_deadline(*slot))
    }

    /// See [`crate::Dispatcher::decisions_max`].
    pub(crate) fn decisions_max(&self) -> usize {
        2 * self.homes.len() + 2 * self.cpus.len()
    }

    /// Takes the changes of servers since the last call, in order.
    pub(crate) fn take_events(&mut self) -> impl Iterator<Item = ServerEvent> + '_ {
        self.events.drain(..)
    }

    /// See [`crate::Dispatcher::on_event`]; [`Event::Mode`] switches the node's own strategy.
    pub(crate) fn on_event(&mut self, now: Time, event: &Event, decisions: &mut Vec<Decision>) {
        self.charge(now);
        let slot = match *event {
            Event::Ready(job) => job.slot,
            Event::Complete { slot } | Event::Deadline { slot } => slot,
            Event::Mode { plan } => return (0..self.roots).for_each(|root| self.adopt(root, plan, now, decisions)),
        };
        let Some((home, local)) = self.homes.get(slot as usize).copied() else {
            debug_assert!(false, "no slot {slot}");
            return;
        };
        let from = decisions.len();
        let scope = &mut self.scopes[home];
        let left = match *event {
            Event::Ready(job) => {
                scope.pool.ready(now, crate::Job { slot: local, ..job }, decisions);
                None
            }
            Event::Complete { .. } => scope.pool.complete(local),
            _ => scope.pool.deadline(local, decisions),
        };
        if let Some(cpu) = left {
            self.cpus[cpu as usize] = None;
        }
        self.place_job(home, local, now);
        rename(&mut decisions[from..], &self.scopes[home].slots);
    }

    /// Puts another plan of one of the node's scopes in force.
    fn adopt(&mut self, root: usize, plan: usize, now: Time, decisions: &mut Vec<Decision>) {
        let from = decisions.len();
        let scope = &mut self.scopes[root];
        if !scope.pool.switch(plan, now, decisions) {
            return;
        }
        scope.plan = plan;
        for decision in &decisions[from..] {
            if let Decision::Drop { cpu: Some(cpu), .. } = *decision {
                self.cpus[cpu as usize] = None;
            }
        }
        self.place_all(root, now);
        rename(&mut decisions[from..], &self.scopes[root].slots);
    }

    /// The scope of a component.
    fn scope_of(&self, group: usize) -> usize {
        self.roots + group
    }

    /// Charges the payers for the time up to `now`.
    fn charge(&mut self, now: Time) {
        let time = now.saturating_since(self.paid_until);
        self.paid_until = now;
        if time.is_zero() {
            return;
        }
        for at in 0..self.choice.payers.len() {
            let server = self.choice.payers[at];
            let rate = self.rate(server);
            let ClusterServer { account, group, .. } = &mut self.servers[server];
            let paid = account.charge(time, rate);
            let group = *group;
            // A sporadic server notes what it has used.
            let changed = account.rule() == ServerRule::Sporadic || !account.has_budget();
            if let Some((.., amount)) = &mut self.groups[group].paying {
                *amount += paid;
            }
            if changed {
                self.touch(group);
            }
        }
        for at in 0..self.choice.payers.len() {
            let group = self.servers[self.choice.payers[at]].group;
            let is_empty = |server: &usize| !self.servers[*server].account.has_budget();
            if self.groups[group].paying.is_some() && self.groups[group].servers.iter().all(is_empty) {
                self.report_charges(group, now);
                self.groups[group].paying = None;
                self.report(group, ServerChange::Exhausted);
            }
        }
    }

    /// The rate at which a server's budget is used while it pays.
    fn rate(&self, server: usize) -> u64 {
        let at = &self.servers[server];
        let scope = &self.scopes[at.outer];
        // On several CPUs nothing is reclaimed, as if all bandwidth were active.
        at.account.rate(if scope.cpus > 1 { u128::MAX } else { scope.active_share })
    }

    fn report(&mut self, group: usize, change: ServerChange) {
        self.events.push(ServerEvent { component: self.groups[group].id, change });
    }

    /// Reports the payments of a component's servers.
    fn report_charges(&mut self, group: usize, now: Time) {
        let Some((count, runs, since, amount)) = self.groups[group].paying else { return };
        self.groups[group].paying = Some((count, runs, now, Span::ZERO));
        if since < now {
            self.report(group, ServerChange::Paid { since, amount, idle: !runs });
        }
    }

    /// Decides who runs from `now` on, after all events of the instant.
    pub(crate) fn dispatch(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        self.charge(now);
        loop {
            self.update(now);
            self.choose(now);
            if !self.cancel(now, decisions) {
                break;
            }
        }
        self.carry_out(now, decisions);
        self.record_payers(now);
    }

    /// Omits chosen jobs that cannot meet their deadlines any more. True if there are any: then there is more to
    /// choose.
    fn cancel(&mut self, now: Time, decisions: &mut Vec<Decision>) -> bool {
        let from = decisions.len();
        for at in 0..self.choice.run.len() {
            let (scope, slot, _) = self.choice.run[at];
            let first = decisions.len();
            if self.scopes[scope].pool.cancel_if_hopeless(slot, now, decisions) {
                self.place_job(scope, slot, now);
                rename(&mut decisions[first..], &self.scopes[scope].slots);
            }
        }
        decisions.len() > from
    }

    /// A scope may have work now or have it no more.
    fn mark_dirty(&mut self, scope: usize) {
        if !std::mem::replace(&mut self.scopes[scope].is_dirty, true)
            && let Some(group) = scope.checked_sub(self.roots)
        {
            self.to_update.push(group);
        }
    }

    /// Something has happened to a server of a component.
    fn touch(&mut self, group: usize) {
        if !std::mem::replace(&mut self.groups[group].is_touched, true) {
            self.to_update.push(group);
        }
    }

    /// Updates the servers to which something has happened, inner ones first.
    fn update(&mut self, now: Time) {
        while let Some((_, group, term)) = self.switches.pop_if(|(at, ..)| *at <= now) {
            for at in 0..self.groups[group].servers.len() {
                let server = &mut self.servers[self.groups[group].servers[at]];
                server.account.switch(server.terms[term]);
                server.next_term = term;
            }
            self.touch(group);
        }
        while let (at, server) = self.changes_at.earliest()
            && at <= now
        {
            self.changes_at.set(server, Time::MAX);
            self.touch(self.servers[server as usize].group);
        }
        while let Some(group) = self.to_update.pop() {
            self.update_group(group, now);
        }
        self.scopes[..self.roots].iter_mut().for_each(|root| root.is_dirty = false);
        for at in 0..self.varying.len() {
            self.place_all(self.varying[at], now);
        }
    }

    fn update_group(&mut self, group: usize, now: Time) {
        let at = self.scope_of(group);
        let scope = &mut self.scopes[at];
        scope.is_dirty = false;
        let demand = scope.order.eligible_count().min(scope.cpus);
        let is_busy = scope.jobs + scope.busy_servers > 0;
        let of = &mut self.groups[group];
        let is_touched = std::mem::take(&mut of.is_touched);
        let had_work = std::mem::replace(&mut of.demand, demand);
        let turned = std::mem::replace(&mut of.is_busy, is_busy) != is_busy;
        if !is_touched && had_work == demand && !turned {
            return;
        }
        let (mut replenished, mut switched, mut with_budget) = (false, false, 0);
        for at in 0..self.groups[group].servers.len() {
            let server = self.groups[group].servers[at];
            let changes = self.update_server(server, demand > with_budget, now);
            replenished |= changes.0;
            switched |= changes.1;
            with_budget += usize::from(self.servers[server].account.has_budget());
            let outer = self.servers[server].outer;
            if turned {
                let busy = &mut self.scopes[outer].busy_servers;
                *busy = if is_busy { *busy + 1 } else { *busy - 1 };
                self.mark_dirty(outer);
            }
            self.place_server(server);
        }
        if switched {
            self.report_switch(group, now);
        }
        if replenished {
            let left = self.groups[group].servers.iter().map(|server| self.servers[*server].account.left());
            let left = left.fold(Span::ZERO, Span::saturating_add);
            self.report_charges(group, now);
            self.report(group, ServerChange::Replenished(left));
        }
        if had_work > 0 && demand == 0 {
            self.report_charges(group, now);
            self.report(group, ServerChange::Idle);
        }
    }

    /// Brings a server to `now`. Returns whether it has a new budget, and whether it has new terms.
    fn update_server(&mut self, server: usize, has_work: bool, now: Time) -> (bool, bool) {
        let ClusterServer { account, term, next_term, eligible, outer, .. } = &mut self.servers[server];
        let (mut replenished, mut switched) = (false, false);
        account.update(now, has_work, |change| {
            replenished |= matches!(change, Change::Replenished(_));
            switched |= change == Change::Switched;
        });
        if switched {
            *term = *next_term;
        }
        self.changes_at.set(server as u32, account.next_change());
        account.update_active_share(&mut self.scopes[*outer].active_share);
        let outer = *outer;
        let is_eligible = account.is_eligible(has_work);
        if std::mem::replace(eligible, is_eligible) != is_eligible {
            self.mark_dirty(outer);
        }
        (replenished, switched)
    }

    /// Reports new terms when the last server of a component has them.
    fn report_switch(&mut self, group: usize, now: Time) {
        let servers = &self.groups[group].servers;
        let term = servers.first().map_or(0, |server| self.servers[*server].term);
        if servers.iter().any(|server| self.servers[*server].term != term) {
            return;
        }
        let budgets = servers.iter().map(|server| self.servers[*server].terms[term].budget);
        let budget = budgets.fold(Span::ZERO, Span::saturating_add);
        let Some(Terms { rule, period, .. }) = servers.first().map(|server| self.servers[*server].terms[term]) else {
            return;
        };
        self.report_charges(group, now);
        self.report(group, ServerChange::Switched { rule, period, budget });
    }

    /// Gives the chosen jobs their CPUs.
    fn carry_out(&mut self, now: Time, decisions: &mut Vec<Decision>) {
        let run = std::mem::take(&mut self.choice.run);
        for cpu in 0..self.cpus.len() {
            let Some((scope, slot)) = self.cpus[cpu] else { continue };
            let stays = run.iter().find(|job| (job.0, job.1) == (scope, slot));
            if !stays.is_some_and(|(.., root)| self.scopes[*root].own.contains(&(cpu as u32))) {
                self.cpus[cpu] = None;
                self.scopes[scope].pool.stop(slot, now);
                decisions.push(Decision::Preempt { slot: self.scopes[scope].slots[slot as usize], cpu: cpu as u32 });
            }
        }
        for (scope, slot, root) in &run {
            let pool = &self.scopes[*scope].pool;
            if pool.cpu(*slot).is_some() {
                continue;
            }
            let own = &self.scopes[*root].own;
            let free = |cpu: &u32| own.contains(cpu) && self.cpus[*cpu as usize].is_none();
            let last = pool.last_cpu(*slot).filter(free);
            let Some(cpu) = last.or_else(|| own.iter().copied().find(free)) else {
                debug_assert!(false, "a chosen job has no CPU");
                continue;
            };
            let (resumed, from) = self.scopes[*scope].pool.start(*slot, cpu, now);
            self.cpus[cpu as usize] = Some((*scope, *slot));
            let slot = self.scopes[*scope].slots[*slot as usize];
            decisions.push(Decision::Run { slot, cpu, resumed, from });
        }
        self.choice.run = run;
    }

    /// Records who pays from now on.
    fn record_payers(&mut self, now: Time) {
        let mut all = std::mem::take(&mut self.paying);
        for at in 0..self.choice.payers.len() {
            let server = &mut self.servers[self.choice.payers[at]];
            server.account.start();
            self.groups[server.group].payers += 1;
            all.push(server.group);
        }
        all.sort_unstable();
        all.dedup();
        all.retain(|group| {
            let count = std::mem::take(&mut self.groups[*group].payers);
            let busy = self.choice.busy[self.scope_of(*group)];
            let next = (count > 0).then_some((count, busy > 0));
            let before = self.groups[*group].paying.map(|(count, runs, ..)| (count, runs));
            if before != next {
                self.report_charges(*group, now);
                self.groups[*group].paying = next.map(|(count, runs)| (count, runs, now, Span::ZERO));
            }
            next.is_some()
        });
        self.paying = all;
    }

    /// Charges the servers for the time up to the end of the run.
    pub(crate) fn finish(&mut self, now: Time) {
        self.charge(now);
        (0..self.groups.len()).for_each(|group| self.report_charges(group, now));
    }

    /// The next instant at which the caller must dispatch without an event.
    pub(crate) fn next_wakeup(&self, now: Time) -> Option<Time> {
        let ends = self.choice.payers.iter().map(|at| self.servers[*at].account.end(now, self.rate(*at)));
        let scope = |at: &usize| &self.scopes[*at];
        let grids = self.with_quantum.iter().map(scope).filter(|scope| scope.stale || scope.compares_laxity());
        let grids = grids.filter(|scope| scope.order.eligible_count() > 0 || !scope.picks.is_empty());
        let grids = grids.filter_map(|scope| Some(next_multiple(now, scope.quantum?)));
        let sections = self.with_sections.iter().filter_map(|at| self.scopes[*at].pool.next_section(now));
        let laxity = || self.by_laxity.iter().map(scope).any(Scope::compares_laxity);
        let laxity = self.laxity_quantum.filter(|_| laxity());
        let laxity = laxity.map(|quantum| next_multiple(now, quantum));
        let switch = self.switches.last().map(|(at, ..)| *at);
        let changes = std::iter::once(self.changes_at.earliest().0);
        let all = changes.chain(ends).chain(grids).chain(sections).chain(laxity).chain(switch);
        all.min().filter(|at| *at < NEVER)
    }
}

impl Scope {
    /// How many jobs and servers may compete in it.
    fn entry_count(&self) -> usize {
        self.pool.slot_count() + self.servers.len()
    }

    /// Whether something of it may be ordered by laxity.
    fn goes_by_laxity(&self) -> bool {
        self.places.iter().flatten().flatten().any(|place| place.order == Order::Laxity) || self.pool.may_go_by_laxity()
    }

    /// Whether a waiting entry may overtake a running one by its laxity.
    fn compares_laxity(&self) -> bool {
        let servers = || self.places[self.plan].iter().flatten().any(|place| place.order == Order::Laxity);
        self.order.eligible_count() > 0 && (self.pool.goes_by_laxity() || servers())
    }
}
