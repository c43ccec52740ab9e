//! HTB as the kernel takes and tells it: options of the queueing discipline, classes, counters.

use super::plan::{ClassPlan, Plan, Role, Shaper};
use crate::netlink::{attribute, long, number, put};

/// The upper half of the handle of takt's tree. It tells the tree from those of others.
pub(super) const MAJOR: u32 = 0x7461;
/// The handle of takt's tree.
pub(super) const ROOT: u32 = MAJOR << 16;
/// The class of the link as a whole.
pub(super) const LINE: u32 = ROOT | 1;

const PARMS: u16 = 1;
const INIT: u16 = 2;
const RATE64: u16 = 6;
const CEIL64: u16 = 7;
/// A tick of the kernel's packet scheduler.
const TICK_NS: u64 = 64;
/// The kernel counts frames as they are, without cells.
const ETHERNET: u8 = 1;
/// Bytes of `tc_htb_opt`.
const PARMS_LENGTH: usize = 44;

pub(super) const fn class_of(role: Role) -> u32 {
    ROOT | role.minor() as u32
}

/// The handle of the queue of a class.
pub(super) const fn queue_of(role: Role) -> u32 {
    (MAJOR + role.minor() as u32) << 16
}

/// The options of the queueing discipline: packets without a class go to the background.
pub(super) fn discipline() -> Vec<u8> {
    let mut options = Vec::new();
    let words = [3, 10, u32::from(Role::Background.minor()), 0, 0];
    put(&mut options, INIT, &words.map(u32::to_ne_bytes).concat());
    options
}

/// A class as the kernel keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class {
    /// Its own rate.
    pub(super) assured: Shaper,
    /// Its rate with what it borrows.
    pub(super) ceiling: Shaper,
    overhead: u16,
    pub(super) quantum: u32,
    pub(super) priority: u32,
    /// Bursts in ticks.
    ticks: (u32, u32),
}

impl Class {
    pub(super) fn line(plan: &Plan) -> Class {
        Class::new(plan.line, plan.line, plan, plan.frame_max, 0)
    }

    pub(super) fn leaf(plan: &Plan, class: &ClassPlan) -> Class {
        Class::new(class.assured, class.ceiling, plan, class.quantum, class.priority)
    }

    fn new(assured: Shaper, ceiling: Shaper, plan: &Plan, quantum: u32, priority: u32) -> Class {
        let ticks = (ticks(assured), ticks(ceiling));
        Class { assured, ceiling, overhead: plan.overhead, quantum, priority, ticks }
    }

    /// The options of a request.
    pub(super) fn options(&self) -> Vec<u8> {
        let mut parms = Vec::with_capacity(PARMS_LENGTH);
        for shaper in [self.assured, self.ceiling] {
            parms.extend_from_slice(&[0, ETHERNET]);
            parms.extend_from_slice(&self.overhead.to_ne_bytes());
            // Alignment of cells and the least packet: none.
            parms.extend_from_slice(&[0; 4]);
            parms.extend_from_slice(&u32::try_from(shaper.rate).unwrap_or(u32::MAX).to_ne_bytes());
        }
        for word in [self.ticks.0, self.ticks.1, self.quantum, 0, self.priority] {
            parms.extend_from_slice(&word.to_ne_bytes());
        }
        let mut options = Vec::new();
        put(&mut options, PARMS, &parms);
        for (name, shaper) in [(RATE64, self.assured), (CEIL64, self.ceiling)] {
            if u32::try_from(shaper.rate).is_err() {
                put(&mut options, name, &shaper.rate.to_ne_bytes());
            }
        }
        options
    }

    pub(super) fn parse(options: &[u8]) -> Option<Class> {
        let parms = attribute(options, PARMS)?;
        let word = |at: usize| number(parms.get(at..)?);
        let rate = |at, name| Some(attribute(options, name).and_then(long).unwrap_or(u64::from(word(at)?)));
        let (rate, ceiling) = (rate(8, RATE64)?, rate(20, CEIL64)?);
        let ticks = (word(24)?, word(28)?);
        let shaper = |rate, ticks| Shaper { rate, burst: burst(ticks, rate) };
        Some(Class {
            assured: shaper(rate, ticks.0),
            ceiling: shaper(ceiling, ticks.1),
            overhead: u16::from_ne_bytes(*parms.get(2..)?.first_chunk()?),
            quantum: word(32)?,
            priority: word(40)?,
            ticks,
        })
    }

    /// Differences from `wanted`, in words.
    pub(super) fn differences(&self, wanted: &Class) -> Vec<String> {
        let pairs = [
            ("rate", self.assured.rate, wanted.assured.rate),
            ("ceil", self.ceiling.rate, wanted.ceiling.rate),
            ("burst in ticks", u64::from(self.ticks.0), u64::from(wanted.ticks.0)),
            ("cburst in ticks", u64::from(self.ticks.1), u64::from(wanted.ticks.1)),
            ("overhead", u64::from(self.overhead), u64::from(wanted.overhead)),
            ("quantum", u64::from(self.quantum), u64::from(wanted.quantum)),
            ("prio", u64::from(self.priority), u64::from(wanted.priority)),
        ];
        let differing = pairs.iter().filter(|(_, found, wanted)| found != wanted);
        differing.map(|(name, found, wanted)| format!("{name} {found} instead of {wanted}")).collect()
    }
}

/// The time in which a burst fills, in ticks, rounded up.
fn ticks(shaper: Shaper) -> u32 {
    let ns = super::plan::time_of(shaper.burst, shaper.rate).as_ns();
    u32::try_from(ns.div_ceil(TICK_NS)).unwrap_or(u32::MAX)
}

/// The bytes of a burst, of its time in ticks, rounded to the nearest.
fn burst(ticks: u32, rate: u64) -> u64 {
    let bytes = (u128::from(ticks) * u128::from(TICK_NS) * u128::from(rate) + 500_000_000) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The counters of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes sent, as the kernel counts them.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Packets that wait.
    pub waiting: u64,
}

impl Counters {
    /// The counters among the attributes of a class or a queue.
    pub(super) fn parse(list: &[u8]) -> Option<Counters> {
        let stats = attribute(list, libc::TCA_STATS)?;
        let word = |at: usize| stats.get(at..).and_then(number).map(u64::from);
        Some(Counters { bytes: long(stats)?, packets: word(8)?, dropped: word(12)?, waiting: word(28)? })
    }
}

#[cfg(test)]
mod tests {
    use takt_model::{Link, Rate};

    use super::super::plan::tests::{bucket, device};
    use super::*;

    #[test]
    fn classes_survive_their_options() {
        for rate in [8_000u64, 100_000_000, 100_000_000_000] {
            let link = Link { bucket: bucket(rate / 2 + 8_001, 3_000), ..Link::at(Rate::from_bps(rate * 4)) };
            let plan = Plan::new(&link, &device()).unwrap();
            let classes = plan.classes.iter().map(|class| Class::leaf(&plan, class)).chain([Class::line(&plan)]);
            for class in classes {
                let read = Class::parse(&class.options()).unwrap();
                assert_eq!(read.differences(&class), [] as [&str; 0]);
                // A tick of 64 ns is the granularity of bursts.
                let most = class.assured.rate * TICK_NS / 1_000_000_000 + 1;
                assert!(read.assured.burst.abs_diff(class.assured.burst) <= most, "{read:?} of {class:?}");
                assert!(read.assured.burst >= class.assured.burst, "rounded up");
            }
        }
    }

    #[test]
    fn differences_are_named() {
        let link = Link { bucket: bucket(20_000_000, 3_000), ..Link::at(Rate::from_bps(100_000_000)) };
        let plan = Plan::new(&link, &device()).unwrap();
        let wanted = Class::leaf(&plan, &plan.classes[0]);
        let found = Class { quantum: 1, ..wanted };
        assert_eq!(found.differences(&wanted), ["quantum 1 instead of 1538"]);
        assert_eq!(Class::parse(&[]), None);
        let cut = wanted.options();
        assert_eq!(Class::parse(&cut[..cut.len() - 8]), None);
    }

    #[test]
    fn handles_of_takt_are_its_own() {
        assert_eq!(class_of(Role::RealTime), 0x7461_0010);
        assert_eq!(queue_of(Role::Background), 0x7491_0000);
        assert_eq!(discipline().len(), 24);
    }
}
