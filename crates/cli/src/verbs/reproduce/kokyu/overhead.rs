//! [KOKYU IV-B] Figs. 10 and 11, and the question of its section VI: what queues cost under each strategy, and whether that, or the time that a dearer strategy leaves
//! to others by it, explains why muf was better than rms+mlf at moderate jitter.

use takt_linux::Epoch;
use takt_model::{Arrival, Builtin, Costs, Span};
use takt_report::Series;
use takt_run::dispatch::Queues;

use super::{
    Comparison, Context, Failure, Findings, Outcome, PAPERS, REGIONS, Row, Variant, figure, outcome_of, plan, variants,
};

/// What the paper measured for a request, enqueued and dequeued together: 12 us under rms and rms+mlf, 32 us under muf.
fn papers(variant: Variant) -> Span {
    Span::from_us(if variant.strategy == Some(Builtin::Muf) { 32 } else { 12 })
}

/// A charge for each request: what it is called, and how much of the paper's it is.
const CHARGES: [(&str, u64); 3] = [("no costs", 0), ("costs as in the paper", 1), ("ten times those costs", 10)];

/// In per cent: that much more is an advantage. In overload without cancellation late legs pile up, and a few more or less of them are in time by chance.
const MARGIN: u64 = 102;

/// Adds to the findings what queues cost here, and what strategies come to with and without such costs.
pub(super) fn add(context: &Context, duration: Span, findings: &mut Findings) -> Result<(), Failure> {
    latencies(context, findings)?;
    simulated(context, duration, findings)
}

/// Figs. 10 and 11, on this machine.
fn latencies(context: &Context, findings: &mut Findings) -> Result<(), Failure> {
    let rounds = if context.short { 40 } else { 400 };
    let papers: Vec<Variant> = variants().into_iter().take(PAPERS).collect();
    // By variant, by region.
    let mut all: Vec<Vec<(f64, f64)>> = vec![Vec::new(); papers.len()];
    for region in 0..REGIONS.len() {
        for (variant, measured) in papers.iter().zip(&mut all) {
            if context.stopped() {
                return Ok(());
            }
            measured.push(latency(region, *variant, rounds)?);
        }
    }
    let columns: Vec<String> = papers.iter().map(|variant| variant.name()).collect();
    for (title, cite, file, pick) in [
        ("Mean enqueue latency", "Fig. 10", "fig10.svg", (|both: &(f64, f64)| both.0) as fn(&(f64, f64)) -> f64),
        ("Mean dequeue latency", "Fig. 11", "fig11.svg", |both| both.1),
    ] {
        let row = |region: usize| Row {
            name: region.to_string(),
            values: vec![all.iter().map(|regions| regions.get(region).map(pick)).collect()],
        };
        findings.tables.push(Comparison {
            title: title.to_owned(),
            cite,
            unit: "ns an operation",
            digits: 0,
            row_head: "region",
            columns: columns.clone(),
            sources: vec![super::MEASURED],
            rows: (0..REGIONS.len()).map(row).collect(),
        });
        let series = papers.iter().zip(&all).enumerate().map(|(at, (variant, regions))| Series {
            points: regions.iter().enumerate().map(|(region, both)| (region as f64, pick(both))).collect(),
            ..super::series(variant, at / 2)
        });
        let caption =
            "takt's queues on this machine, their lock and a look at the clock for each included; medians of rounds.";
        findings.figures.push(super::Drawn::of(
            file,
            &figure(title, "ns", series.collect()),
            format!("{cite}: {title}"),
            caption,
        ));
    }
    let mean = |strategy: Builtin| {
        let of = papers.iter().zip(&all).filter(|(variant, _)| variant.strategy == Some(strategy));
        let both: Vec<f64> = of.flat_map(|(_, regions)| regions).map(|both| both.0 + both.1).collect();
        both.iter().sum::<f64>() / both.len().max(1) as f64
    };
    let (rm, muf, hybrid) = (mean(Builtin::Rm), mean(Builtin::Muf), mean(Builtin::RmsMlf));
    findings.notes.push(format!(
        "A request is enqueued and dequeued in {rm:.0} ns under rm, {muf:.0} ns under muf and {hybrid:.0} ns under rms+mlf, on average over the regions; the paper tells of about 12 us, 32 us and 12 us, on its machine."
    ));
    Ok(())
}

/// Nanoseconds of an enqueue and of a dequeue: the mean over a region's operations, all of which wait in turn, and of that the median over rounds.
fn latency(region: usize, variant: Variant, rounds: u32) -> Result<(f64, f64), Failure> {
    let wrong = |what: &dyn std::fmt::Display| Failure::trouble(format_args!("region {region}: {what}"));
    let mut plan = plan(region, variant)?;
    // Each is pushed by this loop, as often as it likes, and none is ever late: the queues alone are measured.
    let mut periods: Vec<Span> = plan.system.tasks.iter().map(|task| task.period).collect();
    periods.sort_unstable();
    periods.dedup();
    for task in &mut plan.system.tasks {
        // As many periods as before, in their order: by them strategies tell levels apart.
        let rank = periods.partition_point(|period| *period < task.period) as u64;
        (task.arrival, task.period, task.offset) = (Arrival::Sporadic, Span::from_ns(1 + rank), Span::ZERO);
        task.deadline = task.deadline.saturating_add(Span::from_s(1000));
        task.after.clear();
    }
    let (operations, levels) = (plan.rows.len() as u32, plan.levels.len() as u32);
    let queues = Queues::new(&plan, 0).map_err(|error| wrong(&error))?;
    let clock = Epoch::now_is_zero();
    let mut all: (Vec<f64>, Vec<f64>) = Default::default();
    for _ in 0..rounds {
        let (mut dequeue, mut count) = (Span::ZERO, 0);
        let before = clock.now();
        for slot in 0..operations {
            queues.push(slot).map_err(|error| wrong(&error))?;
        }
        let enqueue = clock.now().saturating_since(before);
        for level in 0..levels {
            let before = clock.now();
            let mut next = queues.take(level);
            while let Some(ticket) = next {
                count += 1;
                next = queues.exchange(ticket, level);
            }
            dequeue = dequeue.saturating_add(clock.now().saturating_since(before));
        }
        if count != operations {
            return Err(wrong(&format_args!("{count} of {operations} operations came out of their queues")));
        }
        let mean = |span: Span| span.as_ns() as f64 / f64::from(operations);
        all.0.push(mean(enqueue));
        all.1.push(mean(dequeue));
    }
    Ok((median(all.0), median(all.1)))
}

/// Of rounds: a machine that pauses in one of them says nothing of queues.
fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_unstable_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The same regions with a charge for each request.
fn simulated(context: &Context, duration: Span, findings: &mut Findings) -> Result<(), Failure> {
    let hybrids: Vec<Variant> = variants().into_iter().take(PAPERS).filter(|variant| variant.is_aware()).collect();
    // By charge, by variant, by region.
    let mut all: Vec<Vec<Vec<Outcome>>> = Vec::new();
    for (_, times) in CHARGES {
        let mut of_charge = Vec::new();
        for variant in &hybrids {
            let mut regions = Vec::new();
            for region in 0..REGIONS.len() {
                if context.stopped() {
                    return Ok(());
                }
                let mut plan = plan(region, *variant)?;
                let charge = Span::from_ns(papers(*variant).as_ns() * times);
                for node in &mut plan.system.nodes {
                    node.costs = Some(Costs { release: charge, ..Costs::NONE });
                }
                regions.push(outcome_of(&plan, region, *variant, duration, context.seed)?);
            }
            of_charge.push(regions);
        }
        all.push(of_charge);
    }
    let seconds = duration.as_ns() as f64 / 1e9;
    for ((charge, _), of_charge) in CHARGES.iter().zip(&all) {
        let row = |region: usize| Row {
            name: region.to_string(),
            values: vec![
                of_charge
                    .iter()
                    .map(|regions| regions.get(region).map(|outcome| outcome.noncritical.made as f64 / seconds))
                    .collect(),
            ],
        };
        findings.tables.push(Comparison {
            title: format!("Noncritical deadlines made, {charge}"),
            cite: "section VI",
            unit: "deadlines/s",
            digits: 1,
            row_head: "region",
            columns: hybrids.iter().map(|variant| variant.name()).collect(),
            sources: vec!["simulated"],
            rows: (0..REGIONS.len()).map(row).collect(),
        });
    }
    claims(&hybrids, &all, findings);
    Ok(())
}

fn claims(hybrids: &[Variant], all: &[Vec<Vec<Outcome>>], findings: &mut Findings) {
    let of = |charge: usize, strategy: Builtin, cancel: bool| {
        let wanted = Variant { strategy: Some(strategy), cancel };
        let at = hybrids.iter().position(|variant| *variant == wanted)?;
        all.get(charge)?.get(at)
    };
    // Regions in which muf makes more, by charge; and those with the jitter that the paper calls moderate.
    let better = |charge: usize, cancel: bool| -> Vec<usize> {
        let both = of(charge, Builtin::Muf, cancel).zip(of(charge, Builtin::RmsMlf, cancel));
        let pairs = both.into_iter().flat_map(|(muf, hybrid)| muf.iter().zip(hybrid).enumerate());
        let more = |(muf, hybrid): (&Outcome, &Outcome)| muf.noncritical.made * 100 > hybrid.noncritical.made * MARGIN;
        pairs.filter(|(_, both)| more(*both)).map(|(at, _)| at).collect()
    };
    let shown = |regions: &[usize]| match regions {
        [] => "in no region".to_owned(),
        regions => format!("in regions {}", regions.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    };
    let told: Vec<String> = (0..CHARGES.len())
        .map(|charge| {
            format!("{}: {}", CHARGES[charge].0, shown(&[better(charge, true), better(charge, false)].concat()))
        })
        .collect();
    let by_order = [better(0, true), better(0, false)].concat();
    findings.claim(
        "order_gives_muf_nothing",
        "what the paper asks: without costs of queues, muf makes no more noncritical deadlines than rms+mlf (by 2 % or more), so that no capability of its order explains its advantage",
        format!("it makes more {}", shown(&by_order)),
        Some(by_order.is_empty()),
    );
    let moderate = |regions: &[usize]| regions.iter().filter(|region| *region % 4 == 1).count();
    let by_costs: usize =
        (1..CHARGES.len()).map(|charge| moderate(&better(charge, true)) + moderate(&better(charge, false))).sum();
    findings.claim(
        "costs_give_muf_nothing_at_moderate_jitter",
        "what the paper asks: nor do its dearer queues, as a charge on each request, give it an advantage in the regions of moderate jitter (1, 5 and 9)",
        format!("muf makes more than rms+mlf with {}", told.join("; ")),
        Some(by_costs == 0),
    );
    let missed: u64 = all.iter().skip(1).flatten().flatten().map(|outcome| outcome.critical.missed).sum();
    findings.claim(
        "costs_lose_no_critical",
        "with the paper's costs, and ten times those, muf and rms+mlf keep the critical deadlines (in the paper each lost one in region 9, which it ascribes to overhead)",
        format!("{missed} critical deadlines missed, of all regions, all four and both charges"),
        Some(missed == 0),
    );
}
