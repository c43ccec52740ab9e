//! `takt admit`: a change of a proven system that keeps it proven.

mod live;

use serde_json::json;
use takt_analysis::admit::{Change, Part, Refusal};
use takt_analysis::{Admission, contradictions};
use takt_model::file::{Document, Edit};
use takt_model::{ComponentId, FlowId, System, TaskId};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input::{self, shown};
use crate::output::{note, print, print_json};

struct RequestedChange {
    change: Change,
    /// The text of the system with it.
    text: String,
    added: Vec<String>,
    removed: Vec<String>,
}

pub(crate) fn execute(options: &args::Admit, json: bool) -> Outcome {
    let to_stdout = options.output.as_ref().is_some_and(crate::output::Target::is_stdout);
    if json && to_stdout {
        return Err(Failure::input("--json and the system cannot both go to standard output"));
    }
    if let Some(socket) = &options.live {
        return live::execute(options, socket, json);
    }
    let Some(file) = &options.file else { return Err(Failure::input("name a system file, or --live SOCKET")) };
    if file == "-" && options.add.as_deref() == Some("-") {
        return Err(Failure::input("standard input cannot be both the system and what is added"));
    }
    let (system, text) = input::system_and_text(file)?;
    let name = system.name.clone();
    let parts = options.remove.iter().map(|name| part(&system, name)).collect::<Result<Vec<Part>, Failure>>()?;
    // Before the text is changed, which would say less well what is wrong.
    let mut admission = match Admission::new(system) {
        Ok(admission) => Ok(admission),
        Err(refusal @ Refusal::Invalid(_)) => return Err(Failure::input(refusal)),
        Err(refusal) => Err(refusal),
    };
    let asked = asked((file, options.add.as_deref()), &text, parts, admission.as_ref().ok())?;
    let found = match &mut admission {
        Ok(admission) => admission.change(&asked.change),
        Err(refusal) => Err(refusal.clone()),
    };
    if let Err(refusal @ Refusal::Invalid(_)) = &found {
        return Err(Failure::input(refusal));
    }
    if let (Ok(_), Some(target)) = (&found, &options.output) {
        target.write(asked.text.as_bytes())?;
    }
    let why = found.as_ref().err().map(ToString::to_string);
    // Statements of the file that contradict the verdict's assumptions.
    let proven = admission.as_ref().ok().filter(|_| found.is_ok());
    let warnings = proven.map_or(Vec::new(), |admission| contradictions(admission.system()));
    for text in &warnings {
        note(format_args!("warning: {text}"));
    }
    if json {
        print_json(&json!({
            "system": name, "admitted": found.is_ok(), "by": found.as_ref().ok().map(|by| by.name()),
            "why": why.unwrap_or_default(),
            "added": asked.added, "removed": asked.removed, "warnings": warnings,
        }))?;
    } else if let Some(why) = why {
        if to_stdout {
            return Err(Failure::no(format_args!("{name}: {why}")));
        }
        print(&format!("{name}: {why}\n"))?;
    } else if !to_stdout {
        let list = |what: &str, names: &[String]| match names {
            [] => None,
            names => Some(format!("{what} {}", names.join(", "))),
        };
        let by = found.as_ref().map_or("", |by| by.name());
        let told: Vec<String> =
            [list("admitted", &asked.added), list("removed", &asked.removed)].into_iter().flatten().collect();
        let told = told.join(", ");
        print(&format!("{name}: {told}; every deadline is met, by: {by}\n"))?;
    }
    Ok(if found.is_ok() { Status::Yes } else { Status::No })
}

/// The part of this name. A prefix may name its kind.
fn part(system: &System, name: &str) -> Result<Part, Failure> {
    let has = |part: &Part| match part {
        Part::Task(name) => system.tasks.iter().any(|task| task.name == *name),
        Part::Component(name) => system.components.iter().any(|component| component.name == *name),
        Part::Flow(name) => system.flows.iter().any(|flow| flow.name == *name),
    };
    let kinds = [("task", Part::Task as fn(String) -> Part), ("component", Part::Component), ("flow", Part::Flow)];
    let all: Vec<Part> = kinds.iter().map(|(_, of)| of(name.to_owned())).filter(has).collect();
    let told = kinds.iter().find_map(|(kind, of)| {
        let rest = name.strip_prefix(kind)?.strip_prefix(':')?;
        Some(of(rest.to_owned()))
    });
    match (&all[..], told) {
        ([one], _) => Ok(one.clone()),
        ([], Some(told)) if has(&told) => Ok(told),
        ([], Some(told)) => Err(Failure::input(format_args!("there is no {told}"))),
        ([], None) => Err(Failure::input(format_args!("there is no task, component or flow \"{name}\""))),
        (several, _) => {
            let each: Vec<String> = several.iter().map(ToString::to_string).collect();
            let kinds = each.iter().filter_map(|part| part.split_once(' ')).map(|(kind, _)| format!("{kind}:{name}"));
            let kinds: Vec<String> = kinds.collect();
            Err(Failure::input(format_args!("there are {}; say which: {}", each.join(" and "), kinds.join(" or "))))
        }
    }
}

fn asked(
    (file, add): (&str, Option<&str>),
    text: &str,
    remove: Vec<Part>,
    admission: Option<&Admission>,
) -> Result<RequestedChange, Failure> {
    let change = Change { remove, ..Change::default() };
    if let Some(Err(refusal)) = admission.map(|admission| admission.removable(&change)) {
        return Err(Failure::input(refusal));
    }
    let mut document = Document::parse(text, &shown(file)).map_err(Failure::located)?;
    document.apply(&removals(document.system(), &change.remove)).map_err(Failure::located)?;
    let (text, rest) = (document.text().to_owned(), document.into_system());
    let removed = change.remove.iter().map(|part| part.name().to_owned()).collect();
    let Some(path) = add else { return Ok(RequestedChange { change, text, added: Vec::new(), removed }) };
    let more = without_version(&input::text(path, "TOML")?);
    let gap = if text.ends_with('\n') { "\n" } else { "\n\n" };
    let text = format!("{text}{gap}{more}");
    let changed = input::parse_system(file, &text).map_err(|failure| Failure {
        message: format!("{}\nLines past the end of the file are those of {}.", failure.message, shown(path)),
        ..failure
    })?;
    fn come<T: Clone>(rest: &[T], changed: &[T]) -> Vec<T> {
        changed.get(rest.len()..).unwrap_or_default().to_vec()
    }
    let change = Change {
        components: come(&rest.components, &changed.components),
        tasks: come(&rest.tasks, &changed.tasks),
        flows: come(&rest.flows, &changed.flows),
        ..change
    };
    let added: Vec<String> = (change.tasks.iter().map(|task| &task.name))
        .chain(change.components.iter().map(|component| &component.name))
        .chain(change.flows.iter().map(|flow| &flow.name))
        .cloned()
        .collect();
    // Traces come from the files that were read with the whole.
    let before = input::parse_system(file, &text[..text.len() - gap.len() - more.len()])?;
    let kept = System {
        tasks: changed.tasks[..changed.tasks.len() - change.tasks.len()].to_vec(),
        components: changed.components[..changed.components.len() - change.components.len()].to_vec(),
        flows: changed.flows[..changed.flows.len() - change.flows.len()].to_vec(),
        ..changed
    };
    if added.is_empty() || kept != before {
        return Err(Failure::input(format_args!(
            "{} may add tasks, components and flows, one at least, and nothing else",
            shown(path)
        )));
    }
    Ok(RequestedChange { change, text, added, removed })
}

/// The edits that take parts out of a file, the last in it first.
fn removals(system: &System, parts: &[Part]) -> Vec<Edit> {
    let at = |part: &Part| match part {
        Part::Task(name) => system.tasks.iter().position(|task| task.name == *name),
        Part::Component(name) => system.components.iter().position(|component| component.name == *name),
        Part::Flow(name) => system.flows.iter().position(|flow| flow.name == *name),
    };
    let mut places: Vec<(usize, &Part)> = parts.iter().filter_map(|part| Some((at(part)?, part))).collect();
    places.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    places.dedup();
    let edit = |(at, part): (usize, &Part)| match part {
        Part::Task(_) => Edit::RemoveTask { task: TaskId(at as u32) },
        Part::Component(_) => Edit::RemoveComponent { component: ComponentId(at as u32) },
        Part::Flow(_) => Edit::RemoveFlow { flow: FlowId(at as u32) },
    };
    places.into_iter().map(edit).collect()
}

/// A file that stands alone has its own `takt = 1`. Inside a system the line would belong to the
/// last table.
pub(super) fn without_version(text: &str) -> String {
    let mut root = true;
    let kept = text.lines().map(|line| {
        let start = line.trim_start();
        root &= !start.starts_with('[');
        let version = root && start.strip_prefix("takt").is_some_and(|rest| rest.trim_start().starts_with('='));
        if version { "" } else { line }
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}
