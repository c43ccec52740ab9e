//! Servers whose truth is known.

use takt_log::{BackEnd, CancelCause, Definition, Definitions, Event, Header, JobKey, KindSet, NodeDef, ServerDef};
use takt_log::{Sink, TaskDef};
use takt_model::{Auto, NodeId, ServerRule, Span, TaskId, Time};

use super::*;

fn server(name: &str, rule: &str) -> ServerDef {
    ServerDef { name: name.to_owned(), node: NodeId(0), rule: rule.to_owned(), period: None, budget: None }
}

fn definitions(cpus: u32, servers: Vec<ServerDef>) -> Definitions {
    let task = |name: &str| TaskDef {
        name: name.to_owned(),
        node: NodeId(0),
        period: None,
        deadline: None,
        wcet: None,
        class: None,
    };
    Definitions {
        nodes: vec![NodeDef { name: "n".to_owned(), cpus, strategy: "edf".to_owned() }],
        tasks: vec![task("a"), task("b")],
        servers,
        ..Definitions::default()
    }
}

fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

fn replenish(budget: u64) -> Event {
    Event::Replenish { server: 0, budget: Span::from_ms(budget) }
}

fn charge(server: u32, since: u64, until: u64, idle: bool) -> Event {
    Event::Charge { server, since: ms(since), amount: Span::from_ms(until - since), idle }
}

/// What a log of these events tells, with the jobs of both tasks.
fn inferred(definitions: &Definitions, events: &[(u64, Event)]) -> Inferred {
    let header = Header::new(String::new(), None, BackEnd::Sim, KindSet::JOBS.union(KindSet::SERVERS));
    let mut sinks = (Sampler::new(&header, true), ServerSampler::new(definitions));
    for (at, event) in events {
        sinks.event(0, ms(*at), event);
    }
    let found = Inferred::of_log(&sinks.0.finish(definitions), &header, definitions);
    found.with_servers(&sinks.1)
}

/// The server of a log of its events alone: budget and period.
fn terms(rule: &str, events: &[(u64, Event)]) -> (Option<Span>, Option<(u64, PeriodSource)>) {
    let found = inferred(&definitions(1, vec![server("c", rule)]), events);
    let one = &found.components[0];
    (one.budget, one.period.map(|period| (period.span.as_ns() / 1_000_000, period.source)))
}

#[test]
fn budgets_on_a_grid_tell_the_period() {
    let all: Vec<(u64, Event)> = (0..20).map(|k| (10 * k, replenish(3))).collect();
    for rule in ["ptps", "wcps", "crps", "polling", "deferrable", "a rule of tomorrow"] {
        assert_eq!(terms(rule, &all), (Some(Span::from_ms(3)), Some((10, PeriodSource::Grid))), "{rule}");
    }
    // Two budgets have one distance. A budget alone has none.
    assert_eq!(terms("ptps", &all[..2]).1, Some((10, PeriodSource::Distance)));
    assert_eq!(terms("ptps", &all[..1]), (Some(Span::from_ms(3)), None));
    assert_eq!(terms("ptps", &[]), (None, None));
    // Without a budget, it had at least what it paid.
    assert_eq!(terms("ptps", &[(4, charge(0, 2, 4, true))]), (Some(Span::from_ms(2)), None));
}

#[test]
fn used_parts_of_a_sporadic_budget_come_back_a_period_later() {
    // A budget of 4 each 10: 3 from 1 on, 1 from 6 on.
    let all = [
        (4, charge(0, 1, 4, false)),
        (7, charge(0, 6, 7, false)),
        (7, Event::Exhaust { server: 0 }),
        (11, replenish(3)),
        (16, replenish(4)),
    ];
    assert_eq!(terms("sporadic", &all), (Some(Span::from_ms(4)), Some((10, PeriodSource::Returned))));
}

#[test]
fn bandwidth_servers_tell_a_period_or_a_bound() {
    // A hard server of 2 each 8 waits for its deadline.
    let throttled = [
        (3, replenish(2)),
        (5, charge(0, 3, 5, false)),
        (5, Event::Exhaust { server: 0 }),
        (11, replenish(2)),
        (12, charge(0, 11, 12, false)),
        (30, replenish(2)),
    ];
    assert_eq!(terms("cbs-hard", &throttled), (Some(Span::from_ms(2)), Some((8, PeriodSource::Throttled))));
    // A soft one has its budget at once. 3 paid of 2 each T by the new deadline at 12: T is at most 12 * 2 / 3.
    let soft = [
        (0, replenish(2)),
        (2, charge(0, 0, 2, false)),
        (2, Event::Exhaust { server: 0 }),
        (2, replenish(2)),
        (3, charge(0, 2, 3, false)),
        (12, replenish(2)),
    ];
    assert_eq!(terms("cbs", &soft), (Some(Span::from_ms(2)), Some((8, PeriodSource::AtMost))));
    assert_eq!(terms("cbs", &soft[..5]), (Some(Span::from_ms(2)), None));
}

/// Jobs of tasks `a` and `b`, one after the other, every 10 ms.
fn turns(servers: [u32; 2]) -> Vec<(u64, Event)> {
    let mut all = Vec::new();
    for k in 0..20 {
        let at = 10 * k;
        for (task, server, from) in [(0, servers[0], at), (1, servers[1], at + 2)] {
            let job = JobKey { task: TaskId(task), number: k };
            all.push((from, Event::Release { job, arrival: ms(from), parent: None }));
            all.push((from, Event::Start { job, cpu: 0 }));
            all.push((from + 2, Event::Complete { job, cpu: 0 }));
            all.push((from + 2, charge(server, from, from + 2, false)));
        }
    }
    all
}

#[test]
fn tasks_stand_where_payments_say() {
    let two = definitions(1, vec![server("x", "ptps"), server("root", "ptps")]);
    let found = inferred(&two, &turns([1, 0]));
    assert_eq!(found.tasks.iter().map(|task| task.component).collect::<Vec<_>>(), [Some(1), Some(0)]);
    assert!(found.components.iter().all(|component| component.parent.is_none()));
    // A file has no component of that name, and no period is known.
    let written = found.system(&SystemOptions::default());
    assert_eq!(written.system.components[1].name, "root (2)");
    assert_eq!(written.system.components[1].period, Auto::Auto);
    assert_eq!(takt_model::file::parse(&written.text, "inferred.toml").as_ref(), Ok(&written.system));
    // One task is kept, and its component.
    let mut one = found.clone();
    one.keep(&["a".to_owned()]).unwrap();
    assert_eq!((one.tasks[0].component, one.components.len()), (Some(0), 1));
    assert_eq!(one.components[0].name, "root");
    // A task within two: the inner one pays for fewer tasks.
    let mut nested = turns([1, 1]);
    nested.extend(turns([0, 7]).into_iter().filter(|(_, event)| matches!(event, Event::Charge { server: 0, .. })));
    nested.sort_by_key(|(at, _)| *at);
    let found = inferred(&two, &nested);
    assert_eq!(found.tasks.iter().map(|task| task.component).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!(found.components[0].parent, Some(1));
}

#[test]
fn several_cpus_leave_tasks_without_a_component_if_two_pay() {
    let two = definitions(2, vec![server("x", "grub"), server("y", "ptps")]);
    let mut both = turns([0, 1]);
    both.extend(turns([1, 0]).into_iter().filter(|(_, event)| matches!(event, Event::Charge { .. })));
    both.sort_by_key(|(at, _)| *at);
    let found = inferred(&two, &both);
    assert!(found.tasks.iter().all(|task| task.component.is_none() && task.maybe_in == [0, 1]), "{:?}", found.tasks);
    // `grub` is for one CPU.
    let written = found.system(&SystemOptions::default());
    assert_eq!(written.components_left_out.len(), 1);
    assert_eq!(takt_model::file::parse(&written.text, "inferred.toml").as_ref(), Ok(&written.system));
}

#[test]
fn only_the_last_terms_count() {
    let first = definitions(1, vec![server("c", "ptps")]);
    let mut sampler = ServerSampler::new(&first);
    for k in 0..10 {
        sampler.event(0, ms(10 * k), &replenish(5));
    }
    let def = ServerDef { budget: Some(Span::from_ms(2)), ..server("c", "deferrable") };
    sampler.define(0, ms(100), &Definition::Server(0, def.clone()));
    for k in 0..10 {
        sampler.event(0, ms(100 + 20 * k), &replenish(2));
        // The same definition again changes nothing.
        sampler.define(0, ms(100 + 20 * k), &Definition::Server(0, def.clone()));
    }
    let header = Header::new(String::new(), None, BackEnd::Sim, KindSet::SERVERS);
    let found = Inferred::of_log(&[], &header, &first).with_servers(&sampler);
    let one = &found.components[0];
    assert_eq!((one.rule, one.budget, one.changes), (Some(ServerRule::Deferrable), Some(Span::from_ms(2)), 1));
    assert_eq!(one.period.map(|period| period.span), Some(Span::from_ms(20)));
}

#[test]
fn events_without_sense_change_nothing() {
    let one = definitions(1, vec![server("c", "ptps")]);
    let job = JobKey { task: TaskId(9), number: 0 };
    let events = [
        (1, Event::Replenish { server: 7, budget: Span::MAX }),
        (2, Event::Start { job, cpu: u32::MAX }),
        (2, Event::Complete { job, cpu: 3 }),
        (2, Event::Cancel { job, cause: CancelCause::Shed }),
        (3, Event::Charge { server: 0, since: ms(9), amount: Span::ZERO, idle: false }),
        (4, Event::Exhaust { server: 9 }),
        (5, Event::Lost { count: 0 }),
    ];
    let found = inferred(&one, &events);
    assert_eq!((found.components[0].budget, found.components[0].period), (None, None));
    // No file holds such a budget: takt size is to choose it.
    let mut huge = turns([0, 0]);
    huge.insert(0, (0, Event::Replenish { server: 0, budget: Span::MAX }));
    let written = inferred(&one, &huge).system(&SystemOptions::default());
    assert_eq!((written.system.components.len(), written.components_left_out.len()), (1, 0));
    assert!(written.system.tasks.len() == 2 && written.text.contains("budget = \"auto\""), "{}", written.text);
    assert!(takt_model::file::parse(&written.text, "inferred.toml").is_ok());
}
