use takt_model::{Builtin, NodeId, StrategyRef, TaskId};

use super::super::adaptive::Adaptive;
use super::super::build::{Built, build, places};
use super::super::live_model::model;
use super::super::{Limits, Operation, Operations, Options, Plan, Row};
use super::cpu_state::Wakes;
use super::*;
use crate::bits::LevelSet;

#[test]
fn a_wakeup_stays_announced_until_a_thread_is_awake_or_no_job_waits() {
    let checked = || {
        let model = model();
        let cpu_state = &model.built.shared.cpu_states[0];
        let mut held = cpu_state.held.lock();
        // One job at the level of critical operations and one at the other.
        let now = Time::from_ns(1);
        assert!(held.core.push(0, now).is_ok() && held.core.push(1, now).is_ok());
        let announced = |held: &mut LockedState, levels: &[u32], idle: [u32; 2]| {
            held.idle[..2].copy_from_slice(&idle);
            let mut wakes = Wakes { levels: LevelSet::default(), timer: false };
            levels.iter().for_each(|level| wakes.levels.insert(*level));
            cpu_state.announce(held, wakes);
            // A waking thread withdraws no announcement.
            cpu_state.wake(wakes);
            cpu_state.pending[0].load(Ordering::Acquire)
        };
        assert_eq!(announced(&mut held, &[0, 1], [1, 2]), 0b11);
        assert_eq!(announced(&mut held, &[], [1, 1]), 0b11, "the waker may have lost its CPU before it woke anyone");
        assert_eq!(announced(&mut held, &[], [0, 1]), 0b10, "its only thread is awake");
        assert_eq!(announced(&mut held, &[0], [1, 1]), 0b11, "and sleeps again");
        assert!(held.core.next(0, now).is_some());
        assert_eq!(announced(&mut held, &[], [1, 1]), 0b10, "another one took the job");
    };
    shuttle::check_random(checked, 1);
}

/// Two CPUs, each with a critical and a noncritical operation that are pushed. The controller may
/// return after each window.
fn controlled(law: Adaptive) -> Built {
    let deadline = |operation: Operation| operation.wcet(Span::from_us(1)).deadline(Span::from_s(10)).backlog(2);
    let sporadic = |name, cpu| deadline(Operation::sporadic(name, Span::from_s(10))).on_cpu(cpu);
    let set = Operations::new("two")
        .cpus(2)
        .with(sporadic("critical", 0))
        .with(sporadic("other", 0).noncritical())
        .with(sporadic("critical there", 1))
        .with(sporadic("other there", 1).noncritical());
    let system = set.to_system(&Builtin::Edf.strategy()).unwrap();
    let guard = StrategyRef::Builtin(Builtin::RmsMlf);
    let (plan, _) = Plan::compute_adaptive(&system, NodeId(0), guard, &Limits::default()).unwrap();
    assert_eq!(law.wrong(&plan), None);
    let handler = |row: &Row| -> (TaskId, Handler) { (row.task, Box::new(|_| ())) };
    let mut handlers = plan.rows.iter().map(handler).collect();
    let options = Options { best_effort: true, records: 1024, ..Options::default() };
    let built = build(&plan, &places(&plan), &mut handlers, &options, Some(law)).unwrap();
    built.shared.epoch.set(Epoch::now_is_zero()).unwrap();
    built
}

/// A critical job is in danger 4 s after its arrival.
fn law() -> Adaptive {
    let law = Adaptive { margin: Span::ZERO, ..Adaptive::between(0, 1).reclaiming(Span::from_s(100)) };
    law.response("critical", Span::from_s(6)).response("critical there", Span::from_s(6))
}

/// Sets the time of all CPUs. The real time since the start is smaller.
fn at(shared: &Shared, s: u64) -> Time {
    let now = Time::ZERO + Span::from_s(s);
    shared.cpu_states.iter().for_each(|cpu_state| cpu_state.held.lock().last = now);
    now
}

/// Runs the first look of a CPU's timer. Returns the current plan after it.
fn looks(shared: &Shared, cpu: u32) -> usize {
    shared.control(cpu, &shared.cpu_states[cpu as usize], shared.epoch());
    let plans: Vec<usize> = shared.cpu_states.iter().map(|cpu_state| cpu_state.held.lock().core.plan()).collect();
    assert_eq!(plans, [shared.holds.load(Ordering::Relaxed); 2]);
    plans[0]
}

fn pushes(shared: &Shared, cpu: usize, slot: u32, now: Time) {
    assert!(shared.cpu_states[cpu].held.lock().core.push(slot, now).is_ok());
}

/// Ends the first job of a CPU.
fn ends(shared: &Shared, cpu: usize, now: Time) {
    let core = &mut shared.cpu_states[cpu].held.lock().core;
    let upcall = (0..core.seat_count() as u32).find_map(|level| core.next(level, now)).unwrap();
    core.end(upcall, End::Completed, now);
}

#[test]
fn danger_on_any_cpu_brings_the_guard_to_all() {
    for cpu in [0, 1] {
        shuttle::check_random(
            move || {
                let Built { shared, .. } = controlled(law());
                pushes(&shared, cpu as usize, 0, at(&shared, 10));
                at(&shared, 13);
                assert_eq!([0, 1].map(|timer| looks(&shared, timer)), [0, 0]);
                at(&shared, 14);
                assert_eq!([1 - cpu, cpu].map(|timer| looks(&shared, timer)), [0, 1], "its own timer looks at a CPU");
            },
            1,
        );
    }
}

#[test]
fn calm_comes_back_only_where_no_cpu_has_a_job_past_its_last_safe_instant() {
    for cpu in [0, 1] {
        shuttle::check_random(
            move || {
                let Built { shared, .. } = controlled(law());
                pushes(&shared, cpu, 0, at(&shared, 10));
                at(&shared, 20);
                assert_eq!(looks(&shared, cpu as u32), 1);
                // The window in which the guard began does not count.
                for s in [100, 200, 300] {
                    at(&shared, s);
                    assert_eq!(looks(&shared, 0), 1, "in danger on CPU {cpu} after {s} s");
                }
                ends(&shared, cpu, at(&shared, 350));
                // A critical job that has only just arrived does not keep the guard either.
                pushes(&shared, cpu, 0, at(&shared, 399));
                at(&shared, 400);
                assert_eq!(looks(&shared, 0), 0);
            },
            1,
        );
    }
}

#[test]
fn the_busiest_cpu_keeps_the_guard() {
    for cpu in [0, 1] {
        shuttle::check_random(
            move || {
                let Built { shared, .. } = controlled(Adaptive { load_ppm: 500_000, ..law() });
                pushes(&shared, 1 - cpu, 0, at(&shared, 10));
                at(&shared, 20);
                assert_eq!(looks(&shared, 1 - cpu as u32), 1);
                ends(&shared, 1 - cpu, at(&shared, 30));
                at(&shared, 100);
                assert_eq!(looks(&shared, 0), 1, "the guard came within this window");
                // Busy with noncritical work for 60 of 100 s; then for 50.
                pushes(&shared, cpu, 1, at(&shared, 110));
                ends(&shared, cpu, at(&shared, 170));
                at(&shared, 200);
                assert_eq!(looks(&shared, 0), 1, "CPU {cpu} was busy");
                pushes(&shared, cpu, 1, at(&shared, 210));
                ends(&shared, cpu, at(&shared, 260));
                at(&shared, 300);
                assert_eq!(looks(&shared, 0), 0);
            },
            1,
        );
    }
}

#[test]
fn a_push_wakes_a_timer_that_would_sleep_beyond_the_danger_of_the_job() {
    let checked = || {
        let Built { shared, .. } = controlled(law());
        // Whether a timer that sleeps until `until`, on CPU 1, is woken to look earlier.
        let wakes = |slot: u32, s: u64, until: u64| {
            let now = at(&shared, s);
            let mut held = shared.cpu_states[1].held.lock();
            (held.timer_until, held.timer_due) = (Time::ZERO + Span::from_s(until), false);
            assert!(held.core.push(slot, now).is_ok());
            let wakes = held.wakes().timer;
            drop(held);
            ends(&shared, 1, now);
            wakes
        };
        // A job that arrives at 10 s is in danger at 14 s.
        assert!(wakes(0, 10, 15));
        assert!(!wakes(0, 20, 24), "it wakes by itself then");
        assert!(!wakes(1, 30, 100), "what is not critical is never in danger");
        shared.switch(1);
        assert!(!wakes(0, 40, 100), "the guard holds already");
    };
    shuttle::check_random(checked, 1);
}
