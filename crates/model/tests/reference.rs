//! The reference page and the JSON Schema are what the parser's own table of keys says, and the schema judges files as
//! the parser does. `UPDATE=1 cargo test -p takt-model --test reference` rewrites both.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use takt_model::file::{json_schema, parse, reference};

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name)
}

fn same(path: &Path, expected: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, expected).expect("the file can be written");
    }
    let found = std::fs::read_to_string(path).expect("the file exists");
    assert!(found == expected, "{} is out of date; UPDATE=1 rewrites it", path.display());
}

#[test]
fn the_reference_page_lists_every_key() {
    const MARK: &str = "<!-- generated: UPDATE=1 cargo test -p takt-model --test reference -->";
    let path = docs("system-file.md");
    let page = std::fs::read_to_string(&path).expect("the page exists");
    let (written, _) = page.split_once(MARK).expect("the page has a generated part");
    same(&path, &format!("{written}{MARK}\n\n{}\n", reference().trim_end()));
}

#[test]
fn the_schema_ships() {
    let text = serde_json::to_string_pretty(&json_schema()).expect("JSON can be written");
    same(&docs("system-file.schema.json"), &format!("{text}\n"));
}

#[test]
fn the_pages_example_is_valid() {
    let page = std::fs::read_to_string(docs("system-file.md")).expect("the page exists");
    let (_, rest) = page.split_once("```toml\n").expect("the page has an example");
    let (example, _) = rest.split_once("```").expect("the example ends");
    assert_eq!(parse(example, "example.toml").map(|system| system.tasks.len()), Ok(3));
    assert_eq!(faults(example), Vec::<String>::new());
}

#[test]
fn the_schema_accepts_what_the_parser_accepts() {
    for file in [include_str!("files/design.toml"), "takt = 1\n"] {
        assert!(parse(file, "a.toml").is_ok());
        assert_eq!(faults(file), Vec::<String>::new());
    }
    // Canonical texts of imports use strategies, probabilities and lists.
    for name in ["mixed", "phases", "control-loop"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/files/rtapp/{name}.toml"));
        let text = std::fs::read_to_string(path).expect("the golden file exists");
        assert_eq!(faults(&text), Vec::<String>::new());
    }
}

#[test]
fn the_schema_marks_what_an_editor_can_see() {
    let task = |keys: &str| format!("takt = 1\n[[task]]\nname = \"a\"\n{keys}\n");
    for bad in [
        "name = \"no version\"\n".to_owned(),
        "takt = 2\n".to_owned(),
        "takt = 1\ncolour = \"red\"\n".to_owned(),
        task("wcet = \"1ms\""),
        task("wcet = \"1ms\"\nperiod = 10"),
        task("wcet = \"1ms\"\nperiod = \"10\""),
        task("wcet = \"1ms\"\nperiod = \"10m\""),
        task("wcet = \"1ms\"\nperiod = \"10ms\"\nafter = [\"b\"]"),
        task("wcet = \"1ms\"\nperiod = \"10ms\"\npriority = 0"),
        task("wcet = \"1ms\"\nperiod = \"10ms\"\ncpus = []"),
        task("wcet = \"1ms\"\nperiod = \"10ms\"\nexec = { uniform = [\"1ms\"] }"),
        task("wcet = \"1ms\"\nperiod = \"10ms\"\nexec = {}"),
        task("wcet = \"1ms\"\nperiod = \"10ms\"\ncriticality = \"medium\""),
        "takt = 1\n[[strategy]]\nname = \"s\"\nlevel = [{ discipline = \"fifo\", tasks = {} }]\n".to_owned(),
    ] {
        assert!(parse(&bad, "a.toml").is_err(), "{bad}");
        assert_ne!(faults(&bad), Vec::<String>::new(), "{bad}");
    }
}

/// The schema's complaints about a file.
fn faults(toml: &str) -> Vec<String> {
    let document: toml_edit::DocumentMut = toml.parse().expect("TOML");
    let mut faults = Vec::new();
    judge(&json_schema(), &item(document.as_item()), "", &mut faults);
    faults
}

fn item(of: &toml_edit::Item) -> Value {
    match of {
        toml_edit::Item::None => Value::Null,
        toml_edit::Item::Value(of) => value(of),
        toml_edit::Item::Table(table) => {
            Value::Object(table.iter().map(|(key, of)| (key.to_owned(), item(of))).collect())
        }
        toml_edit::Item::ArrayOfTables(tables) => {
            let table = |table: &toml_edit::Table| table.iter().map(|(key, of)| (key.to_owned(), item(of))).collect();
            Value::Array(tables.iter().map(|of| Value::Object(table(of))).collect())
        }
    }
}

fn value(of: &toml_edit::Value) -> Value {
    match of {
        toml_edit::Value::String(of) => json!(of.value()),
        toml_edit::Value::Integer(of) => json!(of.value()),
        toml_edit::Value::Float(of) => json!(of.value()),
        toml_edit::Value::Boolean(of) => json!(of.value()),
        toml_edit::Value::Datetime(of) => json!(of.value().to_string()),
        toml_edit::Value::Array(of) => Value::Array(of.iter().map(value).collect()),
        toml_edit::Value::InlineTable(of) => {
            Value::Object(of.iter().map(|(key, of)| (key.to_owned(), value(of))).collect::<Map<_, _>>())
        }
    }
}

/// Judges by the keywords that the schema uses; a keyword that is not known here is a failure of the test.
fn judge(schema: &Value, of: &Value, path: &str, faults: &mut Vec<String>) {
    let good = |schema: &Value| {
        let mut faults = Vec::new();
        judge(schema, of, path, &mut faults);
        faults.is_empty()
    };
    for (keyword, wanted) in schema.as_object().expect("a schema is an object") {
        let fine = match keyword.as_str() {
            "$schema" | "title" | "description" | "default" => true,
            "type" => match wanted.as_str().expect("one type") {
                "object" => of.is_object(),
                "array" => of.is_array(),
                "string" => of.is_string(),
                "integer" => of.is_i64() || of.is_u64(),
                "number" => of.is_number(),
                "boolean" => of.is_boolean(),
                other => panic!("unknown type {other}"),
            },
            "enum" => wanted.as_array().expect("a list").contains(of),
            "minimum" => of.as_f64() >= wanted.as_f64(),
            "maximum" => of.as_f64() <= wanted.as_f64(),
            "minLength" => of.as_str().is_some_and(|text| !text.is_empty()),
            "minItems" => of.as_array().is_some_and(|list| list.len() as u64 >= wanted.as_u64().expect("a number")),
            "maxItems" => of.as_array().is_some_and(|list| list.len() as u64 <= wanted.as_u64().expect("a number")),
            "minProperties" => of.as_object().is_some_and(|map| !map.is_empty()),
            "pattern" => of.as_str().is_some_and(|text| matches(wanted.as_str().expect("a pattern"), text)),
            "anyOf" => wanted.as_array().expect("a list").iter().any(good),
            "oneOf" => wanted.as_array().expect("a list").iter().filter(|schema| good(schema)).count() == 1,
            "required" => {
                let has = |key: &Value| of.get(key.as_str().expect("a key")).is_some();
                wanted.as_array().expect("a list").iter().all(has)
            }
            "properties" => {
                for (key, of) in of.as_object().into_iter().flatten() {
                    if let Some(schema) = wanted.get(key) {
                        judge(schema, of, &format!("{path}/{key}"), faults);
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties");
                let mut others = of.as_object().into_iter().flatten();
                others.all(|(key, of)| {
                    known.is_some_and(|known| known.get(key).is_some())
                        || (wanted.is_object() && {
                            let before = faults.len();
                            judge(wanted, of, &format!("{path}/{key}"), faults);
                            faults.len() == before
                        })
                })
            }
            "items" => {
                for (i, of) in of.as_array().into_iter().flatten().enumerate() {
                    let schema = wanted.as_array().map_or(Some(wanted), |list| list.get(i));
                    if let Some(schema) = schema {
                        judge(schema, of, &format!("{path}/{i}"), faults);
                    }
                }
                true
            }
            other => panic!("the schema uses {other}, which this test does not know"),
        };
        if !fine {
            faults.push(format!("{path}: {keyword} {wanted}"));
        }
    }
}

/// Matches the one form of pattern that the schema uses: `^-?[0-9]+(\.[0-9]+)?(unit|unit)$`.
fn matches(pattern: &str, text: &str) -> bool {
    let (signed, rest) = match pattern.strip_prefix("^-?") {
        Some(rest) => (true, rest),
        None => (false, pattern.strip_prefix('^').expect("an anchored pattern")),
    };
    let units =
        rest.strip_prefix("[0-9]+(\\.[0-9]+)?(").and_then(|rest| rest.strip_suffix(")$")).expect("a known form");
    let text = if signed { text.strip_prefix('-').unwrap_or(text) } else { text };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let good = match number.split_once('.') {
        Some((whole, decimals)) => digits(whole) && digits(decimals),
        None => digits(number),
    };
    good && units.split('|').any(|known| known == unit)
}
