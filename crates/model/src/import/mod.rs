//! Foreign workloads as Systems.

mod json;
pub mod rtapp;
