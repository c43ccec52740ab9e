//! The queue of jobs that wait for a CPU: a heap of fixed capacity, four below each, from which any job can be
//! taken, since jobs are dropped and modes change. Beside it, where jobs come in their order, a row of them.

use std::collections::VecDeque;

use crate::rank::Rank;

const ABSENT: u32 = u32::MAX;
/// In a position: in the row, at the place with this number.
const IN_ROW: u32 = 1 << 30;
/// How many stand below each place of the heap.
const BELOW: usize = 4;

/// A heap of ranks with the position of each slot.
#[derive(Clone, Debug)]
pub(crate) struct ReadyQueue {
    heap: Vec<Rank>,
    /// Whether the first place is free, which then holds a job that was taken: the next one that comes may fill it. Never where no other waits.
    hollow: bool,
    /// Jobs that came after all of these, in their order; those taken out of the middle leave a gap. No gap is the first.
    row: VecDeque<Rank>,
    row_max: usize,
    gaps: usize,
    /// The number of the row's first place, below [`IN_ROW`].
    row_first: u32,
    /// Position in `heap` or in `row`, by slot.
    position: Vec<u32>,
}

impl ReadyQueue {
    /// A queue for slots 0 to `slots` - 1.
    pub(crate) fn new(slots: usize) -> Self {
        ReadyQueue {
            heap: Vec::with_capacity(slots),
            hollow: false,
            row: VecDeque::new(),
            row_max: 0,
            gaps: 0,
            row_first: 0,
            position: vec![ABSENT; slots],
        }
    }

    /// The same, where jobs mostly come in their order: [`ReadyQueue::append`] takes a few steps then, however many wait.
    pub(crate) fn with_row(slots: usize) -> Self {
        ReadyQueue { row: VecDeque::with_capacity(slots), row_max: slots, ..ReadyQueue::new(slots) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty() && self.row.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.heap.len() - usize::from(self.hollow) + self.row.len() - self.gaps
    }

    /// The most important waiting job.
    #[inline]
    pub(crate) fn peek(&self) -> Option<&Rank> {
        let top = if self.hollow { self.heap.iter().take(1 + BELOW).skip(1).min() } else { self.heap.first() };
        match (top, self.row.front()) {
            (Some(top), Some(first)) => Some(top.min(first)),
            (top, first) => top.or(first),
        }
    }

    // Inlined, so that the rank stays in registers: one that was just written by halves is slow to be read as a whole.
    #[inline(always)]
    pub(crate) fn push(&mut self, rank: Rank) {
        debug_assert_eq!(self.position[rank.slot() as usize], ABSENT, "a task has one job in the queue");
        if self.hollow {
            self.hollow = false;
            // As often as not it goes first of those in the heap, as the one before it did.
            match self.heap.get(1..).and_then(<[Rank]>::first_chunk::<BELOW>) {
                Some(below) if below.iter().all(|below| rank.precedes(below)) => self.place(0, rank),
                _ => {
                    self.sift_down(0, rank);
                }
            }
        } else {
            self.heap.push(rank);
            self.sift_up(self.heap.len() - 1, rank);
        }
    }

    /// The same for a job that most likely comes after all that wait.
    #[inline(always)]
    pub(crate) fn append(&mut self, rank: Rank) {
        if self.row.len() == self.row_max || self.row.back().is_some_and(|last| !last.precedes(&rank)) {
            return self.push(rank);
        }
        debug_assert_eq!(self.position[rank.slot() as usize], ABSENT, "a task has one job in the queue");
        let number = self.row_first.wrapping_add(self.row.len() as u32) % IN_ROW;
        self.set_position(rank.slot(), IN_ROW | number);
        self.row.push_back(rank);
    }

    /// Takes the most important job out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Rank> {
        let top = self.pop_before_push()?;
        self.close();
        Some(top)
    }

    /// The same, cheaper where a push comes next: that takes the free place and does the work of both.
    #[inline]
    pub(crate) fn pop_before_push(&mut self) -> Option<Rank> {
        self.close();
        if let Some(first) = self.row.front()
            && self.heap.first().is_none_or(|top| first.precedes(top))
        {
            let first = *first;
            self.set_position(first.slot(), ABSENT);
            self.leave_row();
            return Some(first);
        }
        let top = *self.heap.first()?;
        self.set_position(top.slot(), ABSENT);
        if self.heap.len() == 1 {
            self.heap.clear();
        } else {
            self.hollow = true;
        }
        Some(top)
    }

    /// Takes the job of `slot` out, if it waits here.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        self.close();
        match self.position.get(slot as usize) {
            Some(&at) if at != ABSENT && at >= IN_ROW => {
                self.set_position(slot, ABSENT);
                let place = (at - IN_ROW).wrapping_sub(self.row_first) % IN_ROW;
                if place == 0 {
                    self.leave_row();
                } else if let Some(rank) = self.row.get_mut(place as usize) {
                    *rank = rank.gone();
                    self.gaps += 1;
                }
                true
            }
            Some(&at) if at != ABSENT => {
                self.set_position(slot, ABSENT);
                let last = self.heap.pop();
                if let Some(last) = last.filter(|_| (at as usize) < self.heap.len())
                    && self.sift_down(at as usize, last) == at as usize
                {
                    self.sift_up(at as usize, last);
                }
                true
            }
            _ => false,
        }
    }

    /// Takes every job out, in no order.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u32)) {
        self.close();
        while let Some(rank) = self.heap.pop().or_else(|| self.row.pop_front()) {
            if !rank.is_gone() {
                self.set_position(rank.slot(), ABSENT);
                each(rank.slot());
            }
        }
        self.gaps = 0;
    }

    /// The first of the row is gone, and with it the gaps behind it.
    #[inline]
    fn leave_row(&mut self) {
        loop {
            self.row.pop_front();
            self.row_first = (self.row_first + 1) % IN_ROW;
            if self.gaps == 0 || !self.row.front().is_some_and(Rank::is_gone) {
                return;
            }
            self.gaps -= 1;
        }
    }

    /// Fills the first place, if it is free.
    #[inline]
    fn close(&mut self) {
        if self.hollow {
            self.hollow = false;
            if let Some(last) = self.heap.pop() {
                self.sift_down(0, last);
            }
        }
    }

    #[inline]
    fn set_position(&mut self, slot: u32, at: u32) {
        if let Some(position) = self.position.get_mut(slot as usize) {
            *position = at;
        }
    }

    #[inline(always)]
    fn place(&mut self, at: usize, rank: Rank) {
        if let Some(place) = self.heap.get_mut(at) {
            *place = rank;
        }
        self.set_position(rank.slot(), at as u32);
    }

    /// Puts a job into this free place or one above it.
    #[inline]
    fn sift_up(&mut self, mut at: usize, rank: Rank) {
        while at > 0 {
            let above = (at - 1) / BELOW;
            let Some(other) = self.heap.get(above).copied().filter(|other| rank.precedes(other)) else { break };
            self.place(at, other);
            at = above;
        }
        self.place(at, rank);
    }

    /// Puts a job into this free place or one below it; which one that is.
    fn sift_down(&mut self, mut at: usize, rank: Rank) -> usize {
        while let Some((below, other)) = self.first_below(at)
            && other.precedes(&rank)
        {
            let other = *other;
            self.place(at, other);
            at = below;
        }
        self.place(at, rank);
        at
    }

    /// The most important of those below a place.
    #[inline]
    fn first_below(&self, at: usize) -> Option<(usize, &Rank)> {
        let first = BELOW * at + 1;
        let below = self.heap.get(first..)?;
        let Some([a, b, c, d]) = below.first_chunk::<BELOW>() else {
            let first_of =
                |one: (usize, _), other: (usize, _)| if Rank::precedes(other.1, one.1) { other } else { one };
            return (first..).zip(below).reduce(first_of);
        };
        let (left, one) = if b.precedes(a) { (first + 1, b) } else { (first, a) };
        let (right, other) = if d.precedes(c) { (first + 3, d) } else { (first + 2, c) };
        Some(if other.precedes(one) { (right, other) } else { (left, one) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Phase;
    use proptest::prelude::*;

    proptest! {
        /// Against a sorted list: pushes, in order and out of it, pops and removals in any order.
        #[test]
        fn the_heap_is_a_sorted_list(steps in proptest::collection::vec((0u32..40, 0u64..6, 0u8..9), 0..200), with_row: bool) {
            let mut queue = if with_row { ReadyQueue::with_row(40) } else { ReadyQueue::new(40) };
            let mut now = 0;
            let mut list: Vec<Rank> = Vec::new();
            for (slot, key, what) in steps {
                let known = list.iter().position(|rank| rank.slot() == slot);
                match what {
                    0 | 4.. if known.is_none() => {
                        now += key;
                        let rank = Rank::new(0, Phase::Fresh, if what < 7 { now } else { key }, 0, 0, slot);
                        if what < 7 && with_row { queue.append(rank) } else { queue.push(rank) }
                        list.push(rank);
                        list.sort();
                    }
                    1 | 2 => {
                        let first = if list.is_empty() { None } else { Some(list.remove(0)) };
                        prop_assert_eq!(if what == 1 { queue.pop() } else { queue.pop_before_push() }, first);
                    }
                    _ => {
                        prop_assert_eq!(queue.remove(slot), known.is_some());
                        known.map(|at| list.remove(at));
                    }
                }
                prop_assert_eq!(queue.peek(), list.first());
                prop_assert_eq!(queue.is_empty(), list.is_empty());
                prop_assert_eq!(queue.len(), list.len());
            }
        }
    }
}
