//! Effects of processors, devices and a hypervisor.

use std::collections::BTreeMap;

use super::super::facts::{Facts, list};
use super::super::{Finding, State};
use super::us;
use crate::sysfs::parse_cpu_list;

const CPUS: &str = "/sys/devices/system/cpu/cpu";

/// The CPU of a path below [`CPUS`].
fn cpu_of(path: &str) -> Option<u32> {
    path.strip_prefix(CPUS)?.split('/').next()?.parse().ok()
}

/// The values of a file of each CPU, with the CPUs that have it.
fn per_cpu<'a>(machine: &Facts<'a>, file: &'a str) -> BTreeMap<&'a str, Vec<u32>> {
    let mut values: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    let snapshot = machine.0;
    for (path, text) in snapshot.matching(CPUS, file) {
        if let Some(cpu) = cpu_of(path) {
            values.entry(text.trim()).or_default().push(cpu);
        }
    }
    for cpus in values.values_mut() {
        cpus.sort_unstable();
    }
    values
}

/// `powersave on CPUs 0-3, performance on CPU 4`; without CPUs where all agree.
fn describe_values(values: &BTreeMap<&str, Vec<u32>>) -> String {
    match values.first_key_value() {
        Some((value, _)) if values.len() == 1 => (*value).to_owned(),
        _ => {
            values.iter().map(|(value, cpus)| format!("{value} on CPUs {}", list(cpus))).collect::<Vec<_>>().join(", ")
        }
    }
}

pub(super) fn frequency(machine: Facts<'_>) -> Finding {
    let governors = per_cpu(&machine, "/cpufreq/scaling_governor");
    if governors.is_empty() {
        let below = if hypervisor(machine).is_some() { "; the hypervisor does not report its work" } else { "" };
        return Finding::new(State::Absent, format!("the kernel does not change it{below}"));
    }
    let drivers = describe_values(&per_cpu(&machine, "/cpufreq/scaling_driver"));
    let number = |values: BTreeMap<&str, Vec<u32>>| {
        values.keys().filter_map(|text| text.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    let lowest = number(per_cpu(&machine, "/cpufreq/scaling_min_freq")).into_iter().min();
    let highest = number(per_cpu(&machine, "/cpufreq/scaling_max_freq")).into_iter().max();
    let range = match (lowest, highest) {
        (Some(low), Some(high)) => format!(", {} to {} MHz", low / 1000, high / 1000),
        _ => String::new(),
    };
    let seen = |finding: Finding| {
        let finding = finding.seen(format!("{CPUS}*/cpufreq/scaling_governor"), describe_values(&governors));
        let finding = finding.seen(format!("{CPUS}*/cpufreq/scaling_driver"), drivers.clone());
        let preference = per_cpu(&machine, "/cpufreq/energy_performance_preference");
        if preference.is_empty() {
            finding
        } else {
            finding.seen(format!("{CPUS}*/cpufreq/energy_performance_preference"), describe_values(&preference))
        }
    };
    if lowest.is_some() && lowest == highest {
        return seen(Finding::new(State::Ok, format!("held at {} MHz", lowest.unwrap_or(0) / 1000)));
    }
    if governors.keys().all(|governor| *governor == "performance") {
        return seen(Finding::new(State::Ok, format!("governor performance ({drivers}){range}")));
    }
    let cost = match (lowest, highest) {
        (Some(low @ 1..), Some(high)) => format!(
            "work takes up to {}.{:02} times as long until the governor has noticed it (from the least rate to \
             the greatest)",
            high / low,
            u128::from(high) * 100 / u128::from(low) % 100
        ),
        _ => "work takes longer until the governor has noticed it".to_owned(),
    };
    seen(Finding::new(State::Warning, format!("governor {} ({drivers}){range}", describe_values(&governors))))
        .costs(cost)
        .mend("echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
        .mend("sudo cpupower frequency-set -g performance")
        .link(&["https://docs.kernel.org/admin-guide/pm/cpufreq.html"])
}

pub(super) fn turbo(machine: Facts<'_>) -> Finding {
    const INTEL: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
    const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";
    let (file, on, off) = if machine.has(INTEL) { (INTEL, "0", "1") } else { (BOOST, "1", "0") };
    match machine.line(file) {
        None => Finding::new(State::Absent, "the kernel does not control it"),
        Some(value) if value == on => {
            Finding::new(State::Warning, "on: the rate depends on what the other cores do and on the temperature")
                .shown(&machine, &[file])
                .costs(
                    "execution times that were measured alone do not hold when all cores are busy; by how \
                     much, measure with it off",
                )
                .mend(format!("echo {off} | sudo tee {file}"))
        }
        Some(_) => Finding::new(State::Ok, "off").shown(&machine, &[file]),
    }
}

/// An exit latency above this is a warning: it is no longer lost among the other parts of a wake-up.
const EXIT_MAX_US: u64 = 10;

pub(super) fn idle_states(machine: Facts<'_>) -> Finding {
    const LATENCY: &str = "/dev/cpu_dma_latency";
    let snapshot = machine.0;
    // Deepest of those that are not disabled.
    let mut deepest: Option<(u64, &str, &str)> = None;
    let mut states = 0;
    for (path, text) in snapshot.matching(CPUS, "/latency").filter(|(path, _)| path.contains("/cpuidle/")) {
        states += 1;
        let folder = path.trim_end_matches("/latency");
        let disabled = machine.line(&format!("{folder}/disable")).is_some_and(|value| value != "0");
        let Some(latency) = text.trim().parse::<u64>().ok().filter(|_| !disabled) else { continue };
        if deepest.is_none_or(|(most, _, _)| latency > most) {
            deepest = Some((latency, snapshot.line(&format!("{folder}/name")).unwrap_or("?"), path));
        }
    }
    if states == 0 {
        let found = match hypervisor(machine) {
            Some(_) => "the kernel controls none; it does not say how the hypervisor lets CPUs sleep",
            None => "the kernel controls none (or it waits in a loop)",
        };
        return Finding::new(State::Absent, found);
    }
    let driver = machine.line("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or("?");
    let Some((latency, name, path)) = deepest else {
        return Finding::new(State::Ok, format!("all states are disabled ({driver})"));
    };
    let limit = machine.number::<u64>(LATENCY);
    let finding = |state, found: String| {
        let finding = Finding::new(state, found).seen(path, format!("{latency} us ({name})"));
        match limit {
            Some(limit) if limit < 2_000_000_000 => finding.seen(LATENCY, format!("{limit} us")),
            _ => finding,
        }
    };
    if latency <= EXIT_MAX_US {
        return finding(State::Ok, format!("the deepest, {name} ({driver}), takes {latency} us to leave"));
    }
    if let Some(limit) = limit.filter(|limit| *limit <= EXIT_MAX_US) {
        return finding(
            State::Ok,
            format!("a program keeps to states that take {limit} us to leave ({driver}, {LATENCY})"),
        );
    }
    finding(State::Warning, format!("the deepest, {name} ({driver}), takes {latency} us to leave"))
        .costs(format!("up to {} more before a thread runs that wakes up an idle CPU, as the driver says", us(latency)))
        .mend("sudo sh -c 'exec 3>/dev/cpu_dma_latency; head -c 4 /dev/zero >&3; sleep infinity' (as long as it runs)")
        .mend(format!("sudo cpupower idle-set -D {EXIT_MAX_US} (until the next boot)"))
        .mend("processor.max_cstate=1 intel_idle.max_cstate=1 (boot parameters)")
        .link(&["https://docs.kernel.org/admin-guide/pm/cpuidle.html"])
}

pub(super) fn smt(machine: Facts<'_>) -> Finding {
    const ACTIVE: &str = "/sys/devices/system/cpu/smt/active";
    let cpus = machine.cpus();
    let siblings = per_cpu(&machine, "/topology/thread_siblings_list");
    let shared: Vec<&str> = siblings
        .keys()
        .copied()
        .filter(|list| {
            let together = parse_cpu_list(list);
            together.len() > 1 && together.iter().any(|cpu| cpus.contains(cpu))
        })
        .collect();
    if shared.is_empty() {
        let found = match (machine.line(ACTIVE), siblings.is_empty()) {
            (Some("1"), _) => {
                return Finding::new(State::Unknown, "on, and the kernel does not tell which CPUs share a core");
            }
            (None, true) => return Finding::new(State::Absent, "the kernel does not tell of any"),
            _ => "no CPU shares a core with another",
        };
        let below = hypervisor(machine).map_or("", |_| "; the hypervisor does not name its other guests");
        return Finding::new(State::Ok, format!("{found}{below}"))
            .shown(&machine, &[ACTIVE, "/sys/devices/system/cpu/smt/control"]);
    }
    let second = parse_cpu_list(shared.first().copied().unwrap_or_default()).get(1).copied().unwrap_or(1);
    Finding::new(State::Warning, format!("CPUs that share a core: {}", shared.join("; ")))
        .shown(&machine, &[ACTIVE, "/sys/devices/system/cpu/smt/control"])
        .seen(format!("{CPUS}*/topology/thread_siblings_list"), shared.join(" "))
        .costs("no bound: what runs on the sibling takes of the core; measure the execution times with both busy")
        .mend("echo off | sudo tee /sys/devices/system/cpu/smt/control")
        .mend(format!("echo 0 | sudo tee {CPUS}{second}/online (the sibling of one core alone)"))
        .mend("nosmt (boot parameter)")
        .link(&["https://docs.kernel.org/admin-guide/kernel-parameters.html"])
}

/// Interrupts of devices on a CPU, a second, above which it is not called quiet.
const QUIET_PER_S: u64 = 10;

pub(super) fn interrupts(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/proc/interrupts";
    let Some(table) = machine.text(FILE).and_then(Table::parse) else {
        return Finding::new(State::Unknown, "the kernel does not tell").shown(&machine, &[FILE]);
    };
    let uptime = machine
        .line("/proc/uptime")
        .and_then(|line| line.split(['.', ' ']).next()?.parse::<u64>().ok())
        .unwrap_or(0)
        .max(1);
    let (isolated, own) = (machine.isolated(), machine.cpus());
    let mut finding = Finding::new(State::Ok, "");
    let mut loudest: Vec<(u64, &Device<'_>)> = Vec::new();
    let mut per_cpu: Vec<(u32, u64)> = Vec::new();
    for (column, cpu) in table.cpus.iter().enumerate() {
        let counts = table.devices.iter().filter_map(|device| device.counts.get(column));
        let count = counts.fold(0_u64, |sum, count| sum.saturating_add(*count));
        per_cpu.push((*cpu, count));
        if own.contains(cpu) || isolated.contains(cpu) {
            let most = table.devices.iter().max_by_key(|device| device.counts.get(column).copied().unwrap_or(0));
            if let Some(device) = most.filter(|_| count > 0) {
                let of = device.counts.get(column).copied().unwrap_or(0);
                loudest.push((of, device));
                let what = format!(
                    "{} a second since the start, most of them {} ({})",
                    rate(count, uptime),
                    device.number,
                    device.name
                );
                finding = finding.seen(format!("{FILE}, CPU {cpu}"), what);
            }
        }
    }
    loudest.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let balancer = machine.line("takt:irqbalance") == Some("running");
    if balancer {
        finding = finding.seen("irqbalance", "running: it moves interrupts to where it thinks fit");
    }
    let landing: Vec<String> = table
        .devices
        .iter()
        .filter(|device| device.counts.iter().any(|count| *count > 0))
        .filter(|device| {
            let path = format!("/proc/irq/{}/effective_affinity_list", device.number);
            machine.cpu_list(&path).iter().any(|cpu| isolated.contains(cpu))
        })
        .map(|device| format!("{} ({})", device.number, device.name))
        .collect();
    let quiet = |cpu: u32| per_cpu.iter().any(|(other, count)| *other == cpu && count / uptime < QUIET_PER_S);
    let loud: Vec<u32> = own.iter().copied().filter(|cpu| !quiet(*cpu)).collect();
    finding.cost =
        "each takes its handler's time from the thread that runs (`costs.interrupt`); the probe counts them".to_owned();
    finding = finding.link(&["https://docs.kernel.org/core-api/irq/irq-affinity.html"]);
    if !landing.is_empty() {
        finding.state = State::Warning;
        finding.found = format!("isolated CPUs serve interrupts: {}", landing.join(", "));
    } else if !isolated.is_empty() {
        finding.found = format!("the isolated CPUs {} serve none of devices", list(&isolated));
        return finding;
    } else if loud.is_empty() {
        finding.found = format!("fewer than {QUIET_PER_S} a second from devices on each CPU");
        return finding;
    } else if loud.len() < own.len() {
        let calm: Vec<u32> = own.iter().copied().filter(|cpu| !loud.contains(cpu)).collect();
        finding.found = format!(
            "devices interrupt CPUs {}; CPUs {} serve fewer than {QUIET_PER_S} a second",
            list(&loud),
            list(&calm)
        );
        return finding;
    } else {
        finding.state = State::Warning;
        finding.found = "devices interrupt every CPU that takt may use".to_owned();
    }
    let target = table.cpus.iter().copied().find(|cpu| !isolated.contains(cpu)).unwrap_or(0);
    for (_, device) in loudest.iter().take(3) {
        let line = format!("echo {target} | sudo tee /proc/irq/{}/smp_affinity_list ({})", device.number, device.name);
        if !finding.mend.contains(&line) {
            finding = finding.mend(line);
        }
    }
    if balancer {
        finding = finding.mend("sudo systemctl stop irqbalance, or IRQBALANCE_BANNED_CPULIST in its configuration");
    }
    finding.mend(format!("irqaffinity={target} (boot parameter)"))
}

/// A count over seconds, with a digit behind the point below ten.
fn rate(count: u64, seconds: u64) -> String {
    match count / seconds {
        whole @ 0..10 => format!("{whole}.{}", count.saturating_mul(10) / seconds % 10),
        whole => whole.to_string(),
    }
}

/// The part of /proc/interrupts that is about devices.
struct Table<'a> {
    cpus: Vec<u32>,
    devices: Vec<Device<'a>>,
}

struct Device<'a> {
    number: u32,
    name: &'a str,
    counts: Vec<u64>,
}

impl Table<'_> {
    fn parse(text: &str) -> Option<Table<'_>> {
        let mut lines = text.lines();
        let cpus: Vec<u32> =
            lines.next()?.split_ascii_whitespace().filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
        let device = |line: &'_ str| -> Option<(u32, Vec<u64>)> {
            let (number, rest) = line.split_once(':')?;
            let counts = rest.split_ascii_whitespace().take(cpus.len()).map_while(|word| word.parse().ok()).collect();
            Some((number.trim().parse().ok()?, counts))
        };
        let devices = lines.filter_map(|line| {
            let (number, counts) = device(line)?;
            Some(Device { number, name: line.split_ascii_whitespace().last().unwrap_or("?"), counts })
        });
        let devices: Vec<Device<'_>> = devices.collect();
        (!cpus.is_empty()).then_some(Table { cpus, devices })
    }
}

/// The place and the text that reveal a hypervisor.
fn hypervisor(machine: Facts<'_>) -> Option<(&'static str, String)> {
    const VENDORS: &[&str] = &[
        "QEMU",
        "VMware",
        "innotek",
        "Xen",
        "Microsoft Corporation",
        "Amazon EC2",
        "Google",
        "Parallels",
        "KVM",
        "Bochs",
    ];
    let flags = machine.text("/proc/cpuinfo").unwrap_or_default().lines().find(|line| line.starts_with("flags"));
    if flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")) {
        return Some(("/proc/cpuinfo flags", "hypervisor".to_owned()));
    }
    if let Some(kind) = machine.line("/sys/hypervisor/type").filter(|kind| !kind.is_empty()) {
        return Some(("/sys/hypervisor/type", kind.to_owned()));
    }
    // x86 processors tell by the flag; a vendor that makes both tells on others.
    let vendor = machine.line("/sys/class/dmi/id/sys_vendor").filter(|_| flags.is_none())?;
    VENDORS.iter().any(|name| vendor.contains(name)).then(|| ("/sys/class/dmi/id/sys_vendor", vendor.to_owned()))
}

pub(super) fn virtualization(machine: Facts<'_>) -> Finding {
    match hypervisor(machine) {
        Some((place, what)) => {
            Finding::new(State::Warning, "a virtual machine: its CPUs are threads of another system")
                .seen(place, what)
                .costs(
                    "no bound from within: the hypervisor may stop a CPU at any instant; the probe shows pauses, \
                 steal a part of their causes",
                )
                .mend("a physical machine")
                .mend(
                    "or, on the host: a CPU for each virtual CPU (isolated, pinned), SCHED_FIFO for its thread, \
                 memory locked",
                )
        }
        None if machine.text("/proc/cpuinfo").is_none() => {
            Finding::new(State::Unknown, "the kernel does not describe its processors")
        }
        None => Finding::new(State::Ok, "no sign of a hypervisor"),
    }
}

pub(super) fn steal(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/proc/stat";
    let fields: Option<Vec<u64>> = machine
        .line(FILE)
        .and_then(|line| line.strip_prefix("cpu"))
        .and_then(|line| line.split_ascii_whitespace().map(|word| word.parse().ok()).collect());
    let Some(fields) = fields else { return Finding::new(State::Unknown, "the kernel does not tell") };
    // user nice system idle iowait irq softirq steal; guest time is in user and nice.
    let total = fields.iter().take(8).fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
    let stolen = fields.get(7).copied().unwrap_or(0);
    if stolen == 0 {
        let found = if hypervisor(machine).is_some() { "none, if the hypervisor reports it" } else { "none" };
        return Finding::new(State::Ok, found);
    }
    let ppm = u128::from(stolen) * 1_000_000 / u128::from(total.max(1));
    let percent = format!("{}.{:02} %", ppm / 10_000, ppm / 100 % 100);
    let finding = Finding::new(State::Ok, format!("{percent} of all time since the start"))
        .seen(FILE, format!("{stolen} of {total} clock ticks"));
    if ppm < 100 {
        return finding;
    }
    Finding { state: State::Warning, ..finding }
        .costs(format!(
            "{percent} of the CPUs on the average, in pauses of unknown length; a job's execution \
             time grows by what falls into it"
        ))
        .mend("on the host: fewer virtual CPUs than CPUs, each pinned to its own")
}
