//! Traces of Perfetto (`traced`, `tracebox`, Android): the kernel's events in them.
//!
//! A trace is a sequence of packets of many sources. Read are those of the source `linux.ftrace`, compressed or not: events as the kernel
//! told them, and switches and wakings in compact form; losses; which clock they have; names of threads. What programs tell of
//! themselves (track events) is none of the kernel's, and passed over.
//!
//! Opening a trace looks at every packet once, and at every event's time: that gives each CPU's lanes (lanes.rs), from which events
//! are then read in the order of time. Losses are told where the trace tells them:
//!
//! - a bundle that says so, for the kernel overwrote events before they were read;
//! - a bundle that says when the one before it ended, where no such bundle is in the trace: it was overwritten in the recorder's own
//!   buffer, or is damaged; also at the beginning of a CPU's events, if another one's begin earlier;
//! - a packet that says that packets before it were dropped, where bundles say nothing about the one before;
//! - the kernel's own counters at the beginning and at the end. They know how many, and not when: their sum stands at the last
//!   loss of a CPU, or at its end.

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
use crate::recording::{hand_on, merge};
use event::Described;
use lanes::{Lane, Reader, Stream};

pub(crate) use packets::is_perfetto;

/// A trace, opened.
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
    /// That clock has always shown what CLOCK_MONOTONIC showed: the machine was never suspended.
    pub(crate) monotonic: bool,
    /// The traced machine's kind, if the trace says so.
    pub(crate) machine: String,
    /// Other machines of the trace, whose events are not read.
    pub(crate) passed_over: Vec<String>,
}

/// Bytes of packets.
#[derive(Debug)]
struct Blob<'a> {
    bytes: Cow<'a, [u8]>,
    /// Where in the file the packet is that they were compressed in; `None`: they are the file.
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
