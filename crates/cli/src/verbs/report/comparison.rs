//! Bound, simulation and measurement side by side: the table and the JSON of `takt report`.

use serde_json::{Value, json};
use takt_analysis::{Answer, CheckReport};
use takt_log::stats::{ChainStats, Summary, TaskStats};
use takt_log::{BackEnd, Definitions};
use takt_model::flows::{self, Role};
use takt_model::{Lateness, NodeId, Span, System};
use takt_report::{LiveHop, Source};

use super::super::check::{answers, word};
use crate::table::{Rows, Table, or_dash, time};

pub(super) struct Comparison<'a> {
    pub(super) system: &'a System,
    pub(super) check: &'a CheckReport,
    pub(super) simulated: Option<&'a Source>,
    pub(super) measured: Option<&'a Source>,
    /// Of a live run.
    pub(super) hops: &'a [LiveHop],
    pub(super) back_end: Option<BackEnd>,
}

struct Line {
    name: String,
    /// The node of a hop; "end to end" for a flow. `None` for other tasks and chains.
    flow: Option<String>,
    deadline: Option<Span>,
    bound: Option<Span>,
    simulated: Option<ResponseSummary>,
    measured: Option<ResponseSummary>,
}

pub(super) struct ResponseSummary {
    p99: Option<Span>,
    max: Option<Span>,
    missed: Option<u64>,
    jobs: u64,
}

impl Line {
    /// Lines with a miss matter most, then those with the least slack to their deadlines.
    fn rank(&self) -> (bool, i64) {
        let seen = || [&self.simulated, &self.measured].into_iter().flatten();
        let in_time = seen().all(|seen| seen.missed.is_none_or(|missed| missed == 0));
        let least = seen().filter_map(|seen| slack(self.deadline, seen.max)).map(Lateness::as_ns).min();
        (in_time, least.unwrap_or(i64::MAX))
    }
}

impl Comparison<'_> {
    fn lines(&self) -> (Vec<Line>, Vec<Line>) {
        let of = |source: Option<&Source>, name: &str, node: NodeId| {
            let node = &self.system.nodes[node.index()].name;
            let tasks = &source?.stats.tasks;
            tasks.iter().find(|task| task.task == name && task.node == *node).and_then(ResponseSummary::of_task)
        };
        let bounds = self.check.bounds(self.system.tasks.len());
        let tasks = self.system.tasks.iter().zip(bounds).map(|(task, bound)| Line {
            name: task.name.clone(),
            flow: None,
            deadline: Some(task.deadline),
            bound,
            simulated: of(self.simulated, &task.name, task.node),
            measured: of(self.measured, &task.name, task.node),
        });
        let lowered = flows::lower(self.system);
        let added = lowered.iter().flat_map(|lowered| lowered.roles.iter().zip(&lowered.system.tasks[lowered.first..]));
        let hops = added.filter_map(|(role, task)| match role {
            Role::Hop { flow, hop } => Some(Line {
                name: task.name.clone(),
                flow: Some(self.system.nodes[task.node.index()].name.clone()),
                deadline: Some(task.deadline),
                bound: self.check.hop_bound(&self.system.flows[flow.index()].name, *hop),
                simulated: of(self.simulated, &task.name, task.node),
                measured: of(self.measured, &task.name, task.node),
            }),
            _ => None,
        });
        let chain_of = |source: Option<&Source>, name: &str| {
            source?.stats.chains.iter().find(|chain| chain.chain == name).map(ResponseSummary::of_chain)
        };
        let flow_of = |name: &str| self.system.flows.iter().find(|flow| flow.name == name);
        let end_to_end = |name: &str| self.check.flows.iter().find(|flow| flow.flow == name)?.end_to_end;
        let chains = Definitions::of(self.system).chains.into_iter().map(|chain| Line {
            bound: self.check.chain_bound(&chain.name).or_else(|| end_to_end(&chain.name)),
            simulated: chain_of(self.simulated, &chain.name),
            measured: chain_of(self.measured, &chain.name),
            deadline: flow_of(&chain.name).map(|flow| flow.deadline),
            flow: flow_of(&chain.name).map(|_| "end to end".to_owned()),
            name: chain.name,
        });
        (tasks.chain(hops).collect(), chains.collect())
    }

    pub(super) fn table(&self) -> String {
        let heads = "response times|deadline|bound|simulated max|missed|measured p99|max|missed";
        let mut table = Table::headed(heads);
        let (tasks, chains) = self.lines();
        let (of_flows, others): (Vec<Line>, Vec<Line>) =
            tasks.into_iter().chain(chains).partition(|line| line.flow.is_some());
        let ranks: Vec<_> = others.iter().map(Line::rank).collect();
        for line in others {
            let measured = line.measured.as_ref();
            table.row(vec![
                line.name,
                or_dash(line.deadline.map(time)),
                or_dash(line.bound.map(time)),
                or_dash(line.simulated.as_ref().and_then(|seen| seen.max).map(time)),
                missed(line.simulated.as_ref()),
                or_dash(measured.and_then(|seen| seen.p99).map(time)),
                or_dash(measured.and_then(|seen| seen.max).map(time)),
                missed(line.measured.as_ref()),
            ]);
        }
        let of_flow_rows: Vec<_> = of_flows.iter().map(Line::rank).collect();
        let tables: Vec<String> = [("rows", table, ranks), ("rows of flows", flow_table(of_flows), of_flow_rows)]
            .into_iter()
            .filter(|(_, table, _)| !table.is_empty())
            .map(|(what, table, ranks)| {
                table.without_empty_columns().render_long(Rows::Most, what, |row, _| ranks[row])
            })
            .collect();
        let hops = hop_text(self.hops);
        format!("{}: {}\n\n{}{hops}", self.system.name, word(self.check.schedulable), tables.join("\n"))
    }

    pub(super) fn json(&self) -> Value {
        let seen = |seen: &Option<ResponseSummary>, line: &Line| {
            seen.as_ref().map(|seen| seen.json(line.deadline, line.bound))
        };
        let (tasks, chains) = self.lines();
        // Behind the tasks of the file stand the hops of flows, which have a bound where they are proven.
        let of_hop = |line: &Line| if line.bound.is_some() { Answer::Yes } else { Answer::Unknown };
        let hops = tasks.iter().skip(self.system.tasks.len()).map(of_hop);
        let tasks: Vec<Value> = answers(self.check, self.system.tasks.len())
            .into_iter()
            .chain(hops)
            .zip(&tasks)
            .map(|(answer, line)| {
                json!({
                    "task": line.name,
                    "deadline_ns": line.deadline.map(Span::as_ns),
                    "verdict": answer.name(),
                    "bound_ns": line.bound.map(Span::as_ns),
                    "simulated": seen(&line.simulated, line),
                    "measured": seen(&line.measured, line),
                })
            })
            .collect();
        let chains: Vec<Value> = chains
            .iter()
            .map(|line| {
                json!({
                    "chain": line.name,
                    "deadline_ns": line.deadline.map(Span::as_ns),
                    "bound_ns": line.bound.map(Span::as_ns),
                    "simulated": seen(&line.simulated, line),
                    "measured": seen(&line.measured, line),
                })
            })
            .collect();
        let mut answer = json!({
            "system": self.system.name,
            "schedulable": self.check.schedulable.known(),
            "back_end": self.back_end.map(BackEnd::name),
            "tasks": tasks,
            "chains": chains,
        });
        if !self.hops.is_empty() {
            answer["hops"] = self.hops.iter().map(hop_json).collect();
        }
        answer
    }
}

/// The hops of a live run beside the bounds of `check`, and why some are above. Empty without hops.
fn hop_text(hops: &[LiveHop]) -> String {
    if hops.is_empty() {
        return String::new();
    }
    let mut table =
        Table::headed("measured|node|response|bound|k|k bound|delay at least|delay at most|delay bound|above");
    for hop in hops {
        let delay = |end: Option<Lateness>| or_dash(end.map(Lateness::four_digits_down));
        let above = hop.above.iter().map(|what| (*what).to_owned());
        let undecided = hop.undecided.iter().map(|what| format!("{what}?"));
        let marks: Vec<String> = above.chain(undecided).collect();
        table.row(vec![
            hop.task.clone(),
            hop.node.clone(),
            or_dash(hop.response.map(time)),
            or_dash(hop.response_bound.map(time)),
            or_dash(hop.messages),
            or_dash(hop.messages_bound),
            delay(hop.delay.map(|delay| delay.0)),
            delay(hop.delay.map(|delay| delay.1)),
            or_dash(hop.delay_bound.map(time)),
            marks.join(", "),
        ]);
    }
    let sentences: String = hops.iter().filter_map(LiveHop::sentence).map(|sentence| format!("{sentence}\n")).collect();
    let is_marked = |hop: &LiveHop| !hop.above.is_empty() || !hop.undecided.is_empty();
    let ranks: Vec<bool> = hops.iter().map(|hop| !is_marked(hop)).collect();
    let table = table.without_empty_columns().render_long(Rows::Most, "rows of hops", |row, _| ranks[row]);
    format!("\n{table}{sentences}")
}

fn hop_json(hop: &LiveHop) -> Value {
    json!({
        "flow": hop.flow,
        "hop": hop.hop,
        "task": hop.task,
        "node": hop.node,
        "response_max_ns": hop.response.map(Span::as_ns),
        "response_error_ns": hop.response_error.as_ns(),
        "bound_ns": hop.response_bound.map(Span::as_ns),
        "messages": hop.messages,
        "messages_bound": hop.messages_bound,
        "delay_max_ns": hop.delay.map(|(low, high)| [low.as_ns(), high.as_ns()]),
        "delay_bound_ns": hop.delay_bound.map(Span::as_ns),
        "above": hop.above,
        "undecided": hop.undecided,
        "disturbances": hop.disturbances,
    })
}

/// Hops of flows and flows, with what is left between the largest simulated response and its limits.
fn flow_table(lines: Vec<Line>) -> Table {
    let mut table = Table::headed("flows|node|deadline|bound|simulated max|slack to bound|to deadline|missed");
    for line in lines {
        let seen = line.simulated;
        let max = seen.as_ref().and_then(|seen| seen.max);
        let left = |limit| or_dash(slack(limit, max).map(Lateness::four_digits_down));
        table.row(vec![
            line.name,
            line.flow.unwrap_or_default(),
            or_dash(line.deadline.map(time)),
            or_dash(line.bound.map(time)),
            or_dash(max.map(time)),
            left(line.bound),
            left(line.deadline),
            missed(seen.as_ref()),
        ]);
    }
    table
}

fn missed(seen: Option<&ResponseSummary>) -> String {
    or_dash(seen.and_then(|seen| Some(format!("{} of {}", seen.missed?, seen.jobs))))
}

/// What is left below a limit; negative above it.
fn slack(limit: Option<Span>, max: Option<Span>) -> Option<Lateness> {
    let left = i128::from(limit?.as_ns()) - i128::from(max?.as_ns());
    i64::try_from(left).ok().map(Lateness::from_ns)
}

impl ResponseSummary {
    /// Nothing where no job was released (another node's task).
    pub(super) fn of_task(task: &TaskStats) -> Option<ResponseSummary> {
        (task.released > 0).then(|| ResponseSummary::of(task.response_ns, task.missed, task.released))
    }

    pub(super) fn of_chain(chain: &ChainStats) -> ResponseSummary {
        ResponseSummary::of(chain.response_ns, None, chain.responses.count())
    }

    fn of(response: Option<Summary<u64>>, missed: Option<u64>, jobs: u64) -> ResponseSummary {
        let span = |value: fn(Summary<u64>) -> u64| response.map(value).map(Span::from_ns);
        ResponseSummary { p99: span(|response| response.p99), max: span(|response| response.max), missed, jobs }
    }

    /// The slacks are those to these limits.
    pub(super) fn json(&self, deadline: Option<Span>, bound: Option<Span>) -> Value {
        let slack = |limit: Option<Span>| slack(limit, self.max).map(Lateness::as_ns);
        json!({
            "p99_ns": self.p99.map(Span::as_ns),
            "max_ns": self.max.map(Span::as_ns),
            "missed": self.missed,
            "released": self.jobs,
            "bound_slack_ns": slack(bound),
            "deadline_slack_ns": slack(deadline),
        })
    }
}
