//! The threads of a run under managers, and the manager's loop.

use std::sync::atomic::Ordering;

use takt_linux::thread::Tid;
use takt_linux::{Class, Epoch, clock, futex, sched};
use takt_log::Event;
use takt_model::{Span, TaskId, Time};
use takt_policy::CpuPart;

use super::record::{ManagerRecord, to_words};
use crate::budgets::board::{Board, Report, Seats};
use crate::budgets::core::{Change, Fact};
use crate::budgets::foreign::{IdleDetector, ManagedSeat};
use crate::budgets::seat::{ChangeRequest, Manager, Seat};
use crate::lanes::{Lane, Role, Shared};
use crate::node::{NodeMessages, TableJob, TableTasks};

/// The least time between two decisions of the timer. The manager carries out closer instants of the plan
/// together. This bounds its use of the CPU.
pub(crate) const GRAIN: Span = Span::from_us(50);
/// The manager wakes at least this often, and shows that it lives.
const BEAT: Span = Span::from_ms(250);
/// How long after the beat that did not come its threads are freed.
const SILENCE_MAX: Span = Span::from_ms(700);
/// A manager that hangs loses its threads so long after its last sign of life.
pub(crate) const LEASE: Span = BEAT.saturating_add(SILENCE_MAX);

/// The SCHED_FIFO priority of frozen threads, below that of all others.
const FROZEN: u8 = 1;

/// The most components and tasks that join one run.
pub(crate) const COMPONENTS_MAX: usize = 32;
/// See [`COMPONENTS_MAX`].
pub(crate) const TASKS_MAX: usize = 64;

/// The parts that a manager makes before the start.
pub(crate) struct ManagerSetup<'a> {
    board: Board<'a>,
    table_tasks: Option<TableTasks>,
}

/// The seats of a manager's threads.
struct LiveSeats<'a> {
    shared: &'a Shared,
    manager: &'a Manager,
    /// Those of tasks that have joined, behind the manager's own.
    guests: Vec<&'a Lane>,
    /// Those of existing threads.
    held: Vec<ManagedSeat<'a>>,
    /// Turns of existing threads so far.
    turns: u64,
    epoch: Epoch,
    table_tasks: Option<TableTasks>,
    /// The job of a table task that is to be carried out.
    given: Option<(u32, u64)>,
    /// The last one that was.
    done: Option<TableJob>,
}

impl<'a> LiveSeats<'a> {
    fn at(&self, slot: u32) -> Option<(&'a Lane, &'a Seat)> {
        let lane = match self.manager.lanes.get(slot as usize) {
            Some(lane) => self.shared.lanes.get(*lane)?,
            None => self.guests.get((slot as usize).checked_sub(self.manager.lanes.len())?)?,
        };
        if let Role::Managed(seat) = &lane.role { Some((lane, seat)) } else { None }
    }

    fn held(&mut self, slot: u32) -> Option<&mut ManagedSeat<'a>> {
        self.held.iter_mut().find(|held| held.slot == slot)
    }

    /// Existing threads have a turn.
    fn begin(&mut self, slot: u32, is_first: bool) -> bool {
        let (turn, now) = (self.turns + 1, self.epoch.now());
        let Some(held) = self.held(slot) else { return false };
        if is_first {
            held.give(turn, now);
        } else {
            held.begin(turn, now);
        }
        self.turns = turn;
        self.watch(slot);
        true
    }

    /// The idle detector watches a turn in which threads run.
    fn watch(&mut self, slot: u32) {
        let Some(held) = self.held(slot).filter(|held| held.runs()) else { return };
        held.watch();
        if let Some(idle_detector) = self.manager.idle_detector(self.shared) {
            futex::wake_all(&idle_detector.word);
        }
    }

    /// Lets threads go on that have paid in their turn.
    fn resume_paid(&mut self, now: Time) {
        let paid = self.held.iter_mut().find_map(|held| held.run_if_paid(now).then_some(held.slot));
        if let Some(slot) = paid {
            self.watch(slot);
        }
    }

    /// Freezes threads that want the CPU and have no turn. Returns when the next have paid.
    fn freeze_waiting(&mut self) -> Time {
        self.held.iter_mut().for_each(ManagedSeat::freeze_waiting);
        self.held.iter().map(ManagedSeat::due).min().unwrap_or(Time::MAX)
    }
}

impl Seats for LiveSeats<'_> {
    fn bind(&mut self, slot: u32, cpu: usize) {
        let Some((lane, _)) = self.at(slot) else { return };
        // A thread that has ended at the end of the run needs no CPU.
        let has_ended = || lane.done.load(Ordering::Acquire) || self.epoch.now() >= self.shared.end();
        let thread = Tid::of_this_process(lane.tid.load(Ordering::Acquire)).filter(|_| !has_ended());
        let Some((thread, (_, cpu))) = thread.zip(self.manager.cpus.get(cpu)) else { return };
        if sched::bind(thread, *cpu).is_err() && !has_ended() {
            self.manager.unbound.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn report(&mut self, slot: u32, number: u64) -> Report {
        if let Some(held) = self.held(slot) {
            return held.report();
        }
        if let Some(job) = self.done.filter(|job| (job.slot, job.number) == (slot, number)) {
            return Report { started: Some(job.start), completed: Some(job.end) };
        }
        self.at(slot).map_or_else(Report::default, |(_, seat)| seat.report(number))
    }

    fn take_arrival(&mut self) -> Option<u32> {
        self.held.iter_mut().find_map(|held| held.take_arrival().then_some(held.slot))
    }

    fn give(&mut self, slot: u32, number: u64) {
        if self.begin(slot, true) {
            return;
        }
        let Some((lane, seat)) = self.at(slot) else {
            self.given = Some((slot, number));
            return;
        };
        raise(lane, seat);
        seat.given.store(number + 1, Ordering::Release);
        seat.word.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&seat.word);
    }

    fn freeze(&mut self, slot: u32) {
        let now = self.epoch.now();
        if let Some(held) = self.held(slot) {
            return held.end(now);
        }
        if let Some((lane, seat)) = self.at(slot)
            && let Some(thread) = Tid::of_this_process(lane.tid.load(Ordering::Acquire))
        {
            seat.freezer.freeze(thread);
            // A system call that it is in goes on. So nobody waits for its end.
            if matches!(lane.class, Class::Fifo { .. }) && sched::reprioritize(thread, FROZEN).is_ok() {
                seat.is_lowered.store(true, Ordering::Relaxed);
            }
        }
    }

    fn free(&mut self, slot: u32) {
        if self.begin(slot, false) {
            return;
        }
        if let Some((lane, seat)) = self.at(slot) {
            raise(lane, seat);
            seat.freezer.free();
        }
    }

    fn abandon(&mut self, slot: u32, number: u64) {
        if let Some((_, seat)) = self.at(slot) {
            seat.abandoned.store(number + 1, Ordering::Release);
        }
    }

    fn messages(&mut self) -> Option<&mut NodeMessages> {
        self.table_tasks.as_mut().map(TableTasks::messages)
    }
}

/// Gives a thread that was frozen its priority again.
fn raise(lane: &Lane, seat: &Seat) {
    if seat.is_lowered.swap(false, Ordering::Relaxed)
        && let Some(thread) = Tid::of_this_process(lane.tid.load(Ordering::Acquire))
    {
        // Refused only where the thread has ended.
        let _ = sched::reclass(thread, &lane.class);
    }
}

impl LiveSeats<'_> {
    /// Carries out the job of a table task that was given, if there is one.
    fn work(&mut self, board: &Board<'_>, epoch: Epoch, tell: &mut impl FnMut(Time, Event)) -> Option<TableJob> {
        let (job, table_tasks) = self.given.take().zip(self.table_tasks.as_mut())?;
        let planned = board.released(job.0).unwrap_or_default();
        self.done = Some(table_tasks.run(job, planned, epoch, tell));
        self.done
    }
}

/// Frees all threads of a manager when dropped, also after a panic.
struct FreeAll<'a>(LiveSeats<'a>);

impl Drop for FreeAll<'_> {
    fn drop(&mut self) {
        // Existing threads stay frozen until they have their former class.
        let now = self.0.epoch.now();
        self.0.held.iter_mut().for_each(|held| held.close(now));
        for slot in 0..(self.0.manager.lanes.len() + self.0.guests.len()) as u32 {
            if let Some((lane, seat)) = self.0.at(slot) {
                raise(lane, seat);
                seat.freezer.free();
                seat.word.fetch_add(1, Ordering::AcqRel);
                futex::wake_all(&seat.word);
            }
        }
    }
}

impl Manager {
    /// Its machine, before the start. `None` if there is none: then the run was not prepared.
    pub(crate) fn setup<'a>(&self, shared: &'a Shared) -> Option<ManagerSetup<'a>> {
        let parts = CpuPart::of_node(&shared.system, self.node).ok()?;
        let part = parts.into_iter().find(|part| part.first_cpu() == self.cpu)?;
        let table_tasks = self.live.as_ref().map(|live| TableTasks::new(live, &part.slots));
        let hop = |slot| table_tasks.as_ref().and_then(|table_tasks| table_tasks.later_hop(slot));
        let mut board = Board::new(&shared.system, self.node, part, (shared.seed, shared.duration), hop);
        if shared.guests.is_some() {
            board.make_room(COMPONENTS_MAX, TASKS_MAX);
        }
        Some(ManagerSetup { board, table_tasks })
    }

    /// Decides until the run ends.
    pub(crate) fn run(&self, shared: &Shared, lane: &Lane, setup: ManagerSetup<'_>, epoch: Epoch) {
        let ManagerSetup { mut board, table_tasks } = setup;
        let guests = Vec::with_capacity(if shared.guests.is_some() { TASKS_MAX } else { 0 });
        let held = self.held(shared);
        let (given, done) = (None, None);
        let mut all =
            FreeAll(LiveSeats { shared, manager: self, guests, held, turns: 0, epoch, table_tasks, given, done });
        let mut made = None;
        let seats = &mut all.0;
        let begin = shared.begin();
        if begin > Time::ZERO {
            board.begin_at(begin);
        }
        // Time stands at zero before the epoch.
        while !epoch.sleep_until(begin) && shared.end() > begin {}
        let cpu_before = clock::thread_cpu();
        let push = |at: Time, note: ManagerRecord| {
            if let ManagerRecord::Fact(Fact::Event(Event::Release { job, arrival, parent: Some(_) })) = note
                && arrival < at
                && let Some(words) = to_words(at, &ManagerRecord::Arrival { job, arrival })
            {
                lane.ring.push(words);
            }
            if let Some(words) = to_words(at, &note) {
                lane.ring.push(words);
            }
        };
        let mut tell = |at: Time, fact: Fact| push(at, ManagerRecord::Fact(fact));
        loop {
            let seen = lane.signal.load(Ordering::Acquire);
            let woken = epoch.now();
            let end = shared.end();
            let is_over = woken >= end;
            #[cfg(test)]
            tests::fail(woken, shared);
            board.end_at(end);
            self.take_change(&mut board, seats);
            let planned = board.next_instant();
            self.lease.renew(epoch, woken.saturating_add(LEASE));
            seats.resume_paid(woken);
            board.pass(woken.min(end), seats, &mut tell);
            let mut worked = Span::ZERO;
            while let Some(job) =
                seats.work(&board, epoch, &mut |at, event| push(at.min(end), ManagerRecord::Fact(Fact::Event(event))))
            {
                worked = worked.saturating_add(job.end.saturating_since(job.start));
                board.pass(epoch.now().min(end), seats, &mut tell);
            }
            let due = seats.freeze_waiting();
            made = board.take_changed().or(made);
            self.give_back(&mut made);
            if let Some(table_tasks) = &seats.table_tasks {
                push(table_tasks.written_until(woken).min(end), ManagerRecord::WrittenUntil);
            }
            let decided = epoch.now();
            let late = (planned <= woken).then(|| woken.saturating_since(planned));
            push(
                woken.min(end),
                ManagerRecord::Pass { late, cost: decided.saturating_since(woken).saturating_sub(worked) },
            );
            if is_over {
                break;
            }
            lane.floor.store(woken.as_ns(), Ordering::Release);
            let soonest = decided.saturating_add(GRAIN);
            let next = board.next_instant().min(due).max(soonest).min(woken.saturating_add(BEAT)).min(end);
            futex::wait(&lane.signal, seen, epoch, next);
        }
        board.finish(&mut tell);
        if let Some(table_tasks) = &mut seats.table_tasks {
            let end = shared.end();
            table_tasks.finish(end, epoch, &mut |at, event| push(at.min(end), ManagerRecord::Fact(Fact::Event(event))));
        }
        self.preemptions.store(board.preemptions(), Ordering::Release);
        lane.used_ns.store(clock::thread_cpu().saturating_sub(cpu_before).as_ns(), Ordering::Release);
    }
}

impl Manager {
    /// The lane of its idle detector.
    fn idle_detector<'a>(&self, shared: &'a Shared) -> Option<&'a IdleDetector> {
        if let Role::IdleDetector(idle_detector) = &shared.lanes.get(self.idle_detector?)?.role {
            Some(&idle_detector.idle_detector)
        } else {
            None
        }
    }

    /// The seats of existing threads.
    fn held<'a>(&self, shared: &'a Shared) -> Vec<ManagedSeat<'a>> {
        let Some(idle_detector) = self.idle_detector(shared) else { return Vec::new() };
        let seat = |(slot, lane): (u32, &usize)| match &shared.lanes.get(*lane)?.role {
            Role::Foreign(seat) => Some(ManagedSeat::new(slot, seat, idle_detector, GRAIN)),
            _ => None,
        };
        (0..).zip(&self.lanes).filter_map(seat).collect()
    }

    /// Takes a change that somebody asks for, without waiting.
    fn take_change<'a>(&self, board: &mut Board<'a>, seats: &mut LiveSeats<'a>) {
        let Ok(mut posted) = self.posted.try_lock() else { return };
        let Some(change) = posted.take_requested() else { return };
        let guests = seats.shared.guests.as_ref();
        let guest = |id: TaskId| guests.and_then(|guests| guests.task(id));
        let first = seats.guests.len();
        seats.guests.extend(change.joins.iter().filter_map(|join| guest(join.id)).map(|guest| &guest.lane));
        if let Err(change) = board.announce(change, |id| guest(id).map(|guest| &guest.task)) {
            seats.guests.truncate(first);
            *posted = ChangeRequest::TooLate(change);
        }
    }

    /// Gives a change that was made back to its maker, who frees its memory.
    fn give_back(&self, made: &mut Option<Box<Change>>) {
        if made.is_some()
            && let Ok(mut posted) = self.posted.try_lock()
            && let Some(change) = made.take()
        {
            *posted = ChangeRequest::Applied(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use takt_model::NodeId;

    use takt_model::{Builtin, Component, ComponentId, ServerRule, StrategyRef, System, Task};

    use super::*;
    use crate::{RunError, RunOptions, run};

    /// How a manager fails after 60 ms of a run: not at all, by a panic, by silence, or by silence for ever.
    static FAILURE: AtomicU32 = AtomicU32::new(0);
    const PANIC: u32 = 1;
    const SILENCE: u32 = 2;
    const HANG: u32 = 3;

    pub(super) fn fail(now: Time, shared: &Shared) {
        if now < Time::from_ns(60_000_000) {
            return;
        }
        match FAILURE.load(Ordering::Acquire) {
            // Without the hook, which would print a backtrace for seconds.
            PANIC => std::panic::resume_unwind(Box::new("as the test wants it")),
            SILENCE => {
                while shared.end() == shared.duration {
                    clock::pause(Span::from_ms(5));
                }
            }
            HANG => {
                while FAILURE.load(Ordering::Acquire) == HANG {
                    clock::pause(Span::from_ms(5));
                }
            }
            _ => {}
        }
    }

    /// A component that used up its budget when the manager fails, and one whose job runs then.
    fn system(cpus: u32) -> System {
        let mut system = System::local(cpus, Builtin::Rm, Vec::new());
        for (name, wcet) in [("held", 400), ("other", 1)] {
            let id = ComponentId(system.components.len() as u32);
            let mut component = Component::new(name, NodeId(0), ServerRule::Ptps);
            let (period, budget) = (Span::from_ms(500), Span::from_ms(20));
            (component.period, component.budget) = (takt_model::Auto::Value(period), takt_model::Auto::Value(budget));
            component.strategy = StrategyRef::Builtin(Builtin::Rm);
            system.components.push(component);
            let task = Task::periodic(&format!("t {name}"), Span::from_ms(500), Span::from_ms(wcet));
            system.tasks.push(Task { component: Some(id), ..task });
        }
        system
    }

    /// The run ends, and all threads with it: [`run`] joins them.
    #[test]
    fn a_manager_that_fails_leaves_no_thread_frozen() {
        let _alone = crate::manager::ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (failure, cpus) in [(PANIC, 1), (SILENCE, 1), (SILENCE, 2)] {
            if takt_linux::sched::affinity().len() < cpus as usize {
                continue;
            }
            FAILURE.store(failure, Ordering::Release);
            let mut events: Vec<(u32, Time, takt_log::Event)> = Vec::new();
            let options = RunOptions { best_effort: true, ..RunOptions::new(Span::from_s(5)) };
            let refused = run(&system(cpus), &options, &mut events).unwrap_err();
            FAILURE.store(0, Ordering::Release);
            match refused {
                RunError::Panicked { ref task } if failure == PANIC => assert_eq!(task, "budget manager 0"),
                RunError::Manager { cpu: 0 } if failure == SILENCE => {}
                other => panic!("{other}"),
            }
            let exhausted = |event: &takt_log::Event| matches!(event, takt_log::Event::Exhaust { server: 0 });
            assert!(events.iter().any(|(_, _, event)| exhausted(event)), "{events:?}");
        }
    }

    /// Ended when dropped.
    struct Spinner(std::process::Child);

    impl Drop for Spinner {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The existing threads are back where they were while the manager still hangs.
    #[test]
    fn a_manager_that_hangs_holds_no_existing_threads() {
        let _alone = crate::manager::ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // One process, which ends by itself, too.
        let spin = "i=0; while [ $i -lt 10000000 ]; do i=$((i + 1)); done";
        let spinner = Spinner(std::process::Command::new("sh").args(["-c", spin]).spawn().unwrap());
        let text = "takt = 1\n[[component]]\nname = \"guest\"\nserver = \"deferrable\"\nperiod = \"500ms\"\nbudget = \
                    \"20ms\"\nthreads = \"pid:PID\"\n";
        let text = text.replace("PID", &spinner.0.id().to_string());
        let system = takt_model::file::parse(&text, "hang.toml").unwrap();
        let path = format!("/proc/{}/cgroup", spinner.0.id());
        let place = move || std::fs::read_to_string(&path).unwrap();
        let before = place();
        let (send, over) = std::sync::mpsc::channel();
        FAILURE.store(HANG, Ordering::Release);
        let running = std::thread::spawn(move || {
            let mut events: Vec<(u32, Time, takt_log::Event)> = Vec::new();
            let ended = run(&system, &RunOptions::new(Span::from_s(20)), &mut events);
            let _ = send.send(());
            ended
        });
        let (mut was_held, mut is_back, mut is_over) = (false, false, false);
        for _ in 0..1000 {
            was_held |= place() != before;
            is_back = was_held && place() == before;
            is_over = over.recv_timeout(std::time::Duration::from_millis(10)).is_ok();
            if is_back || is_over {
                break;
            }
        }
        FAILURE.store(0, Ordering::Release);
        match running.join().unwrap() {
            Err(RunError::Manager { cpu: 0 }) => assert!(is_back && !is_over),
            Err(error) if !was_held => println!("skipped: {error}"),
            other => panic!("{other:?}: held {was_held}, back {is_back}, over {is_over}"),
        }
    }
}
