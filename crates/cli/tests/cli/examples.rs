//! The examples that come with takt.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::folder::Folder;

#[test]
fn every_example_is_checked_and_simulated() {
    let folder = Folder::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in fs::read_dir(examples).expect("examples").map(|entry| entry.expect("an entry").path()) {
        if entry.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        seen += 1;
        let file = entry.to_str().expect("a name");
        assert!(folder.takt(&["check", file]).status <= 1, "{file}");
        let ran = folder.takt(&["sim", file]);
        assert_eq!(ran.status, 0, "{file}: {}", ran.stderr);
    }
    assert!(seen >= 6, "{seen} examples");
}

/// Graham's anomaly with one more CPU. docs/explanation/effects.md shows what else the teaching examples do.
#[test]
fn one_more_cpu_makes_a_job_of_grahams_example_late() {
    let folder = Folder::new();
    let missed = |cpus: &str| {
        let text = include_str!("../../../../examples/graham.toml").replace("cpus = 3", cpus);
        fs::write(folder.path("graham.toml"), text).expect("a file");
        let ran = folder.takt(&["sim", "graham.toml", "--for", "100ms", "--json"]).json();
        let late = ran["tasks"].as_array().expect("tasks").iter().filter(|task| task["missed"] != 0);
        late.map(|task| task["task"].clone()).collect::<Vec<_>>()
    };
    assert!(missed("cpus = 3").is_empty());
    assert_eq!(folder.takt(&["check", "graham.toml"]).status, 1);
    assert_eq!(missed("cpus = 4"), ["i"]);
}

#[test]
fn every_imported_example_is_checked_simulated_and_run() {
    let folder = Folder::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rt-app");
    let mut seen = 0;
    for entry in fs::read_dir(examples).expect("examples").map(|entry| entry.expect("an entry").path()) {
        seen += 1;
        let file = entry.to_str().expect("a name");
        let done = |arguments: &[&str]| folder.takt(arguments);
        assert_eq!(done(&["import", file, "-o", "imported.toml"]).status, 0, "{file}");
        assert!(done(&["check", "imported.toml"]).status <= 1, "{file}");
        for verb in [&["sim", "imported.toml"][..], &["run", "imported.toml", "--best-effort", "--for", "50ms"]] {
            let ran = done(verb);
            // Best effort takes any strategy, but no more CPUs than there are.
            let small = ran.status == 3 && ran.stderr.contains("run it on a larger machine");
            assert!(ran.status == 0 || small, "{file} {verb:?}: {} {}", ran.status, ran.stderr);
        }
    }
    assert!(seen >= 4, "{seen} examples");
}

#[test]
fn the_tour_shows_every_key() {
    let folder = Folder::new();
    let schema = folder.takt(&["schema"]).json();
    let tour = include_str!("../../../../examples/tour.toml");
    let mut keys = Vec::new();
    keys_of(&schema, &mut keys);
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.len() > 50, "{keys:?}");
    let lines = || tour.lines().map(|line| line.split(" # ").next().unwrap_or_default());
    let shown = |key: &String| {
        let spellings = [format!("{key} ="), format!("[[{key}]]")];
        lines().any(|line| spellings.iter().any(|spelling| line.contains(spelling)))
    };
    keys.retain(|key| !shown(key));
    assert!(keys.is_empty(), "examples/tour.toml lacks {keys:?}");
}

fn keys_of(schema: &Value, keys: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            for (name, value) in map {
                if let ("properties", Some(properties)) = (name.as_str(), value.as_object()) {
                    keys.extend(properties.keys().cloned());
                }
                keys_of(value, keys);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys_of(value, keys)),
        _ => {}
    }
}
