//! The earliest of many instants, each of which changes often.

use takt_model::Time;

/// Up to so many instants a scan beats a tree.
const FEW_MAX: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 5;
/// Instants from here on are never: no simulation lasts 18 years, see [`takt_model::Span::FILE_MAX`].
pub(crate) const NEVER: Time = Time::from_ns((1 << (u64::BITS - INDEX_BITS)) - 1);

/// Instants by index, with fast access to the earliest. Ties go to the lowest index. Up to
/// 32 instants are scanned, and only when the earliest changes. More of them stand in a
/// winner tree, where a change costs one comparison per level. An instant and its index are packed
/// into one number, so that one comparison decides.
#[derive(Clone, Debug)]
pub struct Times {
    /// A few: instant << INDEX_BITS | index, in groups of four; the last one is filled up. Empty for many.
    few: Vec<[u64; 4]>,
    /// The least of `few`.
    first: u64,
    earliest: (Time, u32),
    /// Many: instant << 32 | index, the root at 1, the leaves in the second half. Empty for a few.
    tree: Vec<u128>,
}

#[inline]
fn few_key(index: u32, time: Time) -> u64 {
    time.min(NEVER).as_ns() << INDEX_BITS | u64::from(index)
}

#[inline]
fn tree_key(index: u32, time: Time) -> u128 {
    u128::from(time.min(NEVER).as_ns()) << 32 | u128::from(index)
}

impl Times {
    /// `count` instants, all of them never.
    #[must_use]
    pub fn never(count: usize) -> Self {
        let mut times = Times { few: Vec::new(), first: few_key(0, NEVER), earliest: (NEVER, 0), tree: Vec::new() };
        if count <= FEW_MAX {
            let group = |at| std::array::from_fn(|i| few_key((4 * at + i) as u32, NEVER));
            times.few = (0..count.div_ceil(4)).map(group).collect();
        } else {
            let leaves = count.next_power_of_two();
            times.tree = vec![u128::MAX; leaves];
            times.tree.extend((0..leaves as u32).map(|leaf| tree_key(leaf, NEVER)));
            (1..leaves).rev().for_each(|at| times.tree[at] = times.tree[2 * at]);
        }
        times
    }

    /// Sets the instant of `index`; [`Time::MAX`] is never.
    #[inline]
    pub fn set(&mut self, index: u32, time: Time) {
        let Some(group) = self.few.get_mut(index as usize / 4) else {
            return self.set_in_tree(index, time);
        };
        let key = few_key(index, time);
        let old = std::mem::replace(&mut group[index as usize % 4], key);
        // Only a change of the earliest instant can make another one the earliest.
        let first = if old == self.first { self.scan() } else { self.first.min(key) };
        self.first = first;
        self.earliest = (Time::from_ns(first >> INDEX_BITS), first as u32 % FEW_MAX as u32);
    }

    /// The least of `few`.
    #[inline]
    fn scan(&self) -> u64 {
        self.few.iter().fold(u64::MAX, |least, [a, b, c, d]| least.min((*a.min(b)).min(*c.min(d))))
    }

    fn set_in_tree(&mut self, index: u32, time: Time) {
        let mut at = self.tree.len() / 2 + index as usize;
        let mut winner = tree_key(index, time);
        // Nodes above an unchanged node are unchanged too.
        while self.tree[at] != winner {
            self.tree[at] = winner;
            if at == 1 {
                self.earliest = (Time::from_ns((winner >> 32) as u64), winner as u32);
                break;
            }
            winner = winner.min(self.tree[at ^ 1]);
            at /= 2;
        }
    }

    /// Whether the instant of `index` is never.
    #[inline]
    #[must_use]
    pub fn is_never(&self, index: u32) -> bool {
        match self.few.get(index as usize / 4) {
            Some(group) => group[index as usize % 4] == few_key(index, NEVER),
            None => self.tree[self.tree.len() / 2 + index as usize] == tree_key(index, NEVER),
        }
    }

    /// The earliest instant and its index. If all are never, the instant is one that no simulation reaches.
    #[inline]
    #[must_use]
    pub fn earliest(&self) -> (Time, u32) {
        self.earliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_tree_finds_what_a_scan_finds(
            count in prop_oneof![1usize..40, 250usize..300],
            steps in proptest::collection::vec((0u32..300, 0u64..9), 0..200),
        ) {
            let mut times = Times::never(count);
            let mut list = vec![NEVER; count];
            for (index, time) in steps {
                let index = index % count as u32;
                let time = if time == 8 { Time::MAX } else { Time::from_ns(time) };
                times.set(index, time);
                list[index as usize] = time.min(NEVER);
                let scanned = list.iter().enumerate().map(|(i, t)| (*t, i as u32)).min().unwrap();
                prop_assert_eq!(times.earliest(), scanned);
                prop_assert_eq!(times.is_never(index), time == Time::MAX);
            }
        }
    }
}
