//! Chooses for a scope with the CPU: the job to run and the servers to charge.

use takt_model::plan::Order;
use takt_model::{ServerRule, Time};

use super::{Choice, Entry, Hierarchy, Pick, Place, is_multiple};
use crate::rank::{Phase, Rank, ordered};

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
            return self.follow(scope, now, choice);
        }
        let place = choice.picks.len();
        choice.picks.push((scope, Pick::default()));
        let mut pick = Pick::default();
        let runs = self.choose_anew(scope, now, choice, &mut pick);
        choice.picks[place].1 = pick;
        runs
    }

    fn choose_anew(&self, scope: usize, now: Time, choice: &mut Choice, pick: &mut Pick) -> bool {
        let Some((rank, first)) = self.next_entry(scope, None, |at| self.servers[at].eligible) else { return false };
        let Entry::Server(server) = first else {
            (pick.entry, pick.job, choice.runs) = (Some(first), self.job_of(scope, first), Some(scope));
            return true;
        };
        choice.payers.push(server);
        (pick.entry, pick.pays) = (Some(first), true);
        if self.choose(server + 1, now, choice) {
            return true;
        }
        let reclaims = match self.servers[server].account.rule() {
            ServerRule::Wcps => false,
            ServerRule::Crps => true,
            _ => return false,
        };
        let may = |at: usize| if reclaims { self.scopes[at + 1].wants } else { self.servers[at].eligible };
        let mut after = if reclaims { None } else { Some(rank) };
        while let Some((rank, entry)) = self.next_entry(scope, after, may) {
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
    fn follow(&self, scope: usize, now: Time, choice: &mut Choice) -> bool {
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

    /// The most important entry of a scope below `after`. `may` selects the servers.
    fn next_entry(&self, scope: usize, after: Option<Rank>, may: impl Fn(usize) -> bool) -> Option<(Rank, Entry)> {
        let at = &self.scopes[scope];
        let is_below = |rank: &Rank| after.is_none_or(|after| after < *rank);
        let task = at.head.filter(is_below).map(|rank| (rank, Entry::Task(rank.slot())));
        let server = at.order.iter().find(|(rank, server)| is_below(rank) && may(*server));
        let server = server.map(|(rank, server)| (*rank, Entry::Server(*server)));
        task.into_iter().chain(server).min_by_key(|(rank, _)| *rank)
    }

    /// Sorts the servers of a scope.
    pub(super) fn put_in_order(&mut self, scope: usize) {
        let mut order = std::mem::take(&mut self.scopes[scope].order);
        order.clear();
        let at = &self.scopes[scope];
        let slots = at.slots.len() as u32..;
        for ((slot, server), places) in slots.zip(&at.servers).zip(&at.places[at.plan]) {
            order.push((self.rank(scope, *server, &places[self.servers[*server].term], slot), *server));
        }
        order.sort_unstable_by_key(|(rank, _)| *rank);
        let at = &mut self.scopes[scope];
        (at.order, at.is_unordered) = (order, false);
    }

    fn rank(&self, scope: usize, server: usize, place: &Place, slot: u32) -> Rank {
        let account = &self.servers[server].account;
        let runs = self.scopes[scope].pick.entry == Some(Entry::Server(server));
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
}
