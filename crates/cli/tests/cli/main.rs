//! The command from outside.

mod examples;
mod files;
mod folder;
mod help;
mod lab;
mod live_logs;
mod pictures;
mod pipes;
mod runs;
mod sizing;
mod usage;
