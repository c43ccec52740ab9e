//! The four invariants of ARCHITECTURE.md. They hold, and the check of each fails on a violation.
//! The table of crates in ARCHITECTURE.md agrees with the manifests.
//!
//! A violation is a line of text. [`violations`] reads the dependency graph (`cargo metadata`) and
//! the manifests, and runs clippy over the library code with the disallowed lists of the
//! `clippy.toml` files. The second test breaks each invariant in a copy of the workspace, whose
//! sources are empty, and expects the violation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Crates without clock, file, socket, thread or libc.
const PURE: &str = "takt-analysis takt-lab takt-log takt-model takt-net takt-policy takt-report takt-sim takt-trace";
/// The crates with a `clippy.toml` of their own, which is what lets them differ from the pure ones.
const OWN_CLIPPY: [&str; 6] = ["c", "cli", "dispatch", "experiments", "linux", "run"];
/// The crates that may see both `analysis` and `policy`: the command, and the experiments that compare them.
const MEET: [&str; 2] = ["takt", "takt-experiments"];
/// The crates that may hold `unsafe`: for the kernel, and for pointers that come from C.
const MAY_BE_UNSAFE: [&str; 2] = ["c", "linux"];
/// Every crate from outside that pure code may link; none of them calls libc. An addition is a decision.
const PURE_MAY_LINK: &str = "\
    adler2 approx cfg-if crc32fast equivalent flate2 hashbrown indexmap itoa memchr miniz_oxide num-traits ruzstd \
    serde serde_core serde_json serde_spanned simd-adler32 statrs thiserror toml_datetime toml_edit toml_parser \
    toml_writer twox-hash unicode-width winnow zlib-rs zmij";
/// The doors to the kernel; only takt-linux may open one itself.
const KERNEL: &str = "libc nix rustix linux-raw-sys windows-sys mio socket2 rtnetlink netlink-sys libbpf-rs libbpf-sys";

/// Crates outside the workspace, for what they depend on. None of them is another crate's
/// dependency, they state the lints themselves, and `make zenoh` runs clippy over them with the
/// lists of crates/run.
const APART: [&str; 1] = ["zenoh"];

const CARGO: &str = env!("CARGO");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli stands two folders deep").to_owned()
}

/// The target directory of this test. Clippy finds its dependencies there.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the folder for temporary files is in that of targets")
}

fn cargo(root: &Path, arguments: &[&str]) -> Output {
    Command::new(CARGO)
        .args(arguments)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target())
        .env("CARGO_TERM_COLOR", "never")
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo starts: it runs this test")
}

/// All violations of the workspace at `root` that the manifests show, each "invariant N: what".
fn violations_of_manifests(root: &Path) -> Vec<String> {
    let graph = Graph::read(root);
    let mut found = walls(&graph);
    found.extend(dependencies(&graph));
    found.extend(manifests(root, &graph));
    found
}

/// Invariant 1: `analysis` and `policy` never see each other.
fn walls(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (one, other) in [("takt-analysis", "takt-policy"), ("takt-policy", "takt-analysis")] {
        if graph.reaches(one, true).contains(other) {
            found.push(format!("invariant 1: {one} depends on {other}"));
        }
    }
    for member in graph.members.iter().filter(|member| !MEET.contains(&member.as_str())) {
        let sees = graph.reaches(member, false);
        if sees.contains("takt-analysis") && sees.contains("takt-policy") {
            found.push(format!("invariant 1: {member} sees both takt-analysis and takt-policy outside its tests"));
        }
    }
    found
}

/// The dependency part of invariants 2 and 4: what pure crates link, and who may link the kernel's doors.
fn dependencies(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for pure in PURE.split(' ') {
        for dependency in graph.links(pure) {
            let known = PURE_MAY_LINK.split(' ').any(|known| known == dependency);
            let own = graph.members.contains(&dependency);
            if own && !PURE.split(' ').any(|pure| pure == dependency) {
                found.push(format!("invariant 2: {pure} links {dependency}, which is not pure"));
            } else if !own && !known {
                found
                    .push(format!("invariant 2: {pure} links {dependency}, which the list of pure dependencies lacks"));
            }
        }
    }
    for member in graph.members.iter().filter(|member| *member != "takt-linux") {
        for door in graph.direct(member).filter(|name| KERNEL.split(' ').any(|door| door == *name)) {
            found.push(format!("invariant 4: {member} depends on {door}; only takt-linux talks to the kernel"));
        }
    }
    found
}

fn manifest(path: &Path) -> toml_edit::DocumentMut {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The part of invariant 3 that stands in manifests (`forbid` cannot be lifted by an attribute), and that no crate
/// leaves the pure ones unseen.
fn manifests(root: &Path, graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    let workspace = manifest(&root.join("Cargo.toml"));
    if workspace["workspace"]["lints"]["rust"]["unsafe_code"].as_str() != Some("forbid") {
        found.push("invariant 3: the workspace's lints do not forbid unsafe_code".to_owned());
    }
    for entry in fs::read_dir(root.join("crates")).expect("the workspace has crates") {
        let folder = entry.expect("a readable folder").path();
        let name = folder.file_name().expect("a crate's folder has a name").to_string_lossy().into_owned();
        let manifest = manifest(&folder.join("Cargo.toml"));
        if APART.contains(&name.as_str()) {
            found.extend(apart(root, &folder, &name, &manifest, graph));
            continue;
        }
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(|item| item.as_bool());
        if !MAY_BE_UNSAFE.contains(&name.as_str()) && inherits != Some(true) {
            found.push(format!(
                "invariant 3: crates/{name} does not inherit the workspace's lints, which forbid unsafe"
            ));
        }
        if folder.join("clippy.toml").exists() && !OWN_CLIPPY.contains(&name.as_str()) {
            found.push(format!("invariant 2: crates/{name} has a clippy.toml of its own and so escapes the pure list"));
        }
        let package = manifest["package"]["name"].as_str().unwrap_or_default().to_owned();
        if !PURE.split(' ').any(|pure| pure == package) && !OWN_CLIPPY.contains(&name.as_str()) {
            found.push(format!("invariant 2: {package} is in no list: is it pure?"));
        }
        assert!(graph.members.contains(&package), "{package} is a member");
    }
    found
}

/// Rules for a crate outside the workspace. It forbids unsafe code itself. No member depends on it.
/// It does not reach the kernel. Its lists equal those of crates/run.
fn apart(root: &Path, folder: &Path, name: &str, manifest: &toml_edit::DocumentMut, graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    let package = manifest["package"]["name"].as_str().unwrap_or_default();
    if manifest.get("workspace").is_none() || graph.edges.contains_key(package) {
        found.push(format!("invariant 2: crates/{name} is not apart from the workspace"));
    }
    let lint = |name: &str| manifest.get("lints").and_then(|lints| lints.get("rust")?.get(name)?.as_str());
    if lint("unsafe_code") != Some("forbid") {
        found.push(format!("invariant 3: crates/{name} does not forbid unsafe_code"));
    }
    for door in KERNEL.split(' ') {
        if manifest.get("dependencies").is_some_and(|dependencies| dependencies.get(door).is_some()) {
            found.push(format!("invariant 4: crates/{name} depends on {door}; only takt-linux talks to the kernel"));
        }
    }
    let lists = |folder: &Path| fs::read_to_string(folder.join("clippy.toml")).unwrap_or_default();
    if lists(folder) != lists(&root.join("crates/run")) {
        found.push(format!("invariant 4: crates/{name} has other lists of what is disallowed than crates/run"));
    }
    found
}

/// The code part of invariants 2, 3 and 4, of all crates or of one. The levels are `deny`, since clap's macros allow
/// whole groups of lints in the command, and a second level would check each crate twice. So the text is searched for
/// attributes that lift them.
fn clippy(root: &Path, only: Option<&str>) -> Vec<String> {
    let packages = only.map_or_else(|| vec!["--workspace"], |name| vec!["--package", name]);
    let mut found = clippy_at(root, &packages);
    for entry in fs::read_dir(root.join("crates")).expect("the workspace has crates") {
        let folder = entry.expect("a readable folder").path();
        if !APART.iter().any(|name| folder.ends_with(name)) {
            found.extend(allowances(root, &folder.join("src")));
        }
    }
    found
}

fn allowances(root: &Path, folder: &Path) -> Vec<String> {
    const LINTS: [&str; 7] = [
        "warnings",
        "clippy::all",
        "clippy::style",
        "clippy::restriction",
        "clippy::disallowed_",
        "clippy::print_",
        "clippy::undocumented_unsafe_blocks",
    ];
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            found.extend(allowances(root, &path));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let file = path.strip_prefix(root).unwrap_or(&path).display();
        let attributes = text.split("#[").skip(1).chain(text.split("#![").skip(1));
        let mut attributes = attributes.map(|rest| rest.split(']').next().unwrap_or_default());
        if attributes.any(|attribute| LINTS.iter().any(|lint| attribute.contains(lint))) {
            found.push(format!("invariant 4: {file}: lifts a lint of the invariants by an attribute"));
        }
    }
    found
}

fn clippy_at(root: &Path, packages: &[&str]) -> Vec<String> {
    let mut arguments = vec!["clippy", "--quiet", "--no-deps", "--message-format=json"];
    arguments.extend(packages);
    let lints = ["clippy::disallowed_methods", "clippy::disallowed_types", "clippy::undocumented_unsafe_blocks"];
    let levels: Vec<String> = lints.iter().map(|lint| format!("-D{lint}")).collect();
    arguments.push("--");
    arguments.extend(levels.iter().map(String::as_str));
    arguments.extend(["-Dclippy::print_stdout", "-Dclippy::print_stderr"]);
    let output = cargo(root, &arguments);
    let mut found = BTreeSet::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let code = message["message"]["code"]["code"].as_str().unwrap_or_default();
        let text = message["message"]["message"].as_str().unwrap_or_default();
        let file = message["message"]["spans"][0]["file_name"].as_str().unwrap_or_default();
        let clock = text.contains("std::time::") || text.contains("thread::sleep") || text.contains("park_timeout");
        let invariant = match code {
            "clippy::disallowed_methods" | "clippy::disallowed_types" if clock => 4,
            "clippy::disallowed_methods" | "clippy::disallowed_types" => 2,
            "clippy::print_stdout" | "clippy::print_stderr" => 2,
            "clippy::undocumented_unsafe_blocks" | "unsafe_code" => 3,
            "E0453" if text.contains("unsafe_code") => 3,
            _ => continue,
        };
        found.insert(format!("invariant {invariant}: {file}: {text}"));
    }
    if found.is_empty() && !output.status.success() {
        panic!("clippy could not look at the workspace:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    found.into_iter().collect()
}

struct Graph {
    members: BTreeSet<String>,
    edges: BTreeMap<String, Vec<Edge>>,
    proc_macros: BTreeSet<String>,
}

struct Edge {
    to: String,
    normal: bool,
    dev: bool,
}

impl Graph {
    fn read(root: &Path) -> Graph {
        // The solver of integer programs is behind a default feature, which pure crates may not need.
        // The feature `bpf` opens a further door to the kernel.
        let asked = [
            "metadata",
            "--format-version=1",
            "--no-default-features",
            "--features=takt/bpf",
            "--filter-platform=x86_64-unknown-linux-gnu",
        ];
        let output = cargo(root, &asked);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let value: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON");
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let text = |value: &Value| value.as_str().expect("a string").to_owned();
        let packages = list(&value["packages"]);
        let names: BTreeMap<String, String> =
            packages.iter().map(|package| (text(&package["id"]), text(&package["name"]))).collect();
        let is_macro = |package: &&Value| {
            list(&package["targets"]).iter().any(|target| list(&target["kind"]).contains(&Value::from("proc-macro")))
        };
        let proc_macros = packages.iter().filter(is_macro).map(|package| text(&package["name"])).collect();
        let members = list(&value["workspace_members"]).iter().map(|id| names[&text(id)].clone()).collect();
        let mut edges: BTreeMap<String, Vec<Edge>> = BTreeMap::new();
        for node in list(&value["resolve"]["nodes"]) {
            let of = edges.entry(names[&text(&node["id"])].clone()).or_default();
            for dependency in list(&node["deps"]) {
                let kinds: Vec<Value> =
                    list(&dependency["dep_kinds"]).iter().map(|kind| kind["kind"].clone()).collect();
                let normal = kinds.contains(&Value::Null);
                let dev = kinds.iter().all(|kind| *kind == "dev");
                of.push(Edge { to: names[&text(&dependency["pkg"])].clone(), normal, dev });
            }
        }
        Graph { members, edges, proc_macros }
    }

    fn out(&self, package: &str) -> impl Iterator<Item = &Edge> {
        self.edges.get(package).into_iter().flatten()
    }

    /// The dependencies that the package declares itself, tests aside.
    fn direct(&self, package: &str) -> impl Iterator<Item = &str> {
        self.out(package).filter(|edge| !edge.dev).map(|edge| edge.to.as_str())
    }

    /// All that a package depends on; with `dev`, its own tests too.
    fn reaches(&self, package: &str, dev: bool) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = self.out(package).filter(|e| dev || !e.dev).map(|e| e.to.as_str()).collect();
        while let Some(name) = open.pop() {
            if seen.insert(name.to_owned()) {
                open.extend(self.direct(name));
            }
        }
        seen
    }

    /// All that is linked into a package: normal dependencies that are no procedural macros.
    fn links(&self, package: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut open = vec![package];
        while let Some(name) = open.pop() {
            for edge in self.out(name).filter(|edge| edge.normal && !self.proc_macros.contains(&edge.to)) {
                if seen.insert(edge.to.clone()) {
                    open.push(&edge.to);
                }
            }
        }
        seen
    }
}

#[test]
fn the_invariants_hold() {
    let mut found = violations_of_manifests(&root());
    found.extend(clippy(&root(), None));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The rows of the table of crates in ARCHITECTURE.md: each package with those of the workspace that it may use.
/// A cell has names without "takt-": "-", "model, log", or "all but c and the command".
fn table_of_crates(root: &Path, members: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let package = |name: &str| if name == "the command" { "takt".to_owned() } else { format!("takt-{name}") };
    let names = |list: &str| -> BTreeSet<String> {
        list.replace(" and ", ", ").split(", ").filter(|name| *name != "-").map(package).collect()
    };
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, _, may_use, _] = cells[..] else { return None };
        let (name, _) = name.strip_prefix('`')?.split_once("` (crates/")?;
        let uses = match may_use.strip_prefix("all but ") {
            Some(others) => {
                let others = names(others);
                members.iter().filter(|other| *other != name && !others.contains(*other)).cloned().collect()
            }
            None => names(may_use),
        };
        Some((name.to_owned(), uses))
    };
    text.lines().filter_map(row).collect()
}

/// A crate apart may stand in the table, too.
#[test]
fn the_table_of_crates_agrees_with_the_manifests() {
    let (mut manifests, mut members) = (BTreeMap::new(), BTreeSet::new());
    for entry in fs::read_dir(root().join("crates")).expect("the workspace has crates") {
        let folder = entry.expect("a readable folder").path();
        let manifest = manifest(&folder.join("Cargo.toml"));
        let name = manifest["package"]["name"].as_str().unwrap_or_default().to_owned();
        let dependencies = manifest.get("dependencies").and_then(|item| item.as_table_like());
        let names = dependencies.into_iter().flat_map(|table| table.iter()).map(|(name, _)| name.to_owned());
        let uses: BTreeSet<String> = names.filter(|name| name.starts_with("takt-")).collect();
        if !APART.iter().any(|apart| folder.ends_with(apart)) {
            members.insert(name.clone());
        }
        manifests.insert(name, uses);
    }
    let table = table_of_crates(&root(), &members);
    let mut wrong = Vec::new();
    for (name, uses) in &manifests {
        match table.get(name) {
            Some(row) if row == uses => {}
            None if !members.contains(name) => {}
            row => wrong.push(format!("{name} depends on {uses:?}, but the table says {row:?}")),
        }
    }
    wrong.extend(table.keys().filter(|name| !manifests.contains_key(*name)).map(|name| format!("{name} is no crate")));
    assert!(wrong.is_empty(), "the table of crates in ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

/// The library and its C header run on threads alone: the feature that hands answers to an async
/// runtime is nobody's default.
#[test]
fn no_program_needs_an_async_runtime() {
    let tree = |package: &str, features: &[&str]| {
        let arguments = ["tree", "--locked", "--package", package, "--edges", "normal,build", "--prefix", "none"];
        let out = Command::new(CARGO).args(arguments).args(features).current_dir(root()).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let has_runtime = |tree: &str| tree.lines().any(|line| line.starts_with("tokio ") || line.starts_with("async-"));
    for package in ["takt-dispatch", "takt-run", "takt-c", "takt"] {
        assert!(!has_runtime(&tree(package, &[])), "{package}");
    }
    assert!(has_runtime(&tree("takt-dispatch", &["--features", "tokio"])), "who asks for it gets it");
}

/// A violation for the self-test: a text of the file and what replaces it, and the expected message. An empty text is
/// replaced at the end. Clippy must report violations of sources, and the manifests show the others.
struct Break {
    what: &'static str,
    file: &'static str,
    edit: (&'static str, &'static str),
    says: &'static str,
}

impl Break {
    /// The crate in which clippy must report it.
    fn package(&self) -> Option<String> {
        let name = self.file.strip_prefix("crates/")?.split_once("/src/")?.0;
        Some(if name == "cli" { "takt".to_owned() } else { format!("takt-{name}") })
    }
}

/// Text that is added at the end of a file.
const fn added(what: &'static str, file: &'static str, text: &'static str, says: &'static str) -> Break {
    Break { what, file, edit: ("", text), says }
}

const BREAKS: [Break; 18] = [
    Break {
        what: "a crate apart holds unsafe code",
        file: "crates/zenoh/Cargo.toml",
        edit: ("unsafe_code = \"forbid\"", "unsafe_code = \"allow\""),
        says: "invariant 3: crates/zenoh does not forbid unsafe_code",
    },
    Break {
        what: "analysis asks the policies",
        file: "crates/analysis/Cargo.toml",
        edit: ("[dependencies]", "[dependencies]\ntakt-policy.workspace = true"),
        says: "invariant 1: takt-analysis depends on takt-policy",
    },
    added(
        "policy is tested against analysis in its own crate",
        "crates/policy/Cargo.toml",
        "\n[dev-dependencies.takt-analysis]\nworkspace = true\n",
        "invariant 1: takt-policy depends on takt-analysis",
    ),
    Break {
        what: "the simulator consults analysis",
        file: "crates/sim/Cargo.toml",
        edit: ("[dependencies]", "[dependencies]\ntakt-analysis.workspace = true"),
        says: "invariant 1: takt-sim sees both",
    },
    Break {
        what: "live back ends load BPF programs themselves",
        file: "crates/run/Cargo.toml",
        edit: ("[dependencies]", "[dependencies]\nlibbpf-rs.workspace = true"),
        says: "invariant 4: takt-run depends on libbpf-rs",
    },
    Break {
        what: "a pure crate links libc",
        file: "crates/log/Cargo.toml",
        edit: ("[dependencies]", "[dependencies]\nlibc.workspace = true"),
        says: "invariant 2: takt-log links libc",
    },
    added(
        "a crate escapes the list by a clippy.toml of its own",
        "crates/log/clippy.toml",
        "# nothing disallowed\n",
        "invariant 2: crates/log has a clippy.toml of its own",
    ),
    Break {
        what: "a crate leaves the workspace's lints",
        file: "crates/run/Cargo.toml",
        edit: ("[lints]\nworkspace = true", "[lints.rust]\nunsafe_code = \"allow\""),
        says: "invariant 3: crates/run does not inherit the workspace's lints",
    },
    added(
        "a clock in the command",
        "crates/cli/src/failure.rs",
        "\n/// Reads.\npub(crate) fn broken() -> std::time::SystemTime \
             {\n    std::time::SystemTime::now()\n}\n",
        "invariant 4: crates/cli/src/failure.rs: use of a disallowed method `std::time::SystemTime::now`",
    ),
    added(
        "a clock in the command, with the lint allowed",
        "crates/cli/src/failure.rs",
        "\n/// Reads.\n#[allow(clippy::disallowed_methods)]\npub(crate) fn broken() \
             {\n    let _ = std::time::Instant::now();\n}\n",
        "invariant 4: crates/cli/src/failure.rs: lifts a lint",
    ),
    added(
        "a crate with all warnings allowed",
        "crates/sim/src/lib.rs",
        "#![cfg_attr(unix, allow(dead_code, warnings))]\n",
        "invariant 4: crates/sim/src/lib.rs: lifts a lint",
    ),
    added(
        "a second clock",
        "crates/run/src/lib.rs",
        "\n/// Reads.\npub fn broken() -> std::time::Duration {\n    std::time::Instant::now().elapsed()\n}\n",
        "invariant 4: crates/run/src/lib.rs: use of a disallowed method `std::time::Instant::now`",
    ),
    added(
        "an unsafe block without its SAFETY line",
        "crates/linux/src/lib.rs",
        "\n/// Reads.\npub fn broken(x: &u8) -> u8 {\n    unsafe { std::ptr::read(x) }\n}\n",
        "invariant 3: crates/linux/src/lib.rs: unsafe block missing a safety comment",
    ),
    added(
        "a pure crate opens a socket",
        "crates/report/src/lib.rs",
        "\n/// Binds.\npub fn broken() -> std::io::Result<std::net::UdpSocket> \
             {\n    std::net::UdpSocket::bind(\"[::1]:0\")\n}\n",
        "invariant 2: crates/report/src/lib.rs: use of a disallowed type `std::net::UdpSocket`",
    ),
    added(
        "a pure crate prints",
        "crates/analysis/src/lib.rs",
        "\n/// Prints.\npub fn broken() {\n    println!(\"hello\");\n}\n",
        "invariant 2: crates/analysis/src/lib.rs: use of `println!`",
    ),
    added(
        "unsafe code outside takt-linux",
        "crates/log/src/lib.rs",
        "\n/// Reads.\npub fn broken(x: &u8) -> u8 \
             {\n    // SAFETY: a reference is readable.\n    unsafe { std::ptr::read(x) }\n}\n",
        "invariant 3: crates/log/src/lib.rs: usage of an `unsafe` block",
    ),
    added(
        "a pure crate starts a thread, with the lint allowed",
        "crates/policy/src/lib.rs",
        "\n/// Spawns.\n#[allow(clippy::disallowed_methods)]\npub fn broken() \
             {\n    std::thread::spawn(|| ());\n}\n",
        "invariant 4: crates/policy/src/lib.rs: lifts a lint",
    ),
    added(
        "a pure crate reads a file",
        "crates/model/src/lib.rs",
        "\n/// Reads.\npub fn broken() -> bool {\n    std::fs::read(\"/etc/hostname\").is_ok()\n}\n",
        "invariant 2: crates/model/src/lib.rs: use of a disallowed method `std::fs::read`",
    ),
];

#[test]
fn the_check_of_each_invariant_fails_when_it_is_broken() {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("invariants-copy");
    let _ = fs::remove_dir_all(&copy);
    copy_workspace(&root(), &copy);
    let mut silent = Vec::new();
    for broken in &BREAKS {
        let file = copy.join(broken.file);
        let before = fs::read_to_string(&file).ok();
        let mut text = before.clone().unwrap_or_default();
        let (from, to) = broken.edit;
        if from.is_empty() {
            text.push_str(to);
        } else {
            assert!(text.contains(from), "{}: nothing to replace", broken.file);
            text = text.replacen(from, to, 1);
        }
        fs::write(&file, text).expect("the copy is writable");
        let found = match broken.package() {
            Some(package) => clippy(&copy, Some(&package)),
            None => violations_of_manifests(&copy),
        };
        match found.iter().find(|violation| violation.starts_with(broken.says)) {
            Some(violation) => println!("{}:\n    {violation}", broken.what),
            None => silent.push(format!("{}: expected \"{}\", found {found:#?}", broken.what, broken.says)),
        }
        match before {
            Some(text) => fs::write(&file, text).expect("the copy is writable"),
            None => fs::remove_file(&file).expect("the copy is writable"),
        }
    }
    assert!(silent.is_empty(), "broken without a word:\n{}", silent.join("\n"));
}

/// The manifests, lists and lock of the workspace, with crates whose sources are empty. What the checks look at is
/// there, and clippy has little to read.
fn copy_workspace(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the target folder is writable");
    for file in ["Cargo.toml", "Cargo.lock", "clippy.toml"] {
        copy_file(&from.join(file), &to.join(file));
    }
    // With another version the crates are other ones to cargo, which keeps both in the same target folder.
    let workspace = fs::read_to_string(to.join("Cargo.toml")).expect("the copy is readable");
    fs::write(to.join("Cargo.toml"), workspace.replacen("version = \"", "version = \"1", 1)).expect("writable");
    copy_folder(&from.join("crates"), &to.join("crates"));
    fs::write(to.join("crates/cli/src/main.rs"), "mod failure;\n\nfn main() {}\n").expect("the copy is writable");
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the target folder is writable");
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let entry = entry.expect("a readable entry");
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().expect("a file type").is_dir() {
            copy_folder(&source, &target);
        } else if entry.file_name() != "build.rs" && source.extension().is_some_and(|name| name == "rs") {
            fs::write(&target, "").expect("the copy is writable");
        } else {
            copy_file(&source, &target);
        }
    }
}

fn copy_file(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}
