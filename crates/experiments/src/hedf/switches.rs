//! An open question of [HEDF VI]: the delays of messages through several switches, with and without
//! shares of the bandwidth.
//!
//! Four nodes send to a fifth through a row of switches. The line between two switches also carries
//! bursts of others. The bounds of delays are those of `takt size --network-delay`.

use std::collections::BTreeMap;

use takt_analysis::distributed::network::size_network;
use takt_analysis::distributed::shares::Weigh;
use takt_log::stats::Histogram;
use takt_log::{Event, JobKey, Sink};
use takt_model::{
    Auto, Bucket, Builtin, Bytes, Clock, Cross, Flow, Link, Network, NodeId, NodeSpec, Port, PortId, Rate, Span,
    StrategyRef, System, TableTask, Time, named,
};
use takt_report::{Figure, Form, Series};
use takt_sim::{SimOptions, simulate};

use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Drawn, Findings, Row, SIMULATED, ms};

const SWITCHES: u32 = 6;
/// The nodes that send, and the flows of each.
const SENDERS: u32 = 4;
const FLOWS: u32 = 8;
const LINE: Rate = Rate::from_bps(100_000_000);
/// The size of a message, with all headers.
const MESSAGE: Bytes = Bytes::new(1_400);
/// The traffic of others between two switches.
const CROSS: Cross = Cross { burst: Bytes::new(15_000), rate: Rate::from_bps(40_000_000) };
/// Larger bounds are errors.
const BOUND_MAX: Span = Span::from_s(1);
/// Shorter runs decide nothing: phases of nodes wander slowly.
const DURATION_MIN_S: u64 = 20;

named! {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Control {
        /// The whole link.
        None => "whole links",
        /// A token bucket for each sender, with its fair share of the lines between switches.
        Shares => "shares",
    }
}

impl Control {
    fn bucket(self) -> Bucket {
        match self {
            // Whatever waits may leave at once.
            Control::None => Bucket { burst: Bytes::new(100_000), rate: LINE },
            Control::Shares => {
                let rate = (LINE.as_bps() - CROSS.rate.as_bps()) / u64::from(SENDERS);
                Bucket { burst: Bytes::new(2 * MESSAGE.get()), rate: Rate::from_bps(rate) }
            }
        }
    }
}

struct Outcome {
    bound: Span,
    seen: Histogram,
}

impl Outcome {
    fn most(&self) -> Option<u64> {
        self.seen.summary().map(|all| all.max)
    }

    fn spread(&self) -> Option<u64> {
        Some(self.seen.percentile(99)?.saturating_sub(self.seen.percentile(1)?))
    }
}

/// Senders, a receiver, and so many switches between them.
fn system(switches: u32) -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    let table = Some(TableTask { period: Span::from_ms(5), wcet: Span::from_ms(2), cost: Some(Span::from_us(20)) });
    let link = Some(Link { edf: true, ..Link::at(LINE) });
    let node = |i: u32| {
        let node = NodeSpec::new(&format!("n{i}"), 1, StrategyRef::Builtin(Builtin::Edf));
        NodeSpec { link, receive: table, send: table, ..node }
    };
    system.nodes = (0..=SENDERS).map(node).collect();
    let port =
        |name: String, cross: Option<Cross>| Port { name, rate: LINE, latency: Span::from_us(10), cross, fifo: true };
    system.ports = (1..switches).map(|i| port(format!("line{i}"), Some(CROSS))).collect();
    system.ports.push(port(format!("to-n{SENDERS}"), None));
    let through = (0..switches).map(PortId).collect();
    system.networks.push(Network { delay: Auto::Auto, through, ..Network::any(Span::ZERO, Span::ZERO) });
    for from in 0..SENDERS {
        for number in 0..FLOWS {
            system.flows.push(Flow {
                name: format!("flow{from}-{number}"),
                path: vec![NodeId(from), NodeId(SENDERS)],
                reply: false,
                period: Span::from_ms([20, 25, 40, 50][number as usize % 4]),
                wcet: Span::from_us(50),
                deadline: Span::from_ms(100),
                send_gap: Span::from_ms(10),
                hop_wcet: Span::from_us(50),
                size: MESSAGE,
                hop_deadlines: Vec::new(),
            });
        }
    }
    // Phases wander, as they do between computers.
    system.clock = Clock { drift_ppm: 100, ..Clock::default() };
    system
}

/// The System under a kind of control, and the bound of its delays.
fn with_buckets(mut system: System, control: Control) -> Result<(System, Span), Failure> {
    for link in system.nodes.iter_mut().filter_map(|node| node.link.as_mut()) {
        link.bucket = Some(control.bucket());
    }
    let found = size_network(&system, Weigh::Bytes, BOUND_MAX).map_err(|error| Failure::trouble(&error))?;
    let bound = found.delays.iter().map(|delay| delay.delay).max().unwrap_or_default();
    Ok((system, bound))
}

/// Counts the delays from the end of a sending task's job to the receiver.
#[derive(Default)]
struct Delays {
    sent: BTreeMap<(JobKey, u64), Time>,
    seen: Histogram,
}

impl Sink for Delays {
    fn event(&mut self, _: u32, now: Time, event: &Event) {
        match *event {
            Event::Send { job, message } => {
                self.sent.insert((job, message), now);
            }
            Event::Arrive { job, message } => {
                if let Some(sent) = self.sent.remove(&(job, message)) {
                    self.seen.record(now.saturating_since(sent).as_ns());
                }
            }
            _ => {}
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

fn run(switches: u32, control: Control, seed: u64, duration: Span) -> Result<Outcome, Failure> {
    let (system, bound) = with_buckets(system(switches), control)?;
    let mut delays = Delays::default();
    simulate(&system, &SimOptions { duration, seed, node: None }, &mut delays)
        .map_err(|error| Failure::trouble(&error))?;
    Ok(Outcome { bound, seen: delays.seen })
}

pub(super) fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let duration = context.duration(Span::from_s(120), Span::from_s(2));
    let bar = (context.host.bar)("simulating", u64::from(SWITCHES) * Control::ALL.len() as u64);
    let mut rows: Vec<[Outcome; 2]> = Vec::new();
    for switches in 1..=SWITCHES {
        if context.stopped() {
            break;
        }
        let of = |control| {
            bar.inc(1);
            run(switches, control, context.seed, duration)
        };
        rows.push([of(Control::None)?, of(Control::Shares)?]);
    }
    bar.finish_and_clear();
    let mut findings = Findings::default();
    findings.tables.push(table(&rows));
    findings.figures.push(figure(&rows));
    claims(&rows, duration, &mut findings);
    findings.differences = vec![
        "The paper measures one switch and plans more. All values are simulated here.".to_owned(),
        format!(
            "{SENDERS} nodes with {FLOWS} flows each send messages of {MESSAGE} to one node. A line between two \
             switches carries {} of others besides, in bursts of {}. All lines have {LINE}.",
            CROSS.rate, CROSS.burst
        ),
        "Shares narrow delays where requests fill a line of the switch (hedf-fig5). Here lines are not full: flows and \
         others need at most 76 % of each. So a share only moves the wait to the sender."
            .to_owned(),
        "A share is a token bucket for two messages, at a quarter of what others leave of a line between switches. \
         Switches serve in the order of arrival."
            .to_owned(),
    ];
    Ok(findings)
}

fn table(rows: &[[Outcome; 2]]) -> Comparison {
    let values = |of: &Outcome| [Some(ms(of.bound.as_ns())), of.most().map(ms), of.spread().map(ms)];
    let heads = |control: Control| ["bound", "longest", "p99 - p1"].map(|what| format!("{what}, {}", control.name()));
    let row = |(i, row): (usize, &[Outcome; 2])| Row {
        name: (i + 1).to_string(),
        values: vec![row.iter().flat_map(values).collect()],
    };
    Comparison::new("Delays of messages", "Section VI", "ms, from the sending task to the receiver", 3).with(
        "switches",
        Control::ALL.into_iter().flat_map(heads),
        [SIMULATED],
        rows.iter().enumerate().map(row),
    )
}

fn figure(rows: &[[Outcome; 2]]) -> Drawn {
    let mut series = Vec::new();
    for (i, control) in Control::ALL.into_iter().enumerate() {
        let line = |what: &str, colour: usize, value: &dyn Fn(&Outcome) -> Option<u64>| Series {
            name: format!("{}, {what}", control.name()),
            points: (1..).zip(rows).filter_map(|(k, row)| Some((f64::from(k), ms(value(&row[i])?)))).collect(),
            form: Form::Line,
            colour,
        };
        series.push(line("bound", 2 * i, &|of| Some(of.bound.as_ns())));
        series.push(line("longest", 2 * i + 1, &Outcome::most));
    }
    let title = "Delays through switches in a row";
    let figure = Figure::new(title, "switches", "delay, ms", series);
    Drawn::of("delays-by-switches.svg", &figure, title, "What is proven, and the longest that was simulated.")
}

fn claims(rows: &[[Outcome; 2]], duration: Span, findings: &mut Findings) {
    let whole = rows.len() == SWITCHES as usize;
    let seconds = duration.as_ns() / Span::from_s(1).as_ns();
    let told = |control: Control, value: &dyn Fn(&Outcome) -> Option<u64>| {
        let all =
            rows.iter().map(|row| value(&row[control as usize]).map_or("-".to_owned(), |ns| format!("{:.2}", ms(ns))));
        format!("{}: {} ms", control.name(), all.collect::<Vec<_>>().join(", "))
    };
    let both = |value: &dyn Fn(&Outcome) -> Option<u64>| {
        format!("{}; {}", told(Control::None, value), told(Control::Shares, value))
    };
    let mut add = |name, claim: &str, found: String, holds: bool| {
        findings.claim(name, claim, found, whole.then_some(holds)).needs(seconds, DURATION_MIN_S, "seconds");
    };
    let within = |of: &Outcome| of.most().is_some_and(|most| most <= of.bound.as_ns());
    add(
        "bounds_hold",
        "No message takes longer than takt size proves",
        format!("longest: {}", both(&Outcome::most)),
        rows.iter().flatten().all(within),
    );
    let narrower = |row: &[Outcome; 2]| row[1].spread().zip(row[0].spread()).is_some_and(|(own, other)| own < other);
    add(
        "shares_narrow_delays",
        "With shares the delays spread less than with whole links, through each number of switches (p99 - p1)",
        both(&Outcome::spread),
        rows.iter().all(narrower),
    );
}
