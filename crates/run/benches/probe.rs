//! The prober beside sockperf: round trips of messages of 64 bytes through the same cable, in turns.
//!
//! `--seconds N` measures each for that long in each of five rounds. Without sockperf (a Debian
//! package), the prober alone is measured.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::clock::pause;
use takt_linux::net::Cable;
use takt_linux::outgoing::Transport;
use takt_linux::process::KillOnDrop;
use takt_model::Span;
use takt_net::probe::Pace;
use takt_run::probe::{Figures, ProbeServer, ProbeServerSpec, ProbeSpec, percentiles, probe};

const ROUNDS: usize = 5;

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--seconds").skip(1);
    let seconds: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2);
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("skipped: {error}"),
    };
    for transport in [Transport::Datagram, Transport::Stream] {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let listen = (cable.right().address(), 7462).into();
            let spec = ProbeServerSpec { priority: 0, ..ProbeServerSpec::new(listen) };
            let server = cable
                .right()
                .run(|| ProbeServer::bind(&spec).expect("an address of the cable"))
                .expect("a namespace of the cable");
            scope.spawn(|| server.serve(&|| over.load(Ordering::Acquire)));
            let other =
                cable.right().run(|| sockperf(&cable, transport, &["server"])).expect("a namespace of the cable");
            pause(Span::from_ms(500));
            let (mut ours, mut others) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(cable.left().run(|| own(&cable, transport, seconds)).expect("a namespace of the cable"));
                if other.is_some() {
                    others.extend(
                        cable.left().run(|| theirs(&cable, transport, seconds)).expect("a namespace of the cable"),
                    );
                }
            }
            print_result(transport, ours, others);
            over.store(true, Ordering::Release);
        });
    }
}

/// The p50 and p99 of the prober's round trips in microseconds.
fn own(cable: &Cable, transport: Transport, seconds: u64) -> [f64; 2] {
    let spec = ProbeSpec {
        transport,
        is_closed: true,
        duration: Span::from_s(seconds),
        priority: 0,
        clocks: None,
        ..ProbeSpec::new(vec![(cable.right().address(), 7462).into()], Pace::Max)
    };
    let outcome = probe(&spec, &|| false, &mut |_| {}).expect("a server at the cable");
    let figures = Figures::of(&outcome.messages, 0);
    let [p50, _, p99, ..] = percentiles(&figures.round_trip).expect("round trips");
    [p50, p99].map(|ns| ns as f64 / 1000.0)
}

fn sockperf(cable: &Cable, transport: Transport, arguments: &[&str]) -> Option<KillOnDrop> {
    let mut command = Command::new("sockperf");
    command.args(arguments).args(["-i", &cable.right().address().to_string(), "-p", "11111"]);
    command.args((transport == Transport::Stream).then_some("--tcp"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().ok().map(KillOnDrop)
}

/// The same of sockperf.
fn theirs(cable: &Cable, transport: Transport, seconds: u64) -> Option<[f64; 2]> {
    let seconds = seconds.to_string();
    let mut child = sockperf(cable, transport, &["ping-pong", "-m", "64", "--full-rtt", "-t", &seconds])?;
    let mut text = String::new();
    std::io::Read::read_to_string(child.0.stdout.as_mut()?, &mut text).ok()?;
    let percentile = |name: &str| {
        let line = text.lines().find(|line| line.contains(&format!("percentile {name}")))?;
        line.rsplit('=').next()?.trim().trim_end_matches("\u{1b}[0m").trim().parse::<f64>().ok()
    };
    Some([percentile("50.000")?, percentile("99.000")?])
}

/// The medians of the rounds.
fn print_result(transport: Transport, ours: Vec<[f64; 2]>, others: Vec<[f64; 2]>) {
    let median = |of: &[[f64; 2]], place: usize| {
        let mut values: Vec<f64> = of.iter().map(|round| round[place]).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let (Some(p50), Some(p99)) = (median(&ours, 0), median(&ours, 1)) else { return };
    print!("{transport:?}: takt net probe ping-pong p50 {p50:.1} us, p99 {p99:.1} us");
    match (median(&others, 0), median(&others, 1)) {
        (Some(other), Some(other99)) => {
            println!("; sockperf {other:.1} us, {other99:.1} us; {:.2} and {:.2} times", p50 / other, p99 / other99)
        }
        _ => println!("; sockperf is not installed"),
    }
}
