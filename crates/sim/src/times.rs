//! The earliest of many instants, each of which changes often.

use takt_model::Time;

/// Up to so many instants a scan beats a tree.
const FLAT_MAX: usize = 16;

/// Instants by index, with the earliest at hand. Ties go to the lowest index. A few are scanned, and only when the
/// earliest moves back; many stand in a winner tree, where a change costs one comparison a level.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// The flat list; or the tree, whose root is 1 and whose leaves start at `leaves`.
    times: Vec<(Time, u32)>,
    /// Zero for the flat list.
    leaves: usize,
    earliest: (Time, u32),
}

impl Times {
    /// `count` instants, all [`Time::MAX`], which stands for never.
    pub(crate) fn never(count: usize) -> Self {
        let earliest = (Time::MAX, 0);
        if count <= FLAT_MAX {
            let times = (0..count as u32).map(|index| (Time::MAX, index)).collect();
            return Times { times, leaves: 0, earliest };
        }
        let leaves = count.next_power_of_two();
        let mut times = vec![earliest; 2 * leaves];
        (0..leaves).for_each(|leaf| times[leaves + leaf].1 = leaf as u32);
        (1..leaves).rev().for_each(|at| times[at] = times[2 * at]);
        Times { times, leaves, earliest }
    }

    #[inline]
    pub(crate) fn set(&mut self, index: u32, time: Time) {
        if self.leaves > 0 {
            return self.set_in_tree(index, time);
        }
        self.times[index as usize].0 = time;
        // An instant other than the earliest takes its place or leaves it be; only a later earliest needs a search.
        if (time, index) <= self.earliest {
            self.earliest = (time, index);
        } else if index == self.earliest.1 {
            self.earliest = self.scan();
        }
    }

    fn scan(&self) -> (Time, u32) {
        let first = |a: (Time, u32), b: &(Time, u32)| if b.0 < a.0 { *b } else { a };
        self.times.iter().fold((Time::MAX, 0), first)
    }

    fn set_in_tree(&mut self, index: u32, time: Time) {
        let mut at = self.leaves + index as usize;
        self.times[at].0 = time;
        let mut winner = (time, index);
        while at > 1 {
            let other = self.times[at ^ 1];
            // Siblings: the left one has the lower indices.
            let other_wins = other.0 < winner.0 || (other.0 == winner.0 && at & 1 == 1);
            winner = if other_wins { other } else { winner };
            at /= 2;
            self.times[at] = winner;
        }
        self.earliest = winner;
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Time {
        self.times[self.leaves + index as usize].0
    }

    /// The earliest instant and its index.
    #[inline]
    pub(crate) fn earliest(&self) -> (Time, u32) {
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
            count in prop_oneof![1usize..20, 250usize..300],
            steps in proptest::collection::vec((0u32..300, 0u64..9), 0..200),
        ) {
            let mut times = Times::never(count);
            let mut list = vec![Time::MAX; count];
            for (index, time) in steps {
                let index = index % count as u32;
                let time = if time == 8 { Time::MAX } else { Time::from_ns(time) };
                times.set(index, time);
                list[index as usize] = time;
                let scanned = list.iter().enumerate().map(|(i, t)| (*t, i as u32)).min().unwrap();
                prop_assert_eq!(times.earliest().0, scanned.0);
                if scanned.0 != Time::MAX {
                    prop_assert_eq!(times.earliest().1, scanned.1);
                }
                prop_assert_eq!(times.get(index), time);
            }
        }
    }
}
