//! Live nodes with virtual threads and a virtual network, against the simulator.

use std::collections::BTreeMap;

use takt_log::{Event, Sink};
use takt_model::draw::Draw;
use takt_model::{Bucket, Bytes, Link, NodeId, Rate, Span, System, Task, Time, file};
use takt_policy::CpuPart;
use takt_sim::{SimOptions, simulate};

use super::difference::Difference;
use super::messages::{Message, NodeMessages, incoming};
use super::plan::{NodeNetwork, NodePlan, Part};
use crate::budgets::board::{Board, Report, Seats};
use crate::budgets::core::Fact;

/// The delay of every message.
const DELAY: Span = Span::from_us(700);

#[derive(Clone, Copy, Debug)]
struct Job {
    number: u64,
    left: Span,
    report: Report,
}

/// A node's threads, by slot. Table jobs take what the model says.
struct Threads<'a> {
    tasks: Vec<(&'a Task, Draw)>,
    plan: NodePlan,
    messages: NodeMessages,
    now: Time,
    jobs: Vec<Option<Job>>,
    frozen: Vec<bool>,
    sending: Vec<Message>,
}

impl Threads<'_> {
    fn runner(&self) -> Option<usize> {
        let runs = |at: &usize| !self.frozen[*at] && self.jobs[*at].is_some_and(|job| job.report.completed.is_none());
        (0..self.jobs.len()).find(runs)
    }

    fn finish(&self) -> Time {
        self.runner().map_or(Time::MAX, |at| self.now + self.jobs[at].unwrap().left)
    }

    /// Runs until `until`; the slot of a sending job that has completed.
    fn advance(&mut self, until: Time) -> Option<u32> {
        let runner = self.runner();
        let ran = until.saturating_since(std::mem::replace(&mut self.now, until));
        let at = runner?;
        let job = self.jobs[at].as_mut().unwrap();
        job.left = job.left.saturating_sub(ran);
        job.report.started.get_or_insert(until);
        if !job.left.is_zero() {
            return None;
        }
        job.report.completed = Some(until);
        (self.messages.part(at as u32) == Part::Send).then_some(at as u32)
    }
}

impl Seats for Threads<'_> {
    fn report(&mut self, slot: u32, number: u64) -> Report {
        self.jobs[slot as usize].filter(|job| job.number == number).map_or_else(Report::default, |job| job.report)
    }
    fn bind(&mut self, slot: u32, _: usize) {
        panic!("slot {slot} is bound to the one CPU from the start");
    }
    fn give(&mut self, slot: u32, number: u64) {
        let (task, draw) = self.tasks[slot as usize];
        let cost = |task: Option<takt_model::TableTask>, count: u64| {
            let task = task.unwrap();
            task.cost.map_or(task.wcet, |cost| cost.checked_mul(count).unwrap())
        };
        let left = match self.messages.part(slot) {
            Part::Receive => cost(self.plan.receive, self.messages.start_receiving()),
            Part::Send => {
                self.sending = self.messages.start_sending(number).collect();
                cost(self.plan.send, self.sending.len() as u64)
            }
            _ => draw.exec(task, number),
        };
        self.jobs[slot as usize] = Some(Job { number, left, report: Report::default() });
    }
    fn freeze(&mut self, slot: u32) {
        self.frozen[slot as usize] = true;
    }
    fn free(&mut self, slot: u32) {
        self.frozen[slot as usize] = false;
    }
    fn abandon(&mut self, slot: u32, _: u64) {
        self.jobs[slot as usize] = None;
    }
    fn messages(&mut self) -> Option<&mut NodeMessages> {
        Some(&mut self.messages)
    }
}

type Events = Vec<(u32, Time, String)>;

/// Only what does not depend on the order of simultaneous decisions.
fn counts(event: &Event) -> bool {
    use Event::{Arrive, Cancel, Complete, Drop, Receive, Release, Send};
    matches!(
        event,
        Release { .. } | Complete { .. } | Cancel { .. } | Send { .. } | Arrive { .. } | Receive { .. } | Drop { .. }
    )
}

/// Keeps events before the end.
struct Keep(Events, Time);

impl Sink for Keep {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if counts(event) && now < self.1 {
            self.0.push((stream, now, format!("{event:?}")));
        }
    }
    fn wants_misses(&self) -> bool {
        false
    }
}

fn network(nodes: usize) -> NodeNetwork {
    let address = |node: usize| ([127, 0, 0, 1], 7000 + node as u16).into();
    NodeNetwork {
        listen: Some(address(0)),
        peers: (0..nodes).map(|node| (format!("n{node}"), address(node))).collect(),
        key: "0".repeat(64).parse().ok(),
        start: 0,
        priority: 0,
        clocks: None,
    }
}

/// Runs all nodes of a system live, in virtual time. They begin at `begin`.
fn live(system: &System, seed: u64, span: (Time, Time)) -> Events {
    live_by(system, seed, span, |_| Difference::default())
}

/// The same. What receivers know of the clock of each sender is `difference`.
fn live_by(
    system: &System,
    seed: u64,
    (begin, end): (Time, Time),
    difference: impl Fn(NodeId) -> Difference,
) -> Events {
    let count = system.nodes.len();
    let plans: Vec<(NodePlan, System)> = (0..count as u32)
        .map(|node| NodePlan::new(system, NodeId(node), &network(count)).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    let mut keep = Keep(Vec::new(), end);
    let mut nodes: Vec<(Board<'_>, Threads<'_>)> = (0_u32..)
        .zip(&plans)
        .map(|(node, (plan, lowered))| {
            let part = CpuPart::of_node(lowered, NodeId(node)).unwrap().remove(0);
            let messages = NodeMessages::new(plan, &part.slots, 1000);
            let tasks: Vec<_> =
                lowered.tasks_of(NodeId(node)).map(|(_, task)| (task, Draw::new(seed, &task.name))).collect();
            let threads = Threads {
                plan: plan.clone(),
                now: Time::ZERO,
                jobs: vec![None; tasks.len()],
                frozen: vec![false; tasks.len()],
                sending: Vec::new(),
                messages,
                tasks,
            };
            let hop = |slot| threads.messages.later_hop(slot);
            let mut board = Board::new(lowered, NodeId(node), part, (seed, end), hop);
            if begin > Time::ZERO {
                board.begin_at(begin);
            }
            (board, threads)
        })
        .collect();
    // Messages under way, by arrival, then in order.
    let mut way: BTreeMap<(Time, u64), (u32, takt_net::MessageBody)> = BTreeMap::new();
    let mut sent = 0;
    loop {
        let of = |(board, threads): &(Board<'_>, Threads<'_>)| board.next_instant().min(threads.finish());
        let next = nodes.iter().map(of).min().unwrap_or(Time::MAX);
        let next = way.first_key_value().map_or(next, |((at, _), _)| next.min(*at));
        let now = next;
        if now >= end {
            break;
        }
        while let Some(first) = way.first_entry().filter(|first| first.key().0 <= now) {
            let (from, body) = first.remove();
            for (node, (_, threads)) in (0_u32..).zip(&mut nodes) {
                let from = NodeId(from);
                if let Some(message) = incoming(&threads.plan, from, &body, difference(from)) {
                    threads.messages.arrive(message, now, &mut |at, event| keep.event(node, at, &event));
                }
            }
        }
        for (node, (board, threads)) in (0_u32..).zip(&mut nodes) {
            loop {
                if threads.advance(now).is_some() {
                    for message in std::mem::take(&mut threads.sending) {
                        keep.event(node, now, &Event::Send { job: message.job, message: message.number });
                        let body = takt_net::MessageBody {
                            task: message.job.task,
                            job: message.job.number,
                            message: message.number,
                            due: message.due,
                            origin: message.origin,
                            zero: Time::ZERO,
                            payload: 0,
                        };
                        way.insert((now + DELAY, sent), (node, body));
                        sent += 1;
                    }
                }
                board.pass(now, threads, &mut |at, fact| {
                    if let Fact::Event(event) = fact {
                        keep.event(node, at, &event);
                    }
                });
                if threads.finish() > now && board.next_instant() > now {
                    break;
                }
            }
        }
    }
    keep.0
}

fn system(preemptive: bool, late: &str, (period, load, cost): (u64, u64, &str)) -> System {
    let mut text = format!(
        r#"
takt = 1
name = "t"
[[strategy]]
name = "own"
level = [{{ tasks = "rest", discipline = "deadline", preemptive = {preemptive}, late = "{late}" }}]
[[network]]
delay = ["700us", "700us"]
[[task]]
name = "local"
node = "n1"
period = "17ms"
wcet = "{load}ms"
"#
    );
    for node in 0..3 {
        text += &format!(
            r#"
[[node]]
name = "n{node}"
strategy = "own"
receive = {{ period = "5ms", wcet = "400us"{cost} }}
send = {{ period = "{}ms", wcet = "300us"{cost} }}
"#,
            4 + node
        );
    }
    let long = format!("{period}ms");
    for (name, path, reply, [period, gap, wcet, deadline]) in [
        ("a", r#""n0", "n1", "n2""#, true, [&long[..], "5ms", "1ms", "70ms"]),
        ("b", r#""n2", "n1""#, false, ["9ms", "6ms", "2ms", "40ms"]),
        ("c", r#""n0", "n1""#, false, ["7ms", "4ms", "700us", "30ms"]),
    ] {
        text += &format!(
            r#"
[[flow]]
name = "{name}"
path = [{path}]
reply = {reply}
size = "100B"
period = "{period}"
send-gap = "{gap}"
wcet = "{wcet}"
deadline = "{deadline}"
"#
        );
    }
    file::parse(&text, "t").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn live_nodes_do_what_the_simulator_does() {
    let end = Time::from_ns(400_000_000);
    let costs = ["", ", cost = \"100us\"", ", cost = \"290us\""];
    for (case, (preemptive, late)) in [(true, "continue"), (false, "continue"), (true, "drop")].into_iter().enumerate()
    {
        for (load, cost) in [(1, costs[0]), (6, costs[1]), (12, costs[2])] {
            for period in [6, 11, 23] {
                let system = system(preemptive, late, (period, load, cost));
                let mut keep = Keep(Vec::new(), end);
                let options = SimOptions { duration: end.saturating_since(Time::ZERO), seed: 1, node: None };
                simulate(&system, &options, &mut keep).unwrap();
                let (mut wanted, mut got) = (keep.0, live(&system, 1, (Time::ZERO, end)));
                assert!(wanted.iter().any(|(_, _, event)| event.starts_with("Receive")), "messages pass");
                wanted.sort();
                got.sort();
                let differs = wanted.iter().zip(&got).find(|(wanted, got)| wanted != got);
                assert_eq!(differs, None, "case {case}, load {load}, period {period}, {cost}");
                assert_eq!(wanted.len(), got.len());
            }
        }
    }
}

#[test]
fn nodes_that_come_late_release_the_jobs_that_are_left() {
    let (begin, end) = (Time::from_ns(123_456_789), Time::from_ns(400_000_000));
    let system = system(true, "continue", (11, 1, ""));
    let sources = |events: Events| -> Events {
        let is_source = |event: &str| event.starts_with("Release") && event.contains("parent: None");
        events.into_iter().filter(|(_, at, event)| *at >= begin && is_source(event)).collect()
    };
    let whole = live(&system, 1, (Time::ZERO, end));
    let late = live(&system, 1, (begin, end));
    assert!(late.iter().all(|(_, at, _)| *at >= begin));
    assert!(late.iter().any(|(_, _, event)| event.starts_with("Receive")), "messages pass");
    assert_eq!(sources(late), sources(whole));
}

#[test]
fn a_message_that_is_late_by_the_safe_end_alone_is_not_admitted() {
    let system = system(true, "drop", (11, 1, ""));
    let (plan, lowered) = NodePlan::new(&system, NodeId(1), &network(3)).unwrap();
    let slots: Vec<u32> = (0..lowered.tasks_of(NodeId(1)).count() as u32).collect();
    let task = takt_model::TaskId(lowered.tasks.iter().position(|task| task.name == "a/0").unwrap() as u32);
    let receive = plan.parts.iter().position(|part| *part == Part::Receive).unwrap() as u32;
    let (entry, ms) = (plan.entries[&task], |ms: u64| Time::from_ns(ms * 1_000_000));
    let Part::Hop { share, drops: true, .. } = plan.parts[entry.slot as usize] else { panic!("a hop that drops") };
    for (due_min, due, admitted) in [(100, 100, true), (90, 110, true), (80, 100, false), (80, 80, true)] {
        let mut messages = NodeMessages::new(&plan, &slots, 10);
        let job = takt_log::JobKey { task, number: 1 };
        let message = Message { job, number: 1, due: ms(due), due_min: ms(due_min), origin: ms(1), place: entry.slot };
        let mut events = Vec::new();
        let mut tell = |_: Time, event: Event| events.push(event);
        messages.arrive(message, ms(85), &mut tell);
        messages.start_receiving();
        // A deadline of 85 ms or less is late.
        let done = ms(85) + share;
        messages.completed(receive, (takt_log::JobKey { task, number: 0 }, done, done), done, &mut tell);
        assert_eq!(messages.take_job().is_some(), admitted, "{due_min} {due}: {events:?}");
        let dropped = events.iter().any(|event| matches!(event, Event::Drop { .. }));
        assert_eq!(dropped, !admitted, "{due_min} {due}");
    }
}

/// n0 and n2 send to n1 at the same time, and one receiving job takes both messages.
const TWO_SENDERS: &str = r#"
takt = 1
name = "t"
[[strategy]]
name = "own"
level = [{ tasks = "rest", discipline = "deadline", preemptive = true, late = "drop" }]
[[network]]
delay = ["700us", "700us"]
[[node]]
name = "n0"
strategy = "own"
receive = { period = "5ms", wcet = "400us" }
send = { period = "4ms", wcet = "300us" }
[[node]]
name = "n1"
strategy = "own"
receive = { period = "5ms", wcet = "400us" }
send = { period = "4ms", wcet = "300us" }
[[node]]
name = "n2"
strategy = "own"
receive = { period = "5ms", wcet = "400us" }
send = { period = "4ms", wcet = "300us" }
[[flow]]
name = "x"
path = ["n0", "n1"]
size = "100B"
period = "100ms"
send-gap = "4ms"
wcet = "1ms"
deadline = "40ms"
[[flow]]
name = "y"
path = ["n2", "n1"]
size = "100B"
period = "100ms"
send-gap = "4ms"
wcet = "1ms"
deadline = "41ms"
"#;

#[test]
fn jobs_of_messages_run_in_the_order_of_their_likely_deadlines() {
    let system = file::parse(TWO_SENDERS, "t").unwrap_or_else(|errors| panic!("{errors}"));
    let (_, lowered) = NodePlan::new(&system, NodeId(1), &network(3)).unwrap();
    let ms = |[low, middle, high]: [i64; 3]| {
        let [low, middle, high] = [low, middle, high].map(|ms| ms * 1_000_000);
        Difference { low, middle, high }
    };
    let known = [0, 0, 0];
    // x is due after 40 ms and y after 41 ms, by the clocks of their senders.
    for (of_x, of_y, safe, likely) in [
        (known, known, [40, 41], [40, 41]),
        (known, [-2, 0, 2], [40, 39], [40, 41]),
        ([-2, 2, 6], known, [38, 41], [42, 41]),
    ] {
        assert_eq!([40 + of_x[0], 41 + of_y[0]], safe);
        assert_eq!([40 + of_x[1], 41 + of_y[1]], likely);
        let difference = |from: NodeId| ms(if from == NodeId(0) { of_x } else { of_y });
        let events = live_by(&system, 1, (Time::ZERO, Time::from_ns(200_000_000)), difference);
        let at = |kind: &str, name: &str| {
            let task = lowered.tasks.iter().position(|task| task.name == name).unwrap();
            let job = takt_log::JobKey { task: takt_model::TaskId(task as u32), number: 1 };
            let told = format!("{kind} {{ job: {job:?},");
            let of = |(node, _, event): &&(u32, Time, String)| *node == 1 && event.starts_with(&told);
            events.iter().find(of).unwrap_or_else(|| panic!("no {told}: {events:?}")).1
        };
        assert_eq!(at("Release", "x/1"), at("Release", "y/1"), "one receiving job takes both");
        let [x, y] = ["x/1", "y/1"].map(|name| at("Complete", name));
        assert_eq!(x < y, likely[0] < likely[1], "{of_x:?} {of_y:?}: {x} {y}");
    }
}

#[test]
fn a_message_of_another_task_or_node_is_none() {
    let system = system(true, "continue", (11, 1, ""));
    let (plan, lowered) = NodePlan::new(&system, NodeId(1), &network(3)).unwrap();
    let task = |name: &str| {
        let at = lowered.tasks.iter().position(|task| task.name == name).unwrap();
        takt_model::TaskId(at as u32)
    };
    let t = Time::from_ns;
    let body = takt_net::MessageBody {
        task: task("a/0"),
        job: 3,
        message: 9,
        due: t(50),
        origin: t(20),
        zero: t(0),
        payload: 0,
    };
    let shift = Difference { low: -7, middle: -5, high: -4 };
    let message = incoming(&plan, NodeId(0), &body, shift).unwrap();
    assert_eq!((message.job.number, message.number, message.due, message.origin), (3, 9, t(45), t(15)));
    assert_eq!(message.due_min, t(43));
    let refused = [
        (NodeId(2), body),
        (NodeId(0), takt_net::MessageBody { task: task("local"), ..body }),
        (NodeId(0), takt_net::MessageBody { task: task("a/1"), ..body }),
        (NodeId(0), takt_net::MessageBody { origin: t(51), ..body }),
    ];
    for (from, body) in refused {
        assert_eq!(incoming(&plan, from, &body, Difference::default()), None, "{body:?}");
    }
}

#[test]
fn missing_options_of_a_node_are_named() {
    let system = system(true, "continue", (11, 1, ""));
    let refused = |network: &NodeNetwork| NodePlan::new(&system, NodeId(0), network).unwrap_err().to_string();
    let full = network(3);
    assert!(refused(&NodeNetwork { key: None, ..full.clone() }).contains("--key FILE"));
    assert!(refused(&NodeNetwork { listen: None, ..full.clone() }).contains("--listen ADDRESS:PORT"));
    assert!(refused(&NodeNetwork { peers: Vec::new(), ..full.clone() }).contains("--peer n1=ADDRESS:PORT"));
    let six = NodeNetwork { listen: Some(([0, 0, 0, 0, 0, 0, 0, 1], 7).into()), ..full.clone() };
    assert!(refused(&six).contains("IPv6"));
    let peers = vec![("n9".to_owned(), full.peers[0].1)];
    assert!(refused(&NodeNetwork { peers, ..full }).contains("no node \"n9\""));
}

#[test]
fn only_replies_of_a_link_with_a_bucket_for_them_have_their_class() {
    let mut system = system(true, "continue", (11, 1, ""));
    let bucket = Bucket { rate: Rate::from_bps(1_000_000), burst: Bytes::new(1000) };
    for replies in [None, Some(bucket)] {
        system.nodes[2].link = Some(Link { replies, ..Link::at(Rate::from_bps(1_000_000_000)) });
        let (plan, _) = NodePlan::new(&system, NodeId(2), &network(3)).unwrap();
        // The reply of flow a, and a message of flow b.
        let lanes: Vec<bool> = plan.lanes.iter().map(|lane| lane.is_reply).collect();
        assert_eq!(lanes, [replies.is_some(), false]);
    }
}

#[test]
fn table_jobs_take_what_had_come_and_allocate_nothing() {
    send_and_take(None);
}

#[test]
fn table_jobs_send_by_way_of_the_outbox_and_allocate_nothing() {
    send_and_take(Some(Link { edf: true, ..Link::at(Rate::from_bps(1_000_000_000)) }));
}

fn send_and_take(link: Option<Link>) {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use takt_linux::Epoch;
    use takt_log::JobKey;

    use super::table_tasks::TableTasks;
    use super::{NodeLive, TableJob};

    let mut system = system(true, "continue", (11, 1, ""));
    system.nodes.iter_mut().for_each(|node| node.link = link);
    let open = |node: u32, to: std::net::SocketAddr, clocks: Option<u16>| {
        let mut network = network(3);
        network.listen = Some(([127, 0, 0, 1], 0).into());
        network.clocks = clocks;
        network.peers.iter_mut().for_each(|peer| peer.1 = to);
        let (plan, lowered) = NodePlan::new(&system, NodeId(node), &network).unwrap();
        let live = Arc::new(NodeLive::open(plan, false).unwrap());
        let slots: Vec<u32> = (0..lowered.tasks_of(NodeId(node)).count() as u32).collect();
        (live.socket.as_ref().unwrap().address().unwrap(), TableTasks::new(&live, &slots), live)
    };
    let nowhere = ([127, 0, 0, 1], 9).into();
    let (address, mut to, receiver) = open(1, nowhere, None);
    let (_, mut from, sender) = open(0, address, None);
    let slot = |live: &NodeLive, wanted: Part| live.plan.parts.iter().position(|part| *part == wanted).unwrap() as u32;
    let (send, receive) = (slot(&sender, Part::Send), slot(&receiver, Part::Receive));
    let hop = sender.plan.parts.iter().position(|part| matches!(part, Part::Hop { hop: 0, .. })).unwrap();
    let task = sender.plan.tasks[hop];
    let epoch = Epoch::now_is_zero();
    // The kernel begins to stamp arrivals some time after the request. Before, messages come one job later.
    let warm = (0..5000).any(|number| {
        let (now, tell) = (epoch.now(), &mut |_: Time, _: Event| {});
        from.messages().completed(hop as u32, (JobKey { task, number: 1000 + number }, now, now), now, tell);
        from.run((send, number * 100), now, epoch, tell);
        to.run((receive, number), now, epoch, tell);
        to.messages().completed(receive, (JobKey { task, number: 0 }, now, now), now, tell);
        let last = std::iter::from_fn(|| to.messages().take_job()).last();
        from.run((slot(&sender, Part::Receive), number), now, epoch, tell);
        takt_linux::clock::pause(Span::from_ms(1));
        last.is_some_and(|job| job.number == 1000 + number)
    });
    assert!(warm, "the kernel stamps arrivals");
    let sent = sender.counts.sent.load(Ordering::Relaxed);
    let mut events = Vec::with_capacity(1000);
    let mut received = Vec::with_capacity(100);
    let counted = allocation_counter::measure(|| {
        for number in 0..20 {
            let tell = &mut |at: Time, event: Event| events.push((at, event));
            let now = epoch.now();
            let due = now + Span::from_ms(50);
            from.messages().completed(hop as u32, (JobKey { task, number }, due, now), now, tell);
            let TableJob { start, end, .. } = from.run((send, 1_000_000 + number * 100), now, epoch, tell);
            assert!(start <= end);
            let job = to.run((receive, number), now, epoch, tell);
            to.messages().completed(receive, (JobKey { task, number }, due, now), job.end, tell);
            while let Some(job) = to.messages().take_job() {
                received.push((job.number, job.origin == now));
            }
            // Reads the stamps of what has left.
            from.run((slot(&sender, Part::Receive), number), now, epoch, tell);
        }
    });
    assert_eq!(counted.count_total, 0);
    assert_eq!(received, (0..20).map(|number| (number, true)).collect::<Vec<_>>());
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|(_, event)| wanted(event)).count();
    assert_eq!(count(|event| matches!(event, Event::Send { .. })), 20);
    assert_eq!(count(|event| matches!(event, Event::Transmit { bytes: 120, .. })), 20);
    assert_eq!(count(|event| matches!(event, Event::Arrive { .. })), 20);
    assert_eq!(count(|event| matches!(event, Event::Receive { .. })), 20);
    assert_eq!(sender.counts.sent.load(Ordering::Relaxed) - sent, 20);
    // Another run.
    let (_, mut other, _) = {
        let (address, table_tasks, live) = open(0, address, None);
        (address, table_tasks, live)
    };
    let tell = &mut |_: Time, _: Event| {};
    let now = epoch.now();
    other.messages().completed(hop as u32, (JobKey { task, number: 99 }, now, now), now, tell);
    other.run((send, 0), now, epoch, tell);
    to.run((receive, 99), now, epoch, tell);
    to.messages().completed(receive, (JobKey { task, number: 99 }, now, now), now, tell);
    assert_eq!(to.messages().take_job().map(|job| job.number), Some(99), "a restarted sender is heard");
    // The clock of another machine started at another time.
    assert!(!receiver.summary().other_clocks);
    other.messages().completed(hop as u32, (JobKey { task, number: 101 }, now, now), now, tell);
    other.run((send, 1_000_000), now, Epoch::in_future(Span::from_s(1)), tell);
    to.run((receive, 101), now, epoch, tell);
    assert!(receiver.summary().other_clocks);
    from.messages().completed(hop as u32, (JobKey { task, number: 100 }, now, now), now, tell);
    from.run((send, 2_000_000), now, epoch, tell);
    to.run((receive, 100), now, epoch, tell);
    assert_eq!(receiver.counts.former.load(Ordering::Relaxed), 1, "its former process is not");
    assert_eq!(receiver.counts.replayed.load(Ordering::Relaxed), 0);
    // A node that measures clocks takes a message only once the difference is known.
    let (address, mut to, receiver) = open(1, nowhere, Some(7461));
    let (_, mut from, _) = open(0, address, None);
    for (number, known) in [(0, None), (1, Some(takt_net::OffsetInterval { low: 0, middle: 0, high: 0 }))] {
        receiver.set_difference(NodeId(0), known);
        from.messages().completed(hop as u32, (JobKey { task, number }, now, now), now, tell);
        from.run((send, number * 100), now, epoch, tell);
        to.run((receive, number), now, epoch, tell);
        let counts = [&receiver.untimed[0], &receiver.counts.arrived].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1, number]);
    }
}

#[test]
fn a_receiving_job_stops_at_its_budget() {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use takt_linux::Epoch;
    use takt_log::JobKey;

    use super::NodeLive;
    use super::table_tasks::TableTasks;

    let mut system = system(true, "continue", (11, 1, ""));
    // It is over when the job has read the clock once more.
    system.nodes[1].receive.as_mut().unwrap().wcet = Span::from_ns(1);
    let open = |node: u32, to: std::net::SocketAddr| {
        let mut network = network(3);
        network.listen = Some(([127, 0, 0, 1], 0).into());
        network.peers.iter_mut().for_each(|peer| peer.1 = to);
        let (plan, lowered) = NodePlan::new(&system, NodeId(node), &network).unwrap();
        let live = Arc::new(NodeLive::open(plan, false).unwrap());
        let slots: Vec<u32> = (0..lowered.tasks_of(NodeId(node)).count() as u32).collect();
        (TableTasks::new(&live, &slots), live)
    };
    let (mut to, receiver) = open(1, ([127, 0, 0, 1], 9).into());
    let (mut from, sender) = open(0, receiver.socket.as_ref().unwrap().address().unwrap());
    let slot = |live: &NodeLive, wanted: Part| live.plan.parts.iter().position(|part| *part == wanted).unwrap() as u32;
    let (send, receive) = (slot(&sender, Part::Send), slot(&receiver, Part::Receive));
    let hop = sender.plan.parts.iter().position(|part| matches!(part, Part::Hop { hop: 0, .. })).unwrap();
    let (task, epoch) = (sender.plan.tasks[hop], Epoch::now_is_zero());
    for number in 0..20 {
        let (now, tell) = (epoch.now(), &mut |_: Time, _: Event| {});
        from.messages().completed(hop as u32, (JobKey { task, number }, now, now), now, tell);
        from.run((send, number * 100), now, epoch, tell);
    }
    assert_eq!(sender.counts.sent.load(Ordering::Relaxed), 20);
    for jobs in 1..=2 {
        to.run((receive, jobs), epoch.now(), epoch, &mut |_, _| {});
        let counts = [&receiver.counts.exhausted, &receiver.counts.arrived].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [jobs, 0]);
    }
}

#[test]
fn a_node_without_random_numbers_or_without_the_clock_of_a_sender_does_not_run() {
    let system = system(true, "continue", (11, 1, ""));
    let (plan, _) = NodePlan::new(&system, NodeId(0), &network(3)).unwrap();
    assert!(matches!(super::outbox::sealer(&plan, || None), Err(super::NodeError::Random)));
    let mut alone = network(3);
    alone.peers.retain(|(peer, _)| peer != "n0");
    assert!(NodePlan::new(&system, NodeId(1), &alone).is_ok());
    alone.clocks = Some(7461);
    let refused = NodePlan::new(&system, NodeId(1), &alone).map(|_| ());
    assert_eq!(refused, Err(super::NodeError::NoClock { peer: "n0".to_owned() }));
}
