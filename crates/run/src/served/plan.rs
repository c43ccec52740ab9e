//! The servers and the places of threads that a node's components become under sched_ext. Pure.
//!
//! A CPU has entries in scopes: the node first, then each component with components in it. The entries of a scope are
//! its own tasks and then its servers, each in the order of the file. An entry has a level and an order by the strategy
//! of its scope. The threads of any other component have them by that of their component, as in
//! [`takt_policy::Hierarchy`].
//!
//! A component may have a server on each of several CPUs. They share its budget evenly, as in a simulation. Each of
//! them is an entry of its own CPU alone. The component's threads are a *pool*, from which all of these CPUs take.

use std::collections::BTreeMap;

use takt_linux::sched_ext::{
    BANDWIDTH_PERIOD_MAX, CHANGES_MAX, LEVELS_MAX, Member, Order, Rule, SERVERS_MAX, TIES_MAX, Terms,
};
use takt_model::plan::{self, PlanLevel, PlanTask};
use takt_model::{
    Component, ComponentId, CpuSet, NodeId, Plan, ServerRule, ServerSwitch, Span, StrategyRef, System, Task, TaskId,
    Threads, Time,
};
use takt_policy::CpuPart;

use crate::contract::Obstacle;
use crate::error::RunError;

/// The input of the scheduler.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedPlan {
    pub(crate) cpus: Vec<ServedCpu>,
    /// By slot of the node's tasks. CPUs are those of the model.
    pub(crate) members: Vec<Member>,
    /// Changes of servers, in the order of time.
    pub(crate) changes: Vec<Change>,
    /// Of each pool its servers, by CPU and number there.
    pub(crate) pools: Vec<Vec<(u32, u32)>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ServedCpu {
    pub(crate) cpu: u32,
    pub(crate) entries: Vec<Terms>,
    /// The component of each entry; `None` for a task beside servers.
    pub(crate) components: Vec<Option<ComponentId>>,
}

/// A server has other terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) at: Time,
    /// Of the model.
    pub(crate) cpu: u32,
    pub(crate) server: u32,
    pub(crate) terms: Terms,
}

/// The first levels of servers are multiples of this, so that others fit between.
pub(crate) const LEVEL_GAP: u32 = 1 << 16;
/// The scheduler decides at most this late when nothing but a clock tells it to. No budget is below.
pub(crate) const GRID: Span = Span::from_ms(1);
/// Changes are given to the scheduler this much before their instants, because the giver may come late.
pub(crate) const AHEAD: Span = Span::from_ms(30);
/// The usual remedy.
const MANAGER: &str = "use --backend manager";

/// The plan of a node, and what stands in its way.
pub(crate) fn plan(system: &System, node: NodeId) -> Result<(ServedPlan, Vec<Obstacle>), RunError> {
    let spec = system.nodes.get(node.index()).ok_or(RunError::NoNode(node.0))?;
    let (name, mut cannot) = (format!("node \"{}\"", spec.name), Vec::new());
    if system.modes.iter().any(|mode| mode.node == node) {
        let why = "its strategy changes ([[mode]] with a strategy), and the scheduler keeps the order of its levels";
        cannot.push(Obstacle::new(&name, why, MANAGER));
    }
    if system.cancels(node) {
        cannot.push(Obstacle::new(&name, "the kernel cancels no job (cancel = true)", MANAGER));
    }
    let parts = CpuPart::of_node(system, node)?;
    // Parts of a partitioned node have several CPUs if a component has servers on them.
    let clusters = spec.clusters();
    let is_alone = |cpu: &u32| clusters.iter().any(|cluster| cluster.contains(*cpu) && cluster.len() == 1);
    if let Some(shared) = parts.iter().find(|part| part.is_shared() && !part.cpus.iter().all(is_alone)) {
        cannot.push(Obstacle::of_shared_cpus(system, node, &shared.cpu_set(), "each server has a CPU of its own here"));
        return Ok((ServedPlan::default(), cannot));
    }
    let is_wide = |(_, component): &(ComponentId, &Component)| component.node == node && component.cpus > 1;
    let wide: Vec<(ComponentId, &Component)> = (0..).map(ComponentId).zip(&system.components).filter(is_wide).collect();
    let before = cannot.len();
    cannot.extend(wide.iter().filter_map(|(id, component)| cannot_be_apart(system, *id, component)));
    if cannot.len() > before {
        return Ok((ServedPlan::default(), cannot));
    }
    let pools = wide.into_iter().map(|(id, _)| id).collect();
    let mut maker = Maker { system, cannot, served: ServedPlan::default(), places: Vec::new(), pools };
    maker.served.pools = vec![Vec::new(); maker.pools.len()];
    for part in &parts {
        for cpu in &part.cpus {
            maker.add_cpu(&name, node, spec.strategy, (part, *cpu))?;
        }
    }
    maker.places.sort_unstable_by_key(|(slot, _)| *slot);
    maker.served.members = maker.places.into_iter().map(|(_, member)| member).collect();
    maker.served.changes.sort_by_key(|change| change.at);
    Ok((maker.served, maker.cannot))
}

/// Why the servers of a component on several CPUs cannot be kept, each by its CPU alone.
fn cannot_be_apart(system: &System, id: ComponentId, component: &Component) -> Option<Obstacle> {
    let (name, count) = (format!("component \"{}\"", component.name), component.cpus);
    let refused = |why: String, remedy: &str| Some(Obstacle::new(&name, why, remedy));
    let one_cpu = "give it one CPU (cpus = 1), or use --backend manager";
    let mut numbered = component.server_cpus.iter().enumerate();
    let twice = numbered.find(|(at, cpu)| component.server_cpus.iter().take(*at).any(|other| other == *cpu));
    if let Some((_, cpu)) = twice {
        let why = format!("two of its servers are on CPU {cpu}, and each needs a CPU of its own here");
        return refused(why, "name another CPU in server-cpus, or use --backend manager");
    }
    if component.parent.is_some() || system.components.iter().any(|inner| inner.parent == Some(id)) {
        return refused(format!("it has servers on {count} CPUs, and is nested"), one_cpu);
    }
    if component.threads.is_some() {
        return refused(format!("it has servers on {count} CPUs, and existing threads have one server here"), one_cpu);
    }
    let mut rules = terms_of(system, id, component).into_iter().map(|(_, rule, ..)| rule);
    // Whether other servers have budget for its work depends on all of its CPUs.
    let rule = rules.find(|rule| !matches!(rule, ServerRule::Ptps | ServerRule::Wcps | ServerRule::Crps))?.name();
    let why = format!("it has servers on {count} CPUs, and no CPU knows alone whether a {rule} server has work");
    refused(why, "use --backend manager, or another rule: ptps, wcps, crps")
}

struct Maker<'a> {
    system: &'a System,
    cannot: Vec<Obstacle>,
    served: ServedPlan,
    /// Slots of the node's tasks, and their places.
    places: Vec<(u32, Member)>,
    /// The components with servers on several CPUs.
    pools: Vec<ComponentId>,
}

impl Maker<'_> {
    fn add_cpu(
        &mut self,
        name: &str,
        node: NodeId,
        strategy: StrategyRef,
        (part, number): (&CpuPart, u32),
    ) -> Result<(), RunError> {
        let system = self.system;
        let of_node: Vec<(TaskId, &Task)> = system.tasks_of(node).collect();
        // The outermost component tells where a component is.
        let serves = |id: ComponentId| {
            let outermost = system.around(id).last().and_then(|id| system.components.get(id.index()));
            !part.is_shared() || outermost.is_some_and(|component| component.server_cpus.contains(&number))
        };
        let is_bound = |task: &Task| !part.is_shared() || task.cpus.is_some_and(|cpus| cpus.contains(number));
        let components: Vec<ComponentId> = part.components.iter().copied().filter(|id| serves(*id)).collect();
        let tasks: Vec<(u32, TaskId, &Task)> = part
            .slots
            .iter()
            .filter_map(|slot| of_node.get(*slot as usize).map(|(id, task)| (*slot, *id, *task)))
            .filter(|(.., task)| task.component.map_or_else(|| is_bound(task), serves))
            .collect();
        let mut cpu = ServedCpu { cpu: number, entries: Vec::new(), components: Vec::new() };
        self.add_scope(&mut cpu, None, (name, strategy), &tasks, &components)?;
        let mut at = 0;
        while let Some(entry) = cpu.components.get(at).copied() {
            if let Some((id, component)) = entry.and_then(|id| Some((id, system.components.get(id.index())?))) {
                let name = format!("component \"{}\"", component.name);
                let around = (id, at as u32);
                if components.iter().any(|inner| parent_of(system, *inner) == Some(id)) {
                    let scope = (&*name, component.strategy);
                    self.add_scope(&mut cpu, Some(around), scope, &tasks, &components)?;
                } else if self.is_first(id, number) {
                    let inside: Vec<_> =
                        tasks.iter().filter(|(.., task)| task.component == Some(id)).copied().collect();
                    self.add_members(around, component, number, &inside)?;
                }
                if let Some(servers) = self.pool_of(id).and_then(|pool| self.served.pools.get_mut(pool as usize)) {
                    servers.push((number, at as u32));
                }
            }
            at += 1;
        }
        if cpu.entries.len() > SERVERS_MAX {
            let why = format!(
                "CPU {number} has {} servers and tasks beside servers, and the scheduler takes {SERVERS_MAX}",
                cpu.entries.len()
            );
            self.cannot.push(Obstacle::new(name, why, MANAGER));
        }
        self.served.cpus.push(cpu);
        Ok(())
    }

    /// The pool of a component's threads, if it has servers on several CPUs.
    fn pool_of(&self, id: ComponentId) -> Option<u32> {
        self.pools.iter().position(|other| *other == id).map(|pool| pool as u32)
    }

    /// Whether this is the lowest CPU with a server of the component.
    fn is_first(&self, id: ComponentId, cpu: u32) -> bool {
        let component = self.system.components.get(id.index()).filter(|component| component.cpus > 1);
        component.is_none_or(|component| component.server_cpus.iter().min() == Some(&cpu))
    }

    /// The terms of a component's server on this CPU: a share of the component's.
    fn terms_on(&self, cpu: u32, id: ComponentId, component: &Component) -> Vec<ServerTerms> {
        let mut terms = terms_of(self.system, id, component);
        let number = component.server_cpus.iter().position(|other| *other == cpu).unwrap_or(0);
        for (.., period, budget) in &mut terms {
            *budget = component.shares(*period, *budget).get(number).copied().unwrap_or_default();
        }
        terms
    }

    /// The entries of a scope: of the node, or of a component with its entry.
    fn add_scope(
        &mut self,
        cpu: &mut ServedCpu,
        around: Option<(ComponentId, u32)>,
        (name, strategy): (&str, StrategyRef),
        tasks: &[(u32, TaskId, &Task)],
        components: &[ComponentId],
    ) -> Result<(), RunError> {
        let (scope, outer) = around.unzip();
        // For the order of the scope a server is a task of its budget and period, once for each of its terms.
        let of_scope = tasks.iter().filter(|(.., task)| task.component == scope);
        let mut ordered: Vec<(TaskId, Task)> = of_scope.clone().map(|(_, id, task)| (*id, Task::clone(task))).collect();
        let mut of_servers = Vec::new();
        for id in components.iter().filter(|id| parent_of(self.system, **id) == scope) {
            let Some(component) = self.system.components.get(id.index()) else { continue };
            let terms = self.terms_on(cpu.cpu, *id, component);
            // The last of several servers has the least share.
            if component.cpus <= 1 || component.server_cpus.last() == Some(&cpu.cpu) {
                self.look_at(component, &terms);
            }
            for (_, _, period, budget) in &terms {
                let mut task = Task::periodic(&component.name, *period, *budget);
                task.priority = component.priority;
                ordered.push((TaskId(u32::MAX), task));
            }
            of_servers.push((*id, terms));
        }
        let order = self.resolve(name, strategy, ordered.iter().map(|(id, task)| (*id, task)))?;
        let mut places = order.into_iter();
        for ((slot, _, task), place) in of_scope.zip(&mut places) {
            let entry = cpu.entries.len() as u32;
            cpu.entries.push(Terms::new(Rule::Task, (0, 0), spread(place)).within(outer));
            cpu.components.push(None);
            self.places.push((*slot, member(cpu.cpu, entry, (0, Order::Fifo, 0), 0, task)));
        }
        for (id, terms) in of_servers {
            let entry = cpu.entries.len() as u32;
            for (at, rule, period, budget) in terms {
                let (Some(place), Some(rule)) = (places.next(), rule_of(rule)) else { continue };
                let terms = Terms::new(rule, (budget.as_ns(), period.as_ns()), spread(place));
                let terms = terms.within(outer).pooled(self.pool_of(id));
                match at {
                    None => {
                        cpu.entries.push(terms);
                        cpu.components.push(Some(id));
                    }
                    Some(at) => self.served.changes.push(Change { at, cpu: cpu.cpu, server: entry, terms }),
                }
            }
        }
        Ok(())
    }

    /// The places of a component's threads in its server's queue.
    fn add_members(
        &mut self,
        (id, entry): (ComponentId, u32),
        component: &Component,
        cpu: u32,
        inside: &[(u32, TaskId, &Task)],
    ) -> Result<(), RunError> {
        let name = format!("component \"{}\"", component.name);
        if inside.len() > TIES_MAX {
            let why = format!("it has {} tasks, and the order of ties has {TIES_MAX} places", inside.len());
            self.cannot.push(Obstacle::new(&name, why, MANAGER));
        }
        if component.threads.is_some() {
            // Nobody tells of jobs: all threads take turns in the one place.
            for (slot, _, task) in inside {
                let place = Member { tells: 0, ..member(cpu, entry, (0, Order::Shared, 0), 0, task) };
                self.places.push((*slot, place));
            }
            return Ok(());
        }
        let order = self.resolve(&name, component.strategy, inside.iter().map(|(_, id, task)| (*id, *task)))?;
        // Among equal deadlines the earlier arrival goes first, and that is the longer relative deadline.
        let mut ties: Vec<usize> = (0..inside.len()).collect();
        let longest = |at: &usize| {
            let deadline = inside.get(*at).map_or(0, |(_, _, task)| task.deadline.as_ns());
            let place = order.get(*at).copied().filter(|(_, order, _)| *order == Order::Deadline);
            place.map_or(0, |(_, _, shift)| i128::from(deadline) + i128::from(shift))
        };
        ties.sort_by_key(|at| std::cmp::Reverse(longest(at)));
        let pool = self.pool_of(id).map_or(0, |pool| u64::from(pool) + 1);
        for (at, ((slot, _, task), place)) in inside.iter().zip(&order).enumerate() {
            let tie = ties.iter().position(|other| *other == at).unwrap_or(0) as u32;
            self.places.push((*slot, Member { pool, ..member(cpu, entry, *place, tie, task) }));
        }
        Ok(())
    }

    /// The level, the order and the shift of each of these tasks.
    fn resolve<'t>(
        &mut self,
        name: &str,
        strategy: StrategyRef,
        tasks: impl Iterator<Item = (TaskId, &'t Task)>,
    ) -> Result<Vec<(u32, Order, i64)>, RunError> {
        let strategy = self.system.strategy(strategy);
        let plan = Plan::of_tasks(tasks, &strategy)?;
        for why in plan.levels.iter().filter_map(unordered).take(1) {
            self.cannot.push(Obstacle::new(name, format!("strategy \"{}\": {why}", strategy.name), MANAGER));
        }
        if plan.levels.len() > LEVELS_MAX as usize {
            let why = format!("strategy \"{}\" has more than {LEVELS_MAX} levels here", strategy.name);
            self.cannot.push(Obstacle::new(name, why, MANAGER));
        }
        Ok(plan.tasks.iter().map(|task| place(&plan, task)).collect())
    }

    /// Notes what the scheduler cannot do of a component.
    fn look_at(&mut self, component: &Component, terms: &[ServerTerms]) {
        let name = format!("component \"{}\"", component.name);
        let mut add = |why: String, remedy: &str| self.cannot.push(Obstacle::new(&name, why, remedy));
        if let Some(threads @ Threads::Pid(_)) = &component.threads {
            let why =
                format!("it holds \"{threads}\", and the scheduler knows existing threads by their control group");
            add(why, "move the process to a group of its own and name it (cgroup:/...), or use --backend manager");
        }
        if component.quantum.is_some() {
            add("the scheduler decides at any time, not at multiples of a quantum".to_owned(), MANAGER);
        }
        let changes: Vec<Time> = terms.iter().filter_map(|(at, ..)| *at).collect();
        let crowd = changes.windows(CHANGES_MAX).find_map(|some| Some((*some.first()?, *some.last()?)));
        if let Some((first, last)) = crowd.filter(|(first, last)| last.saturating_since(*first) <= AHEAD) {
            let why = format!("{CHANGES_MAX} of its changes ([[mode]]) come within {AHEAD}, from {first} to {last}");
            add(why, "leave some of them out, or use --backend manager");
        }
        for (_, rule, period, budget) in terms.iter().copied() {
            if budget < GRID {
                add(format!("a budget of {budget} is below {GRID}, the grain of the scheduler"), MANAGER);
            }
            if rule_of(rule).is_none() {
                let why = format!("the scheduler has no rule \"{}\"", rule.name());
                add(why, "use --backend manager, or another rule: cbs-hard, deferrable, polling");
            }
            let is_long = period.as_ns() >= BANDWIDTH_PERIOD_MAX || budget.as_ns() >= BANDWIDTH_PERIOD_MAX;
            if matches!(rule, ServerRule::Cbs | ServerRule::CbsHard) && is_long {
                let most = Span::from_ns(BANDWIDTH_PERIOD_MAX - 1);
                add(format!("a {} server has a period of at most {most} here, not {period}", rule.name()), MANAGER);
            }
        }
    }
}

/// Divides changes into two lists: the scheduler gets the first ones at the start, and the others shortly before their
/// instants. Changes come in the order of time. Beside its first terms a server has room for all but one of
/// [`CHANGES_MAX`]. A server `with_group` gets all changes later, because a cpu.max may come before them.
pub(crate) fn given_first(
    changes: impl IntoIterator<Item = Change>,
    with_group: impl Fn(&Change) -> bool,
) -> (Vec<Change>, Vec<Change>) {
    let mut counts = BTreeMap::<(u32, u32), usize>::new();
    changes.into_iter().partition(|change| {
        let count = counts.entry((change.cpu, change.server)).or_default();
        *count += 1;
        *count < CHANGES_MAX && !with_group(change)
    })
}

impl ServedPlan {
    /// The CPUs on which a thread with this place may run.
    pub(crate) fn cpus_of(&self, member: &Member) -> CpuSet {
        match member.pool.checked_sub(1).and_then(|pool| self.pools.get(pool as usize)) {
            Some(servers) => servers.iter().map(|(cpu, _)| *cpu).collect(),
            None => [member.cpu].into_iter().collect(),
        }
    }
}

/// The component around this one.
fn parent_of(system: &System, id: ComponentId) -> Option<ComponentId> {
    system.components.get(id.index())?.parent
}

fn spread((level, order, shift): (u32, Order, i64)) -> (u32, Order, i64) {
    ((level + 1).saturating_mul(LEVEL_GAP), order, shift)
}

fn rule_of(rule: ServerRule) -> Option<Rule> {
    Some(match rule {
        ServerRule::Ptps => Rule::Ptps,
        ServerRule::Wcps => Rule::Wcps,
        ServerRule::Crps => Rule::Crps,
        ServerRule::Polling => Rule::Polling,
        ServerRule::Deferrable => Rule::Deferrable,
        ServerRule::Cbs => Rule::Cbs,
        ServerRule::CbsHard => Rule::CbsHard,
        ServerRule::Sporadic | ServerRule::Grub => return None,
    })
}

pub(crate) fn rule_named(number: u32) -> Option<ServerRule> {
    ServerRule::ALL.into_iter().find(|rule| rule_of(*rule).is_some_and(|rule| rule as u32 == number))
}

/// The rule, period and budget of a server, and since when. `None`: from the start.
pub(crate) type ServerTerms = (Option<Time>, ServerRule, Span, Span);

/// The terms of a server at first, and after each of its changes.
pub(crate) fn terms_of(system: &System, id: ComponentId, component: &Component) -> Vec<ServerTerms> {
    let (period, budget) = (component.period.given(), component.budget.given());
    let mut terms = vec![(None, component.server, period.unwrap_or_default(), budget.unwrap_or_default())];
    let mut changes: Vec<&ServerSwitch> = system.switches.iter().filter(|switch| switch.component == id).collect();
    changes.sort_by_key(|switch| switch.at);
    for change in changes {
        if let Some((_, rule, period, budget)) = terms.last().copied() {
            let rule = change.server.unwrap_or(rule);
            terms.push((Some(change.at), rule, change.period.unwrap_or(period), change.budget.unwrap_or(budget)));
        }
    }
    terms
}

fn place(plan: &Plan, task: &PlanTask) -> (u32, Order, i64) {
    let order = match plan.levels.get(task.level as usize).map(|level| level.order) {
        Some(plan::Order::Deadline) => Order::Deadline,
        _ => Order::Fifo,
    };
    (task.level, order, task.shift_ns)
}

/// Why the scheduler does not keep this level's order.
fn unordered(level: &PlanLevel) -> Option<&'static str> {
    Some(match level {
        _ if level.order == plan::Order::Laxity => "the kernel's queues do not go by laxity",
        _ if !level.preemptive => "the kernel preempts in all levels",
        _ if level.importance_ties => "the kernel's queues do not break ties by importance",
        _ if level.drops || level.demotes => "the kernel neither drops nor demotes late jobs",
        _ => return None,
    })
}

fn member(cpu: u32, server: u32, (level, order, shift): (u32, Order, i64), tie: u32, task: &Task) -> Member {
    Member {
        cpu,
        server,
        level,
        order,
        tie,
        // A job of a chain is released when its thread wakes up.
        tells: u32::from(task.after.is_empty()),
        pool: 0,
        relative: task.deadline.as_ns(),
        shift,
        release: 0,
        deadline: 0,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
