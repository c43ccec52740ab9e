//! Which scheduling class and which CPUs each thread gets.

use takt_linux::Class;
use takt_model::{CpuSet, TaskId};

use crate::{Margin, levels};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mapping {
    /// Per task of the node, in file order.
    pub(crate) tasks: Vec<MappedTask>,
    /// Scheduling domains that SCHED_DEADLINE needs: disjoint sets of model CPUs. Empty where the whole machine is one.
    pub(crate) domains: Vec<CpuSet>,
    /// Nothing takes the place of these domains: without them nothing runs.
    pub(crate) is_strict: bool,
    /// Sentences for the summary.
    pub(crate) notes: Vec<String>,
}

impl Mapping {
    /// Notes that a priority exceeds the requested one.
    pub(crate) fn note_priority(&mut self, asked: u8) {
        let priority =
            |task: &MappedTask| if let Class::Fifo { priority } = task.class { Some(priority) } else { None };
        let top = self.tasks.iter().filter_map(priority).max().filter(|top| *top > asked);
        self.notes.extend(top.map(|top| levels::note_of_priority(top, asked)));
    }

    /// Notes that no thread has the requested margin.
    pub(crate) fn note_margin(&mut self, margin: Margin) {
        let reserved = self.tasks.iter().any(|task| matches!(task.class, Class::Deadline(_)));
        if margin != Margin::default() && !reserved {
            let note = "--margin has no effect: no task runs under SCHED_DEADLINE";
            self.notes.push(note.to_owned());
        }
    }

    /// This process is bound to `there` CPUs of a larger machine (taskset). SCHED_DEADLINE accepts
    /// such a set only as a domain of its own.
    pub(crate) fn confine(&mut self, there: usize) {
        let in_deadline = self.tasks.iter().any(|task| matches!(task.class, Class::Deadline(_)));
        if in_deadline && self.domains.is_empty() {
            self.domains = vec![CpuSet::first(u32::try_from(there).unwrap_or(u32::MAX))];
            for task in &mut self.tasks {
                task.domain = Some(0);
            }
        }
    }

    /// The machine cannot be divided, so SCHED_DEADLINE threads use all `there` CPUs.
    pub(crate) fn go_global(&mut self, there: usize, why: &str) {
        let wanted: Vec<String> = self.domains.drain(..).map(|domain| list(&domain)).collect();
        let all = CpuSet::first(u32::try_from(there).unwrap_or(u32::MAX));
        self.notes.push(format!(
            "global SCHED_DEADLINE on CPUs {} was used instead of scheduling domains {}: {why}",
            list(&all),
            wanted.join(" | ")
        ));
        for task in &mut self.tasks {
            task.domain = None;
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MappedTask {
    pub(crate) id: TaskId,
    pub(crate) class: Class,
    /// Model CPUs that it may use.
    pub(crate) cpus: CpuSet,
    /// Index into [`Mapping::domains`].
    pub(crate) domain: Option<usize>,
    /// Whether other tasks share its SCHED_FIFO priority. Then it yields between the jobs of a
    /// backlog.
    pub(crate) yields: bool,
}

/// `0-2,5`.
pub(crate) fn list(cpus: &CpuSet) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus.iter() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}
