//! The effect of a node's costs on a task alone in a reservation.
//!
//! Costs act as in the simulator: each start and each resumption of a job adds `switch` to it (also
//! `migrate`, if the job may change its CPU). Each job adds `release` once. Each tick and each
//! interrupt steals from the running job. All of this is CPU time of the reservation, so its budget
//! pays.
//!
//! **By job**: `release` and two `switch`: its own start, and the resumption that it may cause
//! ([`check`](crate::check()) charges the same). A start is no resumption, so the resumptions of
//! its own are left.
//!
//! **By budget.** A job resumes after a *gap*: an instant at which something else got the CPU
//! although the job could have run. Such a gap begins with one of these events:
//!
//! - (a) the release of a task beside the reservation;
//! - (b) a budget of another server comes;
//! - (c) a budget of another server ends;
//! - (d) a budget of the reservation itself ends, so its deadline moves, or it waits.
//!
//! Several gaps may share an event. No event begins two gaps, since the order of deadlines stays
//! between events.
//!
//! Let `w(L)` be the number of events (a) to (c) in any closed interval of length L. It is
//! floor((L + wander) / P) + 1 for each task or kind, and one more is counted. (A soft server
//! beside may deplete more often, but this only moves its deadline away.) Let s be the last reset,
//! as in [`deterministic`](super::deterministic). Let W be the work since s, and y its number of
//! whole budgets of Q - l, so W <= y (Q - l).
//!
//! *Claim*: until s + y T, or until W is done, costs have taken no more than y l, with
//! l = (w(T) + 1) `switch` + the ticks and interrupts of T.
//!
//! *Proof*: For y >= 1, floor((y L + x) / P) + 2 <= y (floor((L + x) / P) + 2). So w(y T) <= y
//! w(T). The same holds for ticks: floor(y T / p) + 1 <= y (floor(T / p) + 1). While less than y Q
//! had been executed, there were no more than y - 1 events (d). Now W + y l <= y Q. So the first
//! instant with more than y l taken needs an earlier instant with y Q executed and W not done, and
//! the other way round. ∎
//!
//! So W is done out of y budgets of Q. The bounds of `deterministic` and
//! [`stochastic`](super::stochastic) hold with Q' = Q - l for Q. The rest of the last budget, y Q -
//! W - taken >= y Q' - W, could still be executed by its deadline. Depletions are not counted per
//! job, since every budget pays for one.

use takt_model::{Component, ComponentId, ServerRule, Span, System, TaskId};

use crate::server_costs::{loss, resume_cost};

/// The costs added to each job, and taken from each budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Charge {
    /// Added to each job: its release, two switches, and the file's blocking by others.
    pub job: Span,
    /// Lost of each budget.
    pub budget: Span,
}

/// The costs of a task alone in a reservation of this period, beside all other parts on its node.
///
/// If the task shares a component or has none, the reservation is a new component at its node's
/// root.
///
/// # Errors
/// Why it is not known.
pub fn charge(system: &System, task: TaskId, period: Span) -> Result<Charge, String> {
    let own = &system.tasks[task.index()];
    let spec = &system.nodes[own.node.index()];
    let beside = |(id, other): &(TaskId, &takt_model::Task)| *id != task && !other.sections().is_empty();
    if let Some((_, other)) = system.tasks_of(own.node).find(beside) {
        return Err(format!("needs tasks beside it that may be preempted anywhere: \"{}\" has sections", other.name));
    }
    let Some(costs) = spec.costs else { return Ok(Charge { job: own.blocking, budget: Span::ZERO }) };
    let too_long = || "costs exceed 64-bit nanoseconds".to_owned();
    let switch = resume_cost(spec, &costs, own.cpus.map_or(spec.cpus, |cpus| cpus.len())).ok_or_else(too_long)?;
    let mut apart = system.clone();
    let alone = own.component.filter(|home| stands_alone(system, *home));
    let id = alone.unwrap_or_else(|| {
        apart.components.push(Component::new("", own.node, ServerRule::CbsHard));
        ComponentId((apart.components.len() - 1) as u32)
    });
    apart.tasks[task.index()].component = Some(id);
    let budget = loss(&apart, apart.tasks.len(), id, period.as_ns()).ok_or_else(too_long)?;
    let job = switch.checked_add(switch).and_then(|switches| switches.checked_add(costs.release));
    let job = job.and_then(|job| job.checked_add(own.blocking)).ok_or_else(too_long)?;
    Ok(Charge { job, budget: Span::from_ns(budget) })
}

/// Whether a component holds one task and nothing else.
fn stands_alone(system: &System, home: ComponentId) -> bool {
    system.tasks.iter().filter(|task| task.component == Some(home)).count() == 1
        && system.components.iter().all(|component| component.parent != Some(home))
}
