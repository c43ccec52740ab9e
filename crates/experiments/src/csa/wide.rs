//! Components that use two CPUs at once [CSA VI]: simulated responses beside the bounds that `mpr` proves.
//!
//! Each domain is a component with `cpus = 2`. Its tasks run under global EDF on what it gets of both CPUs, and so do
//! the servers on the node. `takt size` finds its budget. Under RM the search for budgets exceeds its limit.

use takt_analysis::{Answer, CheckOptions, check, size};
use takt_log::Definitions;
use takt_log::stats::Collector;
use takt_model::generate::Random;
use takt_model::{Auto, Builtin, Placement, ServerRule, Span, StrategyRef, System};
use takt_sim::{SimOptions, kinds, simulate};

use super::workload::{Domains, synthetic};
use super::{RANGES, RULES, in_percent, needs_time, percent};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Findings, Row, SIMULATED};

/// U_W of both CPUs together.
const LOAD: f64 = 0.6;
/// The period of all servers.
const PERIOD: Span = Span::from_ms(20);

/// The domains as components on two CPUs, without budgets.
fn without_budgets(domains: &Domains) -> System {
    let mut system = domains.system(ServerRule::Ptps, 100);
    system.name = "csa-both-cpus".to_owned();
    let node = &mut system.nodes[0];
    (node.cpus, node.strategy, node.placement) = (2, StrategyRef::Builtin(Builtin::Edf), Placement::Global);
    for component in &mut system.components {
        (component.cpus, component.period, component.budget) = (2, Auto::Value(PERIOD), Auto::Auto);
        component.strategy = StrategyRef::Builtin(Builtin::Edf);
        // On a grid nothing would be lent.
        component.quantum = None;
    }
    system
}

/// The domains with budgets, and the bound of each task: its deadline, if nothing less is proven. `None` if the domains
/// are not proven.
fn with_proven_budgets(domains: &Domains) -> Option<(System, Vec<Span>)> {
    let system = size(&without_budgets(domains)).ok()?.system;
    let report = check(&system, &CheckOptions::default());
    let bounds = report.bounds(system.tasks.len()).into_iter().zip(&system.tasks);
    let bounds = bounds.map(|(bound, task)| bound.unwrap_or(task.deadline)).collect();
    (report.schedulable == Answer::Yes).then_some((system, bounds))
}

/// Adds a table and a claim.
pub(super) fn reproduce(context: &Context, count: u64, duration: Span, findings: &mut Findings) -> Result<(), Failure> {
    // For each task by its deadline: its bound, and its longest response under each rule.
    let mut by_deadline: Vec<Vec<f64>> = vec![Vec::new(); 1 + RULES.len()];
    let (mut workloads, mut within) = (0, true);
    let bar = (context.host.bar)("simulating components on two CPUs", count);
    for number in 0..count {
        bar.inc(1);
        let seed = context.seed ^ (34 << 48) ^ (number << 32);
        let domains = synthetic(&mut Random::new(seed), LOAD, RANGES[1])?;
        let Some((mut system, bounds)) = with_proven_budgets(&domains) else { continue };
        workloads += 1;
        let deadlines: Vec<f64> = system.tasks.iter().map(|task| task.deadline.as_ns() as f64).collect();
        by_deadline[0].extend(bounds.iter().zip(&deadlines).map(|(bound, deadline)| bound.as_ns() as f64 / deadline));
        for (rule, found) in RULES.into_iter().zip(&mut by_deadline[1..]) {
            if context.stopped() {
                break;
            }
            system.components.iter_mut().for_each(|component| component.server = rule);
            let mut collector = Collector::new(&Definitions::of(&system), kinds(&system));
            let options = SimOptions { duration, seed, node: None };
            let done = simulate(&system, &options, &mut collector).map_err(|error| Failure::trouble(&error))?;
            for task in collector.finish(done.end).tasks {
                let Some(responses) = task.response_ns else { continue };
                within &= Span::from_ns(responses.max) <= bounds[task.id.index()] && task.missed == Some(0);
                found.push(responses.max as f64 / deadlines[task.id.index()]);
            }
        }
    }
    bar.finish_and_clear();
    let longest = |all: &[f64]| all.iter().copied().reduce(f64::max);
    let mean = |all: &[f64]| (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64);
    let names = || std::iter::once("bound").chain(RULES.map(|rule| rule.name()));
    let row = |name: &str, of: &dyn Fn(&[f64]) -> Option<f64>| Row {
        name: name.to_owned(),
        values: vec![by_deadline.iter().map(|all| percent(of(all))).collect()],
    };
    let title = "Longest responses of components on two CPUs at once";
    findings.tables.push(Comparison::new(title, "Section VI", "percent of the deadline", 2).with(
        "tasks",
        names(),
        [SIMULATED],
        [row("the one with the longest", &longest), row("mean of all", &mean)],
    ));
    let told = names().zip(&by_deadline).map(|(name, all)| format!("{name} {}", in_percent(longest(all))));
    let told = told.collect::<Vec<_>>().join(", ");
    let claim = findings.claim(
        "bounds_hold_on_both_cpus_at_once",
        "No job of a component on two CPUs at once takes longer than takt check proves, under each rule",
        format!("{workloads} of {count} workloads are proven; the longest response by its deadline: {told}"),
        (workloads > 0 && !context.stopped()).then_some(within),
    );
    needs_time(claim, duration);
    Ok(())
}
