//! [CSA] Figs. 4 to 7 on a kernel, beside the simulations of the same workloads. On this kernel budget managers run the
//! domains, faster than in the paper. `lab.rs` has the kernels of the lab.

use takt_model::{Auto, Costs, Exec, ServerRule, Span, System};
use takt_report::{Figure, Form, Series};
use takt_run::{RunError, RunOptions, RunSummary, ServerBackEnd, Trace, prepare};

use super::claims::OnKernel;
use super::kernel::{CsaRun, Kernel, LOAD, Measured, Setting, claim_names};
use super::measure::{Responsiveness, miss_ratio, run_system};
use super::overheads::{Overheads, Watch, charged};
use super::{
    ARINC, FACTORS, FIG6_PAPER, KINDS, LATE, RANGES, RULES, SWITCH, Scope, TASKS, WORKLOADS, distribution, figure,
    late_percent, medians, miss_ratios, partition_domains, percent, workload,
};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Drawn, Findings, LIVE, PAPER, Row, SIMULATED};

pub(super) const THIS_KERNEL: Kernel = Kernel {
    name: "this kernel",
    source: LIVE,
    // A quantum of 1 ms becomes 500 us.
    speed: 2,
    has_quantum: true,
    duration: (Span::from_s(10), Span::from_ms(1_500)),
    claims: claim_names!("live"),
    run: run_on_this_kernel,
    difference: "The paper ran a patched Xen on one core. Here budget managers under SCHED_FIFO keep the budgets of \
                 threads on one CPU of a stock kernel.",
};

const CHARGED: &str = "simulated with measured costs";

#[derive(Default)]
struct Evidence {
    /// The p50 of a decision's cost, the p99 of its lateness, and the share of the CPU, each of the
    /// worst run.
    cost: Span,
    late: Span,
    share_ppm: u64,
    /// The run in which the least was left for jobs.
    costs: Option<Costs>,
}

/// How long each measurement lasts on the kernel, and how long that is in the paper's time.
fn durations(context: &Context, kernel: &Kernel) -> (Span, Span) {
    let here = context.duration(kernel.duration.0, kernel.duration.1);
    (here, here.checked_mul(kernel.speed).unwrap_or(Span::MAX))
}

/// Figs. 4 and 5.
pub(super) fn periods(context: &Context, kernel: &Kernel, scope: Scope) -> Result<Findings, Failure> {
    let (here, paper_time) = durations(context, kernel);
    let mut settings = Vec::new();
    for (i, range) in RANGES.into_iter().enumerate() {
        let (low, high) = range;
        settings.push(Setting {
            name: format!("{low} to {high} ms"),
            file: format!("{}-periods-{low}-{high}.svg", kernel.source),
            domains: workload(context, i as u64, 0, 0.9, range)?,
            etf: 100,
            paper: scope.paper(i),
        });
    }
    let (cite, whose) = scope.words();
    let mut findings = Findings::default();
    let measured = measure(context, kernel, &settings, (here, paper_time), |found| scope.of(found), &mut findings)?;
    findings.tables.push(table(kernel, cite, "task periods", &settings, &measured));
    for (setting, measured) in settings.iter().zip(&measured) {
        findings.figures.push(picture(kernel, setting, measured, whose, here));
    }
    let figure = OnKernel { kernel, settings: &settings, measured: &measured, paper_time };
    figure.claim_order(&mut findings, whose);
    Ok(findings)
}

/// Fig. 6.
pub(super) fn factors(context: &Context, kernel: &Kernel) -> Result<Findings, Failure> {
    let (here, paper_time) = durations(context, kernel);
    let mut settings = Vec::new();
    for (k, etf) in FACTORS.into_iter().enumerate() {
        settings.push(Setting {
            name: format!("U_W {LOAD:.1}, ETF {etf} %"),
            file: format!("{}-load-90-etf-{etf}.svg", kernel.source),
            // The third of the loads that are simulated.
            domains: workload(context, 16 + 2, 0, LOAD, RANGES[0])?,
            etf,
            paper: FIG6_PAPER[0][k].map(Some),
        });
    }
    let mut findings = Findings::default();
    let last = |found: &Responsiveness| found.last().to_vec();
    let measured = measure(context, kernel, &settings, (here, paper_time), last, &mut findings)?;
    findings.tables.push(table(kernel, "Fig. 6", "setting", &settings, &measured));
    let whose = "jobs of the least important domain";
    for (setting, measured) in settings.iter().zip(&measured) {
        findings.figures.push(picture(kernel, setting, measured, whose, here));
    }
    let figure = OnKernel { kernel, settings: &settings, measured: &measured, paper_time };
    figure.claim_order(&mut findings, whose);
    figure.claim_gains(&mut findings);
    findings.differ([
        "U_W = 0.7 and 0.8 are left out to save time, and 1.0 because a kernel gives real-time threads 95 % of a CPU.",
    ]);
    Ok(findings)
}

/// Fig. 7.
pub(super) fn partitions(context: &Context, kernel: &Kernel) -> Result<Findings, Failure> {
    let (here, paper_time) = durations(context, kernel);
    let mut settings = Vec::new();
    for (workload, kind) in KINDS {
        settings.push(Setting {
            name: format!("{}, {kind}", workload + 1),
            file: format!("{}-workload-{}.svg", kernel.source, workload + 1),
            domains: partition_domains(context, workload, 0)?,
            etf: 100,
            paper: [None; 3],
        });
    }
    let mut findings = Findings::default();
    let measured = measure(context, kernel, &settings, (here, paper_time), Responsiveness::all, &mut findings)?;
    findings.tables.push(table(kernel, "Fig. 7", "workload", &settings, &measured));
    let row = |(setting, measured): (&Setting, &Measured)| Row {
        name: setting.name.clone(),
        values: measured.sources().map(|jobs| medians(jobs)).collect(),
    };
    findings.tables.push(
        Comparison::new(format!("Median responsiveness on {}", kernel.name), "Fig. 7", "response time by deadline", 3)
            .with(
                "workload",
                RULES.map(|rule| rule.name().to_owned()),
                sources(kernel, &measured),
                settings.iter().zip(&measured).map(row),
            ),
    );
    for (setting, measured) in settings.iter().zip(&measured) {
        findings.figures.push(picture(kernel, setting, measured, "all jobs", here));
    }
    let figure = OnKernel { kernel, settings: &settings, measured: &measured, paper_time };
    figure.claim_order(&mut findings, "all jobs");
    figure.claim_examples(&mut findings);
    let load = WORKLOADS.map(|(load, _)| load);
    findings.differences.push(format!(
        "One set of partitions runs for each workload, of utilisations {}, {} and {}.",
        load[0], load[5], load[6]
    ));
    findings.differences.push(format!(
        "In the simulation a switch costs {}. On {} it costs what it costs there.",
        Span::from_ns(SWITCH.as_ns() / kernel.speed),
        kernel.name
    ));
    findings.differ([ARINC, TASKS]);
    Ok(findings)
}

/// The System with all its times divided by `speed`, for a kernel with a quantum or without.
fn scaled(system: &System, (speed, has_quantum): (u64, bool)) -> System {
    let by = |span: Span| Span::from_ns((span.as_ns() / speed).max(1));
    let auto = |value: Auto<Span>| value.given().map_or(value, |span| Auto::Value(by(span)));
    let mut system = system.clone();
    for component in &mut system.components {
        (component.period, component.budget) = (auto(component.period), auto(component.budget));
        component.quantum = component.quantum.filter(|_| has_quantum).map(by);
    }
    for task in &mut system.tasks {
        (task.period, task.deadline, task.wcet) = (by(task.period), by(task.deadline), by(task.wcet));
        task.exec = match &task.exec {
            Exec::Uniform { min, max } => Exec::Uniform { min: by(*min), max: by(*max) },
            other => other.clone(),
        };
    }
    for node in &mut system.nodes {
        node.costs = node.costs.map(|costs| Costs { switch: by(costs.switch), ..costs });
    }
    system
}

/// Runs and simulates each setting under each rule. Stops early, with fewer settings, if it is told to.
fn measure(
    context: &Context,
    kernel: &Kernel,
    settings: &[Setting],
    (here, paper_time): (Span, Span),
    jobs: impl Fn(&Responsiveness) -> Vec<f64>,
    findings: &mut Findings,
) -> Result<Vec<Measured>, Failure> {
    let all = settings.iter().flat_map(|setting| RULES.map(|rule| setting.domains.system(rule, setting.etf)));
    let systems: Vec<System> = all.map(|system| scaled(&system, (kernel.speed, kernel.has_quantum))).collect();
    let ran = (kernel.run)(context, &systems, here, findings)?;
    let sum = |of: fn(&Responsiveness) -> u64| ran.iter().map(|ran| of(&ran.found)).sum::<u64>();
    let (rejected, lost) = (sum(|found| found.rejected), sum(|found| found.lost));
    if rejected > 0 {
        findings.notes.push(format!("{rejected} jobs found a full backlog, and count as late."));
    }
    if lost > 0 {
        findings.notes.push(format!("{lost} events were lost in a full buffer: the figures are incomplete."));
    }
    let simulated = |system: &System| run_system(system, context.seed, here).map(|found| jobs(&found));
    let mut measured = Vec::new();
    let whole = systems.chunks_exact(RULES.len()).zip(ran.chunks_exact(RULES.len()));
    for (systems, ran) in whole {
        let mut of_setting = Measured::default();
        for (system, CsaRun { found, costs }) in systems.iter().zip(ran) {
            of_setting.simulated.push(simulated(system)?);
            of_setting.live.push(jobs(found));
            if costs.is_some() {
                let mut charged = system.clone();
                charged.nodes[0].costs = *costs;
                of_setting.charged.push(simulated(&charged)?);
            }
        }
        measured.push(of_setting);
    }
    differences(kernel, findings, here, paper_time);
    Ok(measured)
}

impl Measured {
    fn sources(&self) -> impl Iterator<Item = &Vec<Vec<f64>>> {
        [&self.simulated, &self.live, &self.charged].into_iter().filter(|jobs| !jobs.is_empty())
    }
}

fn sources(kernel: &Kernel, measured: &[Measured]) -> Vec<&'static str> {
    let charged = measured.iter().any(|measured| !measured.charged.is_empty());
    [SIMULATED, kernel.source].into_iter().chain(charged.then_some(CHARGED)).collect()
}

/// Runs the systems on this kernel, one after the other, until it is told to stop.
fn run_on_this_kernel(
    context: &Context,
    systems: &[System],
    here: Span,
    findings: &mut Findings,
) -> Result<Vec<CsaRun>, Failure> {
    let bar = (context.host.bar)("measuring", systems.len() as u64);
    let (mut evidence, mut all) = (Evidence::default(), Vec::new());
    for system in systems {
        if context.stopped() {
            break;
        }
        let (found, summary, costs) = live(system, context.seed, here)?;
        context.interrupted_by(summary.interrupted);
        if context.stopped() {
            break;
        }
        evidence.add(&summary, costs);
        all.push(CsaRun { found, costs: Some(costs) });
        bar.inc(1);
    }
    bar.finish_and_clear();
    evidence.note(findings);
    Ok(all)
}

fn live(system: &System, seed: u64, duration: Span) -> Result<(Responsiveness, RunSummary, Costs), Failure> {
    let options = RunOptions {
        seed,
        // Servers that have more than the kernel allows are no harm: their tasks want less.
        force: true,
        trace: Trace::Never,
        back_end: Some(ServerBackEnd::Manager),
        guardian: true,
        ..RunOptions::new(duration)
    };
    let refused = |error: RunError| Failure::of_run(&error);
    let mut overheads = Overheads::default();
    let mut watch = Watch::of(system, &mut overheads);
    let prepared = prepare(system, &options).map_err(refused)?;
    let summary = prepared.run(&mut watch, &mut |_| {}).map_err(refused)?;
    let found = watch.jobs.finish(summary.end);
    Ok((found, summary, overheads.costs().unwrap_or(Costs::NONE)))
}

impl Evidence {
    fn add(&mut self, summary: &RunSummary, costs: Costs) {
        self.costs = self.costs.filter(|worst| worst.interrupt >= costs.interrupt).or(Some(costs));
        for manager in &summary.managers {
            let span = |ns: Option<u64>| ns.map_or(Span::ZERO, Span::from_ns);
            let cost = span(manager.cost.as_ref().map(|all| all.p50));
            let late = span(manager.late.as_ref().map(|all| all.p99));
            self.cost = self.cost.max(cost);
            self.late = self.late.max(late);
            self.share_ppm = self.share_ppm.max(manager.share_ppm);
        }
    }

    fn note(&self, findings: &mut Findings) {
        let Evidence { cost, late, share_ppm, costs } = self;
        findings.notes.push(format!(
            "A decision of the manager took {cost} (p50 of the worst run), it woke {late} late (p99), and it used at \
             most {:.2} % of its CPU. Each run has its own costs; these are of the run with the largest share. {}",
            *share_ppm as f64 / 1e4,
            charged(&costs.unwrap_or(Costs::NONE), "The manager, ordinary threads and the machine")
        ));
    }
}

fn table(
    kernel: &Kernel,
    cite: &'static str,
    row_head: &'static str,
    settings: &[Setting],
    measured: &[Measured],
) -> Comparison {
    let ratios = |jobs: &[Vec<f64>]| jobs.iter().map(|jobs| percent(miss_ratio(jobs))).collect::<Vec<_>>();
    let row = |(setting, measured): (&Setting, &Measured)| Row {
        name: setting.name.clone(),
        values: std::iter::once(setting.paper.to_vec()).chain(measured.sources().map(|jobs| ratios(jobs))).collect(),
    };
    let rows = settings.iter().zip(measured).map(row).collect();
    Comparison {
        sources: std::iter::once(PAPER).chain(sources(kernel, measured)).collect(),
        ..miss_ratios(&format!("Deadline miss ratios on {}", kernel.name), cite, "percent of the jobs", row_head, rows)
    }
}

/// Distribution functions under each rule, simulated and measured.
fn picture(kernel: &Kernel, setting: &Setting, measured: &Measured, whose: &str, here: Span) -> Drawn {
    let line = |jobs: &[f64], rule: ServerRule, source: &str, colour: usize| {
        distribution(jobs, &format!("{}, {source}, {}", rule.name(), late_percent(jobs)), colour)
    };
    let series = RULES.iter().zip(&measured.simulated).zip(&measured.live).enumerate();
    let series = series.flat_map(|(colour, ((rule, simulated), live))| {
        let simulated = Series { form: Form::Dashed, ..line(simulated, *rule, SIMULATED, colour) };
        [simulated, line(live, *rule, kernel.source, colour)]
    });
    let title = format!("{} on {}: {whose}", setting.name, kernel.name);
    let chart: Figure = figure(&title, series.collect());
    let caption = format!("A workload for {here} on {}, and the same simulated.", kernel.name);
    Drawn::of(&setting.file, &chart, title, caption)
}

fn differences(kernel: &Kernel, findings: &mut Findings, here: Span, paper_time: Span) {
    findings.differences.push(kernel.difference.to_owned());
    if kernel.speed > 1 {
        findings.differences.push(format!(
            "All times are {} times shorter than in the paper, so a quantum lasts {}. A measurement of {here} is \
             one of {paper_time} there. The costs of this kernel do not shrink with it.",
            kernel.speed,
            Span::from_ns(1_000_000 / kernel.speed)
        ));
    }
    findings.differ([
        "One workload runs for each setting, with the seed of the first of those that are simulated alone.",
        LATE,
    ]);
}

#[cfg(test)]
mod tests {
    use takt_model::generate::Random;

    use super::super::workload::synthetic;
    use super::*;

    /// The same schedule, in a part of the time.
    #[test]
    fn a_faster_workload_has_the_same_response_by_deadline() {
        let domains = synthetic(&mut Random::new(3), 0.7, RANGES[0]).map_err(|error| error.message).unwrap();
        for rule in RULES {
            let system = domains.system(rule, 100);
            let slow = run_system(&system, 1, Span::from_s(8)).map_err(|error| error.message).unwrap();
            let fast =
                run_system(&scaled(&system, (2, true)), 1, Span::from_s(4)).map_err(|error| error.message).unwrap();
            assert!(!slow.all().is_empty());
            let pairs = slow.all().into_iter().zip(fast.all()).filter(|(slow, fast)| (slow - fast).abs() > 1e-6);
            assert_eq!((slow.all().len(), pairs.count()), (fast.all().len(), 0), "{}", rule.name());
        }
    }
}
