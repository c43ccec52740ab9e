//! Chooses the jobs that run and the servers that pay.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use takt_model::Time;

use super::VirtualClusters;
use crate::hierarchy::{EntryFilter, EntryState, is_multiple, lends_to, server_rank};

/// An entry of a scope: a job by its slot and its number, or a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Job(u32, u64),
    Server(usize),
}

/// A CPU that a scope may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CpuGrant {
    /// The node's scope to which the CPU belongs.
    root: usize,
    /// The server that gives it to its component. `None` in a scope of the node.
    from: Option<usize>,
}

/// A step of a choice, to be undone if no job runs by it.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The scope has a CPU more.
    Given(usize),
    /// One more entry of the scope has a CPU.
    Served(usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// The jobs to run: scope, slot, and the node's scope of the CPU.
    pub(super) run: Vec<(usize, u32, usize)>,
    pub(super) payers: Vec<usize>,
    /// How many jobs run in each scope, at whatever depth.
    pub(super) busy: Vec<usize>,
    /// By scope: the CPUs granted to it, and the entries that have one.
    grants: Vec<Vec<CpuGrant>>,
    served: Vec<Vec<Entry>>,
    /// The scopes with entries in `grants`.
    visited: Vec<usize>,
    /// Scopes that are to give their CPUs to their entries, outer ones first.
    to_serve: BinaryHeap<Reverse<usize>>,
    /// CPUs for which a scope has no use.
    idle: Vec<(usize, CpuGrant)>,
    lenders: Vec<usize>,
    /// The servers that have a CPU and do not lend it.
    holders: Vec<usize>,
    steps: Vec<Step>,
    /// Reused memory for one scope: its first entries, its CPUs, and the CPU of each entry.
    first: Vec<Entry>,
    left: Vec<CpuGrant>,
    given: Vec<Option<CpuGrant>>,
}

impl Choice {
    /// For scopes with so many CPUs and so many entries, of a node with so many CPUs. Nothing is allocated later.
    pub(super) fn new(scopes: &[(usize, usize)], cpus: usize) -> Self {
        let grants = scopes.iter().map(|(of_scope, _)| Vec::with_capacity(*of_scope)).collect();
        let served = scopes.iter().map(|(of_scope, entries)| Vec::with_capacity(of_scope + entries)).collect();
        let (count, entries) = (scopes.len(), scopes.iter().map(|(_, entries)| entries).sum::<usize>());
        Choice {
            run: Vec::with_capacity(cpus),
            payers: Vec::with_capacity(entries + cpus),
            busy: vec![0; count],
            grants,
            served,
            visited: Vec::with_capacity(count),
            to_serve: BinaryHeap::with_capacity(count),
            idle: Vec::with_capacity(cpus),
            lenders: Vec::with_capacity(entries + cpus),
            holders: Vec::with_capacity(entries + cpus),
            // Each CPU is given and each entry served at most once in a scope, apart from undone steps.
            steps: Vec::with_capacity(2 * (count * cpus + entries)),
            first: Vec::with_capacity(cpus),
            left: Vec::with_capacity(cpus),
            given: Vec::with_capacity(cpus),
        }
    }

    fn begin(&mut self) {
        self.run.clear();
        self.payers.clear();
        self.idle.clear();
        self.lenders.clear();
        self.steps.clear();
        for scope in self.visited.drain(..) {
            self.busy[scope] = 0;
            self.grants[scope].clear();
            self.served[scope].clear();
        }
    }

    fn give(&mut self, scope: usize, grant: CpuGrant) {
        if self.grants[scope].is_empty() {
            self.visited.push(scope);
        }
        self.grants[scope].push(grant);
        self.steps.push(Step::Given(scope));
    }

    fn serve(&mut self, scope: usize, entry: Entry) {
        self.served[scope].push(entry);
        self.steps.push(Step::Served(scope));
    }

    /// Undoes everything since [`Choice::mark`].
    fn undo(&mut self, (steps, payers): (usize, usize)) {
        self.payers.truncate(payers);
        for step in self.steps.drain(steps..).rev() {
            match step {
                Step::Given(scope) => {
                    self.grants[scope].pop();
                    if self.grants[scope].is_empty() {
                        self.visited.pop();
                    }
                }
                Step::Served(scope) => drop(self.served[scope].pop()),
            }
        }
    }

    /// The numbers of steps and payers so far, for [`Choice::undo`].
    fn mark(&self) -> (usize, usize) {
        (self.steps.len(), self.payers.len())
    }
}

impl VirtualClusters {
    /// Chooses who runs and who pays from `now` on. Servers are up to date, and scopes are in order.
    pub(super) fn choose(&mut self, now: Time) {
        let mut choice = std::mem::take(&mut self.choice);
        choice.begin();
        self.decide_on_grids(now);
        for root in 0..self.roots {
            let grant = CpuGrant { root, from: None };
            (0..self.scopes[root].own.len()).for_each(|_| choice.give(root, grant));
            choice.to_serve.push(Reverse(root));
        }
        while let Some(Reverse(scope)) = choice.to_serve.pop() {
            self.give_cpus(scope, &mut choice);
        }
        let mut idle = std::mem::take(&mut choice.idle);
        // Inner ones first, else in their order. A stable sort of the library may allocate.
        for at in 1..idle.len() {
            let depth = |at: usize| self.scopes[idle[at].0].depth;
            let place = (0..at).find(|other| depth(*other) < depth(at)).unwrap_or(at);
            idle[place..=at].rotate_right(1);
        }
        for (lender, root) in idle.drain(..).filter_map(|(_, grant)| Some((grant.from?, grant.root))) {
            self.lend_outwards(lender, root, &mut choice);
        }
        choice.idle = idle;
        for (scope, ..) in &choice.run {
            let mut scope = Some(*scope);
            while let Some(at) = scope {
                choice.busy[at] += 1;
                scope = self.around(at);
            }
        }
        self.mark_holders(&mut choice);
        self.choice = choice;
    }

    /// Marks the servers that have a CPU and do not lend it.
    fn mark_holders(&mut self, choice: &mut Choice) {
        choice.holders.drain(..).for_each(|server| self.servers[server].holds = false);
        for entry in choice.visited.iter().flat_map(|scope| &choice.served[*scope]) {
            if let Entry::Server(server) = entry {
                self.servers[*server].holds = true;
                choice.holders.push(*server);
            }
        }
        choice.lenders.iter().for_each(|server| self.servers[*server].holds = false);
    }

    /// The scope around that of a component.
    fn around(&self, scope: usize) -> Option<usize> {
        let group = &self.groups[scope.checked_sub(self.roots)?];
        group.servers.first().map(|server| self.servers[*server].outer)
    }

    /// Scopes with a quantum decide at its multiples, with or without CPUs.
    fn decide_on_grids(&mut self, now: Time) {
        for at in 0..self.with_quantum.len() {
            let scope = &mut self.scopes[self.with_quantum[at]];
            let Some(quantum) = scope.quantum else { continue };
            scope.stale = !is_multiple(now, quantum);
            if !scope.stale {
                scope.picks.clear();
                let first = scope.order.after(EntryFilter::Eligible, None).take(scope.cpus);
                scope.picks.extend(first.map(|(_, entry)| entry));
            }
        }
    }

    /// Whether an entry is still what it was when a scope decided.
    fn is_there(&self, scope: usize, entry: Entry) -> bool {
        match entry {
            Entry::Job(slot, number) => {
                let at = &self.scopes[scope];
                at.entry_states[slot as usize].is_some() && at.pool.number(slot) == number
            }
            Entry::Server(_) => true,
        }
    }

    /// Gives the CPUs of a scope to its first entries.
    fn give_cpus(&mut self, scope: usize, choice: &mut Choice) {
        let at = &self.scopes[scope];
        let count = choice.grants[scope].len().min(at.cpus);
        let (mut picks, mut grants) = (std::mem::take(&mut choice.first), std::mem::take(&mut choice.left));
        let mut given = std::mem::take(&mut choice.given);
        picks.clear();
        grants.clear();
        given.clear();
        if at.quantum.is_some() {
            picks.extend(at.picks.iter().take(count));
        } else {
            picks.extend(at.order.after(EntryFilter::Eligible, None).take(count).map(|(_, entry)| entry));
        }
        grants.extend(&choice.grants[scope]);
        self.assign_cpus(scope, &picks, &mut grants, &mut given);
        for (entry, grant) in picks.iter().copied().zip(given.iter().copied()) {
            let Some(grant) = grant else { continue };
            if !self.is_there(scope, entry) {
                // It is done since the decision.
                grants.push(grant);
                continue;
            }
            choice.serve(scope, entry);
            match entry {
                Entry::Job(slot, _) => choice.run.push((scope, slot, grant.root)),
                Entry::Server(server) if self.servers[server].account.has_budget() => {
                    (self.servers[server].root, self.servers[server].via) = (Some(grant.root), grant.from);
                    choice.payers.push(server);
                    let inner = self.scope_of(self.servers[server].group);
                    if choice.grants[inner].is_empty() {
                        choice.to_serve.push(Reverse(inner));
                    }
                    choice.give(inner, CpuGrant { root: grant.root, from: Some(server) });
                }
                Entry::Server(_) => grants.push(grant),
            }
        }
        choice.idle.extend(grants.iter().map(|grant| (scope, *grant)));
        (choice.first, choice.left, choice.given) = (picks, grants, given);
    }

    /// Gives each of these entries one of the CPUs. An entry prefers the cluster of its last CPU.
    fn assign_cpus(
        &self,
        scope: usize,
        picks: &[Entry],
        grants: &mut Vec<CpuGrant>,
        given: &mut Vec<Option<CpuGrant>>,
    ) {
        let count = picks.len().min(grants.len());
        if grants.windows(2).all(|pair| pair[0].root == pair[1].root) {
            return given.extend(grants.drain(..count).map(Some));
        }
        given.extend(picks.iter().map(|entry| {
            let root = self.last_root(scope, *entry)?;
            grants.iter().position(|grant| grant.root == root).map(|at| grants.remove(at))
        }));
        let without = given.iter().filter(|grant| grant.is_none()).count().min(grants.len());
        let mut left = grants.drain(..without);
        given.iter_mut().filter(|grant| grant.is_none()).for_each(|grant| *grant = left.next());
    }

    /// The scope of the node whose CPU an entry had last.
    fn last_root(&self, scope: usize, entry: Entry) -> Option<usize> {
        match entry {
            Entry::Job(slot, _) => {
                let cpu = self.scopes[scope].pool.last_cpu(slot)?;
                (0..self.roots).find(|root| self.scopes[*root].own.contains(&cpu))
            }
            Entry::Server(server) => self.servers[server].root,
        }
    }

    /// Lends a CPU without a job, by its server or else by the servers around it, from the inside out.
    fn lend_outwards(&self, lender: usize, root: usize, choice: &mut Choice) {
        let mut lenders = std::iter::successors(Some(lender), |lender| self.servers[*lender].via);
        let done = lenders.find(|lender| self.lend(self.servers[*lender].outer, *lender, root, choice));
        choice.lenders.extend(done);
    }

    /// Lends a CPU that a server has no use for to another entry of its scope. True if a job runs on it.
    fn lend(&self, scope: usize, lender: usize, root: usize, choice: &mut Choice) -> bool {
        let Some(which) = lends_to(self.servers[lender].account.rule()) else { return false };
        if self.scopes[scope].quantum.is_some() {
            return false;
        }
        let reclaims = which == EntryFilter::Busy;
        for (_, entry) in self.scopes[scope].order.after(which, None) {
            if choice.served[scope].contains(&entry) {
                continue;
            }
            let before = choice.mark();
            let runs = match entry {
                Entry::Job(slot, _) => {
                    choice.run.push((scope, slot, root));
                    true
                }
                Entry::Server(borrower) => {
                    if !reclaims {
                        choice.payers.push(borrower);
                    }
                    let inner = self.scope_of(self.servers[borrower].group);
                    self.accept(inner, CpuGrant { root, from: Some(borrower) }, choice)
                }
            };
            if runs {
                choice.serve(scope, entry);
                return true;
            }
            choice.undo(before);
        }
        false
    }

    /// A scope has one CPU more. True if a job runs on it.
    fn accept(&self, scope: usize, grant: CpuGrant, choice: &mut Choice) -> bool {
        let at = &self.scopes[scope];
        if choice.grants[scope].len() >= at.cpus {
            return false;
        }
        let next = if at.quantum.is_some() {
            let pick = at.picks.get(choice.grants[scope].len()).copied();
            pick.filter(|entry| self.is_there(scope, *entry))
        } else {
            let mut eligible = at.order.after(EntryFilter::Eligible, None).map(|(_, entry)| entry);
            eligible.find(|entry| !choice.served[scope].contains(entry))
        };
        choice.give(scope, grant);
        let Some(next) = next else { return false };
        choice.serve(scope, next);
        match next {
            Entry::Job(slot, _) => {
                choice.run.push((scope, slot, grant.root));
                true
            }
            Entry::Server(server) if !self.servers[server].account.has_budget() => false,
            Entry::Server(server) => {
                choice.payers.push(server);
                let inner = self.scope_of(self.servers[server].group);
                if self.accept(inner, CpuGrant { root: grant.root, from: Some(server) }, choice) {
                    return true;
                }
                let lends = self.lend(scope, server, grant.root, choice);
                choice.lenders.extend(lends.then_some(server));
                lends
            }
        }
    }

    /// Puts the job of a slot in its place, or takes it away if it is gone.
    pub(super) fn place_job(&mut self, scope: usize, slot: u32, now: Time) {
        let at = &mut self.scopes[scope];
        let entry_state = at.pool.rank(slot, now).map(|rank| EntryState { rank, eligible: true, busy: true });
        let before = std::mem::replace(&mut at.entry_states[slot as usize], entry_state);
        at.order.set(Entry::Job(slot, at.pool.number(slot)), before, entry_state);
        at.jobs = at.jobs + usize::from(entry_state.is_some()) - usize::from(before.is_some());
        if before.is_some() != entry_state.is_some() {
            self.mark_dirty(scope);
        }
    }

    pub(super) fn place_server(&mut self, server: usize) {
        let of = &self.servers[server];
        let at = &mut self.scopes[of.outer];
        let place = &at.places[at.plan][of.position][of.term];
        let slot = (at.pool.slot_count() + of.position) as u32;
        let rank = server_rank(&of.account, place, of.holds, slot);
        let entry_state = Some(EntryState { rank, eligible: of.eligible, busy: self.groups[of.group].is_busy });
        at.order.set(Entry::Server(server), of.entry_state, entry_state);
        self.servers[server].entry_state = entry_state;
    }

    /// Puts all jobs and servers of a scope in their places.
    pub(super) fn place_all(&mut self, scope: usize, now: Time) {
        for slot in 0..self.scopes[scope].pool.slot_count() as u32 {
            self.place_job(scope, slot, now);
        }
        for at in 0..self.scopes[scope].servers.len() {
            self.place_server(self.scopes[scope].servers[at]);
        }
    }
}
