//! The size of a simulated world: nodes in flows, on one thread.
//!
//! `cargo bench -p takt-sim --bench world` prints a row for each number of nodes, each with ten flows a node.
//! `-- --nodes N` prints one row, `-- --flows F` gives each node so many flows, and `-- --seconds S` sets the virtual
//! time. Rows with as many flows and fewer nodes tell how much of the growth is memory, and not the calendar.

mod measure;

use std::time::Instant;

use measure::{cpu_seconds, option, peak_memory_mb};
use takt_log::{Event, Sink};
use takt_model::*;
use takt_sim::{SimOptions, simulate};

/// Counts events.
struct Count(u64);

impl Sink for Count {
    fn event(&mut self, _: u32, _: Time, _: &Event) {
        self.0 += 1;
    }
    fn wants_misses(&self) -> bool {
        false
    }
}

fn main() {
    println!("   nodes    flows  virtual      jobs    events   CPU time  wall time  a CPU-second  an event   memory");
    let seconds = option("--seconds").and_then(|n| n.parse::<f64>().ok());
    let flows = option("--flows").and_then(|n| n.parse().ok()).unwrap_or(10);
    match option("--nodes").and_then(|n| n.parse().ok()) {
        Some(nodes) => row(nodes, flows, seconds.unwrap_or(10.0)),
        None => [(10, 10.0), (100, 10.0), (1_000, 10.0), (10_000, 1.0)]
            .into_iter()
            .for_each(|(nodes, most)| row(nodes, flows, seconds.unwrap_or(most))),
    }
}

fn row(nodes: u32, flows: u32, seconds: f64) {
    let system = world(nodes, flows);
    let options = SimOptions { duration: Span::from_ns((seconds * 1e9) as u64), ..SimOptions::default() };
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    // A moment alone shows what it takes to begin.
    let short = SimOptions { duration: Span::from_ns(1), ..SimOptions::default() };
    simulate(&system, &short, &mut Count(0)).expect("the system can be simulated");
    let begun = cpu.zip(cpu_seconds()).map_or(wall.elapsed().as_secs_f64(), |(before, after)| after - before);
    let (wall, cpu, mut count) = (Instant::now(), cpu_seconds(), Count(0));
    let done = simulate(&system, &options, &mut count).expect("the system can be simulated");
    let elapsed = wall.elapsed().as_secs_f64();
    let took = cpu.zip(cpu_seconds()).map_or(elapsed, |(before, after)| after - before);
    println!(
        "{nodes:>8} {:>8} {seconds:>6} s {:>8.2} M {:>7.2} M {took:>8.2} s {elapsed:>8.2} s {:>10.3} s {:>6.0} ns \
         {:>6.0} MB \
         ({begun:.2} s to begin)",
        system.flows.len(),
        done.released as f64 / 1e6,
        count.0 as f64 / 1e6,
        seconds / took,
        (took - begun) / count.0 as f64 * 1e9,
        peak_memory_mb(),
    );
}

/// Nodes with tables, and so many flows over three nodes each for every node.
fn world(nodes: u32, flows: u32) -> System {
    let us = Span::from_us;
    let table = |wcet| Some(TableTask { period: us(10_000), wcet: us(wcet), cost: Some(us(10)) });
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.nodes = (0..nodes)
        .map(|i| {
            let node = NodeSpec::new(&format!("n{i}"), 1, StrategyRef::Builtin(Builtin::Edf));
            NodeSpec { receive: table(1_000), send: table(1_000), ..node }
        })
        .collect();
    system.flows = (0..flows * nodes)
        .map(|i| {
            let path = [i, i + 1, i + 2].map(|node| NodeId(node % nodes)).to_vec();
            let period = us(90_000 + u64::from(i) * 37 % 20_000);
            Flow {
                name: format!("f{i}"),
                path,
                reply: false,
                period,
                wcet: us(100),
                deadline: us(90_000),
                send_gap: period,
                hop_wcet: us(100),
                size: Bytes::default(),
                hop_deadlines: vec![us(30_000); 3],
            }
        })
        .collect();
    system.networks.push(Network::any(us(50), us(500)));
    system
}
