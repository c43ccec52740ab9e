//! `takt report` of a log that carries no system: the log alone.

use serde_json::{Value, json};
use takt_model::Span;
use takt_report::{ReportInput, Source, findings, html};

use super::comparison::ResponseSummary;
use super::source;
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input::{self, Log};
use crate::numbers::{Caveat, numbers};
use crate::output::{note, print, print_json, quoted};
use crate::table::Rows;

pub(super) fn execute(options: &args::Report, log: &mut Log, json: bool) -> Outcome {
    let shown = input::shown(&options.file);
    if options.seed.is_some() || options.duration.is_some() {
        return Err(Failure::input(format_args!(
            "{shown} carries no system to simulate; leave out --for and --seed, or give the system file first"
        )));
    }
    let source = source(&options.file, log, &shown)?;
    let commands = commands(options);
    let page_input = ReportInput {
        title: &shown,
        measured: Some(&source),
        commands: &commands,
        maker: concat!("takt ", env!("CARGO_PKG_VERSION")),
        ..ReportInput::default()
    };
    options.output.write(html(&page_input).as_bytes())?;
    for finding in findings(&page_input) {
        note(format_args!("note: {finding}"));
    }
    if json {
        print_json(&answer(&source))?;
    } else if !options.output.is_stdout() {
        print(&format!(
            "{}\nno model: {shown} carries no system, so nothing is proven or simulated; takt infer makes one \
             of what was seen\n\nThe page is in {}.\n",
            numbers(&source.stats, Caveat::None, Rows::Most),
            options.output.0
        ))?;
    }
    Ok(Status::Yes)
}

/// How to get the page again, and one with a model.
fn commands(options: &args::Report) -> Vec<String> {
    let log = if options.file == "-" { "log.takt".to_owned() } else { quoted(&options.file) };
    vec![
        format!("takt report {log}{}", super::page_option(options)),
        "# with a model of what was seen:".to_owned(),
        format!("takt infer {log} -o system.toml"),
        format!("takt report system.toml {log}"),
    ]
}

/// The same keys as with a system; what would come of one is null.
fn answer(source: &Source) -> Value {
    let tasks: Vec<Value> = (source.stats.tasks.iter())
        .map(|task| {
            let deadline = task.deadline_ns.map(Span::from_ns);
            json!({
                "task": task.task,
                "deadline_ns": task.deadline_ns,
                "verdict": null,
                "bound_ns": null,
                "simulated": null,
                "measured": ResponseSummary::of_task(task).map(|seen| seen.json(deadline, None)),
            })
        })
        .collect();
    let chains: Vec<Value> = (source.stats.chains.iter())
        .map(|chain| {
            let measured = ResponseSummary::of_chain(chain).json(None, None);
            json!({ "chain": chain.chain, "bound_ns": null, "simulated": null, "measured": measured })
        })
        .collect();
    json!({
        "system": null,
        "schedulable": null,
        "back_end": source.back_end.name(),
        "tasks": tasks,
        "chains": chains,
    })
}
