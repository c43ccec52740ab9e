//! The plan of a link: its classes with rates, bursts and priorities, made from a System's link.
//!
//! Rates are in bytes a second and rounded up, bursts in bytes. Sizes count as on the wire: the
//! kernel adds [`Device::overhead`] to each frame, so that a link of Ethernet keeps to its rate.
//!
//! - The real-time class has the rate and the burst of `link.bucket`, and borrows nothing. Without
//!   a bucket it may take the whole link.
//! - The reply class exists if the System has `link.replies`.
//! - The background class takes all other packets. It has the rest of the link, and borrows unused
//!   shares, up to `link.background.rate` or the rate of the link.

use std::fmt;

use takt_model::{Bytes, Late, Link, Rate, Span};
use thiserror::Error;

use crate::device::Device;

/// The purpose of a class, the most important first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Messages with deadlines.
    RealTime,
    /// Replies to them.
    Reply,
    /// All other packets.
    Background,
}

impl Role {
    /// All of them, the most important first.
    pub const ALL: [Role; 3] = [Role::RealTime, Role::Reply, Role::Background];

    /// Its name in tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Role::RealTime => "real-time",
            Role::Reply => "reply",
            Role::Background => "background",
        }
    }

    /// The lower half of its class's handle.
    #[must_use]
    pub const fn minor(self) -> u16 {
        match self {
            Role::RealTime => 0x10,
            Role::Reply => 0x20,
            Role::Background => 0x30,
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Rate and burst of a token bucket, as the kernel keeps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shaper {
    /// Bytes a second.
    pub rate: u64,
    /// Bytes.
    pub burst: u64,
}

/// A class of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassPlan {
    /// Its purpose.
    pub role: Role,
    /// Its own rate and burst.
    pub assured: Shaper,
    /// Its limit, with the unused shares of others.
    pub ceiling: Shaper,
    /// 0 is the most important.
    pub priority: u32,
    /// Bytes per turn, among classes of one priority.
    pub quantum: u32,
    /// Packets that its queue holds; further ones are dropped and counted.
    pub packets_max: u32,
}

/// The queueing discipline that keeps the classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discipline {
    /// HTB of the kernel: each class is first in, first out.
    Htb,
    /// takt's own, a BPF program: it knows the deadlines of real-time packets. The background class has
    /// no rate of its own. It gets what the others leave.
    Own {
        /// Whether the earliest deadline goes first; otherwise what came first.
        edf: bool,
        /// The rule for a real-time datagram that could start only after its deadline.
        late: Late,
    },
}

impl Discipline {
    /// takt's own, with order and late rule of the link.
    #[must_use]
    pub const fn own(link: &Link) -> Discipline {
        Discipline::Own { edf: link.edf, late: link.late }
    }
}

/// The classes of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Its queueing discipline.
    pub discipline: Discipline,
    /// The link as a whole.
    pub line: Shaper,
    /// Its classes, the most important first.
    pub classes: Vec<ClassPlan>,
    /// Bytes of each frame on the wire beside the kernel's count.
    pub overhead: u16,
    /// The largest frame.
    pub frame_max: u32,
    /// The largest packet if TCP may hand over several segments as one.
    pub gso_frame_max: u32,
    /// Facts that the reader should know.
    pub notes: Vec<String>,
}

/// Why a link has no plan.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PlanError {
    /// More than the link.
    #[error("link.bucket and link.replies take {shares} together, and the link has {rate}: lower one of their rates")]
    Shares {
        /// Their sum.
        shares: Rate,
        /// Rate of the link.
        rate: Rate,
    },
    /// Too slow for the kernel's arithmetic.
    #[error("{what} of {rate} is below {RATE_MIN}, the least that takt gives a class: raise it")]
    Slow {
        /// Which rate.
        what: &'static str,
        /// Its value.
        rate: Rate,
    },
    /// A burst that the kernel cannot count.
    #[error("{what} of {burst} takes more than {BURST_TIME_MAX} at {rate}, more than the kernel counts: lower it")]
    Burst {
        /// Which burst.
        what: &'static str,
        /// Its value.
        burst: Bytes,
        /// The rate at which it fills.
        rate: Rate,
    },
}

/// Packets in the queue of a class.
pub const PACKETS_MAX: u32 = 1_000;
/// The least rate of a class. The largest frame of an ordinary device then fits the kernel's counters.
pub const RATE_MIN: Rate = Rate::from_bps(8_000);
/// How late the kernel's timer may be without loss of rate on a fast link.
const TIMER_LATE: Span = Span::from_us(50);
/// The longest time that the kernel counts in its ticks of 64 ns.
const BURST_TIME_MAX: Span = Span::from_s(270);
/// The frame with which `takt check` reckons unless a System says more.
const FRAME_CHARGED: u64 = 1_538;

impl Plan {
    /// The classes of `device` for `link` under HTB.
    ///
    /// # Errors
    /// Shares that the link or the kernel does not have.
    pub fn new(link: &Link, device: &Device) -> Result<Plan, PlanError> {
        Plan::under(Discipline::Htb, link, device)
    }

    /// The classes of `device` for `link` under that discipline.
    ///
    /// # Errors
    /// Shares that the link or the kernel does not have.
    pub fn under(discipline: Discipline, link: &Link, device: &Device) -> Result<Plan, PlanError> {
        let frame = u64::from(device.frame_max());
        let rate = whole("link.rate", link.rate)?;
        let line = Shaper { rate, burst: frame.max(rate.saturating_mul(TIMER_LATE.as_ns()) / 1_000_000_000) };
        let share = |what, bucket: Option<takt_model::Bucket>| {
            bucket.map(|bucket| Ok(Shaper { rate: whole(what, bucket.rate)?, burst: bucket.burst.get() })).transpose()
        };
        let (real_time, reply) = (share("link.bucket.rate", link.bucket)?, share("link.replies.rate", link.replies)?);
        let rate_of = |share: Option<Shaper>| share.map_or(0, |share| share.rate);
        let shares = rate_of(real_time).saturating_add(rate_of(reply));
        if shares > rate {
            return Err(PlanError::Shares { shares: bits(shares), rate: bits(rate) });
        }
        let least = RATE_MIN.as_bps() / 8;
        let left = rate - shares;
        let one_frame = |rate| Shaper { rate, burst: frame };
        let mut notes = Vec::new();
        // The whole link, but for the least rate of the background class, which it takes by borrowing.
        let (assured, ceiling) = match real_time {
            Some(share) => (share, share),
            None => (Shaper { rate: left.saturating_sub(least).max(least), burst: line.burst }, line),
        };
        let mut classes = vec![class(Role::RealTime, assured, ceiling, frame)];
        classes.extend(reply.map(|share| class(Role::Reply, share, share, frame)));
        let rest = if real_time.is_some() { left } else { 0 };
        if real_time.is_some() && rest < least {
            let left = bits(rest);
            notes.push(match discipline {
                Discipline::Htb => format!(
                    "the shares leave {left} for other packets: these get {RATE_MIN} all the same, beyond the rate of \
                     the link"
                ),
                Discipline::Own { .. } => format!(
                    "the shares leave {left} for other packets: these leave only while the shares are not used up"
                ),
            });
        }
        let most = match link.background.and_then(|background| background.rate) {
            Some(most) => Shaper { rate: whole("link.background.rate", most)?, ..line },
            None => line,
        };
        let assured = one_frame(rest.max(least).min(most.rate));
        classes.push(class(Role::Background, assured, most, frame));
        for class in &classes {
            for (what, shaper) in [("the burst", class.assured), ("the burst of the ceiling", class.ceiling)] {
                if time_of(shaper.burst, shaper.rate) > BURST_TIME_MAX {
                    return Err(PlanError::Burst { what, burst: Bytes::new(shaper.burst), rate: bits(shaper.rate) });
                }
            }
        }
        let mut plan = Plan {
            discipline,
            line,
            classes,
            overhead: device.overhead(),
            frame_max: device.frame_max(),
            gso_frame_max: device.gso_frame_max(),
            notes,
        };
        let charged = link.background.map_or(0, |background| background.size.get()).max(FRAME_CHARGED);
        let blocks = plan.blocking_bytes(plan.frame_max);
        if blocks > charged {
            plan.notes.push(format!(
                "takt check charges {charged}B of other packets before a message, and this device may send \
                 {blocks}B: write link.background = {{ size = \"{blocks}B\" }}"
            ));
        }
        Ok(plan)
    }

    /// The class for that.
    #[must_use]
    pub fn class(&self, role: Role) -> Option<&ClassPlan> {
        self.classes.iter().find(|class| class.role == role)
    }

    /// The longest delay of a real-time packet by other classes. It is the time of the link's burst and a
    /// frame. Replies have tokens of their own, so their burst and a frame come on top. It holds on a
    /// device that sends at the rate of the link.
    #[must_use]
    pub fn blocking(&self) -> Span {
        time_of(self.blocking_bytes(self.frame_max), self.line.rate)
    }

    /// The same if TCP may hand over several segments as one packet.
    #[must_use]
    pub fn blocking_with_gso(&self) -> Span {
        time_of(self.blocking_bytes(self.gso_frame_max), self.line.rate)
    }

    fn blocking_bytes(&self, largest: u32) -> u64 {
        let frame = u64::from(largest);
        let replies = self.class(Role::Reply).map_or(0, |class| class.ceiling.burst.saturating_add(frame));
        self.line.burst.saturating_add(frame).saturating_add(replies)
    }
}

fn class(role: Role, assured: Shaper, ceiling: Shaper, frame: u64) -> ClassPlan {
    let priority = Role::ALL.iter().position(|of| *of == role).map_or(0, |position| position as u32);
    let quantum = u32::try_from(frame).unwrap_or(u32::MAX);
    ClassPlan { role, assured, ceiling, priority, quantum, packets_max: PACKETS_MAX }
}

/// Whole bytes a second, rounded up.
fn whole(what: &'static str, rate: Rate) -> Result<u64, PlanError> {
    if rate < RATE_MIN { Err(PlanError::Slow { what, rate }) } else { Ok(rate.as_bps().div_ceil(8)) }
}

/// A rate in bytes a second, in bits.
pub(super) fn bits(rate: u64) -> Rate {
    Rate::from_bps(rate.saturating_mul(8))
}

/// How long so many bytes take, rounded up.
pub(super) fn time_of(bytes: u64, rate: u64) -> Span {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    Span::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
pub(super) mod tests {
    use takt_model::{Background, Bucket};

    use super::*;

    pub(in crate::tc) fn device() -> Device {
        Device {
            index: 7,
            name: "eth0".to_owned(),
            mtu: 1_500,
            up: true,
            gso_max_segs: 65_535,
            gso_max_size: 65_536,
            ethernet: true,
            can: false,
            address: vec![2, 0, 0, 0, 0, 1],
        }
    }

    pub(in crate::tc) fn bucket(rate: u64, burst: u64) -> Option<Bucket> {
        Some(Bucket { rate: Rate::from_bps(rate), burst: Bytes::new(burst) })
    }

    fn rates(plan: &Plan) -> Vec<(Role, u64, u64)> {
        plan.classes.iter().map(|class| (class.role, class.assured.rate * 8, class.ceiling.rate * 8)).collect()
    }

    #[test]
    fn shares_of_the_system_become_classes() {
        let link = Link {
            bucket: bucket(20_000_000, 3_000),
            replies: bucket(5_000_000, 1_000),
            ..Link::at(Rate::from_bps(100_000_000))
        };
        let plan = Plan::new(&link, &device()).unwrap();
        assert_eq!(
            rates(&plan),
            [
                (Role::RealTime, 20_000_000, 20_000_000),
                (Role::Reply, 5_000_000, 5_000_000),
                (Role::Background, 75_000_000, 100_000_000),
            ]
        );
        let bursts: Vec<u64> = plan.classes.iter().map(|class| class.assured.burst).collect();
        assert_eq!(bursts, [3_000, 1_000, 1_538]);
        assert_eq!(plan.classes.iter().map(|class| class.priority).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(plan.classes.iter().all(|class| class.quantum == 1_538), "always set");
        // At 12.5 MB/s a burst and a frame of 1538 B each, and 1000 B and a frame of replies. With GSO a
        // frame is a packet of 64 KiB.
        assert_eq!(plan.blocking(), Span::from_ns(449_120));
        assert_eq!(plan.blocking_with_gso(), Span::from_ns(10_694_880));
    }

    #[test]
    fn without_a_bucket_real_time_may_take_the_link_and_rates_add_up() {
        let plan = Plan::new(&Link::at(Rate::from_bps(10_000_000)), &device()).unwrap();
        assert_eq!(rates(&plan), [(Role::RealTime, 9_992_000, 10_000_000), (Role::Background, 8_000, 10_000_000),]);
        let background = Background { size: Bytes::new(4_000), rate: Some(Rate::from_bps(1_000_000)) };
        let limited = Link { background: Some(background), ..Link::at(Rate::from_bps(10_000_000)) };
        let plan = Plan::new(&limited, &device()).unwrap();
        assert_eq!(rates(&plan)[1], (Role::Background, 8_000, 1_000_000));
        assert_eq!(plan.notes, [] as [&str; 0], "4000 B are charged");
    }

    #[test]
    fn rates_round_up_and_fast_links_get_a_burst_for_their_timer() {
        let link = Link { bucket: bucket(1_000_001, 2_000), ..Link::at(Rate::from_bps(10_000_000_000)) };
        let plan = Plan::new(&link, &device()).unwrap();
        assert_eq!(plan.classes[0].assured.rate, 125_001);
        assert_eq!(plan.line.burst, 62_500, "50 us");
        assert!(plan.notes[0].contains("size = \"64038B\""), "{:?}", plan.notes);
    }

    #[test]
    fn shares_that_do_not_fit_are_refused_with_the_remedy() {
        let rate = Rate::from_bps(10_000_000);
        let link = Link { bucket: bucket(8_000_000, 2_000), replies: bucket(3_000_000, 2_000), ..Link::at(rate) };
        let error = Plan::new(&link, &device()).unwrap_err().to_string();
        assert_eq!(
            error,
            "link.bucket and link.replies take 11Mbit together, and the link has 10Mbit: lower one of their rates"
        );
        let slow = Link { bucket: bucket(7_999, 2_000), ..Link::at(rate) };
        let error = Plan::new(&slow, &device()).unwrap_err().to_string();
        assert!(error.starts_with("link.bucket.rate of 7999bit is below 8kbit"), "{error}");
        let large = Link { bucket: bucket(8_000, 1 << 30), ..Link::at(rate) };
        assert!(matches!(Plan::new(&large, &device()), Err(PlanError::Burst { .. })));
        let full = Link { bucket: bucket(10_000_000, 2_000), ..Link::at(rate) };
        let plan = Plan::new(&full, &device()).unwrap();
        assert_eq!(plan.class(Role::Background).unwrap().assured.rate, 1_000);
        assert!(plan.notes[0].starts_with("the shares leave 0bit"), "{:?}", plan.notes);
    }
}
