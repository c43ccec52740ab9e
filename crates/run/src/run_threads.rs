//! The threads of a run: they start together, and end with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;

use takt_dispatch::gate::{GO_ABORT, GO_RUN, GRACE, READY_MAX, STACK_BYTES};
use takt_linux::cpuset::Partitions;
use takt_linux::{Class, Epoch, SchedError, clock, futex, sched, thread};
use takt_model::{Span, Time};

use crate::error::RunError;
use crate::handlers::TaskHandler;
use crate::lanes::{Lane, Shared};
use crate::mapping::MappedTask;
use crate::threads::live;
use crate::work::Work;

/// Time that a SCHED_DEADLINE thread may take to end after the run's end. If a hypervisor takes the
/// CPU for a while, the kernel charges the time to the thread. Then the kernel throttles the thread
/// until as many budgets are paid back: 100 ms at 1.2 ms every 50 ms take four seconds.
const GRACE_RESERVED: Span = Span::from_s(60);
/// The threads of a run. Dropping this ends them, also after a panic of the sink.
pub(crate) struct RunThreads {
    shared: Arc<Shared>,
    names: Vec<String>,
    handles: Vec<Option<JoinHandle<()>>>,
    send: Option<mpsc::Sender<(usize, Result<(), SchedError>)>>,
    ready: Receiver<(usize, Result<(), SchedError>)>,
}

impl RunThreads {
    pub(crate) fn new(shared: Arc<Shared>, names: Vec<String>) -> RunThreads {
        let (send, ready) = mpsc::channel();
        RunThreads { shared, names, handles: Vec::new(), send: Some(send), ready }
    }

    fn name(&self, index: usize) -> String {
        self.names.get(index).cloned().unwrap_or_default()
    }

    pub(crate) fn spawn(
        &mut self,
        mapped: &MappedTask,
        cpus: Vec<u32>,
        work: (Work, Option<TaskHandler>),
        partitions: Option<&Arc<Partitions>>,
    ) -> Result<(), RunError> {
        let index = self.handles.len();
        let Some(send) = self.send.clone() else { return Ok(()) };
        let (shared, partitions) = (self.shared.clone(), partitions.cloned());
        let (domain, class) = (mapped.domain, mapped.class);
        let enter_cpus = move || {
            let partitions = partitions;
            match (partitions, domain) {
                (Some(partitions), Some(domain)) => {
                    partitions.join(domain).map_err(|error| SchedError::Other {
                        class: "a scheduling domain".to_owned(),
                        cause: error.to_string(),
                    })?;
                }
                // Without a scheduling domain of its own the thread keeps all its CPUs.
                _ if matches!(class, Class::Deadline(_)) => return Ok(()),
                _ => {}
            }
            sched::set_affinity(&cpus)
        };
        let run = move || {
            let Some(lane) = shared.lanes.get(index) else { return };
            live(&shared, lane, work, enter_cpus, move |result| drop(send.send((index, result))));
        };
        let thread = std::thread::Builder::new()
            .name(format!("takt {}", self.name(index).replace('\0', " ")))
            .stack_size(STACK_BYTES);
        match thread.spawn(run) {
            Ok(handle) => {
                self.handles.push(Some(handle));
                Ok(())
            }
            Err(error) => Err(RunError::Spawn { task: self.name(index), cause: error.to_string() }),
        }
    }

    /// The next lane has no thread.
    pub(crate) fn skip(&mut self) {
        if let Some(lane) = self.shared.lanes.get(self.handles.len()) {
            lane.done.store(true, Ordering::Release);
        }
        self.handles.push(None);
    }

    /// Waits until all threads have their CPUs and their class.
    pub(crate) fn wait_ready(&mut self) -> Result<(), RunError> {
        self.send = None;
        for _ in 0..self.handles.iter().flatten().count() {
            match self.ready.recv_timeout(READY_MAX) {
                Ok((_, Ok(()))) => {}
                Ok((index, Err(cause))) => return Err(RunError::refused(&self.name(index), cause)),
                Err(RecvTimeoutError::Timeout) => return Err(self.stuck()),
                Err(RecvTimeoutError::Disconnected) => {
                    self.join()?;
                    return Err(self.stuck());
                }
            }
        }
        Ok(())
    }

    pub(crate) fn go(&self, epoch: Epoch) {
        let _ = self.shared.epoch.set(epoch);
        self.shared.go.store(GO_RUN, Ordering::Release);
        futex::wake_all(&self.shared.go);
    }

    pub(crate) fn all_through(&self) -> bool {
        self.lanes().all(|lane| lane.done.load(Ordering::Acquire))
    }

    /// Also those of tasks that have joined.
    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.shared.lanes.iter().chain(self.shared.guest_lanes())
    }

    /// Interrupts the sleep of threads that have not yet noticed the end of the run.
    pub(crate) fn interrupt(&self) {
        for lane in self.lanes().filter(|lane| !lane.done.load(Ordering::Acquire)) {
            futex::wake_all(&lane.signal);
            if let Some(tid) = thread::Tid::of_this_process(lane.tid.load(Ordering::Acquire)) {
                thread::interrupt(tid);
            }
        }
    }

    pub(crate) fn stuck(&self) -> RunError {
        let stuck = self.shared.lanes.iter().position(|lane| !lane.done.load(Ordering::Acquire));
        RunError::Stuck { task: self.name(stuck.unwrap_or(0)), grace: self.grace() }
    }

    /// The longest time that the threads may take to end after the run's end.
    pub(crate) fn grace(&self) -> Span {
        let reserved = self.shared.lanes.iter().any(|lane| matches!(lane.class, Class::Deadline(_)));
        if reserved { GRACE_RESERVED } else { GRACE }
    }

    pub(crate) fn join(&mut self) -> Result<(), RunError> {
        let mut result = Ok(());
        for index in 0..self.handles.len() {
            let handle = self.handles.get_mut(index).and_then(Option::take);
            if handle.is_some_and(|handle| handle.join().is_err()) {
                result = Err(RunError::Panicked { task: self.name(index) });
            }
        }
        result
    }
}

impl Drop for RunThreads {
    fn drop(&mut self) {
        if self.handles.iter().all(Option::is_none) {
            return;
        }
        self.shared.end_ns.store(0, Ordering::Release);
        if self.shared.go.swap(GO_ABORT, Ordering::AcqRel) != GO_ABORT {
            futex::wake_all(&self.shared.go);
        }
        let patience = Epoch::now_is_zero();
        let finished = |own: &RunThreads| own.handles.iter().flatten().all(JoinHandle::is_finished);
        while !finished(self) && patience.now() < Time::ZERO.saturating_add(self.grace()) {
            self.interrupt();
            clock::pause(Span::from_ms(2));
        }
        if finished(self) {
            let _ = self.join();
        }
    }
}
