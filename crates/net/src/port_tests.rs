use proptest::prelude::*;

use super::*;

/// A byte takes a microsecond at this rate.
const MEGABYTE: Rate = Rate::from_bps(8_000_000);

fn packet(bytes: u64, deadline: u64, tag: u64) -> Packet {
    Packet { stream: 0, bytes: Bytes::new(bytes), deadline: Time::from_ns(deadline), tag }
}

fn spec(fifo: bool, latency_us: u64, cross: Option<CrossSpec>) -> PortSpec {
    PortSpec { rate: MEGABYTE, latency: Span::from_us(latency_us), cross, fifo, packets_max: 100, pairs: 3 }
}

fn cross(burst: u64, rate: u64, bytes: u64, offset_us: u64, pattern: CrossPattern) -> Option<CrossSpec> {
    let (burst, rate, packet) = (Bytes::new(burst), Rate::from_bps(rate), Bytes::new(bytes));
    Some(CrossSpec { burst, rate, packet, offset: Span::from_us(offset_us), pattern })
}

/// When packets leave, in us, by tag. Arrivals are (us, pair, draw, packet) in order.
fn run(spec: PortSpec, arrivals: &[(u64, u32, u64, Packet)]) -> Vec<(u64, u64)> {
    let mut port = Port::new(spec).unwrap();
    let (mut log, mut arrivals) = (Vec::new(), arrivals.iter().peekable());
    let mut decisions = Vec::new();
    loop {
        let arrival = arrivals.peek().map(|(at, ..)| Time::from_ns(*at * 1_000));
        let Some(now) = arrival.into_iter().chain(port.next_wakeup()).min() else { return log };
        if arrival == Some(now) {
            let (_, pair, latency_draw, packet) = *arrivals.next().unwrap();
            port.on_event(now, PortEvent::Arrive { packet, pair, latency_draw }, &mut decisions);
        } else {
            port.on_event(now, PortEvent::Wake, &mut decisions);
        }
        for decision in decisions.drain(..) {
            match decision {
                PortDecision::Leave(packet) => log.push((packet.tag, now.as_ns() / 1_000)),
                PortDecision::Drop(..) => panic!("{decision:?}"),
            }
        }
    }
}

/// Others send 300 bytes at 50, then 100 each 200 us.
#[test]
fn a_fifo_port_serves_in_order_of_arrival() {
    let others = cross(300, 4_000_000, 100, 50, CrossPattern::Steady);
    let arrivals = [(0, 0, 0, packet(100, 900, 0)), (60, 1, 0, packet(100, 5, 1)), (300, 0, 0, packet(50, 7, 2))];
    // 0: until 100. Then 300 of the others until 400, and packet 1. The others' packet of 250 goes
    // before packet 2.
    assert_eq!(run(spec(true, 0, others), &arrivals), [(0, 100), (1, 500), (2, 650)]);
    // With 100 us of processing, packet 0 is ready behind the burst of the others.
    let late = arrivals.map(|(at, pair, _, packet)| (at, pair, u64::MAX, packet));
    assert_eq!(run(spec(true, 100, others), &late), [(0, 450), (1, 550), (2, 700)]);
}

#[test]
fn a_port_of_any_order_lets_others_go_first_and_keeps_pairs_in_order() {
    let others = cross(300, 4_000_000, 100, 50, CrossPattern::Steady);
    let arrivals = [
        (0, 0, 0, packet(100, 900, 0)),
        (60, 1, 0, packet(100, 90, 1)),
        (61, 1, 0, packet(100, 10, 2)),
        (62, 2, 0, packet(100, 50, 3)),
    ];
    // The others send from 100 to 600, and before each of the next two. The deadline of 2 does not
    // count before 1, of the same pair, has gone.
    assert_eq!(run(spec(false, 0, others), &arrivals), [(0, 100), (3, 700), (1, 900), (2, 1_100)]);
    assert_eq!(run(spec(false, 0, None), &arrivals), [(0, 100), (3, 200), (1, 300), (2, 400)]);
}

#[test]
fn bursts_come_again_when_the_rate_allows() {
    let mut cross = Cross::new(cross(250, 4_000_000, 100, 7, CrossPattern::Bursts).unwrap()).unwrap();
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(cross.next.as_ns() / 1_000);
        cross.advance();
    }
    assert_eq!(times, [7, 7, 407, 407, 807]);
}

#[test]
fn bad_ports_say_what_to_do() {
    for (bad, expected) in [
        (PortSpec { rate: Rate::from_bps(0), ..spec(true, 0, None) }, "at least 1bit"),
        (PortSpec { packets_max: 0, ..spec(true, 0, None) }, "packets_max 0"),
        (spec(true, 0, cross(9, 8_000_000, 9, 0, CrossPattern::Steady)), "8Mbit is not above"),
        (spec(true, 0, cross(9, 0, 9, 0, CrossPattern::Steady)), "above zero"),
        (spec(true, 0, cross(9, 1, 10, 0, CrossPattern::Steady)), "packets of 10B"),
    ] {
        let error = Port::new(bad).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut port = Port::new(PortSpec { packets_max: 1, ..spec(true, 0, None) }).unwrap();
    let mut decisions = Vec::new();
    for (pair, tag) in [(0, 0), (0, 1), (3, 2)] {
        let event = PortEvent::Arrive { packet: packet(1, 0, tag), pair, latency_draw: 0 };
        port.on_event(Time::ZERO, event, &mut decisions);
    }
    let why = |tag, why| PortDecision::Drop(packet(1, 0, tag), why);
    assert_eq!(decisions, [why(1, DropReason::Overflow), why(2, DropReason::Unknown)]);
    assert_eq!((port.dropped(), port.waiting_max()), (2, 1));
}

/// All packets, those of the others too, one microsecond after the other.
fn reference(spec: &PortSpec, arrivals: &[(u64, u32, u64, Packet)]) -> Vec<(u64, u64)> {
    let mut others: Vec<u64> = Vec::new();
    if let Some(cross_spec) = spec.cross {
        let mut cross = Cross::new(cross_spec).unwrap();
        while cross.next < Time::from_ns(40_000_000) {
            others.push(cross.next.as_ns().div_ceil(1_000));
            cross.advance();
        }
    }
    let (mut waiting, mut log, mut free, mut ready_last) = (Vec::new(), Vec::new(), 0, 0);
    let mut arrivals = arrivals.iter().peekable();
    let (mut cross_waiting, mut next_other) = (0u64, 0usize);
    let mut others_ready: Vec<u64> = Vec::new();
    for now in 0..40_000 {
        while let Some((_, pair, draw, packet)) = arrivals.next_if(|(at, ..)| *at == now) {
            ready_last = ready_last.max(now + if *draw == 0 { 0 } else { spec.latency.as_ns() / 1_000 });
            waiting.push((ready_last, *pair, *packet));
        }
        while others.get(next_other).is_some_and(|at| *at <= now) {
            others_ready.push(now);
            next_other += 1;
            cross_waiting += 1;
        }
        if now < free {
            continue;
        }
        let ready: Vec<usize> = (0..waiting.len()).filter(|at| waiting[*at].0 <= now).collect();
        let ours = if spec.fifo {
            ready.first().copied()
        } else {
            let head = |at: &&usize| !ready.iter().any(|other| other < *at && waiting[*other].1 == waiting[**at].1);
            ready.iter().filter(head).min_by_key(|at| (waiting[**at].2.deadline, **at)).copied()
        };
        let goes_first =
            others_ready.first().is_some_and(|at| !spec.fifo || ours.is_none_or(|of| *at <= waiting[of].0));
        if cross_waiting > 0 && goes_first {
            cross_waiting -= 1;
            others_ready.remove(0);
            free = now + spec.cross.unwrap().packet.get();
        } else if let Some(at) = ours {
            let (.., packet) = waiting.remove(at);
            free = now + packet.bytes.get();
            log.push((packet.tag, free));
        }
    }
    log
}

proptest! {
    #[test]
    fn a_port_is_its_reference(
        fifo: bool,
        latency_us in 0u64..200,
        others in 0usize..3,
        burst in 1u64..4,
        offset_us in 0u64..300,
        bytes in proptest::collection::vec((0u64..300, 0u32..3, any::<bool>(), 1u64..150, 0u64..9), 1..50),
    ) {
        let pattern = [CrossPattern::Steady, CrossPattern::Bursts][others % 2];
        // Others' packets come at whole microseconds.
        let cross = if others == 2 { None } else { cross(burst * 80, 4_000_000, 80, offset_us, pattern) };
        let mut now = 0;
        let arrivals = (0..).zip(bytes).map(|(tag, (pause, pair, slow, bytes, deadline))| {
            now += pause;
            (now, pair, if slow { u64::MAX } else { 0 }, packet(bytes, deadline, tag))
        });
        let arrivals: Vec<(u64, u32, u64, Packet)> = arrivals.collect();
        let spec = spec(fifo, latency_us, cross);
        prop_assert_eq!(run(spec.clone(), &arrivals), reference(&spec, &arrivals));
    }
}
