//! A gateway while it runs: what Zenoh is told, and the threads between its queues and the channel.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_dispatch::Plan;
use takt_dispatch::event::peer::{ArrivalTimes, HOPS_MAX, Origins, PresenceChange, Receipt};
use takt_dispatch::event::wire::{Body, Datagram};
use takt_dispatch::event::{Channel, EventError, Inlet, Outlet, OutletEvent};
use takt_linux::{Epoch, clock, sched};
use takt_model::{Span, Time};
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Subscriber;
use zenoh::qos::{CongestionControl, Priority};
use zenoh::sample::{Locality, Sample, SampleKind};
use zenoh::{Session, Wait};

use crate::gateway::{Gateway, OpenError, Route, RouteTraffic, Traffic};
use crate::header::{self, ATTACHMENT, ROUTES_MAX};
use crate::peers::Peers;

/// How long a thread sleeps at most before it looks whether it is to end.
const LOOK_MAX: Span = Span::from_ms(200);

#[derive(Default)]
struct Tally {
    events: AtomicU64,
    foreign: AtomicU64,
    late: AtomicU64,
    unsynchronized: AtomicU64,
    skewed: AtomicU64,
    unconnected: AtomicU64,
    forwarded: AtomicU64,
    duplicates: AtomicU64,
    old: AtomicU64,
    loops: AtomicU64,
    malformed: AtomicU64,
    overflowed: AtomicU64,
    found: AtomicU64,
    lost: AtomicU64,
    twins: AtomicU64,
}

fn count(tally: &AtomicU64) {
    tally.fetch_add(1, Ordering::Relaxed);
}

fn load(tally: &AtomicU64) -> u64 {
    tally.load(Ordering::Relaxed)
}

/// A route while it runs.
struct ActiveRoute {
    route: Route,
    /// Its place among the gateway's routes.
    place: u16,
    priority: Priority,
    express: bool,
    outlet: Outlet,
    sent: AtomicU64,
    stale: AtomicU64,
    refused: AtomicU64,
}

/// The state that all threads of a gateway share.
struct Shared {
    gateway: Gateway,
    session: Session,
    inlet: Inlet,
    payload_max: usize,
    incarnation: u64,
    clock_number: u64,
    epoch: Epoch,
    ways: Vec<ActiveRoute>,
    peers: Mutex<Peers>,
    stopped: AtomicBool,
    tally: Tally,
}

/// A sample, and when it came by the gateway's clock.
struct ReceivedSample {
    at: u64,
    sample: Sample,
}

/// A gateway is open while it has this. Dropped, it stops, and Zenoh forgets it; the session stays.
#[must_use = "the gateway is closed when this is dropped"]
pub struct Opened {
    shared: Arc<Shared>,
    /// Its token and subscribers, which are taken back first.
    declared: Option<(LivelinessToken, Vec<Subscriber<()>>)>,
    threads: Vec<JoinHandle<()>>,
}

impl Gateway {
    /// Opens it, between a session of Zenoh's and a channel that is not connected yet; `plan` is
    /// that of the channel's dispatcher. To be called by an ordinary thread that is none of an
    /// asynchronous runtime.
    ///
    /// # Errors
    /// The gateway is wrong, the calling thread is a real-time one, or Zenoh or the kernel refused something.
    pub fn open(&self, session: &Session, channel: &Channel, plan: &Plan) -> Result<Opened, OpenError> {
        let payload_max = channel.options().payload_max;
        if let Some(wrong) = self.wrong(plan, payload_max, &sched::current()) {
            return Err(wrong);
        }
        let way = |(place, (route, (priority, express))): (usize, (&Route, (Priority, bool)))| {
            let outlet = channel.outlet(&route.sends, route.room, route.full).map_err(|_| OpenError::Connected)?;
            let counts = || AtomicU64::new(0);
            let (sent, stale, refused) = (counts(), counts(), counts());
            let route = route.clone();
            Ok(ActiveRoute { route, place: place as u16, priority, express, outlet, sent, stale, refused })
        };
        let ways = self.routes.iter().zip(self.ways(plan)).enumerate().map(way).collect::<Result<_, OpenError>>()?;
        let shared = Arc::new(Shared {
            gateway: self.clone(),
            session: session.clone(),
            inlet: channel.inlet(),
            payload_max,
            incarnation: clock::realtime_ns(),
            clock_number: self.clock.number(),
            epoch: Epoch::now_is_zero(),
            ways,
            peers: Mutex::new(Peers::new(self.nodes_max)),
            stopped: AtomicBool::new(false),
            tally: Tally::default(),
        });
        let mut opened = Opened { shared: shared.clone(), declared: None, threads: Vec::new() };
        for place in 0..shared.ways.len() {
            let name = format!("zenoh {}", self.routes.get(place).map_or("", |route| &route.name));
            opened.spawn(name, move |shared| shared.ways.get(place).into_iter().for_each(|way| shared.empty(way)))?;
        }
        let (samples, came) = mpsc::sync_channel(self.room);
        opened.spawn("takt from zenoh".to_owned(), move |shared| {
            let mut room = Room::new(shared);
            shared.listen(&came, |shared, came| came.into_iter().for_each(|came| shared.take(came, &mut room)));
        })?;
        // Room for one is enough: its receiver looks at all changes.
        let (turned, turns) = mpsc::sync_channel(1);
        opened.spawn("takt peers".to_owned(), move |shared| {
            shared.listen(&turns, |shared, _: Option<&()>| shared.report_presence())
        })?;
        opened.declare(&samples, turned)?;
        Ok(opened)
    }
}

impl Opened {
    fn spawn(&mut self, name: String, body: impl FnOnce(&Shared) + Send + 'static) -> Result<(), OpenError> {
        let own = self.shared.clone();
        let spawned = std::thread::Builder::new().name(name.clone()).spawn(move || body(&own));
        self.threads.push(spawned.map_err(|cause| OpenError::Thread { thread: name, cause: cause.to_string() })?);
        Ok(())
    }

    /// Declares the gateway's subscriptions and its presence to Zenoh.
    fn declare(&mut self, samples: &SyncSender<ReceivedSample>, turned: SyncSender<()>) -> Result<(), OpenError> {
        let shared = &self.shared;
        let (gateway, session) = (&shared.gateway, &shared.session);
        let refused = |what: String| move |cause: zenoh::Error| OpenError::Refused { what, cause: cause.to_string() };
        let mut subscribers = Vec::new();
        for key in &gateway.subscriptions {
            let subscriber = session.declare_subscriber(key).allowed_origin(Locality::Remote);
            let subscriber = subscriber.callback(shared.checked(shared.into_queue(samples))).wait();
            subscribers.push(subscriber.map_err(refused(format!("a subscriber to \"{key}\"")))?);
        }
        let all = format!("{}/*/alive/*", gateway.prefix);
        let subscriber = session.liveliness().declare_subscriber(&all).history(true);
        let own = shared.clone();
        let subscriber = subscriber.callback(move |token| {
            own.turn(&token);
            // If the channel is full, a look is already pending.
            let _ = turned.try_send(());
        });
        let subscriber = subscriber.wait();
        subscribers.push(subscriber.map_err(refused(format!("a liveliness subscriber to \"{all}\"")))?);
        let own = format!("{}/{}/alive/{}", gateway.prefix, gateway.node, shared.incarnation);
        let token = session.liveliness().declare_token(&own).wait();
        let token = token.map_err(refused(format!("the liveliness token \"{own}\"")))?;
        self.declared = Some((token, subscribers));
        Ok(())
    }

    /// The counters so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let (shared, tally) = (&self.shared, &self.shared.tally);
        Traffic {
            routes: shared.ways.iter().map(ActiveRoute::traffic).collect(),
            events: load(&tally.events),
            foreign: load(&tally.foreign),
            late: load(&tally.late),
            unsynchronized: load(&tally.unsynchronized),
            skewed: load(&tally.skewed),
            unconnected: load(&tally.unconnected),
            forwarded: load(&tally.forwarded),
            duplicates: load(&tally.duplicates),
            old: load(&tally.old),
            loops: load(&tally.loops),
            malformed: load(&tally.malformed),
            overflowed: load(&tally.overflowed),
            found: load(&tally.found),
            lost: load(&tally.lost),
            twins: load(&tally.twins),
            peers: shared.peers().nodes(),
        }
    }

    /// Closes the gateway and returns the final counters. Waits for a route's thread that waits for
    /// room in Zenoh's queue ([`Route::congestion`]).
    #[must_use = "dropping it closes it, too"]
    pub fn close(mut self) -> Traffic {
        self.stop();
        self.traffic()
    }

    fn stop(&mut self) {
        // Taken back while the threads still run: what Zenoh calls meanwhile finds them.
        drop(self.declared.take());
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.ways.iter().for_each(|way| way.outlet.close());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ActiveRoute {
    fn traffic(&self) -> RouteTraffic {
        let (sent, stale, refused) = (load(&self.sent), load(&self.stale), load(&self.refused));
        // After them: what was counted as sent was pushed.
        let passed = self.outlet.passed();
        RouteTraffic {
            name: self.route.name.clone(),
            priority: self.priority,
            express: self.express,
            pushed: passed.pushed,
            sent,
            full: passed.full,
            stale,
            refused,
            waiting: passed.pushed.saturating_sub(passed.full + sent + stale + refused),
        }
    }
}

/// The state of the thread that offers received events.
struct Room {
    /// By route: each counts for itself.
    origins: Vec<Origins>,
    bytes: Vec<u8>,
    /// The number of the next sample without an attachment.
    next: u64,
}

impl Room {
    fn new(shared: &Shared) -> Room {
        let origins = || Origins::new(shared.gateway.nodes_max, shared.gateway.forgotten_after);
        Room { origins: (0..ROUTES_MAX).map(|_| origins()).collect(), bytes: Vec::new(), next: 0 }
    }
}

impl Shared {
    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Rejects too long samples before they wait or are copied. The queue's room is counted in
    /// samples, not bytes.
    fn checked(
        self: &Arc<Self>,
        then: impl Fn(Sample) + Send + Sync + 'static,
    ) -> impl Fn(Sample) + Send + Sync + 'static {
        let own = self.clone();
        move |sample| {
            let attached = sample.attachment().is_none_or(|attachment| attachment.len() == ATTACHMENT);
            if attached && sample.payload().len() <= own.payload_max {
                then(sample);
            } else {
                count(&own.tally.malformed);
            }
        }
    }

    /// The callback for Zenoh's own threads: it puts a sample into a queue.
    fn into_queue(self: &Arc<Self>, queue: &SyncSender<ReceivedSample>) -> impl Fn(Sample) + Send + Sync + 'static {
        let (own, queue) = (self.clone(), queue.clone());
        move |sample| {
            if queue.try_send(ReceivedSample { at: own.gateway.clock.now(), sample }).is_err() {
                count(&own.tally.overflowed);
            }
        }
    }

    /// A thread that takes from such a queue, for its whole life; now and then it is called without anything.
    fn listen<T>(&self, queue: &Receiver<T>, mut take: impl FnMut(&Shared, Option<&T>)) {
        while !self.is_stopped() {
            match queue.recv_timeout(Duration::from_nanos(LOOK_MAX.as_ns())) {
                Ok(came) => take(self, Some(&came)),
                Err(RecvTimeoutError::Timeout) => take(self, None),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The thread of a route, for its whole life.
    fn empty(&self, way: &ActiveRoute) {
        let mut leaving = way.outlet.leaving();
        let mut sequence = 0;
        while !self.is_stopped() {
            if way.outlet.next(&mut leaving, LOOK_MAX) {
                count(self.publish(way, sequence, &leaving));
                sequence += 1;
            }
        }
    }

    /// Publishes an event of this node. Returns the counter of the route to increment.
    fn publish<'a>(&self, way: &'a ActiveRoute, sequence: u64, leaving: &OutletEvent) -> &'a AtomicU64 {
        // The clock first: a pause in between counts against the event, never for it.
        let sent = self.gateway.clock.now();
        let (head, payload, remaining, due) = (leaving.head(), leaving.payload(), leaving.remaining(), leaving.due());
        if remaining == Span::ZERO {
            return &way.stale;
        }
        let body = Body::Event { kind: head.kind, source: head.source, number: head.number, payload };
        let (node, incarnation, clock) = (self.gateway.node, self.incarnation, self.clock_number);
        let datagram = Datagram { hops: 0, node, incarnation, sequence, clock, sent, remaining, due, body };
        let taken = self.put(&datagram, way.place, way.priority, way.express, way.route.congestion);
        if taken { &way.sent } else { &way.refused }
    }

    /// Whether Zenoh took it.
    fn put(
        &self,
        datagram: &Datagram<'_>,
        route: u16,
        priority: Priority,
        express: bool,
        congestion: CongestionControl,
    ) -> bool {
        let Body::Event { kind, payload, .. } = datagram.body else { return false };
        let put = self.session.put(self.gateway.key(kind), payload);
        let put = put.priority(priority).express(express).congestion_control(congestion);
        put.attachment(header::write(datagram, route)).allowed_destination(Locality::Remote).wait().is_ok()
    }

    /// A sample came.
    fn take(&self, came: &ReceivedSample, room: &mut Room) {
        let (sample, tally) = (&came.sample, &self.tally);
        // No longer than the channel's: that was seen before it waited.
        let payload = sample.payload().to_bytes();
        // `<node>/<type>`, where the key has that many parts.
        let mut parts = sample.key_expr().as_str().rsplit('/');
        let (kind, node) = (parts.next().and_then(decimal::<u32>), parts.next().and_then(decimal::<u64>));
        let Some(kind) = kind.filter(|_| sample.kind() == SampleKind::Put) else {
            return count(&tally.malformed);
        };
        let Some(attachment) = sample.attachment() else {
            return self.take_foreign(came, kind, &payload, room);
        };
        let Room { origins, bytes, .. } = room;
        let Ok((datagram, route)) = header::read(&attachment.to_bytes(), &payload, bytes) else {
            return count(&tally.malformed);
        };
        // Keys decide who may publish which events. This node's own events may come back by any
        // forwarding node; they go no further.
        let forwarded = self.gateway.accepts_forwarded || datagram.node == self.gateway.node;
        let may = node == Some(datagram.node) || datagram.hops > 0 && forwarded;
        if !matches!(datagram.body, Body::Event { kind: inner, .. } if inner == kind) || !may {
            return count(&tally.malformed);
        }
        if datagram.node == self.gateway.node || datagram.hops > HOPS_MAX {
            return count(&tally.loops);
        }
        let origins = origins.get_mut(route);
        let stream = origins
            .and_then(|origins| origins.of(datagram.node, datagram.incarnation, datagram.sequence, self.epoch.now()));
        match stream.map_or(Receipt::Old, |stream| stream.receive(datagram.sequence)) {
            Receipt::New => count(&tally.events),
            Receipt::Duplicate => return count(&tally.duplicates),
            Receipt::Old => return count(&tally.old),
        }
        // The clocks first: a pause after that counts against the event, never for it.
        let (at, now) = (self.inlet.now(), self.gateway.clock.now());
        if let Some(left) = self.left(&datagram, came.at, now) {
            self.offer(&datagram, &left, at);
            self.forward(&datagram, &left, now, route as u16, sample);
        }
    }

    /// The remaining time of an event at `now`; nothing if it is over.
    fn left(&self, datagram: &Datagram<'_>, came: u64, now: u64) -> Option<ArrivalTimes> {
        let mut left = ArrivalTimes::of(datagram, self.clock_number, now);
        if left.skewed {
            count(&self.tally.skewed);
        }
        if left.transit.is_none() {
            count(&self.tally.unsynchronized);
            // Its waiting time here is still known.
            left = left.after(Span::from_ns(now.saturating_sub(came)));
        }
        if left.remaining == Span::ZERO {
            count(&self.tally.late);
            return None;
        }
        Some(left)
    }

    /// A sample of a program that knows nothing of takt.
    fn take_foreign(&self, came: &ReceivedSample, kind: u32, payload: &[u8], room: &mut Room) {
        let Some(foreign) = self.gateway.foreign else { return count(&self.tally.malformed) };
        let at = self.inlet.now();
        let waited = Span::from_ns(self.gateway.clock.now().saturating_sub(came.at));
        let left = ArrivalTimes { remaining: foreign.ttl, due: Span::MAX, transit: None, skewed: false }.after(waited);
        if left.remaining == Span::ZERO {
            count(&self.tally.foreign);
            return count(&self.tally.late);
        }
        match self.inlet.offer(kind, foreign.source, room.next, &left, at, payload) {
            Err(EventError::TooLong { .. } | EventError::Reserved(_)) => return count(&self.tally.malformed),
            Err(EventError::NotConnected) => count(&self.tally.unconnected),
            Ok(_) => {}
        }
        room.next += 1;
        count(&self.tally.foreign);
    }

    fn offer(&self, datagram: &Datagram<'_>, left: &ArrivalTimes, at: Time) {
        let Body::Event { kind, source, number, payload } = datagram.body else { return };
        // Its type and length are valid, so only an unconnected channel refuses it.
        if self.inlet.offer(kind, source, number, left, at, payload).is_err() {
            count(&self.tally.unconnected);
        }
    }

    /// Publishes what came anew; so much was left of its time at `sent`.
    fn forward(&self, datagram: &Datagram<'_>, left: &ArrivalTimes, sent: u64, route: u16, sample: &Sample) {
        // The next node would drop it.
        if !self.gateway.forwards || datagram.hops >= HOPS_MAX {
            return;
        }
        let (clock, hops) = (self.clock_number, datagram.hops + 1);
        let datagram = Datagram { hops, clock, sent, remaining: left.remaining, due: left.due, ..*datagram };
        // With `Drop`, because the next sample waits behind it: where no sample of its priority
        // blocks (`Route::congestion`), not for long.
        if self.put(&datagram, route, sample.priority(), sample.express(), CongestionControl::Drop) {
            count(&self.tally.forwarded);
        }
    }

    /// A token came or went. On Zenoh's own threads.
    fn turn(&self, token: &Sample) {
        let (key, tally) = (token.key_expr().as_str(), &self.tally);
        let mut parts = key.rsplit('/');
        let (run, _, node) = (parts.next(), parts.next(), parts.next());
        let Some((run, node)) = run.and_then(decimal::<u64>).zip(node.and_then(decimal::<u64>)) else {
            return count(&tally.malformed);
        };
        let comes = token.kind() == SampleKind::Put;
        if node == self.gateway.node {
            if comes && run != self.incarnation {
                count(&tally.twins);
            }
            return;
        }
        let turns = {
            let mut peers = self.peers();
            let gone = |gone: bool| if gone { &[PresenceChange::Lost][..] } else { &[] };
            if comes { peers.come(node, run) } else { Some(gone(peers.go(node, run))) }
        };
        let Some(turns) = turns else { return count(&tally.overflowed) };
        for turn in turns {
            count(if *turn == PresenceChange::Found { &tally.found } else { &tally.lost });
        }
    }

    /// Tells consumers the news about present nodes, including consumers of a channel that was
    /// connected later. News for a consumer without enough room is told again at the next look,
    /// before any other news of that node.
    fn report_presence(&self) {
        let Some(connection) = self.inlet.connection() else { return };
        let turns = self.peers().turns(connection);
        let mut untold = BTreeSet::new();
        for (turn, node) in turns {
            if untold.contains(&node) {
                continue;
            }
            match self.inlet.report_presence(turn, node, self.gateway.source) {
                Ok(pushed) if pushed.rejected > 0 => {
                    untold.insert(node);
                }
                Ok(_) => self.peers().mark_reported(turn, node),
                // The channel is connected no more: its next connection is told.
                Err(_) => return,
            }
        }
    }
}

/// A number as keys have it: one way to write each.
fn decimal<N: std::str::FromStr + ToString>(text: &str) -> Option<N> {
    text.parse().ok().filter(|number: &N| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_way_to_be_written() {
        assert_eq!(["0", "7", "4294967295"].map(decimal::<u32>), [Some(0), Some(7), Some(u32::MAX)]);
        assert_eq!(["", "07", "+7", "-1", "4294967296", "x", "*"].map(decimal::<u32>), [None; 7]);
    }
}
