//! Rules of `arrivals`: which parts of a System fit the way in which a node learns of messages.

use super::{Check, Part};
use crate::strategy::{Builtin, Late};
use crate::system::{MessageArrivals, NodeId, StrategyRef};
use crate::time::Span;

impl Check<'_> {
    pub(super) fn arrivals(&mut self) {
        for i in 0..self.system.nodes.len() {
            let (node, part) = (&self.system.nodes[i], Part::Node(i));
            match node.arrivals {
                MessageArrivals::Table => {}
                MessageArrivals::Interrupt { cost } => {
                    self.span(part, "interrupt", cost, false);
                    for (key, is_there) in [("receive", node.receive.is_some()), ("send", node.send.is_some())] {
                        if is_there {
                            let owner = self.owner(part);
                            let message = format!(
                                "{key} of {owner} has no effect: with arrivals = \"interrupt\" each message is \
                                 handled at once; remove it"
                            );
                            self.error(part, key, message);
                        }
                    }
                }
                MessageArrivals::Cyclic => {
                    self.cyclic_node(i);
                    self.beside_frame(NodeId(i as u32));
                    self.fits_frame(NodeId(i as u32));
                }
            }
        }
    }

    /// A cyclic node has one CPU, goes by release, and has both table tasks, of one period.
    fn cyclic_node(&mut self, i: usize) {
        let (node, part) = (&self.system.nodes[i], Part::Node(i));
        let owner = self.owner(part);
        if node.cpus > 1 && !self.bad(part, &["cpus"]) {
            let message = format!("cpus {} of {owner} is too many; a cyclic node has one CPU", node.cpus);
            self.error(part, "cpus", message);
        }
        if node.strategy != StrategyRef::Builtin(Builtin::Fifo) && !self.bad(part, &["strategy"]) {
            let message = format!(
                "strategy \"{}\" of {owner} does not fit arrivals = \"cyclic\", which runs jobs in the order of \
                 their releases; write strategy = \"fifo\"",
                self.system.strategy_name(node.strategy)
            );
            self.error(part, "strategy", message);
        }
        if node.cancel {
            let message = format!("cancel of {owner} has no effect: a cyclic node omits no job; remove it");
            self.error(part, "cancel", message);
        }
        for (key, task) in [("receive", node.receive), ("send", node.send)] {
            if task.is_none() && !self.bad(part, &[key]) {
                let message =
                    format!("{owner} is cyclic and has no {key}; give it receive and send, whose period is the frame");
                self.error(part, "arrivals", message);
            }
        }
        let (Some(receive), Some(send)) = (node.receive, node.send) else { return };
        if self.bad(part, &["receive.period", "receive.wcet", "send.period", "send.wcet"]) {
            return;
        }
        if receive.period != send.period {
            let message = format!(
                "send.period {} of {owner} differs from receive.period {}; a cyclic node has one frame, the period \
                 of both",
                send.period, receive.period
            );
            self.error(part, "send.period", message);
        } else if node.job_slot().is_none() {
            let message = format!(
                "receive.wcet {} and send.wcet {} of {owner} leave nothing of the frame {}; together they are shorter",
                receive.wcet, send.wcet, receive.period
            );
            self.error(part, "receive.wcet", message);
        }
    }

    /// Components, modes and late rules have no meaning in a frame.
    fn beside_frame(&mut self, id: NodeId) {
        let system = self.system;
        let name = &system.nodes[id.index()].name;
        for (i, component) in system.components.iter().enumerate().filter(|(_, component)| component.node == id) {
            let message = format!(
                "component \"{}\" stands on the cyclic node \"{name}\", which has a frame and no servers; move it to \
                 another node",
                component.name
            );
            self.error(Part::Component(i), "node", message);
        }
        for (i, _) in system.modes.iter().enumerate().filter(|(_, mode)| mode.node == id) {
            let message =
                format!("mode {} switches the cyclic node \"{name}\", which keeps its frame; remove it", i + 1);
            self.error(Part::Mode(i), "", message);
        }
        for (task_id, task) in system.tasks_of(id) {
            let part = Part::Task(task_id.index());
            let late = task.late.is_some_and(|late| late != Late::Continue);
            for (key, is_set) in [("late", late), ("cancel", task.cancel == Some(true))] {
                if is_set && !self.bad(part, &[key]) {
                    let owner = self.owner(part);
                    let message =
                        format!("{key} of {owner} has no effect: the cyclic node \"{name}\" runs every job; remove it");
                    self.error(part, key, message);
                }
            }
        }
    }

    /// A job that is longer than the jobs' slot never starts.
    fn fits_frame(&mut self, id: NodeId) {
        let system = self.system;
        let Some(room) = system.nodes[id.index()].job_slot() else { return };
        for (task_id, task) in system.tasks_of(id) {
            self.fits_room(id, room, (Part::Task(task_id.index()), "wcet", task.wcet));
        }
        for (i, flow) in system.flows.iter().enumerate() {
            for (key, wcet, hops) in [("wcet", flow.wcet, 0..1), ("hop-wcet", flow.hop_wcet, 1..usize::MAX)] {
                if flow.hops().enumerate().any(|(hop, node)| node == id && hops.contains(&hop)) {
                    self.fits_room(id, room, (Part::Flow(i), key, wcet));
                }
            }
        }
        if let Some(sync) = system.clock.sync {
            self.fits_room(id, room, (Part::File, "clock.sync.wcet", sync.wcet));
        }
    }

    fn fits_room(&mut self, id: NodeId, room: Span, (part, key, wcet): (Part, &'static str, Span)) {
        let node = &self.system.nodes[id.index()];
        let need = wcet.saturating_add(node.start_cost());
        let placed = !matches!(part, Part::Task(_)) || !self.bad(part, &["node"]);
        if need > room && placed && !self.bad(part, &[key]) {
            let (owner, name) = (self.owner(part), &node.name);
            let costs = if need == wcet { String::new() } else { format!(", with its costs {need},") };
            let message = format!(
                "{key} {wcet}{costs} of {owner} exceeds the {room} that the frame of the cyclic node \"{name}\" has \
                 for jobs; a job fits into one frame, so lengthen the frame or shorten the job"
            );
            self.error(part, key, message);
        }
    }
}
