//! How fast the network's machines are, on one thread.
//!
//! `cargo bench -p takt-net` compares the EDF packet queue with a plain `BinaryHeap` of packets, and
//! counts packets per CPU-second through queue, bucket, link and port. Beside it runs the same model
//! on ns-3 with `-- --ns3` (Debian libns3-dev 3.37, built by c++), and in SimPy with `--simpy PYTHON`
//! (PyPI simpy 4.1.2, by that interpreter).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use takt_model::draw::philox2x64;
use takt_model::{Bytes, Probability, Rate, Span, Time};
use takt_net::{
    Background, BucketSpec, ClassSpec, CrossPattern, CrossSpec, DelayChoice, Delays, Egress, EgressDecision,
    EgressEvent, EgressSpec, LateRule, Link, LinkDecision, LinkEvent, LinkSpec, Order, Packet, PacketQueue, Port,
    PortDecision, PortEvent, PortSpec, QueueSpec,
};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    println!("EDF packet queue: one pop and one push, with so many packets waiting");
    for packets in [100, 10_000, 1_000_000] {
        let heap = best(|| plain_heap(packets));
        for streams in [100, packets] {
            let queue = best(|| packet_queue(packets, streams));
            println!(
                "  {packets:>9} packets of {streams:>9} streams: {:>6.1} ns, {:.2} times BinaryHeap ({heap:.1} ns)",
                queue,
                queue / heap
            );
        }
    }
    let takt = 1e9 / best(|| path(1_000_000));
    println!("queue, bucket, link and port in a row: {:.2} M packets per CPU-second", takt / 1e6);
    if args.iter().any(|arg| arg == "--ns3") {
        peer("ns-3", takt, ns3());
    }
    if let Some(python) = args.iter().position(|arg| arg == "--simpy").and_then(|at| args.get(at + 1)) {
        peer("SimPy", takt, run(Command::new(python).arg(SOURCES.to_owned() + "simpy_peer.py")));
    }
}

/// The least of three runs.
fn best(mut run: impl FnMut() -> f64) -> f64 {
    (0..3).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds of CPU time that each of `steps` takes.
fn time(steps: u64, mut run: impl FnMut()) -> f64 {
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    run();
    let wall = wall.elapsed().as_secs_f64();
    let seconds = cpu.zip(cpu_seconds()).map_or(wall, |(before, after)| after - before);
    seconds * 1e9 / steps as f64
}

/// CPU time of this thread so far.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse::<f64>().ok().map(|ns| ns / 1e9)
}

fn random(number: u64) -> u64 {
    philox2x64([number, 0], 7)[0]
}

/// Pops and pushes of a measurement.
const STEPS: u64 = 1_000_000;

fn packet(stream: u32, now: u64, number: u64) -> Packet {
    let deadline = Time::from_ns(now + random(number) % 1_000_000);
    Packet { stream, bytes: Bytes::new(400), deadline, tag: number }
}

/// A packet as an entry of the plain heap, by deadline and number.
struct Entry(Time, u64, Packet);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

fn plain_heap(packets: usize) -> f64 {
    let mut heap = BinaryHeap::new();
    let entry = |packet: Packet| Reverse(Entry(packet.deadline, packet.tag, packet));
    (0..packets as u64).for_each(|number| heap.push(entry(packet(0, 0, number))));
    time(STEPS, || {
        for number in 0..STEPS {
            let Some(Reverse(Entry(now, _, first))) = heap.pop() else { return };
            heap.push(entry(packet(first.stream, now.as_ns(), number + packets as u64)));
        }
        black_box(heap.len());
    })
}

fn packet_queue(packets: usize, streams: usize) -> f64 {
    let spec = QueueSpec { order: Order::Edf, late: LateRule::Send, packets_max: packets, streams };
    let mut queue = PacketQueue::new(spec).expect("the limits are in range");
    for number in 0..packets as u64 {
        let stream = (number % streams as u64) as u32;
        queue.push(Time::ZERO, packet(stream, 0, number)).expect("there is room");
    }
    time(STEPS, || {
        for number in 0..STEPS {
            let Some(first) = queue.pop(Time::ZERO, |_| {}) else { return };
            let next = packet(first.packet.stream, first.packet.deadline.as_ns(), number + packets as u64);
            let _ = queue.push(Time::ZERO, next);
        }
        black_box(queue.len());
    })
}

/// Ten flows of 400 bytes a millisecond each, in EDF order, through a bucket of 40 Mbit on a line of 1 Gbit beside a
/// background that is busy for 1 ms of 10. Then a link of 50 to 80 us, and a port of 100 Mbit where others
/// send bursts of 15 kB at 40 Mbit. `simpy_peer.py` has the same numbers. CPU nanoseconds a packet.
fn path(packets: u64) -> f64 {
    const FLOWS: u64 = 10;
    const PERIOD: u64 = 1_000_000;
    let queue = QueueSpec { order: Order::Edf, late: LateRule::Send, packets_max: 1_000, streams: FLOWS as usize };
    let bucket = BucketSpec { rate: Rate::from_bps(40_000_000), burst: Bytes::new(1_000) };
    let real_time = ClassSpec { queue, bucket: Some(bucket), packet_max: Bytes::new(400), background: None };
    let source = Background { bytes: Bytes::new(1_500), period: Span::from_ms(10), busy: Span::from_ms(1) };
    let background = ClassSpec { background: Some(source), ..ClassSpec::fifo() };
    let spec = EgressSpec { rate: Rate::from_bps(1_000_000_000), classes: vec![real_time, background] };
    let mut egress = Egress::new(spec).expect("the values are right");
    let delays = Delays::Uniform { min: Span::from_us(50), max: Span::from_us(80) };
    let spec = LinkSpec { delays, loss: Probability::NONE, packets_max: 1_000 };
    let mut link = Link::new(spec).expect("the values are right");
    let cross = CrossSpec {
        burst: Bytes::new(15_000),
        rate: Rate::from_bps(40_000_000),
        packet: Bytes::new(1_500),
        offset: Span::ZERO,
        pattern: CrossPattern::Bursts,
    };
    let (rate, latency) = (Rate::from_bps(100_000_000), Span::from_us(10));
    let spec = PortSpec { rate, latency, cross: Some(cross), fifo: true, packets_max: 1_000, pairs: 1 };
    let mut port = Port::new(spec).expect("the values are right");

    let (mut to_egress, mut to_link, mut to_port) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sent, mut left) = (0u64, 0u64);
    let next_of = |sent: u64| (sent < packets).then(|| Time::from_ns(sent / FLOWS * PERIOD));
    time(packets, || {
        while left < packets {
            let wakeups = [port.next_wakeup(), link.next_wakeup(), next_of(sent), egress.next_wakeup()];
            let Some(now) = wakeups.into_iter().flatten().min() else { return };
            let due = |wakeup: Option<Time>| wakeup == Some(now);
            if due(port.next_wakeup()) {
                port.on_event(now, PortEvent::Wake, &mut to_port);
            }
            if due(link.next_wakeup()) {
                link.on_event(now, LinkEvent::Wake, &mut to_link);
            }
            while due(next_of(sent)) {
                let deadline = now.saturating_add(Span::from_ns(random(sent) % PERIOD));
                let packet = Packet { stream: (sent % FLOWS) as u32, bytes: Bytes::new(400), deadline, tag: sent };
                egress.on_event(now, EgressEvent::Arrive { class: 0, packet }, &mut to_egress);
                sent += 1;
            }
            if due(egress.next_wakeup()) {
                egress.on_event(now, EgressEvent::Wake, &mut to_egress);
            }
            for decision in to_egress.drain(..) {
                match decision {
                    EgressDecision::End { packet, class: 0 } => {
                        let event = LinkEvent::Send {
                            packet,
                            number: 0,
                            delay: DelayChoice::Drawn(random(!packet.tag)),
                            loss_draw: 0,
                        };
                        link.on_event(now, event, &mut to_link);
                    }
                    EgressDecision::Drop { .. } => panic!("nothing overflows"),
                    _ => {}
                }
            }
            for decision in to_link.drain(..) {
                let LinkDecision::Deliver(packet) = decision else { panic!("nothing is lost") };
                let event = PortEvent::Arrive { packet, pair: 0, latency_draw: u64::MAX };
                port.on_event(now, event, &mut to_port);
            }
            for decision in to_port.drain(..) {
                let PortDecision::Leave(_) = decision else { panic!("nothing overflows") };
                left += 1;
            }
        }
    })
}

/// Where the peers' sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/");

/// Builds the model on ns-3 and runs it. Not all libraries of the package's pkg-config file come with it, so two are
/// named here.
fn ns3() -> Result<String, String> {
    let program = std::env::temp_dir().join(format!("takt-ns3-peer-{}", std::process::id()));
    let flags = run(Command::new("pkg-config").args(["--cflags", "ns3-network"]))?;
    let source = SOURCES.to_owned() + "ns3_peer.cc";
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", "-std=c++17"]).args(flags.split_whitespace()).arg(source);
    let built = run(compiler.args(["-lns3-network", "-lns3-core", "-o"]).arg(&program));
    // As for takt, the best of three runs.
    let best = |_| -> Result<f64, String> {
        let rates =
            (0..3).map(|_| run(&mut Command::new(&program))?.trim().parse().map_err(|error| format!("{error}")));
        rates.collect::<Result<Vec<f64>, _>>().map(|rates| rates.into_iter().fold(0.0, f64::max))
    };
    let rate = built.and_then(best);
    let _ = std::fs::remove_file(&program);
    rate.map(|rate| rate.to_string())
}

/// What a command prints, or why it does not.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name} does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Prints the ratio to what a peer printed: its packets per CPU-second.
fn peer(name: &str, takt: f64, printed: Result<String, String>) {
    match printed.and_then(|text| text.trim().parse::<f64>().map_err(|_| format!("it printed {text:?}, no number"))) {
        Ok(rate) => println!(
            "  {name} on the same model: {:.4} M packets per CPU-second; takt does {:.1} times as many",
            rate / 1e6,
            takt / rate
        ),
        Err(why) => println!("  {name} was not measured: {why}"),
    }
}
