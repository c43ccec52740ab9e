//! The disturbances of jobs that have no CPU of their own.

use takt_model::Time;

use super::found::{Cause, Sum};
use super::{Causes, State};
use crate::event::JobKey;

impl Causes {
    /// The disturbances of a job on the CPUs that it waited for and had.
    pub(super) fn in_own_time(&mut self, job: JobKey, now: Time) -> Sum {
        let mut sum = Sum::default();
        let Some(pending) = self.pending.get(&job) else { return sum };
        // The time before its message was taken is not its own.
        let arrival = if pending.message_delay.is_some() { pending.begins } else { pending.arrival };
        let stream = pending.stream;
        let last = (pending.since < now).then_some((pending.since, now, pending.state));
        let parts: Vec<(Time, Time, State)> = pending.parts.iter().copied().chain(last).collect();
        // A job without a CPU waits for its last one.
        let had = parts.iter().rev().find_map(|(_, _, state)| match state {
            State::Runs(cpu) | State::Waits(Some(cpu)) | State::OffCpu(cpu) => Some(*cpu),
            _ => None,
        });
        let first = || self.cpus.keys().find(|(of, _)| *of == stream).map(|(_, cpu)| *cpu);
        let had = had.or_else(|| first().filter(|_| self.rules.has_tasks()));
        if let Some(State::Runs(cpu)) = parts.last().map(|(_, _, state)| *state) {
            self.account_turn(stream, now, cpu);
        }
        let told_from = parts.first().map_or(now, |(from, _, _)| *from);
        sum.add(Cause::Unknown, told_from.saturating_since(arrival));
        let (has_tasks, inherited) = (self.rules.has_tasks(), self.last_causes.get(&job.task).copied());
        for (from, to, state) in parts {
            let (from, to) = (from.max(arrival), to.max(arrival));
            let span = to.saturating_since(from);
            let cpu = match state {
                State::Throttled | State::NoBudget | State::OffCpu(_) => {
                    sum.add(Cause::Throttled, span);
                    continue;
                }
                State::Blocked => {
                    sum.add(Cause::Blocked, span);
                    continue;
                }
                State::Waits(cpu) => cpu.or(had),
                State::Runs(cpu) => Some(cpu),
            };
            let Some(here) = cpu.and_then(|cpu| self.cpus.get(&(stream, cpu))) else {
                sum.add(Cause::Unknown, span);
                continue;
            };
            here.timeline.own_time(job, (from, to), has_tasks, inherited, &mut sum);
        }
        sum
    }
}
