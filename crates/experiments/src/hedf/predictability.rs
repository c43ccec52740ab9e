//! [HEDF I, II-A]: partial-EDF against nodes that messages interrupt and against a cyclic executive, in virtual time.
//!
//! The paper argues that partial-EDF is the most predictable of the three, and measures none of
//! it. Here eight nodes run the same tasks and flows in all three ways, with the same costs of a
//! message and of a switch, while the load grows.

use takt_analysis::{Answer, CheckOptions, TestId, check};
use takt_model::Span;
use takt_report::{Figure, Form, Series};

use super::super::context::Context;
use super::super::findings::{Comparison, Drawn, Findings, Row, SIMULATED, mean, ms};
use crate::failure::Failure;
use measure::{Outcome, p99_minus_p1, range, run};
use ring::{FRAME, Kind, MESSAGE, NODES, SEND_GAP, SWITCH, is_urgent, system};

mod measure;
mod ring;

/// Flows of each node, by load.
const LOADS: [u32; 7] = [2, 4, 6, 8, 10, 12, 14];
/// Shorter runs decide nothing: the slowest flow has 20 instances a second.
const DURATION_MIN_S: u64 = 20;

struct Point {
    flows: u32,
    outcomes: Vec<Outcome>,
    proven: Vec<f64>,
    within_bounds: Vec<bool>,
}

type Measure = fn(&Outcome) -> Option<f64>;

pub(super) fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let duration = context.duration(Span::from_s(60), Span::from_s(2));
    let bar = (context.host.bar)("simulating", (LOADS.len() * Kind::ALL.len()) as u64);
    let mut points = Vec::new();
    for flows in LOADS {
        let mut point = Point { flows, outcomes: Vec::new(), proven: Vec::new(), within_bounds: Vec::new() };
        for kind in Kind::ALL {
            if !context.stopped() {
                point.add(kind, context.seed, duration)?;
            }
            bar.inc(1);
        }
        // A stop may leave out some of the three kinds. Then the load is left out.
        if point.outcomes.len() == Kind::ALL.len() {
            points.push(point);
        }
    }
    bar.finish_and_clear();
    let mut findings = Findings::default();
    tables(&points, &mut findings);
    figures(&points, &mut findings);
    claims(&points, duration, &mut findings);
    differences(&mut findings);
    Ok(findings)
}

impl Point {
    fn add(&mut self, kind: Kind, seed: u64, duration: Span) -> Result<(), Failure> {
        let system = system(kind, self.flows, seed);
        let outcome = run(&system, seed, duration)?;
        let report = check(&system, &CheckOptions::default());
        let of_flow = |name: &str| {
            let scope = format!("flow/{name}");
            let mut tests = report.tests.iter().filter(|test| test.test == TestId::PartialEdf && test.scope == scope);
            tests.find(|test| test.verdict.answer() == Answer::Yes)?.figures["end_to_end_ns"].as_u64()
        };
        let bounds: Vec<Option<u64>> = system.flows.iter().map(|flow| of_flow(&flow.name)).collect();
        let proven = bounds.iter().flatten().count();
        let most = |flow: usize| outcome.flows[flow].summary().map_or(0, |all| all.max);
        let within = bounds.iter().enumerate().all(|(flow, bound)| bound.is_none_or(|bound| most(flow) <= bound));
        self.proven.push(proven as f64 * 100.0 / bounds.len().max(1) as f64);
        self.within_bounds.push(within);
        self.outcomes.push(outcome);
        Ok(())
    }

    fn of(&self, kind: Kind) -> &Outcome {
        &self.outcomes[kind as usize]
    }
}

/// The mean over all flows of the middle 98 % of their responses, in ms.
fn flow_spread(of: &Outcome) -> Option<f64> {
    mean(of.flows.iter().filter_map(p99_minus_p1).map(ms))
}

/// The largest range of a flow's responses, in ms.
fn flow_range(of: &Outcome) -> Option<f64> {
    of.flows.iter().filter_map(range).max().map(ms)
}

/// [`flow_spread`] of the local tasks.
fn local_spread(of: &Outcome) -> Option<f64> {
    mean(of.locals.iter().filter_map(p99_minus_p1).map(ms))
}

fn local_range(of: &Outcome) -> Option<f64> {
    of.locals.iter().filter_map(range).max().map(ms)
}

fn switch_spread(of: &Outcome) -> Option<f64> {
    p99_minus_p1(&of.switches_by_window).map(|count| count as f64)
}

fn arrival_to_job(of: &Outcome) -> Option<f64> {
    of.arrival_to_job.summary().map(|all| ms(all.mean))
}

/// The mean response of urgent flows, divided by that of the others.
fn urgency(of: &Outcome) -> Option<f64> {
    let means = |urgent: bool| {
        let flows = of.flows.iter().enumerate().filter(|(flow, _)| is_urgent(*flow) == urgent);
        mean(flows.filter_map(|(_, flow)| flow.summary()).map(|all| ms(all.mean)))
    };
    Some(means(true)? / means(false)?)
}

const TABLES: [(&str, &str, Measure); 11] = [
    ("Spread of end-to-end responses, p99 - p1", "ms, mean of the flows", flow_spread),
    ("Spread of end-to-end responses, max - min", "ms, largest of the flows", flow_range),
    ("Spread of local responses, p99 - p1", "ms, mean of the nodes", local_spread),
    ("Spread of local responses, max - min", "ms, largest of the nodes", local_range),
    ("Preemptions of jobs", "a second and node", |of| Some(of.preemptions)),
    ("Switches", "a second and node", |of| Some(of.switches)),
    ("Spread of switches in 10 ms, p99 - p1", "switches on a node", switch_spread),
    ("Deadlines missed", "percent of flows' instances and local jobs", Outcome::miss_percent),
    ("From the arrival of a message to its job", "ms, mean", arrival_to_job),
    ("Least distance of messages of a flow", "ms", send_distance_min),
    ("Responses of urgent flows by those of others", "ratio of means", urgency),
];

fn table(points: &[Point], title: &str, unit: &'static str, value: impl Fn(&Point, Kind) -> Option<f64>) -> Comparison {
    let row = |point: &Point| Row {
        name: point.flows.to_string(),
        values: vec![Kind::ALL.iter().map(|kind| value(point, *kind)).collect()],
    };
    Comparison::new(title, "Section I", unit, 3).with(
        "flows a node",
        Kind::ALL.map(|kind| kind.name().to_owned()),
        [SIMULATED],
        points.iter().map(row),
    )
}

fn tables(points: &[Point], findings: &mut Findings) {
    for (title, unit, measure) in TABLES {
        findings.tables.push(table(points, title, unit, |point, kind| measure(point.of(kind))));
    }
    let proven = table(points, "Flows proven by check", "percent", |point, kind| Some(point.proven[kind as usize]));
    findings.tables.push(proven);
}

fn figures(points: &[Point], findings: &mut Findings) {
    let drawn: [(&str, &str, &str, &str, Measure); 4] = [
        ("end-to-end-spread.svg", "Spread of end-to-end responses", "p99 - p1, ms", "Mean of the flows.", flow_spread),
        ("local-spread.svg", "Spread of local responses", "p99 - p1, ms", "Mean of the nodes.", local_spread),
        (
            "switch-spread.svg",
            "Spread of switches in 10 ms",
            "p99 - p1, switches",
            "How much the number of switches on a node differs from one window of 10 ms to another.",
            switch_spread,
        ),
        (
            "deadlines-missed.svg",
            "Deadlines missed",
            "% of the jobs",
            "Flows' instances and local jobs.",
            Outcome::miss_percent,
        ),
    ];
    for (file, title, y, caption, measure) in drawn {
        let line = |(colour, kind): (usize, &Kind)| Series {
            name: kind.name().to_owned(),
            points: points
                .iter()
                .filter_map(|point| Some((f64::from(point.flows), measure(point.of(*kind))?)))
                .collect(),
            form: Form::Line,
            colour,
        };
        let figure = Figure::new(title, "flows of each node", y, Kind::ALL.iter().enumerate().map(line).collect());
        findings.figures.push(Drawn::of(file, &figure, title, caption));
    }
}

fn describe(points: &[Point], kind: Kind, measure: Measure, unit: &str) -> String {
    let values =
        points.iter().map(|point| measure(point.of(kind)).map_or("-".to_owned(), |value| format!("{value:.2}")));
    format!("{} {}{unit}", kind.name(), values.collect::<Vec<_>>().join(", "))
}

/// Whether a measure of partial-EDF is below that of another kind at each of these loads.
fn below<'a>(mut points: impl Iterator<Item = &'a Point>, other: Kind, measure: Measure) -> bool {
    let pair = |point: &Point| measure(point.of(Kind::PartialEdf)).zip(measure(point.of(other)));
    points.all(|point| pair(point).is_some_and(|(own, other)| own < other))
}

/// The loads at which partial-EDF and interrupts keep all deadlines. At larger loads backlogs grow.
fn without_misses(points: &[Point]) -> impl Iterator<Item = &Point> {
    points.iter().filter(|point| [Kind::PartialEdf, Kind::Interrupt].iter().all(|kind| point.of(*kind).missed == 0))
}

fn send_distance_min(of: &Outcome) -> Option<f64> {
    of.send_distance_min.map(|distance| ms(distance.as_ns()))
}

/// Messages leave on the grid of the sending task, and a table job ends up to this after its release.
const TABLE_JOB_MS: f64 = 2.0;

/// Whether messages of a flow leave as the send gap says under partial-EDF, and not with interrupts.
fn keeps_send_gap(points: &[Point]) -> bool {
    let least = ms(SEND_GAP.as_ns()) - TABLE_JOB_MS;
    let own = |point: &Point| send_distance_min(point.of(Kind::PartialEdf)).is_some_and(|distance| distance >= least);
    let heaviest = points.last().and_then(|point| send_distance_min(point.of(Kind::Interrupt)));
    points.iter().all(own) && heaviest.is_some_and(|distance| distance < least)
}

fn claims(points: &[Point], duration: Span, findings: &mut Findings) {
    let whole = points.len() == LOADS.len();
    let seconds = duration.as_ns() / 1_000_000_000;
    let both = |measure: Measure, other: Kind, unit: &str| {
        let own = describe(points, Kind::PartialEdf, measure, unit);
        format!("by load: {own}; {}", describe(points, other, measure, unit))
    };
    let mut add = |name, claim: &str, found: String, holds: bool| {
        findings.claim(name, claim, found, whole.then_some(holds)).needs(seconds, DURATION_MIN_S, "seconds");
    };
    add(
        "waiting_limits_awareness",
        "Under partial-EDF the scheduler learns of a message later than with interrupts",
        both(arrival_to_job, Kind::Interrupt, " ms"),
        points
            .iter()
            .all(|point| arrival_to_job(point.of(Kind::PartialEdf)) > arrival_to_job(point.of(Kind::Interrupt))),
    );
    add(
        "switches_are_fewer",
        "Under partial-EDF there are fewer switches than with interrupts",
        both(|of| Some(of.switches), Kind::Interrupt, " a second and node"),
        below(points.iter(), Kind::Interrupt, |of| Some(of.switches)),
    );
    add(
        "switches_are_more_predictable",
        "The number of switches in 10 ms spreads less under partial-EDF than with interrupts (p99 - p1)",
        both(switch_spread, Kind::Interrupt, ""),
        below(points.iter(), Kind::Interrupt, switch_spread),
    );
    add(
        "local_jobs_are_more_predictable",
        "Responses of local jobs spread less under partial-EDF than with interrupts (p99 - p1, where both keep all \
         deadlines)",
        both(local_spread, Kind::Interrupt, " ms"),
        below(without_misses(points), Kind::Interrupt, local_spread),
    );
    add(
        "flows_are_more_predictable",
        "End-to-end responses spread less under partial-EDF than with interrupts (p99 - p1, where both keep all \
         deadlines)",
        both(flow_spread, Kind::Interrupt, " ms"),
        below(without_misses(points), Kind::Interrupt, flow_spread),
    );
    add(
        "sending_is_regulated",
        "Under partial-EDF messages of a flow leave a node the send gap of 10 ms apart, but for 2 ms of table jobs; \
         with interrupts they come closer under load",
        both(send_distance_min, Kind::Interrupt, " ms"),
        keeps_send_gap(points),
    );
    add(
        "cyclic_executives_know_no_urgency",
        "Partial-EDF serves urgent flows sooner than others, and a cyclic executive does so less (where partial-EDF \
         keeps all deadlines)",
        both(urgency, Kind::Cyclic, ""),
        below(without_misses(points), Kind::Cyclic, urgency)
            && without_misses(points).all(|point| urgency(point.of(Kind::PartialEdf)).is_some_and(|ratio| ratio < 1.0)),
    );
    let misses = |point: &Point, kind| Outcome::miss_percent(point.of(kind)).unwrap_or(0.0);
    let pairs: Vec<(f64, f64)> =
        points.iter().map(|point| (misses(point, Kind::PartialEdf), misses(point, Kind::Cyclic))).collect();
    add(
        "partial_edf_misses_fewer_than_cyclic",
        "Partial-EDF misses no more deadlines than a cyclic executive at any load, and fewer at some",
        both(Outcome::miss_percent, Kind::Cyclic, " %"),
        pairs.iter().all(|(own, cyclic)| own <= cyclic) && pairs.iter().any(|(own, cyclic)| own < cyclic),
    );
    let proven = |kind: Kind| {
        let shares: Vec<String> = points.iter().map(|point| format!("{:.0}", point.proven[kind as usize])).collect();
        format!("{} {} %", kind.name(), shares.join(", "))
    };
    add(
        "bounds_hold",
        "No end-to-end response exceeds the bound that check proves",
        format!("flows proven by load: {}; {}", proven(Kind::PartialEdf), proven(Kind::Interrupt)),
        points.iter().all(|point| point.within_bounds.iter().all(|within| *within)),
    );
}

fn differences(findings: &mut Findings) {
    findings.differences = vec![
        "The paper measures none of this: it argues. All values are simulated here.".to_owned(),
        "The claims and deadlines were changed after a first run of this set-up, so they are no predictions. The whole \
         experiment gave the same verdicts with seeds 0 to 7."
            .to_owned(),
        "End-to-end responses spread more under partial-EDF. A message waits up to a period of the sending and of the \
         receiving task on each hop. This wait differs from one message to the next by more than interrupts take."
            .to_owned(),
        "Responses of local jobs spread alike. A table job that takes many messages at once delays a local job by more \
         than single interrupts do, and this makes up for the rarer preemptions."
            .to_owned(),
        "The paper's predictability is that of a node's CPU: how messages interrupt its jobs, and how often."
            .to_owned(),
        format!(
            "A message costs {MESSAGE} where it is received and where it is sent, in all three ways, and a switch \
             {SWITCH}. The paper gives no such costs."
        ),
        format!(
            "The cyclic executive has a frame of {FRAME}: 1 ms to receive, 8 ms for jobs, 1 ms to send. The paper \
             refers to an earlier one for its rules, whose text is not at hand."
        ),
        format!("All {NODES} nodes run the same load. The paper's own runs on eight nodes are of other quantities."),
    ];
}
