//! `prm` and `edp`: the tests of a component under its server's supply.

use serde_json::{Map, Value, json};

use super::tree::above;
use crate::carried::{ChainBounds, constrained_distance};
use crate::catalogue::TestId;
use crate::compositional::rules::OuterOrder;
use crate::compositional::{Supply, Workload, edf, fp, mpr};
use crate::edf::qpa::{Demand, EdfTask};
use crate::exact::{compare_sum, excess_time, percent, sum_ppm};
use crate::fp::rta::{FpTask, Response};
use crate::global::{Load, Rule, Sporadic, Terms};
use crate::report::TaskReport;
use crate::scope::{Unit, UnitTask, ns};
use crate::server::ServerSupply;
use crate::verdict::{Answer, Bound, Verdict};

/// The tasks of a unit in the form of its order.
#[derive(Clone, Debug)]
pub(crate) enum Tasks {
    /// Fixed priorities.
    Fp(Vec<FpTask>),
    Edf(Vec<EdfTask>),
}

impl Tasks {
    /// # Errors
    /// Why the unit's order or its tasks are not covered.
    pub(crate) fn of(unit: &Unit, carried: &ChainBounds) -> Result<Tasks, String> {
        let late = |task: &UnitTask| format!("no bound is known for the releases of \"{}\"", task.name);
        let too_long = || "costs and jitter exceed 64-bit nanoseconds".to_owned();
        if let Some(why) = unit.uncovered_sections() {
            return Err(why);
        }
        match above(unit) {
            OuterOrder::Deadline => {
                let mut tasks = Vec::with_capacity(unit.tasks.len());
                for task in &unit.tasks {
                    let release = carried.release(task.id).ok_or_else(|| late(task))?;
                    let Some(d) = task.d.checked_sub(task.j).filter(|d| *d > 0) else {
                        return Err(format!("needs release jitter below the deadline: \"{}\"", task.name));
                    };
                    let burst = if task.chained { release.checked_add(task.j).ok_or_else(too_long)? } else { 0 };
                    let c = unit.charged(task).ok_or_else(too_long)?;
                    tasks.push(EdfTask { c, t: task.t, d, burst, b: task.b });
                }
                Ok(Tasks::Edf(tasks))
            }
            OuterOrder::Fixed => {
                if unit.levels.iter().any(|level| level.demotes) {
                    return Err("needs levels that demote no late job".to_owned());
                }
                let mut tasks = Vec::with_capacity(unit.tasks.len());
                for task in &unit.tasks {
                    let release = carried.release(task.id).ok_or_else(|| late(task))?;
                    let j = release.checked_add(task.j).ok_or_else(too_long)?;
                    let c = unit.charged(task).ok_or_else(too_long)?;
                    // A successor's deadline counts from its own release.
                    let d = if task.chained { task.d.checked_add(release).ok_or_else(too_long)? } else { task.d };
                    tasks.push(FpTask { c, t: task.t, d, j, b: task.b, level: task.level });
                }
                Ok(Tasks::Fp(tasks))
            }
            _ => Err("needs fixed priorities or edf in the component".to_owned()),
        }
    }

    pub(crate) fn workload(&self) -> Workload<'_> {
        match self {
            Tasks::Fp(tasks) => Workload::Fp(tasks),
            Tasks::Edf(tasks) => Workload::Edf(tasks),
        }
    }
}

/// Bounds the completions of a component's tasks, from their source's arrival, in order of the
/// unit; `None` each where there is no bound or none can be had.
pub(crate) fn responses(unit: &Unit, carried: &ChainBounds, supply: &Supply) -> Vec<Option<u64>> {
    let none = vec![None; unit.tasks.len()];
    let mut terms_left = fp::TERMS_MAX;
    if unit.uncovered_sections().is_some() {
        return none;
    }
    let Ok(Tasks::Fp(tasks)) = Tasks::of(unit, carried) else { return none };
    let known = fp::at_once(&tasks, supply).into_iter().enumerate();
    let each = |(i, known): (usize, Option<Response>)| {
        known.or_else(|| fp::response(&tasks, i, supply, &mut terms_left)).map(|response| response.from_arrival)
    };
    known.map(each).collect()
}

/// The response that is compared with the deadline. For a chain's successor it counts from its own
/// release.
pub(crate) fn to_deadline(response: Response, task: &UnitTask) -> Option<u64> {
    if task.chained { response.from_release.checked_add(task.j) } else { Some(response.from_arrival) }
}

/// The verdict of a test, its reports on the tasks, and its figures.
pub(crate) type TestResult = (Verdict, Vec<TaskReport>, Map<String, Value>);

/// The supply that one of the two tests uses for a component.
pub(crate) fn supply_of(unit: &Unit, carried: &ChainBounds, test: TestId) -> Option<Supply> {
    let served = unit.served.as_ref()?;
    let supply = served.supply.clone().ok()?;
    if test == TestId::Prm { Some(supply) } else { supply.by(carried.end(served.server()?)?) }
}

/// `prm`: the component under the supply that its server's rule guarantees.
///
/// # Errors
/// The precondition that does not hold.
pub(crate) fn prm(unit: &Unit, carried: &ChainBounds) -> Result<TestResult, String> {
    let served = unit.served.as_ref().ok_or("needs a component")?;
    if served.wide.is_some() {
        return Err("needs a component on one CPU".to_owned());
    }
    match &served.supply {
        Ok(supply) => {
            let mut said = decide(unit, carried, served, *supply)?;
            said.2.insert("supply".to_owned(), json!(served.form));
            Ok(said)
        }
        Err(why) => Ok((Verdict::NotProven { why: why.clone() }, Vec::new(), Map::new())),
    }
}

/// `edp`: the same, with every budget given as early as the level above is proven to give it.
///
/// # Errors
/// The precondition that does not hold.
pub(crate) fn edp(unit: &Unit, carried: &ChainBounds) -> Result<TestResult, String> {
    let served = unit.served.as_ref().ok_or("needs a component")?;
    let server =
        served.server().filter(|_| served.bounded).ok_or("needs a server whose every budget has a deadline")?;
    let supply = served.supply.clone()?;
    let early = carried.end(server).ok_or("no bound is known for the server's response")?;
    let (period, _) = served.interface.ok_or("needs a period and a budget")?;
    // The part of the budget that costs take is given late too.
    let earlier = supply.by(early).filter(|_| early < period);
    let supply = earlier.ok_or("the level above does not bound the server's response below its period")?;
    let mut said = decide(unit, carried, served, supply)?;
    said.2.insert("supply".to_owned(), json!(served.form));
    said.2.insert("supply_deadline_ns".to_owned(), json!(early));
    Ok(said)
}

fn decide(unit: &Unit, carried: &ChainBounds, served: &ServerSupply, supply: Supply) -> Result<TestResult, String> {
    let tasks = Tasks::of(unit, carried)?;
    let mut figures = Map::new();
    if let Some((period, budget)) = served.interface {
        figures.insert("period_ns".to_owned(), json!(period));
        figures.insert("budget_ns".to_owned(), json!(budget));
    }
    figures.insert("blackout_ns".to_owned(), json!(supply.blackout()));
    if served.loss > 0 {
        figures.insert("loss_ns".to_owned(), json!(served.loss));
    }
    let loads = unit.tasks.iter().map(|task| (task.c, task.t));
    figures.insert("utilization_ppm".to_owned(), json!(sum_ppm(loads)));
    if let Some(witness) = overload(unit, served) {
        return Ok((Verdict::Infeasible { witness }, Vec::new(), figures));
    }
    let (verdict, reports) = match &tasks {
        Tasks::Fp(tasks) => by_responses(unit, tasks, &supply),
        Tasks::Edf(tasks) => by_demand(unit, tasks, &supply, &mut figures),
    };
    Ok((verdict, reports, figures))
}

/// The tasks of a component as the tests of several CPUs see them.
///
/// # Errors
/// Why they are not covered.
pub(crate) fn on_several(unit: &Unit, carried: &ChainBounds, late: u64) -> Result<(Vec<Sporadic>, Rule), String> {
    if let Some(why) = unit.uncovered_sections() {
        return Err(why);
    }
    let rule = match unit.edf() {
        Ok(()) => Rule::Edf,
        Err(_) if unit.fifo_levels() as usize == unit.levels.len() => Rule::Fp,
        Err(why) => return Err(format!("needs edf or fixed priorities in the component: {why}")),
    };
    let each = |task: &UnitTask| {
        if task.b > 0 {
            return Err(format!("needs tasks without blocking: \"{}\"", task.name));
        }
        let (t, j) = (constrained_distance(task, carried)?, task.j.saturating_add(late));
        Ok(Sporadic { c: task.c, d: task.d, t, j, level: task.level })
    };
    Ok((unit.tasks.iter().map(each).collect::<Result<_, _>>()?, rule))
}

/// `mpr`: a component on several CPUs under what its servers guarantee.
///
/// # Errors
/// The precondition that does not hold.
pub(crate) fn mpr(unit: &Unit, carried: &ChainBounds) -> Result<TestResult, String> {
    let served = unit.served.as_ref().ok_or("needs a component")?;
    let wide = served.wide.as_ref().ok_or("needs a component on several CPUs; on one, prm says more")?;
    let supply = match wide {
        Ok(supply) => supply,
        Err(why) => return Ok((Verdict::NotProven { why: why.clone() }, Vec::new(), Map::new())),
    };
    // An arrival between two decisions is noticed at the next one. This is a later release.
    let (tasks, rule) = on_several(unit, carried, served.late)?;
    let mut figures = Map::new();
    figures.insert("period_ns".to_owned(), json!(supply.period()));
    figures.insert("budget_ns".to_owned(), json!(supply.budget()));
    figures.insert("cpus".to_owned(), json!(supply.cpus()));
    let blackout = supply.time_for(1).map(|t| t - 1);
    figures.insert("blackout_ns".to_owned(), json!(blackout));
    let loads = unit.tasks.iter().map(|task| (task.c, task.t));
    figures.insert("utilization_ppm".to_owned(), json!(sum_ppm(loads)));
    if let Some(witness) = overload(unit, served) {
        return Ok((Verdict::Infeasible { witness }, Vec::new(), figures));
    }
    let (load, responses) = match rule {
        Rule::Edf => {
            let within = |terms: &mut Terms| mpr::edf_within(&tasks, supply, terms);
            (Terms::run_with(&unit.terms, mpr::TERMS_MAX, within), vec![None; tasks.len()])
        }
        Rule::Fp => {
            let within = |terms: &mut Terms| mpr::fp_within(&tasks, supply, terms);
            let bounds = Terms::run_with(&unit.terms, mpr::TERMS_MAX, within);
            (bounds.load, bounds.responses)
        }
    };
    let why = match load {
        Load::Met => None,
        Load::Exceeded(excess) => {
            let name = excess.task.map_or("", |task| &unit.tasks[task].name);
            let (window, work, room) = (ns(excess.window), excess.work, excess.room);
            let number = |value: u128| u64::try_from(value).ok();
            figures.insert("task".to_owned(), json!(name));
            figures.insert("window_ns".to_owned(), json!(excess.window));
            figures.insert("work_ns".to_owned(), json!(number(work)));
            figures.insert("room_ns".to_owned(), json!(number(room)));
            let spell = |value| number(value).map_or("very much".to_owned(), |value| ns(value).to_string());
            Some(format!(
                "others may execute {} within {window} before a deadline of \"{name}\", and must not reach {}, \
                 which the least supply leaves",
                spell(work),
                spell(room)
            ))
        }
        Load::TooLong { task } => {
            Some(format!("\"{}\" may need longer than it has from its release to its deadline", unit.tasks[task].name))
        }
        Load::Unfit { task } => return Err(format!("needs times below 36 years: \"{}\"", unit.tasks[task].name)),
        Load::Full => Some(
            "the tasks' utilization leaves nothing of the budget, which this test needs for what is brought in"
                .to_owned(),
        ),
        Load::Undecided(limit) => Some(format!("undecided: {limit}")),
    };
    let mut bounds = Vec::new();
    let mut reports = Vec::new();
    for (task, response) in unit.tasks.iter().zip(responses) {
        bounds.extend(response.map(|wcrt| Bound { task: task.id, wcrt: ns(wcrt) }));
        if why.is_none() || response.is_some() {
            reports.push(report(task, Answer::Yes, response));
        }
    }
    let verdict = why.map_or(Verdict::Schedulable { bounds }, |why| Verdict::NotProven { why });
    Ok((verdict, reports, figures))
}

/// Whether the tasks need more than the server ever gives.
pub(crate) fn overload(unit: &Unit, served: &ServerSupply) -> Option<String> {
    let (period, budget) = served.interface.filter(|_| served.capped)?;
    let must = unit.tasks.iter().filter(|task| !task.server && task.dense && !task.cancellable);
    let loads = must.map(|task| (task.wcet, task.t));
    let most = u128::from(unit.m) * u128::from(period);
    // Does not fit for many CPUs with long periods. Then nothing is reported.
    let left = u64::try_from(most.saturating_sub(u128::from(budget))).ok()?;
    let over = compare_sum(loads.clone().chain([(left, period)]), u64::from(unit.m));
    (over == Some(std::cmp::Ordering::Greater)).then(|| {
        let load = sum_ppm(loads.clone()).map_or("more".to_owned(), percent);
        let room = sum_ppm([(budget, period)].into_iter()).map_or("less".to_owned(), percent);
        if load == room {
            // The same as text: what others leave of the CPUs is full but for this.
            let all = loads.chain([(left, period)]);
            let when = excess_time(all, u64::from(unit.m)).map_or("some centuries".to_owned(), |t| ns(t).to_string());
            return format!(
                "the tasks need more than the {room} of a CPU that the server gives: 1ns too much in each {when}"
            );
        }
        format!("the tasks need {load} of a CPU, and the server gives {room}")
    })
}

fn by_responses(unit: &Unit, tasks: &[FpTask], supply: &Supply) -> (Verdict, Vec<TaskReport>) {
    unit.terms.run(fp::TERMS_MAX, |terms_left| by_responses_within(unit, tasks, supply, terms_left))
}

fn by_responses_within(
    unit: &Unit,
    tasks: &[FpTask],
    supply: &Supply,
    terms_left: &mut u64,
) -> (Verdict, Vec<TaskReport>) {
    let mut why = None;
    let (mut bounds, mut reports) = (Vec::new(), Vec::with_capacity(tasks.len()));
    for (i, (task, known)) in unit.tasks.iter().zip(fp::at_once(tasks, supply)).enumerate() {
        let response = known.or_else(|| fp::response(tasks, i, supply, terms_left));
        let wcrt = response.and_then(|response| to_deadline(response, task));
        let answer = match wcrt {
            Some(wcrt) if wcrt <= task.d => Answer::Yes,
            Some(wcrt) => {
                let (wcrt, deadline) = (ns(wcrt), ns(task.d));
                why.get_or_insert_with(|| {
                    format!(
                        "under the least supply \"{}\" may take up to {wcrt}; its deadline is {deadline}",
                        task.name
                    )
                });
                Answer::Unknown
            }
            None => {
                why.get_or_insert_with(|| {
                    let reason = match *terms_left {
                        0 => "the work limit was reached",
                        _ => "the task and all jobs that can go before it use up the whole supply of the server",
                    };
                    format!("no bound for \"{}\": {reason}", task.name)
                });
                Answer::Unknown
            }
        };
        if let Some(wcrt) = wcrt {
            bounds.push(Bound { task: task.id, wcrt: ns(wcrt) });
        }
        reports.push(report(task, answer, wcrt));
    }
    let verdict = why.map_or(Verdict::Schedulable { bounds }, |why| Verdict::NotProven { why });
    (verdict, reports)
}

fn by_demand(
    unit: &Unit,
    tasks: &[EdfTask],
    supply: &Supply,
    figures: &mut Map<String, Value>,
) -> (Verdict, Vec<TaskReport>) {
    let found = unit.terms.run(edf::TERMS_MAX, |left| edf::analyse_within(tasks, supply, left));
    let verdict = match found {
        Demand::Met { horizon } => {
            figures.insert("horizon_ns".to_owned(), json!(horizon));
            Verdict::Schedulable { bounds: Vec::new() }
        }
        Demand::Exceeded { t, demand } => {
            let given = supply.sbf(t);
            figures.insert("interval_ns".to_owned(), json!(t));
            figures.insert("demand_ns".to_owned(), json!(demand));
            figures.insert("supply_ns".to_owned(), json!(given));
            let (t, demand, given) = (ns(t), ns(demand), ns(given));
            let why = format!("the tasks can demand {demand} within {t}, in which the server may give {given}");
            Verdict::NotProven { why }
        }
        Demand::Overload => {
            Verdict::NotProven { why: "the tasks, with what costs them, need more than the server gives".to_owned() }
        }
        Demand::Undecided(stop) => Verdict::NotProven { why: format!("undecided: {stop}") },
    };
    let reports = match verdict.answer() {
        Answer::Yes => unit.tasks.iter().map(|task| report(task, Answer::Yes, None)).collect(),
        _ => Vec::new(),
    };
    (verdict, reports)
}

pub(crate) fn report(task: &UnitTask, verdict: Answer, wcrt: Option<u64>) -> TaskReport {
    TaskReport { id: task.id, task: task.name.clone(), verdict, wcrt: wcrt.map(ns), deadline: ns(task.d) }
}
