//! Runs in which each task has a thread of its own, which stamps what it does.
//!
//! The threads know which job they work on, and the kernel knows when they had a CPU. Both come in the order of time, each up to a bound of its own;
//! what lies before both bounds is settled, and the events that follow from it go to the log in the order of time:
//!
//! | event | when |
//! |---|---|
//! | release | as stamped; of a job for which the thread was woken, when the kernel began to wake it |
//! | start | of such a job, when the thread first got a CPU after that and after the release; of a job that follows another without a sleep in between, as stamped |
//! | preempt, resume | when the CPU went to another thread while the job was open, and came back; `migrate` where another CPU came |
//! | block, wake | when the thread slept or waited within its job, and was woken. Also a thread that the kernel stopped: its SCHED_DEADLINE budget is used up, or nobody gets its CPU |
//! | occupy | when the CPU went to a thread that is not the run's, or to nobody |
//! | complete | as stamped |
//! | miss | at the deadline; at the release, where that is later |
//!
//! A thread stamps while it has a CPU, so the kernel must say so for the moment of every stamp: [`Stamped`] counts the jobs that were held against it, and those of
//! which the accounts contradict each other: the kernel gives the thread a CPU after the stamp. Where it never said so, and then takes the CPU away, it has
//! kept a switch to itself: that from another thread to this one (a switch is recorded in the context of the thread that leaves, and there are kernels with threads
//! of which nothing is recorded), so that no preemption of this thread is missing. Where that was the switch to a woken thread, its job starts as stamped. Where the kernel lost events, the log has [`Event::Lost`] at the beginning of the gap, and
//! [`Event::Gap`] after each start within and where switches of a thread with an open job are missing: whatever is counted of such a job is unknown.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use takt_log::stats::Histogram;
use takt_log::{Event, JobKey, Sink};
use takt_model::{Span, Time};

use super::seen::{Onlooker, Seen, SeenWhat as What, Why, enqueue};
use super::strangers::{self, Strangers};

/// An event as the threads' stamps give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// When.
    pub at: Time,
    /// When it should have been: a deadline that had passed before the release.
    pub due: Time,
    /// Whose it is; `None` for what concerns all.
    pub lane: Option<usize>,
    /// What.
    pub event: Event,
}

/// How the stamps of a task's jobs look to the kernel.
#[derive(Clone, Debug, Default)]
pub struct Stamped {
    /// Completed jobs of which the kernel's account confirms or denies the stamps.
    pub checked: u64,
    /// Of these, stamps that were taken before the thread got a CPU, says the kernel.
    pub contradicted: u64,
    /// From the kernel's start to the stamp, of jobs for which the thread was woken.
    pub start: Histogram,
    /// From the stamp of a completion to the moment when the thread left its CPU, where it did so before its next job.
    pub complete: Histogram,
    /// From the nominal arrival to the stamp of the release, of jobs for which the thread was woken.
    pub release: Histogram,
}

/// What came of both accounts.
pub struct Merged {
    /// The last event's time.
    pub last: Time,
    /// By lane.
    pub stamped: Vec<Stamped>,
    /// Switches that the kernel must have made and did not tell, though it knows of no loss.
    pub missing: u64,
}

/// Merges both accounts into one stream.
pub struct ByTask {
    stream: u32,
    lanes: Vec<Lane>,
    /// Not yet looked at, in the order of time.
    stamps: VecDeque<Stamp>,
    seen: VecDeque<Seen>,
    /// No stamp before this will come any more.
    stamped_until: Time,
    /// What lies before this has been looked at.
    settled: Time,
    /// Events of the log that others may yet precede.
    lines: BinaryHeap<Reverse<Line>>,
    sequence: u64,
    /// The last event's time.
    told: Time,
    /// How many gaps of the kernel's account are open.
    blind: u32,
    /// Switches that the kernel must have made and did not tell.
    missing: u64,
    strangers: Strangers,
    /// Nothing that the kernel did after this concerns the run.
    end: Time,
}

/// A line of the log, to be sorted: by time, what frees a CPU before what takes one, and then as it was found.
struct Line {
    key: (Time, u8, u64),
    line: strangers::Line,
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

/// Where the kernel has a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Unknown,
    On {
        cpu: u32,
    },
    /// Ready, without a CPU.
    Ready,
    /// Asleep or held.
    Waiting,
}

/// One thread.
struct Lane {
    place: Place,
    /// Something is missing of what it has done since its last job.
    doubtful: bool,
    /// It stamped without a CPU; what the kernel says next tells who is wrong.
    suspect: bool,
    /// When it was woken while it was on its way to sleep.
    roused: Option<Time>,
    /// The job that it works on.
    open: Option<Job>,
    /// What it has done since it last went to sleep, or since it was lost sight of; `None` while it works or has not slept since it did.
    awake: Option<Awake>,
    /// When it completed its last job, until it leaves its CPU.
    completed: Option<Time>,
    /// Jobs that are released and have not completed: their numbers and when they were released.
    released: VecDeque<(u64, Time)>,
    /// The last line's time and rank.
    last: (Time, u8),
    /// Of its SCHED_DEADLINE reservation.
    budget: Option<Span>,
    /// Since it was last woken: how long it had a CPU, since when it has one, how often it was throttled.
    ran: Span,
    since: Time,
    throttled: u64,
    stamped: Stamped,
}

#[derive(Clone, Copy)]
struct Job {
    key: JobKey,
    /// The CPU that it had last.
    cpu: u32,
    /// The log says that it waits.
    waits: bool,
    /// The kernel says, too, that its thread had a CPU at its start.
    agrees: bool,
}

/// A thread between its wake-up and its next job.
#[derive(Default)]
struct Awake {
    woken: Option<Time>,
    /// The log has the release to which it was woken.
    released: bool,
    switches: Vec<Seen>,
}

/// Ranks of what happens at one instant.
const FREES: u8 = 0;
const OTHER: u8 = 1;
const TAKES: u8 = 2;

impl ByTask {
    /// For so many threads, with the budgets of those that have a SCHED_DEADLINE reservation.
    pub fn new(stream: u32, budgets: impl IntoIterator<Item = Option<Span>>) -> ByTask {
        ByTask {
            stream,
            lanes: budgets.into_iter().map(Lane::new).collect(),
            stamps: VecDeque::new(),
            seen: VecDeque::new(),
            stamped_until: Time::ZERO,
            settled: Time::ZERO,
            lines: BinaryHeap::new(),
            sequence: 0,
            told: Time::ZERO,
            blind: 0,
            missing: 0,
            strangers: Strangers::new(stream),
            end: Time::MAX,
        }
    }

    /// Nothing more will be seen before `seen_until`; tells what is settled. What the kernel does after `end` does not count.
    pub fn advance(&mut self, seen_until: Time, end: Time, sink: &mut impl Sink) {
        self.end = end;
        let settled = self.stamped_until.min(seen_until).max(self.settled);
        loop {
            let stamp = self.stamps.front().map(|stamp| stamp.at).filter(|at| *at < settled);
            let seen = self.seen.front().map(|seen| seen.at).filter(|at| *at < settled);
            match (stamp, seen) {
                (stamp, Some(seen)) if stamp.is_none_or(|stamp| seen <= stamp) => {
                    if let Some(seen) = self.seen.pop_front() {
                        self.saw(seen);
                    }
                }
                (Some(_), _) => {
                    if let Some(stamp) = self.stamps.pop_front() {
                        self.stamped(stamp);
                    }
                }
                _ => break,
            }
        }
        self.settled = settled;
        let bound = self.lanes.iter().filter_map(Lane::pending).fold(settled, Ord::min);
        self.tell(bound, sink);
    }

    /// Both accounts are whole: tells the rest.
    pub fn finish(mut self, end: Time, sink: &mut impl Sink) -> Merged {
        self.stamped_until = Time::MAX;
        self.advance(Time::MAX, end, sink);
        self.tell(Time::MAX, sink);
        let stamped = self.lanes.into_iter().map(|lane| lane.stamped).collect();
        Merged { last: self.told, stamped, missing: self.missing }
    }

    fn tell(&mut self, before: Time, sink: &mut impl Sink) {
        while self.lines.peek().is_some_and(|Reverse(line)| line.key.0 < before) {
            let Some(Reverse(line)) = self.lines.pop() else { return };
            self.told = self.told.max(line.key.0);
            line.line.tell(self.stream, self.told, sink);
        }
    }

    /// A line that belongs to no thread's course.
    fn line(&mut self, at: Time, rank: u8, event: Event) {
        self.lines(at, rank, vec![strangers::Line::Event(event)]);
    }

    /// Lines that belong to no thread's course, in their order.
    fn lines(&mut self, at: Time, rank: u8, lines: Vec<strangers::Line>) {
        for line in lines {
            self.lines.push(Reverse(Line { key: (at, rank, self.sequence), line }));
            self.sequence += 1;
        }
    }

    /// A line of a thread, which is not before its last one: when.
    fn say(&mut self, lane: usize, at: Time, rank: u8, event: Event) -> Time {
        let Some(state) = self.lanes.get_mut(lane) else { return at };
        let (at, rank) = (at, rank).max(state.last);
        state.last = (at, rank);
        self.line(at, rank, event);
        at
    }
}

/// What the threads say.
impl ByTask {
    fn stamped(&mut self, stamp: Stamp) {
        let Stamp { at, due, lane, event } = stamp;
        match (event, lane) {
            (Event::Release { job, arrival, .. }, Some(lane)) => self.release(lane, at, job, arrival, event),
            (Event::Start { job, cpu }, Some(lane)) => self.start(lane, at, job, cpu),
            (Event::Complete { job, cpu }, Some(lane)) => self.complete(lane, at, job, cpu),
            (Event::Miss { job }, Some(lane)) => {
                let released = self.lanes.get(lane).and_then(|lane| lane.released_at(job.number));
                self.line(at.min(released.map_or(at, |released| released.max(due))), TAKES, event);
            }
            _ => self.line(at, TAKES, event),
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
        let at = self.say(lane, at, OTHER, event);
        if let Some(state) = self.lanes.get_mut(lane) {
            state.released.push_back((job.number, at));
        }
    }

    fn start(&mut self, lane: usize, stamp: Time, job: JobKey, cpu: u32) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        let released = state.released_at(job.number).unwrap_or(Time::ZERO);
        // Woken and not yet given a CPU, says the kernel: it did not tell of one switch, to this thread from one that keeps its own to itself.
        // What the thread does after that it tells itself.
        let woken = state.place == Place::Ready || (state.place == Place::Unknown && state.roused.is_some());
        let began = woken && state.awake.as_ref().is_some_and(|awake| awake.switches.is_empty());
        let agrees = state.prove(cpu);
        let awake = state.awake.take().unwrap_or_default();
        let (start, rest) = awake.first_on_cpu(released, stamp);
        let cpu = start.map_or(state.cpu_or(cpu), |(_, cpu)| cpu);
        let at = start.map_or(stamp, |(at, _)| at);
        if start.is_some() {
            state.stamped.start.record(stamp.saturating_since(at).as_ns());
        }
        let doubtful = std::mem::take(&mut state.doubtful) || !(agrees || began);
        (state.completed, state.roused) = (None, None);
        state.open = Some(Job { key: job, cpu, waits: false, agrees });
        self.say(lane, at, TAKES, Event::Start { job, cpu });
        for seen in rest {
            self.course(seen);
        }
        // Where the kernel's account does not cover the start, nothing can be counted of the job.
        if self.blind > 0 || doubtful {
            self.say(lane, stamp, TAKES, Event::Gap { job });
        }
    }

    fn complete(&mut self, lane: usize, stamp: Time, job: JobKey, cpu: u32) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        let agrees = state.prove(cpu);
        let cpu = state.cpu_or(cpu);
        let open = state.open.take().filter(|open| open.key == job);
        state.stamped.checked += u64::from(agrees && open.is_some_and(|open| open.agrees));
        while state.released.front().is_some_and(|(number, _)| *number <= job.number) {
            state.released.pop_front();
        }
        (state.awake, state.completed, state.doubtful) = (None, Some(stamp), false);
        if !agrees {
            self.say(lane, stamp, FREES, Event::Gap { job });
        }
        self.say(lane, stamp, FREES, Event::Complete { job, cpu });
    }
}

/// What the kernel says.
impl ByTask {
    fn saw(&mut self, seen: Seen) {
        match seen.what {
            What::Blind { count } => {
                self.blind += 1;
                self.line(seen.at, FREES, Event::Lost { count });
                self.strangers.forget();
                self.lanes.iter_mut().for_each(Lane::forget);
            }
            What::Other { cpu, thread } if seen.at <= self.end => {
                let lines = self.strangers.got(cpu, &thread);
                self.lines(seen.at, OTHER, lines);
            }
            What::Gave { cpu, thread } if seen.at <= self.end => {
                let lines = self.strangers.gave(cpu, &thread);
                self.lines(seen.at, OTHER, lines);
            }
            What::Interrupt { cpu, kind, number, name, begins } if seen.at <= self.end => {
                let lines = self.strangers.interrupt(cpu, kind, number, &name, begins);
                self.lines(seen.at, OTHER, lines);
            }
            What::Stolen { cpu, span, within } if seen.at <= self.end => {
                self.line(seen.at, OTHER, Event::Steal { cpu, span, within });
            }
            What::Other { .. } | What::Gave { .. } | What::Interrupt { .. } | What::Stolen { .. } => {}
            What::Sighted => {
                self.blind = self.blind.saturating_sub(1);
                self.lanes.iter_mut().for_each(Lane::forget);
            }
            What::Woken { lane } => {
                let Some(state) = self.lanes.get_mut(lane) else { return };
                match state.place {
                    Place::Waiting => {
                        state.place = Place::Ready;
                        // From its sleep on everything is known.
                        state.doubtful &= state.awake.as_ref().is_none_or(|awake| !awake.switches.is_empty());
                    }
                    // Asleep, or on its way.
                    Place::Unknown => state.roused = Some(seen.at),
                    Place::On { .. } => return state.roused = state.roused.or(Some(seen.at)),
                    Place::Ready => return,
                }
                (state.ran, state.throttled) = (Span::ZERO, 0);
                match &mut state.awake {
                    Some(awake) if awake.switches.is_empty() => awake.woken = awake.woken.or(Some(seen.at)),
                    Some(awake) => awake.switches.push(seen),
                    None => self.course(seen),
                }
            }
            What::In { lane, cpu } => {
                let Some(state) = self.lanes.get_mut(lane) else { return };
                let fits = !matches!(state.place, Place::On { .. });
                if std::mem::take(&mut state.suspect) {
                    state.stamped.checked += 1;
                    state.stamped.contradicted += 1;
                }
                if state.place == Place::Waiting {
                    (state.ran, state.throttled) = (Span::ZERO, 0);
                }
                (state.place, state.since) = (Place::On { cpu }, seen.at);
                let roused = state.roused.take();
                if !fits && state.open.is_none() {
                    // It left unseen, and was woken.
                    state.awake = Some(Awake { woken: roused, ..Awake::default() });
                }
                self.switched(lane, seen, fits);
            }
            What::Out { lane, cpu, why } => {
                let Some(state) = self.lanes.get_mut(lane) else { return };
                let fits = state.place == Place::Unknown || state.place == Place::On { cpu };
                // Since when it had the CPU, and for what, nobody knows. From its next sleep on everything is known.
                state.doubtful |= state.place == Place::Unknown && why != Why::Asleep;
                self.missing += u64::from(std::mem::take(&mut state.suspect));
                let what = What::Out { lane, cpu, why: state.left(seen.at, why) };
                self.switched(lane, Seen { what, ..seen }, fits);
            }
        }
    }

    /// A switch belongs to an open job, or to one that begins, or to none. One that does not fit the one before means that some are missing.
    fn switched(&mut self, lane: usize, seen: Seen, fits: bool) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        if !fits {
            self.missing += 1;
            if let Some(Job { key: job, .. }) = state.open {
                self.say(lane, seen.at, FREES, Event::Gap { job });
            }
        }
        let Some(state) = self.lanes.get_mut(lane) else { return };
        state.doubtful |= !fits && state.open.is_none();
        let roused = state.roused.take().filter(|_| state.place == Place::Waiting);
        if roused.is_some() {
            (state.place, state.ran, state.throttled) = (Place::Ready, Span::ZERO, 0);
        }
        if state.open.is_some() {
            return self.course(seen);
        }
        let What::Out { why, .. } = seen.what else {
            if let Some(awake) = &mut state.awake {
                awake.switches.push(seen);
            }
            return;
        };
        if let Some(completed) = state.completed.take() {
            state.stamped.complete.record(seen.at.saturating_since(completed).as_ns());
        }
        match (why, &mut state.awake) {
            (Why::Asleep, awake) => *awake = Some(Awake { woken: roused, ..Awake::default() }),
            (Why::Ended, awake) => *awake = None,
            (_, Some(awake)) => awake.switches.push(seen),
            (_, None) => {}
        }
    }

    /// What happens to a thread in the course of its job.
    fn course(&mut self, seen: Seen) {
        let (What::Woken { lane } | What::In { lane, .. } | What::Out { lane, .. }) = seen.what else { return };
        let Some(open) = self.lanes.get_mut(lane).and_then(|lane| lane.open.as_mut()).filter(|_| seen.at <= self.end)
        else {
            return;
        };
        let (job, from) = (open.key, open.cpu);
        match seen.what {
            What::Out { cpu, why, .. } => {
                open.waits = matches!(why, Why::Asleep | Why::Held);
                let event = match why {
                    Why::Taken => Event::Preempt { job, cpu },
                    Why::Stopped | Why::Asleep | Why::Held => Event::Block { job, cpu },
                    Why::Ended => return,
                };
                self.say(lane, seen.at, FREES, event);
            }
            What::Woken { .. } if std::mem::take(&mut open.waits) => {
                self.say(lane, seen.at, OTHER, Event::Wake { job });
            }
            What::In { cpu, .. } => {
                let waits = std::mem::take(&mut open.waits);
                open.cpu = cpu;
                if waits {
                    self.say(lane, seen.at, OTHER, Event::Wake { job });
                }
                if cpu != from {
                    self.say(lane, seen.at, TAKES, Event::Migrate { job, from, to: cpu });
                }
                self.say(lane, seen.at, TAKES, Event::Resume { job, cpu });
            }
            _ => {}
        }
    }
}

impl Lane {
    fn new(budget: Option<Span>) -> Lane {
        Lane {
            place: Place::Unknown,
            doubtful: false,
            suspect: false,
            roused: None,
            open: None,
            awake: Some(Awake::default()),
            completed: None,
            released: VecDeque::new(),
            last: (Time::ZERO, FREES),
            budget,
            ran: Span::ZERO,
            since: Time::ZERO,
            throttled: 0,
            stamped: Stamped::default(),
        }
    }

    /// What a stamp to come may tell of the past: nothing after this may be told yet.
    fn pending(&self) -> Option<Time> {
        if self.open.is_some() {
            return None;
        }
        let awake = self.awake.as_ref();
        let woken = awake.and_then(|awake| awake.woken.filter(|_| !awake.released)).or(self.roused);
        woken.or_else(|| awake?.switches.first().map(|seen| seen.at))
    }

    fn released_at(&self, number: u64) -> Option<Time> {
        let at = self.released.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.released.get(at).map(|(_, at)| *at)
    }

    /// The thread stamps on `cpu`. Whether the kernel says, too, that it has a CPU.
    fn prove(&mut self, cpu: u32) -> bool {
        let agrees = matches!(self.place, Place::On { .. });
        if !agrees {
            self.suspect |= matches!(self.place, Place::Ready | Place::Waiting) || self.roused.is_some();
            self.place = Place::On { cpu };
        }
        agrees
    }

    fn cpu_or(&self, cpu: u32) -> u32 {
        if let Place::On { cpu } = self.place { cpu } else { cpu }
    }

    /// Events are missing.
    fn forget(&mut self) {
        (self.place, self.suspect) = (Place::Unknown, false);
        self.completed = None;
        if self.open.is_none() {
            (self.awake, self.doubtful) = (Some(Awake::default()), true);
        }
    }

    /// It leaves its CPU; a budget that is used up is why, where it is: the thread whose turn it is then may be of the same class.
    fn left(&mut self, at: Time, why: Why) -> Why {
        if let Place::On { .. } = self.place {
            self.ran = self.ran.saturating_add(at.saturating_since(self.since));
        }
        self.place = if matches!(why, Why::Taken | Why::Stopped) { Place::Ready } else { Place::Waiting };
        let (Why::Taken | Why::Stopped, Some(budget)) = (why, self.budget) else { return why };
        // Each replenishment adds a budget to what is left, be that less than nothing.
        let used_up = self.ran.as_ns() >= budget.as_ns().saturating_mul(self.throttled + 1);
        if used_up || why == Why::Stopped {
            self.throttled += 1;
            return Why::Stopped;
        }
        why
    }
}

impl Awake {
    /// When and where the thread first had a CPU, from its release on; and what followed until its stamp. `None` where nothing was seen.
    fn first_on_cpu(self, released: Time, stamp: Time) -> (Option<(Time, u32)>, Vec<Seen>) {
        let mut switches = self.switches;
        let mut found = None;
        for (k, seen) in switches.iter().enumerate() {
            let What::In { cpu, .. } = seen.what else { continue };
            let left = switches.iter().skip(k + 1).find(|next| matches!(next.what, What::Out { .. }));
            if left.is_none_or(|left| left.at > released) {
                found = Some((k, (seen.at.max(released).min(stamp), cpu)));
                break;
            }
        }
        let Some((k, start)) = found else { return (None, Vec::new()) };
        (Some(start), switches.split_off(k + 1))
    }
}

impl Onlooker for ByTask {
    fn see(&mut self, seen: Seen) {
        enqueue(&mut self.seen, self.settled, seen);
    }
}

/// The threads' account.
impl ByTask {
    /// The next event, not before the last one.
    pub fn stamp(&mut self, stamp: Stamp) {
        self.stamps.push_back(stamp);
    }

    /// No stamp before this will come any more.
    pub fn until(&mut self, until: Time) {
        self.stamped_until = until;
    }
}

#[cfg(test)]
#[path = "by_task_tests.rs"]
mod tests;
