//! A slow, obvious simulation of nodes with tables above EDF, in unit steps of true time: what the
//! proof of the module talks about, written without it.

use takt_model::Drift;
use takt_model::generate::Random;

use super::{AnalysedNode, Net, Transport};
use crate::edf::qpa::Tick;

const MILLION: i128 = 1_000_000;

/// How a simulation draws what the analysis leaves open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Jobs take their longest execution; otherwise any.
    pub(super) longest: bool,
    /// Arrivals are as dense as they may be; otherwise now and then later.
    pub(super) dense: bool,
    /// All clocks start together.
    pub(super) aligned: bool,
    /// Receiving jobs take what arrives until their end, not until their start.
    pub(super) drain: bool,
    /// Messages are ready at their jobs' deadlines, however early these are done: the worst that the proof allows for.
    pub(super) lazy: bool,
}

/// An observed fault, or an observed value to compare with a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Observation {
    /// A job was not done by its deadline.
    Miss { node: usize },
    /// The last hop was done after the end-to-end deadline.
    Late { flow: usize },
    /// A receiving job took this many messages of a flow.
    Batch { flow: usize, hop: usize, messages: u64 },
    /// A hop's job was released, so long after the flow's arrival.
    Release { flow: usize, hop: usize, after: u64 },
    /// A hop's job is due so long after the flow's arrival: rounded down and up.
    Due { flow: usize, hop: usize, least: i128, most: i128 },
}

struct Clock {
    phase: i128,
    /// Millionths of local time in a unit of true time.
    rate: i128,
}

impl Clock {
    /// Its reading, in millionths.
    fn reads(&self, now: u64) -> i128 {
        (i128::from(now) - self.phase) * self.rate
    }
    /// The unit of true time in which it reads `local`.
    fn when(&self, local: u64) -> i128 {
        self.phase + (i128::from(local) * MILLION).div_euclid(self.rate)
    }
}

#[derive(Clone, Debug)]
struct Job {
    left: u64,
    /// By the node's clock, in millionths.
    due: i128,
    released: u64,
    /// Flow, hop, instance.
    of: Option<(usize, usize, u64)>,
    started: bool,
}

struct Message {
    flow: usize,
    /// The hop that it leads to.
    hop: usize,
    instance: u64,
    /// When it is ready to leave, and then when it arrives in the buffer.
    at: u64,
    /// By the sender's clock.
    due: i128,
}

/// A table task's run.
#[derive(Default)]
struct Table {
    next: u64,
    /// Numbers of jobs that a timer releases late, and when.
    late: Vec<(u64, u64)>,
    /// Numbers of released jobs.
    waiting: Vec<u64>,
    left: u64,
    /// Whether the first waiting one has started.
    started: bool,
    /// The taken messages, to release or to send.
    taken: Vec<Message>,
}

struct Node {
    receive: Table,
    send: Table,
    receive_first: bool,
    interrupts: bool,
    jobs: Vec<Job>,
    /// Messages that are ready to leave.
    ready: Vec<Message>,
    /// Number of the sending job that sent a flow's last message from a hop.
    last: Vec<(usize, usize, u64)>,
    /// Next arrival of each local task: true time, and jobs to be released late: (when, due).
    locals: Vec<u64>,
    late: Vec<(u64, usize, i128)>,
    /// Jobs of first hops that a timer releases late.
    held: Vec<Job>,
    /// Whether ordinary threads take a unit.
    taken: Vec<bool>,
}

/// When ordinary threads take the CPU: all that they may of each period, at its end, at its beginning, or anywhere.
fn taken(station: &AnalysedNode, clock: &Clock, drift: Drift, length: u64, random: &mut Random) -> Vec<bool> {
    let mut taken = vec![false; length as usize];
    let Some(Tick { c, t }) = station.ordinary else { return taken };
    let phase = random.between(0, t - 1) as i128 * MILLION;
    let worst = random.between(0, 1) == 0;
    let c = drift.most(c).unwrap_or(c);
    let from = (clock.reads(0) - phase).div_euclid(t as i128 * MILLION);
    for k in 0.. {
        let at = |k: i128| clock.phase + ((from + k) * t as i128 * MILLION + phase).div_euclid(clock.rate) + 1;
        let (start, end) = (at(k), at(k + 1));
        if start >= i128::from(length) {
            return taken;
        }
        let c = i128::from(c).min(end - start);
        let room = (end - start - c) as u64;
        let begin = start
            + match (worst, k % 2) {
                (true, 0) => room as i128,
                (true, _) => 0,
                _ => random.between(0, room) as i128,
            };
        (begin.max(0)..(begin + c).min(i128::from(length))).for_each(|unit| taken[unit as usize] = true);
    }
    taken
}

/// Simulates `length` units and tells what happened.
pub(super) fn simulate(net: &Net, style: Style, length: u64, random: &mut Random) -> Vec<Observation> {
    let mut seen = Vec::new();
    let ppm = u64::from(net.drift.0);
    let clocks: Vec<Clock> = (0..net.nodes.len())
        .map(|_| {
            let phase = if style.aligned { 0 } else { random.between(0, 60) as i128 - 60 };
            let faster = match random.between(0, 2) {
                0 => 0,
                1 => 2 * ppm,
                _ => random.between(0, 2 * ppm),
            };
            Clock { phase, rate: MILLION - i128::from(ppm) + i128::from(faster) }
        })
        .collect();
    let mut nodes: Vec<Node> = net
        .nodes
        .iter()
        .map(|station| Node {
            receive: Table::default(),
            send: Table::default(),
            receive_first: random.between(0, 1) == 0,
            interrupts: random.between(0, 1) == 0,
            jobs: Vec::new(),
            ready: Vec::new(),
            last: Vec::new(),
            locals: station
                .locals
                .iter()
                .map(|local| if style.aligned { 0 } else { random.between(0, local.t) })
                .collect(),
            late: Vec::new(),
            held: Vec::new(),
            taken: Vec::new(),
        })
        .collect();
    for ((node, station), clock) in nodes.iter_mut().zip(&net.nodes).zip(&clocks) {
        node.taken = taken(station, clock, net.drift, length, random);
    }
    let mut arrivals: Vec<(u64, u64)> =
        net.flows.iter().map(|flow| (if style.aligned { 0 } else { random.between(0, flow.t) }, 0)).collect();
    let mut begun: Vec<Vec<u64>> = vec![Vec::new(); net.flows.len()];
    let mut flying: Vec<Message> = Vec::new();
    let draw = |random: &mut Random, c: u64| execution(net, style, random, c);
    for now in 0..length {
        // Arrivals of flows, by the clock of the first node.
        for (f, flow) in net.flows.iter().enumerate() {
            if arrivals[f].0 != now {
                continue;
            }
            let hop = flow.hops[0];
            let (node, clock) = (&mut nodes[hop.node], &clocks[hop.node]);
            let due = clock.reads(now) + i128::from(hop.d) * MILLION;
            let left = draw(random, hop.c);
            let released = now + lateness(net, hop.node, clock, random);
            node.held.push(Job { left, due, released, of: Some((f, 0, arrivals[f].1)), started: false });
            begun[f].push(now);
            let more = if style.dense || random.between(0, 3) > 0 { 0 } else { random.between(0, flow.t) };
            arrivals[f].0 += (i128::from(flow.t) * MILLION).div_euclid(clock.rate) as u64
                + u64::from((i128::from(flow.t) * MILLION) % clock.rate != 0)
                + more;
            arrivals[f].1 += 1;
        }
        for (n, station) in net.nodes.iter().enumerate() {
            let (node, clock) = (&mut nodes[n], &clocks[n]);
            // Local tasks.
            for (l, local) in station.locals.iter().enumerate() {
                if node.locals[l] == now {
                    let due = clock.reads(now) + i128::from(local.d) * MILLION;
                    let jitter = if random.between(0, 1) == 0 { local.jitter } else { random.between(0, local.jitter) };
                    // By the node's clock, so never more than that.
                    let jitter = (i128::from(jitter) * MILLION / clock.rate) as u64;
                    node.late.push((now + jitter, l, due));
                    let more = if style.dense || random.between(0, 3) > 0 { 0 } else { random.between(0, local.t) };
                    node.locals[l] += (i128::from(local.t) * MILLION).div_euclid(clock.rate) as u64
                        + u64::from((i128::from(local.t) * MILLION) % clock.rate != 0)
                        + more;
                }
            }
            node.jobs.extend(node.held.extract_if(.., |job| job.released <= now));
            for (_, l, due) in node.late.extract_if(.., |(at, _, _)| *at == now).collect::<Vec<_>>() {
                let left = draw(random, station.locals[l].c);
                node.jobs.push(Job { left, due, released: now, of: None, started: false });
            }
            // The table.
            for (table, task) in [(&mut node.receive, station.receive), (&mut node.send, station.send)] {
                let Some(Transport { t, .. }) = task else { continue };
                while clock.when(table.next * t) <= i128::from(now) {
                    if clock.when(table.next * t) == i128::from(now) {
                        let after = table.late.last().map_or(now, |(at, _)| (*at).max(now));
                        table.late.push(((now + lateness(net, n, clock, random)).max(after), table.next));
                    }
                    table.next += 1;
                }
                let released = table.late.extract_if(.., |(at, _)| *at <= now);
                table.waiting.extend(released.map(|(_, number)| number));
            }
            step(net, &clocks, n, node, now, style, &mut flying, &begun, random, &mut seen);
        }
    }
    for node in 0..nodes.len() {
        if nodes[node].jobs.iter().any(|job| clocks[node].reads(length) > job.due) {
            seen.push(Observation::Miss { node });
        }
    }
    seen
}

/// Execution time of a job, up to c, by its node's clock.
fn execution(net: &Net, style: Style, random: &mut Random, c: u64) -> u64 {
    let most = net.drift.most(c).unwrap_or(c);
    if style.longest || random.between(0, 3) > 0 { most } else { random.between(1, most) }
}

/// How late a timer is.
fn lateness(net: &Net, node: usize, clock: &Clock, random: &mut Random) -> u64 {
    let most = net.nodes[node].latency;
    let late = if random.between(0, 1) == 0 { most } else { random.between(0, most) };
    (i128::from(late) * MILLION / clock.rate) as u64
}

/// One node runs from `now` to `now + 1`.
#[expect(clippy::too_many_arguments, reason = "the state of one simulation")]
fn step(
    net: &Net,
    clocks: &[Clock],
    n: usize,
    node: &mut Node,
    now: u64,
    style: Style,
    flying: &mut Vec<Message>,
    begun: &[Vec<u64>],
    random: &mut Random,
    seen: &mut Vec<Observation>,
) {
    let station = &net.nodes[n];
    if node.taken[now as usize] {
        return;
    }
    let wants = |table: &Table| !table.waiting.is_empty();
    let receives = match (wants(&node.receive), wants(&node.send)) {
        (false, false) => return edf(net, clocks, n, node, now, style, begun, random, seen),
        (true, true) if !node.interrupts && node.receive.started => true,
        (true, true) if !node.interrupts && node.send.started => false,
        (true, true) => node.receive_first,
        (receives, _) => receives,
    };
    let (table, task) = if receives { (&mut node.receive, station.receive) } else { (&mut node.send, station.send) };
    let Some(task) = task else { return };
    if !table.started {
        table.started = true;
        table.left = execution(net, style, random, task.c);
        if receives && !style.drain {
            take(n, net, flying, now, task.most, &mut table.taken, seen);
        } else if !receives {
            // The earliest ready instance of each flow, a gap after the last.
            let number = table.waiting[0];
            let mut budget = task.most.unwrap_or(u64::MAX);
            node.ready.sort_by_key(|message| (message.flow, message.hop, message.instance));
            let mut i = 0;
            while i < node.ready.len() {
                let (flow, hop) = (node.ready[i].flow, node.ready[i].hop);
                let last = node.last.iter_mut().find(|(f, h, _)| (*f, *h) == (flow, hop));
                let apart = net.flows[flow].gap.div_ceil(task.t).max(1);
                let open = last.as_ref().is_none_or(|(_, _, before)| number - before >= apart);
                if open && budget > 0 && node.ready[i].at <= now {
                    match last {
                        Some(last) => last.2 = number,
                        None => node.last.push((flow, hop, number)),
                    }
                    table.taken.push(node.ready.remove(i));
                    budget -= 1;
                } else {
                    i += 1;
                }
            }
        }
    }
    // A message is handled at any instant of the job; the last ones at its end.
    table.left -= 1;
    let done = table.left == 0;
    if receives && style.drain && done {
        take(n, net, flying, now + 1, task.most, &mut table.taken, seen);
    }
    let mut handled = Vec::new();
    while !table.taken.is_empty() && (done || random.between(0, 7) == 0) {
        handled.push(table.taken.remove(0));
    }
    if done {
        table.waiting.remove(0);
        table.started = false;
    }
    for message in handled {
        let route = &net.flows[message.flow];
        let hop = route.hops[message.hop];
        if receives {
            let left = execution(net, style, random, hop.c);
            let after = now + 1 - begun[message.flow][message.instance as usize];
            seen.push(Observation::Release { flow: message.flow, hop: message.hop, after });
            let error = match random.between(0, 2) {
                0 => -(net.error as i128),
                1 => net.error as i128,
                _ => random.between(0, 2 * net.error) as i128 - net.error as i128,
            };
            let sender = &clocks[route.hops[message.hop - 1].node];
            let rest = message.due - sender.reads(now + 1);
            let due = clocks[n].reads(now + 1) + rest + (error + i128::from(hop.d)) * MILLION;
            let rest = due - clocks[n].reads(now + 1);
            let least = i128::from(after) + rest.div_euclid(clocks[n].rate);
            let most = least + i128::from(rest.rem_euclid(clocks[n].rate) != 0);
            seen.push(Observation::Due { flow: message.flow, hop: message.hop, least, most });
            let of = Some((message.flow, message.hop, message.instance));
            node.jobs.push(Job { left, due, released: now + 1, of, started: false });
        } else {
            let delay = match random.between(0, 2) {
                0 => hop.delay_min,
                1 => hop.delay_max,
                _ => random.between(hop.delay_min, hop.delay_max),
            };
            flying.push(Message { at: now + 1 + delay, ..message });
        }
    }
}

/// Takes what has arrived at a node by `now`, in order.
fn take(
    n: usize,
    net: &Net,
    flying: &mut Vec<Message>,
    now: u64,
    most: Option<u64>,
    taken: &mut Vec<Message>,
    seen: &mut Vec<Observation>,
) {
    flying.sort_by_key(|message| message.at);
    let mut i = 0;
    while i < flying.len() {
        let here = net.flows[flying[i].flow].hops[flying[i].hop].node == n && flying[i].at <= now;
        if here && most.is_none_or(|most| (taken.len() as u64) < most) {
            taken.push(flying.remove(i));
        } else {
            i += 1;
        }
    }
    for message in &*taken {
        let (flow, hop) = (message.flow, message.hop);
        let messages = taken.iter().filter(|other| (other.flow, other.hop) == (flow, hop)).count() as u64;
        seen.push(Observation::Batch { flow, hop, messages });
    }
}

/// The EDF level runs for a unit.
#[expect(clippy::too_many_arguments, reason = "the state of one simulation")]
fn edf(
    net: &Net,
    clocks: &[Clock],
    n: usize,
    node: &mut Node,
    now: u64,
    style: Style,
    begun: &[Vec<u64>],
    random: &mut Random,
    seen: &mut Vec<Observation>,
) {
    let begun_one = node.jobs.iter().position(|job| job.started && net.nodes[n].to_completion);
    let jobs = &node.jobs;
    let mut urgent = || (0..jobs.len()).min_by_key(|i| (jobs[*i].due, random.between(0, 1), jobs[*i].released));
    let Some(i) = begun_one.or_else(&mut urgent) else { return };
    node.jobs[i].started = true;
    node.jobs[i].left -= 1;
    if node.jobs[i].left > 0 {
        return;
    }
    let job = node.jobs.remove(i);
    if clocks[n].reads(now + 1) > job.due {
        seen.push(Observation::Miss { node: n });
    }
    let Some((flow, hop, instance)) = job.of else { return };
    let route = &net.flows[flow];
    if hop + 1 < route.hops.len() {
        let due = i128::from(now) + 1 + (job.due - clocks[n].reads(now + 1)).div_euclid(clocks[n].rate);
        let at = if style.lazy { u64::try_from(due).unwrap_or_default().max(now + 1) } else { now + 1 };
        node.ready.push(Message { flow, hop: hop + 1, instance, at, due: job.due });
        return;
    }
    let first = &clocks[route.hops[0].node];
    let taken = first.reads(now + 1) - first.reads(begun[flow][instance as usize]);
    if taken > i128::from(route.d) * MILLION {
        seen.push(Observation::Late { flow });
    }
}
