//! The keys of a System file, once: the parser, the JSON Schema and the reference page all read these tables.

use crate::strategy::Builtin;

mod tables;

pub(crate) use tables::FILE;

/// One TOML table's keys.
#[derive(Debug)]
pub(crate) struct Table {
    /// The name of such a table in errors: `task`.
    pub noun: &'static str,
    /// Its purpose, one or two sentences of Markdown.
    pub doc: &'static str,
    /// The keys, in canonical order.
    pub keys: &'static [Key],
    /// Which keys go together.
    pub rule: Rule,
}

#[derive(Debug)]
pub(crate) struct Key {
    /// As the file writes it.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Whether its absence is an error.
    pub required: bool,
    /// The meaning of its absence, in words.
    pub default: &'static str,
    /// Its meaning, one or two sentences of Markdown.
    pub doc: &'static str,
}

/// Which keys of a table go together.
#[derive(Debug)]
pub(crate) enum Rule {
    /// Any.
    Free,
    /// One of these and no other of them.
    One {
        keys: &'static [&'static str],
        /// The error where none is there.
        none: &'static str,
        /// The error where several are there.
        several: &'static str,
    },
    /// At least one of the table's keys.
    Some {
        /// The error where none is there.
        none: &'static str,
    },
}

/// The values of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A new name: not empty, no control characters.
    Name,
    /// A sentence: not empty, no control characters.
    Text,
    /// The name of something in the file.
    NameOf(&'static str),
    Path,
    /// A duration; zero only where `zero`.
    Span {
        zero: bool,
    },
    /// A signed duration.
    Shift,
    Size,
    /// A rate above zero.
    Rate,
    /// An integer in a range, both ends included.
    Int {
        least: u32,
        most: u32,
    },
    Version,
    /// A number between 0 and 1 with at most nine decimals.
    Probability,
    /// `true` or `false`.
    Bool,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of these words, or else the name of a `[[strategy]]`.
    Strategy,
    /// An array of at least one.
    List(&'static Kind),
    /// An array of exactly these.
    Tuple(&'static [Kind]),
    Table(&'static Table),
    /// `[[...]]`, or an array of inline tables.
    Tables(&'static Table),
    /// A table from task names to values.
    Map(&'static Kind),
    /// The first whose form fits.
    Either(&'static [Kind]),
}

pub(crate) const CRITICALITIES: &[&str] = &["high", "low"];
pub(crate) const PLACEMENTS: &[&str] = &["global", "partitioned", "clustered"];
/// The words of `fit`, in the order of [`crate::Fit`].
pub(crate) const FITS: &[&str] = &["first-fit", "best-fit", "worst-fit", "next-fit", "ilp"];
/// The words of `discipline`, in the order of [`crate::Discipline`].
pub(crate) const DISCIPLINES: &[&str] = &["fifo", "deadline", "laxity", "gel"];
/// The words of `split`, in the order of [`crate::Split`].
pub(crate) const SPLITS: &[&str] = &["none", "priority", "period", "deadline", "criticality", "importance"];
/// The words of `late`, in the order of [`crate::Late`].
pub(crate) const LATES: &[&str] = &["continue", "drop", "demote"];
/// The words of `late` of a link, in the same order.
pub(crate) const PACKETS_LATE: &[&str] = &["send", "drop", "demote"];
/// The names that [`Builtin`] gives, for strategies.
pub(crate) const BUILTINS: [&str; Builtin::ALL.len()] = {
    let mut names = [""; Builtin::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = Builtin::ALL[i].name();
        i += 1;
    }
    names
};

impl Table {
    /// The position of a key; the grammar is fixed, so a miss is a bug of the caller.
    pub(crate) fn index(&self, name: &str) -> usize {
        self.keys.iter().position(|key| key.name == name).expect("the reader asks only for keys of the grammar")
    }
}

impl Kind {
    /// The form of a value, for errors and the reference page.
    pub(crate) fn describe(&self) -> String {
        match self {
            Kind::Name => "a name such as \"video\"".to_owned(),
            Kind::Text => "a line of text".to_owned(),
            Kind::NameOf(what) => format!("the name of a {what}"),
            Kind::Path => "the path of a file".to_owned(),
            Kind::Span { .. } => "a duration such as \"10ms\"".to_owned(),
            Kind::Shift => "a duration such as \"-2ms\"".to_owned(),
            Kind::Size => "a size such as \"64KiB\"".to_owned(),
            Kind::Rate => "a rate such as \"1Gbit\"".to_owned(),
            Kind::Int { least, most } => format!("an integer from {least} to {most}"),
            Kind::Version => "the version 1".to_owned(),
            Kind::Probability => "a number between 0 and 1 with at most nine decimals".to_owned(),
            Kind::Bool => "true or false".to_owned(),
            Kind::Choice(words) => one_of(words),
            Kind::Strategy => format!("{} or the name of a [[strategy]]", quoted(&BUILTINS)),
            Kind::List(of) => format!("an array, each {}", of.describe()),
            Kind::Tuple([_, Kind::Probability]) => "a duration and its probability such as [\"1ms\", 0.9]".to_owned(),
            Kind::Tuple(_) => "two durations such as [\"1ms\", \"2ms\"]".to_owned(),
            Kind::Table(table) => {
                let keys: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
                format!("a table with {}", keys.join(", "))
            }
            Kind::Tables(table) => format!("an array of tables ([[{}]])", table.noun),
            Kind::Map(of) => format!("a table from task names to {}", of.describe()),
            Kind::Either(kinds) => kinds.iter().map(Kind::describe).collect::<Vec<_>>().join(", or "),
        }
    }
}

/// `"a"`, or `one of "a", "b"`.
fn one_of(words: &[&str]) -> String {
    match words {
        [word] => format!("\"{word}\""),
        _ => format!("one of {}", quoted(words)),
    }
}

/// `"a", "b"`.
pub(crate) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Discipline, Late, Split};

    #[test]
    fn the_words_stand_in_the_order_of_the_types() {
        let gel = Discipline::Gel { shift: Default::default() };
        for (i, discipline) in [Discipline::Fifo, Discipline::Deadline, Discipline::Laxity, gel].iter().enumerate() {
            assert_eq!(DISCIPLINES[i], discipline.name());
        }
        assert_eq!((SPLITS[Split::Importance as usize], SPLITS[Split::Period as usize]), ("importance", "period"));
        assert_eq!(LATES[Late::Demote as usize], "demote");
    }
}
