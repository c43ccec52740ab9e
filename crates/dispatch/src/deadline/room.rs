//! A descriptor for non-blocking programs. It is readable while there is room for the next message.
//!
//! A message that finds no room makes it unreadable. It is readable again when the broker has reported the
//! fate of earlier messages, when the kernel has room, or when the broker is gone. All changes happen
//! under the lock of the sender.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use takt_linux::eventfd::EventFd;
use takt_linux::outgoing::{Outgoing, Transport};
use takt_linux::seqpacket::Connection;

use super::wire::WAITING_MAX;
use super::{Member, STREAM_MAX, Stage};

/// What a send waits for.
#[derive(Clone)]
pub(super) enum Wait {
    /// Room in the connection to the broker.
    Room(Arc<Connection>),
    /// An answer of the broker.
    Answer(Arc<Connection>),
    /// Room in the socket.
    Socket(Arc<Outgoing>),
}

impl Wait {
    /// The descriptor that is ready when the wait may be over.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Wait::Room(broker) | Wait::Answer(broker) => broker.as_fd(),
            Wait::Socket(socket) => socket.as_fd(),
        }
    }

    /// Whether it is for an answer, not for room to write.
    pub(super) fn is_for_answer(&self) -> bool {
        matches!(self, Wait::Answer(_))
    }
}

/// The descriptor, and what the last message waits for.
pub(super) struct RoomDescriptor {
    event: Arc<EventFd>,
    /// With the length of the message in bytes. `None`: the descriptor is readable.
    missing: Option<(Wait, usize)>,
}

impl RoomDescriptor {
    /// There is room, as far as is known.
    pub(super) fn new(event: Arc<EventFd>) -> RoomDescriptor {
        event.raise();
        RoomDescriptor { event, missing: None }
    }
}

impl Member {
    /// Whether a message of `bytes` must wait because the broker holds the most that it accepts.
    pub(super) fn is_full(&self, bytes: usize) -> bool {
        let is_stream = self.outgoing.transport() == Transport::Stream;
        match self.stage {
            Stage::Inside => {
                self.waiting() >= WAITING_MAX as u64 || is_stream && self.pending.bytes.len() + bytes > STREAM_MAX
            }
            // A stream's bytes keep their order.
            Stage::Leaving => is_stream,
            Stage::Outside | Stage::Joining | Stage::Left => false,
        }
    }

    /// Takes note of what the last message waits for, and of its length. `None`: there is room.
    pub(super) fn note_room(&mut self, missing: Option<(Wait, usize)>) {
        let Some(room) = &mut self.room else { return };
        match (&room.missing, &missing) {
            (None, Some(_)) => room.event.lower(),
            (Some(_), None) => room.event.raise(),
            (None, None) | (Some(_), Some(_)) => {}
        }
        room.missing = missing;
    }

    /// The broker has told something: there may be room for the message that waits for that.
    pub(super) fn note_answer(&mut self) {
        let missing = self.room.as_ref().and_then(|room| room.missing.as_ref());
        if missing.is_some_and(|(wait, bytes)| wait.is_for_answer() && !self.is_full(*bytes)) {
            self.note_room(None);
        }
    }

    /// What it waits for beside answers. The watching thread polls for that.
    pub(super) fn polls_for(&self) -> Option<Wait> {
        let (wait, _) = self.room.as_ref()?.missing.as_ref()?;
        (!wait.is_for_answer()).then(|| wait.clone())
    }
}
