//! Every verb and option that a message names exists: the string literals of all crates, and the
//! help texts, held against the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};

use crate::args;
use crate::literals::literals;

/// Programs whose options messages name, too.
const OTHERS: [&str; 8] =
    ["busybox", "trace-cmd", "cargo", "docker", "perf script", "babeltrace2", "systemd-run", "chrt"];
/// Options of processes that takt starts from itself.
const INTERNAL: &str = "--takt-";

fn options(command: &Command) -> BTreeMap<String, BTreeSet<String>> {
    let own = |command: &Command| {
        let long = command.get_arguments().flat_map(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            aliases.into_iter().chain(arg.get_long()).map(str::to_owned).collect::<Vec<_>>()
        });
        long.collect::<BTreeSet<String>>()
    };
    let common = own(command);
    // A verb has the options of its actions, too, and of theirs.
    let of_verb = |verb: &Command| {
        let actions = verb.get_subcommands().flat_map(|action| std::iter::once(action).chain(action.get_subcommands()));
        (verb.get_name().to_owned(), own(verb).into_iter().chain(actions.flat_map(own)).chain(common.clone()).collect())
    };
    command.get_subcommands().map(of_verb).collect()
}

fn named(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let dashes = text.match_indices("--");
    dashes.filter_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '_')) || text[..at].ends_with("var(") {
            return None;
        }
        let name = &text[at + 2..];
        let name = &name
            [..name.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')).unwrap_or(name.len())];
        name.starts_with(|c: char| c.is_ascii_lowercase()).then(|| (at, name.trim_end_matches('-')))
    })
}

/// Errors of a text: verbs and options that do not exist.
fn wrong(text: &str, verbs: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let any: BTreeSet<&String> = verbs.values().flatten().collect();
    for (at, _) in text.match_indices("takt ") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')) {
            continue;
        }
        let told = &text[at + 5..];
        let verb = &told[..told.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(told.len())];
        let shown = matches!(before, Some('(' | '`' | '"')) || text[..at].ends_with("sudo ");
        let end = match before {
            Some('(') => told.find(')'),
            Some('`') => told.find('`'),
            Some('"') => told.find('"'),
            _ => told.find([',', ';', ':', '\n', '`', '"', '|', ')']),
        };
        let command = &told[..end.unwrap_or(told.len())];
        match verbs.get(verb) {
            Some(options) => {
                let own = command.split(" -- ").next().unwrap_or(command);
                let missing = named(own).filter(|(_, name)| !options.contains(*name));
                wrong.extend(missing.map(|(_, name)| format!("takt {verb} --{name}")));
            }
            None if shown && !verb.is_empty() => wrong.push(format!("takt {verb}")),
            None => {}
        }
    }
    for (at, name) in named(text) {
        // After "--" stands a command of somebody else.
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        let foreign = OTHERS.iter().any(|other| text[..at].contains(other)) || line.contains(" -- ");
        let foreign = foreign || text[at..].starts_with(INTERNAL);
        if !foreign && !any.contains(&name.to_owned()) {
            wrong.push(format!("--{name}"));
        }
    }
    wrong
}

fn sources() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let list = fs::read_dir(folder).into_iter().flatten();
        list.map(|entry| entry.expect("an entry of a folder").path()).collect()
    };
    let mut folders: Vec<PathBuf> = entries(&crates).into_iter().map(|of| of.join("src")).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("mentions.rs") {
                files.push(path);
            }
        }
    }
    files
}

#[test]
fn messages_name_only_verbs_and_options_that_exist() {
    let mut command = args::Takt::command();
    command.build();
    let verbs = options(&command);
    let mut found = Vec::new();
    let sources = sources();
    for path in &sources {
        let source = fs::read_to_string(path).expect("a source file");
        let name = path.display();
        for (_, text) in literals(&source) {
            found.extend(wrong(&text, &verbs).into_iter().map(|what| format!("{name}: {what}: {text}")));
        }
    }
    for verb in command.get_subcommands_mut() {
        let name = verb.get_name().to_owned();
        let mut text = verb.render_long_help().to_string();
        verb.get_subcommands_mut().for_each(|action| text.push_str(&action.render_long_help().to_string()));
        found.extend(wrong(&text, &verbs).into_iter().map(|what| format!("takt {name} --help: {what}")));
    }
    assert!(sources.len() > 300, "{} sources", sources.len());
    assert!(found.is_empty(), "messages name verbs or options that do not exist:\n{}", found.join("\n"));
}

#[test]
fn mentions_of_missing_verbs_and_options_are_found() {
    let verbs = options(&args::Takt::command());
    let source = r##"
        // "takt gone" in a comment
        fn f<'a>(c: char) { g('"', '\'', "give each CPU its tasks (takt place)", r#"or "takt size SYSTEM --budget""#,
            b"--al\"l") }
    "##;
    let literals = literals(source);
    let expected =
        [(3, "give each CPU its tasks (takt place)"), (3, "or \"takt size SYSTEM --budget\""), (4, "--al\"l")];
    assert_eq!(literals, expected.map(|(line, text)| (line, text.to_owned())));
    let all = |text: &str| wrong(text, &verbs);
    assert_eq!(all(&literals[0].1), ["takt place"]);
    assert_eq!(all(&literals[1].1), ["takt size --budget"], "an option, but of others");
    assert_eq!(all("say --no-such-thing"), ["--no-such-thing"]);
    assert!(all("use `takt check --all`, sudo takt run FILE -- ls --color; what takt does; var(--c)").is_empty());
    assert!(all("takt does not know; (takt sim --seed 7)").is_empty());
}
