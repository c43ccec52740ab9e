//! Recordings that never end: threads come and go, and what is kept of them stays bounded.

use std::collections::BTreeMap;

use takt_log::stats::Collector;
use takt_model::Time;
use takt_trace::jobs::{Filter, Options, Rebuilder, TASKS_MAX, TASKS_OWN, kinds};
use takt_trace::{Comm, Context, EventKind, KernelEvent, Pid, SwitchOutState, Thread, Waking};

/// Threads that run one after the other on one CPU. Each is born, waits once, is woken, has one
/// job, and ends.
struct Threads {
    now: u64,
    rebuilder: Rebuilder,
    collector: Collector,
}

impl Threads {
    fn new(filter: Filter) -> Threads {
        let rebuilder = Rebuilder::new(Options { filter, ..Options::default() });
        let collector = Collector::new(&rebuilder.definitions(), kinds(["sched_switch"]));
        Threads { now: 0, rebuilder, collector }
    }

    fn event(&mut self, pid: Pid, what: EventKind) {
        self.now += 10;
        let event = KernelEvent { time: Time::from_ns(self.now), cpu: 0, pid, context: Context::Thread, name: 0, what };
        self.rebuilder.event(&event, &mut self.collector);
    }

    fn lives(&mut self, pid: Pid, name: &str) {
        let idle = Thread { pid: 0, comm: Comm::new(b"idle"), prio: Some(120) };
        let thread = Thread { pid, comm: Comm::new(name.as_bytes()), prio: Some(120) };
        let wake = |waking| EventKind::Wake { thread, waking, cpu: None };
        let arrives = EventKind::Switch { prev: idle, left: SwitchOutState::Preempted, next: thread };
        let leaves = |left| EventKind::Switch { prev: thread, left, next: idle };
        self.event(0, wake(Waking::New));
        self.event(0, arrives);
        self.event(pid, leaves(SwitchOutState::Blocked));
        self.event(0, wake(Waking::Begins));
        self.event(0, arrives);
        self.event(pid, leaves(SwitchOutState::Ended));
    }

    fn completed(self) -> BTreeMap<String, u64> {
        let end = self.rebuilder.end();
        let tasks = self.collector.finish(end).tasks;
        assert!(tasks.len() <= TASKS_MAX);
        let mut completed = BTreeMap::new();
        tasks.into_iter().for_each(|task| *completed.entry(task.task).or_default() += task.completed);
        completed
    }
}

#[test]
fn threads_of_a_name_that_follow_each_other_share_a_task_after_the_first_thousands() {
    let mut threads = Threads::new(Filter::default());
    let born = 20_000;
    for number in 0..born {
        let name = ["reader", "writer", "worker"][number % 3];
        threads.lives(1000 + number as Pid % 500, name);
    }
    assert_eq!(threads.rebuilder.threads_left_out(), 0);
    let tasks = threads.completed();
    // No job is missing, and who shares is named so.
    assert_eq!(tasks.values().sum::<u64>(), born as u64);
    let shared: u64 = ["reader-*", "writer-*", "worker-*"].iter().map(|name| tasks[*name]).sum();
    assert_eq!(shared, (born - TASKS_OWN + 3) as u64);
}

#[test]
fn threads_beyond_the_task_limit_share_one_task() {
    let mut threads = Threads::new(Filter::default());
    let born = TASKS_MAX + 1000;
    (0..born).for_each(|number| threads.lives(1000 + number as Pid % 500, &format!("job {number}")));
    assert_eq!(threads.rebuilder.threads_left_out(), 0);
    let tasks = threads.completed();
    assert_eq!(tasks.values().sum::<u64>(), born as u64);
    assert_eq!(tasks["*-*"], 1001);
}

#[test]
fn an_id_is_another_threads_once_its_thread_has_ended() {
    let mut threads = Threads::new(Filter { pids: [100].into(), ..Filter::default() });
    let fork = |parent, child| EventKind::Fork { parent, child, comm: Comm::new(b"child") };
    threads.event(100, fork(100, 101));
    threads.lives(101, "child");
    threads.event(1, fork(1, 101));
    threads.lives(101, "stranger");
    // Nor is anybody told once the last of them has ended.
    threads.lives(100, "parent");
    threads.lives(100, "stranger");
    let told: Vec<String> = threads.completed().into_keys().collect();
    assert_eq!(told, ["child-101", "parent-100"]);
}

#[test]
fn a_thread_of_which_neither_birth_nor_the_former_ones_end_was_seen_is_another_task() {
    let mut threads = Threads::new(Filter::default());
    let idle = Thread { pid: 0, comm: Comm::new(b"idle"), prio: Some(120) };
    let first = Thread { pid: 7, comm: Comm::new(b"first"), prio: Some(120) };
    let wake = EventKind::Wake { thread: first, waking: Waking::Begins, cpu: None };
    threads.event(7, EventKind::Switch { prev: first, left: SwitchOutState::Blocked, next: idle });
    threads.event(0, wake);
    threads.event(0, EventKind::Switch { prev: idle, left: SwitchOutState::Preempted, next: first });
    threads.event(7, EventKind::Switch { prev: first, left: SwitchOutState::Blocked, next: idle });
    threads.lives(7, "second");
    let told = threads.completed();
    assert_eq!(told, BTreeMap::from([("first-7".to_owned(), 1), ("second-7".to_owned(), 1)]));
}
