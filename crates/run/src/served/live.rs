//! The scheduler in the kernel during a run, and a thread on each CPU that makes it decide in time.
//!
//! A thread of SCHED_FIFO that wakes up takes the CPU from the thread of a component. When it sleeps again, the kernel
//! asks the scheduler whom to run. So waking up is all that it has to do. It sleeps until a server's next
//! replenishment or the end of its budget, but at most [`GRID`]. A server that begins to pay meanwhile may need an
//! earlier decision.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use takt_linux::sched_ext::{Member, SchedExtError, Scheduler, Shared};
use takt_linux::{Class, ClassGuard, Epoch, clock, sched};
use takt_log::stats::Histogram;
use takt_model::{ComponentId, Span, Time};

use super::groups::Groups;
use super::limits::Admit;
use super::news::Balance;
use super::plan::{AHEAD, Change, GRID, ServedPlan, given_first};
use crate::error::RunError;
use crate::membership::Membership;
use crate::{ForeignSummary, ManagerSummary, Prepared};

/// The shortest one. It bounds what the thread takes of the CPU.
const GRAIN: Span = Span::from_us(50);

/// The scheduler of a run. Dropping it gives the machine its own back.
pub(crate) struct Serving {
    scheduler: Arc<Mutex<Scheduler>>,
    shared: Arc<Shared>,
    wakers: Vec<Waker>,
    /// Changes of servers to come, the last one first, with the kernel's numbers of CPUs.
    changes: Vec<Change>,
    /// The change that came latest to the scheduler: its instant, and the lateness.
    latest: (Time, Span),
    groups: Groups,
    begun: Option<Epoch>,
}

struct Waker {
    /// The number of the CPU in the System, and in the kernel.
    cpus: (u32, u32),
    class: Class,
    state: Arc<WakerState>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct WakerState {
    is_over: AtomicBool,
    used_ns: AtomicU64,
    late: Mutex<Histogram>,
}

impl Serving {
    /// Loads the scheduler with the servers of the plan, and attaches it. `cpus` are the kernel's numbers.
    /// `admit` decides about what is written to cpu.max.
    pub(crate) fn open(
        prepared: &Prepared,
        plan: &ServedPlan,
        cpus: &[u32],
        admit: Admit,
    ) -> Result<Serving, RunError> {
        let groups = Groups::find(prepared, plan, cpus, admit)?;
        let kernel = |cpu: u32| cpus.get(cpu as usize).copied().unwrap_or(cpu);
        let servers: Vec<_> = plan.cpus.iter().map(|cpu| (kernel(cpu.cpu), cpu.entries.clone())).collect();
        let pool = |servers: &Vec<(u32, u32)>| servers.iter().map(|(cpu, server)| (kernel(*cpu), *server)).collect();
        let pools: Vec<Vec<(u32, u32)>> = plan.pools.iter().map(pool).collect();
        let members: Vec<Member> =
            plan.members.iter().map(|member| Member { cpu: kernel(member.cpu), ..*member }).collect();
        let refused = |error: SchedExtError| RunError::NoScheduler { cause: error.to_string() };
        let mut scheduler = Scheduler::load(&servers, &pools, &members, &groups.groups()).map_err(refused)?;
        let shared = scheduler.shared();
        scheduler.attach().map_err(refused)?;
        let changes = plan.changes.iter().rev().map(|change| Change { cpu: kernel(change.cpu), ..*change }).collect();
        let scheduler = Arc::new(Mutex::new(scheduler));
        let latest = (Time::ZERO, Span::ZERO);
        let mut serving = Serving { scheduler, shared, wakers: Vec::new(), changes, latest, groups, begun: None };
        let class = Class::Fifo { priority: prepared.options.top_priority.max(1) };
        for cpu in &plan.cpus {
            serving.wakers.push(Waker::start((cpu.cpu, kernel(cpu.cpu)), class, serving.shared.clone())?);
        }
        Ok(serving)
    }

    /// The place of the task in this slot.
    pub(crate) fn membership(&self, slot: usize) -> Membership {
        Membership::new(self.shared.clone(), slot as u32)
    }

    /// The scheduler, for the reader of its events.
    pub(crate) fn scheduler(&self) -> Arc<Mutex<Scheduler>> {
        self.scheduler.clone()
    }

    /// The servers are in force from `epoch` on, for `duration`. Their first changes wait in the scheduler, so that
    /// nobody comes too late with them.
    pub(crate) fn begin(&mut self, epoch: Epoch, duration: Time) -> Result<(), RunError> {
        self.begun = Some(epoch);
        let changes = std::mem::take(&mut self.changes);
        let (first, later) = given_first(changes.into_iter().rev(), |change| self.groups.holds(change));
        self.changes = later.into_iter().rev().collect();
        let mut scheduler = self.scheduler.lock().unwrap_or_else(PoisonError::into_inner);
        for change in first {
            let terms = change.terms.from(epoch.monotonic(change.at).as_ns());
            let given = scheduler.change(change.cpu, change.server, terms);
            given.map_err(|error| RunError::NoScheduler { cause: error.to_string() })?;
        }
        self.shared.begin(epoch.monotonic(Time::ZERO).as_ns(), epoch.monotonic(duration).as_ns());
        Ok(())
    }

    /// Takes the scheduler's events, and gives it the changes of servers that come soon, and the end of the run.
    /// Returns the reason if the kernel has ended the scheduler.
    pub(crate) fn look(&mut self, now: Time, end: Time) -> Option<String> {
        let epoch = self.begun?;
        self.groups.scan(now);
        let mut scheduler = self.scheduler.lock().unwrap_or_else(PoisonError::into_inner);
        // They enter the log only when each thread has told what it did. One that never gets the CPU tells nothing.
        scheduler.read();
        let mut planned = || self.changes.pop_if(|change| change.at <= now.saturating_add(AHEAD));
        loop {
            let planned = planned().inspect(|change| {
                self.groups.given(change);
                let late = now.saturating_since(change.at);
                if late > self.latest.1 {
                    self.latest = (change.at, late);
                }
            });
            let Some(change) = planned.or_else(|| self.groups.granted(&self.shared, now)) else { break };
            let terms = change.terms.from(epoch.monotonic(change.at).as_ns());
            if let Err(error) = scheduler.change(change.cpu, change.server, terms) {
                return Some(error.to_string());
            }
        }
        self.shared.end(epoch.monotonic(end).as_ns());
        let ended = scheduler.ended().filter(|_| now < end)?;
        Some(format!("{} {}", ended.reason, ended.message).trim_end().to_owned())
    }

    /// Gives the machine its own scheduler back. All threads run on.
    pub(crate) fn end(&mut self) {
        for waker in &mut self.wakers {
            waker.end();
        }
        self.groups.stop();
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner).detach();
    }

    /// How the components of existing threads did, and notes.
    pub(crate) fn groups(&mut self, balances: &BTreeMap<ComponentId, Balance>) -> (Vec<ForeignSummary>, Vec<String>) {
        let (summaries, mut notes) = self.groups.end(balances);
        let (at, late) = self.latest;
        if !late.is_zero() {
            notes.push(format!(
                "the change of a server at {at} ([[mode]]) came to the scheduler {late} after its instant: it may hold \
                 from a later period on; use --backend manager if this must not be"
            ));
        }
        (summaries, notes)
    }

    /// How the CPUs fared, and events that were lost.
    pub(crate) fn summaries(&self, lasted: Span) -> (Vec<ManagerSummary>, u64) {
        let mut lost = 0;
        let summaries = self.wakers.iter().map(|waker| {
            let count = self.shared.count(waker.cpus.1);
            lost += count.lost;
            let used = Span::from_ns(waker.state.used_ns.load(Ordering::Acquire));
            let ppm = u128::from(used.as_ns()) * 1_000_000 / u128::from(lasted.as_ns().max(1));
            ManagerSummary {
                cpu: waker.cpus.0,
                cpus: vec![waker.cpus.0],
                class: waker.class.describe(),
                decisions: count.decisions,
                preemptions: count.preemptions,
                cost: None,
                late: waker.state.late.lock().unwrap_or_else(PoisonError::into_inner).summary(),
                late_replenishments: None,
                used,
                share_ppm: u64::try_from(ppm).unwrap_or(u64::MAX),
            }
        });
        (summaries.collect(), lost)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

impl Waker {
    fn start(cpus: (u32, u32), class: Class, shared: Arc<Shared>) -> Result<Waker, RunError> {
        let state = Arc::new(WakerState::default());
        let (own, (send, ready)) = (state.clone(), mpsc::channel());
        let name = format!("waker of CPU {}", cpus.0);
        let run = move || {
            let entered = sched::set_affinity(&[cpus.1]).and_then(|()| ClassGuard::enter(&class));
            match entered {
                Ok(_class) => {
                    let _ = send.send(Ok(()));
                    own.run(cpus.1, &shared);
                }
                Err(error) => drop(send.send(Err(error))),
            }
        };
        let spawned = std::thread::Builder::new().name(format!("takt {name}")).spawn(run);
        let handle = spawned.map_err(|error| RunError::Spawn { task: name.clone(), cause: error.to_string() })?;
        let waker = Waker { cpus, class, state, handle: Some(handle) };
        match ready.recv() {
            Ok(Ok(())) => Ok(waker),
            Ok(Err(error)) => Err(RunError::refused(&name, error)),
            Err(_) => Err(RunError::Panicked { task: name }),
        }
    }

    fn end(&mut self) {
        self.state.is_over.store(true, Ordering::Release);
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

impl WakerState {
    fn run(&self, cpu: u32, shared: &Shared) {
        let clock = Epoch::of_clock();
        let mut late = Histogram::default();
        let before = clock::thread_cpu();
        // The instant for which it woke up last. If nobody acts on it, something keeps the kernel from the CPU.
        let mut woken = Time::MAX;
        while !self.is_over.load(Ordering::Acquire) {
            let now = clock.now();
            let next = Time::from_ns(shared.next(cpu, now.as_ns()));
            let latest = now.saturating_add(GRID);
            let until = if next == woken { latest } else { next.min(latest).max(now.saturating_add(GRAIN)) };
            if clock.sleep_until(until) && next <= until && next != woken {
                woken = next;
                late.record(clock.now().saturating_since(next).as_ns());
            }
        }
        self.used_ns.store(clock::thread_cpu().saturating_sub(before).as_ns(), Ordering::Release);
        *self.late.lock().unwrap_or_else(PoisonError::into_inner) = late;
    }
}
