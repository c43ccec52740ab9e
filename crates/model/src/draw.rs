//! Reproducible randomness. Each draw is a pure function of (seed, task name, purpose, number). So
//! adding a task changes no other task's draws, and any job's draw can be repeated at any time.
//!
//! The generator is Philox2x64-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
//! 1, 2, 3", SC 2011), tested against its published vectors.

use crate::system::{Arrival, Exec, Task};
use crate::time::{Span, Time};
use crate::units::Probability;

/// One block of Philox2x64 with ten rounds.
#[inline]
#[must_use]
pub const fn philox2x64(mut counter: [u64; 2], mut key: u64) -> [u64; 2] {
    let mut round = 0;
    while round < 10 {
        let product = counter[0] as u128 * 0xD2B7_4407_B1CE_6E93;
        counter = [(product >> 64) as u64 ^ key ^ counter[1], product as u64];
        key = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
        round += 1;
    }
    counter
}

/// The purpose of a draw; part of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Purpose {
    /// Execution time.
    Exec = 1,
    /// Release jitter.
    Jitter = 2,
    /// Distance to the next arrival.
    Distance = 3,
    /// Delay of a message.
    Delay = 4,
    /// Whether a message is lost.
    Loss = 5,
    /// The rate of a clock.
    Rate = 6,
    /// The error of a deadline on another clock.
    Error = 7,
    /// Processing of a message at a port.
    Processing = 8,
    /// The arrival of other traffic at a port.
    Cross = 9,
    /// The steps of a search.
    Search = 10,
    /// The offset of a clock.
    Offset = 11,
}

/// The draws of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    key: u64,
}

impl Draw {
    /// The draws of the task called `task` under `seed`.
    #[must_use]
    pub fn new(seed: u64, task: &str) -> Self {
        // FNV-1a spreads the name, Philox mixes it with the seed.
        let name = task.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        });
        Draw { key: philox2x64([name, task.len() as u64], seed)[0] }
    }

    /// 64 random bits for `purpose` and job `number`.
    #[inline]
    #[must_use]
    pub const fn bits(&self, purpose: Purpose, number: u64) -> u64 {
        philox2x64([number, purpose as u64], self.key)[0]
    }

    /// Uniform over the whole nanoseconds of [min, max]; the bias is below (max - min) / 2^64.
    #[inline]
    #[must_use]
    pub fn uniform(&self, purpose: Purpose, number: u64, min: Span, max: Span) -> Span {
        let width = u128::from(max.as_ns().saturating_sub(min.as_ns())) + 1;
        let above_min = (u128::from(self.bits(purpose, number)) * width) >> 64;
        Span::from_ns(min.as_ns() + above_min as u64)
    }

    /// A value of a probability mass function, whose probabilities add up to one.
    fn draw_pmf(&self, purpose: Purpose, number: u64, pmf: &[(Span, Probability)]) -> Span {
        let billionths = u128::from(Probability::ONE.billionths());
        let mut left = ((u128::from(self.bits(purpose, number)) * billionths) >> 64) as u32;
        for (value, probability) in pmf {
            let Some(rest) = left.checked_sub(probability.billionths()) else { return *value };
            left = rest;
        }
        pmf.last().map_or(Span::ZERO, |(value, _)| *value)
    }

    /// The actual execution time of job `number`. A trace that is not loaded gives zero.
    #[inline]
    #[must_use]
    pub fn exec(&self, task: &Task, number: u64) -> Span {
        match &task.exec {
            Exec::Wcet => task.wcet,
            Exec::Uniform { min, max } => self.uniform(Purpose::Exec, number, *min, *max),
            Exec::Pmf(pmf) => self.draw_pmf(Purpose::Exec, number, pmf),
            Exec::Trace(trace) => {
                let len = trace.values.len() as u64;
                if len == 0 { Span::ZERO } else { trace.values[(number % len) as usize] }
            }
        }
    }
}

/// One job of a task as it comes from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arriving {
    /// Zero for the first.
    pub number: u64,
    /// Nominal arrival; the deadline counts from here.
    pub arrival: Time,
    /// Release: the nominal arrival plus jitter, not before an earlier job's release.
    pub release: Time,
}

/// The endless sequence of a task's arrivals (for tasks that follow no other). Ends where a trace
/// ends or time would overflow.
#[derive(Clone, Debug)]
pub struct Arrivals<'a> {
    task: &'a Task,
    draw: Draw,
    jitter: Span,
    /// The period, if arrivals are periodic without jitter. Such arrivals need no draws.
    fixed_period: Option<Span>,
    next: Option<Arriving>,
}

impl<'a> Arrivals<'a> {
    /// The arrivals of `task` under `draw`.
    #[must_use]
    pub fn new(task: &'a Task, draw: Draw) -> Self {
        Self::with_jitter(task, task.jitter, draw)
    }

    /// The arrivals of `task`, with releases up to `jitter` after them instead of its own.
    #[must_use]
    pub fn with_jitter(task: &'a Task, jitter: Span, draw: Draw) -> Self {
        let first = match &task.arrival {
            Arrival::Trace(trace) => trace.values.first().map(|value| Time::ZERO + task.offset + *value),
            _ => Some(Time::ZERO + task.offset),
        };
        let fixed_period = (task.arrival == Arrival::Periodic && jitter.is_zero()).then_some(task.period);
        let mut arrivals = Arrivals { task, draw, jitter, fixed_period, next: None };
        arrivals.next = first.map(|arrival| arrivals.arriving(0, arrival, Time::ZERO));
        arrivals
    }

    /// The arrivals of `task` from job `number` on, which arrives at `arrival`. For a task with a
    /// changed period, or after a pause.
    #[must_use]
    pub fn resumed(task: &'a Task, draw: Draw, number: u64, arrival: Time) -> Self {
        let mut arrivals = Self::new(task, draw);
        arrivals.next = Some(arrivals.arriving(number, arrival, Time::ZERO));
        arrivals
    }

    /// The next job, without going on to the one after it.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<&Arriving> {
        self.next.as_ref()
    }

    /// Goes on to the job after the next.
    #[inline]
    pub fn advance(&mut self) {
        let Some(job) = &mut self.next else { return };
        let Some(period) = self.fixed_period else { return self.advance_by_draw() };
        match job.arrival.checked_add(period) {
            Some(arrival) => *job = Arriving { number: job.number + 1, arrival, release: arrival },
            None => self.next = None,
        }
    }

    fn advance_by_draw(&mut self) {
        self.next = self.next.and_then(|job| {
            let arrival = self.arrival_after(job.number, job.arrival)?;
            Some(self.arriving(job.number + 1, arrival, job.release))
        });
    }

    /// Job `number`, which arrives at `arrival`; the one before is released at `last_release`.
    fn arriving(&self, number: u64, arrival: Time, last_release: Time) -> Arriving {
        let release = if self.jitter.is_zero() {
            arrival
        } else {
            arrival.saturating_add(self.draw.uniform(Purpose::Jitter, number, Span::ZERO, self.jitter))
        };
        Arriving { number, arrival, release: release.max(last_release) }
    }

    /// The arrival of the job after job `number`, which arrives at `arrival`. A sporadic task's distance is uniform
    /// over [T, 2 T].
    fn arrival_after(&self, number: u64, arrival: Time) -> Option<Time> {
        let task = self.task;
        let distance = match &task.arrival {
            Arrival::Periodic => task.period,
            Arrival::Sporadic => {
                let most = task.period.saturating_add(task.period);
                self.draw.uniform(Purpose::Distance, number, task.period, most)
            }
            Arrival::Pmf(pmf) => self.draw.draw_pmf(Purpose::Distance, number, pmf),
            Arrival::Trace(trace) => {
                let value = trace.values.get(usize::try_from(number).ok()?.checked_add(1)?)?;
                return Time::ZERO.checked_add(task.offset)?.checked_add(*value);
            }
        };
        arrival.checked_add(distance)
    }
}

impl Iterator for Arrivals<'_> {
    type Item = Arriving;

    #[inline]
    fn next(&mut self) -> Option<Arriving> {
        let job = self.next;
        self.advance();
        job
    }
}

/// A task's arrivals, up to the last one that is released before the duration is over.
#[derive(Debug)]
pub struct Releases<'a> {
    arrivals: Arrivals<'a>,
    next: Option<Arriving>,
    duration: Time,
}

impl<'a> Releases<'a> {
    /// From the first arrival on.
    pub fn new(arrivals: Arrivals<'a>, duration: Time) -> Self {
        let mut releases = Releases { arrivals, next: None, duration };
        releases.advance();
        releases
    }

    /// The first job that is not yet released.
    #[must_use]
    pub fn peek(&self) -> Option<Arriving> {
        self.next
    }

    /// Goes on to the next job.
    pub fn advance(&mut self) {
        self.next = self.arrivals.next().filter(|next| next.release < self.duration);
    }

    /// Leaves out the jobs that are released before `from`. Their numbers count.
    pub fn begin_at(&mut self, from: Time) {
        while self.next_if(|job| job.release < from).is_some() {}
    }

    /// Takes the next job if `wanted` says so.
    pub fn next_if(&mut self, wanted: impl Fn(&Arriving) -> bool) -> Option<Arriving> {
        let next = self.next.filter(wanted)?;
        self.advance();
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Trace;

    #[test]
    fn philox_gives_its_published_vectors() {
        assert_eq!(philox2x64([0, 0], 0), [0xca00_a045_9843_d731, 0x66c2_4222_c9a8_45b5]);
        assert_eq!(philox2x64([u64::MAX, u64::MAX], u64::MAX), [0x65b0_21d6_0cd8_310f, 0x4d02_f322_2f86_df20]);
        assert_eq!(
            philox2x64([0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344], 0xa409_3822_299f_31d0),
            [0x0a5e_742c_2997_341c, 0xb0f8_83d3_8000_de5d]
        );
    }

    fn task() -> Task {
        Task::periodic("t", Span::from_ns(10), Span::from_ns(4))
    }

    #[test]
    fn uniform_reaches_both_ends_and_nothing_else() {
        let task = Task { exec: Exec::Uniform { min: Span::from_ns(3), max: Span::from_ns(6) }, ..task() };
        let draw = Draw::new(1, "t");
        let mut seen = [0u32; 10];
        (0..4000).for_each(|n| seen[draw.exec(&task, n).as_ns() as usize] += 1);
        assert!(seen[3..=6].iter().all(|count| (900..1100).contains(count)), "{seen:?}");
        assert_eq!(seen.iter().sum::<u32>(), seen[3..=6].iter().sum::<u32>());
    }

    #[test]
    fn a_pmf_is_drawn_with_its_probabilities() {
        let half = Probability::from_billionths(250_000_000).unwrap();
        let rest = Probability::from_billionths(750_000_000).unwrap();
        let task = Task { exec: Exec::Pmf(vec![(Span::from_ns(1), half), (Span::from_ns(9), rest)]), ..task() };
        let draw = Draw::new(7, "t");
        let short = (0..10_000).filter(|n| draw.exec(&task, *n) == Span::from_ns(1)).count();
        assert!((2_300..2_700).contains(&short), "{short}");
    }

    #[test]
    fn the_short_way_of_even_arrivals_is_the_long_one() {
        let task = Task { offset: Span::from_ns(5), ..task() };
        let short = Arrivals::new(&task, Draw::new(3, "t"));
        let long = Arrivals { fixed_period: None, ..short.clone() };
        assert!(short.fixed_period.is_some() && short.take(9).eq(long.take(9)));
    }

    #[test]
    fn arrivals_that_are_resumed_go_on_as_if_nothing_had_been() {
        let task = Task { jitter: Span::from_ns(3), arrival: Arrival::Sporadic, ..task() };
        let mut whole = Arrivals::new(&task, Draw::new(3, "t")).skip(4).peekable();
        let fifth = *whole.peek().unwrap();
        let resumed = Arrivals::resumed(&task, Draw::new(3, "t"), fifth.number, fifth.arrival);
        assert!(resumed.take(9).eq(whole.take(9)));
    }

    #[test]
    fn jitter_never_reorders_releases_and_stays_within_its_bound() {
        let task = Task { jitter: Span::from_ns(35), offset: Span::from_ns(5), ..task() };
        let mut last = Time::ZERO;
        for job in Arrivals::new(&task, Draw::new(3, "t")).take(1000) {
            assert_eq!(job.arrival.as_ns(), 5 + 10 * job.number);
            assert!(job.release >= last && job.release >= job.arrival);
            assert!(job.release <= job.arrival + task.jitter);
            last = job.release;
        }
    }

    #[test]
    fn sporadic_distances_lie_between_one_and_two_periods() {
        let task = Task { arrival: Arrival::Sporadic, ..task() };
        let arrivals: Vec<u64> = Arrivals::new(&task, Draw::new(3, "t")).take(500).map(|j| j.arrival.as_ns()).collect();
        assert!(arrivals.windows(2).all(|w| (10..=20).contains(&(w[1] - w[0]))));
        assert!(arrivals.windows(2).any(|w| w[1] - w[0] == 10) && arrivals.windows(2).any(|w| w[1] - w[0] == 20));
    }

    #[test]
    fn a_trace_ends_and_one_task_does_not_disturb_another() {
        let values: std::sync::Arc<[Span]> = [0, 7, 30].map(Span::from_ns).into();
        let task = Task { arrival: Arrival::Trace(Trace { path: "a.csv".into(), values }), ..task() };
        let arrivals: Vec<u64> = Arrivals::new(&task, Draw::new(3, "t")).map(|job| job.arrival.as_ns()).collect();
        assert_eq!(arrivals, [0, 7, 30]);
        assert_ne!(Draw::new(1, "a").bits(Purpose::Exec, 0), Draw::new(1, "b").bits(Purpose::Exec, 0));
        assert_ne!(Draw::new(1, "a").bits(Purpose::Exec, 0), Draw::new(2, "a").bits(Purpose::Exec, 0));
    }
}
