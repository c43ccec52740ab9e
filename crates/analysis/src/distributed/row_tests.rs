//! Bounds through shared ports against a packet-level simulation.

use takt_model::generate::Random;

use super::super::delay::tests::{byte_every, conforming};
use super::*;
use crate::brute::cases;

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Packet {
    /// Index of the way; larger indices are cross traffic of a port.
    way: usize,
    number: usize,
    length: u64,
    /// Ports behind it.
    passed: usize,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Packet>,
    under_way: Option<(Packet, u64)>,
    idle: bool,
}

/// Steps of a nanosecond: when each packet of each way has left its last port. `every` is what a
/// byte takes at each port.
fn simulate(
    routes: &[Vec<usize>],
    sent: &[Vec<(u64, u64)>],
    ports: &[(u64, Shared)],
    random: &mut Random,
) -> Vec<Vec<u64>> {
    let mut done: Vec<Vec<u64>> = sent.iter().map(|packets| vec![0; packets.len()]).collect();
    let mut queues: Vec<Queue> = ports.iter().map(|_| Queue { idle: true, ..Queue::default() }).collect();
    let mut left: usize = sent.iter().map(Vec::len).sum();
    for now in 0..u64::MAX {
        // Last bits leave before others come, and what passes a port at this instant may pass the next one later only.
        let mut moved: Vec<Packet> = Vec::new();
        for queue in &mut queues {
            if let Some((packet, _)) = queue.under_way.take_if(|(_, at)| *at <= now) {
                moved.push(Packet { passed: packet.passed + 1, ..packet });
            }
        }
        for (way, packets) in sent.iter().enumerate() {
            let now_sent = packets.iter().enumerate().filter(|(_, (at, _))| *at == now);
            moved.extend(now_sent.map(|(number, (_, length))| Packet { way, number, length: *length, passed: 0 }));
        }
        for packet in moved {
            match routes[packet.way].get(packet.passed) {
                Some(port) => queues[*port].waiting.push(packet),
                None => {
                    done[packet.way][packet.number] = now;
                    left -= 1;
                }
            }
        }
        if left == 0 {
            break;
        }
        for (queue, (every, port)) in queues.iter_mut().zip(ports) {
            if queue.under_way.is_some() {
                continue;
            }
            if queue.waiting.is_empty() {
                queue.idle = true;
                continue;
            }
            // Any way, but each in its order.
            let chosen = if port.fifo { 0 } else { random.between(0, queue.waiting.len() as u64 - 1) as usize };
            let way = queue.waiting[chosen].way;
            let first = queue.waiting.iter().position(|packet| packet.way == way).unwrap_or(0);
            let packet = queue.waiting.remove(first);
            // The latency is spent at most once in a backlog.
            let wait = if std::mem::take(&mut queue.idle) { random.between(0, 1) * port.latency } else { 0 };
            queue.under_way = Some((packet, now + wait + packet.length * every));
        }
    }
    done
}

#[test]
fn shared_ports_keep_their_bounds() {
    let (mut circles, mut bounded, mut once_wins, mut sum_wins, mut together, mut near) = (0, 0, 0, 0, 0, 0);
    for seed in 0..cases(10_000) {
        let mut random = Random::new(seed + 2_000_000);
        let count = random.between(1, 3) as usize;
        let mut ports = Vec::new();
        let mut cross = Vec::new();
        for _ in 0..count {
            let every = random.between(1, 2);
            let (longest, slow) = (random.between(1, 8), 16);
            let burst = longest + random.between(0, 10);
            let traffic = Traffic { burst, rate: byte_every(slow) };
            let there = random.between(0, 1) == 0;
            cross.push(there.then_some((burst, slow, longest)));
            let cross = if there { traffic } else { Traffic::default() };
            let (latency, fifo) = (random.between(0, 9), random.between(0, 2) > 0);
            ports.push((every, Shared { rate: byte_every(every), latency, cross, fifo }));
        }
        let mut ways: Vec<PortPath> = Vec::new();
        let mut sent = Vec::new();
        let mut packets = Vec::new();
        for from in 0..random.between(1, 3) as usize {
            let mut through: Vec<usize> = (0..count).collect();
            for i in (1..count).rev() {
                through.swap(i, random.between(0, i as u64) as usize);
            }
            through.truncate(random.between(1, count as u64) as usize);
            if let Some(PortPath { through: same, .. }) = ways.last().filter(|_| random.between(0, 2) == 0) {
                through = same.clone();
            }
            let longest = random.between(1, 8);
            let burst = longest + random.between(0, 40);
            let slow = random.between(8, 16);
            let made = conforming(&mut random, burst, slow, longest, from);
            packets.push(made.iter().map(|packet| (packet.at, packet.length)).collect::<Vec<_>>());
            let traffic = Traffic { burst, rate: 8_000_000_000u64.div_ceil(slow) };
            sent.push(Sent { traffic, packet: longest });
            ways.push(PortPath { from, to: 9, through });
        }
        let shared: Vec<Shared> = ports.iter().map(|(_, port)| *port).collect();
        let after = |way: &PortPath, a: usize, b: usize| {
            let at = |port: usize| way.through.iter().position(|other| *other == port);
            at(a).zip(at(b)).is_some_and(|(a, b)| a < b)
        };
        let circle = (0..count).any(|a| {
            (0..count).any(|b| ways.iter().any(|way| after(way, a, b)) && ways.iter().any(|way| after(way, b, a)))
        });
        let Some(found) = rows(&ways, &sent, &shared) else { continue };
        bounded += 1;
        circles += u64::from(circle);
        let mut routes: Vec<Vec<usize>> = ways.iter().map(|way| way.through.clone()).collect();
        for (port, cross) in cross.iter().enumerate() {
            if let Some((burst, slow, longest)) = cross {
                routes.push(vec![port]);
                let made = conforming(&mut random, *burst, *slow, *longest, 0);
                packets.push(made.iter().map(|packet| (packet.at, packet.length)).collect());
            }
        }
        let done = simulate(&routes, &packets, &ports, &mut random);
        for (i, row) in found.iter().enumerate() {
            let (sum, once, bound) = (row.ports.iter().sum::<u64>(), row.once.expect("small"), row.total());
            assert!(bound <= sum && (bound <= once || row.ports.len() == 1), "seed {seed}: {row:?}");
            let through = &ways[i].through;
            let in_order = through.len() > 1 && through.iter().all(|port| shared[*port].fifo);
            let companion = ways.iter().enumerate().any(|(other, way)| other != i && way.through == *through);
            once_wins += u64::from(once < sum);
            sum_wins += u64::from(sum < once);
            for ((at, _), end) in packets[i].iter().zip(&done[i]) {
                let taken = end - at;
                assert!(taken <= bound.min(once), "seed {seed}: {taken} of {row:?}, {ways:?} {sent:?} {shared:?}");
                near += u64::from(2 * taken >= bound);
                together += u64::from(in_order && companion && 2 * taken >= once);
            }
        }
    }
    let enough = cases(10_000) / 50;
    assert!(
        [circles, bounded, once_wins, sum_wins, together, near].iter().all(|count| *count > enough),
        "{circles} {bounded} {once_wins} {sum_wins} {together} {near}"
    );
}

#[test]
fn a_row_of_ports_by_hand() {
    // A byte takes 8 ns at 1 Gbit/s. Two nodes send 1000 bytes at once, at most 1 Mbit/s each,
    // through port 0 and then port 1.
    let port = Shared { rate: 1_000_000_000, latency: 1_000, cross: Traffic::default(), fifo: true };
    let sent = [Sent { traffic: Traffic { burst: 1_000, rate: 1_000_000 }, packet: 1_000 }; 2];
    let way = |from| PortPath { from, to: 2, through: vec![0, 1] };
    let found = rows(&[way(0), way(1)], &sent, &[port, port]).expect("little traffic");
    // 2000 bytes in 16 us, and 1 us. Port 1 gets them one after another, but for the 126 bytes of 1 us and 1 ns: so
    // only a packet of 1000 bytes and these wait, in 9008 ns, and 1 us.
    assert_eq!(found[0].ports, [17_000, 10_008]);
    // Both ways together have their 2000 bytes delayed once, in 16 us. Each port adds its 1 us, a packet of 8 us
    // that is passed on whole, and 1 ns.
    assert_eq!(found[0].once, Some(2 * 9_001 + 16_000));
    assert_eq!((&found[0].until[..], found[0].total()), (&[17_000, 27_008][..], 27_008));
    // In any order the first of two takes its whole backlog: at each port the other's 1000 (then 1004) bytes, an own
    // packet, and the 125 bytes of 1 us; the own burst once: 2125, 2129 and 1000 bytes at 0.999 Gbit/s.
    let any = rows(&[way(0), way(1)], &sent, &[Shared { fifo: false, ..port }; 2]).expect("little traffic");
    assert_eq!((any[0].ports[0], any[0].total()), (17_018 + 8_009, 17_019 + 17_051 + 8_009));
    let full = Shared { cross: Traffic { burst: 0, rate: 999_000_000 }, ..port };
    assert_eq!(rows(&[way(0), way(1)], &sent, &[full, port]), None);
}

/// Others come at every port anew, and the burst of four nodes delays only once. Port by port it would count, and
/// grow, at each: 272 us, 326.4 us and 391.68 us, 990.08 us in all.
#[test]
fn ways_with_the_same_ports_pay_their_bursts_once() {
    let cross = Traffic { burst: 2_000, rate: 400_000_000 };
    let port = Shared { rate: 1_000_000_000, latency: 0, cross, fifo: true };
    let sent = [Sent { traffic: Traffic { burst: 8_000, rate: 50_000_000 }, packet: 1_000 }; 4];
    let ways = [0, 1, 2, 3].map(|from| PortPath { from, to: 4, through: vec![0, 1, 2] });
    let found = rows(&ways, &sent, &[port; 3]).expect("60 % of the rate");
    // The others' 2000 bytes take 16 us at each port. All ways together have 600 Mbit/s there, and a packet takes
    // 13.334 us. Their burst takes 426.667 us.
    let each = 16_000 + 13_334 + 1;
    assert_eq!(found[3].once, Some(3 * each + 426_667));
    // Port 0 gets 34,000 bytes at once. After it each burst is 1700 bytes more, and its line brings all 38,800 bytes
    // and 200 Mbit/s no faster than 1 Gbit/s, that is within t = 377.99 us. Then 1001 bytes of them wait, and the
    // others' 2000 bytes and 400 Mbit/s x t: 21,900.5 bytes in all.
    assert_eq!(found[3].ports[..2], [272_000, 175_204]);
    // Likewise at port 2 with 10,796 bytes of each, t = 421.83 us and 24,092.5 bytes.
    assert_eq!(found[3].ports[2], 192_740);
    // The first two ports delay less one by one, and all three less as one piece.
    assert_eq!(found[3].until, [272_000, 272_000 + 175_204, 3 * each + 426_667]);
    // Where a way leaves after two ports, it is in the group up to there. In all three ports the others are the group
    // with 24,000 bytes, in 349.091 us at 550 Mbit/s, and its 8000 (then 9700) bytes are other traffic.
    let mut shorter = ways.clone();
    shorter[0].through.pop();
    let fewer = rows(&shorter, &sent, &[port; 3]).expect("less traffic");
    let with_it = |burst: u64| (2_000 + burst) * 8 + 14_546 + 1;
    let all_three = with_it(8_000) + with_it(9_700) + each + 349_091;
    assert_eq!(fewer[3].until, [272_000, 447_204, all_three]);
    // With an order other than that of arrival no way may count on the others'.
    let any = rows(&ways, &sent, &[Shared { fifo: false, ..port }; 3]).expect("60 % of the rate");
    assert!(any[3].total() > 990_080, "{any:?}");
}

/// A companion's large packet counts at each port for their group, and its burst at each port for the way alone.
#[test]
fn a_way_alone_may_be_faster_than_its_group() {
    let port = Shared { rate: 1_000_000_000, latency: 100_000, cross: Traffic::default(), fifo: true };
    let sent = |burst: u64, packet: u64| Sent { traffic: Traffic { burst, rate: 1_000_000 }, packet };
    let ways = [0, 1].map(|from| PortPath { from, to: 2, through: vec![0, 1, 2] });
    let found = rows(&ways, &[sent(640, 64), sent(1_500, 1_500)], &[port; 3]).expect("little traffic");
    // The companion's 1500 bytes, then 1515 and 1530, in 12 us, 12.12 us and 12.24 us. An own packet takes 513 ns at
    // 0.999 Gbit/s, and the own burst 5126 ns.
    let each = 100_000 + 513 + 1;
    assert_eq!(found[0].total(), 3 * each + 12_000 + 12_120 + 12_240 + 5_126);
    assert_eq!(found[0].once, Some(found[0].total()));
    // The companion's own packets are as large as those of the group, which pays both bursts once.
    assert_eq!(found[1].once, Some(3 * (100_000 + 12_000 + 1) + 17_120));
}

#[test]
fn the_least_total_is_enough_and_a_bit_less_is_not() {
    let hop =
        |node: usize, gap_ms: u64, size| OutgoingFlow { node, to: 1 - node, gap: gap_ms * 1_000_000, jitter: 0, size };
    let outgoing = [hop(0, 10, 400), hop(0, 20, 400), hop(1, 10, 1_600)];
    let links = [Link { rate: 1_000_000_000, other: 1_500, bucket: None, fifo: true }; 2];
    let cross = Traffic { burst: 3_000, rate: 20_000_000 };
    let ports = [Shared { rate: 100_000_000, latency: 50_000, cross, fifo: true }; 3];
    for through in [vec![], vec![2], vec![0, 1, 2]] {
        let back: Vec<usize> = through.iter().rev().copied().collect();
        let ways = [PortPath { from: 0, to: 1, through: through.clone() }, PortPath { from: 1, to: 0, through: back }];
        let layout = Layout { outgoing: &outgoing, links: &links, ways: &ways, ports: &ports };
        assert_eq!(layout.overload(), None);
        for weigh in [Weigh::Messages, Weigh::Bytes] {
            let (total, found, delays) = layout.least_total(weigh, 3_000_000).expect("the links are fast");
            assert_eq!((found.len(), delays.len()), (2, 2));
            assert!(found.iter().all(|share| share.delay <= 3_000_000 && share.rate <= total));
            assert!(delays.iter().all(|way| way.total <= 3_000_000 && way.sender <= way.total));
            assert_eq!(delays[0].total == delays[0].sender, through.is_empty());
            let less = shares(&outgoing, &links, weigh, total - 1).and_then(|shares| layout.delays(&shares));
            assert!(less.is_none_or(|ways| ways.iter().any(|way| way.total > 3_000_000)), "{weigh:?} {total}");
            assert_eq!(layout.least_total(weigh, 10_000), None);
        }
        // Whole links are never slower.
        assert!(layout.whole(Weigh::Bytes).is_some_and(|ways| ways.iter().all(|way| way.total <= 3_000_000)));
    }
    let slow = Shared { rate: 1_000_000, ..ports[0] };
    let ways = [PortPath { from: 0, to: 1, through: vec![0] }, PortPath { from: 1, to: 0, through: vec![] }];
    let layout = Layout { outgoing: &outgoing, links: &links, ways: &ways, ports: &[slow] };
    // 20 Mbit/s, 0.32 and 0.16.
    assert_eq!(layout.overload(), Some((0, 20_480_000)));
}
