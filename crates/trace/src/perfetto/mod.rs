//! Traces of Perfetto (`traced`, `tracebox`, Android): the kernel's events in them.
//!
//! A trace is a sequence of packets of many sources. takt reads the source `linux.ftrace`,
//! compressed or not: the kernel's events, switches and wakings in compact form, losses, the clock,
//! and names of threads. Events of programs (track events) are skipped.
//!
//! Opening a trace visits each packet once, and the time of each event. This gives the lanes of
//! each CPU (lanes.rs), and from these the events are read in the order of time. A loss is reported
//! in these cases:
//!
//! - A bundle reports it: the kernel overwrote events before they were read.
//! - A bundle names the end of the bundle before, and the trace has no such bundle. It was
//!   overwritten in the recorder's own buffer, or is damaged. This also holds at the beginning of a
//!   CPU's events if events of another CPU begin earlier.
//! - A packet reports that packets before it were dropped, and bundles do not name the bundle
//!   before.
//! - The kernel's own counters differ between beginning and end. They have no times: their sum is
//!   reported at the last loss of a CPU, or at its end.

mod event;
mod lanes;
mod open;
mod packets;
mod wire;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::slice;

use crate::damage::Damages;
use crate::event::{Comm, KernelEvent, Names, Pid};
use crate::streams::{hand_on, merge};
use event::Described;
use lanes::{Lane, Reader, Stream};

pub(crate) use packets::is_perfetto;

#[derive(Debug)]
pub(crate) struct Perfetto<'a> {
    /// The file, and what was compressed in it.
    blobs: Vec<Blob<'a>>,
    /// The lanes of each CPU, in the order of their first events.
    cpus: Vec<(u32, Vec<Lane>)>,
    /// Names of threads, as far as the recorder looked them up.
    comms: BTreeMap<Pid, Comm>,
    described: BTreeMap<u32, Described>,
    /// The clock of its events, as the kernel names it.
    pub(crate) clock: &'static str,
    /// This clock always equalled CLOCK_MONOTONIC: the machine was never suspended.
    pub(crate) monotonic: bool,
    /// The traced machine's kind, if the trace says so.
    pub(crate) machine: String,
    /// Other machines of the trace, whose events are not read.
    pub(crate) skipped_machines: Vec<String>,
}

#[derive(Debug)]
struct Blob<'a> {
    bytes: Cow<'a, [u8]>,
    /// The place in the file of their compressed packet. `None`: they are the file.
    packed: Option<usize>,
}

/// A trace without what is read of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoKernelEvents {
    /// It has track events.
    pub(crate) tracks: bool,
}

impl<'a> Perfetto<'a> {
    /// Finds what is to be read; damage goes to `damages`.
    ///
    /// # Errors
    /// There is nothing from the kernel in it.
    pub(crate) fn open(bytes: &'a [u8], damages: &mut Damages) -> Result<Self, NoKernelEvents> {
        open::open(bytes, damages)
    }

    /// Gives each event to `take`, in the order of time.
    pub(crate) fn each(&self, names: &mut Names, damages: &mut Damages, mut take: impl FnMut(&KernelEvent)) {
        let mut reader = Reader::new(&self.blobs, &self.comms, &self.described, names, damages);
        let mut streams: Vec<Stream> = self.cpus.iter().map(|(cpu, lanes)| Stream::new(*cpu, lanes)).collect();
        merge(&mut streams, |stream, until| {
            if until.is_some() {
                hand_on(slice::from_ref(&stream.head), &mut take);
            }
            while stream.advance(&mut reader) {
                if until.is_none_or(|until| stream.head.time > until) {
                    return Some(stream.head.time);
                }
                hand_on(slice::from_ref(&stream.head), &mut take);
            }
            None
        });
    }
}

/// The place in the file of a byte of a blob; of what was compressed, that of its packet.
fn place(blobs: &[Blob], blob: u32, at: usize) -> usize {
    blobs.get(blob as usize).and_then(|blob| blob.packed).unwrap_or(at)
}
