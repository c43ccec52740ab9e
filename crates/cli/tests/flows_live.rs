//! Nodes of systems with flows under `takt run`: the messages of the simulation, datagrams of an
//! attacker, and what is refused. Deadlines are so long that only a machine that stands still for
//! half a second misses one.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use takt_linux::clock::{pause, realtime_ns};
use takt_linux::net::{Cable, End};
use takt_linux::sched;
use takt_log::{Event, Reader};
use takt_model::Span;
use tempfile::TempDir;

const TAKT: &str = env!("CARGO_BIN_EXE_takt");

/// Nodes n0, n1, .. and a flow over all of them and back. With `gone`, the first one also sends to a node of that name.
fn system(nodes: usize, gone: bool) -> String {
    let mut text = "takt = 1\nname = \"ring\"\n".to_owned();
    for node in 0..nodes {
        text += &format!(
            "[[node]]\nname = \"n{node}\"\nreceive = {{ period = \"10ms\", wcet = \"2ms\", cost = \"50us\" }}\n\
             send = {{ period = \"10ms\", wcet = \"2ms\", cost = \"50us\" }}\n"
        );
        // The messages of the first node leave by their deadlines.
        if node == 0 {
            text += "link = { rate = \"100Mbit\", order = \"edf\", late = \"drop\" }\n";
        }
    }
    let path: Vec<String> = (0..nodes).map(|node| format!("\"n{node}\"")).collect();
    text += &format!(
        "[[task]]\nname = \"log\"\nnode = \"n0\"\nperiod = \"100ms\"\nwcet = \"5ms\"\n\
         [[flow]]\nname = \"put\"\npath = [{}]\nreply = true\nperiod = \"50ms\"\nsend-gap = \"10ms\"\nwcet = \"1ms\"\n\
         deadline = \"2s\"\nsize = \"400B\"\n[[network]]\ndelay = [\"0us\", \"5ms\"]\n",
        path.join(", ")
    );
    if gone {
        // Its messages are due first.
        text += "[[node]]\nname = \"gone\"\nreceive = { period = \"10ms\", wcet = \"2ms\" }\n\
                 [[flow]]\nname = \"lost\"\npath = [\"n0\", \"gone\"]\nperiod = \"50ms\"\nsend-gap = \"10ms\"\n\
                 wcet = \"1ms\"\ndeadline = \"1s\"\nsize = \"400B\"\n";
    }
    text
}

fn folder(nodes: usize, gone: bool) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("ring.toml"), system(nodes, gone)).unwrap();
    write_key(folder.path(), &"5a".repeat(32), 0o600);
    folder
}

fn write_key(folder: &Path, key: &str, mode: u32) {
    let path = folder.join("key");
    fs::write(&path, key).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(TAKT);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn takt(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(folder, arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Without the privilege for real-time threads.
fn class(folder: &Path) -> &'static [&'static str] {
    fs::write(folder.join("one.toml"), "takt = 1\n[[task]]\nname = \"t\"\nperiod = \"20ms\"\nwcet = \"1ms\"\n")
        .unwrap();
    for _ in 0..600 {
        let (status, _, why) = takt(folder, &["run", "one.toml", "--for", "20ms"]);
        if status == Some(0) {
            return &[];
        }
        // Another test of this program does.
        if !why.contains("divides this machine's CPUs now") {
            println!("best effort: {why}");
            return &["--best-effort"];
        }
        pause(Span::from_ms(100));
    }
    panic!("another takt has divided the CPUs for a minute");
}

struct Node {
    listen: SocketAddr,
    peers: Vec<(usize, SocketAddr)>,
    /// Where the node should be that is gone.
    gone: Option<SocketAddr>,
}

/// Starts a node on a CPU of its own, where there are several.
fn start(folder: &Path, number: usize, node: &Node, at: &str, more: &[&str]) -> Child {
    let cpus = sched::affinity();
    let (listen, name) = (node.listen.to_string(), format!("n{number}"));
    let peers = node.peers.iter().map(|(peer, at)| format!("n{peer}={at}"));
    let peers: Vec<String> = peers.chain(node.gone.map(|at| format!("gone={at}"))).collect();
    let log = format!("{name}.takt");
    let mut arguments =
        vec!["run", "ring.toml", "--node", &name, "--listen", &listen, "--key", "key", "--start-at", at];
    arguments.extend(["--for", "1500ms", "--json", "-o", &log]);
    peers.iter().for_each(|peer| arguments.extend(["--peer", peer]));
    arguments.extend(more);
    sched::set_affinity(&[cpus[number % cpus.len()]]).unwrap();
    let child = command(folder, &arguments).spawn().unwrap();
    sched::set_affinity(&cpus).unwrap();
    child
}

/// Runs nodes together; their answers in JSON. A machine that is too slow to start them in time gets
/// more time.
fn together(mut nodes: impl FnMut(&str) -> Vec<Child>) -> Vec<Value> {
    for lead in [4, 15, 60] {
        let at = (realtime_ns() / 1_000_000_000 + lead).to_string();
        let ended: Vec<Output> = nodes(&at).into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let said: Vec<String> = ended.iter().map(|node| String::from_utf8_lossy(&node.stderr).into_owned()).collect();
        let answers = ended.iter().map(|node| String::from_utf8_lossy(&node.stdout).into_owned());
        let is_late =
            |said: &String| said.contains("came to a run that had begun") || said.contains("run of the nodes is over");
        if said.iter().cloned().chain(answers).any(|said| is_late(&said)) {
            continue;
        }
        let read = |(node, said): (&Output, &String)| {
            assert_eq!(node.status.code(), Some(0), "{said}");
            serde_json::from_slice(&node.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
        };
        let answers: Vec<Value> = ended.iter().zip(&said).map(read).collect();
        // A node that starts just before the others' first messages has not heard of their clocks.
        if answers.iter().all(|answer| answer["flows"]["clocks_unknown"].as_array().is_some_and(Vec::is_empty)) {
            return answers;
        }
    }
    panic!("nodes cannot be started within a minute, or do not know each other's clocks at the start");
}

/// Instances of the flow whose whole way surely lies within the run.
const SURE: u64 = 5;

/// Messages that each node received: stream, sending task, number of the job.
fn received(logs: &[std::path::PathBuf]) -> BTreeSet<(u32, u32, u64)> {
    let mut all = BTreeSet::new();
    for log in logs {
        let reader = Reader::new(std::io::Cursor::new(fs::read(log).unwrap())).unwrap();
        for record in reader {
            let record = record.unwrap();
            if let Event::Receive { job, .. } = record.event
                && job.number < SURE
            {
                assert!(all.insert((record.stream, job.task.0, job.number)), "received twice: {job:?}");
            }
        }
    }
    all
}

fn logs(folder: &Path, nodes: usize) -> Vec<std::path::PathBuf> {
    (0..nodes).map(|node| folder.join(format!("n{node}.takt"))).collect()
}

/// The messages are those of the simulation, and all hops are in time.
fn as_simulated(folder: &Path, answers: &[Value]) {
    let (status, _, said) = takt(folder, &["sim", "ring.toml", "--for", "1500ms", "-o", "sim.takt"]);
    assert_eq!(status, Some(0), "{said}");
    let (live, mut simulated) = (received(&logs(folder, answers.len())), received(&[folder.join("sim.takt")]));
    simulated.retain(|(node, ..)| (*node as usize) < answers.len());
    assert!(!simulated.is_empty());
    assert_eq!(live, simulated);
    for answer in answers {
        for hop in answer["flows"]["hops"].as_array().unwrap() {
            assert_eq!(hop["missed"], 0, "{answer:#}");
            assert!(hop["bound_ns"].is_u64() && hop["response_max_ns"].is_u64(), "{hop}");
        }
    }
    for log in logs(folder, answers.len()) {
        let log = log.to_string_lossy().into_owned();
        for verb in [&["stats", &log][..], &["chart", &log], &["diff", &log, &log]] {
            let (status, _, said) = takt(folder, verb);
            assert_eq!(status, Some(0), "{verb:?}: {said}");
        }
        let (status, _, said) = takt(folder, &["report", "ring.toml", &log, "-o", "page.html"]);
        assert_eq!(status, Some(0), "{said}");
        let page = fs::read_to_string(folder.join("page.html")).unwrap();
        let flows = page.split("id=\"flows\"").nth(1).expect("a table of flows");
        assert!(flows.contains("Measured<br/>max"), "{flows}");
    }
}

#[test]
fn three_nodes_exchange_the_messages_of_the_simulation() {
    let folder = folder(3, false);
    let folder = folder.path();
    let class = class(folder);
    // Below the ports that the kernel gives to those who ask for any.
    let first = 10_000 + (std::process::id() % 7_000) as u16 * 3;
    let at: Vec<SocketAddr> = (first..first + 3).map(|port| SocketAddr::from((Ipv6Addr::LOCALHOST, port))).collect();
    let answers = together(|instant| {
        let node = |number: usize| {
            let peers = (0..3).filter(|peer| *peer != number).map(|peer| (peer, at[peer])).collect();
            start(folder, number, &Node { listen: at[number], peers, gone: None }, instant, class)
        };
        (0..3).map(node).collect()
    });
    as_simulated(folder, &answers);
    for answer in &answers {
        for drops in ["malformed", "foreign", "forged", "replayed", "unsent", "overflowed"] {
            assert_eq!(answer["flows"][drops], 0, "{answer:#}");
        }
    }
}

#[test]
fn nodes_that_measure_clocks_take_the_first_messages_too() {
    let class = class(TempDir::new().unwrap().path());
    // All nodes measure at one port. So each has an address of its own, and so has this process.
    let address = |number: u32| Ipv4Addr::from(0x7F00_0000 | ((std::process::id() & 0xFFFF) << 8) | (number + 1));
    let node = |number: u32| SocketAddr::from((address(number), 7000));
    for clock in ["", "clock = { sync = { period = \"200ms\", wcet = \"1ms\" } }\n"] {
        let folder = folder(2, false);
        let folder = folder.path();
        let name = "name = \"ring\"\n";
        fs::write(folder.join("ring.toml"), system(2, false).replacen(name, &format!("{name}{clock}"), 1)).unwrap();
        let more = [class, &["--clocks", "7461"]].concat();
        let answers = together(|instant| {
            let run = |own: usize, peer: usize| {
                let peers = vec![(peer, node(peer as u32))];
                start(folder, own, &Node { listen: node(own as u32), peers, gone: None }, instant, &more)
            };
            vec![run(0, 1), run(1, 0)]
        });
        // Each instance passes to the other node and back.
        assert_eq!(received(&logs(folder, 2)).len() as u64, 2 * SURE, "{answers:#?}");
        for answer in &answers {
            assert_eq!(answer["flows"]["clocks"].as_array().unwrap().len(), 1, "{answer:#}");
            for drops in ["malformed", "forged", "replayed"] {
                assert_eq!(answer["flows"]["clock_datagrams"][drops], 0, "{answer:#}");
            }
            for hop in answer["flows"]["hops"].as_array().unwrap() {
                assert_eq!(hop["missed"], 0, "{answer:#}");
            }
        }
    }
}

/// Values of a hop are above their bounds exactly where the report says so, and then it names a disturbance.
fn within_bounds_or_explained(hop: &Value) {
    let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("no number: {hop:#}"));
    let is_above = |value: i64, bound: &str| value > number(&hop[bound]);
    let least_response = number(&hop["response_max_ns"]) - number(&hop["response_error_ns"]);
    let mut above = Vec::new();
    if is_above(least_response, "bound_ns") {
        above.push("response");
    }
    if hop["hop"] != 0 {
        if is_above(number(&hop["messages"]), "messages_bound") {
            above.push("messages");
        }
        if is_above(number(&hop["delay_max_ns"][0]), "delay_bound_ns") {
            above.push("delay");
        }
    }
    assert_eq!(hop["above"], json!(above), "{hop:#}");
    let disturbances = hop["disturbances"].as_array().unwrap();
    assert_eq!(disturbances.is_empty(), above.is_empty(), "{hop:#}");
}

/// A node that stands still is above its bounds. The report then names why.
#[test]
fn hops_of_nodes_keep_their_bounds_or_the_report_says_why_not() {
    let folder = folder(2, false);
    let folder = folder.path();
    let class = class(folder);
    // Costs above those of this machine. Without a link the network's delay is all between a send and its arrival.
    let costs = "costs = { latency = \"1ms\", release = \"200us\", switch = \"100us\" }\n";
    let lines = system(2, false);
    let lines = lines.lines().filter(|line| !line.starts_with("link = "));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    fs::write(folder.join("ring.toml"), text.replace("receive = ", &format!("{costs}receive = "))).unwrap();
    let address = |number: u32| Ipv4Addr::from(0x7F00_0000 | ((std::process::id() & 0xFFFF) << 8) | (number + 1));
    // Another test of this program has these addresses with port 7000.
    let at = |number: u32| SocketAddr::from((address(number), 7002));
    for attempt in 1.. {
        together(|instant| {
            let run = |own: usize, peer: usize| {
                let peers = vec![(peer, at(peer as u32))];
                start(folder, own, &Node { listen: at(own as u32), peers, gone: None }, instant, class)
            };
            vec![run(0, 1), run(1, 0)]
        });
        let report = ["report", "ring.toml", "n0.takt", "n1.takt", "-o", "page.html", "--json"];
        let (status, report, said) = takt(folder, &report);
        assert_eq!(status, Some(0), "{said}");
        let report: Value = serde_json::from_str(&report).unwrap();
        let hops = report["hops"].as_array().unwrap();
        // There and back.
        assert_eq!(hops.len(), 3, "{report:#}");
        // Logs of nodes do not show what a machine does that stands still for a while.
        let is_unexplained = |hop: &Value| hop["above"] != json!([]) && hop["disturbances"] == json!([]);
        if attempt < 5 && hops.iter().any(is_unexplained) {
            continue;
        }
        return hops.iter().for_each(within_bounds_or_explained);
    }
}

/// Passes each datagram on, and before and behind it what an attacker on the way would send.
fn relay(end: &End, from: u16, to: SocketAddr, attacks: bool, stop: &AtomicBool) -> u64 {
    end.enter().unwrap();
    let relay = UdpSocket::bind((end.address(), from)).unwrap();
    relay.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut bytes = [0; 2048];
    let mut passed = 0;
    while !stop.load(Ordering::Acquire) {
        let Ok((length, _)) = relay.recv_from(&mut bytes) else { continue };
        let datagram = &bytes[..length];
        passed += 1;
        if !attacks {
            relay.send_to(datagram, to).unwrap();
            continue;
        }
        let (mut forged, mut foreign) = (datagram.to_vec(), datagram.to_vec());
        // The run stands behind salt, counter and boot time.
        (forged[length - 1], foreign[40]) = (forged[length - 1] ^ 1, foreign[40] ^ 1);
        for datagram in [&b"no message"[..], &forged, &foreign, datagram, datagram] {
            relay.send_to(datagram, to).unwrap();
        }
    }
    passed
}

#[test]
fn two_nodes_on_a_cable_bear_an_attacker_between_them() {
    let folder = folder(2, true);
    let folder = folder.path();
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("skipped: {error}"),
    };
    let class = class(folder);
    // Both nodes are at one end. The way from one to the other leads over the other end.
    let (here, there) = (cable.left().address(), cable.right().address());
    let node = |number: u16| SocketAddr::from((here, 7000 + number));
    let way_to = |number: u16| SocketAddr::from((there, 7100 + number));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let attacked = scope.spawn(|| relay(cable.right(), 7101, node(1), true, &stop));
        let other = scope.spawn(|| relay(cable.right(), 7100, node(0), false, &stop));
        let nodes = scope.spawn(|| {
            cable.left().enter().unwrap();
            together(|instant| {
                let peer = |number: u16| vec![(usize::from(number), way_to(number))];
                // Nobody answers for this address, and the messages to the other node do not wait for that.
                let gone = Some(SocketAddr::from((cable.nobody(), 7000)));
                let first = Node { listen: node(0), peers: peer(1), gone };
                let second = Node { listen: node(1), peers: peer(0), gone: None };
                vec![start(folder, 0, &first, instant, class), start(folder, 1, &second, instant, class)]
            })
        });
        let answers = nodes.join();
        stop.store(true, Ordering::Release);
        let (passed, _) = (attacked.join().unwrap(), other.join().unwrap());
        let answers = answers.unwrap();
        as_simulated(folder, &answers);
        let flows = &answers[1]["flows"];
        assert!(passed >= SURE && flows["arrived"].as_u64() >= Some(SURE), "{flows:#}");
        // Datagrams after the end of the run count for nothing.
        for drops in ["malformed", "foreign", "forged", "replayed"] {
            let count = flows[drops].as_u64().unwrap();
            assert!(count >= SURE && count <= passed, "{drops} of {passed}: {flows:#}");
        }
        assert_eq!((&answers[0]["flows"]["forged"], &answers[0]["flows"]["replayed"]), (&0.into(), &0.into()));
    });
}

#[test]
fn missing_options_of_a_node_are_refused_with_a_remedy() {
    let folder = folder(2, false);
    let folder = folder.path();
    let all = ["--listen", "127.0.0.1:7001", "--peer", "n1=127.0.0.1:7002", "--key", "key"];
    let run = |more: &[&str]| takt(folder, &[&["run", "ring.toml"], more].concat());
    let refused = |more: &[&str], wanted: &str| {
        let (status, out, said) = run(more);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(wanted), "{wanted}: {said}");
    };
    refused(&all, "--node");
    let node = ["--node", "n0"];
    refused(&node, "--peer n1=ADDRESS:PORT");
    refused(&[&node[..], &all[2..]].concat(), "--listen ADDRESS:PORT");
    refused(&[&node[..], &all[..2], &all[4..]].concat(), "--peer n1=ADDRESS:PORT");
    refused(&[&node[..], &all[..4]].concat(), "--key FILE");
    refused(&[&node[..], &all, &["--peer", "n7=127.0.0.1:1"]].concat(), "the system has no node \"n7\"");
    let begun = |at: u64, wanted: &str| {
        refused(&[&node[..], &all, &["--best-effort", "--start-at", &at.to_string()]].concat(), wanted);
    };
    begun(1000, "this machine started after the common start of the nodes");
    begun(realtime_ns() / 1_000_000_000 - 1, "is over");
    refused(&[&node[..], &all, &["--start-at", "18446744073"]].concat(), "a year ahead");
    for (peer, why) in
        [("n1=[::1]:7", "an address already"), ("n0=127.0.0.1:7", "its own address"), ("n1=127.0.0.1:0", "port 0")]
    {
        let only = if peer.starts_with("n1=127") { &all[..2] } else { &all[..4] };
        refused(&[&node[..], only, &["--peer", peer]].concat(), why);
    }
    let whole = [&node[..], &all].concat();
    write_key(folder, &"5a".repeat(32), 0o644);
    refused(&whole, "chmod 600 key");
    write_key(folder, "5a", 0o600);
    refused(&whole, "64 hexadecimal digits");
    fs::remove_file(folder.join("key")).unwrap();
    refused(&whole, "openssl rand -hex 32 > key");
    fs::write(folder.join("plain.toml"), "takt = 1\n[[task]]\nname = \"t\"\nperiod = \"20ms\"\nwcet = \"1ms\"\n")
        .unwrap();
    let (status, _, said) = takt(folder, &["run", "plain.toml", "--listen", "127.0.0.1:7001"]);
    assert!(status == Some(2) && said.contains("no flow visits node"), "{said}");
}

#[test]
fn an_interrupted_node_ends_in_order_and_a_killed_one_leaves_nothing() {
    let folder = folder(2, false);
    let folder = folder.path();
    let class = class(folder);
    // An address of this process alone: nobody else takes its port.
    let address = Ipv4Addr::from(0x7F00_0000 | (std::process::id() & 0x00FF_FFFF));
    let listen = SocketAddr::from((address, 20_003));
    let node = Node { listen, peers: vec![(1, SocketAddr::from(([127, 0, 0, 1], 9)))], gone: None };
    // It waits for its start, an hour ahead.
    let at = (realtime_ns() / 1_000_000_000 + 3600).to_string();
    // Seen in the kernel's list: a socket of our own could take the port from the node.
    let local = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.octets()), listen.port());
    let waits = || {
        let child = start(folder, 0, &node, &at, class);
        let listens = (0..3000).any(|_| {
            pause(Span::from_ms(10));
            let sockets = fs::read_to_string("/proc/net/udp").unwrap();
            sockets.lines().any(|line| line.split_ascii_whitespace().nth(1) == Some(local.as_str()))
        });
        assert!(listens, "the node does not listen within 30 s");
        child
    };
    let mut killed = waits();
    killed.kill().unwrap();
    killed.wait().unwrap();
    drop(UdpSocket::bind(listen).unwrap());
    let interrupted = waits();
    let number = interrupted.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &number]).status().unwrap().success());
    let output = interrupted.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["interrupted"], true);
    drop(UdpSocket::bind(listen).unwrap());
}
