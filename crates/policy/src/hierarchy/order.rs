//! What competes in a scope, in order. A change of one entry costs O(log n).

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::rank::Rank;

/// Where an entry stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    pub(crate) rank: Rank,
    /// It is to have the CPU.
    pub(crate) eligible: bool,
    /// There is a job in it, at whatever depth.
    pub(crate) busy: bool,
}

/// Which entries are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Eligible,
    /// Those with a job in them, eligible or not.
    Busy,
    /// Those that are both.
    Ready,
}

/// Entries of a scope by rank, the most important first. No two have one rank.
#[derive(Clone, Debug)]
pub(crate) struct ScopeOrder<E> {
    eligible: BTreeMap<Rank, E>,
    busy: BTreeMap<Rank, E>,
    ready: BTreeMap<Rank, E>,
    /// Whether some server may lend the CPU. Otherwise nobody asks for those with jobs.
    lends: bool,
}

impl<E: Copy> ScopeOrder<E> {
    pub(crate) fn new(lends: bool) -> Self {
        ScopeOrder { eligible: BTreeMap::new(), busy: BTreeMap::new(), ready: BTreeMap::new(), lends }
    }

    /// An entry stands elsewhere than before, or nowhere.
    pub(crate) fn set(&mut self, entry: E, before: Option<Standing>, now: Option<Standing>) {
        let eligible = |at: &Standing| at.eligible;
        change(&mut self.eligible, entry, before.filter(eligible), now.filter(eligible));
        if self.lends {
            let busy = |at: &Standing| at.busy;
            change(&mut self.busy, entry, before.filter(busy), now.filter(busy));
            let ready = |at: &Standing| at.eligible && at.busy;
            change(&mut self.ready, entry, before.filter(ready), now.filter(ready));
        }
    }

    /// The entries of these behind `after`, the most important first.
    pub(crate) fn after(&self, which: Which, after: Option<Rank>) -> impl Iterator<Item = (Rank, E)> + '_ {
        let set = match which {
            Which::Eligible => &self.eligible,
            Which::Busy => &self.busy,
            Which::Ready => &self.ready,
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        set.range((from, Bound::Unbounded)).map(|(rank, entry)| (*rank, *entry))
    }

    /// How many entries are eligible.
    pub(crate) fn eligible_count(&self) -> usize {
        self.eligible.len()
    }
}

fn change<E>(set: &mut BTreeMap<Rank, E>, entry: E, before: Option<Standing>, now: Option<Standing>) {
    let (before, now) = (before.map(|at| at.rank), now.map(|at| at.rank));
    if before == now {
        return;
    }
    if let Some(rank) = before {
        set.remove(&rank);
    }
    if let Some(rank) = now {
        set.insert(rank, entry);
    }
}
