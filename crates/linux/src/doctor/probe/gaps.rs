//! Pauses: a thread that nothing should stop reads the clock without end, for half of each period.
//! A jump of the clock means that something else ran.
//!
//! Jumps on the grid of the kernel's ticks are ticks. The clock does not reveal the cause of the
//! others: an interrupt, a more important thread, the hypervisor or the firmware. Counters that
//! grew in the meantime (interrupts, stolen time) bound the share of each cause.

use std::collections::BTreeMap;
use std::fs;

use takt_model::{Span, Time};

use super::timers::merged;
use super::{Distribution, Measured, Periods, ProbeError, ProbeThreads};
use crate::clock;

/// No divisor or multiple of a tick, so that the windows pass over its grid.
const PERIOD: Span = Span::from_us(1037);
const BUSY: Span = Span::from_us(500);
/// Jumps that are kept of each CPU; further ones are counted.
const GAPS_MAX: usize = 50_000;
/// Limits of a jump that counts: at least this long, and at least so many times the usual distance.
const THRESHOLD_NS: u64 = 500;
const THRESHOLD_TIMES: u64 = 4;
/// At most so many of the longest pauses and of the most frequent interrupts are listed.
const SHOWN_MAX: usize = 8;

/// A time during which a thread was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// The CPU.
    pub cpu: u32,
    /// The start, from the beginning of the probe.
    pub at: Time,
    /// The duration.
    pub length: Span,
}

/// Pauses of threads that nothing should have stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// Shorter jumps of the clock do not count.
    pub threshold: Span,
    /// Time that was watched, all CPUs together.
    pub watched: Span,
    /// From one look at the clock to the next, at least.
    pub clock: Span,
    /// Duration of each tick.
    pub tick: Measured,
    /// All other pauses.
    pub others: Distribution,
    /// The longest of them, longest first.
    pub longest: Vec<Pause>,
    /// Pauses that were counted but not kept, because the buffer was full.
    pub left_out: u64,
    /// Interrupts on these CPUs in the meantime except the timers' own, by name, most frequent
    /// first.
    pub interrupts: Vec<(String, u64)>,
    /// Time that the hypervisor took from all CPUs in the meantime, as the kernel reports.
    pub steal: Option<Span>,
}

struct CpuGaps {
    cpu: u32,
    clock: u64,
    threshold: u64,
    windows: Vec<(u64, u64)>,
    /// Beginning and length.
    gaps: Vec<(u64, u64)>,
    left_out: u64,
}

pub(super) fn watch(crew: ProbeThreads<'_>, duration: Span) -> Result<Gaps, ProbeError> {
    let (before, steal) = (counts(), clock::steal());
    let all = crew.work(crew.cpus.len(), |i, epoch| {
        let cpu = crew.cpu(i, 1);
        // Touch the memory now, so that no page fault comes later.
        let mut gaps = vec![(1u64, 1u64); GAPS_MAX];
        let mut windows = vec![(1u64, 1u64); usize::try_from(duration.as_ns() / PERIOD.as_ns()).unwrap_or(0) + 1];
        gaps.clear();
        windows.clear();
        let _class = crew.enter(cpu, 0)?;
        let mut periods = Periods::new(epoch, PERIOD, Span::ZERO, duration);
        let (mut clock, mut threshold, mut left_out) = (u64::MAX, u64::MAX, 0);
        while let Some(base) = periods.next(Span::ZERO) {
            let end = base.saturating_add(BUSY).as_ns();
            let begin = epoch.now().as_ns();
            let mut last = begin;
            while last < end {
                let now = epoch.now().as_ns();
                let gap = now.saturating_sub(last);
                if gap > threshold {
                    if gaps.len() < gaps.capacity() { gaps.push((last, gap)) } else { left_out += 1 }
                } else if gap < clock && gap > 0 {
                    clock = gap;
                    threshold = (THRESHOLD_TIMES * clock).max(THRESHOLD_NS);
                }
                last = now;
            }
            if windows.len() < windows.capacity() {
                windows.push((begin, last));
            }
        }
        Ok(CpuGaps { cpu, clock, threshold, windows, gaps, left_out })
    })?;
    let steal = steal.and_then(|earlier| clock::steal()?.checked_sub(earlier));
    Ok(summarize(&all, clock::tick_period(), grown(&before, &counts(), crew.cpus), steal))
}

fn summarize(all: &[CpuGaps], tick: Option<Span>, interrupts: Vec<(String, u64)>, steal: Option<Span>) -> Gaps {
    let (mut ticks, mut others, mut longest) = (Vec::new(), Distribution::new(), Vec::new());
    let mut silent = Vec::new();
    for watched in all {
        let split = split(&watched.gaps, &watched.windows, tick.map_or(0, Span::as_ns));
        let net = |length: u64| Span::from_ns(length.saturating_sub(watched.clock));
        match split.ticks {
            Some(of) => {
                let mut taken = Distribution::new();
                of.iter().for_each(|length| taken.record(net(*length)));
                ticks.push(taken);
            }
            None => silent.push(watched.cpu),
        }
        for (at, length) in split.others {
            others.record(net(length));
            longest.push(Pause { cpu: watched.cpu, at: Time::from_ns(at), length: net(length) });
        }
    }
    longest.sort_by_key(|pause| std::cmp::Reverse((pause.length, pause.at)));
    longest.truncate(SHOWN_MAX);
    let tick = match (ticks.is_empty(), tick) {
        (_, None) => Err("the kernel does not tell its period".to_owned()),
        (true, _) => Err(format!("none was to be seen on CPUs {}", super::super::facts::list(&silent))),
        (false, _) => Ok(merged(&ticks)),
    };
    let sum = |of: fn(&CpuGaps) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    Gaps {
        threshold: Span::from_ns(all.iter().map(|watched| watched.threshold).max().unwrap_or(0)),
        watched: Span::from_ns(sum(|watched| watched.windows.iter().map(|(begin, end)| end - begin).sum())),
        clock: Span::from_ns(all.iter().map(|watched| watched.clock).min().unwrap_or(0)),
        tick,
        others,
        longest,
        left_out: sum(|watched| watched.left_out),
        interrupts,
        steal,
    }
}

/// Jumps, split into ticks and others.
struct Split {
    /// Duration of each tick, if ticks were visible.
    ticks: Option<Vec<u64>>,
    others: Vec<(u64, u64)>,
}

/// How far from its place a tick may begin, in nanoseconds.
const TOLERANCE: u64 = 40_000;
const BINS: u64 = 64;

/// Looks for the grid with the distance `tick` on which most jumps begin. They are ticks if half of
/// its places inside the windows, and eight at least, have one.
fn split(gaps: &[(u64, u64)], windows: &[(u64, u64)], tick: u64) -> Split {
    let none = || Split { ticks: None, others: gaps.to_vec() };
    if tick < BINS || gaps.is_empty() {
        return none();
    }
    let bin = |at: u64| (at % tick) * BINS / tick;
    let mut bins = [0u64; BINS as usize];
    for (at, _) in gaps {
        if let Some(count) = bins.get_mut(bin(*at) as usize) {
            *count += 1;
        }
    }
    let around = |i: u64| [BINS - 1, 0, 1].iter().filter_map(|d| bins.get(((i + d) % BINS) as usize)).sum::<u64>();
    let Some(best) = (0..BINS).max_by_key(|i| around(*i)) else { return none() };
    // The median place of those around, counted from one bin before.
    let origin = (best + BINS - 1) % BINS * tick / BINS;
    let mut places: Vec<u64> =
        gaps.iter().map(|(at, _)| (at + tick - origin) % tick).filter(|place| *place <= 3 * tick / BINS).collect();
    places.sort_unstable();
    let Some(phase) = places.get(places.len() / 2).map(|place| (place + origin) % tick) else { return none() };
    // The number of the tick that a jump belongs to.
    let tolerance = TOLERANCE.min(tick / 8);
    let number = |at: u64| {
        let shifted = at + tick - phase + tolerance;
        (shifted % tick <= 2 * tolerance).then_some(shifted / tick)
    };
    let mut ticks: BTreeMap<u64, u64> = BTreeMap::new();
    let mut others = Vec::new();
    for (at, length) in gaps {
        match number(*at) {
            Some(number) => *ticks.entry(number).or_default() += length,
            None => others.push((*at, *length)),
        }
    }
    // Places of the grid before `time`.
    let before = |time: u64| (time + tick - phase).div_ceil(tick);
    let expected: u64 = windows.iter().map(|(begin, end)| before(*end).saturating_sub(before(*begin))).sum();
    let seen = u64::try_from(ticks.len()).unwrap_or(u64::MAX);
    if seen < 8 || seen.saturating_mul(2) < expected {
        return none();
    }
    Split { ticks: Some(ticks.into_values().collect()), others }
}

/// The lines of /proc/interrupts: by name, how many on each CPU.
fn counts() -> BTreeMap<String, BTreeMap<u32, u64>> {
    counted(&fs::read_to_string("/proc/interrupts").unwrap_or_default())
}

fn counted(text: &str) -> BTreeMap<String, BTreeMap<u32, u64>> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let cpus: Vec<u32> =
        head.split_ascii_whitespace().filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    let mut all: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    for line in lines {
        let Some((label, rest)) = line.split_once(':') else { continue };
        let label = label.trim();
        // The timers' own are what is measured.
        if label == "LOC" {
            continue;
        }
        let last = rest.split_ascii_whitespace().last().unwrap_or_default();
        let name = if label.parse::<u32>().is_ok() { format!("{label} {last}") } else { label.to_owned() };
        let numbers = rest.split_ascii_whitespace().map_while(|word| word.parse().ok());
        all.entry(name).or_default().extend(cpus.iter().copied().zip(numbers));
    }
    all
}

fn grown(
    before: &BTreeMap<String, BTreeMap<u32, u64>>,
    after: &BTreeMap<String, BTreeMap<u32, u64>>,
    cpus: &[u32],
) -> Vec<(String, u64)> {
    let old = |name: &str, cpu: u32| before.get(name).and_then(|of| of.get(&cpu)).copied().unwrap_or(0);
    let growth = |(name, of): (&String, &BTreeMap<u32, u64>)| {
        let own = of.iter().filter(|(cpu, _)| cpus.contains(cpu));
        let sum: u64 = own.map(|(cpu, count)| count.saturating_sub(old(name, *cpu))).sum();
        (sum > 0).then(|| (name.clone(), sum))
    };
    let mut all: Vec<(String, u64)> = after.iter().filter_map(growth).collect();
    all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
    all.truncate(SHOWN_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 4_000_000;

    /// Windows of half of each 1037 us for a second.
    fn windows() -> Vec<(u64, u64)> {
        (0..960).map(|k| (k * 1_037_000, k * 1_037_000 + 500_000)).collect()
    }

    fn inside(at: u64) -> bool {
        windows().iter().any(|(begin, end)| (*begin..*end).contains(&at))
    }

    #[test]
    fn ticks_are_found_on_their_grid_wherever_that_lies() {
        for phase in [0, 10_000, 62_500, 2_000_000, 3_999_000] {
            let mut gaps: Vec<(u64, u64)> =
                (0..250).map(|k| (phase + k * TICK + k % 7 * 300, 3_000 + k)).filter(|(at, _)| inside(*at)).collect();
            let ticks = gaps.len();
            assert!(ticks > 80, "{ticks}");
            // One tick is seen as two jumps, and there are pauses elsewhere.
            gaps.push((gaps[0].0 + 5_000, 1_000));
            let strange: Vec<(u64, u64)> = (1..40)
                .map(|k| (phase + k * 23 * 1_037_777, 9_000))
                .filter(|(at, _)| {
                    let place = (at + TICK - phase) % TICK;
                    (200_000..TICK - 200_000).contains(&place)
                })
                .collect();
            gaps.extend(&strange);
            let split = split(&gaps, &windows(), TICK);
            let found = split.ticks.expect("there are ticks");
            assert_eq!(found.len(), ticks, "phase {phase}");
            assert_eq!(found.iter().filter(|length| **length >= 4_000).count(), 1, "phase {phase}");
            assert_eq!(split.others, strange);
        }
    }

    #[test]
    fn pauses_without_a_grid_are_no_ticks() {
        let gaps: Vec<(u64, u64)> =
            (0..200).map(|k| (k * 4_937_123 % 1_000_000_000, 2_000)).filter(|(at, _)| inside(*at)).collect();
        let split = split(&gaps, &windows(), TICK);
        assert!(split.ticks.is_none());
        assert_eq!(split.others, gaps);
        assert!(super::split(&[], &windows(), TICK).ticks.is_none());
        assert!(super::split(&gaps, &windows(), 0).ticks.is_none());
    }

    #[test]
    fn interrupts_are_counted_by_name() {
        let text = |a, b| {
            format!(
                "      CPU0 CPU2\n 36:   {a}   7  PCI-MSI 1-edge  eth0\nLOC:  5 6 Local\nNMI:  {b} 1 \
                 Non-maskable\nERR: 0\n"
            )
        };
        let (before, after) = (counted(&text(10, 0)), counted(&text(15, 2)));
        assert_eq!(grown(&before, &after, &[0, 2]), [("36 eth0".to_owned(), 5), ("NMI".to_owned(), 2)]);
        assert_eq!(grown(&before, &after, &[2]), []);
    }
}
