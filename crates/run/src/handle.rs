//! A handle of a run under budget managers: components join it, change their servers and leave it while it runs.
//!
//! A change is made in these steps. A refusal at any of them leaves the run as it is.
//!
//! 1. The system with the change is made and validated, and the caller of [`RunHandle::apply`] decides about it.
//! 2. Threads of tasks that join start and wait.
//! 3. The manager gets the change before its instant, and makes it at this instant of the plan.
//!
//! One change is made at a time. The next one is refused while a server still has to get its new terms from the last
//! change or from a mode. So no server has two budgets at a time, and each decision sees the servers as they are.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use takt_dispatch::gate::{READY_MAX, STACK_BYTES};
use takt_linux::machine::Limits;
use takt_linux::thread::Tid;
use takt_linux::{Class, SchedError, clock, futex, memory, sched};
use takt_model::{
    Arrival, Auto, Component, ComponentId, CpuSet, NodeId, ServerRule, ServerSwitch, Span, System, Task, TaskId, Time,
    file,
};
use takt_policy::{CpuPart, Hierarchy};
use thiserror::Error;

use crate::budgets::core::{Change, Join};
use crate::budgets::seat::{ChangeRequest, Manager, Seat};
use crate::error::RunError;
use crate::foreign;
use crate::lanes::{Guest, Guests, Lane, Role, Shared};
use crate::manager::{self, COMPONENTS_MAX, TASKS_MAX};
use crate::mapping::{self, MappedTask};
use crate::threads::live;
use crate::work::Work;

/// A change of the components of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LiveChange {
    /// Components join with their tasks, which begin at the change's instant. References to components use the
    /// numbers of [`RunHandle::system`], where these components stand behind all others.
    Join {
        /// The components, on one CPU.
        components: Vec<Component>,
        /// Their tasks. Each stands in one of them.
        tasks: Vec<Task>,
    },
    /// The component of this name leaves, with all that is in it.
    Leave(String),
    /// The server of a component gets another rule, period or budget. `None` keeps what it has.
    Server {
        /// Its component.
        component: String,
        /// The rule.
        rule: Option<ServerRule>,
        /// The period.
        period: Option<Span>,
        /// The budget.
        budget: Option<Span>,
    },
}

/// A change that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The instant of the change: tasks that join begin, and tasks that leave end.
    pub at: Time,
    /// From when on all servers that change have their new terms. `None`: a period, which is long, has not ended yet.
    pub since: Option<Time>,
}

/// Why nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LiveError {
    /// The handle belongs to no run under budget managers, or the run is over.
    #[error("no run under budget managers has this handle now; nothing was changed")]
    NotRunning,
    /// The change makes no sense in the running system.
    #[error("{0}; nothing was changed")]
    Invalid(String),
    /// A part that cannot join a run.
    #[error("{0}; nothing was changed")]
    Cannot(String),
    /// The caller's decision, or no room.
    #[error("{0}; the running system is as it was")]
    Refused(String),
    /// A failure of takt or of the machine.
    #[error("{0}")]
    Failed(String),
}

/// See the module's documentation. Clones are of the same run.
#[derive(Clone, Default)]
pub struct RunHandle {
    running: Arc<Mutex<Option<Running>>>,
    /// Held while a change is decided about and made. The run can end meanwhile.
    changing: Arc<Mutex<()>>,
}

/// From a decision to its instant: the manager must have the change before. Each try takes [`LEAD_GROWTH`] times as
/// long as the one before, because the machine may be busy.
const LEAD: Span = Span::from_ms(20);
/// See [`LEAD`].
const LEAD_GROWTH: u64 = 4;
/// Instants of changes are multiples of this.
const GRID_NS: u64 = 1_000_000;
/// How long a manager may take beyond the instant.
const ANSWER_MAX: Span = Span::from_s(2);
/// How often a change whose instant was too early is asked for.
const TRIES: u32 = 3;
/// The longest wait for the end of a server's period.
const SETTLE_MAX: Span = Span::from_s(5);
/// The interval between two looks.
const LOOK: Span = Span::from_us(500);

/// A run that may be changed.
pub(crate) struct Running {
    shared: Arc<Shared>,
    node: NodeId,
    /// The kernel's CPUs, by those of the model.
    cpus: Vec<u32>,
    /// The class of the threads of tasks.
    class: Class,
    /// Whether overload is refused.
    limits: Option<Limits>,
    /// All that there is or was, in the numbers of the run. Servers that are to come or gone are closed.
    all: System,
    /// What there is.
    system: System,
    /// The numbers in `all` of components and tasks of `system`.
    components: Vec<ComponentId>,
    tasks: Vec<TaskId>,
    /// As the managers have them.
    parts: Vec<CpuPart>,
    threads: Vec<JoinHandle<()>>,
    /// The memory of tasks that have joined.
    locked: Option<memory::Locked>,
    /// Servers that get new terms at the end of their period, and the instants of their changes.
    unsettled: Vec<(ComponentId, Time)>,
}

/// New terms of a component's server: rule, period, budget. `None` keeps what it has.
type NewTerms = (ComponentId, Option<ServerRule>, Option<Span>, Option<Span>);

/// A change, before its instant is known.
struct Planned {
    /// The system with the change.
    system: System,
    components: Vec<ComponentId>,
    tasks: Vec<TaskId>,
    /// Components that join, as they are in [`Running::all`].
    joins: Vec<Component>,
    new_tasks: Vec<Task>,
    /// Servers that change.
    terms: Vec<NewTerms>,
    leaves: Vec<TaskId>,
}

impl RunHandle {
    /// A handle for [`crate::Ready::run_with`].
    #[must_use]
    pub fn new() -> RunHandle {
        RunHandle::default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, running: Running) {
        *self.lock() = Some(running);
    }

    /// Ends the threads of tasks that have joined. The run is over.
    pub(crate) fn end(&self) -> Result<(), RunError> {
        let Some(running) = self.lock().take() else { return Ok(()) };
        let ended: Vec<bool> = running.threads.into_iter().map(|thread| thread.join().is_ok()).collect();
        if ended.contains(&false) { Err(RunError::Panicked { task: "a task that joined".to_owned() }) } else { Ok(()) }
    }

    /// The system as it runs now. `None` if it does not run.
    #[must_use]
    pub fn system(&self) -> Option<System> {
        let mut running = self.lock();
        let running = running.as_mut()?;
        running.fold_modes();
        Some(running.system.clone())
    }

    /// The p99 of a manager's decision and of its lateness so far, those of the worst manager. Before the hundredth
    /// decision it is the median.
    #[must_use]
    pub fn costs(&self) -> Option<(Span, Span)> {
        self.lock().as_ref()?.guests().ok()?.costs()
    }

    /// Makes a change if `decide` agrees to the system with it. Waits until the change is made, and until all servers
    /// have their new terms, at most five seconds. While they do not, further changes are refused. The run goes on, and
    /// can end, while `decide` works. If a mode changes the system meanwhile, `decide` is asked again.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn apply(
        &self,
        change: &LiveChange,
        decide: impl Fn(&System) -> Result<(), String>,
    ) -> Result<Effect, LiveError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut decided: Option<System> = None;
        loop {
            {
                let mut running = self.lock();
                let running = running.as_mut().ok_or(LiveError::NotRunning)?;
                running.now()?;
                running.fold_modes();
                let planned = running.plan(change)?;
                running.require_settled()?;
                if decided.as_ref() == Some(&planned.system) {
                    return running.make(planned);
                }
                decided = Some(planned.system);
            }
            decided.as_ref().map_or(Ok(()), &decide).map_err(LiveError::Refused)?;
        }
    }
}

impl Running {
    pub(crate) fn new(
        shared: Arc<Shared>,
        node: NodeId,
        cpus: &[u32],
        class: Class,
        limits: Option<Limits>,
        parts: Vec<CpuPart>,
    ) -> Running {
        let system = System::clone(&shared.system);
        Running {
            node,
            cpus: cpus.to_vec(),
            class,
            limits,
            components: (0..system.components.len() as u32).map(ComponentId).collect(),
            tasks: (0..system.tasks.len() as u32).map(TaskId).collect(),
            all: system.clone(),
            system,
            parts,
            threads: Vec::new(),
            locked: None,
            unsettled: Vec::new(),
            shared,
        }
    }

    fn guests(&self) -> Result<&Guests, LiveError> {
        self.shared.guests.as_ref().ok_or(LiveError::NotRunning)
    }

    fn now(&self) -> Result<Time, LiveError> {
        let now = self.shared.epoch.get().map(|epoch| epoch.now()).ok_or(LiveError::NotRunning)?;
        if now >= self.shared.end() { Err(LiveError::NotRunning) } else { Ok(now) }
    }

    /// Refuses while a server waits for the end of its period.
    fn require_settled(&mut self) -> Result<(), LiveError> {
        let guests = self.shared.guests.as_ref().ok_or(LiveError::NotRunning)?;
        self.unsettled.retain(|(id, from)| guests.switched(*id, *from).is_none());
        let Some((id, _)) = self.unsettled.first() else { return Ok(()) };
        let name = self.all.components.get(id.index()).map_or("", |component| &component.name);
        let why = format!("component \"{name}\" still changes, at the end of its server's period; ask again later");
        Err(LiveError::Refused(why))
    }

    /// Takes the modes that have come into the system as it is. Their servers obey at the end of their periods.
    fn fold_modes(&mut self) {
        let Ok(now) = self.now() else { return };
        let system = &mut self.system;
        let mut switches = std::mem::take(&mut system.switches);
        switches.sort_by_key(|switch| switch.at);
        for switch in switches {
            match system.components.get_mut(switch.component.index()) {
                Some(component) if switch.at <= now => {
                    set_terms(component, switch.server, switch.period, switch.budget);
                    // Other nodes, and CPUs without tasks, have no manager here.
                    let is_managed = |id: &ComponentId| self.parts.iter().any(|part| part.components.contains(id));
                    let id = self.components.get(switch.component.index()).copied().filter(is_managed);
                    self.unsettled.extend(id.map(|id| (id, switch.at)));
                }
                _ => system.switches.push(switch),
            }
        }
        let mut modes = std::mem::take(&mut system.modes);
        modes.sort_by_key(|mode| mode.at);
        for mode in modes {
            match system.nodes.get_mut(mode.node.index()) {
                Some(node) if mode.at <= now => node.strategy = mode.strategy,
                _ => system.modes.push(mode),
            }
        }
    }

    fn find(&self, name: &str) -> Result<usize, LiveError> {
        let found = self.system.components.iter().position(|component| component.name == name);
        found.ok_or_else(|| LiveError::Invalid(format!("the running system has no component \"{name}\"")))
    }

    fn plan(&self, change: &LiveChange) -> Result<Planned, LiveError> {
        let planned = match change {
            LiveChange::Join { components, tasks } => self.plan_join(components, tasks)?,
            LiveChange::Leave(name) => self.plan_leave(self.find(name)?)?,
            LiveChange::Server { component, rule, period, budget } => {
                let at = self.find(component)?;
                let mut planned = self.unchanged();
                if let Some(component) = planned.system.components.get_mut(at) {
                    set_terms(component, *rule, *period, *budget);
                }
                let id = self.components.get(at).copied().unwrap_or(ComponentId(u32::MAX));
                planned.terms.push((id, *rule, *period, *budget));
                planned
            }
        };
        if !planned.system.tasks.is_empty() {
            file::validate(&planned.system)
                .map_err(|errors| LiveError::Invalid(errors.to_string().trim_end().to_owned()))?;
        }
        self.refuse(&planned)?;
        Ok(planned)
    }

    fn unchanged(&self) -> Planned {
        Planned {
            system: self.system.clone(),
            components: self.components.clone(),
            tasks: self.tasks.clone(),
            joins: Vec::new(),
            new_tasks: Vec::new(),
            terms: Vec::new(),
            leaves: Vec::new(),
        }
    }

    fn plan_join(&self, components: &[Component], tasks: &[Task]) -> Result<Planned, LiveError> {
        let mut planned = self.unchanged();
        let (known, next) = (self.system.components.len(), self.all.components.len());
        planned.components.extend((next as u32..).map(ComponentId).take(components.len()));
        planned.system.components.extend(components.iter().cloned());
        planned.system.tasks.extend(tasks.iter().cloned());
        let number = |id: ComponentId| planned.components.get(id.index()).copied();
        for component in components {
            let cannot = |why: &str| {
                let name = &component.name;
                LiveError::Cannot(format!("component \"{name}\" cannot join a running system: {why}"))
            };
            if component.node != self.node {
                return Err(cannot("it stands on another node"));
            }
            if component.quantum.is_some() {
                return Err(cannot("its quantum would decide on the level around it; leave it out"));
            }
            if component.threads.is_some() {
                return Err(cannot("it holds existing threads, which join at the start of a run only"));
            }
            if component.cpus > 1 {
                return Err(cannot("it has servers on several CPUs, and components join one CPU"));
            }
            let (Auto::Value(period), Auto::Value(budget)) = (component.period, component.budget) else {
                return Err(cannot("its period or budget is \"auto\"; give values, as takt size writes them"));
            };
            let id = ComponentId(self.all.components.len() as u32 + planned.joins.len() as u32);
            planned.terms.push((id, Some(component.server), Some(period), Some(budget)));
            planned.joins.push(Component {
                parent: component.parent.and_then(number),
                period: Auto::Value(Hierarchy::CLOSED),
                budget: Auto::Value(Span::ZERO),
                ..component.clone()
            });
        }
        for task in tasks {
            let cannot = |why: &str| {
                let name = &task.name;
                LiveError::Cannot(format!("task \"{name}\" cannot join a running system: {why}"))
            };
            if task.component.is_none_or(|id| id.index() < known) {
                return Err(cannot("it stands in no component that joins now; put it into such a component"));
            }
            if !task.after.is_empty() {
                return Err(cannot("it follows another task; give it a period of its own"));
            }
            if matches!(task.arrival, Arrival::Trace(_)) {
                return Err(cannot("its arrivals are a trace from the run's start"));
            }
            mapping::has_values(task).map_err(|error| LiveError::Invalid(error.to_string()))?;
            planned.new_tasks.push(Task { component: task.component.and_then(number), ..task.clone() });
        }
        let first = self.all.tasks.len() as u32;
        planned.tasks.extend((first..).map(TaskId).take(tasks.len()));
        let joined =
            (next - self.shared.system.components.len(), self.all.tasks.len() - self.shared.system.tasks.len());
        if joined.0 + components.len() > COMPONENTS_MAX || joined.1 + tasks.len() > TASKS_MAX {
            return Err(LiveError::Refused(format!(
                "not admitted: {} components with {} tasks have joined this run, and it has room for {COMPONENTS_MAX} \
                 with {TASKS_MAX}; start the run anew with a file of the present system",
                joined.0, joined.1
            )));
        }
        if components.is_empty() {
            return Err(LiveError::Invalid("no component joins".to_owned()));
        }
        Ok(planned)
    }

    fn plan_leave(&self, at: usize) -> Result<Planned, LiveError> {
        let system = &self.system;
        let leaves = |id: ComponentId| system.around(id).any(|around| around.index() == at);
        let gone: BTreeSet<u32> = (0..system.components.len() as u32).filter(|id| leaves(ComponentId(*id))).collect();
        let mut leaving = gone.iter().filter_map(|id| system.components.get(*id as usize));
        if let Some(held) = leaving.find(|component| component.threads.is_some()) {
            let name = &held.name;
            return Err(LiveError::Cannot(format!(
                "component \"{name}\" cannot leave a running system: it holds existing threads, which would stay \
                 frozen; end the run"
            )));
        }
        let goes = |task: &Task| task.component.is_some_and(|id| gone.contains(&id.0));
        let tasks: BTreeSet<u32> = (0..).zip(&system.tasks).filter(|(_, task)| goes(task)).map(|(id, _)| id).collect();
        let follows = |task: &&Task| !goes(task) && task.after.iter().any(|before| tasks.contains(&before.0));
        if let Some(task) = system.tasks.iter().find(follows) {
            let why = format!("task \"{}\" follows a task that would leave; let its component leave first", task.name);
            return Err(LiveError::Invalid(why));
        }
        let mut planned = self.unchanged();
        planned.system = without(system, &gone, &tasks);
        let stays = |gone: &BTreeSet<u32>, at: usize| !gone.contains(&(at as u32));
        let kept = (0..self.components.len()).filter(|at| stays(&gone, *at)).map(|at| self.components[at]);
        planned.components = kept.collect();
        planned.tasks = (0..self.tasks.len()).filter(|at| stays(&tasks, *at)).map(|at| self.tasks[at]).collect();
        let closed = |id: &u32| self.components.get(*id as usize).copied();
        let terms = |id| (id, None, Some(Hierarchy::CLOSED), Some(Span::ZERO));
        planned.terms = gone.iter().filter_map(closed).map(terms).collect();
        planned.leaves = tasks.iter().filter_map(|id| self.tasks.get(*id as usize)).copied().collect();
        Ok(planned)
    }

    /// Refuses what managers cannot run.
    fn refuse(&self, planned: &Planned) -> Result<(), LiveError> {
        let cannot = |error: RunError| LiveError::Cannot(error.to_string());
        mapping::refuse_sections(&planned.system, self.node).map_err(cannot)?;
        let mut held = foreign::components(&planned.system, self.node);
        if let Some((_, component)) = held.find(|(id, _)| !manager::hard(&planned.system, *id)) {
            return Err(LiveError::Cannot(format!(
                "component \"{}\" holds existing threads, and a server of this rule goes on when its budget is used up",
                component.name
            )));
        }
        let parts =
            CpuPart::of_node(&planned.system, self.node).map_err(|error| LiveError::Invalid(error.to_string()))?;
        let is_new = |part: &&CpuPart| part.is_shared() && !self.parts.iter().any(|known| known.cpus == part.cpus);
        if let Some(part) = parts.iter().find(is_new) {
            let cpus = mapping::list(&part.cpu_set());
            return Err(LiveError::Cannot(format!("CPUs {cpus} would share tasks or components")));
        }
        let refused = |error: RunError| LiveError::Refused(format!("not admitted: {error}"));
        // Tasks that run have their memory already.
        let first = planned.system.tasks.len().saturating_sub(planned.new_tasks.len()) as u32;
        let (class, cpus) = (self.class, CpuSet::default());
        let mapped = |id: TaskId| MappedTask { id, class, cpus, domain: None, yields: false };
        let joining: Vec<MappedTask> = (first..).map(TaskId).map(mapped).take(planned.new_tasks.len()).collect();
        mapping::refuse_working_sets(&planned.system, &joining, memory::available()).map_err(refused)?;
        if let Some(limits) = self.limits.as_ref().filter(|_| planned.leaves.is_empty()) {
            manager::refuse_overload(&planned.system, self.node, &parts, limits).map_err(refused)?;
        }
        Ok(())
    }

    /// All that there is or was, with the change at `at`.
    fn all_with(&self, planned: &Planned, at: Time) -> System {
        let mut all = self.all.clone();
        all.components.extend(planned.joins.iter().cloned());
        all.tasks.extend(planned.new_tasks.iter().cloned());
        for (component, server, period, budget) in planned.terms.iter().copied() {
            // Later modes do not change a leaving component.
            let leaves = period == Some(Hierarchy::CLOSED);
            all.switches.retain(|switch| !leaves || switch.component != component || switch.at < at);
            all.switches.retain(|switch| switch.component != component || switch.at != at);
            all.switches.push(ServerSwitch { component, at, server, period, budget });
        }
        all
    }

    fn make(&mut self, planned: Planned) -> Result<Effect, LiveError> {
        let first = self.all.tasks.len() as u32;
        let started = self.start_threads(&planned, first);
        let made = started.and_then(|()| self.ask(&planned, first));
        let (at, part, place, all) = match made {
            Ok(made) => made,
            Err(error) => {
                self.give_up(&planned, first);
                return Err(error);
            }
        };
        self.all = all;
        (self.system, self.components, self.tasks) = (planned.system, planned.components, planned.tasks);
        if let Some(known) = self.parts.get_mut(place) {
            *known = part;
        }
        for id in planned.leaves {
            self.dismiss(id);
        }
        self.unsettled.extend(planned.terms.iter().map(|(id, ..)| (*id, at)));
        Ok(Effect { at, since: self.wait_for_terms() })
    }

    /// Waits until all servers that change have their new terms. Returns when the last one got them.
    fn wait_for_terms(&mut self) -> Option<Time> {
        let until = self.now().ok()?.saturating_add(SETTLE_MAX);
        while self.now().is_ok_and(|now| now < until) {
            let guests = self.guests().ok()?;
            let each = self.unsettled.iter().map(|(id, from)| guests.switched(*id, *from));
            let all: Option<Vec<Time>> = each.collect();
            if let Some(all) = all {
                self.unsettled.clear();
                return all.into_iter().max();
            }
            clock::pause(Span::from_ms(2));
        }
        None
    }

    /// Asks the manager of the change's CPU.
    fn ask(&self, planned: &Planned, first: u32) -> Result<(Time, CpuPart, usize, System), LiveError> {
        for growth in (0..TRIES).map(|tries| LEAD_GROWTH.pow(tries)) {
            let lead = LEAD.checked_mul(growth).unwrap_or(LEAD);
            let soon = self.now()?.saturating_add(lead).as_ns();
            let at = Time::from_ns(soon.div_ceil(GRID_NS).saturating_mul(GRID_NS));
            let all = self.all_with(planned, at);
            let (place, part) = self.part_with(planned, &all, at)?;
            let known = self.parts.get(place).map_or(0, |known| known.slots.len());
            let ids: Vec<TaskId> = all.tasks_of(self.node).map(|(id, _)| id).collect();
            let ids = part.slots.iter().skip(known).filter_map(|slot| ids.get(*slot as usize).copied());
            // Tasks that were to join before, and did not, have slots, too. They never have jobs.
            let arrives = |id: TaskId| {
                let task = id.0.checked_sub(first).and_then(|at| planned.new_tasks.get(at as usize));
                task.map_or(Time::MAX, |task| at.saturating_add(task.offset))
            };
            let joins: Vec<Join> = ids.map(|id| Join::new(id, arrives(id))).collect();
            let leaves = planned.leaves.iter().filter_map(|id| slot(&all, self.node, &part, *id)).collect();
            // A clone has no room to spare, and would allocate. The manager gets the original.
            let (known, change) = (part.clone(), Change { at, part, joins, leaves });
            let part = known;
            let (index, manager) = self.manager(part.first_cpu())?;
            if self.post(index, manager, change)? {
                return Ok((at, part, place, all));
            }
        }
        Err(LiveError::Failed(
            "the budget manager got the change too late, three times; nothing was changed".to_owned(),
        ))
    }

    /// The CPU that the change concerns, with the change.
    fn part_with(&self, planned: &Planned, all: &System, at: Time) -> Result<(usize, CpuPart), LiveError> {
        for (place, part) in self.parts.iter().enumerate() {
            let with = part.with_change(all, self.node, at).map_err(|error| LiveError::Invalid(error.to_string()))?;
            let Some(with) = with else { continue };
            if planned.terms.iter().all(|(id, ..)| with.components.contains(id)) {
                return Ok((place, with));
            }
        }
        Err(LiveError::Cannot(
            "no budget manager of this run schedules all components of the change: name one CPU that has tasks \
             (server-cpus); CPUs that share tasks or components take no changes during a run"
                .to_owned(),
        ))
    }

    fn manager(&self, cpu: u32) -> Result<(usize, &Manager), LiveError> {
        let found = self.shared.lanes.iter().enumerate().find_map(|(index, lane)| match &lane.role {
            Role::Manager(manager) if manager.cpu == cpu => Some((index, &**manager)),
            _ => None,
        });
        found.ok_or(LiveError::NotRunning)
    }

    /// Hands a change to its manager, and waits until it is made. False if its instant had passed.
    fn post(&self, index: usize, manager: &Manager, change: Change) -> Result<bool, LiveError> {
        let lock = || manager.posted.lock().unwrap_or_else(PoisonError::into_inner);
        let until = change.at.saturating_add(ANSWER_MAX);
        *lock() = ChangeRequest::Requested(Box::new(change));
        if let Some(lane) = self.shared.lanes.get(index) {
            lane.wake();
        }
        loop {
            clock::pause(LOOK);
            let answer = lock().take_answer();
            if let Some((is_made, change)) = answer {
                // Its memory is freed here, not by the manager.
                drop(change);
                return Ok(is_made);
            }
            let now = self.now();
            if now.as_ref().is_ok_and(|now| *now < until) {
                continue;
            }
            *lock() = ChangeRequest::Nothing;
            return match now {
                Err(error) => Err(error),
                Ok(_) => Err(LiveError::Failed("the budget manager does not answer; the run is to end".to_owned())),
            };
        }
    }

    /// Starts the threads of tasks that join. They wait for their first job.
    fn start_threads(&mut self, planned: &Planned, first: u32) -> Result<(), LiveError> {
        if planned.joins.is_empty() {
            return Ok(());
        }
        let all = self.all_with(planned, self.now()?);
        let (_, part) = self.part_with(planned, &all, self.now()?)?;
        let (index, manager) = self.manager(part.first_cpu())?;
        let lease = manager.lease.clone();
        let kernel_cpu: Vec<u32> = self.cpus.get(part.first_cpu() as usize).copied().into_iter().collect();
        let full = || LiveError::Failed("the run has no room for the task".to_owned());
        let guests = self.guests()?;
        for (id, component) in (self.all.components.len() as u32..).zip(&planned.joins) {
            guests.add_component(ComponentId(id), component.clone());
        }
        let (send, ready) = mpsc::channel();
        let mut handles = Vec::new();
        for (id, task) in (first..).map(TaskId).zip(&planned.new_tasks) {
            let mut lane = Lane::new(id, self.class, false, 1);
            lane.role = Role::Managed(Seat::new(index, lease.clone()));
            let guest = Guest { task: task.clone(), lane };
            self.guests()?.add_task(id, guest).map_err(|_| full())?;
            handles.push(self.spawn(id, task, kernel_cpu.clone(), send.clone()));
        }
        drop(send);
        let mut result = Ok(());
        for handle in handles {
            match handle {
                Ok(handle) => self.threads.push(handle),
                Err(error) => result = Err(error),
            }
        }
        result?;
        wait_ready(&ready, planned.new_tasks.len())?;
        self.lock_memory()
    }

    /// Locks memory again: that of threads that join is new. Only a best-effort run goes on without.
    fn lock_memory(&mut self) -> Result<(), LiveError> {
        match memory::lock() {
            Ok(locked) => drop(self.locked.replace(locked)),
            Err(error) if self.class != Class::Other => {
                return Err(LiveError::Refused(format!("not admitted: {error}")));
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn spawn(
        &self,
        id: TaskId,
        task: &Task,
        cpus: Vec<u32>,
        send: mpsc::Sender<Result<(), SchedError>>,
    ) -> Result<JoinHandle<()>, LiveError> {
        let failed = |why: String| LiveError::Failed(format!("task \"{}\" has no thread: {why}", task.name));
        let work = Work::new(task.wss).ok_or_else(|| failed(format!("no memory for {} bytes", task.wss.get())))?;
        let shared = self.shared.clone();
        let run = move || {
            let Some(guest) = shared.guests.as_ref().and_then(|guests| guests.task(id)) else { return };
            live(
                &shared,
                &guest.lane,
                (work, None),
                || sched::set_affinity(&cpus),
                move |result| drop(send.send(result)),
            );
        };
        let name = format!("takt {}", task.name.replace('\0', " "));
        let spawned = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(run);
        spawned.map_err(|error| failed(error.to_string()))
    }

    /// Ends the threads of tasks that were to join. Their numbers stay used.
    fn give_up(&mut self, planned: &Planned, first: u32) {
        let next = ComponentId(self.all.components.len() as u32);
        let is_there = |id: &TaskId| self.guests().is_ok_and(|guests| guests.task(*id).is_some());
        if !self.guests().is_ok_and(|guests| guests.component(next).is_some()) {
            return;
        }
        let there: Vec<TaskId> = (first..).map(TaskId).take(planned.new_tasks.len()).filter(is_there).collect();
        for id in &there {
            self.dismiss(*id);
            // A thread that was never made has ended.
            if let Some(guest) = self.guests().ok().and_then(|guests| guests.task(*id))
                && guest.lane.tid.load(Ordering::Acquire) == 0
            {
                guest.lane.done.store(true, Ordering::Release);
            }
        }
        let now = self.now().unwrap_or_default();
        let mut all = self.all_with(planned, now);
        // They never were: their servers stay closed.
        all.switches.retain(|switch| switch.component.index() < self.all.components.len());
        let known = self.all.tasks.len() + there.len();
        all.tasks.truncate(known);
        self.all = all;
    }

    /// Lets the thread of a task end, under SCHED_OTHER.
    fn dismiss(&self, id: TaskId) {
        let own = self.shared.lanes.iter().find(|lane| lane.task == id);
        let guest = || self.guests().ok().and_then(|guests| guests.task(id)).map(|guest| &guest.lane);
        let Some(lane) = own.or_else(guest) else { return };
        let Role::Managed(seat) = &lane.role else { return };
        if let Some(thread) = Tid::of_this_process(lane.tid.load(Ordering::Acquire)) {
            // Without the privilege it is under SCHED_OTHER already.
            let _ = sched::reclass(thread, &Class::Other);
        }
        seat.leaves.store(true, Ordering::Release);
        seat.freezer.free();
        seat.word.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&seat.word);
    }
}

/// Waits until these threads have their CPU and their class.
fn wait_ready(ready: &Receiver<Result<(), SchedError>>, threads: usize) -> Result<(), LiveError> {
    for _ in 0..threads {
        match ready.recv_timeout(READY_MAX) {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => return Err(LiveError::Failed(format!("the kernel refused a thread: {cause}"))),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(LiveError::Failed("a thread did not start; nothing was changed".to_owned()));
            }
        }
    }
    Ok(())
}

fn slot(all: &System, node: NodeId, part: &CpuPart, id: TaskId) -> Option<u32> {
    let of_node = all.tasks_of(node).position(|(other, _)| other == id)? as u32;
    part.slots.iter().position(|slot| *slot == of_node).map(|at| at as u32)
}

fn set_terms(component: &mut Component, rule: Option<ServerRule>, period: Option<Span>, budget: Option<Span>) {
    component.server = rule.unwrap_or(component.server);
    component.period = period.map_or(component.period, Auto::Value);
    component.budget = budget.map_or(component.budget, Auto::Value);
}

fn without(system: &System, components: &BTreeSet<u32>, tasks: &BTreeSet<u32>) -> System {
    let place = |gone: &BTreeSet<u32>, id: u32| id - gone.range(..id).count() as u32;
    let component = |id: ComponentId| ComponentId(place(components, id.0));
    let mut rest = system.clone();
    let mut at = 0..;
    rest.components.retain(|_| at.next().is_some_and(|id| !components.contains(&id)));
    let mut at = 0..;
    rest.tasks.retain(|_| at.next().is_some_and(|id| !tasks.contains(&id)));
    for of in &mut rest.components {
        of.parent = of.parent.map(component);
    }
    for task in &mut rest.tasks {
        task.component = task.component.map(component);
        task.after.iter_mut().for_each(|before| before.0 = place(tasks, before.0));
    }
    rest.switches.retain(|switch| !components.contains(&switch.component.0));
    rest.switches.iter_mut().for_each(|switch| switch.component = component(switch.component));
    rest
}
