//! A program carries out the jobs of a flow on two nodes, each a process of its own: bytes go from
//! handler to handler. One node is killed, starts again, and hears the other at once.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};

use takt_linux::clock::realtime_ns;
use takt_linux::process;
use takt_log::{Event, Sink};
use takt_model::{NodeId, Span, System, Time, file};
use takt_run::handlers::{Handlers, RunControl};
use takt_run::node::NodeNetwork;
use takt_run::{RunError, RunOptions, Trace, prepare_node};

const NODE: &str = "TAKT_TEST_NODE";

fn system() -> System {
    let node = |name: &str| {
        format!(
            "[[node]]\nname = \"{name}\"\nreceive = {{ period = \"10ms\", wcet = \"1ms\" }}\n\
             send = {{ period = \"10ms\", wcet = \"1ms\" }}\n"
        )
    };
    let text = format!(
        "takt = 1\n{}{}[[flow]]\nname = \"f\"\npath = [\"n0\", \"n1\"]\nperiod = \"20ms\"\nsend-gap = \"10ms\"\n\
         wcet = \"1ms\"\ndeadline = \"1s\"\nsize = \"200B\"\n[[network]]\ndelay = [\"0us\", \"5ms\"]\n",
        node("n0"),
        node("n1")
    );
    file::parse(&text, "f.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

struct Nothing;

impl Sink for Nothing {
    fn event(&mut self, _: u32, _: Time, _: &Event) {}
    fn wants_misses(&self) -> bool {
        false
    }
}

/// What a job of hop 0 sends.
fn bytes(number: u64) -> Vec<u8> {
    vec![number as u8; number as usize % 80]
}

fn network(addresses: &[SocketAddr], node: usize, start: u64) -> NodeNetwork {
    NodeNetwork {
        listen: Some(addresses[node]),
        peers: (0..2).filter(|of| *of != node).map(|of| (format!("n{of}"), addresses[of])).collect(),
        key: "7".repeat(64).parse().ok(),
        start,
        priority: 0,
        clocks: None,
    }
}

fn options(node: usize) -> RunOptions {
    RunOptions {
        node: Some(NodeId(node as u32)),
        best_effort: true,
        trace: Trace::Never,
        ..RunOptions::new(Span::from_s(60))
    }
}

/// The process of a node; nothing in the test's own process.
#[test]
fn node() {
    let Ok(of) = std::env::var(NODE) else { return };
    let mut of = of.split(' ');
    let node: usize = of.next().unwrap().parse().unwrap();
    let start: u64 = of.next().unwrap().parse().unwrap();
    let addresses: Vec<SocketAddr> = of.map(|address| address.parse().unwrap()).collect();
    let handlers = match node {
        0 => Handlers::new().on("f/0", |job| {
            assert_eq!((job.input, job.room()), (Some(&[][..]), 80));
            let times = job.times.unwrap();
            assert_eq!(times.arrival, Time::from_ns(job.number * 20_000_000));
            assert_eq!((times.release, times.deadline), (times.arrival, times.arrival + Span::from_ms(500)));
            assert!(job.hop == Some(0) && times.release <= job.now());
            job.send(&bytes(job.number)).unwrap();
            assert!(job.send(&[0; 81]).is_err());
        }),
        _ => Handlers::new().on("f/1", |job| {
            // The clocks of both nodes are one, so the arrival is exact.
            let arrival = Time::from_ns(job.number * 20_000_000);
            let came = job.input == Some(&bytes(job.number)[..])
                && job.room() == 0
                && job.hop == Some(1)
                && job.times.is_some_and(|times| {
                    times.arrival == arrival
                        && times.deadline == arrival + Span::from_s(1)
                        && (arrival..=job.now()).contains(&times.release)
                });
            // The harness of tests writes to the same stream.
            println!("\njob {} {came}", job.number);
        }),
    };
    let prepared = prepare_node(&system(), &options(node), &network(&addresses, node, start)).unwrap();
    let summary = prepared.open().unwrap().run_handled(&mut Nothing, &mut |_| {}, handlers).unwrap();
    println!("\nnotes {:?}", summary.notes);
}

/// A process, and the jobs that it tells of.
struct Node(Child, std::io::Lines<BufReader<ChildStdout>>);

impl Node {
    fn start(node: usize, start: u64, addresses: &[SocketAddr]) -> Node {
        let of = format!("{node} {start} {} {}", addresses[0], addresses[1]);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "node", "--nocapture"]).env(NODE, of).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Node(child, lines)
    }

    /// The numbers of so many jobs, each with the right bytes.
    fn jobs(&mut self, count: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.len() < count {
            let line = self.1.next().expect("the node goes on").unwrap();
            if let Some(job) = line.strip_prefix("job ") {
                let (number, came) = job.split_once(' ').unwrap();
                assert_eq!(came, "true", "job {number}");
                numbers.push(number.parse().unwrap());
            }
        }
        numbers
    }

    /// Ends it in order, and returns what it said at last.
    fn end(mut self) -> String {
        process::terminate(&mut self.0);
        let rest: Vec<String> = self.1.map_while(Result::ok).collect();
        assert!(self.0.wait().unwrap().success(), "{rest:?}");
        rest.join("\n")
    }
}

#[test]
fn bytes_go_from_handler_to_handler_and_a_node_comes_back_after_a_kill() {
    // An address of this process alone: nobody else takes its ports.
    let address = Ipv4Addr::from(0x7F00_0000 | (std::process::id() & 0x00FF_FFFF));
    let addresses = [20_001, 20_002].map(|port| SocketAddr::from((address, port)));
    let start = realtime_ns() + 300_000_000;
    let sender = Node::start(0, start, &addresses);
    let mut first = Node::start(1, start, &addresses);
    let before = first.jobs(3);
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    let mut second = Node::start(1, start, &addresses);
    let after = second.jobs(3);
    assert!(before.is_sorted() && after.is_sorted() && before.last() < after.first(), "{before:?} {after:?}");
    assert!(second.end().contains("this node came to a run that had begun"));
    let _ = sender.end();
}

#[test]
fn a_handler_without_jobs_is_refused() {
    let addresses = [SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from(([127, 0, 0, 1], 9))];
    for task in ["f/1", "n0/send", "nobody"] {
        let network = network(&addresses, 0, realtime_ns() + 1_000_000_000);
        let ready = prepare_node(&system(), &options(0), &network).unwrap().open().unwrap();
        let refused = ready.run_handled(&mut Nothing, &mut |_| {}, Handlers::new().on(task, |_| {})).unwrap_err();
        assert!(matches!(refused, RunError::NoHandled { .. }) && refused.exit_code() == 2, "{refused}");
    }
}

#[test]
fn a_handler_ends_the_run_and_the_counts_stay() {
    let addresses = [SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from(([127, 0, 0, 1], 9))];
    let network = network(&addresses, 0, realtime_ns() + 100_000_000);
    let ending = RunControl::new();
    assert_eq!(ending.counts(), None);
    let of_handler = ending.clone();
    let handlers = Handlers::new().on("f/0", move |job| {
        // A node that comes late leaves jobs out.
        if job.number >= 3 {
            of_handler.stop();
        }
    });
    let ready = prepare_node(&system(), &options(0), &network).unwrap().open().unwrap();
    let summary = ready.run_handled(&mut Nothing, &mut |_| {}, handlers.with_control(&ending)).unwrap();
    assert!(summary.end < Time::from_ns(60_000_000_000) && summary.interrupted.is_none(), "{summary:?}");
    assert_eq!(ending.counts(), Some(summary.flows.unwrap().counts));
}
