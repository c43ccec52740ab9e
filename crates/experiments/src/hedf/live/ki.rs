//! [HEDF IV-C] on this kernel: nodes under `takt run --node` in network namespaces, and a relay that
//! delays their messages.

use serde_json::Value;
use takt_analysis::{CheckOptions, TestId, check};
use takt_linux::net::Bridge;
use takt_model::Span;

use super::super::ki::{LEAST, bounds_of};
use super::super::rounded;
use super::super::setups::{self, NODES, Setup, parse};
use super::measured::{Measured, beside_bounds, count, figure, kept, number_or_nothing, taken};
use super::nodes::{LIVE_LEAST, NodesRan, NodesRun, RunNode, bridge};
use super::relay::{Delay, Relayed};
use super::requests::{self, Requests};
use super::ways::Delays;
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Findings, LIVE, PAPER, Row, SIMULATED};

/// The paper adds this to the delays of node 0.
const ADDED: (Span, Span) = (Span::from_ms(5), Span::from_ms(15));
/// The relay shifts messages by up to a period of the receiving task, and back. The step is between
/// neighbouring messages. So all phases come by, although clocks of one computer do not drift.
const SHIFT: (Span, Span) = (Span::from_ms(10), Span::from_us(100));

/// Those of the paper. Its local task needs 50 ms of 60, and with the flow 97 % of a CPU. Linux gives
/// real-time threads 95 %.
pub(super) fn set_ups() -> [Setup; 3] {
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
    measured: HopMeasured,
}

/// Measurements of a hop, and its bounds for the measured costs and delays.
#[derive(Clone, Default)]
struct HopMeasured {
    /// The bound of k.
    messages: Option<u64>,
    /// The longest response, and its bound.
    response: Option<Span>,
    response_bound: Option<Span>,
    delay: Option<(Span, Span)>,
    /// Costs and delays in words.
    disturbance: String,
    /// CPU time that the hypervisor took. No bound knows of it.
    steal: Span,
}

struct KiRun {
    hops: Vec<Hop>,
    relayed: Relayed,
    sent: u64,
    arrived: u64,
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
        findings.tables.push(responses(&all, requests));
        claims(&all, requests, duration, &mut findings);
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
    let path = path(setup)?;
    let relays = vec![(path[1], delay.clone())];
    let run = NodesRun { file: setup.file, text: setup.on_all_nodes(), nodes: nodes(&path), relays, duration };
    let Some(ran) = run.run(context, bridge, findings)? else { return Ok(None) };
    report(context, setup, (&path[..], &ran), &delay).map(Some)
}

fn report(
    context: &Context,
    setup: &Setup,
    (path, ran): (&[usize], &NodesRan),
    delay: &Delay,
) -> Result<KiRun, Failure> {
    let answers: Vec<&Value> = path.iter().filter_map(|node| ran.answers.get(*node)).collect();
    let relayed = ran.relayed.first().copied().unwrap_or_default();
    let system = parse(&setup.text, setup.file)?;
    let checked = check(&system, &CheckOptions { all: true, ..CheckOptions::default() });
    let simulated = super::super::batches::run(&system, context.seed, LEAST)?;
    let live = parse(&setup.on_all_nodes(), setup.file)?;
    // The relay numbers messages as they are sent, unless it loses some.
    let shifted = |hop: u32, delays: &Delays| {
        let step = delay.step().filter(|_| hop == 1 && relayed.lost + relayed.refused == 0)?;
        Some((delays.varied(|number| delay.of(number))?, step))
    };
    let of_nodes = live.flows[0].hops().zip(answers.iter().copied());
    let measured = Measured::new(&live, of_nodes, &ran.ways, shifted);
    let proven = measured.checked();
    let sum = |key: &str| answers.iter().map(|answer| count(answer, key)).sum::<u64>();
    let hop = |(number, (name, paper, observed)): (u32, (&'static str, Option<f64>, Option<f64>))| {
        let answer = answers.get(number as usize);
        let response = answer.and_then(|answer| figure(answer, "put", number, "response_max_ns"));
        Hop {
            name,
            paper,
            observed,
            equation: bounds_of(&checked, TestId::PartialEdfPaper, "put", number),
            bound: bounds_of(&checked, TestId::PartialEdf, "put", number),
            simulated: simulated.most(0, number),
            live: answer.and_then(|answer| taken(answer, "put", number)),
            measured: HopMeasured {
                messages: measured.messages(0, number),
                response: response.map(Span::from_ns),
                response_bound: proven.hop_bound("put", number),
                delay: measured.delay(0, number),
                disturbance: measured.disturbance(0, number),
                steal: measured.steal(),
            },
        }
    };
    Ok(KiRun {
        hops: (1..).zip(setup.hops.iter().copied()).map(hop).collect(),
        relayed,
        sent: sum("sent"),
        arrived: sum("arrived"),
    })
}

fn table(all: &[KiRun]) -> Comparison {
    let value = |value: Option<u64>| value.map(|value| value as f64);
    let row = |hop: &Hop| Row {
        name: hop.name.to_owned(),
        values: vec![
            vec![hop.paper, None, hop.observed],
            vec![value(hop.equation), value(hop.bound), Some(hop.simulated as f64)],
            vec![None, value(hop.measured.messages), value(hop.live)],
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

/// Responses of the hops that receive, and how long messages to them were under way.
fn responses(all: &[KiRun], requests: &Requests) -> Comparison {
    let ms = |span: Option<Span>| span.map(|span| span.as_ns() as f64 / 1e6);
    let values = |response: Option<Span>, bound: Option<Span>, delay: Option<(Span, Span)>| {
        vec![ms(response), ms(bound), ms(delay.map(|delay| delay.0)), ms(delay.map(|delay| delay.1))]
    };
    let row = |hop: &Hop| {
        let HopMeasured { response, response_bound, delay, .. } = hop.measured;
        Row { name: hop.name.to_owned(), values: vec![values(response, response_bound, delay)] }
    };
    let last = values(requests.response, requests.response_bound, requests.delay);
    let last = Row { name: requests::NAME.to_owned(), values: vec![last] };
    Comparison::new("Responses and delays on this kernel", "Section IV-C", "ms", 3).with(
        "set-up",
        ["response", "proven", "least delay", "largest delay"],
        [LIVE],
        all.iter().flat_map(|ran| &ran.hops).map(row).chain([last]),
    )
}

impl Hop {
    /// Whether k keeps its bound for the measured costs and delays. `None`: there is none, or a disturbance that no
    /// bound knows of may explain more.
    fn keeps(&self) -> Option<bool> {
        kept(self.live, self.measured.messages, self.measured.steal)
    }

    /// The same of the longest response.
    fn keeps_response(&self) -> Option<bool> {
        kept(self.measured.response, self.measured.response_bound, self.measured.steal)
    }

    /// Reached, or not yet, or passed. More than `most` refutes nothing if the measured costs and delays explain it.
    fn reached(&self, wanted: u64, most: u64, duration: Span) -> Option<bool> {
        let found = self.live?;
        if found > most {
            return self.keeps().filter(|kept| !kept);
        }
        if found >= wanted { Some(true) } else { (duration >= LIVE_LEAST).then_some(false) }
    }

    /// k and the longest response with their bounds, and why they exceed the bounds of the file.
    fn describe(&self) -> String {
        let HopMeasured { messages, response, response_bound, disturbance, .. } = &self.measured;
        let mut text = beside_bounds(self.name, [self.live, *messages], [*response, *response_bound]);
        let is_beyond = self.live > self.bound || [self.keeps(), self.keeps_response()] != [Some(true); 2];
        if is_beyond {
            text.push_str(&format!(" ({disturbance})"));
        }
        text
    }
}

fn claims(all: &[KiRun], requests: &Requests, duration: Span, findings: &mut Findings) {
    let hops: Vec<&Hop> = all.iter().flat_map(|ran| &ran.hops).collect();
    let [near, delayed, second, third] = hops[..] else { return };
    let waited = |hop: &Hop, most: u64| {
        let excuse = match hop.live.filter(|live| *live > most) {
            None => String::new(),
            Some(_) => format!(
                "; takt check allows {} for what was measured: {}",
                number_or_nothing(hop.measured.messages),
                hop.measured.disturbance
            ),
        };
        format!("Eq. 5 says {}, and {} waited{excuse}", number_or_nothing(hop.equation), number_or_nothing(hop.live))
    };
    findings.claim(
        "live_three_messages_wait_at_small_delays",
        "On this kernel, with small delays, at most 3 messages wait at once, as Eq. 5 says",
        waited(near, 3),
        near.reached(3, 3, duration),
    );
    findings.claim(
        "live_five_are_the_bound_at_large_delays",
        "On this kernel, with 10 +- 5 ms added, at most the 5 messages of Eq. 5 wait; 4 were observed in the paper",
        waited(delayed, 5),
        delayed.reached(4, 5, duration),
    );
    let same = second.live.zip(third.live).zip(delayed.live);
    findings.claim(
        "live_a_longer_way_changes_little",
        "On this kernel, over nodes 0, 3 and 4 as many messages wait at node 3 as over nodes 0 and 1, but for one, and \
         no more at node 4",
        format!(
            "{} at node 3 and {} at node 4, {} at node 1",
            number_or_nothing(second.live),
            number_or_nothing(third.live),
            number_or_nothing(delayed.live)
        ),
        same.and_then(|((one, two), three)| {
            let alike = one.abs_diff(three) <= 1 && two <= one.max(three);
            if alike { Some(true) } else { (duration >= LIVE_LEAST).then_some(false) }
        }),
    );
    let kept = hops.iter().flat_map(|hop| [hop.keeps(), hop.keeps_response()]);
    findings.claim(
        "live_bounds_hold",
        "On this kernel k and all responses keep what takt check proves for the measured costs and delays",
        hops.iter().map(|hop| hop.describe()).chain([requests.describe()]).collect::<Vec<_>>().join("; "),
        crate::findings::all(kept.chain(requests.keeps())),
    );
}

fn notes(all: &[KiRun], findings: &mut Findings) {
    for ran in all {
        let name = ran.hops.first().map_or("", |hop| hop.name);
        let (lost, refused) = (ran.relayed.lost, ran.relayed.refused);
        findings.notes.push(format!(
            "{name}: {} messages sent and {} arrived at nodes. The relay held each {} longer than drawn at most, lost \
             {lost} and could not send {refused}.",
            ran.sent,
            ran.arrived,
            rounded(ran.relayed.late)
        ));
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
        "The paper adds 10 +- 5 ms by a traffic control utility. Many kernels have no queueing discipline for this \
         (netem), so a relay in user space takes its place on every kernel. It holds each message for a drawn time, in \
         order, and its error is in a table.",
        "In the last set-up a job of a flow takes 0.1 ms. The paper does not say how long it takes. In the simulation \
         it takes 1 ms, for which eight nodes would need more than two CPUs.",
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(live: Option<u64>, messages: u64) -> Hop {
        Hop {
            name: "a",
            paper: None,
            observed: None,
            equation: None,
            bound: Some(3),
            simulated: 0,
            live,
            measured: HopMeasured { messages: Some(messages), disturbance: "why".to_owned(), ..HopMeasured::default() },
        }
    }

    #[test]
    fn only_what_was_not_measured_is_refuted() {
        let [short, long] = [Span::from_s(5), LIVE_LEAST];
        let of = |live, messages, duration| hop(live, messages).reached(3, 3, duration);
        assert_eq!([of(Some(2), 3, short), of(Some(2), 3, long), of(None, 3, long)], [None, Some(false), None]);
        assert_eq!(
            [of(Some(3), 3, short), of(Some(4), 3, short), of(Some(4), 4, long)],
            [Some(true), Some(false), None]
        );
    }

    #[test]
    fn bounds_are_those_for_what_was_measured() {
        assert_eq!([3, 4, 50].map(|live| hop(Some(live), 4).keeps()), [Some(true), Some(true), Some(false)]);
        assert_eq!(hop(None, 4).keeps(), None);
        // No bound knows of a hypervisor.
        let mut stolen = hop(Some(50), 4);
        stolen.measured.steal = Span::from_ms(1);
        assert_eq!(stolen.keeps(), None);
        let mut slow = hop(Some(3), 3);
        (slow.measured.response, slow.measured.response_bound) = (Some(Span::from_ms(9)), Some(Span::from_ms(8)));
        assert_eq!(slow.keeps_response(), Some(false));
        assert_eq!(slow.describe(), "a: k 3 of 3, response 9.00 ms of 8.00 ms (why)");
        slow.measured.response_bound = Some(Span::from_ms(9));
        assert_eq!(slow.describe(), "a: k 3 of 3, response 9.00 ms of 9.00 ms");
        assert_eq!(hop(Some(4), 4).describe(), "a: k 4 of 4, response nothing of nothing (why)");
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
