//! A switch to a plan that drops what is late.

use takt_model::{Builtin, Discipline, Filter, Late, Level, Strategy};

use super::super::build::{core, places};
use super::super::queues::Silent;
use super::super::{Limits, OperatingMode, Operation as Described, Operations};
use super::*;

/// However many wait, a switch looks at one job of each operation; who takes the next job looks at the others first.
#[test]
fn a_switch_drops_one_job_of_a_backlog_and_who_takes_a_job_the_others() {
    let ms = Span::from_ms;
    let operation = |name| {
        let sporadic = Described::sporadic(name, Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(ms(10));
        sporadic.noncritical().backlog(1000)
    };
    let level = Level { late: Late::Drop, ..Level::new(Filter::Rest, Discipline::Deadline) };
    let drops = Strategy { name: "drops".to_owned(), levels: vec![level] };
    let set =
        Operations::new("late").with(operation("a")).with(operation("b")).mode(OperatingMode::new("drops", drops));
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let plan = set.compute(&Builtin::Edf.strategy(), &limits).unwrap();
    for taken in [false, true] {
        let mut core = core(&plan, &places(&plan), 0, Silent).unwrap();
        let at = |us: u64| Time::ZERO.saturating_add(Span::from_us(us));
        for job in 0..900 {
            (0..2).for_each(|slot| assert_eq!(core.push(slot, at(job)), Ok(job)));
        }
        // The last hundred of each are not late then.
        let now = at(10_000 + 800);
        core.switch(1, now, &mut Vec::with_capacity(4));
        let dropped = |core: &Core<Silent>| [0, 1].map(|slot| core.counts(slot).unwrap().dropped);
        assert!(dropped(&core).iter().all(|dropped| *dropped <= 2), "{:?}", dropped(&core));
        let mut steps = 0;
        while !taken && core.settle(now) {
            steps += 1;
        }
        assert!(taken || steps > 2, "in one hold");
        let first = core.next(0, now).unwrap();
        assert_eq!((first.number, dropped(&core)), (801, [801; 2]), "those whose deadline is not after the switch");
    }
}
