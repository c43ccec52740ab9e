//! [HEDF IV-C]: k, the most messages of a flow that wait for one receiving job, and the paper's
//! open question: how large must the tasks of the table be?

use takt_analysis::distributed::size::{FlowOptions, MessageCosts, size_flows};
use takt_analysis::{Answer, CheckOptions, CheckReport, TestId, check};
use takt_model::{Span, System, TableTask, file};
use takt_report::{Figure, Form, Series};

use super::batches::{self, Batches};
use super::rounded;
use super::setups::{Setup, busy, parse, setups};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Drawn, Findings, PAPER, Row, SIMULATED, all};

/// Shorter runs do not show every phase of the table tasks: drifts move them by a period in about
/// two minutes.
pub(super) const LEAST: Span = Span::from_s(300);
/// The same for the systems of the open question.
pub(super) const LEAST_BUSY: Span = Span::from_s(60);
/// One of so many receiving jobs is rare.
const RARE: u64 = 5_000;
/// Execution per message on the nodes of the open question: a receiving job of 1 ms takes five.
const COST: Span = Span::from_us(200);
/// Periods and WCETs of table tasks are multiples of this.
const QUANTUM: Span = COST;

pub(super) fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let duration = context.duration(Span::from_s(1200), Span::from_s(60));
    let mut findings = Findings::default();
    counts(context, duration, &mut findings)?;
    if !context.stopped() {
        // These systems have a hundred times as many jobs, and need no rare phase.
        tables(context, Span::from_ns(duration.as_ns() / 10), &mut findings)?;
    }
    differences(&mut findings);
    Ok(findings)
}

/// k of the hops that receive.
pub(super) fn bounds_of(report: &CheckReport, test: TestId, flow: &str, hop: u32) -> Option<u64> {
    let hops = report.tests.iter().filter(|told| told.test == test);
    let mut hops = hops.filter_map(|told| told.figures.get("flows")?.as_array()).flatten();
    hops.find(|told| told["flow"] == flow && told["hop"] == hop)?["messages"].as_u64()
}

struct Hop {
    name: &'static str,
    paper: Option<f64>,
    observed: Option<f64>,
    equation: Option<u64>,
    bound: Option<u64>,
    found: u64,
    counts: Vec<u64>,
}

fn hops_of(context: &Context, setup: &Setup, duration: Span) -> Result<Vec<Hop>, Failure> {
    let system = parse(&setup.text, setup.file)?;
    let report = check(&system, &CheckOptions { all: true, ..CheckOptions::default() });
    let found = batches::run(&system, context.seed, duration)?;
    let hop = |(hop, (name, paper, observed)): (u32, (&'static str, Option<f64>, Option<f64>))| Hop {
        name,
        paper,
        observed,
        equation: bounds_of(&report, TestId::PartialEdfPaper, "put", hop),
        bound: bounds_of(&report, TestId::PartialEdf, "put", hop),
        found: found.most(0, hop),
        counts: found.taken.get(&(0, hop)).cloned().unwrap_or_default(),
    };
    Ok((1..).zip(setup.hops.iter().copied()).map(hop).collect())
}

fn counts(context: &Context, duration: Span, findings: &mut Findings) -> Result<(), Failure> {
    let mut hops = Vec::new();
    for setup in setups() {
        if context.stopped() {
            return Ok(());
        }
        context.write(setup.file, setup.text.as_bytes())?;
        findings.files.push(setup.file.to_owned());
        hops.extend(hops_of(context, &setup, duration)?);
    }
    let value = |value: Option<u64>| value.map(|value| value as f64);
    findings.tables.push(
        Comparison::new(
            "Messages that one receiving job takes at most",
            "Section IV-C",
            "k, the messages of one flow",
            0,
        )
        .with(
            "set-up",
            ["Eq. 5", "proven", "observed"],
            [PAPER, "here"],
            (hops.iter()).map(|hop| Row {
                name: hop.name.to_owned(),
                values: vec![
                    vec![hop.paper, None, hop.observed],
                    vec![value(hop.equation), value(hop.bound), Some(hop.found as f64)],
                ],
            }),
        ),
    );
    findings.figures.push(picture(&hops, duration));
    claims(&hops, duration, findings);
    Ok(())
}

fn picture(hops: &[Hop], duration: Span) -> Drawn {
    let series = hops.iter().enumerate().map(|(colour, hop)| {
        let jobs = hop.counts.iter().sum::<u64>().max(1) as f64;
        let points = hop.counts.iter().enumerate().skip(1);
        Series {
            name: hop.name.to_owned(),
            points: points.map(|(k, count)| (k as f64, *count as f64 / jobs * 100.0)).collect(),
            form: Form::Line,
            colour,
        }
    });
    let title = "Messages that a receiving job takes";
    let figure = Figure::new(title, "messages of the flow", "% of the receiving jobs that take any", series.collect());
    let caption = format!("Each set-up was simulated for {duration}. The largest number of each line is its k.");
    Drawn::of("messages-at-once.svg", &figure, title, caption)
}

/// The largest message count that more than 1/[`RARE`] of the receiving jobs reach, empty jobs left out.
fn common(counts: &[u64]) -> usize {
    let jobs: u64 = counts.iter().sum();
    counts.iter().rposition(|count| count * RARE > jobs).unwrap_or(0)
}

/// Reached within the simulated time, not yet, or passed.
fn reached(found: u64, wanted: u64, duration: Span) -> Option<bool> {
    if found > wanted {
        return Some(false);
    }
    if found == wanted { Some(true) } else { (duration >= LEAST).then_some(false) }
}

fn claims(hops: &[Hop], duration: Span, findings: &mut Findings) {
    let [near, delayed, second, third] = hops else { return };
    let told = |value: Option<u64>| value.map_or("nothing".to_owned(), |value| value.to_string());
    findings.claim(
        "three_messages_wait_at_small_delays",
        "With small delays at most 3 messages wait at once, as Eq. 5 says",
        format!("Eq. 5 says {}, and {} were simulated", told(near.equation), near.found),
        all([Some(near.equation == Some(3)), reached(near.found, 3, duration)]),
    );
    findings.claim(
        "five_are_the_bound_at_large_delays",
        "With delays of 5.25 to 15.89 ms Eq. 5 allows 5 messages; 4 were observed there",
        format!("Eq. 5 says {}, and {} were simulated", told(delayed.equation), delayed.found),
        all([
            Some(delayed.equation == Some(5) && delayed.found <= 5),
            if delayed.found >= 4 { Some(true) } else { reached(delayed.found, 4, duration) },
        ]),
    );
    let [one, three, four] = [delayed, second, third].map(|hop| common(&hop.counts));
    findings.claim(
        "a_longer_way_changes_nothing",
        "Over nodes 0, 3 and 4 as many messages wait at once as over nodes 0 and 1, but for rare jobs",
        format!("more than one of {RARE} receiving jobs takes {three} at node 3 and {four} at node 4, {one} at node 1"),
        if three.max(four) == one { Some(true) } else { (duration >= LEAST).then_some(false) },
    );
    let kept = hops.iter().all(|hop| hop.bound.is_some_and(|bound| hop.found <= bound));
    findings.claim(
        "no_simulation_exceeds_the_bound",
        "No receiving job takes more messages than partial-edf proves",
        hops.iter()
            .map(|hop| format!("{}: {} of {}", hop.name, hop.found, told(hop.bound)))
            .collect::<Vec<_>>()
            .join("; "),
        Some(kept),
    );
}

struct Choice {
    name: &'static str,
    file: &'static str,
    system: System,
}

/// The set-up of the open question with the paper's table, and with tables that `size` finds.
fn choices() -> Result<Vec<Choice>, Failure> {
    let text = busy("requests", "200us");
    let given = parse(&text, "requests.toml")?;
    let sized = |periods: bool| {
        let costs = Some(MessageCosts { receive: COST, send: COST, quantum: QUANTUM, periods });
        let options = FlowOptions { costs, ..FlowOptions::default() };
        size_flows(&given, &options).map(|sized| sized.system).map_err(|error| Failure::trouble(&error))
    };
    let (larger, best) = (sized(false)?, sized(true)?);
    Ok(vec![
        Choice { name: "1 ms, as in the paper", file: "requests.toml", system: given },
        Choice { name: "WCETs by takt size", file: "requests-sized.toml", system: larger },
        Choice { name: "periods, too", file: "requests-periods.toml", system: best },
    ])
}

/// The tasks of the table of the node whose table needs most: periods and WCETs in ms, and its load
/// in percent.
fn largest(system: &System) -> Vec<Option<f64>> {
    let ms = |span: Span| Some(span.as_ns() as f64 / 1e6);
    let load = |task: &TableTask| task.wcet.as_ns() as f64 / task.period.as_ns() as f64 * 100.0;
    let tables = system.nodes.iter().filter_map(|node| Some((node.receive?, node.send?)));
    let tables = tables.map(|(receive, send)| (load(&receive) + load(&send), receive, send));
    let most = tables.max_by(|one, other| one.0.total_cmp(&other.0));
    most.map_or_else(Vec::new, |(load, receive, send)| {
        vec![ms(receive.period), ms(receive.wcet), ms(send.period), ms(send.wcet), Some(load)]
    })
}

/// The open question: which periods and WCETs do the tasks of the table need?
fn tables(context: &Context, duration: Span, findings: &mut Findings) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut outcomes: Vec<(&'static str, Answer, Option<Span>, Batches)> = Vec::new();
    for choice in choices()? {
        if context.stopped() {
            return Ok(());
        }
        context.write(choice.file, file::write(&choice.system).as_bytes())?;
        findings.files.push(choice.file.to_owned());
        let report = check(&choice.system, &CheckOptions::default());
        let found = batches::run(&choice.system, context.seed, duration)?;
        let ends = report.flows.iter().map(|flow| flow.end_to_end);
        let bound = ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
        let longest = found.responses.iter().copied().max().unwrap_or(Span::ZERO);
        let ms = |span: Span| Some(span.as_ns() as f64 / 1e6);
        let mut values = largest(&choice.system);
        values.extend([
            Some(found.left_over as f64 / found.received.max(1) as f64 * 100.0),
            ms(longest),
            bound.and_then(ms),
        ]);
        rows.push(Row { name: choice.name.to_owned(), values: vec![values] });
        outcomes.push((choice.name, report.schedulable, bound, found));
    }
    findings.tables.push(
        Comparison::new(
            "Tables of nodes with eight messages every 40 ms",
            "Section IV-C",
            "times in ms and load in %, of the node whose table needs most; left over in % of the messages",
            2,
        )
        .with(
            "table",
            "receive period|receive WCET|send period|send WCET|load|left over|end to end|bound".split('|'),
            [SIMULATED],
            rows,
        ),
    );
    let told = |(name, _, _, found): &(&str, Answer, Option<Span>, Batches)| {
        format!("{name}: {} of {} messages", found.left_over, found.received)
    };
    findings.claim(
        "a_receiving_task_of_1ms_is_too_short",
        "With four flows from each node a receiving task of 1 ms cannot always take all messages",
        told(&outcomes[0]),
        if outcomes[0].3.left_over > 0 { Some(true) } else { (duration >= LEAST_BUSY).then_some(false) },
    );
    findings.claim(
        "sized_tables_take_all_messages",
        "The paper leaves the right WCETs open. With those that takt size finds no message is left over",
        told(&outcomes[1]),
        Some(outcomes[1].3.left_over == 0),
    );
    let within = |(_, answer, bound, found): &(&str, Answer, Option<Span>, Batches)| {
        let kept = found.responses.iter().all(|response| bound.is_some_and(|bound| *response <= bound));
        *answer == Answer::Yes && kept && found.missed == 0
    };
    findings.claim(
        "sized_tables_keep_deadlines",
        "With WCETs, or periods too, by takt size all deadlines are proven, and the simulation keeps them",
        outcomes[1..]
            .iter()
            .map(|(name, answer, bound, found)| {
                let longest = found.responses.iter().copied().max().unwrap_or(Span::ZERO);
                let bound = bound.map_or("no bound".to_owned(), |bound| format!("at most {}", rounded(bound)));
                format!("{name}: {}, {bound}, {} simulated, {} missed", answer.name(), rounded(longest), found.missed)
            })
            .collect::<Vec<_>>()
            .join("; "),
        Some(outcomes[1..].iter().all(within)),
    );
    Ok(())
}

fn differences(findings: &mut Findings) {
    findings.differ([
        "The paper ran its storage system on eight computers. Here System files in this folder say the same.",
        "The paper calls the delays of its cluster small. Here they are 70 to 170 us.",
        "Clocks drift by up to 50 ppm here. So the phases of all table tasks come by in a long run.",
        "The proven k counts a receiving job's messages from snapshot to snapshot. Eq. 5 is one too high where the \
         period of the receiving task is a multiple of the gap and delays do not vary.",
        "The paper does not say what a message costs. Here receiving or sending one takes 200 us.",
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_batches_are_not_common() {
        assert_eq!(common(&[0, 9_000, 998, 2]), 2);
        assert_eq!(common(&[0, 9_000, 997, 3]), 3);
        assert_eq!(common(&[]), 0);
    }

    #[test]
    fn a_short_run_refutes_only_what_is_exceeded() {
        let [short, long] = [Span::from_s(1), LEAST];
        assert_eq!([reached(2, 3, short), reached(2, 3, long)], [None, Some(false)]);
        assert_eq!([reached(3, 3, short), reached(4, 3, short)], [Some(true), Some(false)]);
    }
}
