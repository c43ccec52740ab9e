//! The departures of HTB with a pfifo, and of takt's own discipline, packet by packet, beside those of the
//! egress of takt-net: the same arrivals, sizes, rate and burst. The kernel stamps each packet as it
//! comes out of the cable.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use takt_linux::clock::{pause, realtime_ns};
use takt_linux::datagram::{Datagrams, Destination, Sent};
use takt_linux::net::Cable;
use takt_linux::tc::{Applied, Device, Discipline, NetError, Plan, Rule, apply};
use takt_model::{Bucket, Bytes, Link, Rate, Span, Time};
use takt_net::{BucketSpec, ClassSpec, Egress, EgressDecision, EgressEvent, EgressSpec, Packet};

const RATE: Rate = Rate::from_bps(8_000_000);
const BURST: u64 = 6_000;
/// Headers of UDP, IPv4 and Ethernet, and what a frame takes on the wire beside itself.
const AROUND: u64 = 8 + 20 + 14 + 24;
const PRIORITY: u32 = 6;
const PORT: u16 = 7000;

/// A packet: its size on the wire, and the instant just before it was sent.
#[derive(Clone, Copy)]
struct Arrival {
    bytes: u64,
    at: u64,
}

#[test]
fn departures_of_htb_are_those_of_the_machine_packet_by_packet() {
    compare(Discipline::Htb);
}

/// First in, first out as HTB with a pfifo: the same test.
#[cfg(feature = "bpf")]
#[test]
fn departures_of_takts_own_discipline_are_those_of_the_machine_packet_by_packet() {
    compare(Discipline::Own { edf: false, late: takt_model::Late::Continue });
}

fn compare(discipline: Discipline) {
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("skipped: {error}"),
    };
    if discipline != Discipline::Htb
        && let Some(why) = unable(&cable, discipline)
    {
        assert!(std::env::var_os("TAKT_DEMAND_LIVE").is_none(), "{why}");
        return println!("skipped: {why}");
    }
    // A machine that pauses loses tokens of the kernel's bucket, so that all later packets are late. Another rule
    // differs each time.
    let found: Vec<String> = (0..5).map_while(|_| differs(&cable, discipline)).collect();
    assert!(found.len() < 5, "{found:#?}");
}

/// How the departures of a run differ from those of the machine, if they do.
fn differs(cable: &Cable, discipline: Discipline) -> Option<String> {
    let sizes: Vec<usize> = (0..240_usize).map(|i| 100 + i * 7919 % 1300).collect();
    let count = sizes.len();
    let (arrivals, departures) = std::thread::scope(|scope| {
        let (ready, go) = std::sync::mpsc::channel();
        let receiver = scope.spawn(|| receive(cable, count, ready));
        go.recv().unwrap();
        let arrivals = scope.spawn(|| send(cable, discipline, &sizes)).join().unwrap();
        (arrivals, receiver.join().unwrap())
    });
    assert_eq!(departures.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..count as u32).collect::<Vec<_>>());
    let machine = machine(&arrivals, BURST + 1);
    let mut late = Vec::new();
    for ((number, departure), expected) in departures.iter().zip(&machine) {
        assert!(departure >= expected, "packet {number} left {} ns before the machine's", expected - departure);
        late.push(departure - expected);
    }
    // A rule that differs by a packet anywhere shifts all later ones by its time.
    late.sort_unstable();
    let mut times: Vec<u64> = arrivals.iter().map(|of| of.bytes * 8_000_000_000 / RATE.as_bps()).collect();
    times.sort_unstable();
    let (late, time) = (late[count / 2], times[count / 2]);
    println!("{count} packets; later than the machine's by {late} ns in the median, {time} ns for a packet");
    if late >= time {
        return Some(format!("{late} ns late in the median; a packet takes {time} ns"));
    }
    // A bucket that waits for a whole frame looks plausible. The test tells it from this one.
    let other = self::machine(&arrivals, BURST - 1_500);
    let apart = other.iter().zip(&departures).any(|(other, (_, departure))| other > departure);
    (!apart).then(|| "also as a bucket that waits for a whole frame".to_owned())
}

/// A class of that rate under the discipline, at the left end.
fn applied(cable: &Cable, discipline: Discipline) -> Result<Applied, NetError> {
    cable.left().enter().unwrap();
    let device = Device::find(cable.left().device()).unwrap().unwrap();
    let bucket = Some(Bucket { burst: Bytes::new(BURST), rate: RATE });
    let link = Link { bucket, ..Link::at(Rate::from_bps(10_000_000_000)) };
    let plan = Plan::under(discipline, &link, &device).unwrap();
    apply(&device, &plan, &Rule::usual(false), false)
}

/// Why this kernel or user cannot have the discipline.
fn unable(cable: &Cable, discipline: Discipline) -> Option<String> {
    std::thread::scope(|scope| {
        scope.spawn(|| applied(cable, discipline).err().map(|error| error.to_string())).join().unwrap()
    })
}

/// Sends bursts of packets through the class.
fn send(cable: &Cable, discipline: Discipline, sizes: &[usize]) -> Vec<Arrival> {
    let applied = applied(cable, discipline).unwrap();
    let socket = Datagrams::bind((cable.left().address(), 0).into(), PRIORITY, 4 << 20, Span::from_ms(1)).unwrap();
    let to = Destination::from(SocketAddr::from((cable.right().address(), PORT)));
    // The kernel learns the neighbour's address, and the bucket fills again.
    socket.send([b"first", b""], &to, Span::ZERO);
    pause(Span::from_ms(100));
    let mut arrivals = Vec::new();
    for (number, size) in sizes.iter().enumerate() {
        if number % 60 == 0 {
            // The burst before has left, or has not: both are looked at.
            pause(Span::from_ms(if number == 120 { 100 } else { 10 }));
        }
        arrivals.push(Arrival { bytes: *size as u64 + AROUND, at: realtime_ns() });
        let number = (number as u32).to_ne_bytes();
        assert_eq!(socket.send([&number, &vec![0; size - 4]], &to, Span::ZERO), Sent::Yes);
    }
    pause(Span::from_ms(300));
    applied.restore().unwrap();
    arrivals
}

/// Numbers of packets, and when the kernel took each in, at the right end.
fn receive(cable: &Cable, count: usize, ready: std::sync::mpsc::Sender<()>) -> Vec<(u32, u64)> {
    cable.right().enter().unwrap();
    let socket = UdpSocket::bind((cable.right().address(), PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let on: libc::c_int = 1;
    let (value, size) = (std::ptr::from_ref(&on).cast(), size_of_val(&on) as libc::socklen_t);
    // SAFETY: the value is of the size and form that the option takes, and outlives the call.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, value, size) };
    assert_eq!(set, 0);
    ready.send(()).unwrap();
    let mut came = Vec::new();
    while came.len() < count {
        match stamped(&socket) {
            Some((5, ..)) => {}
            Some((_, number, at)) => came.push((number, at)),
            None => panic!("{} of {count} packets came", came.len()),
        }
    }
    came
}

/// The length of a datagram, its number, and its stamp in ns.
fn stamped(socket: &UdpSocket) -> Option<(usize, u32, u64)> {
    let mut bytes = [0_u8; 2048];
    // Aligned as the kernel's headers of control messages are.
    let mut control = [0_u64; 16];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all bytes zero is a value of this plain structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message points to buffers of the lengths that it gives, and all outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).ok()?;
    // SAFETY: the kernel has filled in the control messages, whose length is in the header; a stamp is a timespec.
    let at = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!head.is_null() && (*head).cmsg_type == libc::SCM_TIMESTAMPNS, "a stamp comes with each datagram");
        libc::CMSG_DATA(head).cast::<libc::timespec>().read_unaligned()
    };
    let number = u32::from_ne_bytes(*bytes.first_chunk()?);
    Some((length, number, at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64))
}

/// When each packet starts in an egress of takt-net, on a line that delays none.
fn machine(arrivals: &[Arrival], burst: u64) -> Vec<u64> {
    let bucket = Some(BucketSpec { rate: RATE, burst: Bytes::new(burst) });
    let class = ClassSpec { bucket, packet_max: Bytes::new(2_000), ..ClassSpec::fifo() };
    let spec = EgressSpec { rate: Rate::from_bps(1_000_000_000_000), classes: vec![class] };
    let mut egress = Egress::new(spec).unwrap();
    let base = arrivals[0].at;
    let (mut starts, mut decisions) = (Vec::new(), Vec::new());
    let mut wake_until = |egress: &mut Egress, until: Option<Time>| {
        while let Some(now) = egress.next_wakeup().filter(|now| until.is_none_or(|until| *now <= until)) {
            egress.on_event(now, EgressEvent::Wake, &mut decisions);
            for decision in decisions.drain(..) {
                match decision {
                    EgressDecision::Start { .. } => starts.push(base + now.as_ns()),
                    EgressDecision::Drop { packet, why, .. } => panic!("packet {} dropped: {why}", packet.tag),
                    EgressDecision::End { .. } => {}
                }
            }
        }
    };
    for (number, arrival) in arrivals.iter().enumerate() {
        let now = Time::from_ns(arrival.at - base);
        wake_until(&mut egress, Some(now));
        let bytes = Bytes::new(arrival.bytes);
        let packet = Packet { stream: 0, bytes, deadline: Time::MAX, tag: number as u64 };
        egress.on_event(now, EgressEvent::Arrive { class: 0, packet }, &mut Vec::new());
        wake_until(&mut egress, Some(now));
    }
    wake_until(&mut egress, None);
    starts
}
