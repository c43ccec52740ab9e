//! The state of each thread.

use std::collections::BTreeMap;

use takt_log::{JobKey, Parent};
use takt_model::{TaskId, Time};

use crate::calls::Class;
use crate::event::{Comm, Pid, Thread as KernelThread};

/// Pids below this are found by index; the kernel gives none beyond it.
const PIDS: Pid = 1 << 22;
/// The most hops of a chain. The next job starts a new chain.
const HOPS_MAX: usize = 16;
/// Threads of real-time classes have kernel priorities below this.
const REAL_TIME: i32 = 100;
/// The priority of a thread whose priority is unknown: not a real-time one.
pub(super) const PRIO_UNKNOWN: i32 = i32::MAX;
/// The slot of no thread.
const NONE: u32 = u32::MAX;

/// The threads that share a task, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum TaskSharing {
    /// One thread alone.
    #[default]
    One,
    /// Threads of one name.
    SameName,
    /// Any threads.
    All,
}

/// A task of a thread that has ended. Another thread may take it over.
#[derive(Debug)]
pub(super) struct OrphanedTask {
    pub(super) task: TaskId,
    pub(super) sharing: TaskSharing,
    pub(super) next_number: u64,
    chain: Option<(u32, Vec<TaskId>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RunState {
    Unknown,
    Running,
    Ready,
    Asleep,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JobState {
    /// The thread works, and the start of the work was not recorded. This is no job.
    Partial,
    /// The last job completed at `since`, and the next one is not released.
    Between {
        since: Time,
    },
    Released,
    Started,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wakeup {
    pub(super) at: Time,
    pub(super) waker: Option<Pid>,
    /// The open job of the waker, which the released job follows.
    pub(super) parent: Option<Parent>,
    /// It only kept the thread from going to sleep. Another wake-up ends the next sleep.
    pub(super) spent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) class: Class,
    /// The descriptor of a read of eight bytes.
    pub(super) read_fd: Option<u64>,
    pub(super) entered: Time,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) pid: Pid,
    pub(super) comm: Comm,
    pub(super) prio: i32,
    pub(super) task: Option<TaskId>,
    pub(super) sharing: TaskSharing,
    /// The log does not have it.
    pub(super) ignored: bool,
    pub(super) run_state: RunState,
    pub(super) job_state: JobState,
    pub(super) next_number: u64,
    pub(super) job: JobKey,
    /// The earliest arrival of its last job.
    pub(super) arrival: Time,
    /// The CPU that it had last.
    pub(super) cpu: u32,
    /// The last wake-up while it had its CPU. If it sleeps, the wake-up may have come while it left
    /// its CPU.
    pub(super) woken: Option<Wakeup>,
    /// Its system calls are recorded.
    pub(super) calls_seen: bool,
    pub(super) call: Option<Call>,
    pub(super) last_class: Class,
    pub(super) started: Time,
    /// The expiry of the timer that ends its sleep.
    pub(super) timer: Option<Time>,
    /// It yielded as a SCHED_DEADLINE thread.
    pub(super) yielded: bool,
    /// It has slept or waited for events. So a wait for another thread does not end its jobs.
    pub(super) waits_for_events: bool,
    /// The descriptor on which a read of eight bytes blocked last.
    pub(super) blocked_read_fd: Option<u64>,
    /// The tasks before its last job in the chain, and the arrival of the chain's first job.
    pub(super) path: Vec<TaskId>,
    origin: Time,
    /// The chain that ends here: its number, and the tasks before it. No tasks if several paths
    /// lead here.
    pub(super) chain: Option<(u32, Vec<TaskId>)>,
}

impl Thread {
    fn new(seen: &KernelThread) -> Self {
        Thread {
            pid: seen.pid,
            comm: seen.comm,
            prio: seen.prio.unwrap_or(PRIO_UNKNOWN),
            task: None,
            sharing: TaskSharing::One,
            ignored: false,
            run_state: RunState::Unknown,
            job_state: JobState::Partial,
            next_number: 0,
            job: JobKey { task: TaskId(u32::MAX), number: 0 },
            arrival: Time::ZERO,
            cpu: 0,
            woken: None,
            calls_seen: false,
            call: None,
            last_class: Class::Other,
            started: Time::ZERO,
            timer: None,
            yielded: false,
            waits_for_events: false,
            blocked_read_fd: None,
            path: Vec::new(),
            origin: Time::ZERO,
            chain: None,
        }
    }

    pub(super) fn is_deadline(&self) -> bool {
        self.prio < 0
    }

    pub(super) fn yields(&self) -> bool {
        self.call.is_some_and(|call| call.class == Class::Yield)
    }

    /// Whether it is throttled when it leaves its CPU ready and `next` gets the CPU: `next` is the
    /// idle thread, or of a lesser class.
    #[inline]
    pub(super) fn is_throttled(&self, next: &KernelThread) -> bool {
        match self.prio {
            ..0 => next.pid == 0 || next.is_below_deadline(),
            0..REAL_TIME => next.pid == 0 || next.prio.is_some_and(|prio| prio >= REAL_TIME),
            _ => next.pid == 0,
        }
    }

    pub(super) fn blocks_at_boundary(&mut self, suspensions: bool) -> bool {
        if suspensions || !self.calls_seen {
            return true;
        }
        let Some(call) = self.call else { return false };
        match call.class {
            Class::Sleep | Class::Wait => true,
            Class::Take => {
                self.waits_for_events = true;
                self.blocked_read_fd = call.read_fd.or(self.blocked_read_fd);
                true
            }
            Class::Sync => !self.waits_for_events,
            Class::Yield | Class::Restart | Class::Other => false,
        }
    }

    /// The thread acts on `cpu`. Returns whether the switch to it is missing within a job.
    #[inline]
    pub(super) fn mark_running(&mut self, cpu: u32) -> bool {
        let unseen =
            matches!(self.run_state, RunState::Ready | RunState::Asleep) && self.job_state == JobState::Started;
        (self.run_state, self.cpu) = (RunState::Running, cpu);
        unseen
    }

    /// It takes over the task of another thread.
    pub(super) fn take_over(&mut self, left: OrphanedTask) {
        let OrphanedTask { task, sharing, next_number, chain } = left;
        (self.task, self.sharing, self.chain) = (Some(task), sharing, chain);
        // Skips a number, because the distance to the previous job is not that of one thread.
        (self.job, self.next_number) = (JobKey { task, number: next_number }, next_number.saturating_add(1));
    }

    pub(super) fn name(&self) -> String {
        name(self.pid, &self.comm, self.sharing)
    }

    pub(super) fn forget(&mut self) {
        (self.run_state, self.job_state, self.yielded) = (RunState::Unknown, JobState::Partial, false);
        (self.call, self.timer, self.woken) = (None, None, None);
    }

    /// Its last job follows no other. It arrived at `arrival` at the latest.
    pub(super) fn start_chain(&mut self, arrival: Time) {
        self.path.clear();
        self.origin = arrival;
    }
}

#[derive(Debug, Default)]
pub(super) struct Threads {
    slots: Vec<Thread>,
    free: Vec<u32>,
    by_pid: Vec<u32>,
    /// For ids from [`PIDS`] on. Only broken traces have them.
    by_other_pid: BTreeMap<Pid, u32>,
    /// By task: the id and the name of its last thread, and the threads that share it.
    by_task: Vec<(Pid, Comm, TaskSharing)>,
    /// The tasks of ended threads, by the threads' names.
    orphans: BTreeMap<Comm, Vec<OrphanedTask>>,
    /// Such tasks that all threads share.
    shared_orphans: Vec<OrphanedTask>,
}

/// `NAME-PID`, as in the kernel's traces; `NAME-*` for several threads.
fn name(pid: Pid, comm: &Comm, sharing: TaskSharing) -> String {
    match sharing {
        TaskSharing::One => format!("{comm}-{pid}"),
        TaskSharing::SameName => format!("{comm}-*"),
        TaskSharing::All => "*-*".to_owned(),
    }
}

impl Threads {
    /// The slot of the thread with this id, until the thread ends.
    #[inline]
    pub(super) fn slot(&self, pid: Pid) -> Option<usize> {
        let slot = match self.by_pid.get(pid as usize) {
            Some(slot) => *slot,
            None => *self.by_other_pid.get(&pid)?,
        };
        (slot != NONE).then_some(slot as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, pid: Pid) -> Option<&mut Thread> {
        self.slot(pid).and_then(|slot| self.slots.get_mut(slot))
    }

    /// The thread with this id. The next switch names a new one.
    #[inline]
    pub(super) fn get_or_add(&mut self, pid: Pid) -> &mut Thread {
        let slot = match self.slot(pid) {
            Some(slot) => slot,
            None => self.add(pid, &KernelThread { pid, comm: Comm::default(), prio: None }),
        };
        &mut self.slots[slot]
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.slots.iter_mut()
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = (Pid, &Thread)> {
        self.by_task.iter().enumerate().filter_map(|(task, (pid, ..))| {
            let thread = self.slots.get(self.slot(*pid)?)?;
            (thread.task.map(TaskId::index) == Some(task)).then_some((*pid, thread))
        })
    }

    /// The slot of the thread, a new one if the thread is unknown.
    #[inline]
    pub(super) fn slot_or_add(&mut self, seen: &KernelThread) -> usize {
        match self.slot(seen.pid) {
            Some(slot) => slot,
            None => self.add(seen.pid, seen),
        }
    }

    #[inline]
    pub(super) fn at(&mut self, slot: usize) -> &mut Thread {
        &mut self.slots[slot]
    }

    #[cold]
    fn add(&mut self, pid: Pid, seen: &KernelThread) -> usize {
        let thread = Thread::new(seen);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = thread;
                slot
            }
            None => {
                self.slots.push(thread);
                (self.slots.len() - 1) as u32
            }
        };
        if pid < PIDS {
            let at = pid as usize;
            if self.by_pid.len() <= at {
                self.by_pid.resize((at + 1).next_power_of_two(), NONE);
            }
            self.by_pid[at] = slot;
        } else {
            self.by_other_pid.insert(pid, slot);
        }
        slot as usize
    }

    pub(super) fn remove(&mut self, pid: Pid) {
        let Some(slot) = self.slot(pid) else { return };
        match self.by_pid.get_mut(pid as usize) {
            Some(entry) => *entry = NONE,
            None => {
                self.by_other_pid.remove(&pid);
            }
        }
        let thread = &mut self.slots[slot];
        thread.forget();
        if let Some(task) = thread.task.take() {
            let left = OrphanedTask {
                task,
                sharing: thread.sharing,
                next_number: thread.next_number,
                chain: thread.chain.take(),
            };
            match thread.sharing {
                TaskSharing::All => self.shared_orphans.push(left),
                TaskSharing::One | TaskSharing::SameName => self.orphans.entry(thread.comm).or_default().push(left),
            }
        }
        self.free.push(slot as u32);
    }

    /// Takes the task of the thread of this name that ended last. Threads of this name share it now.
    pub(super) fn take_orphan(&mut self, comm: &Comm) -> Option<OrphanedTask> {
        let of_name = self.orphans.get_mut(comm)?;
        let left = of_name.pop()?;
        if of_name.is_empty() {
            self.orphans.remove(comm);
        }
        Some(OrphanedTask { sharing: TaskSharing::SameName, ..left })
    }

    /// Takes the task of any ended thread. All threads share it now.
    pub(super) fn take_any_orphan(&mut self) -> Option<OrphanedTask> {
        if let Some(left) = self.shared_orphans.pop() {
            return Some(left);
        }
        let (comm, _) = self.orphans.first_key_value()?;
        let comm = *comm;
        self.take_orphan(&comm).map(|left| OrphanedTask { sharing: TaskSharing::All, ..left })
    }

    pub(super) fn name_of(&self, task: TaskId) -> String {
        self.by_task.get(task.index()).map_or_else(String::new, |(pid, comm, sharing)| name(*pid, comm, *sharing))
    }

    pub(super) fn set_task_name(&mut self, task: TaskId, slot: usize) {
        if self.by_task.len() <= task.index() {
            self.by_task.resize(task.index() + 1, (0, Comm::default(), TaskSharing::One));
        }
        let thread = &self.slots[slot];
        self.by_task[task.index()] = (thread.pid, thread.comm, thread.sharing);
    }

    /// Puts the next job of the thread at `to` behind the open job of `waker`. `None` if the waker
    /// has no open job, or if the job would follow itself.
    #[inline]
    pub(super) fn link(&mut self, waker: Pid, to: usize, task: TaskId) -> Option<Parent> {
        let from = self.slot(waker)?;
        let before = self.slots[from].task.filter(|before| *before != task)?;
        if self.slots[from].job_state == JobState::Started { self.append(from, before, to, task) } else { None }
    }

    fn append(&mut self, from: usize, before: TaskId, to: usize, task: TaskId) -> Option<Parent> {
        let path = &self.slots[from].path;
        if path.len() >= HOPS_MAX || path.contains(&task) {
            return None;
        }
        let mut path = std::mem::take(&mut self.slots[to].path);
        let from = &self.slots[from];
        path.clone_from(&from.path);
        path.push(before);
        let origin = from.origin;
        let hop = path.len() as u32;
        (self.slots[to].path, self.slots[to].origin) = (path, origin);
        Some(Parent { hop, origin })
    }
}
