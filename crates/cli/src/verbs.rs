//! One verb a file: each reads its input, calls the library, prints the answer.

mod chart;
mod check;
mod diff;
mod export;
mod import;
mod man;
mod report;
mod run;
mod schema;
mod sim;
mod stats;

use clap::CommandFactory as _;

use crate::args::{Takt, Verb};
use crate::failure::{Outcome, Status};
use crate::output::Target;

/// Does what the command line says.
pub(crate) fn execute(takt: Takt) -> Outcome {
    let json = takt.json;
    match takt.verb {
        Verb::Check(options) => check::execute(&options, json),
        Verb::Sim(options) => sim::execute(&options, json),
        Verb::Run(options) => run::execute(&options, json),
        Verb::Stats(options) => stats::execute(&options, json),
        Verb::Diff(options) => diff::execute(&options, json),
        Verb::Chart(options) => chart::execute(&options),
        Verb::Report(options) => report::execute(&options, json),
        Verb::Export(options) => export::execute(&options),
        Verb::Import(options) => import::execute(&options, json),
        Verb::Schema(options) => schema::execute(&options),
        Verb::Completions(options) => {
            let mut script = Vec::new();
            clap_complete::generate(options.shell, &mut Takt::command(), "takt", &mut script);
            Target::stdout().write(&script)?;
            Ok(Status::Yes)
        }
        Verb::Man(options) => man::execute(&options),
    }
}
