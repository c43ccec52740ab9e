//! Components: the supply of a server to its tasks, and its demand on tasks beside it.
//!
//! A server is a task of the level around it: Θ every Π. The proof of this level shows that the
//! budget comes in time. A deferrable server keeps its budget for up to Π - Θ; this counts as
//! jitter. Then in any interval of length t its tasks get at least g(t - λ),
//!
//! g(s) = y Θ + min(Θ, max(0, s - y Π - (Δ - Θ))), y = floor(s / Π):
//!
//! The server gives Θ by Δ after the start of every period: Δ = Π, or the proven response of the
//! budget as a job. The interval waits λ for its first whole budget. λ = Π - Θ if the interval
//! begins when the budget has just been used up. λ = Π if the server can give up an unused budget,
//! or gets budget back in parts under edf. λ = 0 if all releases inside fall on starts of the
//! server's periods (I. Shin, I. Lee 2003; A. Easwaran, M. Anand, I. Lee 2007).
//! crates/analysis/src/compositional/rules.rs has the proofs rule by rule.
//!
//! **Costs.** Within a server time is lost to ticks, interrupts and ordinary threads, and to one
//! switch at the end of each gap in its supply. A gap begins at the end of the budget, or at an
//! event outside that takes the CPU: a release, the return of a budget, or its end. Releases within
//! a closed window of length Π are at most floor((Π + J) / T) + 1. Let Θ' be Θ minus all these
//! losses. Θ' of each budget is left by Δ: by Δ - x the server has given Θ - x, and lost no more
//! than Θ - Θ'. Jobs inside are charged for the switches they cause inside. Tasks outside are
//! charged for Θ, and for two switches for each arrival inside: an arrival may wake a server that
//! gives up the CPU when idle.
//!
//! **Quanta.** If decisions fall on a grid q only, an arrival off the grid waits for up to q. This
//! is blocking at the level of the server, and adds to λ inside. A job that completes off the grid
//! keeps the CPU for less than q more: in whole ns q - 1 for each job. If neither costs nor
//! fractions of quanta of others move the completion, it keeps the CPU up to the next multiple of
//! q.

use super::{Part, fits, overheads};
use takt_model::{
    Arrival, Auto, Component, ComponentId, Costs, NodeId, ServerRule as Rule, Span, System, Task, TaskId,
};

/// The least supply of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    period: u128,
    budget: u128,
    /// Δ.
    by: u128,
    /// λ.
    delay: u128,
}

impl Supply {
    /// sbf(t).
    pub(super) fn within(&self, t: u128) -> u128 {
        let s = t.saturating_sub(self.delay);
        let begun = (s % self.period).saturating_sub(self.by - self.budget);
        // At most s.
        s / self.period * self.budget + begun.min(self.budget)
    }
}

fn given(component: &Component) -> Result<(u64, u64), String> {
    match (component.period, component.budget) {
        (Auto::Value(period), Auto::Value(budget)) if !budget.is_zero() && budget <= period => {
            Ok((period.as_ns(), budget.as_ns()))
        }
        _ => Err(format!("component \"{}\" has no period and budget", component.name)),
    }
}

/// Whether it takes bandwidth of any interval, not jobs.
pub(super) const fn is_cbs(rule: Rule) -> bool {
    matches!(rule, Rule::Cbs | Rule::CbsHard | Rule::Grub)
}

/// Whether a part of the tree stands in a component, or is it.
fn within(system: &System, part: Option<ComponentId>, id: ComponentId) -> bool {
    part.is_some_and(|part| system.around(part).any(|around| around == id))
}

/// How often a task may be released within a closed window of this length, and once more.
fn released(system: &System, release_delays: &[u64], task: usize, window: u64) -> u128 {
    let late = u128::from(release_delays[task]) + u128::from(system.release_jitter(TaskId(task as u32)).as_ns());
    (u128::from(window) + late) / u128::from(system.tasks[task].period.as_ns().max(1)) + 2
}

/// The costs inside a budget, and the server's demand on others besides its budget, in each period
/// of this length.
fn costs(system: &System, release_delays: &[u64], id: ComponentId, period: u64) -> Result<(u128, u128), String> {
    let component = &system.components[id.index()];
    let costs = system.nodes[component.node.index()].costs.unwrap_or(Costs::NONE);
    let switch = u128::from(costs.switch.as_ns());
    let (mut gaps, mut wakes) = (1u128, 0u128);
    for (i, task) in system.tasks.iter().enumerate().filter(|(_, task)| task.node == component.node) {
        let count = if within(system, task.component, id) { &mut wakes } else { &mut gaps };
        *count += released(system, release_delays, i, period);
    }
    for (i, other) in system.components.iter().enumerate().filter(|(_, other)| other.node == component.node) {
        if !within(system, Some(ComponentId(i as u32)), id) {
            gaps += 2 * (u128::from(period / given(other)?.0.max(1)) + 2);
        }
    }
    if component.server == Rule::Sporadic && switch > 0 {
        return Err(format!(
            "\"{}\" may get its budget back in any number of parts, each with a switch",
            component.name
        ));
    }
    let wakes = if component.server == Rule::Ptps { 0 } else { wakes };
    let taken = overheads(&costs).map(|(c, t, late)| fits(((u128::from(period) + late) / t + 1).checked_mul(c)));
    let taken = taken.sum::<Result<u128, String>>()?;
    Ok((fits(gaps.checked_mul(switch).and_then(|lost| lost.checked_add(taken)))?, fits(wakes.checked_mul(2 * switch))?))
}

/// The quantum that delays tasks directly in this component: the coarsest of its servers. Zero if
/// all work begins and ends on this grid.
fn quantum(system: &System, node: NodeId, parent: Option<ComponentId>) -> u64 {
    let here = |component: &&Component| component.node == node && component.parent == parent;
    let servers = || system.components.iter().filter(here);
    let quantum = servers().filter_map(|server| server.quantum).max().map_or(0, Span::as_ns);
    let on =
        |server: &Component| given(server).is_ok_and(|(t, c)| t.is_multiple_of(quantum) && c.is_multiple_of(quantum));
    let tasks = system.tasks_of(node).any(|(_, task)| task.component == parent);
    if !tasks && servers().all(|server| strict(server.server) && on(server)) { 0 } else { quantum }
}

/// The servers right inside a component, or in none, as tasks, which stand behind the file's; and
/// the quantum in which decisions fall there.
pub(super) fn servers(
    system: &System,
    node: NodeId,
    parent: Option<ComponentId>,
    release_delays: &[u64],
) -> Result<(Vec<(TaskId, Task)>, u64), String> {
    let spec = &system.nodes[node.index()];
    let mut found = Vec::new();
    for (i, component) in system.components.iter().enumerate().filter(|(_, component)| component.node == node) {
        if spec.cpus != 1 || component.cpus != 1 {
            return Err(format!("certificates cover components on one CPU, not \"{}\"", component.name));
        }
        let (period, budget) = given(component)?;
        if component.parent != parent {
            continue;
        }
        if parent.is_some() && is_cbs(component.server) {
            return Err(format!("\"{}\" takes bandwidth, which no server around it promises", component.name));
        }
        let (_, more) = costs(system, release_delays, ComponentId(i as u32), period)?;
        let c = u64::try_from(more).ok().and_then(|more| budget.checked_add(more)).ok_or("a time exceeds 64 bits")?;
        let mut task = Task::periodic(&component.name, Span::from_ns(period), Span::from_ns(c));
        let latency = spec.costs.map_or(Span::ZERO, |costs| costs.latency);
        if !latency.is_zero() && !strict(component.server) && component.server != Rule::Polling {
            return Err(format!("with a latency \"{}\" gets its budget back at any time", component.name));
        }
        task.jitter = latency;
        if component.server == Rule::Deferrable {
            let late = Span::from_ns(period - budget);
            task.jitter = late;
            task.deadline = task.deadline.saturating_add(late);
        }
        (task.node, task.component, task.priority) = (node, parent, component.priority);
        found.push((TaskId((system.tasks.len() + i) as u32), task));
    }
    Ok((found, quantum(system, node, parent)))
}

/// Whether its budgets come at the multiples of its period, and are given by the next.
const fn strict(rule: Rule) -> bool {
    matches!(rule, Rule::Ptps | Rule::Wcps | Rule::Crps)
}

/// The supply of a server under the level around it. `end`: its response there, if proven.
pub(super) fn supply(
    system: &System,
    id: ComponentId,
    above: &Part,
    end: Option<u128>,
    release_delays: &[u64],
) -> Result<Supply, String> {
    let component = &system.components[id.index()];
    let (period, budget) = given(component)?;
    let lost = costs(system, release_delays, id, period)?.0;
    let (period, budget) = (u128::from(period), u128::from(budget).saturating_sub(lost));
    if budget == 0 {
        return Err(format!("the budget of \"{}\" is used up by what switching costs", component.name));
    }
    let by_deadline = above.edf().is_ok();
    if !by_deadline {
        above.fixed()?;
    }
    let quantum = component.quantum.map_or(0, |quantum| u128::from(quantum.as_ns()));
    let noticed = |grid: u128| quantum == 0 || (grid.is_multiple_of(quantum) && on_starts(system, id, quantum));
    let rule = component.server;
    let delay = match rule {
        _ if strict(rule) && noticed(period) && on_starts(system, id, period) => 0,
        Rule::Ptps | Rule::Wcps | Rule::Crps => period - budget,
        Rule::Polling => period,
        Rule::Deferrable | Rule::Sporadic if !by_deadline => period - budget,
        Rule::Sporadic => period,
        Rule::CbsHard if by_deadline => period - budget,
        rule => return Err(format!("{}: \"{}\" guarantees no supply there", component.name, rule.name())),
    };
    // Arrivals between two decisions wait for the next.
    let delay = delay + if noticed(0) { 0 } else { quantum };
    let each = strict(rule) || rule == Rule::Polling;
    let by = end.filter(|end| each && *end >= budget && *end < period).unwrap_or(period);
    Ok(Supply { period, budget, by, delay })
}

/// Whether all that is released in a component falls on multiples of this.
fn on_starts(system: &System, id: ComponentId, grid: u128) -> bool {
    let on = |span: Span| u128::from(span.as_ns()).is_multiple_of(grid);
    let costs = system.nodes[system.components[id.index()].node.index()].costs;
    let mut tasks = system.tasks.iter().filter(|task| task.component == Some(id));
    let mut inner = system.components.iter().filter(|inner| inner.parent == Some(id));
    costs.is_none_or(|costs| costs.latency.is_zero())
        && tasks.all(|task| {
            let exact = task.arrival == Arrival::Periodic && task.jitter.is_zero() && task.after.is_empty();
            exact && on(task.period) && on(task.offset)
        })
        && inner.all(|inner| strict(inner.server) && matches!(inner.period, Auto::Value(period) if on(period)))
}
