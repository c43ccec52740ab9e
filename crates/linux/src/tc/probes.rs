//! Frames that test each rule. The counters of the classes show the result.
//!
//! A frame goes to the device's own address. No switch passes it on, and no host takes it in. Its
//! addresses are those of documentation (RFC 5737, RFC 3849). The counters of a class also count
//! other traffic: they show that frames came, not that others stayed away.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;

use takt_model::Span;

use super::classifier::{Match, Rule};
use super::plan::Role;
use crate::datagram::set_option;
use crate::device::Device;

/// Frames per kind.
const FRAMES: u64 = 4;
/// How long the counters are waited for.
const WAIT_MAX: Span = Span::from_s(1);
const LOOK: Span = Span::from_ms(2);
/// A port that no rule names by chance: discard.
const DISCARD: u16 = 9;

/// The check of one rule: frames sent, and frames that the class counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The rule that the frames follow; `None`: no rule, so the background.
    pub rule: Option<Rule>,
    /// The class that should count them. An earlier rule may hold for them, too.
    pub role: Role,
    /// Frames sent; 0: none can be made, as for a control group.
    pub sent: u64,
    /// Packets that came to the class meanwhile, at most as many as sent. Waiting and dropped ones count.
    pub counted: u64,
}

/// A frame: its properties as far as rules look at them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Frame {
    priority: u32,
    from: u16,
    to: u16,
    version: u8,
}

impl Frame {
    const PLAIN: Frame = Frame { priority: 0, from: DISCARD, to: DISCARD, version: 4 };

    /// Frames for which a rule holds.
    fn of(rule: &Rule) -> Vec<Frame> {
        let both = |make: &dyn Fn(u16) -> Frame, first, last| vec![make(first), Frame { version: 6, ..make(last) }];
        match rule.of {
            Match::Priority(priority) => vec![Frame { priority, ..Frame::PLAIN }],
            Match::ToPort(first, last) => both(&|to| Frame { to, ..Frame::PLAIN }, first, last),
            Match::FromPort(first, last) => both(&|from| Frame { from, ..Frame::PLAIN }, first, last),
            Match::Group(_) => Vec::new(),
        }
    }

    /// Its class by these rules, if a process of the control group `own` sends it.
    fn role(&self, rules: &[Rule], own: Option<&Path>) -> Role {
        let holds = |rule: &&Rule| match &rule.of {
            Match::Priority(priority) => *priority == self.priority,
            Match::ToPort(first, last) => (*first..=*last).contains(&self.to),
            Match::FromPort(first, last) => (*first..=*last).contains(&self.from),
            Match::Group(path) => own.is_some_and(|own| own.starts_with(path)),
        };
        rules.iter().find(holds).map_or(Role::Background, |rule| rule.role)
    }

    /// The packet, without the header of the link.
    fn bytes(&self) -> Vec<u8> {
        const TEXT: &[u8; 8] = b"takt net";
        let length = 8 + TEXT.len() as u16;
        let mut packet = Vec::new();
        if self.version == 4 {
            packet.extend_from_slice(&[0x45, 0]);
            packet.extend_from_slice(&(20 + length).to_be_bytes());
            // Identification, fragment, one hop, UDP, no check sum.
            packet.extend_from_slice(&[0, 0, 0, 0, 1, libc::IPPROTO_UDP as u8, 0, 0]);
            packet.extend_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        } else {
            packet.extend_from_slice(&[0x60, 0, 0, 0]);
            packet.extend_from_slice(&length.to_be_bytes());
            packet.extend_from_slice(&[libc::IPPROTO_UDP as u8, 1]);
            for host in [1, 2] {
                packet.extend_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
            }
        }
        for word in [self.from, self.to, length, 0] {
            packet.extend_from_slice(&word.to_be_bytes());
        }
        packet.extend_from_slice(TEXT);
        packet
    }
}

/// Sends frames of each rule and looks at the counters. `packets` gives the packets that have come to
/// a class so far.
pub(super) fn check(
    device: &Device,
    rules: &[Rule],
    mut packets: impl FnMut(Role) -> io::Result<u64>,
) -> io::Result<Vec<Check>> {
    let own = own_group();
    let mut checks = Vec::new();
    let kinds = rules.iter().map(|rule| (Some(rule), Frame::of(rule))).chain([(None, vec![Frame::PLAIN])]);
    for (rule, frames) in kinds {
        let role = frames.first().map_or(Role::Background, |frame| frame.role(rules, own.as_deref()));
        let role = if frames.is_empty() { rule.map_or(role, |rule| rule.role) } else { role };
        // Rules may overlap: all frames of a kind go by the class of the first.
        let frames: Vec<Frame> = frames.into_iter().filter(|frame| frame.role(rules, own.as_deref()) == role).collect();
        let before = if frames.is_empty() { 0 } else { packets(role)? };
        let mut sent = 0;
        for frame in &frames {
            let socket = Sender::open(device, frame)?;
            for _ in 0..FRAMES {
                socket.send(&frame.bytes())?;
                sent += 1;
            }
        }
        let counted = wait_until(|| {
            let counted = if sent > 0 { packets(role)?.saturating_sub(before).min(sent) } else { 0 };
            Ok((counted == sent, counted))
        })?;
        checks.push(Check { rule: rule.cloned(), role, sent, counted });
    }
    Ok(checks)
}

/// Looks until it is so, for a second at most. Returns what was seen last.
pub(super) fn wait_until<T>(mut look: impl FnMut() -> io::Result<(bool, T)>) -> io::Result<T> {
    let mut waited = Span::ZERO;
    loop {
        let (is_so, seen) = look()?;
        if is_so || waited >= WAIT_MAX {
            return Ok(seen);
        }
        crate::clock::pause(LOOK);
        waited = waited.saturating_add(LOOK);
    }
}

/// Sends frames after `prepare` has changed their socket. Returns their number.
pub(super) fn send_tagged(device: &Device, prepare: impl Fn(&OwnedFd) -> io::Result<()>) -> io::Result<u64> {
    let socket = Sender::open(device, &Frame::PLAIN)?;
    prepare(&socket.socket)?;
    for _ in 0..FRAMES {
        socket.send(&Frame::PLAIN.bytes())?;
    }
    Ok(FRAMES)
}

/// The control group (cgroup v2) of this process.
pub(super) fn own_group() -> Option<std::path::PathBuf> {
    crate::cgroup::v2_group("self").map(Into::into)
}

/// A socket that sends packets on a device, past routes and firewalls.
struct Sender {
    socket: OwnedFd,
    to: libc::sockaddr_ll,
}

impl Sender {
    fn open(device: &Device, frame: &Frame) -> io::Result<Sender> {
        let protocol = if frame.version == 4 { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        // SAFETY: the call passes no memory; a descriptor that it returns is new, and nobody else's.
        let socket = unsafe {
            match libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) {
                descriptor if descriptor >= 0 => OwnedFd::from_raw_fd(descriptor),
                _ => return Err(io::Error::last_os_error()),
            }
        };
        set_option(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &frame.priority)?;
        // SAFETY: all bytes zero is a value of this plain structure.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = (protocol as u16).to_be();
        to.sll_ifindex = device.index.cast_signed();
        let length = device.address.len().min(to.sll_addr.len());
        to.sll_addr[..length].copy_from_slice(&device.address[..length]);
        to.sll_halen = length as u8;
        Ok(Sender { socket, to })
    }

    fn send(&self, packet: &[u8]) -> io::Result<()> {
        let (to, size) = (std::ptr::from_ref(&self.to).cast(), size_of_val(&self.to) as libc::socklen_t);
        let (bytes, length) = (packet.as_ptr().cast(), packet.len());
        // SAFETY: packet and address outlive the call and have the lengths that are given.
        match unsafe { libc::sendto(self.socket.as_raw_fd(), bytes, length, libc::MSG_DONTWAIT, to, size) } {
            sent if sent >= 0 => Ok(()),
            _ => match io::Error::last_os_error() {
                // The queue is full: it has counted the frame.
                error if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
                error => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[(&str, Role)]) -> Vec<Rule> {
        texts.iter().map(|(text, role)| Rule { of: text.parse().unwrap(), role: *role }).collect()
    }

    #[test]
    fn frames_follow_the_first_rule_that_holds() {
        let rules = rules(&[
            ("cgroup:/a", Role::Reply),
            ("port:7000-7009", Role::RealTime),
            ("from-port:7000", Role::Reply),
            ("priority:6", Role::RealTime),
        ]);
        let role = |frame: Frame, own| frame.role(&rules, own);
        assert_eq!(role(Frame::PLAIN, None), Role::Background);
        assert_eq!(role(Frame::PLAIN, Some(Path::new("/a/b"))), Role::Reply);
        assert_eq!(role(Frame::PLAIN, Some(Path::new("/ab"))), Role::Background);
        assert_eq!(role(Frame { from: 7000, to: 7009, ..Frame::PLAIN }, None), Role::RealTime);
        assert_eq!(role(Frame { from: 7000, ..Frame::PLAIN }, None), Role::Reply);
        assert_eq!(role(Frame { priority: 6, ..Frame::PLAIN }, None), Role::RealTime);
        for rule in &rules[1..] {
            let frames = Frame::of(rule);
            assert!(!frames.is_empty() && frames.iter().all(|frame| role(*frame, None) == rule.role), "{rule:?}");
        }
    }

    #[test]
    fn packets_have_their_ports_where_the_program_looks() {
        let frame = Frame { from: 0x0102, to: 0x0304, ..Frame::PLAIN };
        assert_eq!(frame.bytes()[20..24], [1, 2, 3, 4]);
        assert_eq!(frame.bytes().len(), 36);
        let frame = Frame { version: 6, ..frame };
        assert_eq!(frame.bytes()[40..44], [1, 2, 3, 4]);
        assert_eq!(frame.bytes()[6], 17);
    }
}
