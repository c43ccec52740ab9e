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

/// The verdict of `check` and the missed deadlines of each task in 100 ms of `sim`.
fn effect(folder: &Folder, file: &str) -> (i32, Vec<(String, u64)>) {
    let checked = folder.takt(&["check", file]).status;
    let ran = folder.takt(&["sim", file, "--for", "100ms", "--json"]).json();
    let tasks = ran["tasks"].as_array().expect("tasks");
    let missed = tasks
        .iter()
        .map(|task| (task["task"].as_str().expect("a name").to_owned(), task["missed"].as_u64().expect("a count")));
    (checked, missed.filter(|(_, missed)| *missed > 0).collect())
}

/// Each teaching example misses the deadline that its comment names. Mended as the comment says, it misses none.
#[test]
fn the_teaching_examples_show_their_effects() {
    let folder = Folder::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let cases = [
        ("dhall.toml", "heavy", ("\"global\"", "\"partitioned\"")),
        ("rm-or-edf.toml", "slow", ("\"rm\"", "\"edf\"")),
        ("blocking.toml", "motor", ("[\"8ms\"]", "[\"2ms\", \"2ms\", \"2ms\", \"2ms\"]")),
    ];
    for (name, late, (old, new)) in cases {
        let file = examples.join(name);
        let (checked, missed) = effect(&folder, file.to_str().expect("a name"));
        assert_eq!(checked, 1, "{name}");
        assert!(missed.len() == 1 && missed[0].0 == late, "{name}: {missed:?}");
        let text = fs::read_to_string(&file).expect("the example");
        fs::write(folder.path("mended.toml"), text.replace(old, new)).expect("a file");
        assert_eq!(effect(&folder, "mended.toml"), (0, Vec::new()), "{name}");
    }
    // Graham's anomaly: the file misses nothing. With shorter jobs or one more CPU it does.
    let file = examples.join("graham.toml");
    assert_eq!(effect(&folder, file.to_str().expect("a name")), (1, Vec::new()));
    let text = fs::read_to_string(&file).expect("the example");
    let shorter = [("3ms", "2ms"), ("2ms", "1ms"), ("4ms", "3ms"), ("9ms", "8ms")];
    let shortened: String = text
        .split_inclusive('\n')
        .map(|line| match shorter.iter().find(|(old, _)| line == format!("wcet = \"{old}\"\n")) {
            Some((old, new)) => line.replace(old, new),
            None => line.to_owned(),
        })
        .collect();
    for worse in [shortened, text.replace("cpus = 3", "cpus = 4")] {
        fs::write(folder.path("worse.toml"), worse).expect("a file");
        let (_, missed) = effect(&folder, "worse.toml");
        assert!(missed.len() == 1 && missed[0].0 == "i", "{missed:?}");
    }
    // Without its server the decoder makes the control task late. With it the CPU is proven, the component is not.
    let file = examples.join("servers/cbs-isolation.toml");
    let answer = folder.takt(&["check", file.to_str().expect("a name"), "--json"]).json().to_string();
    assert!(answer.contains("board/video"), "{answer}");
    let (_, missed) = effect(&folder, file.to_str().expect("a name"));
    assert_eq!(missed.iter().map(|(task, _)| task.as_str()).collect::<Vec<_>>(), ["decoder"]);
    let text = fs::read_to_string(&file).expect("the example");
    let (before, rest) = text.split_once("\n[[component]]").expect("a component");
    let (_, tasks) = rest.split_once("\n\n").expect("tasks after it");
    fs::write(folder.path("bare.toml"), format!("{before}\n{}", tasks.replace("component = \"video\"\n", "")))
        .expect("a file");
    let (_, missed) = effect(&folder, "bare.toml");
    assert_eq!(missed.iter().map(|(task, _)| task.as_str()).collect::<Vec<_>>(), ["decoder", "control"]);
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
