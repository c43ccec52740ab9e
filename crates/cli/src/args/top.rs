//! The options of `takt top`.

use clap::{Args, ValueEnum, ValueHint};

/// Watch this machine, or a log as it comes in: CPU use, executions, responses and misses of each
/// task.
///
/// Shows each task's part of the CPUs since the last look, and since the start its executions,
/// responses, least laxity and misses. Keys: u x r l m n sort, R turns the order, / filters, space
/// pauses, arrows scroll, q quits.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 shown, 2 no log, 3 no terminal to draw on (--once needs none).

Examples:
  sudo takt top                              this machine
  sudo takt run robot.toml -o - | takt top -
  sudo takt top --once                       one table of a second of it
  takt top run.takt                          a whole log, or what comes through a FIFO
  takt top run.takt --once --sort laxity     one table, the tightest first")]
pub(crate) struct Top {
    /// The log; - is standard input. Without it: this machine, recorded as by `takt observe`.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) log: Option<String>,

    /// Print one table: of the whole log, or of a second of this machine. This is the default if
    /// standard output is no terminal. --json prints the document of `takt stats` instead.
    #[arg(long)]
    pub(crate) once: bool,

    /// The initial sort order.
    #[arg(long, value_enum, default_value_t = Sort::Utilization)]
    pub(crate) sort: Sort,

    /// Show tasks with this in their name.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) filter: String,
}

/// Sort order of rows. Rows that need attention come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Sort {
    /// The largest part of a CPU first (key u).
    Utilization,
    /// The longest execution first (x).
    Execution,
    /// The longest response first (r).
    Response,
    /// The least laxity first (l).
    Laxity,
    /// The most misses first (m).
    Misses,
    /// By name (n).
    Name,
}
