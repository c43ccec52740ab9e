//! Fixed priorities on one CPU.

pub mod hyperbolic;
pub mod ll_bound;
pub mod rta;
