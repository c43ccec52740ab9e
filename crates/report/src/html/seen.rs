//! The page of a log without a system: tasks and their distributions.

use std::fmt::Write as _;

use takt_log::stats::TaskStats;
use takt_model::Span;

use super::distributions::folded;
use super::{ReportInput, count, plural, time_or_dash};
use crate::axis::short;
use crate::markup::Esc;
use crate::plot::{Line, Plot, Rule, percent};
use crate::source::Source;

/// The most rows: the busiest tasks have one, and a line counts the others.
const ROWS_MAX: usize = 100;
/// The most tasks with plots.
const PLOTS_MAX: usize = 40;

/// The log, if there is no system.
pub(super) fn source<'a>(input: &ReportInput<'a>) -> Option<&'a Source> {
    input.measured.or(input.simulated).filter(|_| input.system.is_none())
}

/// The tasks with jobs, the busiest first.
pub(super) fn tasks(source: &Source) -> Vec<&TaskStats> {
    let mut tasks: Vec<&TaskStats> =
        source.stats.tasks.iter().filter(|task| task.released + task.censored > 0).collect();
    tasks.sort_by_key(|task| std::cmp::Reverse((task.busy_ns, task.released)));
    tasks
}

pub(super) fn section(out: &mut String, input: &ReportInput<'_>) {
    let Some(source) = source(input) else { return };
    let tasks = tasks(source);
    if tasks.is_empty() {
        return;
    }
    let (shown, rest) = tasks.split_at(tasks.len().min(ROWS_MAX));
    out.push_str(
        "<h2 id=\"tasks\">Tasks</h2>\n<p class=\"note\">The busiest first. Responses are from the arrival of a \
         job to its completion; between: from one arrival to the next.</p>\n<div \
         class=\"wide\"><table>\n<thead><tr><th>Task</th>",
    );
    let heads = "Jobs|Share of<br/>a CPU|Between<br/>p50|Executed<br/>mean|Executed<br/>p99|Executed<br/>max|\
                 Response<br/>p50|Response<br/>p99|Response<br/>max|Deadline|Missed|Preempted";
    for head in heads.split('|') {
        let _ = write!(out, "<th class=\"n\" scope=\"col\">{head}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    shown.iter().for_each(|task| row(out, task));
    out.push_str("</tbody></table></div>\n");
    if !rest.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"cap\">{} that ran less have no row; takt stats has them all.</p>",
            plural(rest.len() as u64, "task")
        );
    }
}

fn row(out: &mut String, task: &TaskStats) {
    let _ = write!(out, "<tr><th scope=\"row\" title=\"{n}\">{n}</th>", n = Esc(&task.task));
    let (execution, response) = (task.execution_ns, task.response_ns);
    let late = task.missed.is_some_and(|missed| missed > 0);

    let cells = [
        count(task.released),
        task.utilization.map_or_else(|| "-".to_owned(), percent),
        time_or_dash(task.inter_arrival_ns.map(|between| between.p50)),
        time_or_dash(execution.map(|execution| execution.mean)),
        time_or_dash(execution.map(|execution| execution.p99)),
        time_or_dash(execution.map(|execution| execution.max)),
        time_or_dash(response.map(|response| response.p50)),
        time_or_dash(response.map(|response| response.p99)),
        time_or_dash(response.map(|response| response.max)),
        time_or_dash(task.deadline_ns),
        task.missed.map_or_else(|| "-".to_owned(), count),
        task.preemptions.map_or_else(|| "-".to_owned(), count),
    ];
    for (column, cell) in cells.iter().enumerate() {
        let class = if late && column == 10 { "n late" } else { "n" };
        let _ = write!(out, "<td class=\"{class}\">{}</td>", Esc(cell));
    }
    out.push_str("</tr>\n");
}

pub(super) fn distributions(out: &mut String, input: &ReportInput<'_>) {
    let Some(source) = source(input) else { return };
    let tasks = tasks(source);
    let plots: Vec<String> = tasks.iter().enumerate().filter_map(|(i, task)| plot(i, task)).take(PLOTS_MAX).collect();
    if plots.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"distributions\">Distributions</h2>\n<p class=\"note\">Share of the jobs that took no \
         longer.</p>\n<ul class=\"key\">\
         <li class=\"takt-chart\"><i class=\"p0\" style=\"border-color:var(--c)\"></i>executed</li>\
         <li class=\"takt-chart\"><i class=\"p1\" style=\"border-color:var(--c)\"></i>response</li></ul>\n",
    );
    folded(out, &plots);
}

fn plot(i: usize, task: &TaskStats) -> Option<String> {
    let curves = [("p0", "executed", &task.executions), ("p1", "response", &task.responses)];
    let curves = curves.into_iter().filter(|(.., curve)| curve.count() > 0);
    let line = |(class, word, curve): (&str, &str, _)| Line {
        class: class.to_owned(),
        name: format!("{word}: {}", plural(task.completed, "job")),
        curve,
        unit: Span::from_ns(1),
    };
    let lines: Vec<Line<'_>> = curves.map(line).collect();
    if lines.is_empty() {
        return None;
    }
    let deadline = task.deadline_ns.map(|deadline| (deadline, short(Span::from_ns(deadline))));
    let due =
        deadline.as_ref().map(|(at, text)| Rule { class: "due", name: format!("deadline {text}"), at: *at as f64 });
    let plot = Plot {
        id: format!("seen-{i}"),
        title: format!("Execution and response times of {}", task.task),
        lines,
        rules: due.into_iter().collect(),
        ratio: false,
        deadline: None,
        width: 320.0,
        height: 170.0,
    };
    let aside = deadline.map_or_else(|| plural(task.completed, "job"), |(_, text)| format!("deadline {text}"));
    let name = Esc(&task.task);
    Some(format!("<figure><figcaption>{name} <span>{}</span></figcaption>{}</figure>\n", Esc(&aside), plot.svg()))
}
