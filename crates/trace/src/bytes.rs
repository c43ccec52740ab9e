//! Numbers out of bytes, in either order, never past their end.

/// The order of bytes on the traced machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endian {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

impl Endian {
    /// This machine's.
    pub const NATIVE: Endian = if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };

    /// The `size` (1, 2, 4 or 8) bytes from `offset` on; `None` past the end.
    #[inline]
    pub(crate) fn unsigned(self, bytes: &[u8], offset: usize, size: usize) -> Option<u64> {
        let field = bytes.get(offset..offset.checked_add(size)?)?;
        Some(match (self, field) {
            (_, &[a]) => u64::from(a),
            (Endian::Little, &[a, b]) => u64::from(u16::from_le_bytes([a, b])),
            (Endian::Big, &[a, b]) => u64::from(u16::from_be_bytes([a, b])),
            (Endian::Little, &[a, b, c, d]) => u64::from(u32::from_le_bytes([a, b, c, d])),
            (Endian::Big, &[a, b, c, d]) => u64::from(u32::from_be_bytes([a, b, c, d])),
            (order, _) => {
                let eight: [u8; 8] = field.try_into().ok()?;
                if order == Endian::Little { u64::from_le_bytes(eight) } else { u64::from_be_bytes(eight) }
            }
        })
    }
    /// The four bytes from `offset` on.
    #[inline]
    pub(crate) fn u32(self, bytes: &[u8], offset: usize) -> Option<u32> {
        self.unsigned(bytes, offset, 4).and_then(|value| u32::try_from(value).ok())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    endian: Endian,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize, endian: Endian) -> Self {
        Cursor { bytes, at, endian }
    }
    pub(crate) fn at(&self) -> usize {
        self.at
    }
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }
    pub(crate) fn number(&mut self, size: usize) -> Option<u64> {
        let value = self.endian.unsigned(self.bytes, self.at, size)?;
        self.at += size;
        Some(value)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.number(4).and_then(|value| u32::try_from(value).ok())
    }
    /// An eight-byte number that must be a place or a size in memory.
    pub(crate) fn size(&mut self) -> Option<usize> {
        self.number(8).and_then(|value| usize::try_from(value).ok())
    }
    /// Up to a NUL, which is passed over.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = memchr::memchr(0, rest)?;
        self.at += length + 1;
        Some(&rest[..length])
    }
}
