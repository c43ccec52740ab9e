//! The places of a trace that could not be read.

use std::fmt;

/// A place that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where.
    pub place: Place,
    /// The fault.
    pub why: String,
}

/// A place in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Bytes from the start.
    Byte(usize),
    /// Lines from the first, which is 1.
    Line(usize),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Byte(byte) => write!(f, "byte {byte}: {}", self.why),
            Place::Line(line) => write!(f, "line {line}: {}", self.why),
        }
    }
}

/// All damage of a trace: the first places, and how many there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Damages {
    first: Vec<Damage>,
    count: u64,
}

impl Damages {
    /// How many places are kept.
    pub const KEPT_MAX: usize = 100;

    /// The first places, at most [`Damages::KEPT_MAX`].
    #[must_use]
    pub fn first(&self) -> &[Damage] {
        &self.first
    }
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }
    pub(crate) fn at_byte(&mut self, byte: usize, why: &str) {
        self.add(Place::Byte(byte), why);
    }
    pub(crate) fn at_line(&mut self, line: usize, why: &str) {
        self.add(Place::Line(line), why);
    }
    fn add(&mut self, place: Place, why: &str) {
        self.count += 1;
        if self.first.len() < Self::KEPT_MAX {
            self.first.push(Damage { place, why: why.to_owned() });
        }
    }
}
