//! `takt admit`: adds tasks, components and flows to a proven system, or removes them, and keeps it proven.
//!
//! [`Admission`] holds a system that is proven. It accepts only systems that
//! [`check`](crate::check()) would prove from scratch. A quick way only ever says yes, and only if
//! one of `check`'s tests would. If no quick way can tell, `check`'s tests decide. There is one
//! exception. A less important task on the same CPU does not affect the proof of a more important
//! task. The proof stays valid, even if it followed the whole schedule and the schedule with the
//! new task is too long to be followed again.
//!
//! | on one CPU | quick way | cost, n tasks there |
//! |---|---|---|
//! | `edf` | densities add up to at most 1, kept as a sum in 2^-64, each rounded up | O(1) |
//! | `edf` | [`crate::edf::qpa`] | O(n) a point, some points |
//! | `rm`, `dm`, `fp` | Bini and Baruah's upper bound of each response, from sums over what is more important, for the new task and those less important | O(n) additions |
//! | `rm`, `dm`, `fp` | where the bound does not suffice, the fixed point, from the last one that was found (adding work only raises it) | O(n) a round |
//!
//! Tasks of one level count against each other, whatever the order of their releases. This is safe;
//! if it does not suffice, `check` decides.
//!
//! Quick ways cover nodes of one CPU and nodes with all tasks bound to single CPUs. The strategy is
//! `edf`, `rm`, `dm` or `fp`. There are no components, modes, flows, chains, jitter, release
//! latency or cancellation. Elsewhere the tests of `check` decide, by parts:
//!
//! | what changes | what is tested again |
//! |---|---|
//! | a component, or something in it | its own level; that around it, where it asks for something else there (a new server, its costs) |
//! | a task elsewhere | the CPUs that it may use; with costs, the components that it interrupts |
//! | a flow | the demand of the nodes that it visits, and where messages wait for each other of those behind them |
//! | a partition that is sought, a chain | its node |
//!
//! Nothing else is: a test is asked again wherever anything that it looks at is another, and nowhere else.
//!
//! A change is atomic: all that comes and all that goes, on all nodes, or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use takt_model::strategy::{Discipline, Filter, Level};
use takt_model::{Component, ComponentId, Flow, NodeId, Span, Strategy, System, Task, named};

use crate::check::proves;
use crate::memo::Memo;
use crate::report::CheckReport;
use crate::verdict::Answer;

use change::Removal;
use quick::Quick;

named! {
    /// How a change was decided.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum DecidedBy {
        /// Nothing had to be decided.
        Nothing => "nothing",
        /// The sum of densities.
        Density => "density",
        /// Upper bounds of responses.
        Bounds => "bounds",
        /// Fixed points, for those tasks whose bounds did not suffice.
        FixedPoints => "fixed-points",
        /// Processor demand.
        Demand => "demand",
        /// The tests of `check` on the nodes, CPUs, levels of components and flows that changed.
        Parts => "parts",
        /// `check` from scratch.
        Check => "check",
    }
}

/// Why nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The change makes no sense in this system.
    #[error("{0}")]
    Invalid(String),
    /// With the change the system is not proven.
    #[error("not admitted: {0}; the system is as it was")]
    NotProven(String),
}

/// A part of a system, by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// A task.
    Task(String),
    /// A component.
    Component(String),
    /// A flow.
    Flow(String),
}

impl Part {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Part::Task(name) | Part::Component(name) | Part::Flow(name) => name,
        }
    }
}

/// As messages say it.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Part::Task(name) => ("task", name),
            Part::Component(name) => ("component", name),
            Part::Flow(name) => ("flow", name),
        };
        write!(f, "{kind} \"{name}\"")
    }
}

/// Parts to remove and parts to add in one step. The added parts stand behind all others, in this
/// order. Their references to tasks and components use the numbering after the change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// What goes.
    pub remove: Vec<Part>,
    /// Components that come.
    pub components: Vec<Component>,
    /// Tasks that come.
    pub tasks: Vec<Task>,
    /// Flows that come.
    pub flows: Vec<Flow>,
}

/// A proven system that changes.
#[derive(Clone, Debug)]
pub struct Admission {
    system: System,
    /// The same without tasks, components, flows and modes.
    frame: System,
    /// The frame with strategies that name no task, to look at one task alone.
    shell: System,
    names: Names,
    quick: Quick,
    /// By node: what the tests said of its parts.
    memos: Vec<Memo>,
}

#[derive(Clone, Debug, Default)]
struct Names {
    tasks: BTreeSet<String>,
    components: BTreeSet<String>,
    flows: BTreeSet<String>,
}

impl Admission {
    /// Takes a system.
    ///
    /// # Errors
    /// If `check` does not prove the system.
    pub fn new(system: System) -> Result<Admission, Refusal> {
        let mut memos = vec![Memo::default(); system.nodes.len()];
        let nodes: Vec<NodeId> = (0..system.nodes.len()).map(|node| NodeId(node as u32)).collect();
        if !proves(&system, &nodes, &mut memos) {
            return Err(Refusal::NotProven(why(&system)));
        }
        memos.iter_mut().for_each(Memo::keep);
        let (components, flows, modes) = (Vec::new(), Vec::new(), Vec::new());
        let frame = System { tasks: Vec::new(), components, flows, modes, ..system.clone() };
        let any = |strategy: &Strategy| Strategy {
            levels: vec![Level::new(Filter::Rest, Discipline::Fifo)],
            name: strategy.name.clone(),
        };
        let shell = System { strategies: system.strategies.iter().map(any).collect(), ..frame.clone() };
        let names = Names {
            tasks: system.tasks.iter().map(|task| task.name.clone()).collect(),
            components: system.components.iter().map(|component| component.name.clone()).collect(),
            flows: system.flows.iter().map(|flow| flow.name.clone()).collect(),
        };
        let quick = Quick::new(&system);
        Ok(Admission { system, frame, shell, names, quick, memos })
    }

    /// The system as it is, which is proven.
    #[must_use]
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The report of `check` from scratch, with all bounds.
    #[must_use]
    pub fn report(&self) -> CheckReport {
        crate::check(&self.system, &crate::CheckOptions::default())
    }

    /// The bound of a task's response, where fixed priorities of their own give one quickly: the same as `check`'s.
    #[must_use]
    pub fn response(&self, name: &str) -> Option<Span> {
        let task = self.system.tasks.iter().find(|task| task.name == name)?;
        self.quick.response(&self.system, task).map(Span::from_ns)
    }

    /// Makes a change, whole or not at all.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn change(&mut self, change: &Change) -> Result<DecidedBy, Refusal> {
        let quick = |task: &Task| self.quick.place(&self.system, task).is_some();
        if change.components.is_empty() && change.flows.is_empty() {
            if change.remove.is_empty() && change.tasks.iter().all(quick) {
                if let Some(by) = self.add_quickly(&change.tasks)? {
                    return Ok(by);
                }
            } else if let ([Part::Task(name)], []) = (&change.remove[..], &change.tasks[..]) {
                let gone = Removal::of(&self.system, change)?;
                if let Some(at) = gone.tasks.first().filter(|at| self.quick.covers(self.system.tasks[**at].node)) {
                    let task = take_task(&mut self.system, *at);
                    self.names.tasks.remove(name);
                    self.quick.take_out(&self.system, &task);
                    // Less work, and the same order: what was proven stays so.
                    return Ok(DecidedBy::Nothing);
                }
            }
        }
        self.by_parts(change)
    }

    /// Checks that no remaining part refers to a removed part. It does not check that the rest is
    /// proven.
    ///
    /// # Errors
    /// If a remaining part does: its name and the remedy.
    pub fn removable(&self, change: &Change) -> Result<(), Refusal> {
        Removal::of(&self.system, change).map(drop)
    }

    /// Adds tasks; they stand after all others, in this order. All of them or none.
    ///
    /// # Errors
    /// Why nothing was added.
    pub fn add(&mut self, tasks: &[Task]) -> Result<DecidedBy, Refusal> {
        self.change(&Change { tasks: tasks.to_vec(), ..Change::default() })
    }

    /// Removes the task of that name.
    ///
    /// # Errors
    /// If there is no such task, another task follows it, a strategy names it, or the rest would
    /// not be proven (jobs without preemption, several CPUs).
    pub fn remove(&mut self, name: &str) -> Result<DecidedBy, Refusal> {
        self.change(&Change { remove: vec![Part::Task(name.to_owned())], ..Change::default() })
    }

    /// Any change, decided from scratch.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn replace(&mut self, change: impl FnOnce(&mut System) -> Result<(), Refusal>) -> Result<DecidedBy, Refusal> {
        let mut system = self.system.clone();
        change(&mut system)?;
        valid(&system)?;
        *self = Admission::new(system)?;
        Ok(DecidedBy::Check)
    }

    /// Adds tasks that the quick ways are for; `None`, and nothing is changed, where these cannot tell.
    fn add_quickly(&mut self, tasks: &[Task]) -> Result<Option<DecidedBy>, Refusal> {
        for (i, task) in tasks.iter().enumerate() {
            if self.names.tasks.contains(&task.name) || tasks[..i].iter().any(|other| other.name == task.name) {
                return Err(Refusal::Invalid(format!("there is a task \"{}\" already", task.name)));
            }
            self.shell.tasks.push(task.clone());
            let found = valid(&self.shell);
            self.shell.tasks.clear();
            found?;
        }
        // The least of what changed on each CPU decides for the rest there, too.
        let mut firsts: BTreeMap<quick::Place, usize> = BTreeMap::new();
        for task in tasks {
            let place = self.quick.place(&self.system, task).expect("it is for the quick ways");
            let at = self.quick.insert(&self.system, place, task);
            let first = firsts.entry(place).or_insert(at);
            *first = (*first).min(at);
        }
        let mut by = Some(DecidedBy::Nothing);
        for (place, first) in firsts {
            let found = self.quick.decide(&self.system, place, first);
            by = by.zip(found).map(|(by, found)| by.max(found));
            if by.is_none() {
                break;
            }
        }
        if by.is_none() {
            tasks.iter().for_each(|task| self.quick.take_out(&self.system, task));
        } else {
            self.names.tasks.extend(tasks.iter().map(|task| task.name.clone()));
            self.system.tasks.extend(tasks.iter().cloned());
        }
        Ok(by)
    }

    /// By the nodes that a change touches, and what is known of their parts.
    fn by_parts(&mut self, change: &Change) -> Result<DecidedBy, Refusal> {
        let gone = Removal::of(&self.system, change)?;
        self.free_names(change, &gone)?;
        let nodes = gone.nodes(&self.system, change);
        let part = gone.part(&self.system, &self.frame, change, &nodes);
        valid(&part)?;
        let proven = proves(&part, &nodes, &mut self.memos);
        let known = nodes.iter().any(|node| self.memos[node.index()].hits > 0);
        for (node, memo) in self.memos.iter_mut().enumerate() {
            if proven && nodes.contains(&NodeId(node as u32)) { memo.keep() } else { memo.forget() }
        }
        if !proven {
            return Err(Refusal::NotProven(why(&part)));
        }
        self.make(change, &gone);
        for node in &nodes {
            self.quick.renew(&self.system, *node);
        }
        Ok(if known || nodes.len() < self.system.nodes.len() { DecidedBy::Parts } else { DecidedBy::Check })
    }

    /// Whether what comes has names of its own.
    fn free_names(&self, change: &Change, gone: &Removal) -> Result<(), Refusal> {
        let taken = |part: Part| Refusal::Invalid(format!("there is a {part} already"));
        let system = &self.system;
        for Task { name, .. } in &change.tasks {
            if self.names.tasks.contains(name) && !gone.tasks.iter().any(|i| system.tasks[*i].name == *name) {
                return Err(taken(Part::Task(name.clone())));
            }
        }
        for Component { name, .. } in &change.components {
            let goes = || gone.components.iter().any(|i| system.components[*i].name == *name);
            if self.names.components.contains(name) && !goes() {
                return Err(taken(Part::Component(name.clone())));
            }
        }
        for Flow { name, .. } in &change.flows {
            if self.names.flows.contains(name) && !gone.flows.iter().any(|i| system.flows[*i].name == *name) {
                return Err(taken(Part::Flow(name.clone())));
            }
        }
        Ok(())
    }

    /// Makes a change that is valid and proven.
    fn make(&mut self, change: &Change, gone: &Removal) {
        for at in gone.tasks.iter().rev() {
            let task = take_task(&mut self.system, *at);
            self.names.tasks.remove(&task.name);
        }
        for at in gone.components.iter().rev() {
            let component = take_component(&mut self.system, *at);
            self.names.components.remove(&component.name);
        }
        for at in gone.flows.iter().rev() {
            let flow = self.system.flows.remove(*at);
            self.names.flows.remove(&flow.name);
        }
        self.names.tasks.extend(change.tasks.iter().map(|task| task.name.clone()));
        self.names.components.extend(change.components.iter().map(|component| component.name.clone()));
        self.names.flows.extend(change.flows.iter().map(|flow| flow.name.clone()));
        self.system.tasks.extend(change.tasks.iter().cloned());
        self.system.components.extend(change.components.iter().cloned());
        self.system.flows.extend(change.flows.iter().cloned());
    }
}

/// Whether a system could be read from a file.
fn valid(system: &System) -> Result<(), Refusal> {
    takt_model::file::validate(system).map_err(|errors| Refusal::Invalid(errors.to_string().trim_end().to_owned()))
}

impl PartialOrd for DecidedBy {
    fn partial_cmp(&self, other: &DecidedBy) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By cost.
impl Ord for DecidedBy {
    fn cmp(&self, other: &DecidedBy) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

/// The reason of `check` for not proving a system.
fn why(system: &System) -> String {
    let report = crate::check(system, &crate::CheckOptions { verdict_only: true, ..crate::CheckOptions::default() });
    let tests = report.tests.iter().filter(|test| test.verdict.answer() != Answer::Yes);
    // A verdict that rests on another part says less than the verdict of that part.
    let rests = |test: &crate::TestReport| test.verdict.why().starts_with("rests on");
    let worst = tests.min_by_key(|test| (test.verdict.answer() != Answer::No, rests(test)));
    worst.map_or_else(
        || "not proven".to_owned(),
        |test| format!("{} in {}: {}", test.test.name(), test.scope, test.verdict.why()),
    )
}

/// Removes a task; others keep their predecessors.
fn take_task(system: &mut System, at: usize) -> Task {
    let task = system.tasks.remove(at);
    for id in system.tasks.iter_mut().flat_map(|task| &mut task.after) {
        id.0 -= u32::from(id.index() > at);
    }
    task
}

/// Removes a component that nothing stands in.
fn take_component(system: &mut System, at: usize) -> Component {
    let shift = |id: &mut ComponentId| id.0 -= u32::from(id.index() > at);
    system.tasks.iter_mut().filter_map(|task| task.component.as_mut()).for_each(shift);
    system.components.iter_mut().filter_map(|component| component.parent.as_mut()).for_each(shift);
    system.components.remove(at)
}

mod change;
mod quick;
#[cfg(test)]
mod tests;
