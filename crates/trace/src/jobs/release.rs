//! From wake-ups to releases: which wake-up of a thread releases its next job, and when the job
//! arrived.

use takt_log::{Event, JobKey, Parent, Sink};
use takt_model::{Span, Time};

use super::thread::{Place, Stage, Woken};
use super::{Rebuilder, STREAM};
use crate::event::{Context, KernelEvent, Pid, Thread as KernelThread, Waking};

/// A thread that is no longer ready leaves its CPU within this time. A wake-up in between makes it
/// ready again.
const SETTLES: Span = Span::from_us(100);

impl Rebuilder {
    #[inline(always)]
    pub(super) fn wake(&mut self, event: &KernelEvent, seen: &KernelThread, waking: Waking, sink: &mut impl Sink) {
        if seen.pid == 0 {
            return;
        }
        let waker = (event.context == Context::Thread && event.pid != 0 && event.pid != seen.pid).then_some(event.pid);
        let now = self.now;
        if waking == Waking::New {
            self.begin(seen, sink);
            return;
        }
        let (slot, thread) = self.meet(seen, sink);
        let released = match thread.place {
            Place::Asleep if thread.woken.is_some() => {
                self.wake_again(slot, waking, waker, sink);
                false
            }
            Place::Asleep => self.mark_ready(slot, sink),
            Place::Unknown => {
                thread.place = Place::Ready;
                false
            }
            Place::Running => {
                self.wake_running(slot, event.cpu, waking, waker, sink);
                false
            }
            Place::Ready => false,
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
        let between = matches!(thread.stage, Stage::Between { .. });
        let parent = if between { self.parent(slot, waker, sink) } else { None };
        self.threads.at(slot).woken = Some(Woken { at, waker, parent, spent });
    }

    /// A sleeping thread is woken that was also woken when it went to sleep. Either this event puts
    /// it into a queue for the earlier wake-up, or the earlier wake-up is spent.
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
    pub(super) fn leave_woken(&mut self, slot: usize, sink: &mut impl Sink) {
        let now = self.now;
        let thread = self.threads.at(slot);
        let Some(woken) = thread.woken.take() else { return };
        let between = matches!(thread.stage, Stage::Between { .. });
        match thread.place {
            Place::Asleep if !woken.spent && now.saturating_since(woken.at) <= SETTLES => {
                let parent = if between { woken.parent.or(self.parent(slot, woken.waker, sink)) } else { None };
                self.threads.at(slot).woken = Some(Woken { parent, ..woken });
            }
            Place::Ready if between => self.release_woken(slot, woken, sink),
            _ => {}
        }
    }

    /// A thread begins. It has no job before its first boundary.
    #[cold]
    fn begin(&mut self, seen: &KernelThread, sink: &mut impl Sink) {
        if self.threads.get_mut(seen.pid).is_some_and(|thread| thread.task.is_some()) {
            // Its id belonged to a thread whose end was not recorded.
            self.threads.remove(seen.pid);
            self.options.known.remove(&seen.pid);
        }
        let (_, thread) = self.meet(seen, sink);
        thread.forget();
        thread.place = Place::Ready;
    }

    /// A sleeping thread was woken; says whether that releases its next job.
    #[inline(always)]
    fn mark_ready(&mut self, slot: usize, sink: &mut impl Sink) -> bool {
        let thread = self.threads.at(slot);
        thread.place = Place::Ready;
        if thread.stage == Stage::Started {
            sink.event(STREAM, self.now, &Event::Wake { job: thread.job });
        }
        matches!(thread.stage, Stage::Between { .. })
    }

    /// Releases the next job of a thread that is woken at `at`, now.
    #[inline(always)]
    fn release_at_wake(&mut self, slot: usize, at: Time, waker: Option<Pid>, sink: &mut impl Sink) {
        // Woken before its time: by a signal.
        let timer = self.threads.at(slot).timer.take().filter(|timer| *timer <= at);
        let parent = if timer.is_none() { self.parent(slot, waker, sink) } else { None };
        self.release_here(slot, timer.unwrap_or(at), None, parent, sink);
    }

    /// The same of one that was woken a moment ago.
    #[cold]
    pub(super) fn release_woken(&mut self, slot: usize, woken: Woken, sink: &mut impl Sink) {
        let timer = self.threads.at(slot).timer.take().filter(|timer| *timer <= woken.at);
        let parent = woken.parent.filter(|_| timer.is_none());
        self.release_here(slot, timer.unwrap_or(woken.at), None, parent, sink);
    }

    /// Puts the thread's next job behind the open job of `waker`, if it has one.
    #[inline(always)]
    fn parent(&mut self, slot: usize, waker: Option<Pid>, sink: &mut impl Sink) -> Option<Parent> {
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

    /// Releases the thread's next job; it arrived at `arrival`, or between `earliest` and that.
    #[inline(never)]
    pub(super) fn release(&mut self, slot: usize, arrival: Time, earliest: Option<Time>, sink: &mut impl Sink) {
        self.release_here(slot, arrival, earliest, None, sink);
    }

    /// [`Rebuilder::release`], inlined; the job follows `parent`, which [`Rebuilder::parent`]
    /// found.
    #[inline(always)]
    fn release_here(
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
        let job = JobKey { task, number: thread.next };
        thread.job = job;
        let arrival = arrival.max(thread.arrival).min(now);
        thread.next += 1;
        let earliest = earliest.map(|earliest| earliest.max(thread.arrival)).filter(|earliest| *earliest < arrival);
        (thread.arrival, thread.stage, thread.yielded) = (earliest.unwrap_or(arrival), Stage::Released, false);
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
