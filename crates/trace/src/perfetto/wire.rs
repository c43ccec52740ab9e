//! Protocol buffers as they lie in memory: the fields of a message one after the other, none past
//! its end.
//!
//! Generated readers of whole messages do not fit. They copy each text and list of a packet, refuse
//! a whole packet for one name that is no UTF-8, and do not report the byte where they stopped.

/// A range of the bytes that are read; the end is excluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Part {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Part {
    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// A number of variable length.
    Number(u64),
    /// Text, another message, or a list of numbers.
    Bytes(Part),
    /// Four or eight bytes, which nothing that is read here has.
    Fixed,
}

/// The byte at which there is no sound field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken {
    pub(super) at: usize,
    /// The field's contents go on past the end of the message.
    pub(super) cut: Option<Cut>,
}

/// A field that is longer than what is left of its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) number: u32,
    pub(super) part: Part,
}

/// The fields of one message, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    /// Up to the end of the message.
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8], part: Part) -> Self {
        let end = part.end.min(bytes.len());
        Fields { bytes: &bytes[..end], at: part.start.min(end) }
    }
    #[inline]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next field: its number and what it holds. After one that is broken there are no more.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Result<(u32, Value), Broken>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let start = self.at;
        match self.read() {
            Ok(field) => Some(Ok(field)),
            Err(cut) => {
                self.at = self.bytes.len();
                Some(Err(Broken { at: start, cut }))
            }
        }
    }

    #[inline]
    fn read(&mut self) -> Result<(u32, Value), Option<Cut>> {
        let key = varint(self.bytes, &mut self.at).ok_or(None)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number)).ok_or(None)?;
        let value = match key & 7 {
            0 => Value::Number(varint(self.bytes, &mut self.at).ok_or(None)?),
            2 => {
                let length = varint(self.bytes, &mut self.at).ok_or(None)?;
                let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length)).ok_or(None)?;
                let start = self.at;
                if end > self.bytes.len() {
                    return Err(Some(Cut { number, part: Part { start, end: self.bytes.len() } }));
                }
                self.at = end;
                Value::Bytes(Part { start, end })
            }
            1 => self.fixed(8)?,
            5 => self.fixed(4)?,
            _ => return Err(None),
        };
        Ok((number, value))
    }

    fn fixed(&mut self, size: usize) -> Result<Value, Option<Cut>> {
        self.at += size;
        if self.at > self.bytes.len() { Err(None) } else { Ok(Value::Fixed) }
    }
}

/// The number at `at`, which is moved behind it; `None`: it is longer than a number can be, or than
/// `bytes`.
#[inline]
pub(super) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let rest = bytes.get(*at..)?;
    let first = *rest.first()?;
    if first < 0x80 {
        *at += 1;
        return Some(u64::from(first));
    }
    let (value, length) = match rest.first_chunk() {
        Some(eight) => short(u64::from_le_bytes(*eight)).or_else(|| long(rest))?,
        None => long(rest)?,
    };
    *at += length;
    Some(value)
}

/// A number that ends within eight bytes, and how many it has: its groups of seven bits are moved
/// together pairwise.
#[inline]
fn short(eight: u64) -> Option<(u64, usize)> {
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let ends = !eight & TOPS;
    if ends == 0 {
        return None;
    }
    let bits = ends.trailing_zeros();
    let value = eight & !TOPS & (u64::MAX >> (63 - bits));
    let value = (value & 0x007f_007f_007f_007f) | ((value & 0x7f00_7f00_7f00_7f00) >> 1);
    let value = (value & 0x0000_3fff_0000_3fff) | ((value & 0x3fff_0000_3fff_0000) >> 2);
    let value = (value & 0x0000_0000_0fff_ffff) | ((value & 0x0fff_ffff_0000_0000) >> 4);
    Some((value, bits as usize / 8 + 1))
}

/// A number of up to ten bytes; what does not fit into 64 bits is dropped, as other readers do.
#[cold]
fn long(rest: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (k, byte) in rest.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * k);
        if byte & 0x80 == 0 {
            return Some((value, k + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    #[test]
    fn numbers_of_any_length() {
        for bits in 0..64 {
            for value in [1_u64 << bits, (1 << bits) - 1, 0x5555_5555_5555_5555 >> (63 - bits), u64::MAX >> bits] {
                for behind in [0, 1, 9] {
                    let mut bytes = written(value);
                    let length = bytes.len();
                    bytes.extend(std::iter::repeat_n(0xff, behind));
                    let mut at = 0;
                    assert_eq!((varint(&bytes, &mut at), at), (Some(value), length), "{value:#x} {behind}");
                }
            }
        }
        for bytes in [&[][..], &[0x80], &[0xff; 10], &[0xff; 20]] {
            assert_eq!(varint(bytes, &mut 0), None);
        }
    }

    #[test]
    fn fields_end_with_the_message() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 0x02, b'a', b'b', 0x1d, 1, 2, 3, 4, 0x2a, 0x05, b'x', b'y'];
        let mut fields = Fields::new(&bytes, Part { start: 0, end: bytes.len() });
        assert_eq!(fields.next(), Some(Ok((1, Value::Number(150)))));
        assert_eq!(fields.next(), Some(Ok((2, Value::Bytes(Part { start: 5, end: 7 })))));
        assert_eq!(fields.next(), Some(Ok((3, Value::Fixed))));
        let cut = Cut { number: 5, part: Part { start: 14, end: 16 } };
        assert_eq!(fields.next(), Some(Err(Broken { at: 12, cut: Some(cut) })));
        assert_eq!(fields.next(), None);
        // A group, a field without a number.
        for bytes in [[0x0b], [0x02]] {
            let mut fields = Fields::new(&bytes, Part { start: 0, end: 1 });
            assert_eq!(fields.next(), Some(Err(Broken { at: 0, cut: None })));
        }
    }
}
