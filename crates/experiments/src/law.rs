//! The controller of a node, with bounds that the analysis proves.
//!
//! The command uses this module too. It stands in this crate because no crate below sees both the
//! analysis and the dispatcher.

use takt_analysis::{CheckOptions, check};
use takt_dispatch::{Adaptive, Plan};

/// The controller of a plan whose mode 1 is the guard.
///
/// For each critical operation the controller gets the longest response that the analysis finds
/// under the guard. [`Adaptive::danger`] derives from it when the operation is in danger.
#[must_use]
pub fn law(plan: &Plan) -> Adaptive {
    let law = Adaptive::between(0, 1);
    let response = |law: Adaptive, row: &takt_dispatch::Row| {
        let Some(guarded) = plan.guarded(law.guard, &row.name) else { return law };
        let report = check(&guarded, &CheckOptions::default());
        match guarded.task_by_name(&row.name).and_then(|task| report.bound_of(task)) {
            Some(bound) => law.response(&row.name, bound),
            None => law,
        }
    };
    plan.rows.iter().fold(law, response)
}
