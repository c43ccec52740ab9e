//! `trace.dat`, the file of trace-cmd: versions 6 and 7 (trace-cmd.dat.v6(5), trace-cmd.dat.v7(5)),
//! of either order of bytes, words of 4 or 8 bytes, plain or compressed (zstd, zlib).

use std::borrow::Cow;
use std::collections::BTreeSet;

use thiserror::Error;

use crate::bytes::{Cursor, Endian};
use crate::clock;
use crate::damage::Damages;
use crate::event::CPUS_MAX;
use crate::format::{Format, PageLayout};

mod chunks;
mod extent;
mod losses;

pub(crate) use chunks::{Budget, Chunks, Pages};
use chunks::{Packing, packing_of, unpack};
use extent::no_table;
pub use extent::{HEADERS_MAX, dat_extent, dat_extent_of};
pub use losses::Loss;
use losses::Losses;

#[derive(Debug)]
pub(crate) struct Dat<'a> {
    /// 6 or 7.
    pub(crate) version: u8,
    pub(crate) endian: Endian,
    pub(crate) layout: PageLayout,
    pub(crate) formats: Vec<Format>,
    /// The clock, as its kernel named it; empty where the file does not say.
    pub(crate) clock: String,
    pub(crate) times: Times,
    pub(crate) buffers: Vec<Buffer<'a>>,
    pub(crate) losses: Losses,
    /// The traced machine's kind (`uname -m`); empty where the file does not say.
    pub(crate) machine: String,
}

/// The pages that one trace instance recorded.
#[derive(Debug)]
pub(crate) struct Buffer<'a> {
    /// The instance's name, empty for the kernel's own.
    pub(crate) instance: String,
    /// For each CPU with data its number and its pages.
    pub(crate) cpus: Vec<(u32, Pages<'a>)>,
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
    #[must_use]
    pub(crate) fn fit(self, raw: u64) -> bool {
        let scaled = (u128::from(raw) * u128::from(self.mult)) >> self.shift.min(127);
        u64::try_from(scaled).is_ok_and(|scaled| scaled.checked_add_signed(self.offset).is_some())
    }
    /// Whether what the kernel stamped is taken for nanoseconds as it is, but for an offset.
    #[must_use]
    pub(crate) fn are_plain(self) -> bool {
        self.mult == 1 && self.shift == 0
    }
}

/// A file that cannot be read at all. A file with damage is read, and [`Damages`] lists the damage.
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
    /// It is cut before its options, which tell the places of all else.
    #[error(
        "trace.dat is cut before its options: it ends at byte {length}, and its options, which locate its pages, \
         start at byte {place}"
    )]
    CutBeforeOptions {
        /// Bytes of the file.
        length: usize,
        /// The place of the options.
        place: usize,
    },
    /// The options of a file of version 7 cannot be read.
    #[error("trace.dat: its options at byte {0}, which locate its pages, cannot be read")]
    Options(usize),
    /// A file of version 7 without options.
    #[error("trace.dat: its header names no options: the recording did not end, or `trace-cmd record` was killed")]
    NoOptions,
    /// Its headers go on and on.
    #[error("trace.dat: its headers take more than {HEADERS_MAX} bytes (HEADERS_MAX)")]
    Headers,
    /// A compression that is not known.
    #[error(
        "trace.dat is compressed by {0:?}; zstd and zlib can be read (`trace-cmd convert --compression none` \
         unpacks it)"
    )]
    Compression(String),
    /// No descriptions of pages or events that can be read.
    #[error("trace.dat: {0}")]
    Format(String),
}

/// The first bytes of every such file.
pub const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// The most bytes that all sections together, or one compressed chunk, may unpack to.
pub const UNPACKED_MAX: usize = 1 << 30;
impl<'a> Dat<'a> {
    /// Reads everything but the events.
    ///
    /// # Errors
    /// A fault that makes all of it unreadable. Damage in its parts goes to `damages`.
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
        let layout = PageLayout::usual(word, page.clamp(64, PageLayout::PAGE_MAX));
        let file = File { bytes, endian, layout, pages_left: bytes.len(), entries_left: bytes.len() / TABLE_ENTRY };
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
    /// Bytes that pages can still have: no byte is of two CPUs.
    pages_left: usize,
    /// How many entries of tables of CPUs can still come.
    entries_left: usize,
}

/// Bytes of a CPU's entry in a table: the place and the size of its pages.
const TABLE_ENTRY: usize = 16;
/// No file has a byte at this place.
const PLACE_MAX: usize = usize::MAX >> 17;

impl<'a> File<'a> {
    fn version_6(mut self, mut at: Cursor<'a>, damages: &mut Damages) -> Result<Dat<'a>, DatError> {
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
            machine: String::new(),
        };
        let (mut instances, mut stated) = (Vec::new(), None);
        if kind == b"options  \0" {
            let options = (|| {
                loop {
                    let id = at.number(2)?;
                    if id == 0 {
                        return at.take(10);
                    }
                    let length = at.u32()? as usize;
                    let place = at.at();
                    let data = at.take(length)?;
                    match id {
                        BUFFER => {
                            let mut option = Cursor::new(data, 0, self.endian);
                            if let (Some(offset), Some(name)) = (option.size(), option.text()) {
                                instances.push((offset, String::from_utf8_lossy(name).into_owned()));
                            }
                        }
                        CPU_COUNT => stated = Some((place, data)),
                        _ => dat.option(id, data, place, damages),
                    }
                }
            })();
            kind = options.ok_or_else(|| cut(&at, part))?;
        }
        if let Some(error) = no_table(kind, at.at() as u64) {
            return Err(error);
        }
        let mut cpus = cpus;
        if let Some((place, data)) = stated {
            let count = self.endian.u32(data, 0).filter(|count| data.len() == 4 && self.has_table(at.at(), *count));
            match count {
                Some(count) => cpus = count,
                None => damages.at_byte(
                    place,
                    &format!(
                        "option {CPU_COUNT} is not a number of CPUs that this file can have; takt uses the \
                         header's {cpus}"
                    ),
                ),
            }
        }
        let mut tables = vec![(at.at(), String::new())];
        for (offset, name) in instances {
            // An instance's table has the same head as the first one's.
            tables.push((offset.saturating_add(10), name));
        }
        for (offset, instance) in tables {
            let buffer = self.table(offset, instance, cpus, damages);
            dat.buffers.push(buffer);
        }
        Ok(dat)
    }

    /// Whether a table of so many CPUs is there, each entry of which can be one.
    fn has_table(&self, place: usize, cpus: u32) -> bool {
        let mut table = Cursor::new(self.bytes, place, self.endian);
        let end = place.saturating_add((cpus as usize).saturating_mul(TABLE_ENTRY));
        cpus <= CPUS_MAX
            && end <= self.bytes.len()
            && (0..cpus).all(|_| table.size().zip(table.size()).is_some_and(|(place, size)| is_sound(place, size, end)))
    }

    /// The pages of a trace instance's CPUs, as the table at `place` tells them.
    fn table(&mut self, place: usize, instance: String, cpus: u32, damages: &mut Damages) -> Buffer<'a> {
        let mut table = Cursor::new(self.bytes, place, self.endian);
        let mut buffer = Buffer { instance, cpus: Vec::new() };
        for cpu in 0..cpus {
            let entry = table.size().zip(table.size());
            let Some((place, size)) = entry.filter(|(place, size)| is_sound(*place, *size, table.at())) else {
                let why = format!("from CPU {cpu} on, the table of {cpus} CPUs gives no positions of pages");
                damages.at_byte(table.at(), &why);
                break;
            };
            if cpu >= CPUS_MAX || self.entries_left == 0 {
                damages.at_byte(table.at(), "the tables name more CPUs than there can be");
                break;
            }
            self.entries_left -= 1;
            self.add(&mut buffer, cpu, place, size, None, damages);
        }
        buffer
    }

    fn version_7(mut self, mut at: Cursor<'a>, damages: &mut Damages) -> Result<Dat<'a>, DatError> {
        let cut = |at: &Cursor| DatError::Cut { at: at.at(), part: "header" };
        let name = at.text().ok_or_else(|| cut(&at))?;
        at.text().ok_or_else(|| cut(&at))?;
        let mut options = at.size().ok_or_else(|| cut(&at))?;
        let packing = packing_of(name)?;
        let mut dat = Dat {
            version: 7,
            endian: self.endian,
            layout: self.layout,
            formats: Vec::new(),
            clock: String::new(),
            times: Times::PLAIN,
            buffers: Vec::new(),
            losses: Losses::default(),
            machine: String::new(),
        };
        if options == 0 {
            return Err(DatError::NoOptions);
        }
        let mut sections =
            Sections { bytes: self.bytes, endian: self.endian, packing, read: BTreeSet::new(), left: UNPACKED_MAX };
        while options != 0 {
            let Some(section) = sections.at(options) else {
                if dat.buffers.is_empty() {
                    let (length, place) = (self.bytes.len(), options);
                    let cut = sections.end_of(options).is_none_or(|end| end > length);
                    return Err(if cut {
                        DatError::CutBeforeOptions { length, place }
                    } else {
                        DatError::Options(place)
                    });
                }
                damages.at_byte(options, "a section of options cannot be read; takt skips the rest of the file");
                break;
            };
            let mut list = Cursor::new(&section, 0, self.endian);
            options = 0;
            while let Some(id) = list.number(2) {
                let at = list.at();
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
                                "the layout of the pages cannot be read; takt uses the usual one",
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
                    _ => dat.option(id, data, at, damages),
                }
            }
        }
        Ok(dat)
    }

    /// The option that tells where an instance's pages are.
    fn buffer(&mut self, dat: &mut Dat<'a>, data: &[u8], packing: Option<Packing>, damages: &mut Damages) {
        let mut option = Cursor::new(data, 0, self.endian);
        let head = (|| Some((option.size()?, option.text()?, option.text()?, option.u32()? as usize, option.u32()?)))();
        let Some((section, name, clock, page, cpus)) = head else {
            damages.at_byte(0, "an option that describes a buffer is cut");
            return;
        };
        dat.set_clock(clock, section, damages);
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
        &mut self,
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
        // Chunks say how long they are; trace-cmd 3.1.6 states a size that lacks the four bytes of
        // their count.
        let size = if packing.is_some() { size.saturating_add(4) } else { size };
        let end = place.saturating_add(size).min(self.bytes.len());
        if end - place.min(end) < size {
            damages.at_byte(self.bytes.len(), "the file ends within the pages of a CPU");
        }
        let data = self.bytes.get(place..end).unwrap_or_default();
        let Some(left) = self.pages_left.checked_sub(data.len()) else {
            damages.at_byte(place, &format!("the pages of CPU {cpu} overlap those of others, and are not read"));
            return;
        };
        self.pages_left = left;
        buffer.cpus.push((cpu, Pages::new(data, packing, self.endian, place)));
    }

    fn page_layout(&self, text: String) -> Result<PageLayout, DatError> {
        if text.is_empty() {
            return Ok(self.layout);
        }
        PageLayout::parse(&text).map_err(|why| DatError::Format(why.to_string()))
    }
}

/// The sections of a file of version 7. Each is read once: a file may name a section twice, or a
/// circle of sections.
struct Sections<'a> {
    bytes: &'a [u8],
    endian: Endian,
    packing: Option<Packing>,
    /// Their places.
    read: BTreeSet<usize>,
    /// How many bytes those that come may have together.
    left: usize,
}

impl<'a> Sections<'a> {
    /// The one at `place`, unpacked; `None` where it cannot be read, or was read before.
    fn at(&mut self, place: usize) -> Option<Cow<'a, [u8]>> {
        if !self.read.insert(place) {
            return None;
        }
        let mut at = Cursor::new(self.bytes, place, self.endian);
        let (_id, flags, _text, size) = (at.number(2)?, at.number(2)?, at.u32()?, at.size()?);
        if flags & 1 == 0 {
            self.left = self.left.checked_sub(size)?;
            return at.take(size).map(Cow::Borrowed);
        }
        let (packed, unpacked) = (at.u32()? as usize, at.u32()? as usize);
        self.left = self.left.checked_sub(unpacked)?;
        unpack(at.take(packed)?, unpacked, self.packing?).map(Cow::Owned)
    }

    /// The end of the section at `place`, if its head is there.
    fn end_of(&self, place: usize) -> Option<usize> {
        let mut at = Cursor::new(self.bytes, place, self.endian);
        let (_id, _flags, _text, size) = (at.number(2)?, at.number(2)?, at.u32()?, at.size()?);
        at.at().checked_add(size)
    }
}

/// Whether pages can be there: behind the table that ends at `end`, or nowhere.
fn is_sound(place: usize, size: usize, end: usize) -> bool {
    size == 0 || (place >= end && place.checked_add(size).is_some_and(|end| end <= PLACE_MAX))
}

impl Dat<'_> {
    /// Takes in an option at byte `place`, which counts within the section if the section is
    /// compressed.
    fn option(&mut self, id: u64, data: &[u8], place: usize, damages: &mut Damages) {
        match id {
            // `Linux host 6.1.0 x86_64`
            UNAME => {
                let text = String::from_utf8_lossy(data);
                let last = text.trim_end_matches('\0').split_whitespace().next_back();
                self.machine = last.unwrap_or_default().to_owned();
            }
            CPUSTAT => self.losses.add(data),
            TRACE_CLOCK => self.set_clock(data, place, damages),
            OFFSET => {
                let text = String::from_utf8_lossy(data);
                match offset(text.trim_end_matches('\0').trim()) {
                    Some(offset) => self.times.offset = offset,
                    None => damages.at_byte(
                        place,
                        &format!(
                            "option {OFFSET} is not a number of nanoseconds; times stay as the kernel wrote \
                             them"
                        ),
                    ),
                }
            }
            TSC_TO_NS => {
                let mut option = Cursor::new(data, 0, self.endian);
                match (option.u32(), option.u32()) {
                    (Some(mult @ 1..), Some(shift @ ..64)) => (self.times.mult, self.times.shift) = (mult, shift),
                    _ => damages.at_byte(place, &format!("option {TSC_TO_NS} does not say how long a cycle is")),
                }
            }
            _ => {}
        }
    }

    /// The first clock that the file names, at byte `place`, is that of its times.
    fn set_clock(&mut self, text: &[u8], place: usize, damages: &mut Damages) {
        if !self.clock.is_empty() {
            return;
        }
        self.clock = clock::in_use(text);
        if let Some(why) = clock::unknown_clock(&self.clock) {
            damages.at_byte(place, &why);
        }
    }
}

const CPUSTAT: u64 = 2;
const BUFFER: u64 = 3;
const TRACE_CLOCK: u64 = 4;
const UNAME: u64 = 5;
const OFFSET: u64 = 7;
const CPU_COUNT: u64 = 8;
const TSC_TO_NS: u64 = 14;
const HEADER_INFO: u64 = 16;
const FTRACE_EVENTS: u64 = 17;
const EVENT_FORMATS: u64 = 18;

/// Nanoseconds with a sign, decimal or hexadecimal.
fn offset(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse::<u64>().ok().and_then(|value| i64::try_from(value).ok())?,
    };
    Some(if negative { -value } else { value })
}

/// The text of `events/header_page`; that of `header_event` is passed over, for its form has never
/// changed.
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
