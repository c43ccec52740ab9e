//! What a reader must not overlook, in plain words, the worst first.

use std::fmt::Write as _;

use takt_log::stats::TaskStats;
use takt_model::Span;

use super::tasks::Compared;
use super::{ReportInput, count, plural};
use crate::axis::short;
use crate::markup::Esc;

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

fn findings(input: &ReportInput<'_>) -> Vec<Finding> {
    let tasks = Compared::all(input);
    let mut findings = Vec::new();
    above_bound(
        &mut findings,
        &tasks,
        "Simulated",
        |task| task.simulated,
        |task, max, bound| {
            format!(
                "Simulated above bound: a job of \"{task}\" took {max}, theory's bound is {bound}. One of the two is wrong; please \
             report this with the system file and the seed."
            )
        },
    );
    misses(&mut findings, &tasks, "measured", |task| task.measured);
    misses(&mut findings, &tasks, "simulated", |task| task.simulated);
    above_bound(
        &mut findings,
        &tasks,
        "Measured",
        |task| task.measured,
        |task, max, bound| {
            format!(
                "Measured above bound: a job of \"{task}\" took {max}, theory's bound is {bound}. The bound assumes that jobs keep \
             to their WCET and that nothing else takes the CPU; here one of these did not hold."
            )
        },
    );
    for (word, source) in [("simulation", input.simulated), ("measurement", input.measured)] {
        if let Some(damage) = source.and_then(|source| source.damage.as_ref()) {
            findings.push(Finding { bad: false, text: format!("The log of the {word} is damaged: {damage}") });
        }
    }
    findings
}

fn above_bound<'a>(
    findings: &mut Vec<Finding>,
    tasks: &[Compared<'a>],
    word: &str,
    of: impl Fn(&Compared<'a>) -> Option<&'a TaskStats>,
    say: impl Fn(&str, String, String) -> String,
) {
    let mut above: Vec<(&str, u64, u64)> = (tasks.iter())
        .filter_map(|task| {
            let (max, bound) = (of(task)?.response_ns.as_ref()?.max, task.bound?.as_ns());
            (max > bound).then_some((task.task.name.as_str(), max, bound))
        })
        .collect();
    // The worst excess in proportion first; products in 128 bits do not overflow.
    above.sort_by(|a, b| (u128::from(b.1) * u128::from(a.2)).cmp(&(u128::from(a.1) * u128::from(b.2))));
    for (name, max, bound) in above.iter().take(SPELLED_MAX) {
        let shown = |ns: u64| short(Span::from_ns(ns));
        // Where three digits do not tell them apart, all are needed.
        let (max, bound) = if shown(*max) == shown(*bound) {
            (Span::from_ns(*max).to_string(), Span::from_ns(*bound).to_string())
        } else {
            (shown(*max), shown(*bound))
        };
        findings.push(Finding { bad: true, text: say(name, max, bound) });
    }
    if above.len() > SPELLED_MAX {
        let more = above.len() - SPELLED_MAX;
        findings
            .push(Finding { bad: true, text: format!("{word} above bound: {} more.", plural(more as u64, "task")) });
    }
}

fn misses<'a>(
    findings: &mut Vec<Finding>,
    tasks: &[Compared<'a>],
    word: &str,
    of: impl Fn(&Compared<'a>) -> Option<&'a TaskStats>,
) {
    let mut late: Vec<(&str, u64, &TaskStats)> = (tasks.iter())
        .filter_map(|task| {
            let stats = of(task)?;
            Some((task.task.name.as_str(), stats.missed.filter(|missed| *missed > 0)?, stats))
        })
        .collect();
    if late.is_empty() {
        return;
    }
    late.sort_by_key(|(_, missed, _)| std::cmp::Reverse(*missed));
    let spelled: Vec<String> = (late.iter().take(SPELLED_MAX))
        .map(|(name, missed, stats)| format!("\"{name}\" {} of {}", count(*missed), count(stats.released)))
        .collect();
    let more = late.len().saturating_sub(SPELLED_MAX);
    let more = if more > 0 { format!(", and {}", plural(more as u64, "more task")) } else { String::new() };
    findings.push(Finding { bad: true, text: format!("Deadlines missed ({word}): {}{more}.", spelled.join(", ")) });
}
