//! Random threads on random machines, played step by step by a slow and obvious kernel that knows
//! each job and tells events.

use takt_model::Time;
use takt_trace::{Comm, Context, EventKind, KernelEvent, Pid, SwitchOutState, Thread, Waking};

/// A job, as the playing kernel knows it and as it comes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Job {
    pub(crate) arrival: u64,
    pub(crate) start: Option<u64>,
    pub(crate) done: Option<u64>,
    /// Time on CPUs.
    pub(crate) executed: u64,
    pub(crate) preempted: u32,
    pub(crate) migrated: u32,
    /// As early as this it may have arrived.
    pub(crate) earliest: u64,
    /// Something is missing of what it did.
    pub(crate) gap: bool,
}

impl Job {
    pub(crate) fn new(arrival: u64) -> Job {
        Job { arrival, start: None, done: None, executed: 0, preempted: 0, migrated: 0, earliest: arrival, gap: false }
    }
}

pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// Sleeps until absolute times.
    Periodic { period: u64 },
    /// Waits for events, which interrupts bring.
    Server,
    /// A thread of the kernel, without system calls.
    Kernel,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Asleep {
        until: u64,
    },
    /// Within a job, until then.
    Held {
        until: u64,
    },
    Ready,
    On {
        cpu: u32,
        since: u64,
    },
}

pub(crate) struct Player {
    pub(crate) style: Style,
    state: State,
    work: u64,
    /// It is in its call: `true` once the call is to be left.
    in_call: bool,
    last_cpu: Option<u32>,
    next_arrival: u64,
    pub(crate) jobs: Vec<Job>,
    /// The kernel keeps to itself what it does, but for interrupts.
    pub(crate) hidden: bool,
}

/// The instants between two steps. They give all events of a step an order.
pub(crate) const STEP: u64 = 100;
const CLOCK_NANOSLEEP: i64 = 230;
const EPOLL_WAIT: i64 = 232;

pub(crate) struct World {
    draw: Draw,
    pub(crate) players: Vec<Player>,
    pub(crate) on: Vec<Option<usize>>,
    pub(crate) events: Vec<KernelEvent>,
    now: u64,
    /// CPUs whose idle threads are hidden, and whether threads wake others.
    idle_hidden: Vec<bool>,
    threads_wake: bool,
    /// Threads are also woken while they run, and while they leave their CPUs.
    early_wakes: bool,
}

pub(crate) fn pid(player: usize) -> Pid {
    player as Pid + 10
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut draw = Draw(seed);
        let cpus = 1 + draw.below(3) as usize;
        let players = (0..1 + draw.below(6))
            .map(|_| Player {
                style: match draw.below(3) {
                    0 => Style::Periodic { period: STEP * (3 + draw.below(30)) },
                    1 => Style::Server,
                    _ => Style::Kernel,
                },
                state: State::Ready,
                work: 1 + draw.below(4),
                in_call: false,
                last_cpu: None,
                next_arrival: 0,
                jobs: Vec::new(),
                hidden: false,
            })
            .collect();
        let (on, idle_hidden) = (vec![None; cpus], vec![false; cpus]);
        World { draw, players, on, events: Vec::new(), now: STEP, idle_hidden, threads_wake: false, early_wakes: true }
    }

    /// A world in which nothing is recorded of what some threads do, idle ones among them.
    #[allow(dead_code, reason = "not every test that plays wants it")]
    pub(crate) fn with_hidden(seed: u64) -> World {
        let mut world = World::new(seed);
        (world.threads_wake, world.early_wakes) = (world.draw.below(2) == 0, false);
        for player in &mut world.players {
            player.hidden = world.draw.below(3) == 0;
        }
        for hidden in &mut world.idle_hidden {
            *hidden = world.draw.below(2) == 0;
        }
        world
    }

    fn is_hidden(&self, cpu: u32, by: Option<usize>) -> bool {
        by.map_or(self.idle_hidden[cpu as usize], |by| self.players[by].hidden)
    }

    fn record_event(&mut self, cpu: u32, by: Option<usize>, context: Context, what: EventKind) {
        // No two events at one instant.
        self.now += 1;
        if context == Context::Thread && self.is_hidden(cpu, by) {
            return;
        }
        let pid = by.map_or(0, pid);
        self.events.push(KernelEvent { time: Time::from_ns(self.now), cpu, pid, context, name: 0, what });
    }

    fn thread(&self, player: Option<usize>) -> Thread {
        let comm = player.map_or("swapper".to_owned(), |player| format!("t{player}"));
        Thread { pid: player.map_or(0, pid), comm: Comm::new(comm.as_bytes()), prio: Some(50) }
    }

    fn switch(&mut self, cpu: u32, left: SwitchOutState, next: Option<usize>) {
        let prev = self.on[cpu as usize];
        let what = EventKind::Switch { prev: self.thread(prev), left, next: self.thread(next) };
        self.record_event(cpu, prev, Context::Thread, what);
        let now = self.now;
        if let Some(prev) = prev {
            let player = &mut self.players[prev];
            let State::On { since, .. } = player.state else { panic!("it ran") };
            if let Some(job) =
                player.jobs.last_mut().filter(|job| job.start.is_some() && job.done.is_none_or(|done| done == now))
            {
                job.executed += now - since.max(job.start.unwrap());
                job.preempted += u32::from(left == SwitchOutState::Preempted && job.done.is_none());
            }
            player.last_cpu = Some(cpu);
        }
        self.on[cpu as usize] = next;
        if let Some(next) = next {
            let player = &mut self.players[next];
            player.state = State::On { cpu, since: now };
            if let Some(job) = player.jobs.last_mut().filter(|job| job.done.is_none()) {
                job.migrated += u32::from(job.start.is_some() && player.last_cpu != Some(cpu));
                job.start.get_or_insert(now);
            }
        }
    }

    /// One step: wake-ups first, then the choice of threads, then the work of the running threads.
    pub(crate) fn step(&mut self) {
        self.now = (self.now / STEP + 1) * STEP;
        for k in 0..self.players.len() {
            let (woken, ends_job) = match self.players[k].state {
                State::Asleep { until } => (until <= self.now, true),
                State::Held { until } => (until <= self.now, false),
                _ => (false, false),
            };
            if !woken {
                continue;
            }
            let what = EventKind::Wake { thread: self.thread(Some(k)), waking: Waking::Begins, cpu: None };
            let cpu = self.draw.below(self.on.len() as u64) as u32;
            let by = self.on[cpu as usize];
            let by_thread = self.threads_wake && self.draw.below(2) == 0;
            self.record_event(cpu, by, if by_thread { Context::Thread } else { Context::Hard }, what);
            self.players[k].state = State::Ready;
            if ends_job {
                self.release(k);
            }
        }
        self.dispatch();
        for cpu in 0..self.on.len() as u32 {
            if let Some(k) = self.on[cpu as usize] {
                self.act(cpu, k);
            }
        }
        self.dispatch();
    }

    fn release(&mut self, k: usize) {
        let work = 1 + self.draw.below(6);
        let now = self.now;
        let player = &mut self.players[k];
        let arrival = if let Style::Periodic { .. } = player.style { player.next_arrival } else { now };
        player.jobs.push(Job::new(arrival));
        player.work = work;
    }

    /// The first players are the most important ones; one that runs keeps its CPU.
    fn dispatch(&mut self) {
        let wants = |player: &Player| matches!(player.state, State::Ready | State::On { .. });
        let chosen: Vec<usize> =
            (0..self.players.len()).filter(|k| wants(&self.players[*k])).take(self.on.len()).collect();
        for k in &chosen {
            if self.players[*k].state != State::Ready {
                continue;
            }
            let cpu = (0..self.on.len()).find(|cpu| self.on[*cpu].is_none_or(|running| !chosen.contains(&running)));
            let cpu = cpu.expect("as many CPUs as are chosen") as u32;
            let before = self.on[cpu as usize];
            self.switch(
                cpu,
                if before.is_some() { SwitchOutState::Preempted } else { SwitchOutState::Ready },
                Some(*k),
            );
            if let Some(before) = before {
                self.players[before].state = State::Ready;
            }
        }
    }

    fn act(&mut self, cpu: u32, k: usize) {
        let number = if let Style::Periodic { .. } = self.players[k].style { CLOCK_NANOSLEEP } else { EPOLL_WAIT };
        if self.players[k].in_call {
            self.players[k].in_call = false;
            self.record_event(cpu, Some(k), Context::Thread, EventKind::SyscallExit { number, result: 0 });
        }
        self.players[k].work -= 1;
        if self.players[k].work > 0 {
            if self.early_wakes && self.draw.below(8) == 0 {
                // It was about to sleep, and goes on.
                let from = self.draw.below(self.on.len() as u64) as u32;
                self.interrupt_wakes(from, k);
            }
            if self.draw.below(8) == 0 {
                self.switch(cpu, SwitchOutState::Held, None);
                self.players[k].state = State::Held { until: self.now + STEP * (1 + self.draw.below(5)) };
            }
            return;
        }
        match self.players[k].style {
            Style::Kernel => {
                let from = self.draw.below(self.on.len() as u64) as u32;
                // No longer ready, but still on its CPU: only another one can wake it.
                let early = self.early_wakes && from != cpu && self.draw.below(4) == 0;
                let woken = early.then(|| {
                    self.interrupt_wakes(from, k);
                    self.now
                });
                if let Some(job) = self.players[k].jobs.last_mut() {
                    job.done = Some(self.now + 1);
                }
                self.switch(cpu, SwitchOutState::Blocked, None);
                if let Some(at) = woken {
                    self.players[k].state = State::Ready;
                    self.release(k);
                    if let Some(job) = self.players[k].jobs.last_mut() {
                        (job.arrival, job.earliest) = (at, at);
                    }
                    return;
                }
                self.players[k].state = State::Asleep { until: self.now + STEP * (1 + self.draw.below(20)) };
            }
            Style::Server => {
                self.enter(cpu, k, number, [3, 0, 8, u64::from(u32::MAX), 0, 0]);
                self.switch(cpu, SwitchOutState::Blocked, None);
                self.players[k].state = State::Asleep { until: self.now + STEP * (1 + self.draw.below(20)) };
            }
            Style::Periodic { period } => {
                self.enter(cpu, k, number, [1, 1, 0, 0, 0, 0]);
                let player = &mut self.players[k];
                player.next_arrival =
                    if player.jobs.is_empty() { self.now + period } else { player.next_arrival + period };
                let until = player.next_arrival;
                self.record_event(cpu, Some(k), Context::Thread, EventKind::Timer { expires: until });
                if until > self.now + 1 {
                    self.switch(cpu, SwitchOutState::Blocked, None);
                    self.players[k].state = State::Asleep { until };
                } else {
                    // Its time has come: the timer wakes it before it has left its CPU.
                    self.interrupt_wakes(cpu, k);
                    self.release(k);
                    self.record_event(cpu, Some(k), Context::Thread, EventKind::SyscallExit { number, result: 0 });
                    let now = self.now;
                    let player = &mut self.players[k];
                    player.in_call = false;
                    player.state = State::On { cpu, since: now };
                    if let Some(job) = player.jobs.last_mut() {
                        job.start = Some(now);
                    }
                }
            }
        }
    }

    fn interrupt_wakes(&mut self, cpu: u32, k: usize) {
        let what = EventKind::Wake { thread: self.thread(Some(k)), waking: Waking::Begins, cpu: None };
        let by = self.on[cpu as usize];
        self.record_event(cpu, by, Context::Hard, what);
    }

    /// The job is done when the thread enters the call.
    fn enter(&mut self, cpu: u32, k: usize, number: i64, args: [u64; 6]) {
        self.record_event(cpu, Some(k), Context::Thread, EventKind::SyscallEnter { number, args });
        let now = self.now;
        let player = &mut self.players[k];
        player.in_call = true;
        let State::On { since, .. } = player.state else { panic!("it runs") };
        if let Some(job) = player.jobs.last_mut() {
            job.done = Some(now);
            job.executed += now - since.max(job.start.unwrap());
        }
    }
}
