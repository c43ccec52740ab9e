//! The servers of a component on several CPUs, as one server of the log: its budget is that of all of them.
//!
//! Each CPU tells of its own server. The budgets of a period come at one instant of the plan, but each CPU tells of its
//! share when it has decided. So a replenishment waits until all servers have told of theirs, or something later
//! happens to one of them.

use takt_linux::sched_ext::ServerNews;
use takt_model::Time;

#[derive(Clone, Debug)]
pub(super) struct Together {
    shares: Vec<Share>,
    /// The instant of a replenishment that waits.
    renewed_at: Option<Time>,
}

/// One of the servers.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Its CPU and its number there.
    place: (u32, u32),
    /// The rest of its last budget. Below zero it has had too much.
    left: i64,
    /// Its budget by its last terms, and how often they have changed.
    budget: u64,
    changes: u32,
    is_renewed: bool,
    is_spent: bool,
}

impl Together {
    pub(super) fn new(places: &[(u32, u32)]) -> Together {
        let share = |place: &(u32, u32)| Share {
            place: *place,
            left: 0,
            budget: 0,
            changes: 0,
            is_renewed: false,
            is_spent: true,
        };
        Together { shares: places.iter().map(share).collect(), renewed_at: None }
    }

    /// The changes of the component by these news of a server, in the order of time.
    pub(super) fn take(&mut self, place: (u32, u32), at: Time, news: ServerNews) -> [Option<(Time, ServerNews)>; 2] {
        let before = if self.renewed_at.is_some_and(|since| since < at) { self.renewed() } else { None };
        let Some(share) = self.shares.iter_mut().find(|share| share.place == place) else { return [before, None] };
        let now = match news {
            ServerNews::Replenished { budget } => {
                (share.left, share.is_renewed, share.is_spent) = (budget.cast_signed(), true, false);
                self.renewed_at = Some(at);
                let all = self.shares.iter().all(|share| share.is_renewed);
                return [before, if all { self.renewed() } else { None }];
            }
            ServerNews::Paid { amount, .. } => {
                share.left = share.left.saturating_sub_unsigned(amount);
                Some(news)
            }
            ServerNews::Exhausted => {
                share.is_spent = true;
                self.shares.iter().all(|share| share.is_spent).then_some(news)
            }
            ServerNews::Idle => Some(news),
            ServerNews::Switched { rule, budget, period } => {
                (share.budget, share.is_spent, share.left) = (budget, true, share.left.min(0));
                share.changes += 1;
                let changes = share.changes;
                // They are in force when the last server has them.
                let all = self.shares.iter().all(|share| share.changes == changes);
                let budget = self.shares.iter().map(|share| share.budget).sum();
                all.then_some(ServerNews::Switched { rule, budget, period })
            }
        };
        [before, now.map(|news| (at, news))]
    }

    /// The replenishment that waits: the budget of all servers together.
    pub(super) fn renewed(&mut self) -> Option<(Time, ServerNews)> {
        let at = self.renewed_at.take()?;
        self.shares.iter_mut().for_each(|share| share.is_renewed = false);
        let budget = self.shares.iter().map(|share| share.left.max(0).cast_unsigned()).sum();
        Some((at, ServerNews::Replenished { budget }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [(u32, u32); 2] = [(0, 3), (1, 0)];

    /// The changes in the log by these events. Each is one of a server, at a time, and they come in this order.
    fn told(events: &[(usize, u64, ServerNews)]) -> Vec<(u64, ServerNews)> {
        let mut together = Together::new(&PLACES);
        let mut told = Vec::new();
        for (server, at, news) in events {
            told.extend(together.take(PLACES[*server], Time::from_ns(*at), *news).into_iter().flatten());
        }
        told.extend(together.renewed());
        told.into_iter().map(|(at, news)| (at.as_ns(), news)).collect()
    }

    fn paid(since: u64, amount: u64) -> ServerNews {
        ServerNews::Paid { since, amount, idle: false }
    }

    fn renewed(budget: u64) -> ServerNews {
        ServerNews::Replenished { budget }
    }

    #[test]
    fn a_budget_comes_once_and_is_used_up_with_the_last_share() {
        let spent = ServerNews::Exhausted;
        let events = [
            (0, 0, renewed(4)),
            (1, 0, renewed(3)),
            (0, 4, paid(0, 4)),
            (0, 4, spent),
            (1, 6, paid(3, 3)),
            (1, 6, spent),
            (1, 9, ServerNews::Idle),
            (0, 10, renewed(4)),
            (1, 10, renewed(3)),
        ];
        let idle = (9, ServerNews::Idle);
        let wanted = [(0, renewed(7)), (4, paid(0, 4)), (6, paid(3, 3)), (6, spent), idle, (10, renewed(7))];
        assert_eq!(told(&events), wanted);
    }

    /// A server that used too much may have no budget in a period, and a CPU may tell late.
    #[test]
    fn a_share_that_does_not_come_holds_nothing_up() {
        let events = [
            (0, 0, renewed(4)),
            (1, 0, renewed(3)),
            (1, 9, paid(0, 8)),
            (1, 9, ServerNews::Exhausted),
            (0, 10, paid(8, 2)),
            (0, 10, renewed(4)),
            (0, 12, paid(10, 2)),
            (0, 20, renewed(4)),
            (1, 20, renewed(1)),
        ];
        // The first server has 4 again at 10, and the other one owes 5.
        let wanted =
            [(0, renewed(7)), (9, paid(0, 8)), (10, paid(8, 2)), (10, renewed(4)), (12, paid(10, 2)), (20, renewed(5))];
        assert_eq!(told(&events), wanted);
        // Nothing follows: the end of the run tells it.
        assert_eq!(told(&[(1, 5, renewed(2))]), [(5, renewed(2))]);
    }

    #[test]
    fn new_terms_are_in_force_when_the_last_server_has_them() {
        let terms = |budget| ServerNews::Switched { rule: 0, budget, period: 20 };
        let events = [(1, 20, terms(5)), (1, 20, renewed(5)), (0, 20, terms(6)), (0, 20, renewed(6))];
        assert_eq!(told(&events), [(20, terms(11)), (20, renewed(11))]);
    }
}
