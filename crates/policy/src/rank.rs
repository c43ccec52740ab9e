//! The total order of jobs: level, then the level's own order, then the tie rule.

/// Orders jobs in a queue: by keys, and where these are equal by what else is known.
pub(crate) trait Entry: Copy + std::fmt::Debug {
    /// Decides almost always; the smallest is the most important.
    type Key: Copy + Ord;
    /// Constant data about the jobs that breaks ties between equal keys.
    type Ties: ?Sized;
    /// Stands for no job, behind all.
    const FILLER: Self;

    fn key(&self) -> Self::Key;
    /// Whether this job goes before the other one with an equal key. A filler never wins a tie
    /// against a job that would win against it.
    fn breaks_tie(&self, other: &Self, ties: &Self::Ties) -> bool;
    fn slot(&self) -> u32;
    /// In its place in an order, for no job any more.
    fn gone(self) -> Self;
    /// Whether it stands for no job.
    #[inline]
    fn is_gone(&self) -> bool {
        self.slot() == u32::MAX
    }
    /// Whether this one goes before the other.
    #[inline(always)]
    fn precedes(&self, other: &Self, ties: &Self::Ties) -> bool {
        if self.key() == other.key() { self.breaks_tie(other, ties) } else { self.key() < other.key() }
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

/// The progress of a job of a non-preemptive level. Jobs of a preemptive level are always `Fresh`.
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
    /// Stands for no job. It is as important as possible, so it is never the least important rank.
    pub(crate) const NOBODY: Rank = Rank { major: 0, arrival_ns: 0, slot: u32::MAX };

    /// A running job that cannot be preempted. It is as important as possible. So it is the least
    /// important running job only if all others are kept too, and even then it is more important
    /// than every waiting job.
    pub(crate) fn kept(arrival_ns: u64, slot: u32) -> Rank {
        Rank { major: 0, arrival_ns, slot }
    }

    #[inline]
    pub(crate) fn new(level: u32, phase: Phase, key: u64, importance: u32, arrival_ns: u64, slot: u32) -> Rank {
        let head = u128::from(level) << 2 | phase as u128;
        let major = head << 96 | u128::from(key) << 32 | u128::from(u32::MAX - importance);
        Rank { major, arrival_ns, slot }
    }

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
    type Ties = ();
    const FILLER: Rank = Rank { major: u128::MAX, arrival_ns: u64::MAX, slot: u32::MAX };

    #[inline(always)]
    fn key(&self) -> u128 {
        self.major
    }

    #[cold]
    fn breaks_tie(&self, other: &Rank, (): &()) -> bool {
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
        assert!(order.iter().all(|one| order.iter().all(|other| one.precedes(other, &()) == (one < other))));
        assert_eq!(order[3].with_phase(Phase::Running), rank(1, Phase::Running, 3, 0, 9, 9));
        assert!(ordered(-1) < ordered(0) && ordered(i64::MIN) == 0);
    }
}
