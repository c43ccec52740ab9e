//! One verb a file: each reads its input, calls the library, prints the answer.

mod admit;
mod chart;
mod check;
mod diff;
mod doctor;
mod export;
mod generate;
mod import;
mod infer;
mod lab;
mod man;
mod net;
mod observe;
mod report;
pub(crate) mod reproduce;
mod reserve;
mod run;
mod schema;
mod sim;
mod size;
mod stats;
mod study;
mod top;
mod verify;

use clap::CommandFactory as _;
use serde_json::json;

use crate::args::{Takt, Verb};
use crate::failure::{Failure, Outcome, Status};
use crate::output::{Target, print_json};

pub(crate) fn execute(takt: Takt) -> Outcome {
    let json = takt.json;
    keep_inputs(&takt.verb)?;
    match takt.verb {
        Verb::Check(options) => check::execute(&options, json),
        Verb::Verify(options) => verify::execute(&options, json),
        Verb::Admit(options) => admit::execute(&options, json),
        Verb::Size(options) => size::execute(&options, json),
        Verb::Gen(options) => generate::execute(&options, json),
        Verb::Study(options) => study::execute(&options, json),
        Verb::Sim(options) => sim::execute(&options, json),
        Verb::Run(options) => run::execute(&options, json),
        Verb::Doctor(options) => doctor::execute(&options, json),
        Verb::Infer(options) => infer::execute(&options, json),
        Verb::Observe(options) => observe::execute(&options, json),
        Verb::Reproduce(options) => reproduce::execute(&options, json),
        Verb::Reserve(options) => reserve::execute(&options, json),
        Verb::Net(options) => net::execute(&options, json),
        Verb::Lab(options) => lab::execute(&options, json),
        Verb::Stats(options) => stats::execute(&options, json),
        Verb::Top(options) => top::execute(&options, json),
        Verb::Diff(options) => diff::execute(&options, json),
        Verb::Chart(options) => chart::execute(&options, json),
        Verb::Report(options) => report::execute(&options, json),
        Verb::Export(options) => export::execute(&options, json),
        Verb::Import(options) => import::execute(&options, json),
        Verb::Schema(options) => schema::execute(&options, json),
        Verb::Completions(options) => {
            let mut script = Vec::new();
            clap_complete::generate(options.shell, &mut Takt::command(), "takt", &mut script);
            if json {
                let script = String::from_utf8_lossy(&script);
                print_json(&json!({ "shell": options.shell.to_string(), "script": script }))?;
            } else {
                Target::stdout().write(&script)?;
            }
            Ok(Status::Yes)
        }
        Verb::Man(options) => man::execute(&options, json),
    }
}

/// Refuses to overwrite an input: a log truncated while it is drawn, a system replaced by its log.
fn keep_inputs(verb: &Verb) -> Result<(), Failure> {
    let (output, inputs) = match verb {
        Verb::Check(options) => (options.certificate.as_ref(), vec![options.file.as_ref()]),
        Verb::Size(options) => (options.output.as_ref(), vec![options.log.as_ref()]),
        Verb::Sim(options) => (options.output.as_ref(), vec![Some(&options.file)]),
        Verb::Run(options) => (options.output.as_ref(), vec![Some(&options.file)]),
        Verb::Infer(options) => {
            (options.output.as_ref(), options.releases.iter().map(Some).chain([options.log.as_ref()]).collect())
        }
        Verb::Observe(options) => (options.output.as_ref(), vec![options.file.as_ref()]),
        Verb::Chart(options) => (Some(&options.output), vec![Some(&options.log)]),
        Verb::Report(options) => {
            (Some(&options.output), std::iter::once(&options.file).chain(&options.logs).map(Some).collect())
        }
        Verb::Export(options) => (Some(&options.output), vec![Some(&options.file)]),
        Verb::Import(options) => (Some(&options.output), vec![Some(&options.file)]),
        Verb::Doctor(options) => (options.save.as_ref(), vec![options.from.as_ref()]),
        _ => return Ok(()),
    };
    match output.filter(|output| inputs.into_iter().flatten().any(|input| output.is_file(input))) {
        Some(output) => Err(Failure::input(format_args!(
            "{} is to be read and would be overwritten; name another file",
            output.shown()
        ))),
        None => Ok(()),
    }
}
