//! No two files of a crate depend on each other, also not through others. The same holds for its
//! modules, which are the files and folders below `src`.
//!
//! A file depends on another if its code names an item of it, in a path or in a `use`, by `crate::`
//! or `super::`. A path may lead through a module that imports or re-exports the item. Then the
//! file depends on the one that defines the item. A module and its parent may name each other.
//! Tests do not count, and neither does a crate's `lib.rs` or `main.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Module = Vec<String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;
/// The code of each module. The crate's root has the empty path.
type Sources = BTreeMap<Module, String>;
/// What the `use` declarations of each module name: the name there, and the path from the crate's
/// root. The name `*` stands for all that the module at the path defines.
type Imports = BTreeMap<Module, Vec<(String, Module)>>;

/// Imports that lead to other imports are followed this far.
const IMPORTS_MAX: u32 = 8;

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

fn word(rest: &str) -> String {
    rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// The paths that begin at one place of the code, each with the name that a `use` gives it. There
/// are several where braces follow.
fn paths(rest: &str, before: &[String], found: &mut Vec<(String, Module)>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        let word_here = word(&rest[at..]);
        at += word_here.len();
        if !word_here.is_empty() && word_here != "self" {
            path.push(word_here);
        }
        if rest[at..].starts_with("::") {
            at += 2;
            continue;
        }
        if !rest[at..].starts_with('{') {
            let name = match rest[at..].trim_start().strip_prefix("as ") {
                Some(after) => word(after),
                None if rest[at..].starts_with('*') => "*".to_owned(),
                None => path.last().cloned().unwrap_or_default(),
            };
            found.push((name, path));
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

/// The module at which a path begins, and the rest of the path.
fn start<'a>(module: &[String], path: &'a str) -> (&'a str, Module) {
    if let Some(rest) = path.strip_prefix("crate::") {
        return (rest, Module::new());
    }
    let (mut rest, mut parent) = (path, module);
    while let Some(after) = rest.strip_prefix("super::") {
        (rest, parent) = (after, &parent[..parent.len().saturating_sub(1)]);
    }
    (rest, parent.to_vec())
}

/// All paths by `crate::` and `super::` in a module's code, from the crate's root.
fn named(module: &[String], code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for prefix in ["crate::", "super::"] {
        for (at, _) in code.match_indices(prefix).filter(|(at, _)| !code[..*at].ends_with("super::")) {
            let (rest, from) = start(module, &code[at..]);
            paths(rest, &from, &mut found);
        }
    }
    found.into_iter().map(|(_, path)| path).collect()
}

/// What the `use` declarations of a module name, outside functions.
fn imported(module: &[String], code: &str) -> Vec<(String, Module)> {
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("use ") {
        let before = code[..at].rsplit('\n').next().unwrap_or_default();
        if before.is_empty() || before == "pub " || (before.starts_with("pub(") && before.ends_with(") ")) {
            let (rest, from) = start(module, &code[at + prefix.len()..]);
            paths(rest, &from, &mut found);
        }
    }
    found
}

/// Whether the code defines an item of this name.
fn defines(code: &str, name: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
    code.match_indices(name).any(|(at, _)| {
        let is_whole = word(&code[at..]) == name;
        let before = code[..at].strip_suffix(' ').unwrap_or_default();
        is_whole && kinds.iter().any(|kind| before.ends_with(*kind))
    })
}

/// The module that defines the item at a path. Imports are followed.
fn home(path: &[String], sources: &Sources, imports: &Imports, imports_left: u32) -> Module {
    let known = (0..=path.len()).rev().find(|n| sources.contains_key(&path[..*n])).unwrap_or(0);
    let (module, rest) = path.split_at(known);
    let [name, below @ ..] = rest else { return module.to_vec() };
    let Some(left) = imports_left.checked_sub(1) else { return module.to_vec() };
    for (import, to) in imports.get(module).into_iter().flatten() {
        if import == name {
            return home(&[to.as_slice(), below].concat(), sources, imports, left);
        }
        if import == "*" {
            let found = home(&[to.as_slice(), rest].concat(), sources, imports, left);
            if sources.get(&found).is_some_and(|code| defines(code, name)) {
                return found;
            }
        }
    }
    module.to_vec()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        if path.is_dir() {
            files(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

fn sources(src: &Path) -> Sources {
    let mut all = Vec::new();
    files(src, &mut all);
    let module = |file: &Path| {
        let below = file.strip_prefix(src).expect("it is below").with_extension("");
        let mut path: Module = below.iter().map(|part| part.to_str().expect("a name in UTF-8").to_owned()).collect();
        path.pop_if(|last| last == "mod");
        if path == ["lib"] || path == ["main"] { Module::new() } else { path }
    };
    all.iter().map(|file| (module(file), code(&fs::read_to_string(file).expect("it is text")))).collect()
}

/// Which file depends on which.
fn graph(sources: &Sources) -> Graph {
    let imports: Imports = sources.iter().map(|(module, code)| (module.clone(), imported(module, code))).collect();
    let of = |module: &Module, code: &str| {
        let others = named(module, code).into_iter().map(|path| home(&path, sources, &imports, IMPORTS_MAX));
        others.filter(|other| !other.starts_with(module) && !module.starts_with(other)).collect()
    };
    let files = sources.iter().filter(|(module, _)| !module.is_empty());
    files.map(|(module, code)| (module.clone(), of(module, code))).collect()
}

/// The same for the modules of a crate.
fn of_modules(files: &Graph) -> Graph {
    let mut modules = Graph::new();
    for (file, others) in files {
        let of = modules.entry(file[..1].to_vec()).or_default();
        of.extend(others.iter().filter(|other| other[0] != file[0]).map(|other| other[..1].to_vec()));
    }
    modules
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

/// The circles as text, each file or module of a circle with the others that it depends on.
fn described(folder: &Path, graph: &Graph) -> Vec<String> {
    let line = |circle: &[&Module], one: &Module| {
        let others = graph[one].iter().filter(|other| circle.contains(other)).map(|other| other.join("::"));
        format!("    {} -> {}", one.join("::"), others.collect::<Vec<_>>().join(", "))
    };
    let one = |circle: Vec<&Module>| {
        let lines: Vec<String> = circle.iter().map(|one| line(&circle, one)).collect();
        format!("{}:\n{}", folder.display(), lines.join("\n"))
    };
    circles(graph).into_iter().map(one).collect()
}

#[test]
fn the_files_and_modules_of_a_crate_depend_on_each_other_one_way() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in crates/");
    let (mut wrong, mut edges) = (Vec::new(), 0);
    for folder in fs::read_dir(crates).expect("the folder is there").flatten() {
        let files = graph(&sources(&folder.path().join("src")));
        edges += files.values().map(BTreeSet::len).sum::<usize>();
        wrong.extend(described(&folder.path(), &files));
        wrong.extend(described(&folder.path(), &of_modules(&files)));
    }
    assert!(edges > 2_000, "only {edges} dependencies were found");
    assert!(wrong.is_empty(), "files or modules in a circle; move what they share into a third:\n{}", wrong.join("\n"));
}

fn module(name: &str) -> Module {
    name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[test]
fn circles_are_found() {
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

#[test]
fn circles_through_other_names_are_found() {
    let all = [
        ("", "pub use c::Renamed as Named;\npub use d::*;\n"),
        ("a", "mod x;\nmod y;\npub use x::{self, X};\nuse y::Y;\n"),
        ("a::x", "use super::Y;\nstruct X;\n"),
        ("a::y", "use super::X;\nstruct Y;\n"),
        ("b", "use crate::{Defined, Named};\nstruct B;\n"),
        ("c", "use crate::Undefined;\nstruct Renamed;\n"),
        ("d", "pub struct Defined;\nfn f() {\n    crate::b::B;\n}\n"),
    ];
    let sources: Sources = all.into_iter().map(|(name, code)| (module(name), code.to_owned())).collect();
    let files = graph(&sources);
    let edges = |from: &str| files[&module(from)].iter().map(|to| to.join("::")).collect::<Vec<_>>();
    assert_eq!([edges("a::x"), edges("a::y"), edges("c")], [vec!["a::y"], vec!["a::x"], vec![]]);
    assert_eq!([edges("b"), edges("d")], [vec!["c", "d"], vec!["b"]]);
    let found = |graph: &Graph| circles(graph).into_iter().map(|circle| circle.len()).collect::<Vec<_>>();
    assert_eq!((found(&files), found(&of_modules(&files))), (vec![2, 2], vec![2]));
}
