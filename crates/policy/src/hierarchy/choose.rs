//! Chooses for a scope with the CPU: the job to run and the servers to charge.

use takt_model::plan::Order;
use takt_model::{ServerRule, Time};

use super::order::{EntryFilter, EntryState};
use super::{Choice, Entry, Hierarchy, Pick, Place, is_multiple};
use crate::rank::{Phase, Rank, ordered};
use crate::server::Server;

impl Hierarchy {
    /// Scopes with a quantum decide at its multiples, with or without the CPU.
    pub(super) fn decide_on_grids(&mut self, now: Time) {
        for at in (0..self.with_quantum.len()).rev() {
            let scope = self.with_quantum[at];
            let Some(quantum) = self.scopes[scope].quantum else { continue };
            self.scopes[scope].stale = !is_multiple(now, quantum);
            if !self.scopes[scope].stale {
                let mut choice = std::mem::take(&mut self.choice);
                choice.clear();
                let mut pick = Pick::default();
                self.choose_anew(scope, now, &mut choice, &mut pick);
                (self.choice, self.scopes[scope].pick) = (choice, pick);
            }
        }
    }

    /// Chooses for a scope with the CPU. True if a job runs.
    pub(super) fn choose(&self, scope: usize, now: Time, choice: &mut Choice) -> bool {
        if self.scopes[scope].quantum.is_some() {
            return self.apply_pick(scope, now, choice);
        }
        let place = choice.picks.len();
        choice.picks.push((scope, Pick::default()));
        let mut pick = Pick::default();
        let runs = self.choose_anew(scope, now, choice, &mut pick);
        choice.picks[place].1 = pick;
        runs
    }

    fn choose_anew(&self, scope: usize, now: Time, choice: &mut Choice, pick: &mut Pick) -> bool {
        let Some((rank, first)) = self.next_entry(scope, None, EntryFilter::Eligible) else { return false };
        let Entry::Server(server) = first else {
            (pick.entry, pick.job, choice.runs) = (Some(first), self.job_of(scope, first), Some(scope));
            return true;
        };
        choice.payers.push(server);
        (pick.entry, pick.pays) = (Some(first), true);
        if self.choose(server + 1, now, choice) {
            return true;
        }
        let Some(which) = lends_to(self.servers[server].account.rule()) else { return false };
        let reclaims = which == EntryFilter::Busy;
        let mut after = if reclaims { None } else { Some(rank) };
        while let Some((rank, entry)) = self.next_entry(scope, after, which) {
            after = Some(rank);
            let (payers, picks) = (choice.payers.len(), choice.picks.len());
            let runs = match entry {
                Entry::Task(_) => {
                    choice.runs = Some(scope);
                    true
                }
                Entry::Server(borrower) if borrower == server => false,
                Entry::Server(borrower) => {
                    if !reclaims {
                        choice.payers.push(borrower);
                    }
                    self.choose(borrower + 1, now, choice)
                }
            };
            if runs {
                let job = self.job_of(scope, entry);
                *pick = Pick { lender: Some(server), entry: Some(entry), job, pays: !reclaims };
                return true;
            }
            choice.payers.truncate(payers);
            choice.picks.truncate(picks);
        }
        false
    }

    /// The number of jobs of a task so far.
    fn job_of(&self, scope: usize, entry: Entry) -> u64 {
        match entry {
            Entry::Task(slot) => self.scopes[scope].jobs[slot as usize],
            Entry::Server(_) => 0,
        }
    }

    /// Applies the last decision of a scope with a quantum. True if a job runs.
    fn apply_pick(&self, scope: usize, now: Time, choice: &mut Choice) -> bool {
        let at = &self.scopes[scope];
        let has_budget = |server: usize| self.servers[server].account.has_budget();
        if let Some(lender) = at.pick.lender {
            if !has_budget(lender) {
                return false;
            }
            choice.payers.push(lender);
            let (payers, picks) = (choice.payers.len(), choice.picks.len());
            // Jobs that have come to the lender since then wait for the next decision.
            if self.choose(lender + 1, now, choice) {
                choice.payers.truncate(payers);
                choice.picks.truncate(picks);
                choice.runs = None;
            }
        }
        match at.pick.entry {
            None => false,
            Some(entry @ Entry::Task(slot)) => {
                let runs = at.dispatcher.holds_job(slot) && at.pick.job == self.job_of(scope, entry);
                if runs {
                    choice.runs = Some(scope);
                }
                runs
            }
            Some(Entry::Server(server)) => {
                if at.pick.pays {
                    if !has_budget(server) {
                        return false;
                    }
                    choice.payers.push(server);
                }
                self.choose(server + 1, now, choice)
            }
        }
    }

    /// The most important entry of a scope behind `after`: a task, or one of these servers.
    fn next_entry(&self, scope: usize, after: Option<Rank>, which: EntryFilter) -> Option<(Rank, Entry)> {
        let at = &self.scopes[scope];
        let task = at.head.filter(|rank| after.is_none_or(|after| after < *rank));
        let task = task.map(|rank| (rank, Entry::Task(rank.slot())));
        let server = at.order.after(which, after).next().map(|(rank, server)| (rank, Entry::Server(server)));
        task.into_iter().chain(server).min_by_key(|(rank, _)| *rank)
    }

    /// Puts a server in its place in the order of its scope.
    pub(super) fn put_in_place(&mut self, server: usize, busy: bool) {
        let state = &self.servers[server];
        let (outer, eligible) = (state.outer, state.eligible);
        let at = &self.scopes[outer];
        let place = &at.places[at.plan][state.position][state.term];
        let rank = self.rank(outer, server, place, (at.slots.len() + state.position) as u32);
        let now = Some(EntryState { rank, eligible, busy });
        let before = std::mem::replace(&mut self.servers[server].entry_state, now);
        self.scopes[outer].order.set(server, before, now);
    }

    /// Puts all servers of a scope in their places.
    pub(super) fn put_in_order(&mut self, scope: usize) {
        for at in 0..self.scopes[scope].servers.len() {
            let server = self.scopes[scope].servers[at];
            let busy = self.servers[server].entry_state.is_some_and(|at| at.busy);
            self.put_in_place(server, busy);
        }
    }

    fn rank(&self, scope: usize, server: usize, place: &Place, slot: u32) -> Rank {
        let runs = self.scopes[scope].pick.entry == Some(Entry::Server(server));
        server_rank(&self.servers[server].account, place, runs, slot)
    }
}

/// The entries to which a server of this rule may lend the CPU. Under `crps` the borrower does not pay.
pub(crate) fn lends_to(rule: ServerRule) -> Option<EntryFilter> {
    match rule {
        ServerRule::Wcps => Some(EntryFilter::Ready),
        ServerRule::Crps => Some(EntryFilter::Busy),
        _ => None,
    }
}

/// The rank of a server at its place, whether it has the CPU or not.
pub(crate) fn server_rank(account: &Server, place: &Place, runs: bool, slot: u32) -> Rank {
    let phase = match () {
        () if place.preemptive || !account.has_started() => Phase::Fresh,
        () if runs => Phase::Running,
        () => Phase::Started,
    };
    let deadline_ns = account.deadline().as_ns() as i64;
    let key = match place.order {
        Order::Fifo => account.release().as_ns() as i64,
        Order::Deadline => deadline_ns.saturating_add(place.shift_ns),
        Order::Laxity => deadline_ns.saturating_sub(account.left().as_ns() as i64),
    };
    Rank::new(place.level, phase, ordered(key), 0, account.release().as_ns(), slot)
}
