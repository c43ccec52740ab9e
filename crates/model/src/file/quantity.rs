//! Durations, sizes, rates and probabilities as text: exact, or refused with the reason.

use std::fmt;

use crate::time::{Lateness, Span};
use crate::units::{Bytes, Probability, Rate};

/// A dimension with its units; the first unit is the finest, which counts one.
pub(crate) struct Dimension {
    /// The name of a value.
    pub noun: &'static str,
    /// The name of the finest unit in errors.
    pub finest: &'static str,
    /// Names and what each is worth, in the finest unit. Spellings past the documented ones stand last.
    pub units: &'static [(&'static str, u64)],
    /// How many of `units` are documented.
    documented: usize,
    /// A good value.
    pub example: &'static str,
}

/// Durations in nanoseconds.
pub(crate) const DURATION: Dimension = Dimension {
    noun: "a duration",
    finest: "nanoseconds",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
    ],
    documented: 6,
    example: "10ms",
};
/// Sizes in bytes.
pub(crate) const SIZE: Dimension = Dimension {
    noun: "a size",
    finest: "bytes",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ],
    documented: 7,
    example: "64KiB",
};
/// Rates in bits per second.
pub(crate) const RATE: Dimension = Dimension {
    noun: "a rate",
    finest: "bits per second",
    units: &[("bit", 1), ("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000)],
    documented: 4,
    example: "1Gbit",
};

impl Dimension {
    /// The documented units in words.
    pub(crate) fn unit_list(&self) -> String {
        self.units[..self.documented].iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// A regular expression for the values, for the JSON Schema.
    pub(crate) fn pattern(&self, signed: bool) -> String {
        let units = self.units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("|");
        format!("^{}[0-9]+(\\.[0-9]+)?({units})$", if signed { "-?" } else { "" })
    }

    /// Reads `text` as a whole number of the finest unit.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        let (negative, magnitude) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let digits = magnitude.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(magnitude.len());
        let (number, unit) = magnitude.split_at(digits);
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        if whole.is_empty() || decimals.is_empty() || decimals.contains('.') {
            return Err(QuantityError::Malformed);
        }
        if unit.is_empty() {
            return Err(QuantityError::NoUnit);
        }
        let Some((_, worth)) = self.units.iter().find(|(name, _)| *name == unit) else {
            let close = self.units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
            let close = close.map(|(name, _)| format!("{number}{name}"));
            return Err(QuantityError::UnknownUnit { unit: unit.to_owned(), close });
        };
        let value = scale(whole, decimals, *worth)?;
        if negative && value > 0 { Err(QuantityError::Negative) } else { Ok(value) }
    }
}

/// `whole.decimals * worth`, where that is a whole number.
fn scale(whole: &str, decimals: &str, worth: u64) -> Result<u64, QuantityError> {
    let whole: u64 = parse_digits(whole).ok_or(QuantityError::TooLarge)?;
    let decimals = decimals.trim_end_matches('0');
    let mut value = u128::from(whole) * u128::from(worth);
    if !decimals.is_empty() {
        // No unit divides more than 30 decimals (2^30 bytes): longer ones are never whole.
        let power = 10u128.checked_pow(decimals.len() as u32).filter(|_| decimals.len() <= 30);
        let power = power.ok_or(QuantityError::Fraction)?;
        let fraction = decimals.bytes().fold(0u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
        // fraction < 10^30 < 2^100 and worth < 2^42 may overflow: divide by common factors first.
        let common = gcd(power, u128::from(worth));
        let (power, worth) = (power / common, u128::from(worth) / common);
        if !fraction.is_multiple_of(power) {
            return Err(QuantityError::Fraction);
        }
        value += fraction / power * worth;
    }
    u64::try_from(value).map_err(|_| QuantityError::TooLarge)
}

/// Decimal digits as a number, `None` on overflow; `digits` holds nothing else.
fn parse_digits(digits: &str) -> Option<u64> {
    digits.bytes().try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Why a text is no quantity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum QuantityError {
    /// No number at the start.
    Malformed,
    /// A bare number.
    NoUnit,
    /// A unit that the dimension lacks.
    UnknownUnit {
        unit: String,
        /// The value with the unit that was probably meant.
        close: Option<String>,
    },
    /// Less than nothing.
    Negative,
    /// Not a whole number of the finest unit.
    Fraction,
    /// More than 64 bits hold, or than a file may.
    TooLarge,
}

impl QuantityError {
    /// The rest of a sentence that starts with the value: `is negative; ...`.
    pub(crate) fn explain<'a>(&'a self, dimension: &'a Dimension) -> impl fmt::Display + 'a {
        Explained { error: self, dimension }
    }
}

struct Explained<'a> {
    error: &'a QuantityError,
    dimension: &'a Dimension,
}

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dimension { noun, finest, example, .. } = self.dimension;
        let units = self.dimension.unit_list();
        match self.error {
            QuantityError::Malformed => {
                write!(f, "is not {noun}; write a number and its unit, such as \"{example}\" ({units})")
            }
            QuantityError::NoUnit => write!(f, "has no unit; write {noun} such as \"{example}\" ({units})"),
            QuantityError::UnknownUnit { unit, close: Some(close) } if unit.trim() != unit => {
                write!(f, "has a blank at its unit; write \"{close}\"")
            }
            QuantityError::UnknownUnit { unit, close: Some(close) } => {
                write!(f, "has the unknown unit \"{unit}\"; did you mean \"{close}\"?")
            }
            QuantityError::UnknownUnit { unit, close: None } => {
                write!(f, "has the unknown unit \"{unit}\"; units are {units}")
            }
            QuantityError::Negative => f.write_str("is negative; it must be zero or more"),
            QuantityError::Fraction => {
                write!(f, "is no whole number of {finest}, and takt does not round; use fewer decimals")
            }
            QuantityError::TooLarge if *noun == DURATION.noun => {
                write!(f, "is too long; the longest duration is {} (about three years)", Span::FILE_MAX)
            }
            QuantityError::TooLarge => write!(f, "is too large; the largest number is {} {finest}", u64::MAX),
        }
    }
}

/// A duration of a file: exact, at most [`Span::FILE_MAX`].
pub(crate) fn span(text: &str) -> Result<Span, QuantityError> {
    let span = Span::from_ns(DURATION.parse(text)?);
    if span > Span::FILE_MAX { Err(QuantityError::TooLarge) } else { Ok(span) }
}

/// A signed duration of a file.
pub(crate) fn shift(text: &str) -> Result<Lateness, QuantityError> {
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(rest) if !rest.starts_with('-') => (true, rest),
        _ => (false, text),
    };
    let ns = span(magnitude)?.as_ns() as i64;
    Ok(Lateness::from_ns(if negative { -ns } else { ns }))
}

pub(crate) fn size(text: &str) -> Result<Bytes, QuantityError> {
    SIZE.parse(text).map(Bytes::new)
}

pub(crate) fn rate(text: &str) -> Result<Rate, QuantityError> {
    RATE.parse(text).map(Rate::from_bps)
}

/// A probability from a TOML number, read from its decimal digits so that no float rounds it.
/// The error is the rest of a sentence.
pub(crate) fn probability(number: &str) -> Result<Probability, &'static str> {
    const RANGE: &str = "is not between 0 and 1";
    const FINE: &str = "has more than nine decimals; takt keeps probabilities as exact billionths";
    let number = number.replace('_', "");
    let number = number.strip_prefix('+').unwrap_or(&number);
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| RANGE)?),
        None => (number, 0),
    };
    let (negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if !whole.bytes().chain(decimals.bytes()).all(|c| c.is_ascii_digit()) {
        return Err(RANGE);
    }
    let digits = format!("{whole}{decimals}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Ok(Probability::default());
    }
    if negative {
        return Err(RANGE);
    }
    // The value is significant * 10^power billionths.
    let power = i64::from(exponent) - decimals.len() as i64 + (digits.len() - significant.len()) as i64 + 9;
    if significant.len() as i64 + power > 10 {
        return Err(RANGE);
    }
    if power < 0 {
        return Err(FINE);
    }
    let billionths = parse_digits(significant).and_then(|n| n.checked_mul(10u64.pow(power as u32)));
    billionths.and_then(|n| u32::try_from(n).ok()).and_then(Probability::from_billionths).ok_or(RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact_or_refused() {
        let ns = |text: &str| span(text).map(Span::as_ns);
        assert_eq!(ns("250us"), Ok(250_000));
        assert_eq!(ns("1.5s"), Ok(1_500_000_000));
        assert_eq!(ns("2.5\u{b5}s"), Ok(2_500));
        assert_eq!(ns("2.5\u{3bc}s"), Ok(2_500));
        assert_eq!(ns("1.5min"), Ok(90_000_000_000));
        assert_eq!(ns("0.25h"), Ok(900_000_000_000));
        assert_eq!(ns("-0ms"), Ok(0));
        assert_eq!(ns("0.300us"), Ok(300));
        assert_eq!(ns("100000000s"), Ok(Span::FILE_MAX.as_ns()));
        assert_eq!(ns("100000000.000000001s"), Err(QuantityError::TooLarge));
        assert_eq!(ns("99999999999999999999s"), Err(QuantityError::TooLarge));
        assert_eq!(ns("0.3ns"), Err(QuantityError::Fraction));
        assert_eq!(ns("1.0000000000000000000000000000000000000001s"), Err(QuantityError::Fraction));
        assert_eq!(ns("-5ms"), Err(QuantityError::Negative));
        assert_eq!(ns("10"), Err(QuantityError::NoUnit));
        for malformed in ["", "ms", ".5s", "1.s", "1..2s", "--5ms", "1.2.3s", "\u{661}s"] {
            assert_eq!(ns(malformed), Err(QuantityError::Malformed), "{malformed}");
        }
        assert!(matches!(ns("5 ms"), Err(QuantityError::UnknownUnit { close: Some(close), .. }) if close == "5ms"));
        assert!(matches!(ns("1e3ms"), Err(QuantityError::UnknownUnit { close: None, .. })));
    }

    #[test]
    fn sizes_rates_and_shifts() {
        assert_eq!(size("1.5KiB"), Ok(Bytes::new(1536)));
        assert_eq!(size("0.000000000931322574615478515625GiB"), Ok(Bytes::new(1)));
        assert_eq!(size("3MB"), Ok(Bytes::new(3_000_000)));
        assert_eq!(rate("2.5Mbit"), Ok(Rate::from_bps(2_500_000)));
        assert_eq!(shift("-2ms"), Ok(Lateness::from_ns(-2_000_000)));
        assert_eq!(shift("--2ms"), Err(QuantityError::Malformed));
    }

    #[test]
    fn probabilities_are_exact_billionths() {
        let parts = |text: &str| probability(text).map(Probability::billionths);
        assert_eq!(parts("0.1"), Ok(100_000_000));
        assert_eq!(parts("1"), Ok(1_000_000_000));
        assert_eq!(parts("1.000"), Ok(1_000_000_000));
        assert_eq!(parts("0.000_000_001"), Ok(1));
        assert_eq!(parts("25e-2"), Ok(250_000_000));
        assert_eq!(parts("0.0e99"), Ok(0));
        assert_eq!(parts("-0.0"), Ok(0));
        for out in ["1.1", "-0.1", "inf", "nan", "1e9", "11", "1e99999999999", "0xff"] {
            assert!(parts(out).unwrap_err().starts_with("is not between"), "{out}");
        }
        assert!(parts("0.1234567891").unwrap_err().starts_with("has more than nine"));
        assert!(parts("1e-10").unwrap_err().starts_with("has more than nine"));
    }
}
