//! Which threads and interrupts of a recording are told.

use std::collections::BTreeSet;

use crate::event::{Comm, Pid};

/// Which threads and interrupts are told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// These threads, and what they fork.
    pub pids: BTreeSet<Pid>,
    /// Threads of such names; `*` stands for any characters. Without ids and names all threads are
    /// told, or none if interrupts are given.
    pub names: Vec<String>,
    /// Interrupts of such names (`24 eth0`, `eth0`, `24`, `NET_RX`); empty: all.
    pub interrupts: Vec<String>,
}

impl Filter {
    /// Whether all is told.
    pub(super) fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.names.is_empty() && self.interrupts.is_empty()
    }

    /// Whether a filter, which is not empty, names this thread.
    pub(super) fn admits(&self, pid: Pid, comm: &Comm) -> bool {
        self.pids.contains(&pid) || self.names.iter().any(|pattern| matches(pattern.as_bytes(), comm.bytes()))
    }

    /// Whether an interrupt of that name, a number before it or not, is told.
    pub(super) fn admits_interrupt(&self, name: &str) -> bool {
        let (number, rest) = name.split_once(' ').unwrap_or((name, name));
        let names = [name, number, rest];
        self.interrupts.is_empty()
            || self.interrupts.iter().any(|wanted| names.iter().any(|name| matches(wanted.as_bytes(), name.as_bytes())))
    }
}

/// Whether a name is of the form of `pattern`, in which `*` stands for any characters: as filters
/// take names.
#[must_use]
pub fn is_like(pattern: &str, name: &str) -> bool {
    matches(pattern.as_bytes(), name.as_bytes())
}

/// Whether `text` is of the form of `pattern`, in which `*` stands for any characters.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return text.is_empty() };
    if first == b'*' {
        return (0..=text.len()).any(|skip| matches(rest, &text[skip..]));
    }
    text.split_first().is_some_and(|(&head, tail)| head == first && matches(rest, tail))
}
