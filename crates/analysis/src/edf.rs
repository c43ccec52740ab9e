//! Earliest deadline first on one CPU.

pub mod density;
pub mod np;
pub mod qpa;
pub mod wcrt;
