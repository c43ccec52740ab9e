//! Distributions of response times, one plot a task, and of response/deadline, all tasks in one plot.

use std::fmt::Write as _;

use takt_model::Span;

use super::ReportInput;
use super::tasks::{Compared, key};
use crate::axis::short;
use crate::markup::Esc;
use crate::plot::{Line, Plot, Rule};
use crate::svg::COLOURS;

/// So many tasks have their plot in sight; the others wait behind a click.
const IN_SIGHT: usize = 12;

pub(super) fn section(out: &mut String, input: &ReportInput<'_>) {
    let tasks = Compared::all(input);
    let plots: Vec<String> = tasks.iter().map(task_plot).filter(|plot| !plot.is_empty()).collect();
    if plots.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"distributions\">Distributions</h2>\n<p class=\"note\">Share of the jobs that completed within \
         a response time. The upper scale is the response as a share of the \
         deadline.</p>\n",
    );
    key(out, tasks.iter().any(|task| task.bound.is_some()), input.simulated.is_some(), input.measured.is_some());
    folded(out, &plots);
    for (word, class, measured) in [("Simulated", "sim", false), ("Measured", "real", true)] {
        all_tasks(out, &tasks, word, class, measured);
    }
}

/// A task's plot each: the first ones in sight, the rest to be unfolded.
pub(super) fn folded(out: &mut String, plots: &[String]) {
    let (seen, rest) = plots.split_at(plots.len().min(IN_SIGHT));
    let _ = writeln!(out, "<div class=\"plots\">{}</div>", seen.concat());
    if !rest.is_empty() {
        let _ = writeln!(
            out,
            "<details><summary>{} more</summary><div class=\"plots\">{}</div></details>",
            super::plural(rest.len() as u64, "task"),
            rest.concat()
        );
    }
}

fn task_plot(task: &Compared<'_>) -> String {
    let mut lines = Vec::new();
    for (stats, class, word) in [(task.simulated, "p0", "simulated"), (task.measured, "p1", "measured")] {
        if let Some(stats) = stats.filter(|stats| stats.responses.count() > 0) {
            let name = format!("{word}: {}", super::plural(stats.responses.count(), "job"));
            lines.push(Line { class: class.to_owned(), name, curve: &stats.responses, unit: Span::from_ns(1) });
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let deadline = task.task.deadline;
    let mut rules =
        vec![Rule { class: "due", name: format!("deadline {}", short(deadline)), at: deadline.as_ns() as f64 }];
    if let Some(bound) = task.bound {
        rules.push(Rule { class: "bound", name: format!("bound {}", short(bound)), at: bound.as_ns() as f64 });
    }
    let plot = Plot {
        id: format!("cdf-{}", task.id.0),
        title: format!("Response times of {}", task.task.name),
        lines,
        rules,
        ratio: false,
        deadline: Some(deadline.as_ns().max(1) as f64),
        width: 320.0,
        height: 170.0,
    };
    format!(
        "<figure><figcaption>{} <span>deadline {}</span></figcaption>{}</figure>\n",
        Esc(&task.task.name),
        Esc(&short(deadline)),
        plot.svg()
    )
}

/// The tasks in the order of their largest share of the deadline, the largest first, with their
/// colours. A task has the same colour in every plot: by place in the file while the colours
/// suffice, else by rank.
fn ranks(tasks: &[Compared<'_>]) -> Vec<(usize, String)> {
    let most = |task: &Compared<'_>| {
        let maxima =
            [task.simulated, task.measured].into_iter().flatten().filter_map(|stats| stats.response_ns.as_ref());
        let max = maxima.map(|response| response.max).max()?;
        Some(share(task, max))
    };
    let mut order: Vec<(usize, f64)> =
        tasks.iter().enumerate().filter_map(|(i, task)| Some((i, most(task)?))).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let class = |place: usize| if place < COLOURS { format!("p{place}") } else { "other".to_owned() };
    let few = tasks.len() <= COLOURS;
    order.iter().enumerate().map(|(rank, (i, _))| (*i, class(if few { *i } else { rank }))).collect()
}

fn share(task: &Compared<'_>, ns: u64) -> f64 {
    ns as f64 / task.task.deadline.as_ns().max(1) as f64
}

fn all_tasks(out: &mut String, tasks: &[Compared<'_>], word: &str, id: &str, measured: bool) {
    let mut lines = Vec::new();
    let mut entries: Vec<(usize, String)> = Vec::new();
    let ranks = ranks(tasks);
    for (i, class) in &ranks {
        let task = &tasks[*i];
        let stats = if measured { task.measured } else { task.simulated };
        let Some((stats, response)) = stats.and_then(|stats| Some((stats, stats.response_ns.as_ref()?))) else {
            continue;
        };
        let most = crate::plot::percent(share(task, response.max));
        let name = format!("{}: at most {most} of the deadline", task.task.name);
        lines.push(Line { class: class.clone(), name, curve: &stats.responses, unit: task.task.deadline });
        if class != "other" {
            let mark = format!("<i class=\"{class}\" style=\"border-color:var(--c)\"></i>");
            entries.push((*i, format!("<li class=\"takt-chart\">{mark}{}</li>", Esc(&task.task.name))));
        }
    }
    if lines.len() < 2 {
        return;
    }
    // The coloured ones last, so that they lie on top.
    lines.reverse();
    // Like the rows of every table.
    entries.sort_by_key(|(i, _)| *i);
    let mut legend: String = entries.into_iter().map(|(_, entry)| entry).collect();
    if ranks.iter().any(|(_, class)| class == "other") {
        legend.push_str("<li>other tasks in grey</li>");
    }
    let plot = Plot {
        id: format!("share-{id}"),
        title: format!("{word} response as a share of the deadline, all tasks"),
        lines,
        rules: vec![Rule { class: "due", name: "deadline".to_owned(), at: 1.0 }],
        ratio: true,
        deadline: None,
        width: 972.0,
        height: 240.0,
    };
    let _ = writeln!(
        out,
        "<h3>{word}: response as a share of the deadline</h3>\n<div class=\"chart\">{}</div>\n<ul \
         class=\"key\">{legend}</ul>",
        plot.svg()
    );
}
