//! Tests of one CPU: EDF that runs jobs to their end, fixed offsets, priorities that would work.

use serde_json::{Map, json};
use takt_model::PlanLevel;
use takt_model::plan::Order;

use super::{
    Inapplicable, Outcome, demand_is_exact, demand_outcome, edf_tasks, exact_for, find, one_cpu, task_report, yes,
};
use crate::carried::ChainBounds;
use crate::edf::np::{self, Blocker};
use crate::edf::qpa::{EdfTask, TERMS_MAX};
use crate::fp::levels::Response;
use crate::fp::limited::{self, LimitedTask};
use crate::fp::offsets::{self, OffsetTask, Schedule};
use crate::fp::opa::{self, Assignment};
use crate::fp::rta::{self, FpTask};
use crate::scope::{Unit, UnitTask, ns};
use crate::verdict::{Answer, Bound, Verdict, spend};

pub(super) fn apply_np_edf(unit: &Unit, carried: &ChainBounds) -> Result<Outcome, Inapplicable> {
    one_cpu(unit)?;
    match unit.levels.as_slice() {
        [level] if level.order == Order::Deadline && !level.preemptive => {}
        _ => return Err("needs one level that goes by deadline and is not preemptive".to_owned()),
    }
    if let Some(name) = find(unit, |task| task.shift != unit.tasks[0].shift) {
        return Err(format!("needs deadlines that are not shifted (gel): \"{name}\""));
    }
    let tasks = edf_tasks(unit, carried)?;
    let blockers = blockers(unit, &tasks);
    let exact = demand_is_exact(unit) && unit.tasks.iter().all(|task| task.sporadic);
    let tick = unit.inflated_tick();
    let found = unit.terms.run(TERMS_MAX, |left| np::analyse_within(&tasks, &blockers, tick, left));
    Ok(demand_outcome(unit, found, exact, |t, demand| {
        format!(
            "released together just after the longest job with a later deadline has started, the tasks find \
             {demand} to do within the first {t}"
        )
    }))
}

/// For each task the longest rest, in ns, of a job that has started before jobs with closer deadlines
/// arrive. `tasks`: those of the unit, with costs.
pub(super) fn blockers(unit: &Unit, tasks: &[EdfTask]) -> Vec<Blocker> {
    // A successor can be released within an instant in which another job has just started.
    let whole = !unit.free_of_costs() || unit.tasks.iter().any(|task| task.chained);
    let rest = |c: u64| if whole { c } else { c - 1 };
    unit.tasks.iter().zip(tasks).map(|(task, charged)| Blocker { d: task.d, rest: rest(charged.c) }).collect()
}

/// A legal behaviour around a task alone on its level. The task and all more important tasks are
/// released at one instant, first jobs with their full jitter, later jobs as densely as possible.
pub(crate) struct SimultaneousRelease<'a> {
    /// The instant, in ns.
    pub(crate) at: u64,
    /// A less important task that has started a section 1 ns before, and when it arrives.
    pub(crate) before: Option<(&'a UnitTask, u64)>,
}

impl<'a> SimultaneousRelease<'a> {
    /// The release with the longest section that can have started before it. `None` if the periodic tasks have no
    /// common release, or if other things than jobs take CPU time.
    pub(crate) fn new(unit: &'a Unit, task: &UnitTask) -> Option<SimultaneousRelease<'a>> {
        let alone = unit.m == 1 && unit.served.is_none() && unit.no_verdict.is_none();
        let only_jobs = alone && !unit.has_cbs && unit.free_of_costs();
        let hep = || unit.tasks.iter().filter(|other| other.level <= task.level);
        let is_free = |other: &UnitTask| !(other.chained || other.cancellable || other.server);
        let covered = |other: &UnitTask| {
            is_free(other) && (other.periodic || other.sporadic) && (other.level < task.level || other.id == task.id)
        };
        let continues = unit.levels[..=task.level as usize].iter().all(PlanLevel::continues);
        if !only_jobs || !continues || !hep().all(covered) {
            return None;
        }
        let latest = |other: &UnitTask| other.o.checked_add(other.j);
        let at = hep().map(latest).try_fold(0, |at: u64, latest| Some(at.max(latest?)))?;
        let fixed = hep().any(|other| other.periodic);
        if hep().any(|other| other.periodic && latest(other) != Some(at)) {
            return None;
        }
        // Jobs that must arrive before `at` must not keep the section from starting.
        let hinders = |other: &UnitTask, with: &UnitTask, at: u64| {
            let absent =
                other.level <= task.level || other.id == with.id || other.sporadic || (other.periodic && other.o >= at);
            !absent && (other.chained || other.section > 0 || other.level <= with.level)
        };
        let start = |with: &'a UnitTask| {
            let lead = with.section_start.checked_add(1)?;
            let at = if fixed { at } else { at.max(with.o.checked_add(lead)?) };
            let arrival = at.checked_sub(lead).filter(|arrival| *arrival >= with.o)?;
            (!unit.tasks.iter().any(|other| hinders(other, with, at))).then_some((with, at, arrival))
        };
        let lower = unit.tasks.iter().filter(|with| with.level > task.level && with.section > 0 && with.sporadic);
        let before = lower.filter(|with| is_free(with)).filter_map(start).max_by_key(|(with, ..)| with.section);
        let at = before.map_or(at, |(_, at, _)| at);
        Some(SimultaneousRelease { at, before: before.map(|(with, _, arrival)| (with, arrival)) })
    }
}

/// A unit's tasks with the sections that nothing preempts.
fn limited_tasks(unit: &Unit) -> Vec<LimitedTask> {
    let limited = |task: &UnitTask| LimitedTask {
        c: task.c,
        t: task.t,
        j: task.j,
        last: task.last_section.clamp(1, task.c.max(1)),
        section: (task.section + 1).min(task.c),
        level: task.level,
    };
    unit.tasks.iter().map(limited).collect()
}

/// How a job of the task misses its deadline in a behaviour that can happen, where that is shown ([`limited::late`]).
pub(super) fn late(unit: &Unit, task: &UnitTask, terms_left: &mut u64) -> Option<String> {
    spend(terms_left, unit.tasks.len() as u64)?;
    let together = SimultaneousRelease::new(unit, task)?;
    let i = unit.tasks.iter().position(|other| other.id == task.id)?;
    let blocking = together.before.map_or(0, |(with, _)| with.section);
    let late = limited::late(&limited_tasks(unit), i, blocking, task.d, terms_left)?;
    let (number, name, deadline) = (late.job + 1, &task.name, ns(task.d));
    let takes = if late.whole { "takes" } else { "takes more than" };
    let before = together.before.map_or(String::new(), |(with, _)| {
        let section = ns(with.section.saturating_add(1));
        format!(", 1ns after \"{}\" has started a section of {section}", with.name)
    });
    Some(format!(
        "released together with all that is more important{before}, job {number} of \"{name}\" {takes} {}; its \
         deadline is {deadline}",
        ns(late.response)
    ))
}

/// Lowers bounds by the tasks' own last sections, which nothing preempts.
pub(super) fn sharpen(unit: &Unit, responses: &mut [Option<Response>], terms_left: &mut u64) {
    let plain = unit.free_of_costs()
        && unit.levels.iter().all(|level| level.order == Order::Fifo && !level.demotes)
        && unit.tasks.iter().all(|task| task.b == task.section_blocking && !task.chained);
    if !plain || unit.tasks.iter().all(|task| task.last_section <= 1) {
        return;
    }
    let tasks = limited_tasks(unit);
    for (i, response) in responses.iter_mut().enumerate() {
        let (Some(response), Some(closer)) = (response, limited::response_within(&tasks, i, terms_left)) else {
            continue;
        };
        if closer < response.from_arrival {
            let by = response.from_arrival - closer;
            response.from_arrival = closer;
            response.from_source = response.from_source.saturating_sub(by);
        }
    }
}

pub(super) fn apply_offsets(unit: &Unit) -> Result<Outcome, Inapplicable> {
    one_cpu(unit)?;
    if !unit.free_of_costs() {
        return Err("needs a node without costs".to_owned());
    }
    // If sections can hold jobs up, the schedule only shows misses. Then sporadic jobs may come
    // every period, without jitter.
    let sections = unit.tasks.iter().any(|task| task.section_blocking > 0);
    let plain = |task: &UnitTask| task.periodic && !task.chained && task.j == 0 && task.b == 0;
    let needs = || match find(unit, |task| !plain(task)) {
        Some(name) => {
            format!("needs strictly periodic tasks without jitter, blocking or predecessors: \"{name}\"")
        }
        None => "needs tasks that may be preempted anywhere".to_owned(),
    };
    let can = |task: &UnitTask| (task.periodic || task.sporadic) && !task.chained && !task.server;
    let covered = |task: &UnitTask| if sections { can(task) } else { plain(task) };
    if !unit.tasks.iter().all(covered) {
        return Err(needs());
    }
    let counts = unit.tasks_by_level();
    let alone = |task: &UnitTask| counts[task.level as usize] == 1;
    let fixed = |task: &UnitTask| {
        let level = unit.levels[task.level as usize];
        let order = level.order == Order::Fifo || (level.order == Order::Deadline && level.preemptive);
        alone(task) || (order && !level.importance_ties)
    };
    if let Some(name) = find(unit, |task| !fixed(task)) {
        return Err(format!(
            "needs levels that are fifo, or preemptive and by deadline, with ties by arrival: that of \"{name}\" is not"
        ));
    }
    if unit.tasks.iter().any(|task| task.cancellable) {
        return Err("needs a node that omits no job (cancel)".to_owned());
    }
    let key = |task: &UnitTask| match unit.levels[task.level as usize].order {
        Order::Deadline if !alone(task) => i64::try_from(task.d).ok()?.checked_add(task.shift),
        _ => Some(0),
    };
    let too_long = || "needs times that fit 63-bit nanoseconds".to_owned();
    let mut tasks = Vec::with_capacity(unit.tasks.len());
    for task in &unit.tasks {
        let key = key(task).ok_or_else(too_long)?;
        let sections = task.sections.as_slice();
        tasks.push(OffsetTask { c: task.c, t: task.t, o: task.o, level: task.level, key, sections });
    }
    let Schedule::Repeats { responses, cycle: (from, length) } = offsets::schedule(&tasks) else {
        if sections {
            return Err(needs());
        }
        let why = format!("the schedule does not repeat within {} jobs", offsets::JOBS_MAX);
        return Ok(Verdict::NotProven { why }.into());
    };
    let mut witness = None;
    // A late job that is dropped or demoted changes the schedule from then on.
    let misses = unit.tasks.iter().zip(&responses).any(|(task, (response, _))| *response > task.d);
    if sections && !misses {
        return Err(needs());
    }
    let reached = !misses || unit.levels.iter().all(PlanLevel::continues);
    let bounded = reached && !sections;
    let mut bounds = Vec::new();
    let mut reports = Vec::new();
    for (task, (response, number)) in unit.tasks.iter().zip(responses) {
        let answer = match response <= task.d {
            true if bounded => Answer::Yes,
            true => Answer::Unknown,
            false if reached => Answer::No,
            false => Answer::Unknown,
        };
        if response > task.d {
            witness.get_or_insert_with(|| {
                let (name, deadline) = (&task.name, ns(task.d));
                format!("job {number} of \"{name}\" takes {}; its deadline is {deadline}", ns(response))
            });
        }
        let wcrt = Some(response).filter(|_| bounded);
        bounds.extend(wcrt.map(|wcrt| Bound { task: task.id, wcrt: ns(wcrt) }));
        reports.push(task_report(task, answer, wcrt));
    }
    let verdict = witness.map_or(Verdict::Schedulable { bounds }, |witness| Verdict::Infeasible { witness });
    let mut figures = Map::new();
    figures.insert("cycle_from_ns".to_owned(), json!(from));
    figures.insert("cycle_ns".to_owned(), json!(length));
    Ok(Outcome { verdict, tasks: reports, figures })
}

/// The tasks in the order of the given priorities, the most important first: their positions in the
/// unit, as they are analysed, and the tick.
pub(super) fn opa_tasks(unit: &Unit) -> Option<(Vec<usize>, Vec<FpTask>, Option<FpTask>)> {
    let mut given: Vec<usize> = (0..unit.tasks.len()).collect();
    given.sort_by_key(|i| unit.tasks[*i].level);
    let mut tasks = Vec::with_capacity(given.len());
    for task in given.iter().map(|i| &unit.tasks[*i]) {
        tasks.push(FpTask { c: unit.charged(task)?, t: task.t, d: task.d, j: task.j, b: task.b, level: 0 });
    }
    let tick = unit.tick().map(|tick| FpTask { c: tick.c, t: tick.t, d: tick.t, ..FpTask::default() });
    Some((given, tasks, tick))
}

pub(super) fn apply_opa(unit: &Unit) -> Result<Outcome, Inapplicable> {
    one_cpu(unit)?;
    if unit.levels.iter().any(|level| level.order != Order::Fifo) {
        return Err("needs fixed priorities: some level is not fifo".to_owned());
    }
    if let Some(name) = find(unit, |task| task.chained) {
        return Err(format!("needs releases that do not depend on priorities: \"{name}\" has a predecessor"));
    }
    let (given, tasks, tick) = opa_tasks(unit).ok_or_else(super::too_long)?;
    let given: Vec<&UnitTask> = given.iter().map(|i| &unit.tasks[*i]).collect();
    let distinct = unit.levels.len() == unit.tasks.len();
    let mut figures = Map::new();
    let verdict = match unit.terms.run(rta::TERMS_MAX, |left| opa::assign_within(&tasks, tick.as_slice(), left)) {
        Assignment::Found(order) => {
            let names: Vec<&str> = order.iter().map(|i| given[*i].name.as_str()).collect();
            let priorities: Vec<_> =
                names.iter().enumerate().map(|(i, name)| json!({ "task": name, "priority": i + 1 })).collect();
            figures.insert("priorities".to_owned(), json!(priorities));
            if distinct && order.is_sorted() {
                yes()
            } else {
                let order = names.join(", ");
                Verdict::NotProven {
                    why: format!("priorities that meet all deadlines, from 1 on: {order}; the given ones are others"),
                }
            }
        }
        Assignment::None(open) => {
            figures.insert("priorities".to_owned(), json!(null));
            let names: Vec<String> = open.iter().map(|i| format!("\"{}\"", given[*i].name)).collect();
            let why = format!("no priorities meet all deadlines: the least important of {} is late", names.join(", "));
            let exact = unit.tasks.iter().all(|task| exact_for(unit, task));
            if distinct && exact { Verdict::Infeasible { witness: why } } else { Verdict::NotProven { why } }
        }
        Assignment::Undecided => Verdict::NotProven { why: "undecided: the work limit was reached".to_owned() },
    };
    Ok(Outcome { verdict, tasks: Vec::new(), figures })
}
