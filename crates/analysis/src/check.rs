//! `check`: which tests run on which part of a System, and in which order.

use serde_json::{Map, Value, json};
use takt_model::{Arrival, Exec, NodeId, StrategyRef, System};

use crate::apply::{PORTFOLIO, apply};
use crate::catalogue::TestId;
use crate::chains::{self, Carried};
use crate::linux::{self, LinuxMachine};
use crate::partition;
use crate::report::{CheckReport, TestReport};
use crate::scope::{Unit, View, binds};
use crate::verdict::{Answer, Verdict};

/// What `check` is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckOptions {
    /// Run every test, also those that cannot say more or do not apply.
    pub all: bool,
    /// Run these alone, also where they do not apply; empty: choose.
    pub only: Vec<TestId>,
    /// Also say what this machine's kernel would admit.
    pub linux: Option<LinuxMachine>,
}

/// Runs the tests that fit a System: per scope the cheapest first until one decides, then the cheapest
/// that bounds response times.
///
/// Never fails: what cannot be analysed is a test that answers "unknown" and says why.
#[must_use]
pub fn check(system: &System, options: &CheckOptions) -> CheckReport {
    let mut tests = Vec::new();
    let mut schedulable = Answer::Yes;
    for index in 0..system.nodes.len() {
        let node = NodeId(index as u32);
        let (answer, mut reports, placed) = check_node(system, node, options);
        schedulable = schedulable.and(answer);
        tests.append(&mut reports);
        if let Some(machine) = &options.linux {
            tests.append(&mut linux::check_node(placed.as_ref().unwrap_or(system), node, machine));
        }
    }
    let mut warnings = contradictions(system);
    let exceeded = !warnings.is_empty();
    if system.tasks.iter().any(|task| !task.offset.is_zero()) {
        warnings.push("offsets are ignored: the verdicts hold for any offsets".to_owned());
    }
    CheckReport { system: system.name.clone(), schedulable, warnings, exceeded, tests }
}

/// What the verdicts assume and the file contradicts.
fn contradictions(system: &System) -> Vec<String> {
    let mut warnings = Vec::new();
    for task in &system.tasks {
        let longest = match &task.exec {
            Exec::Wcet => None,
            Exec::Uniform { max, .. } => Some(*max),
            Exec::Pmf(pmf) => pmf.iter().map(|(span, _)| *span).max(),
            Exec::Trace(trace) => trace.values.iter().copied().max(),
        };
        if let Some(longest) = longest.filter(|longest| *longest > task.wcet) {
            let (name, wcet) = (&task.name, task.wcet);
            warnings.push(format!("task \"{name}\" executes for up to {longest}; the verdicts assume its wcet {wcet}"));
        }
        let closest = match &task.arrival {
            Arrival::Periodic | Arrival::Sporadic => None,
            Arrival::Pmf(pmf) => pmf.iter().map(|(span, _)| *span).min(),
            Arrival::Trace(trace) => trace
                .values
                .windows(2)
                .map(|pair| pair[1].saturating_sub(pair[0]))
                .min()
                .filter(|_| task.after.is_empty()),
        };
        if let Some(closest) = closest.filter(|closest| *closest < task.period) {
            let (name, period) = (&task.name, task.period);
            warnings.push(format!(
                "task \"{name}\" arrives after {closest} already; the verdicts assume its period {period}"
            ));
        }
    }
    warnings
}

/// Everything about one node but the kernel's view; also the system with the node's tasks placed, where they had to be.
fn check_node(system: &System, node: NodeId, options: &CheckOptions) -> (Answer, Vec<TestReport>, Option<System>) {
    let spec = &system.nodes[node.index()];
    let mut reports = unsupported(system, node);
    let mut answer = if reports.is_empty() { Answer::Yes } else { Answer::Unknown };
    let mut placed = None;
    if binds(spec) {
        let (report, result) = partition::apply(system, node);
        // Bound by hand: nothing to place, nothing to say unless asked.
        let asked = options.all || options.only.contains(&TestId::Partition);
        if result.is_none() || asked || was_unbound(system, node) {
            answer = answer.and(if result.is_some() { Answer::Yes } else { Answer::Unknown });
            reports.push(report);
        }
        placed = result;
    }
    let system = placed.as_ref().unwrap_or(system);
    let mut strategies = vec![(spec.name.clone(), spec.strategy)];
    let mut obeyed: StrategyRef = spec.strategy;
    let mut modes: Vec<_> = system.modes.iter().filter(|mode| mode.node == node).collect();
    modes.sort_by_key(|mode| mode.at);
    for mode in modes {
        if mode.strategy != obeyed {
            let name = system.strategy_name(mode.strategy);
            let scope = format!("{}@{}:{name}", spec.name, mode.at);
            let why = format!(
                "the switch to \"{name}\" at {} is not covered: each strategy is checked as if it always ruled",
                mode.at
            );
            reports.push(plain(TestId::Unsupported, &scope, why));
            answer = answer.and(Answer::Unknown);
            strategies.push((scope, mode.strategy));
            obeyed = mode.strategy;
        }
    }
    let switches = strategies.len() > 1;
    for (scope, strategy) in strategies {
        let (found, mut tests) = check_view(system, node, strategy, scope, options);
        answer = answer.and(if switches { stands_alone(&mut tests) } else { found });
        reports.append(&mut tests);
    }
    if !options.only.is_empty() {
        reports.retain(|report| options.only.contains(&report.test));
    }
    (answer, reports, placed)
}

/// Reduces what the tests say of one of several strategies to what holds under all of them.
///
/// Around a switch jobs are served by both, so no response is bounded by either; and the pattern that refutes a strategy
/// may never meet it. What no scheduler gets around stays refuted. Returns what is known of the node.
fn stands_alone(tests: &mut [TestReport]) -> Answer {
    let mut answer = Answer::Unknown;
    for report in tests {
        match &mut report.verdict {
            Verdict::Infeasible { .. } if report.test == TestId::Necessary => {
                answer = Answer::No;
                continue;
            }
            Verdict::Infeasible { witness } => {
                let why = format!("{witness} (if this strategy ruled then)");
                report.verdict = Verdict::NotProven { why };
            }
            Verdict::Schedulable { bounds } => bounds.clear(),
            _ => {}
        }
        for task in &mut report.tasks {
            (task.wcrt, task.verdict) = (None, Answer::Unknown);
        }
        for chain in report.figures.get_mut("chains").and_then(Value::as_array_mut).into_iter().flatten() {
            chain["bound_ns"] = Value::Null;
        }
    }
    answer
}

fn was_unbound(system: &System, node: NodeId) -> bool {
    let clusters = system.nodes[node.index()].clusters();
    system
        .tasks_of(node)
        .filter(|(_, task)| task.component.is_none())
        .any(|(_, task)| task.cpus.is_none_or(|cpus| !clusters.iter().any(|cluster| cpus.is_subset(cluster))))
}

/// A test that says "unknown" for a reason of its own.
fn plain(test: TestId, scope: &str, why: String) -> TestReport {
    TestReport {
        test,
        scope: scope.to_owned(),
        verdict: Verdict::NotProven { why },
        tasks: Vec::new(),
        figures: Map::new(),
    }
}

/// Parts of a node that this version does not analyse; they run beside its tasks, so the node stays unproven.
fn unsupported(system: &System, node: NodeId) -> Vec<TestReport> {
    let spec = &system.nodes[node.index()];
    let mut reports = Vec::new();
    for component in system.components.iter().filter(|component| component.node == node) {
        let scope = format!("{}/{}", spec.name, component.name);
        reports.push(plain(
            TestId::Unsupported,
            &scope,
            "this version does not analyse components (coming)".to_owned(),
        ));
    }
    for flow in system.flows.iter().filter(|flow| flow.path.contains(&node)) {
        let scope = format!("{}/{}", spec.name, flow.name);
        reports.push(plain(TestId::Unsupported, &scope, "this version does not analyse flows (coming)".to_owned()));
    }
    if spec.receive.is_some() || spec.send.is_some() {
        let why = "this version does not analyse receiving and sending tasks (coming)".to_owned();
        reports.push(plain(TestId::Unsupported, &spec.name, why));
    }
    reports
}

/// One node under one strategy.
fn check_view(
    system: &System,
    node: NodeId,
    strategy: StrategyRef,
    scope: String,
    options: &CheckOptions,
) -> (Answer, Vec<TestReport>) {
    let view = match View::new(system, node, strategy, scope.clone()) {
        Ok(view) => view,
        Err(error) => return (Answer::Unknown, vec![plain(TestId::Unsupported, &scope, error.to_string())]),
    };
    let carried = Carried::holistic(system, &view.units);
    let mut answers = Vec::with_capacity(view.units.len());
    let mut reports: Vec<Vec<TestReport>> = Vec::with_capacity(view.units.len());
    for unit in &view.units {
        let (answer, tests) = check_unit(unit, &view.strategy, &carried, options);
        answers.push(answer);
        reports.push(tests);
    }
    withdraw(system, &view.units, &mut answers, &mut reports);
    let shaky = chains::unproven(system, &view.units, &answers);
    for task in reports.iter_mut().flatten().flat_map(|report| &mut report.tasks).filter(|task| shaky[task.id.index()])
    {
        task.wcrt = None;
        task.verdict = task.verdict.and(Answer::Unknown);
    }
    // The end-to-end bounds hold if every deadline on the way does.
    let proven = answers.iter().all(|answer| *answer == Answer::Yes);
    let chains: Vec<Value> = chains::end_to_end(system, &view.units, &carried)
        .into_iter()
        .map(|(chain, bound)| json!({ "chain": chain, "bound_ns": bound.filter(|_| proven) }))
        .collect();
    if !chains.is_empty()
        && let Some(last) = reports.iter_mut().rev().find_map(|tests| tests.last_mut())
    {
        last.figures.insert("chains".to_owned(), Value::Array(chains));
    }
    let unplaced = if view.unplaced.is_empty() { Answer::Yes } else { Answer::Unknown };
    let answer = answers.into_iter().fold(unplaced, Answer::and);
    let mut reports: Vec<TestReport> = reports.into_iter().flatten().collect();
    if view.units.is_empty() && view.unplaced.is_empty() {
        let verdict = Verdict::Schedulable { bounds: Vec::new() };
        reports.push(TestReport {
            test: TestId::Necessary,
            scope: view.scope,
            verdict,
            tasks: Vec::new(),
            figures: Map::new(),
        });
    }
    (answer, reports)
}

/// One unit: the cheapest test first until one decides, then one that bounds response times.
fn check_unit(unit: &Unit, strategy: &str, carried: &Carried, options: &CheckOptions) -> (Answer, Vec<TestReport>) {
    let mut answer = Answer::Unknown;
    let mut reports = Vec::new();
    for test in PORTFOLIO {
        let asked = options.all || options.only.contains(&test);
        let bounds = test == TestId::Rta;
        if !asked && (!options.only.is_empty() || (answer != Answer::Unknown && !bounds)) {
            continue;
        }
        let report = apply(test, unit, carried);
        answer = match (answer, report.verdict.answer()) {
            (Answer::Unknown, found) => found,
            (known, _) => known,
        };
        let silent = matches!(report.verdict, Verdict::NotApplicable { .. })
            || (test == TestId::Necessary && report.verdict.answer() == Answer::Unknown);
        if asked || !silent {
            reports.push(report);
        }
    }
    if reports.is_empty() && options.only.is_empty() {
        let order = unit.edf().err().map_or_else(|| "edf".to_owned(), |_| format!("strategy \"{strategy}\""));
        let why = match unit.m {
            1 => format!("no test of this version covers {order} on one CPU here; --all says what each needs"),
            m => format!("no test of this version covers {order} on {m} CPUs here; --all says what each needs"),
        };
        reports.push(plain(TestId::Unsupported, &unit.scope, why));
    }
    (answer, reports)
}

/// A yes that rests on deadlines kept elsewhere is withdrawn where those are not proven.
fn withdraw(system: &System, units: &[Unit], answers: &mut [Answer], reports: &mut [Vec<TestReport>]) {
    let home = |id| units.iter().position(|unit| unit.tasks.iter().any(|task| task.id == id));
    loop {
        let mut changed = false;
        for (i, unit) in units.iter().enumerate().filter(|(_, unit)| unit.tasks.iter().any(|task| task.chained)) {
            let before = unit.tasks.iter().flat_map(|task| &system.tasks[task.id.index()].after);
            let shaky = before.filter_map(|id| home(*id)).find(|other| *other != i && answers[*other] != Answer::Yes);
            let Some(shaky) = shaky.filter(|_| answers[i] == Answer::Yes) else { continue };
            answers[i] = Answer::Unknown;
            changed = true;
            let why = format!("rests on predecessors in \"{}\", which is not proven", units[shaky].scope);
            for report in reports[i].iter_mut().filter(|report| report.verdict.answer() == Answer::Yes) {
                report.verdict = Verdict::NotProven { why: why.clone() };
            }
        }
        if !changed {
            return;
        }
    }
}
