//! The last events of a channel, in a ring of fixed size.
//!
//! Pushes need its lock. So a reader allocates before it takes the lock, and only copies under it.

use takt_linux::{Epoch, PiMutex};
use takt_model::Time;

use super::delivery::{Event, Stored};
use super::filter::{Head, Pattern};

/// The last events.
pub(super) struct History {
    events: Vec<Stored>,
    /// The next place, and the number of events held.
    next: usize,
    count: usize,
    /// The clock of the events' times. It stays after the channel is disconnected.
    clock: Option<Epoch>,
}

/// Copied events, oldest first: their heads with the length of each payload, and the payloads one
/// after the other.
struct Copies {
    heads: Vec<(Head, usize)>,
    payloads: Vec<u8>,
}

impl Copies {
    fn room(events: usize, payload_max: usize) -> Copies {
        let payloads = Vec::with_capacity(events.saturating_mul(payload_max));
        Copies { heads: Vec::with_capacity(events), payloads }
    }

    /// Adds an event. Returns whether there was room.
    fn add(&mut self, stored: &Stored) -> bool {
        let payload = stored.payload();
        let is_room =
            self.heads.len() < self.heads.capacity() && payload.len() <= self.payloads.capacity() - self.payloads.len();
        if is_room {
            self.heads.push((stored.head, payload.len()));
            self.payloads.extend_from_slice(payload);
        }
        is_room
    }

    fn show(&self, mut show: impl FnMut(&Event<'_>)) {
        let mut rest = self.payloads.as_slice();
        for (head, length) in &self.heads {
            let (payload, after) = rest.split_at((*length).min(rest.len()));
            rest = after;
            show(&Event { head: *head, payload, leaf: 0 });
        }
    }
}

impl History {
    pub(super) fn new(room: usize, payload_max: usize) -> History {
        History { events: vec![Stored::room(payload_max); room], next: 0, count: 0, clock: None }
    }

    /// Clears the history for a connection with another clock.
    pub(super) fn begin(&mut self, clock: Epoch) {
        (self.next, self.count, self.clock) = (0, 0, Some(clock));
    }

    fn now(&self) -> Time {
        self.clock.map_or(Time::ZERO, Epoch::now)
    }

    pub(super) fn remember(&mut self, head: &Head, payload: &[u8]) {
        let room = self.events.len();
        if let Some(stored) = self.events.get_mut(self.next) {
            stored.set(head, payload);
            self.next = (self.next + 1) % room;
            self.count = (self.count + 1).min(room);
        }
    }

    /// Copies matching events that have not expired, oldest first, while there is room.
    fn copy(&self, pattern: Pattern, now: Time, into: &mut Copies) {
        let (newer, older) = self.events.split_at(self.next.min(self.events.len()));
        let there = older.iter().chain(newer).skip(self.events.len() - self.count);
        let mut meant = there.filter(|stored| pattern.has(&stored.head) && stored.head.expires >= now);
        // Events without room came after the allocation.
        let _ = meant.all(|stored| into.add(stored));
    }
}

/// Shows matching events that have not expired, oldest first.
pub(super) fn show(history: &PiMutex<History>, payload_max: usize, pattern: Pattern, show: impl FnMut(&Event<'_>)) {
    let there = history.lock().count;
    let mut copies = Copies::room(there, payload_max);
    let history = history.lock();
    history.copy(pattern, history.now(), &mut copies);
    drop(history);
    copies.show(show);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(number: u64, expires: Time) -> Head {
        Head { kind: 1, source: 1, number, sent: Time::ZERO, due: Time::MAX, expires }
    }

    fn shown(copies: &Copies) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        copies.show(|event| all.push((event.head.number, event.payload.to_vec())));
        all
    }

    #[test]
    fn nothing_is_allocated_under_the_lock_whatever_came_since_the_room_was_made() {
        let mut history = History::new(4, 8);
        for number in 0..6 {
            history.remember(&head(number, Time::MAX), &[number as u8; 8]);
        }
        for room in [0, 2, 4] {
            let mut copies = Copies::room(room, 8);
            let copy = || history.copy(Pattern::ANY, Time::ZERO, &mut copies);
            assert_eq!(allocation_counter::measure(copy).count_total, 0, "{room}");
            let expected: Vec<_> = (2..2 + room as u64).map(|number| (number, vec![number as u8; 8])).collect();
            assert_eq!(shown(&copies), expected);
        }
    }

    #[test]
    fn payloads_are_those_of_their_events() {
        let mut history = History::new(3, 8);
        let ns = Time::from_ns;
        for (number, expires, payload) in
            [(0, Time::MAX, &b"gone"[..]), (1, Time::MAX, b"a"), (2, ns(5), b"over"), (3, ns(9), b"")]
        {
            history.remember(&head(number, expires), payload);
        }
        let mut copies = Copies::room(3, 8);
        history.copy(Pattern::ANY, ns(9), &mut copies);
        assert_eq!(shown(&copies), [(1, b"a".to_vec()), (3, Vec::new())]);
        history.begin(Epoch::now_is_zero());
        let mut copies = Copies::room(3, 8);
        history.copy(Pattern::ANY, ns(9), &mut copies);
        assert_eq!(shown(&copies), []);
    }
}
