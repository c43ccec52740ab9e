//! Results of each region under each strategy: tables, charts, and the paper's claims.

use std::cmp::Reverse;

use takt_log::JobKey;
use takt_model::{Builtin, Span};
use takt_report::{Form, Series};

use super::{
    Comparison, Drawn, Findings, Lost, Outcome, PAPER_VARIANTS, REGION_MIN, REGIONS, Row, Variant, figure, is_feasible,
    is_overloaded, load_ppm, series, verdict,
};

const FIGURES: &str = "Figs. 7 to 9";

pub(super) struct Outcomes {
    pub(super) variants: Vec<Variant>,
    /// By variant, by region.
    pub(super) outcomes: Vec<Vec<Outcome>>,
    /// Lost critical jobs, by variant and region.
    pub(super) lost: Vec<Vec<Lost>>,
    /// How long a region lasts.
    pub(super) each: Span,
}

/// The best variants in a region. There are several if they rank equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Best {
    pub(super) variants: Vec<Variant>,
    pub(super) outcome: Outcome,
    among: usize,
}

impl Best {
    pub(super) fn name(&self) -> String {
        if self.variants.len() == self.among {
            return "all".to_owned();
        }
        self.variants.iter().map(|variant| variant.name()).collect::<Vec<_>>().join(" = ")
    }
}

/// Numbers as text for a sentence, such as those of regions.
pub(super) fn list(all: &[usize]) -> String {
    match all {
        [] => "none".to_owned(),
        all => all.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn regions() -> impl Iterator<Item = usize> {
    0..REGIONS.len()
}

impl Outcomes {
    pub(super) fn of(&self, strategy: Builtin, cancel: bool) -> &[Outcome] {
        self.under(Variant { strategy: Some(strategy), cancel })
    }

    pub(super) fn under(&self, wanted: Variant) -> &[Outcome] {
        let at = self.variants.iter().position(|variant| *variant == wanted);
        at.and_then(|at| self.outcomes.get(at)).map_or(&[], Vec::as_slice)
    }

    /// How long a region lasts.
    pub(super) fn seconds(&self) -> f64 {
        self.each.as_ns() as f64 / 1e9
    }

    pub(super) fn rate(&self, count: u64) -> f64 {
        count as f64 / self.seconds()
    }

    /// The best of the paper's variants in a region. The fewest missed critical deadlines come
    /// first, then the most made noncritical ones.
    pub(super) fn best(&self, region: usize) -> Option<Best> {
        self.best_of(region, |at, _| at < PAPER_VARIANTS)
    }

    /// The best of all single strategies, with cancellation and without.
    pub(super) fn best_single(&self, region: usize) -> Option<Best> {
        self.best_of(region, |_, variant| variant.strategy.is_some())
    }

    fn best_of(&self, region: usize, is_meant: impl Fn(usize, &Variant) -> bool) -> Option<Best> {
        let meant = self.variants.iter().zip(&self.outcomes).enumerate();
        let meant = meant.filter(|(at, (variant, _))| is_meant(*at, variant));
        let here: Vec<(Variant, Outcome)> =
            meant.filter_map(|(_, (variant, regions))| Some((*variant, *regions.get(region)?))).collect();
        let rank = |outcome: &Outcome| (outcome.critical.missed, Reverse(outcome.noncritical.made));
        let (_, outcome) = *here.iter().min_by_key(|(_, outcome)| rank(outcome))?;
        let equal = here.iter().filter(|(_, other)| rank(other) == rank(&outcome));
        Some(Best { variants: equal.map(|(variant, _)| *variant).collect(), outcome, among: here.len() })
    }

    /// Whether regions are long enough for claims that need some jobs.
    pub(super) fn are_long_enough(&self) -> bool {
        self.each >= REGION_MIN
    }

    /// How many critical jobs of a region a variant loses although some single strategy keeps them.
    pub(super) fn unkept(&self, wanted: Variant, region: usize) -> usize {
        let of = |is_meant: &dyn Fn(&Variant) -> bool| -> Vec<&Lost> {
            let meant = self.variants.iter().zip(&self.lost).filter(|(variant, _)| is_meant(variant));
            meant.filter_map(|(_, regions)| regions.get(region)).collect()
        };
        let (lost, singles) = (of(&|variant| *variant == wanted), of(&|variant| variant.strategy.is_some()));
        let is_kept = |job: &&JobKey| singles.iter().any(|lost| !lost.contains(job));
        lost.into_iter().flatten().filter(is_kept).count()
    }

    pub(super) fn losing(&self, variant: Variant) -> Vec<usize> {
        let missed = self.under(variant).iter().map(|outcome| outcome.critical.missed);
        missed.enumerate().filter(|(_, missed)| *missed > 0).map(|(region, _)| region).collect()
    }

    pub(super) fn table(
        &self,
        title: &str,
        cite: &'static str,
        unit: &'static str,
        value: impl Fn(&Outcome) -> f64,
    ) -> Comparison {
        let rows = (0..REGIONS.len()).map(|region| {
            let values = self.outcomes.iter().map(|regions| regions.get(region).map(&value)).collect();
            Row { name: region.to_string(), values: vec![values] }
        });
        Comparison::new(title, cite, unit, 1).with(
            "region",
            self.variants.iter().map(|variant| variant.name()),
            ["simulated"],
            rows,
        )
    }

    pub(super) fn tables(&self, findings: &mut Findings) {
        type Count = fn(&Outcome) -> u64;
        // Critical operations are never cancelled.
        const COUNTS: [(&str, &str, &str, Count); 8] = [
            ("Requests enqueued", "Fig. 6", "requests/s", |all| all.critical.enqueued + all.noncritical.enqueued),
            ("Critical requests enqueued", "Fig. 6", "requests/s", |all| all.critical.enqueued),
            ("Noncritical requests enqueued", "Fig. 6", "requests/s", |all| all.noncritical.enqueued),
            ("Critical deadlines made", FIGURES, "deadlines/s", |all| all.critical.made),
            ("Critical deadlines missed", FIGURES, "deadlines/s", |all| all.critical.missed),
            ("Noncritical deadlines made", FIGURES, "deadlines/s", |all| all.noncritical.made),
            ("Noncritical deadlines missed", FIGURES, "deadlines/s", |all| all.noncritical.missed),
            ("Noncritical operations cancelled", FIGURES, "operations/s", |all| all.noncritical.cancelled),
        ];
        for (title, cite, unit, count) in COUNTS {
            findings.tables.push(self.table(title, cite, unit, |outcome| self.rate(count(outcome))));
        }
    }

    pub(super) fn figures(&self, findings: &mut Findings) {
        let colours: Vec<usize> = (0..self.variants.len()).map(|at| at / 2).collect();
        let lines = |value: &dyn Fn(&Outcome) -> f64| -> Vec<Series> {
            let line = |(at, variant): (usize, &Variant)| {
                let regions = self.outcomes.get(at).map_or(&[][..], Vec::as_slice);
                let points = regions.iter().enumerate().map(|(region, outcome)| (region as f64, value(outcome)));
                Series { points: points.collect(), ..series(variant, colours[at]) }
            };
            self.variants.iter().enumerate().map(line).collect()
        };
        let rate = |count: u64| self.rate(count);
        let enqueued = lines(&|outcome| rate(outcome.critical.enqueued + outcome.noncritical.enqueued));
        let title = "Requests enqueued";
        let caption = "Requests that a chain made; what is shed was never requested.";
        findings.figures.push(Drawn::of(
            "requests.svg",
            &figure(title, "requests/s", enqueued),
            format!("Fig. 6: {title}"),
            caption,
        ));
        for (file, cite, strategy, cancel) in [
            ("deadlines-muf-cancelling.svg", "Fig. 7", Builtin::Muf, true),
            ("deadlines-muf.svg", "Fig. 8", Builtin::Muf, false),
            ("deadlines-rm.svg", "Fig. 9", Builtin::Rm, false),
        ] {
            let regions = self.of(strategy, cancel);
            let line = |name: &str, colour, value: &dyn Fn(&Outcome) -> u64| Series {
                name: name.to_owned(),
                points: regions
                    .iter()
                    .enumerate()
                    .map(|(region, outcome)| (region as f64, rate(value(outcome))))
                    .collect(),
                form: Form::Line,
                colour,
            };
            let series = vec![
                line("noncritical made", 0, &|outcome| outcome.noncritical.made),
                line("critical made", 1, &|outcome| outcome.critical.made),
                line("noncritical missed", 2, &|outcome| outcome.noncritical.missed),
                line("critical missed", 3, &|outcome| outcome.critical.missed),
                line("cancelled", 4, &|outcome| outcome.noncritical.cancelled),
            ];
            let name = Variant { strategy: Some(strategy), cancel }.name();
            let title = format!("Deadlines under {name}");
            let caption = "Made, missed and cancelled, critical and noncritical.";
            findings.figures.push(Drawn::of(
                file,
                &figure(&title, "operations/s", series),
                format!("{cite}: {title}"),
                caption,
            ));
        }
        let made = lines(&|outcome| rate(outcome.noncritical.made));
        let title = "Noncritical deadlines made";
        let caption = "What Fig. 12 ranks by, among the strategies that miss no critical deadline in a region.";
        findings.figures.push(Drawn::of(
            "noncritical-made.svg",
            &figure(title, "deadlines/s", made),
            format!("Fig. 12: {title}"),
            caption,
        ));
    }

    pub(super) fn claims(&self, findings: &mut Findings) {
        self.claim_rm(findings);
        self.claim_hybrids(findings);
        self.claim_cancellation(findings);
    }

    fn claim_rm(&self, findings: &mut Findings) {
        let plain = Variant { strategy: Some(Builtin::Rm), cancel: false };
        let lost = self.losing(plain);
        let feasible: Vec<usize> = regions().filter(|region| is_feasible(*region)).collect();
        let overloaded: Vec<usize> = regions().filter(|region| is_overloaded(*region, self.each)).collect();
        let loads = regions().map(|region| format!("{:.1}", load_ppm(region) as f64 / 1e4)).collect::<Vec<_>>();
        findings.claim(
            "rm_while_feasible",
            "rm keeps its critical deadlines in the regions whose mean load the CPU has time for, and loses some in \
             each one whose load exceeds that by more than a second's work while it lasts",
            format!(
                "mean loads {} % of the CPU by region, so {} are feasible; rm loses critical deadlines in {}, and \
                 that exceed the CPU by so much {}",
                loads.join(", "),
                list(&feasible),
                list(&lost),
                list(&overloaded)
            ),
            // Shorter runs may have no overloaded region.
            (self.are_long_enough() && !overloaded.is_empty()).then(|| {
                lost.iter().all(|region| !is_feasible(*region)) && overloaded.iter().all(|region| lost.contains(region))
            }),
        );
        let rm = self.under(plain);
        let none = |outcome: &Outcome| outcome.critical.missed + outcome.noncritical.missed == 0;
        let all_met = feasible.iter().all(|region| rm.get(*region).is_some_and(none));
        let singles = || self.variants.iter().zip(&self.outcomes).filter(|(variant, _)| variant.strategy.is_some());
        let made = |of: &[Outcome], region: usize| of.get(region).map_or(0, |outcome| outcome.noncritical.made);
        let where_made = |is: fn(&u64, &u64) -> bool| -> Vec<usize> {
            let any = |region: &usize| singles().any(|(_, others)| is(&made(others, *region), &made(rm, *region)));
            feasible.iter().copied().filter(any).collect()
        };
        let (more, fewer) = (where_made(u64::gt), where_made(u64::lt));
        findings.claim(
            "rm_is_best_while_feasible",
            "while the mean load is feasible rm meets all deadlines, none of the other single strategies makes more \
             noncritical ones, and some make fewer",
            format!(
                "rm meets {} of regions {}; others make more in {}, and fewer in {}",
                if all_met { "all deadlines" } else { "not all deadlines" },
                list(&feasible),
                list(&more),
                list(&fewer)
            ),
            self.are_long_enough().then_some(!rm.is_empty() && all_met && more.is_empty() && !fewer.is_empty()),
        );
    }

    fn claim_hybrids(&self, findings: &mut Findings) {
        let aware = self.variants.iter().zip(&self.outcomes).filter(|(variant, _)| variant.is_aware());
        let misses: u64 = aware.flat_map(|(_, regions)| regions).map(|outcome| outcome.critical.missed).sum();
        findings.claim(
            "hybrids_keep_critical",
            "muf and rms+mlf, with cancellation and without, keep the critical deadlines in all regions (in the \
             paper but for one deadline in region 9)",
            format!("{misses} critical deadlines missed, of all regions and all four"),
            verdict(self.are_long_enough() && misses == 0, misses > 0),
        );
        let lost = self.losing(Variant { strategy: Some(Builtin::Rm), cancel: false });
        let best: Vec<Best> = regions().filter_map(|region| self.best(region)).collect();
        let told = |(region, best): (usize, &Best)| format!("{region}: {}", best.name());
        let hybrid = |region: &usize| {
            best.get(*region).is_some_and(|best| best.variants.iter().all(|variant| variant.is_aware()))
        };
        findings.claim(
            "hybrids_are_best_in_overload",
            "where rm loses critical deadlines, of the paper's six only strategies that know criticality are best \
             (Fig. 12)",
            format!(
                "best by region, = where equal: {}",
                best.iter().enumerate().map(told).collect::<Vec<_>>().join("; ")
            ),
            self.are_long_enough().then_some(!lost.is_empty() && lost.iter().all(hybrid)),
        );
    }

    fn claim_cancellation(&self, findings: &mut Findings) {
        let lost = self.losing(Variant { strategy: Some(Builtin::Rm), cancel: false });
        let (plain, cancelling) = (self.of(Builtin::Muf, false), self.of(Builtin::Muf, true));
        let missed = |of: &[Outcome], region: usize| of.get(region).map_or(0, |outcome| outcome.noncritical.missed);
        let told = |region: &usize| {
            let (with, without) = (missed(cancelling, *region), missed(plain, *region));
            format!("{:.1} instead of {:.1} in {region}", self.rate(with), self.rate(without))
        };
        findings.claim(
            "cancellation_reduces_misses",
            "where rm loses critical deadlines, cancellation reduces the deadlines that muf misses",
            format!("noncritical ones a second: {}", lost.iter().map(told).collect::<Vec<_>>().join("; ")),
            self.are_long_enough().then_some(
                !lost.is_empty() && lost.iter().all(|region| missed(cancelling, *region) < missed(plain, *region)),
            ),
        );
    }
}

#[cfg(test)]
pub(super) mod tests {
    use takt_model::TaskId;

    use super::super::{Class, variants};
    use super::*;

    /// As in the paper: rm loses critical deadlines from region 7 on, and makes more noncritical
    /// ones in region 6. Cancellation helps muf.
    pub(in super::super) fn usual() -> Outcomes {
        let outcome = |variant: Variant, region: usize| {
            let rm = variant.strategy == Some(Builtin::Rm);
            let aware = variant.is_aware() || variant.strategy.is_none();
            let lost = if !aware && region > 6 { 50 } else { 0 };
            let fewer = if variant.is_aware() && region == 6 || region > 6 && !rm && !variant.cancel { 10 } else { 0 };
            let missed = if region > 6 && !variant.cancel { 30 } else { 0 };
            Outcome {
                critical: Class { enqueued: 1000, made: 1000 - lost, missed: lost, ..Class::default() },
                noncritical: Class { enqueued: 600, made: 500 - fewer - missed, missed, ..Class::default() },
                ..Outcome::default()
            }
        };
        let of = |variant: &Variant| regions().map(|region| outcome(*variant, region)).collect();
        let variants = variants();
        let outcomes: Vec<Vec<Outcome>> = variants.iter().map(of).collect();
        let lost = outcomes.iter().map(|regions| regions.iter().map(lost).collect()).collect();
        // Regions of this length overload region 7 by more than a second.
        Outcomes { outcomes, lost, variants, each: Span::from_s(100) }
    }

    /// The first jobs of an operation.
    fn lost(outcome: &Outcome) -> Lost {
        (0..outcome.critical.missed).map(|number| JobKey { task: TaskId(0), number }).collect()
    }

    impl Outcomes {
        /// The outcomes with other counts of a variant in a region.
        pub(in super::super) fn with(
            mut self,
            strategy: Option<Builtin>,
            cancel: bool,
            region: usize,
            change: impl Fn(&mut Outcome),
        ) -> Outcomes {
            let at = self.variants.iter().position(|variant| *variant == Variant { strategy, cancel }).unwrap();
            change(&mut self.outcomes[at][region]);
            self.lost[at][region] = lost(&self.outcomes[at][region]);
            self
        }
    }

    fn failing(all: &Outcomes) -> Vec<&'static str> {
        let mut findings = Findings::default();
        all.claims(&mut findings);
        assert_eq!(findings.claims.len(), 5);
        findings.claims.iter().filter(|claim| claim.holds != Some(true)).map(|claim| claim.name).collect()
    }

    #[test]
    fn each_claim_can_fail() {
        assert_eq!(failing(&usual()), Vec::<&str>::new());
        let rm = Some(Builtin::Rm);
        // A critical deadline too many, and one too few.
        let lost = |outcome: &mut Outcome| outcome.critical.missed = 1;
        let kept = |outcome: &mut Outcome| outcome.critical.missed = 0;
        assert!(failing(&usual().with(rm, false, 5, lost)).contains(&"rm_while_feasible"));
        assert_eq!(failing(&usual().with(rm, false, 8, kept)), ["rm_while_feasible"]);
        let more = |outcome: &mut Outcome| outcome.noncritical.made = 501;
        assert_eq!(failing(&usual().with(Some(Builtin::Mlf), true, 3, more)), ["rm_is_best_while_feasible"]);
        let late = |outcome: &mut Outcome| outcome.noncritical.missed = 1;
        assert_eq!(failing(&usual().with(rm, false, 3, late)), ["rm_is_best_while_feasible"]);
        assert_eq!(failing(&usual().with(Some(Builtin::RmsMlf), true, 9, lost)), ["hybrids_keep_critical"]);
        let best = |outcome: &mut Outcome| (outcome.critical.missed, outcome.noncritical.made) = (0, 600);
        assert_eq!(failing(&usual().with(rm, true, 9, best)), ["hybrids_are_best_in_overload"]);
        let missing = |outcome: &mut Outcome| outcome.noncritical.missed = 30;
        assert_eq!(failing(&usual().with(Some(Builtin::Muf), true, 9, missing)), ["cancellation_reduces_misses"]);
        let mut none_is_better = usual();
        for (variant, regions) in none_is_better.variants.iter().zip(&mut none_is_better.outcomes) {
            if variant.is_aware() {
                regions[6].noncritical.made = 500;
            }
        }
        assert_eq!(failing(&none_is_better), ["rm_is_best_while_feasible"]);
    }

    #[test]
    fn regions_that_are_too_short_refute_nothing_but_that_critical_deadlines_are_kept() {
        let holding = |all: Outcomes| {
            let mut findings = Findings::default();
            Outcomes { each: Span::from_ms(9_999), ..all }.claims(&mut findings);
            findings.claims.iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        let nothing = Outcomes { outcomes: vec![vec![Outcome::default(); 12]; 12], ..usual() };
        assert_eq!([holding(nothing), holding(usual())], [[None; 5]; 2]);
        let lost = usual().with(Some(Builtin::Muf), true, 9, |outcome| outcome.critical.missed = 1);
        assert_eq!(holding(lost), [None, None, Some(false), None, None]);
    }

    #[test]
    fn tables_have_what_figures_6_to_12_show_by_class() {
        let of = |enqueued, made, missed, cancelled| Class { enqueued, made, missed, cancelled, rejected: 0 };
        let all = usual().with(Some(Builtin::Rm), true, 4, |outcome| {
            (outcome.critical, outcome.noncritical) = (of(100, 200, 300, 0), of(400, 500, 600, 700));
        });
        let mut findings = Findings::default();
        all.tables(&mut findings);
        let told: Vec<_> =
            findings.tables.iter().map(|table| (table.title.as_str(), table.rows[4].values[0][1].unwrap())).collect();
        assert_eq!(
            told,
            [
                ("Requests enqueued", 5.0),
                ("Critical requests enqueued", 1.0),
                ("Noncritical requests enqueued", 4.0),
                ("Critical deadlines made", 2.0),
                ("Critical deadlines missed", 3.0),
                ("Noncritical deadlines made", 5.0),
                ("Noncritical deadlines missed", 6.0),
                ("Noncritical operations cancelled", 7.0),
            ]
        );
    }

    #[test]
    fn a_critical_job_is_unkept_where_some_single_strategy_keeps_it() {
        let (rm, wanted) =
            (Variant { strategy: Some(Builtin::Rm), cancel: false }, Variant { strategy: None, cancel: true });
        let mut all = usual();
        for lost in &mut all.lost {
            lost[9] = [1, 2].map(|number| JobKey { task: TaskId(0), number }).into();
        }
        assert_eq!((all.unkept(wanted, 9), all.unkept(wanted, 8)), (0, 0));
        // As many lost jobs as before, but other ones.
        let at = all.variants.iter().position(|variant| *variant == rm).unwrap();
        all.lost[at][9] = [2, 3].map(|number| JobKey { task: TaskId(0), number }).into();
        assert_eq!(all.unkept(wanted, 9), 1);
    }

    #[test]
    fn ties_are_told_as_ties() {
        let all = usual();
        assert_eq!(all.best(0).unwrap().name(), "all");
        assert_eq!(all.best(6).unwrap().name(), "rm = rm, cancel");
        assert_eq!(all.best(9).unwrap().name(), "muf, cancel = rms+mlf, cancel");
        let one = all.with(Some(Builtin::Muf), true, 9, |outcome| outcome.noncritical.made += 1);
        assert_eq!(one.best(9).unwrap().name(), "muf, cancel");
        assert_eq!(one.losing(Variant { strategy: Some(Builtin::Rm), cancel: false }), [7, 8, 9, 10, 11]);
    }
}
