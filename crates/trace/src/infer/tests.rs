//! Arrivals whose truth is known.

use takt_model::{Span, Time};

use super::*;

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * u128::from(most)) >> 64) as u64
    }
    fn share(&mut self) -> f64 {
        self.below(1 << 53) as f64 / (1u64 << 53) as f64
    }
}

fn of(releases: &[u64]) -> Arrivals {
    let releases: Vec<(Time, Span)> = releases.iter().map(|at| (Time::from_ns(*at), Span::ZERO)).collect();
    Arrivals::of(&Sample::of_releases(&releases))
}

fn grid(releases: &[u64]) -> Grid {
    let arrivals = of(releases);
    assert_eq!(arrivals.kind, Kind::Periodic, "{}: {:?}", arrivals.why, arrivals.curve.first());
    arrivals.grid.unwrap()
}

fn walk(first: u64, jobs: usize, mut distance: impl FnMut() -> u64) -> Vec<u64> {
    let mut at = first;
    let mut all = vec![first];
    for _ in 1..jobs {
        at += distance();
        all.push(at);
    }
    all
}

const MS: u64 = 1_000_000;

#[test]
fn a_plain_grid_is_exact_from_five_jobs_on() {
    let all = walk(3 * MS, 5, || 10 * MS);
    let found = grid(&all);
    assert_eq!((found.period, found.first, found.jitter), (Span::from_ms(10), Time::from_ns(3 * MS), Span::ZERO));
    assert_eq!((found.period_min, found.period_max), (Span::from_ms(10), Span::from_ms(10)));
    let arrivals = of(&all[..4]);
    assert_eq!((arrivals.kind, arrivals.confidence), (Kind::Unknown, 0.0));
    assert_eq!(of(&[]).kind, Kind::Unknown);
    assert_eq!(of(&[7]).kind, Kind::Unknown);
    assert_eq!(of(&[7; 100]).kind, Kind::Aperiodic, "all at once");
}

/// Arrivals in every second period of a grid make a grid of twice the period.
#[test]
fn few_arrivals_within_a_small_jitter_are_not_called_sporadic() {
    let mut dice = Dice(40);
    let mut periodic = 0;
    for case in 0..60 {
        let period = 1 + dice.below(100);
        let all: Vec<u64> = (0..40).map(|k| 1_000 * MS + k * period * MS + dice.below(16_000)).collect();
        let found = of(&all);
        assert_ne!(found.kind, Kind::Sporadic, "case {case}, {period} ms: {}", found.why);
        periodic += usize::from(found.kind == Kind::Periodic);
    }
    assert!(periodic > 40, "{periodic} of 60");
}

/// Arrivals at a recorded thread's start and end: it waits for the others before its first period,
/// and is woken to end.
#[test]
fn starts_and_ends_of_threads_are_left_out() {
    let periodic = walk(64_505_492, 80, || 7 * MS);
    let mut seen = vec![21_511_884];
    seen.extend(&periodic);
    let found = grid(&seen);
    assert_eq!((found.period, found.jitter), (Span::from_ms(7), Span::ZERO));
    seen.push(periodic[79] + 2 * MS);
    assert_eq!(grid(&seen).period, Span::from_ms(7));
    assert!(of(&seen).why.contains("but for the first 1 and the last 1"), "{}", of(&seen).why);
    // With jitter, too.
    let mut dice = Dice(5);
    let mut late: Vec<u64> = periodic.iter().map(|at| at + dice.below(MS / 10)).collect();
    late.insert(0, 21_511_884);
    assert!(grid(&late).period.as_ns().abs_diff(7 * MS) < 7 * MS / 1000);
    // Too few to be sure, and a middle that is off, are not left out.
    assert_ne!(of(&seen[..12]).kind, Kind::Periodic);
    let two: Vec<u64> = walk(0, 40, || 7 * MS).into_iter().chain(walk(400 * MS, 40, || 7 * MS)).collect();
    assert_ne!(of(&two).kind, Kind::Periodic, "it lost its step in the middle");
}

#[test]
fn a_period_of_thirds_of_nanoseconds_does_not_drift_away() {
    let all: Vec<u64> = (0..30_000).map(|k| k * 100_000_000 / 3).collect();
    let found = grid(&all);
    assert_eq!(found.period.as_ns(), 33_333_333);
    assert!(found.jitter.as_ns() <= 1 && found.period_max.as_ns() > 33_333_333, "{found:?}");
}

#[test]
fn jitter_of_any_size_keeps_the_period_and_comes_out() {
    let mut dice = Dice(1);
    for case in 0..60u64 {
        let period = 1_000_000 + dice.below(50 * MS);
        let offset = dice.below(period);
        let jobs = 200 + dice.below(800);
        for jitter in [period / 1000, period / 20, period / 2, period * 9 / 10, period * 3 / 2] {
            let mut last = 0;
            let all: Vec<u64> = (0..jobs)
                .map(|k| {
                    last = last.max(offset + k * period + dice.below(jitter + 1));
                    last
                })
                .collect();
            if jitter > period {
                assert!(of(&all).grid.is_none(), "case {case}: a jitter of more than a period is none");
                continue;
            }
            let found = grid(&all);
            let truth = format!("case {case}: period {period} offset {offset} jitter {jitter} jobs {jobs}: {found:?}");
            assert!(found.period.as_ns().abs_diff(period) * 1000 <= period, "{truth}");
            assert!(found.period_min.as_ns() <= period && period <= found.period_max.as_ns(), "{truth}");
            // The strip is no wider than the true one (but for rounding its start down), and nearly
            // as wide.
            assert!(found.jitter.as_ns() <= jitter + jitter / 8 + 2, "{truth}");
            assert!(found.jitter.as_ns() * 10 >= jitter * 8, "{truth}");
            assert!(found.first.as_ns().abs_diff(offset) * 8 <= jitter + 16, "{truth}");
            let within = found.first == Time::ZERO
                || all.iter().enumerate().all(|(k, at)| {
                    let nominal = found.first.as_ns() + k as u64 * found.period.as_ns();
                    nominal <= at + 1 && *at <= nominal + found.jitter.as_ns() + 1
                });
            assert!(within || jitter < 1000, "{truth}");
        }
    }
}

#[test]
fn relative_releases_are_never_periodic() {
    let mut dice = Dice(2);
    let (mut undecided, mut enough) = (0, 0);
    for case in 0..3000u64 {
        let period = MS + dice.below(20 * MS);
        let jobs = 6 + dice.below(if case % 10 == 0 { 2000 } else { 150 }) as usize;
        let shape = case % 8;
        let all = walk(0, jobs, || match shape {
            0 => period + dice.below(period + 1),
            1 => ((1.0 - dice.share()).ln() * -(period as f64)) as u64,
            2 => period + period / 1000 * dice.below(10),
            3 => period + dice.below(period / 2),
            4 => {
                if dice.below(10) < 3 {
                    period * 13 / 10
                } else {
                    period
                }
            }
            // Multiples of one distance: a grid that is empty in places.
            5 => period * (1 + dice.below(2)),
            6 => period * (1 + dice.below(4)),
            // A relative sleep: its length, wake-up latency, and how long a job runs.
            _ => period + 50_000 + dice.below(20_000) + dice.below(period / 10),
        });
        let arrivals = of(&all);
        // Few draws from few values may be all alike.
        let told_apart = shape < 4 || shape == 7 || arrivals.distances.first() != arrivals.distances.last();
        if told_apart && jobs >= 12 {
            assert_ne!(arrivals.kind, Kind::Periodic, "case {case}: shape {shape}, {jobs} jobs: {}", arrivals.why);
        }
        if jobs >= 90 {
            enough += 1;
            undecided += u32::from(arrivals.kind == Kind::Unknown);
            assert!(arrivals.kind == Kind::Unknown || arrivals.confidence > 0.95);
        }
        if jobs >= 301 && shape != 1 && shape != 6 {
            assert_eq!(arrivals.kind, Kind::Sporadic, "case {case}: shape {shape}");
            assert!(
                arrivals.curve[0].min.as_ns() >= period
                    && arrivals.curve[0].min.as_ns() <= period + period / 20 + 60_000
            );
        }
    }
    assert!(enough > 1000 && undecided * 4 < enough, "{undecided} of {enough} undecided");
}

/// Arrivals that look like a grid in the mean and are none: bursts, modes that take turns, and
/// deviations that wander.
#[test]
fn bursts_and_modes_are_never_periodic() {
    let mut dice = Dice(9);
    for case in 0..400u64 {
        let period = MS + dice.below(20 * MS);
        let jobs = 100 + dice.below(900) as usize;
        let (size, stay) = (2 + dice.below(5), 2 + dice.below(60));
        let (mut left, mut slow, mut drift) = (0, false, 0.0f64);
        let shape = case % 4;
        let all: Vec<u64> = match shape {
            // Bursts: some jobs shortly after each other, regularly.
            0 => (0..jobs as u64)
                .map(|k| k / size * period + k % size * (period / size / 3) + dice.below(period / 100))
                .collect(),
            // Two modes take turns after a fixed number of jobs, or a random one.
            1 | 2 => walk(0, jobs, || {
                if left == 0 {
                    (slow, left) = (!slow, if shape == 1 { stay } else { 1 + dice.below(stay) });
                }
                left -= 1;
                if slow { period * 2 } else { period }
            }),
            // A step is taken back by and by, half of it at once: what deviates wanders slowly.
            _ => (0..jobs as u64)
                .map(|k| {
                    drift = drift * 0.98 + (dice.share() - 0.5) * 0.05 * period as f64;
                    (k + 10) * period + (period as f64 / 2.0 + drift) as u64 + dice.below(period / 20)
                })
                .collect(),
        };
        let arrivals = of(&all);
        let wrong = arrivals.kind == Kind::Periodic && (shape != 3 || jobs >= 500);
        assert!(!wrong, "case {case}: shape {shape}, {jobs} jobs: {} {:?}", arrivals.why, arrivals.grid);
    }
}

/// Jobs at fixed places of a frame, with and without noise.
#[test]
fn jobs_at_fixed_places_of_a_frame_are_a_burst() {
    const FRAME: u64 = 16_666_667;
    let mut dice = Dice(13);
    let frames: [&[u64]; 8] = [
        &[0, 25],
        &[0, 40],
        &[0, 45],
        &[0, 30, 60],
        &[0, 28, 70],
        &[0, 20, 40, 60],
        &[0, 22, 44, 70],
        &[0, 10, 50, 65],
    ];
    for places in frames {
        for noise in [1, FRAME / 100, FRAME / 20] {
            let at = |frame: u64, place: u64, dice: &mut Dice| frame * FRAME + place * FRAME / 100 + dice.below(noise);
            let all: Vec<u64> = (0..200)
                .flat_map(|frame| places.iter().map(move |place| (frame, *place)))
                .map(|(frame, place)| at(frame, place, &mut dice))
                .collect();
            let arrivals = of(&all);
            let case = format!("{places:?} with {noise}: {} {:?}", arrivals.why, arrivals.bursts);
            assert_eq!(arrivals.kind, Kind::Aperiodic, "{case}");
            let bursts = arrivals.bursts.unwrap_or_else(|| panic!("{case}"));
            assert_eq!(bursts.jobs, places.len() as u64, "{case}");
            assert!(bursts.period.as_ns().abs_diff(FRAME) * 1000 < FRAME, "{case}");
            assert!(bursts.within.as_ns() < FRAME, "{case}");
        }
    }
}

/// Two distances take turns after a fixed number of jobs. Up to four jobs are a group of both.
#[test]
fn modes_of_a_fixed_number_of_jobs_are_not_periodic() {
    const PERIOD: u64 = 10 * MS;
    for percent in [2, 5, 10, 40] {
        // Longer turns within a twentieth of the period are jitter.
        let told = |stay: &u64| stay * percent > if *stay <= 4 { 2 } else { 10 };
        for stay in [1, 2, 3, 4, 5, 8, 10, 17, 25, 40].into_iter().filter(told) {
            for jobs in [40 + 8 * stay, 1000] {
                let mut k = 0;
                let all = walk(0, jobs as usize, || {
                    k += 1;
                    PERIOD + PERIOD / 100 * percent * ((k - 1) / stay % 2)
                });
                let arrivals = of(&all);
                let case = format!("{percent} % after {stay} of {jobs} jobs: {} {:?}", arrivals.why, arrivals.bursts);
                assert_ne!(arrivals.kind, Kind::Periodic, "{case}");
                if stay <= 4 {
                    let bursts = arrivals.bursts.unwrap_or_else(|| panic!("{case}"));
                    let period = stay * (2 * PERIOD + PERIOD / 100 * percent);
                    assert_eq!((bursts.jobs, bursts.period.as_ns()), (2 * stay, period), "{case}");
                }
            }
        }
    }
}

/// Deviations that run through their range and jump back, as beside another clock, are jitter.
#[test]
fn a_beat_of_two_clocks_is_jitter() {
    for step in [791_933, 838_000, 1_213_331] {
        let found = grid(&(0..400).map(|k| 5 * MS + k * 10 * MS + k * step % (2 * MS)).collect::<Vec<u64>>());
        assert_eq!((found.period.as_ns(), found.group), (10 * MS, 1), "{step}: {found:?}");
    }
}

/// Deviations that do not depend on each other are taken for a group at most once in 10,000 times.
/// TAKT_CASES asks for more tasks.
#[test]
fn jitter_makes_no_groups() {
    let cases = std::env::var("TAKT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000u64);
    let mut dice = Dice(14);
    let (mut periodic, mut mistaken) = (0, Vec::new());
    for case in 0..cases {
        let period = MS + dice.below(50 * MS);
        let jobs = 20 + dice.below(if case % 4 == 0 { 1000 } else { 200 });
        let jitter = period * [2, 5, 20, 60][(case / 4 % 4) as usize] / 100;
        let late = |dice: &mut Dice| match case % 5 {
            0 => jitter / 4 * dice.below(5),
            1 => (-(1.0 - dice.share()).ln() / 8.0 * jitter as f64) as u64,
            2 => (0..4).map(|_| dice.below(jitter / 4)).sum(),
            3 => dice.below(jitter / 10) + if dice.below(10) == 0 { jitter / 2 } else { 0 },
            _ => dice.below(jitter),
        };
        let mut all: Vec<u64> = (0..jobs).map(|k| k * period + late(&mut dice).min(period - 1)).collect();
        all.sort_unstable();
        let arrivals = of(&all);
        periodic += u64::from(arrivals.kind == Kind::Periodic);
        if arrivals.bursts.is_some()
            || arrivals.why.contains("depend on those before")
            || arrivals.grid.is_some_and(|grid| grid.group > 1)
        {
            mistaken.push(format!("case {case}: {jobs} jobs, period {period}, jitter {jitter}: {}", arrivals.why));
        }
    }
    println!("of {cases} tasks, {periodic} are periodic, {} are taken for groups", mistaken.len());
    assert!(mistaken.len() as u64 * 10_000 <= cases, "{}", mistaken.join("\n"));
    assert!(periodic * 3 > cases, "{periodic} of {cases}");
}

/// A period too round for chance is kept, also if the first job comes later after its nominal arrival than others.
#[test]
fn a_tight_grid_may_begin_before_the_first_release() {
    let mut dice = Dice(15);
    for case in 0..200 {
        let period = (20 + dice.below(80)) * MS;
        let all: Vec<u64> = (0..322).map(|k| 7_000 * MS + k * period + dice.below(16_000)).collect();
        // In a log, time zero may be the first release.
        let found = grid(&all.iter().map(|at| at - all[0]).collect::<Vec<u64>>());
        assert_eq!(found.period.as_ns(), period, "case {case}: {found:?}");
        let releases = all.iter().map(|at| (Time::from_ns(*at), Span::ZERO)).collect();
        let inferred = Inferred::of_releases(vec![("a".to_owned(), releases)]);
        let found = inferred.tasks[0].arrivals.grid.expect("it is periodic");
        assert_eq!((found.period.as_ns(), found.first), (period, Time::ZERO), "case {case}");
        assert!(found.jitter < Span::from_us(17), "case {case}: {found:?}");
    }
}

/// Offsets of files of releases count from the earliest nominal arrival.
#[test]
fn files_of_releases_have_one_time_zero() {
    let mut dice = Dice(16);
    let mut of = |first: u64, jitter: u64| -> Vec<(Time, Span)> {
        let at = |k: u64| 9_000 * MS + first + k * 10 * MS;
        (0..300)
            .map(|k| (Time::from_ns(at(k) + if k == 0 { jitter } else { dice.below(jitter) }), Span::ZERO))
            .collect()
    };
    let files = vec![("a".to_owned(), of(0, 2 * MS)), ("b".to_owned(), of(5 * MS, MS / 10))];
    let releases: Vec<u64> = files[0].1.iter().map(|(at, _)| at.as_ns()).collect();
    let inferred = Inferred::of_releases(files);
    let grids: Vec<Grid> = inferred.tasks.iter().map(|task| task.arrivals.grid.expect("periodic")).collect();
    assert_eq!(grids[0].first, Time::ZERO);
    assert!(grids[1].first.as_ns().abs_diff(5 * MS) < MS / 4, "{grids:?}");
    // Each release lies where the grid says, which begins up to the jitter before the first release.
    let begin = releases.iter().zip(0u64..).map(|(at, k)| at - k * grids[0].period.as_ns()).min().expect("releases");
    let far = releases.iter().zip(0u64..).map(|(at, k)| at - k * grids[0].period.as_ns() - begin).max();
    assert!(far.is_some_and(|far| far <= grids[0].jitter.as_ns()), "{far:?} {grids:?}");
}

/// Latencies that come in phases add up for a while; that the period is a round number tells the
/// grid.
#[test]
fn a_tight_grid_with_a_round_period_is_found() {
    let mut dice = Dice(10);
    let mut found = 0;
    for _ in 0..50 {
        let period = 20 * MS + dice.below(80) * MS;
        let mut level = 0;
        let all: Vec<u64> = (0..320)
            .map(|k| {
                if dice.below(12) == 0 {
                    level = dice.below(14_000);
                }
                k * period + level + dice.below(1_500)
            })
            .collect();
        let arrivals = of(&all);
        found += u32::from(arrivals.grid.is_some_and(|grid| grid.period.as_ns() == period));
        // A sleep of that length after each job: its latency makes the distance no round number.
        let all = walk(0, 320, || period + 50_000 + dice.below(1_500));
        assert_ne!(of(&all).kind, Kind::Periodic);
    }
    assert!(found >= 45, "{found}");
}

#[test]
fn halves_and_doubles_are_not_confused() {
    // Early and late in turn: two jobs come in each 20 ms.
    let all: Vec<u64> = (0..200).map(|k| k * 10 * MS + (k % 2) * 2 * MS).collect();
    let bursts = of(&all).bursts.expect("groups of two");
    assert_eq!((bursts.jobs, bursts.period, bursts.within), (2, Span::from_ms(20), Span::from_ms(8)));
    // By so little that it is jitter, with the group beside it.
    let mut dice = Dice(12);
    let all: Vec<u64> = (0..200).map(|k| k * 10 * MS + (k % 2) * MS / 5 + dice.below(MS / 10)).collect();
    let found = grid(&all);
    assert_eq!((found.period, found.group), (Span::from_ms(10), 2), "{found:?}");
    // Three at once, every 30 ms.
    let all: Vec<u64> = (0..300).map(|k| k / 3 * 30 * MS + k % 3 * MS / 10).collect();
    let arrivals = of(&all);
    assert_eq!(
        (arrivals.kind, arrivals.why.as_str()),
        (Kind::Aperiodic, "up to 3 jobs come in each period of 30ms, within 200us")
    );
    assert!(arrivals.grid.is_none() && arrivals.backlog > Span::from_ms(19), "{:?}", arrivals.backlog);
    // One period in two or three is left out, at random.
    let mut dice = Dice(3);
    for most in [2, 3] {
        let arrivals = of(&walk(0, 300, || 10 * MS * (1 + dice.below(most))));
        assert_eq!(arrivals.kind, Kind::Sporadic);
        assert!(arrivals.why.starts_with("it arrives on a grid of 10ms, but not in "), "{}", arrivals.why);
    }
}

#[test]
fn missed_periods_are_counted_and_outliers_named() {
    let mut dice = Dice(4);
    // One period in a hundred has no job, and jobs are numbered without a gap, as a recorder
    // numbers them.
    let all: Vec<u64> = (0..500).filter(|k| k % 100 != 50).map(|k| k * 10 * MS + dice.below(MS)).collect();
    let found = grid(&all);
    assert!(found.period.as_ns().abs_diff(10 * MS) < 10_000, "{found:?}");
    assert_eq!((found.skipped, found.explained), (5, 0));
    // Three late ones do not disturb it, and stay within the jitter.
    let late = [100, 250, 400];
    let all: Vec<u64> =
        (0..500).map(|k| k * 10 * MS + dice.below(20_000) + u64::from(late.contains(&k)) * 4 * MS).collect();
    let found = grid(&all);
    assert_eq!((found.period, found.outliers), (Span::from_ms(10), 3));
    assert!(found.typical_jitter < Span::from_us(25) && found.jitter >= Span::from_ms(4), "{found:?}");
    // A clock that drifts by a twentieth of a millisecond to and fro, slowly.
    let all: Vec<u64> = (0..2000u64)
        .map(|k| k * 10 * MS + dice.below(10_000) + (25_000.0 * (1.0 + (k as f64 / 300.0).sin())) as u64)
        .collect();
    assert!(grid(&all).period.as_ns().abs_diff(10 * MS) < 1_000);
}

fn sample(jobs: impl Iterator<Item = (u64, u64, Option<u64>, bool)>) -> Sample {
    let jobs = jobs.map(|(number, at, complete, gap)| JobSeen {
        number,
        arrival: Time::from_ns(at),
        window: Span::ZERO,
        release: Time::from_ns(at),
        complete: complete.map(Time::from_ns),
        exec: None,
        gap,
    });
    Sample { jobs: jobs.collect(), ..Sample::default() }
}

#[test]
fn lost_events_and_late_jobs_explain_what_is_missing() {
    let mut dice = Dice(5);
    // A recorder that lost a second: 100 periods are missing, and the numbers go on.
    let times = (0..400u64).filter(|k| !(150..250).contains(k)).map(|k| (k, k * 10 * MS + dice.below(3 * MS)));
    let times: Vec<(u64, u64)> = times.collect();
    let lossy = |keep: bool| {
        sample(times.iter().enumerate().map(|(i, (k, at))| (if keep { *k } else { i as u64 }, *at, None, *k == 250)))
    };
    for keep in [true, false] {
        let arrivals = Arrivals::of(&lossy(keep));
        let found = arrivals.grid.unwrap_or_else(|| panic!("{keep}: {}", arrivals.why));
        assert!(found.period.as_ns().abs_diff(10 * MS) * 1000 <= 10 * MS, "{found:?}");
        assert_eq!((found.skipped, found.explained), (0, if keep { 0 } else { 100 }));
        assert!(arrivals.curve[0].max < Span::from_ms(14), "nothing is told of what is missing");
    }
    // Each tenth job takes two and a half periods, and the thread waits for the next instant that
    // is still to come.
    let mut k = 0;
    let jobs = (0..300u64).map(|i| {
        let at = k * 10 * MS;
        let late = i % 10 == 9;
        let complete = at + if late { 25 * MS } else { MS };
        k += if late { 3 } else { 1 };
        (i, at, Some(complete), false)
    });
    let arrivals = Arrivals::of(&sample(jobs));
    let found = arrivals.grid.unwrap_or_else(|| panic!("{}", arrivals.why));
    assert_eq!((found.period, found.skipped, found.explained), (Span::from_ms(10), 0, 58));
}

#[test]
fn wide_windows_count_less_than_narrow_ones() {
    let mut dice = Dice(6);
    let releases: Vec<(Time, Span)> = (0..300)
        .map(|k| {
            let vague = dice.below(4) == 0;
            let late = if vague { dice.below(5 * MS) } else { dice.below(10_000) };
            (Time::from_ns(k * 10 * MS + late), Span::from_ns(if vague { 5 * MS } else { 0 }))
        })
        .collect();
    let arrivals = Arrivals::of(&Sample::of_releases(&releases));
    let found = arrivals.grid.unwrap_or_else(|| panic!("{}", arrivals.why));
    assert_eq!(found.period, Span::from_ms(10));
    assert!(found.jitter < Span::from_us(11) && arrivals.vague > 40 && found.skipped == 0, "{found:?}");
}

#[test]
fn more_jobs_say_more() {
    assert!((holds_for(1, 0) - 0.05).abs() < 1e-6 && (holds_for(299, 0) - 0.99).abs() < 1e-4);
    assert!(holds_for(1000, 0) > holds_for(1000, 1) && holds_for(1000, 1) > holds_for(1000, 20));
    assert_eq!((holds_for(0, 0), holds_for(5, 5)), (0.0, 0.0));
    // The normal approximation of 50 in 1000: 5 % + 1.645 * 0.69 %.
    assert!((holds_for(1000, 50) - 0.937).abs() < 0.003, "{}", holds_for(1000, 50));
}

/// Two tasks: `first` as it comes, the second released by `cause` of the first's completion.
fn links_between(jobs: u64, mut first: impl FnMut(u64) -> (u64, u64), second: impl Fn(u64, u64) -> u64) -> Vec<Links> {
    let firsts: Vec<(u64, u64)> = (0..jobs).map(&mut first).collect();
    let a = sample(firsts.iter().enumerate().map(|(k, (at, complete))| (k as u64, *at, Some(*complete), false)));
    let b = sample(firsts.iter().enumerate().map(|(k, (_, complete))| {
        let at = second(k as u64, *complete);
        (k as u64, at, Some(at + MS / 2), false)
    }));
    links(&[a, b], |_, _| true)
}

#[test]
fn chains_are_what_completions_explain() {
    let mut dice = Dice(7);
    let mut vary = |k: u64| (k * 10 * MS, k * 10 * MS + MS + dice.below(3 * MS));
    // Released by completions, at once or a little later.
    for lag in [0, 40_000] {
        let found =
            links_between(100, &mut vary, |k, complete| complete + lag + if lag > 0 { k % 7 * 3_000 } else { 0 });
        assert_eq!(found[1].after.len(), 1, "{found:?}");
        let link = &found[1].after[0];
        assert_eq!((link.task.0, link.jobs), (0, 100));
        assert!(link.confidence > 0.97 && found[0].after.is_empty() && found[0].maybe.is_empty());
    }
    // One period and a phase, but no cause.
    let found = links_between(100, &mut vary, |k, _| k * 10 * MS + 5 * MS);
    assert_eq!(found, [Links::default(), Links::default()]);
    // Right after completions that never vary: perhaps.
    let found = links_between(100, |k| (k * 10 * MS, k * 10 * MS + 2 * MS), |_, complete| complete);
    assert!(found[1].after.is_empty() && found[1].maybe == [takt_model::TaskId(0)], "{found:?}");
    // Few jobs say nothing.
    assert_eq!(links_between(5, &mut vary, |_, complete| complete)[1], Links::default());
}

#[test]
fn joined_chains_need_all_their_predecessors() {
    let mut dice = Dice(8);
    let mut random = |phase: u64| -> Vec<u64> { (0..200).map(|k| k * 10 * MS + phase + dice.below(4 * MS)).collect() };
    let (a, b, other) = (random(MS), random(MS), random(2 * MS));
    let task = |completes: &[u64]| {
        sample(completes.iter().enumerate().map(|(k, c)| (k as u64, k as u64 * 10 * MS, Some(*c), false)))
    };
    let joined =
        sample(a.iter().zip(&b).enumerate().map(|(k, (a, b))| (k as u64, *a.max(b), Some(a.max(b) + MS), false)));
    let found = links(&[task(&a), task(&b), task(&other), joined], |_, _| true);
    let after: Vec<u32> = found[3].after.iter().map(|link| link.task.0).collect();
    assert_eq!(after, [0, 1], "{found:?}");
    assert!(found[..3].iter().all(|links| links.after.is_empty() && links.maybe.is_empty()), "{found:?}");
}
