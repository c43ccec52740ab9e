//! Experiments of papers, repeated on this machine. `takt reproduce` runs them.
//!
//! An [`Experiment`] is a value. It names the paper, the needs, the duration and the function that
//! measures. The function gets a `Context` and returns [`Findings`]: tables of the paper's values
//! beside the measured ones, claims, pictures, and differences from the paper. This crate makes the
//! folder, the page, the charts, the CSV and the JSON of these; the command prints. A new
//! experiment is a file below and a row in [`EXPERIMENTS`].

mod context;
mod csa;
mod failure;
mod findings;
mod guest_script;
mod hedf;
mod host;
mod kokyu;
mod law;
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

pub use context::Options;
pub use failure::{Failure, Status};
pub use findings::{Claim, Comparison, Findings};
pub use host::{Host, LAB_LOG, LabMachine, LabOutput, LabRequest, LabRuns, Logs, Recorder, Request};
pub use law::law;
pub use sdd_tradeoff::{Play, play};

use context::Context;

/// An experiment of a paper.
pub struct Experiment {
    /// The verb's argument.
    pub name: &'static str,
    /// The paper.
    pub paper: &'static Paper,
    /// The tables and figures of the paper that it repeats.
    pub shows: &'static str,
    /// A sentence for the page and the list.
    pub what: &'static str,
    /// Privileges and features.
    pub needs: &'static str,
    /// About how long it takes: the usual length, and the length with `--short`.
    pub takes: (Span, Span),
    /// The longest `--for`.
    longest: Span,
    /// Whether it accepts `--repeat`.
    repeats: bool,
    /// Whether all of it runs in virtual time. Then the machine does not matter.
    simulated: bool,
    /// Its form under `--live`.
    pub live: Option<LiveForm>,
    /// Its form under `--lab`.
    pub lab: Option<LiveForm>,
    run: fn(&Context) -> Result<Findings, Failure>,
}

impl Experiment {
    const fn in_virtual_time(
        paper: &'static Paper,
        name: &'static str,
        shows: &'static str,
        what: &'static str,
        takes: (Span, Span),
        run: fn(&Context) -> Result<Findings, Failure>,
    ) -> Self {
        Experiment {
            name,
            paper,
            shows,
            what,
            needs: "nothing: it is simulated",
            takes,
            longest: Span::from_s(3600),
            repeats: false,
            simulated: true,
            live: None,
            lab: None,
            run,
        }
    }

    const fn or(self, live: LiveForm) -> Self {
        Experiment { live: Some(live), ..self }
    }

    /// The other form that the options ask for.
    fn form(&self, options: &Options) -> Option<LiveForm> {
        if options.live { self.live } else { self.lab.filter(|_| options.lab.is_some()) }
    }
}

/// Another form of an experiment: on this kernel, or on a kernel of the lab.
#[derive(Clone, Copy)]
pub struct LiveForm {
    /// Privileges and features.
    pub needs: &'static str,
    /// About how long it takes: the usual length, and the length with `--short`.
    pub takes: (Span, Span),
    /// The longest `--for`.
    longest: Span,
    run: fn(&Context) -> Result<Findings, Failure>,
}

/// The source of an experiment.
pub struct Paper {
    /// As the documents cite it.
    pub key: &'static str,
    /// Authors and title.
    pub title: &'static str,
}

/// In the order of the list.
pub const PAPERS: [&Paper; 4] = [&SDD, &KOKYU, &CSA, &HEDF];

const SDD: Paper = Paper {
    key: "[SDD]",
    title: "Manica, Abeni, Palopoli, Faggioli, Scordino: Schedulable Device Drivers: Implementation and \
        Experimental Results",
};

const CSA: Paper = Paper {
    key: "[CSA]",
    title: "Lee, Xi, Chen, Phan, Gill, Lee, Lu, Sokolsky: Realizing Compositional Scheduling through Virtualization",
};

const HEDF: Paper = Paper {
    key: "[HEDF]",
    title: "Qian, Mueller, Xin: Hybrid EDF Packet Scheduling for Real-Time Distributed Systems",
};

const KOKYU: Paper = Paper {
    key: "[KOKYU]",
    title: "Gill, Cytron, Schmidt: Multiparadigm Scheduling for Distributed Real-Time Embedded Computing",
};

/// In the order of the list.
pub const EXPERIMENTS: [&Experiment; 19] = [
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
    &csa::OPEN,
    &hedf::KI,
    &hedf::FIG4,
    &hedf::FIG5,
    &hedf::FIG6,
    &hedf::PREDICTABILITY,
    &hedf::SWITCHES,
];

/// Their names, for the command line.
pub const NAMES: [&str; EXPERIMENTS.len()] = {
    let mut names = [""; EXPERIMENTS.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = EXPERIMENTS[i].name;
        i += 1;
    }
    names
};

/// The outcome of an experiment.
pub struct Report {
    /// The experiment that ran.
    pub experiment: &'static Experiment,
    /// The results.
    pub findings: Findings,
    /// The folder, as the user gave it.
    pub folder: String,
    /// The files in it.
    pub files: Vec<String>,
    /// All results as JSON.
    pub json: serde_json::Value,
}

/// Runs an experiment and writes its folder.
///
/// # Errors
///
/// Wrong options, a machine or a user that cannot run it, or files that cannot be written.
pub fn run(options: &Options, host: Host) -> Result<Report, Failure> {
    let wanted = options.name.as_str();
    let Some(experiment) = EXPERIMENTS.iter().find(|experiment| experiment.name == wanted) else {
        return Err(Failure::input(format_args!("no experiment is called \"{wanted}\"; takt reproduce --list")));
    };
    let context = Context::new(experiment, options, host)?;
    let run = experiment.form(options).map_or(experiment.run, |form| form.run);
    let mut findings = run(&context).inspect_err(|_| context.remove_empty_folder())?;
    context.add_closing_notes(&mut findings);
    let files = write::files(experiment, &context, &findings)?;
    let json = write::answer(experiment, &context, &findings, &files);
    Ok(Report { experiment, findings, folder: context.shown().to_owned(), files, json })
}
