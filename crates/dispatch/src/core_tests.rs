//! A switch to a plan that drops late jobs, and the count of unmet deadlines.

use takt_model::{Builtin, Discipline, Filter, Late, Level, Strategy};

use super::super::build::{core, places};
use super::super::queues::Silent;
use super::super::{Limits, OperatingMode, Operation as Described, Operations};
use super::*;

/// A switch examines one job of each operation, however many wait. Taking the next job handles the
/// others first.
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
        // The last hundred jobs of each operation are not late then.
        let now = at(10_000 + 800);
        core.switch(1, now, &mut Vec::with_capacity(4));
        let dropped = |core: &Core<Silent>| [0, 1].map(|slot| core.counts(slot, now).unwrap().dropped);
        assert!(dropped(&core).iter().all(|dropped| *dropped <= 2), "{:?}", dropped(&core));
        let mut steps = 0;
        while !taken && core.release_followers(now) {
            steps += 1;
        }
        assert!(taken || steps > 2, "in one hold");
        let first = core.next(0, now).unwrap();
        assert_eq!((first.number, dropped(&core)), (801, [801; 2]), "those whose deadline is not after the switch");
    }
}

/// For every fate of the job. A monitor of `late` alone would miss three of four.
#[test]
fn each_deadline_that_is_not_met_counts_once_and_no_sooner_than_it_is_sure() {
    let ms = Span::from_ms;
    let operation = Described::sporadic("a", Span::from_ns(1)).wcet(ms(1)).deadline(ms(10)).backlog(3);
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let plan = Operations::new("set").with(operation.noncritical()).compute(&Builtin::Edf.strategy(), &limits);
    let plan = plan.unwrap();
    let mut core = core(&plan, &places(&plan), 0, Silent).unwrap();
    let at = |ms: u64| Time::ZERO.saturating_add(Span::from_ms(ms));
    let unmet = |core: &Core<Silent>, now| core.counts(0, now).unwrap().unmet;
    for job in 0..3 {
        assert_eq!(core.push(0, at(job)), Ok(job));
    }
    assert_eq!(unmet(&core, at(3)), 0);
    assert!(core.push(0, at(3)).is_err());
    assert_eq!(unmet(&core, at(3)), 1, "what is rejected will never be in time");
    let first = core.next(0, at(4)).unwrap();
    assert_eq!((unmet(&core, at(10)), unmet(&core, at(11))), (1, 2), "it runs past its deadline");
    core.end(first, End::Completed, at(11));
    let counts = core.counts(0, at(11)).unwrap();
    assert_eq!((counts.unmet, counts.late, counts.rejected), (2, 1, 1), "late now, and counted already");
    let second = core.next(0, at(11)).unwrap();
    core.end(second, End::Failed, at(11));
    assert_eq!((unmet(&core, at(12)), unmet(&core, at(13))), (3, 4), "the third waits past its deadline");
    let third = core.next(0, at(13)).unwrap();
    core.end(third, End::Completed, at(13));
    assert_eq!(unmet(&core, at(100)), 4);
}
