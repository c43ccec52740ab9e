//! A trial as in [KOKYU III-B]: the twelve regions run in a row under one strategy. Work that is
//! left at the end of a region goes on in the next one.
//!
//! One plan has the operations of all regions. A region does not use the legs beyond its number. It
//! does not use the additional critical operations if their execution times do not vary. Jobs of
//! unused operations take a nanosecond and are not counted.

use std::sync::Arc;

use takt_dispatch::Plan;
use takt_log::JobKey;
use takt_model::draw::Draw;
use takt_model::system::Trace;
use takt_model::{Exec, Span, Task, Time};

use super::application::BACKLOG;
use super::count::Counter;
use super::regions::Outcomes;
use super::{
    Context, FRAME, Failure, Findings, LEG, Lost, Outcome, REGION_LONG, REGIONS, Variant, controller, is_feasible,
    plan, simulate_plan, variants,
};

/// The execution time of a job whose operation the region does not use.
const NOTHING: Span = Span::from_ns(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Fixed,
    Surrogate,
    /// A leg at this position of its chain. The first is 1.
    Leg(u32),
}

impl Kind {
    fn of(task: &Task) -> Kind {
        if task.name.starts_with("surrogate-") {
            return Kind::Surrogate;
        }
        task.name.strip_prefix("leg-").and_then(|leg| leg.parse().ok()).map_or(Kind::Fixed, Kind::Leg)
    }

    /// Whether a region uses it.
    fn is_in(self, region: usize) -> bool {
        let (least, most, legs) = REGIONS[region];
        match self {
            Kind::Fixed => true,
            Kind::Surrogate => most > least,
            Kind::Leg(position) => position <= legs,
        }
    }
}

struct Trial {
    plan: Plan,
    each: Span,
    /// By task: its role, and the offset and period of its arrivals. A task that comes after others
    /// has those of its chain's source.
    tasks: Vec<(Kind, Span, Span)>,
}

impl Trial {
    fn new(variant: Variant, each: Span, seed: u64) -> Result<Trial, Failure> {
        let all = plan(REGIONS.len() - 1, variant)?;
        // The most waiting legs: all that arrive in the overloaded regions.
        let full = (0..REGIONS.len()).filter(|region| !is_feasible(*region)).count() as u64;
        let wait = u32::try_from((each.as_ns() / FRAME.as_ns()).saturating_mul(full)).unwrap_or(u32::MAX);
        let mut plan = all.with_backlog(wait.max(BACKLOG));
        let all = &plan.system.tasks;
        let arriving = |task: &Task| {
            let before = |task: &&Task| all.get(task.after.first()?.index());
            let source = std::iter::successors(Some(task), before).last().unwrap_or(task);
            (Kind::of(task), source.offset, source.period)
        };
        let tasks: Vec<(Kind, Span, Span)> = all.iter().map(arriving).collect();
        let mut trial = Trial { plan: plan.clone(), each, tasks };
        for (task, at) in plan.system.tasks.iter_mut().zip(0..) {
            task.exec = trial.exec(task, at, seed);
        }
        trial.plan = plan;
        Ok(trial)
    }

    fn duration(&self) -> Span {
        Span::from_ns(self.each.as_ns().saturating_mul(REGIONS.len() as u64))
    }

    fn region(&self, task: usize, number: u64) -> usize {
        let (_, offset, period) = self.tasks[task];
        let arrival =
            Time::ZERO.saturating_add(offset).saturating_add(Span::from_ns(period.as_ns().saturating_mul(number)));
        ((arrival.as_ns() / self.each.as_ns()) as usize).min(REGIONS.len() - 1)
    }

    /// Execution times by job number. The draws are those of a region by itself.
    fn exec(&self, task: &Task, at: usize, seed: u64) -> Exec {
        let (kind, _, period) = self.tasks[at];
        if kind == Kind::Fixed {
            return task.exec.clone();
        }
        let draw = Draw::new(seed, &task.name);
        let within = REGIONS.map(|(least, most, _)| {
            let exec = Exec::Uniform { min: Span::from_ms(least).max(NOTHING), max: Span::from_ms(most).max(NOTHING) };
            Task { exec, ..task.clone() }
        });
        let time = |number: u64| match (self.region(at, number), kind) {
            (region, kind) if !kind.is_in(region) => NOTHING,
            (_, Kind::Leg(_)) => LEG,
            (region, _) => draw.exec(&within[region], number),
        };
        let jobs = self.duration().as_ns() / period.as_ns() + 1;
        Exec::Trace(Trace { path: String::new(), values: Arc::from((0..jobs).map(time).collect::<Vec<_>>()) })
    }

    fn region_of(&self, job: JobKey) -> Option<usize> {
        let (kind, ..) = self.tasks.get(job.task.index())?;
        let region = self.region(job.task.index(), job.number);
        kind.is_in(region).then_some(region)
    }
}

/// Simulates a trial. Returns the outcomes and the lost jobs by region.
fn outcomes(
    variant: Variant,
    each: Span,
    seed: u64,
    stopped: &dyn Fn() -> bool,
) -> Result<(Vec<Outcome>, Vec<Lost>), Failure> {
    let trial = Trial::new(variant, each, seed)?;
    let mut counter = Counter::by_region(&trial.plan.system, REGIONS.len(), |job| trial.region_of(job));
    simulate_plan(&trial.plan, variant, trial.duration(), seed, stopped, &mut counter)?;
    Ok((counter.outcomes, counter.lost))
}

/// Simulates trials under all single strategies and the controller.
fn all(each: Span, seed: u64, stopped: &dyn Fn() -> bool) -> Result<Outcomes, Failure> {
    let mut all = Outcomes { variants: variants(), outcomes: Vec::new(), lost: Vec::new(), each };
    for variant in &all.variants {
        let (outcomes, lost) = outcomes(*variant, each, seed, stopped)?;
        all.outcomes.push(outcomes);
        all.lost.push(lost);
    }
    Ok(all)
}

pub(super) fn add(context: &Context, each: Span, findings: &mut Findings) -> Result<(), Failure> {
    let Some(all) = context.unless_stopped(all(each, context.seed, &|| context.stopped()))? else { return Ok(()) };
    let missed = |outcome: &Outcome| all.rate(outcome.critical.missed);
    let made = |outcome: &Outcome| all.rate(outcome.noncritical.made);
    findings.tables.extend([
        all.table("In a row: critical deadlines missed", "Fig. 12", "deadlines/s", missed),
        all.table("In a row: noncritical deadlines made", "Fig. 12", "deadlines/s", made),
    ]);
    controller::table(&all, "In a row: the best single strategy and the controller", findings);
    controller::claims_in_a_row(&all, each >= REGION_LONG, findings);
    findings.differ([
        "The paper's trial runs through its regions in a row. Here that is the second simulation; in the first one, \
         as on the kernel, each region begins idle, so that it can be told what is its own. In a row one plan has \
         the operations of all regions, with the worst-case execution times of the last one; those that a region \
         has no use for take a nanosecond there and are not counted.",
    ]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use takt_model::{Builtin, Criticality};

    use super::super::controller::tests::assert_worth_it;
    use super::*;

    /// The seeds, and the length of a region. TAKT_CASES asks for more of both, TAKT_SEED is the
    /// first seed.
    fn size() -> (std::ops::Range<u64>, Span) {
        let read = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
        let (first, cases) = (read("TAKT_SEED").unwrap_or(0), read("TAKT_CASES").unwrap_or(0));
        let (seeds, each) =
            if cases >= 10_000 { ((cases / 10_000).clamp(5, 20), Span::from_s(150)) } else { (2, Span::from_s(10)) };
        (first..first + seeds, each)
    }

    #[test]
    fn in_a_row_the_controller_keeps_what_any_keeps_and_is_close_to_the_papers_best() {
        let (seeds, each) = size();
        for seed in seeds {
            let all = all(each, seed, &|| false).unwrap();
            assert_worth_it(&all, &format!("TAKT_SEED={seed} cargo test -p takt --bin takt in_a_row"));
        }
    }

    #[test]
    fn a_job_takes_what_its_region_says() {
        let each = Span::from_s(2);
        let trial = Trial::new(Variant { strategy: Some(Builtin::Muf), cancel: true }, each, 7).unwrap();
        for (at, task) in trial.plan.system.tasks.iter().enumerate() {
            let draw = Draw::new(7, &task.name);
            let (kind, offset, period) = trial.tasks[at];
            for number in 0..trial.duration().as_ns() / period.as_ns() {
                let arrival = offset.as_ns() + number * period.as_ns();
                let region = (arrival / each.as_ns()) as usize;
                if region >= REGIONS.len() {
                    continue;
                }
                let (least, most, legs) = REGIONS[region];
                let time = draw.exec(task, number);
                match kind {
                    Kind::Fixed => assert_eq!(time, task.wcet),
                    Kind::Leg(leg) => assert_eq!(time, if leg <= legs { LEG } else { NOTHING }, "{region} {leg}"),
                    Kind::Surrogate => {
                        assert!(Span::from_ms(least) <= time.max(NOTHING) && time <= Span::from_ms(most).max(NOTHING));
                        assert_eq!(task.criticality, Criticality::High);
                    }
                }
                let job = JobKey { task: takt_model::TaskId(at as u32), number };
                let counts = match kind {
                    Kind::Fixed => true,
                    Kind::Leg(leg) => leg <= legs,
                    Kind::Surrogate => most > 0,
                };
                assert_eq!(trial.region_of(job), counts.then_some(region), "{} {number}", task.name);
            }
        }
    }
}
