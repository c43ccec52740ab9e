//! The state that the threads of a run share with its recorder.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use takt_dispatch::ring::Ring;
use takt_linux::{Class, Epoch, futex};
use takt_model::{Component, ComponentId, Span, System, Task, TaskId, Time};

use crate::budgets::foreign::ForeignSeat;
use crate::budgets::seat::{IdleDetectorSlot, Manager, Seat};
use crate::membership::Membership;

/// State shared by the threads of a run and its recorder.
pub(crate) struct Shared {
    pub(crate) system: Arc<System>,
    pub(crate) seed: u64,
    /// Time zero; set before `go`.
    pub(crate) epoch: OnceLock<Epoch>,
    /// Jobs are released from this time on, in nanoseconds: above zero if the node comes to a run that
    /// has begun. Set before `go`.
    pub(crate) begin_ns: AtomicU64,
    /// A futex of [`takt_dispatch::gate`].
    pub(crate) go: AtomicU32,
    /// Jobs are released before this.
    pub(crate) duration: Time,
    /// When the run ends, in nanoseconds: the duration, or earlier when a signal came.
    pub(crate) end_ns: AtomicU64,
    pub(crate) lanes: Vec<Lane>,
    /// What joins the run. `None` if nothing may.
    pub(crate) guests: Option<Guests>,
}

/// Tasks and components that join a run. Their numbers follow those of the System. They stay to the run's end, so that
/// threads can refer to them.
pub(crate) struct Guests {
    tasks: Vec<OnceLock<Guest>>,
    components: Vec<OnceLock<Component>>,
    first_task: u32,
    first_component: u32,
    logged: Mutex<LogState>,
}

/// A task that joins, and its thread.
pub(crate) struct Guest {
    pub(crate) task: Task,
    pub(crate) lane: Lane,
}

/// The progress of the log's writer. No real-time thread looks at it.
#[derive(Default)]
struct LogState {
    /// Components whose server has other terms, and since when.
    switched: Vec<(ComponentId, Time)>,
    costs: Option<(Span, Span)>,
}

impl Guests {
    pub(crate) fn new(system: &System, components: usize, tasks: usize) -> Guests {
        Guests {
            tasks: (0..tasks).map(|_| OnceLock::new()).collect(),
            components: (0..components).map(|_| OnceLock::new()).collect(),
            first_task: system.tasks.len() as u32,
            first_component: system.components.len() as u32,
            logged: Mutex::default(),
        }
    }

    /// Takes a task in. Gives it back if the number is taken or there is no room.
    pub(crate) fn add_task(&self, id: TaskId, guest: Guest) -> Result<(), Box<Guest>> {
        match id.0.checked_sub(self.first_task).and_then(|at| self.tasks.get(at as usize)) {
            Some(place) => place.set(guest).map_err(Box::new),
            None => Err(Box::new(guest)),
        }
    }

    /// Takes a component in, if there is room.
    pub(crate) fn add_component(&self, id: ComponentId, component: Component) {
        let place = id.0.checked_sub(self.first_component).and_then(|at| self.components.get(at as usize));
        if let Some(place) = place {
            let _ = place.set(component);
        }
    }

    pub(crate) fn task(&self, id: TaskId) -> Option<&Guest> {
        self.tasks.get(id.0.checked_sub(self.first_task)? as usize)?.get()
    }

    pub(crate) fn component(&self, id: ComponentId) -> Option<&Component> {
        self.components.get(id.0.checked_sub(self.first_component)? as usize)?.get()
    }

    /// All tasks that have joined, with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (TaskId, &Guest)> {
        (self.first_task..).map(TaskId).zip(self.tasks.iter().map_while(OnceLock::get))
    }

    /// The server of a component has other terms.
    pub(crate) fn tell_switched(&self, component: ComponentId, at: Time) {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).switched.push((component, at));
    }

    /// When the server of a component got other terms, at `from` or later.
    pub(crate) fn switched(&self, component: ComponentId, from: Time) -> Option<Time> {
        let logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let found = logged.switched.iter().find(|(of, at)| *of == component && *at >= from);
        found.map(|(_, at)| *at)
    }

    /// The cost of a decision and its lateness so far.
    pub(crate) fn tell_costs(&self, costs: Option<(Span, Span)>) {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).costs = costs;
    }

    pub(crate) fn costs(&self) -> Option<(Span, Span)> {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).costs
    }
}

/// The source of a thread's job releases.
pub(crate) enum Role {
    /// The thread itself, or its predecessors in a chain.
    Own,
    /// The manager of its CPU.
    Managed(Seat),
    /// It has no jobs. It is a manager.
    Manager(Box<Manager>),
    /// The manager itself carries the jobs out: there is no thread.
    Table,
    /// Existing threads: there is none of takt's own.
    Foreign(ForeignSeat),
    /// Existing threads whose server the kernel keeps.
    Served,
    /// It tells a manager that no existing thread wants the CPU.
    IdleDetector(IdleDetectorSlot),
    /// It tells the manager with this lane that existing threads want the CPU.
    Look(usize),
    /// It sends the messages that the manager with this lane could not send at once.
    Sender(usize),
}

impl Role {
    /// Whether a thread of takt carries its jobs out.
    pub(crate) fn has_thread(&self) -> bool {
        !matches!(self, Role::Table | Role::Foreign(_) | Role::Served)
    }

    /// The lane of the manager that it helps, and what it is called. `None`: it is no helper.
    pub(crate) fn helper(&self) -> Option<(usize, &'static str)> {
        match self {
            Role::IdleDetector(seat) => Some((seat.manager, "sentry")),
            Role::Look(manager) => Some((*manager, "look")),
            Role::Sender(manager) => Some((*manager, "sender")),
            _ => None,
        }
    }
}

/// One thread's side of [`Shared`].
pub(crate) struct Lane {
    pub(crate) task: TaskId,
    pub(crate) role: Role,
    pub(crate) class: Class,
    /// Its place under sched_ext.
    pub(crate) membership: Option<Membership>,
    pub(crate) yields: bool,
    /// The predecessors' lanes; job k waits for their job k.
    pub(crate) after: Vec<usize>,
    /// The successors' lanes.
    pub(crate) before: Vec<usize>,
    pub(crate) ring: Ring,
    /// Lower bound of the stamps of later records of this lane (nanoseconds).
    pub(crate) floor: AtomicU64,
    /// Jobs completed.
    pub(crate) completed: AtomicU64,
    /// Counts completions of predecessors; a futex.
    pub(crate) signal: AtomicU32,
    pub(crate) tid: AtomicI32,
    pub(crate) done: AtomicBool,
    pub(crate) overruns: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) throttles_known: AtomicBool,
    pub(crate) demanded_ns: AtomicU64,
    pub(crate) used_ns: AtomicU64,
}

impl Lane {
    pub(crate) fn wake(&self) {
        self.signal.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&self.signal);
    }

    pub(crate) fn new(task: TaskId, class: Class, yields: bool, records: usize) -> Lane {
        Lane {
            task,
            role: Role::Own,
            class,
            membership: None,
            yields,
            after: Vec::new(),
            before: Vec::new(),
            ring: Ring::new(records),
            floor: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            signal: AtomicU32::new(0),
            tid: AtomicI32::new(0),
            done: AtomicBool::new(false),
            overruns: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            throttles_known: AtomicBool::new(false),
            demanded_ns: AtomicU64::new(0),
            used_ns: AtomicU64::new(0),
        }
    }
}

impl Shared {
    pub(crate) fn end(&self) -> Time {
        Time::from_ns(self.end_ns.load(Ordering::Acquire))
    }

    /// The events of servers with existing threads are known up to there.
    pub(crate) fn served_until(&self, at: Time) {
        for lane in self.lanes.iter().filter(|lane| matches!(lane.role, Role::Served)) {
            lane.floor.store(at.as_ns(), Ordering::Release);
        }
    }

    /// When this node begins.
    pub(crate) fn begin(&self) -> Time {
        Time::from_ns(self.begin_ns.load(Ordering::Acquire))
    }

    /// A task of the System, or one that has joined.
    pub(crate) fn task(&self, id: TaskId) -> Option<&Task> {
        let guest = || self.guests.as_ref().and_then(|guests| guests.task(id)).map(|guest| &guest.task);
        self.system.tasks.get(id.index()).or_else(guest)
    }

    /// The lanes of tasks that have joined.
    pub(crate) fn guest_lanes(&self) -> impl Iterator<Item = &Lane> {
        self.guests.iter().flat_map(Guests::all).map(|(_, guest)| &guest.lane)
    }
}

/// A stamped fact, as it travels through a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) at: Time,
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    /// The nominal arrival of a release, or the CPU (the kernel's number) of a start or completion.
    pub(crate) value: u64,
}

/// In the order in which records of one instant are emitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Complete,
    Release,
    Start,
}

impl Record {
    pub(crate) fn to_words(self) -> [u64; 4] {
        [self.at.as_ns(), self.kind as u64, self.number, self.value]
    }

    pub(crate) fn from_words([at, kind, number, value]: [u64; 4]) -> Record {
        let kind = match kind {
            0 => Kind::Complete,
            1 => Kind::Release,
            _ => Kind::Start,
        };
        Record { at: Time::from_ns(at), kind, number, value }
    }
}
