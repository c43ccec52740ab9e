//! `takt reproduce`: experiments of papers, repeated on this machine.
//!
//! An [`Experiment`] is a value: what of which paper, what it needs, how long it takes, and the function that measures. It gets a
//! [`Context`] and returns [`Findings`]: tables of the paper's values beside those measured, claims, pictures, and what differs here. All the rest
//! (folder, page, CSV, terminal, JSON, exit status) is made of these, here. A new experiment is a file below and a row in [`EXPERIMENTS`] and [`NAMES`].

mod context;
mod csa;
mod findings;
mod kokyu;
mod loads;
mod machine;
mod players;
mod recording;
mod sdd_fig4;
mod sdd_fig5;
mod sdd_packets;
mod sdd_table1;
mod sdd_throughput;
mod sdd_tradeoff;
mod traffic;
mod write;

use takt_model::Span;

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{print, print_json};
use crate::table::Table;
use context::Context;
use findings::Findings;

/// An experiment of a paper.
pub(super) struct Experiment {
    /// The verb's argument.
    name: &'static str,
    paper: &'static Paper,
    /// Which of its tables and figures.
    shows: &'static str,
    /// In a sentence, for the page and the list.
    what: &'static str,
    /// Privileges and features.
    needs: &'static str,
    /// How long it takes about, as usual and with --short.
    takes: (Span, Span),
    /// The longest `--for`.
    longest: Span,
    /// Whether it knows `--repeat`.
    repeats: bool,
    /// Whether all of it runs in virtual time, so that the machine does not matter.
    simulated: bool,
    run: fn(&Context) -> Result<Findings, Failure>,
}

/// Where an experiment is from.
pub(super) struct Paper {
    /// As the documents cite it.
    key: &'static str,
    title: &'static str,
}

const SDD: Paper = Paper {
    key: "[SDD]",
    title: "Manica, Abeni, Palopoli, Faggioli, Scordino: Schedulable Device Drivers: Implementation and Experimental Results",
};

const CSA: Paper = Paper {
    key: "[CSA]",
    title: "Lee, Xi, Chen, Phan, Gill, Lee, Lu, Sokolsky: Realizing Compositional Scheduling through Virtualization",
};

const KOKYU: Paper = Paper {
    key: "[KOKYU]",
    title: "Gill, Cytron, Schmidt: Multiparadigm Scheduling for Distributed Real-Time Embedded Computing",
};

/// In the order of the list.
const EXPERIMENTS: [&Experiment; NAMES.len()] = [
    &sdd_table1::EXPERIMENT,
    &sdd_packets::EXPERIMENT,
    &sdd_fig4::EXPERIMENT,
    &sdd_fig5::EXPERIMENT,
    &sdd_throughput::EXPERIMENT,
    &sdd_tradeoff::EXPERIMENT,
    &kokyu::EXPERIMENT,
    &csa::FIG4,
    &csa::FIG5,
    &csa::FIG6,
    &csa::FIG7,
    &csa::TABLES,
];

/// Their names, for the command line.
pub(crate) const NAMES: [&str; 12] = [
    "sdd-table1",
    "sdd-packets",
    "sdd-fig4",
    "sdd-fig5",
    "sdd-throughput",
    "sdd-tradeoff",
    "kokyu",
    "csa-fig4",
    "csa-fig5",
    "csa-fig6",
    "csa-fig7",
    "csa-tables",
];

pub(crate) fn execute(options: &args::Reproduce, json: bool) -> Outcome {
    if options.list {
        return list(json);
    }
    let wanted = options.name.as_deref().unwrap_or_default();
    let Some(experiment) = EXPERIMENTS.iter().find(|experiment| experiment.name == wanted) else {
        return Err(Failure::input(format_args!("no experiment is called \"{wanted}\"; takt reproduce --list")));
    };
    let context = Context::new(experiment, options)?;
    let mut findings = (experiment.run)(&context).inspect_err(|_| context.forsake())?;
    context.conclude(&mut findings);
    let written = write::files(experiment, &context, &findings)?;
    if json {
        print_json(&write::answer(experiment, &context, &findings, &written))?;
    } else {
        print(&write::screen(experiment, &context, &findings, &written))?;
    }
    Ok(if findings.holds() == Some(true) { Status::Yes } else { Status::No })
}

fn list(json: bool) -> Outcome {
    if json {
        let all: Vec<serde_json::Value> = EXPERIMENTS
            .iter()
            .map(|experiment| {
                serde_json::json!({
                    "name": experiment.name,
                    "paper": experiment.paper.title,
                    "shows": experiment.shows,
                    "what": experiment.what,
                    "needs": experiment.needs,
                    "takes_ns": experiment.takes.0.as_ns(),
                    "takes_short_ns": experiment.takes.1.as_ns(),
                })
            })
            .collect();
        print_json(&serde_json::json!({ "experiments": all }))?;
        return Ok(Status::Yes);
    }
    let mut table = Table::new(&["experiment", "of", "takes", "--short", "what"]);
    for experiment in EXPERIMENTS {
        table.row(vec![
            experiment.name.to_owned(),
            format!("{} {}", experiment.paper.key, experiment.shows),
            experiment.takes.0.to_string(),
            experiment.takes.1.to_string(),
            experiment.what.to_owned(),
        ]);
    }
    let mut text = table.render("");
    text.push('\n');
    for experiment in EXPERIMENTS {
        text.push_str(&format!("{} needs {}.\n", experiment.name, experiment.needs));
    }
    for paper in [SDD, KOKYU, CSA] {
        text.push_str(&format!("\n{} {}", paper.key, paper.title));
    }
    text.push('\n');
    print(&text)?;
    Ok(Status::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_experiments() {
        assert_eq!(EXPERIMENTS.map(|experiment| experiment.name), NAMES);
    }
}
