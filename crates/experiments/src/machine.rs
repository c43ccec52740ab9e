//! Properties of this machine that influence the outcome of an experiment.

use std::fs;

use takt_linux::machine::Machine;
use takt_log::stats::Summary;
use takt_model::Span;

/// The load of the machine before the experiment began: the mean number of tasks that ran or wanted
/// to run over a minute, such as "1.52".
pub(super) fn load_average() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next().map(str::to_owned)
}

/// How well the kernel enforced budgets of `budget`. `run_lengths` are the uninterrupted runs of a
/// greedy task in such a reservation.
pub(super) fn enforcement(machine: &Machine, budget: Span, run_lengths: &Summary<u64>) -> String {
    let switch = match takt_linux::machine::ends_budgets_by_timer() {
        Some(true) => "HRTICK_DL is on in the scheduler's features",
        Some(false) => "HRTICK_DL is off in the scheduler's features",
        None => "this user cannot read whether HRTICK_DL is on; by default it is off",
    };
    let tick = machine.tick.map_or(String::new(), |tick| format!(" of {tick}"));
    let ran = |ns: u64| Span::from_ns(ns).four_digits();
    let seen = format!(
        "with a budget of {budget} a greedy task ran without a pause for {} (median) and {} (most)",
        ran(run_lengths.p50),
        ran(run_lengths.max)
    );
    let paid = "What was overrun is paid back in the periods that follow, so that shares are right over long \
         intervals";
    if run_lengths.p50 > budget.as_ns() * 3 / 2 {
        format!(
            "Budgets are not kept exactly here: {seen} ({switch}). A kernel without a timer for each budget \
             looks at its ticks{tick}, and whenever another thread wakes up. {paid}, and not within short ones."
        )
    } else if run_lengths.max > budget.as_ns() * 3 / 2 {
        format!("As a rule budgets are kept here: {seen}. {paid}.")
    } else {
        format!("Budgets are kept here: {seen}.")
    }
}

/// The reason to emulate a device's driver, and the conditions for a real one.
pub(super) fn driver_difference(machine: &Machine) -> String {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let threaded =
        machine.preemption.as_deref() == Some("rt") || line.split_ascii_whitespace().any(|word| word == "threadirqs");
    let emulated = "The driver is emulated: a thread of takt's own in place of the disk's interrupt thread";
    if threaded {
        format!(
            "{emulated}. This kernel has interrupt threads (ps -e lists them as irq/NUMBER-NAME): \"takt \
             reserve --pid\" puts the disk's into a reservation, and hdparm or cat then measure as in the paper."
        )
    } else {
        format!(
            "{emulated}, because this kernel serves disks and networks outside of any thread. It would take \
             PREEMPT_RT, or threadirqs on the kernel's command line, to put the real one into a reservation."
        )
    }
}

pub(super) fn describe(machine: &Machine, load: Option<&str>) -> String {
    let preemption = machine.preemption.as_deref().map_or(String::new(), |model| format!(", preemption {model}"));
    let tick = machine.tick.map_or(String::new(), |tick| format!(", ticks of {tick}"));
    let load = load.map_or(String::new(), |load| format!("; the load average was {load} when it began"));
    format!("Linux {}, {} CPUs{preemption}{tick}{load}.", machine.kernel, machine.cpus_online.len())
}
