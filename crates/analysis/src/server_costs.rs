//! The share of switches, ticks and interrupts in the budgets of servers, and in the time of tasks beside them.

use takt_model::{ComponentId, Costs, NodeSpec, Placement, ServerRule, Span, System, TaskId};

use crate::carried::ChainBounds;
use crate::compositional::around::{given, within};
use crate::scope::{Ordinary, cost_of_cut};

/// The cost of resuming a job, or of running another one instead, on a node where it may use `cpus`
/// CPUs. If the job may change CPUs, this includes a migration. `None` on overflow.
pub(crate) fn resume_cost(spec: &NodeSpec, costs: &Costs, cpus: u32) -> Option<Span> {
    let moves = spec.placement != Placement::Partitioned && cpus > 1;
    if moves { costs.switch.checked_add(costs.migrate) } else { Some(costs.switch) }
}

/// How often a task may be released in a window of this length. The deadlines of its predecessors
/// bound how far a successor's releases wander.
fn releases(system: &System, carried: &ChainBounds, id: usize, window: u64) -> Option<u64> {
    let task = &system.tasks[id];
    let release_delay =
        carried.release(TaskId(id as u32))?.checked_add(system.release_jitter(TaskId(id as u32)).as_ns())?;
    (window.checked_add(release_delay)? / task.period.as_ns()).checked_add(2)
}

/// The time that the budget of a component's server loses in each period of this length. It loses one
/// resumption after each gap in its supply, the ticks and the interrupts.
///
/// A gap begins when the budget ends, once in a period, or when something outside the component
/// gets the CPU: a release, or the return of a budget or its end. Jobs inside are charged for the
/// switches that they cause there.
///
/// `None` above 64 bits. Servers whose period is not known yet count as nothing. The file's tasks
/// are the first `file_tasks` of the System.
pub(crate) fn loss(system: &System, file_tasks: usize, id: ComponentId, period: u64) -> Option<u64> {
    let node = system.components[id.index()].node;
    let spec = &system.nodes[node.index()];
    let Some(costs) = spec.costs else { return Some(0) };
    let switch = resume_cost(spec, &costs, spec.cpus)?;
    let mut gaps = 1u64;
    if !switch.is_zero() {
        let carried = ChainBounds::by_deadlines(system);
        for (i, task) in system.tasks.iter().take(file_tasks).enumerate() {
            if task.node == node && !within(system, task.component, id) {
                gaps = gaps.checked_add(releases(system, &carried, i, period)?)?;
            }
        }
        for (i, other) in system.components.iter().enumerate() {
            let inside = within(system, Some(ComponentId(i as u32)), id);
            if let (true, false, Some(pi)) = (other.node == node, inside, given(other.period)) {
                let each = (period / pi).checked_add(2)?.checked_mul(2)?;
                gaps = gaps.checked_add(each.checked_mul(u64::from(other.cpus.max(1)))?)?;
            }
        }
    }
    let mut lost = gaps.checked_mul(switch.as_ns())?;
    for (c, t) in [(costs.tick, costs.tick_period), (costs.interrupt, costs.interrupt_period)] {
        if !c.is_zero() {
            let times = (period / t.as_ns().max(1)).checked_add(1)?;
            lost = lost.checked_add(times.checked_mul(c.as_ns())?)?;
        }
    }
    if let Some(ordinary) = Ordinary::of(Some(costs)) {
        lost = lost.checked_add(ordinary.within(period)?)?;
    }
    Some(lost)
}

/// How often a constant-bandwidth server may begin or go on in a window of length L, minus L times
/// its long-run rate. This is 1 for its budget, and floor((L + wander) / P) + 1 - L / P for each
/// task inside. Without a bound, the result is more than can be charged.
pub(crate) fn cuts(system: &System, id: ComponentId) -> u64 {
    let carried = ChainBounds::by_deadlines(system);
    let mut all = 1u64;
    for (i, task) in system.tasks.iter().enumerate().filter(|(_, task)| within(system, task.component, id)) {
        let release_delay = carried.release(TaskId(i as u32)).unwrap_or(u64::MAX >> 1);
        let release_delay = release_delay.saturating_add(system.release_jitter(TaskId(i as u32)).as_ns());
        all = all.saturating_add(release_delay.div_ceil(task.period.as_ns().max(1))).saturating_add(1);
    }
    all
}

/// The time that a server takes from the tasks beside it in each period on top of its budget. If
/// the server stops when idle and goes on when work arrives, each arrival inside is one more start
/// and one more resumption of another task.
pub(crate) fn preemptions(system: &System, id: ComponentId, period: u64) -> Option<u64> {
    let component = &system.components[id.index()];
    let node = component.node;
    let spec = &system.nodes[node.index()];
    let Some(costs) = spec.costs else { return Some(0) };
    // Beside constant-bandwidth servers ticks and interrupts are charged to what they cut in two.
    let cut = match component.server {
        ServerRule::Cbs | ServerRule::CbsHard | ServerRule::Grub => cost_of_cut(Some(costs))?,
        _ => 0,
    };
    let each = resume_cost(spec, &costs, spec.cpus)?.as_ns().checked_mul(2)?.checked_add(cut)?;
    if component.server == ServerRule::Ptps || each == 0 {
        return Some(0);
    }
    let carried = ChainBounds::by_deadlines(system);
    let mut wakes = 0u64;
    for (i, task) in system.tasks.iter().enumerate().filter(|(_, task)| within(system, task.component, id)) {
        if task.node == node {
            wakes = wakes.checked_add(releases(system, &carried, i, period)?)?;
        }
    }
    wakes.checked_mul(each)
}
