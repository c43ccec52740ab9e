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

fn finding(name: &'static str, state: State, found: impl Into<String>) -> Finding {
    Finding { name, ..Finding::new(state, found) }
}

fn privilege() -> Finding {
    match super::install::privilege() {
        Ok(()) => finding("net-privilege", State::Ok, "this process may change devices"),
        Err(error) => finding("net-privilege", State::Warning, "this process may not change devices")
            .costs("takt net apply is refused")
            .mend(error.to_string()),
    }
}

/// Findings of trials in a namespace of its own.
fn tried() -> Vec<Finding> {
    let unknown = |why: &str| {
        let names = ["htb", "classifier", "gso-limit", "deadline-option", "etf"];
        names.map(|name| finding(name, State::Unknown, why).mend("run as root (sudo)")).to_vec()
    };
    if !has_capability(CAP_SYS_ADMIN) {
        return unknown("trying needs a network namespace, and that needs CAP_SYS_ADMIN");
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
                etf(&mut netlink, device),
            ])
        };
        trial().map_err(|error| error.to_string())
    });
    match tried.join() {
        Ok(Ok(found)) => found.to_vec(),
        Ok(Err(why)) => unknown(&why),
        Err(_) => unknown("the trial ended early"),
    }
}

fn qdisc(netlink: &mut Netlink, device: u32, kind: &str, options: &[u8]) -> io::Result<()> {
    let place = Place { device, handle: ROOT, parent: AT_ROOT, info: 0 };
    let request = Request::control(libc::RTM_NEWQDISC, CREATE_OR_REPLACE, place);
    netlink.ask(request.with_text(libc::TCA_KIND, kind).with(libc::TCA_OPTIONS, options)).map(drop)
}

fn htb(netlink: &mut Netlink, device: u32) -> Finding {
    match qdisc(netlink, device, "htb", &htb::discipline()) {
        Ok(()) => finding("htb", State::Ok, "classes with rates (HTB) are there"),
        Err(error) => finding("htb", State::Problem, format!("no classes with rates (HTB): {error}"))
            .costs("takt net apply is refused: real-time messages wait behind all others")
            .mend("a kernel with CONFIG_NET_SCH_HTB, or its module sch_htb"),
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
        Ok(()) => finding("classifier", State::Ok, "BPF programs may classify packets"),
        Err(error) => finding("classifier", State::Problem, format!("no BPF program may classify packets: {error}"))
            .costs("takt net apply is refused: packets cannot be told apart by port, priority or control group")
            .mend("a kernel with CONFIG_NET_CLS_BPF and CONFIG_BPF_SYSCALL, or its module cls_bpf"),
    }
}

fn gso(netlink: &mut Netlink, device: u32) -> Finding {
    match Device::set_gso_max_segs(netlink, device, 1) {
        Ok(()) => finding("gso-limit", State::Ok, "segments of one packet can be limited (gso_max_segs)"),
        Err(error) => {
            finding("gso-limit", State::Problem, format!("segments of one packet cannot be limited: {error}"))
                .costs("takt net apply is refused: a packet of 64 KiB of other traffic would block a message")
                .mend("Linux 4.16 or later")
        }
    }
}

fn deadline_option(device: &Device) -> Finding {
    let finding = |state, found: String| finding("deadline-option", state, found);
    const COST: &str = "takt net apply --deadlines is refused: only a broker's clients have deadlines";
    match tags::attempt(device) {
        Ok(()) => finding(State::Ok, "sockets may have deadlines (SO_DEADLINE of takt net apply)".to_owned()),
        Err(NetError::NotBuilt) => {
            finding(State::Absent, "this takt has no programs that give sockets deadlines".into())
                .costs(COST)
                .mend("a takt from cargo build --features bpf")
        }
        Err(error) => finding(State::Absent, format!("sockets have no deadlines: {error}"))
            .costs(COST)
            .mend("Linux 6.6 or later with CONFIG_CGROUP_BPF, CONFIG_NET_XGRESS and CONFIG_DEBUG_INFO_BTF"),
    }
}

fn etf(netlink: &mut Netlink, device: u32) -> Finding {
    // HTB has the root from the trials before.
    let _ = super::former::Tree::remove(netlink, device);
    // The clock TAI, without a device's help.
    let mut options = Vec::new();
    put(&mut options, 1, &[200_000_i32, libc::CLOCK_TAI, 0].map(i32::to_ne_bytes).concat());
    match qdisc(netlink, device, "etf", &options) {
        Ok(()) => finding("etf", State::Ok, "launch times (ETF) are there; takt needs none"),
        Err(error) if errno(&error) == Some(libc::ENOENT) => finding("etf", State::Absent, "no launch times (ETF)")
            .costs(
                "a packet cannot be held back until an instant; its deadline mode is no EDF queue, so takt lacks \
                 nothing",
            )
            .mend("a kernel with CONFIG_NET_SCH_ETF, or its module sch_etf"),
        Err(error) => finding("etf", State::Absent, format!("launch times (ETF) are there, and refused: {error}")),
    }
}

/// The kernel's types name the operations that BPF programs may implement.
fn bpf_qdisc() -> Finding {
    let cost = "takt net apply --discipline takt is refused: the kernel sends each class first in, first out, and \
                only a broker orders messages by their deadlines";
    match own::is_possible() {
        Ok(true) => finding(
            "bpf-qdisc",
            State::Ok,
            "the kernel can send by deadlines: queueing disciplines may be BPF programs",
        ),
        Ok(false) => finding("bpf-qdisc", State::Absent, "no queueing disciplines as BPF programs")
            .seen(own::TYPES, "does not name Qdisc_ops")
            .costs(cost)
            .mend("Linux 6.16 or later with CONFIG_NET_SCH_BPF"),
        Err(error) => {
            finding("bpf-qdisc", State::Absent, format!("the kernel's types cannot be read: {}: {error}", own::TYPES))
                .costs(cost)
                .mend("a kernel with CONFIG_DEBUG_INFO_BTF")
        }
    }
}

fn launch_times() -> Finding {
    match option(libc::SO_TXTIME, [libc::CLOCK_MONOTONIC as u32, 0]) {
        Ok(()) => finding("launch-time-option", State::Ok, "sockets take a time with each packet (SO_TXTIME)"),
        Err(error) => finding("launch-time-option", State::Absent, format!("SO_TXTIME is refused: {error}"))
            .costs("a program cannot give the kernel a time with a packet")
            .mend("Linux 4.19 or later; CAP_NET_ADMIN for this clock"),
    }
}

fn software_timestamps() -> Finding {
    let wanted = libc::SOF_TIMESTAMPING_RX_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_SCHED
        | libc::SOF_TIMESTAMPING_SOFTWARE;
    match option(libc::SO_TIMESTAMPING, wanted) {
        Ok(()) => finding("software-timestamps", State::Ok, "the kernel stamps packets that come, wait and go"),
        Err(error) => finding("software-timestamps", State::Warning, format!("SO_TIMESTAMPING is refused: {error}"))
            .costs("times of messages include the delay until the program runs")
            .mend("Linux 3.17 or later"),
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
    match ethtool(name, &mut words) {
        Ok(()) if words[1] & hardware == hardware && words[2].cast_signed() >= 0 => finding(
            "hardware-timestamps",
            State::Ok,
            format!("{name} stamps packets by its clock /dev/ptp{}", words[2]),
        ),
        Ok(()) => finding("hardware-timestamps", State::Absent, format!("{name} has no clock and stamps no packets"))
            .costs("times of messages include interrupts and the kernel's work: software stamps must do")
            .mend("a network card with a PTP clock"),
        Err(error) => finding("hardware-timestamps", State::Absent, format!("{name} does not tell: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_says_what_a_gap_costs_and_how_to_mend_it() {
        let devices = Device::list().unwrap();
        let found = features(&devices);
        assert_eq!(found.len(), 9 + devices.len());
        for finding in &found {
            let gap = finding.state != State::Ok && finding.state != State::Unknown;
            let told = finding.found.contains("refused: ") || finding.found.contains("does not tell");
            assert!(!gap || told || !finding.cost.is_empty() && !finding.mend.is_empty(), "{finding:?}");
            println!("{}: {} {}", finding.name, finding.state.name(), finding.found);
        }
    }
}
