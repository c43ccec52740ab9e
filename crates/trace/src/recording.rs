//! Opens a whole trace in memory, of any form, and gives its events in the order of time.

use std::borrow::Cow;

use takt_model::Time;

use crate::bytes::Endian;
use crate::calls::Abi;
use crate::clock;
use crate::damage::Damages;
use crate::dat::{self, Budget, Chunks, Dat, Loss, Pages, Times};
use crate::decode::{Decoder, Step};
use crate::event::{Context, EventKind, KernelEvent, Names};
use crate::format::{Format, PageLayout};
use crate::head::{HEAD, HEADING_MAX, OpenError, lines, refuse_foreign};
use crate::json;
use crate::page::Page;
use crate::perfetto::{self, NoKernelEvents, Perfetto};
use crate::streams::{hand_on, merge};
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

/// An open trace.
#[derive(Debug)]
pub struct Recording<'a> {
    form: Form,
    clock: String,
    names: Names,
    damages: Damages,
    source: Source<'a>,
    skipped_instances: Vec<String>,
    losses: Vec<Loss>,
    /// The traced machine's kind, as its kernel names it.
    machine: String,
    tracer: String,
    /// Its times are whole numbers without a unit.
    unitless: bool,
    /// The number of events that a text's heading states, and its line.
    stated_events: Option<(usize, u64)>,
}

#[derive(Debug)]
enum Source<'a> {
    Text(&'a [u8]),
    Pages { decoder: Decoder, layout: PageLayout, times: Times, cpus: Vec<(u32, Pages<'a>)> },
    Perfetto(Perfetto<'a>),
}

impl<'a> Recording<'a> {
    /// Opens `trace.dat`, a Perfetto trace or text, whichever `bytes` are. Not packed: see
    /// [`unpacked`](crate::unpacked).
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
            let skipped = others.map(|buffer| buffer.instance.clone()).collect();
            let cpus = buffer.map(|buffer| buffer.cpus).unwrap_or_default();
            let mut recording = Self::pages(&dat.formats, dat.layout, dat.endian, Vec::new());
            (recording.form, recording.clock, recording.skipped_instances) =
                (Form::Dat(dat.version), dat.clock, skipped);
            (recording.damages, recording.losses) = (damages, losses);
            recording.machine = dat.machine;
            recording.unitless = dat.times.are_plain() && clock::is_counter(&recording.clock);
            if let Source::Pages { cpus: of_source, times, .. } = &mut recording.source {
                (*of_source, *times) = (cpus, dat.times);
            }
            return Ok(recording);
        }
        if perfetto::is_perfetto(bytes) {
            let opened = Perfetto::open(bytes, &mut damages);
            let mut trace = opened.map_err(|NoKernelEvents { tracks }| OpenError::NoKernelEvents { tracks })?;
            let machine = std::mem::take(&mut trace.machine);
            let mut recording = Recording::new(Form::Perfetto, Source::Perfetto(trace));
            if let Source::Perfetto(trace) = &mut recording.source {
                recording.clock = trace.clock.to_owned();
                recording.skipped_instances = std::mem::take(&mut trace.skipped_machines);
            }
            (recording.machine, recording.damages) = (machine, damages);
            return Ok(recording);
        }
        refuse_foreign(bytes.get(..HEAD).unwrap_or(bytes))?;
        if json::is_json(bytes) {
            return Err(OpenError::Json);
        }
        Self::open_text(bytes)
    }

    fn open_text(bytes: &'a [u8]) -> Result<Self, OpenError> {
        let heading = bytes.get(..HEADING_MAX).unwrap_or(bytes);
        let is_event = |line: &&[u8]| matches!(text::line(line), Line::Event { .. } | Line::Unreadable(_));
        let first = lines(bytes).find(is_event);
        let tracer = lines(heading).find_map(text::tracer);
        // A trace without events still has its heading.
        if first.is_none() && tracer.is_none() {
            let graph = lines(heading).any(text::is_function_graph);
            return Err(if graph { OpenError::Tracer("function_graph") } else { OpenError::NoEvent });
        }
        let mut recording = Recording::new(Form::Text, Source::Text(bytes));
        recording.tracer = String::from_utf8_lossy(tracer.unwrap_or_default()).into_owned();
        recording.unitless = lines(bytes).find_map(text::when).is_some_and(|(_, unitless)| unitless);
        let entries = lines(heading).enumerate().find_map(|(at, line)| Some((at + 1, text::entries(line)?)));
        if let Some((line, (held, written))) = entries {
            recording.stated_events = Some((line, held));
            let events = written.saturating_sub(held);
            recording.losses.extend((events > 0).then_some(Loss { cpu: None, events }));
        }
        Ok(recording)
    }

    fn new(form: Form, source: Source<'a>) -> Self {
        Recording {
            form,
            clock: String::new(),
            names: Names::default(),
            damages: Damages::default(),
            source,
            skipped_instances: Vec::new(),
            losses: Vec::new(),
            machine: String::new(),
            tracer: String::new(),
            unitless: false,
            stated_events: None,
        }
    }

    /// Pages of ring buffers: for each CPU its number and its pages, with the kernel's descriptions
    /// of its events.
    #[must_use]
    pub fn pages(formats: &[Format], layout: PageLayout, endian: Endian, cpus: Vec<(u32, &'a [u8])>) -> Self {
        let mut names = Names::default();
        let mut damages = Damages::default();
        let decoder = Decoder::new(formats, endian, &mut names, &mut damages);
        let cpus = cpus.into_iter().map(|(cpu, data)| (cpu, Pages::plain(data, endian))).collect();
        let source = Source::Pages { decoder, layout, times: Times::PLAIN, cpus };
        let mut recording = Recording::new(Form::Pages, source);
        (recording.names, recording.damages) = (names, damages);
        recording
    }

    /// States the clock of pages: the text of the kernel's file `trace_clock` beside them.
    #[must_use]
    pub fn with_clock(mut self, trace_clock: &str) -> Self {
        self.clock = clock::in_use(trace_clock.as_bytes());
        self.unitless = clock::is_counter(&self.clock);
        if let Some(why) = clock::unknown_clock(&self.clock) {
            self.damages.at_byte(0, &why);
        }
        self
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
    /// The machine whose numbers of system calls it has, if the trace names its machine.
    #[must_use]
    pub fn abi(&self) -> Option<Abi> {
        Abi::of_machine(&self.machine)
    }
    /// The traced machine's kind, as its kernel names it (`uname -m`); empty where the trace does
    /// not say.
    #[must_use]
    pub fn machine(&self) -> &str {
        &self.machine
    }
    /// The tracer that the heading of a text names, such as nop or function; empty where there is
    /// none.
    #[must_use]
    pub fn tracer(&self) -> &str {
        &self.tracer
    }
    /// Whether its times are whole numbers without a unit: those of the clocks counter and x86-tsc,
    /// for example.
    #[must_use]
    pub fn is_unitless(&self) -> bool {
        self.unitless
    }
    /// Names of its events; all of them after [`Recording::each`].
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }
    /// The places that could not be read; complete after [`Recording::each`].
    #[must_use]
    pub fn damages(&self) -> &Damages {
        &self.damages
    }
    /// Trace instances of the file that are not read. Only the first instance with events is read.
    #[must_use]
    pub fn skipped_instances(&self) -> &[String] {
        &self.skipped_instances
    }

    /// Lost events by the trace's own counters, by CPU if they are: those of the kernel's buffers
    /// when the recording ended. Some may also be among the events, with their times
    /// ([`EventKind::Lost`]).
    #[must_use]
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Gives each event to `take`, in the order of time. Events of one time and CPU keep their
    /// order; CPUs keep the order of the trace. Text that is not in order is sorted in memory.
    /// Pages and packets are merged as they come.
    pub fn each(&mut self, mut take: impl FnMut(&KernelEvent)) {
        match &self.source {
            Source::Text(bytes) => {
                let read = each_of_text(bytes, self.unitless, &mut self.names, &mut self.damages, take);
                if let Some((line, stated)) = self.stated_events.filter(|(_, stated)| *stated > read) {
                    let why = format!(
                        "the heading promises {stated} events, and {read} are there: the text is cut, or covers \
                         one CPU only"
                    );
                    self.damages.at_line(line, &why);
                }
            }
            Source::Pages { decoder, layout, times, cpus } => {
                let mut streams: Vec<Stream> = cpus.iter().map(|(cpu, pages)| Stream::new(*cpu, *pages)).collect();
                let damages = &mut self.damages;
                let mut budget = Budget::of(cpus.iter().map(|(_, pages)| pages.bytes()).sum());
                merge(&mut streams, |stream, until| {
                    while !stream.give(until, &mut take) {
                        if !stream.read(decoder, layout, times, &mut budget, damages) {
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

/// Gives the events of a text to `take`. Returns the number of lines that are events or begin like
/// one. Events whose times have a unit are damage if the trace is `unitless_trace`, and vice versa.
fn each_of_text(
    bytes: &[u8],
    unitless_trace: bool,
    names: &mut Names,
    damages: &mut Damages,
    mut take: impl FnMut(&KernelEvent),
) -> u64 {
    // A first pass finds out whether all lines are in order. If they are not, they are sorted.
    let mut sorted = true;
    let mut before = 0;
    for (time, unitless) in lines(bytes).filter_map(text::when) {
        if unitless == unitless_trace {
            sorted &= time >= before;
            before = time;
        }
    }
    let mut kept = Vec::new();
    let (mut latest, mut read) = (0, 0);
    let mut known = Vec::new();
    for (number, line) in lines(bytes).enumerate() {
        let event = match text::line(line) {
            Line::Event { unitless, .. } if unitless != unitless_trace => {
                damages.at_line(number + 1, if unitless { NO_UNIT } else { A_UNIT });
                read += 1;
                continue;
            }
            Line::Event { time, cpu, pid, context, name, what, .. } => {
                let name = number_of(name, &mut known, names);
                (latest, read) = (time, read + 1);
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
                    what: EventKind::Lost { count },
                }
            }
            Line::Unreadable(why) => {
                damages.at_line(number + 1, why);
                read += 1;
                continue;
            }
            Line::Other => continue,
        };
        if sorted { hand_on(std::slice::from_ref(&event), &mut take) } else { kept.push(event) }
    }
    kept.sort_by_key(|event| event.time);
    hand_on(&kept, &mut take);
    read
}

const NO_UNIT: &str = "its time is a whole number without a unit, unlike that of the first event; takt skips the event";
const A_UNIT: &str = "its time has a unit, unlike that of the first event; takt skips the event";

/// The number of an event's name. `known` caches the names that came first, which are the most
/// frequent.
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

struct Stream<'a> {
    cpu: u32,
    chunks: Chunks<'a>,
    chunk: Cow<'a, [u8]>,
    /// The place of the chunk in the file, and of the page in the chunk.
    place: usize,
    page: usize,
    state: Option<Page>,
    /// The batch of read events. Those from `next` to `end` wait. A batch is read in one go, so that
    /// reading has the registers to itself.
    events: Vec<KernelEvent>,
    next: usize,
    end: usize,
    /// The time of the last read event.
    last: Time,
}

/// The events of a batch. They stay in the nearest cache until they are taken.
pub(crate) const BATCH: usize = 64;

impl<'a> Stream<'a> {
    fn new(cpu: u32, pages: Pages<'a>) -> Self {
        Stream {
            cpu,
            chunks: pages.chunks(),
            chunk: Cow::Borrowed(&[]),
            place: 0,
            page: 0,
            state: None,
            events: vec![KernelEvent { cpu, ..KernelEvent::NONE }; BATCH],
            next: 0,
            end: 0,
            last: Time::ZERO,
        }
    }

    /// Gives the waiting events up to this time to `take`. Returns whether any are left.
    fn give(&mut self, until: Option<Time>, take: &mut impl FnMut(&KernelEvent)) -> bool {
        let read = &self.events[self.next..self.end];
        let count = match until {
            Some(until) if self.last <= until => read.len(),
            // A linear search, because streams that alternate give few events at a time.
            Some(until) => read.iter().take_while(|event| event.time <= until).count(),
            None => 0,
        };
        hand_on(&read[..count], take);
        self.next += count;
        self.next < self.end
    }

    /// Reads the next batch. Returns false at the end of the stream.
    #[inline(never)]
    fn read(
        &mut self,
        decoder: &Decoder,
        layout: &PageLayout,
        times: &Times,
        budget: &mut Budget,
        damages: &mut Damages,
    ) -> bool {
        (self.next, self.end) = (0, 0);
        while self.end == 0 {
            let Some(page) = &mut self.state else {
                if !self.next_page(decoder.endian(), layout, times, budget, damages) {
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

    /// Goes to the next page, if necessary in the next chunk. Returns false at the end of the stream.
    fn next_page(
        &mut self,
        endian: Endian,
        layout: &PageLayout,
        times: &Times,
        budget: &mut Budget,
        damages: &mut Damages,
    ) -> bool {
        while self.page >= self.chunk.len() {
            if let Cow::Owned(chunk) = std::mem::take(&mut self.chunk) {
                budget.give_back(chunk.len());
            }
            let Some((place, chunk)) = self.chunks.next(budget) else { return false };
            (self.place, self.page) = (place, 0);
            self.chunk = chunk.unwrap_or_else(|why| {
                damages.at_byte(place, why);
                Cow::Borrowed(&[])
            });
        }
        let page = Page::new(&self.chunk[self.page..], layout, endian);
        if times.fit(page.time().as_ns()) {
            self.state = Some(page);
        } else {
            damages.at_byte(
                self.place + self.page,
                "the page's time plus the file's offset is out of range; takt skips the page",
            );
            self.page += layout.page;
        }
        true
    }
}
