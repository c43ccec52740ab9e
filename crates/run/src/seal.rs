//! Sealed datagrams: encryption and authentication by XChaCha20-Poly1305, with a key that all nodes
//! share. Pure.

use chacha20poly1305::{AeadInOut as _, KeyInit as _, Tag, XChaCha20Poly1305};
use takt_net::{
    DatagramKind, MESSAGE_BODY, MESSAGE_HEAD, MESSAGE_TAG, MessageBody, MessageHead, ReplayGuard, ReplayRefusal,
    SYNC_SEALED, SyncMessage,
};
use thiserror::Error;

/// Bytes of a key.
const KEY: usize = 32;

/// The key that all nodes of a system share.
#[derive(Clone)]
pub struct Key(XChaCha20Poly1305);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why a text is no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a key is 64 hexadecimal digits; make one with: openssl rand -hex 32")]
pub struct KeyError;

impl std::str::FromStr for Key {
    type Err = KeyError;

    /// 64 hexadecimal digits. White space around them does not count.
    fn from_str(text: &str) -> Result<Key, KeyError> {
        let digits = text.trim();
        if digits.len() != 2 * KEY || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(KeyError);
        }
        let mut key = [0; KEY];
        for (place, byte) in key.iter_mut().enumerate() {
            let digits = digits.get(2 * place..2 * place + 2).ok_or(KeyError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| KeyError)?;
        }
        Ok(Key(XChaCha20Poly1305::new(&key.into())))
    }
}

/// The key and the counter by which a node seals its messages.
pub(crate) struct Sealer {
    key: Key,
    head: MessageHead,
}

impl Sealer {
    pub(crate) fn new(key: Key, head: MessageHead) -> Sealer {
        Sealer { key, head }
    }

    /// Seals a datagram that leaves now. A receiver drops one that 1024 others of this sealer have overtaken.
    pub(crate) fn seal(&mut self, body: &MessageBody, datagram: &mut [u8]) -> bool {
        self.head.counter += 1;
        self.key.seal(&self.head, body, datagram)
    }

    /// Seals a message about clocks that leaves now.
    pub(crate) fn seal_sync(&mut self, message: &SyncMessage) -> Option<[u8; SYNC_SEALED]> {
        self.head.counter += 1;
        self.key.seal_sync(&self.head, message)
    }
}

/// Why a sealed datagram does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SealRefusal {
    Malformed,
    Foreign,
    /// Nobody with the key made it.
    Forged,
    Replayed,
    /// It is of a process that a later one has replaced.
    Former,
}

/// What `open` makes of a datagram with this head, if it is of this run and system, and counts for the first time. The
/// guards are by node. One of them notes a datagram only after `open` has proven it.
pub(crate) fn accept<T>(
    head: &MessageHead,
    (run, system): (u64, u64),
    guards: &mut [ReplayGuard],
    open: impl FnOnce() -> Result<T, SealRefusal>,
) -> Result<T, SealRefusal> {
    if head.run != run || head.system != system {
        return Err(SealRefusal::Foreign);
    }
    let guard = guards.get_mut(usize::from(head.from)).ok_or(SealRefusal::Malformed)?;
    let opened = open()?;
    match guard.accept(head.boot, head.salt, head.counter) {
        Ok(()) => Ok(opened),
        Err(ReplayRefusal::Former) => Err(SealRefusal::Former),
        Err(ReplayRefusal::Again | ReplayRefusal::Old) => Err(SealRefusal::Replayed),
    }
}

impl Key {
    /// Writes a sealed datagram that fills `datagram`. Returns `false` if `datagram` is too short.
    #[must_use]
    pub fn seal(&self, head: &MessageHead, body: &MessageBody, datagram: &mut [u8]) -> bool {
        let end = datagram.len().saturating_sub(MESSAGE_TAG);
        let inside = datagram.get_mut(MESSAGE_HEAD..end).filter(|inside| inside.len() >= MESSAGE_BODY);
        let Some(inside) = inside else { return false };
        body.write(inside);
        self.encrypt(DatagramKind::Flow, head, datagram).is_some()
    }

    /// Opens a datagram with this head. The bytes change. `None`: nobody with the key made it as it
    /// is.
    #[must_use]
    pub fn open(&self, head: &MessageHead, datagram: &mut [u8]) -> Option<MessageBody> {
        MessageBody::read(self.decrypt(DatagramKind::Flow, head, datagram)?)
    }

    /// The sealed datagram of a message about clocks. `None` never happens: the cipher refuses only datagrams
    /// that are far longer.
    #[must_use]
    pub fn seal_sync(&self, head: &MessageHead, message: &SyncMessage) -> Option<[u8; SYNC_SEALED]> {
        let mut datagram = [0; SYNC_SEALED];
        datagram.get_mut(MESSAGE_HEAD..SYNC_SEALED - MESSAGE_TAG)?.copy_from_slice(&message.write());
        self.encrypt(DatagramKind::Clock, head, &mut datagram)?;
        Some(datagram)
    }

    /// Opens a message about clocks with this head. The bytes change. `None`: nobody with the key made it as it
    /// is.
    #[must_use]
    pub fn open_sync(&self, head: &MessageHead, datagram: &mut [u8]) -> Option<SyncMessage> {
        SyncMessage::read(self.decrypt(DatagramKind::Clock, head, datagram)?)
    }

    /// Encrypts what stands between head and tag, and writes these.
    fn encrypt(&self, kind: DatagramKind, head: &MessageHead, datagram: &mut [u8]) -> Option<()> {
        let (first, rest) = datagram.split_at_mut_checked(MESSAGE_HEAD)?;
        let (inside, place) = rest.split_at_mut_checked(rest.len().checked_sub(MESSAGE_TAG)?)?;
        first.copy_from_slice(&head.write_as(kind));
        let tag = self.0.encrypt_inout_detached(&head.nonce().into(), first, inside.into()).ok()?;
        place.copy_from_slice(&tag);
        Some(())
    }

    /// Decrypts what stands between head and tag. A head of another kind is not the one that was sealed.
    fn decrypt<'a>(&self, kind: DatagramKind, head: &MessageHead, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let (_, rest) = datagram.split_at_mut_checked(MESSAGE_HEAD)?;
        let (inside, tag) = rest.split_at_mut_checked(rest.len().checked_sub(MESSAGE_TAG)?)?;
        let tag = Tag::try_from(&*tag).ok()?;
        let first = head.write_as(kind);
        self.0.decrypt_inout_detached(&head.nonce().into(), &first, (&mut *inside).into(), &tag).ok()?;
        Some(inside)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_model::{TaskId, Time};
    use takt_net::{MESSAGE_MIN, SyncRequest};

    use super::*;

    fn key(digit: &str) -> Key {
        digit.repeat(64).parse().unwrap()
    }

    fn message(counter: u64) -> (MessageHead, MessageBody) {
        let head = MessageHead { from: 3, salt: [9; 16], counter, boot: 4, run: 5, system: 6 };
        let t = Time::from_ns;
        (head, MessageBody { task: TaskId(7), job: 8, message: 9, due: t(10), origin: t(11), zero: t(12), payload: 0 })
    }

    proptest! {
        #[test]
        fn a_sealed_datagram_opens_and_a_changed_one_does_not(
            counter in 1..u64::MAX, padding in 0..1000_usize, place in any::<prop::sample::Index>(), flip in 1..=255_u8,
        ) {
            let (head, body) = message(counter);
            let mut datagram = vec![0; MESSAGE_MIN + padding];
            prop_assert!(key("a").seal(&head, &body, &mut datagram));
            prop_assert_eq!(MessageHead::read(&datagram), Some(head));
            prop_assert_eq!(key("a").open(&head, &mut datagram.clone()), Some(body));
            prop_assert_eq!(key("b").open(&head, &mut datagram.clone()), None);
            prop_assert_eq!(key("a").open(&message(counter - 1).0, &mut datagram.clone()), None);
            let place = place.index(datagram.len());
            datagram[place] ^= flip;
            let changed = MessageHead::read(&datagram);
            prop_assert_eq!(changed.and_then(|head| key("a").open(&head, &mut datagram)), None);
        }

        #[test]
        fn a_sealed_message_about_clocks_opens_and_a_changed_one_does_not(
            counter in 1..u64::MAX, answer: bool, words in any::<[u64; 5]>(), place in 0..SYNC_SEALED,
            flip in 1..=255_u8, cut in 0..SYNC_SEALED,
        ) {
            let (head, t) = (message(counter).0, Time::from_ns);
            let to = SyncRequest { secret: words[0], sent: t(words[1]) };
            let message_of_clocks = match answer {
                true => SyncMessage::Answer {
                    to, clock: words[2], received: t(words[3]), sent: t(words[4]), claim: None,
                },
                false => SyncMessage::Request(to),
            };
            let mut datagram = key("a").seal_sync(&head, &message_of_clocks).unwrap();
            prop_assert_eq!(MessageHead::read_as(DatagramKind::Clock, &datagram), Some(head));
            prop_assert_eq!(key("a").open_sync(&head, &mut datagram.to_vec()), Some(message_of_clocks));
            prop_assert_eq!(key("b").open_sync(&head, &mut datagram.to_vec()), None);
            prop_assert_eq!(key("a").open_sync(&head, &mut datagram.to_vec()[..cut]), None);
            // It is no message of a flow, whatever its head says.
            prop_assert_eq!(MessageHead::read(&datagram), None);
            prop_assert_eq!(key("a").open(&head, &mut datagram.to_vec()), None);
            datagram[place] ^= flip;
            let changed = MessageHead::read_as(DatagramKind::Clock, &datagram);
            prop_assert_eq!(changed.and_then(|head| key("a").open_sync(&head, &mut datagram)), None);
        }
    }

    #[test]
    fn a_key_is_64_digits() {
        assert!(format!("  {}\n", "0F".repeat(32)).parse::<Key>().is_ok());
        for wrong in [String::new(), "0".repeat(63), "0".repeat(65), "x".repeat(64), "ä".repeat(32)] {
            assert_eq!(wrong.parse::<Key>().unwrap_err(), KeyError);
        }
        assert_eq!(format!("{:?}", key("1")), "Key(..)");
        let (head, body) = message(1);
        assert!(!key("1").seal(&head, &body, &mut [0; MESSAGE_MIN - 1]));
        assert_eq!(key("1").open(&head, &mut [0; 60]), None);
    }
}
