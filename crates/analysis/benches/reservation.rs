//! How long it takes to solve a reservation's chain and to size it
//! (`cargo bench -p takt-analysis --bench reservation`).

use std::hint::black_box;
use std::time::{Duration, Instant};

use takt_analysis::reservation::costs::Charge;
use takt_analysis::reservation::dropping::drop_probability;
use takt_analysis::reservation::stochastic::Model;
use takt_analysis::reservation::{Pmf, Requirements, reserve};
use takt_model::generate::Random;
use takt_model::{Probability, Span};

/// How long each row takes, about; and how often at least.
const ROW: (Duration, usize) = (Duration::from_millis(1000), 5);
/// T, in quanta.
const PERIOD: u64 = 1000;

fn main() {
    println!("random execution times at a load of 80 %, two periods between arrivals, one thread (median and p99)");
    for units in [16, 32, 64, 128, 256] {
        let mut random = Random::new(1);
        let name = format!("distribution, blocks of {units}");
        row(&name, || {
            let model = model(&mut random, units);
            let solution = black_box(&model).solve().expect("it is stable");
            black_box(solution.within(2).low);
        });
    }
    for units in [16, 128] {
        let mut random = Random::new(1);
        row(&format!("fast bound, jobs up to {units} quanta"), || {
            let model = model(&mut random, units);
            black_box(black_box(&model).fast().expect("it is stable").within(2));
        });
    }
    for (units, most) in [(16, 4), (64, 4), (64, 16)] {
        let mut random = Random::new(1);
        row(&format!("lost jobs, up to {units} quanta, queue of {most}"), || {
            let model = model(&mut random, units);
            black_box(drop_probability(black_box(&model), most).expect("it is small"));
        });
    }
    let mut random = Random::new(1);
    row("least budget of 100 quanta for 99 %", || {
        let exec = exec(&mut random, 120).map(|c| c * 10_000);
        let arrivals = Pmf::certain(2_000_000);
        let wanted = Requirements {
            exec: &exec,
            arrivals: &arrivals,
            period: Span::from_ms(1),
            deadline: Span::from_ms(2),
            probability: Probability::from_billionths(990_000_000).expect("below one"),
            pending: None,
            quantum: Span::from_us(10),
            charge: Charge::default(),
        };
        black_box(reserve(black_box(&wanted)).expect("a whole CPU is enough"));
    });
}

/// Eight execution times, the largest for sure.
fn exec(random: &mut Random, units: u64) -> Pmf {
    let others = (0..7).map(|_| (random.between(1, units), random.between(1, 9)));
    Pmf::new(others.chain([(units, 1)])).expect("weights are above zero")
}

/// 80 % of what two budgets give, rounded down to whole quanta of Q.
fn model(random: &mut Random, units: u64) -> Model {
    let exec = exec(random, units);
    let (sum, total) = exec.mean();
    let budget = (sum as f64 / total as f64 / 1.6).ceil() as u64;
    Model::new(&exec, &Pmf::certain(2 * PERIOD), PERIOD, budget, 1).expect("it is small")
}

fn row(name: &str, mut work: impl FnMut()) {
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < ROW.0 || times.len() < ROW.1 {
        let began = Instant::now();
        work();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let (median, p99) = (us(times[times.len() / 2]), us(times[times.len() * 99 / 100]));
    println!("  {name:42} {median:>11.1} us {p99:>11.1} us");
}
