//! Makes the threads of a CPU follow the [`Core`]: frees one and freezes the others. Pure: a thread is a
//! seat.
//!
//! At most one thread is free to run: that of the job that the plan runs. A thread without a job
//! waits for one by itself. All others are frozen between two instructions.

use takt_log::Event;
use takt_model::{NodeId, System, Task, TaskId, Time};
use takt_policy::CpuPart;

use super::core::{Change, Core, Done, Fact};
use crate::node::Station;

/// Start and completion of a slot's job, reported by its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Report {
    /// When it began.
    pub(crate) started: Option<Time>,
    /// When it completed.
    pub(crate) completed: Option<Time>,
}

/// The threads, by slot.
pub(crate) trait Seats {
    /// The thread's report on its job `number`.
    fn report(&mut self, slot: u32, number: u64) -> Report;
    /// A slot of existing threads that want the CPU from now on.
    fn take_arrival(&mut self) -> Option<u32> {
        None
    }
    /// Gives a thread that has none the job `number`.
    fn give(&mut self, slot: u32, number: u64);
    /// Stops a thread between two instructions.
    fn freeze(&mut self, slot: u32);
    /// Lets a frozen thread go on.
    fn free(&mut self, slot: u32);
    /// Job `number` is not to be completed; its thread is frozen.
    fn abandon(&mut self, slot: u32, number: u64);
    /// The messages of the node, if it has flows.
    fn station(&mut self) -> Option<&mut Station> {
        None
    }
}

/// The state of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seat {
    /// Without a job. It is frozen if it had one that was abandoned.
    Idle { frozen: bool },
    /// With a job.
    Given {
        number: u64,
        /// It has told when it began.
        started: bool,
    },
}

/// One CPU.
pub(crate) struct Board<'a> {
    core: Core<'a>,
    seats: Vec<Seat>,
    /// The slot whose thread is free to run.
    runs: Option<u32>,
    /// The CPU in events.
    cpu: u32,
    /// Time of the last fact: facts never go back.
    last: Time,
    /// How often the CPU went from one job to another thread or to none before the job's end.
    preemptions: u64,
}

impl<'a> Board<'a> {
    pub(crate) fn new(
        system: &'a System,
        node: NodeId,
        part: CpuPart,
        (seed, end): (u64, Time),
        later_hop: impl Fn(u32) -> Option<u32>,
    ) -> Board<'a> {
        let cpu = part.cpu;
        let core = Core::new(system, node, part, (seed, end), later_hop);
        let seats = vec![Seat::Idle { frozen: false }; core.slot_count()];
        Board { core, seats, runs: None, cpu, last: Time::ZERO, preemptions: 0 }
    }

    /// The next instant at which [`Board::pass`] must be called though no thread reports anything.
    pub(crate) fn next_instant(&self) -> Time {
        self.core.next_instant()
    }

    /// When the present job of a slot was released.
    pub(crate) fn released(&self, slot: u32) -> Option<Time> {
        self.core.released(slot)
    }

    pub(crate) fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// See [`Core::begin_at`].
    pub(crate) fn begin_at(&mut self, from: Time) {
        self.core.begin_at(from);
        self.last = self.last.max(from);
    }

    /// See [`Core::make_room`].
    pub(crate) fn make_room(&mut self, servers: usize, tasks: usize) {
        self.core.make_room(servers, tasks);
        self.seats.reserve(tasks);
    }

    /// See [`Core::announce`].
    pub(crate) fn announce(
        &mut self,
        change: Box<Change>,
        task: impl Fn(TaskId) -> Option<&'a Task>,
    ) -> Result<(), Box<Change>> {
        self.core.announce(change, task)?;
        self.seats.resize(self.core.slot_count(), Seat::Idle { frozen: false });
        Ok(())
    }

    /// See [`Core::take_changed`].
    pub(crate) fn take_changed(&mut self) -> Option<Box<Change>> {
        self.core.take_changed()
    }

    /// The end comes earlier.
    pub(crate) fn end_at(&mut self, end: Time) {
        self.core.end_at(end);
    }

    /// Takes in what has happened up to `now`, and makes the right thread run.
    pub(crate) fn pass(&mut self, now: Time, seats: &mut impl Seats, tell: &mut impl FnMut(Time, Fact)) {
        let now = now.max(self.last);
        let mut done = self.runs.and_then(|slot| self.take_report(slot, now, seats, tell));
        loop {
            let last = &mut self.last;
            let mut told = |at: Time, fact: Fact| {
                *last = at.max(*last);
                tell(*last, fact);
            };
            self.core.follow(now, done, seats.station(), &mut told);
            while let Some(slot) = seats.take_arrival() {
                self.core.arrive(slot, now, &mut told);
            }
            self.drop_jobs(seats);
            done = self.carry_out(now, seats, tell);
            if done.is_none() {
                break;
            }
        }
        self.last = now;
    }

    /// Ends the run: no thread gets another job.
    pub(crate) fn finish(&mut self, tell: &mut impl FnMut(Time, Fact)) {
        let last = &mut self.last;
        self.core.finish(&mut |at, fact| {
            *last = at.max(*last);
            tell(*last, fact);
        });
    }

    fn tell(&mut self, at: Time, event: Event, tell: &mut impl FnMut(Time, Fact)) {
        self.last = at.max(self.last);
        tell(self.last, Fact::Event(event));
    }

    /// Looks whether the job of a free thread has begun and completed.
    fn take_report(
        &mut self,
        slot: u32,
        now: Time,
        seats: &mut impl Seats,
        tell: &mut impl FnMut(Time, Fact),
    ) -> Option<Done> {
        let Some(Seat::Given { number, started }) = self.seats.get(slot as usize).copied() else { return None };
        let (report, cpu) = (seats.report(slot, number), self.cpu);
        let job = self.core.key(slot, number);
        if let Some(at) = report.started.filter(|_| !started) {
            self.tell(at.min(now), Event::Start { job, cpu }, tell);
            self.set(slot, Seat::Given { number, started: true });
        }
        let at = report.completed?.min(now);
        self.tell(at, Event::Complete { job, cpu }, tell);
        self.set(slot, Seat::Idle { frozen: false });
        self.runs = None;
        Some(Done { slot, at: self.last })
    }

    fn set(&mut self, slot: u32, to: Seat) {
        if let Some(seat) = self.seats.get_mut(slot as usize) {
            *seat = to;
        }
    }

    /// Takes from threads the jobs that the plan has dropped.
    fn drop_jobs(&mut self, seats: &mut impl Seats) {
        while let Some(slot) = self.core.take_dropped() {
            let Some(Seat::Given { number, .. }) = self.seats.get(slot as usize).copied() else { continue };
            if self.core.head(slot) == Some(number) {
                continue;
            }
            if self.runs == Some(slot) {
                self.runs = None;
                seats.freeze(slot);
            }
            seats.abandon(slot, number);
            self.set(slot, Seat::Idle { frozen: true });
        }
    }

    /// Makes the thread of the plan's job the one that runs. Some job may have completed before.
    fn carry_out(&mut self, now: Time, seats: &mut impl Seats, tell: &mut impl FnMut(Time, Fact)) -> Option<Done> {
        let wanted = self.core.runs();
        if wanted.map(|(slot, _)| slot) == self.runs {
            return None;
        }
        if let Some(slot) = self.runs.take() {
            seats.freeze(slot);
            self.preemptions += 1;
            if let Some(Seat::Given { number, started: true }) = self.seats.get(slot as usize).copied() {
                let job = self.core.key(slot, number);
                self.tell(now, Event::Preempt { job, cpu: self.cpu }, tell);
            }
        }
        let (slot, number) = wanted?;
        let job = self.core.key(slot, number);
        self.runs = Some(slot);
        match self.seats.get(slot as usize).copied()? {
            Seat::Idle { frozen } => {
                seats.give(slot, number);
                if frozen {
                    seats.free(slot);
                }
                self.set(slot, Seat::Given { number, started: false });
                None
            }
            Seat::Given { started, .. } => {
                if started {
                    self.tell(now, Event::Resume { job, cpu: self.cpu }, tell);
                }
                seats.free(slot);
                // It may have begun or completed in its last moments before it was frozen.
                self.take_report(slot, now, seats, tell)
            }
        }
    }
}
