//! The pages of a CPU's ring buffer, as `trace_pipe_raw` and splice(2) give them.
//!
//! A page begins with its time (8 bytes) and the number of bytes in use, whose two topmost bits
//! tell of lost events. Entries follow: a type (5 bits), the time since the entry before (27 bits),
//! a payload. Source: include/linux/ring_buffer.h and kernel/trace/ring_buffer.c. Discarded entries
//! add to the time as in libtraceevent.

use takt_model::Time;

use crate::bytes::Endian;
use crate::format::PageLayout;

/// An item of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// An event.
    Event {
        /// When, on the trace's clock.
        time: Time,
        /// Its bytes, the number of its format first.
        payload: &'a [u8],
    },
    /// The kernel overwrote or dropped events before the next one: how many, where it says so.
    Lost(Option<u64>),
    /// From `offset` of the page on, it cannot be read.
    Broken {
        /// Bytes from the start of the page.
        offset: usize,
        /// The fault.
        why: &'static str,
    },
}

/// The position of reading in a page. It borrows nothing: each [`Page::next`] takes the page's
/// bytes.
#[derive(Clone, Debug)]
pub struct Page {
    endian: Endian,
    time: u64,
    at: usize,
    end: usize,
    lost: Option<Option<u64>>,
    broken: Option<(usize, &'static str)>,
}

const LOST: u64 = 1 << 31;
const LOST_STORED: u64 = 1 << 30;
const IN_USE: u64 = (1 << 27) - 1;
const DELTA_BITS: u32 = 27;
/// An absolute time has 59 bits; the rest is as in the time before.
const ABSOLUTE_BITS: u32 = 59;

impl Page {
    /// Before the first entry of `bytes`, which begin with a page's header. A cut page is read as
    /// far as it goes.
    #[must_use]
    pub fn new(bytes: &[u8], layout: &PageLayout, endian: Endian) -> Self {
        let bytes = bytes.get(..layout.page).unwrap_or(bytes);
        let head = endian.unsigned(bytes, 0, 8).zip(endian.unsigned(bytes, layout.commit.0, layout.commit.1));
        let (time, commit) = head.unwrap_or((0, 0));
        let whole = layout.data.saturating_add((commit & IN_USE) as usize);
        let mut end = whole.min(bytes.len());
        let broken = if head.is_none() {
            Some((0, "the page ends within its header"))
        } else if whole > layout.page {
            end = layout.data;
            Some((layout.commit.0, "more bytes in use than the page has"))
        } else if end < whole {
            Some((end, "the page is cut"))
        } else {
            None
        };
        let lost = (commit & LOST != 0).then(|| {
            let stored = commit & LOST_STORED != 0;
            stored.then(|| endian.unsigned(bytes, whole, layout.commit.1)).flatten()
        });
        Page { endian, time, at: layout.data, end, lost, broken }
    }

    /// The time of the entry before the next one; at first, the page's own.
    #[must_use]
    pub fn time(&self) -> Time {
        Time::from_ns(self.time)
    }

    fn stop<'a>(&mut self, offset: usize, why: &'static str) -> Entry<'a> {
        self.at = self.end;
        self.broken = None;
        Entry::Broken { offset, why }
    }

    /// Reads an entry that is no event of a usual length. Skips it unless it is an event.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, used: &[u8], entry: usize, kind: u32, delta: u64) -> Unusual {
        let body = entry + 4;
        let word = self.endian.u32(used, body);
        match (kind, word) {
            // Type 0: the length stands in the first word of the body, which it counts.
            (0, Some(length)) if length > 4 => {
                return Unusual::Event { start: body + 4, length: length as usize - 4 };
            }
            (0, _) => return Unusual::Broken("an entry of no length"),
            (29, _) if delta == 0 => self.at = self.end,
            (29, Some(length)) if length >= 4 => {
                self.time = self.time.saturating_add(delta);
                self.at = body.saturating_add((length as usize).next_multiple_of(4));
            }
            (29, _) => return Unusual::Broken("a discarded entry of no length"),
            (30 | 31, Some(more)) => {
                let value = (u64::from(more) << DELTA_BITS) | delta;
                self.time = if kind == 30 { self.time.saturating_add(value) } else { absolute(self.time, value) };
                self.at = body + 4;
            }
            (30 | 31, None) => return Unusual::Broken("a time is cut"),
            _ => return Unusual::Broken("an entry of an unknown type"),
        }
        Unusual::Skipped
    }

    /// Gives the next events of the page at the start of `bytes` to `take`, with their times. It
    /// stops at an event that `take` refuses and at an entry of an unusual length. [`Page::next`]
    /// reads those entries, and all entries of the other byte order. The position stays in
    /// registers meanwhile.
    #[inline(always)]
    pub(crate) fn run<'a>(&mut self, bytes: &'a [u8], mut take: impl FnMut(u64, &'a [u8]) -> bool) {
        if self.endian != Endian::Little || self.lost.is_some() {
            return;
        }
        let used = &bytes[..self.end.min(bytes.len())];
        let (mut at, mut time) = (self.at, self.time);
        while let Some((head, rest)) = used.get(at..).and_then(<[u8]>::split_first_chunk) {
            let head = u32::from_le_bytes(*head);
            let kind = (head & 31) as usize;
            if !(1..=28).contains(&kind) {
                break;
            }
            let Some(payload) = rest.get(..4 * kind) else { break };
            let now = time.saturating_add(u64::from(head >> 5));
            if !take(now, payload) {
                break;
            }
            (at, time) = (at + 4 + payload.len(), now);
        }
        (self.at, self.time) = (at, time);
    }

    /// The next entry of the page that begins `bytes`, the same as at [`Page::new`]; `None` after
    /// the last.
    #[inline]
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Option<Entry<'a>> {
        if let Some(count) = self.lost.take() {
            return Some(Entry::Lost(count));
        }
        let used = &bytes[..self.end.min(bytes.len())];
        while self.at < used.len() {
            let entry = self.at;
            let Some(head) = self.endian.u32(used, entry) else {
                return Some(self.stop(entry, "an entry is cut"));
            };
            let (kind, delta) = match self.endian {
                Endian::Little => (head & 31, u64::from(head >> 5)),
                Endian::Big => (head >> DELTA_BITS, u64::from(head & ((1 << DELTA_BITS) - 1))),
            };
            let (start, length) = match kind {
                1..=28 => (entry + 4, kind as usize * 4),
                _ => match self.unusual(used, entry, kind, delta) {
                    Unusual::Event { start, length } => (start, length),
                    Unusual::Skipped => continue,
                    Unusual::Broken(why) => return Some(self.stop(entry, why)),
                },
            };
            let Some(payload) = used.get(start..start.saturating_add(length)) else {
                return Some(self.stop(entry, "an entry reaches past the page's end"));
            };
            self.time = self.time.saturating_add(delta);
            self.at = start + length.next_multiple_of(4);
            return Some(Entry::Event { time: Time::from_ns(self.time), payload });
        }
        self.broken.take().map(|(offset, why)| Entry::Broken { offset, why })
    }
}

/// An entry that is no event of a usual length.
enum Unusual {
    Event {
        start: usize,
        length: usize,
    },
    /// A time or padding. The page's position is behind it.
    Skipped,
    Broken(&'static str),
}

/// The first time from `now` on whose low 59 bits are those of `value`.
fn absolute(now: u64, value: u64) -> u64 {
    let low = (1 << ABSOLUTE_BITS) - 1;
    let time = (now & !low) | (value & low);
    if time < now { time.saturating_add(1 << ABSOLUTE_BITS) } else { time }
}
