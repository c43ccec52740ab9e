//! Strategies: what their levels name, and whether each task finds one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Part};
use crate::plan::{Plan, PlanError};
use crate::strategy::{Builtin, Discipline, Filter, Split};
use crate::system::{ComponentId, NodeId, StrategyRef, System, Task, TaskId};
use crate::time::Span;

impl Check<'_> {
    pub(super) fn strategies(&mut self) {
        let system = self.system;
        let tasks: BTreeSet<&str> = system.tasks.iter().map(|task| task.name.as_str()).collect();
        for (i, strategy) in system.strategies.iter().enumerate() {
            if strategy.levels.is_empty() && !self.bad(Part::Strategy(i), &["level"]) {
                let owner = self.owner(Part::Strategy(i));
                self.error(Part::Strategy(i), "level", format!("{owner} has no level; give it at least one"));
            }
            let mut rest: Option<usize> = None;
            for (j, level) in strategy.levels.iter().enumerate() {
                let part = Part::Level(i, j);
                if let Some(first) = rest {
                    let owner = self.owner(part);
                    let message =
                        format!("{owner} can take no task, for level {} takes the rest; put it before that", first + 1);
                    self.error(part, "", message);
                }
                match &level.filter {
                    Filter::Rest if self.bad(part, &["tasks"]) => {}
                    Filter::Rest => rest = rest.or(Some(j)),
                    Filter::Named(names) => self.named(part, names, &tasks),
                    Filter::Where { criticality: None, importance: None, priority: None } => {
                        if !self.bad(part, &["tasks", "tasks.criticality", "tasks.importance", "tasks.priority"]) {
                            let owner = self.owner(part);
                            self.error(part, "tasks", format!("tasks of {owner} asks for nothing; write \"rest\""));
                        }
                    }
                    Filter::Where { priority, .. } => {
                        if *priority == Some(0) {
                            let owner = self.owner(part);
                            self.error(part, "tasks", format!("priority 0 of {owner}: priorities start at 1"));
                        }
                    }
                }
                if let Discipline::Gel { shift } = &level.discipline {
                    self.shifts(part, shift, &tasks);
                }
            }
        }
    }

    fn named(&mut self, part: Part, names: &[String], tasks: &BTreeSet<&str>) {
        if names.is_empty() && !self.bad(part, &["tasks"]) {
            let owner = self.owner(part);
            self.error(part, "tasks", format!("tasks of {owner} names none; name at least one, or write \"rest\""));
        }
        let mut seen = BTreeSet::new();
        for (k, name) in names.iter().enumerate() {
            if !seen.insert(name) {
                let owner = self.owner(part);
                self.error_at(part, "tasks", k, format!("{owner} names the task \"{name}\" twice; once is enough"));
            } else if !tasks.contains(name.as_str()) && !self.bad(part, &["tasks"]) {
                let owner = self.owner(part);
                let message = format!("{owner} names the task \"{name}\", which does not exist");
                self.error_at(part, "tasks", k, message);
            }
        }
    }

    fn shifts(&mut self, part: Part, shift: &BTreeMap<String, crate::Lateness>, tasks: &BTreeSet<&str>) {
        for (name, value) in shift {
            if !tasks.contains(name.as_str()) && !self.bad(part, &["shift"]) {
                let owner = self.owner(part);
                self.error(part, "shift", format!("{owner} names the task \"{name}\", which does not exist"));
            }
            if value.as_ns().unsigned_abs() > Span::FILE_MAX.as_ns() {
                let (owner, most) = (self.owner(part), Span::FILE_MAX);
                let message =
                    format!("shift of \"{name}\" of {owner} is too long; the longest is {most} (about three years)");
                self.error(part, "shift", message);
            }
        }
    }

    /// Whether every strategy that a node or component obeys has a level for each of its tasks.
    pub(super) fn plans(&mut self) {
        let system = self.system;
        let mut groups: BTreeMap<(NodeId, Option<ComponentId>), Vec<usize>> = BTreeMap::new();
        for (i, task) in system.tasks.iter().enumerate() {
            let part = Part::Task(i);
            if !self.bad(part, &["node", "component"]) {
                groups.entry((task.node, task.component)).or_default().push(i);
            }
        }
        let mut asked: Vec<(NodeId, Option<ComponentId>, StrategyRef)> = Vec::new();
        for (i, node) in system.nodes.iter().enumerate() {
            if !self.bad(Part::Node(i), &["strategy"]) {
                asked.push((NodeId(i as u32), None, node.strategy));
            }
        }
        for (i, component) in system.components.iter().enumerate() {
            if !self.bad(Part::Component(i), &["strategy"]) {
                asked.push((component.node, Some(ComponentId(i as u32)), component.strategy));
            }
        }
        for (i, mode) in system.modes.iter().enumerate() {
            if !self.bad(Part::Mode(i), &["strategy", "node"]) {
                asked.push((mode.node, None, mode.strategy));
            }
        }
        let mut seen = BTreeSet::new();
        for (node, component, strategy) in asked {
            if !seen.insert((node, component, strategy)) || self.levels_bad(strategy) || self.takes_all(strategy) {
                continue;
            }
            if let Some(tasks) = groups.get(&(node, component)) {
                self.plan(tasks, strategy);
            }
            if component.is_none() {
                self.jobs_of_flows(node, strategy);
            }
            self.servers(node, component, strategy);
        }
    }

    /// Whether a strategy of a node has a level for the jobs of the flows that visit it.
    fn jobs_of_flows(&mut self, node: NodeId, strategy: StrategyRef) {
        let system = self.system;
        let strategy = system.strategy(strategy);
        for (i, flow) in system.flows.iter().enumerate() {
            let part = Part::Flow(i);
            let Some(at) = flow.path.iter().position(|visited| *visited == node) else { continue };
            if self.bad(part, &["path"]) {
                continue;
            }
            // As takt_model::flows makes them; no level names them.
            let job = Task::periodic("", flow.period, flow.wcet);
            let Err(error) = Plan::of_tasks(std::iter::once((TaskId(0), &job)), &strategy) else { continue };
            let (owner, node, name) = (self.owner(part), &system.nodes[node.index()].name, &strategy.name);
            let message = match error {
                PlanError::NoLevel { .. } => format!(
                    "{owner} visits node \"{node}\", where strategy \"{name}\" has no level for its jobs; \
                     end the levels with one whose tasks = \"rest\""
                ),
                PlanError::NoPriority { .. } => format!(
                    "{owner} visits node \"{node}\", where strategy \"{name}\" goes by priority, and jobs of flows \
                     have none; take another strategy, such as \"edf\", or a level before it that takes them"
                ),
            };
            self.error_at(part, "path", at, message);
        }
    }

    /// Whether a strategy takes every task, and asks for no priority. Only others are worth a look at each task.
    fn takes_all(&self, strategy: StrategyRef) -> bool {
        let strategy = self.system.strategy(strategy);
        let rest = strategy.levels.iter().any(|level| level.filter == Filter::Rest);
        rest && strategy.levels.iter().all(|level| level.split != Split::Priority)
    }

    /// Whether each server of a node or component has a level, and a priority where that goes by priority. (What else a
    /// level may ask of them, `check` says.)
    fn servers(&mut self, node: NodeId, around: Option<ComponentId>, strategy: StrategyRef) {
        let system = self.system;
        let strategy = system.strategy(strategy);
        for (i, inner) in system.components.iter().enumerate() {
            let part = Part::Component(i);
            if inner.node != node || inner.parent != around || self.bad(part, &["priority", "node", "parent", "name"]) {
                continue;
            }
            let server = Task::periodic(&inner.name, Span::from_ms(1), Span::from_ms(1));
            let server = Task { priority: inner.priority, ..server };
            let Err(error) = Plan::of_tasks(std::iter::once((TaskId(0), &server)), &strategy) else { continue };
            let (owner, name) = (self.owner(part), &strategy.name);
            let message = match error {
                PlanError::NoLevel { .. } => format!(
                    "strategy \"{name}\" around {owner} has no level for its server; end the levels with one whose \
                     tasks = \"rest\""
                ),
                PlanError::NoPriority { .. } => format!(
                    "{owner} has no priority, which strategy \"{name}\" around it needs for its server; give it a \
                     priority, 1 is the most important"
                ),
            };
            self.error(part, "", message);
        }
    }

    /// Whether an own strategy's levels have errors of their own.
    fn levels_bad(&self, strategy: StrategyRef) -> bool {
        match strategy {
            StrategyRef::Builtin(_) => false,
            StrategyRef::Own(id) => {
                self.bad(Part::Strategy(id.index()), &["level"])
                    || (0..self.system.strategies[id.index()].levels.len())
                        .any(|j| self.bad(Part::Level(id.index(), j), &["tasks", "split"]))
            }
        }
    }

    fn plan(&mut self, tasks: &[usize], strategy: StrategyRef) {
        let system = self.system;
        let strategy = system.strategy(strategy);
        let mut alone = System::local(1, Builtin::Edf, Vec::new());
        for i in tasks {
            let part = Part::Task(*i);
            alone.tasks = vec![Task { node: NodeId(0), component: None, ..system.tasks[*i].clone() }];
            match Plan::resolve(&alone, NodeId(0), &strategy) {
                Ok(_) => {}
                Err(error) if !self.bad(part, &["priority", "criticality", "importance", "name"]) => {
                    self.error(part, "", error.to_string());
                }
                Err(_) => {}
            }
        }
    }
}
