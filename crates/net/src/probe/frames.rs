//! Messages of a prober in a stream of bytes (TCP).

use super::wire::{HEAD, Head};

/// The bytes are no message. The start of the next message is unknown, so the connection must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Finds the messages in a stream. It stores one head, and skips padding.
#[derive(Clone, Debug)]
pub struct Frames {
    head: [u8; HEAD],
    filled: usize,
    /// Bytes of the present message that are still to come, and its head.
    left: Option<(usize, Head)>,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames { head: [0; HEAD], filled: 0, left: None }
    }
}

impl Frames {
    /// Takes the next bytes, and gives the head of each message that ends in them.
    ///
    /// # Errors
    /// The bytes are no message.
    pub fn feed(&mut self, mut bytes: &[u8], on: &mut dyn FnMut(Head)) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let (rest, head) = match self.left.take() {
                Some(left) => left,
                None => {
                    let take = (HEAD - self.filled).min(bytes.len());
                    let (now, later) = bytes.split_at(take);
                    if let Some(place) = self.head.get_mut(self.filled..self.filled + take) {
                        place.copy_from_slice(now);
                    }
                    (self.filled, bytes) = (self.filled + take, later);
                    if self.filled < HEAD {
                        return Ok(());
                    }
                    self.filled = 0;
                    let head = Head::read(&self.head).ok_or(Malformed)?;
                    (head.length as usize - HEAD, head)
                }
            };
            let take = rest.min(bytes.len());
            bytes = bytes.get(take..).unwrap_or_default();
            match rest - take {
                0 => on(head),
                rest => self.left = Some((rest, head)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::ProbeMessage;
    use super::*;
    use takt_model::Time;

    proptest! {
        #[test]
        fn messages_are_found_however_the_stream_is_cut(
            lengths in prop::collection::vec(HEAD as u32..300, 1..12),
            cuts in prop::collection::vec(1_usize..200, 1..40),
        ) {
            let heads: Vec<Head> = lengths.iter().zip(0..).map(|(length, number)| {
                let message =
                    ProbeMessage::Data { number, sent: Time::ZERO, wants_reply: true, is_warm_up: false };
                Head { run: 9, length: *length, message }
            }).collect();
            let mut stream = Vec::new();
            for head in &heads {
                stream.extend(head.write());
                stream.resize(stream.len() + head.length as usize - HEAD, 0xAA);
            }
            let (mut frames, mut found, mut rest) = (Frames::default(), Vec::new(), stream.as_slice());
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                frames.feed(now, &mut |head| found.push(head)).unwrap();
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, heads);
            prop_assert_eq!(frames.feed(&[0; HEAD], &mut |_| {}), Err(Malformed));
        }
    }
}
