//! The table of tasks: bound, simulated and measured beside each other.

use std::fmt::Write as _;

use takt_log::stats::TaskStats;
use takt_model::{Span, Task, TaskId};

use super::{ReportInput, time_or_dash};
use crate::axis::short;
use crate::markup::Esc;
use crate::plot::{Bar, percent};
use crate::source::Source;

pub(super) struct Compared<'a> {
    pub(super) id: TaskId,
    pub(super) task: &'a Task,
    pub(super) bound: Option<Span>,
    pub(super) simulated: Option<&'a TaskStats>,
    pub(super) measured: Option<&'a TaskStats>,
}

impl<'a> Compared<'a> {
    pub(super) fn all(input: &ReportInput<'a>) -> Vec<Compared<'a>> {
        let Some(system) = input.system else { return Vec::new() };
        let bounds = input.check.map(|check| check.bounds(system.tasks.len()));
        let tasks = system.tasks.iter().enumerate();
        tasks
            .map(|(i, task)| {
                let bound = bounds.as_ref().and_then(|bounds| bounds[i]);
                Compared {
                    id: TaskId(i as u32),
                    task,
                    bound,
                    simulated: input.simulated.and_then(|source| stats_of(source, i, &task.name)),
                    measured: input.measured.and_then(|source| stats_of(source, i, &task.name)),
                }
            })
            .collect()
    }

    fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.task.deadline.as_ns().max(1) as f64
    }

    fn bar(&self) -> Bar {
        let pair = |stats: Option<&TaskStats>| {
            let response = stats?.response_ns.as_ref()?;
            Some((self.share(response.p99), self.share(response.max)))
        };
        Bar {
            bound: self.bound.map(|bound| self.share(bound.as_ns())),
            simulated: pair(self.simulated),
            measured: pair(self.measured),
        }
    }

    fn bar_text(&self) -> String {
        let max = |stats: Option<&TaskStats>| stats.and_then(|stats| stats.response_ns.as_ref()).map(|r| r.max);
        let parts = [
            ("bound", self.bound.map(Span::as_ns)),
            ("simulated", max(self.simulated)),
            ("measured", max(self.measured)),
        ];
        let parts: Vec<String> =
            parts.iter().filter_map(|(word, ns)| Some(format!("{word} {}", percent(self.share((*ns)?))))).collect();
        format!("{} of the deadline: {}", self.task.name, parts.join(", "))
    }
}

/// The entry of a task: usually at its place, else by name (a run of one node has that node's tasks too).
fn stats_of<'a>(source: &'a Source, place: usize, name: &str) -> Option<&'a TaskStats> {
    let tasks = &source.stats.tasks;
    let found = tasks
        .get(place)
        .filter(|stats| stats.task == name)
        .or_else(|| tasks.iter().find(|stats| stats.task == name))?;
    // A log of one node defines the others' tasks without a job of them.
    (found.released > 0 || found.censored > 0).then_some(found)
}

pub(super) fn section(out: &mut String, input: &ReportInput<'_>) {
    let rows = Compared::all(input);
    let Some(system) = input.system.filter(|_| !rows.is_empty()) else { return };
    out.push_str(
        "<h2 id=\"tasks\">Response times</h2>\n<p class=\"note\">From the nominal arrival of a job to \
         its completion.</p>\n",
    );
    let (bounds, simulated, measured) = (input.check.is_some(), input.simulated.is_some(), input.measured.is_some());
    let several = system.nodes.len() > 1;
    out.push_str("<div class=\"wide\"><table>\n<thead><tr><th>Task</th>");
    let mut head = |class: &str, text: &str| {
        let _ = write!(out, "<th class=\"{class}\" scope=\"col\">{text}</th>");
    };
    if several {
        head("", "Node");
    }
    head("", "Share of the deadline");
    head("n", "Deadline");
    for (there, text) in [
        (bounds, "Bound"),
        (simulated, "Simulated<br/>p99"),
        (simulated, "Simulated<br/>max"),
        (measured, "Measured<br/>p99"),
        (measured, "Measured<br/>max"),
        (simulated, "Missed<br/>simulated"),
        (measured, "Missed<br/>measured"),
    ] {
        if there {
            head("n", text);
        }
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let scale = rows.iter().map(|row| row.bar().most()).fold(1.0, f64::max).min(1.6) * 1.04;
    for row in &rows {
        let _ = write!(out, "<tr><th scope=\"row\" title=\"{n}\">{n}</th>", n = Esc(&row.task.name));
        if several {
            let _ = write!(out, "<td>{}</td>", Esc(&system.nodes[row.task.node.index()].name));
        }
        let _ = write!(out, "<td>{}</td>", row.bar().svg(scale, &row.bar_text()));
        cell(out, "", &short(row.task.deadline));
        if bounds {
            let late = row.bound.is_some_and(|bound| bound > row.task.deadline);
            cell(out, if late { "late" } else { "" }, &row.bound.map_or_else(|| "-".to_owned(), short));
        }
        for (there, stats) in [(simulated, row.simulated), (measured, row.measured)] {
            if there {
                let response = stats.and_then(|stats| stats.response_ns.as_ref());
                for ns in [response.map(|r| r.p99), response.map(|r| r.max)] {
                    let late = ns.is_some_and(|ns| ns > row.task.deadline.as_ns());
                    cell(out, if late { "late" } else { "" }, &time_or_dash(ns));
                }
            }
        }
        for (there, stats) in [(simulated, row.simulated), (measured, row.measured)] {
            if there {
                missed(out, stats);
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    key(out, rows.iter().any(|row| row.bound.is_some()), simulated, measured);
}

fn cell(out: &mut String, class: &str, text: &str) {
    let _ = write!(out, "<td class=\"n {class}\">{}</td>", Esc(text));
}

fn missed(out: &mut String, stats: Option<&TaskStats>) {
    let Some(stats) = stats else { return cell(out, "", "-") };
    let text = match stats.missed {
        Some(missed) => {
            format!("{} <span class=\"sub\">of {}</span>", super::count(missed), super::count(stats.released))
        }
        None => "unknown".to_owned(),
    };
    let class = if stats.missed.is_some_and(|missed| missed > 0) { "n late" } else { "n" };
    let _ = write!(out, "<td class=\"{class}\">{text}</td>");
}

pub(super) fn key(out: &mut String, bounds: bool, simulated: bool, measured: bool) {
    out.push_str("<ul class=\"key\">");
    for (there, class, text) in [
        (simulated, "sim", "simulated"),
        (measured, "real", "measured"),
        (bounds, "bnd", "bound of theory"),
        (true, "due", "deadline"),
    ] {
        if there {
            let _ = write!(out, "<li><i class=\"{class}\"></i>{text}</li>");
        }
    }
    out.push_str("</ul>\n");
}
