//! Errors of a System file: every error at once, each with its place.

use std::borrow::Cow;
use std::fmt;

/// A place in a text, both numbers counted from 1; columns count characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One error of a System file, shown as `robot.toml:12:10: what is wrong; what would be right`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// The file's name as the caller gave it; empty for a System built by hand.
    pub file: String,
    /// Its place in the file, if it has one.
    pub position: Option<Position>,
    /// The error and its remedy.
    pub message: String,
}

/// All errors of a System file, in the order of their places. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileErrors(Vec<FileError>);

impl FileErrors {
    /// One error about the file as a whole.
    #[must_use]
    pub fn whole(file: &str, message: impl Into<String>) -> Self {
        FileErrors(vec![FileError { file: file.to_owned(), position: None, message: message.into() }])
    }
    /// These errors, at least one.
    pub(crate) fn of(errors: Vec<FileError>) -> Self {
        FileErrors(errors)
    }
    /// The errors, at least one.
    pub fn iter(&self) -> std::slice::Iter<'_, FileError> {
        self.0.iter()
    }
    /// `Err` with what was found, sorted by place, or `Ok` where nothing was found.
    pub(crate) fn none_or(file: &str, text: &str, found: Vec<Found>) -> Result<(), FileErrors> {
        if found.is_empty() { Ok(()) } else { Err(Self::locate(file, text, found)) }
    }
    /// The errors found, at least one, sorted by place.
    pub(crate) fn locate(file: &str, text: &str, mut found: Vec<Found>) -> Self {
        found.sort_by_key(|found| found.at);
        found.dedup();
        let mut lines = Lines::new(text);
        let located = found.into_iter().map(|found| FileError {
            file: file.to_owned(),
            position: found.at.map(|at| lines.position(at)),
            message: found.message,
        });
        FileErrors(located.collect())
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", one_line(&self.file))?;
            if let Some(Position { line, column }) = self.position {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&one_line(&self.message))
    }
}

/// The text with control characters escaped (`\n`, `\u{1b}`): names of a bad file may hold
/// anything, and an error is one line that commands no terminal.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// One error a line.
impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(FileError::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for FileError {}
impl std::error::Error for FileErrors {}

/// An error with a byte offset instead of line and column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Byte offset into the text, `None` where it has no place.
    pub at: Option<usize>,
    /// The error and its remedy.
    pub message: String,
}

impl Found {
    /// An error at a byte offset.
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Found { at: Some(at), message: message.into() }
    }
}

/// Turns ascending byte offsets into lines and columns in one pass over the text.
pub(crate) struct Lines<'a> {
    text: &'a str,
    line: usize,
    line_start: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Lines { text, line: 1, line_start: 0 }
    }

    /// The place of a byte offset; offsets past the end count as the end. Offsets must ascend.
    pub(crate) fn position(&mut self, at: usize) -> Position {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &self.text[self.line_start..at.max(self.line_start)];
        self.line += before.bytes().filter(|byte| *byte == b'\n').count();
        if let Some(newline) = before.rfind('\n') {
            self.line_start += newline + 1;
        }
        let column = self.text[self.line_start..at.max(self.line_start)].chars().count() + 1;
        Position { line: self.line, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_count_newlines() {
        let text = "a = 1\nµ = \"x\"\r\nb";
        let mut lines = Lines::new(text);
        assert_eq!(lines.position(4), Position { line: 1, column: 5 });
        assert_eq!(lines.position(text.find('"').unwrap()), Position { line: 2, column: 5 });
        assert_eq!(lines.position(text.find('b').unwrap()), Position { line: 3, column: 1 });
        assert_eq!(lines.position(999), Position { line: 3, column: 2 });
    }

    #[test]
    fn errors_come_in_the_order_of_the_file() {
        let found = [(Some(7), "second"), (Some(0), "first")].map(|(at, text)| Found { at, message: text.to_owned() });
        let errors = FileErrors::locate("a.toml", "abc\ndefghij\n", found.to_vec());
        assert_eq!(errors.to_string(), "a.toml:1:1: first\na.toml:2:4: second");
    }
}
