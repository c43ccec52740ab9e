//! The reason behind a verdict: for each test the task, window or point with the least to spare,
//! and the work of each task in it.

mod more;

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::global::{Form, interference};
use super::{densities, edf_tasks};
use crate::carried::ChainBounds;
use crate::catalogue::TestId;
use crate::components::{Tasks, supply_of};
use crate::compositional::fp;
use crate::edf::np::Blocker;
use crate::edf::qpa::{self, EdfTask};
use crate::exact::{compare_sum, sum_ppm};
use crate::fp::ll_bound;
use crate::global::bak;
use crate::report::{TaskReport, TestReport};
use crate::responses::worst;
use crate::scope::{Unit, UnitTask, ns};
use crate::verdict::{Answer, Verdict};

pub(crate) use more::{explain_kernel, explain_placement, of_parts};

/// Terms that the search for the tightest point may evaluate; past it there is no evidence, and the verdict stands.
const TERMS_MAX: u64 = 20_000_000;

/// A condition `need <= room`, taken apart.
struct Binding {
    task: Option<String>,
    /// In words, without the numbers below.
    what: String,
    /// The interval that is looked at, in ns.
    within: Option<u64>,
    /// The unit of `need`, `room` and the terms: "ns" or "ppm" (of a CPU).
    unit: &'static str,
    need: u128,
    room: u128,
    /// Whether `need` may equal `room`.
    inclusive: bool,
    terms: Vec<Term>,
}

/// The part of `need` that comes from one task, or from a cost.
struct Term {
    what: String,
    jobs: Option<u64>,
    need: u128,
}

/// Adds the figure "binding" to a test's report on a unit, if there is one.
pub(crate) fn explain(unit: &Unit, carried: &ChainBounds, report: &mut TestReport) {
    if matches!(report.verdict, Verdict::NotApplicable { .. }) {
        return;
    }
    let several = unit.m > 1 && unit.tasks.len() <= unit.m as usize && report.verdict.answer() == Answer::Yes;
    let found = match report.test {
        TestId::Gfb | TestId::Bak | TestId::Bcl | TestId::BclIterative | TestId::DaLc | TestId::Bar | TestId::FfDbf
            if several =>
        {
            one_task_per_cpu(unit)
        }
        TestId::RtaGlobal | TestId::RtaLc if several => one_task_per_cpu(unit),
        TestId::Necessary => necessary(unit),
        TestId::LlBound | TestId::Hyperbolic => by_rates(unit, report.test),
        TestId::Density | TestId::Gfb => by_densities(unit, carried, report),
        TestId::Qpa | TestId::NpEdf => by_demand(unit, carried, report),
        // Bounds that count on last sections have another window.
        TestId::Rta if unit.tasks.iter().any(|task| task.section > 0) => by_response(report),
        TestId::Rta | TestId::EdfWcrt => by_window(unit, carried, report),
        TestId::Prm | TestId::Edp => by_supply(unit, carried, report),
        TestId::Offsets => by_response(report),
        TestId::Cbs => more::by_budgets(unit, report),
        TestId::Opa => more::by_assignment(unit),
        TestId::Exact => more::by_states(unit, report),
        TestId::Bak => by_load(unit, carried),
        TestId::Bcl | TestId::BclIterative | TestId::DaLc | TestId::RtaGlobal | TestId::RtaLc => {
            by_interference(unit, carried, report)
        }
        TestId::Bar | TestId::FfDbf | TestId::Mpr => by_excess(report),
        TestId::TardinessDa | TestId::TardinessCva => by_response(report),
        _ => None,
    };
    if let Some(binding) = found {
        report.figures.insert("binding".to_owned(), binding.value());
    }
}

impl Binding {
    fn value(&self) -> Value {
        let number = |value: u128| u64::try_from(value).map_or(Value::Null, |value| json!(value));
        let spare = i128::try_from(self.room).ok().zip(i128::try_from(self.need).ok());
        let spare = spare.and_then(|(room, need)| i64::try_from(room - need).ok());
        let key = |name: &str| format!("{name}_{}", self.unit);
        let mut map = Map::new();
        map.insert("task".to_owned(), json!(self.task));
        map.insert("what".to_owned(), json!(self.what));
        map.insert("within_ns".to_owned(), json!(self.within));
        map.insert(key("need"), number(self.need));
        map.insert(key("room"), number(self.room));
        map.insert(key("spare"), json!(spare));
        map.insert("inclusive".to_owned(), json!(self.inclusive));
        let terms = self.terms.iter().map(|term| {
            let mut map = Map::new();
            map.insert("what".to_owned(), json!(term.what));
            map.insert("jobs".to_owned(), json!(term.jobs));
            map.insert(key("need"), number(term.need));
            Value::Object(map)
        });
        map.insert("terms".to_owned(), terms.collect());
        Value::Object(map)
    }
}

/// Jobs of something and their work, where there is any.
fn jobs_of(what: &str, jobs: u64, c: u64) -> Option<Term> {
    let need = u128::from(jobs) * u128::from(c);
    (need > 0).then(|| Term { what: what.to_owned(), jobs: Some(jobs), need })
}

/// Work that comes once.
fn once(what: &str, need: u64) -> Option<Term> {
    (need > 0).then(|| Term { what: what.to_owned(), jobs: None, need: need.into() })
}

fn sum(terms: &[Term]) -> u128 {
    terms.iter().map(|term| term.need).sum()
}

/// Shares of a CPU, in ppm, against a limit.
fn shares(unit: &Unit, what: &str, pairs: &[(u64, u64)], room: u128) -> Option<Binding> {
    let other = if unit.has_cbs { "late work, and ordinary threads" } else { "ticks and interrupts" };
    let name = |i: usize| unit.tasks.get(i).map_or(other, |task| task.name.as_str());
    let mut terms = Vec::with_capacity(pairs.len());
    for (i, pair) in pairs.iter().enumerate() {
        let need = sum_ppm(std::iter::once(*pair))?;
        terms.push(Term { what: name(i).to_owned(), jobs: None, need: need.into() });
    }
    let need = sum_ppm(pairs.iter().copied())?.into();
    Some(Binding { task: None, what: what.to_owned(), within: None, unit: "ppm", need, room, inclusive: true, terms })
}

fn necessary(unit: &Unit) -> Option<Binding> {
    if let Some(task) = unit.tasks.iter().find(|task| !task.server && task.j.saturating_add(task.wcet) > task.d) {
        let terms: Vec<Term> =
            [once("release jitter", task.j), once(&task.name, task.wcet)].into_iter().flatten().collect();
        let what = format!("a job of \"{}\" alone, from its arrival to its deadline", task.name);
        let (name, need, within) = (Some(task.name.clone()), sum(&terms), Some(task.d));
        let room = task.d.into();
        return Some(Binding { task: name, what, within, unit: "ns", need, room, inclusive: true, terms });
    }
    let loads: Vec<(u64, u64)> = unit.tasks.iter().map(|task| (task.wcet, task.t)).collect();
    let exceeds = compare_sum(loads.iter().copied(), u64::from(unit.m)) == Some(Ordering::Greater);
    let found = shares(unit, "utilizations against the CPUs", &loads, u128::from(unit.m) * 1_000_000)?;
    Some(Binding { inclusive: !exceeds, ..found })
}

/// The tightest task of a unit with no more tasks than CPUs.
fn one_task_per_cpu(unit: &Unit) -> Option<Binding> {
    let need = |task: &UnitTask| task.j.saturating_add(task.c);
    let left = |task: &UnitTask| (i128::from(task.d) - i128::from(need(task))) * (1 << 32) / i128::from(task.d.max(1));
    let task = unit.tasks.iter().min_by_key(|task| left(task))?;
    let what = format!("each task has a CPU of its own: a job of \"{}\" alone", task.name);
    let terms: Vec<Term> = [once("release jitter", task.j), once(&task.name, task.c)].into_iter().flatten().collect();
    let (name, need, room) = (Some(task.name.clone()), sum(&terms), task.d.into());
    Some(Binding { task: name, what, within: Some(task.d), unit: "ns", need, room, inclusive: true, terms })
}

fn by_rates(unit: &Unit, test: TestId) -> Option<Binding> {
    let mut pairs = Vec::with_capacity(unit.tasks.len() + 1);
    for task in &unit.tasks {
        pairs.push((unit.charged(task)?, task.t));
    }
    pairs.extend(unit.tick().map(|tick| (tick.c, tick.t)));
    if test == TestId::LlBound {
        return shares(unit, "utilizations against n (2^(1/n) - 1)", &pairs, ll_bound::bound_ppm(pairs.len()).into());
    }
    let mut binding = shares(unit, "the product of all (utilization + 1) against 2", &pairs, 2_000_000)?;
    binding.need = crate::fp::hyperbolic::product_ppm(&pairs)?.into();
    for term in &mut binding.terms {
        term.need += 1_000_000;
    }
    Some(binding)
}

fn by_densities(unit: &Unit, carried: &ChainBounds, report: &TestReport) -> Option<Binding> {
    if report.test == TestId::Density {
        let triples = densities(unit, carried).ok()?;
        let pairs: Vec<(u64, u64)> = triples.into_iter().map(|(c, d, t)| (c, d.min(t))).collect();
        return shares(unit, "densities C / min(D, T) against one CPU", &pairs, 1_000_000);
    }
    let pairs = super::global::densities(unit, carried).ok()?;
    let densest = pairs.iter().enumerate().max_by_key(|(_, pair)| sum_ppm(std::iter::once(**pair)))?;
    let most = u128::from(sum_ppm(std::iter::once(*densest.1))?);
    let (m, task) = (u128::from(unit.m), unit.tasks[densest.0].name.clone());
    let what = format!("densities C / min(D, T) against m - (m - 1) times that of \"{task}\", the largest");
    let room = (m * 1_000_000).saturating_sub((m - 1) * most);
    Some(Binding { task: Some(task), ..shares(unit, &what, &pairs, room)? })
}

/// The work that is due within t, by task.
fn demands(unit: &Unit, tasks: &[EdfTask], t: u64) -> Option<Vec<Term>> {
    let mut terms = Vec::new();
    for (task, charged) in unit.tasks.iter().zip(tasks) {
        terms.extend(jobs_of(&task.name, qpa::jobs(charged, t)?, charged.c));
    }
    terms.extend(once("blocking", tasks.iter().filter(|task| task.d <= t).map(|task| task.b).max().unwrap_or(0)));
    Some(terms)
}

/// Below this the tightest point is looked for: as far as the proof needs to look, and every first deadline.
fn until(report: &TestReport, tasks: &[EdfTask]) -> Option<u64> {
    let horizon = report.figures.get("horizon_ns")?.as_u64()?;
    horizon.max(tasks.iter().map(|task| task.d).max()?).checked_add(1)
}

fn by_demand(unit: &Unit, carried: &ChainBounds, report: &TestReport) -> Option<Binding> {
    let tasks = edf_tasks(unit, carried).ok()?;
    let tick = unit.inflated_tick();
    let rests: Vec<(Blocker, &str)> = match report.test {
        TestId::NpEdf => super::one_cpu::blockers(unit, &tasks)
            .into_iter()
            .zip(unit.tasks.iter().map(|task| task.name.as_str()))
            .collect(),
        _ => Vec::new(),
    };
    // Between two deadlines of possible blockers, the blocking is constant.
    let started = |t: u64| rests.iter().filter(|(blocker, _)| blocker.d > t).max_by_key(|(blocker, _)| blocker.rest);
    let t = match report.figures.get("interval_ns").and_then(Value::as_u64) {
        Some(t) => t,
        None => {
            let mut until = until(report, &tasks)?;
            let mut terms_left = TERMS_MAX;
            let mut starts: Vec<u64> = rests.iter().map(|(blocker, _)| blocker.d).filter(|d| *d < until).collect();
            starts.push(0);
            starts.sort_unstable_by(|a, b| b.cmp(a));
            starts.dedup();
            let mut least: Option<(u64, u64)> = None;
            for from in starts {
                let more = started(from).map_or(0, |(blocker, _)| blocker.rest);
                let done = |t| qpa::demand(&tasks, tick, t)?.checked_add(more);
                let found = qpa::tightest(&tasks, from, until, &mut terms_left, done);
                let spare = |(t, end): &(u64, u64)| i128::from(*t) - i128::from(*end);
                if let Some(found) =
                    found.filter(|found| least.as_ref().is_none_or(|least| spare(found) < spare(least)))
                {
                    least = Some(found);
                }
                if terms_left < 2 * tasks.len() as u64 + 1 {
                    return None;
                }
                until = from;
            }
            least?.0
        }
    };
    let mut terms = demands(unit, &tasks, t)?;
    if let Some(tick) = tick {
        terms.extend(jobs_of("ticks and interrupts", t / tick.t + 1, tick.c));
    }
    if let Some((blocker, name)) = started(t) {
        terms.extend(once(&format!("{name}, already started"), blocker.rest));
    }
    let what = format!("demand due within {} of a common arrival", ns(t));
    let need = sum(&terms);
    Some(Binding { task: None, what, within: Some(t), unit: "ns", need, room: t.into(), inclusive: true, terms })
}

/// The task whose response takes the largest part of its deadline; of those without a bound the first.
fn closest<'a>(unit: &'a Unit, report: &TestReport) -> Option<(usize, &'a UnitTask, Option<u64>)> {
    let entry = |i: usize| report.tasks.iter().find(|entry| entry.id == unit.tasks[i].id);
    let i = (0..unit.tasks.len()).filter(|i| entry(*i).is_some()).min_by_key(|i| entry(*i).map(room_left))?;
    Some((i, &unit.tasks[i], entry(i)?.wcrt.map(|wcrt| wcrt.as_ns())))
}

/// The part of the deadline that a response leaves, in 2^-32. A response without a bound leaves least.
fn room_left(entry: &TaskReport) -> Option<i128> {
    let deadline = i128::from(entry.deadline.as_ns()).max(1);
    entry.wcrt.map(|wcrt| ((deadline - i128::from(wcrt.as_ns())) << 32) / deadline)
}

/// All that can go before a task without a bound.
fn unbounded(unit: &Unit, task: &UnitTask) -> Option<Binding> {
    let mut pairs = vec![(0, 1); unit.tasks.len()];
    for (pair, other) in pairs.iter_mut().zip(&unit.tasks).filter(|(_, other)| other.level <= task.level) {
        *pair = (unit.charged(other)?, other.t);
    }
    pairs.extend(unit.tick().map(|tick| (tick.c, tick.t)));
    let what = format!("utilizations of \"{}\" and all tasks that can go before it, against the CPU", task.name);
    let mut binding = shares(unit, &what, &pairs, 1_000_000)?;
    binding.task = Some(task.name.clone());
    binding.terms.retain(|term| term.need > 0);
    Some(binding)
}

fn by_window(unit: &Unit, carried: &ChainBounds, report: &TestReport) -> Option<Binding> {
    let (i, task, wcrt) = closest(unit, report)?;
    let Some(wcrt) = wcrt else { return unbounded(unit, task) };
    let (worst, overheads) = worst(unit, i, carried)?;
    let mut terms = Vec::new();
    for (other, jobs) in unit.tasks.iter().zip(&worst.jobs) {
        terms.extend(jobs_of(&other.name, *jobs, unit.charged(other)?));
    }
    let ticks = unit.overheads().count();
    for (at, (overhead, jobs)) in overheads.iter().zip(&worst.overheads).enumerate() {
        let name = match at.checked_sub(ticks) {
            None => "ticks and interrupts",
            Some(0) if unit.ordinary.is_some() => "ordinary threads",
            Some(_) => "switches",
        };
        terms.extend(jobs_of(name, *jobs, overhead.c));
    }
    terms.extend(once("less important work in the way", worst.blocking));
    let number = worst.job;
    let of = if number == 1 { "the first job".to_owned() } else { format!("job {number}") };
    let what =
        format!("{of} of \"{}\" in its busy window of {}: from its arrival to its end", task.name, ns(worst.window));
    let (name, room) = (Some(task.name.clone()), task.d.into());
    Some(Binding {
        task: name,
        what,
        within: Some(worst.window),
        unit: "ns",
        need: wcrt.into(),
        room,
        inclusive: true,
        terms,
    })
}

/// The response closest to its deadline, where a schedule shows it.
fn by_response(report: &TestReport) -> Option<Binding> {
    let entry = report.tasks.iter().filter(|entry| entry.wcrt.is_some()).min_by_key(|entry| room_left(entry))?;
    let what = format!("the longest response of \"{}\"", entry.task);
    let (need, room) = (entry.wcrt?.as_ns().into(), entry.deadline.as_ns().into());
    let task = Some(entry.task.clone());
    Some(Binding { task, what, within: None, unit: "ns", need, room, inclusive: true, terms: Vec::new() })
}

fn by_supply(unit: &Unit, carried: &ChainBounds, report: &TestReport) -> Option<Binding> {
    let supply = supply_of(unit, carried, report.test)?;
    let given = |need: u64| format!("under the least supply, which gives {} within", ns(need));
    match Tasks::of(unit, carried).ok()? {
        Tasks::Edf(tasks) => {
            let t = match report.figures.get("interval_ns").and_then(Value::as_u64) {
                Some(t) => t,
                None => {
                    let until = until(report, &tasks)?;
                    let done = |t| supply.time_for(qpa::demand(&tasks, None, t)?);
                    qpa::tightest(&tasks, 0, until, &mut { TERMS_MAX }, done)?.0
                }
            };
            let terms = demands(unit, &tasks, t)?;
            let what = format!("demand due within {} of a common arrival, against the server's supply in it", ns(t));
            let (need, room) = (sum(&terms), supply.sbf(t).into());
            Some(Binding { task: None, what, within: Some(t), unit: "ns", need, room, inclusive: true, terms })
        }
        Tasks::Fp(tasks) => {
            let (i, task, wcrt) = closest(unit, report)?;
            let wcrt = wcrt?;
            let (mut q, mut w, mut longest) = (0, 0, None);
            fp::windows(&tasks, i, &supply, &mut { TERMS_MAX }, |number, end, arrival| {
                let response = i128::from(end) - arrival;
                if longest.is_none_or(|longest| response > longest) {
                    (q, w, longest) = (number, end, Some(response));
                }
                Some(())
            })?;
            let mut terms = Vec::new();
            for (k, (other, fp)) in
                unit.tasks.iter().zip(&tasks).enumerate().filter(|(_, (_, fp))| fp.level <= tasks[i].level)
            {
                let jobs = if k == i { q + 1 } else { w.max(1).checked_add(fp.j)?.div_ceil(fp.t) };
                terms.extend(jobs_of(&other.name, jobs, fp.c));
            }
            terms.extend(once("blocking", tasks[i].b));
            let what = format!(
                "job {} of \"{}\" in its busy window, {} {}: from its arrival to its end",
                q + 1,
                task.name,
                given(supply.sbf(w)),
                ns(w)
            );
            let (name, room) = (Some(task.name.clone()), task.d.into());
            Some(Binding {
                task: name,
                what,
                within: Some(w),
                unit: "ns",
                need: wcrt.into(),
                room,
                inclusive: true,
                terms,
            })
        }
    }
}

/// The tasks that may keep a job of the tightest task from m CPUs.
fn by_interference(unit: &Unit, carried: &ChainBounds, report: &TestReport) -> Option<Binding> {
    let form = match report.test {
        TestId::Bcl | TestId::BclIterative => Form::Window,
        TestId::RtaGlobal => Form::Response,
        TestId::DaLc => Form::LimitedWindow,
        _ => Form::LimitedResponse,
    };
    let named = report.figures.get("task").and_then(Value::as_str);
    let named = named.and_then(|name| unit.tasks.iter().position(|task| task.name == name));
    let on_task = |k: usize| interference(unit, carried, report, form, k);
    let each = match named {
        Some(k) => vec![on_task(k)?],
        None => (0..unit.tasks.len()).map(on_task).collect::<Option<Vec<_>>>()?,
    };
    let tightest = each.into_iter().min_by_key(|found| {
        let work: u128 = found.works.iter().map(|work| u128::from(*work)).sum();
        i128::try_from(found.room).unwrap_or(i128::MAX) - i128::try_from(work).unwrap_or(i128::MAX)
    })?;
    let terms: Vec<Term> =
        unit.tasks.iter().zip(&tightest.works).filter_map(|(task, work)| once(&task.name, *work)).collect();
    let task = &unit.tasks[tightest.task].name;
    let what = format!(
        "interference on \"{task}\" within {} of its release, which is late if others occupy {} CPUs for {}",
        ns(tightest.length),
        unit.m,
        ns(tightest.wait)
    );
    let (need, room) = (sum(&terms), tightest.room);
    let task = Some(task.clone());
    Some(Binding { task, what, within: Some(tightest.length), unit: "ns", need, room, inclusive: false, terms })
}

fn by_load(unit: &Unit, carried: &ChainBounds) -> Option<Binding> {
    let tasks = super::global::edf_tasks(unit, carried).ok()?;
    if unit.m < 2 {
        return None;
    }
    let slots = crate::global::with_slack(&tasks, &vec![0; tasks.len()])?;
    let spare = |k: usize| {
        let (works, room) = bak::sides(&slots, k, unit.m);
        let work: u128 = works.iter().map(|work| u128::from(*work)).sum();
        // Windows differ in length, so compare per unit.
        let (room, work) = (i128::try_from(room).unwrap_or(i128::MAX), i128::try_from(work).unwrap_or(i128::MAX));
        room.saturating_sub(work).saturating_mul(1_000_000) / i128::from(slots[k].window.max(1))
    };
    let k = (0..slots.len()).min_by_key(|k| spare(*k))?;
    let (works, room) = bak::sides(&slots, k, unit.m);
    let terms: Vec<Term> = unit.tasks.iter().zip(&works).filter_map(|(task, work)| once(&task.name, *work)).collect();
    let (name, length) = (&unit.tasks[k].name, slots[k].window);
    let what = format!("the load of a busy interval before a deadline of \"{name}\", per {} of it", ns(length));
    let (need, task) = (sum(&terms), Some(name.clone()));
    Some(Binding { task, what, within: Some(length), unit: "ns", need, room, inclusive: true, terms })
}

/// The interval in which `bar` or `ff-dbf` fails.
fn by_excess(report: &TestReport) -> Option<Binding> {
    let number = |key: &str| report.figures.get(key)?.as_u64();
    let (within, need, room) = (number("window_ns")?, number("work_ns")?.into(), number("room_ns")?.into());
    let task = report.figures.get("task").and_then(Value::as_str).map(str::to_owned);
    let what = format!("the work in an interval of {}", ns(within));
    Some(Binding {
        task,
        what,
        within: Some(within),
        unit: "ns",
        need,
        room,
        inclusive: need > room,
        terms: Vec::new(),
    })
}
