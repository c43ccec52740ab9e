//! [KOKYU] Table 2, Figs. 6 to 12: strategies of one dispatcher under loads that grow, region by region: in simulation at length, and in short windows on this machine's kernel.
//!
//! An avionics-like application of operations at 40, 20, 10, 5 and 1 Hz, critical and noncritical, whose releases are staggered. Twelve operating regions add what Table 2 says: critical
//! operations at 10, 5 and 1 Hz whose execution times vary, and a noncritical chain of route legs at 20 Hz that grows from region to region. The paper gives neither the application's execution times
//! nor a leg's: they are chosen so that the total load exceeds the CPU where the paper's did, from region 7 on. Arrivals and execution times are the same for each strategy.

use takt_log::{CancelCause, Event, JobKey, Sink};
use takt_model::{Builtin, Criticality, NodeId, Span, StrategyRef, System, Time};
use takt_report::{Figure, Form, Series};
use takt_run::dispatch::{Limits, Operation, Operations, Plan};
use takt_sim::{SimOptions, simulate};

use super::context::Context;
use super::findings::{Comparison, Drawn, Findings, MEASURED, Row};
use super::{Experiment, KOKYU};
use crate::adaptive::law;
use crate::failure::Failure;

mod delay;
mod live;
mod network;
mod overhead;
mod pauses;
mod replication;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kokyu",
    paper: &KOKYU,
    shows: "Table 2, Figs. 6 to 12",
    what: "rm, muf and rms+mlf with and without cancellation, edf, mlf and an adaptive controller beside them, in twelve regions of growing load, simulated and on this kernel: which deadlines are met, which strategy is best where, and what network latency changes",
    needs: "nothing for what is simulated; for the rest root (SCHED_FIFO, network namespaces) and two CPUs, without which its claims are not decided",
    takes: (Span::from_s(170), Span::from_s(15)),
    run: reproduce,
};

/// Table 2: execution times of the additional critical operations in ms, least and most; legs of the noncritical chain.
const REGIONS: [(u64, u64, u32); 12] = [
    (0, 0, 1),
    (0, 5, 1),
    (5, 10, 2),
    (0, 10, 3),
    (0, 0, 4),
    (0, 5, 5),
    (5, 10, 6),
    (0, 10, 7),
    (0, 0, 8),
    (0, 5, 9),
    (5, 10, 10),
    (0, 10, 11),
];

/// What a route leg takes.
const LEG: Span = Span::from_us(4_600);
/// 20 Hz.
const FRAME: Span = Span::from_ms(50);

/// Sends, when a frame of 25 ms ends and the next one begins, the values that are due by then.
const FLUSH: &str = "replication";

/// The fixed operations: name, rate in Hz, offset in ms, execution time in us, critical.
const FIXED: [(&str, u64, u64, u64, bool); 10] = [
    (FLUSH, 40, 0, 400, true),
    ("sensors", 40, 0, 600, true),
    ("navigation", 20, 1, 2_000, true),
    ("steering", 20, 2, 1_000, false),
    ("display", 20, 3, 2_000, false),
    ("weapons", 10, 5, 4_000, true),
    ("datalink", 5, 12, 6_000, true),
    ("map", 5, 14, 10_000, false),
    ("health", 1, 26, 10_000, true),
    ("archive", 1, 30, 20_000, false),
];

/// Rate in Hz and offset in ms of the additional critical operations.
const VARIABLE: [(u64, u64); 3] = [(10, 6), (5, 13), (1, 27)];

/// A strategy, or a controller that moves between rm and rms+mlf, with or without cancellation of noncritical jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Variant {
    /// `None`: the controller.
    strategy: Option<Builtin>,
    cancel: bool,
}

impl Variant {
    fn name(self) -> String {
        format!("{}{}", self.strategy.map_or("adaptive", Builtin::name), if self.cancel { ", cancel" } else { "" })
    }

    /// Whether it keeps critical work apart from the rest.
    fn is_aware(self) -> bool {
        matches!(self.strategy, Some(Builtin::Muf | Builtin::RmsMlf))
    }
}

/// The paper's six first.
const STRATEGIES: [Builtin; 5] = [Builtin::Rm, Builtin::Muf, Builtin::RmsMlf, Builtin::Edf, Builtin::Mlf];

/// So many of [`variants`] are the paper's.
const PAPERS: usize = 6;

fn variants() -> Vec<Variant> {
    let strategies = STRATEGIES.iter().copied().map(Some).chain([None]);
    strategies.flat_map(|strategy| [false, true].map(|cancel| Variant { strategy, cancel })).collect()
}

/// What became of the deadlines of a class of operations.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Class {
    enqueued: u64,
    made: u64,
    missed: u64,
    cancelled: u64,
}

/// A region under a strategy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Outcome {
    critical: Class,
    noncritical: Class,
}

/// Counts, from the events of a simulation.
struct Counter<'a> {
    system: &'a System,
    outcome: Outcome,
    missed: Vec<JobKey>,
}

impl Counter<'_> {
    fn class(&mut self, job: JobKey) -> &mut Class {
        match self.system.tasks.get(job.task.index()).map(|task| task.criticality) {
            Some(Criticality::Low) => &mut self.outcome.noncritical,
            _ => &mut self.outcome.critical,
        }
    }
}

impl Sink for Counter<'_> {
    fn event(&mut self, _: u32, _: Time, event: &Event) {
        match *event {
            Event::Release { job, .. } => self.class(job).enqueued += 1,
            Event::Miss { job } => {
                self.class(job).missed += 1;
                self.missed.push(job);
            }
            Event::Complete { job, .. } => match self.missed.iter().position(|missed| *missed == job) {
                Some(at) => drop(self.missed.swap_remove(at)),
                None => self.class(job).made += 1,
            },
            // A shed leg was never requested: its predecessor requests it.
            Event::Cancel { job, cause: CancelCause::Shed } => {
                // Its release may have been lost.
                let class = self.class(job);
                class.enqueued = class.enqueued.saturating_sub(1);
            }
            Event::Cancel { job, .. } => {
                let at = self.missed.iter().position(|missed| *missed == job);
                if let Some(at) = at {
                    self.missed.swap_remove(at);
                } else {
                    self.class(job).cancelled += 1;
                }
            }
            _ => {}
        }
    }
}

/// The application in a region.
fn operations(region: usize, cancel: bool) -> Operations {
    let (least, most, legs) = REGIONS[region];
    let ms = Span::from_ms;
    let class = |operation: Operation, critical: bool| if critical { operation } else { operation.noncritical() };
    let mut all = Operations::new("flight").cancel(cancel);
    for (name, hz, offset, wcet, critical) in FIXED {
        let operation = Operation::periodic(name, ms(1000 / hz)).offset(ms(offset)).wcet(Span::from_us(wcet));
        all.add(class(operation, critical));
    }
    for (hz, offset) in VARIABLE.iter().filter(|_| most > least) {
        let operation = Operation::periodic(&format!("surrogate-{hz}"), ms(1000 / hz)).offset(ms(*offset));
        all.add(operation.wcet(ms(most)));
    }
    for leg in 1..=legs {
        // What all legs produce is flushed at the frame's end; a leg is released by the one before.
        let before = LEG.as_ns() * u64::from(leg - 1);
        let deadline = Span::from_ns(FRAME.as_ns().saturating_sub(before)).max(LEG);
        let operation = match leg {
            1 => Operation::periodic("leg-1", FRAME).offset(ms(4)),
            _ => Operation::after(&format!("leg-{leg}"), [format!("leg-{}", leg - 1).as_str()]),
        };
        all.add(operation.wcet(LEG).deadline(deadline).noncritical());
    }
    all
}

/// As the dispatcher runs it: to completion within a level. The controller has rm, and rms+mlf as a mode.
fn plan(region: usize, variant: Variant) -> Result<Plan, Failure> {
    // A simulation lets any number wait.
    Ok(plan_of(region, variant, |_| ())?.with_backlog(1 << 14))
}

/// The same of an application that was changed.
fn plan_of(region: usize, variant: Variant, change: impl FnOnce(&mut System)) -> Result<Plan, Failure> {
    let wrong = |what: &dyn std::fmt::Display| Failure::trouble(format_args!("region {region}: {what}"));
    let operations = operations(region, variant.cancel);
    let strategy = variant.strategy.unwrap_or(Builtin::Rm);
    let mut system = operations.to_system(&strategy.strategy()).map_err(|error| wrong(&error))?;
    change(&mut system);
    let limits = Limits::default();
    let plan = match variant.strategy {
        Some(_) => Plan::compute_regardless(&system, NodeId(0), &limits),
        None => Plan::compute_adaptive(&system, NodeId(0), StrategyRef::Builtin(Builtin::RmsMlf), &limits),
    };
    let (mut plan, _) = plan.map_err(|error| wrong(&error))?;
    let (least, most, _) = REGIONS[region];
    for task in plan.system.tasks.iter_mut().filter(|task| task.name.starts_with("surrogate")) {
        let min = Span::from_ns((task.wcet.as_ns() * least / most.max(1)).max(1));
        task.exec = takt_model::Exec::Uniform { min, max: task.wcet };
    }
    Ok(plan)
}

fn outcome(region: usize, variant: Variant, duration: Span, seed: u64) -> Result<Outcome, Failure> {
    outcome_of(&plan(region, variant)?, region, variant, duration, seed)
}

fn outcome_of(plan: &Plan, region: usize, variant: Variant, duration: Span, seed: u64) -> Result<Outcome, Failure> {
    let wrong = |what: &dyn std::fmt::Display| Failure::trouble(format_args!("region {region}: {what}"));
    let mut counter = Counter { system: &plan.system, outcome: Outcome::default(), missed: Vec::new() };
    // One seed for all strategies: the draws of a job depend on the seed, its operation and its number.
    let seed = seed + region as u64;
    if variant.strategy.is_none() {
        plan.rehearse_adaptive(&law(plan), duration, seed, &mut counter).map_err(|error| wrong(&error))?;
    } else {
        let options = SimOptions { duration, seed, node: None };
        simulate(&plan.system, &options, &mut counter).map_err(|error| wrong(&error))?;
    }
    Ok(counter.outcome)
}

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let duration = context.duration(Span::from_s(150), Span::from_s(10));
    let variants = variants();
    let mut outcomes: Vec<Vec<Outcome>> = Vec::new();
    for variant in &variants {
        let mut regions = Vec::new();
        for region in 0..REGIONS.len() {
            if context.stopped() {
                return Ok(Findings::default());
            }
            regions.push(outcome(region, *variant, duration, context.seed)?);
        }
        outcomes.push(regions);
    }
    let all = Outcomes { variants, outcomes, seconds: duration.as_ns() as f64 / 1e9 };
    let mut findings = Findings::default();
    all.tables(&mut findings);
    all.figures(&mut findings);
    all.claims(&mut findings);
    overhead::add(context, duration, &mut findings)?;
    live::add(context, &mut findings)?;
    network::add(context, duration, &mut findings)?;
    differences(&mut findings, duration);
    Ok(findings)
}

/// A table: what, which figure of the paper, unit, value of a region.
type Told<'a> = (&'a str, &'static str, &'static str, &'a dyn Fn(&Outcome) -> f64);

struct Outcomes {
    variants: Vec<Variant>,
    /// By variant, by region.
    outcomes: Vec<Vec<Outcome>>,
    /// How long a region lasts.
    seconds: f64,
}

impl Outcomes {
    fn of(&self, strategy: Builtin, cancel: bool) -> &[Outcome] {
        self.under(Variant { strategy: Some(strategy), cancel })
    }

    fn under(&self, wanted: Variant) -> &[Outcome] {
        let at = self.variants.iter().position(|variant| *variant == wanted);
        at.and_then(|at| self.outcomes.get(at)).map_or(&[], Vec::as_slice)
    }

    /// Whether rm meets every deadline in a region, critical or not: the total load is feasible.
    fn is_feasible(&self, region: usize) -> bool {
        let missed = |outcome: &Outcome| outcome.critical.missed + outcome.noncritical.missed;
        self.of(Builtin::Rm, false).get(region).is_some_and(|outcome| missed(outcome) == 0)
    }

    /// The best of the paper's variants in a region: no critical deadline missed if any can, then the most noncritical ones made.
    fn best(&self, region: usize) -> Option<(usize, Outcome)> {
        self.best_of(region, |at| at < PAPERS)
    }

    /// The same of all single strategies, with cancellation and without.
    fn best_single(&self, region: usize) -> Option<(usize, Outcome)> {
        self.best_of(region, |at| self.variants.get(at).is_some_and(|variant| variant.strategy.is_some()))
    }

    fn best_of(&self, region: usize, is_meant: impl Fn(usize) -> bool) -> Option<(usize, Outcome)> {
        let meant = self.outcomes.iter().enumerate().filter(|(at, _)| is_meant(*at));
        let here = meant.filter_map(|(at, regions)| Some((at, *regions.get(region)?)));
        here.min_by_key(|(at, outcome)| (outcome.critical.missed, std::cmp::Reverse(outcome.noncritical.made), *at))
    }

    fn table(
        &self,
        title: &str,
        cite: &'static str,
        unit: &'static str,
        value: impl Fn(&Outcome) -> f64,
    ) -> Comparison {
        let rows = (0..REGIONS.len()).map(|region| {
            let values = self.outcomes.iter().map(|regions| regions.get(region).map(&value)).collect();
            Row { name: region.to_string(), values: vec![values] }
        });
        Comparison {
            title: title.to_owned(),
            cite,
            unit,
            digits: 1,
            row_head: "region",
            columns: self.variants.iter().map(|variant| variant.name()).collect(),
            sources: vec!["simulated"],
            rows: rows.collect(),
        }
    }

    fn tables(&self, findings: &mut Findings) {
        let rate = |count: u64| count as f64 / self.seconds;
        let tables: [Told<'_>; 4] = [
            ("Requests enqueued", "Fig. 6", "requests/s", &|outcome| {
                rate(outcome.critical.enqueued + outcome.noncritical.enqueued)
            }),
            ("Critical deadlines missed", "Figs. 7 to 9", "deadlines/s", &|outcome| rate(outcome.critical.missed)),
            ("Noncritical deadlines made", "Figs. 7 to 9", "deadlines/s", &|outcome| rate(outcome.noncritical.made)),
            ("Noncritical operations cancelled", "Figs. 7 to 9", "operations/s", &|outcome| {
                rate(outcome.noncritical.cancelled)
            }),
        ];
        for (title, cite, unit, value) in tables {
            findings.tables.push(self.table(title, cite, unit, value));
        }
    }

    fn figures(&self, findings: &mut Findings) {
        let colours: Vec<usize> = (0..self.variants.len()).map(|at| at / 2).collect();
        let lines = |value: &dyn Fn(&Outcome) -> f64| -> Vec<Series> {
            let line = |(at, variant): (usize, &Variant)| {
                let regions = self.outcomes.get(at).map_or(&[][..], Vec::as_slice);
                let points = regions.iter().enumerate().map(|(region, outcome)| (region as f64, value(outcome)));
                Series { points: points.collect(), ..series(variant, colours[at]) }
            };
            self.variants.iter().enumerate().map(line).collect()
        };
        let rate = |count: u64| count as f64 / self.seconds;
        let enqueued = lines(&|outcome| rate(outcome.critical.enqueued + outcome.noncritical.enqueued));
        let title = "Requests enqueued";
        let caption = "Requests that a chain made; what is shed was never requested.";
        findings.figures.push(Drawn::of(
            "fig6.svg",
            &figure(title, "requests/s", enqueued),
            format!("Fig. 6: {title}"),
            caption,
        ));
        for (file, cite, strategy, cancel) in [
            ("fig7.svg", "Fig. 7", Builtin::Muf, true),
            ("fig8.svg", "Fig. 8", Builtin::Muf, false),
            ("fig9.svg", "Fig. 9", Builtin::Rm, false),
        ] {
            let regions = self.of(strategy, cancel);
            let line = |name: &str, colour, value: &dyn Fn(&Outcome) -> u64| Series {
                name: name.to_owned(),
                points: regions
                    .iter()
                    .enumerate()
                    .map(|(region, outcome)| (region as f64, rate(value(outcome))))
                    .collect(),
                form: Form::Line,
                colour,
            };
            let series = vec![
                line("noncritical made", 0, &|outcome| outcome.noncritical.made),
                line("critical made", 1, &|outcome| outcome.critical.made),
                line("noncritical missed", 2, &|outcome| outcome.noncritical.missed),
                line("critical missed", 3, &|outcome| outcome.critical.missed),
                line("cancelled", 4, &|outcome| outcome.noncritical.cancelled),
            ];
            let name = Variant { strategy: Some(strategy), cancel }.name();
            let title = format!("Deadlines under {name}");
            let caption = "Made, missed and cancelled, critical and noncritical.";
            findings.figures.push(Drawn::of(
                file,
                &figure(&title, "operations/s", series),
                format!("{cite}: {title}"),
                caption,
            ));
        }
        let made = lines(&|outcome| rate(outcome.noncritical.made));
        let title = "Noncritical deadlines made";
        let caption = "What Fig. 12 ranks by, among the strategies that miss no critical deadline in a region.";
        findings.figures.push(Drawn::of(
            "fig12.svg",
            &figure(title, "deadlines/s", made),
            format!("Fig. 12: {title}"),
            caption,
        ));
    }

    fn claims(&self, findings: &mut Findings) {
        let regions = || 0..REGIONS.len();
        let list = |regions: Vec<usize>| match regions.as_slice() {
            [] => "none".to_owned(),
            regions => regions.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
        };
        let rm = self.of(Builtin::Rm, false);
        let lost: Vec<usize> =
            regions().filter(|region| rm.get(*region).is_some_and(|at| at.critical.missed > 0)).collect();
        findings.claim(
            "rm_while_feasible",
            "rm meets its critical deadlines up to region 6, and loses some in the more heavily loaded regions",
            format!("it loses critical deadlines in regions {}", list(lost.clone())),
            Some(lost.iter().all(|region| *region > 6) && !lost.is_empty()),
        );
        let aware = || self.variants.iter().zip(&self.outcomes).filter(|(variant, _)| variant.is_aware());
        let misses: u64 = aware().flat_map(|(_, regions)| regions).map(|outcome| outcome.critical.missed).sum();
        findings.claim(
            "hybrids_keep_critical",
            "muf and rms+mlf, with cancellation and without, keep the critical deadlines in all regions (in the paper but for one deadline in region 9)",
            format!("{misses} critical deadlines missed, of all regions and all four"),
            Some(misses == 0),
        );
        let feasible: Vec<usize> = regions().filter(|region| self.is_feasible(*region)).collect();
        let beaten = |region: &usize| {
            let most = aware().filter_map(|(_, regions)| Some(regions.get(*region)?.noncritical.made)).max();
            rm.get(*region).zip(most).is_none_or(|(rm, most)| rm.noncritical.made < most)
        };
        let worse: Vec<usize> = feasible.iter().copied().filter(|region| beaten(region)).collect();
        findings.claim(
            "rm_is_best_while_feasible",
            "while the total load is feasible no strategy makes more noncritical deadlines than rm",
            format!(
                "rm meets all deadlines in regions {}; others make more of them in {}",
                list(feasible.clone()),
                list(worse.clone())
            ),
            Some(!feasible.is_empty() && worse.is_empty()),
        );
        let (plain, cancelling) = (self.of(Builtin::Muf, false), self.of(Builtin::Muf, true));
        let missed = |regions: &[Outcome]| regions.iter().map(|outcome| outcome.noncritical.missed).collect::<Vec<_>>();
        let (plain, cancelling) = (missed(plain), missed(cancelling));
        let rates =
            plain.last().zip(cancelling.last()).map(|(a, b)| (*a as f64 / self.seconds, *b as f64 / self.seconds));
        findings.claim(
            "cancellation_reduces_misses",
            "in overload, cancellation reduces the deadlines that muf misses",
            rates.map_or_else(String::new, |(plain, cancelling)| {
                format!("in region 11 {cancelling:.1} noncritical ones a second instead of {plain:.1}")
            }),
            Some(lost.iter().all(|region| cancelling.get(*region) < plain.get(*region)) && !lost.is_empty()),
        );
        let best: Vec<String> = regions()
            .filter_map(|region| self.best(region))
            .filter_map(|(at, _)| Some(self.variants.get(at)?.name()))
            .collect();
        let overloaded = regions().filter(|region| lost.contains(region));
        let hybrid = |region: usize| {
            self.best(region).and_then(|(at, _)| self.variants.get(at)).is_some_and(|best| best.is_aware())
        };
        findings.claim(
            "hybrids_are_best_in_overload",
            "where rm loses critical deadlines, a strategy that knows criticality is best (Fig. 12)",
            format!("best by region: {}", best.join("; ")),
            Some(!lost.is_empty() && overloaded.into_iter().all(hybrid)),
        );
        self.claims_of_the_controller(findings);
    }

    /// What a controller has to show: [KOKYU V] leaves it open.
    fn claims_of_the_controller(&self, findings: &mut Findings) {
        let adaptive = self.under(Variant { strategy: None, cancel: true });
        let missed: u64 = adaptive.iter().map(|outcome| outcome.critical.missed).sum();
        let regions = || 0..REGIONS.len();
        let papers: Vec<(usize, Outcome)> = regions().filter_map(|region| self.best(region)).collect();
        let singles: Vec<(usize, Outcome)> = regions().filter_map(|region| self.best_single(region)).collect();
        let kept =
            |(adaptive, (_, best)): (&Outcome, &(usize, Outcome))| adaptive.critical.missed <= best.critical.missed;
        findings.claim(
            "adaptive_keeps_critical",
            "not in the paper: the controller, with cancellation, keeps every critical deadline that any single strategy keeps",
            format!("{missed} critical deadlines missed, of all regions"),
            Some(adaptive.len() == singles.len() && adaptive.iter().zip(&singles).all(kept)),
        );
        let shares = |best: &[(usize, Outcome)]| -> Vec<(f64, String)> {
            let share = |(adaptive, (at, best)): (&Outcome, &(usize, Outcome))| {
                let share = 100.0 * adaptive.noncritical.made as f64 / best.noncritical.made.max(1) as f64;
                (share, self.variants.get(*at).map_or_else(String::new, |variant| variant.name()))
            };
            adaptive.iter().zip(best).map(share).collect()
        };
        let told = |shares: &[(f64, String)]| {
            let one = |(share, name): &(f64, String)| format!("{share:.2} % of {name}");
            shares.iter().map(one).collect::<Vec<_>>().join("; ") + " by region"
        };
        let close =
            |shares: &[(f64, String)]| shares.len() == REGIONS.len() && shares.iter().all(|(share, _)| *share >= 98.0);
        let of_papers = shares(&papers);
        findings.claim(
            "adaptive_is_close_to_the_papers_best",
            "not in the paper: the controller makes 98 % or more of the noncritical deadlines of the best of the paper's strategies in each region",
            told(&of_papers),
            Some(close(&of_papers)),
        );
        // In seconds, a strategy that knows no criticality may lose no critical deadline by luck.
        let of_all = shares(&singles);
        findings.claim(
            "adaptive_is_close_to_the_best",
            "not in the paper: the same of all single strategies, edf and mlf among them, which know no criticality and keep it by luck where the overload is small (decided of regions of 100 s or more)",
            told(&of_all),
            (self.seconds >= 100.0).then(|| close(&of_all)),
        );
    }
}

/// A chart over the regions.
fn figure(title: &str, y: &str, series: Vec<Series>) -> Figure {
    Figure {
        title: title.to_owned(),
        x: "operating region".to_owned(),
        y: y.to_owned(),
        series,
        rules: Vec::new(),
        y_max: None,
        x_from_zero: true,
    }
}

/// A variant's line, without points.
fn series(variant: &Variant, colour: usize) -> Series {
    let form = if variant.cancel { Form::Dashed } else { Form::Line };
    Series { name: variant.name(), points: Vec::new(), form, colour }
}

fn differences(findings: &mut Findings, duration: Span) {
    findings.differences.push(
        "The paper gives neither the application's operations nor a leg's execution time. Here there are ten fixed operations, the replication service's flush among them, 16 % of the CPU critical and 13 % not, and a leg takes 4.6 ms (9.2 % of the CPU), so that the load exceeds the CPU in the regions where the paper's rm lost deadlines. Its counts are of unstated intervals; here they are rates."
            .to_owned(),
    );
    findings.differences.push(format!(
        "In simulation {duration} a region, without costs of interrupts or a network, and, but for the tables that say so, of queues: a strategy differs by its order alone. Each region begins idle."
    ));
    findings.differences.push(
        "A leg's deadline counts from its own release: the frame's end less what the legs before it take at least. A leg that was released late has a later deadline than the frame's end."
            .to_owned(),
    );
    findings.differences.push(
        "In the paper muf without cancellation enqueues requests in proportion to the legs, up to region 11, and with cancellation fewer; and it makes more deadlines without. Here not: beyond region 7 nobody has time for all legs. Without cancellation late legs pile up and displace those that could be in time, so that the later legs of most chains are never requested."
            .to_owned(),
    );
    findings.differences.push(
        "edf and mlf, which the paper does not run, know no criticality: with cancellation they make the most noncritical deadlines while the overload is small, and lose critical ones where it is not. Fig. 12 ranks the paper's six."
            .to_owned(),
    );
    findings.differences.push(
        "Latencies of queues (Figs. 10 and 11) are those of takt's queues in a loop on this machine, all operations of a region waiting in turn: neither threads nor jitter are in them, which the paper's include. Charged to the simulation are the paper's, which are more than ten times as long."
            .to_owned(),
    );
}
