//! Reservations \[SDD\]: one task, its jobs in the order of their release, alone in a reservation of Q every T.
//!
//! | module | what |
//! |---|---|
//! | [`deterministic`] | responses and pending jobs that no legal behaviour exceeds, from the least inter-arrival time and the longest job; the published conditions beside them |
//!
//! Times are whole units, of whatever length: ns in a System.

mod apply;
pub mod deterministic;
#[cfg(test)]
mod tests;

pub(crate) use apply::cbs;
