//! Counts of received messages by their numbers: losses, duplicates and changes of order.

/// Numbers are below this: a run has no more messages.
pub const NUMBERS_MAX: u64 = 1 << 25;

/// The kind of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// A new number, greater than all before.
    InOrder,
    /// A new number, after a greater number (RFC 4737).
    Reordered,
    /// A number that had come before.
    Duplicate,
    /// Its number is [`NUMBERS_MAX`] or more. It is not counted.
    Beyond,
}

/// The received messages of a run, one bit for each number up to the greatest.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Arrivals {
    seen: Vec<u64>,
    /// One more than the greatest number.
    next: u64,
    /// Messages that came, each counted once.
    pub received: u64,
    /// Messages that came once more.
    pub duplicates: u64,
    /// Messages that came after a message with a greater number.
    pub reordered: u64,
}

impl Arrivals {
    /// A message came.
    pub fn take(&mut self, number: u64) -> Arrived {
        if number >= NUMBERS_MAX {
            return Arrived::Beyond;
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let Some(seen) = self.seen.get_mut(word) else { return Arrived::Beyond };
        if *seen & bit != 0 {
            self.duplicates += 1;
            return Arrived::Duplicate;
        }
        *seen |= bit;
        self.received += 1;
        if number < self.next {
            self.reordered += 1;
            return Arrived::Reordered;
        }
        self.next = number + 1;
        Arrived::InOrder
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_are_those_of_a_list(numbers in prop::collection::vec(0_u64..200, 0..300)) {
            let mut arrivals = Arrivals::default();
            let mut before: Vec<u64> = Vec::new();
            for number in numbers {
                let expected = if before.contains(&number) {
                    Arrived::Duplicate
                } else if before.iter().any(|other| *other > number) {
                    Arrived::Reordered
                } else {
                    Arrived::InOrder
                };
                prop_assert_eq!(arrivals.take(number), expected);
                before.push(number);
            }
            let all = before.len() as u64;
            before.sort_unstable();
            before.dedup();
            prop_assert_eq!((arrivals.received, arrivals.duplicates), (before.len() as u64, all - before.len() as u64));
        }
    }

    #[test]
    fn a_number_beyond_the_limit_takes_no_memory() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.take(NUMBERS_MAX), Arrived::Beyond);
        assert_eq!(arrivals.take(u64::MAX), Arrived::Beyond);
        assert_eq!(arrivals, Arrivals::default());
        assert_eq!(arrivals.take(NUMBERS_MAX - 1), Arrived::InOrder);
    }
}
