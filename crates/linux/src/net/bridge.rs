//! Network namespaces of this process's own at one bridge, as computers at a switch.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;

use super::{
    CONTROLLER, End, NetError, Routes, SEGMENTATION_OFFLOAD, device, enter, new_space, next_number, offload,
    own_thread, refusal,
};
use crate::device::NAME;
use crate::netlink::{CREATE, Request};
use crate::process::{CAP_SYS_ADMIN, has_capability};
use crate::sched::{Class, SchedError};

/// The most nodes at a bridge.
pub const NODES_MAX: usize = 12;
/// All nodes are in one network.
const PREFIX: u8 = 24;
/// The name in the bridge's own namespace.
const BRIDGE: &str = "bridge";

/// Nodes, each a namespace with one device, and the bridge between them in a namespace of its own.
/// Nothing outside changes. All vanish with the last thread, socket and `Bridge`, also after a kill
/// -9.
///
/// A kernel thread of each device takes in its packets. Without one the softirq would, and beside
/// real-time threads the kernel leaves that to an ordinary thread.
#[derive(Debug)]
pub struct Bridge {
    nodes: Vec<End>,
    ports: Vec<End>,
}

impl Bridge {
    /// Makes `count` nodes, at most [`NODES_MAX`]. Devices send packets of at most one segment.
    ///
    /// # Errors
    /// The missing part; nothing is left behind then.
    pub fn build(count: usize) -> Result<Bridge, NetError> {
        if !has_capability(CAP_SYS_ADMIN) {
            return Err(NetError::Privilege);
        }
        // A thread's namespace is its own: this one ends, and the process stays where it is.
        let maker = std::thread::Builder::new().name("takt-bridge".to_owned()).spawn(move || make(count));
        let maker = maker.map_err(|cause| NetError::Refused { what: "a thread cannot be started", cause })?;
        maker.join().unwrap_or_else(|_| Err(refusal("the thread that builds the bridge ended")))
    }

    /// The nodes, with their addresses and devices.
    #[must_use]
    pub fn nodes(&self) -> &[End] {
        &self.nodes
    }

    /// The bridge's devices that lead to the nodes, in the order of these. Their address is the
    /// node's, and their namespace that of the bridge.
    #[must_use]
    pub fn ports(&self) -> &[End] {
        &self.ports
    }

    /// Puts the kernel threads that take in packets under `class`. They end with the bridge.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub fn schedule_drivers(&self, class: &Class) -> Result<(), SchedError> {
        self.nodes.iter().chain(&self.ports).try_for_each(|end| end.schedule_driver(class, &[]))
    }
}

/// On a thread that ends then.
fn make(count: usize) -> Result<Bridge, NetError> {
    let space = new_space()?;
    let (mut nodes, mut ports) = (Vec::new(), Vec::new());
    for number in 0..count.min(NODES_MAX) {
        let [name, port] = [(); 2].map(|()| device(std::process::id(), next_number()));
        let address = Ipv4Addr::new(10, 77, 1, number as u8 + 1);
        // The thread is in the namespace of the node now.
        let node = new_space()?;
        let mut routes = Routes::open()?;
        routes.veth(&name, &port, space.as_raw_fd())?;
        routes.raise(&name, address, PREFIX)?;
        let driver = Some(driver(&name)?);
        nodes.push(End { space: node, address, device: name, driver });
        ports.push((port, address));
    }
    enter(&space)?;
    let mut routes = Routes::open()?;
    let bridge = routes.bridge(BRIDGE)?;
    let port = |(device, address): (String, Ipv4Addr)| {
        let index = routes.index(&device).map_err(refused("a port of the bridge is missing"))?;
        routes.up(index, Some(bridge)).map_err(refused("a port cannot join the bridge"))?;
        let driver = Some(driver(&device)?);
        let space = space.try_clone().map_err(refused("the bridge's namespace cannot be kept"))?;
        Ok(End { space, address, device, driver })
    };
    let ports = ports.into_iter().map(port).collect::<Result<Vec<_>, NetError>>()?;
    routes.up(bridge, None).map_err(refused("the bridge cannot be switched on"))?;
    Ok(Bridge { nodes, ports })
}

/// Gives a device of the thread's namespace a kernel thread for arriving packets. The device at its
/// other end passes packets by that thread because it sends single segments.
fn driver(device: &str) -> Result<u32, NetError> {
    offload(device, SEGMENTATION_OFFLOAD, false).map_err(refused("the device's TSO cannot be switched off"))?;
    own_thread(device)
}

fn refused(what: &'static str) -> impl Fn(io::Error) -> NetError {
    move |cause| NetError::Refused { what, cause }
}

impl Routes {
    /// Makes a bridge. Returns its index.
    fn bridge(&mut self, name: &str) -> Result<u32, NetError> {
        let what = "a bridge cannot be made";
        let link = Request::link(libc::RTM_NEWLINK, CREATE, 0).with_text(NAME, name);
        self.make(link, "bridge", &[], what, "CONFIG_BRIDGE")?;
        self.index(name).map_err(refused(what))
    }

    /// Switches a device on, as a port of the bridge if one is given.
    fn up(&mut self, index: u32, bridge: Option<u32>) -> io::Result<()> {
        let request = Request::up(index);
        self.0.ask(match bridge {
            Some(bridge) => request.with(CONTROLLER, &bridge.to_ne_bytes()),
            None => request,
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::UdpSocket;
    use std::os::unix::fs::MetadataExt as _;
    use std::time::Duration;

    use super::*;
    use crate::clock::pause;
    use takt_model::Span;

    #[test]
    fn every_node_reaches_every_other_and_nothing_stays() {
        let bridge = match Bridge::build(8) {
            Ok(bridge) => bridge,
            Err(error) => return println!("skipped: {error}"),
        };
        let nodes = bridge.nodes();
        bridge.schedule_drivers(&Class::Other).unwrap();
        let bind = |node: &End| node.run(|| UdpSocket::bind((node.address(), 7000)).unwrap()).unwrap();
        let sockets: Vec<UdpSocket> = nodes.iter().map(bind).collect();
        for (from, socket) in sockets.iter().enumerate() {
            for (to, node) in nodes.iter().enumerate().filter(|(to, _)| *to != from) {
                socket.send_to(&[from as u8, to as u8], (node.address(), 7000)).unwrap();
            }
        }
        for (to, socket) in sockets.iter().enumerate() {
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut senders: Vec<u8> = (1..nodes.len())
                .map(|_| {
                    let mut bytes = [0; 2];
                    let (_, sender) = socket.recv_from(&mut bytes).unwrap();
                    assert_eq!(sender.ip(), nodes[usize::from(bytes[0])].address());
                    assert_eq!(usize::from(bytes[1]), to);
                    bytes[0]
                })
                .collect();
            senders.sort_unstable();
            assert_eq!(senders, (0..8).filter(|from| usize::from(*from) != to).collect::<Vec<u8>>());
        }
        // A namespace that only the sockets and the bridge hold.
        let inode = nodes[0].run(|| fs::metadata("/proc/thread-self/ns/net").unwrap().ino()).unwrap();
        drop((sockets, bridge));
        let leads_there = || {
            let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
            open.filter_map(|file| fs::metadata(file.path()).ok()).any(|about| about.ino() == inode)
        };
        assert!((0..500).any(|_| !leads_there() || {
            pause(Span::from_ms(20));
            false
        }));
    }
}
