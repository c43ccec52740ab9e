//! Events of several CPUs in the order of time.

use takt_model::Time;

use crate::event::KernelEvent;

/// Merges streams in the order of time, at one time the first stream first. `give` gives a stream's
/// events up to a time on (none, where there is no time), and says when the next one is; `None`
/// after the last.
#[inline]
pub(crate) fn merge<S>(streams: &mut [S], mut give: impl FnMut(&mut S, Option<Time>) -> Option<Time>) {
    let first = streams.iter_mut().enumerate().filter_map(|(k, stream)| Some((give(stream, None)?, k)));
    let mut heads: Vec<(Time, usize)> = first.collect();
    // The latest first, so that the earliest is at the end. Runs of one CPU are long: a CPU goes on
    // up to the next time of another CPU.
    heads.sort_unstable_by(|a, b| b.cmp(a));
    while let Some((_, first)) = heads.pop() {
        // At the time of the next stream, the one that comes first in `streams` goes first.
        let until = match heads.last() {
            Some((time, next)) if *next < first => Time::from_ns(time.as_ns().saturating_sub(1)),
            Some((time, _)) => *time,
            None => Time::from_ns(u64::MAX),
        };
        if let Some(time) = give(&mut streams[first], Some(until)) {
            let key = (time, first);
            let place = heads.partition_point(|other| *other > key);
            heads.insert(place, key);
        }
    }
}

/// Passes `events` to `take`. This is one function that is never inlined, so that its loop keeps
/// `take` in registers.
#[inline(never)]
pub(crate) fn hand_on(events: &[KernelEvent], take: &mut impl FnMut(&KernelEvent)) {
    for event in events {
        take(event);
    }
}
