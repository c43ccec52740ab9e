//! Networks for experiments: two network namespaces of this process's own and a cable (a pair of
//! veth devices) between them.
//!
//! Nothing outside of the namespaces changes. They have no names. They vanish with the last thread,
//! socket and [`Cable`] in them, also after a kill -9. A kernel thread of its own can process the
//! packets that arrive at the right end (threaded NAPI, Linux 5.12); the kernel schedules it like
//! any other thread. Without threaded NAPI the softirq NET_RX processes them, on the sender's CPU.
//!
//! ```no_run
//! use std::net::UdpSocket;
//! use takt_linux::net::Cable;
//!
//! let cable = Cable::lay(true)?;
//! let send = || -> Result<usize, Box<dyn std::error::Error + Send + Sync>> {
//!     cable.left().enter()?;
//!     let socket = UdpSocket::bind((cable.left().address(), 0))?;
//!     Ok(socket.send_to(b"packet", (cable.right().address(), 7000))?)
//! };
//! // On a thread of its own, which stays in that namespace.
//! std::thread::scope(|scope| assert_eq!(scope.spawn(send).join().unwrap().unwrap(), 6));
//! # Ok::<(), takt_linux::net::NetError>(())
//! ```

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd as _, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{SockFilter, SockRef};
use thiserror::Error;

mod bridge;

pub use bridge::{Bridge, NODES_MAX};

use crate::clock::errno;
use crate::device::{Device, GSO_MAX_SEGS, NAME};
use crate::netlink::{self, CREATE, LINK_HEAD, Netlink, Request, put, put_text};
use crate::process::{CAP_SYS_ADMIN, has_capability};
use crate::sched::{self, Class, SchedError};

/// The reason why there is no network.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetError {
    /// Only privileged processes may make namespaces.
    #[error("network namespaces need the capability CAP_SYS_ADMIN: run as root")]
    Privilege,
    /// This kernel lacks a part.
    #[error("{what}: {cause}; this kernel may be built without {part}")]
    Missing {
        /// The request.
        what: &'static str,
        /// The kernel's answer.
        cause: io::Error,
        /// The missing part.
        part: &'static str,
    },
    /// The kernel refused a step.
    #[error("{what}: {cause}")]
    Refused {
        /// The step.
        what: &'static str,
        /// What it answered.
        cause: io::Error,
    },
}

/// Two namespaces and the cable between them.
#[derive(Debug)]
pub struct Cable {
    left: End,
    right: End,
}

/// A namespace, with its end of the cable.
#[derive(Debug)]
pub struct End {
    space: File,
    address: Ipv4Addr,
    device: String,
    driver: Option<u32>,
}

/// The addresses are private ones, which nobody else sees.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
/// An address that neither end has.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
const PREFIX: u8 = 29;
/// IPv6 addresses of the ends (RFC 4193). Only cables with IPv6 use them.
const ADDRESSES_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)];
const PREFIX_V6: u8 = 64;

impl Cable {
    /// Makes both namespaces. With `threaded`, a kernel thread processes the packets that arrive at
    /// the right end. Devices send packets of at most one segment.
    ///
    /// # Errors
    /// The missing part; nothing is left behind then.
    pub fn lay(threaded: bool) -> Result<Cable, NetError> {
        if !has_capability(CAP_SYS_ADMIN) {
            return Err(NetError::Privilege);
        }
        // A thread's namespace is its own: this one ends, and the process stays where it is.
        let maker = std::thread::Builder::new().name("takt-cable".to_owned()).spawn(move || make(threaded));
        let maker = maker.map_err(|cause| NetError::Refused { what: "a thread cannot be started", cause })?;
        maker.join().unwrap_or_else(|_| Err(refusal("the thread that lays the cable ended")))
    }

    /// Gives both ends an IPv6 address too: the left and the right one.
    ///
    /// # Errors
    /// A kernel without IPv6.
    pub fn with_ipv6(&self) -> Result<[Ipv6Addr; 2], NetError> {
        for (end, address) in [&self.left, &self.right].into_iter().zip(ADDRESSES_V6) {
            end.run(|| {
                let switch = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", end.device);
                let what = "IPv6 cannot be switched on";
                fs::write(switch, "0").map_err(|cause| NetError::Missing { what, cause, part: "CONFIG_IPV6" })?;
                Routes::open()?.address(&end.device, address.into(), PREFIX_V6)
            })??;
        }
        Ok(ADDRESSES_V6)
    }

    /// The end without a thread.
    #[must_use]
    pub fn left(&self) -> &End {
        &self.left
    }
    /// The end with a thread, if threaded.
    #[must_use]
    pub fn right(&self) -> &End {
        &self.right
    }
    /// An address on the cable that neither end has.
    #[must_use]
    pub fn nobody(&self) -> Ipv4Addr {
        NOBODY
    }
}

impl End {
    /// From now on the calling thread makes its sockets in this namespace.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn enter(&self) -> Result<(), NetError> {
        enter(&self.space)
    }

    /// Calls `body` on a thread of its own in this namespace. Its panic is the caller's.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T, NetError> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| body()));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The device's name.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The id of the kernel thread that processes packets, if there is one.
    #[must_use]
    pub fn driver(&self) -> Option<u32> {
        self.driver
    }

    /// Puts the kernel thread that receives packets under `class`, on these CPUs (the kernel's
    /// numbers; an empty list keeps its CPUs). Nothing needs restoring: the thread ends with the
    /// cable.
    ///
    /// # Errors
    /// The cause of the refusal. Without such a thread it has ended.
    pub fn schedule_driver(&self, class: &Class, cpus: &[u32]) -> Result<(), SchedError> {
        let thread = self.driver.and_then(|id| libc::pid_t::try_from(id).ok());
        let thread = thread.ok_or_else(|| sched::explained(class, libc::ESRCH))?;
        if !cpus.is_empty() {
            sched::set_cpus_of(thread, cpus).map_err(|errno| sched::unbound(cpus, errno))?;
        }
        sched::set_in_domain(thread, class)
    }
}

fn enter(space: &File) -> Result<(), NetError> {
    // SAFETY: the descriptor is open; the call passes no memory.
    if unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    Err(refusal("a thread cannot enter its network namespace"))
}

fn refusal(what: &'static str) -> NetError {
    NetError::Refused { what, cause: io::Error::from_raw_os_error(errno()) }
}

/// On a thread that ends then.
fn make(threaded: bool) -> Result<Cable, NetError> {
    let [first, second] = [(); 2].map(|()| device(std::process::id(), next_number()));
    let left = new_space()?;
    // The thread is in the right one now.
    let right = new_space()?;
    let mut routes = Routes::open()?;
    routes.veth(&second, &first, left.as_raw_fd())?;
    routes.raise(&second, ADDRESSES[1], PREFIX)?;
    let driver = if threaded { Some(own_thread(&second)?) } else { None };
    let left = End { space: left, address: ADDRESSES[0], device: first, driver: None };
    let right = End { space: right, address: ADDRESSES[1], device: second, driver };
    left.enter()?;
    Routes::open()?.raise(left.device(), left.address(), PREFIX)?;
    // A pair of veth devices passes by NAPI where the sender could have sent more than a segment at once.
    offload(left.device(), SEGMENTATION_OFFLOAD, false)
        .map_err(|cause| NetError::Refused { what: "the device's TSO cannot be switched off", cause })?;
    Ok(Cable { left, right })
}

/// The index of the loopback device in each namespace.
const LOOPBACK: u32 = 1;

fn next_number() -> u32 {
    static MADE: AtomicU32 = AtomicU32::new(0);
    MADE.fetch_add(1, Ordering::Relaxed)
}

/// A device name unique to this process, so that kernel threads, which carry this name, can be told
/// apart. The name leaves room for the kernel's additions within 15 bytes.
fn device(process: u32, number: u32) -> String {
    let mut name = Vec::new();
    let mut rest = u64::from(process) * 26 + u64::from(number % 26);
    while rest > 0 {
        name.push(char::from_digit((rest % 36) as u32, 36).unwrap_or('0'));
        rest /= 36;
    }
    format!("t{}", name.iter().rev().collect::<String>())
}

/// Moves the thread into a new namespace.
pub(crate) fn new_space() -> Result<File, NetError> {
    // SAFETY: the call passes no memory, and changes the calling thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        let cause = io::Error::last_os_error();
        let what = "a network namespace cannot be made";
        return Err(match cause.raw_os_error() {
            Some(libc::EINVAL) => NetError::Missing { what, cause, part: "CONFIG_NET_NS" },
            _ => NetError::Refused { what, cause },
        });
    }
    // The namespace's neighbour discovery would send packets of its own. A kernel without IPv6
    // sends none.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    File::open("/proc/thread-self/ns/net")
        .map_err(|cause| NetError::Refused { what: "/proc/thread-self/ns/net cannot be opened", cause })
}

// Attributes of devices and addresses.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
/// The flag of an address that nobody else can have.
const NODAD: u8 = 2;
const CONTROLLER: u16 = 10;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
const NAMESPACE: u16 = 28;

/// Asks the kernel for devices and addresses, in the namespace in which it was opened.
struct Routes(Netlink);

impl Routes {
    fn open() -> Result<Self, NetError> {
        Netlink::open().map(Routes).map_err(|cause| NetError::Refused { what: "no netlink socket", cause })
    }

    /// Makes a pair of devices: `here`, and `there` in another namespace.
    fn veth(&mut self, here: &str, there: &str, other: RawFd) -> Result<(), NetError> {
        // Each packet is then one that a wire could carry.
        let single = 1_u32.to_ne_bytes();
        let mut peer = vec![0; LINK_HEAD];
        put_text(&mut peer, NAME, there);
        put(&mut peer, NAMESPACE, &other.to_ne_bytes());
        put(&mut peer, GSO_MAX_SEGS, &single);
        let (mut data, what) = (Vec::new(), "a pair of veth devices cannot be made");
        put(&mut data, VETH_PEER, &peer);
        let link = Request::link(libc::RTM_NEWLINK, CREATE, 0).with_text(NAME, here).with(GSO_MAX_SEGS, &single);
        self.make(link, "veth", &data, what, "CONFIG_VETH")
    }

    /// Makes a device of a kind.
    fn make(
        &mut self,
        link: Request,
        kind: &str,
        data: &[u8],
        what: &'static str,
        part: &'static str,
    ) -> Result<(), NetError> {
        let mut info = Vec::new();
        put_text(&mut info, INFO_KIND, kind);
        put(&mut info, INFO_DATA, data);
        self.0.ask(link.with(LINK_INFO, &info)).map(drop).map_err(|cause| match netlink::errno(&cause) {
            Some(libc::EOPNOTSUPP) => NetError::Missing { what, cause, part },
            _ => NetError::Refused { what, cause },
        })
    }

    /// Gives the device its address, and switches it on, and the namespace's own loopback device.
    fn raise(&mut self, device: &str, address: Ipv4Addr, prefix: u8) -> Result<(), NetError> {
        let refused = |cause| NetError::Refused { what: "a veth device cannot be switched on", cause };
        let index = self.address(device, address.into(), prefix)?;
        [LOOPBACK, index].into_iter().try_for_each(|index| self.0.ask(Request::up(index)).map(drop)).map_err(refused)
    }

    /// Gives the device an address. Returns its index.
    fn address(&mut self, device: &str, address: IpAddr, prefix: u8) -> Result<u32, NetError> {
        let refused = |cause| NetError::Refused { what: "a veth device cannot get an address", cause };
        let index = self.index(device).map_err(refused)?;
        let (family, bytes) = match address {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        let mut head = vec![family as u8, prefix, NODAD, 0];
        head.extend_from_slice(&index.to_ne_bytes());
        let request = Request::new(libc::RTM_NEWADDR, CREATE, &head).with(LOCAL, &bytes).with(ADDRESS, &bytes);
        self.0.ask(request).map_err(refused)?;
        Ok(index)
    }

    fn index(&mut self, device: &str) -> io::Result<u32> {
        let found = Device::named(&mut self.0, device)?;
        found.map(|device| device.index).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }
}

/// Gives a device of the thread's namespace a kernel thread for received packets; returns the id.
fn own_thread(device: &str) -> Result<u32, NetError> {
    // The kernel's name of a thread that receives for a device.
    let name = format!("napi/{device}-");
    let before = drivers(&name);
    // veth devices use NAPI only with GRO.
    offload(device, RECEIVE_OFFLOAD, true)
        .map_err(|cause| NetError::Refused { what: "the device's GRO cannot be switched on", cause })?;
    private_sys()?;
    let what = "the device's packets cannot get a kernel thread";
    fs::write(format!("/sys/class/net/{device}/threaded"), "1").map_err(|cause| NetError::Missing {
        what,
        cause,
        part: "threaded NAPI (Linux 5.12)",
    })?;
    let new = drivers(&name).into_iter().find(|id| !before.contains(id));
    new.ok_or_else(|| NetError::Refused { what, cause: io::Error::from_raw_os_error(libc::ESRCH) })
}

/// Threads with this beginning of a name.
fn drivers(name: &str) -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|comm| comm.starts_with(name))).collect()
}

/// `ethtool -K DEVICE gro on`.
const RECEIVE_OFFLOAD: u32 = 0x2c;
/// `ethtool -K DEVICE tso on`.
const SEGMENTATION_OFFLOAD: u32 = 0x1f;

/// Switches a feature of the device on or off, as ethtool does.
fn offload(device: &str, command: u32, on: bool) -> io::Result<()> {
    let mut words = [0; ETHTOOL_WORDS];
    words[..2].copy_from_slice(&[command, u32::from(on)]);
    ethtool(device, &mut words)
}

/// Words of the largest request of [`ethtool`].
pub(crate) const ETHTOOL_WORDS: usize = 16;

/// Asks the driver of a device of the thread's namespace. The first word is the command; the
/// answer comes into the others. Commands must not need more words.
pub(crate) fn ethtool(device: &str, words: &mut [u32; ETHTOOL_WORDS]) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: all bytes zero is a value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()).take(libc::IFNAMSIZ - 1) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: `request` and the words it points to outlive the call, and have the room that the commands need.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// /sys shows the devices of the namespace in which it was mounted. This gives the thread a view of
/// its own, which ends with the thread.
fn private_sys() -> Result<(), NetError> {
    let mount = |source: &CStr, target: &CStr, kind: Option<&CStr>, flags| {
        let kind = kind.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: all strings end with NUL and outlive the call; no data is passed.
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, std::ptr::null()) == 0 }
    };
    // SAFETY: the call passes no memory, and changes the calling thread alone.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    // The kernel refuses a second view of the same namespace (EBUSY): it is there already.
    if unshared
        && mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)
        && (mount(c"sysfs", c"/sys", Some(c"sysfs"), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
            || errno() == libc::EBUSY)
    {
        return Ok(());
    }
    Err(refusal("a view of /sys for the namespace cannot be mounted"))
}

/// Divisions that a packet can cost at most: the kernel translates each into several steps, and
/// bounds the sum (net.core.optmem_max).
const DIVISIONS: usize = 3000;

/// Adds work of a driver to each packet that arrives at `socket`: a filter of divisions that passes
/// every packet. The receiving thread pays for it.
///
/// # Errors
/// The kernel's refusal.
pub fn burden(socket: &impl AsFd) -> io::Result<()> {
    let step = |code: u32, k| SockFilter::new(code as u16, 0, 0, k);
    let mut program = vec![step(libc::BPF_LD | libc::BPF_IMM, u32::MAX), step(libc::BPF_LDX | libc::BPF_IMM, 1)];
    program.extend((0..DIVISIONS).map(|_| step(libc::BPF_ALU | libc::BPF_DIV | libc::BPF_X, 0)));
    program.push(step(libc::BPF_RET | libc::BPF_K, u32::MAX));
    SockRef::from(socket).attach_filter(&program)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn names_of_devices_are_short_and_differ() {
        let names: BTreeSet<String> =
            [1, 2, 4_194_304].iter().flat_map(|id| (0..26).map(|number| device(*id, number))).collect();
        assert_eq!(names.len(), 3 * 26);
        // "napi/", the name, "-": within the 15 bytes of a thread's name.
        assert!(names.iter().all(|name| name.len() <= 8), "{names:?}");
    }

    #[test]
    fn packets_go_from_end_to_end_and_nothing_stays() {
        let here = fs::read_link("/proc/thread-self/ns/net").unwrap();
        for threaded in [false, true] {
            let cable = match Cable::lay(threaded) {
                Ok(cable) => cable,
                Err(error) => return println!("skipped: {error}"),
            };
            assert_eq!(cable.right().driver().is_some(), threaded);
            std::thread::scope(|scope| {
                let arrived = scope.spawn(|| {
                    cable.right().enter().unwrap();
                    let socket = UdpSocket::bind((cable.right().address(), 7000)).unwrap();
                    burden(&socket).unwrap();
                    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
                    let listener = TcpListener::bind((cable.right().address(), 7001)).unwrap();
                    scope.spawn(|| {
                        cable.left().enter().unwrap();
                        let socket = UdpSocket::bind((cable.left().address(), 0)).unwrap();
                        socket.send_to(b"packet", (cable.right().address(), 7000)).unwrap();
                        let mut stream = TcpStream::connect((cable.right().address(), 7001)).unwrap();
                        stream.write_all(b"stream").unwrap();
                    });
                    let mut text = String::new();
                    let mut bytes = [0; 16];
                    let length = socket.recv(&mut bytes).unwrap();
                    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
                    (bytes[..length].to_vec(), text)
                });
                assert_eq!(arrived.join().unwrap(), (b"packet".to_vec(), "stream".to_owned()));
            });
            let driver = cable.right().driver();
            drop(cable);
            // The kernel takes namespaces down a little later.
            let gone = || driver.is_none_or(|id| !drivers("napi/").contains(&id));
            assert!((0..500).any(|_| gone() || {
                crate::clock::pause(takt_model::Span::from_ms(20));
                false
            }));
        }
        assert_eq!(fs::read_link("/proc/thread-self/ns/net").unwrap(), here);
    }
}
