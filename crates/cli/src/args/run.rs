//! The options of `takt run`.

use clap::{Args, ValueEnum, ValueHint};
use takt_model::Span;
use takt_run::ServerBackEnd;

use super::{seed, span, target};
use crate::output::Target;

/// Run a system's tasks as threads of this kernel.
///
/// fp, rm, dm and fifo run under SCHED_FIFO, edf under SCHED_DEADLINE. takt's own dispatcher
/// (SCHED_FIFO) runs the rest: mlf, muf, rms+mlf, own levels by laxity, cancel, late rules, modes.
/// A budget manager on each CPU runs components. This needs CAP_SYS_NICE and CAP_IPC_LOCK (or root).
/// --best-effort needs no privilege and guarantees nothing; the log says so. Every change is undone on
/// every exit.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 ran; 1 a deadline was missed or a job rejected under --fail-on-miss, or a task may use no CPU; 3 a \
privilege, a kernel feature or a part is missing.

Examples:
  sudo takt run robot.toml
  sudo takt run robot.toml --for 30s -o run.takt
  takt run robot.toml --best-effort
  sudo takt run plant.toml --node n1
  sudo takt run servers.toml --backend deadline
  sudo takt run flight.toml --adaptive muf")]
pub(crate) struct Run {
    /// The system file, or a log that carries its system; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: String,

    /// How long; default: two hyperperiods, at most 10s.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,

    /// Seed of all randomness (execution times, sporadic arrivals).
    #[arg(long, default_value_t = 0, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// The node that this machine is. Required if the system has several.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// Run all threads under SCHED_OTHER. This needs no privilege, accepts any strategy, enforces
    /// none, and guarantees nothing.
    #[arg(long)]
    pub(crate) best_effort: bool,

    /// A SCHED_DEADLINE runtime is the wcet plus this margin. The kernel throttles a job that uses
    /// more. Default: 5 % of the wcet, at least 200us.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) margin: Option<Span>,

    /// The greatest SCHED_FIFO priority (default 48, below the interrupt threads of PREEMPT_RT): of
    /// the most important level, or of the dispatcher's timer just above. If the levels need more
    /// priorities, it rises, and a note says so.
    #[arg(long, value_name = "1..98", value_parser = clap::value_parser!(u8).range(1..=98))]
    pub(crate) priority: Option<u8>,

    /// Run even if the tasks need more of the CPUs than the kernel gives real-time threads.
    #[arg(long)]
    pub(crate) force: bool,

    /// Run only if the kernel can be recorded, too (needs root): preemptions, migrations and CPU
    /// times of jobs come from there. Without this option the kernel is recorded if possible.
    #[arg(long, conflicts_with = "no_trace")]
    pub(crate) trace: bool,

    /// Do not record the kernel.
    #[arg(long)]
    pub(crate) no_trace: bool,

    /// The back end that keeps the budgets of components. One that cannot keep all of them refuses and says why. auto
    /// takes the first that can.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = BackEnd::Auto)]
    pub(crate) backend: BackEnd,

    /// Switch to this strategy while a critical deadline is in danger, and back to the node's
    /// strategy at the next idle time. It keeps critical tasks above all others: muf, rms+mlf or an
    /// own one.
    #[arg(long, value_name = "STRATEGY", conflicts_with = "best_effort")]
    pub(crate) adaptive: Option<String>,

    /// Write the log here; - is standard output (and then no statistics are printed).
    #[arg(short, long, value_name = "LOG", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<Target>,

    /// Print all numbers: distributions, CPUs, the overhead of each thread, its stamps compared
    /// with the kernel's account.
    #[arg(long)]
    pub(crate) all: bool,

    /// Exit with status 1 when a deadline was missed, or a job rejected.
    #[arg(long)]
    pub(crate) fail_on_miss: bool,
}

/// A back end that keeps the budgets of components.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum BackEnd {
    /// The first of the others that can
    Auto,
    /// A budget manager on each CPU: all server rules
    Manager,
    /// SCHED_DEADLINE: components of one task under cbs-hard
    Deadline,
    /// A sched_ext scheduler: not in this version
    SchedExt,
}

impl BackEnd {
    pub(crate) fn asked(self) -> Option<ServerBackEnd> {
        match self {
            BackEnd::Auto => None,
            BackEnd::Manager => Some(ServerBackEnd::Manager),
            BackEnd::Deadline => Some(ServerBackEnd::Deadline),
            BackEnd::SchedExt => Some(ServerBackEnd::SchedExt),
        }
    }
}
