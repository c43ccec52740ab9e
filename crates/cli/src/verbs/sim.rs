//! `takt sim`: a system in virtual time.

mod worst;

use serde::Serialize;
use takt_dispatch::{Adaptive, Limits, Plan, StartError, notes_of_guard};
use takt_log::stats::{Collector, Merged, Replications, Stats};
use takt_log::{BackEnd, Definitions, Header, Sink, Writer};
use takt_model::{Costs, NodeId, Span, System, file};
use takt_run::BACKLOG;
use takt_sim::traffic::Traffic;
use takt_sim::{SimError, SimOptions, simulate_with};

use crate::adaptive::{self, Account, ControllerRequest, Residence};
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::numbers::{Caveat, merged, numbers};
use crate::output::{Target, note, only_one, print, print_json, quoted};
use crate::parallel::in_order;
use crate::progress::{self, ProgressSink};
use crate::table::Rows;

/// A note in the log of a run whose delays were chosen; the list follows.
pub(super) const DELAYS_NOTE: &str = "--delays ";

pub(crate) fn execute(options: &args::Sim, json: bool) -> Outcome {
    let to_stdout = options.output.as_ref().is_some_and(Target::is_stdout);
    only_one(json, to_stdout, "log")?;
    let runs = options.runs.unwrap_or(1);
    if runs > 1 && options.output.is_some() {
        return Err(Failure::input("a log holds one run; leave out -o, or --runs (--seed names each run)"));
    }
    let system = input::has_work(&options.file, input::system(&options.file)?, false)?;
    let system = input::place_regardless(input::size_components(system, false, note)?)?;
    let node = input::node(&system, options.node.as_deref())?;
    let duration = input::duration(&system, options.duration)?;
    let sim = SimOptions { duration, seed: options.seed, node };
    if options.delays.as_deref() == Some("worst") {
        return worst::execute(options, &system, &sim, json);
    }
    let traffic = traffic(&system, options.delays.as_deref())?;
    let subject = subject(&system, node, options.adaptive.as_deref(), traffic)?;
    let caveat = match subject {
        Subject::System(system, _) => caveat(system, duration),
        Subject::Adaptive(_) => Caveat::NoProof,
    };
    if runs > 1 {
        let (all, residence, missed) = replicate(&subject, &sim, runs)?;
        let first_missed = missed.map(|seed| FirstMissed { seed, command: command(options, duration, seed) });
        let total = Span::from_ns(duration.as_ns().saturating_mul(runs.into()));
        let account = subject.account(residence, total);
        if json {
            let runs = Runs { numbers: &all, first_missed };
            print_json(&Answer { numbers: &runs, adaptive: account.as_ref() })?;
        } else {
            let told = |first: FirstMissed| format!("\nthe first run with a miss: {}\n", first.command);
            let numbers = merged(&all, caveat, Rows::Most);
            print(&(numbers + &first_missed.map_or_else(String::new, told) + &text(account.as_ref())))?;
        }
        return Ok(verdict(&all.stats, options.fail_on_miss));
    }
    let (stats, residence) = match &options.output {
        Some(target) => logged(&subject, &sim, target)?,
        None => {
            let collector =
                Collector::new(&Definitions::of(subject.system()).about(node), takt_sim::kinds(subject.system()));
            let (collector, residence) = subject.simulated(&sim, (collector, Residence::default()))?;
            (collector.finish(end(&sim)), residence)
        }
    };
    let account = subject.account(residence.until(end(&sim)), duration);
    if json {
        print_json(&Answer { numbers: &stats, adaptive: account.as_ref() })?;
    } else if !to_stdout {
        print(&(numbers(&stats, caveat, Rows::Most) + &text(account.as_ref())))?;
    }
    Ok(verdict(&stats, options.fail_on_miss))
}

enum Subject<'a> {
    System(&'a System, Traffic),
    /// takt's dispatcher on a node, with a controller.
    Adaptive(Box<Adapted>),
}

struct Adapted {
    request: ControllerRequest,
    plan: Plan,
    law: Adaptive,
    notes: Vec<String>,
}

/// The traffic of `--delays LIST`.
fn traffic(system: &System, list: Option<&str>) -> Result<Traffic, Failure> {
    let wrong = |error| Failure::input(format_args!("--delays: {error}"));
    list.map_or(Ok(Traffic::default()), |list| Traffic::parse(list, system).map_err(wrong))
}

fn subject<'a>(
    system: &'a System,
    node: Option<NodeId>,
    guard: Option<&str>,
    traffic: Traffic,
) -> Result<Subject<'a>, Failure> {
    let Some(guard) = guard else { return Ok(Subject::System(system, traffic)) };
    let request = ControllerRequest::new(system, node, guard)?;
    // The most levels that a run can have.
    let limits = Limits { priorities: 1..=98, preemptive: true, ..Limits::default() };
    let plan = Plan::compute_adaptive(system, request.node, request.strategy, &limits);
    let (plan, lateness) = plan.map_err(|anomalies| {
        let status = if anomalies.are_input() { Failure::input } else { Failure::cannot };
        status(format!("--adaptive needs takt's own dispatcher, which cannot run this system:\n{anomalies}"))
    })?;
    let plan = plan.with_backlog(BACKLOG);
    let law = adaptive::law(&plan);
    if let Some(wrong) = law.wrong(&plan) {
        return Err(Failure::input(format_args!("the adaptive controller does not fit: {wrong}")));
    }
    let mut notes = notes_of_guard(&law, &plan, guard);
    notes.extend(lateness.iter().map(|anomaly| format!("deadlines can be missed: {anomaly}")));
    if plan.system.nodes.get(plan.node.index()).and_then(|node| node.costs).is_some_and(|costs| costs != Costs::NONE) {
        let note = "the bounds of the controller include the node's costs; this simulation does not charge them";
        notes.push(note.to_owned());
    }
    for sentence in &notes {
        note(format_args!("note: {sentence}"));
    }
    Ok(Subject::Adaptive(Box::new(Adapted { request, plan, law, notes })))
}

impl Subject<'_> {
    fn system(&self) -> &System {
        match self {
            Subject::System(system, _) => system,
            Subject::Adaptive(adapted) => &adapted.plan.system,
        }
    }

    fn simulate(&self, sim: &SimOptions, sink: &mut impl Sink) -> Result<(), Failure> {
        match self {
            Subject::System(system, traffic) => {
                simulate_with(system, sim, traffic, sink).map(drop).map_err(|error| failure(&error))
            }
            Subject::Adaptive(adapted) => {
                let rehearsed = adapted.plan.rehearse_adaptive(&adapted.law, sim.duration, sim.seed, sink);
                rehearsed.map(drop).map_err(|error| match error {
                    StartError::Policy(policy) => Failure::input(policy),
                    other => Failure::input(other),
                })
            }
        }
    }

    /// The same, with a bar where somebody watches.
    fn simulated<S: Sink>(&self, sim: &SimOptions, mut sink: S) -> Result<S, Failure> {
        if progress::watched() {
            let mut watched = ProgressSink::new(sink, sim.duration);
            let result = self.simulate(sim, &mut watched);
            sink = watched.finish();
            result?;
        } else {
            self.simulate(sim, &mut sink)?;
        }
        Ok(sink)
    }

    fn account(&self, residence: Residence, total: Span) -> Option<Account> {
        match self {
            Subject::System(..) => None,
            Subject::Adaptive(adapted) => {
                let Adapted { request, plan, law, .. } = &**adapted;
                Some(Account::new(request, plan, law, residence, total))
            }
        }
    }
}

fn text(account: Option<&Account>) -> String {
    account.map_or_else(String::new, Account::text)
}

/// Numbers, and what the controller did where there was one.
#[derive(Serialize)]
struct Answer<'a, T> {
    #[serde(flatten)]
    numbers: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    adaptive: Option<&'a Account>,
}

#[derive(Serialize)]
struct Runs<'a> {
    #[serde(flatten)]
    numbers: &'a Merged,
    /// Null without one.
    first_missed: Option<FirstMissed>,
}

#[derive(Serialize)]
struct FirstMissed {
    seed: u64,
    command: String,
}

/// The command that makes one of several runs again, and writes its log.
fn command(options: &args::Sim, duration: Span, seed: u64) -> String {
    let mut command = format!("takt sim {} --for {duration} --seed {seed}", quoted(&options.file));
    let values = [("delays", &options.delays), ("node", &options.node), ("adaptive", &options.adaptive)];
    for (name, value) in values {
        if let Some(value) = value {
            command += &format!(" --{name} {}", quoted(value));
        }
    }
    command + " -o missed.takt"
}

pub(crate) fn caveat(system: &System, duration: Span) -> Caveat {
    if takt_report::is_no_proof(system, duration) { Caveat::CheckProves } else { Caveat::None }
}

pub(crate) fn verdict(stats: &Stats, fail_on_miss: bool) -> Status {
    if fail_on_miss && has_failed(stats) { Status::No } else { Status::Yes }
}

/// Whether a deadline was missed, a job rejected, or a message of a flow dropped or lost.
pub(crate) fn has_failed(stats: &Stats) -> bool {
    has_missed(stats) || stats.undelivered() > 0
}

fn has_missed(stats: &Stats) -> bool {
    stats.missed() + stats.rejected() > 0
}

fn end(sim: &SimOptions) -> takt_model::Time {
    takt_model::Time::ZERO.saturating_add(sim.duration)
}

/// Simulates a system into a sink, with a bar where somebody watches.
pub(crate) fn simulated<S: Sink>(system: &System, sim: &SimOptions, sink: S) -> Result<S, Failure> {
    Subject::System(system, Traffic::default()).simulated(sim, sink)
}

fn logged(subject: &Subject<'_>, sim: &SimOptions, target: &Target) -> Result<(Stats, Residence), Failure> {
    let definitions = Definitions::of(subject.system()).about(sim.node);
    let header = match subject {
        Subject::System(system, traffic) => {
            let header = Header::new(file::write(system), Some(sim.seed), BackEnd::Sim, takt_sim::kinds(system));
            let list = Some(traffic.text(system)).filter(|list| !list.is_empty());
            Header { notes: list.map(|list| format!("{DELAYS_NOTE}{list}")).into_iter().collect(), ..header }
        }
        Subject::Adaptive(adapted) => {
            let system = adaptive::written(&adapted.plan);
            let header = Header::new(file::write(&system), Some(sim.seed), BackEnd::Sim, takt_sim::KINDS);
            Header { notes: adapted.notes.clone(), ..header }
        }
    };
    let failed = |error| target.log_failure(error);
    let writer = Writer::new(target.open()?, &header, &definitions).map_err(failed)?;
    let collector = Collector::new(&definitions, takt_sim::kinds(subject.system()));
    let ((writer, collector), residence) = subject.simulated(sim, ((writer, collector), Residence::default()))?;
    writer.finish(end(sim)).map_err(failed)?;
    Ok((collector.finish(end(sim)), residence))
}

fn failure(error: &SimError) -> Failure {
    match error {
        SimError::Backlog { .. } => Failure::trouble(error),
        _ => Failure::input(error),
    }
}

/// Simulates with the seeds seed, seed + 1, ... on all CPUs. The statistics are merged in the order of the seeds, so
/// that the result does not depend on the number of threads. The last value is the seed of the first run that
/// [has missed](has_missed).
fn replicate(subject: &Subject<'_>, sim: &SimOptions, runs: u32) -> Result<(Merged, Residence, Option<u64>), Failure> {
    let definitions = Definitions::of(subject.system()).about(sim.node);
    let bar = progress::bar("replications", u64::from(runs));
    let kinds = takt_sim::kinds(subject.system());
    let seed = |run: u32| sim.seed.wrapping_add(u64::from(run));
    let run = |run: u32| {
        let options = SimOptions { seed: seed(run), ..sim.clone() };
        let mut sinks = (Collector::new(&definitions, kinds), Residence::default());
        let result = subject.simulate(&options, &mut sinks);
        result.map(|()| (sinks.0.finish(end(sim)), sinks.1.until(end(sim))))
    };
    let (mut merged, mut all_residence) = (Replications::new(), Residence::default());
    let (mut done, mut missed) = (0, None);
    let outcome: Result<(), Failure> = in_order(runs, run, |result| {
        let (stats, residence): (Stats, Residence) = result?;
        merged.add(&stats).map_err(Failure::trouble)?;
        all_residence = all_residence.and(residence);
        missed = missed.or_else(|| has_missed(&stats).then(|| seed(done)));
        done += 1;
        bar.inc(1);
        Ok(())
    });
    bar.finish_and_clear();
    outcome?;
    let merged = merged.finish().ok_or_else(|| Failure::trouble("no run of --runs ended"))?;
    Ok((merged, all_residence, missed))
}
