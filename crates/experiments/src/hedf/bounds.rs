//! Bounds of a cluster's round trips, by the theorems of `takt size --network-delay`.
//!
//! Requests of a pair of nodes are bounded by (σ, ρ) of their pattern, exactly. Answers are the
//! requests delayed. So delays depend on each other, and the least solution is found from zero
//! upwards. It is a bound: the first packet to exceed its own would have come with traffic that
//! kept to all of them.

use takt_analysis::distributed::delay::{Bucket, Traffic};
use takt_analysis::distributed::row::{PortPath, Sent, Shared, rows};
use takt_model::Span;

use super::cluster::{Cluster, LINK, MESSAGE};
use super::setups::NODES;

/// Rounds until it gives up.
const ROUNDS_MAX: usize = 1_000;
/// Bytes to bit-nanoseconds per second.
const SCALE: i128 = 8_000_000_000;

/// The longest round trips, by client and server.
pub(super) type RoundTrips = Vec<Vec<Span>>;

/// Lines and hosts around the queues and buckets of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Surroundings {
    /// Bits per second of the line of each node.
    link: u64,
    /// Whether the lines lead to ports of a switch that are as fast. Otherwise packets are at once at their node.
    has_ports: bool,
    /// Bytes of the largest packet of other traffic; zero without any.
    bulk: u64,
    /// By how much a request comes at most later to its queue than its frame was due.
    late: Span,
    /// The longest time that a message and its answer spend in hosts.
    hosts: Span,
}

impl Surroundings {
    /// Those of the simulation: it adds the time in hosts at the end.
    fn simulated(cluster: &Cluster) -> Surroundings {
        Surroundings { link: LINK, has_ports: true, bulk: 0, late: Span::ZERO, hosts: cluster.hosts.1 }
    }

    /// Those of live nodes at a bridge, which passes packets on at once. Frames are made up to `late` too late. The
    /// time in `hosts` may come before requests and answers are in their queues.
    pub(super) fn live((link, bulk): (u64, u64), late: Span, hosts: Span) -> Surroundings {
        Surroundings { link, has_ports: false, bulk, late: late.saturating_add(hosts), hosts }
    }

    /// Bytes of the largest packet of other classes.
    fn other(&self) -> u64 {
        MESSAGE.max(self.bulk)
    }
}

/// The traffic of the requests that `counts` takes, of frames that begin at the multiples of the
/// period.
fn traffic(cluster: &Cluster, client: usize, counts: impl Fn(usize) -> bool) -> Option<Traffic> {
    let sizes = cluster.burst - cluster.burst / 2 + 1;
    let cycle = sizes * NODES as u64;
    let mut number = 0;
    let mut frame = |frame: u64| {
        let size = cluster.size(client, frame);
        let taken = (number..number + size).filter(|number| counts(Cluster::receiver(client, *number))).count();
        number += size;
        taken as i128 * i128::from(MESSAGE)
    };
    let bytes: Vec<i128> = (0..cycle).map(&mut frame).collect();
    let length = i128::from(cluster.period.as_ns()) * i128::from(cycle);
    let rate = (bytes.iter().sum::<i128>() * SCALE).div_euclid(length) + 1;
    // The most that comes beyond the rate, in any window of whole frames.
    let (mut ending, mut most) = (0, 0);
    for bytes in bytes.iter().chain(&bytes) {
        ending = (ending - rate * i128::from(cluster.period.as_ns())).max(0) + bytes * SCALE;
        most = most.max(ending);
    }
    Some(Traffic { burst: u64::try_from(most.div_euclid(SCALE) + 1).ok()?, rate: u64::try_from(rate).ok()? })
}

pub(super) fn all_requests(cluster: &Cluster, client: usize) -> Option<Traffic> {
    traffic(cluster, client, |receiver| receiver != client)
}

/// A value for each pair of different nodes.
type Pairs<T> = Vec<Vec<T>>;

fn pairs<T>(mut of: impl FnMut(usize, usize) -> Option<T>) -> Option<Pairs<T>> {
    (0..NODES).map(|from| (0..NODES).map(|to| of(from, to)).collect()).collect()
}

/// Delays in ns: from the creation of a request, or from its arrival at the server, to the switch;
/// and through the port from node to node. Delays of a node to itself are ignored.
#[derive(Clone, PartialEq, Eq)]
struct Delays {
    request: Vec<u64>,
    reply: Vec<u64>,
    port: Pairs<u64>,
}

/// Bounds of the round trips of a cluster whose frames do not wait for each other, in any phases.
/// `None` where a line gets more than its rate.
pub(super) fn round_trips(cluster: &Cluster) -> Option<RoundTrips> {
    round_trips_in(cluster, &Surroundings::simulated(cluster))
}

/// The same with other lines and hosts. `None` also where other traffic has no class of its own.
pub(super) fn round_trips_in(cluster: &Cluster, around: &Surroundings) -> Option<RoundTrips> {
    let late = around.late.as_ns();
    let requests = pairs(|from, to| traffic(cluster, from, |receiver| receiver == to)?.delayed(late))?;
    let all = (0..NODES).map(|from| all_requests(cluster, from)?.delayed(late)).collect::<Option<Vec<Traffic>>>()?;
    let mut known = Delays { request: vec![0; NODES], reply: vec![0; NODES], port: vec![vec![0; NODES]; NODES] };
    for _ in 0..ROUNDS_MAX {
        let next = step((cluster, around), &requests, &all, &known)?;
        if next == known {
            return pairs(|client, server| {
                let there = known.request[client].checked_add(known.port[client][server])?;
                let back = known.reply[server].checked_add(known.port[server][client])?;
                Span::from_ns(there).checked_add(Span::from_ns(back))?.checked_add(around.hosts)
            });
        }
        known = next;
    }
    None
}

fn step(
    (cluster, around): (&Cluster, &Surroundings),
    requests: &Pairs<Traffic>,
    all: &[Traffic],
    known: &Delays,
) -> Option<Delays> {
    // Answers to node `to` as their requests come to `from`.
    let answers = pairs(|from, to| requests[to][from].delayed(known.request[to].checked_add(known.port[to][from])?))?;
    let own = |node: usize| {
        let others = (0..NODES).filter(|other| *other != node);
        others.map(|other| answers[node][other]).try_fold(Traffic::default(), Traffic::plus)
    };
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    for (node, requests) in all.iter().enumerate() {
        let [there, back] = egress((cluster, around), *requests, own(node)?)?;
        request.push(there);
        reply.push(back);
    }
    if !around.has_ports {
        return Some(Delays { request, reply, port: vec![vec![0; NODES]; NODES] });
    }
    let sent = |from: usize, to: usize| {
        let requests = requests[from][to].delayed(request[from])?;
        Some(Sent { traffic: requests.plus(answers[from][to].delayed(reply[from])?)?, packet: MESSAGE })
    };
    let ways: Vec<(usize, usize)> =
        (0..NODES).flat_map(|from| (0..NODES).filter(move |to| *to != from).map(move |to| (from, to))).collect();
    let all_sent: Vec<Sent> = ways.iter().map(|(from, to)| sent(*from, *to)).collect::<Option<_>>()?;
    let through: Vec<PortPath> =
        ways.iter().map(|(from, to)| PortPath { from: *from, to: *to, through: vec![*to] }).collect();
    let shared = vec![Shared { rate: around.link, latency: 0, cross: Traffic::default(), fifo: true }; NODES];
    let mut port = vec![vec![0; NODES]; NODES];
    for ((from, to), row) in ways.iter().zip(rows(&through, &all_sent, &shared)?) {
        port[*from][*to] = row.total();
    }
    Some(Delays { request, reply, port })
}

/// The longest delays of requests and of answers from a node to the switch.
fn egress((cluster, around): (&Cluster, &Surroundings), requests: Traffic, answers: Traffic) -> Option<[u64; 2]> {
    let (link, other) = (around.link, around.other());
    let bucket = |class: usize| cluster.classes.get(class).and_then(|class| class.bucket);
    let (Some(first), Some(second)) = (bucket(0), bucket(1)) else {
        // One queue in order of arrival: an output port like any other. Other traffic there has no bound.
        let all = requests.plus(answers)?;
        let delay = takt_analysis::distributed::delay::time(all.burst, link);
        let delay = delay.filter(|_| all.rate <= link && around.bulk == 0)?;
        return Some([delay, delay]);
    };
    let requests_bucket = Bucket { burst: first.burst.get(), rate: first.rate.as_bps(), packet: MESSAGE, link, other };
    // Requests go before answers. While answers have tokens, requests take at most σ + L + ρ t of
    // the link. So answers see a link of rate C - ρ, from which σ + L and one other packet are
    // taken first.
    let answers_bucket = Bucket {
        burst: second.burst.get(),
        rate: second.rate.as_bps(),
        packet: MESSAGE,
        link: link.checked_sub(first.rate.as_bps())?,
        other: first.burst.get() + MESSAGE + other,
    };
    Some([requests_bucket.fifo(requests, MESSAGE)?, answers_bucket.fifo(answers, MESSAGE)?])
}

/// Whether no round trip exceeds its bound, and the longest of all and of all bounds.
pub(super) fn compare(
    messages: impl IntoIterator<Item = (usize, usize, Span)>,
    bounds: &RoundTrips,
) -> (bool, Span, Span) {
    let (mut kept, mut longest) = (true, Span::ZERO);
    for (client, server, round_trip) in messages {
        kept &= round_trip <= bounds[client][server];
        longest = longest.max(round_trip);
    }
    let pairs = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
    let bound = pairs.filter(|(from, to)| from != to).map(|(from, to)| bounds[from][to]).max();
    (kept, longest, bound.unwrap_or(Span::ZERO))
}

#[cfg(test)]
mod tests {
    use takt_model::generate::Random;
    use takt_net::ClassSpec;

    use super::super::delays::{BURST, RATES, class, cluster};
    use super::*;

    /// How many random clusters; TAKT_CASES overrides.
    fn cases() -> u64 {
        std::env::var("TAKT_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
    }

    fn random(random: &mut Random) -> Cluster {
        let class = |rate: u64, messages: u64| class((messages * MESSAGE, rate));
        let (burst, frames) = (random.between(2, 30), random.between(100, 2_000));
        let needs = frames * (burst + 1) * MESSAGE * 8;
        let shares = random.between(0, 1) == 1;
        let classes = if shares {
            let rate = needs + random.between(0, needs);
            vec![class(rate, random.between(1, burst)), class(8 * rate, random.between(1, 8 * burst))]
        } else {
            vec![ClassSpec::fifo()]
        };
        Cluster {
            classes,
            period: Span::from_ns(1_000_000_000 / frames),
            burst,
            deadline: Span::from_ms(1),
            hosts: (Span::ZERO, Span::ZERO),
            tick: None,
            blocks: false,
        }
    }

    #[test]
    fn no_round_trip_of_a_random_cluster_exceeds_its_bound() {
        let mut bounded = 0;
        for seed in 0..cases() {
            let cluster = random(&mut Random::new(seed));
            let Some(bounds) = round_trips(&cluster) else { continue };
            let ran = cluster.run(seed, Span::from_ms(100)).map_err(|failure| failure.message).unwrap();
            let all = ran.messages.iter();
            let all = all.map(|message| (message.client, message.server, message.round_trip.unwrap()));
            let (kept, longest, bound) = compare(all, &bounds);
            assert!(kept, "seed {seed}: {longest} of {bound} in {cluster:?}");
            bounded += 1;
        }
        assert!(bounded > cases() / 2, "{bounded} of {}", cases());
    }

    #[test]
    fn slow_hosts_lengthen_round_trips_by_more_than_their_time() {
        let mut cluster = cluster(Some((BURST, RATES[0])));
        let ms = Span::from_ms;
        let bound = |line: (u64, u64), late: Span, hosts: Span| {
            round_trips_in(&cluster, &Surroundings::live(line, late, hosts)).map(|bounds| bounds[0][1])
        };
        let quick = bound((LINK, 0), Span::ZERO, Span::ZERO).expect("a bound");
        assert!(Some(quick) < round_trips(&cluster).map(|bounds| bounds[0][1]), "there is no port");
        let slow = bound((LINK, 0), Span::ZERO, ms(1)).expect("a bound");
        assert!(slow > quick.saturating_add(ms(1)), "frames come closer together: {slow} and {quick}");
        assert!(bound((LINK, 0), ms(1), ms(1)) > Some(slow));
        assert!(bound((100_000_000, 0), Span::ZERO, ms(1)) > Some(slow));
        assert!(bound((LINK, 1_538), Span::ZERO, ms(1)) > Some(slow));
        cluster.classes = vec![ClassSpec::fifo()];
        let all = |bulk: u64| round_trips_in(&cluster, &Surroundings::live((LINK, bulk), ms(1), ms(1)));
        assert_eq!([0, 1_538].map(|bulk| all(bulk).is_some()), [true, false]);
    }

    #[test]
    fn traffic_is_that_of_the_pattern() {
        let mut cluster = random(&mut Random::new(0));
        (cluster.burst, cluster.period) = (10, Span::from_ms(10));
        // The paper's frames of 5 to 10 messages, one in eight to the own node, need 2.45 Mbit/s.
        let all = all_requests(&cluster, 0).unwrap();
        assert_eq!(all.rate, 2_446_501);
        // 45 messages in six frames; the heaviest three are beyond the rate by 4.5 messages or
        // less.
        assert!((9 * MESSAGE..14 * MESSAGE).contains(&all.burst), "{all:?}");
    }
}
