//! Strategies: one type for every scheduling paradigm [KOKYU II-B].
//!
//! A strategy is an ordered list of levels. Every task belongs to the first level whose filter takes
//! it; the first job of the first non-empty level runs. A level with a [`Split`] stands for several
//! consecutive levels, one per distinct value, so that the named strategies are values of this type too.

use std::collections::BTreeMap;

use crate::criticality::Criticality;
use crate::time::Lateness;

named! {
    /// A strategy that has a name of its own in every System file.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Builtin {
        /// Fixed priority: one level per `priority`, 1 the most important.
        Fp => "fp",
        /// Rate monotonic: one level per period, the shortest the most important.
        Rm => "rm",
        /// Deadline monotonic: one level per relative deadline, the shortest the most important.
        Dm => "dm",
        /// Earliest deadline first.
        Edf => "edf",
        /// Minimum laxity first.
        Mlf => "mlf",
        /// Maximum urgency first: one level per criticality, by laxity within.
        Muf => "muf",
        /// Critical tasks rate monotonic; below them all noncritical ones by laxity.
        RmsMlf => "rms+mlf",
        /// First in, first out.
        Fifo => "fifo",
    }
}

impl Builtin {
    /// The strategy of that name, if there is one.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Builtin> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    /// The same strategy as a list of levels.
    #[must_use]
    pub fn strategy(self) -> Strategy {
        let rest = |discipline, split| Level { split, ..Level::new(Filter::Rest, discipline) };
        let levels = match self {
            Builtin::Fp => vec![rest(Discipline::Fifo, Split::Priority)],
            Builtin::Rm => vec![rest(Discipline::Fifo, Split::Period)],
            Builtin::Dm => vec![rest(Discipline::Fifo, Split::Deadline)],
            Builtin::Edf => vec![rest(Discipline::Deadline, Split::None)],
            Builtin::Mlf => vec![rest(Discipline::Laxity, Split::None)],
            Builtin::Muf => vec![rest(Discipline::Laxity, Split::Criticality)],
            Builtin::RmsMlf => {
                let critical = Filter::Where { criticality: Some(Criticality::High), importance: None, priority: None };
                let by_rate = Level { split: Split::Period, ..Level::new(critical, Discipline::Fifo) };
                vec![by_rate, rest(Discipline::Laxity, Split::None)]
            }
            Builtin::Fifo => vec![rest(Discipline::Fifo, Split::None)],
        };
        Strategy { name: self.name().to_owned(), levels }
    }
}

/// An ordered list of levels, the most important first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strategy {
    /// The name that nodes, components and modes call it by.
    pub name: String,
    /// The levels, the most important first; never empty in a valid System.
    pub levels: Vec<Level>,
}

/// One level of a strategy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Level {
    /// Selects the level's tasks among the tasks that no earlier level took.
    pub filter: Filter,
    /// Whether this level stands for one level per distinct value.
    pub split: Split,
    /// The order within the level.
    pub discipline: Discipline,
    /// Whether a job of this level may preempt one of the same level that has started. More important
    /// levels always preempt.
    pub preemptive: bool,
    /// The rule for a job that missed its deadline.
    pub late: Late,
    /// Whether `importance` (larger first) breaks ties of the discipline before the nominal arrival does.
    pub importance_ties: bool,
}

impl Level {
    /// A preemptive, unsplit level that lets late jobs continue.
    #[must_use]
    pub fn new(filter: Filter, discipline: Discipline) -> Self {
        Level { filter, split: Split::None, discipline, preemptive: true, late: Late::Continue, importance_ties: false }
    }
}

/// Selects a level's tasks among the tasks that no earlier level took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// All that are left.
    Rest,
    /// Those with these names.
    Named(Vec<String>),
    /// Those that have all the values given.
    Where {
        /// Wanted criticality.
        criticality: Option<Criticality>,
        /// Wanted importance.
        importance: Option<u32>,
        /// Wanted priority.
        priority: Option<u32>,
    },
}

/// One level, or one per distinct value of a task's parameter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Split {
    /// One level for all.
    #[default]
    None,
    /// One per `priority`, the smallest number first.
    Priority,
    /// One per period, the shortest first.
    Period,
    /// One per relative deadline, the shortest first.
    Deadline,
    /// High before low.
    Criticality,
    /// One per `importance`, the largest first.
    Importance,
}

/// The order within a level. Ties: nominal arrival, then order of tasks in the file, then job number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Discipline {
    /// By release.
    Fifo,
    /// By absolute deadline.
    Deadline,
    /// By deadline minus remaining execution, remaining counted from the WCET and zero past it.
    /// Compared at releases and completions and on the node's laxity quantum.
    Laxity,
    /// By absolute deadline plus a constant per task (zero where a task is not named).
    Gel {
        /// The constant by task name; negative makes a task more urgent.
        shift: BTreeMap<String, Lateness>,
    },
}

impl Discipline {
    /// The name in a System file.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Discipline::Fifo => "fifo",
            Discipline::Deadline => "deadline",
            Discipline::Laxity => "laxity",
            Discipline::Gel { .. } => "gel",
        }
    }
}

/// The rule for a job that missed its deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Late {
    /// It goes on as if nothing had happened.
    #[default]
    Continue,
    /// It is dropped at its deadline.
    Drop,
    /// It goes on below all levels, among other demoted jobs by its old level and order. A started
    /// job of a level that is not preemptive keeps its level to its end.
    Demote,
}
