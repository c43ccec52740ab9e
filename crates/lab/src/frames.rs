//! Frames carry results from the guest to the host, over a line that may lose or change bytes.
//!
//! A frame is a header of 20 bytes and at most [`PAYLOAD_MAX`] bytes of payload. All integers are
//! little-endian: the magic `TkLF`, the frame's number (u32), the experiment (u16), the kind (u8), a
//! zero byte, the length of the payload (u32), and the CRC-32 of the frame without this field (u32).
//! Numbers count from 0, so a lost frame shows.

use crate::guest::RESULT_MAX;

/// The most bytes of payload in a frame.
pub const PAYLOAD_MAX: usize = 4_096;
const MAGIC: [u8; 4] = *b"TkLF";
const HEADER: usize = 20;

/// The meaning of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An experiment begins. No payload.
    Begin,
    /// Bytes of its standard output.
    Stdout,
    /// Bytes of its standard error.
    Stderr,
    /// Bytes of its log.
    Log,
    /// It ended. The payload is its exit status (i32).
    End,
    /// All experiments have ended. No payload.
    Finished,
}

const KINDS: [Kind; 6] = [Kind::Begin, Kind::Stdout, Kind::Stderr, Kind::Log, Kind::End, Kind::Finished];

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its number among all frames of a boot.
    pub number: u32,
    /// The experiment that it belongs to.
    pub experiment: u16,
    /// Its meaning.
    pub kind: Kind,
    /// At most [`PAYLOAD_MAX`] bytes.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The bytes of the frame. A longer payload is cut at [`PAYLOAD_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let payload = &self.payload[..self.payload.len().min(PAYLOAD_MAX)];
        let mut bytes = Vec::with_capacity(HEADER + payload.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.experiment.to_le_bytes());
        bytes.extend_from_slice(&[self.kind as u8, 0]);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc(&bytes, payload).to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }
}

fn crc(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

/// Numbers the frames of a boot, and divides long contents.
#[derive(Default)]
pub struct Encoder {
    next: u32,
}

impl Encoder {
    /// The frames that carry `content`: one without payload if it is empty.
    #[must_use]
    pub fn encode(&mut self, experiment: u16, kind: Kind, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let parts = content.chunks(PAYLOAD_MAX).chain(content.is_empty().then_some(&[][..]));
        for part in parts {
            let frame = Frame { number: self.next, experiment, kind, payload: part.to_vec() };
            bytes.extend(frame.encode());
            self.next = self.next.wrapping_add(1);
        }
        bytes
    }
}

/// Finds frames in a stream that comes in pieces.
#[derive(Default)]
pub struct Decoder {
    pending: Vec<u8>,
    skipped: u64,
}

impl Decoder {
    /// Takes bytes, and gives each whole frame to `found`.
    pub fn push(&mut self, bytes: &[u8], found: &mut dyn FnMut(Frame)) {
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            match read(&self.pending[at..]) {
                Read::Frame(frame, length) => {
                    at += length;
                    found(frame);
                }
                Read::Wrong => {
                    at += 1;
                    self.skipped += 1;
                }
                Read::More => break,
            }
        }
        self.pending.drain(..at);
    }

    /// The bytes that belong to no frame: those skipped, and those of an unfinished frame.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.skipped + self.pending.len() as u64
    }
}

enum Read {
    Frame(Frame, usize),
    Wrong,
    More,
}

/// Reads a frame at the beginning of the bytes.
fn read(bytes: &[u8]) -> Read {
    let begun = bytes.len().min(MAGIC.len());
    if bytes[..begun] != MAGIC[..begun] {
        return Read::Wrong;
    }
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Read::More };
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let length = word(12) as usize;
    let Some(&kind) = KINDS.get(usize::from(header[10])) else { return Read::Wrong };
    if length > PAYLOAD_MAX || header[11] != 0 {
        return Read::Wrong;
    }
    let Some(payload) = rest.get(..length) else { return Read::More };
    if crc(&header[..16], payload) != word(16) {
        return Read::Wrong;
    }
    let experiment = u16::from_le_bytes([header[8], header[9]]);
    Read::Frame(Frame { number: word(4), experiment, kind, payload: payload.to_vec() }, HEADER + length)
}

/// The results of an experiment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Its log, if it wrote one.
    pub log: Option<Vec<u8>>,
    /// Its exit status; 128 and the signal's number for a signal; `None`: it did not end.
    pub status: Option<i32>,
}

impl Outcome {
    /// The results that were longer than [`RESULT_MAX`], and are cut.
    #[must_use]
    pub fn cut(&self) -> Vec<&'static str> {
        let log = self.log.as_deref().unwrap_or_default();
        let parts = [("output", self.stdout.as_slice()), ("errors", self.stderr.as_slice()), ("log", log)];
        parts.into_iter().filter(|(_, bytes)| bytes.len() as u64 > RESULT_MAX).map(|(name, _)| name).collect()
    }
}

/// The results of a boot, built from frames.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Results {
    /// By experiment.
    pub experiments: Vec<Outcome>,
    /// How many of them have begun.
    pub begun: usize,
    /// Whether the guest said that all of them ended.
    pub finished: bool,
    /// Frames that are missing, by their numbers.
    pub missing: u64,
    next: u32,
}

impl Results {
    /// For this number of experiments.
    #[must_use]
    pub fn of(experiments: usize) -> Results {
        Results { experiments: vec![Outcome::default(); experiments], ..Results::default() }
    }

    /// Takes a frame. A frame of an unknown experiment counts as missing.
    pub fn on_frame(&mut self, frame: Frame) {
        self.missing += u64::from(frame.number.saturating_sub(self.next));
        self.next = frame.number.saturating_add(1);
        if frame.kind == Kind::Finished {
            self.finished = true;
            return;
        }
        let number = usize::from(frame.experiment);
        let Some(outcome) = self.experiments.get_mut(number) else {
            self.missing += 1;
            return;
        };
        match frame.kind {
            Kind::Begin => self.begun = self.begun.max(number + 1),
            Kind::Stdout => outcome.stdout.extend(frame.payload),
            Kind::Stderr => outcome.stderr.extend(frame.payload),
            Kind::Log => outcome.log.get_or_insert_default().extend(frame.payload),
            Kind::End => outcome.status = frame.payload.as_slice().try_into().ok().map(i32::from_le_bytes),
            Kind::Finished => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_longer_results_are_cut() {
        let most = vec![0; RESULT_MAX as usize];
        let whole = Outcome { stdout: most.clone(), log: Some(most), ..Outcome::default() };
        assert!(whole.cut().is_empty());
        let cut = Outcome { log: Some(vec![0; RESULT_MAX as usize + 1]), ..whole };
        assert_eq!(cut.cut(), ["log"]);
    }
}
