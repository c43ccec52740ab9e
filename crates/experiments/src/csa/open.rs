//! What [CSA VI] leaves open: dependent tasks, and several CPUs.
//!
//! The workloads are those of Section IV-B, in pairs. Chains lead from each domain to the next. On two
//! CPUs the servers of a pair are bound to a CPU each, or share both. [`wide`] has domains that use both at once.

use takt_model::generate::Random;
use takt_model::{Builtin, ComponentId, Placement, ServerRule, Span, System, Task, TaskId, named};

use super::measure::{Responsiveness, miss_ratio, run_system};
use super::workload::{Domain, Domains, interface, synthetic};
use super::{NonIncreasing, RANGES, RULES, by_rule, needs_time, percent, ratios_by_rule, size, wide};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Findings, Row, SIMULATED};

/// U_W of each CPU.
const LOAD: f64 = 0.9;

named! {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Setup {
        /// As in the paper: independent tasks, each workload on its own CPU.
        Alone => "independent tasks, one CPU",
        /// The k-th task of each domain follows the k-th task of the domain before.
        Chains => "chains from domain to domain, one CPU",
        /// Two CPUs, each workload bound to one.
        Bound => "two CPUs, servers bound to one",
        /// Two CPUs. A server runs on any.
        Shared => "two CPUs, servers run on any",
    }
}

impl Setup {
    fn file(self) -> &'static str {
        match self {
            Setup::Alone => "responsiveness-one-cpu.svg",
            Setup::Chains => "responsiveness-chains.svg",
            Setup::Bound => "responsiveness-two-cpus-bound.svg",
            Setup::Shared => "responsiveness-two-cpus-shared.svg",
        }
    }

    fn systems(self, workloads: &[Domains; 2], rule: ServerRule) -> Vec<System> {
        match self {
            Setup::Alone => workloads.iter().map(|domains| domains.system(rule, 100)).collect(),
            Setup::Chains => workloads.iter().map(|domains| chained(domains, rule)).collect(),
            Setup::Bound => vec![together(workloads, rule, Placement::Partitioned)],
            Setup::Shared => vec![together(workloads, rule, Placement::Global)],
        }
    }
}

/// The domains with chains: the k-th task of a domain follows the k-th task of the one before, if that has so many.
fn chained(domains: &Domains, rule: ServerRule) -> System {
    let mut system = domains.system(rule, 100);
    let mut first = 0;
    for pair in domains.domains.windows(2) {
        let [before, own] = pair else { continue };
        let next = first + before.tasks.len();
        for k in 0..own.tasks.len().min(before.tasks.len()) {
            system.tasks[next + k].after = vec![TaskId((first + k) as u32)];
        }
        first = next;
    }
    system
}

/// The same utilisations, with the period of a chain's first task for all of its tasks, and interfaces for these.
fn with_periods_of_chains(domains: &Domains) -> Result<Domains, Failure> {
    let mut changed: Vec<Vec<Task>> = Vec::new();
    for domain in &domains.domains {
        let before = changed.last();
        let of_chain = |(k, task): (usize, &Task)| {
            let Some(before) = before.and_then(|before| before.get(k)) else { return task.clone() };
            let scaled =
                u128::from(task.wcet.as_ns()) * u128::from(before.period.as_ns()) / u128::from(task.period.as_ns());
            Task::periodic("task", before.period, Span::from_ns((scaled as u64).max(1)))
        };
        changed.push(domain.tasks.iter().enumerate().map(of_chain).collect());
    }
    let sized = |tasks: Vec<Task>| interface(&tasks).map(|(period, budget)| Domain { tasks, period, budget });
    let domains: Result<Vec<Domain>, Failure> = changed.into_iter().map(sized).collect();
    Ok(Domains { domains: domains?, costs: None })
}

fn together(workloads: &[Domains; 2], rule: ServerRule, placement: Placement) -> System {
    let mut system = System::local(2, Builtin::Rm, Vec::new());
    system.name = format!("csa-two-cpus-{}", rule.name());
    system.nodes[0].placement = placement;
    for (cpu, workload) in (0..).zip(workloads) {
        let one = workload.system(rule, 100);
        let before = system.components.len() as u32;
        for mut component in one.components {
            component.name = format!("cpu{cpu}-{}", component.name);
            match placement {
                Placement::Partitioned => component.server_cpus = vec![cpu],
                // On a grid, servers that compete for several CPUs would lend nothing.
                _ => component.quantum = None,
            }
            system.components.push(component);
        }
        for mut task in one.tasks {
            task.name = format!("cpu{cpu}-{}", task.name);
            task.component = task.component.map(|id| ComponentId(id.0 + before));
            system.tasks.push(task);
        }
    }
    system
}

pub(super) fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let (count, duration) = size(context);
    let mut workloads = Vec::new();
    for number in 0..count {
        let of = |half: u64| {
            let seed = context.seed ^ ((32 + half) << 48) ^ (number << 32);
            synthetic(&mut Random::new(seed), LOAD, RANGES[1])
        };
        workloads.push([of(0)?, of(1)?]);
    }
    let mut findings = Findings::default();
    let mut rows = Vec::new();
    let bar = (context.host.bar)("simulating", count * (Setup::ALL.len() * RULES.len()) as u64);
    let mut by_setup = Vec::new();
    for setup in Setup::ALL {
        let mut found = vec![Responsiveness::default(); RULES.len()];
        for (i, pair) in workloads.iter().enumerate() {
            let pair = match setup {
                Setup::Chains => &[with_periods_of_chains(&pair[0])?, with_periods_of_chains(&pair[1])?],
                _ => pair,
            };
            for (all, rule) in found.iter_mut().zip(RULES) {
                if !context.stopped() {
                    let seed = context.seed.wrapping_add(i as u64);
                    for system in setup.systems(pair, rule) {
                        all.add(run_system(&system, seed, duration)?);
                    }
                }
                bar.inc(1);
            }
        }
        let jobs: Vec<Vec<f64>> = found.iter().map(Responsiveness::all).collect();
        let ratios: Vec<Option<f64>> = jobs.iter().map(|jobs| miss_ratio(jobs)).collect();
        rows.push(Row { name: setup.name().to_owned(), values: vec![ratios.iter().copied().map(percent).collect()] });
        let caption = format!("{count} pairs of workloads at U_W = {LOAD} a CPU for {duration} each.");
        findings.figures.push(by_rule(setup.name(), setup.file(), &jobs, &caption));
        by_setup.push(ratios);
    }
    bar.finish_and_clear();
    findings.tables.push(Comparison {
        title: "Deadline miss ratios".to_owned(),
        cite: "Section VI",
        unit: "percent of the jobs",
        digits: 2,
        row_head: "set-up",
        columns: RULES.map(|rule| rule.name().to_owned()).to_vec(),
        sources: vec![SIMULATED],
        rows,
    });
    let claims = [
        ("order_of_independent_tasks", Setup::Alone, "Independent tasks on one CPU"),
        ("order_of_chains", Setup::Chains, "Jobs of chains from domain to domain"),
        ("order_on_two_cpus", Setup::Shared, "Jobs under servers that share two CPUs"),
    ];
    let of = |setup: Setup| &by_setup[setup as usize];
    for (name, setup, whose) in claims {
        let mut ordered = NonIncreasing::default();
        ordered.add(of(setup));
        let claim = format!("{whose} miss no more under crps than under wcps, and no more under wcps than under ptps");
        needs_time(findings.claim(name, claim, ratios_by_rule(of(setup)), ordered.holds()), duration);
    }
    let (alone, bound) = (of(Setup::Alone), of(Setup::Bound));
    let claim = findings.claim(
        "bound_servers_are_separate",
        "Servers that are bound to one of two CPUs miss as many deadlines as on two machines of one CPU",
        format!("two CPUs: {}; two machines: {}", ratios_by_rule(bound), ratios_by_rule(alone)),
        (!context.stopped()).then_some(bound == alone),
    );
    needs_time(claim, duration);
    wide::reproduce(context, count, duration, &mut findings)?;
    findings.differences = vec![
        "The paper plans dependent tasks and several CPUs, and has neither. All values are simulated here.".to_owned(),
        "A job of a chain is released when the job before it completes, and its deadline counts from then. Interfaces \
         are those of [CSA Algorithm 1] for periodic tasks: they ignore that releases in a chain are late."
            .to_owned(),
        "All tasks of a chain have the period of its first task. Each keeps its utilisation.".to_owned(),
        "On two CPUs the domains are those of two workloads. Each domain has one server, so it never runs on both CPUs \
         at once. Where servers share the CPUs they decide at any instant: on a grid they would lend nothing."
            .to_owned(),
        "Domains that run on both CPUs at once have two servers each. They are other workloads, which need less, so \
         that takt check proves them."
            .to_owned(),
    ];
    Ok(findings)
}
