//! Shared parts of benchmarks of queues: operations, half of which wait, and std's heap for
//! comparison.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use takt_dispatch::{Limits, Operation, Operations, Plan};
use takt_linux::{Epoch, PiMutex};
use takt_model::{Builtin, Span, Strategy, Time};

use super::rounds::median;

/// Prints a table of `measure` under each discipline, compared with the heap. Returns whether all
/// results are valid.
pub(crate) fn table(title: &str, rounds: usize, measure: impl Fn(&Waiting) -> Result<Rounds, String>) -> bool {
    println!("{:<44}  waiting     takt ns  BinaryHeap ns    ratio", format!("{title}, {rounds} rounds"));
    let mut whole = true;
    for (name, strategy) in [
        ("fifo", Builtin::Fifo.strategy()),
        ("deadline", Builtin::Edf.strategy()),
        ("laxity", Builtin::Mlf.strategy()),
        ("muf", Builtin::Muf.strategy()),
    ] {
        for waiting in [64, 1024] {
            match Waiting::new(&strategy, name == "fifo", waiting).and_then(|of| measure(&of)) {
                Ok(turns) => println!("{name:<40} {waiting:>12} {}", turns.row()),
                Err(what) => {
                    println!("{name}, {waiting}: {what}");
                    whole = false;
                }
            }
        }
    }
    whole
}

/// Nanoseconds of takt and of the heap in turns.
#[derive(Default)]
pub(crate) struct Rounds {
    pub(crate) ours: Vec<f64>,
    pub(crate) theirs: Vec<f64>,
}

impl Rounds {
    /// Medians of both, and of the ratios of their rounds.
    fn row(&self) -> String {
        let ratio = median(self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect());
        format!("{:>11.0} {:>14.0} {ratio:>8.2}", median(self.ours.clone()), median(self.theirs.clone()))
    }
}

/// Operations, half of which wait. Each has a successor that arrives after its job.
pub(crate) struct Waiting {
    pub(crate) plan: Plan,
    deadlines: Vec<Span>,
    /// Whether they are ordered by arrival.
    fifo: bool,
}

impl Waiting {
    pub(crate) fn new(strategy: &Strategy, fifo: bool, waiting: u32) -> Result<Waiting, String> {
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        let deadlines = deadlines(waiting);
        let plan = operations(&deadlines).compute(strategy, &limits).map_err(|anomalies| anomalies.to_string())?;
        Ok(Waiting { plan, deadlines, fifo })
    }

    pub(crate) fn half(&self) -> u32 {
        self.deadlines.len() as u32 / 2
    }
}

/// The heap for comparison, with half of the operations in it.
pub(crate) struct Heap<'a> {
    of: &'a Waiting,
    epoch: Epoch,
    jobs: PiMutex<BinaryHeap<(Reverse<Time>, u32)>>,
}

impl<'a> Heap<'a> {
    pub(crate) fn new(of: &'a Waiting) -> Heap<'a> {
        let jobs = PiMutex::new(BinaryHeap::with_capacity(of.deadlines.len()));
        let heap = Heap { of, epoch: Epoch::now_is_zero(), jobs };
        (0..of.half()).for_each(|slot| heap.push(slot));
        heap
    }

    #[inline]
    pub(crate) fn push(&self, slot: u32) {
        let mut jobs = self.jobs.lock();
        let now = self.epoch.now();
        let deadline = if self.of.fifo { None } else { self.of.deadlines.get(slot as usize) };
        jobs.push((Reverse(now.saturating_add(deadline.copied().unwrap_or(Span::ZERO))), slot));
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<(Reverse<Time>, u32)> {
        let mut jobs = self.jobs.lock();
        black_box(self.epoch.now());
        black_box(jobs.pop())
    }

    /// Whether it ran neither empty nor full. Otherwise it measured something else.
    pub(crate) fn is_whole(&self) -> bool {
        self.jobs.lock().len() == self.of.half() as usize
    }
}

/// Jobs timed at once, because a reading of the clock costs as much as a queue operation.
pub(crate) const BATCH: u32 = 64;
pub(crate) const BATCHES: u32 = 2000;

/// Median nanoseconds of `once`, over batches.
pub(crate) fn time(mut once: impl FnMut()) -> f64 {
    let epoch = Epoch::now_is_zero();
    let mut each: Vec<f64> = Vec::with_capacity(BATCHES as usize);
    for _ in 0..BATCHES {
        let before = epoch.now();
        for _ in 0..BATCH {
            once();
        }
        each.push(epoch.now().saturating_since(before).as_ns() as f64 / f64::from(BATCH));
    }
    median(each)
}

/// The approximate time of a cycle. Deadlines of waiting jobs are spread over as many cycles as a
/// job waits.
const CYCLE_NS: u64 = 100;

/// The relative deadlines of `waiting` operations that wait, and of as many that arrive later.
fn deadlines(waiting: u32) -> Vec<Span> {
    let all = u64::from(2 * waiting);
    // The multiplier is prime and larger than `all`, so it visits each place once in a scattered
    // order.
    (0..all).map(|at| Span::from_ns(1 + CYCLE_NS * (at * 7919 % all))).collect()
}

fn operations(deadlines: &[Span]) -> Operations {
    let ns = Span::from_ns;
    let mut operations = Operations::new("queue");
    for (at, deadline) in deadlines.iter().enumerate() {
        operations.add(Operation::sporadic(&format!("o{at}"), ns(1)).wcet(ns(1)).deadline(*deadline).backlog(1));
    }
    operations
}
