//! A ring of events that wait for a sending thread. Its memory is allocated at the start.

use super::delivery::Stored;
use super::filter::Head;
use super::node::Full;

pub(super) struct Waiting {
    rows: Vec<(u64, Stored)>,
    first: usize,
    count: usize,
    /// The number of the event being sent.
    leaving: Option<u64>,
}

impl Waiting {
    /// A ring of `room` events.
    pub(super) fn new(room: usize, payload_max: usize) -> Waiting {
        Waiting { rows: vec![(0, Stored::room(payload_max)); room], first: 0, count: 0, leaving: None }
    }

    /// Whether any waits.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first number that has not been sent, if any.
    pub(super) fn oldest(&self) -> Option<u64> {
        let first = || self.rows.get(self.first).filter(|_| self.count > 0).map(|row| row.0);
        self.leaving.or_else(first)
    }

    /// Adds an event. Returns whether none was dropped for lack of room.
    pub(super) fn push(&mut self, full: Full, sequence: u64, head: &Head, payload: &[u8]) -> bool {
        let room = self.rows.len();
        let fits = self.count < room;
        if !fits {
            if full == Full::Newest {
                return false;
            }
            self.first = (self.first + 1) % room;
            self.count -= 1;
        }
        if let Some((number, event)) = self.rows.get_mut((self.first + self.count) % room) {
            *number = sequence;
            event.set(head, payload);
            self.count += 1;
        }
        fits
    }

    /// Swaps the oldest event into `into`. Returns whether there was one.
    pub(super) fn pop(&mut self, into: &mut (u64, Stored)) -> bool {
        self.leaving = None;
        if self.count == 0 {
            return false;
        }
        if let Some(row) = self.rows.get_mut(self.first) {
            std::mem::swap(row, into);
            self.leaving = Some(into.0);
        }
        self.first = (self.first + 1) % self.rows.len();
        self.count -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use takt_model::Time;

    use super::*;

    #[test]
    fn a_full_queue_keeps_what_its_policy_says_and_knows_what_has_not_been_sent() {
        for (full, left) in [(Full::Newest, [0, 1, 2]), (Full::Oldest, [2, 3, 4])] {
            let mut waiting = Waiting::new(3, 8);
            let mut row = (0, Stored::room(8));
            assert_eq!(waiting.oldest(), None);
            for number in 0..5 {
                let (sent, due, expires) = (Time::ZERO, Time::MAX, Time::MAX);
                let head = Head { kind: 1, source: 1, number, sent, due, expires };
                assert_eq!(waiting.push(full, number, &head, &[number as u8]), number < 3);
            }
            assert_eq!(waiting.oldest(), Some(left[0]));
            for number in left {
                assert!(waiting.pop(&mut row));
                // The event counts as being sent until the sender asks for the next one.
                assert_eq!((row.0, row.1.payload(), waiting.oldest()), (number, &[number as u8][..], Some(number)));
            }
            assert!(!waiting.pop(&mut row));
            assert_eq!(waiting.oldest(), None);
        }
    }
}
