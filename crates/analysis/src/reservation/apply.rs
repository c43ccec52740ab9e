//! `cbs`: the test of a task alone in a constant-bandwidth server.

use serde_json::{Map, json};
use takt_model::Late;

use super::deterministic::{Demand, keeps_up, pending, response};
use crate::chains::Carried;
use crate::compositional::{Said, overload, report, to_deadline};
use crate::exact::sum_ppm;
use crate::scope::{Unit, ns};
use crate::verdict::{Answer, Bound, Verdict};

/// `cbs`: one task alone in a component whose server is a constant-bandwidth server.
///
/// # Errors
/// The precondition that does not hold.
pub(crate) fn cbs(unit: &Unit, carried: &Carried) -> Result<Said, String> {
    let served = unit.served.as_ref().ok_or("needs a component")?;
    let reservation = served.reservation.clone()?;
    let [task] = unit.tasks.as_slice() else {
        return Err(format!("needs one task alone in the component, here are {}", unit.tasks.len()));
    };
    if task.server {
        return Err("needs a task, not a server, in the component".to_owned());
    }
    if unit.levels.iter().any(|level| level.late == Late::Demote) {
        return Err("needs levels that demote no late job".to_owned());
    }
    let too_long = || "costs and jitter exceed 64-bit nanoseconds".to_owned();
    let release = carried.release(task.id);
    let release = release.ok_or_else(|| format!("no bound is known for the releases of \"{}\"", task.name))?;
    let j = release.checked_add(task.j).ok_or_else(too_long)?;
    let c = unit.charged(task).ok_or_else(too_long)?;
    let demand = Demand { c, p: task.t, j, b: task.b };
    let mut figures = Map::new();
    if let Some((period, budget)) = served.interface {
        figures.insert("period_ns".to_owned(), json!(period));
        figures.insert("budget_ns".to_owned(), json!(budget));
    }
    if served.loss > 0 {
        figures.insert("loss_ns".to_owned(), json!(served.loss));
    }
    figures.insert("gap_ns".to_owned(), json!(reservation.gap()));
    figures.insert("utilization_ppm".to_owned(), json!(sum_ppm([(task.c, task.t)].into_iter())));
    if let Some(witness) = overload(unit, served) {
        return Ok((Verdict::Infeasible { witness }, Vec::new(), figures));
    }
    figures.insert("pending".to_owned(), json!(pending(&demand, &reservation)));
    let wcrt = response(&demand, &reservation).and_then(|response| to_deadline(response, task));
    let name = &task.name;
    let why = match wcrt {
        Some(wcrt) if wcrt <= task.d => None,
        Some(wcrt) => Some(format!("\"{name}\" may take up to {}; its deadline is {}", ns(wcrt), ns(task.d))),
        None if !keeps_up(&demand, &reservation) => {
            Some(format!("no bound for \"{name}\": it needs more than the server gives in the long run"))
        }
        None => Some(format!("no bound for \"{name}\": times exceed 64-bit nanoseconds")),
    };
    let bounds: Vec<Bound> = wcrt.map(|wcrt| Bound { task: task.id, wcrt: ns(wcrt) }).into_iter().collect();
    let answer = if why.is_none() { Answer::Yes } else { Answer::Unknown };
    let verdict = match why {
        None => Verdict::Schedulable { bounds },
        Some(why) => Verdict::NotProven { why },
    };
    Ok((verdict, vec![report(task, answer, wcrt)], figures))
}
