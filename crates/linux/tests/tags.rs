//! Deadlines of ordinary sockets in the kernel (feature `bpf`), between network namespaces of the
//! test's own. If this machine cannot, each test says so and passes.
#![cfg(feature = "bpf")]

mod common;

use std::io;
use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use socket2::SockRef;
use takt_linux::clock::{monotonic_ns, pause};
use takt_linux::net::Cable;
use takt_linux::tc::{
    self, Applied, Device, LateDatagrams, NetError, PacketDeadline, Plan, Role, Rule, TagCounts, TagSpec, Tags,
    deadline, set_deadline,
};
use takt_model::{Bucket, Bytes, Link, Rate, Span, Time};

use common::eventually;

const MINUTE: Span = Span::from_s(60);
const PORT: u16 = 7000;

/// Runs `body` at the left end of a new cable, with a real-time class of that rate.
fn on_cable(rate: u64, late: LateDatagrams, body: impl FnOnce(&Ends, &mut Applied, &mut Tags) + Send) {
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("skipped: {error}"),
    };
    let ends = Ends { receiver: receiver(&cable), cable };
    let at_left = || {
        let device = Device::find(ends.cable.left().device()).unwrap().unwrap();
        let plan = Plan::new(&link(rate), &device).unwrap();
        // No rule chooses the real-time class but the option.
        let nothing = [Rule { of: "port:1".parse().unwrap(), role: Role::RealTime }];
        let mut applied = tc::apply(&device, &plan, &nothing, false).unwrap();
        let mut tags = match Tags::attach(&applied, TagSpec { group: "/".into(), late }) {
            Ok(tags) => tags,
            Err(error @ NetError::Programs(_)) => return println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!((tags.probed(), tags.counts().unwrap()), (4, TagCounts::default()));
        // The kernel learns the neighbour's address.
        assert_eq!(ends.socket().send(b"first").unwrap(), 5);
        body(&ends, &mut applied, &mut tags);
    };
    ends.cable.left().run(at_left).unwrap();
}

/// A cable, and a socket at its right end.
struct Ends {
    cable: Cable,
    receiver: UdpSocket,
}

impl Ends {
    /// A socket at the left end, which sends to the other.
    fn socket(&self) -> UdpSocket {
        let socket = UdpSocket::bind((self.cable.left().address(), 0)).unwrap();
        socket.connect((self.cable.right().address(), PORT)).unwrap();
        socket
    }

    /// The next message that came.
    fn message(&self) -> Vec<u8> {
        let mut bytes = [0; 2000];
        let length = self.receiver.recv(&mut bytes).unwrap();
        bytes[..length].to_vec()
    }
}

/// A socket at the right end.
fn receiver(cable: &Cable) -> UdpSocket {
    let bind = || UdpSocket::bind((cable.right().address(), PORT)).unwrap();
    let socket = cable.right().run(bind).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

fn link(rate: u64) -> Link {
    let bucket = Some(Bucket { burst: Bytes::new(4_000), rate: Rate::from_bps(rate) });
    Link { bucket, ..Link::at(Rate::from_bps(100_000_000)) }
}

/// Packets that the real-time class has sent.
fn real_time(applied: &mut Applied) -> u64 {
    let status = applied.status().unwrap();
    status.classes.iter().find(|class| class.role == Role::RealTime).unwrap().counters.packets
}

#[test]
fn packets_of_a_socket_with_a_deadline_are_real_time_and_counted() {
    on_cable(20_000_000, LateDatagrams::Drop, |ends, applied, tags| {
        let before = real_time(applied);
        let (with, without) = (ends.socket(), ends.socket());
        set_deadline(&with, PacketDeadline::After(MINUTE)).unwrap();
        for _ in 0..5 {
            with.send(b"message").unwrap();
            without.send(b"message").unwrap();
        }
        let expected = TagCounts { came: 5, dropped: 0, left: 5, late: 0 };
        eventually("five have left", || tags.counts().unwrap() == expected);
        assert_eq!(real_time(applied) - before, 5, "those with a deadline alone");
        set_deadline(&with, PacketDeadline::None).unwrap();
        with.send(b"message").unwrap();
        pause(Span::from_ms(20));
        assert_eq!((tags.counts().unwrap(), real_time(applied) - before), (expected, 5));
    });
}

/// Runs `body` in a process of its own, as the user nobody without any capability. `Err` has the errno, or zero for
/// another failure. `None`: this process may not become nobody.
fn as_nobody(body: impl FnOnce() -> io::Result<()>) -> Option<Result<(), i32>> {
    const NOBODY: libc::uid_t = 65_534;
    const REFUSED: i32 = 254;
    const FAILED: i32 = 255;
    // SAFETY: the child, a copy of this thread alone, does `body` and ends without going back into the test's program.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        // SAFETY: these calls pass no memory; the list of groups has no element. The signal of alarm ends a child that
        // is stuck.
        let is_nobody = unsafe {
            libc::alarm(60);
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(NOBODY, NOBODY, NOBODY) == 0
                && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0
        };
        let status = match is_nobody.then(|| catch_unwind(AssertUnwindSafe(body))) {
            None => REFUSED,
            Some(Ok(Ok(()))) => 0,
            Some(Ok(Err(error))) => error.raw_os_error().unwrap_or(FAILED),
            Some(Err(_)) => FAILED,
        };
        // SAFETY: _exit has no preconditions, and does not return.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writing, and the number is that of a child that was not waited for.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::Interrupted);
    }
    assert!(libc::WIFEXITED(status), "wait status {status:#x}");
    match libc::WEXITSTATUS(status) {
        0 => Some(Ok(())),
        REFUSED => None,
        FAILED => Some(Err(0)),
        errno => Some(Err(errno)),
    }
}

#[test]
fn a_program_without_privilege_gives_its_packets_deadlines() {
    on_cable(20_000_000, LateDatagrams::Drop, |ends, applied, tags| {
        let before = real_time(applied);
        let body = || {
            let (with, without) = (ends.socket(), ends.socket());
            // This needs CAP_NET_ADMIN, or CAP_NET_RAW.
            if SockRef::from(&with).set_priority(7).is_ok() {
                return Err(io::Error::other("it has privileges"));
            }
            set_deadline(&with, PacketDeadline::After(MINUTE))?;
            if deadline(&with)? != PacketDeadline::After(MINUTE) {
                return Err(io::Error::other("the option has another value"));
            }
            for _ in 0..5 {
                with.send(b"message")?;
                without.send(b"message")?;
            }
            set_deadline(&with, PacketDeadline::At(Time::from_ns(1)))?;
            with.send(b"late").map(drop)
        };
        let Some(done) = as_nobody(body) else { return println!("skipped: this process may not become nobody") };
        assert_eq!(done, Ok(()));
        let expected = TagCounts { came: 6, dropped: 1, left: 5, late: 0 };
        eventually("five have left", || tags.counts().unwrap() == expected);
        assert_eq!(real_time(applied) - before, 5, "those with a deadline alone");
    });
}

#[test]
fn a_datagram_whose_time_has_passed_is_dropped_and_counted() {
    on_cable(20_000_000, LateDatagrams::Drop, |ends, _, tags| {
        let socket = ends.socket();
        let now = Time::from_ns(monotonic_ns());
        for (text, at) in [("late", Time::from_ns(1)), ("in time", now.saturating_add(MINUTE)), ("late", now)] {
            set_deadline(&socket, PacketDeadline::At(at)).unwrap();
            // The program is told nothing, as of other losses.
            assert_eq!(socket.send(text.as_bytes()).unwrap(), text.len());
        }
        let expected = TagCounts { came: 3, dropped: 2, left: 1, late: 0 };
        eventually("one has left", || tags.counts().unwrap() == expected);
        assert_eq!([ends.message(), ends.message()], [b"first".to_vec(), b"in time".to_vec()]);
    });
}

#[test]
fn datagrams_that_cannot_start_in_time_are_dropped_by_the_bucket_of_their_class() {
    // A packet of 1000 bytes takes a second.
    on_cable(8_000, LateDatagrams::Drop, |ends, _, tags| {
        let socket = ends.socket();
        set_deadline(&socket, PacketDeadline::After(Span::from_ms(1))).unwrap();
        // With headers and what Ethernet takes on the wire. Frames of the check took 240 bytes of the burst.
        let message = [0; 1000 - 66];
        for _ in 0..10 {
            socket.send(&message).unwrap();
        }
        // Four start with tokens that are not negative; the others would wait for a part of a second.
        eventually("all have left", || tags.counts().unwrap().left == 4);
        let counts = tags.counts().unwrap();
        assert_eq!((counts.came, counts.dropped, counts.left), (10, 6, 4));
    });
}

#[test]
fn late_packets_are_counted_when_they_leave() {
    on_cable(20_000_000, LateDatagrams::Send, |ends, _, tags| {
        let socket = ends.socket();
        set_deadline(&socket, PacketDeadline::After(Span::from_ns(1))).unwrap();
        for _ in 0..5 {
            socket.send(b"message").unwrap();
        }
        let expected = TagCounts { came: 5, dropped: 0, left: 5, late: 5 };
        eventually("five have left", || tags.counts().unwrap() == expected);
    });
}

#[test]
fn the_option_is_told_checked_and_gone_with_the_programs() {
    let before = UdpSocket::bind("127.0.0.1:0").unwrap();
    on_cable(20_000_000, LateDatagrams::Drop, |ends, applied, tags| {
        let socket = ends.socket();
        for value in [
            PacketDeadline::After(Span::from_ms(2)),
            PacketDeadline::At(Time::from_ns(77)),
            PacketDeadline::None,
            PacketDeadline::After(Span::from_ns(1)),
        ] {
            set_deadline(&socket, value).unwrap();
            assert_eq!(deadline(&socket).unwrap(), value);
        }
        let large = PacketDeadline::After(Span::from_ns(1 << 63));
        assert_eq!(set_deadline(&socket, large).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(
            deadline(&socket).unwrap(),
            PacketDeadline::After(Span::from_ns(1)),
            "the refused one changed nothing"
        );
        // Options of the kernel work as before.
        socket.set_ttl(7).unwrap();
        assert_eq!(socket.ttl().unwrap(), 7);

        // A slower class from now on: a packet of 1000 bytes takes a second.
        tags.change(&Plan::new(&link(8_000), applied.device()).unwrap()).unwrap();
        for _ in 0..10 {
            socket.send(&[0; 1000]).unwrap();
        }
        assert!(tags.counts().unwrap().dropped >= 5, "the burst is 4000 bytes");
        set_deadline(&before, PacketDeadline::After(MINUTE)).unwrap();
    });
    // Another test's programs may be there still.
    eventually("the kernel knows no such option", || {
        set_deadline(&before, PacketDeadline::None).is_err_and(|error| error.raw_os_error() == Some(libc::ENOPROTOOPT))
    });
}

#[test]
fn other_control_groups_have_no_such_option() {
    let Some(mount) = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .map(PathBuf::from)
        .into_iter()
        .find(|at| at.join("cgroup.procs").exists() && at.join("cgroup.controllers").exists())
    else {
        return println!("skipped: cgroup v2 is not mounted");
    };
    let name = format!("takt-test-{}", std::process::id());
    let Ok(()) = std::fs::create_dir(mount.join(&name)) else { return println!("skipped: no control group") };
    on_cable(20_000_000, LateDatagrams::Drop, |ends, applied, _| {
        // In a group of its own no process is, so nothing is probed.
        let group = PathBuf::from("/").join(&name);
        let tags = Tags::attach(applied, TagSpec { group, late: LateDatagrams::Drop }).unwrap();
        assert_eq!(tags.probed(), 0);
        let socket = ends.socket();
        set_deadline(&socket, PacketDeadline::After(MINUTE)).unwrap();
        socket.send(b"message").unwrap();
        pause(Span::from_ms(20));
        assert_eq!(tags.counts().unwrap().came, 0);
        let missing = TagSpec { group: "/no-such-group".into(), late: LateDatagrams::Drop };
        let error = Tags::attach(applied, missing).unwrap_err();
        assert!(matches!(error, NetError::Rule { .. }), "{error}");
    });
    std::fs::remove_dir(mount.join(&name)).unwrap();
}

#[test]
fn a_second_device_forgets_no_deadline_of_the_first() {
    on_cable(1_000_000, LateDatagrams::Send, |ends, _, _| {
        let socket = ends.socket();
        set_deadline(&socket, PacketDeadline::After(MINUTE)).unwrap();
        on_cable(1_000_000, LateDatagrams::Send, |_, _, _| {
            assert_eq!(deadline(&socket).unwrap(), PacketDeadline::After(MINUTE));
            set_deadline(&socket, PacketDeadline::None).unwrap();
            assert_eq!(deadline(&socket).unwrap(), PacketDeadline::None);
        });
    });
}
