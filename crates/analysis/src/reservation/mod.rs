//! Reservations \[SDD\]: one task, its jobs in the order of their release, alone in a reservation of Q every T.
//!
//! | module | what |
//! |---|---|
//! | [`deterministic`] | responses and pending jobs that no legal behaviour exceeds, from the least inter-arrival time and the longest job; the published conditions beside them |
//! | [`stochastic`] | the distribution of responses for random execution and inter-arrival times, and a fast bound |
//! | [`costs`] | what switching, ticks and interrupts take from the jobs and the budgets of a reservation |
//! | [`level`] | what stands beside reservations on their CPU: overheads, overruns, ordinary threads |
//! | [`dropping`] | the share of jobs that a queue of N_c loses |
//! | [`independence`] | whether samples look as the stochastic model supposes |
//! | [`Requirements`], [`reserve`] | the least Q for a wanted probability |
//!
//! Times are whole units of any length. In a System a unit is 1 ns. Probabilities are
//! floating-point numbers with proven bounds. A probability counts as met only if its lower bound
//! is at least the wanted one.

pub mod costs;
#[cfg(test)]
mod costs_tests;
mod dense;
pub mod deterministic;
pub mod dropping;
pub mod independence;
pub mod level;
mod qbd;
mod size;
pub mod stochastic;
#[cfg(test)]
mod stochastic_tests;
#[cfg(test)]
mod tests;

pub use crate::pmf::Pmf;
pub use size::{Requirements, ReserveError, Reserved, arrivals_of, exec_of, reserve};
