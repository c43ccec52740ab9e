//! A set of a node's CPUs.

use std::fmt;

/// Words of 64 CPUs in a [`CpuSet`].
const WORDS: usize = 4;

/// A set of model CPUs, 0 to [`CpuSet::CPUS_MAX`] - 1. Model CPU i is the i-th CPU that the process may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuSet([u64; WORDS]);

impl CpuSet {
    /// How many CPUs a node can have.
    pub const CPUS_MAX: u32 = 64 * WORDS as u32;
    /// The empty set.
    pub const EMPTY: CpuSet = CpuSet([0; WORDS]);

    /// CPUs 0 to `n` - 1; `n` above [`CpuSet::CPUS_MAX`] counts as that.
    #[must_use]
    pub fn first(n: u32) -> Self {
        (0..n.min(Self::CPUS_MAX)).collect()
    }
    /// CPUs `from` to `to` - 1.
    #[must_use]
    pub fn range(from: u32, to: u32) -> Self {
        (from..to).collect()
    }
    /// Adds `cpu`; one that is out of range is ignored and `false` comes back.
    #[inline]
    pub fn insert(&mut self, cpu: u32) -> bool {
        match self.0.get_mut((cpu / 64) as usize) {
            Some(word) => {
                *word |= 1 << (cpu % 64);
                true
            }
            None => false,
        }
    }
    /// Takes `cpu` out.
    #[inline]
    pub fn remove(&mut self, cpu: u32) {
        if let Some(word) = self.0.get_mut((cpu / 64) as usize) {
            *word &= !(1 << (cpu % 64));
        }
    }
    /// Whether `cpu` is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.get((cpu / 64) as usize).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }
    /// How many CPUs the set holds.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
    /// Whether the set holds no CPU.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }
    /// The lowest CPU of the set.
    #[inline]
    #[must_use]
    pub fn lowest(&self) -> Option<u32> {
        self.0.iter().enumerate().find(|(_, word)| **word != 0).map(|(i, word)| i as u32 * 64 + word.trailing_zeros())
    }
    /// CPUs in both sets.
    #[inline]
    #[must_use]
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
    /// CPUs in either set.
    #[inline]
    #[must_use]
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        CpuSet(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
    /// CPUs of `self` that are not in `other`.
    #[inline]
    #[must_use]
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        CpuSet(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }
    /// Whether every CPU of `self` is in `other`.
    #[inline]
    #[must_use]
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.difference(other).is_empty()
    }
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Self::CPUS_MAX).filter(|cpu| self.contains(*cpu))
    }
}

impl FromIterator<u32> for CpuSet {
    /// Collects CPU numbers; those out of range are left out.
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = CpuSet::EMPTY;
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behave_as_sets() {
        let a: CpuSet = [0, 3, 64, 255].into_iter().collect();
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 3, 64, 255]);
        assert_eq!((a.len(), a.lowest()), (4, Some(0)));
        assert!(!a.contains(256) && !CpuSet::default().insert(256));
        assert_eq!(a.difference(&CpuSet::first(64)).iter().collect::<Vec<_>>(), [64, 255]);
        assert!(CpuSet::range(64, 65).is_subset(&a) && !a.is_subset(&CpuSet::first(64)));
    }
}
