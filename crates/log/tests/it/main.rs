//! The JobLog as its users see it.

mod collector;
mod damage;
mod example;
mod format;
mod messages;
mod quantities;
mod random;
