//! The promises of the policies of sending. A closed gate keeps the peer from the node, so that
//! datagrams fill the socket until the test opens the gate.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_dispatch::event::wire::{Body, Datagram};
use takt_dispatch::event::{Connected, Full, Level, Node, Pattern, Pushed, Sending, Traffic};
use takt_linux::net::{Cable, End};
use takt_linux::{clock, sched};
use takt_model::Span;

use super::{Process, alone, at, cable, ms, process, socket, traffic, until};

/// No consumer here uses this kind: a push touches nothing but the level between nodes.
const FAR: u32 = 3;
const PUSHES: usize = 60;
/// The socket and the queue are full by then.
const FULL: usize = 30;

/// Changes a setting of the device at this end.
fn set(end: &End, group: &str, name: &str, value: u32) -> std::io::Result<()> {
    let setting = format!("/proc/sys/net/ipv4/{group}/{}/{name}", end.device());
    end.run(|| fs::write(setting, value.to_string())).unwrap()
}

/// The right end does not answer requests for its address. So the left end's kernel keeps datagrams
/// in the socket's room, and asks again for as long as the gate is closed.
fn close(cable: &Cable) -> std::io::Result<()> {
    set(cable.right(), "conf", "arp_ignore", 8)?;
    set(cable.left(), "neigh", "mcast_solicit", 1_000_000)?;
    set(cable.left(), "neigh", "retrans_time_ms", 20)
}

fn open(cable: &Cable) {
    set(cable.right(), "conf", "arp_ignore", 0).unwrap();
}

/// How often a thread has given up its CPU to wait.
fn waits(thread: &Path) -> u64 {
    let status = fs::read_to_string(Path::new("/proc").join(thread).join("status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    count.trim().parse().unwrap()
}

/// The progress of a pushing thread.
#[derive(Default)]
struct Pushing {
    thread: OnceLock<PathBuf>,
    begun: AtomicU64,
    /// Its number of waits when its last push began.
    waits: AtomicU64,
    done: AtomicU64,
}

impl Pushing {
    fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Whether it has waited this often, now included, in a push that has not returned.
    fn waits_in_a_push(&self, times: u64) -> bool {
        let (begun, before) = (self.begun.load(Ordering::Acquire), self.waits.load(Ordering::Acquire));
        let waited = self.thread.get().is_some_and(|thread| waits(thread) >= before + times);
        waited && begun == self.begun.load(Ordering::Acquire) && self.done() + 1 == begun
    }

    /// Pushes while the channel is connected. Returns the result of each push and its number of
    /// waits.
    fn push(&self, left: &Process) -> Vec<(Pushed, u64)> {
        let supplier = left.channel.supplier(7);
        let thread = self.thread.get_or_init(|| fs::read_link("/proc/thread-self").unwrap());
        let mut told = Vec::with_capacity(PUSHES);
        for number in 0..PUSHES {
            let before = waits(thread);
            self.waits.store(before, Ordering::Release);
            self.begun.fetch_add(1, Ordering::AcqRel);
            let Ok(pushed) = supplier.push_for(FAR, &[number as u8; 200], Span::MAX) else { break };
            told.push((pushed, waits(thread) - before));
            self.done.fetch_add(1, Ordering::AcqRel);
            // So that the sending thread has taken all it can.
            clock::pause(ms(1));
        }
        told
    }
}

/// What became of pushes.
struct PushOutcome {
    /// The result of each push and its number of waits.
    pushes: Vec<(Pushed, u64)>,
    /// Whether all had returned when the gate opened.
    returned: bool,
    /// How many events the kernel had taken by then.
    early: usize,
}

/// Pushes while the gate is closed. Opens the gate when all pushes have returned, or, for a policy
/// without loss, when a push waits.
fn pushed(left: &Process, cable: &Cable, connected: &Connected, sending: Sending) -> PushOutcome {
    let pushing = Pushing::default();
    std::thread::scope(|scope| {
        let told = scope.spawn(|| pushing.push(left));
        // One wait may have another cause than room.
        until(|| pushing.done() == PUSHES as u64 || (!sending.may_drop() && pushing.waits_in_a_push(3)));
        let returned = pushing.done() == PUSHES as u64;
        let early = traffic(connected, 0).sent as usize;
        open(cable);
        PushOutcome { pushes: told.join().unwrap(), returned, early }
    })
}

/// A level with little room, to this cable's other end.
fn narrow(left: &Process, cable: &Cable, sending: Sending) -> Connected {
    let level = Level::new("narrow", at(cable.left(), 7000)).peer(at(cable.right(), 7000)).sending(sending);
    let level = Level { buffer: 1, ..level.sends(Pattern::kind(FAR)) };
    left.join(cable.left(), &Node::new(1).with(level).beat(Span::from_s(60), Span::from_s(240)))
}

/// Receives `count` events and returns their numbers.
fn come(peer: &UdpSocket, count: u64) -> Vec<u8> {
    peer.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let mut numbers = Vec::new();
    while numbers.len() < count as usize {
        let mut bytes = [0; 1500];
        let length = peer.recv(&mut bytes).expect("an event that was sent comes");
        if let Body::Event { payload, .. } = Datagram::read(&bytes[..length]).unwrap().body {
            numbers.push(payload[0]);
        }
    }
    numbers
}

#[test]
fn policies_say_truly_whether_they_block_or_drop() {
    let _alone = alone();
    // Two CPUs may send datagrams at once when the gate opens: then the kernel keeps no order. Threads inherit this.
    sched::set_affinity(&sched::affinity()[..1]).unwrap();
    let Some(left) = process("left") else { return };
    let queued = |full| Sending::Queued { room: 4, full };
    let direct = [Sending::Direct, Sending::Patient(Span::ZERO), Sending::Patient(ms(3)), Sending::Patient(Span::MAX)];
    for sending in direct.into_iter().chain([queued(Full::Newest), queued(Full::Oldest)]) {
        let Some(cable) = cable() else { return };
        if let Err(error) = close(&cable) {
            return println!("skipped: no settings of a device here: {error}");
        }
        let peer = socket(cable.right(), 7000);
        let connected = narrow(&left, &cable, sending);
        let PushOutcome { pushes: told, returned, early } = pushed(&left, &cable, &connected, sending);
        // No room was made until all pushes had returned, except for policies that promise to wait
        // for room.
        assert_eq!(returned, sending.may_drop(), "{sending:?}: {told:?}");
        let waited = told.iter().filter(|(_, waits)| *waits > 0).count();
        if sending.may_block() {
            assert!(waited > 0, "{sending:?} says that it blocks");
        } else {
            assert!(
                told.iter().skip(FULL).all(|(_, waits)| *waits == 0),
                "{sending:?} says that it never blocks: {told:?}"
            );
        }
        // Each event is counted as sent or as dropped.
        let ended = |counted: &Traffic| counted.sent + counted.full;
        assert!(until(|| ended(&traffic(&connected, 0)) == PUSHES as u64), "{sending:?}: {:?}", traffic(&connected, 0));
        let counted = traffic(&connected, 0);
        assert_eq!((counted.refused, counted.stale), (0, 0), "{sending:?}");
        assert_eq!(counted.full > 0, sending.may_drop(), "{sending:?}: {counted:?}");
        let kept = told.iter().map(|(pushed, _)| pushed.sent as u64).sum::<u64>();
        let dropped = told.iter().map(|(pushed, _)| pushed.unsent as u64).sum::<u64>();
        let later = matches!(sending, Sending::Queued { full: Full::Oldest, .. });
        let expected = if later { (PUSHES as u64, 0) } else { (counted.sent, counted.full) };
        assert_eq!((kept, dropped), expected, "{sending:?}: who pushed is told, but of what another one pushes out");
        // Sent events arrive once and in order. If none may be dropped, all arrive. The kernel keeps no order
        // between events that waited for the gate and later ones: another CPU may bring the first ones.
        let numbers = come(&peer, counted.sent);
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]), "{sending:?}: {numbers:?}");
        for part in [&sorted[..early], &sorted[early..]] {
            assert!(
                numbers.iter().filter(|number| part.contains(number)).eq(part),
                "{sending:?}, {early}: {numbers:?}"
            );
        }
        if later {
            assert!(sorted.ends_with(&[56, 57, 58, 59]), "the last of all: {numbers:?}");
        }
        drop(connected);
    }
}

/// The exception: no push waits for the network once the channel is disconnected.
#[test]
fn a_push_that_waits_for_as_long_as_it_takes_ends_with_the_connection_and_says_what_it_did_not_send() {
    let _alone = alone();
    let Some(left) = process("left") else { return };
    let Some(cable) = cable() else { return };
    if let Err(error) = close(&cable) {
        return println!("skipped: no settings of a device here: {error}");
    }
    let connected = narrow(&left, &cable, Sending::Patient(Span::MAX));
    let pushing = Pushing::default();
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| pushing.push(&left));
        // One wait may have another cause than room.
        assert!(until(|| pushing.waits_in_a_push(3)));
        drop(connected);
        told.join().unwrap()
    });
    let sent: Vec<(usize, usize)> = told.iter().map(|(pushed, _)| (pushed.sent, pushed.unsent)).collect();
    let (last, others) = sent.split_last().unwrap();
    assert_eq!(*last, (0, 1), "{told:?}");
    assert!(others.iter().all(|one| *one == (1, 0)), "{told:?}");
}
