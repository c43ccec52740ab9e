//! Tasks: their times, where they stand, and the chains that they form.

use std::collections::BTreeSet;

use super::{Check, Part};
use crate::cpus::CpuSet;
use crate::file::read::name_fault;
use crate::system::{Arrival, Criticality, Exec, Preemption, Task, Trace};
use crate::time::Span;
use crate::units::Probability;

impl Check<'_> {
    pub(super) fn tasks(&mut self) {
        for (i, task) in self.system.tasks.iter().enumerate() {
            let part = Part::Task(i);
            for (key, span, zero) in [
                ("period", task.period, false),
                ("deadline", task.deadline, false),
                ("offset", task.offset, true),
                ("jitter", task.jitter, true),
                ("wcet", task.wcet, false),
                ("blocking", task.blocking, true),
            ] {
                self.span(part, key, span, zero);
            }
            if task.priority == Some(0) {
                let owner = self.owner(part);
                self.error(part, "priority", format!("priority 0 of {owner} is out of range; 1 is the most important"));
            }
            if task.cancel == Some(true) && task.criticality != Criticality::Low {
                let owner = self.owner(part);
                let message =
                    format!("cancel = true of {owner} wants criticality = \"low\": critical jobs are never cancelled");
                self.error(part, "cancel", message);
            }
            self.task_place(part, task);
            self.preemption(part, task);
            match &task.exec {
                Exec::Wcet => {}
                Exec::Uniform { min, max } => {
                    self.span(part, "exec.uniform", *min, false);
                    self.span(part, "exec.uniform", *max, false);
                    if min > max && !self.bad(part, &["exec.uniform"]) {
                        let owner = self.owner(part);
                        let message = format!(
                            "exec.uniform of {owner} starts at {min} and ends at {max}; write the shorter \
                             duration first"
                        );
                        self.error(part, "exec.uniform", message);
                    }
                }
                Exec::Pmf(pmf) => self.pmf(part, "exec.pmf", pmf, false),
                Exec::Trace(trace) => self.trace(part, "exec.trace", trace),
            }
            match &task.arrival {
                Arrival::Periodic | Arrival::Sporadic => {}
                Arrival::Pmf(pmf) => self.pmf(part, "arrival.pmf", pmf, false),
                Arrival::Trace(trace) => self.trace(part, "arrival.trace", trace),
            }
        }
    }

    /// Sections of a job that nothing preempts, against its WCET.
    fn preemption(&mut self, part: Part, task: &Task) {
        match &task.preemption {
            Preemption::Anywhere => {}
            Preemption::Until(last) => {
                self.span(part, "final-section", *last, false);
                self.at_most(part, ("final-section", *last), ("wcet", task.wcet));
            }
            Preemption::Between(lengths) => {
                if self.bad(part, &["sections", "wcet"]) {
                    return;
                }
                let owner = self.owner(part);
                if lengths.is_empty() {
                    let message = format!("sections of {owner} is empty; name at least one, or leave sections out");
                    return self.error(part, "sections", message);
                }
                lengths.iter().for_each(|length| self.span(part, "sections", *length, false));
                let sum = lengths.iter().try_fold(Span::ZERO, |sum, length| sum.checked_add(*length));
                if sum != Some(task.wcet) {
                    let sum = sum.map_or("more than can be told".to_owned(), |sum| sum.to_string());
                    let message = format!(
                        "sections of {owner} add up to {sum}, and its wcet is {}; together they are all of it",
                        task.wcet
                    );
                    self.error(part, "sections", message);
                }
            }
        }
    }

    fn task_place(&mut self, part: Part, task: &Task) {
        let system = self.system;
        let node = &system.nodes[task.node.index()];
        if let Some(id) = task.component {
            let component = &system.components[id.index()];
            let unsure = self.bad(part, &["node", "component"]) || self.bad(Part::Component(id.index()), &["node"]);
            if component.node != task.node && !unsure {
                let owner = self.owner(part);
                let there = &system.nodes[component.node.index()].name;
                let message = format!(
                    "{owner} stands on node \"{}\", but its component \"{}\" on \"{there}\"; put both on one",
                    node.name, component.name
                );
                self.error(part, "component", message);
            }
        }
        let Some(cpus) = task.cpus else { return };
        if self.bad(part, &["cpus", "node"]) || self.bad(Part::Node(task.node.index()), &["cpus"]) {
            return;
        }
        let owner = self.owner(part);
        if cpus.is_empty() {
            self.error(part, "cpus", format!("cpus of {owner} is empty; name at least one, or leave cpus out"));
        }
        let beyond = cpus.difference(&CpuSet::first(node.cpus));
        if let Some(cpu) = beyond.lowest() {
            let range = if node.cpus == 1 { "only CPU 0".to_owned() } else { format!("CPUs 0 to {}", node.cpus - 1) };
            let message = format!("cpus of {owner} names CPU {cpu}, but node \"{}\" has {range}", node.name);
            self.error(part, "cpus", message);
        } else if let Some(message) = self.cpus_beside_servers(&owner, task, &cpus) {
            self.error(part, "cpus", message);
        }
    }

    /// Servers use all CPUs of their node or cluster, so tasks beside and in them cannot have a part of these alone.
    fn cpus_beside_servers(&self, owner: &str, task: &Task, cpus: &CpuSet) -> Option<String> {
        let (system, node) = (self.system, &self.system.nodes[task.node.index()]);
        if node.cpus == 1 || *cpus == CpuSet::first(node.cpus) {
            return None;
        }
        let is_part = |cluster: &CpuSet| !cpus.intersection(cluster).is_empty() && !cluster.is_subset(cpus);
        let divides = node.clusters().iter().any(is_part);
        if !divides || system.components.iter().all(|component| component.node != task.node) {
            return None;
        }
        Some(format!(
            "cpus of {owner} are a part of the CPUs that the servers of node \"{}\" share; remove cpus, or use \
             placement = \"partitioned\"",
            node.name
        ))
    }

    /// Values with their probabilities; a value may be zero only if `zero` says so.
    pub(super) fn pmf(&mut self, part: Part, path: &'static str, pmf: &[(Span, Probability)], zero: bool) {
        if self.bad(part, &[path]) {
            return;
        }
        let owner = self.owner(part);
        if pmf.is_empty() {
            self.error(part, path, format!("{path} of {owner} is empty; name at least one value"));
            return;
        }
        for (span, _) in pmf {
            self.span(part, path, *span, zero);
        }
        let sum: u64 = pmf.iter().map(|(_, probability)| u64::from(probability.billionths())).sum();
        if sum != u64::from(Probability::ONE.billionths()) {
            let decimals = format!("{:09}", sum % 1_000_000_000);
            let sum = format!("{}.{decimals}", sum / 1_000_000_000);
            let sum = sum.trim_end_matches('0').trim_end_matches('.');
            self.error(
                part,
                path,
                format!("probabilities of {path} of {owner} sum to {sum}; they must sum to exactly 1"),
            );
        }
    }

    pub(super) fn trace(&mut self, part: Part, path: &'static str, trace: &Trace) {
        if let (Some(fault), false) = (name_fault(&trace.path), self.bad(part, &[path])) {
            let owner = self.owner(part);
            self.error(part, path, format!("{path} of {owner} {fault}"));
        }
    }

    pub(super) fn chains(&mut self) {
        let system = self.system;
        let before: Vec<Vec<usize>> =
            system.tasks.iter().map(|task| task.after.iter().map(|id| id.index()).collect()).collect();
        let cycles = super::circles::cycles(&before);
        for cycle in &cycles {
            // `cycle` goes from a task to what it comes after; the message goes the way of the jobs.
            let names = cycle.first().into_iter().chain(cycle.iter().skip(1).rev());
            let names: Vec<&str> = names.map(|i| system.tasks[*i].name.as_str()).collect();
            let names = super::circles::spelled(&names, " -> ");
            let message =
                format!("tasks wait for each other in a circle: {names}; one of them must not come after the others");
            self.error(Part::Task(cycle[0]), "after", message);
        }
        let unsure = self.unsure_periods(&before);
        for (i, task) in system.tasks.iter().enumerate() {
            if !task.after.is_empty() {
                self.successor(i, task, &unsure);
            }
        }
    }

    /// Tasks with an uncertain period: their own or a source's period is bad, or they wait in a
    /// circle.
    fn unsure_periods(&self, before: &[Vec<usize>]) -> Vec<bool> {
        let mut unsure = vec![true; before.len()];
        let mut waiting: Vec<usize> = before.iter().map(Vec::len).collect();
        let mut successors: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
        for (i, list) in before.iter().enumerate() {
            for j in list {
                successors[*j].push(i);
            }
        }
        let mut ready: Vec<usize> = (0..before.len()).filter(|i| waiting[*i] == 0).collect();
        while let Some(i) = ready.pop() {
            unsure[i] = self.bad(Part::Task(i), &["period", "after"]) || before[i].iter().any(|j| unsure[*j]);
            for next in &successors[i] {
                waiting[*next] -= 1;
                if waiting[*next] == 0 {
                    ready.push(*next);
                }
            }
        }
        unsure
    }

    fn successor(&mut self, i: usize, task: &Task, unsure: &[bool]) {
        let system = self.system;
        let part = Part::Task(i);
        let mut seen = BTreeSet::new();
        for (k, id) in task.after.iter().enumerate() {
            let before = &system.tasks[id.index()];
            if !seen.insert(id) {
                let owner = self.owner(part);
                self.error_at(
                    part,
                    "after",
                    k,
                    format!("after of {owner} names \"{}\" twice; once is enough", before.name),
                );
            }
            let nodes_known = !self.bad(part, &["node"]) && !self.bad(Part::Task(id.index()), &["node"]);
            if before.node != task.node && nodes_known {
                let owner = self.owner(part);
                let [here, there] = [task.node, before.node].map(|node| &system.nodes[node.index()].name);
                let message = format!(
                    "{owner} on node \"{here}\" comes after \"{}\" on \"{there}\"; a chain stays on one node \
                     (across nodes, use a [[flow]])",
                    before.name
                );
                self.error_at(part, "after", k, message);
            }
        }
        let first = &system.tasks[task.after[0].index()];
        for (k, id) in task.after.iter().enumerate().skip(1) {
            let other = &system.tasks[id.index()];
            if other.period != first.period && !unsure[id.index()] && !unsure[task.after[0].index()] {
                let owner = self.owner(part);
                let message = format!(
                    "{owner} comes after \"{}\" with period {} and \"{}\" with period {}; they must have one period",
                    first.name, first.period, other.name, other.period
                );
                self.error_at(part, "after", k, message);
            }
        }
        if task.period != first.period && !unsure[i] {
            let owner = self.owner(part);
            let message = format!(
                "{owner} has period {}, but \"{}\" before it {}; a chain has one period",
                task.period, first.name, first.period
            );
            self.error(part, "period", message);
        }
        for (key, is_set) in [
            ("offset", !task.offset.is_zero()),
            ("jitter", !task.jitter.is_zero()),
            ("arrival", task.arrival != Arrival::Periodic),
        ] {
            if is_set && !self.bad(part, &[key]) {
                let owner = self.owner(part);
                let message =
                    format!("{owner} comes after others and is released when they complete; remove its {key}");
                self.error(part, key, message);
            }
        }
    }
}
