//! Kernel features that takt uses where they exist. A missing feature is no fault; the finding
//! names the verbs that need the feature.

use super::super::facts::{Facts, OUTSIDE};
use super::super::{Finding, State};

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

pub(super) fn tracing(machine: Facts<'_>) -> Finding {
    const INSTANCES: &str = "/sys/kernel/tracing/instances";
    const TRACER: &str = "/sys/kernel/tracing/current_tracer";
    if let Some(tracer) = machine.line(TRACER).filter(|tracer| !tracer.is_empty() && *tracer != "nop") {
        let finding = Finding::new(State::Warning, format!("the tracer \"{tracer}\" is on"))
            .shown(&machine, &[TRACER, "/sys/kernel/tracing/tracing_on"])
            .costs("each function or latency that is traced costs time everywhere; how much depends on the tracer");
        return machine
            .mount_first("tracefs", finding)
            .mend(format!("echo nop | sudo tee {TRACER}"))
            .link(&["https://docs.kernel.org/trace/ftrace.html"]);
    }
    let mounted = machine.mounted("tracefs");
    if machine.text(INSTANCES).is_some() {
        let own = "tracefs is not mounted; verbs that record mount a private one";
        return Finding::new(State::Ok, if mounted { "tracefs is there" } else { own });
    }
    let absent = |found: &str, mend: &str| Finding::new(State::Absent, found).mend(mend);
    let built = "a kernel with CONFIG_FTRACE=y and CONFIG_EVENT_TRACING=y";
    let locked = machine.line("/sys/kernel/security/lockdown").is_some_and(|line| line.contains("[confidentiality]"));
    match (machine.root(), machine.reached("tracefs")) {
        _ if !machine.has_filesystem("tracefs") => absent("the kernel has no tracefs: nothing can be recorded", built),
        _ if locked => absent(
            "the kernel is locked down (confidentiality): nobody may trace it",
            "boot without lockdown=confidentiality",
        ),
        (false, true) => absent("tracefs is there, and not for this user: recording needs root", "sudo takt ..."),
        (false, false) => absent("tracefs is not mounted; root needs no mount for recording", "sudo takt ..."),
        (true, true) => match machine.refused(INSTANCES) {
            Some(_) => absent("tracefs is there, and root may not write to it", OUTSIDE).shown(&machine, &[INSTANCES]),
            None => absent("tracefs has no folder of instances, below which takt records", built),
        },
        (true, false) => {
            absent("tracefs is not mounted, and root may not mount it", OUTSIDE).shown(&machine, &["takt:tracefs"])
        }
    }
}

pub(super) fn btf(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/sys/kernel/btf/vmlinux";
    if machine.has(FILE) {
        return Finding::new(State::Ok, "the kernel describes its types").seen(FILE, "there");
    }
    Finding::new(State::Absent, "the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
}

pub(super) fn sched_ext(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/sys/kernel/sched_ext/state";
    match machine.line(FILE) {
        Some("enabled") => {
            let name = machine.line("/sys/kernel/sched_ext/root/ops").unwrap_or("a program");
            Finding::new(State::Ok, format!("{name} schedules the ordinary threads, below all real-time ones"))
                .shown(&machine, &[FILE])
        }
        Some(state) => Finding::new(State::Ok, format!("the kernel can; {state} now")).shown(&machine, &[FILE]),
        None => Finding::new(State::Absent, "the kernel cannot (CONFIG_SCHED_CLASS_EXT, Linux 6.12 and later)"),
    }
}

pub(super) fn cpusets(machine: Facts<'_>) -> Finding {
    match machine.line("takt:no-cpusets") {
        Some("") => Finding::new(State::Ok, "takt can divide the machine"),
        Some(why) => {
            Finding::new(State::Absent, format!("takt cannot divide the machine: {}", why.trim_end_matches('.')))
        }
        None => Finding::new(State::Unknown, "not searched"),
    }
}

pub(super) fn traffic_control(machine: Facts<'_>) -> Finding {
    let privilege = match machine.capability(CAP_NET_ADMIN) {
        Some(true) => "",
        _ => "; CAP_NET_ADMIN is missing",
    };
    let built = machine.config("NET_SCH_HTB");
    match (machine.has("/sys/module/sch_htb"), built) {
        (true, _) | (_, Some("y")) => Finding::new(State::Ok, format!("HTB is there{privilege}")),
        (_, Some("m")) => Finding::new(State::Ok, format!("HTB is a module{privilege}")),
        (_, Some(_)) => Finding::new(State::Absent, "the kernel has no HTB (CONFIG_NET_SCH_HTB)"),
        (_, None) => Finding::new(State::Absent, format!("whether the kernel has HTB is not told{privilege}")),
    }
}

pub(super) fn network_namespaces(machine: Facts<'_>) -> Finding {
    if !machine.has("/proc/self/ns/net") {
        return Finding::new(State::Absent, "the kernel has none (CONFIG_NET_NS)");
    }
    match machine.capability(CAP_SYS_ADMIN) {
        Some(true) => Finding::new(State::Ok, "the kernel has them"),
        _ if machine.root() => Finding::new(State::Ok, "the kernel has them; CAP_SYS_ADMIN is missing"),
        _ => Finding::new(State::Ok, "the kernel has them, for root"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Snapshot;
    use super::*;

    const ROOT: &str = "Uid:\t0\t0\t0\t0\n";
    const USER: &str = "Uid:\t1000\t1000\t1000\t1000\n";
    const MOUNTED: &str = "nodev /sys/kernel/tracing tracefs rw 0 0\n";
    const KNOWN: &str = "nodev\ttracefs\nnodev\tdebugfs\n\text4\n";

    fn machine(user: &str, mounts: &str, more: impl FnOnce(&mut Snapshot)) -> Snapshot {
        let mut machine = Snapshot::default();
        machine.put("/proc/self/status", user);
        machine.put("/proc/mounts", mounts);
        machine.put("/proc/filesystems", KNOWN);
        more(&mut machine);
        machine
    }

    fn said(machine: &Snapshot) -> (State, String, String) {
        let finding = tracing(Facts(machine));
        (finding.state, finding.found, finding.mend.join("; "))
    }

    /// Recording is possible where takt can mount tracefs, and who is root is not told to become root.
    #[test]
    fn the_recording_finding_checks_what_the_recorder_needs() {
        const INSTANCES: &str = "/sys/kernel/tracing/instances";
        let own = machine(ROOT, "", |machine| {
            machine.put("takt:tracefs", "not mounted; a mount of its own");
            machine.put(INSTANCES, "");
        });
        let (state, found, mend) = said(&own);
        assert_eq!((state, mend.as_str()), (State::Ok, ""));
        assert_eq!(found, "tracefs is not mounted; verbs that record mount a private one");
        assert_eq!(said(&machine(ROOT, MOUNTED, |machine| machine.put(INSTANCES, ""))).1, "tracefs is there");

        let none = |_: &mut Snapshot| {};
        let denied = |machine: &mut Snapshot| machine.refuse(INSTANCES, "Permission denied (os error 13)");
        for (user, mounts, more) in
            [(USER, "", none as fn(&mut Snapshot)), (USER, MOUNTED, denied), (ROOT, "", none), (ROOT, MOUNTED, denied)]
        {
            let (state, _, mend) = said(&machine(user, mounts, more));
            assert_eq!(state, State::Absent);
            assert_eq!(mend.contains("sudo"), user == USER, "{mend}");
        }
        let without = machine(ROOT, "", |machine| machine.put("/proc/filesystems", "nodev\tdebugfs\n"));
        assert!(said(&without).2.contains("CONFIG_FTRACE"));
        let locked = machine(ROOT, MOUNTED, |machine| {
            machine.refuse(INSTANCES, "Operation not permitted (os error 1)");
            machine.put("/sys/kernel/security/lockdown", "none integrity [confidentiality]");
        });
        assert!(said(&locked).1.contains("locked down"));
    }
}
