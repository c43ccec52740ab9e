//! The claims about a controller between strategies, which [KOKYU V] leaves open. It keeps each
//! critical deadline that any single strategy keeps. It makes nearly as many noncritical deadlines
//! as the best strategy of each region.

use super::regions::{Best, Outcomes};
use super::{Comparison, Findings, Outcome, REGIONS, Row, Variant, verdict};

/// The share of the best single strategy's noncritical deadlines that the controller must make, in
/// percent.
pub(super) const CLOSE: u64 = 98;

/// The controller cancels noncritical jobs, as the best single strategies do in overload.
pub(super) const CONTROLLER: Variant = Variant { strategy: None, cancel: true };

/// The controller in a region, and the best single strategy there.
struct ControllerComparison {
    best: Best,
    adaptive: Outcome,
    /// Critical jobs that the controller loses although a single strategy keeps them.
    unkept: usize,
}

impl ControllerComparison {
    fn keeps(&self) -> bool {
        self.unkept == 0
    }

    fn is_close(&self) -> bool {
        self.adaptive.noncritical.made * 100 >= self.best.outcome.noncritical.made * CLOSE
    }

    fn percent(&self) -> f64 {
        100.0 * self.adaptive.noncritical.made as f64 / self.best.outcome.noncritical.made.max(1) as f64
    }
}

/// All regions, or none if a region has no best strategy.
fn beside(all: &Outcomes, best: impl Fn(usize) -> Option<Best>) -> Vec<ControllerComparison> {
    let of = |(region, adaptive): (usize, &Outcome)| {
        Some(ControllerComparison { best: best(region)?, adaptive: *adaptive, unkept: all.unkept(CONTROLLER, region) })
    };
    let each: Vec<ControllerComparison> = all.under(CONTROLLER).iter().enumerate().filter_map(of).collect();
    if each.len() == REGIONS.len() { each } else { Vec::new() }
}

fn shares(each: &[ControllerComparison]) -> String {
    let one =
        |(region, of): (usize, &ControllerComparison)| format!("{region}: {:.2} % of {}", of.percent(), of.best.name());
    each.iter().enumerate().map(one).collect::<Vec<_>>().join("; ")
}

/// Critical jobs that the controller loses, as text, and whether it keeps every job that a single
/// strategy keeps.
fn kept(all: &Outcomes, each: &[ControllerComparison]) -> (String, Option<bool>) {
    let missed: u64 = each.iter().map(|of| of.adaptive.critical.missed).sum();
    let unkept: usize = each.iter().map(|of| of.unkept).sum();
    let found = format!("{missed} critical deadlines missed in all regions; a single strategy meets {unkept} of them");
    (
        found,
        verdict(all.are_long_enough() && !each.is_empty() && each.iter().all(ControllerComparison::keeps), unkept > 0),
    )
}

/// The best single strategy and the controller, region by region.
pub(super) fn table(all: &Outcomes, title: &str, findings: &mut Findings) {
    let row = |(region, of): (usize, &ControllerComparison)| {
        let (best, adaptive) = (&of.best.outcome, &of.adaptive);
        let counts = [best.critical.missed, adaptive.critical.missed, best.noncritical.made, adaptive.noncritical.made];
        let values = counts.map(|count| Some(all.rate(count))).into_iter().chain([Some(of.percent())]);
        Row { name: format!("{region}: {}", of.best.name()), values: vec![values.collect()] }
    };
    findings.tables.push(
        Comparison::new(title, "Fig. 12", "deadlines/s, and per cent", 1).with(
            "region: best single strategy",
            ["critical missed", "noncritical made"]
                .into_iter()
                .flat_map(|count| [count.to_owned(), format!("{count}, adaptive")])
                .chain(["% of the best".to_owned()]),
            ["simulated"],
            beside(all, |region| all.best_single(region)).iter().enumerate().map(row),
        ),
    );
}

/// Claims about regions that each begin idle. `long` says that the start and luck count for little.
pub(super) fn claims(all: &Outcomes, long: bool, findings: &mut Findings) {
    let (papers, singles) = (beside(all, |region| all.best(region)), beside(all, |region| all.best_single(region)));
    let (found, holds) = kept(all, &singles);
    findings.claim(
        "adaptive_keeps_critical",
        "not in the paper: the controller, with cancellation, keeps every critical deadline that any single \
         strategy keeps",
        found,
        holds,
    );
    if !long {
        return;
    }
    for (name, claim, of) in [
        (
            "adaptive_is_close_to_the_papers_best",
            "not in the paper: the controller makes 98 % or more of the noncritical deadlines of the best of \
             the paper's strategies in each region",
            papers,
        ),
        (
            "adaptive_is_close_to_the_best",
            "not in the paper: the controller makes 98 % or more of the noncritical deadlines of the best \
             single strategy in each region, edf and mlf included (these ignore criticality, but may keep \
             critical deadlines in a small overload)",
            singles,
        ),
    ] {
        findings.claim(name, claim, shares(&of), Some(!of.is_empty() && of.iter().all(ControllerComparison::is_close)));
    }
}

/// Claims about regions in a row. `long` is as in [`claims`].
pub(super) fn claims_in_a_row(all: &Outcomes, long: bool, findings: &mut Findings) {
    let (papers, singles) = (beside(all, |region| all.best(region)), beside(all, |region| all.best_single(region)));
    let (found, holds) = kept(all, &singles);
    findings.claim(
        "trial_adaptive_keeps_critical",
        "not in the paper: in a run through the twelve regions in a row, the controller, with cancellation, \
         also keeps every critical deadline that any single strategy keeps",
        found,
        holds,
    );
    findings.claim(
        "trial_adaptive_is_close_to_the_papers_best",
        "not in the paper: in that run the controller makes 98 % or more of the noncritical deadlines of the \
         best of the paper's strategies in each region",
        shares(&papers),
        all.are_long_enough().then_some(!papers.is_empty() && papers.iter().all(ControllerComparison::is_close)),
    );
    if long {
        findings.claim(
            "trial_adaptive_is_close_to_the_best",
            "not in the paper: in that run the controller makes 98 % or more of the noncritical deadlines of \
             the best single strategy, edf and mlf included",
            shares(&singles),
            Some(!singles.is_empty() && singles.iter().all(ControllerComparison::is_close)),
        );
    }
}

#[cfg(test)]
pub(super) mod tests {
    use takt_log::JobKey;
    use takt_model::{Span, TaskId};

    use super::super::regions::tests::usual;
    use super::super::variants;
    use super::*;

    #[test]
    fn regions_that_are_too_short_decide_nothing_but_a_loss() {
        let holding = |all: Outcomes| {
            let mut findings = Findings::default();
            let all = Outcomes { each: Span::from_ms(100), ..all };
            claims(&all, false, &mut findings);
            claims_in_a_row(&all, false, &mut findings);
            findings.claims.iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        assert_eq!(holding(usual()), [None; 3]);
        let lost = usual().with(None, true, 9, |outcome| outcome.critical.missed = 1);
        assert_eq!(holding(lost), [Some(false), Some(false), None]);
        let few = usual().with(None, true, 9, |outcome| outcome.noncritical.made = 0);
        assert_eq!(holding(few), [None; 3]);
    }

    #[test]
    fn each_claim_can_fail() {
        let failing = |all: &Outcomes, long| {
            let mut findings = Findings::default();
            claims(all, long, &mut findings);
            claims_in_a_row(all, long, &mut findings);
            assert_eq!(findings.claims.len(), if long { 6 } else { 3 });
            let failing = findings.claims.iter().filter(|claim| claim.holds != Some(true));
            failing.map(|claim| claim.name).collect::<Vec<_>>()
        };
        assert_eq!(failing(&usual(), true), Vec::<&str>::new());
        let lost = usual().with(None, true, 9, |outcome| outcome.critical.missed = 1);
        assert_eq!(failing(&lost, true), ["adaptive_keeps_critical", "trial_adaptive_keeps_critical"]);
        // The controller loses no more jobs than the best strategy does, but another job.
        let mut other = usual();
        let missed = |outcome: &mut Outcome| outcome.critical.missed = 1;
        for Variant { strategy, cancel } in variants() {
            other = other.with(strategy, cancel, 3, missed);
        }
        assert!(!failing(&other, true).contains(&"adaptive_keeps_critical"));
        let at = other.variants.iter().position(|variant| *variant == CONTROLLER).unwrap();
        other.lost[at][3] = [JobKey { task: TaskId(0), number: 1 }].into();
        assert!(failing(&other, true).contains(&"adaptive_keeps_critical"));
        assert!(failing(&other, true).contains(&"trial_adaptive_keeps_critical"));
        let few = usual().with(None, true, 9, |outcome| outcome.noncritical.made = 489);
        let papers = ["adaptive_is_close_to_the_papers_best", "adaptive_is_close_to_the_best"];
        let trials = ["trial_adaptive_is_close_to_the_papers_best", "trial_adaptive_is_close_to_the_best"];
        assert_eq!(failing(&few, true), [papers, trials].concat());
        assert_eq!(failing(&few, false), trials[..1]);
        // 98 % of 500 are 490.
        assert!(failing(&usual().with(None, true, 9, |outcome| outcome.noncritical.made = 490), true).is_empty());
        // A strategy that ignores criticality may be better by luck, even by more than the margin.
        let lucky = usual().with(Some(takt_model::Builtin::Edf), true, 8, |outcome| {
            (outcome.critical.missed, outcome.noncritical.made) = (0, 511);
        });
        assert_eq!(failing(&lucky, true), [papers[1], trials[1]]);
        assert_worth_it(&lucky, "");
    }

    /// Checks each region. The controller misses no critical deadline that a single strategy keeps.
    /// It makes enough noncritical deadlines, compared with the best of the paper's strategies and
    /// with the best of all. The latter does not count if it ignores criticality.
    pub(in super::super) fn assert_worth_it(all: &Outcomes, replay: &str) {
        let (papers, singles) = (beside(all, |region| all.best(region)), beside(all, |region| all.best_single(region)));
        assert_eq!((papers.len(), singles.len()), (REGIONS.len(), REGIONS.len()));
        for (region, (paper, single)) in papers.iter().zip(&singles).enumerate() {
            assert!(single.keeps(), "region {region}: {} lost; {:?}; {replay}", single.unkept, single.adaptive);
            assert!(paper.is_close(), "region {region}: {:.2} % of {}; {replay}", paper.percent(), paper.best.name());
            let is_aware = single.best.variants.iter().any(|variant| variant.is_aware());
            assert!(
                single.is_close() || !is_aware,
                "region {region}: {:.2} % of {}; {replay}",
                single.percent(),
                single.best.name()
            );
        }
    }
}
