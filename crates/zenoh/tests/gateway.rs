//! Gateways between sessions of Zenoh that are connected over loopback TCP, at ports of their own;
//! nothing is looked for on any network. Nothing here asserts how long anything took.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use takt_dispatch::event::wire::{Body, Datagram};
use takt_dispatch::event::{
    Channel, Clock, Connected, EventError, Filter, Full, Head, Options, PEER_FOUND, PEER_LOST, Pattern,
};
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations, Plan, StartError};
use takt_linux::process::KillOnDrop;
use takt_linux::{Class, Epoch, clock, sched};
use takt_model::{Builtin, Span, Time};
use takt_zenoh::zenoh::{self, Config, Session, Wait};
use takt_zenoh::{CongestionControl, Gateway, OpenError, Opened, Priority, Route, Traffic, header};

const TRACK: u32 = 1;
const MAP: u32 = 2;

/// One after the other: they share CPUs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until something is so, for 20 s at most.
fn until(so: impl Fn() -> bool) -> bool {
    let epoch = Epoch::now_is_zero();
    while epoch.now() < Time::ZERO + Span::from_s(20) {
        if so() {
            return true;
        }
        clock::pause(Span::from_ms(1));
    }
    so()
}

/// A session on this machine that listens at a port, or connects to a port.
fn config(listen: Option<u16>, connect: Option<u16>) -> Config {
    let mut config = Config::default();
    let at = |port: Option<u16>| port.map_or("[]".to_owned(), |port| format!("[\"tcp/127.0.0.1:{port}\"]"));
    for (key, value) in [
        ("mode", "\"peer\"".to_owned()),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("scouting/gossip/enabled", "false".to_owned()),
        ("listen/endpoints", at(listen)),
        ("connect/endpoints", at(connect)),
    ] {
        config.insert_json5(key, &value).unwrap();
    }
    config
}

fn connected_to(port: u16) -> Session {
    zenoh::open(config(None, Some(port))).wait().unwrap()
}

/// A session, and the port at which it listens.
fn listening() -> (Session, u16) {
    // Another process may take the port in between.
    let open = || {
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        Some((zenoh::open(config(Some(port), None)).wait().ok()?, port))
    };
    (0..20).find_map(|_| open()).expect("a free port")
}

/// The observations of a handler: the event, its payload, its class and its thread.
type Received = Arc<Mutex<Vec<(Head, Vec<u8>, Class, String)>>>;

/// A robot as far as the others see it.
struct Robot {
    channel: Channel,
    dispatching: Dispatching,
    /// The observations of the operation of level 0, and of the operation of level 1.
    seen: [Received; 2],
    connected: Option<Connected>,
    gateway: Option<Opened>,
}

/// An operation for tracks and news of peers, and a less important operation for maps.
fn plan() -> Plan {
    let sporadic =
        |name| Operation::sporadic(name, Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1)).backlog(50);
    let operations = Operations::new("robot").with(sporadic("track")).with(sporadic("map").noncritical());
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    operations.compute(&Builtin::Muf.strategy(), &limits).unwrap()
}

/// These operations, and a gateway.
fn robot(session: &Session, gateway: &Gateway) -> Option<Robot> {
    let plan = plan();
    let channel = Channel::new(Options::default());
    let filters =
        [Filter::any([TRACK, PEER_FOUND, PEER_LOST].map(|kind| Pattern::kind(kind).into())), Pattern::kind(MAP).into()];
    let seen: [Received; 2] = Default::default();
    let mut dispatcher = Dispatcher::new(plan.clone());
    for ((name, filter), seen) in ["track", "map"].into_iter().zip(filters).zip(&seen) {
        let (subscription, seen) = (channel.subscribe(&plan, name, filter).unwrap(), seen.clone());
        let handler = subscription.handler(move |delivery, _| {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            let event = delivery.first();
            seen.lock().unwrap().push((event.head, event.payload.to_vec(), sched::current(), thread));
        });
        dispatcher = dispatcher.on(name, handler).unwrap();
    }
    let opened = gateway.open(session, &channel, &plan).unwrap();
    let dispatching = match dispatcher.start() {
        Ok(dispatching) => dispatching,
        Err(StartError::Privilege { missing }) => {
            println!("skipped: {missing}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let connected = channel.connect(&dispatching).unwrap();
    Some(Robot { channel, dispatching, seen, connected: Some(connected), gateway: Some(opened) })
}

impl Robot {
    fn traffic(&self) -> Traffic {
        self.gateway.as_ref().unwrap().traffic()
    }

    /// The payloads of what came of a type.
    fn payloads(&self, level: usize, kind: u32) -> Vec<Vec<u8>> {
        let seen = self.seen[level].lock().unwrap();
        seen.iter().filter(|(head, ..)| head.kind == kind).map(|(_, payload, ..)| payload.clone()).collect()
    }

    fn count(&self, level: usize, kind: u32) -> usize {
        self.payloads(level, kind).len()
    }
}

/// Two routes, and everything of the fleet heard.
fn gateway(node: u64) -> Gateway {
    let gateway = Gateway::new(node, "fleet")
        .with(Route::new("tracks").sends(Pattern::kind(TRACK)))
        .with(Route::new("maps").sends(Pattern::kind(MAP)).level(1))
        .subscribe("fleet/*/*");
    // A machine that pauses for a while forgets nobody.
    Gateway { forgotten_after: Span::from_s(600), ..gateway }
}

/// Two robots that know of each other, and the port of the first.
fn pair(left: &Gateway, right: &Gateway) -> Option<(Robot, Robot, u16)> {
    let (session, port) = listening();
    let (one, two) = robot(&session, left).zip(robot(&connected_to(port), right))?;
    let know = |robot: &Robot, node| robot.traffic().peers.contains(&node);
    assert!(until(|| know(&one, right.node) && know(&two, left.node)), "they hear of each other");
    Some((one, two, port))
}

#[test]
fn events_reach_the_other_robot_with_type_source_payload_and_what_is_left_of_their_time() {
    let _alone = alone();
    let Some((left, right, _)) = pair(&gateway(1), &gateway(2)) else { return };
    let (radar, atlas) = (left.channel.supplier(7), right.channel.supplier(8));
    for number in 0..20_u8 {
        let pushed = radar.push_for(TRACK, &[number], Span::from_s(30)).unwrap();
        assert_eq!((pushed.sent, pushed.unsent, pushed.taken), (1, 0, 1), "to the route, and to the consumer here");
        assert_eq!(atlas.push(MAP, &[number]).unwrap().sent, 1);
        assert_eq!(radar.push(9, &[number]).unwrap().sent, 0, "by no route");
        assert!(until(|| right.count(0, TRACK) > usize::from(number) && left.count(1, MAP) > usize::from(number)));
    }
    let expected: Vec<Vec<u8>> = (0..20).map(|number| vec![number]).collect();
    assert_eq!((right.payloads(0, TRACK), left.payloads(1, MAP)), (expected.clone(), expected));
    for (robot, level, kind, source) in [(&right, 0, TRACK, 7), (&left, 1, MAP, 8)] {
        let class = Class::Fifo { priority: robot.dispatching.plan().levels[level].priority };
        let seen = robot.seen[level].lock().unwrap();
        for (at, (head, _, there, thread)) in seen.iter().filter(|(head, ..)| head.kind == kind).enumerate() {
            assert_eq!((head.source, there), (source, &class));
            assert!(thread.contains("worker"), "a handler on the thread {thread}");
            let whole = head.expires.saturating_since(head.sent);
            assert!(kind == MAP || (whole <= Span::from_s(30) && whole > Span::ZERO), "{at}: {whole}");
        }
    }
    assert!(until(|| left.traffic().routes[0].waiting == 0 && right.traffic().routes[1].waiting == 0));
    let (one, two) = (left.traffic(), right.traffic());
    assert_eq!((one.routes[0].sent, two.events, two.late, two.unsynchronized), (20, 20, 0, 0));
    assert_eq!((two.routes[1].sent, one.events, one.loops, one.malformed), (20, 20, 0, 0), "none comes back");
}

#[test]
fn samples_carry_the_priority_of_their_route_and_the_payload_as_it_is() {
    let _alone = alone();
    let maps = Route::new("maps").sends(Pattern::kind(MAP)).level(1).congestion(CongestionControl::Block);
    let left = Gateway::new(1, "fleet").with(Route::new("tracks").sends(Pattern::kind(TRACK))).with(maps);
    let (session, port) = listening();
    let raw = connected_to(port);
    let (samples, came) = std::sync::mpsc::channel();
    let subscriber = raw.declare_subscriber("fleet/**").callback(move |sample| drop(samples.send(sample)));
    let subscriber = subscriber.wait().unwrap();
    let told = Arc::new(Mutex::new(0));
    let (alive, counted) = (raw.liveliness().declare_subscriber("fleet/**").history(true), told.clone());
    let alive = alive.callback(move |_| *counted.lock().unwrap() += 1).wait().unwrap();
    let Some(left) = robot(&session, &left) else { return };
    assert!(until(|| *told.lock().unwrap() == 1), "its token");
    // Whether the subscription has come there nobody tells: it is pushed until one arrives.
    let supplier = left.channel.supplier(7);
    let next = |kind| {
        let mut found = None;
        for _ in 0..2_000 {
            supplier.push(kind, b"north").unwrap();
            found = came.recv_timeout(std::time::Duration::from_millis(10)).ok();
            while found.as_ref().is_some_and(|sample| !sample.key_expr().as_str().ends_with(&kind.to_string())) {
                found = came.try_recv().ok();
            }
            if found.is_some() {
                break;
            }
        }
        found.expect("a sample")
    };
    let track = next(TRACK);
    assert_eq!((track.key_expr().as_str(), track.priority(), track.express()), ("fleet/1/1", Priority::RealTime, true));
    assert_eq!(track.congestion_control(), CongestionControl::Drop);
    assert_eq!(&*track.payload().to_bytes(), b"north");
    let mut bytes = Vec::new();
    let attachment = track.attachment().unwrap().to_bytes();
    let (datagram, route) = header::read(&attachment, b"north", &mut bytes).unwrap();
    assert_eq!((datagram.node, datagram.hops, route, datagram.remaining), (1, 0, 0, Span::MAX));
    assert_eq!(datagram.clock, Clock::Machine.number());
    let map = next(MAP);
    assert_eq!((map.key_expr().as_str(), map.priority(), map.express()), ("fleet/1/2", Priority::DataHigh, false));
    assert_eq!(map.congestion_control(), CongestionControl::Block);
    drop((subscriber, alive));
}

#[test]
fn events_that_all_publish_anew_end_and_are_counted() {
    let _alone = alone();
    let Some((left, right, _)) = pair(&gateway(1).forwarding(), &gateway(2).forwarding()) else { return };
    let supplier = left.channel.supplier(7);
    for number in 1..=20 {
        supplier.push(TRACK, b"around").unwrap();
        assert!(until(|| left.traffic().loops == number), "{:?}", left.traffic());
    }
    assert!(until(|| right.traffic().forwarded == 20));
    let (one, two) = (left.traffic(), right.traffic());
    assert_eq!((two.events, two.forwarded, two.loops, two.duplicates), (20, 20, 0, 0));
    assert_eq!((one.events, one.forwarded, one.duplicates, one.malformed), (0, 0, 0, 0));
    assert!(until(|| right.count(0, TRACK) == 20));
    assert_eq!(left.count(0, TRACK), 20, "each once, when it was pushed");
}

/// An attachment by hand.
fn by_hand(node: u64, sequence: u64, clock: u64, sent: u64, remaining: Span, payload: &[u8]) -> Datagram<'_> {
    let body = Body::Event { kind: TRACK, source: 7, number: 0, payload };
    Datagram { hops: 0, node, incarnation: 5, sequence, clock, sent, remaining, due: Span::MAX, body }
}

#[test]
fn invalid_samples_are_counted_and_dropped() {
    let _alone = alone();
    let (session, port) = listening();
    let Some(robot) = robot(&session, &gateway(2)) else { return };
    let raw = connected_to(port);
    let mut expected = robot.traffic();
    // The puts of this session come in order.
    let mut put = |key: &str, payload: &[u8], attachment: Option<Vec<u8>>, change: &dyn Fn(&mut Traffic)| {
        let before = robot.traffic();
        change(&mut expected);
        let came = || {
            raw.put(key, payload).attachment(attachment.clone()).wait().unwrap();
            until(|| robot.traffic() != before)
        };
        assert!(came() && until(|| robot.traffic() == expected), "{key}: {expected:?} and not {:?}", robot.traffic());
    };
    let forever = |node, sequence| by_hand(node, sequence, 0, 0, Span::MAX, b"a");
    let written = |datagram: &Datagram<'_>| Some(header::write(datagram, 0).to_vec());
    // It is pushed again until the subscription has come there.
    let malformed = |traffic: &mut Traffic| traffic.malformed += 1;
    assert!(until(|| {
        let _ = raw.put("fleet/5/1", "").wait();
        clock::pause(Span::from_ms(20));
        robot.traffic().malformed > 0
    }));
    // Nothing of that is still under way once a sample behind it has come.
    let fence = || {
        let before = robot.traffic().loops;
        raw.put("fleet/2/1", b"a").attachment(header::write(&forever(2, 0), 0).to_vec()).wait().unwrap();
        assert!(until(|| robot.traffic().loops > before));
    };
    fence();
    let base = robot.traffic();
    put("fleet/5/1", b"a", None, &|traffic| *traffic = Traffic { malformed: base.malformed + 1, ..base.clone() });
    put("fleet/5/1", b"a", Some(b"takt".to_vec()), &malformed);
    put("fleet/5/1", b"ab", written(&forever(5, 0)), &malformed);
    put("fleet/5/2", b"a", written(&forever(5, 0)), &malformed);
    put("fleet/6/1", b"a", written(&forever(5, 0)), &malformed);
    put("fleet/5/01", b"a", written(&forever(5, 0)), &malformed);
    put("fleet/5/x", b"a", written(&forever(5, 0)), &malformed);
    let long = [0; 257];
    put("fleet/5/1", &long, written(&by_hand(5, 0, 0, 0, Span::MAX, &long)), &malformed);
    put("fleet/5/1", b"a", Some(header::write(&forever(5, 0), 16).to_vec()), &malformed);
    put("fleet/2/1", b"a", written(&forever(2, 0)), &|traffic| traffic.loops += 1);
    put("fleet/9/1", b"a", written(&Datagram { hops: 1, ..forever(2, 0) }), &|traffic| traffic.loops += 1);
    put("fleet/5/1", b"a", written(&Datagram { hops: 17, ..forever(5, 0) }), &|traffic| traffic.loops += 1);
    // A publisher that has access to the keys of node 9 only.
    for hops in [0, 1, 17] {
        put("fleet/9/1", b"a", written(&Datagram { hops, ..forever(5, u64::MAX - 1) }), &malformed);
    }
    let new = |traffic: &mut Traffic| {
        traffic.events += 1;
        traffic.unsynchronized += 1;
    };
    put("fleet/5/1", b"a", written(&forever(5, 10)), &new);
    put("fleet/5/1", b"a", written(&forever(5, 10)), &|traffic| traffic.duplicates += 1);
    put("fleet/5/1", b"a", Some(header::write(&forever(5, 10), 1).to_vec()), &new);
    put("fleet/5/1", b"a", written(&Datagram { incarnation: 4, ..forever(5, 11) }), &|traffic| traffic.old += 1);
    put("fleet/5/1", b"a", written(&forever(5, 5000)), &new);
    put("fleet/5/1", b"a", written(&forever(5, 11)), &|traffic| traffic.old += 1);
    raw.delete("fleet/5/1").wait().unwrap();
    assert!(until(|| robot.traffic().malformed == base.malformed + 13), "a deletion is no event");
    assert!(until(|| robot.count(0, TRACK) == 3));
}

#[test]
fn forwarded_samples_are_taken_only_if_enabled() {
    let _alone = alone();
    // Zenoh's peers route nothing: the puts of the raw session reach node 3 only, which forwards
    // them to node 2.
    let (session, port) = listening();
    let Some(third) = robot(&session, &gateway(3).forwarding()) else { return };
    let Some(right) = robot(&connected_to(port), &gateway(2).accepts_forwarded(true)) else { return };
    assert!(until(|| third.traffic().peers == [2] && right.traffic().peers == [3]));
    let raw = connected_to(port);
    let put = |by: &Session, key: &str, hops, sequence| {
        let datagram = Datagram { hops, ..by_hand(5, sequence, 0, 0, Span::MAX, b"a") };
        by.put(key, b"a").attachment(header::write(&datagram, 0).to_vec()).wait().unwrap();
    };
    let mut sequence = 0;
    // The subscriptions come there one after the other.
    while right.traffic().events == 0 && sequence < 4_000 {
        put(&raw, "fleet/5/1", 0, sequence);
        sequence += 1;
        clock::pause(Span::from_ms(5));
    }
    assert!(until(|| right.traffic().events > 0 && right.traffic().events == third.traffic().forwarded));
    let events = right.traffic().events;
    put(&session, "fleet/9/1", 1, sequence);
    assert!(until(|| right.traffic().events == events + 1), "whoever says that it forwards: {:?}", right.traffic());
    put(&session, "fleet/9/1", 0, sequence + 1);
    put(&session, "fleet/9/1", 17, sequence + 1);
    assert!(until(|| right.traffic().malformed == 1 && right.traffic().loops == 1), "{:?}", right.traffic());
    assert_eq!(right.traffic().events, events + 1);
}

#[test]
fn time_that_is_over_on_the_way_is_late_where_the_clock_is_one() {
    let _alone = alone();
    let Some((left, right, port)) = pair(&gateway(1), &gateway(2)) else { return };
    // Over before it left.
    let supplier = left.channel.supplier(7);
    supplier.push_for(TRACK, b"gone", Span::from_ns(1)).unwrap();
    assert!(until(|| left.traffic().routes[0].stale == 1), "{:?}", left.traffic());
    assert_eq!((left.traffic().routes[0].sent, right.traffic().events), (0, 0));
    // Over on the way.
    let raw = connected_to(port);
    let shared = Clock::Machine.number();
    let send = |clock: u64, sequence: u64, sent: u64, remaining: Span| {
        let datagram = by_hand(5, sequence, clock, sent, remaining, b"x");
        assert!(until(|| {
            raw.put("fleet/5/1", b"x").attachment(header::write(&datagram, 0).to_vec()).wait().unwrap();
            clock::pause(Span::from_ms(5));
            left.traffic().events == sequence + 1
        }));
    };
    let before = clock::monotonic_ns() - 2_000_000_000;
    send(shared, 0, before, Span::from_s(1));
    assert!(until(|| left.traffic().late == 1), "two seconds ago, for one");
    send(shared, 1, before, Span::from_s(600));
    send(shared.wrapping_add(1), 2, before, Span::from_s(59));
    assert!(until(|| left.traffic().unsynchronized == 1), "another clock: nobody knows how long it took");
    send(shared, 3, u64::MAX - 5, Span::from_s(59));
    assert!(until(|| left.traffic().skewed == 1), "it came before it was sent");
    send(0, 4, 0, Span::ZERO);
    assert!(until(|| (left.traffic().late, left.traffic().unsynchronized) == (2, 2)), "it has no time at all");
    let came = |robot: &Robot| robot.payloads(0, TRACK).iter().filter(|payload| **payload == b"x").count();
    assert!(until(|| came(&left) == 3), "all but the late ones");
}

#[test]
fn a_full_queue_is_counted_and_nothing_is_lost_without_a_word() {
    let _alone = alone();
    for full in [Full::Newest, Full::Oldest] {
        let tracks = Route::new("tracks").sends(Pattern::kind(TRACK)).queue(1, full);
        let left = Gateway::new(1, "fleet").with(tracks.congestion(CongestionControl::Block));
        let Some((left, right, _)) = pair(&left, &gateway(2)) else { return };
        let supplier = left.channel.supplier(7);
        let (mut pushed, mut unsent) = (0_u64, 0_u64);
        let epoch = Epoch::now_is_zero();
        // As fast as it goes, until something has found no room.
        while pushed < 500 || (left.traffic().routes[0].full == 0 && epoch.now() < Time::ZERO + Span::from_s(20)) {
            unsent += supplier.push(TRACK, b"flood").unwrap().unsent as u64;
            pushed += 1;
        }
        assert!(until(|| left.traffic().routes[0].waiting == 0), "{:?}", left.traffic());
        let route = left.traffic().routes.swap_remove(0);
        assert_eq!((route.pushed, route.stale, route.refused), (pushed, 0, 0));
        assert_eq!(route.sent + route.full, pushed);
        assert!(route.full > 0);
        assert_eq!(unsent, if full == Full::Newest { route.full } else { 0 }, "the push knows");
        let there = || right.traffic().events + right.traffic().overflowed;
        assert!(until(|| there() == route.sent), "{} of {}: {:?}", there(), route.sent, right.traffic());
    }
}

#[test]
fn programs_that_know_nothing_of_takt_are_heard_where_that_is_wanted() {
    let _alone = alone();
    let (session, port) = listening();
    let Some(robot) = robot(&session, &gateway(2).accepting(77, Span::from_s(30))) else { return };
    let raw = connected_to(port);
    assert!(until(|| {
        raw.put("fleet/camera/1", "frame").wait().unwrap();
        clock::pause(Span::from_ms(20));
        robot.count(0, TRACK) > 0
    }));
    let (head, payload, ..) =
        robot.seen[0].lock().unwrap().iter().find(|(head, ..)| head.kind == TRACK).unwrap().clone();
    assert_eq!((head.source, payload), (77, b"frame".to_vec()));
    assert!(head.expires.saturating_since(head.sent) <= Span::from_s(30));
    let before = robot.traffic();
    assert!(before.foreign >= 1 && (before.events, before.malformed) == (0, 0));
    for (key, payload) in [("fleet/camera/x", "frame".to_owned()), ("fleet/camera/1", "x".repeat(257))] {
        raw.put(key, payload).wait().unwrap();
    }
    // Attachments of their own are not takt's.
    for length in [1, header::ATTACHMENT] {
        raw.put("fleet/camera/1", "frame").attachment(vec![7; length]).wait().unwrap();
    }
    raw.put(format!("fleet/camera/{PEER_LOST}"), "").wait().unwrap();
    assert!(until(|| robot.traffic().malformed == 5), "{:?}", robot.traffic());
}

/// The port of a test's session, for the process that it starts.
const PORT: &str = "TAKT_ZENOH_TEST_PORT";

/// The process of the next test: a gateway alone, until it is killed.
#[test]
fn other_process() {
    let Some(port) = std::env::var(PORT).ok().and_then(|port| port.parse().ok()) else { return };
    let session = connected_to(port);
    let _opened = gateway(9).open(&session, &Channel::new(Options::default()), &plan()).unwrap();
    // Its parent may be gone before.
    clock::pause(Span::from_s(60));
}

#[test]
fn a_gateway_that_ends_or_is_killed_is_lost_and_that_is_an_event() {
    let _alone = alone();
    let Some((mut left, right, _)) = pair(&gateway(1), &gateway(2)) else { return };
    assert!(until(|| right.count(0, PEER_FOUND) == 1), "who is not known cannot be lost");
    // It says so.
    let last = left.gateway.take().unwrap().close();
    assert_eq!((last.found, last.lost, last.twins), (1, 0, 0));
    assert!(until(|| right.traffic().lost == 1 && right.count(0, PEER_LOST) == 1));
    assert_eq!(
        (right.payloads(0, PEER_LOST)[0].clone(), right.traffic().peers),
        (1_u64.to_be_bytes().to_vec(), vec![])
    );
    assert_eq!(left.channel.supplier(7).push(TRACK, b"x").unwrap().sent, 0, "pushes pass a closed route by");
    drop((left, right));
    // It says nothing.
    let (session, port) = listening();
    let Some(robot) = robot(&session, &gateway(2)) else { return };
    let mut other = Command::new(std::env::current_exe().unwrap());
    let other = other.args(["--exact", "other_process"]).env(PORT, port.to_string()).stdout(Stdio::null());
    let other = KillOnDrop(other.spawn().unwrap());
    assert!(until(|| robot.traffic().peers == [9] && robot.count(0, PEER_FOUND) == 1));
    drop(other);
    assert!(until(|| robot.traffic().peers.is_empty() && robot.count(0, PEER_LOST) == 1), "{:?}", robot.traffic());
    assert_eq!(robot.payloads(0, PEER_LOST)[0], 9_u64.to_be_bytes());
}

#[test]
fn each_connection_reports_peers_that_were_present_before() {
    let _alone = alone();
    let (session, port) = listening();
    let channel = Channel::new(Options::default());
    let other = gateway(1).open(&session, &channel, &plan()).unwrap();
    let session = connected_to(port);
    // `robot` connects the channel after it has opened the gateway, and the second time long after.
    let Some(mut robot) = robot(&session, &gateway(2)) else { return };
    assert!(until(|| robot.traffic().peers == [1] && robot.count(0, PEER_FOUND) == 1));
    for connections in 2..4 {
        drop(robot.connected.take());
        robot.connected = Some(robot.channel.connect(&robot.dispatching).unwrap());
        assert!(until(|| robot.count(0, PEER_FOUND) == connections), "there before");
    }
    assert_eq!((robot.traffic().found, robot.count(0, PEER_LOST)), (1, 0));
    drop(robot.connected.take());
    drop(other);
    assert!(until(|| robot.traffic().peers.is_empty()));
    robot.connected = Some(robot.channel.connect(&robot.dispatching).unwrap());
    assert!(until(|| robot.count(0, PEER_LOST) == 1), "gone meanwhile");
}

#[test]
fn two_gateways_with_one_number_are_told_of_it() {
    let _alone = alone();
    let (session, port) = listening();
    let other = connected_to(port);
    let channels = [Channel::new(Options::default()), Channel::new(Options::default())];
    let one = gateway(1).open(&session, &channels[0], &plan()).unwrap();
    let two = gateway(1).open(&other, &channels[1], &plan()).unwrap();
    assert!(until(|| one.traffic().twins == 1 && two.traffic().twins == 1));
    assert_eq!((one.close().peers, two.close().found), (vec![], 0));
}

#[test]
fn open_errors_name_their_reason_and_samples_without_a_consumer_are_counted() {
    let _alone = alone();
    let (session, port) = listening();
    let Some(mut robot) = robot(&session, &gateway(2)) else { return };
    let plan = robot.dispatching.plan().clone();
    let again = gateway(3).open(&session, &robot.channel, &plan).err().unwrap();
    assert_eq!(again.to_string(), "the channel is connected: a gateway is opened before that");
    let urgent = std::thread::scope(|scope| {
        let open = || {
            let _class = sched::ClassGuard::enter(&Class::Fifo { priority: 1 }).unwrap();
            gateway(3).open(&session, &Channel::new(Options::default()), &plan).err().unwrap()
        };
        scope.spawn(open).join().unwrap()
    });
    assert!(matches!(urgent, OpenError::RealTime(_)), "{urgent}");
    // Without a dispatcher nobody is given anything.
    drop(robot.connected.take());
    assert_eq!(robot.channel.supplier(7).push(TRACK, b"x"), Err(EventError::NotConnected));
    let raw = connected_to(port);
    let mut sequence = 0;
    let epoch = Epoch::now_is_zero();
    while robot.traffic().unconnected == 0 && epoch.now() < Time::ZERO + Span::from_s(20) {
        let datagram = by_hand(5, sequence, 0, 0, Span::MAX, b"x");
        raw.put("fleet/5/1", b"x").attachment(header::write(&datagram, 0).to_vec()).wait().unwrap();
        sequence += 1;
        clock::pause(Span::from_ms(20));
    }
    assert!(robot.traffic().unconnected > 0 && robot.count(0, TRACK) == 0);
    // The closed session takes nothing more.
    robot.connected = Some(robot.channel.connect(&robot.dispatching).unwrap());
    session.close().wait().unwrap();
    robot.channel.supplier(7).push(TRACK, b"x").unwrap();
    assert!(until(|| robot.traffic().routes[0].refused == 1), "{:?}", robot.traffic());
}
