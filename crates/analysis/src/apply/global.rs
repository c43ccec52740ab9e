//! The tests of several CPUs.

use serde_json::{Map, Value, json};

use self::preemptions::{Job, PAIRS_MAX, PreemptingTask};
use super::{Inapplicable, Outcome, edf, find, task_report, too_long, window, yes};
use crate::carried::{ChainBounds, constrained_distance, min_distance};
use crate::exact::sum_ppm;
use crate::global::exact::{self, Reachability, Schedule, Ties};
use crate::global::tardiness_cva::{self, Gel, Tardiness};
use crate::global::tardiness_da;
use crate::global::{Bounds, Excess, Limit, Load, Rule, Sporadic, Terms, with_slack};
use crate::global::{bak, bar, bcl, bcl_iterative, da_lc, ff_dbf, gfb, rta_global, rta_lc};
use crate::report::TestReport;
use crate::scope::{Unit, UnitTask, ns};
use crate::verdict::{Answer, Bound, Verdict};
use takt_model::plan::Order;

mod preemptions;

pub(super) fn apply_gfb(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    let pairs = densities(unit, carried)?;
    let verdict = match gfb::schedulable(&pairs, unit.m) {
        Answer::Yes => yes(),
        _ => Verdict::NotProven { why: "the densities C / min(D, T) add up to more than m - (m - 1) max".to_owned() },
    };
    let mut figures = Map::new();
    figures.insert("density_ppm".to_owned(), json!(sum_ppm(pairs.iter().copied())));
    let densest = pairs.iter().filter_map(|&pair| sum_ppm(std::iter::once(pair))).max();
    figures.insert("density_max_ppm".to_owned(), json!(densest));
    figures.insert("cpus".to_owned(), json!(unit.m));
    Ok(Outcome { verdict, tasks: Vec::new(), figures })
}

/// delta_i = C_i' / min(D_i, T_i): jitter shortens both; C' holds the switches and migrations that the job itself can
/// suffer. (Charging them to the preemption_counts job, as on one CPU, is not safe here: the job may resume elsewhere.)
pub(super) fn densities(unit: &Unit, carried: &ChainBounds) -> Result<Vec<(u64, u64)>, Inapplicable> {
    edf(unit)?;
    unblocked(unit)?;
    let window = |task: &UnitTask| window(task, carried).map(|(d, t)| d.min(t));
    let windows = unit.tasks.iter().map(window).collect::<Result<Vec<_>, _>>()?;
    let charged = inflated_wcets(unit, carried, Rule::Edf).ok_or_else(too_long)?;
    Ok(charged.into_iter().zip(windows).collect())
}

/// How a test counts the workloads of the tasks that may delay a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// In the window up to its deadline.
    Window,
    /// In its response time.
    Response,
    /// In the window up to its deadline, with limited carry-in.
    LimitedWindow,
    /// In its response time, with limited carry-in.
    LimitedResponse,
}

/// The interference on a task, and the interference that would make it late. Times are in ns.
pub(super) struct Interference {
    /// Index of the task.
    pub(super) task: usize,
    /// The interval from its release.
    pub(super) length: u64,
    /// The wait that makes its job late, or its response longer.
    pub(super) wait: u64,
    /// The interference of each task of the unit, at most the wait.
    pub(super) works: Vec<u64>,
    /// m times the wait.
    pub(super) room: u128,
}

/// The interference on task k, with the slack that the test's bounds prove.
pub(super) fn interference(
    unit: &Unit,
    carried: &ChainBounds,
    report: &TestReport,
    form: Form,
    k: usize,
) -> Option<Interference> {
    let rule = rule(unit).ok()?;
    let tasks = constrained_tasks(unit, carried, rule).ok()?;
    let bound =
        |i: usize| report.tasks.iter().find(|entry| entry.id == unit.tasks[i].id)?.wcrt.map(takt_model::Span::as_ns);
    let slack: Vec<u64> =
        (0..tasks.len()).map(|i| bound(i).map_or(0, |bound| tasks[i].d.saturating_sub(bound))).collect();
    let slots = with_slack(&tasks, &slack)?;
    let task = &slots[k];
    let short = matches!(form, Form::Response | Form::LimitedResponse);
    let length = match bound(k) {
        Some(bound) if short => bound.checked_sub(task.j)?,
        _ => task.window,
    };
    let wait = length.checked_sub(task.c)? + 1;
    let mut works = match form {
        Form::LimitedWindow | Form::LimitedResponse => rta_lc::works(&slots, k, unit.m, length),
        _ => {
            let each = |(i, other): (usize, &crate::global::Slot)| match (rule, short) {
                _ if i == k || !other.interferes(rule, task.level) => 0,
                (Rule::Edf, false) => other.workload_due(task.window),
                (Rule::Edf, true) => other.workload(length).min(other.workload_due(task.window)),
                (Rule::Fp, _) => other.workload(length),
            };
            slots.iter().enumerate().map(each).collect()
        }
    };
    works.iter_mut().for_each(|work| *work = (*work).min(wait));
    Some(Interference { task: k, length, wait, works, room: u128::from(wait) * u128::from(unit.m) })
}

/// By task: C with all costs that can hit a job before its deadline.
fn inflated_wcets(unit: &Unit, carried: &ChainBounds, rule: Rule) -> Option<Vec<u64>> {
    if unit.costs.is_none() {
        return Some(unit.tasks.iter().map(|task| task.c).collect());
    }
    let contended = unit.tasks.len() > unit.m as usize;
    let preemptions = if contended { preemption_counts(unit, carried, rule)? } else { vec![0; unit.tasks.len()] };
    unit.tasks.iter().zip(preemptions).map(|(task, preemptions)| inflated_wcet(unit, task, preemptions)).collect()
}

/// By task: how often a job can be preempted. A preemption needs the release of a more important
/// job. Under EDF it is due no later: floor((D_i - D_j + J_j) / T_j) + 1 jobs per other task. Under
/// fixed priorities it has a more important level and arrived within D_i + J_j: ceil((D_i + J_j) /
/// T_j) jobs.
fn preemption_counts(unit: &Unit, carried: &ChainBounds, rule: Rule) -> Option<Vec<u64>> {
    let hit = |task: &UnitTask| {
        let release_delay = i128::from(carried.release(task.id)?) + i128::from(task.j);
        let from = if rule == Rule::Edf { i128::from(task.d) } else { 1 } - release_delay;
        Some(PreemptingTask { key: if rule == Rule::Edf { from } else { i128::from(task.level) }, from, t: task.t })
    };
    let job = |task: &UnitTask| {
        let until = i128::from(task.d);
        Job { key: if rule == Rule::Edf { until } else { i128::from(task.level) - 1 }, until }
    };
    let hits = unit.tasks.iter().map(hit).collect::<Option<Vec<PreemptingTask>>>()?;
    let jobs: Vec<Job> = unit.tasks.iter().map(job).collect();
    preemptions_by_others(&hits, &jobs)
}

/// How often each job can be hit by tasks other than its own.
fn preemptions_by_others(hits: &[PreemptingTask], jobs: &[Job]) -> Option<Vec<u64>> {
    let counts = preemptions::count(hits, jobs, PAIRS_MAX)?;
    let each = |((count, hit), job): ((u64, &PreemptingTask), &Job)| Some(count.saturating_sub(hit.times(job)?));
    counts.into_iter().zip(hits).zip(jobs).map(each).collect()
}

/// C with all costs that can hit a job before its deadline, in ns, for so many preemptions. Ticks fall on one grid.
fn inflated_wcet(unit: &Unit, task: &UnitTask, preemptions: u64) -> Option<u64> {
    let Some(costs) = unit.costs else { return Some(task.c) };
    let another = if unit.m > 1 && !costs.interrupt_period.is_zero() { costs.interrupt.as_ns() } else { 0 };
    // Ordinary threads take their shares of each CPU at a time of its own. Pieces of D on k CPUs
    // meet within(D) + 2 (k - 1) shares: every piece may have one begun period more, and floors of
    // a sum lose at most k - 1.
    let ordinary = match unit.ordinary {
        Some(ordinary) => ordinary.within(task.d)?,
        None => 0,
    };
    let another = if unit.m > 1 { another.checked_add(costs.ordinary.as_ns().checked_mul(2)?)? } else { another };
    let each = costs.switch.as_ns().checked_add(costs.migrate.as_ns())?.checked_add(another)?;
    let ticks = match unit.tick() {
        Some(tick) => (task.d / tick.t).checked_add(1)?.checked_mul(tick.c)?,
        None => 0,
    };
    task.c
        .checked_add(costs.release.as_ns())?
        .checked_add(costs.switch.as_ns())?
        .checked_add(preemptions.checked_mul(each)?)?
        .checked_add(ticks)?
        .checked_add(ordinary)
}

/// Checks that only more important work keeps a job from a CPU: tasks may use every CPU, and nothing blocks.
fn unblocked(unit: &Unit) -> Result<(), Inapplicable> {
    if !unit.full_affinity {
        return Err("needs tasks that may use every CPU of the scope".to_owned());
    }
    find(unit, |task| task.b > 0).map_or(Ok(()), |name| Err(format!("needs tasks without blocking: \"{name}\"")))
}

/// Which jobs are more important here.
fn rule(unit: &Unit) -> Result<Rule, Inapplicable> {
    let Err(why) = unit.edf() else { return Ok(Rule::Edf) };
    if unit.fifo_levels() as usize == unit.levels.len() {
        return Ok(Rule::Fp);
    }
    Err(format!("needs edf or fixed priorities: {why}, and some level is not fifo"))
}

/// The tasks of a unit for tests of constrained deadlines, with costs.
///
/// Under fixed priorities deadlines order nothing. A deadline may be longer than the distance of
/// releases. Then the task is asked to respond within that distance, so its jobs never wait for
/// each other.
fn constrained_tasks(unit: &Unit, carried: &ChainBounds, rule: Rule) -> Result<Vec<Sporadic>, Inapplicable> {
    if unit.m >= 2 && rule == Rule::Edf && unblocked(unit).is_ok() {
        unit.tasks.iter().try_for_each(|task| constrained_distance(task, carried).map(|_| ()))?;
    }
    let cut = |task: Sporadic| Sporadic { d: task.d.min(task.t), ..task };
    Ok(charged_tasks(unit, carried, rule)?.into_iter().map(cut).collect())
}

/// The tasks of a unit under EDF with arbitrary deadlines, with costs, for [`rta_global::analyse_long`].
fn arbitrary_tasks(unit: &Unit, carried: &ChainBounds) -> Result<Vec<Sporadic>, Inapplicable> {
    charged_tasks(unit, carried, Rule::Edf)
}

fn charged_tasks(unit: &Unit, carried: &ChainBounds, rule: Rule) -> Result<Vec<Sporadic>, Inapplicable> {
    if unit.m < 2 {
        return Err("needs several CPUs; on one, qpa and rta say more".to_owned());
    }
    unblocked(unit)?;
    let distances = unit.tasks.iter().map(|task| min_distance(task, carried)).collect::<Result<Vec<_>, _>>()?;
    let charged = inflated_wcets(unit, carried, rule).ok_or_else(too_long)?;
    let each = |((task, t), c): ((&UnitTask, u64), u64)| Sporadic { c, d: task.d, t, j: task.j, level: task.level };
    Ok(unit.tasks.iter().zip(distances).zip(charged).map(each).collect())
}

/// The tasks of a unit as the global tests see them, where these apply.
pub(crate) fn sporadic_tasks(unit: &Unit, carried: &ChainBounds, by: Rule) -> Option<Vec<Sporadic>> {
    if rule(unit).ok()? == by { constrained_tasks(unit, carried, by).ok() } else { None }
}

/// Tasks of a unit whose responses are followed along chains.
const FOLLOWED_MAX: usize = 256;

/// Bounds of the responses of a unit of several CPUs, as long as every deadline is kept and
/// releases are as they are known.
///
/// A task with a CPU of its own responds within its execution. Otherwise `rta-lc` (fixed
/// priorities) or `rta-global` (EDF) bounds it.
pub(crate) fn responses_of_several(unit: &Unit, carried: &ChainBounds) -> Option<Vec<Option<u64>>> {
    if unit.m < 2 || unit.tasks.len() > FOLLOWED_MAX || unit.served.is_some() || unit.uncovered_sections().is_some() {
        return None;
    }
    if unit.tasks.len() <= unit.m as usize && unblocked(unit).is_ok() && unit.free_of_costs() {
        // Each has a CPU of its own.
        let alone = |task: &UnitTask| {
            let response = task.j.checked_add(task.c)?;
            min_distance(task, carried).ok().filter(|t| response <= *t).map(|_| response)
        };
        return Some(unit.tasks.iter().map(alone).collect());
    }
    let bounds = match rule(unit).ok()? {
        Rule::Fp => rta_lc::analyse(&constrained_tasks(unit, carried, Rule::Fp).ok()?, unit.m),
        Rule::Edf => {
            let tasks = arbitrary_tasks(unit, carried).ok()?;
            rta_global::analyse_long(&tasks, unit.m, &mut Terms::new(rta_global::TERMS_MAX))
        }
    };
    Some(bounds.responses)
}

/// The outcome of a test, by its [`Load`]. `exceeded` gives the reason for [`Load::Exceeded`].
fn load_outcome(
    unit: &Unit,
    load: Load,
    exceeded: impl FnOnce(&Unit, &Excess) -> String,
) -> Result<Outcome, Inapplicable> {
    let mut figures = Map::new();
    let why = match load {
        Load::Met => {
            let tasks = unit.tasks.iter().map(|task| task_report(task, Answer::Yes, None)).collect();
            return Ok(Outcome { verdict: yes(), tasks, figures });
        }
        Load::Exceeded(excess) => {
            figures.insert("task".to_owned(), json!(excess.task.map(|task| &unit.tasks[task].name)));
            figures.insert("window_ns".to_owned(), json!(excess.window));
            figures.insert("work_ns".to_owned(), ns_figure(excess.work));
            figures.insert("room_ns".to_owned(), ns_figure(excess.room));
            exceeded(unit, &excess)
        }
        Load::TooLong { task } => {
            let task = &unit.tasks[task];
            let next = if task.chained || task.d > task.t { ", or to its next release" } else { "" };
            format!(
                "\"{}\", with its costs, may need more time than it has from its release to its deadline{next}",
                task.name
            )
        }
        Load::Unfit { task } => {
            return Err(format!("needs times below 36 years: \"{}\"", unit.tasks[task].name));
        }
        Load::Full => "the utilization leaves too little of the CPUs for this test".to_owned(),
        Load::Undecided(limit) => undecided(unit, limit),
    };
    Ok(Outcome { verdict: Verdict::NotProven { why }, tasks: Vec::new(), figures })
}

/// The limit that left the question open, and the remedy.
fn undecided(unit: &Unit, limit: Limit) -> String {
    let advice = match (limit, unit.edf().is_ok()) {
        (Limit::Terms(_), true) => {
            "give each CPU its tasks (placement = \"partitioned\"), or ask gfb, which takes any number"
        }
        (Limit::Terms(_), false) => "give each CPU its tasks (placement = \"partitioned\")",
        (Limit::Rounds(_) | Limit::Time, _) => "ask the other tests of several CPUs",
        (Limit::Cpus, _) => "on one CPU, qpa and rta say more",
    };
    format!("undecided: {limit}, with {} tasks; {advice}", unit.tasks.len())
}

/// The task that is not proven.
fn task_name<'a>(unit: &'a Unit, excess: &Excess) -> &'a str {
    excess.task.map_or("some task", |task| &unit.tasks[task].name)
}

/// A figure in ns.
fn ns_figure(value: u128) -> Value {
    u64::try_from(value).map_or(Value::Null, |value| json!(value))
}

/// A sum of times as messages write it.
fn time_text(value: u128) -> String {
    u64::try_from(value).map_or_else(|_| format!("{value}ns"), |value| ns(value).to_string())
}

/// The reason for [`Load::Exceeded`] of the tests of Bertogna and Cirinei, in which m (spare + 1) is the room.
fn wait_text(unit: &Unit, excess: &Excess) -> String {
    let spare = (excess.room / u128::from(unit.m)).saturating_sub(1);
    let (name, window, spare) = (task_name(unit, excess), ns(excess.window), time_text(spare));
    format!("others may keep \"{name}\" waiting for more than the {spare} that it can spare of {window}")
}

/// The outcome of a test that bounds responses.
fn bounds_outcome(
    unit: &Unit,
    bounds: Bounds,
    exceeded: impl FnOnce(&Unit, &Excess) -> String,
) -> Result<Outcome, Inapplicable> {
    let mut outcome = load_outcome(unit, bounds.load, exceeded)?;
    let each = unit.tasks.iter().zip(&bounds.responses);
    let answer = |response: &Option<u64>| if response.is_some() { Answer::Yes } else { Answer::Unknown };
    outcome.tasks = each.clone().map(|(task, response)| task_report(task, answer(response), *response)).collect();
    if let Verdict::Schedulable { bounds } = &mut outcome.verdict {
        bounds.extend(each.filter_map(|(task, wcrt)| Some(Bound { task: task.id, wcrt: ns((*wcrt)?) })));
    }
    Ok(outcome)
}

/// The tasks of a unit under global EDF.
pub(super) fn edf_tasks(unit: &Unit, carried: &ChainBounds) -> Result<Vec<Sporadic>, Inapplicable> {
    edf(unit)?;
    constrained_tasks(unit, carried, Rule::Edf)
}

pub(super) fn apply_bak(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    let tasks = edf_tasks(unit, carried)?;
    let found = Terms::run_with(&unit.terms, bak::TERMS_MAX, |terms| bak::within(&tasks, unit.m, terms));
    load_outcome(unit, found, |unit, excess| {
        let (name, window) = (task_name(unit, excess), ns(excess.window));
        let (work, room) = (time_text(excess.work), time_text(excess.room));
        format!("the load before a deadline of \"{name}\" may reach {work} per {window}; only up to {room} is harmless")
    })
}

pub(super) fn apply_bcl(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    let rule = rule(unit)?;
    let tasks = constrained_tasks(unit, carried, rule)?;
    let found = Terms::run_with(&unit.terms, bcl::TERMS_MAX, |terms| bcl::within(&tasks, unit.m, rule, terms));
    load_outcome(unit, found, wait_text)
}

pub(super) fn apply_bcl_iterative(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    let rule = rule(unit)?;
    let tasks = constrained_tasks(unit, carried, rule)?;
    let found = Terms::run_with(&unit.terms, bcl_iterative::TERMS_MAX, |terms| {
        bcl_iterative::analyse_within(&tasks, unit.m, rule, terms)
    });
    bounds_outcome(unit, found, wait_text)
}

pub(super) fn apply_rta(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    let rule = rule(unit)?;
    let long = rule == Rule::Edf && unit.tasks.iter().any(|task| constrained_distance(task, carried).is_err());
    let tasks = if long { arbitrary_tasks(unit, carried)? } else { constrained_tasks(unit, carried, rule)? };
    let found = Terms::run_with(&unit.terms, rta_global::TERMS_MAX, |terms| match long {
        true => rta_global::analyse_long(&tasks, unit.m, terms),
        false => rta_global::analyse_within(&tasks, unit.m, rule, terms),
    });
    bounds_outcome(unit, found, wait_text)
}

/// The tasks of a unit under global fixed priorities.
fn fp_tasks(unit: &Unit, carried: &ChainBounds) -> Result<Vec<Sporadic>, Inapplicable> {
    if rule(unit)? == Rule::Edf && !unit.tasks.is_empty() {
        return Err("needs fixed priorities: the strategy goes by deadline".to_owned());
    }
    constrained_tasks(unit, carried, Rule::Fp)
}

pub(super) fn apply_da_lc(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    let tasks = fp_tasks(unit, carried)?;
    let found = Terms::run_with(&unit.terms, da_lc::TERMS_MAX, |terms| da_lc::within(&tasks, unit.m, terms));
    load_outcome(unit, found, wait_text)
}

pub(super) fn apply_rta_lc(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    let tasks = fp_tasks(unit, carried)?;
    let found = Terms::run_with(&unit.terms, rta_lc::TERMS_MAX, |terms| rta_lc::analyse_within(&tasks, unit.m, terms));
    bounds_outcome(unit, found, wait_text)
}

pub(super) fn apply_bar(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    let tasks = edf_tasks(unit, carried)?;
    let found = Terms::run_with(&unit.terms, bar::TERMS_MAX, |terms| bar::within(&tasks, unit.m, terms));
    load_outcome(unit, found, |unit, excess| {
        let (name, window) = (task_name(unit, excess), ns(excess.window));
        format!("others may keep \"{name}\" waiting too long, if some CPU was idle last {window} before its deadline")
    })
}

pub(super) fn apply_ff_dbf(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    let tasks = edf_tasks(unit, carried)?;
    let found = Terms::run_with(&unit.terms, ff_dbf::TERMS_MAX, |terms| ff_dbf::within(&tasks, unit.m, terms));
    load_outcome(unit, found, |_, excess| {
        let (window, work, room) = (ns(excess.window), time_text(excess.work), time_text(excess.room));
        format!("the forced-forward demand of {window} may reach {work}, and {room} is sure to be served")
    })
}

/// The tasks of a unit by their priority points, with costs. Responses may exceed deadlines.
fn gel_tasks(unit: &Unit) -> Result<Vec<Gel>, Inapplicable> {
    let [level] = unit.levels.as_slice() else { return Err("needs one deadline level".to_owned()) };
    if level.order != Order::Deadline || !level.preemptive {
        return Err("needs one deadline level, preemptive".to_owned());
    }
    if !level.continues() {
        return Err("needs a level whose late jobs continue".to_owned());
    }
    if unit.m < 2 {
        return Err("needs several CPUs".to_owned());
    }
    unblocked(unit)?;
    if let Some(name) = find(unit, |task| task.j > 0 || task.chained) {
        return Err(format!("needs tasks without jitter and predecessors: \"{name}\""));
    }
    if unit.tick().is_some() {
        return Err("needs a node whose tick costs nothing".to_owned());
    }
    let point = |task: &UnitTask| i64::try_from(task.d).ok()?.checked_add(task.shift);
    let points = unit.tasks.iter().map(point).collect::<Option<Vec<i64>>>().ok_or_else(too_long)?;
    let charged = gel_wcets(unit, &points).ok_or_else(too_long)?;
    let each = |((task, y), c): ((&UnitTask, i64), u64)| Gel { c, t: task.t, y };
    Ok(unit.tasks.iter().zip(points).zip(charged).map(each).collect())
}

/// By task: C with all costs that can hit a job, even a late job. Only a job that arrives after its
/// release, with a priority point no later, preempts it.
fn gel_wcets(unit: &Unit, points: &[i64]) -> Option<Vec<u64>> {
    let Some(costs) = unit.costs else { return Some(unit.tasks.iter().map(|task| task.c).collect()) };
    let preemptions = if unit.tasks.len() > unit.m as usize {
        let hit = |(task, y): (&UnitTask, &i64)| PreemptingTask { key: (*y).into(), from: (*y).into(), t: task.t };
        let hits: Vec<PreemptingTask> = unit.tasks.iter().zip(points).map(hit).collect();
        let jobs: Vec<Job> = points.iter().map(|y| Job { key: (*y).into(), until: (*y).into() }).collect();
        preemptions_by_others(&hits, &jobs)?
    } else {
        vec![0; unit.tasks.len()]
    };
    let each = costs.switch.as_ns().checked_add(costs.migrate.as_ns())?;
    let charge = |(task, preemptions): (&UnitTask, u64)| {
        let own = task.c.checked_add(costs.release.as_ns())?.checked_add(costs.switch.as_ns())?;
        own.checked_add(preemptions.checked_mul(each)?)
    };
    unit.tasks.iter().zip(preemptions).map(charge).collect()
}

/// The outcome that follows from bounds of responses.
fn tardiness_outcome(unit: &Unit, tardiness: Tardiness) -> Result<Outcome, Inapplicable> {
    let why = match tardiness {
        Tardiness::Bounded(responses) => {
            let each = || unit.tasks.iter().zip(&responses);
            let answer =
                |task: &UnitTask, response: u64| if response <= task.d { Answer::Yes } else { Answer::Unknown };
            let tasks =
                each().map(|(task, response)| task_report(task, answer(task, *response), Some(*response))).collect();
            let mut figures = Map::new();
            let latest = each().max_by_key(|(task, response)| response.saturating_sub(task.d));
            let tardiness = latest.map_or(0, |(task, response)| response.saturating_sub(task.d));
            figures.insert("tardiness_ns".to_owned(), json!(tardiness));
            let verdict = match latest {
                Some((task, _)) if tardiness > 0 => {
                    let (name, by) = (&task.name, ns(tardiness));
                    let why = format!("deadlines may be missed, but by no more than {by} (that of \"{name}\")");
                    Verdict::NotProven { why }
                }
                _ => {
                    let bound = |(task, response): (&UnitTask, &u64)| Bound { task: task.id, wcrt: ns(*response) };
                    Verdict::Schedulable { bounds: each().map(bound).collect() }
                }
            };
            return Ok(Outcome { verdict, tasks, figures });
        }
        Tardiness::Overload => "the tasks, with what costs them, need more than the CPUs have".to_owned(),
        Tardiness::Unfit { task } => return Err(format!("needs times below 36 years: \"{}\"", unit.tasks[task].name)),
        Tardiness::Undecided(stop) => format!("undecided: {stop}"),
    };
    Ok(Verdict::NotProven { why }.into())
}

pub(super) fn apply_tardiness_cva(unit: &Unit) -> Result<Outcome, Inapplicable> {
    let tasks = gel_tasks(unit)?;
    tardiness_outcome(unit, tardiness_cva::analyse(&tasks, unit.m))
}

pub(super) fn apply_tardiness_da(unit: &Unit) -> Result<Outcome, Inapplicable> {
    edf(unit)?;
    if let Some(name) = find(unit, |task| task.d != task.t) {
        return Err(format!("needs deadlines that equal periods: \"{name}\""));
    }
    let tasks: Vec<(u64, u64)> = gel_tasks(unit)?.iter().map(|task| (task.c, task.t)).collect();
    tardiness_outcome(unit, tardiness_da::analyse(&tasks, unit.m))
}

/// Jobs of periodic tasks that are followed, and states of sporadic ones that are looked at.
pub(super) const JOBS_MAX: usize = 100_000;
const STATES_MAX: usize = 20_000;
/// Tasks that are looked at exactly.
const TASKS_MAX: usize = 64;

pub(super) fn apply_exact(unit: &Unit) -> Result<Outcome, Inapplicable> {
    let rule = rule(unit)?;
    unblocked(unit)?;
    if let Some(name) = find(unit, |task| task.j > 0 || task.chained || !task.dense) {
        return Err(format!("needs periodic or sporadic tasks without jitter and predecessors: \"{name}\""));
    }
    if let Some(name) = find(unit, |task| task.d > task.t) {
        return Err(format!("needs deadlines that are not longer than periods: \"{name}\""));
    }
    if unit.tasks.len() > TASKS_MAX {
        return Err(format!("needs at most {TASKS_MAX} tasks, here are {}", unit.tasks.len()));
    }
    if !unit.free_of_costs() {
        return Err("needs a node without costs".to_owned());
    }
    if unit.levels.iter().any(|level| level.importance_ties) || unit.tasks.iter().any(|task| task.cancellable) {
        return Err("needs ties by arrival, and jobs that are never omitted".to_owned());
    }
    let tasks = bare_tasks(unit);
    if unit.tasks.iter().all(|task| task.periodic) {
        exact_periodic(unit, &tasks, rule)
    } else {
        exact_sporadic(unit, &tasks, rule)
    }
}

fn bare_tasks(unit: &Unit) -> Vec<Sporadic> {
    let one = |task: &UnitTask| Sporadic { c: task.c, d: task.d, t: task.t, j: 0, level: task.level };
    unit.tasks.iter().map(one).collect()
}

/// The tasks as `exact` sees them, if it applies.
pub(super) fn exact_tasks(unit: &Unit) -> Option<(Rule, Vec<Sporadic>)> {
    Some((rule(unit).ok()?, bare_tasks(unit)))
}

/// Follows the one schedule of periodic tasks, from the offsets in the file.
fn exact_periodic(unit: &Unit, tasks: &[Sporadic], rule: Rule) -> Result<Outcome, Inapplicable> {
    let offsets: Vec<u64> = unit.tasks.iter().map(|task| task.o).collect();
    let mut figures = Map::new();
    figures.insert("arrivals".to_owned(), json!("periodic, from the offsets"));
    let verdict = match exact::periodic(tasks, &offsets, unit.m, rule, JOBS_MAX) {
        Schedule::Met { repeats } => {
            figures.insert("repeats_ns".to_owned(), json!(repeats));
            yes()
        }
        Schedule::Missed { task, arrival } => {
            let (name, deadline) = (&unit.tasks[task].name, ns(arrival.saturating_add(unit.tasks[task].d)));
            let witness =
                format!("the job of \"{name}\" that arrives at {} misses its deadline at {deadline}", ns(arrival));
            Verdict::Infeasible { witness }
        }
        Schedule::Undecided => {
            Verdict::NotProven { why: format!("undecided: the schedule does not repeat within {JOBS_MAX} jobs") }
        }
    };
    let proven = verdict.answer() == Answer::Yes;
    let tasks = unit.tasks.iter().filter(|_| proven).map(|task| task_report(task, Answer::Yes, None)).collect();
    Ok(Outcome { verdict, tasks, figures })
}

/// Searches all arrivals on multiples of the common divisor of all times.
fn exact_sporadic(unit: &Unit, tasks: &[Sporadic], rule: Rule) -> Result<Outcome, Inapplicable> {
    let grid = tasks.iter().flat_map(|task| [task.c, task.d, task.t]).fold(0, takt_model::gcd).max(1);
    let scaled: Vec<Sporadic> =
        tasks.iter().map(|task| Sporadic { c: task.c / grid, d: task.d / grid, t: task.t / grid, ..*task }).collect();
    let sporadic = unit.tasks.iter().all(|task| !task.periodic);
    let mut figures = Map::new();
    figures.insert("arrivals".to_owned(), json!("sporadic, on a grid"));
    figures.insert("grid_ns".to_owned(), json!(grid));
    let verdict = match exact::sporadic(&scaled, unit.m, rule, Ties::Takt, STATES_MAX) {
        Reachability::Safe { states } => {
            figures.insert("states".to_owned(), json!(states));
            match grid {
                1 => yes(),
                _ => Verdict::NotProven {
                    why: format!(
                        "no miss is reachable while arrivals fall on multiples of {}; others are not covered",
                        ns(grid)
                    ),
                },
            }
        }
        Reachability::Miss { task, arrivals } => {
            let name = |task: usize| &unit.tasks[task].name;
            let told: Vec<String> =
                arrivals.iter().map(|(at, task)| format!("\"{}\" at {}", name(*task), ns(at * grid))).collect();
            let witness = format!("\"{}\" misses if these arrive: {}", name(task), told.join(", "));
            match sporadic {
                true => Verdict::Infeasible { witness },
                false => Verdict::NotProven { why: format!("{witness}; which periodic tasks may never do") },
            }
        }
        Reachability::Undecided => {
            let why = match exact::uncovered(&scaled) {
                Some(why) => format!("undecided: {why}"),
                None => format!("undecided: more than {STATES_MAX} states"),
            };
            Verdict::NotProven { why }
        }
    };
    Ok(Outcome { verdict, tasks: Vec::new(), figures })
}
