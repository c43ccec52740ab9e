//! Reads this machine: nothing but files and a few questions to the kernel, and nothing is changed.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::snapshot::Snapshot;
use crate::mount::{DEBUGFS, Mount, TRACEFS};
use crate::{cgroup, clock, cpuset, process, sched};

/// Threads that are looked at; a machine with more is not looked at to the end, and the snapshot says so.
const THREADS_MAX: usize = 200_000;
/// Bytes of the kernel's configuration, unpacked.
const CONFIG_MAX: u64 = 4 << 20;

const FILES: &[&str] = &[
    "/proc/cmdline",
    "/proc/filesystems",
    "/proc/interrupts",
    "/proc/irq/default_smp_affinity",
    "/proc/mounts",
    "/proc/self/cgroup",
    "/proc/self/limits",
    "/proc/self/status",
    "/proc/self/timerslack_ns",
    "/proc/swaps",
    "/proc/sys/kernel/hung_task_timeout_secs",
    "/proc/sys/kernel/nmi_watchdog",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/sched_rt_period_us",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/timer_migration",
    "/proc/sys/kernel/version",
    "/proc/sys/kernel/watchdog",
    "/proc/sys/kernel/watchdog_cpumask",
    "/proc/sys/kernel/watchdog_thresh",
    "/proc/sys/vm/stat_interval",
    "/proc/uptime",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/cpuidle/current_driver",
    "/sys/devices/system/cpu/cpuidle/current_governor",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/active",
    "/sys/devices/system/cpu/smt/control",
    "/sys/fs/cgroup/cgroup.controllers",
    "/sys/fs/cgroup/cpuset.cpus.isolated",
    "/sys/hypervisor/type",
    "/sys/kernel/debug/sched/features",
    "/sys/kernel/debug/sched/preempt",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/realtime",
    "/sys/kernel/sched_ext/root/ops",
    "/sys/kernel/sched_ext/state",
    "/sys/kernel/security/lockdown",
    "/sys/kernel/tracing/current_tracer",
    "/sys/kernel/tracing/tracing_on",
];

/// Things that are there or not; what they hold is not kept.
const PRESENT: &[&str] = &[
    "/proc/lockdep",
    "/proc/self/ns/net",
    "/sys/kernel/btf/vmlinux",
    "/sys/kernel/debug/kmemleak",
    "/sys/kernel/debug/sched",
    "/sys/module/sch_htb",
];

/// Below this folder of tracefs each recording has a folder of its own.
const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// Reads this machine.
#[must_use]
pub fn look() -> Snapshot {
    let mut machine = Snapshot::default();
    let mounts = Mounts::find(&mut machine);
    for path in FILES {
        read(&mut machine, path, &mounts.place(path));
    }
    for path in PRESENT {
        present(&mut machine, path, fs::metadata(mounts.place(path)).map(|_| ()));
    }
    present(&mut machine, INSTANCES, process::may_write(&mounts.place(INSTANCES)));
    processors(&mut machine);
    interrupts(&mut machine);
    configuration(&mut machine);
    scheduler(&mut machine, &mounts);
    threads(&mut machine);
    machine
}

/// Mount points of the file systems that some machines do not mount.
struct Mounts {
    tracefs: Option<Mount>,
    debugfs: Option<Mount>,
}

impl Mounts {
    /// Looks for them, and says in the snapshot how they were found.
    fn find(machine: &mut Snapshot) -> Mounts {
        let mut found = |name, kind| match Mount::find(kind) {
            Ok(mount) if mount.is_own() => {
                machine.put(name, "not mounted; a mount of its own");
                Some(mount)
            }
            Ok(mount) => {
                machine.put(name, &format!("mounted at {}", mount.root().display()));
                Some(mount)
            }
            Err(error) => {
                machine.refuse(name, &error.to_string());
                None
            }
        };
        Mounts { tracefs: found("takt:tracefs", TRACEFS), debugfs: found("takt:debugfs", DEBUGFS) }
    }

    /// The path of a file on this machine, from its usual path.
    fn place(&self, path: &str) -> PathBuf {
        let below = |mount: &Option<Mount>, usual: &str| {
            let rest = path.strip_prefix(usual)?.strip_prefix('/')?;
            Some(mount.as_ref()?.root().join(rest))
        };
        let found = below(&self.tracefs, TRACEFS.usual()).or_else(|| below(&self.debugfs, DEBUGFS.usual()));
        found.unwrap_or_else(|| PathBuf::from(path))
    }
}

fn read(machine: &mut Snapshot, name: &str, place: &Path) {
    match fs::read(place) {
        Ok(bytes) => machine.put(name, &String::from_utf8_lossy(&bytes)),
        Err(error) => refuse(machine, name, &error),
    }
}

/// The file at `path`, under that name.
fn read_at(machine: &mut Snapshot, path: &Path) {
    if let Some(name) = path.to_str() {
        read(machine, name, path);
    }
}

/// Records that a file exists, without its content.
fn present(machine: &mut Snapshot, name: &str, there: io::Result<()>) {
    match there {
        Ok(()) => machine.put(name, ""),
        Err(error) => refuse(machine, name, &error),
    }
}

/// Records a refusal. A missing file is not a refusal.
fn refuse(machine: &mut Snapshot, path: &str, error: &io::Error) {
    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        machine.refuse(path, &error.to_string());
    }
}

/// Names in a folder, in order; none where it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The part of a name after `prefix`, where it is a number.
fn numbered(name: &str, prefix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.parse().ok()
}

fn processors(machine: &mut Snapshot) {
    let root = Path::new("/sys/devices/system/cpu");
    for name in names(root).iter().filter(|name| numbered(name, "cpu").is_some()) {
        let cpu = root.join(name);
        for file in [
            "cpufreq/scaling_governor",
            "cpufreq/scaling_driver",
            "cpufreq/scaling_min_freq",
            "cpufreq/scaling_max_freq",
            "cpufreq/cpuinfo_max_freq",
            "cpufreq/energy_performance_preference",
            "topology/thread_siblings_list",
        ] {
            read_at(machine, &cpu.join(file));
        }
        for state in names(&cpu.join("cpuidle")).iter().filter(|name| numbered(name, "state").is_some()) {
            for file in ["name", "latency", "disable"] {
                read_at(machine, &cpu.join("cpuidle").join(state).join(file));
            }
        }
    }
    // The flags and the model of the first processor stand for all.
    if let Ok(text) = fs::read_to_string("/proc/cpuinfo") {
        let kept = text.lines().take_while(|line| !line.is_empty());
        let kept: Vec<&str> = kept.filter(|line| line.starts_with("flags") || line.starts_with("model name")).collect();
        machine.put("/proc/cpuinfo", &kept.join("\n"));
    }
    let mut bytes = [0u8; 4];
    match fs::File::open("/dev/cpu_dma_latency").and_then(|mut file| file.read_exact(&mut bytes)) {
        Ok(()) => machine.put("/dev/cpu_dma_latency", &i32::from_ne_bytes(bytes).to_string()),
        Err(error) => refuse(machine, "/dev/cpu_dma_latency", &error),
    }
    if let Ok(text) = fs::read_to_string("/proc/stat") {
        let kept: Vec<&str> = text.lines().filter(|line| line.starts_with("cpu ")).collect();
        machine.put("/proc/stat", &kept.join("\n"));
    }
    if let Some(tick) = clock::tick_period() {
        machine.put("takt:tick-ns", &tick.as_ns().to_string());
    }
}

fn interrupts(machine: &mut Snapshot) {
    let root = Path::new("/proc/irq");
    for name in names(root).iter().filter(|name| name.parse::<u32>().is_ok()) {
        read_at(machine, &root.join(name).join("effective_affinity_list"));
        read_at(machine, &root.join(name).join("smp_affinity_list"));
    }
}

fn configuration(machine: &mut Snapshot) {
    if let Some(text) = fs::read("/proc/config.gz").ok().and_then(|bytes| gunzip(&bytes)) {
        return machine.put("/proc/config.gz", &relevant(&text));
    }
    let path = format!("/boot/config-{}", machine.line("/proc/sys/kernel/osrelease").unwrap_or_default());
    match fs::read_to_string(&path) {
        Ok(text) => machine.put(&path, &relevant(&text)),
        Err(error) => refuse(machine, &path, &error),
    }
}

/// Keeps the lines of a kernel configuration that the judgements need.
fn relevant(text: &str) -> String {
    const PREFIXES: &[&str] = &[
        "HZ",
        "NO_HZ",
        "PREEMPT",
        "RT_GROUP",
        "SCHED_",
        "HIGH_RES",
        "PROVE_",
        "LOCKDEP",
        "LOCK_",
        "DEBUG_",
        "KASAN",
        "KCSAN",
        "KMSAN",
        "KCOV",
        "UBSAN",
        "SLUB_DEBUG",
        "PAGE_POISONING",
        "NET_SCH_HTB",
        "NET_NS",
        "CPUSETS",
        "CGROUP",
        "FTRACE",
        "FUNCTION_TRACER",
        "IRQSOFF",
        "BPF",
        "IRQ_FORCED",
        "RCU_NOCB",
    ];
    let wanted = |line: &&str| {
        let name = line.strip_prefix("CONFIG_");
        name.is_some_and(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
    };
    text.lines().filter(wanted).flat_map(|line| [line, "\n"]).collect()
}

/// The text of a gzip file.
fn gunzip(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).take(CONFIG_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

fn scheduler(machine: &mut Snapshot, mounts: &Mounts) {
    const SERVERS: &str = "/sys/kernel/debug/sched/fair_server";
    for cpu in names(&mounts.place(SERVERS)) {
        for file in ["runtime", "period"] {
            let name = format!("{SERVERS}/{cpu}/{file}");
            read(machine, &name, &mounts.place(&name));
        }
    }
    match fs::read_to_string(mounts.place("/sys/kernel/debug/sched/debug")) {
        Ok(text) => {
            let kept: Vec<&str> = text.lines().filter(|line| line.contains("dl_bw->total_bw")).collect();
            machine.put("/sys/kernel/debug/sched/debug", &kept.join("\n"));
        }
        Err(error) => refuse(machine, "/sys/kernel/debug/sched/debug", &error),
    }
    if let Some(folder) = cgroup::v1_folder("cpu") {
        read_at(machine, &folder.join("cpu.rt_runtime_us"));
        read_at(machine, &folder.join("cpu.rt_period_us"));
    }
    let obstacle = cpuset::obstacle().map(|error| error.to_string());
    machine.put("takt:no-cpusets", &obstacle.unwrap_or_default());
}

/// The real-time threads of other processes, a line each, and whether irqbalance is among the processes.
fn threads(machine: &mut Snapshot) {
    let root = Path::new("/proc");
    let own = std::process::id();
    let (mut seen, mut found, mut balancer) = (0usize, Vec::new(), false);
    'all: for process in names(root).iter().filter_map(|name| name.parse::<u32>().ok()) {
        for thread in names(&root.join(process.to_string()).join("task")) {
            seen += 1;
            if seen > THREADS_MAX {
                machine.put("takt:threads-left-out", &format!("more than {THREADS_MAX} threads"));
                break 'all;
            }
            let path = root.join(process.to_string()).join("task").join(&thread).join("stat");
            let Some((comm, fields)) = fs::read_to_string(path).ok().as_deref().and_then(stat) else { continue };
            balancer |= comm == "irqbalance";
            if process != own && matches!(fields.policy, 1 | 2 | 6) {
                found.extend(thread.parse().ok().map(|tid| described(tid, &comm, fields)));
            }
        }
    }
    machine.put("takt:threads", &found.join("\n"));
    machine.put("takt:irqbalance", if balancer { "running" } else { "not running" });
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fields {
    kernel: bool,
    priority: u32,
    policy: u32,
}

/// Name and fields of a line of /proc/PID/stat; the name in parentheses may hold anything.
fn stat(text: &str) -> Option<(String, Fields)> {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let (head, rest) = text.rsplit_once(')')?;
    let comm = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Fields count from one, and the third stands first here.
    let field = |number: usize| fields.get(number - 3);
    let kernel = field(9)?.parse::<u64>().ok()? & KERNEL_THREAD != 0;
    Some((comm, Fields { kernel, priority: field(40)?.parse().ok()?, policy: field(41)?.parse().ok()? }))
}

fn described(tid: u32, comm: &str, fields: Fields) -> String {
    let policy = match fields.policy {
        1 => "FIFO",
        2 => "RR",
        _ => "DEADLINE",
    };
    let (runtime, period) = match sched::of_thread(tid).map(|scheduling| scheduling.class) {
        Some(sched::Class::Deadline(reserved)) if fields.policy == 6 => {
            (reserved.runtime.as_ns(), reserved.period.as_ns())
        }
        _ => (0, 0),
    };
    let kind = if fields.kernel { "kernel" } else { "user" };
    format!("{tid} {policy} {} {runtime} {period} {kind} {comm}", fields.priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_its_kernel_and_its_limits() {
        let machine = look();
        assert!(machine.line("/proc/sys/kernel/osrelease").is_some_and(|release| !release.is_empty()));
        assert!(machine.text("/proc/self/status").is_some_and(|status| status.contains("Cpus_allowed_list")));
        assert!(machine.text("takt:threads").is_some());
        let text = machine.to_string();
        assert_eq!(Snapshot::parse(&text), Ok(machine));
    }

    #[test]
    fn a_threads_class_stands_in_its_stat() {
        let mut line = "12 (irq/9 (a)) S 2 0 0 0 -1 2129984".to_owned();
        line.push_str(&" 0".repeat(30));
        line.push_str(" 50 1 0 0 0");
        let (comm, fields) = stat(&line).unwrap();
        assert_eq!((comm.as_str(), fields), ("irq/9 (a)", Fields { kernel: true, priority: 50, policy: 1 }));
        assert_eq!(stat("12 (x) S"), None);
    }

    #[test]
    fn a_packed_configuration_is_read() {
        // One stored block, followed by the checksum and the length of its content.
        let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 14, 0, 0xf1, 0xff];
        packed.extend_from_slice(b"CONFIG_HZ=250\n");
        packed.extend_from_slice(&0x013a5ffb_u32.to_le_bytes());
        packed.extend_from_slice(&14u32.to_le_bytes());
        assert_eq!(gunzip(&packed).as_deref(), Some("CONFIG_HZ=250\n"));
        assert_eq!(gunzip(b"CONFIG_HZ=250\n"), None);
        assert_eq!(gunzip(&packed[..12]), None);
        assert_eq!(relevant("CONFIG_HZ=250\nCONFIG_USB=y\n"), "CONFIG_HZ=250\n");
    }
}
