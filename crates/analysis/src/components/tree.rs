//! A System's tree of components as units: every server a task of the level above it, every
//! component a unit under the server's supply.

use takt_model::plan::PlanError;
use takt_model::{
    Arrival, Component, ComponentId, Costs, CpuSet, Exec, NodeId, NodeSpec, Placement, Plan, ServerRule, Span, System,
    Task, TaskId, gcd,
};

use crate::compositional::around::{ancestors, given};
use crate::compositional::rules::{OuterOrder, bounded, capped, guaranteed, on_time, takes};
use crate::compositional::{Guarantee, Mpr, Start};
use crate::reservation::deterministic::Reservation;
use crate::reservation::{arrivals_of, exec_of, level};
use crate::scope::{Ordinary, Unit, UnitTask, View, free_of_costs};
use crate::server::ServerSupply;
use crate::server_costs::{cuts, loss, preemptions, resume_cost};

/// A System in which every server with a period and a budget is a task of the level above it,
/// behind the file's own tasks.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// The System with those tasks.
    pub(crate) system: System,
    /// The number of the file's own tasks, which come first.
    pub(crate) file_tasks: usize,
    /// Per component, the tasks that stand for its servers: one for each of its CPUs.
    servers: Vec<Vec<TaskId>>,
    /// The component of each task behind the file's own.
    server_components: Vec<ComponentId>,
}

/// How exactly constant-bandwidth servers are enforced. Times are in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Enforced {
    /// The longest time from the end of a budget until this is noticed. 0: at once.
    pub(crate) overrun: u64,
    /// The time that ordinary threads take, if the file does not say it.
    pub(crate) ordinary: Option<Ordinary>,
}

impl Tree {
    pub(crate) fn new(system: &System) -> Tree {
        let mut tree = Tree {
            system: system.clone(),
            file_tasks: system.tasks.len(),
            servers: vec![Vec::new(); system.components.len()],
            server_components: Vec::new(),
        };
        let allowed = allowed(system);
        for (i, component) in system.components.iter().enumerate() {
            let id = ComponentId(i as u32);
            let (Some(period), Some(budget)) = (given(component.period), given(component.budget)) else { continue };
            let preemptions = preemptions(system, id, period);
            let shares = component.shares(Span::from_ns(period), Span::from_ns(budget));
            for (number, budget) in shares.iter().map(|share| share.as_ns()).enumerate().filter(|(_, c)| *c > 0) {
                let c = preemptions.and_then(|extra| budget.checked_add(extra)).unwrap_or(u64::MAX / 4);
                let name = match component.cpus {
                    0 | 1 => component.name.clone(),
                    _ => format!("{}#{}", component.name, number + 1),
                };
                let mut task = Task::periodic(&name, Span::from_ns(period), Span::from_ns(c));
                task.node = component.node;
                task.component = component.parent;
                task.priority = component.priority;
                let bound = component.server_cpus.get(number).filter(|_| component.parent.is_none());
                let clusters = || system.nodes[component.node.index()].clusters().into_iter();
                task.cpus = bound.map_or(allowed[i], |cpu| clusters().find(|cluster| cluster.contains(*cpu)));
                tree.servers[i].push(TaskId(tree.system.tasks.len() as u32));
                tree.server_components.push(id);
                tree.system.tasks.push(task);
            }
        }
        tree
    }

    /// The component whose server a task stands for.
    pub(crate) fn component_of(&self, task: TaskId) -> Option<ComponentId> {
        self.server_components.get(task.index().checked_sub(self.file_tasks)?).copied()
    }

    /// The name of the component and the number of the server, from 1 on. `None` unless the task stands for one of
    /// several servers.
    pub(crate) fn server_number(&self, task: TaskId) -> Option<(&str, usize)> {
        let id = self.component_of(task).filter(|id| self.component(*id).cpus > 1)?;
        let at = self.servers[id.index()].iter().position(|server| *server == task)?;
        Some((&self.component(id).name, at + 1))
    }

    /// The tasks that stand for a component's servers, one for each of its CPUs.
    pub(crate) fn servers(&self, id: ComponentId) -> &[TaskId] {
        &self.servers[id.index()]
    }

    /// The System of the file, with the CPUs that its servers have been bound to.
    pub(crate) fn into_placed(mut self) -> System {
        let nodes = &self.system.nodes;
        for (component, servers) in self.system.components.iter_mut().zip(&self.servers) {
            if nodes[component.node.index()].placement == Placement::Global {
                continue;
            }
            let cpus = servers.iter().filter_map(|id| self.system.tasks[id.index()].cpus?.lowest());
            let cpus: Vec<u32> = cpus.collect();
            // A server without a budget is nowhere; it comes last.
            if let (None, Some(first)) = (component.parent, cpus.first().copied()) {
                component.server_cpus = cpus;
                component.server_cpus.resize(component.cpus as usize, first);
            }
        }
        self.system.tasks.truncate(self.file_tasks);
        self.system
    }

    /// Adds the node's components to a view of the system with servers, as units of their own.
    pub(crate) fn add_components(&self, view: &mut View, node: NodeId, enforced: Enforced) {
        for unit in &mut view.units {
            let marked = self.mark_servers(unit);
            if enforced.ordinary.is_some() {
                unit.ordinary = enforced.ordinary;
            }
            if unit.has_cbs {
                self.find_overruns(unit, enforced.overrun);
            }
            unit.no_verdict = self.unsized_component(node, None).or(marked.clone().err());
            view.refused.extend(marked.err().map(|why| (unit.scope.clone(), why)));
        }
        // Outer ones first.
        let mut order: Vec<(usize, ComponentId)> = (0..self.system.components.len())
            .map(|i| ComponentId(i as u32))
            .filter(|id| self.component(*id).node == node)
            .map(|id| (ancestors(&self.system, id).count(), id))
            .collect();
        order.sort();
        for (_, id) in order {
            let scope = self.scope(&view.scope, id);
            match self.unit(view, id, scope.clone()) {
                Ok(mut unit) => {
                    let marked = self.mark_servers(&mut unit);
                    unit.no_verdict = self.unsized_component(node, Some(id)).or(marked.clone().err());
                    view.refused.extend(marked.err().map(|why| (scope.clone(), why)));
                    // A server takes time even if the component is empty.
                    if let (true, Some(Err(why))) =
                        (unit.tasks.is_empty(), unit.served.as_ref().map(ServerSupply::given))
                    {
                        view.refused.push((scope, why));
                    }
                    view.units.push(unit);
                }
                Err(error) => view.refused.push((scope, self.plan_error(&error))),
            }
        }
    }

    /// Finds the constant-bandwidth servers of a unit that may use a budget up, and so overrun it by up to `overrun`.
    /// Also finds how late budgets may come because of this. Times are in ns.
    ///
    /// A server never overruns under two conditions. Its only task comes no sooner than the latest
    /// deadline of the job before it, plus the longest lateness of that job. And it needs less than
    /// a whole budget, costs included. Then each job starts with a whole budget and does not use it up.
    /// The more servers overrun, the later budgets come. So this is a least fixed point, sought from below.
    fn find_overruns(&self, unit: &mut Unit, overrun: u64) {
        loop {
            let overruns = unit.tasks.iter().map(|task| task.overrun).fold(0, u64::saturating_add);
            unit.budget_lateness = level::budget_lateness(unit, overruns);
            let (late, mut settled) = (unit.budget_lateness, true);
            for i in 0..if overrun > 0 { unit.tasks.len() } else { 0 } {
                let task = &unit.tasks[i];
                let id = self.component_of(task.id).filter(|id| {
                    matches!(self.component(*id).server, ServerRule::Cbs | ServerRule::CbsHard | ServerRule::Grub)
                });
                if let (Some(id), 0) = (id, task.overrun)
                    && !self.never_used_up(id, unit, late)
                {
                    unit.tasks[i].overrun = overrun;
                    settled = false;
                }
            }
            if settled {
                return;
            }
        }
    }

    /// Whether no budget of a constant-bandwidth server is ever used up, if budgets come at most
    /// `late` after their deadlines.
    fn never_used_up(&self, id: ComponentId, unit: &Unit, late: u64) -> bool {
        let component = self.component(id);
        let (Some(period), Some(budget)) = (given(component.period), given(component.budget)) else { return false };
        let mut inside = self.system.tasks.iter().enumerate().filter(|(_, task)| task.component == Some(id));
        let (Some((i, task)), None) = (inside.next(), inside.next()) else { return false };
        let plain = i < self.file_tasks && self.reserves(id) && task.after.is_empty() && task.blocking.is_zero();
        let task_id = TaskId(i as u32);
        let Some(done) = period.checked_add(late) else { return false };
        let needs = loss(&self.system, self.file_tasks, id, done).and_then(|lost| {
            let own = unit.charged(&UnitTask::new(task_id, &self.system))?;
            own.checked_add(lost)
        });
        let apart = self.system.release_jitter(task_id).is_zero() && task.period.as_ns() >= done;
        plain && apart && needs.is_some_and(|needs| needs < budget)
    }

    fn component(&self, id: ComponentId) -> &Component {
        &self.system.components[id.index()]
    }

    /// The message about a component whose server has no period or budget, directly in `parent` or in the node.
    fn unsized_component(&self, node: NodeId, parent: Option<ComponentId>) -> Option<String> {
        let mut all = self.system.components.iter().zip(&self.servers);
        let open = |component: &Component| component.node == node && component.parent == parent;
        all.find(|(component, servers)| open(component) && servers.is_empty()).map(|(component, _)| {
            format!("component \"{}\" is not sized yet, and takes time from all tasks beside it", component.name)
        })
    }

    /// "n1/outer/inner".
    fn scope(&self, node: &str, id: ComponentId) -> String {
        let mut names: Vec<&str> = ancestors(&self.system, id).map(|id| self.component(id).name.as_str()).collect();
        names.reverse();
        let outer: String = names.iter().map(|name| format!("{name}/")).collect();
        format!("{node}/{outer}{}", self.component(id).name)
    }

    /// Marks the tasks of a unit that stand for servers, with the demand of these servers.
    ///
    /// # Errors
    /// A rule that the unit's order cannot keep.
    fn mark_servers(&self, unit: &mut Unit) -> Result<(), String> {
        let above = above(unit);
        let mut refused = Ok(());
        let quantum = self.quantum_of_level(unit);
        for i in 0..unit.tasks.len() {
            // The rest of the quantum in which a task completes is lost, and so is the quantum in
            // which it arrives. With costs it may complete anywhere in a quantum.
            let off_grid = quantum > 0 && !self.on_grid(&unit.tasks[i], quantum);
            let free = unit.free_of_costs();
            let task = &mut unit.tasks[i];
            if off_grid && free {
                task.c = task.c.div_ceil(quantum).saturating_mul(quantum);
            } else if off_grid {
                task.c = task.c.saturating_add(quantum - 1);
            }
            let Some(id) = self.component_of(task.id) else { continue };
            let (component, task) = (self.component(id), &mut unit.tasks[i]);
            task.server = true;
            (task.dense, task.periodic, task.sporadic) = (false, false, false);
            let parts = in_parts(component, unit.costs);
            if let Err(why) = takes(component.server, above).and_then(|()| on_several(component)).and(parts) {
                refused = Err(format!("component \"{}\": {why}", component.name));
            }
            match component.server {
                ServerRule::Deferrable => {
                    // Its deadline counts from the first instant at which it may be late.
                    let carry = task.t.saturating_sub(given(component.budget).unwrap_or(0));
                    task.j = task.j.saturating_add(carry);
                    task.d = task.d.saturating_add(carry);
                }
                ServerRule::Cbs | ServerRule::CbsHard if unit.served.is_some() => {
                    refused = Err(format!(
                        "component \"{}\": a constant-bandwidth server needs bandwidth at any time, and no \
                         server around it can promise this",
                        component.name
                    ));
                }
                ServerRule::Cbs | ServerRule::CbsHard | ServerRule::Grub => {
                    unit.has_cbs = true;
                    task.cuts = if free_of_costs(unit.costs) { 0 } else { cuts(&self.system, id) };
                }
                _ => {}
            }
        }
        if quantum > 0 {
            for task in &mut unit.tasks {
                // On several CPUs everything happens on the grid. An arrival off the grid is
                // released at its next point.
                if unit.m == 1 {
                    task.b = task.b.saturating_add(quantum);
                } else if !self.on_grid(task, quantum) {
                    task.j = task.j.saturating_add(quantum);
                }
            }
        }
        refused
    }

    /// The coarsest quantum of decisions among the servers of a unit. 0 if everything in the unit
    /// happens on its grid.
    fn quantum_of_level(&self, unit: &Unit) -> u64 {
        let servers = unit.tasks.iter().filter_map(|task| self.component_of(task.id));
        let quantum = servers.filter_map(|id| self.component(id).quantum).map(Span::as_ns).max().unwrap_or(0);
        if quantum > 0 && unit.tasks.iter().all(|task| self.on_grid(task, quantum)) { 0 } else { quantum }
    }

    /// Whether a task is a server whose budgets all come and end on a grid.
    fn on_grid(&self, task: &UnitTask, quantum: u64) -> bool {
        let Some(id) = self.component_of(task.id) else { return false };
        let interface = (given(self.component(id).period), given(self.component(id).budget));
        let multiple = |value: Option<u64>| value.is_some_and(|value| value.is_multiple_of(quantum));
        // Each of several servers has a share.
        let share =
            self.component(id).cpus <= 1 || self.system.tasks[task.id.index()].wcet.as_ns().is_multiple_of(quantum);
        on_time(self.component(id).server) && multiple(interface.0) && multiple(interface.1) && share
    }

    /// A component's tasks and inner servers under its server's supply.
    fn unit(&self, view: &View, id: ComponentId, scope: String) -> Result<Unit, PlanError> {
        let component = self.component(id);
        let system = &self.system;
        let inside = system.tasks_of(component.node).filter(|(_, task)| task.component == Some(id));
        let plan = Plan::of_tasks(inside, &system.strategy(component.strategy))?;
        let slots: Vec<usize> = (0..plan.tasks.len()).collect();
        let spec = &system.nodes[component.node.index()];
        let mut paid = spec.clone();
        if let (Some(costs), 0 | 1) = (&mut paid.costs, component.cpus) {
            costs.switch = resume_cost(spec, costs, spec.cpus).unwrap_or(Span::MAX);
        }
        let mut unit = Unit::new(system, &paid, &plan, &slots, scope, component.cpus, true);
        unit.served = Some(self.server_supply(view, id, spec));
        Ok(unit)
    }

    fn server_supply(&self, view: &View, id: ComponentId, spec: &NodeSpec) -> ServerSupply {
        let component = self.component(id);
        let loss = match (given(component.period), given(component.budget)) {
            (Some(period), Some(budget)) => {
                loss(&self.system, self.file_tasks, id, period).map(|loss| (period, budget, loss))
            }
            _ => None,
        };
        let mut served = ServerSupply {
            component: id,
            supply: Err(String::new()),
            interface: loss.map(|(period, budget, _)| (period, budget)),
            form: "prm",
            late: self.unaligned(id, Start::Anywhere).delay,
            loss: loss.map_or(0, |(_, _, loss)| loss),
            capped: capped(component.server),
            servers: self.servers[id.index()].clone(),
            wide: None,
            bounded: bounded(component.server),
            reservation: Err(String::new()),
            random: None,
        };
        let Some((period, budget, loss)) = loss else {
            let auto = given(component.period).is_none() || given(component.budget).is_none();
            let why = if auto {
                "its period or budget is \"auto\"; takt size fills it in"
            } else {
                "costs exceed 64-bit nanoseconds"
            };
            served.supply = Err(why.to_owned());
            served.reservation = Err(why.to_owned());
            served.wide = (component.cpus > 1).then(|| Err(why.to_owned()));
            return served;
        };
        // Bound to CPUs, the servers of one component may stand on several levels: the least of
        // what they keep.
        let levels =
            self.servers[id.index()].iter().map(|server| unit_with(view, *server).map_or(OuterOrder::Other, above));
        let above =
            levels.reduce(|one, other| if one == other { one } else { OuterOrder::Other }).unwrap_or(OuterOrder::Other);
        // The longest lateness of a budget of its server.
        let late = self.servers[id.index()].iter().filter_map(|server| unit_with(view, *server));
        let late = late.map(|unit| if unit.has_cbs { unit.budget_lateness } else { 0 }).max().unwrap_or(0);
        let refuse = |why: &str| Err(format!("server \"{}\" guarantees it nothing: {why}", component.server.name()));
        let bound = |task: &Task| task.cpus.is_some() && spec.cpus > 1;
        let bound = self.system.tasks[..self.file_tasks].iter().find(|task| task.component == Some(id) && bound(task));
        let used_up = || format!("its budget {} is used up by what switching costs", Span::from_ns(budget));
        served.reservation = match (component.server, above) {
            (ServerRule::Cbs | ServerRule::CbsHard, OuterOrder::Deadline) if component.quantum.is_some() => {
                Err("needs a server without a quantum".to_owned())
            }
            (ServerRule::Cbs | ServerRule::CbsHard, OuterOrder::Deadline) if bound.is_none() && late > period => {
                Err(format!(
                    "needs budgets that come no later than a period after their deadline, here {}",
                    Span::from_ns(late)
                ))
            }
            (ServerRule::Cbs | ServerRule::CbsHard, OuterOrder::Deadline) if bound.is_none() => {
                let left = budget.checked_sub(loss);
                left.and_then(|left| Reservation::cbs(period, left)).map(|cbs| cbs.late(late)).ok_or_else(used_up)
            }
            (ServerRule::Cbs | ServerRule::CbsHard, _) => Err("needs edf on one CPU above the server".to_owned()),
            _ => Err("needs a constant-bandwidth server, cbs or cbs-hard".to_owned()),
        };
        let mut inside = self.system.tasks.iter().enumerate().filter(|(_, task)| task.component == Some(id));
        if let (true, Some((i, task)), None) = (served.reservation.is_ok(), inside.next(), inside.next())
            && (task.exec != Exec::Wcet || !matches!(task.arrival, Arrival::Periodic | Arrival::Sporadic))
        {
            let jitter = self.system.release_jitter(TaskId(i as u32));
            served.random = exec_of(task).ok().zip(arrivals_of(&Task { jitter, ..task.clone() }).ok());
        }
        if component.cpus > 1 {
            let wide = self.mpr_supply(id, spec, above, period, budget).and_then(|supply| match bound {
                Some(_) => Err("tasks in a component run where its servers run; remove their cpus".to_owned()),
                None => Ok(supply),
            });
            let why = || format!("it runs on {} CPUs, where mpr decides", component.cpus);
            served.supply = Err(wide.as_ref().map_or_else(String::clone, |_| why()));
            (served.reservation, served.form) = (Err(why()), "mpr");
            served.wide = Some(wide);
            return served;
        }
        served.supply = match guaranteed(component.server, above) {
            Err(why) => refuse(why),
            Ok(_) if bound.is_some() => refuse("tasks in a component run where its server runs; remove their cpus"),
            Ok(start) => {
                let guarantee = self.guarantee(id, period, start);
                served.form = match guarantee.start {
                    Start::Anywhere => "prm",
                    Start::Polled => "polled",
                    Start::Aligned => "aligned",
                };
                let supply = budget.checked_sub(loss).and_then(|left| guarantee.supply(period, left));
                supply.map(|supply| supply.delayed(late)).ok_or_else(used_up)
            }
        };
        served
    }

    /// The supply of a component on several CPUs.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn mpr_supply(
        &self,
        id: ComponentId,
        spec: &NodeSpec,
        above: OuterOrder,
        period: u64,
        budget: u64,
    ) -> Result<Mpr, String> {
        let component = self.component(id);
        on_several(component)?;
        guaranteed(component.server, above)?;
        if !free_of_costs(spec.costs) {
            return Err("on several CPUs costs of switching are not covered; give its node no costs".to_owned());
        }
        Mpr::new(period, budget, component.cpus).ok_or_else(|| "its budget and period do not fit".to_owned())
    }

    /// Whether a component is a constant-bandwidth server with one task and nothing else. Such a
    /// task can count on more than the supply.
    pub(crate) fn reserves(&self, id: ComponentId) -> bool {
        let component = self.component(id);
        let rule = matches!(component.server, ServerRule::Cbs | ServerRule::CbsHard);
        let mut inside = self.system.tasks.iter().enumerate().filter(|(_, task)| task.component == Some(id));
        let first = inside.next().is_some_and(|(i, _)| i < self.file_tasks);
        rule && component.quantum.is_none() && first && inside.next().is_none()
    }

    /// The guarantee of a server with this period, if it guarantees `start` to any interval.
    pub(crate) fn guarantee(&self, id: ComponentId, period: u64, start: Start) -> Guarantee {
        let component = self.component(id);
        let grid = self.release_grid(id);
        let delay = component.quantum.map_or(0, Span::as_ns);
        if on_time(component.server) && grid > 0 && grid.is_multiple_of(period) && period.is_multiple_of(delay.max(1)) {
            return Guarantee { start: Start::Aligned, delay: 0, wait: None };
        }
        self.unaligned(id, start)
    }

    /// The guarantee of a server with any period.
    pub(crate) fn unaligned(&self, id: ComponentId, start: Start) -> Guarantee {
        let (grid, delay) = (self.release_grid(id), self.component(id).quantum.map_or(0, Span::as_ns));
        // An arrival between two decisions may wait for the next one.
        let noticed = delay == 0 || (grid > 0 && grid.is_multiple_of(delay));
        Guarantee { start, delay: if noticed { 0 } else { delay }, wait: None }
    }

    /// All releases in a component fall on multiples of this. 0: they may fall on any instant.
    pub(crate) fn release_grid(&self, id: ComponentId) -> u64 {
        let mut grid = 0;
        for (i, task) in self.system.tasks.iter().enumerate().filter(|(_, task)| task.component == Some(id)) {
            let inner = self.component_of(TaskId(i as u32));
            let strict = match inner {
                Some(inner) => on_time(self.component(inner).server),
                None => {
                    let on_time = self.system.release_jitter(TaskId(i as u32)).is_zero();
                    task.arrival == Arrival::Periodic && on_time && task.after.is_empty()
                }
            };
            if !strict {
                return 0;
            }
            grid = gcd(gcd(grid, task.period.as_ns()), task.offset.as_ns());
        }
        grid
    }

    /// The text of a plan's error. It names components as such.
    pub(crate) fn plan_error(&self, error: &PlanError) -> String {
        match error {
            PlanError::NoPriority { strategy, id, .. } => match self.component_of(*id) {
                Some(inner) => format!(
                    "component \"{}\" has no priority, which strategy \"{strategy}\" around it needs for its \
                     server; give it a priority, 1 is the most important",
                    self.component(inner).name
                ),
                None => error.to_string(),
            },
            _ => error.to_string(),
        }
    }
}

/// The unit of a task.
pub(crate) fn unit_with(view: &View, task: TaskId) -> Option<&Unit> {
    view.units.iter().find(|unit| unit.tasks.iter().any(|own| own.id == task))
}

/// How a unit orders its jobs.
pub(crate) fn above(unit: &Unit) -> OuterOrder {
    match (unit.edf().is_ok(), unit.m) {
        (true, 1) => OuterOrder::Deadline,
        (true, _) => OuterOrder::Global,
        (false, m) if m > 1 && unit.fifo_levels() as usize == unit.levels.len() => OuterOrder::Global,
        (false, 1) if unit.fifo_levels() as usize == unit.levels.len() => OuterOrder::Fixed,
        _ => OuterOrder::Other,
    }
}

/// Per component, the CPUs that its tasks leave to it, where they name some.
fn allowed(system: &System) -> Vec<Option<CpuSet>> {
    let mut allowed: Vec<Option<CpuSet>> = vec![None; system.components.len()];
    for task in &system.tasks {
        let (Some(inner), Some(cpus)) = (task.component, task.cpus) else { continue };
        let root = std::iter::once(inner).chain(ancestors(system, inner)).last().unwrap_or(inner);
        let left = &mut allowed[root.index()];
        *left = Some(left.map_or(cpus, |left| left.intersection(&cpus)));
    }
    allowed
}

/// Whether a rule keeps its promise on several CPUs at once.
fn on_several(component: &Component) -> Result<(), &'static str> {
    if component.cpus > 1 && !on_time(component.server) {
        return Err("a component on several CPUs is covered with the servers \"ptps\", \"wcps\" and \"crps\" only");
    }
    Ok(())
}

/// Whether the number of a server's resumptions is known, if each of them costs something.
fn in_parts(component: &Component, costs: Option<Costs>) -> Result<(), &'static str> {
    let dear = costs.is_some_and(|costs| !costs.switch.is_zero() || !costs.migrate.is_zero());
    if component.server == ServerRule::Sporadic && dear {
        return Err(
            "the budget of a sporadic server may come back in any number of parts, each of which would cost a \
             switch; on a node with costs of switching, use another rule",
        );
    }
    Ok(())
}
