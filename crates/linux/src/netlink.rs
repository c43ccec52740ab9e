//! Messages of rtnetlink as bytes: requests to traffic control and to devices, and their answers.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::datagram::set_option;

/// The flag that makes a message a request, with an answer to it.
const REQUEST: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
/// Makes something, unless it exists.
pub(crate) const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
/// Makes something, or takes the place of it.
pub(crate) const CREATE_OR_REPLACE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
/// Changes something that exists.
pub(crate) const CHANGE: u16 = 0;
const DUMP: u16 = libc::NLM_F_DUMP as u16;
/// The kernel's list changed while it was told.
const INTERRUPTED: u16 = 0x10;
/// The answer holds texts behind the error.
const TEXTS: u16 = 0x200;
/// The answer does not repeat the request.
const CAPPED: u16 = 0x100;
const DONE: u16 = libc::NLMSG_DONE as u16;
const ERROR: u16 = libc::NLMSG_ERROR as u16;
/// The attribute of an error's text.
const ERROR_TEXT: u16 = 1;
const HEADER: usize = 16;
/// Bytes that messages about devices begin with.
pub(crate) const LINK_HEAD: usize = 16;
const ATTRIBUTE: usize = 4;
/// How often an interrupted list is asked for again.
const LISTS_MAX: usize = 8;

/// The part that all messages of traffic control begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    pub(crate) device: u32,
    pub(crate) handle: u32,
    /// Handle of what it hangs below.
    pub(crate) parent: u32,
    /// The handle of a class's queue; the preference and protocol of a filter.
    pub(crate) info: u32,
}

/// Hangs at the device itself.
pub(crate) const AT_ROOT: u32 = 0xffff_ffff;
/// Hangs where packets come in.
pub(crate) const AT_INGRESS: u32 = 0xffff_fff1;

impl Place {
    pub(crate) const LENGTH: usize = 20;

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        for (word, at) in [self.device, self.handle, self.parent, self.info].into_iter().zip((4..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Place> {
        let word = |at| number(bytes.get(at..at + 4)?);
        Some(Place { device: word(4)?, handle: word(8)?, parent: word(12)?, info: word(16)? })
    }
}

/// A message to the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    pub(crate) fn new(kind: u16, flags: u16, body: &[u8]) -> Request {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        bytes.extend_from_slice(body);
        Request { bytes }
    }

    /// About an object of traffic control.
    pub(crate) fn control(kind: u16, flags: u16, place: Place) -> Request {
        Request::new(kind, flags, &place.to_bytes())
    }

    /// About a device; number 0 is any.
    pub(crate) fn link(kind: u16, flags: u16, device: u32) -> Request {
        let mut body = [0; LINK_HEAD];
        body[4..8].copy_from_slice(&device.to_ne_bytes());
        Request::new(kind, flags, &body)
    }

    /// Switches a device on.
    pub(crate) fn up(device: u32) -> Request {
        let up = (libc::IFF_UP as u32).to_ne_bytes();
        let mut request = Request::link(libc::RTM_SETLINK, CHANGE, device);
        request.bytes[HEADER + 8..HEADER + 16].copy_from_slice(&[up, up].concat());
        request
    }

    pub(crate) fn with(mut self, attribute: u16, value: &[u8]) -> Request {
        put(&mut self.bytes, attribute, value);
        self
    }

    pub(crate) fn with_text(mut self, attribute: u16, text: &str) -> Request {
        put_text(&mut self.bytes, attribute, text);
        self
    }

    fn finished(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

pub(crate) fn put(list: &mut Vec<u8>, attribute: u16, value: &[u8]) {
    let length = u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX);
    list.extend_from_slice(&length.to_ne_bytes());
    list.extend_from_slice(&attribute.to_ne_bytes());
    list.extend_from_slice(value);
    list.resize(list.len().next_multiple_of(4), 0);
}

pub(crate) fn put_text(list: &mut Vec<u8>, attribute: u16, text: &str) {
    put(list, attribute, &[text.as_bytes(), &[0]].concat());
}

/// Attributes with their values, as far as they are whole.
pub(crate) fn attributes(mut list: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = list.get(..ATTRIBUTE)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        // The two uppermost bits say how the value is written.
        let attribute = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        let value = list.get(ATTRIBUTE..length)?;
        list = list.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((attribute, value))
    })
}

pub(crate) fn attribute(list: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(list).find(|(attribute, _)| *attribute == wanted).map(|(_, value)| value)
}

/// The number at the start of a value.
pub(crate) fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// The number of 64 bits at the start of a value.
pub(crate) fn long(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// The text of a value, without its end.
pub(crate) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// An answer of the kernel: its kind, and what follows the header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The object of traffic control, and its attributes.
    pub(crate) fn control(&self) -> Option<(Place, &[u8])> {
        Some((Place::parse(&self.body)?, self.body.get(Place::LENGTH..)?))
    }
}

/// A refusal as an error: its errno, and the kernel's reason if there is one.
fn refusal(code: i32, flags: u16, body: &[u8]) -> io::Error {
    let cause = io::Error::from_raw_os_error(code.saturating_neg());
    let repeated = body.get(4..8).and_then(number).map_or(HEADER, |length| length as usize);
    let skipped = 4 + if flags & CAPPED == 0 { repeated.next_multiple_of(4) } else { HEADER };
    let texts = if flags & TEXTS == 0 { None } else { body.get(skipped..) };
    match texts.and_then(|texts| attribute(texts, ERROR_TEXT)).map(text) {
        Some(why) if !why.is_empty() => Refusal { cause, why }.into(),
        _ => cause,
    }
}

/// A refusal with the kernel's reason in words.
#[derive(Debug, thiserror::Error)]
#[error("{cause}: {why}")]
struct Refusal {
    cause: io::Error,
    why: String,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        io::Error::new(refusal.cause.kind(), refusal)
    }
}

/// The number of a refusal, also of one with a reason.
pub(crate) fn errno(error: &io::Error) -> Option<i32> {
    let with_reason = || error.get_ref()?.downcast_ref::<Refusal>()?.cause.raw_os_error();
    error.raw_os_error().or_else(with_reason)
}

/// Asks the kernel, in the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Kernels before 4.12 give no reasons.
        let _ = socket.set_ext_ack(true);
        // An answer that never comes is an error, not an endless wait.
        let wait = libc::timeval { tv_sec: 5, tv_usec: 0 };
        let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &wait);
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, request: Request) -> io::Result<Vec<Answer>> {
        self.exchange(request).map(|(answers, _)| answers)
    }

    /// Asks for a list.
    pub(crate) fn list(&mut self, request: &Request) -> io::Result<Vec<Answer>> {
        for _ in 0..LISTS_MAX {
            let mut request = request.clone();
            request.bytes[6..8].copy_from_slice(&(REQUEST | DUMP).to_ne_bytes());
            if let (answers, false) = self.exchange(request)? {
                return Ok(answers);
            }
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "the kernel's list changed each time that it was read"))
    }

    /// The answers, and whether the list changed meanwhile.
    fn exchange(&mut self, request: Request) -> io::Result<(Vec<Answer>, bool)> {
        self.sequence += 1;
        self.socket.send(&request.finished(self.sequence), 0)?;
        let (mut answers, mut interrupted) = (Vec::new(), false);
        loop {
            let (received, _) = self.socket.recv_from_full()?;
            let mut rest = received.as_slice();
            while let Some(head) = rest.get(..HEADER) {
                let length = number(head).map_or(0, |length| length as usize);
                let (kind, flags) = (u16::from_ne_bytes([head[4], head[5]]), u16::from_ne_bytes([head[6], head[7]]));
                let Some(body) = rest.get(HEADER..length) else {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is cut short"));
                };
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if head[8..12] != self.sequence.to_ne_bytes() {
                    continue;
                }
                interrupted |= flags & INTERRUPTED != 0;
                match kind {
                    ERROR | DONE => {
                        let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                        return if code < 0 { Err(refusal(code, flags, body)) } else { Ok((answers, interrupted)) };
                    }
                    _ => answers.push(Answer { kind, body: body.to_vec() }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_form_of_the_kernel() {
        let place = Place { device: 7, handle: 0x10000, parent: AT_ROOT, info: 3 };
        let request = Request::control(libc::RTM_NEWQDISC, CREATE, place).with_text(1, "htb").with(2, &[9; 5]);
        let bytes = request.finished(5);
        assert_eq!(bytes.len(), HEADER + Place::LENGTH + 8 + 12);
        assert_eq!(number(&bytes), Some(bytes.len() as u32));
        assert_eq!(bytes[4..6], libc::RTM_NEWQDISC.to_ne_bytes());
        assert_eq!(bytes[6..8], (1u16 | 4 | 0x400 | 0x200).to_ne_bytes(), "request, answer, create, exclusively");
        let answer = Answer { kind: 0, body: bytes[HEADER..].to_vec() };
        let (found, list) = answer.control().unwrap();
        assert_eq!(found, place);
        assert_eq!(attributes(list).map(|(name, value)| (name, value.len())).collect::<Vec<_>>(), [(1, 4), (2, 5)]);
        assert_eq!(attribute(list, 1).map(text).as_deref(), Some("htb"));
        assert_eq!(attribute(list, 3), None);
    }

    #[test]
    fn broken_lists_end_early() {
        let mut list = Vec::new();
        put(&mut list, 1, &[1, 2, 3, 4]);
        put(&mut list, 2, &[5]);
        for cut in 0..list.len() {
            assert!(attributes(&list[..cut]).count() <= 2, "cut at {cut}");
        }
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0, "shorter than its own head");
        assert_eq!(attributes(&[0; 8]).count(), 0);
    }

    #[test]
    fn the_kernels_reason_is_told() {
        let mut body = (-libc::EINVAL).to_ne_bytes().to_vec();
        body.extend_from_slice(&[0; HEADER]);
        let bare = refusal(-libc::EINVAL, CAPPED, &body);
        assert_eq!(errno(&bare), Some(libc::EINVAL));
        put(&mut body, ERROR_TEXT, b"no such thing\0");
        let told = refusal(-libc::EINVAL, CAPPED | TEXTS, &body);
        assert_eq!(errno(&told), Some(libc::EINVAL));
        assert!(told.to_string().ends_with(": no such thing"), "{told}");
    }
}
