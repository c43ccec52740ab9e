use proptest::prelude::*;
use takt_model::{Auto, Builtin, Component, ComponentId, Exec, NodeId, ServerRule, StrategyRef, System, Task, TaskId};
use takt_sim::{SimOptions, simulate};

use super::*;

type Events = Vec<(u32, Time, Event)>;

const US: u64 = 1000;

fn us(us: u64) -> Span {
    Span::from_us(us)
}

fn at(us: u64) -> Time {
    Time::from_ns(us * US)
}

fn is_of_server(event: &Event) -> bool {
    matches!(event, Event::Replenish { .. } | Event::Exhaust { .. } | Event::ServerIdle { .. } | Event::Charge { .. })
}

/// Each task alone in a hard constant-bandwidth server: period and budget, then period and WCET of the task.
fn system(servers: &[(u64, u64, u64, u64)]) -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    for (index, (period, budget, of_task, wcet)) in servers.iter().enumerate() {
        let mut component = Component::new(&format!("c{index}"), NodeId(0), ServerRule::CbsHard);
        (component.period, component.budget) = (Auto::Value(us(*period)), Auto::Value(us(*budget)));
        component.strategy = StrategyRef::Builtin(Builtin::Edf);
        system.components.push(component);
        let mut task = Task::periodic(&format!("t{index}"), us(*of_task), us(*wcet));
        task.exec = Exec::Uniform { min: us(wcet.div_ceil(2)), max: us(*wcet) };
        task.component = Some(ComponentId(index as u32));
        system.tasks.push(task);
    }
    system
}

fn account(servers: &[(u64, u64, u64, u64)], slack: Span) -> ServerAccount {
    let terms = |(server, of): (u32, &(u64, u64, u64, u64))| Terms { server, budget: us(of.1), period: us(of.0) };
    let terms: Vec<Terms> = (0..).zip(servers).map(terms).collect();
    ServerAccount::new(&terms, (0..servers.len()).map(Some).collect(), slack)
}

/// The events with those of servers told anew.
fn told_anew(events: &Events, account: ServerAccount, end: Time) -> Events {
    let mut all = Events::new();
    let mut sink = WithServers { sink: &mut all, account: Some((0, account)) };
    for (stream, now, event) in events.iter().filter(|(_, _, event)| !is_of_server(event)) {
        sink.event(*stream, *now, event);
    }
    sink.finish(end);
    all
}

/// The events of budgets before the end, by time. Events of one instant are sorted by name.
fn budgets(events: &Events, end: Time) -> Vec<(Time, String)> {
    let of = |at: Time, event: &Event| at < end && is_of_server(event) && !matches!(event, Event::Charge { .. });
    let told = events.iter().filter(|(_, at, event)| of(*at, event));
    let mut all: Vec<(Time, String)> = told.map(|(_, at, event)| (*at, format!("{event:?}"))).collect();
    all.sort();
    all
}

fn paid(events: &Events, servers: usize) -> Vec<Span> {
    let mut paid = vec![Span::ZERO; servers];
    for (_, _, event) in events {
        if let Event::Charge { server, amount, .. } = event {
            paid[*server as usize] += *amount;
        }
    }
    paid
}

proptest! {
    /// The simulator's hard constant-bandwidth servers are the slow reference: from the jobs of a simulation the
    /// account finds what the simulator told of servers.
    #[test]
    fn the_account_finds_what_the_simulator_tells(
        servers in prop::collection::vec((2u64..12, 1u64..5, 1u64..12, 1u64..8), 1..4),
        seed in 0u64..1000,
    ) {
        // The bandwidths together are at most one: a budget is at most its part of the period.
        let count = servers.len() as u64;
        let servers: Vec<(u64, u64, u64, u64)> = servers
            .iter()
            .map(|(period, budget, of_task, wcet)| {
                let period = period * 1000 * count;
                (period, (budget * 700).min(period / count), of_task * 900, wcet * 500)
            })
            .collect();
        let (system, end) = (system(&servers), us(200_000));
        let mut simulated = Events::new();
        simulate(&system, &SimOptions { duration: end, seed, node: None }, &mut simulated).unwrap();
        let found = told_anew(&simulated, account(&servers, Span::ZERO), Time::ZERO + end);
        let (told, expected) = (budgets(&found, Time::ZERO + end), budgets(&simulated, Time::ZERO + end));
        let first = told.iter().zip(&expected).position(|(told, expected)| told != expected);
        let first = first.unwrap_or(told.len().min(expected.len()));
        let around = |all: &[(Time, String)]| all[first.saturating_sub(3).min(all.len())..].to_vec();
        prop_assert!(told == expected, "{:#?}\n{:#?}", around(&told), around(&expected));
        prop_assert_eq!(paid(&found, servers.len()), paid(&simulated, servers.len()));
        prop_assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].1), "a stream goes back");
    }
}

fn job(number: u64) -> JobKey {
    JobKey { task: TaskId(0), number }
}

fn release(number: u64, us: u64) -> (u32, Time, Event) {
    (0, at(us), Event::Release { job: job(number), arrival: at(us), parent: None })
}

fn lines(events: &Events) -> Vec<String> {
    let line = |(_, at, event): &(u32, Time, Event)| match event {
        Event::Replenish { budget, .. } => Some(format!("{} replenish {budget}", at.as_ns() / US)),
        Event::Exhaust { .. } => Some(format!("{} exhaust", at.as_ns() / US)),
        Event::ServerIdle { .. } => Some(format!("{} idle", at.as_ns() / US)),
        Event::Charge { amount, .. } => Some(format!("{} charge {amount}", at.as_ns() / US)),
        _ => None,
    };
    events.iter().filter_map(line).collect()
}

/// The kernel takes the CPU at a tick, and the next budget pays for what was too much.
#[test]
fn an_overrun_is_paid_by_the_next_budget() {
    let events = vec![
        release(0, 0),
        (0, at(10), Event::Start { job: job(0), cpu: 0 }),
        (0, at(7010), Event::Block { job: job(0), cpu: 0 }),
        (0, at(20_005), Event::Resume { job: job(0), cpu: 0 }),
        (0, at(22_005), Event::Complete { job: job(0), cpu: 0 }),
    ];
    let found = told_anew(&events, account(&[(20_000, 5000, 0, 0)], Span::ZERO), at(50_000));
    assert_eq!(
        lines(&found),
        ["0 replenish 5ms", "7010 charge 7ms", "7010 exhaust", "20000 replenish 3ms", "22005 charge 2ms", "22005 idle"]
    );
}

/// Only a remainder that the work outside of jobs explains counts as used up.
#[test]
fn a_thread_that_blocks_early_has_budget_left() {
    let blocked_after = |us: u64| {
        let events = vec![
            release(0, 0),
            (0, at(0), Event::Start { job: job(0), cpu: 0 }),
            (0, at(us), Event::Block { job: job(0), cpu: 0 }),
        ];
        let found = told_anew(&events, account(&[(20_000, 5000, 0, 0)], Span::from_us(200)), at(10_000));
        lines(&found).iter().any(|line| line.ends_with("exhaust"))
    };
    assert!(blocked_after(4900) && !blocked_after(4700));
}

#[test]
fn after_lost_events_a_server_is_unknown_until_it_was_idle() {
    let events = vec![
        release(0, 0),
        (0, at(0), Event::Start { job: job(0), cpu: 0 }),
        (0, at(1000), Event::Lost { count: 3 }),
        (0, at(2000), Event::Resume { job: job(0), cpu: 0 }),
        (0, at(3000), Event::Complete { job: job(0), cpu: 0 }),
        release(1, 30_000),
        (0, at(30_000), Event::Start { job: job(1), cpu: 0 }),
        (0, at(31_000), Event::Complete { job: job(1), cpu: 0 }),
    ];
    let found = told_anew(&events, account(&[(20_000, 5000, 0, 0)], Span::ZERO), at(50_000));
    assert_eq!(lines(&found), ["0 replenish 5ms", "30000 replenish 5ms", "31000 charge 1ms", "31000 idle"]);
}

/// A switch away from the thread is missing, and shows only when the thread comes back.
#[test]
fn a_missing_switch_charges_nothing() {
    let events = vec![
        release(0, 0),
        (0, at(0), Event::Start { job: job(0), cpu: 0 }),
        (0, at(20_010), Event::Gap { job: job(0) }),
        (0, at(20_010), Event::Resume { job: job(0), cpu: 0 }),
        (0, at(21_000), Event::Complete { job: job(0), cpu: 0 }),
    ];
    let found = told_anew(&events, account(&[(20_000, 5000, 0, 0)], Span::ZERO), at(50_000));
    assert!(lines(&found).iter().all(|line| !line.contains("charge")), "{:?}", lines(&found));
}
