//! `takt infer`: a system from what happened.

use std::path::Path;

use serde_json::{Value, json};
use takt_log::NodeDef;
use takt_model::{Builtin, Bytes, Span, file};
use takt_trace::infer::{
    Inferred, InferredTask, Kind, MessageSampler, SERVERS_MAX, Sampler, ServerSampler, SystemOptions, TASKS_MAX,
    parse_releases,
};

use crate::args::Infer;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::output::{Target, note, print, print_json};
use crate::table::{Rows, Table, or_dash, time};

mod components;

pub(crate) fn execute(options: &Infer, json: bool) -> Outcome {
    let mut inferred = match &options.log {
        Some(path) => of_log(path, !options.ignore_arrivals)?,
        None => of_releases(&options.releases)?,
    };
    let names: Vec<String> = options.period_of.iter().chain(&options.task).cloned().collect();
    if !names.is_empty() {
        inferred.keep(&names).map_err(|name| unknown(&name, &inferred))?;
    }
    let written = inferred.system(&SystemOptions {
        strategy: options.strategy.as_deref().and_then(Builtin::by_name),
        wcet: options.wcet,
        bind: options.bind,
    });
    if let Some(target) = &options.output {
        if options.strategy.is_none() {
            inferred.nodes.iter().filter_map(not_inferred).for_each(|sentence| note(format_args!("note: {sentence}")));
        }
        for (name, why) in &written.left_out {
            note(format_args!("warning: task \"{}\" is left out: {why}{}", file::one_line(name), hint(why)));
        }
        components::notes(&inferred, &written).iter().for_each(note);
        if !written.system.flows.is_empty() {
            note(
                "note: flows have the delays and distances of their messages; links, ports, shares of bandwidth, and \
                 drift of clocks are not inferred",
            );
        }
        if written.system.tasks.is_empty() && written.system.flows.is_empty() {
            return Err(Failure::no("no task could be inferred; nothing is written"));
        }
        file::validate(&written.system)
            .map_err(|errors| Failure::trouble(format_args!("the inferred system is not sound, a bug: {errors}")))?;
        target.write(written.text.as_bytes())?;
    }
    if json {
        let tasks_left_out = written.left_out.iter().map(|(task, why)| json!({ "task": task, "why": why }));
        let components = &written.components_left_out;
        let components_left_out = components.iter().map(|(name, why)| json!({ "component": name, "why": why }));
        let left_out: Vec<Value> = tasks_left_out.chain(components_left_out).collect();
        let tasks: Vec<Value> = inferred.tasks.iter().map(|task| entry(task, &inferred)).collect();
        let mut answer = json!({ "tasks": tasks, "left_out": left_out });
        if !inferred.traffic.flows.is_empty() {
            (answer["flows"], answer["networks"]) = traffic(&inferred);
        }
        if !inferred.components.is_empty() {
            answer["components"] = components::entries(&inferred);
        }
        print_json(&answer)?;
    } else if options.period_of.is_none() && !options.output.as_ref().is_some_and(Target::is_stdout) {
        print(&describe(&inferred))?;
    }
    if options.period_of.is_some() {
        return period(&inferred, json);
    }
    Ok(if inferred.tasks.is_empty() { Status::No } else { Status::Yes })
}

fn of_log(path: &str, nominal: bool) -> Result<Inferred, Failure> {
    let mut log = input::log(path)?;
    let mut sampler = Sampler::new(log.header(), nominal);
    let (mut messages, mut servers) = (MessageSampler::default(), ServerSampler::new(log.definitions()));
    let mut all = (&mut sampler, (&mut messages, &mut servers));
    log.copy_to(&mut all).map_err(|error| input::log_failure(path, &error))?;
    input::warn_of_damage(path, &log.damage());
    let tasks = log.definitions().tasks.len();
    if tasks > TASKS_MAX {
        note(format_args!(
            "warning: {}: only the first {TASKS_MAX} of its {tasks} tasks are looked at; observe fewer threads \
             (--comm, --pid, --cgroup)",
            input::shown(path)
        ));
    }
    let samples = sampler.finish(log.definitions());
    let count = log.definitions().servers.len();
    if count > SERVERS_MAX {
        note(format_args!(
            "warning: {}: only the first {SERVERS_MAX} of its {count} servers are looked at",
            input::shown(path)
        ));
    }
    let inferred = Inferred::of_log(&samples, log.header(), log.definitions());
    let inferred = inferred.with_messages(&messages, log.definitions()).with_servers(&servers);
    if messages.saw_messages() && inferred.traffic.flows.is_empty() {
        note("note: the log has messages, but none of them was seen to release a job, so no flow is inferred");
    }
    Ok(inferred)
}

fn of_releases(paths: &[String]) -> Result<Inferred, Failure> {
    let files = paths.iter().map(|path| {
        let text = input::text(path, "CSV")?;
        let releases =
            parse_releases(&text).map_err(|error| Failure::located(format_args!("{}:{error}", input::shown(path))))?;
        if releases.is_empty() {
            return Err(Failure::input(format_args!(
                "{} has no release; a line is RELEASE or RELEASE,EARLIEST,LATEST in whole nanoseconds",
                input::shown(path)
            )));
        }
        let name = Path::new(path).file_stem().map_or_else(|| path.clone(), |stem| stem.to_string_lossy().into_owned());
        Ok((name, releases))
    });
    Ok(Inferred::of_releases(files.collect::<Result<_, Failure>>()?))
}

/// The note on a node with a strategy that its name does not describe completely.
fn not_inferred(node: &NodeDef) -> Option<String> {
    let told = matches!(Builtin::by_name(&node.strategy), Some(builtin) if builtin != Builtin::Fp);
    let why = match node.strategy.as_str() {
        "" => return None,
        _ if told => return None,
        "fp" => "priorities are not inferred",
        _ => "its levels are not inferred; a log of takt's own has them: \"takt check LOG\"",
    };
    let (name, strategy) = (file::one_line(&node.name), file::one_line(&node.strategy));
    Some(format!(
        "node \"{name}\" went by strategy \"{strategy}\", and edf is written: {why}; --strategy writes another"
    ))
}

fn unknown(name: &str, inferred: &Inferred) -> Failure {
    const NAMES_MAX: usize = 20;
    let names = inferred.tasks.iter().take(NAMES_MAX).map(|task| format!("\"{}\"", file::one_line(&task.name)));
    let more = if inferred.tasks.len() > NAMES_MAX { ", ..." } else { "" };
    let names = names.collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return Failure::no("no task released a job");
    }
    Failure::input(format_args!("no task called \"{}\" released a job; there are {names}{more}", file::one_line(name)))
}

fn hint(why: &str) -> &'static str {
    if why.contains("wcet") { " (--wcet gives one)" } else { "" }
}

fn period(inferred: &Inferred, json: bool) -> Outcome {
    let Some(task) = inferred.tasks.first() else { return Ok(Status::No) };
    let Some(grid) = task.arrivals.grid else {
        note(format_args!(
            "\"{}\" is {}: {}",
            file::one_line(&task.name),
            task.arrivals.kind.name(),
            task.arrivals.why
        ));
        return Ok(Status::No);
    };
    if !json {
        print(&format!("{}\n", grid.period))?;
    }
    Ok(Status::Yes)
}

fn ns(span: Option<Span>) -> Value {
    span.map_or(Value::Null, |span| json!(span.as_ns()))
}

fn entry(task: &InferredTask, inferred: &Inferred) -> Value {
    let arrivals = &task.arrivals;
    let grid = arrivals.grid.as_ref();
    let name = |id: &takt_model::TaskId| inferred.tasks.get(id.index()).map(|task| task.name.as_str());
    let component = |at: usize| inferred.components.get(at).map(|component| component.name.as_str());
    let curve: Vec<Value> = arrivals
        .curve
        .iter()
        .map(|apart| json!({ "jobs": apart.jobs, "min_ns": apart.min.as_ns(), "max_ns": apart.max.as_ns() }))
        .collect();
    let exec = task.exec.as_ref();
    let pmf: Option<Vec<Value>> = exec.map(|exec| {
        let probability = |p: takt_model::Probability| f64::from(p.billionths()) / 1e9;
        exec.pmf.iter().map(|(span, p)| json!([span.as_ns(), probability(*p)])).collect()
    });
    let after: Vec<Value> = task
        .links
        .after
        .iter()
        .map(|link| {
            json!({
                "task": name(&link.task), "jobs": link.jobs, "lag_ns": link.lag.as_ns(), "confidence": link.confidence,
            })
        })
        .collect();
    let mut entry = json!({
        "task": task.name,
        "node": inferred.nodes.get(task.node.index()).map(|node| &node.name),
        "kind": arrivals.kind.name(),
        "why": arrivals.why,
        "confidence": arrivals.confidence,
        "jobs": task.jobs,
        "period_ns": ns(task.period()),
        "period_min_ns": ns(grid.map(|grid| grid.period_min)),
        "period_max_ns": ns(grid.map(|grid| grid.period_max)),
        "offset_ns": task.offset().as_ns(),
        "jitter_ns": ns((arrivals.kind == Kind::Periodic).then_some(task.jitter)),
        "typical_jitter_ns": ns(grid.map(|grid| grid.typical_jitter)),
        "outliers": grid.map(|grid| grid.outliers),
        "skipped": grid.map(|grid| grid.skipped),
        "explained": grid.map(|grid| grid.explained),
        "group": grid.map(|grid| grid.group),
        "distance_mean_ns": ns(arrivals.mean),
        "curve": curve,
        "wcet_ns": ns(exec.map(|exec| exec.max)),
        "exec_min_ns": ns(exec.map(|exec| exec.min)),
        "exec_mean_ns": ns(exec.map(|exec| exec.mean)),
        "exec_pmf": pmf,
        "exec_jobs": exec.map_or(0, |exec| exec.jobs),
        "exec_confidence": exec.map(|exec| exec.confidence),
        "deadline_ns": ns(task.deadline.map(|(deadline, _)| deadline)),
        "deadline_from": task.deadline.map(|(_, source)| source.name()),
        "after": after,
        "maybe_after": task.links.maybe.iter().filter_map(name).collect::<Vec<_>>(),
        "cpus": task.cpus,
        "latency_ns": ns(task.latency),
        "gaps": task.gaps,
        "vague": arrivals.vague,
        "bursts": arrivals.bursts.map(|bursts| {
            json!({ "jobs": bursts.jobs, "period_ns": bursts.period.as_ns(), "within_ns": bursts.within.as_ns() })
        }),
    });
    if !inferred.components.is_empty() {
        entry["component"] = json!(task.component.and_then(component));
        entry["maybe_in"] = task.maybe_in.iter().copied().filter_map(component).collect();
    }
    entry
}

fn traffic(inferred: &Inferred) -> (Value, Value) {
    let task = |id: &takt_model::TaskId| inferred.tasks.get(id.index());
    let node = |id: takt_model::NodeId| inferred.nodes.get(id.index()).map(|node| node.name.as_str());
    let flows = inferred.traffic.flows.iter().map(|flow| {
        let hops = flow.hops.iter().filter_map(task);
        let hops = hops.map(|task| json!({ "task": task.name, "node": node(task.node) }));
        json!({
            "flow": flow.name,
            "hops": hops.collect::<Vec<_>>(),
            "period_ns": ns(flow.hops.first().and_then(task).and_then(InferredTask::period)),
            "send_gap_ns": ns(flow.send_gap),
            "instances": flow.instances,
            "longest_ns": ns(flow.longest),
            "size_bytes": flow.size.map(Bytes::get),
        })
    });
    let networks = inferred.traffic.networks.iter().map(|one| {
        json!({
            "from": node(one.from),
            "to": node(one.to),
            "messages": one.messages,
            "delay_min_ns": one.delay.0.as_ns(),
            "delay_max_ns": one.delay.1.as_ns(),
        })
    });
    (flows.collect(), networks.collect())
}

fn describe_traffic(inferred: &Inferred) -> String {
    let node = |id: takt_model::NodeId| {
        inferred.nodes.get(id.index()).map_or_else(String::new, |node| file::one_line(&node.name).into_owned())
    };
    let mut flows = Table::new(&["FLOW", "TASKS", "NODES", "INSTANCES", "PERIOD", "SEND GAP", "END TO END"]);
    for flow in &inferred.traffic.flows {
        let hops: Vec<&InferredTask> = flow.hops.iter().filter_map(|hop| inferred.tasks.get(hop.index())).collect();
        let names: Vec<String> = hops.iter().map(|hop| file::one_line(&hop.name).into_owned()).collect();
        let nodes: Vec<String> = hops.iter().map(|hop| node(hop.node)).collect();
        flows.row(vec![
            file::one_line(&flow.name).into_owned(),
            names.join(", "),
            nodes.join(", "),
            flow.instances.to_string(),
            or_dash(hops.first().and_then(|hop| hop.period()).map(time)),
            or_dash(flow.send_gap.map(time)),
            or_dash(flow.longest.map(time)),
        ]);
    }
    let mut networks = Table::new(&["FROM", "TO", "MESSAGES", "DELAY", "AT MOST"]);
    for one in &inferred.traffic.networks {
        let (least, most) = one.delay;
        let messages = one.messages.to_string();
        networks.row(vec![node(one.from), node(one.to), messages, time(least), time(most)]);
    }
    let tables = [("flows", flows), ("networks", networks)].into_iter().filter(|(_, table)| !table.is_empty());
    tables.map(|(what, table)| format!("\n{}", table.render_long(Rows::Most, what, |_, _| 0))).collect()
}

fn describe(inferred: &Inferred) -> String {
    if inferred.tasks.is_empty() {
        return "no job was released\n".to_owned();
    }
    let mut table = Table::headed("TASK|KIND|SURE|JOBS|PERIOD|OFFSET|JITTER|MEAN|MOST|DEADLINE|CPUS|AFTER");
    let mut notes = Vec::new();
    for task in &inferred.tasks {
        let mut add_note = |text: String| notes.push((rank(task), file::one_line(&text).into_owned()));
        let arrivals = &task.arrivals;
        let exec = task.exec.as_ref();
        let names = |ids: &mut dyn Iterator<Item = takt_model::TaskId>| -> String {
            let names = ids.filter_map(|id| inferred.tasks.get(id.index())).map(|task| file::one_line(&task.name));
            names.collect::<Vec<_>>().join(", ")
        };
        let after = names(&mut task.links.after.iter().map(|link| link.task));
        table.row(vec![
            file::one_line(&task.name).into_owned(),
            arrivals.kind.name().to_owned(),
            share(arrivals.confidence),
            task.jobs.to_string(),
            // Exact for a statement, four digits for an observed minimum.
            match arrivals.grid {
                Some(grid) => grid.period.to_string(),
                None => task.period().map_or("-".to_owned(), |period| period.four_digits_down().to_string()),
            },
            arrivals.grid.map_or("-".to_owned(), |_| time(Span::from_ns(task.offset().as_ns()))),
            or_dash(arrivals.grid.map(|_| time(task.jitter))),
            or_dash(exec.map(|exec| time(exec.mean))),
            or_dash(exec.map(|exec| time(exec.max))),
            or_dash(task.deadline.map(|(deadline, _)| time(deadline))),
            task.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            after.clone(),
        ]);
        let maybe = names(&mut task.links.maybe.iter().copied());
        if !maybe.is_empty() {
            add_note(format!(
                "{}: its jobs come right after those of {maybe}, but also on a grid. This is a chain or an offset; \
                 takt writes no chain",
                task.name
            ));
        }
        if after.is_empty() && arrivals.kind != Kind::Periodic {
            add_note(format!("{}: {}", task.name, arrivals.why));
        }
        if let Some(grid) =
            arrivals.grid.filter(|grid| grid.group > 1 || grid.outliers > 0 || grid.skipped + grid.explained > 0)
        {
            add_note(format!(
                "{}: {} outliers (jitter {} without them); {} periods without a job, {} of them for a known \
                 reason; groups of {}",
                task.name,
                grid.outliers,
                time(grid.typical_jitter),
                grid.skipped + grid.explained,
                grid.explained,
                grid.group
            ));
        }
    }
    let by_rank = |row: usize, _: &[String]| rank(&inferred.tasks[row]);
    let mut text = table.without_empty_columns().render_long(Rows::Most, "tasks", by_rank);
    text.push_str(&components::describe(inferred));
    text.push_str(&describe_traffic(inferred));
    text.push_str(
        "\nSURE: at least this share of all jobs keeps the pattern, at 95 % confidence. PERIOD: of a sporadic \
         task the least distance seen,\n\
         of an aperiodic task the mean. MEAN and MOST: execution times seen; the most seen is no worst case.\n",
    );
    text.push_str(&Rows::Most.lines(notes, "notes"));
    text
}

/// The order of importance of tasks: first the tasks with the most jobs.
fn rank(task: &InferredTask) -> std::cmp::Reverse<u64> {
    std::cmp::Reverse(task.jobs)
}

/// Rounded down.
fn share(share: f64) -> String {
    if share > 0.0 { format!("{:.1}%", (share * 1000.0).floor() / 10.0) } else { "-".to_owned() }
}
