//! Differences from the paper in simulation, with their counts.

use takt_model::{Builtin, Span};

use super::regions::{Outcomes, list};
use super::{Comparison, FRAME, Findings, LEG, LEGS, Leg, Outcome, PROCESSING, REGIONS, Row, Variant, fixed};

const MUF: [Variant; 2] =
    [Variant { strategy: Some(Builtin::Muf), cancel: false }, Variant { strategy: Some(Builtin::Muf), cancel: true }];
/// The regions whose chains are shown leg by leg: one in small overload, and the one in the
/// largest.
const SHOWN: [usize; 2] = [8, 11];

/// Tables of the legs by position: requested, made, and complete by the end of the frame.
pub(super) fn tables(all: &Outcomes, findings: &mut Findings) {
    type Value = fn(&Leg) -> u64;
    const VALUES: [(&str, Value); 3] =
        [("requested", |leg| leg.requested), ("made", |leg| leg.made), ("by the frame's end", |leg| leg.by_frame)];
    let mut rows = Vec::new();
    for region in SHOWN {
        for position in 0..REGIONS[region].2 as usize {
            let value = |variant: Variant, value: Value| {
                let legs = all.under(variant).get(region).map(|outcome| outcome.legs);
                legs.and_then(|legs| Some(all.rate(value(legs.get(position)?))))
            };
            let values = MUF.iter().flat_map(|variant| VALUES.map(|(_, of)| value(*variant, of))).collect();
            rows.push(Row { name: format!("{region}, leg {}", position + 1), values: vec![values] });
        }
    }
    let columns = MUF.iter().flat_map(|variant| VALUES.map(|(what, _)| format!("{}: {what}", variant.name())));
    findings.tables.push(
        Comparison::new("Legs requested, and made, by their position in the chain", "Figs. 6 to 8", "legs/s", 1).with(
            "region, leg",
            columns,
            ["simulated"],
            rows,
        ),
    );
    let by_frame = |outcome: &Outcome| all.rate(outcome.by_frame());
    findings.tables.push(all.table("Legs complete by the ends of their frames", "Figs. 7 to 9", "legs/s", by_frame));
}

pub(super) fn differences(all: &Outcomes, findings: &mut Findings) {
    let told = [application(), virtual_time(all), leg_deadlines(all), requests(all), cancelling(all)];
    findings.differences.extend(told);
    findings.differences.extend([rm_cancelling(all), jitter(all), unaware(all)]);
}

fn application() -> String {
    let load = |wanted: bool| {
        let meant = fixed().filter(|(.., critical)| *critical == wanted);
        meant.map(|(hz, us, _)| hz * us).sum::<u64>() as f64 / 1e4
    };
    format!(
        "The paper gives neither the application's operations nor a leg's execution time. Here there are {} \
         fixed operations, the replication service's flush and {} proxies of sensors among them, {:.1} % of the \
         CPU critical and {:.1} % not, and a leg takes {LEG} of a frame of {FRAME}. So the load exceeds the CPU \
         in the regions where the paper's rm lost deadlines. The paper counts over unstated intervals; here the \
         counts are rates. In the paper all events go through the event channel. Here a proxy's reading \
         releases the operation that processes it: on this kernel by an event, in simulation by the end of the \
         proxy's job. A leg's end releases the next leg, and timers release all other operations. The flush is \
         an operation of its own, and sends readings of proxies like all other values.",
        fixed().count(),
        PROCESSING.len(),
        load(true),
        load(false)
    )
}

fn virtual_time(all: &Outcomes) -> String {
    format!(
        "A simulated region lasts {}. It has no costs of interrupts or a network, and costs of queues only in \
         the tables that say so. So strategies differ by their order alone.",
        all.each
    )
}

fn leg_deadlines(all: &Outcomes) -> String {
    let worst = |variant: Variant| all.under(variant).last().copied().unwrap_or_default();
    let one = |variant: Variant| {
        let outcome = worst(variant);
        let made = outcome.legs.iter().map(|leg| leg.made).sum();
        format!("{:.1} and {:.1} under {}", all.rate(made), all.rate(outcome.by_frame()), variant.name())
    };
    format!(
        "A leg's deadline counts from its own release: it is the frame's end minus the least time of the legs \
         before it. A leg that was released late has a deadline after the frame's end. In region {} these \
         numbers of legs a second met their own deadlines and were complete by the ends of their frames: {}.",
        REGIONS.len() - 1,
        MUF.map(one).join(", ")
    )
}

/// Fig. 6.
fn requests(all: &Outcomes) -> String {
    /// The paper's requests in regions 0 and 11.
    const PAPERS: (f64, f64) = (3100.0, 4500.0);
    let requested = |outcome: Option<&Outcome>| {
        outcome.map_or(0.0, |outcome| all.rate(outcome.critical.enqueued + outcome.noncritical.enqueued))
    };
    let rm = all.of(Builtin::Rm, false);
    let (first, last) = (requested(rm.first()), requested(rm.last()));
    let more = (REGIONS[REGIONS.len() - 1].2 - REGIONS[0].2) as f64 * (1e9 / FRAME.as_ns() as f64);
    let seconds = (PAPERS.1 - PAPERS.0) / more;
    format!(
        "In the paper the requests of a region rise from about {} to above {}, {:.2} times as many; here under \
         rm from {first:.0} to {last:.0} a second, {:.2} times as many. If the paper's application requested \
         all legs, {more:.0} a second more, its counts are over about {seconds:.0} s. Then it made about {:.0} \
         requests a second in region 0, with internal ones of its event channel. So the legs are a smaller part \
         of its requests.",
        PAPERS.0,
        PAPERS.1,
        PAPERS.1 / PAPERS.0,
        last / first,
        PAPERS.0 / seconds
    )
}

/// Figs. 7 and 8.
fn cancelling(all: &Outcomes) -> String {
    let made = |variant: Variant, region: usize| {
        all.under(variant).get(region).map_or(0, |outcome| outcome.critical.made + outcome.noncritical.made)
    };
    let where_made = |is: fn(&u64, &u64) -> bool| {
        let here = |region: &usize| is(&made(MUF[1], *region), &made(MUF[0], *region));
        list(&(0..REGIONS.len()).filter(here).collect::<Vec<_>>())
    };
    let region = REGIONS.len() - 1;
    let leg = |variant: Variant, position: usize| {
        let outcome = all.under(variant).get(region).copied().unwrap_or_default();
        outcome.legs.get(position).copied().unwrap_or_default()
    };
    let one = |variant: Variant| {
        let (first, last) = (leg(variant, 0), leg(variant, LEGS - 1));
        format!(
            "{:.1} first legs a second requested and {:.1} in time, {:.1} and {:.1} last ones under {}",
            all.rate(first.requested),
            all.rate(first.made),
            all.rate(last.requested),
            all.rate(last.made),
            variant.name()
        )
    };
    format!(
        "In the paper muf makes more deadlines without cancellation than with it, and without it requests rise \
         in proportion to the legs. Here muf makes more with cancellation in regions {}, and fewer in {}. \
         Without cancellation late legs take the time of legs that could be in time: in region {region} {}.",
        where_made(u64::gt),
        where_made(u64::lt),
        MUF.map(one).join("; ")
    )
}

fn rm_cancelling(all: &Outcomes) -> String {
    let of = |cancel| all.of(Builtin::Rm, cancel);
    let missed = |cancel| of(cancel).iter().map(|outcome| outcome.critical.missed).sum::<u64>();
    let cancelling = |count: fn(&Outcome) -> u64| -> Vec<usize> {
        of(true).iter().enumerate().filter(|(_, outcome)| count(outcome) > 0).map(|(region, _)| region).collect()
    };
    let any = cancelling(|outcome| outcome.noncritical.cancelled);
    let legs = cancelling(|outcome| outcome.legs.iter().map(|leg| leg.cancelled).sum());
    let losing = all.losing(Variant { strategy: Some(Builtin::Rm), cancel: true });
    let full: Vec<usize> = (0..REGIONS.len()).filter(|region| frame_work(*region) > FRAME).collect();
    format!(
        "In the paper rm with cancellation cancels nothing, loses more critical deadlines than without, and the \
         first in region 6. Here it cancels in regions {}, loses critical deadlines in {}, and {:.1} of them a \
         second of all regions together instead of {:.1}. It cancels some legs in {}. Legs have its second \
         level, and the work of this level and above exceeds the frame in regions {}. Its other cancelled \
         operations have lower rates, and wait below the legs.",
        list(&any),
        list(&losing),
        all.rate(missed(true)),
        all.rate(missed(false)),
        list(&legs),
        list(&full)
    )
}

/// The time in a frame that operations of 20 Hz and above take, if the whole chain runs.
fn frame_work(region: usize) -> Span {
    let frames = 1_000_000_000 / FRAME.as_ns();
    let fixed = fixed().filter(|(hz, ..)| *hz >= frames).map(|(hz, us, _)| hz / frames * us).sum();
    Span::from_us(fixed).saturating_add(Span::from_ns(LEG.as_ns() * u64::from(REGIONS[region].2)))
}

/// [KOKYU IV-A]: more deadlines are met in regions 0, 4 and 8.
fn jitter(all: &Outcomes) -> String {
    let made = |variant: Variant, region: usize| {
        all.under(variant).get(region).map_or(0, |outcome| outcome.critical.made + outcome.noncritical.made)
    };
    let more = |variant: Variant| -> Vec<usize> {
        let most = |first: &usize| (first + 1..first + 4).map(|region| made(variant, region)).max().unwrap_or(0);
        (0..REGIONS.len()).step_by(4).filter(|first| made(variant, *first) > most(first)).collect()
    };
    format!(
        "In the paper muf meets more deadlines in regions 0, 4 and 8, without jitter, than in the three that \
         follow each. Here this holds for regions {} without cancellation and {} with it. While there is time \
         for all operations, more legs are more deadlines met, at any jitter.",
        list(&more(MUF[0])),
        list(&more(MUF[1]))
    )
}

fn unaware(all: &Outcomes) -> String {
    let one = |strategy: Builtin| {
        let variant = Variant { strategy: Some(strategy), cancel: true };
        let most = |region: &usize| {
            let best = all.best(*region).map_or(0, |best| best.outcome.noncritical.made);
            all.under(variant).get(*region).is_some_and(|outcome| outcome.noncritical.made > best)
        };
        format!(
            "{} makes more noncritical deadlines than the best of those in regions {}, and loses critical ones in {}",
            variant.name(),
            list(&(0..REGIONS.len()).filter(most).collect::<Vec<_>>()),
            list(&all.losing(variant))
        )
    };
    format!(
        "edf and mlf, which the paper does not run, know no criticality: {}. Fig. 12 ranks the paper's six.",
        [Builtin::Edf, Builtin::Mlf].map(one).join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::regions::tests::usual;
    use super::*;

    #[test]
    fn reported_legs_and_requests_equal_the_counts() {
        let mut all = usual();
        let at = all.variants.iter().position(|variant| *variant == MUF[1]).unwrap();
        all.outcomes[at][11].legs[2] = Leg { requested: 300, made: 200, by_frame: 100, cancelled: 0 };
        let mut findings = Findings::default();
        tables(&all, &mut findings);
        let [legs, by_frame] = findings.tables.as_slice() else { panic!("two tables") };
        // Eight legs of region 8 come first. The second variant has the last three columns.
        assert_eq!(legs.rows.len(), 8 + 11);
        assert_eq!(legs.rows[8 + 2].values[0], [0.0, 0.0, 0.0, 3.0, 2.0, 1.0].map(Some));
        assert_eq!(by_frame.rows[11].values[0][at], Some(1.0));
        let mut findings = Findings::default();
        differences(&all, &mut findings);
        assert!(findings.differences.iter().all(|told| !told.contains("NaN")), "{:?}", findings.differences);
        let legs = "0.0 and 0.0 under muf, 2.0 and 1.0 under muf, cancel";
        assert!(findings.differences.iter().any(|told| told.contains(legs)), "{:?}", findings.differences);
    }

    #[test]
    fn frame_work_adds_up_the_legs_level_and_more_important_ones() {
        // 40 Hz: 400 + 600 us twice; 20 Hz: 2 + 1 + 2 ms; legs of 4.6 ms.
        assert_eq!(frame_work(0), Span::from_us(2_000 + 5_000 + 4_600));
        assert_eq!(frame_work(11), Span::from_us(2_000 + 5_000 + 11 * 4_600));
    }
}
