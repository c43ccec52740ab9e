//! The kernel's traces, decoded, and Systems inferred from logs ([`infer`]).
//!
//! Decoding: [`Recording`] gives the events of ftrace in the order of time, from any form of
//! recording. It opens `trace.dat` (versions 6 and 7), the text of the kernel and of trace-cmd
//! (also within systrace's HTML), Perfetto's traces, and raw pages of ring buffers. The
//! descriptions in a trace tell the offset of each field; none is assumed. [`Damages`] lists the
//! places that cannot be read, and the rest is read.
//!
//! Merging: [`merge`] makes one log of the stamps of a run's threads and the kernel's events.
//!
//! Times are nanoseconds of the trace's own clock. Invariants, each held by tests: no input panics,
//! or takes memory out of proportion; events come in the order of time; what is lost or broken is
//! counted.
//!
//! ```
//! use takt_trace::{Recording, EventKind};
//!
//! let text = b"  bash-12  [001] d..2.  7.000001: sched_switch: prev_comm=bash prev_pid=12 prev_prio=120 \
//!     prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120\n";
//! let mut recording = Recording::open(text)?;
//! let mut switches = 0;
//! recording.each(|event| switches += u32::from(matches!(event.what, EventKind::Switch { .. })));
//! assert_eq!(switches, 1);
//! assert_eq!(recording.damages().count(), 0);
//! # Ok::<(), takt_trace::OpenError>(())
//! ```

mod bytes;
mod calls;
mod clock;
mod damage;
mod dat;
mod dat_write;
mod decode;
mod event;
mod feed;
mod format;
mod head;
pub mod infer;
pub mod jobs;
mod json;
pub mod merge;
mod page;
mod perfetto;
mod recording;
mod streams;
mod text;

pub use bytes::Endian;
pub use calls::{Abi, AbiGuess};
pub use damage::{Damage, Damages, Place};
pub use dat::Loss;
pub use dat::{DatError, HEADERS_MAX, MAGIC as DAT_MAGIC, UNPACKED_MAX, dat_extent, dat_extent_of};
pub use dat_write::{DatHead, DatWriteError, DatWriter};
pub use event::{CPUS_MAX, Comm, Context, EventKind, KernelEvent, Names, Pid, SwitchOutState, Thread, Waking};
pub use feed::{Feed, WAITING_MAX};
pub use format::{Field, FieldKind, Format, FormatError, PageLayout};
pub use head::{HEAD, OpenError, TEXT_HEAD, embedded, is_trace, refuse_foreign, refuse_other_text, unpacked};
pub use page::{Entry, Page};
pub use recording::{Form, Recording};
