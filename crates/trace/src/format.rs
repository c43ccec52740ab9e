//! The kernel's descriptions of its events (`events/SYSTEM/EVENT/format`) and of its pages
//! (`events/header_page`). Numbers and offsets of events differ between kernels; nothing here is
//! assumed, all is read.

use thiserror::Error;

use crate::bytes::Endian;

/// A field of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// The first byte, counted from the start of the event.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Its kind of content.
    pub kind: FieldKind,
}

/// A field's kind of content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// A number.
    Number,
    /// Several numbers, or characters.
    Array,
    /// `__data_loc`: four bytes with the place of an array in the event (low half) and its length
    /// (high half).
    DataLoc,
    /// `__rel_loc`: the same. The place counts from the field's end.
    RelLoc,
}

/// One event's description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    /// The event's name.
    pub name: String,
    /// Its number on that kernel.
    pub id: u16,
    /// Its fields, the common ones first.
    pub fields: Vec<Field>,
    /// How the kernel prints it (what follows `print fmt:`).
    pub print: String,
}

/// A description that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FormatError {
    /// A part is missing.
    #[error("a format file without a line {0:?}; it is not one of the kernel's events/*/*/format, or was cut")]
    Without(&'static str),
    /// A line that should describe a field does not.
    #[error("format of {event:?}, line {line}: {text:?} is no field")]
    Field {
        /// The event.
        event: String,
        /// From 1.
        line: usize,
        /// The line.
        text: String,
    },
}

impl Format {
    /// Reads a format file.
    ///
    /// # Errors
    /// No name or number, or a line of a field that cannot be read.
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        let (mut name, mut id, mut fields, mut print) = (None, None, Vec::new(), String::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("name:") {
                name = Some(rest.trim().to_owned());
            } else if let Some(rest) = line.strip_prefix("ID:") {
                id = rest.trim().parse().ok();
            } else if let Some(rest) = line.strip_prefix("print fmt:") {
                rest.trim().clone_into(&mut print);
            } else if line.starts_with("field") {
                fields.push(field(line).ok_or_else(|| FormatError::Field {
                    event: name.clone().unwrap_or_default(),
                    line: number + 1,
                    text: line.chars().take(120).collect(),
                })?);
            }
        }
        let name = name.ok_or(FormatError::Without("name:"))?;
        Ok(Format { name, id: id.ok_or(FormatError::Without("ID:"))?, fields, print })
    }

    /// The field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// `field:DECLARATION; offset:N; size:N;`, also `field special:`. What follows does not matter.
fn field(line: &str) -> Option<Field> {
    let (mut declaration, mut offset, mut size) = ("", None, None);
    for part in line.split(';') {
        let Some((key, value)) = part.trim().split_once(':') else { continue };
        match key {
            "offset" => offset = value.trim().parse().ok(),
            "size" => size = value.trim().parse().ok(),
            _ if key.starts_with("field") => declaration = value.trim(),
            _ => {}
        }
    }
    let kind = if declaration.starts_with("__data_loc") {
        FieldKind::DataLoc
    } else if declaration.starts_with("__rel_loc") {
        FieldKind::RelLoc
    } else if declaration.contains('[') {
        FieldKind::Array
    } else {
        FieldKind::Number
    };
    let last = declaration.rsplit([' ', '*', '\t']).find(|word| !word.is_empty())?;
    let name = last.split('[').next().filter(|name| !name.is_empty())?.to_owned();
    Some(Field { name, offset: offset?, size: size?, kind })
}

/// How the kernel's pages are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLayout {
    /// Bytes of a page.
    pub page: usize,
    /// The place and the size of the number of bytes in use.
    pub commit: (usize, usize),
    /// Where events begin.
    pub data: usize,
}

impl PageLayout {
    /// The layout of a kernel with words of `word` (4 or 8) bytes and pages of `page`, where
    /// nothing says it.
    #[must_use]
    pub fn usual(word: usize, page: usize) -> Self {
        PageLayout { page, commit: (8, word), data: 8 + word }
    }
    /// Reads `events/header_page`.
    ///
    /// # Errors
    /// A field is missing, or does not fit the others.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let fields: Vec<Field> = text.lines().filter_map(|line| field(line.trim())).collect();
        let of = |name| fields.iter().find(|field| field.name == name);
        let commit = of("commit").ok_or(FormatError::Without("field: local_t commit"))?;
        let data = of("data").ok_or(FormatError::Without("field: char data"))?;
        let fits = matches!(commit.size, 4 | 8) && commit.offset >= 8 && data.offset >= commit.offset + commit.size;
        match data.offset.checked_add(data.size) {
            Some(page) if fits && data.size > 0 && page <= Self::PAGE_MAX => {
                Ok(PageLayout { page, commit: (commit.offset, commit.size), data: data.offset })
            }
            _ => Err(FormatError::Without("of sound sizes: commit and data")),
        }
    }
    /// The byte order in which the header of `page` is sound: the page uses no more bytes than it
    /// has.
    #[must_use]
    pub fn endian_of(&self, page: &[u8]) -> Endian {
        let used =
            |order: Endian| order.unsigned(page, self.commit.0, self.commit.1).map_or(0, |used| used & 0x07ff_ffff);
        let fits = |order| used(order) <= (self.page - self.data) as u64;
        if fits(Endian::Little) || !fits(Endian::Big) { Endian::Little } else { Endian::Big }
    }
    /// The largest page, in bytes, that is taken for sound.
    pub const PAGE_MAX: usize = 1 << 24;
}
