//! The budgets of servers in two logs: when they came, when they were used up or not needed, and what was paid.
//!
//! Servers match by name. The k-th event of a kind in one log is compared with the k-th of the other. Idle servers and
//! payments are compared only if both logs are simulated: a live back end splits payments in another way each time.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use takt_model::{Span, Time};

use crate::event::Event;
use crate::kind::Kind;

/// At most so many events of one server wait for their counterparts in the other log. Beyond that, the oldest counts as
/// missing.
const SERVER_WAITING_MAX: usize = 1 << 14;

/// The differences of one server's budgets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ServerDiff {
    /// Its name.
    pub server: String,
    /// Events in both logs.
    pub matched: u64,
    /// Those that only the left log has.
    pub only_left: u64,
    /// Those that only the right log has.
    pub only_right: u64,
    /// Matched replenishments whose times differ.
    pub replenish: u64,
    /// Matched exhaustions whose times differ.
    pub exhaust: u64,
    /// Matched idle servers whose times differ.
    pub idle: u64,
    /// Matched payments whose times or amounts differ.
    pub charge: u64,
    /// The largest difference of two matched times or amounts.
    pub difference_max_ns: u64,
}

impl ServerDiff {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.only_left + self.only_right + self.replenish + self.exhaust + self.idle + self.charge == 0
    }
}

/// The kinds of event that are compared. The last one is that of payments.
pub(super) const KINDS: [Kind; 4] = [Kind::Replenish, Kind::Exhaust, Kind::ServerIdle, Kind::Charge];
const CHARGE: usize = KINDS.len() - 1;

/// An event of a server. Only a payment has the last three values.
#[derive(Clone, Copy)]
struct ServerEvent {
    at: Time,
    since: Time,
    amount: Span,
    idle: bool,
}

impl ServerEvent {
    /// The largest difference of a time or an amount.
    fn apart(&self, other: &ServerEvent) -> Span {
        let times = [(self.at, other.at), (self.since, other.since)];
        let apart = times.map(|(a, b)| a.saturating_since(b).max(b.saturating_since(a)));
        let amounts = self.amount.saturating_sub(other.amount).max(other.amount.saturating_sub(self.amount));
        apart[0].max(apart[1]).max(amounts)
    }
}

#[derive(Default)]
struct Matching {
    found: ServerDiff,
    /// By kind: events of one side that the other has not come to. The last payment of both sides is there, too.
    pending: [[VecDeque<ServerEvent>; 2]; KINDS.len()],
}

impl Matching {
    /// Compares the oldest events of a kind, of which each side has one.
    fn compare(&mut self, kind: usize, tolerance: Span) {
        let [left, right] = &mut self.pending[kind];
        let (Some(left), Some(right)) = (left.pop_front(), right.pop_front()) else { return };
        let (found, apart) = (&mut self.found, left.apart(&right));
        found.matched += 1;
        found.difference_max_ns = found.difference_max_ns.max(apart.as_ns());
        if apart > tolerance || left.idle != right.idle {
            let differing = match KINDS[kind] {
                Kind::Replenish => &mut found.replenish,
                Kind::Exhaust => &mut found.exhaust,
                Kind::ServerIdle => &mut found.idle,
                _ => &mut found.charge,
            };
            *differing += 1;
        }
    }
}

pub(super) struct Servers {
    tolerance: Span,
    /// By kind: whether both logs record it.
    compares: [bool; KINDS.len()],
    names: BTreeMap<String, usize>,
    servers: Vec<Matching>,
}

impl Servers {
    pub(super) fn new(tolerance: Span, compares: [bool; KINDS.len()]) -> Servers {
        Servers { tolerance, compares, names: BTreeMap::new(), servers: Vec::new() }
    }

    pub(super) fn index(&mut self, name: &str) -> usize {
        if let Some(at) = self.names.get(name) {
            return *at;
        }
        let at = self.servers.len();
        self.names.insert(name.to_owned(), at);
        let found = ServerDiff { server: name.to_owned(), ..ServerDiff::default() };
        self.servers.push(Matching { found, ..Matching::default() });
        at
    }

    /// Takes an event of a side. `place` gives the place of a server by its number in that log.
    pub(super) fn take(&mut self, side: usize, now: Time, event: &Event, place: impl Fn(u32) -> Option<usize>) {
        let plain = ServerEvent { at: now, since: now, amount: Span::ZERO, idle: false };
        let (kind, server, told) = match *event {
            Event::Replenish { server, .. } => (0, server, plain),
            Event::Exhaust { server } => (1, server, plain),
            Event::ServerIdle { server } => (2, server, plain),
            Event::Charge { server, since, amount, idle } => {
                (CHARGE, server, ServerEvent { since, amount, idle, ..plain })
            }
            _ => return,
        };
        let Some(of) = place(server).and_then(|at| self.servers.get_mut(at)).filter(|_| self.compares[kind]) else {
            return;
        };
        of.pending[kind][side].push_back(told);
        // The end of a log cuts the last payment off.
        let waits = usize::from(kind == CHARGE);
        if of.pending[kind].iter().all(|events| events.len() > waits) {
            of.compare(kind, self.tolerance);
        } else if of.pending[kind][side].len() > SERVER_WAITING_MAX {
            of.pending[kind][side].pop_front();
            of.found.only(side, 1);
        }
    }

    /// The differences of each server with any event, in the order of the left log. The shorter log ends at `end`. An
    /// event shortly before the end may have its counterpart behind it.
    pub(super) fn finish(self, end: Time) -> Vec<ServerDiff> {
        let tolerance = self.tolerance;
        let whole = |mut of: Matching| {
            if of.pending[CHARGE].iter().all(|events| events.front().is_some_and(|last| last.at < end)) {
                of.compare(CHARGE, tolerance);
            }
            for kind in &of.pending {
                for (side, waiting) in kind.iter().enumerate() {
                    let missing = waiting.iter().filter(|event| event.at.saturating_add(tolerance) < end).count();
                    of.found.only(side, missing as u64);
                }
            }
            of.found
        };
        let found = self.servers.into_iter().map(whole);
        found.filter(|found| found.matched + found.only_left + found.only_right > 0).collect()
    }
}

impl ServerDiff {
    fn only(&mut self, side: usize, count: u64) {
        *(if side == 0 { &mut self.only_left } else { &mut self.only_right }) += count;
    }
}
