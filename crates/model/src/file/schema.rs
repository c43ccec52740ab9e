//! Renders the grammar for editors (JSON Schema) and for people (the reference page).

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::grammar::{BUILTINS, FILE, Kind, Rule, Table};
use super::quantity::{DURATION, RATE, SIZE};

/// A JSON Schema (draft 7) of the System file: editors complete keys, show their documentation, and mark what is wrong.
#[must_use]
pub fn json_schema() -> Value {
    let mut schema = table(&FILE);
    if let Some(root) = schema.as_object_mut() {
        root.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
        root.insert("title".to_owned(), json!("takt System file"));
    }
    schema
}

fn table(of: &Table) -> Value {
    let mut properties = Map::new();
    for key in of.keys {
        let mut schema = kind(&key.kind);
        let default = if key.default.is_empty() { String::new() } else { format!(" Default: {}.", key.default) };
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), json!(format!("{}{default}", key.doc)));
            if let Ok(value) = serde_json::from_str::<Value>(key.default) {
                schema.insert("default".to_owned(), value);
            }
        }
        properties.insert(key.name.to_owned(), schema);
    }
    let required: Vec<&str> = of.keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let mut schema = json!({
        "type": "object",
        "description": of.doc,
        "additionalProperties": false,
        "properties": properties,
    });
    if let Some(object) = schema.as_object_mut() {
        if !required.is_empty() {
            object.insert("required".to_owned(), json!(required));
        }
        match of.rule {
            Rule::Free => {}
            Rule::One { keys, .. } => {
                let one: Vec<Value> = keys.iter().map(|key| json!({ "required": [key] })).collect();
                object.insert("oneOf".to_owned(), json!(one));
            }
            Rule::Some { .. } => {
                object.insert("minProperties".to_owned(), json!(1));
            }
        }
    }
    schema
}

fn kind(of: &Kind) -> Value {
    match of {
        Kind::Name | Kind::Text | Kind::NameOf(_) | Kind::Path => json!({ "type": "string", "minLength": 1 }),
        Kind::Span { .. } => json!({ "type": "string", "pattern": DURATION.pattern(false) }),
        Kind::Shift => json!({ "type": "string", "pattern": DURATION.pattern(true) }),
        Kind::Size => json!({ "type": "string", "pattern": SIZE.pattern(false) }),
        Kind::Rate => json!({ "type": "string", "pattern": RATE.pattern(false) }),
        Kind::Int { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Version => json!({ "type": "integer", "enum": [1] }),
        Kind::Probability => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Choice(words) => json!({ "type": "string", "enum": words }),
        Kind::Strategy => json!({ "anyOf": [
            { "type": "string", "enum": BUILTINS },
            { "type": "string", "minLength": 1 },
        ] }),
        Kind::List(of) => json!({ "type": "array", "items": kind(of), "minItems": 1 }),
        Kind::Tuple(of) => json!({
            "type": "array",
            "items": of.iter().map(kind).collect::<Vec<_>>(),
            "minItems": of.len(),
            "maxItems": of.len(),
        }),
        Kind::Table(of) => table(of),
        Kind::Tables(of) => json!({ "type": "array", "items": table(of), "minItems": 1 }),
        Kind::Map(of) => json!({ "type": "object", "additionalProperties": kind(of) }),
        Kind::Either(kinds) => json!({ "anyOf": kinds.iter().map(kind).collect::<Vec<_>>() }),
    }
}

/// Every key of the System file with what it takes, its default and its meaning, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut out = String::new();
    let mut seen = Vec::new();
    section(&FILE, "Top level", &mut out, &mut seen);
    out
}

/// The text in lines of at most 100 characters.
fn wrapped(text: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        let fits = width > 0 && width + 1 + length <= 100;
        let gap = if fits { " " } else { "\n" };
        out += if width == 0 { "" } else { gap };
        out += word;
        width = if fits { width + 1 + length } else { length };
    }
    out
}

fn section(of: &'static Table, title: &str, out: &mut String, seen: &mut Vec<&'static str>) {
    let doc = wrapped(of.doc);
    let _ = write!(out, "### {title}\n\n{doc}\n\n| key | takes | default | meaning |\n|---|---|---|---|\n");
    for key in of.keys {
        let default = match (key.required, key.default) {
            (true, _) => "**required**".to_owned(),
            (false, "") => "-".to_owned(),
            (false, default) if serde_json::from_str::<Value>(default).is_ok() => format!("`{default}`"),
            (false, default) => default.to_owned(),
        };
        let takes = takes(&key.kind).replace('|', "\\|");
        let _ = writeln!(out, "| `{}` | {takes} | {default} | {} |", key.name, key.doc);
    }
    match of.rule {
        Rule::Free => {}
        Rule::One { keys, .. } => {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            let _ = write!(out, "\nExactly one of {}.\n", keys.join(", "));
        }
        Rule::Some { .. } => out.push_str("\nAt least one of them.\n"),
    }
    out.push('\n');
    for key in of.keys {
        nested(&key.kind, key.name, out, seen);
    }
}

fn nested(of: &'static Kind, key: &str, out: &mut String, seen: &mut Vec<&'static str>) {
    match of {
        Kind::Tables(table) | Kind::Table(table) => {
            let title = match of {
                Kind::Tables(_) => format!("`[[{key}]]`"),
                _ => format!("`{key}`"),
            };
            if !seen.contains(&table.noun) {
                seen.push(table.noun);
                section(table, &title, out, seen);
            }
        }
        Kind::Either(kinds) => kinds.iter().for_each(|kind| nested(kind, key, out, seen)),
        _ => {}
    }
}

/// The values of a kind, in a table cell.
fn takes(of: &Kind) -> String {
    match of {
        Kind::Name => "name".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::NameOf(what) => format!("name of a {what}"),
        Kind::Path => "path".to_owned(),
        Kind::Span { zero: true } => "duration".to_owned(),
        Kind::Span { zero: false } => "duration > 0".to_owned(),
        Kind::Shift => "duration, may be negative".to_owned(),
        Kind::Size => "size".to_owned(),
        Kind::Rate => "rate > 0".to_owned(),
        Kind::Int { least, most: u32::MAX } => format!("integer >= {least}"),
        Kind::Int { least, most } => format!("{least} to {most}"),
        Kind::Version => "`1`".to_owned(),
        Kind::Probability => "probability".to_owned(),
        Kind::Bool => "`true`, `false`".to_owned(),
        Kind::Choice(words) => words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", "),
        Kind::Strategy => "strategy".to_owned(),
        Kind::List(of) => format!("[{}, ...]", takes(of)),
        Kind::Tuple(of) => format!("[{}]", of.iter().map(takes).collect::<Vec<_>>().join(", ")),
        Kind::Table(_) => "table".to_owned(),
        Kind::Tables(_) => "array of tables".to_owned(),
        Kind::Map(of) => format!("table of task = {}", takes(of)),
        Kind::Either(kinds) => kinds.iter().map(takes).collect::<Vec<_>>().join(" or "),
    }
}
