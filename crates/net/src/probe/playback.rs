//! A file of send times and sizes, as sockperf plays it back.

use takt_model::Time;
use thiserror::Error;

use super::wire::{HEAD, MESSAGE_MAX};

/// The most lines.
pub const PLAYBACK_MAX: usize = 1 << 22;

/// Why a file cannot be played back.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {what}")]
pub struct PlaybackError {
    /// The line, from one.
    pub line: usize,
    /// The error and its remedy.
    pub what: String,
}

/// Reads lines like `0.000125, 400`: seconds since the start, and bytes. Times do not descend. Text
/// after `#` and empty lines mean nothing.
///
/// # Errors
/// The first line that is wrong.
pub fn playback(text: &str) -> Result<Vec<(Time, u32)>, PlaybackError> {
    let mut sends: Vec<(Time, u32)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let error = |what: String| PlaybackError { line: number, what };
        let content = line.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        if sends.len() == PLAYBACK_MAX {
            return Err(error(format!("the file has more than {PLAYBACK_MAX} messages; split it")));
        }
        let Some((time, size)) = content.split_once(',') else {
            return Err(error("is no time and size; write one like 0.000125, 400 (seconds, bytes)".to_owned()));
        };
        let at = seconds(time.trim())
            .ok_or_else(|| error("the time is no number of seconds like 0.000125, with at most 9 decimals".into()))?;
        let size = size.trim().parse::<u32>().ok().filter(|size| (HEAD..=MESSAGE_MAX).contains(&(*size as usize)));
        let size = size.ok_or_else(|| error(format!("the size is no number of bytes from {HEAD} to {MESSAGE_MAX}")))?;
        if sends.last().is_some_and(|(before, _)| *before > at) {
            return Err(error("the time lies before that of the line above; sort the file".to_owned()));
        }
        sends.push((at, size));
    }
    match sends.is_empty() {
        true => Err(PlaybackError { line: 1, what: "the file has no messages; write lines like 0.000125, 400".into() }),
        false => Ok(sends),
    }
}

/// Exactly, without floating point.
fn seconds(text: &str) -> Option<Time> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // Zeros at the end say nothing.
    let part = part.get(..9).filter(|_| part.bytes().skip(9).all(|byte| byte == b'0')).unwrap_or(part);
    if !are_digits(whole) || !are_digits(part) || part.len() > 9 {
        return None;
    }
    let ns = format!("{part:0<9}").parse::<u64>().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(ns).map(Time::from_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        let text = "# trace\n0, 64\n0.5,100\n\n1.000000001 , 65507 # the last\n1.0000000010, 64\n";
        let times = [(0, 64), (500_000_000, 100), (1_000_000_001, 65_507), (1_000_000_001, 64)];
        assert_eq!(playback(text).unwrap(), times.map(|(ns, size)| (Time::from_ns(ns), size)));
    }

    #[test]
    fn wrong_lines_are_named() {
        let error = |text: &str| playback(text).unwrap_err().to_string();
        assert!(error("").starts_with("line 1: the file has no messages"));
        assert!(error("0, 64\n1 64").starts_with("line 2: is no time and size"));
        for time in ["x", "-1", "1.0000000001", "1.", ".5", "99999999999999", "1e3", "+1"] {
            assert!(error(&format!("{time}, 64")).starts_with("line 1: the time is no number"), "{time}");
        }
        for size in ["63", "65508", "", "-1"] {
            assert!(error(&format!("0, {size}")).starts_with("line 1: the size is no number"), "{size}");
        }
        assert!(error("1, 64\n0.9, 64").starts_with("line 2: the time lies before"));
    }
}
