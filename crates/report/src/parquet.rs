//! Tables as Apache Parquet: one row group, plain encoding, no compression, no nulls. Every reader
//! of the format takes that.
//!
//! The format: <https://parquet.apache.org/docs/file-format/>; its metadata are Thrift structs in
//! the compact protocol. A file is a function of the table alone: the same bytes everywhere.

/// The values of a column.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Whole numbers.
    I64(Vec<i64>),
    /// Small whole numbers.
    I32(Vec<i32>),
    /// Fractions.
    F64(Vec<f64>),
    /// Text.
    Text(Vec<String>),
}

/// A named column.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// One value a row.
    pub values: Values,
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Values::I64(values) => values.len(),
            Values::I32(values) => values.len(),
            Values::F64(values) => values.len(),
            Values::Text(values) => values.len(),
        }
    }

    /// `Type` of the format.
    const fn kind(&self) -> i64 {
        match self {
            Values::I32(_) => 1,
            Values::I64(_) => 2,
            Values::F64(_) => 5,
            Values::Text(_) => 6,
        }
    }

    fn plain(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Values::I64(values) => values.iter().for_each(|value| out.extend(value.to_le_bytes())),
            Values::I32(values) => values.iter().for_each(|value| out.extend(value.to_le_bytes())),
            Values::F64(values) => values.iter().for_each(|value| out.extend(value.to_le_bytes())),
            Values::Text(values) => {
                for value in values {
                    out.extend((value.len() as u32).to_le_bytes());
                    out.extend(value.as_bytes());
                }
            }
        }
        out
    }
}

const MAGIC: &[u8; 4] = b"PAR1";

/// The file. `None` where columns differ in length, or one takes 2 GiB or more (the format's pages do not).
#[must_use]
pub fn parquet(columns: &[Column], maker: &str) -> Option<Vec<u8>> {
    let rows = columns.first().map_or(0, |column| column.values.len());
    if columns.iter().any(|column| column.values.len() != rows) || i32::try_from(rows).is_err() {
        return None;
    }
    let mut out = MAGIC.to_vec();
    let mut chunks = Vec::new();
    for column in columns {
        let (offset, data) = (out.len() as i64, column.values.plain());
        let size = i64::from(i32::try_from(data.len()).ok()?);
        // PageHeader: a data page, plain values; levels (of which there are none) as RLE.
        let mut header = Compact::default();
        header.int(1, 0).int(2, size).int(3, size);
        header.open(5).int(1, rows as i64).int(2, 0).int(3, 3).int(4, 3).close();
        out.extend(header.end());
        out.extend(data);
        chunks.push((offset, out.len() as i64 - offset));
    }
    let mut footer = Compact::default();
    footer.int(1, 1);
    footer.list(2, STRUCT, columns.len() + 1);
    footer.element().text(4, "schema").int(5, columns.len() as i64).close();
    for column in columns {
        footer.element().int(1, column.values.kind()).int(3, 0).text(4, &column.name);
        if matches!(column.values, Values::Text(_)) {
            footer.int(6, 0); // UTF8
        }
        footer.close();
    }
    footer.long(3, rows as i64);
    footer.list(4, STRUCT, 1);
    footer.element();
    footer.list(1, STRUCT, columns.len());
    for (column, (offset, size)) in columns.iter().zip(&chunks) {
        footer.element().long(2, *offset).open(3);
        footer.int(1, column.values.kind());
        footer.list(2, I32, 1).bare_int(0);
        footer.list(3, BINARY, 1).bare_text(&column.name);
        footer.int(4, 0).long(5, rows as i64).long(6, *size).long(7, *size).long(9, *offset);
        footer.close().close();
    }
    footer.long(2, chunks.iter().map(|(_, size)| size).sum()).long(3, rows as i64);
    footer.close();
    footer.text(6, maker);
    let footer = footer.end();
    out.extend(&footer);
    out.extend(u32::try_from(footer.len()).ok()?.to_le_bytes());
    out.extend(MAGIC);
    Some(out)
}

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

#[derive(Default)]
struct Compact {
    bytes: Vec<u8>,
    /// The field written last in this struct and in those around it.
    last: Vec<i16>,
    field: i16,
}

impl Compact {
    /// Field ids ascend by less than 16 within every struct here.
    fn head(&mut self, field: i16, kind: u8) {
        self.bytes.push(((field - self.field) as u8) << 4 | kind);
        self.field = field;
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn bare_int(&mut self, value: i64) -> &mut Self {
        self.varint((value << 1 ^ value >> 63) as u64);
        self
    }

    fn bare_text(&mut self, text: &str) -> &mut Self {
        self.varint(text.len() as u64);
        self.bytes.extend(text.as_bytes());
        self
    }

    fn int(&mut self, field: i16, value: i64) -> &mut Self {
        self.head(field, I32);
        self.bare_int(value)
    }

    fn long(&mut self, field: i16, value: i64) -> &mut Self {
        self.head(field, I64);
        self.bare_int(value)
    }

    fn text(&mut self, field: i16, text: &str) -> &mut Self {
        self.head(field, BINARY);
        self.bare_text(text)
    }

    fn list(&mut self, field: i16, kind: u8, count: usize) -> &mut Self {
        self.head(field, LIST);
        if count < 15 {
            self.bytes.push((count as u8) << 4 | kind);
        } else {
            self.bytes.push(0xF0 | kind);
            self.varint(count as u64);
        }
        self
    }

    fn open(&mut self, field: i16) -> &mut Self {
        self.head(field, STRUCT);
        self.element()
    }

    fn element(&mut self) -> &mut Self {
        self.last.push(self.field);
        self.field = 0;
        self
    }

    fn close(&mut self) -> &mut Self {
        self.bytes.push(0);
        self.field = self.last.pop().unwrap_or(0);
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_the_format_says_byte_for_byte() {
        let column = Column { name: "a".to_owned(), values: Values::I64(vec![5]) };
        let file = parquet(&[column], "m").expect("a file");
        let page = [0x15, 0, 0x15, 16, 0x15, 16, 0x2C, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0];
        let value = [5, 0, 0, 0, 0, 0, 0, 0];
        let footer: &[&[u8]] = &[
            &[0x15, 2, 0x19, 0x2C],
            &[0x48, 6],
            b"schema",
            &[0x15, 2, 0],
            &[0x15, 4, 0x25, 0, 0x18, 1],
            b"a",
            &[0],
            &[0x16, 2, 0x19, 0x1C, 0x19, 0x1C],
            &[0x26, 8, 0x1C, 0x15, 4, 0x19, 0x15, 0, 0x19, 0x18, 1],
            b"a",
            &[0x15, 0, 0x16, 2, 0x16, 50, 0x16, 50, 0x26, 8, 0, 0],
            &[0x16, 50, 0x16, 2, 0, 0x28, 1],
            b"m",
            &[0],
        ];
        let footer = footer.concat();
        let wanted: Vec<u8> = [MAGIC, &page[..], &value, &footer, &(footer.len() as u32).to_le_bytes(), MAGIC].concat();
        assert_eq!(file, wanted);
    }

    #[test]
    fn columns_of_different_lengths_are_no_table() {
        let column = |values| Column { name: "x".to_owned(), values };
        let text = column(Values::Text(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(parquet(&[text.clone(), column(Values::F64(vec![0.5]))], ""), None);
        assert!(parquet(&[text, column(Values::I32(vec![1, -1]))], "").is_some() && parquet(&[], "").is_some());
    }
}
