//! Protection against replayed datagrams: each counter of a sender's process counts once.
//!
//! A datagram is asked about only after it was authenticated. A sender that starts again has a
//! later boot time and another salt. Then its former process counts for nothing any more, so an old
//! capture is refused.

/// Datagrams may come this much later than one with a greater counter.
pub const WINDOW: u64 = 1024;
const BITS: u64 = 64;
/// One word more than the window has, so that a word can be cleared as a whole.
const WORDS: usize = (WINDOW / BITS) as usize + 1;

/// Why a datagram does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplayRefusal {
    /// It has come before.
    Again,
    /// Its counter is too far behind: nobody knows whether it has come before.
    Old,
    /// It is from a process that a later one has replaced.
    Former,
}

/// The counters of one process that have come.
#[derive(Clone, Debug)]
struct Window {
    /// The greatest.
    top: u64,
    /// Bits of the last counters, in a ring.
    seen: [u64; WORDS],
}

impl Window {
    const EMPTY: Window = Window { top: 0, seen: [0; WORDS] };

    fn accept(&mut self, counter: u64) -> Result<(), ReplayRefusal> {
        if counter > self.top {
            let (from, to) = (self.top / BITS, counter / BITS);
            // Words between are those of counters that have left the window.
            for word in 1..=(to - from).min(WORDS as u64) {
                self.seen[((from + word) % WORDS as u64) as usize] = 0;
            }
            self.top = counter;
        } else if self.top - counter >= WINDOW {
            return Err(ReplayRefusal::Old);
        }
        let word = &mut self.seen[(counter / BITS % WORDS as u64) as usize];
        let bit = 1 << (counter % BITS);
        if *word & bit != 0 {
            return Err(ReplayRefusal::Again);
        }
        *word |= bit;
        Ok(())
    }
}

/// What has come from one sender.
#[derive(Clone, Debug)]
pub struct ReplayGuard {
    boot: u64,
    salt: [u8; 16],
    window: Window,
}

impl Default for ReplayGuard {
    fn default() -> Self {
        ReplayGuard { boot: 0, salt: [0; 16], window: Window::EMPTY }
    }
}

impl ReplayGuard {
    /// An authenticated datagram of the sender has come: of the process with this boot time and
    /// salt, with this counter.
    ///
    /// # Errors
    /// It does not count.
    pub fn accept(&mut self, boot: u64, salt: [u8; 16], counter: u64) -> Result<(), ReplayRefusal> {
        if boot > self.boot {
            *self = ReplayGuard { boot, salt, window: Window::EMPTY };
        } else if boot < self.boot || salt != self.salt {
            return Err(ReplayRefusal::Former);
        }
        self.window.accept(counter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The same rules, with all that has ever come.
    #[derive(Default)]
    struct Reference {
        came: BTreeSet<(u64, [u8; 16], u64)>,
        latest: Option<(u64, [u8; 16])>,
    }

    impl Reference {
        fn accept(&mut self, boot: u64, salt: [u8; 16], counter: u64) -> Result<(), ReplayRefusal> {
            let latest = self.latest.filter(|latest| latest.0 >= boot);
            if latest.is_some_and(|latest| latest != (boot, salt)) {
                return Err(ReplayRefusal::Former);
            }
            self.latest = Some((boot, salt));
            let of_process = self.came.iter().filter(|came| (came.0, came.1) == (boot, salt));
            let top = of_process.map(|came| came.2).max().unwrap_or(0);
            if counter + WINDOW <= top {
                return Err(ReplayRefusal::Old);
            }
            if self.came.insert((boot, salt, counter)) { Ok(()) } else { Err(ReplayRefusal::Again) }
        }
    }

    proptest! {
        #[test]
        fn it_accepts_what_the_slow_reference_does(
            steps in proptest::collection::vec((0..8_u8, 0..6_u32, -1100..1300_i64), 0..300),
        ) {
            let (mut guard, mut reference) = (ReplayGuard::default(), Reference::default());
            let mut at: i64 = 1;
            for (process, size, step) in steps {
                // Most datagrams come in order, from the latest process.
                let process = process.saturating_sub(5);
                let step = if size < 4 { step % 3 } else { step };
                at = (at + step).max(1);
                let (boot, salt, counter) = (1 + u64::from(process), [process / 2; 16], at as u64);
                let wanted = reference.accept(boot, salt, counter);
                prop_assert_eq!(guard.accept(boot, salt, counter), wanted);
            }
        }
    }

    #[test]
    fn a_restarted_sender_counts_and_its_former_process_does_not() {
        let mut guard = ReplayGuard::default();
        assert_eq!(guard.accept(10, [1; 16], 7), Ok(()));
        assert_eq!(guard.accept(10, [1; 16], 7), Err(ReplayRefusal::Again));
        assert_eq!(guard.accept(11, [2; 16], 1), Ok(()));
        assert_eq!(guard.accept(10, [1; 16], 8), Err(ReplayRefusal::Former));
        assert_eq!(guard.accept(11, [3; 16], 2), Err(ReplayRefusal::Former));
        assert_eq!(guard.accept(11, [2; 16], u64::MAX), Ok(()));
        assert_eq!(guard.accept(11, [2; 16], u64::MAX - WINDOW), Err(ReplayRefusal::Old));
        assert_eq!(guard.accept(11, [2; 16], u64::MAX - WINDOW + 1), Ok(()));
    }
}
