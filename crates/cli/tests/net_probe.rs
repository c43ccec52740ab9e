//! `takt net probe` in network namespaces of the test's own: its modes, files and exit statuses. If
//! this machine cannot make them, each test says so and passes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

use serde_json::Value;
use takt_linux::clock::{cpu_of_process, pause};
use takt_linux::process::KillOnDrop;
use takt_model::Span;
use takt_net::probe::{HEAD, Head, ProbeMessage};
use tempfile::TempDir;

use crate::command::{cable, piped, ran, signal};

mod command;

fn takt(arguments: &[&str]) -> Command {
    piped(&["net", "probe"], arguments)
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    ran(takt(arguments))
}

fn json(arguments: &[&str]) -> (Option<i32>, Value) {
    let (status, text, errors) = run(&[arguments, &["--json"]].concat());
    (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{errors}")))
}

struct Server(KillOnDrop, String);

impl Server {
    fn start(listen: &str) -> Server {
        Server::spawn(takt(&["serve", "--listen", listen, "--json"]), listen)
    }

    fn spawn(mut command: Command, listen: &str) -> Server {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_whitespace().find(|word| word.starts_with(listen.trim_end_matches('0')));
        let address = address.unwrap_or_else(|| panic!("{line}")).trim_end_matches(',').to_owned();
        Server(KillOnDrop(child), address)
    }

    fn end(mut self) -> Value {
        let child = &mut self.0.0;
        signal(child, "-TERM");
        let text = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
        assert!(child.wait().unwrap().success());
        serde_json::from_str(&text).unwrap()
    }
}

#[test]
fn every_mode_measures_and_writes_what_it_measured() {
    let Some(cable) = cable(false) else { return };
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let listen = format!("{}:0", cable.right().address());
    let server = cable.right().run(|| Server::start(&listen)).unwrap();
    let to = server.1.clone();
    // Of the server: four, and as many as it takes for the throughput.
    let mut runs = 4_u64;
    let measure = || {
        let (csv, svg) = (path("messages.csv"), path("cdf.svg"));
        let usual = ["--for", "200ms", "--wait", "20s", "--clock-width", "10s"];
        let load =
            ["under-load", &to, "--mps", "100", "--burst", "2-3", "--deadline", "30s", "--csv", &csv, "--svg", &svg];
        let (status, told) = json(&[&load[..], &usual].concat());
        assert_eq!(status, Some(0), "{told}");
        let [of, deadlines] = [&told["servers"][0], &told["deadlines"]];
        let sent = of["sent"].as_u64().unwrap();
        assert!((40..=60).contains(&sent), "20 bursts: {told}");
        for key in ["arrived", "asked", "answered"] {
            assert_eq!(of[key], sent, "{key}: {told}");
        }
        assert_eq!((&of["lost"], &of["stamps"]), (&0.into(), &"kernel".into()));
        assert_eq!((&deadlines["missed_one_way_max"], &deadlines["missed_round_trip"]), (&0.into(), &0.into()));
        let times = &told["times"];
        let one = |key: &str| times[key]["max_ns"].as_u64().unwrap_or_else(|| panic!("{key}: {told}"));
        assert!(one("one_way_min") <= one("one_way_max") && one("one_way_max") <= one("round_trip"), "{told}");
        assert!(one("round_trip") <= one("round_trip_from_intended"), "{told}");
        let lines = fs::read_to_string(&csv).unwrap();
        assert_eq!(lines.lines().count() as u64, sent + 1);
        let cells: Vec<&str> = lines.lines().nth(1).unwrap().split(',').collect();
        assert_eq!((cells[1], cells[3], cells[10], cells[11]), (to.as_str(), "0", "no", "no"), "{lines}");
        assert!(fs::read_to_string(&svg).unwrap().contains("one way, at most"));

        let (status, told) =
            json(&[&["ping-pong", &to, "--tcp", "--mps", "50", "--no-one-way"][..], &usual[..4]].concat());
        let of = &told["servers"][0];
        assert_eq!(
            (status, &of["sent"], &of["answered"], &of["stamps"]),
            (Some(0), &10.into(), &10.into(), &"program".into())
        );
        assert!(told["times"]["one_way_min"].is_null() && of["offset_ns"].is_null() && told["deadlines"].is_null());

        // A busy machine may not come to send within a short time.
        let mut tries = ["50ms", "500ms", "5s"].iter().map(|time| {
            runs += 1;
            json(&["throughput", &to, "--for", time, "--size", "1000B"])
        });
        let (_, told) = tries.find(|(status, _)| *status == Some(0)).expect("something arrives");
        assert!(told["servers"][0]["arrived_bps"].as_u64().unwrap() > 0 && told["times"]["round_trip"].is_null());

        let sends = path("sends.csv");
        fs::write(&sends, "0, 64\n0.01, 400 # the second\n0.02, 1400\n").unwrap();
        let (status, text, errors) = run(&["playback", &sends, &to, "--csv", "-", "--wait", "20s"]);
        assert_eq!(status, Some(0), "{errors}");
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
        let told: Vec<(&str, &str)> = rows.iter().map(|row| (row[2], row[3])).collect();
        assert_eq!(told, [("64", "0"), ("400", "10000000"), ("1400", "20000000")]);

        // Deadlines that no message keeps.
        let none = ["ping-pong", &to, "--deadline", "1ns", "--mps", "100", "--for", "50ms", "--wait", "20s"];
        let (status, text, _) = run(&none);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("missed by the round trip, of"), "{text}");
    };
    cable.left().run(measure).unwrap();
    let told = server.end();
    assert_eq!((&told["runs"], &told["malformed"], &told["foreign"]), (&runs.into(), &0.into(), &0.into()), "{told}");
}

#[test]
fn a_server_without_a_free_descriptor_does_not_use_up_its_cpu() {
    let mut command = Command::new("sh");
    let script = "ulimit -n 32; exec \"$0\" net probe serve --listen 127.0.0.1:0 --json";
    command.args(["-c", script, env!("CARGO_BIN_EXE_takt")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let server = Server::spawn(command, "127.0.0.1:0");
    let clients: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&server.1).unwrap()).collect();
    let used = || cpu_of_process(server.0.0.id());
    // The server takes those for whom it has descriptors.
    pause(Span::from_ms(200));
    let (lasted, before) = (Span::from_ms(500), used());
    pause(lasted);
    let used = used().saturating_sub(before);
    assert!(used.as_ns() < lasted.as_ns() / 2, "{used} of {lasted}, with {} connections", clients.len());
}

#[test]
fn invalid_arguments_have_a_message_and_a_status() {
    let folder = TempDir::new().unwrap();
    let bad = folder.path().join("bad.csv");
    fs::write(&bad, "0, 64\n0.1, 12\n").unwrap();
    let bad = bad.to_str().unwrap();
    let here = "127.0.0.1:9";
    let broker = folder.path().join("none");
    let lost = folder.path().join("none/messages.csv");
    let lost = lost.to_str().unwrap();
    let good = folder.path().join("good.csv");
    fs::write(&good, "0, 64\n").unwrap();
    let good = good.to_str().unwrap();
    for (arguments, status, text) in [
        (vec!["playback", bad, here], 2, "bad.csv:2: the size is no number of bytes from 64"),
        (vec!["under-load", "nowhere"], 2, "is no address; write one like 10.0.0.7"),
        (vec!["under-load", here, "--size", "1B"], 2, "messages have from 64 to 65507 bytes"),
        (vec!["under-load", here, "--burst", "3-2"], 2, "a burst has from 1 to"),
        (vec!["under-load", here, "::1"], 2, "are of IPv4 and IPv6"),
        (vec!["under-load", here, "--broker", broker.to_str().unwrap()], 2, "--deadline"),
        (vec!["ping-pong", here, "--for", "2h"], 2, "the duration is 0 or above"),
        (vec!["ping-pong", here, "--warm-up", "2h"], 2, "the warm-up is above 3600s"),
        (vec!["throughput", here, "--deadline", "1ms"], 2, "deadlines are judged by replies"),
        (vec!["under-load", here, "--deadline", "1ms", "--reply-every", "0"], 2, "deadlines are judged by replies"),
        (vec!["playback", good, here, "--burst", "4"], 2, "--burst"),
        (vec!["playback", good, here, "--size", "100B"], 2, "--size"),
        (vec!["playback", good, here, "--warm-up", "1s"], 2, "--warm-up"),
        (vec!["ping-pong", here, "--csv", "-", "--svg", "-"], 2, "write to the same place"),
        (vec!["ping-pong", here, "--csv", "-", "--json"], 2, "both write to standard output"),
        (vec!["ping-pong", here, "--csv", lost], 4, "its folder does not exist"),
        (vec!["ping-pong", here, "--svg", lost], 4, "its folder does not exist"),
        (vec!["ping-pong", "239.1.2.3", "--tcp"], 2, "and TCP has none; leave out --tcp"),
        (vec!["ping-pong", here, "--mc-ttl", "1"], 2, "127.0.0.1:9 is no group (multicast)"),
        (vec!["ping-pong", "239.1.2.3", "--mc-ttl", "256"], 2, "256 is not in 0..=255"),
        (vec!["ping-pong", "239.1.2.3", here], 2, "give one group, or the addresses of servers"),
        (vec!["ping-pong", here, "--tos", "0x100"], 2, "is no byte; give a number from 0 to 255"),
        (vec!["throughput", here, "--tcp", "--tos", "1"], 2, "give a multiple of 4"),
        (vec!["serve", "--group", "10.0.0.7"], 2, "10.0.0.7 is no group (multicast)"),
        (vec!["serve", "--group", "ff15::7"], 2, "give --listen [::]:7462"),
        (vec!["serve", "--group", "239.1.2.3", "--mc-rx-if", "none"], 2, "there is no network device \"none\""),
        (vec!["serve", "--for", "0s"], 2, "--for is zero"),
        (vec!["serve", "--listen", "203.0.113.1:7462"], 2, "cannot be received"),
        (vec!["ping-pong", here, "--tcp"], 1, "is `takt net probe serve` running there?"),
    ] {
        let (found, _, errors) = run(&arguments);
        assert_eq!(found, Some(status), "{arguments:?}: {errors}");
        assert!(errors.contains(text), "{arguments:?}: {errors}");
    }
}

fn welcome(head: Head) -> [u8; HEAD] {
    let message = ProbeMessage::Welcome { clock_port: 9, sink_port: 9, kernel_stamps: false };
    Head { message, ..head }.write()
}

#[test]
fn a_signal_is_named_and_a_silent_server_is_no_success() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap().to_string();
    let child = takt(&["ping-pong", &to, "--for", "1min", "--no-one-way", "--json"]).spawn().unwrap();
    let mut bytes = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut bytes).unwrap();
        let head = Head::of_datagram(&bytes[..length]).unwrap();
        match head.message {
            ProbeMessage::Open => drop(socket.send_to(&welcome(head), from).unwrap()),
            ProbeMessage::Data { is_warm_up: false, .. } => break,
            _ => {}
        }
    }
    let pid = i32::try_from(child.id()).unwrap();
    assert!(pid > 1);
    assert!(Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["interrupted"], output.status.code()), (&true.into(), Some(1)), "{told}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("note: interrupted by SIGINT after"), "{errors}");
}

#[test]
fn a_connection_that_ends_in_the_warm_up_is_no_success() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; HEAD];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&welcome(Head::read(&bytes).unwrap())).unwrap();
    });
    let (status, text, errors) = run(&["ping-pong", &to, "--tcp", "--no-one-way", "--for", "50ms", "--warm-up", "10s"]);
    server.join().unwrap();
    assert_eq!(status, Some(1), "{text}{errors}");
    assert!(text.contains("no message was sent to it") && text.contains("its connection ended"), "{text}");
}
