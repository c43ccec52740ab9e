//! Is a task periodic, and with which period?
//!
//! Arrivals are numbered, and the narrowest strip around them is found ([`super::grid`]). The
//! question is: do deviations from the grid add up?
//!
//! - Jitter: each arrival deviates by itself. The strip stays as wide as the jitter for any number
//!   of arrivals.
//! - A sporadic task or a relative sleep: each arrival counts from the arrival before, so
//!   deviations are a random walk. After n distances of standard deviation σ the strip is about σ√n
//!   wide.
//!
//! [`Q_MAX`] separates the two. Q = width / (σ√n) is 2.45/√n for uniform jitter. A walk of
//! independent steps (uniform, normal, exponential, rare large ones) seldom has such a small Q: P(Q
//! <= q) falls as exp(-π²/2q²) (the range of a Brownian bridge; W. Feller, "The asymptotic
//! distribution of the range of sums of independent random variables", Ann. Math. Stat. 22, 1951).
//!
//! Dependent steps can keep Q small although deviations wander. Then the mean deviation differs
//! between parts of the recording by more than independent deviations allow ([`F_MAX`]), and by
//! more than phases of latencies explain. Or deviations rise and fall by turns, as under two modes:
//! then each deviation is much like the one before. If the turns are short, jobs up to the first
//! repetition are a group, and such groups are reported as bursts ([`group`]). Deviations that run
//! through their range and jump back, as beside another clock, are jitter.
//!
//! A tight grid is accepted at a larger Q, too, if its period is a very round number
//! ([`super::walk`]). A sleep from the last job on takes its length and some latency, which gives
//! no round number. Arrivals that deviate by a period or more lie on no grid. If several come in
//! each period of a longer grid, they are bursts.
//!
//! A few outliers (late wake-ups) are left out of this question and of the period, but not of the
//! jitter. Up to three arrivals at the ends, a thread's start and end, are left out of the grid
//! altogether if the others fit a grid more clearly than usual (Q <= 0.30).

use std::cell::LazyCell;

use takt_model::{Span, Time, gcd, named};

use super::bursts::{Bursts, group};
use super::grid::{Place, Point, Strip, simplest};
use super::sample::{JobSeen, Sample};
use super::walk::{DeviationStatistics, F_MAX, SERIAL_MAX, deviations, is_round, walk_ratio};

/// Up to this Q, deviations from the grid do not add up.
const Q_MAX: f64 = 0.40;
/// With fewer distances, arrivals that deviate from a grid are `Unknown`.
const WALK_MIN: usize = 20;
/// With this many distances, unproven deviations count as accumulating. Uniform jitter would have
/// been proven bounded by then.
const WALK_SURE: usize = 300;
/// With fewer distances, all arrivals are `Unknown`.
const DISTANCES_MIN: usize = 4;
/// Deviations below this fraction of the period (1/100000) count as none.
const EXACT_PART: u64 = 100_000;
/// At most this fraction of the periods (1/50) may lack an arrival for no known reason.
const SKIPS_PART: u64 = 50;
/// The finer of two grids is chosen if its jitter is smaller by more than this fraction (1/8).
const TIGHTER_PART: u64 = 8;
/// At most this fraction of the arrivals (1/20) may be outliers. Three may always be.
const OUTLIERS_PART: usize = 20;
/// An outlier is this many times farther from the middle than half of the arrivals.
const OUTLIER_FACTOR: f64 = 6.0;
/// The least distance is the period of a sporadic task if it is at least this fraction (1/4) of the
/// mean distance.
const MEAN_PART: u64 = 4;
/// The limit of Q when arrivals at the ends are left out. It is lower, because there are more tries.
const Q_ENDS: f64 = 0.30;
/// The most arrivals that may be left out at both ends together.
const ENDS_MAX: usize = 3;
/// Random walks of some hundred steps mostly exceed this Q. Real wake-ups, whose latencies come in
/// phases, did not.
const Q_WALK: f64 = 0.80;
/// Above this over √n, deviations add up, however few they are. With uniform jitter Q exceeds it
/// once in some hundred times.
const Q_SURE: f64 = 3.7;
const NO_GRID: &str = "its arrivals lie on no grid";
/// Mean deviations of parts of a recording may differ by this fraction of the period (1/100), because
/// latencies come in phases. Below this jitter there is no search for groups.
const WANDER_PART: u64 = 100;
/// Up to this fraction of the period (1/20), groups are bursts only above [`TIGHT_MAX`], and deviations may depend on
/// those before. Latencies of real threads do: groups explain up to 0.65 of their variance. One cause is the kernel's
/// tick, which each fourth job may meet.
const LOOSE_PART: u64 = 20;
const TIGHT_MAX: f64 = 0.98;
/// For larger deviations, groups that explain more of the variance are bursts.
const EXPLAINED_MAX: f64 = 0.6;
/// Groups are searched for if at least four of five periods have a job.
const DENSE: i64 = 5;
/// The largest number of arrivals in the arrival curve.
const CURVE_MAX: usize = 16;

named! {
    /// How a task's jobs arrive.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Kind {
        /// At o + kT, each later by at most a jitter.
        Periodic => "periodic",
        /// At distances of at least a period, which is no small part of the mean.
        Sporadic => "sporadic",
        /// In bursts, or at distances without a useful minimum.
        Aperiodic => "aperiodic",
        /// Too few arrivals to tell.
        Unknown => "unknown",
    }
}

/// The grid of a periodic task. Arrival k lies in `first + k period` to `first + k period + jitter`.
/// If the first of these intervals began before time zero, `first` is zero, and some arrivals are
/// earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// The period: of those with nearly the least jitter the simplest number.
    pub period: Span,
    /// No period below this explains the arrivals, unless their true jitter is more than twice what
    /// was seen.
    pub period_min: Span,
    /// The same above.
    pub period_max: Span,
    /// The nominal arrival of job 0.
    pub first: Time,
    /// The largest deviation from the nominal arrival.
    pub jitter: Span,
    /// The same without outliers.
    pub typical_jitter: Span,
    /// Arrivals that stand out.
    pub outliers: u64,
    /// Periods without an arrival: the job before was late, or events were lost.
    pub explained: u64,
    /// Periods without an arrival for no known reason.
    pub skipped: u64,
    /// Deviations repeat after so many jobs, within a small jitter; 1: they do not.
    pub group: u32,
}

/// The shortest and longest times in which so many jobs arrived, from the first of them to the
/// last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurveStep {
    /// How many, at least 2.
    pub jobs: u64,
    /// The shortest: an upper arrival curve's step.
    pub min: Span,
    /// The longest: a lower arrival curve's step.
    pub max: Span,
}

/// The findings about the arrivals of a task.
#[derive(Clone, PartialEq, Debug)]
pub struct Arrivals {
    /// How they arrive.
    pub kind: Kind,
    /// Why: for people.
    pub why: String,
    /// The grid of a periodic task.
    pub grid: Option<Grid>,
    /// How jobs stand to each other, of 2, 3, ... jobs.
    pub curve: Vec<CurveStep>,
    /// The mean distance.
    pub mean: Option<Span>,
    /// Distances of neighbours between which nothing is missing, ascending.
    pub distances: Vec<u64>,
    /// The least jitter with which the mean distance, as a period, bounds the arrivals.
    pub backlog: Span,
    /// The first arrival.
    pub first: Time,
    /// Share of the arrivals that keep to `kind` at least, at 95 % confidence; zero where it is
    /// unknown.
    pub confidence: f64,
    /// How many arrivals lie in windows so wide that they were not used for the grid.
    pub vague: u64,
    /// The bursts of an aperiodic task.
    pub bursts: Option<Bursts>,
}

impl Arrivals {
    /// The findings from a sample.
    #[must_use]
    pub fn of(sample: &Sample) -> Arrivals {
        let jobs = &sample.jobs;
        let pieces: Vec<&[JobSeen]> =
            jobs.chunk_by(|job, next| !next.gap && next.number <= job.number.saturating_add(1)).collect();
        let mut distances: Vec<u64> = pieces.iter().flat_map(|piece| piece.windows(2).map(distance)).collect();
        distances.sort_unstable();
        let mean = mean_of(&distances);
        let mut arrivals = Arrivals {
            kind: Kind::Unknown,
            why: String::new(),
            grid: None,
            curve: curve(&pieces),
            mean: mean.map(Span::from_ns),
            backlog: Span::from_ns(
                mean.map_or(0, |mean| pieces.iter().map(|piece| backlog(piece, mean)).max().unwrap_or(0)),
            ),
            distances,
            first: jobs.first().map_or(Time::ZERO, |job| job.arrival),
            confidence: 0.0,
            vague: 0,
            bursts: None,
        };
        let (Some(least), Some(mean)) = (arrivals.distances.first().copied(), mean) else {
            arrivals.why = format!("{} jobs have no distances", jobs.len());
            return arrivals;
        };
        if mean == 0 && arrivals.distances.len() >= WALK_MIN {
            (arrivals.kind, arrivals.why) = (Kind::Aperiodic, "all arrive at once".to_owned());
            arrivals.confidence = holds_for(arrivals.distances.len() as u64, 0);
            return arrivals;
        }
        let known: Vec<JobSeen> = precise(jobs, arrivals.distances[arrivals.distances.len() / 2]);
        arrivals.vague = (jobs.len() - known.len()) as u64;
        match decide_with_ends(&known, &arrivals.distances) {
            Found::Grid(grid, why) => {
                (arrivals.kind, arrivals.why) = (Kind::Periodic, why);
                arrivals.confidence = holds_for(jobs.len() as u64, grid.skipped);
                arrivals.grid = Some(grid);
            }
            Found::None(why, false) => arrivals.why = why,
            Found::Bursts(bursts) => arrivals.set_bursts(bursts),
            Found::None(why, true) => {
                let sporadic = least >= (mean / MEAN_PART).max(1);
                arrivals.kind = if sporadic { Kind::Sporadic } else { Kind::Aperiodic };
                arrivals.why = why;
                arrivals.confidence = holds_for(arrivals.distances.len() as u64, 0);
                if !sporadic && let Some(bursts) = Bursts::of(&known) {
                    arrivals.set_bursts(bursts);
                }
            }
        }
        arrivals
    }

    /// Jobs come in bursts.
    fn set_bursts(&mut self, bursts: Bursts) {
        let (period, within) = (bursts.period.four_digits(), bursts.within.four_digits());
        self.why = format!("up to {} jobs come in each period of {period}, within {within}", bursts.jobs);
        (self.kind, self.bursts) = (Kind::Aperiodic, Some(bursts));
        self.confidence = holds_for(self.distances.len() as u64, 0);
    }
}

/// The share of all cases that are like the `n` seen ones, at least, at 95 % confidence, if
/// `others` of the seen cases were not (Clopper and Pearson). If `others` is 0, it is 0.05^(1/n),
/// the rule of three.
#[must_use]
pub fn holds_for(n: u64, others: u64) -> f64 {
    if n == 0 || others >= n {
        return 0.0;
    }
    let n = n as f64;
    // P(at most `others` of n | share q of others), in logarithms: terms far below one underflow to
    // nothing.
    let at_most = |q: f64| {
        let mut log_term = n * (1.0 - q).ln();
        let mut sum = log_term.exp();
        for i in 0..others.min(100_000) {
            log_term += ((n - i as f64) / (i as f64 + 1.0)).ln() + (q / (1.0 - q)).ln();
            sum += log_term.exp();
        }
        sum
    };
    let (mut low, mut high) = (0.0, 1.0 - 1e-12);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(middle) > 0.05 { low = middle } else { high = middle }
    }
    1.0 - high
}

fn distance(pair: &[JobSeen]) -> u64 {
    pair[1].arrival.saturating_since(pair[0].arrival).as_ns()
}

fn mean_of(values: &[u64]) -> Option<u64> {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    let n = u128::try_from(values.len()).ok().filter(|n| *n > 0)?;
    u64::try_from(sum / n).ok()
}

fn curve(pieces: &[&[JobSeen]]) -> Vec<CurveStep> {
    let of = |jobs: usize| {
        let spans = pieces.iter().flat_map(|piece| piece.windows(jobs)).map(|window| {
            let (first, last) = (window[0].arrival, window[jobs - 1].arrival);
            last.saturating_since(first)
        });
        let (min, max) = spans.fold((Span::MAX, Span::ZERO), |(min, max), span| (min.min(span), max.max(span)));
        (min <= max).then_some(CurveStep { jobs: jobs as u64, min, max })
    };
    (2..=CURVE_MAX).map_while(of).collect()
}

/// The least J with which `period` and J bound the arrivals: (j - i) T - (a_j - a_i) over all i <
/// j, at least zero.
fn backlog(piece: &[JobSeen], period: u64) -> u64 {
    let Some(first) = piece.first() else { return 0 };
    let (mut least, mut most) = (0i128, 0i128);
    for (k, job) in piece.iter().enumerate() {
        let behind = k as i128 * i128::from(period) - i128::from(job.arrival.saturating_since(first.arrival).as_ns());
        least = least.min(behind);
        most = most.max(behind - least);
    }
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// The arrivals whose windows are at most a twentieth of the median distance. All arrivals, if these
/// are not the majority. Other arrivals between them are no gap.
fn precise(jobs: &[JobSeen], median: u64) -> Vec<JobSeen> {
    let is_precise = |job: &&JobSeen| job.window.as_ns() <= median / 20;
    let count = jobs.iter().filter(is_precise).count();
    if count * 2 < jobs.len() || count <= DISTANCES_MIN {
        return jobs.to_vec();
    }
    let mut kept: Vec<JobSeen> = Vec::with_capacity(count);
    let mut gap = false;
    for job in jobs {
        gap |= job.gap;
        if is_precise(&job) {
            kept.push(JobSeen { gap, ..*job });
            gap = false;
        }
    }
    kept
}

enum Found {
    Grid(Grid, String),
    /// No grid: the reason, and whether it is certain.
    None(String, bool),
    /// No grid, because several jobs come in each period.
    Bursts(Bursts),
}

/// [`decide`], and without a grid once more without some of the first and last arrivals. A starting
/// thread waits for others, and an ending thread is woken to end. Neither begins a period.
fn decide_with_ends(known: &[JobSeen], distances: &[u64]) -> Found {
    let whole = decide(known, distances, Q_MAX);
    if !matches!(whole, Found::None(..)) {
        return whole;
    }
    let tries = (0..=ENDS_MAX).flat_map(|first| (0..=ENDS_MAX).map(move |last| (first, last))).skip(1);
    let mut tries: Vec<(usize, usize)> = tries.filter(|(first, last)| first + last <= ENDS_MAX).collect();
    tries.sort_by_key(|(first, last)| (first + last, *last));
    for (first, last) in tries {
        let Some(core) = known.get(first..known.len().saturating_sub(last)) else { break };
        if core.len() <= WALK_MIN {
            break;
        }
        if let Found::Grid(grid, why) = decide(core, distances, Q_ENDS) {
            let without = match (first, last) {
                (_, 0) => format!("the first {first}"),
                (0, _) => format!("the last {last}"),
                _ => format!("the first {first} and the last {last}"),
            };
            return Found::Grid(grid, format!("{why}; but for {without}, which came before the start or at the end"));
        }
    }
    whole
}

fn decide(known: &[JobSeen], distances: &[u64], q_max: f64) -> Found {
    if distances.len() < DISTANCES_MIN || known.len() <= DISTANCES_MIN {
        return Found::None(format!("too few distances: {}", distances.len()), false);
    }
    let median = distances[distances.len() / 2];
    let mut none: Option<(String, bool, Numbering)> = None;
    let mut best: Option<(Grid, String)> = None;
    let mut judged: Vec<Numbered> = Vec::new();
    // Each job has a period of its own, or some periods have no job.
    for (parts, numbering) in [(1, Numbering::Own), (1, Numbering::Slots), (2, Numbering::Slots), (3, Numbering::Slots)]
    {
        let Some(numbered) = number(known, median / parts, numbering) else { continue };
        // Equal numbers give the same answer. If a grid was found, this holds across numberings.
        let is_known = |before: &Numbered| {
            (before.numbering == numbering || best.is_some())
                && before.points == numbered.points
                && before.at == numbered.at
        };
        if judged.iter().any(is_known) {
            continue;
        }
        match judge(&numbered, known, q_max) {
            bursts @ Found::Bursts(_) if best.is_none() => return bursts,
            Found::Bursts(_) => {}
            // The reason against a grid with empty periods says more than the absence of a grid.
            Found::None(why, sure) => {
                let says_more = none.as_ref().is_none_or(|(.., before)| {
                    sure && why != NO_GRID && numbering == Numbering::Slots && *before == Numbering::Own
                });
                none = if says_more { Some((why, sure, numbering)) } else { none };
            }
            // The tighter of two that hold. A finer grid is always tighter, by a little.
            Found::Grid(grid, why) => {
                let tighter = |before: &Grid| {
                    grid.typical_jitter.as_ns() < before.typical_jitter.as_ns() / TIGHTER_PART * (TIGHTER_PART - 1)
                };
                if best.as_ref().is_none_or(|(before, _)| tighter(before)) {
                    best = Some((grid, why));
                }
            }
        }
        if best.as_ref().is_some_and(|(grid, _)| grid.typical_jitter.as_ns() < grid.period.as_ns() / 20) {
            break;
        }
        judged.push(numbered);
    }
    if let Some((grid, why)) = best {
        return Found::Grid(grid, why);
    }
    let (why, sure) = none.map_or_else(|| (NO_GRID.to_owned(), false), |(why, sure, _)| (why, sure));
    Found::None(why, sure)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbering {
    /// By the numbers of the jobs.
    Own,
    /// By the distances: the number of periods that fit best.
    Slots,
}

/// Arrivals with the number of the period to which each belongs.
struct Numbered {
    points: Vec<Point>,
    /// The place of each point among the given jobs.
    at: Vec<usize>,
    numbering: Numbering,
}

/// Numbers each arrival from the arrival before, so that deviations can add up. A gap may be too
/// long to tell its number of periods. Then only the longer side is numbered.
fn number(jobs: &[JobSeen], period: u64, numbering: Numbering) -> Option<Numbered> {
    let period = f64::max(period as f64, 1.0);
    let origin = jobs.first()?.arrival;
    let mut runs: Vec<Vec<(usize, Point)>> = vec![Vec::new()];
    let (mut k, mut mean, mut since) = (0i64, period, (0i64, 0i64));
    let mut spread = 0.0f64;
    for (at, job) in jobs.iter().enumerate() {
        let a = Some(job.arrival.saturating_since(origin)).filter(|a| *a <= Span::FILE_MAX)?;
        let a = i64::try_from(a.as_ns()).ok()?;
        if let Some((before_at, before)) = runs.last().and_then(|run| run.last()).copied() {
            let numbers = i64::try_from(job.number.saturating_sub(jobs[before_at].number)).ok()?.max(1);
            let periods = (a - before.a) as f64 / mean;
            let nearest = periods.round() as i64;
            let step = match numbering {
                Numbering::Own if !job.gap || nearest == numbers => numbers,
                Numbering::Own => nearest.max(1),
                Numbering::Slots if nearest < 1 => return None,
                Numbering::Slots => nearest,
            };
            let unsure = job.gap && step != numbers && {
                let seen = (k - since.0).max(1) as f64;
                periods * spread.max(mean / 16.0) / seen > mean / 4.0
            };
            k = k.checked_add(step)?;
            if unsure {
                runs.push(Vec::new());
                (since, spread) = ((k, a), 0.0);
            } else if k > since.0 {
                mean = (a - since.1) as f64 / (k - since.0) as f64;
                spread = spread.max(((a - before.a) as f64 - step as f64 * mean).abs());
            }
        } else {
            since = (k, a);
        }
        if let Some(run) = runs.last_mut() {
            run.push((at, Point { k, a }));
        }
    }
    let longest = runs.into_iter().max_by_key(Vec::len)?;
    let (at, mut points): (Vec<usize>, Vec<Point>) = longest.into_iter().unzip();
    if let (Numbering::Slots, Some(first)) = (numbering, points.first().map(|point| point.k)) {
        // If all arrivals lie whole groups of periods apart, such a group is the period; unless jobs are left out.
        let group = common_step(&points, first);
        let all_seen = || at.windows(2).all(|pair| jobs[pair[1]].number.saturating_sub(jobs[pair[0]].number) <= 1);
        if group > 1 && all_seen() {
            points.iter_mut().for_each(|point| point.k = first / group + (point.k - first) / group);
        }
    }
    Some(Numbered { points, at, numbering })
}

/// The greatest number that divides all distances of `points` from number `first`. Most often it is 1 after a few.
fn common_step(points: &[Point], first: i64) -> i64 {
    let mut step = 0;
    for point in points {
        step = gcd((point.k - first).unsigned_abs(), step);
        if step == 1 {
            break;
        }
    }
    i64::try_from(step).unwrap_or(1)
}

fn judge(numbered: &Numbered, jobs: &[JobSeen], q_max: f64) -> Found {
    let points = &numbered.points;
    let n = points.len() - 1;
    if n < DISTANCES_MIN {
        return Found::None(format!("{n} distances without a gap are too few"), false);
    }
    let no_grid = || Found::None(NO_GRID.to_owned(), n >= WALK_SURE);
    let outlying = outliers(points);
    let typical: Vec<Point> = points.iter().zip(&outlying).filter(|(_, out)| !**out).map(|(point, _)| *point).collect();
    let sound = |strip: &Strip| strip.period() > 0;
    let Some(strip) = Strip::of(points).filter(sound) else { return no_grid() };
    // Most often nothing stands out.
    let core = if typical.len() == points.len() { Some(strip.clone()) } else { Strip::of(&typical).filter(sound) };
    let Some(core) = core else { return no_grid() };
    let period = core.period().unsigned_abs();
    let width = core.best().jitter;
    if numbered.numbering == Numbering::Slots && width > period / 2 {
        return no_grid();
    }
    let exact = width <= (period / EXACT_PART).max(2);
    let q = if exact { 0.0 } else { walk_ratio(&typical, &core, width) };
    let loose = width > period / LOOSE_PART;
    let chance = 1.0 / (n as f64).sqrt();
    let most = if loose { (EXPLAINED_MAX + 2.0 * chance).min(TIGHT_MAX) } else { TIGHT_MAX };
    let residuals = LazyCell::new(|| deviations(&typical, &core));
    let (size, explained) = if may_group(numbered, &core) { group(&typical, &residuals) } else { (1, 0.0) };
    if explained > most
        && let Some(bursts) = Bursts::grouped(points, size)
    {
        return Found::Bursts(bursts);
    }
    if n >= WALK_MIN && strip.best().jitter >= period {
        return Found::None("its arrivals deviate from a grid by a period or more".to_owned(), true);
    }
    let believed = q <= q_max || (q <= Q_WALK && is_round(&core, width, period));
    if !exact && (!believed || n < WALK_MIN) {
        let sure = n >= WALK_SURE || (n >= WALK_MIN && q > Q_WALK.max(Q_SURE / (n as f64).sqrt()));
        let why = if sure {
            format!("its deviations from a period accumulate (Q = {q:.2}, over {q_max:.2})")
        } else {
            format!("{n} distances that differ are too few to tell jitter from a sporadic task")
        };
        return Found::None(why, sure);
    }
    if !exact {
        let DeviationStatistics { f, spread, serial } = DeviationStatistics::of(&residuals);
        if f > F_MAX && spread > (period / WANDER_PART) as f64 {
            let why = format!("its deviations from a period drift (F = {f:.1}, over {F_MAX:.1})");
            return Found::None(why, true);
        }
        if loose && serial > SERIAL_MAX + 2.0 * chance {
            return Found::None("its deviations from a period depend on those before".to_owned(), true);
        }
    }
    let group = if explained > SERIAL_MAX + 2.0 * chance { size } else { 1 };
    let outliers = outlying.iter().filter(|out| **out).count() as u64;
    let grid = Grid { outliers, group, ..grid(numbered, jobs, &strip, &core) };
    if grid.skipped.saturating_mul(SKIPS_PART) > n as u64 {
        let share = 100.0 * grid.skipped as f64 / (grid.skipped as f64 + n as f64);
        let why = format!("it arrives on a grid of {}, but not in {share:.0} % of its periods", grid.period);
        return Found::None(why, n >= WALK_MIN);
    }
    let why = if exact {
        "its arrivals lie on a grid".to_owned()
    } else if q <= q_max {
        format!("its deviations from the grid do not accumulate (Q = {q:.2}, at most {q_max:.2})")
    } else {
        format!("its arrivals keep to a grid with a round period (jitter {})", grid.typical_jitter)
    };
    Found::Grid(grid, why)
}

/// Whether groups are looked for: not for few jobs, for a grid with empty places and for small deviations.
fn may_group(numbered: &Numbered, core: &Strip) -> bool {
    let n = numbered.points.len() - 1;
    let range = numbered.points[n].k - numbered.points[0].k;
    let dense = numbered.numbering == Numbering::Own || range / DENSE * (DENSE - 1) <= n as i64;
    n >= WALK_MIN && dense && core.best().jitter > core.period().unsigned_abs() / WANDER_PART
}

/// Marks the arrivals that are far from a line through the middle (the median slope over half of
/// the range; P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63,
/// 1968, thinned). Marks none if too many are far. Marks none if the first or the last is far: the
/// recording does not show that it comes back to the grid.
fn outliers(points: &[Point]) -> Vec<bool> {
    let none = vec![false; points.len()];
    let half = points.len() / 2;
    if points.len() < WALK_MIN {
        return none;
    }
    let slopes = points.iter().zip(&points[half..]);
    let mut slopes: Vec<f64> = slopes.map(|(from, to)| (to.a - from.a) as f64 / (to.k - from.k) as f64).collect();
    let slope = median(&mut slopes);
    let residuals: Vec<f64> = points.iter().map(|point| point.a as f64 - point.k as f64 * slope).collect();
    let middle = median(&mut residuals.clone());
    let mut far: Vec<f64> = residuals.iter().map(|residual| (residual - middle).abs()).collect();
    let limit = (OUTLIER_FACTOR * median(&mut far)).max(2.0);
    let mut out: Vec<bool> = residuals.iter().map(|residual| (residual - middle).abs() > limit).collect();
    let most = (points.len() / OUTLIERS_PART).max(3);
    if out.iter().filter(|out| **out).count() > most || out[0] || out[out.len() - 1] {
        out = none;
    }
    out
}

fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    let (_, value, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    *value
}

/// The grid without what is known of outliers and groups.
fn grid(numbered: &Numbered, jobs: &[JobSeen], strip: &Strip, core: &Strip) -> Grid {
    let points = &numbered.points;
    let (best, width) = (core.period(), core.best().jitter);
    let whole = core.periods(width + width / 16 + 1);
    // With a longer one it would start before time zero. A period too round for chance is kept all the same.
    let round = is_round(core, width, best.unsigned_abs());
    let longest = if round { i64::MAX } else { strip.longest(jobs[0].arrival.as_ns()) };
    let simple = whole.map(|(low, high)| simplest(low, if longest < low { high } else { high.min(longest) }, best));
    // A period of a fraction of a nanosecond, seen often enough: the nearest whole number, and
    // where it lies by the fraction.
    let (num, den) = simple.map_or((core.num, core.den), |simple| (simple, 1));
    let origin = i128::from(jobs[0].arrival.as_ns());
    // Job 0 is earlier than the first that was seen, where that has a larger number.
    let earlier = (i128::from(jobs[numbered.at[0]].number) - i128::from(points[0].k)).max(0);
    let Place { first, jitter } = strip.place(num, den);
    let typical = core.place(num, den).jitter;
    let period = Span::from_ns(((i128::from(num) * 2 + i128::from(den)) / (i128::from(den) * 2)).unsigned_abs() as u64);
    // Three times what was seen, over the number of periods; and at least half a nanosecond of
    // rounding.
    let range = points.last().map_or(1, |last| last.k - points[0].k).max(1).unsigned_abs();
    let error = typical.saturating_mul(3).div_ceil(range).max(u64::from(den != 1));
    // The start is rounded down to a simple number, for which the jitter grows by a thirty-second
    // at most. Nothing starts before time zero.
    let start = origin + i128::from(first);
    let tick = i128::from(period.as_ns()).max(1);
    let start = (start - earlier.min(start.max(0) / tick) * tick).max(0);
    let start = i64::try_from(start).unwrap_or(i64::MAX);
    let slack = i64::try_from(jitter / 32).unwrap_or(i64::MAX);
    let rounded = if start <= slack { 0 } else { simplest(start - slack, start, start) };
    let jitter = jitter.saturating_add((start - rounded).unsigned_abs());
    let (skipped, explained) = skips(numbered, jobs, core.place(num, den).first, num as f64 / den as f64);
    Grid {
        period,
        period_min: Span::from_ns(period.as_ns().saturating_sub(error)),
        period_max: Span::from_ns(period.as_ns().saturating_add(error)),
        first: Time::from_ns(rounded.unsigned_abs()),
        jitter: Span::from_ns(jitter),
        typical_jitter: Span::from_ns(typical),
        outliers: 0,
        explained,
        skipped,
        group: 1,
    }
}

/// Periods without an arrival, those without and with a known reason: events were lost there, or
/// the job before was still at work.
fn skips(numbered: &Numbered, jobs: &[JobSeen], first: i64, period: f64) -> (u64, u64) {
    let (mut skipped, mut explained) = (0, 0);
    let origin = jobs[0].arrival;
    // If jobs were released during the work of the job before, a late job delays no release.
    let queues = jobs.windows(2).any(|pair| pair[0].complete.is_none_or(|complete| complete > pair[1].release));
    for (pair, at) in numbered.points.windows(2).zip(numbered.at.windows(2)) {
        let (before, after) = (&jobs[at[0]], &jobs[at[1]]);
        let missing = (pair[1].k - pair[0].k - 1).unsigned_abs();
        // Numbers that are missing are jobs that were not seen, or not sharply.
        let unseen = after.number.saturating_sub(before.number).saturating_sub(1).min(missing);
        let busy = before.complete.filter(|_| !queues).map_or(0, |complete| {
            let late = complete.saturating_since(origin).as_ns() as f64 - first as f64;
            ((late / period).ceil() as i64 - pair[0].k - 1).max(0).unsigned_abs()
        });
        let empty = missing - unseen;
        let known = if after.gap { empty } else { busy.min(empty) };
        (skipped, explained) = (skipped + empty - known, explained + known);
    }
    (skipped, explained)
}
