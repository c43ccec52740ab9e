//! `takt stats`: the numbers of a log, of its whole or as it comes.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use takt_linux::signals::StopSignals;
use takt_log::causes::{Causes, Rules};
use takt_log::stats::{Collector, Distribution, InterruptStats, Point, Quantity, Stats, TaskStats};
use takt_log::{BackEnd, Definition, Event, Sink};
use takt_model::{Span, Time};

use super::sim::{caveat, has_failed, verdict};
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input::{self, Log};
use crate::live::Live;
use crate::numbers::{Caveat, causes, details, interrupt_word, interval, late, numbers};
use crate::output::{Target, note, print, print_json};
use crate::serve::Server;
use crate::table::Rows;

/// How often a server looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(200);
/// Most empty intervals in a row with a report each. A longer run of them gets a single report.
const EMPTY_MAX: u64 = 1000;

pub(crate) fn execute(options: &args::Stats, json: bool) -> Outcome {
    if let Some(address) = &options.serve {
        return serve(address, &options.log);
    }
    let mut log = input::log(&options.log)?;
    if let Some(every) = options.every {
        return intervals(options, every, &mut log, json);
    }
    let mut stats = explained(&options.log, &mut log)?;
    input::warn_of_damage(&options.log, &log.damage());
    let whole = verdict(&stats, options.fail_on_miss);
    only(&mut stats, options)?;
    if let Some((quantity, cumulative)) = wanted(options) {
        distribution(&stats, options, quantity, cumulative, json)?;
    } else if json {
        print_json(&stats)?;
    } else {
        let more = if options.all { details(&stats) } else { String::new() };
        let (caveat, rows) = (log_caveat(&options.log, &log, &stats), Rows::unless(options.all));
        print(&(numbers(&stats, caveat, rows) + &late(&stats, rows) + &more))?;
    }
    Ok(whole)
}

fn explained(path: &str, log: &mut Log) -> Result<Stats, Failure> {
    let failure = |error| input::log_failure(path, &error);
    let system = input::system_of(path, log).ok();
    let rules = Rules::of(log.header(), system.as_ref());
    let mut causes = Causes::new(rules, log.definitions());
    let mut collector = Collector::for_log(log.header(), log.definitions());
    // Causes need all events, and take longer than all other numbers. Most logs have no late job: so
    // a file is read a second time if it has one. A pipe can be read once only.
    if path == "-" {
        let mut both = (collector, causes);
        let end = log.copy_to(&mut both).map_err(failure)?;
        let (collector, causes) = both;
        let mut stats = collector.finish(end);
        stats.explain(causes.finish(end).as_ref());
        return Ok(stats);
    }
    let end = log.copy_to(&mut collector).map_err(failure)?;
    let mut stats = collector.finish(end);
    if stats.missed() > 0 {
        input::log(path)?.copy_to(&mut causes).map_err(failure)?;
    }
    stats.explain(causes.finish(end).as_ref());
    Ok(stats)
}

/// Only a simulation needs a caveat: somebody may take it for a proof.
fn log_caveat(path: &str, log: &Log, stats: &Stats) -> Caveat {
    if log.header().back_end != BackEnd::Sim {
        return Caveat::None;
    }
    let duration = Span::from_ns(stats.duration_ns);
    input::system_of(path, log).map_or(Caveat::CheckProves, |system| caveat(&system, duration))
}

/// Keeps the requested tasks and interrupts only. They must exist.
fn only(stats: &mut Stats, options: &args::Stats) -> Result<(), Failure> {
    let tasks = || stats.tasks.iter().map(|task| task.task.as_str());
    let interrupts = || stats.interrupts.iter().flatten().map(|one| one.interrupt.as_str());
    if let Some(unknown) = options.task.iter().find(|name| tasks().all(|task| task != **name)) {
        return Err(unnamed("task", unknown, tasks(), &options.log));
    }
    if let Some(unknown) = options.irq.iter().find(|name| interrupts().all(|one| one != **name)) {
        return Err(unnamed("interrupt", unknown, interrupts(), &options.log));
    }
    keep(stats, options);
    Ok(())
}

fn unnamed<'a>(what: &str, unknown: &str, mut known: impl Iterator<Item = &'a str>, log: &str) -> Failure {
    const NAMED: usize = 20;
    let names: Vec<String> = known.by_ref().take(NAMED).map(|name| format!("\"{name}\"")).collect();
    let more = if known.next().is_some() { ", ..." } else { "" };
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Failure::input(format_args!("no {what} is called \"{unknown}\"; {} has {names}{more}", input::shown(log)))
}

fn keep(stats: &mut Stats, options: &args::Stats) {
    if !options.task.is_empty() {
        stats.tasks.retain(|task| options.task.contains(&task.task));
        stats.messages.retain(|messages| options.task.contains(&messages.task));
    }
    if let Some(interrupts) = stats.interrupts.as_mut().filter(|_| !options.irq.is_empty()) {
        interrupts.retain(|one| options.irq.contains(&one.interrupt));
    }
}

/// The distribution that is asked for, and whether as CDF.
fn wanted(options: &args::Stats) -> Option<(Quantity, bool)> {
    let (name, cumulative) = match (&options.cdf, &options.pmf) {
        (Some(name), _) => (name, true),
        (None, Some(name)) => (name, false),
        (None, None) => return None,
    };
    Quantity::ALL.into_iter().find(|quantity| quantity.name() == name).map(|quantity| (quantity, cumulative))
}

#[derive(Serialize)]
struct Drawn<'a> {
    quantity: &'static str,
    function: &'static str,
    tasks: Vec<DrawnTask<'a>>,
    /// Null where the log tells of none, or they have no such time.
    interrupts: Option<Vec<DrawnInterrupt<'a>>>,
}

#[derive(Serialize)]
struct DrawnTask<'a> {
    task: &'a str,
    node: &'a str,
    count: u64,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct DrawnInterrupt<'a> {
    interrupt: &'a str,
    node: Option<&'a str>,
    kind: Option<&'static str>,
    count: u64,
    points: Vec<Point>,
}

fn distribution(
    stats: &Stats,
    options: &args::Stats,
    quantity: Quantity,
    cumulative: bool,
    json: bool,
) -> Result<(), Failure> {
    let points = |distribution: &Distribution| -> Vec<Point> {
        if cumulative { distribution.cdf().collect() } else { distribution.pmf().collect() }
    };
    // A filter for one kind excludes the other kind.
    let (tasks, interrupts) = (&options.task, &options.irq);
    let of_tasks = !tasks.is_empty() || interrupts.is_empty();
    let of_interrupts = !interrupts.is_empty() || tasks.is_empty();
    let function = if cumulative { "cdf" } else { "pmf" };
    let drawn = stats.tasks.iter().filter(|_| of_tasks).map(|task| {
        let distribution = task.distribution(quantity);
        DrawnTask { task: &task.task, node: &task.node, count: distribution.count, points: points(&distribution) }
    });
    let of = |one: &InterruptStats| one.distribution(quantity);
    let handlers = stats.interrupts.as_ref().filter(|_| quantity.is_of_interrupts()).map(|all| {
        let drawn = all.iter().filter(|_| of_interrupts).map(|one| DrawnInterrupt {
            interrupt: &one.interrupt,
            node: one.node.as_deref(),
            kind: one.kind,
            count: of(one).count,
            points: points(&of(one)),
        });
        drawn.collect()
    });
    let drawn = Drawn { quantity: quantity.name(), function, tasks: drawn.collect(), interrupts: handlers };
    if json {
        return print_json(&drawn);
    }
    let mut text = "node,task,value_ns,count,probability,what\n".to_owned();
    let mut lines = |node: &str, name: &str, what: &str, points: &[Point]| {
        let (node, name) = (takt_report::csv::field(node), takt_report::csv::field(name));
        for point in points {
            text += &format!("{node},{name},{},{},{},{what}\n", point.value_ns, point.count, point.probability);
        }
    };
    drawn.tasks.iter().for_each(|task| lines(task.node, task.task, "task", &task.points));
    for one in drawn.interrupts.iter().flatten() {
        lines(one.node.unwrap_or_default(), one.interrupt, interrupt_word(one.kind), &one.points);
    }
    print(&text)
}

/// One report an interval, written as soon as the log is past it.
struct Every<'a> {
    options: &'a args::Stats,
    collector: Collector,
    causes: Causes,
    every: Span,
    from: Time,
    json: bool,
    out: Box<dyn Write>,
    missed: bool,
    failed: Option<Failure>,
}

#[derive(Serialize)]
struct Line<'a> {
    from_ns: u64,
    to_ns: u64,
    #[serde(flatten)]
    stats: &'a Stats,
}

fn intervals(options: &args::Stats, every: Span, log: &mut Log, json: bool) -> Outcome {
    if every.is_zero() {
        return Err(Failure::input("--every is zero; give a duration like 1s"));
    }
    let system = input::system_of(&options.log, log).ok();
    let mut sink = Every {
        options,
        causes: Causes::new(Rules::of(log.header(), system.as_ref()), log.definitions()),
        collector: Collector::for_log(log.header(), log.definitions()),
        every,
        from: Time::ZERO,
        json,
        out: Target::stdout().open()?,
        missed: false,
        failed: None,
    };
    let ended = log.copy_while(&mut sink, |sink| sink.failed.is_none());
    let ended = ended.map_err(|error| input::log_failure(&options.log, &error))?;
    if ended {
        let end = log.end();
        sink.come_to(end);
        // An interval that ends with the log has been reported. It includes events at its very end.
        let mut last = sink.collector.clone().finish(end);
        last.explain(sink.causes.clone().finish(end).as_ref());
        let late = |task: &TaskStats| task.late.iter().flatten().any(|late| late.jobs > 0);
        let happened =
            || last.missed() > 0 || last.tasks.iter().any(|task| task.released + task.completed > 0 || late(task));
        if end > sink.from || end == Time::ZERO || happened() {
            sink.write_report(end, last);
        }
        input::warn_of_damage(&options.log, &log.damage());
    }
    match sink.failed {
        Some(failure) if !failure.message.is_empty() => Err(failure),
        _ if sink.missed && options.fail_on_miss => Ok(Status::No),
        _ => Ok(Status::Yes),
    }
}

impl Every<'_> {
    fn come_to(&mut self, now: Time) {
        let mut empty = 0;
        while self.failed.is_none() && now.saturating_since(self.from) >= self.every {
            let mut to = self.from.saturating_add(self.every);
            empty += 1;
            if empty > EMPTY_MAX {
                let steps = now.saturating_since(self.from).as_ns() / self.every.as_ns();
                to = self.from.saturating_add(Span::from_ns(steps * self.every.as_ns()));
            }
            let mut stats = self.collector.cut(to);
            stats.explain(self.causes.cut().as_ref());
            self.write_report(to, stats);
        }
    }

    fn write_report(&mut self, to: Time, mut stats: Stats) {
        self.missed |= has_failed(&stats);
        keep(&mut stats, self.options);
        let text = if self.json {
            let line = Line { from_ns: self.from.as_ns(), to_ns: to.as_ns(), stats: &stats };
            serde_json::to_string(&line).map(|line| line + "\n").unwrap_or_default()
        } else {
            let more = if self.options.all { details(&stats) } else { String::new() };
            let rows = Rows::unless(self.options.all);
            interval(self.from, to, &stats, rows) + &causes(&stats, rows) + &more + "\n"
        };
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        self.failed = Target::stdout().check(written).err();
        self.from = to;
    }
}

impl Sink for Every<'_> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if now.saturating_since(self.from) >= self.every {
            self.come_to(now);
        }
        self.collector.event(stream, now, event);
        self.causes.event(stream, now, event);
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.collector.define(stream, now, definition);
        self.causes.define(stream, now, definition);
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

/// Serves the numbers so far until a signal comes.
fn serve(address: &str, log: &str) -> Outcome {
    let server = Server::bind(address)?;
    let signals = StopSignals::catch();
    let live = Live::follow(log)?;
    note(format_args!("serving {} until interrupted (Ctrl-C)", server.url()));
    while signals.caught().is_none() {
        live.progress()?;
        server.answer(PATIENCE, &live)?;
    }
    Ok(Status::Yes)
}
