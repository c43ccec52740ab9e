//! `check`: selects the tests for each part of a System and their order.

use serde_json::{Map, Value, json};
use takt_model::strategy::{Filter, Split};
use takt_model::{Arrival, Criticality, Exec, NodeId, Span, Strategy, StrategyRef, System};

use crate::apply::{self, PORTFOLIO, apply, explain, explain_kernel, explain_placement, of_components};
use crate::carried::ChainBounds;
use crate::catalogue::TestId;
use crate::chains;
use crate::components::Tree;
use crate::distributed::apply::Distributed;
use crate::linux::{self, LinuxMachine};
use crate::memo::Memo;
use crate::partition;
use crate::report::{CheckReport, FlowReport, Progress, TaskReport, TestReport, Watch};
use crate::scope::{Unit, View, binds};
use crate::verdict::{Answer, Verdict};

use withdraw::{apply_proof, under_switches, withdraw, withdraw_figures, withdraw_unit};

mod withdraw;

/// Options of `check`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckOptions {
    /// Run every test, also those that cannot say more or do not apply.
    pub all: bool,
    /// Run these alone, also where they do not apply; empty: choose.
    pub only: Vec<TestId>,
    /// Add the figure "binding" to each test: by task, the tightest comparison of demand with
    /// supply.
    pub explain: bool,
    /// Stop at the verdict: run no test for the sake of its bounds.
    pub verdict_only: bool,
    /// Also say what this machine's kernel would admit.
    pub linux: Option<LinuxMachine>,
}

/// Runs the applicable tests of a System. In each scope the cheapest test goes first, until a test
/// decides. The cheapest test that bounds response times follows.
///
/// Never fails: what cannot be analysed is a test that answers "unknown" and says why.
#[must_use]
pub fn check(system: &System, options: &CheckOptions) -> CheckReport {
    check_watched(system, options, &mut |_| {})
}

/// [`check`], which reports its progress to `watch`.
#[must_use]
pub fn check_watched(system: &System, options: &CheckOptions, watch: &mut dyn FnMut(Progress)) -> CheckReport {
    let mut tests = Vec::new();
    let mut schedulable = Answer::Yes;
    let given = system;
    let charged = options.linux.as_ref().map(|machine| linux::charge(system, machine));
    let system = charged.as_ref().unwrap_or(system);
    let distributed = Distributed::new(system, true);
    for index in 0..system.nodes.len() {
        let node = NodeId(index as u32);
        let (answer, mut reports, placed) = check_one(system, node, distributed.as_ref(), options, (None, &mut *watch));
        schedulable = schedulable.and(answer);
        tests.append(&mut reports);
        if let Some(machine) = &options.linux {
            let mut placed = placed.as_ref().unwrap_or(system).clone();
            placed.nodes[index].costs = given.nodes[index].costs;
            let mut kernel = linux::check_node(&placed, node, machine);
            if options.explain {
                kernel.iter_mut().for_each(|report| explain_kernel(&placed, node, machine, report));
            }
            tests.append(&mut kernel);
        }
    }
    let mut flows = Vec::new();
    if let Some(distributed) = &distributed {
        for (flow, mut report) in system.flows.iter().zip(distributed.flows(system)) {
            let verdict = report.verdict.answer();
            let bound = report.figures.get("end_to_end_ns").and_then(Value::as_u64).filter(|_| verdict == Answer::Yes);
            let (flow, deadline) = (flow.name.clone(), flow.deadline);
            if options.only.is_empty() || options.only.contains(&report.test) {
                flows.push(FlowReport { flow, verdict, end_to_end: bound.map(Span::from_ns), deadline });
            }
            if !options.explain {
                report.figures.remove("binding");
            }
            schedulable = schedulable.and(report.verdict.answer());
            if options.only.is_empty() || options.only.contains(&report.test) {
                tests.push(report);
            }
        }
    }
    let mut warnings = contradictions(system);
    let exceeded = !warnings.is_empty();
    warnings.extend(equally_critical(system));
    warnings.extend(restrictions(system, &tests));
    if let Some(machine) = &options.linux {
        let nodes = (0..given.nodes.len()).map(|index| NodeId(index as u32));
        warnings.extend(nodes.flat_map(|node| linux::stopped(given, node, machine)));
    }
    warnings.extend(system.notes.iter().cloned());
    CheckReport { system: system.name.clone(), schedulable, warnings, exceeded, tests, flows }
}

/// The verdict of [`check`], in less time.
pub(crate) fn decide(system: &System) -> Answer {
    let options = CheckOptions { verdict_only: true, ..CheckOptions::default() };
    let distributed = Distributed::new(system, false);
    let nodes = (0..system.nodes.len())
        .map(|index| check_one(system, NodeId(index as u32), distributed.as_ref(), &options, (None, &mut |_| {})).0);
    nodes.fold(all_flows(system, distributed.as_ref()), Answer::and)
}

/// The reports of one node's tests if [`decide`] would say yes of it.
pub(crate) fn proof(system: &System, node: NodeId) -> Option<Vec<TestReport>> {
    let options = CheckOptions { verdict_only: true, ..CheckOptions::default() };
    let distributed = Distributed::new(system, false);
    let (answer, reports, _) = check_one(system, node, distributed.as_ref(), &options, (None, &mut |_| {}));
    (answer == Answer::Yes).then_some(reports)
}

/// Whether [`decide`] says yes for these nodes and for all flows. It uses the memos of the nodes.
pub(crate) fn proves(system: &System, nodes: &[NodeId], memos: &mut [Memo]) -> bool {
    let options = CheckOptions { verdict_only: true, ..CheckOptions::default() };
    let distributed = Distributed::by(system, false, &mut |node, below| memos[node].demand(below));
    let flows = all_flows(system, distributed.as_ref());
    let mut of = |node: &NodeId| {
        let memo = Some(&mut memos[node.index()]);
        check_one(system, *node, distributed.as_ref(), &options, (memo, &mut |_| {})).0 == Answer::Yes
    };
    flows == Answer::Yes && nodes.iter().all(&mut of)
}

fn all_flows(system: &System, distributed: Option<&Distributed>) -> Answer {
    let flows = distributed.iter().flat_map(|distributed| distributed.flows(system));
    flows.fold(Answer::Yes, |all, flow| all.and(flow.verdict.answer()))
}

/// Checks one node, by the test of distributed systems if that covers the node. Returns the answer, the reports, and
/// the system with the node's tasks placed if they had to be.
fn check_one(
    system: &System,
    node: NodeId,
    distributed: Option<&Distributed>,
    options: &CheckOptions,
    memo_and_watch: (Option<&mut Memo>, Watch),
) -> (Answer, Vec<TestReport>, Option<System>) {
    match distributed.filter(|distributed| distributed.covers(node)) {
        Some(distributed) => check_distributed(system, distributed, node, options),
        None => check_node(system, node, distributed, options, memo_and_watch),
    }
}

/// Warnings: parts of the file that no test covers, and assumptions of the verdict besides the
/// file's bounds.
fn restrictions(system: &System, tests: &[TestReport]) -> Vec<String> {
    let mut warnings = Vec::new();
    let decided = |id| tests.iter().filter(move |test| test.test == id && test.verdict.answer() != Answer::Unknown);
    if decided(TestId::Exact).any(|test| !test.figures.contains_key("grid_ns")) {
        let only = "test \"exact\" holds only for arrivals at the offsets and every period from there; the other tests \
            hold for any offsets";
        warnings.push(only.to_owned());
    } else if system.tasks.iter().any(|task| !task.offset.is_zero()) {
        warnings.push(if decided(TestId::Offsets).next().is_some() {
            "test \"offsets\" holds only for the offsets of the file; the other tests hold for any offsets".to_owned()
        } else {
            "offsets are ignored: the verdicts hold for any offsets".to_owned()
        });
    }
    for test in tests.iter().filter(|test| test.figures.get("supply").is_some_and(|supply| supply == "aligned")) {
        warnings.push(format!(
            "{}: rests on releases at multiples of the server's period, so on the offsets of the file and on \
             strictly periodic arrivals",
            test.scope
        ));
    }
    for (test, share) in tests.iter().filter_map(|test| Some((test, test.figures.get("ordinary")?))) {
        if share["starved_only"] == json!(true) && share["charged"] == json!("nothing") {
            warnings.push(format!(
                "{}: rests on the statement that the kernel's server for ordinary threads acts only where they \
                 starve; Linux 6.12 and later may run it for up to its whole budget where they wake up just before \
                 the end of its period while real-time work runs (docs/reference/tests/linux.md)",
                test.scope
            ));
        }
        let span = |key: &str| Span::from_ns(share[key].as_u64().unwrap_or(u64::MAX));
        let how = match share["charged"].as_str() {
            Some("above") => "as more important than all tasks",
            Some("share") => "as a server among their deadlines",
            _ => continue,
        };
        let (taken, period, tick) = (span("charged_ns"), span("charged_period_ns"), span("tick_ns"));
        let why = if share["kept"] == json!(true) {
            "They get it when they wake up, although real-time work leaves them their share".to_owned()
        } else {
            let (most, window) = (span("real_time_ns"), span("window_ns"));
            let most = if most == window { "all".to_owned() } else { most.to_string() };
            format!("Real-time work may take {most} of any {window} of a CPU, which leaves them less than their share")
        };
        warnings.push(format!(
            "{}: the kernel may give ordinary threads {taken} of each {period} of a CPU (ticks are {tick} apart). \
             {why}. The time is charged {how}. \
             Switch this off (docs/reference/tests/linux.md), or state the time as costs.ordinary",
            test.scope
        ));
    }
    warnings
}

/// Assumptions of verdicts and certificates that the file contradicts, a sentence each.
#[must_use]
pub fn contradictions(system: &System) -> Vec<String> {
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

/// Warns of nodes and components whose strategy goes by criticality, but whose tasks are all critical. Tasks whose
/// criticality the file states count as intended.
pub fn equally_critical(system: &System) -> Vec<String> {
    let goes_by_criticality = |strategy: &Strategy| {
        strategy.levels.iter().any(|level| {
            level.split == Split::Criticality || matches!(level.filter, Filter::Where { criticality: Some(_), .. })
        })
    };
    let mut warnings = Vec::new();
    let mut warn = |whose: String,
                    strategies: &mut dyn Iterator<Item = takt_model::StrategyRef>,
                    criticalities: &mut dyn Iterator<Item = (Criticality, bool)>| {
        let mut strategies = strategies.map(|strategy| system.strategy(strategy));
        let Some(Strategy { name, .. }) = strategies.find(|strategy| goes_by_criticality(strategy)) else { return };
        // Tasks are looked at only for such a strategy.
        let criticalities: Vec<(Criticality, bool)> = criticalities.collect();
        if criticalities.len() > 1
            && criticalities.iter().all(|(criticality, _)| *criticality == Criticality::High)
            && criticalities.iter().any(|(_, stated)| !stated)
        {
            warnings.push(format!(
                "strategy \"{name}\" goes by criticality, and all tasks of {whose} are critical, which is the \
                 default; write criticality = \"low\" into the others"
            ));
        }
    };
    for (index, spec) in system.nodes.iter().enumerate() {
        let node = NodeId(index as u32);
        let modes = system.modes.iter().filter(|mode| mode.node == node).map(|mode| mode.strategy);
        let tasks = system.tasks_of(node).filter(|(_, task)| task.component.is_none());
        let mut criticalities = tasks.map(|(_, task)| (task.criticality, task.criticality_stated));
        warn(format!("node \"{}\"", spec.name), &mut std::iter::once(spec.strategy).chain(modes), &mut criticalities);
    }
    for (index, component) in system.components.iter().enumerate() {
        let own = Some(takt_model::ComponentId(index as u32));
        let tasks = system.tasks.iter().filter(|task| task.component == own);
        let mut criticalities = tasks.map(|task| (task.criticality, task.criticality_stated));
        let strategies = &mut std::iter::once(component.strategy);
        warn(format!("component \"{}\"", component.name), strategies, &mut criticalities);
    }
    warnings
}

/// Checks a node that `partial-edf` covers: one with a table above EDF, or with flows.
fn check_distributed(
    system: &System,
    distributed: &Distributed,
    node: NodeId,
    options: &CheckOptions,
) -> (Answer, Vec<TestReport>, Option<System>) {
    let spec = &system.nodes[node.index()];
    let wanted = |test: TestId| options.only.is_empty() || options.only.contains(&test);
    let mut reports = Vec::new();
    let mut answer = Answer::Unknown;
    let units = View::new(system, node, spec.strategy, spec.name.clone()).map(|view| view.units).unwrap_or_default();
    for unit in &units {
        for &test in PORTFOLIO {
            let report = if test == TestId::Necessary {
                apply(test, unit, &ChainBounds::holistic(system, &units))
            } else if options.all || options.only.contains(&test) {
                let precondition =
                    "needs a node without flows and without a table above its tasks; partial-edf covers it";
                let verdict = Verdict::NotApplicable { precondition: precondition.to_owned() };
                TestReport { verdict, ..unknown(test, &unit.scope, String::new()) }
            } else {
                continue;
            };
            let refuted = report.verdict.answer() == Answer::No;
            if refuted {
                answer = Answer::No;
            }
            if wanted(test) && (refuted || options.all || options.only.contains(&test)) {
                reports.push(report);
            }
        }
    }
    if options.all || options.only.contains(&TestId::PartialEdfPaper) {
        reports.push(distributed.paper(system, node));
    }
    let mut report = distributed.node(system, node);
    if options.explain {
        distributed.explain(system, node, &mut report);
    }
    if wanted(TestId::PartialEdf) {
        if answer == Answer::Unknown {
            answer = report.verdict.answer();
        }
        reports.push(report);
    }
    (answer, reports, None)
}

/// Checks a node that `partial-edf` does not cover.
fn check_node(
    system: &System,
    node: NodeId,
    distributed: Option<&Distributed>,
    options: &CheckOptions,
    (mut memo, watch): (Option<&mut Memo>, Watch),
) -> (Answer, Vec<TestReport>, Option<System>) {
    let spec = &system.nodes[node.index()];
    let mut reports = unsupported(system, node, distributed);
    let mut answer = if reports.is_empty() { Answer::Yes } else { Answer::Unknown };
    if let Some(report) = overload(system, node) {
        reports.push(report);
        answer = Answer::No;
    }
    let tree = Tree::new(system);
    let system = &tree.system;
    let mut placed = None;
    if binds(spec) {
        let (mut report, result) = partition::apply(system, node, &mut *watch);
        if options.explain {
            explain_placement(system, &mut report);
        }
        // If all tasks are bound by hand, there is nothing to place, and no report unless asked for.
        let asked = options.all || options.only.contains(&TestId::Partition);
        if result.is_none() || asked || had_unbound(system, node) {
            answer = answer.and(if result.is_some() { Answer::Yes } else { Answer::Unknown });
            reports.push(report);
        }
        placed = result;
    }
    let system = placed.as_ref().unwrap_or(system);
    let mut strategies = vec![(spec.name.clone(), spec.strategy)];
    let mut current: StrategyRef = spec.strategy;
    for mode in system.modes_of(node) {
        if mode.strategy != current {
            let name = system.strategy_name(mode.strategy);
            let scope = format!("{}@{}:{name}", spec.name, mode.at);
            let why = format!(
                "the switch to \"{name}\" {} is not covered: each strategy is checked as if it were always in force",
                if mode.at == takt_model::Time::ZERO.saturating_add(Span::FILE_MAX) {
                    "by a controller".to_owned()
                } else {
                    format!("at {}", mode.at)
                }
            );
            reports.push(unknown(TestId::Unsupported, &scope, why));
            answer = answer.and(Answer::Unknown);
            strategies.push((scope, mode.strategy));
            current = mode.strategy;
        }
    }
    let mut switches = strategies.len() > 1;
    for switch in &system.switches {
        let component = &system.components[switch.component.index()];
        if component.node == node {
            let scope = format!("{}@{}/{}", spec.name, switch.at, component.name);
            let why = format!(
                "the change of the server of \"{}\" at {} is not covered: the servers are checked as they are before",
                component.name, switch.at
            );
            reports.push(unknown(TestId::Unsupported, &scope, why));
            (answer, switches) = (answer.and(Answer::Unknown), true);
        }
    }
    let beside = distributed.is_some_and(|distributed| distributed.refused(node).is_some());
    for (scope, strategy) in strategies {
        let (mut found, mut tests) =
            check_view(system, &tree, node, (strategy, scope), options, (memo.as_deref_mut(), &mut *watch));
        if beside {
            withdraw_unit(
                &mut found,
                &mut tests,
                "holds without the flows and the table of its node, which are not covered",
            );
            for test in &mut tests {
                if let (Verdict::NotProven { why }, true) =
                    (&mut test.verdict, test.figures.contains_key("tardiness_ns"))
                {
                    why.push_str(" (without the flows and the table of its node)");
                }
                withdraw_figures(test);
            }
        }
        answer = answer.and(if switches { under_switches(&mut tests) } else { found });
        reports.append(&mut tests);
    }
    if !options.only.is_empty() {
        reports.retain(|report| options.only.contains(&report.test));
    }
    (answer, reports, placed)
}

fn had_unbound(system: &System, node: NodeId) -> bool {
    let clusters = system.nodes[node.index()].clusters();
    system
        .tasks_of(node)
        .filter(|(_, task)| task.component.is_none())
        .any(|(_, task)| task.cpus.is_none_or(|cpus| !clusters.iter().any(|cluster| cpus.is_subset(cluster))))
}

/// The report of a test that answers "unknown" for this reason.
fn unknown(test: TestId, scope: &str, why: String) -> TestReport {
    TestReport {
        test,
        scope: scope.to_owned(),
        verdict: Verdict::NotProven { why },
        tasks: Vec::new(),
        figures: Map::new(),
    }
}

/// Reports the parts of a node that no test covers. They run beside its tasks, so the node stays unproven.
fn unsupported(system: &System, node: NodeId, distributed: Option<&Distributed>) -> Vec<TestReport> {
    let why = distributed.and_then(|distributed| distributed.refused(node));
    why.into_iter().map(|why| unknown(TestId::Unsupported, &system.nodes[node.index()].name, why.to_owned())).collect()
}

/// The report of an overload, if all tasks of a node with components together need more than its CPUs have.
fn overload(system: &System, node: NodeId) -> Option<TestReport> {
    let spec = &system.nodes[node.index()];
    system.components.iter().find(|component| component.node == node)?;
    let must = system.tasks_of(node).filter(|(_, task)| !system.may_cancel(task));
    let loads: Vec<(u64, u64)> = must.map(|(_, task)| (task.wcet.as_ns(), task.period.as_ns())).collect();
    let verdict = Verdict::Infeasible { witness: apply::overload(loads.iter().copied(), spec.cpus)? };
    Some(TestReport { verdict, ..unknown(TestId::Necessary, &spec.name, String::new()) })
}

/// Moves the reports of tasks that stand for servers to the figures.
fn move_servers(report: &mut TestReport, tree: &Tree) {
    let file_tasks = tree.file_tasks;
    let (tasks, servers): (Vec<TaskReport>, Vec<TaskReport>) =
        std::mem::take(&mut report.tasks).into_iter().partition(|task| task.id.index() < file_tasks);
    report.tasks = tasks;
    if let Verdict::Schedulable { bounds } = &mut report.verdict {
        bounds.retain(|bound| bound.task.index() < file_tasks);
    }
    if !servers.is_empty() {
        let shown = servers.into_iter().map(|server| {
            let wcrt = server.wcrt.map(Span::as_ns);
            let deadline = server.deadline.as_ns();
            let mut shown = json!({ "component": server.task, "verdict": server.verdict, "wcrt_ns": wcrt,
                "deadline_ns": deadline });
            if let Some((component, cpu)) = tree.server_number(server.id) {
                (shown["component"], shown["server"]) = (json!(component), json!(cpu));
            }
            shown
        });
        report.figures.insert("servers".to_owned(), shown.collect());
    }
}

/// Checks the units of a view one by one.
fn check_units(
    view: &View,
    carried: &ChainBounds,
    options: &CheckOptions,
    (mut memo, watch): (Option<&mut Memo>, Watch),
) -> (Vec<Answer>, Vec<Vec<TestReport>>) {
    let each = |(i, unit): (usize, &Unit)| {
        watch(Progress::Checked(i, view.units.len()));
        let find = || check_unit(unit, &view.strategy, carried, options);
        let Some(memo) = &mut memo else { return find() };
        // Reports matter where something is not proven, and then nothing is admitted.
        let answer = memo.answer(carried.question(unit, &view.strategy), || {
            let (answer, tests) = find();
            // Only that test looks at how early budgets come.
            (answer, answer != Answer::Yes || tests.iter().any(|report| report.test == TestId::Edp))
        });
        (answer, Vec::new())
    };
    view.units.iter().enumerate().map(each).unzip()
}

/// Checks one node under one strategy.
fn check_view(
    system: &System,
    tree: &Tree,
    node: NodeId,
    (strategy, scope): (StrategyRef, String),
    options: &CheckOptions,
    (mut memo, watch): (Option<&mut Memo>, Watch),
) -> (Answer, Vec<TestReport>) {
    let mut view = match View::new(system, node, strategy, scope.clone()) {
        Ok(view) => view,
        Err(error) => return (Answer::Unknown, vec![unknown(TestId::Unsupported, &scope, tree.plan_error(&error))]),
    };
    let enforced = options.linux.as_ref().map(|machine| linux::enforced(system, node, strategy, machine));
    tree.add_components(&mut view, node, enforced.unwrap_or_default());
    let mut found = None;
    // Completions of servers take long to bound. They are not needed if everything is proven without them.
    let served = view.units.iter().any(|unit| unit.served.is_some());
    if let Some(carried) = ChainBounds::releases(system).filter(|_| options.verdict_only && served) {
        let asked = check_units(&view, &carried, options, (memo.as_deref_mut(), &mut *watch));
        found = Some((asked, carried)).filter(|((answers, _), _)| answers.iter().all(|answer| *answer == Answer::Yes));
    }
    let ((mut answers, mut reports), carried) = found.unwrap_or_else(|| {
        let carried = ChainBounds::holistic_by(system, &view.units, memo.as_deref_mut());
        (check_units(&view, &carried, options, (memo, watch)), carried)
    });
    withdraw(system, &view.units, &carried, &mut answers, &mut reports);
    for tests in answers.iter().zip(&mut reports).filter(|(answer, _)| **answer == Answer::Yes).map(|(_, tests)| tests)
    {
        apply_proof(tests);
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
    let whole = view.unplaced.is_empty() && view.refused.is_empty();
    let answer = answers.into_iter().fold(if whole { Answer::Yes } else { Answer::Unknown }, Answer::and);
    let mut reports: Vec<TestReport> = reports.into_iter().flatten().collect();
    reports.iter_mut().for_each(|report| move_servers(report, tree));
    reports.extend(view.refused.into_iter().map(|(scope, why)| unknown(TestId::Unsupported, &scope, why)));
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

/// Checks one unit: the cheapest test first until a test decides, then a test that bounds response
/// times.
fn check_unit(unit: &Unit, strategy: &str, carried: &ChainBounds, options: &CheckOptions) -> (Answer, Vec<TestReport>) {
    unit.terms.renew();
    let mut answer = Answer::Unknown;
    let mut reports = Vec::new();
    // Unmet preconditions. If no test applies, the most frequent is reported.
    let mut needs: Vec<(String, u32)> = Vec::new();
    for &test in PORTFOLIO {
        // Tests of components run on components only, and other tests on other units only.
        let component = of_components(test);
        if options.only.is_empty() && test != TestId::Necessary && component != unit.served.is_some() {
            continue;
        }
        let asked = options.all || options.only.contains(&test);
        // On several CPUs the deciding test may have bounded response times already.
        let bounded = || reports.iter().flat_map(|report: &TestReport| &report.tasks).any(|task| task.wcrt.is_some());
        let several = matches!(test, TestId::RtaGlobal | TestId::RtaLc);
        let bounds = matches!(test, TestId::Rta | TestId::EdfWcrt) || (several && !bounded());
        let bounds = bounds && !options.verdict_only;
        // The search through states runs only on request. On one CPU `offsets` follows the schedule.
        let long = unit.m == 1 || unit.tasks.iter().any(|task| !task.periodic);
        if test == TestId::Exact && !asked && long {
            continue;
        }
        // A system with priorities that fail needs better ones.
        let advice = test == TestId::Opa;
        let wanted =
            if advice { strategy == "fp" && answer != Answer::Yes } else { answer == Answer::Unknown || bounds };
        if !(asked || (options.only.is_empty() && wanted)) {
            continue;
        }
        unit.terms.decide(answer == Answer::Unknown);
        let mut report = apply(test, unit, carried);
        if options.explain {
            explain(unit, carried, &mut report);
        }
        // A bounding test that cannot tell what is known, and bounds nothing, says nothing.
        let useless = several || (bounds && report.tasks.iter().all(|task| task.wcrt.is_none()));
        let moot = answer != Answer::Unknown && useless && report.verdict.answer() == Answer::Unknown;
        answer = match (answer, report.verdict.answer()) {
            (Answer::Unknown, found) => found,
            (known, _) => known,
        };
        let wide = unit.served.as_ref().map(|served| served.wide.is_some());
        let component = wide == Some(test == TestId::Mpr) && matches!(test, TestId::Prm | TestId::Mpr);
        if let Verdict::NotApplicable { precondition } = &report.verdict
            && precondition.contains('"')
        {
            match needs.iter_mut().find(|(known, _)| known == precondition) {
                Some((_, count)) => *count += 1,
                None => needs.push((precondition.clone(), 1)),
            }
        }
        let silent = (matches!(report.verdict, Verdict::NotApplicable { .. }) && !component)
            || (test == TestId::Necessary && report.verdict.answer() == Answer::Unknown);
        if asked || !(silent || moot) {
            reports.push(report);
        }
    }
    if reports.is_empty() && options.only.is_empty() {
        let order = unit.edf().err().map_or_else(|| "edf".to_owned(), |_| format!("strategy \"{strategy}\""));
        let cpus = if unit.m == 1 { "one CPU".to_owned() } else { format!("{} CPUs", unit.m) };
        // If several are equally frequent, the first is reported.
        let need = needs.iter().rev().max_by_key(|(_, count)| *count).map(|(need, _)| format!(": each {need}"));
        let need = need.unwrap_or_else(|| "; --all says what each needs".to_owned());
        let why = format!("no test of this version covers {order} on {cpus} here{need}");
        reports.push(unknown(TestId::Unsupported, &unit.scope, why));
    }
    (answer, reports)
}
