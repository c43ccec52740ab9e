//! Delay bounds against a packet-level simulation.

use takt_model::generate::Random;

use super::*;
use crate::brute::cases;

/// Bits/s of a byte every `ns` ns.
pub(in super::super) fn byte_every(ns: u64) -> u64 {
    8_000_000_000 / ns
}

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Packet {
    pub(in super::super) at: u64,
    pub(in super::super) length: u64,
    class: usize,
}

/// Random packets that keep to `burst` + t / `every` bytes in every window, mostly as early as that allows.
pub(in super::super) fn conforming(
    random: &mut Random,
    burst: u64,
    every: u64,
    longest: u64,
    class: usize,
) -> Vec<Packet> {
    // A reservoir of `burst` bytes, in 1 / every bytes.
    let (mut packets, mut now, mut full, mut last) = (Vec::new(), random.between(0, 20), burst * every, 0);
    for number in 0..12 {
        let length = if random.between(0, 1) == 0 { longest } else { random.between(1, longest) };
        full = if number == 0 { full } else { (full + now - last).min(burst * every) };
        last = now;
        let missing = (length * every).saturating_sub(full);
        let idle = if random.between(0, 3) == 0 { random.between(0, 30) } else { 0 };
        now += missing + idle;
        full = (full + missing + idle).min(burst * every) - length * every;
        last = last.max(now);
        packets.push(Packet { at: now, length, class });
    }
    packets
}

/// Bytes in any closed window keep to the bound.
fn keeps(sent: &[(u64, u64)], bound: Traffic) -> bool {
    (0..sent.len()).all(|i| {
        let mut sum = 0u64;
        sent[i..].iter().all(|(at, length)| {
            sum += length;
            let allowed = u128::from(bound.burst) * SCALE + u128::from(bound.rate) * u128::from(at - sent[i].0);
            u128::from(sum) * SCALE <= allowed
        })
    })
}

/// HTB and a link in steps of a nanosecond: (arrival, dequeued, last bit out, packet). Tokens in 1
/// / `every` bytes. A packet of `other` bytes of another class is always ready when ours may not
/// send.
fn htb(
    packets: &[Packet],
    (burst, every, link, other): (u64, u64, u64, u64),
    deadlines: Option<&[u64]>,
    tokens: i64,
    random: &mut Random,
) -> Vec<(u64, u64, Packet)> {
    let (mut tokens, mut queue, mut next) = (tokens, Vec::<Packet>::new(), 0);
    let (mut out, mut free_at, mut now) = (Vec::new(), 0, 0);
    while out.len() < packets.len() {
        while next < packets.len() && packets[next].at <= now {
            queue.push(packets[next]);
            next += 1;
        }
        if now >= free_at {
            if !queue.is_empty() && tokens >= 0 {
                let first = match deadlines {
                    Some(deadlines) => {
                        (0..queue.len()).min_by_key(|i| queue[*i].at + deadlines[queue[*i].class]).unwrap_or(0)
                    }
                    None => 0,
                };
                let packet = queue.remove(first);
                tokens -= (packet.length * every) as i64;
                free_at = now + packet.length * link;
                out.push((now, free_at, packet));
            } else if other > 0 && random.between(0, 1) == 0 {
                free_at = now + other * link;
            }
        }
        now += 1;
        tokens = (tokens + 1).min((burst * every) as i64);
    }
    out
}

#[test]
fn worked_values() {
    // 1250 bytes at 1 Gbit/s.
    assert_eq!((time(1_250, 1_000_000_000), bytes(1_000_000_000, 10_000)), (Some(10_000), Some(1_250)));
    assert_eq!((time(1, 3), time(1, 0), time(u64::MAX, 1)), (Some(2_666_666_667), None, None));
    let messages = Traffic::of_messages(400, 5_000_000, 1_000_000);
    assert_eq!(messages, Some(Traffic { burst: 480, rate: 640_000 }));
    let bucket = Bucket { burst: 12, rate: 8_000_000, packet: 400, link: 1_000_000_000, other: 1_500 };
    // (480 - 400 + 400) us + 12 us + 3.2 us
    assert_eq!(bucket.fifo(messages.unwrap_or_default(), 400), Some(495_200));
    let least = bucket.least_rate(messages.unwrap_or_default(), 400, 495_200);
    assert_eq!(least, Some(8_000_000));
    assert_eq!(bucket.least_rate(messages.unwrap_or_default(), 400, 10_000), None);
    assert_eq!(bucket.fifo(Traffic { burst: 1, rate: 9_000_000 }, 1), None);
    assert_eq!(Bucket { burst: 11, ..bucket }.fifo(messages.unwrap_or_default(), 400), None);
}

#[test]
fn buckets_keep_their_bounds() {
    let (mut near, mut any_near) = (0, 0);
    for seed in 0..cases(20_000) {
        let mut random = Random::new(seed);
        let pick = |random: &mut Random, from: &[u64]| from[random.between(0, from.len() as u64 - 1) as usize];
        let link = 1;
        let every = pick(&mut random, &[1, 2, 4, 5]);
        let other = random.between(0, 6);
        let burst = (other * link).div_ceil(every) + random.between(0, 30) * random.between(0, 1);
        let count = random.between(1, 3);
        let slower = pick(&mut random, &[1, 2]) * count;
        let classes: Vec<(u64, u64, u64)> = (0..count)
            .map(|_| {
                let longest = random.between(1, 12);
                (longest + random.between(0, 20), every * slower, longest)
            })
            .collect();
        let mut packets = Vec::new();
        for (class, (burst, every, longest)) in classes.iter().enumerate() {
            packets.extend(conforming(&mut random, *burst, *every, *longest, class));
        }
        packets.sort_by_key(|packet| packet.at);
        let longest = classes.iter().map(|class| class.2).max().unwrap_or(1);
        let bucket = Bucket { burst, rate: byte_every(every), packet: longest, link: byte_every(link), other };
        let traffic =
            |(burst, every, _): &(u64, u64, u64)| Traffic { burst: *burst, rate: (SCALE as u64).div_ceil(*every) };
        let mut all = Traffic::default();
        for class in &classes {
            all = all.plus(traffic(class)).expect("small");
        }
        // Rates are rounded up, so three classes may just exceed the bucket's.
        all.rate = all.rate.min(bucket.rate);
        // The worst that was before: the largest packet has just gone.
        let tokens = if random.between(0, 1) == 0 { -((longest * every) as i64) } else { (burst * every) as i64 };
        let out = htb(&packets, (burst, every, link, other), None, tokens, &mut random);
        let sent: Vec<(u64, u64)> = out.iter().map(|(at, _, packet)| (*at, packet.length)).collect();
        assert!(keeps(&sent, bucket.output().expect("small")), "seed {seed}: {sent:?} {bucket:?}");
        for (_, done, packet) in &out {
            let bound = bucket.fifo(all, packet.length).expect("small");
            assert!(
                done - packet.at <= bound,
                "seed {seed}: {packet:?} takes {} of {bound} {bucket:?}",
                done - packet.at
            );
            near += u64::from(done - packet.at + 3 >= bound);
        }
        let deadlines: Vec<u64> = classes.iter().map(|_| random.between(1, 250)).collect();
        let out = htb(&packets, (burst, every, link, other), Some(&deadlines), tokens, &mut random);
        for (_, done, packet) in &out {
            let taken = done - packet.at;
            let bound = bucket.any(all, packet.length);
            assert!(
                bound.is_none_or(|bound| taken <= bound),
                "seed {seed}: {packet:?} {taken} of {bound:?} {bucket:?}"
            );
            any_near += u64::from(bound.is_some_and(|bound| 3 * taken >= bound));
        }
    }
    assert!(near * 50 > cases(20_000) && any_near * 50 > cases(20_000), "{near} and {any_near} near their bounds");
}

/// A port that serves in the order of arrival; packets come out with the instant of their last bit.
fn port(mut packets: Vec<Packet>, rate: u64, latency: u64, random: &mut Random) -> Vec<Packet> {
    packets.sort_by_key(|packet| (packet.at, packet.class));
    let mut free_at = 0;
    for packet in &mut packets {
        // The latency is spent at most once in a backlog.
        let start = if packet.at >= free_at { packet.at + random.between(0, 1) * latency } else { free_at };
        free_at = start + packet.length * rate;
        packet.at = free_at;
    }
    packets
}

#[test]
fn a_port_keeps_its_bound() {
    for seed in 0..cases(20_000) {
        let mut random = Random::new(seed + 1_000_000);
        let longest = random.between(1, 8);
        let burst = longest + random.between(0, 60);
        let ours = Traffic { burst, rate: byte_every(8) };
        let sent = conforming(&mut random, burst, 8, longest, 0);
        let (rate, latency) = ([1, 2][random.between(0, 1) as usize], random.between(0, 9));
        let crossing = random.between(1, 8);
        let burst = crossing + random.between(0, 10);
        let mut packets = conforming(&mut random, burst, 8, crossing, 1);
        packets.extend(&sent);
        let mut passed = port(packets, rate, latency, &mut random);
        passed.retain(|packet| packet.class == 0);
        let port = Port { rate: byte_every(rate), latency, others: Traffic { burst, rate: byte_every(8) } };
        let bound = port.delay(ours, longest).expect("small");
        for (before, after) in sent.iter().zip(&passed) {
            let taken = after.at - before.at;
            assert!(taken <= bound, "seed {seed}: {taken} of {bound} {port:?}");
        }
    }
}
