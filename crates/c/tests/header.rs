//! The header matches the crate, and the C examples build, run and print the expected text.

use std::fs::{File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::process::KillOnDrop;
use takt_log::Reader;
use takt_log::stats::{Collector, Stats};
use takt_net::LateRule;
use takt_run::broker::{Broker, BrokerSpec, BrokerStats};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_that_of_the_code() {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let sources = ["status", "plan", "dispatcher", "channel", "filter", "outlet", "node", "replication", "deadline"];
    let sources = sources.map(|name| root().join(format!("src/{name}.rs")));
    let builder = sources.iter().fold(cbindgen::Builder::new(), |builder, source| builder.with_src(source));
    let mut text = Vec::new();
    builder.with_config(config).generate().unwrap().write(&mut text);
    // A Rust section on safety is a condition of the call in C.
    let text = String::from_utf8(text).unwrap().replace("//\n// # Safety\n", "");
    let header = root().join("include/takt.h");
    if std::env::var_os("TAKT_HEADER").is_some_and(|value| value == "write") {
        std::fs::write(&header, &text).unwrap();
    }
    let there = std::fs::read_to_string(&header).unwrap_or_default();
    assert!(there == text, "{}: TAKT_HEADER=write cargo test -p takt-c writes it anew", header.display());
}

/// The folder of the library that was built for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().find(|folder| folder.join("libtakt_c.a").exists());
    folder.unwrap_or_else(|| panic!("no libtakt_c.a above {}", test.display())).to_owned()
}

/// Compiles an example, as C and with all warnings, or `None` and why on the screen where there is no compiler.
fn compiled(name: &str, compiler: &str, standard: &str, folder: &Path) -> Option<PathBuf> {
    if Command::new(compiler).arg("--version").output().is_err() {
        println!("skipped: no {compiler}");
        return None;
    }
    let program = folder.join(format!("{name}-{compiler}"));
    let output = Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-x", if compiler == "c++" { "c++" } else { "c" }])
        .arg(root().join(format!("examples/{name}.c")))
        .args(["-x", "none", "-I"])
        .arg(root().join("include"))
        .arg(library().join("libtakt_c.a"))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

#[test]
fn the_example_in_c_builds_and_runs_and_so_it_does_as_cpp() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, standard) in [("cc", "-std=c11"), ("c++", "-std=c++17")] {
        let Some(program) = compiled("radar", compiler, standard, folder.path()) else { continue };
        let log = folder.path().join("radar.takt");
        let output = Command::new(program).arg(&log).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("level  discipline  priority") && said.contains("every job is accounted for"), "{said}");
        let stats = statistics(&log);
        let steer = stats.tasks.iter().find(|task| task.task == "steer").unwrap();
        assert!(steer.completed > 0, "{steer:?}");
    }
}

/// `make install-c` puts the library where a program in C finds it by pkg-config alone.
#[test]
fn pkg_config_finds_the_installed_library() {
    for tool in ["make", "cc", "pkg-config"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return println!("skipped: no {tool}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("prefix");
    let workspace = root().ancestors().nth(2).unwrap();
    let of = |name: &str, value: &Path| format!("{name}={}", value.display());
    let installed = Command::new("make")
        .current_dir(workspace)
        .args(["install-c", &of("PREFIX", &prefix), &of("C_LIBRARY", &library()), "CARGO=false"])
        .output()
        .unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let script = "cc $0 $(pkg-config --cflags --libs takt) -o $1 && $1 && pkg-config --modversion takt";
    let output = Command::new("sh")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .args(["-c", script])
        .arg(root().join("examples/wrong.c"))
        .arg(folder.path().join("wrong"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with(&format!("{}\n", env!("CARGO_PKG_VERSION"))), "{said}");
}

/// The output of an example, built as C and as C++. It must exit with 0.
fn said_in_both(name: &str) -> Vec<String> {
    said_with(name, &[])
}

/// The same with arguments.
fn said_with(name: &str, arguments: &[&Path]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let both = [("cc", "-std=c11"), ("c++", "-std=c++17")].into_iter();
    let said = both.filter_map(|(compiler, standard)| {
        let program = compiled(name, compiler, standard, folder.path())?;
        let output = Command::new(program).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        Some(said)
    });
    said.collect()
}

#[test]
fn filters_are_complete_when_they_should_be() {
    let version = env!("CARGO_PKG_VERSION");
    for said in said_in_both("filters") {
        assert_eq!(
            said,
            format!(
                "\
the group has no takt_group
a member of the group is a null pointer
a group has from 1 to 64 members
the filter: the time of a timeout is to be 100us or more, and is 1ns
16: the filter: its groups are more than 16 deep
subscribed: whole later quiet held 
suspended 1, resumed 1, reconnected 1
takt {version}: each filter was complete when it should be
"
            )
        );
    }
}

#[test]
fn a_loop_of_the_programs_own_learns_of_events_by_a_descriptor() {
    for said in said_in_both("loop") {
        assert_eq!(
            said,
            "\
an outlet has from 1 to 1024 patterns, and here are 0
20 answers came in order, and the descriptor was readable while they waited
an overrun was told while the handler ran, which stopped
"
        );
    }
}

#[test]
fn messages_with_deadlines_are_sent_without_a_broker_too() {
    for said in said_in_both("deadline") {
        assert_eq!(
            said,
            "\
\"sample\" arrived; through the broker: no, plain: 1
a peer that takes nothing: no byte waits outside the kernel
a pipe: descriptor 1: the descriptor is no UDP or TCP socket; give one of AF_INET or AF_INET6
"
        );
    }
}

/// The outputs of an example with a broker, and what that counted.
fn said_with_broker(name: &str) -> (Vec<String>, BrokerStats) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broker");
    let mut broker = Broker::bind(BrokerSpec { late: LateRule::Send, ..BrokerSpec::new(&path) }).unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&ends);
    let served = std::thread::spawn(move || broker.serve(&mut |_| asked.load(Ordering::Acquire)));
    let said = said_with(name, &[&path]);
    ends.store(true, Ordering::Release);
    (said, served.join().unwrap())
}

#[test]
fn messages_with_deadlines_go_through_a_broker() {
    let (said, stats) = said_with_broker("deadline");
    for said in &said {
        assert_eq!(
            said,
            "\
\"sample\" arrived; through the broker: yes, plain: 0
a peer that takes nothing: bytes wait in the broker
a pipe: descriptor 1: the descriptor is no UDP or TCP socket; give one of AF_INET or AF_INET6
"
        );
    }
    assert_eq!((stats.clients, stats.malformed), (said.len() as u64, 0));
}

#[test]
fn plain_sends_go_by_the_deadline_in_a_file_that_asks_for_it() {
    let (with_broker, stats) = said_with_broker("sends");
    assert_eq!((stats.clients, stats.malformed), (with_broker.len() as u64, 0));
    let counts =
        [(with_broker, "6 through a broker, 0 straight"), (said_in_both("sends"), "0 through a broker, 6 straight")];
    for (said, counts) in counts {
        for said in said {
            assert_eq!(said, format!("6 messages came: {counts}\neach call answered as it should\n"));
        }
    }
}

/// The environment variable with the path of [`broker_process`].
const BROKER: &str = "TAKT_TEST_BROKER";

/// The process of a broker; nothing in the test's own process.
#[test]
fn broker_process() {
    let Some(path) = std::env::var_os(BROKER) else { return };
    Broker::bind(BrokerSpec::new(Path::new(&path))).unwrap().serve(&mut |_| false);
}

#[test]
fn a_program_in_c_outlives_its_broker_and_joins_the_next() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, standard) in [("cc", "-std=c11"), ("c++", "-std=c++17")] {
        let Some(program) = compiled("fallback", compiler, standard, folder.path()) else { continue };
        let path = folder.path().join(format!("broker-{compiler}"));
        let broker = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "broker_process"]).env(BROKER, &path).stdout(Stdio::null());
            KillOnDrop(command.spawn().unwrap())
        };
        let mut command = Command::new(program);
        command.arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = KillOnDrop(command.spawn().unwrap());
        let mut wants = client.0.stdin.take().unwrap();
        let mut said = BufReader::new(client.0.stdout.take().unwrap()).lines();
        let mut step = |line: &str, expected: &str| {
            wants.write_all(line.as_bytes()).unwrap();
            assert_eq!(said.next().expect("the program goes on").unwrap(), expected);
        };
        let first = broker();
        step("broker\n", "\"sample\" arrived; through a broker: 1, plain: 0");
        // SIGKILL.
        drop(first);
        assert!(path.exists(), "a killed broker removes nothing");
        step("none\n", "\"sample\" arrived; through a broker: 1, plain: 1");
        let second = broker();
        step("broker\n", "\"sample\" arrived; through a broker: 2, plain: 1");
        drop(second);
        step("none\n", "\"sample\" arrived; through a broker: 2, plain: 2");
        drop(wants);
        assert!(client.0.wait().unwrap().success());
    }
}

#[test]
fn two_nodes_find_each_other_and_share_values_and_events() {
    for said in said_in_both("nodes") {
        assert_eq!(
            said,
            "\
level \"absent\" is to be scheduled as level 9 of the plan, which has 1
they found each other
of the values right knows the name, north
an alarm went from left to right
the channel's node has no level \"rest\"
level \"alarms\" has no peer 1; there are 1, counted from 0
left is lost
both nodes ended
"
        );
    }
}

#[test]
fn modes_are_switched_by_a_program_in_c_and_by_the_controller() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("landing", "cc", "-std=c11", folder.path()) else { return };
    let output = Command::new(program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("mode landing: strategy muf") && said.contains("landed: gear is out"), "{said}");
    assert!(said.contains("the guard came"), "{said}");
}

#[test]
fn pushes_answer_what_became_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("edges", "cc", "-std=c11", folder.path()) else { return };
    let output = Command::new(program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        said,
        "\
the subscription is that of \"pair\", and not of \"slow\"
operation \"pair\" has subscribed, and no handler was made of its subscription: give the dispatcher \
Subscription::handler(..) for it
the subscription of operation \"pair\" is none of this channel's, or not any more
each push was answered as it should
"
    );
}

/// The output of a program that must exit with 0.
fn said(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// The statistics of a log that ended well.
fn statistics(log: &Path) -> Stats {
    let mut reader = Reader::new(BufReader::new(File::open(log).unwrap())).unwrap();
    let statistics = Collector::read(&mut reader).unwrap();
    assert!(reader.damage().is_none() && reader.end().as_ns() > 0, "{:?}", reader.damage());
    statistics
}

#[test]
fn operations_are_what_a_program_in_c_says_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("planned", "cc", "-std=c11", folder.path()) else { return };
    let (log, cpus) = (folder.path().join("log"), takt_linux::sched::affinity().len().min(2));
    let said = said(&program, &[&cpus.to_string(), log.to_str().unwrap()]);
    assert!(said.contains("every job became what it should"), "{said}");
    let line = |name: &str| said.lines().position(|line| line.contains(&format!(" {name} "))).unwrap();
    assert!(line("first") < line("middle") && line("middle") < line("last"), "{said}");
    // More happened than there was room for.
    assert_ne!(statistics(&log).lost_events, Some(0));
}

#[test]
fn a_log_is_whole_though_a_handler_does_not_return() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("ends", "cc", "-std=c11", folder.path()) else { return };
    let log = folder.path().join("log");
    let text = "operation \"stay\" has not returned for 5s since the stop; its thread goes on: let long \
         handlers look at must_stop()\n";
    assert_eq!(said(&program, &["stuck", log.to_str().unwrap()]), text);
    let statistics = statistics(&log);
    let of = |name: &str| statistics.tasks.iter().find(|task| task.task == name).unwrap();
    assert!(of("tick").completed >= 3 && of("stay").released == 1, "{statistics:?}");
}

#[test]
fn a_log_that_cannot_be_written_is_told_and_one_of_a_refused_start_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("ends", "cc", "-std=c11", folder.path()) else { return };
    let text = "the log could not be written: cannot write the log: No space left on device (os error 28)\n";
    assert_eq!(said(&program, &["full", "/dev/full"]), text);
    let log = folder.path().join("log");
    let text = "operation \"stay\" has no handler: give it one with on(\"stay\", ..) before the start
the start of this dispatcher was refused, so it cannot start again: make another one of the same plan
the start of this dispatcher was refused, so it cannot start again: make another one of the same plan
";
    assert_eq!(said(&program, &["refused", log.to_str().unwrap()]), text);
    assert!(!log.exists());
    std::fs::write(&log, "of another run").unwrap();
    assert_eq!(said(&program, &["refused", log.to_str().unwrap()]), text);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "of another run");
}

#[test]
fn missing_privileges_have_their_own_status() {
    let folder = tempfile::tempdir().unwrap();
    let all: Permissions = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), all).unwrap();
    let Some(program) = compiled("ends", "cc", "-std=c11", folder.path()) else { return };
    let mut command = Command::new("prlimit");
    command.args(["--rtprio=0", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(program).args(["privilege", "/dev/null"]);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return println!("skipped, no prlimit: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    // A program that fails to start prints nothing on standard output.
    if output.stdout.is_empty() {
        return println!("skipped, nothing runs as another user here: {said}");
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains("CAP_SYS_NICE is missing") && said.contains("grant it: "), "{said}");
}

#[test]
fn each_wrong_call_is_answered_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("wrong", "cc", "-std=c11", folder.path()) else { return };
    let output = Command::new(program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said,
        "\
1: the name is a null pointer
1: operation \"a\" has predecessors: its arrival is to be TAKT_ARRIVAL_AFTER
1: operation \"a\" has no takt_arrival
1: there is no strategy \"best\"; there are: fp, rm, dm, edf, mlf, muf, rms+mlf, fifo
2: the set \"x\" has no operation to dispatch; add at least one
1: there is no mode \"landing\": takt_operations_mode adds one
1: there is no strategy \"best\"; there are: fp, rm, dm, edf, mlf, muf, rms+mlf, fifo
1: the node has no takt_clock
1: a level keeps at most 65536 nodes apart, and not 65537
1: the level's name is a null pointer
1: an address of level \"l\" is a null pointer
1: level \"l\": \"here\" is no address with a port, such as 10.0.0.1:7000 or [fe80::1%2]:7000
1: the peers of level \"l\" are a null pointer
1: level \"l\" has 1025 patterns; 1024 are the most
1: level \"l\" has no takt_sending
1: the buffers of level \"l\" have more than 64 MiB
1: events of type 4294967295 are the channel's own: choose a smaller one
1: there are from 1 to 65536 values, with a size each
1: value 1 has up to 65536 bytes; 65535 are the most
1: value 1 has up to 229 bytes, and an event of this channel has room for 228 (Options::payload_max)
"
    );
}
