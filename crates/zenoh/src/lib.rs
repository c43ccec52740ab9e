//! A gateway between [event channels](takt_dispatch::event) and [Zenoh](https://zenoh.io), for fleets:
//! discovery, routing, encryption and storage are Zenoh's job, and its configuration's.
//!
//! This package stands apart from takt's workspace, with its own lock file. Zenoh brings an
//! asynchronous runtime and some 300 packages, and the rest of takt shall not depend on them. A
//! program that needs the gateway depends on takt-zenoh.
//!
//! **Events by this way have no guarantee.** They pass these threads:
//!
//! - The real-time thread of the supplier only copies the event into a bounded queue.
//! - An ordinary thread of the gateway publishes it.
//! - Zenoh's own ordinary threads send and receive it.
//! - Another ordinary thread offers it to the consumers over there.
//! - The consumers' handlers run on their own real-time threads.
//!
//! Use [datagrams](takt_dispatch::event::Node) for events that must be in time.
//!
//! ```no_run
//! use takt_model::{Builtin, Span};
//! use takt_dispatch::{Dispatcher, Limits, Operation, Operations};
//! use takt_dispatch::event::{Channel, Filter, Options, PEER_LOST, Pattern};
//! use takt_zenoh::zenoh::{self, Wait};
//! use takt_zenoh::{Gateway, Route};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const POSE: u32 = 1;
//! let ms = Span::from_ms;
//! let operations = Operations::new("robot").with(Operation::sporadic("avoid", ms(5)).wcet(ms(1)).backlog(8));
//! let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default())?;
//! let channel = Channel::new(Options::default());
//! let wanted = Filter::any([POSE, PEER_LOST].map(|kind| Pattern::kind(kind).into()));
//! let avoid = channel.subscribe(&plan, "avoid", wanted)?;
//!
//! let session = zenoh::open(zenoh::Config::default()).wait().map_err(|error| error.to_string())?;
//! let poses = Route::new("poses").sends(Pattern::kind(POSE).from(1));
//! let gateway = Gateway::new(1, "fleet").with(poses).subscribe("fleet/*/1");
//! let opened = gateway.open(&session, &channel, &plan)?;
//!
//! let dispatching = Dispatcher::new(plan).on("avoid", avoid.handler(|_, _| {}))?.start()?;
//! let connected = channel.connect(&dispatching)?;
//! channel.supplier(1).push_for(POSE, b"12.5 7.0", ms(200))?;
//! println!("{:?}", opened.traffic());
//! # drop(connected);
//! # Ok(())
//! # }
//! ```
//!
//! Units: nanoseconds, on the channel's and the gateway's clocks. Every event that was pushed is
//! counted ([`RouteTraffic`]), as is every sample that came ([`Traffic`]).

mod gateway;
pub mod header;
mod peers;
mod priority;
mod running;

/// The examples of docs/reference/zenoh.md compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/zenoh.md")]
mod manual {}

pub use gateway::{Foreign, Gateway, OpenError, Route, RouteTraffic, Traffic};
pub use priority::{priorities, priority};
pub use running::Opened;
/// Zenoh itself, of the version that the gateway is built with.
pub use zenoh;
pub use zenoh::qos::{CongestionControl, Priority};
