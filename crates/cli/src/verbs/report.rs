//! `takt report`: theory, simulation and reality on one page, and as a table.

mod alone;
mod comparison;

use std::borrow::Cow;

use takt_analysis::CheckOptions;
use takt_dispatch::TO_COMPLETION;
use takt_log::causes::Rules;
use takt_log::{BackEnd, Clocks, Definitions, Header, JoinError, Joined};
use takt_model::{Mode, NodeId, Span, StrategyId, StrategyRef, System, Time, file};
use takt_report::live_hops::live_hops;
use takt_report::{ReportInput, Source, SourceBuilder, findings, html};
use takt_sim::SimOptions;

use super::sim::simulated;
use crate::adaptive;
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input::{self, Content, Log};
use crate::output::{note, only_one, print, print_json, quoted};
use comparison::Comparison;

pub(crate) fn execute(options: &args::Report, json: bool) -> Outcome {
    only_one(json, options.output.is_stdout(), "page")?;
    let (system, toml, mut logs) = match inputs(options)? {
        Inputs::System { system, toml, logs } => (*system, toml, logs),
        Inputs::Alone(mut log) => return alone::execute(options, &mut log, json),
    };
    let (system, as_run) = match logs.first() {
        Some((path, log)) => as_run(system, path, log)?,
        None => (system, None),
    };
    let (placed, placement) = match input::place(system.clone()) {
        Ok(placed) => (placed, None),
        Err(failure) => (system.clone(), Some(failure)),
    };
    let guarded = logs.first().and_then(|(_, log)| Guarded::of(&placed, log.definitions()));
    let check = match &guarded {
        Some(guarded) => takt_analysis::check(&guarded.with_guard_mode(&placed), &CheckOptions::default()),
        None => takt_analysis::check(&placed, &CheckOptions::default()),
    };
    let measured = match &mut logs[..] {
        [] => None,
        [(path, log)] => {
            let source = source(path, log, &placed.name)?;
            if source.back_end == BackEnd::Observe {
                check_any_task_matches(&placed, path, log)?;
            }
            Some(source)
        }
        logs => Some(joined(logs, &placed)?),
    };
    let header = logs.first().map(|(_, log)| log.header().clone());
    // A simulated log is the simulation; one beside it would be a third column without a name.
    let (given, measured) = match measured {
        Some(source) if source.back_end == BackEnd::Sim => (Some(source), None),
        other => (None, other),
    };
    if let Some((path, _)) =
        logs.first().filter(|_| given.is_some() && (options.seed.is_some() || options.duration.is_some()))
    {
        return Err(Failure::input(format_args!(
            "{} is a simulation already; leave out --for and --seed, or give the system file alone to simulate anew",
            input::shown(path)
        )));
    }
    let seed = options.seed.or(header.as_ref().and_then(|header| header.seed)).unwrap_or(0);
    let back_end = header.as_ref().map(|header| header.back_end);
    let logged = given.as_ref().or(measured.as_ref());
    let length = logged.map(|source| Span::from_ns(source.stats.duration_ns)).filter(|length| !length.is_zero());
    let node = logged.and_then(|source| only_node(&placed, source));
    let mut notes = Vec::new();
    // As in `sim`, what is "auto" gets a value before tasks are placed. The verdict is that on the file.
    let is_open = given.is_none() && system.components.iter().any(input::is_auto);
    let subject = match placement {
        _ if is_open => sized(system, &mut notes).map(Cow::Owned),
        Some(failure) => Err(failure),
        None => Ok(Cow::Borrowed(&placed)),
    };
    let duration = input::duration(subject.as_deref().unwrap_or(&placed), options.duration.or(length))?;
    let simulated = match given {
        Some(source) => Ok(source),
        // A run's own jobs are explained instead.
        None => subject.and_then(|system| simulation(&system, duration, seed, measured.is_none())),
    };
    if let Err(failure) = &simulated {
        let why = failure.message.trim_start_matches("takt: ");
        note(format_args!("note: no simulation: {why}"));
        notes.push(format!("No simulation: {why}."));
    }
    if let Some(names) = as_run.as_ref().filter(|_| !options.logs.is_empty()) {
        let sentence = format!(
            "This run used strategy {names}. Bounds and simulation are for this strategy, and not for the file's, \
             whose levels are preemptive."
        );
        note(format_args!("note: {sentence}"));
        notes.push(sentence);
    }
    if let Some(Guarded { calm, guard, .. }) = &guarded {
        notes.push(format!(
            "In this log a controller moved between strategy \"{calm}\" and its guard \"{guard}\". The bounds of \
             either strategy alone do not hold for it. A simulation beside a run uses \"{calm}\" alone."
        ));
    }
    let simulated = simulated.ok();
    let guard = guarded.as_ref().map(|guarded| guarded.guard.as_str());
    let commands = Commands {
        options,
        back_end,
        seed,
        duration,
        length,
        node,
        guard,
        delays: header.as_ref().and_then(delays_of),
        simulates: simulated.is_some(),
        sends: header.as_ref().is_some_and(|header| header.kinds.contains(takt_log::Kind::Send)),
        as_run: as_run.is_some(),
    }
    .all();
    let hops = measured.as_ref().map(|measured| live_hops(&placed, &check, measured)).unwrap_or_default();
    let page_input = ReportInput {
        title: "",
        system: Some(&placed),
        toml: &toml,
        check: Some(&check),
        simulated: simulated.as_ref(),
        measured: measured.as_ref(),
        hops: &hops,
        notes: &notes,
        commands: &commands,
        maker: concat!("takt ", env!("CARGO_PKG_VERSION")),
    };
    let page = html(&page_input);
    options.output.write(page.as_bytes())?;
    for finding in findings(&page_input) {
        note(format_args!("note: {finding}"));
    }
    let comparison = Comparison {
        system: &placed,
        check: &check,
        simulated: simulated.as_ref(),
        measured: measured.as_ref(),
        hops: &hops,
        back_end,
    };
    if json {
        print_json(&comparison.json())?;
    } else if !options.output.is_stdout() {
        print(&format!("{}\nThe page is in {}.\n", comparison.table(), options.output.0))?;
    }
    Ok(Status::Yes)
}

enum Inputs {
    /// A system with its text, and logs of it.
    System { system: Box<System>, toml: String, logs: Vec<(String, Box<Log>)> },
    /// A log without a system.
    Alone(Box<Log>),
}

fn inputs(options: &args::Report) -> Result<Inputs, Failure> {
    if std::iter::once(&options.file).chain(&options.logs).filter(|path| *path == "-").count() > 1 {
        return Err(Failure::input("only one of system and log can come from standard input"));
    }
    match (input::system_or_log(&options.file)?, options.logs.first()) {
        (Content::System(system, text), _) => {
            let system = Box::new(input::has_work(&options.file, *system, false)?);
            let mut logs = Vec::new();
            for path in &options.logs {
                let log = input::log(path)?;
                if log.header().back_end != BackEnd::Observe {
                    check_same_tasks(&system, path, &log)?;
                }
                logs.push((path.clone(), Box::new(log)));
            }
            Ok(Inputs::System { system, toml: text, logs })
        }
        (Content::Log(log), None) if log.header().system.is_empty() => Ok(Inputs::Alone(log)),
        (Content::Log(log), None) => {
            let system = input::system_of(&options.file, &log)?;
            let text = log.header().system.clone();
            Ok(Inputs::System { system: Box::new(system), toml: text, logs: vec![(options.file.clone(), log)] })
        }
        (Content::Log(_), Some(path)) => Err(Failure::input(format_args!(
            "{} and {path} cannot both be logs; give one system file and one log, or the log of each node",
            input::shown(&options.file)
        ))),
    }
}

/// A log of other tasks would fill the table with nonsense.
fn check_same_tasks(system: &System, path: &str, log: &Log) -> Result<(), Failure> {
    let of_log: Vec<&str> = log.definitions().tasks.iter().map(|task| task.name.as_str()).collect();
    let definitions = Definitions::of(system);
    let of_system: Vec<&str> = definitions.tasks.iter().map(|task| task.name.as_str()).collect();
    if of_log == of_system {
        return Ok(());
    }
    Err(Failure::input(format_args!(
        "{path} is a log of other tasks ({}) than the system's ({})",
        of_log.join(", "),
        of_system.join(", ")
    )))
}

/// A log of observed threads may have more threads than the system has tasks, but not none of the tasks.
fn check_any_task_matches(system: &System, path: &str, log: &Log) -> Result<(), Failure> {
    let of_log = &log.definitions().tasks;
    if system.tasks.iter().any(|task| of_log.iter().any(|thread| thread.name == task.name)) {
        return Ok(());
    }
    let named = |names: Vec<&str>| {
        const NAMED: usize = 20;
        let more = if names.len() > NAMED { ", ..." } else { "" };
        format!("{}{more}", names.into_iter().take(NAMED).collect::<Vec<_>>().join(", "))
    };
    Err(Failure::input(format_args!(
        "{path} saw other threads ({}) than the system's tasks ({})",
        named(of_log.iter().map(|thread| thread.name.as_str()).collect()),
        named(system.tasks.iter().map(|task| task.name.as_str()).collect())
    )))
}

/// The log as a source of the report, for the system of this name.
fn source(path: &str, log: &mut Log, name: &str) -> Result<Source, Failure> {
    let system = input::system_of(path, log).ok();
    let rules = Rules::of(log.header(), system.as_ref());
    let builder = SourceBuilder::new(name, log.header(), log.definitions(), None);
    let mut builder = builder.explaining(rules, log.definitions());
    let end = log.copy_to(&mut builder).map_err(|error| input::log_failure(path, &error))?;
    let mut source = builder.finish(end);
    source.clocks = Clocks::of([log.definitions()]);
    let damage = log.damage();
    input::warn_of_damage(path, &damage);
    source.damage = (!damage.is_none()).then(|| damage.to_string());
    Ok(source)
}

/// The logs of several nodes as one source of the report.
fn joined(logs: &mut [(String, Box<Log>)], system: &System) -> Result<Source, Failure> {
    let paths: Vec<String> = logs.iter().map(|(path, _)| path.clone()).collect();
    let path = |log: usize| paths.get(log).map_or("", String::as_str);
    let refused = |error: JoinError| Failure::input(format_args!("{} {error}", input::shown(path(error.log()))));
    let mut joined = Joined::new(logs.iter_mut().map(|(_, log)| &mut **log).collect()).map_err(refused)?;
    let rules = Rules::of(joined.header(), Some(system));
    let builder = SourceBuilder::new(&system.name, joined.header(), joined.definitions(), None);
    let mut builder = builder.explaining(rules, joined.definitions());
    let end = joined.copy_to(&mut builder).map_err(|(log, error)| input::log_failure(path(log), &error))?;
    let mut source = builder.finish(end);
    source.clocks = joined.clocks();
    drop(joined);
    let mut damages = Vec::new();
    for (path, log) in logs.iter() {
        let damage = log.damage();
        input::warn_of_damage(path, &damage);
        if !damage.is_none() {
            damages.push(format!("{path}: {damage}"));
        }
    }
    source.damage = (!damages.is_empty()).then(|| damages.join("; "));
    Ok(source)
}

/// The system with values for what is "auto", and placed. The notes say which values.
fn sized(system: System, notes: &mut Vec<String>) -> Result<System, Failure> {
    let tell = |text: String| {
        note(&text);
        notes.push(format!("Simulation: {}.", text.trim_start_matches("warning: ")));
    };
    input::place(input::size_components(system, false, tell)?)
}

/// The simulation as a source of the report, with the causes of late jobs if it `explains`.
fn simulation(system: &System, duration: Span, seed: u64, explains: bool) -> Result<Source, Failure> {
    let definitions = Definitions::of(system);
    let header = Header::new(file::write(system), Some(seed), BackEnd::Sim, takt_sim::kinds(system));
    let mut builder = SourceBuilder::new(&system.name, &header, &definitions, None);
    if explains {
        builder = builder.explaining(Rules::of(&header, Some(system)), &definitions);
    }
    let builder = simulated(system, &SimOptions { duration, seed, node: None }, builder)?;
    Ok(builder.finish(Time::ZERO.saturating_add(duration)))
}

/// The one node of several that a log is about.
fn only_node<'a>(system: &'a System, source: &Source) -> Option<&'a str> {
    let mut seen = system
        .nodes
        .iter()
        .filter(|node| source.stats.tasks.iter().any(|task| task.node == node.name && task.released > 0));
    let first = seen.next()?;
    (system.nodes.len() > 1 && seen.next().is_none()).then_some(first.name.as_str())
}

/// The system with the run's strategies, and their names. They replace the system's own if takt's
/// dispatcher ran levels to completion.
fn as_run(mut system: System, path: &str, log: &Log) -> Result<(System, Option<String>), Failure> {
    let to_completion = |name: &str| name.ends_with(TO_COMPLETION);
    if log.header().back_end != BackEnd::Run
        || !log.definitions().nodes.iter().any(|node| to_completion(&node.strategy))
    {
        return Ok((system, None));
    }
    let ran = input::system_of(path, log)?;
    let first = system.strategies.len();
    let mut names = Vec::new();
    let mut taken = |of_file: &mut StrategyRef, of_run: StrategyRef| {
        let strategy = ran.strategy(of_run);
        if !to_completion(&strategy.name) {
            return;
        }
        names.push(format!("\"{}\"", strategy.name));
        let at = system.strategies.iter().position(|own| own.name == strategy.name).unwrap_or_else(|| {
            system.strategies.push(strategy);
            system.strategies.len() - 1
        });
        *of_file = StrategyRef::Own(StrategyId(at as u32));
    };
    for (node, of_run) in system.nodes.iter_mut().zip(&ran.nodes).filter(|(node, of_run)| node.name == of_run.name) {
        taken(&mut node.strategy, of_run.strategy);
    }
    for (mode, of_run) in system
        .modes
        .iter_mut()
        .zip(&ran.modes)
        .filter(|(mode, of_run)| (mode.node, mode.at) == (of_run.node, of_run.at))
    {
        taken(&mut mode.strategy, of_run.strategy);
    }
    let is_new = system.strategies.len() > first;
    names.dedup();
    Ok((system, is_new.then(|| names.join(" and "))))
}

/// The controller between two strategies of a node in a log. Its guard is a mode that the System lacks.
struct Guarded {
    node: NodeId,
    calm: String,
    guard: String,
    strategy: StrategyRef,
}

impl Guarded {
    fn of(system: &System, definitions: &Definitions) -> Option<Guarded> {
        let (at, spec) = system.nodes.iter().enumerate().find(|(at, _)| {
            let node = NodeId(*at as u32);
            let told = definitions.modes.iter().filter(|mode| mode.node == node).count();
            told > system.modes.iter().filter(|mode| mode.node == node).count()
        })?;
        let node = NodeId(at as u32);
        let told = definitions.modes.iter().rfind(|mode| mode.node == node)?;
        let named = adaptive::strategy(system, &told.strategy);
        let plain = told.strategy.strip_suffix(TO_COMPLETION).unwrap_or(&told.strategy);
        // The file may lack the strategy. Then any will do: the bounds do not hold with any.
        let strategy = named.or_else(|_| adaptive::strategy(system, plain)).unwrap_or(spec.strategy);
        let calm = system.strategy_name(spec.strategy);
        let calm = calm.strip_suffix(TO_COMPLETION).unwrap_or(calm).to_owned();
        Some(Guarded { node, calm, guard: plain.to_owned(), strategy })
    }

    /// The System with a switch to the guard, so that only deadlines are proven that both strategies
    /// keep.
    fn with_guard_mode(&self, system: &System) -> System {
        let mut guarded = system.clone();
        let at = Time::ZERO.saturating_add(Span::FILE_MAX);
        guarded.modes.push(Mode { node: self.node, at, strategy: self.strategy });
        guarded
    }
}

struct Commands<'a> {
    options: &'a args::Report,
    back_end: Option<BackEnd>,
    seed: u64,
    duration: Span,
    length: Option<Span>,
    node: Option<&'a str>,
    /// The guard of the log's controller.
    guard: Option<&'a str>,
    /// The option with which the log's delays were chosen.
    delays: Option<&'a str>,
    simulates: bool,
    /// Its run exchanged messages with other nodes.
    sends: bool,
    /// Whether check and simulation are of the system that the log carries.
    as_run: bool,
}

impl Commands<'_> {
    fn all(&self) -> Vec<String> {
        let Commands { options, seed, duration, .. } = self;
        let is_log = options.logs.is_empty() && self.back_end.is_some();
        let logs = if is_log { std::slice::from_ref(&options.file) } else { &options.logs[..] };
        // The system of a log alone is on the page.
        let (mut lines, system) = if is_log || options.file == "-" {
            let copy = "# system.toml: the file that stands on this page".to_owned();
            (vec![copy], "system.toml".to_owned())
        } else {
            (Vec::new(), quoted(&options.file))
        };
        let named = |log: &String| if log == "-" { "log.takt".to_owned() } else { quoted(log) };
        let logs: Vec<String> = logs.iter().map(named).collect();
        let log = logs.first().cloned();
        let judged = log.as_ref().filter(|_| self.as_run).unwrap_or(&system);
        lines.push(format!("takt check {judged}"));
        let node = self.node.map(|node| format!(" --node {}", quoted(node))).unwrap_or_default();
        let node = node + &self.guard.map(|guard| format!(" --adaptive {}", quoted(guard))).unwrap_or_default();
        let sim = format!("takt sim {judged} --for {duration} --seed {seed}");
        let sim = Some(sim).filter(|_| self.simulates);
        let mut again = format!(" --seed {seed} --for {duration}");
        match (self.back_end, &log) {
            (Some(BackEnd::Sim), Some(log)) => {
                let delays = self.delays.map(|list| format!(" --delays {}", quoted(list))).unwrap_or_default();
                lines.push(format!("takt sim {system}{node} --for {duration} --seed {seed}{delays} -o {log}"));
                again.clear();
            }
            // Each node has a command of its own.
            (Some(_), Some(_)) if logs.len() > 1 => {
                lines.extend(sim);
                lines.push("# each node: takt run, as docs/how-to/run-flows-over-machines.md shows".to_owned());
            }
            (Some(back_end), Some(log)) => {
                lines.extend(sim);
                let length = self.length.map(|length| format!(" --for {length}")).unwrap_or_default();
                let messages =
                    if self.sends { " --listen ADDRESS:PORT --peer NODE=ADDRESS:PORT --key FILE" } else { "" };
                let node = node + messages;
                match back_end {
                    BackEnd::Run => lines.push(format!("sudo takt run {system}{node}{length} --seed {seed} -o {log}")),
                    BackEnd::RunBestEffort => {
                        lines.push(format!("takt run {system}{node}{length} --seed {seed} --best-effort -o {log}"));
                    }
                    _ => {}
                }
            }
            _ => lines.extend(sim),
        }
        let logs: String = logs.iter().map(|log| format!(" {log}")).collect();
        lines.push(format!("takt report {system}{logs}{again}{}", page_option(options)));
        lines
    }
}

/// The delays that a simulation was given, from the note in its log.
fn delays_of(header: &Header) -> Option<&str> {
    header.notes.iter().find_map(|note| note.strip_prefix(super::sim::DELAYS_NOTE))
}

/// The page's path, as an option.
fn page_option(options: &args::Report) -> String {
    match options.output.0.as_str() {
        "-" | args::REPORT => String::new(),
        page => format!(" -o {}", quoted(page)),
    }
}
