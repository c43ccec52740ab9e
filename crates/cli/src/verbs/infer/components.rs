//! The components of an inferred system: table, JSON and notes.

use serde_json::{Value, json};
use takt_model::file::one_line;
use takt_trace::infer::{Inferred, InferredComponent, PeriodSource, Written};

use super::ns;
use crate::table::{Rows, Table, time};

/// The most names in a note.
const NAMES_MAX: usize = 3;

/// The components as JSON.
pub(super) fn entries(inferred: &Inferred) -> Value {
    let name = |at: usize| inferred.components.get(at).map(|component| component.name.as_str());
    let all = inferred.components.iter().enumerate().map(|(at, component)| {
        let period = component.period;
        let range = period.and_then(|period| period.range);
        json!({
            "component": component.name,
            "node": inferred.nodes.get(component.node.index()).map(|node| &node.name),
            "parent": component.parent.and_then(name),
            "rule": component.rule.map(takt_model::ServerRule::name),
            "period_ns": ns(period.map(|period| period.span)),
            "period_from": period.map(|period| period.source.name()),
            "period_min_ns": ns(range.map(|(least, _)| least)),
            "period_max_ns": ns(range.map(|(_, most)| most)),
            "budget_ns": ns(component.budget),
            "cpus": component.cpus,
            "budgets": component.budgets,
            "exhaustions": component.exhaustions,
            "paid_max_ns": component.paid_most.as_ns(),
            "changes": component.changes,
            "tasks": tasks(inferred, at),
        })
    });
    all.collect()
}

/// The table of components; nothing without any.
pub(super) fn describe(inferred: &Inferred) -> String {
    let head = ["COMPONENT", "NODE", "IN", "RULE", "PERIOD", "BUDGET", "BUDGETS", "RAN OUT", "TASKS"];
    let mut table = Table::new(&head);
    let plain = |name: &str| one_line(name).into_owned();
    for (at, component) in inferred.components.iter().enumerate() {
        let outer = component.parent.and_then(|outer| inferred.components.get(outer));
        let period = component.period.map_or("-".to_owned(), |period| {
            let sign = if period.source == PeriodSource::AtMost { "<= " } else { "" };
            format!("{sign}{}", time(period.span))
        });
        let names: Vec<String> = tasks(inferred, at).into_iter().map(plain).collect();
        table.row(vec![
            plain(&component.name),
            inferred.nodes.get(component.node.index()).map_or_else(String::new, |node| plain(&node.name)),
            outer.map_or("-".to_owned(), |outer| plain(&outer.name)),
            component.rule.map_or("-", takt_model::ServerRule::name).to_owned(),
            period,
            component.budget.map_or("-".to_owned(), time),
            component.budgets.to_string(),
            component.exhaustions.to_string(),
            names.join(", "),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    format!("\n{}", table.without_empty_columns().render_long(Rows::Most, "components", |_, _| 0))
}

/// The tasks that stand in a component itself.
fn tasks(inferred: &Inferred, at: usize) -> Vec<&str> {
    let within = inferred.tasks.iter().filter(|task| task.component == Some(at));
    within.map(|task| task.name.as_str()).collect()
}

/// What a written system does not say of its components.
pub(super) fn notes(inferred: &Inferred, written: &Written) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, why) in &written.components_left_out {
        notes.push(format!("warning: component \"{}\" is left out: {why}", one_line(name)));
    }
    if written.system.components.is_empty() {
        return notes;
    }
    notes.push(
        "note: how components order their tasks is not inferred, and edf is written; \"takt check LOG\" has the \
         system as it ran"
            .to_owned(),
    );
    let mut say = |names: Vec<&str>, what: &str| {
        if !names.is_empty() {
            notes.push(format!("note: {}: {what}", list(&names)));
        }
    };
    let unsized_ones = |component: &&InferredComponent| component.budget.is_none() || component.period.is_none();
    say(
        names(inferred.components.iter().filter(unsized_ones)),
        "the log does not tell period or budget, so \"auto\" is written; \"takt size\" chooses it",
    );
    let at_most =
        |component: &&InferredComponent| component.period.is_some_and(|period| period.source == PeriodSource::AtMost);
    say(
        names(inferred.components.iter().filter(at_most)),
        "the log bounds the period only from above, and this bound is written",
    );
    let parents: Vec<usize> = inferred.components.iter().filter_map(|component| component.parent).collect();
    let is_empty = |at: usize| !parents.contains(&at) && tasks(inferred, at).is_empty();
    let empty = inferred.components.iter().enumerate().filter(|(at, _)| is_empty(*at)).map(|(_, one)| one);
    say(names(empty), "no task was seen to run while the component paid, so none stands in it");
    let unsure = inferred.tasks.iter().filter(|task| !task.maybe_in.is_empty()).map(|task| task.name.as_str());
    say(unsure.collect(), "payments on several CPUs do not tell the component, so the task stands in none");
    notes
}

fn names<'a>(components: impl Iterator<Item = &'a InferredComponent>) -> Vec<&'a str> {
    components.map(|component| component.name.as_str()).collect()
}

fn list(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(NAMES_MAX).map(|name| format!("\"{}\"", one_line(name))).collect();
    let more = if names.len() > NAMES_MAX { format!(" and {} more", names.len() - NAMES_MAX) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}
