//! The event channel on threads of this kernel: deliveries and counts, and no event lost or
//! doubled. No test asserts a duration.

#[path = "common/live.rs"]
mod live;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use live::{alone, check, ms, plan, sporadic, started, until};
use takt_dispatch::event::peer::{ArrivalTimes, PresenceChange};
use takt_dispatch::event::{
    Change, Channel, ConnectError, Connected, EventError, Filter, Full, Keep, Options, OutletCounts, PEER_FOUND,
    PEER_LOST, Pattern, Quality, SubscribeError, Subscription, TIMEOUT, Terms,
};
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations};
use takt_linux::{Class, Epoch, clock, sched};
use takt_log::NullSink;
use takt_model::{Builtin, Span, Time};

type Received = Arc<Mutex<Vec<(u32, u32, u64, Vec<u8>)>>>;

/// Events given to a handler: head and payload.
type ReceivedEvents = Arc<Mutex<Vec<(takt_dispatch::event::Head, Vec<u8>)>>>;

type Two = (Channel, [Subscription; 2], [Received; 2], Dispatching, Connected);

/// A handler's call: the consumer, the class of the thread, the payload.
type Handled = (&'static str, Class, Vec<u8>);

/// A channel with consumers of levels 0 and 1, and their events.
fn two(first: Filter, second: Filter, options: Options) -> Option<Two> {
    let operations = Operations::new("two").with(sporadic("first")).with(sporadic("second").noncritical());
    let plan = plan(&operations, Builtin::Muf);
    let channel = Channel::new(options);
    let subscriptions =
        [channel.subscribe(&plan, "first", first).unwrap(), channel.subscribe(&plan, "second", second).unwrap()];
    let seen: [Received; 2] = Default::default();
    let mut built = Dispatcher::new(plan);
    for (name, (subscription, seen)) in ["first", "second"].into_iter().zip(subscriptions.iter().zip(&seen)) {
        let seen = seen.clone();
        let handler = subscription.handler(move |delivery, _| {
            let event = |event: takt_dispatch::event::Event<'_>| {
                (event.head.kind, event.head.source, event.head.number, event.payload.to_vec())
            };
            seen.lock().unwrap().extend(delivery.events().map(event));
        });
        built = built.on(name, handler).unwrap();
    }
    let dispatching = started(built)?;
    let connected = channel.connect(&dispatching).unwrap();
    Some((channel, subscriptions, seen, dispatching, connected))
}

#[test]
fn events_reach_those_who_subscribed_at_their_level_and_no_others() {
    let _alone = alone();
    let operations = Operations::new("levels").with(sporadic("steer")).with(sporadic("show").noncritical());
    let plan = plan(&operations, Builtin::Muf);
    let channel = Channel::new(Options::default());
    let changes: Arc<Mutex<Vec<(String, Change)>>> = Arc::default();
    let told = changes.clone();
    channel.observe(move |name, change| told.lock().unwrap().push((name.to_owned(), change)));
    let steer = channel.subscribe(&plan, "steer", Pattern::kind(1)).unwrap();
    let show = channel.subscribe(&plan, "show", Pattern::source(7)).unwrap();
    let seen: Arc<Mutex<Vec<Handled>>> = Arc::default();
    let mut built = Dispatcher::new(plan);
    for (name, subscription) in [("steer", &steer), ("show", &show)] {
        let seen = seen.clone();
        let handler = move |delivery: &takt_dispatch::event::Delivery<'_>, _: &takt_dispatch::Job<'_>| {
            seen.lock().unwrap().push((name, sched::current(), delivery.first().payload.to_vec()));
        };
        built = built.on(name, subscription.handler(handler)).unwrap();
    }
    let radar = channel.supplier(7);
    assert_eq!(radar.push(1, b"too early"), Err(EventError::NotConnected));
    let Some(dispatching) = started(built) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    assert!(channel.connect(&dispatching).is_err(), "once");
    let lidar = channel.supplier(8);
    let taken = [
        radar.push(1, b"a").unwrap().taken,
        radar.push(2, b"b").unwrap().taken,
        lidar.push(1, b"c").unwrap().taken,
        lidar.push(2, b"d").unwrap().taken,
    ];
    assert_eq!(taken, [2, 1, 1, 0]);
    until(|| seen.lock().unwrap().len() == 4);
    let mut all = std::mem::take(&mut *seen.lock().unwrap());
    all.sort_by_key(|(name, _, payload)| (*name, payload.clone()));
    let (level, lower) = (Class::Fifo { priority: 47 }, Class::Fifo { priority: 46 });
    let expected = [
        ("show", lower, b"a".to_vec()),
        ("show", lower, b"b".to_vec()),
        ("steer", level, b"a".to_vec()),
        ("steer", level, b"c".to_vec()),
    ];
    assert_eq!(all, expected);
    assert_eq!(radar.push(1, &[0; 257]), Err(EventError::TooLong { length: 257, most: 256 }));
    drop(connected);
    assert_eq!(radar.push(1, b"too late"), Err(EventError::NotConnected));
    dispatching.stop(&mut NullSink).unwrap();
    let changes: Vec<(String, Change)> = changes.lock().unwrap().clone();
    assert_eq!(changes, [("steer".to_owned(), Change::Subscribed), ("show".to_owned(), Change::Subscribed)]);
    [steer, show].iter().for_each(check);
}

#[test]
fn groups_keep_the_newest_and_time_is_an_event() {
    let _alone = alone();
    let both = Filter::all([Pattern::kind(1).into(), Pattern::kind(2).into()]);
    let watchdog = Filter::Silence { of: Pattern::kind(1), span: ms(30) };
    let Some((channel, subscriptions, seen, dispatching, connected)) = two(both, watchdog, Options::default()) else {
        return;
    };
    let supplier = channel.supplier(3);
    let pushed = [(1, b"old"), (1, b"new"), (2, b"two")].map(|(kind, payload)| supplier.push(kind, payload).unwrap());
    assert_eq!(pushed.map(|pushed| (pushed.taken, pushed.kept)), [(0, 1), (0, 1), (1, 0)]);
    until(|| !seen[0].lock().unwrap().is_empty());
    assert_eq!(*seen[0].lock().unwrap(), [(1, 3, 1, b"new".to_vec()), (2, 3, 2, b"two".to_vec())]);
    // No event comes: silence, and again.
    until(|| seen[1].lock().unwrap().len() >= 2);
    assert!(seen[1].lock().unwrap().iter().all(|(kind, _, _, payload)| *kind == TIMEOUT && payload.is_empty()));
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    subscriptions.iter().for_each(check);
}

#[test]
fn subscriptions_are_suspended_resumed_and_reconnected() {
    let _alone = alone();
    let options = Options { history: 4, ..Options::default() };
    let Some((channel, [first, second], seen, dispatching, connected)) =
        two(Pattern::kind(1).into(), Pattern::kind(99).into(), options)
    else {
        return;
    };
    let supplier = channel.supplier(3);
    let push = |kind| supplier.push(kind, b"x").unwrap().taken;
    assert_eq!(push(1), 1);
    first.suspend();
    assert_eq!((push(1), push(1), first.counts().suspended), (0, 0, 2));
    first.resume();
    assert_eq!(push(1), 1);
    first.reconnect(Filter::sequence([Pattern::kind(5).into(), Pattern::kind(6).into()])).unwrap();
    assert_eq!([1, 6, 5, 6].map(push), [0, 0, 0, 1]);
    let large = Filter::all((0..9).map(|kind| Pattern::kind(kind).into()));
    let error = first.reconnect(large).unwrap_err().to_string();
    assert!(error.contains("waits for 9 events, and there is room for 8"), "{error}");
    assert!(first.reconnect(Filter::any([])).unwrap_err().to_string().contains("at least one member"));
    until(|| seen[0].lock().unwrap().len() == 4);
    let mut kinds = Vec::new();
    channel.history(Pattern::ANY, |event| kinds.push((event.head.kind, event.head.number)));
    assert_eq!(kinds, [(1, 4), (6, 5), (5, 6), (6, 7)]);
    kinds.clear();
    channel.history(Pattern::kind(6), |event| kinds.push((event.head.kind, event.head.number)));
    assert_eq!(kinds, [(6, 5), (6, 7)]);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    [first, second].iter().for_each(check);
}

/// The stricter deadline and time to live of event and consumer hold. A handler that returns after
/// the deadline is late. A handler is not called after the expiry.
#[test]
fn events_are_late_and_expire_as_their_suppliers_and_consumers_say() {
    let _alone = alone();
    let plan = plan(&Operations::new("terms").with(sporadic("one")), Builtin::Muf);
    let channel = Channel::new(Options::default());
    let one = channel.subscribe(&plan, "one", Pattern::ANY).unwrap();
    let seen = Arc::<Mutex<Vec<(u32, Span)>>>::default();
    let taker = seen.clone();
    let handler = one.handler(move |delivery, job| {
        let head = delivery.first().head;
        // Handlers of kind 1 return after their deadline, the others before.
        let epoch = Epoch::now_is_zero();
        while head.kind == 1 && job.now() <= delivery.due() {
            let _ = epoch.sleep_until(epoch.now() + Span::from_us(300));
        }
        let due = if head.due == Time::MAX { Span::MAX } else { head.due.saturating_since(head.sent) };
        taker.lock().unwrap().push((head.kind, due));
    });
    let Some(dispatching) = started(Dispatcher::new(plan).on("one", handler).unwrap()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(0);
    let push = |kind, deadline, ttl| {
        let settled = |counts: takt_dispatch::event::Counts| counts.handled + counts.expired;
        let before = settled(one.counts());
        supplier.push_on(kind, b"", Terms { deadline, ttl }).unwrap();
        until(|| settled(one.counts()) == before + 1);
    };
    push(1, ms(1), Span::MAX);
    push(2, Span::from_s(600), Span::MAX);
    push(2, Span::MAX, Span::MAX);
    // The job counts as handled before its handler is called, and as late after.
    until(|| seen.lock().unwrap().len() == 3);
    assert_eq!((one.counts().handled, one.counts().late, one.counts().expired), (3, 1, 0));
    // The consumer is stricter than some suppliers.
    one.reconnect(Quality { deadline: ms(2), ..Pattern::ANY.into() }).unwrap();
    push(1, Span::from_s(600), Span::MAX);
    push(1, ms(1), Span::MAX);
    until(|| one.counts().late == 3);
    one.reconnect(Quality { ttl: Span::ZERO, ..Pattern::ANY.into() }).unwrap();
    push(3, Span::MAX, Span::MAX);
    one.reconnect(Pattern::ANY).unwrap();
    push(3, Span::MAX, Span::ZERO);
    assert_eq!((one.counts().handled, one.counts().expired), (5, 2));
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    let expected = [(1, ms(1)), (2, Span::from_s(600)), (2, Span::MAX), (1, ms(2)), (1, ms(1))];
    assert_eq!(*seen.lock().unwrap(), expected);
    check(&one);
}

/// A consumer of the latest event gets only the newest one after each job, at the operation's own
/// pace.
#[test]
fn the_latest_takes_the_place_of_what_waits_and_waits_for_its_time() {
    let _alone = alone();
    let operations = Operations::new("latest")
        .with(sporadic("slow").backlog(2))
        .with(Operation::sporadic("paced", ms(40)).wcet(Span::from_ns(1)).deadline(Span::from_s(1)).backlog(2))
        .with(sporadic("alone").backlog(1));
    let plan = plan(&operations, Builtin::Muf);
    let channel = Channel::new(Options::default());
    let latest = |kind| Quality { keep: Keep::Latest, ..Pattern::kind(kind).into() };
    let refused = channel.subscribe(&plan, "alone", latest(1)).err().unwrap();
    assert_eq!(refused, SubscribeError::Alone("alone".to_owned()));
    let slow = channel.subscribe(&plan, "slow", latest(1)).unwrap();
    let paced = channel.subscribe(&plan, "paced", latest(2)).unwrap();
    let (entered, go) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let seen: [Arc<Mutex<Vec<u8>>>; 2] = Default::default();
    let taker = seen.clone().map(|seen| move |byte: &[u8]| seen.lock().unwrap().extend(byte));
    let [of_slow, of_paced] = taker;
    let (came, may) = (entered.clone(), go.clone());
    let built = Dispatcher::new(plan)
        .on(
            "slow",
            slow.handler(move |delivery, job| {
                of_slow(delivery.first().payload);
                came.fetch_add(1, Ordering::SeqCst);
                let epoch = Epoch::now_is_zero();
                while may.load(Ordering::SeqCst) == 0 && !job.must_stop() {
                    let _ = epoch.sleep_until(epoch.now() + Span::from_us(300));
                }
            }),
        )
        .and_then(|built| built.on("paced", paced.handler(move |delivery, _| of_paced(delivery.first().payload))));
    let Some(dispatching) = started(built.unwrap().on("alone", |_| ()).unwrap()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(0);
    assert_eq!(supplier.push(1, &[1]).unwrap().taken, 1);
    until(|| entered.load(Ordering::SeqCst) == 1);
    for number in 2..=9 {
        assert_eq!(supplier.push(1, &[number]).unwrap().taken, 1, "{number}");
    }
    assert_eq!((slow.counts().replaced, slow.counts().rejected), (7, 0));
    go.store(1, Ordering::SeqCst);
    for number in 1..=9 {
        assert_eq!(supplier.push(2, &[number]).unwrap().taken, 1, "{number}");
    }
    until(|| slow.counts().handled == 2 && paced.counts().handled + paced.counts().replaced == 9);
    // A set counts as handled before its handler is called.
    until(|| seen[1].lock().unwrap().last() == Some(&9));
    assert_eq!(paced.counts().rejected, 0);
    // A set that was put off belongs to its dispatcher.
    supplier.push(2, &[10]).unwrap();
    supplier.push(2, &[11]).unwrap();
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    assert_eq!(*seen[0].lock().unwrap(), [1, 9]);
    [slow, paced].iter().for_each(check);
}

/// Two suppliers push without pause, and the handler is preempted anywhere. No event is lost unless
/// a later one replaced it.
#[test]
fn the_last_of_many_comes_and_all_others_are_counted() {
    let _alone = alone();
    let plan = plan(&Operations::new("storm").with(sporadic("one").backlog(2)), Builtin::Muf);
    let channel = Channel::new(Options::default());
    let one = channel.subscribe(&plan, "one", Quality { keep: Keep::Latest, ..Pattern::ANY.into() }).unwrap();
    let seen = Arc::<Mutex<Vec<(u32, u64)>>>::default();
    let taker = seen.clone();
    let handler = one.handler(move |delivery, _| {
        let head = delivery.first().head;
        taker.lock().unwrap().push((head.source, head.number));
    });
    let Some(dispatching) = started(Dispatcher::new(plan).on("one", handler).unwrap()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    const EACH: u64 = 3000;
    std::thread::scope(|scope| {
        for source in [1, 2] {
            let supplier = channel.supplier(source);
            scope.spawn(move || {
                for number in 0..EACH {
                    assert_eq!(supplier.push(1, b"").unwrap().taken, 1);
                    if number % 7 == 0 {
                        clock::pause(Span::from_us(20));
                    }
                }
            });
        }
    });
    let last = channel.supplier(3);
    last.push(1, b"").unwrap();
    until(|| one.counts().handled + one.counts().replaced == 2 * EACH + 1);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    let (counts, seen) = (one.counts(), seen.lock().unwrap());
    assert_eq!((counts.complete, counts.rejected, counts.omitted), (2 * EACH + 1, 0, 0));
    assert_eq!((seen.len() as u64, seen.last()), (counts.handled, Some(&(3, 0))));
    for source in [1, 2] {
        let numbers: Vec<u64> = seen.iter().filter(|(of, _)| *of == source).map(|(_, number)| *number).collect();
        assert!(numbers.is_sorted_by(|one, other| one < other), "one after the other, each once");
    }
}

/// Events that wait for a job when its dispatcher stops are omitted. A later dispatcher, whose jobs
/// have the same numbers, gets none of them.
#[test]
fn a_later_dispatcher_is_given_no_event_of_a_former_one() {
    let _alone = alone();
    let operations = Operations::new("again").with(sporadic("slow").backlog(8));
    let plan = plan(&operations, Builtin::Muf);
    let channel = Channel::new(Options { history: 8, ..Options::default() });
    let subscription = channel.subscribe(&plan, "slow", Pattern::kind(1)).unwrap();
    let (seen, entered, go) =
        (Arc::<Mutex<Vec<u8>>>::default(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let start = || {
        let (seen, entered, go) = (seen.clone(), entered.clone(), go.clone());
        let handler = subscription.handler(move |delivery, job| {
            seen.lock().unwrap().extend(delivery.first().payload);
            entered.fetch_add(1, Ordering::SeqCst);
            let epoch = takt_linux::Epoch::now_is_zero();
            while go.load(Ordering::SeqCst) == 0 && !job.must_stop() {
                let _ = epoch.sleep_until(epoch.now() + Span::from_us(300));
            }
        });
        started(Dispatcher::new(plan.clone()).on("slow", handler).unwrap())
    };
    let Some(first) = start() else { return };
    let supplier = channel.supplier(0);
    let connected = channel.connect(&first).unwrap();
    for number in 1..=5 {
        assert_eq!(supplier.push(1, &[number]).unwrap().taken, 1);
    }
    until(|| entered.load(Ordering::SeqCst) == 1);
    let remembered = || {
        let mut payloads = Vec::new();
        channel.history(Pattern::ANY, |event| payloads.extend(event.payload));
        payloads
    };
    assert_eq!(remembered(), [1, 2, 3, 4, 5]);
    // After reconnecting to the same dispatcher, waiting events stay.
    drop(connected);
    let connected = channel.connect(&first).unwrap();
    assert_eq!((subscription.counts().omitted, remembered()), (0, vec![1, 2, 3, 4, 5]));
    drop(connected);
    first.stop(&mut NullSink).unwrap();
    assert_eq!(*seen.lock().unwrap(), [1]);

    let second = start().expect("the first could start");
    go.store(1, Ordering::SeqCst);
    let connected = channel.connect(&second).unwrap();
    assert_eq!((subscription.counts().omitted, remembered()), (4, vec![]));
    assert_eq!(supplier.push(1, &[10]).unwrap().taken, 1);
    until(|| entered.load(Ordering::SeqCst) == 2);
    drop(connected);
    second.stop(&mut NullSink).unwrap();
    assert_eq!(*seen.lock().unwrap(), [1, 10]);
    let counts = subscription.counts();
    assert_eq!((counts.complete, counts.handled, counts.omitted), (6, 2, 4));
}

#[test]
fn a_subscription_without_a_handler_is_told_when_it_is_connected() {
    let _alone = alone();
    let plan = plan(&Operations::new("none").with(sporadic("one")), Builtin::Muf);
    let channel = Channel::new(Options::default());
    let subscription = channel.subscribe(&plan, "one", Pattern::ANY).unwrap();
    let Some(dispatching) = started(Dispatcher::new(plan).on("one", |_| ()).unwrap()) else { return };
    let Err(refused) = channel.connect(&dispatching) else { panic!("nobody would handle its events") };
    assert!(matches!(&refused, ConnectError::NoHandler(name) if name == "one"), "{refused}");
    drop(subscription.handler(|_, _| ()));
    drop(channel.connect(&dispatching).unwrap());
    dispatching.stop(&mut NullSink).unwrap();
}

#[test]
fn expired_events_are_not_handled_and_omitted_ones_free_their_slot() {
    let _alone = alone();
    let operations = Operations::new("late")
        .cancel(true)
        .with(sporadic("stale"))
        // Its laxity is always zero, so it is always omitted.
        .with(sporadic("hopeless").wcet(ms(10)).deadline(ms(10)).backlog(2).noncritical());
    let plan = plan(&operations, Builtin::Muf);
    let channel = Channel::new(Options::default());
    let stale = channel.subscribe(&plan, "stale", Pattern::kind(1)).unwrap();
    let hopeless = channel.subscribe(&plan, "hopeless", Pattern::kind(2)).unwrap();
    let handled = Arc::new(AtomicU64::new(0));
    let count = handled.clone();
    let built = Dispatcher::new(plan)
        .on(
            "stale",
            stale.handler(move |_, _| {
                count.fetch_add(1, Ordering::SeqCst);
            }),
        )
        .and_then(|built| built.on("hopeless", hopeless.handler(|_, _| ())));
    let Some(dispatching) = started(built.unwrap()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    let supplier = channel.supplier(1);
    // It has expired before any thread can see it.
    supplier.push_for(1, b"", Span::ZERO).unwrap();
    until(|| stale.counts().expired == 1);
    supplier.push(1, b"").unwrap();
    until(|| handled.load(Ordering::SeqCst) == 1);
    // Many times the backlog: omitted jobs do not block later ones. Earlier rejections depend on
    // the schedule.
    let pushed = std::cell::Cell::new(0);
    until(|| {
        supplier.push(2, b"").unwrap();
        pushed.set(pushed.get() + 1);
        hopeless.counts().omitted > 100
    });
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    let counts = hopeless.counts();
    assert_eq!((counts.complete, counts.handled, counts.expired), (pushed.get(), 0, 0));
    [stale, hopeless].iter().for_each(check);
}

#[test]
fn nothing_is_lost_or_doubled_where_many_push() {
    let _alone = alone();
    let Some((channel, subscriptions, seen, dispatching, connected)) = two(
        Pattern::kind(1).into(),
        Filter::all([Pattern::kind(1).into(), Pattern::kind(2).into()]),
        Options::default(),
    ) else {
        return;
    };
    let taken: u64 = std::thread::scope(|scope| {
        let pushers = (0..4).map(|source| {
            let channel = &channel;
            scope.spawn(move || {
                let supplier = channel.supplier(source);
                let push = |_| {
                    let pushed = supplier.push(1, &source.to_le_bytes()).unwrap();
                    clock::pause(Span::from_us(300));
                    // The second consumer waits for another kind too, so only the first is pushed.
                    pushed.taken as u64
                };
                (0..200).map(push).sum::<u64>()
            })
        });
        let pushers: Vec<_> = pushers.collect();
        pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum()
    });
    until(|| seen[0].lock().unwrap().len() as u64 == taken);
    let mut all = seen[0].lock().unwrap().clone();
    assert!(all.iter().all(|(kind, source, _, payload)| *kind == 1 && **payload == source.to_le_bytes()));
    all.sort();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "each once");
    let counts = subscriptions[0].counts();
    assert_eq!((counts.complete, counts.handled + counts.rejected), (800, 800));
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    subscriptions.iter().for_each(check);
}

#[test]
fn subscribe_errors_name_their_reason() {
    let operations = Operations::new("errors")
        .with(Operation::periodic("timer", ms(10)).wcet(ms(1)))
        .with(sporadic("many").backlog(57))
        .with(sporadic("one"));
    let plan = plan(&operations, Builtin::Muf);
    let channel = Channel::new(Options { events_max: 2, ..Options::default() });
    let refused = |operation: &str, filter: Filter| channel.subscribe(&plan, operation, filter).err().unwrap();
    let any = || Filter::from(Pattern::ANY);
    assert_eq!(refused("nobody", any()), SubscribeError::Unknown("nobody".to_owned()));
    assert_eq!(refused("timer", any()), SubscribeError::NotPushed("timer".to_owned()));
    assert!(refused("many", any()).to_string().contains("has a backlog of 57; a consumer has at most 56"));
    assert!(refused("one", Filter::all([any(), any(), any()])).to_string().contains("waits for 3 events"));
    assert!(refused("one", Filter::Timeout(Span::ZERO)).to_string().contains("is to be 100us or more, and is 0ns"));
    let _first = channel.subscribe(&plan, "one", any()).unwrap();
    assert_eq!(refused("one", any()), SubscribeError::Twice("one".to_owned()));
}

/// Whether the handler of a critical event ran while that of a noncritical event was still busy, on
/// one CPU.
fn preempts(strategy: Builtin) -> Option<bool> {
    let once = |name| Operation::sporadic(name, Span::from_s(100)).wcet(ms(1));
    let operations = Operations::new("inversion").with(once("critical")).with(once("rest").noncritical());
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    let plan = operations.compute(&strategy.strategy(), &limits).unwrap();
    let channel = Channel::new(Options::default());
    let critical = channel.subscribe(&plan, "critical", Pattern::kind(1)).unwrap();
    let rest = channel.subscribe(&plan, "rest", Pattern::kind(2)).unwrap();
    let (ran, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (told, supplier) = (ran.clone(), channel.supplier(8));
    let critical = critical.handler(move |_, _| {
        told.fetch_add(1, Ordering::AcqRel);
    });
    let (look, result) = (ran.clone(), seen.clone());
    let busy = rest.handler(move |_, _| {
        supplier.push(1, b"now").unwrap();
        let begin = takt_linux::clock::thread_cpu();
        // Works for this long, unless it sees the other handler.
        while look.load(Ordering::Acquire) == 0 && takt_linux::clock::thread_cpu().saturating_sub(begin) < ms(20) {}
        result.store(1 + look.load(Ordering::Acquire), Ordering::Release);
    });
    let dispatching = started(Dispatcher::new(plan).on("critical", critical).unwrap().on("rest", busy).unwrap())?;
    let connected = channel.connect(&dispatching).unwrap();
    channel.supplier(7).push(2, b"long").unwrap();
    until(|| ran.load(Ordering::Acquire) == 1 && seen.load(Ordering::Acquire) > 0);
    drop(connected);
    dispatching.stop(&mut NullSink).unwrap();
    Some(seen.load(Ordering::Acquire) == 2)
}

#[test]
fn with_one_level_for_all_a_critical_event_waits_for_a_noncritical_one_and_with_levels_it_does_not() {
    let _alone = alone();
    // One queue and one thread, as in an executor without priorities: a priority inversion.
    let Some(without) = preempts(Builtin::Fifo) else { return };
    assert!(!without);
    assert_eq!(preempts(Builtin::Muf), Some(true));
}

#[test]
fn events_over_another_carrier_are_counted_and_keep_their_remaining_time() {
    let _alone = alone();
    let plan_of = Operations::new("carrier").with(sporadic("steer"));
    let plan = plan(&plan_of, Builtin::Muf);
    let channel = Channel::new(Options::default());
    let wanted = Filter::any([1, PEER_FOUND, PEER_LOST].map(|kind| Pattern::kind(kind).into()));
    let steer = channel.subscribe(&plan, "steer", wanted).unwrap();
    let seen: ReceivedEvents = Arc::default();
    let taker = seen.clone();
    let handler = steer.handler(move |delivery, _| {
        taker.lock().unwrap().push((delivery.first().head, delivery.first().payload.to_vec()));
    });
    let (newest, oldest) = (Pattern::kind(2), Pattern::kind(3));
    let newest = channel.outlet(&[newest, Pattern::kind(1)], 2, Full::Newest).unwrap();
    let oldest = channel.outlet(&[oldest], 2, Full::Oldest).unwrap();
    let inlet = channel.inlet();
    let left = |remaining| ArrivalTimes { remaining, due: Span::MAX, transit: None, skewed: false };
    let at = inlet.now();
    assert_eq!(inlet.offer(1, 7, 0, &left(Span::MAX), at, b""), Err(EventError::NotConnected));
    assert_eq!(inlet.connection(), None);
    let Some(dispatching) = started(Dispatcher::new(plan).on("steer", handler).unwrap()) else { return };
    let connected = channel.connect(&dispatching).unwrap();
    assert_eq!(inlet.connection(), Some(0));
    assert!(channel.outlet(&[], 1, Full::Newest).is_err(), "too late");
    let supplier = channel.supplier(9);
    let sent = |kind| {
        let pushed = supplier.push_for(kind, &[kind as u8], Span::from_s(30)).unwrap();
        (pushed.sent, pushed.unsent)
    };
    assert_eq!([2, 2, 2, 2].map(sent), [(1, 0), (1, 0), (0, 1), (0, 1)], "two find no room");
    assert_eq!([3, 3, 3].map(sent), [(1, 0); 3], "the oldest goes for it");
    assert_eq!(sent(4), (0, 0), "by none");
    assert_eq!(
        (newest.passed(), oldest.passed()),
        (OutletCounts { pushed: 4, full: 2 }, OutletCounts { pushed: 3, full: 1 })
    );
    let mut leaving = newest.leaving();
    for number in 0..2 {
        assert!(newest.next(&mut leaving, Span::ZERO));
        let head = leaving.head();
        assert_eq!((head.kind, head.source, head.number, leaving.payload()), (2, 9, number, &[2][..]));
        assert!(leaving.remaining() <= Span::from_s(30));
    }
    assert!(!newest.next(&mut leaving, Span::ZERO));
    let mut number = || oldest.next(&mut leaving, Span::ZERO).then(|| leaving.head().number);
    let numbers = [number(), number(), number()];
    assert_eq!(numbers, [Some(5), Some(6), None]);
    supplier.push(1, b"for ever").unwrap();
    assert!(newest.next(&mut leaving, Span::from_s(20)) && leaving.remaining() == Span::MAX);
    // Events from an inlet go to consumers only.
    assert_eq!(inlet.offer(1, 7, 41, &left(Span::from_s(30)), at, b"came").unwrap().sent, 0);
    assert_eq!(inlet.offer(PEER_LOST, 7, 0, &left(Span::MAX), at, b""), Err(EventError::Reserved(PEER_LOST)));
    assert!(matches!(inlet.offer(1, 7, 0, &left(Span::MAX), at, &[0; 257]), Err(EventError::TooLong { .. })));
    inlet.report_presence(PresenceChange::Found, 5, 77).unwrap();
    inlet.report_presence(PresenceChange::Lost, 5, 77).unwrap();
    until(|| seen.lock().unwrap().len() == 4);
    let seen = seen.lock().unwrap().clone();
    let of = |kind: u32, source: u32| {
        let row = seen.iter().find(|(head, _)| (head.kind, head.source) == (kind, source)).unwrap();
        (row.0.number, row.1.clone(), row.0.expires != Time::MAX)
    };
    assert_eq!((of(1, 9), of(1, 7)), ((7 + 1, b"for ever".to_vec(), false), (41, b"came".to_vec(), true)));
    let node = 5_u64.to_be_bytes().to_vec();
    assert_eq!((of(PEER_FOUND, 77), of(PEER_LOST, 77)), ((0, node.clone(), false), (0, node, false)));
    // A dropped outlet takes no more events.
    drop(newest);
    assert_eq!((sent(2), sent(3)), ((0, 0), (1, 0)));
    oldest.close();
    assert_eq!(sent(3), (0, 0));
    assert!(oldest.next(&mut leaving, Span::from_s(20)), "what waits can still be taken");
    assert!(!oldest.next(&mut leaving, Span::from_s(20)), "and nobody waits for more");
    drop(connected);
    check(&steer);
}
