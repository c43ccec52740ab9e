//! What competes in a scope, in order. Up to [`FEW_MAX`] entries stand in a sorted array, so that changes allocate
//! nothing. More of them stand in a tree, where a change costs O(log n).

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::rank::Rank;

/// Where an entry stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryState {
    pub(crate) rank: Rank,
    /// It is to have the CPU.
    pub(crate) eligible: bool,
    /// There is a job in it, at whatever depth.
    pub(crate) busy: bool,
}

/// Which entries are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryFilter {
    Eligible,
    /// Those with a job in them, eligible or not.
    Busy,
    /// Those that are both.
    Ready,
}

/// Up to so many entries stand in an array.
const FEW_MAX: usize = 256;

/// Entries by rank, the most important first. No two have one rank.
#[derive(Clone, Debug)]
enum Entries<E> {
    Few(Vec<(Rank, E)>),
    Many(BTreeMap<Rank, E>),
}

impl<E: Copy> Entries<E> {
    fn new(count: usize) -> Self {
        if count <= FEW_MAX { Entries::Few(Vec::with_capacity(count)) } else { Entries::Many(BTreeMap::new()) }
    }

    fn len(&self) -> usize {
        match self {
            Entries::Few(few) => few.len(),
            Entries::Many(many) => many.len(),
        }
    }

    /// Those behind `after`.
    fn after(&self, after: Option<Rank>) -> impl Iterator<Item = (Rank, E)> + '_ {
        let (few, many) = match self {
            Entries::Few(few) => {
                let from = after.map_or(0, |after| few.partition_point(|(rank, _)| *rank <= after));
                (&few[from..], None)
            }
            Entries::Many(many) => {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                (&[][..], Some(many.range((from, Bound::Unbounded))))
            }
        };
        let many = many.into_iter().flatten().map(|(rank, entry)| (*rank, *entry));
        few.iter().copied().chain(many)
    }

    fn remove(&mut self, rank: Rank) {
        match self {
            Entries::Few(few) => {
                if let Ok(at) = few.binary_search_by(|(other, _)| other.cmp(&rank)) {
                    few.remove(at);
                }
            }
            Entries::Many(many) => drop(many.remove(&rank)),
        }
    }

    fn insert(&mut self, rank: Rank, entry: E) {
        match self {
            Entries::Few(few) => match few.binary_search_by(|(other, _)| other.cmp(&rank)) {
                Ok(at) => few[at].1 = entry,
                Err(at) => few.insert(at, (rank, entry)),
            },
            Entries::Many(many) => drop(many.insert(rank, entry)),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ScopeOrder<E> {
    eligible: Entries<E>,
    busy: Entries<E>,
    ready: Entries<E>,
    /// Whether some server may lend the CPU. Otherwise nobody asks for those with jobs.
    lends: bool,
}

impl<E: Copy> ScopeOrder<E> {
    /// For at most so many entries.
    pub(crate) fn new(count: usize, lends: bool) -> Self {
        let entries = || Entries::new(count);
        ScopeOrder { eligible: entries(), busy: entries(), ready: entries(), lends }
    }

    /// An entry stands elsewhere than before, or nowhere.
    pub(crate) fn set(&mut self, entry: E, before: Option<EntryState>, now: Option<EntryState>) {
        let eligible = |at: &EntryState| at.eligible;
        change(&mut self.eligible, entry, before.filter(eligible), now.filter(eligible));
        if self.lends {
            let busy = |at: &EntryState| at.busy;
            change(&mut self.busy, entry, before.filter(busy), now.filter(busy));
            let ready = |at: &EntryState| at.eligible && at.busy;
            change(&mut self.ready, entry, before.filter(ready), now.filter(ready));
        }
    }

    /// The entries of these behind `after`, the most important first.
    pub(crate) fn after(&self, which: EntryFilter, after: Option<Rank>) -> impl Iterator<Item = (Rank, E)> + '_ {
        let set = match which {
            EntryFilter::Eligible => &self.eligible,
            EntryFilter::Busy => &self.busy,
            EntryFilter::Ready => &self.ready,
        };
        set.after(after)
    }

    /// How many entries are eligible.
    pub(crate) fn eligible_count(&self) -> usize {
        self.eligible.len()
    }
}

fn change<E: Copy>(set: &mut Entries<E>, entry: E, before: Option<EntryState>, now: Option<EntryState>) {
    let (before, now) = (before.map(|at| at.rank), now.map(|at| at.rank));
    if before == now {
        return;
    }
    if let Some(rank) = before {
        set.remove(rank);
    }
    if let Some(rank) = now {
        set.insert(rank, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Phase;

    #[test]
    fn an_array_and_a_tree_hold_the_same_entries_in_the_same_order() {
        let (mut few, mut many) = (Entries::new(FEW_MAX), Entries::new(FEW_MAX + 1));
        assert!(matches!((&few, &many), (Entries::Few(_), Entries::Many(_))));
        let rank = |of: u64| Rank::new((of % 3) as u32, Phase::Fresh, of % 7, 0, of % 5, (of % 11) as u32);
        let mut state = 1_u64;
        for step in 0..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let of = state >> 33;
            for entries in [&mut few, &mut many] {
                if state >> 20 & 1 == 0 { entries.insert(rank(of), step) } else { entries.remove(rank(of)) }
            }
            assert_eq!(few.len(), many.len());
            let after = (step % 3 > 0).then(|| rank(of / 3));
            assert!(few.after(after).eq(many.after(after)), "after {after:?}");
        }
        assert!(few.len() > 100);
    }
}
