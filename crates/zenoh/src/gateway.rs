//! A gateway as plain data: its routes and subscriptions, its validation, and its counters.

use takt_dispatch::Plan;
use takt_dispatch::event::{Bits, Clock, Full, Pattern, wire};
use takt_linux::Class;
use takt_model::Span;
use thiserror::Error;
use zenoh::key_expr::keyexpr;
use zenoh::qos::{CongestionControl, Priority};

use crate::header::ROUTES_MAX;
use crate::priority::priorities;

/// Maps events to one of Zenoh's priorities. A route is a bounded queue with an ordinary thread
/// that empties it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Its name, in errors and in what is counted: up to 64 bytes, none of them zero.
    pub name: String,
    /// Which events leave by it. No event may be meant by two routes.
    pub sends: Vec<Pattern>,
    /// The level of the plan by which its priority goes ([`crate::priority`]). Default 0, the most urgent.
    pub level: usize,
    /// A priority of its own instead.
    pub priority: Option<Priority>,
    /// Whether a sample is sent at once and not put together with others. Default: if its priority is `RealTime`.
    pub express: Option<bool>,
    /// How Zenoh treats a sample when its own queue is full. Default `Drop`: Zenoh drops the sample
    /// after a short wait (`wait_before_drop`, 1 ms).
    ///
    /// With `Block` the route's thread waits and the route's queue fills. Events that find no room
    /// there are counted. After its `wait_before_close` (5 s) Zenoh gives the sample up and closes
    /// the link, with all samples that wait there. While a `Block` sample waits, a `Drop` sample of
    /// the same priority waits behind it.
    ///
    /// *Zenoh never reports a dropped sample, with either setting*: [`RouteTraffic::sent`] counts
    /// the samples that Zenoh accepted.
    pub congestion: CongestionControl,
    /// How many events can wait for its thread, 1 to 65,536. Default 256.
    pub room: usize,
    /// Which event is dropped when the queue is full. Default [`Full::Newest`].
    pub full: Full,
}

impl Route {
    /// Without events yet.
    #[must_use]
    pub fn new(name: &str) -> Route {
        Route {
            name: name.to_owned(),
            sends: Vec::new(),
            level: 0,
            priority: None,
            express: None,
            congestion: CongestionControl::Drop,
            room: 256,
            full: Full::Newest,
        }
    }

    /// With events that leave by it.
    #[must_use]
    pub fn sends(mut self, pattern: Pattern) -> Route {
        self.sends.push(pattern);
        self
    }

    /// With the priority of this level of the plan.
    #[must_use]
    pub fn level(mut self, level: usize) -> Route {
        self.level = level;
        self
    }

    /// With this priority, whatever the plan says.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Route {
        self.priority = Some(priority);
        self
    }

    /// Each sample at once, or together with others.
    #[must_use]
    pub fn express(mut self, express: bool) -> Route {
        self.express = Some(express);
        self
    }

    /// With this answer to a full queue of Zenoh's.
    #[must_use]
    pub fn congestion(mut self, congestion: CongestionControl) -> Route {
        self.congestion = congestion;
        self
    }

    /// With a queue for so many, and this answer to one too many.
    #[must_use]
    pub fn queue(mut self, room: usize, full: Full) -> Route {
        (self.room, self.full) = (room, full);
        self
    }
}

/// How samples without takt's attachment are offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// As which source they are offered.
    pub source: u32,
    /// How long they are of use from when they came; [`Span::MAX`]: for ever.
    pub ttl: Span,
}

/// A process among others that share events by Zenoh.
///
/// ```
/// use takt_dispatch::event::Pattern;
/// use takt_zenoh::{Gateway, Route};
///
/// let tracks = Route::new("tracks").sends(Pattern::kind(1));
/// let gateway = Gateway::new(1, "fleet/red").with(tracks).subscribe("fleet/red/*/1");
/// assert_eq!(gateway.key(5), "fleet/red/1/5");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gateway {
    /// Its number, which no other has.
    pub node: u64,
    /// The prefix of its keys. Its events have the keys `<prefix>/<node>/<type>`, in decimal. Its
    /// liveliness token is `<prefix>/<node>/alive/<run>`.
    pub prefix: String,
    /// By which clock it tells times. Default [`Clock::Machine`].
    pub clock: Clock,
    /// What leaves. Default nothing: it only receives.
    pub routes: Vec<Route>,
    /// The key expressions that it subscribes to, up to 64. A sample's key ends in `/<node>/<type>`. No key
    /// may be meant by two of them.
    pub subscriptions: Vec<String>,
    /// Whether it accepts forwarded events: events of one node under the key of another. Default
    /// no: they count as malformed. Then only a publisher with access to a node's key can send
    /// events of that node. If yes, any publisher of a heard key can claim to forward, and so speak
    /// for every node.
    pub accepts_forwarded: bool,
    /// Samples without an attachment, of programs that know nothing of takt: the type is the last
    /// part of their key. Default: they count as malformed. They are not forwarded.
    pub foreign: Option<Foreign>,
    /// Whether it publishes received events anew under its own keys. This serves nodes that hear no
    /// others and accept forwarded events ([`Gateway::accepts_forwarded`]). Default no: Zenoh routes.
    pub forwards: bool,
    /// The most other nodes whose presence and received events are tracked, 1 to 4096. Default 64.
    pub nodes_max: usize,
    /// After how long a silence of a node its numbers may begin anew, should its clock have been set back. Default 2 s.
    pub forgotten_after: Span,
    /// How many samples can wait for the thread that offers them to consumers, 1 to 65,536. Default 1024.
    pub room: usize,
    /// The source of the events [`PEER_FOUND`](takt_dispatch::event::PEER_FOUND) and
    /// [`PEER_LOST`](takt_dispatch::event::PEER_LOST). Default 0.
    pub source: u32,
}

impl Gateway {
    /// With this number and prefix, neither routes nor keys to hear yet.
    #[must_use]
    pub fn new(node: u64, prefix: &str) -> Gateway {
        Gateway {
            node,
            prefix: prefix.to_owned(),
            clock: Clock::Machine,
            routes: Vec::new(),
            subscriptions: Vec::new(),
            accepts_forwarded: false,
            foreign: None,
            forwards: false,
            nodes_max: 64,
            forgotten_after: Span::from_s(2),
            room: 1024,
            source: 0,
        }
    }

    /// With another route.
    #[must_use]
    pub fn with(mut self, route: Route) -> Gateway {
        self.routes.push(route);
        self
    }

    /// Hearing this key expression, too.
    #[must_use]
    pub fn subscribe(mut self, key: &str) -> Gateway {
        self.subscriptions.push(key.to_owned());
        self
    }

    /// Taking what other nodes forward, or not.
    #[must_use]
    pub fn accepts_forwarded(mut self, so: bool) -> Gateway {
        self.accepts_forwarded = so;
        self
    }

    /// Taking samples of programs that know nothing of takt.
    #[must_use]
    pub fn accepting(mut self, source: u32, ttl: Span) -> Gateway {
        self.foreign = Some(Foreign { source, ttl });
        self
    }

    /// Telling times by this clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Gateway {
        self.clock = clock;
        self
    }

    /// Publishing anew what comes.
    #[must_use]
    pub fn forwarding(mut self) -> Gateway {
        self.forwards = true;
        self
    }

    /// The key of its events of a type.
    #[must_use]
    pub fn key(&self, kind: u32) -> String {
        format!("{}/{}/{kind}", self.prefix, self.node)
    }

    /// The first error in the gateway, if any.
    pub(crate) fn wrong(&self, plan: &Plan, payload_max: usize, class: &Class) -> Option<OpenError> {
        if *class != Class::Other {
            return Some(OpenError::RealTime(format!("{class:?}")));
        }
        if payload_max > wire::PAYLOAD_MAX {
            return Some(OpenError::Payload(payload_max));
        }
        if !(1..=ROOM_MAX).contains(&self.room) {
            return Some(OpenError::Samples(self.room));
        }
        if !(1..=NODES_MAX).contains(&self.nodes_max) {
            return Some(OpenError::Nodes(self.nodes_max));
        }
        if keyexpr::new(&self.prefix).map_or(true, keyexpr::is_wild) {
            return Some(OpenError::Prefix(self.prefix.clone()));
        }
        if self.subscriptions.len() > SUBSCRIPTIONS_MAX {
            return Some(OpenError::Subscriptions(self.subscriptions.len()));
        }
        let mut heard: Vec<&keyexpr> = Vec::new();
        for key in &self.subscriptions {
            let Ok(key) = keyexpr::new(key.as_str()) else { return Some(OpenError::Key(key.clone())) };
            if let Some(one) = heard.iter().find(|other| other.intersects(key)) {
                return Some(OpenError::HeardTwice { one: one.to_string(), other: key.to_string() });
            }
            heard.push(key);
        }
        if self.routes.len() > ROUTES_MAX {
            return Some(OpenError::Routes(self.routes.len()));
        }
        let levels = plan.levels.len();
        let of = |(at, route): (usize, &Route)| {
            let name = || route.name.clone();
            if route.name.len() > NAME_MAX || route.name.contains('\0') {
                return Some(OpenError::Name(name()));
            }
            if self.routes.iter().take(at).any(|other| other.name == route.name) {
                return Some(OpenError::Twice(name()));
            }
            if route.level >= levels && route.priority.is_none() {
                return Some(OpenError::Level { name: name(), level: route.level, levels });
            }
            if !(1..=ROOM_MAX).contains(&route.room) {
                return Some(OpenError::Room { name: name(), room: route.room });
            }
            let other = self.routes.iter().take(at).find(|other| overlap(&other.sends, &route.sends))?;
            Some(OpenError::Overlap { one: other.name.clone(), other: name() })
        };
        self.routes.iter().enumerate().find_map(of)
    }

    /// The priority of each route, and whether it sends at once.
    pub(crate) fn ways(&self, plan: &Plan) -> Vec<(Priority, bool)> {
        let levels = priorities(plan);
        let of = |route: &Route| {
            let by_level = || levels.get(route.level).copied().unwrap_or_default();
            let priority = route.priority.unwrap_or_else(by_level);
            (priority, route.express.unwrap_or(priority == Priority::RealTime))
        };
        self.routes.iter().map(of).collect()
    }
}

/// The most events that can wait on a route, and the most samples that can wait for the thread that
/// offers them.
const ROOM_MAX: usize = 1 << 16;
/// Nodes that are kept apart.
const NODES_MAX: usize = 1 << 12;
/// Key expressions that are heard.
const SUBSCRIPTIONS_MAX: usize = 64;
/// Bytes of a route's name.
const NAME_MAX: usize = 64;

/// Whether some event is meant by a pattern of both.
fn overlap(one: &[Pattern], other: &[Pattern]) -> bool {
    let both = |one: Bits, other: Bits| (one.value ^ other.value) & one.mask & other.mask == 0;
    let meets = |one: &Pattern, other: &Pattern| both(one.kind, other.kind) && both(one.source, other.source);
    one.iter().any(|one| other.iter().any(|other| meets(one, other)))
}

/// Why a gateway was not opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Its threads, and Zenoh's, would inherit the class.
    #[error("a gateway is opened by an ordinary thread: this thread is {0}, and threads that it starts would be too")]
    RealTime(String),
    /// No key can begin so.
    #[error(
        "the prefix \"{0}\" begins no key: parts, none empty, between single slashes, without *, $, ? and #, \
         as in \"fleet/red\""
    )]
    Prefix(String),
    /// No key expression.
    #[error(
        "\"{0}\" is no canonical key expression: parts, none empty, between single slashes, where * stands for \
         one part and ** for any number, as in \"fleet/*/1\""
    )]
    Key(String),
    /// Longer payloads than a header can tell.
    #[error(
        "events of this channel have up to {0} bytes, and a sample of the gateway has room for {most} \
         (Options::payload_max)",
        most = wire::PAYLOAD_MAX
    )]
    Payload(usize),
    /// Room for no sample, or for too many.
    #[error("the gateway has room for {0} samples; it can be for 1 to {ROOM_MAX} (Gateway::room)")]
    Samples(usize),
    /// No nodes, or too many.
    #[error("the gateway keeps {0} nodes apart; it can be 1 to {NODES_MAX} (Gateway::nodes_max)")]
    Nodes(usize),
    /// Too many key expressions.
    #[error("{0} key expressions: a gateway subscribes to {SUBSCRIPTIONS_MAX} at most")]
    Subscriptions(usize),
    /// A sample would come twice.
    #[error("\"{one}\" and \"{other}\", both subscribed to, have keys in common: narrow one of them")]
    HeardTwice {
        /// One.
        one: String,
        /// The other.
        other: String,
    },
    /// A name that no thread can have.
    #[error("{0:?} names no route: up to {NAME_MAX} bytes, none of them zero")]
    Name(String),
    /// Too many routes.
    #[error("{0} routes: a gateway has {ROUTES_MAX} at most")]
    Routes(usize),
    /// Two routes with one name.
    #[error("two routes are named \"{0}\"")]
    Twice(String),
    /// The plan has no such level.
    #[error(
        "route \"{name}\" is to have the priority of level {level} of the plan, which has {levels}: choose one, \
         or say Route::priority"
    )]
    Level {
        /// Its name.
        name: String,
        /// Which it wants.
        level: usize,
        /// How many there are.
        levels: usize,
    },
    /// A queue for nothing, or for too much.
    #[error("route \"{name}\" has a queue for {room} events; it can be for 1 to {ROOM_MAX}")]
    Room {
        /// Its name.
        name: String,
        /// For how many.
        room: usize,
    },
    /// An event would leave twice.
    #[error("the routes \"{one}\" and \"{other}\" have events in common: narrow the patterns of one of them")]
    Overlap {
        /// One.
        one: String,
        /// The other.
        other: String,
    },
    /// The channel delivers already.
    #[error("the channel is connected: a gateway is opened before that")]
    Connected,
    /// Zenoh refused.
    #[error("Zenoh refused {what}: {cause}")]
    Refused {
        /// The refused request.
        what: String,
        /// Why.
        cause: String,
    },
    /// No thread.
    #[error("the thread \"{thread}\" could not be started: {cause}")]
    Thread {
        /// Its name.
        thread: String,
        /// Why.
        cause: String,
    },
}

/// The counters of a gateway.
///
/// Each received sample counts as one of `events`, `foreign`, `duplicates`, `old`, `loops`,
/// `malformed` and `overflowed`, or waits. Losses on the way are not counted. A gateway that receives
/// only some keys cannot tell a lost sample from a sample of another key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// The counters of outgoing events, by route.
    pub routes: Vec<RouteTraffic>,
    /// Events of other nodes that came, each counted once.
    pub events: u64,
    /// Samples without an attachment that were taken for events ([`Gateway::foreign`]).
    pub foreign: u64,
    /// Events and foreign samples whose time was over on arrival. No consumer got them.
    pub late: u64,
    /// Part of `events`: they came without a common clock. Their time under way did not count
    /// against their time.
    pub unsynchronized: u64,
    /// Part of `events`: by the common clock, they came before they were sent.
    pub skewed: u64,
    /// Events and foreign samples that came while the channel was not connected.
    pub unconnected: u64,
    /// Part of `events`: they were published anew.
    pub forwarded: u64,
    /// Events that came again.
    pub duplicates: u64,
    /// Events so old that nobody knows whether they came before, of a former run of their node, or
    /// of one node too many ([`Gateway::nodes_max`]).
    pub old: u64,
    /// This node's own events, and events that had gone through more than 16 nodes.
    pub loops: u64,
    /// Samples that are not of a gateway. They have no attachment ([`Gateway::foreign`]) or a
    /// foreign one. Or their key differs from the event's key ([`Gateway::accepts_forwarded`]). Or
    /// the payload is longer than the channel's. Or they are deletions.
    pub malformed: u64,
    /// Samples, and tokens, that found no room in the queue here, or among the nodes that are kept apart.
    pub overflowed: u64,
    /// Times that another gateway was found.
    pub found: u64,
    /// Times that one was lost.
    pub lost: u64,
    /// Other gateways found with this gateway's number. The events of a second gateway count as
    /// `loops`. A former run of this gateway is one too until its token ends.
    pub twins: u64,
    /// The gateways that are there, by their tokens.
    pub peers: Vec<u64>,
}

/// The counters of a route.
///
/// `pushed` = `sent` + `full` + `stale` + `refused` + `waiting`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RouteTraffic {
    /// Its name.
    pub name: String,
    /// Its priority.
    pub priority: Priority,
    /// Whether each sample is sent at once.
    pub express: bool,
    /// Events that were to leave by it.
    pub pushed: u64,
    /// Zenoh accepted them. Zenoh does not report their fate after that ([`Route::congestion`]).
    pub sent: u64,
    /// Dropped for lack of room in the route's queue.
    pub full: u64,
    /// Their time was over before they left.
    pub stale: u64,
    /// Zenoh refused them.
    pub refused: u64,
    /// Events that wait now, or waited when the gateway was closed.
    pub waiting: u64,
}

#[cfg(test)]
mod tests {
    use takt_dispatch::{Limits, Operation, Operations};
    use takt_model::Builtin;

    use super::*;

    fn plan() -> Plan {
        let ms = Span::from_ms;
        let operation = |name| Operation::sporadic(name, ms(10)).wcet(ms(1));
        let operations = Operations::new("robot").with(operation("steer")).with(operation("map").noncritical());
        operations.compute(&Builtin::Muf.strategy(), &Limits::default()).unwrap()
    }

    #[test]
    fn a_gateway_that_cannot_be_is_refused_with_what_to_do() {
        let plan = plan();
        let said = |gateway: &Gateway| {
            gateway.wrong(&plan, 256, &Class::Other).map(|wrong| wrong.to_string()).unwrap_or_default()
        };
        let gateway = Gateway::new(1, "fleet");
        let route = |name| Route::new(name).sends(Pattern::kind(1));
        assert_eq!(said(&gateway.clone().with(route("a")).subscribe("fleet/*/1").subscribe("fleet/*/2")), "");
        assert_eq!(
            said(&gateway.clone().subscribe("fleet/*/2").subscribe("fleet/*/1").subscribe("*/5/1")),
            "\"fleet/*/1\" and \"*/5/1\", both subscribed to, have keys in common: narrow one of them"
        );
        assert!(said(&gateway.clone().subscribe("fleet/**").subscribe("fleet/**")).contains("in common"));
        let keys = (0..65).map(|at| format!("fleet/*/{at}")).collect();
        let crowded = Gateway { subscriptions: keys, ..gateway.clone() };
        assert_eq!(said(&crowded), "65 key expressions: a gateway subscribes to 64 at most");
        for prefix in ["", "/fleet", "fleet/", "fleet//red", "fleet/*", "fleet/**", "fleet/a$*", "fleet?", "fleet#"] {
            assert!(said(&Gateway::new(1, prefix)).contains("begins no key"), "{prefix}");
        }
        assert_eq!(
            said(&gateway.clone().subscribe("fleet//1")),
            "\"fleet//1\" is no canonical key expression: parts, none empty, between single slashes, where * \
             stands for one part and ** for any number, as in \"fleet/*/1\""
        );
        assert_eq!(
            said(&gateway.clone().with(route("a").level(2))),
            "route \"a\" is to have the priority of level 2 of the plan, which has 2: choose one, \
             or say Route::priority"
        );
        assert_eq!(said(&gateway.clone().with(route("a").level(2).priority(Priority::Data))), "");
        assert_eq!(
            said(&gateway.clone().with(route("a")).with(Route::new("b").sends(Pattern::source(3)))),
            "the routes \"a\" and \"b\" have events in common: narrow the patterns of one of them"
        );
        assert_eq!(said(&gateway.clone().with(Route::new("a")).with(Route::new("a"))), "two routes are named \"a\"");
        assert_eq!(
            said(&gateway.clone().with(route("a").queue(0, Full::Oldest))),
            "route \"a\" has a queue for 0 events; it can be for 1 to 65536"
        );
        let many = (0..17).map(|at| Route::new(&at.to_string()));
        assert_eq!(said(&many.fold(gateway.clone(), Gateway::with)), "17 routes: a gateway has 16 at most");
        assert_eq!(
            said(&gateway.clone().with(route("a\0b"))),
            "\"a\\0b\" names no route: up to 64 bytes, none of them zero"
        );
        assert!(said(&gateway.clone().with(route(&"a".repeat(65)))).contains("names no route"));
        for room in [0, 65_537, usize::MAX] {
            let expected = format!("the gateway has room for {room} samples; it can be for 1 to 65536 (Gateway::room)");
            assert_eq!(said(&Gateway { room, ..gateway.clone() }), expected);
        }
        for nodes_max in [0, 4097, usize::MAX] {
            let expected =
                format!("the gateway keeps {nodes_max} nodes apart; it can be 1 to 4096 (Gateway::nodes_max)");
            assert_eq!(said(&Gateway { nodes_max, ..gateway.clone() }), expected);
        }
        assert_eq!(said(&Gateway { room: 65_536, nodes_max: 4096, ..gateway.clone() }), "");
        assert!(matches!(gateway.wrong(&plan, 70_000, &Class::Other), Some(OpenError::Payload(70_000))));
        let urgent = gateway.wrong(&plan, 256, &Class::Fifo { priority: 3 }).unwrap();
        assert!(urgent.to_string().contains("by an ordinary thread"), "{urgent}");
    }

    #[test]
    fn patterns_overlap_where_one_event_is_meant_by_both() {
        let (kind, source) = (Pattern::kind, Pattern::source);
        let bits = |value, mask| Pattern { kind: Bits { value, mask }, ..Pattern::ANY };
        assert!(overlap(&[kind(1)], &[kind(2), source(7)]) && overlap(&[Pattern::ANY], &[kind(1).from(2)]));
        assert!(!overlap(&[kind(1)], &[kind(2)]) && !overlap(&[kind(1).from(1)], &[kind(1).from(2)]));
        assert!(overlap(&[bits(0x10, 0xf0)], &[bits(1, 0xf)]) && !overlap(&[bits(0x10, 0xf0)], &[kind(0x21)]));
        assert!(!overlap(&[], &[Pattern::ANY]));
    }

    #[test]
    fn the_most_urgent_priority_is_sent_at_once_unless_the_route_says_otherwise() {
        let route = |name, level| Route::new(name).level(level);
        let gateway = Gateway::new(1, "fleet")
            .with(route("a", 0))
            .with(route("b", 1))
            .with(route("c", 0).express(false))
            .with(route("d", 9).priority(Priority::Background).express(true));
        let expected = [
            (Priority::RealTime, true),
            (Priority::DataHigh, false),
            (Priority::RealTime, false),
            (Priority::Background, true),
        ];
        assert_eq!(gateway.ways(&plan()), expected);
    }
}
