//! What the CPUs of a dispatcher tell, as events of a log: facts travel through a ring a CPU, written under the CPU's lock, and are merged by
//! time here. Misses are added, and preemptions: on one CPU a job that starts takes it from the one that ran.
//!
//! So a preemption is one by another job of this dispatcher; what other threads of the machine did is not known. A job whose code slept
//! while a less important one started has a `Gap` there: when it went on nobody told.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use takt_log::{CancelCause, Event, JobKey, Parent, Sink};
use takt_model::{Span, TaskId, Time};

use super::core::{Fact, Tell, Told};
use crate::ring::{Ring, Words};

const RELEASE: u64 = 0;
const START: u64 = 1;
const COMPLETE: u64 = 2;
const CANCEL: u64 = 3;
const MODE: u64 = 4;
const IDLE: u64 = 5;

/// The causes of `Fact::Cancel`, in the order of their numbers here.
const CAUSES: [CancelCause; 5] =
    [CancelCause::Omitted, CancelCause::Shed, CancelCause::Late, CancelCause::Rejected, CancelCause::Failed];

/// Four words of a ring: time, what and which slot, number, value. A job that follows others arrives when it is released, so that its value is
/// its origin; the origin of any other is its arrival.
fn to_words(told: Told) -> Words {
    let (code, extra, value) = match told.fact {
        Fact::Release { origin, .. } => (RELEASE, 0, origin.as_ns()),
        Fact::Start { level } => (START, u64::from(level), 0),
        Fact::Complete => (COMPLETE, 0, 0),
        Fact::Cancel(cause) => (CANCEL, CAUSES.iter().position(|known| *known == cause).unwrap_or(0) as u64, 0),
        Fact::Mode { plan, next } => (MODE, u64::from(plan), u64::from(next)),
        Fact::Idle { level, next } => (IDLE, u64::from(level) | u64::from(next) << 8, 0),
    };
    [told.at.as_ns(), code | extra << 8 | u64::from(told.slot) << 32, told.number, value]
}

fn from_words([at, what, number, value]: Words, follows: impl Fn(u32) -> bool) -> Told {
    let (at, slot, extra) = (Time::from_ns(at), (what >> 32) as u32, (what >> 8) as u32 & 0xFF_FFFF);
    let fact = match what & 0xFF {
        RELEASE => {
            let origin = Time::from_ns(value);
            Fact::Release { arrival: if follows(slot) { at } else { origin }, origin }
        }
        START => Fact::Start { level: extra },
        COMPLETE => Fact::Complete,
        CANCEL => Fact::Cancel(CAUSES.get(extra as usize).copied().unwrap_or(CancelCause::Omitted)),
        MODE => Fact::Mode { plan: extra, next: value as u32 },
        _ => Fact::Idle { level: extra & 0xFF, next: extra >> 8 },
    };
    Told { at, slot, number, fact }
}

/// The writer's end of a CPU's ring.
pub(crate) struct Teller(pub(crate) Arc<Ring>);

impl Tell for Teller {
    fn tell(&mut self, told: Told) {
        self.0.push(to_words(told));
    }
}

/// What is known of an operation beforehand.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) task: TaskId,
    pub(crate) deadline: Span,
    /// Links before it on the longest way from a source.
    pub(crate) hop: u32,
    /// Its level, by plan.
    pub(crate) levels: Vec<u32>,
}

/// A job that has started and is not over.
#[derive(Clone, Copy)]
struct Started {
    /// The level of its thread.
    level: u32,
    slot: u32,
    job: JobKey,
}

/// One CPU's side.
struct Lane {
    cpu: u32,
    ring: Arc<Ring>,
    known: Vec<Known>,
    /// Taken from the ring, not yet told.
    waiting: VecDeque<Told>,
    /// Nothing older will come.
    floor: Time,
    /// In the order in which they started.
    started: Vec<Started>,
    /// The one of these that is known to have the CPU.
    running: Option<Started>,
    lost: u64,
    /// The deadlines of released jobs that have not ended, the next first.
    deadlines: BinaryHeap<Reverse<(Time, JobKey)>>,
    /// Whether these were missed.
    open: BTreeMap<JobKey, bool>,
}

/// Merges what the CPUs tell.
pub(crate) struct Merger {
    lanes: Vec<Lane>,
    stream: u32,
    last: Time,
    mode: u32,
}

impl Merger {
    /// For CPUs in order: their rings, and what is known of their slots.
    pub(crate) fn new(stream: u32, cpus: impl IntoIterator<Item = (Arc<Ring>, Vec<Known>)>) -> Merger {
        let lanes = (cpus.into_iter().zip(0..))
            .map(|((ring, known), cpu)| Lane {
                cpu,
                ring,
                known,
                waiting: VecDeque::new(),
                floor: Time::ZERO,
                started: Vec::new(),
                running: None,
                lost: 0,
                deadlines: BinaryHeap::new(),
                open: BTreeMap::new(),
            })
            .collect();
        Merger { lanes, stream, last: Time::ZERO, mode: 0 }
    }

    /// Tells what is certain by now; `floor` says of each CPU since when nothing older can come. Until when that is all.
    pub(crate) fn drain(&mut self, floor: impl Fn(usize) -> Time, sink: &mut (impl Sink + ?Sized)) -> Time {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            // First the floor: what is told meanwhile is no older.
            let at_least = floor(index);
            while let Some(words) = lane.ring.pop() {
                let told = from_words(words, |slot| lane.known.get(slot as usize).is_some_and(|known| known.hop > 0));
                lane.waiting.push_back(told);
            }
            lane.floor = lane.floor.max(at_least);
        }
        let until = self.lanes.iter().map(|lane| lane.floor).min().unwrap_or(Time::ZERO);
        self.tell_until(until, sink);
        until
    }

    fn tell_until(&mut self, until: Time, sink: &mut (impl Sink + ?Sized)) {
        loop {
            let first = |lane: &Lane| lane.waiting.front().map(|told| told.at);
            let next = (self.lanes.iter().enumerate())
                .filter_map(|(index, lane)| first(lane).filter(|at| *at < until).map(|at| (at, index)))
                .min();
            self.miss_before(next.map_or(until, |(at, _)| at), sink);
            let Some((_, index)) = next else { return };
            let Some(told) = self.lanes.get_mut(index).and_then(|lane| lane.waiting.pop_front()) else { return };
            self.tell(index, told, sink);
        }
    }

    /// The misses of jobs that have not ended and whose deadline lies before `now`.
    fn miss_before(&mut self, now: Time, sink: &mut (impl Sink + ?Sized)) {
        loop {
            let due = |lane: &mut Lane| loop {
                let Reverse((at, job)) = *lane.deadlines.peek()?;
                if lane.open.contains_key(&job) {
                    return Some(at).filter(|at| *at < now);
                }
                lane.deadlines.pop();
            };
            let Some((_, index)) =
                self.lanes.iter_mut().enumerate().filter_map(|(index, lane)| Some((due(lane)?, index))).min()
            else {
                return;
            };
            let Some(lane) = self.lanes.get_mut(index) else { return };
            let Some(Reverse((at, job))) = lane.deadlines.pop() else { return };
            lane.open.insert(job, true);
            self.last = self.last.max(at);
            sink.event(self.stream, self.last, &Event::Miss { job });
        }
    }

    fn tell(&mut self, index: usize, told: Told, sink: &mut (impl Sink + ?Sized)) {
        let Some(lane) = self.lanes.get_mut(index) else { return };
        self.last = self.last.max(told.at);
        let (now, stream, cpu) = (self.last, self.stream, lane.cpu);
        let lost = lane.ring.lost();
        if lost > lane.lost {
            sink.event(stream, now, &Event::Lost { count: lost - lane.lost });
            lane.lost = lost;
        }
        let known = lane.known.get(told.slot as usize).cloned();
        let job = |known: &Known| JobKey { task: known.task, number: told.number };
        match (told.fact, known) {
            (Fact::Mode { plan, next }, _) => {
                // Every CPU tells it; the first counts.
                if self.mode != plan {
                    self.mode = plan;
                    sink.event(stream, now, &Event::ModeChange { mode: plan });
                }
                lane.adopt(plan);
                // A job that started before may go first now.
                if let (Some(running), Some(first)) = (lane.running, lane.most_important())
                    && first.level.min(next) < running.level
                {
                    lane.running = Some(first).filter(|first| first.level <= next);
                    sink.event(stream, now, &Event::Preempt { job: running.job, cpu });
                    if let Some(Started { job, .. }) = lane.running {
                        sink.event(stream, now, &Event::Resume { job, cpu });
                    }
                }
            }
            (Fact::Idle { level, next }, _) => {
                // Who had to wait has the CPU again, unless it is a more important one, which sleeps, or another goes first.
                if let Some(first) =
                    lane.most_important().filter(|first| lane.running.is_none() && first.level >= level)
                    && first.level <= next
                {
                    lane.running = Some(first);
                    sink.event(stream, now, &Event::Resume { job: first.job, cpu });
                }
            }
            (Fact::Release { arrival, origin }, Some(known)) => {
                let parent = (known.hop > 0).then_some(Parent { hop: known.hop, origin });
                let job = job(&known);
                lane.open.insert(job, false);
                lane.deadlines.push(Reverse((arrival.saturating_add(known.deadline), job)));
                sink.event(stream, now, &Event::Release { job, arrival, parent });
            }
            (Fact::Start { level }, Some(known)) => {
                if let Some(before) = lane.running {
                    let event = if level < before.level {
                        Event::Preempt { job: before.job, cpu }
                    } else {
                        Event::Gap { job: before.job }
                    };
                    sink.event(stream, now, &event);
                }
                let started = Started { level, slot: told.slot, job: job(&known) };
                lane.started.push(started);
                lane.running = Some(started);
                sink.event(stream, now, &Event::Start { job: started.job, cpu });
            }
            (Fact::Complete, Some(known)) => {
                let job = job(&known);
                lane.leave(job);
                sink.event(stream, now, &Event::Complete { job, cpu });
            }
            (Fact::Cancel(cause), Some(known)) => {
                let job = job(&known);
                let missed = lane.leave(job);
                if cause == CancelCause::Late && !missed {
                    // Dropped at its very deadline.
                    sink.event(stream, now, &Event::Miss { job });
                }
                sink.event(stream, now, &Event::Cancel { job, cause });
            }
            (_, None) => {}
        }
    }

    /// The end came at `end`: tells the rest.
    pub(crate) fn finish(mut self, end: Time, sink: &mut (impl Sink + ?Sized)) -> (u64, Time) {
        // Nothing is told any more: what is in the rings is all.
        self.drain(|_| Time::ZERO, sink);
        let last = self.lanes.iter().filter_map(|lane| lane.waiting.back()).map(|told| told.at).max();
        self.tell_until(end.max(last.unwrap_or(end)).saturating_add(Span::from_ns(1)), sink);
        let unseen = |lane: &Lane| lane.ring.lost().saturating_sub(lane.lost);
        let count: u64 = self.lanes.iter().map(unseen).sum();
        if count > 0 {
            sink.event(self.stream, self.last, &Event::Lost { count });
        }
        (self.lanes.iter().map(|lane| lane.ring.lost()).sum(), self.last)
    }
}

impl Lane {
    /// The first that started of those of the most important level.
    fn most_important(&self) -> Option<Started> {
        self.started.iter().min_by_key(|started| started.level).copied()
    }

    /// Another plan holds: started jobs go by it, but for those that were demoted.
    fn adopt(&mut self, plan: u32) {
        for started in self.started.iter_mut().chain(&mut self.running) {
            let levels = self.known.get(started.slot as usize).map(|known| &known.levels);
            let demoted = levels.is_some_and(|levels| levels.iter().all(|level| *level < started.level));
            if demoted {
                continue;
            }
            if let Some(level) = levels.and_then(|levels| levels.get(plan as usize)) {
                started.level = *level;
            }
        }
    }

    /// A job is over; whether it was missed before.
    fn leave(&mut self, job: JobKey) -> bool {
        let missed = self.open.remove(&job).unwrap_or(false);
        self.running = self.running.filter(|running| running.job != job);
        self.started.retain(|other| other.job != job);
        missed
    }
}
