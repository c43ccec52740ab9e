//! The workloads of [CSA IV], and interfaces for their domains.

use takt_analysis::compositional::{Guarantee, Search, Start, Workload, best};
use takt_analysis::fp::rta::FpTask;
use takt_model::generate::Random;
use takt_model::generate::arinc::{self, Partitions};
use takt_model::{
    Auto, Builtin, Component, ComponentId, Costs, Exec, NodeId, ServerRule, Span, StrategyRef, System, Task,
};

use crate::failure::Failure;

/// Domains of a synthetic workload.
pub(super) const DOMAINS: usize = 5;
/// Xen decides every millisecond. Periods and budgets are multiples of this.
pub(super) const QUANTUM: Span = Span::from_ms(1);

/// Domains from the most to the least important, with their interfaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Domains {
    pub(super) domains: Vec<Domain>,
    /// The costs of switches on the node. Interfaces do not cover them.
    pub(super) costs: Option<Costs>,
}

/// One domain: its tasks under rate monotonic priorities, and its server.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    pub(super) tasks: Vec<Task>,
    pub(super) period: Span,
    pub(super) budget: Span,
}

impl Domain {
    pub(super) fn load(&self) -> f64 {
        self.tasks.iter().map(|task| task.wcet.as_ns() as f64 / task.period.as_ns() as f64).sum()
    }

    pub(super) fn bandwidth(&self) -> f64 {
        self.budget.as_ns() as f64 / self.period.as_ns() as f64
    }
}

impl Domains {
    /// U_W.
    pub(super) fn load(&self) -> f64 {
        self.domains.iter().map(Domain::load).sum()
    }

    /// U_RM - U_W.
    pub(super) fn overhead(&self) -> f64 {
        self.domains.iter().map(Domain::bandwidth).sum::<f64>() - self.load()
    }

    /// The domains under servers of one rule. Jobs of the first three domains need from `etf`
    /// percent of their WCET on.
    pub(super) fn system(&self, rule: ServerRule, etf: u64) -> System {
        let mut system = System::local(1, Builtin::Rm, Vec::new());
        system.name = format!("csa-{}", rule.name());
        system.nodes[0].costs = self.costs;
        for (i, domain) in self.domains.iter().enumerate() {
            system.components.push(Component {
                strategy: StrategyRef::Builtin(Builtin::Rm),
                period: Auto::Value(domain.period),
                budget: Auto::Value(domain.budget),
                quantum: Some(QUANTUM),
                ..Component::new(&format!("domain-{}", i + 1), NodeId(0), rule)
            });
            for (k, task) in domain.tasks.iter().enumerate() {
                let least = Span::from_ns(task.wcet.as_ns() * etf / 100);
                let varies = etf < 100 && i < 3;
                system.tasks.push(Task {
                    name: format!("domain-{}-task-{}", i + 1, k + 1),
                    component: Some(ComponentId(i as u32)),
                    exec: if varies { Exec::Uniform { min: least, max: task.wcet } } else { Exec::Wcet },
                    ..task.clone()
                });
            }
        }
        system
    }
}

/// A synthetic workload [CSA IV-B]: tasks of 0.2 to 5 % each until they need `load`, spread over
/// five domains.
pub(super) fn synthetic(random: &mut Random, load: f64, periods_ms: (u64, u64)) -> Result<Domains, Failure> {
    let mut of_domain = vec![Vec::new(); DOMAINS];
    let mut all = 0.0;
    while all < load {
        let utilisation = 0.002 + random.unit() * 0.048;
        let period = Span::from_ms(random.between(periods_ms.0, periods_ms.1));
        let wcet = Span::from_us(((period.as_ns() as f64 / 1e3 * utilisation) as u64).max(1));
        all += wcet.as_ns() as f64 / period.as_ns() as f64;
        of_domain[random.between(0, DOMAINS as u64 - 1) as usize].push(Task::periodic("task", period, wcet));
    }
    let mut domains = Vec::new();
    for tasks in of_domain.into_iter().filter(|tasks| !tasks.is_empty()) {
        let (period, budget) = interface(&tasks)?;
        domains.push(Domain { tasks, period, budget });
    }
    domains.sort_by_key(|domain| domain.period);
    Ok(Domains { domains, costs: None })
}

/// Workloads in the manner of ARINC 653, by the published utilisations of [CSA Table I].
pub(super) fn arinc(seed: u64, load: f64, partitions: usize) -> Result<Domains, Failure> {
    let shape = Partitions { partitions, utilization: load, quantum: QUANTUM };
    let system = arinc::system(&shape, seed, 0).map_err(|error| Failure::trouble(&error))?;
    let mut domains = Vec::new();
    for (i, component) in system.components.iter().enumerate() {
        let tasks: Vec<Task> =
            system.tasks.iter().filter(|task| task.component == Some(ComponentId(i as u32))).cloned().collect();
        let Auto::Value(period) = component.period else { continue };
        // An aligned server gives its budget in each period, so the load is enough [CSA Eq. 1,
        // harmonic].
        let load: f64 = tasks.iter().map(|task| task.wcet.as_ns() as f64 / task.period.as_ns() as f64).sum();
        let quanta = (load * (period.as_ns() / QUANTUM.as_ns()) as f64).ceil().max(1.0) as u64;
        domains.push(Domain { tasks, period, budget: Span::from_ns(quanta * QUANTUM.as_ns()) });
    }
    domains.sort_by_key(|domain| domain.period);
    Ok(Domains { domains, costs: None })
}

/// The interface of the least bandwidth in whole quanta [CSA Algorithm 1].
pub(super) fn interface(tasks: &[Task]) -> Result<(Span, Span), Failure> {
    let mut periods: Vec<u64> = tasks.iter().map(|task| task.period.as_ns()).collect();
    periods.sort_unstable();
    periods.dedup();
    let level = |task: &Task| periods.binary_search(&task.period.as_ns()).unwrap_or(0) as u32;
    let of = |task: &Task| {
        let (c, t, d) = (task.wcet.as_ns(), task.period.as_ns(), task.deadline.as_ns());
        FpTask { c, t, d, j: 0, b: 0, level: level(task) }
    };
    let tasks: Vec<FpTask> = tasks.iter().map(of).collect();
    let search = Search {
        workload: Workload::Fp(&tasks),
        quantum: QUANTUM.as_ns(),
        guarantee: Guarantee { start: Start::Anywhere, delay: 0, wait: None },
        aligned: 0,
        charge: &|_| Some(0),
    };
    match best(&search) {
        Ok(Some(found)) => Ok((Span::from_ns(found.period), Span::from_ns(found.budget))),
        Ok(None) => Err(Failure::trouble("a domain needs more than the whole CPU")),
        Err(limit) => Err(Failure::trouble(format_args!("no interface was found: {limit}"))),
    }
}
