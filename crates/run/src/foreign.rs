//! Components of existing threads: the System as it runs, and the threads in the hands of a run.
//!
//! Nobody tells of the jobs of such threads. So a run has one task for all threads of a component. Each time in which
//! they want the CPU is a job. `check` and `sim` go by the tasks of the file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::PoisonError;

use takt_linux::foreign::{ForeignError, ForeignGroup, WatchedThread};
use takt_linux::guard::Guard;
use takt_linux::hold::{Band, HeldGroup, Holder, Undone};
use takt_model::{
    Auto, Builtin, Component, ComponentId, Filter, NodeId, Span, StrategyRef, System, Task, TaskId, Threads,
};

use crate::error::RunError;
use crate::lanes::{Lane, Role, Shared};
use crate::manager::foreign::{ForeignSeat, LOOK};
use crate::{ForeignSummary, Prepared};

/// Whether the node has components of existing threads.
pub(crate) fn is_in(system: &System, node: NodeId) -> bool {
    components(system, node).next().is_some()
}

/// The node's components of existing threads.
pub(crate) fn components(system: &System, node: NodeId) -> impl Iterator<Item = (ComponentId, &Component)> {
    let all = (0..).map(ComponentId).zip(&system.components);
    all.filter(move |(_, component)| component.node == node && component.threads.is_some())
}

/// A task of a component of existing threads in a relation that a run cannot keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnsupportedRelation {
    pub(crate) task: String,
    pub(crate) why: &'static str,
    pub(crate) remedy: &'static str,
}

/// The System with one task for each component of existing threads of the node, instead of its tasks.
pub(crate) fn lowered(system: &System, node: NodeId) -> Result<Cow<'_, System>, UnsupportedRelation> {
    if !is_in(system, node) {
        return Ok(Cow::Borrowed(system));
    }
    let is_foreign = |task: &Task| task.node == node && system.threads_of(task).is_some();
    let mut kept: Vec<Option<TaskId>> = Vec::new();
    let mut tasks: Vec<Task> = Vec::new();
    for task in &system.tasks {
        kept.push((!is_foreign(task)).then_some(TaskId(tasks.len() as u32)));
        if !is_foreign(task) {
            tasks.push(task.clone());
        }
    }
    let of = |id: &TaskId| kept.get(id.index()).copied().flatten();
    for task in &mut tasks {
        let after: Option<Vec<TaskId>> = task.after.iter().map(of).collect();
        let (why, remedy) = ("it follows existing threads, whose jobs nobody tells", "remove after");
        task.after = after.ok_or_else(|| UnsupportedRelation { task: task.name.clone(), why, remedy })?;
    }
    let mut lowered = system.clone();
    for (id, component) in components(system, node) {
        let mut name = component.name.clone();
        while system.tasks.iter().any(|task| task.name == name) || tasks.iter().any(|task| task.name == name) {
            name.push_str(" threads");
        }
        let value = |of: Auto<Span>| if let Auto::Value(span) = of { span } else { Span::from_ms(1) };
        let mut task = Task::periodic(&name, value(component.period), value(component.budget));
        (task.node, task.component, task.deadline) = (node, Some(id), Span::FILE_MAX);
        tasks.push(task);
        if let Some(component) = lowered.components.get_mut(id.index()) {
            component.strategy = StrategyRef::Builtin(Builtin::Fifo);
        }
    }
    let gone = |name: &String| !tasks.iter().any(|task| task.name == *name);
    for level in system.strategies.iter().flat_map(|strategy| &strategy.levels) {
        let Filter::Named(names) = &level.filter else { continue };
        if let Some(name) = names.iter().find(|name| gone(name)) {
            let why = "a strategy names it, and a run knows only all existing threads of its component together";
            return Err(UnsupportedRelation { task: name.clone(), why, remedy: "let the strategy name no such task" });
        }
    }
    lowered.tasks = tasks;
    Ok(Cow::Owned(lowered))
}

/// Which existing threads each component has, for the notes of a run.
pub(crate) fn notes(system: &System, node: NodeId) -> Vec<String> {
    notes_of(system, node, |component, threads| {
        format!(
            "component \"{component}\" holds the threads of \"{threads}\"; a job of \"{component}\" is a time in which \
             one of them wants the CPU, noticed at most about a millisecond late"
        )
    })
}

/// The same under sched_ext.
pub(crate) fn served_notes(system: &System, node: NodeId) -> Vec<String> {
    notes_of(system, node, |component, threads| {
        format!(
            "component \"{component}\" holds the threads of \"{threads}\", also those that come later; nobody tells of \
             their jobs; cpu.max of the group changes its server"
        )
    })
}

fn notes_of(system: &System, node: NodeId, note: impl Fn(&str, &Threads) -> String) -> Vec<String> {
    let all = components(system, node);
    all.filter_map(|(_, component)| Some(note(&component.name, component.threads.as_ref()?))).collect()
}

/// The existing threads of a run. Dropping this gives them back what they had.
pub(crate) struct ExistingThreads {
    holder: Holder,
    held: Vec<ComponentThreads>,
}

/// Those of one component.
struct ComponentThreads {
    task: TaskId,
    component: String,
    threads: Threads,
    group: HeldGroup,
    /// The most that there were at a time.
    count: usize,
    /// Their CPU time before the run.
    used: Span,
    refused: Option<String>,
    /// Why the state of some threads cannot be read.
    unwatched: Option<String>,
}

impl ComponentThreads {
    /// Its present threads, opened.
    fn watch(&mut self) -> Vec<WatchedThread> {
        let mut watched = Vec::new();
        for id in self.group.threads() {
            match WatchedThread::open(id) {
                Ok(thread) => watched.extend(thread),
                Err(error) => self.unwatched = Some(error.to_string()),
            }
        }
        watched
    }

    /// The notes of a run about these threads, at its end.
    fn notes(&self, pause_max: Span) -> impl Iterator<Item = String> {
        let component = &self.component;
        let refused = self.refused.as_ref().map(|why| format!("{why}; it ran only beside the others of its group"));
        let unwatched = self.unwatched.as_ref().map(|why| {
            format!(
                "the state of some threads cannot be read ({why}), so takt notices that they are runnable only when \
                 they use the CPU"
            )
        });
        let slow = (pause_max > LOOK).then(|| {
            format!(
                "reading the state of its {} threads takes long: takt may notice runnable threads {pause_max} late",
                self.count
            )
        });
        let of = move |note: String| format!("component \"{component}\": {note}");
        [refused, unwatched, slow].into_iter().flatten().map(of)
    }
}

impl ExistingThreads {
    /// Freezes all existing threads of the node, and gives them their bands. `cpus`: the kernel's numbers.
    pub(crate) fn adopt(prepared: &Prepared, cpus: &[u32]) -> Result<Option<ExistingThreads>, RunError> {
        let (system, node) = (&prepared.system, prepared.node);
        let Some(managed) = prepared.managed.as_ref().filter(|_| is_in(system, node)) else { return Ok(None) };
        let guard = if prepared.options.guardian { Guard::ThisProgram } else { Guard::NextStart };
        // What a killed run has left frozen goes on first.
        let _ = takt_linux::hold::recover();
        // All are found before one is frozen.
        let find = |(id, component): (ComponentId, &Component)| {
            let threads = component.threads.clone()?;
            let task = system.tasks.iter().position(|task| task.component == Some(id))?;
            let mapped = prepared.mapping.tasks.iter().find(|mapped| mapped.id.index() == task)?;
            let cpu = mapped.cpus.lowest().and_then(|cpu| cpus.get(cpu as usize).copied())?;
            Some((TaskId(task as u32), component.name.clone(), threads, cpu))
        };
        let wanted: Vec<_> = components(system, node).filter_map(find).collect();
        let groups = wanted.iter().map(|(_, _, threads, _)| ForeignGroup::find(threads));
        let groups = groups.collect::<Result<Vec<_>, _>>().map_err(|error| RunError::Foreign(error.into()))?;
        for (at, group) in groups.iter().enumerate() {
            if let Some(earlier) = groups[..at].iter().position(|earlier| earlier.overlaps(group)) {
                let threads = |of: usize| wanted[of].2.clone();
                let shared = ForeignError::Shared { threads: threads(at), other: threads(earlier) };
                return Err(RunError::Foreign(shared.into()));
            }
        }
        // Each thread takes a descriptor.
        takt_linux::process::allow_most_files();
        let mut holder = Holder::start(&guard)?;
        let mut held = Vec::new();
        for ((task, component, threads, cpu), group) in wanted.into_iter().zip(&groups) {
            let band = Band { cpu, first: managed.top - 1, second: managed.top - 2 };
            let group = holder.band(group, band)?;
            let used = group.control().used().unwrap_or_default();
            held.push(ComponentThreads {
                task,
                component,
                threads,
                count: 0,
                used,
                refused: None,
                unwatched: None,
                group,
            });
        }
        Ok(Some(ExistingThreads { holder, held }))
    }

    /// The seats of their tasks.
    pub(crate) fn take_seats(&mut self, lanes: &mut [Lane]) {
        for held in &mut self.held {
            let lane = lanes.iter_mut().find(|lane| lane.task == held.task);
            if let Some(lane) = lane {
                lane.role = Role::Foreign(ForeignSeat::new(held.group.control(), held.watch()));
            }
        }
    }

    /// Adds new threads, and releases threads that left their group.
    pub(crate) fn rescan(&mut self, shared: &Shared) {
        for held in &mut self.held {
            let (new, refused) = self.holder.rescan(&mut held.group);
            held.refused = held.refused.take().or_else(|| refused.map(|error| error.to_string()));
            held.count = held.count.max(held.group.threads().count());
            let lane = shared.lanes.iter().find(|lane| lane.task == held.task);
            let Some(Role::Foreign(seat)) = lane.map(|lane| &lane.role) else { continue };
            if !new.is_empty() {
                *seat.watched.lock().unwrap_or_else(PoisonError::into_inner) = held.watch();
            }
        }
    }

    /// Gives the threads back what they had. Returns how each component did, and what went wrong.
    pub(crate) fn give_back(self, shared: &Shared) -> (Vec<ForeignSummary>, Vec<String>) {
        let ExistingThreads { holder, held } = self;
        let ns = |of: &std::sync::atomic::AtomicU64| Span::from_ns(of.load(std::sync::atomic::Ordering::Acquire));
        let seat = |held: &ComponentThreads| {
            let lane = shared.lanes.iter().find(|lane| lane.task == held.task)?;
            if let Role::Foreign(seat) = &lane.role { Some(seat) } else { None }
        };
        let summary = |held: &ComponentThreads| {
            let seat = seat(held)?;
            Some(ForeignSummary {
                component: held.component.clone(),
                threads: held.threads.to_string(),
                count: held.count,
                used: seat.control.used().unwrap_or_default().saturating_sub(held.used),
                turns: ns(&seat.paid_ns),
                owed_max: ns(&seat.owed_max_ns),
            })
        };
        let summaries = held.iter().filter_map(summary).collect();
        let pause_max = |held: &ComponentThreads| seat(held).map_or(Span::ZERO, |seat| ns(&seat.pause_max_ns));
        let mut notes: Vec<String> = held.iter().flat_map(|one| one.notes(pause_max(one))).collect();
        let mut others: BTreeMap<String, usize> = BTreeMap::new();
        for given in holder.give_back() {
            let id = given.thread.pid;
            match given.undone {
                Undone::Restored | Undone::Gone => {}
                Undone::Changed { now } => *others.entry(now).or_default() += 1,
                Undone::Failed(cause) if id == std::process::id() => {
                    notes.push(format!("{cause}; the next takt of any verb tries again"));
                }
                Undone::Failed(cause) => notes.push(format!(
                    "thread {id} did not get back what it had: {cause}; the next takt of any verb tries again"
                )),
            }
        }
        let changed = |(now, count): (String, usize)| {
            format!("another program has given {count} of the existing threads {now} meanwhile; takt left it so")
        };
        notes.extend(others.into_iter().map(changed));
        (summaries, notes)
    }
}

#[cfg(test)]
mod tests {
    use takt_model::ServerRule;

    use super::*;

    fn system() -> System {
        let ms = Span::from_ms;
        let mut system = System::local(1, Builtin::Rm, Vec::new());
        let mut guest = Component::new("guest", NodeId(0), ServerRule::Deferrable);
        (guest.period, guest.budget) = (Auto::Value(ms(10)), Auto::Value(ms(3)));
        guest.threads = Some(Threads::Pid(7));
        system.components.push(guest);
        for (name, component) in [("a", Some(ComponentId(0))), ("own", None), ("guest", None)] {
            system.tasks.push(Task { component, ..Task::periodic(name, ms(20), ms(1)) });
        }
        system.tasks[2].after = vec![TaskId(1)];
        system
    }

    #[test]
    fn the_tasks_of_existing_threads_become_one() {
        let system = system();
        let lowered = lowered(&system, NodeId(0)).unwrap();
        let names: Vec<&str> = lowered.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["own", "guest", "guest threads"]);
        assert_eq!(lowered.tasks[1].after, [TaskId(0)]);
        assert_eq!((lowered.tasks[2].wcet, lowered.tasks[2].period), (Span::from_ms(3), Span::from_ms(10)));
        let text = takt_model::file::write(&lowered);
        assert_eq!(takt_model::file::parse(&text, "lowered.toml").as_ref(), Ok(&*lowered), "{text}");
        let mut plain = system.clone();
        plain.components[0].threads = None;
        assert_eq!(super::lowered(&plain, NodeId(0)).as_deref(), Ok(&plain));
    }

    #[test]
    fn relations_that_nobody_can_keep_are_named() {
        let mut system = system();
        system.tasks[2].after = vec![TaskId(0)];
        assert_eq!(lowered(&system, NodeId(0)).unwrap_err().task, "guest");
    }
}
