//! [SDD] Fig. 4: a periodic task (5 ms) and two greedy tasks on one CPU. The greedy tasks run in
//! constant-bandwidth servers of (1ms, 10ms) and (1ms, 4ms).
//!
//! The experiment runs once with the paper's times, and once with all times ten times as long. The
//! second run matters where the kernel enforces budgets at ticks, since 1 ms is less than a tick.

use takt_linux::machine::Machine;
use takt_model::{Span, Time};
use takt_report::{Picture, Rows, SvgOptions, svg};
use takt_run::load::{CpuUse, Finished, LoadContext, Member, Place, greedy, periodic};

use super::context::Context;
use super::findings::{Comparison, Drawn, Findings, MEASURED, PAPER, Row, all, decimal, within};
use super::recording::{Recorded, Recording};
use super::{Experiment, SDD, loads, machine};
use crate::failure::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "sdd-fig4",
    paper: &SDD,
    shows: "Fig. 4",
    what: "a periodic task and two greedy tasks, which never block, in reservations on one CPU: the schedule \
         and the shares",
    needs: "root (tracefs, SCHED_DEADLINE, a cpuset of one CPU)",
    takes: (Span::from_s(11), Span::from_s(2)),
    longest: Span::MAX,
    repeats: false,
    simulated: false,
    live: None,
    lab: None,
    run: reproduce,
};

/// Reservations of greedy tasks: (Q, T) in us.
const GREEDY: [(u64, u64); 2] = [(1_000, 10_000), (1_000, 4_000)];
/// The periodic task: CPU time of a job, what it reserves, and its period in us. The paper gives
/// the period.
const PERIODIC: (u64, u64, u64) = (1_000, 2_000, 5_000);
const NAMES: [&str; 3] = ["periodic", "greedy-1", "greedy-2"];
/// A share within 10 % needs this many periods, since the last one counts in part.
const PERIODS_LEAST: u64 = 20;
/// The claim of at most one late job in a hundred needs about a hundred jobs.
const JOBS_LEAST: u64 = 90;

struct Measured {
    scale: u64,
    jobs: Vec<Finished>,
    greedy: [Option<CpuUse>; 2],
    recorded: Recorded,
}

enum ThreadResult {
    Periodic(Vec<Finished>),
    Greedy(CpuUse),
}

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let place = loads::one_cpu(context)?;
    let duration = context.duration(Span::from_s(5), Span::from_ms(600));
    let mut findings = Findings::default();
    let mut measured = Vec::new();
    for (scale, file) in [(1, "schedule-budgets-1ms.takt"), (10, "schedule-budgets-10ms.takt")] {
        if context.stopped() {
            break;
        }
        measured.push(measure(context, &place, duration, scale, file)?);
        findings.files.push(file.to_owned());
    }
    for one in &measured {
        findings.figures.push(figure(one)?);
        findings.notes.extend(one.recorded.defects.iter().cloned());
    }
    findings.tables.push(table(&measured));
    claims(&mut findings, &measured);
    differences(&mut findings, &measured, &context.machine)?;
    Ok(findings)
}

fn measure(context: &Context, place: &Place, duration: Span, scale: u64, file: &str) -> Result<Measured, Failure> {
    let (work, q, period) = PERIODIC;
    let (work, every) = (Span::from_us(work * scale), Span::from_us(period * scale));
    let job = move |context: &mut LoadContext| ThreadResult::Periodic(periodic(context, every, work));
    let mut members = vec![Member::new(NAMES[0], loads::reserved(q * scale, period * scale), job)];
    for ((q, t), name) in GREEDY.iter().zip(&NAMES[1..]) {
        let body = |context: &mut LoadContext| ThreadResult::Greedy(greedy(context));
        members.push(Member::new(name, loads::reserved(q * scale, t * scale), body));
    }
    let recording = Recording::start(context, file)?;
    let ended = loads::run(context, "running", members, place, duration);
    let recorded = recording.finish()?;
    let mut measured = Measured { scale, jobs: Vec::new(), greedy: [None; 2], recorded };
    for (i, done) in ended?.values.into_iter().enumerate() {
        match done {
            ThreadResult::Periodic(jobs) => measured.jobs = jobs,
            ThreadResult::Greedy(ran) => measured.greedy[i - 1] = Some(ran),
        }
    }
    Ok(measured)
}

impl Measured {
    /// The CPU share that greedy task `i` got, relative to its reservation.
    fn share(&self, i: usize) -> Option<f64> {
        let (q, t) = GREEDY[i];
        self.greedy[i].map(|ran| ran.share() / (q as f64 / t as f64))
    }

    fn periods(&self) -> u64 {
        let of = |(ran, (_, t)): (&Option<CpuUse>, (u64, u64))| {
            ran.map_or(0, |ran| ran.to.saturating_since(ran.from).as_ns() / Span::from_us(t * self.scale).as_ns())
        };
        self.greedy.iter().zip(GREEDY).map(of).min().unwrap_or(0)
    }

    /// The number of jobs of the periodic task that completed after the arrival of the next one.
    fn late(&self) -> usize {
        let period = Span::from_us(PERIODIC.2 * self.scale);
        self.jobs.iter().filter(|job| job.completion > job.arrival.saturating_add(period)).count()
    }

    fn times(&self) -> String {
        let ms = |us: u64| format!("{}ms", us * self.scale / 1_000);
        let pairs = GREEDY.map(|(q, t)| format!("({}, {})", ms(q), ms(t)));
        format!("{} and {}", pairs[0], pairs[1])
    }
}

fn table(measured: &[Measured]) -> Comparison {
    let rows: Vec<Row> = measured
        .iter()
        .flat_map(|one| {
            (0..GREEDY.len()).map(|i| {
                let (q, t) = GREEDY[i];
                let reserved = q as f64 / t as f64 * 100.0;
                Row {
                    name: format!("greedy in ({}ms, {}ms)", q * one.scale / 1_000, t * one.scale / 1_000),
                    values: vec![vec![Some(reserved)], vec![one.greedy[i].map(|ran| ran.share() * 100.0)]],
                }
            })
        })
        .collect();
    Comparison::new("Shares of the CPU", "What Fig. 4 shows: the reserved share", "% of the CPU", 2).with(
        "task",
        [""],
        [PAPER, MEASURED],
        rows,
    )
}

/// The schedule from the middle: a hundred milliseconds, times the square root of the scale.
fn figure(one: &Measured) -> Result<Drawn, Failure> {
    let middle = Time::from_ns(one.recorded.stats.duration_ns / 2);
    let length = Span::from_ms(60 * one.scale.min(5));
    let gantt = one.recorded.gantt(&NAMES, middle, middle.saturating_add(length))?;
    let title = format!("Greedy tasks in {}", one.times());
    let draw = |standalone| {
        let options = SvgOptions {
            id: format!("schedule-{}", one.scale),
            standalone,
            rows: Rows::Tasks,
            ..SvgOptions::new(&title)
        };
        svg(&gantt, &options)
    };
    Ok(Drawn {
        file: format!("schedule-budgets-{}ms.svg", one.scale),
        standalone_svg: draw(true),
        picture: Picture {
            title: format!("Fig. 4: the schedule, greedy tasks in {}", one.times()),
            caption: format!(
                "{length} from the middle, as the kernel recorded it. A greedy task has one job. The kernel \
                 throttles it when its budget is used up."
            ),
            svg: draw(false),
        },
    })
}

fn claims(findings: &mut Findings, measured: &[Measured]) {
    let text = |value: Option<f64>| decimal(value, 3);
    let [exact, long] = [measured.first(), measured.get(1)];
    for (name, one) in [("shares", exact), ("shares-10", long)] {
        let share = |i: usize| one.and_then(|one| one.share(i));
        findings
            .claim(
                name,
                format!(
                    "a greedy task gets the share Q/T that it reserved, and no more, within 10 %: {}",
                    one.map_or_else(|| "not measured".to_owned(), Measured::times)
                ),
                format!("share by Q/T: {} and {}", text(share(0)), text(share(1))),
                all([0, 1].map(|i| within(share(i), 1.0, 0.9, 1.1))),
            )
            .needs(one.map_or(0, Measured::periods), PERIODS_LEAST, "periods");
    }
    // A greedy task overruns a budget that is shorter than a tick, with an early deadline.
    // `differences` says so.
    findings
        .claim(
            "isolation",
            "greedy tasks do not disturb the periodic one: at most one of its jobs in a hundred is not complete \
             within its period (budgets longer than a tick)",
            long.map_or_else(
                || "not measured".to_owned(),
                |one| format!("{} of {} jobs were late", one.late(), one.jobs.len()),
            ),
            long.filter(|one| !one.jobs.is_empty()).map(|one| one.late() * 100 <= one.jobs.len().max(100)),
        )
        .needs(long.map_or(0, |one| one.jobs.len() as u64), JOBS_LEAST, "jobs");
}

fn differences(findings: &mut Findings, measured: &[Measured], machine: &Machine) -> Result<(), Failure> {
    findings.differences.push(format!(
        "The paper does not give the execution and the reservation of the periodic task. Here it has {} of CPU \
         time in a reservation of ({}, {}). It needs a reservation, because SCHED_DEADLINE threads run before \
         all others.",
        Span::from_us(PERIODIC.0),
        Span::from_us(PERIODIC.1),
        Span::from_us(PERIODIC.2)
    ));
    let Some(one) = measured.first() else { return Ok(()) };
    let (q, name) = (Span::from_us(GREEDY[1].0), NAMES[2]);
    if let Some(lengths) = one.recorded.run_lengths(name)?.summary() {
        findings.differences.push(machine::enforcement(machine, q, &lengths));
    }
    if one.late() > 0 {
        findings.differences.push(format!(
            "With the paper's own times {} of {} jobs of the periodic task were late: a greedy task that \
             overruns its budget keeps its deadline, and so the CPU. Interrupts and a hypervisor also take the \
             CPU.",
            one.late(),
            one.jobs.len()
        ));
    }
    Ok(())
}
