//! The pages of a CPU in a trace.dat, plain or in compressed chunks, with memory in proportion to
//! the file.

use std::borrow::Cow;

use super::{DatError, UNPACKED_MAX};
use crate::bytes::{Cursor, Endian};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages<'a> {
    data: &'a [u8],
    packing: Option<Packing>,
    endian: Endian,
    place: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Packing {
    Zstd,
    Zlib,
}

/// The compression that the header of a file of version 7 names.
pub(super) fn packing_of(name: &[u8]) -> Result<Option<Packing>, DatError> {
    match name {
        b"none" | b"" => Ok(None),
        b"zstd" => Ok(Some(Packing::Zstd)),
        b"zlib" => Ok(Some(Packing::Zlib)),
        other => Err(DatError::Compression(String::from_utf8_lossy(other).into_owned())),
    }
}

/// The most bytes of one unpacked chunk of pages. trace-cmd puts ten pages into a chunk.
const CHUNK_MAX: usize = 1 << 26;
/// All chunks of a file together unpack to at most so many times its size, or to [`TOTAL_MAX`] if
/// that is more.
const RATIO_MAX: usize = 64;
const TOTAL_MAX: usize = 1 << 31;

/// The bytes that unpacking a file's pages may still take. It keeps time and memory in proportion
/// to the file.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Bytes that may be unpacked from here on.
    left: usize,
    /// Bytes of them that may be held at a time.
    held_left: usize,
}

impl Budget {
    /// For pages that take so many bytes of the file.
    pub(crate) fn of(bytes: usize) -> Budget {
        Budget { left: bytes.saturating_mul(RATIO_MAX).max(TOTAL_MAX), held_left: UNPACKED_MAX }
    }
    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left && bytes <= self.held_left;
        if fits {
            self.left -= bytes;
            self.held_left -= bytes;
        }
        fits
    }
    /// So many are held no longer.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.held_left += bytes;
    }
}

impl<'a> Pages<'a> {
    /// Those at `place` of a file.
    pub(super) fn new(data: &'a [u8], packing: Option<Packing>, endian: Endian, place: usize) -> Self {
        Pages { data, packing, endian, place }
    }
    pub(crate) fn plain(data: &'a [u8], endian: Endian) -> Self {
        Pages { data, packing: None, endian, place: 0 }
    }
    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }
    /// Runs of pages, as they are compressed.
    pub(crate) fn chunks(self) -> Chunks<'a> {
        let mut at = Cursor::new(self.data, 0, self.endian);
        let left = if self.packing.is_some() { at.u32().unwrap_or(0) } else { 1 };
        Chunks { pages: self, at, left }
    }
}

/// Pages, or why they cannot be unpacked.
pub(crate) type Unpacked<'a> = Result<Cow<'a, [u8]>, &'static str>;

#[derive(Clone, Debug)]
pub(crate) struct Chunks<'a> {
    pages: Pages<'a>,
    at: Cursor<'a>,
    left: u32,
}

impl<'a> Chunks<'a> {
    /// The place of the next run in the file, and its pages, or why they cannot be unpacked. The
    /// caller gives the bytes of dropped pages back to `budget`.
    pub(crate) fn next(&mut self, budget: &mut Budget) -> Option<(usize, Unpacked<'a>)> {
        self.left = self.left.checked_sub(1)?;
        let Some(packing) = self.pages.packing else {
            return Some((self.pages.place, Ok(Cow::Borrowed(self.pages.data))));
        };
        const BROKEN: &str = "a chunk of pages cannot be unpacked";
        let place = self.pages.place + self.at.at();
        let sizes = self.at.u32().zip(self.at.u32());
        let chunk = sizes.and_then(|(packed, unpacked)| Some((self.at.take(packed as usize)?, unpacked as usize)));
        let Some((packed, unpacked)) = chunk else {
            self.left = 0;
            return Some((place, Err(BROKEN)));
        };
        if unpacked > CHUNK_MAX || !budget.take(unpacked) {
            return Some((place, Err("a chunk of pages unpacks to more than is in proportion to the file")));
        }
        let pages = unpack(packed, unpacked, packing);
        budget.give_back(unpacked - pages.as_ref().map_or(0, Vec::len));
        Some((place, pages.map(Cow::Owned).ok_or(BROKEN)))
    }
}

/// `None`: not what it says to be, or more than [`UNPACKED_MAX`].
pub(super) fn unpack(packed: &[u8], unpacked: usize, packing: Packing) -> Option<Vec<u8>> {
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
