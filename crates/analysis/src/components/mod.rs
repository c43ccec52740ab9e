//! The components of a System under the tests: its tree of servers, and the tests of the tasks inside.

mod apply;
mod cbs;
mod tree;

pub(crate) use apply::{
    Tasks, TestResult, edp, mpr, on_several, overload, prm, report, responses, supply_of, to_deadline,
};
pub(crate) use cbs::{cbs, withdraw_share};
pub(crate) use tree::{Enforced, Tree, above, unit_with};
