//! An inbox and a dispatcher's threads under a model checker. Pushes, handlers, connections,
//! suspensions, changes of quality and stops come in any order. Each set of events must be handled
//! once or counted, and every slot must be free in the end. Some clocks give times out of order,
//! which scheduling alone cannot cause.

use std::sync::{Arc, Mutex as StdMutex, Weak};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::*;
use crate::Operation;
use crate::event::Subscription;
use crate::event::filter::{Filter, Pattern};
use crate::live_model::{Bench, explore, runs};

/// Events given to handlers: dispatcher, source and number.
type Delivered = Arc<StdMutex<Vec<(u64, u32, u64)>>>;
/// The number of jobs that have returned, with a condition to wait for.
type Calls = Arc<(Mutex<usize>, Condvar)>;

struct World {
    inbox: Arc<Inbox>,
    given: Delivered,
    calls: Calls,
}

impl World {
    fn new(keep: Keep) -> World {
        let quality = Quality { keep, ..Pattern::ANY.into() };
        let inbox = Arc::new(Inbox::new("one", &quality, 2, 8, 1));
        World { inbox, given: Delivered::default(), calls: Arc::new((Mutex::new(0), Condvar::new())) }
    }

    /// A dispatcher whose operation handles the inbox's events.
    fn bench(&self) -> Bench {
        let (inbox, given, calls) = (self.inbox.clone(), self.given.clone(), self.calls.clone());
        let operation = Operation::sporadic("one", Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(100));
        Bench::of(
            operation.backlog(2),
            Box::new(move |job| {
                let mut note = |delivery: &Delivery<'_>, job: &Job<'_>| {
                    let head = delivery.first().head;
                    given.lock().unwrap().push((job.operation(), head.source, head.number));
                };
                inbox.handle(job, &mut note);
                *calls.0.lock().unwrap() += 1;
                calls.1.notify_all();
            }),
        )
    }

    /// A thread that pushes `count` events.
    fn pusher(&self, bench: &Arc<Bench>, source: u32, count: u64) -> thread::JoinHandle<()> {
        let (inbox, bench) = (self.inbox.clone(), bench.clone());
        thread::spawn(move || {
            for number in 0..count {
                offer(&inbox, &bench.handle, head(source, number, bench.now()));
            }
        })
    }

    /// Every complete set is accounted for. No event was handled twice or out of order.
    fn check(&self) -> Counts {
        let counts = self.inbox.counts();
        assert_eq!(counts.complete, counts.handled + counts.rejected + counts.omitted + counts.replaced, "{counts:?}");
        let given = self.given.lock().unwrap();
        assert_eq!(given.len() as u64, counts.handled);
        for source in 0..3 {
            let numbers: Vec<(u64, u64)> =
                given.iter().filter(|row| row.1 == source).map(|row| (row.0, row.2)).collect();
            assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
        }
        let slots = (2 + SPARE).min(SLOTS_MAX);
        assert_eq!(self.inbox.free.load(Ordering::Acquire), u64::MAX >> (64 - slots), "each slot is free");
        assert!(self.inbox.slots.iter().all(|slot| slot.job.load(Ordering::Acquire) == 0));
        counts
    }
}

fn head(source: u32, number: u64, sent: Time) -> Head {
    Head { kind: 1, source, number, sent, due: Time::MAX, expires: Time::MAX }
}

fn offer(inbox: &Inbox, handle: &Handle, head: Head) -> Offered {
    let mut wakes = Wakes::default();
    let (offered, _) = inbox.offer(&head, b"", handle, head.sent, &mut wakes);
    wakes.wake(&[]);
    offered
}

/// Two threads push, one handles, and one does `meanwhile`.
fn all_is_handled_or_counted(keep: Keep, meanwhile: fn(&Arc<Inbox>, &Bench)) -> Counts {
    let world = World::new(keep);
    let bench = Arc::new(world.bench());
    world.inbox.begin(&bench.handle, 2, bench.now());
    let server = bench.serve();
    let pushers = [(0, 3), (1, 2)].map(|(source, count)| world.pusher(&bench, source, count));
    let (inbox, again) = (world.inbox.clone(), bench.clone());
    let other = thread::spawn(move || meanwhile(&inbox, &again));
    pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    other.join().unwrap();
    // If the clock stood still between two pushes, a set was put off.
    while world.inbox.next_time().is_some() {
        let mut wakes = Wakes::default();
        world.inbox.pass_time(&bench.handle, bench.now(), &mut wakes);
        wakes.wake(&[]);
    }
    let Counts { complete, rejected, replaced, .. } = world.inbox.counts();
    let jobs = (complete - rejected - replaced) as usize;
    let (calls, called) = (&world.calls.0, &world.calls.1);
    let mut count = calls.lock().unwrap();
    while *count < jobs {
        count = called.wait(count).unwrap();
    }
    drop(count);
    bench.stop();
    server.join().unwrap();
    let counts = world.check();
    assert_eq!((counts.complete + counts.suspended, counts.omitted), (5, 0), "{counts:?}");
    counts
}

fn connected_again(keep: Keep) {
    let counts = all_is_handled_or_counted(keep, |inbox, bench| inbox.begin(&bench.handle, 2, bench.now()));
    assert!(keep == Keep::All || counts.rejected == 0, "{counts:?}");
    assert_eq!(counts.suspended, 0);
}

/// Changes the rule and changes it back. Each change holds for later events.
fn changed_by_its_consumer(keep: Keep) {
    all_is_handled_or_counted(keep, |inbox, _| {
        let subscription = Subscription { inbox: inbox.clone(), channel: Weak::new() };
        let asks = |keep| subscription.reconnect(Quality { keep, ..Pattern::ANY.into() }).unwrap();
        asks(Keep::Latest);
        subscription.suspend();
        asks(Keep::All);
        subscription.resume();
        asks(Keep::Latest);
    });
}

/// A dispatcher stops while events come, and the channel connects to another one.
fn a_later_dispatcher_is_given_nothing_of_a_former_one(keep: Keep) {
    let world = World::new(keep);
    let first = Arc::new(world.bench());
    world.inbox.begin(&first.handle, 2, first.now());
    let server = first.serve();
    let pusher = world.pusher(&first, 0, 4);
    let stopped = first.clone();
    let stopper = thread::spawn(move || stopped.stop());
    let second = Arc::new(world.bench());
    let (inbox, other) = (world.inbox.clone(), second.clone());
    let connector = thread::spawn(move || {
        inbox.begin(&other.handle, 2, other.now());
        offer(&inbox, &other.handle, head(1, 0, other.now()))
    });
    let later = second.serve();
    pusher.join().unwrap();
    stopper.join().unwrap();
    server.join().unwrap();
    assert_eq!(connector.join().unwrap(), Offered::Taken);
    let (given, own) = (world.given.clone(), second.handle.operation());
    let has_own = || given.lock().unwrap().iter().any(|row| row.0 == own);
    let (calls, called) = (&world.calls.0, &world.calls.1);
    let mut count = calls.lock().unwrap();
    while !has_own() {
        count = called.wait(count).unwrap();
    }
    drop(count);
    second.stop();
    later.join().unwrap();
    // Events for jobs of a stopped dispatcher are omitted at the next connection.
    let third = world.bench();
    world.inbox.begin(&third.handle, 2, third.now());
    world.check();
    let given = world.given.lock().unwrap();
    assert!(given.iter().all(|row| (row.0 == own) == (row.1 == 1)), "{given:?}");
}

#[test]
fn shuttle_each_set_is_handled_once_or_counted() {
    for keep in [Keep::All, Keep::Latest] {
        for body in [connected_again, changed_by_its_consumer] {
            explore(RandomScheduler::new(runs()), move || body(keep));
            explore(PctScheduler::new(3, runs()), move || body(keep));
        }
    }
}

#[test]
fn shuttle_a_later_dispatcher_is_given_nothing_of_a_former_one() {
    for keep in [Keep::All, Keep::Latest] {
        explore(RandomScheduler::new(runs()), move || a_later_dispatcher_is_given_nothing_of_a_former_one(keep));
        explore(PctScheduler::new(3, runs()), move || a_later_dispatcher_is_given_nothing_of_a_former_one(keep));
    }
}

/// The first thread to read the clock may be the last to get the lock. Its time may be an hour old,
/// or of another dispatcher.
#[test]
fn the_time_of_an_inbox_does_not_go_back_and_is_one_dispatchers() {
    let checked = || {
        let world = World::new(Keep::All);
        let (first, second) = (world.bench(), world.bench());
        let ms = |ms| Time::ZERO + Span::from_ms(ms);
        let silence = Filter::Silence { of: Pattern::kind(1), span: Span::from_ms(10) };
        world.inbox.state.lock().correlator = Correlator::new(&silence, Time::ZERO);
        let next = || world.inbox.state.lock().next_time();
        world.inbox.begin(&first.handle, 2, ms(0));
        assert_eq!(next(), Some(ms(10)));
        offer(&world.inbox, &first.handle, head(0, 0, ms(8)));
        offer(&world.inbox, &first.handle, head(0, 1, ms(3)));
        assert_eq!(next(), Some(ms(18)), "the later of both was the last");
        world.inbox.begin(&second.handle, 2, ms(1));
        assert_eq!(offer(&world.inbox, &first.handle, head(0, 2, ms(3_600_000))), Offered::Passed);
        let mut wakes = Wakes::default();
        world.inbox.pass_time(&first.handle, ms(3_600_000), &mut wakes);
        assert_eq!((next(), world.inbox.counts().complete), (Some(ms(11)), 0), "by the clock of the second");
    };
    shuttle::check_random(checked, 1);
}

/// A set is put off under the rule of the latest, and then all sets are kept. It neither replaces a
/// set nor is replaced.
#[test]
fn a_set_that_was_put_off_goes_by_the_rule_that_holds_now() {
    let checked = || {
        let world = |bench: &Bench| {
            let world = World::new(Keep::Latest);
            world.inbox.begin(&bench.handle, 2, bench.now());
            world
        };
        let keep_all =
            |world: &World| Subscription { inbox: world.inbox.clone(), channel: Weak::new() }.reconnect(Pattern::ANY);
        let put_off = |world: &World| world.inbox.next_time().is_some();
        let hourly = Operation::sporadic("one", Span::from_s(3600)).wcet(Span::from_ns(1)).backlog(2);
        let bench = Bench::of(hourly, Box::new(|_| ()));
        let paced = world(&bench);
        let push = |number| offer(&paced.inbox, &bench.handle, head(0, number, bench.now()));
        bench.handle.push().unwrap();
        assert_eq!((push(0), put_off(&paced)), (Offered::Taken, true));
        keep_all(&paced).unwrap();
        assert_eq!([1, 2, 3].map(push), [Offered::Rejected; 3], "each comes before the least distance is over");
        let counts = paced.inbox.counts();
        assert_eq!((counts.complete, counts.rejected, counts.replaced, put_off(&paced)), (4, 3, 0, true));
        let bench = paced.bench();
        let busy = world(&bench);
        assert_eq!(offer(&busy.inbox, &bench.handle, head(0, 0, bench.now())), Offered::Taken);
        let early = Early { leaves: 1, until: bench.now(), dispatching: bench.handle.dispatching() };
        busy.inbox.state.lock().put_off(early, Some((&head(0, 1, bench.now()), b"")));
        keep_all(&busy).unwrap();
        while put_off(&busy) {
            busy.inbox.pass_time(&bench.handle, bench.now(), &mut Wakes::default());
        }
        assert_eq!(
            (busy.inbox.counts().replaced, busy.inbox.taken().count()),
            (0, 2),
            "each waits for a job of its own"
        );
    };
    shuttle::check_random(checked, 1);
}
