//! How fast one more task is admitted into 10^4, and how fast `check` says the same from scratch
//! (`cargo bench -p takt-analysis --bench admit`).
//!
//! Periods log-uniform from 10 ms to 1 s in whole ns, seeded. Each row adds a task of 10^-5 of the
//! CPU and removes it again; medians.

use std::hint::black_box;
use std::time::{Duration, Instant};

use takt_analysis::admit::{Change, DecidedBy, Part, Refusal};
use takt_analysis::{Admission, Answer, CheckOptions, check};
use takt_model::generate::Random;
use takt_model::{
    Auto, Builtin, Bytes, Component, ComponentId, Flow, Network, NodeId, NodeSpec, ServerRule, Span, StrategyRef,
    System, TableTask, Task,
};

const TASKS: u64 = 10_000;
const ROUNDS: usize = 101;

fn main() {
    println!("one more task into {TASKS}, one CPU (medians of {ROUNDS}; from scratch: of 5)");
    println!("{:<44} {:>12} {:>12} {:>14} {:>8}", "", "add", "remove", "from scratch", "ratio");
    row("edf, U = 0.7, implicit (density)", Builtin::Edf, 0.7, 100);
    row("edf, U = 0.7, deadlines 60 % (demand)", Builtin::Edf, 0.7, 60);
    row("rm, U = 0.6, implicit (bounds)", Builtin::Rm, 0.6, 100);
    row("rm, U = 0.8, implicit (fixed points)", Builtin::Rm, 0.8, 100);
    row("dm, U = 0.4, deadlines 80 %", Builtin::Dm, 0.4, 80);
    components(100, 10);
    flows(100, 100);
}

/// One more component with a task among others, on one CPU.
fn components(count: u64, each: u64) {
    let mut random = Random::new(7);
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    let mut made = |i: u64, load: f64| {
        let period = random.log_between(10_000_000, 100_000_000);
        let budget = Span::from_ns((period as f64 * load) as u64);
        let component = Component {
            name: format!("c{i}"),
            node: NodeId(0),
            parent: None,
            strategy: StrategyRef::Builtin(Builtin::Rm),
            server: ServerRule::Ptps,
            period: Auto::Value(Span::from_ns(period)),
            budget: Auto::Value(budget),
            quantum: None,
            cpus: 1,
            server_cpus: Vec::new(),
            priority: None,
            threads: None,
        };
        let tasks: Vec<Task> = (0..each)
            .map(|k| {
                let t = random.log_between(10 * period, 100 * period);
                let c = (t as f64 * load / (2 * each) as f64) as u64;
                Task::periodic(&format!("t{i}-{k}"), Span::from_ns(t), Span::from_ns(c))
            })
            .collect();
        (component, tasks)
    };
    for i in 0..count {
        let (component, tasks) = made(i, 0.8 / count as f64);
        system.components.push(component);
        system.tasks.extend(tasks.into_iter().map(|task| Task { component: Some(ComponentId(i as u32)), ..task }));
    }
    let more: Vec<_> = (0..ROUNDS as u64).map(|i| made(count + i, 0.001)).collect();
    changes(&format!("edf, {count} components of {each} tasks"), system, |admission, round| {
        let (component, tasks) = &more[round];
        let inside = tasks.iter().map(|task| Task { component: Some(ComponentId(count as u32)), ..task.clone() });
        let change = Change { components: vec![component.clone()], tasks: inside.collect(), ..Change::default() };
        let start = Instant::now();
        let added = black_box(admission.change(&change));
        let took = start.elapsed();
        let parts = tasks.iter().map(|task| Part::Task(task.name.clone()));
        let remove = parts.chain([Part::Component(component.name.clone())]).collect();
        (added, took, Change { remove, ..Change::default() })
    });
}

/// One more flow over three nodes, each with flows and tasks of its own.
fn flows(nodes: u32, tasks: u64) {
    let mut random = Random::new(7);
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.nodes.clear();
    let (delay_min, delay_max) = (Span::from_us(10), Span::from_us(50));
    system.networks = vec![Network::any(delay_min, delay_max)];
    let table = TableTask { period: Span::from_ms(1), wcet: Span::from_us(20), cost: None };
    for i in 0..nodes {
        let mut node = NodeSpec::new(&format!("n{i}"), 1, StrategyRef::Builtin(Builtin::Edf));
        (node.receive, node.send) = (Some(table), Some(table));
        system.nodes.push(node);
        for k in 0..tasks {
            let t = random.log_between(10_000_000, 1_000_000_000);
            let task = Task::periodic(&format!("t{i}-{k}"), Span::from_ns(t), Span::from_ns(t / (2 * tasks)));
            system.tasks.push(Task { node: NodeId(i), ..task });
        }
    }
    let mut flow = |i: u32, wcet: Span| {
        let first = random.between(0, u64::from(nodes) - 1) as u32;
        let path = (0..3).map(|hop| NodeId((first + hop) % nodes)).collect();
        // Whole periods of the sending task: else messages come before the one before may leave, and pile up.
        let period = Span::from_ms(random.log_between(50, 1_000));
        let (name, deadline, size, hop_deadlines) = (format!("f{i}"), period, Bytes::default(), Vec::new());
        Flow { name, path, reply: false, period, wcet, deadline, send_gap: period, hop_wcet: wcet, size, hop_deadlines }
    };
    system.flows = (0..nodes).map(|i| flow(i, Span::from_us(100))).collect();
    let more: Vec<Flow> = (0..ROUNDS as u32).map(|i| flow(nodes + i, Span::from_us(10))).collect();
    changes(&format!("{nodes} nodes of {tasks} tasks, {nodes} flows"), system, |admission, round| {
        let change = Change { flows: vec![more[round].clone()], ..Change::default() };
        let start = Instant::now();
        let added = black_box(admission.change(&change));
        let took = start.elapsed();
        let remove = vec![Part::Flow(more[round].name.clone())];
        (added, took, Change { remove, ..Change::default() })
    });
}

/// A row of what comes and goes.
fn changes(
    name: &str,
    system: System,
    add: impl Fn(&mut Admission, usize) -> (Result<DecidedBy, Refusal>, Duration, Change),
) {
    let mut admission = match Admission::new(system.clone()) {
        Ok(admission) => admission,
        Err(refusal) => return println!("{name:<44} {refusal}"),
    };
    let (mut adds, mut removes, mut by) = (Vec::new(), Vec::new(), String::new());
    for round in 0..ROUNDS {
        let (added, took, remove) = add(&mut admission, round);
        adds.push(took);
        by = added.map_or_else(|refusal| refusal.to_string(), |by| by.name().to_owned());
        let start = Instant::now();
        let _ = black_box(admission.change(&remove));
        removes.push(start.elapsed());
    }
    print(name, adds, removes, &system, &by);
}

fn row(name: &str, builtin: Builtin, load: f64, percent: u64) {
    let mut random = Random::new(7);
    let one = |i: u64, random: &mut Random| {
        let t = random.log_between(10_000_000, 1_000_000_000);
        let c = ((t as f64 * load / TASKS as f64) as u64).max(1);
        let deadline = Span::from_ns(t * percent / 100);
        Task { deadline, ..Task::periodic(&format!("t{i}"), Span::from_ns(t), Span::from_ns(c)) }
    };
    let tasks = (0..TASKS).map(|i| one(i, &mut random)).collect();
    let system = System::local(1, builtin, tasks);
    let Ok(mut admission) = Admission::new(system.clone()) else { return println!("{name:<44} is not proven") };
    let (mut adds, mut removes) = (Vec::new(), Vec::new());
    let mut by = String::new();
    for round in 0..ROUNDS as u64 {
        let task = Task { wcet: Span::from_ns(100), ..one(TASKS + round, &mut random) };
        let start = Instant::now();
        let added = black_box(admission.add(std::slice::from_ref(&task)));
        adds.push(start.elapsed());
        by = added.map_or_else(|refusal| refusal.to_string(), |by| by.name().to_owned());
        let start = Instant::now();
        let _ = black_box(admission.remove(&task.name));
        removes.push(start.elapsed());
    }
    print(name, adds, removes, &system, &by);
}

/// The medians, beside those of `check`.
fn print(name: &str, adds: Vec<Duration>, removes: Vec<Duration>, system: &System, by: &str) {
    let options = CheckOptions { verdict_only: true, ..CheckOptions::default() };
    let scratch: Vec<Duration> = (0..5)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(black_box(check(system, &options)).schedulable, Answer::Yes);
            start.elapsed()
        })
        .collect();
    let (add, remove, scratch) = (median(adds), median(removes), median(scratch));
    let ratio = scratch.as_secs_f64() / add.as_secs_f64().max(1e-9);
    println!("{name:<44} {add:>12.1?} {remove:>12.1?} {scratch:>14.1?} {ratio:>8.0}  {by}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
