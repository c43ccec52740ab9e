//! `takt net probe`: its modes, their options and their help.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use takt_model::{Rate, Span};

use super::{bytes, seed, span, target};
use crate::output::Target;

/// Where a server listens.
const PORT: u16 = 7462;

/// Measure latency, throughput, losses and missed deadlines of a network.
///
/// `takt net probe serve` runs on the far side. The other modes are those of sockperf. They send to
/// one server or to several in turn, by UDP or TCP, over IPv4 or IPv6.
///
/// One-way delays are intervals that hold the true delay. takt compares the clocks meanwhile, as
/// `takt net clock` does. A clock that is not known well enough gives no one-way delay.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 measured; 1 a deadline was missed or may have been, nothing arrived, a server or broker is silent or \
full, or a connection ended; 2 a value or address that cannot be used; 3 a privilege is missing; 4 a file cannot be \
written.

Examples:
  takt net probe serve                                   on the far side
  takt net probe ping-pong 10.0.0.7
  takt net probe under-load --mps 100 --burst 40 --size 400B --deadline 1ms 10.0.0.7 10.0.0.8
  takt net probe throughput --tcp --size 1400B --for 5s 10.0.0.7
  takt net probe playback sends.csv 10.0.0.7 --csv messages.csv --svg cdf.svg")]
pub(crate) struct NetProbe {
    #[command(subcommand)]
    pub(crate) mode: ProbeMode,
}

/// The modes.
#[derive(Subcommand, Debug)]
pub(crate) enum ProbeMode {
    Serve(ProbeServe),
    PingPong(Box<ProbePingPong>),
    UnderLoad(Box<ProbeUnderLoad>),
    Throughput(Box<ProbeThroughput>),
    Playback(Box<ProbePlayback>),
}

/// Receive messages of probers, reply, and tell the own times.
///
/// It serves UDP and TCP at one port. At two more ports, which the kernel chooses, it answers
/// messages about clocks and drops background load.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 it served until --for was over or a signal came; 2 an address that cannot be used; 3 a privilege is \
missing.

Examples:
  takt net probe serve
  takt net probe serve --listen '[::]:7462' --for 1min --json    IPv6, and IPv4 too
  takt net probe serve --group 239.1.2.3 --mc-rx-if eth0")]
pub(crate) struct ProbeServe {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7462")]
    pub(crate) listen: SocketAddr,

    /// Take messages to this group (multicast) too, by UDP; up to 20 groups. Replies go to the prober alone.
    #[arg(long = "group", value_name = "ADDRESS")]
    pub(crate) groups: Vec<IpAddr>,

    /// The network device through which messages to groups come. Default: the kernel chooses by its routes.
    #[arg(long, value_name = "NAME")]
    pub(crate) mc_rx_if: Option<String>,

    /// The SO_PRIORITY of replies: 5 is the class of replies of takt net apply.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub(crate) priority: u32,

    /// The TOS byte of replies, from 0 to 255 or 0xff: DSCP times 4, and ECN.
    #[arg(long, value_name = "BYTE", value_parser = tos, default_value = "0")]
    pub(crate) tos: u8,

    /// How long it serves. Default: until a signal comes.
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,
}

/// Measure the round trip of single messages: the next burst leaves when all replies have come.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: as of takt net probe.

Examples:
  takt net probe ping-pong 10.0.0.7
  takt net probe ping-pong --tcp --size 400B --mps 100 --for 10s 10.0.0.7 10.0.0.8
  takt net probe ping-pong --mc-tx-if eth0 --mc-ttl 1 --members 3 239.1.2.3")]
pub(crate) struct ProbePingPong {
    /// At most so many bursts a second. Default: as fast as replies come.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) mps: Option<u32>,

    #[command(flatten)]
    pub(crate) generated: ProbeGenerated,

    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// Measure while messages leave at absolute times, whether replies come or not.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: as of takt net probe.

Examples:
  takt net probe under-load --mps 1000 --for 10s 10.0.0.7
  takt net probe under-load --mps 100 --burst 40 --size 400B --deadline 1ms --broker /run/takt-broker 10.0.0.7
  takt net probe under-load --background 50Mbit --background-priority 0 '[fd00::7]:7462'")]
pub(crate) struct ProbeUnderLoad {
    /// Bursts a second.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub(crate) mps: u32,

    /// One message of so many asks for a reply. Default: 100, and 1 with --deadline.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) reply_every: Option<u32>,

    #[command(flatten)]
    pub(crate) generated: ProbeGenerated,

    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// Measure how much arrives. Nobody replies.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: as of takt net probe.

Examples:
  takt net probe throughput --tcp --size 1400B 10.0.0.7
  takt net probe throughput --mps 50000 --for 10s 10.0.0.7")]
pub(crate) struct ProbeThroughput {
    /// Bursts a second. Default: as fast as the kernel takes them.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) mps: Option<u32>,

    #[command(flatten)]
    pub(crate) generated: ProbeGenerated,

    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// Send messages at the times and with the sizes of a file.
///
/// Each line has seconds since the start, and bytes: `0.000125, 400`. Text after # means nothing.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: as of takt net probe.

Examples:
  takt net probe playback sends.csv 10.0.0.7
  takt net probe playback sends.csv --deadline 2ms --csv messages.csv 10.0.0.7")]
pub(crate) struct ProbePlayback {
    /// The file; - is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: String,

    /// One message of so many asks for a reply.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) reply_every: u32,

    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// The messages of the modes without a file.
#[derive(Args, Debug)]
pub(crate) struct ProbeGenerated {
    /// Bytes of a message from 64B on, or two sizes between which they are uniform (64B-1400B).
    #[arg(long, value_name = "SIZE[-SIZE]", value_parser = sizes, default_value = "64B")]
    pub(crate) size: (u32, u32),

    /// Messages of a burst: uniform from half of this number up to it, or between two numbers
    /// (20-40).
    #[arg(long, value_name = "NUMBER[-NUMBER]", value_parser = burst, default_value = "1")]
    pub(crate) burst: (u32, u32),

    /// How long it sends before it measures.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "100ms")]
    pub(crate) warm_up: Span,
}

/// What all modes but serve have.
#[derive(Args, Debug)]
pub(crate) struct ProbeCommon {
    /// The servers, with a port behind the address unless it is 7462. Messages go to them in turn. Or one
    /// group (multicast): each message goes to all of its servers.
    #[arg(required = true, value_name = "ADDRESS", value_parser = server)]
    pub(crate) servers: Vec<SocketAddr>,

    /// Send by TCP. Default: UDP.
    #[arg(long)]
    pub(crate) tcp: bool,

    /// Each message has a deadline, uniform from this time to twice as much, from its intended send.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) deadline: Option<Span>,

    /// How long it measures, 1h at most. Default: 1s, or the whole playback.
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    pub(crate) duration: Option<Span>,

    /// A message without a reply after this time is lost.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "500ms")]
    pub(crate) wait: Span,

    /// The seed of sizes, bursts and deadlines.
    #[arg(long, value_name = "NUMBER", value_parser = seed, default_value = "1")]
    pub(crate) seed: u64,

    /// The SO_PRIORITY of messages: 6 is the real-time class of takt net apply.
    #[arg(long, value_name = "NUMBER", default_value_t = 6)]
    pub(crate) priority: u32,

    /// The TOS byte of messages, from 0 to 255 or 0xff: DSCP times 4, and ECN. Networks read it.
    #[arg(long, value_name = "BYTE", value_parser = tos, default_value = "0")]
    pub(crate) tos: u8,

    /// The network device by which messages to a group leave. Default: the kernel chooses by its routes.
    #[arg(long, value_name = "NAME")]
    pub(crate) mc_tx_if: Option<String>,

    /// How many networks messages to a group may cross, 0 to 255: 1 stays in the own one. Default: 2.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) mc_ttl: Option<u8>,

    /// Messages to a group go to servers on this machine, too.
    #[arg(long)]
    pub(crate) mc_loopback_enable: bool,

    /// Measure when so many servers of the group have answered, 1 to 64. Default: 1. All that answer in
    /// 300ms take part.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) members: Option<u32>,

    /// Send bulk packets too, by UDP at this rate of payload.
    #[arg(long, value_name = "RATE", value_parser = takt_model::file::parse_rate)]
    pub(crate) background: Option<Rate>,

    /// The size of a bulk packet.
    #[arg(long, value_name = "SIZE", value_parser = one_size, default_value = "1400B")]
    pub(crate) background_size: u32,

    /// The SO_PRIORITY of bulk packets.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) background_priority: u32,

    /// Send through the broker of this socket file. It goes by the deadlines.
    #[arg(long, value_name = "PATH", requires = "deadline", value_hint = ValueHint::FilePath)]
    pub(crate) broker: Option<PathBuf>,

    /// Do not compare clocks: no one-way delays.
    #[arg(long)]
    pub(crate) no_one_way: bool,

    /// A wider interval of the difference to a server's clock gives no one-way delay.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "1ms", conflicts_with = "no_one_way")]
    pub(crate) clock_width: Span,

    /// The rate of every clock is within so many parts per million of true time.
    #[arg(long, value_name = "PPM", default_value_t = 500, conflicts_with = "no_one_way")]
    pub(crate) drift: u32,

    /// Write a line for each message that asked for a reply, as CSV; - is standard output.
    #[arg(long, value_name = "FILE", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<Target>,

    /// Draw the distributions of the times as SVG.
    #[arg(long, value_name = "FILE", value_parser = target, value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<Target>,
}

fn server(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse::<SocketAddr>();
    let address = with_port.or_else(|_| text.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT)));
    address.map_err(|_| "is no address; write one like 10.0.0.7, 10.0.0.7:7462 or [fd00::7]:7462".to_owned())
}

fn tos(text: &str) -> Result<u8, String> {
    let hexadecimal = text.strip_prefix("0x").map(|digits| u8::from_str_radix(digits, 16));
    let byte = hexadecimal.unwrap_or_else(|| text.parse());
    byte.map_err(|_| "is no byte; give a number from 0 to 255, or from 0x0 to 0xff".to_owned())
}

fn one_size(text: &str) -> Result<u32, String> {
    u32::try_from(bytes(text)?.get()).map_err(|_| "is too large for a message".to_owned())
}

/// One value, or two with a hyphen between.
fn range(text: &str, of: impl Fn(&str) -> Result<u32, String>) -> Result<(u32, Option<u32>), String> {
    match text.split_once('-') {
        Some((least, most)) => Ok((of(least)?, Some(of(most)?))),
        None => Ok((of(text)?, None)),
    }
}

fn sizes(text: &str) -> Result<(u32, u32), String> {
    range(text, one_size).map(|(least, most)| (least, most.unwrap_or(least)))
}

fn burst(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse().map_err(|_| "is no number of messages like 40 or 20-40".to_owned());
    let (least, most) = range(text, number)?;
    Ok(most.map_or((least.div_ceil(2), least), |most| (least, most)))
}
