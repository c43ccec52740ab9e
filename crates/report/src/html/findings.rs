//! The findings that a reader must not overlook, in plain words, the worst first.

use std::fmt::Write as _;

use takt_analysis::Answer;
use takt_log::BackEnd;
use takt_log::stats::TaskStats;
use takt_model::flows::{self, Role};
use takt_model::plan::Order;
use takt_model::{Exec, NodeId, Plan, Span, System, Task, TaskId};

use super::tasks::Compared;
use super::{ReportInput, count, late, plural, seen};
use crate::axis::short;
use crate::markup::Esc;
use crate::source::Source;

/// So many findings of one kind are spelled out.
const SPELLED_MAX: usize = 6;

struct Finding {
    bad: bool,
    text: String,
}

pub(super) fn section(out: &mut String, input: &ReportInput<'_>) {
    let findings = findings(input);
    if findings.is_empty() {
        return;
    }
    out.push_str("<ul class=\"findings\">\n");
    for finding in findings {
        let _ = writeln!(out, "<li class=\"{}\">{}</li>", if finding.bad { "no" } else { "open" }, Esc(&finding.text));
    }
    out.push_str("</ul>\n");
}

pub(super) fn sentences(input: &ReportInput<'_>) -> Vec<String> {
    findings(input).into_iter().map(|finding| finding.text).collect()
}

/// A task of the file, a hop of a flow, or a task that takes or sends messages.
struct Subject<'a> {
    name: String,
    bound: Option<Span>,
    simulated: Option<&'a TaskStats>,
    measured: Option<&'a TaskStats>,
}

fn subjects<'a>(input: &ReportInput<'a>) -> Vec<Subject<'a>> {
    let of_file = Compared::all(input).into_iter().map(|of| Subject {
        name: of.task.name.clone(),
        bound: of.bound,
        simulated: of.simulated,
        measured: of.measured,
    });
    let mut subjects: Vec<Subject<'a>> = of_file.collect();
    let Some((system, lowered)) = input.system.and_then(|system| Some((system, flows::lower(system)?))) else {
        return subjects;
    };
    let tasks = (0..).map(TaskId).zip(&lowered.system.tasks).skip(system.tasks.len());
    subjects.extend(tasks.map(|(id, task)| {
        let bound = match lowered.role(id) {
            Some(Role::Hop { flow, hop }) => {
                let flow = system.flows.get(flow.index());
                flow.zip(input.check).and_then(|(flow, check)| check.hop_bound(&flow.name, hop))
            }
            _ => None,
        };
        let of = |source: Option<&'a Source>| source?.stats.tasks.iter().find(|stats| stats.task == task.name);
        Subject { name: task.name.clone(), bound, simulated: of(input.simulated), measured: of(input.measured) }
    }));
    subjects
}

fn findings(input: &ReportInput<'_>) -> Vec<Finding> {
    let tasks = subjects(input);
    let mut findings = Vec::new();
    let whose_fault = blame(input);
    if let Some(above) = above_bound(&tasks, |task| task.simulated) {
        findings.push(Finding { bad: true, text: format!("Simulated above bound: {above}. {whose_fault}") });
    }
    let simulated_misses = input.simulated.and_then(|source| source.totals().1).unwrap_or(0);
    match input.check.map(|check| check.schedulable) {
        Some(Answer::Yes) if simulated_misses > 0 => findings.push(Finding {
            bad: true,
            text: format!("Theory proves every deadline, and the simulation missed some. {whose_fault}"),
        }),
        Some(Answer::Unknown) if simulated_misses > 0 => findings.push(Finding {
            bad: true,
            text: "Theory left this open, and the simulation decides it: a legal schedule of this system misses a \
                 deadline."
                .to_owned(),
        }),
        _ => {}
    }
    let measured: Vec<&TaskStats> = match seen::source(input) {
        Some(source) => seen::tasks(source),
        None => tasks.iter().filter_map(|task| task.measured).collect(),
    };
    misses(&mut findings, "measured", &measured);
    misses(&mut findings, "simulated", &tasks.iter().filter_map(|task| task.simulated).collect::<Vec<_>>());
    if let Some(above) = above_bound(&tasks, |task| task.measured) {
        let best_effort = input.measured.is_some_and(|source| source.back_end == BackEnd::RunBestEffort);
        let because = if best_effort {
            "A bound assumes that the scheduler is the one of the system file; this run was best effort, in \
             competition with everything else on the \
             machine."
        } else {
            "A bound assumes that jobs keep to their WCET and that nothing else takes the CPU."
        };
        let why = why(input, &tasks);
        findings.push(Finding { bad: true, text: format!("Measured above bound: {above}. {because}{why}") });
    }
    findings.extend(throttled(input));
    for (word, source) in [("simulation", input.simulated), ("measurement", input.measured)] {
        if let Some(damage) = source.and_then(|source| source.damage.as_ref()) {
            findings.push(Finding { bad: false, text: format!("The log of the {word} is damaged: {damage}") });
        }
    }
    findings
}

/// Names tasks whose declared WCET makes the kernel throttle their jobs.
fn throttled(input: &ReportInput<'_>) -> Option<Finding> {
    input.measured.filter(|source| source.back_end == BackEnd::Run)?;
    let tasks: Vec<&Task> = under_sched_deadline(input.system?).into_iter().filter(|task| exceeds_wcet(task)).collect();
    if tasks.is_empty() {
        return None;
    }
    let named: Vec<String> = tasks.iter().take(SPELLED_MAX).map(|task| format!("\"{}\"", task.name)).collect();
    let text = format!(
        "The file lets jobs of {}{} execute for longer than their wcet. SCHED_DEADLINE throttles a job that \
         exceeds its reservation, the wcet and a margin, until the reservation's next period; takt run counts \
         such overruns.",
        named.join(", "),
        and_more(tasks.len())
    );
    Some(Finding { bad: false, text })
}

/// Tasks of `deadline` levels, which run under SCHED_DEADLINE.
fn under_sched_deadline(system: &System) -> Vec<&Task> {
    let plans = system.nodes.iter().enumerate().filter_map(|(index, node)| {
        Plan::resolve(system, NodeId(index.try_into().ok()?), &system.strategy(node.strategy)).ok()
    });
    let slots = plans.flat_map(|plan| {
        let levels = plan.levels;
        let is_deadline = move |level: u32| levels.get(level as usize).is_some_and(|l| l.order == Order::Deadline);
        plan.tasks.into_iter().filter(move |slot| is_deadline(slot.level))
    });
    slots.filter_map(|slot| system.tasks.get(slot.task.index())).collect()
}

fn exceeds_wcet(task: &Task) -> bool {
    match &task.exec {
        Exec::Wcet => false,
        Exec::Uniform { max, .. } => *max > task.wcet,
        Exec::Pmf(pmf) => pmf.iter().any(|(value, _)| *value > task.wcet),
        Exec::Trace(trace) => trace.values.iter().any(|value| *value > task.wcet),
    }
}

/// Why theory and simulation disagree: the file, or a bug.
fn blame(input: &ReportInput<'_>) -> &'static str {
    if input.check.is_some_and(|check| check.exceeded) {
        "The file lets tasks execute for longer than their wcet, or arrive faster than their period; the proof assumes \
         that they do neither."
    } else {
        "One of the two is wrong; please report this with the system file and the seed."
    }
}

/// `"a" 12 ms (bound 10 ms), "b" ...`, the worst excess in proportion first; `None` where all keep to their bounds.
fn above_bound<'a>(tasks: &[Subject<'a>], of: impl Fn(&Subject<'a>) -> Option<&'a TaskStats>) -> Option<String> {
    let mut above: Vec<(&str, u64, u64)> = (tasks.iter())
        .filter_map(|task| {
            let (max, bound) = (of(task)?.response_ns.as_ref()?.max, task.bound?.as_ns());
            (max > bound).then_some((task.name.as_str(), max, bound))
        })
        .collect();
    // Products in 128 bits do not overflow.
    above.sort_by(|a, b| (u128::from(b.1) * u128::from(a.2)).cmp(&(u128::from(a.1) * u128::from(b.2))));
    let spelled = above.iter().take(SPELLED_MAX).map(|(name, max, bound)| {
        let shown = |ns: u64| short(Span::from_ns(ns));
        // If four digits do not distinguish the values, show all digits.
        if shown(*max) == shown(*bound) {
            format!("\"{name}\" {} (bound {})", Span::from_ns(*max), Span::from_ns(*bound))
        } else {
            format!("\"{name}\" {} (bound {})", shown(*max), shown(*bound))
        }
    });
    let spelled: Vec<String> = spelled.collect();
    (!spelled.is_empty()).then(|| format!("{}{}", spelled.join(", "), and_more(above.len())))
}

/// Why tasks exceeded their bounds: the causes of their late jobs, and the threads that had the CPU
/// during the worst job.
fn why(input: &ReportInput<'_>, tasks: &[Subject<'_>]) -> String {
    let Some(source) = input.measured else { return String::new() };
    let above = tasks.iter().filter(|task| {
        let max = task.measured.and_then(|stats| stats.response_ns.as_ref()).map(|response| response.max);
        max.zip(task.bound).is_some_and(|(max, bound)| max > bound.as_ns())
    });
    let mut told = Vec::new();
    for task in above.take(SPELLED_MAX) {
        let name = &task.name;
        if let Some(sentence) = late::sentence(source, name) {
            told.push(format!("jobs of \"{name}\" were late for this: {sentence}"));
        } else if let Some(disturber) = task.measured.and_then(|stats| late::disturber(source.worst.get(&stats.id)?)) {
            told.push(format!("in the worst job of \"{name}\" the CPU went longest to {disturber}"));
        }
    }
    if told.is_empty() { " Here one of these did not hold.".to_owned() } else { format!(" Here {}.", told.join("; ")) }
}

/// The text after the first [`SPELLED_MAX`] of `all`.
fn and_more(all: usize) -> String {
    match all.saturating_sub(SPELLED_MAX) {
        0 => String::new(),
        more => format!(", and {}", plural(more as u64, "more task")),
    }
}

fn misses(findings: &mut Vec<Finding>, word: &str, tasks: &[&TaskStats]) {
    let missed = |stats: &&TaskStats| stats.missed.filter(|missed| *missed > 0);
    let mut late: Vec<(&str, u64, &TaskStats)> =
        tasks.iter().filter_map(|stats| Some((stats.task.as_str(), missed(stats)?, *stats))).collect();
    if late.is_empty() {
        return;
    }
    late.sort_by_key(|(_, missed, _)| std::cmp::Reverse(*missed));
    let spelled: Vec<String> = (late.iter().take(SPELLED_MAX))
        .map(|(name, missed, stats)| format!("\"{name}\" {} of {}", count(*missed), count(stats.released)))
        .collect();
    let text = format!("Deadlines missed ({word}): {}{}.", spelled.join(", "), and_more(late.len()));
    findings.push(Finding { bad: true, text });
}
