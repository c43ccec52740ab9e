//! The thread of a task.
//!
//! A source sleeps, absolutely, until the next release; a successor in a chain waits on a futex
//! until all its predecessors have completed. Either then works and stamps: release, start,
//! completion. On this path nothing allocates, locks or does I/O: a stamp is a vDSO clock read and
//! four stores into a ring of the thread's own.
//!
//! Under a budget manager a thread waits until the manager gives it a job. It reports the start and the
//! completion of the job.
//!
//! A job that arrives while its thread is busy is still released at its nominal release. The
//! recorder adds the release, because both know the arrivals.

use std::sync::atomic::Ordering;

use takt_dispatch::gate::{STACK_TOUCHED, wait_for_go};
use takt_linux::thread::{Tid, current_cpu, yield_now};
use takt_linux::{Class, ClassGuard, Epoch, SchedError, clock, futex, sched};
use takt_model::draw::{Arrivals, Draw, Releases};
use takt_model::{Span, Task, Time};

use crate::budgets::seat::Seat;
use crate::handlers::{JobTimes, TaskHandler};
use crate::lanes::{Kind, Lane, Record, Role, Shared};
use crate::manager::helpers::{look, send};
use crate::membership::Membership;
use crate::work::{Work, Worked};

/// Marks the thread as ended when dropped, also after a panic.
struct MarkEnded<'a>(&'a Lane);

impl Drop for MarkEnded<'_> {
    fn drop(&mut self) {
        self.0.floor.store(u64::MAX, Ordering::Release);
        self.0.done.store(true, Ordering::Release);
    }
}

/// Runs a thread from start to end. `ready` gets the result of setting its CPUs and its class.
pub(crate) fn live(
    shared: &Shared,
    lane: &Lane,
    (mut work, task_handler): (Work, Option<TaskHandler>),
    enter_cpus: impl FnOnce() -> Result<(), SchedError>,
    ready: impl FnOnce(Result<(), SchedError>),
) {
    let _ended = MarkEnded(lane);
    lane.tid.store(Tid::current().get(), Ordering::Release);
    let setup = if let Role::Manager(manager) = &lane.role { manager.setup(shared) } else { None };
    let _obedience = if let Role::Managed(seat) = &lane.role { Some(seat.freezer.obey()) } else { None };
    let entered = enter_cpus().and_then(|()| {
        takt_linux::memory::prefault_stack::<STACK_TOUCHED>();
        work.calibrate();
        ClassGuard::enter_in_domain(&lane.class)
    });
    let entered = entered.and_then(|guard| read_back(&lane.class).map(|()| guard));
    let join = |guard| lane.membership.as_ref().map_or(Ok(()), Membership::join).map(|()| guard);
    let entered = entered.and_then(join);
    let _class = match entered {
        Ok(guard) => {
            let known = matches!(lane.class, Class::Deadline(_)) && sched::scheduling_deadline().is_some();
            lane.throttles_known.store(known, Ordering::Release);
            ready(Ok(()));
            guard
        }
        Err(error) => return ready(Err(error)),
    };
    let Some(epoch) = wait_for_go(&shared.go, &shared.epoch) else { return };
    if let (Role::Manager(manager), Some(setup)) = (&lane.role, setup) {
        return manager.run(shared, lane, setup, epoch);
    }
    match &lane.role {
        Role::IdleDetector(seat) => seat.run(shared, epoch),
        Role::Look(manager) => look(shared, *manager, epoch),
        Role::Sender(manager) => send(shared, *manager, epoch),
        _ => {}
    }
    if lane.role.helper().is_some() {
        return lane.used_ns.store(clock::thread_cpu().as_ns(), Ordering::Release);
    }
    let Some(task) = shared.task(lane.task) else { return };
    let draw = Draw::new(shared.seed, &task.name);
    let is_source =
        task_handler.as_ref().is_some_and(|task_handler| task_handler.hop().unwrap_or(0) == 0) && task.after.is_empty();
    let mut thread = Thread {
        shared,
        lane,
        epoch,
        task,
        work,
        task_handler,
        told: is_source.then(|| released_from(shared, task, draw)),
        draw,
        last: Time::ZERO,
        used: Span::ZERO,
    };
    thread.used = clock::thread_cpu();
    match &lane.role {
        Role::Managed(seat) => thread.serve(seat),
        _ if lane.after.is_empty() => thread.source(),
        _ => thread.successor(),
    }
}

/// The releases of a task, without the jobs that a node leaves out because it starts late.
fn released_from<'a>(shared: &Shared, task: &'a Task, draw: Draw) -> Releases<'a> {
    let mut releases = Releases::new(Arrivals::new(task, draw), shared.duration);
    releases.begin_at(shared.begin());
    releases
}

/// Whether the kernel keeps the reservation that it was asked for.
fn read_back(class: &Class) -> Result<(), SchedError> {
    let has = sched::current();
    if !matches!(class, Class::Deadline(_)) || has == *class {
        return Ok(());
    }
    Err(SchedError::Other { class: class.describe(), cause: format!("the kernel keeps {}", has.describe()) })
}

struct Thread<'a> {
    shared: &'a Shared,
    lane: &'a Lane,
    epoch: Epoch,
    task: &'a Task,
    work: Work,
    /// Carries out the jobs in place of the work.
    task_handler: Option<TaskHandler>,
    /// The releases that the handler of a first task is told of.
    told: Option<Releases<'a>>,
    draw: Draw,
    /// The last stamp.
    last: Time,
    /// The thread's CPU time when the last job completed.
    used: Span,
}

impl<'a> Thread<'a> {
    fn source(&mut self) {
        let all = || Releases::new(Arrivals::new(self.task, self.draw), self.shared.duration);
        let mut releases = all();
        // Those of the jobs to run, for a scheduler that orders them.
        let mut told = self.lane.membership.as_ref().map(|membership| (membership, all()));
        let (epoch, deadline) = (self.epoch, self.task.deadline);
        let mut tell = move || {
            let Some((membership, jobs)) = &mut told else { return };
            if let Some(job) = jobs.next_if(|_| true) {
                membership.announce_job(epoch, job.release, job.arrival.saturating_add(deadline));
            }
        };
        // The next job to run, and how many have been released.
        let (mut number, mut released) = (0u64, 0u64);
        loop {
            tell();
            if number == released {
                let Some(next) = releases.peek() else { return };
                if !self.sleep_until(next.release) {
                    return;
                }
                let woken = self.epoch.now();
                if woken >= self.shared.end() {
                    return;
                }
                self.push(woken, Kind::Release, next.number, next.arrival.as_ns());
                releases.advance();
                released += 1;
            } else if self.lane.yields {
                // Let waiting jobs of equal priority run first.
                yield_now();
            }
            if self.job(number) == Worked::Stopped {
                return;
            }
            number += 1;
            // Released while this thread was busy.
            while releases.peek().is_some_and(|next| next.release <= self.last) {
                releases.advance();
                released += 1;
            }
        }
    }

    fn successor(&mut self) {
        let mut number = 0u64;
        while self.wait_for(number) && self.job(number) == Worked::Done {
            number += 1;
        }
    }

    /// Works on the jobs that a manager gives.
    fn serve(&mut self, seat: &Seat) {
        let mut last = 0;
        loop {
            let seen = seat.word.load(Ordering::Acquire);
            let given = seat.given.load(Ordering::Acquire);
            let end = self.shared.end();
            if self.epoch.now() >= end || seat.leaves.load(Ordering::Acquire) {
                return;
            }
            if given == last || seat.is_abandoned(given) {
                futex::wait(&seat.word, seen, self.epoch, end);
                continue;
            }
            last = given;
            self.given_job(seat, given);
        }
    }

    /// Works on a job until it is complete or abandoned, or until the end of the run.
    fn given_job(&mut self, seat: &Seat, given: u64) {
        let (shared, epoch) = (self.shared, self.epoch);
        let before = clock::thread_cpu();
        self.used = before;
        seat.start(given, epoch.now());
        #[cfg(test)]
        crate::manager::greedy::misbehave(&self.task.name, &|| epoch.now() >= shared.end());
        let until = || if seat.is_abandoned(given) { Time::ZERO } else { shared.end() };
        let (worked, demand) = self.work_on(given - 1, before, until);
        let end = epoch.now();
        if worked == Worked::Stopped || end > shared.end() {
            return;
        }
        seat.complete(given, end);
        self.account(demand, None);
        if let Some(manager) = shared.lanes.get(seat.manager) {
            manager.wake();
        }
    }

    fn job(&mut self, number: u64) -> Worked {
        let reserved = self.lane.throttles_known.load(Ordering::Relaxed);
        let deadline = if reserved { sched::scheduling_deadline() } else { None };
        let before = clock::thread_cpu();
        let start = self.epoch.now();
        if start >= self.shared.end() {
            return Worked::Stopped;
        }
        self.push(start, Kind::Start, number, cpu());
        let shared = self.shared;
        let (worked, demand) = self.work_on(number, before, || shared.end());
        let end = self.epoch.now();
        if worked == Worked::Stopped || end > self.shared.end() {
            // The job may still have used up its reservation.
            self.count_overrun(clock::thread_cpu().saturating_sub(self.used));
            return Worked::Stopped;
        }
        self.push(end, Kind::Complete, number, cpu());
        self.lane.completed.store(number + 1, Ordering::Release);
        for lane in self.lane.before.iter().filter_map(|lane| shared.lanes.get(*lane)) {
            lane.wake();
        }
        self.account(demand, deadline);
        Worked::Done
    }

    /// Works on a job until it is complete, or until `end`. The demand of a program's job is its CPU time.
    fn work_on(&mut self, number: u64, before: Span, end: impl Fn() -> Time) -> (Worked, Span) {
        let times = self.times(number);
        let Some(task_handler) = &mut self.task_handler else {
            let demand = self.draw.exec(self.task, number);
            return (self.work.until(before.saturating_add(demand), self.epoch, end), demand);
        };
        task_handler.run(number, times, self.epoch);
        let worked = if end() == Time::ZERO { Worked::Stopped } else { Worked::Done };
        (worked, clock::thread_cpu().saturating_sub(before))
    }

    /// The times of a job, for its handler. Jobs come in the order of their numbers.
    fn times(&mut self, number: u64) -> Option<JobTimes> {
        let (arrival, release) = match &mut self.told {
            Some(told) => {
                while told.next_if(|job| job.number < number).is_some() {}
                told.next_if(|job| job.number == number).map(|job| (job.arrival, job.release))?
            }
            None => self.task_handler.as_ref()?.released(number)?,
        };
        Some(JobTimes { arrival, release, deadline: arrival.saturating_add(self.task.deadline) })
    }

    /// CPU time of the job that has just completed, checked against its reservation.
    fn account(&mut self, demand: Span, deadline_before: Option<u64>) {
        let now = clock::thread_cpu();
        let used = now.saturating_sub(self.used);
        self.used = now;
        self.lane.demanded_ns.fetch_add(demand.as_ns(), Ordering::Relaxed);
        self.lane.used_ns.fetch_add(used.as_ns(), Ordering::Relaxed);
        self.count_overrun(used);
        let Class::Deadline(reservation) = self.lane.class else { return };
        if let (Some(before), Some(after)) = (deadline_before, sched::scheduling_deadline()) {
            let period = reservation.period.as_ns().max(1);
            // The kernel's value wavers by some nanoseconds, but advances by whole periods.
            let moved = after.saturating_sub(before).saturating_add(period / 2) / period;
            self.lane.throttled.fetch_add(moved, Ordering::Relaxed);
        }
    }

    fn count_overrun(&self, used: Span) {
        if matches!(self.lane.class, Class::Deadline(reservation) if used > reservation.runtime) {
            self.lane.overruns.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn push(&mut self, at: Time, kind: Kind, number: u64, value: u64) {
        // Clocks of CPUs agree. If they did not, the stream would still never go back.
        self.last = at.max(self.last);
        self.lane.ring.push(Record { at: self.last, kind, number, value }.to_words());
        self.lane.floor.store(self.last.as_ns(), Ordering::Release);
    }

    /// Returns `false` if the run ended first.
    fn sleep_until(&mut self, time: Time) -> bool {
        self.lane.floor.store(time.max(self.last).as_ns(), Ordering::Release);
        while self.epoch.now() < self.shared.end() {
            if self.epoch.sleep_until(time) {
                return true;
            }
        }
        false
    }

    /// Waits until all predecessors have completed their job `number`; `false` if the run ended
    /// first.
    fn wait_for(&self, number: u64) -> bool {
        let lanes = &self.shared.lanes;
        loop {
            let seen = self.lane.signal.load(Ordering::Acquire);
            let mut before = self.lane.after.iter().filter_map(|lane| lanes.get(*lane));
            if before.all(|lane| lane.completed.load(Ordering::Acquire) > number) {
                return true;
            }
            let end = self.shared.end();
            if self.epoch.now() >= end {
                return false;
            }
            futex::wait(&self.lane.signal, seen, self.epoch, end);
        }
    }
}

fn cpu() -> u64 {
    current_cpu().map_or(u64::MAX, u64::from)
}
