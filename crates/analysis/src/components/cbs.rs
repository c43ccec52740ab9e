//! `cbs`: the test of a task alone in a constant-bandwidth server.

use serde_json::{Map, json};
use takt_model::{Late, gcd};

use super::{TestResult, overload, report, to_deadline};
use crate::carried::ChainBounds;
use crate::exact::sum_ppm;
use crate::report::TestReport;
use crate::reservation::deterministic::{Demand, JOBS_MAX, Reservation, keeps_up, pending_within, response_within};
use crate::reservation::stochastic::{Enclosure, Model};
use crate::scope::{Unit, ns};
use crate::verdict::{Answer, Bound, Verdict};

/// `cbs`: one task alone in a component whose server is a constant-bandwidth server.
///
/// # Errors
/// The precondition that does not hold.
pub(crate) fn cbs(unit: &Unit, carried: &ChainBounds) -> Result<TestResult, String> {
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
    if reservation.delay() > 0 {
        figures.insert("late_ns".to_owned(), json!(reservation.delay()));
    }
    figures.insert("gap_ns".to_owned(), json!(reservation.gap()));
    figures.insert("utilization_ppm".to_owned(), json!(sum_ppm([(task.c, task.t)].into_iter())));
    let share = in_time(unit, &reservation);
    let often = share.filter(|share| share.low > 0.0).map_or(String::new(), |share| {
        // Rounded down.
        let percent = (share.low * 1e6).floor() / 1e4;
        format!("{SHARE}{percent} % of its jobs make it, if their times are independent")
    });
    if let Some(share) = share {
        let share = json!({ "low": share.low, "estimate": share.estimate, "high": share.high });
        figures.insert("in_time".to_owned(), share);
    }
    if let Some(witness) = overload(unit, served) {
        return Ok((Verdict::Infeasible { witness: witness + &often }, Vec::new(), figures));
    }
    let response = unit.terms.run(JOBS_MAX, |left| response_within(&demand, &reservation, left));
    let pending = unit.terms.run(JOBS_MAX, |left| pending_within(&demand, &reservation, left, || response));
    figures.insert("pending".to_owned(), json!(pending));
    let wcrt = response.and_then(|response| to_deadline(response, task));
    let name = &task.name;
    let why = match wcrt {
        Some(wcrt) if wcrt <= task.d => None,
        Some(wcrt) => Some(format!("\"{name}\" may take up to {}; its deadline is {}{often}", ns(wcrt), ns(task.d))),
        None if !keeps_up(&demand, &reservation) => {
            Some(format!("no bound for \"{name}\": its wcet needs more than the server gives in the long run{often}"))
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

/// The text before the share of jobs in time, in a reason.
const SHARE: &str = "; at least ";

/// Takes back what a report says of the share of jobs in time: it rests on the level above, as every bound does.
pub(crate) fn withdraw_share(report: &mut TestReport) {
    if report.figures.remove("in_time").is_none() {
        return;
    }
    if let Verdict::NotProven { why } | Verdict::Infeasible { witness: why } = &mut report.verdict
        && let Some(at) = why.find(SHARE)
    {
        why.truncate(at);
    }
}

/// A budget is cut into so many granules at most: what a look aside may cost.
const GRANULES_MAX: u64 = 64;

/// The share of jobs that are done by their deadline in the long run, where the file says how long
/// they take and when they come.
fn in_time(unit: &Unit, reservation: &Reservation) -> Option<Enclosure> {
    let (exec, arrivals) = unit.served.as_ref()?.random.as_ref()?;
    let [task] = unit.tasks.as_slice() else { return None };
    let extra = unit.charged(task)?.checked_sub(task.c)?.checked_add(task.b)?;
    let exec = exec.map(|c| c.saturating_add(extra));
    let common = exec.points().iter().fold(reservation.budget(), |all, (c, _)| gcd(all, *c));
    let exact = reservation.budget() / common <= GRANULES_MAX;
    let granularity = if exact { common } else { reservation.budget().div_ceil(GRANULES_MAX) };
    let model = Model::new(&exec, arrivals, reservation.period(), reservation.budget(), granularity).ok()?;
    // The model's responses count from the release.
    let left = task.d.saturating_sub(task.j).saturating_sub(reservation.delay());
    Some(model.solve().ok()?.within(left / reservation.period()))
}
