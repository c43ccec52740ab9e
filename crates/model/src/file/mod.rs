//! The System file: TOML in, a checked [`System`] out, and back.
//!
//! Every error of a file is reported at once, with line, column, the value, and what would be right. The keys stand in
//! one table (docs/system-file.md is generated from it, and so is the JSON Schema). Durations are exact: what is no whole
//! number of nanoseconds is refused, never rounded.
//!
//! ```
//! let system = takt_model::file::parse(
//!     r#"
//!     takt = 1
//!     [[task]]
//!     name = "video"
//!     period = "40ms"
//!     wcet = "12ms"
//!     "#,
//!     "video.toml",
//! )?;
//! assert_eq!(system.tasks[0].deadline, takt_model::Span::from_ms(40));
//! assert_eq!(takt_model::file::parse(&takt_model::file::write(&system), "again.toml")?, system);
//!
//! let wrong = "takt = 1\n[[task]]\nname = \"video\"\nperiod = \"40ms\"\nwcet = 12\n";
//! let errors = takt_model::file::parse(wrong, "video.toml").unwrap_err();
//! assert_eq!(
//!     errors.to_string(),
//!     "video.toml:5:8: wcet 12 of task \"video\" has no unit; \
//!      write a duration such as \"10ms\" (ns, us, ms, s, min, h)"
//! );
//! # Ok::<(), takt_model::file::FileErrors>(())
//! ```

mod build;
mod check;
mod document;
mod error;
mod grammar;
mod quantity;
mod read;
mod schema;
mod suggest;
mod traces;
mod write;

pub use document::{Document, Edit};
pub use error::{FileError, FileErrors, Position};
pub use schema::{json_schema, reference};
pub use traces::load_traces;
pub use write::write;

use crate::system::System;
use crate::time::Span;
use error::Found;

/// Reads a System file. `file_name` stands in the errors.
///
/// Traces are named, not loaded: [`load_traces`] does that.
///
/// # Errors
/// All that is wrong with the file.
pub fn parse(text: &str, file_name: &str) -> Result<System, FileErrors> {
    let document = parse_toml(text, file_name)?;
    system_of(text, file_name, &document)
}

/// Reads a duration as a file writes it (`"250us"`), for command lines.
///
/// # Errors
/// The rest of a sentence that starts with the value: `has no unit; write a duration such as "10ms" (...)`.
pub fn parse_span(text: &str) -> Result<Span, String> {
    quantity::span(text).map_err(|error| error.explain(&quantity::DURATION).to_string())
}

/// Reads a System file from bytes, which must be UTF-8.
///
/// # Errors
/// All that is wrong with the file.
pub fn parse_bytes(bytes: &[u8], file_name: &str) -> Result<System, FileErrors> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text, file_name),
        Err(error) => {
            let good = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
            let message = format!("byte 0x{byte:02x} is not UTF-8; save the file as UTF-8");
            Err(FileErrors::locate(file_name, good, vec![Found { at: Some(good.len()), message }]))
        }
    }
}

/// Checks a System that was built by hand against the rules of the file. Its errors carry no places.
///
/// # Errors
/// All that is wrong with it.
pub fn validate(system: &System) -> Result<(), FileErrors> {
    let mut found = Vec::new();
    check::check_indices(system, &mut found);
    if found.is_empty() {
        check::check(system, &check::Nowhere, &mut found);
    }
    FileErrors::none_or("", "", found)
}

/// The TOML of a text.
fn parse_toml<'a>(text: &'a str, file_name: &str) -> Result<toml_edit::Document<&'a str>, FileErrors> {
    toml_edit::Document::parse(text).map_err(|error| {
        let at = error.span().map(|span| span.start);
        let message = format!("not TOML: {}", error.message());
        FileErrors::locate(file_name, text, vec![Found { at, message }])
    })
}

/// The System of a document.
fn system_of(text: &str, file_name: &str, document: &toml_edit::Document<&str>) -> Result<System, FileErrors> {
    let mut found = Vec::new();
    let fields = read::read(text, document.as_table(), &mut found);
    if fields.is_bad("takt") {
        // A file of another version may mean anything by its other keys.
        found.retain(|error| error.at == fields.field("takt").map(|field| field.at));
        return Err(FileErrors::locate(file_name, text, found));
    }
    let built = build::build(fields, &mut found);
    check::check(&built.system, &built.source, &mut found);
    FileErrors::none_or(file_name, text, found)?;
    Ok(built.system)
}
