//! The adaptive controller loses no critical deadline that the guard's analysis promises, under any
//! calm strategy and any noncritical load.

use super::random::Dice;
use super::{replay, seeds};
use takt_analysis::{CheckOptions, check};
use takt_dispatch::{Adaptive, Limits, Operation, Operations, Plan};
use takt_log::{Event, Sink};
use takt_model::*;

/// The systems' times are multiples of this, so that no window is too short for a controller.
const UNIT: u64 = Adaptive::WINDOW_MIN.as_ns() / 20;

fn units(units: u64) -> Span {
    Span::from_ns(units * UNIT)
}

/// Critical operations that are to fit, and noncritical ones that need not.
fn operations(dice: &mut Dice) -> Operations {
    let cpus = dice.roll(1, 2) as u32;
    let mut set = Operations::new("random").cpus(cpus).cancel(dice.chance(50));
    let light = dice.roll(2, 5);
    for i in 0..dice.roll(1, 4) {
        let period = dice.pick(&[16, 24, 30, 40, 60, 120]);
        let wcet = dice.roll(1, (period / light / 2).max(1));
        let name = format!("c{i}");
        let operation = match dice.roll(0, 4) {
            0 if i > 0 => Operation::after(&name, [format!("c{}", i - 1)]),
            _ => Operation::periodic(&name, units(period)).offset(units(dice.roll(0, period))),
        };
        let operation = operation.on_cpu(dice.roll(0, u64::from(cpus) - 1) as u32);
        let operation = operation.wcet(units(wcet)).importance(dice.roll(0, 2) as u32);
        let latest = if dice.chance(30) { 2 * period } else { period };
        set.add(if dice.chance(60) { operation.deadline(units(dice.roll(wcet, latest))) } else { operation });
    }
    for i in 0..dice.roll(1, 4) {
        let (name, period) = (format!("n{i}"), dice.pick(&[8, 12, 16, 40]));
        let operation = match dice.roll(0, 3) {
            0 if i > 0 => Operation::after(&name, [format!("n{}", i - 1)]),
            _ => Operation::periodic(&name, units(period)).offset(units(dice.roll(0, period))),
        };
        let operation = operation.on_cpu(dice.roll(0, u64::from(cpus) - 1) as u32);
        set.add(operation.wcet(units(dice.roll(1, period))).noncritical());
    }
    set
}

/// The plan of some of the operations under a strategy and, as a mode, another.
fn plan(set: &Operations, calm: Builtin, guard: Builtin, preemptive: bool) -> Plan {
    let mut system = set.to_system(&calm.strategy()).unwrap();
    if preemptive {
        system.nodes[0].strategy = StrategyRef::Builtin(calm);
    }
    let limits = Limits { critical_utilization_ppm: u32::MAX, preemptive, ..Limits::default() };
    let (plan, _) = Plan::compute_adaptive(&system, NodeId(0), StrategyRef::Builtin(guard), &limits).unwrap();
    plan.with_backlog(1000)
}

/// The bound of a critical operation under the guard, where it is within the deadline.
fn response(plan: &Plan, name: &str) -> Option<(String, Span)> {
    let guarded = plan.guarded(1, name)?;
    let id = guarded.task_by_name(name)?;
    let bound = check(&guarded, &CheckOptions::default()).bound_of(id)?;
    (bound <= guarded.tasks[id.index()].deadline).then(|| (name.to_owned(), bound))
}

struct Recorded<'a> {
    system: &'a System,
    missed: Vec<(Time, String)>,
    switches: u64,
}

impl Sink for Recorded<'_> {
    fn event(&mut self, _: u32, at: Time, event: &Event) {
        match event {
            Event::Miss { job } => {
                let task = &self.system.tasks[job.task.index()];
                if task.criticality == Criticality::High {
                    self.missed.push((at, format!("{} {}", task.name, job.number)));
                }
            }
            // In the dispatcher no critical job ends otherwise.
            Event::Cancel { job, cause } => {
                let task = &self.system.tasks[job.task.index()];
                if task.criticality == Criticality::High {
                    self.missed.push((at, format!("{} {}: {cause:?}", task.name, job.number)));
                }
            }
            Event::ModeChange { .. } => self.switches += 1,
            _ => {}
        }
    }
}

#[test]
fn the_controller_loses_no_critical_deadline_that_its_guard_keeps() {
    use Builtin::{Edf, Fifo, Mlf, Muf, Rm, RmsMlf};
    let (mut proven, mut saved, mut returned) = (0, 0, 0);
    let seeds = seeds(1500);
    let all = seeds.clone();
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let set = operations(&mut dice);
        let (calm, guard) = (dice.pick(&[Rm, Edf, Mlf, Fifo]), dice.pick(&[RmsMlf, RmsMlf, Muf, Muf, Edf]));
        let replay = replay(seed, "adaptive::");
        let plan = plan(&set, calm, guard, dice.chance(50));
        let plain = Adaptive {
            window: units(dice.roll(20, 200)),
            dwell: dice.roll(1, 3) as u32,
            margin: Span::ZERO,
            ..Adaptive::between(0, 1)
        };
        let critical = set.operations.iter().filter(|operation| operation.criticality == Criticality::High);
        let law = critical.map(|operation| response(&plan, &operation.name)).collect::<Option<_>>();
        let law = law.map(|responses| Adaptive { responses, ..plain });
        let Some(law) = law.filter(|law| law.wrong(&plan).is_none()) else { continue };
        proven += 1;
        let mut switches = 0;
        // The one that comes back whenever there is time to spare keeps them, too.
        for law in [law.clone(), law.clone().reclaiming(law.window)] {
            let mut told = Recorded { system: &plan.system, missed: Vec::new(), switches: 0 };
            plan.rehearse_adaptive(&law, units(3000), seed, &mut told).unwrap();
            assert_eq!(told.missed, [], "{replay}\n{calm:?} {guard:?} {law:?}\n{plan}");
            switches = told.switches;
        }
        let mut calm_alone = Recorded { system: &plan.system, missed: Vec::new(), switches: 0 };
        let mut system = plan.system.clone();
        system.modes.clear();
        let options = takt_sim::SimOptions { duration: units(3000), seed, node: None };
        takt_sim::simulate(&system, &options, &mut calm_alone).unwrap();
        saved += u64::from(!calm_alone.missed.is_empty());
        returned += u64::from(switches > 2);
    }
    let enough = all.end - all.start < 1500 || (proven > 200 && saved > 50 && returned > 20);
    assert!(enough, "{proven} proven, {saved} saved from what calm loses, {returned} went to and fro");
}
