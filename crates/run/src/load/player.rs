//! A player of films: decodes frames by busy work and shows each at its time.

use takt_model::{Span, Time};

use super::LoadContext;

/// A film to play.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameSequence {
    /// CPU time for decoding each frame.
    pub frames: Vec<Span>,
    /// Frame k is due at k + 1 times this.
    pub period: Span,
    /// A late frame is shown at the next refresh of the screen, a multiple of this. So a late player sleeps, too.
    pub refresh: Span,
}

/// Times at which the frames were shown, in order.
pub type ShowTimes = Vec<Time>;

/// Plays `film`. A late frame delays the next ones, and none is left out. It is shown at the next refresh.
pub fn player(context: &mut LoadContext, film: &FrameSequence) -> ShowTimes {
    let mut shown = Vec::with_capacity(film.frames.len());
    let mut due = Time::ZERO;
    for demand in &film.frames {
        due = due.saturating_add(film.period);
        if !context.work(*demand) {
            break;
        }
        let at = if context.now() <= due { due } else { next(context.now(), film.refresh) };
        if !context.sleep_until(at) {
            break;
        }
        shown.push(context.now());
    }
    shown
}

/// The first multiple of `step` after `now`.
fn next(now: Time, step: Span) -> Time {
    let step = step.as_ns().max(1);
    Time::from_ns((now.as_ns() / step).saturating_add(1).saturating_mul(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_frames_wait_for_the_screen() {
        let step = Span::from_ms(10);
        let at = |ns| next(Time::from_ns(ns), step).as_ns();
        assert_eq!([at(0), at(9_999_999), at(10_000_000)], [10_000_000, 10_000_000, 20_000_000]);
        assert_eq!(next(Time::from_ns(5), Span::ZERO), Time::from_ns(6));
    }
}
