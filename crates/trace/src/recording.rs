//! A whole trace in memory, of any form: opened, then its events in the order of time.

use std::borrow::Cow;
use std::io::Read as _;

use takt_model::Time;
use thiserror::Error;

use crate::bytes::Endian;
use crate::calls::Abi;
use crate::damage::Damages;
use crate::dat::{self, Chunks, Dat, DatError, Pages, Times};
use crate::decode::{Decoder, Step};
use crate::event::{Context, KernelEvent, Names, What};
use crate::format::{Format, PageLayout};
use crate::page::Page;
use crate::perfetto::{self, NoKernelEvents, Perfetto};
use crate::text::{self, Line};

/// Which form a trace has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Text, as the kernel or `trace-cmd report` prints it, also within the HTML of systrace.
    Text,
    /// trace-cmd's file, of that version.
    Dat(u8),
    /// Pages of the ring buffers.
    Pages,
    /// Perfetto's packets.
    Perfetto,
}

/// A trace that cannot be read at all.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A broken `trace.dat`.
    #[error(transparent)]
    Dat(#[from] DatError),
    /// Text without an event.
    #[error(
        "no trace: neither trace.dat, nor a Perfetto trace, nor text with a line of the form \"NAME-PID [CPU] SECONDS: EVENT: ...\"; raw pages need the kernel's format files beside them"
    )]
    NoEvent,
    /// A Perfetto trace in which the kernel tells nothing.
    #[error(
        "a Perfetto trace without events of the kernel: its data source linux.ftrace has to record sched/sched_switch and sched/sched_waking{}",
        if *.tracks { "; where takt exported it from a log, give the log itself (.takt) to takt's verbs" } else { "" }
    )]
    NoKernelEvents {
        /// It has tracks that a program drew, as `takt export` does.
        tracks: bool,
    },
    /// A compressed file that cannot be unpacked.
    #[error("the gzip around the trace is broken, or holds more than {} bytes", dat::UNPACKED_MAX)]
    Gzip,
}

/// Unpacks `bytes` where gzip is around them.
///
/// # Errors
/// Broken, or more than a GiB.
pub fn unpacked(bytes: &[u8]) -> Result<Cow<'_, [u8]>, OpenError> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut out = Vec::new();
    let limit = dat::UNPACKED_MAX as u64 + 1;
    flate2::read::MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut out).map_err(|_| OpenError::Gzip)?;
    if out.len() > dat::UNPACKED_MAX { Err(OpenError::Gzip) } else { Ok(Cow::Owned(out)) }
}

/// How far into a text its heading is looked for; systrace's pages have their scripts before it.
const HEADING_MAX: usize = 1 << 16;

/// Events that a trace says were lost while it was recorded, whether it tells where or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Of which CPU, where the trace says so.
    pub cpu: Option<u32>,
    /// How many: overwritten by later ones or dropped, in a full buffer.
    pub events: u64,
}

/// An open trace.
#[derive(Debug)]
pub struct Recording<'a> {
    form: Form,
    clock: String,
    names: Names,
    damages: Damages,
    source: Source<'a>,
    passed_over: Vec<String>,
    losses: Vec<Loss>,
}

#[derive(Debug)]
enum Source<'a> {
    Text(&'a [u8]),
    Pages { decoder: Decoder, layout: PageLayout, times: Times, cpus: Vec<(u32, Pages<'a>)> },
    Perfetto(Perfetto<'a>),
}

impl<'a> Recording<'a> {
    /// Opens `trace.dat`, a Perfetto trace or text, whichever `bytes` are. Not packed: see [`unpacked`].
    ///
    /// # Errors
    /// None of them, or a file that is broken before its first event.
    pub fn open(bytes: &'a [u8]) -> Result<Self, OpenError> {
        let mut damages = Damages::default();
        if bytes.starts_with(dat::MAGIC) {
            let mut dat = Dat::open(bytes, &mut damages)?;
            let chosen = dat.buffers.iter().position(|buffer| !buffer.cpus.is_empty()).unwrap_or(0);
            let buffer = (chosen < dat.buffers.len()).then(|| dat.buffers.swap_remove(chosen));
            let losses = dat.losses.of(buffer.as_ref().map_or("", |buffer| &buffer.instance));
            let others = dat.buffers.iter().filter(|buffer| !buffer.cpus.is_empty());
            let passed_over = others.map(|buffer| buffer.instance.clone()).collect();
            let cpus = buffer.map(|buffer| buffer.cpus).unwrap_or_default();
            let mut recording = Self::pages(&dat.formats, dat.layout, dat.endian, Vec::new());
            (recording.form, recording.clock, recording.passed_over) = (Form::Dat(dat.version), dat.clock, passed_over);
            (recording.damages, recording.losses) = (damages, losses);
            if let Source::Pages { cpus: of_source, times, .. } = &mut recording.source {
                (*of_source, *times) = (cpus, dat.times);
            }
            return Ok(recording);
        }
        if perfetto::is_perfetto(bytes) {
            let opened = Perfetto::open(bytes, &mut damages);
            let mut trace = opened.map_err(|NoKernelEvents { tracks }| OpenError::NoKernelEvents { tracks })?;
            return Ok(Recording {
                form: Form::Perfetto,
                clock: trace.clock.to_owned(),
                names: Names::default(),
                damages,
                passed_over: std::mem::take(&mut trace.passed_over),
                losses: Vec::new(),
                source: Source::Perfetto(trace),
            });
        }
        if !lines(bytes).any(|line| matches!(text::line(line), Line::Event { .. } | Line::Unreadable(_))) {
            // A trace in which nothing happened still says that it is one.
            let head = bytes.get(..HEADING_MAX).unwrap_or(bytes);
            let empty = memchr::memmem::find(head, b"# tracer:").is_some();
            if !empty {
                return Err(OpenError::NoEvent);
            }
        }
        // It stands before the first event.
        let overwritten = lines(bytes.get(..HEADING_MAX).unwrap_or(bytes)).find_map(text::overwritten);
        let losses = overwritten.filter(|events| *events > 0).map(|events| Loss { cpu: None, events });
        let source = Source::Text(bytes);
        Ok(Recording {
            form: Form::Text,
            clock: String::new(),
            names: Names::default(),
            damages,
            source,
            passed_over: Vec::new(),
            losses: losses.into_iter().collect(),
        })
    }

    /// Pages of ring buffers: for each CPU its number and its pages, with the kernel's descriptions of its events.
    #[must_use]
    pub fn pages(formats: &[Format], layout: PageLayout, endian: Endian, cpus: Vec<(u32, &'a [u8])>) -> Self {
        let mut names = Names::default();
        let mut damages = Damages::default();
        let decoder = Decoder::new(formats, endian, &mut names, &mut damages);
        let cpus = cpus.into_iter().map(|(cpu, data)| (cpu, Pages::plain(data, endian))).collect();
        let source = Source::Pages { decoder, layout, times: Times::PLAIN, cpus };
        Recording {
            form: Form::Pages,
            clock: String::new(),
            names,
            damages,
            source,
            passed_over: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// Which form it has.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }
    /// The clock of its times, as the kernel names it; empty where the trace does not say.
    #[must_use]
    pub fn clock(&self) -> &str {
        &self.clock
    }
    /// Whether its times are those of CLOCK_MONOTONIC, as far as the trace says.
    #[must_use]
    pub fn is_monotonic(&self) -> bool {
        self.clock == "mono" || matches!(&self.source, Source::Perfetto(trace) if trace.monotonic)
    }
    /// Whose numbers of system calls it has, where the trace says which machine it is of.
    #[must_use]
    pub fn abi(&self) -> Option<Abi> {
        match &self.source {
            Source::Perfetto(trace) => trace.abi,
            Source::Text(_) | Source::Pages { .. } => None,
        }
    }
    /// Names of its events; all of them after [`Recording::each`].
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }
    /// What could not be read; all of it after [`Recording::each`].
    #[must_use]
    pub fn damages(&self) -> &Damages {
        &self.damages
    }
    /// Trace instances of the file that are not read: one of several is, the first with events.
    #[must_use]
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    /// What the trace's own counters say was lost, by CPU where they are: of the kernel's buffers, when recording ended. Some of it may stand among the events, too
    /// ([`What::Lost`]), with its time.
    #[must_use]
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Gives each event to `take`, in the order of time; at one time those of one CPU in their order, CPUs in the order of
    /// the trace. Text is sorted in memory where it is not in order; pages and packets are merged as they come.
    pub fn each(&mut self, mut take: impl FnMut(&KernelEvent)) {
        match &self.source {
            Source::Text(bytes) => each_of_text(bytes, &mut self.names, &mut self.damages, take),
            Source::Pages { decoder, layout, times, cpus } => {
                let mut streams: Vec<Stream> = cpus.iter().map(|(cpu, pages)| Stream::new(*cpu, *pages)).collect();
                let damages = &mut self.damages;
                merge(&mut streams, |stream, until| {
                    while !stream.give(until, &mut take) {
                        if !stream.read(decoder, layout, times, damages) {
                            return None;
                        }
                    }
                    Some(stream.events[stream.next].time)
                });
            }
            Source::Perfetto(trace) => trace.each(&mut self.names, &mut self.damages, take),
        }
    }
}

/// Merges streams in the order of time, at one time the first stream first. `give` gives a stream's events up to a time on (none, where there is no
/// time), and says when the next one is; `None` after the last.
#[inline]
pub(crate) fn merge<S>(streams: &mut [S], mut give: impl FnMut(&mut S, Option<Time>) -> Option<Time>) {
    let first = streams.iter_mut().enumerate().filter_map(|(k, stream)| Some((give(stream, None)?, k)));
    let mut heads: Vec<(Time, usize)> = first.collect();
    // The latest first, so that the earliest is at the end. Runs of one CPU are long: it goes on until another one's time
    // has come.
    heads.sort_unstable_by(|a, b| b.cmp(a));
    while let Some((_, first)) = heads.pop() {
        // At the time of the next stream, the one that comes first in `streams` goes first.
        let until = match heads.last() {
            Some((time, next)) if *next < first => Time::from_ns(time.as_ns().saturating_sub(1)),
            Some((time, _)) => *time,
            None => Time::from_ns(u64::MAX),
        };
        if let Some(time) = give(&mut streams[first], Some(until)) {
            let key = (time, first);
            let place = heads.partition_point(|other| *other > key);
            heads.insert(place, key);
        }
    }
}

/// Gives `events` to `take`. All events of a trace go through here, so that what takes them stands here alone, with the registers to
/// itself while events follow each other.
#[inline(never)]
pub(crate) fn hand_on(events: &[KernelEvent], take: &mut impl FnMut(&KernelEvent)) {
    for event in events {
        take(event);
    }
}

/// Lines without their ends.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(line)
    })
}

fn each_of_text(bytes: &[u8], names: &mut Names, damages: &mut Damages, mut take: impl FnMut(&KernelEvent)) {
    // While lines are in order they are given on at once. From the first that is not, all are sorted, and so a
    // first pass finds out.
    let mut sorted = true;
    let mut before = 0;
    for time in lines(bytes).filter_map(text::when) {
        sorted &= time >= before;
        before = time;
    }
    let mut kept = Vec::new();
    let mut latest = 0;
    let mut known = Vec::new();
    for (number, line) in lines(bytes).enumerate() {
        let event = match text::line(line) {
            Line::Event { time, cpu, pid, context, name, what } => {
                let name = number_of(name, &mut known, names);
                latest = time;
                KernelEvent { time: Time::from_ns(time), cpu, pid, context, name, what }
            }
            Line::Lost { cpu, count } => {
                let name = names.number("(lost)");
                KernelEvent {
                    time: Time::from_ns(latest),
                    cpu,
                    pid: 0,
                    context: Context::Thread,
                    name,
                    what: What::Lost { count },
                }
            }
            Line::Unreadable(why) => {
                damages.at_line(number + 1, why);
                continue;
            }
            Line::Other => continue,
        };
        if sorted { hand_on(std::slice::from_ref(&event), &mut take) } else { kept.push(event) }
    }
    kept.sort_by_key(|event| event.time);
    hand_on(&kept, &mut take);
}

/// The number of an event's name. Those that were met first, which are the most frequent ones, are `known`.
fn number_of<'a>(name: &'a [u8], known: &mut Vec<(&'a [u8], u16)>, names: &mut Names) -> u16 {
    const KNOWN_MAX: usize = 16;
    if let Some((_, number)) = known.iter().find(|(other, _)| *other == name) {
        return *number;
    }
    let number = names.number(&String::from_utf8_lossy(name));
    if known.len() < KNOWN_MAX {
        known.push((name, number));
    }
    number
}

/// The events of one CPU.
struct Stream<'a> {
    cpu: u32,
    chunks: Chunks<'a>,
    chunk: Cow<'a, [u8]>,
    /// The place of the chunk in the file, and of the page in the chunk.
    place: usize,
    page: usize,
    state: Option<Page>,
    /// Events that are read, of which the one at `next` is the next: many are read at once, so that reading has the registers to itself.
    events: Vec<KernelEvent>,
    next: usize,
    end: usize,
    /// The time of the last one that is read.
    last: Time,
}

/// So many events are read at once: they stay in the nearest cache until they are taken.
pub(crate) const AHEAD: usize = 64;

impl<'a> Stream<'a> {
    fn new(cpu: u32, pages: Pages<'a>) -> Self {
        Stream {
            cpu,
            chunks: pages.chunks(),
            chunk: Cow::Borrowed(&[]),
            place: 0,
            page: 0,
            state: None,
            events: vec![KernelEvent { cpu, ..KernelEvent::NONE }; AHEAD],
            next: 0,
            end: 0,
            last: Time::ZERO,
        }
    }

    /// Gives those that are read, up to that time, to `take`; false where no more are read.
    fn give(&mut self, until: Option<Time>, take: &mut impl FnMut(&KernelEvent)) -> bool {
        let read = &self.events[self.next..self.end];
        let count = match until {
            Some(until) if self.last <= until => read.len(),
            // One after the other: where streams take turns often, few go at once.
            Some(until) => read.iter().take_while(|event| event.time <= until).count(),
            None => 0,
        };
        hand_on(&read[..count], take);
        self.next += count;
        self.next < self.end
    }

    /// Reads the next events; false where there are none.
    #[inline(never)]
    fn read(&mut self, decoder: &Decoder, layout: &PageLayout, times: &Times, damages: &mut Damages) -> bool {
        (self.next, self.end) = (0, 0);
        while self.end == 0 {
            let Some(page) = &mut self.state else {
                if !self.turn(decoder.endian(), layout, damages) {
                    return false;
                }
                continue;
            };
            let bytes = &self.chunk[self.page..];
            let mut last = self.last;
            let time_of = |time| {
                last = Time::from_ns(times.ns(time)).max(last);
                last
            };
            self.end = decoder.run(page, bytes, &mut self.events, time_of);
            self.last = last;
            if self.end > 0 {
                break;
            }
            let event = &mut self.events[0];
            match decoder.next(page, bytes, self.cpu, event) {
                Step::Event => {
                    event.time = Time::from_ns(times.ns(event.time.as_ns())).max(self.last);
                    (self.last, self.end) = (event.time, 1);
                }
                Step::Broken(offset, why) => damages.at_byte(self.place + self.page + offset, why),
                Step::End => {
                    self.page += layout.page;
                    self.state = None;
                }
            }
        }
        true
    }

    /// Goes to the next page, of the next chunk where need be.
    fn turn(&mut self, endian: Endian, layout: &PageLayout, damages: &mut Damages) -> bool {
        while self.page >= self.chunk.len() {
            let Some((place, chunk)) = self.chunks.next() else { return false };
            (self.place, self.page) = (place, 0);
            self.chunk = chunk.unwrap_or_else(|| {
                damages.at_byte(place, "a chunk of pages cannot be unpacked");
                Cow::Borrowed(&[])
            });
        }
        self.state = Some(Page::new(&self.chunk[self.page..], layout, endian));
        true
    }
}
