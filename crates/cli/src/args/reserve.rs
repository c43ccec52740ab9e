//! `takt reserve`: its options and its help.

use clap::{Args, ValueHint};
use takt_model::Span;

use super::span;

/// Reserve CPU time for a command or for threads that run already: SCHED_DEADLINE, and back.
///
/// A thread gets RUNTIME of CPU time in every PERIOD, whatever the others do, for as long as takt runs: until the command has ended, the threads
/// have, --for is over, or a signal comes. Then it has again what it had, after a kill -9 of takt, too. What it starts meanwhile is ordinary.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Exit status: 0 reserved; 1 COMMAND failed; 2 no such thread or command, or parameters that no kernel takes; 3 this machine cannot, or not
so much: the message says why, and what would fit.

Examples:
  sudo takt reserve --runtime 12ms --period 40ms -- ./player film.ogv
  sudo takt reserve --runtime 2ms --period 10ms --deadline 5ms --pid 4711
  sudo takt reserve --runtime 2ms --period 10ms --pid 4711 --threads --for 1min
  sudo takt reserve --runtime 12ms --period 40ms --pid 4711 --dry-run    would it be admitted?"
)]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["pid", "command"]))]
pub(crate) struct Reserve {
    /// CPU time in every period, 1024ns or more.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "period", required = true)]
    pub(crate) runtime: Option<Span>,

    /// The period: from 100us to 4.19s, unless the machine is set otherwise.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "runtime", required = true)]
    pub(crate) period: Option<Span>,

    /// By when after the beginning of a period its time is given. Default: the period.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) deadline: Option<Span>,

    /// Also use what reservations of others leave unused, beyond RUNTIME (GRUB).
    #[arg(long)]
    pub(crate) reclaim: bool,

    /// For this thread, of a process its first one; may be given several times.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) pid: Vec<u32>,

    /// For all threads that the processes of --pid have now, for each so much.
    #[arg(long, requires = "pid")]
    pub(crate) threads: bool,

    /// Let threads that may use some CPUs only run on all CPUs meanwhile, which SCHED_DEADLINE wants.
    #[arg(long, requires = "pid")]
    pub(crate) all_cpus: bool,

    /// How long. Default: until the command or the threads end, or a signal comes. A command that still runs then is told to end.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,

    /// Say what would be done, and whether the kernel would admit it; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Start this command with the reservation. Signals that takt gets are handed on to it.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
}
