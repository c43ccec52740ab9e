//! The messages of flows between the nodes of a live system, as datagrams. Sealed messages about clocks
//! ([`SyncMessage`](crate::SyncMessage)) have the same head, with another kind, and the same tag.
//!
//! | part | bytes | contents |
//! |---|---|---|
//! | head | [`HEAD`] | who sent it, in which run; readable and authenticated |
//! | body | [`BODY`], a program's payload, and padding | the message; encrypted |
//! | tag | [`TAG`] | proves that a node with the key made the head and the body |
//!
//! The caller encrypts: the associated data is the head, the nonce is [`MessageHead::nonce`]. A
//! sender never uses a nonce twice, for the salt is random in each process and the counter only
//! grows. Numbers are little-endian.

use takt_model::{TaskId, Time};

use crate::sync_wire;

/// Bytes of the head.
pub const HEAD: usize = 56;
/// Bytes of the body without its padding.
pub const BODY: usize = 48;
/// Bytes of the authentication tag.
pub const TAG: usize = 16;
/// Bytes of a sealed message about clocks, with head and tag.
pub const SYNC_SEALED: usize = HEAD + sync_wire::LENGTH + TAG;
/// Bytes of the shortest datagram.
pub const LENGTH_MIN: usize = HEAD + BODY + TAG;

const MAGIC: [u8; 4] = *b"tktm";
const VERSION: u8 = 2;

/// What a sealed datagram carries. Its number stands in the authenticated head, so a datagram of one kind
/// never opens as one of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramKind {
    /// A message of a flow.
    Flow,
    /// A message about clocks.
    Clock,
}

impl DatagramKind {
    fn number(self) -> u8 {
        match self {
            DatagramKind::Flow => 0,
            DatagramKind::Clock => 1,
        }
    }

    /// Whether a datagram of so many bytes may be of this kind.
    fn fits(self, bytes: usize) -> bool {
        match self {
            DatagramKind::Flow => bytes >= LENGTH_MIN,
            DatagramKind::Clock => bytes == SYNC_SEALED,
        }
    }
}

/// Who sent a message, and in which run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageHead {
    /// The number of the sending node in the system.
    pub from: u16,
    /// Random for each process that sends.
    pub salt: [u8; 16],
    /// Counts the datagrams of this process from one.
    pub counter: u64,
    /// When the process began to send, in nanoseconds since 1970: a later process has a later time.
    pub boot: u64,
    /// The common start of the run, in nanoseconds since 1970.
    pub run: u64,
    /// A digest of the system, which is the same on all nodes.
    pub system: u64,
}

/// A message of a flow, or the job that left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageBody {
    /// The task of the job that left it.
    pub task: TaskId,
    /// The job's number, which is that of the instance of the flow.
    pub job: u64,
    /// The message's number among those of the sending node.
    pub message: u64,
    /// The deadline of the job, in the sender's time of the run.
    pub due: Time,
    /// The arrival of the instance of the flow, in the sender's time of the run.
    pub origin: Time,
    /// Time zero of the run on the sender's CLOCK_MONOTONIC.
    pub zero: Time,
    /// Bytes of a program behind the body. Zeros follow them.
    pub payload: u16,
}

impl MessageHead {
    /// Its bytes in a message of a flow.
    #[must_use]
    pub fn write(&self) -> [u8; HEAD] {
        self.write_as(DatagramKind::Flow)
    }

    /// Its bytes in a datagram of this kind.
    #[must_use]
    pub fn write_as(&self, kind: DatagramKind) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let [low, high] = self.from.to_le_bytes();
        let first = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION, kind.number(), low, high];
        let counts = [self.counter, self.boot, self.run, self.system].map(u64::to_le_bytes);
        let [salt_low, salt_high] = halves(self.salt);
        let words = [first, salt_low, salt_high].into_iter().chain(counts);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word);
        }
        bytes
    }

    /// Reads the head of a message of a flow; `None`: it is none of this version, or too short.
    #[must_use]
    pub fn read(datagram: &[u8]) -> Option<MessageHead> {
        MessageHead::read_as(DatagramKind::Flow, datagram)
    }

    /// Reads the head of a datagram of this kind; `None`: it is of another kind or version, or has a length that
    /// none of this kind has.
    #[must_use]
    pub fn read_as(kind: DatagramKind, datagram: &[u8]) -> Option<MessageHead> {
        let mut words = datagram.get(..HEAD)?.chunks_exact(8).map(|word| word.try_into().unwrap_or([0; 8]));
        let [first, salt_low, salt_high, rest @ ..]: [[u8; 8]; 7] =
            std::array::from_fn(|_| words.next().unwrap_or([0; 8]));
        let [a, b, c, d, VERSION, number, low, high] = first else { return None };
        if [a, b, c, d] != MAGIC || number != kind.number() || !kind.fits(datagram.len()) {
            return None;
        }
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&salt_low);
        salt[8..].copy_from_slice(&salt_high);
        let [counter, boot, run, system] = rest.map(u64::from_le_bytes);
        Some(MessageHead { from: u16::from_le_bytes([low, high]), salt, counter, boot, run, system })
    }

    /// The number that no two datagrams share: salt and counter.
    #[must_use]
    pub fn nonce(&self) -> [u8; 24] {
        let mut nonce = [0; 24];
        nonce[..16].copy_from_slice(&self.salt);
        nonce[16..].copy_from_slice(&self.counter.to_le_bytes());
        nonce
    }
}

fn halves(salt: [u8; 16]) -> [[u8; 8]; 2] {
    let (mut low, mut high) = ([0; 8], [0; 8]);
    low.copy_from_slice(&salt[..8]);
    high.copy_from_slice(&salt[8..]);
    [low, high]
}

impl MessageBody {
    /// Writes it into the place of the body, which has [`BODY`] bytes or more. All bytes behind it become
    /// zero but those of the payload, which are left as they are.
    pub fn write(&self, into: &mut [u8]) {
        let length = u16::try_from(into.len()).unwrap_or(0);
        let first = u64::from(self.task.0) | u64::from(length) << 32 | u64::from(self.payload) << 48;
        let words = [first, self.job, self.message, self.due.as_ns(), self.origin.as_ns(), self.zero.as_ns()];
        if let Some(rest) = into.get_mut(BODY + usize::from(self.payload)..) {
            rest.fill(0);
        }
        for (place, word) in into.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads a decrypted body with its padding; `None`: it contradicts itself.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<MessageBody> {
        let mut words = body.get(..BODY)?.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes));
        let [first, job, message, due, origin, zero] =
            std::array::from_fn(|_| words.next().and_then(Result::ok).unwrap_or(0));
        let (task, length, payload) = (first as u32, (first >> 32) as u16, (first >> 48) as u16);
        let padding = body.get(BODY + usize::from(payload)..)?;
        if usize::from(length) != body.len() || padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        let [due, origin, zero] = [due, origin, zero].map(Time::from_ns);
        Some(MessageBody { task: TaskId(task), job, message, due, origin, zero, payload })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head() -> impl Strategy<Value = MessageHead> {
        let parts = (any::<u16>(), any::<[u8; 16]>(), any::<[u64; 4]>());
        parts.prop_map(|(from, salt, [counter, boot, run, system])| MessageHead {
            from,
            salt,
            counter,
            boot,
            run,
            system,
        })
    }

    proptest! {
        #[test]
        fn a_head_comes_back_and_any_other_byte_is_another_head(
            head in head(), place in 0..HEAD, flip in 1..=255_u8,
        ) {
            let mut datagram = head.write().to_vec();
            datagram.resize(LENGTH_MIN, 0);
            prop_assert_eq!(MessageHead::read(&datagram), Some(head));
            datagram[place] ^= flip;
            prop_assert_ne!(MessageHead::read(&datagram), Some(head));
            prop_assert_eq!(MessageHead::read(&datagram[..LENGTH_MIN - 1]), None);
        }

        #[test]
        fn a_body_comes_back_with_its_padding(
            task in any::<u32>(), [job, message, due, origin, zero] in any::<[u64; 5]>(), padding in 0..2000_usize,
            payload in any::<prop::sample::Index>(),
        ) {
            let payload = payload.index(padding + 1) as u16;
            let [due, origin, zero] = [due, origin, zero].map(Time::from_ns);
            let body = MessageBody { task: TaskId(task), job, message, due, origin, zero, payload };
            let mut bytes = vec![7; BODY + padding];
            body.write(&mut bytes);
            prop_assert_eq!(MessageBody::read(&bytes), Some(body));
            let payload = usize::from(payload);
            prop_assert_eq!(&bytes[BODY..BODY + payload], &vec![7; payload][..]);
            bytes.push(0);
            prop_assert_eq!(MessageBody::read(&bytes), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            // Whatever is read is written the same way.
            if let Some(head) = MessageHead::read(&bytes) {
                prop_assert_eq!(&head.write()[..], &bytes[..HEAD]);
            }
            if let Some(body) = MessageBody::read(&bytes) {
                let mut again = bytes.clone();
                let payload = usize::from(body.payload);
                again[..BODY].fill(1);
                again[BODY + payload..].fill(1);
                body.write(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn a_head_is_of_one_kind_alone() {
        let head = MessageHead { from: 1, salt: [3; 16], counter: 9, boot: 1, run: 2, system: 3 };
        let kinds = [DatagramKind::Flow, DatagramKind::Clock];
        for (written, read) in kinds.into_iter().flat_map(|written| kinds.map(|read| (written, read))) {
            let mut datagram = head.write_as(written).to_vec();
            datagram.resize(SYNC_SEALED, 0);
            let found = MessageHead::read_as(read, &datagram);
            assert_eq!(found, (written == read).then_some(head), "{written:?} as {read:?}");
        }
        // A message about clocks has one length.
        let mut datagram = head.write_as(DatagramKind::Clock).to_vec();
        for length in [SYNC_SEALED - 1, SYNC_SEALED + 1] {
            datagram.resize(length, 0);
            assert_eq!(MessageHead::read_as(DatagramKind::Clock, &datagram), None);
        }
    }

    #[test]
    fn nonces_differ_by_salt_and_counter() {
        let head = MessageHead { from: 1, salt: [3; 16], counter: 9, boot: 1, run: 2, system: 3 };
        assert_ne!(head.nonce(), MessageHead { counter: 10, ..head }.nonce());
        assert_ne!(head.nonce(), MessageHead { salt: [4; 16], ..head }.nonce());
        assert_eq!(head.nonce(), MessageHead { from: 2, boot: 7, ..head }.nonce());
    }
}
