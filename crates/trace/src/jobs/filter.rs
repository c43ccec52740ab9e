//! Selects the threads and interrupts of a recording that its log has.

use std::collections::BTreeSet;

use crate::event::{Comm, Pid};

/// The threads and interrupts that the log has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// These threads, and what they fork.
    pub pids: BTreeSet<Pid>,
    /// Threads of such names; `*` stands for any characters. Without ids and names the log has all
    /// threads, or none if interrupts are given.
    pub names: Vec<String>,
    /// Interrupts of such names (`24 eth0`, `eth0`, `24`, `NET_RX`). Empty: all interrupts.
    pub interrupts: Vec<String>,
}

impl Filter {
    /// Whether the log has everything.
    pub(super) fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.names.is_empty() && self.interrupts.is_empty()
    }

    /// Whether the filter names this thread. The filter is not empty.
    pub(super) fn admits(&self, pid: Pid, comm: &Comm) -> bool {
        self.pids.contains(&pid) || self.names.iter().any(|pattern| matches(pattern.as_bytes(), comm.bytes()))
    }

    /// Whether the filter has this interrupt. Its name may begin with its number.
    pub(super) fn admits_interrupt(&self, name: &str) -> bool {
        let (number, rest) = name.split_once(' ').unwrap_or((name, name));
        let names = [name, number, rest];
        self.interrupts.is_empty()
            || self.interrupts.iter().any(|pattern| names.iter().any(|name| is_like(pattern, name)))
    }
}

/// Whether a filter's `pattern` matches a name.
#[must_use]
pub fn is_like(pattern: &str, name: &str) -> bool {
    matches(pattern.as_bytes(), name.as_bytes())
}

/// Whether `pattern` matches all of `text`. `*` stands for any characters.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return text.is_empty() };
    if first == b'*' {
        return (0..=text.len()).any(|skip| matches(rest, &text[skip..]));
    }
    text.split_first().is_some_and(|(&head, tail)| head == first && matches(rest, tail))
}
