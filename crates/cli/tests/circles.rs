//! No two files of a crate depend on each other, also not through others.
//!
//! A file depends on another if its code names it, in a path or in a `use`, by `crate::` or
//! `super::`. A module and its parent may name each other. Tests do not count, and neither does a
//! crate's `lib.rs` or `main.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Module = Vec<String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// The code without comments, text in quotes, and the tests at its end.
fn code(text: &str) -> String {
    let end = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let mut code = String::new();
    for line in text[..end].lines() {
        let (mut quoted, mut last) = (false, ' ');
        for letter in line.chars() {
            if letter == '"' && last != '\\' && last != '\'' {
                quoted = !quoted;
            } else if !quoted && letter == '/' && last == '/' {
                code.pop();
                break;
            } else if !quoted {
                code.push(letter);
            }
            last = letter;
        }
        code.push('\n');
    }
    code
}

/// The paths that begin at one place of the code: several where braces follow.
fn paths(rest: &str, before: &[String], found: &mut Vec<Module>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        let word: String = rest[at..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        at += word.len();
        if !word.is_empty() {
            path.push(word);
        }
        if rest[at..].starts_with("::") {
            at += 2;
            continue;
        }
        if !rest[at..].starts_with('{') {
            found.push(path);
            return at;
        }
        // The items of a list, each with whatever blanks and `as NAME` around it.
        at += 1;
        loop {
            let blank = rest[at..].len() - rest[at..].trim_start().len();
            at += blank;
            if rest[at..].starts_with('}') {
                return at + 1;
            }
            at += paths(&rest[at..], &path, found);
            let Some(next) = rest[at..].find([',', '}']) else { return rest.len() };
            at += next + usize::from(rest[at + next..].starts_with(','));
        }
    }
}

/// All paths by `crate::` and `super::` in a module's code, from the crate's root.
fn named(module: &[String], code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        paths(&code[at + prefix.len()..], &[], &mut found);
    }
    let starts = code.match_indices("super::").filter(|(at, _)| !code[..*at].ends_with("super::"));
    for (at, _) in starts {
        let (mut rest, mut parent) = (&code[at..], module);
        while let Some(after) = rest.strip_prefix("super::") {
            (rest, parent) = (after, &parent[..parent.len().saturating_sub(1)]);
        }
        paths(rest, parent, &mut found);
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

fn modules(src: &Path) -> BTreeMap<Module, PathBuf> {
    let mut files = Vec::new();
    sources(src, &mut files);
    let module = |file: &Path| {
        let below = file.strip_prefix(src).expect("it is below").with_extension("");
        let mut path: Module = below.iter().map(|part| part.to_str().expect("a name in UTF-8").to_owned()).collect();
        path.pop_if(|last| last == "mod");
        path
    };
    files
        .into_iter()
        .map(|file| (module(&file), file))
        .filter(|(path, _)| *path != ["lib"] && *path != ["main"])
        .collect()
}

fn graph(files: &BTreeMap<Module, PathBuf>) -> Graph {
    let of = |module: &Module, file: &PathBuf| {
        let text = fs::read_to_string(file).expect("it is text");
        let known =
            |path: Module| (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|one| files.contains_key(one));
        let others = named(module, &code(&text)).into_iter().filter_map(known);
        others.filter(|other| !other.starts_with(module) && !module.starts_with(other)).collect()
    };
    files.iter().map(|(module, file)| (module.clone(), of(module, file))).collect()
}

fn reached<'a>(graph: &'a Graph, from: &'a Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        open.extend(graph.get(module).into_iter().flatten().filter(|next| found.insert(*next)));
    }
    found
}

fn circles(graph: &Graph) -> BTreeSet<Vec<&Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reached(graph, module))).collect();
    let of = |one: &Module| -> Vec<&Module> {
        reach
            .iter()
            .filter(|(other, back)| reach[one].contains(*other) && back.contains(one))
            .map(|(other, _)| *other)
            .collect()
    };
    reach.keys().map(|one| of(one)).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn the_files_of_a_crate_depend_on_each_other_one_way() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in crates/");
    let (mut wrong, mut edges) = (Vec::new(), 0);
    for folder in fs::read_dir(crates).expect("the folder is there").flatten() {
        let graph = graph(&modules(&folder.path().join("src")));
        edges += graph.values().map(BTreeSet::len).sum::<usize>();
        for circle in circles(&graph) {
            let inside = circle.iter().map(|one| {
                let others = graph[*one].iter().filter(|other| circle.contains(other)).map(|other| other.join("::"));
                format!("    {} -> {}", one.join("::"), others.collect::<Vec<_>>().join(", "))
            });
            wrong.push(format!("{}:\n{}", folder.path().display(), inside.collect::<Vec<_>>().join("\n")));
        }
    }
    assert!(edges > 1_000, "only {edges} dependencies were found");
    assert!(wrong.is_empty(), "files in a circle; move what they share into a third:\n{}", wrong.join("\n"));
}

#[test]
fn circles_are_found() {
    let module = |name: &str| -> Module { name.split("::").map(str::to_owned).collect() };
    let text = "use crate::{a::{X, y::Z as W}, b, V}; // crate::c\nlet d = \"crate::e\"; crate::f::g();\n/// crate::h\n\
                use super::super::i::J;\nuse super::{k, l::M};\n\n#[cfg(test)]\nmod tests {\n    use crate::n;\n}\n";
    let expected = ["a::X", "a::y::Z", "b", "V", "f::g", "i::J", "o::k", "o::l::M"].map(module);
    assert_eq!(named(&module("o::p"), &code(text)), expected);
    let mut graph = Graph::new();
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")] {
        graph.entry(module(from)).or_default().insert(module(to));
    }
    let circle = ["a", "b", "c"].map(module);
    assert_eq!(circles(&graph), [circle.iter().collect::<Vec<_>>()].into());
}
