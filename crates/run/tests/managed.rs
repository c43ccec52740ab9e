//! Components on the real kernel, under budget managers. Each run takes less than two seconds; where a privilege
//! is missing it says so and passes.
//!
//! Nothing here asserts a wall-clock time. Orders are asserted where the plan leaves some milliseconds between
//! events, and only if the machine held up no decision and no job that long.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_log::{Definition, Event, JobKey};
use takt_model::*;
use takt_run::{LiveChange, LiveError, RunError, RunHandle, RunOptions, RunSummary, Trace, prepare, run};
use takt_sim::{SimOptions, simulate};

mod common;
use common::{Events, alone, check, ms, or_skipped};

/// A run whose preemptions are those of the managers, or `None` and the reason on the screen.
fn try_run(system: &System, options: &RunOptions) -> Option<(RunSummary, Events)> {
    let (summary, events) = try_recorded(system, &RunOptions { trace: Trace::Never, ..*options })?;
    one_at_a_time(&events);
    Some((summary, events))
}

fn try_recorded(system: &System, options: &RunOptions) -> Option<(RunSummary, Events)> {
    let mut events = Events::new();
    let cannot =
        |error: &RunError| matches!(error, RunError::Privilege { .. } | RunError::Cpus { .. } | RunError::Trace(_));
    let summary = or_skipped(run(system, options, &mut events), cannot)?;
    println!("{summary:#?}");
    let of_jobs = |event: &Event| match event {
        Event::Replenish { .. } | Event::Exhaust { .. } | Event::ServerIdle { .. } | Event::Charge { .. } => false,
        other => !matches!(other, Event::Cancel { .. }),
    };
    let jobs: Events = events.iter().copied().filter(|(_, _, event)| of_jobs(event)).collect();
    check(system, &summary, &jobs);
    Some((summary, events))
}

/// A CPU has one job at a time, and no job runs that was not given a CPU.
fn one_at_a_time(events: &Events) {
    let mut running: BTreeMap<u32, JobKey> = BTreeMap::new();
    for (_, at, event) in events {
        match *event {
            Event::Start { job, cpu } | Event::Resume { job, cpu } => {
                assert!(running.values().all(|runs| *runs != job), "{event:?} at {at}: it runs");
                assert_eq!(running.insert(cpu, job), None, "{event:?} at {at}");
            }
            Event::Preempt { job, cpu } | Event::Complete { job, cpu } => {
                assert_eq!(running.remove(&cpu), Some(job), "{event:?} at {at}");
            }
            Event::Cancel { job, .. } => running.retain(|_, runs| *runs != job),
            _ => {}
        }
    }
}

/// A component with a server, and its tasks: name, offset, period, WCET in milliseconds.
fn domain(system: &mut System, server: (&str, ServerRule, u64, u64), tasks: &[(&str, u64, u64, u64)]) -> ComponentId {
    let (name, rule, period, budget) = server;
    let id = ComponentId(system.components.len() as u32);
    let mut component = Component::new(name, NodeId(0), rule);
    (component.period, component.budget) = (Auto::Value(ms(period)), Auto::Value(ms(budget)));
    component.priority = Some(id.0 + 1);
    component.strategy = StrategyRef::Builtin(Builtin::Rm);
    system.components.push(component);
    for (name, offset, period, wcet) in tasks {
        let mut task = Task::periodic(name, ms(*period), ms(*wcet));
        (task.offset, task.component) = (ms(*offset), Some(id));
        system.tasks.push(task);
    }
    id
}

fn node(strategy: Builtin) -> System {
    System::local(1, strategy, Vec::new())
}

/// The order of jobs and of what happens to servers, without times, payments and misses.
fn order(events: &Events) -> Vec<String> {
    let told = |event: &Event| match event {
        Event::Release { job, .. } => Some(format!("release {} {}", job.task.0, job.number)),
        Event::Start { job, .. } => Some(format!("start {} {}", job.task.0, job.number)),
        Event::Preempt { job, .. } => Some(format!("preempt {} {}", job.task.0, job.number)),
        Event::Resume { job, .. } => Some(format!("resume {} {}", job.task.0, job.number)),
        Event::Complete { job, .. } => Some(format!("complete {} {}", job.task.0, job.number)),
        Event::Cancel { job, .. } => Some(format!("cancel {} {}", job.task.0, job.number)),
        Event::Replenish { .. } | Event::Exhaust { .. } | Event::ServerIdle { .. } => Some(format!("{event:?}")),
        _ => None,
    };
    events.iter().filter_map(|(_, _, event)| told(event)).collect()
}

/// The longest lateness of any decision of a run.
fn latest_decision(summary: &RunSummary) -> Span {
    let late = summary.managers.iter().filter_map(|manager| manager.late.as_ref());
    Span::from_ns(late.map(|late| late.max).max().unwrap_or(0))
}

/// The same, or all that the hypervisor took during the run.
fn latest(summary: &RunSummary) -> Span {
    latest_decision(summary).max(summary.steal.unwrap_or(Span::ZERO))
}

/// How long each job was on a CPU, by the events.
fn had_by_job(events: &Events, end: Time) -> BTreeMap<JobKey, Span> {
    let (mut since, mut had) = (BTreeMap::new(), BTreeMap::<JobKey, Span>::new());
    let mut ran = |job: JobKey, since: Option<Time>, until: Time| {
        let span = had.entry(job).or_default();
        *span = span.saturating_add(since.map_or(Span::ZERO, |since| until.saturating_since(since)));
    };
    for (_, at, event) in events {
        match *event {
            Event::Start { job, .. } | Event::Resume { job, .. } => {
                since.insert(job, *at);
            }
            Event::Preempt { job, .. } | Event::Complete { job, .. } | Event::Cancel { job, .. } => {
                ran(job, since.remove(&job), *at);
            }
            _ => {}
        }
    }
    since.into_iter().for_each(|(job, since)| ran(job, Some(since), end));
    had
}

/// How long the jobs of a component were on a CPU, by the events.
fn had(system: &System, events: &Events, id: ComponentId, end: Time) -> Span {
    let inside = |job: JobKey| {
        let outer = |id: &ComponentId| system.components[id.index()].parent;
        std::iter::successors(system.tasks[job.task.index()].component, outer).any(|around| around == id)
    };
    let jobs = had_by_job(events, end).into_iter().filter(|(job, _)| inside(*job));
    jobs.fold(Span::ZERO, |sum, (_, had)| sum.saturating_add(had))
}

/// Whether the machine held up a decision or a job by a millisecond. A hypervisor may stop a CPU that has a job while
/// no decision is due; then the job is there for longer than its execution time.
fn is_disturbed(system: &System, summary: &RunSummary, events: &Events) -> bool {
    let longer = |(job, had): (JobKey, Span)| had.saturating_sub(system.tasks[job.task.index()].wcet);
    let late = had_by_job(events, summary.end).into_iter().map(longer).fold(latest_decision(summary), Span::max);
    if late >= ms(1) {
        println!("not held against the simulation: something was late by {late}");
    }
    late >= ms(1)
}

/// Some run was held against the simulation, unless the hypervisor takes the CPUs.
fn assert_compared(compared: u32, stolen: Span) {
    if compared == 0 && stolen >= ms(10) {
        println!("skipped: the hypervisor took up to {stolen} of a run, and each run was disturbed");
        return;
    }
    assert!(compared > 0, "each run was disturbed");
}

/// The order in a simulation. Each job may take up to 1.5 ms longer, and the order stays the same. So the costs of a
/// live run do not change it.
fn simulated<T: PartialEq + std::fmt::Debug>(system: &System, duration: Span, order: impl Fn(&Events) -> T) -> T {
    let simulated = |system: &System, seed: u64| {
        let mut events = Events::new();
        simulate(system, &SimOptions { duration, seed, node: None }, &mut events).unwrap();
        order(&events)
    };
    let expected = simulated(system, 0);
    let mut slow = system.clone();
    for task in &mut slow.tasks {
        let longest = task.wcet.saturating_add(Span::from_us(1500));
        (task.exec, task.wcet) = (Exec::Uniform { min: task.wcet, max: longest }, longest);
    }
    for seed in 0..100 {
        assert_eq!(simulated(&slow, seed), expected, "seed {seed}");
    }
    expected
}

/// Two domains as in [CSA]: the first is idle at the start of each period.
fn two_domains(rule: ServerRule) -> System {
    let mut system = node(Builtin::Rm);
    domain(&mut system, ("high", rule, 40, 14), &[("h", 8, 40, 4)]);
    domain(&mut system, ("low", rule, 80, 30), &[("l", 0, 80, 20)]);
    system
}

#[test]
fn golden_systems_run_in_the_order_of_the_simulation() {
    let _alone = alone();
    let (mut compared, mut stolen) = (0, Span::ZERO);
    let cases = ServerRule::ALL.map(|rule| {
        let system = two_domains(rule);
        let simulated = simulated(&system, ms(320), order);
        (rule, system, simulated)
    });
    // Each rule twice, for the machine may disturb a run.
    for (rule, system, simulated) in cases.iter().chain(&cases) {
        let Some((summary, events)) = try_run(system, &RunOptions::new(ms(320))) else { return };
        stolen = stolen.max(summary.steal.unwrap_or_default());
        if is_disturbed(system, &summary, &events) {
            continue;
        }
        assert_eq!(order(&events), *simulated, "{rule:?}");
        let manager = &summary.managers[0];
        assert!(manager.decisions > 0 && manager.cost.is_some(), "{manager:?}");
        compared += 1;
    }
    assert_compared(compared, stolen);
}

/// Two jobs of a component. `tight` has less laxity at first, and more after the other component has interrupted it.
/// Then `near` goes on under mlf. Under muf `near` waits, because its criticality is low. Its deadline is earlier.
fn by_laxity(strategy: Builtin) -> System {
    let mut system = node(Builtin::Rm);
    let tasks = [("near", 4, 80, 4), ("tight", 4, 80, 20)];
    let inner = domain(&mut system, ("inner", ServerRule::Deferrable, 80, 40), &tasks);
    domain(&mut system, ("beside", ServerRule::Deferrable, 40, 8), &[("b", 16, 40, 4)]);
    system.components[inner.index()].strategy = StrategyRef::Builtin(strategy);
    (system.tasks[0].deadline, system.tasks[0].criticality) = (ms(30), Criticality::Low);
    system.tasks[1].deadline = ms(36);
    system
}

#[test]
fn a_component_orders_its_jobs_by_laxity_as_in_the_simulation() {
    let _alone = alone();
    let simulated =
        [Builtin::Edf, Builtin::Mlf, Builtin::Muf].map(|strategy| simulated(&by_laxity(strategy), ms(320), order));
    let [edf, mlf, muf] = &simulated;
    assert!(edf != mlf && edf != muf && mlf != muf, "{simulated:#?}");
    let (mut compared, mut stolen) = (0, Span::ZERO);
    // Four times, for the machine may disturb a run.
    for (strategy, expected) in [(Builtin::Mlf, mlf), (Builtin::Muf, muf)].repeat(4) {
        let system = by_laxity(strategy);
        let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(320))) else { return };
        stolen = stolen.max(summary.steal.unwrap_or_default());
        if is_disturbed(&system, &summary, &events) {
            continue;
        }
        assert_eq!(order(&events), *expected, "{strategy:?}");
        compared += 1;
    }
    assert_compared(compared, stolen);
}

#[test]
fn a_nested_component_runs_in_the_order_of_the_simulation() {
    let _alone = alone();
    let mut system = node(Builtin::Edf);
    let outer = domain(&mut system, ("outer", ServerRule::Deferrable, 40, 20), &[("o", 12, 80, 4)]);
    let inner = domain(&mut system, ("inner", ServerRule::Polling, 40, 10), &[("i", 0, 40, 6)]);
    system.components[inner.index()].parent = Some(outer);
    domain(&mut system, ("other", ServerRule::CbsHard, 80, 20), &[("x", 2, 80, 12)]);
    let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(320))) else { return };
    let simulated = simulated(&system, ms(320), order);
    if !is_disturbed(&system, &summary, &events) {
        assert_eq!(order(&events), simulated);
    }
}

/// A component on two CPUs and one on one CPU. On the partitioned node each server has a CPU of its own.
fn wide(rule: ServerRule, placement: Placement) -> System {
    let mut system = node(Builtin::Fp);
    (system.nodes[0].cpus, system.nodes[0].placement) = (2, placement);
    let small = domain(&mut system, ("small", ServerRule::Deferrable, 80, 16), &[("often", 14, 80, 8)]);
    let tasks = [("left", 0, 160, 30), ("right", 4, 320, 100), ("third", 52, 320, 52)];
    let wide = domain(&mut system, ("wide", rule, 160, 92), &tasks);
    system.tasks[3].deadline = ms(200);
    let component = &mut system.components[wide.index()];
    (component.cpus, component.strategy) = (2, StrategyRef::Builtin(Builtin::Edf));
    if placement == Placement::Partitioned {
        component.server_cpus = vec![0, 1];
        system.components[small.index()].server_cpus = vec![1];
    }
    system
}

/// By CPU the order of jobs, and by server the order of what happens to it.
fn order_by_cpu(events: &Events) -> [BTreeMap<u32, Vec<String>>; 2] {
    let [mut cpus, mut servers] = [BTreeMap::<u32, Vec<String>>::new(), BTreeMap::new()];
    for (_, _, event) in events {
        match *event {
            Event::Start { cpu, .. } | Event::Preempt { cpu, .. } => cpus.entry(cpu).or_default(),
            Event::Resume { cpu, .. } | Event::Complete { cpu, .. } => cpus.entry(cpu).or_default(),
            Event::Migrate { to, .. } => cpus.entry(to).or_default(),
            Event::Replenish { server, .. } | Event::Exhaust { server, .. } | Event::ServerIdle { server, .. } => {
                servers.entry(server).or_default()
            }
            _ => continue,
        }
        .push(format!("{event:?}"));
    }
    [cpus, servers]
}

#[test]
fn a_component_on_several_cpus_runs_in_the_order_and_on_the_cpus_of_the_simulation() {
    let _alone = alone();
    let cases = [ServerRule::Deferrable, ServerRule::Ptps].map(|rule| {
        [Placement::Global, Placement::Partitioned].map(|placement| {
            let system = wide(rule, placement);
            let simulated = simulated(&system, ms(640), order_by_cpu);
            (rule, placement, system, simulated)
        })
    });
    let (mut compared, mut stolen) = (0, Span::ZERO);
    // Each case twice, for the machine may disturb a run.
    for (rule, placement, system, simulated) in cases.iter().chain(&cases).flatten() {
        let Some((summary, events)) = try_run(system, &RunOptions::new(ms(640))) else { return };
        let [manager] = &summary.managers[..] else { panic!("{:?}", summary.managers) };
        assert_eq!((manager.cpu, &manager.cpus[..]), (0, &[0, 1][..]));
        stolen = stolen.max(summary.steal.unwrap_or_default());
        if is_disturbed(system, &summary, &events) {
            continue;
        }
        assert_eq!(order_by_cpu(&events), *simulated, "{rule:?} {placement:?}");
        compared += 1;
    }
    assert_compared(compared, stolen);
}

/// Two threads of a component on two CPUs want ten times its budget. Another component and a task of the node run
/// beside it.
#[test]
fn greedy_threads_on_several_cpus_take_no_more_than_the_budget_of_their_component() {
    let _alone = alone();
    for rule in [ServerRule::Ptps, ServerRule::Deferrable, ServerRule::Sporadic, ServerRule::CbsHard] {
        for greedy_first in [true, false] {
            let mut system = node(Builtin::Fp);
            system.nodes[0].cpus = 2;
            let greedy = domain(&mut system, ("greedy", rule, 50, 40), &[("g0", 0, 50, 6), ("g1", 0, 50, 6)]);
            let modest = domain(&mut system, ("modest", rule, 50, 12), &[("m", 0, 50, 6)]);
            let component = &mut system.components[greedy.index()];
            (component.cpus, component.priority) = (2, Some(if greedy_first { 1 } else { 3 }));
            for task in &mut system.tasks[..2] {
                task.exec = Exec::Uniform { min: ms(240), max: ms(240) };
            }
            let mut own = Task::periodic("own", ms(50), ms(6));
            own.priority = Some(4);
            system.tasks.push(own);
            let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(300))) else { return };
            let each = latest(&summary).saturating_add(Span::from_us(50));
            for (id, budget) in [(greedy, 40), (modest, 12)] {
                // A component loses a CPU when a budget ends, and when others take it: four times a period at most.
                // The first budgets may come twice at once.
                let most = ms(budget * 7).saturating_add(Span::from_ns(28 * each.as_ns()));
                let had = had(&system, &events, id, summary.end);
                assert!(had <= most, "{rule:?} {greedy_first} {id:?}: {had} of {most}");
            }
            let completed = |task: &str| summary.tasks.iter().find(|of| of.name == task).unwrap().completed;
            if latest(&summary) < ms(1) {
                let both = completed("m").min(completed("own"));
                assert!(both >= 5, "{rule:?} {greedy_first}: {:?}", summary.tasks);
            }
            assert!(completed("g0") + completed("g1") <= 2, "{rule:?} {greedy_first}: {:?}", summary.tasks);
        }
    }
}

/// A component with a thread that wants ten times its budget, in front of, between and behind others, and nested.
#[test]
fn a_greedy_thread_takes_no_more_than_its_budget_and_the_lateness_of_decisions() {
    let _alone = alone();
    for rule in
        [ServerRule::Ptps, ServerRule::Polling, ServerRule::Deferrable, ServerRule::Sporadic, ServerRule::CbsHard]
    {
        for (place, nested) in [(0, false), (1, false), (2, false), (1, true)] {
            let mut system = node(Builtin::Fp);
            for at in 0..3 {
                let (name, task) = (format!("c{at}"), format!("t{at}"));
                domain(&mut system, (&name, rule, 50, 12), &[(&task, 0, 50, 6)]);
            }
            if nested {
                let outer = domain(&mut system, ("around", rule, 50, 14), &[]);
                system.components[place].parent = Some(outer);
            }
            let greedy = &mut system.tasks[place];
            greedy.exec = Exec::Uniform { min: ms(120), max: ms(120) };
            let Some((summary, events)) = try_run(&system, &RunOptions::new(ms(300))) else { return };
            for (id, _) in (0..).zip(&system.components).take(3) {
                let id = ComponentId(id);
                let had = had(&system, &events, id, summary.end);
                // It loses the CPU once a period at most because its budget is used up, and each time some
                // decision may be late. The first budget of each rule but those that idle may come twice at once.
                let budget = ms(12 * 7);
                let each = latest(&summary).saturating_add(Span::from_us(50));
                let most = budget.saturating_add(Span::from_ns(14 * each.as_ns()));
                assert!(had <= most, "{rule:?} {place} {nested}: {had} of {most}");
            }
            // The others complete all jobs that the end does not cut off.
            let completed = |task: &str| summary.tasks.iter().find(|of| of.name == task).unwrap().completed;
            for at in (0..3).filter(|at| *at != place) {
                if latest(&summary) < ms(1) {
                    assert!(completed(&format!("t{at}")) >= 5, "{rule:?} {place} {nested}: {:?}", summary.tasks);
                }
            }
            // Two jobs take 240 ms, and the budgets are 84. Each of the 14 decisions above may be late.
            if latest(&summary) < ms(10) {
                assert!(completed(&format!("t{place}")) <= 1, "{rule:?} {place} {nested}: {:?}", summary.tasks);
            }
        }
    }
}

#[test]
fn a_recorded_run_says_who_else_had_the_cpu() {
    let _alone = alone();
    for (rule, best_effort) in [(ServerRule::Ptps, false), (ServerRule::Crps, true)] {
        let options = RunOptions { trace: Trace::Always, best_effort, ..RunOptions::new(ms(240)) };
        let Some((summary, events)) = try_recorded(&two_domains(rule), &options) else { return };
        let other = |(_, _, event): &&(u32, Time, Event)| matches!(event, Event::Occupy { .. });
        let had = events.iter().filter(other).count();
        assert!(had > 0 && summary.recorded.is_some_and(|recorded| recorded.events > 0), "{summary:#?}");
        let late = summary.tasks.iter().all(|task| task.late.is_some());
        assert!(late, "the log says why jobs were late: {:?}", summary.tasks);
    }
}

/// Without any privilege decisions come late, but who has the CPU is told all the same.
#[test]
fn best_effort_runs_components_without_privilege() {
    let _alone = alone();
    for rule in ServerRule::ALL {
        let system = two_domains(rule);
        let options = RunOptions { best_effort: true, ..RunOptions::new(ms(240)) };
        let (summary, events) = try_run(&system, &options).unwrap();
        assert!(summary.notes.iter().any(|note| note.starts_with("best effort")), "{:?}", summary.notes);
        let releases = events.iter().filter(|(_, _, event)| matches!(event, Event::Release { .. })).count();
        assert_eq!(releases, 6 + 3);
        let server = |event: &Event| matches!(event, Event::Replenish { .. } | Event::Charge { .. });
        assert!(events.iter().any(|(_, _, event)| server(event)), "{rule:?}");
        assert_eq!(summary.tasks[0].class, "SCHED_OTHER");
    }
}

#[test]
fn late_jobs_are_dropped_and_chains_go_on_inside_a_component() {
    let _alone = alone();
    let mut system = node(Builtin::Rm);
    domain(&mut system, ("c", ServerRule::Deferrable, 40, 20), &[("a", 0, 40, 4), ("b", 0, 40, 4), ("late", 0, 40, 1)]);
    system.tasks[1].after = vec![TaskId(0)];
    system.tasks[1].offset = Span::ZERO;
    (system.tasks[2].late, system.tasks[2].exec) = (Some(Late::Drop), Exec::Uniform { min: ms(90), max: ms(90) });
    let options = RunOptions { best_effort: true, ..RunOptions::new(ms(240)) };
    let (summary, events) = try_run(&system, &options).unwrap();
    let dropped = events.iter().filter(|(_, _, event)| matches!(event, Event::Cancel { .. })).count();
    assert!(dropped >= 5, "{summary:#?}");
    let follows = |event: &Event| matches!(event, Event::Release { parent: Some(parent), .. } if parent.hop == 1);
    let completed = summary.tasks[0].completed as usize;
    let released = events.iter().filter(|(_, _, event)| follows(event)).count();
    assert_eq!(released, completed, "each job that completes releases one");
}

#[test]
fn systems_that_no_manager_can_run_are_refused_with_a_remedy() {
    let _alone = alone();
    let refused = |system: &System, options: &RunOptions| {
        let error = run(system, options, &mut Events::new()).unwrap_err();
        (error.exit_code(), error.to_string())
    };
    let options = RunOptions::new(ms(100));
    // Existing threads need a CPU of their own.
    let text = "takt = 1\n[[node]]\nname = \"n\"\ncpus = 2\n[[component]]\nname = \"held\"\nserver = \
                \"deferrable\"\nperiod = \"50ms\"\nbudget = \"5ms\"\nthreads = \"pid:1\"\n[[component]]\nname = \
                \"c\"\nserver = \"ptps\"\nperiod = \"50ms\"\nbudget = \"5ms\"\n[[task]]\nname = \"t\"\ncomponent = \
                \"c\"\nperiod = \"50ms\"\nwcet = \"1ms\"\n";
    let held = file::parse(text, "held.toml").unwrap();
    let (status, text) = refused(&held, &options);
    let why = "component \"held\": its existing threads need a CPU of their own";
    assert!(status == 3 && text.contains(why) && text.contains("placement = \"partitioned\""), "{text}");
    let mut wide = wide(ServerRule::Ptps, Placement::Global);
    wide.components[1].budget = Auto::Value(ms(320));
    wide.tasks[1].exec = Exec::Uniform { min: ms(1), max: ms(800) };
    let (status, text) = refused(&wide, &options);
    assert!(status == 3 && text.contains("CPUs 0-1") && text.contains("--force"), "{text}");
    let mut unsized_one = two_domains(ServerRule::Ptps);
    unsized_one.components[1].budget = Auto::Auto;
    let (status, text) = refused(&unsized_one, &options);
    assert!(status == 2 && text.contains("takt size"), "{text}");
    let mut sections = two_domains(ServerRule::Ptps);
    sections.tasks[0].preemption = Preemption::Until(ms(1));
    let (status, text) = refused(&sections, &options);
    assert!(status == 3 && text.contains("final-section"), "{text}");
    let mut full = two_domains(ServerRule::Wcps);
    (full.components[0].budget, full.components[1].budget) = (Auto::Value(ms(20)), Auto::Value(ms(40)));
    full.tasks[1].exec = Exec::Uniform { min: ms(1), max: ms(200) };
    let (status, text) = refused(&full, &options);
    assert!(status == 3 && text.contains("--force"), "{text}");
}

/// A manager on each CPU, with a component and a task of the node's own on each.
#[test]
fn each_cpu_has_its_manager() {
    let _alone = alone();
    let mut system = node(Builtin::Rm);
    (system.nodes[0].cpus, system.nodes[0].placement) = (2, Placement::Partitioned);
    for cpu in 0..2 {
        let task = format!("in {cpu}");
        let id = domain(&mut system, (&format!("c{cpu}"), ServerRule::Wcps, 40, 12), &[(&task, 4, 40, 4)]);
        system.components[id.index()].server_cpus = vec![cpu];
        let mut own = Task::periodic(&format!("own {cpu}"), ms(80), ms(6));
        own.cpus = Some(CpuSet::range(cpu, cpu + 1));
        system.tasks.push(own);
    }
    for best_effort in [true, false] {
        let options = RunOptions { best_effort, ..RunOptions::new(ms(320)) };
        let Some((summary, events)) = try_run(&system, &options) else { return };
        let cpus: Vec<u32> = summary.managers.iter().map(|manager| manager.cpu).collect();
        assert_eq!(cpus, [0, 1]);
        // Under SCHED_OTHER a busy machine may leave too little time for a job.
        assert!(best_effort || summary.tasks.iter().all(|task| task.completed > 0), "{summary:#?}");
        for (_, _, event) in &events {
            if let Event::Start { job, cpu } = event {
                assert_eq!(u64::from(*cpu), u64::from(job.task.0) / 2, "{event:?}");
            }
        }
        // A chain cannot cross from one manager to another.
        let mut crossing = system.clone();
        crossing.tasks[3].after = vec![TaskId(1)];
        let error = run(&crossing, &options, &mut Events::new()).unwrap_err();
        assert!(error.exit_code() == 3 && error.to_string().contains("place the chain on one CPU"), "{error}");
    }
}

/// Events and definitions of servers and tasks.
#[derive(Default)]
struct Recorded {
    events: Events,
    definitions: Vec<(Time, Definition)>,
}

impl takt_log::Sink for Recorded {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.events.push((stream, now, *event));
    }
    fn define(&mut self, _: u32, now: Time, definition: &Definition) {
        self.definitions.push((now, definition.clone()));
    }
}

/// Runs a system while `changes` uses its handle. Without the privilege it runs under SCHED_OTHER.
fn run_changed<T: Send>(
    system: &System,
    duration: Span,
    changes: impl Fn(&RunHandle) -> T + Sync,
) -> (RunSummary, Recorded, T) {
    // A thread that asks too late asks the next run.
    for best_effort in [false; 5].into_iter().chain([true; 5]) {
        let (options, handle) =
            (RunOptions { best_effort, trace: Trace::Never, ..RunOptions::new(duration) }, RunHandle::new());
        let mut kept = Recorded::default();
        let ready = prepare(system, &options).and_then(|prepared| prepared.open());
        let over = AtomicBool::new(false);
        let ran = ready.and_then(|ready| {
            std::thread::scope(|scope| {
                let asking = scope.spawn(|| {
                    while handle.system().is_none() {
                        if over.load(Ordering::Acquire) {
                            return None;
                        }
                        takt_linux::clock::pause(ms(1));
                    }
                    Some(changes(&handle))
                });
                let summary = ready.run_with(&mut kept, &mut |_| {}, &handle);
                over.store(true, Ordering::Release);
                summary.map(|summary| (summary, asking.join().unwrap()))
            })
        });
        match ran {
            Ok((summary, Some(answer))) => return (summary, kept, answer),
            Err(error @ (RunError::Privilege { .. } | RunError::Cpus { .. })) if !best_effort => {
                println!("best effort: {error}");
            }
            Ok((_, None)) => println!("the run was over at once"),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("each run was over at once")
}

#[test]
fn a_run_ends_while_a_change_of_it_is_decided_about() {
    let _alone = alone();
    let mut system = node(Builtin::Edf);
    domain(&mut system, ("own", ServerRule::Deferrable, 50, 12), &[("t own", 0, 50, 6)]);
    let budget = LiveChange::Server { component: "own".to_owned(), rule: None, period: None, budget: Some(ms(10)) };
    let (_, _, changed) = run_changed(&system, ms(300), |handle| {
        handle.apply(&budget, |_| {
            while handle.system().is_some() {
                takt_linux::clock::pause(ms(5));
            }
            Ok(())
        })
    });
    assert_eq!(changed, Err(LiveError::NotRunning));
}

/// A component whose thread wants twenty times its budget joins, changes and leaves, twice. All others keep theirs.
#[test]
fn a_greedy_component_joins_changes_and_leaves_and_takes_nothing_from_others() {
    let _alone = alone();
    let mut system = node(Builtin::Edf);
    domain(&mut system, ("own", ServerRule::Deferrable, 50, 12), &[("t own", 0, 50, 6)]);
    domain(&mut system, ("wild", ServerRule::CbsHard, 50, 12), &[("t wild", 0, 50, 6)]);
    system.tasks[1].exec = Exec::Uniform { min: ms(120), max: ms(120) };
    let mut full = system.clone();
    for _ in 0..2 {
        domain(&mut full, ("guest", ServerRule::Deferrable, 50, 10), &[("t guest", 0, 50, 5)]);
        full.tasks.last_mut().unwrap().exec = Exec::Uniform { min: ms(200), max: ms(200) };
    }
    let join = LiveChange::Join { components: vec![full.components[2].clone()], tasks: vec![full.tasks[2].clone()] };
    let budget = |budget| LiveChange::Server {
        component: "guest".to_owned(),
        rule: None,
        period: None,
        budget: Some(ms(budget)),
    };
    let leave = LiveChange::Leave("guest".to_owned());
    let (summary, kept, effects) = run_changed(&system, ms(4_000), |handle| {
        let refused = handle.apply(&join, |with| {
            assert_eq!((with.components.len(), with.tasks.len()), (3, 3));
            Err("not admitted: as the test wants it".to_owned())
        });
        assert!(matches!(refused, Err(LiveError::Refused(_))), "{refused:?}");
        assert_eq!(handle.system().unwrap(), system);
        assert!(matches!(handle.apply(&leave, |_| Ok(())), Err(LiveError::Invalid(_))));
        let mut effects = Vec::new();
        for _ in 0..2 {
            for change in [&join, &budget(5), &leave] {
                let effect = handle.apply(change, |_| Ok(()));
                println!("{effect:?}");
                effects.push(effect.unwrap());
            }
        }
        assert_eq!(handle.system().unwrap(), system);
        effects
    });
    println!("{summary:#?} {effects:?}");
    one_at_a_time(&kept.events);
    // Each change holds before the next one is decided.
    for pair in effects.windows(2) {
        assert!(pair[0].since.is_some_and(|since| pair[0].at <= since && since < pair[1].at), "{effects:?}");
    }
    for (task, [join, _, leave]) in
        [(2, [&effects[0], &effects[1], &effects[2]]), (3, [&effects[3], &effects[4], &effects[5]])]
    {
        assert_eq!(join.since, Some(join.at), "the first period begins at the instant");
        let of = |event: &Event| match *event {
            Event::Release { job, .. } | Event::Start { job, .. } | Event::Resume { job, .. } => Some(job.task.0),
            _ => None,
        };
        let times = kept.events.iter().filter(|(_, _, event)| of(event) == Some(task)).map(|(_, at, _)| *at);
        let times: Vec<Time> = times.collect();
        assert!(times.first().is_some_and(|at| *at == join.at), "{task}: {times:?}");
        assert!(times.iter().all(|at| *at <= leave.at), "{task}: {times:?}");
    }
    // The log defines the servers that join, each of their terms, and closed ones without.
    let budgets: Vec<Option<Span>> = kept
        .definitions
        .iter()
        .filter_map(|(_, of)| if let Definition::Server(_, def) = of { Some(def.budget) } else { None })
        .collect();
    assert_eq!(budgets, [Some(ms(10)), Some(ms(5)), None, Some(ms(10)), Some(ms(5)), None]);
    // Each component has no more than its budget in each of its periods, and the lateness of decisions.
    let each = latest(&summary).saturating_add(Span::from_us(50));
    let periods = 4_000 / 50 + 1;
    for id in (0..4).map(ComponentId) {
        let budget = full.components[id.index()].budget.given().unwrap_or_default();
        let all = periods * budget.as_ns() + 400 * each.as_ns();
        let had = had(&full, &kept.events, id, summary.end);
        assert!(had.as_ns() <= all, "{id:?} had {had}");
    }
    let own = summary.tasks.iter().find(|task| task.name == "t own").unwrap();
    if latest(&summary) < ms(1) {
        assert!(own.completed >= 79, "{summary:#?}");
    }
}

/// A server polls from a change on, until the next one. Its jobs come 8 ms after its budget. While it polls, the budget
/// is gone by then, and a job waits for the next one. Else the server has it still.
#[test]
fn a_server_that_polls_by_a_change_loses_its_idle_budget() {
    let _alone = alone();
    let system = two_domains(ServerRule::Deferrable);
    let (_, kept, [begin, end]) = run_changed(&system, ms(2_000), |handle| {
        let since = [ServerRule::Polling, ServerRule::Deferrable].map(|other| {
            takt_linux::clock::pause(ms(200));
            let component = "high".to_owned();
            let change = LiveChange::Server { component, rule: Some(other), period: None, budget: None };
            let effect = handle.apply(&change, |with| {
                assert_eq!(with.components[0].server, other);
                Ok(())
            });
            effect.unwrap().since.expect("its period of 40 ms ends")
        });
        assert_eq!(handle.system().unwrap(), system);
        since
    });
    one_at_a_time(&kept.events);
    let rule =
        |(_, of): &(Time, Definition)| if let Definition::Server(0, of) = of { Some(of.rule.clone()) } else { None };
    assert_eq!(kept.definitions.iter().filter_map(rule).collect::<Vec<_>>(), ["polling", "deferrable"]);
    // By phase: before the changes, between them, after them. Jobs with the budget that was there, and with a new one.
    let mut jobs = [[0, 0]; 3];
    let (mut is_idle, mut budgets, mut released) = (false, 0, BTreeMap::new());
    for (_, _, event) in &kept.events {
        match *event {
            Event::Replenish { server: 0, .. } => (is_idle, budgets) = (false, budgets + 1),
            Event::ServerIdle { server: 0 } => is_idle = true,
            Event::Release { job, arrival, .. } if job.task == TaskId(0) => {
                let phase = usize::from(arrival >= begin) + usize::from(arrival >= end);
                // If another job is running, the new one may use its budget.
                if phase != 1 || is_idle {
                    released.insert(job, (phase, budgets));
                }
            }
            Event::Start { job, .. } => {
                if let Some((phase, before)) = released.remove(&job) {
                    jobs[phase][usize::from(budgets > before)] += 1;
                }
            }
            _ => {}
        }
    }
    println!("{jobs:?} {begin} {end}");
    assert!(jobs[0][0] > 0 && jobs[1][0] == 0 && jobs[1][1] > 0 && jobs[2][0] > 0, "{jobs:?}: {:#?}", kept.events);
}

/// A run that is over, a system without components and a second run of a handle.
#[test]
fn only_a_run_under_managers_changes() {
    let _alone = alone();
    let handle = RunHandle::new();
    assert_eq!(handle.system(), None);
    let change = LiveChange::Leave("c".to_owned());
    assert_eq!(handle.apply(&change, |_| Ok(())), Err(LiveError::NotRunning));
    let plain = System::local(1, Builtin::Rm, vec![Task::periodic("t", ms(10), ms(1))]);
    let options = RunOptions { best_effort: true, ..RunOptions::new(ms(50)) };
    let ready = prepare(&plain, &options).unwrap().open().unwrap();
    let error = ready.run_with(&mut Events::new(), &mut |_| {}, &handle).unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains("--backend manager"), "{error}");
}

/// Servers whose rule, period and budget change while they run, by the file: at the instants of the simulation.
#[test]
fn servers_change_at_the_instants_of_the_simulation() {
    let _alone = alone();
    for rule in ServerRule::ALL {
        let mut system = two_domains(ServerRule::Deferrable);
        let switch = |component, at: u64, period, budget| ServerSwitch {
            component: ComponentId(component),
            at: Time::from_ns(at * 1_000_000),
            server: Some(rule),
            period: Some(ms(period)),
            budget: Some(ms(budget)),
        };
        system.switches = vec![switch(0, 90, 60, 20), switch(1, 130, 40, 14)];
        let mut live = Recorded::default();
        let options = RunOptions { best_effort: true, trace: Trace::Never, ..RunOptions::new(ms(240)) };
        run(&system, &options, &mut live).unwrap();
        one_at_a_time(&live.events);
        let mut simulated = Recorded::default();
        let options = SimOptions { duration: ms(240), seed: 0, node: None };
        simulate(&system, &options, &mut simulated).unwrap();
        assert_eq!(live.definitions, simulated.definitions, "{rule:?}");
        assert_eq!(live.definitions.len(), 2, "{:?}", live.definitions);
    }
}
