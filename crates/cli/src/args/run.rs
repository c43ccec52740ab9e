//! The options of `takt run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use takt_model::Span;
use takt_run::ServerBackEnd;

use super::{seed, span, target};
use crate::output::Target;

/// Run a system's tasks as threads of this kernel.
///
/// fp, rm, dm and fifo run under SCHED_FIFO, edf under SCHED_DEADLINE. takt's own dispatcher
/// (SCHED_FIFO) runs the rest: mlf, muf, rms+mlf, own levels by laxity or gel, levels by deadline below
/// others, ties, cancel, late rules, modes.
/// A budget manager on each CPU runs components. This needs CAP_SYS_NICE and CAP_IPC_LOCK (or root).
/// --best-effort needs no privilege and guarantees nothing; the log says so. Every change is undone on
/// every exit.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 ran; 1 under --fail-on-miss: a deadline was missed, a job rejected, or a message dropped or lost; \
1 also if a task may use no CPU; 3 a privilege, a kernel feature or a part is missing.

Examples:
  sudo takt run robot.toml
  sudo takt run robot.toml --for 30s -o run.takt
  takt run robot.toml --best-effort
  sudo takt run plant.toml --node n1
  sudo takt run servers.toml --backend deadline
  sudo takt run servers.toml --for 1h --admit takt.sock
  sudo takt run store.toml --node n1 --listen 10.0.0.1:7000 --peer n2=10.0.0.2:7000 --key takt.key
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
    /// the most important level, or of the dispatcher's timer or the budget managers just above. If
    /// the levels need more priorities, it rises, and a note says so.
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

    /// Let components join, change their servers and leave while the run goes on: `takt admit
    /// --live SOCKET` asks at this new Unix socket, which only this user may use. Needs components
    /// under budget managers. The kernel is not recorded.
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath, conflicts_with_all = ["adaptive", "trace"])]
    pub(crate) admit: Option<PathBuf>,

    /// Write the log here; - is standard output (and then no statistics are printed).
    #[arg(short, long, value_name = "LOG", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<Target>,

    /// Print all numbers: distributions, CPUs, the overhead of each thread, its stamps compared
    /// with the kernel's account. A terminal gets all rows of long tables.
    #[arg(long)]
    pub(crate) all: bool,

    /// Exit with status 1 when a deadline was missed, a job rejected, or a message of a flow dropped or lost.
    #[arg(long)]
    pub(crate) fail_on_miss: bool,

    /// End at once when standard input ends. So a node ends with the program that started it, after kill -9 too.
    #[arg(long = "takt-ends-with-input", hide = true)]
    pub(crate) ends_with_input: bool,

    #[command(flatten)]
    pub(crate) flows: RunFlows,
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
    /// A sched_ext scheduler, in the kernel: all rules but sporadic and grub (feature bpf)
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

/// Where messages of flows go.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options for systems with flows")]
pub(crate) struct RunFlows {
    /// Where this node receives messages.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,

    /// Where another node receives messages. Repeatable.
    #[arg(long, value_name = "NODE=ADDRESS:PORT", value_parser = node_peer)]
    pub(crate) peer: Vec<(String, SocketAddr)>,

    /// The file with the key that all nodes share: 64 hexadecimal digits. Only its owner may read it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,

    /// When all nodes begin, in seconds since 1970 (date +%s). Default: the next multiple of ten
    /// seconds that is at least two seconds ahead.
    #[arg(long, value_name = "SECONDS", value_parser = instant)]
    pub(crate) start_at: Option<u64>,

    /// Measure how the clocks of peers differ, at this port of all nodes. Deadlines of messages then
    /// follow the measured differences. Without it all nodes trust CLOCK_REALTIME.
    #[arg(long, value_name = "PORT", requires = "listen", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) clocks: Option<u16>,
}

fn node_peer(text: &str) -> Result<(String, SocketAddr), String> {
    let wrong = || "is no peer; write one like n2=10.0.0.2:7000 or n2=[fe80::2]:7000".to_owned();
    let (name, address) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    Ok((name.to_owned(), address.parse().map_err(|_| wrong())?))
}

/// Seconds since 1970, in nanoseconds.
fn instant(text: &str) -> Result<u64, String> {
    let wrong = || "is no time in seconds since 1970; $(date -d '+10 sec' +%s) is one".to_owned();
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return Err(wrong());
    }
    let second = 1_000_000_000;
    let part: u64 = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    whole.checked_mul(second).and_then(|ns| ns.checked_add(part)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_in_seconds_since_1970() {
        assert_eq!(instant("12"), Ok(12_000_000_000));
        assert_eq!(instant("1764290400.25"), Ok(1_764_290_400_250_000_000));
        for wrong in ["", "-1", "1.", ".5", "1.1234567890", "1e3", "99999999999999999999"] {
            assert!(instant(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_peer_has_a_name_and_an_address() {
        assert_eq!(node_peer("n2=[::1]:7").unwrap(), ("n2".to_owned(), "[::1]:7".parse().unwrap()));
        for wrong in ["n2", "=1.2.3.4:5", "n2=1.2.3.4", "n2=host:5"] {
            assert!(node_peer(wrong).is_err(), "{wrong}");
        }
    }
}
