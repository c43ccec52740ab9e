use proptest::prelude::*;

use super::*;

/// A byte takes a microsecond at this rate.
const MEGABYTE: Rate = Rate::from_bps(8_000_000);

fn packet(stream: u32, bytes: u64, deadline: u64, tag: u64) -> Packet {
    Packet { stream, bytes: Bytes::new(bytes), deadline: Time::from_ns(deadline), tag }
}

fn bucket(rate: u64, burst: u64) -> Option<BucketSpec> {
    Some(BucketSpec { rate: Rate::from_bps(rate), burst: Bytes::new(burst) })
}

/// Runs until nothing is left to do, or until `end`. Arrivals are (ns, class, packet) in order.
fn run(egress: &mut Egress, arrivals: &[(u64, usize, Packet)], end: u64) -> Vec<(u64, EgressDecision)> {
    let (mut log, mut arrivals) = (Vec::new(), arrivals.iter().peekable());
    let mut decisions = Vec::new();
    loop {
        let arrival = arrivals.peek().map(|(at, ..)| Time::from_ns(*at));
        let wakeup = egress.next_wakeup();
        let Some(now) = arrival.into_iter().chain(wakeup).min().filter(|now| now.as_ns() <= end) else { return log };
        if arrival == Some(now) {
            let (_, class, packet) = *arrivals.next().unwrap();
            egress.on_event(now, EgressEvent::Arrive { class, packet }, &mut decisions);
        } else {
            egress.on_event(now, EgressEvent::Wake, &mut decisions);
        }
        log.extend(decisions.drain(..).map(|decision| (now.as_ns(), decision)));
    }
}

/// One line of text for each class: a letter for each 100 us that its packets take on the line.
fn lanes(log: &[(u64, EgressDecision)], classes: usize, end: u64) -> String {
    let mut lanes = vec![vec!['.'; (end / 100_000) as usize]; classes];
    for (at, decision) in log {
        if let EgressDecision::Start { class, packet, end } = decision {
            let letter = if packet.is_background() { '#' } else { (b'a' + packet.tag as u8) as char };
            for place in (at / 100_000)..(end.as_ns() / 100_000) {
                if let Some(place) = lanes[*class].get_mut(place as usize) {
                    *place = letter;
                }
            }
        }
    }
    lanes.into_iter().map(String::from_iter).collect::<Vec<_>>().join("\n")
}

/// Real-time packets go first, in EDF order. A packet under way is not interrupted.
#[test]
fn the_first_class_goes_first_by_deadline() {
    let background = ClassSpec { background: Some(Background::always(Bytes::new(300))), ..ClassSpec::fifo() };
    let spec = EgressSpec { rate: MEGABYTE, classes: vec![ClassSpec::edf(3), background] };
    let arrivals = [
        (50_000, 0, packet(0, 200, 3_000_000, 0)),
        (200_000, 0, packet(1, 200, 2_000_000, 1)),
        (700_000, 0, packet(2, 100, 9_000_000, 2)),
        (1_900_000, 0, packet(2, 200, 9_000_000, 3)),
    ];
    let log = run(&mut Egress::new(spec).unwrap(), &arrivals, 2_400_000);
    assert_eq!(lanes(&log, 2, 2_400_000), "...bbaac............dd..\n###.....############..##");
}

/// The bucket of the real-time class has a third of the line: it goes into debt, and the background
/// sends meanwhile.
#[test]
fn a_bucket_holds_its_class_back() {
    let real_time = ClassSpec { bucket: bucket(2_666_667, 200), packet_max: Bytes::new(200), ..ClassSpec::fifo() };
    let background = ClassSpec { background: Some(Background::always(Bytes::new(100))), ..ClassSpec::fifo() };
    let spec = EgressSpec { rate: MEGABYTE, classes: vec![real_time, background] };
    let arrivals: Vec<_> = (0..4).map(|tag| (0, 0, packet(0, 200, 0, tag))).collect();
    let log = run(&mut Egress::new(spec).unwrap(), &arrivals, 2_000_000);
    assert_eq!(lanes(&log, 2, 2_000_000), "aabb..cc....dd......\n....##..####..######");
}

#[test]
fn a_background_source_has_its_busy_times() {
    let source = Background { bytes: Bytes::new(200), period: Span::from_ms(1), busy: Span::from_us(500) };
    let class = ClassSpec { background: Some(source), ..ClassSpec::fifo() };
    let spec = EgressSpec { rate: MEGABYTE, classes: vec![class] };
    let log = run(&mut Egress::new(spec).unwrap(), &[(700_000, 0, packet(0, 200, 0, 0))], 2_000_000);
    assert_eq!(lanes(&log, 1, 2_000_000), "######.aa.######....");
}

#[test]
fn every_dropped_packet_is_reported_with_its_reason() {
    let queue = QueueSpec { order: Order::Fifo, late: LateRule::Drop, packets_max: 2, streams: 0 };
    let class = ClassSpec { queue, packet_max: Bytes::new(100), ..ClassSpec::fifo() };
    let spec = EgressSpec { rate: MEGABYTE, classes: vec![class] };
    let mut egress = Egress::new(spec).unwrap();
    let arrivals = [
        (0, 0, packet(0, 101, u64::MAX, 0)),
        (0, 0, packet(0, 100, u64::MAX, 1)),
        (0, 0, packet(0, 100, 0, 2)),
        (0, 0, packet(0, 100, u64::MAX, 3)),
        (0, 1, packet(0, 100, u64::MAX, 4)),
        (500_000, 0, packet(0, 100, 400_000, 5)),
    ];
    let log = run(&mut egress, &arrivals, u64::MAX);
    let drops: Vec<(u64, u64, DropReason)> = log
        .iter()
        .filter_map(|(at, decision)| match decision {
            EgressDecision::Drop { packet, why, .. } => Some((*at, packet.tag, *why)),
            _ => None,
        })
        .collect();
    use DropReason::{Late, Overflow, TooLarge, Unknown};
    assert_eq!(drops, [(0, 0, TooLarge), (0, 3, Overflow), (0, 4, Unknown), (100_000, 2, Late), (500_000, 5, Late)]);
    let counts = egress.counts(0).unwrap();
    assert_eq!((counts.arrived, counts.sent, counts.late, counts.overflow, egress.waiting()), (4, 1, 2, 1, 0));
}

#[test]
fn bad_values_say_what_to_do() {
    let class = ClassSpec { packet_max: Bytes::new(100), ..ClassSpec::fifo() };
    let one = |class| EgressSpec { rate: MEGABYTE, classes: vec![ClassSpec::fifo(), class] };
    let queue = QueueSpec { packets_max: 0, ..class.queue };
    let source = |bytes, period| Background { bytes: Bytes::new(bytes), period, busy: period };
    for (spec, expected) in [
        (EgressSpec { rate: Rate::from_bps(0), ..one(class.clone()) }, "rate of the link is zero"),
        (EgressSpec { rate: MEGABYTE, classes: Vec::new() }, "no class"),
        (one(ClassSpec { queue, ..class.clone() }), "class 1 of the link: packets_max 0"),
        (one(ClassSpec { bucket: bucket(0, 100), ..class.clone() }), "class 1 of the link: the rate"),
        (one(ClassSpec { bucket: bucket(1, 99), ..class.clone() }), "largest packet of 100B"),
        (one(ClassSpec { background: Some(source(0, Span::from_s(1))), ..class.clone() }), "packets of 0B"),
        (one(ClassSpec { background: Some(source(1, Span::ZERO)), ..class.clone() }), "period of 0ns"),
        (one(ClassSpec { background: Some(source(101, Span::from_s(1))), ..class }), "at most 100B"),
    ] {
        let error = Egress::new(spec).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    /// The line sends one packet at a time and rests only where no class may send. Each class
    /// keeps to its bucket. A packet waits no longer than [HEDF II-C] with HTB's rule allows:
    /// (b - l + L) / ρ + L' / C + l / C for traffic (b, r) with r <= ρ.
    #[test]
    fn the_line_and_the_buckets_hold(
        sizes in proptest::collection::vec((0u64..3_000, 50u64..400, 0usize..2), 1..80),
        rate in 500_000u64..4_000_000,
        slow in 0u64..3,
    ) {
        const SPEED: u64 = 8_000_000;
        let class = |burst| ClassSpec { bucket: bucket(rate, burst), packet_max: Bytes::new(400), ..ClassSpec::fifo() };
        let background = ClassSpec { background: Some(Background::always(Bytes::new(400))), ..ClassSpec::fifo() };
        let spec = EgressSpec { rate: MEGABYTE, classes: vec![class(400), class(700), background] };
        let mut now = 0;
        let arrivals: Vec<(u64, usize, Packet)> = (0..).zip(&sizes).map(|(tag, (pause, bytes, class))| {
            now += pause * 1_000 * slow;
            (now, *class, packet(0, *bytes, 0, tag))
        }).collect();
        let log = run(&mut Egress::new(spec).unwrap(), &arrivals, now + 600_000_000);
        let mut starts: Vec<(u64, u64, usize, Packet)> = Vec::new();
        for (at, decision) in &log {
            if let EgressDecision::Start { class, packet, end } = decision {
                prop_assert!(starts.last().is_none_or(|(_, last, ..)| last == at), "the background fills every gap");
                starts.push((*at, end.as_ns(), *class, *packet));
            }
        }
        for (i, (from, _, class, _)) in starts.iter().enumerate().filter(|(_, start)| start.2 < 2) {
            let mut bytes = 0;
            for (at, _, _, packet) in starts[i..].iter().filter(|start| start.2 == *class) {
                bytes += packet.bytes.get();
                let burst: u64 = [400, 700][*class] + 400;
                let bound = u128::from(burst) * 8_000_000_000 + u128::from(rate) * u128::from(at - from);
                prop_assert!(u128::from(bytes) * 8_000_000_000 <= bound);
            }
        }
        // b: the least burst at rate ρ that bounds the arrivals of the first class.
        let first: Vec<&(u64, usize, Packet)> = arrivals.iter().filter(|arrival| arrival.1 == 0).collect();
        let mut most = 0i128;
        for i in 0..first.len() {
            let mut bytes = 0;
            for (at, _, packet) in &first[i..] {
                bytes += packet.bytes.get();
                let brought = i128::from(rate) * i128::from(at - first[i].0);
                most = most.max(i128::from(bytes) * 8_000_000_000 - brought);
            }
        }
        for (at, _, packet) in &first {
            let (_, end, ..) = starts.iter().find(|start| start.3.tag == packet.tag && start.2 == 0).unwrap();
            let length = i128::from(packet.bytes.get()) * 8_000_000_000;
            let ceil = |work: i128, rate: u64| (work as u128).div_ceil(u128::from(rate)) as u64;
            let bound = ceil(most - length + 400 * 8_000_000_000, rate) + ceil(400 * 8_000_000_000, SPEED);
            prop_assert!(end - at <= bound + ceil(length, SPEED), "{} {}", end - at, bound);
        }
    }
}

/// The bad packets: those that start after their deadline, or not at all.
fn bad(spec: EgressSpec, arrivals: &[(u64, usize, Packet)]) -> usize {
    let in_time = |(at, decision): &(u64, EgressDecision)| match decision {
        EgressDecision::Start { packet, .. } => *at <= packet.deadline.as_ns(),
        _ => false,
    };
    let log = run(&mut Egress::new(spec).unwrap(), arrivals, u64::MAX);
    arrivals.len() - log.iter().filter(|entry| in_time(entry)).count()
}

/// The traffic of [HEDF IV-D] at 100 % load: bursts of 20 to 40 packets, with deadlines of 4 to 8 ms. The
/// same sequence goes through both queues.
#[test]
fn edf_with_late_drop_has_at_most_a_tenth_of_the_bad_packets_of_fifo_at_full_load() {
    const BYTES: u64 = 466;
    let frame = BYTES * 8_000 / 20;
    for seed in 0..20_u64 {
        let mut state = seed + 1;
        let mut draw = |from: u64, to: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            from + (state >> 33) % (to - from + 1)
        };
        let bursts: Vec<u64> = (0..1000).map(|_| draw(20, 40)).collect();
        // The line has as much time as it needs for all packets, in even parts.
        let apart = bursts.iter().sum::<u64>() * frame / bursts.len() as u64;
        let mut arrivals = Vec::new();
        for (at, burst) in (0..).map(|burst| burst * apart).zip(&bursts) {
            for _ in 0..*burst {
                let (stream, deadline) = (draw(0, 7) as u32, at + draw(4_000_000, 8_000_000));
                let tag = arrivals.len() as u64;
                arrivals.push((at, 0, packet(stream, BYTES, deadline, tag)));
            }
        }
        let rate = Rate::from_bps(20_000_000);
        let class = |order, late| ClassSpec {
            queue: QueueSpec { order, late, packets_max: arrivals.len(), streams: 8 },
            ..ClassSpec::fifo()
        };
        let line = |order, late| EgressSpec { rate, classes: vec![class(order, late)] };
        let fifo = bad(line(Order::Fifo, LateRule::Send), &arrivals);
        let edf = bad(line(Order::Edf, LateRule::Drop), &arrivals);
        println!("seed {seed}: {fifo} bad first in, first out; {edf} by deadlines, of {}", arrivals.len());
        assert!(edf * 10 <= fifo, "seed {seed}: {edf} and {fifo} of {}", arrivals.len());
    }
}
