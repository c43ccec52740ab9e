//! Components: what a server gives to its tasks, and what it takes from those beside it.
//!
//! A server is a task of the level around it: Θ every Π, which that level's own proof shows to be given in time. A deferrable one keeps its budget
//! for up to Π - Θ, which is jitter. Then in any interval of length t its tasks get at least g(t - λ),
//!
//! g(s) = y Θ + min(Θ, max(0, s - y Π - (Δ - Θ))), y = floor(s / Π):
//!
//! Θ by Δ after the start of every period (Δ = Π, or the response that was shown of it, where each budget is a job), where the interval waits λ for its first whole one: Π - Θ, if it began when
//! the server had just used its budget up; Π, if the server can give an unused budget up, or gets it back in parts under edf; 0 if all that is released inside falls on starts of periods, which
//! the rule keeps to (I. Shin, I. Lee 2003; A. Easwaran, M. Anand, I. Lee 2007). crates/analysis/src/compositional/rules.rs has the proofs rule by rule.

use super::Part;
use takt_model::{
    Arrival, Auto, Component, ComponentId, Costs, NodeId, ServerRule as Rule, Span, System, Task, TaskId,
};

/// What a server gives at least.
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
pub(super) const fn fluid(rule: Rule) -> bool {
    matches!(rule, Rule::Cbs | Rule::CbsHard | Rule::Grub)
}

/// The servers right inside a component, or in none, as tasks; they stand behind the file's.
pub(super) fn servers(
    system: &System,
    node: NodeId,
    parent: Option<ComponentId>,
) -> Result<Vec<(TaskId, Task)>, String> {
    let spec = &system.nodes[node.index()];
    let mut found = Vec::new();
    for (i, component) in system.components.iter().enumerate().filter(|(_, component)| component.node == node) {
        let costs = spec.costs.unwrap_or(Costs::NONE);
        let costs = [costs.switch, costs.migrate, costs.release, costs.tick, costs.interrupt, costs.latency];
        if spec.cpus != 1
            || component.cpus != 1
            || component.quantum.is_some()
            || !costs.iter().all(|cost| cost.is_zero())
        {
            return Err(format!(
                "certificates cover components on one CPU without costs and quanta, not \"{}\"",
                component.name
            ));
        }
        let (period, budget) = given(component)?;
        if component.parent != parent {
            continue;
        }
        if parent.is_some() && fluid(component.server) {
            return Err(format!("\"{}\" takes bandwidth, which no server around it promises", component.name));
        }
        let mut task = Task::periodic(&component.name, Span::from_ns(period), Span::from_ns(budget));
        if component.server == Rule::Deferrable {
            let late = Span::from_ns(period - budget);
            task.jitter = late;
            task.deadline = task.deadline.saturating_add(late);
        }
        (task.node, task.component, task.priority) = (node, parent, component.priority);
        found.push((TaskId((system.tasks.len() + i) as u32), task));
    }
    Ok(found)
}

/// What a server gives under the level around it; `end`: its response there, if it was shown.
pub(super) fn supply(system: &System, id: ComponentId, above: &Part, end: Option<u128>) -> Result<Supply, String> {
    let component = &system.components[id.index()];
    let (period, budget) = given(component)?;
    let (period, budget) = (u128::from(period), u128::from(budget));
    let by_deadline = above.edf().is_ok();
    if !by_deadline {
        above.fixed()?;
    }
    let strict = matches!(component.server, Rule::Ptps | Rule::Wcps | Rule::Crps);
    let delay = match component.server {
        _ if strict && on_starts(system, id, period) => 0,
        Rule::Ptps | Rule::Wcps | Rule::Crps => period - budget,
        Rule::Polling => period,
        Rule::Deferrable | Rule::Sporadic if !by_deadline => period - budget,
        Rule::Sporadic => period,
        Rule::CbsHard if by_deadline => period - budget,
        rule => return Err(format!("{}: \"{}\" guarantees no supply there", component.name, rule.name())),
    };
    let each = strict || component.server == Rule::Polling;
    let by = end.filter(|end| each && *end >= budget && *end < period).unwrap_or(period);
    Ok(Supply { period, budget, by, delay })
}

/// Whether all that is released in a component falls on multiples of this.
fn on_starts(system: &System, id: ComponentId, period: u128) -> bool {
    let on = |span: Span| u128::from(span.as_ns()).is_multiple_of(period);
    let tasks = system.tasks.iter().filter(|task| task.component == Some(id));
    let mut inner = system.components.iter().filter(|inner| inner.parent == Some(id));
    tasks.clone().next().is_some()
        && inner.next().is_none()
        && tasks.clone().all(|task| {
            let strict = task.arrival == Arrival::Periodic && task.jitter.is_zero() && task.after.is_empty();
            strict && on(task.period) && on(task.offset)
        })
}
