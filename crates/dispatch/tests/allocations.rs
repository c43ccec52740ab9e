//! After its construction the dispatcher's queues allocate nothing: pushes, rejections, ends,
//! cancellations, chains. Nor does a push of an event.

use takt_dispatch::event::{Channel, Filter, Full, Level, Node, Options, Pattern, Sending};
use takt_dispatch::{Dispatcher, Limits, OperatingMode, Operation, Operations, PushError, Queues};
use takt_model::{Builtin, Span};

#[test]
fn jobs_come_and_go_without_allocation() {
    let ns = Span::from_ns;
    let far = Span::from_s(1000);
    let mut operations = Operations::new("many").cancel(true);
    for at in 0..50 {
        operations.add(Operation::sporadic(&format!("o{at}"), ns(1)).wcet(ns(1)).deadline(far).backlog(3));
        operations.add(Operation::after(&format!("f{at}"), [format!("o{at}").as_str()]).wcet(ns(1)).deadline(far));
    }
    operations.add(Operation::after("join", ["f1", "f2"]).wcet(ns(1)).deadline(far));
    // An operation that is always too late, so its jobs are omitted.
    operations.add(Operation::sporadic("hopeless", ns(1)).wcet(ns(1)).deadline(ns(1)).noncritical());
    operations.add(Operation::after("shed", ["hopeless"]).wcet(ns(1)).deadline(far).noncritical());
    for strategy in [Builtin::Fifo, Builtin::Edf, Builtin::Mlf, Builtin::Muf, Builtin::RmsMlf] {
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        let plan = operations.compute(&strategy.strategy(), &limits).unwrap_or_else(|wrong| panic!("{wrong}"));
        let queues = Queues::new(&plan, 0).unwrap();
        let levels = plan.levels.len() as u32;
        let hopeless = queues.slot("hopeless").unwrap();
        let (mut full, mut ran) = (0, 0);
        let allocated = allocation_counter::measure(|| {
            for round in 0..2000u32 {
                let slot = queues.slot(["o1", "o2", "o7", "hopeless"][round as usize % 4]).unwrap();
                full += u32::from(matches!(queues.push(slot), Err(PushError::Full)));
                let level = round % levels;
                let Some(ticket) = queues.take(level) else { continue };
                ran += 1;
                if let Some(ticket) = queues.exchange(ticket, level) {
                    ran += 1;
                    queues.end(ticket);
                }
            }
        });
        assert_eq!(allocated.count_total, 0, "{strategy:?}");
        let counts = queues.counts(hopeless).unwrap();
        assert!(ran > 1000 && counts.cancelled > 0, "{strategy:?}: {full} {ran} {counts:?}");
    }
}

/// Long queues. In each cycle a job ends, the next one is taken, and another arrives, with its
/// deadline anywhere among the waiting ones.
#[test]
fn a_long_queue_allocates_nothing() {
    let ns = Span::from_ns;
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    for strategy in [Builtin::Fifo, Builtin::Edf, Builtin::Mlf, Builtin::Muf] {
        for waiting in [64, 1024] {
            let all = 2 * waiting;
            let mut operations = Operations::new("long");
            for at in 0..all {
                let deadline = ns(1 + 100 * (u64::from(at) * 7919 % u64::from(all)));
                operations.add(Operation::sporadic(&format!("o{at}"), ns(1)).wcet(ns(1)).deadline(deadline).backlog(1));
            }
            let plan = operations.compute(&strategy.strategy(), &limits).unwrap_or_else(|wrong| panic!("{wrong}"));
            let queues = Queues::new(&plan, 0).unwrap();
            let (mut rejected, mut ran, mut there) = (0, 0, 0);
            let allocated = allocation_counter::measure(|| {
                rejected += (0..waiting).filter(|slot| queues.push(*slot).is_err()).count();
                let mut runs = queues.take(0);
                while let Some(ended) = runs.take().filter(|_| ran < 2 * all) {
                    ran += 1;
                    let comes = (ended.slot() + waiting) % all;
                    runs = queues.exchange(ended, 0);
                    rejected += usize::from(queues.push(comes).is_err());
                }
                while let Some(ended) = queues.take(0) {
                    there += 1;
                    queues.end(ended);
                }
            });
            assert_eq!(allocated.count_total, 0, "{strategy:?}, {waiting}");
            // Only the job taken last is missing.
            assert_eq!((rejected, ran, there), (0, 2 * all, waiting - 1), "{strategy:?}, {waiting}");
        }
    }
}

#[test]
fn events_are_pushed_without_allocation() {
    let sporadic = |name| Operation::sporadic(name, Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1));
    let operations = Operations::new("events").with(sporadic("one").backlog(4)).with(sporadic("two").backlog(4));
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let plan = operations.compute(&Builtin::Edf.strategy(), &limits).unwrap();
    let channel = Channel::new(Options { history: 3, ..Options::default() });
    let one = channel.subscribe(&plan, "one", Pattern::ANY).unwrap();
    let group =
        Filter::sequence([Pattern::kind(1).into(), Filter::all([Pattern::kind(2).into(), Pattern::kind(3).into()])]);
    let two = channel.subscribe(&plan, "two", group.without(Pattern::kind(4))).unwrap();
    let best_effort = takt_dispatch::Options { best_effort: true, ..takt_dispatch::Options::default() };
    let built = Dispatcher::new(plan).with(best_effort).on("one", one.handler(|_, _| ())).unwrap();
    let dispatching = built.on("two", two.handler(|_, _| ())).unwrap().start().unwrap();
    // Also to an outlet, whose events are never taken.
    let outlet = channel.outlet(&[Pattern::ANY], 4, Full::Oldest).unwrap();
    // Also to other nodes, none of which exists.
    let level = |name, kind, sending| {
        let level = Level::new(name, ([127, 0, 0, 1], 0).into()).peer(([127, 0, 0, 1], 9).into());
        level.sends(Pattern::kind(kind)).sending(sending)
    };
    let node = Node::new(1).with(level("direct", 1, Sending::Direct));
    let node = node.with(level("queued", 2, Sending::Queued { room: 8, full: Full::Oldest }));
    let connected = channel.connect_as(&node, &dispatching).unwrap();
    let supplier = channel.supplier(1);
    let (mut taken, mut sent) = (0, 0);
    let allocated = allocation_counter::measure(|| {
        for round in 0..2000u32 {
            let pushed = supplier.push(round % 5, b"payload").unwrap();
            taken += pushed.taken;
            sent += pushed.sent;
        }
    });
    assert_eq!(allocated.count_total, 0);
    assert!(outlet.passed().full > 0, "its queue was full");
    assert!(sent > 400 && taken > 0 && two.counts().complete > 0, "{taken} {:?}", two.counts());
    drop(connected);
    dispatching.stop(&mut takt_log::NullSink).unwrap();
}

#[test]
fn a_switch_of_plans_allocates_nothing() {
    let ms = Span::from_ms;
    let operations = Operations::new("modes")
        .with(Operation::periodic("fast", ms(2)).wcet(Span::from_us(10)).backlog(3))
        .with(Operation::periodic("slow", ms(5)).wcet(Span::from_us(10)).noncritical())
        .with(Operation::after("end", ["slow"]).wcet(Span::from_us(10)).noncritical())
        .mode(OperatingMode::new("other", Builtin::Muf.strategy()).every("fast", ms(1)).without("slow").without("end"));
    let plan = operations.compute(&Builtin::Rm.strategy(), &Limits::default()).unwrap();
    let best_effort = takt_dispatch::Options { best_effort: true, ..takt_dispatch::Options::default() };
    let mut allocated = 0;
    let mut built = Dispatcher::new(plan).with(best_effort);
    for name in ["fast", "slow", "end"] {
        built = built.on(name, |_| ()).unwrap();
    }
    let dispatching = built.start().unwrap();
    let all_ran = || dispatching.counts().iter().all(|(_, counts)| counts.released > 1);
    // Twenty switches, or more where the machine pauses.
    for round in 0..2000 {
        let measured = allocation_counter::measure(|| {
            dispatching.switch(round % 2).unwrap();
        });
        allocated += measured.count_total;
        takt_linux::clock::pause(ms(3));
        if round >= 20 && all_ran() {
            break;
        }
    }
    assert_eq!(allocated, 0);
    let counts = dispatching.stop(&mut takt_log::NullSink).unwrap().counts;
    assert!(counts.iter().all(|(_, counts)| counts.released > 1), "{counts:?}");
}

/// A history is copied into memory allocated at once, whatever its length.
#[test]
fn a_history_is_shown_with_as_many_allocations_whatever_it_holds() {
    let operation = Operation::sporadic("one", Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1));
    let plan = Operations::new("history").with(operation).compute(&Builtin::Edf.strategy(), &Limits::default());
    let best_effort = takt_dispatch::Options { best_effort: true, ..takt_dispatch::Options::default() };
    let built = Dispatcher::new(plan.unwrap()).with(best_effort).on("one", |_| ()).unwrap();
    let dispatching = built.start().unwrap();
    let channel = Channel::new(Options { history: 64, ..Options::default() });
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(1);
    let mut counts = Vec::new();
    for _ in 0..64 {
        supplier.push(1, b"payload").unwrap();
        let mut shown = 0;
        let allocated = allocation_counter::measure(|| channel.history(Pattern::ANY, |_| shown += 1));
        counts.push(allocated.count_total);
    }
    assert!(counts.iter().all(|count| *count == 2), "{counts:?}");
    drop(connected);
    dispatching.stop(&mut takt_log::NullSink).unwrap();
}
