//! Sets of small numbers, by bit.

/// The positions of the ones, from the lowest.
#[inline]
pub(crate) fn ones(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(lowest)
    })
}

const WORD_BITS: usize = u64::BITS as usize;

/// A set of levels of a CPU, each below [`LevelSet::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LevelSet([u64; LevelSet::MAX / WORD_BITS]);

impl LevelSet {
    pub(crate) const MAX: usize = 128;

    /// A level above the limit is a bug. Release builds ignore it.
    #[inline]
    pub(crate) fn insert(&mut self, level: u32) {
        debug_assert!((level as usize) < LevelSet::MAX, "there is no level {level}");
        if let Some(word) = self.0.get_mut(level as usize / WORD_BITS) {
            *word |= 1 << (level as usize % WORD_BITS);
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    #[inline]
    pub(crate) fn union(self, other: LevelSet) -> LevelSet {
        let mut all = self.0;
        all.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
        LevelSet(all)
    }

    #[inline]
    pub(crate) fn filter(self, is_meant: impl Fn(u32) -> bool) -> LevelSet {
        let mut meant = LevelSet::default();
        self.iter().filter(|level| is_meant(*level)).for_each(|level| meant.insert(level));
        meant
    }

    /// Word by word, each with the number of its first level.
    #[inline]
    pub(crate) fn words(self) -> impl Iterator<Item = (u64, u32)> {
        self.0.into_iter().zip((0..).step_by(WORD_BITS))
    }

    /// From the most important level.
    #[inline]
    pub(crate) fn iter(self) -> impl Iterator<Item = u32> {
        self.words().flat_map(|(word, first)| ones(word).map(move |level| first + level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_both_words_come_in_order() {
        let mut set = LevelSet::default();
        assert!(set.is_empty());
        for level in [127, 64, 0, 63] {
            set.insert(level);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 127]);
        assert!(!set.is_empty());
        let mut other = LevelSet::default();
        other.insert(65);
        let odd = set.union(other).filter(|level| level % 2 == 1);
        assert_eq!(odd.iter().collect::<Vec<_>>(), [63, 65, 127]);
        assert_eq!(odd.words().map(|(word, first)| (word.count_ones(), first)).collect::<Vec<_>>(), [(1, 0), (2, 64)]);
    }
}
