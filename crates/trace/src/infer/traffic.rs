//! The flows, table tasks and networks of an inferred System.

use takt_log::NodeDef;
use takt_model::{Auto, Flow, Network, NodeId, Span, System, TableTask, TaskId};

use super::flows::InferredFlow;
use super::system::SystemOptions;
use super::{Inferred, InferredTask};

/// Why a flow cannot stand in a System.
const NO_PERIOD: &str = "the jobs of its first hop have no distances that could be a period";
const NO_WCET: &str = "no job of a hop was seen from release to completion, so its wcet is unknown";

impl Inferred {
    /// Adds flows, table tasks and networks to a System. The answer has a comment for each flow.
    pub(super) fn add_traffic(
        &self,
        system: &mut System,
        options: &SystemOptions,
        left_out: &mut Vec<(String, &'static str)>,
    ) -> Vec<String> {
        let mut comments = Vec::new();
        for flow in &self.traffic.flows {
            match self.flow(flow, options) {
                Ok(written) => {
                    comments.push(self.comment(flow, &written));
                    system.flows.push(written);
                }
                Err(why) => left_out.push((flow.name.clone(), why)),
            }
        }
        if system.flows.is_empty() {
            return comments;
        }
        for (node, tables) in &self.traffic.tables {
            let table = |task: Option<TaskId>| self.table(task?, options);
            let Some(spec) = system.nodes.get_mut(node.index()) else { continue };
            (spec.receive, spec.send) = (table(tables.receive), table(tables.send));
            if let (None, Some(sync)) = (system.clock.sync, table(tables.sync)) {
                system.clock.sync = Some(sync);
            }
        }
        let known = |node: NodeId| node.index() < system.nodes.len();
        let networks = self.traffic.networks.iter().filter(|one| known(one.from) && known(one.to));
        system.networks = networks
            .map(|one| Network {
                from: Some(one.from),
                to: Some(one.to),
                delay: Auto::Value(one.delay),
                ..Network::any(Span::ZERO, Span::ZERO)
            })
            .collect();
        comments
    }

    fn task(&self, id: TaskId) -> Option<&InferredTask> {
        self.tasks.get(id.index())
    }

    fn wcet(&self, id: TaskId, options: &SystemOptions) -> Option<Span> {
        self.task(id)?.exec.as_ref().map(|exec| exec.max).or(options.wcet)
    }

    fn flow(&self, flow: &InferredFlow, options: &SystemOptions) -> Result<Flow, &'static str> {
        let first = flow.hops.first().and_then(|hop| self.task(*hop));
        let period = first.and_then(InferredTask::period).ok_or(NO_PERIOD)?;
        let wcets: Option<Vec<Span>> = flow.hops.iter().map(|hop| self.wcet(*hop, options)).collect();
        let wcets = wcets.ok_or(NO_WCET)?;
        let (wcet, hop_wcet) = (wcets[0], wcets.iter().skip(1).copied().max().unwrap_or(wcets[0]));
        let missed = flow.hops.last().and_then(|hop| self.task(*hop)?.deadline).map(|(deadline, _)| deadline);
        Ok(Flow {
            name: flow.name.clone(),
            path: flow.hops.iter().filter_map(|hop| Some(self.task(*hop)?.node)).collect(),
            reply: false,
            period,
            wcet,
            deadline: missed.unwrap_or_else(|| period.max(flow.longest.unwrap_or(period))),
            send_gap: self.send_gap(flow, period),
            hop_wcet,
            size: flow.size.unwrap_or_default(),
            hop_deadlines: Vec::new(),
        })
    }

    /// The least distance of messages, rounded down to whole periods of the sending tasks. A node
    /// counts the gap in these, so the periods seen, which are a little off, must not make one more.
    fn send_gap(&self, flow: &InferredFlow, period: Span) -> Span {
        let gap = flow.send_gap.map_or(period, |gap| gap.min(period)).as_ns();
        let nodes = flow.hops.iter().filter_map(|hop| Some(self.task(*hop)?.node));
        let sends = nodes.filter_map(|node| self.task(self.traffic.tables.get(&node)?.send?)?.period());
        let grid = sends.map(Span::as_ns).max().unwrap_or(1).max(1);
        Span::from_ns((gap.saturating_sub(1) / grid * grid).max(grid.min(gap)).max(1))
    }

    fn table(&self, id: TaskId, options: &SystemOptions) -> Option<TableTask> {
        let period = self.task(id)?.period()?;
        Some(TableTask { period, wcet: self.wcet(id, options)?, cost: None })
    }

    fn comment(&self, flow: &InferredFlow, written: &Flow) -> String {
        let names: Vec<&str> = flow.hops.iter().filter_map(|hop| Some(self.task(*hop)?.name.as_str())).collect();
        let node = |id: &NodeId| self.nodes.get(id.index()).map_or("?", |node: &NodeDef| node.name.as_str());
        let path: Vec<&str> = written.path.iter().map(node).collect();
        let one_line = |text: String| format!("# {}\n", takt_model::file::one_line(&text));
        let longest = flow.longest.map_or_else(|| "-".to_owned(), |longest| longest.to_string());
        one_line(format!("Tasks {} of the log: messages go over {}.", names.join(", "), path.join(", ")))
            + &one_line(format!("{} instances came to their end, after {longest} at most.", flow.instances))
    }
}
