//! Why a job was late: what had its CPU from the beginning of the busy period in which it fell until it ended, by the kernel's account. Pure.
//!
//! An analysis of a plan promises that work of the plan within its WCETs leaves time for each deadline, as long as the CPU is the plan's whenever such
//! work waits. So a miss of a plan that an analysis accepts has another cause: the CPU went to somebody else, stood idle, or a handler took longer than its WCET.
//! These disturbances are summed here. Whether the job would have been late without them, too, is reckoned from the jobs that went before it: one after the other, each from
//! its arrival on and with the time that it took up to its WCET. They arrived as the plan says, so that what an analysis accepts ends in time.

use std::collections::{BTreeMap, VecDeque};

use takt_model::{Span, Time};
use takt_trace::Comm;

/// Turns of a CPU that are remembered: of a busy period with more of them the older part is counted as unknown.
const TURNS_MAX: usize = 8192;
/// Jobs of a CPU that are remembered: why a job with a busy period of more was late is unknown.
const JOBS_MAX: usize = 4096;

/// What a CPU did for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// Nobody knows.
    Unknown,
    /// A job of this level.
    Job { level: u32 },
    /// A job of any level, beyond its WCET.
    Beyond,
    /// The dispatcher itself: its timer, its threads between jobs.
    Dispatching,
    /// Nothing.
    Idle,
    /// Another thread, and perhaps others after it.
    Other(Comm),
}

/// What a CPU did, while a job of the plan waited for it, that was not the plan's own load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// Threads that are not the dispatcher's had it.
    Others,
    /// Handlers took longer than their WCET, by the clock, while the kernel says that they had it: also interrupts, and pauses by a hypervisor.
    BeyondWcet,
    /// It was idle: timers and wake-ups came late, or real-time threads were throttled.
    Idle,
    /// Less important jobs of the plan had it: until a thread was woken, or for a lock.
    LessImportant,
    /// The dispatcher had it: timers, queues, switches of its threads.
    Dispatching,
    /// The kernel's account has nothing of it, or it is too long ago; or the job came late from another CPU.
    Unknown,
}

impl Cause {
    /// All.
    pub const ALL: [Cause; 6] =
        [Cause::Others, Cause::BeyondWcet, Cause::Idle, Cause::LessImportant, Cause::Dispatching, Cause::Unknown];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Others => "others",
            Cause::BeyondWcet => "beyond wcet",
            Cause::Idle => "idle",
            Cause::LessImportant => "less important",
            Cause::Dispatching => "dispatcher",
            Cause::Unknown => "unknown",
        }
    }
}

/// How long each cause disturbed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disturbance([Span; Cause::ALL.len()]);

impl Disturbance {
    /// How long this one did.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Span {
        let [others, beyond, idle, less, dispatching, unknown] = self.0;
        match cause {
            Cause::Others => others,
            Cause::BeyondWcet => beyond,
            Cause::Idle => idle,
            Cause::LessImportant => less,
            Cause::Dispatching => dispatching,
            Cause::Unknown => unknown,
        }
    }

    fn add(&mut self, cause: Cause, span: Span) {
        if let Some(sum) = self.0.get_mut(cause as usize) {
            *sum = sum.saturating_add(span);
        }
    }

    /// What disturbed longest, if anything did.
    fn most(&self) -> Option<Cause> {
        Cause::ALL.into_iter().filter(|cause| !self.of(*cause).is_zero()).max_by_key(|cause| self.of(*cause))
    }
}

/// The jobs of an operation that were late, by the kernel's account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Late {
    /// How many: each is counted once more, by load or by its main cause.
    pub jobs: u64,
    /// Those that would have been late without any disturbance: the plan's own jobs before them, within their WCETs, took until after the deadline. Of a
    /// plan that `takt check` accepts there are none.
    pub by_load: u64,
    mainly: [u64; Cause::ALL.len()],
    /// What disturbed the busy periods of all these jobs, summed: a busy period of several late jobs counts for each of them.
    pub disturbance: Disturbance,
    /// The threads that are not the dispatcher's and had the CPU longest in those, the longest first, at most [`Late::OTHERS_MAX`].
    pub others: Vec<(String, Span)>,
}

impl Late {
    /// So many other threads are named.
    pub const OTHERS_MAX: usize = 3;

    /// The late jobs that were not so by load, and whose busy period this disturbed longest.
    #[must_use]
    pub fn mainly(&self, cause: Cause) -> u64 {
        self.mainly.get(cause as usize).copied().unwrap_or(0)
    }
}

/// [`Late`] while it grows.
#[derive(Default)]
pub(crate) struct Tally {
    late: Late,
    others: BTreeMap<Comm, Span>,
}

impl Tally {
    /// A job was late by load, with these disturbances in its busy period, too.
    pub(crate) fn by_load(&mut self, disturbances: &(Disturbance, BTreeMap<Comm, Span>)) {
        self.late.by_load += 1;
        self.sum(disturbances);
    }

    /// A job was late for these disturbances in its busy period. Where there were none, its predecessors came too close to each other from another CPU.
    pub(crate) fn disturbed(&mut self, disturbances: &(Disturbance, BTreeMap<Comm, Span>)) {
        self.mainly(disturbances.0.most().unwrap_or(Cause::Unknown));
        self.sum(disturbances);
    }

    /// A job was late, and nobody knows any more what was before it.
    pub(crate) fn unknown(&mut self) {
        self.mainly(Cause::Unknown);
        self.late.jobs += 1;
    }

    fn mainly(&mut self, cause: Cause) {
        self.late.mainly.iter_mut().skip(cause as usize).take(1).for_each(|jobs| *jobs += 1);
    }

    fn sum(&mut self, (disturbance, others): &(Disturbance, BTreeMap<Comm, Span>)) {
        let late = &mut self.late;
        late.jobs += 1;
        for cause in Cause::ALL {
            late.disturbance.add(cause, disturbance.of(cause));
        }
        for (comm, span) in others {
            let sum = self.others.entry(*comm).or_default();
            *sum = sum.saturating_add(*span);
        }
    }

    pub(crate) fn told(self) -> Late {
        let mut others: Vec<_> = self.others.into_iter().map(|(comm, span)| (comm.to_string(), span)).collect();
        others.sort_by_key(|(_, span)| std::cmp::Reverse(*span));
        others.truncate(Late::OTHERS_MAX);
        Late { others, ..self.late }
    }
}

/// A job that had a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ran {
    pub(crate) level: u32,
    pub(crate) arrival: Time,
    /// How long, at most its WCET.
    pub(crate) took: Span,
}

/// What one CPU did, of late.
pub(crate) struct Course {
    /// Since when, what; each until the next.
    turns: VecDeque<(Time, Doing)>,
    /// In the order in which they ended.
    jobs: VecDeque<Ran>,
    /// By level: no job of it that is forgotten arrived later.
    forgotten: BTreeMap<u32, Time>,
}

impl Course {
    pub(crate) fn new() -> Course {
        Course {
            turns: VecDeque::from([(Time::ZERO, Doing::Unknown)]),
            jobs: VecDeque::new(),
            forgotten: BTreeMap::new(),
        }
    }

    /// A job is over.
    pub(crate) fn ended(&mut self, job: Ran) {
        if self.jobs.len() == JOBS_MAX
            && let Some(oldest) = self.jobs.pop_front()
        {
            let last = self.forgotten.entry(oldest.level).or_default();
            *last = oldest.arrival.max(*last);
        }
        self.jobs.push_back(job);
    }

    /// When `job`, whose busy period began at `since`, would have ended had the CPU been the plan's, after those that ended and `others`, which have not;
    /// `None` where too much is forgotten.
    pub(crate) fn undisturbed(&self, job: Ran, others: impl Iterator<Item = Ran>, since: Time) -> Option<Time> {
        if self.forgotten.range(..=job.level).any(|(_, last)| *last >= since) {
            return None;
        }
        let before = self.jobs.iter().copied().filter(|other| other.level <= job.level && other.arrival >= since);
        let mut before: Vec<(Time, Span)> = before.chain(others).map(|job| (job.arrival, job.took)).collect();
        before.sort_unstable();
        let mut busy = since;
        let mut rest = before.as_slice();
        while let Some(((arrival, took), after)) =
            rest.split_first().filter(|((arrival, _), _)| *arrival <= job.arrival)
        {
            busy = busy.max(*arrival).saturating_add(*took);
            rest = after;
        }
        // What arrives before it ends goes before it, too.
        let mut until = busy.max(job.arrival).saturating_add(job.took);
        while let Some(((_, took), after)) = rest.split_first().filter(|((arrival, _), _)| *arrival < until) {
            until = until.saturating_add(*took);
            rest = after;
        }
        Some(until)
    }

    /// The last turn was of another kind than was thought.
    pub(crate) fn relabel(&mut self, doing: Doing) {
        if let Some(last) = self.turns.back_mut() {
            last.1 = doing;
        }
    }

    /// What the CPU does from `at` on, which is not before the last.
    pub(crate) fn turn(&mut self, at: Time, doing: Doing) {
        if let Some(last) = self.turns.back_mut() {
            if last.1 == doing {
                return;
            }
            if last.0 == at {
                last.1 = doing;
                return;
            }
        }
        if self.turns.len() == TURNS_MAX {
            self.turns.pop_front();
        }
        self.turns.push_back((at, doing));
    }

    /// What disturbed jobs of a level between two times, and the threads of others among it.
    pub(crate) fn disturbance(&self, level: u32, from: Time, to: Time) -> (Disturbance, BTreeMap<Comm, Span>) {
        let (mut sum, mut others) = (Disturbance::default(), BTreeMap::new());
        let mut until = to;
        for (since, doing) in self.turns.iter().rev() {
            if until <= from {
                break;
            }
            let span = until.saturating_since((*since).max(from));
            until = until.min(*since).max(from);
            let cause = match doing {
                Doing::Job { level: other } if *other <= level => continue,
                Doing::Job { .. } => Cause::LessImportant,
                Doing::Beyond => Cause::BeyondWcet,
                Doing::Dispatching => Cause::Dispatching,
                Doing::Idle => Cause::Idle,
                Doing::Other(comm) => {
                    if !span.is_zero() {
                        let named: &mut Span = others.entry(*comm).or_default();
                        *named = named.saturating_add(span);
                    }
                    Cause::Others
                }
                Doing::Unknown => Cause::Unknown,
            };
            sum.add(cause, span);
        }
        // What is not remembered.
        sum.add(Cause::Unknown, until.saturating_since(from));
        (sum, others)
    }
}
