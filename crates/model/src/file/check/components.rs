//! Rules for components and their servers.

use super::{Check, Part, circles};
use crate::cpus::CpuSet;
use crate::system::{Component, ComponentId, Placement, ServerRule};
use crate::time::Span;

impl Check<'_> {
    pub(super) fn components(&mut self) {
        let system = self.system;
        for (i, component) in system.components.iter().enumerate() {
            let part = Part::Component(i);
            let period = component.period.given();
            if let Some(period) = period {
                self.span(part, "period", period, false);
            }
            if let Some(budget) = component.budget.given() {
                self.span(part, "budget", budget, false);
                if let Some(period) = period {
                    self.budget(part, component, budget, period);
                }
            }
            if let Some(quantum) = component.quantum {
                self.span(part, "quantum", quantum, false);
                if let Some(period) = period {
                    self.at_most(part, ("quantum", quantum), ("period", period));
                }
            }
            self.component_cpus(part, component);
            self.server_cpus(part, component);
            if !self.bad(part, &["server"]) {
                self.reclaims(part, ComponentId(i as u32), component.server);
            }
            if let Some(parent) = component.parent {
                let outer = &system.components[parent.index()];
                let unsure =
                    self.bad(part, &["node", "parent"]) || self.bad(Part::Component(parent.index()), &["node"]);
                if outer.node != component.node && !unsure {
                    let owner = self.owner(part);
                    let [here, there] = [component.node, outer.node].map(|node| &system.nodes[node.index()].name);
                    let message = format!(
                        "{owner} stands on node \"{here}\", but its parent \"{}\" on \"{there}\"; put both on one",
                        outer.name
                    );
                    self.error(part, "parent", message);
                }
                if outer.threads.is_some() && !self.bad(part, &["parent"]) {
                    let (owner, name) = (self.owner(part), &outer.name);
                    let message = format!(
                        "{owner} stands in component \"{name}\", which holds existing threads and nothing else; give \
                         it another parent, or remove threads of \"{name}\""
                    );
                    self.error(part, "parent", message);
                }
            }
            self.threads(part, i);
        }
        self.bound_components();
        let inner: Vec<Vec<usize>> =
            system.components.iter().map(|c| c.parent.iter().map(|parent| parent.index()).collect()).collect();
        for cycle in circles::cycles(&inner) {
            let names: Vec<&str> = cycle.iter().map(|i| system.components[*i].name.as_str()).collect();
            let names = circles::spelled(&names, " in ");
            let message = format!("components stand in a circle: {names}; one of them must stand in the root");
            self.error(Part::Component(cycle[0]), "parent", message);
        }
    }

    /// A component's budget, which is that of all its CPUs.
    pub(super) fn budget(&mut self, part: Part, component: &Component, budget: Span, period: Span) {
        if component.cpus <= 1 {
            return self.at_most(part, ("budget", budget), ("period", period));
        }
        if component.most(period).is_some_and(|most| budget > most) && !self.bad(part, &["budget", "period", "cpus"]) {
            let (owner, cpus) = (self.owner(part), component.cpus);
            let message = format!(
                "budget {budget} exceeds {cpus} times the period {period} of {owner}; on {cpus} CPUs it is at most that"
            );
            self.error(part, "budget", message);
        }
    }

    /// Threads stand in one component of their machine.
    fn threads(&mut self, part: Part, at: usize) {
        let component = &self.system.components[at];
        if component.threads.is_none() || self.bad(part, &["threads", "node"]) {
            return;
        }
        let same = |other: &&Component| other.node == component.node && other.threads == component.threads;
        let Some(other) = self.system.components[..at].iter().find(same) else { return };
        let (owner, name) = (self.owner(part), &other.name);
        let threads = component.threads.as_ref().map(ToString::to_string).unwrap_or_default();
        let message = format!(
            "threads \"{threads}\" of {owner} are those of component \"{name}\"; a thread stands in one component"
        );
        self.error(part, "threads", message);
    }

    /// Checks where the servers of a component are bound to.
    fn server_cpus(&mut self, part: Part, component: &Component) {
        let key = "server-cpus";
        if component.server_cpus.is_empty() || self.bad(part, &[key, "cpus", "node", "parent"]) {
            return;
        }
        let (owner, node) = (self.owner(part), &self.system.nodes[component.node.index()]);
        let count = component.server_cpus.len();
        let beyond = component.server_cpus.iter().find(|cpu| **cpu >= node.cpus);
        let message = if let Some(parent) = component.parent {
            let outer = &self.system.components[parent.index()].name;
            format!("{key} of {owner}: it runs where the component \"{outer}\" around it does; remove {key}")
        } else if node.placement == Placement::Global {
            format!(
                "{key} of {owner}: it runs on all CPUs of node \"{}\", whose placement is global; remove {key}",
                node.name
            )
        } else if let Some(cpu) = beyond {
            format!("{key} of {owner} names CPU {cpu}, but node \"{}\" has CPUs 0 to {}", node.name, node.cpus - 1)
        } else if count != component.cpus as usize {
            let most = component.cpus;
            format!("{key} of {owner} names {count} CPUs, and its cpus are {most}; name one for each")
        } else {
            return;
        };
        self.error(part, key, message);
    }

    /// Reclaiming the bandwidth of idle servers is defined on one CPU: there EDF keeps deadlines as long as all
    /// bandwidth is no more than one. No sum is enough under EDF on several CPUs.
    pub(super) fn reclaims(&mut self, part: Part, id: ComponentId, rule: ServerRule) {
        if rule != ServerRule::Grub {
            return;
        }
        let component = &self.system.components[id.index()];
        let node = &self.system.nodes[component.node.index()];
        let outer = component.parent.map(|parent| &self.system.components[parent.index()]);
        let cpus = match outer {
            Some(outer) => outer.cpus,
            None => node.clusters().iter().map(CpuSet::len).max().unwrap_or(1),
        };
        let unsure = self.bad(Part::Component(id.index()), &["node", "parent"])
            || self.bad(Part::Node(component.node.index()), &["cpus", "placement", "cluster-cpus"]);
        if cpus <= 1 || unsure {
            return;
        }
        let owner = self.owner(part);
        let remedy = if outer.is_some() { "" } else { ", or placement = \"partitioned\"" };
        let message = format!(
            "server \"grub\" of {owner} competes for {cpus} CPUs at once, and it reclaims time on one CPU only; \
             use \"cbs\" or \"cbs-hard\"{remedy}"
        );
        self.error(part, "server", message);
    }

    /// Tasks with `cpus` in a component bind it: its outermost component runs where all of them may.
    pub(super) fn bound_components(&mut self) {
        let system = self.system;
        let mut allowed: Vec<Option<CpuSet>> = vec![None; system.components.len()];
        for (i, task) in system.tasks.iter().enumerate() {
            let part = Part::Task(i);
            let (Some(inner), Some(cpus)) = (task.component, task.cpus) else { continue };
            if self.bad(part, &["cpus", "component", "node"]) {
                continue;
            }
            let Some(root) = system.around(inner).last() else { continue };
            let left = allowed[root.index()].map_or(cpus, |left| left.intersection(&cpus));
            let component = &system.components[root.index()];
            if left.is_empty() && !cpus.is_empty() {
                let (owner, name) = (self.owner(part), &component.name);
                let message = format!(
                    "cpus of {owner} share no CPU with the other tasks in component \"{name}\", which all run \
                     where it does; give them the same"
                );
                self.error(part, "cpus", message);
                continue;
            }
            allowed[root.index()] = Some(left);
            if let Some(cpu) = component.server_cpus.iter().find(|cpu| !cpus.contains(**cpu)) {
                let owner = self.owner(part);
                let message = format!(
                    "cpus of {owner} leave out CPU {cpu}, which server-cpus of its component \"{}\" names; remove cpus",
                    component.name
                );
                self.error(part, "cpus", message);
            }
        }
    }

    /// Checks a component's CPUs against those of its node and its parent.
    fn component_cpus(&mut self, part: Part, component: &Component) {
        let (system, cpus) = (self.system, component.cpus);
        if self.bad(part, &["cpus", "node", "parent"]) {
            return;
        }
        let owner = self.owner(part);
        let node = &system.nodes[component.node.index()];
        let outer = component.parent.map(|parent| &system.components[parent.index()]);
        let message = if cpus == 0 {
            format!("{owner} runs on no CPU; give it at least 1")
        } else if cpus > node.cpus {
            format!("cpus {cpus} of {owner} exceeds the {} of node \"{}\"; give it at most those", node.cpus, node.name)
        } else if let Some(outer) = outer.filter(|outer| cpus > outer.cpus) {
            let (name, most) = (&outer.name, outer.cpus);
            format!(
                "cpus {cpus} of {owner} exceeds the {most} of the component \"{name}\" around it; give at most those"
            )
        } else {
            return;
        };
        self.error(part, "cpus", message);
    }
}
