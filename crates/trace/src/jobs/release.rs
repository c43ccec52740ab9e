//! From wake-ups to releases: which wake-up of a thread releases its next job, and when the job
//! arrived.

use takt_log::{Event, JobKey, Parent, Sink};
use takt_model::{Span, Time};

use super::thread::{JobState, RunState, Wakeup};
use super::{Rebuilder, STREAM};
use crate::event::{Context, KernelEvent, Pid, Thread as KernelThread, Waking};

/// The longest time from the end of a thread's readiness until it leaves its CPU. A wake-up in
/// between makes it ready again.
const LEAVE_TIME_MAX: Span = Span::from_us(100);

impl Rebuilder {
    #[inline(always)]
    pub(super) fn wake(&mut self, event: &KernelEvent, seen: &KernelThread, waking: Waking, sink: &mut impl Sink) {
        if seen.pid == 0 {
            return;
        }
        let waker = (event.context == Context::Thread && event.pid != 0 && event.pid != seen.pid).then_some(event.pid);
        let now = self.now;
        if waking == Waking::New {
            self.thread_created(seen, sink);
            return;
        }
        let (slot, thread) = self.thread_of(seen, sink);
        let released = match thread.run_state {
            RunState::Asleep if thread.woken.is_some() => {
                self.wake_again(slot, waking, waker, sink);
                false
            }
            RunState::Asleep => self.mark_ready(slot, sink),
            RunState::Unknown => {
                thread.run_state = RunState::Ready;
                false
            }
            RunState::Running => {
                self.wake_running(slot, event.cpu, waking, waker, sink);
                false
            }
            RunState::Ready => false,
        };
        if released {
            self.release_at_wake(slot, now, waker, sink);
        }
    }

    /// A thread that still has its CPU is woken. If its own CPU wakes it, it has not begun to
    /// leave. The same holds if the wake-up puts it into no queue of ready threads. Then it goes
    /// on, and its next sleep needs another wake-up.
    #[cold]
    fn wake_running(&mut self, slot: usize, cpu: u32, waking: Waking, waker: Option<Pid>, sink: &mut impl Sink) {
        let at = self.now;
        let thread = self.threads.at(slot);
        if waking != Waking::Begins {
            if let Some(woken) = &mut thread.woken {
                woken.spent = true;
            }
            return;
        }
        let spent = cpu == thread.cpu;
        let between = matches!(thread.job_state, JobState::Between { .. });
        let parent = if between { self.link_to_waker(slot, waker, sink) } else { None };
        self.threads.at(slot).woken = Some(Wakeup { at, waker, parent, spent });
    }

    /// A sleeping thread is woken. It was also woken while it went to sleep. Either this event queues
    /// it for the earlier wake-up, or the earlier wake-up is spent.
    #[cold]
    fn wake_again(&mut self, slot: usize, waking: Waking, waker: Option<Pid>, sink: &mut impl Sink) {
        let before = self.threads.at(slot).woken.take();
        if !self.mark_ready(slot, sink) {
            return;
        }
        match before {
            Some(woken) if waking == Waking::Queued => self.release_woken(slot, woken, sink),
            _ => self.release_at_wake(slot, self.now, waker, sink),
        }
    }

    /// A thread that was woken while it had its CPU leaves it. The wake-up releases its next job if
    /// the thread was on its way to sleep and is ready again. If it sleeps, the wake-up may have
    /// come when it was no longer ready and still had its CPU. Its next event decides.
    #[cold]
    pub(super) fn switch_out_woken(&mut self, slot: usize, sink: &mut impl Sink) {
        let now = self.now;
        let thread = self.threads.at(slot);
        let Some(woken) = thread.woken.take() else { return };
        let between = matches!(thread.job_state, JobState::Between { .. });
        match thread.run_state {
            RunState::Asleep if !woken.spent && now.saturating_since(woken.at) <= LEAVE_TIME_MAX => {
                let parent = if between { woken.parent.or(self.link_to_waker(slot, woken.waker, sink)) } else { None };
                self.threads.at(slot).woken = Some(Wakeup { parent, ..woken });
            }
            RunState::Ready if between => self.release_woken(slot, woken, sink),
            _ => {}
        }
    }

    /// A thread begins. It has no job before its first boundary.
    #[cold]
    fn thread_created(&mut self, seen: &KernelThread, sink: &mut impl Sink) {
        if self.threads.get_mut(seen.pid).is_some_and(|thread| thread.task.is_some()) {
            // Its id belonged to a thread whose end was not recorded.
            self.threads.remove(seen.pid);
            self.options.reservations.remove(&seen.pid);
        }
        let (_, thread) = self.thread_of(seen, sink);
        thread.forget();
        thread.run_state = RunState::Ready;
    }

    /// A sleeping thread was woken. Returns whether this releases its next job.
    #[inline(always)]
    fn mark_ready(&mut self, slot: usize, sink: &mut impl Sink) -> bool {
        let thread = self.threads.at(slot);
        thread.run_state = RunState::Ready;
        if thread.job_state == JobState::Started {
            sink.event(STREAM, self.now, &Event::Wake { job: thread.job });
        }
        matches!(thread.job_state, JobState::Between { .. })
    }

    /// Releases the next job of a thread that is woken now, at `at`.
    #[inline(always)]
    fn release_at_wake(&mut self, slot: usize, at: Time, waker: Option<Pid>, sink: &mut impl Sink) {
        // A signal woke it before its timer's expiry.
        let timer = self.threads.at(slot).timer.take().filter(|timer| *timer <= at);
        let parent = if timer.is_none() { self.link_to_waker(slot, waker, sink) } else { None };
        self.release_inlined(slot, timer.unwrap_or(at), None, parent, sink);
    }

    /// Releases the next job of a thread that was woken shortly before.
    #[cold]
    pub(super) fn release_woken(&mut self, slot: usize, woken: Wakeup, sink: &mut impl Sink) {
        let timer = self.threads.at(slot).timer.take().filter(|timer| *timer <= woken.at);
        let parent = woken.parent.filter(|_| timer.is_none());
        self.release_inlined(slot, timer.unwrap_or(woken.at), None, parent, sink);
    }

    /// Puts the thread's next job behind the open job of `waker`, if it has one.
    #[inline(always)]
    fn link_to_waker(&mut self, slot: usize, waker: Option<Pid>, sink: &mut impl Sink) -> Option<Parent> {
        let waker = waker?;
        let task = self.task(slot, sink)?;
        self.threads.link(waker, slot, task)
    }

    /// A thread that went to sleep at `since` is awake. It was woken while it went to sleep, or the
    /// wake-up was not recorded. In the latter case its timer woke it, if the timer has expired.
    pub(super) fn release_unwoken(&mut self, slot: usize, since: Time, sink: &mut impl Sink) {
        let now = self.now;
        let thread = self.threads.at(slot);
        if let Some(woken) = thread.woken.take() {
            self.release_woken(slot, woken, sink);
            return;
        }
        match thread.timer.take().filter(|timer| *timer <= now) {
            Some(timer) => self.release(slot, timer, None, sink),
            None => self.release(slot, now, Some(since), sink),
        }
    }

    /// Releases the thread's next job. It arrived at `arrival`, or between `earliest` and `arrival`.
    #[inline(never)]
    pub(super) fn release(&mut self, slot: usize, arrival: Time, earliest: Option<Time>, sink: &mut impl Sink) {
        self.release_inlined(slot, arrival, earliest, None, sink);
    }

    /// [`Rebuilder::release`], inlined. The job follows `parent` of [`Rebuilder::link_to_waker`].
    #[inline(always)]
    fn release_inlined(
        &mut self,
        slot: usize,
        arrival: Time,
        earliest: Option<Time>,
        parent: Option<Parent>,
        sink: &mut impl Sink,
    ) {
        let Some(task) = self.task(slot, sink) else { return };
        let now = self.now;
        if parent.is_some() {
            self.define_chain(slot, task, sink);
        }
        let thread = self.threads.at(slot);
        let job = JobKey { task, number: thread.next_number };
        thread.job = job;
        let arrival = arrival.max(thread.arrival).min(now);
        thread.next_number += 1;
        let earliest = earliest.map(|earliest| earliest.max(thread.arrival)).filter(|earliest| *earliest < arrival);
        (thread.arrival, thread.job_state, thread.yielded) = (earliest.unwrap_or(arrival), JobState::Released, false);
        if parent.is_none() {
            thread.start_chain(arrival);
        }
        if let Some(earliest) = earliest {
            sink.event(STREAM, now, &Event::Window { job, earliest });
        }
        // Two calls, so that the compiler knows the kind of record in each.
        match parent {
            None => sink.event(STREAM, now, &Event::Release { job, arrival, parent: None }),
            Some(_) => sink.event(STREAM, now, &Event::Release { job, arrival, parent }),
        }
    }
}
