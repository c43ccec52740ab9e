//! The generators against exact distributions and against rejection sampling, with fixed seeds.

use super::error::*;
use super::sets::*;
use super::*;
use crate::System;
use crate::time::Span;

#[test]
fn the_first_value_of_seed_0_is_the_published_one() {
    assert_eq!(Random::new(0).bits(), 0xE220_A839_7B1D_CDAF);
}

/// The Kolmogorov-Smirnov distance times sqrt(N). A right sample exceeds it in one of a thousand
/// cases.
const KS_MAX: f64 = 1.95;

/// sqrt(N) times the largest distance of a sample's distribution to `cdf`.
fn ks(sample: &mut [f64], cdf: impl Fn(f64) -> f64) -> f64 {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let distance = sample.iter().enumerate().map(|(i, x)| {
        let p = cdf(*x);
        (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
    });
    distance.fold(0.0, f64::max) * n.sqrt()
}

/// The same for two samples.
fn ks_two(a: &mut [f64], b: &mut [f64]) -> f64 {
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let (n, m) = (a.len() as f64, b.len() as f64);
    let below = |x: f64| b.partition_point(|y| *y <= x) as f64 / m;
    let distance = a.iter().enumerate().map(|(i, x)| ((i + 1) as f64 / n - below(*x)).abs());
    distance.fold(0.0, f64::max) * (n * m / (n + m)).sqrt()
}

/// The volume of { 0 <= x_i <= w_i, sum x_i = s }, up to a factor that depends on n alone, by
/// inclusion and exclusion.
fn volume(widths: &[f64], s: f64) -> f64 {
    let n = widths.len();
    (0..1u32 << n)
        .map(|subset| {
            let chosen = (0..n).filter(|i| subset >> i & 1 == 1);
            let rest = (s - chosen.map(|i| widths[i]).sum::<f64>()).max(0.0);
            let sign = if subset.count_ones() % 2 == 0 { 1.0 } else { -1.0 };
            sign * rest.powi(n as i32 - 1)
        })
        .sum()
}

/// P(x_k <= x) if x is uniform over that set.
fn marginal(widths: &[f64], s: f64, k: usize, x: f64) -> f64 {
    let mut below = widths.to_vec();
    below[k] = x.clamp(0.0, widths[k]);
    volume(&below, s) / volume(widths, s)
}

fn spec(method: Method, utilization: f64, limits: &[(f64, f64)], tasks: usize) -> Spec {
    Spec { method, limits: limits.to_vec(), ..Spec::new(tasks, utilization) }
}

fn vectors(spec: &Spec, seed: u64, count: u64) -> Vec<Vec<f64>> {
    let generator = Generator::new(spec).expect("a spec");
    let one = |number| {
        let mut values = Vec::new();
        generator.utilizations(seed, number, &mut values).expect("a vector");
        assert!((values.iter().sum::<f64>() - spec.utilization).abs() < 1e-9, "{values:?}");
        values
    };
    (0..count).map(one).collect()
}

#[test]
fn every_method_has_the_exact_marginals() {
    let differing = [(0.0, 1.0), (0.1, 0.4), (0.0, 0.05), (0.2, 0.9), (0.0, 0.3)];
    let same = [(0.0, 1.0)];
    let narrow = [(0.05, 0.5)];
    type Case<'a> = (Method, f64, &'a [(f64, f64)]);
    let cases: [Case<'_>; 12] = [
        (Method::UUniFastDiscard, 0.8, &same),
        (Method::UUniFastDiscard, 1.4, &same),
        (Method::UUniFastDiscard, 1.2, &differing),
        (Method::RandFixedSum, 0.8, &same),
        (Method::RandFixedSum, 2.6, &same),
        (Method::RandFixedSum, 4.3, &same),
        (Method::RandFixedSum, 1.3, &narrow),
        (Method::ConvolutionalFixedSum, 0.7, &same),
        (Method::ConvolutionalFixedSum, 2.6, &same),
        (Method::ConvolutionalFixedSum, 0.9, &differing),
        (Method::ConvolutionalFixedSum, 2.3, &differing),
        (Method::ConvolutionalFixedSum, 1.3, &narrow),
    ];
    for (method, sum, limits) in cases {
        let limits: Vec<(f64, f64)> = limits.iter().copied().cycle().take(5).collect();
        let widths: Vec<f64> = limits.iter().map(|(least, most)| most - least).collect();
        let free = sum - limits.iter().map(|(least, _)| least).sum::<f64>();
        let vectors = vectors(&spec(method, sum, &limits, 5), 11, 20_000);
        for (k, (least, most)) in limits.iter().enumerate() {
            assert!(vectors.iter().all(|values| (*least..=*most).contains(&values[k])));
            let mut own: Vec<f64> = vectors.iter().map(|values| values[k]).collect();
            let distance = ks(&mut own, |x| marginal(&widths, free, k, x - least));
            assert!(distance < KS_MAX, "{} {sum} {limits:?}: value {k} is off by {distance}", method.name());
        }
    }
}

/// Properties beyond marginals: the largest value, and a sum of two. They are compared with vectors
/// that rejection found.
#[test]
fn methods_agree_with_rejection_in_what_marginals_do_not_tell() {
    let differing: [(f64, f64); 5] = [(0.0, 1.0), (0.0, 0.6), (0.0, 0.35), (0.1, 0.5), (0.0, 0.2)];
    let rejected = |sum: f64, limits: &[(f64, f64)], count: usize| -> Vec<Vec<f64>> {
        // All but the last value are uniform within their limits. The last takes the rest, and
        // counts as uniform if it fits.
        let mut random = Random::new(5);
        let mut found = Vec::new();
        while found.len() < count {
            let mut values: Vec<f64> =
                limits[..limits.len() - 1].iter().map(|(a, b)| a + random.unit() * (b - a)).collect();
            let last = sum - values.iter().sum::<f64>();
            if (limits[limits.len() - 1].0..=limits[limits.len() - 1].1).contains(&last) {
                values.push(last);
                found.push(values);
            }
        }
        found
    };
    let features: [fn(&[f64]) -> f64; 4] = [
        |values| values.iter().copied().fold(0.0, f64::max),
        |values| values[0] + values[3],
        |values| (values[1] - values[2]).abs(),
        |values| values.iter().map(|value| value * value).sum(),
    ];
    for (sum, limits) in [(1.3, vec![(0.0, 1.0); 5]), (1.2, differing.to_vec()), (1.9, differing.to_vec())] {
        let judge = rejected(sum, &limits, 20_000);
        for method in Method::ALL {
            if method == Method::RandFixedSum && limits != vec![(0.0, 1.0); 5] {
                continue;
            }
            let own = vectors(&spec(method, sum, &limits, 5), 12, 20_000);
            for (f, feature) in features.iter().enumerate() {
                let of = |vectors: &[Vec<f64>]| vectors.iter().map(|values| feature(values)).collect::<Vec<f64>>();
                let distance = ks_two(&mut of(&own), &mut of(&judge));
                assert!(distance < KS_MAX, "{} {sum} {limits:?}: feature {f} is off by {distance}", method.name());
            }
        }
    }
}

/// Sets that are not uniform fail the test: uniform draws scaled to the sum, and values clamped to
/// their limits.
#[test]
fn the_tests_refuse_what_is_not_uniform() {
    let mut random = Random::new(3);
    let mut scaled: Vec<f64> = (0..20_000)
        .map(|_| {
            let values: Vec<f64> = (0..5).map(|_| random.unit()).collect();
            values[0] / values.iter().sum::<f64>() * 0.8
        })
        .collect();
    assert!(ks(&mut scaled, |x| marginal(&[1.0; 5], 0.8, 0, x)) > 5.0 * KS_MAX);
    let free = vectors(&spec(Method::UUniFastDiscard, 1.0, &[(0.0, 1.0)], 5), 1, 20_000);
    let mut clamped: Vec<f64> = free.iter().map(|values| values[0].min(0.4)).collect();
    assert!(ks(&mut clamped, |x| marginal(&[0.4, 1.0, 1.0, 1.0, 1.0], 1.0, 0, x)) > 5.0 * KS_MAX);
}

/// If the sum is near its ends, tasks are many, or limits tiny, means follow from symmetry.
#[test]
fn extreme_sums_and_limits_stay_within_them() {
    for method in [Method::RandFixedSum, Method::ConvolutionalFixedSum] {
        for (tasks, sum) in [(2, 1.999), (2, 0.001), (40, 39.9), (100, 0.5), (100, 50.0), (60, 4.0)] {
            let vectors = vectors(&spec(method, sum, &[(0.0, 1.0)], tasks), 7, 400);
            let mean = vectors.iter().map(|values| values[0]).sum::<f64>() / 400.0;
            let exact = sum / tasks as f64;
            let wide = (exact * (1.0 - exact)).sqrt() / 20.0 * 4.0;
            assert!((mean - exact).abs() < wide, "{} {tasks} {sum}: {mean} for {exact}", method.name());
        }
    }
    let limits: Vec<(f64, f64)> = (0..20).map(|i| (0.0, if i % 2 == 0 { 1e-6 } else { 0.3 })).collect();
    for sum in [1e-7, 0.5, 1.5, 2.9, 3.000_009] {
        let vectors = vectors(&spec(Method::ConvolutionalFixedSum, sum, &limits, 20), 7, 300);
        let tiny = vectors.iter().map(|values| values[0]).sum::<f64>() / 300.0;
        assert!(sum < 0.1 || (tiny - 5e-7).abs() < 1e-7 || sum > 3.0, "{tiny}");
    }
    let fixed = vectors(&spec(Method::ConvolutionalFixedSum, 0.5, &[(0.1, 0.1), (0.4, 0.4)], 2), 1, 3);
    assert!(fixed.iter().all(|values| values == &[0.1, 0.4]), "{fixed:?}");
}

#[test]
fn times_are_rounded_as_stated_and_the_error_is_small() {
    let grain = Span::from_us(10);
    let spec = Spec { grain, deadlines: (0.2, 1.5), ..Spec::new(8, 2.0) };
    let generator = Generator::new(&spec).expect("a spec");
    let (mut buffer, mut values, mut above) = (Buffer::default(), Vec::new(), 0);
    for number in 0..500 {
        generator.set(9, number, &mut buffer).expect("a set");
        generator.utilizations(9, number, &mut values).expect("a vector");
        for (task, u) in buffer.tasks.iter().zip(&values) {
            assert!([task.c, task.d, task.t].iter().all(|time| time % 10_000 == 0 && *time > 0));
            assert!(task.c <= task.d.min(task.t) && task.d as f64 <= 1.5 * task.t as f64 + 10_000.0);
            let exact = u * task.t as f64;
            let lost = exact - task.c as f64;
            assert!((-0.1..10_000.1).contains(&lost) || task.c == 10_000, "{task:?} {exact}");
            above += u32::from(task.d > task.t);
        }
        assert!((2.0 - 8.0 * 0.001..=2.0).contains(&utilization(&buffer.tasks)));
    }
    assert!((1_000..2_000).contains(&above), "{above}");
}

/// Whether the sum of c / t exceeds a utilisation, as whole parts and fractions over their common
/// denominator.
fn exceeds(tasks: impl Iterator<Item = (u64, u64)>, halves: u128) -> bool {
    let (mut work, mut common) = (0u128, 1u128);
    for (c, t) in tasks {
        let (c, t) = (u128::from(c), u128::from(t));
        let (mut a, mut b) = (common, t);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        (work, common) = (work * (t / a) + c * (common / a), common / a * t);
    }
    2 * work > halves * common
}

#[test]
fn no_set_exceeds_its_utilization() {
    let us = Span::from_us;
    let kinds = [
        Periods::LogUniform { min: us(1), max: us(50) },
        Periods::Uniform { min: us(1), max: us(30) },
        Periods::Harmonic { min: us(1), max: us(64) },
        Periods::Divisors { hyperperiod: us(5_040), min: us(2), max: us(500) },
        Periods::Automotive,
    ];
    let (mut buffer, mut made, mut refused) = (Buffer::default(), 0, 0);
    for periods in kinds {
        for method in Method::ALL {
            for (tasks, halves) in [(1, 2), (3, 2), (10, 2), (40, 2), (4, 1), (6, 4), (9, 8)] {
                let target = halves as f64 / 2.0;
                let spec = Spec { periods: periods.clone(), method, ..Spec::new(tasks, target) };
                let generator = Generator::new(&spec).expect("a spec");
                for number in 0..20 {
                    match generator.set(3, number, &mut buffer) {
                        Ok(()) => made += 1,
                        Err(GenerateError::Grain { .. }) => {
                            refused += 1;
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    let exact = buffer.tasks.iter().map(|task| (task.c / 1000, task.t / 1000));
                    assert!(!exceeds(exact, halves), "{spec:?}: {:?}", buffer.tasks);
                }
            }
        }
    }
    assert!(made > 1_000 && refused > 50, "{made} {refused}");
    let (automotive, arinc) = (automotive::Automotive::default(), arinc::Partitions::default());
    let times = |system: System| system.tasks.into_iter().map(|task| (task.wcet.as_ns(), task.period.as_ns()));
    for number in 0..50 {
        for (cpus, halves) in [(1, 1), (1, 2), (4, 7)] {
            let shape = automotive::Automotive { cpus, utilization: halves as f64 / 2.0, ..automotive.clone() };
            assert!(!exceeds(times(automotive::system(&shape, 3, number).expect("a system")), halves));
        }
        let shape = arinc::Partitions { utilization: 0.5, ..arinc.clone() };
        assert!(!exceeds(times(arinc::system(&shape, 3, number).expect("a system")), 1));
    }
}

#[test]
fn tasks_of_one_grain_that_exceed_the_utilization_are_refused() {
    let error = Generator::new(&Spec::new(200, 0.0001)).expect("a spec").tasks(1, 7).unwrap_err();
    let text = "set 7: its tasks exceed utilization 0.0001 with a wcet of 1us each, which is the grain; \
                take a finer grain, longer periods or fewer tasks";
    assert_eq!(error.to_string(), text);
}

#[test]
fn another_task_changes_no_period_and_any_set_is_made_alone() {
    let set = |tasks, seed, number| Generator::new(&Spec::new(tasks, 0.5)).unwrap().tasks(seed, number).unwrap();
    let (few, many) = (set(4, 1, 3), set(5, 1, 3));
    assert!(few.iter().zip(&many).all(|(a, b)| a.period == b.period && a.name == b.name));
    assert_eq!(set(4, 1, 3), few);
    assert_ne!(set(4, 1, 4), few);
    assert_ne!(set(4, 2, 3), few);
}

#[test]
fn impossible_generator_parameters_are_refused() {
    let refused = |spec: Spec| Generator::new(&spec).map(|_| ()).unwrap_err().to_string();
    assert_eq!(refused(Spec::new(0, 0.5)), "0 tasks: a set has 1 to 10000");
    assert_eq!(refused(Spec::new(3, 3.5)), "utilization 3.5: it must be above 0 and at most 3 here");
    assert_eq!(refused(Spec::new(3, f64::NAN)), "utilization NaN: it must be above 0 and at most 3 here");
    let limits = vec![(0.1, 0.2), (0.0, 0.5)];
    assert_eq!(
        refused(Spec { limits: limits.clone(), ..Spec::new(2, 0.5) }),
        "randfixedsum takes one limit for all tasks; cfs takes one for each"
    );
    assert_eq!(
        refused(Spec { limits: limits.clone(), method: Method::ConvolutionalFixedSum, ..Spec::new(2, 0.8) }),
        "utilization 0.8: the limits of the tasks leave 0.1 to 0.7"
    );
    assert_eq!(
        refused(Spec { limits, ..Spec::new(3, 0.5) }),
        "2 limits for 3 tasks: give one for all, or one for each"
    );
    assert!(refused(Spec { limits: vec![(0.5, 0.2)], ..Spec::new(3, 0.5) }).contains("the least before the most"));
    assert!(refused(Spec { deadlines: (1.0, 0.5), ..Spec::new(3, 0.5) }).contains("the smaller one first"));
    assert!(refused(Spec { grain: Span::from_s(2), ..Spec::new(3, 0.5) }).contains("no multiple of the grain 2s"));
    let full = spec(Method::UUniFastDiscard, 39.9, &[(0.0, 1.0)], 40);
    let error = Generator::new(&full).unwrap().tasks(1, 7).unwrap_err();
    assert!(error.to_string().starts_with("set 7: uunifast-discard drew 10000 vectors"), "{error}");
}
