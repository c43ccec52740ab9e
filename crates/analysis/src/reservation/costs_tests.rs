//! Reservations on one CPU with all costs, nanosecond by nanosecond, compared with `check`.

use std::collections::VecDeque;

use takt_model::generate::Random;
use takt_model::{
    Auto, Builtin, Component, ComponentId, Costs, NodeId, Probability, ServerRule, Span, System, Task, TaskId,
};

use super::costs::{Charge, charge};
use super::size::{Requirements, reserve};
use crate::brute::cases;
use crate::check::{CheckOptions, check};
use crate::linux::LinuxMachine;
use crate::linux::tests::{Server as Fair, State as ServerState};
use crate::pmf::Pmf;
use crate::verdict::Answer;

/// How long a run is.
const END: i64 = 2_500;

/// A task, alone in a server or beside all.
struct Runner {
    task: TaskId,
    // (T, Q, soft).
    server: Option<(i64, i64, bool)>,
    left: i64,
    deadline: i64,
    /// Its budget is known to be used up.
    stopped: bool,
    /// (left, nominal arrival, deadline), the head first.
    jobs: VecDeque<(i64, i64, i64)>,
    next: i64,
}

impl Runner {
    fn new(system: &System, task: TaskId, random: &mut Random) -> Runner {
        let server = system.tasks[task.index()].component.map(|id| {
            let component = &system.components[id.index()];
            let ns = |value: Auto<Span>| value.given().map_or(0, |span| span.as_ns() as i64);
            (ns(component.period), ns(component.budget), component.server == ServerRule::Cbs)
        });
        let (jobs, next) = (VecDeque::new(), random.between(0, 60) as i64);
        Runner { task, server, left: 0, deadline: 0, stopped: false, jobs, next }
    }

    fn arrive(&mut self, now: i64, work: i64, deadline: i64) {
        if let (Some((period, full, _)), true, false) = (self.server, self.jobs.is_empty(), self.stopped)
            && (now >= self.deadline || self.left * period >= (self.deadline - now) * full)
        {
            (self.left, self.deadline) = (full, now + period);
        }
        self.jobs.push_back((work, now, deadline));
    }

    /// At an instant at which a used-up budget is noticed.
    fn notice(&mut self) {
        if self.left <= 0 && self.server.is_some() {
            self.stopped = true;
        }
    }

    fn renew(&mut self, now: i64) {
        let Some((period, full, soft)) = self.server else { return };
        if self.stopped && (now >= self.deadline || (soft && !self.jobs.is_empty())) {
            while self.left <= 0 {
                (self.left, self.deadline) = (self.left + full, self.deadline + period);
            }
            self.stopped = false;
        }
    }

    fn due(&self) -> Option<i64> {
        let head = self.jobs.front()?;
        match self.server {
            Some(_) if self.stopped => None,
            Some(_) => Some(self.deadline),
            None => Some(head.2),
        }
    }
}

/// The longest response of each task. `overrun`: a used-up budget is noticed at ticks so far apart,
/// and where its task stops.
fn run(system: &System, overrun: Option<i64>, mut fair: Option<Fair>, random: &mut Random) -> Vec<i64> {
    let costs = system.nodes[0].costs.unwrap_or(Costs::NONE);
    let ns = |span: Span| span.as_ns() as i64;
    let mut runners: Vec<Runner> =
        (0..system.tasks.len()).map(|i| Runner::new(system, TaskId(i as u32), random)).collect();
    let mut longest = vec![0; system.tasks.len()];
    let (dense, phase) = (random.between(0, 1) == 0, random.between(0, 20) as i64);
    let (mut last, mut debt, mut wants) = (None, 0, false);
    for now in 0..END {
        for runner in &mut runners {
            let task = &system.tasks[runner.task.index()];
            if runner.next == now {
                let least = if dense { task.wcet.as_ns() } else { 1 };
                let work = random.between(least, task.wcet.as_ns()) as i64 + ns(costs.release);
                runner.arrive(now, work, now + ns(task.deadline));
                let late = if dense { 0 } else { random.between(0, 2) / 2 * random.between(0, 40) };
                runner.next += ns(task.period) + late as i64;
            }
        }
        let tick = overrun.is_none_or(|tick| (now + phase) % tick == 0);
        if let (true, Some((at, _))) = (tick, last) {
            let at: usize = at;
            runners[at].notice();
        }
        runners.iter_mut().for_each(|runner| runner.renew(now));
        if random.between(0, 40) == 0 {
            wants = !wants;
        }
        if let Some(fair) = &mut fair {
            if fair.state == ServerState::Running && tick && fair.runtime <= 0 {
                fair.state = ServerState::Throttled;
            }
            fair.advance(now, wants, random);
        }
        let ready = runners.iter().enumerate().filter_map(|(i, runner)| Some((runner.due()?, i)));
        // Among equals that which runs, or any.
        let keeps = |i: usize| last.is_some_and(|(at, _)| at == i);
        let first = ready.min_by_key(|(due, i)| (*due, !keeps(*i), (i + now as usize) % 3));
        let serves = fair.as_ref().is_some_and(|fair| {
            fair.state == ServerState::Running && first.is_none_or(|(due, _)| fair.deadline <= due)
        });
        let runs = first.filter(|_| !serves).map(|(_, i)| (i, runners[i].jobs[0].1));
        if let (Some((before, _)), true) = (last, runs != last) {
            runners[before].notice();
        }
        if runs != last {
            debt = 0;
            if let Some((i, _)) = runs {
                runners[i].jobs[0].0 += ns(costs.switch);
            }
        }
        last = runs;
        match (runs, &mut fair) {
            (None, Some(fair)) if serves || fair.state == ServerState::Armed => fair.runtime -= 1,
            _ => {}
        }
        if let Some(fair) = &mut fair
            && fair.state == ServerState::Armed
            && fair.runtime <= 0
        {
            fair.begin(now + 1);
        }
        let Some((i, arrived)) = runs else { continue };
        for (cost, period) in [(costs.tick, costs.tick_period), (costs.interrupt, costs.interrupt_period)] {
            if now % ns(period) == 0 {
                debt += ns(cost);
            }
        }
        runners[i].left -= 1;
        if debt > 0 {
            debt -= 1;
            continue;
        }
        let head = &mut runners[i].jobs[0];
        head.0 -= 1;
        if head.0 == 0 {
            longest[i] = longest[i].max(now + 1 - arrived);
            runners[i].jobs.pop_front();
            if runners[i].jobs.is_empty() {
                // The kernel checks the budget when the task sleeps.
                runners[i].notice();
                last = None;
            }
        }
    }
    // Waiting jobs count their wait so far.
    for (i, runner) in runners.iter().enumerate() {
        for job in &runner.jobs {
            longest[i] = longest[i].max(END - job.1);
        }
    }
    longest
}

fn random_system(random: &mut Random, overruns: bool) -> System {
    let ns = Span::from_ns;
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    let costs = |random: &mut Random, most| if random.between(0, 1) == 0 { ns(random.between(0, most)) } else { ns(0) };
    let mut node = Costs { switch: costs(random, 3), release: costs(random, 2), ..Costs::NONE };
    (node.tick, node.tick_period) = (costs(random, 2), ns(random.between(if overruns { 2 } else { 20 }, 40)));
    if node.tick >= ns(node.tick_period.as_ns() / 4) {
        node.tick = ns(0);
    }
    (node.interrupt, node.interrupt_period) = (costs(random, 2), ns(random.between(30, 60)));
    system.nodes[0].costs = Some(node);
    let room = random.between(50, 95);
    for i in 0..random.between(1, 3) {
        let (t, u) = (random.between(60, 300), random.between(10, room / 2));
        let (q, p) = ((t * u / 100).max(1), random.between(60, 400));
        let rule = if random.between(0, 1) == 0 { ServerRule::Cbs } else { ServerRule::CbsHard };
        let mut component = Component::new(&format!("s{i}"), NodeId(0), rule);
        (component.period, component.budget) = (Auto::Value(ns(t)), Auto::Value(ns(q)));
        let c = (q * p * random.between(20, 90) / t / 100).max(1);
        let spared = random.between(0, 3) == 0;
        let (c, p) = if spared { ((q / 2).max(1), t + random.between(0, 80)) } else { (c, p) };
        let mut task = Task::periodic(&format!("t{i}"), ns(p), ns(c));
        (task.component, task.deadline) = (Some(ComponentId(i as u32)), ns(p.max(c) + random.between(0, 300)));
        system.components.push(component);
        system.tasks.push(task);
    }
    for i in 0..random.between(0, 2) {
        let p = random.between(40, 400);
        let mut task = Task::periodic(&format!("p{i}"), ns(p), ns((p * random.between(5, 30) / 100).max(1)));
        task.deadline = ns(random.between(p / 2, p));
        system.tasks.push(task);
    }
    system
}

/// A server that uses up all its budgets, and a task that takes nearly all of the rest. The only
/// cost is the late notice of ticks.
fn tight_system(random: &mut Random) -> System {
    let ns = Span::from_ns;
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.nodes[0].costs = Some(Costs { tick_period: ns(random.between(2, 30)), ..Costs::NONE });
    let t = random.between(20, 120);
    let q = random.between(1, t - 1);
    let rule = if random.between(0, 1) == 0 { ServerRule::Cbs } else { ServerRule::CbsHard };
    let mut component = Component::new("s", NodeId(0), rule);
    (component.period, component.budget) = (Auto::Value(ns(t)), Auto::Value(ns(q)));
    system.components.push(component);
    let mut inside = Task::periodic("t", ns(3 * t), ns(3 * q));
    (inside.component, inside.deadline) = (Some(ComponentId(0)), ns(9 * t));
    let p = random.between(t, 4 * t);
    let c = (t - q) * p * random.between(50, 100) / t / 100;
    system.tasks = vec![inside, Task::periodic("p", ns(p), ns(c.max(1)))];
    system
}

#[test]
fn reservations_with_costs_keep_what_is_proven() {
    let (mut proven, mut bounded, mut broken, mut unnoticed) = ([0u64; 3], 0u64, [0u64; 3], [0u64; 3]);
    let cases = cases(900);
    for seed in 0..cases {
        let mut random = Random::new(seed);
        // Nothing of the kernel's; budgets that are noticed at ticks; the server for ordinary threads besides.
        let kind = (seed % 3) as usize;
        let tight = kind > 0 && random.between(0, 2) == 0;
        let system = if tight { tight_system(&mut random) } else { random_system(&mut random, kind > 0) };
        let (q, p) = (random.between(1, 12), random.between(60, 300));
        let server = (kind == 2).then_some((Span::from_ns(q), Span::from_ns(p)));
        let machine = LinuxMachine { fair_server: server, ..LinuxMachine::stock(1) };
        let linux = (kind > 0).then_some(machine);
        let report = check(&system, &CheckOptions { linux, ..CheckOptions::default() });
        let yes = report.schedulable == Answer::Yes;
        let mut free = system.clone();
        free.nodes[0].costs = None;
        let plain = check(&free, &CheckOptions::default());
        // Without what the kernel does.
        let exact = check(&system, &CheckOptions::default());
        assert!(!yes || exact.schedulable == Answer::Yes, "seed {seed}: {system:#?}");
        proven[kind] += u64::from(yes);
        for _ in 0..4 {
            let tick = system.nodes[0].costs.map_or(1, |costs| costs.tick_period.as_ns() as i64);
            let overrun = (kind > 0).then_some(tick);
            let fair =
                server.map(|_| Fair { q: q as i64, p: p as i64, deadline: 0, runtime: 0, state: ServerState::Stopped });
            let longest = run(&system, overrun, fair, &mut random);
            for (i, longest) in longest.into_iter().enumerate() {
                let (id, task) = (TaskId(i as u32), &system.tasks[i]);
                let within = |bound: Span| longest as u64 <= bound.as_ns();
                let context = || format!("seed {seed}: \"{}\" took {longest}: {system:#?}", task.name);
                assert!(!yes || within(task.deadline), "{}", context());
                if let Some(bound) = report.bound_of(id) {
                    bounded += 1;
                    assert!(within(bound), "{bound} {}", context());
                }
                broken[kind] += u64::from(plain.bound_of(id).is_some_and(|bound| !within(bound)));
                let missed = exact.schedulable == Answer::Yes && !within(task.deadline);
                unnoticed[kind] += u64::from(missed || exact.bound_of(id).is_some_and(|bound| !within(bound)));
            }
        }
    }
    println!(
        "{proven:?} proven, {bounded} responses bounded, {broken:?} beyond what holds without costs, \
         {unnoticed:?} without the kernel's"
    );
    if cases >= 900 {
        assert!(proven.iter().all(|count| *count > cases / 60) && bounded > cases, "{proven:?} {bounded}");
        assert!(
            broken.iter().all(|count| *count > 0) && unnoticed[1..].iter().all(|count| *count > 0),
            "{broken:?} {unnoticed:?}"
        );
        assert_eq!(unnoticed[0], 0);
    }
}

#[test]
fn a_sized_reservation_pays_its_costs() {
    let ms = Span::from_ms;
    let us = Span::from_us;
    let mut system =
        System::local(1, Builtin::Edf, vec![Task::periodic("a", ms(40), ms(6)), Task::periodic("b", ms(10), ms(1))]);
    assert_eq!(charge(&system, TaskId(0), ms(20)), Ok(Charge::default()));
    system.nodes[0].costs =
        Some(Costs { switch: us(10), release: us(5), tick: us(2), tick_period: ms(4), ..Costs::NONE });
    // A gap each: its budget's end, and 20/10 + 2 releases of "b". Six ticks.
    let found = charge(&system, TaskId(0), ms(20));
    assert_eq!(found, Ok(Charge { job: us(25), budget: us(5 * 10 + 6 * 2) }));
    // The same where the task has a server already, alone.
    let mut served = system.clone();
    served.components.push(Component::new("s", NodeId(0), ServerRule::CbsHard));
    served.tasks[0].component = Some(ComponentId(0));
    assert_eq!(charge(&served, TaskId(0), ms(20)), found);
    let (exec, arrivals) = (Pmf::certain(6_000_000), Pmf::certain(40_000_000));
    let wanted = |charge| Requirements {
        exec: &exec,
        arrivals: &arrivals,
        period: ms(20),
        deadline: ms(40),
        probability: Probability::ONE,
        pending: None,
        quantum: us(50),
        charge,
    };
    let budget = |charge| reserve(&wanted(charge)).map(|found| found.budget);
    assert_eq!(budget(Charge::default()), Ok(ms(3)));
    // 6025 us in two budgets: 3050 us in quanta, and 62 us of each.
    assert_eq!(budget(found.clone().unwrap_or_default()), Ok(us(3150)));
    // `check` agrees with what is written.
    served.components[0].period = Auto::Value(ms(20));
    let proves = |served: &mut System, q| {
        served.components[0].budget = Auto::Value(q);
        check(served, &CheckOptions::default()).schedulable == Answer::Yes
    };
    assert!(proves(&mut served, us(3150)) && !proves(&mut served, us(3050)));
    // Costs that leave nothing, and tasks that keep the CPU to themselves.
    assert!(
        budget(Charge { budget: ms(20), ..Charge::default() })
            .is_err_and(|error| error.to_string().contains("costs take 20ms"))
    );
    system.tasks[1].preemption = takt_model::Preemption::Until(us(500));
    assert!(charge(&system, TaskId(0), ms(20)).is_err_and(|why| why.contains("\"b\" has sections")));
}
