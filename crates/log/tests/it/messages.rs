//! Statistics of messages against a slow recount.

use proptest::prelude::*;
use takt_log::stats::{Collector, DropCounts, MessageStats, Replications};
use takt_log::{ChainDef, Definitions, DropCause, Event, JobKey, KindSet, Sink as _, TaskDef};
use takt_model::{NodeId, TaskId, Time};

/// Hops of a flow `put` over two nodes, and a task `a/0` that is no hop.
fn definitions() -> Definitions {
    let task = |name: &str, node| TaskDef {
        name: name.to_owned(),
        node: NodeId(node),
        period: None,
        deadline: None,
        wcet: None,
        class: None,
    };
    let tasks = vec![task("put/0'", 0), task("put/1", 1), task("a/0", 1)];
    let chains = vec![ChainDef { name: "put".to_owned(), sink: TaskId(1) }];
    Definitions { tasks, chains, ..Definitions::default() }
}

/// An event: task, message, and what happens to it.
type Step = (u32, u64, u8);

fn event((task, message, what): Step) -> Event {
    let job = JobKey { task: TaskId(task), number: message };
    match what {
        0 => Event::Send { job, message },
        1 => Event::Receive { job, message },
        2 => Event::Drop { job, message, cause: DropCause::Late },
        _ => Event::Arrive { job, message },
    }
}

fn collected(steps: &[Step]) -> Vec<MessageStats> {
    let mut collector = Collector::new(&definitions(), KindSet::ALL);
    for (at, step) in steps.iter().enumerate() {
        collector.event(step.0, Time::from_ns(at as u64 * 10), &event(*step));
    }
    collector.finish(Time::from_ns(10_000)).messages
}

/// Sent, received, dropped and the longest time from send to receive, all events over and over.
fn recounted(steps: &[Step], of: u32) -> [u64; 4] {
    let count = |what: u8| steps.iter().filter(|step| step.0 == of && step.2 == what).count() as u64;
    let mut longest = 0;
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| step.0 == of && step.2 == 1) {
        let before = &steps[..at];
        let last = before.iter().rposition(|old| (old.0, old.1) == (of, step.1) && old.2 < 3);
        // The last thing that happened to it was its send.
        longest = longest.max(last.filter(|last| before[*last].2 == 0).map_or(0, |last| (at - last) as u64 * 10));
    }
    [count(0), count(1), count(2), longest]
}

proptest! {
    #[test]
    fn messages_are_counted_as_a_slow_recount_does(
        steps in proptest::collection::vec((0u32..3, 0u64..6, 0u8..4), 0..60),
    ) {
        let stats = collected(&steps);
        for task in 0..3 {
            let wanted = recounted(&steps, task);
            let found = stats.iter().find(|stats| stats.id == TaskId(task));
            let max = |stats: &MessageStats| stats.transit_ns.map_or(0, |transit| transit.max);
            let got = found.map_or([0; 4], |stats| [stats.sent, stats.received, stats.dropped, max(stats)]);
            prop_assert_eq!(got, wanted, "task {}", task);
        }
    }
}

#[test]
fn a_message_has_the_flow_and_hop_of_its_task() {
    let stats = collected(&[(0, 1, 0), (0, 1, 1), (2, 5, 0)]);
    let told: Vec<_> = stats.iter().map(|one| (one.flow.as_deref(), one.hop, one.task.as_str())).collect();
    assert_eq!(told, [(Some("put"), Some(0), "put/0'"), (None, None, "a/0")]);
}

#[test]
fn runs_add_up_though_not_all_have_messages_of_a_task() {
    let of = |steps: &[Step]| {
        let mut collector = Collector::new(&definitions(), KindSet::ALL);
        steps.iter().for_each(|step| collector.event(step.0, Time::ZERO, &event(*step)));
        collector.finish(Time::from_ns(10))
    };
    let mut runs = Replications::new();
    for steps in [&[(2, 1, 0)][..], &[(0, 1, 0), (2, 1, 0), (2, 2, 2)], &[]] {
        runs.add(&of(steps)).expect("runs of one system");
    }
    let sum = runs.finish().expect("runs").stats.messages;
    let told: Vec<_> = sum.iter().map(|one| (one.task.as_str(), one.sent, one.dropped)).collect();
    assert_eq!(told, [("put/0'", 1, 0), ("a/0", 2, 1)]);
    assert_eq!(sum[1].dropped_by, DropCounts { late: 1, ..DropCounts::default() });
}

#[test]
fn lost_events_leave_no_time_to_count() {
    let mut collector = Collector::new(&definitions(), KindSet::ALL);
    collector.event(0, Time::ZERO, &event((0, 1, 0)));
    collector.event(1, Time::from_ns(5), &Event::Lost { count: 2 });
    collector.event(1, Time::from_ns(9), &event((0, 1, 1)));
    let stats = collector.finish(Time::from_ns(10)).messages;
    assert_eq!((stats[0].sent, stats[0].received, stats[0].transit_ns), (1, 1, None));
}

#[test]
fn transmissions_are_counted_by_the_sending_task() {
    let steps = [(0, event((0, 1, 0))), (2, event((2, 1, 0))), (10, Event::Transmit { message: 1, bytes: 400 })];
    let of = |kinds: KindSet| {
        let mut collector = Collector::new(&definitions(), kinds);
        // Messages of two nodes may have one number; a link says its node.
        steps.iter().for_each(|(at, event)| collector.event(0, Time::from_ns(*at), event));
        collector.event(1, Time::from_ns(30), &Event::Transmit { message: 1, bytes: 90 });
        collector.finish(Time::from_ns(50)).messages
    };
    let told = |stats: &MessageStats| (stats.bytes, stats.link_wait_ns.map(|waits| waits.max));
    assert_eq!(of(KindSet::ALL).iter().map(told).collect::<Vec<_>>(), [(Some(400), Some(10)), (Some(90), Some(28))]);
    // A back end that records no links tells nothing of them.
    assert_eq!(of(KindSet::MESSAGES)[0].bytes, None);
}
