//! Jobs that misbehave for the whole run. One spins, blocks and forks, another makes long system calls. Their
//! components get no more for it.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::Mutex;

use takt_linux::{clock, sched};
use takt_model::{Auto, Builtin, Component, ComponentId, NodeId, ServerRule, Span, StrategyRef, System, Task, Time};

use crate::{RunError, RunOptions, RunSummary, ServerBackEnd, run};

/// The name of a task whose jobs misbehave.
const GREEDY: &str = "greedy";
/// The name of a task whose jobs make long system calls. Each lasts longer than a budget.
const CALLING: &str = "calling";
/// Where such a call writes, and how much. The kernel writes all of it before the thread handles a signal.
const WRITTEN: &str = "/dev/shm";
const WRITTEN_BYTES: usize = 128 << 20;
const CHILDREN_MAX: usize = 6;
/// Uses some tenths of a second of CPU time, and ends by itself.
const SPIN: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";

/// The CPU time of misbehaving jobs, and the scheduling policies of their children.
#[derive(Debug)]
struct Misbehaviour {
    used: Span,
    children: usize,
    calls: u32,
    policies: BTreeSet<u32>,
}

impl Misbehaviour {
    const NONE: Misbehaviour = Misbehaviour { used: Span::ZERO, children: 0, calls: 0, policies: BTreeSet::new() };
}

static MISBEHAVIOUR: Mutex<Misbehaviour> = Mutex::new(Misbehaviour::NONE);

/// Called on the thread of each job, before its work.
pub(crate) fn misbehave(task: &str, is_over: &dyn Fn() -> bool) {
    match task {
        GREEDY => {}
        CALLING => return call(is_over),
        _ => return,
    }
    let before = clock::thread_cpu();
    let (mut children, mut policies) = (Vec::new(), BTreeSet::new());
    while !is_over() {
        let until = clock::thread_cpu().saturating_add(Span::from_ms(3));
        while clock::thread_cpu() < until && !is_over() {}
        clock::pause(Span::from_ms(1));
        if children.len() < CHILDREN_MAX
            && let Ok(child) = Command::new("/bin/sh").args(["-c", SPIN]).spawn()
        {
            policies.extend(sched::policy_of(child.id()));
            children.push(child);
        }
    }
    let used = clock::thread_cpu().saturating_sub(before);
    for child in &mut children {
        let _ = child.kill();
        let _ = child.wait();
    }
    let mut seen = MISBEHAVIOUR.lock().unwrap();
    seen.used = seen.used.saturating_add(used);
    seen.children += children.len();
    seen.policies.extend(policies);
}

/// A file in memory, without a name.
fn written() -> File {
    let path = format!("{WRITTEN}/takt-test-{}", std::process::id());
    let file = File::create_new(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

/// Writes much to memory by one call, over and over.
fn call(is_over: &dyn Fn() -> bool) {
    let file = written();
    let bytes = vec![1; WRITTEN_BYTES];
    let before = clock::thread_cpu();
    let mut calls = 0;
    while !is_over() {
        file.write_all_at(&bytes, 0).unwrap();
        calls += 1;
    }
    let mut seen = MISBEHAVIOUR.lock().unwrap();
    seen.used = seen.used.saturating_add(clock::thread_cpu().saturating_sub(before));
    seen.calls += calls;
}

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

/// A component of three tasks and an innocent one. The task at `place` misbehaves. The first component has servers on
/// all CPUs.
fn system(rule: ServerRule, place: usize, cpus: u32) -> System {
    let mut system = System::local(cpus, Builtin::Fp, Vec::new());
    for (at, name) in (0u32..).zip(["crowd", "innocent"]) {
        let mut component = Component::new(name, NodeId(0), rule);
        (component.period, component.budget) = (Auto::Value(ms(50)), Auto::Value(ms(15)));
        (component.priority, component.strategy) = (Some(at + 1), StrategyRef::Builtin(Builtin::Fp));
        if at == 0 {
            (component.cpus, component.budget) = (cpus, Auto::Value(ms(15 * u64::from(cpus))));
        }
        system.components.push(component);
    }
    let crowd = (0..3).map(|at| if at == place { GREEDY.to_owned() } else { format!("modest {at}") });
    for (at, name) in (1..).zip(crowd) {
        let mut task = Task::periodic(&name, ms(50), ms(2));
        (task.component, task.priority) = (Some(ComponentId(0)), Some(at));
        system.tasks.push(task);
    }
    let mut task = Task::periodic("innocent", ms(50), ms(6));
    (task.component, task.priority) = (Some(ComponentId(1)), Some(1));
    system.tasks.push(task);
    system
}

#[test]
fn a_thread_that_blocks_and_forks_takes_no_more_than_the_budget_of_its_component() {
    let _alone = super::ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for rule in [ServerRule::Ptps, ServerRule::Deferrable, ServerRule::CbsHard] {
        for (place, cpus) in [(0, 1), (1, 1), (2, 1), (0, 2)] {
            // Real-time threads of other programs may take the CPU.
            let undisturbed = (0..10).any(|_| takes_no_more_than_its_budget(rule, place, cpus));
            assert!(undisturbed, "{rule:?} {place} {cpus}: in ten runs a component did not get its budget");
        }
    }
}

/// One run, with the misbehaviour in it alone. `None`: this process may not.
fn try_run(system: &System, duration: Span) -> Option<RunSummary> {
    *MISBEHAVIOUR.lock().unwrap() = Misbehaviour::NONE;
    let options = RunOptions { back_end: Some(ServerBackEnd::Manager), ..RunOptions::new(duration) };
    let mut events: Vec<(u32, Time, takt_log::Event)> = Vec::new();
    match run(system, &options, &mut events) {
        Ok(summary) => Some(summary),
        Err(error @ (RunError::Privilege { .. } | RunError::Cpus { .. })) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// One run. Whether both components got their budgets.
fn takes_no_more_than_its_budget(rule: ServerRule, place: usize, cpus: u32) -> bool {
    let Some(summary) = try_run(&system(rule, place, cpus), ms(300)) else { return true };
    let seen = MISBEHAVIOUR.lock().unwrap();
    let of = |name: &str| summary.tasks.iter().find(|task| task.name == name).unwrap();
    let modest = (0..3).filter(|at| *at != place).map(|at| of(&format!("modest {at}")).completed).sum::<u64>();
    let manager = &summary.managers[0];
    let late = manager.late.as_ref().map_or(0, |late| late.max).max(manager.cost.as_ref().unwrap().max);
    let late = Span::from_ns(late).max(summary.steal.unwrap_or(Span::ZERO)).saturating_add(super::GRAIN);
    // Six periods, and a budget that comes at the end. A decision may be late each time that one of its
    // threads loses the CPU.
    let most = ms(15 * 7 * u64::from(cpus)).saturating_add(Span::from_ns(late.as_ns() * manager.preemptions.max(8)));
    let took = seen.used.saturating_add(ms(2 * modest));
    let about = format!("{rule:?} {place} {cpus}: {took} of {most}, {modest} modest jobs, {seen:?}\n{summary:#?}");
    assert!(took <= most, "{about}");
    // It was greedy: it wanted the CPU all the time, and got its budget. The innocent one got its own.
    let was_greedy = seen.used >= ms(10) && seen.children > 0;
    if !was_greedy || (late < ms(1) && of("innocent").completed < 5) {
        println!("disturbed: {about}");
        return false;
    }
    // Its children are ordinary processes, below all threads of the run.
    assert_eq!(seen.policies.iter().copied().collect::<Vec<_>>(), [0], "{about}");
    true
}

/// A thread that is in a system call when it loses the CPU cannot be stopped there. It goes on below all others.
#[test]
fn long_system_calls_take_nothing_from_another_component() {
    let _alone = super::ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let file = written();
    if let Err(error) = file.write_all_at(&vec![1; WRITTEN_BYTES], 0) {
        return println!("skipped: {WRITTEN} has no room: {error}");
    }
    drop(file);
    // Real-time threads of other programs may take the CPU.
    let undisturbed = (0..10).any(|_| {
        let mut system = system(ServerRule::Deferrable, 0, 1);
        system.tasks[0].name = CALLING.to_owned();
        let Some(summary) = try_run(&system, ms(500)) else { return true };
        let seen = MISBEHAVIOUR.lock().unwrap();
        let completed = summary.tasks.iter().find(|task| task.name == "innocent").unwrap().completed;
        println!("{completed} innocent jobs, {seen:?}");
        // Each call lasts longer than the budget of 15 ms, or nothing is shown.
        seen.calls > 0 && seen.used.as_ns() / u64::from(seen.calls) > 15_000_000 && completed >= 9
    });
    assert!(undisturbed, "in ten runs the other component did not complete its jobs");
}
