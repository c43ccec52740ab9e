//! `takt infer`: its options and its help.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use takt_model::{Builtin, Span};

use super::{span, target};
use crate::output::Target;

/// Infer a system from a log: periodic tasks with period, offset and jitter, execution times,
/// chains.
///
/// Only events count, not the parameters in the log. Each statement comes with the number of its
/// jobs and a share: at least this share of jobs keeps to it (at 95 % confidence, if later jobs are
/// like the seen jobs). An observed maximum is no worst case.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 inferred; 1 --period-of a task that is not periodic, no job in the log, or no task to write; 3 a log \
of another version.

Examples:
  takt infer run.takt
  takt infer run.takt -o inferred.toml       a system that check, sim and size take
  takt infer run.takt -o - | takt check -
  takt infer run.takt --task video --json
  takt infer run.takt --period-of video      the period alone, for scripts
  takt infer --releases camera.csv           times of releases in nanoseconds, one a line
  takt infer --releases a.csv --releases b.csv --wcet 2ms -o system.toml")]
pub(crate) struct Infer {
    /// The log; - is standard input.
    #[arg(value_hint = ValueHint::FilePath, required_unless_present = "releases", conflicts_with = "releases")]
    pub(crate) log: Option<String>,

    /// Infer from releases alone. Each line is a job: RELEASE or RELEASE,EARLIEST,LATEST in
    /// nanoseconds. Each file is a task with the file's name. Repeatable.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) releases: Vec<String>,

    /// Only this task. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Print the period of this task and nothing else.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["task", "output"])]
    pub(crate) period_of: Option<String>,

    /// Use releases as arrivals, even if the log has nominal arrivals.
    #[arg(long, conflicts_with = "releases")]
    pub(crate) ignore_arrivals: bool,

    /// Write the system here, with the evidence in comments; - is standard output (and then no table is printed).
    #[arg(short, long, value_name = "FILE", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<Target>,

    /// The strategy of the written system. Default: the log's strategy if it needs no priorities,
    /// else edf.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Builtin::ALL.map(Builtin::name)),
          requires = "output")]
    pub(crate) strategy: Option<String>,

    /// The wcet of tasks without observed executions. Without this option, the written system omits
    /// them.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "output")]
    pub(crate) wcet: Option<Span>,

    /// Bind tasks of the written system to the CPUs on which they ran.
    #[arg(long, requires = "output")]
    pub(crate) bind: bool,
}
