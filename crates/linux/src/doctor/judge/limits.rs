//! Privileges and limits for real-time scheduling, and threads that are real-time already.

use super::super::facts::{Facts, Thread};
use super::super::{Finding, State};
use super::{RUN_PRIORITY, us};
use crate::process::CAP_SYS_NICE;

const GRANT: &str = "sudo setcap cap_sys_nice,cap_ipc_lock+ep \"$(command -v takt)\"";

pub(super) fn scheduling_privilege(machine: Facts<'_>) -> Finding {
    let Some(nice) = machine.capability(CAP_SYS_NICE) else {
        return Finding::new(State::Unknown, "/proc/self/status does not tell the capabilities");
    };
    let seen = |finding: Finding| {
        let limit = machine.limit("Max realtime priority").map_or("not told".to_owned(), |limit| limit.to_string());
        let finding = finding.seen("/proc/self/status CapEff", machine.status("CapEff").unwrap_or_default());
        finding.seen("/proc/self/limits Max realtime priority", limit)
    };
    if nice {
        return seen(Finding::new(State::Ok, "CAP_SYS_NICE: any class, any CPU"));
    }
    let limit = machine.limit("Max realtime priority").unwrap_or(0);
    if limit >= u64::from(RUN_PRIORITY) {
        let found =
            format!("SCHED_FIFO up to priority {limit} (RLIMIT_RTPRIO), no SCHED_DEADLINE: CAP_SYS_NICE is missing");
        let finding = Finding::new(State::Warning, found).costs("takt run refuses edf, with exit status 3");
        return seen(finding).mend(GRANT);
    }
    let found = format!("no real-time class is allowed: CAP_SYS_NICE is missing and RLIMIT_RTPRIO is {limit}");
    let finding =
        Finding::new(State::Problem, found).costs("takt run works with --best-effort only, which guarantees nothing");
    seen(finding).mend(GRANT).mend("ulimit -r 98 (as root, in the shell that starts takt; SCHED_FIFO alone)")
}

pub(super) fn rt_group(machine: Facts<'_>) -> Finding {
    let groups = machine.config("RT_GROUP_SCHED");
    let budgets = machine.matching("/", "/cpu.rt_runtime_us").next();
    if let Some((path, text)) = budgets {
        let runtime = text.trim();
        let period = machine.number::<u64>(&path.replace("rt_runtime", "rt_period")).unwrap_or(1_000_000);
        if runtime == "0" {
            let found = "the CPU cgroup has no real-time budget: SCHED_FIFO and SCHED_RR are refused, to root too";
            return Finding::new(State::Problem, found)
                .seen(path, runtime)
                .costs("takt run refuses fp, rm, dm and fifo, with exit status 3")
                .mend(format!("echo 900000 | sudo tee {path}"));
        }
        let found = match runtime.parse() {
            Ok(runtime) => format!("the CPU cgroup may use {} of each {}", us(runtime), us(period)),
            Err(_) => "the CPU cgroup has no limit".to_owned(),
        };
        return Finding::new(State::Ok, found).seen(path, runtime);
    }
    match groups {
        Some("y") => {
            let own = machine.text("/proc/self/cgroup").unwrap_or_default();
            let group = crate::cgroup::v2_group_of(own).unwrap_or("/");
            let controlled = machine
                .line("/sys/fs/cgroup/cgroup.controllers")
                .is_some_and(|all| all.split_ascii_whitespace().any(|controller| controller == "cpu"));
            if group == "/" || !controlled || machine.boot("rt_group_sched") == Some("0") {
                return Finding::new(State::Ok, "the process stands in the root group, which has the whole limit");
            }
            Finding::new(
                State::Unknown,
                "CONFIG_RT_GROUP_SCHED under cgroup v2: groups below the root may be refused real-time classes",
            )
            .seen("/proc/self/cgroup", format!("0::{group}"))
            .mend("rt_group_sched=0 (boot parameter, Linux 6.16 and later), or move the shell to the root group")
        }
        Some(_) => Finding::new(State::Absent, "the kernel has no groups of real-time threads (CONFIG_RT_GROUP_SCHED)"),
        None => Finding::new(State::Absent, "no group with a real-time budget is to be seen"),
    }
}

const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";

pub(super) fn throttling(machine: Facts<'_>) -> Finding {
    let (Some(runtime), Some(period)) = (machine.number::<i64>(RUNTIME), machine.number::<u64>(PERIOD)) else {
        return Finding::new(State::Unknown, "the limit of real-time threads cannot be read")
            .shown(&machine, &[RUNTIME]);
    };
    let shown = |finding: Finding| {
        finding.shown(&machine, &[RUNTIME, PERIOD]).link(&["https://docs.kernel.org/scheduler/sched-rt-group.html"])
    };
    let Some(runtime) = u64::try_from(runtime).ok().filter(|runtime| *runtime < period) else {
        return shown(Finding::new(
            State::Ok,
            "no limit: real-time threads are never stopped, and SCHED_DEADLINE admits whatever is asked",
        ));
    };
    // As `Machine::throttles_assumed` has it.
    let throttles =
        machine.version().is_none_or(|version| version < (6, 12)) || machine.config("RT_GROUP_SCHED") != Some("n");
    let share = runtime.saturating_mul(100) / period.max(1);
    if !throttles {
        let found = format!("this kernel stops no thread; SCHED_DEADLINE may reserve {share} % of each CPU");
        return shown(Finding::new(State::Ok, found));
    }
    let found = format!("SCHED_FIFO and SCHED_RR are stopped once they used {} of {}", us(runtime), us(period));
    shown(Finding::new(State::Warning, found))
        .costs(format!(
            "up to {} and a tick in each {} where real-time threads use more than {share} % of a CPU; nothing \
             where they use less",
            us(period - runtime),
            us(period)
        ))
        .mend(
            "sudo sysctl kernel.sched_rt_runtime_us=-1 (then a thread that runs away keeps its CPU, and \
             SCHED_DEADLINE admits everything)",
        )
        .mend(format!("or keep real-time work below {share} % of each CPU; takt check --linux says whether it is"))
}

pub(super) fn fair_server(machine: Facts<'_>) -> Finding {
    const LINKS: &[&str] = &["https://docs.kernel.org/scheduler/sched-deadline.html"];
    const FOLDER: &str = "/sys/kernel/debug/sched/fair_server/";
    let off = "echo 0 | sudo tee /sys/kernel/debug/sched/fair_server/cpu*/runtime (then ordinary threads may starve)";
    let tick = machine
        .number::<u64>("takt:tick-ns")
        .map_or("a tick".to_owned(), |ns| takt_model::Span::from_ns(ns).to_string());
    let costs = |runtime: &str, period: &str| {
        format!(
            "up to {runtime} and {tick} more in each {period} from SCHED_FIFO, a share of as much from \
             SCHED_DEADLINE; check --linux charges it"
        )
    };
    let servers: Vec<(&str, u64)> = machine
        .matching(FOLDER, "/runtime")
        .filter_map(|(path, text)| Some((path, text.trim().parse().ok()?)))
        .collect();
    if let Some((path, runtime)) = servers.iter().max_by_key(|(_, runtime)| *runtime) {
        if *runtime == 0 {
            return Finding::new(State::Ok, "switched off on all CPUs").seen(*path, "0").link(LINKS);
        }
        let periods = machine.matching(FOLDER, "/period").filter_map(|(_, text)| text.trim().parse::<u64>().ok());
        let span = |ns| takt_model::Span::from_ns(ns).to_string();
        let (runtime, period) = (span(*runtime), span(periods.min().unwrap_or(1_000_000_000)));
        let finding =
            Finding::new(State::Warning, format!("ordinary threads get up to {runtime} of each {period} on each CPU"))
                .seen(*path, runtime.clone())
                .costs(costs(&runtime, &period));
        return machine.mount_first("debugfs", finding).mend(off).link(LINKS);
    }
    match machine.version() {
        None => Finding::new(State::Unknown, "the kernel's version is not told"),
        Some(version) if version < (6, 12) => Finding::new(State::Absent, "kernels before 6.12 have none"),
        Some(_) => {
            let found =
                "the kernel has one on each CPU, whose size cannot be read: the default of 50ms in each 1s is taken";
            let finding = Finding::new(State::Warning, found);
            let finding = match machine.text("/sys/kernel/debug/sched") {
                Some(_) => finding.seen("/sys/kernel/debug/sched/fair_server", "not readable"),
                None => finding.seen("/sys/kernel/debug/sched", machine.unread("/sys/kernel/debug/sched")),
            };
            let finding = finding.costs(costs("50ms", "1s")).mend(machine.reading_debugfs());
            machine.mount_first("debugfs", finding).mend(off).link(LINKS)
        }
    }
}

pub(super) fn deadline_bandwidth(machine: Facts<'_>) -> Finding {
    const DEBUG: &str = "/sys/kernel/debug/sched/debug";
    let Some(threads) = machine.threads() else {
        return Finding::new(State::Unknown, "threads with reservations were not searched");
    };
    let mut reserved: Vec<&Thread<'_>> = threads.iter().filter(|thread| thread.policy == "DEADLINE").collect();
    let ppm = |thread: &Thread<'_>| {
        u128::from(thread.runtime_ns).saturating_mul(1_000_000).checked_div(u128::from(thread.period_ns)).unwrap_or(0)
    };
    reserved.sort_by_key(|thread| std::cmp::Reverse(ppm(thread)));
    // The kernel's frequency thread has a reservation that is none: 1 ms in 10 ms, which admission does not count.
    let sum: u128 = reserved.iter().filter(|thread| !thread.comm.starts_with("sugov:")).map(|thread| ppm(thread)).sum();
    let domains = machine
        .text(DEBUG)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.rsplit(':').next()?.trim().parse::<u64>().ok());
    let held = domains.max();
    let with_domains = |finding: Finding| match held {
        Some(held) => finding.seen(
            format!("{DEBUG} dl_bw->total_bw, the largest"),
            format!("{held} of 2^20 (servers for ordinary threads included)"),
        ),
        None => finding,
    };
    if sum == 0 {
        return with_domains(Finding::new(State::Ok, "no other thread has a reservation"));
    }
    let percent = format!("{}.{:01} %", sum / 10_000, sum / 1_000 % 10);
    let found = format!("reserved: {percent} of a CPU, by {} of other processes", threads_of(reserved.len()));
    let mut finding = Finding::new(State::Warning, found).costs(format!(
        "{percent} of a CPU that admission no longer has, and that these threads may take before yours"
    ));
    for thread in reserved.iter().take(SHOWN_MAX) {
        let span = |ns| takt_model::Span::from_ns(ns).to_string();
        let what = format!("{}: {} in each {}", thread.comm, span(thread.runtime_ns), span(thread.period_ns));
        finding = finding.seen(format!("thread {}", thread.tid), what);
    }
    with_domains(finding).mend("end them, or put them into the system file as tasks, so that check counts them")
}

fn threads_of(count: usize) -> String {
    format!("{count} {}", if count == 1 { "thread" } else { "threads" })
}

/// Threads that are named.
const SHOWN_MAX: usize = 16;

pub(super) fn real_time_threads(machine: Facts<'_>) -> Finding {
    let Some(threads) = machine.threads() else {
        return Finding::new(State::Unknown, "real-time threads were not searched");
    };
    // On every CPU of every machine: they stop it for instants to move threads, or not at all.
    let housekeeping = |thread: &Thread<'_>| {
        thread.kernel && ["migration/", "idle_inject/", "stopper/"].iter().any(|name| thread.comm.starts_with(name))
    };
    let mut others: Vec<Thread<'_>> =
        threads.into_iter().filter(|thread| matches!(thread.policy, "FIFO" | "RR") && !housekeeping(thread)).collect();
    others.sort_by_key(|thread| (std::cmp::Reverse(thread.priority), thread.tid));
    let of_users = |thread: &&Thread<'_>| !thread.kernel;
    let above = others.iter().filter(of_users).filter(|thread| thread.priority >= RUN_PRIORITY).count();
    let (users, kernels) =
        (others.iter().filter(of_users).count(), others.iter().filter(|thread| thread.kernel).count());
    let show = |mut finding: Finding| {
        for thread in others.iter().take(SHOWN_MAX) {
            let kind = if thread.kernel { ", of the kernel" } else { "" };
            let what = format!("{}: SCHED_{} priority {}{kind}", thread.comm, thread.policy, thread.priority);
            finding = finding.seen(format!("thread {}", thread.tid), what);
        }
        match others.len().checked_sub(SHOWN_MAX) {
            Some(rest @ 1..) => finding.seen("and more", rest.to_string()),
            _ => finding,
        }
    };
    if users == 0 {
        let kernels = if kernels == 0 { String::new() } else { format!("; {kernels} of the kernel") };
        return show(Finding::new(State::Ok, format!("no other process has any{kernels}")));
    }
    if above == 0 {
        let found = format!(
            "other processes have {}, less important than takt's (priority below {RUN_PRIORITY})",
            threads_of(users)
        );
        return show(Finding::new(State::Ok, found));
    }
    let found = format!(
        "other processes have {}, {above} of them at or above takt's most important priority, {RUN_PRIORITY}",
        threads_of(users)
    );
    show(Finding::new(State::Warning, found))
        .costs("no bound: they run before yours for as long as they like, up to the limit of all real-time threads")
        .mend("sudo chrt -p -o 0 TID (makes a thread an ordinary one)")
        .mend("takt run --priority N (above theirs), or put them into the system file as tasks")
}
