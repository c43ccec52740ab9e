//! The options of `takt doctor`.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use takt_linux::doctor::CATALOGUE;

use super::target;
use crate::output::Target;

/// Say what spoils real time on this machine, what it costs and how to mend it.
///
/// It looks at what the kernel says of itself: limits and privileges, other real-time threads, preemption, ticks, clock rates, idle states, interrupts, memory, a
/// hypervisor. It changes nothing.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 nothing spoils, 1 something does or cannot be told, 2 bad usage or a bad snapshot, 3 this is no Linux that tells of itself.

Examples:
  sudo takt doctor
  takt doctor --explain preemption          where it stands, what it costs, how to mend it
  takt doctor --all
  takt doctor --save machine.txt            what it read, to look at it elsewhere:
  takt doctor --from machine.txt")]
pub(crate) struct Doctor {
    /// Tell all of this finding; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(CATALOGUE.iter().map(|entry| entry.name)), hide_possible_values = true)]
    pub(crate) explain: Vec<String>,

    /// Tell all of all findings, those that are fine too.
    #[arg(long, conflicts_with = "explain")]
    pub(crate) all: bool,

    /// Write the texts that were read here; they hold the kernel's command line and the names of devices and real-time threads.
    #[arg(long, value_name = "FILE", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) save: Option<Target>,

    /// Judge the machine whose texts `--save` wrote, in place of this one; - is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "save")]
    pub(crate) from: Option<String>,
}
