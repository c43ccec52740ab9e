//! [SDD] Tables VI and VII, Figs. 6 to 10: a disk's driver in a reservation (Q, T). The experiment
//! measures its throughput and the time to read a file.
//!
//! The paper puts the disk's interrupt thread into reservations. Here a thread does its work
//! (`takt_run::load`). A reader sends a request, and the device takes a short time. Then the
//! driver's thread wakes up as by an interrupt and uses CPU time, drawn from a distribution with a
//! long tail. Then the reader sends the next request. The driver keeps the CPU busy most of the
//! time, like a disk without DMA. Reading without end stands for hdparm, and a number of requests
//! for `cat` of a file.
//!
//! The expected result: alone, at a fixed priority, the driver uses a share u of a CPU. In a
//! reservation of Q/T < u it runs Q/T of the time. So the throughput is (Q/T)/u of that without a
//! reservation. From Q/T = u on, the throughput is the full one.

mod charts;
mod dma;
mod lab;

use takt_linux::{Class, SchedError, clock};
use takt_log::stats::TaskStats;
use takt_model::draw::Draw;
use takt_model::{Exec, Probability, Span, Task};
use takt_run::RunError;
use takt_run::load::{Driver, Line, LoadContext, Member, Place, Reader, driver, reader};

use super::context::Context;
use super::findings::{Comparison, Findings, MEASURED, PAPER, Row, all, decimal, mean, within};
use super::recording::{Recording, thread_stats};
use super::{Experiment, SDD, loads, machine};
use crate::failure::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "sdd-throughput",
    paper: &SDD,
    shows: "Tables VI and VII, Figs. 6 to 10",
    what: "a driver's thread in reservations: the throughput follows Q/T, the time to read a file T/Q",
    needs: "root (tracefs, SCHED_FIFO, SCHED_DEADLINE)",
    takes: (Span::from_s(300), Span::from_s(25)),
    longest: Span::MAX,
    repeats: true,
    simulated: false,
    live: None,
    lab: Some(lab::FORM),
    run: reproduce,
};

/// Table VI: (Q, T) in ms, and the throughput in % of that under a fixed priority.
const TABLE_VI: [(u64, u64, f64); 20] = [
    (2, 100, 1.9858),
    (4, 100, 4.23484),
    (6, 100, 6.38374),
    (20, 1000, 2.16843),
    (40, 1000, 4.46488),
    (60, 1000, 6.49811),
    (10, 100, 10.6726),
    (20, 100, 21.5825),
    (40, 100, 41.8182),
    (60, 100, 62.4476),
    (80, 100, 82.5952),
    (90, 100, 92.9371),
    (95, 100, 100.),
    (100, 1000, 11.778),
    (200, 1000, 23.261),
    (400, 1000, 44.4056),
    (600, 1000, 65.),
    (800, 1000, 84.5455),
    (900, 1000, 93.007),
    (950, 1000, 100.),
];
/// The order of the measurements. The kernel books a thread's bandwidth for up to a period after
/// its end, and two reservations that follow each other must fit beside each other.
const ORDER: [usize; 20] = [0, 1, 2, 6, 7, 8, 9, 10, 11, 12, 3, 4, 5, 13, 14, 15, 16, 19, 17, 18];
/// Table VII: Q in ms with T = 100 ms (`None`: no reservation), and average, standard deviation,
/// maximum and minimum in s.
const TABLE_VII: [(Option<u64>, [f64; 4]); 8] = [
    (None, [16.89, 0.12, 17.05, 16.67]),
    (Some(30), [52.85, 0.87, 55.22, 52.36]),
    (Some(40), [39.52, 0.61, 41.25, 39.27]),
    (Some(50), [31.49, 0.12, 31.74, 31.40]),
    (Some(60), [26.23, 0.03, 26.30, 26.19]),
    (Some(70), [22.58, 0.20, 23.14, 22.47]),
    (Some(80), [19.77, 0.19, 20.31, 19.69]),
    (Some(90), [17.59, 0.04, 17.66, 17.55]),
];
/// The driver's cost of a request: most are short, a few are long.
const COSTS: [(u64, u32); 4] = [(600, 70), (1_000, 20), (2_000, 8), (4_000, 2)];
/// The time of the device, and the CPU time of a request in the reader.
const DEVICE_TIME: Span = Span::from_us(100);
const READER_CPU_TIME: Span = Span::from_us(10);
const FIXED_PRIORITY: Class = Class::Fifo { priority: 40 };
const NAMES: [&str; 2] = ["driver", "reader"];
/// How many periods of a reservation are measured, and with --short: for T = 100 ms and T = 1000 ms.
const PERIODS: [(u64, u64); 2] = [(30, 5), (5, 1)];
/// How long a file takes at a fixed priority, about, and with --short.
const FILE_TIME: (Span, Span) = (Span::from_s(1), Span::from_ms(300));
/// A throughput needs this many whole periods of each reservation.
const PERIODS_MIN: u64 = 5;
/// The time of a file needs this many requests, over all repetitions.
const REQUESTS_MIN: u64 = 1_000;

struct Measured {
    /// The driver's share of a CPU at a fixed priority.
    share: Option<f64>,
    /// The same while it reads a file.
    file_share: Option<f64>,
    /// Requests a second at a fixed priority, of each repetition.
    fixed: Vec<f64>,
    /// By row of Table VI: requests a second, of each repetition.
    reserved: Vec<Vec<f64>>,
    /// By row of Table VI: whole periods of that measurement.
    periods: Vec<u64>,
    /// By row of Table VII: readings of the file.
    files: Vec<Vec<Reader>>,
    driver: Option<TaskStats>,
    refused: usize,
}

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let mut measured = Measured::nothing();
    record(context, &mut measured, &mut findings)?;
    for repetition in 0..context.repeat() {
        measured.throughput(context, repetition)?;
        measured.files(context, repetition)?;
    }
    // The bandwidth of the last reservation is free again within its period.
    clock::pause(Span::from_ms(100));
    findings.tables.push(table_vi(&measured));
    findings.tables.push(table_vii(&measured));
    findings.figures.extend(charts::all(&measured));
    throughput_claims(&mut findings, &measured, PERIODS_MIN);
    file_claims(&mut findings, &measured, (REQUESTS_MIN, "requests of each file"));
    differences(&mut findings, context, &measured);
    Ok(findings)
}

/// The cost of each request.
fn costs(seed: u64) -> impl Fn(u64) -> Span + Sync {
    let billionths = |percent: u32| Probability::from_billionths(percent * 10_000_000).unwrap_or(Probability::NONE);
    let longest = COSTS.iter().map(|(us, _)| *us).max().unwrap_or(1);
    let mut task = Task::periodic("driver", Span::from_s(1), Span::from_us(longest));
    task.exec = Exec::Pmf(COSTS.map(|(us, percent)| (Span::from_us(us), billionths(percent))).to_vec());
    let draw = Draw::new(seed, "driver");
    move |number| draw.exec(&task, number)
}

enum ThreadResult {
    Driver(Driver),
    Reader(Reader),
}

/// Reads `requests`, for at most `most`, with the driver in `class`.
fn read(
    context: &Context,
    seed: u64,
    class: Class,
    place: &Place,
    requests: u64,
    most: Span,
) -> Result<Option<(Driver, Reader)>, Failure> {
    let (line, cost) = (Line::default(), costs(seed));
    let serve = |context: &mut LoadContext| ThreadResult::Driver(driver(context, &line, &cost));
    let ask = |context: &mut LoadContext| {
        ThreadResult::Reader(reader(context, &line, requests, DEVICE_TIME, READER_CPU_TIME))
    };
    // The reader is less important than any driver, and more important than ordinary threads, which
    // would slow it down.
    let members = vec![Member::new(NAMES[0], class, serve), Member::new(NAMES[1], Class::Fifo { priority: 1 }, ask)];
    match loads::attempt(context, "reading", members, place, most) {
        Ok(ended) => {
            let mut values = ended.values.into_iter();
            match (values.next(), values.next()) {
                (Some(ThreadResult::Driver(driver)), Some(ThreadResult::Reader(reader))) => Ok(Some((driver, reader))),
                _ => Ok(None),
            }
        }
        Err(RunError::Refused { cause: SchedError::Admission { .. }, .. }) => Ok(None),
        Err(error) => Err(Failure::of_run(&error)),
    }
}

/// Records the driver at a fixed priority, for its CPU share and its distributions.
fn record(context: &Context, measured: &mut Measured, findings: &mut Findings) -> Result<(), Failure> {
    const FILE: &str = "driver.takt";
    let duration = context.duration(Span::from_s(5), Span::from_s(1));
    let recording = Recording::of_sleepers(context, FILE)?;
    // Reader and driver share a CPU, so the CPU is not idle when the driver wakes up. Some machines
    // do not report switches from a CPU's idle thread.
    let place = context.machine.cpus.last().map_or(Place::Anywhere, |cpu| Place::Cpu(*cpu));
    let read = read(context, context.seed, FIXED_PRIORITY, &place, u64::MAX, duration);
    let recorded = recording.finish()?;
    findings.files.push(FILE.to_owned());
    findings.notes.extend(recorded.defects.iter().cloned());
    if let Some((driver, reader)) = read? {
        measured.share = ratio(driver.cpu, reader.took);
        measured.file_share = measured.share;
    }
    // The first job contains the start-up.
    measured.driver = thread_stats(&recorded.after_startup(Span::from_ms(20))?, NAMES[0]).cloned();
    Ok(())
}

fn ratio(part: Span, whole: Span) -> Option<f64> {
    (!whole.is_zero()).then(|| part.as_ns() as f64 / whole.as_ns() as f64)
}

impl Measured {
    fn nothing() -> Measured {
        Measured {
            share: None,
            file_share: None,
            fixed: Vec::new(),
            reserved: vec![Vec::new(); TABLE_VI.len()],
            periods: vec![0; TABLE_VI.len()],
            files: vec![Vec::new(); TABLE_VII.len()],
            driver: None,
            refused: 0,
        }
    }

    /// Measures each reservation of Table VI and the fixed priority once.
    fn throughput(&mut self, context: &Context, repetition: u32) -> Result<(), Failure> {
        let seed = context.seed.wrapping_add(u64::from(repetition));
        // Whole periods: as many as the user asks for, or the usual number.
        let whole = |period_ms: u64| {
            let (usual, short) = PERIODS[usize::from(period_ms > 100)];
            let asked = context.duration(Span::from_ms(period_ms * usual), Span::from_ms(period_ms * short));
            Span::from_ms(asked.as_ns().div_ceil(period_ms * 1_000_000).saturating_mul(period_ms))
        };
        let rate = |served: u64, time: Span| served as f64 / (time.as_ns().max(1) as f64 / 1e9);
        if context.stopped() {
            return Ok(());
        }
        let time = whole(100);
        if let Some((driver, _)) =
            read(context, seed, FIXED_PRIORITY, &Place::Anywhere, u64::MAX, time)?.filter(|_| !context.stopped())
        {
            self.fixed.push(rate(driver.served, time));
        }
        for row in ORDER {
            let (q, t, _) = TABLE_VI[row];
            let time = whole(t);
            if context.stopped() {
                return Ok(());
            }
            match read(context, seed, loads::reserved(q * 1_000, t * 1_000), &Place::Anywhere, u64::MAX, time)? {
                // A run that ended early does not count.
                Some((driver, _)) if !context.stopped() => {
                    self.reserved[row].push(rate(driver.served, time));
                    self.periods[row] += time.as_ns() / Span::from_ms(t).as_ns();
                }
                Some(_) => {}
                None => self.refused += 1,
            }
        }
        Ok(())
    }

    fn files(&mut self, context: &Context, repetition: u32) -> Result<(), Failure> {
        let seed = context.seed.wrapping_add(u64::from(repetition));
        let requests = requests_in(context.duration(FILE_TIME.0, FILE_TIME.1));
        for (row, (q, _)) in TABLE_VII.iter().enumerate() {
            if context.stopped() {
                return Ok(());
            }
            let class = q.map_or(FIXED_PRIORITY, |q| loads::reserved(q * 1_000, 100_000));
            match read(context, seed, class, &Place::Anywhere, requests, Span::from_s(120))? {
                Some((_, reader)) if reader.read == requests => self.files[row].push(reader),
                Some(_) => {}
                None => self.refused += 1,
            }
        }
        Ok(())
    }

    /// The mean throughput in percent of that at a fixed priority. The paper averages too.
    fn percent(&self, row: usize) -> Option<f64> {
        Some(mean(self.reserved[row].iter().copied())? / mean(self.fixed.iter().copied())? * 100.0)
    }

    /// [`Measured::percent`] by medians, for claims. One disturbed repetition does not change a median.
    fn median_percent(&self, row: usize) -> Option<f64> {
        Some(median(&self.reserved[row])? / median(&self.fixed)? * 100.0)
    }

    /// The expected value in a reservation of the share `reserved` of a CPU.
    fn expected(&self, reserved: f64) -> Option<f64> {
        self.share.map(|share| (reserved / share).min(1.0) * 100.0)
    }

    fn seconds(&self, row: usize) -> Vec<f64> {
        self.files[row].iter().map(|reader| reader.took.as_ns() as f64 / 1e9).collect()
    }
}

/// The requests of a file that takes so long at a fixed priority, about.
fn requests_in(time: Span) -> u64 {
    time.as_ns().clamp(50_000_000, 20_000_000_000) / 1_000_000
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.get(values.len() / 2)?;
    // The mean of the two middle values.
    Some(if values.len() % 2 == 1 { *middle } else { (values[values.len() / 2 - 1] + middle) / 2.0 })
}

fn share_of(row: usize) -> f64 {
    let (q, t, _) = TABLE_VI[row];
    q as f64 / t as f64
}

fn table_vi(measured: &Measured) -> Comparison {
    let row = |(i, (q, t, paper)): (usize, &(u64, u64, f64))| Row {
        name: format!("({q}ms, {t}ms)"),
        values: vec![vec![Some(*paper)], vec![measured.percent(i)], vec![measured.expected(share_of(i))]],
    };
    Comparison::new(
        "Throughput of the driver in a reservation",
        "Table VI",
        "% of the throughput at a fixed priority",
        2,
    )
    .with("reservation", [""], [PAPER, MEASURED, "expected"], TABLE_VI.iter().enumerate().map(row))
}

fn table_vii(measured: &Measured) -> Comparison {
    let row = |(i, (q, paper)): (usize, &(Option<u64>, [f64; 4]))| {
        let seconds = measured.seconds(i);
        let own = mean(seconds.iter().copied()).map_or([None; 4], |mean| {
            let square = seconds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / seconds.len() as f64;
            let most = seconds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
            [mean, square.sqrt(), most, least].map(Some)
        });
        Row {
            name: q.map_or_else(|| "No Reservations".to_owned(), |q| format!("({q}ms, 100ms)")),
            values: vec![paper.map(Some).to_vec(), own.to_vec()],
        }
    };
    Comparison::new("Time to read a file", "Table VII", "times in s; the file here is not the paper's of 44 MB", 3)
        .with(
            "reservation",
            ["Average", "Std Dev", "Max", "Min"],
            [PAPER, MEASURED],
            TABLE_VII.iter().enumerate().map(row),
        )
}

fn span(values: &[f64]) -> String {
    let (least, most) = values.iter().fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(*v), b.max(*v)));
    if values.is_empty() { "not measured".to_owned() } else { format!("{least:.2} to {most:.2}") }
}

/// The claims about Table VI, which take at least so many periods of each reservation.
fn throughput_claims(findings: &mut Findings, measured: &Measured, periods_least: u64) {
    let share = measured.share.unwrap_or(1.0);
    // A row without values was not measured. It does not count for the length of the sample.
    let periods = measured.periods.iter().copied().filter(|periods| *periods > 0).min().unwrap_or(0);
    let relative = |row: usize| Some(measured.median_percent(row)? / measured.expected(share_of(row))?);
    let rows =
        |low: f64, high: f64| (0..TABLE_VI.len()).filter(move |row| (low..high).contains(&(share_of(*row) / share)));
    let known: Vec<f64> = rows(0.0, 0.95).filter_map(relative).collect();
    findings
        .claim(
            "proportional",
            "below the driver's need, the throughput is proportional to Q/T: each within 35 % of (Q/T)/u, where \
             u is the share of a CPU that the driver uses at a fixed priority",
            format!("by (Q/T)/u: {}; u = {}", span(&known), decimal(measured.share, 2)),
            all(rows(0.0, 0.95).map(|row| within(relative(row), 1.0, 0.65, 1.35))),
        )
        .needs(periods, periods_least, "periods of a reservation");
    let pairs: Vec<Option<f64>> = TABLE_VI
        .iter()
        .enumerate()
        .filter(|(_, (_, t, _))| *t == 100)
        .filter_map(|(i, (q, ..))| Some((i, TABLE_VI.iter().position(|(long, t, _)| *t == 1000 && *long == q * 10)?)))
        .map(|(short, long)| Some(measured.median_percent(short)? / measured.median_percent(long)?))
        .collect();
    let ratios: Vec<f64> = pairs.iter().copied().flatten().collect();
    findings
        .claim(
            "period",
            "the throughput depends on Q/T alone, not on T: (2ms, 100ms) as (20ms, 1000ms), and so on, within 35 % (in \
         the paper within 10 %)",
            format!("T = 100ms by T = 1000ms: {}", span(&ratios)),
            all(pairs.iter().map(|pair| within(*pair, 1.0, 0.65, 1.35))),
        )
        .needs(periods, periods_least, "periods of a reservation");
    let full: Vec<f64> =
        rows(1.05, f64::INFINITY).filter_map(|row| Some(measured.median_percent(row)? / 100.0)).collect();
    findings
        .claim(
            "enough",
            "a reservation a little larger than the driver's need gives the full throughput: at least 85 % of \
             it, on average over those rows",
            format!("of the throughput at a fixed priority: {}", span(&full)),
            mean(full.iter().copied()).map(|part| part >= 0.85),
        )
        .needs(periods, periods_least, "periods of a reservation");
}

/// The claims about Table VII, which take at least so many requests of a file.
fn file_claims(findings: &mut Findings, measured: &Measured, (requests_least, what): (u64, &str)) {
    let share = measured.file_share.unwrap_or(1.0);
    let read = measured.files.iter().map(|files| files.iter().map(|reader| reader.read).sum::<u64>());
    let requests = read.filter(|read| *read > 0).min().unwrap_or(0);
    let alone = median(&measured.seconds(0));
    let slower = |row: usize| {
        let reserved = TABLE_VII[row].0? as f64 / 100.0;
        Some(median(&measured.seconds(row))? / alone? / (share / reserved).max(1.0))
    };
    let times: Vec<f64> = (1..TABLE_VII.len()).filter_map(slower).collect();
    findings
        .claim(
            "file",
            "the time to read a file is proportional to T/Q: each median within 35 % of u T/Q times that without a \
         reservation",
            format!("by u T/Q: {}", span(&times)),
            all((1..TABLE_VII.len()).map(|row| within(slower(row), 1.0, 0.65, 1.35))),
        )
        .needs(requests, requests_least, what);
    let cpu = |row: usize| {
        median(&measured.files[row].iter().map(|reader| reader.cpu.as_ns() as f64 / 1e6).collect::<Vec<_>>())
    };
    let own: Vec<f64> = (0..TABLE_VII.len()).filter_map(cpu).collect();
    let (least, most) = own.iter().fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(*v), b.max(*v)));
    findings
        .claim(
            "reader",
            "the reader's own CPU time (user and system) does not depend on the reservation: the most is less than \
         twice the least",
            format!("{} ms", span(&own)),
            (own.len() == TABLE_VII.len()).then_some(most < 2.0 * least),
        )
        .needs(requests, requests_least, what);
}

fn differences(findings: &mut Findings, context: &Context, measured: &Measured) {
    findings.differences.push(machine::driver_difference(&context.machine));
    if let Some(share) = measured.share {
        findings.differences.push(format!(
            "At a fixed priority the driver uses {:.1} % of a CPU, so a reservation of this share is enough \
             here. In the paper it uses 66 % on average (57 % to 93 %), and its throughput grows up to Q/T = 95 \
             %.",
            share * 100.0
        ));
    }
    if context.machine.cpus.len() > 1 {
        findings.differences.push(format!(
            "The paper's machine has one CPU, and this process has {}. So driver and reader can run at the same \
             time, and only the reservation limits the driver.",
            context.machine.cpus.len()
        ));
    }
    if measured.refused > 0 {
        findings.differences.push(format!(
            "The kernel did not admit {} of the reservations: it keeps a part of each CPU for ordinary threads, and \
             others may have reserved some.",
            measured.refused
        ));
    }
    findings.differ([
        "Table VI is the disk without DMA, as here. With DMA (Figs. 6 to 8 of the paper) its driver needed 0.2 % of \
         a CPU, and Q/T = 0.3 % was enough for all of its throughput.",
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_measured_once_each_and_neighbours_fit_beside_each_other() {
        let mut all = ORDER;
        all.sort_unstable();
        assert!(all.into_iter().eq(0..TABLE_VI.len()));
        for pair in ORDER.windows(2).filter(|pair| TABLE_VI[pair[0]].1 == 1000) {
            assert!(share_of(pair[0]) + share_of(pair[1]) < 1.8, "{pair:?}");
        }
    }

    /// A short run decides nothing, whatever it measured. A usual one does.
    #[test]
    fn a_short_run_is_too_short_for_every_claim() {
        let holding = |short: bool| {
            let repeat = if short { 1 } else { 5 };
            let pick = |of: (u64, u64)| if short { of.1 } else { of.0 };
            let requests = requests_in(if short { FILE_TIME.1 } else { FILE_TIME.0 });
            let mut measured = Measured::nothing();
            // As if reservations gave nothing, and each file took longer than the one before.
            (measured.share, measured.fixed) = (Some(0.8), vec![1_000.0; repeat]);
            measured.reserved = vec![vec![1.0; repeat]; TABLE_VI.len()];
            measured.periods = TABLE_VI.map(|(_, t, _)| pick(PERIODS[usize::from(t > 100)]) * repeat as u64).to_vec();
            let reader = |row: usize| {
                let took = Span::from_s(1 + row as u64);
                Reader { read: requests, took, cpu: took }
            };
            measured.files = (0..TABLE_VII.len()).map(|row| (0..repeat).map(|_| reader(row)).collect()).collect();
            let mut findings = Findings::default();
            throughput_claims(&mut findings, &measured, PERIODS_MIN);
            file_claims(&mut findings, &measured, (REQUESTS_MIN, "requests of each file"));
            findings.claims.iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        assert_eq!(holding(true), [None; 5]);
        assert!(holding(false).contains(&Some(false)), "{:?}", holding(false));
    }

    #[test]
    fn costs_have_a_long_tail() {
        assert_eq!(COSTS.iter().map(|(_, percent)| percent).sum::<u32>(), 100);
        let cost = costs(1);
        let mut all: Vec<Span> = (0..2_000).map(&cost).collect();
        all.sort_unstable();
        let mean = all.iter().map(|cost| cost.as_ns()).sum::<u64>() / 2_000;
        assert!((800_000..920_000).contains(&mean), "{mean}");
        assert_eq!((all[0], all[1_999]), (Span::from_us(600), Span::from_us(4_000)));
    }
}
