//! `--adaptive`: the controller between a node's strategy and a guard, for `sim` and `run`, and what they say of it.

use serde::Serialize;
use takt_dispatch::{Adaptive, Plan};
pub(crate) use takt_experiments::law;
use takt_log::{Event, Sink};
use takt_model::{Builtin, Criticality, NodeId, Span, StrategyId, StrategyRef, System, Task, Time, file};

use crate::failure::Failure;
use crate::numbers::percent;
use crate::table::{Table, or_dash, time};

pub(crate) struct ControllerRequest {
    pub(crate) node: NodeId,
    pub(crate) strategy: StrategyRef,
    calm: String,
    guard: String,
}

impl ControllerRequest {
    /// A request for one node, with the strategy of this name as its guard.
    pub(crate) fn new(system: &System, node: Option<NodeId>, guard: &str) -> Result<ControllerRequest, Failure> {
        let (node, spec) = match (node, system.nodes.as_slice()) {
            (Some(node), nodes) => (node, nodes.get(node.index())),
            (None, [only]) => (NodeId(0), Some(only)),
            (None, _) => (NodeId(0), None),
        };
        let Some(spec) = spec else {
            return Err(Failure::input(
                "--adaptive needs one node, and the system has several: choose one with --node",
            ));
        };
        if system.modes.iter().any(|mode| mode.node == node) {
            return Err(Failure::input(
                "--adaptive and the node's [[mode]]s both switch the strategy; remove the [[mode]]s, or leave out \
                 --adaptive",
            ));
        }
        let calm = system.strategy_name(spec.strategy).to_owned();
        Ok(ControllerRequest { node, strategy: strategy(system, guard)?, calm, guard: guard.to_owned() })
    }
}

pub(crate) fn strategy(system: &System, name: &str) -> Result<StrategyRef, Failure> {
    let own = || system.strategies.iter().zip(0..).find(|(own, _)| own.name == name);
    let own = || own().map(|(_, id)| StrategyRef::Own(StrategyId(id)));
    Builtin::by_name(name).map(StrategyRef::Builtin).or_else(own).ok_or_else(|| {
        let built_in = Builtin::ALL.iter().map(|builtin| builtin.name());
        let names: Vec<&str> = built_in.chain(system.strategies.iter().map(|own| own.name.as_str())).collect();
        let name = file::one_line(name);
        Failure::input(format_args!("--adaptive {name}: there is no such strategy; there is {}", names.join(", ")))
    })
}

/// The actions of the controller, and its thresholds of danger.
#[derive(Serialize)]
pub(crate) struct Account {
    calm: String,
    guard: String,
    to_guard: u64,
    to_calm: u64,
    with_guard_ns: u64,
    of_the_time: f64,
    critical: Vec<GuardedOperation>,
}

#[derive(Serialize)]
struct GuardedOperation {
    task: String,
    response_ns: Option<u64>,
    deadline_ns: u64,
    danger_ns: Option<u64>,
}

impl Account {
    /// The account of runs that last `total` together.
    pub(crate) fn new(
        request: &ControllerRequest,
        plan: &Plan,
        law: &Adaptive,
        residence: Residence,
        total: Span,
    ) -> Account {
        let critical = plan.rows.iter().filter_map(|row| {
            let Task { name, deadline, criticality, .. } = plan.system.tasks.get(row.task.index())?;
            let response_ns = law.responses.get(name).map(|response| response.as_ns());
            (*criticality == Criticality::High).then(|| GuardedOperation {
                task: name.clone(),
                response_ns,
                deadline_ns: deadline.as_ns(),
                danger_ns: law.danger(plan, name).map(Span::as_ns),
            })
        });
        Account {
            calm: request.calm.clone(),
            guard: request.guard.clone(),
            to_guard: residence.to_guard,
            to_calm: residence.to_calm,
            with_guard_ns: residence.with_guard.as_ns(),
            of_the_time: residence.with_guard.as_ns() as f64 / total.as_ns().max(1) as f64,
            critical: critical.collect(),
        }
    }

    /// Two tables, the first after an empty line.
    pub(crate) fn text(&self) -> String {
        let mut residence = Table::new(&["strategy", "guard", "to the guard", "back", "with the guard", "of the time"]);
        residence.row(vec![
            self.calm.clone(),
            self.guard.clone(),
            self.to_guard.to_string(),
            self.to_calm.to_string(),
            time(Span::from_ns(self.with_guard_ns)),
            percent(self.of_the_time),
        ]);
        let mut critical = Table::new(&["critical", "response under the guard", "deadline", "in danger after"]);
        let shown = |ns: Option<u64>| or_dash(ns.map(|ns| time(Span::from_ns(ns))));
        for operation in &self.critical {
            let deadline = time(Span::from_ns(operation.deadline_ns));
            let [response, danger] = [operation.response_ns, operation.danger_ns].map(shown);
            critical.row(vec![operation.task.clone(), response, deadline, danger]);
        }
        format!("\n{}\n{}", residence.render(""), critical.render(""))
    }
}

/// The System for a log's head. It lacks the guard's mode, since no time switches to it; the log's
/// definitions name this mode.
pub(crate) fn written(plan: &Plan) -> System {
    let mut system = plan.system.clone();
    system.modes.retain(|mode| mode.node != plan.node);
    system
}

/// The changes between a node's strategy and its guard, and the time under the guard.
#[derive(Clone, Copy, Default)]
pub(crate) struct Residence {
    to_guard: u64,
    to_calm: u64,
    with_guard: Span,
    /// The start of the present time under the guard.
    since: Option<Time>,
}

impl Residence {
    pub(crate) fn until(mut self, end: Time) -> Residence {
        if let Some(since) = self.since.take() {
            self.with_guard = self.with_guard.saturating_add(end.saturating_since(since));
        }
        self
    }

    pub(crate) fn and(self, other: Residence) -> Residence {
        Residence {
            to_guard: self.to_guard + other.to_guard,
            to_calm: self.to_calm + other.to_calm,
            with_guard: self.with_guard.saturating_add(other.with_guard),
            since: None,
        }
    }
}

impl Sink for Residence {
    fn event(&mut self, _: u32, now: Time, event: &Event) {
        match event {
            Event::ModeChange { mode: 0 } => {
                self.to_calm += 1;
                *self = self.until(now);
            }
            Event::ModeChange { .. } => {
                self.to_guard += 1;
                self.since = self.since.or(Some(now));
            }
            _ => {}
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}
