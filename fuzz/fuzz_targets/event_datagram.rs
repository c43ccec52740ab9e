//! Arbitrary bytes as a datagram from another node. Nothing panics. A datagram that is read is
//! written back to the same bytes. The counters of a whole conversation add up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_dispatch::event::peer::{Receipt, Stream};
use takt_dispatch::event::wire::{Body, Datagram};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(datagram) = Datagram::read(bytes) {
        let mut back = vec![0; bytes.len()];
        assert_eq!(datagram.write(&mut back), Some(bytes.len()));
        assert_eq!(back, bytes);
    }
    // Chunks of nine bytes as numbers of events and of beats.
    let mut stream = Stream::new(0, 0);
    let mut new = 0;
    for chunk in bytes.chunks_exact(9) {
        let (what, number) = chunk.split_at(1);
        let number = u64::from_be_bytes(number.try_into().expect("eight"));
        let number = if what[0] & 2 == 0 { number >> 48 } else { number };
        let head = Datagram { sequence: number, ..beat() };
        let (head, length) = head.head();
        // Only what can be read is ever counted.
        let Ok(read) = Datagram::read(&head[..length]) else { continue };
        if what[0] & 1 == 0 {
            stream.expect(read.sequence);
        } else if stream.receive(read.sequence) == Receipt::New {
            new += 1;
        }
        assert_eq!(stream.received(), new);
        let _ = stream.lost();
    }
});

fn beat() -> Datagram<'static> {
    let remaining = takt_model::Span::MAX;
    let body = Body::Beat;
    Datagram { hops: 0, node: 1, incarnation: 0, sequence: 0, clock: 0, sent: 0, remaining, due: remaining, body }
}
