//! `takt reserve`: its options and its help.

use clap::{Args, ValueEnum, ValueHint};
use takt_model::{Probability, Span};
use takt_run::reserve::Budget;

use super::{share, span};

/// Reserve CPU time for a command or for threads that run already: SCHED_DEADLINE, and back.
///
/// A thread gets RUNTIME of CPU time in every PERIOD, independent of other threads, while takt
/// runs. takt ends when the command or the threads end, --for is over, or a signal comes. Then the
/// thread gets its old scheduling back, even after a kill -9 of takt. Threads that it starts
/// meanwhile are ordinary.
///
/// With --auto takt first records the thread and infers its period and execution times. It sizes
/// the reservation so that a share of the jobs (--probability) is done by their deadline. It sets
/// the reservation, records again, and shows both recordings side by side.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Exit status: 0 reserved; 1 COMMAND failed, or --auto could not tell what to reserve; 2 no such thread, \
interrupt or command, or parameters that no kernel takes; 3 this machine cannot, or not this \
much (the message gives the reason and the largest size that fits); 4 the kernel refused a step, or a file cannot \
be written.

Examples:
  sudo takt reserve --runtime 12ms --period 40ms -- ./player film.ogv
  sudo takt reserve --runtime 2ms --period 10ms --deadline 5ms --pid 4711
  sudo takt reserve --runtime 2ms --period 10ms --pid 4711 --threads --for 1min
  sudo takt reserve --runtime 2ms --period 10ms --irq eth0 --all-cpus    the threads that receive eth0's packets
  sudo takt reserve --runtime 12ms --period 40ms --pid 4711 --dry-run    would it be admitted?
  sudo takt reserve --budget cgroup --runtime 12ms --period 40ms -- ./encoder    a limit, shared with its \
  children
  sudo takt reserve --auto --pid 4711
  sudo takt reserve --auto --probability 0.999 --deadline 20ms --for 5min -- ./player film.ogv
  sudo takt reserve --runtime 12ms --period 40ms --observe 10s --pid 4711    did it help?"
)]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["pid", "irq", "command"]))]
pub(crate) struct Reserve {
    /// CPU time in every period, 1024ns or more.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "period",
          required_unless_present = "auto")]
    pub(crate) runtime: Option<Span>,

    /// The period: from 100us to 4.19s, unless the machine is set otherwise.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "runtime",
          required_unless_present = "auto")]
    pub(crate) period: Option<Span>,

    /// The deadline of the CPU time, from the start of a period. With --auto: the deadline of jobs,
    /// from their arrival. Default: the period.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) deadline: Option<Span>,

    /// Record the thread first, and reserve the CPU time that it needs.
    #[arg(long, conflicts_with_all = ["runtime", "period", "threads"])]
    pub(crate) auto: bool,

    /// With --auto: the share of jobs that should meet their deadlines. 1 reserves for the longest
    /// observed execution.
    #[arg(long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true, default_value = "0.99",
          requires = "auto")]
    pub(crate) probability: Probability,

    /// With --auto: time added to each observed execution. Default: 5 % of the longest, at least
    /// 200us, as for `takt run`.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "auto")]
    pub(crate) margin: Option<Span>,

    /// Record the thread for this time before the reservation and again with it, and show both.
    /// Default with --auto: until enough jobs were seen, at most 1min.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, conflicts_with = "threads")]
    pub(crate) observe: Option<Span>,

    /// The mechanism. A control group limits threads and prefers them to others, but guarantees
    /// nothing. It serves threads that SCHED_DEADLINE refuses. Default: deadline. If SCHED_DEADLINE
    /// refuses the thread under --auto: cgroup, with a note.
    #[arg(long, value_name = "BY", value_enum)]
    pub(crate) budget: Option<BudgetKind>,

    /// Also use the unused time of other reservations, beyond RUNTIME (GRUB).
    #[arg(long)]
    pub(crate) reclaim: bool,

    /// Reserve for this thread. For a process, this is its first thread. Repeatable.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) pid: Vec<u32>,

    /// Reserve for each present thread of the processes of --pid.
    #[arg(long, requires = "pid")]
    pub(crate) threads: bool,

    /// Reserve for each kernel thread that serves this interrupt, by its number or handler
    /// (irq/24-eth0), or that receives the packets of this network device (napi/eth0-1). * stands
    /// for any characters. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) irq: Vec<String>,

    /// Allow the threads all CPUs meanwhile, which SCHED_DEADLINE demands.
    #[arg(long, conflicts_with = "command")]
    pub(crate) all_cpus: bool,

    /// How long the reservation lasts. Default: until the command or the threads end, or a signal
    /// comes. takt ends a command that still runs then.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,

    /// Print the reservation and whether the kernel would admit it, and change nothing. With --auto
    /// this comes after the first recording.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Start this command with the reservation. takt passes its signals on to the command.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
}

/// The mechanism that gives the time.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BudgetKind {
    /// SCHED_DEADLINE: RUNTIME in every PERIOD is guaranteed.
    Deadline,
    /// A control group of its own: at most RUNTIME in every PERIOD, before other ordinary threads; guarantees nothing.
    Cgroup,
}

impl Reserve {
    /// The mechanism, unless --auto finds it impossible.
    pub(crate) fn by(&self) -> Budget {
        self.budget.map_or(Budget::Deadline, Budget::from)
    }

    /// Whether a control group may take the place of SCHED_DEADLINE: nobody asked for what only that has.
    pub(crate) fn may_be_limited_instead(&self) -> bool {
        self.auto && self.budget.is_none() && !self.reclaim && !self.all_cpus
    }
}

impl From<BudgetKind> for Budget {
    fn from(by: BudgetKind) -> Budget {
        match by {
            BudgetKind::Deadline => Budget::Deadline,
            BudgetKind::Cgroup => Budget::Group,
        }
    }
}
