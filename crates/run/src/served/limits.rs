//! A value of cpu.max of a component's group changes the server, or is refused. Pure.
//!
//! The order of servers may go by their periods. A new period needs a level between those of other servers, which keep
//! theirs. So levels of servers have gaps ([`LEVEL_GAP`]).

use std::sync::Arc;

use takt_linux::sched_ext::{Terms, Written};
use takt_model::{Auto, ComponentId, NodeId, ServerRule, ServerSwitch, Span, System, Time};

use super::plan::{self, Change, GRID, LEVEL_GAP, ServedPlan, terms_of};
use crate::error::RunError;

/// Refuses a System whose CPUs have too little time.
pub(crate) type Admit = fn(&System, NodeId) -> Result<(), RunError>;

/// The servers of a run as they change.
pub(crate) struct Servers {
    /// As the file has it.
    file: Arc<System>,
    /// With what was granted.
    now: System,
    node: NodeId,
    plan: ServedPlan,
    /// `None`: anything that the kernel carries out.
    admit: Option<Admit>,
}

/// A change that was granted. Budget and period are in its terms.
pub(crate) type Granted = Change;

impl Servers {
    pub(crate) fn new(system: &Arc<System>, node: NodeId, plan: &ServedPlan, admit: Option<Admit>) -> Servers {
        // A later mode of the file gives all that the file says, whatever was granted before.
        let mut now = System::clone(system);
        now.switches.clear();
        for (id, component) in (0..).map(ComponentId).zip(&system.components) {
            for (at, rule, period, budget) in terms_of(system, id, component) {
                let (server, period, budget) = (Some(rule), Some(period), Some(budget));
                now.switches.extend(at.map(|at| ServerSwitch { component: id, at, server, period, budget }));
            }
        }
        Servers { file: system.clone(), now, node, plan: plan.clone(), admit }
    }

    /// Budget and period that the file gives a server at `at`.
    pub(crate) fn of_file(&self, id: ComponentId, at: Time) -> Option<(Span, Span)> {
        in_force(&self.file, id, at).map(|(_, budget, period)| (budget, period))
    }

    /// Decides about a cpu.max that was seen at `at`. A refusal is a sentence, and changes nothing.
    pub(crate) fn ask(&mut self, id: ComponentId, at: Time, written: Written) -> Result<Granted, String> {
        let (budget, period) = match written.quota_us {
            // Without a limit of the group the file's holds.
            None => self.of_file(id, at).ok_or("the component is gone")?,
            Some(quota) => (Span::from_us(quota), Span::from_us(written.period_us)),
        };
        if budget > period {
            return Err("a server has one CPU, and so at most its period as budget".to_owned());
        }
        if budget < GRID {
            return Err(format!("the scheduler keeps no budget below {GRID}, its grain"));
        }
        let mut system = self.now.clone();
        let mut plan = self.plan.clone();
        // What was in force before is over. The file's later modes still come.
        system.switches.retain(|switch| switch.component != id || switch.at > at);
        let (cpu, server) = self.place(id).ok_or("the component has no server here")?;
        plan.changes.retain(|change| (change.cpu, change.server) != (cpu, server) || change.at > at);
        let rule = in_force(&self.now, id, at).map(|(rule, ..)| rule);
        let change = ServerSwitch { component: id, at, server: rule, period: Some(period), budget: Some(budget) };
        system.switches.push(change);
        if let Some(admit) = self.admit {
            // Now, and from each later mode on.
            let later = system.switches.iter().map(|switch| switch.at).filter(|later| *later > at);
            for instant in std::iter::once(at).chain(later) {
                admit(&at_that_time(&system, instant), self.node).map_err(|error| error.to_string())?;
            }
        }
        let (fresh, cannot) = plan::plan(&system, self.node).map_err(|error| error.to_string())?;
        if let Some(obstacle) = cannot.first() {
            return Err(obstacle.to_string());
        }
        let of = |change: &Change| (change.cpu, change.server, change.at) == (cpu, server, at);
        let new = fresh.changes.iter().position(of).ok_or("the change is lost")?;
        let mut granted = fresh.changes.get(new).copied().ok_or("the change is lost")?;
        // Each scope has an order of its own.
        let scope = (cpu, granted.terms.outer());
        let old = plan.terms_in(scope, None).map(|terms| terms.level);
        let ranks = fresh.terms_in(scope, Some(new)).map(|terms| terms.level);
        let known: Vec<(u32, u32)> = ranks.zip(old).collect();
        let level = level_among(granted.terms.level, &known);
        granted.terms.level = level.ok_or("no level is left between other servers; start the run again")?;
        plan.changes.insert(new, granted);
        (self.now, self.plan) = (system, plan);
        Ok(granted)
    }

    /// The CPU and the number of a component's server.
    pub(crate) fn place(&self, id: ComponentId) -> Option<(u32, u32)> {
        self.plan.place_of(id)
    }
}

/// The System whose servers are from the start what they are at `at`.
fn at_that_time(system: &System, at: Time) -> System {
    let mut then = system.clone();
    then.switches.clear();
    for id in (0..system.components.len() as u32).map(ComponentId) {
        let Some((rule, budget, period)) = in_force(system, id, at) else { continue };
        let Some(component) = then.components.get_mut(id.index()) else { continue };
        (component.server, component.budget, component.period) = (rule, Auto::Value(budget), Auto::Value(period));
        // Existing threads want all that their server has.
        let all = component.threads.is_some();
        for task in then.tasks.iter_mut().filter(|task| all && task.component == Some(id)) {
            (task.wcet, task.period) = (budget, period);
        }
    }
    then
}

/// Rule, budget and period of a server at `at`.
fn in_force(system: &System, id: ComponentId, at: Time) -> Option<(ServerRule, Span, Span)> {
    let terms = terms_of(system, id, system.components.get(id.index())?);
    let last = terms.into_iter().rfind(|(since, ..)| since.is_none_or(|since| since <= at));
    last.map(|(_, rule, period, budget)| (rule, budget, period))
}

/// A level that stands among `known` levels as `rank` does among their ranks. Each is (rank, level). `None`: there is
/// no room.
fn level_among(rank: u32, known: &[(u32, u32)]) -> Option<u32> {
    if let Some((_, level)) = known.iter().find(|(other, _)| *other == rank) {
        return Some(*level);
    }
    let below = known.iter().filter(|(other, _)| *other < rank).map(|(_, level)| *level).max();
    let above = known.iter().filter(|(other, _)| *other > rank).map(|(_, level)| *level).min();
    match (below, above) {
        (below, None) => below.unwrap_or(0).checked_add(LEVEL_GAP),
        (None, Some(above)) => (above > 0).then_some(above / 2),
        (Some(below), Some(above)) => {
            let between = below + above.saturating_sub(below) / 2;
            (below < between && between < above).then_some(between)
        }
    }
}

impl ServedPlan {
    /// All terms of a scope's entries, but for those of the change at one place. A scope is a CPU, and the server
    /// around the entries.
    fn terms_in(&self, (cpu, outer): (u32, Option<u32>), but: Option<usize>) -> impl Iterator<Item = &Terms> {
        let entries = self.cpus.iter().filter(move |of| of.cpu == cpu).flat_map(|of| &of.entries);
        let changes = self.changes.iter().enumerate().filter(move |(at, of)| of.cpu == cpu && Some(*at) != but);
        let all = entries.chain(changes.map(|(_, change)| &change.terms));
        all.filter(move |terms| terms.outer() == outer)
    }

    /// The CPU and the number of a component's server.
    pub(crate) fn place_of(&self, id: ComponentId) -> Option<(u32, u32)> {
        let at = |of: &plan::ServedCpu| of.components.iter().position(|other| *other == Some(id));
        self.cpus.iter().find_map(|cpu| Some((cpu.cpu, at(cpu)? as u32)))
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
