//! The budgets of servers in two logs: when they came, and when they were used up.
//!
//! Servers match by name. The k-th replenishment of one log is compared with the k-th of the other, and so are
//! exhaustions.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use takt_model::{Span, Time};

use crate::event::Event;

/// At most so many events of one server wait for their counterparts in the other log. Beyond that, the oldest counts as
/// missing.
const SERVER_WAITING_MAX: usize = 1 << 14;

/// The differences of one server's budgets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ServerDiff {
    /// Its name.
    pub server: String,
    /// Replenishments and exhaustions in both logs.
    pub matched: u64,
    /// Those that only the left log has.
    pub only_left: u64,
    /// Those that only the right log has.
    pub only_right: u64,
    /// Matched replenishments whose times differ.
    pub replenish: u64,
    /// Matched exhaustions whose times differ.
    pub exhaust: u64,
    /// The largest difference of two matched times.
    pub difference_max_ns: u64,
}

impl ServerDiff {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.only_left + self.only_right + self.replenish + self.exhaust == 0
    }
}

/// Replenishments, then exhaustions.
const KINDS: usize = 2;

#[derive(Default)]
struct Matching {
    found: ServerDiff,
    /// By kind: times of one side that the other has not come to.
    pending: [[VecDeque<Time>; 2]; KINDS],
}

pub(super) struct Servers {
    tolerance: Span,
    /// By kind: whether both logs record it.
    compares: [bool; KINDS],
    names: BTreeMap<String, usize>,
    servers: Vec<Matching>,
}

impl Servers {
    pub(super) fn new(tolerance: Span, compares: [bool; KINDS]) -> Servers {
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
        let (kind, server) = match *event {
            Event::Replenish { server, .. } => (0, server),
            Event::Exhaust { server } => (1, server),
            _ => return,
        };
        let Some(of) = place(server).and_then(|at| self.servers.get_mut(at)).filter(|_| self.compares[kind]) else {
            return;
        };
        let Some(other) = of.pending[kind][1 - side].pop_front() else {
            of.pending[kind][side].push_back(now);
            if of.pending[kind][side].len() > SERVER_WAITING_MAX {
                of.pending[kind][side].pop_front();
                of.found.only(side, 1);
            }
            return;
        };
        let apart = now.saturating_since(other).max(other.saturating_since(now));
        of.found.matched += 1;
        of.found.difference_max_ns = of.found.difference_max_ns.max(apart.as_ns());
        if apart > self.tolerance {
            *(if kind == 0 { &mut of.found.replenish } else { &mut of.found.exhaust }) += 1;
        }
    }

    /// The differences of each server with any event, in the order of the left log. The shorter log ends at `end`. An
    /// event shortly before the end may have its counterpart behind it.
    pub(super) fn finish(self, end: Time) -> Vec<ServerDiff> {
        let tolerance = self.tolerance;
        let whole = |mut of: Matching| {
            for kind in &of.pending {
                for (side, waiting) in kind.iter().enumerate() {
                    let missing = waiting.iter().filter(|at| at.saturating_add(tolerance) < end).count();
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
