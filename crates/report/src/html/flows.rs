//! The table of flows: each hop's deadline, bound and largest response, and what is left between.

use std::fmt::Write as _;

use takt_model::flows::{self, Lowered};
use takt_model::{FlowId, Lateness, NodeId, Span, System};

use super::ReportInput;
use crate::axis::short;
use crate::live_hops::LiveHop;
use crate::markup::Esc;

/// One hop of a flow, or the flow from end to end.
struct Line {
    name: String,
    node: String,
    deadline: Span,
    bound: Option<Span>,
    /// Simulated, and measured.
    max: [Option<Span>; 2],
}

pub(super) fn section(out: &mut String, input: &ReportInput<'_>) {
    let Some(system) = input.system.filter(|system| !system.flows.is_empty()) else { return };
    let Some(lowered) = flows::lower(system) else { return };
    out.push_str(
        "<h2 id=\"flows\">Flows</h2>\n<p class=\"note\">Response times of hops count from the arrival of the flow, \
         like their deadlines. The slack is what is left above the largest response.</p>\n\
         <div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">Hop</th><th scope=\"col\">Node</th>",
    );
    let shown = [input.simulated.is_some() || input.measured.is_none(), input.measured.is_some()];
    let maxima = ["Simulated<br/>max", "Measured<br/>max"].into_iter().zip(shown);
    let maxima = maxima.filter_map(|(head, is_shown)| is_shown.then_some(head));
    let heads = ["Deadline", "Bound"].into_iter().chain(maxima);
    for head in heads.chain(["Slack to<br/>the bound", "Slack to<br/>the deadline"]) {
        let _ = write!(out, "<th class=\"n\" scope=\"col\">{head}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for flow in 0..system.flows.len() {
        for line in lines(input, system, &lowered, flow) {
            line.write(out, shown);
        }
    }
    out.push_str("</tbody></table></div>\n");
    write_live(out, input.hops);
}

/// The hops of live nodes beside their bounds, and why some are above.
fn write_live(out: &mut String, hops: &[LiveHop]) {
    if hops.is_empty() {
        return;
    }
    out.push_str(
        "<p class=\"note\">Measured on the nodes: k is the most messages that one receiving job took. A delay \
         from node to node lies between two values, because clocks differ.</p>\n\
         <div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">Hop</th><th scope=\"col\">Node</th>",
    );
    for head in ["Response<br/>max", "Bound", "k", "Bound", "Delay<br/>max", "Bound"] {
        let _ = write!(out, "<th class=\"n\" scope=\"col\">{head}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for hop in hops {
        let (name, node) = (Esc(&hop.task), Esc(&hop.node));
        let _ = write!(out, "<tr><th scope=\"row\">{name}</th><td>{node}</td>");
        let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let delay = hop.delay.map(|(low, high)| format!("{} to {}", rounded_down(low), rounded_down(high)));
        let values = [
            ("response", hop.response.map(short), hop.response_bound.map(short)),
            ("messages", hop.messages.map(|k| k.to_string()), hop.messages_bound.map(|k| k.to_string())),
            ("delay", delay, hop.delay_bound.map(short)),
        ];
        for (what, value, bound) in values {
            let class = if hop.above.contains(&what) { "n late" } else { "n" };
            let _ = write!(out, "<td class=\"{class}\">{}</td><td class=\"n\">{}</td>", dash(value), dash(bound));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    for sentence in hops.iter().filter_map(LiveHop::sentence) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", Esc(&sentence));
    }
}

/// The hops of a flow, then the flow itself where it has several.
fn lines(input: &ReportInput<'_>, system: &System, lowered: &Lowered, flow: usize) -> Vec<Line> {
    let of = &system.flows[flow];
    let sources = [input.simulated, input.measured];
    let node = |node: NodeId| system.nodes.get(node.index()).map_or_else(String::new, |node| node.name.clone());
    let mut lines = Vec::new();
    for (hop, at) in of.hops().enumerate() {
        let Some(task) = lowered.task_of(FlowId(flow as u32), hop as u32) else { continue };
        let task = &lowered.system.tasks[task.index()];
        let max = sources.map(|source| {
            let stats = source?.stats.tasks.iter().find(|stats| stats.task == task.name)?;
            stats.response_ns.map(|response| Span::from_ns(response.max))
        });
        lines.push(Line {
            name: task.name.clone(),
            node: node(at),
            deadline: task.deadline,
            bound: input.check.and_then(|check| check.hop_bound(&of.name, hop as u32)),
            max,
        });
    }
    if lines.len() > 1 {
        let max = sources.map(|source| {
            let chain = source?.stats.chains.iter().find(|one| one.chain == of.name)?;
            chain.response_ns.map(|response| Span::from_ns(response.max))
        });
        let report = input.check.and_then(|check| check.flows.iter().find(|told| told.flow == of.name));
        lines.push(Line {
            name: of.name.clone(),
            node: "end to end".to_owned(),
            deadline: of.deadline,
            bound: report.and_then(|report| report.end_to_end),
            max,
        });
    }
    lines
}

impl Line {
    /// `shown` says which of the two maxima have a column.
    fn write(&self, out: &mut String, shown: [bool; 2]) {
        let (name, node) = (Esc(&self.name), Esc(&self.node));
        let _ = write!(out, "<tr><th scope=\"row\">{name}</th><td>{node}</td>");
        let maxima = self.max.into_iter().zip(shown).filter_map(|(max, is_shown)| is_shown.then_some(max));
        for span in [Some(self.deadline), self.bound].into_iter().chain(maxima) {
            let _ = write!(out, "<td class=\"n\">{}</td>", span.map_or_else(|| "-".to_owned(), short));
        }
        let max = self.max.into_iter().flatten().max();
        for left in [self.bound, Some(self.deadline)].map(|limit| slack(limit, max)) {
            let class = if left.is_some_and(|left| left.as_ns() < 0) { "n late" } else { "n" };
            let text = left.map_or_else(|| "-".to_owned(), rounded_down);
            let _ = write!(out, "<td class=\"{class}\">{text}</td>");
        }
        out.push_str("</tr>\n");
    }
}

/// A slack with four digits, rounded to the side that warns.
fn rounded_down(slack: Lateness) -> String {
    let size = Span::from_ns(slack.as_ns().unsigned_abs());
    if slack.as_ns() < 0 { format!("-{}", short(size)) } else { short(size.four_digits_down()) }
}

fn slack(limit: Option<Span>, max: Option<Span>) -> Option<Lateness> {
    let left = i128::from(limit?.as_ns()) - i128::from(max?.as_ns());
    i64::try_from(left).ok().map(Lateness::from_ns)
}
