//! The earliest of many instants, each of which changes often: a winner tree of wide nodes.

use takt_model::Time;

/// Children of a node. Wide nodes make a flat list of few instants and a shallow tree of many.
const WIDTH: usize = 16;

/// Instants by index, with the earliest at hand. Ties go to the lowest index. Setting one costs a comparison per
/// level, and a scan of [`WIDTH`] where the earliest of a node moves back; there are log16(n) levels.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// The levels from the leaves up; each is padded to whole nodes.
    levels: Vec<Vec<Node>>,
    earliest: (Time, u32),
}

/// Up to [`WIDTH`] instants (of indices, or the earliest of nodes below) and the first of the earliest.
#[derive(Clone, Copy, Debug)]
struct Node {
    times: [Time; WIDTH],
    first: usize,
}

impl Node {
    const NEVER: Node = Node { times: [Time::MAX; WIDTH], first: 0 };

    #[inline]
    fn earliest(&self) -> Time {
        self.times[self.first % WIDTH]
    }

    /// Sets one instant; true when the node's earliest changed.
    #[inline]
    fn set(&mut self, at: usize, time: Time) -> bool {
        let before = self.earliest();
        self.times[at % WIDTH] = time;
        if at == self.first {
            if time > before {
                self.rescan();
            }
            return true;
        }
        let wins = time < before || (time == before && at < self.first);
        if wins {
            self.first = at;
        }
        wins
    }

    #[inline]
    fn rescan(&mut self) {
        let least = self.times.iter().fold(Time::MAX, |least, time| least.min(*time));
        self.first = self.times.iter().position(|time| *time == least).unwrap_or(0);
    }
}

impl Times {
    /// `count` instants, all [`Time::MAX`], which stands for never.
    pub(crate) fn never(count: usize) -> Self {
        let mut levels = Vec::new();
        let mut below = count.max(1);
        loop {
            let nodes = below.div_ceil(WIDTH);
            levels.push(vec![Node::NEVER; nodes]);
            if nodes == 1 {
                return Times { levels, earliest: (Time::MAX, 0) };
            }
            below = nodes;
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, index: u32, time: Time) {
        let (mut at, mut time_here) = (index as usize, time);
        for level in &mut self.levels {
            let node = &mut level[at / WIDTH];
            if !node.set(at % WIDTH, time_here) {
                return;
            }
            time_here = node.earliest();
            at /= WIDTH;
        }
        self.earliest = self.find_earliest();
    }

    #[inline]
    fn find_earliest(&self) -> (Time, u32) {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            at = at * WIDTH + level[at].first;
        }
        (self.get(at as u32), at as u32)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Time {
        self.levels[0][index as usize / WIDTH].times[index as usize % WIDTH]
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
