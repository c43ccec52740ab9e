//! Facts about this machine for admission (the analysis' `linux` scope), for refusals, and for
//! reports.
//!
//! A fact that the kernel does not reveal is `None`, never a guess. [`Limits`] is the only
//! exception.

use std::fs;
use std::path::Path;

use takt_model::Span;

use crate::mount;
use crate::process;
use crate::sched::Reservation;
use crate::sysfs::{line, number, parse_cpu_list};

pub use crate::limits::Limits;

/// This machine, for a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// CPUs that this process may use, the kernel's numbers, ascending. Model CPU i is the i-th of them.
    pub cpus: Vec<u32>,
    /// CPUs that are on line, the kernel's numbers.
    pub cpus_online: Vec<u32>,
    /// Limits on real-time work.
    pub limits: Limits,
    /// CAP_SYS_NICE: any class, any affinity.
    pub cap_sys_nice: bool,
    /// Runtime and period that each CPU's server for ordinary threads reserves (Linux 6.8 and later, by debugfs).
    pub fair_server: Option<(Span, Span)>,
    /// The period of the kernel's ticks, 1 / CONFIG_HZ; `None` where it does not tell.
    pub tick: Option<Span>,
    /// The reason why the machine cannot be divided into scheduling domains, which partitioned and
    /// clustered SCHED_DEADLINE needs; `None` without an obstacle.
    pub no_cpusets: Option<String>,
    /// The preemption model, as the kernel's version line or debugfs names it.
    pub preemption: Option<String>,
    /// CPU time that the hypervisor took so far.
    pub steal: Option<Span>,
}

impl Machine {
    /// The reservation of each CPU's server for ordinary threads, for admission: the read value if
    /// there is one. Otherwise the kernel's default of 50 ms in 1 s for Linux 6.12 and later, and
    /// nothing for older kernels.
    #[must_use]
    pub fn fair_server_assumed(&self) -> Option<(Span, Span)> {
        let default = (Span::from_ms(50), Span::from_ms(1000));
        self.fair_server.or_else(|| (version(&self.kernel)? >= (6, 12)).then_some(default))
    }

    /// Whether the kernel may throttle SCHED_FIFO at `sched_rt_runtime_us`. Before Linux 6.12 it
    /// always may. Later it may if it has groups of real-time threads. This is assumed unless the
    /// configuration in /boot denies it.
    #[must_use]
    pub fn throttles_assumed(&self) -> bool {
        let configuration = || fs::read_to_string(format!("/boot/config-{}", self.kernel)).unwrap_or_default();
        throttles(version(&self.kernel), configuration)
    }
}

fn throttles(version: Option<(u32, u32)>, configuration: impl FnOnce() -> String) -> bool {
    let groups = || {
        let configuration = configuration();
        let known = configuration.lines().any(|line| line.starts_with("CONFIG_HZ="));
        !known || configuration.lines().any(|line| line == "CONFIG_RT_GROUP_SCHED=y")
    };
    version.is_none_or(|version| version < (6, 12)) || groups()
}

/// Bandwidth for SCHED_DEADLINE on the CPUs of one scheduling domain, in 2^-20 CPUs as the kernel
/// counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DomainBandwidth {
    /// Its CPUs, the kernel's numbers.
    pub cpus: Vec<u32>,
    /// The limit of the sum of all bookings; `None`: there is no admission control.
    pub limit: Option<u64>,
    /// Bookings of threads and servers.
    pub booked: u64,
    /// The servers' part of `booked`: the kernel's default if the real value is unknown.
    pub servers: u64,
}

impl DomainBandwidth {
    /// The bandwidth left; `None` without a limit.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.booked))
    }
}

/// The only scheduling domain of this machine and its bookings. `None` if there are several domains
/// (cpusets, isolated CPUs), if CPUs differ, or if the kernel does not reveal the bookings. Root
/// reads them from debugfs.
#[must_use]
pub fn room() -> Option<DomainBandwidth> {
    let cpus = one_domain()?;
    let booked = booked()?;
    let limits = Limits::read();
    let each = u64::try_from(limits.rt_runtime_us).ok().map(|runtime| ratio(runtime, limits.rt_period_us));
    let server = machine().fair_server_assumed().map_or(0, |(runtime, period)| ratio(runtime.as_ns(), period.as_ns()));
    let of_all = |each: u64| each.saturating_mul(cpus.len() as u64);
    Some(DomainBandwidth { limit: each.map(of_all), booked, servers: of_all(server).min(booked), cpus })
}

/// Present bookings of the most booked domain, if the kernel reveals them.
#[must_use]
pub fn booked() -> Option<u64> {
    total_bandwidth(&debugfs("sched/debug")?)?.into_iter().max()
}

/// The text of a file of debugfs, like `sched/features`. Uses the mounted debugfs, or a private
/// mount of our own. `None` if it cannot be read; only root can.
#[must_use]
pub fn debugfs(file: &str) -> Option<String> {
    fs::read_to_string(mount::debugfs().ok()?.root().join(file)).ok()
}

/// Whether SCHED_DEADLINE budgets end at a timer of their own. `None` if the kernel does not tell.
#[must_use]
pub fn ends_budgets_by_timer() -> Option<bool> {
    let features = debugfs("sched/features")?;
    let has = |name: &str| features.split_ascii_whitespace().any(|feature| feature == name);
    match (has("HRTICK_DL"), has("NO_HRTICK_DL")) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        // Older kernels have one switch for all classes.
        _ if has("HRTICK") => Some(true),
        _ if has("NO_HRTICK") => Some(false),
        _ => None,
    }
}

/// All online CPUs, if they are alike and form one scheduling domain.
#[must_use]
pub fn one_domain() -> Option<Vec<u32>> {
    let online = parse_cpu_list(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?);
    let isolated = line("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let capacity = |cpu: &u32| number(format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity")).unwrap_or(1024u64);
    let alike = online.iter().all(|cpu| capacity(cpu) == 1024);
    (alike && isolated.is_empty() && !crate::cpuset::is_divided()).then_some(online)
}

/// `to_ratio` of the kernel, in 2^-20.
fn ratio(runtime: u64, period: u64) -> u64 {
    Reservation { runtime: Span::from_ns(runtime), deadline: Span::ZERO, period: Span::from_ns(period) }.bandwidth()
}

/// Major and minor number of a release like `6.18.44-fc`.
pub(crate) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Looks at this machine.
#[must_use]
pub fn machine() -> Machine {
    let version = fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    Machine {
        kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        cpus: crate::sched::affinity(),
        cpus_online: parse_cpu_list(&online),
        limits: Limits::read(),
        cap_sys_nice: process::has_capability(process::CAP_SYS_NICE),
        fair_server: mount::debugfs().ok().and_then(|debug| fair_server(&debug.root().join("sched"))),
        tick: crate::clock::tick_period(),
        no_cpusets: crate::cpuset::obstacle().map(|error| error.to_string()),
        preemption: preemption(&version, debugfs("sched/preempt")),
        steal: crate::clock::steal(),
    }
}

fn fair_server(debug: &Path) -> Option<(Span, Span)> {
    let folders = fs::read_dir(debug.join("fair_server")).ok()?;
    let of = |folder: &Path| Some((number(folder.join("runtime"))?, number(folder.join("period"))?));
    let all: Option<Vec<(u64, u64)>> = folders.map(|folder| of(&folder.ok()?.path())).collect();
    // If CPUs differ, take the largest runtime and the shortest period.
    let most = all?.into_iter().reduce(|(q, p), (other, period)| (q.max(other), p.min(period)))?;
    Some((Span::from_ns(most.0), Span::from_ns(most.1)))
}

/// The lines `.dl_bw->total_bw : N`, one per CPU, of the scheduler's debug file.
fn total_bandwidth(text: &str) -> Option<Vec<u64>> {
    let values = text.lines().filter_map(|line| line.trim().strip_prefix(".dl_bw->total_bw"));
    let values: Option<Vec<u64>> = values.map(|rest| rest.trim().strip_prefix(':')?.trim().parse().ok()).collect();
    values.filter(|values| !values.is_empty())
}

/// "none (voluntary) full" names the second; PREEMPT_RT stands in the version line.
fn preemption(version: &str, debug: Option<String>) -> Option<String> {
    let words = || version.split_ascii_whitespace().filter(|word| word.starts_with("PREEMPT"));
    if words().any(|word| word == "PREEMPT_RT") {
        return Some("rt".to_owned());
    }
    let chosen = debug.and_then(|text| Some(text.split_once('(')?.1.split_once(')')?.0.to_owned()));
    chosen.or_else(|| words().next().map(|word| word.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let debug = "dl_rq[0]:\n  .dl_bw->bw                     : 996147\n  .dl_bw->total_bw               : 104856\n";
        assert_eq!(total_bandwidth(debug), Some(vec![104_856]));
        assert_eq!(total_bandwidth("nothing"), None);
        assert_eq!(preemption("#1 SMP PREEMPT_RT Debian", None).as_deref(), Some("rt"));
        assert_eq!(preemption("#1 SMP PREEMPT_DYNAMIC", Some("none (full) lazy".into())).as_deref(), Some("full"));
        assert_eq!(preemption("#1 SMP PREEMPT_DYNAMIC", None).as_deref(), Some("preempt_dynamic"));
    }

    #[test]
    fn a_server_for_ordinary_threads_is_assumed_where_the_kernel_has_one() {
        let configured = |text: &str| throttles(Some((6, 12)), || text.to_owned());
        assert!(throttles(Some((6, 11)), String::new) && throttles(None, String::new) && configured(""));
        assert!(!configured("CONFIG_HZ=250\n# CONFIG_RT_GROUP_SCHED is not set\n"));
        assert!(configured("CONFIG_HZ=250\nCONFIG_RT_GROUP_SCHED=y\n"));
        let on = |kernel: &str, fair_server| {
            Machine { kernel: kernel.to_owned(), fair_server, ..machine() }.fair_server_assumed()
        };
        assert_eq!(on("6.18.44-fc", None), Some((Span::from_ms(50), Span::from_ms(1000))));
        assert_eq!(on("6.1.0-28-amd64", None), None);
        let read = Some((Span::from_ms(10), Span::from_ms(100)));
        assert_eq!(on("6.18.44", read), read);
    }

    /// Also where debugfs is not mounted: then by a mount of our own.
    #[test]
    fn booked_bandwidth_is_known_if_debugfs_can_be_mounted() {
        match mount::debugfs() {
            Ok(_) if debugfs("sched/debug").is_some() => {
                assert!(booked().is_some(), "the scheduler's debug file names it");
                assert_eq!(room().is_some(), one_domain().is_some());
            }
            _ => println!("skipped: debugfs can neither be read nor mounted here"),
        }
    }

    #[test]
    fn this_machine_has_cpus_and_a_kernel() {
        let machine = machine();
        assert!(!machine.cpus.is_empty() && !machine.kernel.is_empty());
        assert!(machine.cpus.iter().all(|cpu| machine.cpus_online.contains(cpu)));
    }
}
