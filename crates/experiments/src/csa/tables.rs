//! [CSA] Tables I and II: interface overheads of partitions, and which domains miss deadlines.

use takt_model::Span;

use super::measure::{Responsiveness, miss_ratio};
use super::workload::Domains;
use super::{
    ARINC, RULES, SWITCH, differences, needs_time, partition_domains, partition_duration, under_each_rule,
    workload_count,
};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Findings, PAPER, Row, SIMULATED, mean};

/// U_RM, U_W and their difference, by workload.
const TABLE_I: [[f64; 3]; 7] = [
    [0.460, 0.378, 0.082],
    [0.570, 0.511, 0.059],
    [0.560, 0.481, 0.079],
    [0.450, 0.389, 0.061],
    [0.583, 0.537, 0.046],
    [0.465, 0.426, 0.039],
    [0.020, 0.003, 0.017],
];
/// Interface overhead and miss ratio of the six domains of workload 2 under ptps, and of all of them.
const TABLE_II: [[f64; 2]; 7] =
    [[0.0, 0.844], [0.002, 0.4], [0.004, 0.459], [0.006, 0.0], [0.012, 0.141], [0.035, 0.001], [0.059, 0.222]];

/// Groups of domains by interface overhead.
const GROUPS: usize = 4;

pub(super) fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let duration = partition_duration(context);
    let mut findings = Findings::default();
    let mut rows = Vec::new();
    for (i, paper) in TABLE_I.iter().enumerate() {
        let domains = partition_domains(context, i, 0)?;
        let (load, overhead) = (domains.load(), domains.overhead());
        let values =
            vec![paper.iter().copied().map(Some).collect(), vec![Some(load + overhead), Some(load), Some(overhead)]];
        rows.push(Row { name: (i + 1).to_string(), values });
    }
    findings.tables.push(Comparison::new("Interface overheads", "Table I", "share of the CPU", 3).with(
        "workload",
        ["U_RM", "U_W", "U_RM - U_W"],
        [PAPER, SIMULATED],
        rows,
    ));
    by_overhead(context, duration, &mut findings)?;
    differences(&mut findings, 1);
    findings.differences.push(ARINC.to_owned());
    Ok(findings)
}

/// The interface overhead of each domain, and its miss ratio under each rule.
fn by_domain<'a>(
    workload: &'a Domains,
    found: &'a [Responsiveness],
) -> impl Iterator<Item = (f64, Vec<Option<f64>>)> + 'a {
    workload.domains.iter().enumerate().map(move |(i, domain)| {
        let late = found.iter().map(|found| found.domains.get(i).and_then(|jobs| miss_ratio(jobs)));
        (domain.bandwidth() - domain.load(), late.collect())
    })
}

fn columns() -> Vec<String> {
    std::iter::once("overhead").chain(RULES.iter().map(|rule| rule.name())).map(str::to_owned).collect()
}

fn of_one_workload(workload: &Domains, found: &[Responsiveness]) -> Comparison {
    let mut domains: Vec<(f64, Vec<Option<f64>>)> = by_domain(workload, found).collect();
    domains.sort_by(|a, b| a.0.total_cmp(&b.0));
    domains.push((workload.overhead(), found.iter().map(|found| miss_ratio(&found.all())).collect()));
    let rows = TABLE_II.iter().zip(domains).enumerate().map(|(i, (paper, (overhead, late)))| Row {
        name: if i + 1 < TABLE_II.len() { (i + 1).to_string() } else { "all".to_owned() },
        values: vec![paper.map(Some).to_vec(), std::iter::once(Some(overhead)).chain(late).collect()],
    });
    Comparison::new(
        "Interface overheads and deadline miss ratios of the domains of one workload",
        "Table II",
        "shares of the CPU and of the jobs; the paper's are under ptps",
        3,
    )
    .with("domain, by overhead", columns(), [PAPER, SIMULATED], rows)
}

/// Table II: domains with less interface overhead miss more. The six domains of one workload are
/// too few, so several are made.
fn by_overhead(context: &Context, duration: Span, findings: &mut Findings) -> Result<(), Failure> {
    let count = workload_count(context);
    let mut domains: Vec<(f64, Vec<f64>)> = Vec::new();
    for number in 0..count {
        let workload = partition_domains(context, 1, number)?;
        let found = under_each_rule(context, std::slice::from_ref(&workload), 100, duration)?;
        if number == 0 {
            findings.tables.push(of_one_workload(&workload, &found));
        }
        let ratios = by_domain(&workload, &found);
        domains
            .extend(ratios.filter_map(|(overhead, late)| Some((overhead, late.into_iter().collect::<Option<_>>()?))));
    }
    domains.sort_by(|a, b| a.0.total_cmp(&b.0));
    let groups: Vec<Vec<f64>> = domains
        .chunks(domains.len().div_ceil(GROUPS).max(1))
        .map(|group| {
            let of = |rule: usize| mean(group.iter().map(|(_, ratios)| ratios[rule]));
            let overhead = mean(group.iter().map(|(overhead, _)| *overhead));
            std::iter::once(overhead).chain((0..RULES.len()).map(of)).flatten().collect()
        })
        .collect();
    let rows = groups.iter().enumerate().map(|(i, group)| Row {
        name: format!("{} of {}", i + 1, groups.len()),
        values: vec![group.iter().copied().map(Some).collect()],
    });
    findings.tables.push(
        Comparison::new(
            "Interface overhead of a domain and its deadline miss ratio",
            "Table II",
            "shares of the CPU and of the jobs, means of equally many domains",
            3,
        )
        .with("domains, by overhead", columns(), [SIMULATED], rows),
    );
    let (Some(least), Some(most)) = (groups.first(), groups.last()) else { return Ok(()) };
    let decided = !context.stopped() && least[1] + most[1] > 0.0;
    let shown = |rule: usize| format!("{:.3} of the jobs with the least, {:.3} with the most", least[rule], most[rule]);
    let claim = findings.claim(
        "less_overhead_misses_more_under_ptps",
        "Under ptps the quarter of the domains with the least interface overhead misses more than that with the most",
        shown(1),
        decided.then_some(least[1] > most[1]),
    );
    needs_time(claim, duration);
    let claim = findings.claim(
        "overhead_matters_less_under_crps",
        "Under crps the interface overhead of a domain matters less than under ptps",
        shown(3),
        decided.then_some(least[3] - most[3] < least[1] - most[1]),
    );
    needs_time(claim, duration);
    findings.differences.push(format!(
        "Table II shows the six domains of one workload. Here {count} such workloads are made, and the claims are \
         about all of them. A switch costs {SWITCH}."
    ));
    Ok(())
}
