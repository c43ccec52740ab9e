//! A channel's threads under a model checker in which no sleep ends by itself (sync.rs). Each push
//! must wake the right threads. On a real kernel a lost wake-up only delays an event by a second,
//! which no test can tell from a slow machine.

use std::net::UdpSocket;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;
use takt_model::Builtin;

use super::*;
use crate::event::filter::Filter;
use crate::event::{Level, Sending};
use crate::live_model::{Bench, explore, runs};
use crate::{Limits, Operation, Operations};

/// When the consumer's timeout is due: earlier than the timeout thread would look by itself
/// ([`IDLE_MAX`]).
const DUE: Span = Span::from_ms(2);
const SOON: Span = Span::from_ms(1);

/// A channel connected to a dispatcher without threads. Its time stands still.
struct World {
    channel: Channel,
    live: Arc<Live>,
    subscription: Subscription,
}

impl World {
    fn new(channel: Channel, filter: Filter, lanes: Vec<Lane>) -> World {
        let operation = || Operation::sporadic("one", Span::from_ns(1)).wcet(Span::from_ns(1)).backlog(2);
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        let plan = Operations::new("one").with(operation()).compute(&Builtin::Muf.strategy(), &limits).unwrap();
        let subscription = channel.subscribe(&plan, "one", filter).unwrap();
        let bench = Bench::of(operation(), Box::new(|_| ()));
        subscription.inbox.begin(&bench.handle, 2, Time::ZERO);
        let live = Arc::new(Live {
            consumers: Consumers {
                number: 0,
                dispatching: bench.handle.dispatching(),
                history: None,
                order: Order::of(&plan, &["one"], lanes.iter().map(|lane| (lane.may_block(), lane.level))),
                all: vec![(subscription.inbox.clone(), bench.handle)],
                cpus: Vec::new(),
                clock: Epoch::in_future(Span::from_s(3600)),
                timer: Futex::new(0),
                until: sync::AtomicU64::new(u64::MAX),
                stopped: AtomicBool::new(false),
            },
            lanes,
            outlets: channel.inner.outlets.lock().iter().filter_map(Weak::upgrade).collect(),
            gate: Futex::new(0),
        });
        *channel.inner.live.lock() = Some(live.clone());
        World { channel, live, subscription }
    }

    fn push(&self) -> Pushed {
        self.channel.supplier(1).push(1, b"").unwrap()
    }

    fn thread(&self, body: impl FnOnce(&Live) + Send + 'static) -> thread::JoinHandle<()> {
        let live = self.live.clone();
        thread::spawn(move || body(&live))
    }

    /// Asserts that the timeout thread learns of a time this far away, which is due before its next
    /// look.
    fn is_told_of_time(&self, after: Span) {
        let due = Time::ZERO.saturating_add(after);
        assert_eq!(self.subscription.inbox.next_time(), Some(due));
        // If it does not learn, this loop never ends, and the model checker reports that.
        while self.live.consumers.until.load(Ordering::Acquire) != due.as_ns() {
            thread::yield_now();
        }
    }

    fn stop(&self, thread: thread::JoinHandle<()>) {
        self.live.stop(&mut Vec::new());
        thread.join().unwrap();
    }
}

/// A filter that completes this long after an event.
fn once_pushed(span: Span) -> Filter {
    Filter::sequence([Pattern::kind(1).into(), Filter::Timeout(span)])
}

fn either(body: fn()) {
    explore(RandomScheduler::new(runs()), body);
    explore(PctScheduler::new(3, runs()), body);
}

#[test]
fn shuttle_an_event_that_brings_a_time_with_it_wakes_the_thread_of_timeouts() {
    either(|| {
        let world = World::new(Channel::new(Options::default()), once_pushed(DUE), Vec::new());
        let timer = world.thread(|live| live.consumers.keep_time());
        assert_eq!(world.push().kept, 1);
        world.is_told_of_time(DUE);
        world.stop(timer);
    });
}

/// The end of an earlier sleep must not be compared with a new time.
#[test]
fn shuttle_a_time_that_an_event_brings_while_the_thread_of_timeouts_looks_is_not_missed() {
    either(|| {
        let world = World::new(Channel::new(Options::default()), once_pushed(SOON), Vec::new());
        let timer = world.thread(|live| live.consumers.keep_time());
        assert_eq!(world.push().kept, 1);
        world.is_told_of_time(SOON);
        // The thread looks and finds no timeout, or finds the next one.
        world.subscription.reconnect(once_pushed(DUE)).unwrap();
        assert_eq!(world.push().kept, 1);
        world.is_told_of_time(DUE);
        world.stop(timer);
    });
}

#[test]
fn shuttle_a_subscription_that_waits_for_a_time_from_now_on_wakes_the_thread_of_timeouts() {
    either(|| {
        let world = World::new(Channel::new(Options::default()), Pattern::ANY.into(), Vec::new());
        let timer = world.thread(|live| live.consumers.keep_time());
        world.subscription.reconnect(Filter::Timeout(DUE)).unwrap();
        world.is_told_of_time(DUE);
        world.stop(timer);
    });
}

#[test]
fn shuttle_a_push_wakes_who_takes_from_an_outlet() {
    either(|| {
        let channel = Channel::new(Options::default());
        let outlet = channel.outlet(&[Pattern::kind(1)], 2, Full::Newest).unwrap();
        let world = World::new(channel, Pattern::kind(2).into(), Vec::new());
        let taker = thread::spawn(move || {
            let mut leaving = outlet.leaving();
            let took = outlet.next(&mut leaving, Span::MAX);
            (took, leaving.head().kind)
        });
        assert_eq!(world.push().sent, 1);
        assert_eq!(taker.join().unwrap(), (true, 1));
    });
}

#[test]
fn shuttle_a_push_wakes_the_thread_that_sends() {
    either(|| {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let level = Level::new("queued", ([127, 0, 0, 1], 0).into()).peer(peer.local_addr().unwrap());
        let level = level.sends(Pattern::kind(1)).sending(Sending::Queued { room: 2, full: Full::Newest });
        let lane = Lane::open(&Node::new(1).with(level), 0, &[0], 256, 1).unwrap();
        let world = World::new(Channel::new(Options::default()), Pattern::kind(2).into(), vec![lane]);
        let sender = world.thread(|live| live.lanes[0].empty(&live.consumers));
        assert_eq!(world.push().sent, 1);
        while world.live.lanes[0].traffic().sent == 0 {
            thread::yield_now();
        }
        world.stop(sender);
    });
}
