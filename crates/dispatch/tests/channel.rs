//! Edge cases of a channel: full queues, ended dispatchers, cycles, observers, the history. No test
//! asserts a duration.

#[path = "common/live.rs"]
mod live;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use live::{alone, check, plan, sporadic, started, until};
use takt_dispatch::event::wire::{Body, Datagram};
use takt_dispatch::event::{
    Change, Channel, ConnectError, Filter, Full, Keep, Level, Node, NodeError, Options, OptionsError, Pattern,
    Published, Quality, SubscribeError, Subscription,
};
use takt_dispatch::{Dispatcher, Dispatching, Job, Operation, Operations};
use takt_linux::{Epoch, clock};
use takt_log::NullSink;
use takt_model::{Builtin, Span};

/// A dispatcher with one operation, which handles its subscription's events.
fn one(
    channel: &Channel,
    filter: Filter,
    backlog: u32,
    handler: impl FnMut(&Job<'_>) + Send + 'static,
) -> Option<(Subscription, Dispatching)> {
    let operations = Operations::new("one").with(sporadic("one").backlog(backlog));
    let plan = plan(&operations, Builtin::Muf);
    let subscription = channel.subscribe(&plan, "one", filter).unwrap();
    let mut handler = handler;
    let with_events = subscription.handler(move |_, job| handler(job));
    let dispatching = started(Dispatcher::new(plan).on("one", with_events).unwrap())?;
    Some((subscription.clone(), dispatching))
}

/// A handler that waits until `go` allows its return, or until it must stop.
fn held(go: &Arc<AtomicU64>) -> impl FnMut(&Job<'_>) + Send + 'static {
    let go = go.clone();
    move |job| {
        let epoch = Epoch::now_is_zero();
        while go.load(Ordering::SeqCst) == 0 && !job.must_stop() {
            let _ = epoch.sleep_until(epoch.now() + Span::from_us(300));
        }
    }
}

#[test]
fn a_consumer_whose_backlog_is_full_rejects() {
    let _alone = alone();
    let channel = Channel::new(Options::default());
    let go = Arc::default();
    let Some((one, dispatching)) = one(&channel, Pattern::ANY.into(), 2, held(&go)) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(1);
    let pushed = [(); 3].map(|()| supplier.push(1, b"").unwrap());
    assert_eq!(pushed.map(|pushed| (pushed.taken, pushed.rejected)), [(1, 0), (1, 0), (0, 1)]);
    go.store(1, Ordering::SeqCst);
    until(|| one.counts().handled == 2);
    assert_eq!((one.counts().complete, one.counts().rejected), (3, 1));
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
}

#[test]
fn a_push_to_a_stopped_dispatcher_is_rejected_and_counted() {
    let _alone = alone();
    let channel = Channel::new(Options::default());
    let Some((one, dispatching)) = one(&channel, Pattern::ANY.into(), 2, |_| ()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    dispatching.stop(&mut NullSink).unwrap();
    let pushed = channel.supplier(1).push(1, b"").unwrap();
    assert_eq!((pushed.taken, pushed.kept, pushed.rejected), (0, 0, 1));
    assert_eq!((one.counts().complete, one.counts().rejected), (1, 1));
    drop(connected);
}

#[test]
fn a_pause_resets_a_group() {
    let _alone = alone();
    let both = Filter::all([1, 2].map(|kind| Pattern::kind(kind).into()));
    let channel = Channel::new(Options::default());
    let Some((one, dispatching)) = one(&channel, both, 2, |_| ()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(1);
    let push = |kind| {
        let pushed = supplier.push(kind, b"").unwrap();
        (pushed.taken, pushed.kept)
    };
    assert_eq!(push(1), (0, 1));
    one.suspend();
    assert_eq!((push(2), one.counts().suspended), ((0, 0), 1));
    one.resume();
    assert_eq!([push(2), push(1)], [(0, 1), (1, 0)]);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
}

/// Events that cause each other circulate as fast as backlogs and distances allow, and no faster.
/// No operation waits for itself.
#[test]
fn cycles_are_bounded_by_what_the_plan_says() {
    let _alone = alone();
    let operation = |name| Operation::sporadic(name, Span::from_ms(1)).wcet(Span::from_us(10)).backlog(2);
    let operations =
        Operations::new("cycle").with(operation("ping")).with(operation("pong").noncritical()).with(operation("own"));
    let plan = plan(&operations, Builtin::Muf);
    let channel = Channel::new(Options::default());
    let latest = |kind| Quality { keep: Keep::Latest, ..Pattern::kind(kind).into() };
    let [ping, pong, own] = [("ping", 1), ("pong", 2), ("own", 3)]
        .map(|(name, kind)| channel.subscribe(&plan, name, latest(kind)).unwrap());
    let mut built = Dispatcher::new(plan);
    for (subscription, next) in [(&ping, 2), (&pong, 1), (&own, 3)] {
        let supplier = channel.supplier(next);
        // Twice: the second event replaces the first.
        let handler = subscription.handler(move |_, _| {
            let pushed = [(); 2].map(|()| supplier.push(next, b""));
            // The push fails after the channel is disconnected.
            assert!(pushed.into_iter().flatten().all(|pushed| pushed.taken == 1));
        });
        built = built.on(subscription.operation(), handler).unwrap();
    }
    let Some(dispatching) = started(built) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(0);
    [1, 3].iter().for_each(|kind| assert_eq!(supplier.push(*kind, b"").unwrap().taken, 1));
    let all = [&ping, &pong, &own];
    until(|| all.iter().all(|subscription| subscription.counts().handled >= 20));
    drop(connected);
    let stopped = dispatching.stop(&mut NullSink).unwrap();
    for (subscription, (name, jobs)) in all.into_iter().zip(&stopped.counts) {
        let counts = subscription.counts();
        assert!(counts.replaced > 0 && counts.rejected == 0, "{name}: {counts:?}");
        assert!(counts.handled <= jobs.released, "{name}");
        // One for each ms since the start, and the first.
        assert!(jobs.released <= 1 + stopped.end.as_ns() / 1_000_000, "{name}: {jobs:?} until {}", stopped.end);
        check(subscription);
    }
}

#[test]
fn observers_see_each_change_in_turn_and_may_make_others() {
    let operations = Operations::new("observed").with(sporadic("first")).with(sporadic("second"));
    let plan = plan(&operations, Builtin::Muf);
    let channel = Channel::new(Options::default());
    let seen = Arc::<Mutex<Vec<(String, Change)>>>::default();
    let told = seen.clone();
    channel.observe(move |name, change| told.lock().unwrap().push((name.to_owned(), change)));
    let second = channel.subscribe(&plan, "second", Pattern::ANY).unwrap();
    channel.observe(move |name, change| {
        if (name, change) == ("first", Change::Suspended) {
            second.suspend();
        }
    });
    let first = channel.subscribe(&plan, "first", Pattern::ANY).unwrap();
    first.suspend();
    first.resume();
    assert!(first.reconnect(Filter::any([])).is_err(), "nothing has changed");
    first.reconnect(Pattern::kind(1)).unwrap();
    let expected = [
        ("second", Change::Subscribed),
        ("first", Change::Subscribed),
        ("first", Change::Suspended),
        ("second", Change::Suspended),
        ("first", Change::Resumed),
        ("first", Change::Reconnected),
    ];
    assert_eq!(*seen.lock().unwrap(), expected.map(|(name, change)| (name.to_owned(), change)));
}

fn remembered(channel: &Channel) -> Vec<u64> {
    let mut numbers = Vec::new();
    channel.history(Pattern::ANY, |event| numbers.push(event.head.number));
    numbers
}

/// A dispatcher without consumers.
fn idle() -> Option<Dispatching> {
    let plan = plan(&Operations::new("idle").with(sporadic("idle")), Builtin::Muf);
    started(Dispatcher::new(plan).on("idle", |_| ()).unwrap())
}

#[test]
fn the_history_shows_what_has_not_expired_and_belongs_to_its_dispatcher() {
    let _alone = alone();
    let channel = Channel::new(Options { history: 4, ..Options::default() });
    let Some(first) = idle() else { return };
    let connected = channel.connect(&first).unwrap();
    let supplier = channel.supplier(1);
    supplier.push_for(1, b"", Span::from_s(600)).unwrap();
    supplier.push_for(1, b"", Span::from_ns(1)).unwrap();
    supplier.push(1, b"").unwrap();
    clock::pause(Span::from_us(10));
    assert_eq!(remembered(&channel), [0, 2], "one has expired");
    supplier.push_for(1, b"", Span::from_ns(1)).unwrap();
    drop(connected);
    clock::pause(Span::from_us(10));
    assert_eq!(remembered(&channel), [0, 2], "time goes on where the channel is not connected");
    let connected = channel.connect(&first).unwrap();
    assert_eq!(remembered(&channel), [0, 2]);
    drop(connected);
    first.stop(&mut NullSink).unwrap();
    let second = idle().expect("the first could start");
    let connected = channel.connect(&second).unwrap();
    assert!(remembered(&channel).is_empty(), "its times are from another zero");
    supplier.push(1, b"").unwrap();
    assert_eq!(remembered(&channel), [4]);
    drop(connected);
    second.stop(&mut NullSink).unwrap();
}

/// The first dispatcher's time is far ahead of the second's. A deadline by the first clock lies far
/// in the future of the second.
#[test]
fn values_written_under_one_dispatcher_are_due_at_their_instant_under_another() {
    let _alone = alone();
    let channel = Channel::new(Options::default());
    let values = Published::new(&channel, 1, 9, &[1]).unwrap();
    let dispatching = |writes: bool| {
        let plan = plan(&Operations::new("values").with(sporadic("values").deadline(Span::from_ms(100))), Builtin::Muf);
        let (values, sent) = (values.clone(), Arc::new(AtomicU64::new(u64::MAX)));
        let told = sent.clone();
        let handler = move |job: &Job<'_>| match writes {
            true => drop(values.write(0, b"v", job)),
            false => told.store(values.flush(Span::from_s(60), job).unwrap() as u64, Ordering::SeqCst),
        };
        Some((started(Dispatcher::new(plan).on("values", handler).unwrap())?, sent))
    };
    let Some((first, _)) = dispatching(true) else { return };
    clock::pause(Span::from_ms(300));
    first.operation("values").unwrap().push().unwrap();
    until(|| values.counts().written == 1);
    first.stop(&mut NullSink).unwrap();
    let Some((second, sent)) = dispatching(false) else { return };
    let _outlet = channel.outlet(&[Pattern::ANY], 4, Full::Newest).unwrap();
    let connected = channel.connect(&second).unwrap();
    // Surely past its deadline.
    clock::pause(Span::from_ms(150));
    second.operation("values").unwrap().push().unwrap();
    until(|| sent.load(Ordering::SeqCst) < u64::MAX);
    assert_eq!((sent.load(Ordering::SeqCst), values.counts().flushed), (1, 1));
    drop(connected);
    second.stop(&mut NullSink).unwrap();
}

#[test]
fn memory_stays_locked_while_any_dispatcher_runs() {
    let _alone = alone();
    let locked = || takt_linux::memory::locked_kib().unwrap_or_default();
    let (Some(first), Some(second)) = (idle(), idle()) else { return };
    if locked() == 0 {
        return println!("skipped: memory may not be locked here");
    }
    first.stop(&mut NullSink).unwrap();
    assert!(locked() > 0, "the second one still runs");
    let before = locked();
    let channel = Channel::new(Options { payload_max: 60_000, ..Options::default() });
    let connected = channel.connect_as(&Node::new(1), &second).unwrap();
    assert!(locked() > before, "what the channel's threads use is locked, too");
    second.stop(&mut NullSink).unwrap();
    drop(connected);
    assert_eq!(locked(), 0);
}

#[test]
fn a_connection_that_is_refused_leaves_no_trace() {
    let _alone = alone();
    let channel = Channel::new(Options { history: 4, ..Options::default() });
    let both = Filter::all([1, 2].map(|kind| Pattern::kind(kind).into()));
    let Some((subscription, dispatching)) = one(&channel, both, 2, |_| ()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(1);
    assert_eq!(supplier.push(1, b"").unwrap().kept, 1);
    drop(connected);
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let node = Node::new(1).with(Level::new("taken", taken.local_addr().unwrap()));
    let refused = channel.connect_as(&node, &dispatching).err().unwrap();
    assert!(matches!(refused, ConnectError::Node(NodeError::Bind { .. })), "{refused}");
    assert_eq!(remembered(&channel), [0]);
    let connected = channel.connect(&dispatching).unwrap();
    assert_eq!(supplier.push(2, b"").unwrap().kept, 1, "a group begins anew with each connection");
    assert_eq!(supplier.push(1, b"").unwrap().taken, 1);
    until(|| subscription.counts().handled == 1);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
}

/// Disconnecting waits for pushes in progress, so that no real-time thread closes sockets and frees
/// buffers.
#[test]
fn no_push_runs_after_a_channel_is_disconnected() {
    let _alone = alone();
    let channel = Channel::new(Options::default());
    let Some((one, dispatching)) = one(&channel, Pattern::ANY.into(), 16, |_| ()) else { return };
    let stop = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for source in 0..2 {
            let (supplier, stop) = (channel.supplier(source), &stop);
            scope.spawn(move || {
                while stop.load(Ordering::Acquire) == 0 {
                    let _ = supplier.push(1, b"");
                }
            });
        }
        for _ in 0..50 {
            let connected = channel.connect(&dispatching).unwrap();
            let before = one.counts().complete;
            until(|| one.counts().complete > before);
            drop(connected);
            let after = one.counts().complete;
            clock::pause(Span::from_us(100));
            assert_eq!(one.counts().complete, after);
        }
        stop.store(1, Ordering::Release);
    });
    dispatching.stop(&mut NullSink).unwrap();
    check(&one);
}

/// Connecting while another thread disconnects finds no thread of the former connection.
#[test]
fn a_channel_is_not_connected_anew_before_the_threads_of_the_former_connection_have_ended() {
    let _alone = alone();
    let Some(dispatching) = idle() else { return };
    let channel = Channel::new(Options::default());
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_nonblocking(true).unwrap();
    let level = Level::new("former", ([127, 0, 0, 1], 0).into()).peer(peer.local_addr().unwrap());
    for round in 0..3 {
        let former = channel.connect_as(&Node::new(1).with(level.clone()), &dispatching).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(former));
            let connected = loop {
                match channel.connect(&dispatching) {
                    Ok(connected) => break connected,
                    Err(refused) => assert!(matches!(refused, ConnectError::Twice), "{refused}"),
                }
            };
            // It is the last action of the receiving thread.
            let (mut bytes, mut ends) = ([0; 256], false);
            while let Ok(length) = peer.recv(&mut bytes) {
                ends |= Datagram::read(&bytes[..length]).is_ok_and(|datagram| datagram.body == Body::Bye);
            }
            assert!(ends, "round {round}: it has not told its peers that it ends");
            drop(connected);
        });
    }
    dispatching.stop(&mut NullSink).unwrap();
}

/// Jobs of all operations repeat numbers. A handler attached to the wrong operation must not take
/// the right operation's events.
#[test]
fn a_handler_that_is_given_to_another_operation_is_given_no_events_and_that_is_counted() {
    let _alone = alone();
    let plan = plan(&Operations::new("mixed up").with(sporadic("depth")).with(sporadic("other")), Builtin::Muf);
    let channel = Channel::new(Options::default());
    let depth = channel.subscribe(&plan, "depth", Pattern::ANY).unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let told = seen.clone();
    let wrong = depth.handler(move |_, _| {
        told.fetch_add(1, Ordering::SeqCst);
    });
    let built = Dispatcher::new(plan).on("depth", |_| ()).unwrap().on("other", wrong).unwrap();
    let Some(dispatching) = started(built) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(1);
    assert_eq!(supplier.push(1, b"").unwrap().taken, 1);
    let ended = |name: &str| dispatching.counts().iter().any(|(other, counts)| other == name && counts.completed == 1);
    until(|| ended("depth"));
    dispatching.operation("other").unwrap().push().unwrap();
    until(|| ended("other"));
    assert_eq!((seen.load(Ordering::SeqCst), depth.misplaced()), (0, 1));
    // The next push finds that the first event was not handled.
    assert_eq!(supplier.push(1, b"").unwrap().taken, 1);
    assert_eq!((depth.counts().handled, depth.counts().omitted), (0, 1));
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
}

#[test]
fn a_dispatcher_gives_a_subscription_its_own_operation() {
    let _alone = alone();
    let plan = plan(&Operations::new("own").with(sporadic("depth")).with(sporadic("other")), Builtin::Muf);
    let channel = Channel::new(Options::default());
    let depth = channel.subscribe(&plan, "depth", Pattern::ANY).unwrap();
    let built = Dispatcher::new(plan).on_events(&depth, |_, _| ()).unwrap().on("other", |_| ()).unwrap();
    let Some(dispatching) = started(built) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    assert_eq!(channel.supplier(1).push(1, b"").unwrap().taken, 1);
    until(|| depth.counts().handled == 1);
    // A job pushed directly has no events, but belongs to the right operation.
    dispatching.operation("depth").unwrap().push().unwrap();
    until(|| dispatching.counts()[0].1.completed == 2);
    assert_eq!(depth.misplaced(), 0);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
}

/// A dispatcher may have another plan than the one used to subscribe. Equal names are not enough.
#[test]
fn a_plan_that_agrees_in_names_alone_is_refused() {
    let _alone = alone();
    let of = |operation: Operation| plan(&Operations::new("named alike").with(operation), Builtin::Muf);
    let subscribed = of(sporadic("one").backlog(4));
    let channel = Channel::new(Options::default());
    let latest = Quality { keep: Keep::Latest, ..Pattern::ANY.into() };
    let subscription = channel.subscribe(&subscribed, "one", latest.clone()).unwrap();
    let refused = |operation: Operation| {
        let dispatching = started(Dispatcher::new(of(operation)).on_events(&subscription, |_, _| ()).unwrap())?;
        let refused = channel.connect(&dispatching).err().map(|error| error.to_string()).unwrap_or_default();
        dispatching.stop(&mut NullSink).unwrap();
        Some(refused)
    };
    let advice = "in the dispatcher's plan; it subscribed with another plan: subscribe with the plan that is \
                  dispatched";
    let Some(timer) = refused(Operation::periodic("one", Span::from_s(1)).wcet(Span::from_ns(1))) else { return };
    let released = "operation \"one\" is released by a timer or by the end of others; a consumer must be sporadic, \
                    or released by events (Plan::released_by_events)";
    assert_eq!(timer, format!("{released}, {advice}"));
    assert_eq!(
        refused(sporadic("one").backlog(5)).unwrap(),
        "operation \"one\" has a backlog of 5 in the dispatcher's plan, and subscribed with a plan that gives 4: \
         subscribe with the plan that is dispatched"
    );
    assert_eq!(
        refused(sporadic("one").backlog(57)).unwrap(),
        format!("operation \"one\" has a backlog of 57; a consumer has at most 56, {advice}")
    );
    let alone =
        "operation \"one\" has a backlog of 1; a consumer that keeps the latest events (Keep::Latest) has 2 at least";
    assert_eq!(refused(sporadic("one").backlog(1)).unwrap(), format!("{alone}, {advice}"));
    // A smaller backlog fits. Later demands are checked against the dispatched plan.
    assert_eq!(refused(sporadic("one").backlog(3)).unwrap(), "");
    subscription.reconnect(Pattern::ANY).unwrap();
    assert_eq!(refused(sporadic("one").backlog(1)).unwrap(), "");
    let still = subscription.reconnect(latest).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(still, alone);
}

#[test]
fn a_channel_for_too_much_is_refused_by_whatever_would_take_the_room() {
    // Also because another test looks at the locked memory of the process.
    let _alone = alone();
    let plan = plan(&Operations::new("huge").with(sporadic("one")), Builtin::Muf);
    let default = Options::default();
    let said = |options: Options| {
        let channel = Channel::new(options);
        let subscribed = channel.subscribe(&plan, "one", Pattern::ANY).err().map(|error| error.to_string());
        let outlet = channel.outlet(&[Pattern::ANY], 1, Full::Newest).err().map(|error| error.to_string());
        let published = Published::new(&channel, 1, 1, &[1]).err().map(|error| error.to_string());
        assert!(subscribed == outlet && outlet == published);
        subscribed.unwrap_or_default()
    };
    assert_eq!(
        said(Options { payload_max: usize::MAX, ..default }),
        "events of this channel have up to 18446744073709551615 bytes; 65536 are the most (Options::payload_max)"
    );
    assert_eq!(
        said(Options { events_max: 65, ..default }),
        "filters of this channel wait for up to 65 events; 64 are the most (Options::events_max)"
    );
    let history = "a history of 18446744073709551615 events, and groups of 8 for 64 jobs, \
        of 256 bytes each take more than 67108864 bytes";
    let options = Options { history: usize::MAX, ..default };
    assert!(said(options).starts_with(history), "{}", said(options));
    assert!(
        !said(Options { payload_max: 0, history: usize::MAX, ..default }).is_empty(),
        "an event has bytes of its own"
    );
    assert_eq!(said(Options { payload_max: 65_536, history: 1, ..default }), "");
    let Some(dispatching) = idle() else { return };
    let refused = Channel::new(options).connect(&dispatching).err().unwrap();
    assert!(matches!(refused, ConnectError::Options(OptionsError::Room { .. })), "{refused}");
    let node = Node { nodes_max: usize::MAX, ..Node::new(1) };
    let refused = Channel::new(default).connect_as(&node, &dispatching).err().unwrap();
    assert!(matches!(refused, ConnectError::Node(NodeError::Nodes(usize::MAX))), "{refused}");
    dispatching.stop(&mut NullSink).unwrap();
}

#[test]
fn an_unsubscribed_operation_needs_no_handler_and_can_subscribe_again() {
    let _alone = alone();
    let plan = plan(&Operations::new("anew").with(sporadic("one")).with(sporadic("two")), Builtin::Muf);
    let channel = Channel::new(Options::default());
    let former = channel.subscribe(&plan, "one", Pattern::ANY).unwrap();
    let two = channel.subscribe(&plan, "two", Pattern::kind(2)).unwrap();
    let built = Dispatcher::new(plan.clone()).on("one", |_| ()).unwrap().on_events(&two, |_, _| ()).unwrap();
    let Some(dispatching) = started(built) else { return };
    let refused = channel.connect(&dispatching).err().unwrap();
    assert!(matches!(&refused, ConnectError::NoHandler(name) if name == "one"), "{refused}");
    channel.unsubscribe(&former).unwrap();
    assert_eq!(channel.unsubscribe(&former), Err(SubscribeError::Gone("one".to_owned())));
    assert_eq!(Channel::new(Options::default()).unsubscribe(&two), Err(SubscribeError::Gone("two".to_owned())));
    let connected = channel.connect(&dispatching).unwrap();
    assert_eq!(channel.supplier(1).push(2, b"").unwrap().taken, 1, "the other one still waits");
    assert_eq!(channel.unsubscribe(&two), Err(SubscribeError::Connected));
    until(|| two.counts().handled == 1);
    assert_eq!(former.counts().complete, 0);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    let anew = channel.subscribe(&plan, "one", Pattern::kind(1)).unwrap();
    let built = Dispatcher::new(plan).on_events(&anew, |_, _| ()).unwrap().on_events(&two, |_, _| ()).unwrap();
    let dispatching = started(built).expect("the first could start");
    let connected = channel.connect(&dispatching).unwrap();
    assert_eq!(channel.supplier(1).push(1, b"").unwrap().taken, 1);
    until(|| anew.counts().handled == 1);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
}

#[test]
fn an_observer_is_told_of_what_happens_until_it_ends() {
    let plan = plan(&Operations::new("watched").with(sporadic("one")), Builtin::Muf);
    let channel = Channel::new(Options::default());
    let seen = [(); 2].map(|()| Arc::<Mutex<Vec<Change>>>::default());
    let observe = |seen: &Arc<Mutex<Vec<Change>>>| {
        let told = seen.clone();
        channel.observe(move |_, change| told.lock().unwrap().push(change))
    };
    let [first, second] = [&seen[0], &seen[1]].map(observe);
    let one = channel.subscribe(&plan, "one", Pattern::ANY).unwrap();
    first.end();
    assert_eq!(Arc::strong_count(&seen[0]), 1, "what it held is dropped");
    // The observer stays after its handle is dropped.
    drop(second);
    channel.unsubscribe(&one).unwrap();
    assert_eq!(*seen[0].lock().unwrap(), [Change::Subscribed]);
    assert_eq!(*seen[1].lock().unwrap(), [Change::Subscribed, Change::Unsubscribed]);
}
