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
mod size;
mod stats;

use clap::CommandFactory as _;

use crate::args::{Takt, Verb};
use crate::failure::{Failure, Outcome, Status};
use crate::output::Target;

/// Does what the command line says.
pub(crate) fn execute(takt: Takt) -> Outcome {
    let json = takt.json;
    if json {
        answers_in_json(&takt.verb)?;
    }
    match takt.verb {
        Verb::Check(options) => check::execute(&options, json),
        Verb::Size(options) => size::execute(&options, json),
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

/// Refuses `--json` where there is no answer to print, rather than print something else.
fn answers_in_json(verb: &Verb) -> Result<(), Failure> {
    let (name, instead) = match verb {
        Verb::Chart(_) => ("chart", "\"takt stats LOG --json\" has the numbers"),
        Verb::Export(_) => ("export", "\"takt stats LOG --json\" has the numbers, and --format csv a line per job"),
        Verb::Completions(_) => ("completions", "it prints a script of the shell"),
        Verb::Man(_) => ("man", "it prints a manual page"),
        _ => return Ok(()),
    };
    Err(Failure::input(format_args!("{name} has no answer in JSON; {instead}")))
}
