//! The queue of jobs that wait for a CPU: a heap of fixed capacity, four below each, from which any job can be
//! taken, since jobs are dropped and modes change. Beside it, where jobs come in their order, a row of them.

use std::collections::VecDeque;
use std::hint::select_unpredictable;

use crate::rank::Entry;

const ABSENT: u32 = u32::MAX;
/// In a position: in the row, at the place with this number.
const IN_ROW: u32 = 1 << 30;
/// How many stand below each place of the heap.
const BELOW: usize = 4;

/// A heap of ranks with the position of each slot.
#[derive(Clone, Debug)]
pub(crate) struct ReadyQueue<R: Entry> {
    heap: Vec<R>,
    /// Whether the first place is free, which then holds a job that was taken: the next one that comes may fill it. Never where no other waits.
    hollow: bool,
    /// Jobs that came after all of these, in their order; those taken out of the middle leave a gap. No gap is the first.
    row: VecDeque<R>,
    row_max: usize,
    gaps: usize,
    /// The number of the row's first place, below [`IN_ROW`].
    row_first: u32,
    /// Position in `heap` or in `row`, by slot.
    position: Vec<u32>,
}

impl<R: Entry> ReadyQueue<R> {
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
    pub(crate) fn peek(&self, known: &R::Known) -> Option<&R> {
        let first = |one, other| first_of(one, other, known);
        let top = if self.hollow { self.heap.iter().take(1 + BELOW).skip(1).reduce(first) } else { self.heap.first() };
        top.into_iter().chain(self.row.front()).reduce(first)
    }

    // Inlined, so that the rank stays in registers: one that was just written by halves is slow to be read as a whole.
    /// A job waits from now on.
    #[inline(always)]
    pub(crate) fn push(&mut self, rank: R, known: &R::Known) {
        debug_assert_eq!(self.position[rank.slot() as usize], ABSENT, "a task has one job in the queue");
        if self.hollow {
            self.hollow = false;
            self.sift_down(0, rank, known);
        } else {
            self.heap.push(rank);
            self.sift_up(self.heap.len() - 1, rank, known);
        }
    }

    /// The same for a job that most likely comes after all that wait.
    #[inline(always)]
    pub(crate) fn append(&mut self, rank: R, known: &R::Known) {
        if self.row.len() == self.row_max || self.row.back().is_some_and(|last| !last.precedes(&rank, known)) {
            return self.push(rank, known);
        }
        let number = self.row_first.wrapping_add(self.row.len() as u32) % IN_ROW;
        self.set_position(rank.slot(), IN_ROW | number);
        self.row.push_back(rank);
    }

    /// Takes the most important job out.
    #[inline]
    pub(crate) fn pop(&mut self, known: &R::Known) -> Option<R> {
        let top = self.pop_before_push(known)?;
        self.close(known);
        Some(top)
    }

    /// The same, cheaper where a push comes next: that takes the free place and does the work of both.
    #[inline]
    pub(crate) fn pop_before_push(&mut self, known: &R::Known) -> Option<R> {
        self.close(known);
        if let Some(first) = self.row.front()
            && self.heap.first().is_none_or(|top| first.precedes(top, known))
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
    pub(crate) fn remove(&mut self, slot: u32, known: &R::Known) -> bool {
        self.close(known);
        match self.position.get(slot as usize).copied() {
            Some(at) if at != ABSENT && at >= IN_ROW => {
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
            Some(at) if at != ABSENT => {
                self.set_position(slot, ABSENT);
                let last = self.heap.pop();
                if let Some(last) = last.filter(|_| (at as usize) < self.heap.len())
                    && self.sift_down(at as usize, last, known) == at as usize
                {
                    self.sift_up(at as usize, last, known);
                }
                true
            }
            _ => false,
        }
    }

    /// Takes every job out, in no order.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u32)) {
        if std::mem::take(&mut self.hollow) {
            self.heap.swap_remove(0);
        }
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
            if self.gaps == 0 || !self.row.front().is_some_and(R::is_gone) {
                return;
            }
            self.gaps -= 1;
        }
    }

    /// Fills the first place, if it is free.
    #[inline]
    fn close(&mut self, known: &R::Known) {
        if self.hollow {
            self.hollow = false;
            if let Some(last) = self.heap.pop() {
                self.sift_down(0, last, known);
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
    fn place(&mut self, at: usize, rank: R) {
        if let Some(place) = self.heap.get_mut(at) {
            *place = rank;
        }
        self.set_position(rank.slot(), at as u32);
    }

    /// Puts a job into this free place or one above it.
    #[inline]
    fn sift_up(&mut self, mut at: usize, rank: R, known: &R::Known) {
        while at > 0 {
            let above = (at - 1) / BELOW;
            let Some(other) = self.heap.get(above).copied().filter(|other| rank.precedes(other, known)) else { break };
            self.place(at, other);
            at = above;
        }
        self.place(at, rank);
    }

    /// Puts a job into this free place or one below it; which one that is.
    fn sift_down(&mut self, mut at: usize, rank: R, known: &R::Known) -> usize {
        while let Some((below, other)) = self.first_below(at, known)
            && other.precedes(&rank, known)
        {
            let other = *other;
            self.place(at, other);
            at = below;
        }
        self.place(at, rank);
        at
    }

    /// The most important of those below a place.
    #[inline(always)]
    fn first_below(&self, at: usize, known: &R::Known) -> Option<(usize, &R)> {
        let first = BELOW * at + 1;
        let below = self.heap.get(first..)?;
        let Some(four) = below.first_chunk::<BELOW>() else { return first_among(first, below, known) };
        // Without branches: nothing predicts these, and a wrong guess costs more than all of it.
        let [a, b, c, d] = four.each_ref().map(R::key);
        let (left, one) = select_unpredictable(b < a, (1, b), (0, a));
        let (right, other) = select_unpredictable(d < c, (3, d), (2, c));
        if a == b || c == d || one == other {
            return first_among(first, four, known);
        }
        let least = select_unpredictable(other < one, right, left);
        four.get(least).map(|rank| (first + least, rank))
    }
}

/// Which of both goes first.
#[inline(always)]
fn first_of<'a, R: Entry>(one: &'a R, other: &'a R, known: &R::Known) -> &'a R {
    if other.precedes(one, known) { other } else { one }
}

/// The most important of these, with its place: that of the first is known.
#[cold]
fn first_among<'a, R: Entry>(first: usize, these: &'a [R], known: &R::Known) -> Option<(usize, &'a R)> {
    let places = (first..).zip(these);
    places.reduce(|one, other| if other.1.precedes(one.1, known) { other } else { one })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_model::Time;

    use super::*;
    use crate::levels::{Short, Slot};
    use crate::rank::{Phase, Rank};

    /// Importance and arrival in ns of a slot's job.
    fn tie(slot: u32) -> (u32, u64) {
        (slot % 2, u64::from(slot % 3))
    }

    /// Against a sorted list of ranks: pushes, in order and out of it, pops and removals in any order.
    fn is_a_sorted_list<R: Entry>(
        steps: &[(u32, u64, u8)],
        with_row: bool,
        known: &R::Known,
        entry: impl Fn(Rank, u64) -> R,
    ) -> Result<(), TestCaseError> {
        let mut queue = if with_row { ReadyQueue::with_row(40) } else { ReadyQueue::new(40) };
        let mut now = 0;
        let mut list: Vec<Rank> = Vec::new();
        let slot_of = |rank: Option<Rank>| rank.map(|rank| Entry::slot(&rank));
        for &(slot, key, what) in steps {
            let place = list.iter().position(|rank| Entry::slot(rank) == slot);
            match what {
                0 | 4.. if place.is_none() => {
                    now += key;
                    let key = if what < 7 { now } else { key };
                    let (importance, arrival_ns) = tie(slot);
                    let rank = Rank::new(0, Phase::Fresh, key, importance, arrival_ns, slot);
                    let entry = entry(rank, key);
                    if what < 7 && with_row {
                        queue.append(entry, known)
                    } else {
                        queue.push(entry, known)
                    }
                    list.push(rank);
                    list.sort();
                }
                1 | 2 => {
                    let first = if list.is_empty() { None } else { Some(list.remove(0)) };
                    let popped = if what == 1 { queue.pop(known) } else { queue.pop_before_push(known) };
                    prop_assert_eq!(popped.map(|rank| rank.slot()), slot_of(first));
                }
                _ => {
                    prop_assert_eq!(queue.remove(slot, known), place.is_some());
                    place.map(|at| list.remove(at));
                }
            }
            prop_assert_eq!(queue.peek(known).map(R::slot), slot_of(list.first().copied()));
            prop_assert_eq!(queue.is_empty(), list.is_empty());
            prop_assert_eq!(queue.len(), list.len());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn the_heap_is_a_sorted_list(steps in proptest::collection::vec((0u32..40, 0u64..6, 0u8..9), 0..200), with_row: bool) {
            is_a_sorted_list(&steps, with_row, &(), |rank, _| rank)?;
            let slots: Vec<Slot> =
                (0..40).map(tie).map(|(importance, ns)| Slot::tied(importance, Time::from_ns(ns))).collect();
            is_a_sorted_list(&steps, with_row, &slots[..], |rank, key| Short { key, slot: Entry::slot(&rank) })?;
        }
    }
}
