//! Fixed priorities on one CPU.

pub mod hyperbolic;
pub mod levels;
pub mod limited;
pub mod ll_bound;
pub mod offsets;
pub mod opa;
pub mod rta;
