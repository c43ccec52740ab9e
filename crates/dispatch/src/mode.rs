//! Modes that a program switches to: the participating operations, their rates, and their order.
//! They follow the mode changes of the literature (Real and Crespo, 2004). Jobs released before a
//! switch continue. Releases after the switch keep the new least distance from the earlier ones.

use std::collections::BTreeMap;

use takt_model::{Discipline, Filter, Span, Strategy, StrategyId, StrategyRef, System, TaskId};

use super::plan::Plan;
use super::rate::without_phase;

/// Another way to run a set of operations: with other rates, without some of them, under another
/// strategy. Deadlines do not change, so state deadlines that hold in every mode.
///
/// ```
/// use takt_model::{Builtin, Span};
/// use takt_dispatch::{Limits, OperatingMode, Operation, Operations};
///
/// let ms = Span::from_ms;
/// let operations = Operations::new("flight")
///     .with(Operation::periodic("control", ms(25)).wcet(ms(5)).deadline(ms(10)))
///     .with(Operation::periodic("route", ms(50)).wcet(ms(20)).noncritical())
///     .with(Operation::periodic("gear", ms(100)).wcet(ms(2)))
///     .at_first_without("gear")
///     .mode(OperatingMode::new("landing", Builtin::Rm.strategy()).without("route").every("control", ms(10)));
/// let plan = operations.compute(&Builtin::Rm.strategy(), &Limits::default())?;
/// assert_eq!(plan.mode("landing"), Some(1));
/// let landing = plan.steady(1).expect("there is such a mode");
/// assert_eq!(landing.tasks.len(), 2);
/// # Ok::<(), takt_dispatch::Anomalies>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperatingMode {
    /// Unique name.
    pub name: String,
    /// The strategy of the mode.
    pub strategy: Strategy,
    /// The operations that take no part in the mode.
    pub absent: Vec<String>,
    /// Operations with a period or least distance other than the set's.
    pub periods: BTreeMap<String, Span>,
}

impl OperatingMode {
    /// A mode in which all operations take part, at the set's rates.
    #[must_use]
    pub fn new(name: &str, strategy: Strategy) -> Self {
        OperatingMode { name: name.to_owned(), strategy, absent: Vec::new(), periods: BTreeMap::new() }
    }

    /// Excludes an operation. The other operations of its chain must be excluded too.
    #[must_use]
    pub fn without(mut self, operation: &str) -> Self {
        self.absent.push(operation.to_owned());
        self
    }

    /// Sets the period of an operation, or the least distance of a pushed one. Its followers have
    /// the same rate.
    #[must_use]
    pub fn every(mut self, operation: &str, period: Span) -> Self {
        self.periods.insert(operation.to_owned(), period);
        self
    }

    /// The mode's name, for texts.
    pub(super) fn label(&self) -> String {
        format!("mode \"{}\"", self.name)
    }
}

impl Plan {
    /// The number of a mode's plan, for switches by the program; `None` if there is no such mode.
    #[must_use]
    pub fn mode(&self, name: &str) -> Option<usize> {
        Some(1 + self.modes.iter().position(|mode| mode.name.as_deref() == Some(name))?)
    }

    /// The System of one plan alone (0: of the start, k: of the k-th mode): the participating
    /// operations at their rates. `takt check` can prove it. The proof covers the time while the
    /// plan holds and no job from before the switch remains. Operations that a switch moves have no
    /// known phase, and are sporadic here.
    ///
    /// `None` if there is no such plan.
    #[must_use]
    pub fn steady(&self, plan: usize) -> Option<System> {
        let rows = self.rows_in(plan)?;
        let mut system = self.system.clone();
        let strategy = *system.strategies_of(self.node).get(plan)?;
        system.nodes.get_mut(self.node.index())?.strategy = strategy;
        system.modes.retain(|mode| mode.node != self.node);
        if !self.varies() {
            return Some(system);
        }
        // A program's set has one node, whose tasks are all tasks.
        let mut places: Vec<Option<TaskId>> = Vec::with_capacity(system.tasks.len());
        for (at, row) in rows.iter().enumerate() {
            let there = places.iter().flatten().count() as u32;
            places.push(row.takes_part.then_some(TaskId(there)));
            let task = system.tasks.get_mut(row.task.index())?;
            task.period = row.period;
            let others = (0..=self.modes.len()).filter_map(|plan| self.rows_in(plan)?.get(at));
            if others.into_iter().any(|other| (other.period, other.takes_part) != (row.period, row.takes_part)) {
                without_phase(task);
            }
        }
        let absent: Vec<&str> = rows.iter().filter(|row| !row.takes_part).map(|row| row.name.as_str()).collect();
        system.tasks.retain(|task| !absent.contains(&task.name.as_str()));
        for before in system.tasks.iter_mut().flat_map(|task| &mut task.after) {
            *before = places.get(before.index()).copied().flatten()?;
        }
        let mut strategy = system.strategy(strategy);
        for level in &mut strategy.levels {
            if let Filter::Named(names) = &mut level.filter {
                names.retain(|name| !absent.contains(&name.as_str()));
            }
            if let Discipline::Gel { shift } = &mut level.discipline {
                shift.retain(|name, _| !absent.contains(&name.as_str()));
            }
        }
        strategy.levels.retain(|level| level.filter != Filter::Named(Vec::new()));
        system.strategies = vec![strategy];
        system.nodes.get_mut(self.node.index())?.strategy = StrategyRef::Own(StrategyId(0));
        Some(system)
    }
}
