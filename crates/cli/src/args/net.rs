//! `takt net`: its actions, their options and their help.

use clap::{Args, Subcommand, ValueHint};
use takt_linux::tc::Match;
use takt_model::Span;

use super::span;

/// Share a network device: HTB classes for real-time messages, replies and other packets.
///
/// The shares come from the link of a node: `link.bucket`, `link.replies` and `link.background` of
/// the system file. takt restores the device when it ends, also after a signal. After a kill -9 the
/// next start of takt does.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 done; 1 `doctor` found a gap, or `show` no shares; 2 no such device, or shares that the link does not \
have; 3 a privilege or a part of the kernel is missing, or the device is in use.

Examples:
  takt net apply robot.toml --device eth0 --dry-run      the classes, and how long others block
  sudo takt net apply robot.toml --device eth0 --real-time port:7000
  sudo takt net apply robot.toml --device eth0 --keep    until takt net remove
  takt net show
  sudo takt net remove --device eth0
  sudo takt net doctor                                   what can this kernel do?")]
pub(crate) struct Net {
    #[command(subcommand)]
    pub(crate) action: NetAction,
}

/// The actions.
#[derive(Subcommand, Debug)]
pub(crate) enum NetAction {
    Apply(NetApply),
    Show(NetShow),
    Remove(NetRemove),
    Doctor(NetDoctor),
}

/// Install the shares of a node's link on a device, and hold them.
///
/// takt reads back all that it installed. Then it sends some frames for each rule to the device's
/// own address, and compares the counters of the classes. Shares that `--keep` left are changed in
/// place: no packet is lost.
///
/// A RULE is priority:N (SO_PRIORITY), port:N or port:N-M (destination), from-port:N or
/// from-port:N-M (source), or cgroup:/PATH (cgroup v2, groups below it included). The first rule
/// that holds decides; those of real-time stand first. All other packets are background.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 held, or left in place; 2 no such device, or shares that the link does not have; 3 a privilege or a \
part of the kernel is missing, or the device is in use.

Examples:
  takt net apply robot.toml --device eth0 --dry-run
  sudo takt net apply robot.toml --device eth0
  sudo takt net apply robot.toml --device eth0 --real-time port:7000-7009 --reply from-port:7000
  sudo takt net apply robot.toml --device eth0 --real-time cgroup:/control --for 1min
  sudo takt net apply robot.toml --device eth0 --watch   follow changes of the file
  sudo takt net apply robot.toml --device eth0 --keep")]
pub(crate) struct NetApply {
    /// The system file; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: String,

    /// The network device.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: String,

    /// The node that this machine is. Required if several nodes have links.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// These packets are real-time messages. Repeatable. Default: priority:6.
    #[arg(long, value_name = "RULE", value_parser = rule)]
    pub(crate) real_time: Vec<Match>,

    /// These packets are replies. Repeatable; the link needs `replies`. Default: priority:5.
    #[arg(long, value_name = "RULE", value_parser = rule)]
    pub(crate) reply: Vec<Match>,

    /// Print the plan, and change nothing. This needs no privilege.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Leave the shares in place and end.
    #[arg(long, conflicts_with_all = ["duration", "watch", "dry_run"])]
    pub(crate) keep: bool,

    /// How long the shares are held. Default: until a signal comes.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true,
          conflicts_with = "dry_run")]
    pub(crate) duration: Option<Span>,

    /// Change the shares in place when the file changes. A file with errors changes nothing.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) watch: bool,
}

/// Show the shares that takt has installed, and what each class has sent and dropped.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 shown, 1 no device has shares of takt.

Examples:
  takt net show
  takt net show --device eth0 --json")]
pub(crate) struct NetShow {
    /// Only this device.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
}

/// Remove shares that `apply --keep` left, and restore the device.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 restored, 1 the device has no shares of takt, 3 a running takt holds them.

Examples:
  sudo takt net remove --device eth0")]
pub(crate) struct NetRemove {
    /// The network device.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: String,
}

/// Report what this kernel has for deadlines on the wire.
///
/// HTB, filters, limits of segments, BPF queueing disciplines, launch times, timestamps and clocks.
/// Each gap has its cost and its remedy. takt tries in a network namespace of its own, for which it
/// needs root.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 nothing that takt net apply needs is missing; 1 something is, or is unknown.

Examples:
  sudo takt net doctor
  sudo takt net doctor --device eth0 --json")]
pub(crate) struct NetDoctor {
    /// Only this device. Default: all devices of Ethernet.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
}

fn rule(text: &str) -> Result<Match, String> {
    text.parse()
}
