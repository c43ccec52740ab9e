//! `trace.dat`, the file of trace-cmd: versions 6 and 7 (trace-cmd.dat.v6(5), trace-cmd.dat.v7(5)), of either order of
//! bytes, words of 4 or 8 bytes, plain or compressed (zstd, zlib).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::bytes::{Cursor, Endian};
use crate::damage::Damages;
use crate::event::CPUS_MAX;
use crate::format::{Format, PageLayout};
use crate::recording::Loss;

/// What a file says, before its events are read.
#[derive(Debug)]
pub(crate) struct Dat<'a> {
    /// 6 or 7.
    pub(crate) version: u8,
    /// The order of bytes on the traced machine.
    pub(crate) endian: Endian,
    /// Its pages.
    pub(crate) layout: PageLayout,
    /// Descriptions of its events.
    pub(crate) formats: Vec<Format>,
    /// The clock, as its kernel named it; empty where the file does not say.
    pub(crate) clock: String,
    /// What turns a time of the file into nanoseconds.
    pub(crate) times: Times,
    /// Where the pages of each CPU are.
    pub(crate) buffers: Vec<Buffer<'a>>,
    /// What was lost.
    pub(crate) losses: Losses,
}

/// The pages that one trace instance recorded.
#[derive(Debug)]
pub(crate) struct Buffer<'a> {
    /// The instance's name, empty for the kernel's own.
    pub(crate) instance: String,
    /// For each CPU with data its number and its pages.
    pub(crate) cpus: Vec<(u32, Pages<'a>)>,
}

/// The pages of one CPU, where they are plain or in chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages<'a> {
    data: &'a [u8],
    packing: Option<Packing>,
    endian: Endian,
    place: usize,
}

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packing {
    Zstd,
    Zlib,
}

/// `time * mult >> shift`, then `+ offset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Times {
    mult: u32,
    shift: u32,
    offset: i64,
}

impl Times {
    /// As they are.
    pub(crate) const PLAIN: Times = Times { mult: 1, shift: 0, offset: 0 };
    /// Nanoseconds, within what 64 bits hold.
    #[must_use]
    pub(crate) fn ns(self, raw: u64) -> u64 {
        if self == Self::PLAIN {
            return raw;
        }
        let scaled = (u128::from(raw) * u128::from(self.mult)) >> self.shift.min(127);
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        scaled.saturating_add_signed(self.offset)
    }
}

/// A file that cannot be read at all. What can be read in part is, and its [`Damages`] say what cannot.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DatError {
    /// Not this kind of file.
    #[error("no trace.dat: it does not begin with the bytes 17 08 44 and \"tracing\"")]
    NotDat,
    /// A version that is not known.
    #[error(
        "trace.dat of version {0:?}; versions 6 and 7 can be read (`trace-cmd convert --file-version 7` makes one)"
    )]
    Version(String),
    /// It is cut before its first page.
    #[error("trace.dat ends at byte {at}, within its {part}")]
    Cut {
        /// Where reading ended.
        at: usize,
        /// What stands there.
        part: &'static str,
    },
    /// A compression that is not known.
    #[error(
        "trace.dat is compressed by {0:?}; zstd and zlib can be read (`trace-cmd convert --compression none` unpacks it)"
    )]
    Compression(String),
    /// No descriptions of pages or events that can be read.
    #[error("trace.dat: {0}")]
    Format(String),
}

/// The first bytes of every such file.
pub(crate) const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// The most bytes that all sections together, or one compressed chunk, may unpack to.
pub const UNPACKED_MAX: usize = 1 << 30;

impl<'a> Dat<'a> {
    /// Reads everything but the events.
    ///
    /// # Errors
    /// What makes all of it unreadable; damage in its parts goes to `damages`.
    pub(crate) fn open(bytes: &'a [u8], damages: &mut Damages) -> Result<Self, DatError> {
        if !bytes.starts_with(MAGIC) {
            return Err(DatError::NotDat);
        }
        let mut head = Cursor::new(bytes, MAGIC.len(), Endian::Little);
        let cut = |at| DatError::Cut { at, part: "header" };
        let version = head.text().ok_or(cut(head.at()))?;
        let order = head.number(1).ok_or(cut(head.at()))?;
        let endian = if order == 0 { Endian::Little } else { Endian::Big };
        let word = if head.number(1).ok_or(cut(head.at()))? == 4 { 4 } else { 8 };
        let mut head = Cursor::new(bytes, head.at(), endian);
        let page = head.u32().ok_or(cut(head.at()))? as usize;
        let file = File { bytes, endian, layout: PageLayout::usual(word, page.clamp(64, PageLayout::PAGE_MAX)) };
        match version {
            b"6" => file.version_6(head, damages),
            b"7" => file.version_7(head, damages),
            other => Err(DatError::Version(String::from_utf8_lossy(other).into_owned())),
        }
    }
}

struct File<'a> {
    bytes: &'a [u8],
    endian: Endian,
    layout: PageLayout,
}

impl<'a> File<'a> {
    fn version_6(self, mut at: Cursor<'a>, damages: &mut Damages) -> Result<Dat<'a>, DatError> {
        let mut part = "header_page";
        let mut formats = Vec::new();
        let read = (|| {
            let layout = header_info(&mut at)?;
            part = "formats of events";
            event_formats(&mut at, false, &mut formats, damages)?;
            event_formats(&mut at, true, &mut formats, damages)?;
            part = "symbols";
            for size in [4, 4, 8] {
                let length = usize::try_from(at.number(size)?).ok()?;
                at.take(length)?;
            }
            part = "options";
            Some((layout, at.u32()?, at.take(10)?))
        })();
        let cut = |at: &Cursor, part| DatError::Cut { at: at.at(), part };
        let (layout, cpus, mut kind) = read.ok_or_else(|| cut(&at, part))?;
        let mut dat = Dat {
            version: 6,
            endian: self.endian,
            layout: self.page_layout(layout)?,
            formats,
            clock: String::new(),
            times: Times::PLAIN,
            buffers: Vec::new(),
            losses: Losses::default(),
        };
        let (mut instances, mut cpus) = (Vec::new(), cpus);
        if kind == b"options  \0" {
            let options = (|| {
                loop {
                    let id = at.number(2)?;
                    if id == 0 {
                        return at.take(10);
                    }
                    let length = at.u32()? as usize;
                    let data = at.take(length)?;
                    match id {
                        BUFFER => {
                            let mut option = Cursor::new(data, 0, self.endian);
                            if let (Some(offset), Some(name)) = (option.size(), option.text()) {
                                instances.push((offset, String::from_utf8_lossy(name).into_owned()));
                            }
                        }
                        CPU_COUNT => cpus = self.endian.u32(data, 0).unwrap_or(cpus),
                        _ => dat.option(id, data),
                    }
                }
            })();
            kind = options.ok_or_else(|| cut(&at, part))?;
        }
        if kind == b"latency  \0" {
            return Err(DatError::Format(
                "it holds the text of a latency tracer; give that text itself (trace-cmd report)".into(),
            ));
        }
        let mut tables = vec![(at.at(), String::new())];
        for (offset, name) in instances {
            // An instance's table has the same head as the first one's.
            tables.push((offset.saturating_add(10), name));
        }
        for (offset, instance) in tables {
            let mut table = Cursor::new(self.bytes, offset, self.endian);
            let mut buffer = Buffer { instance, cpus: Vec::new() };
            for cpu in 0..cpus.min(CPUS_MAX) {
                let (Some(place), Some(size)) = (table.size(), table.size()) else {
                    damages.at_byte(table.at(), "the table of CPUs is cut");
                    break;
                };
                self.add(&mut buffer, cpu, place, size, None, damages);
            }
            dat.buffers.push(buffer);
        }
        Ok(dat)
    }

    fn version_7(self, mut at: Cursor<'a>, damages: &mut Damages) -> Result<Dat<'a>, DatError> {
        let cut = |at: &Cursor| DatError::Cut { at: at.at(), part: "header" };
        let name = at.text().ok_or_else(|| cut(&at))?;
        at.text().ok_or_else(|| cut(&at))?;
        let mut options = at.size().ok_or_else(|| cut(&at))?;
        let packing = match name {
            b"none" | b"" => None,
            b"zstd" => Some(Packing::Zstd),
            b"zlib" => Some(Packing::Zlib),
            other => return Err(DatError::Compression(String::from_utf8_lossy(other).into_owned())),
        };
        let mut dat = Dat {
            version: 7,
            endian: self.endian,
            layout: self.layout,
            formats: Vec::new(),
            clock: String::new(),
            times: Times::PLAIN,
            buffers: Vec::new(),
            losses: Losses::default(),
        };
        let mut sections = Sections { file: &self, packing, read: BTreeSet::new(), left: UNPACKED_MAX };
        while options != 0 {
            let Some(section) = sections.at(options) else {
                damages.at_byte(options, "a section of options cannot be read; what follows in the file is not found");
                break;
            };
            let mut list = Cursor::new(&section, 0, self.endian);
            options = 0;
            while let Some(id) = list.number(2) {
                let Some(data) = list.u32().and_then(|length| list.take(length as usize)) else {
                    damages.at_byte(list.at(), "an option is cut");
                    break;
                };
                let place = || Cursor::new(data, 0, self.endian).size();
                match id {
                    0 => {
                        options = place().unwrap_or(0);
                        break;
                    }
                    BUFFER => self.buffer(&mut dat, data, packing, damages),
                    HEADER_INFO => {
                        let section = place().and_then(|place| sections.at(place));
                        let read = section.and_then(|bytes| header_info(&mut Cursor::new(&bytes, 0, self.endian)));
                        match read {
                            Some(layout) => dat.layout = self.page_layout(layout)?,
                            None => damages.at_byte(
                                place().unwrap_or(0),
                                "the pages' layout cannot be read; the usual one is taken",
                            ),
                        }
                    }
                    FTRACE_EVENTS | EVENT_FORMATS => {
                        let section = place().and_then(|place| sections.at(place));
                        let mut formats = Vec::new();
                        let read = section.and_then(|bytes| {
                            let mut at = Cursor::new(&bytes, 0, self.endian);
                            event_formats(&mut at, id == EVENT_FORMATS, &mut formats, damages)
                        });
                        if read.is_none() {
                            damages.at_byte(place().unwrap_or(0), "formats of events are cut");
                        }
                        dat.formats.append(&mut formats);
                    }
                    _ => dat.option(id, data),
                }
            }
        }
        Ok(dat)
    }

    /// The option that tells where an instance's pages are.
    fn buffer(&self, dat: &mut Dat<'a>, data: &[u8], packing: Option<Packing>, damages: &mut Damages) {
        let mut option = Cursor::new(data, 0, self.endian);
        let head = (|| Some((option.size()?, option.text()?, option.text()?, option.u32()? as usize, option.u32()?)))();
        let Some((section, name, clock, page, cpus)) = head else {
            damages.at_byte(0, "an option that describes a buffer is cut");
            return;
        };
        if dat.clock.is_empty() {
            dat.clock = clock_in_use(clock);
        }
        if page > dat.layout.data && page <= PageLayout::PAGE_MAX {
            dat.layout.page = page;
        }
        // The section's head says whether its chunks are compressed.
        let flags = section.checked_add(2).and_then(|place| self.endian.unsigned(self.bytes, place, 2)).unwrap_or(0);
        let packing = if flags & 1 == 1 { packing } else { None };
        let mut buffer = Buffer { instance: String::from_utf8_lossy(name).into_owned(), cpus: Vec::new() };
        for _ in 0..cpus.min(CPUS_MAX) {
            let (Some(cpu), Some(place), Some(size)) = (option.u32(), option.size(), option.size()) else {
                damages.at_byte(section, "the table of CPUs is cut");
                break;
            };
            if cpu >= CPUS_MAX {
                damages.at_byte(section, "no kernel has a CPU of that number");
                continue;
            }
            self.add(&mut buffer, cpu, place, size, packing, damages);
        }
        dat.buffers.push(buffer);
    }

    fn add(
        &self,
        buffer: &mut Buffer<'a>,
        cpu: u32,
        place: usize,
        size: usize,
        packing: Option<Packing>,
        damages: &mut Damages,
    ) {
        if size == 0 {
            return;
        }
        // Chunks say how long they are; trace-cmd 3.1.6 states a size that lacks the four bytes of their count.
        let size = if packing.is_some() { size.saturating_add(4) } else { size };
        let end = place.saturating_add(size).min(self.bytes.len());
        if end - place.min(end) < size {
            damages.at_byte(self.bytes.len(), "the file ends within the pages of a CPU");
        }
        let data = self.bytes.get(place..end).unwrap_or_default();
        buffer.cpus.push((cpu, Pages { data, packing, endian: self.endian, place }));
    }

    fn page_layout(&self, text: String) -> Result<PageLayout, DatError> {
        if text.is_empty() {
            return Ok(self.layout);
        }
        PageLayout::parse(&text).map_err(|why| DatError::Format(why.to_string()))
    }
}

/// The sections of a file of version 7, each of which is read once: whoever tells their places may tell one twice, or a circle of them.
struct Sections<'f, 'a> {
    file: &'f File<'a>,
    packing: Option<Packing>,
    /// Their places.
    read: BTreeSet<usize>,
    /// How many bytes those that come may have together.
    left: usize,
}

impl<'a> Sections<'_, 'a> {
    /// The one at `place`, unpacked; `None` where it cannot be read, or was read before.
    fn at(&mut self, place: usize) -> Option<Cow<'a, [u8]>> {
        if !self.read.insert(place) {
            return None;
        }
        let mut at = Cursor::new(self.file.bytes, place, self.file.endian);
        let (_id, flags, _text, size) = (at.number(2)?, at.number(2)?, at.u32()?, at.size()?);
        if flags & 1 == 0 {
            self.left = self.left.checked_sub(size)?;
            return at.take(size).map(Cow::Borrowed);
        }
        let (packed, unpacked) = (at.u32()? as usize, at.u32()? as usize);
        self.left = self.left.checked_sub(unpacked)?;
        unpack(at.take(packed)?, unpacked, self.packing?).map(Cow::Owned)
    }
}

impl Dat<'_> {
    fn option(&mut self, id: u64, data: &[u8]) {
        match id {
            CPUSTAT => self.losses.add(data),
            TRACE_CLOCK if self.clock.is_empty() => self.clock = clock_in_use(data),
            OFFSET => {
                let text = String::from_utf8_lossy(data);
                self.times.offset = text.trim_end_matches('\0').trim().parse().unwrap_or(0);
            }
            TSC_TO_NS => {
                let mut option = Cursor::new(data, 0, self.endian);
                if let (Some(mult @ 1..), Some(shift)) = (option.u32(), option.u32()) {
                    (self.times.mult, self.times.shift) = (mult, shift);
                }
            }
            _ => {}
        }
    }
}

const CPUSTAT: u64 = 2;
const BUFFER: u64 = 3;
const TRACE_CLOCK: u64 = 4;
const OFFSET: u64 = 7;
const CPU_COUNT: u64 = 8;
const TSC_TO_NS: u64 = 14;
const HEADER_INFO: u64 = 16;
const FTRACE_EVENTS: u64 = 17;
const EVENT_FORMATS: u64 = 18;

/// What the kernel's counters said when recording ended: texts of `per_cpu/cpuN/stats`, each behind a line `CPU: N`, those of an instance behind a line `Buffer: NAME`.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// The instance whose CPUs are told now; empty: the first one.
    instance: String,
    told: Vec<(String, u32, u64)>,
}

impl Losses {
    fn add(&mut self, text: &[u8]) {
        let mut cpu = None;
        for line in String::from_utf8_lossy(text).trim_end_matches('\0').lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            match (key.trim(), value.trim()) {
                ("Buffer", name) => (self.instance, cpu) = (name.to_owned(), None),
                ("CPU", number) => cpu = number.parse().ok(),
                ("overrun" | "commit overrun" | "dropped events", count) => {
                    if let (Some(cpu), Ok(count @ 1..)) = (cpu, count.parse()) {
                        self.told.push((self.instance.clone(), cpu, count));
                    }
                }
                _ => {}
            }
        }
    }

    /// Those of an instance, by CPU.
    pub(crate) fn of(&self, instance: &str) -> Vec<Loss> {
        let mut by_cpu = BTreeMap::<u32, u64>::new();
        for (_, cpu, count) in self.told.iter().filter(|(name, ..)| name == instance) {
            let events = by_cpu.entry(*cpu).or_default();
            *events = events.saturating_add(*count);
        }
        by_cpu.into_iter().map(|(cpu, events)| Loss { cpu: Some(cpu), events }).collect()
    }
}

/// `local [global] mono`: the one in brackets; a name alone: that one.
fn clock_in_use(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end_matches('\0').trim();
    let marked = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    marked.unwrap_or(text).to_owned()
}

/// The text of `events/header_page`; that of `header_event` is passed over, for its form has never changed.
fn header_info(at: &mut Cursor) -> Option<String> {
    if at.take(12)? != b"header_page\0" {
        return None;
    }
    let length = at.size()?;
    let page = String::from_utf8_lossy(at.take(length)?).into_owned();
    if at.take(13)? != b"header_event\0" {
        return None;
    }
    let length = at.size()?;
    at.take(length)?;
    Some(page)
}

/// The kernel's own events, or with `systems` those of each subsystem.
fn event_formats(at: &mut Cursor, systems: bool, formats: &mut Vec<Format>, damages: &mut Damages) -> Option<()> {
    let groups = if systems { at.u32()? } else { 1 };
    for _ in 0..groups {
        if systems {
            at.text()?;
        }
        for _ in 0..at.u32()? {
            let length = at.size()?;
            let place = at.at();
            let text = String::from_utf8_lossy(at.take(length)?);
            match Format::parse(&text) {
                Ok(format) => formats.push(format),
                Err(why) => damages.at_byte(place, &why.to_string()),
            }
        }
    }
    Some(())
}

impl<'a> Pages<'a> {
    /// Pages that are not compressed.
    pub(crate) fn plain(data: &'a [u8], endian: Endian) -> Self {
        Pages { data, packing: None, endian, place: 0 }
    }
    /// Runs of pages, as they are compressed.
    pub(crate) fn chunks(self) -> Chunks<'a> {
        let mut at = Cursor::new(self.data, 0, self.endian);
        let left = if self.packing.is_some() { at.u32().unwrap_or(0) } else { 1 };
        Chunks { pages: self, at, left }
    }
}

/// The pages of a CPU, a run at a time.
#[derive(Clone, Debug)]
pub(crate) struct Chunks<'a> {
    pages: Pages<'a>,
    at: Cursor<'a>,
    left: u32,
}

impl<'a> Iterator for Chunks<'a> {
    /// The place in the file, and the pages; `None`: they cannot be unpacked.
    type Item = (usize, Option<Cow<'a, [u8]>>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let Some(packing) = self.pages.packing else {
            return Some((self.pages.place, Some(Cow::Borrowed(self.pages.data))));
        };
        let place = self.pages.place + self.at.at();
        let sizes = self.at.u32().zip(self.at.u32());
        let chunk = sizes.and_then(|(packed, unpacked)| Some((self.at.take(packed as usize)?, unpacked as usize)));
        let Some((packed, unpacked)) = chunk else {
            self.left = 0;
            return Some((place, None));
        };
        Some((place, unpack(packed, unpacked, packing).map(Cow::Owned)))
    }
}

/// `None`: not what it says to be, or more than [`UNPACKED_MAX`].
fn unpack(packed: &[u8], unpacked: usize, packing: Packing) -> Option<Vec<u8>> {
    use std::io::Read as _;
    if unpacked > UNPACKED_MAX {
        return None;
    }
    match packing {
        Packing::Zlib => {
            let mut bytes = Vec::new();
            flate2::read::ZlibDecoder::new(packed).take(unpacked as u64).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        }
        Packing::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed).ok()?;
            let mut bytes = Vec::new();
            decoder.take(unpacked as u64).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        }
    }
}
