//! `takt check`: schedulability tests, and what the kernel would admit.

mod evidence;

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};
use takt_analysis::{
    Answer, CheckOptions, CheckReport, LinuxMachine, Progress, Sensitivity, TestId, Uncertified, catalogue,
};
use takt_model::file::GivenDeadlines;
use takt_model::{Span, System};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::output::{Target, print, print_json};
use crate::progress;
use crate::table::{Rows, Table, or_dash, time};

pub(crate) fn execute(options: &args::Check, json: bool) -> Outcome {
    if options.list {
        return list(json);
    }
    let Some(file) = &options.file else {
        return Err(Failure::input("which system? give a file, or - for standard input"));
    };
    let linux = options.linux.as_deref().map(|text| machine(text, options.margin)).transpose()?;
    let (system, text) = input::system_and_text(file)?;
    let system = input::has_work(file, system, false)?;
    let only: Vec<TestId> = options.test.iter().filter_map(|name| TestId::by_name(name)).collect();
    let (all, explain) = (options.all, options.explain);
    let asked = CheckOptions { all, only, explain, linux, ..CheckOptions::default() };
    let waiting = progress::spinner(format!("checking {} tasks", system.tasks.len()));
    let report = takt_analysis::check_watched(&system, &asked, &mut |progress| {
        waiting.set_message(match progress {
            Progress::Placed(done, of) => format!("placing tasks: {done} of {of}"),
            Progress::Checked(done, of) => format!("checking scopes: {done} of {of}"),
        });
    });
    waiting.finish_and_clear();
    if (options.sensitivity || options.certificate.is_some()) && charged_by_kernel(&report) {
        return Err(Failure::cannot(
            "--sensitivity and --certificate cannot charge the time that the kernel takes for ordinary threads \
             (--linux); state it in the file (costs.ordinary), or leave out --linux",
        ));
    }
    let sensitivity = options.sensitivity.then(|| searched(&system, &GivenDeadlines::of(&text)));
    let to_stdout = options.certificate.as_ref().is_some_and(Target::is_stdout);
    if json && to_stdout {
        return Err(Failure::input("--json and the certificate cannot both go to standard output"));
    }
    if to_stdout {
        // Only the certificate.
    } else if json {
        print_json(&Answered { report: &report, sensitivity })?;
    } else {
        let rows = Rows::unless(all);
        let mut text = describe(&system, &report, rows);
        if explain {
            text.push_str(&evidence::explained(&report));
        }
        if let Some(found) = &sensitivity {
            text.push_str(&evidence::sensitivity(found, rows));
        }
        print(&text)?;
    }
    if let Some(target) = &options.certificate {
        write_certificate(&system, target)?;
    }
    Ok(if report.schedulable == Answer::Yes { Status::Yes } else { Status::No })
}

/// Whether the verdict counts on what `--linux` tells.
fn charged_by_kernel(report: &CheckReport) -> bool {
    let charged = report.tests.iter().filter_map(|test| test.figures.get("ordinary")?["charged"].as_str());
    charged.into_iter().any(|how| matches!(how, "above" | "share"))
}

fn write_certificate(system: &System, target: &Target) -> Result<(), Failure> {
    let certificate = takt_analysis::certify(system).map_err(|error| match error {
        Uncertified::Undecided | Uncertified::Unsized(_) => Failure::no(error),
        Uncertified::NoProof(_) => Failure::cannot(error),
    })?;
    let text = serde_json::to_string_pretty(&certificate)
        .map_err(|error| Failure::trouble(format_args!("cannot write JSON: {error}")))?;
    target.write((text + "\n").as_bytes())
}

/// The report as JSON, with what was asked for besides.
#[derive(Serialize)]
struct Answered<'a> {
    #[serde(flatten)]
    report: &'a CheckReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    sensitivity: Option<Sensitivity>,
}

fn searched(system: &System, given: &GivenDeadlines) -> Sensitivity {
    let bar = progress::bar("searching", 1);
    let found = takt_analysis::sensitivity(system, given, |done, of| {
        bar.set_length(of);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    found
}

fn list(json: bool) -> Outcome {
    if json {
        print_json(&json!({ "tests": catalogue() }))?;
        return Ok(Status::Yes);
    }
    let mut text = String::new();
    for test in catalogue() {
        let _ = writeln!(text, "{} ({})", test.name, test.kind.name());
        for (label, value) in
            [("decides", test.decides), ("applies", test.preconditions), ("cost", test.cost), ("source", test.source)]
        {
            let _ = writeln!(text, "    {label:<8} {value}");
        }
    }
    print(&text)?;
    Ok(Status::Yes)
}

pub(crate) fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Yes => "schedulable",
        Answer::No => "not schedulable",
        Answer::Unknown => "not proven schedulable",
    }
}

/// The report for people: the verdict, the tests, the bounds.
pub(crate) fn describe(system: &System, report: &CheckReport, rows: Rows) -> String {
    let mut text = format!("{}: {}\n\n", report.system, word(report.schedulable));
    let mut tests = Table::new(&["TEST", "SCOPE", "VERDICT", "WHY"]);
    for test in &report.tests {
        let verdict = test.verdict.answer().name().to_owned();
        tests.row(vec![test.test.name().to_owned(), test.scope.clone(), verdict, test.verdict.why().to_owned()]);
    }
    let decided = |_: usize, row: &[String]| !row.iter().any(|cell| matches!(cell.as_str(), "no" | "unknown"));
    text.push_str(&tests.without_empty_columns().render_long(rows, "tests", decided));
    let mut tasks = Table::new(&["TASK", "DEADLINE", "RESPONSE AT MOST", "IN TIME"]);
    let bounds = report.bounds(system.tasks.len()).into_iter().zip(answers(report, system.tasks.len()));
    for (task, (bound, in_time)) in system.tasks.iter().zip(bounds) {
        let in_time = in_time.name().to_owned();
        tasks.row(vec![task.name.clone(), time(task.deadline), or_dash(bound.map(time)), in_time]);
    }
    for (chain, bound) in chains(report) {
        tasks.row(vec![chain, "-".to_owned(), time(bound), "-".to_owned()]);
    }
    if !tasks.is_empty() {
        text.push('\n');
        text.push_str(&tasks.render_long(rows, "tasks", decided));
    }
    let mut flows = Table::new(&["FLOW", "DEADLINE", "END TO END AT MOST", "IN TIME"]);
    for flow in &report.flows {
        let (bound, in_time) = (or_dash(flow.end_to_end.map(time)), flow.verdict.name().to_owned());
        flows.row(vec![flow.flow.clone(), time(flow.deadline), bound, in_time]);
    }
    if !flows.is_empty() {
        text.push('\n');
        text.push_str(&flows.render_long(rows, "flows", decided));
    }
    for warning in &report.warnings {
        let _ = write!(text, "\nwarning: {warning}");
    }
    if !report.warnings.is_empty() {
        text.push('\n');
    }
    text
}

/// The combined answer of all tests for each of `tasks` tasks: one proof decides.
pub(crate) fn answers(report: &CheckReport, tasks: usize) -> Vec<Answer> {
    let mut answers = vec![if report.schedulable == Answer::Yes { Answer::Yes } else { Answer::Unknown }; tasks];
    let tests = report.tests.iter().filter(|test| test.test != TestId::Linux);
    for entry in tests.flat_map(|test| &test.tasks) {
        match (answers.get_mut(entry.id.index()), entry.verdict) {
            (Some(answer), Answer::No) => *answer = Answer::No,
            (Some(answer @ Answer::Unknown), Answer::Yes) => *answer = Answer::Yes,
            _ => {}
        }
    }
    answers
}

fn chains(report: &CheckReport) -> Vec<(String, Span)> {
    let mut found: Vec<(String, Span)> = Vec::new();
    let entries = report.tests.iter().filter_map(|test| test.figures.get("chains").and_then(Value::as_array)).flatten();
    for name in entries.filter_map(|entry| entry["chain"].as_str()) {
        if let (Some(bound), false) = (report.chain_bound(name), found.iter().any(|(known, _)| known == name)) {
            found.push((name.to_owned(), bound));
        }
    }
    found
}

/// `--linux`: this machine, or one that is described.
fn machine(text: &str, margin: Option<Span>) -> Result<LinuxMachine, Failure> {
    // The margin of `run`.
    let default = takt_run::Margin::default();
    let margin = margin.map_or(default, |least| takt_run::Margin { percent: 0, least });
    let stock =
        |cpus| LinuxMachine { margin: margin.least, margin_percent: margin.percent, ..LinuxMachine::stock(cpus) };
    if text == "this" {
        let here = takt_linux::machine();
        let cpus = u32::try_from(here.cpus.len()).unwrap_or(u32::MAX);
        return Ok(LinuxMachine {
            rt_runtime_us: u64::try_from(here.limits.rt_runtime_us).ok(),
            rt_period_us: here.limits.rt_period_us.max(1),
            // Kernels before 6.12 have none; later ones that do not tell are taken to have the default.
            fair_server: here.fair_server_assumed(),
            tick: here.tick,
            throttles: here.throttles_assumed(),
            cpusets: Some(here.no_cpusets.is_none()),
            period_min_us: here.limits.dl_period_min.as_ns() / 1000,
            period_max_us: here.limits.dl_period_max.as_ns() / 1000,
            ..stock(cpus)
        });
    }
    let mut machine = stock(1);
    let mut throttles = None;
    for part in text.split(',') {
        let bad = |why: &str| {
            Failure::input(format_args!(
                "--linux {text}: \"{part}\" {why}; write \"this\", or KEY=VALUE,... with cpus, hz, \
                 rt-runtime-us, rt-period-us, fair-server (on, starved or off), throttling (on or off)"
            ))
        };
        let (key, value) = part.split_once('=').ok_or_else(|| bad("is no KEY=VALUE"))?;
        let number = || value.parse::<u64>().map_err(|_| bad("has no whole number"));
        match key {
            "cpus" => {
                let cpus = number()?;
                let fits = u32::try_from(cpus).ok().filter(|cpus| (1..=takt_model::CpuSet::CPUS_MAX).contains(cpus));
                machine.cpus = fits.ok_or_else(|| bad("is no possible number of CPUs"))?;
            }
            "rt-runtime-us" if value == "-1" => machine.rt_runtime_us = None,
            "rt-runtime-us" => machine.rt_runtime_us = Some(number()?),
            "rt-period-us" => {
                machine.rt_period_us = Some(number()?).filter(|us| *us > 0).ok_or_else(|| bad("must be above zero"))?;
            }
            "hz" => {
                let hz = Some(number()?).filter(|hz| (1..=10_000).contains(hz));
                machine.tick =
                    Some(Span::from_ns(1_000_000_000_u64.div_ceil(hz.ok_or_else(|| bad("must be 1 to 10000"))?)));
            }
            "fair-server" => {
                (machine.fair_server, machine.starved_only) = match value {
                    "on" => (LinuxMachine::stock(1).fair_server, false),
                    "starved" => (LinuxMachine::stock(1).fair_server, true),
                    "off" => (None, false),
                    _ => return Err(bad("is none of on, starved and off")),
                };
            }
            "throttling" => {
                throttles = match value {
                    "on" => Some(true),
                    "off" => Some(false),
                    _ => return Err(bad("is neither on nor off")),
                };
            }
            _ => return Err(bad("is no key of a machine")),
        }
    }
    // Kernels have the one or the other, those with groups of real-time threads both.
    machine.throttles = throttles.unwrap_or(machine.fair_server.is_none());
    Ok(machine)
}
