//! `takt reproduce`: asks for an experiment of takt-experiments and prints what it found.

use takt_experiments::{
    EXPERIMENTS, Host, LabMachine, LabOutput, LabRequest, LabRuns, LiveForm, Logs, Options, PAPERS, Recorder, Report,
    Request, run,
};
use takt_log::stats::Stats;

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{Target, print, print_json};
use crate::progress;
use crate::table::Table;
use crate::verbs::observe::beside::Beside;

const HOST: Host = Host { record, lab, lab_runs, bar: progress::bar };

pub(crate) fn execute(options: &args::Reproduce, json: bool) -> Outcome {
    if options.list {
        return list(json);
    }
    let options = Options {
        name: options.name.clone().unwrap_or_default(),
        out: options.out.clone(),
        duration: options.duration,
        repeat: options.repeat,
        short: options.short,
        live: options.live,
        lab: options.lab.then(|| LabMachine {
            kernel: options.guest.kernel.clone(),
            cache: options.guest.cache.clone(),
            binary: options.guest.binary.clone(),
        }),
        seed: options.seed,
    };
    let report = run(&options, HOST).map_err(failed)?;
    if json {
        print_json(&report.json)?;
    } else {
        print(&screen(&report))?;
    }
    Ok(if report.findings.holds() == Some(true) { Status::Yes } else { Status::No })
}

pub(super) fn failed(failure: takt_experiments::Failure) -> Failure {
    match failure.status {
        takt_experiments::Status::Input => Failure::input(failure.message),
        takt_experiments::Status::Cannot => Failure::cannot(failure.message),
        takt_experiments::Status::Trouble => Failure::trouble(failure.message),
    }
}

/// A failure of the recorder, in an experiment's form: without the name of the command.
fn refused(failure: &Failure) -> takt_experiments::Failure {
    let status = match failure.status {
        Status::Input => takt_experiments::Status::Input,
        Status::Cannot => takt_experiments::Status::Cannot,
        Status::Yes | Status::No | Status::Trouble => takt_experiments::Status::Trouble,
    };
    let message = failure.message.strip_prefix("takt: ").unwrap_or(&failure.message).to_owned();
    takt_experiments::Failure { status, message }
}

fn record(request: Request) -> Result<Box<dyn Recorder>, takt_experiments::Failure> {
    let mut options = args::Observe { suspensions: request.suspensions, ..args::Observe::everything() };
    options.pid = request.pids;
    options.output = Some(Target(request.output));
    let beside = Beside::start(options, None).map_err(|failure| refused(&failure))?;
    Ok(Box::new(Recording(beside)))
}

fn lab_runs(machine: &LabMachine, runs: &LabRuns) -> Result<Logs, takt_experiments::Failure> {
    crate::verbs::lab::runs(machine, runs).map_err(|failure| refused(&failure))
}

fn lab(machine: &LabMachine, request: &LabRequest) -> Result<LabOutput, takt_experiments::Failure> {
    crate::verbs::lab::script(machine, request).map_err(|failure| refused(&failure))
}

/// The kernel recorded by `takt observe`'s machinery.
struct Recording(Beside);

impl Recorder for Recording {
    fn finish(self: Box<Self>) -> Result<(Stats, Vec<String>), takt_experiments::Failure> {
        let (stats, recording) = self.0.finish().map_err(|failure| refused(&failure))?;
        Ok((stats, recording.defects()))
    }
}

fn screen(report: &Report) -> String {
    let Report { experiment, findings, folder, files, .. } = report;
    let mut text = format!("{} {}: {}\n", experiment.paper.key, experiment.shows, experiment.what);
    for table in &findings.tables {
        let (heads, rows) = table.lines();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut shown = Table::new(&heads);
        rows.into_iter().for_each(|row| shown.row(row));
        text.push_str(&format!("\n{} ({}; {})\n{}", table.title, table.cite, table.unit, shown.render("")));
    }
    text.push_str("\nClaims of the paper\n");
    for claim in &findings.claims {
        let word = match claim.holds {
            Some(true) => "holds",
            Some(false) => "DOES NOT HOLD",
            None => "NOT DECIDED",
        };
        text.push_str(&format!("  {word}: {}\n    {}\n", claim.claim, claim.found));
    }
    for (title, sentences) in [("Differences, and why", &findings.differences), ("Of this run", &findings.notes)] {
        if !sentences.is_empty() {
            text.push_str(&format!("\n{title}\n"));
            sentences.iter().for_each(|sentence| text.push_str(&format!("  - {sentence}\n")));
        }
    }
    text.push_str(&format!("\nWritten into {}: {}\n", folder, files.join(", ")));
    text
}

fn list(json: bool) -> Outcome {
    if json {
        let all: Vec<serde_json::Value> = EXPERIMENTS
            .iter()
            .map(|experiment| {
                let form = |form: LiveForm| {
                    serde_json::json!({
                        "needs": form.needs,
                        "takes_ns": form.takes.0.as_ns(),
                        "takes_short_ns": form.takes.1.as_ns(),
                    })
                };
                serde_json::json!({
                    "name": experiment.name,
                    "paper": experiment.paper.title,
                    "shows": experiment.shows,
                    "what": experiment.what,
                    "needs": experiment.needs,
                    "takes_ns": experiment.takes.0.as_ns(),
                    "takes_short_ns": experiment.takes.1.as_ns(),
                    "live": experiment.live.map(form),
                    "lab": experiment.lab.map(form),
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
        for (option, form) in [("--live", experiment.live), ("--lab", experiment.lab)] {
            let Some(LiveForm { needs, takes: (usual, short), .. }) = form else { continue };
            let name = experiment.name;
            text.push_str(&format!("{name} {option} needs {needs}. It takes {usual}, with --short {short}.\n"));
        }
    }
    for paper in PAPERS {
        text.push_str(&format!("\n{} {}", paper.key, paper.title));
    }
    text.push('\n');
    print(&text)?;
    Ok(Status::Yes)
}
