//! A node that another program starts ends with this program: its standard input ends then.

use std::fs;
use std::process::{Command, Stdio};

use takt_linux::clock::{pause, realtime_ns};
use takt_model::Span;

/// It would wait for its start for an hour.
#[test]
fn a_node_ends_when_its_input_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = "takt = 1\n[[node]]\nname = \"n0\"\nreceive = { period = \"10ms\", wcet = \"1ms\" }\n\
                [[task]]\nname = \"t\"\nperiod = \"20ms\"\nwcet = \"1ms\"\n";
    fs::write(folder.path().join("node.toml"), node).expect("the file");
    let at = (realtime_ns() / 1_000_000_000 + 3600).to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
    command.args(["run", "node.toml", "--best-effort", "--no-trace", "--start-at", &at, "--takt-ends-with-input"]);
    command.current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("takt starts");
    pause(Span::from_ms(300));
    assert!(matches!(child.try_wait(), Ok(None)), "it runs as long as its input is open");
    drop(child.stdin.take());
    let ended = (0..3_000).find_map(|_| {
        pause(Span::from_ms(10));
        child.try_wait().expect("a child")
    });
    if ended.is_none() {
        child.kill().expect("a child");
    }
    assert_eq!(ended.and_then(|status| status.code()), Some(4));
}
