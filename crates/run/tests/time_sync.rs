//! Every interval of the time-difference table holds the true difference of the clocks, which these
//! tests shift, speed up and step.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use takt_linux::clock::{monotonic_ns, pause};
use takt_model::{Lateness, Span, Time};
use takt_net::{Clock, SYNC_SEALED, SyncMessage, SyncRequest};
use takt_run::time_sync::{SyncDrops, SyncSealSpec, TimeSync, TimeSyncError, TimeSyncSpec};

const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn spec(peers: Vec<SocketAddr>) -> TimeSyncSpec {
    TimeSyncSpec { listen: HERE, peers, period: Span::from_ms(5), drift_ppm: 200, priority: 6, sources: None }
}

/// A clock that starts now.
#[derive(Clone)]
struct Shifted {
    start: Time,
    clock: Arc<Mutex<Clock>>,
}

impl Shifted {
    fn new(offset: Span, drift_ppb: i32) -> Shifted {
        let clock = Arc::new(Mutex::new(Clock::new(offset, drift_ppb).unwrap()));
        Shifted { start: now(), clock }
    }

    fn at(&self, time: Time) -> Time {
        let since = Time::ZERO.saturating_add(time.saturating_since(self.start));
        self.clock.lock().unwrap().local(since)
    }

    fn step(&self, by: i64) {
        let since = Time::ZERO.saturating_add(now().saturating_since(self.start));
        self.clock.lock().unwrap().step(since, Lateness::from_ns(by)).unwrap();
    }
}

fn now() -> Time {
    Time::from_ns(monotonic_ns())
}

/// Answers until it is dropped.
struct Peer {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Peer {
    fn start(listen: SocketAddr, clock: &Shifted) -> Peer {
        let clock = clock.clone();
        let spec = TimeSyncSpec { listen, ..spec(Vec::new()) };
        let mut peer = TimeSync::with_clock(&spec, Box::new(move |time| clock.at(time))).unwrap();
        let address = peer.address().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Acquire) {
                peer.run_until(now().saturating_add(Span::from_ms(10)));
            }
            peer.served()
        });
        Peer { address, ends, thread: Some(thread) }
    }

    fn served(mut self) -> u64 {
        self.ends.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Runs until the peer's interval is known, and as long again; checks each interval on the way.
fn run_and_check(own: &mut TimeSync, clock: &Shifted, peer: &Shifted, rounds: u32) {
    let mut known = 0;
    for _ in 0..6000 {
        own.run_until(now().saturating_add(Span::from_ms(10)));
        // The own clock is read before and after: the interval holds between.
        let truth = |at: Time| clock.at(at).as_ns().cast_signed() - peer.at(at).as_ns().cast_signed();
        let before = now();
        let status = own.peers()[0];
        let after = now();
        if let Some(offset) = status.offset {
            let (one, other) = (truth(before), truth(after));
            assert!(offset.low <= one.max(other) && one.min(other) <= offset.high, "{offset:?} {one} {other}");
            assert!(offset.low <= offset.middle && offset.middle <= offset.high, "{offset:?}");
            known += 1;
            if known == rounds {
                return;
            }
        }
    }
    panic!("the offset was known {known} times in a minute");
}

#[test]
fn every_interval_holds_the_true_difference() {
    for (offset_s, drift_ppb, listen) in
        [(5, 150_000, HERE), (0, -150_000, HERE), (3600, 0, SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0))]
    {
        let (mine, theirs) = (Shifted::new(Span::from_s(7), -40_000), Shifted::new(Span::from_s(offset_s), drift_ppb));
        let peer = Peer::start(listen, &theirs);
        let clock = mine.clone();
        let spec = TimeSyncSpec { listen: SocketAddr::new(listen.ip(), 0), ..spec(vec![peer.address]) };
        let mut own = TimeSync::with_clock(&spec, Box::new(move |time| clock.at(time))).unwrap();
        run_and_check(&mut own, &mine, &theirs, 40);
        let status = own.peers()[0];
        assert!(status.answered > 0 && status.restarts == 0, "{status:?}");
        assert!(status.round_trip.unwrap() > Span::ZERO);
        assert!(peer.served() >= status.answered);
    }
}

#[test]
fn a_step_of_either_clock_starts_the_table_again() {
    let (mine, theirs) = (Shifted::new(Span::from_s(100), 0), Shifted::new(Span::from_s(200), 0));
    let peer = Peer::start(HERE, &theirs);
    let clock = mine.clone();
    let mut own = TimeSync::with_clock(&spec(vec![peer.address]), Box::new(move |time| clock.at(time))).unwrap();
    run_and_check(&mut own, &mine, &theirs, 10);
    for by in [-1_000_000_000, 2_000_000_000] {
        theirs.step(by);
        let before = own.peers()[0].restarts;
        // Until an exchange shows the step, the table does not know of it.
        for _ in 0..6000 {
            own.run_until(now().saturating_add(Span::from_ms(10)));
            if own.peers()[0].restarts > before {
                break;
            }
        }
        assert_eq!(own.peers()[0].restarts, before + 1, "a step by {by}");
        run_and_check(&mut own, &mine, &theirs, 10);
    }
}

#[test]
fn without_an_answer_nothing_is_known() {
    let silent = UdpSocket::bind(HERE).unwrap();
    let mut own = TimeSync::bind(&spec(vec![silent.local_addr().unwrap()])).unwrap();
    own.run_until(now().saturating_add(Span::from_ms(50)));
    let status = own.peers()[0];
    assert!(status.asked > 0 && status.answered == 0 && status.offset.is_none(), "{status:?}");
    // False answers: without the number, twice, and no message at all.
    let mut bytes = [0; 128];
    let (length, from) = silent.recv_from(&mut bytes).unwrap();
    let Some(SyncMessage::Request(SyncRequest { secret, sent })) = SyncMessage::read(&bytes[..length]) else {
        panic!("no request")
    };
    let answer = |secret| {
        let to = SyncRequest { secret, sent };
        SyncMessage::Answer { to, clock: 1, received: Time::ZERO, sent: Time::ZERO, claim: None }.write()
    };
    silent.send_to(&answer(secret.wrapping_add(1)), from).unwrap();
    silent.send_to(b"no message", from).unwrap();
    UdpSocket::bind(HERE).unwrap().send_to(&answer(secret), from).unwrap();
    for _ in 0..6000 {
        own.run_until(now().saturating_add(Span::from_ms(1)));
        if own.peers()[0].refused == 1 && own.foreign() == 2 {
            break;
        }
    }
    let status = own.peers()[0];
    assert_eq!((status.answered, status.refused, own.foreign(), status.offset), (0, 1, 2, None));
}

#[test]
fn values_out_of_range_are_refused() {
    let zero = TimeSyncSpec { period: Span::ZERO, ..spec(Vec::new()) };
    assert!(matches!(TimeSync::bind(&zero), Err(TimeSyncError::Period)));
    let still = TimeSyncSpec { drift_ppm: 1_000_000, ..spec(Vec::new()) };
    assert!(matches!(TimeSync::bind(&still), Err(TimeSyncError::Table(_))));
    let other = spec(vec![SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 1)]);
    assert!(matches!(TimeSync::bind(&other), Err(TimeSyncError::Family { .. })));
    let taken = UdpSocket::bind(HERE).unwrap();
    let taken = TimeSyncSpec { listen: taken.local_addr().unwrap(), ..spec(Vec::new()) };
    assert!(matches!(TimeSync::bind(&taken), Err(TimeSyncError::Bind(_))));
}

/// As the jobs of `clock.sync` do it: rounds that do not wait, far apart.
#[test]
fn rounds_of_periodic_jobs_hold_the_true_difference_and_allocate_nothing() {
    let (mine, theirs) = (Shifted::new(Span::from_s(7), -40_000), Shifted::new(Span::from_s(50), 90_000));
    let with = |clock: &Shifted, peers| {
        let clock = clock.clone();
        TimeSync::with_clock(&spec(peers), Box::new(move |time| clock.at(time))).unwrap()
    };
    let mut peer = with(&theirs, Vec::new());
    let mut own = with(&mine, vec![peer.address().unwrap()]);
    // Datagrams of the loopback device are there when a send ends.
    own.round();
    peer.round();
    let counted = allocation_counter::measure(|| {
        for _ in 0..20 {
            own.round();
            peer.round();
        }
    });
    assert_eq!(counted.count_total, 0);
    own.round();
    let truth = |at: Time| mine.at(at).as_ns().cast_signed() - theirs.at(at).as_ns().cast_signed();
    let (before, known, after) = (now(), own.offset(0).unwrap(), now());
    let (one, other) = (truth(before), truth(after));
    assert!(known.low <= one.max(other) && one.min(other) <= known.high, "{known:?} {one} {other}");
    let status = own.peers()[0];
    assert_eq!((status.answered, status.restarts, own.offset(1)), (21, 0, None), "{status:?}");
}

/// Two nodes that ask each other. The addresses of both must be known before either asks.
fn pair(mine: &Shifted, theirs: &Shifted) -> [TimeSync; 2] {
    let addresses = [HERE, HERE].map(|here| UdpSocket::bind(here).unwrap().local_addr().unwrap());
    let with = |clock: &Shifted, listen: SocketAddr, peer: SocketAddr| {
        let clock = clock.clone();
        let spec = TimeSyncSpec { listen, ..spec(vec![peer]) };
        TimeSync::with_clock(&spec, Box::new(move |time| clock.at(time))).unwrap()
    };
    [with(mine, addresses[0], addresses[1]), with(theirs, addresses[1], addresses[0])]
}

/// Both sides have rounds at the same instants: an answer comes just after the next round of its asker.
#[test]
fn rounds_of_both_sides_find_each_other_in_any_order() {
    let [mut one, mut other] = pair(&Shifted::new(Span::from_s(7), 0), &Shifted::new(Span::from_s(50), 0));
    for round in 0..20 {
        let both = if round % 2 == 0 { [&mut one, &mut other] } else { [&mut other, &mut one] };
        both.into_iter().for_each(TimeSync::round);
    }
    for side in [&one, &other] {
        let status = side.peers()[0];
        assert!(status.answered >= 5 && status.refused == 0 && status.offset.is_some(), "{status:?}");
    }
}

/// A datagram that comes just after a round is read one period later. The kernel's stamp still counts then.
#[test]
fn rounds_more_than_a_second_apart_give_narrow_intervals() {
    let apart = Span::from_ms(1200);
    let [mut one, mut other] = pair(&Shifted::new(Span::from_s(7), 0), &Shifted::new(Span::from_s(50), 0));
    // Without the stamps an interval is at least as wide as the rounds are apart.
    let is_narrow = |side: &TimeSync| side.offset(0).is_some_and(|offset| offset.width() < apart);
    // The kernel begins to stamp arrivals some time after the request.
    let narrow = (0..20).any(|round| {
        if round > 0 {
            pause(apart);
        }
        one.round();
        other.round();
        is_narrow(&one) && is_narrow(&other)
    });
    assert!(narrow, "{:?} {:?}", one.offset(0), other.offset(0));
}

/// Node `node` of three, with these peers in the order of their addresses.
fn seal(digit: &str, node: u16, peers: &[u16]) -> SyncSealSpec {
    let key = digit.repeat(64).parse().unwrap();
    SyncSealSpec { key, node, peers: peers.to_vec(), nodes: 3, run: 5, system: 6 }
}

#[test]
fn sealed_rounds_hold_the_true_difference_and_allocate_nothing() {
    let (mine, theirs) = (Shifted::new(Span::from_s(7), -40_000), Shifted::new(Span::from_s(50), 90_000));
    let [one, other] = pair(&mine, &theirs);
    let (mut one, mut other) = (one.sealed(seal("a", 0, &[1])).unwrap(), other.sealed(seal("a", 1, &[0])).unwrap());
    let mut rounds = || {
        for _ in 0..10 {
            one.round();
            other.round();
        }
    };
    rounds();
    let counted = allocation_counter::measure(&mut rounds);
    assert_eq!(counted.count_total, 0);
    let truth = |at: Time| mine.at(at).as_ns().cast_signed() - theirs.at(at).as_ns().cast_signed();
    let (before, known, after) = (now(), one.offset(0).unwrap(), now());
    let (first, last) = (truth(before), truth(after));
    assert!(known.low <= first.max(last) && first.min(last) <= known.high, "{known:?} {first} {last}");
    for side in [&one, &other] {
        let status = side.peers()[0];
        assert!(status.answered >= 5 && status.refused == 0 && status.offset.is_some(), "{status:?}");
        assert_eq!(side.drops(), SyncDrops::default());
    }
}

/// Two nodes with different keys, and one without.
#[test]
fn nodes_without_the_same_key_learn_nothing() {
    let clock = || Shifted::new(Span::from_s(7), 0);
    for key in [Some("b"), None] {
        let [one, other] = pair(&clock(), &clock());
        let mut one = one.sealed(seal("a", 0, &[1])).unwrap();
        let mut other = match key {
            Some(key) => other.sealed(seal(key, 1, &[0])).unwrap(),
            None => other,
        };
        for _ in 0..10 {
            one.round();
            other.round();
        }
        assert_eq!((one.served(), other.served()), (0, 0));
        for side in [&one, &other] {
            let status = side.peers()[0];
            assert!(status.asked > 0 && status.answered == 0 && status.offset.is_none(), "{status:?}");
        }
        let drops = one.drops();
        let count = if key.is_some() { drops.forged } else { drops.malformed };
        assert!(count > 0, "{drops:?}");
        let others = SyncDrops { forged: 0, malformed: 0, ..drops };
        assert_eq!(others, SyncDrops::default());
    }
}

/// An attacker stands between a node and its peer. It can read, change and repeat datagrams, and send them on to
/// another node.
#[test]
fn an_attacker_on_the_way_moves_no_table() {
    let attacker = UdpSocket::bind(HERE).unwrap();
    attacker.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let own = TimeSync::bind(&spec(vec![attacker.local_addr().unwrap()])).unwrap();
    let mut own = own.sealed(seal("a", 0, &[1])).unwrap();
    let node = |number: u16| {
        let node = TimeSync::bind(&spec(Vec::new())).unwrap().sealed(seal("a", number, &[])).unwrap();
        let address = node.address().unwrap();
        (node, address)
    };
    let ((mut peer, peer_at), (mut third, third_at)) = (node(1), node(2));
    let own_at = own.address().unwrap();
    let catch = || {
        let mut bytes = [0; 2 * SYNC_SEALED];
        let (length, _) = attacker.recv_from(&mut bytes).unwrap();
        assert_eq!(length, SYNC_SEALED);
        bytes[..length].to_vec()
    };
    let changed = |datagram: &[u8], at: usize| {
        let mut changed = datagram.to_vec();
        changed[at] ^= 1;
        changed
    };
    own.round();
    let request = catch();
    // The start of the run is foreign, the last byte forged.
    let attacks = [changed(&request, 40), changed(&request, SYNC_SEALED - 1), request[..SYNC_SEALED - 1].to_vec()];
    for datagram in attacks.iter().chain([&request, &request]) {
        attacker.send_to(datagram, peer_at).unwrap();
    }
    attacker.send_to(&request, third_at).unwrap();
    attacker.send_to(&request, own_at).unwrap();
    // Datagrams of the loopback device are there when a send ends.
    peer.round();
    third.round();
    let wanted = SyncDrops { malformed: 1, foreign: 1, forged: 1, replayed: 1, former: 0 };
    assert_eq!((peer.served(), peer.drops()), (1, wanted));
    assert_eq!(third.served(), 1);
    let (answer, of_third) = (catch(), catch());
    // The third node's answer has the number of the request, and comes from the address of the peer.
    for datagram in [&of_third, &changed(&answer, SYNC_SEALED - 1), &changed(&answer, 60)] {
        attacker.send_to(datagram, own_at).unwrap();
    }
    own.round();
    let wanted = SyncDrops { foreign: 1, forged: 2, replayed: 1, ..SyncDrops::default() };
    assert_eq!((own.served(), own.drops()), (0, wanted));
    let status = own.peers()[0];
    assert_eq!((status.answered, status.refused, status.offset), (0, 0, None));
    // The true answer counts, once.
    attacker.send_to(&answer, own_at).unwrap();
    attacker.send_to(&answer, own_at).unwrap();
    own.round();
    let status = own.peers()[0];
    assert_eq!((status.answered, status.refused, status.offset.is_some()), (1, 0, true));
    assert_eq!(own.drops(), SyncDrops { replayed: 2, ..wanted });
}

#[test]
fn a_seal_needs_the_numbers_of_all_peers() {
    let own = TimeSync::bind(&spec(Vec::new())).unwrap();
    let refused = own.sealed(seal("a", 0, &[1])).err();
    assert!(matches!(refused, Some(TimeSyncError::Numbers { peers: 0, numbers: 1 })), "{refused:?}");
}
