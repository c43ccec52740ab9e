//! The pure parts of a prober of networks: the form of its messages, when they are sent, and how
//! losses, duplicates and changes of order are counted.
//!
//! ```
//! use takt_model::Span;
//! use takt_net::probe::{Pace, Schedule, ScheduleSpec};
//!
//! // Bursts of 20 to 40 messages, a hundred a second, with deadlines from 1ms to 2ms [HEDF IV-D].
//! let spec = ScheduleSpec {
//!     burst: (20, 40),
//!     deadline: Some(Span::from_ms(1)),
//!     ..ScheduleSpec::new(Pace::BurstsPerSecond(100))
//! };
//! let first: Vec<_> = Schedule::new(&spec).take(20).collect();
//! assert!(first.iter().all(|send| send.at.as_ns() == 0));
//! assert!(first.iter().all(|send| send.deadline.unwrap() <= Span::from_ms(2)));
//! ```

mod arrivals;
mod frames;
mod playback;
mod schedule;
mod wire;

pub use arrivals::{Arrivals, Arrived, NUMBERS_MAX};
pub use frames::{Frames, Malformed};
pub use playback::{PLAYBACK_MAX, PlaybackError, playback};
pub use schedule::{Pace, Schedule, ScheduleSpec, Send};
pub use wire::{HEAD, Head, MESSAGE_MAX, ProbeMessage, ServerCounts};
