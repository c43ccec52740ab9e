//! Compares the departure of each packet with that in the egress of takt-net. Both have the same arrivals, sizes, rate
//! and burst. The kernel stamps each packet as it comes out of the cable.

use std::net::SocketAddr;

use takt_linux::clock::{pause, realtime_ns};
use takt_linux::datagram::Datagrams;
use takt_linux::net::Cable;
use takt_linux::tc::{Applied, Device, Discipline, NetError, Plan, Rule, apply};
use takt_model::{Bucket, Bytes, Link, Rate, Span, Time};
use takt_net::{BucketSpec, ClassSpec, Egress, EgressDecision, EgressEvent, EgressSpec, Packet};

/// SO_PRIORITY of the class.
pub(crate) const PRIORITY: u32 = 6;
const RATE: Rate = Rate::from_bps(8_000_000);
const BURST: u64 = 6_000;
/// Headers of UDP, IPv4 and Ethernet, and what a frame takes on the wire beside itself.
const AROUND: u64 = 8 + 20 + 14 + 24;
const PORT: u16 = 7000;

/// The way of datagrams to the class.
pub(crate) trait Sender {
    fn send(&mut self, datagram: &[u8]);

    /// After the last datagram.
    fn end(self);
}

/// A packet: its size on the wire, and the instant just before it was sent.
#[derive(Clone, Copy)]
struct Arrival {
    bytes: u64,
    at: u64,
}

/// `open` makes a sender from the left end of the cable to an address.
pub(crate) fn compare<S: Sender>(discipline: Discipline, open: impl Fn(&Cable, SocketAddr) -> S + Sync) {
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
    let found: Vec<String> = (0..5).map_while(|_| differs(&cable, discipline, &open)).collect();
    assert!(found.len() < 5, "{found:#?}");
}

/// How the departures of a run differ from those of the machine, if they do.
fn differs<S: Sender>(
    cable: &Cable,
    discipline: Discipline,
    open: &(impl Fn(&Cable, SocketAddr) -> S + Sync),
) -> Option<String> {
    let sizes: Vec<usize> = (0..240_usize).map(|i| 100 + i * 7919 % 1300).collect();
    let count = sizes.len();
    let (arrivals, departures) = std::thread::scope(|scope| {
        let (ready, go) = std::sync::mpsc::channel();
        let receiver = scope.spawn(|| receive(cable, count, ready));
        go.recv().unwrap();
        let arrivals = scope.spawn(|| send(cable, discipline, &sizes, open)).join().unwrap();
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
fn send<S: Sender>(
    cable: &Cable,
    discipline: Discipline,
    sizes: &[usize],
    open: impl Fn(&Cable, SocketAddr) -> S,
) -> Vec<Arrival> {
    let applied = applied(cable, discipline).unwrap();
    let mut sender = open(cable, (cable.right().address(), PORT).into());
    // The kernel learns the neighbour's address, and the bucket fills again.
    sender.send(b"first");
    pause(Span::from_ms(100));
    let mut arrivals = Vec::new();
    for (number, size) in sizes.iter().enumerate() {
        if number % 60 == 0 {
            // The burst before has left, or has not: both are looked at.
            pause(Span::from_ms(if number == 120 { 100 } else { 10 }));
        }
        let mut datagram = vec![0; *size];
        datagram[..4].copy_from_slice(&(number as u32).to_ne_bytes());
        arrivals.push(Arrival { bytes: *size as u64 + AROUND, at: realtime_ns() });
        sender.send(&datagram);
    }
    pause(Span::from_ms(300));
    sender.end();
    applied.restore().unwrap();
    arrivals
}

/// Numbers of packets, and when the kernel took each in, at the right end.
fn receive(cable: &Cable, count: usize, ready: std::sync::mpsc::Sender<()>) -> Vec<(u32, u64)> {
    cable.right().enter().unwrap();
    let at = (cable.right().address(), PORT).into();
    let socket = Datagrams::bind(at, 0, 1 << 20, Span::from_s(10)).unwrap();
    socket.stamp().unwrap();
    ready.send(()).unwrap();
    let (mut came, mut bytes) = (Vec::new(), [0; 2048]);
    while came.len() < count {
        match socket.await_stamped(&mut bytes) {
            Some((5, ..)) => {}
            Some((_, _, stamp)) => {
                let number = u32::from_ne_bytes(*bytes.first_chunk().unwrap());
                came.push((number, stamp.expect("a stamp comes with each datagram")));
            }
            None => panic!("{} of {count} packets came", came.len()),
        }
    }
    came
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
