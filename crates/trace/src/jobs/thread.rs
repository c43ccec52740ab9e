//! The state of each thread.

use std::collections::BTreeMap;

use takt_log::{JobKey, Parent};
use takt_model::{TaskId, Time};

use crate::calls::Class;
use crate::event::{Comm, Pid, Thread as KernelThread};

/// Pids below this are found by index; the kernel gives none beyond it.
const PIDS: Pid = 1 << 22;
/// A longer chain starts anew.
const HOPS_MAX: usize = 16;
/// From this priority on threads are of no real-time class.
const REAL_TIME: i32 = 100;
/// The priority of a thread whose priority is unknown: not a real-time one.
pub(super) const PRIO_UNKNOWN: i32 = i32::MAX;
/// No thread.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum ThreadMatching {
    /// One thread's.
    #[default]
    One,
    /// Threads of this name, one after the other.
    Namesakes,
    /// Any threads, one after the other.
    Anyone,
}

/// A task of a thread that has ended. Another thread may take it over.
#[derive(Debug)]
pub(super) struct OrphanedTask {
    pub(super) task: TaskId,
    pub(super) whose: ThreadMatching,
    pub(super) next: u64,
    chain: Option<(u32, Vec<TaskId>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Unknown,
    Running,
    /// It wants a CPU.
    Ready,
    /// It waits for something other than a CPU.
    Asleep,
}

/// How far its job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It works, and the beginning was not recorded: no job.
    Partial,
    /// Its last job completed then, and the next one is not released.
    Between {
        since: Time,
    },
    Released,
    Started,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Woken {
    pub(super) at: Time,
    pub(super) waker: Option<Pid>,
    /// The job that its next job follows, where the waker had one.
    pub(super) parent: Option<Parent>,
    /// It only kept the thread from going to sleep; a later sleep needs another wake-up.
    pub(super) spent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) class: Class,
    /// The descriptor of a read of eight bytes.
    pub(super) reads: Option<u64>,
    pub(super) entered: Time,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) pid: Pid,
    pub(super) comm: Comm,
    pub(super) prio: i32,
    pub(super) task: Option<TaskId>,
    pub(super) whose: ThreadMatching,
    /// The log leaves it out.
    pub(super) passed_over: bool,
    pub(super) place: Place,
    pub(super) stage: Stage,
    pub(super) next: u64,
    pub(super) job: JobKey,
    /// When its last job arrived at the earliest.
    pub(super) arrival: Time,
    /// The CPU that it had last.
    pub(super) cpu: u32,
    /// The last wake-up while it had its CPU. If it sleeps, the wake-up may have come while it left
    /// its CPU.
    pub(super) woken: Option<Woken>,
    /// Its system calls are recorded.
    pub(super) calls_seen: bool,
    pub(super) call: Option<Call>,
    pub(super) last_class: Class,
    pub(super) started: Time,
    /// When the sleep that it is in shall end.
    pub(super) timer: Option<Time>,
    /// It yielded as a SCHED_DEADLINE thread.
    pub(super) yielded: bool,
    /// It has entered sleeps, or waited for events: waiting for other threads ends none of its
    /// jobs.
    pub(super) waits: bool,
    /// The descriptor on which a read of eight bytes blocked last.
    pub(super) reads: Option<u64>,
    /// The tasks that led to its last job, and their earliest arrival.
    pub(super) path: Vec<TaskId>,
    origin: Time,
    /// The chain that ends here: its number, and the tasks before it; no tasks if there are several
    /// ways.
    pub(super) chain: Option<(u32, Vec<TaskId>)>,
}

impl Thread {
    fn new(seen: &KernelThread) -> Self {
        Thread {
            pid: seen.pid,
            comm: seen.comm,
            prio: seen.prio.unwrap_or(PRIO_UNKNOWN),
            task: None,
            whose: ThreadMatching::One,
            passed_over: false,
            place: Place::Unknown,
            stage: Stage::Partial,
            next: 0,
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
            waits: false,
            reads: None,
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
                self.waits = true;
                self.reads = call.reads.or(self.reads);
                true
            }
            Class::Sync => !self.waits,
            Class::Yield | Class::Restart | Class::Other => false,
        }
    }

    /// It does something on `cpu`. Returns whether the switch to it, within a job, was not
    /// recorded.
    #[inline]
    pub(super) fn found_on(&mut self, cpu: u32) -> bool {
        let unseen = matches!(self.place, Place::Ready | Place::Asleep) && self.stage == Stage::Started;
        (self.place, self.cpu) = (Place::Running, cpu);
        unseen
    }

    /// It takes over the task of another thread.
    pub(super) fn take_over(&mut self, left: OrphanedTask) {
        let OrphanedTask { task, whose, next, chain } = left;
        (self.task, self.whose, self.chain) = (Some(task), whose, chain);
        // Skips a number: the distance to the job before is not a distance of one thread.
        (self.job, self.next) = (JobKey { task, number: next }, next.saturating_add(1));
    }

    pub(super) fn name(&self) -> String {
        name(self.pid, &self.comm, self.whose)
    }

    pub(super) fn forget(&mut self) {
        (self.place, self.stage, self.yielded) = (Place::Unknown, Stage::Partial, false);
        (self.call, self.timer, self.woken) = (None, None, None);
    }

    /// Its last job, which arrived then at the latest, follows no other.
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
    /// Ids of broken traces, which no kernel gives.
    others: BTreeMap<Pid, u32>,
    /// By task: its last thread, and the threads that share it.
    of_task: Vec<(Pid, Comm, ThreadMatching)>,
    /// Tasks whose threads have ended, by their names.
    left: BTreeMap<Comm, Vec<OrphanedTask>>,
    /// Such tasks that any thread may take over.
    anyones: Vec<OrphanedTask>,
}

/// `NAME-PID`, as in the kernel's traces; `NAME-*` for several threads.
fn name(pid: Pid, comm: &Comm, whose: ThreadMatching) -> String {
    match whose {
        ThreadMatching::One => format!("{comm}-{pid}"),
        ThreadMatching::Namesakes => format!("{comm}-*"),
        ThreadMatching::Anyone => "*-*".to_owned(),
    }
}

impl Threads {
    /// The slot of the thread with this id, until the thread ends.
    #[inline]
    pub(super) fn slot(&self, pid: Pid) -> Option<usize> {
        let slot = match self.by_pid.get(pid as usize) {
            Some(slot) => *slot,
            None => *self.others.get(&pid)?,
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
        self.of_task.iter().enumerate().filter_map(|(task, (pid, ..))| {
            let thread = self.slots.get(self.slot(*pid)?)?;
            (thread.task.map(TaskId::index) == Some(task)).then_some((*pid, thread))
        })
    }

    /// The slot of the thread, a new one if the thread is unknown.
    #[inline]
    pub(super) fn meet(&mut self, seen: &KernelThread) -> usize {
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
            self.others.insert(pid, slot);
        }
        slot as usize
    }

    pub(super) fn remove(&mut self, pid: Pid) {
        let Some(slot) = self.slot(pid) else { return };
        match self.by_pid.get_mut(pid as usize) {
            Some(entry) => *entry = NONE,
            None => {
                self.others.remove(&pid);
            }
        }
        let thread = &mut self.slots[slot];
        thread.forget();
        if let Some(task) = thread.task.take() {
            let left = OrphanedTask { task, whose: thread.whose, next: thread.next, chain: thread.chain.take() };
            match thread.whose {
                ThreadMatching::Anyone => self.anyones.push(left),
                ThreadMatching::One | ThreadMatching::Namesakes => self.left.entry(thread.comm).or_default().push(left),
            }
        }
        self.free.push(slot as u32);
    }

    /// The task of the thread of this name that ended last. Threads of this name share it now.
    pub(super) fn left_by(&mut self, comm: &Comm) -> Option<OrphanedTask> {
        let of_name = self.left.get_mut(comm)?;
        let left = of_name.pop()?;
        if of_name.is_empty() {
            self.left.remove(comm);
        }
        Some(OrphanedTask { whose: ThreadMatching::Namesakes, ..left })
    }

    /// The task of any thread that has ended. All threads share it now.
    pub(super) fn left_by_anyone(&mut self) -> Option<OrphanedTask> {
        if let Some(left) = self.anyones.pop() {
            return Some(left);
        }
        let (comm, _) = self.left.first_key_value()?;
        let comm = *comm;
        self.left_by(&comm).map(|left| OrphanedTask { whose: ThreadMatching::Anyone, ..left })
    }

    pub(super) fn name_of(&self, task: TaskId) -> String {
        self.of_task.get(task.index()).map_or_else(String::new, |(pid, comm, whose)| name(*pid, comm, *whose))
    }

    pub(super) fn name(&mut self, task: TaskId, slot: usize) {
        if self.of_task.len() <= task.index() {
            self.of_task.resize(task.index() + 1, (0, Comm::default(), ThreadMatching::One));
        }
        let thread = &self.slots[slot];
        self.of_task[task.index()] = (thread.pid, thread.comm, thread.whose);
    }

    /// Puts the next job of the thread at `to` behind the open job of `waker`. `None` if the waker
    /// has no open job, or if the job would follow itself.
    #[inline]
    pub(super) fn link(&mut self, waker: Pid, to: usize, task: TaskId) -> Option<Parent> {
        let from = self.slot(waker)?;
        let before = self.slots[from].task.filter(|before| *before != task)?;
        if self.slots[from].stage == Stage::Started { self.append(from, before, to, task) } else { None }
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
