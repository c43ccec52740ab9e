//! The System file: TOML in, a checked [`System`] out, and back.
//!
//! Every error of a file is reported at once, with line, column, the value, and what would be
//! right. The keys stand in one table (docs/reference/system-file.md is generated from it, and so is the JSON
//! Schema). Durations are exact: what is no whole number of nanoseconds is refused, never rounded.
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
#[cfg(test)]
mod properties;
mod quantity;
mod read;
mod schema;
mod source;
mod suggest;
mod traces;
mod values;
mod write;

pub use document::{COSTS_COMMENT, Document, Edit};
pub use error::{FileError, FileErrors, Position, one_line};
pub use schema::{json_schema, reference};
pub use traces::load_traces;
pub use write::write;

use crate::system::System;
use crate::time::Span;
use crate::units::{Bytes, Probability, Rate};
pub(crate) use error::{Found, Lines};
pub(crate) use suggest::{hint, nearest};

/// Reads a System file. `file_name` stands in the errors.
///
/// Traces are named, not loaded: [`load_traces`] does that.
///
/// # Errors
/// All that is wrong with the file.
pub fn parse(text: &str, file_name: &str) -> Result<System, FileErrors> {
    with_toml(text, file_name, |text, document, found| system_of(text, file_name, document, found))
}

/// Reads a duration as a file writes it (`"250us"`), for command lines.
///
/// # Errors
/// The rest of a sentence that starts with the value: `has no unit; write a duration such as "10ms" (...)`.
pub fn parse_span(text: &str) -> Result<Span, String> {
    quantity::span(text).map_err(|error| error.explain(&quantity::DURATION).to_string())
}

/// Reads a size as a file writes it (`"64KiB"`), for command lines.
///
/// # Errors
/// The rest of a sentence that starts with the value: `has no unit; write a size such as "64KiB" (...)`.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    quantity::size(text).map_err(|error| error.explain(&quantity::SIZE).to_string())
}

/// Reads a rate as a file writes it (`"100Mbit"`), for command lines.
///
/// # Errors
/// The rest of a sentence that starts with the value: `has no unit; write a rate such as "1Gbit" (...)`.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    quantity::rate(text).map_err(|error| error.explain(&quantity::RATE).to_string())
}

/// Reads a probability as a file writes it (`0.99`), exactly, for command lines.
///
/// # Errors
/// The rest of a sentence that starts with the value: `is not between 0 and 1`.
pub fn parse_probability(text: &str) -> Result<Probability, String> {
    let number = text.bytes().any(|c| c.is_ascii_digit());
    if number {
        quantity::probability(text).map_err(str::to_owned)
    } else {
        Err("is no number between 0 and 1".to_owned())
    }
}

/// Which deadlines a file gives; the others are its periods, and follow them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GivenDeadlines {
    tasks: Vec<bool>,
    flows: Vec<bool>,
}

impl GivenDeadlines {
    /// The given deadlines of a file. None if the text is not a valid file.
    #[must_use]
    pub fn of(text: &str) -> GivenDeadlines {
        let given = with_toml(text, "", |text, document, mut found| {
            let fields = read::read(text, document.as_table(), &mut found);
            let of = |key: &str| fields.tables(key).map(|table| table.field("deadline").is_some()).collect();
            Ok(GivenDeadlines { tasks: of("task"), flows: of("flow") })
        });
        given.unwrap_or_default()
    }

    /// Whether task `i` of the System keeps its deadline when its period changes; where nothing is
    /// known, whether they differ.
    #[must_use]
    pub fn of_task(&self, system: &System, i: usize) -> bool {
        let task = &system.tasks[i];
        self.tasks.get(i).copied().unwrap_or(task.deadline != task.period)
    }

    /// The same of flow `i`.
    #[must_use]
    pub fn of_flow(&self, system: &System, i: usize) -> bool {
        let flow = &system.flows[i];
        self.flows.get(i).copied().unwrap_or(flow.deadline != flow.period)
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

/// How many keys that stand twice are told in one go.
const DUPLICATES_MAX: usize = 100;

/// Reads a text as TOML, and hands its fields to `use_it`.
fn with_toml<T>(
    text: &str,
    file_name: &str,
    use_it: impl FnOnce(&str, &toml_edit::Document<&str>, Vec<Found>) -> Result<T, FileErrors>,
) -> Result<T, FileErrors> {
    let mut found = Vec::new();
    let mut patched = std::borrow::Cow::Borrowed(text);
    loop {
        let document = toml_edit::Document::parse(&*patched);
        let error = match document {
            Ok(document) => return use_it(&patched, &document, found),
            Err(error) => error,
        };
        // A key that stands twice hides nothing else: it is told, made a comment, and the rest is read.
        match error.span().filter(|_| error.message() == "duplicate key" && found.len() < DUPLICATES_MAX) {
            Some(span) if starts_line(&patched, span.start) => {
                let key = patched.get(span.clone()).unwrap_or_default();
                let message = format!("the key {key} stands here a second time; keep one");
                found.push(Found { at: Some(span.start), message });
                patched.to_mut().replace_range(span.start..span.start + 1, "#");
            }
            _ if found.is_empty() => return Err(FileErrors::locate(file_name, text, syntax_errors(text, &error))),
            // The second value ran over several lines, so that the rest cannot be read.
            _ => return Err(FileErrors::locate(file_name, text, found)),
        }
    }
}

/// Whether only blanks stand before a byte of its line, which is ASCII.
fn starts_line(text: &str, at: usize) -> bool {
    let before = text.get(..at).and_then(|before| before.rsplit('\n').next());
    before.is_some_and(|before| before.trim().is_empty()) && text.as_bytes().get(at).is_some_and(u8::is_ascii)
}

/// All syntax errors of a text, the first of each line; `first` is the one that the reader stopped at.
fn syntax_errors(text: &str, first: &toml_edit::TomlError) -> Vec<Found> {
    let source = toml_parser::Source::new(text);
    let tokens = source.lex().into_vec();
    let mut errors: Vec<toml_parser::ParseError> = Vec::new();
    let mut events: Vec<toml_parser::parser::Event> = Vec::new();
    let mut receiver = toml_parser::parser::RecursionGuard::new(&mut events, 80);
    toml_parser::parser::parse_document(&tokens, &mut receiver, &mut errors);
    for event in &events {
        let Some(raw) = source.get(event) else { continue };
        let mut decoded = std::borrow::Cow::Borrowed("");
        match event.kind() {
            toml_parser::parser::EventKind::Scalar => {
                let _ = raw.decode_scalar(&mut decoded, &mut errors);
            }
            toml_parser::parser::EventKind::SimpleKey => raw.decode_key(&mut decoded, &mut errors),
            _ => {}
        }
    }
    let mut found: Vec<Found> = vec![];
    let mut line_seen = None;
    let told = std::iter::once((first.span().map(|span| span.start), first.message().to_owned()));
    let others =
        errors.iter().map(|error| (error.unexpected().map(|span| span.start()), error.description().to_owned()));
    let mut all: Vec<(Option<usize>, String)> = told.chain(others).collect();
    // Stable: at one place the reader's own words stand first, because they name the expected form.
    all.sort_by_key(|(at, _)| *at);
    for (at, message) in all {
        let line = at.map(|at| text.as_bytes()[..at.min(text.len())].iter().rposition(|byte| *byte == b'\n'));
        if found.is_empty() || line != line_seen {
            line_seen = line;
            let unquoted = at.and_then(|at| unquoted(text, at));
            found.push(Found { at, message: format!("not TOML: {}", unquoted.unwrap_or(message)) });
        }
    }
    found
}

/// The message for an error within a value that is text without quotes. The reader takes `t` for a
/// boolean, `nav` for a number, and `10ms` for a number with something behind it.
fn unquoted(text: &str, at: usize) -> Option<String> {
    let line = text.get(..at)?.rsplit('\n').next()?;
    // The value begins behind the last of these signs outside of quotes.
    let (mut sign, mut quote, mut tables) = (None, None, 0);
    for (place, letter) in line.char_indices() {
        match (quote, letter) {
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) => quote = quote.filter(|_| letter != open),
            (None, '{') => tables += 1,
            (None, '}') => tables -= 1,
            (None, '=' | '[' | ',') => sign = Some((place, letter)),
            _ => {}
        }
    }
    let behind = match sign.filter(|_| line.contains('=')) {
        // In a table a key stands there.
        Some((_, ',')) if tables > 0 => return None,
        Some((place, _)) => line.len() - place - 1,
        None if line.trim_end().ends_with(['[', ',']) => 0,
        None => return None,
    };
    let value = text.get(at - behind..)?.trim_start_matches([' ', '\t']);
    let word = value.split(['\n', '\r', '#', ',', ']', '}']).next()?.trim_end();
    let mut letters = word.chars();
    let is_text = match letters.next()? {
        first if first.is_alphabetic() || first == '_' || !first.is_ascii() => true,
        first => first.is_ascii_digit() && letters.any(char::is_alphabetic),
    };
    (is_text && !word.contains(['"', '='])).then(|| {
        let quoted = word.escape_debug().to_string().replace("\\'", "'");
        format!("the text {word} needs quotes; write \"{quoted}\"")
    })
}

fn system_of(
    text: &str,
    file_name: &str,
    document: &toml_edit::Document<&str>,
    mut found: Vec<Found>,
) -> Result<System, FileErrors> {
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
