//! Which of Zenoh's priorities a level of a plan gets.
//!
//! | | first level of its kind | second | third | further ones |
//! |---|---|---|---|---|
//! | critical | `RealTime` | `InteractiveHigh` | `InteractiveLow` | `InteractiveLow` |
//! | noncritical | `DataHigh` | `Data` | `DataLow` | `Background` |
//!
//! Criticality goes first, then the order of levels among those of the same criticality. A level is
//! critical if an operation on it is. In Zenoh a priority is a place in the queues of a link, and
//! no more than that: it says nothing of CPUs, and between two links nothing of networks.

use takt_dispatch::Plan;
use takt_model::Criticality;
use zenoh::qos::Priority;

/// The priority of the level with this rank, from zero, among the critical or the noncritical ones.
///
/// ```
/// use takt_zenoh::{Priority, priority};
/// assert_eq!(priority(true, 0), Priority::RealTime);
/// assert_eq!(priority(false, 9), Priority::Background);
/// ```
#[must_use]
pub const fn priority(critical: bool, rank: usize) -> Priority {
    match (critical, rank) {
        (true, 0) => Priority::RealTime,
        (true, 1) => Priority::InteractiveHigh,
        (true, _) => Priority::InteractiveLow,
        (false, 0) => Priority::DataHigh,
        (false, 1) => Priority::Data,
        (false, 2) => Priority::DataLow,
        (false, _) => Priority::Background,
    }
}

/// The priorities of all levels of a plan, the most important first.
#[must_use]
pub fn priorities(plan: &Plan) -> Vec<Priority> {
    let is_critical = |level: usize| {
        let tasks = plan.rows.iter().filter(|row| row.level as usize == level);
        let mut tasks = tasks.filter_map(|row| plan.system.tasks.get(row.task.index()));
        tasks.any(|task| task.criticality == Criticality::High)
    };
    let mut ranks = [0, 0];
    let ranked = |level| {
        let critical = is_critical(level);
        let [critical_rank, other_rank] = &mut ranks;
        let rank = if critical { critical_rank } else { other_rank };
        *rank += 1;
        priority(critical, *rank - 1)
    };
    (0..plan.levels.len()).map(ranked).collect()
}

#[cfg(test)]
mod tests {
    use takt_dispatch::{Limits, Operation, Operations};
    use takt_model::{Builtin, Span};

    use super::*;

    #[test]
    fn every_rank_has_its_priority_and_none_is_more_important_than_one_before_it() {
        let of = |critical, ranks: usize| (0..ranks).map(|rank| priority(critical, rank)).collect::<Vec<_>>();
        use Priority::{Background, Data, DataHigh, DataLow, InteractiveHigh, InteractiveLow, RealTime};
        assert_eq!(of(true, 5), [RealTime, InteractiveHigh, InteractiveLow, InteractiveLow, InteractiveLow]);
        assert_eq!(of(false, 6), [DataHigh, Data, DataLow, Background, Background, Background]);
        for critical in [true, false] {
            let all = of(critical, 99);
            assert!(all.windows(2).all(|pair| pair[0] as u8 <= pair[1] as u8));
            assert!(all.iter().all(|one| (*one as u8) < 4 || !critical));
        }
        // Zenoh's own numbers: 1 is the most important.
        assert_eq!(
            [RealTime, InteractiveHigh, InteractiveLow, DataHigh, Data, DataLow, Background].map(|one| one as u8),
            [1, 2, 3, 4, 5, 6, 7]
        );
    }

    #[test]
    fn levels_of_a_plan_have_them_by_criticality() {
        let sporadic = |name, ms| Operation::sporadic(name, Span::from_ms(ms)).wcet(Span::from_us(1));
        let operations = Operations::new("robot").with(sporadic("steer", 5)).with(sporadic("map", 50).noncritical());
        let of = |strategy: Builtin| {
            let plan = operations.compute(&strategy.strategy(), &Limits::default()).unwrap();
            (plan.levels.len(), priorities(&plan))
        };
        assert_eq!(of(Builtin::Muf), (2, vec![Priority::RealTime, Priority::DataHigh]));
        assert_eq!(of(Builtin::Edf), (1, vec![Priority::RealTime]), "one level for both: it is critical");
    }
}
