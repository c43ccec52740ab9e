//! Tasks of tokio ask operations on threads of this kernel. No test asserts a duration.

#[path = "common/live.rs"]
mod live;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use live::{alone, plan};
use takt_dispatch::bridge::{AskError, BridgeError, Requests};
use takt_dispatch::event::{Channel, Pattern};
use takt_dispatch::{Dispatcher, Dispatching, Job, Limits, Operation, Operations, PushError, StartError};
use takt_linux::{Class, clock, sched};
use takt_log::NullSink;
use takt_model::{Builtin, Span};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

fn operation(name: &str, backlog: u32) -> Operation {
    let ns = Span::from_ns(1);
    Operation::sporadic(name, ns).wcet(ns).deadline(Span::from_s(60)).backlog(backlog)
}

/// A dispatcher with one operation, which answers by `answer`.
fn started<Q: Send + 'static, A: Send + 'static>(
    requests: &Requests<Q, A>,
    operation: Operation,
    cancel: bool,
    answer: impl FnMut(Q, &Job<'_>) -> A + Send + 'static,
) -> Option<Dispatching> {
    started_with(operation, cancel, requests.handler(answer))
}

fn started_with(
    operation: Operation,
    cancel: bool,
    handler: impl FnMut(&Job<'_>) + Send + 'static,
) -> Option<Dispatching> {
    let name = operation.name.clone();
    let plan = plan(&Operations::new("asked").cancel(cancel).with(operation), Builtin::Muf);
    live::started(Dispatcher::new(plan).on(&name, handler).unwrap())
}

#[test]
fn each_question_gets_its_own_answer_from_a_real_time_thread() {
    let _alone = alone();
    let requests: Requests<u64, (u64, Class)> = Requests::new("square", 64);
    let Some(dispatching) =
        started(&requests, operation("square", 64), false, |number, _| (number * number, sched::current()))
    else {
        return;
    };
    let bridge = requests.connect(&dispatching).unwrap();
    assert_eq!(requests.connect(&dispatching).err(), Some(BridgeError::Twice("square".to_owned())));
    let priority = dispatching.plan().levels[0].priority;
    runtime().block_on(async {
        let tasks: Vec<_> = (0..8_u64)
            .map(|task| {
                let requests = requests.clone();
                tokio::spawn(async move {
                    for number in task * 100..task * 100 + 100 {
                        let (answer, class) = requests.ask(number).await.unwrap();
                        assert_eq!((answer, class), (number * number, Class::Fifo { priority }));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(requests.omitted(), 0);
    drop(bridge);
    assert_eq!(runtime().block_on(requests.ask(1)), Err(AskError::NotConnected));
    let again = requests.connect(&dispatching).unwrap();
    assert_eq!(runtime().block_on(requests.ask(3)).map(|(answer, _)| answer), Ok(9));
    drop(again);
    // The answer comes a little before the job's end.
    while dispatching.counts()[0].1.completed < 801 {
        clock::pause(Span::from_ms(1));
    }
    dispatching.stop(&mut NullSink).unwrap();
}

#[test]
fn a_request_without_an_answer_gets_an_error() {
    let _alone = alone();
    // A job too long for its deadline is omitted.
    let requests: Requests<u32, u32> = Requests::new("late", 4);
    let late = Operation::sporadic("late", Span::from_ns(1)).wcet(Span::from_ms(1)).deadline(Span::from_ms(1));
    let late = late.backlog(4).noncritical();
    let Some(dispatching) = started(&requests, late, true, |number, _| number) else { return };
    let bridge = requests.connect(&dispatching).unwrap();
    assert_eq!(runtime().block_on(requests.ask(1)), Err(AskError::Omitted));
    assert_eq!(requests.omitted(), 1);
    drop(bridge);
    drop(dispatching);

    // A handler that panics gives no answer. The next job does.
    let requests: Requests<u32, u32> = Requests::new("fragile", 4);
    let answer = |number: u32, _: &Job<'_>| match number {
        13 => panic!("of this test"),
        number => number,
    };
    let dispatching = started(&requests, operation("fragile", 4), false, answer).unwrap();
    let bridge = requests.connect(&dispatching).unwrap();
    runtime().block_on(async {
        assert_eq!(requests.ask(13).await, Err(AskError::Omitted));
        assert_eq!(requests.ask(14).await, Ok(14));
    });
    assert_eq!(
        Requests::<u32, u32>::new("nobody", 1).connect(&dispatching).err(),
        Some(BridgeError::Unknown("nobody".to_owned()))
    );
    drop(bridge);
    drop(dispatching);
}

#[test]
fn a_full_backlog_is_told_and_what_is_open_at_the_end_is_given_up() {
    let _alone = alone();
    let requests: Requests<u32, u32> = Requests::new("slow", 2);
    let (open, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (entered, may) = (open.clone(), gate.clone());
    let answer = move |number: u32, _: &Job<'_>| {
        entered.fetch_add(1, Ordering::AcqRel);
        while may.load(Ordering::Acquire) == 0 {
            clock::pause(Span::from_ms(1));
        }
        number
    };
    let Some(dispatching) = started(&requests, operation("slow", 2), false, answer) else { return };
    let bridge = requests.connect(&dispatching).unwrap();
    runtime().block_on(async {
        let ask = |number| {
            let requests = requests.clone();
            tokio::spawn(async move { requests.ask(number).await })
        };
        let pause = || tokio::time::sleep(std::time::Duration::from_millis(1));
        let first = ask(1);
        while open.load(Ordering::Acquire) < 1 {
            pause().await;
        }
        let second = ask(2);
        // The operation has both: one runs, one waits.
        while dispatching.counts()[0].1.released < 2 {
            pause().await;
        }
        assert_eq!(requests.ask(3).await, Err(AskError::Push(PushError::Full)));
        // This task no longer waits.
        first.abort();
        gate.store(1, Ordering::Release);
        assert_eq!(second.await.unwrap(), Ok(2));
        while dispatching.counts()[0].1.completed < 2 {
            pause().await;
        }
        gate.store(0, Ordering::Release);
        let third = ask(4);
        while open.load(Ordering::Acquire) < 3 {
            pause().await;
        }
        drop(bridge);
        assert_eq!(third.await.unwrap(), Err(AskError::Omitted), "nobody is there to bring the answer");
        // The new bridge gets a question while a job of the old one still runs. The slots are
        // separate.
        let bridge = requests.connect(&dispatching).unwrap();
        let fourth = ask(5);
        // The third push, without room, was a release too.
        while dispatching.counts()[0].1.released < 5 {
            pause().await;
        }
        gate.store(1, Ordering::Release);
        assert_eq!(fourth.await.unwrap(), Ok(5));
        // Waiting tasks get an error when the dispatcher stops, even if the bridge exists.
        gate.store(0, Ordering::Release);
        let running = ask(6);
        while open.load(Ordering::Acquire) < 5 {
            pause().await;
        }
        let waiting = ask(7);
        while dispatching.counts()[0].1.released < 7 {
            pause().await;
        }
        let stopping = std::thread::spawn(move || dispatching.stop(&mut NullSink));
        assert_eq!(waiting.await.unwrap(), Err(AskError::Omitted));
        // The running job may still return.
        gate.store(1, Ordering::Release);
        assert_eq!(running.await.unwrap(), Ok(6));
        stopping.join().unwrap().unwrap();
        drop(bridge);
    });
}

/// The thread that woke a task, and its class.
#[derive(Default)]
struct Woken(Mutex<Vec<(String, Class)>>);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.0.lock().unwrap().push((thread, sched::current()));
    }
}

/// Wakers run a runtime's code, which must not happen on a real-time thread.
#[test]
fn tasks_are_woken_by_the_bridge_alone() {
    let _alone = alone();
    let requests: Requests<u32, u32> = Requests::new("double", 4);
    // A handler answers once its question has been polled, so that the first poll finds no answer.
    let polled = Arc::new(AtomicU64::new(0));
    let gate = polled.clone();
    let answer = move |number: u32, job: &Job<'_>| {
        while gate.load(Ordering::Acquire) <= u64::from(number) && !job.must_stop() {
            clock::pause(Span::from_us(50));
        }
        2 * number
    };
    let Some(dispatching) = started(&requests, operation("double", 4), false, answer) else { return };
    let bridge = requests.connect(&dispatching).unwrap();
    let woken = Arc::new(Woken::default());
    let waker = woken.clone().into();
    let mut context = std::task::Context::from_waker(&waker);
    for number in 0..5 {
        let mut asked = std::pin::pin!(requests.ask(number));
        let before = woken.0.lock().unwrap().len();
        let mut looks = 0;
        let answer = loop {
            if let std::task::Poll::Ready(answer) = asked.as_mut().poll(&mut context) {
                break answer;
            }
            polled.store(u64::from(number) + 1, Ordering::Release);
            looks += 1;
            while woken.0.lock().unwrap().len() < before + looks {
                clock::pause(Span::from_us(50));
            }
        };
        assert_eq!((answer, looks > 0), (Ok(2 * number), true), "the answer waits for the first poll");
    }
    let woken = woken.0.lock().unwrap();
    assert!(woken.iter().all(|row| *row == ("takt bridge".to_owned(), Class::Other)), "{woken:?}");
    drop(bridge);
    dispatching.stop(&mut NullSink).unwrap();
}

/// A thread starts in the class of its creator.
#[test]
fn tasks_are_woken_by_an_ordinary_thread_though_a_real_time_one_connected() {
    let _alone = alone();
    let mut command = std::process::Command::new("chrt");
    command.args(["--fifo", "1"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "tasks_are_woken_by_the_bridge_alone", "--nocapture", "--test-threads=1"]);
    let output = match command.stdin(std::process::Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return println!("skipped, no chrt: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if !said.contains("running 1 test") {
        return println!("skipped, no SCHED_FIFO here: {said}");
    }
    assert!(output.status.success(), "{said}");
}

/// A bridge dropped while a handler runs leaves its state to the handler, which the state holds in
/// turn.
#[test]
fn nothing_stays_of_a_bridge_that_went_while_its_handler_ran() {
    let _alone = alone();
    let counted = Arc::new(());
    let (entered, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (enters, may, held) = (entered.clone(), gate.clone(), counted.clone());
    let requests: Requests<(), Arc<()>> = Requests::new("slow", 4);
    let answer = move |(), _: &Job<'_>| {
        enters.store(1, Ordering::Release);
        while may.load(Ordering::Acquire) == 0 {
            clock::pause(Span::from_ms(1));
        }
        held.clone()
    };
    let Some(dispatching) = started(&requests, operation("slow", 4), false, answer) else { return };
    let bridge = requests.connect(&dispatching).unwrap();
    let runtime = runtime();
    let asks = requests.clone();
    let asked = runtime.spawn(async move { asks.ask(()).await.map(drop) });
    while entered.load(Ordering::Acquire) == 0 {
        clock::pause(Span::from_ms(1));
    }
    drop(bridge);
    assert_eq!(runtime.block_on(asked).unwrap(), Err(AskError::Omitted));
    gate.store(1, Ordering::Release);
    dispatching.stop(&mut NullSink).unwrap();
    assert_eq!(Arc::strong_count(&counted), 2, "an answer that nobody got");
    drop((requests, runtime));
    assert_eq!(Arc::strong_count(&counted), 1);
}

/// Both ways: a task pushes an event, and the consuming operation answers a question of another
/// task.
#[test]
fn a_task_supplies_events_to_an_operation() {
    let _alone = alone();
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let operations = Operations::new("both").with(operation("percent", 16)).with(operation("valve", 16));
    let plan = operations.compute(&Builtin::Muf.strategy(), &limits).unwrap();
    let channel = Channel::new(takt_dispatch::event::Options::default());
    let subscription = channel.subscribe(&plan, "percent", Pattern::kind(1)).unwrap();
    let valve: Requests<(), u64> = Requests::new("valve", 16);
    let percent = Arc::new(AtomicU64::new(0));
    let (set, read) = (percent.clone(), percent.clone());
    let handler = subscription.handler(move |delivery, _| {
        set.fetch_add(u64::from(delivery.first().payload[0]), Ordering::AcqRel);
    });
    let built = Dispatcher::new(plan).on("percent", handler).unwrap();
    let dispatching = match built.on("valve", valve.handler(move |(), _| read.load(Ordering::Acquire))).unwrap().start()
    {
        Ok(dispatching) => dispatching,
        Err(StartError::Privilege { missing }) => return println!("skipped: {missing}"),
        Err(error) => panic!("{error}"),
    };
    let (connected, bridge) = (channel.connect(&dispatching).unwrap(), valve.connect(&dispatching).unwrap());
    runtime().block_on(async {
        for number in 1..=10 {
            let supplier = channel.supplier(7);
            let pushed = tokio::spawn(async move { supplier.push(1, &[10]).unwrap().taken });
            assert_eq!(pushed.await.unwrap(), 1);
            // One level and one queue, so the event was handled before.
            assert_eq!(valve.ask(()).await, Ok(10 * number));
        }
    });
    drop((connected, bridge));
    dispatching.stop(&mut NullSink).unwrap();
}

/// Neither if the task no longer waits, nor if the bridge is dropped before its job has ended. Then
/// the job's thread is the last holder.
#[test]
fn a_handler_allocates_and_frees_nothing_whoever_is_gone() {
    let _alone = alone();
    let (requests, answered) = (Requests::new("slow", 4), Arc::new(()));
    let (entered, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (enters, may, gives) = (entered.clone(), gate.clone(), answered.clone());
    let mut handler = requests.handler(move |(): (), _| {
        enters.fetch_add(1, Ordering::AcqRel);
        while may.load(Ordering::Acquire) == 0 {
            clock::pause(Span::from_ms(1));
        }
        gives.clone()
    });
    let measured: Arc<Mutex<Vec<(u64, i64)>>> = Arc::default();
    let all = measured.clone();
    let measuring = move |job: &Job<'_>| {
        let of = allocation_counter::measure(|| handler(job));
        all.lock().unwrap().push((of.count_total, of.count_current));
    };
    let Some(dispatching) = started_with(operation("slow", 4), false, measuring) else { return };
    let mut bridge = requests.connect(&dispatching).unwrap();
    let runtime = runtime();
    let ask = || {
        let requests = requests.clone();
        runtime.spawn(async move { requests.ask(()).await.map(drop) })
    };
    let until = |so: &dyn Fn() -> bool| {
        let waits = (0..20_000).find(|_| {
            let so = so();
            if !so {
                clock::pause(Span::from_ms(1));
            }
            so
        });
        assert!(waits.is_some(), "nothing came of it");
    };
    let ended = || measured.lock().unwrap().len();
    gate.store(1, Ordering::Release);
    assert_eq!(runtime.block_on(ask()).unwrap(), Ok(()));
    until(&|| ended() == 1);
    for round in 1..4 {
        gate.store(0, Ordering::Release);
        let asked = ask();
        until(&|| entered.load(Ordering::Acquire) == 2 * round);
        asked.abort();
        gate.store(1, Ordering::Release);
        assert!(runtime.block_on(asked).unwrap_err().is_cancelled());
        until(&|| ended() == 2 * round as usize);
        gate.store(0, Ordering::Release);
        let asked = ask();
        until(&|| entered.load(Ordering::Acquire) == 2 * round + 1);
        drop(bridge);
        assert_eq!(runtime.block_on(asked).unwrap(), Err(AskError::Omitted));
        gate.store(1, Ordering::Release);
        until(&|| ended() == 2 * round as usize + 1);
        assert!(measured.lock().unwrap().iter().all(|of| *of == (0, 0)), "{measured:?}");
        // The next bridge frees the old one's state: one answer that no task got.
        assert_eq!(Arc::strong_count(&answered), 3);
        bridge = requests.connect(&dispatching).unwrap();
        assert_eq!(Arc::strong_count(&answered), 2);
    }
    drop(bridge);
    dispatching.stop(&mut NullSink).unwrap();
}

/// Jobs of all operations repeat numbers. A handler attached to the wrong operation must not answer
/// the right operation's questions.
#[test]
fn a_handler_that_is_given_to_another_operation_answers_nothing_and_that_is_counted() {
    let _alone = alone();
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let operations = Operations::new("mixed up").with(operation("valve", 4)).with(operation("other", 4));
    let plan = operations.compute(&Builtin::Muf.strategy(), &limits).unwrap();
    let valve: Requests<u32, u32> = Requests::new("valve", 4);
    let pushes = Arc::new(std::sync::OnceLock::<takt_dispatch::Handle>::new());
    let other = pushes.clone();
    // The question still waits when the other operation's handler looks for one. That operation has
    // the same level and comes next.
    let right = move |_: &Job<'_>| {
        if let Some(other) = other.get() {
            other.push().unwrap();
        }
    };
    let wrong = valve.handler(|number, _| number);
    let built = Dispatcher::new(plan).on("valve", right).unwrap().on("other", wrong).unwrap();
    let dispatching = match built.start() {
        Ok(dispatching) => dispatching,
        Err(StartError::Privilege { missing }) => return println!("skipped: {missing}"),
        Err(error) => panic!("{error}"),
    };
    let bridge = valve.connect(&dispatching).unwrap();
    assert!(pushes.set(dispatching.operation("other").unwrap()).is_ok());
    assert_eq!(runtime().block_on(valve.ask(1)), Err(AskError::Omitted));
    while dispatching.counts()[1].1.completed == 0 {
        clock::pause(Span::from_ms(1));
    }
    assert_eq!((valve.omitted(), valve.misplaced()), (1, 1));
    drop(bridge);
    dispatching.stop(&mut NullSink).unwrap();
}

#[test]
fn requests_that_nobody_could_answer_are_refused() {
    let _alone = alone();
    let timer = Operation::periodic("timer", Span::from_s(1)).wcet(Span::from_ns(1));
    let Some(dispatching) = started_with(timer, false, |_| ()) else { return };
    let refused = |backlog| Requests::<u32, u32>::new("timer", backlog).connect(&dispatching).err().unwrap();
    assert_eq!(
        refused(4).to_string(),
        "operation \"timer\" is released by a timer or by the end of others; requests need a sporadic operation"
    );
    dispatching.stop(&mut NullSink).unwrap();
    let dispatching = started_with(operation("many", 4), false, |_| ()).unwrap();
    let refused = Requests::<u32, u32>::new("many", u32::MAX).connect(&dispatching).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "the requests to \"many\" are for a backlog of 4294967295; 65536 is the greatest (Requests::new)"
    );
    dispatching.stop(&mut NullSink).unwrap();
}
