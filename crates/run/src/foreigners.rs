//! The existing threads of a run, from their adoption until they get back what they had.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use takt_linux::foreign::{ForeignError, ForeignGroup, WatchedThread};
use takt_linux::guard::Guard;
use takt_linux::hold::{Band, HeldGroup, Holder, Undone};
use takt_model::{Component, ComponentId, Span, TaskId, Threads};

use crate::budgets::foreign::{ForeignSeat, LOOK};
use crate::error::RunError;
use crate::foreign::{components, is_in};
use crate::lanes::{Lane, Role, Shared};
use crate::{ForeignSummary, Prepared};

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
