//! Work on all CPUs whose results do not depend on the number of threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

/// Results that wait for an earlier one to be taken, at most, per thread.
const AHEAD_MAX: usize = 8;

/// Does the pieces 0 to `count` - 1 of `work`, and takes their results in this order, in whichever
/// order they end. The first error of `take` ends it.
pub(crate) fn in_order<T: Send, E>(
    count: u32,
    work: impl Fn(u32) -> T + Sync,
    mut take: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(count as usize);
    let next = AtomicU32::new(0);
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<(u32, T)>(threads * AHEAD_MAX);
        for _ in 0..threads {
            let (send, next, work) = (send.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    if piece >= count || send.send((piece, work(piece))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let (mut waiting, mut wanted) = (BTreeMap::new(), 0);
        for (piece, result) in receive {
            waiting.insert(piece, result);
            while let Some(result) = waiting.remove(&wanted) {
                take(result)?;
                wanted += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_an_error_ends_the_work() {
        let mut taken = Vec::new();
        let all: Result<(), ()> = in_order(
            100,
            |piece| {
                // Early pieces take longer.
                (0..u64::from(100 - piece) * 1_000).map(std::hint::black_box).sum::<u64>();
                piece
            },
            |piece| {
                taken.push(piece);
                Ok(())
            },
        );
        assert_eq!((all, taken), (Ok(()), (0..100).collect()));
        let mut last = 0;
        let ended = in_order(
            u32::MAX,
            |piece| piece,
            |piece| {
                last = piece;
                if piece < 7 { Ok(()) } else { Err(piece) }
            },
        );
        assert_eq!((ended, last), (Err(7), 7));
    }
}
