//! Withdraws verdicts and bounds that rest on unproven answers elsewhere.

use serde_json::{Value, json};
use takt_model::System;

use crate::carried::ChainBounds;
use crate::catalogue::TestId;
use crate::chains;
use crate::components::withdraw_share;
use crate::report::{TaskReport, TestReport};
use crate::scope::Unit;
use crate::verdict::{Answer, Verdict};

/// Reduces the verdicts for one of several strategies to a verdict under all of them.
///
/// Around a switch both strategies serve jobs, so neither bounds a response. The pattern that
/// refutes a strategy may never occur under it. Only refutations for all schedulers stay. Returns
/// the answer for the node.
pub(super) fn under_switches(tests: &mut [TestReport]) -> Answer {
    let mut answer = Answer::Unknown;
    for report in tests {
        withdraw_share(report);
        match &mut report.verdict {
            Verdict::Infeasible { .. } if report.test == TestId::Necessary => {
                answer = Answer::No;
                continue;
            }
            Verdict::Infeasible { witness } => {
                let why = format!("{witness} (if this strategy were in force then)");
                report.verdict = Verdict::NotProven { why };
            }
            Verdict::Schedulable { bounds } => bounds.clear(),
            Verdict::NotProven { why } if report.figures.contains_key("tardiness_ns") => {
                why.push_str(" (if this strategy were always in force)");
            }
            _ => {}
        }
        withdraw_figures(report);
        for task in &mut report.tasks {
            (task.wcrt, task.verdict) = (None, Answer::Unknown);
        }
    }
    answer
}

/// Withdraws the bounds among the figures.
pub(super) fn withdraw_figures(report: &mut TestReport) {
    if let Some(tardiness) = report.figures.get_mut("tardiness_ns") {
        *tardiness = Value::Null;
    }
    for server in report.figures.get_mut("servers").and_then(Value::as_array_mut).into_iter().flatten() {
        (server["wcrt_ns"], server["verdict"]) = (Value::Null, json!(Answer::Unknown));
    }
    for chain in report.figures.get_mut("chains").and_then(Value::as_array_mut).into_iter().flatten() {
        chain["bound_ns"] = Value::Null;
    }
}

/// If a test proves that no deadline is missed, cuts the bounds of the other tests at the deadlines and sets their
/// tardiness to 0.
pub(super) fn apply_proof(tests: &mut [TestReport]) {
    let Some(proof) = tests.iter().find(|test| test.verdict.answer() == Answer::Yes).map(|test| test.test) else {
        return;
    };
    for test in tests {
        for task in &mut test.tasks {
            task.wcrt = task.wcrt.map(|wcrt| wcrt.min(task.deadline));
        }
        if let (Verdict::NotProven { why }, Some(tardiness)) = (&mut test.verdict, test.figures.get_mut("tardiness_ns"))
        {
            *why = format!("does not show by itself that no deadline is missed, as {} does", proof.name());
            *tardiness = json!(0);
        }
    }
}

/// A verdict on a component assumes that its server gets its budgets. The level above must prove
/// that. Outer components stand before inner ones.
fn withdraw_servers(units: &[Unit], answers: &mut [Answer], reports: &mut [Vec<TestReport>]) {
    for (i, unit) in units.iter().enumerate() {
        if let Some(why) = &unit.no_verdict {
            withdraw_unit(&mut answers[i], &mut reports[i], why);
        }
        for server in unit.served.iter().flat_map(|served| &served.servers) {
            let Some(above) = units.iter().position(|unit| unit.tasks.iter().any(|task| task.id == *server)) else {
                continue;
            };
            let proven = |task: &TaskReport| task.id == *server && task.verdict == Answer::Yes;
            if answers[above] == Answer::Yes || reports[above].iter().flat_map(|report| &report.tasks).any(proven) {
                continue;
            }
            let why =
                format!("holds if its server gets its budgets, which is not proven in \"{}\"", units[above].scope);
            withdraw_unit(&mut answers[i], &mut reports[i], &why);
            break;
        }
    }
}

/// Withdraws everything that was proven of a unit.
pub(super) fn withdraw_unit(answer: &mut Answer, reports: &mut [TestReport], why: &str) {
    if *answer == Answer::Yes {
        *answer = Answer::Unknown;
    }
    for report in reports {
        withdraw_share(report);
        if report.verdict.answer() == Answer::Yes {
            report.verdict = Verdict::NotProven { why: why.to_owned() };
        }
        for task in &mut report.tasks {
            task.wcrt = None;
            task.verdict = task.verdict.and(Answer::Unknown);
        }
    }
}

/// Withdraws what rests on budgets, deadlines or releases that are not proven. One withdrawal may take
/// away the ground of another, so they go on until nothing changes.
pub(super) fn withdraw(
    system: &System,
    units: &[Unit],
    carried: &ChainBounds,
    answers: &mut [Answer],
    reports: &mut [Vec<TestReport>],
) {
    // Without servers and chains nothing rests on what others keep.
    if units.iter().all(|unit| unit.no_verdict.is_none() && unit.served.is_none())
        && system.tasks.iter().all(|task| task.after.is_empty())
    {
        return;
    }
    loop {
        let before = proven(answers, reports);
        withdraw_servers(units, answers, reports);
        withdraw_successors(system, units, answers, reports);
        let unproven = chains::unproven(system, units, answers, carried);
        let tasks = reports.iter_mut().flatten().flat_map(|report| &mut report.tasks);
        for task in tasks.filter(|task| unproven[task.id.index()]) {
            task.wcrt = None;
            task.verdict = task.verdict.and(Answer::Unknown);
        }
        if proven(answers, reports) == before {
            return;
        }
    }
}

/// The number of units and of tasks that are proven.
fn proven(answers: &[Answer], reports: &[Vec<TestReport>]) -> (usize, usize) {
    let tasks = reports.iter().flatten().flat_map(|report| &report.tasks);
    let count = |answer: Answer| usize::from(answer == Answer::Yes);
    (answers.iter().copied().map(count).sum(), tasks.map(|task| count(task.verdict)).sum())
}

/// Withdraws a yes that rests on deadlines of predecessors in other units, if one of these units is not proven.
fn withdraw_successors(system: &System, units: &[Unit], answers: &mut [Answer], reports: &mut [Vec<TestReport>]) {
    let home = |id| units.iter().position(|unit| unit.tasks.iter().any(|task| task.id == id));
    loop {
        let mut changed = false;
        for (i, unit) in units.iter().enumerate().filter(|(_, unit)| unit.tasks.iter().any(|task| task.chained)) {
            let before = unit.tasks.iter().flat_map(|task| &system.tasks[task.id.index()].after);
            let is_unproven = |other: &usize| *other != i && answers[*other] != Answer::Yes;
            let unproven = before.filter_map(|id| home(*id)).find(is_unproven);
            let Some(unproven) = unproven.filter(|_| answers[i] == Answer::Yes) else { continue };
            answers[i] = Answer::Unknown;
            changed = true;
            let why = format!("rests on predecessors in \"{}\", which is not proven", units[unproven].scope);
            for report in reports[i].iter_mut().filter(|report| report.verdict.answer() == Answer::Yes) {
                report.verdict = Verdict::NotProven { why: why.clone() };
            }
        }
        if !changed {
            return;
        }
    }
}
