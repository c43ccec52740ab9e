//! After its construction the dispatcher's queues allocate nothing: pushes, rejections, ends, cancellations, chains.

use takt_model::{Builtin, Span};
use takt_run::dispatch::{Limits, Operation, Operations, PushError, Queues};

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
    // One that is always too late, and is omitted.
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
