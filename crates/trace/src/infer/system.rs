//! A System of what was inferred, and its text with the evidence beside each task.

use std::fmt::Write as _;

use takt_log::ThreadClass;
use takt_model::file::{one_line, validate, write};
use takt_model::{Arrival, Builtin, ComponentId, CpuSet, Exec, NodeSpec, Span, StrategyRef, System, Task, TaskId};

use super::exec::rounded_down;
use super::{DeadlineSource, Inferred, InferredTask, Kind, POINTS_MAX};

/// The predecessors of a job may have periods that differ by this part. They are made equal.
const ONE_PERIOD_PART: u64 = 1000;

/// Choices that a log does not determine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SystemOptions {
    /// The strategy of all nodes. `None`: as the log's definitions name it, if it needs nothing
    /// else; else EDF.
    pub strategy: Option<Builtin>,
    /// WCET of tasks of which no execution was seen.
    pub wcet: Option<Span>,
    /// Bind tasks to the CPUs that they were seen on.
    pub bind: bool,
}

/// A System with the evidence for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Written {
    /// The System.
    pub system: System,
    /// Its file, with the evidence in comments.
    pub text: String,
    /// Tasks and flows that are not in it, and why.
    pub left_out: Vec<(String, &'static str)>,
    /// Components that are not in it, and why. Their tasks stand without them.
    pub components_left_out: Vec<(String, &'static str)>,
}

impl Inferred {
    /// The System that was seen. A task of unknown kind counts as sporadic with the least distance
    /// seen, which is the safe side.
    #[must_use]
    pub fn system(&self, options: &SystemOptions) -> Written {
        let mut left_out = Vec::new();
        let mut place: Vec<Option<usize>> = Vec::new();
        let mut kept: Vec<&InferredTask> = Vec::new();
        let of_flows = self.traffic.tasks();
        for (i, task) in self.tasks.iter().enumerate() {
            if of_flows.contains(&TaskId(i as u32)) {
                place.push(None);
                continue;
            }
            let reason = reason_left_out(task, options);
            place.push(reason.is_none().then_some(kept.len()));
            match reason {
                Some(why) => left_out.push((task.name.clone(), why)),
                None => kept.push(task),
            }
        }
        let nodes = self.nodes.iter().map(|node| {
            let given = Builtin::by_name(&node.strategy).filter(|builtin| !matches!(builtin, Builtin::Fp));
            let strategy = options.strategy.or(given).unwrap_or(Builtin::Edf);
            NodeSpec::new(&node.name, node.cpus.clamp(1, CpuSet::CPUS_MAX), StrategyRef::Builtin(strategy))
        });
        let mut nodes: Vec<NodeSpec> = nodes.collect();
        if nodes.is_empty() {
            nodes.push(NodeSpec::new("local", 1, StrategyRef::Builtin(Builtin::Edf)));
        }
        let mut components = self.written_components(&nodes, options);
        let home = |task: &InferredTask| components.place.get(task.component?).copied().flatten();
        let mut unchained: Vec<Task> = kept.iter().map(|task| unchained_task(task, home(task), options)).collect();
        let mut tasks = unchained.clone();
        let after: Vec<Vec<usize>> = kept
            .iter()
            .map(|task| task.links.after.iter().filter_map(|link| place[link.task.index()]).collect())
            .collect();
        chain(&mut tasks, &kept, after);
        let mut system = System::local(1, Builtin::Edf, tasks);
        "inferred".clone_into(&mut system.name);
        system.nodes = nodes;
        system.components = std::mem::take(&mut components.components);
        make_names_unique(&mut system);
        let flows = self.add_traffic(&mut system, options, &mut left_out);
        components.give_up_if(&mut system, &mut unchained, |bare| validate(bare).is_ok());
        if validate(&system).is_err() {
            // Chains that join in ways that leave them no common period.
            system.tasks = unchained;
            make_names_unique(&mut system);
        }
        if !system.flows.is_empty() && validate(&system).is_err() {
            left_out.extend(system.flows.drain(..).map(|flow| (flow.name, "no file can hold it beside the rest")));
            (system.networks, system.clock.sync) = (Vec::new(), None);
            system.nodes.iter_mut().for_each(|node| (node.receive, node.send) = (None, None));
        }
        components.give_up_if(&mut system, &mut [], |_| true);
        system.notes = notes(&kept, &system);
        let evidence = Comments { flows: &flows, components: &components.comments };
        let components_left_out = components.left_out;
        let all_left_out: Vec<_> = left_out.iter().chain(&components_left_out).cloned().collect();
        let text = annotate(&write(&system), &kept, &system, &self.tasks, &evidence, &all_left_out);
        Written { system, text, left_out, components_left_out }
    }
}

/// The scheduling of the threads, if it differs from the System's.
fn notes(kept: &[&InferredTask], system: &System) -> Vec<String> {
    const NAMES_MAX: usize = 3;
    let by_edf = |task: &InferredTask| {
        system.nodes.get(task.node.index()).is_some_and(|node| node.strategy == StrategyRef::Builtin(Builtin::Edf))
    };
    let mut notes = Vec::new();
    for class in ThreadClass::ALL {
        // EDF is what SCHED_DEADLINE goes by.
        let other =
            |task: &&&InferredTask| task.class == Some(class) && !(class == ThreadClass::Deadline && by_edf(task));
        let others: Vec<&str> = kept.iter().filter(other).map(|task| task.name.as_str()).collect();
        if others.is_empty() {
            continue;
        }
        let names: Vec<String> = others.iter().take(NAMES_MAX).map(|name| format!("\"{}\"", one_line(name))).collect();
        let more = if others.len() > NAMES_MAX { ", ..." } else { "" };
        notes.push(format!(
            "{} of {} tasks were seen under {} ({}{more}): a verdict holds once they run under the strategy \
             that this file states",
            others.len(),
            kept.len(),
            class.name(),
            names.join(", ")
        ));
    }
    notes
}

/// The task without its chain: as if it followed no other task.
fn unchained_task(task: &InferredTask, component: Option<ComponentId>, options: &SystemOptions) -> Task {
    let period = task.period().unwrap_or(Span::FILE_MAX);
    let wcet = task.exec.as_ref().map(|exec| exec.max).or(options.wcet).unwrap_or(Span::FILE_MAX);
    let mut out = Task::periodic(&task.name, period, wcet);
    (out.node, out.component) = (task.node, component);
    out.offset = Span::from_ns(task.offset().as_ns());
    out.jitter = task.jitter;
    if let Some(exec) = task.exec.as_ref().filter(|exec| exec.pmf.len() > 1) {
        out.exec = Exec::Pmf(exec.pmf.clone());
    }
    match task.arrivals.kind {
        Kind::Periodic => {}
        Kind::Sporadic | Kind::Unknown => {
            let distances = rounded_down(&task.arrivals.distances, POINTS_MAX);
            out.arrival = if distances.len() > 1 && task.arrivals.kind == Kind::Sporadic {
                Arrival::Pmf(distances)
            } else {
                Arrival::Sporadic
            };
        }
        Kind::Aperiodic => {
            out.arrival = Arrival::Sporadic;
            out.jitter = out.jitter.saturating_add(task.arrivals.backlog);
            // Deadlines count from nominal arrivals, which lie up to the jitter before the
            // releases.
            out.deadline = period.saturating_add(out.jitter);
        }
    }
    if let Some((deadline, _)) = task.deadline {
        out.deadline = deadline;
    } else if out.jitter.saturating_add(wcet) > out.deadline {
        // A job may be released so late that no deadline at the period's end could be met.
        out.deadline = period.saturating_add(out.jitter);
    }
    // The tasks of a component run where its servers do.
    if options.bind && out.component.is_none() && !task.cpus.is_empty() {
        out.cpus = Some(task.cpus.iter().fold(CpuSet::default(), |mut set, cpu| {
            set.insert(*cpu);
            set
        }));
    }
    out
}

/// Why a task cannot be in the System. `None` if it can.
fn reason_left_out(task: &InferredTask, options: &SystemOptions) -> Option<&'static str> {
    if task.exec.is_none() && options.wcet.is_none() {
        Some("no job of it was seen from release to completion, so its wcet is unknown")
    } else if task.period().is_none() && task.links.after.is_empty() {
        Some("its jobs have no distances that could be a period")
    } else {
        None
    }
}

/// Adds the links between tasks. A chain has the period of its sources. Tasks whose sources have
/// different periods stay without links.
fn chain(tasks: &mut [Task], kept: &[&InferredTask], after: Vec<Vec<usize>>) {
    let mut done: Vec<bool> = after.iter().map(Vec::is_empty).collect();
    // The sources of each task, itself if it follows nothing.
    let mut sources: Vec<Vec<usize>> = (0..tasks.len()).map(|i| if done[i] { vec![i] } else { Vec::new() }).collect();
    for _ in 0..tasks.len() {
        for i in 0..tasks.len() {
            if done[i] || !after[i].iter().all(|before| done[*before]) {
                continue;
            }
            done[i] = true;
            let mut all: Vec<usize> = after[i].iter().flat_map(|before| sources[*before].clone()).collect();
            all.sort_unstable();
            all.dedup();
            let periods = all.iter().map(|source| tasks[*source].period.as_ns());
            let (Some(least), Some(most)) = (periods.clone().min(), periods.max()) else { continue };
            if most - least > least / ONE_PERIOD_PART {
                sources[i] = vec![i];
                continue;
            }
            for source in &all {
                set_period(&mut tasks[*source], Span::from_ns(least));
            }
            let task = &mut tasks[i];
            task.after = after[i].iter().map(|before| TaskId(*before as u32)).collect();
            (task.offset, task.jitter, task.arrival) = (Span::ZERO, Span::ZERO, Arrival::Periodic);
            task.period = Span::from_ns(least);
            task.deadline = kept[i].deadline.map_or(task.period, |(deadline, _)| deadline);
            sources[i] = all;
        }
    }
    // Followers get the periods of sources that changed after them.
    for _ in 0..tasks.len() {
        for i in 0..tasks.len() {
            if let Some(first) = tasks[i].after.first() {
                let period = tasks[first.index()].period;
                set_period(&mut tasks[i], period);
            }
        }
    }
}

fn set_period(task: &mut Task, period: Span) {
    if task.deadline == task.period {
        task.deadline = period;
    }
    task.period = period;
}

/// Gives tasks and components unique names that a file can hold.
fn make_names_unique(system: &mut System) {
    make_unique(system.tasks.iter_mut().map(|task| &mut task.name), None);
    // "root" is the name of the node itself.
    make_unique(system.components.iter_mut().map(|component| &mut component.name), Some("root"));
}

fn make_unique<'a>(names: impl Iterator<Item = &'a mut String>, reserved: Option<&str>) {
    let mut seen: std::collections::BTreeSet<String> = reserved.map(str::to_owned).into_iter().collect();
    for name in names {
        let plain = match one_line(name.as_str()).as_ref() {
            "" => "unnamed".to_owned(),
            name => name.to_owned(),
        };
        name.clone_from(&plain);
        let mut number = 1;
        while !seen.insert(name.clone()) {
            number += 1;
            *name = format!("{plain} ({number})");
        }
    }
}

/// Comments of flows and components, in the order of the System.
struct Comments<'a> {
    flows: &'a [String],
    components: &'a [Vec<String>],
}

fn annotate(
    text: &str,
    kept: &[&InferredTask],
    system: &System,
    all: &[InferredTask],
    comments: &Comments,
    left_out: &[(String, &str)],
) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    out.push_str(
        "# Inferred from what was seen: no worst case, no guarantee. Shares hold at 95 % confidence, \
         if later jobs are like those seen.\n",
    );
    out.push_str(
        "# A deadline that the log does not give is the period, plus the jitter where a job would have no time \
         otherwise.\n",
    );
    for (name, why) in left_out {
        let _ = writeln!(out, "# Left out: \"{}\": {why}.", one_line(name));
    }
    let mut tasks = kept.iter().zip(&system.tasks);
    let mut flows = comments.flows.iter();
    let mut components = comments.components.iter();
    for line in text.lines() {
        if line == "[[flow]]" {
            flows.next().into_iter().for_each(|told| out.push_str(told));
        }
        if line == "[[component]]" {
            for line in components.next().into_iter().flatten() {
                let _ = writeln!(out, "# {}", one_line(line));
            }
        }
        if line == "[[task]]"
            && let Some((task, written)) = tasks.next()
        {
            for line in evidence(task, written, system, all) {
                let _ = writeln!(out, "# {}", one_line(&line));
            }
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

fn evidence(task: &InferredTask, written: &Task, system: &System, all: &[InferredTask]) -> Vec<String> {
    let arrivals = &task.arrivals;
    let percent = |share: f64| format!("{:.1} %", (share * 1000.0).floor() / 10.0);
    let mut lines = Vec::new();
    if !written.after.is_empty() {
        let names = written.after.iter().map(|id| format!("\"{}\"", system.tasks[id.index()].name));
        let lag = task.links.after.iter().map(|link| link.lag).max().unwrap_or_default();
        let share = task.links.after.first().map_or(0.0, |link| link.confidence);
        lines.push(format!(
            "{} jobs, each released within {lag} of a completion of {}: at least {} of all.",
            task.jobs,
            names.collect::<Vec<_>>().join(" or "),
            percent(share)
        ));
    } else if let Some(grid) = arrivals.grid {
        lines.push(format!(
            "{}, {} jobs: {}; at least {} of all.",
            arrivals.kind.name(),
            task.jobs,
            arrivals.why,
            percent(arrivals.confidence)
        ));
        let mut line = format!("Period {} to {}", grid.period_min, grid.period_max);
        if grid.outliers > 0 {
            let _ = write!(line, "; jitter {} but for {} outliers", grid.typical_jitter, grid.outliers);
        }
        if grid.skipped + grid.explained > 0 {
            let _ = write!(
                line,
                "; {} periods without a job, {} of them for a reason",
                grid.skipped + grid.explained,
                grid.explained
            );
        }
        if grid.group > 1 {
            let _ = write!(line, "; jobs come in groups of {}", grid.group);
        }
        lines.push(line + ".");
    } else {
        let mean = arrivals.mean.map_or(String::new(), |mean| format!(", {mean} in the mean"));
        lines.push(format!("{}, {} jobs: {}.", arrivals.kind.name(), task.jobs, arrivals.why));
        if let (Some(two), Some(last)) = (arrivals.curve.first(), arrivals.curve.last()) {
            let share = if arrivals.confidence > 0.0 {
                format!("; at least {} are no shorter", percent(arrivals.confidence))
            } else {
                String::new()
            };
            lines.push(format!(
                "Distances {} to {}{mean}; {} jobs within {}{share}.",
                two.min, two.max, last.jobs, last.min
            ));
        }
        if arrivals.kind == Kind::Aperiodic {
            lines.push(format!(
                "Period: the mean distance. Jitter: the least that covers the arrivals seen ({}).",
                written.jitter
            ));
        }
        if arrivals.kind == Kind::Unknown {
            lines.push("Written as sporadic, with the least distance seen.".to_owned());
        }
    }
    match &task.exec {
        Some(exec) => lines.push(format!(
            "Execution {} to {}, {} in the mean, of {} jobs; at least {} need no more than the most seen.",
            exec.min,
            exec.max,
            exec.mean,
            exec.jobs,
            percent(exec.confidence)
        )),
        None => lines.push("Execution was not seen: the wcet was given.".to_owned()),
    }
    if let Some((_, source)) = task.deadline {
        lines.push(match source {
            DeadlineSource::Class => "Deadline: of its scheduling class.".to_owned(),
            DeadlineSource::Misses => "Deadline: that of missed jobs.".to_owned(),
        });
    }
    if let Some(latency) = task.latency {
        lines.push(format!("Jobs began up to {latency} after their arrival, waiting for the CPU included."));
    }
    for id in &task.links.maybe {
        if let Some(name) = all.get(id.index()).map(|task| &task.name) {
            lines.push(format!(
                "Its jobs come right after those of \"{name}\", but also on a grid: a chain, or an \
                 offset."
            ));
        }
    }
    if task.gaps > 0 {
        lines.push(format!("Events were lost {} times between its jobs.", task.gaps));
    }
    if let Some(cpu) = task.cpus.last() {
        let all: Vec<String> = task.cpus.iter().map(ToString::to_string).collect();
        let cpus = if *cpu == 0 || all.len() == 1 { format!("CPU {cpu}") } else { format!("CPUs {}", all.join(", ")) };
        lines.push(format!("Seen on {cpus}."));
    }
    lines
}
