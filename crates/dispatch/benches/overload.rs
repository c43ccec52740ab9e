//! Twice the feasible load: the deadlines met by the dispatcher, by one queue in the order of
//! arrival, and by a round-robin executor as in ROS 2. All have the same arrivals and execution
//! times.
//!
//! In virtual time, so the figures show the policies alone and are the same on every machine. The
//! costs of hand-overs are left out for all. The dispatcher is its rehearsal, which decides as the
//! live one does. The executor is rclcpp's with one thread: it collects the due timers, runs each
//! once in the order of their creation, and collects again. A timer that missed periods skips them
//! (rcl: `rcl_timer_call`).
//!
//! Ten operations at 40, 20, 10, 5 and 1 Hz, half of them critical, deadline = period. Execution
//! times are uniform between half the wcet and the wcet. Critical operations load the CPU with 43 %
//! of its time on average, noncritical ones with the rest of the load. An arrival that never starts
//! counts as missed. It fails if muf or rms+mlf lose a critical deadline, or if a plan cannot be
//! computed or rehearsed.
//!
//! `cargo bench -p takt-dispatch --bench overload -- [--seconds 600]`

use std::collections::BTreeMap;
use std::process::ExitCode;

use takt_dispatch::{Limits, Operation, Operations, Plan};
use takt_log::{Event, JobKey, Sink};
use takt_model::draw::{Arrivals, Draw};
use takt_model::{Builtin, Criticality, Exec, NodeId, Span, System, Time};

/// Rate in Hz, wcet of the critical operation in us, and the noncritical operation's share of the
/// CPU at load 1, in thousandths.
const RATES: [(u64, u64, u64); 5] =
    [(40, 6_000, 140), (20, 8_000, 140), (10, 10_000, 140), (5, 12_000, 100), (1, 12_000, 51)];
/// The average share of critical operations, in thousandths.
const CRITICAL: u64 = 429;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let seconds = match (arguments.next().as_deref(), arguments.next().map(|value| value.parse())) {
        (None, _) => 600,
        (Some("--seconds"), Some(Ok(seconds))) if seconds > 0 => seconds,
        _ => {
            eprintln!("--seconds N, above zero, is all there is");
            return ExitCode::from(2);
        }
    };
    let mut kept = true;
    println!("deadlines met of all, {seconds} s               load   critical %  noncritical %");
    for load in [900, 1200, 1500, 2000] {
        for name in ["muf, cancel", "rms+mlf, cancel", "muf", "rm", "edf", "FIFO queue", "round robin (ROS 2)"] {
            match met(name, load, Span::from_s(seconds)) {
                Ok(classes) => {
                    // Strategies that know criticality must keep all critical deadlines under any
                    // load.
                    let [(made, all), _] = classes;
                    kept &= made == all || !(name.starts_with("muf") || name.starts_with("rms+mlf"));
                    let [critical, noncritical] = classes.map(|(made, all)| 100.0 * made as f64 / all.max(1) as f64);
                    println!("{name:<34} {:>11.1} {critical:>12.2} {noncritical:>14.2}", load as f64 / 1e3);
                }
                Err(wrong) => {
                    eprintln!("{name}, load {}: {wrong}", load as f64 / 1e3);
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    if kept {
        return ExitCode::SUCCESS;
    }
    eprintln!("muf or rms+mlf lost a critical deadline");
    ExitCode::FAILURE
}

fn met(name: &str, load: u64, duration: Span) -> Result<[(u64, u64); 2], String> {
    let (strategy, cancel) = match name {
        "muf, cancel" => (Builtin::Muf, true),
        "rms+mlf, cancel" => (Builtin::RmsMlf, true),
        "muf" => (Builtin::Muf, false),
        "edf" => (Builtin::Edf, false),
        "FIFO queue" => (Builtin::Fifo, false),
        _ => (Builtin::Rm, false),
    };
    let plan = plan(load, strategy, cancel)?;
    if name.starts_with("round") {
        return Ok(round_robin(&plan.system, duration));
    }
    let mut counter = Counter { system: &plan.system, met: BTreeMap::new() };
    plan.rehearse(duration, 1, &mut counter).map_err(|error| error.to_string())?;
    Ok(counter.classes(duration))
}

fn plan(load: u64, strategy: Builtin, cancel: bool) -> Result<Plan, String> {
    let mut operations = Operations::new("overload").cancel(cancel);
    for (at, (hz, wcet, part)) in (1..).zip(RATES) {
        let period = Span::from_ms(1000 / hz);
        let critical = Operation::periodic(&format!("critical-{hz}"), period).wcet(Span::from_us(wcet));
        operations.add(critical.offset(Span::from_ms(at)));
        // On average three quarters of the wcet.
        let share = part * (load - CRITICAL) / (1000 - CRITICAL);
        let wcet = Span::from_ns(period.as_ns() / 1000 * share * 4 / 3);
        let rest = Operation::periodic(&format!("rest-{hz}"), period).wcet(wcet.min(period));
        operations.add(rest.offset(Span::from_ms(2 * at)).noncritical());
    }
    let system = operations.to_system(&strategy.strategy()).map_err(|anomalies| anomalies.to_string())?;
    let (mut plan, _) =
        Plan::compute_regardless(&system, NodeId(0), &Limits::default()).map_err(|anomalies| anomalies.to_string())?;
    for task in &mut plan.system.tasks {
        task.exec = Exec::Uniform { min: Span::from_ns(task.wcet.as_ns() / 2), max: task.wcet };
    }
    Ok(plan.with_backlog(1 << 20))
}

/// For critical and noncritical jobs: the deadlines met, and all deadlines within the time.
type Classes = [(u64, u64); 2];

fn classes(system: &System, duration: Span, met: impl Fn(JobKey) -> bool) -> Classes {
    let mut classes = [(0, 0); 2];
    let end = Time::ZERO + duration;
    for (id, task) in system.tasks_of(NodeId(0)) {
        let class = &mut classes[usize::from(task.criticality == Criticality::Low)];
        for arriving in Arrivals::new(task, Draw::new(1, &task.name)) {
            if arriving.arrival.saturating_add(task.deadline) > end {
                break;
            }
            class.1 += 1;
            class.0 += u64::from(met(JobKey { task: id, number: arriving.number }));
        }
    }
    classes
}

/// Counts jobs that ended in time.
struct Counter<'a> {
    system: &'a System,
    met: BTreeMap<JobKey, bool>,
}

impl Sink for Counter<'_> {
    fn event(&mut self, _: u32, _: Time, event: &Event) {
        match *event {
            Event::Miss { job } => drop(self.met.insert(job, false)),
            Event::Complete { job, .. } => {
                self.met.entry(job).or_insert(true);
            }
            _ => {}
        }
    }
}

impl Counter<'_> {
    fn classes(&self, duration: Span) -> Classes {
        classes(self.system, duration, |job| self.met.get(&job) == Some(&true))
    }
}

/// One thread, timers in the order of their creation.
fn round_robin(system: &System, duration: Span) -> Classes {
    struct Timer {
        next: Time,
        /// The number of the arrival at `next`.
        number: u64,
    }
    let end = Time::ZERO + duration;
    let mut timers: Vec<Timer> =
        system.tasks.iter().map(|task| Timer { next: Time::ZERO + task.offset, number: 0 }).collect();
    let (mut now, mut met) = (Time::ZERO, BTreeMap::new());
    while now < end {
        let due: Vec<usize> = (0..timers.len()).filter(|at| timers[*at].next <= now).collect();
        if due.is_empty() {
            now = timers.iter().map(|timer| timer.next).min().unwrap_or(end);
        }
        for at in due {
            let (task, timer) = (&system.tasks[at], &mut timers[at]);
            let (number, arrival) = (timer.number, timer.next);
            // As in rcl, before the callback: periods that are over are skipped.
            let behind = now.saturating_since(arrival).as_ns().saturating_sub(1) / task.period.as_ns();
            timer.number += 1 + behind;
            timer.next = arrival.saturating_add(Span::from_ns(task.period.as_ns() * (1 + behind)));
            now = now.saturating_add(Draw::new(1, &task.name).exec(task, number));
            let id = takt_model::TaskId(at as u32);
            met.insert(JobKey { task: id, number }, now <= arrival.saturating_add(task.deadline));
        }
    }
    classes(system, duration, |job| met.get(&job) == Some(&true))
}
