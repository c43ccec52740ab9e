//! A window on this machine's kernel: SCHED_FIFO threads of the dispatcher run a plan on one CPU.
//! It is so short that the kernel lets them fill the CPU.
//!
//! All times are those of the application divided by [`SHRINK`]. So a window holds more than one
//! period of the slowest operations. The results are read after a window, from the dispatcher and
//! the kernel's recorder. Only the watch for pauses measures during a window.

use std::collections::BTreeMap;

use takt_dispatch::event::Subscription;
use takt_dispatch::{Adaptive, Cause, Dispatcher, Dispatching, Job, Late, Options, Plan, StartError, Stopped};
use takt_linux::clock;
use takt_log::Sink;
use takt_model::draw::Draw;
use takt_model::{Criticality, Exec, Span, System, TaskId, Time};
use takt_run::load::Busy;

use super::pauses::{Pause, Watch};
use super::{Context, Failure};

/// The factor from a time here to a time of the application.
pub(super) const SHRINK: u64 = 2;
/// The longest window. By default SCHED_FIFO threads can fill a CPU for 950 ms of a second before
/// the kernel stops them.
const WINDOW_MAX: Span = Span::from_ms(850);
/// Shorter windows decide no claim.
pub(super) const WINDOW_MIN: Span = Span::from_ms(100);
/// The least share of each second, in percent, that the kernel's limit must leave to SCHED_FIFO
/// threads.
const RUNTIME_MIN_PERCENT: u64 = 90;
/// After a window, the CPU is left to others for this fraction (1/3) of the window's length.
const REST_DIVISOR: u64 = 3;
/// The longest time that a window may take to end.
const END_GRACE: Span = Span::from_s(2);
/// The most waiting jobs of an operation. A window has fewer.
pub(super) const BACKLOG: u32 = 256;
/// A pause up to this long before a release can make the job late.
pub(super) const FRAME: Span = Span::from_ns(super::FRAME.as_ns() / SHRINK);

/// The length of a window.
pub(super) fn window(context: &Context) -> Span {
    let usual = context.duration(Span::MAX, Span::from_ms(450));
    Span::from_ns(usual.as_ns() / SHRINK).min(WINDOW_MAX).max(Span::from_ms(1))
}

/// Leaves the CPU to others after a window.
pub(super) fn rest(window: Span) {
    clock::pause(Span::from_ns(window.as_ns() / REST_DIVISOR));
}

/// Divides all times of an application by [`SHRINK`], and delays its start by `later`.
pub(super) fn shrink(system: &mut System, later: Span) {
    let part = |span: Span| Span::from_ns((span.as_ns() / SHRINK).max(1));
    for task in &mut system.tasks {
        if task.after.is_empty() {
            task.offset = Span::from_ns(task.offset.as_ns() / SHRINK).saturating_add(later);
        }
        (task.period, task.deadline, task.wcet) = (part(task.period), part(task.deadline), part(task.wcet));
        if let Exec::Uniform { min, max } = &mut task.exec {
            (*min, *max) = (part(*min), part(*max));
        }
    }
}

/// The CPU to fill and another one, or the reason why a window cannot fill a CPU.
pub(super) fn cpus(context: &Context) -> Result<[u32; 2], Failure> {
    let [first, second, ..] = *context.machine.cpus.as_slice() else {
        return Err(Failure::cannot("it takes two CPUs: one is full for a while, and somebody has to watch"));
    };
    let limits = context.machine.limits;
    if limits.rt_percent() < RUNTIME_MIN_PERCENT || limits.rt_period_us < 1_000_000 {
        return Err(Failure::cannot(format_args!(
            "real-time threads may use {} us of {} us of a CPU here, less than a window takes: as root, sysctl \
             kernel.sched_rt_period_us=1000000 kernel.sched_rt_runtime_us=950000",
            limits.rt_runtime_us, limits.rt_period_us
        )));
    }
    Ok([first, second])
}

/// The action after each job of a task.
pub(super) type AfterJob = Box<dyn FnMut(&Job<'_>) + Send>;

/// By task: the subscription whose events release its jobs.
pub(super) type Subscriptions = BTreeMap<TaskId, Subscription>;

pub(super) struct Window<'a> {
    pub(super) plan: &'a Plan,
    pub(super) law: Option<Adaptive>,
    pub(super) duration: Span,
    pub(super) seed: u64,
    pub(super) recorded: bool,
    pub(super) subscriptions: &'a Subscriptions,
    /// The CPUs to watch for pauses, by the kernel's numbers. The first one runs the plan.
    pub(super) watched: &'a [u32],
}

pub(super) struct WindowRun {
    pub(super) pauses: Vec<Pause>,
    /// Log entries that found no room, of the dispatcher and of the kernel.
    pub(super) lost: u64,
    pub(super) causes: Option<Causes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Causes {
    pub(super) late: u64,
    /// Jobs late because the plan's own work left no time, with or without disturbances.
    pub(super) by_load: u64,
    /// Other late jobs by their longest disturbance, in the order of [`Cause::ALL`].
    pub(super) mainly: [u64; Cause::ALL.len()],
}

impl Causes {
    fn and(mut self, late: &Late) -> Causes {
        self.late += late.jobs;
        self.by_load += late.by_load;
        for (sum, cause) in self.mainly.iter_mut().zip(Cause::ALL) {
            *sum += late.mainly(cause);
        }
        self
    }

    pub(super) fn unknown(&self) -> u64 {
        let known = Cause::ALL.iter().zip(&self.mainly).filter(|(cause, _)| **cause != Cause::Unknown);
        self.late - self.by_load - known.map(|(_, count)| count).sum::<u64>()
    }
}

impl std::iter::Sum for Causes {
    fn sum<I: Iterator<Item = Causes>>(all: I) -> Causes {
        all.fold(Causes::default(), |mut sum, one| {
            (sum.late, sum.by_load) = (sum.late + one.late, sum.by_load + one.by_load);
            sum.mainly.iter_mut().zip(one.mainly).for_each(|(sum, count)| *sum += count);
            sum
        })
    }
}

/// The reason why the kernel cannot be recorded here, if there is one. It needs root and tracefs.
pub(super) fn unrecordable(plan: &Plan) -> Option<String> {
    takt_run::recorded(Dispatcher::new(plan.clone()), false).err().map(|error| error.to_string())
}

impl Window<'_> {
    /// Runs the window. It calls `began` after the start, and keeps the returned value until the
    /// window is over.
    pub(super) fn run<K>(
        self,
        sink: &mut impl Sink,
        after: impl Fn(TaskId) -> AfterJob,
        began: impl FnOnce(&Dispatching) -> Result<K, Failure>,
    ) -> Result<WindowRun, Failure> {
        let (plan, recorded, duration) = (self.plan, self.recorded, self.duration);
        let watches = self.watched.iter().map(|cpu| Watch::start(*cpu)).collect::<Result<Vec<Watch>, Failure>>()?;
        let dispatching = self.dispatcher(after)?.start().map_err(refused)?;
        let zeros: Vec<Span> = watches.iter().map(|watch| clock_offset(watch, &dispatching)).collect();
        let began = began(&dispatching)?;
        let end = Time::ZERO.saturating_add(duration);
        clock::pause(end.saturating_since(dispatching.now()));
        while !dispatching.is_over() && dispatching.now() < end.saturating_add(END_GRACE) {
            clock::pause(Span::from_ms(1));
        }
        drop(began);
        let stopped = dispatching.stop(sink).map_err(Failure::trouble)?;
        let mut pauses = Vec::new();
        for (watch, zero) in watches.into_iter().zip(zeros) {
            pauses.extend(
                watch.stop()?.into_iter().map(|(from, to)| (from.saturating_sub(zero), to.saturating_sub(zero))),
            );
        }
        let causes = if recorded { causes(plan, &stopped) } else { None };
        Ok(WindowRun { pauses, lost: lost(&stopped), causes })
    }

    /// The dispatcher, with handlers that work for the drawn execution times.
    fn dispatcher(self, after: impl Fn(TaskId) -> AfterJob) -> Result<Dispatcher, Failure> {
        let busy = Busy::new().ok_or_else(|| Failure::trouble("no memory for the work of a job"))?;
        let options = Options { duration: Some(self.duration), seed: self.seed, ..Options::default() };
        let mut dispatcher = Dispatcher::new(self.plan.clone()).with(options);
        if let Some(law) = self.law {
            dispatcher = dispatcher.adaptive(law);
        }
        for row in &self.plan.rows {
            let Some(task) = self.plan.system.tasks.get(row.task.index()).cloned() else { continue };
            let (mut busy, mut after, draw) = (busy.clone(), after(row.task), Draw::new(self.seed, &task.name));
            let mut handler = move |job: &Job<'_>| {
                if busy.work(draw.exec(&task, job.number()), || job.must_stop()) {
                    after(job);
                }
            };
            dispatcher = match self.subscriptions.get(&row.task) {
                None => dispatcher.on(&row.name, handler),
                Some(events) => dispatcher.on_events(events, move |_, job| handler(job)),
            }
            .map_err(refused)?;
        }
        if self.recorded { takt_run::recorded(dispatcher, false).map_err(Failure::cannot) } else { Ok(dispatcher) }
    }
}

fn causes(plan: &Plan, stopped: &Stopped) -> Option<Causes> {
    let critical =
        |task: TaskId| plan.system.tasks.get(task.index()).is_some_and(|task| task.criticality != Criticality::Low);
    let late = plan.rows.iter().zip(stopped.late.as_ref()?).filter(|(row, _)| critical(row.task));
    Some(late.fold(Causes::default(), |sum, (_, late)| sum.and(late)))
}

/// Log entries that found no room. A failed recorder counts as one lost entry.
fn lost(stopped: &Stopped) -> u64 {
    let kernel = stopped.recorded.as_ref().map_or(0, |recorded| recorded.lost + recorded.missing);
    stopped.lost + kernel + u64::from(stopped.unrecorded.is_some())
}

/// How far the watch's clock is ahead. The shortest of several readings of both clocks decides.
fn clock_offset(watch: &Watch, dispatching: &Dispatching) -> Span {
    let read_clocks = || {
        let before = dispatching.now();
        let there = watch.now();
        (dispatching.now().saturating_since(before), there.saturating_since(before))
    };
    (0..20).map(|_| read_clocks()).min().map_or(Span::ZERO, |(_, offset)| offset)
}

/// The failure if nothing ran, with its exit status.
pub(super) fn refused(error: StartError) -> Failure {
    match error {
        StartError::Privilege { missing } => Failure::cannot(format_args!("{missing}: run as root")),
        StartError::Refused { .. } | StartError::Cpus { .. } => Failure::cannot(error),
        _ => Failure::trouble(error),
    }
}

#[cfg(test)]
mod tests {
    use takt_model::Builtin;

    use super::super::{Variant, plan_of};
    use super::*;

    #[test]
    fn times_here_are_a_part_of_the_applications_and_draws_are_the_same() {
        let variant = Variant { strategy: Some(Builtin::Muf), cancel: true };
        let (whole, part) =
            (super::super::plan(11, variant).unwrap(), plan_of(11, variant, |s| shrink(s, FRAME)).unwrap());
        for (one, other) in whole.system.tasks.iter().zip(&part.system.tasks) {
            let half = |span: Span| Span::from_ns(span.as_ns() / SHRINK);
            assert_eq!([one.period, one.deadline, one.wcet].map(half), [other.period, other.deadline, other.wcet]);
            if other.after.is_empty() {
                assert_eq!(half(one.offset).saturating_add(FRAME), other.offset);
            }
            let (one, other) = ((one, Draw::new(7, &one.name)), (other, Draw::new(7, &other.name)));
            for number in 0..50 {
                let [whole, part] = [one, other].map(|(task, draw)| draw.exec(task, number).as_ns());
                assert!(whole.abs_diff(part * SHRINK) <= 2 * SHRINK, "{whole} {part}");
            }
        }
    }

    #[test]
    fn late_jobs_are_summed_by_cause() {
        let one = Causes { late: 6, by_load: 1, mainly: [1, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0] };
        let sum: Causes = [one, one, Causes::default()].into_iter().sum();
        assert_eq!(sum, Causes { late: 12, by_load: 2, mainly: [2, 4, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0] });
        assert_eq!((Cause::ALL[5], sum.unknown()), (Cause::Unknown, 4));
        assert_eq!(Causes { late: 7, ..one }.unknown(), 3, "late, and counted nowhere");
    }
}
