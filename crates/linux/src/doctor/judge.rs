//! The judgements of a machine's texts.

mod features;
mod kernel;
mod limits;
mod memory;
mod probed;
mod processor;

pub use probed::{PROBED, measured};

use super::facts::Facts;
use super::{Finding, Snapshot};

/// A judgement made of every machine.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Its subject.
    pub about: &'static str,
    judge: fn(Facts<'_>) -> Finding,
}

const fn entry(name: &'static str, about: &'static str, judge: fn(Facts<'_>) -> Finding) -> Entry {
    Entry { name, about, judge }
}

/// All judgements, in the order of the report.
pub const CATALOGUE: &[Entry] = &[
    entry("scheduling-privilege", "may threads have real-time classes?", limits::scheduling_privilege),
    entry("rt-group", "the real-time budget of the CPU cgroup", limits::rt_group),
    entry("rt-throttling", "the limit of all real-time threads", limits::throttling),
    entry("fair-server", "the time kept for ordinary threads", limits::fair_server),
    entry("deadline-bandwidth", "the reservations under SCHED_DEADLINE", limits::deadline_bandwidth),
    entry("real-time-threads", "other threads under SCHED_FIFO and SCHED_RR", limits::real_time_threads),
    entry("preemption", "how soon the kernel lets a thread preempt", kernel::preemption),
    entry("tick", "the kernel's periodic interrupt", kernel::tick),
    entry("hrtick", "how exactly SCHED_DEADLINE budgets are enforced", kernel::hrtick),
    entry("isolation", "CPUs kept free of ordinary threads", kernel::isolation),
    entry("watchdogs", "the kernel's own supervision", kernel::watchdogs),
    entry("kernel-debug", "checks in the kernel that slow it", kernel::debug),
    entry("clock-source", "the cost of reading the clock", kernel::clock_source),
    entry("timer-slack", "how late ordinary threads' timers may be", kernel::timer_slack),
    entry("frequency", "clock rates of the CPUs", processor::frequency),
    entry("turbo", "clock rates above the nominal rate", processor::turbo),
    entry("idle-states", "how long a sleeping CPU takes to wake up", processor::idle_states),
    entry("smt", "threads that share a core", processor::smt),
    entry("interrupts", "where devices interrupt", processor::interrupts),
    entry("virtualization", "whether there is a hypervisor below", processor::virtualization),
    entry("steal", "CPU time that a hypervisor took", processor::steal),
    entry("memory-lock", "may memory be locked?", memory::lock),
    entry("swap", "memory that may be written out", memory::swap),
    entry("huge-pages", "pages that the kernel joins to huge ones", memory::huge_pages),
    entry("numa-balancing", "pages that the kernel moves between nodes", memory::numa_balancing),
    entry("tracing", "recording what the kernel does", features::tracing),
    entry("btf", "types of the kernel, for BPF programs", features::btf),
    entry("sched-ext", "schedulers as BPF programs", features::sched_ext),
    entry("cpusets", "dividing the machine into scheduling domains", features::cpusets),
    entry("traffic-control", "shares of a link's rate", features::traffic_control),
    entry("network-namespaces", "separate networks on one machine", features::network_namespaces),
];

/// All judgements of a machine, in the catalogue's order.
#[must_use]
pub fn findings(machine: &Snapshot) -> Vec<Finding> {
    CATALOGUE.iter().map(|entry| Finding { name: entry.name, ..(entry.judge)(Facts(machine)) }).collect()
}

/// The default SCHED_FIFO priority of the most important level in `takt run`.
const RUN_PRIORITY: u32 = 48;

/// A duration in microseconds with the largest unit that shows it whole.
fn us(us: u64) -> String {
    takt_model::Span::from_ns(us.saturating_mul(1_000)).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_machine_that_tells_nothing_is_judged_all_the_same() {
        let all = findings(&Snapshot::default());
        assert_eq!(all.len(), CATALOGUE.len());
        for finding in &all {
            assert!(!finding.found.is_empty(), "{}", finding.name);
            assert!(!matches!(finding.state, State::Problem), "{}: nothing was read", finding.name);
        }
    }

    const MACHINES: [&str; 4] = ["laptop", "server", "controller", "container"];

    fn text_of(machine: &str) -> String {
        std::fs::read_to_string(format!("{}/../../examples/machines/{machine}.txt", env!("CARGO_MANIFEST_DIR")))
            .unwrap()
    }

    /// Numbers in a snapshot may be values that no kernel reports, so nothing may overflow.
    #[test]
    fn any_number_in_any_place_is_judged() {
        let extremes = [0, 1, 9_999_999, u64::from(u32::MAX), 1 << 58, u64::MAX];
        for (text, extreme) in MACHINES.iter().flat_map(|machine| extremes.map(|extreme| (text_of(machine), extreme))) {
            let (mut one, mut at) = (text.clone(), text.find('\n').unwrap());
            let mut all = text[..at].to_owned();
            while let Some(from) = text[at..].find(|c: char| c.is_ascii_digit()).map(|digit| at + digit) {
                let to = text[from..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |end| from + end);
                one.replace_range(.., &format!("{}{extreme}{}", &text[..from], &text[to..]));
                let _ = findings(&Snapshot::parse(&one).unwrap());
                all.push_str(&format!("{}{extreme}", &text[at..from]));
                at = to;
            }
            all.push_str(&text[at..]);
            let _ = findings(&Snapshot::parse(&all).unwrap());
        }
    }

    #[test]
    fn every_bad_finding_has_a_cost_and_a_remedy() {
        for machine in MACHINES {
            for finding in findings(&Snapshot::parse(&text_of(machine)).unwrap()) {
                let name = finding.name;
                if matches!(finding.state, State::Problem | State::Warning) {
                    assert!(!finding.cost.is_empty() && !finding.mend.is_empty(), "{name}");
                    assert!(!finding.evidence.is_empty(), "{name}");
                }
                assert!(!finding.found.ends_with('.') && !finding.found.contains('\n'), "{name}");
            }
        }
    }
}
