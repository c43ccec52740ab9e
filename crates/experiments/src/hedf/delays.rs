//! [HEDF IV-A], Figs. 4 and 5: round trips in the cluster with and without shares of the bandwidth.

use takt_analysis::distributed::delay::{Bucket, Traffic};
use takt_model::{Bytes, Rate, Span, Time};
use takt_net::{BucketSpec, ClassSpec};
use takt_report::{Figure, Form, Series};

use super::bounds::{self, RoundTrips};
use super::cluster::{Cluster, LINK, MESSAGE};
use super::rounded;
use super::setups::NODES;
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Claim, Comparison, Drawn, Findings, PAPER, Row, SIMULATED};

/// A round has phases of its own.
pub(super) const ROUND: Span = Span::from_s(1);
/// Fewer rounds decide nothing about the longest delays.
const LEAST: u64 = 20;
/// The paper's rates of a node's client and server.
pub(super) const RATES: [u64; 2] = [2_450_000, 19_600_000];
/// σ of both buckets in bytes. The paper does not give it. This is what tc takes where nobody gives
/// it.
pub(super) const BURST: u64 = 1_600;
/// The kernel's timers in the paper.
pub(super) const TICK: Span = Span::from_ms(1);
pub(super) const US: fn(Span) -> f64 = |span| span.as_ns() as f64 / 1e3;

/// A class of messages with a bucket of so many bytes and bits per second.
pub(super) fn class((burst, rate): (u64, u64)) -> ClassSpec {
    ClassSpec {
        bucket: Some(BucketSpec { rate: Rate::from_bps(rate), burst: Bytes::new(burst) }),
        packet_max: Bytes::new(MESSAGE),
        ..ClassSpec::fifo()
    }
}

/// The cluster without shares, or with buckets of so many bytes and the client's rate.
pub(super) fn cluster(shares: Option<(u64, u64)>) -> Cluster {
    Cluster {
        classes: shares.map_or_else(
            || vec![ClassSpec::fifo()],
            |(burst, rate)| vec![class((burst, rate)), class((burst, RATES[1]))],
        ),
        period: Span::from_ms(10),
        burst: 10,
        deadline: Span::from_ms(10),
        hosts: (Span::ZERO, Span::ZERO),
        tick: None,
        blocks: false,
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    pub(super) client: usize,
    pub(super) server: usize,
    pub(super) all: Span,
    /// Waiting for tokens.
    pub(super) tokens: Span,
}

impl Delay {
    pub(super) fn network(self) -> Span {
        self.all.saturating_sub(self.tokens)
    }
}

/// Delays of all rounds, and the starts of the first node's requests in the first round.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) delays: Vec<Delay>,
    pub(super) starts: Vec<Time>,
}

fn rounds(context: &Context) -> u64 {
    let duration = context.duration(Span::from_s(100), Span::from_s(20));
    duration.as_ns().div_ceil(ROUND.as_ns())
}

fn measure(context: &Context, cluster: &Cluster) -> Result<Measured, Failure> {
    measure_rounds(context, cluster, rounds(context))
}

pub(super) fn measure_rounds(context: &Context, cluster: &Cluster, rounds: u64) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    for round in 0..rounds {
        if context.stopped() {
            break;
        }
        let ran = cluster.run(context.seed.wrapping_add(round << 32), ROUND)?;
        if round == 0 {
            measured.starts = ran.starts;
        }
        measured.delays.extend(ran.messages.iter().filter_map(|message| {
            let all = message.round_trip?;
            Some(Delay { client: message.client, server: message.server, all, tokens: message.tokens })
        }));
    }
    Ok(measured)
}

fn interval(values: impl IntoIterator<Item = Span>) -> Option<(Span, Span)> {
    values.into_iter().fold(None, |known, value| {
        let (least, most) = known.unwrap_or((value, value));
        Some((least.min(value), most.max(value)))
    })
}

fn range(interval: Option<(Span, Span)>) -> Span {
    interval.map_or(Span::ZERO, |(least, most)| most.saturating_sub(least))
}

struct Mode {
    name: &'static str,
    cluster: Cluster,
    /// Least, largest and range in the paper, in us.
    paper: [Option<f64>; 3],
}

fn modes() -> [Mode; 3] {
    let shared = cluster(Some((BURST, RATES[0])));
    [
        Mode { name: "no shares", cluster: cluster(None), paper: [None, None, Some(970.0)] },
        Mode { name: "shares", cluster: shared.clone(), paper: [None; 3] },
        Mode {
            name: "shares, ticks of 1 ms",
            cluster: Cluster { tick: Some(TICK), ..shared },
            paper: [Some(140.0), Some(3690.0), Some(3550.0)],
        },
    ]
}

/// Fig. 4: the delays of one node, and what its client sends.
pub(super) fn one_node(context: &Context) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let modes = modes();
    let mut measured = Vec::new();
    for mode in &modes {
        measured.push(measure(context, &mode.cluster)?);
    }
    let first: Vec<Vec<Delay>> = measured
        .iter()
        .map(|measured| measured.delays.iter().copied().filter(|delay| delay.client == 0).collect())
        .collect();
    findings.tables.push(intervals(&modes, &first));
    findings.tables.push(clusters(&first[2]));
    let names = modes.each_ref().map(|mode| mode.name);
    let caption = "Without shares all messages are back at once. With shares some wait for tokens: any time where \
                   timers are exact, and whole ticks where they are not.";
    findings.figures.push(distributions("round-trips.svg", "Round trips of one node", caption, &names, &first));
    findings.figures.push(bandwidth(&measured));
    one_node_claims(context, &modes, &first, &measured, &mut findings);
    differences(&mut findings);
    Ok(findings)
}

fn intervals(modes: &[Mode], delays: &[Vec<Delay>]) -> Comparison {
    let row = |(mode, delays): (&Mode, &Vec<Delay>)| {
        let all = interval(delays.iter().map(|delay| delay.all));
        let [least, most] = [all.map(|all| US(all.0)), all.map(|all| US(all.1))];
        Row { name: mode.name.to_owned(), values: vec![mode.paper.to_vec(), vec![least, most, Some(US(range(all)))]] }
    };
    Comparison::new("Round trips of one node", "Fig. 4", "us", 1).with(
        "network",
        ["least", "largest", "range"],
        [PAPER, SIMULATED],
        modes.iter().zip(delays).map(row),
    )
}

/// Whole ticks that a round trip waited for tokens.
fn ticks(delay: Delay) -> u64 {
    delay.tokens.as_ns().saturating_add(TICK.as_ns() / 2) / TICK.as_ns()
}

fn by_ticks(delays: &[Delay]) -> Vec<Vec<Delay>> {
    let mut clusters: Vec<Vec<Delay>> = Vec::new();
    for delay in delays {
        let at = ticks(*delay) as usize;
        clusters.resize(clusters.len().max(at + 1), Vec::new());
        clusters[at].push(*delay);
    }
    clusters
}

/// Of each cluster of round trips under ticks: the share, the interval, and the range in the
/// network.
fn clusters(delays: &[Delay]) -> Comparison {
    let rows = by_ticks(delays).into_iter().enumerate().filter(|(_, cluster)| !cluster.is_empty());
    let row = |(ticks, cluster): (usize, Vec<Delay>)| {
        let all = interval(cluster.iter().map(|delay| delay.all));
        let network = interval(cluster.iter().map(|delay| delay.network()));
        Row {
            name: ticks.to_string(),
            values: vec![vec![
                Some(cluster.len() as f64 / delays.len().max(1) as f64 * 100.0),
                all.map(|all| US(all.0)),
                all.map(|all| US(all.1)),
                Some(US(range(network))),
            ]],
        }
    };
    Comparison::new("Clusters of round trips under ticks", "Fig. 4", "us, and % of the messages", 1).with(
        "ticks waited",
        ["%", "least", "largest", "range, tokens removed"],
        [SIMULATED],
        rows.map(row),
    )
}

pub(super) fn distributions(file: &str, title: &str, caption: &str, names: &[&str], delays: &[Vec<Delay>]) -> Drawn {
    const STEPS: usize = 400;
    let series = names.iter().zip(delays).enumerate().map(|(colour, (name, delays))| {
        let mut sorted: Vec<f64> = delays.iter().map(|delay| US(delay.all) / 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let every = count.div_ceil(STEPS).max(1);
        let at = |i: usize| (sorted[i], (i + 1) as f64 / count as f64 * 100.0);
        let mut points: Vec<(f64, f64)> = (0..count).step_by(every).map(at).collect();
        points.extend(count.checked_sub(1).map(at));
        Series { name: (*name).to_owned(), points, form: Form::Steps, colour }
    });
    let figure =
        Figure { y_max: Some(100.0), ..Figure::new(title, "round trip in ms", "% of the messages", series.collect()) };
    Drawn::of(file, &figure, title, caption)
}

/// How many of the first frames are drawn, in ms.
const DRAWN_MS: u64 = 60;

fn bandwidth(measured: &[Measured]) -> Drawn {
    let names = ["no shares", "shares"];
    let series = measured.iter().zip(names).enumerate().map(|(colour, (measured, name))| {
        let mut bits = vec![0.0; DRAWN_MS as usize];
        for start in &measured.starts {
            if let Some(bin) = bits.get_mut((start.as_ns() / TICK.as_ns()) as usize) {
                *bin += (MESSAGE * 8) as f64 / 1e3;
            }
        }
        let points = bits.into_iter().enumerate().map(|(ms, rate)| (ms as f64, rate));
        Series { name: name.to_owned(), points: points.collect(), form: Form::Line, colour }
    });
    let title = "Bandwidth of the requests of one node";
    let figure = Figure {
        rules: vec![("rate of the bucket".to_owned(), RATES[0] as f64 / 1e6)],
        ..Figure::new(title, "time in ms", "Mbit/s, of each millisecond", series.collect())
    };
    let caption = format!(
        "A frame of 5 to 10 messages comes every 10 ms. A full bucket of {BURST} B lets four of them through at once, \
         and then one every {:.2} ms.",
        (MESSAGE * 8) as f64 / RATES[0] as f64 * 1e3
    );
    Drawn::of("bandwidth.svg", &figure, title, caption)
}

/// The most bytes beyond ρ t in any interval, from the starts of equal packets.
fn beyond(starts: &[Time], rate: u64) -> u64 {
    // In bytes x 8 x 10^9: what has been sent before, less what the rate has brought.
    let sent = |i: usize| i as i128 * i128::from(MESSAGE) * 8_000_000_000;
    let level = |i: usize| sent(i) - i128::from(rate) * i128::from(starts[i].as_ns());
    let (mut least, mut most) = (i128::MAX, 0);
    for i in 0..starts.len() {
        least = least.min(level(i));
        most = most.max(level(i) + sent(1) - least);
    }
    u64::try_from(most / 8_000_000_000).unwrap_or(u64::MAX)
}

/// Claims about the longest of many need as many.
fn needs_rounds(context: &Context, claim: &mut Claim) {
    claim.needs(rounds(context), LEAST, "seconds of a run");
}

fn bounded(name: &str, delays: &[Delay], bounds: Option<&RoundTrips>) -> (String, bool) {
    let Some(bounds) = bounds else { return (format!("{name}: no bound"), false) };
    let all = delays.iter().map(|delay| (delay.client, delay.server, delay.all));
    let (kept, longest, bound) = bounds::compare(all, bounds);
    (format!("{name}: {} simulated, {} proven", rounded(longest), rounded(bound)), kept)
}

fn one_node_claims(
    context: &Context,
    modes: &[Mode],
    first: &[Vec<Delay>],
    measured: &[Measured],
    findings: &mut Findings,
) {
    let ranges: Vec<Span> = first.iter().map(|delays| range(interval(delays.iter().map(|delay| delay.all)))).collect();
    let claim = findings.claim(
        "shares_lengthen_round_trips",
        "With shares all delays together vary more than without, because messages wait for tokens",
        format!(
            "by {} without shares, by {} with, by {} with ticks",
            rounded(ranges[0]),
            rounded(ranges[1]),
            rounded(ranges[2])
        ),
        Some(ranges[0] < ranges[1] && ranges[0] < ranges[2]),
    );
    needs_rounds(context, claim);
    let of_clusters: Vec<Span> = by_ticks(&first[2])
        .iter()
        .filter(|cluster| !cluster.is_empty())
        .map(|cluster| range(interval(cluster.iter().map(|delay| delay.network()))))
        .collect();
    let widest = of_clusters.iter().copied().max().unwrap_or(Span::ZERO);
    let claim = findings.claim(
        "each_cluster_varies_less",
        "Each cluster of delays, by the ticks waited, varies less than the delays without shares",
        format!(
            "{} without shares, {} in the widest of {} clusters",
            rounded(ranges[0]),
            rounded(widest),
            of_clusters.len()
        ),
        Some(of_clusters.len() > 1 && widest < ranges[0]),
    );
    needs_rounds(context, claim);
    let whole = |delays: &[Delay]| {
        let waited: Vec<&Delay> = delays.iter().filter(|delay| !delay.tokens.is_zero()).collect();
        let off = |delay: &&&Delay| delay.tokens.as_ns().abs_diff(ticks(***delay) * TICK.as_ns()) < TICK.as_ns() / 20;
        (waited.iter().filter(off).count() as f64 / waited.len().max(1) as f64 * 100.0, waited.len())
    };
    let [(exact, _), (ticked, waited)] = [whole(&first[1]), whole(&first[2])];
    findings.claim(
        "steps_of_1ms_come_from_ticks",
        "Delays lie 1 ms apart because timer ticks of 1 ms end the wait for tokens",
        format!(
            "{ticked:.1} % of {waited} waits are within 50 us of whole ticks, the others ended when an answer came; \
             with exact timers {exact:.1} %"
        ),
        Some(ticked > 50.0 && exact < 25.0),
    );
    let limit = BURST + MESSAGE;
    let most = beyond(&measured[1].starts, RATES[0]);
    findings.claim(
        "the_bucket_keeps_its_bound",
        "In any time t a bucket lets no more than sigma + rho t through, and with HTB one packet more",
        format!("{most} B beyond rho t, of {limit} B; {} B without shares", beyond(&measured[0].starts, RATES[0])),
        Some(most <= limit),
    );
    proven(&modes[..2], &measured[..2], findings);
}

/// The claim about bounds. Ticks are in no bound.
fn proven(modes: &[Mode], measured: &[Measured], findings: &mut Findings) {
    let told: Vec<(String, bool)> = modes
        .iter()
        .zip(measured)
        .map(|(mode, measured)| bounded(mode.name, &measured.delays, bounds::round_trips(&mode.cluster).as_ref()))
        .collect();
    findings.claim(
        "no_round_trip_exceeds_its_bound",
        "No round trip exceeds what the theorems of takt size --network-delay prove",
        told.iter().map(|(told, _)| told.as_str()).collect::<Vec<_>>().join("; "),
        Some(told.iter().all(|(_, kept)| *kept)),
    );
}

/// Fig. 5: the delays of all nodes.
pub(super) fn all_nodes(context: &Context) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let modes = modes();
    let [without, with] = [measure(context, &modes[0].cluster)?, measure(context, &modes[1].cluster)?];
    let of = |measured: &Measured, node: usize, network: bool| {
        let own = measured.delays.iter().filter(move |delay| delay.client == node);
        interval(own.map(|delay| if network { delay.network() } else { delay.all }))
    };
    let nodes: Vec<[Option<(Span, Span)>; 3]> =
        (0..NODES).map(|node| [of(&without, node, true), of(&with, node, true), of(&with, node, false)]).collect();
    let row = |(node, intervals): (usize, &[Option<(Span, Span)>; 3])| Row {
        name: (node + 1).to_string(),
        values: vec![intervals.iter().map(|interval| Some(US(range(*interval)))).collect()],
    };
    findings.tables.push(Comparison::new("Range of the round trips of each node", "Fig. 5", "us", 1).with(
        "node",
        ["no shares", "shares, tokens removed", "shares, all"],
        [SIMULATED],
        nodes.iter().enumerate().map(row),
    ));
    findings.figures.push(boxes(&without, &with));
    let less = nodes.iter().filter(|[without, with, _]| range(*with) < range(*without)).count();
    let claim = findings.claim(
        "shares_reduce_the_variance_on_each_node",
        "With the waits for tokens removed, delays vary less with shares on all nodes",
        format!("on {less} of {NODES} nodes"),
        Some(less == NODES),
    );
    needs_rounds(context, claim);
    proven(&modes[..2], &[without, with], &mut findings);
    bursts(context, &mut findings)?;
    rates(context, &mut findings)?;
    differences(&mut findings);
    Ok(findings)
}

/// Quartiles and ends of each node's round trips in the network.
pub(super) fn boxes(without: &Measured, with: &Measured) -> Drawn {
    let series = [without, with].into_iter().zip(["no shares", "shares"]).enumerate();
    let series = series.map(|(colour, (measured, name))| {
        let points = (0..NODES).flat_map(|node| {
            let own = measured.delays.iter().filter(|delay| delay.client == node);
            let mut sorted: Vec<Span> = own.map(|delay| delay.network()).collect();
            sorted.sort_unstable();
            let last = sorted.len().saturating_sub(1);
            let x = node as f64 + 1.0 + (colour as f64 - 0.5) * 0.3;
            let at = [0, last / 4, last / 2, last * 3 / 4, last];
            at.into_iter().filter_map(|i| sorted.get(i).map(|span| (x, US(*span)))).collect::<Vec<_>>()
        });
        Series { name: name.to_owned(), points: points.collect(), form: Form::Boxes, colour }
    });
    let title = "Round trips of all nodes, waits for tokens removed";
    let figure = Figure { x_from_zero: false, ..Figure::new(title, "node", "round trip in us", series.collect()) };
    let caption = "Boxes hold the middle half of the messages, with the median. Whiskers end at the least and the \
                   largest round trip.";
    Drawn::of("round-trips-by-node.svg", &figure, title, caption)
}

/// What σ does.
fn bursts(context: &Context, findings: &mut Findings) -> Result<(), Failure> {
    let (mut rows, mut ranges) = (Vec::new(), Vec::new());
    for burst in [MESSAGE, 1_000, BURST, 2_800, 3_700, 4_700] {
        let measured = measure(context, &cluster(Some((burst, RATES[0]))))?;
        let of = |value: fn(Delay) -> Span| interval(measured.delays.iter().map(|delay| value(*delay)));
        let (all, network) = (of(|delay| delay.all), of(Delay::network));
        ranges.push((all.map_or(Span::ZERO, |all| all.1), range(network)));
        rows.push(Row {
            name: format!("{burst}"),
            values: vec![vec![all.map(|all| US(all.1)), Some(US(range(network)))]],
        });
    }
    findings.tables.push(Comparison::new("Bursts of the bucket", "Fig. 5", "us, of all nodes", 1).with(
        "burst in B",
        ["largest round trip", "range, tokens removed"],
        [SIMULATED],
        rows,
    ));
    let [(longest_small, small), .., (longest_large, large)] = ranges[..] else { return Ok(()) };
    let claim = findings.claim(
        "less_burstiness_reduces_contention",
        "Smaller bursts of the bucket reduce contention in the network, and messages wait longer",
        format!(
            "from the smallest to the largest burst delays in the network vary by {} to {}, and the longest round \
             trip is {} to {}",
            rounded(small),
            rounded(large),
            rounded(longest_small),
            rounded(longest_large)
        ),
        Some(small < large && longest_small > longest_large),
    );
    needs_rounds(context, claim);
    Ok(())
}

/// The paper's open question: the least rate of the client's bucket with which no request waits
/// longer than wanted.
fn rates(context: &Context, findings: &mut Findings) -> Result<(), Failure> {
    let requests = bounds::all_requests(&cluster(None), 0).unwrap_or_default();
    let mut rows = Vec::new();
    let mut told = Vec::new();
    let mut kept = true;
    for wanted in [2, 4, 8, 16].map(Span::from_ms) {
        let bucket = Bucket { burst: BURST, rate: 0, packet: MESSAGE, link: LINK, other: MESSAGE };
        let Some(rate) = least_rate(bucket, requests, wanted) else { continue };
        let measured = measure(context, &cluster(Some((BURST, rate))))?;
        let longest = measured.delays.iter().map(|delay| delay.tokens).max().unwrap_or(Span::ZERO);
        kept &= longest <= wanted;
        told.push(format!("{} of {wanted}", rounded(longest)));
        rows.push(Row {
            name: wanted.to_string(),
            values: vec![vec![Some(rate as f64 / 1e6), Some(US(longest) / 1e3)]],
        });
    }
    findings.tables.push(
        Comparison::new("Rate of a client for a wanted delay", "Section IV-A", "Mbit/s and ms", 3).with(
            "wanted at most",
            ["least rate", "longest wait"],
            [SIMULATED],
            rows,
        ),
    );
    findings.claim(
        "the_rate_follows_from_the_wanted_delay",
        "The paper tunes the rate by hand. With the least rate proven for a wanted delay no request waits longer",
        told.join("; "),
        Some(kept && !told.is_empty()),
    );
    Ok(())
}

fn least_rate(bucket: Bucket, requests: Traffic, wanted: Span) -> Option<u64> {
    bucket.least_rate(requests, MESSAGE, wanted.as_ns())
}

fn differences(findings: &mut Findings) {
    let offered = 100.0 * 7.5 * (MESSAGE * 8) as f64 / 1e6;
    let away = offered * 7.0 / 8.0;
    findings.differ([
        "The paper measured eight computers. Here the machines of takt-net pass packets in virtual time, and hosts \
         take no time. So delays without shares are those of lines and queues alone."
            .to_owned(),
        format!(
            "The paper found its rate of 2.45 Mbit/s by tuning. Frames of 7.5 messages of 400 B are {offered:.2} \
             Mbit/s with their headers, {MESSAGE} B each. One of eight messages goes to the own node and needs no \
             network. So {away:.2} Mbit/s remain, which the paper's rate just covers. The server's rate is eight \
             times that."
        ),
        format!(
            "The paper does not give the bursts of its buckets. Here they are {BURST} B, as tc sets them by itself. \
             With 3.7 kB the longest round trip would be that of the paper."
        ),
        "Linux no longer waits for ticks: HTB has high-resolution timers. So delays with shares are shown with exact \
         timers and with ticks."
            .to_owned(),
        "Waits for tokens are known exactly here: from a packet's arrival until its bucket last opened for its class. \
         The paper sorted its delays into clusters instead."
            .to_owned(),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_rate_are_counted_over_any_interval() {
        // A packet each 466 us at 8 Mbit/s is the rate itself. Two at once are one packet more.
        let starts = |us: &[u64]| us.iter().map(|us| Time::from_ns(us * 1_000)).collect::<Vec<_>>();
        assert_eq!(beyond(&starts(&[0, 466, 932]), 8_000_000), MESSAGE);
        assert_eq!(beyond(&starts(&[0, 466, 466, 1_864]), 8_000_000), 2 * MESSAGE);
        assert_eq!(beyond(&[], 8_000_000), 0);
    }
}
