//! The options of `takt observe`.

use clap::{Args, ValueEnum, ValueHint};
use takt_model::{Bytes, Span};
use takt_trace::Abi;

use super::{bytes, span, target};
use crate::output::Target;

/// Record a running kernel, or read a recorded trace, as a log of jobs.
///
/// takt rebuilds releases, starts, preemptions, blocks and completions of threads from the kernel's
/// scheduling events, and reports interrupts. docs/reference/verbs/observe.md has the rules.
///
/// Without FILE, takt records this kernel through a private instance of its tracer, until --for is
/// over, COMMAND has ended, or a signal comes. It leaves nothing behind. FILE is a recording made
/// elsewhere: trace.dat, a Perfetto trace, the text of ftrace, systrace's HTML, or a folder of raw
/// pages with the kernel's format files.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Exit status: 0 observed; 1 a deadline was missed under --fail-on-miss; 3 recording needs root, or this kernel cannot.

Examples:
  sudo takt observe --for 10s
  sudo takt observe --for 1min --pid 4711 -o app.takt
  sudo takt observe -o app.takt -- ./app --with its options
  sudo takt observe --irq eth0 --irq NET_RX --for 5s
  sudo takt observe -o - | takt stats --every 1s -
  sudo takt observe --serve 127.0.0.1:9184
  sudo takt observe --for 5s --raw trace.dat        for trace-cmd, too
  takt observe trace.dat                    a recording of trace-cmd
  takt observe trace.txt --comm 'ros*' -o ros.takt"
)]
pub(crate) struct Observe {
    /// A recorded trace, also packed by gzip; - is standard input. Without it, takt records this
    /// kernel.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) file: Option<String>,

    /// How long to record. Default: until COMMAND ends, or a signal comes.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true, conflicts_with = "file")]
    pub(crate) duration: Option<Span>,

    /// Only threads of this process, and threads that they start. Repeatable. A trace does not list
    /// the threads of a process, so with a trace this is like --tid.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) pid: Vec<u32>,

    /// Only this thread, and threads that it starts. Repeatable.
    #[arg(long, value_name = "TID", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) tid: Vec<u32>,

    /// Only threads of this name. * stands for any characters. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) comm: Vec<String>,

    /// Only threads that are in this control group when the recording starts, and threads that they
    /// start. GROUP is a folder below /sys/fs/cgroup, or its path.
    #[arg(long, value_name = "GROUP", conflicts_with = "file", value_hint = ValueHint::DirPath)]
    pub(crate) cgroup: Vec<String>,

    /// Only this interrupt, by its number or name, or this softirq (NET_RX). * stands for any
    /// characters. Repeatable. Threads are then recorded only if other options select them.
    #[arg(long, value_name = "NAME")]
    pub(crate) irq: Vec<String>,

    /// Take every sleep of a thread as the end of a job, in any system call.
    #[arg(long)]
    pub(crate) suspensions: bool,

    /// The machine that defines the trace's system call numbers. Default: the machine in the trace
    /// (trace.dat and Perfetto name it), else the machine with matching numbers.
    #[arg(long, requires = "file")]
    pub(crate) abi: Option<Machine>,

    /// State that the trace's times are of CLOCK_MONOTONIC, if the trace does not say so. Then its
    /// timers give exact arrivals.
    #[arg(long, requires = "file")]
    pub(crate) monotonic: bool,

    /// The kernel's buffer for each CPU. Default: 32MiB, less where memory is short.
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true, conflicts_with = "file")]
    pub(crate) buffer: Option<Bytes>,

    /// Write the log here; - is standard output (and then no statistics are printed).
    #[arg(short, long, value_name = "LOG", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<Target>,

    /// Size limit of the log (64KiB or more). Recording ends at the limit. Default: no limit.
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true, requires = "output",
          conflicts_with = "file")]
    pub(crate) limit: Option<Bytes>,

    /// Also write the kernel's events here, as a trace.dat for trace-cmd, KernelShark and
    /// `takt observe`.
    #[arg(long, value_name = "FILE", conflicts_with = "file", value_hint = ValueHint::FilePath)]
    pub(crate) raw: Option<String>,

    /// The largest size of the file of --raw. Later events are not in it.
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "1GiB", requires = "raw")]
    pub(crate) raw_limit: Bytes,

    /// Serve the statistics so far as Prometheus metrics at this address, such as 127.0.0.1:9184.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "file")]
    pub(crate) serve: Option<String>,

    /// Exit with status 1 when a deadline was missed (of SCHED_DEADLINE threads, whose deadlines are known).
    #[arg(long)]
    pub(crate) fail_on_miss: bool,

    /// Start this command, and record the command and its children until it ends.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "file", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
}

impl Observe {
    /// Everything on this kernel, until told to stop.
    pub(crate) fn everything() -> Observe {
        Observe {
            file: None,
            duration: None,
            pid: Vec::new(),
            tid: Vec::new(),
            comm: Vec::new(),
            cgroup: Vec::new(),
            irq: Vec::new(),
            suspensions: false,
            abi: None,
            monotonic: false,
            buffer: None,
            output: None,
            limit: None,
            raw: None,
            raw_limit: Bytes::new(0),
            serve: None,
            fail_on_miss: false,
            command: Vec::new(),
        }
    }
}

/// The machine that numbers the system calls.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Machine {
    /// x86-64.
    X86_64,
    /// 32-bit ARM.
    Arm,
    /// As generic.
    Arm64,
    /// As generic.
    Riscv,
    /// PowerPC.
    Ppc64,
    /// 32-bit x86.
    I386,
    /// arm64, riscv, loongarch64.
    Generic,
}

impl From<Machine> for Abi {
    fn from(machine: Machine) -> Abi {
        match machine {
            Machine::X86_64 => Abi::X86_64,
            Machine::Arm => Abi::Arm,
            Machine::Ppc64 => Abi::Powerpc,
            Machine::I386 => Abi::I386,
            Machine::Arm64 | Machine::Riscv | Machine::Generic => Abi::Generic,
        }
    }
}
