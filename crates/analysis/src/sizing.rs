//! `size`: periods and budgets for the components of a System that has `"auto"` in them.
//!
//! Inner components come first, as an inner server is a task of the component around it. Costs take
//! more of a budget the more often other servers come. So with costs all components are sized again
//! until nothing changes. Periods stay after a few rounds, so that this ends.
//!
//! Budgets are the least that [`check`](crate::check()) proves:
//! 1. The search goes from small budgets upwards, with budgets as early as the level above gives
//!    them ([`early`]).
//! 2. If it does not settle, or `check` does not prove its result, `prm` gives the budgets.
//! 3. Then each budget is lowered as long as `check` still proves the system.

use takt_model::{Auto, Component, ComponentId, CpuSet, NodeId, Placement, Span, System};

use crate::carried::ChainBounds;
use crate::check::proof;
use crate::components::{Enforced, Tasks, Tree, above, unit_with};
use crate::compositional::around::{ancestors, given, within};
use crate::compositional::rules::{OuterOrder, guaranteed, on_time};
use crate::compositional::{
    Guarantee, Interface, Limit, QUANTUM, Search, SizeError, SizedComponent, SizedSystem, Start, aligned_periods, best,
};
use crate::exact::sum_rounded_up;
use crate::scope::{Unit, View, binds};
use crate::server_costs::loss;
use early::{Neighbours, Proofs, by_edp, improve};

mod early;
mod wide;

/// Rounds in which periods may still change.
const PERIOD_ROUNDS_MAX: u32 = 3;
/// All rounds. Twice as many if budgets come early, and so depend on each other.
const ROUNDS_MAX: u32 = 12;

/// Fills in each value that is `auto`. This is the least budget for a given period, the longest
/// period for a given budget, or the pair of the least bandwidth. All are multiples of the
/// component's quantum, or of [`QUANTUM`].
///
/// # Errors
/// A component that no server serves, or that is not covered; a limit of the search.
pub fn size(system: &System) -> Result<SizedSystem, SizeError> {
    let mut nodes: Vec<NodeId> = system.components.iter().map(|component| component.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let prove = |sized: &SizedSystem| -> Option<Proofs> {
        nodes.iter().map(|node| proof(&sized.system, *node).map(|reports| (*node, reports))).collect()
    };
    let early = rounds(system, true).ok();
    let (mut sized, proofs) = match early.and_then(|sized| prove(&sized).map(|proofs| (sized, proofs))) {
        Some((sized, proofs)) => (sized, Some(proofs)),
        // A component that is proven neither way is sized as if it were alone.
        None => {
            let sized = rounds(system, false)?;
            let proofs = prove(&sized);
            (sized, proofs)
        }
    };
    if let Some(mut proofs) = proofs {
        let order = inner_first(system);
        let wanted = |id: &ComponentId| &system.components[id.index()];
        let of =
            |chosen: fn(&Component) -> bool| order.iter().filter(|id| chosen(wanted(id))).copied().collect::<Vec<_>>();
        let budgets = of(|component| component.budget == Auto::Auto);
        let periods = of(|component| component.period == Auto::Auto && component.budget != Auto::Auto);
        improve(&mut sized.system, &mut proofs, &budgets, &periods);
        for sized_one in &mut sized.components {
            let component = &sized.system.components[sized_one.id.index()];
            if let (Auto::Value(period), Auto::Value(budget)) = (component.period, component.budget) {
                (sized_one.period, sized_one.budget) = (period, budget);
            }
            if sized_one.chosen && sized_one.supply != "aligned" && by_edp(component, &proofs) {
                sized_one.supply = "edp";
            }
        }
    }
    sized.notes = notes(system, &sized);
    Ok(sized)
}

/// All components, those inside others before them.
fn inner_first(system: &System) -> Vec<ComponentId> {
    let mut order: Vec<ComponentId> = (0..system.components.len()).map(|i| ComponentId(i as u32)).collect();
    order.sort_by_key(|id| std::cmp::Reverse(ancestors(system, *id).count()));
    order
}

/// Sizes all components until nothing changes; `early`: with budgets that come as early as the
/// level above gives them.
fn rounds(system: &System, early: bool) -> Result<SizedSystem, SizeError> {
    let mut sizing = system.clone();
    provisional(&mut sizing);
    let order = inner_first(system);
    let mut components: Vec<Option<SizedComponent>> = vec![None; system.components.len()];
    let rounds_max = if early { 2 * ROUNDS_MAX } else { ROUNDS_MAX };
    for round in 0..rounds_max {
        let mut changed = false;
        for id in &order {
            let wanted = &system.components[id.index()];
            let keep_period = round >= PERIOD_ROUNDS_MAX;
            let period = if keep_period { given(sizing.components[id.index()].period) } else { given(wanted.period) };
            let sized = size_one(&sizing, *id, period, given(wanted.budget), early)?;
            let component = &mut sizing.components[id.index()];
            let values = (Auto::Value(sized.period), Auto::Value(sized.budget));
            changed |= values != (component.period, component.budget);
            (component.period, component.budget) = values;
            let chosen = wanted.period == Auto::Auto || wanted.budget == Auto::Auto;
            components[id.index()] = Some(SizedComponent { chosen, ..sized });
        }
        if !changed {
            break;
        }
    }
    Ok(SizedSystem { system: sizing, components: components.into_iter().flatten().collect(), notes: Vec::new() })
}

/// Values to start with where there are none: only the order that they stand in and how often they
/// come matter.
fn provisional(system: &mut System) {
    for i in 0..system.components.len() {
        let shortest = |system: &System| {
            let inside = |task: &&takt_model::Task| within(system, task.component, ComponentId(i as u32));
            system.tasks.iter().filter(inside).map(|task| task.period).min()
        };
        let period = shortest(system).unwrap_or(QUANTUM).max(QUANTUM);
        let component = &mut system.components[i];
        let quantum = component.quantum.unwrap_or(QUANTUM);
        if component.period == Auto::Auto {
            component.period = Auto::Value(period.max(quantum));
        }
        if component.budget == Auto::Auto {
            component.budget =
                Auto::Value(Span::from_ns(given(component.period).map_or(1, |p| p.min(quantum.as_ns()))));
        }
    }
}

/// The system without bindings to CPUs in this node, as if it stood on one CPU or in one cluster.
///
/// Sizing needs only the order of the level around a server. This order (by deadline, or first come
/// first served on each level) is the same on every CPU, whichever tasks and servers are bound
/// there. [`check`](crate::check()) places the servers, and proves that each gets its budget there.
fn unbound(system: &System, node: NodeId) -> System {
    let mut loose = system.clone();
    let spec = &mut loose.nodes[node.index()];
    spec.cpus = spec.clusters().iter().map(CpuSet::len).max().unwrap_or(1);
    spec.placement = Placement::Global;
    for task in loose.tasks.iter_mut().filter(|task| task.node == node && task.component.is_none()) {
        task.cpus = None;
    }
    loose
}

/// One component in a System in which all others have values.
fn size_one(
    system: &System,
    id: ComponentId,
    period: Option<u64>,
    budget: Option<u64>,
    early: bool,
) -> Result<SizedComponent, SizeError> {
    let component = &system.components[id.index()];
    let not_covered = |why: String| SizeError::NotCovered { component: component.name.clone(), why };
    let loose = binds(&system.nodes[component.node.index()]).then(|| unbound(system, component.node));
    let loose = loose.as_ref().unwrap_or(system);
    let tree = Tree::new(loose);
    let view = view_of(&tree, component.node).map_err(not_covered)?;
    let unit = served_by(&view, id).map_err(not_covered)?;
    if unit.tasks.is_empty() && (period.is_none() || budget.is_none()) {
        return Err(not_covered("it holds no task, so its need is unknown; give it a period and a budget".to_owned()));
    }
    let outer = tree.servers(id).first().and_then(|server| unit_with(&view, *server)).map(above);
    if component.cpus > 1 {
        return wide::size(&tree, unit, outer.unwrap_or(OuterOrder::Other), id, (period, budget));
    }
    let start = start_of(&tree, id, outer, period.is_some() || budget.is_some()).map_err(not_covered)?;
    let carried = ChainBounds::by_deadlines(&tree.system);
    let tasks = Tasks::of(unit, &carried).map_err(not_covered)?;
    let charge = |period: u64| loss(&tree.system, tree.file_tasks, id, period);
    let guarantee = |period: u64| tree.guarantee(id, period, start);
    let search = Search {
        workload: tasks.workload(),
        quantum: component.quantum.unwrap_or(QUANTUM).as_ns(),
        // Not aligned: what any period gets.
        guarantee: tree.unaligned(id, start),
        aligned: if on_time(component.server) { tree.release_grid(id) } else { 0 },
        charge: &charge,
    };
    let neighbours = early.then(|| Neighbours { system: loose.clone(), id });
    let mut sizing = Sizing { name: &component.name, search, guarantee: &guarantee, neighbours };
    let Interface { period, budget } = match (period, budget) {
        (Some(period), Some(budget)) => Interface { period, budget },
        (Some(period), None) => sizing.least_budget(period)?,
        (None, Some(budget)) => sizing.longest_period(budget)?,
        (None, None) => sizing.least_bandwidth()?,
    };
    let supply = match guarantee(period).start {
        Start::Aligned if start == Start::Aligned => "cbs",
        Start::Anywhere => "prm",
        Start::Polled => "polled",
        Start::Aligned => "aligned",
    };
    Ok(SizedComponent {
        id,
        component: component.name.clone(),
        period: Span::from_ns(period),
        budget: Span::from_ns(budget),
        chosen: true,
        supply,
        loss: Span::from_ns(charge(period).unwrap_or(0)),
        workload_utilization: unit.tasks.iter().map(|task| task.wcet as f64 / task.t as f64).sum(),
    })
}

/// The levels of a node and of its components.
fn view_of(tree: &Tree, node: NodeId) -> Result<View, String> {
    let spec = &tree.system.nodes[node.index()];
    let view = View::new(&tree.system, node, spec.strategy, spec.name.clone());
    let mut view = view.map_err(|error| tree.plan_error(&error))?;
    tree.add_components(&mut view, node, Enforced::default());
    Ok(view)
}

/// The tasks that a component's server serves.
fn served_by(view: &View, id: ComponentId) -> Result<&Unit, String> {
    let of_component = |unit: &&Unit| unit.served.as_ref().is_some_and(|served| served.component == id);
    view.units.iter().find(of_component).ok_or_else(|| {
        view.refused.first().map_or("its strategy does not fit its tasks".to_owned(), |(_, why)| why.clone())
    })
}

/// How long a component waits for the budget of its server. `outer` is the order of the level around
/// it. `is_given`: its period or its budget.
fn start_of(tree: &Tree, id: ComponentId, outer: Option<OuterOrder>, is_given: bool) -> Result<Start, String> {
    let rule = tree.system.components[id.index()].server;
    let outer = outer.ok_or("its server stands nowhere")?;
    // The caps of the search for both need a supply that may start anywhere.
    if outer == OuterOrder::Deadline && is_given && tree.reserves(id) {
        return Ok(Start::Aligned);
    }
    guaranteed(rule, outer).map_err(|why| {
        if tree.reserves(id) {
            return format!(
                "a server \"{}\" for one task is sized for a given period or budget; give one of them, best a period \
                 that divides the task's period",
                rule.name()
            );
        }
        format!("server \"{}\" guarantees it nothing: {why}", rule.name())
    })
}

/// The search for the values of a component on one CPU.
struct Sizing<'a> {
    name: &'a str,
    search: Search<'a>,
    /// What the server guarantees with a period.
    guarantee: &'a dyn Fn(u64) -> Guarantee,
    /// The tasks beside the server, if budgets come as early as the level above gives them.
    neighbours: Option<Neighbours>,
}

impl Sizing<'_> {
    /// A period is given: the least budget.
    fn least_budget(&mut self, period: u64) -> Result<Interface, SizeError> {
        let early = self.early_budget(period);
        let found = early.unwrap_or_else(|| least(&self.search, (self.guarantee)(period), period));
        let budget = found.map_err(|limit| self.limit(limit))?.ok_or_else(|| {
            let period = Span::from_ns(period);
            self.not_enough(format!(
                "not even a whole CPU, given anew every {period}, serves its tasks in time; give it a shorter period \
                 or less to do"
            ))
        })?;
        Ok(Interface { period, budget })
    }

    /// A budget is given: the longest period.
    fn longest_period(&mut self, budget: u64) -> Result<Interface, SizeError> {
        let found = longest(&self.search, self.guarantee, self.neighbours.as_mut(), budget);
        let period = found.map_err(|limit| self.limit(limit))?.ok_or_else(|| {
            let budget = Span::from_ns(budget);
            self.not_enough(format!(
                "no period is short enough for its budget {budget} to serve its tasks in time; give it a larger budget"
            ))
        })?;
        Ok(Interface { period, budget })
    }

    /// Neither is given: the period of the least bandwidth, with the least budget that is known for it.
    fn least_bandwidth(&mut self) -> Result<Interface, SizeError> {
        let found = best(&self.search).map_err(|limit| self.limit(limit))?;
        let Some(Interface { period, budget }) = found else {
            let why = "not even a whole CPU serves its tasks in time; give it less to do, or smaller costs";
            return Err(self.not_enough(why.to_owned()));
        };
        let early = self.early_budget(period).transpose().map_err(|limit| self.limit(limit))?.flatten();
        Ok(Interface { period, budget: early.map_or(budget, |early| early.min(budget)) })
    }

    /// The least budget for a period if budgets come early; `None` if they do not.
    fn early_budget(&mut self, period: u64) -> Option<Result<Option<u64>, Limit>> {
        let (search, neighbours) = (&self.search, self.neighbours.as_mut()?);
        let by = |guarantee: Guarantee| least(search, guarantee, period);
        Some(neighbours.least(search, (self.guarantee)(period), period, by))
    }

    fn limit(&self, limit: Limit) -> SizeError {
        SizeError::Limit { component: self.name.to_owned(), limit }
    }

    fn not_enough(&self, why: String) -> SizeError {
        SizeError::NotEnough { component: self.name.to_owned(), why }
    }
}

/// The least budget for a period.
fn least(search: &Search, guarantee: Guarantee, period: u64) -> Result<Option<u64>, Limit> {
    let charge = (search.charge)(period).ok_or(Limit::Costs)?;
    // A budget that serves need not be whole quanta; the budget that is written is.
    let Some(serves) = search.workload.least_budget(guarantee, period)? else { return Ok(None) };
    let whole = serves.checked_add(charge).ok_or(Limit::TIME)?;
    let rounded = whole.max(1).div_ceil(search.quantum).checked_mul(search.quantum).ok_or(Limit::TIME)?;
    Ok((whole <= period).then_some(rounded.min(period)))
}

/// The longest period for a budget, by bisection: the longer the period, the less is given.
fn longest(
    search: &Search,
    guarantee: impl Fn(u64) -> Guarantee,
    mut neighbours: Option<&mut Neighbours>,
    budget: u64,
) -> Result<Option<u64>, Limit> {
    let quantum = search.quantum;
    let mut serves = |period: u64, guarantee: Guarantee| -> Result<bool, Limit> {
        let charge = (search.charge)(period).ok_or(Limit::Costs)?;
        let left = budget.checked_sub(charge);
        let wait = neighbours.as_mut().and_then(|neighbours| neighbours.wait(period, budget, charge));
        let guarantee = Guarantee { wait, ..guarantee };
        let Some(supply) = left.and_then(|left| guarantee.supply(period, left)) else { return Ok(false) };
        search.workload.enough(&supply)
    };
    let load = sum_rounded_up(search.workload.loads().into_iter()).ok_or(Limit::TIME)?.max(1);
    let most = ((u128::from(budget) << 64) / load).min(u128::from(Span::FILE_MAX.as_ns()));
    let (mut low, mut high) = (budget.div_ceil(quantum), u64::try_from(most).map_err(|_| Limit::TIME)? / quantum);
    let mut found = None;
    while low <= high && high > 0 {
        let middle = low + (high - low) / 2;
        if serves(middle * quantum, search.guarantee)? {
            found = Some(middle * quantum);
            low = middle + 1;
        } else {
            high = middle.saturating_sub(1);
        }
    }
    // Aligned ones give more.
    for period in aligned_periods(search.aligned, quantum).into_iter().rev() {
        if found.is_none_or(|found| period > found) && period >= budget && serves(period, guarantee(period))? {
            return Ok(Some(period));
        }
    }
    Ok(found)
}

fn notes(system: &System, sized: &SizedSystem) -> Vec<String> {
    let mut notes = Vec::new();
    for sized in &sized.components {
        if sized.supply == "edp" {
            notes.push(format!(
                "component \"{}\": {} of each {} are enough as the level above gives them early (edp); what is \
                 added or changed beside it may need more",
                sized.component, sized.budget, sized.period
            ));
        }
    }
    for sized in &sized.components {
        let component = &system.components[sized.id.index()];
        let free = system.nodes[component.node.index()].costs.is_none_or(|costs| costs.switch.is_zero());
        if component.period == Auto::Auto && component.budget == Auto::Auto && component.quantum.is_none() && free {
            notes.push(format!(
                "component \"{}\": no switch costs anything here, so its period is chosen as if short ones were \
                 free; give its node costs, or it a quantum",
                component.name
            ));
        }
        if sized.supply == "aligned" && sized.chosen {
            notes.push(format!(
                "component \"{}\": sized for releases at multiples of its period {}, as the file has them; \
                 jitter or other offsets need more",
                component.name, sized.period
            ));
        }
    }
    notes
}
