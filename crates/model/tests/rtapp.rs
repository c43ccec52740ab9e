//! Imports of rt-app workloads: the shipped examples as golden files, and what is refused.
//!
//! `UPDATE=1 cargo test -p takt-model --test rtapp` rewrites the golden files; read what it wrote.

use std::path::Path;

use takt_model::file::{parse, validate, write};
use takt_model::import::rtapp::import;

fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/rtapp").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("the golden file exists");
    assert_eq!(found, expected, "{name} differs; UPDATE=1 rewrites it");
}

#[test]
fn the_examples_become_these_systems() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rt-app");
    let mut names: Vec<String> = std::fs::read_dir(folder.clone())
        .expect("the examples exist")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .filter(|name| name.ends_with(".json"))
        .collect();
    names.sort();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        let json = std::fs::read_to_string(folder.join(&name)).expect("the example can be read");
        let imported = import(&json, &name).unwrap_or_else(|errors| panic!("{errors}"));
        validate(&imported.system).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let text = write(&imported.system);
        assert_eq!(parse(&text, "again.toml").as_ref(), Ok(&imported.system));
        let warnings: String = imported.warnings.iter().map(|warning| format!("# {warning}\n")).collect();
        golden(&name.replace(".json", ".toml"), &format!("{warnings}\n{text}"));
    }
}

const BAD: &str = include_str!("files/rtapp/errors.txt");

#[test]
fn what_rt_app_crashes_on_or_ignores_is_refused() {
    let mut again = String::new();
    let (head, cases) = BAD.split_once("--- ").expect("the file of cases has cases");
    again.push_str(head);
    let mut same = true;
    for case in cases.split("\n--- ") {
        let (title, rest) = case.split_once('\n').expect("a case has a title line");
        let (json, expected) = rest.split_once("=>").expect("a case has errors");
        let found = match import(json.trim_end_matches('\n'), "load.json") {
            Ok(_) => "(no error)".to_owned(),
            Err(errors) => errors.to_string(),
        };
        same &= found == expected.trim();
        again.push_str(&format!("--- {title}\n{}\n=>\n{found}\n\n", json.trim_end_matches('\n')));
    }
    golden("errors.txt", &format!("{}\n", again.trim_end()));
    assert!(same || std::env::var_os("UPDATE").is_some());
}
