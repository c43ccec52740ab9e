//! `takt run`: a system's tasks as threads of this kernel.

mod admission;
mod flows;

use std::io;
use std::process;

use serde::Serialize;
use serde_json::{Value, json};
use takt_log::stats::{Stats, Summary, TaskStats};
use takt_model::{Auto, Component, Lateness, NodeId, Span, System, Time, file};
use takt_run::{
    ForeignSummary, ManagerSummary, Margin, Ready, RunError, RunHandle, RunOptions, RunSummary, ServerBackEnd, Stamps,
    Trace, prepare, prepare_adaptive, prepare_node,
};

use admission::AdmissionSocket;

use super::sim::verdict;
use crate::adaptive::{self, Account, ControllerRequest, Residence};
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::numbers::{Caveat, cell, late, numbers, of_chains, rank, sum_up};
use crate::output::{Target, note, only_one, print, print_json};
use crate::progress;
use crate::recorded::Recorded;
use crate::table::{Rows, Table, or_dash, time};

pub(crate) fn execute(options: &args::Run, json: bool) -> Outcome {
    let to_stdout = options.output.as_ref().is_some_and(Target::is_stdout);
    only_one(json, to_stdout, "log")?;
    if options.ends_with_input {
        let watch = std::thread::Builder::new().name("takt input".to_owned()).spawn(end_with_input);
        watch.map_err(|error| Failure::trouble(format_args!("no thread for standard input: {error}")))?;
    }
    let system = input::has_work(&options.file, input::system(&options.file)?, true)?;
    let auto = with_least_budgets(&system);
    let system = input::place_regardless(input::size_components(system, true, note)?)?;
    let node = input::node(&system, options.node.as_deref())?;
    let duration = input::duration(&system, options.duration)?;
    let mut run = RunOptions { node, seed: options.seed, ..RunOptions::new(duration) };
    run.best_effort = options.best_effort;
    run.force = options.force;
    if let Some(least) = options.margin {
        run.margin = Margin { percent: 0, least };
    }
    if let Some(priority) = options.priority {
        run.top_priority = priority;
    }
    run.guardian = true;
    run.back_end = options.backend.asked();
    run.trace = match (options.trace, options.no_trace || options.admit.is_some()) {
        (true, _) => Trace::Always,
        (_, true) => Trace::Never,
        _ => Trace::WherePossible,
    };
    let request = options.adaptive.as_deref().map(|guard| ControllerRequest::new(&system, node, guard)).transpose()?;
    let network = flows::network(&system, node, &options.flows)?;
    if request.is_some() && network.is_some() {
        return Err(Failure::cannot("--adaptive is for nodes without flows; leave it out"));
    }
    let prepared = match (&request, &network) {
        (_, Some(network)) => prepare_node(&system, &run, network),
        (Some(request), None) => prepare_adaptive(&system, request.strategy, &run, adaptive::law),
        (None, None) => prepare(&system, &run),
    };
    let prepared = prepared.map_err(|error| failure(&error))?;
    let back_end = prepared.server_back_end().map(ServerBackEnd::name);
    let auto: Vec<&str> = auto.iter().filter(|(node, _)| *node == prepared.node()).map(|(_, name)| &**name).collect();
    if prepared.server_back_end() == Some(ServerBackEnd::Deadline) && !auto.is_empty() {
        note(format_args!(
            "warning: the \"auto\" budget of {} is the least for its tasks alone: the kernel also charges waking and \
             going to sleep, and ends budgets at ticks, so jobs may wait for the next period; give its node costs, or \
             it a larger budget",
            auto.join(", ")
        ));
    }
    let controlled = prepared.plan().cloned().zip(prepared.adaptive().cloned());
    let ready = prepared.open().map_err(|error| failure(&error))?;
    for sentence in ready.prepared().notes() {
        note(format_args!("note: {sentence}"));
    }
    let noted = ready.prepared().notes().len();
    let (mut stats, summary, residence) = record(ready, duration, options)?;
    for task in &mut stats.tasks {
        let ran = summary.tasks.iter().find(|ran| ran.name == task.task);
        task.late = Some(ran.and_then(|ran| ran.late.clone()));
    }
    let account = request.zip(controlled).map(|(request, (plan, law))| {
        let total = summary.end.saturating_since(Time::ZERO);
        Account::new(&request, &plan, &law, residence.until(summary.end), total)
    });
    for sentence in summary.notes.iter().skip(noted) {
        note(format_args!("note: {sentence}"));
    }
    if let Some(signal) = summary.interrupted {
        note(format_args!("note: interrupted by {signal} after {}", Span::from_ns(summary.end.as_ns())));
    }
    let flows = flows::Account::new(&system, &stats, &summary);
    if json {
        print_json(&Answer { back_end, ..with_summary(&stats, &summary, account.as_ref(), flows.as_ref()) })?;
    } else if !to_stdout {
        let adaptive = account.as_ref().map_or_else(String::new, Account::text);
        let rows = Rows::unless(options.all);
        let late = late(&stats, rows);
        let flows = flows.as_ref().map_or_else(String::new, flows::Account::text);
        print(&if options.all {
            let numbers = numbers(&stats, Caveat::None, rows);
            let managers = managers(&summary);
            format!("{numbers}\n{}{adaptive}{}{managers}{flows}{late}", threads(&summary), stamps(&summary))
        } else {
            format!("{}{adaptive}{}{flows}{late}", brief(&stats, &summary), managers(&summary))
        })?;
    }
    Ok(verdict(&stats, options.fail_on_miss))
}

/// Ends this process when standard input ends. The kernel closes a pipe however the process at its other end dies.
/// Nothing needs an orderly end: after a kill the guardian or the next start restores what was changed.
fn end_with_input() {
    // An error ends the input, too.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    process::exit(i32::from(Status::Trouble as u8));
}

/// The components whose budgets `takt size` chooses without any costs of their node.
fn with_least_budgets(system: &System) -> Vec<(NodeId, String)> {
    let is_free = |component: &&Component| system.nodes[component.node.index()].costs.is_none();
    let is_auto = |component: &&Component| component.budget == Auto::Auto;
    let all = system.components.iter().filter(is_auto).filter(is_free);
    all.map(|component| (component.node, format!("component \"{}\"", component.name))).collect()
}

/// The live back end's error, with its own exit status.
pub(super) fn failure(error: &RunError) -> Failure {
    Failure::with_exit_code(error.exit_code(), error)
}

/// How much of a run a crash can take from its log, at most.
const FLUSH: Span = Span::from_s(1);

fn record(ready: Ready, duration: Span, options: &args::Run) -> Result<(Stats, RunSummary, Residence), Failure> {
    let target = options.output.as_ref();
    let prepared = ready.prepared();
    let (mut header, definitions) = ready.log_head();
    if let Some(plan) = prepared.plan().filter(|_| prepared.adaptive().is_some()) {
        header.system = file::write(&adaptive::written(plan));
    }
    let handle = RunHandle::new();
    let socket = options.admit.as_ref().map(|path| AdmissionSocket::open(path, &handle)).transpose()?;
    let mut sinks = (Recorded::start(target, &header, &definitions, FLUSH, None)?, Residence::default());
    let bar = progress::bar("running", duration.as_ns());
    let mut progress = |now: Time| bar.set_position(now.as_ns());
    let result = match socket {
        None => ready.run(&mut sinks, &mut progress),
        Some(_) => ready.run_with(&mut sinks, &mut progress, &handle),
    };
    bar.finish_and_clear();
    let summary = result.map_err(|error| failure(&error))?;
    let (recorder, residence) = sinks;
    Ok((recorder.finish(summary.end)?, summary, residence))
}

fn brief(stats: &Stats, summary: &RunSummary) -> String {
    type Count = fn(&TaskStats) -> u64;
    let counts: [(&str, Count); 3] = [
        ("cancelled", |task| task.cancelled),
        ("rejected", |task| task.rejected),
        ("unfinished", |task| task.unfinished),
    ];
    let some = |of: Count| stats.tasks.iter().any(|task| of(task) > 0);
    let counts: Vec<_> = counts.into_iter().filter(|(_, of)| some(*of)).collect();
    let mut heads = vec!["task", "released", "missed"];
    heads.extend(counts.iter().map(|(name, _)| *name));
    heads.extend(["resp p50", "p99", "max", "laxity min", "overruns", "throttled", "class"]);
    let mut table = Table::new(&heads);
    for task in &stats.tasks {
        let thread = summary.tasks.iter().find(|thread| thread.name == task.task);
        let mut row = vec![task.task.clone(), task.released.to_string(), or_dash(task.missed)];
        row.extend(counts.iter().map(|(_, of)| of(task).to_string()));
        let response = |of: fn(&Summary<u64>) -> u64| cell(&task.response_ns, of);
        row.extend([response(|s| s.p50), response(|s| s.p99), response(|s| s.max)]);
        row.push(or_dash(task.laxity_ns.map(|laxity| Lateness::from_ns(laxity.min).four_digits_down())));
        row.push(or_dash(thread.and_then(|thread| thread.overruns)));
        row.push(or_dash(thread.and_then(|thread| thread.throttled)));
        row.push(or_dash(thread.map(|thread| thread.class.as_str())));
        table.row(row);
    }
    let chains = of_chains(stats);
    let chains = if chains.is_empty() { String::new() } else { format!("\n{}", chains.render("")) };
    let tasks =
        table.without_empty_columns().render_long(Rows::MostUnlessAll, "tasks", |row, _| rank(&stats.tasks[row]));
    format!("{tasks}{chains}{}", sum_up(stats, Caveat::None))
}

fn threads(summary: &RunSummary) -> String {
    let mut table = Table::new(&["task", "class", "overruns", "throttled", "overhead per job"]);
    for task in &summary.tasks {
        table.row(vec![
            task.name.clone(),
            task.class.clone(),
            or_dash(task.overruns),
            or_dash(task.throttled),
            time(task.overhead),
        ]);
    }
    table.without_empty_columns().render("")
}

fn stamps(summary: &RunSummary) -> String {
    if summary.tasks.iter().all(|task| task.stamps.is_none()) {
        return String::new();
    }
    let mut table = Table::headed("stamps|checked|contradicted|start p50|max|end p50|max");
    for task in &summary.tasks {
        let Some(stamps) = &task.stamps else { continue };
        table.row(vec![
            task.name.clone(),
            stamps.checked.to_string(),
            stamps.contradicted.to_string(),
            cell(&stamps.start, |start| start.p50),
            cell(&stamps.start, |start| start.max),
            cell(&stamps.complete, |complete| complete.p50),
            cell(&stamps.complete, |complete| complete.max),
        ]);
    }
    format!("\n{}", table.render(""))
}

fn managers(summary: &RunSummary) -> String {
    if summary.managers.is_empty() {
        return String::new();
    }
    let heads = ["manager of cpu", "decisions", "cost p50", "p99", "late p50", "p99", "replenished late p50", "p99"];
    let mut table = Table::new(&[&heads[..], &["of its cpu"]].concat());
    for manager in &summary.managers {
        table.row(vec![
            manager.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            manager.decisions.to_string(),
            cell(&manager.cost, |cost| cost.p50),
            cell(&manager.cost, |cost| cost.p99),
            cell(&manager.late, |late| late.p50),
            cell(&manager.late, |late| late.p99),
            cell(&manager.late_replenishments, |late| late.p50),
            cell(&manager.late_replenishments, |late| late.p99),
            format!("{}.{:02} %", manager.share_ppm / 10_000, manager.share_ppm % 10_000 / 100),
        ]);
    }
    // check charges no costs to budgets on several CPUs.
    let is_charged = !summary.best_effort && summary.managers.iter().all(|manager| manager.cpus.len() == 1);
    let charge = costs(summary).filter(|_| is_charged).map_or_else(String::new, |(decision, late)| {
        let twice = Span::from_ns(decision.as_ns().saturating_mul(2));
        format!(
            "check charges this with costs = {{ release = \"{twice}\", switch = \"{twice}\", latency = \"{late}\" }}\n"
        )
    });
    format!("\n{}{charge}{}", table.render(""), foreign(summary))
}

/// The CPU time of existing threads beside the turns of their components.
fn foreign(summary: &RunSummary) -> String {
    if summary.foreign.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["component", "threads of", "threads", "had the cpu", "used", "owed at most"]);
    for one in &summary.foreign {
        table.row(vec![
            one.component.clone(),
            one.threads.clone(),
            one.count.to_string(),
            time(one.turns),
            time(one.used),
            time(one.owed_max),
        ]);
    }
    format!("\n{}", table.render(""))
}

fn foreign_json(summary: &RunSummary) -> Vec<Value> {
    let of = |one: &ForeignSummary| {
        json!({
            "component": one.component,
            "threads_of": one.threads,
            "threads": one.count,
            "turns_ns": one.turns.as_ns(),
            "used_ns": one.used.as_ns(),
            "owed_max_ns": one.owed_max.as_ns(),
        })
    };
    summary.foreign.iter().map(of).collect()
}

/// The p99 of a decision and of its lateness, those of the worst manager. A job pays for two
/// decisions when it comes and goes, and for two each time it loses and gets the CPU.
fn costs(summary: &RunSummary) -> Option<(Span, Span)> {
    let worst = |of: fn(&ManagerSummary) -> &Option<Summary<u64>>| {
        let p99 = summary.managers.iter().filter_map(|manager| of(manager).as_ref()).map(|summary| summary.p99);
        p99.max().map(Span::from_ns)
    };
    Some((worst(|manager| &manager.cost)?, worst(|manager| &manager.late)?))
}

fn managers_json(summary: &RunSummary) -> Vec<Value> {
    let of = |manager: &ManagerSummary| {
        json!({
            "cpu": manager.cpu,
            "cpus": manager.cpus,
            "class": manager.class,
            "decisions": manager.decisions,
            "preemptions": manager.preemptions,
            "cost_ns": manager.cost,
            "late_ns": manager.late,
            "late_replenishments_ns": manager.late_replenishments,
            "used_ns": manager.used.as_ns(),
            "share_ppm": manager.share_ppm,
        })
    };
    summary.managers.iter().map(of).collect()
}

fn stamps_json(stamps: &Stamps) -> Value {
    json!({
        "checked": stamps.checked,
        "contradicted": stamps.contradicted,
        "start_ns": stamps.start,
        "complete_ns": stamps.complete,
        "release_latency_ns": stamps.release_latency,
    })
}

/// The contract's keys, and after them how it was run.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    stats: &'a Stats,
    best_effort: bool,
    interrupted: bool,
    notes: &'a [String],
    steal_ns: Option<u64>,
    recorded: Option<Value>,
    threads: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    back_end: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    managers: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    foreign: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adaptive: Option<&'a Account>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<Value>,
}

fn with_summary<'a>(
    stats: &'a Stats,
    summary: &'a RunSummary,
    adaptive: Option<&'a Account>,
    flows: Option<&flows::Account>,
) -> Answer<'a> {
    let threads = summary
        .tasks
        .iter()
        .map(|task| {
            json!({
                "task": task.name,
                "class": task.class,
                "overruns": task.overruns,
                "throttled": task.throttled,
                "overhead_ns": task.overhead.as_ns(),
                "stamps": task.stamps.as_ref().map(stamps_json),
                "late": task.late,
            })
        })
        .collect();
    Answer {
        stats,
        best_effort: summary.best_effort,
        interrupted: summary.interrupted.is_some(),
        notes: &summary.notes,
        steal_ns: summary.steal.map(Span::as_ns),
        recorded: summary
            .recorded
            .map(|recorded| json!({ "events": recorded.events, "lost": recorded.lost, "missing": recorded.missing })),
        threads,
        back_end: None,
        managers: managers_json(summary),
        foreign: foreign_json(summary),
        adaptive,
        flows: flows.map(flows::Account::json),
    }
}
