//! Makes the threads of a manager's CPUs follow the [`Core`]: frees one on each CPU and freezes the others. Pure:
//! a thread is a seat.
//!
//! The plan runs at most one job on each CPU. The thread of this job is free. A thread without a job
//! waits for one by itself. All others are frozen between two instructions.

use takt_log::Event;
use takt_model::{NodeId, System, Task, TaskId, Time};
use takt_policy::CpuPart;

use super::core::{Change, Completion, Core, Fact};
use crate::node::NodeMessages;

/// Start and completion of a slot's job, reported by its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Report {
    pub(crate) started: Option<Time>,
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
    /// Binds a thread to a CPU of the part. It does not run now.
    fn bind(&mut self, slot: u32, cpu: usize);
    /// Gives a thread that has none the job `number`.
    fn give(&mut self, slot: u32, number: u64);
    /// Stops a thread between two instructions.
    fn freeze(&mut self, slot: u32);
    /// Lets a frozen thread go on.
    fn free(&mut self, slot: u32);
    /// Job `number` is not to be completed; its thread is frozen.
    fn abandon(&mut self, slot: u32, number: u64);
    /// The messages of the node, if it has flows.
    fn messages(&mut self) -> Option<&mut NodeMessages> {
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

struct Cpu {
    /// Its number in events.
    number: u32,
    /// The slot whose thread is free to run here.
    runs: Option<u32>,
}

/// A report of the thread that is free on a CPU: its job began or completed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Stamp {
    at: Time,
    cpu: usize,
    completes: bool,
}

/// The CPUs of a manager.
pub(crate) struct Board<'a> {
    core: Core<'a>,
    seats: Vec<Seat>,
    /// The CPU of the part that the thread of each slot is bound to.
    bound: Vec<Option<usize>>,
    cpus: Vec<Cpu>,
    /// Completed jobs that the core does not know yet.
    done: Vec<Completion>,
    /// Reports of a pass.
    stamps: Vec<Stamp>,
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
        let cpus: Vec<Cpu> = part.cpus.iter().map(|number| Cpu { number: *number, runs: None }).collect();
        let core = Core::new(system, node, part, (seed, end), later_hop);
        let seats = vec![Seat::Idle { frozen: false }; core.slot_count()];
        let (done, stamps) = (Vec::with_capacity(cpus.len()), Vec::with_capacity(2 * cpus.len()));
        let mut board = Board { core, seats, bound: Vec::new(), cpus, done, stamps, last: Time::ZERO, preemptions: 0 };
        board.bind_new();
        board
    }

    /// A thread of one CPU is bound to it from its start.
    fn bind_new(&mut self) {
        self.bound.resize(self.seats.len(), (self.cpus.len() == 1).then_some(0));
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
        self.bound.reserve(tasks);
    }

    /// See [`Core::announce`].
    pub(crate) fn announce(
        &mut self,
        change: Box<Change>,
        task: impl Fn(TaskId) -> Option<&'a Task>,
    ) -> Result<(), Box<Change>> {
        self.core.announce(change, task)?;
        self.seats.resize(self.core.slot_count(), Seat::Idle { frozen: false });
        self.bind_new();
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

    /// Takes in what has happened up to `now`, and makes the right threads run.
    pub(crate) fn pass(&mut self, now: Time, seats: &mut impl Seats, tell: &mut impl FnMut(Time, Fact)) {
        let now = now.max(self.last);
        self.take_reports(now, seats, tell);
        loop {
            let last = &mut self.last;
            let mut told = |at: Time, fact: Fact| {
                *last = at.max(*last);
                tell(*last, fact);
            };
            self.core.follow(now, &mut self.done, seats.messages(), &mut told);
            while let Some(slot) = seats.take_arrival() {
                self.core.arrive(slot, now, &mut told);
            }
            self.drop_jobs(seats);
            self.carry_out(now, seats, tell);
            if self.done.is_empty() {
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

    fn write_event(&mut self, at: Time, event: Event, tell: &mut impl FnMut(Time, Fact)) {
        self.last = at.max(self.last);
        tell(self.last, Fact::Event(event));
    }

    /// Looks which jobs of free threads have begun and completed, in the order of time.
    fn take_reports(&mut self, now: Time, seats: &mut impl Seats, tell: &mut impl FnMut(Time, Fact)) {
        for cpu in 0..self.cpus.len() {
            self.look_at(cpu, now, seats);
        }
        self.take_stamps(tell);
    }

    fn take_stamps(&mut self, tell: &mut impl FnMut(Time, Fact)) {
        self.stamps.sort_unstable();
        for at in 0..self.stamps.len() {
            let Some(stamp) = self.stamps.get(at).copied() else { continue };
            self.take_stamp(stamp, tell);
        }
        self.stamps.clear();
    }

    /// Notes what the free thread of a CPU has to tell.
    fn look_at(&mut self, cpu: usize, now: Time, seats: &mut impl Seats) {
        let Some(slot) = self.cpus.get(cpu).and_then(|at| at.runs) else { return };
        let Some(Seat::Given { number, started }) = self.seats.get(slot as usize).copied() else { return };
        let report = seats.report(slot, number);
        let stamp = |at: Time, completes| Stamp { at: at.min(now), cpu, completes };
        let start = report.started.filter(|_| !started).map(|at| stamp(at, false));
        self.stamps.extend(start.into_iter().chain(report.completed.map(|at| stamp(at, true))));
    }

    fn take_stamp(&mut self, stamp: Stamp, tell: &mut impl FnMut(Time, Fact)) {
        let Some(at) = self.cpus.get(stamp.cpu) else { return };
        let (Some(slot), cpu) = (at.runs, at.number) else { return };
        let Some(Seat::Given { number, .. }) = self.seats.get(slot as usize).copied() else { return };
        let job = self.core.key(slot, number);
        if !stamp.completes {
            self.write_event(stamp.at, Event::Start { job, cpu }, tell);
            return self.set(slot, Seat::Given { number, started: true });
        }
        self.write_event(stamp.at, Event::Complete { job, cpu }, tell);
        self.set(slot, Seat::Idle { frozen: false });
        self.let_go(stamp.cpu);
        self.done.push(Completion { slot, at: self.last });
    }

    /// No thread is free to run on this CPU.
    fn let_go(&mut self, cpu: usize) {
        if let Some(at) = self.cpus.get_mut(cpu) {
            at.runs = None;
        }
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
            if let Some(cpu) = self.cpus.iter().position(|cpu| cpu.runs == Some(slot)) {
                self.let_go(cpu);
                seats.freeze(slot);
            }
            seats.abandon(slot, number);
            self.set(slot, Seat::Idle { frozen: true });
        }
    }

    /// Makes the threads of the plan's jobs those that run. Some job may have completed before.
    fn carry_out(&mut self, now: Time, seats: &mut impl Seats, tell: &mut impl FnMut(Time, Fact)) {
        // All threads stop first, because one may go from CPU to CPU.
        for cpu in 0..self.cpus.len() {
            let wanted = self.core.runs(cpu).map(|(slot, _)| slot);
            let Some(at) = self.cpus.get_mut(cpu) else { continue };
            let number = at.number;
            let Some(slot) = at.runs.take_if(|slot| Some(*slot) != wanted) else { continue };
            seats.freeze(slot);
            self.preemptions += 1;
            if let Some(Seat::Given { number: job, started: true }) = self.seats.get(slot as usize).copied() {
                let job = self.core.key(slot, job);
                self.write_event(now, Event::Preempt { job, cpu: number }, tell);
            }
        }
        for cpu in 0..self.cpus.len() {
            if let Some((slot, number)) = self.core.runs(cpu) {
                self.run(cpu, (slot, number), now, seats, tell);
            }
        }
    }

    /// Makes the thread of this job run on this CPU. No other thread is free there.
    fn run(
        &mut self,
        cpu: usize,
        (slot, number): (u32, u64),
        now: Time,
        seats: &mut impl Seats,
        tell: &mut impl FnMut(Time, Fact),
    ) {
        let Some(at) = self.cpus.get_mut(cpu).filter(|at| at.runs != Some(slot)) else { return };
        at.runs = Some(slot);
        let to = at.number;
        let bound = self.bound.get_mut(slot as usize).map(|bound| bound.replace(cpu));
        let from = bound.flatten().filter(|from| *from != cpu).and_then(|from| self.cpus.get(from));
        let from = from.map(|from| from.number);
        if bound != Some(Some(cpu)) {
            seats.bind(slot, cpu);
        }
        match self.seats.get(slot as usize).copied() {
            Some(Seat::Idle { frozen }) => {
                seats.give(slot, number);
                if frozen {
                    seats.free(slot);
                }
                self.set(slot, Seat::Given { number, started: false });
            }
            Some(Seat::Given { started, .. }) => {
                if started {
                    let job = self.core.key(slot, number);
                    if let Some(from) = from {
                        self.write_event(now, Event::Migrate { job, from, to }, tell);
                    }
                    self.write_event(now, Event::Resume { job, cpu: to }, tell);
                }
                seats.free(slot);
                // It may have begun or completed in its last moments before it was frozen.
                self.look_at(cpu, now, seats);
                self.take_stamps(tell);
            }
            None => {}
        }
    }
}
