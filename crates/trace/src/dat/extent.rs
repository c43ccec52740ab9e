//! The length of a trace.dat by its headers, before the rest is read or unpacked.

use std::io::{self, Read};

use super::chunks::{Packing, packing_of, unpack};
use super::{BUFFER, CPU_COUNT, DatError, HEADER_INFO, MAGIC};
use crate::bytes::{Cursor, Endian};
use crate::event::CPUS_MAX;

/// The longest headers of a file of version 6.
pub const HEADERS_MAX: u64 = 256 << 20;
/// The most bytes of a section of options that are looked at here.
const OPTIONS_MAX: u64 = 64 << 20;
/// The longest name in a header.
const NAME_MAX: usize = 4096;

enum Stop {
    /// The input ends, or the headers do not tell.
    Unknown,
    /// The file cannot be read, however it goes on.
    Refused(DatError),
}

type Step<T> = Result<T, Stop>;

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Stop {
        Stop::Unknown
    }
}

/// The end of the last bytes of a trace.dat that its headers name. `None`: the headers do not tell, and all of
/// `input` is needed. `skip` skips so many bytes of the input, and returns how many there were.
///
/// # Errors
/// The file cannot be read, however it goes on.
pub fn dat_extent<R: Read>(
    input: R,
    skip: impl FnMut(&mut R, u64) -> io::Result<u64>,
) -> Result<Option<u64>, DatError> {
    let mut walk = Walk { input, skip, at: 0, endian: Endian::Little };
    match walk.extent() {
        Ok(extent) => Ok(Some(extent)),
        Err(Stop::Unknown) => Ok(None),
        Err(Stop::Refused(error)) => Err(error),
    }
}

/// [`dat_extent`] by the first bytes of a file.
///
/// # Errors
/// As there.
pub fn dat_extent_of(head: &[u8]) -> Result<Option<u64>, DatError> {
    dat_extent(head, |left, count| {
        // What follows is not known.
        let rest = usize::try_from(count).ok().and_then(|count| left.get(count..));
        *left = rest.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(count)
    })
}

struct Walk<R, S> {
    input: R,
    skip: S,
    at: u64,
    endian: Endian,
}

impl<R: Read, S: FnMut(&mut R, u64) -> io::Result<u64>> Walk<R, S> {
    fn bytes<const N: usize>(&mut self) -> Step<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn number(&mut self, size: usize) -> Step<u64> {
        let mut bytes = [0; 8];
        self.input.read_exact(&mut bytes[..size])?;
        self.at += size as u64;
        self.endian.unsigned(&bytes, 0, size).ok_or(Stop::Unknown)
    }

    /// Up to a NUL, which is passed over.
    fn text(&mut self) -> Step<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            match self.bytes::<1>()? {
                [0] => return Ok(text),
                _ if text.len() == NAME_MAX => return Err(Stop::Unknown),
                [byte] => text.push(byte),
            }
        }
    }

    /// Passes over so many bytes. `Err`: so many are there.
    fn pass(&mut self, count: u64) -> Step<Result<(), u64>> {
        let there = (self.skip)(&mut self.input, count)?;
        self.at = self.at.saturating_add(there);
        Ok(if there == count { Ok(()) } else { Err(self.at) })
    }

    fn skip(&mut self, count: u64) -> Step<()> {
        self.pass(count)?.map_err(|_| Stop::Unknown)
    }

    /// A run of `count` bytes that is looked at.
    fn run(&mut self, count: u64) -> Step<Vec<u8>> {
        let mut bytes = Vec::new();
        if count > OPTIONS_MAX || self.input.by_ref().take(count).read_to_end(&mut bytes)? as u64 != count {
            return Err(Stop::Unknown);
        }
        self.at += count;
        Ok(bytes)
    }

    fn expect<const N: usize>(&mut self, name: &[u8; N], part: &'static str) -> Step<()> {
        let at = usize::try_from(self.at).unwrap_or(usize::MAX);
        if self.bytes::<N>()? == *name { Ok(()) } else { Err(Stop::Refused(DatError::Cut { at, part })) }
    }

    fn extent(&mut self) -> Step<u64> {
        self.skip(MAGIC.len() as u64)?;
        let version = self.text()?;
        let [order, _word] = self.bytes()?;
        self.endian = if order == 0 { Endian::Little } else { Endian::Big };
        self.number(4)?;
        match version.as_slice() {
            b"6" => self.version_6(),
            b"7" => self.version_7(),
            other => Err(Stop::Refused(DatError::Version(String::from_utf8_lossy(other).into_owned()))),
        }
    }

    fn version_6(&mut self) -> Step<u64> {
        self.expect(b"header_page\0", "header_page")?;
        let length = self.number(8)?;
        self.skip(length)?;
        self.expect(b"header_event\0", "header_page")?;
        let length = self.number(8)?;
        self.skip(length)?;
        self.formats()?;
        for _ in 0..self.number(4)? {
            self.text()?;
            self.formats()?;
        }
        for size in [4, 4, 8] {
            let length = self.number(size)?;
            self.skip(length)?;
        }
        let mut cpus = self.number(4)?;
        let mut kind = self.bytes::<10>()?;
        let mut instances = Vec::new();
        if kind == *b"options  \0" {
            loop {
                self.within_headers()?;
                let id = self.number(2)?;
                if id == 0 {
                    kind = self.bytes()?;
                    break;
                }
                match (id, self.number(4)?) {
                    (BUFFER, length @ 8..) => {
                        instances.push(self.number(8)?);
                        self.skip(length - 8)?;
                    }
                    // The other number may be that of the table.
                    (CPU_COUNT, 4) => cpus = cpus.max(self.number(4)?),
                    (_, length) => self.skip(length)?,
                }
            }
        }
        if let Some(error) = no_table(&kind, self.at) {
            return Err(Stop::Refused(error));
        }
        let mut extent = self.table(cpus)?;
        instances.sort_unstable();
        for place in instances {
            // An instance's table has the same head as the first one's.
            let ahead = place.checked_add(10).and_then(|place| place.checked_sub(self.at)).ok_or(Stop::Unknown)?;
            self.skip(ahead)?;
            extent = extent.max(self.table(cpus)?);
        }
        Ok(extent)
    }

    fn within_headers(&self) -> Step<()> {
        if self.at > HEADERS_MAX { Err(Stop::Refused(DatError::Headers)) } else { Ok(()) }
    }

    fn formats(&mut self) -> Step<()> {
        for _ in 0..self.number(4)? {
            let length = self.number(8)?;
            self.skip(length)?;
            self.within_headers()?;
        }
        self.within_headers()
    }

    /// The end of the pages in a table, or of the table.
    fn table(&mut self, cpus: u64) -> Step<u64> {
        let mut extent = 0;
        for _ in 0..cpus.min(u64::from(CPUS_MAX)) {
            let (place, size) = (self.number(8)?, self.number(8)?);
            extent = if size == 0 { extent } else { extent.max(place.saturating_add(size)) };
        }
        Ok(extent.max(self.at))
    }

    fn version_7(&mut self) -> Step<u64> {
        let name = self.text()?;
        self.text()?;
        let packing = packing_of(&name).map_err(Stop::Refused)?;
        let mut options = self.number(8)?;
        if options == 0 {
            return Err(Stop::Refused(DatError::NoOptions));
        }
        let (mut extent, mut far) = (0, 0);
        while options != 0 {
            let place = usize::try_from(options).map_err(|_| Stop::Unknown)?;
            // The first section begins behind the header, and is there. Later ones may go back, be cut or be empty.
            let is_first = extent == 0;
            let refuse = |error| if is_first { Stop::Refused(error) } else { Stop::Unknown };
            let ahead = options.checked_sub(self.at).ok_or_else(|| refuse(DatError::Options(place)))?;
            if let Err(length) = self.pass(ahead)? {
                let length = usize::try_from(length).map_err(|_| Stop::Unknown)?;
                return Err(refuse(DatError::CutBeforeOptions { length, place }));
            }
            let list = self.options(packing)?;
            if list.is_empty() {
                return Err(refuse(DatError::Options(place)));
            }
            extent = extent.max(self.at);
            options = 0;
            let mut list = Cursor::new(&list, 0, self.endian);
            while let Some(id) = list.number(2) {
                let data = list.u32().and_then(|length| list.take(length as usize)).ok_or(Stop::Unknown)?;
                let mut option = Cursor::new(data, 0, self.endian);
                match id {
                    0 => {
                        options = option.number(8).unwrap_or(0);
                        break;
                    }
                    BUFFER => extent = extent.max(buffer_end(&mut option).ok_or(Stop::Unknown)?),
                    HEADER_INFO.. => far = far.max(option.number(8).unwrap_or(0)),
                    _ => {}
                }
            }
        }
        // A section behind all that, whose length is not known.
        if far > extent { Err(Stop::Unknown) } else { Ok(extent) }
    }

    /// The section of options here, unpacked.
    fn options(&mut self, packing: Option<Packing>) -> Step<Vec<u8>> {
        let (_id, flags, _text, size) = (self.number(2)?, self.number(2)?, self.number(4)?, self.number(8)?);
        if flags & 1 == 0 {
            return self.run(size);
        }
        let (packed, unpacked) = (self.number(4)?, self.number(4)?);
        let bytes = self.run(packed)?;
        let unpacked = usize::try_from(unpacked.min(OPTIONS_MAX)).map_err(|_| Stop::Unknown)?;
        unpack(&bytes, unpacked, packing.ok_or(Stop::Unknown)?).ok_or(Stop::Unknown)
    }
}

/// The end of the pages of an instance.
fn buffer_end(option: &mut Cursor<'_>) -> Option<u64> {
    option.number(8)?;
    option.text()?;
    option.text()?;
    let (_page, cpus) = (option.u32()?, option.u32()?);
    let mut end = 0;
    for _ in 0..cpus.min(CPUS_MAX) {
        let (_cpu, place, size) = (option.u32()?, option.number(8)?, option.number(8)?);
        // Chunks have their count before them, which some sizes lack.
        end = if size == 0 { end } else { end.max(place.checked_add(size)?.checked_add(4)?) };
    }
    Some(end)
}

/// Why no table of CPUs follows a kind that ends at byte `at`; `None`: one does.
pub(super) fn no_table(kind: &[u8], at: u64) -> Option<DatError> {
    match kind {
        b"flyrecord\0" => None,
        b"latency  \0" => Some(DatError::Format(
            "it holds the text of a latency tracer; give that text itself (trace-cmd report)".into(),
        )),
        _ => Some(DatError::Format(format!(
            "at byte {} the table of its CPUs should begin (\"flyrecord\"), and does not",
            at.saturating_sub(10)
        ))),
    }
}
