//! Jobs of components in units of 1 ns: what they cost, and what orders them and their servers.

use takt_model::{Builtin, Costs, Criticality, Discipline, Filter, Level, Split, Strategy, StrategyRef, System};

use super::reference::work;

/// A released job that is not complete.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) task: usize,
    pub(crate) release: u64,
    pub(crate) deadline: u64,
    /// Work left, with the costs of the release and of switches so far.
    pub(crate) left: u64,
    /// CPU time had, which laxity counts.
    pub(crate) received: u64,
    /// Rest of the ticks and interrupts that it suffers now.
    stolen: u64,
    /// The CPU on which it runs, and the CPU on which it ran before.
    pub(crate) cpu: Option<usize>,
    pub(crate) last_cpu: Option<usize>,
}

impl Job {
    /// The job that a strictly periodic task releases now, if it does.
    pub(crate) fn released(system: &System, task: usize, now: u64) -> Option<Job> {
        let of = &system.tasks[task];
        let since = now.checked_sub(of.offset.as_ns())?;
        let overhead = costs(system).release.as_ns();
        since.is_multiple_of(of.period.as_ns()).then(|| Job {
            task,
            release: now,
            deadline: now + of.deadline.as_ns(),
            left: of.wcet.as_ns() + overhead,
            received: 0,
            stolen: 0,
            cpu: None,
            last_cpu: None,
        })
    }

    /// It gets a CPU.
    pub(crate) fn start(&mut self, cpu: usize, costs: &Costs) {
        let moved = self.last_cpu.is_some_and(|last| last != cpu);
        self.left += costs.switch.as_ns() + if moved { costs.migrate.as_ns() } else { 0 };
        (self.cpu, self.last_cpu) = (Some(cpu), Some(cpu));
    }

    /// It loses its CPU, if it has one.
    pub(crate) fn stop(&mut self) {
        (self.cpu, self.stolen) = (None, 0);
    }

    /// It has its CPU for one unit.
    pub(crate) fn work(&mut self, now: u64, costs: &Costs) {
        work(costs, now, &mut self.received, &mut self.stolen, &mut self.left);
    }
}

/// Adds the jobs that are released now. True if one of them competes at once. A job behind another one of its task
/// does not: it is no reason to decide or to compare laxities.
pub(crate) fn release_all(system: &System, jobs: &mut Vec<Job>, now: u64) -> bool {
    let mut news = false;
    for task in 0..system.tasks.len() {
        let Some(job) = Job::released(system, task, now) else { continue };
        news |= jobs.iter().all(|other| other.task != task);
        jobs.push(job);
    }
    news
}

/// What the only node charges.
pub(crate) fn costs(system: &System) -> Costs {
    system.nodes[0].costs.unwrap_or(Costs::NONE)
}

/// A job or a server that competes for a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    pub(crate) release: u64,
    pub(crate) deadline: u64,
    /// The WCET without the CPU time had, or the budget left.
    pub(crate) remaining: u64,
    pub(crate) period: u64,
    pub(crate) relative_deadline: u64,
    pub(crate) priority: Option<u32>,
    /// A server is always critical, and has importance 0.
    pub(crate) criticality: Criticality,
    pub(crate) importance: u32,
}

impl Contender {
    pub(crate) fn of_job(system: &System, job: &Job) -> Contender {
        let task = &system.tasks[job.task];
        Contender {
            release: job.release,
            deadline: job.deadline,
            remaining: task.wcet.as_ns().saturating_sub(job.received),
            period: task.period.as_ns(),
            relative_deadline: task.deadline.as_ns(),
            priority: task.priority,
            criticality: task.criticality,
            importance: task.importance,
        }
    }

    /// Its level, and its key within the level. The least goes first.
    pub(crate) fn standing(&self, system: &System, strategy: StrategyRef) -> (u64, i64) {
        let strategy = match strategy {
            StrategyRef::Builtin(strategy) => strategy,
            StrategyRef::Own(id) => return self.standing_by_levels(&system.strategies[id.index()]),
        };
        let (release, deadline) = (self.release as i64, self.deadline as i64);
        let latest_start = deadline - self.remaining as i64;
        let is_low = self.criticality == Criticality::Low;
        match strategy {
            Builtin::Fp => (u64::from(self.priority.expect("a priority")), release),
            Builtin::Rm => (self.period, release),
            Builtin::Dm => (self.relative_deadline, release),
            Builtin::Edf => (0, deadline),
            Builtin::Mlf => (0, latest_start),
            Builtin::Muf => (u64::from(is_low), latest_start),
            Builtin::RmsMlf if is_low => (u64::MAX, latest_start),
            Builtin::RmsMlf => (self.period, release),
            Builtin::Fifo => (0, release),
        }
    }

    /// The same for preemptive levels that take tasks and servers by their values.
    fn standing_by_levels(&self, strategy: &Strategy) -> (u64, i64) {
        let takes = |level: &Level| match level.filter {
            Filter::Rest => true,
            Filter::Named(_) => panic!("levels by name"),
            Filter::Where { criticality, importance, priority } => {
                criticality.is_none_or(|wanted| self.criticality == wanted)
                    && importance.is_none_or(|wanted| self.importance == wanted)
                    && (priority.is_none() || self.priority == priority)
            }
        };
        let place = strategy.levels.iter().position(takes).expect("a level takes it");
        let level = &strategy.levels[place];
        let part = match level.split {
            Split::None => 0,
            Split::Priority => u64::from(self.priority.expect("a priority")),
            Split::Period => self.period,
            Split::Deadline => self.relative_deadline,
            Split::Criticality => u64::from(self.criticality == Criticality::Low),
            Split::Importance => u64::from(u32::MAX - self.importance),
        };
        let key = match level.discipline {
            Discipline::Fifo => self.release as i64,
            Discipline::Deadline => self.deadline as i64,
            Discipline::Laxity => self.deadline as i64 - self.remaining as i64,
            Discipline::Gel { .. } => panic!("constants by name"),
        };
        ((place as u64) << 32 | part, key)
    }
}

/// Whether laxities are compared now though nothing happens. A system without laxities is decided anew in every unit,
/// for there a decision does not depend on its instant.
pub(crate) fn compares(system: &System, now: u64) -> bool {
    let by_laxity = |strategy: StrategyRef| match strategy {
        StrategyRef::Builtin(builtin) => matches!(builtin, Builtin::Mlf | Builtin::Muf | Builtin::RmsMlf),
        StrategyRef::Own(id) => {
            system.strategies[id.index()].levels.iter().any(|level| level.discipline == Discipline::Laxity)
        }
    };
    let of_components = system.components.iter().map(|component| component.strategy);
    let mut strategies = of_components.chain([system.nodes[0].strategy]);
    match system.nodes[0].laxity_quantum {
        Some(quantum) => now.is_multiple_of(quantum.as_ns()),
        None => !strategies.any(by_laxity),
    }
}
