//! The kernel's limits on real-time threads of a CPU, compared with what a plan's operations may
//! use.

use std::collections::BTreeMap;

use takt_linux::group::Place;
use takt_linux::machine::Limits;

use super::plan::Plan;

/// A limit on all real-time threads of a CPU together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// In millionths of a CPU.
    ppm: u64,
    /// The name of the limit.
    by: &'static str,
}

/// The limit by the kernel's settings and the control group of this process; `None` if there is no
/// limit.
pub fn bound() -> Option<Bound> {
    let own = Place::of(std::process::id()).ok().and_then(|place| place.real_time);
    bound_of(&Limits::read(), own.and_then(|own| Some(own.limit?.saturating_sub(own.taken))))
}

fn bound_of(limits: &Limits, group: Option<u64>) -> Option<Bound> {
    let all = u64::try_from(limits.rt_runtime_us).ok().map(|runtime| Bound {
        ppm: runtime.saturating_mul(1_000_000) / limits.rt_period_us.max(1),
        by: "kernel.sched_rt_runtime_us of sched_rt_period_us, which also gives ordinary threads their share",
    });
    let group = group.map(|share| Bound {
        ppm: share.saturating_mul(1_000_000) >> 20,
        by: "cpu.rt_runtime_us of the control group that this process is in",
    });
    all.into_iter().chain(group).min_by_key(|bound| bound.ppm).filter(|bound| bound.ppm < 1_000_000)
}

/// CPUs whose operations may exceed the limit under any of the plans: a sentence each.
pub fn beyond(plan: &Plan, bound: Option<Bound>) -> Vec<String> {
    let Some(Bound { ppm: most, by }) = bound else { return Vec::new() };
    let mut used: BTreeMap<u32, u64> = BTreeMap::new();
    for rows in plan.each_rows() {
        let mut here: BTreeMap<u32, u128> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.takes_part) {
            let wcet = plan.system.tasks.get(row.task.index()).map_or(0, |task| task.wcet.as_ns());
            // In 10^-12 of a CPU, so that many small shares are not lost.
            *here.entry(row.cpu).or_default() +=
                u128::from(wcet) * 1_000_000_000_000 / u128::from(row.period.as_ns().max(1));
        }
        for (cpu, share) in here {
            let ppm = u64::try_from(share.div_ceil(1_000_000)).unwrap_or(u64::MAX);
            let kept = used.entry(cpu).or_default();
            *kept = ppm.max(*kept);
        }
    }
    let beyond = used.into_iter().filter(|(_, ppm)| *ppm > most);
    let percent = |ppm: u64| format!("{:.1} %", ppm as f64 / 10_000.0);
    let sentence = |(cpu, ppm): (u32, u64)| {
        format!(
            "the operations of CPU {cpu} may use {} of it, and real-time threads may use {} ({by}): once this is used \
             up, they wait for ordinary threads, even past their deadlines; see \"takt doctor\", rt-throttling and \
             fair-server",
            percent(ppm),
            percent(most)
        )
    };
    beyond.map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use takt_model::{Builtin, Span};

    use super::super::{Limits as PlanLimits, OperatingMode, Operation, Operations};
    use super::*;

    fn limits(rt_runtime_us: i64) -> Limits {
        Limits { rt_runtime_us, rt_period_us: 1_000_000, ..Limits::read() }
    }

    fn plan() -> Plan {
        let ms = Span::from_ms;
        let set = Operations::new("set")
            .cpus(2)
            .with(Operation::periodic("a", ms(10)).wcet(ms(6)))
            .with(Operation::periodic("b", ms(10)).wcet(ms(2)))
            .with(Operation::periodic("c", ms(10)).wcet(ms(2)).on_cpu(1))
            .mode(OperatingMode::new("fast", Builtin::Edf.strategy()).every("a", ms(8)));
        set.compute(&Builtin::Edf.strategy(), &PlanLimits::default()).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    #[test]
    fn the_tightest_bound_counts() {
        let ppm = |bound: Option<Bound>| bound.map(|bound| bound.ppm);
        assert_eq!(ppm(bound_of(&limits(950_000), None)), Some(950_000));
        assert_eq!(ppm(bound_of(&limits(950_000), Some(1 << 19))), Some(500_000));
        assert_eq!(ppm(bound_of(&limits(-1), Some(1 << 19))), Some(500_000));
        assert_eq!((bound_of(&limits(-1), None), bound_of(&limits(1_000_000), None)), (None, None));
    }

    #[test]
    fn load_above_the_kernels_limit_is_reported_for_each_cpu() {
        let of = |runtime| beyond(&plan(), bound_of(&limits(runtime), None));
        // The load is 95 % in the mode.
        assert_eq!(of(950_000), Vec::<String>::new());
        let told = of(940_000);
        assert!(told.len() == 1 && told[0].starts_with("the operations of CPU 0 may use 95.0 % of it"), "{told:?}");
        assert!(told[0].contains("may use 94.0 % (kernel.sched_rt_runtime_us"), "{told:?}");
        assert_eq!(of(100_000).len(), 2);
        assert_eq!(of(-1).len(), 0);
    }
}
