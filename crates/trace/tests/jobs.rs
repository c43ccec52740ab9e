//! Rebuilt jobs are those that there were: random threads on random machines, played step by step by a slow and obvious kernel
//! that knows each job, against what [`Rebuilder`] makes of the events that such a kernel tells.

use takt_log::{Event, JobKey, Sink};
use takt_model::Time;
use takt_trace::jobs::{Options, Rebuilder};
use takt_trace::{Abi, Comm, Context, KernelEvent, Left, Pid, Thread, Waking, What};

/// A job, as the playing kernel knows it and as it comes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Job {
    arrival: u64,
    start: Option<u64>,
    done: Option<u64>,
    /// Time on CPUs.
    executed: u64,
    preempted: u32,
    migrated: u32,
    /// As early as this it may have arrived.
    earliest: u64,
    /// Something is missing of what it did.
    gap: bool,
}

impl Job {
    fn new(arrival: u64) -> Job {
        Job { arrival, start: None, done: None, executed: 0, preempted: 0, migrated: 0, earliest: arrival, gap: false }
    }
}

/// Random numbers, the same for each seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
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

struct Player {
    style: Style,
    state: State,
    /// What its job has still to do.
    work: u64,
    /// It is in its call: `true` once the call is to be left.
    in_call: bool,
    last_cpu: Option<u32>,
    next_arrival: u64,
    jobs: Vec<Job>,
    /// The kernel keeps to itself what it does, but for interrupts.
    hidden: bool,
}

/// Instants between two steps, so that all that happens in one has an order.
const STEP: u64 = 100;
const CLOCK_NANOSLEEP: i64 = 230;
const EPOLL_WAIT: i64 = 232;

struct World {
    draw: Draw,
    players: Vec<Player>,
    /// Who runs on each CPU.
    on: Vec<Option<usize>>,
    events: Vec<KernelEvent>,
    now: u64,
    /// CPUs whose idle threads are hidden, and whether threads wake others.
    idle_hidden: Vec<bool>,
    threads_wake: bool,
}

fn pid(player: usize) -> Pid {
    player as Pid + 10
}

impl World {
    fn new(seed: u64) -> World {
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
        World { draw, players, on, events: Vec::new(), now: STEP, idle_hidden, threads_wake: false }
    }

    /// A world in which nothing is recorded of what some threads do, idle ones among them.
    fn with_hidden(seed: u64) -> World {
        let mut world = World::new(seed);
        world.threads_wake = world.draw.below(2) == 0;
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

    fn tell(&mut self, cpu: u32, by: Option<usize>, context: Context, what: What) {
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

    fn switch(&mut self, cpu: u32, left: Left, next: Option<usize>) {
        let prev = self.on[cpu as usize];
        let what = What::Switch { prev: self.thread(prev), left, next: self.thread(next) };
        self.tell(cpu, prev, Context::Thread, what);
        let now = self.now;
        if let Some(prev) = prev {
            let player = &mut self.players[prev];
            let State::On { since, .. } = player.state else { panic!("it ran") };
            if let Some(job) =
                player.jobs.last_mut().filter(|job| job.start.is_some() && job.done.is_none_or(|done| done == now))
            {
                job.executed += now - since.max(job.start.unwrap());
                job.preempted += u32::from(left == Left::Preempted && job.done.is_none());
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

    /// One step: wake-ups, then who runs, then what the running ones do.
    fn step(&mut self) {
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
            let what = What::Wake { thread: self.thread(Some(k)), waking: Waking::Begins, cpu: None };
            let cpu = self.draw.below(self.on.len() as u64) as u32;
            let by = self.on[cpu as usize];
            let by_thread = self.threads_wake && self.draw.below(2) == 0;
            self.tell(cpu, by, if by_thread { Context::Thread } else { Context::Hard }, what);
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
            self.switch(cpu, if before.is_some() { Left::Preempted } else { Left::Ready }, Some(*k));
            if let Some(before) = before {
                self.players[before].state = State::Ready;
            }
        }
    }

    /// The thread on `cpu` goes on for a step.
    fn act(&mut self, cpu: u32, k: usize) {
        let number = if let Style::Periodic { .. } = self.players[k].style { CLOCK_NANOSLEEP } else { EPOLL_WAIT };
        if self.players[k].in_call {
            self.players[k].in_call = false;
            self.tell(cpu, Some(k), Context::Thread, What::SyscallExit { number, result: 0 });
        }
        self.players[k].work -= 1;
        if self.players[k].work > 0 {
            if self.draw.below(8) == 0 {
                self.switch(cpu, Left::Held, None);
                self.players[k].state = State::Held { until: self.now + STEP * (1 + self.draw.below(5)) };
            }
            return;
        }
        match self.players[k].style {
            Style::Kernel => {
                if let Some(job) = self.players[k].jobs.last_mut() {
                    job.done = Some(self.now + 1);
                }
                self.switch(cpu, Left::Blocked, None);
                self.players[k].state = State::Asleep { until: self.now + STEP * (1 + self.draw.below(20)) };
            }
            Style::Server => {
                self.enter(cpu, k, number, [3, 0, 8, u64::from(u32::MAX), 0, 0]);
                self.switch(cpu, Left::Blocked, None);
                self.players[k].state = State::Asleep { until: self.now + STEP * (1 + self.draw.below(20)) };
            }
            Style::Periodic { period } => {
                self.enter(cpu, k, number, [1, 1, 0, 0, 0, 0]);
                let player = &mut self.players[k];
                player.next_arrival =
                    if player.jobs.is_empty() { self.now + period } else { player.next_arrival + period };
                let until = player.next_arrival;
                self.tell(cpu, Some(k), Context::Thread, What::Timer { expires: until });
                if until > self.now + 1 {
                    self.switch(cpu, Left::Blocked, None);
                    self.players[k].state = State::Asleep { until };
                } else {
                    // Its time has come: the timer wakes it before it has left its CPU.
                    let what = What::Wake { thread: self.thread(Some(k)), waking: Waking::Begins, cpu: None };
                    self.tell(cpu, Some(k), Context::Hard, what);
                    self.release(k);
                    self.tell(cpu, Some(k), Context::Thread, What::SyscallExit { number, result: 0 });
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

    /// The job is done when the thread enters the call.
    fn enter(&mut self, cpu: u32, k: usize, number: i64, args: [u64; 6]) {
        self.tell(cpu, Some(k), Context::Thread, What::SyscallEnter { number, args });
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

/// Collects jobs by the threads' names.
#[derive(Default)]
struct Jobs {
    names: Vec<String>,
    jobs: Vec<Vec<Job>>,
    /// Since when each task's job has been running.
    since: Vec<u64>,
    /// When each task's next job may have arrived.
    earliest: Vec<Option<u64>>,
}

impl Jobs {
    fn job(&mut self, key: JobKey) -> &mut Job {
        let jobs = &mut self.jobs[key.task.index()];
        assert_eq!(jobs.len() as u64, key.number + 1, "events are of the last job");
        jobs.last_mut().unwrap()
    }
    fn stop(&mut self, now: u64, key: JobKey) {
        let since = self.since[key.task.index()];
        self.job(key).executed += now - since;
    }
}

impl Sink for Jobs {
    fn event(&mut self, _: u32, now: Time, event: &Event) {
        let now = now.as_ns();
        match *event {
            Event::Window { job, earliest } => self.earliest[job.task.index()] = Some(earliest.as_ns()),
            Event::Release { job, arrival, .. } => {
                assert_eq!(self.jobs[job.task.index()].len() as u64, job.number);
                let earliest = self.earliest[job.task.index()].take().unwrap_or(arrival.as_ns());
                self.jobs[job.task.index()].push(Job { earliest, ..Job::new(arrival.as_ns()) });
            }
            Event::Gap { job } => self.job(job).gap = true,
            Event::Start { job, .. } => {
                self.job(job).start = Some(now);
                self.since[job.task.index()] = now;
            }
            Event::Resume { job, .. } => self.since[job.task.index()] = now,
            Event::Preempt { job, .. } => {
                self.job(job).preempted += 1;
                self.stop(now, job);
            }
            Event::Block { job, .. } => self.stop(now, job),
            Event::Complete { job, .. } => {
                self.stop(now, job);
                self.job(job).done = Some(now);
            }
            Event::Migrate { job, .. } => self.job(job).migrated += 1,
            Event::Wake { .. } => {}
            ref other => panic!("{other:?}"),
        }
    }
    fn define(&mut self, _: u32, _: Time, definition: &takt_log::Definition) {
        if let takt_log::Definition::Task(task, def) = definition {
            assert_eq!(task.index(), self.names.len());
            self.names.push(def.name.clone());
            self.jobs.push(Vec::new());
            self.since.push(0);
            self.earliest.push(None);
        }
    }
}

/// What the rebuilder makes of each thread, beside what there was.
fn rebuilt(world: &World) -> Vec<(Vec<Job>, Vec<Job>)> {
    let cpus = world.on.len() as u32;
    let mut rebuilder = Rebuilder::new(Options { abi: Abi::X86_64, monotonic: true, cpus, ..Options::default() });
    let mut found = Jobs::default();
    world.events.iter().for_each(|event| rebuilder.event(event, &mut found));
    // The log's zero is the first event.
    let zero = world.events.first().map_or(0, |event| event.time.as_ns());
    let of_player = |(k, player): (usize, &Player)| {
        let name = format!("t{k}-{}", pid(k));
        let at = found.names.iter().position(|found| *found == name);
        let mut rebuilt = at.map_or(&[][..], |at| &found.jobs[at]).to_vec();
        for job in &mut rebuilt {
            (job.arrival, job.earliest) = (job.arrival + zero, job.earliest + zero);
            job.start = job.start.map(|start| start + zero);
            job.done = job.done.map(|done| done + zero);
        }
        let mut there_were = player.jobs.clone();
        // Of the last job both sides know a part.
        for jobs in [&mut rebuilt, &mut there_were] {
            if let Some(open) = jobs.last_mut().filter(|job| job.done.is_none()) {
                open.executed = 0;
            }
        }
        (rebuilt, there_were)
    };
    world.players.iter().enumerate().map(of_player).collect()
}

fn cases() -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(500)
}

#[test]
fn rebuilt_jobs_are_those_that_there_were() {
    let (mut compared, mut preempted, mut migrated, mut late) = (0, 0, 0, 0);
    for seed in 0..cases() {
        let mut world = World::new(seed);
        (0..300).for_each(|_| world.step());
        for (k, (rebuilt, there_were)) in rebuilt(&world).into_iter().enumerate() {
            assert_eq!(rebuilt, there_were, "seed {seed}: t{k}, {:?}", world.players[k].style);
            compared += rebuilt.len();
            preempted += rebuilt.iter().map(|job| job.preempted).sum::<u32>();
            migrated += rebuilt.iter().map(|job| job.migrated).sum::<u32>();
            late += rebuilt.windows(2).filter(|pair| pair[0].done.is_some_and(|done| done > pair[1].arrival)).count();
        }
    }
    assert!(
        compared > 10_000 && preempted > 1000 && migrated > 100 && late > 100,
        "{compared} {preempted} {migrated} {late}"
    );
}

/// What threads do in whose context something is recorded is told, or doubted job by job, whoever gave them their CPUs.
#[test]
fn no_job_is_hidden_by_threads_that_hide() {
    let (mut exact, mut from_calls, mut doubted, mut windows) = (0, 0, 0, 0);
    for seed in 0..cases() {
        let mut world = World::with_hidden(seed);
        (0..300).for_each(|_| world.step());
        for (k, (rebuilt, mut there_were)) in rebuilt(&world).into_iter().enumerate() {
            if world.players[k].hidden {
                continue;
            }
            let what = format!("seed {seed}: t{k}, {:?}", world.players[k].style);
            if there_were.len() == rebuilt.len() + 1 && there_were.last().is_some_and(|last| last.done.is_none()) {
                there_were.pop();
            }
            assert_eq!(rebuilt.len(), there_were.len(), "{what}: {rebuilt:#?} {there_were:#?}");
            for (n, (rebuilt, job)) in rebuilt.iter().zip(&there_were).enumerate() {
                let what = format!("{what}, job {n}: {rebuilt:?} of {job:?}");
                assert!(rebuilt.earliest <= job.arrival && job.arrival <= rebuilt.arrival, "{what}");
                assert_eq!(rebuilt.done, job.done, "{what}");
                windows += u32::from(rebuilt.earliest < rebuilt.arrival);
                doubted += u32::from(rebuilt.gap);
                if rebuilt.gap || job.done.is_none() {
                    continue;
                }
                // A job that began by a hidden switch starts when its call returns.
                let later = rebuilt.start.unwrap() - job.start.unwrap();
                assert!(later < 2 * STEP, "{what}");
                assert_eq!(rebuilt.executed + later, job.executed, "{what}");
                assert_eq!((rebuilt.preempted, rebuilt.migrated), (job.preempted, job.migrated), "{what}");
                (exact, from_calls) = (exact + u32::from(later == 0), from_calls + u32::from(later > 0));
            }
        }
    }
    assert!(
        exact > 2000 && from_calls > 500 && doubted > 500 && windows > 500,
        "{exact} {from_calls} {doubted} {windows}"
    );
}
