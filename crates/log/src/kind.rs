//! The kinds of event by name, and sets of them.

use std::fmt;

use crate::event::Event;

macro_rules! kinds {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// The kind of an [`Event`]. The numbers are the bits of a [`KindSet`] in a log's head.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Kind { $(#[doc = concat!("[`Event::", stringify!($name), "`].")] $name = $number,)* }

        impl Kind {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];
            /// The name in texts and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$name => $text,)* }
            }
        }

        impl Event {
            /// Its kind.
            #[inline]
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Event::$name { .. } => Kind::$name,)* }
            }
        }
    };
}
kinds! {
    Release = 0, "release";
    Start = 1, "start";
    Preempt = 2, "preempt";
    Resume = 3, "resume";
    Block = 4, "block";
    Wake = 5, "wake";
    Complete = 6, "complete";
    Miss = 7, "miss";
    Cancel = 8, "cancel";
    Migrate = 9, "migrate";
    Replenish = 10, "replenish";
    Exhaust = 11, "exhaust";
    ServerIdle = 12, "server idle";
    ModeChange = 13, "mode change";
    Send = 14, "send";
    Arrive = 15, "arrive";
    Receive = 16, "receive";
    Drop = 17, "drop";
    Transmit = 18, "transmit";
    IrqEnter = 19, "interrupt enter";
    IrqExit = 20, "interrupt exit";
    Lost = 21, "lost";
    Window = 22, "window";
    Gap = 23, "gap";
    Occupy = 24, "occupy";
    Steal = 25, "steal";
    Charge = 26, "charge";
}

/// The kinds of event that a back end records. Other kinds are absent from the log, and numbers
/// that need them are null.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KindSet(u64);

impl KindSet {
    /// No kind.
    pub const EMPTY: KindSet = KindSet(0);
    /// Every kind of this version.
    pub const ALL: KindSet = KindSet::of(Kind::ALL);
    /// All that happens to jobs on CPUs, the CPU each time told: what a simulator records.
    pub const JOBS: KindSet = KindSet::of(&[
        Kind::Release,
        Kind::Start,
        Kind::Preempt,
        Kind::Resume,
        Kind::Complete,
        Kind::Miss,
        Kind::Cancel,
        Kind::Migrate,
    ]);
    /// All that happens to servers.
    pub const SERVERS: KindSet = KindSet::of(&[Kind::Replenish, Kind::Exhaust, Kind::ServerIdle, Kind::Charge]);
    /// All that happens to messages.
    pub const MESSAGES: KindSet = KindSet::of(&[Kind::Send, Kind::Arrive, Kind::Receive, Kind::Drop]);

    /// These kinds.
    #[must_use]
    pub const fn of(kinds: &[Kind]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < kinds.len() {
            bits |= 1 << kinds[i] as u8;
            i += 1;
        }
        KindSet(bits)
    }
    /// Kinds in either set.
    #[must_use]
    pub const fn union(self, other: KindSet) -> Self {
        KindSet(self.0 | other.0)
    }
    /// These and `kind`.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        KindSet(self.0 | 1 << kind as u8)
    }
    /// These without `kind`.
    #[must_use]
    pub const fn without(self, kind: Kind) -> Self {
        KindSet(self.0 & !(1 << kind as u8))
    }
    /// Kinds in both sets.
    #[must_use]
    pub const fn intersection(self, other: KindSet) -> Self {
        KindSet(self.0 & other.0)
    }
    /// Whether `kind` is in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }
    /// The kinds in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(move |kind| self.contains(*kind))
    }
    /// Bit k stands for the kind with number k.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// The set with these bits; `None` where a bit stands for no kind of this version.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(KindSet(bits)) } else { None }
    }
}

impl fmt::Debug for KindSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_was_put_in() {
        let set = KindSet::of(&[Kind::Start, Kind::Lost]).with(Kind::Miss).without(Kind::Start);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Kind::Miss, Kind::Lost]);
        assert_eq!(KindSet::from_bits(set.bits()), Some(set));
        assert_eq!(KindSet::from_bits(1 << 27), None);
        assert!(KindSet::ALL.iter().eq(Kind::ALL.iter().copied()));
    }
}
