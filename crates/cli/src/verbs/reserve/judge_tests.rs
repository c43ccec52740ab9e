//! Judgements of made-up threads.

use takt_log::{BackEnd, Definitions, Header, KindSet, NodeDef, TaskDef};
use takt_model::{NodeId, Probability, Span, Time};
use takt_trace::infer::{Inferred, JobSeen, Sample};

use super::judge::{Guarantee, Sized, jobs_for, judge};
use super::phase::Phase;

const MS: u64 = 1_000_000;

/// A thread with jobs (arrival, lateness of its release, execution), all in nanoseconds.
fn phase(jobs: impl IntoIterator<Item = (u64, u64, u64)>) -> Phase {
    let jobs: Vec<JobSeen> = jobs
        .into_iter()
        .enumerate()
        .map(|(number, (arrival, late, exec))| JobSeen {
            number: number as u64,
            arrival: Time::from_ns(arrival),
            window: Span::ZERO,
            release: Time::from_ns(arrival + late),
            complete: Some(Time::from_ns(arrival + late + exec)),
            exec: Some(Span::from_ns(exec)),
            gap: false,
        })
        .collect();
    let sample = Sample { released: jobs.len() as u64, jobs: jobs.clone(), ..Sample::default() };
    let node = NodeDef { name: "local".to_owned(), cpus: 1, strategy: String::new() };
    let task =
        TaskDef { name: "player-7".to_owned(), node: NodeId(0), period: None, deadline: None, wcet: None, class: None };
    let definitions = Definitions { nodes: vec![node], tasks: vec![task], ..Definitions::default() };
    let header = Header::new(String::new(), None, BackEnd::Observe, KindSet::EMPTY);
    let inferred = Inferred::of_log(&[sample], &header, &definitions);
    let duration = jobs.last().map_or(Span::from_s(10), |job| Span::from_ns(job.release.as_ns()));
    Phase { jobs, task: inferred.tasks.into_iter().next(), duration, ..Phase::default() }
}

/// Scattered numbers below `below`, without an order.
fn scattered(number: u64, below: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678_9ABC_DEF1);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (x ^ (x >> 31)) % below
}

fn want(billionths: u32) -> Guarantee {
    Guarantee {
        probability: Probability::from_billionths(billionths).unwrap(),
        deadline: None,
        margin: Some(Span::ZERO),
    }
}

fn player(jobs: u64) -> Phase {
    phase(
        (0..jobs)
            .map(|k| (k * 40 * MS, 0, if scattered(k, 20) == 0 { 24 * MS } else { 6 * MS + scattered(k + 7, MS) })),
    )
}

fn sized(phase: &Phase, want: &Guarantee) -> Sized {
    judge("player (7)", phase, want).unwrap()
}

#[test]
fn a_share_of_the_jobs_takes_less_than_all_of_them() {
    let seen = player(400);
    let most = sized(&seen, &want(900_000_000));
    let all = sized(&seen, &want(1_000_000_000));
    assert_eq!(
        (most.period, most.deadline, most.reserved.period),
        (Span::from_ms(40), Span::from_ms(40), Span::from_ms(40))
    );
    assert!(all.reserved.budget >= Span::from_ms(24), "{}", all.reserved.budget);
    assert!(most.reserved.budget < Span::from_ms(20), "{}", most.reserved.budget);
    assert!(most.reserved.probability.low >= 0.9);
    let margin = sized(&seen, &Guarantee { margin: Some(Span::from_ms(2)), ..want(900_000_000) });
    assert!(margin.reserved.budget >= most.reserved.budget.saturating_add(Span::from_us(1900)));
    let usual = sized(&seen, &Guarantee { margin: None, ..want(900_000_000) });
    assert_eq!(usual.margin, Span::from_us(1200), "a twentieth of the longest");
}

#[test]
fn an_early_deadline_shortens_the_reservations_period() {
    let early = Guarantee { deadline: Some(Span::from_ms(15)), ..want(1_000_000_000) };
    let found = sized(&phase((0..400).map(|k| (k * 40 * MS, 0, 3 * MS))), &early);
    // A third of 40 ms is the longest part of it that fits into 15 ms.
    assert_eq!((found.reserved.period, found.deadline), (Span::from_us(13_333), Span::from_ms(15)));
    assert!(found.reserved.budget >= Span::from_ms(3));
}

#[test]
fn usual_lateness_is_taken_off_and_unusual_lateness_is_told() {
    let jobs = (0..400).map(|k| (k * 40 * MS, if k % 100 == 50 { 30 * MS } else { scattered(k, MS / 10) }, 3 * MS));
    let found = sized(&phase(jobs), &want(990_000_000));
    assert!(found.jitter < Span::from_us(100), "{}", found.jitter);
    assert_eq!(found.latest, Span::from_ms(30));
    assert!(found.late >= 4 && found.late <= 24, "{}", found.late);
    assert!(found.reserved.period >= Span::from_us(39_900) && found.reserved.period < Span::from_ms(40));
}

#[test]
fn executions_that_depend_on_one_another_are_sized_for_by_the_longest() {
    let bursts = phase((0..400).map(|k| (k * 40 * MS, 0, if k / 20 % 2 == 0 { 3 * MS } else { 9 * MS })));
    let found = sized(&bursts, &want(500_000_000));
    assert!(found.independence.is_doubtful() && found.longest && found.independence.lag_1 > 0.9);
    assert_eq!(found.reserved, sized(&bursts, &want(1_000_000_000)).reserved);
    assert!(found.reserved.budget >= Span::from_ms(9) && found.reserved.probability.low >= 1.0 - 1e-9);
    let independent = sized(&player(400), &want(500_000_000));
    assert!(!independent.longest && sized(&player(400), &want(1_000_000_000)).longest);
}

#[test]
fn a_phase_that_cannot_be_judged_is_an_error_with_a_remedy() {
    let refused = |phase: &Phase, want: &Guarantee| judge("player (7)", phase, want).unwrap_err();
    let asleep = Phase { duration: Span::from_s(10), ..Phase::default() };
    assert_eq!(
        refused(&asleep, &want(990_000_000)),
        "player (7) did not release a job in 10s: it slept, or it was late all the time and never did"
    );
    let other = Phase { others: vec![("video-9".to_owned(), Span::from_ms(40))], ..asleep };
    assert_eq!(
        refused(&other, &want(990_000_000)),
        "player (7) did not release a job in 10s: it slept, or it was late all the time and never did; periodic \
         beside it are video-9 every 40ms (--pid NUMBER)"
    );
    assert_eq!(
        refused(&player(200), &want(990_000_000)),
        "200 jobs of player (7) were seen, and it takes 299 to size for the share 0.99 of them; look longer: \
         --observe 13s"
    );
    let mut at = 0;
    let sporadic = phase((0..400).map(|k| {
        at += 40 * MS + scattered(k, 40 * MS);
        (at, 0, 3 * MS)
    }));
    let text = refused(&sporadic, &want(990_000_000));
    assert!(text.starts_with("player (7) is not periodic, as far as 400 jobs in 24."), "{text}");
    assert!(text.ends_with("give --runtime and --period"), "{text}");
    let late = phase((0..400).map(|k| (k * 40 * MS, 5 * MS + scattered(k, 10 * MS), 3 * MS)));
    let text = refused(&late, &want(990_000_000));
    assert!(text.contains("leaves too little of its deadline of 40ms"), "{text}");
    let heavy = phase((0..400).map(|k| (k * 40 * MS, 0, 60 * MS)));
    let text = refused(&heavy, &want(990_000_000));
    assert!(text.contains("not even a whole CPU") && text.contains("a later --deadline"), "{text}");
}

#[test]
fn so_many_jobs_speak_for_a_share() {
    let jobs = |billionths| jobs_for(Probability::from_billionths(billionths).unwrap());
    assert_eq!((jobs(990_000_000), jobs(999_000_000), jobs(1_000_000_000)), (299, 2995, 299));
    assert_eq!(jobs(500_000_000), 60, "fewer tell nothing of independence");
}
