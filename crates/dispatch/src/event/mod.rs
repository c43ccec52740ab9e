//! A real-time event channel, after [KOKYU II-B] and TAO's event channel. Suppliers push events,
//! and operations of a [dispatcher](crate) consume them.
//!
//! An event has a type, a source, a payload of bytes, a deadline and a time to live ([`Terms`]). A
//! subscription says which events an operation waits for ([`Filter`], [`Quality`]). When these have
//! come, the channel pushes the operation. Its handler gets the events at the operation's level,
//! with its deadline, on its thread.
//!
//! A push copies the payload, holds locks with priority inheritance for moments, allocates nothing
//! and never waits for consumers. Events without room are counted and reported to the supplier. A
//! [`Node`] sends events to other processes. [`Published`] replicates values that operations write.
//! Other carriers than datagrams use an [`Outlet`] and an [`Inlet`].
//!
//! ```no_run
//! use takt_model::{Builtin, Span};
//! use takt_dispatch::{Dispatcher, Limits, Operation, Operations};
//! use takt_dispatch::event::{Channel, Options, Pattern};
//!
//! const TRACK: u32 = 1;
//! let ms = Span::from_ms;
//! let operations = Operations::new("radar")
//!     .with(Operation::sporadic("steer", ms(5)).wcet(ms(1)).backlog(4))
//!     .with(Operation::sporadic("show", ms(5)).wcet(ms(3)).backlog(4).noncritical());
//! let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default())?;
//! let channel = Channel::new(Options::default());
//! let steer = channel.subscribe(&plan, "steer", Pattern::kind(TRACK))?;
//! let show = channel.subscribe(&plan, "show", Pattern::ANY)?;
//! let dispatching = Dispatcher::new(plan)
//!     .on_events(&steer, |delivery, job| {
//!         let event = delivery.first();
//!         println!("{:?} from {}, {} left", event.payload, event.head.source, job.time_left());
//!     })?
//!     .on_events(&show, |_, _| ())?
//!     .start()?;
//! let connected = channel.connect(&dispatching)?;
//! let radar = channel.supplier(7);
//! let pushed = radar.push(TRACK, b"north")?;
//! assert_eq!(pushed.taken, 2);
//! # drop(connected);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
mod consumers;
mod delivery;
mod error;
mod fanout;
mod filter;
mod history;
mod inbox;
mod inlet;
mod lane;
mod limits;
mod live;
mod node;
mod outlet;
pub mod peer;
mod quality;
mod replication;
mod state;
mod subscription;
mod waiting;
pub mod wire;

/// The examples of docs/reference/events.md compile.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/reference/events.md")]
mod manual {}

pub use channel::{Channel, Connected, Supplier};
pub use consumers::Pushed;
pub use delivery::{Delivery, Event, PEER_FOUND, PEER_LOST, TIMEOUT};
pub use error::{ConnectError, EventError, OptionsError, SubscribeError};
pub use filter::{Bits, Correlator, DEPTH_MAX, Filter, FilterResult, Head, LEAVES_MAX, Pattern, TIME_MIN};
pub use inbox::Counts;
pub use inlet::Inlet;
pub use limits::{PAYLOAD_MAX, ROOM_BYTES_MAX};
pub use node::{Clock, Full, Level, NODES_MAX, Node, NodeError, Peer, Sending, Traffic};
pub use outlet::{Outlet, OutletCounts, OutletEvent};
pub use quality::{Keep, Quality, Terms};
pub use replication::{Applied, Entry, Flushes, Published, Replica, ReplicaValue, ReplicationError, Values, entries};
pub use state::{Change, Observing, Options};
pub use subscription::Subscription;
