//! A folder with systems and logs, in which the command is called.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(super) const TAKT: &str = env!("CARGO_BIN_EXE_takt");

pub(super) const GOOD: &str = r#"
takt = 1
name = "good"
[[node]]
name = "local"
strategy = "rm"
[[task]]
name = "a"
period = "10ms"
wcet = "2ms"
exec = { uniform = ["1ms", "2ms"] }
[[task]]
name = "b"
after = ["a"]
wcet = "3ms"
"#;
pub(super) const LATE: &str = r#"
takt = 1
name = "late"
[[task]]
name = "a"
period = "10ms"
deadline = "5ms"
wcet = "6ms"
"#;
pub(super) const COMPONENT: &str = r#"
takt = 1
[[component]]
name = "dom1"
server = "ptps"
period = "10ms"
budget = "3ms"
[[task]]
name = "a"
component = "dom1"
period = "100ms"
wcet = "1ms"
"#;
const FLOW: &str = r#"
takt = 1
[[node]]
name = "n1"
[[node]]
name = "n2"
[[flow]]
name = "put"
path = ["n1", "n2"]
period = "10ms"
wcet = "1ms"
size = "400B"
"#;
pub(super) const CROWDED: &str = r#"
takt = 1
[[node]]
name = "board"
cpus = 2
placement = "partitioned"
[[task]]
name = "a"
period = "10ms"
wcet = "6ms"
[[task]]
name = "b"
period = "10ms"
wcet = "6ms"
[[task]]
name = "c"
period = "10ms"
wcet = "6ms"
"#;
const TWO_NODES: &str = r#"
takt = 1
[[node]]
name = "n1"
[[node]]
name = "n2"
[[task]]
name = "a"
node = "n1"
period = "10ms"
wcet = "1ms"
[[task]]
name = "b"
node = "n2"
period = "20ms"
wcet = "1ms"
"#;

pub(super) struct Folder(pub(super) TempDir);

impl Folder {
    pub(super) fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a temporary folder"));
        let systems = [
            ("good", GOOD),
            ("late", LATE),
            ("component", COMPONENT),
            ("shared", &COMPONENT.replace("takt = 1\n", "takt = 1\n[[node]]\nname = \"n\"\ncpus = 2\n")),
            (
                "auto",
                &(FLOW.replace("name = \"n", "link = { rate = \"1Gbit\" }\nname = \"n")
                    + "[[network]]\ndelay = \"auto\"\n"),
            ),
            ("linkless", &(FLOW.to_owned() + "[[network]]\ndelay = \"auto\"\n")),
            ("crowded", CROWDED),
            ("nodes", TWO_NODES),
            ("laxity", &GOOD.replace("\"rm\"", "\"mlf\"\ncpus = 2")),
            ("priorities", &GOOD.replace("\"rm\"", "\"fp\"")),
            ("traced", &GOOD.replace("{ uniform = [\"1ms\", \"2ms\"] }", "{ trace = \"times.csv\" }")),
            ("broken", "takt = \n"),
            ("empty", ""),
            ("idle", "takt = 1\n[[node]]\nname = \"n\"\n"),
            ("unitless", &GOOD.replace("\"10ms\"", "10")),
        ];
        for (name, text) in systems {
            fs::write(folder.path(&format!("{name}.toml")), text).expect("a file");
        }
        fs::write(folder.path("bytes.toml"), [0xff, 0xfe, 0x00]).expect("a file");
        fs::write(folder.path("bad.json"), "{ \"tasks\": { \"a\": { \"rum\": 1 } } }").expect("a file");
        fs::write(folder.path("idle.json"), "{ \"tasks\": { \"a\": { \"suspend\": \"a\", \"run\": 1 } } }")
            .expect("a file");
        let sparse = fs::File::create(folder.path("sparse")).expect("a file");
        sparse.set_len(5 << 30).expect("a file with a hole");
        assert_eq!(folder.takt(&["sim", "good.toml", "--for", "1s", "-o", "good.takt"]).status, 0);
        assert_eq!(folder.takt(&["sim", "late.toml", "-o", "late.takt"]).status, 0);
        folder
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn spawn(&self, arguments: &[&str]) -> Child {
        Command::new(TAKT)
            .args(arguments)
            .current_dir(self.0.path())
            .env("NO_COLOR", "1")
            .env_remove("COLUMNS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("takt starts")
    }

    pub(super) fn takt(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::of(self.spawn(arguments).wait_with_output().expect("takt ends"))
    }

    pub(super) fn takt_with(&self, arguments: &[&str], input: &[u8]) -> CommandResult {
        let mut child = self.spawn(arguments);
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let ran = CommandResult::of(child.wait_with_output().expect("takt ends"));
        writer.join().expect("the writer ends");
        ran
    }
}

pub(super) struct CommandResult {
    pub(super) status: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

impl CommandResult {
    pub(super) fn of(output: Output) -> CommandResult {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let lines = stderr.lines().filter(|line| !line.starts_with("takt: note:"));
        let stderr = lines.map(|line| format!("{line}\n")).collect();
        CommandResult { status: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("text")
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.text(), self.stderr))
    }
}
