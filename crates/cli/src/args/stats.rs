//! The options of `takt stats`.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use takt_log::stats::Quantity;
use takt_model::Span;

use super::span;

/// Print the numbers of a log: per task, chain, CPU and interrupt.
///
/// docs/reference/statistics.md defines them. With --every a log that is still being written, like
/// a pipe, is reported interval by interval.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 read; 1 under --fail-on-miss: a deadline was missed, a job rejected, or a message dropped or lost; \
3 a log of another version.

Examples:
  takt stats run.takt
  takt stats run.takt --all                          executions, distances, latencies, interrupts, too
  takt sim robot.toml -o - | takt stats -
  takt sim robot.toml -o - | takt stats --every 100ms -
  takt stats run.takt --cdf response --task video    value_ns, count, probability
  takt stats seen.takt --pmf execution --irq NET_RX  the same of a softirq's handlers
  takt stats run.takt --serve 127.0.0.1:9184         metrics for Prometheus
  takt stats run.takt --json | jq '.tasks[].response_ns.p99'")]
pub(crate) struct Stats {
    /// The log; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) log: String,

    /// Print all numbers of docs/reference/statistics.md, not only the outcomes and responses of
    /// jobs. A terminal gets all rows of long tables.
    #[arg(long, conflicts_with_all = ["cdf", "pmf", "serve"])]
    pub(crate) all: bool,

    /// Only this task. Repeatable.
    #[arg(long, value_name = "NAME", conflicts_with = "serve")]
    pub(crate) task: Vec<String>,

    /// Only this interrupt or softirq. Repeatable. With --task alone, a distribution has tasks
    /// only. With --irq alone, it has interrupts only.
    #[arg(long, value_name = "NAME", conflicts_with = "serve")]
    pub(crate) irq: Vec<String>,

    /// One report per interval of this length in the log's time, as soon as the interval ends. With
    /// --json, one line each.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true,
          conflicts_with_all = ["cdf", "pmf", "serve"])]
    pub(crate) every: Option<Span>,

    /// The cumulative distribution of a time, as CSV: the share of jobs (or of an interrupt's
    /// handlers) with no larger time.
    #[arg(long, value_name = "QUANTITY", value_parser = quantities(), conflicts_with_all = ["pmf", "serve"])]
    pub(crate) cdf: Option<String>,

    /// The probability mass function of a time, as CSV: the share of jobs (or of an interrupt's
    /// handlers) with this time.
    #[arg(long, value_name = "QUANTITY", value_parser = quantities(), conflicts_with = "serve")]
    pub(crate) pmf: Option<String>,

    /// Serve the numbers so far as Prometheus metrics, at http://ADDRESS:PORT/metrics, until interrupted.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) serve: Option<String>,

    /// Exit with status 1 when a deadline was missed, a job rejected, or a message of a flow dropped or lost.
    #[arg(long)]
    pub(crate) fail_on_miss: bool,
}

fn quantities() -> PossibleValuesParser {
    PossibleValuesParser::new(Quantity::ALL.map(Quantity::name))
}
