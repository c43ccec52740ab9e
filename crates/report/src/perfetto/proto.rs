//! As much of the protobuf wire format as a writer of traces needs.

#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl Message {
    pub(super) fn uint(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(value);
        self
    }
    /// An `int64`: negative values take ten bytes, as the format says.
    pub(super) fn int(&mut self, field: u32, value: i64) -> &mut Self {
        self.uint(field, value as u64)
    }
    pub(super) fn fixed(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) -> &mut Self {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0)
    }
    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_format_s_documentation() {
        let mut message = Message::default();
        message.uint(1, 150);
        assert_eq!(message.as_bytes(), [0x08, 0x96, 0x01]);
        message.clear();
        message.text(2, "testing");
        assert_eq!(message.as_bytes(), b"\x12\x07testing");
        message.clear();
        message.message(3, |inner| {
            inner.uint(1, 150);
        });
        assert_eq!(message.as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        message.clear();
        message.fixed(1, 7);
        assert_eq!(message.as_bytes(), [0x09, 7, 0, 0, 0, 0, 0, 0, 0]);
        message.clear();
        message.int(1, -2);
        assert_eq!(message.as_bytes(), [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }
}
