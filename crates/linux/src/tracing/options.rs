//! Settings of a recording.

use takt_model::Bytes;

use super::events::Event;
use crate::guard::Guard;

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// The events.
    pub events: Vec<Event>,
    /// The recorded threads: all, or some.
    pub threads: Threads,
    /// Ring buffer of each CPU; `None`: [`BUFFER`], or less if the machine has little memory.
    pub buffer: Option<Bytes>,
    /// The process that removes the instance when this process is killed.
    pub guard: Guard,
}

/// Scheduling and interrupts, of all threads.
impl Default for Options {
    fn default() -> Self {
        let events = [Event::scheduling(), Event::interrupts()].concat();
        Options { events, threads: Threads::All, buffer: None, guard: Guard::ThisProgram }
    }
}

/// Ring buffer of each CPU if [`Options::buffer`] is `None`. At 100 MB/s (1.5 million events per
/// second) this lasts a third of a second, during which the reader may be kept from its CPU.
pub const BUFFER: Bytes = Bytes::new(32 << 20);

/// The threads to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Threads {
    /// All threads.
    All,
    /// Events that concern these threads. Interrupts are recorded only where they interrupt one of
    /// them.
    These {
        /// Ids of threads (the kernel's pids), not of processes.
        ids: Vec<u32>,
        /// Also record threads and processes started by these threads.
        children: bool,
    },
}
