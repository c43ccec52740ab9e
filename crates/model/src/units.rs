//! Sizes, rates and probabilities as they stand in a System file.

use std::fmt;

/// A size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(u64);

/// A data rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rate(u64);

/// A probability as an exact number of billionths, 0 to 10^9: no float decides anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Probability(u32);

impl Bytes {
    /// `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Bytes(bytes)
    }
    /// The size in bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Rate {
    /// `bps` bits per second.
    #[must_use]
    pub const fn from_bps(bps: u64) -> Self {
        Rate(bps)
    }
    /// Bits per second.
    #[must_use]
    pub const fn as_bps(self) -> u64 {
        self.0
    }
}

impl Probability {
    /// Certainty.
    pub const ONE: Probability = Probability(1_000_000_000);
    /// Impossible.
    pub const NONE: Probability = Probability(0);

    /// `billionths` / 10^9, `None` above one.
    #[must_use]
    pub const fn from_billionths(billionths: u32) -> Option<Self> {
        if billionths <= 1_000_000_000 { Some(Probability(billionths)) } else { None }
    }
    /// The probability in billionths, 0 to 10^9.
    #[must_use]
    pub const fn billionths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().find(|(unit, _)| self.0 != 0 && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000u64, "Gbit"), (1_000_000, "Mbit"), (1_000, "kbit")];
        match units.iter().find(|(unit, _)| self.0 != 0 && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}bit", self.0),
        }
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let decimals = format!("{rest:09}");
        let decimals = decimals.trim_end_matches('0');
        write!(f, "{whole}.{}", if decimals.is_empty() { "0" } else { decimals })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_the_file_writes_them() {
        assert_eq!(Bytes::new(65536).to_string(), "64KiB");
        assert_eq!(Bytes::new(400).to_string(), "400B");
        assert_eq!(Rate::from_bps(1_000_000_000).to_string(), "1Gbit");
        assert_eq!(Rate::from_bps(2_500).to_string(), "2500bit");
        assert_eq!(Probability::from_billionths(250_000_000).unwrap().to_string(), "0.25");
        assert_eq!(Probability::from_billionths(0).unwrap().to_string(), "0.0");
    }
}
