//! [KOKYU IV-B] Figs. 10 and 11, and a question of its section VII.
//!
//! The experiment measures the cost of queues under each strategy. The paper asks why muf was
//! better than rms+mlf at moderate jitter. Two guesses are checked: the cost of queues, and the
//! time that a strategy with dearer queues leaves to others.
//!
//! A charge lengthens the requested job, in its own level. Two effects are not modelled. A supplier
//! enqueues a job at the supplier's level, which may be above or below. The rule that cancels jobs
//! ignores the charge, since it looks at worst-case execution times.

use takt_dispatch::Queues;
use takt_linux::Epoch;
use takt_model::{Arrival, Builtin, Costs, Span};
use takt_report::Series;

use super::regions::list;
use super::{
    Comparison, Context, Failure, Findings, Outcome, PAPER_VARIANTS, REGION_MIN, REGIONS, Row, Variant, figure,
    load_ppm, outcome_of, plan, seed_of, variants, verdict,
};
use crate::findings::PAPER;

/// The paper's cost of a request, to enqueue and dequeue: 12 us under rms and rms+mlf, 32 us under
/// muf.
fn charge(variant: Variant) -> Span {
    Span::from_us(if variant.strategy == Some(Builtin::Muf) { 32 } else { 12 })
}

/// The charges for each request: a name, and a factor of the paper's cost.
const CHARGES: [(&str, u64); 3] = [("no costs", 0), ("costs as in the paper", 1), ("ten times those costs", 10)];

/// A lead of more than this share of the requested noncritical deadlines is an advantage, in
/// percent.
///
/// In overload without cancellation late legs pile up. Few jobs are in time then, and a few more or
/// less of them are chance.
const MARGIN: u64 = 2;

/// Adds the cost of queues here, and the outcomes of strategies with and without such costs.
pub(super) fn add(context: &Context, duration: Span, findings: &mut Findings) -> Result<(), Failure> {
    latencies(context, findings)?;
    simulated(context, duration, findings)
}

/// Measures Figs. 10 and 11 on this machine.
fn latencies(context: &Context, findings: &mut Findings) -> Result<(), Failure> {
    let rounds = if context.short { 40 } else { 400 };
    let papers: Vec<Variant> = variants().into_iter().take(PAPER_VARIANTS).collect();
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
        (
            "Mean enqueue latency",
            "Fig. 10",
            "enqueue-latency.svg",
            (|both: &(f64, f64)| both.0) as fn(&(f64, f64)) -> f64,
        ),
        ("Mean dequeue latency", "Fig. 11", "dequeue-latency.svg", |both| both.1),
    ] {
        let row = |region: usize| Row {
            name: region.to_string(),
            values: vec![all.iter().map(|regions| regions.get(region).map(pick)).collect()],
        };
        findings.tables.push(Comparison::new(title, cite, "ns an operation", 0).with(
            "region",
            columns.clone(),
            [super::MEASURED],
            (0..REGIONS.len()).map(row),
        ));
        let series = papers.iter().zip(&all).enumerate().map(|(at, (variant, regions))| Series {
            points: regions.iter().enumerate().map(|(region, both)| (region as f64, pick(both))).collect(),
            ..super::series(variant, at / 2)
        });
        let caption = "takt's queues on this machine, with their lock and one reading of the clock for each; \
                       medians of rounds.";
        findings.figures.push(super::Drawn::of(
            file,
            &figure(title, "ns", series.collect()),
            format!("{cite}: {title}"),
            caption,
        ));
    }
    Latencies { papers, all }.compared(findings);
    Ok(())
}

/// Mean nanoseconds of an enqueue and of a dequeue, by variant and region.
struct Latencies {
    papers: Vec<Variant>,
    all: Vec<Vec<(f64, f64)>>,
}

impl Latencies {
    /// Means over the regions, with and without cancellation.
    fn of(&self, strategy: Builtin) -> (f64, f64) {
        let regions = self.regions(strategy);
        let mean = |of: fn(&(f64, f64)) -> f64| regions.iter().map(of).sum::<f64>() / regions.len().max(1) as f64;
        (mean(|both| both.0), mean(|both| both.1))
    }

    fn regions(&self, strategy: Builtin) -> Vec<(f64, f64)> {
        let of = self.papers.iter().zip(&self.all).filter(|(variant, _)| variant.strategy == Some(strategy));
        of.flat_map(|(_, regions)| regions.iter().copied()).collect()
    }

    /// The cost of the dearest region relative to the cheapest one.
    fn spread(&self, strategy: Builtin) -> f64 {
        let sums = self.regions(strategy).into_iter().map(|both| both.0 + both.1);
        let (least, most) = sums.fold((f64::INFINITY, 0.0), |(a, b), sum| (f64::min(a, sum), f64::max(b, sum)));
        most / least
    }

    /// Adds the paper's ratios of its queues' costs beside the measured ones.
    fn compared(&self, findings: &mut Findings) {
        const STRATEGIES: [Builtin; 3] = [Builtin::Rm, Builtin::Muf, Builtin::RmsMlf];
        let sum = |strategy| {
            let (enqueue, dequeue) = self.of(strategy);
            enqueue + dequeue
        };
        let [rm, muf, hybrid] = STRATEGIES.map(sum);
        let each = STRATEGIES.map(|strategy| self.of(strategy));
        let enqueue = each.iter().map(|both| both.0).sum::<f64>() / each.iter().map(|both| both.1).sum::<f64>();
        let spread = STRATEGIES.map(|strategy| self.spread(strategy)).into_iter().fold(0.0, f64::max);
        let rows = [
            ("muf, to rm (IV-B: 32 to 12 us)", Some(2.67), muf / rm),
            ("muf, to rm (V-B)", Some(1.5), muf / rm),
            ("rms+mlf, to rm (IV-B: 12 us both)", Some(1.0), hybrid / rm),
            ("enqueue, to dequeue", None, enqueue),
            ("the dearest region, to the cheapest", None, spread),
        ];
        let row = |(name, paper, measured): (&str, Option<f64>, f64)| Row {
            name: name.to_owned(),
            values: vec![vec![paper], vec![Some(measured)]],
        };
        findings.tables.push(
            Comparison::new("What queues cost, in proportion", "IV-B and V-B", "ratios of mean latencies", 2).with(
                "ratio",
                [""],
                [PAPER, super::MEASURED],
                rows.into_iter().map(row),
            ),
        );
        let dearest = STRATEGIES.into_iter().max_by(|a, b| sum(*a).total_cmp(&sum(*b))).map_or("", Builtin::name);
        let papers = charge(Variant { strategy: Some(Builtin::Rm), cancel: false }).as_ns() as f64;
        findings.differences.push(format!(
            "In the paper muf's queues are the dearest, an enqueue takes longer than a dequeue, and neither \
             rises with the load. Latencies here (Figs. 10 and 11) are those of takt's queues in a loop on this \
             machine, with all operations of a region waiting in turn. They contain neither threads nor jitter; \
             the paper's latencies do. {dearest} is the dearest, an enqueue takes {enqueue:.2} times as long as \
             a dequeue, and the dearest region {spread:.2} times as long as the cheapest. The simulation \
             charges the paper's latencies, {:.0} times as long as these under rm.",
            papers / rm
        ));
        findings.notes.push(format!(
            "A request is enqueued and dequeued in {rm:.0} ns under rm, {muf:.0} ns under muf and {hybrid:.0} \
             ns under rms+mlf, on average over the regions; the paper has about 12 us, 32 us and 12 us on its \
             machine."
        ));
    }
}

/// Nanoseconds of an enqueue and of a dequeue. All operations of a region wait in turn. Each value
/// is the mean over the operations and the median over the rounds.
fn latency(region: usize, variant: Variant, rounds: u32) -> Result<(f64, f64), Failure> {
    let wrong = |what: &dyn std::fmt::Display| Failure::trouble(format_args!("region {region}: {what}"));
    let mut plan = plan(region, variant)?;
    // The loop may push each operation at any time, and none is ever late. So it measures the
    // queues alone.
    let mut periods: Vec<Span> = plan.system.tasks.iter().map(|task| task.period).collect();
    periods.sort_unstable();
    periods.dedup();
    for task in &mut plan.system.tasks {
        // The order of periods stays, since strategies separate levels by periods.
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

/// The median of the rounds: a pause in one round says nothing about queues.
fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_unstable_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// By charge, by variant, by region.
type Charged = Vec<Vec<Vec<Outcome>>>;

/// Simulates the same regions with a charge for each request.
fn simulated(context: &Context, duration: Span, findings: &mut Findings) -> Result<(), Failure> {
    let papers: Vec<Variant> = variants().into_iter().take(PAPER_VARIANTS).collect();
    let mut all: Charged = Vec::new();
    for (_, times) in CHARGES {
        let mut of_charge = Vec::new();
        for variant in &papers {
            let charge = Span::from_ns(charge(*variant).as_ns() * times);
            let of = |region| {
                let mut plan = plan(region, *variant)?;
                for node in &mut plan.system.nodes {
                    node.costs = Some(Costs { release: charge, ..Costs::NONE });
                }
                let seed = seed_of(context.seed, region);
                Ok(outcome_of(&plan, *variant, duration, seed, &|| context.stopped())?.0)
            };
            let regions = (0..REGIONS.len()).map(of).collect::<Result<Vec<Outcome>, Failure>>();
            let Some(regions) = context.unless_stopped(regions)? else { return Ok(()) };
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
        findings.tables.push(
            Comparison::new(format!("Noncritical deadlines made, {charge}"), "section VII", "deadlines/s", 1).with(
                "region",
                papers.iter().map(|variant| variant.name()),
                ["simulated"],
                (0..REGIONS.len()).map(row),
            ),
        );
    }
    let charged = OutcomesByCharge { all, duration };
    charged.claims(findings);
    charged.differences(findings);
    Ok(())
}

struct OutcomesByCharge {
    all: Charged,
    duration: Span,
}

impl OutcomesByCharge {
    fn of(&self, charge: usize, strategy: Builtin, cancel: bool) -> &[Outcome] {
        let wanted = Variant { strategy: Some(strategy), cancel };
        let at = variants().iter().take(PAPER_VARIANTS).position(|variant| *variant == wanted);
        let of = at.zip(self.all.get(charge)).and_then(|(at, of)| of.get(at));
        of.map_or(&[], Vec::as_slice)
    }

    fn made(&self, charge: usize, strategy: Builtin, cancel: bool, region: usize) -> u64 {
        self.of(charge, strategy, cancel).get(region).map_or(0, |outcome| outcome.noncritical.made)
    }

    /// The lead of muf over rms+mlf in a region: how many more noncritical deadlines it makes, and
    /// the larger number of requested ones. With or without cancellation, whichever gives the
    /// larger share.
    fn lead(&self, charge: usize, region: usize) -> (u64, u64) {
        let of = |cancel: bool| {
            let here = |strategy| self.of(charge, strategy, cancel).get(region).map(|outcome| outcome.noncritical);
            let [muf, hybrid] = [Builtin::Muf, Builtin::RmsMlf].map(|strategy| here(strategy).unwrap_or_default());
            (muf.made.saturating_sub(hybrid.made), muf.enqueued.max(hybrid.enqueued).max(1))
        };
        let [plain, cancelling] = [false, true].map(of);
        if cancelling.0 * plain.1 > plain.0 * cancelling.1 { cancelling } else { plain }
    }

    /// Regions in which muf leads rms+mlf by more than chance.
    fn better(&self, charge: usize) -> Vec<usize> {
        let leads = |region: &usize| {
            let (more, requested) = self.lead(charge, *region);
            more * 100 > requested * MARGIN
        };
        (0..REGIONS.len()).filter(leads).collect()
    }

    fn is_long_enough(&self) -> bool {
        self.duration >= REGION_MIN
    }

    /// Whether the requests under rm in a region, with their charges, fit the CPU.
    fn is_feasible(&self, charge: usize, region: usize) -> bool {
        let requested = self.of(charge, Builtin::Rm, false).get(region);
        let requested = requested.map_or(0, |outcome| outcome.critical.enqueued + outcome.noncritical.enqueued);
        let of_rm = self::charge(Variant { strategy: Some(Builtin::Rm), cancel: false }).as_ns();
        let each = of_rm * CHARGES[charge].1;
        let ppm = u128::from(requested * each) * 1_000_000 / u128::from(self.duration.as_ns().max(1));
        u128::from(load_ppm(region)) + ppm <= 1_000_000
    }

    fn claims(&self, findings: &mut Findings) {
        self.claim_rm(findings);
        let parts = |outcome: &Outcome| (outcome.noncritical, outcome.critical.missed);
        let same = |cancel: &bool| {
            let (muf, hybrid) = (self.of(0, Builtin::Muf, *cancel), self.of(0, Builtin::RmsMlf, *cancel));
            !muf.is_empty() && muf.iter().map(parts).eq(hybrid.iter().map(parts))
        };
        let equal = [false, true].iter().filter(|cancel| same(cancel)).count();
        findings.claim(
            "order_gives_muf_nothing",
            "the paper's second guess, a capability of the mechanism itself, does not explain it: without costs \
             of queues, the same noncritical jobs are made, missed and cancelled under muf and rms+mlf. Both \
             have one level for these jobs, in the same order, below all critical ones, and it gets the CPU at \
             the same times: all slack of the critical jobs",
            format!("equal in all regions in {equal} of 2 cases: with cancellation, and without"),
            self.is_long_enough().then_some(equal == 2),
        );
        let told = |charge: usize| {
            let most =
                (0..REGIONS.len()).map(|region| self.lead(charge, region)).map(|(more, of)| more as f64 / of as f64);
            let most = 100.0 * most.fold(0.0, f64::max);
            format!("with {} in {}, by {most:.2} % at the most in any", CHARGES[charge].0, list(&self.better(charge)))
        };
        let told: Vec<String> = (1..CHARGES.len()).map(told).collect();
        let moderate = |region: &usize| matches!(region % 4, 1 | 2);
        let by_costs = (1..CHARGES.len()).flat_map(|charge| self.better(charge)).filter(moderate).count();
        findings.claim(
            "costs_give_muf_nothing_at_moderate_jitter",
            "the paper's first guess, slack that the greater overhead gives to noncritical operations, does not \
             explain it either: with a charge on each request for its dearer queues, muf makes no more \
             noncritical deadlines than rms+mlf, by more than 2 % of the requested ones, in a region of \
             moderate jitter (1, 5 and 9 with 0 to 5 ms, 2, 6 and 10 with 5 to 10 ms)",
            format!("of those requested muf makes 2 % more {}", told.join("; ")),
            self.is_long_enough().then_some(by_costs == 0),
        );
        let aware = |of: &Vec<Vec<Outcome>>| {
            let each = variants().into_iter().zip(of).filter(|(variant, _)| variant.is_aware());
            each.flat_map(|(_, regions)| regions.iter().map(|outcome| outcome.critical.missed)).sum::<u64>()
        };
        let missed: u64 = self.all.iter().skip(1).map(aware).sum();
        findings.claim(
            "costs_lose_no_critical",
            "with the paper's costs, and ten times those, muf and rms+mlf keep the critical deadlines (in the paper \
             each lost one in region 9, which it ascribes to overhead)",
            format!("{missed} critical deadlines missed, of all regions, all four and both charges"),
            verdict(self.is_long_enough() && missed == 0, missed > 0),
        );
    }

    fn claim_rm(&self, findings: &mut Findings) {
        const OTHERS: [Builtin; 2] = [Builtin::Muf, Builtin::RmsMlf];
        let (mut told, mut holds) = (Vec::new(), true);
        for (charge, (name, _)) in CHARGES.iter().enumerate().skip(1) {
            let feasible: Vec<usize> = (0..REGIONS.len()).filter(|region| self.is_feasible(charge, *region)).collect();
            let made = |strategy, region| self.made(charge, strategy, false, region);
            let least = |region: usize| OTHERS.iter().all(|other| made(Builtin::Rm, region) >= made(*other, region));
            // The lead over the better of them, where the lead is largest.
            let best = |region: usize| OTHERS.iter().map(|other| made(*other, region)).max().unwrap_or(0);
            let lead = |region: &usize| made(Builtin::Rm, *region).saturating_sub(best(*region));
            let Some(region) = feasible.iter().copied().max_by_key(lead) else {
                holds = false;
                continue;
            };
            holds &= feasible.iter().all(|region| least(*region)) && lead(&region) > 0;
            told.push(format!(
                "with {name} it makes {} noncritical deadlines in region {region}, muf {} and rms+mlf {}",
                made(Builtin::Rm, region),
                made(Builtin::Muf, region),
                made(Builtin::RmsMlf, region)
            ));
        }
        findings.claim(
            "costs_leave_rm_best_while_feasible",
            "with costs of queues, rm makes at least as many noncritical deadlines as muf and rms+mlf in each \
             region whose load and costs fit the CPU; with either costs, it makes more than both in one of \
             these regions",
            told.join("; "),
            self.is_long_enough().then_some(holds),
        );
    }

    /// Adds the part of the difference that the costs explain, and the rest.
    fn differences(&self, findings: &mut Findings) {
        let fewer: Vec<usize> = (0..REGIONS.len())
            .filter(|region| super::is_feasible(*region))
            .filter(|region| self.made(0, Builtin::RmsMlf, false, *region) < self.made(0, Builtin::Rm, false, *region))
            .collect();
        findings.differences.push(format!(
            "While the load is feasible, rm makes more noncritical deadlines. The paper attributes this to the \
             overhead of dynamic queues. Here rms+mlf makes fewer than rm even without costs in regions {}, \
             because its noncritical jobs wait for all critical ones.",
            list(&fewer)
        ));
        let shown: usize = (0..CHARGES.len()).map(|charge| self.better(charge).len()).sum();
        let any = (0..CHARGES.len()).flat_map(|charge| (0..REGIONS.len()).map(move |region| (charge, region)));
        let any = any.filter(|(charge, region)| self.lead(*charge, *region).0 > 0).count();
        findings.differences.push(format!(
            "In the paper muf was better than rms+mlf at moderate jitter, and the paper asks why. Here muf \
             makes more noncritical deadlines in {any} of {} cases of a charge and a region, and by more than \
             {MARGIN} % of the requested ones in {shown}. So {}. A charge lengthens the requested job, in its \
             own level. The model does not include that the supplier enqueues the job at the supplier's level, \
             and cancellation ignores the charge. Under both strategies noncritical jobs get all slack of the \
             critical ones, and a charge takes from it. So other late legs happen to be in time.",
            CHARGES.len() * REGIONS.len(),
            if shown == 0 {
                "its advantage is not reproduced"
            } else {
                "it has an \
                advantage there that this model does not explain"
            }
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Class;
    use super::*;

    /// Without costs muf and rms+mlf are equal. With costs rm makes more deadlines, and muf fewer.
    fn usual() -> OutcomesByCharge {
        let outcome = |charge: u64, variant: &Variant| {
            let less = if variant.strategy == Some(Builtin::Rm) { 0 } else { 10 };
            let cost = if variant.strategy == Some(Builtin::Muf) { charge } else { 0 };
            let made = 900 - less - cost;
            Outcome {
                critical: Class { enqueued: 10_000, made: 10_000, ..Class::default() },
                noncritical: Class { enqueued: 1000, made, missed: 1000 - made, ..Class::default() },
                ..Outcome::default()
            }
        };
        let of = |charge: u64| {
            variants().iter().take(PAPER_VARIANTS).map(|variant| vec![outcome(charge, variant); 12]).collect()
        };
        OutcomesByCharge { all: (0..3).map(of).collect(), duration: Span::from_s(150) }
    }

    #[test]
    fn a_handful_of_jobs_is_no_advantage_and_2_percent_of_those_requested_are() {
        // Without cancellation, at ten times the paper's costs, few of the requested deadlines are
        // made.
        let with = |muf: u64, hybrid: u64| {
            let mut all = usual();
            for (at, made) in [(2, muf), (4, hybrid)] {
                all.all[2][at][11].noncritical = Class { enqueued: 4000, made, ..Class::default() };
            }
            (all.lead(2, 11), all.better(2))
        };
        assert_eq!(with(66, 58), ((8, 4000), vec![]));
        assert_eq!(with(138, 58), ((80, 4000), vec![]));
        assert_eq!(with(139, 58), ((81, 4000), vec![11]));
    }

    #[test]
    fn regions_that_are_too_short_decide_nothing_but_a_loss() {
        let holding = |all: Charged| {
            let mut findings = Findings::default();
            OutcomesByCharge { all, duration: Span::from_ms(100) }.claims(&mut findings);
            findings.claims.iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        let nothing = usual().all.iter().map(|of| vec![vec![Outcome::default(); 12]; of.len()]).collect();
        assert_eq!([holding(usual().all), holding(nothing)], [[None; 4]; 2]);
        let mut lost = usual().all;
        lost[1][4][9].critical.missed = 1;
        assert_eq!(holding(lost), [None, None, None, Some(false)]);
    }

    fn failing(change: impl Fn(&mut Charged)) -> Vec<&'static str> {
        let mut all = usual();
        change(&mut all.all);
        let mut findings = Findings::default();
        all.claims(&mut findings);
        assert_eq!(findings.claims.len(), 4);
        all.differences(&mut findings);
        findings.claims.iter().filter(|claim| claim.holds != Some(true)).map(|claim| claim.name).collect()
    }

    #[test]
    fn each_claim_can_fail() {
        // In the order of variants: rm, muf, rms+mlf, each first without cancellation.
        assert!(failing(|_| ()).is_empty());
        assert_eq!(failing(|all| all[0][3][7].noncritical.missed += 1), ["order_gives_muf_nothing"]);
        assert_eq!(failing(|all| all[1][3][6].noncritical.made = 990), ["costs_give_muf_nothing_at_moderate_jitter"]);
        assert_eq!(failing(|all| all[2][3][9].noncritical.made = 990), ["costs_give_muf_nothing_at_moderate_jitter"]);
        assert!(failing(|all| all[2][3][8].noncritical.made = 990).is_empty(), "no jitter there");
        assert_eq!(failing(|all| all[2][5][11].critical.missed = 1), ["costs_lose_no_critical"]);
        assert_eq!(failing(|all| all[1][0][6].noncritical.made = 889), ["costs_leave_rm_best_while_feasible"]);
        assert!(failing(|all| all[1][0][6].noncritical.made = 890).is_empty(), "as many there, and more elsewhere");
        let nowhere_more = |all: &mut Charged| all[1][0].iter_mut().for_each(|outcome| outcome.noncritical.made = 890);
        assert_eq!(failing(nowhere_more), ["costs_leave_rm_best_while_feasible"]);
        assert_eq!(failing(|all| all[2][4][3].noncritical.made = 901), ["costs_leave_rm_best_while_feasible"]);
    }

    #[test]
    fn ratios_of_queues_are_those_of_their_latencies() {
        let papers: Vec<Variant> = variants().into_iter().take(PAPER_VARIANTS).collect();
        let of = |variant: &Variant| match variant.strategy {
            Some(Builtin::Muf) => vec![(40.0, 20.0), (60.0, 40.0)],
            Some(Builtin::RmsMlf) => vec![(20.0, 20.0); 2],
            _ => vec![(30.0, 10.0); 2],
        };
        let latencies = Latencies { all: papers.iter().map(of).collect(), papers };
        let mut findings = Findings::default();
        latencies.compared(&mut findings);
        let measured: Vec<_> = findings.tables[0].rows.iter().map(|row| row.values[1][0].unwrap()).collect();
        assert_eq!(measured, [2.0, 2.0, 1.0, 100.0 / 60.0, 100.0 / 60.0]);
        assert!(
            findings.differences[0].contains("muf is the dearest") && findings.differences[0].contains("300 times")
        );
        assert_eq!([median(vec![3.0, 1.0, 2.0]), median(vec![7.0])], [2.0, 7.0]);
    }
}
