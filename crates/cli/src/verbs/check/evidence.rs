//! The text output of `--explain` and `--sensitivity`.

use std::fmt::Write as _;

use serde_json::Value;
use takt_analysis::sensitivity::{Limit, Ns, OfTask};
use takt_analysis::{CheckReport, Sensitivity};
use takt_model::Span;

use crate::table::{Rows, Table, or_dash, time};

/// Terms of a condition that are shown, the largest.
const TERMS_SHOWN: usize = 20;

/// The binding constraint of each verdict: a line, and the terms of its number.
pub(super) fn explained(report: &CheckReport) -> String {
    let mut text = String::new();
    for test in &report.tests {
        let Some(line) = test.binding() else { continue };
        let _ = writeln!(text, "\n{}, {}: {line}", test.test.name(), test.scope);
        let terms = test.figures["binding"]["terms"].as_array().map_or(&[][..], Vec::as_slice);
        text.push_str(&of_terms(terms));
    }
    if text.is_empty() { "\nno test has numbers to show\n".to_owned() } else { text }
}

fn of_terms(terms: &[Value]) -> String {
    let need = |term: &Value| term["need_ns"].as_u64().or_else(|| term["need_ppm"].as_u64()).unwrap_or(u64::MAX);
    let mut shown: Vec<&Value> = terms.iter().collect();
    if shown.len() > TERMS_SHOWN {
        shown.sort_by_key(|term| std::cmp::Reverse(need(term)));
    }
    let of_time = terms.iter().any(|term| term.get("need_ns").is_some());
    let mut table = Table::new(&["OF", "JOBS", if of_time { "WORK" } else { "PPM" }]);
    for term in shown.iter().take(TERMS_SHOWN) {
        let number = if of_time { time(Span::from_ns(need(term))) } else { need(term).to_string() };
        table.row(vec![term["what"].as_str().unwrap_or_default().to_owned(), or_dash(term["jobs"].as_u64()), number]);
    }
    if table.is_empty() {
        return String::new();
    }
    let mut text = table.without_empty_columns().render("  ");
    if terms.len() > TERMS_SHOWN {
        let _ = writeln!(text, "  and {} more", terms.len() - TERMS_SHOWN);
    }
    text
}

pub(super) fn sensitivity(found: &Sensitivity, rows: Rows) -> String {
    let verb = if found.schedulable { "may" } else { "must" };
    let mut text = String::from("\n");
    let _ = match found.load.until {
        Some(until) if found.schedulable => writeln!(text, "all wcets may be multiplied by up to {}", factor(until)),
        Some(until) => writeln!(text, "all wcets must be multiplied by {} or less", factor(until)),
        None => writeln!(text, "no factor for all wcets was found that makes it proven"),
    };
    let (grow, shrink) = if found.schedulable { ("GROW TO", "SHRINK TO") } else { ("SHRINK TO", "GROW TO") };
    let (grow, shrink) = (format!("{} {grow}", verb.to_uppercase()), format!("{} {shrink}", verb.to_uppercase()));
    for (what, to, limits) in [("wcet", &grow, &found.wcets), ("period", &shrink, &found.periods)] {
        text.push('\n');
        if limits.iter().any(|of| of.limit.until.is_some()) {
            text.push_str(&of_named("TASK", &what.to_uppercase(), to, limits, rows));
        } else {
            let _ = writeln!(text, "no {what} alone was found that makes it proven");
        }
    }
    if !found.budgets.is_empty() {
        text.push('\n');
        if found.budgets.iter().any(|of| of.limit.until.is_some()) {
            text.push_str(&of_named("COMPONENT", "BUDGET", &shrink, &found.budgets, rows));
        } else {
            text.push_str("no budget alone was found that makes it proven\n");
        }
    }
    let sampled = |limits: &[OfTask]| limits.iter().any(|of| !mark(&of.limit).is_empty());
    if sampled(&found.wcets) || sampled(&found.periods) || sampled(&found.budgets) {
        text.push_str("\n(*) found by bisection and samples: no theorem says that all values between are proven too\n");
    }
    for why in &found.left_out {
        let _ = writeln!(text, "\nnot looked for: {why}");
    }
    if found.limit_reached {
        text.push_str("\nthe search stopped at its limit and did not look for the missing values\n");
    }
    text
}

fn of_named(of: &str, what: &str, to: &str, limits: &[OfTask], rows: Rows) -> String {
    let mut table = Table::new(&[of, what, to, "BY", ""]);
    for OfTask { task, limit } in limits {
        let Limit { now, until, .. } = *limit;
        let by = until.map(|until| Span::from_ns(until.abs_diff(now)));
        table.row(vec![
            task.clone(),
            Span::from_ns(now).to_string(),
            or_dash(until.map(Span::from_ns)),
            or_dash(by),
            mark(limit),
        ]);
    }
    let room = |row: usize, _: &[String]| {
        let limit = &limits[row].limit;
        limit.until.map_or(u64::MAX, |until| until.abs_diff(limit.now))
    };
    table.without_empty_columns().render_long(rows, &format!("{}s", of.to_lowercase()), room)
}

fn mark(limit: &Limit<Ns>) -> String {
    if limit.sustainable || limit.until.is_none() { String::new() } else { "*".to_owned() }
}

/// Parts per million as a factor.
fn factor(ppm: u64) -> String {
    format!("{}.{:06}", ppm / 1_000_000, ppm % 1_000_000)
}
