//! Random events for property tests.

use proptest::prelude::*;
use takt_log::{
    BackEnd, CancelCause, Definitions, DropCause, Event, Header, JobKey, KindSet, NodeDef, Parent, Sink as _, TaskDef,
    Writer,
};
use takt_model::{NodeId, Span, TaskId, Time};

pub(crate) type Record = (u32, Time, Event);

fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(value, shift)| value >> shift)
}

fn small() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0u32..32).prop_map(|(value, shift)| value >> shift)
}

fn job() -> impl Strategy<Value = JobKey> {
    let task = prop_oneof![9 => 0u32..40, 1 => any::<u32>()];
    (task, prop_oneof![9 => 0u64..1000, 1 => any::<u64>()])
        .prop_map(|(task, number)| JobKey { task: TaskId(task), number })
}

/// Any event, sensible or not.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    let parent = proptest::option::of((any::<u32>(), number()))
        .prop_map(|parent| parent.map(|(hop, origin)| Parent { hop, origin: Time::from_ns(origin) }));
    let cause = prop::sample::select(CancelCause::ALL.to_vec());
    let drop_cause = prop::sample::select(DropCause::ALL.to_vec());
    prop_oneof![
        (job(), number(), parent).prop_map(|(job, arrival, parent)| {
            let arrival = Time::from_ns(arrival);
            Event::Release { job, arrival, parent }
        }),
        (job(), small()).prop_map(|(job, cpu)| Event::Start { job, cpu }),
        (job(), small()).prop_map(|(job, cpu)| Event::Preempt { job, cpu }),
        (job(), small()).prop_map(|(job, cpu)| Event::Resume { job, cpu }),
        (job(), small()).prop_map(|(job, cpu)| Event::Block { job, cpu }),
        job().prop_map(|job| Event::Wake { job }),
        (job(), small()).prop_map(|(job, cpu)| Event::Complete { job, cpu }),
        job().prop_map(|job| Event::Miss { job }),
        (job(), cause).prop_map(|(job, cause)| Event::Cancel { job, cause }),
        (job(), small(), small()).prop_map(|(job, from, to)| Event::Migrate { job, from, to }),
        (small(), number()).prop_map(|(server, ns)| Event::Replenish { server, budget: Span::from_ns(ns) }),
        small().prop_map(|server| Event::Exhaust { server }),
        small().prop_map(|server| Event::ServerIdle { server }),
        (small(), number(), number(), any::<bool>()).prop_map(|(server, since, ns, idle)| Event::Charge {
            server,
            since: Time::from_ns(since),
            amount: Span::from_ns(ns),
            idle,
        }),
        small().prop_map(|mode| Event::ModeChange { mode }),
        (job(), number()).prop_map(|(job, message)| Event::Send { job, message }),
        (job(), number()).prop_map(|(job, message)| Event::Arrive { job, message }),
        (job(), number()).prop_map(|(job, message)| Event::Receive { job, message }),
        (job(), number(), drop_cause).prop_map(|(job, message, cause)| Event::Drop { job, message, cause }),
        (number(), small()).prop_map(|(message, bytes)| Event::Transmit { message, bytes }),
        (small(), small()).prop_map(|(irq, cpu)| Event::IrqEnter { irq, cpu }),
        (small(), small()).prop_map(|(irq, cpu)| Event::IrqExit { irq, cpu }),
        number().prop_map(|count| Event::Lost { count }),
        (job(), number()).prop_map(|(job, ns)| Event::Window { job, earliest: Time::from_ns(ns) }),
        job().prop_map(|job| Event::Gap { job }),
        (small(), proptest::option::of(0..u32::MAX)).prop_map(|(cpu, thread)| Event::Occupy { cpu, thread }),
        (small(), number(), number()).prop_map(|(cpu, span, within)| {
            let (span, within) = (Span::from_ns(span), Span::from_ns(within));
            Event::Steal { cpu, span, within }
        }),
    ]
}

/// Events of `streams` streams in the order of time, and of stream at one instant.
pub(crate) fn records(streams: u32, most: usize) -> impl Strategy<Value = Vec<Record>> {
    let step = prop_oneof![4 => Just(0u64), 8 => 0u64..100_000, 1 => number().prop_map(|n| n >> 16)];
    proptest::collection::vec((step, 0..streams, event()), 0..most).prop_map(|parts| {
        let mut now = 0u64;
        let mut records: Vec<Record> = parts
            .into_iter()
            .map(|(step, stream, event)| {
                now = now.saturating_add(step);
                (stream, Time::from_ns(now), event)
            })
            .collect();
        records.sort_by_key(|(stream, time, _)| (*time, *stream));
        records
    })
}

/// Definitions of `tasks` tasks with these deadlines, on two nodes of two CPUs.
pub(crate) fn definitions(deadlines: &[Option<u64>]) -> Definitions {
    let node = |name: &str| NodeDef { name: name.into(), cpus: 2, strategy: "edf".into() };
    let tasks = deadlines.iter().enumerate().map(|(i, deadline)| TaskDef {
        name: format!("t{i}"),
        node: NodeId(i as u32 % 2),
        period: None,
        deadline: deadline.map(Span::from_ns),
        wcet: None,
        class: None,
    });
    Definitions { nodes: vec![node("n0"), node("n1")], tasks: tasks.collect(), ..Definitions::default() }
}

pub(crate) fn log(records: &[Record], end: Time) -> Vec<u8> {
    let header = Header::new("takt = 1\n".into(), Some(1), BackEnd::Sim, KindSet::ALL);
    let mut writer = Writer::new(Vec::new(), &header, &definitions(&[None; 40])).unwrap();
    records.iter().for_each(|(stream, time, event)| writer.event(*stream, *time, event));
    writer.finish(end).unwrap()
}
