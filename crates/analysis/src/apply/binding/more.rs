//! The binding constraint of the other tests: priority assignment, state search, tasks alone in
//! servers, placement, flows, the kernel.

use serde_json::Value;
use takt_model::{NodeId, System};

use super::super::{global, one_cpu};
use super::{Binding, Term, closest, jobs_of, once, sum, unbounded};
use crate::catalogue::TestId;
use crate::exact::sum_ppm;
use crate::fp::opa::{self, Assignment};
use crate::fp::rta::{Analysis, FpTask};
use crate::global::exact::{self, Reachability, Ties};
use crate::linux::LinuxMachine;
use crate::report::TestReport;
use crate::scope::{Unit, ns};
use crate::verdict::Answer;

/// States that the search for longest responses may look at, for all tasks together.
const STATES_MAX: usize = 200_000;

/// `opa`: under the found priorities, the task with the least to spare. If no task can take the
/// lowest remaining priority, the task that comes closest to its deadline there.
pub(super) fn by_assignment(unit: &Unit) -> Option<Binding> {
    let (given, tasks, tick) = one_cpu::opa_tasks(unit)?;
    let names: Vec<&str> = given.iter().map(|i| unit.tasks[*i].name.as_str()).collect();
    let mut set: Vec<FpTask> = tasks.iter().chain(tick.as_slice()).copied().collect();
    let (candidates, what): (Vec<usize>, &str) = match opa::assign(&tasks, tick.as_slice()) {
        Assignment::Found(order) => {
            order.iter().enumerate().for_each(|(level, i)| set[*i].level = level as u32 + 1);
            (order, "under these priorities")
        }
        Assignment::None(open) => {
            // Those below do not matter.
            (0..tasks.len()).for_each(|i| set[i].level = if open.contains(&i) { 1 } else { 3 });
            (open, "as the least important of the remaining tasks, where it comes closest to its deadline")
        }
        Assignment::Undecided => return None,
    };
    let mut analysis = Analysis::default();
    let open = what.starts_with("as");
    let mut respond = |i: usize| {
        let level = set[i].level;
        set[i].level = if open { 2 } else { level };
        let response = analysis.response(&set, i).map(|response| response.from_arrival);
        set[i].level = level;
        response
    };
    let of = |i: usize, response: u64| {
        (i128::from(tasks[i].d) - i128::from(response)) * (1 << 32) / i128::from(tasks[i].d.max(1))
    };
    let bounds: Vec<(usize, u64)> = candidates.iter().filter_map(|i| Some((*i, respond(*i)?))).collect();
    let Some((i, response)) =
        bounds.into_iter().min_by_key(|(i, response)| if open { -of(*i, *response) } else { of(*i, *response) })
    else {
        return unbounded(unit, &unit.tasks[given[*candidates.last()?]]);
    };
    // The window of its first job, where that is the longest.
    let window = response.checked_sub(tasks[i].j)?;
    let mut terms = Vec::new();
    if window <= tasks[i].t {
        terms.extend(jobs_of(names[i], 1, tasks[i].c));
        let before = |k: usize| k != i && if open { set[k].level <= 1 } else { set[k].level < set[i].level };
        for k in (0..set.len()).filter(|k| before(*k)) {
            let name = names.get(k).copied().unwrap_or("ticks and interrupts");
            terms.extend(jobs_of(name, window.checked_add(set[k].j)?.div_ceil(set[k].t), set[k].c));
        }
        terms.extend(once("blocking", tasks[i].b));
        terms.extend(once("release jitter", tasks[i].j));
        if sum(&terms) != u128::from(response) {
            terms.clear();
        }
    }
    let what = format!("the response of \"{}\" {what}", names[i]);
    let (task, need, room) = (Some(names[i].to_owned()), response.into(), tasks[i].d.into());
    Some(Binding { task, what, within: Some(window), unit: "ns", need, room, inclusive: true, terms })
}

/// `exact`: the longest response that the schedule, or any state that can be reached, shows.
pub(super) fn by_states(unit: &Unit, report: &TestReport) -> Option<Binding> {
    let (rule, tasks) = global::exact_tasks(unit)?;
    if unit.tasks.iter().all(|task| task.periodic) {
        let offsets: Vec<u64> = unit.tasks.iter().map(|task| task.o).collect();
        let mut worst: Option<(i128, usize, u64, u64)> = None;
        let mut missed = None;
        let _ = exact::periodic_seen(&tasks, &offsets, unit.m, rule, global::JOBS_MAX, |i, arrival, now, left| {
            if left > 0 {
                missed = Some((i, arrival, left));
                return;
            }
            let response = now - arrival;
            let rest = (i128::from(tasks[i].d) - i128::from(response)) * (1 << 32) / i128::from(tasks[i].d.max(1));
            if worst.is_none_or(|(least, ..)| rest < least) {
                worst = Some((rest, i, response, arrival));
            }
        });
        if let Some((i, arrival, left)) = missed {
            let (name, c) = (unit.tasks[i].name.clone(), tasks[i].c);
            let what = format!(
                "the work of the job of \"{name}\" that arrives at {}, against the CPU time until its deadline",
                ns(arrival)
            );
            let (need, room) = (c.into(), (c - left.min(c)).into());
            return Some(Binding {
                task: Some(name),
                what,
                within: Some(tasks[i].d),
                unit: "ns",
                need,
                room,
                inclusive: true,
                terms: Vec::new(),
            });
        }
        let (_, i, response, arrival) = worst.filter(|_| report.verdict.answer() == Answer::Yes)?;
        let name = unit.tasks[i].name.clone();
        let what = format!(
            "the response of the job of \"{name}\" that arrives at {}, from its arrival to its end",
            ns(arrival)
        );
        let (need, room) = (response.into(), tasks[i].d.into());
        return Some(Binding {
            task: Some(name),
            what,
            within: None,
            unit: "ns",
            need,
            room,
            inclusive: true,
            terms: Vec::new(),
        });
    }
    if report.verdict.answer() != Answer::Yes {
        return None;
    }
    // The least limit of each task that no state exceeds.
    let mut states_left = STATES_MAX;
    let mut worst: Option<(i128, usize, u64)> = None;
    for i in 0..tasks.len() {
        let mut limits: Vec<u64> = tasks.iter().map(|task| task.d).collect();
        let (mut few, mut enough) = (tasks[i].c, tasks[i].d);
        while few < enough {
            let middle = few + (enough - few) / 2;
            limits[i] = middle;
            match exact::respond(&tasks, &limits, unit.m, rule, Ties::Takt, states_left) {
                Reachability::Safe { states } => (enough, states_left) = (middle, states_left.saturating_sub(states)),
                Reachability::Miss { .. } => (few, states_left) = (middle + 1, states_left.saturating_sub(1_000)),
                Reachability::Undecided => return None,
            }
        }
        let rest = (i128::from(tasks[i].d) - i128::from(enough)) * (1 << 32) / i128::from(tasks[i].d.max(1));
        if worst.is_none_or(|(least, ..)| rest < least) {
            worst = Some((rest, i, enough));
        }
    }
    let (_, i, response) = worst?;
    let name = unit.tasks[i].name.clone();
    let what = format!("the longest response of \"{name}\" in any state that can be reached");
    let (need, room) = (response.into(), tasks[i].d.into());
    Some(Binding { task: Some(name), what, within: None, unit: "ns", need, room, inclusive: true, terms: Vec::new() })
}

/// `cbs`: the response of the task alone, and how much of it is waiting for budgets.
pub(super) fn by_budgets(unit: &Unit, report: &TestReport) -> Option<Binding> {
    let (_, task, wcrt) = closest(unit, report)?;
    let (period, budget) = unit.served.as_ref()?.interface?;
    let Some(wcrt) = wcrt else {
        let what = format!("the utilization of \"{}\" against what its server gives in the long run", task.name);
        let mut ppm = [(task.c, task.t), (budget, period)].into_iter().map(|pair| sum_ppm(std::iter::once(pair)));
        let (need, room) = (ppm.next()??.into(), ppm.next()??.into());
        let task = Some(task.name.clone());
        return Some(Binding { task, what, within: None, unit: "ppm", need, room, inclusive: true, terms: Vec::new() });
    };
    let c = unit.charged(task)?;
    let own = c.saturating_add(task.b).min(wcrt);
    let parts = [
        jobs_of(&task.name, 1, c.min(wcrt)),
        once("blocking", own - c.min(wcrt)),
        once("waiting for its server's budget, jitter, jobs before it", wcrt - own),
    ];
    let what =
        format!("the longest response of \"{}\" in its server of {} every {}", task.name, ns(budget), ns(period));
    let (name, need, room) = (Some(task.name.clone()), wcrt.into(), task.d.into());
    Some(Binding {
        task: name,
        what,
        within: Some(report.figures.get("gap_ns")?.as_u64()?),
        unit: "ns",
        need,
        room,
        inclusive: true,
        terms: parts.into_iter().flatten().collect(),
    })
}

/// `partition`: the fullest CPUs. For a task without place: its need, and the most room on its
/// permitted CPUs.
pub(crate) fn explain_placement(system: &System, report: &mut TestReport) {
    if let Some(binding) = by_bins(system, report) {
        report.figures.insert("binding".to_owned(), binding.value());
    }
}

fn by_bins(system: &System, report: &TestReport) -> Option<Binding> {
    let bins = report.figures.get("bins")?.as_array()?;
    let load = |name: &str| {
        let task = &system.tasks[system.task_by_name(name)?.index()];
        sum_ppm(std::iter::once((task.wcet.as_ns(), task.period.as_ns())))
    };
    let cpus = |bin: &Value| -> Vec<u32> {
        bin["cpus"].as_array().into_iter().flatten().filter_map(|cpu| Some(cpu.as_u64()? as u32)).collect()
    };
    let left =
        |bin: &&Value| cpus(bin).len() as i128 * 1_000_000 - bin["utilization_ppm"].as_u64().map_or(0, i128::from);
    let terms = |bin: &Value| -> Option<Vec<Term>> {
        let names = bin["tasks"].as_array()?.iter().filter_map(Value::as_str);
        names.map(|name| Some(Term { what: name.to_owned(), jobs: None, need: load(name)?.into() })).collect()
    };
    let named = |bin: &Value| crate::scope::cpus_name(&cpus(bin).into_iter().collect());
    let loose = report.tasks.first().filter(|_| report.verdict.answer() != Answer::Yes);
    let (bin, task, mut terms) = match loose {
        Some(task) => {
            let own = &system.tasks[task.id.index()];
            let usable = |bin: &&Value| own.cpus.is_none_or(|own| cpus(bin).iter().any(|cpu| own.contains(*cpu)));
            let bin = bins.iter().filter(usable).max_by_key(left)?;
            (bin, Some(task.task.clone()), terms(bin)?)
        }
        None => {
            let bin = bins.iter().min_by_key(left)?;
            (bin, None, terms(bin)?)
        }
    };
    if let Some(name) = &task {
        terms.push(Term { what: name.clone(), jobs: None, need: load(name)?.into() });
    }
    let what = match &task {
        Some(task) => {
            format!("utilizations on {}, which has most left, with \"{task}\", which was not placed", named(bin))
        }
        None => format!("utilizations on {}, the fullest", named(bin)),
    };
    let (need, room) = (sum(&terms), cpus(bin).len() as u128 * 1_000_000);
    Some(Binding { task, what, within: None, unit: "ppm", need, room, inclusive: true, terms })
}

/// `linux`: the bandwidth of the root domain. For fixed priorities: real-time work and its limit.
pub(crate) fn explain_kernel(system: &System, node: NodeId, machine: &LinuxMachine, report: &mut TestReport) {
    if report.test != TestId::Linux {
        return;
    }
    if let Some(binding) = by_kernel(system, node, machine, report) {
        report.figures.insert("binding".to_owned(), binding.value());
    }
}

fn by_kernel(system: &System, node: NodeId, machine: &LinuxMachine, report: &TestReport) -> Option<Binding> {
    let number = |value: &Value| value.as_u64();
    if let Some(room) = report.figures.get("available_ppm").and_then(number) {
        let mut terms = Vec::new();
        for entry in &report.tasks {
            let task = &system.tasks[entry.id.index()];
            let need = sum_ppm(std::iter::once((machine.runtime(task).as_ns(), task.period.as_ns())))?.into();
            terms.push(Term { what: task.name.clone(), jobs: None, need });
        }
        let refused = report.tasks.iter().find(|entry| entry.verdict == Answer::No).map(|entry| entry.task.clone());
        let what =
            "bandwidths of all tasks (runtime, with its margin, by period) against what the root domain has left"
                .to_owned();
        let (need, room) = (sum(&terms), room.into());
        return Some(Binding { task: refused, what, within: None, unit: "ppm", need, room, inclusive: true, terms });
    }
    let share = report.figures.get("ordinary")?;
    let (cpu, within) = (number(&share["cpu"])?, number(&share["window_ns"])?);
    let (need, room) = (number(&share["real_time_ns"])?.into(), number(&share["room_ns"])?.into());
    let name = &system.nodes[node.index()].name;
    let what =
        format!("real-time work on cpu{cpu} of \"{name}\" within {}, against what the kernel lets it take", ns(within));
    Some(Binding { task: None, what, within: Some(within), unit: "ns", need, room, inclusive: true, terms: Vec::new() })
}

/// A condition on hops of a flow, or on the jobs of a node, for [`crate::distributed`].
pub(crate) fn of_parts(
    what: String,
    within: Option<u64>,
    need: u64,
    room: u64,
    parts: &[(String, Option<u64>, u64)],
) -> Value {
    let term = |(what, jobs, need): &(String, Option<u64>, u64)| Term {
        what: what.clone(),
        jobs: *jobs,
        need: (*need).into(),
    };
    let terms = parts.iter().filter(|(_, _, need)| *need > 0).map(term).collect();
    Binding { task: None, what, within, unit: "ns", need: need.into(), room: room.into(), inclusive: true, terms }
        .value()
}
