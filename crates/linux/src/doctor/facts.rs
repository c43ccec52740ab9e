//! Facts that several judgements need, read from the texts of a snapshot.

use super::Finding;
use super::snapshot::Snapshot;
use crate::sysfs::parse_cpu_list;

/// The remedy for root without the right to mount.
pub(super) const OUTSIDE: &str =
    "run takt outside of this container, or in one that may mount: CAP_SYS_ADMIN is missing (docker run --privileged)";

/// Answers questions about a snapshot.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a>(pub(super) &'a Snapshot);

impl std::ops::Deref for Facts<'_> {
    type Target = Snapshot;
    fn deref(&self) -> &Snapshot {
        self.0
    }
}

/// A real-time thread, parsed from a line of `takt:threads`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Thread<'a> {
    pub(super) tid: u32,
    pub(super) policy: &'a str,
    /// For SCHED_FIFO and SCHED_RR only.
    pub(super) priority: u32,
    pub(super) runtime_ns: u64,
    pub(super) period_ns: u64,
    pub(super) kernel: bool,
    pub(super) comm: &'a str,
}

impl Facts<'_> {
    /// Major and minor number of the kernel.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        crate::machine::version(self.line("/proc/sys/kernel/osrelease")?)
    }

    /// The value of an option in the kernel's configuration: `y`, `m`, another value, or `n` if it
    /// is not set. `None` if the configuration cannot be read.
    pub(super) fn config(&self, option: &str) -> Option<&str> {
        let (_, text) = self.config_file()?;
        let value = |line| str::strip_prefix(line, "CONFIG_")?.strip_prefix(option)?.strip_prefix('=');
        Some(text.lines().find_map(value).unwrap_or("n"))
    }

    /// The path and the text of the kernel's configuration.
    pub(super) fn config_file(&self) -> Option<(&str, &str)> {
        let boot = self.matching("/boot/config-", "").next();
        let text = |path| Some((path, self.text(path)?));
        text("/proc/config.gz").or(boot).filter(|(_, text)| text.lines().any(|line| line.starts_with("CONFIG_HZ=")))
    }

    /// The value of the word `key=...` on the kernel's command line, or an empty text for the bare
    /// word `key`.
    pub(super) fn boot(&self, key: &str) -> Option<&str> {
        let words = self.line("/proc/cmdline")?.split_ascii_whitespace();
        // Words after "--" are for init.
        let mut words = words.take_while(|word| *word != "--");
        words.find_map(|word| match word.split_once('=') {
            Some((name, value)) => (name == key).then_some(value),
            None => (word == key).then_some(""),
        })
    }

    /// Whether the observing process had a capability.
    pub(super) fn capability(&self, number: u32) -> Option<bool> {
        let set = self.status("CapEff")?;
        Some(u64::from_str_radix(set, 16).ok()? >> number & 1 == 1)
    }

    /// A line of /proc/self/status.
    pub(super) fn status(&self, key: &str) -> Option<&str> {
        let lines = self.text("/proc/self/status")?.lines();
        lines.filter_map(|line| line.split_once(':')).find(|(name, _)| *name == key).map(|(_, value)| value.trim())
    }

    /// The soft limit of /proc/self/limits; `u64::MAX` is none.
    pub(super) fn limit(&self, name: &str) -> Option<u64> {
        let line = self.text("/proc/self/limits")?.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_ascii_whitespace().next()? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    }

    /// CPUs that the process may use.
    pub(super) fn cpus(&self) -> Vec<u32> {
        parse_cpu_list(
            self.status("Cpus_allowed_list").or_else(|| self.line("/sys/devices/system/cpu/online")).unwrap_or(""),
        )
    }

    /// CPUs of a list in a file. `(null)` and an empty file are no CPUs.
    pub(super) fn cpu_list(&self, path: &str) -> Vec<u32> {
        parse_cpu_list(self.line(path).unwrap_or_default())
    }

    /// CPUs isolated from ordinary threads: isolcpus and isolated partitions of cgroup version 2.
    pub(super) fn isolated(&self) -> Vec<u32> {
        let mut cpus = self.cpu_list("/sys/devices/system/cpu/isolated");
        cpus.extend(self.matching("/sys/fs/cgroup", "cpuset.cpus.isolated").flat_map(|(_, text)| parse_cpu_list(text)));
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// The machine's real-time threads; `None` if the snapshot has no list.
    pub(super) fn threads(&self) -> Option<Vec<Thread<'_>>> {
        Some(self.text("takt:threads")?.lines().filter_map(thread).collect())
    }

    /// Whether the observing process was root's.
    pub(super) fn root(&self) -> bool {
        self.status("Uid").and_then(|ids| ids.split_ascii_whitespace().nth(1)) == Some("0")
    }

    /// The step that makes debugfs readable. Root needs no mount: takt makes its own.
    pub(super) fn reading_debugfs(&self) -> &'static str {
        match (self.root(), self.has_filesystem("debugfs"), self.reached("debugfs")) {
            (_, false, _) => "a kernel with CONFIG_DEBUG_FS=y",
            (false, ..) => "sudo takt doctor (debugfs is for root)",
            (true, _, true) => "a kernel that lets root read debugfs (not locked down: the boot parameter lockdown=)",
            (true, _, false) => OUTSIDE,
        }
    }

    /// The reason why a file of debugfs was not read.
    pub(super) fn unread(&self, path: &str) -> &str {
        let reason = self.refused(path).or_else(|| self.refused("takt:debugfs"));
        reason.unwrap_or(if self.reached("debugfs") { "not there" } else { "not there: debugfs is not mounted" })
    }

    /// Whether the snapshot reached this kernel file system, mounted already or by a mount of
    /// takt's own.
    pub(super) fn reached(&self, kind: &str) -> bool {
        self.mounted(kind) || self.text(&format!("takt:{kind}")).is_some()
    }

    /// Adds a mount command as a remedy if this kernel file system is not mounted.
    pub(super) fn mount_first(&self, kind: &str, finding: Finding) -> Finding {
        match kind {
            _ if self.mounted(kind) => finding,
            "tracefs" => finding.mend("sudo mount -t tracefs nodev /sys/kernel/tracing"),
            _ => finding.mend("sudo mount -t debugfs none /sys/kernel/debug"),
        }
    }

    /// Whether the kernel has this file system; true if unknown.
    pub(super) fn has_filesystem(&self, kind: &str) -> bool {
        let known = self.text("/proc/filesystems");
        known.is_none_or(|text| text.lines().any(|line| line.split_ascii_whitespace().last() == Some(kind)))
    }

    /// Whether the file of the mounts names a file system of this kind.
    pub(super) fn mounted(&self, kind: &str) -> bool {
        let mounts = self.text("/proc/mounts").unwrap_or_default();
        mounts.lines().any(|line| line.split_ascii_whitespace().nth(2) == Some(kind))
    }
}

/// `TID POLICY PRIORITY RUNTIME_NS PERIOD_NS kernel|user NAME`
fn thread(line: &str) -> Option<Thread<'_>> {
    let mut words = line.splitn(7, ' ');
    Some(Thread {
        tid: words.next()?.parse().ok()?,
        policy: words.next()?,
        priority: words.next()?.parse().ok()?,
        runtime_ns: words.next()?.parse().ok()?,
        period_ns: words.next()?.parse().ok()?,
        kernel: words.next()? == "kernel",
        comm: words.next()?,
    })
}

/// Numbers as a list like `0-2,5`; "none" where there are none.
pub(super) fn list(cpus: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let [first, ..] = rest {
        let run = rest.iter().zip(*first..=u32::MAX).take_while(|(cpu, expected)| *cpu == expected).count();
        let last = rest.get(run - 1).unwrap_or(first);
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&if run == 1 { first.to_string() } else { format!("{first}-{last}") });
        rest = rest.get(run..).unwrap_or_default();
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_answer_questions() {
        let mut machine = Snapshot::default();
        machine.put(
            "/proc/config.gz",
            "CONFIG_HZ=250\nCONFIG_KASAN_INLINE=y\n# CONFIG_KASAN is not set\nCONFIG_NO_HZ_FULL=y\n",
        );
        machine.put("/proc/cmdline", "quiet preempt=full nohlt -- isolcpus=3");
        machine.put("/proc/self/limits", "Max locked memory         8388608              unlimited            bytes\n");
        machine.put("takt:threads", "7 FIFO 50 0 0 kernel irq/9-a b\n8 DEADLINE 0 2000000 10000000 user x\nwhat\n");
        let facts = Facts(&machine);
        assert_eq!(
            (facts.config("KASAN"), facts.config("NO_HZ_FULL"), facts.config("HZ")),
            (Some("n"), Some("y"), Some("250"))
        );
        assert_eq!(
            (facts.boot("preempt"), facts.boot("nohlt"), facts.boot("isolcpus")),
            (Some("full"), Some(""), None)
        );
        assert_eq!((facts.limit("Max locked memory"), facts.limit("Max nothing")), (Some(8_388_608), None));
        let threads = facts.threads().unwrap();
        assert_eq!((threads.len(), threads[0].comm, threads[1].runtime_ns), (2, "irq/9-a b", 2_000_000));
        assert_eq!(Facts(&Snapshot::default()).config("HZ"), None);
        assert_eq!((list(&[0, 1, 2, 5]).as_str(), list(&[]).as_str()), ("0-2,5", "none"));
    }
}
