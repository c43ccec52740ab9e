//! Events between nodes, over a cable between two network namespaces that each test creates. No
//! test asserts a duration.

#[path = "common/live.rs"]
mod live;
#[path = "nodes/policies.rs"]
mod policies;
#[path = "nodes/replication.rs"]
mod replication;

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use live::{alone, ms, plan, started};
use takt_dispatch::event::wire::{Body, Datagram};
use takt_dispatch::event::{
    Channel, Clock, ConnectError, Connected, EventError, Full, Head, Level, Node, NodeError, Options, PEER_FOUND,
    PEER_LOST, Pattern, Sending, Traffic,
};
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations, StartError};
use takt_linux::net::{Cable, End};
use takt_linux::{Class, Epoch, clock, sched};
use takt_model::{Builtin, Span, Time};

const TRACK: u32 = 1;
const MAP: u32 = 2;

/// `None` with the reason on the screen if this user or kernel cannot create a cable.
fn cable() -> Option<Cable> {
    Cable::lay(false).inspect_err(|error| println!("skipped: {error}")).ok()
}

/// A handler's events: head, payload, class and name of the thread.
type Received = Arc<Mutex<Vec<(Head, Vec<u8>, Class, String)>>>;

/// A process, as other nodes see it.
struct Process {
    channel: Channel,
    dispatching: Dispatching,
    /// The events of the operations of level 0 and of level 1.
    seen: [Received; 2],
}

/// An operation for tracks and peers' changes, and a less important one for maps.
fn process(name: &str) -> Option<Process> {
    let sporadic =
        |name| Operation::sporadic(name, Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1)).backlog(50);
    let operations = Operations::new(name).with(sporadic("track")).with(sporadic("map").noncritical());
    let plan = plan(&operations, Builtin::Muf);
    let channel = Channel::new(Options::default());
    let filters = [
        takt_dispatch::event::Filter::any([TRACK, PEER_FOUND, PEER_LOST].map(|kind| Pattern::kind(kind).into())),
        Pattern::kind(MAP).into(),
    ];
    let seen: [Received; 2] = Default::default();
    let mut handlers = Vec::new();
    for ((name, filter), seen) in ["track", "map"].into_iter().zip(filters).zip(&seen) {
        let (subscription, seen) = (channel.subscribe(&plan, name, filter).unwrap(), seen.clone());
        let handler = subscription.handler(move |delivery, _| {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            let event = delivery.first();
            seen.lock().unwrap().push((event.head, event.payload.to_vec(), sched::current(), thread));
        });
        handlers.push((name, handler));
    }
    let mut dispatcher = Dispatcher::new(plan);
    for (name, handler) in handlers {
        dispatcher = dispatcher.on(name, handler).unwrap();
    }
    Some(Process { channel, dispatching: started(dispatcher)?, seen })
}

impl Process {
    /// Becomes a node at this end of a cable.
    fn join(&self, end: &End, node: &Node) -> Connected {
        join(end, &self.channel, node, &self.dispatching)
    }

    /// The payloads of a type of event.
    fn payloads(&self, level: usize, kind: u32) -> Vec<Vec<u8>> {
        let seen = self.seen[level].lock().unwrap();
        seen.iter().filter(|(head, ..)| head.kind == kind).map(|(_, payload, ..)| payload.clone()).collect()
    }

    fn count(&self, level: usize, kind: u32) -> usize {
        self.payloads(level, kind).len()
    }
}

/// Connects a channel at this end of a cable.
fn join(end: &End, channel: &Channel, node: &Node, dispatching: &Dispatching) -> Connected {
    end.run(|| channel.connect_as(node, dispatching).unwrap()).unwrap()
}

fn at(end: &End, port: u16) -> SocketAddr {
    SocketAddr::from((end.address(), port))
}

/// A socket at this end, for the test itself.
fn socket(end: &End, port: u16) -> UdpSocket {
    end.run(|| UdpSocket::bind(at(end, port)).unwrap()).unwrap()
}

/// Waits for a condition, for at most 20 s.
fn until(so: impl Fn() -> bool) -> bool {
    let epoch = Epoch::now_is_zero();
    while epoch.now() < Time::ZERO + Span::from_s(20) {
        if so() {
            return true;
        }
        clock::pause(ms(1));
    }
    so()
}

fn traffic(connected: &Connected, level: usize) -> Traffic {
    connected.traffic().swap_remove(level)
}

/// So long that a pause of the machine loses no peer.
const PATIENT: Span = Span::from_s(30);

/// Two levels, with one peer.
fn node(id: u64, here: &End, there: &End) -> Node {
    let level = |name, port, kind| Level::new(name, at(here, port)).peer(at(there, port)).sends(Pattern::kind(kind));
    let rest = level("rest", 7001, MAP).level(1).so_priority(0);
    Node::new(id).with(level("tracks", 7000, TRACK)).with(rest).beat(ms(10), PATIENT)
}

#[test]
fn events_reach_the_other_node_at_their_level_with_what_is_left_of_their_time() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let Some((left, right)) = process("left").zip(process("right")) else { return };
    let here = left.join(cable.left(), &node(1, cable.left(), cable.right()));
    let there = right.join(cable.right(), &node(2, cable.right(), cable.left()));
    // On each of the two levels.
    assert!(until(|| left.count(0, PEER_FOUND) == 2 && right.count(0, PEER_FOUND) == 2), "they hear of each other");
    assert_eq!(left.payloads(0, PEER_FOUND)[0], 2_u64.to_be_bytes(), "its number");
    let (radar, atlas) = (left.channel.supplier(7), right.channel.supplier(8));
    for number in 0..20_u8 {
        let pushed = radar.push_for(TRACK, &[number], Span::from_s(30)).unwrap();
        assert_eq!((pushed.sent, pushed.unsent, pushed.taken), (1, 0, 1), "to the peer, and to the consumer here");
        assert_eq!(atlas.push(MAP, &[number]).unwrap().sent, 1);
        assert!(until(|| right.count(0, TRACK) > usize::from(number) && left.count(1, MAP) > usize::from(number)));
    }
    let expected: Vec<Vec<u8>> = (0..20).map(|number| vec![number]).collect();
    assert_eq!(right.payloads(0, TRACK), expected);
    assert_eq!(left.payloads(1, MAP), expected);
    let workers = |seen: &Received, class: u8| {
        for (head, _, there, thread) in seen.lock().unwrap().iter() {
            assert_eq!((there, head.source >= 7 || head.kind >= PEER_FOUND), (&Class::Fifo { priority: class }, true));
            assert!(thread.contains("worker"), "a handler on the thread {thread}");
        }
    };
    let levels: Vec<u8> = right.dispatching.plan().levels.iter().map(|level| level.priority).collect();
    workers(&right.seen[0], levels[0]);
    workers(&left.seen[1], levels[1]);
    let (one, two) = (traffic(&here, 0), traffic(&there, 0));
    assert_eq!((one.sent, two.events, two.lost, two.late, two.unsynchronized), (20, 20, 0, 0, 0));
    assert_eq!((one.events, two.sent, two.malformed, two.strangers, two.loops), (0, 0, 0, 0, 0));
    assert_eq!(traffic(&here, 1).events, 20);
    for (head, ..) in right.seen[0].lock().unwrap().iter().filter(|(head, ..)| head.kind == TRACK) {
        let whole = head.expires.saturating_since(head.sent);
        assert!(whole <= Span::from_s(30) && whole > Span::ZERO, "{whole}");
    }
    // A node that ends announces it.
    drop(here);
    // Also on each level, one after the other.
    assert!(until(|| right.count(0, PEER_LOST) == 2), "by its last word");
    assert!(!traffic(&there, 0).peers[0].is_there && traffic(&there, 0).peers[0].node == Some(1));
    assert_eq!(radar.push(TRACK, b"late"), Err(EventError::NotConnected));
    let again = left.join(cable.left(), &node(1, cable.left(), cable.right()));
    assert!(until(|| right.count(0, PEER_FOUND) == 4), "and comes back");
    radar.push(TRACK, b"again").unwrap();
    assert!(until(|| right.count(0, TRACK) == 21), "its numbers begin anew");
    assert_eq!((traffic(&there, 0).events, traffic(&there, 0).lost), (21, 0));
    drop(again);
}

/// A datagram of a peer, sent by hand.
fn sent(node: u64, incarnation: u64, sequence: u64, body: Body<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 1500];
    let (remaining, due) = (Span::MAX, Span::MAX);
    let datagram = Datagram { hops: 0, node, incarnation, sequence, clock: 0, sent: 0, remaining, due, body };
    let length = datagram.write(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn track(payload: &[u8]) -> Body<'_> {
    Body::Event { kind: TRACK, source: 7, number: 0, payload }
}

#[test]
fn invalid_datagrams_are_counted_and_dropped() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let Some(right) = process("right") else { return };
    let there = right.join(cable.right(), &node(2, cable.right(), cable.left()));
    let (peer, stranger) = (socket(cable.left(), 7000), socket(cable.left(), 9));
    let to = at(cable.right(), 7000);
    let mut expected = Traffic { peers: Vec::new(), ..traffic(&there, 0) };
    let mut send = |socket: &UdpSocket, bytes: &[u8], change: &dyn Fn(&mut Traffic)| {
        change(&mut expected);
        socket.send_to(bytes, to).unwrap();
        let so = |there: &Traffic| Traffic { peers: Vec::new(), ..there.clone() } == expected;
        assert!(until(|| so(&traffic(&there, 0))), "{expected:?} and not {:?}", traffic(&there, 0));
    };
    let new = |traffic: &mut Traffic| {
        traffic.events += 1;
        traffic.unsynchronized += 1;
    };
    send(&peer, b"takt", &|traffic| traffic.malformed += 1);
    send(&peer, &[], &|traffic| traffic.malformed += 1);
    send(&peer, &sent(5, 1, 0, track(&[0; 257])), &|traffic| traffic.malformed += 1);
    send(&peer, &sent(5, 1, 0, Body::Event { kind: PEER_LOST, source: 0, number: 0, payload: b"" }), &|traffic| {
        traffic.malformed += 1;
    });
    send(&stranger, &sent(5, 1, 0, track(b"a")), &|traffic| traffic.strangers += 1);
    send(&peer, &sent(2, 1, 0, track(b"mine")), &|traffic| traffic.loops += 1);
    send(&peer, &sent(5, 10, 0, track(b"a")), &new);
    send(&peer, &sent(5, 10, 0, track(b"a")), &|traffic| traffic.duplicates += 1);
    send(&peer, &sent(5, 10, 3, track(b"d")), &|traffic| {
        new(traffic);
        traffic.lost += 2;
    });
    send(&peer, &sent(5, 10, 1, track(b"b")), &|traffic| {
        new(traffic);
        traffic.lost -= 1;
    });
    send(&peer, &sent(5, 10, 6, Body::Beat), &|traffic| traffic.lost += 2);
    send(&peer, &sent(5, 9, 4, track(b"e")), &|traffic| traffic.old += 1);
    send(&peer, &sent(5, 10, 5000, track(b"f")), &|traffic| {
        new(traffic);
        traffic.lost += 5000 - 6;
    });
    send(&peer, &sent(5, 10, 4, track(b"g")), &|traffic| traffic.old += 1);
    let seen = [b"a", b"d", b"b", b"f"].map(|one| one.to_vec());
    assert!(until(|| right.payloads(0, TRACK) == seen), "{:?}", right.payloads(0, TRACK));
    // Datagrams from before its last one, arriving later, change nothing. A new run does.
    send(&peer, &sent(5, 10, 5001, Body::Bye), &|_| ());
    assert!(until(|| right.count(0, PEER_LOST) == 1));
    send(&peer, &sent(5, 10, 4999, track(b"z")), &|traffic| {
        new(traffic);
        traffic.lost -= 1;
    });
    send(&peer, &sent(5, 11, 0, Body::Beat), &|_| ());
    assert!(until(|| right.count(0, PEER_FOUND) == 2));
    send(&peer, &sent(5, 12, 0, Body::Beat), &|_| ());
    assert!(until(|| right.count(0, PEER_FOUND) == 3 && right.count(0, PEER_LOST) == 2), "it was started again");
}

#[test]
fn a_silent_peer_is_lost_and_a_restarted_one_is_found() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let Some(right) = process("right") else { return };
    let there = right.join(cable.right(), &node(2, cable.right(), cable.left()).beat(ms(10), ms(100)));
    let peer = socket(cable.left(), 7000);
    let to = at(cable.right(), 7000);
    peer.send_to(&sent(5, 10, 0, Body::Beat), to).unwrap();
    assert!(until(|| right.count(0, PEER_FOUND) == 1));
    // A process killed by SIGKILL announces nothing.
    assert!(until(|| right.count(0, PEER_LOST) == 1));
    peer.send_to(&sent(6, 1, 0, track(b"a")), to).unwrap();
    assert!(until(|| right.count(0, PEER_FOUND) == 2 && right.count(0, TRACK) == 1));
    assert_eq!(right.payloads(0, PEER_FOUND)[1], 6_u64.to_be_bytes(), "another node in its place");
    // The node's own beats came all the time.
    let mut bytes = [0; 256];
    let length = peer.recv(&mut bytes).unwrap();
    let beat = Datagram::read(&bytes[..length]).unwrap();
    assert_eq!((beat.node, beat.body), (2, Body::Beat));
    drop(there);
}

#[test]
fn time_that_is_over_on_the_way_is_late_where_the_clock_is_one() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let Some(right) = process("right") else { return };
    let clock_of = |connected: &Connected, peer: &UdpSocket| {
        let mut bytes = [0; 256];
        let length = peer.recv(&mut bytes).unwrap();
        let _ = connected;
        Datagram::read(&bytes[..length]).unwrap().clock
    };
    let peer = socket(cable.left(), 7000);
    let to = at(cable.right(), 7000);
    let there = right.join(cable.right(), &node(2, cable.right(), cable.left()));
    let shared = clock_of(&there, &peer);
    let send = |clock: u64, sequence: u64, sent: u64, remaining: Span| {
        let mut bytes = [0; 256];
        let datagram = Datagram {
            hops: 0,
            node: 5,
            incarnation: 1,
            sequence,
            clock,
            sent,
            remaining,
            due: Span::from_ns(remaining.as_ns() / 2),
            body: track(b"x"),
        };
        let length = datagram.write(&mut bytes).unwrap();
        peer.send_to(&bytes[..length], to).unwrap();
        assert!(until(|| traffic(&there, 0).events == sequence + 1));
    };
    let before = clock::monotonic_ns() - 2_000_000_000;
    send(shared, 0, before, Span::from_s(1));
    assert!(until(|| traffic(&there, 0).late == 1), "two seconds ago, for one");
    send(shared, 1, before, Span::from_s(600));
    send(shared.wrapping_add(1), 2, before, Span::from_s(59));
    assert!(until(|| traffic(&there, 0).unsynchronized == 1), "another clock: nobody knows how long it took");
    send(shared, 3, u64::MAX - 5, Span::from_s(59));
    assert!(until(|| traffic(&there, 0).skewed == 1), "it came before it was sent");
    send(shared, 4, clock::monotonic_ns(), Span::ZERO);
    assert!(until(|| traffic(&there, 0).late == 2), "it has no time at all");
    assert!(until(|| right.count(0, TRACK) == 3), "all but the late one");
    let seen = right.seen[0].lock().unwrap();
    let left: Vec<Span> = seen
        .iter()
        .filter(|(head, ..)| head.kind == TRACK)
        .map(|(head, ..)| head.expires.saturating_since(head.sent))
        .collect();
    // The sending time of the first event is known (but for the part before the start) and counts.
    // The others get all of their time from their arrival.
    assert!(left[0] <= Span::from_s(600) && left[0] > Span::from_s(500), "{left:?}");
    assert_eq!(left[1..], [Span::from_s(59), Span::from_s(59)]);
    // Their deadlines were half as far.
    let tracks = seen.iter().filter(|(head, ..)| head.kind == TRACK);
    let due: Vec<Span> = tracks.map(|(head, ..)| head.due.saturating_since(head.sent)).collect();
    assert!(due[0] <= Span::from_s(300) && due[0] > Span::from_s(200), "{due:?}");
    assert_eq!(due[1..], [Span::from_ms(29_500), Span::from_ms(29_500)]);
    drop(seen);
    drop(there);
    // A node without a common clock gets no sending times.
    let there = right.join(cable.right(), &node(2, cable.right(), cable.left()).clock(Clock::Own));
    while clock_of(&there, &peer) != 0 {}
    drop(there);
    // Nor do two such nodes have a clock in common.
    drop(peer);
    let Some(left) = process("left") else { return };
    let here = left.join(cable.left(), &node(1, cable.left(), cable.right()).clock(Clock::Own));
    let there = right.join(cable.right(), &node(2, cable.right(), cable.left()).clock(Clock::Own));
    left.channel.supplier(7).push_for(TRACK, b"own", Span::from_s(60)).unwrap();
    assert!(until(|| traffic(&there, 0).unsynchronized == 1 && right.count(0, TRACK) == 4));
    assert_eq!((traffic(&there, 0).late, traffic(&there, 0).skewed), (0, 0));
    drop(here);
}

#[test]
fn a_ring_of_nodes_gives_each_event_to_each_node_once() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let processes: Vec<Process> = ["a", "b", "c", "d"].into_iter().map_while(process).collect();
    if processes.len() < 4 {
        return;
    }
    let end = |number: usize| if number.is_multiple_of(2) { cable.left() } else { cable.right() };
    let place = |number: usize| at(end(number), 7000 + (number % 4) as u16);
    let join = |(number, process): (usize, &Process)| {
        let level = Level::new("ring", place(number)).peer(place(number + 1)).peer(place(number + 3));
        let node = Node::new(number as u64 + 1).with(level.sends(Pattern::kind(TRACK))).forwarding();
        process.join(end(number), &node.beat(ms(10), PATIENT))
    };
    let joined: Vec<Connected> = processes.iter().enumerate().map(join).collect();
    assert!(until(|| processes.iter().all(|process| process.count(0, PEER_FOUND) == 2)));
    let supplier = processes[0].channel.supplier(7);
    for number in 0..10 {
        supplier.push(TRACK, &[number]).unwrap();
        assert!(until(|| processes.iter().all(|process| process.count(0, TRACK) > usize::from(number))));
    }
    // The event goes round in both directions. They meet, and each side gets a duplicate. If one
    // direction is slower by two links, the event returns to its own node instead.
    let known = |number: usize| traffic(&joined[number], 0);
    let again = || (1..4).map(|number| known(number).duplicates).sum::<u64>() + known(0).loops;
    assert!(until(|| again() == 20), "{}", again());
    for number in [1, 2, 3] {
        // A node counts what it has sent on, when others may have it already.
        assert!(until(|| known(number).forwarded == 10), "{:?}", known(number));
        assert_eq!((known(number).events, known(number).forwarded, known(number).lost), (10, 10, 0));
        assert_eq!(processes[number].count(0, TRACK), 10);
    }
    assert_eq!((known(0).events, processes[0].count(0, TRACK)), (0, 10));
}

#[test]
fn events_with_too_many_hops_or_from_this_node_are_not_forwarded() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let Some(right) = process("right") else { return };
    let level = Level::new("line", at(cable.right(), 7000)).peer(at(cable.left(), 7000)).peer(at(cable.left(), 7001));
    let there = right.join(cable.right(), &Node::new(2).with(level).forwarding().beat(ms(10), PATIENT));
    let (peer, next) = (socket(cable.left(), 7000), socket(cable.left(), 7001));
    let send = |hops: u8, sequence: u64| {
        let mut bytes = [0; 256];
        let (clock, remaining) = (0, Span::from_s(60));
        let datagram = Datagram {
            hops,
            node: 5,
            incarnation: 1,
            sequence,
            clock,
            sent: 0,
            remaining,
            due: Span::from_ns(remaining.as_ns() / 2),
            body: track(b"x"),
        };
        let length = datagram.write(&mut bytes).unwrap();
        peer.send_to(&bytes[..length], at(cable.right(), 7000)).unwrap();
        assert!(until(|| traffic(&there, 0).events == sequence + 1));
    };
    send(3, 0);
    let came = (0..1000).find_map(|_| {
        let mut bytes = [0; 256];
        let length = next.recv(&mut bytes).unwrap();
        let datagram = Datagram::read(&bytes[..length]).unwrap();
        (datagram.body != Body::Beat).then_some((datagram.node, datagram.sequence, datagram.hops, datagram.remaining))
    });
    let (node, sequence, hops, remaining) = came.unwrap();
    assert_eq!((node, sequence, hops), (5, 0, 4));
    assert!(remaining <= Span::from_s(60) && remaining > Span::ZERO, "{remaining}");
    assert!(until(|| traffic(&there, 0).forwarded == 1 && right.count(0, TRACK) == 1));
    assert_eq!(right.count(0, PEER_FOUND), 0, "what a peer sends on tells nothing of that peer");
    peer.send_to(&sent(6, 1, 0, Body::Beat), at(cable.right(), 7000)).unwrap();
    assert!(until(|| right.count(0, PEER_FOUND) == 1));
    assert_eq!(right.payloads(0, PEER_FOUND)[0], 6_u64.to_be_bytes());
    send(16, 1);
    assert!(until(|| right.count(0, TRACK) == 2), "it is given to those who wait for it");
    let mut bytes = [0; 256];
    let too_far = Datagram { hops: 17, ..Datagram::read(&sent(5, 1, 2, track(b"x"))).unwrap() }.write(&mut bytes);
    peer.send_to(&bytes[..too_far.unwrap()], at(cable.right(), 7000)).unwrap();
    assert!(until(|| traffic(&there, 0).loops == 1));
    assert_eq!((traffic(&there, 0).forwarded, right.count(0, TRACK)), (1, 2), "and went no further");
}

#[test]
fn policies_do_what_they_say_when_there_is_no_room() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let Some(left) = process("left") else { return };
    // No peer exists. The kernel keeps datagrams while it resolves the address, until the socket is full. It asks
    // three times: here it waits 200 ms for each answer, not a second.
    let nobody = SocketAddr::from((cable.nobody(), 7000));
    let wait = format!("/proc/sys/net/ipv4/neigh/{}/retrans_time_ms", cable.left().device());
    cable.left().run(|| std::fs::write(&wait, "200")).unwrap().unwrap();
    let level = |name: &str, port, sending| {
        let level = Level::new(name, at(cable.left(), port)).peer(nobody).sending(sending);
        Level { buffer: 1, ..level }
    };
    let connect = |sending| {
        let level = level("narrow", 7000, sending).sends(Pattern::kind(MAP));
        left.join(cable.left(), &Node::new(1).with(level).beat(Span::from_s(60), Span::from_s(240)))
    };
    let supplier = left.channel.supplier(7);
    let push = |count: usize, ttl: Span| -> usize {
        (0..count).map(|_| supplier.push_for(MAP, &[0; 256], ttl).unwrap().sent).sum()
    };
    let direct = connect(Sending::Direct);
    let sent = push(50, Span::MAX);
    let counted = traffic(&direct, 0);
    assert!(sent > 0 && sent < 50, "{sent}");
    assert_eq!((counted.sent, counted.full), (sent as u64, 50 - sent as u64));
    drop(direct);
    let patient = connect(Sending::Patient(ms(5)));
    assert!(push(20, Span::MAX) < 20, "after 5 ms each");
    assert!(traffic(&patient, 0).full > 0);
    drop(patient);
    // The push waits until the kernel gives up on the others.
    let patient = connect(Sending::Patient(Span::MAX));
    assert_eq!(push(20, Span::MAX), 20);
    assert_eq!((traffic(&patient, 0).sent, traffic(&patient, 0).full), (20, 0));
    assert!(!Sending::Patient(Span::MAX).may_drop());
    drop(patient);
    for full in [Full::Newest, Full::Oldest] {
        let queued = connect(Sending::Queued { room: 4, full });
        let taken = push(50, Span::MAX);
        assert_eq!(taken < 50, full == Full::Newest, "{full:?}: {taken}");
        let counted = traffic(&queued, 0);
        assert!(counted.full > 0 && counted.sent + counted.full <= 50 && counted.sent + counted.full + 5 >= 50);
        drop(queued);
    }
    // Events that expire while they wait are not sent.
    let queued = connect(Sending::Queued { room: 50, full: Full::Newest });
    let taken = push(30, Span::from_ns(1));
    assert_eq!(taken, 30);
    assert!(until(|| {
        let counted = traffic(&queued, 0);
        counted.stale + counted.full + counted.sent == 30 && counted.stale > 0
    }));
}

#[test]
fn a_node_that_cannot_be_is_refused() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let Some(left) = process("left") else { return };
    let here = |port| at(cable.left(), port);
    let refused =
        |node: &Node| cable.left().run(|| left.channel.connect_as(node, &left.dispatching).err().unwrap()).unwrap();
    let beat = refused(&Node::new(1).with(Level::new("a", here(1))).beat(ms(10), ms(10)));
    assert!(matches!(beat, ConnectError::Node(NodeError::Silence { .. })), "{beat}");
    let level = refused(&Node::new(1).with(Level::new("a", here(7000)).level(9)));
    assert_eq!(level.to_string(), "level \"a\" is to be scheduled as level 9 of the plan, which has 2");
    let holder = socket(cable.left(), 7000);
    let taken = refused(&Node::new(1).with(Level::new("a", here(7000))));
    assert_eq!(
        taken.to_string(),
        "level \"a\": datagrams to 10.77.0.1:7000 cannot be received: Address already in use (os error 98); another \
         program listens there: end it, or give another port"
    );
    drop(holder);
    let elsewhere = refused(&Node::new(1).with(Level::new("a", at(cable.right(), 7000))));
    assert!(elsewhere.to_string().ends_with("(os error 99); give an address of this machine"), "{elsewhere}");
    assert_eq!(left.channel.supplier(1).push(TRACK, b""), Err(EventError::NotConnected), "nothing of it stays");
    let connected = left.join(cable.left(), &node(1, cable.left(), cable.right()));
    assert_eq!(left.channel.supplier(1).push(PEER_LOST, b""), Err(EventError::Reserved(PEER_LOST)));
    drop(connected);
}

/// A restarted peer is lost and found at once. A consumer with a least distance still gets both
/// events, one after the other. An unlimited consumer gets each once.
#[test]
fn a_full_consumer_gets_peer_events_later() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let sporadic =
        |name, distance| Operation::sporadic(name, distance).wcet(Span::from_ns(1)).deadline(Span::from_s(1));
    let operations = Operations::new("news")
        .with(sporadic("paced", ms(5)).backlog(1))
        .with(sporadic("prompt", Span::from_ns(1)).backlog(50).noncritical());
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let plan = operations.compute(&Builtin::Muf.strategy(), &limits).unwrap();
    let channel = Channel::new(Options { history: 16, ..Options::default() });
    let wanted = || takt_dispatch::event::Filter::any([PEER_FOUND, PEER_LOST].map(|kind| Pattern::kind(kind).into()));
    let names = ["paced", "prompt"];
    let subscriptions = names.map(|name| channel.subscribe(&plan, name, wanted()).unwrap());
    let seen: [Arc<Mutex<Vec<u32>>>; 2] = Default::default();
    let mut built = Dispatcher::new(plan);
    for (name, (subscription, seen)) in names.into_iter().zip(subscriptions.iter().zip(seen.clone())) {
        let handler = subscription.handler(move |delivery, _| seen.lock().unwrap().push(delivery.first().head.kind));
        built = built.on(name, handler).unwrap();
    }
    let dispatching = match built.start() {
        Ok(dispatching) => dispatching,
        Err(StartError::Privilege { missing }) => return println!("skipped: {missing}"),
        Err(error) => panic!("{error}"),
    };
    let right = Process { channel, dispatching, seen: Default::default() };
    let there = right.join(cable.right(), &node(2, cable.right(), cable.left()));
    let (peer, to) = (socket(cable.left(), 7000), at(cable.right(), 7000));
    let send = |run: u64, body| peer.send_to(&sent(5, run, 0, body), to).unwrap();
    for run in 10..13 {
        send(run, Body::Beat);
    }
    let counts = || subscriptions.each_ref().map(|subscription| subscription.counts().handled);
    assert!(until(|| counts()[1] == 5), "{:?}", counts());
    assert!(until(|| seen[0].lock().unwrap().last() == Some(&PEER_FOUND) && counts()[0] >= 3), "{:?}", counts());
    send(12, Body::Bye);
    assert!(until(|| seen.iter().all(|seen| seen.lock().unwrap().last() == Some(&PEER_LOST))));
    let mut remembered = Vec::new();
    right.channel.history(Pattern::ANY, |event| remembered.push(event.head.kind));
    drop(there);
    right.dispatching.stop(&mut takt_log::NullSink).unwrap();
    let [paced, prompt] = seen.map(|seen| seen.lock().unwrap().clone());
    let turns = [PEER_FOUND, PEER_LOST, PEER_FOUND, PEER_LOST, PEER_FOUND, PEER_LOST];
    assert_eq!((prompt, remembered), (turns.to_vec(), turns.to_vec()), "each once");
    // News without room until the next change may be skipped.
    assert!(paced == turns || paced == turns[..4], "{paced:?}");
    assert!(subscriptions[0].counts().rejected > 0, "there was no room");
}

/// Nodes with synchronised clocks know the transit time of their events, but only between clocks of
/// the same number.
#[test]
fn nodes_with_the_same_synchronized_clock_know_how_long_events_were_under_way() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let Some((left, right)) = process("left").zip(process("right")) else { return };
    for (number, unsynchronized) in [(3, 0), (4, 1)] {
        let clocked = |number, node: Node| node.clock(Clock::Synchronized(number));
        let here = left.join(cable.left(), &clocked(3, node(1, cable.left(), cable.right())));
        let there = right.join(cable.right(), &clocked(number, node(2, cable.right(), cable.left())));
        left.channel.supplier(7).push_for(TRACK, b"x", Span::from_s(30)).unwrap();
        assert!(until(|| traffic(&there, 0).events == 1));
        assert!(until(|| traffic(&there, 0).unsynchronized == unsynchronized), "{:?}", traffic(&there, 0));
        assert_eq!((traffic(&there, 0).skewed, traffic(&there, 0).late), (0, 0));
        drop((here, there));
    }
    assert!(until(|| right.count(0, TRACK) == 2));
    let left_of = |(head, ..): &(Head, Vec<u8>, Class, String)| head.expires.saturating_since(head.sent);
    let seen = right.seen[0].lock().unwrap();
    assert!(seen.iter().filter(|row| row.0.kind == TRACK).all(|row| left_of(row) <= Span::from_s(30)));
}

/// Forwarded events wait for no room, however patient the level. Otherwise one absent peer would
/// stop the receiving thread.
#[test]
fn forwarded_events_are_dropped_if_there_is_no_room() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let Some(right) = process("right") else { return };
    let nobody = SocketAddr::from((cable.nobody(), 7000));
    let level = Level::new("line", at(cable.right(), 7000)).peer(at(cable.left(), 7000)).peer(nobody);
    let level = Level { buffer: 1, ..level.sending(Sending::Patient(Span::MAX)) };
    let node = Node::new(2).with(level).forwarding().beat(Span::from_s(60), Span::from_s(240));
    let there = right.join(cable.right(), &node);
    let peer = socket(cable.left(), 7000);
    for number in 0..50 {
        peer.send_to(&sent(5, 1, number, track(&[0; 200])), at(cable.right(), 7000)).unwrap();
        assert!(until(|| traffic(&there, 0).events == number + 1), "it receives all the while");
    }
    assert!(until(|| traffic(&there, 0).forwarded + traffic(&there, 0).full == 50), "{:?}", traffic(&there, 0));
    assert!(traffic(&there, 0).full > 0 && traffic(&there, 0).sent == traffic(&there, 0).forwarded);
}
