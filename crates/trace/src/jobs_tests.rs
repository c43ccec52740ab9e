//! One small recording for each rule. The left side has the kernel's events, the right side the
//! resulting log.

use std::fmt::Write as _;

use takt_log::{JobKey, Kind};

use super::*;
use crate::event::Waking;

const EPOLL_WAIT: i64 = 232;
const CLOCK_NANOSLEEP: i64 = 230;
const FUTEX: i64 = 202;
const READ: i64 = 0;
const SCHED_YIELD: i64 = 24;

/// Writes what it is given as lines: time, kind, task and number, CPU and the like.
#[derive(Default)]
struct Lines {
    text: String,
    definitions: Definitions,
}

impl Sink for Lines {
    fn event(&mut self, _: u32, now: Time, event: &Event) {
        let (now, kind) = (now.as_ns(), event.kind().name());
        let name = |job: &JobKey| format!("{}#{}", self.definitions.task_name(job.task), job.number);
        let told = match event {
            Event::Release { job, arrival, parent } => {
                let parent =
                    parent.map_or(String::new(), |parent| format!(" hop {} of {}", parent.hop, parent.origin.as_ns()));
                format!("{} arrived {}{parent}", name(job), arrival.as_ns())
            }
            Event::Window { job, earliest } => format!("{} from {}", name(job), earliest.as_ns()),
            Event::Start { job, cpu }
            | Event::Preempt { job, cpu }
            | Event::Resume { job, cpu }
            | Event::Block { job, cpu }
            | Event::Complete { job, cpu } => format!("{} cpu {cpu}", name(job)),
            Event::Wake { job } | Event::Gap { job } => name(job),
            Event::Migrate { job, from, to } => format!("{} {from} to {to}", name(job)),
            Event::IrqEnter { irq, cpu } | Event::IrqExit { irq, cpu } => {
                format!("{} cpu {cpu}", self.definitions.interrupts[*irq as usize].name)
            }
            Event::Lost { count } => count.to_string(),
            other => panic!("{other:?} is not told"),
        };
        writeln!(self.text, "{now} {kind} {told}").unwrap();
    }
    fn define(&mut self, _: u32, _: Time, definition: &Definition) {
        self.definitions.apply(definition.clone()).unwrap();
        if let Definition::Chain(_, chain) = definition {
            writeln!(self.text, "chain {}", chain.name).unwrap();
        }
    }
}

fn seen(pid: Pid, prio: i32) -> KernelThread {
    let comm = if pid == 0 { "idle".to_owned() } else { ((b'a' + (pid - 1) as u8) as char).to_string() };
    KernelThread { pid, comm: Comm::new(comm.as_bytes()), prio: Some(prio) }
}

/// A recording by hand. Thread 1 is `a-1`, thread 2 `b-2`, ...; thread 8 is a real-time one, thread
/// 9 of SCHED_DEADLINE.
#[derive(Default)]
struct Play {
    events: Vec<KernelEvent>,
    on: BTreeMap<u32, Pid>,
}

impl Play {
    fn add(mut self, time: u64, cpu: u32, context: Context, what: EventKind) -> Self {
        let pid = self.on.get(&cpu).copied().unwrap_or(0);
        self.events.push(KernelEvent { time: Time::from_ns(time), cpu, pid, context, name: 0, what });
        self
    }
    /// The CPU goes from the thread that it has to `next`.
    fn switch(mut self, time: u64, cpu: u32, left: SwitchOutState, next: Pid) -> Self {
        let prio = |pid| match pid {
            8 => 50,
            9 => -1,
            _ => 120,
        };
        let prev = self.on.insert(cpu, next).unwrap_or(0);
        let mut play = self.add(
            time,
            cpu,
            Context::Thread,
            EventKind::Switch { prev: seen(prev, prio(prev)), left, next: seen(next, prio(next)) },
        );
        play.events.last_mut().unwrap().pid = prev;
        play
    }
    /// An interrupt on `cpu` wakes the thread.
    fn interrupt_wakes(self, time: u64, cpu: u32, pid: Pid) -> Self {
        let thread = seen(pid, if pid == 9 { -1 } else { 120 });
        self.add(time, cpu, Context::Hard, EventKind::Wake { thread, waking: Waking::Begins, cpu: None })
    }
    /// The thread on `cpu` wakes another one.
    fn wakes(self, time: u64, cpu: u32, pid: Pid) -> Self {
        self.add(
            time,
            cpu,
            Context::Thread,
            EventKind::Wake { thread: seen(pid, 120), waking: Waking::Begins, cpu: None },
        )
    }
    fn enter(self, time: u64, cpu: u32, number: i64, args: [u64; 6]) -> Self {
        self.add(time, cpu, Context::Thread, EventKind::SyscallEnter { number, args })
    }
    fn exit(self, time: u64, cpu: u32, number: i64) -> Self {
        self.add(time, cpu, Context::Thread, EventKind::SyscallExit { number, result: 0 })
    }
    fn timer(self, time: u64, cpu: u32, expires: u64) -> Self {
        self.add(time, cpu, Context::Thread, EventKind::Timer { expires })
    }
    fn log_text_with(self, options: Options) -> String {
        let mut rebuilder = Rebuilder::new(Options { monotonic: true, abi: Abi::X86_64, ..options });
        let mut lines = Lines { text: "\n".to_owned(), definitions: rebuilder.definitions() };
        self.events.iter().for_each(|event| rebuilder.event(event, &mut lines));
        lines.text
    }
    fn log_text(self) -> String {
        self.log_text_with(Options::default())
    }
    #[track_caller]
    fn is(self, log: &str) {
        assert_eq!(self.log_text(), log);
    }
    /// Thread 1 sleeps from 5 on CPU 0, and its job 0 starts at 11.
    fn with_a_job() -> Self {
        let play = Play::default().switch(0, 0, Ready, 1).switch(5, 0, Blocked, 0);
        play.interrupt_wakes(10, 0, 1).switch(11, 0, Ready, 1)
    }
}

use SwitchOutState::{Blocked, Ended, Held, Preempted, Ready};

#[test]
fn without_calls_every_sleep_is_a_boundary_and_no_wait_within_work() {
    Play::default()
        .switch(0, 0, Ready, 1)
        .switch(10, 0, Blocked, 0) // the end of what was seen in part
        .interrupt_wakes(100, 0, 1)
        .switch(102, 0, Ready, 1)
        .switch(110, 0, Held, 0) // a page is read
        .interrupt_wakes(120, 0, 1)
        .switch(121, 0, Ready, 1)
        .switch(130, 0, Preempted, 2)
        .switch(140, 0, Blocked, 0)
        .switch(150, 1, Ready, 1)
        .switch(160, 1, Blocked, 0)
        .is("
100 release a-1#0 arrived 100
102 start a-1#0 cpu 0
110 block a-1#0 cpu 0
120 wake a-1#0
121 resume a-1#0 cpu 0
130 preempt a-1#0 cpu 0
150 migrate a-1#0 0 to 1
150 resume a-1#0 cpu 1
160 complete a-1#0 cpu 1
");
}

#[test]
fn absolute_sleeps_tell_arrivals_also_when_they_come_too_late() {
    let sleep = [1, 1, 0, 0, 0, 0];
    // The log's zero is 1000.
    Play::default()
        .switch(1000, 0, Ready, 1)
        .enter(1010, 0, CLOCK_NANOSLEEP, sleep)
        .timer(1011, 0, 1100)
        .switch(1013, 0, Blocked, 0)
        .interrupt_wakes(1120, 0, 1)
        .switch(1125, 0, Ready, 1)
        .exit(1126, 0, CLOCK_NANOSLEEP)
        .enter(1230, 0, CLOCK_NANOSLEEP, sleep) // 30 late
        .timer(1231, 0, 1200)
        .interrupt_wakes(1232, 0, 1)
        .exit(1233, 0, CLOCK_NANOSLEEP)
        .enter(1250, 0, CLOCK_NANOSLEEP, sleep)
        .timer(1251, 0, 1300)
        .switch(1253, 0, Blocked, 0)
        .is("
120 release a-1#0 arrived 100
125 start a-1#0 cpu 0
230 complete a-1#0 cpu 0
233 release a-1#1 arrived 200
233 start a-1#1 cpu 0
250 complete a-1#1 cpu 0
");
}

#[test]
fn a_signal_ends_a_sleep_before_its_time() {
    Play::default()
        .switch(0, 0, Ready, 1)
        .enter(10, 0, CLOCK_NANOSLEEP, [1, 1, 0, 0, 0, 0])
        .timer(11, 0, 500)
        .switch(12, 0, Blocked, 2)
        .wakes(50, 0, 1)
        .switch(60, 0, Preempted, 1)
        .is("\n50 release a-1#0 arrived 50\n60 start a-1#0 cpu 0\n");
}

#[test]
fn an_event_that_was_there_already_arrived_in_a_window() {
    let poll = [3, 0, 8, u64::from(u32::MAX), 0, 0];
    Play::default()
        .switch(0, 0, Ready, 1)
        .enter(5, 0, EPOLL_WAIT, poll)
        .switch(6, 0, Blocked, 0)
        .interrupt_wakes(20, 0, 1)
        .switch(21, 0, Ready, 1)
        .exit(22, 0, EPOLL_WAIT)
        .enter(30, 0, EPOLL_WAIT, [3, 0, 8, 0, 0, 0]) // only asks
        .exit(31, 0, EPOLL_WAIT)
        .enter(40, 0, EPOLL_WAIT, poll)
        .exit(41, 0, EPOLL_WAIT)
        .enter(60, 0, EPOLL_WAIT, poll)
        .switch(61, 0, Blocked, 0)
        .is("
20 release a-1#0 arrived 20
21 start a-1#0 cpu 0
40 complete a-1#0 cpu 0
41 window a-1#1 from 21
41 release a-1#1 arrived 40
41 start a-1#1 cpu 0
60 complete a-1#1 cpu 0
");
}

#[test]
fn waiting_for_other_threads_ends_jobs_of_workers_only() {
    let wait = [0, 128, 0, 0, 0, 0];
    Play::default()
        .switch(0, 0, Ready, 1)
        .enter(1, 0, FUTEX, wait)
        .switch(2, 0, Blocked, 0) // a worker goes to its condition variable
        .switch(3, 1, Ready, 2)
        .wakes(10, 1, 1)
        .switch(12, 0, Ready, 1)
        .exit(13, 0, FUTEX)
        .enter(20, 0, FUTEX, wait)
        .switch(21, 0, Blocked, 0)
        .enter(30, 1, CLOCK_NANOSLEEP, [1, 1, 0, 0, 0, 0])
        .timer(30, 1, 100)
        .switch(31, 1, Blocked, 0)
        .interrupt_wakes(101, 1, 2)
        .switch(102, 1, Ready, 2)
        .exit(103, 1, CLOCK_NANOSLEEP)
        .enter(110, 1, FUTEX, wait) // a sleeper waits for a lock within its job
        .switch(111, 1, Blocked, 0)
        .interrupt_wakes(120, 1, 2)
        .switch(121, 1, Ready, 2)
        .exit(122, 1, FUTEX)
        .wakes(125, 1, 1)
        .enter(130, 1, CLOCK_NANOSLEEP, [1, 1, 0, 0, 0, 0])
        .is("
10 release a-1#0 arrived 10
12 start a-1#0 cpu 0
21 complete a-1#0 cpu 0
101 release b-2#0 arrived 100
102 start b-2#0 cpu 1
111 block b-2#0 cpu 1
120 wake b-2#0
121 resume b-2#0 cpu 1
chain b-2 -> a-1
125 release a-1#1 arrived 125 hop 1 of 100
130 complete b-2#0 cpu 1
");
}

#[test]
fn chains_end_where_they_would_come_back() {
    // a wakes b, b wakes c, c wakes a: the last is an answer.
    Play::default()
        .switch(0, 0, Ready, 1)
        .switch(1, 1, Ready, 2)
        .switch(2, 2, Ready, 3)
        .switch(3, 0, Blocked, 0)
        .switch(4, 1, Blocked, 0)
        .switch(5, 2, Blocked, 0)
        .interrupt_wakes(10, 0, 1)
        .switch(11, 0, Ready, 1)
        .wakes(12, 0, 2)
        .switch(13, 1, Ready, 2)
        .wakes(14, 1, 3)
        .switch(15, 0, Blocked, 0)
        .switch(16, 2, Ready, 3)
        .wakes(17, 2, 1)
        .is("
10 release a-1#0 arrived 10
11 start a-1#0 cpu 0
chain a-1 -> b-2
12 release b-2#0 arrived 12 hop 1 of 10
13 start b-2#0 cpu 1
chain a-1 -> b-2 -> c-3
14 release c-3#0 arrived 14 hop 2 of 10
15 complete a-1#0 cpu 0
16 start c-3#0 cpu 2
17 release a-1#1 arrived 17
");
}

#[test]
fn a_deadline_thread_without_budget_is_not_preempted_and_its_yield_ends_a_job() {
    Play::default()
        .switch(0, 0, Ready, 9)
        .enter(10, 0, SCHED_YIELD, [0; 6])
        .switch(11, 0, Ready, 2)
        .switch(100, 0, Preempted, 9)
        .exit(101, 0, SCHED_YIELD)
        .switch(110, 0, Preempted, 2) // an ordinary thread: the budget is used up
        .switch(200, 0, Preempted, 9)
        .enter(210, 0, SCHED_YIELD, [0; 6])
        .is("
100 window i-9#0 from 10
100 release i-9#0 arrived 100
100 start i-9#0 cpu 0
110 block i-9#0 cpu 0
200 resume i-9#0 cpu 0
210 complete i-9#0 cpu 0
");
}

/// A thread that leaves its CPU ready has not finished. Without budget it makes way for the idle
/// thread or one of a lesser class.
#[test]
fn a_throttled_thread_goes_on_with_its_job() {
    for (pid, name) in [(1, "a-1"), (8, "h-8"), (9, "i-9")] {
        for left in [Preempted, Ready] {
            for next in [0, if pid == 1 { 0 } else { 2 }] {
                let told = Play::default()
                    .switch(0, 0, Ready, pid)
                    .switch(5, 0, Blocked, 0)
                    .interrupt_wakes(10, 0, pid)
                    .switch(11, 0, Ready, pid)
                    .switch(20, 0, left, next)
                    .switch(100, 0, Blocked, pid)
                    .switch(105, 0, Blocked, 0)
                    .log_text();
                let expected = "
10 release T#0 arrived 10
11 start T#0 cpu 0
20 block T#0 cpu 0
100 resume T#0 cpu 0
105 complete T#0 cpu 0
";
                assert_eq!(told, expected.replace('T', name), "{left:?}, then {next}");
            }
        }
    }
    // A real-time thread that makes way for another one is preempted.
    let told = Play::default()
        .switch(0, 0, Ready, 8)
        .switch(5, 0, Blocked, 0)
        .interrupt_wakes(10, 0, 8)
        .switch(11, 0, Ready, 8)
        .switch(20, 0, Preempted, 9)
        .log_text();
    assert!(told.ends_with("20 preempt h-8#0 cpu 0\n"), "{told}");
}

/// Without recorded calls, a SCHED_DEADLINE thread may or may not have yielded. Its job goes on, so
/// that no overrun is hidden.
#[test]
fn yields_that_nobody_tells_are_counted() {
    let play = |calls: bool| {
        let play = Play::default().switch(0, 0, Ready, 9).switch(5, 0, Blocked, 2);
        let play = if calls { play.enter(6, 0, READ, [3, 0, 100, 0, 0, 0]) } else { play };
        play.interrupt_wakes(10, 0, 9).switch(11, 0, Preempted, 9).switch(20, 0, Ready, 2).switch(100, 0, Preempted, 9)
    };
    for calls in [false, true] {
        let mut rebuilder = Rebuilder::new(Options { abi: Abi::X86_64, ..Options::default() });
        let mut lines = Lines { text: "\n".to_owned(), definitions: rebuilder.definitions() };
        play(calls).events.iter().for_each(|event| rebuilder.event(event, &mut lines));
        assert_eq!(rebuilder.unclear_yields(), usize::from(!calls));
        assert_eq!(
            lines.text,
            "
10 release i-9#0 arrived 10
11 start i-9#0 cpu 0
20 block i-9#0 cpu 0
100 resume i-9#0 cpu 0
"
        );
    }
}

#[test]
fn reads_of_timers_end_jobs_also_when_the_timer_was_faster() {
    let read = [7, 0, 8, 0, 0, 0];
    Play::default()
        .switch(0, 0, Ready, 1)
        .enter(1, 0, READ, read)
        .switch(2, 0, Blocked, 0)
        .interrupt_wakes(10, 0, 1)
        .switch(11, 0, Ready, 1)
        .exit(12, 0, READ)
        .enter(13, 0, READ, [8, 0, 4096, 0, 0, 0]) // a file
        .exit(14, 0, READ)
        .enter(25, 0, READ, read)
        .exit(26, 0, READ)
        .enter(30, 0, READ, read)
        .switch(31, 0, Blocked, 0)
        .is("
10 release a-1#0 arrived 10
11 start a-1#0 cpu 0
25 complete a-1#0 cpu 0
26 window a-1#1 from 11
26 release a-1#1 arrived 25
26 start a-1#1 cpu 0
30 complete a-1#1 cpu 0
");
}

#[test]
fn a_thread_that_is_woken_while_it_goes_to_sleep_is_released_when_it_was_woken() {
    Play::with_a_job()
        .interrupt_wakes(20, 1, 1)
        .switch(21, 0, Blocked, 0)
        .switch(22, 0, Ready, 1)
        .switch(30, 0, Ended, 0)
        .is("
10 release a-1#0 arrived 10
11 start a-1#0 cpu 0
21 complete a-1#0 cpu 0
22 release a-1#1 arrived 20
22 start a-1#1 cpu 0
30 complete a-1#1 cpu 0
");
}

/// A wake-up of a thread that still runs keeps it from going to sleep. The sleep that follows ends
/// with another one.
#[test]
fn a_wake_up_of_a_thread_that_goes_on_running_is_no_release() {
    let queued = |pid| EventKind::Wake { thread: seen(pid, 120), waking: Waking::Queued, cpu: None };
    // The wake-ups come from its own CPU, from another CPU that reports the thread in its queue,
    // and from another CPU where only the next wake-up shows it.
    for (cpu, is_queued) in [(0, false), (1, true), (1, false)] {
        let mut play = Play::with_a_job().interrupt_wakes(13, cpu, 1);
        if is_queued {
            play = play.add(14, cpu, Context::Hard, queued(1));
        }
        play.switch(20, 0, Blocked, 0)
            .interrupt_wakes(8000, 1, 1)
            .switch(8002, 0, Ready, 1)
            .switch(8010, 0, Blocked, 0)
            .is("
10 release a-1#0 arrived 10
11 start a-1#0 cpu 0
20 complete a-1#0 cpu 0
8000 release a-1#1 arrived 8000
8002 start a-1#1 cpu 0
8010 complete a-1#1 cpu 0
");
    }
    // In a call that ends jobs: the thread looks, finds nothing, and sleeps on.
    let poll = [3, 0, 8, u64::from(u32::MAX), 0, 0];
    Play::default()
        .switch(0, 0, Ready, 1)
        .enter(5, 0, EPOLL_WAIT, poll)
        .interrupt_wakes(6, 0, 1)
        .switch(8, 0, Blocked, 0)
        .interrupt_wakes(8000, 0, 1)
        .switch(8002, 0, Ready, 1)
        .exit(8003, 0, EPOLL_WAIT)
        .is("\n8000 release a-1#0 arrived 8000\n8002 start a-1#0 cpu 0\n");
}

/// A wake-up long before the thread sleeps did not come while the thread left its CPU. This holds
/// even if the later wake-up was not recorded.
#[test]
fn an_old_wake_up_releases_nothing() {
    Play::with_a_job().interrupt_wakes(13, 1, 1).switch(200_000, 0, Blocked, 0).switch(900_000, 0, Ready, 1).is("
10 release a-1#0 arrived 10
11 start a-1#0 cpu 0
200000 complete a-1#0 cpu 0
900000 window a-1#1 from 200000
900000 release a-1#1 arrived 900000
900000 start a-1#1 cpu 0
");
}

#[test]
fn births_are_no_jobs_and_numbers_are_given_again() {
    let new = EventKind::Wake { thread: seen(1, 120), waking: Waking::New, cpu: None };
    let born = |play: Play, at: u64| {
        play.add(at, 1, Context::Thread, EventKind::Fork { parent: 5, child: 1, comm: Comm::new(b"a") })
            .add(at + 1, 1, Context::Thread, new)
            .switch(at + 2, 0, Ready, 1)
            .switch(at + 3, 0, Blocked, 0)
            .interrupt_wakes(at + 5, 0, 1)
            .switch(at + 6, 0, Ready, 1)
            .switch(at + 8, 0, Ended, 0)
    };
    let play = born(born(Play::default(), 0), 10);
    let filter = Filter { pids: [5].into(), ..Filter::default() };
    let told = play.log_text_with(Options { filter, ..Options::default() });
    assert_eq!(told.matches("release a-1#0").count(), 2, "two tasks of one name: {told}");
    assert_eq!(told.matches("complete a-1#0").count(), 2, "{told}");
}

/// An id with another name belongs to another thread, if the first thread had no CPU in which to
/// rename itself. The end of the first thread was not recorded.
#[test]
fn an_id_with_another_name_is_another_thread() {
    let other = |name: &str| KernelThread { pid: 1, comm: Comm::new(name.as_bytes()), prio: Some(120) };
    let idle = seen(0, 120);
    let wake = |name| EventKind::Wake { thread: other(name), waking: Waking::Begins, cpu: None };
    let arrives = |name| EventKind::Switch { prev: idle, left: Ready, next: other(name) };
    let leaves = |name| EventKind::Switch { prev: other(name), left: Blocked, next: idle };
    let told = |names: [&'static str; 5]| {
        let [first, woken, arrived, left, later] = names;
        Play::default()
            .add(0, 0, Context::Thread, arrives(first))
            .add(5, 0, Context::Thread, leaves(first))
            .add(10, 0, Context::Hard, wake(first))
            .add(11, 0, Context::Thread, arrives(first))
            .add(15, 0, Context::Thread, leaves(first))
            .add(20, 0, Context::Hard, wake(woken))
            .add(21, 0, Context::Thread, arrives(arrived))
            .add(25, 0, Context::Thread, leaves(left))
            .add(30, 0, Context::Hard, wake(later))
            .log_text()
    };
    let one = told(["a", "a", "a", "b", "b"]);
    assert!(one.contains("20 release a-1#1") && one.ends_with("30 release b-1#2 arrived 30\n"), "a new name: {one}");
    let two = told(["a", "b", "b", "b", "b"]);
    assert!(!two.contains("20 release") && two.ends_with("30 release b-1#0 arrived 30\n"), "another thread: {two}");
    let two = told(["a", "a", "b", "b", "b"]);
    assert!(two.contains("21 gap a-1#1\n") && two.ends_with("30 release b-1#0 arrived 30\n"), "another one: {two}");
}

#[test]
fn losses_leave_jobs_open_and_the_next_one_is_whole() {
    Play::with_a_job()
        .add(15, 0, Context::Thread, EventKind::Lost { count: Some(7) })
        .switch(20, 0, Blocked, 0)
        .interrupt_wakes(30, 0, 1)
        .switch(31, 0, Ready, 1)
        .switch(40, 0, Blocked, 0)
        .is("
10 release a-1#0 arrived 10
11 start a-1#0 cpu 0
15 lost 7
30 release a-1#1 arrived 30
31 start a-1#1 cpu 0
40 complete a-1#1 cpu 0
");
}

#[test]
fn a_thread_that_left_its_cpu_unseen_leaves_its_job_open() {
    let mut play = Play::with_a_job();
    play.on.insert(0, 2); // nobody said that a left
    play.switch(20, 0, Blocked, 0).is("\n10 release a-1#0 arrived 10\n11 start a-1#0 cpu 0\n20 gap a-1#0\n");
}

#[test]
fn a_cpu_that_was_got_unseen_is_doubted_of_that_job_alone() {
    let mut play = Play::default()
        .switch(0, 0, Ready, 1)
        .switch(5, 0, Blocked, 2)
        .switch(7, 0, Blocked, 0)
        .interrupt_wakes(10, 0, 1)
        .interrupt_wakes(12, 1, 2)
        .switch(13, 1, Ready, 2);
    play.on.insert(0, 1); // nobody said that a got the CPU
    play = play.switch(20, 0, Blocked, 0).interrupt_wakes(30, 0, 1).switch(31, 0, Ready, 1).switch(33, 0, Preempted, 3);
    play.on.insert(0, 1); // nor that it got it back
    play = play.switch(40, 0, Blocked, 0).switch(45, 1, Blocked, 0);
    play.on.insert(0, 1); // nor that it was woken
    play.switch(60, 0, Blocked, 0).is("
10 release a-1#0 arrived 10
12 release b-2#0 arrived 12
13 start b-2#0 cpu 1
20 gap a-1#0
20 complete a-1#0 cpu 0
30 release a-1#1 arrived 30
31 start a-1#1 cpu 0
33 preempt a-1#1 cpu 0
40 gap a-1#1
40 complete a-1#1 cpu 0
45 complete b-2#0 cpu 1
60 window a-1#2 from 40
60 release a-1#2 arrived 60
60 gap a-1#2
60 complete a-1#2 cpu 0
");
}

#[test]
fn interrupts_are_told_by_name() {
    let told = Play::default()
        .add(0, 0, Context::Thread, EventKind::IrqEnter { irq: 24, name: Comm::new(b"eth0") })
        .add(5, 0, Context::Thread, EventKind::IrqExit { irq: 24 })
        .add(6, 1, Context::Thread, EventKind::SoftirqEnter { vec: 3 })
        .add(9, 1, Context::Thread, EventKind::SoftirqExit { vec: 3 })
        .log_text();
    assert_eq!(
        told,
        "\n0 interrupt enter 24 eth0 cpu 0\n5 interrupt exit 24 eth0 cpu 0\n6 interrupt enter NET_RX cpu 1\n\
         9 interrupt exit NET_RX cpu 1\n"
    );
}

#[test]
fn filters_take_names_with_stars() {
    for (pattern, name, taken) in [
        ("cyc*", "cyclictest", true),
        ("*test", "cyclictest", true),
        ("c*t*t", "cyclictest", true),
        ("cyc", "cyclictest", false),
        ("", "", true),
        ("*", "", true),
    ] {
        assert_eq!(is_like(pattern, name), taken, "{pattern} {name}");
    }
    assert!(KINDS.contains(Kind::Window));
}

#[test]
fn the_kernel_takes_the_cpu_from_a_program_as_well_as_from_a_call() {
    Play::default()
        .switch(0, 0, Ready, 1)
        .enter(10, 0, CLOCK_NANOSLEEP, [1, 1, 0, 0, 0, 0])
        .switch(11, 0, Blocked, 0)
        .interrupt_wakes(100, 0, 1)
        .switch(101, 0, Ready, 1)
        .exit(102, 0, CLOCK_NANOSLEEP)
        .switch(110, 0, Ready, 2) // on the way back to its program
        .switch(120, 0, Blocked, 1)
        .enter(130, 0, SCHED_YIELD, [0; 6]) // of itself
        .switch(131, 0, Ready, 3)
        .switch(140, 0, Blocked, 1)
        .exit(141, 0, SCHED_YIELD)
        .enter(150, 0, CLOCK_NANOSLEEP, [1, 1, 0, 0, 0, 0])
        .is("
100 release a-1#0 arrived 100
101 start a-1#0 cpu 0
110 preempt a-1#0 cpu 0
120 resume a-1#0 cpu 0
131 block a-1#0 cpu 0
131 wake a-1#0
140 resume a-1#0 cpu 0
150 complete a-1#0 cpu 0
");
}
