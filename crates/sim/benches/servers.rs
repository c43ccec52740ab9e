//! The cost of servers: jobs per CPU-second from simulation to statistics, on one thread.
//!
//! `cargo bench -p takt-sim --bench servers` prints everything; `-- --jobs 1e6` sets the length of a row, and
//! `-- --simso PYTHON` runs SimSo (PyPI simso 0.8.5) beside it: on the same tasks without servers, and with each of
//! them in a constant-bandwidth server of its own. It has no other servers, and none with several tasks.

mod measure;

use measure::{option, simso, statistics, system};
use takt_model::{
    Auto, Builtin, Component, ComponentId, NodeId, Placement, ServerRule, Span, StrategyRef, System, Task,
};

fn main() {
    let jobs = option("--jobs").and_then(|n| n.parse::<f64>().ok()).unwrap_or(5e5);
    println!("five components with fifty tasks each on one CPU, U = 0.75, beside the same tasks under rm");
    let without = statistics(&domains(None), jobs);
    println!("  {:20} {:>6.3} M/s", "no server, rm", without / 1e6);
    let alone = statistics(&reservations(), jobs);
    println!("  {:20} {:>6.3} M/s: {:>5.2} times the time", "cbs-hard, each alone", alone / 1e6, without / alone);
    if let Some(python) = option("--simso") {
        for (set, takt) in [("domains", without), ("reservations", alone)] {
            match simso(&python, set) {
                Ok(peer) => {
                    let times = takt / peer;
                    println!("  SimSo, {set:13} {:>6.4} M/s: {times:>5.0} times the time of takt", peer / 1e6);
                }
                Err(error) => println!("  SimSo, {set}: {error}"),
            }
        }
    }
    for rule in ServerRule::ALL {
        let rate = statistics(&domains(Some(rule)), jobs);
        println!("  {:20} {:>6.3} M/s: {:>5.2} times the time", rule.name(), rate / 1e6, without / rate);
    }
    let sizes = [10, 100, 1_000, 10_000];
    for rule in [
        ServerRule::Ptps,
        ServerRule::Wcps,
        ServerRule::Crps,
        ServerRule::Polling,
        ServerRule::CbsHard,
        ServerRule::Grub,
    ] {
        growth(rule.name(), sizes.map(|count| many(count, 1, rule)), jobs);
    }
    let partitioned = |count| {
        let mut system = many(count, 4, ServerRule::CbsHard);
        system.nodes[0].placement = Placement::Partitioned;
        system.components.iter_mut().enumerate().for_each(|(i, one)| one.server_cpus = vec![i as u32 % 4]);
        system
    };
    growth("cbs-hard, 4 CPUs, partitioned", sizes.map(partitioned), jobs);
    growth("cbs-hard, 4 CPUs, global", sizes.map(|count| many(count, 4, ServerRule::CbsHard)), jobs / 10.0);
}

/// Time per job by number of components.
fn growth(name: &str, systems: [System; 4], jobs: f64) {
    print!("  {name:30}");
    for system in systems {
        let ns = 1e9 / statistics(&system, jobs.max(20.0 * system.tasks.len() as f64));
        print!(" {:>6}: {ns:>8.0} ns", system.components.len());
    }
    println!();
}

/// 250 tasks in five components of 18 % of the CPU each; without a rule the tasks alone.
fn domains(rule: Option<ServerRule>) -> System {
    let mut system = system(250, 1, 3);
    system.nodes[0].strategy = StrategyRef::Builtin(if rule.is_some() { Builtin::Edf } else { Builtin::Rm });
    let Some(rule) = rule else { return system };
    for i in 0..5 {
        let mut component = Component::new(&format!("d{i}"), NodeId(0), rule);
        component.strategy = StrategyRef::Builtin(Builtin::Rm);
        component.period = Auto::Value(Span::from_us(5000 + 500 * i));
        component.budget = Auto::Value(Span::from_us((5000 + 500 * i) * 18 / 100));
        system.components.push(component);
    }
    for (i, task) in system.tasks.iter_mut().enumerate() {
        task.component = Some(ComponentId(i as u32 % 5));
    }
    system
}

/// The 250 tasks, each in a server of its own with a fifth to spare.
fn reservations() -> System {
    let mut system = system(250, 1, 3);
    for i in 0..system.tasks.len() {
        let task = &mut system.tasks[i];
        task.component = Some(ComponentId(i as u32));
        let component = Component::new(&format!("r{i}"), NodeId(0), ServerRule::CbsHard);
        let budget = Span::from_ns(task.wcet.as_ns() * 6 / 5);
        let (period, budget) = (Auto::Value(task.period), Auto::Value(budget));
        system.components.push(Component { period, budget, ..component });
    }
    system
}

/// Components with a task each, together 90 % of each CPU. Periods are 10 to 100 ms.
fn many(count: usize, cpus: u32, rule: ServerRule) -> System {
    let mut system = System::local(cpus, Builtin::Edf, Vec::new());
    for i in 0..count {
        let period = Span::from_us(10_000 + 90_000 * (i as u64 * 7 % count as u64) / count as u64);
        let budget = Span::from_ns(period.as_ns() * 9 / 10 * u64::from(cpus) / count as u64);
        let component = Component::new(&format!("c{i}"), NodeId(0), rule);
        system.components.push(Component { period: Auto::Value(period), budget: Auto::Value(budget), ..component });
        let wcet = Span::from_ns(budget.as_ns() * 8 / 10);
        let task = Task::periodic(&format!("t{i}"), period, wcet);
        system.tasks.push(Task { component: Some(ComponentId(i as u32)), ..task });
    }
    system
}
