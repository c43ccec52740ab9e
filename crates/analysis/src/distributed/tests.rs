//! `partial-edf` against the reference simulation, and its worked values.

use takt_model::generate::Random;

use super::reference::{Observation, Style, simulate};
use super::*;
use crate::brute::cases;

/// A small system: up to three nodes, up to three flows of up to four hops, up to two local tasks a node.
pub(super) fn small(random: &mut Random) -> Net {
    let drift = Drift([0, 0, 20_000, 60_000][random.between(0, 3) as usize]);
    let error = if random.between(0, 1) == 0 { 0 } else { random.between(1, 3) };
    let transport = |random: &mut Random| {
        let t = random.between(4, 16);
        let c = random.between(1, 1 + t / 5);
        let most = if random.between(0, 1) == 0 { None } else { Some(random.between(1, 4)) };
        Some(Transport { t, c, most })
    };
    let count = random.between(2, 3);
    let nodes: Vec<AnalysedNode> = (0..count)
        .map(|_| {
            let locals = (0..random.between(0, 2)).map(|_| {
                let t = random.between(12, 60);
                let d = random.between(6, t);
                let c = random.between(1, 1 + d / 8);
                let jitter = if random.between(0, 2) == 0 { random.between(0, d / 3) } else { 0 };
                Local { c, t, d, jitter, blocked: 0 }
            });
            let locals = locals.collect();
            let (receive, send) = (transport(random), transport(random));
            let ordinary =
                (random.between(0, 3) == 0).then(|| Tick { c: random.between(1, 3), t: random.between(20, 60) });
            let latency = if random.between(0, 2) == 0 { random.between(1, 6) } else { 0 };
            let to_completion = random.between(0, 2) == 0;
            AnalysedNode { receive, send, ordinary, latency, locals, to_completion, ..AnalysedNode::default() }
        })
        .collect();
    let flows = (0..random.between(1, 3))
        .map(|_| {
            let t = random.between(20, 90);
            let gap = if random.between(0, 1) == 0 { t * 9 / 10 } else { random.between(1, t) };
            let mut node = random.between(0, count - 1) as usize;
            let hops: Vec<Hop> = (0..random.between(2, 4))
                .map(|_| {
                    let delay_min = random.between(0, 6);
                    let delay_max = delay_min + if random.between(0, 1) == 0 { 0 } else { random.between(0, 30) };
                    let hop = Hop { node, c: random.between(1, 3), d: random.between(8, 160), delay_min, delay_max };
                    node = (node + random.between(1, count - 1) as usize) % count as usize;
                    hop
                })
                .collect();
            Route { t, gap, d: 1_000, hops }
        })
        .collect();
    Net { nodes, flows, drift, error, ..Net::default() }
}

/// Shortens deadlines for as long as the system passes, so that what is simulated has little to spare.
pub(super) fn tighten(net: &mut Net, random: &mut Random) {
    for _ in 0..12 {
        let mut tighter = net.clone();
        let cut = [1, 4, 16, 64][random.between(0, 3) as usize];
        let f = random.between(0, net.flows.len() as u64 - 1) as usize;
        let h = random.between(0, net.flows[f].hops.len() as u64 - 1) as usize;
        let hop = &mut tighter.flows[f].hops[h];
        hop.d = hop.d.saturating_sub(cut).max(1);
        if analyse(&tighter, false).schedulable() {
            *net = tighter;
        }
    }
    for flow in &mut net.flows {
        flow.d = flow.hops.iter().map(|hop| hop.d).sum::<u64>() * 2;
    }
    for f in 0..net.flows.len() {
        let (mut least, mut most) = (1, net.flows[f].d);
        while least < most {
            let middle = least.midpoint(most);
            net.flows[f].d = middle;
            if analyse(net, false).schedulable() { most = middle } else { least = middle + 1 }
        }
        net.flows[f].d = most;
    }
}

fn style(random: &mut Random) -> Style {
    let mut flip = || random.between(0, 1) == 0;
    Style { longest: flip(), dense: flip(), aligned: flip(), drain: false, lazy: flip() }
}

/// An observation of the simulation that the analysis excludes.
pub(super) fn contradiction(net: &Net, found: &SystemBounds, seen: &[Observation]) -> Option<Observation> {
    let hop = |flow: usize, hop: usize| match &found.flows[flow] {
        FlowBound::Bounded(bounds) => Some(bounds[hop]),
        FlowBound::Open(_) => None,
    };
    assert_eq!(net.flows.len(), found.flows.len());
    seen.iter().copied().find(|seen| match *seen {
        Observation::Miss { .. } | Observation::Late { .. } => true,
        Observation::Batch { flow, hop: at, messages } => hop(flow, at).is_none_or(|hop| Some(messages) > hop.messages),
        Observation::Release { flow, hop: at, after } => hop(flow, at).is_none_or(|hop| after > hop.release),
        Observation::Due { flow, hop: at, least, most } => {
            hop(flow, at).is_none_or(|hop| most < i128::from(hop.due.0) || least > i128::from(hop.due.1))
        }
    })
}

#[test]
fn no_system_that_passes_misses_or_exceeds_a_bound() {
    let (mut passed, mut tried, mut seed) = (0, 0, 0);
    let (mut leftovers, mut drifting, mut disordered, mut completed, mut tight) = (0, 0, 0, 0, 0);
    let (mut late, mut taken) = (0, 0);
    let wanted = cases(2_000);
    while passed < wanted {
        seed += 1;
        let mut random = Random::new(seed);
        let mut net = small(&mut random);
        tried += 1;
        for flow in &mut net.flows {
            flow.d = 10_000;
        }
        if !analyse(&net, false).schedulable() {
            continue;
        }
        passed += 1;
        tighten(&mut net, &mut random);
        let found = analyse(&net, false);
        assert!(found.schedulable(), "seed {seed}");
        leftovers += u64::from(found.nodes.iter().any(|node| node.leftover > 0));
        drifting += u64::from(net.drift.0 > 0);
        completed += u64::from(net.nodes.iter().any(|node| node.to_completion));
        late += u64::from(net.nodes.iter().any(|node| node.latency > 0));
        taken += u64::from(net.nodes.iter().any(|node| node.ordinary.is_some()));
        let bounds = found.flows.iter().filter_map(|flow| match flow {
            FlowBound::Bounded(bounds) => Some(bounds),
            FlowBound::Open(_) => None,
        });
        disordered += u64::from(bounds.clone().flatten().any(|hop| !hop.ordered));
        let seen = simulate(&net, style(&mut random), 400, &mut random);
        if let Some(wrong) = contradiction(&net, &found, &seen) {
            panic!("seed {seed}: {wrong:?}\n{net:?}\n{found:?}");
        }
        tight += u64::from(seen.iter().any(|seen| match *seen {
            Observation::Batch { flow, hop, messages } => {
                let FlowBound::Bounded(bounds) = &found.flows[flow] else { return false };
                bounds[hop].messages == Some(messages) && messages > 1
            }
            _ => false,
        }));
    }
    // The cases that matter were there.
    println!(
        "{passed} of {tried}: {leftovers} left over, {drifting} drift, {disordered} out of order, {completed} \
         to completion, {tight} tight"
    );
    let counts = [leftovers, drifting, disordered, completed, tight, late, taken];
    assert!(counts.iter().all(|count| count * 200 > wanted), "{counts:?} of {wanted}");
}

fn transport(t: u64, c: u64) -> Option<Transport> {
    Some(Transport { t, c, most: None })
}

/// A flow over two nodes.
fn two(receive: Option<Transport>, send: Option<Transport>, route: (u64, u64, u64), delay: (u64, u64)) -> Net {
    let (t, gap, d) = route;
    let sender = AnalysedNode { send, ..AnalysedNode::default() };
    let receiver = AnalysedNode { receive, ..AnalysedNode::default() };
    let hop = |node, delay: (u64, u64)| Hop { node, c: 1, d: d / 2, delay_min: delay.0, delay_max: delay.1 };
    let flows = vec![Route { t, gap, d, hops: vec![hop(0, (0, 0)), hop(1, delay)] }];
    Net { nodes: vec![sender, receiver], flows, ..Net::default() }
}

#[test]
fn worked_values_of_the_paper() {
    // Fig. 2: (3, 1, 21) -> (3, 1), receiving (5, 1), delays in [1, 3].
    let net = two(transport(5, 1), transport(3, 1), (3, 3, 21), (1, 3));
    let node = paper::node(&net, 1);
    assert_eq!(node.hops[0].messages, 3);
    assert_eq!(node.hops[0].windows, [12, 15, 18]);
    // 1 / 5 + 3 x 1 / min(5, ..)
    assert_eq!((node.passes, node.density_ppm), (Some(true), Some(800_000)));
    // Section IV-C, in microseconds: (10, 1, 100) -> (5, 1), receiving every 10 ms.
    let net = two(transport(10_000, 1_000), transport(5_000, 1_000), (10_000, 5_000, 100_000), (5_250, 15_890));
    assert_eq!(paper::node(&net, 1).hops[0].messages, 5);
    let sender = paper::node(&net, 0);
    assert_eq!((sender.passes, sender.density_ppm), (Some(true), Some(200_100)));
    let near = two(transport(10_000, 1_000), transport(5_000, 1_000), (10_000, 5_000, 100_000), (100, 400));
    assert_eq!(paper::node(&near, 1).hops[0].messages, 3);
    // Received too late: no density.
    let late = two(transport(5, 1), transport(3, 1), (3, 3, 8), (1, 3));
    assert_eq!((paper::node(&late, 1).passes, paper::node(&late, 1).hops[0].windows[0]), (None, -1));
}

const WORST: Style = Style { longest: true, dense: true, aligned: true, drain: false, lazy: false };

#[test]
fn the_published_density_passes_what_misses() {
    let local = Local { c: 3, t: 20, d: 4, jitter: 0, blocked: 0 };
    let node = AnalysedNode { receive: transport(10, 2), locals: vec![local], ..AnalysedNode::default() };
    let net = Net { nodes: vec![node], ..Net::default() };
    let published = paper::node(&net, 0);
    assert_eq!((published.passes, published.density_ppm), (Some(true), Some(950_000)));
    assert_eq!(analyse(&net, true).nodes[0].supply, Supply::Exceeded { t: 4, demand: 3 });
    let seen = simulate(&net, WORST, 100, &mut Random::new(1));
    assert!(seen.contains(&Observation::Miss { node: 0 }), "{seen:?}");
}

#[test]
fn the_published_batch_is_exceeded_by_a_receiver_that_drains() {
    // (10, 1) and T' = 5.4, in tenths, on a grid that is finer than that.
    let net = two(transport(100, 10), transport(2, 1), (54, 54, 2_000), (0, 0));
    assert_eq!(paper::node(&net, 1).hops[0].messages, 2);
    let most = |drain: bool| {
        let mut most = 0;
        for seed in 0..3_000 {
            let style = Style { longest: false, aligned: false, drain, ..WORST };
            let seen = simulate(&net, style, 1_000, &mut Random::new(seed));
            let batches = seen.iter().filter_map(|seen| match seen {
                Observation::Batch { messages, .. } => Some(*messages),
                _ => None,
            });
            most = most.max(batches.max().unwrap_or(0));
        }
        most
    };
    assert_eq!((most(true), most(false)), (3, 2));
}

#[test]
fn deadlines_are_shared_as_chosen() {
    use assign::{Choice, assign, needs};
    let mut net = two(transport(10, 2), transport(5, 1), (100, 5, 100), (2, 8));
    net.flows[0].hops[0].c = 3;
    // Of hop 1: 5 + 1 (sending) + 8 (network) + 10 + 2 (receiving), and its own 1.
    assert_eq!(needs(&net), [Some(vec![3, 27])]);
    let expected = [
        (Choice::Even, [50, 50]),
        (Choice::Proportional, [10, 90]),
        (Choice::EqualSlack, [38, 62]),
        (Choice::EqualFlexibility, [55, 45]),
        (Choice::EffectiveDeadline, [73, 27]),
    ];
    for (choice, shares) in expected {
        assign(&mut net, choice, &[true]);
        let found: Vec<u64> = net.flows[0].hops.iter().map(|hop| hop.d).collect();
        assert_eq!((found, Choice::by_name(choice.name())), (shares.to_vec(), Some(choice)));
    }
    assign(&mut net, Choice::Search, &[true]);
    let margin = analyse(&net, true).margin();
    for choice in Choice::ALL {
        let mut other = net.clone();
        assign(&mut other, choice, &[true]);
        assert!(analyse(&other, true).margin() <= margin, "{choice:?}");
    }
}

#[test]
fn shares_never_exceed_the_deadline_and_a_search_is_never_worse() {
    use assign::{Choice, assign};
    let mut gained = 0;
    for seed in 0..cases(2_000) / 10 {
        let mut random = Random::new(seed);
        let mut net = small(&mut random);
        for flow in &mut net.flows {
            flow.d = random.between(60, 500);
        }
        let chosen = vec![true; net.flows.len()];
        let mut best = None;
        for choice in Choice::ALL {
            let mut tried = net.clone();
            assign(&mut tried, choice, &chosen);
            let found = analyse(&tried, true);
            for (flow, bound) in tried.flows.iter().zip(&found.flows) {
                assert!(flow.hops.iter().map(|hop| hop.d).sum::<u64>() <= flow.d, "seed {seed}");
                let late = matches!(bound, FlowBound::Open(Refusal::End { .. }));
                assert!(!late, "seed {seed} {choice:?}: {bound:?} {flow:?}");
            }
            if choice == Choice::Search {
                gained += u64::from(found.margin() > best.flatten());
                assert!(found.margin() >= best.flatten(), "seed {seed}");
            }
            best = Some(best.flatten().max(found.margin()));
        }
    }
    assert!(gained > 0);
}

/// The bounds of the hops of the first flow.
fn hops(net: &Net) -> Vec<HopBound> {
    match &analyse(net, false).flows[0] {
        FlowBound::Bounded(bounds) => bounds.clone(),
        FlowBound::Open(why) => panic!("{why:?}"),
    }
}

/// A flow over three nodes with tables (5, 1) and (3, 1), a message every 9, of units of `unit`.
fn three_by(unit: u64, delay: (u64, u64)) -> Net {
    let station =
        AnalysedNode { receive: transport(5 * unit, unit), send: transport(3 * unit, unit), ..AnalysedNode::default() };
    let hop = |node, (delay_min, delay_max): (u64, u64)| {
        let (delay_min, delay_max) = (delay_min * unit, delay_max * unit);
        Hop { node, c: unit, d: 100 * unit, delay_min, delay_max }
    };
    let flows = vec![Route {
        t: 30 * unit,
        gap: 8 * unit,
        d: 1_000 * unit,
        hops: vec![hop(0, (0, 0)), hop(1, delay), hop(2, (0, 0))],
    }];
    Net { nodes: vec![station; 3], flows, ..Net::default() }
}

fn three(delay: (u64, u64)) -> Net {
    three_by(1, delay)
}

#[test]
fn messages_that_may_overtake_each_other_wait_for_a_gap() {
    // Both arrive 30 later at worst, but of the one others may come before it, and send first: 9 = 3 x 3 instead of 3.
    let (even, uneven) = (hops(&three((30, 30))), hops(&three((0, 30))));
    assert_eq!((even[1].ordered, uneven[1].ordered), (true, false));
    // D_0, T_s, R, δ, T_r, R.
    assert_eq!((even[1].release, uneven[1].release), (100 + 3 + 2 + 30 + 5 + 2, 142));
    assert_eq!((even[2].release, uneven[2].release), (200 + 3 + 2 + 5 + 2, 200 + 9 + 2 + 5 + 2));
    // Deadlines that wander by a period let later ones be more urgent, too.
    let mut drifting = Net { drift: Drift(40_000), ..three_by(100, (30, 30)) };
    drifting.flows[0].t = 2_500;
    let of = hops(&drifting);
    assert!(of[0].ordered && !of[1].ordered && of[1].due.1 - of[1].due.0 > 2_500);
}

#[test]
fn a_receiving_job_finds_what_came_while_it_was_kept_from_starting() {
    // 5 + (2 - 1) between two starts, and 2 + the varying delay of the way, a message every 9.
    let batch = |delay: (u64, u64)| hops(&three(delay))[1].messages;
    assert_eq!([(0, 0), (0, 1), (0, 2), (0, 10), (0, 11)].map(batch), [1, 1, 2, 2, 3].map(Some));
}

#[test]
fn deadlines_are_known_as_well_as_clocks_allow() {
    let (drift, error) = (Drift(20_000), 3);
    let net = Net { drift, error, ..three_by(100, (30, 40)) };
    let bounds = hops(&net);
    assert_eq!(bounds[0].due, (drift.least(10_000), drift.most(10_000).expect("small")));
    for pair in bounds.windows(2) {
        let (before, here) = (pair[0], pair[1]);
        let skew = drift.skew(here.release).expect("small");
        assert!(skew > 100);
        let (least, most) = (drift.least(10_000 - error) - skew, drift.most(10_000 + error).expect("small") + skew);
        assert_eq!(here.due, (before.due.0 + least, before.due.1 + most));
        assert_eq!(here.window + here.release, before.due.0 + least);
    }
    // The deadlines of two jobs are closer than a period by as much as each is not known; on hop 0
    // that is on one clock.
    let found = analyse(&net, false);
    for (node, bound) in bounds.iter().enumerate() {
        let job = jobs(&net, node, &found.flows).expect("small")[0];
        let release_delay = if node == 0 { 0 } else { bound.due.1 - bound.due.0 };
        assert_eq!((job.release_delay, job.d, job.span), (release_delay, bound.window, bound.due.1));
        assert_eq!((job.c, job.t), (103, drift.least(3_000)));
    }
}

#[test]
fn latency_and_stolen_time_count_at_every_hop() {
    let plain = hops(&three((30, 30)));
    let mut net = three((30, 30));
    net.nodes.iter_mut().for_each(|node| node.latency = 1);
    let late = hops(&net);
    // Hop 0 by itself, the others by two tables, each 1 later; its busy period stays 2, for 1 + 2 <= 3.
    let after = |h: usize| late[h].release - plain[h].release;
    assert_eq!((after(0), after(1), after(2)), (1, 2, 2));
    assert_eq!(late[0].window, plain[0].window - 1);
    assert_eq!(late[1].source.map(|source| source.gap_jitter), plain[1].source.map(|source| source.gap_jitter + 1));
    let mut net = three((30, 30));
    net.nodes.iter_mut().for_each(|node| node.ordinary = Some(Tick { c: 2, t: 50 }));
    // 4 at once: 1 + 2 + 4 is more than 5 and 6, so 2 + 3 + 4 = 9, and 2 + 3 + 4 = 9 again.
    assert_eq!(net.response(0, &[]), Some(9));
    let taken = hops(&net);
    assert_eq!(taken[1].release - plain[1].release, 2 * (9 - 2));
}

#[test]
fn a_busy_period_holds_all_that_may_be_released_in_it() {
    let table = [TableJob { c: 1, t: 4, late: 0 }];
    let busy = |span, release_delay| {
        let jobs = [Job { c: 2, t: 10, d: 8, release_delay, blocked: 0, span }];
        EdfBelowTable::new(&jobs, &table, true).busy_period_of_releases(u64::MAX)
    };
    assert_eq!(busy(8, 0), Some(3));
    // Two jobs of the flow can come at once: with them a second one of the table comes in time.
    assert_eq!((busy(16, 0), busy(8, 8)), (Some(6), Some(6)));
}
