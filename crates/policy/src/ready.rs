//! The queue of jobs that wait for a CPU: a binary heap of fixed capacity from which any job can be
//! taken, since jobs are dropped and modes change.

use crate::rank::Rank;

const ABSENT: u32 = u32::MAX;

/// A heap of ranks with the position of each slot.
#[derive(Clone, Debug)]
pub(crate) struct ReadyQueue {
    heap: Vec<Rank>,
    /// Position in `heap` by slot.
    position: Vec<u32>,
}

impl ReadyQueue {
    /// A queue for slots 0 to `slots` - 1.
    pub(crate) fn new(slots: usize) -> Self {
        ReadyQueue { heap: Vec::with_capacity(slots), position: vec![ABSENT; slots] }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The most important waiting job.
    #[inline]
    pub(crate) fn peek(&self) -> Option<&Rank> {
        self.heap.first()
    }

    #[inline]
    pub(crate) fn push(&mut self, rank: Rank) {
        debug_assert_eq!(self.position[rank.slot() as usize], ABSENT, "a task has one job in the queue");
        self.heap.push(rank);
        self.sift_up(self.heap.len() - 1);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Rank> {
        let top = *self.peek()?;
        self.take_at(0);
        Some(top)
    }

    /// Takes the job of `slot` out, if it waits here.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        match self.position.get(slot as usize) {
            Some(&at) if at != ABSENT => {
                self.take_at(at as usize);
                true
            }
            _ => false,
        }
    }

    /// Takes every job out, in no order.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u32)) {
        while let Some(rank) = self.heap.pop() {
            self.set_position(rank.slot(), ABSENT);
            each(rank.slot());
        }
    }

    #[inline]
    fn set_position(&mut self, slot: u32, at: u32) {
        if let Some(position) = self.position.get_mut(slot as usize) {
            *position = at;
        }
    }

    #[inline]
    fn take_at(&mut self, at: usize) {
        let gone = self.heap.swap_remove(at);
        self.set_position(gone.slot(), ABSENT);
        if at < self.heap.len() {
            let settled = self.sift_down(at);
            if settled == at && at > 0 {
                self.sift_up(at);
            }
        }
    }

    #[inline]
    fn sift_up(&mut self, mut at: usize) {
        let rank = self.heap[at];
        while at > 0 {
            let above = (at - 1) / 2;
            let other = self.heap[above];
            if other <= rank {
                break;
            }
            self.heap[at] = other;
            self.set_position(other.slot(), at as u32);
            at = above;
        }
        self.heap[at] = rank;
        self.set_position(rank.slot(), at as u32);
    }

    #[inline]
    fn sift_down(&mut self, mut at: usize) -> usize {
        let rank = self.heap[at];
        loop {
            let mut below = 2 * at + 1;
            if below >= self.heap.len() {
                break;
            }
            if below + 1 < self.heap.len() && self.heap[below + 1] < self.heap[below] {
                below += 1;
            }
            let other = self.heap[below];
            if rank <= other {
                break;
            }
            self.heap[at] = other;
            self.set_position(other.slot(), at as u32);
            at = below;
        }
        self.heap[at] = rank;
        self.set_position(rank.slot(), at as u32);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Phase;
    use proptest::prelude::*;

    proptest! {
        /// Against a sorted list: pushes, pops and removals in any order.
        #[test]
        fn the_heap_is_a_sorted_list(steps in proptest::collection::vec((0u32..12, 0u64..6, 0u8..3), 0..120)) {
            let mut queue = ReadyQueue::new(12);
            let mut list: Vec<Rank> = Vec::new();
            for (slot, key, what) in steps {
                let known = list.iter().position(|rank| rank.slot() == slot);
                match what {
                    0 if known.is_none() => {
                        let rank = Rank::new(0, Phase::Fresh, key, 0, 0, slot);
                        queue.push(rank);
                        list.push(rank);
                        list.sort();
                    }
                    1 => {
                        let first = if list.is_empty() { None } else { Some(list.remove(0)) };
                        prop_assert_eq!(queue.pop(), first);
                    }
                    _ => {
                        prop_assert_eq!(queue.remove(slot), known.is_some());
                        known.map(|at| list.remove(at));
                    }
                }
                prop_assert_eq!(queue.peek(), list.first());
                prop_assert_eq!(queue.is_empty(), list.is_empty());
            }
        }
    }
}
