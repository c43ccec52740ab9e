//! `size` for distributed systems: deadlines of hops, table tasks from costs per message. Shares of
//! bandwidth and delays: [`super::network`].

use serde::Serialize;
use takt_model::{FlowId, NodeId, Span, System, TableTask};
use thiserror::Error;

use super::Transport;
use super::apply::{Distributed, fixed_cost, flow_indices};
use super::assign::{self, Choice};
use super::transport::{self, Price, TableTaskId};
use crate::report::as_ns;

/// Options of `size` for flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowOptions {
    /// How deadlines of flows that have none for their hops are shared; `None`: left open.
    pub deadlines: Option<Choice>,
    /// Costs of a message: table tasks are sized for them.
    pub costs: Option<MessageCosts>,
}

/// Costs of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageCosts {
    /// Execution per message received.
    pub receive: Span,
    /// Execution per message sent.
    pub send: Span,
    /// Periods and executions are multiples of this.
    pub quantum: Span,
    /// Whether periods are chosen too.
    pub periods: bool,
}

/// A flow's deadlines, as in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SizedFlow {
    /// Its index in the System.
    #[serde(skip)]
    pub id: FlowId,
    /// Its name.
    pub flow: String,
    /// Whether `size` chose them.
    pub chosen: bool,
    /// Its hops.
    pub hops: Vec<SizedHop>,
}

/// A hop's deadline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SizedHop {
    /// Name of its node.
    pub node: String,
    /// From that of the hop before.
    #[serde(rename = "deadline_ns", serialize_with = "as_ns")]
    pub deadline: Span,
}

/// A receiving or sending task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SizedTable {
    /// Its node.
    #[serde(skip)]
    pub id: NodeId,
    /// Name of the node.
    pub node: String,
    /// "receive" or "send".
    pub task: &'static str,
    /// Its period.
    #[serde(rename = "period_ns", serialize_with = "as_ns")]
    pub period: Span,
    /// Its WCET.
    #[serde(rename = "wcet_ns", serialize_with = "as_ns")]
    pub wcet: Span,
    /// Execution per message.
    #[serde(rename = "cost_ns", serialize_with = "as_ns")]
    pub cost: Span,
    /// Messages that one job handles.
    pub messages: u64,
}

/// A System with what its flows need filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizedFlows {
    /// The System.
    pub system: System,
    /// Deadlines of all flows.
    pub flows: Vec<SizedFlow>,
    /// Table tasks, where they were sized.
    pub tables: Vec<SizedTable>,
}

/// Why flows were not sized.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FlowSizeError {
    /// A flow that the analysis does not cover.
    #[error("flow \"{flow}\": {why}")]
    NotCovered {
        /// Its name.
        flow: String,
        /// Why.
        why: String,
    },
    /// No table tasks pass.
    #[error(
        "no receiving and sending tasks were found with which partial-edf holds; give flows later deadlines, \
         nodes less to do, or cheaper messages{hint}"
    )]
    NoTable {
        /// A remedy.
        hint: &'static str,
    },
}

/// Fills in deadlines of hops and table tasks.
///
/// # Errors
/// A flow that is not covered where something is asked for, or that no table tasks serve in time.
pub fn size_flows(system: &System, options: &FlowOptions) -> Result<SizedFlows, FlowSizeError> {
    let mut sized = SizedFlows { system: system.clone(), flows: Vec::new(), tables: Vec::new() };
    let open = |flow: usize| options.deadlines.is_some() && system.flows[flow].hop_deadlines.is_empty();
    let Some(distributed) = Distributed::new(system, false) else { return Ok(sized) };
    let asked = options.deadlines.is_some() || options.costs.is_some();
    let mut net = distributed.net.clone();
    let places = flow_indices(&distributed);
    if asked && let Some((flow, why)) = distributed.first_uncovered() {
        return Err(FlowSizeError::NotCovered { flow: system.flows[flow].name.clone(), why });
    }
    if let Some(choice) = options.deadlines {
        let mut chosen = vec![false; net.flows.len()];
        for (flow, place) in places.iter().enumerate() {
            if let Some(at) = place {
                chosen[*at] = open(flow);
            }
        }
        assign::assign(&mut net, choice, &chosen);
    }
    if let Some(costs) = options.costs {
        let price = Price {
            receive: costs.receive.as_ns(),
            send: costs.send.as_ns(),
            quantum: costs.quantum.as_ns().max(1),
            fixed: system.nodes.iter().map(fixed_cost).collect(),
        };
        let found = if costs.periods { transport::best(&mut net, &price) } else { transport::least(&mut net, &price) };
        if !found {
            let hint = if costs.periods { "" } else { ", or let --table-periods choose their periods" };
            return Err(FlowSizeError::NoTable { hint });
        }
        for which in transport::needed(&net) {
            let station = &net.nodes[which.node];
            let task = if which.receives { station.receive } else { station.send };
            if let Some(task) = task {
                sized.tables.push(table(system, &price, which, task));
            }
        }
        for table in &sized.tables {
            let spec = &mut sized.system.nodes[table.id.index()];
            let task = Some(TableTask { period: table.period, wcet: table.wcet, cost: Some(table.cost) });
            *(if table.task == "receive" { &mut spec.receive } else { &mut spec.send }) = task;
        }
    }
    for (index, flow) in system.flows.iter().enumerate() {
        let deadlines: Vec<Span> = match places[index] {
            Some(at) => net.flows[at].hops.iter().map(|hop| Span::from_ns(hop.d)).collect(),
            None if !flow.hop_deadlines.is_empty() => flow.hop_deadlines.clone(),
            None => assign::even(flow.deadline.as_ns(), flow.hops().count()).into_iter().map(Span::from_ns).collect(),
        };
        let chosen = open(index) && deadlines.iter().all(|deadline| !deadline.is_zero());
        if chosen {
            sized.system.flows[index].hop_deadlines.clone_from(&deadlines);
        }
        let name = |node: NodeId| system.nodes[node.index()].name.clone();
        let hops = flow.hops().zip(deadlines).map(|(node, deadline)| SizedHop { node: name(node), deadline }).collect();
        sized.flows.push(SizedFlow { id: FlowId(index as u32), flow: flow.name.clone(), chosen, hops });
    }
    Ok(sized)
}

fn table(system: &System, price: &Price, which: TableTaskId, task: Transport) -> SizedTable {
    let wcet = task.c.saturating_sub(price.fixed[which.node]);
    SizedTable {
        id: NodeId(which.node as u32),
        node: system.nodes[which.node].name.clone(),
        task: if which.receives { "receive" } else { "send" },
        period: Span::from_ns(task.t),
        wcet: Span::from_ns(wcet),
        cost: Span::from_ns(price.each(which)),
        messages: wcet / price.each(which),
    }
}
