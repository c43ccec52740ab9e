//! What several test programs use.

use takt_linux::clock::pause;
use takt_model::Span;

/// Bounded, for something that the kernel does a little later; a minute is for broken cases only.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        pause(Span::from_ms(10));
    }
    panic!("{what}: not within a minute");
}
