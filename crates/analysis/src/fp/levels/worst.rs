//! The window in which a task responds last: what [`Analysis::responses`] bounds, taken apart.

use super::{Analysis, Keys, Level, Levels, Order};
use crate::window::{AnalysedTask, Slot, Worst as Found};

/// The window behind a bound; times in ns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Worst {
    /// The number of the job, from 1 on, among its task's in the window.
    pub job: u64,
    /// From the window's start to the job's completion, at most.
    pub window: u64,
    /// Less important work that is in the way: blocking, or a job that has started.
    pub blocking: u64,
    /// Per task of the set: how many of its jobs the CPU does first or is doing, the analysed one's own included.
    pub jobs: Vec<u64>,
    /// The same for each overhead.
    pub overheads: Vec<u64>,
}

impl Analysis {
    /// The window in which `set.tasks[i]` responds last; `None` where it has no bound.
    pub fn worst(&mut self, set: &Levels, i: usize) -> Option<Worst> {
        let this = set.tasks.get(i)?;
        let mut tasks: Vec<u32> =
            (0..set.tasks.len() as u32).filter(|k| set.tasks[*k as usize].level == this.level).collect();
        tasks.sort_unstable_by_key(|k| u64::MAX - set.tasks[*k as usize].d);
        let keys = Keys::new(set, &tasks)?;
        match keys.level {
            Level { order: Order::Fifo | Order::Any, .. } => self.worst_by_release(set, i, &tasks, &keys),
            Level { preemptive: true, .. } => {
                self.prepare(set, Some(i), &tasks, &keys, false)?;
                let own = keys.own(this)?;
                self.window.response(own, &mut self.terms_left)?;
                Some(self.count_jobs(set, i, &keys, false))
            }
            Level { preemptive: false, .. } => {
                let any = Keys { level: Level { order: Order::Any, preemptive: true }, base: 1 };
                let any_bound = self.by_release(set, i, &tasks, &any);
                self.prepare(set, Some(i), &tasks, &keys, false)?;
                let own = keys.own(this)?;
                let bound = self.window.response_once_started(own, &mut self.terms_left);
                match (any_bound, bound) {
                    (Some(any_bound), bound) if bound.is_none_or(|bound| any_bound.from_arrival < bound) => {
                        self.worst_by_release(set, i, &tasks, &any)
                    }
                    (_, Some(_)) => Some(self.count_jobs(set, i, &keys, false)),
                    _ => None,
                }
            }
        }
    }

    fn worst_by_release(&mut self, set: &Levels, i: usize, tasks: &[u32], keys: &Keys) -> Option<Worst> {
        let this = &set.tasks[i];
        let release_delay = this.release_delay.checked_add(this.j)?;
        self.prepare(set, Some(i), tasks, keys, false)?;
        let own = AnalysedTask { c: this.c, first: 1, theta: 1, reach: release_delay.checked_add(1)? };
        let from_source = self.window.response(own, &mut self.terms_left)?.checked_add(release_delay)?;
        if this.release_delay > 0 {
            self.prepare(set, Some(i), tasks, keys, true)?;
            let own = AnalysedTask { reach: 1, ..own };
            if self.window.response(own, &mut self.terms_left)?.checked_add(this.j)? < from_source {
                return Some(self.count_jobs(set, i, keys, true));
            }
            self.prepare(set, Some(i), tasks, keys, false)?;
            self.window.response(own, &mut self.terms_left)?;
        }
        Some(self.count_jobs(set, i, keys, false))
    }

    /// Counts the jobs in the window that was found last.
    fn count_jobs(&self, set: &Levels, i: usize, keys: &Keys, bunched: bool) -> Worst {
        let Found { x, until, end } = self.window.worst();
        let level = set.tasks[i].level;
        let count = |slot: &Slot| {
            let t = if slot.first == 0 { end } else { until };
            if slot.first > x || t == 0 {
                return 0;
            }
            (t - 1 + slot.release_delay).min((x - slot.first).saturating_add(slot.burst)) / slot.period.divisor + 1
        };
        let jobs: Vec<u64> = (set.tasks.iter().enumerate())
            .map(|(k, task)| {
                let slot = keys.slot(task, level, k == i, bunched).filter(|_| task.level <= level);
                slot.map_or(0, |slot| count(&slot))
            })
            .collect();
        let overheads = set.overheads.iter().map(|overhead| {
            if overhead.level > level { 0 } else { (end.saturating_sub(1) + overhead.release_delay) / overhead.t + 1 }
        });
        let (blocking, overheads) = (self.window.blocking_by_larger_keys(x), overheads.collect());
        Worst { job: jobs[i].max(1), window: end, blocking, overheads, jobs }
    }
}
