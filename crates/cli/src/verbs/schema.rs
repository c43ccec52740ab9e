//! `takt schema`: the JSON Schema of the system file.

use takt_model::file;

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::print_files;

pub(crate) fn execute(options: &args::Schema, json: bool) -> Outcome {
    let text = serde_json::to_string_pretty(&file::json_schema())
        .map_err(|error| Failure::trouble(format_args!("cannot write the schema: {error}")))?;
    options.output.write((text + "\n").as_bytes())?;
    if json && !options.output.is_stdout() {
        print_files(&[&options.output.0])?;
    }
    Ok(Status::Yes)
}
