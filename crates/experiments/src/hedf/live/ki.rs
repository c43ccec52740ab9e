//! [HEDF IV-C] on this kernel: nodes under `takt run --node` in network namespaces, and a relay that
//! delays their messages.

use serde_json::Value;
use takt_analysis::{CheckOptions, TestId, check};
use takt_linux::net::Bridge;
use takt_model::Span;

use super::super::ki::{LEAST, bounds_of};
use super::super::rounded;
use super::super::setups::{self, NODES, Setup, parse};
use super::nodes::{LIVE_LEAST, NodesRun, RunNode, bridge};
use super::relay::{Delay, Relayed};
use super::requests::{self, Requests};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Findings, LIVE, PAPER, Row, SIMULATED};

/// The paper adds this to the delays of node 0.
const ADDED: (Span, Span) = (Span::from_ms(5), Span::from_ms(15));
/// Of the receiving tasks, and between messages.
const PERIOD: Span = Span::from_ms(10);
const GAP: Span = Span::from_ms(5);
/// The relay shifts messages by up to a period of the receiving task, and back. The step is between
/// neighbouring messages. So all phases come by, although clocks of one computer do not drift.
const SHIFT: (Span, Span) = (Span::from_ms(10), Span::from_us(100));

/// Those of the paper. Its local task needs 50 ms of 60, and with the flow 97 % of a CPU. Linux gives
/// real-time threads 95 %.
fn set_ups() -> [Setup; 3] {
    setups::setups().map(|setup| Setup { text: setup.text.replace(LOCAL[0], LOCAL[1]), ..setup })
}

/// The local task's WCET in the paper and here.
const LOCAL: [&str; 2] = ["wcet = \"50ms\"", "wcet = \"45ms\""];

struct Hop {
    name: &'static str,
    paper: Option<f64>,
    observed: Option<f64>,
    equation: Option<u64>,
    bound: Option<u64>,
    simulated: u64,
    live: Option<u64>,
    /// k by Eq. 5 if delays vary, beside the drawn ones, by all lateness that was measured.
    excused: u64,
}

struct KiRun {
    hops: Vec<Hop>,
    relayed: Relayed,
    sent: u64,
    arrived: u64,
    disturbances: Vec<String>,
}

pub(in super::super) fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let duration = context.duration(Span::from_s(60), Span::from_s(5));
    let bridge = bridge()?;
    let mut findings = Findings::default();
    let (mut all, mut requests) = (Vec::new(), None);
    let bar = (context.host.bar)("set-ups", set_ups().len() as u64 + 1);
    for (number, setup) in set_ups().iter().enumerate() {
        if context.stopped() {
            break;
        }
        let delay = if number == 0 { Delay::shifting(SHIFT) } else { Delay::drawn(ADDED, context.seed) };
        let ran = run(context, &bridge, setup, delay, duration, &mut findings)?;
        all.extend(ran);
        bar.inc(1);
    }
    if !context.stopped() {
        requests = requests::run(context, &bridge, duration, &mut findings)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(requests) = requests.as_ref().filter(|_| !context.stopped()) {
        findings.tables.push(table(&all));
        findings.tables.push(relays(&all, requests));
        findings.tables.push(requests.table());
        claims(&all, duration, &mut findings);
        requests.claim(&mut findings);
    }
    notes(&all, &mut findings);
    findings.notes.extend(requests.as_ref().map(Requests::note));
    differences(&mut findings);
    Ok(findings)
}

/// The nodes of a set-up, in the order of its path.
fn path(setup: &Setup) -> Result<Vec<usize>, Failure> {
    let system = parse(&setup.text, setup.file)?;
    let names = system.flows[0].hops().map(|node| system.nodes[node.index()].name.clone());
    let numbers = names.map(|name| name.trim_start_matches('n').parse::<usize>().ok());
    numbers.collect::<Option<Vec<_>>>().ok_or_else(|| Failure::trouble("a node without a number"))
}

/// All eight nodes. Messages of the first hop go over the relay. Node 0 has a CPU of its own, as its local task needs
/// most of one.
fn nodes(path: &[usize]) -> Vec<RunNode> {
    let node = |number: usize| {
        let place = path.iter().position(|node| *node == number);
        let next = place.and_then(|place| path.get(place + 1));
        let first_cpu = place == Some(0);
        let peers = next.map(|next| (*next, first_cpu.then_some(0)));
        RunNode { number, first_cpu, peers: peers.into_iter().collect(), logs: place.is_some() }
    };
    (0..NODES).map(node).collect()
}

fn run(
    context: &Context,
    bridge: &Bridge,
    setup: &Setup,
    delay: Delay,
    duration: Span,
    findings: &mut Findings,
) -> Result<Option<KiRun>, Failure> {
    context.write(setup.file, setup.on_all_nodes().as_bytes())?;
    findings.files.push(setup.file.to_owned());
    let path = path(setup)?;
    let range = delay.range();
    let run = NodesRun { file: setup.file, nodes: nodes(&path), relays: vec![(path[1], delay)], duration };
    let ran = run.run(context, bridge)?;
    findings.files.extend(run.logs(context));
    let Some(ran) = ran else { return Ok(None) };
    let answers: Vec<&Value> = path.iter().filter_map(|node| ran.answers.get(*node)).collect();
    let relayed = ran.relayed.first().copied().unwrap_or_default();
    report(context, setup, &answers, (range, relayed)).map(Some)
}

fn report(
    context: &Context,
    setup: &Setup,
    answers: &[&Value],
    (range, relayed): (Span, Relayed),
) -> Result<KiRun, Failure> {
    let system = parse(&setup.text, setup.file)?;
    let checked = check(&system, &CheckOptions { all: true, ..CheckOptions::default() });
    let simulated = super::super::batches::run(&system, context.seed, LEAST)?;
    let sum = |key: &str| answers.iter().filter_map(|answer| answer["flows"][key].as_u64()).sum::<u64>();
    let late = |node: u32, key: &str| {
        answers.get(node as usize).and_then(|answer| answer["flows"][key].as_u64()).map_or(Span::ZERO, Span::from_ns)
    };
    let hop = |(number, (name, paper, observed)): (u32, (&'static str, Option<f64>, Option<f64>))| {
        let hops = answers.get(number as usize).and_then(|answer| answer["flows"]["hops"].as_array());
        let hop = hops.and_then(|hops| hops.iter().find(|hop| hop["hop"] == number));
        let sender = late(number.saturating_sub(1), "send_late_max_ns");
        let varied = [relayed.late, sender, late(number, "receive_late_max_ns")];
        Hop {
            name,
            paper,
            observed,
            equation: bounds_of(&checked, TestId::PartialEdfPaper, "put", number),
            bound: bounds_of(&checked, TestId::PartialEdf, "put", number),
            simulated: simulated.most(0, number),
            live: hop.and_then(taken),
            excused: equation(varied.into_iter().fold(range, Span::saturating_add)),
        }
    };
    let told = answers.iter().filter_map(|answer| answer["flows"]["disturbances"].as_array()).flatten();
    Ok(KiRun {
        hops: (1..).zip(setup.hops.iter().copied()).map(hop).collect(),
        relayed,
        sent: sum("sent"),
        arrived: sum("arrived"),
        disturbances: told.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

/// k of a hop. If no message came, nothing was measured.
fn taken(hop: &Value) -> Option<u64> {
    hop["messages"].as_u64().filter(|most| *most > 0)
}

/// [HEDF Eq. 5] for the paper's periods, where delays vary by this.
fn equation(varied: Span) -> u64 {
    1 + PERIOD.saturating_add(varied).as_ns() / GAP.as_ns()
}

fn table(all: &[KiRun]) -> Comparison {
    let value = |value: Option<u64>| value.map(|value| value as f64);
    let row = |hop: &Hop| Row {
        name: hop.name.to_owned(),
        values: vec![
            vec![hop.paper, None, hop.observed],
            vec![value(hop.equation), value(hop.bound), Some(hop.simulated as f64)],
            vec![None, None, value(hop.live)],
        ],
    };
    Comparison::new(
        "Messages that one receiving job takes at most on this kernel",
        "Section IV-C",
        "k, the messages of one flow",
        0,
    )
    .with(
        "set-up",
        ["Eq. 5", "proven", "observed"],
        [PAPER, SIMULATED, LIVE],
        all.iter().flat_map(|ran| &ran.hops).map(row),
    )
}

fn relays(all: &[KiRun], requests: &Requests) -> Comparison {
    let ms = |span: Span| Some(span.as_ns() as f64 / 1e6);
    let each = all.iter().map(|ran| (ran.hops.first().map_or("", |hop| hop.name), ran.relayed));
    let row = |(name, relayed): (&str, Relayed)| {
        let Relayed { passed, least, most, late, late_mean, .. } = relayed;
        let values = vec![Some(passed as f64), ms(least), ms(most), ms(late_mean), ms(late)];
        Row { name: name.to_owned(), values: vec![values] }
    };
    Comparison::new("The relays that delay messages", "Section IV-C", "messages, and ms", 3).with(
        "set-up",
        ["messages", "least", "largest", "mean error", "largest error"],
        [LIVE],
        each.chain([(requests::NAME, requests.relayed)]).map(row),
    )
}

/// Reached, or not yet, or passed. What the measured lateness explains refutes nothing.
fn reached(hop: &Hop, wanted: u64, most: u64, duration: Span) -> Option<bool> {
    let found = hop.live?;
    if found > most {
        return (found > hop.excused).then_some(false);
    }
    if found >= wanted { Some(true) } else { (duration >= LIVE_LEAST).then_some(false) }
}

/// Whether a hop keeps its bound, or that for the lateness that was measured.
fn kept(hop: &Hop) -> Option<bool> {
    hop.live.zip(hop.bound).map(|(live, bound)| live <= bound.max(hop.excused))
}

fn claims(all: &[KiRun], duration: Span, findings: &mut Findings) {
    let hops: Vec<&Hop> = all.iter().flat_map(|ran| &ran.hops).collect();
    let [near, delayed, second, third] = hops[..] else { return };
    let told = |value: Option<u64>| value.map_or("nothing".to_owned(), |value| value.to_string());
    let waited = |hop: &Hop, most: u64| {
        let late = hop.live.is_some_and(|live| live > most);
        let excuse = format!("; with the lateness that was measured Eq. 5 allows {}", hop.excused);
        let excuse = if late { excuse } else { String::new() };
        format!("Eq. 5 says {}, and {} waited{excuse}", told(hop.equation), told(hop.live))
    };
    findings.claim(
        "live_three_messages_wait_at_small_delays",
        "On this kernel, with small delays, at most 3 messages wait at once, as Eq. 5 says",
        waited(near, 3),
        reached(near, 3, 3, duration),
    );
    findings.claim(
        "live_five_are_the_bound_at_large_delays",
        "On this kernel, with 10 +- 5 ms added, at most the 5 messages of Eq. 5 wait; 4 were observed in the paper",
        waited(delayed, 5),
        reached(delayed, 4, 5, duration),
    );
    let same = second.live.zip(third.live).zip(delayed.live);
    findings.claim(
        "live_a_longer_way_changes_little",
        "On this kernel, over nodes 0, 3 and 4 as many messages wait at node 3 as over nodes 0 and 1, but for one, and \
         no more at node 4",
        format!("{} at node 3 and {} at node 4, {} at node 1", told(second.live), told(third.live), told(delayed.live)),
        same.and_then(|((one, two), three)| {
            let alike = one.abs_diff(three) <= 1 && two <= one.max(three);
            if alike { Some(true) } else { (duration >= LIVE_LEAST).then_some(false) }
        }),
    );
    findings.claim(
        "live_k_keeps_its_bound",
        "On this kernel no receiving job takes more messages than partial-edf proves, or than Eq. 5 says with the \
         lateness that was measured",
        hops.iter()
            .map(|hop| format!("{}: {} of {}", hop.name, told(hop.live), told(hop.bound)))
            .collect::<Vec<_>>()
            .join("; "),
        crate::findings::all(hops.iter().map(|hop| kept(hop))),
    );
}

fn notes(all: &[KiRun], findings: &mut Findings) {
    for ran in all {
        let name = ran.hops.first().map_or("", |hop| hop.name);
        let (lost, refused) = (ran.relayed.lost, ran.relayed.refused);
        let mut note = format!(
            "{name}: {} messages sent and {} arrived at nodes. The relay held each {} longer than drawn at most, lost \
             {lost} and could not send {refused}.",
            ran.sent,
            ran.arrived,
            rounded(ran.relayed.late)
        );
        if !ran.disturbances.is_empty() {
            note.push_str(&format!(" Disturbed: {}.", ran.disturbances.join("; ")));
        }
        findings.notes.push(note);
    }
}

fn differences(findings: &mut Findings) {
    findings.differ([
        "The paper ran its storage system on eight computers. Here eight nodes under takt run --node are in network \
         namespaces of one computer, at one bridge. Nodes without a part in the flow run their receiving and sending \
         tasks.",
        "In the first three set-ups node 0 has a CPU of its own, since its local task needs most of one. The others \
         share the second.",
        "Its local task takes 45 ms of 60 here, 50 ms in the paper: with the flow that would be 97 % of a CPU, and \
         Linux gives real-time threads 95 %.",
        "Clocks of one computer do not drift. In the first set-up a relay shifts messages slowly, by up to 10 ms and \
         back, so that all phases of the table tasks come by. In the last one a relay does so between all neighbours.",
        "The paper adds 10 +- 5 ms by a traffic control utility. This kernel has no netem. Here a relay in user space \
         holds each message for a drawn time, in order, and its error is in a table.",
        "In the last set-up a job of a flow takes 0.1 ms. The paper does not say how long it takes. In the simulation \
         it takes 1 ms, for which eight nodes would need more than two CPUs.",
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(live: Option<u64>, late: u64) -> Hop {
        Hop {
            name: "",
            paper: None,
            observed: None,
            equation: None,
            bound: Some(3),
            simulated: 0,
            live,
            excused: equation(Span::from_ms(late)),
        }
    }

    #[test]
    fn only_what_lateness_does_not_explain_is_refuted() {
        let [short, long] = [Span::from_s(5), LIVE_LEAST];
        assert_eq!([0, 4, 5].map(|late| equation(Span::from_ms(late))), [3, 3, 4]);
        let of = |live, late, duration| reached(&hop(live, late), 3, 3, duration);
        assert_eq!([of(Some(2), 0, short), of(Some(2), 0, long), of(None, 0, long)], [None, Some(false), None]);
        assert_eq!(
            [of(Some(3), 0, short), of(Some(4), 4, short), of(Some(4), 5, long)],
            [Some(true), Some(false), None]
        );
    }

    #[test]
    fn a_bound_is_kept_up_to_the_lateness_that_was_measured() {
        assert_eq!([3, 4, 50].map(|live| kept(&hop(Some(live), 0))), [Some(true), Some(false), Some(false)]);
        assert_eq!([4, 50].map(|live| kept(&hop(Some(live), 5))), [Some(true), Some(false)]);
        assert_eq!(kept(&hop(None, 0)), None);
    }

    #[test]
    fn set_ups_have_numbered_nodes() {
        let paths = set_ups().map(|setup| path(&setup).map_err(|failure| failure.message).unwrap());
        assert!(set_ups().iter().all(|setup| setup.text.contains(LOCAL[1])));
        assert_eq!(paths, [vec![0, 1], vec![0, 1], vec![0, 3, 4]]);
        let peers: Vec<_> = nodes(&paths[2]).into_iter().map(|node| node.peers).collect();
        assert_eq!((peers.len(), &peers[0], &peers[3]), (NODES, &vec![(3, Some(0))], &vec![(4, None)]));
        assert_eq!(peers.iter().filter(|peers| !peers.is_empty()).count(), 2);
    }

    #[test]
    fn further_nodes_change_no_bound() {
        for setup in set_ups() {
            let of = |text: &str| {
                let system = parse(text, setup.file).map_err(|failure| failure.message).unwrap();
                let report = check(&system, &CheckOptions { all: true, ..CheckOptions::default() });
                let tests = [TestId::PartialEdfPaper, TestId::PartialEdf];
                let of_hop = |hop: u32| tests.map(|test| bounds_of(&report, test, "put", hop));
                (system.nodes.len(), (1..=setup.hops.len() as u32).map(of_hop).collect::<Vec<_>>())
            };
            let (few, all) = (of(&setup.text), of(&setup.on_all_nodes()));
            assert!(few.0 < NODES && all.0 == NODES, "{few:?} {all:?}");
            assert!(few.1 == all.1 && few.1.iter().all(|[_, proven]| proven.is_some()), "{few:?} {all:?}");
        }
    }
}
