//! `takt admit`: a change of a proven system that keeps it proven.

use serde_json::json;
use takt_analysis::Admission;
use takt_analysis::admit::{By, Refusal};
use takt_model::System;
use takt_model::file::{Document, Edit};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input::{self, shown};
use crate::output::{print, print_json};

/// What is asked for.
struct Change {
    /// The system with it.
    changed: System,
    /// Its text.
    text: String,
    added: Vec<String>,
    removed: Vec<String>,
}

pub(crate) fn execute(options: &args::Admit, json: bool) -> Outcome {
    if options.file == "-" && options.add.as_deref() == Some("-") {
        return Err(Failure::input("standard input cannot be both the system and what is added"));
    }
    let to_stdout = options.output.as_ref().is_some_and(crate::output::Target::is_stdout);
    if json && to_stdout {
        return Err(Failure::input("--json and the system cannot both go to standard output"));
    }
    let (system, text) = input::system_and_text(&options.file)?;
    let change = match (&options.add, &options.remove) {
        (Some(path), _) => added(&options.file, &system, &text, path)?,
        (None, Some(name)) => removed(&options.file, &system, &text, name)?,
        (None, None) => return Err(Failure::input("what is to change? --add FILE or --remove NAME")),
    };
    let name = system.name.clone();
    let found = decided(system, &change);
    if let Err(refusal @ Refusal::Invalid(_)) = &found {
        return Err(Failure::input(refusal));
    }
    if let (Ok(_), Some(target)) = (&found, &options.output) {
        target.write(change.text.as_bytes())?;
    }
    let why = found.as_ref().err().map(ToString::to_string);
    if json {
        print_json(&json!({
            "system": name, "admitted": found.is_ok(), "by": found.as_ref().ok().map(|by| by.name()), "why": why.unwrap_or_default(),
            "added": change.added, "removed": change.removed,
        }))?;
    } else if let Some(why) = why {
        if to_stdout {
            return Err(Failure::no(format_args!("{name}: {why}")));
        }
        print(&format!("{name}: {why}\n"))?;
    } else if !to_stdout {
        let list = |what: &str, names: &[String]| match names {
            [] => String::new(),
            names => format!("{what} {}", names.join(", ")),
        };
        let by = found.as_ref().map_or("", |by| by.name());
        let told = list("admitted", &change.added) + &list("removed", &change.removed);
        print(&format!("{name}: {told}; every deadline is met, by: {by}\n"))?;
    }
    Ok(if found.is_ok() { Status::Yes } else { Status::No })
}

fn decided(system: System, change: &Change) -> Result<By, Refusal> {
    let (tasks, components) = (system.tasks.len(), system.components.len());
    let mut admission = Admission::new(system)?;
    if let Some(name) = change.removed.first() {
        return admission.remove(name);
    }
    // Traces and all come from the file that was read as a whole.
    if change.changed.components.len() == components {
        return admission.add(&change.changed.tasks[tasks..]);
    }
    admission.replace(|system| {
        system.clone_from(&change.changed);
        Ok(())
    })
}

/// The system with what a file adds.
fn added(file: &str, system: &System, text: &str, path: &str) -> Result<Change, Failure> {
    let more = without_version(&input::text(path, "TOML")?);
    let gap = if text.ends_with('\n') { "\n" } else { "\n\n" };
    let text = format!("{text}{gap}{more}");
    let changed = input::parse_system(file, &text).map_err(|failure| Failure {
        message: format!("{}\nLines past the end of the file are those of {}.", failure.message, shown(path)),
        ..failure
    })?;
    let new = |before: usize, names: Vec<&String>| names.into_iter().skip(before).cloned().collect::<Vec<_>>();
    let mut added = new(system.tasks.len(), changed.tasks.iter().map(|task| &task.name).collect());
    added.extend(new(system.components.len(), changed.components.iter().map(|component| &component.name).collect()));
    let rest = System {
        tasks: changed.tasks[..system.tasks.len().min(changed.tasks.len())].to_vec(),
        components: changed.components[..system.components.len().min(changed.components.len())].to_vec(),
        ..changed.clone()
    };
    if added.is_empty() || rest != *system {
        return Err(Failure::input(format_args!(
            "{} may add tasks and components, one at least, and nothing else",
            shown(path)
        )));
    }
    Ok(Change { changed, text, added, removed: Vec::new() })
}

/// What stands alone says `takt = 1` itself, which in the midst of a system would belong to its last table.
fn without_version(text: &str) -> String {
    let mut root = true;
    let kept = text.lines().map(|line| {
        let start = line.trim_start();
        root &= !start.starts_with('[');
        let version = root && start.strip_prefix("takt").is_some_and(|rest| rest.trim_start().starts_with('='));
        if version { "" } else { line }
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// The system without a task.
fn removed(file: &str, system: &System, text: &str, name: &str) -> Result<Change, Failure> {
    let task = system.task_by_name(name).ok_or_else(|| Failure::input(format_args!("there is no task \"{name}\"")))?;
    let mut document = Document::parse(text, &shown(file)).map_err(Failure::located)?;
    document.apply(&[Edit::RemoveTask { task }]).map_err(Failure::located)?;
    let (text, changed) = (document.text().to_owned(), document.into_system());
    Ok(Change { changed, text, added: Vec::new(), removed: vec![name.to_owned()] })
}
