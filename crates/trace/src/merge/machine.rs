//! The state machine that makes one log of both accounts.
//!
//! The stamps say which jobs begin and end; the kernel says which thread has a CPU. Both come in
//! the order of time, each up to a bound of its own. The machine works through all that lies before
//! both bounds. A run's threads are of two kinds, which find their jobs in two ways:
//!
//! - The thread of a task ([`Merge::of_tasks`]) has the jobs of that task. It stamps them after it
//!   was woken, so the log's release and start are moved back to the kernel's wake-up and switch.
//! - A worker of a dispatcher ([`Merge::of_workers`]) takes jobs of several tasks. A job belongs to
//!   the worker that the kernel has on the job's CPU at its start, and starts as stamped.
//!
//! | event | when |
//! |---|---|
//! | release | as stamped; if the thread was woken for the job, at the kernel's wake-up |
//! | start | as stamped; if the thread was woken for the job, when it first got a CPU after the wake-up and the release |
//! | preempt, resume | when the CPU went to another thread while the job was open, and came back; `migrate` if it is another CPU |
//! | block, wake | when the thread slept or waited within its job, and was woken. Block also if the kernel stopped it: its SCHED_DEADLINE budget is used up, or nobody more important gets its CPU |
//! | occupy | when the CPU went to a thread of another program, to nobody, or to a worker without a job |
//! | complete, cancel | as stamped |
//! | miss | at the deadline; at the release, if that is later |
//! | gap | where switches of an open job are missing: its preemptions and times are unknown |
//!
//! A thread stamps while it has a CPU. [`Stamped`] counts the jobs whose stamps were compared with
//! the kernel's account. It also counts contradictions: the kernel gave the thread a CPU after the
//! stamp.
//!
//! The kernel may take a CPU from a thread without having given it one. Then a switch was not
//! recorded. A switch is recorded in the context of the thread that leaves, and some kernels have
//! threads in whose context nothing is recorded. So only the switch from such a thread is missing,
//! and no preemption of the run's thread. If it was the switch to a woken thread, the job starts as
//! stamped.
//!
//! If the kernel lost events, the log has [`Event::Lost`] at the beginning of the gap.

mod workers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use takt_log::{Event, JobKey, Sink};
use takt_model::{Span, Time};

use super::lane::{Job, Lane, Place, Stamped, Worker};
use super::other_threads::{self, OtherThreads};
use super::run_event::{RunEvent, RunEventKind as Kind, RunEventSink, SwitchOutReason, enqueue};

/// An event as the threads' stamps give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// When.
    pub at: Time,
    /// When it should have been: a deadline that had passed before the release.
    pub due: Time,
    /// The thread of the job's task. `None` for a dispatcher's jobs, and for what concerns all.
    pub lane: Option<usize>,
    /// What.
    pub event: Event,
}

/// The result of a merge.
pub struct Merged {
    /// The last event's time.
    pub last: Time,
    /// By thread.
    pub stamped: Vec<Stamped>,
    /// Switches that the kernel made and did not record, though it reported no loss.
    pub missing: u64,
    /// How often a thread of the run got a CPU.
    pub switches: u64,
}

/// Merges both accounts into one stream of a log.
pub struct Merge {
    stream: u32,
    lanes: Vec<Lane>,
    /// By CPU: a started job of a dispatcher whose worker is unknown, because the switch to the
    /// worker is missing.
    unassigned: BTreeMap<u32, Option<Job>>,
    /// Whether lines of one instant are sorted by rank. A dispatcher's lines keep the order of its
    /// stamps.
    ranked: bool,
    /// Not yet processed, in the order of time.
    stamps: VecDeque<Stamp>,
    seen: VecDeque<RunEvent>,
    /// No stamp before this will come any more.
    stamped_until: Time,
    /// All that lies before this has been processed.
    settled: Time,
    /// Lines that are not written yet, because earlier ones may follow.
    lines: BinaryHeap<Reverse<Line>>,
    sequence: u64,
    last_written: Time,
    /// How many gaps of the kernel's account are open.
    open_losses: u32,
    /// Switches that the kernel made and did not record.
    missing: u64,
    switches: u64,
    other_threads: OtherThreads,
    /// The run's end. The log has none of the kernel's later events.
    end: Time,
}

/// A line of the log. Its key sorts by time, then by rank, then in the order of insertion.
struct Line {
    key: (Time, u8, u64),
    line: other_threads::Line,
}

impl PartialEq for Line {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Line {}
impl PartialOrd for Line {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Line {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Ranks of lines of one instant: lines that free a CPU come first, lines that occupy one last.
const FREES: u8 = 0;
const OTHER: u8 = 1;
const TAKES: u8 = 2;

impl Merge {
    /// For threads with a task each, by the budgets of their SCHED_DEADLINE reservations.
    pub fn of_tasks(stream: u32, budgets: impl IntoIterator<Item = Option<Span>>) -> Merge {
        Merge::new(stream, true, budgets.into_iter().map(|budget| Lane::new(None, budget)))
    }

    /// For a dispatcher with these threads.
    pub fn of_workers(stream: u32, workers: impl IntoIterator<Item = Worker>) -> Merge {
        Merge::new(stream, false, workers.into_iter().map(|worker| Lane::new(Some(worker), None)))
    }

    fn new(stream: u32, ranked: bool, lanes: impl Iterator<Item = Lane>) -> Merge {
        Merge {
            stream,
            lanes: lanes.collect(),
            unassigned: BTreeMap::new(),
            ranked,
            stamps: VecDeque::new(),
            seen: VecDeque::new(),
            stamped_until: Time::ZERO,
            settled: Time::ZERO,
            lines: BinaryHeap::new(),
            sequence: 0,
            last_written: Time::ZERO,
            open_losses: 0,
            missing: 0,
            switches: 0,
            other_threads: OtherThreads::new(stream),
            end: Time::MAX,
        }
    }

    /// The next stamp, not before the last one.
    pub fn stamp(&mut self, stamp: Stamp) {
        self.stamps.push_back(stamp);
    }

    /// No stamp before this will come any more.
    pub fn until(&mut self, until: Time) {
        self.stamped_until = until;
    }

    /// The kernel's events before `seen_until` have all come. Writes the settled lines. The log has
    /// none of the kernel's events after `end`.
    pub fn advance(&mut self, seen_until: Time, end: Time, sink: &mut (impl Sink + ?Sized)) {
        self.end = end;
        let settled = self.stamped_until.min(seen_until).max(self.settled);
        loop {
            // At one instant: jobs end, then the kernel switches, then jobs begin.
            let ends = |event: &Event| matches!(event, Event::Complete { .. } | Event::Cancel { .. });
            let stamp = self.stamps.front().map(|stamp| (stamp.at, if ends(&stamp.event) { 0 } else { 2 }));
            let seen = self.seen.front().map(|seen| (seen.at, 1));
            let Some(next) = stamp.into_iter().chain(seen).min().filter(|next| next.0 < settled) else { break };
            if Some(next) == seen {
                if let Some(seen) = self.seen.pop_front() {
                    self.process_kernel_event(seen);
                }
            } else if let Some(stamp) = self.stamps.pop_front() {
                self.process_stamp(stamp);
            }
        }
        self.settled = settled;
        let bound = self.lanes.iter().filter_map(Lane::pending).fold(settled, Ord::min);
        self.write_lines(bound, sink);
    }

    /// Both accounts are whole: writes the rest.
    pub fn finish(mut self, end: Time, sink: &mut (impl Sink + ?Sized)) -> Merged {
        self.stamped_until = Time::MAX;
        self.advance(Time::MAX, end, sink);
        self.write_lines(Time::MAX, sink);
        let stamped = self.lanes.into_iter().map(|lane| lane.stamped).collect();
        Merged { last: self.last_written, stamped, missing: self.missing, switches: self.switches }
    }

    fn write_lines(&mut self, before: Time, sink: &mut (impl Sink + ?Sized)) {
        while self.lines.peek().is_some_and(|Reverse(line)| line.key.0 < before) {
            let Some(Reverse(line)) = self.lines.pop() else { return };
            self.last_written = self.last_written.max(line.key.0);
            line.line.write_to(self.stream, self.last_written, sink);
        }
    }

    fn push_line(&mut self, at: Time, rank: u8, event: Event) {
        self.push_lines(at, rank, vec![other_threads::Line::Event(event)]);
    }

    /// Adds lines that belong to no lane, in their order.
    fn push_lines(&mut self, at: Time, rank: u8, lines: Vec<other_threads::Line>) {
        let rank = if self.ranked { rank } else { OTHER };
        for line in lines {
            self.lines.push(Reverse(Line { key: (at, rank, self.sequence), line }));
            self.sequence += 1;
        }
    }

    /// Adds a line of a lane, not before the lane's last one. Returns its time.
    fn push_lane_line(&mut self, lane: usize, at: Time, rank: u8, event: Event) -> Time {
        let Some(state) = self.lanes.get_mut(lane) else { return at };
        let (at, rank) = (at, rank).max(state.last);
        state.last = (at, rank);
        self.push_line(at, rank, event);
        at
    }

    /// Counts missing switches, unless the kernel reported that events were lost.
    fn count_missing(&mut self, switches: u64) {
        self.missing += if self.open_losses == 0 { switches } else { 0 };
    }
}

/// The stamps' account.
impl Merge {
    fn process_stamp(&mut self, stamp: Stamp) {
        let Stamp { at, due, lane, event } = stamp;
        match (event, lane) {
            (Event::Release { job, arrival, .. }, Some(lane)) => self.release(lane, at, job, arrival, event),
            (Event::Start { job, cpu }, _) => {
                self.forget_before(job);
                match lane.or_else(|| self.free_worker(cpu)) {
                    Some(lane) => self.start(lane, at, job, cpu),
                    None => self.start_unassigned(at, job, cpu),
                }
            }
            (Event::Complete { job, cpu }, Some(lane)) => self.complete(lane, at, job, cpu),
            (Event::Complete { job, .. }, None) => {
                self.forget_before(job);
                self.end_worker_job(at, job, event);
            }
            (Event::Cancel { job, .. }, _) => self.end_worker_job(at, job, event),
            (Event::Miss { job }, Some(lane)) => {
                let released = self.lanes.get(lane).and_then(|lane| lane.released_at(job.number));
                self.push_line(at.min(released.map_or(at, |released| released.max(due))), TAKES, event);
            }
            // The log has the kernel's account of this, and not the dispatcher's.
            (Event::Preempt { .. } | Event::Resume { .. } | Event::Gap { .. }, None) => {}
            (Event::Lost { .. }, _) => {
                self.push_line(at, TAKES, event);
                // Which of a dispatcher's jobs began or ended meanwhile is unknown.
                self.worker_jobs().for_each(|open| *open = None);
            }
            _ => self.push_line(at, TAKES, event),
        }
    }

    fn release(&mut self, lane: usize, stamp: Time, job: JobKey, arrival: Time, event: Event) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        let mut at = stamp;
        if let Event::Release { parent: None, .. } = event
            && let Some(awake) = &mut state.awake
            && let Some(woken) = awake.woken.filter(|woken| !awake.released && *woken <= stamp)
        {
            awake.released = true;
            at = woken.max(arrival).min(stamp);
            state.stamped.release.record(stamp.saturating_since(arrival).as_ns());
        }
        let at = self.push_lane_line(lane, at, OTHER, event);
        if let Some(state) = self.lanes.get_mut(lane) {
            state.released.push_back((job.number, at));
        }
    }

    fn start(&mut self, lane: usize, stamp: Time, job: JobKey, cpu: u32) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        let released = state.released_at(job.number).unwrap_or(Time::ZERO);
        // By the kernel's account the thread was woken and has no CPU. The switch to it is missing,
        // because nothing is recorded of the thread before it. The job starts as stamped.
        let woken = state.place == Place::Ready || (state.place == Place::Unknown && state.early_wakeup.is_some());
        let began = woken && state.awake.as_ref().is_some_and(|awake| awake.switches.is_empty());
        let agrees = state.confirm_on_cpu(cpu);
        let awake = state.awake.take().unwrap_or_default();
        let (start, rest) = awake.first_on_cpu(released, stamp);
        let cpu = start.map_or(state.cpu_or(cpu), |(_, cpu)| cpu);
        let at = start.map_or(stamp, |(at, _)| at);
        if start.is_some() {
            state.stamped.start.record(stamp.saturating_since(at).as_ns());
        }
        // A worker's job depends on nothing before its stamp.
        let doubtful = (std::mem::take(&mut state.doubtful) && state.worker.is_none()) || !(agrees || began);
        (state.completed, state.early_wakeup) = (None, None);
        state.open = Some(Job { key: job, cpu, is_waiting: false, agrees });
        self.push_lane_line(lane, at, TAKES, Event::Start { job, cpu });
        for seen in rest {
            self.log_job_event(seen);
        }
        // The kernel's account does not cover the start, so nothing can be counted of the job.
        if self.open_losses > 0 || doubtful {
            self.push_lane_line(lane, stamp, TAKES, Event::Gap { job });
        }
    }

    fn complete(&mut self, lane: usize, stamp: Time, job: JobKey, cpu: u32) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        let agrees = state.confirm_on_cpu(cpu);
        let cpu = state.cpu_or(cpu);
        let open = state.open.take().filter(|open| open.key == job);
        state.stamped.checked += u64::from(agrees && open.is_some_and(|open| open.agrees));
        while state.released.front().is_some_and(|(number, _)| *number <= job.number) {
            state.released.pop_front();
        }
        (state.awake, state.completed, state.doubtful) = (None, Some(stamp), false);
        if !agrees {
            self.push_lane_line(lane, stamp, FREES, Event::Gap { job });
        }
        self.push_lane_line(lane, stamp, FREES, Event::Complete { job, cpu });
    }
}

/// The kernel's account.
impl Merge {
    fn process_kernel_event(&mut self, seen: RunEvent) {
        match seen.what {
            Kind::LossBegins { count } => {
                self.open_losses += 1;
                self.push_line(seen.at, FREES, Event::Lost { count });
                self.other_threads.forget();
                for lane in 0..self.lanes.len() {
                    if let Some(Job { key: job, .. }) = self.lanes.get(lane).and_then(|lane| lane.open) {
                        self.push_lane_line(lane, seen.at, FREES, Event::Gap { job });
                    }
                }
                for Job { key: job, .. } in std::mem::take(&mut self.unassigned).into_values().flatten() {
                    self.push_line(seen.at, FREES, Event::Gap { job });
                }
                self.lanes.iter_mut().for_each(Lane::forget);
            }
            Kind::LossEnds => {
                self.open_losses = self.open_losses.saturating_sub(1);
                self.unassigned.clear();
                self.lanes.iter_mut().for_each(Lane::forget);
            }
            Kind::OtherIn { cpu, thread } => {
                self.switch_cpu_to(seen.at, cpu, None);
                if seen.at <= self.end {
                    let lines = self.other_threads.switched_in(cpu, &thread);
                    self.push_lines(seen.at, OTHER, lines);
                }
            }
            Kind::OtherOut { cpu, thread } if seen.at <= self.end => {
                let lines = self.other_threads.switched_out(cpu, &thread);
                self.push_lines(seen.at, OTHER, lines);
            }
            Kind::Interrupt { cpu, kind, number, name, begins } if seen.at <= self.end => {
                let lines = self.other_threads.interrupt(cpu, kind, number, &name, begins);
                self.push_lines(seen.at, OTHER, lines);
            }
            Kind::Stolen { cpu, span, within } if seen.at <= self.end => {
                self.push_line(seen.at, OTHER, Event::Steal { cpu, span, within });
            }
            Kind::OtherOut { .. } | Kind::Interrupt { .. } | Kind::Stolen { .. } => {}
            Kind::Woken { lane } => self.process_wakeup(lane, seen),
            Kind::SwitchIn { lane, cpu } => self.switch_in(lane, cpu, seen),
            Kind::SwitchOut { lane, cpu, why } => {
                self.assign_job(lane, cpu);
                let Some(state) = self.lanes.get_mut(lane) else { return };
                let fits = state.place == Place::Unknown || state.place == Place::On { cpu };
                // Its use of the CPU is unknown up to its next sleep.
                state.doubtful |= state.place == Place::Unknown && why != SwitchOutReason::Asleep;
                let unconfirmed = std::mem::take(&mut state.unconfirmed);
                let what = Kind::SwitchOut { lane, cpu, why: state.leave(seen.at, why) };
                self.count_missing(u64::from(unconfirmed));
                self.process_switch(lane, RunEvent { what, ..seen }, fits);
            }
        }
    }

    fn process_wakeup(&mut self, lane: usize, seen: RunEvent) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        match state.place {
            Place::Waiting => {
                // From its sleep on everything is known.
                state.doubtful &= state.awake.as_ref().is_none_or(|awake| !awake.switches.is_empty());
                state.place = Place::Ready;
            }
            // It sleeps, or is about to.
            Place::Unknown => state.early_wakeup = Some(seen.at),
            Place::On { .. } => return state.early_wakeup = state.early_wakeup.or(Some(seen.at)),
            Place::Ready => return,
        }
        state.restart_budget();
        match &mut state.awake {
            Some(awake) if awake.switches.is_empty() => awake.woken = awake.woken.or(Some(seen.at)),
            Some(awake) => awake.switches.push(seen),
            None => self.log_job_event(seen),
        }
    }

    fn switch_in(&mut self, lane: usize, cpu: u32, seen: RunEvent) {
        self.switches += 1;
        self.switch_cpu_to(seen.at, cpu, Some(lane));
        let Some(state) = self.lanes.get_mut(lane) else { return };
        let fits = !matches!(state.place, Place::On { .. });
        if std::mem::take(&mut state.unconfirmed) {
            state.stamped.checked += 1;
            state.stamped.contradicted += 1;
        }
        state.enter(seen.at, cpu);
        let early_wakeup = state.early_wakeup.take();
        let idle = state.open.is_none();
        if !fits && idle {
            // The switch from its CPU is missing, and it was woken since.
            state.begin_awake(early_wakeup);
        }
        if idle && state.worker.is_some() && seen.at <= self.end {
            let lines = self.other_threads.takt_switched_in(cpu);
            self.push_lines(seen.at, OTHER, lines);
        }
        self.process_switch(lane, seen, fits);
    }

    /// A switch belongs to an open job, to one that begins, or to none. `fits` is false if a switch
    /// before it is missing.
    fn process_switch(&mut self, lane: usize, seen: RunEvent, fits: bool) {
        self.count_missing(u64::from(!fits));
        let Some(state) = self.lanes.get_mut(lane) else { return };
        if let Some(Job { key: job, .. }) = state.open.filter(|_| !fits) {
            self.push_lane_line(lane, seen.at, FREES, Event::Gap { job });
        }
        let Some(state) = self.lanes.get_mut(lane) else { return };
        state.doubtful |= !fits && state.open.is_none();
        let early_wakeup = state.early_wakeup.take().filter(|_| state.place == Place::Waiting);
        if early_wakeup.is_some() {
            state.place = Place::Ready;
            state.restart_budget();
        }
        if state.open.is_some() {
            return self.log_job_event(seen);
        }
        let Kind::SwitchOut { why, .. } = seen.what else {
            if let Some(awake) = &mut state.awake {
                awake.switches.push(seen);
            }
            return;
        };
        if let Some(completed) = state.completed.take() {
            state.stamped.complete.record(seen.at.saturating_since(completed).as_ns());
        }
        match (why, &mut state.awake) {
            (SwitchOutReason::Asleep, _) => state.begin_awake(early_wakeup),
            (SwitchOutReason::Ended, awake) => *awake = None,
            (_, Some(awake)) => awake.switches.push(seen),
            (_, None) => {}
        }
    }

    /// Logs the effect of a wake-up or a switch on the lane's open job.
    fn log_job_event(&mut self, seen: RunEvent) {
        let (Kind::Woken { lane } | Kind::SwitchIn { lane, .. } | Kind::SwitchOut { lane, .. }) = seen.what else {
            return;
        };
        let Some(open) = self.lanes.get_mut(lane).and_then(|lane| lane.open.as_mut()).filter(|_| seen.at <= self.end)
        else {
            return;
        };
        let (job, from) = (open.key, open.cpu);
        match seen.what {
            Kind::SwitchOut { cpu, why, .. } => {
                open.is_waiting = matches!(why, SwitchOutReason::Asleep | SwitchOutReason::Held);
                let event = match why {
                    SwitchOutReason::Taken => Event::Preempt { job, cpu },
                    SwitchOutReason::Stopped | SwitchOutReason::Asleep | SwitchOutReason::Held => {
                        Event::Block { job, cpu }
                    }
                    SwitchOutReason::Ended => return,
                };
                self.push_lane_line(lane, seen.at, FREES, event);
            }
            Kind::Woken { .. } if std::mem::take(&mut open.is_waiting) => {
                self.push_lane_line(lane, seen.at, OTHER, Event::Wake { job });
            }
            Kind::SwitchIn { cpu, .. } => {
                let was_waiting = std::mem::take(&mut open.is_waiting);
                open.cpu = cpu;
                if was_waiting {
                    self.push_lane_line(lane, seen.at, OTHER, Event::Wake { job });
                }
                if cpu != from {
                    self.push_lane_line(lane, seen.at, TAKES, Event::Migrate { job, from, to: cpu });
                }
                self.push_lane_line(lane, seen.at, TAKES, Event::Resume { job, cpu });
            }
            _ => {}
        }
    }
}

impl RunEventSink for Merge {
    fn run_event(&mut self, event: RunEvent) {
        enqueue(&mut self.seen, self.settled, event);
    }
}

/// A dispatcher's stamps.
impl Sink for Merge {
    fn event(&mut self, _stream: u32, now: Time, event: &Event) {
        self.stamp(Stamp { at: now.max(self.settled), due: now, lane: None, event: *event });
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
