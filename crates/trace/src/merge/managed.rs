//! Merges the log of budget managers with the kernel's events.
//!
//! The managers say which job has a CPU, by their decisions. The kernel says when the CPU went to a
//! thread that is not the run's, and when the job's thread slept.
//!
//! | event | when |
//! |---|---|
//! | all events of the managers | as they wrote them, but for a preemption of a job that has lost its CPU before |
//! | preempt, block | the CPU went from the run to another thread or to nobody, while a job had it by the managers. Block if the job's thread slept, or if the kernel stopped it |
//! | wake | the sleeping thread was woken, or got the CPU; or a manager took the CPU from its job meanwhile |
//! | resume | the job's thread got the CPU back |
//! | occupy | the CPU went to a thread of another program or to nobody; or to a manager while no job had it |
//! | gap | a job completed or was preempted though the kernel had not given its CPU back |
//!
//! A manager's own time within a job is the job's: it has the CPU for some microseconds a decision.

use std::collections::{BTreeMap, VecDeque};

use takt_log::{Definition, Event, JobKey, Sink};
use takt_model::{TaskId, Time};

use super::machine::Merged;
use super::other_threads::{Line, OtherThreads};
use super::run_event::{RunEvent, RunEventKind as Kind, RunEventSink, SwitchOutReason, enqueue};

/// Merges both accounts into one stream of a log. Takes the managers' account as a [`Sink`], and
/// the kernel's as a [`RunEventSink`].
pub struct ManagedMerge {
    stream: u32,
    /// By thread of the run: the tasks whose jobs it carries out. A manager has none, or the table
    /// tasks of a node with flows.
    threads: Vec<Vec<TaskId>>,
    /// By thread: how it left its CPU last.
    left: Vec<Leave>,
    cpus: BTreeMap<u32, Cpu>,
    /// Not yet processed, in the order of time.
    manager_lines: VecDeque<(Time, Line)>,
    seen: VecDeque<RunEvent>,
    /// All lines of the managers before this have come.
    manager_lines_until: Time,
    /// All that lies before this has been processed.
    settled: Time,
    last: Time,
    open_losses: u32,
    missing: u64,
    switches: u64,
    other_threads: OtherThreads,
}

#[derive(Clone, Copy, Default)]
struct Cpu {
    job: Option<JobKey>,
    /// How that job lost the CPU, by the log. `None` if it has the CPU.
    lost: Option<Leave>,
    /// By the log, a thread of takt without a job has the CPU.
    has_takt_thread: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Leave {
    #[default]
    Ready,
    Asleep,
    Stopped,
}

impl ManagedMerge {
    /// For a run's threads, in their order, each with the tasks whose jobs it carries out.
    #[must_use]
    pub fn new(stream: u32, threads: impl IntoIterator<Item = Vec<TaskId>>) -> ManagedMerge {
        let threads: Vec<Vec<TaskId>> = threads.into_iter().collect();
        ManagedMerge {
            stream,
            left: vec![Leave::Ready; threads.len()],
            threads,
            cpus: BTreeMap::new(),
            manager_lines: VecDeque::new(),
            seen: VecDeque::new(),
            manager_lines_until: Time::ZERO,
            settled: Time::ZERO,
            last: Time::ZERO,
            open_losses: 0,
            missing: 0,
            switches: 0,
            other_threads: OtherThreads::new(stream),
        }
    }

    /// All lines of the managers before `until` have come.
    pub fn until(&mut self, until: Time) {
        self.manager_lines_until = until;
    }

    /// The kernel's events before `seen_until` have all come. Writes what lies before both bounds.
    /// The log has none of the kernel's events after `end`.
    pub fn advance(&mut self, seen_until: Time, end: Time, sink: &mut (impl Sink + ?Sized)) {
        let settled = self.manager_lines_until.min(seen_until).max(self.settled);
        loop {
            // At one instant: jobs lose their CPUs, then the kernel switches, then jobs get CPUs.
            let line = self.manager_lines.front().map(|(at, line)| (*at, if takes_a_cpu(line) { 2 } else { 0 }));
            let seen = self.seen.front().map(|seen| (seen.at, 1));
            let next = line.into_iter().chain(seen).min();
            let Some(next) = next.filter(|(at, _)| *at < settled || settled == Time::MAX) else { break };
            if Some(next) == seen {
                if let Some(seen) = self.seen.pop_front().filter(|seen| seen.at <= end) {
                    self.process_kernel_event(seen, sink);
                }
            } else if let Some((at, line)) = self.manager_lines.pop_front() {
                self.process_manager_line(at, &line, sink);
            }
        }
        self.settled = settled;
    }

    /// Both accounts are whole: writes the rest.
    pub fn finish(mut self, end: Time, sink: &mut (impl Sink + ?Sized)) -> Merged {
        self.manager_lines_until = Time::MAX;
        self.advance(Time::MAX, end, sink);
        Merged { last: self.last, stamped: Vec::new(), missing: self.missing, switches: self.switches }
    }

    fn write(&mut self, at: Time, event: Event, sink: &mut (impl Sink + ?Sized)) {
        self.last = self.last.max(at);
        sink.event(self.stream, self.last, &event);
    }

    fn write_all(&mut self, at: Time, lines: &[Line], sink: &mut (impl Sink + ?Sized)) {
        self.last = self.last.max(at);
        lines.iter().for_each(|line| line.write_to(self.stream, self.last, sink));
    }

    /// A line of the managers.
    fn process_manager_line(&mut self, at: Time, line: &Line, sink: &mut (impl Sink + ?Sized)) {
        let Line::Event(event) = line else { return self.write_all(at, std::slice::from_ref(line), sink) };
        match *event {
            Event::Start { job, cpu } | Event::Resume { job, cpu } => {
                self.cpus.insert(cpu, Cpu { job: Some(job), ..Cpu::default() });
            }
            Event::Preempt { job, cpu } | Event::Complete { job, cpu } => {
                let here = self.cpus.entry(cpu).or_default();
                let lost = here.job.take_if(|of| *of == job).and(here.lost.take());
                match lost {
                    None => {}
                    Some(_) if matches!(event, Event::Complete { .. }) => {
                        self.missing += u64::from(self.open_losses == 0);
                        self.write(at, Event::Gap { job }, sink);
                    }
                    Some(Leave::Asleep) => return self.write(at, Event::Wake { job }, sink),
                    Some(Leave::Ready | Leave::Stopped) => return,
                }
            }
            Event::Cancel { job, .. } => {
                for here in self.cpus.values_mut().filter(|here| here.job == Some(job)) {
                    (here.job, here.lost) = (None, None);
                }
            }
            _ => {}
        }
        self.write(at, *event, sink);
    }

    fn process_kernel_event(&mut self, seen: RunEvent, sink: &mut (impl Sink + ?Sized)) {
        let at = seen.at;
        match seen.what {
            Kind::OtherIn { cpu, thread } => {
                let here = self.cpus.entry(cpu).or_default();
                here.has_takt_thread = false;
                if let (Some(job), None) = (here.job, here.lost) {
                    let lane = self.threads.iter().position(|tasks| tasks.contains(&job.task));
                    let left = lane.and_then(|lane| self.left.get(lane)).copied().unwrap_or_default();
                    here.lost = Some(left);
                    let preempted = left == Leave::Ready;
                    let event = if preempted { Event::Preempt { job, cpu } } else { Event::Block { job, cpu } };
                    self.write(at, event, sink);
                }
                let lines = self.other_threads.switched_in(cpu, &thread);
                self.write_all(at, &lines, sink);
            }
            Kind::OtherOut { cpu, thread } => {
                let lines = self.other_threads.switched_out(cpu, &thread);
                self.write_all(at, &lines, sink);
            }
            Kind::Interrupt { cpu, kind, number, name, begins } => {
                let lines = self.other_threads.interrupt(cpu, kind, number, &name, begins);
                self.write_all(at, &lines, sink);
            }
            Kind::Stolen { cpu, span, within } => self.write(at, Event::Steal { cpu, span, within }, sink),
            Kind::LossBegins { count } => {
                self.open_losses += 1;
                self.write(at, Event::Lost { count }, sink);
                self.other_threads.forget();
                let jobs: Vec<JobKey> = self.cpus.values().filter_map(|here| here.job).collect();
                self.left.fill(Leave::Ready);
                self.cpus.values_mut().for_each(|here| (here.lost, here.has_takt_thread) = (None, false));
                jobs.into_iter().for_each(|job| self.write(at, Event::Gap { job }, sink));
            }
            Kind::LossEnds => self.open_losses = self.open_losses.saturating_sub(1),
            Kind::Woken { lane } => {
                self.leave(lane, Leave::Ready);
                let tasks = self.threads.get(lane).map_or(&[][..], Vec::as_slice);
                let is_its = |here: &&mut Cpu| here.job.is_some_and(|job| tasks.contains(&job.task));
                let Some(here) = self.cpus.values_mut().find(is_its) else { return };
                if let Some(job) = here.job.filter(|_| here.lost == Some(Leave::Asleep)) {
                    here.lost = Some(Leave::Ready);
                    self.write(at, Event::Wake { job }, sink);
                }
            }
            Kind::SwitchIn { lane, cpu } => self.switch_in(at, lane, cpu, sink),
            Kind::SwitchOut { lane, why, .. } => self.leave(
                lane,
                match why {
                    SwitchOutReason::Taken | SwitchOutReason::Ended => Leave::Ready,
                    SwitchOutReason::Asleep | SwitchOutReason::Held => Leave::Asleep,
                    SwitchOutReason::Stopped => Leave::Stopped,
                },
            ),
        }
    }

    fn leave(&mut self, lane: usize, how: Leave) {
        if let Some(left) = self.left.get_mut(lane) {
            *left = how;
        }
    }

    fn switch_in(&mut self, at: Time, lane: usize, cpu: u32, sink: &mut (impl Sink + ?Sized)) {
        self.switches += 1;
        self.leave(lane, Leave::Ready);
        let here = self.cpus.entry(cpu).or_default();
        if let Some(job) = here.job.filter(|job| works_for(&self.threads, lane, *job)) {
            here.has_takt_thread = false;
            let Some(lost) = here.lost.take() else { return };
            if lost == Leave::Asleep {
                self.write(at, Event::Wake { job }, sink);
            }
            self.write(at, Event::Resume { job, cpu }, sink);
        } else if (here.job.is_none() || here.lost.is_some()) && !std::mem::replace(&mut here.has_takt_thread, true) {
            let lines = self.other_threads.takt_switched_in(cpu);
            self.write_all(at, &lines, sink);
        }
    }
}

fn works_for(threads: &[Vec<TaskId>], lane: usize, job: JobKey) -> bool {
    threads.get(lane).is_some_and(|tasks| tasks.contains(&job.task))
}

fn takes_a_cpu(line: &Line) -> bool {
    matches!(line, Line::Event(Event::Start { .. } | Event::Resume { .. } | Event::Release { .. }))
}

impl RunEventSink for ManagedMerge {
    fn run_event(&mut self, event: RunEvent) {
        enqueue(&mut self.seen, self.settled, event);
    }
}

impl Sink for ManagedMerge {
    fn event(&mut self, _stream: u32, now: Time, event: &Event) {
        self.manager_lines.push_back((now.max(self.settled), Line::Event(*event)));
    }

    fn define(&mut self, _stream: u32, now: Time, definition: &Definition) {
        self.manager_lines.push_back((now.max(self.settled), Line::Define(Box::new(definition.clone()))));
    }
}

#[cfg(test)]
#[path = "managed_tests.rs"]
mod tests;
