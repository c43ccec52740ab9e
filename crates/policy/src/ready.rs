//! The queue of jobs that wait for a CPU. It is a heap of fixed capacity with four children per
//! place. Any job can be removed, because jobs are dropped and modes change. Jobs that arrive in
//! order are kept in a row beside the heap.
//!
//! The four children of a place are a group. Places are numbered through all groups. The heap's
//! first place is the last one of group 0, and the other places of group 0 are unused. So the
//! children of place `at` are group `at - 2`.

use std::collections::VecDeque;
use std::hint::select_unpredictable;

use crate::rank::Entry;

const ABSENT: u32 = u32::MAX;
/// In a position: in the row, at the place with this number.
const IN_ROW: u32 = 1 << 30;
/// The children of each place of the heap.
const ARITY: usize = 4;
/// The heap's first place.
const ROOT: usize = ARITY - 1;

/// The children of one place, with [`Entry::FILLER`] where there is none.
type Group<R> = [R; ARITY];

/// The group of a place's children.
#[inline(always)]
fn child_group(at: usize) -> usize {
    at.wrapping_sub(ARITY - 2)
}

/// Whether no other place of its group is used before this one.
#[inline(always)]
fn is_first_of_group(at: usize) -> bool {
    at == ROOT || at.is_multiple_of(ARITY)
}

/// A heap of ranks with the position of each slot.
#[derive(Clone, Debug)]
pub(crate) struct ReadyQueue<R: Entry> {
    /// The groups that hold a job.
    groups: Vec<Group<R>>,
    /// Jobs in the heap, with the removed one at the root if `root_vacant`.
    heaped: usize,
    /// Whether the root still holds a job that was taken. The next arrival may fill it. False if the heap has no other
    /// job.
    root_vacant: bool,
    /// Jobs that came in their order, each behind all before. A job that is taken out of the middle
    /// leaves a gap. The first is never a gap.
    row: VecDeque<R>,
    row_max: usize,
    gaps: usize,
    /// The number of the row's first place, below [`IN_ROW`].
    row_first: u32,
    /// Place in the heap or in `row`, by slot.
    position: Vec<u32>,
}

impl<R: Entry> ReadyQueue<R> {
    /// A queue for slots 0 to `slots` - 1.
    pub(crate) fn new(slots: usize) -> Self {
        ReadyQueue {
            groups: Vec::with_capacity(slots.div_ceil(ARITY) + 1),
            heaped: 0,
            root_vacant: false,
            row: VecDeque::new(),
            row_max: 0,
            gaps: 0,
            row_first: 0,
            position: vec![ABSENT; slots],
        }
    }

    /// The same for jobs that mostly come in their order. [`ReadyQueue::append`] then takes constant time.
    pub(crate) fn with_row(slots: usize) -> Self {
        ReadyQueue { row: VecDeque::with_capacity(slots), row_max: slots, ..ReadyQueue::new(slots) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heaped == 0 && self.row.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.heaped - usize::from(self.root_vacant) + self.row.len() - self.gaps
    }

    /// The most important waiting job.
    #[inline]
    pub(crate) fn peek(&self, ties: &R::Ties) -> Option<&R> {
        let first = |one, other| first_of(one, other, ties);
        let root =
            if self.root_vacant { self.groups.get(child_group(ROOT))?.iter().reduce(first) } else { self.root() };
        root.into_iter().chain(self.row.front()).reduce(first)
    }

    // Inlined to keep the rank in registers: reading a value as a whole is slow just after it was
    // written in halves.
    /// A job waits from now on.
    #[inline(always)]
    pub(crate) fn push(&mut self, rank: R, ties: &R::Ties) {
        debug_assert_eq!(self.position[rank.slot() as usize], ABSENT, "a task has one job in the queue");
        if self.root_vacant {
            self.root_vacant = false;
            self.sift_down(ROOT, rank, ties);
        } else {
            let at = self.heaped.wrapping_add(ROOT);
            if is_first_of_group(at) {
                self.groups.push([R::FILLER; ARITY]);
            }
            self.heaped = self.heaped.wrapping_add(1);
            self.sift_up(at, rank, ties);
        }
    }

    /// The same for a job that most likely comes after all that wait.
    #[inline(always)]
    pub(crate) fn append(&mut self, rank: R, ties: &R::Ties) {
        if self.row.len() == self.row_max || self.row.back().is_some_and(|last| !last.precedes(&rank, ties)) {
            return self.push(rank, ties);
        }
        let number = self.row_first.wrapping_add(self.row.len() as u32) % IN_ROW;
        self.set_position(rank.slot(), IN_ROW | number);
        self.row.push_back(rank);
    }

    /// Takes the most important job out.
    #[inline]
    pub(crate) fn pop(&mut self, ties: &R::Ties) -> Option<R> {
        let first = self.pop_before_push(ties)?;
        self.fill_root(ties);
        Some(first)
    }

    /// The same, cheaper if a push comes next. The push then fills the root and does the work of both.
    #[inline]
    pub(crate) fn pop_before_push(&mut self, ties: &R::Ties) -> Option<R> {
        self.fill_root(ties);
        if let Some(first) = self.row.front()
            && self.root().is_none_or(|root| first.precedes(root, ties))
        {
            let first = *first;
            self.set_position(first.slot(), ABSENT);
            self.leave_row();
            return Some(first);
        }
        let root = *self.root()?;
        self.set_position(root.slot(), ABSENT);
        if self.heaped == 1 {
            self.groups.clear();
            self.heaped = 0;
        } else {
            self.root_vacant = true;
        }
        Some(root)
    }

    /// Takes the job of `slot` out, if it waits here.
    pub(crate) fn remove(&mut self, slot: u32, ties: &R::Ties) -> bool {
        self.fill_root(ties);
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
                let (place, last) = self.take_last();
                if place != at as usize && self.sift_down(at as usize, last, ties) == at as usize {
                    self.sift_up(at as usize, last, ties);
                }
                true
            }
            _ => false,
        }
    }

    /// Takes every job out, in no order.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u32)) {
        if std::mem::take(&mut self.root_vacant) {
            self.set_place(ROOT, R::FILLER);
        }
        let heaped = self.groups.iter().flatten().copied();
        for rank in heaped.chain(self.row.iter().copied()).filter(|rank| !rank.is_gone()) {
            if let Some(position) = self.position.get_mut(rank.slot() as usize) {
                *position = ABSENT;
            }
            each(rank.slot());
        }
        self.groups.clear();
        self.row.clear();
        (self.heaped, self.gaps) = (0, 0);
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

    /// Fills the root, if it is vacant.
    #[inline]
    fn fill_root(&mut self, ties: &R::Ties) {
        if self.root_vacant {
            self.root_vacant = false;
            // The last place is not the root, because the heap has another job.
            let (_, last) = self.take_last();
            self.sift_down(ROOT, last, ties);
        }
    }

    /// The first job of the heap.
    #[inline]
    fn root(&self) -> Option<&R> {
        self.groups.first().map(|group| &group[ROOT])
    }

    /// Removes the job at the heap's last place and returns it with its place.
    fn take_last(&mut self) -> (usize, R) {
        self.heaped = self.heaped.wrapping_sub(1);
        let at = self.heaped.wrapping_add(ROOT);
        let Some(group) = self.groups.last_mut() else { return (at, R::FILLER) };
        let last = std::mem::replace(&mut group[at % ARITY], R::FILLER);
        if is_first_of_group(at) {
            self.groups.pop();
        }
        (at, last)
    }

    #[inline]
    fn set_position(&mut self, slot: u32, at: u32) {
        if let Some(position) = self.position.get_mut(slot as usize) {
            *position = at;
        }
    }

    #[inline(always)]
    fn set_place(&mut self, at: usize, rank: R) {
        if let Some(place) = self.groups.as_flattened_mut().get_mut(at) {
            *place = rank;
        }
    }

    #[inline(always)]
    fn place(&mut self, at: usize, rank: R) {
        self.set_place(at, rank);
        self.set_position(rank.slot(), at as u32);
    }

    /// Puts a job into this free place or one above it.
    #[inline]
    fn sift_up(&mut self, mut at: usize, rank: R, ties: &R::Ties) {
        while at > ROOT {
            let above = (at / ARITY).wrapping_add(ARITY - 2);
            let other = self.groups.as_flattened().get(above).copied();
            let Some(other) = other.filter(|other| rank.precedes(other, ties)) else { break };
            self.place(at, other);
            at = above;
        }
        self.place(at, rank);
    }

    /// Puts a job into this free place or into a place below it. Returns the place.
    fn sift_down(&mut self, mut at: usize, rank: R, ties: &R::Ties) -> usize {
        while let Some(group) = self.groups.get(child_group(at)) {
            let least = first_among(group, ties);
            let other = group[least % ARITY];
            if !other.precedes(&rank, ties) {
                break;
            }
            self.place(at, other);
            at = child_group(at).wrapping_mul(ARITY).wrapping_add(least);
        }
        self.place(at, rank);
        at
    }
}

/// Which of four goes first.
#[inline(always)]
fn first_among<R: Entry>(four: &[R; ARITY], ties: &R::Ties) -> usize {
    // Without branches: nothing predicts these, and a wrong guess costs more than all of it.
    let [a, b, c, d] = four.each_ref().map(R::key);
    let (left, right) = (b < a, d < c);
    let (one, other) = (select_unpredictable(left, b, a), select_unpredictable(right, d, c));
    if a == b || c == d || one == other {
        return first_of_ties(four, ties);
    }
    select_unpredictable(other < one, 2 + usize::from(right), usize::from(left))
}

/// The same, whatever they are.
#[cold]
fn first_of_ties<R: Entry>(four: &[R; ARITY], ties: &R::Ties) -> usize {
    let places = (0..).zip(four);
    places.reduce(|one, other| if other.1.precedes(one.1, ties) { other } else { one }).map_or(0, |(at, _)| at)
}

/// Which of both goes first.
#[inline(always)]
fn first_of<'a, R: Entry>(one: &'a R, other: &'a R, ties: &R::Ties) -> &'a R {
    if other.precedes(one, ties) { other } else { one }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_model::Time;

    use super::*;
    use crate::levels::{LevelSlot, QueueEntry};
    use crate::rank::{Phase, Rank};

    /// Importance and arrival in ns of a slot's job.
    fn tie(slot: u32) -> (u32, u64) {
        (slot % 2, u64::from(slot % 3))
    }

    /// Against a sorted list of ranks: pushes, in order and out of it, pops and removals in any order.
    fn is_a_sorted_list<R: Entry>(
        steps: &[(u32, u64, u8)],
        with_row: bool,
        ties: &R::Ties,
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
                        queue.append(entry, ties)
                    } else {
                        queue.push(entry, ties)
                    }
                    list.push(rank);
                    list.sort();
                }
                1 | 2 => {
                    let first = if list.is_empty() { None } else { Some(list.remove(0)) };
                    let popped = if what == 1 { queue.pop(ties) } else { queue.pop_before_push(ties) };
                    prop_assert_eq!(popped.map(|rank| rank.slot()), slot_of(first));
                }
                _ => {
                    prop_assert_eq!(queue.remove(slot, ties), place.is_some());
                    place.map(|at| list.remove(at));
                }
            }
            prop_assert_eq!(queue.peek(ties).map(R::slot), slot_of(list.first().copied()));
            prop_assert_eq!(queue.is_empty(), list.is_empty());
            prop_assert_eq!(queue.len(), list.len());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn the_heap_is_a_sorted_list(
            steps in proptest::collection::vec((0u32..40, 0u64..6, 0u8..9), 0..200),
            with_row: bool,
        ) {
            is_a_sorted_list(&steps, with_row, &(), |rank, _| rank)?;
            let slots: Vec<LevelSlot> =
                (0..40).map(tie).map(|(importance, ns)| LevelSlot::tied(importance, Time::from_ns(ns))).collect();
            is_a_sorted_list(&steps, with_row, &slots[..], |rank, key| QueueEntry { key, slot: Entry::slot(&rank) })?;
        }
    }
}
