//! The budgets of servers: a job of a component waits while a server around it has no budget.

use std::collections::BTreeSet;

use takt_model::{ServerRule, Time};

use super::{Causes, State};
use crate::event::JobKey;

#[derive(Clone, Debug, Default)]
pub(super) struct Supply {
    used_up: BTreeSet<u32>,
}

impl Causes {
    pub(super) fn exhaust_server(&mut self, now: Time, server: u32) {
        if self.supply.used_up.insert(server) {
            self.update_waiting(now, server);
        }
    }

    /// A server has nothing to run. One that polls gives up its budget.
    pub(super) fn server_idle(&mut self, now: Time, server: u32) {
        if self.polls(server) {
            self.exhaust_server(now, server);
        }
    }

    /// A server's budget came back. One that polls keeps it only if it has a job.
    pub(super) fn replenish(&mut self, now: Time, server: u32) {
        let has_work = || self.pending.keys().any(|job| self.rules.servers(job.task).contains(&server));
        if self.polls(server) && !has_work() {
            return self.exhaust_server(now, server);
        }
        if self.supply.used_up.remove(&server) {
            self.update_waiting(now, server);
        }
    }

    /// A job that waits from now on: `NoBudget` if a server around it has none.
    pub(super) fn waiting_state(&self, job: JobKey) -> State {
        let is_used_up = self.rules.servers(job.task).iter().any(|server| self.supply.used_up.contains(server));
        if is_used_up { State::NoBudget } else { State::Waits(None) }
    }

    fn update_waiting(&mut self, now: Time, server: u32) {
        let waits = |state: State| matches!(state, State::Waits(_) | State::NoBudget);
        let of = self
            .pending
            .iter()
            .filter(|(job, pending)| waits(pending.state) && self.rules.servers(job.task).contains(&server));
        let changed: Vec<(JobKey, State)> = of.map(|(job, pending)| (*job, pending.state)).collect();
        for (job, was) in changed {
            let is = self.waiting_state(job);
            if is != was {
                self.change_state(now, job, was, is);
            }
        }
    }

    fn polls(&self, server: u32) -> bool {
        let def = self.definitions.servers.get(server as usize);
        def.is_some_and(|def| def.rule == ServerRule::Polling.name())
    }
}
