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
use crate::components::{Enforced, Tasks, Tree, above};
use crate::compositional::around::{ancestors, given, within};
use crate::compositional::rules::{OuterOrder, guaranteed, on_time};
use crate::compositional::{
    Guarantee, Interface, Limit, QUANTUM, Search, SizeError, SizedComponent, SizedSystem, Start, aligned_periods, best,
};
use crate::exact::sum_rounded_up;
use crate::scope::{Unit, View, binds};
use crate::server::ServerSupply;
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
    let name = component.name.clone();
    let not_covered = |why: String| SizeError::NotCovered { component: name.clone(), why };
    let limit = |limit: Limit| SizeError::Limit { component: name.clone(), limit };
    let node: NodeId = component.node;
    let loose = binds(&system.nodes[node.index()]).then(|| unbound(system, node));
    let loose = loose.as_ref().unwrap_or(system);
    let mut neighbours = early.then(|| Neighbours { system: loose.clone(), id });
    let tree = Tree::new(loose);
    let strategy = system.nodes[node.index()].strategy;
    let scope = system.nodes[node.index()].name.clone();
    let mut view =
        View::new(&tree.system, node, strategy, scope).map_err(|error| not_covered(tree.plan_error(&error)))?;
    tree.add_components(&mut view, node, Enforced::default());
    let served = |unit: &&Unit| unit.served.as_ref().is_some_and(|served: &ServerSupply| served.component == id);
    let Some(unit) = view.units.iter().find(served) else {
        let why = view.refused.first().map_or("its strategy does not fit its tasks".to_owned(), |(_, why)| why.clone());
        return Err(not_covered(why));
    };
    let outer = tree.servers(id).first().and_then(|server| {
        view.units.iter().find(|unit| unit.tasks.iter().any(|task: &crate::scope::UnitTask| task.id == *server))
    });
    if unit.tasks.is_empty() && (period.is_none() || budget.is_none()) {
        return Err(not_covered("it holds no task, so its need is unknown; give it a period and a budget".to_owned()));
    }
    if component.cpus > 1 {
        return wide::size(&tree, unit, outer.map_or(OuterOrder::Other, above), id, (period, budget));
    }
    // The caps of the search for both need a supply that may start anywhere.
    let reserves = tree.reserves(id) && (period.is_some() || budget.is_some());
    let start = match outer.map(|outer| (guaranteed(component.server, above(outer)), above(outer))) {
        Some((_, OuterOrder::Deadline)) if reserves => Ok(Start::Aligned),
        Some((guaranteed, _)) => guaranteed,
        None => return Err(not_covered("its server stands nowhere".to_owned())),
    };
    let start = match start {
        Ok(start) => start,
        Err(_) if tree.reserves(id) => {
            return Err(not_covered(format!(
                "a server \"{}\" for one task is sized for a given period or budget; give one of them, best a period \
                 that divides the task's period",
                component.server.name()
            )));
        }
        Err(why) => {
            return Err(not_covered(format!("server \"{}\" guarantees it nothing: {why}", component.server.name())));
        }
    };
    let carried = ChainBounds::by_deadlines(&tree.system);
    let tasks = Tasks::of(unit, &carried).map_err(not_covered)?;
    let charge = |period: u64| loss(&tree.system, tree.file_tasks, id, period);
    let quantum = component.quantum.unwrap_or(QUANTUM).as_ns();
    let aligned = if on_time(component.server) { tree.release_grid(id) } else { 0 };
    // Not aligned: what any period gets.
    let guarantee = tree.unaligned(id, start);
    let search = Search { workload: tasks.workload(), quantum, guarantee, aligned, charge: &charge };
    let not_enough = |why: String| SizeError::NotEnough { component: name.clone(), why };
    let Interface { period, budget } = match (period, budget) {
        (Some(period), Some(budget)) => Interface { period, budget },
        (Some(period), None) => {
            let guarantee = tree.guarantee(id, period, start);
            let by = |guarantee: Guarantee| least(&search, guarantee, period);
            let found = match &mut neighbours {
                Some(neighbours) => neighbours.least(&search, guarantee, period, by),
                None => by(guarantee),
            };
            match found.map_err(limit)? {
                Some(budget) => Interface { period, budget },
                None => {
                    let period = Span::from_ns(period);
                    return Err(not_enough(format!(
                        "not even a whole CPU, given anew every {period}, serves its tasks in time; give it a \
                         shorter period or less to do"
                    )));
                }
            }
        }
        (None, Some(budget)) => {
            let guarantee = |period| tree.guarantee(id, period, start);
            match longest(&search, guarantee, neighbours.as_mut(), budget).map_err(limit)? {
                Some(period) => Interface { period, budget },
                None => {
                    let budget = Span::from_ns(budget);
                    return Err(not_enough(format!(
                        "no period is short enough for its budget {budget} to serve its tasks in time; give it \
                         a larger budget"
                    )));
                }
            }
        }
        (None, None) => match best(&search).map_err(limit)? {
            Some(Interface { period, budget }) => {
                let by = |guarantee: Guarantee| least(&search, guarantee, period);
                let found =
                    neighbours.as_mut().map(|near| near.least(&search, tree.guarantee(id, period, start), period, by));
                let budget = found.transpose().map_err(limit)?.flatten().map_or(budget, |least| least.min(budget));
                Interface { period, budget }
            }
            None => {
                return Err(not_enough(
                    "not even a whole CPU serves its tasks in time; give it less to do, or smaller costs".to_owned(),
                ));
            }
        },
    };
    let supply = match tree.guarantee(id, period, start).start {
        Start::Aligned if start == Start::Aligned => "cbs",
        Start::Anywhere => "prm",
        Start::Polled => "polled",
        Start::Aligned => "aligned",
    };
    Ok(SizedComponent {
        id,
        component: name,
        period: Span::from_ns(period),
        budget: Span::from_ns(budget),
        chosen: true,
        supply,
        loss: Span::from_ns(charge(period).unwrap_or(0)),
        workload_utilization: unit.tasks.iter().map(|task| task.wcet as f64 / task.t as f64).sum(),
    })
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
