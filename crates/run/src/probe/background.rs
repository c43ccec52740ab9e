//! Bulk packets beside the measured messages, at a bounded rate.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::Epoch;
use takt_linux::datagram::{Datagrams, Destination, Sent};
use takt_model::{Span, Time};

use super::BackgroundSpec;

/// Packets are sent in groups of this distance, as far as the rate has them.
const STEP: Span = Span::from_ms(1);

/// Sends until `end`. Returns the bytes that the kernel took. Packets that find no room are not
/// sent later, so the rate is never exceeded.
pub(super) fn send(spec: &BackgroundSpec, socket: &Datagrams, to: &[SocketAddr], end: &AtomicBool) -> u64 {
    let to: Vec<Destination> = to.iter().map(|to| (*to).into()).collect();
    let bytes = vec![0; spec.size as usize];
    let epoch = Epoch::now_is_zero();
    let (mut taken, mut offered, mut turn) = (0, 0_u128, to.iter().cycle());
    let mut at = Time::ZERO;
    while !end.load(Ordering::Acquire) {
        at = at.saturating_add(STEP).max(epoch.now().saturating_sub(STEP));
        while !epoch.sleep_until(at) {}
        let due = u128::from(at.as_ns()) * u128::from(spec.rate.as_bps()) / 8_000_000_000;
        // A thread that was held up does not make up for more than two steps.
        let step = u128::from(STEP.as_ns()) * u128::from(spec.rate.as_bps()) / 8_000_000_000;
        offered = offered.max(due.saturating_sub((2 * step).max(bytes.len() as u128)));
        while offered + bytes.len() as u128 <= due && !end.load(Ordering::Acquire) {
            offered += bytes.len() as u128;
            let Some(to) = turn.next() else { return taken };
            if socket.send([&bytes, &[]], to, Span::ZERO) == Sent::Yes {
                taken += bytes.len() as u64;
            }
        }
    }
    taken
}
