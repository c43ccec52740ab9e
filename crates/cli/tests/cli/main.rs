//! The command from outside.

mod examples;
mod files;
mod folder;
mod help;
mod lab;
mod pictures;
mod pipes;
mod runs;
mod sizing;
mod usage;
