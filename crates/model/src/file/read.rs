//! From TOML to typed fields with their places, by the tables of [`super::grammar`]: unknown keys,
//! types, units, ranges.

use std::fmt;
use std::ops::Range;

use toml_edit::{Item, TableLike, Value};

use super::error::Found;
use super::grammar::{self, Kind, Rule, Table};
use super::quantity::{self, DURATION, Dimension, QuantityError, RATE, SIZE};
use super::suggest::{hint, meant};
use crate::time::{Lateness, Span};
use crate::units::{Bytes, Probability, Rate};

/// A value that its kind allows.
#[derive(Clone, Debug)]
pub(super) enum Val {
    Text(String),
    Span(Span),
    Shift(Lateness),
    Size(Bytes),
    Rate(Rate),
    Int(u32),
    Probability(Probability),
    Bool(bool),
    /// Elements and where they stand; those that are bad are left out.
    List(Vec<(Val, usize)>),
    Table(Fields),
    /// Names, values, and where the names stand.
    Map(Vec<(String, Val, usize)>),
}

/// A table's keys as far as they are good.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    /// The table's keys.
    pub grammar: &'static Table,
    /// The start of the table in the text.
    pub at: usize,
    /// In the order of the grammar.
    pub fields: Vec<Option<Field>>,
    /// Whether the table has no unknown key and keeps the rule of its grammar.
    pub valid: bool,
}

/// One key of a file.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The place of its value in the text.
    pub at: usize,
    /// Its value, `None` where an error has been reported.
    pub value: Option<Val>,
}

impl Fields {
    /// The key, if the file has it.
    pub(super) fn field(&self, key: &str) -> Option<&Field> {
        self.fields[self.grammar.index(key)].as_ref()
    }
    /// The key's value, if the file has a good one.
    pub(super) fn value(&self, key: &str) -> Option<&Val> {
        self.field(key)?.value.as_ref()
    }
    /// Whether the file has the key with a value that an error has been reported of.
    pub(super) fn is_bad(&self, key: &str) -> bool {
        self.field(key).is_some_and(|field| field.value.is_none())
    }
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        if let Val::Text(text) = self.value(key)? { Some(text) } else { None }
    }
    pub(super) fn span(&self, key: &str) -> Option<Span> {
        if let Val::Span(span) = self.value(key)? { Some(*span) } else { None }
    }
    pub(super) fn int(&self, key: &str) -> Option<u32> {
        if let Val::Int(int) = self.value(key)? { Some(*int) } else { None }
    }
    pub(super) fn bool(&self, key: &str) -> Option<bool> {
        if let Val::Bool(value) = self.value(key)? { Some(*value) } else { None }
    }
    pub(super) fn list(&self, key: &str) -> &[(Val, usize)] {
        match self.value(key) {
            Some(Val::List(list)) => list,
            _ => &[],
        }
    }
    pub(super) fn table(&self, key: &str) -> Option<&Fields> {
        if let Val::Table(fields) = self.value(key)? { Some(fields) } else { None }
    }
    /// The tables of an array of tables.
    pub(super) fn tables(&self, key: &str) -> impl Iterator<Item = &Fields> {
        self.list(key).iter().filter_map(|(value, _)| if let Val::Table(fields) = value { Some(fields) } else { None })
    }
}

/// The path to a value, as a linked list on the stack. It costs nothing until an error is written.
#[derive(Clone, Copy)]
enum Label<'a> {
    /// The file itself.
    File,
    /// A named or numbered thing: `task "video"`, or `task 3` (counted from 1).
    Thing(&'static Table, Option<&'a str>, usize, Option<&'a Label<'a>>),
    /// A key of something.
    Key(&'a str, &'a Label<'a>),
    /// An element of something.
    Element(usize, &'a Label<'a>),
}

/// The path from the nearest thing: `exec.pmf[0]`.
fn path(label: &Label, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match label {
        Label::File | Label::Thing(..) => Ok(()),
        Label::Key(key, parent) => {
            path(parent, f)?;
            if !matches!(parent, Label::File | Label::Thing(..)) {
                f.write_str(".")?;
            }
            f.write_str(key)
        }
        Label::Element(index, parent) => {
            path(parent, f)?;
            write!(f, "[{index}]")
        }
    }
}

fn thing<'a>(label: &'a Label<'a>) -> &'a Label<'a> {
    match label {
        Label::File | Label::Thing(..) => label,
        Label::Key(_, parent) | Label::Element(_, parent) => thing(parent),
    }
}

/// A value between its path and its owner: `exec.pmf[0][1] 0.5 of task "video"`.
struct Named<'a> {
    label: &'a Label<'a>,
    value: &'a str,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        path(self.label, f)?;
        if !self.value.is_empty() {
            write!(f, " {}", self.value)?;
        }
        match thing(self.label) {
            Label::File => Ok(()),
            owner => write!(f, " of {}", Owner(owner)),
        }
    }
}

struct Owner<'a>(&'a Label<'a>);

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Label::Thing(table, Some(name), _, _) => write!(f, "{} \"{name}\"", table.noun),
            Label::Thing(table, None, index, parent) => {
                write!(f, "{} {}", table.noun, index + 1)?;
                match parent.map(thing) {
                    None | Some(Label::File) => Ok(()),
                    Some(parent) => write!(f, " of {}", Owner(parent)),
                }
            }
            Label::File => f.write_str("the file"),
            Label::Key(..) | Label::Element(..) => Owner(thing(self.0)).fmt(f),
        }
    }
}

/// Reads a whole document; what is wrong goes to `found`.
pub(super) fn read(text: &str, root: &dyn TableLike, found: &mut Vec<Found>) -> Fields {
    let mut reader = Reader { text, found };
    reader.table(&grammar::FILE, root, 0..0, Label::File)
}

struct Reader<'a> {
    text: &'a str,
    found: &'a mut Vec<Found>,
}

impl Reader<'_> {
    fn error(&mut self, at: usize, message: String) {
        self.found.push(Found { at: Some(at), message });
    }

    /// An item as the file writes it, shortened where it is long or runs over lines.
    fn snippet(&self, at: &Range<usize>) -> String {
        const SHOWN_MAX: usize = 40;
        let raw = self.text.get(at.clone()).unwrap_or_default();
        let line = raw.lines().next().unwrap_or_default().trim();
        if line.len() == raw.trim().len() && line.chars().count() <= SHOWN_MAX {
            return line.to_owned();
        }
        let mut shown: String = line.chars().take(SHOWN_MAX).collect();
        shown.push_str("...");
        shown
    }

    fn table(&mut self, grammar: &'static Table, table: &dyn TableLike, span: Range<usize>, label: Label) -> Fields {
        let mut fields = Fields { grammar, at: span.start, fields: vec![None; grammar.keys.len()], valid: true };
        for (name, item) in table.iter() {
            if item.is_none() {
                continue;
            }
            let key_at = table.key(name).and_then(toml_edit::Key::span).map_or(span.start, |at| at.start);
            let Some(index) = grammar.keys.iter().position(|key| key.name == name) else {
                self.unknown_key(grammar, name, key_at, &label);
                fields.valid = false;
                continue;
            };
            let at = item.span().filter(|at| !at.is_empty()).unwrap_or(key_at..key_at + name.len());
            let value = self.value(&grammar.keys[index].kind, item, at.clone(), &Label::Key(name, &label));
            fields.fields[index] = Some(Field { at: at.start, value });
        }
        for (key, field) in grammar.keys.iter().zip(&fields.fields) {
            if key.required && field.is_none() {
                let message = self.missing(grammar, key, &label);
                self.error(span.start, message);
            }
        }
        self.rule(&mut fields, &label);
        fields
    }

    fn missing(&self, grammar: &Table, key: &grammar::Key, label: &Label) -> String {
        let what = key.kind.describe();
        match label {
            Label::File if self.text.trim().is_empty() => {
                "the file is empty; a system starts with the line takt = 1".to_owned()
            }
            Label::File => "the file does not say its version; add the line takt = 1 at its start".to_owned(),
            Label::Key(..) | Label::Element(..) => {
                format!("{} lacks {}; give it {what}", Named { label, value: "" }, key.name)
            }
            Label::Thing(..) if key.name == "name" => {
                format!("{} has no name; every {} has one", Owner(label), grammar.noun)
            }
            Label::Thing(..) => format!("{} has no {}; give it {what}", Owner(label), key.name),
        }
    }

    fn unknown_key(&mut self, grammar: &Table, name: &str, at: usize, label: &Label) {
        let keys = || grammar.keys.iter().map(|key| key.name);
        let hint = match meant(name).into_iter().find(|meant| keys().any(|key| key == *meant)) {
            Some(meant) => format!("; did you mean \"{meant}\"?"),
            None => hint(name, keys(), || format!("its keys are {}", keys().collect::<Vec<_>>().join(", "))),
        };
        let owner = match label {
            Label::Key(..) | Label::Element(..) => Named { label, value: "" }.to_string(),
            owner => Owner(owner).to_string(),
        };
        self.error(at, format!("unknown key \"{name}\" in {owner}{hint}"));
    }

    fn rule(&mut self, fields: &mut Fields, label: &Label) {
        let has = |key: &str| fields.field(key).is_some();
        let fault = match fields.grammar.rule {
            Rule::Free => None,
            // An unknown key is probably the missing one, misspelt.
            Rule::Some { .. } | Rule::One { .. } if !fields.valid => None,
            Rule::Some { none } => fields.fields.iter().all(Option::is_none).then_some((fields.at, none)),
            Rule::One { keys, none, several } => match keys.iter().filter(|key| has(key)).collect::<Vec<_>>()[..] {
                [_] => None,
                [] => Some((fields.at, none)),
                [first, ..] => Some((fields.field(first).map_or(fields.at, |field| field.at), several)),
            },
        };
        if let Some((at, what)) = fault {
            fields.valid = false;
            let owner = match label {
                Label::Thing(..) | Label::File => Owner(label).to_string(),
                _ => Named { label, value: "" }.to_string(),
            };
            self.error(at, format!("{owner} {what}"));
        }
    }

    /// Reads a value by its kind; `None` after an error has been reported.
    fn value(&mut self, kind: &'static Kind, item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        match kind {
            Kind::Name | Kind::Text | Kind::NameOf(_) | Kind::Path | Kind::Strategy => self.name(kind, item, at, label),
            Kind::Span { zero } => self.span(kind, *zero, item, at, label),
            Kind::Shift => self.quantity(kind, &DURATION, quantity::shift, item, &at, label).map(Val::Shift),
            Kind::Size => self.quantity(kind, &SIZE, quantity::size, item, &at, label).map(Val::Size),
            Kind::Rate => {
                let rate = self.quantity(kind, &RATE, quantity::rate, item, &at, label)?;
                if rate.as_bps() > 0 {
                    return Some(Val::Rate(rate));
                }
                self.fault(&at, label, "is zero; a rate is above zero")
            }
            Kind::Int { least, most } => self.int(kind, *least, *most, item, at, label),
            Kind::Version => match item.as_integer() {
                Some(1) => Some(Val::Int(1)),
                Some(version) => {
                    self.error(at.start, format!("this file says version {version}; this takt reads 1"));
                    None
                }
                None => self.wrong_type(kind, item, &at, label),
            },
            Kind::Probability => self.probability(kind, item, at, label),
            Kind::Bool => match item.as_bool() {
                Some(value) => Some(Val::Bool(value)),
                None => self.wrong_type(kind, item, &at, label),
            },
            Kind::Choice(words) => self.choice(words, kind, item, at, label),
            Kind::List(of) => self.list(kind, of, item, at, label),
            Kind::Tuple(of) => self.tuple(kind, of, item, at, label),
            Kind::Table(table) => match item.as_table_like() {
                Some(inner) => {
                    let fields = self.table(table, inner, at, *label);
                    fields.valid.then_some(Val::Table(fields))
                }
                None => self.wrong_type(kind, item, &at, label),
            },
            Kind::Tables(table) => self.tables(table, item, at, label),
            Kind::Map(of) => self.map(kind, of, item, at, label),
            Kind::Either(kinds) => match form(kinds, item) {
                Some(Kind::Choice(words)) => self.choice(words, kind, item, at, label),
                Some(form) => self.value(form, item, at, label),
                None => self.wrong_type(kind, item, &at, label),
            },
        }
    }

    /// One of `words`; `kind` is all that could stand there.
    fn choice(&mut self, words: &[&str], kind: &Kind, item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        match item.as_str() {
            Some(word) if words.contains(&word) => Some(Val::Text(word.to_owned())),
            Some(word) => {
                let hint = hint(word, words.iter().copied(), || format!("it takes {}", kind.describe()));
                self.fault(&at, label, &format!("is unknown{hint}"))
            }
            None => self.wrong_type(kind, item, &at, label),
        }
    }

    /// Reports `path value of owner <fault>`.
    fn fault<T>(&mut self, at: &Range<usize>, label: &Label, fault: &str) -> Option<T> {
        let value = self.snippet(at);
        self.error(at.start, format!("{} {fault}", Named { label, value: &value }));
        None
    }

    fn wrong_type<T>(&mut self, kind: &Kind, item: &Item, at: &Range<usize>, label: &Label) -> Option<T> {
        let value = match item {
            Item::Value(value) if !value.is_array() && !value.is_inline_table() => self.snippet(at),
            _ => String::new(),
        };
        let found = match item.type_name() {
            "array of tables" => "an array of tables".to_owned(),
            name @ ("array" | "integer" | "inline table") => format!("an {name}"),
            name => format!("a {name}"),
        };
        let what = kind.describe();
        self.error(at.start, format!("{} is {found}; it takes {what}", Named { label, value: &value }));
        None
    }

    fn name(&mut self, kind: &Kind, item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        let Some(name) = item.as_str() else { return self.wrong_type(kind, item, &at, label) };
        match name_fault(name) {
            None => Some(Val::Text(name.to_owned())),
            Some(fault) => self.fault(&at, label, fault),
        }
    }

    fn quantity<T>(
        &mut self,
        kind: &Kind,
        dimension: &Dimension,
        parse: impl Fn(&str) -> Result<T, QuantityError>,
        item: &Item,
        at: &Range<usize>,
        label: &Label,
    ) -> Option<T> {
        let parsed = match item.as_str() {
            Some(text) => parse(text),
            None if item.is_integer() || item.is_float() => Err(QuantityError::NoUnit),
            None => return self.wrong_type(kind, item, at, label),
        };
        match parsed {
            Ok(value) => Some(value),
            Err(QuantityError::Negative) if matches!(kind, Kind::Span { zero: false }) => {
                self.fault(at, label, "is negative; it must be above zero")
            }
            Err(error) => self.fault(at, label, &error.explain(dimension).to_string()),
        }
    }

    fn span(&mut self, kind: &Kind, zero: bool, item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        let span = self.quantity(kind, &DURATION, quantity::span, item, &at, label)?;
        if span.is_zero() && !zero {
            self.fault(&at, label, "is zero; it must be above zero")
        } else {
            Some(Val::Span(span))
        }
    }

    fn int(&mut self, kind: &Kind, least: u32, most: u32, item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        let Some(int) = item.as_integer() else { return self.wrong_type(kind, item, &at, label) };
        match u32::try_from(int).ok().filter(|int| (least..=most).contains(int)) {
            Some(int) => Some(Val::Int(int)),
            None => self.fault(&at, label, &format!("is out of range; it takes {}", kind.describe())),
        }
    }

    fn probability(&mut self, kind: &Kind, item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        if !item.is_float() && !item.is_integer() {
            return self.wrong_type(kind, item, &at, label);
        }
        // The digits of the file decide, not the float that TOML makes of them.
        let text = self.text;
        match quantity::probability(text.get(at.clone()).unwrap_or_default().trim()) {
            Ok(probability) => Some(Val::Probability(probability)),
            Err(fault) => self.fault(&at, label, fault),
        }
    }

    fn list(&mut self, kind: &Kind, of: &'static Kind, item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        let Some(array) = item.as_array() else { return self.wrong_type(kind, item, &at, label) };
        if array.is_empty() {
            return self.fault(&at, label, "is empty; give at least one");
        }
        let mut list = Vec::with_capacity(array.len());
        for (index, value) in array.iter().enumerate() {
            let here = value.span().unwrap_or(at.clone());
            let element = self.element(of, value, here.clone(), &Label::Element(index, label));
            list.extend(element.map(|element| (element, here.start)));
        }
        (list.len() == array.len()).then_some(Val::List(list))
    }

    fn tuple(&mut self, kind: &Kind, of: &'static [Kind], item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        let array = item.as_array().filter(|array| array.len() == of.len());
        let Some(array) = array else {
            if item.is_array() {
                return self.fault(&at, label, &format!("is not {}", kind.describe()));
            }
            return self.wrong_type(kind, item, &at, label);
        };
        let mut list = Vec::with_capacity(of.len());
        for (index, (value, of)) in array.iter().zip(of).enumerate() {
            let here = value.span().unwrap_or(at.clone());
            let element = self.element(of, value, here.clone(), &Label::Element(index, label));
            list.extend(element.map(|element| (element, here.start)));
        }
        (list.len() == of.len()).then_some(Val::List(list))
    }

    fn element(&mut self, of: &'static Kind, value: &Value, at: Range<usize>, label: &Label) -> Option<Val> {
        // Arrays of arrays are short (pairs), so that the copies cost nothing that counts.
        self.value(of, &Item::Value(value.clone()), at, label)
    }

    fn tables(&mut self, grammar: &'static Table, item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        let mut list = Vec::new();
        let mut whole = true;
        let parent = thing(label);
        let mut read = |reader: &mut Self, index: usize, table: &dyn TableLike, span: Range<usize>| {
            let name = table.get("name").and_then(Item::as_str);
            let named = grammar.keys.iter().any(|key| key.name == "name");
            let label = Label::Thing(grammar, name.filter(|_| named), index, Some(parent));
            list.push((Val::Table(reader.table(grammar, table, span.clone(), label)), span.start));
        };
        match item {
            Item::ArrayOfTables(tables) => {
                for (index, table) in tables.iter().enumerate() {
                    read(self, index, table, table.span().unwrap_or(at.clone()));
                }
            }
            Item::Value(Value::Array(array)) => {
                for (index, value) in array.iter().enumerate() {
                    let span = value.span().unwrap_or(at.clone());
                    match value.as_inline_table() {
                        Some(table) => read(self, index, table, span),
                        None => {
                            whole = false;
                            self.fault::<()>(&span, &Label::Element(index, label), "is no table");
                        }
                    }
                }
            }
            _ if item.is_table() => {
                let name = grammar.noun;
                self.error(at.start, format!("[{name}] is a single table; write [[{name}]], once for each {name}"));
                return None;
            }
            _ => return self.wrong_type(&Kind::Tables(grammar), item, &at, label),
        }
        if list.is_empty() && whole {
            return self.fault(&at, label, "is empty; give at least one");
        }
        whole.then_some(Val::List(list))
    }

    fn map(&mut self, kind: &Kind, of: &'static Kind, item: &Item, at: Range<usize>, label: &Label) -> Option<Val> {
        let Some(table) = item.as_table_like() else { return self.wrong_type(kind, item, &at, label) };
        let mut map = Vec::new();
        let mut whole = true;
        for (name, item) in table.iter() {
            let key_at = table.key(name).and_then(toml_edit::Key::span).map_or(at.start, |at| at.start);
            let here = item.span().unwrap_or(key_at..key_at);
            match self.value(of, item, here, &Label::Key(name, label)) {
                Some(value) => map.push((name.to_owned(), value, key_at)),
                None => whole = false,
            }
        }
        whole.then_some(Val::Map(map))
    }
}

/// Why a text cannot be a name or path, as the rest of a sentence.
pub(super) fn name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty; give a name")
    } else if name.chars().any(char::is_control) {
        Some("holds a control character; names and paths are one line of plain text")
    } else {
        None
    }
}

/// The alternative that matches an item: a fixed word first, else the last one of its TOML type.
fn form(kinds: &'static [Kind], item: &Item) -> Option<&'static Kind> {
    let word =
        |kind: &&Kind| matches!((kind, item.as_str()), (Kind::Choice(words), Some(word)) if words.contains(&word));
    let typed = |kind: &&Kind| match kind {
        Kind::Choice(_) => item.is_str(),
        Kind::Span { .. } => item.is_str() || item.is_integer() || item.is_float(),
        Kind::List(_) | Kind::Tuple(_) => item.is_array(),
        Kind::Table(_) => item.is_table_like(),
        _ => false,
    };
    kinds.iter().find(word).or_else(|| kinds.iter().rev().find(typed))
}
