//! `takt doctor`: what spoils real time on this machine.

mod measured;

use std::fmt::Write as _;

use serde_json::{Value, json};
use takt_linux::doctor::probe::{Probe, ProbeError, ProbeOptions, probe};
use takt_linux::doctor::{self, CATALOGUE, Finding, PROBED, Snapshot, State};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::output::{Target, only_one, print, print_json};
use crate::progress;
use crate::table::Table;

const PAGE: &str = "docs/reference/verbs/doctor.md";

pub(crate) fn execute(options: &args::Doctor, json: bool) -> Outcome {
    let machine = match &options.from {
        Some(file) => read(file)?,
        None => doctor::look(),
    };
    let Some(kernel) = machine.line("/proc/sys/kernel/osrelease").map(str::to_owned) else {
        return Err(Failure::cannot(
            "the kernel does not tell its release: /proc/sys/kernel/osrelease cannot be read; mount /proc",
        ));
    };
    if let Some(target) = &options.save {
        if json && target.is_stdout() {
            return Err(Failure::input("--json and the snapshot both want standard output; give --save FILE"));
        }
        target.write(machine.to_string().as_bytes())?;
        if target.is_stdout() {
            return Ok(Status::Yes);
        }
    }
    let to_stdout = options.output.as_ref().is_some_and(Target::is_stdout);
    only_one(json, to_stdout, "system")?;
    if options.duration.is_zero() {
        return Err(Failure::input("--for is zero; give a duration like 1s"));
    }
    let mut findings = doctor::findings(&machine);
    let probed = (!options.quick && options.from.is_none()).then(|| measure(options));
    if let Some(probed) = &probed {
        findings.extend(doctor::measured(probed.as_ref()));
    }
    if let Some(Err(error)) = probed.as_ref().filter(|_| options.output.is_some()) {
        return Err(Failure::cannot(format_args!("nothing could be measured: {error}")));
    }
    let probed = probed.as_ref().and_then(|probed| probed.as_ref().ok());
    if json {
        print_json(&as_json(&kernel, &findings, probed.map(|probe| measured::as_json(probe, options.charge))))?;
    } else if !to_stdout {
        print(&rendered(options, &kernel, &findings, probed))?;
    }
    if let Some(probe) = probed {
        measured::write(options, &kernel, probe)?;
    }
    Ok(if findings.iter().any(|finding| finding.state.spoils()) { Status::No } else { Status::Yes })
}

fn measure(options: &args::Doctor) -> Result<Probe, ProbeError> {
    let bar = progress::bar("measuring", 1);
    // Without the privilege, touched pages must suffice.
    let _locked = takt_linux::memory::lock();
    let probed = probe(&ProbeOptions { duration: options.duration, working_set: options.wss });
    bar.finish_and_clear();
    probed
}

fn read(file: &str) -> Result<Snapshot, Failure> {
    let text = input::text(file, "machine's")?;
    Snapshot::parse(&text).map_err(|error| Failure::located(format_args!("{}: {error}", input::shown(file))))
}

fn rendered(options: &args::Doctor, kernel: &str, findings: &[Finding], probe: Option<&Probe>) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.state);
    if options.all || !options.explain.is_empty() {
        let wanted = |finding: &&&Finding| options.all || options.explain.iter().any(|name| name == finding.name);
        let mut parts: Vec<String> = Vec::new();
        for finding in sorted.iter().filter(wanted) {
            let shown = probe.filter(|_| finding.name == "timer-latency").map(measured::histogram);
            parts.push(explained(finding) + &shown.unwrap_or_default());
        }
        return parts.join("\n");
    }
    let mut text = format!("Linux {kernel}: {}\n", counted(findings));
    let mut table = Table::new(&["STATE", "FINDING", "FOUND"]);
    for finding in sorted.iter().filter(|finding| finding.state.spoils()) {
        table.row(vec![finding.state.name().to_owned(), finding.name.to_owned(), finding.found.clone()]);
    }
    if !table.is_empty() {
        let _ = write!(text, "\n{}", table.render(""));
    }
    for state in [State::Ok, State::Absent] {
        let names: Vec<&str> =
            sorted.iter().filter(|finding| finding.state == state).map(|finding| finding.name).collect();
        if !names.is_empty() {
            let _ = write!(text, "\n{}: {}\n", state.name(), names.join(", "));
        }
    }
    if let Some(probe) = probe {
        text.push_str(&measured::rendered(probe, options.charge));
    }
    if let Some(first) = sorted.first().filter(|first| first.state.spoils()) {
        let _ = write!(
            text,
            "\n\"takt doctor --explain {}\" shows its cost and its remedies, \"takt doctor --all\" those of all \
             findings.\n",
            first.name
        );
    }
    text
}

fn counted(findings: &[Finding]) -> String {
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let many = |n: usize, one: &str, several: &str| format!("{n} {}", if n == 1 { one } else { several });
    let mut parts =
        vec![many(count(State::Problem), "problem", "problems"), many(count(State::Warning), "warning", "warnings")];
    if count(State::Unknown) > 0 {
        parts.push(many(count(State::Unknown), "unknown", "unknown"));
    }
    parts.join(", ")
}

fn explained(finding: &Finding) -> String {
    let known = CATALOGUE.iter().map(|entry| (entry.name, entry.about)).chain(PROBED.iter().copied());
    let about = known.into_iter().find(|(name, _)| *name == finding.name).map_or("", |(_, about)| about);
    let mut text = format!("{}: {about}\n", finding.name);
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "    {label:<6} {value}");
    };
    line("found", &format!("{}: {}", finding.state.name(), finding.found));
    for (place, value) in &finding.evidence {
        line("seen", &format!("{place}: {value}"));
    }
    if !finding.cost.is_empty() {
        line("costs", &finding.cost);
    }
    for how in &finding.mend {
        line("remedy", how);
    }
    line("more", &format!("{PAGE}#{}", finding.name));
    for link in finding.links {
        line("", link);
    }
    text
}

pub(super) fn finding_json(finding: &Finding) -> Value {
    let evidence: Vec<Value> =
        finding.evidence.iter().map(|(place, value)| json!({ "where": place, "value": value })).collect();
    json!({
        "name": finding.name,
        "state": finding.state.name(),
        "found": finding.found,
        "evidence": evidence,
        "cost": (!finding.cost.is_empty()).then_some(&finding.cost),
        "mend": finding.mend,
    })
}

fn as_json(kernel: &str, findings: &[Finding], probe: Option<Value>) -> Value {
    let one = |finding: &Finding| {
        let mut document = finding_json(finding);
        document["page"] = json!(format!("{PAGE}#{}", finding.name));
        document["links"] = json!(finding.links);
        document
    };
    json!({
        "kernel": kernel,
        "spoils": findings.iter().any(|finding| finding.state.spoils()),
        "findings": findings.iter().map(one).collect::<Vec<_>>(),
        "probe": probe,
    })
}
