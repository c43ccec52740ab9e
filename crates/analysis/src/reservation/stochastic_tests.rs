//! Distributions, bounds and drop probabilities against iteration and against simulation of the reservation rule.

use takt_model::generate::Random;
use takt_model::{Probability, Span, Task};

use super::costs::Charge;
use super::dropping::{DropError, drop_probability};
use super::independence::{Independence, SAMPLES_MIN};
use super::size::{Requirements, ReserveError, arrivals_of, exec_of, reserve};
use super::stochastic::{BLOCK_MAX, Model, StochasticError};
use super::tests::{BudgetTiming, Rule, Server};
use crate::brute::cases;
use crate::pmf::Pmf;

fn pmf(random: &mut Random, low: u64, high: u64) -> Pmf {
    let values = random.between(1, 4);
    Pmf::new((0..values).map(|_| (random.between(low, high), random.between(1, 9)))).expect("weights are above zero")
}

fn draw(pmf: &Pmf, random: &mut Random) -> u64 {
    let mut left = random.between(0, pmf.total() - 1);
    for (value, weight) in pmf.points() {
        let Some(rest) = left.checked_sub(*weight) else { return *value };
        left = rest;
    }
    pmf.max()
}

/// P(v <= y) after many steps from an empty server, by pushing the whole distribution forward.
fn iterated(model: &Model, steps: usize, states: usize) -> Vec<f64> {
    let mut waiting = vec![0.0; states];
    waiting[0] = 1.0;
    let weight = |pmf: &Pmf, weight: u64| weight as f64 / pmf.total() as f64;
    let mut all = vec![0.0; states];
    for _ in 0..steps {
        all = vec![0.0; states];
        for (w, p) in waiting.iter().enumerate().filter(|(_, p)| **p > 0.0) {
            for (c, c_weight) in model.exec().points() {
                all[(w + *c as usize).min(states - 1)] += p * weight(model.exec(), *c_weight);
            }
        }
        waiting = vec![0.0; states];
        for (v, p) in all.iter().enumerate() {
            for (z, z_weight) in model.periods().points() {
                waiting[v.saturating_sub((z * model.budget()) as usize)] += p * weight(model.periods(), *z_weight);
            }
        }
    }
    all
}

#[test]
fn the_distribution_is_that_of_iteration() {
    let mut random = Random::new(5);
    let (mut solved, mut unstable, mut compared, mut widest) = (0, 0, 0, 0.0f64);
    for case in 0..cases(150).min(3_000) {
        let period = random.between(2, 8);
        let budget = random.between(1, period);
        let (exec, arrivals) = (pmf(&mut random, 1, 12), pmf(&mut random, 1, 40));
        let model = Model::new(&exec, &arrivals, period, budget, 1).expect("it is small");
        let solution = match model.solve() {
            Ok(solution) => solution,
            Err(StochasticError::Unstable) => {
                unstable += 1;
                continue;
            }
            Err(error) => panic!("case {case}: {error}"),
        };
        solved += 1;
        let load = exec.mean().0 as f64
            / exec.total() as f64
            / (budget as f64 * model.periods().mean().0 as f64 / model.periods().total() as f64);
        let limit = iterated(&model, 2_000, 300);
        // Iteration starts from an empty server, and settles slowly under much load; and it cuts
        // off what exceeds its states.
        let settled = load <= 0.7 && limit[200..].iter().sum::<f64>() < 1e-14;
        compared += u32::from(settled);
        for k in 1..8 {
            let within = solution.within(k);
            let other: f64 = limit.iter().take((k * budget) as usize + 1).sum();
            let context = || format!("case {case}, k = {k}, load {load}: {within:?} {other} {model:?}");
            assert!(within.low <= within.estimate && within.estimate <= within.high, "{}", context());
            assert!(within.low <= other + 1e-12, "{}", context());
            assert!(!settled || other <= within.high + 1e-10, "{}", context());
            widest = widest.max(within.high - within.low);
        }
    }
    println!("{solved} solved, {compared} compared from above, {unstable} unstable, widest enclosure {widest:e}");
    assert!(solved > 30 && compared > 20 && unstable > 10 && widest < 1e-9);
}

#[test]
fn the_fast_bound_is_below_the_exact_probability() {
    let mut random = Random::new(9);
    let (mut close, mut all) = (0, 0);
    for _ in 0..cases(500).min(5_000) {
        let period = random.between(2, 10);
        let budget = random.between(1, period);
        let (exec, arrivals) = (pmf(&mut random, 1, 14), pmf(&mut random, period, 5 * period));
        let model = Model::new(&exec, &arrivals, period, budget, 1).expect("it is small");
        let (Ok(solution), Ok(fast)) = (model.solve(), model.fast()) else { continue };
        for k in 1..12 {
            let (within, bound) = (solution.within(k), fast.within(k));
            assert!(bound <= within.high, "{model:?} {k}: {bound} > {within:?}");
            all += 1;
            close += u32::from(1.0 - bound <= 3.0 * (1.0 - within.estimate) + 1e-9);
        }
    }
    println!("{close} of {all} within a factor of three");
    assert!(close > all / 2);
}

/// The share of successes with five standard errors, from batches, since successive jobs are
/// dependent.
struct Share {
    batches: Vec<f64>,
}

impl Share {
    fn of(outcomes: &[bool]) -> Share {
        let batches = outcomes.chunks_exact(outcomes.len() / 50);
        Share {
            batches: batches
                .map(|batch| batch.iter().filter(|yes| **yes).count() as f64 / batch.len() as f64)
                .collect(),
        }
    }

    fn mean(&self) -> f64 {
        self.batches.iter().sum::<f64>() / self.batches.len() as f64
    }

    fn room(&self) -> f64 {
        let (n, mean) = (self.batches.len() as f64, self.mean());
        let variance = self.batches.iter().map(|batch| (batch - mean).powi(2)).sum::<f64>() / (n - 1.0);
        5.0 * (variance / n).sqrt() + 1e-3
    }
}

/// Responses of `jobs` jobs (`None`: lost) under the real rule, in slots. If `phase` is given,
/// arrivals are off the whole periods.
#[expect(clippy::too_many_arguments, reason = "a simulation has as many parameters")]
fn simulate(
    exec: &Pmf,
    arrivals: &Pmf,
    rule: Rule,
    period: u64,
    budget: u64,
    above: BudgetTiming,
    most: usize,
    jobs: usize,
    random: &mut Random,
) -> Vec<Option<u64>> {
    let mut server = Server::new(rule, period, budget);
    let mut responses = vec![None; jobs];
    let mut waiting = std::collections::VecDeque::new();
    let (mut next, mut number) = (draw(arrivals, random), 0);
    while number < jobs || !waiting.is_empty() {
        while number < jobs && next == server.now {
            if server.queue.len() < most {
                server.queue.push_back((draw(exec, random), next));
                waiting.push_back(number);
            }
            number += 1;
            next += draw(arrivals, random);
        }
        if let Some(release) = server.step(above, random) {
            let job: usize = waiting.pop_front().expect("a job that completes was taken");
            responses[job] = Some(server.now - release);
        }
    }
    responses
}

#[test]
fn simulation_of_the_rule_agrees() {
    let mut random = Random::new(1234);
    let jobs = cases(20_000).clamp(5_000, 200_000) as usize;
    let (period, budget) = (8, 3);
    let exec = Pmf::new([(1, 4), (3, 3), (5, 2), (9, 1)]).expect("weights");
    // Whole periods: equal under a hard reservation, whenever the budget comes.
    let aligned = Pmf::new([(8, 3), (16, 2), (24, 1)]).expect("weights");
    let solution =
        Model::new(&exec, &aligned, period, budget, 1).and_then(|model| model.solve()).expect("it is stable");
    let share = |responses: &[Option<u64>], k: u64| {
        let in_time: Vec<bool> = responses.iter().map(|response| response.is_some_and(|r| r <= k * period)).collect();
        Share::of(&in_time)
    };
    for above in [BudgetTiming::Eager, BudgetTiming::Late, BudgetTiming::Random] {
        let responses = simulate(&exec, &aligned, Rule::Hard, period, budget, above, usize::MAX, jobs, &mut random);
        for k in 1..6 {
            let (share, within) = (share(&responses, k), solution.within(k));
            let off = (share.mean() - within.estimate).abs();
            assert!(off <= share.room(), "{above:?} {k}: {} +- {} and {within:?}", share.mean(), share.room());
        }
    }
    // A soft one does no worse; nor does either at arrivals off the grid.
    let loose = Pmf::new([(9, 3), (19, 2), (31, 1)]).expect("weights");
    let solved = Model::new(&exec, &loose, period, budget, 1).and_then(|model| model.solve()).expect("it is stable");
    for (rule, arrivals, solution) in
        [(Rule::Soft, &aligned, &solution), (Rule::Soft, &loose, &solved), (Rule::Hard, &loose, &solved)]
    {
        for above in [BudgetTiming::Eager, BudgetTiming::Late, BudgetTiming::Random, BudgetTiming::Alternate] {
            let responses = simulate(&exec, arrivals, rule, period, budget, above, usize::MAX, jobs, &mut random);
            for k in 1..6 {
                let (share, within) = (share(&responses, k), solution.within(k));
                assert!(
                    share.mean() + share.room() >= within.low,
                    "{rule:?} {above:?} {k}: {} and {within:?}",
                    share.mean()
                );
            }
        }
    }
}

#[test]
fn lost_jobs_are_as_many_as_in_simulation() {
    let mut random = Random::new(77);
    let jobs = cases(20_000).clamp(5_000, 200_000) as usize;
    let exec = Pmf::new([(1, 4), (3, 3), (5, 2), (9, 1)]).expect("weights");
    let (mut seen, mut overloaded) = (0, 0);
    for (arrivals, budget) in
        [([(8, 3), (16, 2), (24, 1)], 3), ([(8, 5), (16, 1), (24, 1)], 2), ([(8, 9), (8, 1), (40, 1)], 4)]
    {
        let arrivals = Pmf::new(arrivals).expect("weights");
        let model = Model::new(&exec, &arrivals, 8, budget, 1).expect("it is small");
        overloaded += u32::from(!model.is_stable());
        let mut before = 1.0;
        for most in [1, 2, 3, 5] {
            let lost = drop_probability(&model, most).expect("it is small");
            assert!(lost.high - lost.low < 1e-9 && lost.high <= before, "{most}: {lost:?}");
            before = lost.high;
            for above in [BudgetTiming::Eager, BudgetTiming::Late, BudgetTiming::Random] {
                let most = most as usize;
                let responses = simulate(&exec, &arrivals, Rule::Hard, 8, budget, above, most, jobs, &mut random);
                let outcomes: Vec<bool> = responses.iter().map(Option::is_none).collect();
                let share = Share::of(&outcomes);
                let off = (share.mean() - lost.estimate).abs();
                assert!(off <= share.room(), "{most} {above:?}: {} +- {} and {lost:?}", share.mean(), share.room());
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 36);
    assert!(overloaded > 0);
}

#[test]
fn queues_by_hand() {
    // 3 of work in every period of 2: a queue of one is left with 1, and loses every other job.
    let model = Model::new(&Pmf::certain(3), &Pmf::certain(10), 10, 2, 1).expect("it is small");
    let lost = drop_probability(&model, 1).expect("it is small");
    assert!(lost.low > 0.5 - 1e-9 && lost.high < 0.5 + 1e-9, "{lost:?}");
    // Two served of every three, whatever the queue.
    for most in [2, 3, 8] {
        let lost = drop_probability(&model, most).expect("it is small");
        assert!((lost.estimate - 1.0 / 3.0).abs() < 1e-9 && lost.high - lost.low < 1e-9, "{most}: {lost:?}");
    }
    let roomy = Model::new(&Pmf::certain(2), &Pmf::certain(10), 10, 2, 1).expect("it is small");
    assert!(drop_probability(&roomy, 1).expect("it is small").high < 1e-9);
    assert_eq!(drop_probability(&roomy, 0), Err(DropError::NoQueue));
    let long = Model::new(&Pmf::certain(500), &Pmf::certain(10), 10, 2, 1).expect("it is small");
    assert!(matches!(drop_probability(&long, 1000), Err(DropError::TooManyStates { states: 500_001, .. })));
}

#[test]
fn limits_and_stability_are_exact() {
    let model = |c: u64, a: u64, period, budget| {
        Model::new(&Pmf::new([(c, 1), (c + 1, 1)]).expect("weights"), &Pmf::certain(a), period, budget, 1)
    };
    // 3.5 against 4 and against 3.
    assert!(model(3, 20, 10, 2).is_ok_and(|model| model.is_stable() && model.solve().is_ok()));
    assert!(model(3, 20, 10, 1).is_ok_and(|model| model.solve() == Err(StochasticError::Unstable)));
    // Exactly the load: no distribution, unless nothing varies.
    let exec = Pmf::new([(1, 1), (3, 1)]).expect("weights");
    let tight = Model::new(&exec, &Pmf::certain(10), 10, 2, 1).expect("it is small");
    assert_eq!(
        (tight.is_stable(), tight.solve().err(), tight.fast().err()),
        (false, Some(StochasticError::Unstable), Some(StochasticError::Unstable))
    );
    let even = Model::new(&Pmf::certain(2), &Pmf::certain(10), 10, 2, 1).expect("it is small");
    assert_eq!(even.solve().expect("nothing waits").within(1).low, 1.0);
    assert_eq!(Model::new(&exec, &Pmf::certain(10), 10, 11, 1), Err(StochasticError::Parameters));
    assert_eq!(
        Model::new(&Pmf::certain(BLOCK_MAX + 1), &Pmf::certain(10), 10, 2, 1),
        Err(StochasticError::TooManyStates { states: BLOCK_MAX + 1 })
    );
    // Long pauses are cut, which is said by the upper bound.
    let rare = Pmf::new([(10, 9), (1_000_000, 1)]).expect("weights");
    let exec = Pmf::new([(1, 1), (5, 1)]).expect("weights");
    let solution = Model::new(&exec, &rare, 10, 4, 1).and_then(|model| model.solve()).expect("it is stable");
    assert_eq!(solution.within(1).high, 1.0);
    assert!(solution.residual() < 1e-12);
}

fn wanted<'a>(exec: &'a Pmf, arrivals: &'a Pmf, billionths: u32) -> Requirements<'a> {
    Requirements {
        exec,
        arrivals,
        period: Span::from_ms(20),
        deadline: Span::from_ms(40),
        probability: Probability::from_billionths(billionths).expect("at most one"),
        pending: None,
        quantum: Span::from_us(250),
        charge: Charge::default(),
    }
}

#[test]
fn the_least_budget_is_found() {
    let ms = 1_000_000;
    let exec = Pmf::new([(3 * ms, 6), (6 * ms, 3), (12 * ms, 1)]).expect("weights");
    let arrivals = Pmf::certain(40 * ms);
    let mut before = Span::ZERO;
    for billionths in [500_000_000, 900_000_000, 990_000_000, 999_999_000, 1_000_000_000] {
        let wanted = wanted(&exec, &arrivals, billionths);
        let found = reserve(&wanted).expect("a whole CPU is enough");
        assert!(found.probability.low >= f64::from(billionths) / 1e9 && found.fast <= found.probability.high);
        assert!(found.budget >= before && found.budget.as_ns().is_multiple_of(250_000));
        before = found.budget;
        // A quantum less is not enough.
        let less = (found.budget.as_ns() - 250_000) / 250_000;
        let model = Model::new(&exec, &arrivals, 20 * ms, less * 250_000, 250_000).expect("it is small");
        let low = model.solve().map_or(0.0, |solution| solution.within(2).low);
        assert!(low < f64::from(billionths) / 1e9, "{billionths}: {low} with {less}");
    }
    // Certainty is that of the longest job.
    assert_eq!(before, Span::from_ms(6));
    let queue = Requirements { pending: Some(1), ..wanted(&exec, &arrivals, 990_000_000) };
    let found = reserve(&queue).expect("a whole CPU is enough");
    assert!(found.lost.is_some_and(|lost| lost.high <= 0.01));
    let text = |wanted: &Requirements| reserve(wanted).map(|found| found.budget).map_err(|error| error.to_string());
    let short = Requirements { deadline: Span::from_ms(19), ..wanted(&exec, &arrivals, 1) };
    assert_eq!(
        text(&short),
        Err("a deadline of 19ms holds no whole reservation period of 20ms, so nothing is guaranteed by then; \
             take a period of at most the deadline"
            .to_owned())
    );
    let dense = Pmf::certain(19 * ms);
    assert!(matches!(reserve(&wanted(&exec, &dense, 1)), Err(ReserveError::NotEnough { .. })));
    let coarse = Requirements { quantum: Span::from_ms(21), ..wanted(&exec, &arrivals, 1) };
    assert!(matches!(reserve(&coarse), Err(ReserveError::Quantum { .. })));
}

#[test]
fn samples_that_depend_on_one_another_are_noticed() {
    let mut random = Random::new(21);
    let mut doubtful = 0;
    for _ in 0..500 {
        let samples: Vec<u64> = (0..400).map(|_| random.between(0, 1000)).collect();
        doubtful += u32::from(Independence::of(&samples).is_doubtful());
    }
    assert!(doubtful <= 8, "{doubtful} of 500 independent sequences");
    // Each takes over half of the one before.
    let mut last = 500;
    let moving: Vec<u64> = (0..400)
        .map(|_| {
            last = (last + random.between(0, 1000)) / 2;
            last
        })
        .collect();
    let found = Independence::of(&moving);
    assert!(found.is_doubtful() && found.lag_1 > 0.3, "{found:?}");
    // Uncorrelated, yet long on either side of the mean.
    let phases: Vec<u64> = (0..400).map(|i| if i / 20 % 2 == 0 { 10 } else { 20 }).collect();
    assert!(Independence::of(&phases).runs.is_some_and(|p| p < 1e-6));
    assert_eq!(Independence::of(&moving[..SAMPLES_MIN - 1]).ljung_box, None);
    let constant = Independence::of(&[7; 100]);
    assert_eq!((constant.ljung_box, constant.runs, constant.is_doubtful()), (None, None, false));
}

#[test]
fn a_task_s_distributions_are_those_of_its_file() {
    use takt_model::{Arrival, Exec};
    let mut task = Task::periodic("a", Span::from_ns(40), Span::from_ns(9));
    assert_eq!((exec_of(&task), arrivals_of(&task)), (Ok(Pmf::certain(9)), Ok(Pmf::certain(40))));
    task.exec = Exec::Uniform { min: Span::from_ns(2), max: Span::from_ns(5) };
    let uniform = exec_of(&task).expect("it has values");
    assert_eq!((uniform.min(), uniform.max(), uniform.total()), (3, 5, 4));
    task.jitter = Span::from_ns(4);
    assert_eq!(arrivals_of(&task), Ok(Pmf::certain(36)));
    let half = Probability::from_billionths(500_000_000).expect("below one");
    task.arrival = Arrival::Pmf(vec![(Span::from_ns(50), half), (Span::from_ns(44), half)]);
    assert_eq!(arrivals_of(&task).map(|pmf| pmf.points().to_vec()), Ok(vec![(40, 500_000_000), (46, 500_000_000)]));
    task.jitter = Span::from_ns(44);
    assert!(arrivals_of(&task).is_err_and(|why| why.contains("jitter")));
}
