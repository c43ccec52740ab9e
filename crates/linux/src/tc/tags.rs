//! Deadlines of packets in the kernel: a socket option, and the programs that heed it (bpf/deadline.bpf.c).
//!
//! While [`Tags`] are attached to a shared device, each socket has the option SO_DEADLINE
//! ([`set_deadline`]). Packets of sockets with a deadline go to the real-time class, and carry their
//! deadline. The programs count packets that leave late. They can drop datagrams that cannot start in
//! time.
//!
//! **Invariant.** All is held by descriptors of this process, so nothing stays when it ends, also
//! after a kill -9. Sockets then lose their deadlines, and the kernel refuses the option.

#[cfg(not(feature = "bpf"))]
mod absent;
#[cfg(feature = "bpf")]
mod kernel;

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::PathBuf;

use takt_model::{Span, Time};

#[cfg(not(feature = "bpf"))]
use self::absent::Programs;
#[cfg(feature = "bpf")]
use self::kernel::Programs;
use super::NetError;
use super::htb::class_of;
use super::install::{Applied, refused};
use super::own::TAGGED;
use super::plan::{Discipline, Plan, Role, time_of};
use super::probes;
use crate::datagram::set_option;
use crate::device::{Device, namespace};

/// The level of the options for setsockopt(2). No protocol of the kernel has it.
const LEVEL: libc::c_int = 0x7461;
const SO_DEADLINE: libc::c_int = 1;
const SO_DEADLINE_AT: libc::c_int = 2;
/// Bursts are rounded up to the tick of the kernel's packet scheduler.
const TICK_NS: u64 = 64;
/// The deadline of frames for the check: they are never late.
const FAR: Span = Span::from_s(3600);

/// The deadline of a socket's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketDeadline {
    /// They have none.
    None,
    /// So long after their send, more than zero.
    After(Span),
    /// That time of CLOCK_MONOTONIC, until it is set again. Below 2^63 ns, more than zero.
    At(Time),
}

/// Gives the packets that a socket sends from now on a deadline. This needs no privilege.
///
/// # Errors
/// ENOPROTOOPT: no takt with `--deadlines` runs. EINVAL: the value is out of range.
pub fn set_deadline(socket: &impl AsFd, deadline: PacketDeadline) -> io::Result<()> {
    let (option, ns) = match deadline {
        PacketDeadline::None => (SO_DEADLINE, 0),
        PacketDeadline::After(span) => (SO_DEADLINE, span.as_ns()),
        PacketDeadline::At(time) => (SO_DEADLINE_AT, time.as_ns()),
    };
    set_option(&socket.as_fd(), LEVEL, option, &ns)
}

/// The deadline of a socket's packets.
///
/// # Errors
/// ENOPROTOOPT: no takt with `--deadlines` runs.
pub fn deadline(socket: &impl AsFd) -> io::Result<PacketDeadline> {
    let value = |option: libc::c_int| {
        let (mut ns, mut size) = (0_u64, size_of::<u64>() as libc::socklen_t);
        let (socket, value) = (socket.as_fd().as_raw_fd(), std::ptr::from_mut(&mut ns).cast());
        // SAFETY: value and size may be written, outlive the call, and the size is that of the value.
        match unsafe { libc::getsockopt(socket, LEVEL, option, value, &raw mut size) } {
            0 => Ok(ns),
            _ => Err(io::Error::last_os_error()),
        }
    };
    Ok(match (value(SO_DEADLINE)?, value(SO_DEADLINE_AT)?) {
        (0, 0) => PacketDeadline::None,
        (0, at) => PacketDeadline::At(Time::from_ns(at)),
        (after, _) => PacketDeadline::After(Span::from_ns(after)),
    })
}

/// The rule for a datagram that cannot start before its deadline. Bytes of streams are always sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LateDatagrams {
    /// It is dropped before it takes bandwidth, and counted.
    Drop,
    /// It is sent in its turn.
    Send,
}

/// Whose sockets have the option, and the late rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagSpec {
    /// The control group (cgroup v2) of the programs, from the root. Groups below it belong to it.
    pub group: PathBuf,
    /// The late rule.
    pub late: LateDatagrams,
}

/// Packets with deadlines since the start, those for the check aside.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TagCounts {
    /// Packets that came to the device, dropped ones included.
    pub came: u64,
    /// Datagrams that were dropped, since they could not start in time.
    pub dropped: u64,
    /// Packets that left the device.
    pub left: u64,
    /// Packets that left after their deadline.
    pub late: u64,
}

/// What the programs must know of a device and its real-time class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Settings {
    /// Bytes a second.
    rate: u64,
    burst_ns: u64,
    /// Bytes of each frame.
    overhead: u64,
    device: u32,
    /// The number of its network namespace.
    space: u32,
    class: u32,
    drop_late: bool,
}

impl Settings {
    fn new(plan: &Plan, device: &Device, late: LateDatagrams) -> io::Result<Settings> {
        // Without a bucket of its own the class may take the link.
        let limit = plan.class(Role::RealTime).map_or(plan.line, |class| class.ceiling);
        let space = u32::try_from(namespace()?).map_err(|_| io::Error::other("the namespace's number is too large"))?;
        Ok(Settings {
            rate: limit.rate,
            burst_ns: time_of(limit.burst, limit.rate).as_ns().next_multiple_of(TICK_NS),
            overhead: u64::from(plan.overhead),
            device: device.index,
            space,
            class: if plan.discipline == Discipline::Htb { class_of(Role::RealTime) } else { TAGGED },
            // takt's own discipline knows the deadlines itself.
            drop_late: plan.discipline == Discipline::Htb && late == LateDatagrams::Drop,
        })
    }
}

/// The programs on a shared device. Dropping it takes them away.
#[derive(Debug)]
pub struct Tags {
    programs: Programs,
    device: Device,
    spec: TagSpec,
    /// Frames for the check.
    probed: u64,
}

impl Tags {
    /// Attaches the programs to a device whose shares this process holds, and checks them by frames.
    ///
    /// # Errors
    /// This takt was built without the feature `bpf`, the kernel lacks a part or refuses it, or the
    /// counters deny it.
    pub fn attach(applied: &Applied, spec: TagSpec) -> Result<Tags, NetError> {
        let device = applied.device().clone();
        let settings = settings(applied.plan(), &device, spec.late)?;
        let mut tags = Tags { programs: Programs::attach(settings, &spec.group)?, device, spec, probed: 0 };
        tags.check()?;
        Ok(tags)
    }

    /// Whether this takt can have the programs at all.
    ///
    /// # Errors
    /// It was built without the feature `bpf`.
    pub fn built() -> Result<(), NetError> {
        if cfg!(feature = "bpf") { Ok(()) } else { Err(NetError::NotBuilt) }
    }

    /// Follows a change of the shares.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn change(&mut self, plan: &Plan) -> Result<(), NetError> {
        self.programs.set(settings(plan, &self.device, self.spec.late)?).map_err(unread)
    }

    /// The counts until now.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn counts(&self) -> Result<TagCounts, NetError> {
        let counts = self.programs.counts().map_err(unread)?;
        let less = |count: u64| count.saturating_sub(self.probed);
        Ok(TagCounts { came: less(counts.came), left: less(counts.left), ..counts })
    }

    /// The request.
    #[must_use]
    pub fn spec(&self) -> &TagSpec {
        &self.spec
    }

    /// Frames that were sent to check the programs; 0: this process is outside of the control group.
    #[must_use]
    pub fn probed(&self) -> u64 {
        self.probed
    }

    fn check(&mut self) -> Result<(), NetError> {
        if !probes::own_group().is_some_and(|own| own.starts_with(&self.spec.group)) {
            return Ok(());
        }
        let failed = |cause| refused("frames with a deadline cannot be sent", cause);
        let at = Time::from_ns(crate::clock::monotonic_ns()).saturating_add(FAR);
        let sent =
            probes::send_tagged(&self.device, |socket| set_deadline(socket, PacketDeadline::At(at))).map_err(failed)?;
        let counts = probes::wait_until(|| {
            let counts = self.programs.counts()?;
            Ok((counts.came >= sent && counts.left >= sent, counts))
        });
        let counts = counts.map_err(unread)?;
        if counts.came < sent || counts.left < sent {
            return Err(NetError::Untagged { device: self.device.name.clone(), sent, counts });
        }
        self.probed = sent;
        Ok(())
    }
}

/// Attaches the programs to a device of the thread's namespace, and takes them away.
pub(super) fn attempt(device: &Device) -> Result<(), NetError> {
    let settings = Settings {
        rate: 1,
        burst_ns: 0,
        overhead: 0,
        device: device.index,
        space: 0,
        class: class_of(Role::RealTime),
        drop_late: false,
    };
    Programs::attach(settings, &PathBuf::from("/")).map(drop)
}

fn settings(plan: &Plan, device: &Device, late: LateDatagrams) -> Result<Settings, NetError> {
    Settings::new(plan, device, late).map_err(|cause| refused("the device's namespace cannot be read", cause))
}

fn unread(cause: io::Error) -> NetError {
    refused("the counters of packets with deadlines cannot be read", cause)
}
