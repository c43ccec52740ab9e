//! Each cause by hand, and random CPUs against a slow reference.

use proptest::prelude::*;
use takt_model::{Builtin, CpuSet, System, Task};

use super::*;
use crate::definitions::{InterruptDef, InterruptKind, TaskDef, ThreadDef};
use crate::header::{BackEnd, Header};
use crate::kind::{Kind, KindSet};
use takt_model::NodeId;

fn at(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

fn job(task: u32, number: u64) -> JobKey {
    JobKey { task: TaskId(task), number }
}

fn release(task: u32, number: u64, arrival: u64) -> Event {
    Event::Release { job: job(task, number), arrival: at(arrival), parent: None }
}

/// Tasks by (period, WCET, deadline), and the threads "hog" (real-time), "make" (ordinary) and "timer" (takt's).
fn causes(system: Option<&System>, back_end: BackEnd, tasks: &[(u64, u64, u64)]) -> Causes {
    let header = Header::new(String::new(), None, back_end, KindSet::ALL);
    let thread = |name: &str, kind| ThreadDef { name: name.to_owned(), node: NodeId(0), kind };
    let mut definitions = system.map(Definitions::of).unwrap_or_default();
    if system.is_none() {
        let task = |(i, (_, _, deadline)): (usize, &(u64, u64, u64))| TaskDef {
            name: format!("t{i}"),
            node: NodeId(0),
            period: None,
            deadline: Some(ms(*deadline)),
            wcet: None,
            class: None,
        };
        definitions.tasks = tasks.iter().enumerate().map(task).collect();
    }
    definitions.threads = vec![
        thread("hog", ThreadKind::RealTime),
        thread("make", ThreadKind::Ordinary),
        thread("timer", ThreadKind::Takt),
    ];
    definitions.interrupts =
        vec![InterruptDef { name: "24 eth0".to_owned(), node: NodeId(0), kind: InterruptKind::Hard }];
    Causes::new(Rules::of(&header, system), &definitions)
}

fn system(cpus: u32, strategy: Builtin, tasks: &[(u64, u64, u64)]) -> System {
    let task = |(i, (period, wcet, deadline)): (usize, &(u64, u64, u64))| Task {
        deadline: ms(*deadline),
        ..Task::periodic(&format!("t{i}"), ms(*period), ms(*wcet))
    };
    System::local(cpus, strategy, tasks.iter().enumerate().map(task).collect())
}

fn found(mut causes: Causes, events: &[(u64, Event)], end: u64) -> BTreeMap<TaskId, Late> {
    events.iter().for_each(|(now, event)| causes.event(0, at(*now), event));
    causes.finish(at(end)).unwrap()
}

/// The causes that lasted at all, in milliseconds.
fn lasted(late: &Late) -> Vec<(&'static str, u64)> {
    let all = Cause::ALL.map(|cause| (cause.name(), late.disturbance.of(cause).as_ns() / 1_000_000));
    all.into_iter().filter(|(_, ms)| *ms > 0).collect()
}

const HOG: Option<u32> = Some(0);

#[test]
fn each_cause_has_its_name() {
    // One task of 3 ms with a deadline of 6 ms, on one CPU.
    let tasks = [(40, 3, 6)];
    let system = system(1, Builtin::Rm, &tasks);
    let (start, resume) = (Event::Start { job: job(0, 0), cpu: 0 }, Event::Resume { job: job(0, 0), cpu: 0 });
    let preempt = Event::Preempt { job: job(0, 0), cpu: 0 };
    let (block, wake) = (Event::Block { job: job(0, 0), cpu: 0 }, Event::Wake { job: job(0, 0) });
    let complete = Event::Complete { job: job(0, 0), cpu: 0 };
    let occupy = |thread| Event::Occupy { cpu: 0, thread };
    let (enter, exit) = (Event::IrqEnter { irq: 0, cpu: 0 }, Event::IrqExit { irq: 0, cpu: 0 });
    type Case = (Vec<(u64, Event)>, &'static str, &'static [(&'static str, u64)]);
    let cases: Vec<Case> = vec![
        (vec![(0, occupy(HOG)), (5, start), (8, complete)], "1 others (hog)", &[("others", 5)]),
        (vec![(0, occupy(None)), (5, start), (8, complete)], "1 idle", &[("idle", 5)]),
        (vec![(0, occupy(Some(2))), (5, start), (8, complete)], "1 dispatcher", &[("dispatcher", 5)]),
        (vec![(0, start), (8, complete)], "1 own overrun", &[("own overrun", 5)]),
        (vec![(0, start), (1, enter), (6, exit), (8, complete)], "1 interrupts", &[("interrupts", 5)]),
        // Stopped without a reason of its own, while an ordinary thread has the CPU.
        (
            vec![(0, start), (1, block), (1, occupy(Some(1))), (6, resume), (8, complete)],
            "1 throttled",
            &[("throttled", 5)],
        ),
        (
            vec![(0, start), (1, block), (1, occupy(None)), (6, wake), (6, resume), (8, complete)],
            "1 blocked",
            &[("blocked", 5)],
        ),
        (
            vec![(0, start), (8, Event::Steal { cpu: 0, span: ms(4), within: ms(8) }), (8, complete)],
            "1 hypervisor",
            &[("own overrun", 1), ("hypervisor", 4)],
        ),
        (vec![(5, start), (8, complete)], "1 unknown", &[("unknown", 5)]),
        // The longest counts; of equal ones the first.
        (
            vec![
                (0, occupy(HOG)),
                (2, occupy(None)),
                (4, start),
                (5, preempt),
                (5, occupy(HOG)),
                (6, resume),
                (8, complete),
            ],
            "1 others (hog)",
            &[("others", 3), ("idle", 2)],
        ),
        (vec![(0, occupy(HOG)), (2, start), (5, complete)], "", &[]),
        // Never done: in the end it is late, too.
        (vec![(0, occupy(HOG))], "1 others (hog)", &[("others", 20)]),
    ];
    for (events, sentence, expected) in cases {
        let mut all = vec![(0, release(0, 0, 0))];
        all.extend(events);
        let late = &found(causes(Some(&system), BackEnd::Run, &tasks), &all, 20)[&TaskId(0)];
        assert_eq!((late.sentence().as_str(), lasted(late).as_slice()), (sentence, expected), "{all:?}");
    }
}

#[test]
fn a_job_whose_server_has_no_budget_is_throttled() {
    use takt_model::{Component, ComponentId, ServerRule};
    let mut system = system(1, Builtin::Rm, &[(40, 3, 6)]);
    for (name, parent) in [("outer", None), ("inner", Some(ComponentId(0)))] {
        let rule = if parent.is_some() { ServerRule::Polling } else { ServerRule::Ptps };
        system.components.push(Component { parent, ..Component::new(name, NodeId(0), rule) });
    }
    system.tasks[0].component = Some(ComponentId(1));
    let (start, resume) = (Event::Start { job: job(0, 0), cpu: 0 }, Event::Resume { job: job(0, 0), cpu: 0 });
    let (preempt, complete) = (Event::Preempt { job: job(0, 0), cpu: 0 }, Event::Complete { job: job(0, 0), cpu: 0 });
    let (idle, hog) = (Event::Occupy { cpu: 0, thread: None }, Event::Occupy { cpu: 0, thread: HOG });
    let budget = |server| Event::Replenish { server, budget: ms(3) };
    let (inner, outer) = (Event::Exhaust { server: 1 }, Event::Exhaust { server: 0 });
    for back_end in [BackEnd::Run, BackEnd::Sim] {
        let lasted = |events: &[(u64, Event)]| {
            let late = found(causes(Some(&system), back_end, &[(40, 3, 6)]), events, 20);
            lasted(&late[&TaskId(0)])
        };
        // A budget ends within the job, of its own server or of the one around it.
        for used_up in [inner, outer] {
            let server = if used_up == outer { 0 } else { 1 };
            let events = [
                (0, budget(0)),
                (0, release(0, 0, 0)),
                (0, budget(1)),
                (0, start),
                (2, used_up),
                (2, preempt),
                (2, idle),
                (9, budget(server)),
                (9, resume),
                (10, complete),
            ];
            assert_eq!(lasted(&events), [("throttled", 7)], "{server}");
        }
        // A server that polls has no budget once it found nothing to do.
        let polled = [(0, budget(1)), (1, release(0, 0, 1)), (1, idle), (8, budget(1)), (8, start), (11, complete)];
        assert_eq!(lasted(&polled), [("throttled", 7)]);
        let gave_up =
            [(0, release(0, 0, 0)), (0, budget(1)), (0, start), (3, complete), (3, Event::ServerIdle { server: 1 })];
        let next = [(4, release(0, 1, 4)), (12, Event::Start { job: job(0, 1), cpu: 0 })];
        let ends = [(15, Event::Complete { job: job(0, 1), cpu: 0 })];
        assert_eq!(lasted(&[&gave_up[..], &next, &ends].concat()), [("throttled", 8)]);
        if back_end == BackEnd::Run {
            // With a budget, whoever has the CPU delays it.
            let hogged = [(0, budget(0)), (1, release(0, 0, 1)), (1, budget(1)), (1, hog), (6, start), (9, complete)];
            assert_eq!(lasted(&hogged), [("others", 5)]);
        }
    }
}

#[test]
fn the_last_holder_of_the_cpu_caused_the_delay() {
    let tasks = [(40, 3, 6)];
    let system = system(1, Builtin::Rm, &tasks);
    let occupy = |thread| Event::Occupy { cpu: 0, thread };
    let (start, complete) = (Event::Start { job: job(0, 0), cpu: 0 }, Event::Complete { job: job(0, 0), cpu: 0 });
    for (first, last, sentence) in [
        // Nobody saw when the real-time thread got the CPU from the ordinary one, or from nobody.
        (Some(1), HOG, "1 others (hog)"),
        (None, HOG, "1 others (hog)"),
        // An ordinary thread does not keep a CPU from a real-time thread that is awake.
        (None, Some(1), "1 idle"),
        (HOG, Some(1), "1 others (hog)"),
        (Some(1), None, "1 idle"),
    ] {
        let all = [(0, occupy(first)), (0, release(0, 0, 0)), (5, occupy(last)), (5, start), (8, complete)];
        let late = &found(causes(Some(&system), BackEnd::Run, &tasks), &all, 20)[&TaskId(0)];
        assert_eq!(late.sentence(), sentence, "{first:?} {last:?}");
    }
}

#[test]
fn a_thread_has_the_last_name_that_it_is_known_to_have_had() {
    let tasks = [(40, 3, 6)];
    let system = system(1, Builtin::Rm, &tasks);
    let mut causes = causes(Some(&system), BackEnd::Run, &tasks);
    causes.event(0, at(0), &Event::Occupy { cpu: 0, thread: HOG });
    causes.event(0, at(0), &release(0, 0, 0));
    let renamed = ThreadDef { name: "hog 2".to_owned(), node: NodeId(0), kind: ThreadKind::RealTime };
    causes.define(0, at(7), &Definition::Thread(0, renamed));
    assert_eq!(causes.finish(at(9)).unwrap()[&TaskId(0)].others, [("hog 2".to_owned(), ms(9))]);
}

#[test]
fn more_important_work_within_its_wcet_is_load() {
    // t1 is late for t0, and it would be without the 1 ms of "hog".
    let tasks = [(10, 4, 10), (40, 5, 8)];
    let occupy = |thread| Event::Occupy { cpu: 0, thread };
    let start = |task| Event::Start { job: job(task, 0), cpu: 0 };
    let complete = |task| Event::Complete { job: job(task, 0), cpu: 0 };
    let events = [
        (0, occupy(HOG)),
        (0, release(0, 0, 0)),
        (0, release(1, 0, 0)),
        (1, start(0)),
        (5, complete(0)),
        (5, start(1)),
        (10, complete(1)),
    ];
    for (strategy, cpus) in [(Builtin::Rm, 1), (Builtin::Edf, 1), (Builtin::Rm, 2)] {
        let mut events = events.to_vec();
        let mut system = system(cpus, strategy, &tasks);
        if strategy == Builtin::Edf {
            // The later deadline does not go first there.
            system.tasks[0].deadline = ms(7);
        }
        let late = &found(causes(Some(&system), BackEnd::Run, &tasks), &events, 20)[&TaskId(1)];
        assert_eq!((late.sentence().as_str(), lasted(late)), ("1 by load (t0)", vec![("others", 1)]), "{strategy:?}");
        // With 2 ms more of time it would have been in time.
        system.tasks[1].deadline = ms(9);
        let late = &found(causes(Some(&system), BackEnd::Run, &tasks), &events, 20)[&TaskId(1)];
        assert_eq!(late.sentence(), "1 others (hog)", "{strategy:?} {cpus}");
        events.clear();
    }
    // Under EDF a job with a later deadline that has the CPU is no load.
    let system = system(1, Builtin::Edf, &tasks);
    let late = &found(causes(Some(&system), BackEnd::Run, &tasks), &events, 20)[&TaskId(1)];
    assert_eq!(late.sentence(), "1 less important");
}

#[test]
fn without_a_system_other_tasks_are_disturbances_and_without_a_deadline_nothing_is_late() {
    let tasks = [(0, 0, 50), (0, 0, 8)];
    let events = [
        (0, release(0, 0, 0)),
        (0, Event::Start { job: job(0, 0), cpu: 1 }),
        (0, release(1, 0, 0)),
        (7, Event::Complete { job: job(0, 0), cpu: 1 }),
        (7, Event::Start { job: job(1, 0), cpu: 1 }),
        (12, Event::Complete { job: job(1, 0), cpu: 1 }),
    ];
    let late = found(causes(None, BackEnd::Observe, &tasks), &events, 20);
    assert_eq!((late[&TaskId(1)].sentence().as_str(), late[&TaskId(0)].jobs), ("1 others (t0)", 0));
    let mut unknown = causes(None, BackEnd::Observe, &tasks);
    unknown.definitions.tasks.iter_mut().for_each(|task| task.deadline = None);
    unknown.update_can_be_late();
    assert!(found(unknown, &events, 20).is_empty());
}

#[test]
fn a_log_that_does_not_tell_what_cpus_did_has_no_causes() {
    let tasks = [(40, 3, 6)];
    let system = system(1, Builtin::Rm, &tasks);
    for (back_end, kinds, known) in [
        (BackEnd::Run, KindSet::JOBS, false),
        (BackEnd::Run, KindSet::JOBS.with(Kind::Occupy), true),
        (BackEnd::Sim, KindSet::JOBS, true),
        (BackEnd::Sim, KindSet::JOBS.without(Kind::Preempt), false),
    ] {
        let header = Header::new(String::new(), None, back_end, kinds);
        let causes = Causes::new(Rules::of(&header, Some(&system)), &Definitions::of(&system));
        assert_eq!(causes.finish(at(1)).is_some(), known, "{back_end:?} {kinds:?}");
    }
}

#[test]
fn an_earlier_late_job_of_a_task_on_several_cpus_passes_its_cause_on() {
    let tasks = [(4, 3, 4)];
    let mut system = system(2, Builtin::Edf, &tasks);
    system.tasks[0].cpus = Some(CpuSet::first(2));
    let start = |number| Event::Start { job: job(0, number), cpu: 0 };
    let complete = |number| Event::Complete { job: job(0, number), cpu: 0 };
    let events = [
        (0, Event::Occupy { cpu: 0, thread: HOG }),
        (0, release(0, 0, 0)),
        (4, release(0, 1, 4)),
        (5, start(0)),
        (8, complete(0)),
        (8, start(1)),
        (11, complete(1)),
    ];
    assert_eq!(
        found(causes(Some(&system), BackEnd::Run, &tasks), &events, 20)[&TaskId(0)].sentence(),
        "2 others (hog)"
    );
}

/// "head" on CPU 1, which "tail" follows on CPU 0, where "other" waits for it.
#[test]
fn a_job_that_follows_another_cpu_passes_its_cause_on() {
    let tasks = [(40, 4, 40), (40, 5, 40), (20, 2, 5)];
    let mut system = system(2, Builtin::Fp, &tasks);
    for (task, (cpu, priority)) in system.tasks.iter_mut().zip([(1, 3), (0, 1), (0, 2)]) {
        (task.cpus, task.priority) = (Some([cpu].into_iter().collect()), Some(priority));
    }
    system.tasks[1].after = vec![TaskId(0)];
    let tail = |arrival, origin| Event::Release {
        job: job(1, 0),
        arrival: at(arrival),
        parent: Some(crate::event::Parent { hop: 1, origin: at(origin) }),
    };
    let start = |task, cpu| Event::Start { job: job(task, 0), cpu };
    let complete = |task, cpu| Event::Complete { job: job(task, 0), cpu };
    let events = |delay: u64| {
        let mut events = vec![
            (0, Event::Occupy { cpu: 0, thread: None }),
            (0, Event::Occupy { cpu: 1, thread: HOG.filter(|_| delay > 0) }),
            (20, release(0, 0, 20)),
            (20 + delay, start(0, 1)),
            (24 + delay, complete(0, 1)),
            (24 + delay, tail(24 + delay, 20)),
            (24 + delay, start(1, 0)),
            (29 + delay, complete(1, 0)),
        ];
        // It comes as "tail" does.
        events.insert(6, (24 + delay, Event::Release { job: job(2, 0), arrival: at(24 + delay), parent: None }));
        events.extend([(29 + delay, start(2, 0)), (31 + delay, complete(2, 0))]);
        events
    };
    // Without the delay of 1 ms, "tail" would end 4 ms after "other" comes: that is too late already.
    for (delay, sentence) in [(0, "1 by load (t1)"), (1, "1 by load (t1)"), (7, "1 others")] {
        let late = found(causes(Some(&system), BackEnd::Run, &tasks), &events(delay), 60);
        assert_eq!(late[&TaskId(2)].sentence(), sentence, "{delay}");
        // It waited for nobody.
        assert_eq!(late[&TaskId(1)].jobs, 0);
    }
}

/// "tail" was due while "busy" had the CPU: undisturbed, "busy" would have come after it, and "other" as late.
#[test]
fn a_delayed_job_that_would_have_delayed_others_before_leaves_them_late_by_load() {
    let tasks = [(40, 2, 40), (40, 5, 40), (40, 8, 40), (40, 2, 5)];
    let mut system = system(2, Builtin::Fp, &tasks);
    for (task, (cpu, priority)) in system.tasks.iter_mut().zip([(1, 4), (0, 1), (0, 2), (0, 3)]) {
        (task.cpus, task.priority) = (Some([cpu].into_iter().collect()), Some(priority));
    }
    system.tasks[1].after = vec![TaskId(0)];
    let parent = Some(crate::event::Parent { hop: 1, origin: at(0) });
    let start = |task, cpu| Event::Start { job: job(task, 0), cpu };
    let complete = |task, cpu| Event::Complete { job: job(task, 0), cpu };
    let events = [
        (0, Event::Occupy { cpu: 0, thread: None }),
        (0, Event::Occupy { cpu: 1, thread: HOG }),
        (0, release(0, 0, 0)),
        (2, release(2, 0, 2)),
        (2, start(2, 0)),
        (8, start(0, 1)),
        (10, complete(0, 1)),
        (10, Event::Release { job: job(1, 0), arrival: at(10), parent }),
        (10, release(3, 0, 10)),
        (10, complete(2, 0)),
        (10, start(1, 0)),
        (15, complete(1, 0)),
        (15, start(3, 0)),
        (17, complete(3, 0)),
    ];
    let late = found(causes(Some(&system), BackEnd::Run, &tasks), &events, 40);
    assert_eq!(late[&TaskId(3)].sentence(), "1 by load (t1)");
}

#[test]
fn the_worst_job_is_kept_with_what_its_cpu_did() {
    let tasks = [(40, 3, 6)];
    let system = system(1, Builtin::Rm, &tasks);
    let mut causes = causes(Some(&system), BackEnd::Run, &tasks).with_worst();
    for (number, hog) in [(0_u64, 1_u64), (1, 2), (2, 1)] {
        let from = number * 40;
        let (key, end) = (job(0, number), from + hog + 4);
        causes.event(0, at(from), &Event::Occupy { cpu: 0, thread: HOG });
        causes.event(0, at(from), &release(0, number, from));
        causes.event(0, at(from + hog), &Event::Start { job: key, cpu: 0 });
        causes.event(0, at(from + hog + 1), &Event::IrqEnter { irq: 0, cpu: 0 });
        causes.event(0, at(from + hog + 2), &Event::IrqExit { irq: 0, cpu: 0 });
        causes.event(0, at(end), &Event::Complete { job: key, cpu: 0 });
    }
    let (_, worst) = causes.finish_with_worst(at(120));
    let worst = &worst[&TaskId(0)];
    assert_eq!((worst.number, worst.response(), worst.deadline), (1, ms(6), Some(at(46))));
    let turns: Vec<_> = worst.turns.iter().map(|turn| (turn.what.name(), turn.from.as_ns() / 1_000_000)).collect();
    assert_eq!(turns, [("hog", 40), ("the job itself", 42), ("24 eth0", 43), ("the job itself", 44)]);
}

#[test]
fn a_thread_has_in_the_picture_the_name_that_it_had_then() {
    let tasks = [(40, 3, 6)];
    let system = system(1, Builtin::Rm, &tasks);
    let mut causes = causes(Some(&system), BackEnd::Run, &tasks).with_worst();
    let named = |name: &str| {
        let def = ThreadDef { name: name.to_owned(), node: NodeId(0), kind: ThreadKind::RealTime };
        Definition::Thread(0, def)
    };
    let occupy = Event::Occupy { cpu: 0, thread: HOG };
    let idle = Event::Occupy { cpu: 0, thread: None };
    causes.event(0, at(0), &release(0, 0, 0));
    causes.event(0, at(0), &occupy);
    causes.event(0, at(1), &idle);
    // It calls exec within its second turn, and again between that and its third.
    causes.event(0, at(2), &occupy);
    causes.define(0, at(3), &named("make"));
    causes.event(0, at(3), &idle);
    causes.define(0, at(4), &named("cc"));
    causes.event(0, at(4), &occupy);
    causes.event(0, at(5), &Event::Start { job: job(0, 0), cpu: 0 });
    causes.event(0, at(8), &Event::Complete { job: job(0, 0), cpu: 0 });
    let (late, worst) = causes.finish_with_worst(at(40));
    let turns: Vec<_> = worst[&TaskId(0)].turns.iter().map(|turn| turn.what.name().to_owned()).collect();
    assert_eq!(turns, ["hog", "idle", "make", "idle", "cc", "the job itself"]);
    assert_eq!(late.unwrap()[&TaskId(0)].jobs, 1);
}

#[test]
fn causes_are_cut_where_jobs_end() {
    let tasks = [(10, 3, 6)];
    let system = system(1, Builtin::Rm, &tasks);
    let mut causes = causes(Some(&system), BackEnd::Run, &tasks);
    let mut cuts = Vec::new();
    let mut cut = |late: Option<BTreeMap<TaskId, Late>>| cuts.push(late.unwrap()[&TaskId(0)].sentence());
    for number in 0..3 {
        let from = number * 10;
        causes.event(0, at(from), &release(0, number, from));
        causes.event(0, at(from), &Event::Occupy { cpu: 0, thread: HOG });
        causes.event(0, at(from + 5), &Event::Start { job: job(0, number), cpu: 0 });
        if number < 2 {
            causes.event(0, at(from + 8), &Event::Complete { job: job(0, number), cpu: 0 });
            cut(causes.cut());
        }
    }
    cut(causes.cut());
    // The last one is still open.
    cut(causes.finish(at(30)));
    assert_eq!(cuts, ["1 others (hog)", "1 others (hog)", "", "1 others (hog)"]);
}

/// Jobs on one CPU, tick by tick: by priority, except where a thread has the tick.
struct Machine {
    /// By job: task, number, arrival, work, when it ended.
    jobs: Vec<(usize, u64, u64, u64, Option<u64>)>,
    /// By tick: the job that ran, or who else.
    ticks: Vec<Result<usize, &'static str>>,
}

fn machine(tasks: &[(u64, u64, u64)], works: &[u64], hogged: &[bool]) -> Machine {
    let mut jobs = Vec::new();
    for (task, (period, _, _)) in tasks.iter().enumerate() {
        for number in 0..hogged.len() as u64 / period {
            let work = works[(task * 7 + number as usize) % works.len()].min(*period);
            jobs.push((task, number, number * period, work.max(1), None));
        }
    }
    let mut left: Vec<u64> = jobs.iter().map(|job| job.3).collect();
    let mut ticks = Vec::new();
    for (tick, hogged) in (0..).zip(hogged) {
        let ready = (0..jobs.len()).filter(|at| jobs[*at].2 <= tick && left[*at] > 0);
        let first = ready.min_by_key(|at| (jobs[*at].0, jobs[*at].1));
        ticks.push(match first {
            _ if *hogged => Err("hog"),
            None => Err("idle"),
            Some(at) => {
                left[at] -= 1;
                if left[at] == 0 {
                    jobs[at].4 = Some(tick + 1);
                }
                Ok(at)
            }
        });
    }
    Machine { jobs, ticks }
}

fn log_of(machine: &Machine) -> Vec<(u64, Event)> {
    let mut events = Vec::new();
    let key = |at: usize| job(machine.jobs[at].0 as u32, machine.jobs[at].1);
    let mut on: Option<Result<usize, &str>> = None;
    let mut started = std::collections::BTreeSet::new();
    for tick in 0..=machine.ticks.len() as u64 {
        let is = machine.ticks.get(tick as usize).copied();
        let mut gone = None;
        if let Some(Ok(before)) = on {
            if machine.jobs[before].4 == Some(tick) {
                events.push((tick, Event::Complete { job: key(before), cpu: 0 }));
                gone = Some(before);
            } else if is.is_some() && is != on {
                events.push((tick, Event::Preempt { job: key(before), cpu: 0 }));
            }
        }
        for (task, number, arrival, _, _) in &machine.jobs {
            if *arrival == tick {
                events.push((tick, release(*task as u32, *number, *arrival)));
            }
        }
        match is {
            Some(now) if on != is || gone.is_some() => match now {
                Ok(at) if started.insert(at) => events.push((tick, Event::Start { job: key(at), cpu: 0 })),
                Ok(at) => events.push((tick, Event::Resume { job: key(at), cpu: 0 })),
                Err(who) => {
                    events.push((tick, Event::Occupy { cpu: 0, thread: if who == "hog" { HOG } else { None } }));
                }
            },
            _ => {}
        }
        on = is;
    }
    events
}

proptest! {
    #[test]
    fn causes_are_those_that_a_look_at_each_tick_finds(
        tasks in prop::collection::vec((3_u64..12, 1_u64..4, 2_u64..14), 1..4),
        works in prop::collection::vec(1_u64..6, 5..9),
        hogged in prop::collection::vec(prop::bool::weighted(0.3), 30..60),
    ) {
        // By priority: the shorter deadline goes first.
        let mut tasks = tasks;
        tasks.sort_by_key(|(_, _, deadline)| *deadline);
        tasks.dedup_by_key(|(_, _, deadline)| *deadline);
        let machine = machine(&tasks, &works, &hogged);
        let system = system(1, Builtin::Dm, &tasks);
        let all = found(causes(Some(&system), BackEnd::Run, &tasks), &log_of(&machine), hogged.len() as u64);
        let end = hogged.len() as u64;
        for (task, (_, wcet, deadline)) in tasks.iter().enumerate() {
            let (mut jobs, mut by_load) = (0, 0);
            let mut lasted: BTreeMap<Cause, u64> = BTreeMap::new();
            for (at, (_, number, arrival, work, ended)) in
                machine.jobs.iter().enumerate().filter(|(_, job)| job.0 == task)
            {
                let over = ended.unwrap_or(end);
                let late = ended.map_or(arrival + deadline <= end, |ended| ended > arrival + deadline);
                if !late {
                    continue;
                }
                jobs += 1;
                let goes_before = |other: usize| {
                    let (of, number_of, ..) = machine.jobs[other];
                    of < task || (of == task && number_of <= *number)
                };
                // It was there before this tick, and goes on in it.
                let there = |other: usize, tick: u64| {
                    machine.jobs[other].2 < tick && machine.jobs[other].4.is_none_or(|ended| ended > tick)
                };
                let mut since = *arrival;
                while since > 0 && (0..machine.jobs.len()).any(|other| goes_before(other) && there(other, since)) {
                    since -= 1;
                }
                // The cause of each tick. Work beyond the WCET is in the job's last ticks.
                let mut done: BTreeMap<usize, u64> = BTreeMap::new();
                for tick in 0..over {
                    let cause = match machine.ticks[tick as usize] {
                        Ok(other) => {
                            let done = done.entry(other).or_default();
                            *done += 1;
                            let (of, ..) = machine.jobs[other];
                            match *done > tasks[of].1 {
                                true if of == task => Some(Cause::OwnOverrun),
                                true => Some(Cause::BeyondWcet),
                                false if goes_before(other) => None,
                                false => Some(Cause::LessImportant),
                            }
                        }
                        Err("hog") => Some(Cause::Others),
                        Err(_) => Some(Cause::Idle),
                    };
                    if tick >= since && let Some(cause) = cause {
                        *lasted.entry(cause).or_default() += 1;
                    }
                }
                // The same jobs without a disturbance.
                let mut left: BTreeMap<usize, u64> = BTreeMap::new();
                for (other, (of, _, arrival, work, ended)) in machine.jobs.iter().enumerate() {
                    if goes_before(other) && *arrival >= since {
                        let took = if ended.is_some() { (*work).min(tasks[*of].1) } else { tasks[*of].1 };
                        left.insert(other, took);
                    }
                }
                let own = if ended.is_some() { (*work).min(*wcet) } else { *wcet };
                left.insert(at, own);
                let mut tick = since;
                while left.contains_key(&at) {
                    let ready = left.keys().copied().filter(|other| machine.jobs[*other].2 <= tick);
                    if let Some(first) = ready.min_by_key(|other| (machine.jobs[*other].0, machine.jobs[*other].1)) {
                        let rest = left.get_mut(&first).unwrap();
                        *rest -= 1;
                        if *rest == 0 {
                            left.remove(&first);
                        }
                    }
                    tick += 1;
                }
                by_load += u64::from(tick > arrival + deadline);
            }
            let late = &all[&TaskId(task as u32)];
            let mainly: u64 = Cause::ALL.into_iter().map(|cause| late.mainly(cause)).sum();
            prop_assert_eq!((late.jobs, late.by_load, late.by_load + mainly), (jobs, by_load, jobs), "task {}", task);
            for cause in Cause::ALL {
                let expected = lasted.get(&cause).copied().unwrap_or(0);
                prop_assert_eq!(late.disturbance.of(cause), ms(expected), "{:?} of task {}", cause, task);
            }
        }
    }
}

/// The second node of a flow, by the deadlines of its hops, a period of 5 ms of its receiving task, and a local
/// task of 8 ms.
#[test]
fn a_job_that_a_message_releases_is_late_for_what_came_before_it_too() {
    let text = r#"
takt = 1
name = "t"
[[node]]
name = "n0"
send = { period = "5ms", wcet = "1ms" }
[[node]]
name = "n1"
strategy = "edf"
receive = { period = "5ms", wcet = "1ms" }
[[task]]
name = "local"
node = "n1"
period = "40ms"
deadline = "20ms"
wcet = "8ms"
[[flow]]
name = "f"
path = ["n0", "n1"]
period = "50ms"
wcet = "2ms"
deadline = "40ms"
hop-deadlines = ["20ms", "20ms"]
size = "120B"
[[network]]
delay = ["0us", "1ms"]
"#;
    let system = takt_model::file::parse(text, "t").unwrap_or_else(|errors| panic!("{errors}"));
    let definitions = Definitions::of(&system);
    let id = |name: &str| definitions.tasks.iter().position(|task| task.name == name).unwrap() as u32;
    let [sender, hop, receive, local] = ["f/0", "f/1", "n1/receive", "local"].map(id);
    let on = |task| (Event::Start { job: job(task, 0), cpu: 0 }, Event::Complete { job: job(task, 0), cpu: 0 });
    let (occupy, arrive) =
        (|thread| Event::Occupy { cpu: 0, thread }, Event::Arrive { job: job(sender, 0), message: 0 });
    let ((takes, taken), (start, complete)) = (on(receive), on(hop));
    let parent = crate::event::Parent { hop: 1, origin: at(0) };
    let released = Event::Release { job: job(hop, 0), arrival: at(0), parent: Some(parent) };
    // The message comes at `came`. The receiving job takes it from `from` to `to`.
    let message = |came, planned, (from, to)| {
        let receiving = [(planned, release(receive, 0, planned)), (from, takes), (to, taken), (to, released)];
        [(0, occupy(None)), (came, arrive)].into_iter().chain(receiving).collect::<Vec<_>>()
    };
    let (beside, runs, ran) = (release(local, 0, 36), on(local).0, on(local).1);
    type Case = (Vec<(u64, Event)>, Vec<(u64, Event)>, &'static str, &'static [(&'static str, u64)]);
    let cases: Vec<Case> = vec![
        // In time.
        (message(18, 20, (20, 21)), vec![(21, start), (23, complete)], "", &[]),
        // It itself, and others, after it was released.
        (message(18, 20, (20, 21)), vec![(21, start), (43, complete)], "1 own overrun", &[("own overrun", 20)]),
        (
            message(18, 20, (20, 21)),
            vec![(21, occupy(HOG)), (39, start), (41, complete)],
            "1 others (hog)",
            &[("others", 18)],
        ),
        // The receiving job was kept from the CPU, or took too long.
        (
            [message(18, 20, (38, 39)), vec![(20, occupy(HOG))]].concat(),
            vec![(39, start), (41, complete)],
            "1 others",
            &[("others", 18)],
        ),
        (message(18, 20, (20, 39)), vec![(39, start), (41, complete)], "1 beyond wcet", &[("beyond wcet", 18)]),
        // The message came as late as the plan allows: 20 + 5 + 1 + 1 ms.
        (
            message(27, 29, (29, 30)),
            vec![(30, occupy(HOG)), (39, start), (41, complete)],
            "1 others (hog)",
            &[("others", 9)],
        ),
        // The message was late.
        (message(37, 39, (39, 40)), vec![(40, start), (42, complete)], "1 late message", &[("late message", 10)]),
        // It was in time, and less important work of its own node is in no way.
        (
            [message(18, 36, (36, 37)), vec![(36, beside)]].concat(),
            vec![(37, start), (39, complete), (39, runs), (47, ran)],
            "",
            &[],
        ),
        // Nothing went wrong, but it had no time.
        (message(20, 38, (38, 39)), vec![(39, start), (41, complete)], "1 by load", &[]),
    ];
    for (first, then, sentence, expected) in cases {
        let mut all = [first, then].concat();
        all.sort_by_key(|(at, _)| *at);
        let causes = causes(Some(&system), BackEnd::Run, &[]);
        let late = &found(causes, &all, 100)[&TaskId(hop)];
        assert_eq!((late.sentence().as_str(), lasted(late).as_slice()), (sentence, expected), "{all:?}");
    }
}
