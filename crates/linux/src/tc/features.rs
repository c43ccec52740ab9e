//! The parts of this kernel that serve deadlines on the wire: `takt net doctor`.
//!
//! Queueing disciplines and filters are tried in a network namespace of their own, which vanishes
//! afterwards. A kernel with modules loads those that it has.

use std::io;

use super::classifier::{Classifier, Rule, Verdict};
use super::htb::{self, ROOT};
use super::plan::Role;
use super::{NetError, own, tags};
use crate::datagram::set_option;
use crate::device::Device;
use crate::doctor::{Finding, State};
use crate::net::{ETHTOOL_WORDS, ethtool, new_space};
use crate::netlink::{AT_ROOT, CREATE, CREATE_OR_REPLACE, Netlink, Place, Request, errno, put};
use crate::process::{CAP_SYS_ADMIN, has_capability};

/// `ethtool -T DEVICE`.
const GET_TS_INFO: u32 = 0x41;

/// Judges this kernel, and each of these devices of the thread's namespace.
#[must_use]
pub fn features(devices: &[Device]) -> Vec<Finding> {
    let mut found = vec![privilege()];
    found.extend(tried());
    found.extend([bpf_qdisc(), launch_times(), software_timestamps()]);
    found.extend(devices.iter().map(hardware_timestamps));
    found
}

/// A part of the kernel, and what its lack costs.
struct Part {
    name: &'static str,
    cost: &'static str,
}

const PRIVILEGE: Part = Part { name: "net-privilege", cost: "takt net apply is refused" };
const HTB: Part = Part { name: "htb", cost: "takt net apply is refused: real-time messages wait behind all others" };
const CLASSIFIER: Part = Part {
    name: "classifier",
    cost: "takt net apply is refused: packets cannot be told apart by port, priority or control group",
};
const GSO_LIMIT: Part = Part {
    name: "gso-limit",
    cost: "takt net apply is refused: a packet of 64 KiB of other traffic would block a message",
};
const DEADLINE_OPTION: Part = Part {
    name: "deadline-option",
    cost: "takt net apply --deadlines is refused: only a broker's clients have deadlines",
};
const ETF: Part = Part {
    name: "etf",
    cost: "a packet cannot be held back until an instant; its deadline mode is no EDF queue, so takt lacks nothing",
};
const BPF_QDISC: Part = Part {
    name: "bpf-qdisc",
    cost: "takt net apply --discipline takt is refused: the kernel sends each class first in, first out, and only a \
           broker orders messages by their deadlines",
};
const LAUNCH_TIMES: Part =
    Part { name: "launch-time-option", cost: "a program cannot give the kernel a time with a packet" };
const SOFTWARE_STAMPS: Part =
    Part { name: "software-timestamps", cost: "times of messages include the delay until the program runs" };
const HARDWARE_STAMPS: Part = Part {
    name: "hardware-timestamps",
    cost: "times of messages include interrupts and the kernel's work: software stamps must do",
};

impl Part {
    fn here(&self, found: impl Into<String>) -> Finding {
        Finding { name: self.name, ..Finding::new(State::Ok, found) }
    }

    fn gap(&self, state: State, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { name: self.name, ..Finding::new(state, found) }.costs(self.cost).mend(remedy)
    }

    fn unknown(&self, why: &str) -> Finding {
        let remedy = "run takt net doctor as root (sudo), outside of containers, on a kernel with CONFIG_NET_NS";
        self.gap(State::Unknown, why, remedy).costs(format!("if it is missing: {}", self.cost))
    }
}

fn privilege() -> Finding {
    match super::install::privilege() {
        Ok(()) => PRIVILEGE.here("this process may change devices"),
        Err(error) => PRIVILEGE.gap(State::Warning, "this process may not change devices", error.to_string()),
    }
}

/// Findings of trials in a namespace of its own.
fn tried() -> [Finding; 5] {
    if !has_capability(CAP_SYS_ADMIN) {
        return not_tried("trying needs a network namespace, and that needs CAP_SYS_ADMIN");
    }
    // A thread's namespace is its own: this one ends, and the process stays where it is.
    let tried = std::thread::spawn(|| {
        let _space = new_space().map_err(|error| error.to_string())?;
        let trial = || -> io::Result<[Finding; 5]> {
            let mut netlink = Netlink::open()?;
            let loopback = Device::named(&mut netlink, "lo")?;
            let loopback = loopback.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
            let device = loopback.index;
            Ok([
                htb(&mut netlink, device),
                classifier(&mut netlink, device),
                gso(&mut netlink, device),
                deadline_option(&loopback),
                etf(try_etf(&mut netlink, device)),
            ])
        };
        trial().map_err(|error| error.to_string())
    });
    match tried.join() {
        Ok(Ok(found)) => found,
        Ok(Err(why)) => not_tried(&why),
        Err(_) => not_tried("the trial ended early"),
    }
}

fn not_tried(why: &str) -> [Finding; 5] {
    [HTB, CLASSIFIER, GSO_LIMIT, DEADLINE_OPTION, ETF].map(|part| part.unknown(why))
}

fn qdisc(netlink: &mut Netlink, device: u32, kind: &str, options: &[u8]) -> io::Result<()> {
    let place = Place { device, handle: ROOT, parent: AT_ROOT, info: 0 };
    let request = Request::control(libc::RTM_NEWQDISC, CREATE_OR_REPLACE, place);
    netlink.ask(request.with_text(libc::TCA_KIND, kind).with(libc::TCA_OPTIONS, options)).map(drop)
}

fn htb(netlink: &mut Netlink, device: u32) -> Finding {
    match qdisc(netlink, device, "htb", &htb::discipline()) {
        Ok(()) => HTB.here("classes with rates (HTB) are there"),
        Err(error) => HTB.gap(
            State::Problem,
            format!("no classes with rates (HTB): {error}"),
            "a kernel with CONFIG_NET_SCH_HTB, or its module sch_htb",
        ),
    }
}

fn classifier(netlink: &mut Netlink, device: u32) -> Finding {
    let rules = [Rule { of: super::Match::ToPort(1, 2), role: Role::RealTime }];
    let attached = Classifier::load(&rules, Verdict::Returned).and_then(|program| {
        let mut options = Vec::new();
        put(&mut options, 6, &program.descriptor().to_ne_bytes());
        put(&mut options, 7, b"takt\0");
        let info = 1 << 16 | u32::from((libc::ETH_P_ALL as u16).to_be());
        let place = Place { device, handle: 1, parent: ROOT, info };
        let request = Request::control(libc::RTM_NEWTFILTER, CREATE, place);
        netlink.ask(request.with_text(libc::TCA_KIND, "bpf").with(libc::TCA_OPTIONS, &options)).map(drop)
    });
    match attached {
        Ok(()) => CLASSIFIER.here("BPF programs may classify packets"),
        Err(error) => CLASSIFIER.gap(
            State::Problem,
            format!("no BPF program may classify packets: {error}"),
            "a kernel with CONFIG_NET_CLS_BPF and CONFIG_BPF_SYSCALL, or its module cls_bpf",
        ),
    }
}

fn gso(netlink: &mut Netlink, device: u32) -> Finding {
    match Device::set_gso_max_segs(netlink, device, 1) {
        Ok(()) => GSO_LIMIT.here("segments of one packet can be limited (gso_max_segs)"),
        Err(error) => GSO_LIMIT.gap(
            State::Problem,
            format!("segments of one packet cannot be limited: {error}"),
            "Linux 4.16 or later",
        ),
    }
}

fn deadline_option(device: &Device) -> Finding {
    match tags::attempt(device) {
        Ok(()) => DEADLINE_OPTION.here("sockets may have deadlines (SO_DEADLINE of takt net apply)"),
        Err(NetError::NotBuilt) => DEADLINE_OPTION.gap(
            State::Absent,
            "this takt has no programs that give sockets deadlines",
            "a takt from cargo build --features bpf",
        ),
        Err(error) => DEADLINE_OPTION.gap(
            State::Absent,
            format!("sockets have no deadlines: {error}"),
            "Linux 6.6 or later with CONFIG_CGROUP_BPF, CONFIG_NET_XGRESS and CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

/// Takes the clock TAI, without a device's help.
fn try_etf(netlink: &mut Netlink, device: u32) -> io::Result<()> {
    // HTB has the root from the trials before.
    let _ = super::former::Tree::remove(netlink, device);
    let mut options = Vec::new();
    put(&mut options, 1, &[200_000_i32, libc::CLOCK_TAI, 0].map(i32::to_ne_bytes).concat());
    qdisc(netlink, device, "etf", &options)
}

fn etf(tried: io::Result<()>) -> Finding {
    let found = match tried {
        Ok(()) => return ETF.here("launch times (ETF) are there; takt needs none"),
        Err(error) if errno(&error) == Some(libc::ENOENT) => "no launch times (ETF)".to_owned(),
        Err(error) => format!("launch times (ETF) are refused: {error}"),
    };
    ETF.gap(State::Absent, found, "Linux 4.19 or later with CONFIG_NET_SCH_ETF, or its module sch_etf")
}

/// The kernel's types name the operations that BPF programs may implement.
fn bpf_qdisc() -> Finding {
    match own::is_possible() {
        Ok(true) => BPF_QDISC.here("the kernel can send by deadlines: queueing disciplines may be BPF programs"),
        Ok(false) => BPF_QDISC
            .gap(
                State::Absent,
                "no queueing disciplines as BPF programs",
                "Linux 6.16 or later with CONFIG_NET_SCH_BPF",
            )
            .seen(own::TYPES, "does not name Qdisc_ops"),
        Err(error) => BPF_QDISC.gap(
            State::Absent,
            format!("the kernel's types cannot be read: {}: {error}", own::TYPES),
            "a kernel with CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

fn launch_times() -> Finding {
    match option(libc::SO_TXTIME, [libc::CLOCK_MONOTONIC as u32, 0]) {
        Ok(()) => LAUNCH_TIMES.here("sockets take a time with each packet (SO_TXTIME)"),
        Err(error) => LAUNCH_TIMES.gap(
            State::Absent,
            format!("SO_TXTIME is refused: {error}"),
            "Linux 4.19 or later; CAP_NET_ADMIN for this clock",
        ),
    }
}

fn software_timestamps() -> Finding {
    let wanted = libc::SOF_TIMESTAMPING_RX_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_SCHED
        | libc::SOF_TIMESTAMPING_SOFTWARE;
    match option(libc::SO_TIMESTAMPING, wanted) {
        Ok(()) => SOFTWARE_STAMPS.here("the kernel stamps packets that come, wait and go"),
        Err(error) => {
            SOFTWARE_STAMPS.gap(State::Warning, format!("SO_TIMESTAMPING is refused: {error}"), "Linux 3.17 or later")
        }
    }
}

/// Sets an option of a new UDP socket.
fn option<T: Copy>(name: libc::c_int, value: T) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    set_option(&socket, libc::SOL_SOCKET, name, &value)
}

fn hardware_timestamps(device: &Device) -> Finding {
    let mut words = [0; ETHTOOL_WORDS];
    words[0] = GET_TS_INFO;
    let hardware = libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    let name = &device.name;
    let found = match ethtool(name, &mut words) {
        Ok(()) if words[1] & hardware == hardware && words[2].cast_signed() >= 0 => {
            return HARDWARE_STAMPS.here(format!("{name} stamps packets by its clock /dev/ptp{}", words[2]));
        }
        Ok(()) => format!("{name} has no clock and stamps no packets"),
        Err(error) => format!("{name} does not tell: {error}"),
    };
    HARDWARE_STAMPS.gap(State::Absent, found, "a network card with a PTP clock, and a driver that uses it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_says_what_a_gap_costs_and_how_to_mend_it() {
        let devices = Device::list().unwrap();
        let mut found = features(&devices);
        assert_eq!(found.len(), 9 + devices.len());
        // The gaps that this machine may not have.
        found.extend(not_tried("no namespace"));
        found.extend([libc::ENOENT, libc::EPERM].map(|errno| etf(Err(io::Error::from_raw_os_error(errno)))));
        let gone = Device { name: "takt-gone".to_owned(), ..super::super::plan::tests::device() };
        found.push(hardware_timestamps(&gone));
        for finding in &found {
            let told = !finding.cost.is_empty() && !finding.mend.is_empty();
            assert_eq!(told, finding.state != State::Ok, "{finding:?}");
            println!("{}: {} {}", finding.name, finding.state.name(), finding.found);
        }
    }
}
