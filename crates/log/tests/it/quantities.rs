//! Executions, distances, latencies and interrupts against a reference that looks at every nanosecond; intervals
//! against the whole.

use proptest::prelude::*;
use takt_log::stats::{Collector, CpuStats, Histogram, Quantity, Stats, TaskStats};
use takt_log::{Definitions, Event, InterruptDef, InterruptKind, JobKey, Kind, KindSet, Sink as _};
use takt_model::{NodeId, TaskId, Time};

use crate::collector::{Fate, Job, check, events, jobs, signed};
use crate::random::{Record, definitions};

const IRQS: usize = 3;
const CPUS: usize = 4;
const KINDS: KindSet = KindSet::JOBS.with(Kind::IrqEnter).with(Kind::IrqExit).with(Kind::Window);

/// A handler on a CPU (CPUs of all nodes), with its nested handlers.
#[derive(Clone, Debug)]
struct Handler {
    irq: u32,
    /// Own time before, between and after the nested ones.
    own: Vec<u64>,
    nested: Vec<Handler>,
}

impl Handler {
    fn run(&self, now: &mut u64, visit: &mut impl FnMut(u32, u64, u64, u64)) -> u64 {
        let (entered, mut own) = (*now, 0);
        for (i, part) in self.own.iter().enumerate() {
            *now += part;
            own += part;
            if let Some(nested) = self.nested.get(i) {
                nested.run(now, visit);
            }
        }
        visit(self.irq, entered, *now, own);
        own
    }
}

fn handler() -> impl Strategy<Value = Handler> {
    let leaf = (0..IRQS as u32, 0u64..200).prop_map(|(irq, own)| Handler { irq, own: vec![own], nested: vec![] });
    leaf.prop_recursive(3, 6, 2, |inner| {
        (0..IRQS as u32, proptest::collection::vec(0u64..100, 3), proptest::collection::vec(inner, 0..3))
            .prop_map(|(irq, own, nested)| Handler { irq, own, nested })
    })
}

/// One CPU's handlers, each some time after the one before.
fn handlers() -> impl Strategy<Value = Vec<(u64, Handler)>> {
    proptest::collection::vec((0u64..4000, handler()), 0..20)
}

/// (CPU, interrupt, enter, exit, own time) of each, in the order of exits.
fn served(cpus: &[Vec<(u64, Handler)>]) -> Vec<(usize, u32, u64, u64, u64)> {
    let mut all = Vec::new();
    for (cpu, handlers) in cpus.iter().enumerate() {
        let mut now = 0;
        for (gap, handler) in handlers {
            now += gap;
            handler.run(&mut now, &mut |irq, from, to, own| all.push((cpu, irq, from, to, own)));
        }
    }
    all
}

fn interrupted(tasks: &[Vec<Job>], served: &[(usize, u32, u64, u64, u64)], windows: &[bool]) -> Vec<Record> {
    let mut all = Vec::new();
    for (stream, time, event) in events(tasks) {
        if let Event::Release { job, arrival, .. } = event
            && uncertain(windows, job.task.index(), job.number as usize)
        {
            let earliest = Time::from_ns(arrival.as_ns() / 2);
            all.push((stream, time, Event::Window { job, earliest }));
        }
        all.push((stream, time, event));
    }
    // At one instant the outer handler enters first and leaves last. Exits come before the next
    // handler's entries.
    let mut irqs = Vec::new();
    for (cpu, irq, from, to, _) in served {
        let (stream, cpu) = (*cpu as u32 / 2, *cpu as u32 % 2);
        irqs.push((*from, stream, Event::IrqEnter { irq: *irq, cpu }));
        irqs.push((*to, stream, Event::IrqExit { irq: *irq, cpu }));
    }
    all.extend(irqs.into_iter().map(|(time, stream, event)| (stream, Time::from_ns(time), event)));
    all.sort_by_key(|(_, time, _)| *time);
    all
}

fn uncertain(windows: &[bool], task: usize, number: usize) -> bool {
    windows[(7 * task + number) % windows.len()]
}

fn defined(deadlines: &[Option<u64>]) -> Definitions {
    let mut definitions = definitions(deadlines);
    let def = |i| InterruptDef { name: format!("irq {i}"), node: NodeId(0), kind: InterruptKind::ALL[i % 2] };
    definitions.interrupts = (0..IRQS).map(def).collect();
    definitions
}

fn collect(definitions: &Definitions, kinds: KindSet, events: &[Record], cuts: &[u64], end: u64) -> Vec<Stats> {
    let mut collector = Collector::new(definitions, kinds);
    let (mut parts, mut cuts) = (Vec::new(), cuts.iter().peekable());
    for (stream, time, event) in events {
        while let Some(cut) = cuts.next_if(|cut| **cut <= time.as_ns()) {
            parts.push(collector.cut(Time::from_ns(*cut)));
        }
        collector.event(*stream, *time, event);
    }
    for cut in cuts.filter(|cut| **cut <= end) {
        parts.push(collector.cut(Time::from_ns(*cut)));
    }
    parts.push(collector.finish(Time::from_ns(end)));
    parts
}

/// Handlers with time, no two on a CPU at one instant but nested ones: the order of events is then the only one.
fn spread(cpus: &mut [Vec<(u64, Handler)>]) {
    fn fill(handler: &mut Handler) {
        handler.own.iter_mut().for_each(|part| *part += 1);
        handler.nested.truncate(handler.own.len() - 1);
        handler.nested.iter_mut().for_each(fill);
    }
    for (gap, handler) in cpus.iter_mut().flatten() {
        *gap += 1;
        fill(handler);
    }
}

proptest! {
    #[test]
    fn quantities_are_those_of_every_nanosecond(
        tasks in proptest::collection::vec(jobs(), 1..4),
        mut cpus in proptest::collection::vec(handlers(), CPUS),
        windows in proptest::collection::vec(proptest::bool::weighted(0.2), 11),
    ) {
        spread(&mut cpus);
        let served = served(&cpus);
        let events = interrupted(&tasks, &served, &windows);
        let end = events.last().map_or(0, |(_, time, _)| time.as_ns());
        // Interrupts are served on node 0; the reference has the others' CPUs empty.
        let served: Vec<_> = served.into_iter().filter(|(cpu, ..)| *cpu < 2).collect();
        let events: Vec<_> = events.into_iter().filter(|(stream, _, event)| {
            *stream == 0 || !matches!(event, Event::IrqEnter { .. } | Event::IrqExit { .. })
        }).collect();
        let mut covered = vec![vec![false; end as usize]; CPUS];
        for (cpu, _, from, to, _) in &served {
            covered[*cpu][*from as usize..*to as usize].fill(true);
        }
        let stats = collect(&defined(&vec![None; tasks.len()]), KINDS, &events, &[], end).remove(0);
        for (t, (jobs, found)) in tasks.iter().zip(&stats.tasks).enumerate() {
            let until = |i: usize, job: &Job, to: u64| {
                if i + 1 == job.runs.len() && matches!(job.fate, Fate::Open) { end } else { to }
            };
            let nanoseconds = |job: &Job| -> Vec<(usize, u64)> {
                let run = |(i, (from, to, cpu)): (usize, &(u64, u64, u32))| {
                    let cpu = t % 2 * 2 + *cpu as usize;
                    (*from..until(i, job, *to)).map(move |ns| (cpu, ns))
                };
                job.runs.iter().enumerate().flat_map(run).collect()
            };
            let done = || jobs.iter().filter(|job| matches!(job.fate, Fate::Complete) && !job.runs.is_empty());
            check(found.execution_ns.map(signed), done().map(|job| nanoseconds(job).len() as i64).collect(), true);
            let net = |job: &Job| {
                nanoseconds(job).iter().filter(|(cpu, ns)| !covered[*cpu][*ns as usize]).count() as i64
            };
            check(found.execution_without_interrupts_ns.map(signed), done().map(net).collect(), true);
            let exact = |number: usize| !uncertain(&windows, t, number);
            let pairs = jobs.windows(2).enumerate().filter(|(i, _)| exact(*i) && exact(i + 1));
            let distances = pairs.map(|(_, pair)| (pair[1].arrival - pair[0].arrival) as i64).collect();
            check(found.inter_arrival_ns.map(signed), distances, true);
            prop_assert_eq!(found.uncertain, (0..jobs.len()).filter(|i| !exact(*i)).count() as u64);
            let latencies = jobs.iter().filter_map(|job| Some((job.runs.first()?.0 - job.arrival) as i64)).collect();
            check(found.start_latency_ns.map(signed), latencies, true);
            let busy: u64 = jobs.iter().map(|job| nanoseconds(job).len() as u64).sum();
            prop_assert_eq!(found.busy_ns, Some(busy));
            for quantity in Quantity::ALL {
                let distribution = found.distribution(quantity);
                prop_assert_eq!(distribution.cdf().last().map_or(0, |_| distribution.count), distribution.count);
                prop_assert!(distribution.cdf().last().is_none_or(|point| point.probability == 1.0));
                let total: f64 = distribution.pmf().map(|point| point.probability).sum();
                prop_assert!(distribution.count == 0 || (total - 1.0).abs() < 1e-9);
                prop_assert!(distribution.values.is_sorted_by(|a, b| a.0 < b.0));
            }
        }
        for (cpu, found) in stats.cpus.iter().enumerate() {
            let interrupts = covered[cpu].iter().filter(|covered| **covered).count() as u64;
            prop_assert_eq!(found.interrupts_ns, Some(interrupts));
        }
        for (irq, found) in stats.interrupts.iter().flatten().enumerate() {
            let mine = || served.iter().filter(move |served| served.1 == irq as u32);
            prop_assert_eq!(found.count, mine().count() as u64);
            check(found.execution_ns.map(signed), mine().map(|served| served.4 as i64).collect(), true);
            let with_nested = mine().map(|served| (served.3 - served.2) as i64).collect();
            check(found.execution_with_nested_ns.map(signed), with_nested, true);
            prop_assert_eq!(found.busy_ns, mine().map(|served| served.4).sum::<u64>());
            let mut entered: Vec<u64> = mine().map(|served| served.2).collect();
            entered.sort_unstable();
            let distances = entered.windows(2).map(|pair| (pair[1] - pair[0]) as i64).collect();
            check(found.inter_arrival_ns.map(signed), distances, true);
        }
    }

    #[test]
    fn intervals_add_up_to_the_whole(
        tasks in proptest::collection::vec(jobs(), 1..4),
        deadlines in proptest::collection::vec(proptest::option::of(0u64..8_000), 4),
        mut cpus in proptest::collection::vec(handlers(), CPUS),
        mut cuts in proptest::collection::vec(0u64..100_000, 0..12),
        late_end in 0u64..5_000,
    ) {
        // The whole log knows of a job that was cancelled after its deadline; an interval before
        // counted a miss.
        let mut tasks = tasks;
        for job in tasks.iter_mut().flatten() {
            if let Fate::Cancel(_) = job.fate {
                job.fate = Fate::Complete;
            }
        }
        spread(&mut cpus);
        let events = interrupted(&tasks, &served(&cpus), &[false, false, true]);
        let end = events.last().map_or(0, |(_, time, _)| time.as_ns()) + late_end;
        cuts.sort_unstable();
        cuts.retain(|cut| *cut <= end);
        let definitions = defined(&deadlines[..tasks.len()]);
        let whole = collect(&definitions, KINDS, &events, &[], end).remove(0);
        let parts = collect(&definitions, KINDS, &events, &cuts, end);
        prop_assert_eq!(parts.len(), cuts.len() + 1);
        prop_assert_eq!(parts.iter().map(|part| part.duration_ns).sum::<u64>(), end);
        let merge = |of: &dyn Fn(&Stats) -> Histogram| {
            let mut all = Histogram::default();
            parts.iter().for_each(|part| all.merge(&of(part)));
            all
        };
        for (t, whole) in whole.tasks.iter().enumerate() {
            let sum = |of: fn(&TaskStats) -> u64| parts.iter().map(|part| of(&part.tasks[t])).sum::<u64>();
            prop_assert_eq!(sum(|task| task.released), whole.released);
            prop_assert_eq!(sum(|task| task.completed), whole.completed);
            prop_assert_eq!(sum(|task| task.missed.unwrap_or(0)), whole.missed.unwrap_or(0));
            prop_assert_eq!(sum(|task| task.uncertain), whole.uncertain);
            prop_assert_eq!(sum(|task| task.preemptions.unwrap_or(0)), whole.preemptions.unwrap_or(0));
            prop_assert_eq!(sum(|task| task.busy_ns.unwrap_or(0)), whole.busy_ns.unwrap_or(0));
            prop_assert_eq!(parts.last().map(|part| part.tasks[t].unfinished), Some(whole.unfinished));
            for pair in parts.windows(2) {
                prop_assert_eq!(pair[1].tasks[t].carried, pair[0].tasks[t].unfinished);
            }
            for part in &parts {
                let task = &part.tasks[t];
                let begun = task.released + task.carried;
                prop_assert_eq!(begun, task.completed + task.cancelled + task.rejected + task.unfinished);
            }
            prop_assert!(merge(&|part| part.tasks[t].responses.clone()) == whole.responses);
            prop_assert!(merge(&|part| part.tasks[t].executions.clone()) == whole.executions);
            prop_assert!(merge(&|part| part.tasks[t].net_executions.clone()) == whole.net_executions);
            prop_assert!(merge(&|part| part.tasks[t].inter_arrivals.clone()) == whole.inter_arrivals);
            prop_assert!(merge(&|part| part.tasks[t].start_latencies.clone()) == whole.start_latencies);
        }
        for (i, whole) in whole.cpus.iter().enumerate() {
            let sum =
                |of: fn(&CpuStats) -> Option<u64>| parts.iter().map(|part| of(&part.cpus[i]).unwrap()).sum::<u64>();
            prop_assert_eq!(Some(sum(|cpu| cpu.busy_ns)), whole.busy_ns);
            prop_assert_eq!(Some(sum(|cpu| cpu.interrupts_ns)), whole.interrupts_ns);
            // Jobs of different tasks share a CPU at one instant here, which no machine does.
            if tasks.len() == 1 {
                prop_assert_eq!(Some(sum(|cpu| cpu.used_ns)), whole.used_ns);
            }
        }
        for (i, whole) in whole.interrupts.iter().flatten().enumerate() {
            let of = |part: &Stats| part.interrupts.clone().unwrap().swap_remove(i);
            prop_assert_eq!(parts.iter().map(|part| of(part).count).sum::<u64>(), whole.count);
            prop_assert!(merge(&|part| of(part).executions) == whole.executions);
            prop_assert!(merge(&|part| of(part).inter_arrivals) == whole.inter_arrivals);
        }
    }
}

/// A softirq within a job, interrupted by a hard interrupt, one on an idle CPU, and a loss.
#[test]
fn interrupts_by_hand() {
    let definitions = defined(&[Some(100)]);
    let job = |number| JobKey { task: TaskId(0), number };
    let at = Time::from_ns;
    let release = |number, ns| (0, at(ns), Event::Release { job: job(number), arrival: at(ns), parent: None });
    let enter = |ns, irq, cpu| (0, at(ns), Event::IrqEnter { irq, cpu });
    let exit = |ns, irq, cpu| (0, at(ns), Event::IrqExit { irq, cpu });
    let mut events = vec![
        exit(1, 2, 0), // began before the log did
        release(0, 10),
        (0, at(12), Event::Start { job: job(0), cpu: 0 }),
        enter(15, 1, 0),
        enter(17, 0, 0),
        exit(20, 0, 0),
        exit(30, 1, 0),
        (0, at(40), Event::Complete { job: job(0), cpu: 0 }),
        enter(50, 0, 0),
        exit(55, 0, 0),
        enter(60, 0, 9), // a CPU that the node has not
    ];
    let whole = |events: &[Record], end| collect(&definitions, KINDS, events, &[], end).remove(0);
    let stats = whole(&events, 100);
    let task = &stats.tasks[0];
    assert_eq!(task.execution_ns.unwrap().max, 28);
    assert_eq!(task.execution_without_interrupts_ns.unwrap().max, 28 - 15);
    let cpu = &stats.cpus[0];
    assert_eq!((cpu.busy_ns, cpu.interrupts_ns, cpu.used_ns), (Some(28), Some(20), Some(33)));
    assert_eq!(cpu.utilization, Some(0.33));
    let irqs = stats.interrupts.unwrap();
    let of = |irq: usize| {
        let s = &irqs[irq];
        (s.count, s.busy_ns, s.execution_ns.map(|e| (e.min, e.max)), s.execution_with_nested_ns.map(|e| e.max))
    };
    assert_eq!(of(0), (2, 8, Some((3, 5)), Some(5)));
    assert_eq!(of(1), (1, 12, Some((12, 12)), Some(15)));
    assert_eq!(of(2), (0, 0, None, None));
    assert_eq!(irqs[0].inter_arrival_ns.unwrap().max, 33);
    assert_eq!((irqs[0].kind, irqs[1].kind, irqs[0].node.as_deref()), (Some("hard"), Some("soft"), Some("n0")));

    // A loss: nobody knows how long what was open ran, nor how far apart what follows is.
    events.extend([
        release(1, 70),
        (0, at(70), Event::Start { job: job(1), cpu: 0 }),
        enter(75, 1, 0),
        (0, at(80), Event::Lost { count: 3 }),
        enter(85, 1, 0),
        exit(86, 1, 0),
        (0, at(90), Event::Complete { job: job(1), cpu: 0 }),
        release(2, 95),
    ]);
    let stats = whole(&events, 100);
    let (task, irqs) = (&stats.tasks[0], stats.interrupts.unwrap());
    assert_eq!((task.completed, task.execution_ns.unwrap().count), (2, 1));
    assert_eq!(task.inter_arrival_ns.unwrap().count, 1);
    assert_eq!((irqs[1].count, irqs[1].execution_ns.unwrap().count), (3, 2));
    assert_eq!((irqs[1].inter_arrival_ns.unwrap().count, stats.cpus[0].interrupts_ns), (1, Some(21)));

    // Without interrupts in the kinds, nothing is told of them.
    let silent = collect(&definitions, KindSet::JOBS, &events, &[], 100).remove(0);
    assert!(silent.interrupts.is_none() && silent.tasks[0].execution_without_interrupts_ns.is_none());
}
