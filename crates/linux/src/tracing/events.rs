//! The events to record.

use super::error::RecorderError;

/// An event to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its subsystem: `sched`.
    pub system: String,
    /// Its name: `sched_switch`.
    pub name: String,
    /// Records only events that pass this filter (Documentation/trace/events.rst).
    pub filter: Option<String>,
    /// An essential event: without it there is no recording.
    pub essential: bool,
}

impl Event {
    /// An event that is recorded if the kernel has it.
    #[must_use]
    pub fn new(system: &str, name: &str) -> Event {
        Event { system: system.to_owned(), name: name.to_owned(), filter: None, essential: false }
    }

    /// Records only the events that pass `filter`.
    #[must_use]
    pub fn only(self, filter: &str) -> Event {
        Event { filter: Some(filter.to_owned()), ..self }
    }

    /// All events from which jobs are rebuilt: scheduling, threads, interrupts, softirqs, the
    /// timers of sleeps, and the system calls with these numbers. `takt_trace::Abi::calls` gives
    /// the calls in which a thread waits for time or for others.
    #[must_use]
    pub fn usual(calls: &[i64]) -> Vec<Event> {
        let mut events = Self::scheduling();
        events.extend(Self::interrupts());
        events.push(Event::new("timer", "hrtimer_start"));
        let calls = one_of("id", calls);
        events.extend(["sys_enter", "sys_exit"].map(|name| Event::new("raw_syscalls", name).only(&calls)));
        events
    }

    /// Events of switches, wake-ups, and starts and ends of threads.
    #[must_use]
    pub fn scheduling() -> Vec<Event> {
        let names = [
            "sched_switch",
            "sched_waking",
            "sched_wakeup_new",
            "sched_process_fork",
            "sched_process_exit",
            "sched_process_exec",
        ];
        let mut events: Vec<Event> = names.iter().map(|name| Event::new("sched", name)).collect();
        events.push(Event::new("task", "task_rename"));
        for event in &mut events {
            event.essential = matches!(event.name.as_str(), "sched_switch" | "sched_waking");
        }
        events
    }

    /// Interrupts and softirqs.
    #[must_use]
    pub fn interrupts() -> Vec<Event> {
        ["irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit"]
            .iter()
            .map(|name| Event::new("irq", name))
            .collect()
    }

    /// `system/name`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.system, self.name)
    }

    /// Names become parts of a path, so they hold only letters, digits and `_-`.
    pub(crate) fn check(&self) -> Result<(), RecorderError> {
        let sound =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if sound(&self.system) && sound(&self.name) {
            return Ok(());
        }
        Err(RecorderError::EventMissing { event: self.path() })
    }
}

/// A filter that passes events with one of these numbers in `field`: `id` of `sys_enter`, `irq` of
/// `irq_handler_entry`.
///
/// The kernel evaluates the filter at each such event of each thread, term by term. So the filter
/// is a binary search. Thirty terms in a row would cost some 75 ns more at each system call.
#[must_use]
pub fn one_of(field: &str, numbers: &[i64]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    let mut filter = String::new();
    halve(field, &numbers, &mut filter);
    filter
}

fn halve(field: &str, numbers: &[i64], filter: &mut String) {
    match numbers {
        [] => {}
        [one] => filter.push_str(&format!("{field} == {one}")),
        [one, other] => filter.push_str(&format!("{field} == {one} || {field} == {other}")),
        _ => {
            let (below, from) = numbers.split_at(numbers.len() / 2);
            let middle = from.first().copied().unwrap_or_default();
            filter.push_str(&format!("({field} < {middle} && ("));
            halve(field, below, filter);
            filter.push_str(&format!(")) || ({field} >= {middle} && ("));
            halve(field, from, filter);
            filter.push_str("))");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        assert!(Event::new("sched", "sched_switch").check().is_ok());
        for (system, name) in [("..", "x"), ("sched", "../../x"), ("", "x"), ("sched", "")] {
            assert!(Event::new(system, name).check().is_err(), "{system}/{name}");
        }
    }

    #[test]
    fn calls_are_told_by_number() {
        let calls = takt_trace::Abi::NATIVE.calls();
        let usual = Event::usual(&calls);
        let filter =
            usual.iter().find(|event| event.name == "sys_exit").and_then(|event| event.filter.clone()).unwrap();
        assert!(filter.contains(&format!("id == {}", libc::SYS_clock_nanosleep)), "{filter}");
        assert!(filter.len() < 4096, "the kernel takes no more than a page");
        let five = one_of("id", &[9, 1, 3, 5, 7, 3]);
        assert_eq!(
            five,
            "(id < 5 && (id == 1 || id == 3)) || (id >= 5 && ((id < 7 && (id == 5)) || (id >= 7 && (id == 7 || \
             id == 9))))"
        );
    }
}
