//! The same regions on this machine's kernel. The dispatcher's SCHED_FIFO threads run on one CPU,
//! in [windows](super::window). A simulation of the same windows stands beside them, with the same
//! arrivals and the same drawn execution times. The kernel's events explain why critical jobs were
//! late.

use std::cell::Cell;

use takt_dispatch::{Cause, Dispatching};
use takt_model::{Builtin, Span, Time};
use takt_report::{Form, Series};

use super::application::BACKLOG as SIMULATED_BACKLOG;
use super::replication::{self, Replicated, Replication};
use super::window::{BACKLOG, Causes, SHRINK, WINDOW_MIN, Window, WindowRun, cpus, rest, shrink, unrecordable, window};
use super::{
    Class, Comparison, Context, Counter, Drawn, Failure, Findings, Outcome, REGIONS, Row, STRATEGIES, Variant,
    bounded_controller, figure, plan_of, seed_of, simulate_plan, variants, verdict,
};
use crate::failure::Status;

/// The channel must be connected by then.
const CONNECTED_BY: Span = Span::from_ms(25);
/// The most attempts at a window, if the channel was connected too late.
const ATTEMPTS_MAX: u32 = 3;
/// Regions with `--short`. The first is feasible. In the second, rm loses critical deadlines at
/// once.
const SHORT_REGIONS: [usize; 2] = [5, 10];
/// A window refutes a claim only if less than this fraction (1/50) of it were pauses.
const PAUSES_DIVISOR: u64 = 50;

#[derive(Clone, Default)]
struct WindowResult {
    simulated: Outcome,
    live: Outcome,
    causes: Option<Causes>,
    paused: Span,
    /// Log entries that found no room.
    lost: u64,
    replicated: Replicated,
    /// Whether the application began before events could leave.
    late: bool,
}

/// Runs a window. Repeats it if the channel was connected too late for the first readings.
fn run_window(
    region: usize,
    variant: Variant,
    cpu: u32,
    recorded: bool,
    duration: Span,
    seed: u64,
) -> Result<WindowResult, Failure> {
    let mut result = try_window(region, variant, cpu, recorded, duration, seed)?;
    for _ in 1..ATTEMPTS_MAX {
        if !result.late {
            break;
        }
        rest(duration);
        result = try_window(region, variant, cpu, recorded, duration, seed)?;
    }
    Ok(result)
}

fn try_window(
    region: usize,
    variant: Variant,
    cpu: u32,
    recorded: bool,
    duration: Span,
    seed: u64,
) -> Result<WindowResult, Failure> {
    let plan = plan_of(region, variant, |system| shrink(system, CONNECTED_BY))?;
    let seed = seed_of(seed, region);
    let mut simulated = Counter::new(&plan.system);
    // A window is short, so a signal need not end it.
    simulate_plan(&plan.clone().with_backlog(SIMULATED_BACKLOG), variant, duration, seed, &|| false, &mut simulated)?;
    let mut live = Counter::new(&plan.system);
    let (plan, replication) = Replication::new(plan.clone().with_backlog(BACKLOG), duration)?;
    let law = if variant.strategy.is_none() { Some(bounded_controller(&plan)?) } else { None };
    let window = Window {
        plan: &plan,
        law,
        duration,
        seed,
        recorded,
        subscriptions: replication.subscriptions(),
        watched: &[cpu],
    };
    let late = Cell::new(false);
    let began = |dispatching: &Dispatching| {
        let connected = replication.connect(dispatching);
        late.set(dispatching.now() > Time::ZERO.saturating_add(CONNECTED_BY));
        connected
    };
    let WindowRun { pauses, lost, causes } = window.run(&mut live, |task| replication.after(task), began)?;
    let paused = pauses.iter().fold(Span::ZERO, |sum, (from, to)| sum.saturating_add(to.saturating_since(*from)));
    let (simulated, live) = (simulated.outcome(), live.outcome());
    Ok(WindowResult { simulated, live, causes, paused, lost, replicated: replication.end(), late: late.get() })
}

/// The measurements by variant, then by region in the order of `regions`.
struct Live {
    regions: Vec<usize>,
    variants: Vec<Variant>,
    all: Vec<Vec<WindowResult>>,
    window: Span,
    short: bool,
    unrecorded: Option<String>,
}

/// Runs all windows and adds the results. Adds the reason instead if this machine or user cannot
/// run them.
pub(super) fn add(context: &Context, findings: &mut Findings) -> Result<(), Failure> {
    let regions: Vec<usize> = if context.short { SHORT_REGIONS.to_vec() } else { (0..REGIONS.len()).collect() };
    let (variants, window) = (variants(), window(context));
    let all = vec![Vec::new(); variants.len()];
    let mut live = Live { all, regions, variants, window, short: context.short, unrecorded: None };
    let measured = live.measure(context).and_then(|()| uninterrupted(context));
    match measured {
        Ok(()) => {}
        Err(failure) if failure.status == Status::Cannot => {
            undecided(findings, claims_of(context.short), &failure);
            return Ok(());
        }
        Err(failure) => return Err(failure),
    }
    live.tables(findings);
    live.table_of_causes(findings);
    live.figures(findings);
    live.claims(findings);
    live.notes(findings);
    Ok(())
}

/// Fails if a signal ended the experiment. Its claims stay undecided.
pub(super) fn uninterrupted(context: &Context) -> Result<(), Failure> {
    if context.stopped() { Err(Failure::cannot("interrupted")) } else { Ok(()) }
}

pub(super) fn undecided(findings: &mut Findings, claims: &[(&'static str, &str)], failure: &Failure) {
    let why = failure.message.replace('\n', "; ");
    for (name, claim) in claims {
        findings.claim(name, *claim, format!("not measured here: {why}"), None);
    }
}

/// The claims that are decided live, with their names.
const CLAIMS: [(&str, &str); 8] = [
    (
        "live_rm_loses_critical",
        "on this kernel rm loses critical deadlines by load, by the kernel's events, in each region in which it \
         loses two or more in the simulation of the same window",
    ),
    (
        "live_hybrids_keep_critical",
        "on this kernel no critical job is late by load under muf and rms+mlf, with cancellation and without, and \
         each one that is late has a recorded cause",
    ),
    (
        "live_adaptive_keeps_critical",
        "on this kernel the same holds of the adaptive controller, with cancellation and without",
    ),
    (
        "live_cancellation_reduces_misses",
        "on this kernel cancellation halves the noncritical deadlines that muf misses, or better, in the regions in \
         which rm loses critical ones",
    ),
    ("live_replication", "on this kernel all flushed values arrive, each newer than the one before"),
    (
        "live_is_whole",
        "no log entry of the windows on this kernel was lost, neither of the dispatcher nor of the kernel's \
         recorder, and no job was rejected: metrics are read when a window is over",
    ),
    (
        "live_readings",
        "on this kernel each reading that a sensor's proxy pushes releases one job of the operation that \
         processes it, and nothing else releases one",
    ),
    (
        "live_replication_in_time",
        "on this kernel, in the regions in which rm loses critical deadlines, a smaller share of critical \
         values misses its flush under muf and rms+mlf than under rm",
    ),
];

/// Short windows omit the last claim: late jobs under rm have not ended, and written their values,
/// by the window's end.
fn claims_of(short: bool) -> &'static [(&'static str, &'static str)] {
    &CLAIMS[..CLAIMS.len() - usize::from(short)]
}

impl Live {
    fn measure(&mut self, context: &Context) -> Result<(), Failure> {
        let [cpu, _] = cpus(context)?;
        let first = plan_of(0, self.variants[0], |system| shrink(system, Span::ZERO))?;
        self.unrecorded = unrecordable(&first);
        let recorded = self.unrecorded.is_none();
        let bar = (context.host.bar)("windows", (self.regions.len() * self.variants.len()) as u64);
        for region in &self.regions {
            // All strategies run the same window in turn, so that the machine's disturbances are
            // similar for all.
            for (variant, into) in self.variants.iter().zip(&mut self.all) {
                if context.stopped() {
                    return Ok(());
                }
                into.push(run_window(*region, *variant, cpu, recorded, self.window, context.seed)?);
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

    fn of(&self, strategy: Builtin, cancel: bool) -> &[WindowResult] {
        self.under(Variant { strategy: Some(strategy), cancel })
    }

    fn under(&self, wanted: Variant) -> &[WindowResult] {
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
                let values = |pick: fn(&WindowResult) -> &Outcome| {
                    self.all.iter().map(|regions| regions.get(at).map(|both| count(pick(both)) as f64)).collect()
                };
                Row {
                    name: region.to_string(),
                    values: vec![values(|both| &both.simulated), values(|both| &both.live)],
                }
            };
            findings.tables.push(
                Comparison::new(format!("On this kernel: {what}"), "Figs. 7 to 9", "jobs in a window", 0).with(
                    "region",
                    self.names(),
                    sources.clone(),
                    self.regions.iter().enumerate().map(row),
                ),
            );
        }
        let row = |(variant, regions): (&Variant, &Vec<WindowResult>)| {
            let sums = |pick: fn(&WindowResult) -> &Outcome| {
                let sum = |count: Count| regions.iter().map(|both| count(pick(both))).sum::<u64>() as f64;
                COUNTS.map(|(_, _, count)| Some(sum(count))).to_vec()
            };
            Row { name: variant.name(), values: vec![sums(|both| &both.simulated), sums(|both| &both.live)] }
        };
        findings.tables.push(Comparison::new("On this kernel: all regions together", "Figs. 7 to 9", "jobs", 0).with(
            "strategy",
            COUNTS.map(|(_, what, _)| what.to_owned()),
            sources,
            self.variants.iter().zip(&self.all).map(row),
        ));
        let sums = self.all.iter().map(|regions| regions.iter().map(|both| both.replicated).sum());
        findings.tables.push(replication::table(self.names().into_iter().zip(sums)));
    }

    fn table_of_causes(&self, findings: &mut Findings) {
        if self.unrecorded.is_some() {
            return;
        }
        let row = |(variant, regions): (&Variant, &Vec<WindowResult>)| {
            let causes: Causes = regions.iter().filter_map(|both| both.causes).sum();
            let counts = [causes.late, causes.by_load].into_iter().chain(causes.mainly);
            Row { name: variant.name(), values: vec![counts.map(|count| Some(count as f64)).collect()] }
        };
        let columns = ["late", "by load"].into_iter().chain(Cause::ALL.iter().map(|cause| cause.name()));
        findings.tables.push(
            Comparison::new(
                "On this kernel: why critical jobs were late, all regions together",
                "IV-B",
                "jobs, by load or by what disturbed longest",
                0,
            )
            .with("strategy", columns, ["live"], self.variants.iter().zip(&self.all).map(row)),
        );
    }

    fn figures(&self, findings: &mut Findings) {
        type Value = fn(&Outcome) -> u64;
        let figures: [(&str, &str, bool, Value); 2] = [
            ("live-critical.svg", "Critical deadlines missed", false, |outcome| outcome.critical.missed),
            ("live-noncritical.svg", "Noncritical deadlines made", true, |outcome| outcome.noncritical.made),
        ];
        for (file, what, cancel, value) in figures {
            let mut all = Vec::new();
            let strategies = STRATEGIES.into_iter().map(Some).chain([None]);
            for (colour, strategy) in strategies.enumerate() {
                let variant = Variant { strategy, cancel };
                let name = variant.name();
                let points = |pick: fn(&WindowResult) -> &Outcome| {
                    let regions = self.regions.iter().zip(self.under(variant));
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
        self.claims_of_causes(findings);
        self.claim_cancellation(findings);
        let replicated: Replicated = self.all.iter().flatten().map(|both| both.replicated).sum();
        let is_whole = self.all.iter().flatten().all(|both| both.replicated.is_whole());
        let how = if is_whole { "all that were flushed" } else { "not all that were flushed, or not in order" };
        let found = format!("{} values came, {how}", replicated.came);
        findings.claim(CLAIMS[4].0, CLAIMS[4].1, found, self.is_long_enough().then_some(is_whole));
        let found = format!("{} facts lost, {} jobs rejected", self.lost(), self.rejected());
        let holds = verdict(self.is_long_enough() && self.is_whole(), !self.is_whole());
        findings.claim(CLAIMS[5].0, CLAIMS[5].1, found, holds);
        let Replicated { readings, released, processed, .. } = replicated;
        let late = self.all.iter().flatten().filter(|both| both.late).count();
        let found = format!(
            "{readings} readings pushed, {released} jobs released, {processed} of them before their windows \
             ended; {late} windows began before events could leave"
        );
        let unread = || self.all.iter().flatten().filter(|both| !both.replicated.is_read());
        let holds = verdict(unread().next().is_none(), unread().any(|both| !both.late));
        findings.claim(CLAIMS[6].0, CLAIMS[6].1, found, holds.filter(|_| self.is_long_enough()));
        if !self.short {
            self.claim_replication(findings);
        }
    }

    fn lost(&self) -> u64 {
        self.all.iter().flatten().map(|both| both.lost).sum()
    }

    fn rejected(&self) -> u64 {
        let all = self.all.iter().flatten();
        all.map(|both| both.live.critical.rejected + both.live.noncritical.rejected).sum()
    }

    /// Whether nothing was lost or rejected. Otherwise the other claims stay undecided.
    fn is_whole(&self) -> bool {
        self.lost() == 0 && self.rejected() == 0
    }

    fn is_long_enough(&self) -> bool {
        self.window >= WINDOW_MIN
    }

    fn decide(&self, holds: Option<bool>) -> Option<bool> {
        holds.filter(|_| self.is_whole() && self.is_long_enough())
    }

    /// The indices of regions in which rm loses two or more critical deadlines in simulation.
    fn losing(&self) -> Vec<usize> {
        let rm = self.of(Builtin::Rm, false);
        (0..rm.len()).filter(|at| rm[*at].simulated.critical.missed >= 2).collect()
    }

    fn claims_of_causes(&self, findings: &mut Findings) {
        let [first, second, third, ..] = CLAIMS;
        if let Some(why) = &self.unrecorded {
            undecided(findings, &[first, second, third], &Failure::cannot(why));
            return;
        }
        let (rm, lost) = (self.of(Builtin::Rm, false), self.losing());
        let list = |all: &[usize]| match all {
            [] => "none".to_owned(),
            all => all.iter().map(|at| self.regions[*at].to_string()).collect::<Vec<_>>().join(", "),
        };
        let by_load = |at: &usize| rm[*at].causes.is_some_and(|causes| causes.by_load > 0);
        let clearly: Vec<usize> = lost.iter().copied().filter(by_load).collect();
        let kept = lost.iter().filter(|at| rm[**at].live.critical.missed == 0).count();
        findings.claim(
            first.0,
            first.1,
            format!("simulated in regions {}, live by load in {}", list(&lost), list(&clearly)),
            // If other causes explain all misses, the claim stays undecided.
            self.decide(verdict(!lost.is_empty() && clearly.len() == lost.len(), kept > 0)),
        );
        self.claim_guarded(second, Variant::is_aware, findings);
        self.claim_guarded(third, |variant| variant.strategy.is_none(), findings);
    }

    /// Claims that load makes no critical job late under these variants.
    fn claim_guarded(
        &self,
        (name, claim): (&'static str, &'static str),
        is_meant: impl Fn(Variant) -> bool,
        findings: &mut Findings,
    ) {
        let windows = || {
            let meant = self.variants.iter().zip(&self.all).filter(|(variant, _)| is_meant(**variant));
            meant.flat_map(|(_, regions)| regions)
        };
        let due: u64 = windows().map(|both| decided(&both.live.critical)).sum();
        let causes: Causes = windows().filter_map(|both| both.causes).sum();
        let told = windows().all(|both| both.causes.is_some());
        findings.claim(
            name,
            claim,
            format!(
                "of {due} critical deadlines {} missed, {} by load, {} without a recorded cause",
                causes.late,
                causes.by_load,
                causes.unknown()
            ),
            self.decide((told && due > 0).then_some(causes.by_load == 0 && causes.unknown() == 0)),
        );
    }

    fn claim_cancellation(&self, findings: &mut Findings) {
        let lost = self.losing();
        let sum = |cancel| {
            let of = self.of(Builtin::Muf, cancel);
            lost.iter().filter_map(|at| of.get(*at)).map(|both| both.live.noncritical.missed).sum::<u64>()
        };
        let (with, without) = (sum(true), sum(false));
        let cancelling = || lost.iter().filter_map(|at| self.of(Builtin::Muf, true).get(*at));
        let pauses: u64 = cancelling().map(|both| both.paused.as_ns()).sum();
        let span = self.window.as_ns() * cancelling().count() as u64;
        findings.claim(
            CLAIMS[3].0,
            CLAIMS[3].1,
            format!("{with} missed instead of {without}"),
            self.decide(verdict(without > 0 && with * 2 <= without, without > 0 && pauses * PAUSES_DIVISOR < span)),
        );
    }

    fn claim_replication(&self, findings: &mut Findings) {
        let lost = self.losing();
        let late = |regions: &[WindowResult]| {
            let lost = lost.iter().filter_map(|at| regions.get(*at));
            lost.map(|both| both.replicated).sum::<Replicated>().critical_late()
        };
        let hybrids = self.variants.iter().zip(&self.all).filter(|(variant, _)| variant.is_aware());
        let worst = hybrids.map(|(_, regions)| late(regions)).fold(0.0, f64::max);
        let rm = late(self.of(Builtin::Rm, false));
        findings.claim(
            CLAIMS[7].0,
            CLAIMS[7].1,
            format!(
                "{:.1} % of the critical ones were late under rm, at most {:.1} % under the others",
                100.0 * rm,
                100.0 * worst
            ),
            verdict(worst < rm, rm > 0.0).filter(|_| self.is_long_enough()),
        );
    }

    fn notes(&self, findings: &mut Findings) {
        let all = || self.all.iter().flatten();
        let window = Span::from_ns(self.window.as_ns() * SHRINK);
        findings.differences.push(format!(
            "On this kernel all times are divided by {SHRINK}, and a region is a window of {window} of the \
             application (here {}) instead of minutes. It begins idle. The kernel stops SCHED_FIFO threads that \
             fill a CPU for longer. After each window the CPU is left to others, and the records of the \
             dispatcher and the kernel are read; the paper extracts its metrics in windows of reduced \
             contention between frames. The live windows have loads that the simulation lacks: the dispatcher, \
             the recorder's probes, and a watch. The watch is more important than all others, wakes up each ms, \
             and reports when it was late by more than 0.5 ms. An application that just fits no longer fits \
             with these.",
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
            let share = |(variant, regions): (&Variant, &Vec<WindowResult>)| {
                let sum = |pick: fn(&WindowResult) -> &Outcome| {
                    regions.iter().map(|both| class(pick(both)).made).sum::<u64>()
                };
                let (live, simulated) = (sum(|both| &both.live), sum(|both| &both.simulated));
                format!("{} {:.1} %", variant.name(), 100.0 * live as f64 / simulated.max(1) as f64)
            };
            self.variants.iter().zip(&self.all).map(share).collect::<Vec<_>>().join("; ")
        };
        findings.notes.push(format!(
            "Deadlines made live, as a share of those made in the simulation of the same windows: critical {}; \
             noncritical {}. The simulation has no costs of switches, interrupts or a hypervisor.",
            shares(|outcome| &outcome.critical),
            shares(|outcome| &outcome.noncritical)
        ));
        if let Some(why) = &self.unrecorded {
            findings
                .notes
                .push(format!("The kernel could not be recorded, so the causes of late jobs are unknown: {why}."));
        }
    }
}

/// The number of deadlines that were made, missed or cancelled.
fn decided(class: &Class) -> u64 {
    class.made + class.missed + class.cancelled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(of: impl Fn(usize, Variant) -> WindowResult) -> Live {
        let variants = variants();
        let regions = vec![5, 10];
        let all = variants.iter().map(|variant| regions.iter().map(|region| of(*region, *variant)).collect()).collect();
        Live { regions, variants, all, window: Span::from_ms(100), short: false, unrecorded: None }
    }

    fn holding(live: &Live) -> Vec<Option<bool>> {
        let mut findings = Findings::default();
        live.claims(&mut findings);
        live.table_of_causes(&mut findings);
        let names: Vec<&str> = findings.claims.iter().map(|claim| claim.name).collect();
        assert_eq!(names, claims_of(live.short).iter().map(|(name, _)| *name).collect::<Vec<_>>());
        assert_eq!(findings.tables.len(), usize::from(live.unrecorded.is_none()));
        findings.claims.iter().map(|claim| claim.holds).collect()
    }

    fn verdicts(of: impl Fn(usize, Variant) -> WindowResult) -> Vec<Option<bool>> {
        holding(&windows(of))
    }

    /// In region 10, rm loses 4 critical deadlines by load. muf loses noncritical ones, fewer with
    /// cancellation.
    fn usual(region: usize, variant: Variant) -> WindowResult {
        let rm = u64::from(region == 10 && variant.strategy == Some(Builtin::Rm));
        let critical = Class { made: 100 - 4 * rm, missed: 4 * rm, ..Class::default() };
        let noncritical = Class { made: 50, missed: if variant.cancel { 4 } else { 40 }, ..Class::default() };
        let outcome = Outcome { critical, noncritical, ..Outcome::default() };
        let replicated = Replicated {
            written: [100, 50],
            late: [4 * rm, 0],
            flushed: 12,
            came: 12,
            readings: 9,
            released: 9,
            processed: 9,
            ..Replicated::default()
        };
        let causes = Some(Causes { late: 4 * rm, by_load: 4 * rm, ..Causes::default() });
        WindowResult { simulated: outcome, live: outcome, causes, paused: Span::ZERO, lost: 0, replicated, late: false }
    }

    /// Late jobs of the guarded variants: by load, by a pause, and without a known cause.
    fn late(by_load: u64, beyond: u64, unknown: u64) -> Option<Causes> {
        let mut causes = Causes { late: by_load + beyond + unknown, by_load, ..Causes::default() };
        for (count, cause) in causes.mainly.iter_mut().zip(Cause::ALL) {
            *count = match cause {
                Cause::BeyondWcet => beyond,
                Cause::Unknown => unknown,
                _ => 0,
            };
        }
        Some(causes)
    }

    #[test]
    fn critical_jobs_may_be_late_for_a_recorded_cause_that_is_not_the_load() {
        assert_eq!(verdicts(usual), [Some(true); 8]);
        let with = |is_meant: fn(Variant) -> bool, causes: Option<Causes>| {
            verdicts(|region, variant| {
                let both = usual(region, variant);
                WindowResult { causes: if is_meant(variant) { causes } else { both.causes }, ..both }
            })
        };
        let adaptive: fn(Variant) -> bool = |variant| variant.strategy.is_none();
        assert_eq!(with(Variant::is_aware, late(0, 3, 0)), [Some(true); 8]);
        assert_eq!(with(Variant::is_aware, late(1, 3, 0))[..3], [Some(true), Some(false), Some(true)]);
        assert_eq!(with(Variant::is_aware, late(0, 3, 1))[..3], [Some(true), Some(false), Some(true)]);
        assert_eq!(with(adaptive, late(1, 0, 0))[..3], [Some(true), Some(true), Some(false)]);
        assert_eq!(with(adaptive, None)[2], None, "not told");
        // If all misses of rm have other causes, the claim is undecided. If rm missed nothing, it
        // is refuted.
        let rm: fn(Variant) -> bool = |variant| variant.strategy == Some(Builtin::Rm);
        assert_eq!(with(rm, late(0, 4, 0))[0], None);
        let kept = |region, variant| {
            let mut both = usual(region, variant);
            (both.live.critical.missed, both.causes) = (0, late(0, 0, 0));
            both
        };
        assert_eq!(verdicts(kept)[0], Some(false));
        // The kernel was not recorded.
        let blind = Live { unrecorded: Some("no tracefs".to_owned()), ..windows(usual) };
        assert_eq!(holding(&blind), [[None; 3].as_slice(), &[Some(true); 5]].concat());
    }

    #[test]
    fn claims_are_undecided_after_losses_or_rejections() {
        let lost = |region, variant| WindowResult { lost: u64::from(region == 5), ..usual(region, variant) };
        assert_eq!(verdicts(lost), [None, None, None, None, Some(true), Some(false), Some(true), Some(true)]);
        let rejected = |region, variant| {
            let mut both = usual(region, variant);
            both.live.noncritical.rejected = 1;
            both
        };
        assert_eq!(verdicts(rejected), [None, None, None, None, Some(true), Some(false), Some(true), Some(true)]);
    }

    #[test]
    fn windows_that_are_too_short_decide_nothing_but_a_loss() {
        let short =
            |of: &dyn Fn(usize, Variant) -> WindowResult| holding(&Live { window: Span::from_ms(99), ..windows(of) });
        assert_eq!([short(&usual), short(&|_, _| WindowResult::default())], [[None; 8]; 2]);
        let lost = short(&|region, variant| WindowResult { lost: 1, ..usual(region, variant) });
        assert_eq!(lost, [[None; 5].as_slice(), &[Some(false), None, None]].concat());
    }

    #[test]
    fn pauses_neither_show_nor_refute_what_cancellation_does() {
        let worse = |region, variant: Variant| {
            let mut both = usual(region, variant);
            both.live.noncritical.missed = 40;
            both
        };
        assert_eq!(verdicts(worse)[3], Some(false));
        assert_eq!(
            verdicts(|region, variant| WindowResult { paused: Span::from_ms(60), ..worse(region, variant) })[3],
            None
        );
    }

    #[test]
    fn each_reading_releases_one_job_and_some_are_processed_or_the_claim_fails() {
        let with = |readings, released, processed| {
            let of = |late| {
                verdicts(|region, variant| {
                    let both = usual(region, variant);
                    let replicated = Replicated { readings, released, processed, ..both.replicated };
                    WindowResult { replicated, late, ..both }
                })[6]
            };
            // Nobody takes an event that comes before events can leave.
            assert_eq!(of(true), of(false).filter(|holds| *holds));
            of(false)
        };
        assert_eq!(
            [with(3, 3, 2), with(3, 2, 2), with(2, 2, 3), with(3, 3, 0), with(0, 0, 0)],
            [true, false, false, false, false].map(Some)
        );
    }

    #[test]
    fn values_come_whole_and_in_order_or_the_claim_fails() {
        let replicated = |late: [u64; 2], came| {
            verdicts(|region, variant| {
                let mut both = usual(region, variant);
                both.replicated.late[0] = if variant.is_aware() { late[1] } else { late[0] };
                both.replicated.came = came;
                both
            })[4..]
                .to_vec()
        };
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(replicated([4, 3], 12), [yes, yes, yes, yes]);
        assert_eq!(replicated([4, 4], 12), [yes, yes, yes, no]);
        assert_eq!(replicated([0, 0], 12), [yes, yes, yes, None]);
        assert_eq!(replicated([4, 3], 13), [no, yes, yes, yes], "more came than was flushed");
        let idle = |region, variant| {
            let both = usual(region, variant);
            WindowResult { replicated: Replicated { flushed: 0, came: 0, ..both.replicated }, ..both }
        };
        assert_eq!(verdicts(idle)[4], no, "nothing was flushed");
        assert_eq!(holding(&Live { short: true, ..windows(usual) }), [yes; 7]);
    }
}
