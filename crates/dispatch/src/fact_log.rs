//! The log of a dispatcher's CPUs. Each CPU writes facts into a ring under its lock. This module
//! merges the facts by time and adds misses and preemptions: a job that starts preempts the running
//! job of its CPU.
//!
//! A preemption is by another job of this dispatcher; other threads of the machine are unknown. If
//! a job's code slept while a less important job started, the log has a `Gap` there, because its
//! return to the CPU is unknown.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use takt_log::{CancelCause, Event, JobKey, Parent, Sink};
use takt_model::{Span, TaskId, Time};

use super::fact::{Fact, FactSink, TimedFact};
use crate::ring::{Ring, Words};

const RELEASE: u64 = 0;
const START: u64 = 1;
const COMPLETE: u64 = 2;
const CANCEL: u64 = 3;
const MODE: u64 = 4;
const IDLE: u64 = 5;
/// Facts were lost to a full ring just before the next record. The value is the total so far.
const LOST: u64 = 6;
const SEAT: u64 = 7;
/// In the word of a seat's `next`: more such facts follow.
const MORE: u64 = u64::MAX;

/// The four words of a fact: time, kind and slot, number, value. A follower arrives at its release,
/// so its value is its origin. The origin of any other job is its arrival.
fn to_words(timed: TimedFact) -> Words {
    let (code, extra, value) = match timed.fact {
        Fact::Release { origin, .. } => (RELEASE, 0, origin.as_ns()),
        Fact::Start { seat } => (START, u64::from(seat), 0),
        Fact::Complete => (COMPLETE, 0, 0),
        Fact::Cancel(cause) => (CANCEL, cause as u64, 0),
        Fact::Mode { plan, next } => (MODE, u64::from(plan), u64::from(next)),
        Fact::Idle { seat, next } => (IDLE, u64::from(seat) | u64::from(next) << 8, 0),
        Fact::Seat { seat, next } => (SEAT, u64::from(seat), next.map_or(MORE, u64::from)),
    };
    [timed.at.as_ns(), code | extra << 8 | u64::from(timed.slot) << 32, timed.number, value]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Record {
    Fact(TimedFact),
    /// Facts lost between the record before and the one after.
    Lost {
        at: Time,
        count: u64,
    },
}

impl Record {
    fn at(&self) -> Time {
        match *self {
            Record::Fact(TimedFact { at, .. }) | Record::Lost { at, .. } => at,
        }
    }
}

fn from_words([at, what, number, value]: Words, follows: impl Fn(u32) -> bool) -> TimedFact {
    let (at, slot, extra) = (Time::from_ns(at), (what >> 32) as u32, (what >> 8) as u32 & 0xFF_FFFF);
    let fact = match what & 0xFF {
        RELEASE => {
            let origin = Time::from_ns(value);
            Fact::Release { arrival: if follows(slot) { at } else { origin }, origin }
        }
        START => Fact::Start { seat: extra },
        COMPLETE => Fact::Complete,
        CANCEL => Fact::Cancel(CancelCause::ALL.get(extra as usize).copied().unwrap_or(CancelCause::Omitted)),
        MODE => Fact::Mode { plan: extra, next: value as u32 },
        SEAT => Fact::Seat { seat: extra, next: (value != MORE).then_some(value as u32) },
        _ => Fact::Idle { seat: extra & 0xFF, next: extra >> 8 },
    };
    TimedFact { at, slot, number, fact }
}

/// The writer's end of a CPU's ring.
pub(crate) struct FactWriter {
    ring: Arc<Ring>,
    lost: bool,
}

impl FactWriter {
    pub(crate) fn new(ring: Arc<Ring>) -> FactWriter {
        FactWriter { ring, lost: false }
    }
}

impl FactSink for FactWriter {
    fn record(&mut self, timed: TimedFact) {
        // A mark of lost facts goes first, at their place. Facts after it are known again.
        let marked = !self.lost || self.ring.push([timed.at.as_ns(), LOST, self.ring.lost(), 0]);
        self.lost = !marked || !self.ring.push(to_words(timed));
    }
}

/// Static data about an operation.
#[derive(Clone, Debug)]
pub(crate) struct OperationInfo {
    pub(crate) task: TaskId,
    pub(crate) deadline: Span,
    /// The links on the longest path from a source to it.
    pub(crate) hop: u32,
    /// Its level by plan, and whether its late jobs are demoted. Empty if jobs of a level preempt
    /// each other; then the facts give each job's seat.
    pub(crate) levels: Vec<(u32, bool)>,
}

/// A started job that has not ended.
#[derive(Clone, Copy)]
struct Started {
    /// The seat of its thread.
    seat: u32,
    slot: u32,
    job: JobKey,
}

/// The state of one CPU.
struct CpuLog {
    cpu: u32,
    ring: Arc<Ring>,
    operations: Vec<OperationInfo>,
    /// Read from the ring, not yet logged.
    waiting: VecDeque<Record>,
    /// No older fact will come.
    floor: Time,
    /// In the order in which they started.
    started: Vec<Started>,
    /// The started job known to have the CPU.
    running: Option<Started>,
    /// Lost facts recorded in `waiting`.
    lost: u64,
    /// The deadlines of released jobs that have not ended, the next first.
    deadlines: BinaryHeap<Reverse<(Time, JobKey)>>,
    /// Open jobs, and whether each has missed its deadline.
    open: BTreeMap<JobKey, bool>,
}

/// Merges the facts of the CPUs.
pub(crate) struct Merger {
    logs: Vec<CpuLog>,
    stream: u32,
    last: Time,
    mode: u32,
}

impl Merger {
    /// For the CPUs in order: their rings, and the static data by slot.
    pub(crate) fn new(stream: u32, cpus: impl IntoIterator<Item = (Arc<Ring>, Vec<OperationInfo>)>) -> Merger {
        let logs = (cpus.into_iter().zip(0..))
            .map(|((ring, operations), cpu)| CpuLog {
                cpu,
                ring,
                operations,
                waiting: VecDeque::new(),
                floor: Time::ZERO,
                started: Vec::new(),
                running: None,
                lost: 0,
                deadlines: BinaryHeap::new(),
                open: BTreeMap::new(),
            })
            .collect();
        Merger { logs, stream, last: Time::ZERO, mode: 0 }
    }

    /// Logs all facts that are certain by now. `floor` gives the time before which a CPU adds no
    /// fact. Returns the time up to which the log is complete.
    pub(crate) fn drain(&mut self, floor: impl Fn(usize) -> Time, sink: &mut (impl Sink + ?Sized)) -> Time {
        for (index, log) in self.logs.iter_mut().enumerate() {
            // The floor is read first, so that facts added meanwhile are not older.
            let at_least = floor(index);
            while let Some(words) = log.ring.pop() {
                log.take(words);
            }
            // Lost facts without a later record.
            log.lose(log.waiting.back().map_or(log.floor, Record::at), log.ring.lost());
            log.floor = log.floor.max(at_least);
        }
        let until = self.logs.iter().map(|log| log.floor).min().unwrap_or(Time::ZERO);
        self.tell_until(until, sink);
        until
    }

    fn tell_until(&mut self, until: Time, sink: &mut (impl Sink + ?Sized)) {
        loop {
            let first = |log: &CpuLog| log.waiting.front().map(Record::at);
            let next = (self.logs.iter().enumerate())
                .filter_map(|(index, log)| first(log).filter(|at| *at < until).map(|at| (at, index)))
                .min();
            self.miss_before(next.map_or(until, |(at, _)| at), sink);
            let Some((_, index)) = next else { return };
            match self.logs.get_mut(index).and_then(|log| log.waiting.pop_front()) {
                Some(Record::Fact(timed)) => self.log(index, timed, sink),
                Some(Record::Lost { at, count }) => self.lose(index, at, count, sink),
                None => return,
            }
        }
    }

    /// Logs misses of open jobs with a deadline before `now`.
    fn miss_before(&mut self, now: Time, sink: &mut (impl Sink + ?Sized)) {
        loop {
            let due = |log: &mut CpuLog| loop {
                let Reverse((at, job)) = *log.deadlines.peek()?;
                if log.open.contains_key(&job) {
                    return Some(at).filter(|at| *at < now);
                }
                log.deadlines.pop();
            };
            let Some((_, index)) =
                self.logs.iter_mut().enumerate().filter_map(|(index, log)| Some((due(log)?, index))).min()
            else {
                return;
            };
            let Some(log) = self.logs.get_mut(index) else { return };
            let Some(Reverse((at, job))) = log.deadlines.pop() else { return };
            log.open.insert(job, true);
            self.last = self.last.max(at);
            sink.event(self.stream, self.last, &Event::Miss { job });
        }
    }

    /// Facts of a CPU are missing, so the known state of its jobs may be wrong.
    fn lose(&mut self, index: usize, at: Time, count: u64, sink: &mut (impl Sink + ?Sized)) {
        let Some(log) = self.logs.get_mut(index) else { return };
        self.last = self.last.max(at);
        log.forget();
        sink.event(self.stream, self.last, &Event::Lost { count });
    }

    fn log(&mut self, index: usize, timed: TimedFact, sink: &mut (impl Sink + ?Sized)) {
        let Some(log) = self.logs.get_mut(index) else { return };
        self.last = self.last.max(timed.at);
        let (now, stream, cpu) = (self.last, self.stream, log.cpu);
        let operation = log.operations.get(timed.slot as usize).cloned();
        let job = |operation: &OperationInfo| JobKey { task: operation.task, number: timed.number };
        match (timed.fact, operation) {
            (Fact::Mode { plan, next }, _) => {
                // Every CPU reports the switch; the first report counts.
                if self.mode != plan {
                    self.mode = plan;
                    sink.event(stream, now, &Event::ModeChange { mode: plan });
                }
                log.adopt(plan);
                for event in log.arbitrate(next).into_iter().flatten() {
                    sink.event(stream, now, &event);
                }
            }
            (Fact::Seat { seat, next }, Some(operation)) => {
                log.move_to(job(&operation), seat);
                for event in next.map(|next| log.arbitrate(next)).into_iter().flatten().flatten() {
                    sink.event(stream, now, &event);
                }
            }
            (Fact::Idle { seat, next }, _) => {
                // The waiting job has the CPU again, unless a more important job sleeps or another
                // one goes first.
                if let Some(first) = log.most_important().filter(|first| log.running.is_none() && first.seat >= seat)
                    && first.seat <= next
                {
                    log.running = Some(first);
                    sink.event(stream, now, &Event::Resume { job: first.job, cpu });
                }
            }
            (Fact::Release { arrival, origin }, Some(operation)) => {
                let parent = (operation.hop > 0).then_some(Parent { hop: operation.hop, origin });
                let job = job(&operation);
                // A job rejected at once has no deadline to miss, even if its timer reported it
                // later.
                if !log.rejects_next(&timed) {
                    log.open.insert(job, false);
                    log.deadlines.push(Reverse((arrival.saturating_add(operation.deadline), job)));
                }
                sink.event(stream, now, &Event::Release { job, arrival, parent });
            }
            (Fact::Start { seat }, Some(operation)) => {
                if let Some(before) = log.running {
                    let event = if seat < before.seat {
                        Event::Preempt { job: before.job, cpu }
                    } else {
                        Event::Gap { job: before.job }
                    };
                    sink.event(stream, now, &event);
                }
                let started = Started { seat, slot: timed.slot, job: job(&operation) };
                log.started.push(started);
                log.running = Some(started);
                sink.event(stream, now, &Event::Start { job: started.job, cpu });
            }
            (Fact::Complete, Some(operation)) => {
                let job = job(&operation);
                log.leave(job);
                sink.event(stream, now, &Event::Complete { job, cpu });
            }
            (Fact::Cancel(cause), Some(operation)) => {
                let job = job(&operation);
                let missed = log.leave(job);
                if cause == CancelCause::Late && !missed {
                    // The job was dropped exactly at its deadline.
                    sink.event(stream, now, &Event::Miss { job });
                }
                sink.event(stream, now, &Event::Cancel { job, cause });
            }
            (_, None) => {}
        }
    }

    /// Ends the log at `end` and writes the rest.
    pub(crate) fn finish(mut self, end: Time, sink: &mut (impl Sink + ?Sized)) -> (u64, Time) {
        // No further facts come.
        self.drain(|_| Time::ZERO, sink);
        let last = self.logs.iter().filter_map(|log| log.waiting.back()).map(Record::at).max();
        self.tell_until(end.max(last.unwrap_or(end)).saturating_add(Span::from_ns(1)), sink);
        (self.logs.iter().map(|log| log.ring.lost()).sum(), self.last)
    }
}

impl CpuLog {
    fn take(&mut self, words: Words) {
        let [at, what, total, _] = words;
        if what == LOST {
            self.lose(Time::from_ns(at), total);
        } else {
            let follows = |slot: u32| self.operations.get(slot as usize).is_some_and(|operation| operation.hop > 0);
            self.waiting.push_back(Record::Fact(from_words(words, follows)));
        }
    }

    /// Records that `total` facts have been lost so far.
    fn lose(&mut self, at: Time, total: u64) {
        if total > self.lost {
            self.waiting.push_back(Record::Lost { at, count: total - self.lost });
            self.lost = total;
        }
    }

    fn forget(&mut self) {
        self.started.clear();
        self.running = None;
        self.open.clear();
        self.deadlines.clear();
    }

    /// Whether the next fact rejects this job. Both facts are written together.
    fn rejects_next(&self, released: &TimedFact) -> bool {
        let rejected = TimedFact { fact: Fact::Cancel(CancelCause::Rejected), ..*released };
        self.waiting.front() == Some(&Record::Fact(rejected))
    }

    fn move_to(&mut self, job: JobKey, seat: u32) {
        let moved = self.started.iter_mut().chain(&mut self.running).filter(|started| started.job == job);
        moved.for_each(|started| started.seat = seat);
    }

    /// A started job may go first now, or a job that waits for the seat `next`. Returns the effect
    /// on the running job.
    fn arbitrate(&mut self, next: u32) -> [Option<Event>; 2] {
        let cpu = self.cpu;
        match (self.running, self.most_important()) {
            (Some(running), Some(first)) if first.seat.min(next) < running.seat => {
                self.running = Some(first).filter(|first| first.seat <= next);
                let preempt = Event::Preempt { job: running.job, cpu };
                [Some(preempt), self.running.map(|Started { job, .. }| Event::Resume { job, cpu })]
            }
            _ => [None, None],
        }
    }

    /// The first started job of the most important seat.
    fn most_important(&self) -> Option<Started> {
        self.started.iter().min_by_key(|started| started.seat).copied()
    }

    /// Adopts another plan for the started jobs. Demoted jobs stay demoted if that plan demotes
    /// them too.
    fn adopt(&mut self, plan: u32) {
        for started in self.started.iter_mut().chain(&mut self.running) {
            let levels = self.operations.get(started.slot as usize).map(|operation| &operation.levels);
            let demoted = levels.is_some_and(|levels| levels.iter().all(|(level, _)| *level < started.seat));
            match levels.and_then(|levels| levels.get(plan as usize)) {
                Some((level, demotes)) if !(demoted && *demotes) => started.seat = *level,
                _ => {}
            }
        }
    }

    /// Ends a job. Returns whether it was missed before.
    fn leave(&mut self, job: JobKey) -> bool {
        let missed = self.open.remove(&job).unwrap_or(false);
        self.running = self.running.filter(|running| running.job != job);
        self.started.retain(|other| other.job != job);
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: u64 = 10;

    fn timed(at: u64, number: u64, fact: Fact) -> TimedFact {
        TimedFact { at: Time::from_ns(at), slot: 0, number, fact }
    }

    fn release(at: u64, number: u64) -> TimedFact {
        let arrival = Time::from_ns(at);
        timed(at, number, Fact::Release { arrival, origin: arrival })
    }

    /// A ring for four records, and its reader.
    fn log() -> (FactWriter, Merger) {
        let ring = Arc::new(Ring::new(4));
        let known =
            OperationInfo { task: TaskId(0), deadline: Span::from_ns(DEADLINE), hop: 0, levels: vec![(0, false)] };
        (FactWriter::new(ring.clone()), Merger::new(0, [(ring, vec![known])]))
    }

    /// The log in short.
    fn shown(events: &[(u32, Time, Event)]) -> Vec<String> {
        let one = |(_, at, event): &(u32, Time, Event)| {
            let at = at.as_ns();
            match event {
                Event::Release { job, .. } => format!("{at} release {}", job.number),
                Event::Start { job, .. } => format!("{at} start {}", job.number),
                Event::Complete { job, .. } => format!("{at} complete {}", job.number),
                Event::Cancel { job, .. } => format!("{at} cancel {}", job.number),
                Event::Miss { job } => format!("{at} miss {}", job.number),
                Event::Lost { count } => format!("{at} lost {count}"),
                other => format!("{at} {other:?}"),
            }
        };
        events.iter().map(one).collect()
    }

    #[test]
    fn a_full_ring_reports_its_losses_in_place_and_no_job_is_invented() {
        let (mut writer, mut merger) = log();
        let mut events: Vec<(u32, Time, Event)> = Vec::new();
        let start = |at, number| timed(at, number, Fact::Start { seat: 0 });
        let complete = |at, number| timed(at, number, Fact::Complete);
        // The end of the second job and all facts of the third are lost.
        for fact in [release(0, 0), start(1, 0), complete(2, 0), release(3, 1), start(4, 1), complete(5, 1)] {
            writer.record(fact);
        }
        merger.drain(|_| Time::from_ns(30), &mut events);
        assert_eq!(
            shown(&events),
            ["0 release 0", "1 start 0", "2 complete 0", "3 release 1", "3 lost 2"],
            "no miss of a job whose end is not known"
        );
        events.clear();
        // Later jobs are known again. The log says of neither that the other preempted it.
        [release(40, 3), start(41, 3)].into_iter().for_each(|fact| writer.record(fact));
        merger.drain(|_| Time::from_ns(45), &mut events);
        assert_eq!(shown(&events), ["40 release 3", "41 start 3"], "lost facts are not logged twice");
        events.clear();
        [complete(46, 3), release(47, 4), start(48, 4), complete(49, 4), release(50, 5), start(51, 5)]
            .into_iter()
            .for_each(|fact| writer.record(fact));
        let (lost, _) = merger.finish(Time::from_ns(70), &mut events);
        assert_eq!(shown(&events), ["46 complete 3", "47 release 4", "48 start 4", "49 complete 4", "49 lost 2"]);
        assert_eq!(lost, 4);
    }

    #[test]
    fn a_loss_in_between_is_told_between_its_neighbours() {
        let (mut writer, mut merger) = log();
        for number in 0..6 {
            writer.record(release(number, number));
        }
        // Two records are read, so that the next fact and the mark of two lost ones find room.
        let ring = merger.logs[0].ring.clone();
        let read: Vec<Words> = (0..2).filter_map(|_| ring.pop()).collect();
        read.into_iter().for_each(|words| merger.logs[0].take(words));
        writer.record(release(6, 6));
        let mut events: Vec<(u32, Time, Event)> = Vec::new();
        merger.drain(|_| Time::from_ns(7), &mut events);
        let wanted = ["0 release 0", "1 release 1", "2 release 2", "3 release 3", "6 lost 2", "6 release 6"];
        assert_eq!(shown(&events), wanted);
    }

    #[test]
    fn an_immediately_rejected_job_misses_no_deadline() {
        let (mut writer, mut merger) = log();
        let mut events: Vec<(u32, Time, Event)> = Vec::new();
        // A late timer reports an arrival whose deadline has passed.
        let late = Time::from_ns(20);
        let arrival = Time::from_ns(5);
        writer.record(TimedFact { at: late, ..timed(20, 0, Fact::Release { arrival, origin: arrival }) });
        writer.record(timed(20, 0, Fact::Cancel(CancelCause::Rejected)));
        // A queued job is late.
        writer.record(timed(20, 1, Fact::Release { arrival, origin: arrival }));
        merger.drain(|_| Time::from_ns(30), &mut events);
        assert_eq!(shown(&events), ["20 release 0", "20 cancel 0", "20 release 1", "20 miss 1"]);
    }

    #[test]
    fn a_demoted_job_that_has_started_goes_by_a_plan_that_demotes_nobody() {
        let known = |task, levels: [(u32, bool); 3]| OperationInfo {
            task: TaskId(task),
            deadline: Span::from_ns(DEADLINE),
            hop: 0,
            levels: levels.to_vec(),
        };
        for (plan, goes_on) in [(1, false), (2, true)] {
            let ring = Arc::new(Ring::new(8));
            let operations =
                vec![known(0, [(1, true), (0, true), (0, false)]), known(1, [(1, false), (1, false), (1, false)])];
            let (mut writer, merger) = (FactWriter::new(ring.clone()), Merger::new(0, [(ring, operations)]));
            // The thread of demoted jobs has the level after the last one.
            let start = TimedFact { slot: 1, ..timed(30, 1, Fact::Start { seat: 1 }) };
            for fact in
                [release(0, 0), timed(20, 0, Fact::Start { seat: 2 }), TimedFact { slot: 1, ..release(30, 1) }, start]
            {
                writer.record(fact);
            }
            writer.record(timed(31, 0, Fact::Mode { plan, next: 99 }));
            let mut events: Vec<(u32, Time, Event)> = Vec::new();
            merger.finish(Time::from_ns(32), &mut events);
            let resumed = events.iter().filter(|(_, at, event)| {
                matches!(event, Event::Resume { job, .. } if job.number == 0) && at.as_ns() == 31
            });
            assert_eq!(resumed.count(), usize::from(goes_on), "{events:?}");
        }
    }
}
