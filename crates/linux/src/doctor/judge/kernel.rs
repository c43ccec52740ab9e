//! How the kernel is built and set.

use takt_model::Span;

use super::super::facts::{Facts, list};
use super::super::{Finding, State};
use super::us;

const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

pub(super) fn preemption(machine: Facts<'_>) -> Finding {
    const LINKS: &[&str] = &[
        "https://docs.kernel.org/admin-guide/kernel-parameters.html",
        "https://docs.kernel.org/core-api/real-time/index.html",
    ];
    const RT: &str = "a kernel with PREEMPT_RT (Debian and Ubuntu: linux-image-rt-amd64, linux-image-realtime; \
         CONFIG_PREEMPT_RT from 6.12 on)";
    let version = machine.line("/proc/sys/kernel/version").unwrap_or_default();
    let flags = || version.split_ascii_whitespace().filter(|word| word.starts_with("PREEMPT"));
    let seen = |finding: Finding| {
        let finding =
            finding.shown(&machine, &["/proc/sys/kernel/version", "/sys/kernel/realtime", PREEMPT]).link(LINKS);
        match machine.boot("preempt") {
            Some(value) => finding.seen("/proc/cmdline", format!("preempt={value}")),
            None => finding,
        }
    };
    if machine.line("/sys/kernel/realtime") == Some("1") || flags().any(|word| word.contains("PREEMPT_RT")) {
        return seen(Finding::new(State::Ok, "PREEMPT_RT: nearly all of the kernel is preemptible"));
    }
    let dynamic = flags().any(|word| word.starts_with("PREEMPT_DYNAMIC"));
    let chosen = machine.line(PREEMPT).and_then(|line| Some(line.split_once('(')?.1.split_once(')')?.0));
    let told = chosen.or_else(|| machine.boot("preempt").filter(|_| dynamic));
    let built = || {
        let options = [
            ("PREEMPT_NONE", "none"),
            ("PREEMPT_VOLUNTARY", "voluntary"),
            ("PREEMPT", "full"),
            ("PREEMPT_LAZY", "lazy"),
        ];
        machine.config("HZ")?;
        options.into_iter().find(|(option, _)| machine.config(option) == Some("y")).map(|(_, model)| model)
    };
    let built = built();
    let model = told.or(built).or_else(|| flags().any(|word| word == "PREEMPT").then_some("full"));
    let with_config = |finding: Finding| match (told, built, machine.config_file()) {
        (None, Some(model), Some((path, _))) => {
            let option = if model == "full" { String::new() } else { format!("_{}", model.to_uppercase()) };
            seen(finding).seen(path, format!("CONFIG_PREEMPT{option}=y"))
        }
        _ => seen(finding),
    };
    match model {
        Some(model @ ("full" | "lazy")) => with_config(Finding::new(
            State::Warning,
            format!(
                "{model}, without PREEMPT_RT: the kernel is preemptible except while it holds spin locks or serves \
                 interrupts"
            ),
        ))
        .costs("no bound; the probe shows how late timers were")
        .mend(RT),
        Some(model @ ("none" | "voluntary")) => {
            let finding = with_config(Finding::new(
                State::Problem,
                format!("{model}: system calls of other threads on the CPU run on while a real-time thread waits"),
            ))
            .costs("no bound, milliseconds; the probe shows how late timers were");
            let finding = if dynamic {
                machine
                    .mount_first("debugfs", finding.mend("preempt=full (boot parameter)"))
                    .mend("echo full | sudo tee /sys/kernel/debug/sched/preempt (until the next boot)")
            } else {
                finding.mend("a kernel with CONFIG_PREEMPT=y").mend("or CONFIG_PREEMPT_DYNAMIC=y and preempt=full")
            };
            finding.mend(RT)
        }
        None if flags().next().is_none() && version.contains('#') => seen(Finding::new(
            State::Problem,
            "none or voluntary: system calls of other threads on the CPU run on while a real-time thread waits",
        ))
        .costs("no bound, milliseconds; the probe shows how late timers were")
        .mend("a kernel with CONFIG_PREEMPT=y, or CONFIG_PREEMPT_DYNAMIC=y and preempt=full")
        .mend(RT),
        _ => seen(Finding::new(State::Unknown, "the kernel does not say which model is in force"))
            .mend(machine.reading_debugfs()),
    }
}

pub(super) fn tick(machine: Facts<'_>) -> Finding {
    let full = machine.cpu_list("/sys/devices/system/cpu/nohz_full");
    let tick = machine.number::<u64>("takt:tick-ns").filter(|ns| *ns > 0);
    let Some(ns) = tick.or_else(|| machine.number_of_config("HZ").map(|hz| 1_000_000_000_u64.div_ceil(hz))) else {
        return Finding::new(State::Unknown, "the kernel does not tell its period");
    };
    let spare = match full.as_slice() {
        [] => String::new(),
        cpus => format!("; none on CPUs {} while a single thread runs there", list(cpus)),
    };
    let found = format!("{} a second on busy CPUs, one each {}{spare}", 1_000_000_000 / ns, Span::from_ns(ns));
    let mut finding = Finding::new(State::Ok, found).shown(&machine, &["/sys/devices/system/cpu/nohz_full"]);
    finding.cost = "measured by the probe; what `costs.tick` charges in each `costs.tick-period`".to_owned();
    finding.link(&["https://docs.kernel.org/timers/no_hz.html"])
}

pub(super) fn hrtick(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/sys/kernel/debug/sched/features";
    let tick = machine.number::<u64>("takt:tick-ns").map_or("a tick".to_owned(), |ns| Span::from_ns(ns).to_string());
    let late = |found: &str| {
        Finding::new(State::Warning, found).costs(format!(
            "a reservation may take {tick} more than its budget before it is stopped; check charges that to the others"
        ))
    };
    if machine.config("SCHED_HRTICK") == Some("n") {
        return late("the kernel cannot (CONFIG_SCHED_HRTICK): budgets are enforced at ticks")
            .seen("the kernel's configuration", "CONFIG_SCHED_HRTICK is not set")
            .mend("a kernel with CONFIG_SCHED_HRTICK=y, or budgets well above a tick");
    }
    let Some(features) = machine.text(FILE) else {
        let finding = late("cannot be read; by default off: budgets are enforced at ticks");
        let finding = finding.seen(FILE, machine.unread(FILE)).mend(machine.reading_debugfs());
        return machine.mount_first("debugfs", finding).mend(format!("echo HRTICK_DL | sudo tee {FILE}"));
    };
    let has = |name: &str| features.split_ascii_whitespace().any(|word| word == name);
    if has("HRTICK_DL") || (has("HRTICK") && !has("NO_HRTICK_DL")) {
        return Finding::new(State::Ok, "on: budgets are enforced by timers").seen(FILE, "HRTICK_DL");
    }
    late("off: budgets are enforced at ticks")
        .seen(FILE, "NO_HRTICK_DL")
        .mend(format!("echo HRTICK_DL | sudo tee {FILE}"))
}

pub(super) fn isolation(machine: Facts<'_>) -> Finding {
    const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
    const LINKS: &[&str] = &[
        "https://docs.kernel.org/admin-guide/cgroup-v2.html#cpuset",
        "https://docs.kernel.org/admin-guide/kernel-parameters.html",
    ];
    let online = machine.cpu_list("/sys/devices/system/cpu/online");
    if online.len() < 2 {
        return Finding::new(State::Absent, "there is one CPU, which all share");
    }
    let isolated = machine.isolated();
    let seen = |finding: Finding| {
        let finding = finding.shown(&machine, &[ISOLATED, "/sys/devices/system/cpu/nohz_full"]).link(LINKS);
        match machine.matching("/sys/fs/cgroup", "cpuset.cpus.isolated").next() {
            Some((path, text)) => finding.seen(path, text.trim()),
            None => finding,
        }
    };
    if isolated.is_empty() {
        let last = online.last().copied().unwrap_or(0);
        return seen(Finding::new(
            State::Warning,
            "no CPU is kept free of ordinary threads, kernel work and their interrupts",
        ))
        .seen("CPUs on line", list(&online))
        .costs("no bound: caches, locks and deferred work of ordinary threads, and what the fair server gives them")
        .mend(format!(
            "isolcpus=managed_irq,domain,{last} nohz_full={last} rcu_nocbs={last} irqaffinity=0 \
                 (boot parameters, for CPU {last})"
        ))
        .mend("or, until the next boot, a cpuset partition (cgroup v2: cpuset.cpus.partition = isolated)");
    }
    let usable: Vec<u32> = machine.cpus().into_iter().filter(|cpu| isolated.contains(cpu)).collect();
    let full = machine.cpu_list("/sys/devices/system/cpu/nohz_full");
    let ticking: Vec<u32> = isolated.iter().copied().filter(|cpu| !full.contains(cpu)).collect();
    let ticks = if ticking.is_empty() { String::new() } else { format!("; with ticks: {}", list(&ticking)) };
    let own = match usable.as_slice() {
        [] => "; this process may use none of them: taskset -c them".to_owned(),
        _ => String::new(),
    };
    seen(Finding::new(State::Ok, format!("CPUs {} are kept free{ticks}{own}", list(&isolated))))
}

pub(super) fn watchdogs(machine: Facts<'_>) -> Finding {
    const NMI: &str = "/proc/sys/kernel/nmi_watchdog";
    const SOFT: &str = "/proc/sys/kernel/watchdog";
    let shown = |finding: Finding| {
        finding.shown(&machine, &[NMI, SOFT, "/proc/sys/kernel/watchdog_cpumask", "/proc/sys/kernel/watchdog_thresh"])
    };
    let on = |path| machine.number::<u32>(path).is_some_and(|value| value != 0);
    let each = machine.number::<u64>("/proc/sys/kernel/watchdog_thresh").filter(|s| *s > 0).unwrap_or(10);
    // kernel/watchdog.c: the timer's period is two fifths of the threshold.
    let soft = format!(
        "a timer and the thread migration/N, above all classes, each {} on each CPU",
        us(each.saturating_mul(400_000))
    );
    if on(NMI) {
        return shown(Finding::new(
            State::Warning,
            format!("the NMI watchdog is on: an interrupt that nothing holds off, about each {each} s of a busy CPU"),
        ))
        .costs(format!(
            "the time of an NMI, microseconds; with the soft watchdog, {soft}; and a counter that profilers miss"
        ))
        .mend("sudo sysctl kernel.nmi_watchdog=0")
        .mend("nmi_watchdog=0 or nosoftlockup nowatchdog (boot parameters)")
        .link(&["https://docs.kernel.org/admin-guide/lockup-watchdogs.html"]);
    }
    if on(SOFT) {
        let mut finding = shown(Finding::new(State::Ok, "the soft watchdog alone"));
        finding.cost = format!("{soft}: some microseconds; sudo sysctl kernel.watchdog=0 ends it");
        return finding;
    }
    match machine.number::<u32>(SOFT) {
        Some(_) => shown(Finding::new(State::Ok, "off")),
        None => Finding::new(State::Absent, "the kernel has none"),
    }
}

/// Options that make every part of the kernel slower, not only the part that they check.
const DEBUGS: &[(&str, &str)] = &[
    ("PROVE_LOCKING", "checks the order of all locks"),
    ("LOCK_STAT", "statistics of all locks"),
    ("DEBUG_LOCK_ALLOC", "checks of held locks"),
    ("DEBUG_ATOMIC_SLEEP", "checks before everything that may sleep"),
    ("DEBUG_PREEMPT", "checks of each use of a CPU's own data"),
    ("DEBUG_OBJECTS", "tracks objects' lives"),
    ("DEBUG_KMEMLEAK", "scans memory, with pauses"),
    ("DEBUG_PAGEALLOC", "unmaps free pages"),
    ("DEBUG_VM", "checks of memory management"),
    ("KASAN", "checks each access to memory"),
    ("KCSAN", "watches accesses for races"),
    ("KMSAN", "checks for uninitialised memory"),
    ("KCOV", "records coverage"),
    ("UBSAN", "checks of undefined behaviour"),
    ("SLUB_DEBUG_ON", "checks of each allocation"),
    ("IRQSOFF_TRACER", "stamps each section without interrupts"),
    ("PREEMPT_TRACER", "stamps each section without preemption"),
];

pub(super) fn debug(machine: Facts<'_>) -> Finding {
    let lockdep = machine.has("/proc/lockdep");
    let leaks = machine.has("/sys/kernel/debug/kmemleak");
    let Some((path, _)) = machine.config_file() else {
        if lockdep || leaks {
            let what = if lockdep { "the checker of locks is on" } else { "the search for leaks is on" };
            return slow(vec![what.to_owned()])
                .seen(if lockdep { "/proc/lockdep" } else { "/sys/kernel/debug/kmemleak" }, "there");
        }
        return Finding::new(
            State::Unknown,
            "the kernel's configuration cannot be read; no checker of locks, at least",
        )
        .mend("a kernel with CONFIG_IKCONFIG_PROC=y, or its configuration in /boot");
    };
    // UBSAN is on in hardened kernels with bounds checks alone, which cost little.
    let on = |option: &str| {
        machine.config(option) == Some("y") && (option != "UBSAN" || machine.config("UBSAN_ALIGNMENT") == Some("y"))
    };
    let found: Vec<&(&str, &str)> = DEBUGS.iter().filter(|(option, _)| on(option)).collect();
    if found.is_empty() {
        return Finding::new(State::Ok, "none is built in").seen(path, "none of the options that slow the kernel");
    }
    let finding = slow(found.iter().map(|(option, _)| format!("CONFIG_{option}")).collect());
    found.iter().fold(finding, |finding, (option, what)| finding.seen(path, format!("CONFIG_{option}=y: {what}")))
}

fn slow(names: Vec<String>) -> Finding {
    // Some options slow a part of the kernel. Options that stamp or check everything slow all of
    // it.
    Finding::new(State::Warning, names.join(", "))
        .costs("every system call, interrupt and switch takes longer; the probe measures with it")
        .mend("a kernel without these options: that of the distribution, not its debug variant")
}

pub(super) fn clock_source(machine: Facts<'_>) -> Finding {
    const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    let Some(current) = machine.line(CURRENT) else {
        return Finding::new(State::Unknown, "the kernel does not tell");
    };
    let finding = Finding::new(State::Ok, format!("{current}: read without a system call"))
        .shown(&machine, &[CURRENT, AVAILABLE]);
    match current {
        "tsc"
        | "kvm-clock"
        | "hyperv_clocksource_tsc_page"
        | "arch_sys_counter"
        | "riscv_clocksource"
        | "timebase"
        | "tod" => finding,
        "hpet" | "acpi_pm" | "jiffies" | "pit" | "refined-jiffies" => Finding {
            state: State::Warning,
            found: format!("{current}: each look at the clock is a system call, and slow"),
            ..finding
        }
        .costs("microseconds per look at the clock, twice a job and more; the probe measures it")
        .mend("find out why the kernel gave up the tsc: sudo dmesg | grep -i -e tsc -e clocksource")
        .mend("tsc=reliable (boot parameter), where the hardware's counter is sound"),
        _ => Finding { state: State::Unknown, found: format!("{current}, which takt does not know"), ..finding },
    }
}

pub(super) fn timer_slack(machine: Facts<'_>) -> Finding {
    const FILE: &str = "/proc/self/timerslack_ns";
    match machine.number::<u64>(FILE) {
        Some(ns) => {
            Finding::new(State::Ok, format!("{} for ordinary threads; real-time ones have none", Span::from_ns(ns)))
                .shown(&machine, &[FILE])
        }
        None => Finding::new(State::Absent, "the kernel does not tell; real-time threads have none"),
    }
}

impl Facts<'_> {
    fn number_of_config(&self, option: &str) -> Option<u64> {
        self.config(option)?.parse().ok().filter(|number| *number > 0)
    }
}
