//! Components of existing threads under sched_ext: their control groups, and the cpu.max of these.
//!
//! The scheduler learns from the kernel which threads a group has. Nothing about a thread is changed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use takt_linux::ceiling::Ceiling;
use takt_linux::foreign::{self, ForeignControl, ForeignError, ForeignGroup};
use takt_linux::sched_ext::{Group, Shared};
use takt_model::{ComponentId, Span, Threads, Time};

use super::ceilings;
use super::limits::{Admit, Servers};
use super::news::Balance;
use super::plan::{Change, ServedPlan};
use crate::error::RunError;
use crate::{ForeignSummary, Prepared};

/// From one look at the threads of a group to the next.
const RESCAN: Span = Span::from_ms(100);
/// The most notes about cpu.max.
const NOTES_MAX: usize = 32;

pub(crate) struct Groups {
    held: Vec<ServedGroup>,
    servers: Servers,
    scanned: Option<Time>,
    notes: Vec<String>,
    more: usize,
}

/// One of them.
struct ServedGroup {
    component: ComponentId,
    name: String,
    threads: Threads,
    folder: PathBuf,
    meter: ForeignControl,
    /// CPU time before and after the run.
    used: (Span, Span),
    number: u64,
    member: u32,
    /// The kernel's number of its CPU.
    cpu: u32,
    /// The most threads that it had at a time.
    count: usize,
    /// The first thread that its server cannot hold.
    apart: Option<(u32, String)>,
    /// How often its cpu.max was written, as far as it is answered.
    answered: u64,
    /// Another group stands in its place.
    is_another: bool,
    /// A change that the scheduler has, but that does not hold yet.
    until: Time,
}

impl Groups {
    /// Finds the groups of the plan. `cpus` are the kernel's numbers. Nothing is changed.
    pub(crate) fn find(prepared: &Prepared, plan: &ServedPlan, cpus: &[u32], admit: Admit) -> Result<Groups, RunError> {
        let (system, node) = (&prepared.system, prepared.node);
        let mut held: Vec<ServedGroup> = Vec::new();
        let refused = |error: ForeignError| RunError::Foreign(error.into());
        for (slot, (_, task)) in (0..).zip(system.tasks_of(node)) {
            let Some(id) = task.component else { continue };
            let Some(component) = system.components.get(id.index()) else { continue };
            let (Some(threads), Some((cpu, _))) = (component.threads.clone(), plan.place_of(id)) else { continue };
            let group = ForeignGroup::find(&threads).map_err(refused)?;
            for other in &held {
                let around = ForeignGroup { folder: other.folder.clone(), process: None };
                if around.overlaps(&group) {
                    return Err(refused(ForeignError::Shared { threads, other: other.threads.clone() }));
                }
            }
            let cpu = cpus.get(cpu as usize).copied().unwrap_or(cpu);
            let ids = foreign::members(&group.folder);
            if let Some((id, why)) = ids.iter().find_map(|id| Some((*id, foreign::apart(*id, cpu)?))) {
                return Err(refused(ForeignError::Apart { threads, id, why }));
            }
            let number = foreign::number_of(&threads, &group.folder).map_err(refused)?;
            let meter = ForeignControl::open(&group.folder).map_err(refused)?;
            held.push(ServedGroup {
                component: id,
                name: component.name.clone(),
                threads,
                folder: group.folder,
                meter,
                used: (Span::ZERO, Span::ZERO),
                number,
                member: slot,
                cpu,
                count: ids.len(),
                apart: None,
                answered: 0,
                is_another: false,
                until: Time::ZERO,
            });
        }
        let ceiling = |held: &ServedGroup| {
            let ceiling = Ceiling::of(&held.folder)?;
            let name = &held.name;
            Some(format!(
                "component \"{name}\": the file's budget holds until another value than {ceiling} is written to cpu.max"
            ))
        };
        let notes = held.iter().filter_map(ceiling).collect();
        let servers = Servers::new(system, node, plan, (!prepared.options.force).then_some(admit));
        Ok(Groups { held, servers, scanned: None, notes, more: 0 })
    }

    /// For the scheduler.
    pub(crate) fn groups(&self) -> Vec<Group> {
        self.held.iter().map(|held| Group { number: held.number, member: held.member }).collect()
    }

    /// The scheduler is about to go.
    pub(crate) fn stop(&mut self) {
        for held in &mut self.held {
            held.used.1 = held.meter.used().unwrap_or_default();
        }
    }

    /// Whether the change is one of a server with a control group. CPUs are the kernel's.
    pub(crate) fn holds(&self, change: &Change) -> bool {
        let server = |held: &ServedGroup| self.servers.place(held.component).map(|(_, server)| server);
        self.held.iter().any(|held| held.cpu == change.cpu && server(held) == Some(change.server))
    }

    /// The scheduler has a change of this server (the kernel's CPU) that holds from `at` on.
    pub(crate) fn given(&mut self, change: &Change) {
        for held in &mut self.held {
            let server = self.servers.place(held.component).map(|(_, server)| server);
            if held.cpu == change.cpu && server == Some(change.server) {
                held.until = held.until.max(change.at);
            }
        }
    }

    /// Looks at the threads from time to time. The servers are in force since time zero.
    pub(crate) fn scan(&mut self, now: Time) {
        if now == Time::ZERO || self.scanned.is_some_and(|last| now < last.saturating_add(RESCAN)) {
            return;
        }
        let is_first = self.scanned.replace(now).is_none();
        for held in &mut self.held {
            if is_first {
                held.used.0 = held.meter.used().unwrap_or_default();
            }
            if !held.is_another && foreign::number_of(&held.threads, &held.folder).is_ok_and(|now| now != held.number) {
                held.is_another = true;
                self.notes.push(format!(
                    "component \"{}\": {} was made anew during the run; threads of the new one have no server",
                    held.name, held.threads
                ));
            }
            let ids = foreign::members(&held.folder);
            held.count = held.count.max(ids.len());
            if held.apart.is_none() {
                held.apart = ids.iter().find_map(|id| Some((*id, foreign::apart(*id, held.cpu)?)));
            }
        }
    }

    /// The next change by a cpu.max, written since the last call, that is granted. CPUs are the kernel's.
    pub(crate) fn granted(&mut self, shared: &Shared, now: Time) -> Option<Change> {
        for held in &mut self.held {
            let Some(written) = shared.written(held.member).filter(|written| written.count > held.answered) else {
                continue;
            };
            // A mode of the file that the scheduler has already comes first.
            if now <= held.until {
                continue;
            }
            held.answered = written.count;
            let (quota, period) = (written.quota_us, Span::from_us(written.period_us));
            let asked = quota.map_or("max".to_owned(), |quota| format!("{} in {period}", Span::from_us(quota)));
            let at = Span::from_ms(now.as_ns() / 1_000_000);
            let (answer, granted) = match self.servers.ask(held.component, now, written) {
                Ok(granted) => {
                    let (budget, period) = (Span::from_ns(granted.terms.budget), Span::from_ns(granted.terms.period));
                    (format!("it is {budget} in {period} from the end of its period on"), Some(granted))
                }
                Err(why) => (format!("refused: {why}; the server keeps what it has"), None),
            };
            if self.notes.len() < NOTES_MAX {
                let name = &held.name;
                self.notes.push(format!("cpu.max of component \"{name}\", {at} after the start: {asked}: {answer}"));
            } else {
                self.more += 1;
            }
            if let Some(granted) = granted {
                return Some(Change { cpu: held.cpu, ..granted });
            }
        }
        None
    }

    /// How each component did, and what the user must know.
    pub(crate) fn end(&mut self, balances: &BTreeMap<ComponentId, Balance>) -> (Vec<ForeignSummary>, Vec<String>) {
        self.scanned = self.scanned.map(|_| Time::ZERO);
        self.scan(Time::MAX);
        let mut notes = std::mem::take(&mut self.notes);
        if self.more > 0 {
            notes.push(format!("cpu.max was written {} more times", self.more));
        }
        let own: Vec<PathBuf> = self.held.iter().map(|held| held.folder.clone()).collect();
        notes.extend(ceilings::note(&own));
        let mut summaries = Vec::new();
        for held in std::mem::take(&mut self.held) {
            if let Some((id, why)) = held.apart {
                let name = &held.name;
                notes.push(format!("component \"{name}\": no server held thread {id}, and others like it: it {why}"));
            }
            let balance = balances.get(&held.component).copied().unwrap_or_default();
            summaries.push(ForeignSummary {
                component: held.name,
                threads: held.threads.to_string(),
                count: held.count,
                used: held.used.1.saturating_sub(held.used.0),
                turns: Span::from_ns(balance.paid),
                owed_max: Span::from_ns(balance.owed_max),
            });
        }
        (summaries, notes)
    }
}
