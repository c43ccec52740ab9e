//! A prober of networks: latency, throughput, losses and missed deadlines of messages between this
//! machine and servers ([`ProbeServer`]).
//!
//! - Open-loop sends happen at absolute times. Latency counts from the real send, and from the
//!   intended send, too. So a delayed sender hides nothing (coordinated omission).
//! - One-way delays are intervals. They hold the truth if the clocks' rates are within the stated
//!   drift. Without an exchange of clock messages they are unknown.
//! - Messages carry a magic, a version and the run's random number. Others are dropped and counted.
//!   They are not authenticated: whoever can read the network can forge them.

mod background;
mod figures;
mod measure;
mod offsets;
mod path;
mod server;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use takt_dispatch::deadline::Counts;
use takt_linux::datagram::{BindError, device_number};
use takt_linux::outgoing::{OutgoingError, Transport};
use takt_model::{Rate, Span, Time};
use takt_net::OffsetInterval;
use takt_net::probe::{HEAD, MESSAGE_MAX, Pace, ScheduleSpec, ServerCounts};
use thiserror::Error;

pub use self::figures::{Figures, PERCENTILES, percentiles};
pub use self::measure::probe;
pub use self::server::{ProbeClock, ProbeServer, ProbeServerSpec, ProbeServerStats};
use crate::time_sync::TimeSyncError;

/// The longest measurement.
pub const DURATION_MAX: Span = Span::from_s(3_600);
/// The most servers of a run.
pub const SERVERS_MAX: usize = 64;
/// The most messages with replies of a run: each takes memory here.
pub const REPLIES_MAX: u64 = 1 << 22;
/// The most groups of a server: the kernel's own limit (igmp_max_memberships).
pub const GROUPS_MAX: usize = 20;
/// The bits of a TOS byte that TCP sets itself.
const ECN: u8 = 3;
/// The most bursts a second.
pub const BURSTS_MAX: u32 = 1_000_000;

/// A measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeSpec {
    /// Whom it sends to, all IPv4 or all IPv6.
    pub servers: Vec<SocketAddr>,
    /// UDP or TCP.
    pub transport: Transport,
    /// What is sent, and when. `servers` of it is not regarded.
    pub schedule: ScheduleSpec,
    /// A burst waits for the replies to the one before (ping-pong).
    pub is_closed: bool,
    /// How long it measures.
    pub duration: Span,
    /// How long it sends before that. These messages count for nothing.
    pub warm_up: Span,
    /// A message without a reply after this time is lost.
    pub patience: Span,
    /// SO_PRIORITY of the messages.
    pub priority: u32,
    /// The TOS byte of the messages. Bulk packets and messages about clocks have none.
    pub tos: u8,
    /// `servers` is the address of one group (multicast). Each message goes to it once.
    pub group: Option<GroupSpec>,
    /// Bulk packets beside the messages.
    pub background: Option<BackgroundSpec>,
    /// The socket file of a broker that sends the messages.
    pub broker: Option<PathBuf>,
    /// How the clocks are compared; `None`: not at all, and no one-way delay is known.
    pub clocks: Option<ClocksSpec>,
}

/// How messages go to a group of servers, by UDP. Servers reply from addresses of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSpec {
    /// The device by which messages leave; `None`: the kernel chooses by its routes.
    pub device: Option<String>,
    /// How many networks messages may cross.
    pub ttl: u8,
    /// Whether servers on this machine get them, too.
    pub loops: bool,
    /// So many servers answer at least before it measures, from 1 to [`SERVERS_MAX`].
    pub members: u32,
}

impl Default for GroupSpec {
    /// As sockperf has it, and one server.
    fn default() -> GroupSpec {
        GroupSpec { device: None, ttl: 2, loops: false, members: 1 }
    }
}

/// Bulk packets to the servers in turn, by UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackgroundSpec {
    /// Bits of payload a second.
    pub rate: Rate,
    /// Bytes of a packet, from 1 to [`MESSAGE_MAX`].
    pub size: u32,
    /// SO_PRIORITY.
    pub priority: u32,
}

/// How the clocks of prober and servers are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClocksSpec {
    /// The time between two exchanges with a server.
    pub period: Span,
    /// Every clock's rate is within so many parts per million of true time.
    pub drift_ppm: u32,
    /// A wider interval of a clock's difference gives no one-way delay.
    pub width_max: Span,
    /// How long the exchanges go on before the first message.
    pub before: Span,
}

impl Default for ClocksSpec {
    fn default() -> ClocksSpec {
        ClocksSpec {
            period: Span::from_ms(10),
            drift_ppm: 500,
            width_max: Span::from_ms(1),
            before: Span::from_ms(200),
        }
    }
}

/// Why there is no measurement.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A value out of range.
    #[error("{0}")]
    Value(String),
    /// The socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A connection.
    #[error("no TCP connection to {server}: {cause}; is `takt net probe serve` running there?")]
    Connect {
        /// The server.
        server: SocketAddr,
        /// What the kernel answered.
        cause: io::Error,
    },
    /// The server cannot listen.
    #[error("TCP connections to {at} cannot be taken: {cause}{}", takt_linux::datagram::remedy(cause))]
    Listen {
        /// The address.
        at: SocketAddr,
        /// What the kernel answered.
        cause: io::Error,
    },
    /// A server is silent.
    #[error(
        "{0} does not answer; is `takt net probe serve` of this version running there, and does the network let UDP \
         and TCP through?"
    )]
    NoAnswer(SocketAddr),
    /// Too few servers of a group answer.
    #[error(
        "{found} of {wanted} servers of group {group} answer; does `takt net probe serve --group {}` run there, does \
         the TTL ({ttl}) reach them, and do messages leave by their network (--mc-tx-if)?", .group.ip()
    )]
    NoMembers {
        /// The group.
        group: SocketAddr,
        /// How many answered.
        found: usize,
        /// How many should.
        wanted: u32,
        /// The TTL of messages.
        ttl: u8,
    },
    /// A group that cannot be joined.
    #[error("the group {group} cannot be joined: {cause}; name the device of its network: --mc-rx-if NAME")]
    Join {
        /// The group.
        group: IpAddr,
        /// What the kernel answered.
        cause: io::Error,
    },
    /// A server has no place for the run.
    #[error("{0} serves as many runs as it can; measure again when one has ended, or start another server")]
    Full(SocketAddr),
    /// It was stopped before the first message.
    #[error("it was stopped before the first message, so nothing was measured")]
    Stopped,
    /// No broker.
    #[error("no broker takes messages at {}; start `takt net broker --socket {}`", .0.display(), .0.display())]
    NoBroker(PathBuf),
    /// The socket cannot go to a broker.
    #[error(transparent)]
    Outgoing(#[from] OutgoingError),
    /// The exchanges of clock messages.
    #[error(transparent)]
    Clocks(#[from] TimeSyncError),
    /// A thread or a descriptor.
    #[error("the kernel refused a thread or a descriptor: {0}")]
    Kernel(#[from] io::Error),
}

/// A message that asked for a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its number in the run.
    pub number: u64,
    /// The place of its server.
    pub server: u32,
    /// Bytes.
    pub size: u32,
    /// When it should have left, on CLOCK_MONOTONIC.
    pub intended: Time,
    /// When it left; `None`: the kernel did not take it.
    pub sent: Option<Time>,
    /// From `intended`.
    pub deadline: Option<Span>,
    /// The reply.
    pub reply: Option<Reply>,
}

/// The reply to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// This program received it.
    pub received: Time,
    /// The kernel had it, where it gave a stamp.
    pub stamped: Option<Time>,
    /// The message arrived at the server at this time of the own clock at the earliest and at the
    /// latest; `None`: the difference of the clocks is not known that well.
    pub arrived: Option<(Time, Time)>,
}

/// Whether a message kept its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It arrived in time.
    InTime,
    /// It did not.
    Missed,
    /// The interval of its arrival holds the deadline, or nothing is known of its arrival.
    Unknown,
}

impl Message {
    /// From the real send to the reply.
    #[must_use]
    pub fn round_trip(&self) -> Option<Span> {
        Some(self.reply?.received.saturating_since(self.sent?))
    }

    /// The one-way delay, at least and at most.
    #[must_use]
    pub fn one_way(&self) -> Option<(Span, Span)> {
        self.one_way_from(self.sent?)
    }

    /// The same, from another instant.
    pub(crate) fn one_way_from(&self, start: Time) -> Option<(Span, Span)> {
        let (from, to) = self.reply?.arrived?;
        Some((from.saturating_since(start), to.saturating_since(start)))
    }

    /// Whether it arrived at the server in time; `None` without a deadline.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let deadline = self.deadline?;
        Some(match (self.sent, self.one_way_from(self.intended)) {
            (None, _) => Verdict::Missed,
            (_, None) => Verdict::Unknown,
            (_, Some((low, _))) if low > deadline => Verdict::Missed,
            (_, Some((_, high))) if high <= deadline => Verdict::InTime,
            _ => Verdict::Unknown,
        })
    }

    /// Whether its reply did not come before the deadline; `None` without one.
    #[must_use]
    pub fn missed_round_trip(&self) -> Option<bool> {
        let deadline = self.deadline?;
        Some(self.reply.is_none_or(|reply| reply.received.saturating_since(self.intended) > deadline))
    }
}

/// The results of the messages to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerOutcome {
    /// The server.
    pub address: SocketAddr,
    /// Its arrivals are stamped by the kernel, not by the program.
    pub kernel_stamps: bool,
    /// Messages that the kernel, or the broker, took.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages that the kernel did not take.
    pub unsent: u64,
    /// Those of `sent` that asked for a reply.
    pub asked: u64,
    /// The connection ended during the run, or took nothing more. Nothing was sent to it after that.
    pub has_ended: bool,
    /// It reported counts that cannot be true.
    pub is_report_refused: bool,
    /// What arrived there; `None`: the server did not tell, or reported what cannot be true.
    pub arrived: Option<ServerCounts>,
    /// Replies that came in time for [`ProbeSpec::patience`], each counted once.
    pub answered: u64,
    /// Replies that came once more.
    pub duplicate_replies: u64,
    /// Replies that came after one to a later message.
    pub reordered_replies: u64,
    /// The difference own clock - server's clock at the end.
    pub offset: Option<OffsetInterval>,
}

impl ServerOutcome {
    /// Messages that did not arrive; `None`: the server did not tell.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        self.arrived.map(|arrived| self.sent.saturating_sub(arrived.received))
    }
}

/// A measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeOutcome {
    /// Messages that asked for a reply, in the order of their sends, without warm-up.
    pub messages: Vec<Message>,
    /// For each server.
    pub servers: Vec<ServerOutcome>,
    /// Messages that were sent in how long, without warm-up.
    pub duration: Span,
    /// Datagrams that are no message of this run.
    pub foreign: u64,
    /// Own replies are stamped by the kernel.
    pub kernel_stamps: bool,
    /// Messages of the schedule that were not sent. The sender was behind or was stopped, the time
    /// was over, or their connection had ended.
    pub skipped: u64,
    /// It was stopped before its end.
    pub is_stopped: bool,
    /// It ended early, because a run has no more messages ([`REPLIES_MAX`], and `NUMBERS_MAX`).
    pub is_full: bool,
    /// Bytes of background load that the kernel took.
    pub background_bytes: u64,
    /// What the broker did, with one.
    pub broker: Option<Counts>,
}

/// The progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Since the first message.
    pub elapsed: Span,
    /// Messages sent.
    pub sent: u64,
    /// Replies.
    pub answered: u64,
}

impl ProbeSpec {
    /// A measurement of that pace for a second, by UDP.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>, pace: Pace) -> ProbeSpec {
        ProbeSpec {
            servers,
            transport: Transport::Datagram,
            schedule: ScheduleSpec::new(pace),
            is_closed: false,
            duration: Span::from_s(1),
            warm_up: Span::ZERO,
            patience: Span::from_ms(500),
            priority: 6,
            tos: 0,
            group: None,
            background: None,
            broker: None,
            clocks: Some(ClocksSpec::default()),
        }
    }

    fn check(&self) -> Result<(), ProbeError> {
        let value = |text: String| Err(ProbeError::Value(text));
        let servers = self.servers.len();
        if servers == 0 || servers > SERVERS_MAX {
            return value(format!("{servers} servers; give from 1 to {SERVERS_MAX}"));
        }
        if let Some(other) = self.servers.iter().find(|server| server.is_ipv4() != self.is_ipv4()) {
            return value(format!(
                "{other} and {} are of IPv4 and IPv6; probe them one after the other",
                self.servers[0]
            ));
        }
        self.check_group()?;
        if self.transport == Transport::Stream && self.tos & ECN != 0 {
            return value(format!(
                "TOS {}: the kernel keeps the two lowest bits (ECN) of TCP for itself; give a multiple of 4",
                self.tos
            ));
        }
        let twice = self.servers.iter().zip(1..).find(|(server, next)| self.servers[*next..].contains(server));
        if let Some((server, _)) = twice {
            return value(format!("{server} is given twice; name each server once"));
        }
        if self.broker.is_some() && self.schedule.deadline.is_none() {
            return value("a broker sends by deadlines; give --deadline, like 1ms".to_owned());
        }
        if self.schedule.deadline.is_some() && self.schedule.reply_every == 0 && self.broker.is_none() {
            return value(
                "deadlines are judged by replies, and no message asks for one; leave out --deadline, or measure \
                 under-load with --reply-every 1"
                    .to_owned(),
            );
        }
        if self.duration.is_zero() || self.duration > DURATION_MAX {
            return value(format!("the duration is 0 or above {DURATION_MAX}; give one like 10s"));
        }
        if self.warm_up > DURATION_MAX {
            return value(format!("the warm-up is above {DURATION_MAX}; give one like 100ms"));
        }
        if self.patience.is_zero() || self.patience > Span::from_s(60) {
            return value("the wait for replies is 0 or above 1min; give one like 500ms".to_owned());
        }
        let (least, most) = self.schedule.size;
        if least > most || (least as usize) < HEAD || most as usize > MESSAGE_MAX {
            return value(format!(
                "messages have from {HEAD} to {MESSAGE_MAX} bytes; {least} to {most} is not possible"
            ));
        }
        let (least, most) = self.schedule.burst;
        if least == 0 || least > most || most > 100_000 {
            return value("a burst has from 1 to 100000 messages".to_owned());
        }
        if self.schedule.deadline.is_some_and(|deadline| deadline.is_zero() || deadline > DURATION_MAX) {
            return value(format!("the deadline is 0 or above {DURATION_MAX}; give one like 1ms"));
        }
        if let Pace::BurstsPerSecond(rate) = self.schedule.pace
            && !(1..=BURSTS_MAX).contains(&rate)
        {
            return value(format!("{rate} bursts a second; give from 1 to {BURSTS_MAX}"));
        }
        if let Some(background) = self.background
            && (background.rate.as_bps() == 0 || !(1..=MESSAGE_MAX as u32).contains(&background.size))
        {
            return value(format!("background load has a rate above 0, and packets of 1 to {MESSAGE_MAX} bytes"));
        }
        if self.clocks.is_some_and(|clocks| clocks.period < Span::from_us(100) || clocks.before > Span::from_s(60)) {
            return value("clocks are compared every 100us at most, and for 1min at most before the start".to_owned());
        }
        self.check_replies()
    }

    fn check_group(&self) -> Result<(), ProbeError> {
        let value = |text: String| Err(ProbeError::Value(text));
        let group = self.servers.iter().find(|server| server.ip().is_multicast());
        let (Some(group), Some(spec)) = (group, &self.group) else {
            return match (group, &self.group) {
                (Some(group), None) => value(format!("{group} is a group (multicast), and no server")),
                (None, Some(_)) => value(format!(
                    "{} is no group (multicast): groups are 224.0.0.0 to 239.255.255.255, and ff00:: and above; leave \
                     out --mc-tx-if, --mc-ttl, --mc-loopback-enable and --members, or give the address of a group",
                    self.servers[0]
                )),
                _ => Ok(()),
            };
        };
        if self.servers.len() > 1 {
            return value(format!("{group} is a group (multicast): give one group, or the addresses of servers"));
        }
        if self.transport == Transport::Stream {
            return value(format!(
                "{group} is a group (multicast), and TCP has none; leave out --tcp, or give the addresses of servers"
            ));
        }
        if spec.members == 0 || spec.members as usize > SERVERS_MAX {
            return value(format!("{} servers of group {group}; give from 1 to {SERVERS_MAX}", spec.members));
        }
        Ok(())
    }

    /// Replies to each message that asks for one: at least so many.
    fn replies_each(&self) -> u64 {
        self.group.as_ref().map_or(1, |group| group.members.into())
    }

    fn check_replies(&self) -> Result<(), ProbeError> {
        let every = u128::from(self.schedule.reply_every);
        let time = u128::from(self.duration.as_ns()) + u128::from(self.warm_up.as_ns());
        let all = match &self.schedule.pace {
            Pace::Max => 0,
            Pace::BurstsPerSecond(rate) => {
                (time * u128::from(*rate)).div_ceil(1_000_000_000) * u128::from(self.schedule.burst.1)
            }
            Pace::Playback(sends) => sends.len() as u128,
        };
        match all.checked_div(every).map(|asked| asked * u128::from(self.replies_each())) {
            Some(replies) if replies > u128::from(REPLIES_MAX) => Err(ProbeError::Value(format!(
                "{replies} messages with replies are too many: at most {REPLIES_MAX}; measure for a shorter time, or \
                 ask for a reply to fewer messages"
            ))),
            _ if all > u128::from(takt_net::probe::NUMBERS_MAX) => Err(ProbeError::Value(format!(
                "{all} messages are too many: at most {}; measure for a shorter time",
                takt_net::probe::NUMBERS_MAX
            ))),
            _ => Ok(()),
        }
    }

    fn is_ipv4(&self) -> bool {
        self.servers.first().is_some_and(SocketAddr::is_ipv4)
    }
}

/// The kernel's number of a network device.
fn number_of(device: Option<&str>) -> Result<Option<u32>, ProbeError> {
    let none = |name: &str| {
        ProbeError::Value(format!("there is no network device \"{name}\"; `ip link` lists those of this machine"))
    };
    device.map(|name| device_number(name).ok_or_else(|| none(name))).transpose()
}
