//! The options of `takt reproduce`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use takt_model::Span;

use super::lab::kernel;
use super::{seed, span};
use takt_experiments::NAMES;

/// Repeat an experiment of a paper on this machine, and compare the results with the paper's.
///
/// Threads of takt do the work of the paper's programs, in the paper's scheduling classes, while
/// the kernel is recorded. The answer is whether the paper's claims hold here. Claims are about
/// order and proportion, never about absolute times. Differences on this kernel are listed with
/// their reasons. A folder gets the page, the charts, the tables as CSV and the logs. Every change
/// is undone, after Ctrl-C too.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 the paper's claims hold here, 1 one does not, or could not be decided; 3 a privilege or a kernel \
feature is missing.

Examples:
  takt reproduce --list                     the experiments, with paper, needs and duration
  sudo takt reproduce sdd-table1
  sudo takt reproduce sdd-table1 --for 1min --out table1
  sudo takt reproduce sdd-fig5 --short --json
  sudo takt reproduce hedf-fig6 --live
  takt reproduce sdd-throughput --lab --binary target/lab/takt")]
pub(crate) struct Reproduce {
    /// The experiment; `--list` names them.
    #[arg(value_name = "NAME", required_unless_present = "list", value_parser = PossibleValuesParser::new(NAMES))]
    pub(crate) name: Option<String>,

    /// List the experiments.
    #[arg(long, conflicts_with = "name")]
    pub(crate) list: bool,

    /// Write page, charts, tables and logs into this folder, and replace older ones. Default: a
    /// folder of the experiment's name.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<String>,

    /// How long each measurement lasts. Default: as `--list` says.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,

    /// How often to measure each value that the paper averages (sdd-throughput), or how many workloads to
    /// simulate for each setting (csa-fig4 to csa-fig6 and csa-open, without --live and --lab). Default: 3, with
    /// --short 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000),
          allow_negative_numbers = true)]
    pub(crate) repeat: Option<u32>,

    /// Shorten all measurements. Some claims may stay undecided.
    #[arg(long)]
    pub(crate) short: bool,

    /// Measure a simulated experiment on this kernel, and set the simulation beside it (csa-fig4 to
    /// csa-fig7, hedf-ki, hedf-fig4 to hedf-fig6). For those of hedf eight nodes in network namespaces
    /// are made, and removed at the end.
    #[arg(long, conflicts_with = "list")]
    pub(crate) live: bool,

    /// Measure on a kernel of the lab, in virtual time: the interrupt threads of emulated disks
    /// (sdd-throughput) and network cards (sdd-tradeoff), or domains under sched_ext (csa-fig4 to
    /// csa-fig7). Needs no root.
    #[arg(long, conflicts_with_all = ["list", "live"])]
    pub(crate) lab: bool,

    #[command(flatten)]
    pub(crate) guest: ReproduceGuest,

    /// Seed of all randomness.
    #[arg(long, default_value_t = 0, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,
}

/// The guest of `--lab`.
#[derive(Args, Debug)]
pub(crate) struct ReproduceGuest {
    /// With --lab: the kernel, as for takt lab run.
    #[arg(long, value_name = "NAME|PATH", default_value = "rt", requires = "lab", value_parser = kernel)]
    pub(crate) kernel: String,

    /// With --lab: the folder of fetched kernels. Default: as for takt lab run.
    #[arg(long, value_name = "DIR", requires = "lab", value_hint = ValueHint::DirPath)]
    pub(crate) cache: Option<PathBuf>,

    /// With --lab: the static takt for the guest. Default: this program, if it is static.
    #[arg(long, value_name = "FILE", requires = "lab", value_hint = ValueHint::FilePath)]
    pub(crate) binary: Option<PathBuf>,
}
