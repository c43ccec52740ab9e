//! Claims of [CSA] Figs. 6 and 7 that simulations and kernels share, and the claims about a kernel.

use std::cmp::Ordering;

use takt_model::{ServerRule, Span};

use super::kernel::{Kernel, LOAD, Measured, Setting};
use super::measure::miss_ratio;
use super::{RULES, in_percent, medians, needs_time, quartiles, ratios_by_rule};
use crate::findings::Findings;

/// Whether an example of the paper is one here: by the miss ratios under ptps, wcps and crps.
pub(super) type Example = fn(f64, f64, f64) -> bool;

// The paper's examples of what crps improves, in numbers.
pub(super) const NOTHING_WITH_MUCH: &str =
    "Where the interface overhead is high, crps misses nothing, and ptps and wcps miss something";
pub(super) const FAR_LESS_WITH_LITTLE: &str = "Where the interface overhead is low, ptps misses at least 200 times as \
     much as crps, and wcps at least 100 times as much";

pub(super) const MORE_WITH_MUCH: &str =
    "crps shortens the median response of ptps more where the interface overhead is high";
pub(super) const ALIKE_ALONE: &str = "Where a domain is alone, the three rules give the same response times";

pub(super) fn misses_nothing(ptps: f64, wcps: f64, crps: f64) -> bool {
    crps == 0.0 && ptps > 0.0 && wcps > 0.0
}

pub(super) fn misses_far_less(ptps: f64, wcps: f64, crps: f64) -> bool {
    ptps >= 200.0 * crps && wcps >= 100.0 * crps
}

/// Returns `None` if no job was late.
pub(super) fn example(ratios: &[Option<f64>], holds: Example) -> Option<bool> {
    match *ratios {
        [Some(ptps), Some(wcps), Some(crps)] if ptps + wcps + crps > 0.0 => Some(holds(ptps, wcps, crps)),
        _ => None,
    }
}

/// No two measurements are equal. Response times count as alike if they differ by no more: by 5 % of the deadline, or
/// of the median under ptps.
const ALIKE: f64 = 0.05;
/// With no more late jobs rules cannot differ much.
const FEW: f64 = 0.1;

/// The measurements of a kernel for a figure.
pub(super) struct OnKernel<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) settings: &'a [Setting],
    /// Fewer than there are settings if it was told to stop.
    pub(super) measured: &'a [Measured],
    pub(super) paper_time: Span,
}

impl OnKernel<'_> {
    /// Adds a claim, or the reason why it is not decided.
    fn claim(
        &self,
        findings: &mut Findings,
        name: &'static str,
        sentence: &str,
        found: String,
        holds: Result<bool, &str>,
    ) {
        let is_whole = self.measured.len() == self.settings.len();
        let holds = if is_whole { holds } else { Err("it ended early") };
        let why = holds.err().map_or_else(String::new, |why| format!("; not decided: {why}"));
        let claim = findings.claim(name, format!("{sentence} (on {})", self.kernel.name), found + &why, holds.ok());
        needs_time(claim, self.paper_time);
    }

    /// The miss ratios of each setting that was measured, by rule.
    fn ratios(&self) -> Vec<Vec<Option<f64>>> {
        let of = |measured: &Measured| measured.live.iter().map(|jobs| miss_ratio(jobs)).collect();
        self.measured.iter().map(of).collect()
    }

    pub(super) fn claim_order(&self, findings: &mut Findings, whose: &str) {
        let settings = self.settings.iter().zip(self.ratios());
        let told: Vec<String> =
            settings.map(|(setting, ratios)| format!("{}: {}", setting.name, ratios_by_rule(&ratios))).collect();
        let holds = never_rise(self.measured.iter().map(|measured| measured.live.iter().collect()));
        let sentence = format!("Of {whose} crps misses no more than wcps, and wcps no more than ptps");
        self.claim(findings, self.kernel.claims.order, &sentence, told.join("; "), holds);
    }

    /// The claims of Fig. 6 about factors.
    pub(super) fn claim_gains(&self, findings: &mut Findings) {
        for (at, (name, rule)) in self.kernel.claims.gains.into_iter().zip(RULES).enumerate() {
            let by_factor: Vec<_> = self.measured.iter().filter_map(|measured| measured.live.get(at)).collect();
            let told: Vec<String> = by_factor.iter().map(|jobs| in_percent(miss_ratio(jobs))).collect();
            let (misses, holds) = if rule == ServerRule::Ptps {
                ("as much, whatever more important domains need", are_alike(&by_factor))
            } else {
                ("no more where more important domains need less", never_rise(std::iter::once(by_factor)))
            };
            let sentence = format!("Under {} the least important domain misses {misses}", rule.name());
            self.claim(findings, name, &sentence, format!("U_W {LOAD:.1}: {}", told.join(", ")), holds);
        }
    }

    /// The claims of Fig. 7 beside the order.
    pub(super) fn claim_examples(&self, findings: &mut Findings) {
        let claims = &self.kernel.claims;
        let faster = |at: usize| {
            let medians = medians(&self.measured.get(at)?.live);
            medians[0].zip(medians[2]).map(|(ptps, crps)| 1.0 - crps / ptps)
        };
        let found =
            format!("by {} with much overhead, by {} with little", in_percent(faster(0)), in_percent(faster(1)));
        let holds = match faster(0).zip(faster(1)) {
            Some((much, little)) if much.max(little) <= ALIKE => Err("crps shortens no median by more than 5 %"),
            Some((much, little)) if (much - little).abs() > ALIKE => Ok(much > little),
            _ => Err("they differ by no more than 5 %"),
        };
        self.claim(findings, claims.overhead, MORE_WITH_MUCH, found, holds);
        let ratios = self.ratios();
        let examples = [
            (claims.nothing, NOTHING_WITH_MUCH, misses_nothing as Example),
            (claims.far_less, FAR_LESS_WITH_LITTLE, misses_far_less),
        ];
        for (at, (name, sentence, holds)) in examples.into_iter().enumerate() {
            let ratios = ratios.get(at).map_or(&[][..], Vec::as_slice);
            self.claim(findings, name, sentence, ratios_by_rule(ratios), example(ratios, holds).ok_or(NO_MISS));
        }
        let jobs = self.measured.get(ALONE).map_or(&[][..], |measured| measured.live.as_slice());
        let apart = farthest(jobs);
        self.claim(
            findings,
            claims.alone,
            ALIKE_ALONE,
            apart.map_or("-".to_owned(), |apart| {
                format!("the quartiles of workload 7 differ by {} of the deadline at most", in_percent(Some(apart)))
            }),
            apart.map(|apart| apart <= ALIKE).ok_or("a rule ran no job"),
        );
    }
}

const NO_MISS: &str = "no job was late";
/// The place of the single domain.
const ALONE: usize = 2;

/// Whether no later jobs of a row miss more than earlier ones.
fn never_rise<'a>(rows: impl Iterator<Item = Vec<&'a Vec<f64>>>) -> Result<bool, &'static str> {
    let mut falls = false;
    for row in rows {
        for (earlier, later) in pairs(&row) {
            match compare(earlier, later).ok_or("a rule ran no job")? {
                Ordering::Greater => return Ok(false),
                Ordering::Less => falls = true,
                Ordering::Equal => {}
            }
        }
    }
    if falls { Ok(true) } else { Err("no two miss ratios differ by more than two standard errors") }
}

/// Whether miss ratios are alike.
fn are_alike(row: &[&Vec<f64>]) -> Result<bool, &'static str> {
    if row.iter().all(|jobs| miss_ratio(jobs).is_none_or(|ratio| ratio <= FEW)) {
        return Err("no more than 10 % of the jobs were late");
    }
    let mut compared = pairs(row).map(|(earlier, later)| compare(earlier, later));
    compared.try_fold(true, |alike, order| Some(alike && order?.is_eq())).ok_or("a rule ran no job")
}

/// Each of a row with each later one.
fn pairs<T>(row: &[T]) -> impl Iterator<Item = (&T, &T)> {
    row.iter().enumerate().flat_map(|(at, later)| row[..at].iter().map(move |earlier| (earlier, later)))
}

/// The miss ratio of `later` by that of `earlier`. They count as equal if they differ by no more than two standard
/// errors of the difference of two independent proportions. So a few jobs that one disturbance delayed decide nothing.
/// `None` without jobs.
fn compare(earlier: &[f64], later: &[f64]) -> Option<Ordering> {
    let ratio = |jobs: &[f64]| miss_ratio(jobs).map(|ratio| (ratio, ratio * (1.0 - ratio) / jobs.len() as f64));
    let ((before, variance_before), (after, variance)) = ratio(earlier).zip(ratio(later))?;
    let alike = 2.0 * (variance_before + variance).sqrt();
    Some(if (after - before).abs() <= alike { Ordering::Equal } else { after.total_cmp(&before) })
}

/// How far the quartiles are apart from rule to rule. `None` without jobs.
fn farthest(jobs: &[Vec<f64>]) -> Option<f64> {
    let all: Vec<[f64; 5]> = jobs.iter().map(|jobs| quartiles(jobs)).collect::<Option<_>>()?;
    pairs(&all).flat_map(|(one, other)| (1..4).map(move |at| (one[at] - other[at]).abs())).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::lab::LAB;
    use super::*;

    /// Jobs of which this many of a hundred are late, and the others take this part of their deadlines.
    fn jobs(late: usize, others: f64) -> Vec<f64> {
        (0..100).map(|at| if at < late { 2.0 } else { others }).collect()
    }

    /// Adds the claims of a figure. `live`: the jobs by setting and by rule.
    fn claims(live: &[[Vec<f64>; 3]], add: fn(&OnKernel<'_>, &mut Findings)) -> Findings {
        let settings: Vec<Setting> = (0..3).map(|_| Setting::default()).collect();
        let live = live.iter().map(|jobs| jobs.to_vec());
        let measured: Vec<Measured> = live.map(|live| Measured { live, ..Measured::default() }).collect();
        let mut findings = Findings::default();
        let paper_time = Span::from_s(20);
        add(&OnKernel { kernel: &LAB, settings: &settings, measured: &measured, paper_time }, &mut findings);
        findings
    }

    fn verdicts(findings: &Findings) -> Vec<Option<bool>> {
        findings.claims.iter().map(|claim| claim.holds).collect()
    }

    #[test]
    fn factors_change_misses_by_rule() {
        let of = |late: &[[usize; 3]]| {
            let live: Vec<_> = late.iter().map(|late| late.map(|late| jobs(late, 0.5))).collect();
            verdicts(&claims(&live, |figure, findings| figure.claim_gains(findings)))
        };
        // By factor. As in the paper, but for a little under ptps and wcps.
        assert_eq!(of(&[[27, 12, 8], [24, 13, 0], [28, 1, 0]]), [Some(true); 3]);
        // Under ptps less, under wcps more, and under crps nothing.
        assert_eq!(of(&[[27, 12, 0], [27, 9, 0], [12, 24, 0]]), [Some(false), Some(false), None]);
        // So few misses under ptps do not tell, and so small differences under crps.
        assert_eq!(of(&[[9, 12, 1], [9, 9, 2], [2, 1, 0]]), [None, Some(true), None]);
        assert_eq!(of(&[[27, 12, 1], [27, 9, 0]]), [None; 3], "a run that ended early decides nothing");
    }

    #[test]
    fn examples_are_decided_where_jobs_are_late_and_medians_differ() {
        let of = |live: [[(usize, f64); 3]; 3]| {
            let live = live.map(|by_rule| by_rule.map(|(late, others)| jobs(late, others)));
            claims(&live, |figure, findings| figure.claim_examples(findings))
        };
        // Workloads with much and with little overhead, and with one domain.
        let paper =
            of([[(3, 0.5), (2, 0.5), (0, 0.4)], [(20, 0.5), (20, 0.5), (0, 0.48)], [(0, 0.10), (0, 0.11), (0, 0.12)]]);
        assert_eq!(verdicts(&paper), [Some(true); 4]);
        let ours = of([[(5, 0.5), (5, 0.5), (2, 0.5)], [(6, 0.5), (6, 0.5), (3, 0.4)], [(0, 0.1), (0, 0.1), (0, 0.2)]]);
        assert_eq!(verdicts(&ours), [Some(false); 4]);
        let slower = of([[(0, 0.5), (0, 0.5), (0, 0.5)], [(0, 0.1), (0, 0.1), (0, 0.2)], [(0, 0.1); 3]]);
        assert_eq!(verdicts(&slower)[0], None, "crps shortens no median");
        let idle = of([[(0, 0.5); 3], [(0, 0.5), (0, 0.5), (0, 0.49)], [(0, 0.1); 3]]);
        assert_eq!(verdicts(&idle), [None, None, None, Some(true)]);
        let reasons: Vec<bool> = idle.claims.iter().map(|claim| claim.found.contains("not decided: ")).collect();
        assert_eq!(reasons, [true, true, true, false], "the reason is stated");
    }
}
