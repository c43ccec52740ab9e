//! The bytes that messages carry between handlers, by slot of the node and number of the job. Pure.
//!
//! Each slot keeps the bytes of its last [`KEPT`] jobs. One thread writes a place before another reads
//! it, so nobody waits. A place in use is passed over, and its bytes are lost.

use std::sync::{Arc, Mutex};

use takt_model::Time;

use super::plan::{NodePlan, Part};

/// Jobs of a slot whose bytes are kept.
pub(crate) const KEPT: usize = 64;

#[derive(Default)]
struct Place {
    number: Option<u64>,
    bytes: Vec<u8>,
    /// The nominal arrival and the release of the job, once a receiving job has released it.
    released: Option<(Time, Time)>,
}

/// The bytes of one slot, one way.
pub(crate) struct Ring {
    places: Vec<Mutex<Place>>,
    /// Bytes of a place.
    room: usize,
}

impl Ring {
    fn new(room: usize) -> Ring {
        let place = || Mutex::new(Place { bytes: Vec::with_capacity(room), ..Place::default() });
        Ring { places: (0..KEPT).map(|_| place()).collect(), room }
    }

    /// The most bytes of a job.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    fn place(&self, number: u64) -> Option<&Mutex<Place>> {
        self.places.get((number % KEPT as u64) as usize)
    }

    /// Writes the bytes of a job, at most as many as there is room for. It allocates nothing.
    pub(crate) fn write(&self, number: u64, bytes: &[u8]) {
        let Some(Ok(mut place)) = self.place(number).map(Mutex::try_lock) else { return };
        (place.number, place.released) = (Some(number), None);
        place.bytes.clear();
        place.bytes.extend(bytes.iter().take(self.room));
    }

    /// A job whose bytes are kept was released.
    pub(crate) fn release(&self, number: u64, arrival: Time, release: Time) {
        let Some(Ok(mut place)) = self.place(number).map(Mutex::try_lock) else { return };
        if place.number == Some(number) {
            place.released = Some((arrival, release));
        }
    }

    /// The nominal arrival and the release of a job. `None`: they are not there.
    pub(crate) fn released(&self, number: u64) -> Option<(Time, Time)> {
        let Some(Ok(place)) = self.place(number).map(Mutex::try_lock) else { return None };
        place.released.filter(|_| place.number == Some(number))
    }

    /// Reads the bytes of a job into an empty buffer. `false`: they are not there.
    pub(crate) fn read(&self, number: u64, into: &mut Vec<u8>) -> bool {
        into.clear();
        let Some(Ok(place)) = self.place(number).map(Mutex::try_lock) else { return false };
        let found = place.number == Some(number);
        if found {
            into.extend_from_slice(&place.bytes);
        }
        found
    }
}

/// The bytes of all messages of a node, by slot.
#[derive(Default)]
pub(crate) struct Payloads {
    /// For jobs that messages release.
    pub(crate) input: Vec<Option<Arc<Ring>>>,
    /// Of jobs that leave messages.
    pub(crate) output: Vec<Option<Ring>>,
}

impl Payloads {
    pub(crate) fn new(plan: &NodePlan) -> Payloads {
        let mut payloads = Payloads::default();
        let most = |bytes: usize| bytes.saturating_sub(takt_net::MESSAGE_MIN);
        for part in &plan.parts {
            let (input, output) = match part {
                Part::Hop { hop, lane, .. } => {
                    let lane = lane.and_then(|lane| plan.lanes.get(lane as usize));
                    ((*hop > 0).then_some(most(plan.longest)), lane.map(|lane| most(lane.bytes)))
                }
                _ => (None, None),
            };
            payloads.input.push(input.map(Ring::new).map(Arc::new));
            payloads.output.push(output.map(Ring::new));
        }
        payloads
    }

    pub(crate) fn input(&self, slot: u32) -> Option<&Arc<Ring>> {
        self.input.get(slot as usize)?.as_ref()
    }

    pub(crate) fn output(&self, slot: u32) -> Option<&Ring> {
        self.output.get(slot as usize)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_the_last_jobs_are_kept() {
        let ring = Ring::new(4);
        let mut bytes = Vec::new();
        assert!(!ring.read(0, &mut bytes));
        for number in 0..KEPT as u64 + 2 {
            ring.write(number, &[number as u8; 6]);
        }
        assert!(!ring.read(1, &mut bytes) && bytes.is_empty(), "a later job has its place");
        assert!(ring.read(2, &mut bytes));
        assert_eq!((bytes.as_slice(), ring.room()), (&[2; 4][..], 4));
        let times = (Time::from_ns(1), Time::from_ns(5));
        ring.release(1, times.0, times.1);
        ring.release(2, times.0, times.1);
        assert_eq!((ring.released(1), ring.released(2)), (None, Some(times)));
        ring.write(2, &[]);
        assert!(ring.read(2, &mut bytes) && bytes.is_empty());
        assert_eq!(ring.released(2), None, "these are other bytes");
    }
}
