//! The attachment of a sample: the head of an event as in takt's datagrams
//! ([`takt_dispatch::event::wire`]). Pure.
//!
//! The payload is the supplier's bytes, so programs without takt can read it. The first 82 bytes of
//! the attachment are a datagram's head. The last two bytes are the route's number, big-endian.
//! Each route of a gateway counts for itself, because Zenoh keeps the order only within one
//! priority.

use takt_dispatch::event::wire::{Body, Datagram, HEAD, WireError};

/// Bytes of an attachment.
pub const ATTACHMENT: usize = HEAD + 2;

/// Routes of a gateway at most.
pub const ROUTES_MAX: usize = 16;

/// An event's attachment.
///
/// ```
/// use takt_model::Span;
/// use takt_dispatch::event::wire::{Body, Datagram};
/// use takt_zenoh::header;
///
/// let body = Body::Event { kind: 1, source: 7, number: 0, payload: b"north" };
/// let (remaining, due) = (Span::from_ms(2), Span::from_ms(1));
/// let sent = Datagram { hops: 0, node: 1, incarnation: 5, sequence: 9, clock: 3, sent: 100, remaining, due, body };
/// let mut bytes = Vec::new();
/// assert_eq!(header::read(&header::write(&sent, 4), b"north", &mut bytes), Ok((sent, 4)));
/// assert!(header::read(b"", b"north", &mut bytes).is_err());
/// ```
#[must_use]
pub fn write(datagram: &Datagram<'_>, route: u16) -> [u8; ATTACHMENT] {
    let (head, _) = datagram.head();
    let mut bytes = [0; ATTACHMENT];
    for (to, from) in bytes.iter_mut().zip(head.into_iter().chain(route.to_be_bytes())) {
        *to = from;
    }
    bytes
}

/// Reads an event and its route; `bytes` is room for both parts of it.
///
/// # Errors
/// The first error found.
pub fn read<'a>(attachment: &[u8], payload: &[u8], bytes: &'a mut Vec<u8>) -> Result<(Datagram<'a>, usize), WireError> {
    let wrong = WireError::Length { there: attachment.len(), wanted: ATTACHMENT };
    let (head, route) = attachment.split_first_chunk::<HEAD>().ok_or(wrong)?;
    let route = usize::from(u16::from_be_bytes(route.try_into().map_err(|_| wrong)?));
    bytes.clear();
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(payload);
    let datagram = Datagram::read(bytes)?;
    if !matches!(datagram.body, Body::Event { .. }) {
        return Err(WireError::Value("kind of datagram"));
    }
    if route >= ROUTES_MAX {
        return Err(WireError::Value("route"));
    }
    Ok((datagram, route))
}

#[cfg(test)]
mod tests {
    use takt_model::Span;

    use super::*;

    fn event(payload: &[u8]) -> Datagram<'_> {
        let body = Body::Event { kind: 1, source: 7, number: 3, payload };
        let (remaining, due) = (Span::MAX, Span::from_ms(7));
        Datagram { hops: 2, node: 1, incarnation: 5, sequence: 9, clock: 3, sent: 100, remaining, due, body }
    }

    #[test]
    fn a_header_is_read_back_at_its_exact_length_only() {
        let mut bytes = Vec::new();
        let (right, payload) = (write(&event(b"north"), 15), &b"north"[..]);
        assert_eq!(read(&right, payload, &mut bytes), Ok((event(payload), 15)));
        for length in 0..ATTACHMENT {
            assert!(read(&right[..length], payload, &mut bytes).is_err(), "{length} bytes");
        }
        assert!(read(&[&right[..], &[0]].concat(), payload, &mut bytes).is_err());
        assert!(read(&right, b"nort", &mut bytes).is_err() && read(&right, b"north!", &mut bytes).is_err());
        assert_eq!(read(&write(&event(b""), 16), b"", &mut bytes), Err(WireError::Value("route")));
        for at in 0..8 {
            let mut wrong = right;
            wrong[at] ^= 0x40;
            // All but the number of hops tell.
            assert_eq!(read(&wrong, payload, &mut bytes).is_ok(), at == 6, "byte {at}");
        }
    }
}
