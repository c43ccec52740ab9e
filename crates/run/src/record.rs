//! The recorder takes the threads' records out of their rings and merges them in time order. It
//! adds derived events: releases of a chain's successors, and missed deadlines. The result goes to
//! a sink, or to the [`Merge`] with the kernel's account.
//!
//! A record may be emitted once no thread can still write an earlier one. Each lane gives a lower
//! bound of its future stamps: its last stamp, or the next release while the thread sleeps. An idle
//! successor in a chain cannot start before the completion of the predecessor for which it waits.
//!
//! A thread writes the release of the job for which it woke up. The recorder adds the releases of
//! jobs that arrived while the thread was busy, or after its last look before the end, at their
//! nominal releases. Arrivals are a function of the seed, so both sides know them, and no burst of
//! releases can overflow a ring.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::Ordering;

use takt_log::{Event, JobKey, Parent, Sink};
use takt_model::draw::{Arriving, Releases};
use takt_model::{Span, TaskId, Time};
use takt_trace::merge::{Merge, Stamp, model_cpu};

use crate::lanes::{Kind, Lane, Record};

/// Receives the merged events.
pub(crate) trait Stamps {
    /// The next event, not before the last one.
    fn stamp(&mut self, stamp: Stamp);
    /// Says that no event before `until` will follow.
    fn until(&mut self, until: Time);
}

impl Stamps for Merge {
    fn stamp(&mut self, stamp: Stamp) {
        Merge::stamp(self, stamp);
    }
    fn until(&mut self, until: Time) {
        Merge::until(self, until);
    }
}

/// Passes events directly to a sink.
pub(crate) struct Plain<'a, S> {
    pub(crate) sink: &'a mut S,
    pub(crate) stream: u32,
}

impl<S: Sink> Stamps for Plain<'_, S> {
    fn stamp(&mut self, stamp: Stamp) {
        self.sink.event(self.stream, stamp.at, &stamp.event);
    }
    fn until(&mut self, until: Time) {
        self.sink.reached(self.stream, until);
    }
}

/// Merges lanes into one stream.
pub(crate) struct Recorder<'a, S> {
    out: S,
    /// The kernel's numbers of the CPUs, by model CPU.
    cpus: &'a [u32],
    lanes: Vec<MergedLane<'a>>,
    /// Lane indices, predecessors before successors.
    order: Vec<usize>,
    /// (deadline, lane, number) of incomplete jobs.
    deadlines: BinaryHeap<Reverse<(Time, usize, u64)>>,
    last_emitted: Time,
    lost: u64,
}

/// Properties of a lane's task that the recorder needs.
pub(crate) struct LaneTask<'a> {
    /// Relative deadline.
    pub(crate) deadline: Span,
    /// The jobs released during the whole run; `None` for a chain's successor.
    pub(crate) releases: Option<Releases<'a>>,
}

/// The recorder's side of a lane.
struct MergedLane<'a> {
    task: TaskId,
    deadline: Span,
    releases: Option<Releases<'a>>,
    /// Stamp of the last record taken.
    last: Time,
    /// Taken from the ring, not yet emitted.
    waiting: VecDeque<Record>,
    floor: Time,
    /// Jobs released and not completed, the oldest first.
    open: VecDeque<Open>,
    /// Per predecessor: positions of completed jobs not yet used by this lane.
    inputs: Vec<(usize, VecDeque<ChainPosition>)>,
    /// (successor, index into its inputs).
    outputs: Vec<(usize, usize)>,
    /// The number of the next job that predecessors release.
    next: u64,
}

#[derive(Clone, Copy)]
struct Open {
    number: u64,
    place: ChainPosition,
}

#[derive(Clone, Copy)]
struct ChainPosition {
    hop: u32,
    origin: Time,
}

impl<'a, S: Stamps> Recorder<'a, S> {
    /// `lane_tasks` stands in the order of the lanes.
    pub(crate) fn new(out: S, cpus: &'a [u32], lanes: &[Lane], lane_tasks: Vec<LaneTask<'a>>) -> Self {
        let mut merged: Vec<MergedLane<'a>> = lanes
            .iter()
            .zip(lane_tasks)
            .map(|(lane, task)| MergedLane {
                task: lane.task,
                deadline: task.deadline,
                releases: task.releases,
                last: Time::ZERO,
                waiting: VecDeque::new(),
                floor: Time::ZERO,
                open: VecDeque::new(),
                inputs: lane.after.iter().map(|before| (*before, VecDeque::new())).collect(),
                outputs: Vec::new(),
                next: 0,
            })
            .collect();
        for (index, lane) in lanes.iter().enumerate() {
            for (input, before) in lane.after.iter().enumerate() {
                if let Some(before) = merged.get_mut(*before) {
                    before.outputs.push((index, input));
                }
            }
        }
        let order = topological(lanes);
        let deadlines = BinaryHeap::new();
        Recorder { out, cpus, lanes: merged, order, deadlines, last_emitted: Time::ZERO, lost: 0 }
    }

    /// Takes what the threads have written and emits the certain events; the run ends at `end`.
    pub(crate) fn drain(&mut self, lanes: &[Lane], end: Time) {
        for (merged, lane) in self.lanes.iter_mut().zip(lanes) {
            // Read the floor first: records written after this have later stamps.
            merged.floor = Time::from_ns(lane.floor.load(Ordering::Acquire));
            while let Some(words) = lane.ring.pop() {
                merged.take(Record::from_words(words));
            }
            if merged.floor == Time::MAX {
                // The thread has ended, so the end is known. Jobs that it did not reach are still
                // released.
                merged.release_while(|next| next.release < end);
            }
        }
        let lost: u64 = lanes.iter().map(|lane| lane.ring.lost()).sum();
        self.emit_certain();
        if lost > self.lost {
            let event = Event::Lost { count: lost - self.lost };
            self.lost = lost;
            self.emit(None, self.last_emitted, event);
        }
    }

    /// The receiver of the events.
    pub(crate) fn out(&mut self) -> &mut S {
        &mut self.out
    }

    /// Emits the rest, after all threads have ended; the run ended at `end`. Returns the number of
    /// lost records, the time of the last event, and the receiver. After a signal a record may lie
    /// a little behind the end.
    pub(crate) fn finish(mut self, lanes: &[Lane], end: Time) -> (u64, Time, S) {
        self.drain(lanes, end);
        self.miss_before(Time::from_ns(end.max(self.last_emitted).as_ns().saturating_add(1)));
        (self.lost, self.last_emitted, self.out)
    }

    fn emit_certain(&mut self) {
        let mut bounds = Vec::new();
        loop {
            self.bounds(&mut bounds);
            let head = |lane: &MergedLane| lane.waiting.front().map(|record| (record.at, record.kind));
            let first = self.lanes.iter().enumerate().filter_map(|(i, lane)| head(lane).map(|head| (head, i))).min();
            let certain = bounds.iter().copied().min().unwrap_or(Time::MAX);
            match first {
                Some(((at, _), index)) if at <= certain => {
                    if let Some(record) = self.lanes.get_mut(index).and_then(|lane| lane.waiting.pop_front()) {
                        self.record(index, record);
                    }
                }
                _ => {
                    // No event can precede these deadlines any more. Once all threads have ended,
                    // the end of the run decides which of the later deadlines were missed.
                    if certain < Time::MAX {
                        self.miss_before(certain);
                        self.out.until(certain);
                    }
                    return;
                }
            }
        }
    }

    /// Per lane: no record that is not yet emitted has an earlier stamp.
    fn bounds(&self, bounds: &mut Vec<Time>) {
        bounds.clear();
        bounds.resize(self.lanes.len(), Time::ZERO);
        for index in &self.order {
            let Some(lane) = self.lanes.get(*index) else { continue };
            let bound = match lane.waiting.front() {
                Some(record) => record.at,
                None if lane.open.is_empty() => {
                    let idle = lane.inputs.iter().filter(|(_, jobs)| jobs.is_empty());
                    idle.filter_map(|(before, _)| bounds.get(*before).copied()).fold(lane.floor, Ord::max)
                }
                None => lane.floor,
            };
            if let Some(place) = bounds.get_mut(*index) {
                *place = bound;
            }
        }
    }

    fn record(&mut self, index: usize, record: Record) {
        self.miss_before(record.at);
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let job = JobKey { task: lane.task, number: record.number };
        match record.kind {
            Kind::Release => {
                let arrival = Time::from_ns(record.value);
                let place = ChainPosition { hop: 0, origin: arrival };
                self.release(index, record.number, record.at, arrival, place, None);
            }
            Kind::Start => {
                let cpu = self.cpu(record.value);
                self.emit(Some(index), record.at, Event::Start { job, cpu });
            }
            Kind::Complete => {
                let mut done = None;
                while lane.open.front().is_some_and(|open| open.number <= record.number) {
                    done = lane.open.pop_front().map(|open| open.place);
                }
                let outputs = lane.outputs.clone();
                let cpu = self.cpu(record.value);
                self.emit(Some(index), record.at, Event::Complete { job, cpu });
                if let Some(place) = done {
                    self.hand_on(&outputs, place, record.at);
                }
            }
        }
    }

    /// A job at `place` completed: successors that have all they wait for are released.
    fn hand_on(&mut self, outputs: &[(usize, usize)], place: ChainPosition, at: Time) {
        for (successor, input) in outputs {
            let Some(lane) = self.lanes.get_mut(*successor) else { continue };
            if let Some((_, jobs)) = lane.inputs.get_mut(*input) {
                jobs.push_back(place);
            }
            if lane.inputs.iter().any(|(_, jobs)| jobs.is_empty()) {
                continue;
            }
            let places: Vec<ChainPosition> = lane.inputs.iter_mut().filter_map(|(_, jobs)| jobs.pop_front()).collect();
            let hop = places.iter().map(|place| place.hop).max().unwrap_or(0).saturating_add(1);
            let origin = places.iter().map(|place| place.origin).min().unwrap_or(at);
            let number = lane.next;
            lane.next += 1;
            self.release(*successor, number, at, at, ChainPosition { hop, origin }, Some(Parent { hop, origin }));
        }
    }

    fn release(
        &mut self,
        index: usize,
        number: u64,
        at: Time,
        arrival: Time,
        place: ChainPosition,
        parent: Option<Parent>,
    ) {
        let Some(lane) = self.lanes.get_mut(index) else { return };
        lane.open.push_back(Open { number, place });
        self.deadlines.push(Reverse((arrival.saturating_add(lane.deadline), index, number)));
        let job = JobKey { task: lane.task, number };
        self.emit(Some(index), at, Event::Release { job, arrival, parent });
    }

    /// Emits the misses of deadlines before `now`.
    fn miss_before(&mut self, now: Time) {
        while let Some(Reverse((deadline, index, number))) = self.deadlines.peek().copied() {
            if deadline >= now {
                return;
            }
            self.deadlines.pop();
            let Some(lane) = self.lanes.get(index) else { continue };
            if lane.open.front().is_some_and(|open| open.number <= number) {
                let job = JobKey { task: lane.task, number };
                self.emit(Some(index), deadline, Event::Miss { job });
            }
        }
    }

    fn emit(&mut self, lane: Option<usize>, due: Time, event: Event) {
        // A job released only after its deadline is missed at its release: a stream never goes back.
        self.last_emitted = self.last_emitted.max(due);
        self.out.stamp(Stamp { at: self.last_emitted, due, lane, event });
    }

    fn cpu(&self, kernel: u64) -> u32 {
        u32::try_from(kernel).map_or(0, |kernel| model_cpu(self.cpus, kernel))
    }
}

impl MergedLane<'_> {
    /// A record from the ring, after the releases that came before it while the thread was busy.
    fn take(&mut self, record: Record) {
        if record.kind == Kind::Release {
            self.release_while(|next| next.number < record.number);
            if let Some(releases) = &mut self.releases {
                releases.next_if(|next| next.number == record.number);
            }
        } else {
            self.release_while(|next| next.release <= record.at);
        }
        self.last = record.at;
        self.waiting.push_back(record);
    }

    fn release_while(&mut self, wanted: impl Fn(&Arriving) -> bool) {
        let Some(releases) = &mut self.releases else { return };
        while let Some(job) = releases.next_if(&wanted) {
            // A release that the thread was too late for stands at the stamp before it.
            self.last = self.last.max(job.release);
            let (number, value) = (job.number, job.arrival.as_ns());
            self.waiting.push_back(Record { at: self.last, kind: Kind::Release, number, value });
        }
    }
}

fn topological(lanes: &[Lane]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(lanes.len());
    let mut placed = vec![false; lanes.len()];
    for _ in 0..lanes.len() {
        for (index, lane) in lanes.iter().enumerate() {
            let ready = lane.after.iter().all(|before| placed.get(*before) == Some(&true));
            if ready && placed.get(index) == Some(&false) {
                order.push(index);
                if let Some(place) = placed.get_mut(index) {
                    *place = true;
                }
            }
        }
        if order.len() == lanes.len() {
            break;
        }
    }
    order
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
