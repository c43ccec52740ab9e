//! The sessions of README.md and docs/: what stands in them, and what the commands print.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs the commands of the pages that have a live block, or of all others.
pub(crate) fn run_pages(with_live: bool) {
    let write = std::env::var("TAKT_DOCS").is_ok_and(|value| value == "write");
    let live = if with_live { live_refusal() } else { None };
    if let Some(reason) = &live {
        println!("live commands are skipped: {reason}");
    }
    let mut wrong = String::new();
    let mut commands = 0;
    for path in pages() {
        let text = fs::read_to_string(&path).expect("a page is text");
        let page = Page::parse(&text);
        if page.steps.iter().any(|step| step.live) != with_live {
            continue;
        }
        let session = Session::new();
        for (name, content) in &page.files {
            fs::write(session.folder.path().join(name), content).expect("a file of a page");
        }
        let mut outputs = Vec::new();
        for step in &page.steps {
            if step.live && live.is_some() {
                outputs.push(None);
                continue;
            }
            commands += 1;
            let ran = session.run(&step.command);
            if let Err(difference) = step.compare(&ran) {
                let _ = writeln!(wrong, "{}:{}: {}\n{difference}", path.display(), step.line, step.command);
            }
            outputs.push(Some(ran));
        }
        for (name, picture) in pictures(&path, &text) {
            let written = ["", "out"].map(|folder| session.folder.path().join(folder).join(&name));
            let Some(drawn) = written.iter().find_map(|file| fs::read(file).ok()) else {
                if !picture.exists() || !name.contains("live") {
                    let _ = writeln!(wrong, "{}: no command writes {name}", path.display());
                }
                continue;
            };
            if write && (!picture.exists() || !name.contains("live")) {
                fs::write(&picture, &drawn).expect("a picture is writable");
            }
            if !name.contains("live") && fs::read(&picture).ok() != Some(drawn) {
                let _ = writeln!(wrong, "{}: {name} is not the picture that the page shows", path.display());
            }
        }
        if write {
            fs::write(&path, page.rewritten(&text, &outputs)).expect("a page is writable");
        }
    }
    assert!(commands > 0, "no page has a command");
    println!("{commands} commands");
    assert!(wrong.is_empty() || write, "\n{wrong}\nTAKT_DOCS=write writes what is printed into the pages");
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli stands two folders deep").to_owned()
}

/// Whether a line of an `sh` block is a command of takt, or the rest of one.
pub(crate) fn is_takt(line: &str) -> bool {
    line.starts_with("takt ") || line.starts_with("sudo takt ") || line.starts_with("  ") || line.starts_with('#')
}

/// README.md and everything in docs/, in order.
pub(crate) fn pages() -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("docs is a folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    let mut found = vec![root().join("README.md")];
    collect(&root().join("docs"), &mut found);
    found.sort();
    found
}

/// The names of the pictures that a page shows from an `images` folder, with their files.
fn pictures(page: &Path, text: &str) -> Vec<(String, PathBuf)> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let shown = links.filter_map(|link| {
        let (_, name) = link.rsplit_once("images/")?;
        Some((name.to_owned(), page.with_file_name(link)))
    });
    shown.collect()
}

/// Why live commands cannot run here; nothing where they can.
fn live_refusal() -> Option<String> {
    let session = Session::new();
    let ran = session.run("takt run examples/quickstart.toml --for 100ms");
    (ran.status != 0).then_some(ran.text)
}

struct Page {
    steps: Vec<Step>,
    files: Vec<(String, String)>,
}

struct Step {
    line: usize,
    command: String,
    status: i32,
    expected: Option<String>,
    live: bool,
    /// The lines of the expected output with the `? N`, counted from zero.
    answer: std::ops::Range<usize>,
}

impl Page {
    fn parse(text: &str) -> Page {
        let lines: Vec<&str> = text.lines().collect();
        let (mut steps, mut files) = (Vec::new(), Vec::new());
        let (mut i, mut live) = (0, false);
        while i < lines.len() {
            match lines[i] {
                "```console" => {
                    i += 1;
                    while lines[i] != "```" {
                        steps.push(Step::parse(&lines, &mut i, live));
                    }
                    live = false;
                }
                "```sh" => {
                    i += 1;
                    while lines[i] != "```" {
                        steps.extend(Step::bare(&lines, &mut i, live));
                    }
                    live = false;
                }
                "<!-- live -->" => live = true,
                line => {
                    let name = line.strip_prefix("<!-- file: ").and_then(|rest| rest.strip_suffix(" -->"));
                    if let Some(name) = name {
                        let block = lines[i + 2..].iter().take_while(|line| **line != "```");
                        files.push((name.to_owned(), block.map(|line| format!("{line}\n")).collect()));
                    }
                }
            }
            i += 1;
        }
        Page { steps, files }
    }

    /// The page with the printed output. A matching answer stays unchanged, with its elisions.
    fn rewritten(&self, text: &str, outputs: &[Option<StepResult>]) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (step, ran) in self.steps.iter().zip(outputs).rev() {
            let differs = |ran: &&StepResult| step.expected.is_some() && step.compare(ran).is_err();
            let Some(ran) = ran.as_ref().filter(differs) else { continue };
            let mut answer: Vec<String> = ran.text.lines().map(str::to_owned).collect();
            if ran.status != 0 {
                answer.insert(0, format!("? {}", ran.status));
            }
            lines.splice(step.answer.clone(), answer);
        }
        lines.join("\n") + "\n"
    }
}

impl Step {
    /// Reads a command and its answer from line `i` on, which it moves behind them.
    fn parse(lines: &[&str], i: &mut usize, live: bool) -> Step {
        let line = *i + 1;
        let mut command = lines[*i]
            .strip_prefix("$ ")
            .unwrap_or_else(|| panic!("line {line}: a console block starts with \"$ \", not \"{}\"", lines[*i]))
            .to_owned();
        *i += 1;
        while command.ends_with('\\') {
            command.push('\n');
            command.push_str(lines[*i]);
            *i += 1;
        }
        let start = *i;
        let mut status = 0;
        if let Some(number) = lines[*i].strip_prefix("? ") {
            status = number.trim().parse().unwrap_or_else(|_| panic!("line {}: no exit status", *i + 1));
            *i += 1;
        }
        let mut expected = String::new();
        while lines[*i] != "```" && !lines[*i].starts_with("$ ") {
            expected.push_str(lines[*i]);
            expected.push('\n');
            *i += 1;
        }
        Step { line, command, status, expected: Some(expected), live, answer: start..*i }
    }

    /// Reads a line of an `sh` block: a command of takt, of which only the exit status counts.
    fn bare(lines: &[&str], i: &mut usize, live: bool) -> Option<Step> {
        let line = *i + 1;
        let mut command = lines[*i].to_owned();
        *i += 1;
        while command.ends_with('\\') {
            command.push('\n');
            command.push_str(lines[*i]);
            *i += 1;
        }
        let runs = is_takt(&command);
        runs.then_some(Step { line, command, status: 0, expected: None, live, answer: *i..*i })
    }

    fn compare(&self, ran: &StepResult) -> Result<(), String> {
        let answers = [0, 1];
        let same = self.live && answers.contains(&ran.status) && answers.contains(&self.status);
        if ran.status != self.status && !same {
            return Err(format!("    exit status {} instead of {}, printing\n{}", ran.status, self.status, ran.text));
        }
        let Some(expected) = &self.expected else { return Ok(()) };
        let (actual, expected) =
            if self.live { blurred(&ran.text, expected) } else { (ran.text.clone(), expected.clone()) };
        let compared = snapbox::Assert::new().normalize_paths(false).try_eq(None, actual.into(), expected.into());
        compared.map_err(|difference| difference.to_string())
    }
}

/// The output of a live run and that of its page, as texts that agree for every run of a system. Numbers become `N`,
/// and gaps one space. Warnings are left out, and columns that stand only where something happened. A busy machine
/// adds to the table of causes of late jobs, so only the tasks that the page names stay. Elisions after a number stay.
pub(crate) fn blurred(ran: &str, page: &str) -> (String, String) {
    let named: Vec<&str> = page
        .lines()
        .skip_while(|line| !begins_causes(line))
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next().map(|word| word.trim_end_matches("[..]")))
        .collect();
    (without_numbers(ran, &named), without_numbers(page, &named))
}

fn without_numbers(text: &str, named: &[&str]) -> String {
    let mut out = String::new();
    for line in lines(text, named).filter(|line| !line.starts_with("takt: warning:")) {
        if line.starts_with("over ") && (line.ends_with(" deadline missed") || line.ends_with(" deadlines missed")) {
            out.push_str("over N, N deadlines missed\n");
            continue;
        }
        let words = line.split_whitespace().map(|word| {
            let number = word.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit());
            match word.split_once("[..]") {
                _ if !number => word,
                Some(_) => "N[..]",
                None => "N",
            }
        });
        let optional = |word: &&str| !line.starts_with("task ") || !OPTIONAL_COLUMNS.contains(word);
        let mut row: Vec<&str> = Vec::new();
        for word in words.filter(optional) {
            // The columns of a row differ, so a run of numbers is one.
            if row.last() == Some(&"N") && word.starts_with('N') && word.trim_end_matches("[..]") == "N" {
                row.pop();
            }
            row.push(word);
        }
        out.push_str(&row.join(" "));
        out.push('\n');
    }
    out
}

/// Columns of the table of tasks that are left out where all their cells are 0.
const OPTIONAL_COLUMNS: [&str; 5] = ["cancelled", "rejected", "unfinished", "overruns", "throttled"];

/// The heading of the table that names why jobs were late.
fn begins_causes(line: &str) -> bool {
    line == "late[..]" || line.split_whitespace().take(2).eq(["late", "jobs"])
}

/// The lines, but of the table of causes only those of named tasks, and without names none and no empty line before it.
fn lines<'a>(text: &'a str, named: &[&str]) -> impl Iterator<Item = &'a str> {
    let mut lines = text.lines().peekable();
    let mut inside = false;
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let next = lines.peek().is_some_and(|next| begins_causes(next));
            inside = (begins_causes(line) || inside) && !line.is_empty();
            let name = line.split_whitespace().next().unwrap_or_default();
            let is_named = named.iter().any(|named| name.trim_end_matches("[..]") == *named);
            if !(inside && !is_named || line.is_empty() && next && named.is_empty()) {
                return Some(line);
            }
        }
    })
}

struct StepResult {
    status: i32,
    /// Standard output and error as they came.
    text: String,
}

/// A folder of its own with the examples, and a PATH with takt first.
struct Session {
    folder: tempfile::TempDir,
    path: String,
}

impl Session {
    fn new() -> Session {
        let folder = tempfile::tempdir().expect("a temporary folder");
        symlink(root().join("examples"), folder.path().join("examples")).expect("a link");
        let tools = folder.path().join(".bin");
        fs::create_dir(&tools).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_takt"), tools.join("takt")).expect("a link");
        // Live commands run as root here, perhaps without sudo.
        let sudo = tools.join("sudo");
        fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n").expect("a script");
        fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755)).expect("a mode");
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
        Session { folder, path }
    }

    fn run(&self, command: &str) -> StepResult {
        let output: Output = Command::new("bash")
            .args(["-o", "pipefail", "-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .env("COLUMNS", "100")
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .output()
            .expect("bash starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().filter(|line| !line.starts_with("takt: note:"));
        let text = lines.map(|line| format!("{line}\n")).collect();
        StepResult { status: output.status.code().unwrap_or(-1), text }
    }
}
