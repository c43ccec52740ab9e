//! Two accounts of one run made one: what a dispatcher tells of its jobs, and what the kernel saw of its threads. Pure; no clock, no I/O.
//!
//! The dispatcher knows which job begins and ends when, and on which CPU; the kernel knows which thread had that CPU. A thread takes a job while it has its CPU, so
//! that the job's thread is the one that the kernel has there. Releases, starts, completions, cancellations and misses are told as they come; from the kernel come,
//! of jobs that have started and are not over:
//!
//! | event | when |
//! |---|---|
//! | preempt, resume | when the CPU went from the job's thread to another one, and came back |
//! | block, wake | when the job's thread slept or waited, and was woken; also where it was ready and its CPU idle: the kernel stopped it |
//! | gap | where switches of the job's thread are missing: whatever is counted of the job is unknown |
//!
//! What each CPU did is kept for a while, and held against every miss ([`super::late`]).

use std::collections::{BTreeMap, VecDeque};

use takt_log::{CancelCause, Event, JobKey, Sink};
use takt_model::{Span, Task, TaskId, Time};
use takt_trace::{Comm, Thread};

use super::late::{Course, Doing, Late, Ran, Tally};
use super::plan::Plan;
use crate::witness::{Onlooker, Seen, What, Why, enqueue};

/// A thread of the dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watched {
    /// Its model CPU.
    pub(crate) cpu: u32,
    /// Whether it runs jobs; the others keep time.
    pub(crate) works: bool,
}

/// What is known of a task beforehand.
struct Known {
    cpu: u32,
    wcet: Span,
    deadline: Span,
    /// By how much the plan itself may release later than the nominal arrival.
    jitter: Span,
    /// By plan: its level, and whether that demotes late jobs that have not started.
    levels: Vec<(u32, bool)>,
}

impl Known {
    /// Whether its late jobs are demoted by this plan.
    fn demotes(&self, plan: usize) -> bool {
        self.levels.get(plan).is_some_and(|(_, demotes)| *demotes)
    }
}

/// What came of both accounts.
pub(crate) struct Evident {
    /// The last event's time.
    pub(crate) last: Time,
    /// By task of the System, of those that the plan has.
    pub(crate) late: BTreeMap<TaskId, Late>,
    /// Switches that the kernel must have made and did not tell, though it knows of no loss.
    pub(crate) missing: u64,
}

/// Merges both accounts into one stream.
pub(crate) struct Evidence {
    stream: u32,
    known: BTreeMap<TaskId, Known>,
    lanes: Vec<Watched>,
    /// Not yet looked at, each in the order of time.
    events: VecDeque<(Time, Event)>,
    seen: VecDeque<Seen>,
    cpus: Vec<Cpu>,
    /// Jobs that are released and have not ended.
    pending: BTreeMap<JobKey, Pending>,
    late: BTreeMap<TaskId, Tally>,
    plan: usize,
    settled: Time,
    told: Time,
    /// How many gaps of the kernel's account are open.
    blind: u32,
    missing: u64,
}

struct Pending {
    arrival: Time,
    /// When it would have come had nothing been disturbed: a source's at its release or when its jitter is over, a follower's with its origin.
    due: Time,
    missed: bool,
    /// It was late before it started, and goes after all others.
    demoted: bool,
}

/// The kernel's priorities of ordinary threads begin here; those of SCHED_DEADLINE and real-time threads are below.
const ORDINARY: i32 = 100;

/// The level of demoted jobs, here: below all.
const DEMOTED: u32 = u32::MAX;
/// With more jobs waiting at the end, it is not reckoned which of them were late by load.
const WAITING_MAX: usize = 4096;

/// Who has a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Unknown,
    /// A thread of the dispatcher; nothing of one that runs jobs and of which the switch was not told.
    Ours(Option<usize>),
    Idle,
    Other(Comm),
}

/// A job that has started and is not over.
struct Open {
    job: JobKey,
    level: u32,
    /// Its thread, where that is known.
    lane: Option<usize>,
    /// The log says that it has the CPU.
    runs: bool,
    /// The log says that it waits.
    waits: bool,
    /// How long it had the CPU, until the last turn.
    ran: Span,
}

struct Cpu {
    holder: Holder,
    /// The kernel has told of it since the beginning, or since events were lost.
    heard: bool,
    open: Vec<Open>,
    course: Course,
    /// When the last turn began, and whose job's it is.
    since: Time,
    turn_of: Option<JobKey>,
    /// By level: how many jobs of it and of more important ones wait or run, and since when there are any.
    busy: Vec<(u64, Time)>,
    /// Whether ordinary threads can keep it from the dispatcher's.
    contested: bool,
}

impl Evidence {
    /// The dispatcher's threads are ordinary, too.
    pub(crate) fn of_ordinary_threads(mut self) -> Evidence {
        for cpu in &mut self.cpus {
            cpu.contested = true;
        }
        self
    }

    /// Of a plan, with its threads.
    pub(crate) fn new(plan: &Plan, lanes: Vec<Watched>) -> Evidence {
        let task = |at: usize| plan.rows.get(at).and_then(|row| plan.system.tasks.get(row.task.index()));
        let mut known = BTreeMap::new();
        for (at, row) in plan.rows.iter().enumerate() {
            let Some(task) = task(at) else { continue };
            let level = |k: usize| {
                let row = plan.rows_in(k)?.get(at)?;
                Some((row.level, row.late == takt_model::Late::Demote))
            };
            let levels = (0..=plan.modes.len()).filter_map(level).collect();
            let Task { wcet, deadline, jitter, .. } = *task;
            known.insert(row.task, Known { cpu: row.cpu, wcet, deadline, jitter, levels });
        }
        let levels = known.values().flat_map(|known| &known.levels).map(|(level, _)| *level as usize + 1).max();
        let levels = levels.unwrap_or(1);
        let cpus = known.values().map(|known| known.cpu + 1).chain(lanes.iter().map(|lane| lane.cpu + 1)).max();
        let cpu = |_| Cpu {
            holder: Holder::Unknown,
            heard: false,
            open: Vec::new(),
            course: Course::new(),
            since: Time::ZERO,
            turn_of: None,
            busy: vec![(0, Time::ZERO); levels],
            contested: false,
        };
        Evidence {
            stream: plan.node.0,
            known,
            lanes,
            events: VecDeque::new(),
            seen: VecDeque::new(),
            cpus: (0..cpus.unwrap_or(0)).map(cpu).collect(),
            pending: BTreeMap::new(),
            late: BTreeMap::new(),
            plan: 0,
            settled: Time::ZERO,
            told: Time::ZERO,
            blind: 0,
            missing: 0,
        }
    }

    /// Nothing more will be told of what was before `until`, by neither; passes on what is settled.
    pub(crate) fn advance(&mut self, until: Time, sink: &mut (impl Sink + ?Sized)) {
        self.settled = self.settled.max(until);
        loop {
            // At one instant: jobs end, then the kernel switches, then jobs begin.
            let ends = |event: &Event| matches!(event, Event::Complete { .. } | Event::Cancel { .. });
            let event = self.events.front().map(|(at, event)| (*at, if ends(event) { 0 } else { 2 }));
            let seen = self.seen.front().map(|seen| (seen.at, 1));
            match (event, seen) {
                (event, Some(seen)) if seen.0 < self.settled && event.is_none_or(|event| seen < event) => {
                    if let Some(seen) = self.seen.pop_front() {
                        self.saw(seen, sink);
                    }
                }
                (Some(event), _) if event.0 < self.settled => {
                    if let Some((at, event)) = self.events.pop_front() {
                        self.heard(at, event, sink);
                    }
                }
                _ => return,
            }
        }
    }

    /// Both accounts are whole, and the run ended at `end`: tells the rest.
    pub(crate) fn finish(mut self, end: Time, sink: &mut (impl Sink + ?Sized)) -> Evident {
        // What the kernel did afterwards is not the run's.
        self.seen.retain(|seen| seen.at <= end);
        self.advance(Time::MAX, sink);
        let missed: Vec<JobKey> = self.pending.iter().filter(|(_, job)| job.missed).map(|(job, _)| *job).collect();
        for job in missed {
            self.explain(job, end, false);
        }
        let late = self.late.into_iter().map(|(task, tally)| (task, tally.told())).collect();
        Evident { last: self.told, late, missing: self.missing }
    }

    fn say(&mut self, at: Time, event: Event, sink: &mut (impl Sink + ?Sized)) {
        self.told = self.told.max(at);
        sink.event(self.stream, self.told, &event);
    }

    fn level(&self, task: TaskId) -> Option<(u32, usize)> {
        let known = self.known.get(&task)?;
        Some((known.levels.get(self.plan)?.0, known.cpu as usize))
    }

    /// The job of a lane that has started and is not over.
    fn open(&mut self, lane: usize) -> Option<&mut Open> {
        let cpu = self.lanes.get(lane)?.cpu as usize;
        self.cpus.get_mut(cpu)?.open.iter_mut().find(|open| open.lane == Some(lane))
    }
}

/// What the dispatcher says.
impl Evidence {
    fn heard(&mut self, at: Time, event: Event, sink: &mut (impl Sink + ?Sized)) {
        match event {
            Event::Release { job, arrival, parent } => {
                let jitter = self.known.get(&job.task).map_or(Span::ZERO, |known| known.jitter);
                let begins = if parent.is_some() { arrival } else { at.min(arrival.saturating_add(jitter)) };
                let due = parent.map_or(begins, |parent| parent.origin);
                self.pending.insert(job, Pending { arrival, due, missed: false, demoted: false });
                if let Some((level, cpu)) = self.level(job.task)
                    && let Some(cpu) = self.cpus.get_mut(cpu)
                {
                    for (jobs, since) in cpu.busy.iter_mut().skip(level as usize) {
                        // A late timer tells arrivals of one look in any order.
                        *since = if *jobs == 0 { begins } else { begins.min(*since) };
                        *jobs += 1;
                    }
                }
                self.say(at, event, sink);
            }
            Event::Start { job, cpu } => {
                self.say(at, event, sink);
                self.start(at, job, cpu, sink);
            }
            Event::Complete { job, .. } => {
                self.end(at, job, None, sink);
                self.say(at, event, sink);
            }
            Event::Cancel { job, cause } => {
                self.end(at, job, Some(cause), sink);
                self.say(at, event, sink);
            }
            Event::Miss { job } => {
                self.say(at, event, sink);
                self.miss(at, job);
            }
            Event::ModeChange { mode } => {
                self.say(at, event, sink);
                self.adopt(at, mode as usize);
            }
            Event::Lost { .. } => {
                self.say(at, event, sink);
                // Which jobs began or ended meanwhile nobody knows.
                self.pending.clear();
                for cpu in &mut self.cpus {
                    cpu.open.clear();
                    cpu.busy.iter_mut().for_each(|(jobs, _)| *jobs = 0);
                    cpu.hold(at, Holder::Unknown, &self.known);
                }
            }
            // The dispatcher's own idea of who has the CPU.
            Event::Preempt { .. } | Event::Resume { .. } | Event::Gap { .. } => {}
            _ => self.say(at, event, sink),
        }
    }

    fn miss(&mut self, at: Time, job: JobKey) {
        let Some(pending) = self.pending.get_mut(&job) else { return };
        pending.missed = true;
        let Some(known) = self.known.get(&job.task) else { return };
        let started = self.cpus.get(known.cpu as usize).is_some_and(|cpu| cpu.open.iter().any(|open| open.job == job));
        if known.demotes(self.plan) && !started {
            self.demote(at, job);
        }
    }

    /// What goes before a late job from now on goes before it by the plan: it is late for what was until now.
    fn demote(&mut self, at: Time, job: JobKey) {
        self.explain(job, at, false);
        self.leave(job);
        if let Some(pending) = self.pending.get_mut(&job) {
            (pending.missed, pending.demoted) = (false, true);
        }
    }

    /// A job is not among those any more that make its level busy.
    fn leave(&mut self, job: JobKey) {
        let demoted = self.pending.get(&job).is_none_or(|pending| pending.demoted);
        let Some((level, cpu)) = self.level(job.task).filter(|_| !demoted) else { return };
        let Some(here) = self.cpus.get_mut(cpu) else { return };
        for (jobs, _) in here.busy.iter_mut().skip(level as usize) {
            *jobs = jobs.saturating_sub(1);
        }
    }

    /// Jobs of a task end in turn: what was before this one and is still here ended untold.
    fn forget_before(&mut self, job: JobKey) {
        let first = JobKey { number: 0, ..job };
        while let Some(stale) = self.pending.range(first..job).next().map(|(stale, _)| *stale) {
            self.leave(stale);
            self.pending.remove(&stale);
            for cpu in &mut self.cpus {
                cpu.open.retain(|open| open.job != stale);
            }
        }
    }

    fn start(&mut self, at: Time, job: JobKey, cpu: u32, sink: &mut (impl Sink + ?Sized)) {
        self.forget_before(job);
        let demoted = self.pending.get(&job).is_some_and(|pending| pending.demoted);
        let level = if demoted { DEMOTED } else { self.level(job.task).map_or(0, |(level, _)| level) };
        let blind = self.blind > 0;
        let Some(here) = self.cpus.get_mut(cpu as usize) else { return };
        let works = |lane: usize| self.lanes.get(lane).is_some_and(|lane| lane.works);
        let lane = match here.holder {
            Holder::Ours(Some(lane)) if works(lane) && here.open.iter().all(|open| open.lane != Some(lane)) => {
                Some(lane)
            }
            _ => None,
        };
        let unseen = lane.is_none() && here.holder != Holder::Ours(None) && here.heard;
        // Whoever had the CPU by the log lost it unseen.
        let mut gaps = here.lose_unseen(None);
        here.open.push(Open { job, level, lane, runs: true, waits: false, ran: Span::ZERO });
        // Where the kernel tells nothing, nobody knows how long the job keeps the CPU.
        let holder = if here.heard && !blind { Holder::Ours(lane) } else { Holder::Unknown };
        here.hold(at, holder, &self.known);
        self.missing += u64::from(unseen && !blind);
        if blind {
            gaps.push(job);
        }
        for job in gaps {
            self.say(at, Event::Gap { job }, sink);
        }
    }

    /// A job completed, or was cancelled for this cause.
    fn end(&mut self, at: Time, job: JobKey, cause: Option<CancelCause>, sink: &mut (impl Sink + ?Sized)) {
        if cause.is_none() {
            self.forget_before(job);
        }
        let dropped = cause == Some(CancelCause::Late);
        let Some(Known { cpu, wcet, .. }) = self.known.get(&job.task) else { return };
        let (cpu, wcet) = (*cpu as usize, *wcet);
        let mut unseen = false;
        if let Some(here) = self.cpus.get_mut(cpu)
            && let Some(open) = here.open.iter().find(|open| open.job == job)
        {
            unseen = !open.runs && !dropped;
            let holder = match open.lane {
                Some(lane) if !dropped && here.heard && self.blind == 0 => Holder::Ours(Some(lane)),
                _ => here.holder,
            };
            here.hold(at, holder, &self.known);
        }
        if unseen {
            let heard = self.cpus.get(cpu).is_some_and(|cpu| cpu.heard);
            self.missing += u64::from(self.blind == 0 && heard);
            self.say(at, Event::Gap { job }, sink);
        }
        let missed = self.pending.get(&job).is_some_and(|pending| pending.missed);
        match cause {
            Some(CancelCause::Late) => self.explain(job, at, false),
            None | Some(CancelCause::Failed) if missed => self.explain(job, at, true),
            // What never began, or was not to begin any more, is counted as cancelled.
            _ => {}
        }
        self.leave(job);
        let Some(here) = self.cpus.get_mut(cpu) else { return };
        let pending = self.pending.remove(&job);
        if let Some(at) = here.open.iter().position(|open| open.job == job) {
            let Open { level, ran, .. } = here.open.remove(at);
            let arrival = pending.as_ref().map_or(Time::ZERO, |pending| pending.due);
            here.course.ended(Ran { level, arrival, took: ran.min(wcet) });
        }
        here.hold(at, here.holder, &self.known);
    }

    /// A job was late and ended now, or it was dropped at its deadline, or is not over at the end of the run.
    fn explain(&mut self, job: JobKey, now: Time, ended: bool) {
        let (Some((level, cpu)), Some(pending)) = (self.level(job.task), self.pending.get(&job)) else { return };
        let (Some(known), Some(here)) = (self.known.get(&job.task), self.cpus.get_mut(cpu)) else { return };
        here.hold(now, here.holder, &self.known);
        let ran = here.open.iter().find(|open| open.job == job).map_or(Span::ZERO, |open| open.ran);
        // How long it would have taken, had it come to its end, nobody knows.
        let took = if ended { ran.min(known.wcet) } else { known.wcet };
        let since = here.busy.get(level as usize).map_or(pending.arrival, |(_, since)| (*since).min(pending.arrival));
        // What goes before a job that has not ended: all that is more important, its own predecessors, and what has started.
        let first = |other: &JobKey, of: u32| {
            let started = || here.open.iter().any(|open| open.job == *other);
            of < level || (of == level && ((other.task == job.task && other.number < job.number) || started()))
        };
        let waiting = self.pending.iter().filter(|(other, pending)| !ended && **other != job && !pending.demoted);
        let ahead = waiting.filter_map(|(other, pending)| {
            let known = self.known.get(&other.task).filter(|known| known.cpu as usize == cpu)?;
            let (level, _) = known.levels.get(self.plan).copied().filter(|(of, _)| first(other, *of))?;
            Some(Ran { level, arrival: pending.due, took: known.wcet })
        });
        let this = Ran { level, arrival: pending.arrival, took };
        let few = ended || self.pending.len() <= WAITING_MAX;
        let undisturbed = if few { here.course.undisturbed(this, ahead, since) } else { None };
        let late = self.late.entry(job.task).or_default();
        match undisturbed {
            Some(end) if end > pending.arrival.saturating_add(known.deadline) => {
                late.by_load(&here.course.disturbance(level, since, now));
            }
            Some(_) => late.disturbed(&here.course.disturbance(level, since, now)),
            None => late.unknown(),
        }
    }

    /// Another plan holds: jobs are of other levels, those that are late and have not started are demoted where it does that, and demoted ones are so no more where it
    /// does not.
    fn adopt(&mut self, at: Time, plan: usize) {
        let started: Vec<JobKey> = self.cpus.iter().flat_map(|cpu| &cpu.open).map(|open| open.job).collect();
        let late = self.pending.iter().filter(|(_, pending)| pending.missed && !pending.demoted).map(|(job, _)| *job);
        let demotes = |job: &JobKey| self.known.get(&job.task).is_some_and(|known| known.demotes(plan));
        let fall: Vec<JobKey> = late.filter(|job| demotes(job) && !started.contains(job)).collect();
        for job in fall {
            self.demote(at, job);
        }
        for (job, pending) in &mut self.pending {
            pending.demoted &= self.known.get(&job.task).is_some_and(|known| known.demotes(plan));
        }
        self.plan = plan;
        let mut fresh: Vec<Vec<(u64, Time)>> =
            self.cpus.iter().map(|cpu| vec![(0, Time::MAX); cpu.busy.len()]).collect();
        for (job, pending) in self.pending.iter().filter(|(_, pending)| !pending.demoted) {
            let Some((level, cpu)) = self.level(job.task) else { continue };
            let of = fresh.get_mut(cpu).map_or(&mut [][..], |levels| levels.as_mut_slice());
            for (jobs, earliest) in of.iter_mut().skip(level as usize) {
                *jobs += 1;
                *earliest = pending.arrival.min(*earliest);
            }
        }
        for (here, fresh) in self.cpus.iter_mut().zip(fresh) {
            for ((jobs, since), (now_jobs, earliest)) in here.busy.iter_mut().zip(fresh) {
                if *jobs == 0 && now_jobs > 0 {
                    *since = earliest;
                }
                *jobs = now_jobs;
            }
            for open in &mut here.open {
                let level = self.known.get(&open.job.task).and_then(|known| known.levels.get(plan));
                if let Some((level, demotes)) = level
                    && !(open.level == DEMOTED && *demotes)
                {
                    open.level = *level;
                }
            }
            here.hold(at, here.holder, &self.known);
        }
    }
}

/// What the kernel says.
impl Evidence {
    fn saw(&mut self, seen: Seen, sink: &mut (impl Sink + ?Sized)) {
        let at = seen.at;
        match seen.what {
            What::Woken { lane } => {
                if let Some(open) = self.open(lane)
                    && std::mem::take(&mut open.waits)
                {
                    let job = open.job;
                    self.say(at, Event::Wake { job }, sink);
                }
            }
            What::In { lane, cpu } => self.came(at, lane, cpu, sink),
            What::Out { lane, cpu, why } => self.left(at, lane, cpu, why, sink),
            What::Other { cpu, thread } => {
                if let Some(here) = self.cpus.get_mut(cpu as usize) {
                    here.heard |= self.blind == 0;
                    here.hold(at, Holder::of(&thread), &self.known);
                }
            }
            What::Gave { cpu, thread } => {
                if let Some(here) = self.cpus.get_mut(cpu as usize) {
                    here.gave(at, &thread, &self.known);
                }
            }
            What::Blind { count } => {
                self.blind += 1;
                self.say(at, Event::Lost { count }, sink);
                let mut gaps = Vec::new();
                for cpu in &mut self.cpus {
                    cpu.forget(at, &self.known);
                    gaps.extend(cpu.open.iter().map(|open| open.job));
                }
                for job in gaps {
                    self.say(at, Event::Gap { job }, sink);
                }
            }
            What::Sighted => {
                self.blind = self.blind.saturating_sub(1);
                self.cpus.iter_mut().for_each(|cpu| cpu.forget(at, &self.known));
            }
        }
    }

    /// A thread got its CPU.
    fn came(&mut self, at: Time, lane: usize, cpu: u32, sink: &mut (impl Sink + ?Sized)) {
        let blind = self.blind > 0;
        let Some(here) = self.cpus.get_mut(cpu as usize) else { return };
        let sure = std::mem::replace(&mut here.heard, !blind);
        here.hold(at, Holder::Ours(Some(lane)), &self.known);
        // Whose job had the CPU by the log lost it unseen.
        let mut lines: Vec<Event> = here.lose_unseen(Some(lane)).into_iter().map(|job| Event::Gap { job }).collect();
        if let Some(open) = here.open.iter_mut().find(|open| open.lane == Some(lane)) {
            let job = open.job;
            if std::mem::take(&mut open.waits) {
                lines.push(Event::Wake { job });
            }
            lines.push(if std::mem::replace(&mut open.runs, true) {
                Event::Gap { job }
            } else {
                Event::Resume { job, cpu }
            });
        }
        let gap = |line: &&Event| matches!(line, Event::Gap { .. });
        self.missing += lines.iter().filter(gap).count() as u64 * u64::from(!blind && sure);
        for line in lines {
            self.say(at, line, sink);
        }
    }

    /// A thread left its CPU.
    fn left(&mut self, at: Time, lane: usize, cpu: u32, why: Why, sink: &mut (impl Sink + ?Sized)) {
        let works = self.lanes.get(lane).is_some_and(|lane| lane.works);
        let blind = self.blind > 0;
        let Some(here) = self.cpus.get_mut(cpu as usize) else { return };
        let sure = std::mem::replace(&mut here.heard, !blind);
        // That it came was not told: a job that began meanwhile is its.
        if works && here.holder != Holder::Ours(Some(lane)) && here.open.iter().all(|open| open.lane != Some(lane)) {
            let mut unplaced = here.open.iter_mut().filter(|open| open.lane.is_none());
            if let (Some(open), None) = (unplaced.next(), unplaced.next()) {
                open.lane = Some(lane);
            }
        }
        let mut line = None;
        let mut unseen = false;
        if let Some(open) = here.open.iter_mut().find(|open| open.lane == Some(lane)) {
            let job = open.job;
            open.waits = matches!(why, Why::Asleep | Why::Held);
            unseen = !std::mem::take(&mut open.runs) && sure;
            line = match why {
                Why::Ended => None,
                _ if unseen => Some(Event::Gap { job }),
                Why::Taken => Some(Event::Preempt { job, cpu }),
                Why::Stopped | Why::Asleep | Why::Held => Some(Event::Block { job, cpu }),
            };
        }
        here.hold(at, Holder::Unknown, &self.known);
        self.missing += u64::from(unseen && !blind);
        if let Some(line) = line {
            self.say(at, line, sink);
        }
    }
}

impl Holder {
    /// A thread that is not the dispatcher's.
    fn of(thread: &Thread) -> Holder {
        if thread.pid == 0 { Holder::Idle } else { Holder::Other(thread.comm) }
    }

    /// Without a job.
    fn doing(self) -> Doing {
        match self {
            Holder::Ours(_) => Doing::Dispatching,
            Holder::Idle => Doing::Idle,
            Holder::Other(comm) => Doing::Other(comm),
            Holder::Unknown => Doing::Unknown,
        }
    }
}

impl Cpu {
    /// Events were lost, or were until now.
    fn forget(&mut self, at: Time, known: &BTreeMap<TaskId, Known>) {
        self.hold(at, Holder::Unknown, known);
        self.heard = false;
        for open in &mut self.open {
            (open.runs, open.waits) = (false, false);
        }
    }

    /// Who had the CPU last before a thread of the dispatcher gets it. Switches among others are not recorded: when the one came after the other nobody knows.
    fn gave(&mut self, at: Time, last: &Thread, known: &BTreeMap<TaskId, Known>) {
        let holder = Holder::of(last);
        let can_delay = self.contested || last.prio.is_none_or(|prio| prio < ORDINARY);
        match (self.holder, holder) {
            // After somebody's moment: nobody wanted it when the dispatcher's thread woke.
            (Holder::Other(_), Holder::Idle) => {}
            // Whoever is ordinary cannot have kept it from real-time threads.
            (Holder::Idle, Holder::Other(_)) if can_delay => {}
            _ => return,
        }
        self.course.relabel(holder.doing());
        self.hold(at, holder, known);
    }

    /// The jobs of threads but this one that had the CPU by the log have it no more.
    fn lose_unseen(&mut self, but: Option<usize>) -> Vec<JobKey> {
        let mut lost = Vec::new();
        for open in &mut self.open {
            if (but.is_none() || open.lane != but) && std::mem::take(&mut open.runs) {
                lost.push(open.job);
            }
        }
        lost
    }

    /// Somebody has the CPU from `at` on; the turn before that is over.
    fn hold(&mut self, at: Time, holder: Holder, known: &BTreeMap<TaskId, Known>) {
        let at = at.max(self.since);
        if let Some(job) = self.turn_of
            && let Some(open) = self.open.iter_mut().find(|open| open.job == job)
        {
            let wcet = known.get(&job.task).map_or(Span::MAX, |known| known.wcet);
            let within = wcet.saturating_sub(open.ran);
            open.ran = open.ran.saturating_add(at.saturating_since(self.since));
            if open.ran > wcet {
                self.course.turn(self.since.saturating_add(within), Doing::Beyond);
            }
        }
        self.holder = holder;
        let job = match holder {
            Holder::Ours(lane) => self.open.iter().find(|open| open.lane == lane && (lane.is_some() || open.runs)),
            _ => None,
        };
        let doing = match (holder, job) {
            (Holder::Ours(_), Some(open)) => Doing::Job { level: open.level },
            (Holder::Ours(_), None) => Doing::Dispatching,
            (other, _) => other.doing(),
        };
        (self.since, self.turn_of) = (at, job.map(|open| open.job));
        self.course.turn(at, doing);
    }
}

impl Sink for Evidence {
    fn event(&mut self, _stream: u32, now: Time, event: &Event) {
        self.events.push_back((now.max(self.settled), *event));
    }
}

impl Onlooker for Evidence {
    fn see(&mut self, seen: Seen) {
        enqueue(&mut self.seen, self.settled, seen);
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
