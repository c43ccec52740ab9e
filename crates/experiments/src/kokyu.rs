//! [KOKYU] Table 2, Figs. 6 to 12: strategies of one dispatcher under growing loads. The experiment
//! simulates twelve operating regions at length, and runs short windows on this machine's kernel.
//!
//! An avionics-like application has operations at 40, 20, 10, 5 and 1 Hz, critical and noncritical,
//! with staggered releases. Each operating region adds the load of its row in Table 2. These are
//! critical operations at 10, 5 and 1 Hz with varying execution times, and a noncritical chain of
//! route legs at 20 Hz. The paper gives neither the application's execution times nor a leg's. They
//! are chosen here so that the total load exceeds the CPU where the paper's did, from region 7 on.
//! Each strategy gets the same arrivals and execution times.

use takt_model::Span;
use takt_report::{Figure, Form, Series};

use super::context::Context;
use super::findings::{Comparison, Drawn, Findings, MEASURED, Row};
use super::{Experiment, KOKYU};
use crate::failure::Failure;
use application::{
    FLUSH, LEG, PAPER_VARIANTS, PROCESSING, REGIONS, STRATEGIES, Variant, bounded_controller, fixed, is_feasible,
    is_overloaded, load_ppm, outcome_of, plan, plan_of, processing, seed_of, simulate_plan, variants,
};
use count::{Class, Counter, Leg, Lost, Outcome};
use regions::Outcomes;

mod application;
mod controller;
mod count;
mod delay;
mod evidence;
mod interruptible;
mod live;
mod network;
mod overhead;
mod pauses;
mod regions;
mod replication;
mod trial;
mod window;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kokyu",
    paper: &KOKYU,
    shows: "Table 2, Figs. 6 to 12",
    what: "deadlines met by rm, muf, rms+mlf, edf, mlf and an adaptive controller in twelve regions of growing \
         load, simulated and on this kernel, and the effect of network latency",
    needs: "nothing for its simulations; the other claims need root (tracefs, SCHED_FIFO, network namespaces) \
         and two CPUs",
    takes: (Span::from_s(280), Span::from_s(18)),
    longest: REGION_MAX,
    repeats: false,
    simulated: false,
    live: None,
    lab: None,
    run: reproduce,
};

/// The frame of 20 Hz, the rate of the chain.
const FRAME: Span = Span::from_ms(50);
/// The legs of the longest chain.
const LEGS: usize = 11;

/// Regions of at least this length show how good a strategy is, because the start and chance hardly
/// matter.
const REGION_LONG: Span = Span::from_s(100);
/// Shorter regions decide no claim that needs some jobs. The slowest operations come once a second,
/// and in a small overload few jobs are late.
const REGION_MIN: Span = Span::from_s(10);
/// In longer regions more jobs of an operation wait than a simulation has room for.
const REGION_MAX: Span = Span::from_s(600);

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let each = whole_seconds(context.duration(Span::from_s(150), Span::from_s(10)));
    let Some(all) = context.unless_stopped(simulated(context, each))? else { return Ok(Findings::default()) };
    let mut findings = Findings::default();
    if each < REGION_MIN {
        findings.notes.push(format!(
            "Regions of {each} are too short for the claims. Regions of {REGION_MIN} or more decide them."
        ));
    }
    all.tables(&mut findings);
    evidence::tables(&all, &mut findings);
    controller::table(&all, "The best single strategy and the controller", &mut findings);
    all.figures(&mut findings);
    all.claims(&mut findings);
    controller::claims(&all, each >= REGION_LONG, &mut findings);
    trial::add(context, each, &mut findings)?;
    overhead::add(context, each, &mut findings)?;
    live::add(context, &mut findings)?;
    network::add(context, each, &mut findings)?;
    evidence::differences(&all, &mut findings);
    Ok(findings)
}

/// Rounds down to whole seconds, the period of the slowest operations. Between their periods, jobs
/// that are early would count for more than jobs that are merely in time.
fn whole_seconds(span: Span) -> Span {
    let second = Span::from_s(1).as_ns();
    if span.as_ns() < second { span } else { Span::from_ns(span.as_ns() / second * second) }
}

fn simulated(context: &Context, each: Span) -> Result<Outcomes, Failure> {
    let mut all = Outcomes { variants: variants(), outcomes: Vec::new(), lost: Vec::new(), each };
    for variant in &all.variants {
        let of = |region| {
            let seed = seed_of(context.seed, region);
            outcome_of(&plan(region, *variant)?, *variant, each, seed, &|| context.stopped())
        };
        let regions = (0..REGIONS.len()).map(of).collect::<Result<Vec<_>, Failure>>()?;
        let (outcomes, lost) = regions.into_iter().unzip();
        all.outcomes.push(outcomes);
        all.lost.push(lost);
    }
    Ok(all)
}

/// Returns `None` if it was neither shown nor refuted.
fn verdict(shown: bool, refuted: bool) -> Option<bool> {
    if shown { Some(true) } else { refuted.then_some(false) }
}

fn figure(title: &str, y: &str, series: Vec<Series>) -> Figure {
    Figure::new(title, "operating region", y, series)
}

/// The line of a variant, without points.
fn series(variant: &Variant, colour: usize) -> Series {
    let form = if variant.cancel { Form::Dashed } else { Form::Line };
    Series { name: variant.name(), points: Vec::new(), form, colour }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_last_whole_seconds_but_the_shortest() {
        let all = [1, 999, 1000, 10_300, 10_999, 150_000].map(|ms| whole_seconds(Span::from_ms(ms)));
        assert_eq!(all, [1, 999, 1000, 10_000, 10_000, 150_000].map(Span::from_ms));
    }
}
