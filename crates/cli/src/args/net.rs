//! `takt net`: its actions, their options and their help.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use takt_linux::tc::Match;
use takt_model::Span;

use super::net_probe::NetProbe;
use super::span;

/// Share a network device: HTB classes for real-time messages, replies and other packets.
///
/// The shares come from the link of a node: `link.bucket`, `link.replies` and `link.background` of
/// the system file. takt restores the device when it ends, also after a signal. After a kill -9 the
/// next start of takt does.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 done; 1 `doctor` found a gap, or `show` no shares; 2 no such device, or shares that the link does not \
have; 3 a privilege or a part of the kernel is missing, or the device is in use; 4 the kernel refused a step, the \
state file cannot be used, or the device could not be restored exactly.

Examples:
  takt net apply robot.toml --device eth0 --dry-run      the classes, and how long others block
  sudo takt net apply robot.toml --device eth0 --real-time port:7000
  sudo takt net apply robot.toml --device eth0 --keep    until takt net remove
  takt net show
  sudo takt net remove --device eth0
  sudo takt net broker --priority 6 --rate 20Mbit        messages of programs by their deadlines
  takt net clock --peer 10.0.0.7 --for 5s                how do the clocks differ?
  takt net probe ping-pong 10.0.0.7                      how long does a message take?
  sudo takt net doctor                                   what can this kernel do?")]
pub(crate) struct Net {
    #[command(subcommand)]
    pub(crate) action: NetAction,
}

/// The actions.
#[derive(Subcommand, Debug)]
pub(crate) enum NetAction {
    Apply(NetApply),
    Broker(NetBroker),
    Clock(NetClock),
    Probe(NetProbe),
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
part of the kernel is missing, or the device is in use; 4 the kernel refused a step, the state file cannot \
be used, or the device could not be restored exactly.

Examples:
  takt net apply robot.toml --device eth0 --dry-run
  sudo takt net apply robot.toml --device eth0
  sudo takt net apply robot.toml --device eth0 --real-time port:7000-7009 --reply from-port:7000
  sudo takt net apply robot.toml --device eth0 --real-time cgroup:/control --for 1min
  sudo takt net apply robot.toml --device eth0 --watch   follow changes of the file
  sudo takt net apply robot.toml --device eth0 --deadlines       sockets have SO_DEADLINE
  sudo takt net apply robot.toml --device eth0 --deadlines --discipline takt     the kernel sends by deadlines
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

    /// Sockets of programs in this control group (cgroup v2) may have deadlines (SO_DEADLINE); their
    /// packets are real-time messages. Default: all programs. Needs a takt with the feature bpf.
    #[arg(long, value_name = "CGROUP", num_args = 0..=1, require_equals = true, default_missing_value = "/",
          value_parser = control_group)]
    pub(crate) deadlines: Option<PathBuf>,

    /// The fate of a datagram that cannot start before its deadline. Streams are always sent. Default:
    /// drop. Under --discipline takt, link.late of the file decides.
    #[arg(long, value_enum, requires = "deadlines")]
    pub(crate) late: Option<ApplyLate>,

    /// The queueing discipline that keeps the classes.
    #[arg(long, value_enum, default_value = "htb")]
    pub(crate) discipline: ApplyDiscipline,

    /// Print the plan, and change nothing. This needs no privilege.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Leave the shares in place and end.
    #[arg(long, conflicts_with_all = ["duration", "watch", "dry_run", "deadlines"])]
    pub(crate) keep: bool,

    /// How long the shares are held. Default: until a signal comes.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true,
          conflicts_with = "dry_run")]
    pub(crate) duration: Option<Span>,

    /// Change the shares in place when the file changes. A file with errors changes nothing.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) watch: bool,
}

/// The queueing discipline of a shared device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ApplyDiscipline {
    /// HTB of the kernel: each class is first in, first out.
    Htb,
    /// takt's own, as a BPF program: real-time packets leave by link.order and link.late of the file.
    /// Needs a takt with the feature bpf, and Linux 6.16 with CONFIG_NET_SCH_BPF.
    Takt,
}

/// The rule for late datagrams of sockets with SO_DEADLINE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ApplyLate {
    /// It is dropped before it takes bandwidth, and counted.
    Drop,
    /// It is sent in its turn.
    Send,
}

/// Send the messages of programs in the order of their deadlines.
///
/// Programs use takt_dispatch::deadline (Rust) or takt_deadline and takt_send (C). A message waits
/// here until the kernel has almost nothing left to send, so that the order is decided as late as
/// possible. The broker sends through the programs' own sockets. While there is no broker, programs
/// send straight to the kernel. At its end it sends what waits, for a second at most.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 it served until --for was over or a signal came; 2 another broker listens there, or the folder does \
not exist; 3 the socket file may not be made there.

Examples:
  sudo takt net broker --priority 6 --rate 20Mbit        into the real-time class of takt net apply
  takt net broker --socket /tmp/broker --for 10s --json
  takt net broker --socket /tmp/broker --order fifo --late send")]
pub(crate) struct NetBroker {
    /// The socket file where programs find it. C programs read the variable TAKT_BROKER.
    #[arg(long, value_name = "PATH", default_value = takt_dispatch::deadline::DEFAULT_PATH,
          value_hint = ValueHint::FilePath)]
    pub(crate) socket: PathBuf,

    /// The order in which messages leave.
    #[arg(long, value_enum, default_value = "edf")]
    pub(crate) order: BrokerOrder,

    /// What becomes of a datagram whose deadline has passed. Streams are always sent.
    #[arg(long, value_enum, default_value = "drop")]
    pub(crate) late: BrokerLate,

    /// The rate of the line, or of its class. With a rate, a datagram is late if it would finish
    /// after its deadline. Without a rate, it is late when its deadline has passed.
    #[arg(long, value_name = "RATE", value_parser = takt_model::file::parse_rate)]
    pub(crate) rate: Option<takt_model::Rate>,

    /// The SO_PRIORITY that sockets get. Default: they keep theirs. Above 6 needs CAP_NET_ADMIN.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) priority: Option<u32>,

    /// How long it serves. Default: until a signal comes.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,
}

/// The order of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum BrokerOrder {
    /// Earliest deadline first.
    Edf,
    /// First in, first out.
    Fifo,
}

/// The rule for late datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum BrokerLate {
    /// It is dropped, and counted.
    Drop,
    /// It is sent in its turn.
    Send,
    /// It is sent after all that are in time.
    Demote,
}

/// Measure how the clocks of machines differ, and answer others that measure.
///
/// The clock is CLOCK_MONOTONIC. For each peer takt keeps an interval that holds the true difference
/// own clock - peer's clock, by exchanges over UDP with the kernel's stamps. A peer runs
/// `takt net clock` too. Without --peer this machine only answers.
///
/// If clock-bound, chronyd or ptp4l run, takt asks them how exact CLOCK_REALTIME is. If they run on
/// both machines and follow one time, that narrows the interval.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 the difference to each peer is known, or there is none to ask; 1 one is unknown; 2 an address that \
cannot be used.

Examples:
  takt net clock                                         answer, until a signal comes
  takt net clock --peer 10.0.0.7 --for 5s
  takt net clock --peer arm=10.0.0.7:7461 --peer cam=10.0.0.8 --for 1min --json")]
pub(crate) struct NetClock {
    /// A machine to ask: its address, with a name before it and a port behind it as needed.
    /// Repeatable.
    #[arg(long, value_name = "[NAME=]ADDRESS", value_parser = clock_peer)]
    pub(crate) peer: Vec<ClockPeer>,

    /// The address of the own socket.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7461")]
    pub(crate) listen: SocketAddr,

    /// The time between two requests to a peer.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "100ms")]
    pub(crate) period: Span,

    /// The rate of every clock is within so many parts per million of true time.
    #[arg(long, value_name = "PPM", default_value_t = 500)]
    pub(crate) drift: u32,

    /// The SO_PRIORITY of the messages: 6 is the real-time class of takt net apply.
    #[arg(long, value_name = "NUMBER", default_value_t = 6)]
    pub(crate) priority: u32,

    /// How long it measures. Default: until a signal comes.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,
}

/// A machine to ask.
#[derive(Clone, Debug)]
pub(crate) struct ClockPeer {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

fn clock_peer(text: &str) -> Result<ClockPeer, String> {
    const PORT: u16 = 7461;
    let (name, address) = text.split_once('=').unwrap_or((text, text));
    let with_port = address.parse::<SocketAddr>();
    let parsed = with_port.or_else(|_| address.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT)));
    match parsed {
        Ok(address) if !name.is_empty() => Ok(ClockPeer { name: name.to_owned(), address }),
        Ok(_) => Err("has no name before the =".to_owned()),
        Err(_) => Err("is no address; write one like 10.0.0.7, 10.0.0.7:7461 or [fe80::1]:7461".to_owned()),
    }
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
Exit status: 0 restored; 1 the device has no shares of takt; 3 a running takt holds them; 4 the kernel refused a \
step, the state file cannot be used, or the device could not be restored exactly.

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

fn control_group(text: &str) -> Result<PathBuf, String> {
    if text.starts_with('/') && !text.contains(char::is_control) {
        Ok(PathBuf::from(text))
    } else {
        Err("is no path of a control group; write one from the root, like /control".to_owned())
    }
}

fn rule(text: &str) -> Result<Match, String> {
    text.parse()
}
