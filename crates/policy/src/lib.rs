//! The policy kernel: which job runs on which CPU, as pure state machines.
//!
//! A [`Dispatcher`] obeys one node's strategy. The caller reports what happened ([`Event`]) and
//! calls [`Dispatcher::dispatch`] once per instant. The answer is a list of [`Decision`] values.
//! The dispatcher reads no clock, does no I/O, and allocates nothing after construction. Simulator
//! and live dispatcher run this same code.
//!
//! At one instant the caller delivers completions, then deadlines, then ready jobs, then mode
//! changes, then asks for a dispatch; and all of it again while decisions make new events.
//!
//! ```
//! use takt_model::{Builtin, NodeId, Span, System, Task, Time};
//! use takt_policy::{Decision, Dispatcher, Event, Job};
//!
//! let ms = Span::from_ms;
//! let tasks = vec![Task::periodic("slow", ms(20), ms(5)), Task::periodic("fast", ms(10), ms(2))];
//! let system = System::local(1, Builtin::Rm, tasks);
//! let mut dispatcher = Dispatcher::new(&system, NodeId(0))?;
//! let mut decisions = Vec::with_capacity(dispatcher.decisions_max());
//! for slot in [0, 1] {
//!     let deadline = Time::ZERO + system.tasks[slot as usize].deadline;
//!     let job = Job { slot, release: Time::ZERO, arrival: Time::ZERO, deadline };
//!     dispatcher.on_event(Time::ZERO, &Event::Ready(job), &mut decisions);
//! }
//! dispatcher.dispatch(Time::ZERO, &mut decisions);
//! assert_eq!(decisions, [Decision::Run { slot: 1, cpu: 0, resumed: false, from: None }]);
//! # Ok::<(), takt_policy::PolicyError>(())
//! ```

mod chain;
mod cluster;
mod clusters;
mod cpu_slots;
mod cyclic;
mod decision;
mod dispatcher;
mod error;
mod hierarchy;
mod interrupts;
mod levels;
mod partial_edf;
mod plans;
mod pool;
mod rank;
mod ready;
mod server;
mod slot;
mod times;
mod virtual_clusters;

pub use chain::{Link, ReadyInstance};
pub use clusters::{Clusters, CpuPart, Machine};
pub use cyclic::{CyclicExecutive, CyclicSpec};
pub use decision::{Decision, Event};
pub use dispatcher::Dispatcher;
pub use error::PolicyError;
pub use hierarchy::{Hierarchy, ServerChange, ServerEvent};
pub use interrupts::{Interrupt, Interrupts};
pub use levels::{DeadlineEffect, Levels, NextAction, Queued, nesting};
pub use partial_edf::{PartialEdf, PartialEdfSpec};
pub use server::RETURNS_MAX;
pub use slot::Job;
pub use times::Times;
