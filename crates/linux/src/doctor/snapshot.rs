//! The texts of a machine, by file. A snapshot can be written to a file and judged elsewhere.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

/// The first line of a snapshot's text.
const HEAD: &str = "# takt doctor 1";
/// Characters kept of one file.
const TEXT_MAX: usize = 1 << 20;

/// Texts by the path of their file. A path that begins with `takt:` holds the result of a system
/// call.
///
/// Its text has the head `# takt doctor 1`, a line `@ PATH` for each file and below it the file's
/// lines, each behind a `|`; where reading was refused, a line `! PATH: why`. Empty lines and those
/// that begin with `#` say nothing.
///
/// ```
/// use takt_linux::doctor::Snapshot;
/// let text = "# takt doctor 1\n@ /proc/swaps\n|Filename\n! /sys/kernel/debug: not permitted\n";
/// let machine = Snapshot::parse(text)?;
/// assert_eq!(machine.text("/proc/swaps"), Some("Filename\n"));
/// assert_eq!(machine.refused("/sys/kernel/debug"), Some("not permitted"));
/// assert_eq!(machine.to_string(), text);
/// # Ok::<(), takt_linux::doctor::SnapshotError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    texts: BTreeMap<String, Result<String, String>>,
}

/// An error in the text of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SnapshotError {
    /// The first line is not the head.
    #[error(
        "this is no snapshot of a machine: its first line is not \"{HEAD}\"; make one with \"takt doctor --save FILE\""
    )]
    Head,
    /// A line that is none of the three kinds.
    #[error(
        "line {line}: \"{text}\" is neither \"@ PATH\" nor \"! PATH: why\" nor a line of a file, which begins with |"
    )]
    Line {
        /// Its number, from one.
        line: usize,
        /// Its beginning.
        text: String,
    },
}

impl Snapshot {
    /// Reads a snapshot's text.
    ///
    /// # Errors
    /// The first wrong line.
    pub fn parse(text: &str) -> Result<Snapshot, SnapshotError> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line.trim_end() != HEAD) {
            return Err(SnapshotError::Head);
        }
        let mut machine = Snapshot::default();
        let mut open: Option<String> = None;
        for (number, line) in lines {
            // Replace control characters before splitting. Otherwise a control character that
            // becomes a space could end the path elsewhere when the text is read again.
            let line = plain(line);
            let wrong = || SnapshotError::Line { line: number + 1, text: line.chars().take(40).collect() };
            if let Some(path) = line.strip_prefix("@ ") {
                machine.put(path, "");
                open = Some(path.to_owned());
            } else if let Some(rest) = line.strip_prefix("! ") {
                let (path, reason) = rest.split_once(": ").ok_or_else(wrong)?;
                machine.refuse(path, reason);
                open = None;
            } else if let Some(content) = line.strip_prefix('|') {
                let entry = open.as_ref().and_then(|path| machine.texts.get_mut(path)).ok_or_else(wrong)?;
                if let Ok(text) = entry {
                    text.push_str(content);
                    text.push('\n');
                }
            } else if !(line.trim().is_empty() || line.starts_with('#')) {
                return Err(wrong());
            }
        }
        Ok(machine)
    }

    /// Sets the content of a file. Lines end with a newline; control characters except tabs become
    /// spaces.
    pub fn put(&mut self, path: &str, text: &str) {
        let mut kept = String::new();
        for line in text.lines() {
            if kept.len() + line.len() > TEXT_MAX {
                break;
            }
            kept.push_str(&plain(line));
            kept.push('\n');
        }
        self.texts.insert(plain(path), Ok(kept));
    }

    /// Records that a file exists but could not be read. A `: ` in the path would end the path in
    /// the text, so `path` must not hold one.
    pub fn refuse(&mut self, path: &str, reason: &str) {
        self.texts.insert(plain(path), Err(plain(reason)));
    }

    /// The content of a file; `None` if the file is missing or unreadable.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path)?.as_deref().ok()
    }

    /// The reason why an existing file could not be read.
    #[must_use]
    pub fn refused(&self, path: &str) -> Option<&str> {
        self.texts.get(path)?.as_ref().err().map(String::as_str)
    }

    /// Whether a file is there.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.texts.contains_key(path)
    }

    /// The first line of a file, blanks around it cut.
    #[must_use]
    pub fn line(&self, path: &str) -> Option<&str> {
        Some(self.text(path)?.lines().next().unwrap_or_default().trim())
    }

    /// The number in a file.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.line(path)?.parse().ok()
    }

    /// The files whose path begins with `prefix` and ends with `suffix`, with their text, in the order of their paths.
    pub fn matching<'a>(&'a self, prefix: &'a str, suffix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts
            .range(prefix.to_owned()..)
            .take_while(move |(path, _)| path.starts_with(prefix))
            .filter(move |(path, _)| path.ends_with(suffix))
            .filter_map(|(path, text)| Some((path.as_str(), text.as_deref().ok()?)))
    }
}

/// Replaces control characters except tabs by spaces. They could act on a terminal or end a line
/// early.
fn plain(line: &str) -> String {
    line.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }).collect()
}

/// The text that [`Snapshot::parse`] reads.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for (path, text) in &self.texts {
            match text {
                Ok(text) => {
                    writeln!(f, "@ {path}")?;
                    for line in text.lines() {
                        writeln!(f, "|{line}")?;
                    }
                }
                Err(reason) => writeln!(f, "! {path}: {reason}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_printed_without_control_characters() {
        let machine = Snapshot::parse("# takt doctor 1\n@ /proc/x\r\r\n|a\u{1b}[2J\r\r\n! /y: \u{7}no\n").unwrap();
        assert_eq!(machine.to_string(), "# takt doctor 1\n@ /proc/x \n|a [2J \n! /y:  no\n");
        assert_eq!(Snapshot::parse(&machine.to_string()), Ok(machine));
    }

    #[test]
    fn a_path_ends_at_the_same_place_however_often_it_is_read() {
        let machine = Snapshot::parse("# takt doctor 1\n! /x:\0/preempt: no\n").unwrap();
        assert_eq!(machine.refused("/x"), Some("/preempt: no"));
        assert_eq!(Snapshot::parse(&machine.to_string()), Ok(machine));
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        let mut machine = Snapshot::default();
        machine.put("/proc/x", "@ a\n\n| b\u{1b}[2J\nc");
        machine.put("/proc/empty", "");
        machine.refuse("/sys/y", "Permission denied (os error 13)");
        let text = machine.to_string();
        assert_eq!(
            text,
            "# takt doctor 1\n@ /proc/empty\n@ /proc/x\n|@ a\n|\n|| b [2J\n|c\n! /sys/y: Permission denied (os \
             error 13)\n"
        );
        assert_eq!(Snapshot::parse(&text), Ok(machine.clone()));
        assert_eq!(machine.line("/proc/x"), Some("@ a"));
        assert_eq!(machine.matching("/proc/", "y").next(), Some(("/proc/empty", "")));
        assert!(machine.has("/sys/y") && machine.text("/sys/y").is_none() && !machine.has("/sys"));
    }

    #[test]
    fn a_malformed_snapshot_is_refused_with_its_line() {
        let said = |text: &str| Snapshot::parse(text).unwrap_err().to_string();
        assert!(said("takt = 1\n").starts_with("this is no snapshot of a machine"));
        assert!(said("").starts_with("this is no snapshot"));
        assert!(said("# takt doctor 1\n|a\n").starts_with("line 2: \"|a\" is neither"));
        assert!(said("# takt doctor 1\n# a\n\n! /x\n").starts_with("line 4: \"! /x\" is neither"));
    }
}
