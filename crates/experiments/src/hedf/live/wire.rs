//! The bytes of a message between live nodes. Only these nodes are in their network, so nothing is
//! sealed. Numbers are little-endian; padding follows.

use takt_model::Time;

pub(super) const LENGTH: usize = 400;
const HEAD: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"hedf");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Request = 1,
    Reply,
}

/// A message; the times are those of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wire {
    pub(super) kind: Kind,
    pub(super) client: u16,
    pub(super) number: u64,
    pub(super) deadline: Time,
    /// When the request came to the server; zero in requests.
    pub(super) came: Time,
}

impl Wire {
    pub(super) fn to_bytes(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&self.client.to_le_bytes());
        let words = [self.number, self.deadline.as_ns(), self.came.as_ns()];
        for (word, at) in words.into_iter().zip((8..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Wire> {
        let head: &[u8; HEAD] = bytes.first_chunk().filter(|_| bytes.len() == LENGTH)?;
        let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let word = |at: usize| head[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        if head[..4] != MAGIC.to_le_bytes() {
            return None;
        }
        let kind = [Kind::Request, Kind::Reply].into_iter().find(|kind| *kind as u16 == short(4))?;
        let time = |at| word(at).map(Time::from_ns);
        Some(Wire { kind, client: short(6), number: word(8)?, deadline: time(16)?, came: time(24)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written_and_others_are_not() {
        let time = Time::from_ns;
        for kind in [Kind::Request, Kind::Reply] {
            let wire = Wire { kind, client: 7, number: u64::MAX - 1, deadline: time(3), came: time(1 << 40) };
            let bytes = wire.to_bytes();
            assert_eq!(Wire::parse(&bytes), Some(wire));
            assert_eq!((0..LENGTH).find(|length| Wire::parse(&bytes[..*length]).is_some()), None);
            for at in 0..5 {
                let mut other = bytes;
                other[at] ^= 0x80;
                assert_eq!(Wire::parse(&other), None, "byte {at}");
            }
        }
    }
}
