//! A System divided into pieces for one test each.
//!
//! A *view* is one node under one strategy (its own, or a mode's). A view consists of *units*. A
//! unit is a set of CPUs with tasks that run there and nowhere else; no other task runs there.

use takt_model::plan::{Order, PlanError};
use takt_model::{
    Arrival, Costs, CpuSet, NodeId, NodeSpec, Placement, Plan, PlanLevel, Span, StrategyRef, System, Task, TaskId,
};

use crate::edf::qpa::Tick;
use crate::server::ServerSupply;
use crate::verdict::TermBudget;

/// A set of CPUs as scopes spell it: "cpu0", "cpu0-1", "cpu0,2-3".
pub(crate) fn cpus_name(cpus: &CpuSet) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus.iter() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let spelt: Vec<String> =
        ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    format!("cpu{}", spelt.join(","))
}

/// One node under one strategy.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// "n1", or "n1@2s:muf" for a mode.
    pub(crate) scope: String,
    pub(crate) strategy: String,
    /// Pieces that can be analysed apart.
    pub(crate) units: Vec<Unit>,
    /// Tasks that their placement binds to one CPU or cluster, but their affinity does not.
    pub(crate) unplaced: Vec<TaskId>,
    /// Parts that cannot be analysed: (scope, why).
    pub(crate) refused: Vec<(String, String)>,
}

/// CPUs with the tasks that run there and nowhere else.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Unit {
    /// "n1", "n1/cpu0", "n1/cpu0-1".
    pub(crate) scope: String,
    /// How many CPUs.
    pub(crate) m: u32,
    /// Whether every task may use every CPU of the unit.
    pub(crate) full_affinity: bool,
    /// The strategy's levels, the most important first.
    pub(crate) levels: Vec<PlanLevel>,
    /// In file order.
    pub(crate) tasks: Vec<UnitTask>,
    pub(crate) costs: Option<Costs>,
    /// The time that ordinary threads take.
    pub(crate) ordinary: Option<Ordinary>,
    /// The grid in ns on which laxities are compared, besides at releases and completions.
    pub(crate) laxity_quantum: Option<u64>,
    /// The server that the unit runs in; `None`: its CPUs are its own.
    pub(crate) served: Option<ServerSupply>,
    /// Whether a constant-bandwidth server (`cbs`, `cbs-hard`, `grub`) is among its tasks. It demands bandwidth, not
    /// jobs.
    pub(crate) has_cbs: bool,
    /// How much later than its deadline the budget of such a server may come, in ns ([`crate::reservation::level`]).
    pub(crate) budget_lateness: u64,
    /// Why there is no verdict about the unit: a server of this level is not sized yet, or is not covered there.
    pub(crate) no_verdict: Option<String>,
    /// The terms that its tests may evaluate.
    pub(crate) terms: TermBudget,
}

/// The time that ordinary threads take from the tasks of one CPU, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ordinary {
    /// `amount` in each `period`, anywhere in it, whatever the tasks have to do.
    Above { amount: u64, period: u64 },
    /// As a server among deadlines: up to any deadline no more than `budget` in each `period`, and a
    /// `burst` once ([`crate::linux`]).
    Share { budget: u64, period: u64, burst: u64 },
}

impl Ordinary {
    /// The time that the file states in the costs of a node; `None` if it states none.
    pub(crate) fn of(costs: Option<Costs>) -> Option<Ordinary> {
        let costs = costs.filter(|costs| !costs.ordinary.is_zero())?;
        Some(Ordinary::Above { amount: costs.ordinary.as_ns(), period: costs.ordinary_period.as_ns().max(1) })
    }

    /// The most that is taken from a CPU within a window of this length, whatever the deadlines;
    /// `None` above 64 bits, or where that is not known.
    ///
    /// The worst case: ordinary threads run at the end of the period in which the window begins, and at the begin of
    /// all others. This is `amount` for each period that begins in the window less its first `amount`, and once more.
    pub(crate) fn within(self, window: u64) -> Option<u64> {
        let Ordinary::Above { amount, period } = self else { return None };
        (window.checked_add(period.checked_sub(amount)?)? / period).checked_add(1)?.checked_mul(amount)
    }
}

/// A task of a unit; times in ns.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct UnitTask {
    pub(crate) id: TaskId,
    pub(crate) name: String,
    pub(crate) c: u64,
    /// C as the file has it, without what the analysis adds.
    pub(crate) wcet: u64,
    pub(crate) t: u64,
    pub(crate) d: u64,
    /// Release jitter of its own.
    pub(crate) j: u64,
    pub(crate) b: u64,
    /// The part of `b` that comes from sections of others.
    pub(crate) section_blocking: u64,
    /// How long its longest section blocks more important work at most; 0 without sections.
    pub(crate) section: u64,
    /// Its sections without preemption: first and last CPU time of a job.
    pub(crate) sections: Vec<(u64, u64)>,
    /// CPU time of a job before its longest section.
    pub(crate) section_start: u64,
    /// The length of its last section; 1 without sections.
    pub(crate) last_section: u64,
    /// O: the offset.
    pub(crate) o: u64,
    pub(crate) level: u32,
    /// Added to deadlines for the order alone.
    pub(crate) shift: i64,
    /// Whether it follows other tasks.
    pub(crate) chained: bool,
    /// Whether its jobs may be omitted.
    pub(crate) cancellable: bool,
    /// Whether it can arrive every period: it is periodic or sporadic.
    pub(crate) dense: bool,
    /// Whether it arrives exactly every period.
    pub(crate) periodic: bool,
    /// Whether it arrives at any time at least a period after the arrival before.
    pub(crate) sporadic: bool,
    /// Whether it stands for a component's server.
    pub(crate) server: bool,
    /// For a server: the longest overrun of a budget before the kernel notices.
    pub(crate) overrun: u64,
    /// For a server: how often it may preempt jobs beside it, besides what its bandwidth accounts for
    /// ([`crate::server_costs::cuts`]).
    pub(crate) cuts: u64,
}

impl View {
    /// # Errors
    /// If the strategy does not fit the tasks.
    pub(crate) fn new(system: &System, node: NodeId, strategy: StrategyRef, scope: String) -> Result<View, PlanError> {
        let spec = &system.nodes[node.index()];
        let plan = Plan::resolve(system, node, &system.strategy(strategy))?;
        let clusters = spec.clusters();
        let mut unplaced = Vec::new();
        let mut allowed: Vec<(usize, CpuSet)> = Vec::new();
        for (slot, planned) in plan.tasks.iter().enumerate() {
            let cpus = affinity(&system.tasks[planned.task.index()], spec);
            if clusters.iter().any(|cluster| cpus.is_subset(cluster)) {
                allowed.push((slot, cpus));
            } else {
                unplaced.push(planned.task);
            }
        }
        let units = components(&allowed)
            .into_iter()
            .map(|(cpus, slots)| {
                let mine = |slot: &usize| allowed.binary_search_by_key(slot, |(slot, _)| *slot).map(|at| allowed[at].1);
                let full_affinity = slots.iter().all(|slot| mine(slot) == Ok(cpus));
                let name =
                    if cpus.len() == spec.cpus { scope.clone() } else { format!("{scope}/{}", cpus_name(&cpus)) };
                Unit::new(system, spec, &plan, &slots, name, cpus.len(), full_affinity)
            })
            .collect();
        Ok(View { scope, strategy: plan.name, units, unplaced, refused: Vec::new() })
    }
}

/// The CPUs that a task may use on its node.
pub(crate) fn affinity(task: &Task, spec: &NodeSpec) -> CpuSet {
    let all = CpuSet::first(spec.cpus);
    task.cpus.map_or(all, |cpus| cpus.intersection(&all))
}

/// Groups of tasks that share CPUs, directly or through others, in the order of their lowest CPU.
fn components(allowed: &[(usize, CpuSet)]) -> Vec<(CpuSet, Vec<usize>)> {
    let mut groups: Vec<(CpuSet, Vec<usize>)> = Vec::new();
    for (slot, cpus) in allowed {
        // Most often the task changes nothing.
        if let Some((_, slots)) = groups.iter_mut().find(|(group, _)| !cpus.is_empty() && cpus.is_subset(group)) {
            slots.push(*slot);
            continue;
        }
        let (touching, mut apart): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(group, _)| !group.intersection(cpus).is_empty());
        let mut merged = (*cpus, vec![*slot]);
        for (group, mut slots) in touching {
            merged.0 = merged.0.union(&group);
            merged.1.append(&mut slots);
        }
        apart.push(merged);
        groups = apart;
    }
    for (_, slots) in &mut groups {
        slots.sort_unstable();
    }
    groups.sort_by_key(|(cpus, _)| cpus.lowest());
    groups
}

impl Unit {
    pub(crate) fn new(
        system: &System,
        spec: &NodeSpec,
        plan: &Plan,
        slots: &[usize],
        scope: String,
        m: u32,
        full_affinity: bool,
    ) -> Unit {
        let tasks = slots
            .iter()
            .map(|slot| {
                let planned = &plan.tasks[*slot];
                let task = UnitTask::new(planned.task, system);
                UnitTask { level: planned.level, shift: planned.shift_ns, ..task }
            })
            .collect();
        let mut unit = Unit {
            scope,
            m,
            full_affinity,
            levels: plan.levels.clone(),
            tasks,
            costs: spec.costs,
            ordinary: Ordinary::of(spec.costs),
            laxity_quantum: spec.laxity_quantum.map(|quantum| quantum.as_ns().max(1)),
            served: None,
            has_cbs: false,
            budget_lateness: 0,
            no_verdict: None,
            terms: TermBudget::of(m, spec.cpus),
        };
        unit.drop_empty_levels();
        unit.charge_sections();
        unit
    }

    /// Charges sections without preemption to the tasks that they can block. They block a busy window
    /// once, since the section started before the window.
    ///
    /// A job has run for at least 1 ns of its section (the dispatcher keeps no job at a section's
    /// start), so it blocks for the length minus 1 ns. Sections are counted in CPU time, overheads
    /// included. So more of the job than the length of its last section may follow the section's
    /// start, up to the whole job. A section that blocks jobs by deadline belongs to a later one,
    /// as the resources of S. Baruah: Resource Sharing in EDF-Scheduled Systems, RTSS 2006;
    /// floating: S. Baruah: The Limited-Preemption Uniprocessor Scheduling of Sporadic Task
    /// Systems, ECRTS 2005.
    fn charge_sections(&mut self) {
        let free = self.free_of_costs();
        for i in 0..self.tasks.len() {
            if self.tasks[i].section > 0 {
                let whole = self.charged(&self.tasks[i]).unwrap_or(u64::MAX >> 1);
                let task = &mut self.tasks[i];
                task.section = if free { task.section - 1 } else { task.section.max(whole) };
            }
        }
        if self.tasks.iter().all(|task| task.section == 0) {
            return;
        }
        let key = |task: &UnitTask| i128::from(task.d) + i128::from(task.shift);
        for i in 0..self.tasks.len() {
            let this = &self.tasks[i];
            let level = self.levels[this.level as usize];
            let later = |other: &UnitTask| {
                level.order != Order::Fifo
                    && level.preemptive
                    && key(other) > key(this) - i128::from(this.j)
                    && other.id != this.id
            };
            let blocks = |other: &&UnitTask| other.level > this.level || (other.level == this.level && later(other));
            let blocking = self.tasks.iter().filter(blocks).map(|other| other.section).max().unwrap_or(0);
            self.tasks[i].section_blocking = blocking;
            self.tasks[i].b = self.tasks[i].b.saturating_add(blocking);
        }
    }

    /// Why only the necessary conditions cover the unit, if its jobs have sections without preemption that no other
    /// test counts here.
    pub(crate) fn uncovered_sections(&self) -> Option<String> {
        let name = &self.tasks.iter().find(|task| task.section > 0)?.name;
        let laxity = |level: &PlanLevel| level.order == Order::Laxity;
        if self.m > 1 {
            return Some(format!(
                "on several CPUs needs tasks that may be preempted anywhere: \"{name}\" has sections"
            ));
        }
        if self.served.is_some() || self.tasks.iter().any(|task| task.server) {
            return Some(format!("with servers needs tasks that may be preempted anywhere: \"{name}\" has sections"));
        }
        let why = || format!("by laxity needs tasks that may be preempted anywhere: \"{name}\" has sections");
        self.levels.iter().any(laxity).then(why)
    }

    /// Renumbers the levels so that each holds a task of this unit.
    fn drop_empty_levels(&mut self) {
        let mut used: Vec<u32> = self.tasks.iter().map(|task| task.level).collect();
        used.sort_unstable();
        used.dedup();
        self.levels = used.iter().map(|level| self.levels[*level as usize]).collect();
        for task in &mut self.tasks {
            task.level = used.binary_search(&task.level).map_or(0, |level| level as u32);
        }
    }

    /// How many tasks each level holds.
    pub(crate) fn tasks_by_level(&self) -> Vec<u32> {
        let mut counts = vec![0; self.levels.len()];
        self.tasks.iter().for_each(|task| counts[task.level as usize] += 1);
        counts
    }

    /// How many levels, from the most important on, are first come, first served. A level with one task is, whatever
    /// its order.
    pub(crate) fn fifo_levels(&self) -> u32 {
        let is_fifo = |(level, count): (&PlanLevel, u32)| level.order == Order::Fifo || count == 1;
        self.levels.iter().zip(self.tasks_by_level()).take_while(|level| is_fifo(*level)).count() as u32
    }

    /// Whether all its tasks share one level that goes by deadline.
    pub(crate) fn by_deadline(&self) -> bool {
        matches!(self.levels.as_slice(), [level] if level.order == Order::Deadline)
    }

    /// Whether its jobs run by absolute deadlines.
    ///
    /// # Errors
    /// Why they do not.
    pub(crate) fn edf(&self) -> Result<(), &'static str> {
        match self.levels.as_slice() {
            [level] if level.order != Order::Deadline => Err("its level does not go by deadline"),
            [level] if !level.preemptive => Err("its deadline level is not preemptive"),
            [_] if self.tasks.iter().any(|task| task.shift != self.tasks[0].shift) => {
                Err("its deadlines are shifted (gel)")
            }
            [_] | [] => Ok(()),
            _ => Err("its strategy has more than one level"),
        }
    }

    /// C with the costs of its switches and its release on one CPU. Each release takes the CPU away
    /// and gives it back at most once. So a job pays for its own start and for the resumption that
    /// it causes.
    pub(crate) fn charged(&self, task: &UnitTask) -> Option<u64> {
        let Some(costs) = self.costs else { return Some(task.c) };
        let switches = costs.switch.as_ns().checked_mul(2)?;
        task.c.checked_add(costs.release.as_ns())?.checked_add(switches)
    }

    /// The scheduler's tick and interrupts, where they cost anything, each as often as it comes.
    pub(crate) fn overheads(&self) -> impl Iterator<Item = Tick> {
        overheads(self.costs)
    }

    /// Tick and interrupts as one.
    pub(crate) fn tick(&self) -> Option<Tick> {
        self.overheads().reduce(merge_overheads)
    }

    /// `work` inflated by the share of ordinary threads, rounded up; `None` above 64 bits, or if nothing is left. The
    /// conditions demand + `budget` t / `period` <= t and demand `period` / (`period` - `budget`)
    /// <= t are equivalent.
    pub(crate) fn inflated(&self, work: u64) -> Option<u64> {
        let Some(Ordinary::Share { budget, period, .. }) = self.ordinary else { return Some(work) };
        let left = u128::from(period.checked_sub(budget).filter(|left| *left > 0)?);
        u64::try_from((u128::from(work) * u128::from(period)).div_ceil(left)).ok()
    }

    /// The time that ordinary threads may take once besides their share.
    pub(crate) const fn ordinary_burst(&self) -> u64 {
        match self.ordinary {
            Some(Ordinary::Share { burst, .. }) => burst,
            _ => 0,
        }
    }

    /// [`Unit::tick`] inflated by the share of ordinary threads.
    pub(crate) fn inflated_tick(&self) -> Option<Tick> {
        self.tick().map(|tick| Tick { c: self.inflated(tick.c).unwrap_or(tick.t.saturating_add(1)), ..tick })
    }

    /// Whether jobs cost what their WCET says and nothing else.
    pub(crate) fn free_of_costs(&self) -> bool {
        self.ordinary.is_none() && free_of_costs(self.costs)
    }
}

/// Whether jobs cost what their WCET says and nothing else.
pub(crate) fn free_of_costs(costs: Option<Costs>) -> bool {
    costs.is_none_or(|costs| {
        let Costs { switch, migrate, release, tick, interrupt, ordinary, .. } = costs;
        [switch, migrate, release, tick, interrupt, ordinary].iter().all(|cost| cost.is_zero())
    })
}

impl UnitTask {
    pub(crate) fn new(id: TaskId, system: &System) -> UnitTask {
        let task = &system.tasks[id.index()];
        let sections = task.sections();
        let length = |(from, to): &(Span, Span)| to.saturating_sub(*from).as_ns();
        let longest = sections.iter().max_by_key(|section| length(section));
        UnitTask {
            id,
            name: task.name.clone(),
            c: task.wcet.as_ns(),
            wcet: task.wcet.as_ns(),
            t: task.period.as_ns(),
            d: task.deadline.as_ns(),
            j: system.release_jitter(id).as_ns(),
            b: task.blocking.as_ns(),
            section_blocking: 0,
            section: longest.map_or(0, length),
            sections: sections.iter().map(|(from, to)| (from.as_ns(), to.as_ns())).collect(),
            section_start: longest.map_or(0, |(from, _)| from.as_ns()),
            last_section: sections.last().map_or(1, length),
            o: task.offset.as_ns(),
            level: 0,
            shift: 0,
            chained: !task.after.is_empty(),
            cancellable: system.may_cancel(task),
            dense: matches!(task.arrival, Arrival::Periodic | Arrival::Sporadic),
            periodic: task.arrival == Arrival::Periodic,
            sporadic: task.arrival == Arrival::Sporadic,
            server: false,
            overrun: 0,
            cuts: 0,
        }
    }
}

/// Whether all of these can arrive at one instant, and then as densely as their periods allow. Then a test that is
/// exact for sporadic tasks is exact for them.
pub(crate) fn synchronous<'a>(mut tasks: impl Iterator<Item = &'a UnitTask> + Clone) -> bool {
    let Some(first) = tasks.clone().next() else { return true };
    let offset = first.o;
    tasks.all(|task| task.o == offset && task.j == 0 && task.b == 0 && !task.chained && task.dense)
}

/// The scheduler's tick and interrupts, where they cost anything, each as often as it comes.
pub(crate) fn overheads(costs: Option<Costs>) -> impl Iterator<Item = Tick> {
    let costs = costs.unwrap_or(Costs::NONE);
    [(costs.tick, costs.tick_period), (costs.interrupt, costs.interrupt_period)]
        .into_iter()
        .filter(|(c, t)| !c.is_zero() && !t.is_zero())
        .map(|(c, t)| Tick { c: c.as_ns(), t: t.as_ns() })
}

/// The cost of cutting a job in two: the new piece may meet one more tick and one more interrupt. `None` above 64 bits.
pub(crate) fn cost_of_cut(costs: Option<Costs>) -> Option<u64> {
    overheads(costs).try_fold(0u64, |all, overhead| all.checked_add(overhead.c))
}

/// Two overheads as one, with the sum of their times and the shorter of their periods. It takes no less than both.
pub(crate) fn merge_overheads(one: Tick, other: Tick) -> Tick {
    Tick { c: one.c.saturating_add(other.c), t: one.t.min(other.t) }
}

/// A span as messages write it.
pub(crate) fn ns(ns: u64) -> Span {
    Span::from_ns(ns)
}

/// Whether a node's placement binds tasks to CPUs.
pub(crate) fn binds(spec: &NodeSpec) -> bool {
    spec.placement != Placement::Global
}
