//! What tests of `takt reproduce` share: they run an experiment and look at its files.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn takt(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_takt")).args(arguments).output().expect("takt runs")
}

/// Runs an experiment; `None`, with the reason on the screen, where this machine or user cannot.
pub(crate) fn reproduce(name: &str, more: &[&str]) -> Option<(Value, tempfile::TempDir)> {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let ran = takt(&[&["reproduce", name, "--out", out.to_str().expect("a path"), "--json"], more].concat());
    Some((answer(&ran, &out)?, folder))
}

/// The answer of an experiment whose files are in `out`; `None` as above.
pub(crate) fn answer(ran: &Output, out: &Path) -> Option<Value> {
    let complaints = String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(3) {
        println!("skipped: {complaints}");
        return None;
    }
    assert!(matches!(ran.status.code(), Some(0 | 1)), "{:?}: {complaints}", ran.status);
    let answer: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(ran.status.code() == Some(0), answer["holds"] == true, "{answer}");
    whole(&answer, out);
    Some(answer)
}

/// All files are there and whole, and the page and the tables say what the answer says.
pub(crate) fn whole(answer: &Value, folder: &Path) {
    let files: Vec<&str> = answer["files"].as_array().expect("files").iter().filter_map(Value::as_str).collect();
    let there = fs::read_dir(folder).expect("the folder").count();
    assert_eq!(there, files.len(), "{files:?}");
    for file in &files {
        let is_code = |word: &str| file.strip_prefix(word).is_some_and(|rest| !rest.starts_with(char::is_alphabetic));
        assert!(!["fig", "table", "t"].into_iter().any(is_code), "{file} is not named after its content");
        let bytes = fs::read(folder.join(file)).expect("each file is there");
        assert!(!bytes.is_empty(), "{file} is empty");
        if file.ends_with(".svg") {
            let text = String::from_utf8(bytes).expect("text");
            assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n") && !text.contains("NaN"), "{file}");
        } else if file.ends_with(".takt") {
            let log = folder.join(file);
            let stats = takt(&["stats", log.to_str().expect("a path"), "--json"]);
            assert!(stats.status.success(), "{file}: {}", String::from_utf8_lossy(&stats.stderr));
        }
    }
    let page = fs::read_to_string(folder.join("index.html")).expect("the page");
    for claim in answer["claims"].as_array().expect("claims") {
        let found = claim["found"].as_str().expect("a sentence");
        assert!(!found.is_empty() && page.contains(&found.replace('"', "&quot;")), "{found}");
    }
    assert!(!answer["differences"].as_array().expect("differences").is_empty(), "something differs from any paper");
}

/// The values of a column of a source, in the order of the rows.
pub(crate) fn column(table: &Value, column: &str, source: &str) -> Vec<Option<f64>> {
    let of = |row: &Value| {
        let values = row["values"].as_array().expect("values");
        values.iter().find(|value| value["column"] == column).expect("the column")[source].as_f64()
    };
    table["rows"].as_array().expect("rows").iter().map(of).collect()
}
