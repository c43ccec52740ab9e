//! The tests of one unit: preconditions, costs and jitter charged, evidence collected.

mod binding;
mod global;
mod one_cpu;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use serde_json::{Map, Value, json};
use takt_model::plan::Order;
use takt_model::{Late, Span};

use crate::carried::ChainBounds;
use crate::catalogue::TestId;
use crate::components;
use crate::edf::density;
use crate::edf::qpa::{self, Demand, EdfTask};
use crate::exact::{compare_sum, excess_time, percent, sum_ppm};
use crate::fp::{hyperbolic, levels, ll_bound};
use crate::report::{TaskReport, TestReport};
use crate::reservation::level;
use crate::responses::responses;
use crate::scope::{Ordinary, Unit, UnitTask, ns, synchronous};
use crate::verdict::{Answer, Bound, Stop, Verdict};

pub(crate) use binding::{explain, explain_kernel, explain_placement, of_parts};
pub(crate) use global::{responses_of_several, sporadic_tasks};
pub(crate) use one_cpu::SimultaneousRelease;

/// The tests of one unit, the cheapest first.
pub(crate) const PORTFOLIO: &[TestId] = &[
    TestId::Necessary,
    TestId::LlBound,
    TestId::Hyperbolic,
    TestId::Density,
    TestId::Gfb,
    TestId::Qpa,
    TestId::NpEdf,
    TestId::EdfWcrt,
    TestId::Rta,
    TestId::Offsets,
    TestId::Opa,
    TestId::Bak,
    TestId::Bcl,
    TestId::BclIterative,
    TestId::DaLc,
    TestId::RtaGlobal,
    TestId::RtaLc,
    TestId::Bar,
    TestId::FfDbf,
    TestId::Exact,
    TestId::TardinessDa,
    TestId::TardinessCva,
    TestId::Cbs,
    TestId::Prm,
    TestId::Edp,
    TestId::Mpr,
];

/// Whether a test is asked of components, and of nothing else.
pub(crate) const fn of_components(test: TestId) -> bool {
    matches!(test, TestId::Cbs | TestId::Prm | TestId::Edp | TestId::Mpr)
}

/// A verdict with its evidence.
struct Outcome {
    verdict: Verdict,
    tasks: Vec<TaskReport>,
    figures: Map<String, Value>,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        Outcome { verdict, tasks: Vec::new(), figures: Map::new() }
    }
}

impl From<components::TestResult> for Outcome {
    fn from((verdict, tasks, figures): components::TestResult) -> Self {
        Outcome { verdict, tasks, figures }
    }
}

/// A precondition that does not hold.
type Inapplicable = String;

/// Runs one test of [`PORTFOLIO`] on a unit.
pub(crate) fn apply(test: TestId, unit: &Unit, carried: &ChainBounds) -> TestReport {
    let component = of_components(test);
    let uncovered = unit.uncovered_sections();
    let outcome = match test {
        TestId::Necessary => Ok(necessary(unit)),
        _ if uncovered.is_some() => Err(uncovered.unwrap_or_default()),
        TestId::Opa if unit.tasks.iter().any(|task| task.section > 0) => {
            Err("needs blocking that does not depend on priorities: some task has sections that nothing preempts"
                .to_owned())
        }
        _ if component != unit.served.is_some() => {
            Err(if component { "needs a component" } else { "the tasks run in a component" }.to_owned())
        }
        _ if ignores_ordinary(unit, test) => Err(format!(
            "needs a node on which ordinary threads take nothing, or a test with this charge: {}",
            match unit.ordinary {
                _ if unit.has_cbs => "density does",
                Some(Ordinary::Share { .. }) => "qpa and np-edf do",
                _ => "rta, edf-wcrt and those of several CPUs do",
            }
        )),
        TestId::Cbs => components::cbs(unit, carried).map(Outcome::from),
        TestId::Prm => components::prm(unit, carried).map(Outcome::from),
        TestId::Edp => components::edp(unit, carried).map(Outcome::from),
        TestId::Mpr => components::mpr(unit, carried).map(Outcome::from),
        _ if unit.has_cbs && test != TestId::Density => {
            Err("a constant-bandwidth server demands by bandwidth, not by jobs".to_owned())
        }
        TestId::LlBound | TestId::Hyperbolic => rate_bound(unit, test),
        TestId::Density => apply_density(unit, carried),
        TestId::Gfb => global::apply_gfb(unit, carried),
        TestId::Bak => global::apply_bak(unit, carried),
        TestId::Bcl => global::apply_bcl(unit, carried),
        TestId::BclIterative => global::apply_bcl_iterative(unit, carried),
        TestId::DaLc => global::apply_da_lc(unit, carried),
        TestId::RtaGlobal => global::apply_rta(unit, carried),
        TestId::RtaLc => global::apply_rta_lc(unit, carried),
        TestId::Bar => global::apply_bar(unit, carried),
        TestId::FfDbf => global::apply_ff_dbf(unit, carried),
        TestId::TardinessDa => global::apply_tardiness_da(unit),
        TestId::TardinessCva => global::apply_tardiness_cva(unit),
        TestId::Exact => global::apply_exact(unit),
        TestId::Qpa => apply_qpa(unit, carried),
        TestId::NpEdf => one_cpu::apply_np_edf(unit, carried),
        TestId::Offsets => one_cpu::apply_offsets(unit),
        TestId::Opa => one_cpu::apply_opa(unit),
        TestId::EdfWcrt => edf_wcrt(unit, carried),
        TestId::Rta => apply_rta(unit, carried),
        _ => Ok(necessary(unit)),
    };
    let outcome = outcome.unwrap_or_else(|precondition| Verdict::NotApplicable { precondition }.into());
    TestReport {
        test,
        scope: unit.scope.clone(),
        verdict: outcome.verdict,
        tasks: outcome.tasks,
        figures: outcome.figures,
    }
}

/// Whether a test does not count the time that ordinary threads take.
const fn ignores_ordinary(unit: &Unit, test: TestId) -> bool {
    use TestId::{
        Bak, Bar, Bcl, BclIterative, Cbs, DaLc, EdfWcrt, Edp, FfDbf, Gfb, NpEdf, Prm, Qpa, Rta, RtaGlobal, RtaLc,
    };
    match unit.ordinary {
        None => false,
        Some(_) if unit.has_cbs => !matches!(test, TestId::Density),
        Some(Ordinary::Share { .. }) => !matches!(test, Qpa | NpEdf),
        // A component's budget has been charged already.
        Some(Ordinary::Above { .. }) => !matches!(
            test,
            Rta | EdfWcrt | Gfb | Bak | Bcl | BclIterative | DaLc | RtaGlobal | RtaLc | Bar | FfDbf | Cbs | Prm | Edp
        ),
    }
}

fn yes() -> Verdict {
    Verdict::Schedulable { bounds: Vec::new() }
}

fn task_report(task: &UnitTask, verdict: Answer, wcrt: Option<u64>) -> TaskReport {
    TaskReport { id: task.id, task: task.name.clone(), verdict, wcrt: wcrt.map(Span::from_ns), deadline: ns(task.d) }
}

/// The first task for which a condition holds, by name.
fn find(unit: &Unit, mut holds: impl FnMut(&UnitTask) -> bool) -> Option<&str> {
    unit.tasks.iter().find(|task| holds(task)).map(|task| task.name.as_str())
}

fn one_cpu(unit: &Unit) -> Result<(), Inapplicable> {
    if unit.m == 1 { Ok(()) } else { Err(format!("needs one CPU, here are {}", unit.m)) }
}

fn edf(unit: &Unit) -> Result<(), Inapplicable> {
    unit.edf().map_err(|why| format!("needs edf: {why}"))
}

fn too_long() -> Inapplicable {
    "costs and jitter exceed 64-bit nanoseconds".to_owned()
}

/// Refutes whatever the scheduler: jitter + C > D, or U > m.
fn necessary(unit: &Unit) -> Outcome {
    // A job that may be omitted is no miss: only the others must get their time.
    // Nor must a server get its budget: its tasks may need less.
    let must = |task: &&UnitTask| !(task.server || task.cancellable);
    let loads = unit.tasks.iter().filter(must).map(|task| (task.wcet, task.t));
    let hopeless = |task: &UnitTask| must(&task) && task.j.saturating_add(task.wcet) > task.d;
    let tasks: Vec<TaskReport> =
        unit.tasks.iter().filter(|task| hopeless(task)).map(|task| task_report(task, Answer::No, None)).collect();
    let verdict = if let Some(task) = unit.tasks.iter().find(|task| hopeless(task)) {
        let (c, j, d) = (ns(task.wcet), ns(task.j), ns(task.d));
        let jitter = if j.is_zero() { String::new() } else { format!("release jitter {j} + ") };
        Verdict::Infeasible { witness: format!("task \"{}\": {jitter}wcet {c} exceeds its deadline {d}", task.name) }
    } else if let Some(witness) = overload(loads, unit.m) {
        Verdict::Infeasible { witness }
    } else if unit.tasks.is_empty() {
        yes()
    } else {
        Verdict::NotProven { why: "no necessary condition is violated, which proves nothing".to_owned() }
    };
    let mut figures = Map::new();
    let all = unit.tasks.iter().map(|task| (task.c, task.t));
    figures.insert("utilization_ppm".to_owned(), json!(sum_ppm(all)));
    Outcome { verdict, tasks, figures }
}

/// Says that tasks of (C, T) need more than so many CPUs, in percent. If both percentages look the
/// same, it says how long it takes until 1 ns is missing. `None`: the tasks do not need more.
pub(crate) fn overload(loads: impl Iterator<Item = (u64, u64)> + Clone, cpus: u32) -> Option<String> {
    if compare_sum(loads.clone(), u64::from(cpus)) != Some(Ordering::Greater) {
        return None;
    }
    let room = percent(u64::from(cpus) * 1_000_000);
    Some(match sum_ppm(loads.clone()).map(percent) {
        Some(load) if load == room => {
            let when = excess_time(loads, u64::from(cpus)).map_or("some centuries".to_owned(), |t| ns(t).to_string());
            format!("the tasks need more than the {room} of a CPU that there is: 1ns too much in each {when}")
        }
        load => format!("the tasks need {} of a CPU, and there is {room}", load.unwrap_or("more".to_owned())),
    })
}

/// The two utilisation bounds of rate-monotonic priorities.
fn rate_bound(unit: &Unit, test: TestId) -> Result<Outcome, Inapplicable> {
    one_cpu(unit)?;
    if unit.edf().is_ok() && !unit.tasks.is_empty() {
        return Err("needs fixed priorities: the strategy goes by deadline".to_owned());
    }
    if (unit.fifo_levels() as usize) < unit.levels.len() {
        return Err("needs fixed priorities: some level is not fifo".to_owned());
    }
    let mut by_level: Vec<&UnitTask> = unit.tasks.iter().collect();
    by_level.sort_by_key(|task| (task.level, task.t));
    if let Some(pair) = by_level.windows(2).find(|pair| pair[0].t > pair[1].t) {
        let (a, b) = (&pair[0].name, &pair[1].name);
        return Err(format!(
            "needs priorities in the order of rates: \"{a}\" has the longer period and is more important than \"{b}\""
        ));
    }
    if let Some(pair) = by_level.windows(2).find(|pair| pair[0].level == pair[1].level && pair[0].t != pair[1].t) {
        return Err(format!(
            "needs priorities in the order of rates: \"{}\" and \"{}\" share a level",
            pair[0].name, pair[1].name
        ));
    }
    if let Some(name) = find(unit, |task| task.d < task.t) {
        return Err(format!("needs deadlines that are not shorter than periods: \"{name}\""));
    }
    if let Some(name) = find(unit, |task| task.j > 0 || task.b > 0 || task.chained) {
        return Err(format!("needs tasks without jitter, blocking or predecessors: \"{name}\""));
    }
    let mut pairs = Vec::with_capacity(unit.tasks.len() + 1);
    for task in &unit.tasks {
        pairs.push((unit.charged(task).ok_or_else(too_long)?, task.t));
    }
    if let Some(tick) = unit.tick() {
        if let Some(name) = find(unit, |task| task.t < tick.t) {
            return Err(format!(
                "needs the tick, which is the most important, to have the shortest period: \"{name}\" is faster"
            ));
        }
        pairs.push((tick.c, tick.t));
    }
    let mut figures = Map::new();
    let (answer, why) = if test == TestId::LlBound {
        let (bound, load) = (ll_bound::bound_ppm(pairs.len()), sum_ppm(pairs.iter().copied()));
        figures.insert("bound_ppm".to_owned(), json!(bound));
        figures.insert("utilization_ppm".to_owned(), json!(load));
        let (bound, count) = (percent(bound), pairs.len());
        let load = load.map_or("of more than one CPU".to_owned(), percent);
        let more = if load == bound { " by less than 0.0001 %" } else { "" };
        (ll_bound::schedulable(&pairs), format!("utilization {load} exceeds the bound {bound} for {count} tasks{more}"))
    } else {
        figures.insert("product_ppm".to_owned(), json!(hyperbolic::product_ppm(&pairs)));
        (hyperbolic::schedulable(&pairs), "the product of all (U + 1) exceeds 2".to_owned())
    };
    let verdict = if answer == Answer::Yes { yes() } else { Verdict::NotProven { why } };
    Ok(Outcome { verdict, tasks: Vec::new(), figures })
}

fn apply_density(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    one_cpu(unit)?;
    edf(unit)?;
    if let Some(name) = find(unit, |task| task.b > 0) {
        return Err(format!("needs tasks without blocking: \"{name}\""));
    }
    if unit.tick().is_some() && !unit.has_cbs {
        return Err("needs a node whose tick costs nothing".to_owned());
    }
    let triples = densities(unit, carried)?;
    let verdict = match density::schedulable(&triples) {
        Answer::Yes => yes(),
        Answer::No
            if unit.free_of_costs() && unit.tasks.iter().all(|task| !task.chained && task.j == 0 && !task.server) =>
        {
            Verdict::Infeasible { witness: "the tasks need more than one CPU".to_owned() }
        }
        _ => Verdict::NotProven { why: "the densities C / min(D, T) add up to more than 1".to_owned() },
    };
    let mut figures = Map::new();
    figures.insert("density_ppm".to_owned(), json!(sum_ppm(triples.iter().map(|&(c, d, t)| (c, d.min(t))))));
    if unit.budget_lateness > 0 {
        figures.insert("late_ns".to_owned(), json!(unit.budget_lateness));
    }
    Ok(Outcome { verdict, tasks: Vec::new(), figures })
}

/// (C, D, T) of each task with its costs, in ns and in the order of the tasks. With constant-bandwidth
/// servers, the other loads of their CPU follow.
fn densities(unit: &Unit, carried: &ChainBounds) -> Result<Vec<(u64, u64, u64)>, Inapplicable> {
    let mut triples = Vec::with_capacity(unit.tasks.len());
    for task in &unit.tasks {
        let (d, t) = window(task, carried)?;
        let c = if unit.has_cbs { level::demand(unit, task) } else { unit.charged(task) };
        triples.push((c.ok_or_else(too_long)?, d, t));
    }
    if unit.has_cbs {
        level::add_other_loads(unit, &mut triples).ok_or_else(too_long)?;
    }
    Ok(triples)
}

/// The shortest time from a release to its deadline, and to the next release, in ns.
fn window(task: &UnitTask, carried: &ChainBounds) -> Result<(u64, u64), Inapplicable> {
    let release_delay = carried
        .release(task.id)
        .and_then(|release| release.checked_add(task.j))
        .ok_or_else(|| format!("no bound is known for the releases of \"{}\"", task.name))?;
    match (task.d.checked_sub(task.j), task.t.checked_sub(release_delay)) {
        (Some(d), Some(t)) if d > 0 && t > 0 => Ok((d, t)),
        _ => Err(format!("needs releases that wander by less than deadline and period: \"{}\"", task.name)),
    }
}

/// The tasks of a unit for tests of demand, with their costs.
fn edf_tasks(unit: &Unit, carried: &ChainBounds) -> Result<Vec<EdfTask>, Inapplicable> {
    let mut tasks = Vec::with_capacity(unit.tasks.len());
    for task in &unit.tasks {
        let release = carried.release(task.id);
        let release = release.ok_or_else(|| format!("no bound is known for the releases of \"{}\"", task.name))?;
        let Some(d) = task.d.checked_sub(task.j).filter(|d| *d > 0) else {
            return Err(format!("needs release jitter below the deadline: \"{}\"", task.name));
        };
        let burst = if task.chained { release.checked_add(task.j).ok_or_else(too_long)? } else { 0 };
        let c = unit.charged(task).and_then(|c| unit.inflated(c)).ok_or_else(too_long)?;
        let b = task.b.checked_add(unit.ordinary_burst()).and_then(|b| unit.inflated(b)).ok_or_else(too_long)?;
        tasks.push(EdfTask { c, t: task.t, d, burst, b });
    }
    Ok(tasks)
}

fn apply_qpa(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    one_cpu(unit)?;
    edf(unit)?;
    let tasks = edf_tasks(unit, carried)?;
    let found = unit.terms.run(qpa::TERMS_MAX, |left| qpa::analyse_within(&tasks, unit.inflated_tick(), left));
    Ok(demand_outcome(unit, found, demand_is_exact(unit), |t, demand| {
        format!("released together, the tasks demand {demand} within the first {t}")
    }))
}

/// The outcome that follows from the demand by deadlines. `exact`: too much demand refutes, with
/// the witness `said(interval, demand)`.
fn demand_outcome(unit: &Unit, demand: Demand, exact: bool, said: impl Fn(Span, Span) -> String) -> Outcome {
    let mut figures = Map::new();
    let refuse = |why: String| {
        if exact { Verdict::Infeasible { witness: why } } else { Verdict::NotProven { why } }
    };
    let verdict = match demand {
        Demand::Met { horizon } => {
            figures.insert("horizon_ns".to_owned(), json!(horizon));
            yes()
        }
        Demand::Exceeded { t, demand } => {
            figures.insert("interval_ns".to_owned(), json!(t));
            figures.insert("demand_ns".to_owned(), json!(demand));
            refuse(said(ns(t), ns(demand)))
        }
        Demand::Overload => refuse("the tasks, with what costs them, need more than one CPU".to_owned()),
        Demand::Undecided(stop) => Verdict::NotProven { why: format!("undecided: {stop}") },
    };
    let tasks = match verdict.answer() {
        Answer::Yes => unit.tasks.iter().map(|task| task_report(task, Answer::Yes, None)).collect(),
        _ => Vec::new(),
    };
    Outcome { verdict, tasks, figures }
}

fn apply_rta(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    one_cpu(unit)?;
    if unit.by_deadline() {
        return Err("needs levels: here the only level goes by deadline, which edf-wcrt bounds".to_owned());
    }
    let mut terms_left = WITNESS_TERMS_MAX;
    let late = |task: &UnitTask, wcrt: Option<Span>| {
        let shown = |terms_left: &mut u64| one_cpu::late(unit, task, terms_left);
        let Some(wcrt) = wcrt else { return shown(&mut terms_left) };
        let witness = || {
            format!(
                "released together with all that is more important, \"{}\" can take {wcrt}; its deadline is {}",
                task.name,
                ns(task.d)
            )
        };
        // On a shared level, ties count against the task. If all others arrive 1 ns earlier, they do go first.
        let tied = || shared_is_exact(unit, task) && wcrt.as_ns() - 1 > task.d;
        let arranged = || {
            let (name, deadline) = (&task.name, ns(task.d));
            format!(
                "where the others are released together, \"{name}\" can take {wcrt}, less 1ns; its deadline is \
                 {deadline}"
            )
        };
        exact_for(unit, task).then(witness).or_else(|| shown(&mut terms_left)).or_else(|| tied().then(arranged))
    };
    Ok(response_outcome(unit, carried, late, Answer::No))
}

fn edf_wcrt(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    one_cpu(unit)?;
    if !unit.by_deadline() {
        return Err("needs one level that goes by deadline".to_owned());
    }
    // Then L(X) > X for some X: more work than time, which a synchronous release shows, if not for this task.
    let exact = unit.edf().is_ok() && demand_is_exact(unit);
    let late = |task: &UnitTask, wcrt: Option<Span>| {
        let wcrt = wcrt?;
        let witness = || {
            format!(
                "where all others are released together, \"{}\" can take {wcrt}; its deadline is {}",
                task.name,
                ns(task.d)
            )
        };
        exact.then(witness)
    };
    Ok(response_outcome(unit, carried, late, Answer::Unknown))
}

/// Terms that the search for a miss may evaluate for one unit.
const WITNESS_TERMS_MAX: u64 = 2_000_000;

/// The bounds of all tasks, and the verdict that follows. `late` gives the witness if a bound above
/// the deadline, or a missing bound, means a miss. `missed` is the answer for a task with such a
/// witness.
fn response_outcome(
    unit: &Unit,
    carried: &ChainBounds,
    mut late: impl FnMut(&UnitTask, Option<Span>) -> Option<String>,
    missed: Answer,
) -> Outcome {
    let (analysis, responses) = unit.terms.run(levels::TERMS_MAX, |left| {
        let mut analysis = levels::Analysis::within(*left);
        let mut responses = responses(unit, &mut analysis, carried);
        *left = analysis.terms().1;
        one_cpu::sharpen(unit, &mut responses, left);
        (analysis, responses)
    });
    let mut reports = Vec::with_capacity(unit.tasks.len());
    let mut bounds = Vec::new();
    let mut witness: Option<(u32, String)> = None;
    let mut why: Option<(u32, String)> = None;
    // Keeps the reason of the most important task.
    let keep_first = |slot: &mut Option<(u32, String)>, task: &UnitTask, text: &dyn Fn() -> String| {
        if slot.as_ref().is_none_or(|(level, _)| task.level < *level) {
            *slot = Some((task.level, text()));
        }
    };
    for (task, response) in unit.tasks.iter().zip(responses) {
        let wcrt = response.map(|response| response.from_arrival);
        let answer = match wcrt.map(ns) {
            Some(wcrt) if wcrt <= ns(task.d) => Answer::Yes,
            found => match (late(task, found), found) {
                (Some(text), _) => {
                    keep_first(&mut witness, task, &|| text.clone());
                    missed
                }
                (None, Some(wcrt)) => {
                    let deadline = ns(task.d);
                    keep_first(&mut why, task, &|| {
                        format!("\"{}\" may take up to {wcrt}; its deadline is {deadline}", task.name)
                    });
                    Answer::Unknown
                }
                (None, None) => {
                    let reason = || unbounded(unit, task, carried, &analysis);
                    keep_first(&mut why, task, &|| format!("no bound for \"{}\": {}", task.name, reason()));
                    Answer::Unknown
                }
            },
        };
        if let Some(wcrt) = wcrt {
            bounds.push(Bound { task: task.id, wcrt: ns(wcrt) });
        }
        reports.push(task_report(task, answer, wcrt));
    }
    let verdict = match (witness, why) {
        (Some((_, witness)), _) => Verdict::Infeasible { witness },
        (None, Some((_, why))) => Verdict::NotProven { why },
        (None, None) => Verdict::Schedulable { bounds },
    };
    Outcome { verdict, tasks: reports, figures: Map::new() }
}

/// Why a task has no bound.
fn unbounded(unit: &Unit, task: &UnitTask, carried: &ChainBounds, analysis: &levels::Analysis) -> String {
    let before = || unit.tasks.iter().filter(|other| other.level <= task.level);
    let tick = unit.tick().map(|tick| (tick.c, tick.t));
    let loads = before().map(|other| (unit.charged(other).unwrap_or(u64::MAX >> 1), other.t)).chain(tick);
    let load = compare_sum(loads.clone(), 1);
    if load == Some(Ordering::Greater) {
        return match sum_ppm(loads.clone()).map(percent) {
            Some(load) if load == "100 %" => {
                let when = excess_time(loads, 1).map_or("some centuries".to_owned(), |t| ns(t).to_string());
                format!("the task and all tasks that can go before it need 1ns in each {when} more than the whole CPU")
            }
            load => {
                let load = load.unwrap_or("more than 100 %".to_owned());
                format!("the task and all tasks that can go before it need {load} of the CPU")
            }
        };
    }
    if let Some(other) = before().find(|other| carried.release(other.id).is_none()) {
        return format!("no bound is known for the releases of \"{}\"", other.name);
    }
    if let Some(other) = before().find(|other| unit.levels[other.level as usize].late == Late::Demote) {
        return format!("a late job of the level of \"{}\" may be demoted", other.name);
    }
    let may_shift = |other: &UnitTask| other.j > 0 || other.b > 0 || carried.release(other.id) != Some(0);
    if load == Some(Ordering::Equal) && (unit.ordinary.is_some() || before().any(may_shift)) {
        return "the task and all tasks that can go before it need the whole CPU, and blocking or release jitter come \
                on top: its busy window never ends"
            .to_owned();
    }
    match analysis.stop(task.level) {
        Stop::Terms => format!("the work limit of {} terms was reached", analysis.terms().0),
        _ => "its busy window, with the longest periods and deadlines in it, may exceed nine years".to_owned(),
    }
}

/// Whether too much demand under EDF means a miss.
fn demand_is_exact(unit: &Unit) -> bool {
    synchronous(unit.tasks.iter()) && unit.free_of_costs() && !unit.tasks.iter().any(|task| task.cancellable)
}

/// Whether the bound on a shared level, first come first served, is attained apart from ties: the tasks may arrive as
/// the bound assumes.
fn shared_is_exact(unit: &Unit, task: &UnitTask) -> bool {
    let mut hep = unit.tasks.iter().filter(|other| other.level <= task.level);
    let omitted = unit.tasks.iter().any(|other| other.cancellable && other.level <= task.level);
    unit.levels[task.level as usize].order == Order::Fifo
        && unit.levels[..=task.level as usize].iter().all(|level| level.late == Late::Continue)
        && unit.free_of_costs()
        && !omitted
        && hep.all(|other| other.sporadic && other.j == 0 && other.b == 0 && !other.chained)
}

/// Whether a bound above the deadline means a miss: the synchronous release can happen, and nothing was charged above
/// what can happen.
fn exact_for(unit: &Unit, task: &UnitTask) -> bool {
    let mut hep = unit.tasks.iter().filter(|other| other.level <= task.level);
    unit.free_of_costs()
        && synchronous(hep.clone())
        && hep.all(|other| other.level < task.level || other.id == task.id)
        && !(unit.tasks.iter().any(|other| other.cancellable && other.level <= task.level))
}
