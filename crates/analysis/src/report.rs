//! The result of `check`, and its JSON form (DESIGN.md's contract).

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use takt_model::{Span, TaskId};

use crate::catalogue::TestId;
use crate::exact::percent;
use crate::verdict::{Answer, Verdict};

/// The result of `check`.
///
/// Serialises to `{"system", "schedulable": true|false|null, "warnings": [..], "tests": [..], "flows": [..]}`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckReport {
    /// The System's name.
    pub system: String,
    /// Over all scopes of theory (the `linux` scopes do not count): one no is a no, all yes is a yes.
    #[serde(serialize_with = "known")]
    pub schedulable: Answer,
    /// Assumptions of the verdicts that a reader might not expect.
    pub warnings: Vec<String>,
    /// Whether the file lets jobs execute for longer than their WCET or arrive sooner than their
    /// period. Responses may then exceed the proven bounds, and `warnings` say so.
    #[serde(skip)]
    pub exceeded: bool,
    /// One entry per test and scope, in the order in which they ran.
    pub tests: Vec<TestReport>,
    /// One entry per flow, in file order.
    pub flows: Vec<FlowReport>,
}

fn known<S: Serializer>(answer: &Answer, serializer: S) -> Result<S::Ok, S::Error> {
    answer.known().serialize(serializer)
}

pub(crate) fn as_ns<S: Serializer>(span: &Span, serializer: S) -> Result<S::Ok, S::Error> {
    span.as_ns().serialize(serializer)
}

pub(crate) fn as_ns_or_null<S: Serializer>(span: &Option<Span>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(Span::as_ns).serialize(serializer)
}

impl CheckReport {
    /// The tightest proven response-time bound of a task. If all bounds exceed the deadline, but a
    /// test proves the deadline, the deadline is the bound.
    #[must_use]
    pub fn bound_of(&self, task: TaskId) -> Option<Span> {
        self.bounds(task.index() + 1).pop().flatten()
    }

    /// [`CheckReport::bound_of`] each of the first so many tasks.
    #[must_use]
    pub fn bounds(&self, tasks: usize) -> Vec<Option<Span>> {
        let mut bounds: Vec<Option<Span>> = vec![None; tasks];
        let mut kept: Vec<Option<Span>> = vec![None; tasks];
        for test in &self.tests {
            for task in test.tasks.iter().filter(|task| task.id.index() < tasks) {
                let i = task.id.index();
                bounds[i] = task.wcrt.into_iter().chain(bounds[i]).min();
                let proven = self.schedulable == Answer::Yes || task.verdict == Answer::Yes;
                if proven && test.test != TestId::Linux {
                    kept[i] = Some(task.deadline);
                }
            }
        }
        bounds
            .into_iter()
            .zip(kept)
            .map(|(bound, kept)| bound.map(|bound| kept.map_or(bound, |kept| bound.min(kept))))
            .collect()
    }

    /// The end-to-end bound of a chain, by its name ("a -> b").
    #[must_use]
    pub fn chain_bound(&self, chain: &str) -> Option<Span> {
        let chains = self.tests.iter().filter_map(|test| test.figures.get("chains")?.as_array()).flatten();
        chains.filter(|c| c["chain"] == chain).filter_map(|c| c["bound_ns"].as_u64()).min().map(Span::from_ns)
    }

    /// How long after the arrival of a flow its job on a hop, 0 for the first node, is done at the
    /// latest. `None` where the flow is not proven.
    #[must_use]
    pub fn hop_bound(&self, flow: &str, hop: u32) -> Option<Span> {
        self.flows.iter().find(|told| told.flow == flow && told.verdict == Answer::Yes)?;
        self.hop_figure(flow, hop, "due_ns").map(Span::from_ns)
    }

    /// The most messages of a flow that one receiving job takes before this hop. `None` without a bound.
    #[must_use]
    pub fn messages_bound(&self, flow: &str, hop: u32) -> Option<u64> {
        self.hop_figure(flow, hop, "messages")
    }

    fn hop_figure(&self, flow: &str, hop: u32, key: &str) -> Option<u64> {
        let hops = self.tests.iter().filter_map(|test| test.figures.get("flows")?.as_array()).flatten();
        let mut told = hops.filter(|told| told["flow"] == flow && told["hop"] == hop);
        told.find_map(|told| told[key].as_u64())
    }
}

/// How far a check has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// How many tasks of a node have a place, and how many tasks there are.
    Placed(usize, usize),
    /// How many scopes of a node are checked, and how many scopes there are.
    Checked(usize, usize),
}

/// Called now and then with the progress of a check.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Progress);

/// One test on one scope.
#[derive(Clone, PartialEq, Debug)]
pub struct TestReport {
    /// Which test.
    pub test: TestId,
    /// The part that it looked at: the node ("n1"), with the CPU or CPUs where tasks are bound ("n1/cpu0",
    /// "n1/cpu0-1"), the mode's strategy ("n1@2s:muf"), or the kernel's view ("n1/linux").
    pub scope: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// Per task, where the test distinguishes them.
    pub tasks: Vec<TaskReport>,
    /// Numbers behind the verdict, by name; times in keys that end in `_ns`.
    pub figures: Map<String, Value>,
}

impl TestReport {
    /// The figure "binding" of a check with `explain`, in one line.
    #[must_use]
    pub fn binding(&self) -> Option<String> {
        sentence(self.figures.get("binding")?)
    }
}

/// Serialises to `{"test", "scope", "verdict", "why", "tasks", "figures"}`.
impl Serialize for TestReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            test: &'a str,
            scope: &'a str,
            verdict: Answer,
            why: &'a str,
            tasks: &'a [TaskReport],
            figures: &'a Map<String, Value>,
        }
        Form {
            test: self.test.name(),
            scope: &self.scope,
            verdict: self.verdict.answer(),
            why: self.verdict.why(),
            tasks: &self.tasks,
            figures: &self.figures,
        }
        .serialize(serializer)
    }
}

/// The result for a flow.
///
/// Serialises to `{"flow", "verdict", "end_to_end_ns", "deadline_ns"}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FlowReport {
    /// Its name.
    pub flow: String,
    /// Whether its end-to-end deadline is proven.
    pub verdict: Answer,
    /// Upper bound of the time from its arrival on the first node to its end on the last one, where one is proven.
    #[serde(rename = "end_to_end_ns", serialize_with = "as_ns_or_null")]
    pub end_to_end: Option<Span>,
    /// Its end-to-end deadline.
    #[serde(rename = "deadline_ns", serialize_with = "as_ns")]
    pub deadline: Span,
}

/// One task in one test.
///
/// Serialises to `{"task", "verdict", "wcrt_ns", "deadline_ns"}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TaskReport {
    /// Its index in the System.
    #[serde(skip)]
    pub id: TaskId,
    /// Its name.
    pub task: String,
    /// Whether the test proves its deadline.
    pub verdict: Answer,
    /// Upper bound of its response time (completion minus nominal arrival; from its own release for a
    /// chain's successor), where the test has one.
    #[serde(rename = "wcrt_ns", serialize_with = "as_ns_or_null")]
    pub wcrt: Option<Span>,
    /// Its relative deadline.
    #[serde(rename = "deadline_ns", serialize_with = "as_ns")]
    pub deadline: Span,
}

/// A condition in one line, such as "the utilization: 90 % of 100 %, 10 % to spare".
fn sentence(binding: &Value) -> Option<String> {
    let what = binding["what"].as_str()?;
    let ppm = binding.get("need_ppm").is_some();
    let unit = if ppm { "ppm" } else { "ns" };
    let show = |value: u64| if ppm { percent(value) } else { Span::from_ns(value).to_string() };
    let value = |name: &str| &binding[format!("{name}_{unit}").as_str()];
    let (need, room, spare) = (value("need").as_u64()?, value("room").as_u64()?, value("spare").as_i64()?);
    let rest = match spare {
        0 if binding["inclusive"] == true => "nothing to spare".to_owned(),
        0.. if spare > 0 => format!("{} to spare", show(spare.unsigned_abs())),
        0 if ppm => "less than 0.0001 % too much".to_owned(),
        0 => "one ns too much".to_owned(),
        _ => format!("{} too much", show(spare.unsigned_abs())),
    };
    Some(format!("{what}: {} of {}, {rest}", show(need), show(room)))
}
