//! Definitions of threads, chains and interrupts, which precede their first event in the log.

use takt_log::{ChainDef, Definition, InterruptDef, InterruptKind, Sink, TaskDef, ThreadClass};
use takt_model::TaskId;

use super::thread::{JobState, PRIO_UNKNOWN, Thread};
use super::{NODE, Rebuilder, ReservationParams, STREAM, TASKS_MAX, TASKS_OWN};
use crate::event::Comm;
use crate::merge::interrupt_name;

impl Rebuilder {
    /// The thread's task. A new task is defined. `None` if the log does not have the thread.
    #[inline]
    pub(super) fn task(&mut self, slot: usize, sink: &mut impl Sink) -> Option<TaskId> {
        let thread = self.threads.at(slot);
        match thread.task {
            Some(task) => Some(task),
            None if thread.ignored => None,
            None => self.define_task(slot, sink),
        }
    }

    #[cold]
    fn define_task(&mut self, slot: usize, sink: &mut impl Sink) -> Option<TaskId> {
        let (pid, comm) = (self.threads.at(slot).pid, self.threads.at(slot).comm);
        let admitted = self.all || self.options.filter.admits(pid, &comm);
        let tasks = self.tasks as usize;
        let left = match tasks {
            _ if !admitted => None,
            ..TASKS_OWN => None,
            TASKS_OWN..TASKS_MAX => self.threads.take_orphan(&comm),
            _ => self.threads.take_orphan(&comm).or_else(|| self.threads.take_any_orphan()),
        };
        let thread = self.threads.at(slot);
        let task = if let Some(left) = left {
            let task = left.task;
            thread.take_over(left);
            task
        } else if admitted && tasks < TASKS_MAX {
            self.tasks += 1;
            let task = TaskId(tasks as u32);
            (thread.task, thread.job.task) = (Some(task), task);
            task
        } else {
            self.threads_left_out += u64::from(admitted);
            thread.ignored = true;
            thread.job_state = JobState::Partial;
            return None;
        };
        let def = task_def(thread, self.options.reservations.get(&pid));
        self.threads.set_task_name(task, slot);
        sink.define(STREAM, self.now, &Definition::Task(task, def));
        Some(task)
    }

    #[cold]
    pub(super) fn define_chain(&mut self, slot: usize, task: TaskId, sink: &mut impl Sink) {
        let thread = self.threads.at(slot);
        let (id, other) = match &thread.chain {
            Some((_, path)) if *path == thread.path || path.is_empty() => return,
            // Several paths lead to it.
            Some((id, _)) => (*id, true),
            None => (self.chains, false),
        };
        let path = if other { Vec::new() } else { thread.path.clone() };
        thread.chain = Some((id, path.clone()));
        let last = thread.name();
        let mut names: Vec<String> = path.iter().map(|task| self.threads.name_of(*task)).collect();
        if other {
            names.push("...".to_owned());
        } else {
            self.chains += 1;
        }
        names.push(last);
        sink.define(STREAM, self.now, &Definition::Chain(id, ChainDef { name: names.join(" -> "), sink: task }));
    }

    #[inline]
    pub(super) fn interrupt(
        &mut self,
        kind: InterruptKind,
        number: u32,
        name: &Comm,
        sink: &mut impl Sink,
    ) -> Option<u32> {
        match self.interrupts.get(&(kind, number)) {
            Some(id) => *id,
            None => self.define_interrupt(kind, number, name, sink),
        }
    }

    #[cold]
    fn define_interrupt(&mut self, kind: InterruptKind, number: u32, name: &Comm, sink: &mut impl Sink) -> Option<u32> {
        let name = interrupt_name(kind, number, name);
        let id = self.options.filter.admits_interrupt(&name).then_some(self.interrupts_defined);
        self.interrupts.insert((kind, number), id);
        let id = id?;
        self.interrupts_defined += 1;
        sink.define(STREAM, self.now, &Definition::Interrupt(id, InterruptDef { name, node: NODE, kind }));
        Some(id)
    }
}

pub(super) fn task_def(thread: &Thread, known: Option<&ReservationParams>) -> TaskDef {
    let known = known.copied().unwrap_or_default();
    TaskDef {
        name: thread.name(),
        node: NODE,
        period: known.period,
        deadline: known.deadline,
        wcet: known.runtime,
        class: (thread.prio != PRIO_UNKNOWN).then_some(ThreadClass::of_priority(thread.prio)),
    }
}
