//! The cost of the dispatcher's queues. A job ends, the next is taken and another is queued, with
//! the time of both, while 64 or 1024 wait. The peer is std's `BinaryHeap` behind the same lock
//! with two readings of the clock. It has neither levels, backlogs, chains nor counts.
//!
//! Both get the same operations in the same order. Deadlines are spread over about the time for
//! which a job waits, so arrivals go anywhere among the waiting jobs. Under fifo the heap is
//! ordered by arrival too. Under muf it is the queue of one of its levels, ordered by laxity. The
//! figure is the median of batches of cycles.
//!
//! It fails if a plan cannot be computed, or if a queue held an unexpected number of jobs.
//!
//! `cargo bench -p takt-dispatch --bench queues -- [--rounds 5]`

use std::collections::VecDeque;
use std::hint::black_box;
use std::process::ExitCode;

use takt_dispatch::Queues;

use heap::{Heap, Rounds, Waiting, table, time};

#[path = "common/heap.rs"]
mod heap;
#[path = "common/rounds.rs"]
mod rounds;

fn main() -> ExitCode {
    let Some(rounds) = rounds::rounds(5) else { return ExitCode::from(2) };
    if table("a job ends, one taken, one queued", rounds, |of| beside_heap(of, rounds)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Both in turns, for this many rounds.
fn beside_heap(of: &Waiting, rounds: usize) -> Result<Rounds, String> {
    let queues = Queues::new(&of.plan, 0).map_err(|error| error.to_string())?;
    let heap = Heap::new(of);
    let mut rejected = 0;
    for slot in 0..of.half() {
        rejected += u32::from(queues.push(slot).is_err());
    }
    // The operation that has been idle longest arrives next, in the heap too.
    let idle = || (of.half()..2 * of.half()).collect::<VecDeque<u32>>();
    let (mut idle, mut their_idle) = (idle(), idle());
    let mut runs = queues.take(0);
    let mut turns = Rounds::default();
    for _ in 0..rounds {
        turns.ours.push(time(|| {
            let (Some(ended), Some(comes)) = (runs.take(), idle.pop_front()) else { return };
            idle.push_back(ended.slot());
            runs = queues.exchange(ended, 0);
            rejected += u32::from(black_box(queues.push(comes)).is_err());
        }));
        turns.theirs.push(time(|| {
            let (Some((_, ended)), Some(comes)) = (heap.take(), their_idle.pop_front()) else { return };
            their_idle.push_back(ended);
            heap.push(comes);
        }));
    }
    let mut there = 0;
    while let Some(ended) = runs.take() {
        there += 1;
        drop(ended);
        runs = queues.take(0);
    }
    if rejected > 0 || there != of.half() || !heap.is_whole() {
        return Err(format!("{rejected} pushes were rejected, {there} of {} jobs were there", of.half()));
    }
    Ok(turns)
}
