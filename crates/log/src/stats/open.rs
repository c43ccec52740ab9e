//! The jobs of a task that are released and not over.

use std::collections::VecDeque;

/// Stands for a number or an instant that there is not.
pub(super) const NONE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) arrival: u64,
    /// The origin of the chain's instance; `NONE` outside of chains.
    pub(super) origin: u64,
    /// Since when it has been running on `cpu`; `NONE` while it is not.
    pub(super) since: u64,
    /// How long it held CPUs before.
    pub(super) ran: u64,
    /// How long interrupts ran in that time.
    pub(super) stolen: u64,
    /// The value of [`super::interrupts::Cpu::covered`] at `since`.
    pub(super) covered: u64,
    pub(super) cpu: u32,
    /// It got a CPU.
    pub(super) started: bool,
    /// Events were lost since its release, and none has proved since that it is still open.
    pub(super) doubtful: bool,
    /// Events were lost since its release: nobody knows how long it ran.
    pub(super) gap: bool,
    /// It ran on a CPU whose interrupts are not counted.
    pub(super) unwatched: bool,
    /// It was open at the end of the interval before.
    pub(super) carried: bool,
    /// Its miss has been counted, in an interval before.
    pub(super) missed: bool,
}

impl Job {
    /// Stands for no job.
    const ABSENT: Job = Job::new(NONE, 0, NONE);

    pub(super) const fn new(number: u64, arrival: u64, origin: u64) -> Self {
        Job {
            number,
            arrival,
            origin,
            since: NONE,
            ran: 0,
            stolen: 0,
            covered: 0,
            cpu: 0,
            started: false,
            doubtful: false,
            gap: false,
            unwatched: false,
            carried: false,
            missed: false,
        }
    }
}

/// The open jobs of a task in the order of numbers. Most tasks have one at a time: the first stands apart, at hand.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// Its number is `NONE` where there is no job.
    pub(super) first: Job,
    later: VecDeque<Job>,
}

impl Default for Open {
    fn default() -> Self {
        Open { first: Job::ABSENT, later: VecDeque::new() }
    }
}

impl Open {
    /// Whether there is no job.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.number == NONE
    }

    #[inline]
    pub(super) fn push(&mut self, job: Job) {
        if self.first.number == NONE {
            self.first = job;
        } else {
            self.later.push_back(job);
        }
    }

    #[inline]
    pub(super) fn drop_first(&mut self) {
        // Asked first: most often none waits, and then no job is moved.
        if self.later.is_empty() {
            self.first.number = NONE;
        } else {
            self.first = self.later.pop_front().unwrap_or(Job::ABSENT);
        }
    }

    #[inline]
    pub(super) fn find(&mut self, number: u64) -> Option<&mut Job> {
        if self.first.number == number && number != NONE { Some(&mut self.first) } else { self.find_later(number) }
    }

    #[inline(never)]
    fn find_later(&mut self, number: u64) -> Option<&mut Job> {
        let at = self.later.binary_search_by_key(&number, |job| job.number).ok()?;
        self.later.get_mut(at)
    }

    /// Takes out a job other than the first, with all doubtful ones before it.
    pub(super) fn take_later(&mut self, number: u64) -> Option<(Job, Censored)> {
        let at = self.later.binary_search_by_key(&number, |job| job.number).ok()?;
        let job = self.later.remove(at)?;
        let mut censored = Censored::default();
        self.later.retain(|job| {
            let goes = job.doubtful && job.number < number;
            if goes {
                censored.count(job);
            }
            !goes
        });
        if self.first.doubtful && self.first.number < number {
            censored.count(&self.first);
            self.drop_first();
        }
        Some((job, censored))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        Some(&mut self.first).filter(|job| job.number != NONE).into_iter().chain(&mut self.later)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Censored {
    pub(super) jobs: u64,
    /// The number of these that were open at the end of the interval before.
    pub(super) carried: u64,
}

impl Censored {
    pub(super) fn count(&mut self, job: &Job) {
        self.jobs += 1;
        self.carried += u64::from(job.carried);
    }
}
