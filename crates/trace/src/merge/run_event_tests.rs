use super::*;
use crate::event::Context;

const NS: fn(u64) -> Time = Time::from_ns;

fn event(at: u64, cpu: u32, what: EventKind) -> KernelEvent {
    KernelEvent { time: NS(at), cpu, pid: 0, context: Context::Thread, name: 0, what }
}

fn thread(pid: u32, prio: i32, comm: &str) -> Thread {
    Thread { pid, comm: Comm::new(comm.as_bytes()), prio: Some(prio) }
}

fn switch(at: u64, cpu: u32, prev: u32, left: SwitchOutState, next: Thread) -> KernelEvent {
    event(at, cpu, EventKind::Switch { prev: thread(prev, 51, "takt"), left, next })
}

/// Threads 70 (SCHED_FIFO) and 71 (SCHED_DEADLINE); model CPU 0 is CPU 4, model CPU 1 is CPU 2.
fn seen(events: &[KernelEvent], given: u64) -> Vec<(u64, RunEventKind)> {
    let threads = vec![Watched { id: 70, lane: 0, reserved: false }, Watched { id: 71, lane: 1, reserved: true }];
    let mut translator = Translator::new(threads, &[4, 2]);
    let mut all = Vec::new();
    for event in events {
        translator.translate(event, NS(given), &mut all);
    }
    all.sort_by_key(|seen| seen.at);
    all.iter().map(|seen| (seen.at.as_ns(), seen.what)).collect()
}

/// Without what concerns others.
fn ours(events: &[KernelEvent], given: u64) -> Vec<(u64, RunEventKind)> {
    let others = |what: &RunEventKind| matches!(what, RunEventKind::OtherIn { .. } | RunEventKind::OtherOut { .. });
    seen(events, given).into_iter().filter(|(_, what)| !others(what)).collect()
}

#[test]
fn holders_of_the_cpu_around_the_runs_threads_are_reported() {
    let (make, swapper) = (thread(9, 120, "make"), thread(0, 120, "swapper/4"));
    let found = seen(
        &[
            switch(1, 4, 70, SwitchOutState::Blocked, make),
            event(2, 4, EventKind::Switch { prev: swapper, left: SwitchOutState::Ready, next: thread(71, 51, "takt") }),
            switch(3, 4, 71, SwitchOutState::Blocked, thread(70, 51, "takt")),
        ],
        0,
    );
    let expected = [
        (1, RunEventKind::SwitchOut { lane: 0, cpu: 0, why: SwitchOutReason::Asleep }),
        (1, RunEventKind::OtherIn { cpu: 0, thread: make }),
        (2, RunEventKind::OtherOut { cpu: 0, thread: swapper }),
        (2, RunEventKind::SwitchIn { lane: 1, cpu: 0 }),
        (3, RunEventKind::SwitchOut { lane: 1, cpu: 0, why: SwitchOutReason::Asleep }),
        (3, RunEventKind::SwitchIn { lane: 0, cpu: 0 }),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_switch_tells_of_both_threads_and_why_one_left() {
    let out = |lane, cpu, why| RunEventKind::SwitchOut { lane, cpu, why };
    let found = ours(
        &[
            switch(1, 4, 70, SwitchOutState::Ready, thread(71, -1, "takt")),
            switch(2, 4, 71, SwitchOutState::Preempted, thread(9, 120, "make")),
            switch(3, 2, 71, SwitchOutState::Ready, thread(5, 0, "migration/2")),
            switch(4, 2, 71, SwitchOutState::Preempted, thread(0, 120, "swapper/2")),
            switch(5, 2, 70, SwitchOutState::Preempted, thread(9, 120, "make")),
            switch(6, 2, 70, SwitchOutState::Held, thread(8, 120, "kworker")),
            switch(7, 2, 70, SwitchOutState::Ended, thread(8, 120, "kworker")),
            // Another thread has its number now.
            switch(8, 2, 70, SwitchOutState::Blocked, thread(8, 120, "kworker")),
        ],
        0,
    );
    let expected = [
        (1, out(0, 0, SwitchOutReason::Taken)),
        (1, RunEventKind::SwitchIn { lane: 1, cpu: 0 }),
        (2, out(1, 0, SwitchOutReason::Stopped)),
        (3, out(1, 1, SwitchOutReason::Taken)),
        (4, out(1, 1, SwitchOutReason::Stopped)),
        (5, out(0, 1, SwitchOutReason::Stopped)),
        (6, out(0, 1, SwitchOutReason::Held)),
        (7, out(0, 1, SwitchOutReason::Ended)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_gap_begins_where_its_cpu_was_last_heard_of() {
    let lost = |at| event(at, 4, EventKind::Lost { count: Some(12) });
    let heard = switch(20, 4, 9, SwitchOutState::Blocked, thread(8, 120, "other"));
    let other = switch(25, 2, 70, SwitchOutState::Blocked, thread(8, 120, "other"));
    let begins = RunEventKind::LossBegins { count: 12 };
    let left = RunEventKind::SwitchOut { lane: 0, cpu: 1, why: SwitchOutReason::Asleep };
    assert_eq!(ours(&[heard, other, lost(30)], 0), [(20, begins), (25, left), (30, RunEventKind::LossEnds)]);
    // All events given out before were complete.
    assert_eq!(ours(&[heard, other, lost(30)], 22), [(22, begins), (25, left), (30, RunEventKind::LossEnds)]);
}
