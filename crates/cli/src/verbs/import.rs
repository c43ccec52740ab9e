//! `takt import`: another tool's workload as a system file.

use serde_json::json;
use takt_model::{file, import};

use crate::args::{self, Tool};
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::output::{note, only_one, print_json};

pub(crate) fn execute(options: &args::Import, json: bool) -> Outcome {
    only_one(json, options.output.is_stdout(), "system")?;
    let text = input::text(&options.file, "JSON")?;
    let name = input::shown(&options.file);
    let imported = match options.from {
        Tool::RtApp => import::rtapp::import(&text, &name).map_err(Failure::located)?,
    };
    for warning in &imported.warnings {
        note(format_args!("warning: {warning}"));
    }
    options.output.write(file::write(&imported.system).as_bytes())?;
    if json {
        print_json(&json!({
            "system": imported.system.name,
            "tasks": imported.system.tasks.len(),
            "warnings": imported.warnings,
        }))?;
    }
    Ok(Status::Yes)
}
