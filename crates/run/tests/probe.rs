//! The prober and its servers: at the ends of a cable of the test's own, beside clocks that differ,
//! through a broker, and against peers that do wrong.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use takt_linux::clock::pause;
use takt_linux::net::Cable;
use takt_linux::outgoing::Transport;
use takt_linux::tc::{self, Device, Plan, Rule};
use takt_model::{Bucket, Bytes, Link, Rate, Span, Time};
use takt_net::probe::{HEAD, Head, Pace, ProbeMessage, ScheduleSpec, ServerCounts};
use takt_net::{LateRule, Order};
use takt_run::broker::{Broker, BrokerSpec};
use takt_run::probe::{
    BackgroundSpec, ClocksSpec, Figures, ProbeClock, ProbeError, ProbeOutcome, ProbeServer, ProbeServerSpec,
    ProbeServerStats, ProbeSpec, probe,
};

/// Servers on threads of their own, until they are stopped.
struct Serving {
    addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<ProbeServerStats>>,
}

impl Serving {
    /// At these addresses, with these clocks. The calling thread's namespace is theirs.
    fn start(servers: Vec<(IpAddr, ProbeClock)>) -> Serving {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut addresses, mut threads) = (Vec::new(), Vec::new());
        for (at, clock) in servers {
            let spec = ProbeServerSpec { listen: (at, 0).into(), priority: 5 };
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

/// Runs something at one end of the cable.
fn at<T: Send>(end: &takt_linux::net::End, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            end.enter().unwrap();
            body()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
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
        let serving = at(cable.right(), || Serving::start(vec![(address, same()), (address, same())]));
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
            let outcome = at(cable.left(), || measure(&spec));
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
            let outcome = at(cable.left(), || measure(&spec));
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
        let serving = at(cable.right(), || Serving::start(vec![(address, clock)]));
        let mut spec = ProbeSpec { is_closed: true, ..spec(&serving.addresses, 500) };
        spec.schedule.deadline = Some(Span::from_s(30));
        let outcome = at(cable.left(), || measure(&spec));
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
    let serving = at(cable.right(), || Serving::start(vec![(address, same())]));
    let socket = std::env::temp_dir().join(format!("takt-probe-{}-{order:?}", std::process::id()));
    let result = at(cable.left(), || {
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
    });
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
fn malformed_and_foreign_messages_are_dropped_and_counted() {
    let serving = Serving::start(vec![(IpAddr::from([127, 0, 0, 1]), same())]);
    let to = serving.addresses[0];
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let message = |run, message| Head { run, length: HEAD as u32, message }.write();
    let data = ProbeMessage::Data { number: 0, sent: Time::ZERO, wants_reply: true, is_warm_up: false };
    // No message, one of the wrong length, one of a run that nobody opened, and one of a server.
    socket.send_to(b"no message", to).unwrap();
    socket.send_to(&[&message(1, ProbeMessage::Open)[..], b"x"].concat(), to).unwrap();
    socket.send_to(&message(1, data), to).unwrap();
    socket.send_to(&message(2, ProbeMessage::Open), to).unwrap();
    socket.send_to(&message(2, ProbeMessage::Report(ServerCounts::default())), to).unwrap();
    // Twice the same number, and one beyond all.
    let number = |number| ProbeMessage::Data { number, sent: Time::ZERO, wants_reply: true, is_warm_up: false };
    for of in [5, 5, 3, u64::MAX] {
        socket.send_to(&message(2, number(of)), to).unwrap();
    }
    // The same run from another address.
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&message(2, number(9)), to).unwrap();
    socket.send_to(&message(2, ProbeMessage::Ask), to).unwrap();
    let mut came = Vec::new();
    let mut bytes = [0; 2048];
    while !matches!(came.last(), Some(ProbeMessage::Report(_))) {
        let (length, _) = socket.recv_from(&mut bytes).unwrap();
        came.push(Head::of_datagram(&bytes[..length]).unwrap().message);
    }
    let [
        ProbeMessage::Welcome { .. },
        ProbeMessage::Reply { number: 5, .. },
        ProbeMessage::Reply { number: 3, .. },
        ProbeMessage::Report(report),
    ] = came.as_slice()
    else {
        panic!("{came:?}")
    };
    let ServerCounts { received, bytes, duplicates, reordered, .. } = *report;
    assert_eq!((received, bytes, duplicates, reordered), (2, 128, 1, 1));
    // A stream of such bytes is closed.
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&[0; HEAD]).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    let stats = serving.stop()[0];
    assert_eq!((stats.malformed, stats.foreign, stats.runs, stats.replies), (3, 3, 1, 2), "{stats:?}");
}

/// A server that loses every fifth message, answers the others twice, and each tenth too late in
/// the order.
fn wrong(socket: &UdpSocket, stop: &AtomicBool) {
    let mut bytes = [0; 2048];
    let mut received = 0;
    let mut held = None;
    while !stop.load(Ordering::Acquire) {
        let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
        let Some(head) = Head::of_datagram(&bytes[..length]) else { continue };
        let send = |head: Head| drop(socket.send_to(&head.write(), from));
        let message = match head.message {
            ProbeMessage::Open => ProbeMessage::Welcome { clock_port: 9, sink_port: 9, kernel_stamps: true },
            ProbeMessage::Ask => ProbeMessage::Report(ServerCounts { received, ..ServerCounts::default() }),
            ProbeMessage::Data { number, .. } if number % 5 == 4 => continue,
            ProbeMessage::Data { number, sent, .. } => {
                received += 1;
                let time = Time::ZERO;
                let reply =
                    ProbeMessage::Reply { number, sent, received_from: time, received_to: time, answered: time };
                if number % 10 == 0 {
                    held = Some(Head { message: reply, ..head });
                    continue;
                }
                send(Head { message: reply, ..head });
                if let Some(held) = held.take() {
                    send(held);
                }
                // Of another run, with a false time, and no message.
                send(Head { run: head.run ^ 1, message: reply, ..head });
                let ProbeMessage::Reply { sent, .. } = reply else { continue };
                let sent = sent.saturating_add(Span::from_ns(1));
                let time = Time::ZERO;
                send(Head {
                    message: ProbeMessage::Reply {
                        number,
                        sent,
                        received_from: time,
                        received_to: time,
                        answered: time,
                    },
                    ..head
                });
                let _ = socket.send_to(b"x", from);
                reply
            }
            _ => continue,
        };
        send(Head { message, ..head });
    }
}

#[test]
fn losses_duplicates_and_changes_of_order_are_counted() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let address = socket.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    let mut spec = ProbeSpec { patience: Span::from_s(5), ..spec(&[address], 100) };
    spec.schedule.deadline = Some(Span::from_s(30));
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| wrong(&socket, &stop));
        let outcome = measure(&spec);
        stop.store(true, Ordering::Release);
        outcome
    });
    let server = outcome.servers[0];
    assert_eq!((server.sent, server.asked), (40, 40));
    // Of 40 messages 32 are answered; 28 of these twice; the 4 others after the one that follows.
    assert_eq!((server.lost(), server.answered), (Some(8), 32));
    assert_eq!((server.duplicate_replies, server.reordered_replies), (28, 4));
    assert_eq!(outcome.foreign, 3 * 28);
    assert!(outcome.messages.iter().all(|message| message.reply.is_some() == (message.number % 5 != 4)));
    // Its clock is silent, so nothing is known one way but of the lost ones.
    let figures = Figures::of(&outcome.messages, 8);
    assert_eq!((figures.missed_one_way_min, figures.missed_one_way_max, figures.missed_round_trip), (8, 40, 8));
    assert!(server.offset.is_none());
}

#[test]
fn what_cannot_be_measured_is_refused() {
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
