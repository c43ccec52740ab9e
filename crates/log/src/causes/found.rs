//! The results: causes, counts of late jobs, and the CPU's activity during the worst job.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use takt_model::{Span, TaskId, Time, named};

use crate::definitions::Definitions;

named! {
    /// The activity of a CPU while a late job, or work that goes before it, waited. The System's own
    /// load is excluded.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[non_exhaustive]
    pub enum Cause {
        /// Threads that are not of the System had it.
        Others => "others",
        /// More important jobs of other tasks exceeded their WCET by the clock. The kernel's account
        /// says that they had the CPU.
        BeyondWcet => "beyond wcet",
        /// It was idle: timers and wake-ups came late, or the CPU was stopped.
        Idle => "idle",
        /// Less important jobs had it: until a thread was woken, or for a lock.
        LessImportant => "less important",
        /// takt had it: timers, queues, switches of its threads.
        Dispatching => "dispatcher",
        /// The log has nothing of it, or it is too long ago.
        Unknown => "unknown",
        /// Jobs of its own task took longer than their WCET, by the clock.
        OwnOverrun => "own overrun",
        /// Interrupts had it.
        Interrupts => "interrupts",
        /// Such a job had no budget: a server around it or its SCHED_DEADLINE reservation had used it up,
        /// or the kernel throttled real-time threads.
        Throttled => "throttled",
        /// Such a job waited within its work: for a page, a disk, a sleep.
        Blocked => "blocked",
        /// A hypervisor had it, at most so long.
        Hypervisor => "hypervisor",
        /// The message that released the job came after the latest time by plan, by so long.
        LateMessage => "late message",
    }
}

impl Cause {
    /// As a key of JSON.
    #[must_use]
    pub fn key(self) -> String {
        self.name().replace(' ', "_")
    }
}

/// The time of each cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disturbance([Span; Cause::ALL.len()]);

impl Disturbance {
    /// The time of one cause.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Span {
        self.0.get(cause as usize).copied().unwrap_or(Span::ZERO)
    }

    /// The time of all causes.
    #[must_use]
    pub fn total(&self) -> Span {
        self.0.iter().copied().fold(Span::ZERO, Span::saturating_add)
    }

    pub(super) fn add(&mut self, cause: Cause, span: Span) {
        if let Some(sum) = self.0.get_mut(cause as usize) {
            *sum = sum.saturating_add(span);
        }
    }

    /// A hypervisor's time looks like an overrun, an idle CPU or a long turn of another thread. It
    /// is taken from these, in this order; what is left lengthened the work of jobs within their
    /// WCETs.
    pub(super) fn give_to_hypervisor(&mut self, stolen: Span) {
        self.add(Cause::Hypervisor, stolen);
        let mut left = stolen;
        for cause in [Cause::OwnOverrun, Cause::BeyondWcet, Cause::Idle, Cause::Others] {
            if let Some(sum) = self.0.get_mut(cause as usize) {
                let part = left.min(*sum);
                (*sum, left) = (sum.saturating_sub(part), left.saturating_sub(part));
            }
        }
    }

    /// The longest disturbance, if there is any. The first one wins a tie.
    pub(super) fn most(&self) -> Option<Cause> {
        Cause::ALL.into_iter().rev().filter(|cause| !self.of(*cause).is_zero()).max_by_key(|cause| self.of(*cause))
    }
}

/// The late jobs of a task.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Late {
    /// Their number. Each is also counted by load or by its main cause.
    pub jobs: u64,
    /// Number of jobs that would have been late without any disturbance. Load alone, within the
    /// WCETs, took until after the deadline. A System that `takt check` accepts has no such job.
    pub by_load: u64,
    mainly: [u64; Cause::ALL.len()],
    /// The sum of the disturbances of these jobs. A busy period of several late jobs counts for each of them.
    pub disturbance: Disturbance,
    /// The threads that are not the System's and had the CPU longest meanwhile, the longest first,
    /// at most [`Late::NAMED_MAX`].
    pub others: Vec<(String, Span)>,
    /// The other tasks whose jobs went before these jobs longest, likewise.
    pub tasks: Vec<(String, Span)>,
}

impl Late {
    /// The most threads that are named, and the most tasks.
    pub const NAMED_MAX: usize = 3;

    /// The number of late jobs with this main cause.
    #[must_use]
    pub fn mainly(&self, cause: Cause) -> u64 {
        self.mainly.get(cause as usize).copied().unwrap_or(0)
    }

    /// In a few words, the most frequent cause first: `5 others (hog), 1 own overrun`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let first = |named: &[(String, Span)]| named.first().map_or(String::new(), |(name, _)| format!(" ({name})"));
        let mut counted: Vec<(u64, String)> = vec![(self.by_load, format!("by load{}", first(&self.tasks)))];
        counted.extend(Cause::ALL.map(|cause| {
            let name = if cause == Cause::Others { first(&self.others) } else { String::new() };
            (self.mainly(cause), cause.name().to_owned() + &name)
        }));
        counted.sort_by_key(|(jobs, _)| std::cmp::Reverse(*jobs));
        let told = counted.iter().filter(|(jobs, _)| *jobs > 0).map(|(jobs, cause)| format!("{jobs} {cause}"));
        told.collect::<Vec<_>>().join(", ")
    }
}

impl Serialize for Late {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named<'a> {
            name: &'a str,
            ns: u64,
        }
        fn named(all: &[(String, Span)]) -> Vec<Named<'_>> {
            all.iter().map(|(name, span)| Named { name, ns: span.as_ns() }).collect()
        }
        let mainly = Cause::ALL.map(|cause| (cause.key(), self.mainly(cause)));
        let lasted = Cause::ALL.map(|cause| (cause.key() + "_ns", self.disturbance.of(cause).as_ns()));
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("jobs", &self.jobs)?;
        map.serialize_entry("by_load", &self.by_load)?;
        map.serialize_entry("mainly", &BTreeMap::from(mainly))?;
        map.serialize_entry("disturbance", &BTreeMap::from(lasted))?;
        map.serialize_entry("longest", &named(&self.others))?;
        map.serialize_entry("longest_tasks", &named(&self.tasks))?;
        map.end()
    }
}

/// The holder of a CPU. Names are looked up at the end, so a thread has its last known name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Name {
    Thread(u32),
    Task(TaskId),
}

impl Name {
    pub(super) fn resolve(&self, definitions: &Definitions) -> String {
        match self {
            Name::Thread(thread) => definitions.thread_name(*thread),
            Name::Task(task) => definitions.task_name(*task),
        }
    }
}

/// The disturbances of one late job.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub(super) disturbance: Disturbance,
    /// The threads among the disturbances.
    pub(super) others: BTreeMap<Name, Span>,
    /// The jobs of other tasks that went before it.
    pub(super) tasks: BTreeMap<Name, Span>,
}

impl Sum {
    pub(super) fn add(&mut self, cause: Cause, span: Span) {
        self.disturbance.add(cause, span);
    }

    fn name(of: &mut BTreeMap<Name, Span>, name: Name, span: Span) {
        if !span.is_zero() {
            let sum = of.entry(name).or_default();
            *sum = sum.saturating_add(span);
        }
    }

    pub(super) fn other(&mut self, name: Name, span: Span) {
        self.add(Cause::Others, span);
        Self::name(&mut self.others, name, span);
    }

    pub(super) fn task(&mut self, name: Name, span: Span) {
        Self::name(&mut self.tasks, name, span);
    }
}

/// [`Late`] while it grows.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    late: Late,
    others: BTreeMap<Name, Span>,
    tasks: BTreeMap<Name, Span>,
}

impl Tally {
    /// A job was late by load, with these disturbances, too.
    pub(super) fn by_load(&mut self, sum: &Sum) {
        self.late.by_load += 1;
        self.sum(sum);
    }

    /// Counts a late job with these disturbances and returns its main cause. `inherited` is the
    /// longest delay of a more important job by its predecessor.
    pub(super) fn disturbed(&mut self, sum: &Sum, inherited: Option<(Cause, Span)>) -> Cause {
        let here = sum.disturbance.most();
        let inherited = inherited.filter(|(_, late)| here.is_none_or(|here| sum.disturbance.of(here) < *late));
        let cause = inherited.map(|(cause, _)| cause).or(here).unwrap_or(Cause::Unknown);
        self.mainly(cause);
        self.sum(sum);
        cause
    }

    /// Counts a late job with unknown causes.
    pub(super) fn unknown(&mut self) {
        self.mainly(Cause::Unknown);
        self.late.jobs += 1;
    }

    fn mainly(&mut self, cause: Cause) {
        self.late.mainly.iter_mut().skip(cause as usize).take(1).for_each(|jobs| *jobs += 1);
    }

    fn sum(&mut self, found: &Sum) {
        self.late.jobs += 1;
        for cause in Cause::ALL {
            self.late.disturbance.add(cause, found.disturbance.of(cause));
        }
        for (sum, found) in [(&mut self.others, &found.others), (&mut self.tasks, &found.tasks)] {
            for (name, span) in found {
                let sum = sum.entry(*name).or_default();
                *sum = sum.saturating_add(*span);
            }
        }
    }

    pub(super) fn into_late(self, name: impl Fn(&Name) -> String) -> Late {
        let longest = |all: BTreeMap<Name, Span>| {
            // Threads of one name are one.
            let mut named: BTreeMap<String, Span> = BTreeMap::new();
            for (of, span) in all {
                let sum = named.entry(name(&of)).or_default();
                *sum = sum.saturating_add(span);
            }
            let mut longest: Vec<_> = named.into_iter().collect();
            longest.sort_by_key(|(_, span)| std::cmp::Reverse(*span));
            longest.truncate(Late::NAMED_MAX);
            longest
        };
        let (others, tasks) = (longest(self.others), longest(self.tasks));
        Late { others, tasks, ..self.late }
    }
}

/// The activity of a job's CPU from the job's arrival to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Worst {
    /// The job's number.
    pub number: u64,
    /// The CPU that it had last.
    pub cpu: u32,
    /// Its nominal arrival.
    pub arrival: Time,
    /// Its absolute deadline, where known.
    pub deadline: Option<Time>,
    /// When it completed.
    pub ended: Time,
    /// In the order of time, without gaps.
    pub turns: Vec<CpuInterval>,
}

impl Worst {
    /// From arrival to completion.
    #[must_use]
    pub fn response(&self) -> Span {
        self.ended.saturating_since(self.arrival)
    }
}

/// The activity of a CPU for some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuInterval {
    /// From when.
    pub from: Time,
    /// Until when.
    pub to: Time,
    /// What.
    pub what: CpuActivity,
}

/// See [`CpuInterval`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CpuActivity {
    /// The job itself.
    Itself,
    /// The job itself, beyond its WCET.
    Overrun,
    /// A job of another task, or another one of its own, or of a job beyond its WCET.
    Task(String),
    /// A thread without jobs.
    Thread(String),
    /// An interrupt.
    Interrupt(String),
    /// A thread of takt.
    Takt,
    /// Nothing.
    Idle,
    /// Unknown.
    Unknown,
}

impl CpuActivity {
    /// In words.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            CpuActivity::Itself => "the job itself",
            CpuActivity::Overrun => "the job itself, beyond its WCET",
            CpuActivity::Task(name) | CpuActivity::Thread(name) | CpuActivity::Interrupt(name) => name,
            CpuActivity::Takt => "takt",
            CpuActivity::Idle => "idle",
            CpuActivity::Unknown => "unknown",
        }
    }
}
