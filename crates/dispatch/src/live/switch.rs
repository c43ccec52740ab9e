//! Switches of plans on all CPUs of a dispatcher at once, and the controller.

use std::sync::atomic::Ordering;

use takt_linux::{Epoch, sched};
use takt_model::{Span, Time};

use super::Shared;
use super::cpu_state::{CpuState, LockedState};

/// The cost of a switch of plans. The time under the locks is bounded. At most one job of each
/// operation is examined and queued, and another job if the new plan drops the first. Each thread
/// gets a priority and is woken at most once. The other jobs that the new plan drops follow later,
/// for each CPU by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switched {
    /// Jobs that now wait at another level, or were dropped by the new plan: at most the first of
    /// each operation. Later drops are in the counts.
    pub moved: usize,
    /// How long the queues of all CPUs were locked.
    pub locked: Span,
    /// Threads whose new priority the kernel refused. They continue at their former one.
    pub refused: usize,
}

impl Shared {
    /// Switches all CPUs to another plan at one instant.
    pub(crate) fn switch(&self, plan: usize) -> Switched {
        let mut switched = Switched { moved: 0, locked: Span::ZERO, refused: 0 };
        self.switch_from(0, plan, &mut { Time::ZERO }, &mut switched);
        self.switched.fetch_add(1, Ordering::Relaxed);
        self.locked_ns.fetch_max(switched.locked.as_ns(), Ordering::Relaxed);
        self.release_followers((1u128 << self.cpu_states.len()) - 1);
        switched
    }

    /// Switches plans if the controller says so. Returns the latest time to ask it again.
    pub(super) fn control(&self, cpu: u32, cpu_state: &CpuState, epoch: Epoch) -> Time {
        let Some(controller) = &self.controller else { return Time::MAX };
        let (now, danger) = {
            let mut held = cpu_state.held.lock();
            (held.now(epoch), held.core.next_danger())
        };
        // Held until the switch is done, so that the controller knows the current plan.
        let mut held = controller.lock();
        let wanted = if danger.is_some_and(|danger| danger <= now) {
            held.endangered(now)
        } else if cpu == 0 && held.window_end() <= now {
            let past =
                |cpu_state: &CpuState| cpu_state.held.lock().core.first_danger().is_some_and(|danger| danger <= now);
            let danger = self.cpu_states.iter().any(past);
            held.window(now, danger, self.cpu_states.iter().map(|cpu_state| cpu_state.held.lock().core.busy(now)))
        } else {
            None
        };
        if let Some(plan) = wanted {
            self.switch(plan);
        }
        if cpu == 0 { held.window_end() } else { Time::MAX }
    }

    /// Takes the locks of this CPU and of the later ones, and then switches each. It does not
    /// allocate, because timer threads call it.
    fn switch_from(&self, cpu: usize, plan: usize, now: &mut Time, switched: &mut Switched) {
        let Some(cpu_state) = self.cpu_states.get(cpu) else { return };
        let mut held = cpu_state.held.lock();
        let locked = held.now(self.epoch());
        *now = locked.max(*now);
        self.switch_from(cpu + 1, plan, now, switched);
        self.holds.store(plan, Ordering::Relaxed);
        let held = &mut *held;
        held.last = *now;
        held.core.advance(*now);
        let mut changes = std::mem::take(&mut held.changes);
        switched.moved += held.core.switch(plan, *now, &mut changes);
        held.changes = changes;
        cpu_state.stop_dropped(held);
        held.core.release_followers(*now);
        held.core.compare(*now);
        let _ = held.core.take_moved();
        held.assign_roles();
        switched.refused += self.set_priorities(held);
        // A deadline may matter now that did not before, and a sleeping thread may serve another
        // level. Under the lock, because the switching thread may be less important than all of
        // them and lose its CPU.
        cpu_state.wake_all();
        switched.locked = switched.locked.max(self.epoch().now().saturating_since(locked));
    }

    /// Gives each thread the priority of its level in the current plan. Returns how often the
    /// kernel refused. Not after the stop: threads end then, and the kernel may reuse a thread's
    /// number.
    pub(super) fn set_priorities(&self, held: &mut LockedState) -> usize {
        let mut refused = 0;
        if held.stopping.is_some() {
            return refused;
        }
        let Some(priorities) = self.priorities.get(held.core.plan()) else { return refused };
        for worker in &mut held.workers {
            let wanted = priorities.get(worker.role as usize).copied();
            let Some((tid, wanted)) = worker.tid.zip(wanted.filter(|wanted| worker.priority != Some(*wanted))) else {
                continue;
            };
            match sched::reprioritize(tid, wanted) {
                Ok(()) => worker.priority = Some(wanted),
                Err(_) => refused += 1,
            }
        }
        self.refused.fetch_add(refused as u64, Ordering::Relaxed);
        refused
    }

    /// Whether a thread has the priority of its level, if none was refused.
    pub(super) fn goes_by_plan(&self, held: &LockedState, worker: usize) -> bool {
        let Some(worker) = held.workers.get(worker) else { return false };
        let wanted = self.priorities.get(held.core.plan()).and_then(|levels| levels.get(worker.role as usize));
        wanted.is_none_or(|wanted| worker.priority == Some(*wanted)) || self.refused.load(Ordering::Relaxed) > 0
    }
}
