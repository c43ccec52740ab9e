//! One thread of a run, as the kernel and its own stamps describe it.

use std::collections::VecDeque;

use takt_log::JobKey;
use takt_log::stats::Histogram;
use takt_model::{Span, Time};

use super::run_event::{RunEvent, RunEventKind as Kind, SwitchOutReason};

/// A thread of a dispatcher. It may take jobs of several tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worker {
    /// Its model CPU.
    pub cpu: u32,
    /// Whether it runs jobs. The other threads keep time.
    pub works: bool,
}

/// How the stamps of a task's jobs compare with the kernel's account.
#[derive(Clone, Debug, Default)]
pub struct Stamped {
    /// Completed jobs whose stamps the kernel's account confirms or contradicts.
    pub checked: u64,
    /// Checked jobs with a stamp from before the kernel gave the thread a CPU.
    pub contradicted: u64,
    /// From the kernel's start to the stamp, of jobs for which the thread was woken.
    pub start: Histogram,
    /// From the stamp of a completion to the moment when the thread left its CPU, if it did so
    /// before its next job.
    pub complete: Histogram,
    /// From the nominal arrival to the stamp of the release, of jobs for which the thread was
    /// woken.
    pub release: Histogram,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Unknown,
    On {
        cpu: u32,
    },
    Ready,
    /// Asleep or held.
    Waiting,
}

pub(super) struct Lane {
    /// `None` for the thread of one task, which is woken for its jobs and stamps them itself.
    pub(super) worker: Option<Worker>,
    pub(super) place: Place,
    /// The kernel's account has gaps since the thread's last sleep. So its next job gets a gap.
    pub(super) doubtful: bool,
    /// It stamped, and had no CPU by the kernel's account. The kernel's next event decides which
    /// account is wrong.
    pub(super) unconfirmed: bool,
    /// When it was woken, if that was before it had gone to sleep.
    pub(super) early_wakeup: Option<Time>,
    pub(super) open: Option<Job>,
    /// Its switches since it last went to sleep, or since events were lost. `None` while it works,
    /// if it has not slept since its last job, and for a worker.
    pub(super) awake: Option<WakeupState>,
    /// When it completed its last job, until it leaves its CPU.
    pub(super) completed: Option<Time>,
    /// Jobs that are released and have not completed: their numbers and release times.
    pub(super) released: VecDeque<(u64, Time)>,
    /// The time and the rank of its last line in the log.
    pub(super) last: (Time, u8),
    /// The budget of its SCHED_DEADLINE reservation.
    budget: Option<Span>,
    /// How long it has had a CPU since it was last woken.
    ran: Span,
    /// Since when it has its CPU.
    since: Time,
    /// How often it was throttled since it was last woken.
    throttled: u64,
    pub(super) stamped: Stamped,
}

#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) key: JobKey,
    /// The CPU that it had last.
    pub(super) cpu: u32,
    /// The log says that it waits.
    pub(super) is_waiting: bool,
    /// The kernel confirms that its thread had a CPU at its start.
    pub(super) agrees: bool,
}

#[derive(Default)]
pub(super) struct WakeupState {
    pub(super) woken: Option<Time>,
    /// The log has the release for which it was woken.
    pub(super) released: bool,
    pub(super) switches: Vec<RunEvent>,
}

impl Lane {
    pub(super) fn new(worker: Option<Worker>, budget: Option<Span>) -> Lane {
        Lane {
            worker,
            place: Place::Unknown,
            doubtful: false,
            unconfirmed: false,
            early_wakeup: None,
            open: None,
            awake: worker.is_none().then(WakeupState::default),
            completed: None,
            released: VecDeque::new(),
            last: (Time::ZERO, 0),
            budget,
            ran: Span::ZERO,
            since: Time::ZERO,
            throttled: 0,
            stamped: Stamped::default(),
        }
    }

    /// Starts a new account of its switches, up to its next job.
    pub(super) fn begin_awake(&mut self, woken: Option<Time>) {
        self.awake = self.worker.is_none().then(|| WakeupState { woken, ..WakeupState::default() });
    }

    /// The time from which on no line may be written yet, because a later stamp may move a line there.
    pub(super) fn pending(&self) -> Option<Time> {
        if self.open.is_some() || self.worker.is_some() {
            return None;
        }
        let awake = self.awake.as_ref();
        let woken = awake.and_then(|awake| awake.woken.filter(|_| !awake.released)).or(self.early_wakeup);
        woken.or_else(|| awake?.switches.first().map(|seen| seen.at))
    }

    pub(super) fn released_at(&self, number: u64) -> Option<Time> {
        let at = self.released.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.released.get(at).map(|(_, at)| *at)
    }

    /// The thread stamps on `cpu`. Returns whether it has a CPU by the kernel's account.
    pub(super) fn confirm_on_cpu(&mut self, cpu: u32) -> bool {
        let agrees = matches!(self.place, Place::On { .. });
        if !agrees {
            self.unconfirmed |= matches!(self.place, Place::Ready | Place::Waiting) || self.early_wakeup.is_some();
            self.place = Place::On { cpu };
        }
        agrees
    }

    pub(super) fn cpu_or(&self, cpu: u32) -> u32 {
        if let Place::On { cpu } = self.place { cpu } else { cpu }
    }

    /// Events are missing.
    pub(super) fn forget(&mut self) {
        (self.place, self.unconfirmed) = (Place::Unknown, false);
        self.completed = None;
        if self.open.is_none() {
            self.begin_awake(None);
            self.doubtful = true;
        }
    }

    /// It is woken: its use of the CPU counts from here.
    pub(super) fn restart_budget(&mut self) {
        (self.ran, self.throttled) = (Span::ZERO, 0);
    }

    pub(super) fn enter(&mut self, at: Time, cpu: u32) {
        if self.place == Place::Waiting {
            self.restart_budget();
        }
        (self.place, self.since) = (Place::On { cpu }, at);
    }

    /// The thread leaves its CPU. Returns the reason: `Stopped` if its budget is used up, even if the
    /// next thread is of the same class.
    pub(super) fn leave(&mut self, at: Time, why: SwitchOutReason) -> SwitchOutReason {
        if let Place::On { .. } = self.place {
            self.ran = self.ran.saturating_add(at.saturating_since(self.since));
        }
        self.place = if matches!(why, SwitchOutReason::Taken | SwitchOutReason::Stopped) {
            Place::Ready
        } else {
            Place::Waiting
        };
        let (SwitchOutReason::Taken | SwitchOutReason::Stopped, Some(budget)) = (why, self.budget) else { return why };
        // Each replenishment adds a budget to the rest, which may be negative.
        let used_up = self.ran.as_ns() >= budget.as_ns().saturating_mul(self.throttled + 1);
        if used_up || why == SwitchOutReason::Stopped {
            self.throttled += 1;
            return SwitchOutReason::Stopped;
        }
        why
    }
}

impl WakeupState {
    /// When and where the thread first had a CPU, from its release on, and the switches from there
    /// to its stamp. `None` where nothing was seen.
    pub(super) fn first_on_cpu(self, released: Time, stamp: Time) -> (Option<(Time, u32)>, Vec<RunEvent>) {
        let mut switches = self.switches;
        let mut found = None;
        for (k, seen) in switches.iter().enumerate() {
            let Kind::SwitchIn { cpu, .. } = seen.what else { continue };
            let left = switches.iter().skip(k + 1).find(|next| matches!(next.what, Kind::SwitchOut { .. }));
            if left.is_none_or(|left| left.at > released) {
                found = Some((k, (seen.at.max(released).min(stamp), cpu)));
                break;
            }
        }
        let Some((k, start)) = found else { return (None, Vec::new()) };
        (Some(start), switches.split_off(k + 1))
    }
}
