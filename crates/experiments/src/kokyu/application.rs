//! The application of [KOKYU III-B], its loads, and the plans of a region.

use takt_dispatch::{Adaptive, Limits, Operation, Operations, Plan};
use takt_log::Sink;
use takt_model::{Builtin, NodeId, Span, StrategyRef, System};
use takt_sim::{SimOptions, simulate};

use super::FRAME;
use super::count::{Counter, Lost, Outcome};
use super::interruptible::interruptible;
use crate::failure::Failure;
use crate::law::law;

/// Table 2: the least and the largest execution time of the additional critical operations in ms,
/// and the number of legs of the noncritical chain.
pub(super) const REGIONS: [(u64, u64, u32); 12] = [
    (0, 0, 1),
    (0, 5, 1),
    (5, 10, 2),
    (0, 10, 3),
    (0, 0, 4),
    (0, 5, 5),
    (5, 10, 6),
    (0, 10, 7),
    (0, 0, 8),
    (0, 5, 9),
    (5, 10, 10),
    (0, 10, 11),
];

pub(super) const LEG: Span = Span::from_us(4_600);

/// The operation that ends each frame of 25 ms: it sends the values that are due by then.
pub(super) const FLUSH: &str = "replication";

/// The fixed operations: name, rate in Hz, offset in ms, execution time in us, critical.
const FIXED: [(&str, u64, u64, u64, bool); 10] = [
    (FLUSH, 40, 0, 400, true),
    ("air-data", 40, 0, 300, true),
    ("inertial", 20, 1, 500, true),
    ("steering", 20, 2, 1_000, false),
    ("display", 20, 3, 2_000, false),
    ("radar", 10, 5, 1_000, true),
    ("datalink", 5, 12, 6_000, true),
    ("map", 5, 14, 10_000, false),
    ("health", 1, 26, 10_000, true),
    ("archive", 1, 30, 20_000, false),
];

/// The operations that process sensor readings: name, proxy, and execution time in us. The readings
/// of the proxy release them.
pub(super) const PROCESSING: [(&str, &str, u64); 3] =
    [("attitude", "air-data", 300), ("navigation", "inertial", 1_500), ("weapons", "radar", 3_000)];

/// The operation that processes a proxy's readings, and its execution time in us. `None` if the
/// name is no proxy's.
pub(super) fn processing(name: &str) -> Option<(&'static str, u64)> {
    PROCESSING.iter().find(|(_, proxy, _)| *proxy == name).map(|(processing, _, us)| (*processing, *us))
}

/// All operations that each region has: rate in Hz, execution time in us, critical.
pub(super) fn fixed() -> impl Iterator<Item = (u64, u64, bool)> {
    FIXED.iter().flat_map(|(name, hz, _, us, critical)| {
        let after = processing(name).map(|(_, us)| (*hz, us, true));
        std::iter::once((*hz, *us, *critical)).chain(after)
    })
}

/// Rate in Hz and offset in ms of the additional critical operations.
pub(super) const VARIABLE: [(u64, u64); 3] = [(10, 6), (5, 13), (1, 27)];

/// A strategy, or the controller that moves between rm and rms+mlf. Noncritical jobs may be
/// cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Variant {
    /// `None`: the controller.
    pub(super) strategy: Option<Builtin>,
    pub(super) cancel: bool,
}

impl Variant {
    pub(super) fn name(self) -> String {
        format!("{}{}", self.strategy.map_or("adaptive", Builtin::name), if self.cancel { ", cancel" } else { "" })
    }

    /// Whether it separates critical operations from the others.
    pub(super) fn is_aware(self) -> bool {
        matches!(self.strategy, Some(Builtin::Muf | Builtin::RmsMlf))
    }
}

/// The strategies. The first three are the paper's.
pub(super) const STRATEGIES: [Builtin; 5] = [Builtin::Rm, Builtin::Muf, Builtin::RmsMlf, Builtin::Edf, Builtin::Mlf];

/// The first variants of [`variants`] that are the paper's.
pub(super) const PAPER_VARIANTS: usize = 6;

pub(super) fn variants() -> Vec<Variant> {
    let strategies = STRATEGIES.iter().copied().map(Some).chain([None]);
    strategies.flat_map(|strategy| [false, true].map(|cancel| Variant { strategy, cancel })).collect()
}

pub(super) fn operations(region: usize, cancel: bool) -> Operations {
    let (least, most, legs) = REGIONS[region];
    let ms = Span::from_ms;
    let class = |operation: Operation, critical: bool| if critical { operation } else { operation.noncritical() };
    let mut all = Operations::new("flight").cancel(cancel);
    for (name, hz, offset, wcet, critical) in FIXED {
        let period = ms(1000 / hz);
        let operation = Operation::periodic(name, period).offset(ms(offset)).wcet(Span::from_us(wcet));
        let Some((after, us)) = processing(name) else {
            all.add(class(operation, critical));
            continue;
        };
        // The processing operation is due a period after the reading. The proxy gets an earlier
        // deadline, since otherwise the analysis would find no bound for the operation that waits
        // for it.
        all.add(class(operation.deadline(Span::from_ns(period.as_ns() * 7 / 10)), critical));
        all.add(Operation::after(after, [name]).wcet(Span::from_us(us)).deadline(period));
    }
    for (hz, offset) in VARIABLE.iter().filter(|_| most > least) {
        let operation = Operation::periodic(&format!("surrogate-{hz}"), ms(1000 / hz)).offset(ms(*offset));
        all.add(operation.wcet(ms(most)));
    }
    for leg in 1..=legs {
        // The frame's end flushes the results of all legs. Each leg releases the next one.
        let before = LEG.as_ns() * u64::from(leg - 1);
        let deadline = Span::from_ns(FRAME.as_ns().saturating_sub(before)).max(LEG);
        let operation = match leg {
            1 => Operation::periodic("leg-1", FRAME).offset(ms(4)),
            _ => Operation::after(&format!("leg-{leg}"), [format!("leg-{}", leg - 1).as_str()]),
        };
        all.add(operation.wcet(LEG).deadline(deadline).noncritical());
    }
    all
}

/// The most jobs of an operation that wait in a simulation. A leg's jobs of a whole region fit.
pub(super) const BACKLOG: u32 = 1 << 14;

/// The plan as the dispatcher runs it: jobs run to completion within a level. The controller has
/// rm, and rms+mlf as a mode.
pub(super) fn plan(region: usize, variant: Variant) -> Result<Plan, Failure> {
    Ok(plan_of(region, variant, |_| ())?.with_backlog(BACKLOG))
}

/// Like [`plan`], after a change to the application.
pub(super) fn plan_of(region: usize, variant: Variant, change: impl FnOnce(&mut System)) -> Result<Plan, Failure> {
    let wrong = |what: &dyn std::fmt::Display| Failure::trouble(format_args!("region {region}: {what}"));
    let operations = operations(region, variant.cancel);
    let strategy = variant.strategy.unwrap_or(Builtin::Rm);
    let mut system = operations.to_system(&strategy.strategy()).map_err(|error| wrong(&error))?;
    change(&mut system);
    let limits = Limits::default();
    let plan = match variant.strategy {
        Some(_) => Plan::compute_regardless(&system, NodeId(0), &limits),
        None => Plan::compute_adaptive(&system, NodeId(0), StrategyRef::Builtin(Builtin::RmsMlf), &limits),
    };
    let (mut plan, _) = plan.map_err(|error| wrong(&error))?;
    let (least, most, _) = REGIONS[region];
    for task in plan.system.tasks.iter_mut().filter(|task| task.name.starts_with("surrogate")) {
        let min = Span::from_ns((task.wcet.as_ns() * least / most.max(1)).max(1));
        task.exec = takt_model::Exec::Uniform { min, max: task.wcet };
    }
    Ok(plan)
}

/// How often the controller looks for spare time in the period of the fastest operation.
const LOOKS_PER_PERIOD: u64 = 5;

/// The controller of a plan. It looks for spare time several times in the period of the fastest
/// operation. It needs a bound for each critical operation, since without one it could promise
/// nothing.
pub(super) fn bounded_controller(plan: &Plan) -> Result<Adaptive, Failure> {
    let fastest = plan.system.tasks.iter().map(|task| task.period).min().unwrap_or(FRAME);
    let law = law(plan).reclaiming(Span::from_ns((fastest.as_ns() / LOOKS_PER_PERIOD).max(1)));
    let unbounded: Vec<&str> = law.unbounded(plan).collect();
    if let [first, ..] = unbounded.as_slice() {
        return Err(Failure::trouble(format_args!("the analysis finds no bound of the response of \"{first}\"")));
    }
    Ok(law)
}

/// Runs a plan in virtual time. Fails if `stopped` says so.
pub(super) fn simulate_plan(
    plan: &Plan,
    variant: Variant,
    duration: Span,
    seed: u64,
    stopped: &dyn Fn() -> bool,
    sink: &mut impl Sink,
) -> Result<(), Failure> {
    let law = if variant.strategy.is_none() { Some(bounded_controller(plan)?) } else { None };
    interruptible(stopped, sink, |sink| match law {
        Some(law) => plan.rehearse_adaptive(&law, duration, seed, sink).map(drop).map_err(Failure::trouble),
        None => {
            let options = SimOptions { duration, seed, node: None };
            simulate(&plan.system, &options, sink).map(drop).map_err(Failure::trouble)
        }
    })
}

/// Outcomes of a plan's jobs in virtual time, and the lost critical jobs.
pub(super) fn outcome_of(
    plan: &Plan,
    variant: Variant,
    duration: Span,
    seed: u64,
    stopped: &dyn Fn() -> bool,
) -> Result<(Outcome, Lost), Failure> {
    let mut counter = Counter::new(&plan.system);
    simulate_plan(plan, variant, duration, seed, stopped, &mut counter)?;
    Ok((counter.outcome(), counter.lost.pop().unwrap_or_default()))
}

/// One seed for all strategies: the draws of a job depend on the seed, its operation and its
/// number. The sum wraps around.
pub(super) fn seed_of(seed: u64, region: usize) -> u64 {
    seed.wrapping_add(region as u64)
}

/// The mean CPU load of a region's operations, in millionths.
pub(super) fn load_ppm(region: usize) -> u64 {
    let (least, most, legs) = REGIONS[region];
    let fixed: u64 = fixed().map(|(hz, us, _)| hz * us).sum();
    let variable: u64 = VARIABLE.iter().map(|(hz, _)| hz * (least + most) * 1000 / 2).sum();
    fixed + variable + u64::from(legs) * (LEG.as_ns() / 1000) * (1_000_000_000 / FRAME.as_ns())
}

pub(super) fn is_feasible(region: usize) -> bool {
    load_ppm(region) <= 1_000_000
}

/// Whether a region of this length leaves more work undone than a second, whatever the strategy.
/// The longest deadline is a second.
pub(super) fn is_overloaded(region: usize, duration: Span) -> bool {
    let excess = u128::from(load_ppm(region).saturating_sub(1_000_000)) * u128::from(duration.as_ns());
    excess > 1_000_000 * u128::from(Span::from_s(1).as_ns())
}

#[cfg(test)]
mod tests {
    use takt_model::draw::Draw;
    use takt_model::{Criticality, Exec, TaskId};

    use super::super::REGION_MAX;
    use super::*;

    /// Table 2 of the paper: execution times in ms, and legs.
    const TABLE_2: [(u64, u64, usize); 12] = [
        (0, 0, 1),
        (0, 5, 1),
        (5, 10, 2),
        (0, 10, 3),
        (0, 0, 4),
        (0, 5, 5),
        (5, 10, 6),
        (0, 10, 7),
        (0, 0, 8),
        (0, 5, 9),
        (5, 10, 10),
        (0, 10, 11),
    ];

    #[test]
    fn plans_are_those_of_table_2() {
        for (region, (least, most, legs)) in TABLE_2.into_iter().enumerate() {
            for variant in variants() {
                let tasks = plan(region, variant).unwrap().system.tasks;
                let named = |begin: &str| tasks.iter().filter(|task| task.name.starts_with(begin)).collect::<Vec<_>>();
                let chain = named("leg-");
                assert_eq!(chain.len(), legs);
                assert!(chain.iter().all(|leg| leg.period == FRAME && leg.criticality == Criticality::Low));
                assert!(chain.iter().skip(1).all(|leg| leg.after.len() == 1));
                for (processing, proxy, _) in PROCESSING {
                    let task = |name: &str| tasks.iter().find(|task| task.name == name).unwrap();
                    let (after, before) = (task(processing), task(proxy));
                    assert_eq!((after.period, after.criticality), (before.period, Criticality::High));
                    assert_eq!(
                        (after.deadline, before.deadline.as_ns() * 10),
                        (after.period, before.period.as_ns() * 7)
                    );
                    assert_eq!(after.after, [TaskId(tasks.iter().position(|task| task.name == proxy).unwrap() as u32)]);
                }
                let extra = named("surrogate-");
                assert_eq!(
                    extra.iter().map(|task| task.period).collect::<Vec<_>>(),
                    match most {
                        0 => vec![],
                        _ => [100, 200, 1000].map(Span::from_ms).to_vec(),
                    }
                );
                let exec = Exec::Uniform { min: Span::from_ms(least).max(Span::from_ns(1)), max: Span::from_ms(most) };
                assert!(extra.iter().all(|task| task.exec == exec && task.criticality == Criticality::High));
                assert_eq!(tasks.len(), FIXED.len() + PROCESSING.len() + legs + extra.len());
            }
        }
    }

    #[test]
    fn frames_are_harmonic_and_releases_staggered() {
        let system = plan(11, variants()[0]).unwrap().system;
        let sources: Vec<_> = system.tasks.iter().filter(|task| task.after.is_empty()).collect();
        let mut periods: Vec<u64> = sources.iter().map(|task| task.period.as_ns()).collect();
        periods.sort_unstable();
        assert!(periods.windows(2).all(|two| two[1] % two[0] == 0), "{periods:?}");
        assert_eq!([periods[0], periods[periods.len() - 1]], [25_000_000, 1_000_000_000]);
        // Only the operations at the start of a frame release at the same instant.
        let mut offsets: Vec<_> = sources.iter().map(|task| task.offset).filter(|offset| !offset.is_zero()).collect();
        let all = offsets.len();
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), all);
        let begin: Vec<_> = sources.iter().filter(|task| task.offset.is_zero()).map(|task| &task.name).collect();
        assert_eq!(begin, [FLUSH, "air-data"]);
    }

    #[test]
    fn all_variants_have_the_same_arrivals_deadlines_and_draws() {
        for region in 0..REGIONS.len() {
            let plans: Vec<Plan> = variants().into_iter().map(|variant| plan(region, variant).unwrap()).collect();
            for (one, other) in plans.iter().flat_map(|plan| plans[0].system.tasks.iter().zip(&plan.system.tasks)) {
                let of =
                    |task: &takt_model::Task| (task.name.clone(), task.offset, task.period, task.deadline, task.wcet);
                assert_eq!(of(one), of(other));
                let drawn = |task| (0..20).map(|number| Draw::new(5, &one.name).exec(task, number)).collect::<Vec<_>>();
                assert_eq!(drawn(one), drawn(other));
            }
        }
    }

    #[test]
    fn loads_are_those_of_the_plans() {
        for region in 0..REGIONS.len() {
            let system = plan(region, variants()[0]).unwrap().system;
            let used = |task: &takt_model::Task| {
                let twice = match &task.exec {
                    // A minimum of zero is written as a nanosecond.
                    Exec::Uniform { min, max } => min.as_ns() / 1000 * 1000 + max.as_ns(),
                    _ => 2 * task.wcet.as_ns(),
                };
                twice * 500_000 / task.period.as_ns()
            };
            assert_eq!(system.tasks.iter().map(used).sum::<u64>(), load_ppm(region), "{region}");
        }
        assert!(is_feasible(6) && !is_feasible(7));
        assert!(
            is_overloaded(7, Span::from_s(150)) && !is_overloaded(7, Span::from_s(10)) && !is_overloaded(6, Span::MAX)
        );
    }

    #[test]
    fn any_seed_can_be_drawn_from_and_regions_differ() {
        assert_eq!([seed_of(u64::MAX, 0), seed_of(u64::MAX, 1), seed_of(7, 11)], [u64::MAX, 0, 18]);
    }

    #[test]
    fn critical_jobs_are_never_cancelled_and_all_legs_of_the_longest_region_have_room() {
        assert!(REGION_MAX.as_ns() / FRAME.as_ns() <= u64::from(BACKLOG));
        for variant in variants() {
            let (outcome, lost) =
                outcome_of(&plan(11, variant).unwrap(), variant, Span::from_s(3), 3, &|| false).unwrap();
            let critical = outcome.critical;
            assert_eq!((critical.cancelled, critical.rejected, critical.missed), (0, 0, lost.len() as u64));
            assert_eq!(outcome.noncritical.rejected, 0);
        }
    }

    #[test]
    fn the_controller_has_a_bound_for_each_critical_operation() {
        for cancel in [false, true] {
            for region in 0..REGIONS.len() {
                bounded_controller(&plan(region, Variant { strategy: None, cancel }).unwrap()).unwrap();
            }
        }
    }
}
