//! Network devices: what shares of their link depend on.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use crate::netlink::{LINK_HEAD, Netlink, Request, attribute, number, text};

const ADDRESS: u16 = 1;
pub(crate) const NAME: u16 = 3;
const MTU: u16 = 4;
pub(crate) const GSO_MAX_SEGS: u16 = 40;
const GSO_MAX_SIZE: u16 = 41;
/// Bytes of a header of Ethernet.
const ETHERNET_HEADER: u32 = 14;
/// Bytes of the wire around a frame of Ethernet: preamble 8, check sum 4, gap 12.
const ETHERNET_AROUND: u16 = 24;

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The largest packet that it sends, without the header of its link.
    pub mtu: u32,
    /// Whether it is switched on.
    pub up: bool,
    /// How many segments TCP may hand over as one packet.
    pub gso_max_segs: u32,
    /// Bytes of the largest such packet.
    pub gso_max_size: u32,
    /// Whether its frames are those of Ethernet.
    pub ethernet: bool,
    /// Whether it is a CAN bus.
    pub(crate) can: bool,
    pub(crate) address: Vec<u8>,
}

impl Device {
    /// The device of that name in the calling thread's namespace; `None`: there is none.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn find(name: &str) -> io::Result<Option<Device>> {
        Device::named(&mut Netlink::open()?, name)
    }

    /// The devices of the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn list() -> io::Result<Vec<Device>> {
        Device::all(&mut Netlink::open()?)
    }

    pub(crate) fn named(netlink: &mut Netlink, name: &str) -> io::Result<Option<Device>> {
        // Longer names are no devices, and the kernel would refuse the request.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Ok(None);
        }
        match netlink.ask(Request::link(libc::RTM_GETLINK, 0, 0).with_text(NAME, name)) {
            Ok(answers) => Ok(answers.iter().find_map(|answer| Device::parse(&answer.body))),
            Err(error) if crate::netlink::errno(&error) == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn all(netlink: &mut Netlink) -> io::Result<Vec<Device>> {
        let answers = netlink.list(&Request::link(libc::RTM_GETLINK, 0, 0))?;
        Ok(answers.iter().filter_map(|answer| Device::parse(&answer.body)).collect())
    }

    fn parse(body: &[u8]) -> Option<Device> {
        let list = body.get(LINK_HEAD..)?;
        let value = |name| attribute(list, name).and_then(number);
        let kind = u16::from_ne_bytes(*body.get(2..4)?.first_chunk()?);
        Some(Device {
            index: number(body.get(4..8)?)?,
            name: attribute(list, NAME).map(text)?,
            mtu: value(MTU)?,
            up: number(body.get(8..12)?)? & libc::IFF_UP as u32 != 0,
            gso_max_segs: value(GSO_MAX_SEGS).unwrap_or(1),
            gso_max_size: value(GSO_MAX_SIZE).unwrap_or(65_536),
            ethernet: kind == libc::ARPHRD_ETHER,
            can: kind == libc::ARPHRD_CAN,
            address: attribute(list, ADDRESS).unwrap_or_default().to_vec(),
        })
    }

    /// Bytes that a frame takes on the wire beside those that the kernel counts.
    #[must_use]
    pub fn overhead(&self) -> u16 {
        if self.ethernet { ETHERNET_AROUND } else { 0 }
    }

    /// Bytes of the largest frame on the wire.
    #[must_use]
    pub fn frame_max(&self) -> u32 {
        self.on_wire(self.mtu)
    }

    /// Bytes of the largest packet of several segments on the wire, as far as it is one in a queue.
    #[must_use]
    pub fn gso_frame_max(&self) -> u32 {
        self.on_wire(self.gso_max_size.max(self.mtu))
    }

    fn on_wire(&self, packet: u32) -> u32 {
        let header = if self.ethernet { ETHERNET_HEADER } else { 0 };
        packet.saturating_add(header).saturating_add(u32::from(self.overhead()))
    }

    /// Limits the segments that TCP hands over as one packet.
    pub(crate) fn set_gso_max_segs(netlink: &mut Netlink, index: u32, segments: u32) -> io::Result<()> {
        let request = Request::link(libc::RTM_SETLINK, 0, index).with(GSO_MAX_SEGS, &segments.to_ne_bytes());
        netlink.ask(request).map(drop)
    }
}

/// The number of the calling thread's network namespace.
pub(crate) fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}
