//! takt's own queueing discipline (feature `bpf`), between network namespaces of the test's own. If this
//! machine cannot, each test says so and passes. The lab runs them on a kernel that can.
#![cfg(feature = "bpf")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use takt_linux::clock::{monotonic_ns, pause};
use takt_linux::net::Cable;
use takt_linux::tc::{
    self, Applied, Device, Discipline, LateDatagrams, NetError, PacketDeadline, Plan, Role, Rule, TagSpec, Tags,
    set_deadline,
};
use takt_model::{Bucket, Bytes, Late, Link, Rate, Span, Time};

const PORT: u16 = 7000;
/// Headers of UDP, IPv4 and Ethernet, and what a frame takes on the wire beside itself.
const AROUND: usize = 8 + 20 + 14 + 24;
const MINUTE: Span = Span::from_s(60);

/// A link whose real-time class sends 10 bytes in a millisecond, one packet at a time.
fn slow(edf: bool, late: Late) -> Link {
    let bucket = Some(Bucket { burst: Bytes::new(1), rate: Rate::from_bps(80_000) });
    Link { bucket, edf, late, ..Link::at(Rate::from_bps(100_000_000)) }
}

/// The left end of a cable under takt's discipline, and a receiver at the right one.
struct Ends {
    cable: Cable,
    device: Device,
    receiver: UdpSocket,
}

impl Ends {
    fn socket(&self) -> UdpSocket {
        let socket = UdpSocket::bind((self.cable.left().address(), 0)).unwrap();
        socket.connect((self.cable.right().address(), PORT)).unwrap();
        socket
    }

    /// Sends a packet of so many bytes on the wire, which begins with a letter.
    fn send(&self, socket: &UdpSocket, letter: u8, bytes: usize) {
        let mut message = vec![0; bytes - AROUND];
        message[0] = letter;
        assert_eq!(socket.send(&message).unwrap(), message.len());
    }

    fn with(&self, deadline: PacketDeadline) -> UdpSocket {
        let socket = self.socket();
        set_deadline(&socket, deadline).unwrap();
        socket
    }

    /// Letters of the next packets.
    fn letters(&self, count: usize) -> String {
        let mut bytes = [0; 2000];
        (0..count)
            .map(|_| {
                self.receiver.recv(&mut bytes).unwrap();
                char::from(bytes[0])
            })
            .collect()
    }
}

/// Runs `body` at the left end of a new cable. The class is empty, and sends nothing for 200 ms from then on.
fn on_cable(link: Link, body: impl FnOnce(&Ends, &mut Applied, &mut Tags) + Send) {
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("skipped: {error}"),
    };
    let receiver = cable.right().run(|| UdpSocket::bind((cable.right().address(), PORT)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    std::thread::scope(|scope| {
        let at_left = || {
            cable.left().enter().unwrap();
            let device = Device::find(cable.left().device()).unwrap().unwrap();
            let ends = Ends { cable, device, receiver };
            let plan = Plan::under(Discipline::own(&link), &link, &ends.device).unwrap();
            let nothing = [Rule { of: "port:1".parse().unwrap(), role: Role::RealTime }];
            let mut applied = match tc::apply(&ends.device, &plan, &nothing, false) {
                Ok(applied) => applied,
                Err(error @ (NetError::Missing { .. } | NetError::Programs(_))) if !demanded() => {
                    return println!("skipped: {error}");
                }
                Err(error) => panic!("{error}"),
            };
            let spec = TagSpec { group: "/".into(), late: LateDatagrams::Send };
            let mut tags = Tags::attach(&applied, spec).unwrap();
            // The kernel learns the neighbour's address.
            ends.send(&ends.socket(), b'-', 100);
            assert_eq!(ends.letters(1), "-");
            // The frames of the checks have taken tokens.
            pause(Span::from_ms(500));
            ends.send(&ends.with(PacketDeadline::After(MINUTE)), b'-', 2_000 / 2 + AROUND);
            ends.send(&ends.with(PacketDeadline::After(MINUTE)), b'-', 1_000);
            assert_eq!(ends.letters(1), "-");
            body(&ends, &mut applied, &mut tags);
            let restored = applied.restore().unwrap().unwrap();
            assert_eq!(restored.discipline, "noqueue (the kernel's default)");
            assert!(tc::show(Some(&ends.device)).unwrap().is_empty());
        };
        scope.spawn(at_left).join().unwrap();
    });
}

/// Whether a kernel without the discipline is a failure, as in the lab.
fn demanded() -> bool {
    std::env::var_os("TAKT_DEMAND_LIVE").is_some()
}

fn at(ms: u64) -> PacketDeadline {
    PacketDeadline::At(Time::from_ns(monotonic_ns()).saturating_add(Span::from_ms(ms)))
}

#[test]
fn packets_leave_by_the_deadlines_of_their_sockets() {
    on_cable(slow(true, Late::Continue), |ends, applied, tags| {
        // A packet of 100 bytes takes 10 ms. The class is busy for 100 ms, and a packet waits.
        let base = monotonic_ns();
        let deadline = |s: u64| PacketDeadline::At(Time::from_ns(base).saturating_add(Span::from_s(s)));
        let sockets: Vec<_> = [50, 20, 40, 10, 30].map(|s| ends.with(deadline(s))).into();
        for (letter, socket) in (b'a'..).zip(&sockets) {
            ends.send(socket, letter, 100);
        }
        // The second packet of a socket with an earlier deadline stays behind the first.
        set_deadline(&sockets[0], deadline(1)).unwrap();
        ends.send(&sockets[0], b'A', 100);
        // A real-time packet without a deadline goes last: SO_PRIORITY is not for this class here.
        assert_eq!(ends.letters(7), "dbecaA-");
        let status = applied.status().unwrap();
        assert!(status.discipline.starts_with("takt_"), "{status:?}");
        let counts = tags.counts().unwrap();
        assert_eq!((counts.came, counts.left, counts.late, applied.late_drops().unwrap()), (8, 8, 0, 0));
    });
}

#[test]
fn first_in_first_out_if_the_link_says_so() {
    on_cable(slow(false, Late::Continue), |ends, _, _| {
        for (letter, ms) in [(b'a', 50_000), (b'b', 20_000), (b'c', 40_000)] {
            ends.send(&ends.with(at(ms)), letter, 100);
        }
        assert_eq!(ends.letters(4), "-abc");
    });
}

#[test]
fn datagrams_that_cannot_start_in_time_are_dropped_and_streams_are_sent() {
    on_cable(slow(true, Late::Drop), |ends, applied, tags| {
        ends.send(&ends.with(at(1)), b'l', 100);
        ends.send(&ends.with(at(20_000)), b'b', 100);
        assert_eq!(ends.letters(2), "b-");
        assert_eq!(applied.late_drops().unwrap(), 1);
        let counts = tags.counts().unwrap();
        assert_eq!((counts.came, counts.left, counts.late), (4, 3, 0));
        // Each segment of the stream is late.
        let to = SocketAddr::from((ends.cable.right().address(), PORT));
        let sent = std::thread::scope(|scope| {
            let (ready, go) = std::sync::mpsc::channel();
            let server = scope.spawn(move || {
                ends.cable.right().enter().unwrap();
                let listener = TcpListener::bind(to).unwrap();
                ready.send(()).unwrap();
                let mut text = String::new();
                listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
                text
            });
            go.recv().unwrap();
            let mut stream = TcpStream::connect(to).unwrap();
            set_deadline(&stream, PacketDeadline::At(Time::from_ns(1))).unwrap();
            stream.write_all(b"a late stream").unwrap();
            drop(stream);
            server.join().unwrap()
        });
        assert_eq!((sent.as_str(), applied.late_drops().unwrap()), ("a late stream", 1));
        assert!(tags.counts().unwrap().late > 0);
    });
}

#[test]
fn demoted_datagrams_leave_after_all_others() {
    on_cable(slow(true, Late::Demote), |ends, applied, _| {
        ends.send(&ends.with(at(1)), b'l', 100);
        ends.send(&ends.with(at(20_000)), b'b', 100);
        assert_eq!(ends.letters(3), "b-l");
        assert_eq!(applied.late_drops().unwrap(), 0);
    });
}

#[test]
fn real_time_packets_go_before_others_and_each_keeps_its_share() {
    // The line sends 1000 bytes in a millisecond, of which real-time packets may take a half.
    let bucket = Some(Bucket { burst: Bytes::new(2_000), rate: Rate::from_bps(4_000_000) });
    let link = Link { bucket, edf: true, ..Link::at(Rate::from_bps(8_000_000)) };
    on_cable(link, |ends, applied, _| {
        assert_eq!(ends.letters(1), "-");
        let background = ends.socket();
        for _ in 0..60 {
            ends.send(&background, b'o', 1_000);
        }
        let real_time = ends.with(PacketDeadline::After(MINUTE));
        for _ in 0..20 {
            ends.send(&real_time, b'r', 1_000);
        }
        let all = ends.letters(80);
        let last = all.rfind('r').unwrap();
        let (before, after) = (all[..last].matches('o').count(), all[last..].matches('o').count());
        // About as many of the others left meanwhile, beside those of the first burst.
        assert!((10..40).contains(&before) && after > 10, "{before} before, {after} after: {all}");
        let status = applied.status().unwrap();
        let packets = |role| status.classes.iter().find(|class| class.role == role).unwrap().counters.packets;
        assert!(packets(Role::RealTime) >= 22 && packets(Role::Background) >= 61, "{status:?}");
        assert!(status.classes.iter().all(|class| class.role != Role::Reply), "{status:?}");
    });
}

#[test]
fn a_full_queue_drops_what_comes_and_counts_it() {
    on_cable(slow(true, Late::Continue), |ends, applied, _| {
        let socket = ends.with(PacketDeadline::After(MINUTE));
        let waiting = |applied: &mut Applied| {
            let status = applied.status().unwrap();
            status.classes.iter().find(|class| class.role == Role::RealTime).unwrap().counters
        };
        let before = waiting(applied);
        assert_eq!((before.waiting, before.dropped), (1, 0));
        let sockets: Vec<UdpSocket> = (0..12).map(|_| ends.with(PacketDeadline::After(MINUTE))).collect();
        for socket in &sockets {
            for _ in 0..100 {
                // A full send buffer refuses, and the discipline drops.
                let _ = socket.send(&[0; 10]);
            }
        }
        let after = waiting(applied);
        assert!(after.waiting <= u64::from(tc::PACKETS_MAX) && after.waiting > 500, "{after:?}");
        assert_eq!(after.waiting + after.dropped + after.packets - before.packets, 1_201, "{after:?}");
        drop((socket, sockets));
    });
}

#[test]
fn changed_shares_take_force_and_lose_no_packet() {
    on_cable(slow(true, Late::Continue), |ends, applied, tags| {
        for (letter, ms) in [(b'a', 50_000), (b'b', 20_000), (b'c', 40_000)] {
            ends.send(&ends.with(at(ms)), letter, 1_400);
        }
        let fast = Link {
            bucket: Some(Bucket { burst: Bytes::new(4_000), rate: Rate::from_bps(8_000_000) }),
            ..slow(true, Late::Drop)
        };
        let plan = Plan::under(Discipline::own(&fast), &fast, &ends.device).unwrap();
        let rules = [Rule { of: "port:7000".parse().unwrap(), role: Role::RealTime }];
        applied.change(&plan, &rules).unwrap();
        tags.change(&plan).unwrap();
        assert_eq!(ends.letters(4), "bca-");
        // The frames of the check have left, too.
        let mut counters = || applied.status().unwrap().classes[0].counters;
        while counters().waiting > 0 {
            pause(Span::from_ms(10));
        }
        let before = counters().packets;
        ends.send(&ends.socket(), b'p', 100);
        assert_eq!(ends.letters(1), "p");
        assert_eq!(counters().packets, before + 1, "by its port");
        let htb = Plan::new(&fast, &ends.device).unwrap();
        assert!(matches!(applied.change(&htb, &rules), Err(NetError::OtherDiscipline { .. })));
    });
}
