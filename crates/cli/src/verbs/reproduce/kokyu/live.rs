//! The same regions on this machine's kernel: the dispatcher's SCHED_FIFO threads on one CPU, in windows so short that the kernel lets them fill it, beside
//! a simulation of the same windows.
//!
//! All times are those of the application divided by [`SHRINK`], so that a window holds more than one period of its slowest operations. Arrivals, execution times and their
//! draws are the simulation's. What happened is read from the dispatcher after a window's end; nothing looks at it before.

use std::collections::BTreeMap;

use takt_linux::clock;
use takt_log::{CancelCause, Event, JobKey, Sink};
use takt_model::draw::Draw;
use takt_model::{Builtin, Criticality, Exec, Span, System, TaskId, Time};
use takt_report::{Form, Series};
use takt_run::dispatch::{Dispatcher, Dispatching, Job, Options, Plan, StartError};
use takt_run::load::Busy;

use super::pauses::{Pause, Watch, paused};
use super::replication::{self, Replicated, Replication};
use super::{
    Class, Comparison, Context, Counter, Drawn, Failure, Findings, Outcome, PAPERS, REGIONS, Row, Variant, figure,
    plan_of, variants, virtually,
};
use crate::failure::Status;
use crate::progress;

/// A time of the application is so many times as long as it is here.
pub(super) const SHRINK: u64 = 2;
/// SCHED_FIFO threads can fill a CPU for 950 ms of a second before the kernel takes it from them, by default.
const WINDOW_MAX: Span = Span::from_ms(850);
/// What the kernel's limit is to leave them of each second.
const RUNTIME_MIN_PERCENT: u64 = 90;
/// After a window the CPU is left to others for so many parts of it.
const REST: u64 = 3;
/// How long after its end a window may take to end.
const GRACE: Span = Span::from_s(2);
/// Jobs of an operation that may wait: more than a window has.
const BACKLOG: u32 = 256;
/// Regions with --short: one that is feasible, and one in which rm loses critical deadlines at once.
const SHORT: [usize; 2] = [5, 10];
/// What the machine did so long before a job was released can still make it late.
pub(super) const FRAME: Span = Span::from_ns(super::FRAME.as_ns() / SHRINK);
/// In per mille of the critical deadlines: what pauses that the watch saw do not explain, and yet shows no wrong order.
const STRAY: u64 = 10;
/// Windows of which pauses take more than this part refute nothing.
const QUIET: u64 = 50;

/// How long a window lasts here.
pub(super) fn window(context: &Context) -> Span {
    let usual = context.duration(Span::MAX, Span::from_ms(600));
    Span::from_ns(usual.as_ns() / SHRINK).min(WINDOW_MAX).max(Span::from_ms(1))
}

/// Leaves the CPU to others after a window.
pub(super) fn rest(window: Span) {
    clock::pause(Span::from_ns(window.as_ns() / REST));
}

/// All times of an application as they are here; `later` is when it begins.
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

/// What speaks against filling a CPU for a window; the CPU that is filled and another one otherwise.
pub(super) fn cpus(context: &Context) -> Result<[u32; 2], Failure> {
    let [first, second, ..] = *context.machine.cpus.as_slice() else {
        return Err(Failure::cannot("it takes two CPUs: one is full for a while, and somebody has to watch"));
    };
    let limits = context.machine.limits;
    if limits.rt_percent() < RUNTIME_MIN_PERCENT || limits.rt_period_us < 1_000_000 {
        return Err(Failure::cannot(format_args!(
            "real-time threads may use {} us of {} us of a CPU here, less than a window takes: as root, sysctl kernel.sched_rt_period_us=1000000 kernel.sched_rt_runtime_us=950000",
            limits.rt_runtime_us, limits.rt_period_us
        )));
    }
    Ok([first, second])
}

/// What a handler does after its job's work.
pub(super) type After = Box<dyn FnMut(&Job<'_>) + Send>;

/// Runs a plan for a window on this process's first CPU. `began` is called once it runs, and what it returns is kept until the window is over; `after` makes what follows each job of a
/// task. Returns pauses of the CPU meanwhile, and how many facts were lost.
pub(super) fn run<K>(
    plan: &Plan,
    duration: Span,
    seed: u64,
    sink: &mut impl Sink,
    after: impl Fn(TaskId) -> After,
    began: impl FnOnce(&Dispatching) -> Result<K, Failure>,
) -> Result<(Vec<Pause>, u64), Failure> {
    let busy = Busy::new().ok_or_else(|| Failure::trouble("no memory for the work of a job"))?;
    let options = Options { duration: Some(duration), seed, ..Options::default() };
    let mut dispatcher = Dispatcher::new(plan.clone().with_backlog(BACKLOG)).with(options);
    for row in &plan.rows {
        let Some(task) = plan.system.tasks.get(row.task.index()).cloned() else { continue };
        let (mut busy, mut after, draw) = (busy.clone(), after(row.task), Draw::new(seed, &task.name));
        let handler = move |job: &Job<'_>| {
            if busy.work(draw.exec(&task, job.number()), || job.must_stop()) {
                after(job);
            }
        };
        dispatcher = dispatcher.on(&row.name, handler).map_err(refused)?;
    }
    let Some(cpu) = takt_linux::sched::affinity().first().copied() else {
        return Err(Failure::trouble("the kernel does not tell this process's CPUs"));
    };
    let watch = Watch::start(cpu)?;
    let dispatching = dispatcher.start().map_err(refused)?;
    let zero = apart(&watch, &dispatching);
    let began = began(&dispatching)?;
    let end = Time::ZERO.saturating_add(duration);
    clock::pause(end.saturating_since(dispatching.now()));
    while !dispatching.is_over() && dispatching.now() < end.saturating_add(GRACE) {
        clock::pause(Span::from_ms(1));
    }
    drop(began);
    let stopped = dispatching.stop(sink).map_err(Failure::trouble)?;
    let here = |at: Time| at.saturating_sub(zero);
    Ok((watch.stop()?.into_iter().map(|(from, to)| (here(from), here(to))).collect(), stopped.lost))
}

/// How much the watch's clock is ahead, from looks at both that nothing came between.
fn apart(watch: &Watch, dispatching: &Dispatching) -> Span {
    let look = || {
        let before = dispatching.now();
        let there = watch.now();
        (dispatching.now().saturating_since(before), there.saturating_since(before))
    };
    (0..20).map(|_| look()).min().map_or(Span::ZERO, |(_, apart)| apart)
}

/// Why nothing ran, with the exit status that fits.
pub(super) fn refused(error: StartError) -> Failure {
    match error {
        StartError::Privilege { missing } => Failure::cannot(format_args!("{missing}: run as root")),
        StartError::Refused { .. } | StartError::Cpus { .. } => Failure::cannot(error),
        _ => Failure::trouble(error),
    }
}

/// Counts as for a simulation, and remembers the critical deadlines, and which of them were missed.
struct Seen<'a> {
    counter: Counter<'a>,
    /// From when to when jobs are there.
    critical: BTreeMap<JobKey, (Time, Time)>,
    missed: Vec<JobKey>,
}

impl Seen<'_> {
    /// Of the critical deadlines until `end` that no pause can have to do with: all, and those that were missed.
    fn clear(&self, pauses: &[Pause], end: Time) -> (u64, u64) {
        let is_clear = |(arrival, deadline): &&(Time, Time)| {
            *deadline <= end && !paused(pauses, Time::from_ns(arrival.as_ns().saturating_sub(FRAME.as_ns())), *deadline)
        };
        let missed = self.missed.iter().filter_map(|job| self.critical.get(job));
        (self.critical.values().filter(is_clear).count() as u64, missed.filter(is_clear).count() as u64)
    }
}

impl Sink for Seen<'_> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        match *event {
            Event::Release { job, arrival, .. } => {
                let task = self.counter.system.tasks.get(job.task.index());
                if let Some(task) = task.filter(|task| task.criticality != Criticality::Low) {
                    self.critical.insert(job, (arrival, arrival.saturating_add(task.deadline)));
                }
            }
            Event::Miss { job } if self.critical.contains_key(&job) => self.missed.push(job),
            // It was never requested.
            Event::Cancel { job, cause: CancelCause::Shed } => drop(self.critical.remove(&job)),
            _ => {}
        }
        self.counter.event(stream, now, event);
    }
}

/// A window, simulated and live.
#[derive(Clone, Default)]
struct Both {
    simulated: Outcome,
    live: Outcome,
    /// Critical deadlines that no pause of the machine can have to do with, and those of them that were missed, live.
    clear: u64,
    stray: u64,
    /// What the watch saw.
    paused: Span,
    lost: u64,
    replicated: Replicated,
}

fn both(region: usize, variant: Variant, duration: Span, seed: u64) -> Result<Both, Failure> {
    let plan = plan_of(region, variant, |system| shrink(system, Span::ZERO))?;
    let seed = seed + region as u64;
    let mut simulated = Counter::new(&plan.system);
    virtually(&plan.clone().with_backlog(1 << 14), variant, duration, seed, &mut simulated)?;
    let mut seen = Seen { counter: Counter::new(&plan.system), critical: BTreeMap::new(), missed: Vec::new() };
    let replication = Replication::new(&plan.system)?;
    let after = |task| replication.after(task);
    let began = |dispatching: &Dispatching| replication.connect(dispatching);
    let (pauses, lost) = run(&plan, duration, seed, &mut seen, after, began)?;
    let (clear, stray) = seen.clear(&pauses, Time::ZERO.saturating_add(duration));
    let paused = pauses.iter().fold(Span::ZERO, |sum, (from, to)| sum.saturating_add(to.saturating_since(*from)));
    let (simulated, live) = (simulated.outcome(), seen.counter.outcome());
    Ok(Both { simulated, live, clear, stray, paused, lost, replicated: replication.end() })
}

/// What was measured: by variant, by region in the order of `regions`.
struct Live {
    regions: Vec<usize>,
    variants: Vec<Variant>,
    all: Vec<Vec<Both>>,
    window: Span,
}

/// Runs all windows and adds what they tell; where this machine or user cannot, why.
pub(super) fn add(context: &Context, findings: &mut Findings) -> Result<(), Failure> {
    let regions: Vec<usize> = if context.short { SHORT.to_vec() } else { (0..REGIONS.len()).collect() };
    let variants: Vec<Variant> = variants().into_iter().take(PAPERS).collect();
    let window = window(context);
    let mut live = Live { all: vec![Vec::new(); variants.len()], regions, variants, window };
    let measured = live.measure(context).and_then(|()| uninterrupted(context));
    match measured {
        Ok(()) => {}
        Err(failure) if failure.status == Status::Cannot => {
            undecided(findings, &CLAIMS, &failure);
            return Ok(());
        }
        Err(failure) => return Err(failure),
    }
    live.tables(findings);
    live.figures(findings);
    live.claims(findings);
    live.notes(findings);
    Ok(())
}

/// A signal ends what goes on: what it decides stays undecided.
pub(super) fn uninterrupted(context: &Context) -> Result<(), Failure> {
    if context.stopped() { Err(Failure::cannot("interrupted")) } else { Ok(()) }
}

/// Claims of what could not be measured.
pub(super) fn undecided(findings: &mut Findings, claims: &[(&'static str, &str)], failure: &Failure) {
    let why = failure.message.trim_start_matches("takt: ").replace('\n', "; ");
    for (name, claim) in claims {
        findings.claim(name, *claim, format!("not measured here: {why}"), None);
    }
}

/// What is decided live: names and claims.
const CLAIMS: [(&str, &str); 4] = [
    (
        "live_rm_loses_critical",
        "on this kernel rm loses critical deadlines in each region in which it loses two or more in the simulation of the same window",
    ),
    (
        "live_hybrids_keep_critical",
        "on this kernel muf and rms+mlf, with cancellation and without, miss 1 % at the most of the critical deadlines of jobs that were not there while the machine paused or in the frame after",
    ),
    (
        "live_cancellation_reduces_misses",
        "on this kernel cancellation halves the noncritical deadlines that muf misses, or better, in the regions in which rm loses critical ones",
    ),
    (
        "live_replication",
        "on this kernel all values that are flushed come, each newer than the one before; and in the regions in which rm loses critical deadlines a smaller share of critical values misses its flush under muf and rms+mlf than under rm",
    ),
];

impl Live {
    fn measure(&mut self, context: &Context) -> Result<(), Failure> {
        cpus(context)?;
        let bar = progress::bar("windows", (self.regions.len() * self.variants.len()) as u64);
        for region in &self.regions {
            // The same window under all strategies in turn: what the machine does meanwhile is alike for all.
            for (variant, into) in self.variants.iter().zip(&mut self.all) {
                if context.stopped() {
                    return Ok(());
                }
                into.push(both(*region, *variant, self.window, context.seed)?);
                rest(self.window);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.variants.iter().map(|variant| variant.name()).collect()
    }

    fn of(&self, strategy: Builtin, cancel: bool) -> &[Both] {
        let wanted = Variant { strategy: Some(strategy), cancel };
        let at = self.variants.iter().position(|variant| *variant == wanted);
        at.and_then(|at| self.all.get(at)).map_or(&[], Vec::as_slice)
    }

    fn tables(&self, findings: &mut Findings) {
        type Count = fn(&Outcome) -> u64;
        const COUNTS: [(&str, &str, Count); 5] = [
            ("critical deadlines made", "critical made", |outcome| outcome.critical.made),
            ("critical deadlines missed", "critical missed", |outcome| outcome.critical.missed),
            ("noncritical deadlines made", "noncritical made", |outcome| outcome.noncritical.made),
            ("noncritical deadlines missed", "noncritical missed", |outcome| outcome.noncritical.missed),
            ("noncritical operations cancelled", "cancelled", |outcome| outcome.noncritical.cancelled),
        ];
        let sources = vec!["simulated", "live"];
        for (what, _, count) in COUNTS {
            let row = |(at, region): (usize, &usize)| {
                let values = |pick: fn(&Both) -> &Outcome| {
                    self.all.iter().map(|regions| regions.get(at).map(|both| count(pick(both)) as f64)).collect()
                };
                Row {
                    name: region.to_string(),
                    values: vec![values(|both| &both.simulated), values(|both| &both.live)],
                }
            };
            findings.tables.push(Comparison {
                title: format!("On this kernel: {what}"),
                cite: "Figs. 7 to 9",
                unit: "jobs in a window",
                digits: 0,
                row_head: "region",
                columns: self.names(),
                sources: sources.clone(),
                rows: self.regions.iter().enumerate().map(row).collect(),
            });
        }
        let row = |(variant, regions): (&Variant, &Vec<Both>)| {
            let sums = |pick: fn(&Both) -> &Outcome| {
                let sum = |count: Count| regions.iter().map(|both| count(pick(both))).sum::<u64>() as f64;
                COUNTS.map(|(_, _, count)| Some(sum(count))).to_vec()
            };
            Row { name: variant.name(), values: vec![sums(|both| &both.simulated), sums(|both| &both.live)] }
        };
        findings.tables.push(Comparison {
            title: "On this kernel: all regions together".to_owned(),
            cite: "Figs. 7 to 9",
            unit: "jobs",
            digits: 0,
            row_head: "strategy",
            columns: COUNTS.map(|(_, what, _)| what.to_owned()).to_vec(),
            sources,
            rows: self.variants.iter().zip(&self.all).map(row).collect(),
        });
        let sums = self.all.iter().map(|regions| regions.iter().map(|both| both.replicated).sum());
        findings.tables.push(replication::table(self.names().into_iter().zip(sums)));
    }

    fn figures(&self, findings: &mut Findings) {
        type Value = fn(&Outcome) -> u64;
        let figures: [(&str, &str, bool, Value); 2] = [
            ("live-critical.svg", "Critical deadlines missed", false, |outcome| outcome.critical.missed),
            ("live-noncritical.svg", "Noncritical deadlines made", true, |outcome| outcome.noncritical.made),
        ];
        for (file, what, cancel, value) in figures {
            let mut all = Vec::new();
            for (colour, strategy) in [Builtin::Rm, Builtin::Muf, Builtin::RmsMlf].into_iter().enumerate() {
                let name = Variant { strategy: Some(strategy), cancel }.name();
                let points = |pick: fn(&Both) -> &Outcome| {
                    let regions = self.regions.iter().zip(self.of(strategy, cancel));
                    regions.map(|(region, both)| (*region as f64, value(pick(both)) as f64)).collect()
                };
                let simulated = points(|both| &both.simulated);
                all.push(Series { name: format!("{name}, simulated"), points: simulated, form: Form::Dashed, colour });
                let live = points(|both| &both.live);
                all.push(Series { name: format!("{name}, live"), points: live, form: Form::Rings, colour });
            }
            let title = format!("On this kernel: {}", what.to_lowercase());
            findings.figures.push(Drawn::of(
                file,
                &figure(&title, "deadlines in a window", all),
                title.clone(),
                "The same windows, simulated and on this kernel.",
            ));
        }
    }

    fn claims(&self, findings: &mut Findings) {
        let rm = self.of(Builtin::Rm, false);
        let lost: Vec<usize> = (0..rm.len()).filter(|at| rm[*at].simulated.critical.missed >= 2).collect();
        let list = |all: &[usize]| match all {
            [] => "none".to_owned(),
            all => all.iter().map(|at| self.regions[*at].to_string()).collect::<Vec<_>>().join(", "),
        };
        let [first, second, third, fourth] = CLAIMS;
        let also = |is: fn(&Both) -> bool| lost.iter().filter(|at| is(&rm[**at])).count();
        let (clearly, kept) = (also(|both| both.stray > 0), also(|both| both.live.critical.missed == 0));
        findings.claim(
            first.0,
            first.1,
            format!("simulated in regions {}, live in {clearly} of them without a pause", list(&lost)),
            // Where pauses may explain all that was missed nothing is known.
            verdict(!lost.is_empty() && clearly == lost.len(), kept > 0),
        );
        let hybrids = || self.variants.iter().zip(&self.all).filter(|(variant, _)| variant.is_aware());
        let windows = || hybrids().flat_map(|(_, regions)| regions);
        let due: u64 = windows().map(|both| decided(&both.live.critical)).sum();
        let missed: u64 = windows().map(|both| both.live.critical.missed).sum();
        let clear: u64 = windows().map(|both| both.clear).sum();
        let stray: u64 = windows().map(|both| both.stray).sum();
        findings.claim(
            second.0,
            second.1,
            format!("{missed} of {due} critical deadlines missed; of the {clear} without a pause {stray}"),
            // Where the machine paused most of the time nothing is known.
            (clear * 2 > due).then_some(stray * 1000 <= clear * STRAY),
        );
        let sum = |cancel| {
            let of = self.of(Builtin::Muf, cancel);
            lost.iter().filter_map(|at| of.get(*at)).map(|both| both.live.noncritical.missed).sum::<u64>()
        };
        let (with, without) = (sum(true), sum(false));
        let cancelling = || lost.iter().filter_map(|at| self.of(Builtin::Muf, true).get(*at));
        let pauses: u64 = cancelling().map(|both| both.paused.as_ns()).sum();
        let span = self.window.as_ns() * cancelling().count() as u64;
        findings.claim(
            third.0,
            third.1,
            format!("{with} missed instead of {without}"),
            verdict(without > 0 && with * 2 <= without, without > 0 && pauses * QUIET < span),
        );
        let late = |regions: &[Both]| {
            let lost = lost.iter().filter_map(|at| regions.get(*at));
            lost.map(|both| both.replicated).sum::<Replicated>().critical_late()
        };
        let worst = hybrids().map(|(_, regions)| late(regions)).fold(0.0, f64::max);
        let is_whole = self.all.iter().flatten().all(|both| both.replicated.is_whole());
        let came: u64 = self.all.iter().flatten().map(|both| both.replicated.came).sum();
        findings.claim(
            fourth.0,
            fourth.1,
            format!(
                "{came} values came, {}; {:.1} % of the critical ones were late under rm, at most {:.1} % under the others",
                if is_whole { "all that were flushed" } else { "not all that were flushed, or not in order" },
                100.0 * late(rm),
                100.0 * worst
            ),
            verdict(is_whole && worst < late(rm), !is_whole || late(rm) > 0.0),
        );
    }

    fn notes(&self, findings: &mut Findings) {
        let all = || self.all.iter().flatten();
        let window = Span::from_ns(self.window.as_ns() * SHRINK);
        findings.differences.push(format!(
            "On this kernel all times are divided by {SHRINK}, and a region is a window of {window} of the application (here {}), which begins idle, instead of minutes: SCHED_FIFO threads that fill a CPU for longer are stopped by the kernel. After each window the CPU is left to others. Misses are told with the watch that explains some of them: a thread more important than the dispatcher's, which wakes up each ms and tells when it was late by more than 0.5 ms. That, and what the dispatcher itself costs, is a load that the simulation does not have: where the application just fits, it no longer does.",
            self.window
        ));
        let paused = all().fold(Span::ZERO, |sum, both| sum.saturating_add(both.paused));
        let most = all().map(|both| both.paused).max().unwrap_or(Span::ZERO);
        findings.notes.push(format!(
            "The CPU of the live windows paused for {} of {}, in the worst window for {}.",
            paused.four_digits(),
            Span::from_ns(self.window.as_ns() * all().count() as u64),
            most.four_digits()
        ));
        let shares = |class: fn(&Outcome) -> &Class| -> String {
            let share = |(variant, regions): (&Variant, &Vec<Both>)| {
                let sum = |pick: fn(&Both) -> &Outcome| regions.iter().map(|both| class(pick(both)).made).sum::<u64>();
                let (live, simulated) = (sum(|both| &both.live), sum(|both| &both.simulated));
                format!("{} {:.1} %", variant.name(), 100.0 * live as f64 / simulated.max(1) as f64)
            };
            self.variants.iter().zip(&self.all).map(share).collect::<Vec<_>>().join("; ")
        };
        findings.notes.push(format!(
            "Deadlines made live, of those made in the simulation of the same windows: critical {}; noncritical {}. The simulation has no costs of switches, interrupts or a hypervisor.",
            shares(|outcome| &outcome.critical),
            shares(|outcome| &outcome.noncritical)
        ));
        let lost: u64 = all().map(|both| both.lost).sum();
        if lost > 0 {
            findings.notes.push(format!("{lost} facts of live windows found no room, and are missing in the counts."));
        }
    }
}

/// `None` where it was neither shown nor refuted.
fn verdict(shown: bool, refuted: bool) -> Option<bool> {
    if shown { Some(true) } else { refuted.then_some(false) }
}

/// Deadlines that were made, missed or cancelled.
fn decided(class: &Class) -> u64 {
    class.made + class.missed + class.cancelled
}

#[cfg(test)]
mod tests {
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

    fn windows(of: impl Fn(usize, Variant) -> Both) -> Live {
        let variants: Vec<Variant> = variants().into_iter().take(PAPERS).collect();
        let regions = vec![5, 10];
        let all = variants.iter().map(|variant| regions.iter().map(|region| of(*region, *variant)).collect()).collect();
        Live { regions, variants, all, window: Span::from_ms(100) }
    }

    fn verdicts(of: impl Fn(usize, Variant) -> Both) -> Vec<Option<bool>> {
        let mut findings = Findings::default();
        windows(of).claims(&mut findings);
        findings.claims.iter().map(|claim| claim.holds).collect()
    }

    /// rm loses 4 critical deadlines in region 10, muf noncritical ones, fewer with cancellation.
    fn usual(region: usize, variant: Variant) -> Both {
        let rm = u64::from(region == 10 && variant.strategy == Some(Builtin::Rm));
        let critical = Class { made: 100 - 4 * rm, missed: 4 * rm, ..Class::default() };
        let noncritical = Class { made: 50, missed: if variant.cancel { 4 } else { 40 }, ..Class::default() };
        let outcome = Outcome { critical, noncritical, ..Outcome::default() };
        let replicated = Replicated { written: [100, 50], late: [4 * rm, 0], ..Replicated::default() };
        Both { simulated: outcome, live: outcome, clear: 100, stray: 4 * rm, paused: Span::ZERO, lost: 0, replicated }
    }

    #[test]
    fn pauses_neither_show_nor_refute() {
        assert_eq!(verdicts(usual), [Some(true); 4]);
        // All that was missed can be of pauses.
        let paused = |region, variant| Both { clear: 0, stray: 0, paused: Span::from_ms(60), ..usual(region, variant) };
        assert_eq!(verdicts(paused), [None, None, Some(true), Some(true)]);
        let worse = |region, variant: Variant| {
            let mut both = usual(region, variant);
            (both.stray, both.live.noncritical.missed) = (if variant.is_aware() { 2 } else { 0 }, 40);
            both
        };
        assert_eq!(verdicts(worse), [None, Some(false), Some(false), Some(true)]);
        assert_eq!(verdicts(|region, variant| Both { paused: Span::from_ms(60), ..worse(region, variant) })[2], None);
        let kept = |region, variant| {
            let mut both = usual(region, variant);
            (both.live.critical.missed, both.stray) = (0, 0);
            both
        };
        assert_eq!(verdicts(kept)[0], Some(false));
        let replicated = |late: [u64; 2], came| {
            verdicts(|region, variant| {
                let mut both = usual(region, variant);
                both.replicated.late[0] = if variant.is_aware() { late[1] } else { late[0] };
                both.replicated.came = came;
                both
            })[3]
        };
        assert_eq!(replicated([4, 3], 0), Some(true));
        assert_eq!([replicated([4, 4], 0), replicated([0, 0], 0)], [Some(false), None]);
        assert_eq!(replicated([4, 3], 1), Some(false), "nothing was flushed, and yet one came");
    }

    #[test]
    fn a_missed_critical_deadline_is_remembered_with_its_release() {
        let plan = plan_of(0, Variant { strategy: Some(Builtin::Rm), cancel: false }, |_| ()).unwrap();
        let mut seen = Seen { counter: Counter::new(&plan.system), critical: BTreeMap::new(), missed: Vec::new() };
        let (at, ms) = (Time::from_ns, Span::from_ms);
        for (name, number) in [("sensors", 0), ("display", 0), ("sensors", 1)] {
            let job = JobKey { task: plan.system.task_by_name(name).unwrap(), number };
            seen.event(0, at(5), &Event::Release { job, arrival: at(4), parent: None });
            if number == 0 {
                seen.event(0, at(9), &Event::Miss { job });
            }
        }
        let end = Time::ZERO + ms(1000);
        assert_eq!(seen.clear(&[], end), (2, 1));
        assert_eq!(seen.clear(&[(at(3), at(4))], end), (0, 0), "a pause in the frame before");
        assert_eq!(seen.clear(&[(end, end)], end), (2, 1), "a pause after the deadline");
        assert_eq!(seen.clear(&[], at(9)), (0, 0), "not due yet");
        let outcome = seen.counter.outcome();
        assert_eq!((outcome.critical.missed, outcome.noncritical.missed), (1, 1));
    }
}
