//! Causes of slow memory accesses.

use super::super::facts::Facts;
use super::super::{Finding, State};
use crate::process::CAP_IPC_LOCK;

pub(super) fn lock(machine: Facts<'_>) -> Finding {
    const PLACE: &str = "/proc/self/limits Max locked memory";
    let limit = machine.limit("Max locked memory");
    match (machine.capability(CAP_IPC_LOCK), limit) {
        (Some(true), _) => Finding::new(State::Ok, "CAP_IPC_LOCK: as much as is wanted"),
        (_, Some(u64::MAX)) => {
            Finding::new(State::Ok, "as much as is wanted (RLIMIT_MEMLOCK)").seen(PLACE, "unlimited")
        }
        (_, Some(bytes)) => {
            Finding::new(State::Warning, format!("at most {} KiB: CAP_IPC_LOCK is missing", bytes / 1024))
                .seen(PLACE, format!("{bytes} bytes"))
                .costs(
                    "takt run refuses where its threads need more; memory that is not locked costs a page fault, \
                 milliseconds where it was swapped out",
                )
                .mend("sudo setcap cap_sys_nice,cap_ipc_lock+ep \"$(command -v takt)\"")
                .mend("ulimit -l unlimited (as root, in the shell that starts takt)")
        }
        (_, None) => Finding::new(State::Unknown, "/proc/self/limits does not tell"),
    }
}

pub(super) fn swap(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/proc/swaps";
    let Some(text) = machine.text(FILE) else {
        return Finding::new(State::Absent, "the kernel has no swap (CONFIG_SWAP)");
    };
    let areas: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_ascii_whitespace().collect()).collect();
    let number = |area: &[&str], column: usize| area.get(column).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let names: Vec<&str> = areas.iter().filter_map(|area| area.first().copied()).collect();
    if names.is_empty() {
        return Finding::new(State::Ok, "none");
    }
    let sum = |column| areas.iter().map(|area| number(area, column)).sum::<u64>();
    let found = format!("swap on {}, {} KiB of {} KiB used", names.join(" and "), sum(3), sum(2));
    let finding = Finding::new(State::Warning, found)
        .costs(
            "no bound: a page that was written out comes back from the disk; takt run locks its memory, \
             other real-time programs may not",
        )
        .mend("sudo swapoff -a");
    areas.iter().fold(finding, |finding, area| finding.seen(FILE, area.join(" ")))
}

pub(super) fn huge_pages(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let Some(line) = machine.line(FILE) else {
        return Finding::new(State::Absent, "the kernel joins no pages (CONFIG_TRANSPARENT_HUGEPAGE)");
    };
    let chosen = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(line, |(word, _)| word);
    let finding = Finding::new(State::Ok, format!("{chosen}: only for programs that ask"))
        .shown(&machine, &[FILE, "/sys/kernel/mm/transparent_hugepage/defrag"]);
    match chosen {
        "always" => Finding { state: State::Warning, found: "always: for every program".to_owned(), ..finding }
            .costs(
                "no bound: a thread waits while the kernel copies its pages together, and pages are moved to make room",
            )
            .mend(format!("echo madvise | sudo tee {FILE}"))
            .mend("transparent_hugepage=madvise (boot parameter)")
            .link(&["https://docs.kernel.org/admin-guide/mm/transhuge.html"]),
        "never" => Finding { found: "never".to_owned(), ..finding },
        _ => finding,
    }
}

pub(super) fn numa_balancing(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/proc/sys/kernel/numa_balancing";
    match machine.number::<u32>(FILE) {
        Some(0) => Finding::new(State::Ok, "off").shown(&machine, &[FILE]),
        Some(_) => Finding::new(State::Warning, "on: pages are moved to the node that uses them")
            .shown(&machine, &[FILE])
            .costs("no bound: page faults that the kernel provokes to see who uses a page, locked memory included")
            .mend("sudo sysctl kernel.numa_balancing=0")
            .mend("numa_balancing=disable (boot parameter)"),
        None => Finding::new(State::Absent, "the kernel has none"),
    }
}
