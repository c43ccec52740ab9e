//! `takt lab`: its actions, their options and their help.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use takt_lab::machine::{CARDS_MAX, CPUS_MAX, DISK_MIB_MAX, Devices};
use takt_model::Span;

use super::run::BackEnd;
use super::{seed, span, target};
use crate::output::Target;

/// Run experiments on another kernel: in QEMU, in virtual time.
///
/// The kernel is a real one, of Debian or your own. It runs under emulation, and an instruction
/// takes one nanosecond of virtual time. A busy host makes the guest slower, not its clock. Caches and
/// real devices do not exist there. Nothing is installed, and root is not needed.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 done; 1 an experiment failed, or exact runs differ; 2 bad input; 3 QEMU, a kernel, a static takt or \
the network is missing; 4 the guest did not end.

Examples:
  takt lab fetch                                     a kernel with PREEMPT_RT
  make lab-binary                                    a static takt for the guest
  takt lab run robot.toml -o run.takt --binary target/lab/takt
  takt lab run -- uname -v
  takt lab repeat robot.toml --pairs 20              do two runs give the same bytes?")]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) action: LabAction,
}

/// The actions.
#[derive(Subcommand, Debug)]
pub(crate) enum LabAction {
    Fetch(LabFetch),
    Run(LabRun),
    Repeat(LabRepeat),
    /// Run the experiments of this guest. The guest's first script calls it.
    #[command(hide = true)]
    Guest,
    /// Play a film in this guest. The script of an experiment calls it.
    #[command(hide = true)]
    Play(LabPlay),
}

/// A kernel, and the cache of kernels.
#[derive(Args, Debug)]
pub(crate) struct LabKernel {
    /// The kernel: rt (Debian's newest with PREEMPT_RT), plain (Debian's newest without), a release
    /// such as 7.3.4+deb13-rt-amd64, or the path of a bzImage (with a /).
    #[arg(long, value_name = "NAME|PATH", default_value = "rt", value_parser = kernel)]
    pub(crate) kernel: String,

    /// The folder of fetched kernels. Default: $XDG_CACHE_HOME/takt/lab, or ~/.cache/takt/lab.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) cache: Option<PathBuf>,
}

/// Fetch a kernel of Debian, and look at what it offers to BPF programs.
///
/// Packages are fetched by a private configuration of apt, checked by Debian's signature, and
/// unpacked into the cache. Nothing is installed. The kernel's BTF must have the functions that
/// sched_ext schedulers and queueing disciplines in BPF call.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 there; 2 no such file, or no kernel; 3 a program, the network or the kernel is missing, or the kernel \
lacks functions.

Examples:
  takt lab fetch
  takt lab fetch --kernel plain
  takt lab fetch --kernel 7.3.4+deb13-rt-amd64 --suite sid
  takt lab fetch --kernel ./arch/x86/boot/bzImage    only look at it")]
pub(crate) struct LabFetch {
    #[command(flatten)]
    pub(crate) kernel: LabKernel,

    /// The suite of Debian that has the kernel.
    #[arg(long, value_name = "NAME", default_value = "trixie-backports", value_parser = word)]
    pub(crate) suite: String,

    /// Debian's archive. Default: that of this machine's apt.
    #[arg(long, value_name = "URL", value_parser = word)]
    pub(crate) mirror: Option<String>,

    /// Look for a newer kernel than that of the cache.
    #[arg(long)]
    pub(crate) update: bool,

    /// Keep a kernel that lacks these functions.
    #[arg(long)]
    pub(crate) any: bool,
}

/// The player of a trial of sdd-tradeoff.
#[derive(Args, Debug)]
pub(crate) struct LabPlay {
    /// The number of the trial.
    #[arg(value_name = "TRIAL")]
    pub(crate) trial: usize,

    /// How long the film is.
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    pub(crate) duration: Span,

    /// Seed of the film.
    #[arg(long, default_value_t = 1, value_parser = seed)]
    pub(crate) seed: u64,

    /// The thread that takes packets in.
    #[arg(long, value_name = "TID")]
    pub(crate) thread: Option<u32>,
}

/// The devices of the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum DeviceSet {
    /// One CPU, serial line, clock and e1000 network cards: runs give the same bytes
    Exact,
    /// Several CPUs, virtio network cards, disks: runs agree in shapes and ratios
    Tolerant,
}

impl DeviceSet {
    pub(crate) fn devices(self) -> Devices {
        match self {
            DeviceSet::Exact => Devices::Exact,
            DeviceSet::Tolerant => Devices::Tolerant,
        }
    }
}

/// A kernel module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) parameters: Vec<String>,
}

impl Module {
    pub(crate) fn of(name: &str, parameters: &[&str]) -> Module {
        Module { name: name.to_owned(), parameters: parameters.iter().map(ToString::to_string).collect() }
    }
}

/// The experiments, and the machine for them.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["files", "command"]))]
pub(crate) struct LabExperiments {
    /// System files. Each is an experiment: takt run FILE, in the guest.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<String>,

    /// How long each system runs, in virtual time. Default: as for takt run.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,

    /// The back end that keeps the budgets of components, as for takt run.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = BackEnd::Auto)]
    pub(crate) backend: BackEnd,

    /// More options of takt run.
    #[arg(skip)]
    pub(crate) run: Vec<String>,

    #[command(flatten)]
    pub(crate) kernel: LabKernel,

    /// The devices of the guest.
    #[arg(long, value_enum, default_value_t = DeviceSet::Exact)]
    pub(crate) devices: DeviceSet,

    /// CPUs of the guest. Default: 1, and 2 with --devices tolerant.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(CPUS_MAX)))]
    pub(crate) cpus: Option<u32>,

    /// Network cards of the guest (eth0, eth1, ...), all on one hub.
    #[arg(long, value_name = "NUMBER", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(CARDS_MAX)))]
    pub(crate) cards: u32,

    /// An IDE disk of this size, in MiB, which reads as zeros: /dev/sda. For tolerant devices.
    #[arg(long, value_name = "MIB", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(DISK_MIB_MAX)))]
    pub(crate) disk: u32,

    /// A virtio disk of this size, in MiB, which reads as zeros: /dev/vda. For tolerant devices.
    #[arg(long, value_name = "MIB", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(DISK_MIB_MAX)))]
    pub(crate) virtio_disk: u32,

    /// Memory of the guest, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(128..=16_384))]
    pub(crate) memory: u32,

    /// Load this kernel module, and those that it needs. Its parameters may follow the name: "libata
    /// dma=0". Repeatable.
    #[arg(long, value_name = "NAME", value_parser = module)]
    pub(crate) module: Vec<Module>,

    /// Put this file into the folder in which experiments start. Repeatable.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) add: Vec<PathBuf>,

    /// The static takt for the guest. Default: this program, if it is static.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) binary: Option<PathBuf>,

    /// Seed of the randomness that the guest gets from the machine.
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// The longest boot, in CPU time that QEMU uses. On a busy machine a boot may last up to 20 times as
    /// long.
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = span, allow_hyphen_values = true)]
    pub(crate) timeout: Span,

    /// Show the guest's console on standard error.
    #[arg(long)]
    pub(crate) console: bool,

    /// A command, which is one more experiment. It starts in a folder with the files of --add.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl LabExperiments {
    /// A command alone, with the defaults.
    pub(crate) fn of(command: Vec<String>) -> LabExperiments {
        LabExperiments {
            files: Vec::new(),
            duration: None,
            backend: BackEnd::Auto,
            run: Vec::new(),
            kernel: LabKernel { kernel: "rt".to_owned(), cache: None },
            devices: DeviceSet::Exact,
            cpus: None,
            cards: 0,
            disk: 0,
            virtio_disk: 0,
            memory: 512,
            module: Vec::new(),
            add: Vec::new(),
            binary: None,
            seed: 1,
            timeout: Span::from_s(300),
            console: false,
            command,
        }
    }
}

/// Run experiments in one boot, and bring their logs back.
///
/// Each FILE is run by takt run in the guest, as root, one after the other. A command after -- runs
/// last. Its output is printed here.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 all experiments succeeded; 1 one failed; 2 bad input; 3 something is missing; 4 the guest did not end.

Examples:
  takt lab run robot.toml -o run.takt
  takt lab run a.toml b.toml --out results           results/00-a.takt, results/01-b.takt, ...
  takt lab run --cards 2 -- ip link
  takt lab run --module sch_htb --add test.sh -- sh test.sh")]
pub(crate) struct LabRun {
    #[command(flatten)]
    pub(crate) experiments: LabExperiments,

    /// Write the log of the only FILE here; - is standard output.
    #[arg(short, long, value_name = "LOG", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<Target>,

    /// Write logs, outputs, the console and result.json into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
}

/// Run the same boot in pairs, and compare all bytes.
///
/// The cache keeps the verdict for this kernel, QEMU and machine. `takt lab run` shows it with each
/// result.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 all pairs are equal, or the devices are tolerant; 1 a pair of exact devices differs, or an experiment \
failed; 2 bad input; 3 something is missing; 4 the guest did not end.

Examples:
  takt lab repeat robot.toml
  takt lab repeat --pairs 20 --cards 2 -- ip link
  takt lab repeat --devices tolerant -- uname -a")]
pub(crate) struct LabRepeat {
    #[command(flatten)]
    pub(crate) experiments: LabExperiments,

    /// How many pairs.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) pairs: u32,
}

/// A name becomes a path below the cache.
pub(crate) fn kernel(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('.') && !text.contains('/') {
        return Err("is no kernel; write rt, plain, a release, or a path with a /".to_owned());
    }
    Ok(text.to_owned())
}

/// A module's name and parameters, separated by blanks.
fn module(text: &str) -> Result<Module, String> {
    let mut words = text.split_whitespace();
    let name = word(words.next().unwrap_or_default())?;
    let parameters = words.map(|parameter| match parameter.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(parameter.to_owned()),
        _ => Err(format!("has \"{parameter}\", which is no parameter; write NAME PARAMETER=VALUE")),
    });
    Ok(Module { name, parameters: parameters.collect::<Result<_, _>>()? })
}

/// A word of a configuration file or an argument: it holds no blank and no quote.
fn word(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('-') || text.contains(|c: char| c.is_whitespace() || "\"';[]".contains(c)) {
        return Err("is no single word".to_owned());
    }
    Ok(text.to_owned())
}
