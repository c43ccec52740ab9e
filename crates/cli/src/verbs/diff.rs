//! `takt diff`: two logs job by job.

use std::fmt::Write as _;

use takt_log::diff::{Diff, DiffError, DiffOptions, Difference, MessageDiff, ServerDiff, diff};
use takt_model::Span;

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::output::{note, print, print_json};
use crate::table::{Rows, Table, or_dash};

pub(crate) fn execute(options: &args::Diff, json: bool) -> Outcome {
    if options.left == "-" && options.right == "-" {
        return Err(Failure::input("only one of the two logs can come from standard input"));
    }
    let mut left = input::log(&options.left)?;
    let mut right = input::log(&options.right)?;
    let settings = DiffOptions { tolerance: options.tolerance };
    let found = diff(&mut left, &mut right, &settings).map_err(|error| match &error {
        DiffError::Left(cause) => input::log_failure(&options.left, cause),
        DiffError::Right(cause) => input::log_failure(&options.right, cause),
        DiffError::Waiting => Failure::trouble(error),
    })?;
    input::warn_of_damage(&options.left, &left.damage());
    input::warn_of_damage(&options.right, &right.damage());
    let live = [&left, &right].into_iter().any(|log| log.header().back_end.is_live());
    if live && needs_tolerance(&found) {
        note(
            "note: times of a live log differ from run to run; \"--tolerance 200us\", for example, compares \
             what differs by more",
        );
    }
    if json {
        print_json(&found)?;
    } else {
        print(&describe(&found))?;
    }
    Ok(if found.same { Status::Yes } else { Status::No })
}

/// Whether nothing was tolerated, and most jobs differ.
fn needs_tolerance(found: &Diff) -> bool {
    found.tolerance_ns == 0 && found.total.differing * 2 > found.total.matched
}

fn describe(found: &Diff) -> String {
    let tolerance = match found.tolerance_ns {
        0 => String::new(),
        ns => format!(" (within {})", Span::from_ns(ns)),
    };
    let mut text = if found.same {
        format!("no difference in {} jobs{tolerance}\n", found.total.matched)
    } else {
        let total = &found.total;
        let budgets = found.servers.iter().filter(|server| !server.is_same()).count();
        let mut more = if budgets == 0 { String::new() } else { format!("; budgets of {budgets} servers differ") };
        let senders = found.messages.iter().filter(|messages| !messages.is_same()).count();
        if senders > 0 {
            let _ = write!(more, "; messages of {senders} {} differ", if senders == 1 { "task" } else { "tasks" });
        }
        format!(
            "{} of {} jobs differ{tolerance}; {} only in the first log, {} only in the second{more}\n",
            total.differing, total.matched, total.only_left, total.only_right
        )
    };
    if found.left_end_ns != found.right_end_ns {
        let (left, right) = (Span::from_ns(found.left_end_ns), Span::from_ns(found.right_end_ns));
        let _ = writeln!(text, "the first log ends at {left}, the second at {right}");
    }
    if !found.not_compared.is_empty() {
        let _ = writeln!(text, "not compared, since not both logs record it: {}", found.not_compared.join(", "));
    }
    if found.same {
        return text;
    }
    let heads = "task|jobs|differ|release|start|completion|response|outcome|responses differ by";
    let mut tasks = Table::headed(heads);
    for task in &found.tasks {
        let counts = &task.counts;
        let mut row = vec![task.task.clone(), counts.matched.to_string(), counts.differing.to_string()];
        let differ = [counts.release, counts.start, counts.completion, counts.response, counts.outcome];
        row.extend(differ.iter().map(u64::to_string));
        row.push(Span::from_ns(counts.response_difference_max_ns).to_string());
        tasks.row(row);
    }
    let rank = |row: usize, _: &[String]| std::cmp::Reverse(found.tasks[row].counts.differing);
    let _ = write!(text, "\n{}", tasks.render_long(Rows::Most, "tasks", rank));
    if !found.servers.iter().all(ServerDiff::is_same) {
        let _ = write!(text, "\n{}", servers(found));
    }
    if !found.messages.iter().all(MessageDiff::is_same) {
        let _ = write!(text, "\n{}", messages(found));
    }
    if !found.first.is_empty() {
        let mut first = Table::new(&["the first differences", "what", "first log", "second log"]);
        for difference in &found.first {
            first.row(vec![
                format!("{} #{}", difference.task, difference.job),
                difference.what.to_owned(),
                side(difference, difference.left_ns, difference.left),
                side(difference, difference.right_ns, difference.right),
            ]);
        }
        let _ = write!(text, "\n{}", first.render(""));
    }
    text
}

fn servers(found: &Diff) -> String {
    let heads = "server|budget events|replenished differ|used up differ|idle differ|paid differ|only first|\
                 only second|differ by";
    let mut table = Table::headed(heads);
    for server in &found.servers {
        let ServerDiff { matched, replenish, exhaust, idle, charge, only_left, only_right, .. } = server;
        let counts = [matched, replenish, exhaust, idle, charge, only_left, only_right].map(u64::to_string);
        let row = [server.server.clone()].into_iter().chain(counts);
        table.row(row.chain([Span::from_ns(server.difference_max_ns).to_string()]).collect());
    }
    table.render_long(Rows::Most, "servers", |_, _| 0)
}

fn messages(found: &Diff) -> String {
    let head = ["messages of", "events", "sent differ", "arrived differ", "received differ", "dropped differ"];
    let mut table = Table::new(&[&head[..], &["only first", "only second", "differ by"]].concat());
    for of in &found.messages {
        let counts = [of.matched, of.send, of.arrive, of.receive, of.drop, of.only_left, of.only_right];
        let row = [of.task.clone()].into_iter().chain(counts.map(|count| count.to_string()));
        table.row(row.chain([Span::from_ns(of.difference_max_ns).to_string()]).collect());
    }
    table.render_long(Rows::Most, "tasks", |_, _| 0)
}

fn side(difference: &Difference, ns: Option<u64>, outcome: Option<&str>) -> String {
    if difference.what == "outcome" { or_dash(outcome) } else { or_dash(ns.map(Span::from_ns)) }
}

#[cfg(test)]
mod tests {
    use takt_log::diff::Counts;

    use super::*;

    #[test]
    fn a_tolerance_is_missed_where_most_jobs_differ_without_one() {
        let asks = |tolerance_ns, matched, differing| {
            let total = Counts { matched, differing, ..Counts::default() };
            needs_tolerance(&Diff { same: differing == 0, tolerance_ns, total, ..Diff::default() })
        };
        assert!(asks(0, 10, 10) && asks(0, 10, 6));
        assert!(!asks(0, 10, 1) && !asks(0, 10, 0) && !asks(1, 10, 10));
    }
}
