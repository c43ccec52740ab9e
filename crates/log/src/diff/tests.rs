use takt_model::{Builtin, Span, System, Task, TaskId, Time};

use super::*;
use crate::{BackEnd, Definitions, Event, Header, JobKey, KindSet, Sink, Writer};

const MS: u64 = 1_000_000;

/// A log of tasks (period = deadline = 10 ms) whose job k of task t completes at `completion(t, k)`.
fn log(names: &[&str], jobs: u64, kinds: KindSet, completion: impl Fn(&str, u64) -> Option<u64>) -> Vec<u8> {
    let tasks = names.iter().map(|name| Task::periodic(name, Span::from_ms(10), Span::from_ms(1))).collect();
    let definitions = Definitions::of(&System::local(4, Builtin::Edf, tasks));
    let mut events = Vec::new();
    for (t, name) in names.iter().enumerate() {
        for number in 0..jobs {
            let job = JobKey { task: TaskId(t as u32), number };
            let arrival = number * 10 * MS;
            events.push((arrival, Event::Release { job, arrival: Time::from_ns(arrival), parent: None }));
            events.push((arrival, Event::Start { job, cpu: t as u32 }));
            if let Some(at) = completion(name, number) {
                events.push((at, Event::Complete { job, cpu: t as u32 }));
            }
        }
    }
    events.sort_by_key(|(at, _)| *at);
    written(&definitions, kinds, &events, jobs * 10 * MS)
}

fn written(definitions: &Definitions, kinds: KindSet, events: &[(u64, Event)], end: u64) -> Vec<u8> {
    written_by(BackEnd::Sim, definitions, kinds, events, end)
}

fn written_by(
    back_end: BackEnd,
    definitions: &Definitions,
    kinds: KindSet,
    events: &[(u64, Event)],
    end: u64,
) -> Vec<u8> {
    let header = Header::new(String::new(), None, back_end, kinds);
    let mut writer = Writer::new(Vec::new(), &header, definitions).unwrap();
    events.iter().for_each(|(at, event)| writer.event(0, Time::from_ns(*at), event));
    writer.finish(Time::from_ns(end)).unwrap()
}

fn compare(left: &[u8], right: &[u8], tolerance: Span) -> Diff {
    let options = DiffOptions { tolerance };
    diff(&mut Reader::new(left).unwrap(), &mut Reader::new(right).unwrap(), &options).unwrap()
}

#[test]
fn logs_match_by_name_and_number() {
    let done = |_: &str, k: u64| Some(k * 10 * MS + MS);
    let left = log(&["a", "b"], 50, KindSet::JOBS, done);
    let right = log(&["b", "a"], 50, KindSet::JOBS, done);
    let found = compare(&left, &right, Span::ZERO);
    assert!(found.same && found.total.matched == 100, "{found:?}");
    assert_eq!((found.left_end_ns, found.not_compared.len(), found.first.len()), (found.right_end_ns, 0, 0));
}

#[test]
fn every_kind_of_difference_is_found() {
    let done = |_: &str, k: u64| Some(k * 10 * MS + MS);
    let left = log(&["a", "b"], 4, KindSet::JOBS, done);
    let right = log(&["a", "c"], 5, KindSet::JOBS, |_, k| match k {
        1 => Some(10 * MS + MS + 7),
        2 => Some(20 * MS + 15 * MS),
        3 => None,
        k => Some(k * 10 * MS + MS),
    });
    let found = compare(&left, &right, Span::from_ns(5));
    let a = Counts { matched: 4, differing: 3, completion: 2, response: 2, outcome: 2, ..Counts::default() };
    let a = Counts { only_right: 1, response_difference_max_ns: 14 * MS, ..a };
    let [b, c] = [Counts { only_left: 4, ..Counts::default() }, Counts { only_right: 5, ..Counts::default() }];
    let tasks: Vec<_> = found.tasks.iter().map(|of| (of.task.as_str(), of.counts)).collect();
    assert_eq!(tasks, [("a", a), ("b", b), ("c", c)]);
    assert_eq!(found.total, Counts { only_left: 4, only_right: 6, ..a });
    assert_eq!((found.same, found.left_end_ns, found.right_end_ns), (false, 40 * MS, 50 * MS));
    let side = |ns: Option<u64>, outcome: Option<&str>| {
        let ns = ns.map_or_else(|| "-".to_owned(), |ns| Span::from_ns(ns).to_string());
        format!("{ns} {}", outcome.unwrap_or("-"))
    };
    let told = |of: &Difference| {
        let (left, right) = (side(of.left_ns, of.left), side(of.right_ns, of.right));
        format!("{} {} {}: {left} / {right}", of.task, of.job, of.what)
    };
    assert_eq!(
        found.first.iter().map(told).collect::<Vec<_>>(),
        [
            "a 1 completion: 11ms completed / 11.000007ms completed",
            "a 1 response: 1ms completed / 1.000007ms completed",
            "a 2 completion: 21ms completed / 35ms completed late",
            "a 2 response: 1ms completed / 15ms completed late",
            "a 2 outcome: 21ms completed / 35ms completed late",
            "a 3 outcome: 31ms completed / - unfinished, late",
            "a 4 only right: - - / 40ms completed",
            "b 0 only left: 0ns completed / - -",
            "b 1 only left: 10ms completed / - -",
            "b 2 only left: 20ms completed / - -",
            "b 3 only left: 30ms completed / - -",
            "c 0 only right: - - / 0ns completed",
            "c 1 only right: - - / 10ms completed",
            "c 2 only right: - - / 20ms completed late",
            "c 3 only right: - - / 30ms unfinished, late",
            "c 4 only right: - - / 40ms completed",
        ]
    );
    assert!(compare(&left, &left, Span::ZERO).same);
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!((&json["total"]["only_right"], &json["tasks"][0]["task"]), (&6.into(), &"a".into()));
}

#[test]
fn events_that_one_back_end_lacks_are_not_compared() {
    let done = |_: &str, k: u64| Some(k * 10 * MS + MS);
    let right_kinds = KindSet::JOBS.without(Kind::Start).without(Kind::Cancel);
    let found = compare(&log(&["a"], 3, KindSet::JOBS, done), &log(&["a"], 3, right_kinds, done), Span::ZERO);
    assert!(found.same);
    assert_eq!(found.not_compared, ["start", "cancel"]);
}

#[test]
fn jobs_that_the_other_log_lacks_are_not_held_for_ever() {
    let left = log(&["a", "b"], 150_000, KindSet::JOBS, |_, k| Some(k * 10 * MS + MS));
    let right = log(&["b"], 150_000, KindSet::JOBS, |_, k| Some(k * 10 * MS + MS));
    let found = compare(&left, &right, Span::ZERO);
    assert_eq!((found.total.matched, found.total.only_left), (150_000, 150_000));
    assert_eq!((found.tasks[0].counts.only_left, found.tasks[1].counts.only_left), (150_000, 0));
}

/// A release known as a window agrees with every instant in it. A response agrees with every
/// response that the window allows.
#[test]
fn windows_agree_with_what_lies_in_them() {
    let job = JobKey { task: TaskId(0), number: 0 };
    let tasks = vec![Task::periodic("a", Span::from_ms(10), Span::from_ms(1))];
    let definitions = Definitions::of(&System::local(1, Builtin::Edf, tasks));
    let log = |earliest: Option<u64>, arrival: u64| {
        let header = Header::new(String::new(), None, BackEnd::Observe, KindSet::ALL);
        let mut writer = Writer::new(Vec::new(), &header, &definitions).unwrap();
        let now = Time::from_ns(arrival);
        if let Some(earliest) = earliest {
            writer.event(0, now, &Event::Window { job, earliest: Time::from_ns(earliest) });
        }
        writer.event(0, now, &Event::Release { job, arrival: now, parent: None });
        writer.event(0, Time::from_ns(900), &Event::Complete { job, cpu: 0 });
        writer.finish(Time::from_ns(1000)).unwrap()
    };
    let window = log(Some(100), 500);
    for (arrival, same) in [(94, false), (95, true), (300, true), (505, true), (506, false)] {
        let found = compare(&window, &log(None, arrival), Span::from_ns(5));
        assert_eq!((found.same, found.total.release, found.total.response), (same, !same as u64, !same as u64));
        assert_eq!(compare(&log(None, arrival), &window, Span::from_ns(5)).same, same);
    }
    assert!(compare(&window, &log(Some(0), 100), Span::ZERO).same);
    assert!(!compare(&window, &log(Some(0), 99), Span::ZERO).same);
}

/// Messages match by the job that left them and by their order among its messages.
#[test]
fn messages_are_compared() {
    let task = |name: &str| Task::periodic(name, Span::from_ms(10), Span::from_ms(1));
    let definitions = Definitions::of(&System::local(1, Builtin::Edf, vec![task("a"), task("b")]));
    let all = KindSet::JOBS.union(KindSet::MESSAGES);
    let log = |kinds: KindSet, events: &[(u64, Event)]| written(&definitions, kinds, events, 1000);
    let of = |task: u32, number: u64| JobKey { task: TaskId(task), number };
    let send = |at, job, message| (at, Event::Send { job, message });
    let arrive = |at, job, message| (at, Event::Arrive { job, message });
    let receive = |at, job, message| (at, Event::Receive { job, message });
    let lost = |at, job, message| (at, Event::Drop { job, message, cause: crate::DropCause::Lost });
    let left = log(
        all,
        &[
            send(10, of(0, 0), 0),
            send(10, of(0, 0), 1),
            arrive(20, of(0, 0), 0),
            arrive(30, of(0, 0), 1),
            receive(40, of(0, 0), 0),
            receive(40, of(0, 0), 1),
            send(50, of(0, 1), 2),
            arrive(60, of(0, 1), 2),
        ],
    );
    // Another message comes before, the second arrives later, and the third is lost.
    let right = log(
        all,
        &[
            send(5, of(1, 0), 0),
            send(10, of(0, 0), 1),
            send(10, of(0, 0), 2),
            arrive(20, of(0, 0), 1),
            arrive(36, of(0, 0), 2),
            receive(40, of(0, 0), 1),
            receive(40, of(0, 0), 2),
            send(50, of(0, 1), 3),
            lost(50, of(0, 1), 3),
        ],
    );
    let found = compare(&left, &right, Span::from_ns(5));
    let [a, b] = &found.messages[..] else { panic!("{found:?}") };
    assert_eq!((a.matched, a.send, a.arrive, a.receive, a.drop), (7, 0, 1, 0, 0), "{found:?}");
    assert_eq!((a.only_left, a.only_right, a.difference_max_ns), (1, 1, 6));
    assert_eq!((b.task.as_str(), b.only_left, b.only_right), ("b", 0, 1));
    assert!(!found.same, "{found:?}");
    assert!(compare(&left, &left, Span::ZERO).same);
    assert!(compare(&left, &log(KindSet::JOBS, &[]), Span::ZERO).messages.is_empty());
}

/// Servers "one" and "two".
fn two_servers() -> Definitions {
    let mut system = System::local(1, Builtin::Edf, vec![Task::periodic("a", Span::from_ms(10), Span::from_ms(1))]);
    for name in ["one", "two"] {
        let rule = takt_model::ServerRule::CbsHard;
        system.components.push(takt_model::Component::new(name, takt_model::NodeId(0), rule));
    }
    Definitions::of(&system)
}

/// Replenishments and exhaustions match in their order, by the name of the server. Near the end of a log an event may
/// have its counterpart behind the end.
#[test]
fn budgets_of_servers_are_compared() {
    let definitions = two_servers();
    let log = |kinds: KindSet, events: &[(u64, Event)]| written(&definitions, kinds, events, 1000);
    let all = KindSet::JOBS.union(KindSet::SERVERS);
    let comes = |at, server| (at, Event::Replenish { server, budget: Span::from_ns(9) });
    let used = |at, server| (at, Event::Exhaust { server });
    let left = log(all, &[comes(0, 0), comes(0, 1), used(50, 0), comes(100, 0), used(150, 0), comes(997, 1)]);
    let right = log(all, &[comes(1, 1), comes(4, 0), used(56, 0), comes(103, 0)]);
    let found = compare(&left, &right, Span::from_ns(5));
    assert!(!found.same && found.total.differing == 0, "{found:?}");
    let [one, two] = &found.servers[..] else { panic!("{found:?}") };
    assert_eq!((one.matched, one.replenish, one.exhaust, one.only_left, one.only_right), (3, 0, 1, 1, 0), "{found:?}");
    assert_eq!((one.idle, one.charge, one.difference_max_ns, two.matched), (0, 0, 6, 1));
    assert!(two.is_same(), "the last replenishment may come behind the end: {found:?}");
    assert!(compare(&left, &left, Span::ZERO).same);
    // Events that a log does not record are no difference.
    let without = log(KindSet::JOBS, &[]);
    assert!(compare(&left, &without, Span::ZERO).servers.is_empty());
}

/// Payments have a start and an amount, too. The end of the shorter log cuts its last one off. Live logs split payments
/// in another way each time.
#[test]
fn idle_servers_and_payments_are_compared_in_simulations() {
    let definitions = two_servers();
    let log = |back_end, events: &[(u64, Event)], end| {
        written_by(back_end, &definitions, KindSet::JOBS.union(KindSet::SERVERS), events, end)
    };
    let idle = |at| (at, Event::ServerIdle { server: 0 });
    let pays = |at, since, amount| {
        (at, Event::Charge { server: 0, since: Time::from_ns(since), amount: Span::from_ns(amount), idle: false })
    };
    let left = log(BackEnd::Sim, &[pays(10, 0, 10), idle(10), pays(40, 20, 20), pays(1000, 990, 10)], 1000);
    let other = [pays(10, 0, 10), idle(17), pays(40, 20, 26), pays(1100, 990, 110)];
    let found = compare(&left, &log(BackEnd::Sim, &other, 1100), Span::from_ns(5));
    let [one] = &found.servers[..] else { panic!("{found:?}") };
    let counts = (one.matched, one.idle, one.charge, one.only_left, one.only_right);
    assert_eq!((counts, one.difference_max_ns), ((3, 1, 1, 0, 0), 7), "{found:?}");
    assert!(!found.same, "{found:?}");
    assert!(compare(&left, &left, Span::ZERO).same);
    assert!(compare(&left, &log(BackEnd::Run, &other, 1100), Span::ZERO).servers.is_empty());
}
