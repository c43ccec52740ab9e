//! Engine control as published: S. Kramer, D. Ziegenbein, A. Hamann: Real World Automotive
//! Benchmarks for Free, WATERS 2015.
//!
//! The tables give the shares of the runnables by period (Table III), their average execution times
//! (Table IV), and the factors from averages to best and worst cases (Table V). A runnable's
//! average is drawn so that the published least, mean and largest value hold. It is uniform below
//! the mean with the probability (max - mean) / (max - min), and uniform above it otherwise. The
//! factors are uniform. (The paper gives no distribution within these ranges; others fit one.)
//!
//! The angle-synchronous runnables follow the engine's speed, which the paper leaves open. The
//! crankshaft turns twice for one turn of the camshaft, so a cylinder fires every 120 s / (rpm *
//! cylinders).

use super::draws::{Draws, Use};
use super::error::GenerateError;
use super::math::{pick, share_down, share_up};
use crate::system::{Arrival, Exec, System, Task};
use crate::time::Span;
use crate::units::Probability;
use crate::{Builtin, Placement};

/// One row of the tables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Class {
    /// The period; zero for angle-synchronous runnables.
    pub period: Span,
    /// The share of the runnables, in percent.
    pub share: u64,
    /// The average execution times of runnables, in ns: the least, the mean, the largest.
    pub average_ns: [u64; 3],
    /// The least and the largest factor from an average execution time to the best case.
    pub best: [f64; 2],
    /// The least and the largest factor to the worst case.
    pub worst: [f64; 2],
}

const fn class(ms: u64, share: u64, average_ns: [u64; 3], best: [f64; 2], worst: [f64; 2]) -> Class {
    Class { period: Span::from_ms(ms), share, average_ns, best, worst }
}

/// The tables: nine periods, then the angle-synchronous runnables. Shares sum to 100.
pub const PERIODS: [Class; 10] = [
    class(1, 3, [340, 5_000, 30_110], [0.19, 0.92], [1.30, 29.11]),
    class(2, 2, [320, 4_200, 40_690], [0.12, 0.89], [1.54, 19.04]),
    class(5, 2, [360, 11_040, 83_380], [0.17, 0.94], [1.13, 18.44]),
    class(10, 25, [210, 10_090, 309_870], [0.05, 0.99], [1.06, 30.03]),
    class(20, 25, [250, 8_740, 291_420], [0.11, 0.98], [1.06, 15.61]),
    class(50, 3, [290, 17_560, 92_980], [0.32, 0.95], [1.13, 7.76]),
    class(100, 20, [210, 10_530, 420_430], [0.09, 0.99], [1.02, 8.88]),
    class(200, 1, [220, 2_560, 21_950], [0.45, 0.98], [1.03, 4.90]),
    class(1000, 4, [370, 430, 460], [0.68, 0.80], [1.84, 4.75]),
    class(0, 15, [450, 6_520, 88_580], [0.13, 0.92], [1.20, 28.17]),
];

/// The shape of an engine control system.
#[derive(Clone, PartialEq, Debug)]
pub struct Automotive {
    /// Its CPUs; tasks are partitioned.
    pub cpus: u32,
    /// The sum of WCET / period never exceeds this.
    pub utilization: f64,
    /// The largest speed of the engine, in turns per minute.
    pub rpm: u32,
}

impl Default for Automotive {
    /// One CPU, U = 0.6, 6000 turns a minute: the angle-synchronous task comes at most every 5 ms.
    fn default() -> Self {
        Automotive { cpus: 1, utilization: 0.6, rpm: 6000 }
    }
}

/// A runnable, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Runnable {
    class: usize,
    best: u64,
    average: u64,
    worst: u64,
}

impl Runnable {
    fn draw(draws: &Draws, number: u32) -> Runnable {
        let shares: Vec<(u64, u64)> = PERIODS.iter().enumerate().map(|(i, class)| (i as u64, class.share)).collect();
        let class = pick(&shares, draws.bits(number, Use::Period, 0)) as usize;
        let row = &PERIODS[class];
        let [least, mean, most] = row.average_ns.map(|ns| ns as f64);
        let below = draws.unit(number, Use::Execution, 0) < (most - mean) / (most - least);
        let (from, to) = if below { (least, mean) } else { (mean, most) };
        let average = from + draws.unit(number, Use::Execution, 1) * (to - from);
        let factor = |which: u32, [from, to]: [f64; 2]| from + draws.unit(number, Use::Factor, which) * (to - from);
        let ns = |value: f64| (value + 0.5) as u64;
        Runnable {
            class,
            best: ns(average * factor(0, row.best)).max(1),
            average: ns(average).max(1),
            worst: ns(average * factor(1, row.worst)).max(1),
        }
    }
}

/// The cylinders of an engine.
const CYLINDERS: u64 = 4;
/// The most runnables of one system.
const RUNNABLES_MAX: u32 = 100_000;
/// The most runnables that are skipped because they would exceed the utilisation.
const PASSED_OVER_MAX: u32 = 20;

/// System `number` under `seed`. Runnables are drawn one after the other. Those that would exceed
/// the utilisation are skipped, twenty at most. The runnables of one period make one task for each
/// CPU, dealt out in turn. The system is rate monotonic and partitioned.
///
/// A task's WCET is the sum of its runnables' worst cases. A job executes for the sum of the best
/// cases or for the WCET. The probabilities make the mean the sum of the averages.
///
/// # Errors
/// A parameter is out of its range.
pub fn system(shape: &Automotive, seed: u64, number: u64) -> Result<System, GenerateError> {
    let Automotive { cpus, utilization, rpm } = *shape;
    if cpus == 0 || cpus > crate::CpuSet::CPUS_MAX {
        return Err(GenerateError::Cpus { cpus });
    }
    if !(utilization > 0.0 && utilization <= f64::from(cpus)) {
        return Err(GenerateError::Utilization { utilization, least: 0.0, most: f64::from(cpus) });
    }
    let angle = 120_000_000_000u64 / (u64::from(rpm).max(1) * CYLINDERS);
    let period =
        |class: usize| if PERIODS[class].period.is_zero() { angle.max(1) } else { PERIODS[class].period.as_ns() };
    let draws = Draws::of_set(seed, number);
    // Per class and CPU: runnables, best, average, worst.
    let mut sums = vec![[0u64; 4]; PERIODS.len() * cpus as usize];
    let mut dealt = [0usize; PERIODS.len()];
    let (mut load, mut passed_over) = (0, 0);
    for number in 0..RUNNABLES_MAX {
        let runnable = Runnable::draw(&draws, number);
        let more = load + share_up(runnable.worst, period(runnable.class));
        if more > share_down(utilization) {
            passed_over += 1;
            if passed_over == PASSED_OVER_MAX {
                break;
            }
            continue;
        }
        load = more;
        let sum = &mut sums[runnable.class * cpus as usize + dealt[runnable.class] % cpus as usize];
        dealt[runnable.class] += 1;
        for (all, one) in sum.iter_mut().zip([1, runnable.best, runnable.average, runnable.worst]) {
            *all += one;
        }
    }
    let mut tasks = Vec::new();
    for (place, [runnables, best, average, worst]) in sums.into_iter().enumerate() {
        let (class, cpu) = (place / cpus as usize, place % cpus as usize);
        if runnables == 0 {
            continue;
        }
        let angular = PERIODS[class].period.is_zero();
        let name = if angular { "angle".to_owned() } else { PERIODS[class].period.to_string() };
        let name = if cpus == 1 { name } else { format!("{name}-{cpu}") };
        let mut task = Task::periodic(&name, Span::from_ns(period(class)), Span::from_ns(worst));
        task.exec = two_points(best, average, worst);
        if angular {
            task.arrival = Arrival::Sporadic;
        }
        tasks.push(task);
    }
    let mut system = System::local(cpus, Builtin::Rm, tasks);
    system.name = "automotive".to_owned();
    if cpus > 1 {
        system.nodes[0].placement = Placement::Partitioned;
    }
    if system.tasks.is_empty() {
        return Err(GenerateError::NoTask { utilization });
    }
    Ok(system)
}

/// The best or the worst case, such that the mean is the average.
fn two_points(best: u64, average: u64, worst: u64) -> Exec {
    let billion = u64::from(Probability::ONE.billionths());
    let share =
        (u128::from(average.saturating_sub(best)) * u128::from(billion) / u128::from((worst - best).max(1))) as u32;
    let (often, seldom) = (Probability::from_billionths(billion as u32 - share), Probability::from_billionths(share));
    match (often, seldom) {
        (Some(often), Some(seldom)) if worst > best && often.billionths() > 0 && seldom.billionths() > 0 => {
            Exec::Pmf(vec![(Span::from_ns(best), often), (Span::from_ns(worst), seldom)])
        }
        _ => Exec::Wcet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_averages_are_the_published_ones() {
        let draws = Draws::of_set(1, 0);
        let runnables: Vec<Runnable> = (0..100_000).map(|number| Runnable::draw(&draws, number)).collect();
        assert_eq!(PERIODS.iter().map(|class| class.share).sum::<u64>(), 100);
        for (class, row) in PERIODS.iter().enumerate() {
            let own: Vec<&Runnable> = runnables.iter().filter(|runnable| runnable.class == class).collect();
            let share = own.len() as f64 / 1_000.0;
            assert!((share - row.share as f64).abs() < 0.45, "{row:?}: {share} %");
            let mean = own.iter().map(|runnable| runnable.average as f64).sum::<f64>() / own.len() as f64;
            assert!((mean / row.average_ns[1] as f64 - 1.0).abs() < 0.08, "{row:?}: {mean} ns");
            for runnable in own {
                let [least, _, most] = row.average_ns;
                assert!((least..=most).contains(&runnable.average), "{runnable:?}");
                assert!(runnable.best <= runnable.average && runnable.average <= runnable.worst, "{runnable:?}");
                let factor = runnable.worst as f64 / runnable.average as f64;
                assert!(factor > row.worst[0] - 0.01 && factor < row.worst[1] + 0.01, "{runnable:?}");
            }
        }
    }

    #[test]
    fn a_system_keeps_to_its_utilisation_and_its_mean() {
        for (seed, cpus) in [(1, 1), (2, 4), (3, 2)] {
            let shape = Automotive { cpus, utilization: 0.7 * f64::from(cpus), ..Automotive::default() };
            let system = system(&shape, seed, 0).expect("a system");
            let load: f64 = system.tasks.iter().map(|t| t.wcet.as_ns() as f64 / t.period.as_ns() as f64).sum();
            assert!(load <= shape.utilization && load > 0.8 * shape.utilization, "{load}");
            assert!(crate::file::validate(&system).is_ok());
            assert_eq!(crate::file::parse(&crate::file::write(&system), "a.toml").as_ref(), Ok(&system));
            for task in &system.tasks {
                let Exec::Pmf(values) = &task.exec else { panic!("{task:?}") };
                let mean: f64 =
                    values.iter().map(|(value, p)| value.as_ns() as f64 * f64::from(p.billionths()) / 1e9).sum();
                assert!(mean < task.wcet.as_ns() as f64 && mean > 0.0);
            }
        }
        let refused = system(&Automotive { utilization: 1.5, ..Automotive::default() }, 0, 0);
        assert_eq!(refused, Err(GenerateError::Utilization { utilization: 1.5, least: 0.0, most: 1.0 }));
    }
}
