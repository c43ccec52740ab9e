//! The result of sizing components, and why there is none.

use serde::{Serialize, Serializer};
use takt_model::{ComponentId, Span, System};
use thiserror::Error;

use super::Limit;

/// The quantum of periods and budgets where a component has none: 1 us.
pub const QUANTUM: Span = Span::from_us(1);

/// A System with its components' periods and budgets filled in.
#[derive(Clone, PartialEq, Debug)]
pub struct SizedSystem {
    /// The System.
    pub system: System,
    /// All of its components, in file order.
    pub components: Vec<SizedComponent>,
    /// Notes on results that a reader might not expect.
    pub notes: Vec<String>,
}

/// A component with its server's period and budget.
#[derive(Clone, PartialEq, Debug)]
pub struct SizedComponent {
    /// Its index in the System.
    pub id: ComponentId,
    /// Its name.
    pub component: String,
    /// Π.
    pub period: Span,
    /// Θ.
    pub budget: Span,
    /// Whether `size` chose one of them.
    pub chosen: bool,
    /// The model of its supply:
    /// - "prm", "polled" or "aligned";
    /// - "edp" if only the early budgets of the level above suffice;
    /// - "cbs" for a task alone in a constant-bandwidth server;
    /// - "mpr" on several CPUs.
    pub supply: &'static str,
    /// The part of each budget that goes to costs.
    pub loss: Span,
    /// Sum of C / T of its tasks and inner servers, for display.
    pub workload_utilization: f64,
}

impl SizedComponent {
    /// Θ / Π, for display.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        self.budget.as_ns() as f64 / self.period.as_ns() as f64
    }
}

/// Serialises to
/// `{"component", "period_ns", "budget_ns", "bandwidth", "workload_utilization", "chosen", "supply", "loss_ns"}`.
impl Serialize for SizedComponent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut form = serializer.serialize_struct("SizedComponent", 8)?;
        form.serialize_field("component", &self.component)?;
        form.serialize_field("period_ns", &self.period.as_ns())?;
        form.serialize_field("budget_ns", &self.budget.as_ns())?;
        form.serialize_field("bandwidth", &self.bandwidth())?;
        form.serialize_field("workload_utilization", &self.workload_utilization)?;
        form.serialize_field("chosen", &self.chosen)?;
        form.serialize_field("supply", self.supply)?;
        form.serialize_field("loss_ns", &self.loss.as_ns())?;
        form.end()
    }
}

/// Why a System could not be sized.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SizeError {
    /// No server serves the component.
    #[error("component \"{component}\": {why}")]
    NotEnough {
        /// The component.
        component: String,
        /// The reason, and what to do.
        why: String,
    },
    /// The component's order, its tasks or its server's rule are not covered.
    #[error("component \"{component}\": {why}")]
    NotCovered {
        /// The component.
        component: String,
        /// Why.
        why: String,
    },
    /// A limit of the search, or of an analysis that it asks.
    #[error("component \"{component}\": undecided: {limit}; {}", .limit.remedy())]
    Limit {
        /// The component.
        component: String,
        /// Which.
        limit: Limit,
    },
}
