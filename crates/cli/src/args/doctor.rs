//! The options of `takt doctor`.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use takt_linux::doctor::probe::WORKING_SET_MAX;
use takt_linux::doctor::{CATALOGUE, PROBED};
use takt_model::{Bytes, Span};

use super::{bytes, span, target};
use crate::output::Target;

/// Report causes of latency on this machine, their costs and the remedies.
///
/// It reads the kernel's settings: limits and privileges, other real-time threads, preemption,
/// ticks, clock rates, idle states, interrupts, memory, a hypervisor. Then real-time threads
/// measure for some seconds: lateness of timers, interruptions of threads, and the costs of a
/// switch, a migration, a release and a tick. With -o the costs go into a system file, for check
/// and sim to charge. No other file or setting is changed.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 no problem; 1 a problem, a warning or something unknown; 2 bad usage or a bad file; 3 /proc does \
not give the kernel's release, or nothing could be measured for -o.

Examples:
  sudo takt doctor
  sudo takt doctor -o robot.toml            measured costs into robot.toml, its comments kept
  sudo takt doctor --for 10min --charge max -o robot.toml
  takt doctor --quick                       without measuring
  takt doctor --explain preemption          its place, its cost and its remedy
  takt doctor --all
  takt doctor --save machine.txt            the texts that it read, for another machine:
  takt doctor --from machine.txt")]
pub(crate) struct Doctor {
    /// The system file that gets the costs of -o. Default: the file of -o; a missing file is
    /// created.
    #[arg(value_hint = ValueHint::FilePath, requires = "output")]
    pub(crate) file: Option<String>,

    /// Write the system with the measured costs here, its comments kept; - is standard output (and
    /// then nothing else is printed there).
    #[arg(short, long, value_name = "FILE", value_parser = target, value_hint = ValueHint::FilePath,
          conflicts_with_all = ["quick", "from"])]
    pub(crate) output: Option<Target>,

    /// The node that this machine is. Required if the system has several.
    #[arg(long, value_name = "NAME", requires = "output")]
    pub(crate) node: Option<String>,

    /// The measured value to charge. None of them is a bound.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Charge::P99)]
    pub(crate) charge: Charge,

    /// How long to watch timers, at most 1h. Pauses and ticks are watched for the same time, up to
    /// 10s. A switch, a release and a migration are measured for half of it each, up to 2s.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true, default_value = "1s",
          conflicts_with_all = ["quick", "from"])]
    pub(crate) duration: Span,

    /// The working set of a job, at most 1MiB. A job fetches it again after a migration.
    #[arg(long, value_name = "SIZE", value_parser = working_set, default_value = "64KiB",
          conflicts_with_all = ["quick", "from"])]
    pub(crate) wss: Bytes,

    /// Measure nothing.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Show all details of this finding. Repeatable.
    #[arg(long, value_name = "NAME", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(CATALOGUE.iter().map(|entry| entry.name)
              .chain(PROBED.iter().map(|(name, _)| *name))))]
    pub(crate) explain: Vec<String>,

    /// Show all details of all findings, also of those without a problem.
    #[arg(long, conflicts_with = "explain")]
    pub(crate) all: bool,

    /// Write the texts that takt read here. They contain the kernel's command line and the names of
    /// devices and real-time threads.
    #[arg(long, value_name = "FILE", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) save: Option<Target>,

    /// Report on the machine whose texts `--save` wrote, not on this one; - is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "save")]
    pub(crate) from: Option<String>,
}

/// The charged value of a distribution.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Charge {
    /// The median.
    P50,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// The largest measured value.
    Max,
}

impl Charge {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Charge::P50 => "p50",
            Charge::P99 => "p99",
            Charge::P999 => "p999",
            Charge::Max => "max",
        }
    }

    /// For people.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Charge::P50 => "the median",
            Charge::P99 => "the 99th percentile",
            Charge::P999 => "the 99.9th percentile",
            Charge::Max => "the maximum",
        }
    }
}

fn working_set(text: &str) -> Result<Bytes, String> {
    match bytes(text)? {
        size if size.get() > WORKING_SET_MAX.get() => {
            Err("is more than 1MiB: walking through it would keep a CPU busy".to_owned())
        }
        size => Ok(size),
    }
}
