//! The earliest of many instants, each of which changes often: a winner tree.

use takt_model::Time;

/// Instants by index, with the earliest at hand. Ties go to the lowest index. Setting one costs one
/// comparison per level of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// Node 1 is the root; leaves start at `leaves`.
    tree: Vec<(Time, u32)>,
    leaves: usize,
}

impl Times {
    /// `count` instants, all [`Time::MAX`], which stands for never.
    pub(crate) fn never(count: usize) -> Self {
        let leaves = count.max(1).next_power_of_two();
        let mut tree = vec![(Time::MAX, 0); 2 * leaves];
        (0..leaves).for_each(|leaf| tree[leaves + leaf].1 = leaf as u32);
        (1..leaves).rev().for_each(|at| tree[at] = tree[2 * at]);
        Times { tree, leaves }
    }

    #[inline]
    pub(crate) fn set(&mut self, index: u32, time: Time) {
        let mut at = self.leaves + index as usize;
        let mut winner = (time, index);
        self.tree[at] = winner;
        while at > 1 {
            let other = self.tree[at ^ 1];
            // Siblings: the left one has the lower indices.
            let other_wins = other.0 < winner.0 || (other.0 == winner.0 && at & 1 == 1);
            winner = if other_wins { other } else { winner };
            at /= 2;
            self.tree[at] = winner;
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Time {
        self.tree[self.leaves + index as usize].0
    }

    /// The earliest instant and its index.
    #[inline]
    pub(crate) fn earliest(&self) -> (Time, u32) {
        self.tree[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_tree_finds_what_a_scan_finds(count in 1usize..20, steps in proptest::collection::vec((0u32..20, 0u64..9), 0..80)) {
            let mut times = Times::never(count);
            let mut list = vec![Time::MAX; count];
            for (index, time) in steps.into_iter().filter(|(index, _)| (*index as usize) < count) {
                let time = if time == 8 { Time::MAX } else { Time::from_ns(time) };
                times.set(index, time);
                list[index as usize] = time;
                let scanned = list.iter().enumerate().map(|(i, t)| (*t, i as u32)).min().unwrap();
                prop_assert_eq!(times.earliest(), scanned);
                prop_assert_eq!(times.get(index), time);
            }
        }
    }
}
