//! rt-app workloads (JSON) as Systems: what has a counterpart becomes tasks, everything else is
//! listed, nothing is dropped silently. The rules stand in docs/reference/import.md.
//!
//! ```
//! let json = r#"{ "tasks": { "video": {
//!     "policy": "SCHED_FIFO", "priority": 80,
//!     "run": 2000, "timer": { "ref": "unique", "period": 40000, "mode": "absolute" }
//! } } }"#;
//! let imported = takt_model::import::rtapp::import(json, "video.json")?;
//! let task = &imported.system.tasks[0];
//! assert_eq!((task.period, task.wcet), (takt_model::Span::from_ms(40), takt_model::Span::from_ms(2)));
//! assert_eq!(task.priority, Some(20)); // the kernel's 99 is takt's 1
//! # Ok::<(), takt_model::import::rtapp::ImportErrors>(())
//! ```

mod convert;
mod cycle;
mod globals;
mod read;
mod sched;
mod workload;

pub use crate::file::FileErrors as ImportErrors;

use super::json;
use crate::file::{Found, Lines};
use crate::system::System;

/// A workload that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// The workload as a System of one node; it passes [`crate::file::validate`].
    pub system: System,
    /// Approximated parts and parts without counterpart, each as
    /// `file:line:col: path: what takt does instead`, in the order of the file.
    pub warnings: Vec<String>,
}

/// Reads an rt-app workload. `file_name` stands in errors and warnings.
///
/// It is strict where rt-app ignores, crashes or hangs: unknown and misplaced keys, wrong types,
/// parameters that the kernel refuses.
///
/// # Errors
/// All that is wrong with the file, each with its place; of broken JSON the first error.
pub fn import(json: &str, file_name: &str) -> Result<Imported, ImportErrors> {
    let root = json::parse(json).map_err(|found| ImportErrors::locate(file_name, json, vec![found]))?;
    let mut notes = Notes::default();
    let workload = read::read(&root, &mut notes);
    ImportErrors::none_or(file_name, json, std::mem::take(&mut notes.errors))?;
    let system = convert::convert(&workload, file_name, &mut notes);
    ImportErrors::none_or(file_name, json, std::mem::take(&mut notes.errors))?;
    if system.tasks.is_empty() {
        // Why each of them is left out stands among the warnings.
        let mut found = vec![Found::new(
            workload.threads.first().map_or(0, |thread| thread.at),
            "tasks: no thread could be imported, so the system would have no task".to_owned(),
        )];
        found.extend(notes.warnings.into_iter().filter(|warning| warning.message.ends_with(read::NO_TASK)));
        return Err(ImportErrors::locate(file_name, json, found));
    }
    crate::file::validate(&system).map_err(|errors| {
        let found = errors.iter().map(|error| Found { at: None, message: error.message.clone() });
        ImportErrors::locate(file_name, json, found.collect())
    })?;
    notes.warnings.sort_by_key(|warning| warning.at);
    let mut lines = Lines::new(json);
    let warnings = notes.warnings.into_iter().map(|warning| match warning.at {
        Some(at) => {
            let place = lines.position(at);
            format!("{file_name}:{}:{}: {}", place.line, place.column, warning.message)
        }
        None => format!("{file_name}: {}", warning.message),
    });
    Ok(Imported { system, warnings: warnings.collect() })
}

/// Errors and warnings found during the import.
#[derive(Default)]
struct Notes {
    errors: Vec<Found>,
    warnings: Vec<Found>,
}

impl Notes {
    fn error(&mut self, at: usize, path: &str, message: impl std::fmt::Display) {
        self.errors.push(Found::new(at, format!("{path}: {message}")));
    }
    fn warn(&mut self, at: usize, path: &str, message: impl std::fmt::Display) {
        self.warnings.push(Found::new(at, format!("{path}: {message}")));
    }
}
