//! Synthetic partitions in the manner of ARINC 653. The task tables behind [CSA IV-C] are not
//! public.
//!
//! The published properties are these:
//!
//! - harmonic workloads on one CPU; the period of each partition is given, its tasks are periodic,
//!   and budgets are computed;
//! - the tasks take 0.003 to 0.537 of the CPU (Table I: 0.378, 0.511, 0.481, 0.389, 0.537, 0.426,
//!   0.003), and the servers 0.017 to 0.082 more;
//! - one workload has six partitions (Table II).
//!
//! This module chooses the rest, such as the spread of utilisation and the number of tasks in a
//! partition.

use super::draws::{Draws, Use};
use super::sets::{Drawn, keep_within};
use super::{GenerateError, Generator, Method, Periods, Spec};
use crate::Builtin;
use crate::system::{Auto, Component, ComponentId, NodeId, ServerRule, StrategyRef, System, Task};
use crate::time::Span;

/// The shape of a partitioned system.
#[derive(Clone, PartialEq, Debug)]
pub struct Partitions {
    /// The number of partitions, 1 to 100.
    pub partitions: usize,
    /// Utilisation of all tasks together.
    pub utilization: f64,
    /// Budgets are multiples of this.
    pub quantum: Span,
}

impl Default for Partitions {
    /// Six partitions, U = 0.45, budgets in units of 100 us.
    fn default() -> Self {
        Partitions { partitions: 6, utilization: 0.45, quantum: Span::from_us(100) }
    }
}

/// Partitions of one system, at most.
const PARTITIONS_MAX: usize = 100;
/// The tasks of a partition, the least and the most.
const TASKS: (u64, u64) = (2, 5);
/// Periods of partitions; all are harmonic with the shortest. A task's period is one to eight times its partition's.
const PERIODS: Periods = Periods::Harmonic { min: Span::from_ms(25), max: Span::from_ms(200) };
/// Separates the draws within a partition from those of the whole system.
const WITHIN: u64 = 1 << 40;

/// System `number` under `seed`. Partitions share the utilisation uniformly, and so do the tasks
/// within each. Both levels are rate monotonic, servers are purely time-driven, and budgets are
/// `"auto"` for `takt size`.
///
/// # Errors
/// A parameter is out of its range.
pub fn system(shape: &Partitions, seed: u64, number: u64) -> Result<System, GenerateError> {
    let Partitions { partitions, utilization, quantum } = *shape;
    if partitions == 0 || partitions > PARTITIONS_MAX {
        return Err(GenerateError::Tasks { tasks: partitions });
    }
    if !(utilization > 0.0 && utilization <= 1.0) {
        return Err(GenerateError::Utilization { utilization, least: 0.0, most: 1.0 });
    }
    let draws = Draws::of_set(seed, number);
    let whole = Generator::new(&Spec {
        method: Method::RandFixedSum,
        periods: PERIODS,
        grain: Span::from_us(1),
        ..Spec::new(partitions, utilization)
    })?;
    let (mut components, mut tasks, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    let mut shares = Vec::new();
    whole.utilizations(seed, number, &mut shares)?;
    for (i, (partition, share)) in whole.tasks(seed, number)?.into_iter().zip(shares).enumerate() {
        let name = format!("partition-{}", i + 1);
        let count = draws.between(i as u32, Use::Count, 0, TASKS.0, TASKS.1) as usize;
        // A factor of 1, 2, 4 or 8 on the partition's period: all harmonic.
        let inner = Generator::new(&Spec { grain: Span::from_us(1), ..Spec::new(count, share.max(1e-9)) })?;
        let mut values = Vec::new();
        inner.utilizations(seed, number.wrapping_mul(WITHIN).wrapping_add(1 + i as u64), &mut values)?;
        for (k, u) in values.iter().enumerate() {
            let factor = 1 << draws.between((i * PARTITIONS_MAX + k) as u32, Use::Factor, 0, 0, 3);
            let period = Span::from_ns(partition.period.as_ns().saturating_mul(factor));
            let t = period.as_ns() / 1000;
            drawn.push(Drawn { c: ((u * t as f64) as u64).max(1), d: t, t });
            let task = Task::periodic(&format!("{name}-task-{}", k + 1), period, period);
            tasks.push(Task { component: Some(ComponentId(i as u32)), ..task });
        }
        components.push(Component {
            strategy: StrategyRef::Builtin(Builtin::Rm),
            period: Auto::Value(partition.period),
            quantum: Some(quantum),
            ..Component::new(&name, NodeId(0), ServerRule::Ptps)
        });
    }
    if !keep_within(&mut drawn, utilization) {
        return Err(GenerateError::Grain { number, utilization, grain: Span::from_us(1) });
    }
    for (task, Drawn { c, .. }) in tasks.iter_mut().zip(drawn) {
        task.wcet = Span::from_us(c);
    }
    let mut system = System::local(1, Builtin::Rm, tasks);
    system.name = "synthetic-partitions".to_owned();
    system.components = components;
    Ok(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_harmonic_and_valid() {
        for seed in 0..50 {
            let system = system(&Partitions::default(), seed, 7).expect("a system");
            assert!(crate::file::validate(&system).is_ok(), "{system:?}");
            assert_eq!(crate::file::parse(&crate::file::write(&system), "p.toml").as_ref(), Ok(&system));
            let periods: Vec<u64> = system.tasks.iter().map(|task| task.period.as_ns()).collect();
            assert!(system.components.len() == 6 && (12..=30).contains(&periods.len()));
            for task in &system.tasks {
                let component = &system.components[task.component.expect("a partition").index()];
                let Auto::Value(period) = component.period else { panic!("{component:?}") };
                let factor = task.period.as_ns() / period.as_ns();
                assert!([1, 2, 4, 8].contains(&factor) && task.period.as_ns() % period.as_ns() == 0);
            }
            let load: f64 = system.tasks.iter().map(|t| t.wcet.as_ns() as f64 / t.period.as_ns() as f64).sum();
            assert!((0.448..=0.45).contains(&load), "{load}");
        }
        let wrong = Partitions { partitions: 0, ..Partitions::default() };
        assert_eq!(system(&wrong, 0, 0), Err(GenerateError::Tasks { tasks: 0 }));
    }
}
