//! A buffer from a real-time thread to the recorder: one writer, one reader, no lock, no allocation
//! after creation.
//!
//! It consists of atomics, so it is correct without `unsafe`. A full buffer loses and counts the
//! new record; the writer never waits.

use std::sync::atomic::{AtomicU64, Ordering};

/// The content of one slot.
pub type Words = [u64; 4];

/// A single-writer, single-reader ring of records.
pub struct Ring {
    slots: Box<[[AtomicU64; 4]]>,
    /// Records ever written; only the writer stores.
    written: AtomicU64,
    /// Records ever read; only the reader stores.
    read: AtomicU64,
    /// Records that found the ring full.
    lost: AtomicU64,
}

impl Ring {
    /// A ring for at least `capacity` records.
    pub fn new(capacity: usize) -> Ring {
        let slots = (0..capacity.next_power_of_two()).map(|_| Default::default()).collect();
        Ring { slots, written: AtomicU64::new(0), read: AtomicU64::new(0), lost: AtomicU64::new(0) }
    }

    fn slot(&self, position: u64) -> Option<&[AtomicU64; 4]> {
        self.slots.get(position as usize & (self.slots.len() - 1))
    }

    /// Appends a record. Returns `false` if the ring was full and the record was lost. Writer only.
    #[inline]
    pub fn push(&self, words: Words) -> bool {
        let position = self.written.load(Ordering::Relaxed);
        let full = position.wrapping_sub(self.read.load(Ordering::Acquire)) >= self.slots.len() as u64;
        let Some(slot) = self.slot(position).filter(|_| !full) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        for (place, word) in slot.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.written.store(position.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest record. Reader only.
    pub fn pop(&self) -> Option<Words> {
        let position = self.read.load(Ordering::Relaxed);
        if position == self.written.load(Ordering::Acquire) {
            return None;
        }
        let slot = self.slot(position)?;
        let words = std::array::from_fn(|i| slot.get(i).map_or(0, |word| word.load(Ordering::Relaxed)));
        self.read.store(position.wrapping_add(1), Ordering::Release);
        Some(words)
    }

    /// How many records were lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_as_they_went_in_and_a_full_ring_counts() {
        let ring = Ring::new(3);
        assert!((0..4).all(|i| ring.push([i; 4])));
        assert!(!ring.push([9; 4]));
        assert_eq!((ring.pop(), ring.lost()), (Some([0; 4]), 1));
        assert!(ring.push([4; 4]));
        let rest: Vec<u64> = std::iter::from_fn(|| ring.pop()).map(|words| words[0]).collect();
        assert_eq!(rest, [1, 2, 3, 4]);
    }

    #[test]
    fn two_threads_see_whole_records_in_order() {
        const RECORDS: u64 = 100_000;
        let ring = Ring::new(64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..RECORDS {
                    while !ring.push([i, i, !i, i * 3]) {
                        std::thread::yield_now();
                    }
                }
            });
            for i in 0..RECORDS {
                let words = loop {
                    match ring.pop() {
                        Some(words) => break words,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(words, [i, i, !i, i * 3]);
            }
        });
    }
}
