//! [HEDF IV-A], Figs. 4 and 5, on this kernel: round trips with and without shares of the bandwidth,
//! and beside other traffic.

use takt_linux::clock;
use takt_linux::tc::Rule;
use takt_model::{Background, Bucket, Bytes, Link, Rate, Span};

use super::super::cluster::{Cluster, LINK};
use super::super::delays::{
    BURST, Delay, Measured, RATES, ROUND, TICK, US, boxes, class, cluster, distributions, measure_rounds,
};
use super::super::rounded;
use super::super::setups::NODES;
use super::bounded::{self, Bounded, RoundTrips};
use super::{Lab, Outcome, Run};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Findings, LIVE, PAPER, Row, SIMULATED};

/// Fewer rounds decide nothing about percentiles of a node.
const LEAST: u64 = 10;
/// Fewer values have no 99th percentile.
const SAMPLES: u64 = 100;
/// The link beside other traffic, so slow that the traffic leaves CPU time to the nodes.
const NARROW: u64 = 100_000_000;
/// Shares beside other traffic: no message waits for tokens, so that only other traffic delays it.
const WIDE: [(u64, u64); 2] = [(8_000, 24_500_000), (8_000, 19_600_000)];
/// The largest packet of other traffic on the wire.
const BULK: u64 = 1_538;
/// Real-time messages beside other traffic may take so many times as long, in the 99th percentile.
const ISOLATION: f64 = 3.0;
/// After a round. A full queue of other traffic takes 0.13 s on the narrow link.
const DRAIN: Span = Span::from_ms(300);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setup {
    /// As they are.
    Plain,
    /// Shares as in the paper.
    Shares,
    /// A narrow link with shares that are wide enough.
    Narrow,
    /// A narrow link in order of arrival.
    NarrowFifo,
}

impl Setup {
    fn apply(self, lab: &mut Lab) -> Result<(), Failure> {
        let share = |(burst, rate): (u64, u64)| Some(Bucket { burst: Bytes::new(burst), rate: Rate::from_bps(rate) });
        let background = Some(Background { size: Bytes::new(BULK), rate: None });
        let shared = |rate: u64, [requests, replies]: [(u64, u64); 2]| Link {
            bucket: share(requests),
            replies: share(replies),
            background,
            ..Link::at(Rate::from_bps(rate))
        };
        match self {
            Setup::Plain => lab.share(None, &[]),
            Setup::Shares => lab.share(Some(&shared(LINK, RATES.map(|rate| (BURST, rate)))), &Rule::usual(true)),
            Setup::Narrow => lab.share(Some(&shared(NARROW, WIDE)), &Rule::usual(true)),
            Setup::NarrowFifo => lab.share(Some(&Link::at(Rate::from_bps(NARROW))), &[]),
        }
    }

    /// The cluster with the buckets of its devices.
    fn cluster(self) -> Cluster {
        match self {
            Setup::Plain | Setup::NarrowFifo => cluster(None),
            Setup::Shares => cluster(Some((BURST, RATES[0]))),
            Setup::Narrow => Cluster { classes: WIDE.map(class).to_vec(), ..cluster(None) },
        }
    }

    fn link(self) -> u64 {
        if matches!(self, Setup::Plain | Setup::Shares) { LINK } else { NARROW }
    }
}

#[derive(Default)]
struct Rounds {
    delays: Vec<Delay>,
    /// From the creation of a message to its server.
    one_way: Vec<Span>,
    lost: u64,
    sender_late: Span,
    other: u64,
    /// CPU time that the hypervisor took.
    steal: Span,
    stopped: bool,
}

impl Rounds {
    fn add(&mut self, ran: Outcome) {
        self.lost += ran.messages.iter().filter(|message| message.round_trip.is_none()).count() as u64;
        self.delays.extend(ran.messages.iter().filter_map(|message| {
            let (all, tokens) = (message.round_trip?, message.held?);
            Some(Delay { client: message.client, server: message.server, all, tokens })
        }));
        self.one_way.extend(ran.messages.iter().filter_map(|message| message.one_way));
        self.sender_late = self.sender_late.max(ran.sender_late);
        self.other += ran.background;
        self.stopped |= ran.stopped;
    }

    fn of(&self, node: usize) -> Vec<Delay> {
        self.delays.iter().copied().filter(|delay| delay.client == node).collect()
    }

    /// Those that pass the first node's device, which has other traffic.
    fn beside(&self) -> Vec<Span> {
        let at_first = |delay: &&Delay| delay.client == 0 || delay.server == 0;
        self.delays.iter().filter(at_first).map(|delay| delay.all).collect()
    }

    /// The longest round trips of a set-up beside their bound.
    fn bounded(&self, name: impl Into<String>, setup: Setup) -> Bounded {
        let trips = RoundTrips {
            cluster: setup.cluster(),
            line: (setup.link(), if self.other > 0 { BULK } else { 0 }),
            has_queues: setup != Setup::Plain,
            delays: &self.delays,
            late: self.sender_late,
            steal: self.steal,
        };
        trips.bounded(name.into())
    }

    fn measured(&self) -> Measured {
        Measured { delays: self.delays.clone(), starts: Vec::new() }
    }
}

fn rank(mut values: Vec<Span>, per_mille: usize) -> Option<Span> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    values.get(last * per_mille / 1_000).copied()
}

/// Least, 99th percentile and largest.
fn ends(values: Vec<Span>) -> [Option<Span>; 3] {
    [0, 990, 1_000].map(|at| rank(values.clone(), at))
}

/// From the least to the 99th percentile: the kernel delays a few messages for reasons of its own.
fn spread(values: Vec<Span>) -> Span {
    let [least, most, _] = ends(values);
    most.unwrap_or(Span::ZERO).saturating_sub(least.unwrap_or(Span::ZERO))
}

fn fewest(sizes: impl IntoIterator<Item = usize>) -> u64 {
    sizes.into_iter().min().unwrap_or(0) as u64
}

fn network(delays: Vec<Delay>) -> Vec<Span> {
    delays.into_iter().map(Delay::network).collect()
}

fn all(delays: Vec<Delay>) -> Vec<Span> {
    delays.into_iter().map(|delay| delay.all).collect()
}

/// Rounds of one second, with `--short` as few as show something.
fn count(context: &Context) -> u64 {
    context.duration(Span::from_s(20), Span::from_s(2)).as_ns().div_ceil(ROUND.as_ns())
}

fn round(context: &Context, lab: &Lab, round: u64, background: bool) -> Result<Outcome, Failure> {
    let seed = context.seed.wrapping_add(round << 32);
    let cluster: Cluster = cluster(None);
    let run = Run { cluster: &cluster, seed, duration: ROUND, slowness: 1, queue: None, drain: DRAIN, background };
    lab.run(context, &run)
}

/// All rounds of a set-up. Rounds without and with other traffic alternate, if both are asked for.
fn rounds<const N: usize>(
    context: &Context,
    lab: &mut Lab,
    setup: Setup,
    background: [bool; N],
    bar: &indicatif::ProgressBar,
) -> Result<[Rounds; N], Failure> {
    setup.apply(lab)?;
    let mut all = [(); N].map(|()| Rounds::default());
    for number in 0..count(context) {
        for (into, with) in all.iter_mut().zip(background) {
            if !context.stopped() {
                let before = clock::steal();
                into.add(round(context, lab, number, with)?);
                let steal = before.zip(clock::steal()).map(|(before, now)| now.saturating_sub(before));
                into.steal = into.steal.saturating_add(steal.unwrap_or_default());
                bar.inc(1);
            }
        }
    }
    Ok(all)
}

/// Figs. 4 and 5 need the same rounds.
struct Figures {
    simulated: [Measured; 2],
    live: [Rounds; 2],
    rounds: u64,
}

fn figures(context: &Context, lab: &mut Lab, bar: &indicatif::ProgressBar) -> Result<Figures, Failure> {
    let rounds_of = count(context);
    let simulated = [None, Some((BURST, RATES[0]))].map(cluster);
    let [one, two] = simulated.map(|cluster| measure_rounds(context, &cluster, rounds_of));
    let simulated = [one?, two?];
    let [plain] = rounds(context, lab, Setup::Plain, [false], bar)?;
    let [shares] = rounds(context, lab, Setup::Shares, [false], bar)?;
    Ok(Figures { simulated, live: [plain, shares], rounds: rounds_of })
}

const NAMES: [&str; 2] = ["no shares", "shares"];

/// Fig. 4: one node, and what other traffic does to it.
pub(in super::super) fn one_node(context: &Context) -> Result<Findings, Failure> {
    let mut lab = Lab::build()?;
    let bar = (context.host.bar)("rounds", count(context) * 5);
    let figures = figures(context, &mut lab, &bar)?;
    let [idle, busy] = rounds(context, &mut lab, Setup::Narrow, [false, true], &bar)?;
    let [fifo] = rounds(context, &mut lab, Setup::NarrowFifo, [true], &bar)?;
    bar.finish_and_clear();
    let mut findings = Findings::default();
    if !context.stopped() {
        findings.tables.push(figures.intervals());
        findings.figures.push(figures.distributions());
        findings.tables.push(figures.one_way());
        findings.tables.push(beside_table([&idle, &busy, &fifo]));
        figures.one_node_claims(&mut findings);
        beside_claims([&idle, &busy, &fifo], figures.rounds, &mut findings);
        let mut bounded = figures.bounded();
        for ((name, setup), rounds) in BESIDE.into_iter().zip(BESIDE_SETUPS).zip([&idle, &busy, &fifo]) {
            bounded.push(rounds.bounded(format!("100 Mbit/s, {name}"), setup));
        }
        findings.tables.push(bounded::table(&bounded));
        bounds_claim(&bounded, figures.rounds, &mut findings);
    }
    differences(&mut findings);
    notes(&[&figures.live[0], &figures.live[1], &idle, &busy, &fifo], &mut findings);
    Ok(findings)
}

/// Fig. 5: all nodes.
pub(in super::super) fn all_nodes(context: &Context) -> Result<Findings, Failure> {
    let mut lab = Lab::build()?;
    let bar = (context.host.bar)("rounds", count(context) * 2);
    let figures = figures(context, &mut lab, &bar)?;
    bar.finish_and_clear();
    let mut findings = Findings::default();
    if !context.stopped() {
        findings.tables.push(figures.by_node());
        let [without, with] = figures.live.each_ref().map(Rounds::measured);
        findings.figures.push(boxes(&without, &with));
        figures.all_nodes_claim(&mut findings);
        let bounded = figures.bounded();
        findings.tables.push(bounded::table(&bounded));
        bounds_claim(&bounded, figures.rounds, &mut findings);
    }
    differences(&mut findings);
    notes(&[&figures.live[0], &figures.live[1]], &mut findings);
    Ok(findings)
}

fn bounds_claim(all: &[Bounded], rounds: u64, findings: &mut Findings) {
    let claim = bounded::claim(all, findings);
    claim.needs(rounds, LEAST, "seconds of a run");
    claim.needs(all.iter().map(Bounded::samples).min().unwrap_or(0), SAMPLES, "round trips");
}

fn us(span: Option<Span>) -> Option<f64> {
    span.map(US)
}

impl Figures {
    fn simulated(&self, mode: usize, node: usize) -> Vec<Delay> {
        self.simulated[mode].delays.iter().copied().filter(|delay| delay.client == node).collect()
    }

    fn bounded(&self) -> Vec<Bounded> {
        let setups = NAMES.into_iter().zip([Setup::Plain, Setup::Shares]).zip(&self.live);
        setups.map(|((name, setup), rounds)| rounds.bounded(name, setup)).collect()
    }

    fn intervals(&self) -> Comparison {
        let paper = [[None, None, None, Some(970.0)], [Some(140.0), None, Some(3690.0), Some(3550.0)]];
        let values = |delays: Vec<Span>| {
            let [least, most, largest] = ends(delays);
            let range = largest.zip(least).map(|(largest, least)| largest.saturating_sub(least));
            [least, most, largest, range].map(us).to_vec()
        };
        let row = |mode: usize| Row {
            name: NAMES[mode].to_owned(),
            values: vec![
                paper[mode].to_vec(),
                values(all(self.simulated(mode, 0))),
                values(all(self.live[mode].of(0))),
            ],
        };
        Comparison::new("Round trips of one node on this kernel", "Fig. 4", "us", 1).with(
            "network",
            ["least", "99 %", "largest", "range"],
            [PAPER, SIMULATED, LIVE],
            (0..2).map(row),
        )
    }

    /// All nodes share a clock, so one way is known as exactly as a round trip.
    fn one_way(&self) -> Comparison {
        let row = |mode: usize| {
            let of = |at: usize| us(rank(self.live[mode].one_way.clone(), at));
            Row { name: NAMES[mode].to_owned(), values: vec![[0, 500, 990, 1_000].map(of).to_vec()] }
        };
        Comparison::new("Delays of requests to their servers on this kernel", "Section IV-A", "us, of all nodes", 1)
            .with("network", ["least", "median", "99 %", "largest"], [LIVE], (0..2).map(row))
    }

    fn distributions(&self) -> crate::findings::Drawn {
        let names = ["no shares, simulated", "shares, simulated", "no shares, live", "shares, live"];
        let [one, two] = [0, 1].map(|mode| self.simulated(mode, 0));
        let [three, four] = [0, 1].map(|mode| self.live[mode].of(0));
        let caption = "The same messages, simulated with hosts that take no time, and on this kernel.";
        distributions(
            "live-round-trips.svg",
            "Round trips of one node on this kernel",
            caption,
            &names,
            &[one, two, three, four],
        )
    }

    fn by_node(&self) -> Comparison {
        let row = |node: usize| {
            let values = |of: &dyn Fn(usize) -> Vec<Delay>| {
                vec![Some(US(spread(network(of(0))))), Some(US(spread(network(of(1))))), Some(US(spread(all(of(1)))))]
            };
            Row {
                name: (node + 1).to_string(),
                values: vec![values(&|mode| self.simulated(mode, node)), values(&|mode| self.live[mode].of(node))],
            }
        };
        Comparison::new("From the least to the 99th percentile of each node's round trips", "Fig. 5", "us", 1).with(
            "node",
            ["no shares", "shares, tokens removed", "shares, all"],
            [SIMULATED, LIVE],
            (0..NODES).map(row),
        )
    }

    fn one_node_claims(&self, findings: &mut Findings) {
        let [without, with] = [0, 1].map(|mode| spread(all(self.live[mode].of(0))));
        let claim = findings.claim(
            "live_shares_lengthen_round_trips",
            "On this kernel, with shares all delays together vary more than without, because messages wait for tokens",
            format!(
                "from the least to the 99th percentile by {} without shares, by {} with",
                rounded(without),
                rounded(with)
            ),
            Some(without < with),
        );
        claim.needs(self.rounds, LEAST, "seconds of a run");
        claim.needs(fewest(self.live.iter().map(|rounds| rounds.of(0).len())), SAMPLES, "round trips");
        let waits: Vec<Span> = self.live[1].delays.iter().map(|delay| delay.tokens).collect();
        let waited: Vec<&Span> = waits.iter().filter(|wait| **wait > Span::from_us(200)).collect();
        let off = |wait: &&&Span| {
            let into = wait.as_ns() % TICK.as_ns();
            into.min(TICK.as_ns() - into) < TICK.as_ns() / 20
        };
        let ticked = waited.iter().filter(off).count() as f64 / waited.len().max(1) as f64 * 100.0;
        let claim = findings.claim(
            "live_waits_end_without_ticks",
            "On this kernel waits for tokens do not end at ticks of 1 ms: HTB has high-resolution timers now",
            format!("{ticked:.1} % of {} waits are within 50 us of whole ticks; by chance 10 % are", waited.len()),
            Some(ticked < 25.0),
        );
        claim.needs(self.rounds, LEAST, "seconds of a run");
        claim.needs(waited.len() as u64, SAMPLES, "waits");
        let mean = |delays: &[Delay]| {
            let sum: u64 = delays.iter().map(|delay| delay.tokens.as_ns()).sum();
            Span::from_ns(sum / delays.len().max(1) as u64)
        };
        let [simulated, live] = [mean(&self.simulated[1].delays), mean(&self.live[1].delays)];
        let ratio = live.as_ns() as f64 / simulated.as_ns().max(1) as f64;
        let claim = findings.claim(
            "live_waits_are_the_simulated_ones",
            "On this kernel messages wait in the device as long as simulated, in the mean within 20 %",
            format!("{} simulated, {} live, {ratio:.2} times as long", rounded(simulated), rounded(live)),
            Some((0.8..=1.2).contains(&ratio)),
        );
        claim.needs(self.rounds, LEAST, "seconds of a run");
        claim.needs(fewest([self.simulated[1].delays.len(), self.live[1].delays.len()]), SAMPLES, "round trips");
    }

    fn all_nodes_claim(&self, findings: &mut Findings) {
        let of = |mode: usize, node: usize| spread(network(self.live[mode].of(node)));
        let samples = |node: usize| fewest(self.live.iter().map(|rounds| rounds.of(node).len()));
        let less = (0..NODES).filter(|node| samples(*node) > 0 && of(1, *node) < of(0, *node)).count();
        let sum = |mode: usize| (0..NODES).fold(Span::ZERO, |sum, node| sum.saturating_add(of(mode, node)));
        let mean = |mode: usize| rounded(Span::from_ns(sum(mode).as_ns() / NODES as u64));
        let claim = findings.claim(
            "live_shares_reduce_the_variance_on_each_node",
            "On this kernel, with the waits in devices removed, delays vary less with shares on all nodes",
            format!(
                "on {less} of {NODES} nodes; from the least to the 99th percentile by {} with shares and by {} \
                 without, in the mean of the nodes",
                mean(1),
                mean(0)
            ),
            Some(less == NODES),
        );
        claim.needs(self.rounds, LEAST, "seconds of a run");
        claim.needs((0..NODES).map(samples).min().unwrap_or(0), SAMPLES, "round trips of each node");
    }
}

const BESIDE: [&str; 3] = ["shares, nothing else", "shares, other traffic", "in order of arrival, other traffic"];
const BESIDE_SETUPS: [Setup; 3] = [Setup::Narrow, Setup::Narrow, Setup::NarrowFifo];

fn beside_table(all: [&Rounds; 3]) -> Comparison {
    let row = |(name, rounds): (&str, &Rounds)| {
        let [median, most] = [500, 990].map(|at| us(rank(rounds.beside(), at)));
        Row { name: name.to_owned(), values: vec![vec![median, most, Some(rounds.other as f64)]] }
    };
    Comparison::new(
        "Round trips through one node beside other traffic",
        "Section IV-A",
        "us, and packets of other traffic",
        1,
    )
    .with("link of 100 Mbit/s", ["median", "99 %", "other packets"], [LIVE], BESIDE.into_iter().zip(all).map(row))
}

fn beside_claims([idle, busy, fifo]: [&Rounds; 3], rounds: u64, findings: &mut Findings) {
    let most = |of: &Rounds| rank(of.beside(), 990).unwrap_or(Span::ZERO);
    let ratio = |of: &Rounds| most(of).as_ns() as f64 / most(idle).as_ns().max(1) as f64;
    let claim = findings.claim(
        "live_other_traffic_delays_little",
        format!(
            "Not in the paper: beside traffic that fills the link, real-time messages with a share take at most \
             {ISOLATION} times as long in the 99th percentile"
        ),
        format!(
            "{} beside nothing, {} beside {} other packets: {:.2} times; without shares {}",
            rounded(most(idle)),
            rounded(most(busy)),
            busy.other,
            ratio(busy),
            rounded(most(fifo))
        ),
        Some(ratio(busy) <= ISOLATION),
    );
    claim.needs(rounds, LEAST, "seconds of a run");
    claim.needs(fewest([idle, busy].map(|rounds| rounds.beside().len())), SAMPLES, "round trips");
    claim.needs(busy.other, half_full(rounds), "packets of other traffic");
}

/// The packets of other traffic that fill half the narrow link. With fewer, nothing delays messages.
fn half_full(rounds: u64) -> u64 {
    rounds * (ROUND.as_ns() / 1_000_000) * (NARROW / 1_000) / (2 * 8 * BULK)
}

fn notes(all: &[&Rounds], findings: &mut Findings) {
    let lost: u64 = all.iter().map(|rounds| rounds.lost).sum();
    let late = all.iter().map(|rounds| rounds.sender_late).max().unwrap_or(Span::ZERO);
    findings.notes.push(format!(
        "A frame was made {} late at most, and {lost} messages got no answer within {DRAIN} after their round.",
        rounded(late)
    ));
}

fn differences(findings: &mut Findings) {
    findings.differ([
        "The paper has eight computers. Here eight network namespaces of one computer meet at a bridge, and one thread \
         of each is client and server. Nodes and network share two CPUs. So delays without waits are times of CPUs and \
         not of lines. Threads run under SCHED_FIFO, and so do the kernel's threads that take packets in."
            .to_owned(),
        "A wait for tokens is the time from a send until the kernel's stamp of the packet that leaves. The paper \
         sorted its delays into clusters instead."
            .to_owned(),
        format!(
            "The buckets hold {BURST} B, as tc sets them by itself; the paper does not say its own. Linux 2.6 ended \
             waits at ticks of 1 ms. HTB has high-resolution timers now."
        ),
        "Messages are UDP datagrams of 466 B on the wire, as many as those of the paper have over TCP.".to_owned(),
        "Percentiles stand for ends of intervals: other threads and the hypervisor delay a few messages.".to_owned(),
        "The bounds hold for hosts as slow, and frames as late, as they were at most in these rounds. The bridge \
         passes packets at once, so they have no ports."
            .to_owned(),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_values_that_were_there() {
        let values: Vec<Span> = (1..=1_000).rev().map(Span::from_us).collect();
        assert_eq!(ends(values.clone()), [1, 990, 1_000].map(|us| Some(Span::from_us(us))));
        assert_eq!(spread(values), Span::from_us(989));
        assert_eq!((ends(Vec::new()), spread(Vec::new())), ([None; 3], Span::ZERO));
    }
    #[test]
    fn no_data_decides_nothing() {
        let none = || Measured { delays: Vec::new(), starts: Vec::new() };
        let figures =
            Figures { simulated: [none(), none()], live: [Rounds::default(), Rounds::default()], rounds: LEAST };
        let mut findings = Findings::default();
        figures.one_node_claims(&mut findings);
        figures.all_nodes_claim(&mut findings);
        beside_claims([&figures.live[0], &figures.live[1], &figures.live[1]], LEAST, &mut findings);
        bounds_claim(&figures.bounded(), LEAST, &mut findings);
        assert_eq!(findings.claims.len(), 6);
        assert!(findings.claims.iter().all(|claim| claim.holds.is_none()));
    }

    #[test]
    fn each_set_up_has_its_own_bound() {
        let trip = Delay { client: 0, server: 1, all: Span::from_us(900), tokens: Span::ZERO };
        let of = |setup, other| Rounds { delays: vec![trip], other, ..Rounds::default() }.bounded("a", setup).bound();
        let [plain, shares, narrow] = [Setup::Plain, Setup::Shares, Setup::Narrow].map(|setup| of(setup, 0));
        assert!(plain.is_some() && plain < narrow && narrow < shares, "{plain:?} {narrow:?} {shares:?}");
        // Other traffic without a class of its own has no bound.
        assert!(narrow < of(Setup::Narrow, 9) && of(Setup::NarrowFifo, 0).is_some());
        assert_eq!(of(Setup::NarrowFifo, 9), None);
    }

    #[test]
    fn beside_too_little_other_traffic_nothing_is_decided() {
        let trip = Delay { client: 0, server: 1, all: Span::from_us(50), tokens: Span::ZERO };
        let with = |other| Rounds { delays: vec![trip; SAMPLES as usize], other, ..Rounds::default() };
        let holds = |other| {
            let mut findings = Findings::default();
            beside_claims([&with(0), &with(other), &with(other)], LEAST, &mut findings);
            findings.claims[0].holds
        };
        // 100 Mbit/s are 8127 packets a second.
        assert_eq!(half_full(LEAST), 40_637);
        assert_eq!([0, 40_636, 40_637].map(holds), [None, None, Some(true)]);
    }

    #[test]
    fn other_traffic_may_make_the_99th_percentile_three_times_as_long() {
        let rounds = |us, other| {
            let trip = Delay { client: 0, server: 1, all: Span::from_us(us), tokens: Span::ZERO };
            Rounds { delays: vec![trip; SAMPLES as usize], other, ..Rounds::default() }
        };
        let holds = |beside: u64| {
            let busy = rounds(beside, half_full(LEAST));
            let mut findings = Findings::default();
            beside_claims([&rounds(50, 0), &busy, &busy], LEAST, &mut findings);
            findings.claims[0].holds
        };
        assert_eq!([50, 150, 151].map(holds), [Some(true), Some(true), Some(false)]);
    }
}
