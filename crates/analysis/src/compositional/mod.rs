//! Compositional analysis \[CSA\]: servers that give CPU time to components, their guarantees, and
//! the budgets that components need.
//!
//! | module | what |
//! |---|---|
//! | [`Supply`], [`Mpr`] | supply bound functions of PRM, EDP, polling, aligned and MPR servers |
//! | [`fp`], [`edf`] | whether the tasks of a component meet their deadlines under a supply |
//! | [`Workload::least_budget`] | the least budget for a period |
//! | [`best`] | the period and budget of the least bandwidth |
//! | [`mpr`] | components on several CPUs at once |
//! | [`rules`] | what each server rule guarantees, and why |
//!
//! Times are whole units of any length. In a System a unit is 1 ns.

pub(crate) mod around;
mod best;
pub mod edf;
pub mod fp;
mod least;
pub mod mpr;
#[cfg(test)]
mod reference;
pub mod rules;
mod share;
mod sized;
mod supply;
#[cfg(test)]
mod tests;

pub(crate) use best::aligned_periods;
pub use best::{Interface, PERIODS_MAX, Search, best};

pub use share::{share_of, with_share};
pub use sized::{QUANTUM, SizeError, SizedComponent, SizedSystem};

pub use supply::{Mpr, Supply};

use thiserror::Error;

use crate::edf::qpa::EdfTask;
use crate::fp::rta::FpTask;
use crate::verdict::Stop;

/// The tasks of a component and their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload<'a> {
    /// Fixed priorities (RM, DM or any), by the levels in the tasks.
    Fp(&'a [FpTask]),
    /// Earliest deadline first.
    Edf(&'a [EdfTask]),
}

/// The guarantee of a server with some period and budget to its component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarantee {
    /// The longest wait for the first budget.
    pub start: Start,
    /// The longest delay until supply may be used, such as a quantum of decisions.
    pub delay: u64,
    /// The latest start of the server's budget, R - Θ, if the level above bounds the server's
    /// response R (EDP). Then each budget comes by Θ and this, or by Π.
    pub wait: Option<u64>,
}

/// How long an interval may wait for the start of a period whose whole budget lies in the interval.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// Any interval of a server that keeps its budget, or uses it up as if it were busy: Π - Θ.
    /// [`Supply::prm`].
    Anywhere,
    /// Any interval of a server that gives up an unused budget: Π. [`Supply::polled`].
    Polled,
    /// Intervals that start with a period: 0. [`Supply::aligned`].
    Aligned,
}

/// The limit that ended a search without a result. Nothing is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Limit {
    /// More than [`PERIODS_MAX`] periods to try.
    #[error("the limit of {PERIODS_MAX} periods was reached")]
    Periods,
    /// So many rounds of the search for the least budget.
    #[error("the limit of {0} rounds was reached")]
    Rounds(usize),
    /// A server whose costs have no bound.
    #[error("no bound is known for the costs of its server")]
    Costs,
    /// The analysis on one CPU is undecided, or a number does not fit.
    #[error("{0}")]
    Analysis(Stop),
    /// The analysis on several CPUs is undecided.
    #[error("{0}")]
    Global(crate::global::Limit),
}

impl Limit {
    /// A number does not fit.
    pub(crate) const TIME: Limit = Limit::Analysis(Stop::Time);

    /// What helps against it.
    pub(crate) const fn remedy(self) -> &'static str {
        match self {
            Limit::Periods => "give it a coarser quantum, or a period",
            Limit::Costs => "give it a period and a budget",
            _ => "give it a coarser quantum, or a period and a budget",
        }
    }
}

impl Guarantee {
    /// PRM.
    pub const PRM: Guarantee = Guarantee { start: Start::Anywhere, delay: 0, wait: None };

    /// The supply of a server with this period and budget. `None` unless 0 < Θ <= Π.
    #[must_use]
    pub const fn supply(self, period: u64, budget: u64) -> Option<Supply> {
        let supply = match self.start {
            Start::Anywhere => Supply::prm(period, budget),
            Start::Polled => Supply::polled(period, budget),
            Start::Aligned => Supply::aligned(period, budget),
        };
        let supply = match (supply, self.wait) {
            (Some(supply), Some(wait)) if wait < period - budget => supply.by(budget + wait),
            (supply, _) => supply,
        };
        match supply {
            Some(supply) => Some(supply.delayed(self.delay)),
            None => None,
        }
    }
}

impl Start {
    /// (p, f) of the wait p Π - f Θ.
    const fn form(self) -> (i128, i128) {
        match self {
            Start::Anywhere => (1, 1),
            Start::Polled => (1, 0),
            Start::Aligned => (0, 0),
        }
    }
}
