//! Several jobs in each period: groups that follow each other regularly, and bursts that have room
//! between them.

use std::f64::consts::TAU;

use takt_model::Span;

use super::grid::{Point, Strip, simplest};
use super::sample::JobSeen;
use super::walk::{DeviationStatistics, F_MAX, SERIAL_MAX};

/// With fewer arrivals nothing is said of bursts.
const ARRIVALS_MIN: usize = 100;
/// So many arrivals are searched for a period; all have to keep to it.
const SEARCHED: usize = 256;
/// Periods of more than so many mean distances are not looked for.
const JOBS_MAX: f64 = 16.0;
/// A peak of the spectrum below this is chance (its height is exponentially distributed, and some
/// hundreds are looked at); one above is held against all arrivals.
const PEAK_MIN: f64 = 16.0;
/// The spectrum is computed at so many places at once: their sums do not wait for each other.
const AT_ONCE: usize = 4;
/// So much of each period is free of arrivals at least.
const FREE: f64 = 0.2;
/// So many periods have jobs at least.
const FRAMES_MIN: usize = 50;
/// Groups of more jobs are not looked for.
const GROUP_MAX: usize = 8;
/// Each group of up to [`GROUP_MAX`] jobs fits into this number a whole number of times.
const GROUPS_FIT: usize = 840;
/// Groups are looked for where so many of them were seen.
const GROUPS_MIN: f64 = 4.0;

/// Several jobs in each period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bursts {
    /// How many at most.
    pub jobs: u64,
    /// The period: of those that fit the simplest number.
    pub period: Span,
    /// From the earliest place of an arrival in its period to the latest.
    pub within: Span,
}

impl Bursts {
    /// The period that leaves a part of itself free of arrivals, each time: the highest peak of the
    /// spectrum of the first arrivals (R. V. Mardia, P. E. Jupp, "Directional Statistics", 2000:
    /// Rayleigh's test), held against all of them.
    pub(crate) fn of(jobs: &[JobSeen]) -> Option<Bursts> {
        let first = jobs.first()?.arrival;
        let times: Vec<f64> = jobs.iter().map(|job| job.arrival.saturating_since(first).as_ns() as f64).collect();
        if times.len() < ARRIVALS_MIN {
            return None;
        }
        let mut frames = Frames::search(&times[..times.len().min(SEARCHED)])?;
        let mut fitted = times.len().min(SEARCHED);
        loop {
            // The period is known the better the more arrivals are numbered.
            frames = frames.fit(&times[..fitted])?.fit(&times[..fitted])?;
            if fitted == times.len() {
                break;
            }
            fitted = (fitted * 2).min(times.len());
        }
        frames.bursts(&times)
    }

    /// Bursts in groups of so many points, each at its place in the period of a group.
    pub(crate) fn grouped(points: &[Point], size: u32) -> Option<Bursts> {
        let size = i64::from(size);
        // The narrowest strip around the points of one place tells the period.
        let at_place = |place: i64| {
            let own = points.iter().filter(|point| point.k.rem_euclid(size) == place);
            Strip::of(&own.map(|point| Point { k: point.k.div_euclid(size), a: point.a }).collect::<Vec<Point>>())
        };
        let strip = (0..size).filter_map(at_place).min_by_key(|strip| strip.best().jitter)?;
        let width = strip.best().jitter;
        let (low, high) = strip.periods(width + width / 16 + 1).unwrap_or((strip.period(), strip.period()));
        // The first job of a group is unknown: the choice that makes groups short.
        let within = |first: i64| {
            let groups = points.chunk_by(|a, b| (a.k - first).div_euclid(size) == (b.k - first).div_euclid(size));
            groups.filter_map(|group| Some(group.last()?.a - group.first()?.a)).max().unwrap_or(0)
        };
        let within = (0..size).map(within).min().unwrap_or(0);
        Some(Bursts {
            jobs: size.unsigned_abs(),
            period: Span::from_ns(simplest(low, high, strip.period()).unsigned_abs()),
            within: Span::from_ns(within.unsigned_abs()),
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Frames {
    period: f64,
    middle: f64,
}

impl Frames {
    fn search(times: &[f64]) -> Option<Frames> {
        let (n, range) = (times.len() as f64, times.last()?);
        if *range <= 0.0 {
            return None;
        }
        // In the range there are `k / 4` periods.
        let (least, most) = ((4.0 * n / JOBS_MAX).ceil() as u64, (4.0 * n / 1.5) as u64);
        let mut best = (0.0, Frames { period: 0.0, middle: 0.0 });
        let least = least.max(1);
        // Each arrival turns by the same angle from one `k` to the next: a product instead of a
        // sine.
        let angle = |time: &f64, k: u64| (time / range * TAU * k as f64 / 4.0).sin_cos();
        let mut turns: Vec<_> = times.iter().map(|time| (angle(time, least), angle(time, 1))).collect();
        for first in (least..most).step_by(AT_ONCE) {
            let mut sums: [(f64, f64); AT_ONCE] = [(0.0, 0.0); AT_ONCE];
            for ((s, c), (turn_s, turn_c)) in &mut turns {
                for (sin, cos) in &mut sums {
                    (*sin, *cos) = (*sin + *s, *cos + *c);
                    (*s, *c) = (*s * *turn_c + *c * *turn_s, *c * *turn_c - *s * *turn_s);
                }
            }
            for (k, (sin, cos)) in (first..most).zip(sums) {
                let period = range * 4.0 / k as f64;
                let power = (sin * sin + cos * cos) / n;
                if power > best.0 {
                    best = (power, Frames { period, middle: f64::atan2(sin, cos) / TAU * period });
                }
            }
        }
        (best.0 >= PEAK_MIN).then_some(best.1)
    }

    fn number(self, time: f64) -> f64 {
        ((time - self.middle) / self.period).round()
    }

    /// The line through the arrivals over the numbers of their periods.
    fn fit(self, times: &[f64]) -> Option<Frames> {
        let n = times.len() as f64;
        let numbers = times.iter().map(|time| self.number(*time));
        let (k, a) =
            times.iter().zip(numbers.clone()).fold((0.0, 0.0), |(k, a), (time, number)| (k + number, a + time));
        let (k, a) = (k / n, a / n);
        let (above, below) = times.iter().zip(numbers).fold((0.0, 0.0), |(above, below), (time, number)| {
            (above + (number - k) * (time - a), below + (number - k) * (number - k))
        });
        let period = above / below;
        (below > 0.0 && period > 1.0).then_some(Frames { period, middle: a - k * period })
    }

    fn bursts(self, times: &[f64]) -> Option<Bursts> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut most, mut count, mut last) = (0u64, 0u64, f64::NEG_INFINITY);
        let mut firsts = Vec::new();
        for time in times {
            let number = self.number(*time);
            let place = time - self.middle - number * self.period;
            (low, high) = (low.min(place), high.max(place));
            if number > last {
                (count, last) = (0, number);
                firsts.push(place);
            }
            count += 1;
            most = most.max(count);
        }
        let within = high - low;
        let many = firsts.len() >= FRAMES_MIN && times.len() * 2 >= firsts.len() * 3;
        let DeviationStatistics { f, serial, .. } = DeviationStatistics::of(&firsts);
        let wanders = f > F_MAX || serial > SERIAL_MAX / 2.0 + 2.0 / (firsts.len() as f64).sqrt();
        if !many || within > self.period * (1.0 - FREE) || wanders {
            return None;
        }
        // Twice what a line through so many points with such deviations may be wrong by.
        let error = 2.0 * within / ((last - self.number(times[0])).max(1.0) * (times.len() as f64).sqrt());
        let [low, near, high] =
            [self.period - error, self.period, self.period + error].map(|period| period.round() as i64);
        let period = Span::from_ns(simplest(low.max(1), high, near).unsigned_abs());
        Some(Bursts { jobs: most, period, within: Span::from_ns(within.ceil() as u64) })
    }
}

/// The size of the groups in which jobs come (1: no groups). Also the share of the deviations'
/// variance that the place of a job in its group explains.
///
/// This is the analysis of variance of R. A. Fisher. The share is corrected for the number of
/// places (M. Ezekiel, "Methods of Correlation Analysis", 1930). Of several sizes the best by the
/// criterion of G. Schwarz counts ("Estimating the dimension of a model", Ann. Stat. 6, 1978).
pub(crate) fn group(points: &[Point], deviations: &[f64]) -> (u32, f64) {
    let n = points.len() as f64;
    let mean = deviations.iter().sum::<f64>() / n;
    let mut places = vec![(0.0, 0.0); GROUPS_FIT];
    let (mut squares, mut used) = (0.0, 0);
    for (point, deviation) in points.iter().zip(deviations) {
        let place = point.k.rem_euclid(GROUPS_FIT as i64) as usize;
        used = used.max(place + 1);
        let (sum, count) = &mut places[place];
        (*sum, *count) = (*sum + deviation - mean, *count + 1.0);
        squares += (deviation - mean) * (deviation - mean);
    }
    // Stamps are whole nanoseconds, and sums are rounded: what is less explains nothing.
    let rounding = n + squares * 1e-9;
    let (mut least, mut best) = (n * (squares + rounding).ln(), (1, 0.0));
    for size in 2..=GROUP_MAX {
        let mut own = [(0.0, 0.0); GROUP_MAX];
        for group in places[..used].chunks(size) {
            for ((own_sum, own_count), (sum, count)) in own.iter_mut().zip(group) {
                (*own_sum, *own_count) = (*own_sum + sum, *own_count + count);
            }
        }
        if own[..size].iter().any(|(_, count)| *count < GROUPS_MIN) {
            continue;
        }
        let rest = (squares - own[..size].iter().map(|(sum, count)| sum * sum / count).sum::<f64>()).max(0.0);
        let others = (size - 1) as f64;
        let criterion = n * (rest + rounding).ln() + others * n.ln();
        if criterion < least {
            (least, best) = (criterion, (size as u32, 1.0 - rest / squares * (n - 1.0) / (n - 1.0 - others)));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use takt_model::Time;

    use super::*;

    fn of(arrivals: impl Iterator<Item = u64>) -> Option<Bursts> {
        let job = |(number, at)| JobSeen {
            number: number as u64,
            arrival: Time::from_ns(at),
            window: Span::ZERO,
            release: Time::from_ns(at),
            complete: None,
            exec: None,
            gap: false,
        };
        Bursts::of(&arrivals.enumerate().map(job).collect::<Vec<_>>())
    }

    /// Numbers below `most` that look random.
    fn mixed(k: u64, most: u64) -> u64 {
        let mut z = k.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % most
    }

    #[test]
    fn frames_with_some_jobs_each_are_found() {
        for (jobs, period, spread) in [(3, 16_666_667, 10_000_000), (2, 50_000_000, 100_000), (5, 8_000_000, 6_000_000)]
        {
            // One in twenty is missing.
            let mut arrivals: Vec<u64> = (0..300 * jobs)
                .filter(|k| mixed(*k, 20) > 0)
                .map(|k| k / jobs * period + mixed(k + 7_000, spread))
                .collect();
            arrivals.sort_unstable();
            let found = of(arrivals.into_iter()).expect("a burst each period");
            assert!(found.jobs == jobs && found.within.as_ns() <= spread + spread / 20, "{found:?}");
            assert!(found.period.as_ns().abs_diff(period) * 1000 <= period, "{found:?} of {period}");
        }
    }

    #[test]
    fn arrivals_at_any_time_are_no_bursts() {
        for seed in 0..200 {
            let (mut at, shape) = (0, seed % 3);
            let arrivals = (0..120 + mixed(seed, 400)).map(|k| {
                let draw = mixed(seed * 1000 + k, 1 << 20) as f64 / f64::from(1 << 20);
                at += match shape {
                    0 => (-(1.0 - draw).ln() * 1e6) as u64,
                    1 => 1_000_000 + (draw * 1e6) as u64,
                    _ => {
                        if draw < 0.7 {
                            100_000
                        } else {
                            (draw * 8e6) as u64
                        }
                    }
                };
                at
            });
            let arrivals: Vec<u64> = arrivals.collect();
            assert_eq!(of(arrivals.into_iter()), None, "seed {seed}");
        }
    }
}
