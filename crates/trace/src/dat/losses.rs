//! Losses during the recording, by the account of a trace.dat.

use std::collections::BTreeMap;

/// A number of events that were lost while the trace was recorded, by its own account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Their CPU, if the trace says so.
    pub cpu: Option<u32>,
    /// How many: overwritten by later ones or dropped, in a full buffer.
    pub events: u64,
}

/// The kernel's counters at the end of the recording: texts of `per_cpu/cpuN/stats`, each behind a
/// line `CPU: N`, those of an instance behind a line `Buffer: NAME`.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// The instance whose CPUs are told now; empty: the first one.
    instance: String,
    told: Vec<(String, u32, u64)>,
}

impl Losses {
    pub(super) fn add(&mut self, text: &[u8]) {
        let mut cpu = None;
        for line in String::from_utf8_lossy(text).trim_end_matches('\0').lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            match (key.trim(), value.trim()) {
                ("Buffer", name) => (self.instance, cpu) = (name.to_owned(), None),
                ("CPU", number) => cpu = number.parse().ok(),
                ("overrun" | "commit overrun" | "dropped events", count) => {
                    if let (Some(cpu), Ok(count @ 1..)) = (cpu, count.parse()) {
                        self.told.push((self.instance.clone(), cpu, count));
                    }
                }
                _ => {}
            }
        }
    }

    /// Those of an instance, by CPU.
    pub(crate) fn of(&self, instance: &str) -> Vec<Loss> {
        let mut by_cpu = BTreeMap::<u32, u64>::new();
        for (_, cpu, count) in self.told.iter().filter(|(name, ..)| name == instance) {
            let events = by_cpu.entry(*cpu).or_default();
            *events = events.saturating_add(*count);
        }
        by_cpu.into_iter().map(|(cpu, events)| Loss { cpu: Some(cpu), events }).collect()
    }
}
