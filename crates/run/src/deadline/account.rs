//! The events of servers in a run under SCHED_DEADLINE, derived from the events of their threads.
//!
//! The kernel reports when a thread has a CPU. It reports no budgets. This machine keeps each budget by the rule
//! of the kernel's constant-bandwidth server. It passes on all events and adds those of servers:
//!
//! | event | what it rests on |
//! |---|---|
//! | `charge` | seen: the thread had a CPU from `since` on. Waking and going to sleep are outside of jobs, and not charged |
//! | `server idle` | seen: the thread completed its last job |
//! | `exhaust` | seen: the kernel took the CPU from the thread. The budget that is left, by the charges, is at most the slack |
//! | `replenish` | computed: by the rule, from the times at which work came and from the charges |
//!
//! Work comes at t to an idle server with remaining budget q and deadline d. If q T >= (d - t) Q, the budget becomes Q
//! and the deadline t + T. A used-up budget gets Q more at the deadline, which moves by T. The kernel ends a budget at
//! a tick. So q may be negative, and the next budget pays for it.
//!
//! The machine takes the events of one instant together, as the simulator does. If the kernel lost events, the account
//! of a server is unknown until the server is idle.

use takt_log::{Definition, Event, JobKey, Sink};
use takt_model::{Span, Time};

/// A server by the kernel's rule. Budgets in nanoseconds, negative after an overrun.
#[derive(Clone, Debug)]
struct Watched {
    /// Its number in the log.
    server: u32,
    full: i64,
    period: Span,
    left: i64,
    /// Absolute; zero before the first work.
    deadline: Time,
    is_exhausted: bool,
    /// Jobs that are released and have not ended.
    jobs: u64,
    had_work: bool,
    /// Since when its thread has a CPU.
    began: Option<Time>,
    /// Up to where the budget paid for it.
    paid: Time,
    /// The kernel took the CPU from the thread, as it does at the end of a budget.
    is_stopped: bool,
    is_unknown: bool,
}

/// The servers of one stream. See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct ServerAccount {
    servers: Vec<Watched>,
    /// By task: the server of its component.
    of_tasks: Vec<Option<usize>>,
    /// CPU time of a job that no event tells of, at most.
    slack: i64,
    now: Time,
}

/// A server, its budget and its period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) server: u32,
    pub(crate) budget: Span,
    pub(crate) period: Span,
}

impl ServerAccount {
    /// `of_tasks` names the place in `servers` by task.
    pub(crate) fn new(servers: &[Terms], of_tasks: Vec<Option<usize>>, slack: Span) -> ServerAccount {
        let servers = servers.iter().map(|terms| Watched::new(*terms)).collect();
        ServerAccount { servers, of_tasks, slack: signed(slack), now: Time::ZERO }
    }

    /// Takes an event, and tells of servers up to its instant.
    fn take(&mut self, at: Time, event: &Event, tell: &mut impl FnMut(Time, Event)) {
        self.advance(at, tell);
        match *event {
            Event::Release { job, .. } => self.with(job, |server, _| server.jobs += 1),
            Event::Start { job, .. } | Event::Resume { job, .. } => {
                self.with(job, Watched::begin);
            }
            // If another reserved thread goes on, the log calls the end of a budget a preemption.
            Event::Preempt { job, .. } | Event::Block { job, .. } => {
                self.leaves(job, tell, |server| server.is_stopped = true);
            }
            Event::Complete { job, .. } | Event::Cancel { job, .. } => {
                self.leaves(job, tell, |server| server.jobs = server.jobs.saturating_sub(1));
            }
            Event::Gap { job } => self.with(job, |server, _| server.forget()),
            Event::Lost { .. } => self.servers.iter_mut().for_each(Watched::forget),
            _ => {}
        }
    }

    fn with(&mut self, job: JobKey, change: impl FnOnce(&mut Watched, Time)) {
        let server = self.of_tasks.get(job.task.index()).copied().flatten();
        if let Some(server) = server.and_then(|at| self.servers.get_mut(at)) {
            change(server, self.now);
        }
    }

    /// The thread of the job leaves its CPU.
    fn leaves(&mut self, job: JobKey, tell: &mut impl FnMut(Time, Event), change: impl FnOnce(&mut Watched)) {
        self.with(job, |server, at| {
            server.charge(at, tell);
            change(server);
        });
    }

    /// Carries out what happens before `at`.
    fn advance(&mut self, at: Time, tell: &mut impl FnMut(Time, Event)) {
        while self.now < at {
            self.end_instant(tell);
            let next = self.servers.iter().filter_map(Watched::next_change).fold(at, Time::min);
            self.now = next.max(self.now);
        }
    }

    /// Ends an instant.
    fn end_instant(&mut self, tell: &mut impl FnMut(Time, Event)) {
        let (now, slack) = (self.now, self.slack);
        self.servers.iter_mut().for_each(|server| server.end_instant(now, slack, tell));
    }

    /// Tells of what servers did before the end, and of their payments up to it.
    fn finish(&mut self, end: Time, tell: &mut impl FnMut(Time, Event)) {
        self.advance(end, tell);
        let now = self.now;
        self.servers.iter_mut().for_each(|server| server.charge(now, tell));
    }
}

impl Watched {
    fn new(Terms { server, budget, period }: Terms) -> Watched {
        Watched {
            server,
            full: signed(budget),
            period,
            left: 0,
            deadline: Time::ZERO,
            is_exhausted: false,
            jobs: 0,
            had_work: false,
            began: None,
            paid: Time::ZERO,
            is_stopped: false,
            is_unknown: false,
        }
    }

    fn forget(&mut self) {
        (self.is_unknown, self.began, self.is_stopped) = (true, None, false);
    }

    /// When it changes by itself. While its thread has a CPU, only a budget that ends after the deadline does
    /// something: the kernel renews it at once. Before the deadline the kernel takes the CPU, and an event tells.
    fn next_change(&self) -> Option<Time> {
        if self.is_unknown {
            return None;
        }
        if self.began.is_some() {
            let left = Span::from_ns(u64::try_from(self.left).unwrap_or(0));
            return Some(self.paid.saturating_add(left).max(self.deadline));
        }
        self.is_exhausted.then_some(self.deadline)
    }

    /// Its thread gets a CPU.
    fn begin(&mut self, now: Time) {
        if self.began.is_none() {
            (self.began, self.paid) = (Some(now), now);
        }
    }

    fn use_budget(&mut self, now: Time) {
        self.left = self.left.saturating_sub(signed(now.saturating_since(self.paid)));
        self.paid = now;
    }

    /// Its thread leaves its CPU. The charge is told only now: before, a missing switch may still turn up.
    fn charge(&mut self, now: Time, tell: &mut impl FnMut(Time, Event)) {
        let Some(since) = self.began.take().filter(|since| *since < now && !self.is_unknown) else { return };
        self.use_budget(now);
        let amount = now.saturating_since(since);
        tell(now, Event::Charge { server: self.server, since, amount, idle: false });
    }

    fn end_instant(&mut self, now: Time, slack: i64, tell: &mut impl FnMut(Time, Event)) {
        let server = self.server;
        let has_work = self.jobs > 0;
        if self.is_unknown {
            // From the next work of an idle server on all is known.
            self.is_unknown = has_work;
            self.had_work = has_work;
            (self.deadline, self.left, self.is_exhausted) = (Time::ZERO, 0, false);
            return;
        }
        let had_deadline = self.deadline > Time::ZERO;
        if self.began.is_some() && self.deadline <= now {
            self.use_budget(now);
        }
        let is_stopped = std::mem::take(&mut self.is_stopped) && self.left <= slack;
        let ends = self.left <= 0 && (self.began.is_none() || self.deadline <= now);
        if had_deadline && !self.is_exhausted && (is_stopped || ends) {
            self.is_exhausted = true;
            self.left = self.left.min(0);
            tell(now, Event::Exhaust { server });
        }
        if self.is_exhausted && self.deadline <= now {
            self.left = self.left.saturating_add(self.full);
            self.deadline = self.deadline.saturating_add(self.period);
            self.is_exhausted = self.left <= 0;
            if !self.is_exhausted {
                self.replenished(now, tell);
            }
        }
        if has_work && !self.had_work && (!had_deadline || !self.is_exhausted && self.exceeds_share(now)) {
            (self.left, self.deadline) = (self.full, now.saturating_add(self.period));
            self.replenished(now, tell);
        }
        if !has_work && self.had_work {
            tell(now, Event::ServerIdle { server });
        }
        self.had_work = has_work;
    }

    fn replenished(&self, now: Time, tell: &mut impl FnMut(Time, Event)) {
        let budget = Span::from_ns(u64::try_from(self.left).unwrap_or(0));
        tell(now, Event::Replenish { server: self.server, budget });
    }

    /// q T >= (d - t) Q.
    fn exceeds_share(&self, now: Time) -> bool {
        let room = i128::from(self.deadline.saturating_since(now).as_ns());
        i128::from(self.left) * i128::from(self.period.as_ns()) >= room * i128::from(self.full)
    }
}

fn signed(span: Span) -> i64 {
    i64::try_from(span.as_ns()).unwrap_or(i64::MAX)
}

/// A sink that adds the events of servers to those of jobs, if there is an account.
pub(crate) struct WithServers<'a, S> {
    pub(crate) sink: &'a mut S,
    pub(crate) account: Option<(u32, ServerAccount)>,
}

impl<S: Sink> WithServers<'_, S> {
    /// The run ended at `end`.
    pub(crate) fn finish(&mut self, end: Time) {
        if let Some((stream, account)) = &mut self.account {
            account.finish(end, &mut |at, event| self.sink.event(*stream, at, &event));
        }
    }
}

impl<S: Sink> Sink for WithServers<'_, S> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if let Some((own, account)) = &mut self.account
            && *own == stream
        {
            account.take(now, event, &mut |at, event| self.sink.event(stream, at, &event));
        }
        self.sink.event(stream, now, event);
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        if let Some((own, account)) = &mut self.account
            && *own == stream
        {
            account.advance(now, &mut |at, event| self.sink.event(stream, at, &event));
        }
        self.sink.define(stream, now, definition);
    }

    fn wants_misses(&self) -> bool {
        self.sink.wants_misses()
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
