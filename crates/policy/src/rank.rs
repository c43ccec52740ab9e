//! The total order of jobs: level, then the level's own order, then the tie rule.

/// Orders jobs in a queue: by keys, and where these are equal by what else is known.
pub(crate) trait Entry: Copy + std::fmt::Debug {
    /// Decides almost always; the smallest is the most important.
    type Key: Copy + Ord;
    /// What is known of a slot besides.
    type Tie: Copy + std::fmt::Debug;
    /// Of no slot: it precedes nothing.
    const LAST: Self::Tie;

    fn key(&self) -> Self::Key;
    /// Whether this one goes before the other, whose key is the same.
    fn breaks_tie(&self, other: &Self, tie: impl Fn(u32) -> Self::Tie) -> bool;
    /// The task's slot.
    fn slot(&self) -> u32;
    /// In its place in an order, for no job any more.
    fn gone(self) -> Self;
    /// Whether it stands for no job.
    #[inline]
    fn is_gone(&self) -> bool {
        self.slot() == u32::MAX
    }
}

/// How important a job is among others of its level of which none has started, in half the bytes of a [`Rank`]: four of them fill a cache line, and one machine word decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Short {
    pub(crate) key: u64,
    pub(crate) slot: u32,
}

impl Entry for Short {
    type Key = u64;
    /// Inverted importance, then the nominal arrival in ns.
    type Tie = (u32, u64);
    const LAST: (u32, u64) = (u32::MAX, u64::MAX);

    #[inline(always)]
    fn key(&self) -> u64 {
        self.key
    }

    #[cold]
    fn breaks_tie(&self, other: &Short, tie: impl Fn(u32) -> (u32, u64)) -> bool {
        (tie(self.slot), self.slot) < (tie(other.slot), other.slot)
    }

    #[inline]
    fn slot(&self) -> u32 {
        self.slot
    }

    fn gone(self) -> Short {
        Short { slot: u32::MAX, ..self }
    }
}

/// How important a job is now; the smallest rank is the most important.
///
/// One comparison of `major` decides almost always. From the most significant bits: level (30),
/// phase (2), key (64), inverted importance (32). Ties go to the nominal arrival, then to the
/// order of tasks in the file; a task has at most one job here, so no two ranks are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    major: u128,
    arrival_ns: u64,
    slot: u32,
}

/// Where a job of a non-preemptive level stands; a preemptive level knows only `Fresh`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// On a CPU: nothing of its level may take it away.
    Running = 0,
    /// Started, then preempted by a more important level: goes on before anything of its level starts.
    Started = 1,
    /// Not started.
    Fresh = 2,
}

impl Rank {
    /// Stands for no job; as important as can be, so that it is never the least important one.
    pub(crate) const NOBODY: Rank = Rank { major: 0, arrival_ns: 0, slot: u32::MAX };

    /// A running job that nothing preempts: as important as can be, so that it is the least important one only among its like, and then still more
    /// important than whatever waits.
    pub(crate) fn kept(arrival_ns: u64, slot: u32) -> Rank {
        Rank { major: 0, arrival_ns, slot }
    }

    #[inline]
    pub(crate) fn new(level: u32, phase: Phase, key: u64, importance: u32, arrival_ns: u64, slot: u32) -> Rank {
        let head = u128::from(level) << 2 | phase as u128;
        let major = head << 96 | u128::from(key) << 32 | u128::from(u32::MAX - importance);
        Rank { major, arrival_ns, slot }
    }

    /// The task's slot.
    #[inline]
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// The same job in another phase.
    #[inline]
    pub(crate) fn with_phase(self, phase: Phase) -> Rank {
        let mask = 3u128 << 96;
        Rank { major: self.major & !mask | (phase as u128) << 96, ..self }
    }
}

impl Entry for Rank {
    type Key = u128;
    /// It has all that tells.
    type Tie = ();
    const LAST: () = ();

    #[inline(always)]
    fn key(&self) -> u128 {
        self.major
    }

    fn breaks_tie(&self, other: &Rank, _: impl Fn(u32)) -> bool {
        (self.arrival_ns, self.slot) < (other.arrival_ns, other.slot)
    }

    #[inline]
    fn slot(&self) -> u32 {
        self.slot
    }

    fn gone(self) -> Rank {
        Rank { slot: u32::MAX, ..self }
    }
}

/// Maps signed keys to unsigned ones in the same order.
#[inline]
pub(crate) fn ordered(key: i64) -> u64 {
    (key as u64) ^ (1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_then_phase_then_key_then_importance_then_arrival_then_slot() {
        let rank = Rank::new;
        let precedes = |one: &Rank, other: &Rank| {
            if one.key() == other.key() { one.breaks_tie(other, |_| ()) } else { one.key() < other.key() }
        };
        let order = [
            rank(0, Phase::Fresh, u64::MAX, 0, 9, 9),
            rank(1, Phase::Running, u64::MAX, 0, 9, 9),
            rank(1, Phase::Started, 7, 0, 9, 9),
            rank(1, Phase::Fresh, 3, 0, 9, 9),
            rank(1, Phase::Fresh, 4, u32::MAX, 9, 9),
            rank(1, Phase::Fresh, 4, 5, 9, 9),
            rank(1, Phase::Fresh, 4, 5, 10, 8),
            rank(1, Phase::Fresh, 4, 5, 10, 9),
            rank(2, Phase::Fresh, 0, 0, 0, 0),
        ];
        assert!(order.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(order.iter().all(|one| order.iter().all(|other| precedes(one, other) == (one < other))));
        assert_eq!(order[3].with_phase(Phase::Running), rank(1, Phase::Running, 3, 0, 9, 9));
        assert!(ordered(-1) < ordered(0) && ordered(i64::MIN) == 0);
    }
}
