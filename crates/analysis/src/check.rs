//! `check`: which tests run on which part of a System, and in which order.

use std::cmp::Ordering;

use serde_json::{Map, json};
use takt_model::{NodeId, System};

use crate::catalogue::TestId;
use crate::exact::{compare_sum, sum_ppm};
use crate::linux::{self, LinuxMachine};
use crate::report::{CheckReport, TestReport};
use crate::verdict::{Answer, Verdict};

/// What `check` is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckOptions {
    /// Run every test, also those that cannot say more.
    pub all: bool,
    /// Run these alone; empty: choose.
    pub only: Vec<TestId>,
    /// Also say what this machine's kernel would admit.
    pub linux: Option<LinuxMachine>,
}

impl CheckOptions {
    /// Whether a test is asked for.
    fn wants(&self, test: TestId) -> bool {
        self.only.is_empty() || self.only.contains(&test)
    }
}

/// Runs the tests that fit a System: per scope the cheapest first until one decides, then the cheapest
/// that bounds response times.
///
/// Never fails: what cannot be analysed is a test that answers "unknown" and says why.
#[must_use]
pub fn check(system: &System, options: &CheckOptions) -> CheckReport {
    let mut report =
        CheckReport { system: system.name.clone(), schedulable: Answer::Yes, warnings: Vec::new(), tests: Vec::new() };
    for index in 0..system.nodes.len() {
        let node = NodeId(index as u32);
        let test = necessary(system, node);
        report.schedulable = report.schedulable.and(test.verdict.answer());
        report.tests.push(test);
        if let Some(machine) = options.linux.as_ref().filter(|_| options.wants(TestId::Linux)) {
            report.tests.extend(linux::check_node(system, node, machine));
        }
    }
    report
}

fn necessary(system: &System, node: NodeId) -> TestReport {
    let spec = &system.nodes[node.index()];
    let terms: Vec<(u64, u64)> =
        system.tasks_of(node).map(|(_, task)| (task.wcet.as_ns(), task.period.as_ns())).collect();
    let terms = terms.iter().copied();
    let late = system.tasks_of(node).find(|(_, task)| task.jitter.saturating_add(task.wcet) > task.deadline);
    let verdict = match (late, compare_sum(terms.clone(), u64::from(spec.cpus))) {
        (Some((_, task)), _) => Verdict::Infeasible {
            witness: format!(
                "task \"{}\": jitter {} + wcet {} exceeds its deadline {}",
                task.name, task.jitter, task.wcet, task.deadline
            ),
        },
        (None, Some(Ordering::Greater)) => Verdict::Infeasible {
            witness: format!("the tasks need more than the {} CPU(s) of node \"{}\"", spec.cpus, spec.name),
        },
        _ => Verdict::NotProven { why: "no necessary condition is violated".to_owned() },
    };
    let mut figures = Map::new();
    figures.insert("utilization_ppm".to_owned(), json!(sum_ppm(terms)));
    TestReport { test: TestId::Necessary, scope: spec.name.clone(), verdict, tasks: Vec::new(), figures }
}
