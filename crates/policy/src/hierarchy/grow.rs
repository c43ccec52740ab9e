//! Components that join a running hierarchy, change their servers and leave it.
//!
//! A [`Hierarchy`] of the system with the change is built beside the running one, where time does not matter. At its
//! instant the running one adopts what is new in it. Servers, jobs and budgets of those that stay are not touched.
//! Nothing is allocated or freed then, if there is room ([`Hierarchy::make_room`]).
//!
//! Numbers of servers, components and slots only grow: a component that has left keeps its own. Its server is closed:
//! without budget, and with a period of [`Span::MAX`]. So is that of a component before it joins.

use takt_model::{ComponentId, NodeId, Span, System, Time};

use super::order::ScopeOrder;
use super::{Hierarchy, Scope};
use crate::decision::Decision;
use crate::error::PolicyError;
use crate::times::Times;

impl Hierarchy {
    /// Makes room for so many more servers and tasks. Before the first event.
    pub fn make_room(&mut self, servers: usize, tasks: usize) {
        let count = self.servers.len() + servers;
        self.scopes.reserve(servers);
        self.servers.reserve(servers);
        self.homes.reserve(tasks);
        self.changes_at = Times::never(count);
        (0..self.servers.len() as u32).for_each(|server| self.changes_at.set(server, Time::ZERO));
        for scope in &mut self.scopes {
            scope.order = ScopeOrder::new(scope.servers.len() + servers, true);
        }
        self.servers.iter_mut().for_each(|server| server.account.reserve_returns());
        self.to_update.reserve(2 * count);
        self.paying.reserve(2 * count);
        self.picked.reserve(count + 1);
        self.choice.payers.reserve(count);
        self.choice.picks.reserve(count + 1);
        // A scope of one CPU decides at most this much for each task, and for itself.
        self.scratch.reserve(2 * (self.homes.len() + tasks + count + 1));
        self.events.reserve(super::build::EVENTS_MAX * count);
    }

    /// Builds the hierarchy of `system` for [`Hierarchy::adopt`] at the instant `at`. `system` extends the System of
    /// this hierarchy: new components and tasks follow the old ones, and new changes of servers are at `at` or later.
    ///
    /// # Errors
    /// As [`Hierarchy::new`].
    pub fn with_change(&self, system: &System, node: NodeId, at: Time) -> Result<Hierarchy, PolicyError> {
        let before: Vec<ComponentId> = self.servers.iter().map(|server| server.component).collect();
        let mut next = Hierarchy::grown(system, node, &before)?;
        next.switches.retain(|(time, ..)| *time >= at);
        next.make_room(0, 0);
        Ok(next)
    }

    /// Takes what is new in `next`, of [`Hierarchy::with_change`], before the other events of the instant. `next` keeps
    /// what is old.
    pub fn adopt(&mut self, next: &mut Hierarchy, now: Time, decisions: &mut Vec<Decision>) {
        let (scopes, servers, slots) = (self.scopes.len(), self.servers.len(), self.homes.len());
        std::mem::swap(&mut self.switches, &mut next.switches);
        std::mem::swap(&mut self.varying, &mut next.varying);
        std::mem::swap(&mut self.by_laxity, &mut next.by_laxity);
        std::mem::swap(&mut self.with_sections, &mut next.with_sections);
        for (server, other) in self.servers.iter_mut().zip(&mut next.servers) {
            std::mem::swap(&mut server.terms, &mut other.terms);
        }
        self.servers.extend(next.servers.drain(servers.min(next.servers.len())..));
        self.homes.extend(next.homes.drain(slots.min(next.homes.len())..));
        for server in servers..self.servers.len() {
            self.changes_at.set(server as u32, now);
            self.to_update.push(server);
        }
        let old = scopes.min(next.scopes.len());
        self.scopes.extend(next.scopes.drain(old..));
        for (at, other) in next.scopes.iter_mut().enumerate() {
            if self.scopes[at].has_same_servers(other) {
                continue;
            }
            let scope = &mut self.scopes[at];
            std::mem::swap(&mut scope.servers, &mut other.servers);
            std::mem::swap(&mut scope.places, &mut other.places);
            scope.ranks_vary = other.ranks_vary;
            let plans = &mut other.dispatcher;
            self.in_scope(at, decisions, |dispatcher, decisions| dispatcher.take_plans(plans, now, decisions));
            self.put_in_order(at);
        }
    }

    /// Takes the job of a slot away, wherever it is.
    pub fn remove(&mut self, now: Time, slot: u32, decisions: &mut Vec<Decision>) {
        self.charge(now);
        let Some((home, local)) = self.homes.get(slot as usize).copied() else { return };
        self.in_scope(home, decisions, |dispatcher, decisions| dispatcher.remove(local, decisions));
    }

    /// The period of a server that is closed.
    pub const CLOSED: Span = Span::MAX;
}

impl Scope {
    /// Whether the same servers with as many terms stand in it.
    fn has_same_servers(&self, other: &Scope) -> bool {
        let terms = |scope: &Scope| scope.places.first().map_or(0, |plan| plan.iter().map(Vec::len).sum::<usize>());
        self.servers.len() == other.servers.len() && terms(self) == terms(other)
    }
}
