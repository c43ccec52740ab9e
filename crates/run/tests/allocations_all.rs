//! No thread of a dispatcher or a channel allocates after the start: workers, timers, pushes, handlers' frames, switches. Alone in its program, for it
//! counts what all of the process allocates.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use takt_model::{Builtin, Span};
use takt_run::dispatch::{self, Dispatcher, Limits, OperatingMode, Operation, Operations};
use takt_run::event::{Channel, Filter, Options, Pattern};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn nothing_allocates_while_it_runs() {
    let (ms, us) = (Span::from_ms, Span::from_us);
    let far = Span::from_s(1);
    let operations = Operations::new("all")
        .cancel(true)
        .with(Operation::periodic("fast", ms(1)).wcet(us(10)))
        .with(Operation::periodic("slow", ms(5)).wcet(us(10)).noncritical())
        .with(Operation::after("end", ["slow", "leg"]).wcet(us(10)).noncritical())
        .with(Operation::after("leg", ["slow"]).wcet(us(10)).noncritical())
        // Too late by the time that it may begin, most of the time.
        .with(Operation::periodic("hopeless", ms(3)).wcet(us(10)).deadline(us(11)).noncritical())
        .with(Operation::sporadic("one", ms(1)).wcet(us(10)).deadline(far).backlog(4))
        .with(Operation::sporadic("two", ms(1)).wcet(us(10)).deadline(far).backlog(4))
        .mode(OperatingMode::new("other", Builtin::Muf.strategy()).every("fast", ms(2)));
    let plan = operations.compute(&Builtin::RmsMlf.strategy(), &Limits::default()).unwrap_or_else(|no| panic!("{no}"));
    let channel = Channel::new(Options { history: 3, ..Options::default() });
    let one = channel.subscribe(&plan, "one", Pattern::kind(1)).unwrap();
    let group = Filter::all([Pattern::kind(1).into(), Filter::Timeout(ms(2))]);
    let two = channel.subscribe(&plan, "two", group).unwrap();
    let options = dispatch::Options { best_effort: true, ..dispatch::Options::default() };
    let supplier = channel.supplier(1);
    let mut built = Dispatcher::new(plan).with(options);
    // An operation supplies, too.
    built = built
        .on("fast", move |_| {
            let _ = supplier.push(1, b"payload");
        })
        .unwrap();
    for name in ["slow", "end", "leg", "hopeless"] {
        built = built.on(name, |_| ()).unwrap();
    }
    built = built.on("one", one.handler(|_, _| ())).unwrap().on("two", two.handler(|_, _| ())).unwrap();
    let dispatching = built.start().unwrap();
    let connected = channel.connect(&dispatching).unwrap();
    let completed = || dispatching.counts().iter().map(|(_, counts)| counts.completed).sum::<u64>();
    let before = completed();
    let region = Region::new(ALLOCATOR);
    let mut locked = Span::ZERO;
    // Twenty switches, and as long as it takes on a machine that does something else.
    for round in 0..1000 {
        takt_linux::clock::pause(ms(15));
        locked = locked.max(dispatching.switch(round % 2).unwrap().locked);
        if round >= 20 && [&one, &two].iter().all(|subscription| subscription.counts().handled > 20) {
            break;
        }
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations, change.deallocations), (0, 0, 0), "{change:?}");
    // And it counts what other threads allocate.
    let region = Region::new(ALLOCATOR);
    std::thread::spawn(|| drop(vec![1u8; 100])).join().unwrap();
    assert!(region.change().allocations > 0);
    let [first, second] = [&one, &two].map(|subscription| subscription.counts());
    assert!(completed() > before + 100 && first.handled > 20 && second.handled > 20, "{first:?} {second:?} {locked}");
    drop(connected);
    dispatching.stop(&mut takt_log::NullSink).unwrap();
}
