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

/// A CPU that a scope may use. It belongs to a scope of the node. A server gives it to its component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Token {
    root: usize,
    from: Option<usize>,
}

/// A step of a choice, to be taken back if it leads to nothing.
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
    /// By scope: its CPUs, and the entries that have one.
    tokens: Vec<Vec<Token>>,
    served: Vec<Vec<Entry>>,
    /// The scopes that have had a CPU since the beginning.
    visited: Vec<usize>,
    /// Scopes with CPUs to give out, outer ones first.
    to_give_out: BinaryHeap<Reverse<usize>>,
    idle: Vec<(usize, Token)>,
    lenders: Vec<usize>,
    /// The servers that have a CPU and do not lend it.
    holders: Vec<usize>,
    steps: Vec<Step>,
    /// Scratch of a scope: its first entries, its CPUs, and the CPU of each entry.
    first: Vec<Entry>,
    left: Vec<Token>,
    given: Vec<Option<Token>>,
}

impl Choice {
    /// For scopes with so many CPUs and so many entries, of a node with so many CPUs. Nothing is allocated later.
    pub(super) fn new(scopes: &[(usize, usize)], cpus: usize) -> Self {
        let tokens = scopes.iter().map(|(of_scope, _)| Vec::with_capacity(*of_scope)).collect();
        let served = scopes.iter().map(|(of_scope, entries)| Vec::with_capacity(of_scope + entries)).collect();
        let (count, entries) = (scopes.len(), scopes.iter().map(|(_, entries)| entries).sum::<usize>());
        Choice {
            run: Vec::with_capacity(cpus),
            payers: Vec::with_capacity(entries + cpus),
            busy: vec![0; count],
            tokens,
            served,
            visited: Vec::with_capacity(count),
            to_give_out: BinaryHeap::with_capacity(count),
            idle: Vec::with_capacity(cpus),
            lenders: Vec::with_capacity(entries + cpus),
            holders: Vec::with_capacity(entries + cpus),
            // Each CPU is given and each entry served once in a scope, but for what is taken back.
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
            self.tokens[scope].clear();
            self.served[scope].clear();
        }
    }

    fn give(&mut self, scope: usize, token: Token) {
        if self.tokens[scope].is_empty() {
            self.visited.push(scope);
        }
        self.tokens[scope].push(token);
        self.steps.push(Step::Given(scope));
    }

    fn serve(&mut self, scope: usize, entry: Entry) {
        self.served[scope].push(entry);
        self.steps.push(Step::Served(scope));
    }

    /// Takes back what has been done since there were so many steps and payers.
    fn undo(&mut self, (steps, payers): (usize, usize)) {
        self.payers.truncate(payers);
        for step in self.steps.drain(steps..).rev() {
            match step {
                Step::Given(scope) => {
                    self.tokens[scope].pop();
                    if self.tokens[scope].is_empty() {
                        self.visited.pop();
                    }
                }
                Step::Served(scope) => drop(self.served[scope].pop()),
            }
        }
    }

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
            let token = Token { root, from: None };
            (0..self.scopes[root].own.len()).for_each(|_| choice.give(root, token));
            choice.to_give_out.push(Reverse(root));
        }
        while let Some(Reverse(scope)) = choice.to_give_out.pop() {
            self.give_out(scope, &mut choice);
        }
        let mut idle = std::mem::take(&mut choice.idle);
        // Inner ones first, else in their order. A stable sort of the library may allocate.
        for at in 1..idle.len() {
            let depth = |at: usize| self.scopes[idle[at].0].depth;
            let place = (0..at).find(|other| depth(*other) < depth(at)).unwrap_or(at);
            idle[place..=at].rotate_right(1);
        }
        for (lender, root) in idle.drain(..).filter_map(|(_, token)| Some((token.from?, token.root))) {
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
        self.note_holders(&mut choice);
        self.choice = choice;
    }

    /// Notes which servers have the CPU and do not lend it.
    fn note_holders(&mut self, choice: &mut Choice) {
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
                at.standings[slot as usize].is_some() && at.pool.number(slot) == number
            }
            Entry::Server(_) => true,
        }
    }

    /// Gives the CPUs of a scope to its first entries.
    fn give_out(&mut self, scope: usize, choice: &mut Choice) {
        let at = &self.scopes[scope];
        let count = choice.tokens[scope].len().min(at.cpus);
        let (mut picks, mut tokens) = (std::mem::take(&mut choice.first), std::mem::take(&mut choice.left));
        let mut given = std::mem::take(&mut choice.given);
        picks.clear();
        tokens.clear();
        given.clear();
        if at.quantum.is_some() {
            picks.extend(at.picks.iter().take(count));
        } else {
            picks.extend(at.order.after(EntryFilter::Eligible, None).take(count).map(|(_, entry)| entry));
        }
        tokens.extend(&choice.tokens[scope]);
        self.assign_cpus(scope, &picks, &mut tokens, &mut given);
        for (entry, token) in picks.iter().copied().zip(given.iter().copied()) {
            let Some(token) = token else { continue };
            if !self.is_there(scope, entry) {
                // It is done since the decision.
                tokens.push(token);
                continue;
            }
            choice.serve(scope, entry);
            match entry {
                Entry::Job(slot, _) => choice.run.push((scope, slot, token.root)),
                Entry::Server(server) if self.servers[server].account.has_budget() => {
                    (self.servers[server].root, self.servers[server].via) = (Some(token.root), token.from);
                    choice.payers.push(server);
                    let inner = self.scope_of(self.servers[server].group);
                    if choice.tokens[inner].is_empty() {
                        choice.to_give_out.push(Reverse(inner));
                    }
                    choice.give(inner, Token { root: token.root, from: Some(server) });
                }
                Entry::Server(_) => tokens.push(token),
            }
        }
        choice.idle.extend(tokens.iter().map(|token| (scope, *token)));
        (choice.first, choice.left, choice.given) = (picks, tokens, given);
    }

    /// Gives each of these entries one of the CPUs. An entry prefers the cluster of its last CPU.
    fn assign_cpus(&self, scope: usize, picks: &[Entry], tokens: &mut Vec<Token>, given: &mut Vec<Option<Token>>) {
        let count = picks.len().min(tokens.len());
        if tokens.windows(2).all(|pair| pair[0].root == pair[1].root) {
            return given.extend(tokens.drain(..count).map(Some));
        }
        given.extend(picks.iter().map(|entry| {
            let root = self.last_root(scope, *entry)?;
            tokens.iter().position(|token| token.root == root).map(|at| tokens.remove(at))
        }));
        let without = given.iter().filter(|token| token.is_none()).count().min(tokens.len());
        let mut left = tokens.drain(..without);
        given.iter_mut().filter(|token| token.is_none()).for_each(|token| *token = left.next());
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
                    self.accept(inner, Token { root, from: Some(borrower) }, choice)
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
    fn accept(&self, scope: usize, token: Token, choice: &mut Choice) -> bool {
        let at = &self.scopes[scope];
        if choice.tokens[scope].len() >= at.cpus {
            return false;
        }
        let next = if at.quantum.is_some() {
            let pick = at.picks.get(choice.tokens[scope].len()).copied();
            pick.filter(|entry| self.is_there(scope, *entry))
        } else {
            let mut eligible = at.order.after(EntryFilter::Eligible, None).map(|(_, entry)| entry);
            eligible.find(|entry| !choice.served[scope].contains(entry))
        };
        choice.give(scope, token);
        let Some(next) = next else { return false };
        choice.serve(scope, next);
        match next {
            Entry::Job(slot, _) => {
                choice.run.push((scope, slot, token.root));
                true
            }
            Entry::Server(server) if !self.servers[server].account.has_budget() => false,
            Entry::Server(server) => {
                choice.payers.push(server);
                let inner = self.scope_of(self.servers[server].group);
                if self.accept(inner, Token { root: token.root, from: Some(server) }, choice) {
                    return true;
                }
                let lends = self.lend(scope, server, token.root, choice);
                choice.lenders.extend(lends.then_some(server));
                lends
            }
        }
    }

    /// Puts the job of a slot in its place, or takes it away if it is gone.
    pub(super) fn place_job(&mut self, scope: usize, slot: u32, now: Time) {
        let at = &mut self.scopes[scope];
        let standing = at.pool.rank(slot, now).map(|rank| EntryState { rank, eligible: true, busy: true });
        let before = std::mem::replace(&mut at.standings[slot as usize], standing);
        at.order.set(Entry::Job(slot, at.pool.number(slot)), before, standing);
        at.jobs = at.jobs + usize::from(standing.is_some()) - usize::from(before.is_some());
        if before.is_some() != standing.is_some() {
            self.mark_dirty(scope);
        }
    }

    pub(super) fn place_server(&mut self, server: usize) {
        let of = &self.servers[server];
        let at = &mut self.scopes[of.outer];
        let place = &at.places[at.plan][of.at][of.term];
        let slot = (at.pool.slot_count() + of.at) as u32;
        let rank = server_rank(&of.account, place, of.holds, slot);
        let standing = Some(EntryState { rank, eligible: of.eligible, busy: self.groups[of.group].is_busy });
        at.order.set(Entry::Server(server), of.standing, standing);
        self.servers[server].standing = standing;
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
