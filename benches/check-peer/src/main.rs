//! takt's rta beside the crate response-time-analysis 0.3.2 (B. Brandenburg, MIT): the same sets, the same run,
//! alternating; first the bounds of all tasks are compared. With the argument `agreement` it stops after that.

mod agreement;

use std::hint::black_box;
use std::time::{Duration, Instant};

use response_time_analysis::arrival::Sporadic;
use response_time_analysis::demand::RBF;
use response_time_analysis::fixed_priority::fully_preemptive::dedicated_uniproc_rta;
use response_time_analysis::time::{Duration as Length, Service};
use response_time_analysis::wcet::Scalar;
use takt_analysis::Answer;
use takt_analysis::fp::rta::{self, Analysis, FpTask};
use takt_model::Span;
use takt_model::generate::{Buffer, Drawn, Generator, Spec};

const SETS: usize = 2_000;
const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(500);

type Rbf = RBF<Sporadic, Scalar>;

fn main() {
    let spec = Spec { grain: Span::from_ns(1), ..Spec::new(10, 0.8) };
    let (generator, mut set) = (Generator::new(&spec).expect("a spec within its ranges"), Buffer::default());
    let next = |number| {
        generator.set(1, number, &mut set).expect("randfixedsum discards nothing");
        set.tasks.sort_by_key(|task| (task.d, task.t));
        let form = |(i, &Drawn { c, d, t }): (usize, &Drawn)| FpTask { c, t, d, level: i as u32, ..FpTask::default() };
        set.tasks.iter().enumerate().map(form).collect()
    };
    let ours: Vec<Vec<FpTask>> = (0..SETS as u64).map(next).collect();
    let form =
        |task: &FpTask| RBF::new(Sporadic::new_zero_jitter(Length::from(task.t)), Scalar::new(Service::from(task.c)));
    let theirs: Vec<Vec<Rbf>> = ours.iter().map(|set| set.iter().map(form).collect()).collect();

    let mut compared = 0;
    for (set, rbfs) in ours.iter().zip(&theirs) {
        let mut analysis = Analysis::default();
        for (i, task) in set.iter().enumerate() {
            let bound = analysis.response(set, i).map(|response| response.from_arrival).filter(|r| *r <= task.d);
            let peer = dedicated_uniproc_rta(&rbfs[i], &rbfs[..i], Length::from(task.d)).ok().map(u64::from);
            assert_eq!(bound, peer, "{set:?} task {i}");
            compared += 1;
        }
    }
    println!("fixed priority, preemptive: {compared} response-time bounds compared, all equal");
    for (name, compared) in agreement::compare() {
        println!("{name}: {compared} response-time bounds compared, all equal");
    }
    if std::env::args().nth(1).is_some_and(|argument| argument == "agreement") {
        return;
    }

    let (mut takt, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        takt.push(rate(|i| rta::schedulable(&ours[i]) == Answer::Yes));
        peer.push(rate(|i| {
            let (set, rbfs) = (&ours[i], &theirs[i]);
            (0..set.len()).all(|i| dedicated_uniproc_rta(&rbfs[i], &rbfs[..i], Length::from(set[i].d)).is_ok())
        }));
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2] / 1e6
    };
    let (takt, peer) = (median(&mut takt), median(&mut peer));
    println!("verdicts, 10 tasks, U = 0.8, one thread, median of {TURNS} turns each (M sets/s)");
    println!("  takt rta                     {takt:>6.2}");
    println!("  response-time-analysis 0.3.2 {peer:>6.2}   takt is {:.1} times as fast", takt / peer);
}

fn rate(decide: impl Fn(usize) -> bool) -> f64 {
    let (start, mut decided) = (Instant::now(), 0usize);
    while start.elapsed() < TURN {
        for i in 0..SETS {
            black_box(decide(black_box(i)));
        }
        decided += SETS;
    }
    decided as f64 / start.elapsed().as_secs_f64()
}
