//! The prober and its servers: at the ends of a cable of the test's own, beside clocks that differ,
//! through a broker, and against peers that do wrong.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use takt_dispatch::deadline::wire::{Answer, Request};
use takt_linux::clock::pause;
use takt_linux::net::{Cable, End};
use takt_linux::outgoing::Transport;
use takt_linux::seqpacket::{Listener, Received};
use takt_linux::tc::{self, Device, Plan, Rule};
use takt_model::{Bucket, Bytes, Link, Rate, Span, Time};
use takt_net::probe::{HEAD, Head, Pace, ProbeMessage, ScheduleSpec};
use takt_net::{LateRule, Order};
use takt_run::broker::{Broker, BrokerSpec};
use takt_run::probe::{
    BackgroundSpec, ClocksSpec, Figures, GroupSpec, ProbeClock, ProbeError, ProbeOutcome, ProbeServer, ProbeServerSpec,
    ProbeServerStats, ProbeSpec, probe,
};

#[path = "probe/peers.rs"]
mod peers;

/// Servers on threads of their own, until they are stopped.
struct Serving {
    addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<ProbeServerStats>>,
}

impl Serving {
    /// At these addresses, with these clocks. The calling thread's namespace is theirs.
    fn start(servers: Vec<(IpAddr, ProbeClock)>) -> Serving {
        Serving::of(servers.into_iter().map(|(at, clock)| (ProbeServerSpec::new((at, 0).into()), clock)).collect())
    }

    /// The same of servers with other options.
    fn of(servers: Vec<(ProbeServerSpec, ProbeClock)>) -> Serving {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut addresses, mut threads) = (Vec::new(), Vec::new());
        for (spec, clock) in servers {
            let server = ProbeServer::with_clock(&spec, clock).unwrap();
            addresses.push(server.address().unwrap());
            let stop = Arc::clone(&stop);
            let thread = std::thread::Builder::new().name("server".to_owned());
            threads.push(thread.spawn(move || server.serve(&|| stop.load(Ordering::Acquire))).unwrap());
        }
        Serving { addresses, stop, threads }
    }

    fn stop(self) -> Vec<ProbeServerStats> {
        self.stop.store(true, Ordering::Release);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
}

fn same() -> ProbeClock {
    Arc::new(|time| time)
}

fn cable() -> Option<Cable> {
    Cable::lay(false).inspect_err(|error| println!("skipped: {error}")).ok()
}

/// A paced measurement that waits for slow machines.
fn spec(servers: &[SocketAddr], mps: u32) -> ProbeSpec {
    let clocks = ClocksSpec { width_max: Span::from_s(60), ..ClocksSpec::default() };
    ProbeSpec {
        patience: Span::from_s(20),
        duration: Span::from_ms(400),
        clocks: Some(clocks),
        ..ProbeSpec::new(servers.to_vec(), Pace::BurstsPerSecond(mps))
    }
}

fn measure(spec: &ProbeSpec) -> ProbeOutcome {
    probe(spec, &|| false, &mut |_| {}).unwrap()
}

/// All that was sent came, once and in order, and was answered.
fn assert_whole(outcome: &ProbeOutcome, what: &str) {
    for server in &outcome.servers {
        let arrived = server.arrived.unwrap();
        assert!(server.sent > 0 && server.unsent == 0, "{what}: {server:?}");
        assert_eq!((arrived.received, arrived.bytes), (server.sent, server.sent_bytes), "{what}");
        assert_eq!((arrived.duplicates, arrived.reordered), (0, 0), "{what}");
        assert_eq!((server.asked, server.lost()), (server.answered, Some(0)), "{what}");
    }
    assert_eq!((outcome.foreign, outcome.skipped), (0, 0), "{what}");
    let answered: u64 = outcome.servers.iter().map(|server| server.answered).sum();
    assert_eq!(outcome.messages.len() as u64, answered, "{what}");
    for message in &outcome.messages {
        let reply = message.reply.unwrap();
        let sent = message.sent.unwrap();
        assert!(message.intended <= sent && sent <= reply.received, "{what}: {message:?}");
        if let Some((from, to)) = reply.arrived {
            assert!(sent <= from && from <= to && to <= reply.received, "{what}: {message:?}");
        }
    }
}

#[test]
fn messages_come_by_udp_and_tcp_over_ipv4_and_ipv6_from_one_to_many() {
    let Some(cable) = cable() else { return };
    let mut addresses = vec![IpAddr::V4(cable.right().address())];
    match cable.with_ipv6() {
        Ok([_, right]) => addresses.push(right.into()),
        Err(error) => println!("without IPv6: {error}"),
    }
    for address in addresses {
        let serving = cable.right().run(|| Serving::start(vec![(address, same()), (address, same())])).unwrap();
        for (transport, is_closed) in [
            (Transport::Datagram, false),
            (Transport::Datagram, true),
            (Transport::Stream, false),
            (Transport::Stream, true),
        ] {
            let what = format!("{address} {transport:?} closed {is_closed}");
            let mut spec = ProbeSpec { transport, is_closed, ..spec(&serving.addresses, 100) };
            spec.schedule = ScheduleSpec { burst: (2, 4), size: (64, 1400), seed: 7, ..spec.schedule };
            spec.warm_up = Span::from_ms(50);
            spec.background = Some(BackgroundSpec { rate: Rate::from_bps(1_000_000), size: 500, priority: 0 });
            let outcome = cable.left().run(|| measure(&spec)).unwrap();
            assert_whole(&outcome, &what);
            let [one, other] = outcome.servers.as_slice() else { panic!("{what}: two servers") };
            assert!(one.sent.abs_diff(other.sent) <= 1, "{what}: they take turns");
            assert!(outcome.background_bytes > 0, "{what}");
            let offsets = outcome.servers.iter().all(|server| server.offset.is_some());
            assert!(offsets, "{what}: the clocks are compared");
        }
        // Without a pace and without replies, as much as is taken.
        for transport in [Transport::Datagram, Transport::Stream] {
            let mut spec = ProbeSpec { transport, clocks: None, ..spec(&serving.addresses, 1) };
            spec.schedule = ScheduleSpec { reply_every: 0, size: (1000, 1000), ..ScheduleSpec::new(Pace::Max) };
            spec.duration = Span::from_ms(50);
            let outcome = cable.left().run(|| measure(&spec)).unwrap();
            for server in outcome.servers {
                let arrived = server.arrived.unwrap();
                assert!(arrived.received > 0 && arrived.received <= server.sent, "{server:?}");
                assert!(transport == Transport::Datagram || arrived.received == server.sent, "TCP loses nothing");
            }
            assert!(outcome.messages.is_empty());
        }
        let stats = serving.stop();
        assert!(stats.iter().all(|stats| (stats.runs, stats.malformed, stats.foreign) == (6, 0, 0)), "{stats:?}");
        assert!(stats.iter().all(|stats| stats.clock_requests > 0 && stats.unsent == 0), "{stats:?}");
    }
}

#[test]
fn a_message_to_a_group_comes_to_all_of_its_servers_over_ipv4_and_ipv6() {
    const PORT: u16 = 7462;
    let Some(cable) = cable() else { return };
    let mut groups = vec![(IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::from([239, 1, 2, 3]))];
    match cable.with_ipv6() {
        Ok(_) => groups.push((Ipv6Addr::UNSPECIFIED.into(), IpAddr::from([0xff15, 0, 0, 0, 0, 0, 1, 3]))),
        Err(error) => println!("without IPv6: {error}"),
    }
    for (any, group) in groups {
        let serve = |end: &End| {
            let (groups, group_device) = (vec![group], Some(end.device().to_owned()));
            let spec = ProbeServerSpec { groups, group_device, ..ProbeServerSpec::new((any, PORT).into()) };
            end.run(|| Serving::of(vec![(spec, same())])).unwrap()
        };
        // One server at each end: the near one shares the machine with the prober.
        let (far, near) = (serve(cable.right()), serve(cable.left()));
        let to = SocketAddr::new(group, PORT);
        for (loops, is_closed) in [(true, false), (true, true), (false, false)] {
            let what = format!("{group} loops {loops} closed {is_closed}");
            let (members, device) = (if loops { 2 } else { 1 }, Some(cable.left().device().to_owned()));
            let of = GroupSpec { device, ttl: 1, loops, members };
            let mut spec = ProbeSpec { is_closed, group: Some(of), ..spec(&[to], 100) };
            spec.schedule = ScheduleSpec { burst: (2, 4), size: (64, 1400), seed: 7, ..spec.schedule };
            spec.warm_up = Span::from_ms(50);
            let outcome = cable.left().run(|| measure(&spec)).unwrap();
            assert_whole(&outcome, &what);
            assert_eq!(outcome.servers.len(), members as usize, "{what}");
            let sent = outcome.servers[0].sent;
            assert!(outcome.servers.iter().all(|server| server.sent == sent), "{what}: each message to all");
            assert_eq!(outcome.messages.len() as u64, sent * u64::from(members), "{what}: a reply of each");
            assert!(outcome.servers.iter().all(|server| server.address.ip() != group), "{what}: own addresses");
            assert!(outcome.servers.iter().all(|server| server.offset.is_some()), "{what}: the clocks are compared");
        }
        // Without replies.
        let of = GroupSpec { device: Some(cable.left().device().to_owned()), ..GroupSpec::default() };
        let mut spec = ProbeSpec { clocks: None, group: Some(of), ..spec(&[to], 100) };
        spec.schedule.reply_every = 0;
        let outcome = cable.left().run(|| measure(&spec)).unwrap();
        let [server] = outcome.servers.as_slice() else { panic!("{group}: one server") };
        assert_eq!((server.lost(), outcome.messages.len()), (Some(0), 0), "{group}: {server:?}");
        // Two are wanted, and one is there.
        near.stop();
        let of = GroupSpec { device: Some(cable.left().device().to_owned()), members: 2, ..GroupSpec::default() };
        let spec = ProbeSpec { group: Some(of), ..spec };
        let refused = cable.left().run(|| probe(&spec, &|| false, &mut |_| {}).unwrap_err()).unwrap();
        assert!(matches!(refused, ProbeError::NoMembers { found: 1, wanted: 2, .. }), "{refused}");
        let stats = far.stop();
        assert_eq!((stats[0].runs, stats[0].malformed, stats[0].foreign), (5, 0, 0), "{stats:?}");
    }
}

/// What `tc` says of a device; `None`: there is no such program.
fn tc(arguments: &str) -> Option<String> {
    let output = Command::new("tc").args(arguments.split(' ')).output().ok()?;
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_network_sees_the_tos_byte_of_messages_and_replies() {
    const TOS: u8 = 0xb8;
    let Some(cable) = cable() else { return };
    let ends = [cable.left(), cable.right()];
    let mut addresses = vec![IpAddr::V4(cable.right().address())];
    match cable.with_ipv6() {
        Ok([_, right]) => addresses.push(right.into()),
        Err(error) => println!("without IPv6: {error}"),
    }
    // A class of each device counts the marked packets. The two bits of ECN belong to TCP.
    for end in ends {
        let device = end.device();
        let laid = end
            .run(|| {
                tc(&format!("qdisc add dev {device} root handle 1: htb default 20"))?;
                for class in ["10", "20"] {
                    tc(&format!("class add dev {device} parent 1: classid 1:{class} htb rate 1gbit quantum 3000"))?;
                }
                let filter = format!("filter add dev {device} parent 1:");
                tc(&format!("{filter} prio 1 protocol ip u32 match ip tos {TOS:#x} 0xfc flowid 1:10"))?;
                tc(&format!("{filter} prio 2 protocol ipv6 u32 match ip6 priority {TOS:#x} 0xfc flowid 1:10"))
            })
            .unwrap();
        if laid.is_none() {
            return println!("skipped: no tc");
        }
    }
    let marked = |end: &End| -> u64 {
        let text = end.run(|| tc(&format!("-s class show dev {} classid 1:10", end.device()))).unwrap().unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        let sent = words.windows(2).find(|pair| pair[1] == "pkt").unwrap_or_else(|| panic!("{text}"));
        sent[0].parse().unwrap()
    };
    for address in addresses {
        let server = ProbeServerSpec { tos: TOS, ..ProbeServerSpec::new((address, 0).into()) };
        let serving = cable.right().run(|| Serving::of(vec![(server, same())])).unwrap();
        for transport in [Transport::Datagram, Transport::Stream] {
            for tos in [0, TOS] {
                let what = format!("{address} {transport:?} {tos}");
                let before = ends.map(marked);
                let spec = ProbeSpec { transport, tos, clocks: None, ..spec(&serving.addresses, 100) };
                let outcome = cable.left().run(|| measure(&spec)).unwrap();
                assert_whole(&outcome, &what);
                let after = ends.map(marked);
                let [asked, replied] = [0, 1].map(|end| after[end] - before[end]);
                let sent = outcome.servers[0].sent;
                // TCP may put several messages into one packet, and has packets of its own.
                let least = if transport == Transport::Datagram { sent } else { 1 };
                assert!(if tos == 0 { asked == 0 } else { asked >= least }, "{what}: {asked} of {sent}");
                assert!(replied >= least, "{what}: {replied} of {sent}");
            }
        }
        serving.stop();
    }
}

#[test]
fn groups_and_marks_that_cannot_be_are_refused() {
    let group = SocketAddr::from(([239, 1, 2, 3], 7462));
    let here = SocketAddr::from(([127, 0, 0, 1], 9));
    let with = |servers: &[SocketAddr], group| ProbeSpec { group, ..spec(servers, 10) };
    let usual = || Some(GroupSpec::default());
    let refused = |spec: &ProbeSpec| probe(spec, &|| false, &mut |_| {}).unwrap_err().to_string();
    let none = Some(GroupSpec { device: Some("no such device".to_owned()), ..GroupSpec::default() });
    let many = Some(GroupSpec { members: 65, ..GroupSpec::default() });
    for (spec, says) in [
        (with(&[group], None), "239.1.2.3:7462 is a group (multicast), and no server"),
        (with(&[here], usual()), "127.0.0.1:9 is no group (multicast): groups are 224.0.0.0 to"),
        (with(&[here, group], usual()), "give one group, or the addresses of servers"),
        (ProbeSpec { transport: Transport::Stream, ..with(&[group], usual()) }, "TCP has none; leave out --tcp"),
        (with(&[group], many), "65 servers of group 239.1.2.3:7462; give from 1 to 64"),
        (with(&[group], none), "there is no network device \"no such device\"; `ip link` lists"),
        (ProbeSpec { transport: Transport::Stream, tos: 6, ..spec(&[here], 10) }, "TOS 6: the kernel keeps"),
    ] {
        let text = refused(&spec);
        assert!(text.contains(says), "{text}");
    }
    let serve = |spec: ProbeServerSpec| ProbeServer::bind(&spec).err().unwrap().to_string();
    let at = |listen: &str| ProbeServerSpec::new(listen.parse().unwrap());
    let groups = || vec![group.ip()];
    for (spec, says) in [
        (at("239.1.2.3:0"), "239.1.2.3 is a group (multicast), and no address to listen at; give it by --group"),
        (ProbeServerSpec { groups: groups(), ..at("127.0.0.1:0") }, "do not come to a socket at 127.0.0.1; leave out"),
        (ProbeServerSpec { groups: groups(), ..at("[::]:7") }, "one is IPv4, the other IPv6; give --listen 0.0.0.0:7"),
        (ProbeServerSpec { groups: vec![here.ip()], ..at("0.0.0.0:0") }, "127.0.0.1 is no group (multicast)"),
        (ProbeServerSpec { groups: vec![group.ip(); 21], ..at("0.0.0.0:0") }, "21 groups; a server takes 20 at most"),
        (ProbeServerSpec { group_device: Some("lo".to_owned()), ..at("0.0.0.0:0") }, "--mc-rx-if is for groups"),
    ] {
        let text = serve(spec);
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn one_way_intervals_hold_the_truth_beside_clocks_that_differ() {
    let Some(cable) = cable() else { return };
    // 3600 s ahead and 200 ppm fast; 5 s ahead and 200 ppm slow.
    for (ahead, ppm) in [(3_600_000_000_000, 200_i64), (5_000_000_000, -200)] {
        // The server asks its clock for the two times around each arrival, and for its answer.
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&asked);
        let clock: ProbeClock = Arc::new(move |time: Time| {
            if std::thread::current().name() == Some("server") {
                told.lock().unwrap().push(time);
            }
            let drift = i128::from(time.as_ns()) * i128::from(ppm) / 1_000_000;
            Time::from_ns((i128::from(time.as_ns()) + drift + ahead) as u64)
        });
        let address = IpAddr::V4(cable.right().address());
        let serving = cable.right().run(|| Serving::start(vec![(address, clock)])).unwrap();
        let mut spec = ProbeSpec { is_closed: true, ..spec(&serving.addresses, 500) };
        spec.schedule.deadline = Some(Span::from_s(30));
        let outcome = cable.left().run(|| measure(&spec)).unwrap();
        serving.stop();
        assert_whole(&outcome, "shifted");
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 3 * outcome.messages.len());
        let mut known = 0;
        for (message, truth) in outcome.messages.iter().zip(asked.chunks_exact(3)) {
            let reply = message.reply.unwrap();
            let Some((from, to)) = reply.arrived else { continue };
            known += 1;
            let (sent, end) = (message.sent.unwrap(), reply.stamped.unwrap_or(reply.received));
            assert!(from <= truth[0].max(sent) && truth[1].min(end) <= to, "{message:?} {truth:?}");
        }
        assert!(known * 2 > outcome.messages.len(), "{known} of {} are known", outcome.messages.len());
        let figures = Figures::of(&outcome.messages, 0);
        assert_eq!(figures.one_way_max.count(), known as u64);
        assert_eq!((figures.missed_round_trip, figures.missed_one_way_min), (0, 0));
    }
}

#[test]
fn clocks_that_are_not_known_well_give_no_one_way_delay() {
    let serving = Serving::start(vec![(IpAddr::from([127, 0, 0, 1]), same())]);
    let narrow = ClocksSpec { width_max: Span::from_ns(1), ..ClocksSpec::default() };
    for clocks in [Some(narrow), None] {
        let mut spec = ProbeSpec { clocks, ..spec(&serving.addresses, 100) };
        spec.schedule.deadline = Some(Span::from_s(30));
        let outcome = measure(&spec);
        assert_whole(&outcome, "narrow");
        let figures = Figures::of(&outcome.messages, 0);
        assert!(outcome.messages.iter().all(|message| message.one_way().is_none()));
        assert_eq!(figures.one_way_unknown, outcome.messages.len() as u64);
        // They are neither in time nor missed, one way. By the round trip they are in time.
        assert_eq!((figures.missed_one_way_min, figures.missed_one_way_max), (0, figures.deadlines));
        assert_eq!(figures.missed_round_trip, 0);
    }
    serving.stop();
}

/// A class of 20 Mbit/s with a fifth more than it can take. Returns the misses, at least and at most.
fn misses(cable: &Cable, order: Order, late: LateRule) -> Option<(u64, u64, u64)> {
    let rate = Rate::from_bps(20_000_000);
    let address = IpAddr::V4(cable.right().address());
    let serving = cable.right().run(|| Serving::start(vec![(address, same())])).unwrap();
    let socket = std::env::temp_dir().join(format!("takt-probe-{}-{order:?}", std::process::id()));
    let measured = || {
        let device = Device::find(cable.left().device()).unwrap().unwrap();
        let bucket = Some(Bucket { burst: Bytes::new(3000), rate });
        let link = Link { bucket, ..Link::at(Rate::from_bps(100_000_000)) };
        let shares = match tc::apply(&device, &Plan::new(&link, &device).unwrap(), &Rule::usual(false), false) {
            Ok(shares) => shares,
            Err(error) => {
                println!("skipped: {error}");
                return None;
            }
        };
        let broker = BrokerSpec { order, late, rate: Some(rate), priority: Some(6), ..BrokerSpec::new(&socket) };
        let mut broker = Broker::bind(broker).unwrap();
        let over = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            let broker = scope.spawn(|| broker.serve(&mut |_| over.load(Ordering::Acquire)));
            let mut spec = spec(&serving.addresses, 215);
            spec.schedule =
                ScheduleSpec { burst: (20, 40), size: (400, 400), deadline: Some(Span::from_ms(4)), ..spec.schedule };
            (spec.duration, spec.patience, spec.broker) = (Span::from_s(1), Span::from_s(4), Some(socket.clone()));
            let outcome = measure(&spec);
            over.store(true, Ordering::Release);
            broker.join().unwrap();
            outcome
        });
        shares.restore().unwrap();
        Some(outcome)
    };
    let result = cable.left().run(measured).unwrap();
    serving.stop();
    let outcome = result?;
    let broker = outcome.broker.unwrap();
    assert_eq!((broker.plain, broker.lost), (0, 0), "all went through the broker");
    assert_eq!(broker.queued, outcome.servers[0].sent);
    let lost = outcome.servers[0].lost().unwrap();
    let figures = Figures::of(&outcome.messages, lost);
    println!("{order:?}: {} to {} of {}", figures.missed_one_way_min, figures.missed_one_way_max, figures.deadlines);
    Some((figures.missed_one_way_min, figures.missed_one_way_max, figures.deadlines))
}

#[test]
fn deadlines_through_the_broker_are_missed_less_by_edf_than_by_fifo() {
    let Some(cable) = cable() else { return };
    let Some((fifo, ..)) = misses(&cable, Order::Fifo, LateRule::Send) else { return };
    let Some((_, edf, all)) = misses(&cable, Order::Edf, LateRule::Drop) else { return };
    assert!(edf < fifo, "{edf} by deadlines, {fifo} first in, first out, of {all}");
}

#[test]
fn impossible_probes_are_refused() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let here = silent.local_addr().unwrap();
    let refused = |spec: &ProbeSpec| probe(spec, &|| false, &mut |_| {}).unwrap_err();
    assert!(matches!(refused(&spec(&[here], 10)), ProbeError::NoAnswer(at) if at == here));
    let by_tcp = ProbeSpec { transport: Transport::Stream, ..spec(&[here], 10) };
    assert!(matches!(refused(&by_tcp), ProbeError::Connect { server, .. } if server == here));
    let value = |spec: &ProbeSpec| matches!(refused(spec), ProbeError::Value(_));
    let other = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 9));
    assert!(value(&spec(&[], 10)) && value(&spec(&[here, other], 10)) && value(&spec(&[here, here], 10)));
    assert!(value(&spec(&[here], 0)) && value(&spec(&[here], 2_000_000)));
    assert!(value(&ProbeSpec { duration: Span::ZERO, ..spec(&[here], 1) }));
    let mut many = spec(&[here], 1_000_000);
    many.duration = Span::from_s(10);
    assert!(value(&many));
    let serving = Serving::start(vec![(IpAddr::from([127, 0, 0, 1]), same())]);
    let mut no_broker = spec(&serving.addresses, 10);
    no_broker.broker = Some(std::env::temp_dir().join("takt-probe-no-broker"));
    assert!(value(&no_broker), "without deadlines");
    no_broker.schedule.deadline = Some(Span::from_ms(1));
    assert!(matches!(refused(&no_broker), ProbeError::NoBroker(_)));
    pause(Span::from_ms(1));
    serving.stop();
}

#[test]
fn a_run_that_ends_within_a_burst_awaits_its_replies() {
    // The server asks its clock when the first message came. Then the run is stopped.
    let has_come = Arc::new(AtomicBool::new(false));
    let came = Arc::clone(&has_come);
    let clock: ProbeClock = Arc::new(move |time| {
        came.store(true, Ordering::Release);
        time
    });
    let serving = Serving::start(vec![(IpAddr::from([127, 0, 0, 1]), clock)]);
    let mut spec = ProbeSpec { transport: Transport::Stream, is_closed: true, ..spec(&serving.addresses, 1) };
    spec.schedule = ScheduleSpec { burst: (3000, 3000), ..ScheduleSpec::new(Pace::Max) };
    (spec.duration, spec.clocks) = (Span::from_s(60), None);
    let outcome = probe(&spec, &|| has_come.load(Ordering::Acquire), &mut |_| {}).unwrap();
    assert_whole(&outcome, "one burst");
    assert!(outcome.is_stopped);
    serving.stop();
}

#[test]
fn a_run_through_a_broker_that_stands_still_ends() {
    let path = std::env::temp_dir().join(format!("takt-probe-still-{}", std::process::id()));
    let listener = Listener::bind(&path).unwrap();
    let serving = Serving::start(vec![(IpAddr::from([127, 0, 0, 1]), same())]);
    let over = AtomicBool::new(false);
    let broker = || {
        let (mut client, mut bytes) = (None, vec![0; HEAD + takt_dispatch::deadline::wire::MESSAGE_MAX]);
        while !over.load(Ordering::Acquire) {
            pause(Span::from_ms(1));
            client = client.or_else(|| listener.accept().unwrap());
            let Some(Received::Message(length, _)) = client.as_ref().map(|client| client.receive(&mut bytes)) else {
                continue;
            };
            // It takes the socket, and then sends nothing.
            let answer = match Request::read(&bytes[..length]) {
                Some(Request::Hello { version }) => Answer::Welcome { version },
                Some(Request::Join { socket }) => Answer::Joined { socket },
                _ => continue,
            };
            client.as_ref().map(|client| client.send([&answer.write(), b""], None));
        }
    };
    let outcome = std::thread::scope(|scope| {
        scope.spawn(broker);
        let mut spec = ProbeSpec { clocks: None, broker: Some(path), ..spec(&serving.addresses, 10_000) };
        (spec.duration, spec.patience) = (Span::from_ms(200), Span::from_ms(200));
        spec.schedule.deadline = Some(Span::from_s(1));
        let outcome = probe(&spec, &|| false, &mut |_| {});
        over.store(true, Ordering::Release);
        outcome.unwrap()
    });
    assert!(outcome.servers[0].sent <= 64, "{:?}", outcome.servers);
    serving.stop();
}

#[test]
fn a_run_that_ends_frees_its_place_and_a_full_server_says_so() {
    let serving = Serving::start(vec![(IpAddr::from([127, 0, 0, 1]), same())]);
    let to = serving.addresses[0];
    let mut short = ProbeSpec { is_closed: true, clocks: None, duration: Span::from_ms(1), ..spec(&[to], 1) };
    for _ in 0..40 {
        assert_whole(&measure(&short), "one of many");
    }
    let open = |run| Head { run, length: HEAD as u32, message: ProbeMessage::Open }.write();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut streams = Vec::new();
    for run in 0..32 {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = [0; HEAD];
        socket.send_to(&open(run), to).unwrap();
        socket.recv(&mut bytes).unwrap();
        assert!(matches!(Head::read(&bytes).unwrap().message, ProbeMessage::Welcome { .. }), "{run}");
        stream.write_all(&open(run)).unwrap();
        stream.read_exact(&mut bytes).unwrap();
        assert!(matches!(Head::read(&bytes).unwrap().message, ProbeMessage::Welcome { .. }), "{run}");
        streams.push(stream);
    }
    for transport in [Transport::Datagram, Transport::Stream] {
        short.transport = transport;
        let error = probe(&short, &|| false, &mut |_| {}).unwrap_err();
        assert!(matches!(error, ProbeError::Full(at) if at == to), "{transport:?}: {error}");
    }
    assert_eq!(serving.stop()[0].runs, 40 + 64);
}

#[test]
fn a_stop_is_seen_before_and_during_a_run() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind(silent.local_addr().unwrap()).unwrap();
    let here = listener.local_addr().unwrap();
    for transport in [Transport::Datagram, Transport::Stream] {
        let spec = ProbeSpec { transport, ..spec(&[here], 10) };
        let error = probe(&spec, &|| true, &mut |_| {}).unwrap_err();
        assert!(matches!(error, ProbeError::Stopped), "{transport:?}: {error}");
    }
    let serving = Serving::start(vec![(IpAddr::from([127, 0, 0, 1]), same())]);
    for is_closed in [false, true] {
        let mut spec = ProbeSpec { is_closed, clocks: None, ..spec(&serving.addresses, 100) };
        spec.duration = Span::from_s(60);
        let stop = AtomicBool::new(false);
        let outcome = probe(&spec, &|| stop.load(Ordering::Acquire), &mut |progress| {
            stop.store(progress.sent > 0, Ordering::Release);
        });
        let outcome = outcome.unwrap();
        let server = outcome.servers[0];
        assert!(outcome.is_stopped && outcome.skipped > 0 && server.sent > 0, "{server:?}");
        assert_eq!(server.asked, server.answered, "closed {is_closed}");
    }
    serving.stop();
}

#[test]
fn lines_of_a_playback_after_the_end_are_counted_as_skipped() {
    let serving = Serving::start(vec![(IpAddr::from([127, 0, 0, 1]), same())]);
    let mut spec = ProbeSpec { clocks: None, ..spec(&serving.addresses, 1) };
    let late = Time::ZERO.saturating_add(Span::from_s(4000));
    spec.schedule = ScheduleSpec::new(Pace::Playback(vec![(Time::ZERO, 64), (late, 64), (late, 64)]));
    let outcome = measure(&spec);
    assert_eq!((outcome.servers[0].sent, outcome.skipped), (1, 2));
    serving.stop();
}
