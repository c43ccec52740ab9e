//! The command line: every verb, its options and its help.

mod doctor;
mod generate;
mod infer;
mod lab;
mod net;
mod net_probe;
mod observe;
mod reproduce;
mod reserve;
mod run;
mod stats;
mod study;
mod top;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use takt_analysis::distributed::assign::Choice;
use takt_model::{Probability, ServerRule, Span};
use takt_report::svg::WIDTH_MIN;

pub(crate) use doctor::{Charge, Doctor};
pub(crate) use generate::{Gen, Profile};
pub(crate) use infer::Infer;
pub(crate) use lab::{
    DeviceSet, Lab, LabAction, LabExperiments, LabFetch, LabKernel, LabPlay, LabRepeat, LabRun, Module,
};
pub(crate) use net::{
    ApplyDiscipline, ApplyLate, BrokerLate, BrokerOrder, ClockPeer, Net, NetAction, NetApply, NetBroker, NetClock,
    NetDoctor, NetRemove, NetShow,
};
pub(crate) use net_probe::{NetProbe, ProbeCommon, ProbeGenerated, ProbeMode, ProbePlayback, ProbeServe};
pub(crate) use observe::Observe;
pub(crate) use reproduce::Reproduce;
pub(crate) use reserve::Reserve;
pub(crate) use run::{BackEnd, Run, RunFlows};
pub(crate) use stats::Stats;
pub(crate) use study::{List, OTHERS, Study};
pub(crate) use top::{Sort, Top};

use crate::output::Target;

const AFTER: &str = "\
Exit status: 0 yes, 1 no or undecided, 2 bad usage or input, 3 this machine or version cannot, 4 I/O error, bound \
or bug.

Examples:
  takt check robot.toml                      do the tasks meet their deadlines?
  takt sim robot.toml -o - | takt stats -    simulate, and read the log from a pipe
  sudo takt run robot.toml -o run.takt       run the tasks as threads of this kernel
  takt report robot.toml run.takt            theory, simulation and reality on one page";

/// Real-time scheduling for stock Linux: describe tasks and their deadlines. takt proves the
/// deadlines, simulates the tasks, runs them on your kernel, and compares all three.
#[derive(Parser, Debug)]
#[command(name = "takt", version, after_help = AFTER, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Takt {
    /// Print the answer as JSON on standard output (`takt man` and docs/reference/json.md name the keys).
    #[arg(long, global = true, display_order = 990)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    Check(Check),
    Verify(Verify),
    Admit(Admit),
    Size(Size),
    Gen(Gen),
    Study(Box<Study>),
    Sim(Sim),
    Run(Run),
    Doctor(Doctor),
    Infer(Infer),
    Observe(Box<Observe>),
    Reproduce(Reproduce),
    Reserve(Box<Reserve>),
    Net(Net),
    Lab(Box<Lab>),
    Stats(Stats),
    Top(Top),
    Diff(Diff),
    Chart(Chart),
    Report(Report),
    Export(Export),
    Import(Import),
    Schema(Schema),
    Completions(Completions),
    Man(Man),
}

/// Prove deadlines: run schedulability tests on a system.
///
/// Runs the cheapest test first, until one decides, and then the cheapest test that bounds response
/// times. "yes" is a proof, "no" has a witness, and "unknown" has a reason.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 schedulable; 1 not schedulable or not proven; 3 the verdict has no certificate, or --linux charges \
time beside --sensitivity or --certificate.

Examples:
  takt check robot.toml
  takt check robot.toml --all --json
  takt check robot.toml --test rta --test qpa
  takt check robot.toml --explain           where is it tightest, and what takes the time there?
  takt check robot.toml --sensitivity       how much may each wcet grow?
  takt check robot.toml --certificate robot.proof
  takt check robot.toml --linux             also: would this kernel admit the tasks?
  takt check robot.toml --linux=cpus=4      ... or a stock kernel on 4 CPUs?
  takt check --list                         the tests, and what each decides")]
pub(crate) struct Check {
    /// The system file, or a log that carries its system; - is standard input.
    #[arg(value_hint = ValueHint::FilePath, required_unless_present = "list")]
    pub(crate) file: Option<String>,

    /// Run every applicable test, even if it adds nothing. A terminal gets all rows of long tables.
    #[arg(long, conflicts_with = "test")]
    pub(crate) all: bool,

    /// Run this test alone; may be given several times. `takt check --list` names them.
    #[arg(long, value_name = "NAME", value_parser = test_names())]
    pub(crate) test: Vec<String>,

    /// Show what binds each verdict: the task, window or point with the least to spare, with the
    /// work of each task in it.
    #[arg(long)]
    pub(crate) explain: bool,

    /// Search how far each wcet may grow, each period shrink and the whole load scale before the
    /// verdict turns. If the system is not proven: how far they must go back.
    #[arg(long, conflicts_with = "test")]
    pub(crate) sensitivity: bool,

    /// Write a proof of the verdict here; - is standard output (then no report is printed).
    /// `takt verify` checks it without searching.
    #[arg(long, value_name = "FILE", value_parser = target, value_hint = ValueHint::FilePath,
          conflicts_with_all = ["test", "list"])]
    pub(crate) certificate: Option<Target>,

    /// List the tests, each with its decision, its preconditions and its source.
    #[arg(long)]
    pub(crate) list: bool,

    /// Also give the answer of SCHED_DEADLINE's admission control, and charge the time that the
    /// kernel may take for ordinary threads. MACHINE is this machine, or KEY=VALUE,... Its keys are
    /// cpus (1 if it is not given), hz (of its ticks), rt-runtime-us (-1: no admission control),
    /// rt-period-us, fair-server and throttling. Throttling is on or off. The fair server is on, off
    /// or starved: it then acts only if ordinary threads starve.
    #[arg(long, value_name = "MACHINE", num_args = 0..=1, require_equals = true, default_missing_value = "this")]
    pub(crate) linux: Option<String>,

    /// The runtime for the kernel is the wcet plus this margin (with --linux). Default, as for
    /// `run`: 5 % of the wcet, at least 200us.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "linux")]
    pub(crate) margin: Option<Span>,
}

/// Check a proof that `takt check --certificate` wrote.
///
/// The checker is small, shares no code with the tests and does not search. It reads the system and
/// the certificate and checks each claim. docs/reference/certificate.md lists the parts that it
/// trusts.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 accepted, whether it proves or refutes; 1 rejected; 2 no certificate; 3 a certificate of another version.

Examples:
  takt check robot.toml --certificate robot.proof
  takt verify robot.toml robot.proof
  takt check robot.toml --certificate - | takt verify robot.toml - --json")]
pub(crate) struct Verify {
    /// The system file; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) system: String,

    /// The certificate; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) certificate: String,
}

/// Add tasks, components and flows to a proven system, or remove them.
///
/// If the system would not stay proven, nothing changes.
///
/// The verdict is that of `check`, but only changed parts are tested: CPUs, levels of components,
/// nodes of flows. The change is admitted as a whole, on all nodes, or not at all.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 admitted, 1 not proven with the change (or before it), and nothing written.

Examples:
  takt admit robot.toml --add arm.toml            arm.toml holds [[task]] entries
  takt admit robot.toml --add arm.toml -o robot.toml
  takt admit robot.toml --remove camera -o -
  takt admit robot.toml --remove vision --remove camera --add arm.toml
                                                  all at once: the component, its task, and what replaces them
  takt admit --live takt.sock --add vision.toml   vision.toml holds a [[component]] and its [[task]] entries
  takt admit --live takt.sock --change vision --budget 4ms
  takt admit --live takt.sock --remove vision")]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["add", "remove", "change"]))]
pub(crate) struct Admit {
    /// The system file.
    #[arg(value_hint = ValueHint::FilePath, required_unless_present = "live", conflicts_with = "live")]
    pub(crate) file: Option<String>,

    /// Change the running system of `takt run --admit SOCKET` instead of a file, one change at a
    /// time. Components join with their tasks, change their servers, or leave.
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) live: Option<PathBuf>,

    /// Give the server of this running component another rule, period or budget, from the end of
    /// its period on.
    #[arg(long, value_name = "NAME", requires = "live")]
    pub(crate) change: Option<String>,

    /// The server's rule from then on.
    #[arg(long, value_name = "RULE", value_parser = server_rule, requires = "change")]
    pub(crate) rule: Option<ServerRule>,

    /// The server's period from then on.
    #[arg(long, value_name = "TIME", value_parser = span, requires = "change")]
    pub(crate) period: Option<Span>,

    /// The server's budget from then on.
    #[arg(long, value_name = "TIME", value_parser = span, requires = "change")]
    pub(crate) budget: Option<Span>,

    /// Add the tasks, components and flows of this file, which is read as if it stood at the end of
    /// the system file; - is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) add: Option<String>,

    /// Remove the task, component or flow of this name. The option may be given several times; all
    /// parts go at once. If a name is ambiguous, write task:NAME, component:NAME or flow:NAME.
    #[arg(long, value_name = "NAME")]
    pub(crate) remove: Vec<String>,

    /// Write the changed system here, and keep its comments; - is standard output (then nothing
    /// else is printed there).
    #[arg(short, long, value_name = "FILE", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<Target>,
}

/// Fill in the open values of a system file: periods and budgets of components, CPUs of tasks.
///
/// A component's `"auto"` becomes the least budget for its period, the longest period for its
/// budget, or the pair with the least bandwidth. Values are multiples of its quantum (1us without
/// one). Tasks and servers of partitioned and clustered nodes are bound to CPUs. The result is checked.
///
/// Flows: --deadlines shares their end-to-end deadlines among their hops. --receive-cost and
/// --send-cost size the tasks that receive and send messages. --network-delay shares the network's
/// bandwidth among the nodes and finds the delays of messages, ports of switches included.
///
/// With --reserve, instead: the least budget of a reservation (a constant-bandwidth server,
/// SCHED_DEADLINE). In it one task meets its deadline with a wanted probability. Execution times
/// and arrivals come from the file or from a log.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 sized, and schedulable; 1 no budget is enough, or not proven schedulable with them; 4 a limit was \
reached.

Examples:
  takt size avionics.toml
  takt size avionics.toml -o sized.toml
  takt size avionics.toml -o - | takt check -
  takt size avionics.toml --json
  takt size store.toml --deadlines search -o sized.toml
  takt size store.toml --receive-cost 20us --send-cost 15us --table-periods
  takt size store.toml --network-delay 2ms --weigh messages
  takt size player.toml --reserve video --period 20ms --probability 0.99
  takt size irq.toml --reserve eth0 --period 1ms --probability 0.999 --pending 8 --log eth0.takt")]
pub(crate) struct Size {
    /// The system file; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: String,

    /// Write the system with all values here, and keep its comments; - is standard output (then no
    /// table is printed).
    #[arg(short, long, value_name = "FILE", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<Target>,

    /// Let jobs run to completion within the levels of the nodes' strategies. takt's dispatcher
    /// does so if SCHED_FIFO has too few priorities for jobs that preempt each other.
    #[arg(long, conflicts_with = "reserve")]
    pub(crate) run_to_completion: bool,

    /// Share the end-to-end deadlines of flows without hop deadlines: even shares, shares in
    /// proportion to the hops' needs, equal slack, equal flexibility, effective deadlines, or a
    /// search for the largest margin.
    #[arg(long, value_name = "CHOICE", value_parser = PossibleValuesParser::new(Choice::ALL.map(Choice::name)),
          conflicts_with = "reserve")]
    pub(crate) deadlines: Option<String>,

    /// Execution per message received: finds the least wcet of receiving and sending tasks.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "send_cost",
          conflicts_with = "reserve")]
    pub(crate) receive_cost: Option<Span>,

    /// Execution per message sent.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "receive_cost")]
    pub(crate) send_cost: Option<Span>,

    /// Also choose the periods of receiving and sending tasks, for the least CPU time.
    #[arg(long, requires = "receive_cost")]
    pub(crate) table_periods: bool,

    /// Periods and wcets of receiving and sending tasks are multiples of this. Default: 1us.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "receive_cost")]
    pub(crate) table_quantum: Option<Span>,

    /// Find the least bandwidth with which no message takes longer than this from its sending task
    /// to its receiver, ports on its way included. Also find each node's share and the delays from
    /// node to node. -o writes the delays into the file.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, conflicts_with = "reserve")]
    pub(crate) network_delay: Option<Span>,

    /// Share the bandwidth by bytes or messages per second, or evenly (fair). Default: bytes.
    #[arg(long, value_name = "BY", value_parser = PossibleValuesParser::new(["bytes", "messages", "fair"]),
          requires = "network_delay")]
    pub(crate) weigh: Option<String>,

    /// Size a reservation that holds only this task.
    #[arg(long, value_name = "TASK", requires = "probability")]
    pub(crate) reserve: Option<String>,

    /// The reservation's period, at best a divisor of the times between arrivals. Default: the
    /// period of the component that holds the task alone.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "reserve")]
    pub(crate) period: Option<Span>,

    /// The share of jobs that should meet the deadline, above 0 and at most 1.
    #[arg(long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true, requires = "reserve")]
    pub(crate) probability: Option<Probability>,

    /// The deadline, rounded down to whole periods. Default: the task's.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "reserve")]
    pub(crate) deadline: Option<Span>,

    /// The most jobs that can be pending. Further jobs are lost. The wanted share then also bounds
    /// the share of jobs that are not lost.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true,
          requires = "reserve")]
    pub(crate) pending: Option<u32>,

    /// The budget is a multiple of this, and execution times are rounded up to it. Default: the
    /// component's quantum, or a hundredth of the period.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, requires = "reserve")]
    pub(crate) quantum: Option<Span>,

    /// Take execution times and arrivals from this log, not from the file.
    #[arg(long, value_name = "LOG", value_hint = ValueHint::FilePath, requires = "reserve")]
    pub(crate) log: Option<String>,
}

/// Simulate a system in virtual time.
///
/// The same file and seed give the same log, on every machine. A simulation without a miss is
/// rarely a proof: the page of sim says when it is. `takt check` proves.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 simulated; 1 under --fail-on-miss: a deadline was missed, or a message dropped or lost; 1 also if a \
task may use no CPU; 3 a part that this version cannot simulate.

Examples:
  takt sim robot.toml
  takt sim robot.toml --for 60s --seed 7 -o robot.takt
  takt sim robot.toml -o - | takt stats -
  takt sim robot.toml --runs 100 --json      100 seeds, merged, with confidence intervals
  takt sim store.toml --delays worst         the largest end-to-end responses that a search finds
  takt sim flight.toml --adaptive rms+mlf    strategy = \"rm\" while nothing critical is in danger")]
pub(crate) struct Sim {
    /// The system file, or a log that carries its system; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: String,

    /// How long in virtual time; default: two hyperperiods, at most 10s.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,

    /// Seed of all randomness.
    #[arg(long, default_value_t = 0, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// Simulate N times, with the seeds SEED, SEED+1, ..., on all CPUs, and merge the statistics.
    /// With --delays worst: simulations of the search at most, 600 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) runs: Option<u32>,

    /// Delays of flows' messages. "worst" searches for the largest end-to-end responses and prints
    /// commands that repeat them, with a list like put@1ms,put/0=max~3-5 here.
    #[arg(long, value_name = "worst|LIST", conflicts_with = "adaptive")]
    pub(crate) delays: Option<String>,

    /// Only this node.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// Switch to this strategy while a critical deadline is in danger, and back to the node's
    /// strategy at the next idle time. It keeps critical tasks above all others: muf, rms+mlf or an
    /// own one.
    #[arg(long, value_name = "STRATEGY")]
    pub(crate) adaptive: Option<String>,

    /// Write the log here; - is standard output (and then no statistics are printed).
    #[arg(short, long, value_name = "LOG", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<Target>,

    /// Exit with status 1 when a deadline was missed, or a message of a flow was dropped or lost.
    #[arg(long)]
    pub(crate) fail_on_miss: bool,
}

/// Compare two logs job by job.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 the logs agree within the tolerance, 1 they differ.

Examples:
  takt diff before.takt after.takt
  takt diff sim.takt run.takt --tolerance 200us")]
pub(crate) struct Diff {
    /// The first log; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) left: String,

    /// The second log; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) right: String,

    /// Times may differ by this much. Live logs need it: no two runs take the same time.
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = span, allow_hyphen_values = true)]
    pub(crate) tolerance: Span,
}

/// Draw a log as a Gantt chart.
///
/// The chart is text for a terminal, or an SVG, PNG or PDF file. Without --from and --to it begins
/// at the start and is as long as the pattern needs.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 drawn; 1 no missed deadline to show under --first-miss; 3 a log of another version.

Examples:
  takt chart run.takt
  takt chart run.takt --from 1s --to 1.1s
  takt chart run.takt --first-miss
  takt chart run.takt -o chart.svg
  takt chart run.takt -o chart.png --width 1600
  takt chart run.takt -o figure.pdf --width 500
  takt sim robot.toml -o - | takt chart - --by cpu --format svg > chart.svg")]
pub(crate) struct Chart {
    /// The log; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) log: String,

    /// The first instant to show.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) from: Option<Span>,

    /// The last instant to show.
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) to: Option<Span>,

    /// Show the time around the first missed deadline.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(crate) first_miss: bool,

    /// Format of the chart [default: svg, png or pdf by the output's name, else text].
    #[arg(long, value_enum)]
    pub(crate) format: Option<ChartFormat>,

    /// Width of a picture: pixels of a png, CSS pixels of an svg, points of a pdf [default: 960].
    #[arg(long, value_name = "N", value_parser = picture_width, allow_hyphen_values = true)]
    pub(crate) width: Option<u32>,

    /// A row per task, or a row per CPU (svg, png, pdf).
    #[arg(long, value_enum, default_value_t = Rows::Task)]
    pub(crate) by: Rows,

    /// Only this node.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// Only this task. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Write the chart here; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-", value_parser = target,
          value_hint = ValueHint::FilePath)]
    pub(crate) output: Target,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChartFormat {
    /// Scalable vector graphics.
    Svg,
    /// Pixels, on white.
    Png,
    /// One page, for a paper.
    Pdf,
    /// For a terminal, with block characters, coloured where the terminal is.
    Text,
    /// For a terminal, in ASCII alone.
    Ascii,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rows {
    /// A row per task.
    Task,
    /// A row per CPU.
    Cpu,
}

/// The default path of the page.
pub(crate) const REPORT: &str = "report.html";

/// Put theory, simulation and reality on one HTML page.
///
/// Takes a system file, a log, or both. The system is checked and simulated, and compared with the
/// log. The default system is the log's own. A log without system, as of observe, is shown alone.
/// Also prints the table of bounds and responses.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 made, with any verdict; 3 a log of another version.

Examples:
  takt report robot.toml
  takt report robot.toml run.takt -o robot.html
  takt report store.toml n0.takt n1.takt n2.takt
  takt report run.takt
  takt report seen.takt                 a log of takt observe, by itself")]
pub(crate) struct Report {
    /// A system file, or a log; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: String,

    /// The log of a run (or of another simulation) of the system; of a run on several nodes, the log of each.
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub(crate) logs: Vec<String>,

    /// How long to simulate; default: as long as the log, else two hyperperiods, at most 10s.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,

    /// Seed of the simulation; default: that of the log, else 0.
    #[arg(long, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,

    /// Write the page here; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = REPORT, value_parser = target,
          value_hint = ValueHint::FilePath)]
    pub(crate) output: Target,
}

/// Convert a log for other tools, or the budgets of a system's components into a script.
///
/// `perfetto` opens in the Perfetto UI; `csv` has a line per job. The other formats are shell scripts, by which
/// control groups, QEMU under libvirt, or Xen keep the budgets.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  takt export run.takt --format perfetto -o run.pftrace
  takt export run.takt --format csv | head
  takt export guests.toml --format cpu.max | sudo sh
  takt export guests.toml --format qemu-hook -o /etc/libvirt/hooks/qemu")]
pub(crate) struct Export {
    /// The log, or the system file of a script; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: String,

    /// The format of the output.
    #[arg(long, value_enum)]
    pub(crate) format: ExportFormat,

    /// Write it here; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-", value_parser = target,
          value_hint = ValueHint::FilePath)]
    pub(crate) output: Target,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExportFormat {
    /// Perfetto's protobuf trace.
    Perfetto,
    /// A line per job, in the order in which they ended.
    Csv,
    /// A ceiling for the control group of each component (version 2).
    #[value(name = "cpu.max")]
    CpuMax,
    /// A ceiling for the real-time threads in the group of each component.
    #[value(name = "cpu.rt.max")]
    CpuRt,
    /// A hook of libvirt that gives the vCPUs of each guest its budget under SCHED_DEADLINE.
    QemuHook,
    /// Commands that give each guest of Xen its budget under RTDS.
    Xl,
}

/// Turn another tool's workload into a system file.
///
/// Reads rt-app's JSON. Parts without counterpart are listed as warnings, never dropped silently.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  takt import workload.json -o system.toml
  takt import workload.json | takt check -")]
pub(crate) struct Import {
    /// The workload; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: String,

    /// The tool that the workload is for.
    #[arg(long, value_enum, default_value_t = Tool::RtApp)]
    pub(crate) from: Tool,

    /// Write the system here; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-", value_parser = target,
          value_hint = ValueHint::FilePath)]
    pub(crate) output: Target,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tool {
    /// rt-app (JSON).
    RtApp,
}

/// Print the JSON Schema of the system file, with which editors complete and check it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  takt schema > takt.schema.json
  # then, in the first line of a system file:  #:schema takt.schema.json")]
pub(crate) struct Schema {
    /// Write it here; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-", value_parser = target,
          value_hint = ValueHint::FilePath)]
    pub(crate) output: Target,
}

/// Print shell completions.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  takt completions bash > ~/.local/share/bash-completion/completions/takt
  takt completions zsh > ~/.zfunc/_takt
  takt completions fish > ~/.config/fish/completions/takt.fish")]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page, or write those of all verbs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  takt man | man -l -
  takt man --out ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Write takt.1 and a page per verb and action into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<String>,
}

/// The widest picture.
const WIDTH_MAX: u32 = 8_192;

fn picture_width(text: &str) -> Result<u32, String> {
    const UNITS: &str = "pixels of a png, CSS pixels of an svg, points of a pdf";
    let width: u32 =
        text.parse().map_err(|_| format!("is no whole number; give {UNITS} without a unit, such as 960"))?;
    if (WIDTH_MIN..=WIDTH_MAX).contains(&width) {
        return Ok(width);
    }
    Err(format!("a picture is {WIDTH_MIN} (WIDTH_MIN) to {WIDTH_MAX} (WIDTH_MAX) wide: {UNITS}"))
}

fn span(text: &str) -> Result<Span, String> {
    takt_model::file::parse_span(text)
}

fn server_rule(text: &str) -> Result<ServerRule, String> {
    ServerRule::ALL.into_iter().find(|rule| rule.name() == text).ok_or_else(|| {
        let names: Vec<&str> = ServerRule::ALL.iter().map(|rule| rule.name()).collect();
        format!("a server's rule is one of {}", names.join(", "))
    })
}

fn bytes(text: &str) -> Result<takt_model::Bytes, String> {
    takt_model::file::parse_size(text)
}

fn share(text: &str) -> Result<Probability, String> {
    match takt_model::file::parse_probability(text)? {
        share if share == Probability::default() => Err("is no share above 0".to_owned()),
        share => Ok(share),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("is no whole number from 0 to {}", u64::MAX))
}

fn target(text: &str) -> Result<Target, String> {
    if text.is_empty() {
        Err("an empty file name; - is standard output".to_owned())
    } else {
        Ok(Target(text.to_owned()))
    }
}

fn test_names() -> PossibleValuesParser {
    PossibleValuesParser::new(takt_analysis::catalogue().iter().map(|test| test.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Takt::command().debug_assert();
    }

    #[test]
    fn every_verb_has_examples_and_a_page() {
        for verb in Takt::command().get_subcommands() {
            let name = verb.get_name();
            let after = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("Examples:\n"), "{name} has no examples");
            let page =
                std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/reference/verbs/{name}.md"));
            assert!(page.exists(), "{} is missing", page.display());
        }
    }
}
